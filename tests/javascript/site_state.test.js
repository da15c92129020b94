// The state of the browser edition and its address, in the notation of the app.

import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultState, formatState, formatTarget, isTooLong, parseState } from "../../viz_app/site/app/state.js";

const SITE = {
  limits: { link: 2000 },
  model: { layers: 6, heads: 12, pruned_heads: { 2: [11] } },
  examples: [{ text: "She gave the book to her brother.", pair: "", masked: [5], label: "her / his", other: "He" }],
};

const stateOf = (query, page = "start") => parseState(SITE, page, query).state;
const faultsOf = (query) => parseState(SITE, "start", query).faults;

test("An address without a text opens the first example, and one with a text masks nothing by itself", () => {
  assert.deepEqual(stateOf(""), defaultState(SITE, "start"));
  assert.deepEqual([stateOf("").text, stateOf("").masked], ["She gave the book to her brother.", [5]]);
  const { text, pair, masked } = stateOf("text=She+opened+the+door.");
  assert.deepEqual([text, pair, masked], ["She opened the door.", "", []]);
});

test("Every parameter is read in the notation of the app", () => {
  const query =
    "text=a+b+c&pair=d&masked=3,1&target=4%3Ago%3Ato&contrast=x&off=2.3,0.1,0.1&head=5.8&edge=6.1&tokens=k2,7" +
    "&kept_share=95&view=matrix&show=product&method=integrated+gradients&colour=removal&lesson=l&step=reveal&lang=de&embed=True&lecture=1";
  assert.deepEqual(stateOf(query, "why"), {
    page: "why",
    text: "a b c",
    pair: "d",
    masked: [1, 3],
    target: { position: 4, word: "go:to" },
    contrast: "x",
    off: [
      [0, 1],
      [2, 3],
    ],
    head: [5, 8],
    edge: [6, 1],
    tokens: ["key", [2, 7]],
    kept_share: 95,
    view: "matrix",
    show: "product",
    method: "integrated gradients",
    colour: "removal",
    lesson: "l",
    step: "reveal",
    lang: "de",
    embed: true,
    lecture: true,
  });
  assert.deepEqual(faultsOf(query), []);
});

test("A state that is written to an address and read again is the same", () => {
  const states = [
    defaultState(SITE, "predict"),
    { ...defaultState(SITE, "heads"), text: "<img src=x onerror=alert(1)> & “ä”?", target: "nsp", pair: "100 % + #" },
    { ...defaultState(SITE, "start"), text: "", masked: [], off: [[5, 8]], edge: [0, 3], embed: true, head: [0, 0] },
    { ...defaultState(SITE, "start"), target: { position: 3, word: "##ing" }, tokens: ["query", [1]], lang: "de" },
  ];
  for (const state of states) assert.deepEqual(stateOf(formatState(SITE, state), state.page), state);
});

test("An address contains only what is not the default, and always the text", () => {
  const state = defaultState(SITE, "start");
  assert.equal(formatState(SITE, state), "text=She+gave+the+book+to+her+brother.&masked=5");
  assert.equal(
    formatState(SITE, { ...state, head: [0, 0], masked: [] }),
    "text=She+gave+the+book+to+her+brother.&head=0.0",
  );
});

test("Long texts, and what refers to them, are left out of the address bar", () => {
  const state = { ...defaultState(SITE, "start"), text: "a".repeat(2001), target: "nsp", edge: [1, 2], head: [1, 2] };
  assert.equal(isTooLong(SITE, state), true);
  assert.equal(formatState(SITE, state), "head=1.2");
  assert.deepEqual(stateOf(formatState(SITE, state, { isWhole: true })), state);
});

test("A value that is not possible is named and replaced by its default", () => {
  const values = {
    masked: ["-1", "index"],
    target: ["door", "target"],
    off: ["7.1", "head_range"],
    head: ["1", "head"],
    edge: ["1.2.3", "pair"],
    tokens: ["4", "tokens"],
    kept_share: ["101", "share"],
    view: ["neuron", "option"],
    show: ["", "option"],
    method: ["DecompX", "option"],
    colour: ["x", "option"],
    step: ["x", "option"],
    lang: ["fr", "option"],
  };
  for (const [name, [value, reason]] of Object.entries(values)) {
    const { state, faults } = parseState(SITE, "start", `text=a&${name}=${encodeURIComponent(value)}`);
    assert.deepEqual([faults.length, faults[0].name, faults[0].value, faults[0].reason], [1, name, value, reason]);
    assert.deepEqual(state[name], defaultState(SITE, "start", true)[name], name);
  }
  const [{ value }] = faultsOf(`head=${"x".repeat(1000)}`);
  assert.equal(value.length, 61);
});

test("Unknown parameters are ignored, old names work, and pruned heads are not off", () => {
  assert.deepEqual(faultsOf("__proto__=1&constructor=2&page=why&model=x"), []);
  assert.equal(stateOf("page=why").page, "start");
  assert.equal(stateOf("kept=50").kept_share, 50);
  assert.deepEqual(stateOf("off=2.11,2.3").off, [[2, 3]]);
});

test("Targets are written as the address contains them", () => {
  assert.deepEqual(
    [null, "nsp", { position: 4, word: "door" }].map((target) => formatTarget(target)),
    ["", "nsp", "4:door"],
  );
});
