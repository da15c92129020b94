// Colours as Python names them and as the browser paints them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { gradient, luminance, rgb, shades } from "../../viz_app/components/colour.js";

test("A colour is three bytes", () => {
  assert.deepEqual(rgb("#0a80ff"), [10, 128, 255]);
});

test("256 shades go from the first stop to the last, through every one between", () => {
  const made = shades(["#000000", "#ff0000", "#ffff00"]);
  assert.equal(made.length, 256);
  assert.deepEqual([made[0], made[255]], [rgb("#000000"), rgb("#ffff00")]);
  assert.deepEqual(made[64], [128, 0, 0]);
});

test("The middle stop of a diverging scale stands at the byte of zero, to within half a step", () => {
  const [r] = shades(["#000000", "#808080", "#ffffff"])[128];
  assert.ok(Math.abs(r - 128) <= 1);
});

test("A legend runs from the first shade to the last", () => {
  const bar = gradient(shades(["#000000", "#ffffff"]));
  assert.match(bar, /^linear-gradient\(to right, rgb\(0 0 0\), .*, rgb\(255 255 255\)\)$/);
});

test("White is as light as can be, black not at all, and green is lighter than blue", () => {
  assert.equal(luminance([255, 255, 255]), 1);
  assert.equal(luminance([0, 0, 0]), 0);
  assert.ok(luminance([0, 255, 0]) > luminance([0, 0, 255]));
});
