// Requests to a model, and their checks.

import { InvalidInputError } from "./errors.js";

/**
 * The description of a model, the content of model.json.
 * @typedef {object} ModelDescription
 * @property {string} name
 * @property {string} version changes with the graph, the weights and the tokenizer
 * @property {number} layers
 * @property {number} heads
 * @property {number} hidden_size
 * @property {number} vocabulary
 * @property {number} max_tokens
 * @property {number} segments number of segments; 0 for a model without segments
 * @property {boolean} has_mlm
 * @property {boolean} has_nsp
 * @property {boolean} gradients
 * @property {Record<string, number[]>} pruned_heads
 * @property {import("./files.js").FileEntry[]} files
 *
 * @typedef {"logits" | "nextSentenceLogits" | "attention" | "hiddenStates" | "embeddings" | "targetValue" |
 *   "attentionGradient" | "headMaskGradient" | "embeddingGradient"} OutputName
 *
 * A run of the model on one text.
 * @typedef {object} RunRequest
 * @property {number[]} inputIds
 * @property {number[]} [tokenTypeIds] the segment of each token; default: 0
 * @property {number[]} [attentionMask] 1 for a token that can be attended to, 0 for another; default: 1
 * @property {Float32Array} [headMask] (layer, head), factors of the outputs of the heads; default: 1
 * @property {number[]} [positions] where tokens are predicted, at least those of the target; default: none
 * @property {import("./targets.js").Target} [target]
 * @property {number[]} [baselineIds] the token ids from which the embeddings are interpolated
 * @property {number} [interpolation] from 0, the embeddings of `baselineIds`, to 1, those of `inputIds`; default: 1
 * @property {boolean} gradients whether the gradients of the target are computed
 * @property {OutputName[]} [outputs] the outputs that are returned; default: all
 *
 * @typedef {{ data: Float32Array, dims: number[] }} Array32 an array of float32 in row-major order
 *
 * The outputs of a run; those that the model or the request lacks are undefined.
 * @typedef {object} RunResult
 * @property {Array32} [logits] (position, vocabulary)
 * @property {Array32} [nextSentenceLogits] (2,); index 0 means that the second sentence follows
 * @property {Array32} [attention] (layer, head, query, key), NaN for a pruned head
 * @property {Array32} [hiddenStates] (layer + 1, token, hidden)
 * @property {Array32} [embeddings] (token, embedding), the interpolated embeddings; only in a model with gradients
 * @property {Array32} [targetValue] (), only with a target
 * @property {Array32} [attentionGradient] as `attention`
 * @property {Array32} [headMaskGradient] (layer, head), NaN for a pruned head
 * @property {Array32} [embeddingGradient] (token, embedding)
 *
 * @typedef {(request: RunRequest) => Promise<RunResult>} RunFunction
 */

/**
 * Raise InvalidInputError unless a model can run a request.
 * @param {ModelDescription} description
 * @param {RunRequest} request
 */
export function checkRequest(description, request) {
  const { inputIds, tokenTypeIds, attentionMask, headMask, positions = [], baselineIds, interpolation } = request;
  const { layers, heads, vocabulary, max_tokens, segments, name } = description;
  const length = inputIds.length;
  check(length > 0, "The text has no tokens: enter a text.");
  check(length <= max_tokens, `The text has ${length} tokens, but ${name} reads at most ${max_tokens}: shorten it.`);
  checkIds("token id", inputIds, vocabulary);
  if (segments) checkPerToken("tokenTypeIds", tokenTypeIds, length);
  if (segments) checkIds("segment", tokenTypeIds, segments);
  checkPerToken("attentionMask", attentionMask, length);
  checkPerToken("baselineIds", baselineIds, length);
  checkIds("baseline id", baselineIds, vocabulary);
  const size = headMask?.length ?? layers * heads;
  check(size === layers * heads, `The head mask has ${size} values: ${name} has ${layers} x ${heads} heads.`);
  checkIds("position", positions, length);
  checkTarget(description, request);
  const needsGradients = request.gradients || baselineIds !== undefined || interpolation !== undefined;
  check(description.gradients || !needsGradients, `${name} was exported without gradients: export it with gradients.`);
  check(
    interpolation === undefined || (interpolation >= 0 && interpolation <= 1),
    `The interpolation is ${interpolation}: it must be from 0 to 1.`,
  );
}

/**
 * @param {ModelDescription} description
 * @param {RunRequest} request
 */
function checkTarget({ has_mlm, has_nsp, vocabulary, name }, { target, positions = [], gradients }) {
  const { terms = [], nextSentence } = target ?? {};
  check(target !== undefined || !gradients, "Gradients need a target: choose one.");
  check(!target || terms.length > 0 || nextSentence !== undefined, "The target is empty: choose another one.");
  check(has_mlm || terms.length === 0, `${name} does not predict tokens: choose another target.`);
  check(has_nsp || nextSentence === undefined, `${name} does not predict the next sentence: choose another target.`);
  checkIds(
    "token of the target",
    terms.map(({ token }) => token),
    vocabulary,
  );
  for (const { position } of terms) {
    check(
      positions.includes(position),
      `The target is at position ${position}, which is not among the predicted ones.`,
    );
  }
}

/**
 * @param {boolean} isValid
 * @param {string} message
 */
function check(isValid, message) {
  if (!isValid) throw new InvalidInputError(message);
}

/**
 * @param {string} name
 * @param {number[] | undefined} values
 * @param {number} length
 */
function checkPerToken(name, values, length) {
  const count = values?.length ?? length;
  check(count === length, `${name} has ${count} values, but the text has ${length} tokens.`);
}

/**
 * @param {string} name
 * @param {number[] | undefined} ids
 * @param {number} stop
 */
function checkIds(name, ids, stop) {
  const invalid = ids?.find((id) => !Number.isInteger(id) || id < 0 || id >= stop);
  check(invalid === undefined, `The ${name} ${invalid} does not exist: it must be from 0 to ${stop - 1}.`);
}
