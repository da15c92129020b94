// The open lesson, beside the page: the question, the answer of the reader, and the truth.

import { element } from "../../components/elements.js";
import { createButton } from "./controls.js";
import { answerText, createAnswerControl } from "./lesson_answers.js";
import { createBars } from "./lesson_bars.js";
import { isOwnText, lessonChecks, UnsuitableError } from "./lesson_checks.js";
import { noteOf, updateNote } from "./lesson_notes.js";
import {
  beginLesson,
  lessonsOf,
  lessonText,
  paragraphsOf,
  progressSummary,
  stateOfStep,
  stateOfView,
  viewOf,
} from "./lesson_steps.js";
import { errorSentence } from "./loading_bar.js";
import { LESSON_STEPS } from "./state.js";

/** @import { LessonText, Verdict } from "./lesson_checks.js" */
/** @import { Answer } from "./lesson_notes.js" */
/** @import { Step } from "./lesson_steps.js" */
/** @import { Lesson, LessonTask, PageContext, State, Texts } from "./types.d.ts" */

/**
 * The panel of a step. It remains as long as the step is open, so that what is typed and the focus are kept.
 * @typedef {object} Panel
 * @property {string} key
 * @property {PageContext} context of the last change
 * @property {Lesson} lesson
 * @property {Step} step
 * @property {HTMLElement} body
 * @property {Memory} memory
 *
 * What is kept as long as the site is open.
 * @typedef {object} Memory
 * @property {Panel} [panel]
 * @property {(() => void)} [update] draws what depends on the text of the page
 * @property {string} [drawnStep] the lesson and the step that were drawn last; another one receives the focus
 * @property {RecordEntry} [record] the last one
 *
 * A record that is computed; another record aborts it.
 * @typedef {object} RecordEntry
 * @property {string} key
 * @property {AbortController} controller
 * @property {Promise<any>} promise
 * @property {(completed: number, total: number) => void} onProgress
 *
 * @typedef {{ task: LessonTask, page: LessonText, answer: Answer | null }} Question
 */

const COMPUTING_DELAY = 400; // milliseconds

/** @type {Record<Step, (panel: Panel) => () => void>} */
const STEP_BUILDERS = {
  predict: buildPredict,
  do: buildExercise,
  reveal: buildReveal,
  yours: buildOwn,
  free: buildFree,
};

/**
 * Draw the step of the open lesson; nothing if none is open.
 * @param {PageContext} context
 * @param {HTMLElement} place an element beside the page
 * @param {Memory} memory
 */
export function drawLessonPanel(context, place, memory) {
  const { state, site, text } = context;
  place.hidden = state.lesson === "" || state.embed;
  place.setAttribute("aria-label", text("lesson:lesson"));
  document.body.classList.toggle("with-lesson", !place.hidden);
  const lesson = lessonsOf(context).find(({ name }) => name === state.lesson);
  if (place.hidden || !lesson) {
    memory.panel = undefined;
    memory.drawnStep = "";
    place.replaceChildren(...(place.hidden ? [] : missingLesson(context)));
    return;
  }
  // Without a prediction, the truth is not shown.
  const step = noteOf(site, lesson.name).answer === null ? LESSON_STEPS[0] : state.step;
  const isElsewhere = (viewOf(lesson, step)?.page ?? state.page) !== state.page;
  const key = JSON.stringify([lesson.name, step, state.lang, isElsewhere]);
  if (memory.panel?.key === key) memory.panel.context = context;
  else buildPanel({ key, context, lesson, step, body: element("div", "lesson-body"), memory }, place, isElsewhere);
  memory.update?.();
}

/**
 * @param {Panel} panel
 * @param {HTMLElement} place
 * @param {boolean} isElsewhere whether the page is not that of the step
 */
function buildPanel(panel, place, isElsewhere) {
  const { context, lesson, step, body, memory } = panel;
  const heading = element("h2", "", context.text(`lesson:steps.${step}`));
  heading.tabIndex = -1;
  place.replaceChildren(createBar(panel), heading, body);
  memory.panel = panel;
  memory.update = isElsewhere ? buildElsewhere(panel) : STEP_BUILDERS[step](panel);
  place.scrollTop = 0;
  const drawnStep = `${lesson.name} ${step}`;
  if (memory.drawnStep !== undefined && memory.drawnStep !== drawnStep) heading.focus();
  memory.drawnStep = drawnStep;
}

/**
 * @param {PageContext} context
 * @returns {HTMLElement[]}
 */
function missingLesson(context) {
  const { text } = context;
  const close = createButton(text("lesson:all_lessons"), "quiet", () => context.change(withoutLesson("learn")));
  return [element("p", "", text("site:lessons.missing")), close];
}

/**
 * @param {State["page"]} [page]
 * @returns {Partial<State>}
 */
const withoutLesson = (page) => ({ lesson: "", step: LESSON_STEPS[0], ...(page && { page }) });

// ---------------------------------------------------------------------------- navigation

/**
 * Return the title of the lesson, its steps, and the button that closes it.
 * @param {Panel} panel
 */
function createBar(panel) {
  const { context, lesson, step } = panel;
  const { text, site } = context;
  const bar = element("div", "lesson-bar");
  const steps = element("ol", "lesson-steps");
  const hasAnswer = noteOf(site, lesson.name).answer !== null;
  for (const [index, name] of LESSON_STEPS.entries()) {
    const button = createButton(String(index + 1), "quiet", () => go(panel, name));
    const position = text("lesson:position", { number: index + 1, all: LESSON_STEPS.length });
    button.title = text(`lesson:steps.${name}`);
    button.setAttribute("aria-label", `${position}: ${button.title}`);
    button.disabled = index > 0 && !hasAnswer;
    if (name === step) button.setAttribute("aria-current", "step");
    const item = element("li");
    item.append(button);
    steps.append(item);
  }
  const close = createButton("×", "quiet", () => panel.context.change(withoutLesson()));
  close.title = text("lesson:leave");
  close.setAttribute("aria-label", text("lesson:leave"));
  bar.append(element("p", "lesson-title", lesson.title), steps, close);
  return bar;
}

/**
 * Open a step.
 * @param {Panel} panel
 * @param {Step} step
 */
function go({ context, lesson, memory }, step) {
  memory.panel = undefined; // the same step begins anew
  context.change(stateOfStep(context, lesson, step));
}

/**
 * @param {Panel} panel
 * @returns {() => void}
 */
function buildElsewhere(panel) {
  const { context, lesson, step, body } = panel;
  const { text } = context;
  const title = text(`${viewOf(lesson, step)?.page}:title`);
  body.append(
    element("p", "note", text("lesson:other_page", { title })),
    createButton(text("lesson:open", { title }), "primary", () => go(panel, step)),
  );
  return () => {};
}

// ---------------------------------------------------------------------------- steps

/** @param {Panel} panel */
function buildPredict(panel) {
  const { context, lesson, body } = panel;
  const { site, text } = context;
  const task = lesson.predict;
  const { answer } = noteOf(site, lesson.name);
  const place = element("div", "lesson-answer");
  body.append(
    element("p", "lesson-question", lesson.question),
    ...createParagraphs(task.text),
    place,
    ...createHint(panel, task),
  );
  if (answer !== null) {
    const given = element("div", "given");
    place.append(
      given,
      createButton(text("lesson:go_on"), "primary", () => go(panel, "do")),
    );
    return showOnce(panel, given, (texts) => {
      given.textContent = text("lesson:given", { answer: answerText(task, answer, texts) });
    });
  }
  return showOnce(panel, place, (texts) => {
    const form = createAnswerForm(task, text, { texts, label: text("lesson:answer.submit") }, (given) => {
      updateNote(site, lesson.name, { answer: given });
      go(panel, "do");
    });
    place.replaceChildren(form);
  });
}

/** @param {Panel} panel */
function buildExercise(panel) {
  const { context, lesson, body } = panel;
  const { text, site } = context;
  const task = lesson.exercise;
  const verdictPlace = createVerdictPlace();
  const next = createButton("", "quiet", () => go(panel, "reveal"));
  const reset = createButton(text("lesson:reset"), "quiet", () => go(panel, "do"));
  const buttons = element("div", "lesson-buttons");
  buttons.append(next, reset);
  body.append(...createParagraphs(task.text), verdictPlace, buttons, ...createHint(panel, task));
  const showButton = () => {
    const { isTried } = noteOf(site, lesson.name);
    next.textContent = text(isTried ? "lesson:show_truth" : "lesson:skip");
    next.className = isTried ? "primary" : "quiet";
  };
  return () => {
    showButton();
    showVerdict(panel, verdictPlace, { task, page: panel.context.state, answer: null }, (verdict) => {
      if (verdict.right) updateNote(site, lesson.name, { isTried: true });
      showButton();
      drawVerdict(panel, verdictPlace, task, verdict);
    });
  };
}

/** @param {Panel} panel */
function buildReveal(panel) {
  const { context, lesson, body } = panel;
  const { text, site } = context;
  const { predict: task, reveal } = lesson;
  const { answer } = noteOf(site, lesson.name);
  const place = createVerdictPlace();
  body.append(
    place,
    createButton(text("lesson:own_sentence"), "primary", () => go(panel, "yours")),
  );
  let isShown = false;
  return () => {
    if (isShown) return;
    showVerdict(panel, place, { task, page: lessonText(site, lesson), answer }, (verdict) => {
      isShown = true;
      updateNote(site, lesson.name, { right: verdict.right });
      const found = verdict.right ? reveal.right : reveal.wrong;
      const figures = translatedFigures(panel, verdict);
      place.className = "lesson-reveal";
      place.replaceChildren(
        createBars(reveal, verdict.bars, text),
        ...createParagraphs(verdict.claimHolds ? found : reveal.claim_fails, figures),
      );
    });
  };
}

/** @param {Panel} panel */
function buildOwn(panel) {
  const { context, lesson, body } = panel;
  const { text, site, runs } = context;
  const task = lesson.own_sentence;
  const place = element("div", "lesson-answer");
  const verdictPlace = createVerdictPlace();
  const next = createButton("", "quiet", () => go(panel, "free"));
  body.append(...createParagraphs(task.text), place, verdictPlace, next, ...createHint(panel, task));
  let drawnText = "";
  let isOwn = false;
  const showButton = () => {
    const isComplete = noteOf(site, lesson.name).ownRight !== null;
    next.textContent = text(isComplete ? "lesson:go_on" : "lesson:skip");
    next.className = isComplete ? "primary" : "quiet";
  };
  const judge = (/** @type {LessonText} */ page, /** @type {Answer | null} */ answer) => {
    showVerdict(panel, verdictPlace, { task, page, answer }, (verdict) => {
      const { ownRight } = noteOf(site, lesson.name);
      const isGiven = verdict.right || task.answer !== "page"; // on the page only a right answer counts as given
      if (isGiven) updateNote(site, lesson.name, { ownRight: Boolean(ownRight || verdict.right) });
      showButton();
      drawVerdict(panel, verdictPlace, task, verdict);
    });
  };
  const drawControl = (/** @type {LessonText} */ page, /** @type {Texts} */ texts) => {
    verdictPlace.replaceChildren();
    if (!isOwn) place.replaceChildren(element("p", "note", text("lesson:same_sentence")));
    else if (task.answer === "page") place.replaceChildren();
    else {
      const options = { texts, label: text("lesson:check") };
      place.replaceChildren(createAnswerForm(task, text, options, (answer) => judge(page, answer)));
    }
  };
  const showText = async () => {
    const { state, signal } = panel.context;
    const page = { text: state.text, pair: state.pair, masked: state.masked };
    const key = JSON.stringify(page);
    if (key !== drawnText) {
      const texts = await runs.encode(page, { signal });
      const question = await runs.encode(lessonText(site, lesson), { signal });
      if (signal.aborted) return;
      drawnText = key;
      isOwn = isOwnText(texts, question);
      drawControl(page, texts);
    }
    if (isOwn && task.answer === "page") judge(page, null);
  };
  return () => {
    showButton();
    showTexts(panel, place, showText);
  };
}

/** @param {Panel} panel */
function buildFree(panel) {
  const { context, lesson, body } = panel;
  const { text, site } = context;
  const done = progressSummary(text, noteOf(site, lesson.name)) || text("lesson:progress.looked");
  body.append(element("p", "", text("lesson:complete", { done })));
  if (lesson.free.length) body.append(element("p", "note", text("lesson:explore")));
  for (const { label, view } of lesson.free) {
    body.append(createButton(label, "quiet", () => panel.context.change(stateOfView(site, panel.context.state, view))));
  }
  const course = lessonsOf(context).filter(({ course }) => course === lesson.course);
  const next = course[course.findIndex(({ name }) => name === lesson.name) + 1];
  if (next) {
    const label = text("lesson:next_lesson", { title: next.title });
    body.append(createButton(label, "primary", () => beginLesson(panel.context, next)));
  }
  const all = createButton(text("lesson:all_lessons"), "quiet", () => panel.context.change(withoutLesson("learn")));
  const source = element("a", "source", lesson.source);
  Object.assign(source, { href: lesson.link, target: "_blank", rel: "noopener noreferrer" });
  body.append(all, source);
  return () => {};
}

// ---------------------------------------------------------------------------- verdicts

/**
 * Compute the verdict on an answer and show it, or why there is none.
 * @param {Panel} panel
 * @param {HTMLElement} place
 * @param {Question} question
 * @param {(verdict: Verdict) => void} show
 */
async function showVerdict(panel, place, { task, page, answer }, show) {
  const { context } = panel;
  const { signal, text, site } = context;
  const isCurrent = () => !signal.aborted && panel.memory.panel === panel;
  const showComputing = (/** @type {string} */ progress) => {
    if (isCurrent()) showSentence(place, `${text("site:lessons.computing")} ${progress}`.trim(), "computing");
  };
  let progress = "";
  const timer = setTimeout(() => showComputing(progress), COMPUTING_DELAY);
  try {
    const record = await recordOf(panel, task, page, (completed, total) => {
      progress = `${completed} / ${total}`;
      if (place.classList.contains("computing")) showComputing(progress);
    });
    const given = answer !== null && task.answer === "choice" ? task.options[answer] : answer;
    const verdict = lessonChecks[task.check].judge(record, given, site.check_settings);
    if (isCurrent()) show(verdict);
  } catch (error) {
    if (isCurrent()) showSentence(place, sentenceOf(error, context), "unsuitable");
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Return the record of a check on a text: the stored one of the question, or else the last one, or one that is computed.
 * @param {Panel} panel
 * @param {LessonTask} task
 * @param {LessonText} page
 * @param {(completed: number, total: number) => void} onProgress
 * @returns {Promise<any>}
 */
function recordOf({ context, lesson, memory }, { check }, { text, pair, masked }, onProgress) {
  const { site, runs } = context;
  const page = { text, pair, masked };
  const question = lessonText(site, lesson);
  const stored = site.lessons.find(({ name }) => name === lesson.name)?.record;
  const { record } = lessonChecks[check];
  const isQuestion = record === lessonChecks[lesson.predict.check].record;
  if (stored && isQuestion && JSON.stringify(page) === JSON.stringify(question)) return Promise.resolve(stored);
  const key = JSON.stringify([lesson.name, check, page]);
  if (memory.record?.key !== key) {
    memory.record?.controller.abort();
    const controller = new AbortController();
    const settings = site.check_settings;
    const promise = record({
      ...{ runs, model: site.model, settings, page, lesson: question, signal: controller.signal },
      onProgress: (completed, total) => entry.onProgress(completed, total),
    });
    const entry = { key, controller, promise, onProgress };
    memory.record = entry;
    promise.catch(() => {
      if (memory.record === entry) memory.record = undefined;
    });
  }
  memory.record.onProgress = onProgress;
  return memory.record.promise;
}

/**
 * Return a function that shows what depends on the tokens of the question, as soon as they are known.
 * @param {Panel} panel
 * @param {HTMLElement} place
 * @param {(texts: Texts) => void} show
 */
function showOnce(panel, place, show) {
  let isShown = false;
  const showTokens = async () => {
    const { runs, site, signal } = panel.context;
    const texts = await runs.encode(lessonText(site, panel.lesson), { signal });
    if (signal.aborted || isShown) return;
    isShown = true;
    show(texts);
  };
  return () => {
    if (!isShown) showTexts(panel, place, showTokens);
  };
}

/**
 * Show what depends on the tokens of a text, or why they cannot be computed.
 * @param {Panel} panel
 * @param {HTMLElement} place
 * @param {() => Promise<void>} show
 */
async function showTexts(panel, place, show) {
  const { context } = panel;
  try {
    await show();
  } catch (error) {
    if (!context.signal.aborted)
      place.replaceChildren(element("p", "lesson-verdict unsuitable", sentenceOf(error, context)));
  }
}

/**
 * @param {unknown} error
 * @param {PageContext} context
 */
function sentenceOf(error, context) {
  if (!(error instanceof UnsuitableError)) return errorSentence(error, context);
  const sentence = context.text(`checks:unsuitable.${error.key}`, error.fields);
  return `${sentence[0].toUpperCase()}${sentence.slice(1)}.`;
}

/**
 * @param {Panel} panel
 * @param {Verdict} verdict
 */
function translatedFigures({ context }, { figures }) {
  const entries = Object.entries(figures).map(([name, figure]) => [
    name,
    typeof figure === "object" ? context.text(`checks:${figure.phrase}`) : figure,
  ]);
  return Object.fromEntries(entries);
}

/**
 * @param {Panel} panel
 * @param {HTMLElement} place
 * @param {LessonTask} task
 * @param {Verdict} verdict
 */
function drawVerdict(panel, place, task, verdict) {
  const sentence = verdict.right ? task.right : task.wrong;
  const paragraphs = paragraphsOf(sentence, translatedFigures(panel, verdict));
  showSentence(place, paragraphs.join(" "), verdict.right ? "right" : "wrong");
}

// ---------------------------------------------------------------------------- parts

function createVerdictPlace() {
  const place = element("div");
  place.setAttribute("role", "status");
  return place;
}

/**
 * @param {HTMLElement} place
 * @param {string} sentence
 * @param {string} kind
 */
function showSentence(place, sentence, kind) {
  place.className = `lesson-verdict ${kind}`;
  if (place.textContent !== sentence) place.replaceChildren(element("p", "", sentence));
}

/**
 * Return the form of an answer, with a button that is enabled once there is one.
 * @param {LessonTask} task
 * @param {PageContext["text"]} text
 * @param {{ texts: Texts, label: string }} options
 * @param {(answer: Answer) => void} onSubmit
 */
function createAnswerForm(task, text, { texts, label }, onSubmit) {
  const form = element("form", "lesson-form");
  const submit = element("button", "primary", label);
  submit.disabled = true;
  /** @type {Answer | null} */
  let value = null;
  const onChange = (/** @type {Answer | null} */ chosen) => {
    value = chosen;
    submit.disabled = chosen === null;
  };
  form.append(createAnswerControl(task, { text, texts, value, onChange }), submit);
  form.onsubmit = (event) => {
    event.preventDefault();
    if (value !== null) onSubmit(value);
  };
  return form;
}

/**
 * @param {string} text
 * @param {import("./number_format.js").Figures} [figures]
 */
const createParagraphs = (text, figures) => paragraphsOf(text, figures).map((paragraph) => element("p", "", paragraph));

/**
 * @param {Panel} panel
 * @param {LessonTask} task
 */
function createHint({ context }, { hint }) {
  if (!hint) return [];
  const details = element("details", "lesson-hint");
  details.append(element("summary", "", context.text("lesson:hint")), ...createParagraphs(hint));
  return [details];
}
