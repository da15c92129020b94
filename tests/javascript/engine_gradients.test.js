// Integrated gradients and other attributions, of functions whose gradients are known.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  baselineOf,
  gradientXAttention,
  inputXGradient,
  integratedGradients,
  quadraturePoints,
} from "../../viz_app/site/engine/integrated_gradients.js";

const EMBEDDINGS = { 0: [0, 0], 1: [1, 2], 2: [-1, 3] };
const REQUEST = {
  inputIds: [1, 2, 1],
  baselineIds: [1, 0, 0],
  positions: [0, 1],
  target: { terms: [{ position: 1, token: 0, weight: 1 }] },
  gradients: true,
};

/** Run a model whose target is the sum of x ** power over all values of the embeddings. */
function runOf(power, requests = []) {
  return async (request) => {
    requests.push(request);
    const { inputIds, baselineIds, interpolation, gradients } = request;
    const [to, from] = [inputIds, baselineIds].map((ids) => ids.flatMap((id) => EMBEDDINGS[id]));
    const data = Float32Array.from(to, (value, i) => (1 - interpolation) * from[i] + interpolation * value);
    const dims = [inputIds.length, 2];
    return {
      embeddings: { data, dims },
      targetValue: { data: Float32Array.of(data.reduce((sum, value) => sum + value ** power, 0)), dims: [] },
      ...(gradients && { embeddingGradient: { data: data.map((value) => power * value ** (power - 1)), dims } }),
    };
  };
}

test("Integrated gradients of a quadratic function are exact with one step", async () => {
  const result = await integratedGradients(runOf(2), REQUEST, { steps: 1 });
  assert.deepEqual([...result.scores], [0, 1 + 9, 1 + 4]); // the differences of the squares; position 0 is the same
  assert.deepEqual([result.value, result.baselineValue], [20, 5]);
  assert.equal(result.completenessError, 0);
});

test("The completeness error is the sum of the scores minus the difference of the values", async () => {
  // Of x ** 4, the midpoint has the slope 4 * (x / 2) ** 3, which gives x ** 4 / 2 instead of x ** 4.
  const result = await integratedGradients(runOf(4), REQUEST, { steps: 1 });
  assert.deepEqual([...result.scores], [0, 41, 8.5]);
  assert.equal(result.completenessError, -49.5);
  const exact = await integratedGradients(runOf(4), REQUEST, { steps: 2 });
  assert.ok(Math.abs(exact.completenessError) < 1e-4);
});

test("Runs have the positions of the target only, and are reported", async () => {
  const [requests, progress] = [[], []];
  await integratedGradients(runOf(2, requests), REQUEST, {
    steps: 2,
    onProgress: (...counts) => progress.push(counts),
  });
  assert.deepEqual(progress, [
    [1, 4],
    [2, 4],
    [3, 4],
    [4, 4],
  ]);
  assert.deepEqual(
    requests.map(({ positions }) => positions),
    [[1], [1], [1], [1]],
  );
  assert.deepEqual(
    requests.map(({ gradients }) => gradients),
    [false, false, true, true],
  );
});

test("Integrated gradients end when they are cancelled", async () => {
  const controller = new AbortController();
  const requests = [];
  const onProgress = (completed) => completed === 3 && controller.abort();
  const options = { steps: 10, signal: controller.signal, onProgress };
  await assert.rejects(integratedGradients(runOf(2, requests), REQUEST, options), { name: "CancelledError" });
  assert.equal(requests.length, 3);
});

test("Integrated gradients need a target, a baseline and a number of steps", async () => {
  for (const changes of [{ target: undefined }, { baselineIds: undefined }]) {
    const computed = integratedGradients(runOf(2), { ...REQUEST, ...changes });
    await assert.rejects(computed, { name: "InvalidInputError" });
  }
  for (const steps of [0, -1, 1.5, 10_001, Number.NaN]) {
    await assert.rejects(integratedGradients(runOf(2), REQUEST, { steps }), { name: "InvalidInputError" });
  }
});

test("The Gauss-Legendre rule integrates polynomials exactly", () => {
  const { points, weights } = quadraturePoints(2);
  assert.ok(Math.abs(points[0] - (0.5 - 0.5 / Math.sqrt(3))) < 1e-15);
  assert.ok(Math.abs(weights[0] - 0.5) < 1e-15);
  for (const steps of [1, 2, 3, 10, 50, 200]) {
    const rule = quadraturePoints(steps);
    for (const power of [0, 1, 2 * steps - 1]) {
      const integral = rule.points.reduce((sum, point, i) => sum + rule.weights[i] * point ** power, 0);
      assert.ok(Math.abs(integral - 1 / (power + 1)) < 1e-14, `${steps} steps, power ${power}`);
    }
  }
});

test("A baseline keeps some positions", () => {
  assert.deepEqual(baselineOf([7, 8, 9], [0, 2], 3), [7, 3, 9]);
});

test("Input x gradient sums the products of each token", async () => {
  const result = await runOf(2)({ ...REQUEST, interpolation: 1 });
  assert.deepEqual([...inputXGradient(result)], [10, 20, 10]);
  assert.throws(() => inputXGradient({ embeddings: result.embeddings }), { name: "InvalidInputError" });
});

test("Gradient x attention is summed for each key, without pruned heads", () => {
  const attention = { data: Float32Array.of(1, 2, 3, 4, Number.NaN, 1, 1, 1), dims: [1, 2, 2, 2] };
  const attentionGradient = { data: Float32Array.of(1, -1, 2, 0, Number.NaN, 1, 2, 3), dims: [1, 2, 2, 2] };
  assert.deepEqual([...gradientXAttention({ attention, attentionGradient })], [1 + 6 + 2, -2 + 1 + 3]);
});
