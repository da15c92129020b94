// Clicks, and steps of the browser's history.

import assert from "node:assert/strict";
import { test } from "node:test";
import address, { isStep } from "../../viz_app/components/address/address.js";
import { logged } from "../../viz_app/components/clicks.js";

test("A click goes along with those of the last half minute, by stamps that only grow", (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const node = {};
  logged(node, "a");
  logged(node, "b");
  context.mock.timers.setTime(1_020_000);
  const log = logged(node, "c");
  assert.deepEqual(
    log.map(([, what]) => what),
    ["a", "b", "c"],
  );
  assert.ok(log.every(([stamp], i) => !i || stamp > log[i - 1][0]));
  context.mock.timers.setTime(1_040_000);
  assert.deepEqual(
    logged(node, "d").map(([, what]) => what),
    ["c", "d"],
  );
});

test("A clock that is set back does not make an old stamp", (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: 2_000_000 });
  const [[before]] = logged({}, "a");
  context.mock.timers.setTime(1_900_000);
  const [[after]] = logged({}, "b");
  assert.ok(after > before);
});

test("At most sixteen clicks go along", () => {
  const node = {};
  for (let i = 0; i < 20; i++) logged(node, i);
  assert.equal(node.clicks.length, 16);
  assert.equal(node.clicks[15][1], 19);
});

test("Another page, or another value of a step, is a step; the first address of a page is none", () => {
  const at = (path) => new URL(path, "http://localhost");
  assert.equal(isStep(at("/why"), at("/heads"), []), true);
  assert.equal(isStep(at("/why?text=a"), at("/why?text=b"), ["text"]), true);
  assert.equal(isStep(at("/why?text=a&kept=1"), at("/why?text=a&kept=2"), ["text"]), false);
  assert.equal(isStep(at("/why"), at("/why?text=a"), ["text"]), false);
});

/** A window at an address, with a history whose entries are kept; `does` stands for a click. */
function windowAt(path) {
  const entries = [new URL(path, "http://localhost").href];
  const heard = [];
  const put = (url) => new URL(url, entries.at(-1)).href;
  return {
    entries,
    does(event) {
      for (const [name, listener] of heard) if (name === event) listener();
    },
    addEventListener: (name, listener) => heard.push([name, listener]),
    location: {
      get href() {
        return entries.at(-1);
      },
      get pathname() {
        return new URL(entries.at(-1)).pathname;
      },
      get search() {
        return new URL(entries.at(-1)).search;
      },
    },
    history: {
      state: null,
      pushState: (_state, _title, url) => entries.push(put(url)),
      replaceState: (_state, _title, url) => entries.splice(-1, 1, put(url)),
    },
  };
}

test("A path without the parameters that it had gets them back once nothing more comes", (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  context.after(() => {
    delete globalThis.window;
    delete globalThis.document;
    delete globalThis.headlightSteps;
  });
  const app = { dataset: { testScriptState: "running" } };
  globalThis.document = { querySelector: (asked) => (asked.includes("stApp") ? app : null) };
  const reached = (path, then) => {
    delete globalThis.headlightSteps;
    globalThis.headlightRun = () => {};
    globalThis.window = windowAt("/inside?text=a");
    address({ data: { steps: ["text"] }, setTriggerValue: () => {} });
    app.dataset.testScriptState = "running";
    globalThis.window.history.pushState(null, "", path);
    context.mock.timers.tick(3000);
    if (then) globalThis.window.history.pushState(null, "", then);
    app.dataset.testScriptState = "notRunning";
    context.mock.timers.tick(3000);
    return globalThis.window.entries.map((entry) => entry.replace("http://localhost", ""));
  };
  assert.deepEqual(reached("/learn"), ["/inside?text=a", "/learn?text=a"]);
  assert.deepEqual(reached("/learn", "/learn?text=b"), ["/inside?text=a", "/learn?text=b"]);
});

test("A page has one entry, whether its path or its parameters are said first", (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  context.after(() => {
    delete globalThis.window;
    delete globalThis.headlightSteps;
  });
  const start = "/why?text=a&lang=de";
  const paths = (window) => window.entries.map((entry) => entry.replace("http://localhost", ""));
  const opened = () => {
    delete globalThis.headlightSteps;
    globalThis.headlightRun = () => {};
    globalThis.window = windowAt(start);
    address({ data: { steps: ["text"] }, setTriggerValue: () => {} });
    return globalThis.window;
  };
  const usual = opened();
  usual.history.pushState(null, "", "/start");
  usual.history.pushState(null, "", "/start?lang=de");
  assert.deepEqual(paths(usual), [start, "/start?lang=de"]);
  const early = opened();
  early.history.pushState(null, "", "/why?lang=de");
  early.history.pushState(null, "", "/start?lang=de");
  assert.deepEqual(paths(early), [start, "/start?lang=de"]);
  const replaced = opened(); // what is no step takes the place of its entry, which the page that was left gets back
  replaced.history.pushState(null, "", "/why?text=a");
  replaced.history.pushState(null, "", "/start?text=a");
  assert.deepEqual(paths(replaced), [start, "/start?text=a"]);
  const clicked = opened(); // a step of the page, and then a click that leads on with the same parameters
  clicked.history.pushState(null, "", "/why?text=b");
  clicked.does("click");
  clicked.history.pushState(null, "", "/start?text=b");
  assert.deepEqual(paths(clicked), [start, "/why?text=b", "/start?text=b"]);
});
