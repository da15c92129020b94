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
 * @property {number[]} topTokens id of the most probable token at each of the positions of the request
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
    const positions = request.positions ?? targetPositions(target);
    const result = await run({ ...request, headMask, positions, gradients: false, outputs: ["targetValue", "logits"] });
    const targetValue = result.targetValue?.data[0] ?? Number.NaN;
    const probability = targetProbability(target, targetValue);
    ablations.push({ layer, head, targetValue, probability, topTokens: topTokens(result, positions.length) });
    onProgress(ablations.length, heads.length);
  }
  return ablations;
}

/**
 * Return the id of the largest logit of each row.
 * @param {import("./requests.js").RunResult} result
 * @param {number} rows
 */
function topTokens({ logits }, rows) {
  const data = logits?.data ?? new Float32Array();
  const size = data.length / rows;
  return Array.from({ length: data.length ? rows : 0 }, (_, row) => {
    let largest = row * size;
    for (let index = largest; index < (row + 1) * size; index++) if (data[index] > data[largest]) largest = index;
    return largest - row * size;
  });
}
