// Scores of tokens by an attribution method, and what is said of them.

/** @import { Encoding } from "../engine/tokenizer.js" */
/** @import { Attribution, Method, ResolvedTarget } from "./types.d.ts" */

/** @type {Method[]} */
export const METHOD_NAMES = ["gradient x attention", "input x gradient", "integrated gradients", "occlusion"];

/**
 * The tokens with the largest and the lowest score.
 * @typedef {{ highest: number, lowest: number, top: number, bottom: number }} Extremes top and bottom: positions
 */

/**
 * Return the positions that can be removed while the target stays defined: all but special tokens and its own masks.
 * @param {Encoding} encoding
 * @param {ResolvedTarget} target
 */
export const removablePositions = ({ sides }, { terms: { terms = [] } }) =>
  [...sides.keys()].filter((index) => sides[index] !== null && terms.every(({ position }) => position !== index));

/**
 * Return the tokens with the largest and the lowest score among some positions.
 * @param {Float32Array} scores (token,)
 * @param {number[]} positions
 * @returns {Extremes | null} null without positions
 */
export function extremesOf(scores, positions) {
  if (!positions.length) return null;
  const ranked = positions.toSorted((a, b) => scores[a] - scores[b]);
  const [bottom, top] = [ranked[0], ranked[ranked.length - 1]];
  return { top, bottom, highest: scores[top], lowest: scores[bottom] };
}

/**
 * Return the key of the sentence about the largest and the lowest score.
 * @param {Extremes} extremes
 */
export function resultKey({ highest, lowest }) {
  if (highest <= 0 && lowest < 0) return "result.opposes";
  return highest > 0 && lowest < 0 ? "result.both" : "result.supports";
}

/**
 * Return scores divided by the largest magnitude, -1 to 1; zeros stay zeros.
 * @param {Float32Array} scores (token,)
 */
export function sharesOf(scores) {
  const largest = scores.reduce((size, score) => Math.max(size, Math.abs(score)), 0);
  return scores.map((score) => (largest > 0 ? score / largest : 0));
}

/**
 * Return the sum of all scores.
 * @param {Float32Array} scores (token,)
 */
export const sumOf = (scores) => scores.reduce((sum, score) => sum + score, 0);

/**
 * Return the sums of the scores in sentence A, in sentence B, and at the special tokens around them.
 * @param {Float32Array} scores (token,)
 * @param {Encoding} encoding
 */
export function sideSums(scores, { sides }) {
  const sums = { A: 0, B: 0, special: 0 };
  sides.forEach((side, position) => {
    sums[side ?? "special"] += scores[position];
  });
  return sums;
}

/**
 * Return the rows of a CSV file of scores, with a header: one row for each method and token.
 * @param {Encoding} encoding
 * @param {Attribution[]} attributions
 * @returns {import("./csv.js").Cell[][]}
 */
export const scoreRows = ({ tokens }, attributions) => [
  ["method", "position", "token", "score"],
  ...attributions.flatMap(({ method, scores }) =>
    tokens.map((token, position) => [method, position, token, scores[position]]),
  ),
];
