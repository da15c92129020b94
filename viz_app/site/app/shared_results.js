// Results that several callers share while they are computed, of which the last ones are kept.

import { abortable } from "./loading.js";

/**
 * @typedef {object} Entry
 * @property {Promise<any>} promise
 * @property {AbortController} controller aborts the computation when nobody waits for it any more
 * @property {number} waiting number of callers that wait
 * @property {boolean} isComplete
 * @property {number} bytes of the result
 * @property {(done: number, total: number) => void} onProgress of the last caller
 *
 * @typedef {import("./types.d.ts").RunOptions} RunOptions
 */

const LARGEST_BYTES = 200e6; // of the results that are kept
const LEAST_KEPT = 2; // results, however large they are

/**
 * @param {number} limit number of results that are kept
 * @param {(result: any) => number} [bytesOf] returns the size of a result
 */
export function createSharedResults(limit, bytesOf = () => 0) {
  /** @type {Map<string, Entry>} */
  const entries = new Map();

  /**
   * Begin a computation, whose result is kept unless it fails.
   * @param {string} key
   * @param {(options: Required<RunOptions>) => Promise<any>} compute
   */
  const begin = (key, compute) => {
    const controller = new AbortController();
    const onProgress = (/** @type {number} */ done, /** @type {number} */ total) => entry.onProgress(done, total);
    const promise = compute({ signal: controller.signal, onProgress });
    /** @type {Entry} */
    const entry = { promise, controller, waiting: 0, isComplete: false, bytes: 0, onProgress: () => {} };
    entries.set(key, entry);
    promise.then(
      (result) => {
        entry.isComplete = true;
        entry.bytes = bytesOf(result);
        removeOldest();
      },
      () => {
        if (entries.get(key) === entry) entries.delete(key);
      },
    );
    return entry;
  };

  const removeOldest = () => {
    const complete = [...entries].filter(([, entry]) => entry.isComplete);
    let bytes = complete.reduce((sum, [, entry]) => sum + entry.bytes, 0);
    let count = complete.length;
    for (const [key, entry] of complete) {
      if (count <= limit && (bytes <= LARGEST_BYTES || count <= LEAST_KEPT)) return;
      entries.delete(key);
      bytes -= entry.bytes;
      count--;
    }
  };

  return {
    /**
     * Return the result of a key, computed at most once at a time. It is cancelled when all its callers have cancelled.
     * @template Result
     * @param {string} key
     * @param {(options: Required<RunOptions>) => Promise<Result>} compute
     * @param {RunOptions} [options]
     * @returns {Promise<Result>}
     */
    get: async (key, compute, { signal, onProgress } = {}) => {
      const entry = entries.get(key) ?? begin(key, compute);
      entries.delete(key); // the last one that is used is the last one that is removed
      entries.set(key, entry);
      if (onProgress) entry.onProgress = onProgress;
      entry.waiting++;
      try {
        return await abortable(entry.promise, signal);
      } finally {
        entry.waiting--;
        if (!entry.waiting && !entry.isComplete) {
          if (entries.get(key) === entry) entries.delete(key);
          entry.controller.abort();
        }
      }
    },
  };
}
