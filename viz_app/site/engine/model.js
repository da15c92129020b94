// A model in the browser: its graph and weights in ONNX Runtime Web, and one run of it.

import {
  checkCancelled,
  DownloadError,
  EngineError,
  typedError,
  UnsupportedModelError,
  WebAssemblyError,
} from "./errors.js";
import { FileStorage, free, readDescription, readFile, transferredBytes } from "./files.js";
import { checkRequest } from "./requests.js";
import { targetValue } from "./targets.js";

/** @typedef {typeof import("../runtime/ort.wasm.min.js")} Runtime */
/** @typedef {import("./files.js").FileEntry} FileEntry */
/** @typedef {import("./requests.js").ModelDescription} ModelDescription */
/** @typedef {import("./requests.js").OutputName} OutputName */
/** @typedef {import("./requests.js").RunRequest} RunRequest */
/** @typedef {import("./requests.js").RunResult} RunResult */

/**
 * @typedef {object} LoadProgress
 * @property {number} loadedBytes
 * @property {number} totalBytes
 * @property {"download" | "start"} phase start: all bytes are received, and the runtime reads the model
 *
 * @typedef {object} LoadOptions
 * @property {string} folder address of the folder of the model, with a slash at its end
 * @property {string} runtime address of the folder of the runtime, with a slash at its end
 * @property {AbortSignal} [signal]
 * @property {(progress: LoadProgress) => void} [onProgress]
 * @property {(warning: EngineError) => void} [onWarning] receives at most one error of the storage
 * @property {boolean} [requireStorage] raise an error of the storage instead; default: false
 */

// A module with a function that computes i8x16.popcnt(i8x16.splat(0)), an instruction on 128 bits.
const SIMD_MODULE = "AGFzbQEAAAABBQFgAAF7AwIBAAoKAQgAQQD9D/1iCw==";

/** @type {Record<OutputName, string>} */
const GRAPH_NAMES = {
  logits: "logits",
  nextSentenceLogits: "next_sentence_logits",
  attention: "attention",
  hiddenStates: "hidden_states",
  embeddings: "embeddings",
  targetValue: "target_value",
  attentionGradient: "attention_gradient",
  headMaskGradient: "head_mask_gradient",
  embeddingGradient: "embedding_gradient",
};
const GRADIENTS = ["attentionGradient", "headMaskGradient", "embeddingGradient"];
const GRAPH_FILE = "model.onnx";

/** A loaded model, which runs one request at a time. */
export class Model {
  #runtime;
  #session;

  /**
   * @param {ModelDescription} description
   * @param {Runtime} runtime
   * @param {import("../runtime/ort.wasm.min.js").InferenceSession} session
   */
  constructor(description, runtime, session) {
    this.description = description;
    this.#runtime = runtime;
    this.#session = session;
  }

  /**
   * Load a model from its exported folder.
   * @param {LoadOptions} options
   */
  static async load({ folder, runtime, signal, onProgress = () => {}, onWarning = () => {}, requireStorage = false }) {
    checkWebAssembly();
    const [modelDescription, runtimeDescription] = await Promise.all([
      readDescription(`${folder}model.json`, signal),
      readDescription(`${runtime}runtime.json`, signal),
    ]);
    const description = checkDescription(modelDescription);
    const { version, file } = /** @type {{ version: string, file: FileEntry }} */ (runtimeDescription);
    const storage = await FileStorage.open(description.version, (error) => {
      if (requireStorage) throw error;
      onWarning(error);
    });
    const totalBytes = [file, ...description.files].reduce((sum, entry) => sum + transferredBytes(entry), 0);
    let loadedBytes = 0;
    /** @param {string} source @param {FileEntry} entry @param {string} [fileVersion] */
    const read = async (source, entry, fileVersion) => {
      const previousBytes = loadedBytes;
      /** @param {number} bytes */
      const onBytes = (bytes) => {
        loadedBytes = previousBytes + bytes;
        onProgress({ loadedBytes, totalBytes, phase: "download" });
      };
      return readFile(source, entry, { storage, version: fileVersion, signal, onBytes });
    };
    try {
      const webAssembly = await read(runtime, file, version);
      /** @type {Map<string, Uint8Array<ArrayBuffer>>} */
      const contents = new Map();
      for (const entry of description.files) contents.set(entry.name, await read(folder, entry));
      await storage.store(`${folder}model.json`, JSON.stringify(modelDescription));
      await storage.store(`${runtime}runtime.json`, JSON.stringify(runtimeDescription));
      await storage.deleteOtherVersions(folder);
      onProgress({ loadedBytes, totalBytes, phase: "start" });
      const module = await startRuntime(runtime, webAssembly);
      checkCancelled(signal);
      const session = await createSession(module, contents);
      module.env.wasm.wasmBinary = undefined;
      for (const content of [webAssembly, ...contents.values()]) free(content);
      return new Model(description, module, session);
    } catch (error) {
      throw typedError(error, (reason) => {
        return new UnsupportedModelError(`${description.name} cannot be started: export it again. (${reason})`);
      });
    }
  }

  /**
   * Run the model on one text.
   * @param {RunRequest} request
   * @returns {Promise<RunResult>}
   */
  async run(request) {
    checkRequest(this.description, request);
    const names = this.#outputNames(request);
    /** @type {RunResult} */
    const result = {};
    if (names.length === 0) return result;
    try {
      const outputs = await this.#session.run(
        this.#inputs(request),
        names.map((name) => GRAPH_NAMES[name]),
      );
      for (const name of names) {
        const { data, dims } = outputs[GRAPH_NAMES[name]];
        result[name] = { data: /** @type {Float32Array} */ (data), dims: [...dims] };
      }
    } catch (error) {
      throw typedError(error, (reason) => new EngineError(`The model stopped: load it again. (${reason})`));
    }
    return this.#completed(request, result);
  }

  /**
   * Return the outputs that the graph is asked for.
   * @param {RunRequest} request
   */
  #outputNames({ outputs, target, gradients }) {
    const names = /** @type {OutputName[]} */ (Object.keys(GRAPH_NAMES));
    // A graph without gradients has no target value, which is then computed from these.
    const requested = this.description.gradients || !target ? outputs : outputs?.concat("logits", "nextSentenceLogits");
    return names.filter(
      (name) =>
        this.#session.outputNames.includes(GRAPH_NAMES[name]) &&
        (requested?.includes(name) ?? true) &&
        (gradients || !GRADIENTS.includes(name)) &&
        (target !== undefined || name !== "targetValue"),
    );
  }

  /**
   * Return a result with the target value, and without what was not requested.
   * @param {RunRequest} request
   * @param {RunResult} result
   */
  #completed({ outputs, target, positions = [] }, result) {
    if (target && !this.description.gradients && (outputs?.includes("targetValue") ?? true)) {
      const value = targetValue(target, positions, result.logits?.data, result.nextSentenceLogits?.data);
      result.targetValue = { data: Float32Array.of(value), dims: [] };
    }
    if (result.logits && positions.length === 0) {
      result.logits = { data: new Float32Array(), dims: [0, this.description.vocabulary] };
    }
    for (const name of /** @type {OutputName[]} */ (Object.keys(result))) {
      if (outputs && !outputs.includes(name)) delete result[name];
    }
    return result;
  }

  /**
   * Return the tensors of a request by the names of the inputs of the graph.
   *
   * The graph needs at least one predicted position and one term: without any, a first one that has no effect.
   * @param {RunRequest} request
   */
  #inputs(request) {
    const { layers, heads } = this.description;
    const { inputIds, positions = [], target } = request;
    const rows = positions.length ? positions : [0];
    const terms = target?.terms?.length ? target.terms : [{ position: rows[0], token: 0, weight: 0 }];
    const { Tensor } = this.#runtime;
    /** @param {number[]} values */
    const integers = (values) => new Tensor("int64", BigInt64Array.from(values, BigInt), [values.length]);
    /** @param {ArrayLike<number>} values @param {number[]} [dims] */
    const floats = (values, dims) => new Tensor("float32", Float32Array.from(values), dims ?? [values.length]);
    const all = {
      input_ids: integers(inputIds),
      token_type_ids: integers(request.tokenTypeIds ?? inputIds.map(() => 0)),
      attention_mask: floats(request.attentionMask ?? inputIds.map(() => 1)),
      head_mask: floats(request.headMask ?? new Float32Array(layers * heads).fill(1), [layers, heads]),
      positions: integers(rows),
      baseline_ids: integers(request.baselineIds ?? inputIds),
      interpolation: floats([request.interpolation ?? 1], []),
      target_rows: integers(terms.map(({ position }) => rows.indexOf(position))),
      target_tokens: integers(terms.map(({ token }) => token)),
      target_weights: floats(terms.map(({ weight }) => weight)),
      next_sentence_weights: floats(target?.nextSentence ?? [0, 0]),
      compute_gradients: new Tensor("bool", [request.gradients], []),
    };
    return Object.fromEntries(Object.entries(all).filter(([name]) => this.#session.inputNames.includes(name)));
  }
}

/** Raise WebAssemblyError unless the browser has WebAssembly with SIMD. */
function checkWebAssembly() {
  if (typeof WebAssembly === "undefined") {
    throw new WebAssemblyError("WebAssembly is switched off in this browser: switch it on, or use another browser.");
  }
  if (!WebAssembly.validate(Uint8Array.from(atob(SIMD_MODULE), (character) => character.charCodeAt(0)))) {
    throw new WebAssemblyError("This browser has no WebAssembly with SIMD: use a newer browser.");
  }
}

/**
 * Return the content of model.json. Raises UnsupportedModelError if it does not describe a model.
 * @param {unknown} content
 */
function checkDescription(content) {
  const description = /** @type {Partial<ModelDescription> | null} */ (content);
  const numbers = [description?.layers, description?.heads, description?.vocabulary, description?.max_tokens];
  const isValid = numbers.every(Number.isInteger) && description?.version && Array.isArray(description.files);
  if (!isValid || !description.files?.some(({ name }) => name === GRAPH_FILE)) {
    throw new UnsupportedModelError("model.json does not describe a model: export the model again.");
  }
  return /** @type {ModelDescription} */ (description);
}

/**
 * Return the module of the runtime, set to use one thread.
 * @param {string} folder
 * @param {Uint8Array<ArrayBuffer>} webAssembly
 */
async function startRuntime(folder, webAssembly) {
  const mjs = `${folder}ort-wasm-simd-threaded.js`;
  await importModule(mjs); // the runtime imports it: here, an error has its name
  const runtime = /** @type {Runtime} */ (await importModule(`${folder}ort.wasm.min.js`));
  runtime.env.logLevel = "error";
  Object.assign(runtime.env.wasm, { wasmPaths: { mjs }, numThreads: 1, wasmBinary: webAssembly });
  return runtime;
}

/** @param {string} url */
async function importModule(url) {
  try {
    return await import(url);
  } catch {
    const name = url.slice(url.lastIndexOf("/") + 1);
    throw new DownloadError(`${name} could not be downloaded: check the connection and load the model again.`);
  }
}

/**
 * @param {Runtime} runtime
 * @param {Map<string, Uint8Array<ArrayBuffer>>} contents of the files of the model
 */
async function createSession(runtime, contents) {
  const graph = /** @type {Uint8Array<ArrayBuffer>} */ (contents.get(GRAPH_FILE));
  const externalData = [...contents].filter(([name]) => name !== GRAPH_FILE).map(([path, data]) => ({ path, data }));
  return runtime.InferenceSession.create(graph, {
    executionProviders: ["wasm"],
    externalData,
    extra: { session: { disable_prepacking: "1" } }, // prepacking would keep a second copy of each weight
  });
}
