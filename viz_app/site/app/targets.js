// The explained prediction of a run, with the numbers of its tokens and its value.

import { InvalidInputError } from "../engine/errors.js";
import { targetProbability } from "../engine/targets.js";

/** @import { Target as EngineTarget } from "../engine/targets.js" */
/** @import { Encoding } from "../engine/tokenizer.js" */
/** @import { Prediction, ResolvedTarget, RunRequest, Target } from "./types.d.ts" */

/**
 * The part of a tokenizer that targets need.
 * @typedef {{ piecesOf: (word: string) => string[], idOf: (token: string) => number }} Vocabulary
 *
 * The predictions of a run.
 * @typedef {{ encoding: Encoding, predictions: Prediction[], nextSentence: number | null }} Predicted
 *
 * A target without its value.
 * @typedef {Omit<ResolvedTarget, "value" | "probability">} TargetTokens
 */

/**
 * Return the target that is explained unless another one is chosen: the first guess at the first mask, or that the
 * second sentence follows; null if the model predicts neither.
 * @param {Predicted} predicted of the model with all heads on
 * @returns {Target}
 */
function defaultTarget({ predictions, nextSentence }) {
  if (predictions.length) return { position: predictions[0].position, word: predictions[0].top[0].token };
  return nextSentence === null ? null : "nsp";
}

/**
 * Return the tokens of a target; of the default target if the requested one is not possible for this text. A contrast
 * that is not possible is left out.
 * @param {Pick<RunRequest, "target" | "contrast">} request
 * @param {Predicted} predicted of the model with all heads on
 * @param {Vocabulary} vocabulary
 * @returns {TargetTokens | null}
 */
export function targetTokens({ target, contrast }, predicted, vocabulary) {
  const { encoding } = predicted;
  const first = defaultTarget(predicted);
  const requested = target !== null && isPossible(target, predicted) ? target : null;
  /** @type {[Target, string][]} */
  const candidates = [
    [requested, contrast],
    [requested, ""],
    [first, target === null ? contrast : ""],
  ];
  for (const [candidate, against] of candidates) {
    const tokens = candidate && possibleTokens(candidate, against, encoding, vocabulary);
    if (tokens) return tokens;
  }
  return first && tokensOf(first, "", encoding, vocabulary);
}

/**
 * Return the tokens of a target; null if it is not possible.
 * @param {Exclude<Target, null>} target
 * @param {string} contrast
 * @param {Encoding} encoding
 * @param {Vocabulary} vocabulary
 */
function possibleTokens(target, contrast, encoding, vocabulary) {
  try {
    return tokensOf(target, contrast, encoding, vocabulary);
  } catch (error) {
    if (error instanceof InvalidInputError) return null;
    throw error;
  }
}

/**
 * @param {Exclude<Target, null>} target
 * @param {Predicted} predicted
 */
function isPossible(target, { predictions, nextSentence }) {
  if (target === "nsp") return nextSentence !== null;
  return predictions.some(({ position }) => position === target.position);
}

/**
 * Return the tokens of a target. A word of several pieces needs as many masks one after another.
 * @param {Exclude<Target, null>} target
 * @param {string} contrast
 * @param {Encoding} encoding
 * @param {Vocabulary} vocabulary
 * @returns {TargetTokens}
 * @throws {InvalidInputError} if the word is not possible there
 */
export function tokensOf(target, contrast, encoding, vocabulary) {
  if (target === "nsp") {
    return { target, position: null, tokenId: null, againstId: null, label: "B follows A", terms: NEXT_SENTENCE };
  }
  const { position, word } = target;
  const pieces = vocabulary.piecesOf(word);
  const masks = pieces.filter((_, index) => encoding.maskPositions.includes(position + index));
  if (masks.length < pieces.length) {
    throw new InvalidInputError(
      `'${word}' has ${pieces.length} pieces, but there are fewer masks from position ${position}: choose one piece.`,
    );
  }
  const ids = pieces.map((piece) => vocabulary.idOf(piece));
  const terms = ids.map((token, index) => ({ position: position + index, token, weight: 1 }));
  const againstId = contrast ? contrastId(contrast, pieces, vocabulary) : null;
  if (againstId !== null && againstId !== ids[0]) terms.push({ position, token: againstId, weight: -1 });
  const isContrast = terms.length > ids.length;
  return {
    target,
    position,
    tokenId: ids[0],
    againstId: isContrast ? againstId : null,
    label: word,
    terms: { terms },
  };
}

/** @type {EngineTarget} */
const NEXT_SENTENCE = { nextSentence: [1, -1] };

/**
 * @param {string} contrast
 * @param {string[]} pieces of the target
 * @param {Vocabulary} vocabulary
 */
function contrastId(contrast, pieces, vocabulary) {
  const others = vocabulary.piecesOf(contrast);
  if (pieces.length > 1 || others.length > 1) {
    throw new InvalidInputError("Only words of one piece can be compared: choose another word.");
  }
  return vocabulary.idOf(others[0]);
}

/**
 * Return a target with its value and probability, from the probabilities of a run.
 * @param {TargetTokens | null} tokens
 * @param {Pick<Predicted, "predictions" | "nextSentence">} predicted
 * @returns {ResolvedTarget | null} null also if a stored run does not contain the probability
 */
export function withValue(tokens, { predictions, nextSentence }) {
  if (tokens === null) return null;
  const { terms = [] } = tokens.terms;
  let value = terms.length ? 0 : logit(nextSentence ?? Number.NaN);
  for (const { position, token, weight } of terms) {
    const prediction = predictions.find((candidate) => candidate.position === position);
    value += weight * Math.log(prediction ? probabilityOf(prediction, token) : Number.NaN);
  }
  if (Number.isNaN(value)) return null;
  return { ...tokens, value, probability: targetProbability(tokens.terms, value) };
}

/** @param {number} probability */
const logit = (probability) => Math.log(probability / (1 - probability));

/**
 * Return the probability of a token at a position; NaN if it is not stored.
 * @param {Prediction} prediction
 * @param {number} id
 */
export function probabilityOf({ top, logits }, id) {
  const listed = top.find((token) => token.id === id);
  if (listed || !logits) return listed?.probability ?? Number.NaN;
  return Math.exp(logits[id] - logSumExp(logits));
}

/** @param {Float32Array} logits */
export function logSumExp(logits) {
  let largest = Number.NEGATIVE_INFINITY;
  for (const logit of logits) if (logit > largest) largest = logit;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - largest);
  return largest + Math.log(sum);
}

/**
 * Return the token that a mask replaces; null if the mask was typed.
 * @param {{ encoding: Encoding, original: Encoding }} texts
 * @param {number} position
 */
export function originalId({ encoding, original }, position) {
  const id = original.inputIds[position];
  return id === encoding.inputIds[position] ? null : id;
}
