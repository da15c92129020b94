// Targets: the value whose gradients are computed, and its probability.

/**
 * A target: the weighted sum of log-probabilities of tokens, plus that of the two next-sentence logits.
 * @typedef {object} Target
 * @property {TargetTerm[]} [terms]
 * @property {[number, number]} [nextSentence] factors of the two next-sentence logits
 *
 * @typedef {object} TargetTerm
 * @property {number} position position of the token in the text
 * @property {number} token id of the token
 * @property {number} weight factor of its log-probability
 */

/**
 * Return the positions at which a target needs predictions, in order.
 * @param {Target} target
 */
export const targetPositions = ({ terms = [] }) =>
  [...new Set(terms.map(({ position }) => position))].sort((a, b) => a - b);

/**
 * Compute the value of a target from logits.
 * @param {Target} target
 * @param {number[]} positions those of the rows of `logits`
 * @param {Float32Array} [logits] (position, vocabulary)
 * @param {Float32Array} [nextSentenceLogits] (2,)
 */
export function targetValue({ terms = [], nextSentence }, positions, logits, nextSentenceLogits) {
  let value = 0;
  for (const { position, token, weight } of terms) {
    const row = rowOf(logits ?? new Float32Array(), positions.length, positions.indexOf(position));
    const largest = row.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
    const sum = row.reduce((total, logit) => total + Math.exp(logit - largest), 0);
    value += weight * (row[token] - largest - Math.log(sum));
  }
  if (nextSentence && nextSentenceLogits) {
    value += nextSentence[0] * nextSentenceLogits[0] + nextSentence[1] * nextSentenceLogits[1];
  }
  return value;
}

/**
 * Return the probability of a target with a value.
 *
 * For a difference of log-probabilities or logits it is the probability of the first of the two; for weights of 1 the
 * joint probability of the tokens, and for weights that sum to 1 their geometric mean.
 * @param {Target} target
 * @param {number} value
 */
export function targetProbability({ terms = [], nextSentence }, value) {
  const isDifference = nextSentence || terms.some(({ weight }) => weight < 0);
  return isDifference ? 1 / (1 + Math.exp(-value)) : Math.exp(value);
}

/**
 * @param {Float32Array} values (row, column)
 * @param {number} rows
 * @param {number} row
 */
function rowOf(values, rows, row) {
  const columns = values.length / rows;
  return values.subarray(row * columns, (row + 1) * columns);
}
