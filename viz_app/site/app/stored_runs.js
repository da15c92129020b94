// The stored runs of a site, which viz_app/site/stored_runs.py writes.

import { inflated, unpack } from "../../components/message.js";
import { received, receivedFile } from "./downloads.js";

/** @import { Encoding } from "../engine/tokenizer.js" */
/** @import { Attribution, Method, Prediction, ResolvedTarget, RunRequest, SiteDescription } from "./types.d.ts" */
/** @import { StoredResults, StoredRuns } from "./types.d.ts" */

/**
 * What a file has in front of its arrays.
 * @typedef {object} Header
 * @property {Encoding} encoding
 * @property {Encoding} original
 * @property {Omit<Prediction, "logits">[]} predictions
 * @property {number | null} nextSentence
 * @property {ResolvedTarget | null} target
 * @property {string[]} first most likely tokens at the first mask without each head
 * @property {Record<string, number>} gaps of the methods that have one
 * @property {Method[]} methods whose scores are among the arrays, under their names
 * @property {[name: string, shape: number[]][]} arrays of float32, in their order
 */

/**
 * Return the key of the stored run of a text in `SiteDescription.stored`.
 * @param {Pick<RunRequest, "text" | "pair" | "masked">} request
 */
export const storedKey = ({ text, pair, masked }) => JSON.stringify([text, pair, masked]);

/**
 * @param {Pick<SiteDescription, "stored">} site
 * @param {URL} root address of the folder of the site
 * @returns {StoredRuns}
 */
export function createStoredRuns({ stored }, root) {
  /** @type {Map<string, Promise<StoredResults>>} */
  const requested = new Map();
  /** @type {Map<string, StoredResults>} */
  const known = new Map();
  /** @param {string} path */
  const download = async (path) => {
    try {
      const response = await receivedFile(new URL(path, root));
      const content = await received(response.arrayBuffer());
      const results = await readStoredRun(path, new Uint8Array(content));
      known.set(path, results);
      return results;
    } catch (error) {
      requested.delete(path); // the next request tries again
      throw error;
    }
  };
  return {
    has: (request) => Object.hasOwn(stored, storedKey(request)),
    peek: (request) => known.get(stored[storedKey(request)]),
    read: (request) => {
      const path = stored[storedKey(request)];
      const results = requested.get(path) ?? download(path);
      requested.set(path, results);
      return results;
    },
  };
}

/**
 * Return the results in the content of a file.
 * @param {string} name another one for other numbers
 * @param {Uint8Array<ArrayBuffer>} content
 * @returns {Promise<StoredResults>}
 */
export async function readStoredRun(name, content) {
  /** @type {{ header: Header, tail: Uint8Array }} */
  const { header, tail } = unpack(new Uint8Array(await inflated(content)));
  const arrays = readArrays(header, tail);
  const [, [layers, heads]] = header.arrays[0];
  const { encoding, original, nextSentence, target } = header;
  return {
    run: {
      source: "stored",
      name,
      encoding,
      original,
      layers,
      heads,
      attention: /** @type {Float32Array} */ (arrays.get("attention")),
      headMask: /** @type {Float32Array} */ (arrays.get("headMask")),
      predictions: header.predictions.map((prediction) => ({ ...prediction, logits: null })),
      nextSentence,
      target,
      attentionGradient: arrays.get("attentionGradient") ?? null,
      headMaskGradient: arrays.get("headMaskGradient") ?? null,
    },
    ablations: readAblations(header, arrays),
    attributions: header.methods.map((method) => readAttribution(header, arrays, method)),
  };
}

/**
 * @param {Header} header
 * @param {Uint8Array} bytes
 */
function readArrays({ arrays }, bytes) {
  const values = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / Float32Array.BYTES_PER_ELEMENT);
  let start = 0;
  return new Map(
    arrays.map(([name, shape]) => {
      const end = start + shape.reduce((product, size) => product * size, 1);
      const array = values.subarray(start, end);
      start = end;
      return [name, array];
    }),
  );
}

/**
 * @param {Header} header
 * @param {Map<string, Float32Array>} arrays
 */
function readAblations({ first }, arrays) {
  const [value, probability] = [arrays.get("value"), arrays.get("probability")];
  return value && probability ? { value, probability, first } : null;
}

/**
 * @param {Header} header
 * @param {Map<string, Float32Array>} arrays
 * @param {Method} method
 * @returns {Attribution}
 */
function readAttribution({ gaps }, arrays, method) {
  return { method, scores: /** @type {Float32Array} */ (arrays.get(method)), gap: gaps[method] ?? null };
}
