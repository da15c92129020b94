// Parts of the lessons that need no page: sentences with figures, notes, steps, and the pairs with and without "not".

import assert from "node:assert/strict";
import { test } from "node:test";
import { withAndWithoutNot } from "../../viz_app/site/app/lesson_checks.js";
import { parseNote } from "../../viz_app/site/app/lesson_notes.js";
import { firstOpenStep, paragraphsOf, progressSummary } from "../../viz_app/site/app/lesson_steps.js";
import { fillFigures, formatNumber } from "../../viz_app/site/app/number_format.js";

/** @param {object} changes */
const task = (changes) => /** @type {any} */ ({ answer: "number", options: [], minimum: 0, maximum: 5, ...changes });
const note = { answer: 3, right: null, isTried: false, ownRight: null };

test("figures are filled into a sentence, and what they contain stays text", () => {
  const figures = { share: 0.256, x: -1.005, n: 12, word: "{n} $& <b>" };
  assert.equal(fillFigures("{share:.0%} {x:.2f} {n:.0f} {{n}} “{word}”", figures), "26% -1.00 12 {n} “{n} $& <b>”");
  assert.throws(() => fillFigures("{other:.2f}", figures), RangeError);
  assert.throws(() => formatNumber(1, ">8.2f"), RangeError);
});

test("paragraphs are split at empty lines, after the figures are filled in", () => {
  assert.deepEqual(paragraphsOf("a {n:.0f}\nb\n\nc", { n: 2 }), ["a 2 b", "c"]);
  assert.deepEqual(paragraphsOf("a {n} b"), ["a {n} b"]);
});

test("a note is kept if its answer is possible", () => {
  assert.deepEqual(parseNote({ ...note, more: 1 }, task({})), note);
  assert.deepEqual(parseNote({ ...note, answer: 0 }, task({ answer: "choice", options: [{}] })), {
    ...note,
    answer: 0,
  });
  for (const entry of [null, "note", [], { ...note, answer: 6 }, { ...note, answer: "3" }, { ...note, right: 1 }]) {
    assert.equal(parseNote(entry, task({})), null);
  }
  assert.equal(parseNote({ ...note, answer: 1.5 }, task({ answer: "word" })), null);
  assert.equal(parseNote({ ...note, answer: 1 }, task({ answer: "choice", options: [{}] })), null);
  assert.equal(parseNote({ answer: 3 }, task({})), null);
});

test("a lesson continues at its first step that is not completed", () => {
  assert.equal(firstOpenStep({ ...note, answer: null }), "predict");
  assert.equal(firstOpenStep(note), "do");
  assert.equal(firstOpenStep({ ...note, isTried: true }), "reveal");
  assert.equal(firstOpenStep({ ...note, isTried: true, right: false }), "yours");
  assert.equal(firstOpenStep({ ...note, isTried: true, right: false, ownRight: false }), "free");
});

test("the progress names what was answered and done", () => {
  const summary = (/** @type {object} */ changes) =>
    progressSummary((key) => key.split(".")[1], { ...note, ...changes });
  assert.equal(summary({ answer: null }), "");
  assert.equal(summary({}), "predicted");
  assert.equal(summary({ right: false, isTried: true, ownRight: true }), "wrong, tried, own_sentence");
});

test("“not” is removed, or inserted after the first verb that takes it", () => {
  assert.deepEqual(withAndWithoutNot("A robin is a [MASK]."), ["A robin is a [MASK].", "A robin is not a [MASK]."]);
  assert.deepEqual(withAndWithoutNot("They can’t, cannot and never will."), [
    "They ca, can and will.",
    "They can’t, cannot and never will.",
  ]);
  assert.equal(withAndWithoutNot("Île this Ïs nothing [MASK]"), null);
});
