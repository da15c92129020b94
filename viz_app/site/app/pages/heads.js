// The page Head ablation: the heads as switches, and the prediction with and without those that are off.

import { element } from "../../../components/elements.js";
import { cellNumber, twoDigits } from "../../../components/numbers.js";
import { mountView, showHeadGrid } from "../../../components/run_views.js";
import { contributionRows, contributionsOf, rankedContributions } from "../ablations.js";
import { barTexts, halfBar, probabilityBars } from "../charts.js";
import { createDownload, drawChoice, drawMissingTarget, writeReading } from "../controls.js";
import { allHeads, prunedHeads } from "../find_heads.js";
import { withProgress } from "../progress.js";
import { isSameHead, sortedHeads } from "../state.js";
import { drawTable } from "../tables.js";
import { originalId, probabilityOf } from "../targets.js";

/** @import { BarRow } from "../charts.js" */
/** @import { Ablations, Head, Page, PageContext, Places, Prediction, Run, State } from "../types.d.ts" */

/** @typedef {ReturnType<typeof createView>} HeadsView */

const DRAWN_MASKS = 3;
const GUESSES = 6; // of the prediction with all heads, and of that of now
const DRAWN_WORDS = 8; // of both together
const LISTED = 8; // heads with the largest contributions

/** @type {Page} */
export const headsPage = { draw };

/** @type {Page["draw"]} */
async function draw(context, places, memory) {
  memory.view ??= createView(places);
  const view = /** @type {HeadsView} */ (memory.view);
  const { state, runs, request, signal, text } = context;
  const full = await runs.run(request({ off: [], gradients: true }), { signal });
  if (signal.aborted) return;
  drawControls(view, context, full);
  drawSwitches(view, context, full, null);
  drawExport(view, context, full, null);
  writeReading(places.reading, context, text("reading"), text("misleads"));
  const ablates = state.colour === "removal" && full.target !== null;
  if (!ablates) view.measured.hidden = true;
  // Both may need the model, and the figure is drawn before.
  drawChange(view, context, full).catch(context.fail);
  if (ablates) drawAblations(view, context, full).catch(context.fail);
}

/**
 * The elements of the page, which stay as long as it is open.
 * @param {Places} places
 */
function createView({ controls, figure }) {
  const colours = element("div");
  controls.append(colours);
  const layout = element("div", "ablation");
  const [switches, results, predictions] = [element("div", "switches"), element("div", "results"), element("div")];
  const [gridHost, note] = [element("div"), element("p", "note")];
  const work = element("div");
  switches.append(gridHost, note);
  const measured = element("section", "measured");
  const [summary, table, files] = [element("h2"), element("div"), element("p", "files")];
  measured.append(summary, table);
  measured.hidden = true;
  results.append(predictions, work, measured);
  layout.append(switches, results);
  figure.append(layout, files);
  const gridRoot = /** @type {ShadowRoot | null} */ (null);
  return { colours, gridHost, gridRoot, note, work, predictions, measured, summary, table, files };
}

/**
 * @param {HeadsView} view
 * @param {PageContext} context
 * @param {Run} full
 */
function drawControls({ colours }, { state, text, change }, full) {
  colours.hidden = full.target === null;
  const count = full.layers * full.heads - prunedHeads(full).length;
  drawChoice(colours, {
    label: text("controls.colour.label"),
    options: /** @type {State["colour"][]} */ (["slope", "removal"]).map((name) => [
      name,
      text(`controls.colour.options.${name}`, { count }),
    ]),
    value: state.colour,
    onChoose: (colour) => change({ colour }),
  });
}

// ---------------------------------------------------------------------------------------------------- the switches

/**
 * Every head as a switch, coloured by its contribution: the gradient estimate until it is measured.
 * @param {HeadsView} view
 * @param {PageContext} context
 * @param {Run} full
 * @param {Ablations | null} ablations
 */
function drawSwitches(view, { state, site, text, change }, full, ablations) {
  const { look } = site;
  view.gridRoot ??= mountView(view.gridHost, look.views.head_grid);
  const { layers, heads, target } = full;
  const values = ablations ? contributionsOf(full, ablations) : full.headMaskGradient;
  const unit = target ? text(`library:units.${unitOf(full)}`) : "";
  const pruned = prunedHeads(full);
  const title = values ? (ablations ? "title" : "title_estimate") : "title_switch";
  const names = allHeads(full).map(([layer, head], i) => {
    if (pruned.some((other) => isSameHead(other, [layer, head]))) {
      return text("site:pruned_head", { head: `L${layer} H${head}` });
    }
    const value = values ? signedDigits(values[i]) : "";
    return text(`site:heads.${title}`, { layer, head, value, unit });
  });
  const titles = Array.from({ length: layers }, (_, layer) => names.slice(layer * heads, (layer + 1) * heads));
  showHeadGrid(
    view.gridRoot,
    {
      look,
      layers,
      heads,
      values: values ?? undefined,
      signed: true,
      unit: values ? text("site:heads.unit", { unit }) : "",
      mode: "switch",
      off: state.off,
      pruned,
      titles,
      lecture: state.lecture,
    },
    (layer, head) => change({ off: switched(full, state.off, layer, head) }),
  );
  const meaning = values
    ? text(`contribution.${ablations ? "removal" : "slope"}`, { type: text("site:heads.zero") })
    : "";
  view.note.textContent = `${text("switches")} ${meaning}`;
}

/**
 * Return the key of the unit of a target.
 * @param {Run} run
 */
function unitOf({ target }) {
  if (target?.target === "nsp") return "nsp";
  return target?.againstId == null ? "mlm" : "contrast";
}

/** @param {number} value */
const signedDigits = (value) => (value < 0 ? "" : "+") + twoDigits(value);

/**
 * Return the heads that are off after a click: the clicked ones are switched off, or on if all of them are off.
 * @param {Run} run
 * @param {Head[]} off
 * @param {number | null} layer null for a head in all layers
 * @param {number | null} head null for a whole layer
 */
export function switched(run, off, layer, head) {
  const pruned = prunedHeads(run);
  const clicked = allHeads(run).filter(
    (one) =>
      (layer === null || one[0] === layer) &&
      (head === null || one[1] === head) &&
      !pruned.some((other) => isSameHead(other, one)),
  );
  const isOff = (/** @type {Head} */ one) => off.some((other) => isSameHead(other, one));
  if (clicked.every(isOff)) return off.filter((one) => !clicked.some((other) => isSameHead(other, one)));
  return sortedHeads([...off, ...clicked]);
}

// ------------------------------------------------------------------------------------------------- the predictions

/**
 * The prediction with all heads, and with the heads that are off now.
 * @param {HeadsView} view
 * @param {PageContext} context
 * @param {Run} full
 */
async function drawChange({ predictions }, context, full) {
  const { state, runs, request, signal, text } = context;
  if (!state.off.length) return drawPredictions(predictions, context, full, full);
  predictions.setAttribute("aria-busy", "true");
  const sentence = await storedSentence(context, full);
  if (signal.aborted) return;
  if (sentence) predictions.replaceChildren(resultLine(sentence));
  else if (!predictions.hasChildNodes()) predictions.append(element("p", "note", text("site:heads.waiting")));
  try {
    const run = await runs.run(request({ target: full.target?.target ?? null }), { signal });
    if (!signal.aborted) drawPredictions(predictions, context, full, run);
  } finally {
    predictions.removeAttribute("aria-busy");
  }
}

/**
 * Return a sentence about a single head that is off, if its ablation is stored, while the model is loaded.
 * @param {PageContext} context
 * @param {Run} full
 */
async function storedSentence({ state, runs, request, text }, full) {
  const { target } = full;
  const stored = request({ off: [] });
  if (state.off.length > 1 || target === null || !runs.isStored(stored)) return "";
  const [[layer, head]] = state.off;
  const { probability } = await runs.ablations(stored);
  return text("site:heads.stored", {
    heads: `L${layer} H${head}`,
    target: target.label,
    p: twoDigits(target.probability),
    q: twoDigits(probability[layer * full.heads + head]),
  });
}

/**
 * @param {HTMLElement} place
 * @param {PageContext} context
 * @param {Run} full
 * @param {Run} run
 */
function drawPredictions(place, context, full, run) {
  const { text } = context;
  const limit =
    Math.max(...[full, run].flatMap((record) => drawn(record).map(({ top }) => top[0].probability)), 0) || 1;
  const parts = drawn(full).flatMap((before, index) =>
    wordChange(context, full, before, run.predictions[index], limit),
  );
  if (full.nextSentence !== null && run.nextSentence !== null) {
    parts.push(...nextSentenceChange(context, full.nextSentence, run.nextSentence));
  }
  if (!parts.length) {
    drawMissingTarget(place, context, full, text("missing_target"));
    return;
  }
  place.replaceChildren(...parts);
  context.announce(parts.map((part) => (part.matches(".result") ? part.textContent : "")).join(" "));
}

/** @param {Run} run */
const drawn = ({ predictions }) => predictions.slice(0, DRAWN_MASKS);

/**
 * @param {PageContext} context
 * @param {Run} run
 * @param {Prediction} before
 * @param {Prediction} after
 * @param {number} limit
 * @returns {HTMLElement[]}
 */
function wordChange(context, run, before, after, limit) {
  const { text, state } = context;
  const [[first], [newFirst]] = [before.top, after.top];
  const key = !state.off.length ? "all_on" : first.id === newFirst.id ? "stays" : "changes";
  const sentence = text(`change.${key}`, {
    before: first.token,
    after: newFirst.token,
    p: twoDigits(first.probability),
    q: twoDigits(newFirst.probability),
    heads: namedHeads(context),
  });
  const { position } = before;
  const rows = barRows(before, after, state.off.length > 0, originalId(run, position));
  const bars = probabilityBars(rows, { texts: barTexts(context, text("site:mask_caption", { position })), limit });
  return [resultLine(sentence), bars];
}

/** @param {string} sentence */
const resultLine = (sentence) => element("p", "result", sentence);

/**
 * Return the bars of the most likely words with all heads and now.
 * @param {Prediction} before
 * @param {Prediction} after
 * @param {boolean} hasBefore
 * @param {number | null} original id of the masked token
 * @returns {BarRow[]}
 */
function barRows(before, after, hasBefore, original) {
  const guesses = [before, after].flatMap(({ top }) => top.slice(0, GUESSES));
  const tokens = new Map(guesses.map(({ id, token }) => [id, token]));
  return [...tokens].slice(0, DRAWN_WORDS).map(([id, token]) => ({
    label: token,
    now: probabilityOf(after, id),
    before: hasBefore ? probabilityOf(before, id) : undefined,
    isOriginal: id === original,
  }));
}

/**
 * @param {PageContext} context
 * @param {number} before
 * @param {number} after
 * @returns {HTMLElement[]}
 */
function nextSentenceChange(context, before, after) {
  const { text, state } = context;
  const [p, q] = [twoDigits(before), twoDigits(after)];
  const key = !state.off.length ? "number_all_on" : p === q ? "number_stays" : "number_changes";
  const quantity = text("follows");
  const sentence = text(`change.${key}`, { quantity, p, q, heads: namedHeads(context) });
  const bar = halfBar(after, {
    before: p === q ? undefined : before,
    ends: [text("site:verdict.no"), text("site:verdict.yes")],
    label: sentence,
  });
  return [resultLine(sentence), bar];
}

/**
 * Return the names of the heads that are off, or if there are many their number.
 * @param {PageContext} context
 */
function namedHeads({ text, site, state: { off } }) {
  if (off.length > site.limits.named_heads) return text("change.count", { count: off.length });
  return off.map(([layer, head]) => `L${layer} H${head}`).join(text("change.and"));
}

// --------------------------------------------------------------------------------------------------- each head alone

/**
 * Switch off each head alone, and draw the effects: at once if they are stored.
 * @param {HeadsView} view
 * @param {PageContext} context
 * @param {Run} full
 */
async function drawAblations(view, context, full) {
  const { runs, request, signal, text, change } = context;
  const count = full.layers * full.heads - prunedHeads(full).length;
  const label = text("controls.colour.options.removal", { count });
  const ablations = await withProgress(view.work, context, label, (options) =>
    runs.ablations(request({ off: [] }), options),
  );
  if (signal.aborted) return;
  if (ablations === null) {
    change({ colour: "slope" }, { replace: true });
    return;
  }
  drawSwitches(view, context, full, ablations);
  drawExport(view, context, full, ablations);
  drawLargest(view, context, full, ablations);
}

/**
 * How many heads change the prediction, and the heads with the largest contributions.
 * @param {HeadsView} view
 * @param {PageContext} context
 * @param {Run} full
 * @param {Ablations} ablations
 */
function drawLargest({ measured, summary, table }, { text, change, announce }, full, ablations) {
  const ranked = rankedContributions(full, ablations);
  const changed = ranked.filter(({ changes }) => changes).length;
  measured.hidden = false;
  summary.textContent = text(`site:heads.summary.${changed > 1 ? "many" : changed === 1 ? "one" : "none"}`, {
    changed,
    count: ranked.length,
  });
  announce(summary.textContent);
  const hasWords = full.predictions.length > 0 && full.target?.target !== "nsp";
  const columns = ["contribution", "probability", ...(hasWords ? ["first"] : [])];
  drawTable(table, {
    label: text("find:head"),
    columns: columns.map((name) => ({
      label: text(`site:heads.columns.${name}`),
      help: text(`site:heads.help.${name}`),
    })),
    rows: ranked.slice(0, LISTED).map(({ head, contribution, probability, first, changes }) => ({
      label: `L${head[0]} H${head[1]}`,
      isSelected: false,
      onOpen: () => change({ page: "attention", head, view: "curves" }),
      cells: [
        `${contribution < 0 ? "" : "+"}${cellNumber(contribution)}`,
        twoDigits(probability),
        ...(hasWords ? [changes ? text("site:heads.flips", { first }) : first] : []),
      ],
    })),
  });
}

/**
 * @param {HeadsView} view
 * @param {PageContext} context
 * @param {Run} full
 * @param {Ablations | null} ablations
 */
function drawExport({ files }, { text, state }, full, ablations) {
  const rows = () => contributionRows(full, state.off, ablations);
  files.replaceChildren(createDownload(text("site:heads.csv"), "heads.csv", rows));
}
