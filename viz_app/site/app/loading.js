// The model of the site: loaded once, when it is needed or behind the first figure, with progress and cancellation.

import { Engine } from "../engine/engine.js";
import { CancelledError } from "../engine/errors.js";
import { readDescription } from "../engine/files.js";
import { received } from "./downloads.js";

/** @import { Tokenizer } from "../engine/tokenizer.js" */
/** @import { TokenizerFile } from "../engine/tokenizer_file.js" */
/** @import { LoadProgress } from "../engine/model.js" */
/** @import { ModelDescription } from "../engine/requests.js" */

/**
 * @typedef {"idle" | "asking" | "loading" | "ready" | "failed"} Phase asking: the visitor must confirm the download
 *
 * @typedef {object} LoadStatus
 * @property {Phase} phase
 * @property {LoadProgress | null} progress
 * @property {number | null} secondsLeft
 * @property {Error | null} error why the model is not loaded
 * @property {Error | null} warning why the browser does not store the model
 *
 * @typedef {{ engine: Engine, tokenizer: Tokenizer }} LoadedModel
 *
 * @typedef {ReturnType<typeof createModelLoader>} ModelLoader
 */

const RATE_SECONDS = 4; // over which the rate of the download is measured
const SLOW_CONNECTIONS = ["slow-2g", "2g"];

/**
 * @param {object} options
 * @param {URL} options.root address of the folder of the site
 * @param {Engine} [options.engine]
 * @param {() => number} [options.now] milliseconds
 */
export function createModelLoader({ root, engine = new Engine(), now = () => performance.now() }) {
  const folder = new URL("model/", root);
  /** @type {LoadStatus} */
  let status = { phase: "idle", progress: null, secondsLeft: null, error: null, warning: null };
  /** @type {Set<(status: LoadStatus) => void>} */
  const listeners = new Set();
  /** @type {Set<() => void>} */
  const readyListeners = new Set();
  /** @type {Promise<Tokenizer> | null} */
  let tokenizer = null;
  let controller = new AbortController();
  const measureRate = createRate(now);

  const report = (/** @type {Partial<LoadStatus>} */ changes) => {
    status = { ...status, ...changes };
    for (const listener of listeners) listener(status);
  };

  /** @param {AbortSignal} [signal] */
  const readTokenizer = (signal) => {
    if (!tokenizer) {
      tokenizer = loadTokenizer(folder);
      tokenizer.catch(() => {
        tokenizer = null;
      });
    }
    return abortable(tokenizer, signal);
  };

  /** Load the model, also after a failure. */
  const load = async () => {
    if (status.phase === "loading" || status.phase === "ready") return;
    controller = new AbortController();
    const isAgain = status.error !== null;
    report({ phase: "loading", progress: null, secondsLeft: null, error: null, warning: null });
    const onProgress = (/** @type {LoadProgress} */ progress) => {
      report({ progress, secondsLeft: measureRate(progress) });
    };
    try {
      const runtime = new URL("runtime/", root);
      await Promise.all([
        readTokenizer(controller.signal),
        engine.load({
          ...{ folder, runtime, signal: controller.signal, onProgress },
          onWarning: (warning) => report({ warning }),
        }),
      ]);
      report({ phase: "ready" });
      if (isAgain) for (const listener of readyListeners) listener();
    } catch (error) {
      controller.abort();
      report({ phase: "failed", error: /** @type {Error} */ (error) });
    }
  };

  /** Begin to load the model, or ask first on a slow or metered connection. */
  const begin = () => {
    if (status.phase !== "idle") return;
    if (isMetered()) report({ phase: "asking" });
    else load();
  };

  return {
    get status() {
      return status;
    },
    begin,
    load,
    cancel: () => controller.abort(),
    /** Hide why the browser does not store the model. */
    hideWarning: () => report({ warning: null }),
    /** The model stopped: the next request loads it again. @param {Error} error */
    stop: (error) => report({ phase: "idle", error }),
    tokenizer: readTokenizer,
    /**
     * Return the model as soon as it is loaded.
     * @param {AbortSignal} [signal]
     * @returns {Promise<LoadedModel>}
     */
    model: async (signal) => {
      begin();
      if (status.phase !== "ready")
        await abortable(
          settled(listeners, () => status),
          signal,
        );
      return { engine, tokenizer: await readTokenizer(signal) };
    },
    /** @param {(status: LoadStatus) => void} listener called with each change */
    onChange: (listener) => {
      listeners.add(listener);
    },
    /** @param {() => void} listener called when the model is loaded after a failure */
    onReady: (listener) => {
      readyListeners.add(listener);
    },
  };
}

/**
 * Return a promise that is rejected as soon as a signal aborts.
 * @template Result
 * @param {Promise<Result>} promise
 * @param {AbortSignal} [signal]
 * @returns {Promise<Result>}
 */
export function abortable(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(new CancelledError("The request was cancelled."));
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/**
 * Wait until the model is loaded; rejects with the error if it is not.
 * @param {Set<(status: LoadStatus) => void>} listeners
 * @param {() => LoadStatus} current
 * @returns {Promise<void>}
 */
function settled(listeners, current) {
  return new Promise((resolve, reject) => {
    const listener = (/** @type {LoadStatus} */ { phase, error }) => {
      if (phase !== "ready" && phase !== "failed") return;
      listeners.delete(listener);
      if (phase === "ready") resolve();
      else reject(error);
    };
    listeners.add(listener);
    listener(current());
  });
}

/** @param {URL} folder of the model */
async function loadTokenizer(folder) {
  const [{ Tokenizer }, file, config, description] = await Promise.all([
    received(import("../engine/tokenizer.js")),
    ...["tokenizer.json", "tokenizer_config.json", "model.json"].map((name) =>
      readDescription(new URL(name, folder).href),
    ),
  ]);
  const names = specialTokenNames(/** @type {Record<string, unknown>} */ (config));
  const { segments } = /** @type {ModelDescription} */ (description);
  return new Tokenizer(/** @type {TokenizerFile} */ (file), { names, typeVocabSize: segments });
}

/** @param {Record<string, unknown>} config content of tokenizer_config.json, in which a token may be an object */
function specialTokenNames(config) {
  const entries = Object.entries(config)
    .filter(([name]) => name.endsWith("_token"))
    .map(([name, token]) => [name, typeof token === "string" ? token : /** @type {any} */ (token)?.content]);
  return Object.fromEntries(entries.filter(([, token]) => typeof token === "string"));
}

function isMetered() {
  const { connection } = /** @type {{ connection?: { saveData?: boolean, effectiveType?: string } }} */ (navigator);
  return Boolean(connection?.saveData) || SLOW_CONNECTIONS.includes(connection?.effectiveType ?? "");
}

/**
 * Return a function of the progress that estimates the seconds left from the rate of the last seconds; null while it is unknown.
 * @param {() => number} now
 * @returns {(progress: LoadProgress) => number | null}
 */
function createRate(now) {
  /** @type {[time: number, bytes: number][]} */
  let samples = [];
  return ({ loadedBytes, totalBytes }) => {
    const time = now() / 1000;
    if (samples.length && loadedBytes < samples[samples.length - 1][1]) samples = [];
    samples.push([time, loadedBytes]);
    samples = samples.filter(([sampled]) => sampled > time - RATE_SECONDS);
    const [firstTime, firstBytes] = samples[0];
    const rate = (loadedBytes - firstBytes) / (time - firstTime);
    return time - firstTime >= 0.5 && rate > 0 ? Math.ceil((totalBytes - loadedBytes) / rate) : null;
  };
}
