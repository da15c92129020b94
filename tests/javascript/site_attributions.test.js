// Scores of tokens and what is said of them, and CSV files.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  extremesOf,
  removablePositions,
  resultKey,
  scoreRows,
  sharesOf,
  sumOf,
} from "../../viz_app/site/app/attributions.js";
import { csvText } from "../../viz_app/site/app/csv.js";

/** @type {any} */
const ENCODING = { sides: [null, "A", "A", "A", "A", "A", null] };

/** A target with masks at some positions. @param {number[]} positions @returns {any} */
const target = (...positions) => ({ terms: { terms: positions.map((position) => ({ position })) } });

test("special tokens and the masks of the target cannot be removed", () => {
  assert.deepEqual(removablePositions(ENCODING, target(4)), [1, 2, 3, 5]);
  assert.deepEqual(removablePositions(ENCODING, { ...target(), terms: { nextSentence: [1, -1] } }), [1, 2, 3, 4, 5]);
});

test("the sentence names the tokens with the largest and the lowest score", () => {
  const scores = Float32Array.of(9, 0.5, -2, 1, 7, 0, -9);
  const extremes = extremesOf(scores, [1, 2, 3, 5]);
  assert.deepEqual(extremes, { top: 3, bottom: 2, highest: 1, lowest: -2 });
  assert.equal(extremesOf(scores, []), null);
});

test("what is said depends on the signs", () => {
  const key = (/** @type {number} */ highest, /** @type {number} */ lowest) =>
    resultKey({ top: 0, bottom: 0, highest, lowest });
  assert.deepEqual(
    [key(1, -1), key(1, 0.5), key(-1, -2), key(0, 0), key(0, -1)],
    ["result.both", "result.supports", "result.opposes", "result.supports", "result.opposes"],
  );
});

test("scores are drawn as shares of the largest magnitude", () => {
  assert.deepEqual([...sharesOf(Float32Array.of(1, -4, 0))], [0.25, -1, 0]);
  assert.deepEqual([...sharesOf(Float32Array.of(0, 0))], [0, 0]);
  assert.equal(sumOf(Float32Array.of(1, -4, 0.5)), -2.5);
});

test("a file has full precision, quotes, and no formulas", () => {
  const text = csvText([
    ["a,b", 'say "yes"', "=1+1", "'-x", null],
    [Math.fround(0.1), 3, Number.NaN, 1e-7, -0.5],
  ]);
  assert.equal(text, `"a,b","say ""yes""",'=1+1,''-x,\n0.100000001,3,,1e-7,-0.5\n`);
});

test("a file of scores has one row for each method and token", () => {
  const rows = scoreRows(/** @type {any} */ ({ tokens: ["[CLS]", "a"] }), [
    { method: "input x gradient", scores: Float32Array.of(0.5, 1), gap: null },
  ]);
  assert.deepEqual(rows, [
    ["method", "position", "token", "score"],
    ["input x gradient", 0, "[CLS]", 0.5],
    ["input x gradient", 1, "a", 1],
  ]);
});
