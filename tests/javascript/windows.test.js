// What of a map is outside the window of a local layer.

import assert from "node:assert/strict";
import { test } from "node:test";
import { isOutside } from "../../viz_app/components/attention_view/shown.js";
import { hatch } from "../../viz_app/components/hatching.js";

const ranges = [
  [0, 2],
  [0, 3],
  [1, 3],
];

test("Keys before the first and from the end on are outside; without a window none is", () => {
  const view = { header: { hatching: { ranges } } };
  const outside = ranges.map((_, row) => [0, 1, 2].filter((column) => isOutside(view, row, column)));
  assert.deepEqual(outside, [[2], [], [0]]);
  for (const hatching of [null, undefined]) assert.equal(isOutside({ header: { hatching } }, 0, 2), false);
});

test("The hatched area is what is outside, of the rows in sight; lines stay within the area that is drawn", () => {
  const rectangles = [];
  const points = [];
  globalThis.Path2D = class {
    rect(...rectangle) {
      rectangles.push(rectangle);
    }
  };
  const nothing = () => {};
  const context = {
    ...Object.fromEntries(
      ["save", "restore", "beginPath", "rect", "clip", "fillRect", "stroke"].map((name) => [name, nothing]),
    ),
    moveTo: (...point) => points.push(point),
    lineTo: (...point) => points.push(point),
  };
  const colours = { ground: "#ffffff", faint: "#5c6570" };
  const first = { x: 100, y: 0, width: 10, height: 10 };
  hatch(context, ranges, 3, first, { x: 100, y: 0, width: 30, height: 30 }, colours, 5);
  assert.deepEqual(rectangles, [
    [120, 0, 10, 10],
    [100, 20, 10, 10],
  ]);
  assert.equal(points.length, 2 * 12);
  assert.ok(points.every(([, y]) => y === 0 || y === 30));
  rectangles.length = 0;
  hatch(context, ranges, 3, { ...first, y: -20 }, { x: 100, y: 0, width: 30, height: 10 }, colours, 5);
  assert.deepEqual(rectangles, [[100, 0, 10, 10]]);
  delete globalThis.Path2D;
});
