// The engine: a model in a worker, so that the page does not wait for it.

import { CancelledError, checkCancelled, DownloadError, EngineError, fromSent, OutOfMemoryError } from "./errors.js";

/** @typedef {import("./errors.js").StorageError} StorageError */
/** @typedef {import("./requests.js").RunRequest} RunRequest */
/** @typedef {import("./worker.js").WorkerMessage} WorkerMessage */

/**
 * @typedef {object} Pending a request that is not completed
 * @property {(result: any) => void} resolve
 * @property {(error: EngineError) => void} reject
 * @property {(...progress: any[]) => void} [onProgress]
 * @property {(warning: StorageError) => void} [onWarning]
 *
 * @typedef {(completed: number, total: number) => void} CountProgress receives the number of completed runs
 */

/** The methods reject with errors of errors.js. After OutOfMemoryError, or the end of the worker, `load` starts anew. */
export class Engine {
  /** @type {Worker | undefined} */
  #worker;
  /** @type {Map<number, Pending>} */
  #pending = new Map();
  #count = 0;

  /**
   * Load a model in a new worker. The model that was loaded before is closed.
   * @param {object} [options]
   * @param {string | URL} [options.folder] of the model, with a slash at its end; relative to the page
   * @param {string | URL} [options.runtime] the folder of the runtime
   * @param {AbortSignal} [options.signal]
   * @param {(progress: import("./model.js").LoadProgress) => void} [options.onProgress]
   * @param {(warning: StorageError) => void} [options.onWarning] receives why the model cannot be stored
   * @param {boolean} [options.requireStorage] reject with StorageError instead; default: false
   * @returns {Promise<import("./requests.js").ModelDescription>}
   */
  async load({
    folder = new URL("../model/", import.meta.url),
    runtime = new URL("../runtime/", import.meta.url),
    signal,
    onProgress,
    onWarning,
    requireStorage,
  } = {}) {
    checkCancelled(signal);
    this.close();
    const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.#worker = worker;
    worker.addEventListener("message", ({ data }) => this.#receive(data));
    worker.addEventListener("error", ({ message }) => {
      // An error of the script has a message; without one, the script or a module that it imports was not received.
      const error = message
        ? new EngineError("The model stopped unexpectedly: load it again.")
        : new DownloadError("worker.js could not be downloaded: check the connection and load the model again.");
      this.#stop(worker, error);
    });
    const message = { kind: "load", folder: absolute(folder), runtime: absolute(runtime), requireStorage };
    try {
      return await this.#send(message, { signal, onProgress, onWarning });
    } catch (error) {
      this.#stop(worker, new EngineError("The model is not loaded: load it again."));
      throw error;
    }
  }

  /**
   * Run the model on one text.
   * @param {RunRequest} request
   * @param {{ signal?: AbortSignal }} [options]
   * @returns {Promise<import("./requests.js").RunResult>}
   */
  run(request, options = {}) {
    return this.#send({ kind: "run", request }, options);
  }

  /**
   * Compute integrated gradients, see integrated_gradients.js.
   * @param {RunRequest} request with a target and `baselineIds`
   * @param {{ steps?: number, signal?: AbortSignal, onProgress?: CountProgress }} [options]
   * @returns {Promise<import("./integrated_gradients.js").IntegratedGradients>}
   */
  integratedGradients(request, { steps, ...options } = {}) {
    return this.#send({ kind: "integratedGradients", request, steps }, options);
  }

  /**
   * Compute the target without each of some heads, see ablation.js.
   * @param {RunRequest} request with a target
   * @param {import("./ablation.js").Head[]} heads
   * @param {{ signal?: AbortSignal, onProgress?: CountProgress }} [options]
   * @returns {Promise<import("./ablation.js").HeadAblation[]>}
   */
  ablateHeads(request, heads, options = {}) {
    return this.#send({ kind: "ablateHeads", request, heads }, options);
  }

  /** Release the model. Requests that are not completed reject with CancelledError. */
  close() {
    if (this.#worker) this.#stop(this.#worker, new CancelledError("The model was closed."));
  }

  /**
   * @param {object} message
   * @param {{ signal?: AbortSignal } & Partial<Pending>} options
   * @returns {Promise<any>}
   */
  async #send(message, { signal, onProgress, onWarning }) {
    checkCancelled(signal);
    const worker = this.#worker;
    if (!worker) throw new EngineError("The model is not loaded: load it first.");
    const number = ++this.#count;
    /** @type {() => void} */
    let cancel = () => {};
    try {
      return await new Promise((resolve, reject) => {
        cancel = () => {
          worker.postMessage({ number, kind: "cancel" });
          reject(new CancelledError("The request was cancelled."));
        };
        signal?.addEventListener("abort", cancel);
        this.#pending.set(number, { resolve, reject, onProgress, onWarning });
        worker.postMessage({ ...message, number });
      });
    } finally {
      this.#pending.delete(number);
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** @param {WorkerMessage} message */
  #receive(message) {
    const pending = this.#pending.get(message.number);
    if ("error" in message) {
      const error = fromSent(message.error);
      pending?.reject(error);
      if (error instanceof OutOfMemoryError && this.#worker) this.#stop(this.#worker, error);
    } else if ("warning" in message) pending?.onWarning?.(fromSent(message.warning));
    else if ("progress" in message) pending?.onProgress?.(...message.progress);
    else pending?.resolve(message.result);
  }

  /**
   * End a worker, and reject its requests, unless another worker has taken its place.
   * @param {Worker} worker
   * @param {EngineError} error
   */
  #stop(worker, error) {
    worker.terminate();
    if (worker !== this.#worker) return;
    this.#worker = undefined;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }
}

/** @param {string | URL} folder */
const absolute = (folder) => new URL(folder, location.href).href;
