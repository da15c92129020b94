// The source of all numbers: stored runs first, otherwise the model in this browser.

import { EngineError, OutOfMemoryError } from "../engine/errors.js";
import { baselineOf, gradientXAttention, inputXGradient } from "../engine/integrated_gradients.js";
import { removablePositions } from "./attributions.js";
import { SiteDownloadError } from "./downloads.js";
import { occlusion } from "./occlusion.js";
import { createSharedResults } from "./shared_results.js";
import { formatTarget } from "./state.js";
import { logSumExp, targetTokens, withValue } from "./targets.js";

/** @import { RunRequest as EngineRequest, RunResult } from "../engine/requests.js" */
/** @import { Encoding, Tokenizer } from "../engine/tokenizer.js" */
/** @import { LoadedModel, ModelLoader } from "./loading.js" */
/** @import { TargetTokens } from "./targets.js" */
/** @import { Ablations, Attribution, Head, Method, Prediction, ResolvedTarget, Run, RunOptions } from "./types.d.ts" */
/** @import { RunRequest, Runs, SiteDescription, StoredRuns, Texts } from "./types.d.ts" */

/** @typedef {Pick<RunRequest, "text" | "pair" | "masked">} TextRequest */

const KEPT_TOKENS = 20; // most likely tokens of a prediction
const KEPT_RUNS = 6;
const KEPT_RESULTS = 12; // ablations and attributions

/**
 * @param {object} options
 * @param {SiteDescription} options.site
 * @param {Pick<ModelLoader, "model" | "tokenizer" | "stop">} options.loader
 * @param {StoredRuns} options.stored
 * @returns {Runs}
 */
export function createRuns({ site, loader, stored }) {
  const { layers, heads, max_tokens, has_mlm, has_nsp } = site.model;
  const bytesOf = (/** @type {Run} */ { attention }) => attention.byteLength;
  const forwards = createSharedResults(KEPT_RUNS, bytesOf);
  const gradients = createSharedResults(KEPT_RUNS, bytesOf);
  const results = createSharedResults(KEPT_RESULTS);
  let count = 0;

  /**
   * Use the model as soon as it is loaded. After an error that ends it, it must be loaded again.
   * @template Result
   * @param {AbortSignal | undefined} signal
   * @param {(model: LoadedModel) => Promise<Result>} use
   */
  const withModel = async (signal, use) => {
    const model = await loader.model(signal);
    try {
      return await use(model);
    } catch (error) {
      if (error instanceof OutOfMemoryError || isEnd(error)) loader.stop(/** @type {Error} */ (error));
      throw error;
    }
  };

  /**
   * Return the stored results of a text; null without any, and if they are not received, so that the model is used.
   * @param {TextRequest} request
   */
  const readStored = async (request) => {
    if (!stored.has(request)) return null;
    return stored.read(request).catch((error) => {
      if (error instanceof SiteDownloadError) return null;
      throw error;
    });
  };

  /**
   * Return the run of a request that is stored; null if it needs the model.
   * @param {RunRequest} request
   * @returns {Promise<Run | null>}
   */
  const findStored = async (request) => {
    const results = request.off.length ? null : await readStored(request);
    if (results === null) return null;
    const { run } = results;
    if (isStoredTarget(request, run)) return run;
    if (request.gradients) return null;
    // The probability of another token may be among those that are stored.
    const target = withValue(targetTokens(request, run, storedVocabulary(run)), run);
    const isFound = target && (request.target === null || sameTarget(target.target, request.target));
    return isFound ? Object.freeze({ ...run, target, attentionGradient: null, headMaskGradient: null }) : null;
  };

  /**
   * @param {TextRequest} request
   * @param {RunOptions} [options]
   * @returns {Promise<Texts>}
   */
  const encode = async (request, { signal } = {}) => {
    const results = await readStored(request);
    if (results) return results.run;
    return encodeText(await loader.tokenizer(signal), request, max_tokens);
  };

  /**
   * Return the run of a text without a target.
   * @param {Pick<RunRequest, "text" | "pair" | "masked" | "off">} request
   * @param {RunOptions} [options]
   * @returns {Promise<Run>}
   */
  const forward = (request, options) => {
    const { text, pair, masked, off } = request;
    const compute = (/** @type {RunOptions} */ { signal }) =>
      withModel(signal, async ({ engine, tokenizer }) => {
        const texts = encodeText(tokenizer, request, max_tokens);
        const positions = has_mlm ? texts.encoding.maskPositions : [];
        const headMask = maskWithout(off, layers, heads);
        const result = await engine.run(
          { ...inputsOf(texts.encoding, headMask), positions, gradients: false, outputs: FORWARD_OUTPUTS },
          { signal },
        );
        return {
          source: /** @type {const} */ ("live"),
          name: `live ${++count}`,
          ...texts,
          layers,
          heads,
          attention: dataOf(result.attention),
          headMask,
          predictions: predictionsOf(result, positions, tokenizer),
          nextSentence: has_nsp && texts.encoding.pair !== null ? nextSentenceOf(result) : null,
          target: null,
          attentionGradient: null,
          headMaskGradient: null,
        };
      });
    return forwards.get(JSON.stringify([text, pair, masked, off]), compute, options);
  };

  /**
   * Return the tokens of the target of a request. A default target is that of the model with all heads on, so that a
   * head that is switched off does not change the explained word.
   * @param {RunRequest} request
   * @param {RunOptions} [options]
   * @returns {Promise<TargetTokens | null>}
   */
  const resolve = async (request, options) => {
    const full = { ...request, off: [], target: null, contrast: "", gradients: false };
    const predicted = (await findStored(full)) ?? (await forward(full, options));
    return targetTokens(request, predicted, await loader.tokenizer(options?.signal));
  };

  /**
   * @param {RunRequest} request
   * @param {RunOptions} [options]
   * @returns {Promise<Run>}
   */
  const liveRun = async (request, options) => {
    const run = await forward(request, options);
    const tokens = await resolve(request, options);
    const target = withValue(tokens, run);
    if (!request.gradients || target === null) return Object.freeze({ ...run, target });
    const compute = (/** @type {RunOptions} */ { signal }) =>
      withModel(signal, async ({ engine }) => {
        const result = await engine.run({ ...targetRequest(run, target), outputs: GRADIENT_OUTPUTS }, { signal });
        return Object.freeze({
          ...run,
          name: `live ${++count}`,
          target,
          attentionGradient: dataOf(result.attentionGradient),
          headMaskGradient: dataOf(result.headMaskGradient),
        });
      });
    return gradients.get(keyOf(request, target), compute, options);
  };

  /** @type {Runs} */
  return {
    isStored: (request) => {
      if (request.off.length || !stored.has(request)) return false;
      if (request.target === null && !request.contrast) return true;
      const run = stored.peek(request)?.run;
      return run !== undefined && isStoredTarget(request, run);
    },
    encode,
    run: async (request, options) => (await findStored(request)) ?? (await liveRun(request, options)),
    ablations: async (request, options) => {
      const run = await findStored({ ...request, gradients: true });
      const kept = run && (await stored.read(request)).ablations;
      if (kept) return kept;
      const live = await liveRun({ ...request, gradients: false }, options);
      const { target } = live;
      if (target === null) throw new Error("Head ablation needs a target.");
      const compute = (/** @type {Required<RunOptions>} */ given) =>
        withModel(given.signal, (model) => ablateEachHead(model, live, targetRequest(live, target), given));
      return results.get(`ablations ${keyOf(request, target)}`, compute, options);
    },
    attribution: async (request, method, options) => {
      const run = await findStored({ ...request, gradients: true });
      const kept = run && (await stored.read(request)).attributions.find((scores) => scores.method === method);
      if (kept) return kept;
      const live = await liveRun({ ...request, gradients: method === "gradient x attention" }, options);
      const { target } = live;
      if (target === null) throw new Error("An attribution needs a target.");
      const compute = (/** @type {Required<RunOptions>} */ given) =>
        withModel(given.signal, (model) => attribute(model, live, targetRequest(live, target), method, given));
      return results.get(`${method} ${keyOf(request, target)}`, compute, options);
    },
  };
}

/**
 * Return whether the model stopped; other errors of the engine have classes of their own.
 * @param {unknown} error
 */
const isEnd = (error) => error instanceof EngineError && error.constructor === EngineError;

/** @type {EngineRequest["outputs"]} */
const FORWARD_OUTPUTS = ["logits", "nextSentenceLogits", "attention"];
/** @type {EngineRequest["outputs"]} */
const GRADIENT_OUTPUTS = ["attentionGradient", "headMaskGradient"];

/**
 * Return the tokens of a text of at most `maxTokens`, with and without masks. Words that do not exist are not masked.
 * @param {Tokenizer} tokenizer
 * @param {TextRequest} request
 * @param {number} maxTokens
 * @returns {Texts}
 */
function encodeText(tokenizer, { text, pair, masked }, maxTokens) {
  const original = tokenizer.encode(text, pair, maxTokens);
  const words = masked.filter((word) => word < original.wordCount);
  return { encoding: tokenizer.maskWords(original, words), original };
}

/**
 * Return the inputs of the engine for a text.
 * @param {Encoding} encoding
 * @param {Float32Array} headMask
 */
function inputsOf({ inputIds, tokenTypeIds }, headMask) {
  return { inputIds, tokenTypeIds, headMask: new Float32Array(headMask) };
}

/**
 * Return the request of the gradients of a target of a run.
 * @param {Run} run
 * @param {TargetTokens} target
 * @returns {EngineRequest}
 */
function targetRequest({ encoding, headMask }, { terms }) {
  const positions = encoding.maskPositions;
  return { ...inputsOf(encoding, headMask), positions, target: terms, gradients: true };
}

/**
 * Return the factors of the outputs of the heads, (layer, head): 0 for a head that is off.
 * @param {Head[]} off
 * @param {number} layers
 * @param {number} heads
 */
function maskWithout(off, layers, heads) {
  const mask = new Float32Array(layers * heads).fill(1);
  for (const [layer, head] of off) mask[layer * heads + head] = 0;
  return mask;
}

/**
 * @param {RunResult} result
 * @param {number[]} positions
 * @param {Tokenizer} tokenizer
 * @returns {Prediction[]}
 */
function predictionsOf({ logits }, positions, tokenizer) {
  if (!positions.length) return [];
  const data = dataOf(logits);
  const size = data.length / positions.length;
  return positions.map((position, row) => {
    const values = data.slice(row * size, (row + 1) * size);
    const shift = logSumExp(values);
    const top = largest(values, KEPT_TOKENS).map((id) => ({
      id,
      token: tokenizer.tokenOf(id),
      probability: Math.exp(values[id] - shift),
    }));
    return { position, top, logits: values };
  });
}

/**
 * Return the indices of the largest values, the largest first.
 * @param {Float32Array} values
 * @param {number} count
 */
function largest(values, count) {
  /** @type {number[]} */
  const indices = [];
  for (let index = 0; index < values.length; index++) {
    if (indices.length === count && values[index] <= values[indices[count - 1]]) continue;
    let place = indices.length;
    while (place > 0 && values[indices[place - 1]] < values[index]) place--;
    indices.splice(place, 0, index);
    indices.length = Math.min(indices.length, count);
  }
  return indices;
}

/**
 * Return the probability that the second sentence follows.
 * @param {RunResult} result
 */
function nextSentenceOf({ nextSentenceLogits }) {
  const [follows, other] = dataOf(nextSentenceLogits);
  return 1 / (1 + Math.exp(other - follows));
}

/**
 * Return the target without each head in turn, and the most likely token at the first mask.
 * @param {LoadedModel} model
 * @param {Run} run
 * @param {EngineRequest} request
 * @param {Required<RunOptions>} options
 * @returns {Promise<Ablations>}
 */
async function ablateEachHead({ engine, tokenizer }, { attention, layers, heads, encoding }, request, options) {
  const size = attention.length / (layers * heads);
  const all = /** @type {Head[]} */ ([...Array(layers * heads).keys()].map((n) => [Math.floor(n / heads), n % heads]));
  const existing = all.filter(([layer, head]) => !Number.isNaN(attention[(layer * heads + head) * size]));
  const ablations = await engine.ablateHeads(request, existing, options);
  const value = new Float32Array(layers * heads).fill(Number.NaN);
  const probability = new Float32Array(layers * heads).fill(Number.NaN);
  const first = Array(layers * heads).fill("");
  for (const ablation of ablations) {
    const index = ablation.layer * heads + ablation.head;
    value[index] = ablation.targetValue;
    probability[index] = ablation.probability;
    if (encoding.maskPositions.length) first[index] = tokenizer.tokenOf(ablation.topTokens[0]);
  }
  return Object.freeze({ value, probability, first });
}

/**
 * @param {LoadedModel} model
 * @param {Run} run
 * @param {EngineRequest} request
 * @param {Method} method
 * @param {Required<RunOptions>} options
 * @returns {Promise<Attribution>}
 */
async function attribute({ engine, tokenizer }, run, request, method, { signal, onProgress }) {
  const { encoding, attention, attentionGradient } = run;
  const length = encoding.tokens.length;
  if (method === "integrated gradients") {
    const pad = tokenizer.idOf(tokenizer.specialTokens.pad_token);
    const baselineIds = baselineOf(encoding.inputIds, keptPositions(encoding, request), pad);
    const result = await engine.integratedGradients({ ...request, baselineIds }, { signal, onProgress });
    return Object.freeze({ method, scores: result.scores, gap: result.completenessError });
  }
  if (method === "gradient x attention") {
    const dims = [run.layers, run.heads, length, length];
    const gradient = attentionGradient ?? new Float32Array(attention.length);
    const scores = gradientXAttention({
      attention: { data: attention, dims },
      attentionGradient: { data: gradient, dims },
    });
    return Object.freeze({ method, scores, gap: null });
  }
  if (method === "occlusion") {
    const positions = removablePositions(encoding, /** @type {ResolvedTarget} */ (run.target));
    const runOnce = (/** @type {EngineRequest} */ changed) => engine.run(changed, { signal });
    const scores = await occlusion(runOnce, request, positions, tokenizer.maskId, { signal, onProgress });
    return Object.freeze({ method, scores, gap: null });
  }
  const result = await engine.run({ ...request, outputs: ["embeddings", "embeddingGradient"] }, { signal });
  return Object.freeze({ method, scores: inputXGradient(result), gap: null });
}

/**
 * Return the positions that the baseline of integrated gradients does not replace: special tokens and the target.
 * @param {Encoding} encoding
 * @param {EngineRequest} request
 */
function keptPositions({ sides }, { target }) {
  const added = [...sides.keys()].filter((position) => sides[position] === null);
  return [...added, ...(target?.terms ?? []).map(({ position }) => position)];
}

/**
 * Return the vocabulary of the tokens that a stored run contains.
 * @param {Run} run
 */
function storedVocabulary({ predictions }) {
  const ids = new Map(predictions.flatMap(({ top }) => top.map(({ token, id }) => [token, id])));
  return {
    piecesOf: (/** @type {string} */ word) => [word],
    idOf: (/** @type {string} */ token) => ids.get(token) ?? -1,
  };
}

/**
 * @param {RunRequest} request
 * @param {Run} run
 */
function isStoredTarget({ target, contrast }, run) {
  return !contrast && (target === null || (run.target !== null && sameTarget(run.target.target, target)));
}

/**
 * @param {RunRequest["target"]} target
 * @param {RunRequest["target"]} other
 */
const sameTarget = (target, other) => formatTarget(target) === formatTarget(other);

/**
 * @param {RunRequest} request
 * @param {TargetTokens} target
 */
const keyOf = ({ text, pair, masked, off }, { terms }) => JSON.stringify([text, pair, masked, off, terms]);

/** @param {{ data: Float32Array } | undefined} values */
const dataOf = (values) => values?.data ?? new Float32Array();
