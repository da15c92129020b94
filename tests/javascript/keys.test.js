// Where the keys of the keyboard go.

import assert from "node:assert/strict";
import { test } from "node:test";
import { neighbour as cellAfter } from "../../viz_app/components/attention_view/matrix.js";
import { neighbour as buttonAfter, fitted } from "../../viz_app/components/head_grid/head_grid.js";
import { neighbour as wordAfter } from "../../viz_app/components/token_strip/token_strip.js";

test("In a matrix arrows go one cell and stop at the edge, Home and End go to the row's ends", () => {
  const from = { row: 1, column: 2 };
  assert.deepEqual(cellAfter(from, "ArrowRight", 3, 3), { row: 1, column: 2 });
  assert.deepEqual(cellAfter(from, "ArrowUp", 3, 3), { row: 0, column: 2 });
  assert.deepEqual(cellAfter(from, "Home", 3, 3), { row: 1, column: 0 });
  assert.deepEqual(cellAfter(null, "ArrowDown", 3, 3), { row: 0, column: 0 });
  assert.equal(cellAfter(from, "x", 3, 3), null);
});

const plain = { mode: "select", layers: 2, heads: 3, rows: null, order: null };
const there =
  (gone = []) =>
  (layer, head) => ({ layer, head, disabled: gone.includes(`${layer},${head}`) });
const place = (found) => found && [found.layer, found.head];
const after = (header, from, key, gone) =>
  place(buttonAfter(header, { layer: String(from[0]), head: String(from[1]) }, key, there(gone)));

test("In the grid arrows go to the next head, past those that are pruned, and nowhere beyond the edge", () => {
  assert.deepEqual(after(plain, [0, 0], "ArrowRight"), [0, 1]);
  assert.deepEqual(after(plain, [0, 0], "ArrowRight", ["0,1"]), [0, 2]);
  assert.equal(after(plain, [0, 2], "ArrowRight"), null);
  assert.equal(after(plain, [0, 0], "ArrowUp"), null);
  assert.deepEqual(after(plain, [1, 0], "End"), [1, 2]);
});

test("In an order of their own, arrows go to the head that is seen beside", () => {
  const ordered = {
    ...plain,
    order: [
      [2, 0, 1],
      [1, 2, 0],
    ],
    rows: [1, 0],
  };
  assert.deepEqual(after(ordered, [0, 2], "ArrowRight"), [0, 0]);
  assert.deepEqual(after(ordered, [1, 2], "ArrowDown"), [0, 0]);
  assert.equal(after(ordered, [1, 2], "ArrowUp"), null);
});

test("Where heads are switched, arrows also reach whole layers and a head in every layer", () => {
  const switched = { ...plain, mode: "switch" };
  assert.deepEqual(after(switched, [0, 0], "ArrowLeft"), [0, ""]);
  assert.deepEqual(after(switched, [0, 1], "ArrowUp"), ["", 1]);
  assert.deepEqual(after(switched, ["", 1], "ArrowDown"), [0, 1]);
});

test("Of the bytes that share a pixel the one furthest from zero is shown", () => {
  const codes = Uint8Array.of(1, 9, 0, 3, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 4);
  assert.deepEqual([...fitted(codes, [4, 4], [2, 2], 0)], [9, 7, 0, 4]);
  assert.deepEqual([...fitted(Uint8Array.of(120, 130, 128, 255), [2, 2], [1, 2], 128)], [120, 255]);
  assert.equal(fitted(codes, [4, 4], [4, 4], 0), codes);
});

const words = [
  [0, 0],
  [100, 0],
  [0, 30],
  [90, 30],
].map(([left, top]) => ({ getBoundingClientRect: () => ({ left, top, width: 50, height: 20 }) }));

test("In the strip arrows go word by word, and up and down to the nearest word of the line there", () => {
  assert.equal(wordAfter(words, 1, "ArrowRight"), 2);
  assert.equal(wordAfter(words, 3, "ArrowRight"), 3);
  assert.equal(wordAfter(words, 1, "ArrowDown"), 3);
  assert.equal(wordAfter(words, 2, "ArrowUp"), 0);
  assert.equal(wordAfter(words, 0, "ArrowUp"), 0);
  assert.equal(wordAfter(words, 2, "Home"), 0);
  assert.deepEqual([wordAfter(words, -1, "Home"), wordAfter(words, 0, "x")], [null, null]);
});
