// The maps of a run in the page; tests/test_browser_views.py compares them with those of Python.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  curveLimit,
  layerReader,
  mapsFromArray,
  strongestEdges,
  thumbnails,
} from "../../viz_app/components/array_maps.js";
import { codes } from "./maps.js";

const form = { layers: 2, heads: 2, rows: 2, columns: 2, signed: false, codes };
const values = Float32Array.from([0, 1, 0.5, 0.25, 4, 5, 6, 7, NaN, NaN, NaN, NaN, 8, Infinity, 0, 2]);
const constants = { small: 28, large: 64, middle: 128, pale: 0.2, shareBelow: 1 };

test("A map of an array has its rows, its codes, and its columns behind its rows", () => {
  const [, map] = mapsFromArray(values, 0, form);
  assert.deepEqual(map.row(1), Float32Array.of(6, 7));
  assert.deepEqual([...map.coded().subarray(8)], [102, 128, 110, 128]);
  assert.deepEqual(new Float32Array(map.lines().buffer), Float32Array.of(4, 5, 6, 7, 4, 6, 5, 7));
});

test("A layer has its pruned heads, its values that are no number, and what is off", () => {
  const read = layerReader(values, form, {
    listed: 2,
    off: [
      [0, 0],
      [1, 1],
    ],
  });
  const { pruned, holes, off, strongest } = read(1);
  assert.deepEqual([pruned, holes, off], [[0], [4, 1], [1]]);
  assert.deepEqual(strongest, [
    [],
    [
      [0, 0, 8],
      [1, 1, 2],
    ],
  ]);
  assert.equal(read(1), read(1));
});

test("The strongest edges are in falling order, of equal ones the first, without zeros", () => {
  assert.deepEqual(strongestEdges(Float32Array.of(1, -3, 0, 3, NaN, -Infinity, 2, 1), 4, 4), [
    [0, 1, -3],
    [0, 3, 3],
    [1, 2, 2],
    [0, 0, 1],
  ]);
  assert.deepEqual(strongestEdges(new Float32Array(4), 2, 3), []);
});

test("The limit of curves is above 0", () => {
  assert.equal(curveLimit(values, false), 8);
  assert.equal(curveLimit(new Float32Array(4), false), 1);
  assert.equal(curveLimit(values, true), 1);
});

test("Of the values that share a pixel the largest is kept, or if signed the largest magnitude", () => {
  const one = Float32Array.of(1, -4, 2, 0);
  const small = (signed) => thumbnails(one, { ...form, layers: 1, heads: 1, signed }, [], 1, constants);
  assert.deepEqual(small(false), { pixels: Uint8Array.of(255), size: [1, 1], limit: 2 });
  assert.deepEqual(small(true), { pixels: Uint8Array.of(1), size: [1, 1], limit: 4 });
});
