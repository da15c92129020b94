// Attributions: one score per token, computed from gradients.

import { checkCancelled, InvalidInputError } from "./errors.js";
import { targetPositions } from "./targets.js";

/** @typedef {import("./requests.js").RunRequest} RunRequest */
/** @typedef {import("./requests.js").RunResult} RunResult */

/**
 * @typedef {object} IntegratedGradients
 * @property {Float32Array} scores (token,)
 * @property {number} value of the target for the text
 * @property {number} baselineValue of the target for the baseline
 * @property {number} completenessError the sum of the scores minus the difference of the two values
 */

const MOST_STEPS = 10_000;

/**
 * Return the token ids of a baseline: the text with every token replaced except at some positions.
 * @param {number[]} inputIds
 * @param {number[]} kept the positions that are not replaced: special tokens and the positions of the target
 * @param {number} replacement id of the token that replaces the others, usually of [PAD]
 */
export const baselineOf = (inputIds, kept, replacement) =>
  inputIds.map((id, position) => (kept.includes(position) ? id : replacement));

/**
 * Compute integrated gradients on the straight path from the embeddings of a baseline to those of a text.
 *
 * Source: Sundararajan 2017 (arXiv:1703.01365).
 * @param {import("./requests.js").RunFunction} run
 * @param {RunRequest} request with a target and `baselineIds`
 * @param {object} [options]
 * @param {number} [options.steps] number of Gauss-Legendre points on the path
 * @param {AbortSignal} [options.signal]
 * @param {(completed: number, total: number) => void} [options.onProgress] receives the number of runs
 * @returns {Promise<IntegratedGradients>}
 */
export async function integratedGradients(run, request, { steps = 50, signal, onProgress = () => {} } = {}) {
  if (!request.target || !request.baselineIds) {
    throw new InvalidInputError("Integrated gradients need a target and a baseline: choose both.");
  }
  const { points, weights } = quadraturePoints(steps);
  const total = steps + 2;
  let completed = 0;
  /** @param {Partial<RunRequest>} changes */
  const runNext = async (changes) => {
    checkCancelled(signal);
    const result = await run({ ...request, positions: targetPositions(request.target ?? {}), ...changes });
    onProgress(++completed, total);
    return result;
  };
  const atEnd = /** @type {const} */ ({ gradients: false, outputs: ["targetValue", "embeddings"] });
  const [start, end] = [
    await runNext({ ...atEnd, outputs: [...atEnd.outputs], interpolation: 0 }),
    await runNext({ ...atEnd, outputs: [...atEnd.outputs], interpolation: 1 }),
  ];
  const [from, to] = [given(start.embeddings), given(end.embeddings)];
  const mean = new Float64Array(to.data.length);
  for (let step = 0; step < steps; step++) {
    const result = await runNext({ gradients: true, outputs: ["embeddingGradient"], interpolation: points[step] });
    const gradient = given(result.embeddingGradient).data;
    for (let i = 0; i < mean.length; i++) mean[i] += weights[step] * gradient[i];
  }
  const difference = to.data.map((value, i) => value - from.data[i]);
  const scores = sumProducts(mean, difference, to.dims[0]);
  const [value, baselineValue] = [given(end.targetValue).data[0], given(start.targetValue).data[0]];
  const completenessError = scores.reduce((sum, score) => sum + score, 0) - (value - baselineValue);
  return { scores, value, baselineValue, completenessError };
}

/**
 * Compute input x gradient: the dot product of the embedding of each token and the gradient of the target there.
 *
 * Source: Shrikumar 2016 (arXiv:1605.01713).
 * @param {RunResult} result of a run with gradients
 * @returns {Float32Array} (token,)
 */
export function inputXGradient({ embeddings, embeddingGradient }) {
  const { data, dims } = given(embeddings);
  return sumProducts(data, given(embeddingGradient).data, dims[0]);
}

/**
 * Compute gradient x attention of each token: summed over all layers, heads and queries, without pruned heads.
 *
 * Source: ALBEF (arXiv:2107.07651) and Barkan 2021.
 * @param {RunResult} result of a run with gradients
 * @returns {Float32Array} (token,)
 */
export function gradientXAttention({ attention, attentionGradient }) {
  const { data, dims } = given(attention);
  const gradient = given(attentionGradient).data;
  const sums = new Float64Array(dims[3]);
  for (let i = 0; i < data.length; i++) sums[i % sums.length] += data[i] * gradient[i] || 0; // NaN: a pruned head
  return Float32Array.from(sums);
}

/**
 * Return the points and the weights of a Gauss-Legendre rule on the interval from 0 to 1.
 * @param {number} steps
 */
export function quadraturePoints(steps) {
  if (!Number.isInteger(steps) || steps < 1 || steps > MOST_STEPS) {
    throw new InvalidInputError(`The number of steps is ${steps}: it must be from 1 to ${MOST_STEPS}.`);
  }
  const [points, weights] = [new Float64Array(steps), new Float64Array(steps)];
  for (let i = 0; i < steps; i++) {
    let root = -Math.cos((Math.PI * (i + 0.75)) / (steps + 0.5));
    let slope = 1;
    for (let iteration = 0; iteration < 10; iteration++) {
      const polynomial = legendre(steps, root);
      slope = polynomial.slope;
      root -= polynomial.value / slope;
    }
    points[i] = (root + 1) / 2;
    weights[i] = 1 / ((1 - root * root) * slope * slope);
  }
  return { points, weights };
}

/**
 * Return the value and the slope of a Legendre polynomial.
 * @param {number} degree
 * @param {number} x
 */
function legendre(degree, x) {
  let [previous, value] = [1, x];
  for (let k = 2; k <= degree; k++) {
    [previous, value] = [value, ((2 * k - 1) * x * value - (k - 1) * previous) / k];
  }
  return { value, slope: (degree * (x * value - previous)) / (x * x - 1) };
}

/**
 * Return the sum of the products of each row.
 * @param {Float32Array | Float64Array} left
 * @param {Float32Array} right
 * @param {number} rows
 */
function sumProducts(left, right, rows) {
  const sums = new Float64Array(rows);
  const width = right.length / rows;
  for (let i = 0; i < right.length; i++) sums[Math.floor(i / width)] += left[i] * right[i];
  return Float32Array.from(sums);
}

/**
 * @template Value
 * @param {Value | undefined} value
 * @returns {Value}
 */
function given(value) {
  if (value === undefined)
    throw new InvalidInputError("The model was exported without gradients: export it with gradients.");
  return value;
}
