// The errors of the engine. Each has its own class, also after it was sent from the worker to the page.

/** Base class of the errors that the engine raises. */
export class EngineError extends Error {
  /** @param {string} message one sentence for the user */
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

/** The text, or a part of the request, is not allowed. */
export class InvalidInputError extends EngineError {}
/** The files of the model are not those of a model that the engine can run. */
export class UnsupportedModelError extends EngineError {}
/** The memory of the browser is not sufficient. */
export class OutOfMemoryError extends EngineError {}
/** The browser has no WebAssembly, or it is switched off. */
export class WebAssemblyError extends EngineError {}
/** A file was not received, or only a part of it. */
export class DownloadError extends EngineError {}
/** The browser cannot store the files of the model, because its storage is full or not available. */
export class StorageError extends EngineError {}
/** The caller cancelled the request. */
export class CancelledError extends EngineError {}

const ERROR_CLASSES = [
  InvalidInputError,
  UnsupportedModelError,
  OutOfMemoryError,
  WebAssemblyError,
  DownloadError,
  StorageError,
  CancelledError,
];

/**
 * @typedef {{ name: string, message: string }} SentError an error as it is sent between the worker and the page
 */

/**
 * Return what is sent of an error.
 * @param {unknown} error
 * @returns {SentError}
 */
export function toSent(error) {
  return error instanceof Error
    ? { name: error.name, message: error.message }
    : { name: "Error", message: String(error) };
}

/**
 * Return the error that was sent, of its own class if it is one of the engine, and otherwise an EngineError.
 * @param {SentError} sent
 * @returns {EngineError}
 */
export function fromSent({ name, message }) {
  const errorClass = ERROR_CLASSES.find((candidate) => candidate.name === name) ?? EngineError;
  return new errorClass(message);
}

/**
 * Raise CancelledError if the caller cancelled the request.
 * @param {AbortSignal} [signal]
 */
export function checkCancelled(signal) {
  if (signal?.aborted) throw new CancelledError("The request was cancelled.");
}

const MEMORY = /memory|alloc|abort|out of bounds|stack size/i;

/**
 * Return the typed error for one that was raised by the runtime or the browser. Errors of the engine are returned as
 * they are.
 *
 * The runtime raises its own errors as text, and an exception of its C++ code as a number, of which the usual cause is
 * std::bad_alloc.
 * @param {unknown} error
 * @param {(reason: string) => EngineError} createOther creates the error for any other reason
 * @returns {EngineError}
 */
export function typedError(error, createOther) {
  if (error instanceof EngineError) return error;
  const reason = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  if (/CompileError|Content Security Policy|wasm-unsafe-eval/i.test(reason)) {
    return new WebAssemblyError(`WebAssembly does not start on this page: use another browser. (${reason})`);
  }
  const isException = /(^|\[wasm\] )(Error: )?\d+$/.test(reason);
  if (error instanceof RangeError || isException || MEMORY.test(reason)) {
    return new OutOfMemoryError("The memory of the browser is full: close other tabs, or use a shorter text.");
  }
  return createOther(reason);
}
