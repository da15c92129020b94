// A model: checks of its requests, the inputs of its graph, and its results.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ablateHeads } from "../../viz_app/site/engine/ablation.js";
import { InvalidInputError } from "../../viz_app/site/engine/errors.js";
import { Model } from "../../viz_app/site/engine/model.js";
import { checkRequest } from "../../viz_app/site/engine/requests.js";
import { targetProbability, targetValue } from "../../viz_app/site/engine/targets.js";

const DESCRIPTION = {
  name: "tiny",
  version: "1",
  layers: 2,
  heads: 3,
  hidden_size: 6,
  vocabulary: 5,
  max_tokens: 4,
  segments: 2,
  has_mlm: true,
  has_nsp: true,
  gradients: true,
  pruned_heads: {},
  files: [],
};
const TARGET = { terms: [{ position: 2, token: 4, weight: 1 }] };
const REQUEST = { inputIds: [1, 2, 3], positions: [0, 2], target: TARGET, gradients: true };
const INPUTS = [
  "input_ids",
  "token_type_ids",
  "attention_mask",
  "head_mask",
  "positions",
  "baseline_ids",
  "interpolation",
  "target_rows",
  "target_tokens",
  "target_weights",
  "next_sentence_weights",
  "compute_gradients",
];
const OUTPUTS = [
  "logits",
  "next_sentence_logits",
  "attention",
  "hidden_states",
  "embeddings",
  "target_value",
  "attention_gradient",
  "head_mask_gradient",
  "embedding_gradient",
];

class Tensor {
  constructor(type, data, dims) {
    Object.assign(this, { type, data, dims });
  }
}

/** A model whose session returns the given outputs, and what the session was called with. */
function modelWith(description, outputs, inputNames = INPUTS, outputNames = OUTPUTS) {
  const calls = [];
  const run = async (inputs, names) => {
    calls.push({ inputs, names });
    return Object.fromEntries(names.map((name) => [name, outputs[name] ?? { data: Float32Array.of(1), dims: [1] }]));
  };
  const session = { inputNames, outputNames, run };
  return { model: new Model(description, { Tensor }, session), calls };
}

test("A request that the model cannot run is refused with the reason", () => {
  const withoutGradients = { gradients: false, baselineIds: undefined };
  checkRequest(DESCRIPTION, REQUEST);
  checkRequest({ ...DESCRIPTION, gradients: false }, { ...REQUEST, ...withoutGradients });
  for (const [changes, message, description = {}] of [
    [{ inputIds: [] }, /no tokens/],
    [{ inputIds: [1, 1, 1, 1, 1] }, /5 tokens, but tiny reads at most 4/],
    [{ inputIds: [1, 5, 1] }, /token id 5 does not exist: it must be from 0 to 4/],
    [{ inputIds: [1, -1, 1] }, /token id -1 does not exist/],
    [{ inputIds: [1, 0.5, 1] }, /token id 0.5 does not exist/],
    [{ tokenTypeIds: [0, 1] }, /tokenTypeIds has 2 values/],
    [{ tokenTypeIds: [0, 1, 2] }, /segment 2 does not exist/],
    [{ attentionMask: [1] }, /attentionMask has 1 values/],
    [{ headMask: new Float32Array(5) }, /head mask has 5 values: tiny has 2 x 3 heads/],
    [{ positions: [2, 3] }, /position 3 does not exist/],
    [{ positions: [0, 1] }, /position 2, which is not among the predicted ones/],
    [{ positions: undefined }, /not among the predicted ones/],
    [{ target: { terms: [{ position: 2, token: 9, weight: 1 }] } }, /token of the target 9 does not exist/],
    [{ target: undefined }, /Gradients need a target/],
    [{ target: {} }, /The target is empty/],
    [{ baselineIds: [1] }, /baselineIds has 1 values/],
    [{ interpolation: 1.5 }, /interpolation is 1.5/],
    [{ interpolation: Number.NaN }, /interpolation is NaN/],
    [{}, /exported without gradients/, { gradients: false }],
    [{ gradients: false, interpolation: 0 }, /exported without gradients/, { gradients: false }],
    [{}, /does not predict tokens/, { has_mlm: false }],
    [{ target: { nextSentence: [1, -1] } }, /does not predict the next sentence/, { has_nsp: false }],
  ]) {
    assert.throws(
      () => checkRequest({ ...DESCRIPTION, ...description }, { ...REQUEST, ...changes }),
      (error) => error instanceof InvalidInputError && message.test(error.message) && error.message.endsWith("."),
      String(message),
    );
  }
});

test("A request becomes the inputs of the graph", async () => {
  const { model, calls } = modelWith(DESCRIPTION, {});
  await model.run({ ...REQUEST, tokenTypeIds: [0, 1, 1] });
  const { inputs, names } = calls[0];
  assert.deepEqual(names, OUTPUTS);
  assert.deepEqual(Object.keys(inputs), INPUTS);
  const expected = {
    input_ids: [1n, 2n, 3n],
    token_type_ids: [0n, 1n, 1n],
    attention_mask: [1, 1, 1],
    head_mask: [1, 1, 1, 1, 1, 1],
    positions: [0n, 2n],
    baseline_ids: [1n, 2n, 3n],
    interpolation: [1],
    target_rows: [1n],
    target_tokens: [4n],
    target_weights: [1],
    next_sentence_weights: [0, 0],
    compute_gradients: [true],
  };
  for (const name of INPUTS) assert.deepEqual([...inputs[name].data], expected[name], name);
  assert.deepEqual(inputs.head_mask.dims, [2, 3]);
  assert.deepEqual([inputs.interpolation.dims, inputs.compute_gradients.dims], [[], []]);
});

test("Only what a model has is requested, and only what is requested is returned", async () => {
  const [inputNames, outputNames] = [
    ["input_ids", "attention_mask", "head_mask"],
    ["attention", "hidden_states"],
  ];
  const encoder = { ...DESCRIPTION, has_mlm: false, has_nsp: false, gradients: false, segments: 0 };
  const { model, calls } = modelWith(encoder, {}, inputNames, outputNames);
  assert.deepEqual(Object.keys(await model.run({ inputIds: [1, 2], gradients: false })), ["attention", "hiddenStates"]);
  assert.deepEqual(Object.keys(calls[0].inputs), inputNames);
  assert.deepEqual(await model.run({ inputIds: [1, 2], gradients: false, outputs: ["logits"] }), {});
  const full = modelWith(DESCRIPTION, {});
  const result = await full.model.run({ ...REQUEST, gradients: false });
  assert.deepEqual(Object.keys(result).slice(-2), ["embeddings", "targetValue"]);
  await full.model.run({ ...REQUEST, outputs: ["embeddingGradient", "targetValue"] });
  assert.deepEqual(full.calls[1].names, ["target_value", "embedding_gradient"]);
});

test("Without positions, no logits are returned, and without a target no value", async () => {
  const { model, calls } = modelWith(DESCRIPTION, { logits: { data: new Float32Array(5), dims: [1, 5] } });
  const result = await model.run({ inputIds: [1, 2], gradients: false });
  assert.deepEqual(result.logits, { data: new Float32Array(), dims: [0, 5] });
  assert.equal(result.targetValue, undefined);
  assert.deepEqual([...calls[0].inputs.positions.data], [0n]);
  assert.deepEqual([...calls[0].inputs.target_weights.data], [0]);
});

test("A model that was exported without gradients has the value of a target too", async () => {
  const outputs = {
    logits: { data: Float32Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 2), dims: [2, 5] },
    next_sentence_logits: { data: Float32Array.of(3, 1), dims: [2] },
  };
  const description = { ...DESCRIPTION, gradients: false };
  const target = { ...TARGET, nextSentence: [1, -1] };
  const { model } = modelWith(description, outputs, INPUTS, OUTPUTS.slice(0, 4));
  const result = await model.run({ ...REQUEST, target, gradients: false, outputs: ["targetValue"] });
  assert.deepEqual(Object.keys(result), ["targetValue"]);
  assert.ok(Math.abs(result.targetValue.data[0] - (2 - Math.log(4 + Math.exp(2)) + 2)) < 1e-6);
});

test("The value and the probability of a target follow from its terms", () => {
  const logits = Float32Array.of(Math.log(1), Math.log(3), Math.log(2), Math.log(2));
  const term = (position, token, weight) => ({ position, token, weight });
  const value = (target) => targetValue(target, [5, 7], logits);
  for (const [target, probability] of [
    [{ terms: [term(5, 1, 1)] }, 3 / 4],
    [{ terms: [term(5, 1, 1), term(7, 0, 1)] }, 3 / 8],
    [{ terms: [term(5, 1, 0.5), term(7, 0, 0.5)] }, Math.sqrt(3 / 8)],
    [{ terms: [term(5, 1, 1), term(5, 0, -1)] }, 3 / 4],
  ]) {
    assert.ok(Math.abs(targetProbability(target, value(target)) - probability) < 1e-6);
  }
  const next = { nextSentence: [1, -1] };
  const nextValue = targetValue(next, [], undefined, Float32Array.of(Math.log(4), 0));
  assert.ok(Math.abs(targetProbability(next, nextValue) - 4 / 5) < 1e-6);
});

test("Heads are ablated one at a time, with the other gates of the request", async () => {
  const requests = [];
  const run = async (request) => {
    requests.push(request);
    return {
      targetValue: { data: Float32Array.of(-request.headMask.reduce((a, b) => a + b)), dims: [] },
      logits: { data: Float32Array.from(request.positions.flatMap((position) => [0, position, -1])) },
    };
  };
  const headMask = Float32Array.of(1, 1, 0.5, 1, 1, 0);
  const progress = [];
  const onProgress = (...counts) => progress.push(counts);
  const request = { ...REQUEST, positions: [0, 2], headMask };
  const result = await ablateHeads(
    run,
    DESCRIPTION,
    request,
    [
      [0, 2],
      [1, 0],
    ],
    { onProgress },
  );
  assert.deepEqual(
    requests.map((request) => [...request.headMask]),
    [
      [1, 1, 0, 1, 1, 0],
      [1, 1, 0.5, 0, 1, 0],
    ],
  );
  assert.deepEqual(
    requests.map(({ positions, gradients }) => [positions, gradients]),
    [
      [[0, 2], false],
      [[0, 2], false],
    ],
  );
  assert.deepEqual([...headMask], [1, 1, 0.5, 1, 1, 0]);
  assert.deepEqual(result, [
    { layer: 0, head: 2, targetValue: -4, probability: Math.exp(-4), topTokens: [0, 1] },
    { layer: 1, head: 0, targetValue: -3.5, probability: Math.exp(-3.5), topTokens: [0, 1] },
  ]);
  assert.deepEqual(progress, [
    [1, 2],
    [2, 2],
  ]);
  await assert.rejects(ablateHeads(run, DESCRIPTION, request, [[2, 0]]), InvalidInputError);
  const cancelled = ablateHeads(run, DESCRIPTION, request, [[0, 0]], { signal: AbortSignal.abort() });
  await assert.rejects(cancelled, { name: "CancelledError" });
});
