// The view of heads without a server: what it is sent for each choice, and for what it lacks.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { arrive } from "../../viz_app/components/attention_view/arriving.js";
import { choose } from "../../viz_app/components/attention_view/choosing.js";
import { cache, value } from "../../viz_app/components/attention_view/maps.js";
import { mapOf } from "../../viz_app/components/attention_view/shown.js";
import { HeadView, lastClick } from "../../viz_app/components/head_views.js";
import { exactMap } from "../../viz_app/components/page_maps.js";
import { codes } from "./maps.js";

const tokens = ["the", "cat"].map((text, i) => [text, i, "A"]);
const form = { rows: 2, columns: 2, exact: true, signed: false, codes };

// biome-ignore format: one field a line would fill a page
const fixed = {
  layers: 2, count: 3, signed: false, unit: "attention", queries: tokens, keys: tokens, lecture: false, codes,
  longestAsk: 64, keeps: [0.05, 1], colours: [[], []], signColours: [[], []], headColours: [], tints: {},
};

/** A map whose first value tells its layer and head. */
const numbersOf = (layer, head) => Float32Array.of(layer * 10 + head + 1, 0, 0.5, 1);

const heads = (layer, changed = {}) => ({
  maps: [0, 1, 2].map((head) => exactMap(numbersOf(layer, head), form)),
  pruned: [],
  off: [],
  holes: [0, 0, 0],
  strongest: [0, 1, 2].map((head) => [
    [0, 0, layer * 10 + head + 1],
    [1, 1, 1],
  ]),
  hatching: null,
  isEager: true,
  ...changed,
});

const contentOf = (changed = {}) => ({
  name: "run",
  fixed,
  exact: true,
  mode: "curves",
  layer: heads,
  listed: 3,
  ...changed,
});

let view;
let headers;

/** The view without its elements: it reads messages and keeps what is in them, as in a browser. */
function drawMessage({ data, setStateValue }) {
  view.say = (message) => setStateValue("said", message);
  arrive(view, data, () => headers.push(view.header));
}

const readerOf = (onChoice = () => {}, choice = undefined) => new HeadView(null, onChoice, choice, drawMessage);
/** After the tasks that are due now. */
const settled = () => new Promise((resolve) => setTimeout(resolve, 5));

beforeEach(() => {
  cache.clear();
  headers = [];
  view = { chosenAt: 0, focus: null, refresh: () => {} };
});

test("The maps of a layer are sent once, the rows and columns of what is drawn each time", async () => {
  const reader = readerOf();
  await reader.show(contentOf());
  await reader.show(contentOf({ mode: "matrix" }));
  assert.deepEqual(
    headers.map(({ sent, lines }) => [sent, lines.length]),
    [
      [[0, 1, 2], 4],
      [[], 4],
    ],
  );
  assert.equal(value(mapOf(view, 0), 0, 0), 1);
  assert.deepEqual(mapOf(view, 0).exact.get("key1"), Float32Array.of(0, 1));
});

test("Maps that are not eager are sent when they are drawn, and maps that do not exist never", async () => {
  const reader = readerOf(undefined, { layer: 1, heads: [2, 0], side: "query", positions: [1], kept: 0.5 });
  await reader.show(contentOf({ layer: (layer) => heads(layer, { isEager: false, pruned: [0] }) }));
  const [header] = headers;
  assert.deepEqual([header.layer, header.sent, header.drawn, header.heads], [1, [2], [2], [2, 0]]);
  assert.deepEqual(Object.keys(header.names), ["1", "2"]);
  assert.deepEqual([header.selected, header.kept, header.pruned], [["query", [1]], 0.5, [0]]);
});

test("A choice in the view is told with the one before it, and drawn", async (context) => {
  const choices = [];
  const reader = readerOf((choice, before) => choices.push([choice.layer, choice.heads, before.layer]));
  await reader.show(contentOf());
  context.mock.timers.enable({ apis: ["setTimeout"] });
  choose(view, { layer: 1, heads: [1, 2] });
  context.mock.timers.tick(200);
  context.mock.timers.reset();
  await settled();
  assert.deepEqual(choices, [[1, [1, 2], 0]]);
  assert.deepEqual([headers[1].layer, headers[1].drawn, headers[1].stamp], [1, [1, 2], view.chosenAt]);
  assert.equal(value(mapOf(view, 2), 0, 0), 13);
  assert.deepEqual(headers[1].strongest, [
    [2, 0, 0, 13],
    [1, 0, 0, 12],
    [1, 1, 1, 1],
  ]);
  assert.deepEqual(reader.choice, { layer: 1, heads: [1, 2], side: "query", positions: [], kept: 0.7 });
});

test("Content that is shown for a choice is drawn once", async (context) => {
  const reader = readerOf(() => reader.show(contentOf({ mode: "matrix" })));
  await reader.show(contentOf());
  context.mock.timers.enable({ apis: ["setTimeout"] });
  choose(view, { heads: [1] });
  context.mock.timers.tick(200);
  context.mock.timers.reset();
  await settled();
  assert.deepEqual(
    headers.map(({ mode, drawn }) => [mode, drawn]),
    [
      ["curves", [0]],
      ["matrix", [1]],
    ],
  );
});

test("A map that the view has dropped is sent again", async () => {
  const reader = readerOf();
  await reader.show(contentOf());
  cache.clear();
  await reader.show(contentOf());
  await settled();
  assert.equal(headers.length, 2);
  assert.deepEqual(headers[1].sent, [0, 1, 2]);
});

test("A head that is opened while the maps of another layer are read is the one that is drawn", async () => {
  const reader = readerOf();
  const slow = contentOf({
    layer: (layer) => new Promise((resolve) => setTimeout(resolve, 5 - 4 * layer, heads(layer))),
  });
  const first = reader.show(slow);
  reader.open(1, 2);
  const drawn = await reader.show(slow);
  assert.equal(await first, null);
  assert.deepEqual([...drawn.keys()], [2]);
  assert.deepEqual([headers.length, headers[0].layer], [1, 1]);
});

test("A layer that is chosen in the view while another one is read is drawn with its own maps", async (context) => {
  const reader = readerOf();
  await reader.show(contentOf());
  let finish;
  const read = new Promise((resolve) => {
    finish = resolve;
  });
  const first = reader.show(contentOf({ layer: (layer) => read.then(() => heads(layer)) }));
  context.mock.timers.enable({ apis: ["setTimeout"] });
  choose(view, { layer: 1 });
  context.mock.timers.tick(200);
  context.mock.timers.reset();
  finish();
  assert.equal(await first, null);
  await settled();
  assert.deepEqual(
    headers.map(({ layer }) => layer),
    [0, 1],
  );
  assert.equal(value(mapOf(view, 0), 0, 0), 11);
});

test("A combined map is drawn in place of the heads, with its own edges", async () => {
  const combined = {
    head: -1,
    name: "average of all heads",
    map: exactMap(numbersOf(7, 0), form),
    holes: 2,
    strongest: [[0, 1, 9]],
    hatching: null,
  };
  await readerOf().show(contentOf({ combined }));
  const [header] = headers;
  assert.deepEqual([header.drawn, header.combined, header.holes], [[-1], "average of all heads", { "-1": 2 }]);
  assert.deepEqual(header.strongest, [[-1, 0, 1, 9]]);
  assert.equal(value(mapOf(view, -1), 0, 0), 71);
});

test("Vectors are sent once, and no map with them", async () => {
  const vectors = {
    ...{ layer: 0, head: 0, size: 1, distances: false, terms: 1, causal: false, window: null, rotated: false },
    bytes: new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer),
  };
  const reader = readerOf();
  await reader.show(contentOf({ mode: "neuron", vectors }));
  await reader.show(contentOf({ mode: "neuron", vectors }));
  assert.deepEqual(
    headers.map(({ sent, drawn, vectors: { sent: areSent } }) => [sent, drawn, areSent]),
    [
      [[], [], true],
      [[], [], false],
    ],
  );
  assert.deepEqual(cache.get("run L0 H0 vectors").keys, Float32Array.of(3, 4));
});

test("The last click is the one that counts", () => {
  const clicks = [
    [1, [0, 0]],
    [2, [1, null]],
  ];
  assert.deepEqual(lastClick(clicks), [1, null]);
});
