// Occlusion: the decrease of a target when each token in turn is masked.

import { checkCancelled } from "../engine/errors.js";

/** @import { RunFunction, RunRequest } from "../engine/requests.js" */

/**
 * Compute occlusion, as `occlusion` of bert_core/run/perturbation.py. Tokens that are not masked score 0.
 *
 * Source: Zeiler 2014 (arXiv:1311.2901); Li 2016 (arXiv:1612.08220).
 * @param {RunFunction} run
 * @param {RunRequest} request with a target
 * @param {number[]} positions the tokens that are masked, each alone
 * @param {number} maskId
 * @param {object} [options]
 * @param {AbortSignal} [options.signal]
 * @param {(completed: number, total: number) => void} [options.onProgress] receives the number of tokens
 * @returns {Promise<Float32Array>} (token,)
 */
export const occlusion = async (run, request, positions, maskId, { signal, onProgress = () => {} } = {}) => {
  const computeValue = async (/** @type {number[]} */ inputIds) => {
    const { targetValue } = await run({ ...request, inputIds, gradients: false, outputs: ["targetValue"] });
    return targetValue?.data[0] ?? Number.NaN;
  };
  const scores = new Float32Array(request.inputIds.length);
  const value = await computeValue(request.inputIds);
  for (const [completed, position] of positions.entries()) {
    checkCancelled(signal);
    const inputIds = request.inputIds.with(position, maskId);
    if (inputIds[position] !== request.inputIds[position]) scores[position] = value - (await computeValue(inputIds));
    onProgress(completed + 1, positions.length);
  }
  return scores;
};
