// Ablation of single attention heads: one run per head, with its output set to zero.

import { checkCancelled, InvalidInputError } from "./errors.js";
import { targetPositions, targetProbability } from "./targets.js";

/**
 * @typedef {[layer: number, head: number]} Head
 * @typedef {object} HeadAblation the target without one head
 * @property {number} layer
 * @property {number} head
 * @property {number} targetValue
 * @property {number} probability
 */

/**
 * Compute the target without each of some heads, one at a time. The other heads keep the gates of the request.
 *
 * Source: Michel 2019, section 3 (arXiv:1905.10650).
 * @param {import("./requests.js").RunFunction} run
 * @param {import("./requests.js").ModelDescription} description
 * @param {import("./requests.js").RunRequest} request with a target
 * @param {Head[]} heads
 * @param {object} [options]
 * @param {AbortSignal} [options.signal]
 * @param {(completed: number, total: number) => void} [options.onProgress] receives the number of heads
 * @returns {Promise<HeadAblation[]>}
 */
export async function ablateHeads(run, description, request, heads, { signal, onProgress = () => {} } = {}) {
  const { target } = request;
  if (!target) throw new InvalidInputError("Head ablation needs a target: choose one.");
  const count = description.layers * description.heads;
  /** @type {HeadAblation[]} */
  const ablations = [];
  for (const [layer, head] of heads) {
    checkCancelled(signal);
    if (!(layer >= 0 && layer < description.layers && head >= 0 && head < description.heads)) {
      throw new InvalidInputError(`${description.name} has no head ${head} in layer ${layer}: choose another head.`);
    }
    const headMask = Float32Array.from(request.headMask ?? new Float32Array(count).fill(1));
    headMask[layer * description.heads + head] = 0;
    const positions = targetPositions(target);
    const result = await run({ ...request, headMask, positions, gradients: false, outputs: ["targetValue"] });
    const targetValue = result.targetValue?.data[0] ?? Number.NaN;
    ablations.push({ layer, head, targetValue, probability: targetProbability(target, targetValue) });
    onProgress(ablations.length, heads.length);
  }
  return ablations;
}
