// Clicks, and steps of the browser's history.

import assert from "node:assert/strict";
import { test } from "node:test";
import { isStep } from "../../viz_app/components/address/address.js";
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
