// The steps of lessons: their views, the progress of a reader, and the states that open them.

import { noteOf } from "./lesson_notes.js";
import { fillFigures } from "./number_format.js";
import { LESSON_STEPS, parseState } from "./state.js";

/** @import { Note } from "./lesson_notes.js" */
/** @import { Lesson, LessonView, PageContext, RunRequest, SiteDescription, State } from "./types.d.ts" */

/** @typedef {State["step"]} Step */

/**
 * Return the view at the start of a step; null for the last one, which leaves the page as it is.
 * @param {Lesson} lesson
 * @param {Step} step
 * @returns {LessonView | null}
 */
export function viewOf({ predict, exercise, reveal, own_sentence }, step) {
  return { predict: predict.view, do: exercise.view, reveal: reveal.view, yours: own_sentence.view, free: null }[step];
}

/**
 * Return the changes of the state that open a step of a lesson.
 * @param {PageContext} context
 * @param {Lesson} lesson
 * @param {Step} step
 * @returns {Partial<State>}
 */
export function stateOfStep({ site, state }, lesson, step) {
  return { ...stateOfView(site, state, viewOf(lesson, step)), lesson: lesson.name, step };
}

/**
 * Open the first step of a lesson that is not completed.
 * @param {PageContext} context
 * @param {Lesson} lesson
 */
export function beginLesson(context, lesson) {
  context.change(stateOfStep(context, lesson, firstOpenStep(noteOf(context.site, lesson.name))));
}

/**
 * Return the changes of the state that open a view.
 * @param {SiteDescription} site
 * @param {State} state
 * @param {LessonView | null} view
 * @returns {Partial<State>}
 */
export function stateOfView(site, state, view) {
  if (!view) return {};
  if (!Object.keys(view.address).length) return { page: view.page };
  const { lang, lecture, embed, lesson, step } = state;
  return { ...parsedView(site, view), lang, lecture, embed, lesson, step };
}

/**
 * Return the text that the question of a lesson is about.
 * @param {SiteDescription} site
 * @param {Lesson} lesson
 * @returns {Pick<RunRequest, "text" | "pair" | "masked">}
 */
export function lessonText(site, { predict }) {
  const { text, pair, masked } = parsedView(site, predict.view);
  return { text, pair, masked };
}

/**
 * @param {SiteDescription} site
 * @param {LessonView} view
 */
function parsedView(site, { page, address }) {
  return parseState(site, page, new URLSearchParams(address).toString()).state;
}

/**
 * Return the first step of a lesson that is not completed.
 * @param {Note} note
 * @returns {Step}
 */
export function firstOpenStep({ answer, isTried, right, ownRight }) {
  const completed = [answer !== null, isTried, right !== null, ownRight !== null, false];
  return LESSON_STEPS[completed.indexOf(false)];
}

/**
 * Return the completed steps of a lesson in words; "" before the first.
 * @param {PageContext["text"]} text
 * @param {Note} note
 */
export function progressSummary(text, { answer, isTried, right, ownRight }) {
  const keys = [];
  if (answer !== null && right === null) keys.push("predicted");
  if (right !== null) keys.push(right ? "right" : "wrong");
  if (isTried) keys.push("tried");
  if (ownRight !== null) keys.push("own_sentence");
  return keys.map((key) => text(`lesson:progress.${key}`)).join(", ");
}

/**
 * Return the paragraphs of a text of a lesson, with its figures, each on one line.
 * @param {string} text
 * @param {import("./number_format.js").Figures} [figures] without them, braces are left as they are
 */
export function paragraphsOf(text, figures) {
  const filled = figures ? fillFigures(text, figures) : text;
  return filled.split("\n\n").map((paragraph) => paragraph.split(/\s+/).filter(Boolean).join(" "));
}

/**
 * Return the lessons of a site in a language.
 * @param {PageContext} context
 * @returns {Lesson[]}
 */
export const lessonsOf = ({ site, state }) => site.lessons.map(({ texts }) => texts[state.lang]);
