// Scores of tokens and what is said of them, numbers as text, and CSV files.

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
import { cellNumber, twoDigits } from "../../viz_app/site/app/numbers.js";
import { tokenLabels } from "../../viz_app/site/app/token_labels.js";

/** @type {any} */
const ENCODING = {
  text: "She opened the doormat",
  pair: null,
  tokens: ["[CLS]", "she", "opened", "the", "[MASK]", "[MASK]", "[SEP]"],
  sides: [null, "A", "A", "A", "A", "A", null],
  roles: ["first", null, null, null, "mask", "mask", "end"],
  words: [null, 0, 1, 2, 3, 3, null],
  offsets: [[0, 0], [0, 3], [4, 10], [11, 14], [15, 19], [19, 22], [0, 0]], // biome-ignore format: one line
};

test("special tokens and the mask of the target cannot be removed", () => {
  assert.deepEqual(removablePositions(ENCODING, /** @type {any} */ ({ position: 4 })), [1, 2, 3, 5]);
  assert.deepEqual(removablePositions(ENCODING, /** @type {any} */ ({ position: null })), [1, 2, 3, 4, 5]);
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

test("numbers have the digits of the app", () => {
  const numbers = [0.966, 0.0314, -12, 1e-5, 0.00012, 99.6, 9.96, 0.0996, 0, 120, 1];
  const expected = ["0.97", "0.031", "−12", "1.0e−5", "0.00012", "1.0e2", "10", "0.10", "0.0", "1.2e2", "1.0"];
  assert.deepEqual(numbers.map(twoDigits), expected);
  assert.deepEqual([0.067, -1.2, 12.34, 123.4, -0.001, Number.NaN].map(cellNumber), [
    "0.07",
    "−1.20",
    "12.3",
    "123",
    "0.00",
    "",
  ]);
});

test("a masked token is named by its original", () => {
  assert.deepEqual(
    tokenLabels(ENCODING, (piece) => `${piece} (masked)`),
    ["[CLS]", "she", "opened", "the", "door (masked)", "##mat (masked)", "[SEP]"],
  );
  const typed = { ...ENCODING, text: "She opened the [MASK]" };
  typed.offsets = typed.offsets.with(4, [15, 21]);
  assert.equal(tokenLabels(typed, String)[4], "[MASK]");
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
