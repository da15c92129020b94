// The files of a model: received with progress, stored by the browser, and decompressed.

import { CancelledError, checkCancelled, DownloadError, StorageError, UnsupportedModelError } from "./errors.js";

/**
 * A file of a model or of the runtime, as its description lists it.
 *
 * The compressed file is the content in `planes` byte planes (of two: all even bytes, then all odd bytes) as a raw
 * deflate stream.
 * @typedef {object} FileEntry
 * @property {string} name
 * @property {number} bytes length of the content
 * @property {string} [compressed_name] name of the compressed file, if there is one
 * @property {number} [compressed_bytes] its length
 * @property {1 | 2} [planes] default: 2
 */

const CACHE_PREFIX = "headlight-";

/**
 * Return how many bytes are transferred for a file.
 * @param {FileEntry} entry
 */
export const transferredBytes = (entry) => entry.compressed_bytes ?? entry.bytes;

/**
 * Release the memory of an array now instead of at the next garbage collection.
 * @param {Uint8Array} bytes not used afterwards
 */
export function free(bytes) {
  /** @type {{ transfer?: (length: number) => unknown }} */ (bytes.buffer).transfer?.(0);
}

/** The files of one version of a model in the Cache API of the browser, if it is available and has space. */
export class FileStorage {
  /** @type {Cache | undefined} */
  #cache;
  #isWritable = false;
  #name;
  #onFailure;

  /**
   * @param {string} name
   * @param {(error: StorageError) => void} onFailure
   */
  constructor(name, onFailure) {
    this.#name = name;
    this.#onFailure = onFailure;
  }

  /**
   * Open the storage of a version. Without the Cache API, the storage is empty and remains so.
   * @param {string} version
   * @param {(error: StorageError) => void} onFailure called at most once; may raise the error
   */
  static async open(version, onFailure) {
    const storage = new FileStorage(CACHE_PREFIX + version, onFailure);
    try {
      storage.#cache = await caches.open(storage.#name);
      storage.#isWritable = true;
    } catch {
      onFailure(
        new StorageError(
          "The browser cannot store the model for this page, and downloads it at each visit: " +
            "open the page over HTTPS and outside of a private window.",
        ),
      );
    }
    return storage;
  }

  /**
   * Return the stored content of an address; undefined if it is not stored.
   * @param {string} url
   * @returns {Promise<Uint8Array<ArrayBuffer> | undefined>}
   */
  async find(url) {
    try {
      const response = await this.#cache?.match(url);
      return response && new Uint8Array(await response.arrayBuffer());
    } catch (error) {
      if (error instanceof RangeError) throw error; // the memory is full
      return undefined;
    }
  }

  /**
   * Store the content of an address. After a failure, nothing more is stored.
   * @param {string} url
   * @param {BodyInit} content
   */
  async store(url, content) {
    if (!this.#isWritable) return;
    try {
      await this.#cache?.put(url, new Response(content));
    } catch {
      this.#isWritable = false;
      this.#onFailure(
        new StorageError(
          "The storage of the browser is full, and the model will be downloaded again at the next visit: " +
            "free some space to keep it.",
        ),
      );
    }
  }

  /**
   * Delete the caches of other versions of the model in the same folder.
   * @param {string} folder
   */
  async deleteOtherVersions(folder) {
    if (!this.#isWritable) return;
    try {
      for (const name of await caches.keys()) {
        if (!name.startsWith(CACHE_PREFIX) || name === this.#name) continue;
        const requests = await (await caches.open(name)).keys();
        if (requests.some(({ url }) => url.startsWith(folder))) await caches.delete(name);
      }
    } catch {
      // They remain until the next visit.
    }
  }
}

/**
 * Return the description in a JSON file. Without a connection, it is the one that was stored last.
 * @param {string} url
 * @param {AbortSignal} [signal]
 * @returns {Promise<unknown>}
 */
export async function readDescription(url, signal) {
  const name = fileName(url);
  /** @type {Response | undefined} */
  let response;
  try {
    response = await request(url, name, signal, "no-cache");
  } catch (error) {
    response = await globalThis.caches?.match(url).catch(() => undefined);
    if (!response || error instanceof CancelledError) throw error;
  }
  const text = await response.text().catch(() => {
    throw failure(name, "the connection was interrupted", signal);
  });
  try {
    return JSON.parse(text);
  } catch {
    throw new UnsupportedModelError(`${name} is not valid JSON: the folder of the model must be written again.`);
  }
}

/**
 * Return the content of a file, from the storage if it is there.
 * @param {string} folder address of the folder, with a slash at its end
 * @param {FileEntry} entry
 * @param {object} options
 * @param {FileStorage} options.storage
 * @param {string} [options.version] of the file, if another than that of the storage
 * @param {AbortSignal} [options.signal]
 * @param {(bytes: number) => void} [options.onBytes] receives the number of bytes that are received so far
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function readFile(folder, entry, { storage, version, signal, onBytes = () => {} }) {
  checkCancelled(signal);
  const name = entry.compressed_name ?? entry.name;
  const url = new URL(name, folder).href;
  const key = version ? `${url}?version=${version}` : url;
  const length = transferredBytes(entry);
  const stored = await storage.find(key);
  const isStored = stored?.length === length;
  const content = isStored ? stored : await receive(await request(url, name, signal), name, length, signal, onBytes);
  if (isStored) onBytes(length);
  const file = entry.compressed_name ? await decompress(content, entry) : content;
  if (!isStored) await storage.store(key, content);
  if (file !== content) free(content);
  checkCancelled(signal);
  return file;
}

/** @param {string} url */
const fileName = (url) => url.slice(url.lastIndexOf("/") + 1);

/**
 * @param {string} name
 * @param {string} reason
 * @param {AbortSignal} [signal]
 */
function failure(name, reason, signal) {
  checkCancelled(signal);
  return new DownloadError(`${name} could not be downloaded, because ${reason}: load the model again.`);
}

/**
 * @param {string} url
 * @param {string} name
 * @param {AbortSignal} [signal]
 * @param {RequestCache} [cache]
 */
async function request(url, name, signal, cache = "default") {
  const response = await fetch(url, { signal, cache }).catch(() => {
    throw failure(name, "there is no connection", signal);
  });
  if (!response.ok) throw failure(name, `the server answered with status ${response.status}`, signal);
  return response;
}

/**
 * @param {Response} response
 * @param {string} name
 * @param {number} length
 * @param {AbortSignal | undefined} signal
 * @param {(bytes: number) => void} onBytes
 */
async function receive(response, name, length, signal, onBytes) {
  const content = new Uint8Array(length);
  let received = 0;
  const reader = response.body?.getReader();
  for (;;) {
    const chunk = await reader?.read().catch(() => {
      throw failure(name, "the connection was interrupted", signal);
    });
    if (!chunk?.value) break;
    if (received + chunk.value.length > length) {
      await reader?.cancel();
      throw failure(name, `the server sent more than ${length} bytes`, signal);
    }
    content.set(chunk.value, received);
    received += chunk.value.length;
    onBytes(received);
  }
  if (received < length) throw failure(name, `only ${received} of ${length} bytes were received`, signal);
  return content;
}

/**
 * @param {Uint8Array<ArrayBuffer>} compressed
 * @param {FileEntry} entry
 */
async function decompress(compressed, { name, bytes, planes = 2 }) {
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const content = new Uint8Array(
    await new Response(stream).arrayBuffer().catch((error) => {
      throw error instanceof RangeError ? error : failure(name, "its compressed content is damaged");
    }),
  );
  if (content.length !== bytes) throw failure(name, `it has ${content.length} instead of ${bytes} bytes`);
  return planes === 1 ? content : joinPlanes(content);
}

/** @param {Uint8Array<ArrayBuffer>} planes */
function joinPlanes(planes) {
  const content = new Uint8Array(planes.length);
  const half = planes.length / 2;
  for (let i = 0; i < half; i++) {
    content[2 * i] = planes[i];
    content[2 * i + 1] = planes[half + i];
  }
  free(planes);
  return content;
}
