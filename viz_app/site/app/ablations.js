// The effect of switching off each head alone.

import { allHeads, prunedHeads } from "./find_heads.js";

/** @import { Ablations, Head, Run } from "./types.d.ts" */

/**
 * A head with its contribution: by how much the target falls when this head alone is off.
 * @typedef {object} HeadContribution
 * @property {Head} head
 * @property {number} contribution
 * @property {number} probability of the target without the head
 * @property {string} first the most likely token without the head
 * @property {boolean} changes whether the prediction changes
 */

/**
 * Return the contribution of each head, (layer, head): the value of the target minus its value without the head.
 * @param {Run} run with all heads on
 * @param {Ablations} ablations
 */
export function contributionsOf({ target }, { value }) {
  return value.map((without) => (target ? target.value - without : Number.NaN));
}

/**
 * Return all existing heads, the one with the largest contribution of either sign first.
 * @param {Run} run with all heads on
 * @param {Ablations} ablations
 * @returns {HeadContribution[]}
 */
export function rankedContributions(run, ablations) {
  const contributions = contributionsOf(run, ablations);
  const { probability, first } = ablations;
  return allHeads(run)
    .map((head, i) => ({
      head,
      contribution: contributions[i],
      probability: probability[i],
      first: first[i],
      changes: changesPrediction(run, first[i], probability[i]),
    }))
    .filter(({ contribution }) => Number.isFinite(contribution))
    .sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
}

/**
 * Return whether a prediction differs from that with all heads: another first token at the first mask or, for the next
 * sentence, the other side of one half.
 * @param {Run} run with all heads on
 * @param {string} first
 * @param {number} probability
 */
function changesPrediction({ target, predictions }, first, probability) {
  if (!target) return false;
  if (target.target === "nsp") return probability >= 0.5 !== target.probability >= 0.5;
  return first !== predictions[0]?.top[0].token;
}

/**
 * Return the rows of a CSV file of all existing heads, with a header: whether each is on, and its contributions.
 * @param {Run} run with all heads on
 * @param {Head[]} off
 * @param {Ablations | null} ablations
 * @returns {import("./csv.js").Cell[][]}
 */
export function contributionRows(run, off, ablations) {
  const measured = ablations && contributionsOf(run, ablations);
  const isOff = (/** @type {Head} */ [layer, head]) => off.some(([l, h]) => l === layer && h === head);
  const estimated = run.headMaskGradient;
  const names = ["layer", "head", "on"];
  if (estimated) names.push("gradient_estimate");
  if (measured) names.push("ablation_contribution", "ablation_probability");
  const rows = allHeads(run).map((head, i) => {
    const cells = [...head, Number(!isOff(head))];
    if (estimated) cells.push(estimated[i]);
    if (measured) cells.push(measured[i], ablations.probability[i]);
    return cells;
  });
  const pruned = prunedHeads(run).map(String);
  return [names, ...rows.filter(([layer, head]) => !pruned.includes(`${layer},${head}`))];
}
