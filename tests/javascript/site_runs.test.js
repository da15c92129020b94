// The source of all numbers of the browser edition: stored runs first, otherwise a model, here one of a few tokens.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SiteDownloadError } from "../../viz_app/site/app/downloads.js";
import { maskAgain } from "../../viz_app/site/app/encodings.js";
import { abortable, createModelLoader } from "../../viz_app/site/app/loading.js";
import { createRuns } from "../../viz_app/site/app/runs.js";
import { createSharedResults } from "../../viz_app/site/app/shared_results.js";
import { swapWord } from "../../viz_app/site/app/swaps.js";
import { CancelledError, EngineError, InvalidInputError, OutOfMemoryError } from "../../viz_app/site/engine/errors.js";

const WORDS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "she", "he", "sat", "door", "un", "##do"];
const [LAYERS, HEADS, MASK] = [2, 2, 3];
const SITE = { model: { layers: LAYERS, heads: HEADS, max_tokens: 8, has_mlm: true, has_nsp: true } };
const REQUEST = { text: "she sat", pair: "", masked: [1], off: [], target: null, contrast: "", gradients: false };

/** A tokenizer of words that are separated by spaces. */
const TOKENIZER = {
  specialTokens: { pad_token: "[PAD]" },
  idOf: (token) => Math.max(WORDS.indexOf(token), 0),
  tokenOf: (id) => WORDS[id],
  piecesOf: (word) => {
    if (word === "undo") return ["un", "##do"];
    if (!WORDS.includes(word)) throw new InvalidInputError("not in the vocabulary");
    return [word];
  },
  encode: (text, pair, most) => {
    const words = text.split(" ").filter(Boolean);
    if (!words.length) throw new InvalidInputError("there is no text");
    const inputIds = [1, ...words.map((word) => WORDS.indexOf(word)), 2, ...(pair ? [4, 2] : [])].slice(0, most);
    const starts = words.map((_, index) => words.slice(0, index).join(" ").length + Number(index > 0));
    return encodingOf({
      text,
      pair: pair || null,
      inputIds,
      offsets: [[0, 0], ...words.map((word, index) => [starts[index], starts[index] + word.length]), [0, 0]],
      words: [null, ...words.keys(), null],
      sides: [null, ...words.map(() => "A"), null],
      wordCount: words.length,
    });
  },
  maskWords: (encoding, words) =>
    encodingOf({
      ...encoding,
      inputIds: encoding.inputIds.map((id, position) => (words.includes(encoding.words[position]) ? MASK : id)),
    }),
};

function encodingOf(fields) {
  const { inputIds } = fields;
  const maskPositions = [...inputIds.keys()].filter((position) => inputIds[position] === MASK);
  return { ...fields, maskPositions, tokens: inputIds.map((id) => WORDS[id]), tokenTypeIds: inputIds.map(() => 0) };
}

/** An engine whose logits at each position are the ids of the tokens, and with a head off those in reverse. */
function createEngine(requests = []) {
  return {
    run: async (request) => {
      requests.push(request);
      const { inputIds, headMask, positions, target, gradients } = request;
      const size = LAYERS * HEADS * inputIds.length ** 2;
      const row = [...WORDS.keys()].map((id) => (headMask.includes(0) ? -id : id));
      return {
        logits: { data: Float32Array.from(positions.flatMap(() => row)) },
        nextSentenceLogits: { data: Float32Array.of(2, 1) },
        attention: { data: new Float32Array(size).fill(1 / inputIds.length) },
        ...(gradients && {
          attentionGradient: { data: new Float32Array(size).fill(target ? 1 : 0) },
          headMaskGradient: { data: Float32Array.of(1, 2, 3, 4) },
          embeddings: { data: Float32Array.from(inputIds), dims: [inputIds.length, 1] },
          embeddingGradient: { data: new Float32Array(inputIds.length).fill(2) },
        }),
      };
    },
    ablateHeads: async (request, heads, { onProgress }) => {
      requests.push({ ...request, heads });
      onProgress(heads.length, heads.length);
      return heads.map(([layer, head]) => ({
        layer,
        head,
        targetValue: -head,
        probability: 0.5,
        topTokens: [4 + head],
      }));
    },
    integratedGradients: async (request) => {
      requests.push(request);
      return { scores: Float32Array.from(request.inputIds), completenessError: 0.25 };
    },
  };
}

const NOTHING_STORED = { has: () => false, peek: () => undefined, read: () => Promise.reject(new Error("nothing")) };

function createLiveRuns({ stored = NOTHING_STORED, engine, requests = [], stops = [] } = {}) {
  const model = { engine: engine ?? createEngine(requests), tokenizer: TOKENIZER };
  const loader = {
    model: async () => model,
    tokenizer: async () => TOKENIZER,
    stop: (error) => stops.push(error),
  };
  return createRuns({ site: SITE, loader, stored });
}

test("A live run has predictions, its default target and its own name, and cannot be changed", async () => {
  const runs = createLiveRuns();
  const run = await runs.run(REQUEST);
  const [prediction] = run.predictions;
  const sum = [...WORDS.keys()].reduce((total, id) => total + Math.exp(id), 0);
  assert.equal(runs.isStored(REQUEST), false);
  assert.deepEqual(
    [run.source, run.encoding.tokens, prediction.position],
    ["live", ["[CLS]", "she", "[MASK]", "[SEP]"], 2],
  );
  assert.deepEqual([prediction.top[0].token, prediction.top.length], ["##do", WORDS.length]);
  assert.ok(Math.abs(prediction.top[0].probability - Math.exp(9) / sum) < 1e-6);
  assert.deepEqual([run.target.target, run.target.tokenId], [{ position: 2, word: "##do" }, 9]);
  assert.ok(Math.abs(run.target.value - Math.log(Math.exp(9) / sum)) < 1e-6);
  assert.equal(run.nextSentence, null);
  assert.throws(() => {
    run.name = "another";
  }, TypeError);
  const other = await runs.run({ ...REQUEST, text: "he sat" });
  assert.notEqual(other.name, run.name);
});

test("The same run is computed once, and gradients are computed on request alone", async () => {
  const requests = [];
  const runs = createLiveRuns({ requests });
  const [one, two] = await Promise.all([runs.run(REQUEST), runs.run(REQUEST)]);
  assert.deepEqual([one.name === two.name, requests.length, one.headMaskGradient], [true, 1, null]);
  const explained = await runs.run({ ...REQUEST, gradients: true });
  assert.deepEqual([...explained.headMaskGradient], [1, 2, 3, 4]);
  assert.deepEqual([requests.length, requests[1].gradients, requests[1].target], [2, true, explained.target.terms]);
  await runs.run({ ...REQUEST, gradients: true });
  assert.equal(requests.length, 2);
});

test("With a head off, the explained word is that of the model with all heads on", async () => {
  const runs = createLiveRuns();
  const run = await runs.run({ ...REQUEST, off: [[1, 0]] });
  assert.deepEqual([...run.headMask], [1, 1, 0, 1]);
  assert.deepEqual([run.predictions[0].top[0].token, run.target.target.word], ["[PAD]", "##do"]);
});

test("Targets: a word, a word of two pieces, a contrast, the next sentence, and the default for an impossible one", async () => {
  const runs = createLiveRuns();
  const targetOf = async (changes) => (await runs.run({ ...REQUEST, ...changes })).target;
  const word = await targetOf({ target: { position: 2, word: "door" } });
  assert.deepEqual([word.tokenId, word.terms.terms.length], [7, 1]);
  const contrast = await targetOf({ target: { position: 2, word: "door" }, contrast: "he" });
  assert.deepEqual([contrast.againstId, Math.round(contrast.value * 1e4) / 1e4], [5, 2]);
  assert.ok(Math.abs(contrast.probability - 1 / (1 + Math.exp(-2))) < 1e-6);
  const joint = await targetOf({ masked: [0, 1], target: { position: 1, word: "undo" } });
  assert.deepEqual(
    joint.terms.terms.map(({ position, token, weight }) => [position, token, weight]),
    [
      [1, 8, 1],
      [2, 9, 1],
    ],
  );
  for (const target of [
    { position: 1, word: "door" },
    { position: 2, word: "undo" },
    { position: 2, word: "x" },
    "nsp",
  ]) {
    assert.deepEqual((await targetOf({ target })).target, { position: 2, word: "##do" });
  }
  const next = await targetOf({ pair: "she", masked: [] });
  assert.deepEqual(
    [next.target, Math.round(next.value * 1e6) / 1e6, next.terms],
    ["nsp", 1, { nextSentence: [1, -1] }],
  );
  assert.equal(await targetOf({ masked: [] }), null);
});

test("A long text is truncated, and masks of words beyond its end are left out", async () => {
  const { encoding, original } = await createLiveRuns().encode({ ...REQUEST, masked: [1, 400] });
  assert.deepEqual([encoding.maskPositions, original.maskPositions], [[2], []]);
});

test("Ablations and attributions are computed once, with progress", async () => {
  const requests = [];
  const runs = createLiveRuns({ requests });
  const progress = [];
  const ablations = await runs.ablations(REQUEST, { onProgress: (...counts) => progress.push(counts) });
  assert.deepEqual([...ablations.value], [-0, -1, -0, -1]);
  assert.deepEqual(ablations.first, ["she", "he", "she", "he"]);
  assert.deepEqual(progress, [[4, 4]]);
  assert.equal(await runs.ablations(REQUEST), ablations);
  const path = await runs.attribution(REQUEST, "integrated gradients");
  assert.deepEqual([path.gap, requests.at(-1).baselineIds], [0.25, [1, 0, MASK, 2]]);
  const input = await runs.attribution(REQUEST, "input x gradient");
  assert.deepEqual([...input.scores], [2, 8, 6, 4]);
  const product = await runs.attribution(REQUEST, "gradient x attention");
  assert.deepEqual([product.scores.length, product.scores[0]], [4, LAYERS * HEADS]);
});

test("A stored run needs no model, also for another word that is stored", async () => {
  const live = await createLiveRuns().run({ ...REQUEST, gradients: true });
  const predictions = live.predictions.map((prediction) => ({
    ...prediction,
    logits: null,
    top: prediction.top.slice(0, 3),
  }));
  const run = { ...live, source: "stored", name: "stored/a.bin", predictions };
  const ablations = { value: new Float32Array(4), probability: new Float32Array(4), first: [] };
  const attribution = { method: "input x gradient", scores: new Float32Array(4), gap: null };
  const results = { run, ablations, attributions: [attribution] };
  const stored = {
    has: ({ text }) => text === REQUEST.text,
    peek: () => results,
    read: async () => results,
  };
  const loader = {
    model: () => Promise.reject(new CancelledError("the model was needed")),
    tokenizer: () => Promise.reject(new CancelledError("the tokenizer was needed")),
    stop: () => {},
  };
  const runs = createRuns({ site: SITE, loader, stored });
  assert.equal((await runs.run({ ...REQUEST, gradients: true })).name, "stored/a.bin");
  assert.equal(await runs.ablations(REQUEST), ablations);
  assert.equal(await runs.attribution(REQUEST, "input x gradient"), attribution);
  const other = await runs.run({ ...REQUEST, target: { position: 2, word: "un" } });
  assert.deepEqual([other.source, other.target.tokenId, other.headMaskGradient], ["stored", 8, null]);
  const needed = [
    { off: [[0, 0]] },
    { target: { position: 2, word: "un" }, gradients: true },
    { target: { position: 2, word: "he" } },
    { text: "he sat" },
  ];
  for (const changes of needed) {
    await assert.rejects(runs.run({ ...REQUEST, ...changes }), CancelledError);
    assert.equal(runs.isStored({ ...REQUEST, ...changes }), false);
  }
  assert.equal(runs.isStored(REQUEST), true);
});

test("The model replaces a stored run that is not received", async () => {
  const stored = { ...NOTHING_STORED, has: () => true, read: () => Promise.reject(new SiteDownloadError("offline")) };
  const runs = createLiveRuns({ stored });
  assert.equal((await runs.run(REQUEST)).source, "live");
  assert.equal((await runs.encode(REQUEST)).encoding.tokens.length, 4);
});

test("A model that stopped is loaded again by the next request; other errors leave it loaded", async () => {
  for (const [error, count] of [
    [new OutOfMemoryError("full"), 1],
    [new EngineError("stopped"), 1],
    [new InvalidInputError("a text"), 0],
  ]) {
    const stops = [];
    const runs = createLiveRuns({ engine: { run: () => Promise.reject(error) }, stops });
    await assert.rejects(runs.run(REQUEST), error.constructor);
    assert.equal(stops.length, count);
  }
});

test("A computation is cancelled when nobody waits for it any more, and a failed one is tried again", async () => {
  const results = createSharedResults(2);
  const signals = [];
  const compute = ({ signal }) => {
    signals.push(signal);
    return new Promise(() => {});
  };
  const [first, second] = [new AbortController(), new AbortController()];
  const one = results.get("a", compute, { signal: first.signal });
  const two = results.get("a", compute, { signal: second.signal });
  first.abort();
  await assert.rejects(one, CancelledError);
  assert.deepEqual([signals.length, signals[0].aborted], [1, false]);
  second.abort();
  await assert.rejects(two, CancelledError);
  assert.equal(signals[0].aborted, true);
  await assert.rejects(
    results.get("b", () => Promise.reject(new Error("no"))),
    /no/,
  );
  assert.equal(await results.get("b", async () => 3), 3);
});

test("The last results are kept, and the ones before them are computed again", async () => {
  const results = createSharedResults(2);
  const computed = [];
  const get = (key) => results.get(key, async () => computed.push(key));
  for (const key of ["a", "b", "a", "c", "a", "b"]) await get(key);
  assert.deepEqual(computed, ["a", "b", "c", "b"]);
  const large = createSharedResults(9, (bytes) => bytes);
  const sizes = [];
  const getLarge = (key) => large.get(key, async () => sizes.push(key) && 90e6);
  for (const key of ["a", "b", "c", "c", "b", "a"]) await getLarge(key);
  assert.deepEqual(sizes, ["a", "b", "c", "a"]);
});

test("A model is loaded once, with the time that is left, can be cancelled, and is loaded again", async () => {
  let time = 0;
  const progressOf = (loadedBytes) => ({ loadedBytes, totalBytes: 40e6, phase: "download" });
  const loads = [];
  const engine = {
    load: ({ signal, onProgress }) => {
      loads.push(onProgress);
      return new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(new CancelledError("cancelled"))),
      );
    },
  };
  const loader = createModelLoader({ root: new URL("http://localhost/"), engine, now: () => time });
  const phases = [];
  loader.onChange(({ phase }) => phases.push(phase));
  const waiting = loader.model();
  loader.begin();
  assert.equal(loads.length, 1);
  loads[0](progressOf(0));
  time = 2000;
  loads[0](progressOf(10e6));
  assert.equal(loader.status.secondsLeft, 6);
  loader.cancel();
  await assert.rejects(waiting, CancelledError);
  assert.deepEqual([loader.status.phase, loader.status.error.name], ["failed", "CancelledError"]);
  await assert.rejects(loader.model(), CancelledError);
  loader.load();
  assert.deepEqual([loads.length, loader.status.phase, phases[0]], [2, "loading", "loading"]);
});

test("A signal ends the waiting for a promise", async () => {
  assert.equal(await abortable(Promise.resolve(1)), 1);
  await assert.rejects(abortable(new Promise(() => {}), AbortSignal.abort()), CancelledError);
});

test("A new text has the same masked words, or else its longest one", () => {
  const encode = (text) => ({ ...TOKENIZER.encode(text, "", 99), maskPositions: [] });
  assert.deepEqual(maskAgain(encode("He sat door"), ["SAT"]), { masked: [1], isAutomatic: false });
  assert.deepEqual(maskAgain(encode("he opened"), ["sat"]), { masked: [1], isAutomatic: true });
  assert.deepEqual(maskAgain(encode("he opened"), []), { masked: [], isAutomatic: false });
  const typed = { ...encode("he [MASK]"), maskPositions: [2] };
  assert.deepEqual(maskAgain(typed, ["sat"]), { masked: [], isAutomatic: false });
});

test("The first word with a counterpart is swapped, with its capital letter", () => {
  const swaps = { she: "he", sat: "stood" };
  const original = { ...TOKENIZER.encode("She sat", "", 99), maskPositions: [] };
  assert.deepEqual(swapWord(original, [], swaps), { old: "She", replacement: "He", text: "He sat" });
  assert.deepEqual(swapWord(original, [0], swaps).text, "She stood");
  assert.equal(swapWord(original, [0, 1], swaps), null);
  assert.equal(swapWord({ ...TOKENIZER.encode("constructor", "", 99), maskPositions: [] }, [], swaps), null);
});
