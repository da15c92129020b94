// The page Attribution: which tokens a prediction depends on, by four methods.

import { element } from "../../../components/elements.js";
import { twoDigits } from "../../../components/numbers.js";
import {
  extremesOf,
  METHOD_NAMES,
  removablePositions,
  resultKey,
  scoreRows,
  sideSums,
  sumOf,
} from "../attributions.js";
import { createButton, createDownload, drawChoice, drawMissingTarget, writeReading } from "../controls.js";
import { tokenLabel } from "../encodings.js";
import { withProgress } from "../progress.js";
import { drawScores } from "../score_table.js";

/** @import { Attribution, Method, Page, PageContext, Places, ResolvedTarget, Run } from "../types.d.ts" */

/** @typedef {ReturnType<typeof createView>} WhyView */
/** @typedef {Map<Method, Attribution>} Attributions */

/** Those that need many passes of the model. @type {Method[]} */
const SLOW_METHODS = ["integrated gradients", "occlusion"];

/** @type {Page} */
export const whyPage = { draw };

/** @type {Page["draw"]} */
async function draw(context, places, memory) {
  memory.view ??= createView(places);
  const view = /** @type {WhyView} */ (memory.view);
  const { runs, request, signal, text } = context;
  drawMethods(view, context);
  const run = await runs.run(request({ gradients: true }), { signal });
  if (signal.aborted) return;
  view.scores.hidden = view.files.hidden = run.target === null;
  if (run.target === null) {
    drawMissing(view, context, run, places);
    return;
  }
  const { claims, misleads } = methodTexts(context);
  const reading = text("reading.signed", { claims, answer: answerOf(context, run, run.target) });
  writeReading(places.reading, context, `${reading} ${text("reading.rows")}`, text("site:why.misleads", { misleads }));
  await drawMethodScores(view, context, run);
}

/**
 * The elements of the page, which stay as long as it is open.
 * @param {Places} places
 */
function createView({ controls, figure }) {
  const methods = element("div");
  controls.append(methods);
  const [heading, lines, scores] = [element("h2"), element("div", "lines"), element("div", "scores-box")];
  const [totals, files] = [element("p", "note"), element("p", "files")];
  figure.append(heading, lines, scores, totals, files);
  // The slow methods that the visitor cancelled, with their requests.
  return { methods, heading, lines, scores, totals, files, cancelled: /** @type {Set<string>} */ (new Set()) };
}

/**
 * @param {WhyView} view
 * @param {PageContext} context
 */
function drawMethods({ methods }, { state, text, change }) {
  drawChoice(methods, {
    label: text("controls.method.label"),
    options: METHOD_NAMES.map((name) => [name, name]),
    value: state.method,
    onChoose: (method) => change({ method }),
  });
}

/** @param {PageContext} context */
function methodTexts({ state, text }) {
  const key = `library:methods.${state.method}`;
  return { claims: text(`${key}.claims`), misleads: text(`${key}.misleads`) };
}

/**
 * @param {WhyView} view
 * @param {PageContext} context
 * @param {Run} run
 * @param {Places} places
 */
function drawMissing({ heading, lines, totals }, context, run, { reading }) {
  heading.textContent = totals.textContent = "";
  drawMissingTarget(lines, context, run, context.text("missing"));
  const note = element("p", "note");
  context.write(note, "missing_reading");
  reading.replaceChildren(note);
}

// ---------------------------------------------------------------------------------------------------------- the scores

/**
 * Draw the scores of the methods that are quick or stored, and those of the others as soon as they are computed.
 * @param {WhyView} view
 * @param {PageContext} context
 * @param {Run} run
 */
async function drawMethodScores(view, context, run) {
  const { runs, request, signal } = context;
  const asked = request();
  const id = JSON.stringify(asked);
  /** @type {Attributions} */
  const attributions = new Map();
  const add = async (/** @type {Method} */ method) => {
    attributions.set(method, await runs.attribution(asked, method, { signal }));
  };
  const isStored = runs.isStored(asked);
  await Promise.all(METHOD_NAMES.filter((name) => isStored || !SLOW_METHODS.includes(name)).map(add));
  if (signal.aborted) return;
  const missing = SLOW_METHODS.filter((name) => !attributions.has(name));
  const pending = new Map(missing.map((name) => [name, element("div")]));
  const drawAll = () => drawContent(view, context, run, attributions, pending);
  drawAll();
  const compute = async (/** @type {Method} */ method, /** @type {HTMLElement} */ place) => {
    const attribution = await withProgress(place, context, method, (options) =>
      runs.attribution(asked, method, options),
    );
    if (signal.aborted) return;
    if (attribution) attributions.set(method, attribution);
    else offer(method, place);
    drawAll();
  };
  const offer = (/** @type {Method} */ method, /** @type {HTMLElement} */ place) => {
    view.cancelled.add(`${method} ${id}`);
    const button = createButton(context.text("site:why.compute", { method }), "quiet", () => {
      view.cancelled.delete(`${method} ${id}`);
      place.replaceChildren();
      compute(method, place).catch(context.fail);
    });
    place.replaceChildren(button);
  };
  const computeAll = async () => {
    for (const [method, place] of pending) {
      if (view.cancelled.has(`${method} ${id}`)) offer(method, place);
      else await compute(method, place);
      if (signal.aborted) return;
    }
  };
  computeAll().catch(context.fail); // the figure is drawn before
}

/**
 * @param {WhyView} view
 * @param {PageContext} context
 * @param {Run} run
 * @param {Attributions} attributions
 * @param {Map<Method, HTMLElement>} pending in place of scores that are not computed
 */
function drawContent(view, context, run, attributions, pending) {
  const { state, site, text, change } = context;
  const template = text("frame:tokens.masked");
  const labels = run.encoding.tokens.map((_, position) => tokenLabel(run.encoding, position, template));
  view.heading.textContent = headlineOf(context, run);
  drawLines(view, context, run, attributions.get(state.method) ?? null, labels);
  const rows = METHOD_NAMES.map((method) => ({
    method,
    scores: attributions.get(method)?.scores ?? null,
    pending: pending.get(method) ?? null,
  }));
  drawScores(view.scores, {
    look: site.look,
    labels,
    rows,
    selected: state.method,
    caption: text("site:why.caption"),
    onSelect: (method) => change({ method }),
  });
  const known = [...attributions.values()];
  view.files.replaceChildren(createDownload(text("site:why.csv"), "why.csv", () => scoreRows(run.encoding, known)));
}

/**
 * Write the sentences about the selected method.
 * @param {WhyView} view
 * @param {PageContext} context
 * @param {Run} run
 * @param {Attribution | null} attribution null until it is computed
 * @param {string[]} labels
 */
function drawLines({ lines, totals }, context, run, attribution, labels) {
  const { text, state } = context;
  const target = /** @type {ResolvedTarget} */ (run.target);
  const answer = answerOf(context, run, target);
  const sentences = [];
  if (target.againstId === null && target.probability < context.site.limits.unlikely) {
    sentences.push(text("unlikely", { answer, value: probabilityText(context, target.probability) }));
  }
  const extremes = attribution && extremesOf(attribution.scores, removablePositions(run.encoding, target));
  if (extremes) {
    sentences.push(
      text(resultKey(extremes), {
        method: state.method,
        answer,
        top: labels[extremes.top],
        bottom: labels[extremes.bottom],
        highest: twoDigits(extremes.highest),
        lowest: twoDigits(extremes.lowest),
      }),
    );
  }
  if (attribution && attribution.gap !== null) sentences.push(gapSentence(context, attribution));
  lines.replaceChildren(...sentences.map((sentence) => element("p", "", upperFirst(sentence))));
  if (attribution) context.announce(sentences.join(" "));
  totals.textContent = attribution && run.encoding.pair !== null ? sidesSentence(context, run, attribution.scores) : "";
}

/** @param {string} text */
const upperFirst = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

/**
 * Return the sum of the scores, and how far it is from the change of the target.
 * @param {PageContext} context
 * @param {Attribution} attribution
 */
function gapSentence({ text }, { scores, gap }) {
  const sum = sumOf(scores);
  const [total, change] = [sum, sum - (gap ?? 0)].map(twoDigits);
  return text("site:why.gap", { sum: total, change, gap: twoDigits(Math.abs(gap ?? 0)) });
}

/**
 * @param {PageContext} context
 * @param {Run} run
 * @param {Float32Array} scores
 */
function sidesSentence({ text }, { encoding }, scores) {
  const sums = Object.entries(sideSums(scores, encoding)).map(
    ([name, sum]) => `${text(`sides.${name}`)} ${twoDigits(sum)}`,
  );
  return text("sides.sums", { sums: sums.join(", "), total: twoDigits(sumOf(scores)) });
}

// ---------------------------------------------------------------------------------------------------------- the target

/**
 * Return the question with the value of the target.
 * @param {PageContext} context
 * @param {Run} run
 */
function headlineOf(context, run) {
  const target = /** @type {ResolvedTarget} */ (run.target);
  const value =
    target.againstId === null
      ? probabilityText(context, target.probability)
      : context.text("site:why.difference", { value: twoDigits(target.value) });
  return context.text("headline.other", { answer: answerOf(context, run, target), value });
}

/**
 * @param {PageContext} context
 * @param {number} probability
 */
const probabilityText = ({ site }, probability) =>
  probability >= site.limits.probability ? twoDigits(probability) : `< ${site.limits.probability}`;

/**
 * Return the name of what a target explains; with its position if several words are masked.
 * @param {PageContext} context
 * @param {Run} run
 * @param {ResolvedTarget} target
 */
function answerOf({ text, state }, { encoding }, { target, label, position, againstId }) {
  if (target === "nsp") return text("frame:targets.nsp");
  let answer = `“${label}”`;
  if (encoding.maskPositions.length > 1) answer = text("site:why.at_position", { answer, position: position ?? 0 });
  return againstId === null ? answer : text("site:why.rather_than", { answer, other: state.contrast });
}
