// The controls by which answers are given in the panel of a lesson, and answers in words.

import { element } from "../../components/elements.js";
import { wordText } from "./encodings.js";
import { fillFigures } from "./number_format.js";

/** @import { Answer } from "./lesson_notes.js" */
/** @import { LessonTask, PageContext, Texts } from "./types.d.ts" */

/**
 * @typedef {object} AnswerOptions
 * @property {PageContext["text"]} text
 * @property {Texts} texts the text that the question is about
 * @property {Answer | null} value
 * @property {(value: Answer | null) => void} onChange
 */

/**
 * Return the control of an answer: words of the text, a number, or options.
 * @param {LessonTask} task
 * @param {AnswerOptions} options
 * @returns {HTMLElement}
 */
export function createAnswerControl(task, options) {
  if (task.answer === "number") return createNumberField(task, options);
  if (task.answer === "choice") {
    const labels = task.options.map(({ label }) => ({ label }));
    return createChoices("lesson-options", options.text("lesson:answer.choose"), labels, options);
  }
  const { original, encoding } = options.texts;
  const masked = new Set(encoding.maskPositions.map((position) => original.words[position]));
  const words = Array.from({ length: original.wordCount }, (_, word) => ({
    label: wordText(original, word),
    title: masked.has(word) ? options.text("lesson:answer.gap") : "",
    isDisabled: masked.has(word),
  }));
  return createChoices("lesson-words", options.text("lesson:answer.words"), words, options);
}

/**
 * Return an answer in words.
 * @param {LessonTask} task
 * @param {Answer} answer
 * @param {Texts} texts
 */
export function answerText(task, answer, { original }) {
  if (task.answer === "choice") return task.options[answer].label;
  if (task.answer === "word" && answer < original.wordCount) return wordText(original, answer);
  return `${answer} ${task.unit}`.trim();
}

/**
 * @param {LessonTask} task
 * @param {AnswerOptions} options
 */
function createNumberField({ unit, minimum, maximum }, { text, value, onChange }) {
  const label = element("label", "lesson-number", text("lesson:answer.number", { unit }));
  const field = element("input");
  Object.assign(field, { type: "number", min: minimum, max: maximum, step: 1, value: value ?? "" });
  field.placeholder = fillFigures(text("lesson:answer.bounds"), { least: minimum, most: maximum });
  field.oninput = () => onChange(field.value !== "" && field.validity.valid ? field.valueAsNumber : null);
  label.append(field);
  return label;
}

/**
 * Return a group of radio buttons, of which the arrow keys choose one.
 * @param {string} name its class
 * @param {string} legend
 * @param {{ label: string, title?: string, isDisabled?: boolean }[]} choices
 * @param {AnswerOptions} options
 */
function createChoices(name, legend, choices, { value, onChange }) {
  const group = element("fieldset", name);
  group.append(element("legend", "heard", legend));
  for (const [number, { label, title = "", isDisabled = false }] of choices.entries()) {
    const choice = element("label");
    const button = element("input");
    Object.assign(button, { type: "radio", name: "lesson-answer", checked: number === value, disabled: isDisabled });
    button.onchange = () => onChange(number);
    const caption = element("span", "", label);
    caption.dir = "auto";
    choice.title = title;
    choice.append(button, caption);
    group.append(choice);
  }
  return group;
}
