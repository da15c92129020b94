// Occlusion on a target that is a sum over the tokens.

import assert from "node:assert/strict";
import { test } from "node:test";
import { occlusion } from "../../viz_app/site/app/occlusion.js";
import { CancelledError } from "../../viz_app/site/engine/errors.js";

const MASK = 100;
const request = {
  inputIds: [1, 7, MASK, 3, 2],
  target: { nextSentence: /** @type {[number, number]} */ ([1, -1]) },
  gradients: true,
};

/** @param {import("../../viz_app/site/engine/requests.js").RunRequest} run */
async function sumOfIds({ inputIds, gradients }) {
  assert.equal(gradients, false);
  return { targetValue: { data: Float32Array.of(inputIds.reduce((sum, id) => sum + id, 0)), dims: [] } };
}

test("the score of a token is the decrease of the target when it is masked", async () => {
  const progress = /** @type {number[][]} */ ([]);
  const onProgress = (/** @type {number[]} */ ...numbers) => progress.push(numbers);
  const scores = await occlusion(sumOfIds, request, [1, 2, 3], MASK, { onProgress });
  assert.deepEqual([...scores], [0, 7 - MASK, 0, 3 - MASK, 0]);
  assert.deepEqual(progress, [
    [1, 3],
    [2, 3],
    [3, 3],
  ]);
});

test("a cancellation ends it", async () => {
  await assert.rejects(occlusion(sumOfIds, request, [1], MASK, { signal: AbortSignal.abort() }), CancelledError);
});
