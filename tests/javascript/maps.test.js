// What is read from a map of bytes.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  byStrength,
  cache,
  capOf,
  forget,
  keptEdges,
  leastOf,
  lightened,
  line,
  peak,
  value,
} from "../../viz_app/components/attention_view/maps.js";
import { codes, mapOf } from "./maps.js";

test("A byte is a share of its row's maximum, signed about the code of zero, and one code is no number", () => {
  const plain = mapOf([[0.5, 0.25, 0, NaN]]);
  assert.deepEqual(
    [0, 1, 2, 3].map((column) => value(plain, 0, column)),
    [0.5, 0.25, 0, NaN],
  );
  const signed = mapOf([[-2, 2, 0]], { signed: true });
  assert.deepEqual(
    [0, 1, 2].map((column) => value(signed, 0, column)),
    [-2, 2, 0],
  );
});

test("A line is exact where it came exactly, and else as it is drawn; a column is one across the rows", () => {
  const map = mapOf([
    [1, 0],
    [0.5, 0.5],
  ]);
  assert.deepEqual([...line(map, "key", 0).numbers], [1, 0.5]);
  assert.equal(line(map, "key", 0).exact, false);
  map.exact.set("query1", Float32Array.of(0.4, 0.6));
  assert.equal(line(map, "query", 1).exact, true);
  assert.equal(line(map, "query", 1).numbers[1], Math.fround(0.6));
});

test("The edges that are kept hold the share of every row, and none could be left out", () => {
  const rows = Array.from({ length: 20 }, (_, i) =>
    Array.from({ length: 30 }, (_, j) => ((i * 31 + j * 17) % 29) / 29),
  );
  const map = mapOf(rows);
  for (const share of [0.05, 0.3, 0.7, 1]) {
    const edges = keptEdges(map, share);
    for (let row = 0; row < 20; row++) {
      const sizes = edges.filter(([at]) => at === row).map(([, , number]) => number);
      const whole = Array.from({ length: 30 }, (_, column) => value(map, row, column)).reduce((a, b) => a + b);
      const held = sizes.reduce((a, b) => a + b);
      const least = Math.min(...sizes);
      const without = held - sizes.filter((size) => size === least).reduce((a, b) => a + b);
      assert.ok(held >= share * whole * (1 - 1e-6), `row ${row} holds ${held} of ${whole}`);
      assert.ok(without < share * whole, `row ${row} keeps more than ${share}`);
    }
  }
});

test("Of a row of zeros nothing is kept", () => {
  const map = mapOf([[0, 0, 0]]);
  assert.equal(leastOf(map, 0, 0.7), codes.highest + 1);
  assert.deepEqual(keptEdges(map, 0.7), []);
});

test("What is no number is never an edge", () => {
  const edges = keptEdges(mapOf([[NaN, 1, 0.5]]), 1);
  assert.deepEqual(
    edges.map(([, column]) => column),
    [2, 1],
  );
});

test("Edges come weakest first, and of signed ones the size counts", () => {
  const edges = keptEdges(mapOf([[-1, 0.5, 0.25]], { signed: true }), 1);
  assert.deepEqual(
    edges.map(([, column]) => column),
    [2, 1, 0],
  );
  assert.deepEqual([...edges].sort(byStrength), edges);
});

test("The edges are kept while the share stays, and made anew for another", () => {
  const map = mapOf([[0.6, 0.3, 0.1]]);
  assert.equal(keptEdges(map, 0.7), keptEdges(map, 0.7));
  assert.equal(keptEdges(map, 1).length, 3);
  assert.equal(keptEdges(map, 0.5).length, 1);
});

test("Where curves are too many the weakest go, and what each row looks at most goes last", () => {
  const map = mapOf([
    [0.9, 0.8, 0.7],
    [0.1, 0.05, 0.05],
  ]);
  const left = lightened(map, keptEdges(map, 1), 4);
  assert.deepEqual(
    left.map(([row, column]) => [row, column]),
    [
      [1, 0],
      [0, 0],
    ],
  );
});

test("One value in a thousand may exceed the end of the colours, and in a short map none", () => {
  assert.equal(capOf(mapOf([[0.5, 1, 0.25]])), 1);
  const long = Array.from({ length: 50 }, (_, row) =>
    Array.from({ length: 40 }, (_, i) => (row < 2 && !i ? 1 : 0.125)),
  );
  assert.equal(capOf(mapOf(long)), 0.125);
});

test("The peak is the largest magnitude, and what is no number has none", () => {
  assert.equal(peak(Float32Array.of(-3, NaN, 2)), 3);
  assert.equal(peak(new Float32Array()), 0);
});

test("The oldest maps are forgotten once they weigh too much, but none that is needed", () => {
  for (const name of ["a", "b", "c", "d"]) cache.set(name, { ...mapOf([[1]]), weight: 12 << 20 });
  forget(new Set(["a"]));
  assert.deepEqual([...cache.keys()], ["a", "d"]);
  cache.clear();
});
