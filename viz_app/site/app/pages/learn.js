// The page Lessons: the lessons of each course, with the progress of the reader.

import { element } from "../../../components/elements.js";
import { createButton } from "../controls.js";
import { deleteNote, deleteNotes, noteOf, readNotes } from "../lesson_notes.js";
import { beginLesson, lessonsOf, progressSummary } from "../lesson_steps.js";

/** @import { Note } from "../lesson_notes.js" */
/** @import { Lesson, Page, PageContext } from "../types.d.ts" */

/** @type {Page} */
export const learnPage = { draw };

/** @type {Page["draw"]} */
async function draw(context, { figure, reading }) {
  const { site, text, write } = context;
  const lessons = lessonsOf(context);
  if (!lessons.length) {
    figure.replaceChildren(element("p", "", text("site:lessons.empty")));
    return;
  }
  const parts = [];
  const next = lessons.find(({ name }) => !isComplete(noteOf(site, name)));
  if (next) parts.push(createNext(context, next));
  for (const course of new Set(lessons.map((lesson) => lesson.course))) {
    parts.push(
      createCourse(
        context,
        course,
        lessons.filter((lesson) => lesson.course === course),
      ),
    );
  }
  if (Object.keys(readNotes(site)).length) parts.push(createReset(context, figure));
  figure.replaceChildren(...parts);
  const paragraph = element("p", "note");
  write(paragraph, "reading");
  reading.replaceChildren(paragraph);
}

/** @param {Note} note */
const isComplete = ({ ownRight }) => ownRight !== null;

/** @param {Note} note */
const isBegun = ({ answer }) => answer !== null;

/**
 * Return the first lesson that is not completed, with a button that opens it.
 * @param {PageContext} context
 * @param {Lesson} lesson
 */
function createNext(context, lesson) {
  const { text } = context;
  const section = element("section", "next-lesson");
  const sentence = element("p");
  sentence.append(`${text("next")} `, element("strong", "", lesson.title), ` ${lesson.question} `);
  sentence.append(element("span", "note", text("minutes", { minutes: lesson.minutes })));
  section.append(sentence, createBegin(context, lesson, "primary"));
  return section;
}

/**
 * Return a course with its progress, and a card for each lesson.
 * @param {PageContext} context
 * @param {number} course
 * @param {Lesson[]} lessons
 */
function createCourse(context, course, lessons) {
  const { text, site } = context;
  const section = element("section", "course");
  const heading = element("h2", "", text(`courses.${course}`));
  heading.id = `course-${course}`;
  section.setAttribute("aria-labelledby", heading.id);
  const done = lessons.filter(({ name }) => isComplete(noteOf(site, name))).length;
  const progress = element("label", "course-progress", text("done", { done, all: lessons.length }));
  const bar = element("progress");
  Object.assign(bar, { max: lessons.length, value: done });
  progress.append(bar);
  const header = element("div", "course-header");
  header.append(heading, progress);
  const cards = element("ul", "lesson-cards");
  cards.append(...lessons.map((lesson) => createCard(context, lesson)));
  section.append(header, cards);
  return section;
}

/**
 * @param {PageContext} context
 * @param {Lesson} lesson
 */
function createCard(context, lesson) {
  const { text, site } = context;
  const note = noteOf(site, lesson.name);
  const card = element("li", "card lesson-card");
  const progress = progressSummary(text, note);
  const state = element("p", "note", progress ? `✓ ${progress}` : text("minutes", { minutes: lesson.minutes }));
  const title = element("h3", "", lesson.title);
  title.title = lesson.source;
  card.append(title, element("p", "", lesson.question), state, createBegin(context, lesson));
  return card;
}

/**
 * Return the button that begins a lesson, continues it, or repeats it without the earlier answers.
 * @param {PageContext} context
 * @param {Lesson} lesson
 * @param {"primary" | "quiet"} [kind]
 */
function createBegin(context, lesson, kind = "quiet") {
  const { text, site } = context;
  const note = noteOf(site, lesson.name);
  const begun = isBegun(note) ? "continue" : "begin";
  const button = createButton(text(isComplete(note) ? "repeat" : begun), kind, () => {
    if (isComplete(note)) deleteNote(site, lesson.name);
    beginLesson(context, lesson);
  });
  button.setAttribute("aria-label", `${button.textContent}: ${lesson.title}`);
  return button;
}

/**
 * Return the button that deletes the answers of all lessons.
 * @param {PageContext} context
 * @param {HTMLElement} figure
 */
function createReset(context, figure) {
  const button = createButton(context.text("reset"), "quiet", () => {
    deleteNotes();
    context.change({}, { replace: true });
    figure.querySelector("button")?.focus();
  });
  button.title = context.text("reset_help");
  return button;
}
