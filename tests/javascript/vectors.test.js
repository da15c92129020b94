// How one query comes to what it gives every key.

import assert from "node:assert/strict";
import { test } from "node:test";
import { reckoned } from "../../viz_app/components/attention_view/vectors.js";

const vectors = { queries: Float32Array.of(1, 2, 3, 4), keys: Float32Array.of(1, 0, 0, -1), distances: null };
const said = {
  name: "head",
  size: 2,
  terms: 1,
  causal: false,
  window: null,
  rotated: false,
  distances: false,
  sent: true,
};

test("A score is the product of query and key over the root of their length, and the shares are its softmax", () => {
  const { scores, shares, largestProduct } = reckoned(vectors, said, 1);
  assert.deepEqual([...scores], [3 / Math.SQRT2, -4 / Math.SQRT2]);
  assert.equal(largestProduct, 4);
  const ratio = shares[0] / shares[1];
  assert.ok(Math.abs(ratio / Math.exp(7 / Math.SQRT2) - 1) < 1e-12);
  assert.ok(Math.abs(shares[0] + shares[1] - 1) < 1e-12);
});

test("A distance is added to its score", () => {
  const distances = Float32Array.of(0, 0, 10, 20);
  const { scores } = reckoned({ ...vectors, distances }, said, 1);
  assert.deepEqual([...scores], [3 / Math.SQRT2 + 10, -4 / Math.SQRT2 + 20]);
});

test("The number of terms stands under the root beside the length", () => {
  const { scores } = reckoned(vectors, { ...said, terms: 3 }, 1);
  assert.deepEqual([...scores], [3 / Math.sqrt(6), -4 / Math.sqrt(6)]);
});

test("Where a query sees only what stands before it, later keys get nothing", () => {
  const { scores, shares } = reckoned(vectors, { ...said, causal: true }, 0);
  assert.deepEqual([scores[1], shares[0], shares[1]], [-Infinity, 1, 0]);
});

test("In a local layer, keys outside the window get nothing, to both sides", () => {
  const three = {
    queries: Float32Array.of(1, 1, 1, 1, 1, 1),
    keys: Float32Array.of(2, 0, 1, 0, 0, 0),
    distances: null,
  };
  const ends = (/** @type {number} */ query) => reckoned(three, { ...said, window: 1, rotated: true }, query).scores;
  assert.deepEqual([ends(0)[1] > 0, ends(0)[2], ends(2)[0]], [true, -Infinity, -Infinity]);
  assert.ok([...ends(1)].every(Number.isFinite));
});

test("Scores too large for the exponential give shares all the same", () => {
  const large = { queries: Float32Array.of(3e4, 0), keys: Float32Array.of(3e4, 0, 0, 0), distances: null };
  assert.deepEqual([...reckoned(large, said, 0).shares], [1, 0]);
});
