// What a view makes of the server's messages, and what it says back.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { deflateRawSync } from "node:zlib";
import { arrive } from "../../viz_app/components/attention_view/arriving.js";
import { ask, choose, select, toggleHead } from "../../viz_app/components/attention_view/choosing.js";
import { cache } from "../../viz_app/components/attention_view/maps.js";
import { activeTokens, sums } from "../../viz_app/components/attention_view/shown.js";
import { packed } from "../../viz_app/components/message.js";
import { codes } from "./maps.js";

const tokens = ["the", "cat", "sat"].map((text, i) => [text, 10 + i, "A"]);

// biome-ignore format: one field a line would fill a page
const headerOf = (changed = {}) => ({
  layers: 2, count: 2, signed: false, unit: "attention", queries: tokens, keys: tokens, lecture: false,
  codes, longestAsk: 2, keeps: [0.05, 1], layer: 0, mode: "curves", names: { 0: "a", 1: "b" }, sent: [], lines: [],
  drawn: [0], combined: null, vectors: null, query: 0, heads: [0], selected: ["query", []], kept: 0.7, stamp: 0, pruned: [],
  off: [], holes: {}, limit: null, notes: [], strongest: [], ...changed,
});

/** The maxima 1, and every row 64, 32, 0: a half, a quarter, nothing. */
const mapBytes = () =>
  Uint8Array.of(...new Uint8Array(Float32Array.of(1, 1, 1).buffer), 64, 32, 0, 64, 32, 0, 64, 32, 0, 0, 0, 0);

let view;
let shown;
const say = (header, ...parts) => arrive(view, packed(header, parts), () => shown.push(view.header.layer));

beforeEach(() => {
  cache.clear();
  shown = [];
  view = { chosenAt: 0, said: [], focus: null, refreshed: 0 };
  view.say = (what) => view.said.push(what);
  view.refresh = () => view.refreshed++;
});

test("A map that was sent is drawn, and kept for the next message that only names it", () => {
  say(headerOf({ sent: [0] }), mapBytes());
  say(headerOf({ layer: 1 }));
  assert.deepEqual(shown, [0, 1]);
  assert.deepEqual(view.said, []);
  assert.deepEqual([...sums(view, { side: "query", indices: [0, 1] })[0].total], [1, 0.5, 0]);
});

test("Where the server names a map that has gone, the view says what it has, and shows what it showed", () => {
  say(headerOf({ sent: [0] }), mapBytes());
  say(headerOf({ drawn: [1], layer: 1 }));
  assert.deepEqual(shown, [0]);
  assert.deepEqual(
    view.said.map(({ have }) => have),
    [["a"]],
  );
});

test("A message that has to be unpacked first is not overtaken by the next one", async () => {
  arrive(view, packed(headerOf({ sent: [0], packed: true }), [new Uint8Array(deflateRawSync(mapBytes()))]), () =>
    shown.push("first"),
  );
  arrive(view, packed(headerOf(), []), () => shown.push("second"));
  assert.deepEqual(shown, []);
  await view.arriving;
  assert.deepEqual(shown, ["first", "second"]);
});

test("Lines come exactly, in place of what a byte says", () => {
  say(headerOf({ sent: [0], lines: [["key", 1]] }), mapBytes(), new Uint8Array(Float32Array.of(0.1, 0.2, 0.3).buffer));
  const [{ total, exact }] = sums(view, { side: "key", indices: [1] });
  assert.deepEqual([...total], [...Float32Array.of(0.1, 0.2, 0.3)]);
  assert.equal(exact, true);
});

test("A choice is shown at once, told when the hand rests, and newer than an answer to the one before", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 5_000 });
  say(headerOf({ sent: [0] }), mapBytes());
  choose(view, { layer: 1 });
  choose(view, { kept: 0.5 });
  assert.deepEqual([view.refreshed, view.said.length], [2, 0]);
  context.mock.timers.tick(200);
  assert.equal(view.said.length, 1);
  assert.deepEqual(view.said[0].choice, { layer: 1, heads: [0], side: "query", positions: [], kept: 0.5 });
  say(headerOf({ layer: 0, stamp: view.chosenAt - 1 }));
  assert.equal(view.choice.layer, 1);
  say(headerOf({ layer: 0, stamp: view.chosenAt }));
  assert.equal(view.choice.layer, 0);
});

test("What is looked at is asked for exactly, as many lines as the server takes, and once", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  say(headerOf({ sent: [0], selected: ["query", [10, 11, 12]] }), mapBytes());
  ask(view);
  context.mock.timers.tick(200);
  assert.deepEqual(view.said[0].lines, [
    ["query", 0],
    ["query", 1],
  ]);
  const lines = [
    ["query", 0],
    ["query", 1],
    ["query", 2],
  ];
  say(headerOf({ lines, selected: ["query", [10]] }), new Uint8Array(36));
  ask(view);
  context.mock.timers.tick(200);
  assert.equal(view.said.length, 1);
});

test("A click on a token adds it or takes it away; in the other column it begins anew", () => {
  say(headerOf({ sent: [0] }), mapBytes());
  select(view, { side: "query", index: 0 });
  select(view, { side: "query", index: 2 });
  assert.deepEqual(view.choice.positions, [10, 12]);
  assert.deepEqual(activeTokens(view), { side: "query", indices: [0, 2] });
  select(view, { side: "query", index: 0 });
  assert.deepEqual(view.choice.positions, [12]);
  select(view, { side: "key", index: 1 });
  assert.deepEqual([view.choice.side, view.choice.positions], ["key", [11]]);
  clearTimeout(view.telling);
});

test("The last head stays, as a picture of none would say nothing", () => {
  say(headerOf({ sent: [0] }), mapBytes());
  toggleHead(view, 0);
  assert.deepEqual(view.choice.heads, [0]);
  toggleHead(view, 1);
  assert.deepEqual(view.choice.heads, [0, 1]);
  clearTimeout(view.telling);
});
