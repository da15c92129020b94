// What a reader has answered and done in the lessons. It is kept by this browser alone, under the address of the site.

/** @import { LessonTask, SiteDescription } from "./types.d.ts" */

/**
 * @typedef {object} Note
 * @property {Answer | null} answer the prediction
 * @property {boolean | null} right whether it was right, once the truth was shown
 * @property {boolean} isTried whether the exercise is completed
 * @property {boolean | null} ownRight whether the answer about the reader's own sentence was right
 *
 * @typedef {number} Answer a number, or the number of a word or of an option
 */

/** @type {Note} */
const EMPTY = { answer: null, right: null, isTried: false, ownRight: null };
const MAX_WORD = 10_000;

/** The notes where the browser does not store them. @type {Record<string, Note>} */
let unstored = {};

const storageKey = () => `headlight-lessons ${new URL(".", document.baseURI).pathname}`;

/**
 * Return the notes of the lessons of a site. A stored text may be anything: what is no possible note is left out.
 * @param {SiteDescription} site
 * @returns {Record<string, Note>}
 */
export function readNotes(site) {
  const stored = readStored();
  const entries = site.lessons.map(({ name, texts }) => [name, parseNote(stored[name], texts.en.predict)]);
  return Object.fromEntries(entries.filter(([, note]) => note !== null));
}

/**
 * Return the note of a lesson.
 * @param {SiteDescription} site
 * @param {string} name
 */
export const noteOf = (site, name) => readNotes(site)[name] ?? EMPTY;

/**
 * Change parts of the note of a lesson.
 * @param {SiteDescription} site
 * @param {string} name
 * @param {Partial<Note>} changes
 */
export function updateNote(site, name, changes) {
  const notes = readNotes(site);
  writeNotes({ ...notes, [name]: { ...EMPTY, ...notes[name], ...changes } });
}

/**
 * Delete the note of a lesson.
 * @param {SiteDescription} site
 * @param {string} name
 */
export function deleteNote(site, name) {
  const { [name]: _, ...others } = readNotes(site);
  writeNotes(others);
}

/** Delete all notes. */
export const deleteNotes = () => writeNotes({});

/** @param {Record<string, Note>} notes */
function writeNotes(notes) {
  unstored = notes;
  try {
    localStorage.setItem(storageKey(), JSON.stringify(notes));
  } catch {
    // The browser stores nothing: the notes last as long as the site is open.
  }
}

/** @returns {Record<string, unknown>} */
function readStored() {
  try {
    const parsed = JSON.parse(localStorage.getItem(storageKey()) ?? "null");
    return typeof parsed === "object" && parsed !== null ? parsed : unstored;
  } catch {
    return unstored;
  }
}

/**
 * @param {any} entry
 * @param {LessonTask} task
 * @returns {Note | null}
 */
export function parseNote(entry, task) {
  if (typeof entry !== "object" || entry === null) return null;
  const { answer, right, isTried, ownRight } = entry;
  if (!isPossibleAnswer(answer, task) || typeof isTried !== "boolean") return null;
  if (![right, ownRight].every((state) => state === null || typeof state === "boolean")) return null;
  return { answer, right, isTried, ownRight };
}

/**
 * @param {unknown} value
 * @param {LessonTask} task
 */
function isPossibleAnswer(value, { answer, options, minimum, maximum }) {
  if (value === null) return true;
  if (typeof value !== "number" || !Number.isFinite(value)) return false;
  if (answer === "number") return value >= minimum && value <= maximum;
  return Number.isInteger(value) && value >= 0 && value < (answer === "choice" ? options.length : MAX_WORD);
}
