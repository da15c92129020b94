// The worker that holds the model. It performs one request after another.

import { ablateHeads } from "./ablation.js";
import { checkCancelled, EngineError, toSent } from "./errors.js";
import { integratedGradients } from "./integrated_gradients.js";
import { Model } from "./model.js";

/** @typedef {import("./requests.js").RunRequest} RunRequest */

/**
 * What the page sends: a request with its number, or the cancellation of the request with this number.
 * @typedef {{ number: number } & (
 *   { kind: "load", folder: string, runtime: string, requireStorage?: boolean } |
 *   { kind: "run", request: RunRequest } |
 *   { kind: "integratedGradients", request: RunRequest, steps?: number } |
 *   { kind: "ablateHeads", request: RunRequest, heads: import("./ablation.js").Head[] } |
 *   { kind: "cancel" })} PageMessage
 *
 * What the worker sends about the request with this number.
 * @typedef {{ number: number } & (
 *   { result: unknown } |
 *   { error: import("./errors.js").SentError } |
 *   { progress: unknown[] } |
 *   { warning: import("./errors.js").SentError })} WorkerMessage
 */

/** @type {Model | undefined} */
let model;
/** @type {Promise<void>} */
let last = Promise.resolve();
/** @type {Map<number, AbortController>} the requests that are not completed */
const controllers = new Map();

addEventListener("message", ({ data }) => {
  const message = /** @type {PageMessage} */ (data);
  if (message.kind === "cancel") {
    controllers.get(message.number)?.abort();
    return;
  }
  controllers.set(message.number, new AbortController());
  last = last.then(() => answer(message));
});

/** @param {PageMessage} message */
async function answer(message) {
  const { number } = message;
  const signal = controllers.get(number)?.signal;
  try {
    await receiveMessages();
    checkCancelled(signal);
    const result = await perform(message, signal);
    send({ number, result }, buffers(result));
  } catch (error) {
    send({ number, error: toSent(error) });
  }
  controllers.delete(number);
}

/**
 * @param {PageMessage} message
 * @param {AbortSignal} [signal]
 */
async function perform(message, signal) {
  const { number } = message;
  /** @param {unknown[]} progress */
  const onProgress = (...progress) => send({ number, progress });
  if (message.kind === "load") {
    /** @param {Error} error */
    const onWarning = (error) => send({ number, warning: toSent(error) });
    model = await Model.load({ ...message, signal, onProgress, onWarning });
    return model.description;
  }
  if (model === undefined) throw new EngineError("The model is not loaded: load it first.");
  const loaded = model;
  /** @param {RunRequest} request */
  const run = async (request) => {
    await receiveMessages();
    checkCancelled(signal);
    return loaded.run(request);
  };
  switch (message.kind) {
    case "run":
      return loaded.run(message.request);
    case "integratedGradients":
      return integratedGradients(run, message.request, { steps: message.steps, signal, onProgress });
    case "ablateHeads":
      return ablateHeads(run, loaded.description, message.request, message.heads, { signal, onProgress });
  }
}

/** Wait until messages that have arrived, such as a cancellation, were received. */
const receiveMessages = () => new Promise((resolve) => setTimeout(resolve, 0));

/**
 * Return the buffers of a result, which are transferred instead of copied.
 * @param {unknown} result
 * @returns {Transferable[]}
 */
function buffers(result) {
  const arrays = Object.values(result ?? {}).map((value) => value?.data ?? value);
  return [...new Set(arrays.filter(ArrayBuffer.isView).map(({ buffer }) => /** @type {ArrayBuffer} */ (buffer)))];
}

/**
 * @param {WorkerMessage} message
 * @param {Transferable[]} [transfer]
 */
function send(message, transfer = []) {
  postMessage(message, { transfer });
}
