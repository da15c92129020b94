// The files of a model: progress, failures, storage, and compressed files.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { deflateRawSync } from "node:zlib";
import { CancelledError, DownloadError, StorageError } from "../../viz_app/site/engine/errors.js";
import { FileStorage, readDescription, readFile } from "../../viz_app/site/engine/files.js";

const FOLDER = "http://localhost/model/";
const CONTENT = Uint8Array.from({ length: 1000 }, (_, i) => i % 251);
const ENTRY = { name: "weights-0.bin", bytes: CONTENT.length };

/** @type {string[]} */
let requested;
/** @type {Record<string, () => Response | Promise<Response>>} answers of the server by file name */
let answers;
/** @type {Map<string, Map<string, Uint8Array>>} */
let stored;
/** @type {Error | undefined} */
let storageFailure;

const cacheOf = (name) => ({
  match: async (url) => stored.get(name)?.has(url) && new Response(stored.get(name).get(url)),
  put: async (url, response) => {
    if (storageFailure) throw storageFailure;
    stored.get(name).set(url, new Uint8Array(await response.arrayBuffer()));
  },
  keys: async () => [...stored.get(name).keys()].map((url) => ({ url })),
});
const CACHES = {
  open: async (name) => {
    if (!stored.has(name)) stored.set(name, new Map());
    return cacheOf(name);
  },
  keys: async () => [...stored.keys()],
  delete: async (name) => stored.delete(name),
  match: async (url) => {
    for (const name of stored.keys()) if (stored.get(name).has(url)) return cacheOf(name).match(url);
  },
};

const { fetch } = globalThis;
beforeEach(() => {
  [requested, answers, stored, storageFailure] = [[], {}, new Map(), undefined];
  globalThis.caches = CACHES;
  globalThis.fetch = async (url, { signal }) => {
    signal?.throwIfAborted();
    const name = url.slice(url.lastIndexOf("/") + 1);
    requested.push(name);
    return answers[name]?.() ?? new Response("", { status: 404 });
  };
});
afterEach(() => {
  globalThis.fetch = fetch;
  delete globalThis.caches;
});

/** A body in chunks, which fails after the last one if there is an error. */
function body(chunks, error) {
  const rest = [...chunks];
  return new ReadableStream({
    pull: (controller) => {
      if (rest.length) controller.enqueue(rest.shift());
      else if (error) controller.error(error);
      else controller.close();
    },
  });
}

const raise = (error) => {
  throw error;
};

test("A file is received with its progress, and not requested again", async () => {
  answers["weights-0.bin"] = () => new Response(body([CONTENT.subarray(0, 300), CONTENT.subarray(300)]));
  const progress = [];
  for (let visit = 0; visit < 2; visit++) {
    const storage = await FileStorage.open("1", raise);
    const content = await readFile(FOLDER, ENTRY, { storage, onBytes: (bytes) => progress.push(bytes) });
    assert.deepEqual(content, CONTENT);
  }
  assert.deepEqual(progress, [300, 1000, 1000]);
  assert.deepEqual(requested, ["weights-0.bin"]);
  assert.deepEqual([...stored.get("headlight-1").keys()], [`${FOLDER}weights-0.bin`]);
});

test("Files that were received before an interruption are not requested again", async () => {
  const entries = [0, 1].map((number) => ({ ...ENTRY, name: `weights-${number}.bin` }));
  answers["weights-0.bin"] = () => new Response(CONTENT);
  answers["weights-1.bin"] = () => new Response(body([CONTENT.subarray(0, 10)], new TypeError("network error")));
  const load = async () => {
    const storage = await FileStorage.open("1", raise);
    for (const entry of entries) await readFile(FOLDER, entry, { storage });
  };
  await assert.rejects(
    load(),
    new DownloadError(
      "weights-1.bin could not be downloaded, because the connection was interrupted: load the model again.",
    ),
  );
  assert.deepEqual([...stored.get("headlight-1").keys()], [`${FOLDER}weights-0.bin`]);
  answers["weights-1.bin"] = () => new Response(CONTENT);
  await load();
  assert.deepEqual(requested, ["weights-0.bin", "weights-1.bin", "weights-1.bin"]);
});

test("A stored file of another length is requested again", async () => {
  stored.set("headlight-1", new Map([[`${FOLDER}weights-0.bin`, CONTENT.subarray(1)]]));
  answers["weights-0.bin"] = () => new Response(CONTENT);
  assert.deepEqual(await readFile(FOLDER, ENTRY, { storage: await FileStorage.open("1", raise) }), CONTENT);
  assert.equal(requested.length, 1);
});

test("Each failure of a download names the file and the reason", async () => {
  const longer = new Uint8Array(1001);
  for (const [answer, reason] of [
    [() => new Response("", { status: 404 }), "the server answered with status 404"],
    [() => raise(new TypeError("Failed to fetch")), "there is no connection"],
    [() => new Response(CONTENT.subarray(0, 999)), "only 999 of 1000 bytes were received"],
    [() => new Response(null), "only 0 of 1000 bytes were received"],
    [() => new Response(longer), "the server sent more than 1000 bytes"],
  ]) {
    answers["weights-0.bin"] = answer;
    const storage = await FileStorage.open("1", raise);
    const message = `weights-0.bin could not be downloaded, because ${reason}: load the model again.`;
    await assert.rejects(readFile(FOLDER, ENTRY, { storage }), new DownloadError(message));
    assert.equal(stored.get("headlight-1").size, 0);
  }
});

test("A cancelled download raises CancelledError, before and during it", async () => {
  const storage = await FileStorage.open("1", raise);
  await assert.rejects(readFile(FOLDER, ENTRY, { storage, signal: AbortSignal.abort() }), CancelledError);
  assert.deepEqual(requested, []);
  const controller = new AbortController();
  answers["weights-0.bin"] = () => {
    const stream = new ReadableStream({
      pull: (stream) =>
        controller.signal.aborted ? stream.error(new TypeError()) : stream.enqueue(CONTENT.subarray(0, 10)),
    });
    return new Response(stream);
  };
  const onBytes = () => controller.abort();
  await assert.rejects(readFile(FOLDER, ENTRY, { storage, signal: controller.signal, onBytes }), CancelledError);
  assert.equal(stored.get("headlight-1").size, 0);
});

test("A full storage is reported once, and the files are received all the same", async () => {
  storageFailure = new DOMException("Quota exceeded.", "QuotaExceededError");
  answers["weights-0.bin"] = () => new Response(CONTENT);
  const warnings = [];
  const storage = await FileStorage.open("1", (error) => warnings.push(error));
  for (let i = 0; i < 2; i++) assert.deepEqual(await readFile(FOLDER, ENTRY, { storage }), CONTENT);
  assert.equal(warnings.length, 1);
  assert.ok(warnings[0] instanceof StorageError);
  assert.match(warnings[0].message, /^The storage of the browser is full/);
  const required = await FileStorage.open("1", raise);
  await assert.rejects(readFile(FOLDER, ENTRY, { storage: required }), StorageError);
});

test("Without the Cache API, files are received all the same", async () => {
  delete globalThis.caches;
  answers["weights-0.bin"] = () => new Response(CONTENT);
  const warnings = [];
  const storage = await FileStorage.open("1", (error) => warnings.push(error));
  assert.deepEqual(await readFile(FOLDER, ENTRY, { storage }), CONTENT);
  await storage.deleteOtherVersions(FOLDER);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0].message, /^The browser cannot store the model for this page/);
  await assert.rejects(FileStorage.open("1", raise), StorageError);
});

test("Only caches of other versions of this folder are deleted", async () => {
  stored.set("headlight-1", new Map([[`${FOLDER}weights-0.bin`, CONTENT]]));
  stored.set("headlight-of-another-folder", new Map([["http://localhost/other/weights-0.bin", CONTENT]]));
  stored.set("another-application", new Map([[`${FOLDER}weights-0.bin`, CONTENT]]));
  const storage = await FileStorage.open("2", raise);
  await storage.store(`${FOLDER}weights-0.bin`, CONTENT);
  await storage.deleteOtherVersions(FOLDER);
  assert.deepEqual([...stored.keys()], ["headlight-of-another-folder", "another-application", "headlight-2"]);
});

test("Compressed files are restored, in one and in two byte planes", async () => {
  const halves = [0, 1].map((plane) => CONTENT.filter((_, i) => i % 2 === plane));
  const inPlanes = Uint8Array.from(halves.flatMap((half) => [...half]));
  for (const [planes, content] of [
    [1, CONTENT],
    [2, inPlanes],
    [undefined, inPlanes],
  ]) {
    const compressed = new Uint8Array(deflateRawSync(content));
    answers["weights.deflated"] = () => new Response(compressed);
    const entry = { ...ENTRY, compressed_name: "weights.deflated", compressed_bytes: compressed.length, planes };
    for (let visit = 0; visit < 2; visit++) {
      const storage = await FileStorage.open(`${planes}`, raise);
      const received = [];
      const file = await readFile(FOLDER, entry, { storage, onBytes: (bytes) => received.push(bytes) });
      assert.deepEqual(file, CONTENT);
      assert.equal(received.at(-1), compressed.length);
    }
  }
  assert.equal(requested.length, 3);
});

test("Compressed content that is damaged or of another length is a failed download", async () => {
  const compressed = new Uint8Array(deflateRawSync(CONTENT));
  for (const [content, bytes] of [
    [compressed.fill(255, 5, 20), 1000],
    [new Uint8Array(deflateRawSync(CONTENT)), 998],
  ]) {
    answers["weights.deflated"] = () => new Response(content);
    const entry = { name: "a", bytes, compressed_name: "weights.deflated", compressed_bytes: content.length };
    const storage = await FileStorage.open("1", raise);
    await assert.rejects(readFile(FOLDER, entry, { storage }), DownloadError);
    assert.equal(stored.get("headlight-1").size, 0);
  }
});

test("A file of another version is stored separately", async () => {
  answers["weights-0.bin"] = () => new Response(CONTENT);
  const storage = await FileStorage.open("1", raise);
  for (const version of ["1.29.0", "1.30.0", "1.30.0"]) await readFile(FOLDER, ENTRY, { storage, version });
  assert.equal(requested.length, 2);
});

test("A description comes from the server, and without a connection from the storage", async () => {
  const url = `${FOLDER}model.json`;
  answers["model.json"] = () => new Response('{"version": "2"}');
  stored.set("headlight-1", new Map([[url, new TextEncoder().encode('{"version": "1"}')]]));
  assert.deepEqual(await readDescription(url), { version: "2" });
  answers["model.json"] = () => raise(new TypeError("Failed to fetch"));
  assert.deepEqual(await readDescription(url), { version: "1" });
  await assert.rejects(readDescription(url, AbortSignal.abort()), CancelledError);
  stored.clear();
  await assert.rejects(readDescription(url), DownloadError);
  answers["model.json"] = () => new Response("<!doctype html>");
  await assert.rejects(readDescription(url), { name: "UnsupportedModelError" });
});
