// The heads that attend from one token to another, and the effect of switching off each head.

import assert from "node:assert/strict";
import { test } from "node:test";
import { contributionRows, contributionsOf, rankedContributions } from "../../viz_app/site/app/ablations.js";
import { clickedEdge, currentEdge, findHeads, largestValue, openingHead } from "../../viz_app/site/app/find_heads.js";

const TOKENS = ["[CLS]", "the", "[MASK]", "[SEP]"];
const SIDES = [null, "A", "A", null];
const UNIFORM = Array(16).fill(0.25);

/**
 * A run of one layer with two heads.
 * @param {number[][]} maps of the heads
 * @param {Record<string, any>} [changes]
 * @returns {any}
 */
const run = (maps, { masks = [2], ...changes } = {}) => ({
  layers: 1,
  heads: maps.length,
  attention: Float32Array.from(maps.flat()),
  attentionGradient: null,
  headMaskGradient: null,
  encoding: { tokens: TOKENS, sides: SIDES, maskPositions: masks },
  predictions: [{ position: 2, top: [{ id: 7, token: "door", probability: 0.6 }] }],
  target: { target: { position: 2, word: "door" }, position: 2, value: -0.5, probability: 0.6 },
  ...changes,
});

/** A map with one weight of 1 in each row. @param {number[]} keys */
const to = (...keys) => keys.flatMap((key) => TOKENS.map((_, column) => Number(column === key)));

test("heads are ranked by their weight; equal ones stay in order, and pruned ones are left out", () => {
  const pruned = Array(16).fill(Number.NaN);
  const heads = findHeads(run([UNIFORM, to(0, 0, 1, 3), pruned, UNIFORM]), [2, 1]);
  assert.deepEqual(
    heads.map(({ head, weight }) => [head, weight]),
    [
      [1, 1],
      [0, 0.25],
      [3, 0.25],
    ],
  );
  assert.deepEqual([heads[0].percentile, heads[1].percentile], [75, 0]);
});

test("the head that opens attends from the mask to a word, and has an effect", () => {
  const maps = [to(0, 0, 0, 0), to(0, 0, 1, 0), UNIFORM];
  assert.deepEqual(openingHead(run(maps)), [0, 1]);
  const effects = Float32Array.of(5, 0.1, -2);
  assert.deepEqual(openingHead(run(maps, { headMaskGradient: effects })), [0, 2]);
  assert.equal(openingHead(run([to(0, 0, 0, 0)])), null);
});

test("without a mask all words count as queries", () => {
  const maps = [to(0, 0, 0, 0), to(0, 2, 0, 0)];
  assert.deepEqual(openingHead(run(maps, { masks: [] })), [0, 1]);
  assert.deepEqual(currentEdge(run(maps, { masks: [] }), [0, 1], null), [1, 2]);
});

test("the compared tokens are those of the address, or else the mask and its strongest word", () => {
  const single = run([to(0, 0, 1, 0)]);
  assert.deepEqual(currentEdge(single, [0, 0], [0, 3]), [0, 3]);
  assert.deepEqual(currentEdge(single, [0, 0], [0, 4]), [2, 1]);
  assert.deepEqual(currentEdge(single, [0, 0], null), [2, 1]);
});

test("two tokens that are clicked one after the other, in both columns, are compared", () => {
  assert.deepEqual(clickedEdge(["query", [2]], ["key", [1]]), [2, 1]);
  assert.deepEqual(clickedEdge(["key", [1]], ["query", [2]]), [2, 1]);
  assert.equal(clickedEdge(["query", [2]], ["query", [1]]), null);
  assert.equal(clickedEdge(["query", []], ["key", [1]]), null);
  assert.equal(clickedEdge(["query", [1, 2]], ["key", [1]]), null);
});

test("the sentence of a head has the largest value of the selected tokens, or of the mask", () => {
  const map = Float32Array.from([0.1, 0.9, 0, 0, -0.95, 0, 0, 0, 0, 0.2, 0, 0, 0, 0, 0, Number.NaN]);
  const text = run([UNIFORM]);
  assert.equal(largestValue(text, map, ["query", []]).value, map[9]);
  assert.deepEqual(largestValue(text, map, ["query", [0]]), { query: 0, key: 1, value: map[1] });
  assert.deepEqual(largestValue(text, map, ["key", [0]]), { query: 1, key: 0, value: map[4] });
  assert.equal(largestValue(run([UNIFORM], { masks: [] }), map, ["query", []]).value, map[4]);
});

const ABLATIONS = {
  value: Float32Array.of(-1.5, -0.25, Number.NaN),
  probability: Float32Array.of(0.22, 0.78, Number.NaN),
  first: ["wall", "door", ""],
};
const ABLATED = run([UNIFORM, UNIFORM, Array(16).fill(Number.NaN)], { headMaskGradient: Float32Array.of(1, -1, NaN) });

test("a head that supports the target has a positive contribution", () => {
  assert.deepEqual([...contributionsOf(ABLATED, ABLATIONS)], [1, -0.25, Number.NaN]);
  const [first, second, ...others] = rankedContributions(ABLATED, ABLATIONS);
  assert.deepEqual([first.head, first.contribution, first.first, first.changes], [[0, 0], 1, "wall", true]);
  assert.deepEqual([second.head, second.changes, others], [[0, 1], false, []]);
});

test("the next sentence changes on the other side of one half", () => {
  const target = { target: "nsp", position: null, value: 0.5, probability: 0.6 };
  const changes = rankedContributions(run([UNIFORM, UNIFORM], { target }), {
    value: Float32Array.of(-1, 1),
    probability: Float32Array.of(0.27, 0.73),
    first: ["door", "door"],
  }).map((head) => head.changes);
  assert.deepEqual(changes, [true, false]);
});

test("the file has every existing head, and the contributions that are known", () => {
  const rows = contributionRows(ABLATED, [[0, 1]], ABLATIONS);
  assert.deepEqual(rows[0], [
    "layer",
    "head",
    "on",
    "gradient_estimate",
    "ablation_contribution",
    "ablation_probability",
  ]);
  assert.deepEqual(
    rows.slice(1).map((row) => row.slice(0, 5)),
    [
      [0, 0, 1, 1, 1],
      [0, 1, 0, -1, -0.25],
    ],
  );
  assert.deepEqual(contributionRows(run([UNIFORM]), [], null), [
    ["layer", "head", "on"],
    [0, 0, 1],
  ]);
});
