// Numbers and tokens as text.

import assert from "node:assert/strict";
import { test } from "node:test";
import { exactly, placed, rounded, withPlaces } from "../../viz_app/components/attention_view/digits.js";
import { shortened } from "../../viz_app/components/elements.js";

test("A probability has a fixed number of places, and one too small for them says so", () => {
  assert.equal(rounded(0.25, 4, false), "0.2500");
  assert.equal(rounded(0.00001, 4, false), "< 0.0001");
  assert.equal(rounded(0, 4, false), "0");
});

test("A signed value has a number of digits whatever its size, and a real minus", () => {
  assert.equal(rounded(-1.2345, 3, true), "−1.23");
  assert.equal(rounded(0.0000012345, 3, true), "1.23e−6");
});

test("What is no number is never written as one", () => {
  assert.deepEqual([rounded(NaN, 2, false), exactly(Infinity), withPlaces(NaN, 2)], Array(3).fill("no number"));
  assert.equal(withPlaces(-Infinity, 2), "−∞");
});

test("An exact number has every digit that float32 has", () => {
  assert.equal(exactly(Math.fround(0.1)), "0.100000001");
  assert.equal(exactly(-0.5), "−0.5");
});

test("A long text is cut with an ellipsis, between signs and never inside one", () => {
  assert.equal(shortened("abcdef", 6), "abcdef");
  assert.equal(shortened("abcdefg", 6), "abcde…");
  assert.equal(shortened("😀😀😀😀", 3), "😀😀…");
});

test("A token is named with its position", () => {
  assert.equal(placed(["cat", 3, "A"]), "cat (3)");
});
