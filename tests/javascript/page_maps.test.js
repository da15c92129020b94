// The maps of an exported page: what Python packed is what the view is given.

import assert from "node:assert/strict";
import { test } from "node:test";
import { coded, decoded, everyLine, linesOf, mapsIn, product, woven } from "../../viz_app/components/page_maps.js";
import { codes } from "./maps.js";

const form = { rows: 2, columns: 3, exact: true, signed: false, codes };
const numbers = Float32Array.of(0.5, 0.25, 0, 1, NaN, 0.5);

/** As `planes` of packing.py writes numbers. */
function planes(values) {
  const bytes = new Uint8Array(values.buffer);
  const width = values.BYTES_PER_ELEMENT;
  return Uint8Array.from({ length: bytes.length }, (_, i) => {
    const [plane, j] = [Math.floor(i / values.length), i % values.length];
    return bytes[j * width + plane];
  });
}

test("Planes are woven back into the numbers they came from", () => {
  assert.deepEqual(new Float32Array(woven(planes(numbers), 4).buffer), numbers);
});

test("An exact map gives its numbers, every row and then every column", () => {
  const [map] = mapsIn(planes(numbers), [0], form);
  assert.deepEqual(map.row(1), numbers.subarray(3));
  assert.deepEqual(new Float32Array(map.lines().buffer), Float32Array.of(...numbers, 0.5, 1, 0.25, NaN, 0, 0.5));
  assert.deepEqual(everyLine(form), [
    ["query", 0],
    ["query", 1],
    ["key", 0],
    ["key", 1],
    ["key", 2],
  ]);
  assert.equal(linesOf(numbers, form).length, 4 * 12);
});

test("A map as the view takes it is the maxima of its rows, then its codes, up to a multiple of four", () => {
  const map = coded(numbers, form);
  assert.deepEqual([...new Float32Array(map.slice(0, 8).buffer)], [0.5, 1]);
  assert.deepEqual([...map.subarray(8)], [128, 64, 0, 128, 255, 64, 0, 0]);
  assert.deepEqual([...decoded(map, 0, form)], [0.5, 0.25, 0]);
});

test("Signed values have their zero at its code", () => {
  const signed = { ...form, signed: true };
  const map = coded(Float32Array.of(-2, 2, 0, 0, 0, 0), signed);
  assert.deepEqual([...map.subarray(8, 14)], [0, 254, 127, 127, 127, 127]);
  assert.deepEqual([...decoded(map, 0, signed)], [-2, 2, 0]);
});

test("Two thin matrices give their product, in steps squared", () => {
  const made = product(Int16Array.of(1, 2, 3, -1), Int16Array.of(4, 0, 5, 1), 0.5, 2);
  assert.deepEqual([...made], [(4 + 15) / 4, 3 / 4, (8 - 5) / 4, -1 / 4]);
});

test("A thin map is given as a whole one is, in shares of the maxima that came with it", () => {
  const small = { rows: 2, columns: 2, exact: false, signed: true, codes };
  const head = Float32Array.of(10, 20, 0.5); // two maxima and the step
  const left = Int16Array.of(2, 1);
  const right = Int16Array.of(2, -2);
  const bytes = [new Uint8Array(head.buffer), planes(left), planes(right)];
  const [map] = mapsIn(Uint8Array.from(bytes.flatMap((part) => [...part])), [1], small);
  assert.deepEqual([...map.row(0)], [10, -10]);
  assert.ok(Math.abs(map.row(1)[0] - 10) <= 20 / 254);
});

test("Each map of a layer begins where the one before it ends", () => {
  const loose = { ...form, exact: false };
  const one = coded(numbers, loose);
  const maps = mapsIn(Uint8Array.of(...one, ...one), [0, 0], loose);
  assert.deepEqual(maps[1].coded(), one);
});
