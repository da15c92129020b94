// The page Home: a prediction, one head and all heads beside each other, what the head does for it, and ways to go on.

import { layerReader } from "../../../components/array_maps.js";
import { element } from "../../../components/elements.js";
import { HeadView } from "../../../components/head_views.js";
import { twoDigits } from "../../../components/numbers.js";
import { fixedHeader, mountView, showHeadGrid } from "../../../components/run_views.js";
import { rankedContributions } from "../ablations.js";
import { barTexts, probabilityBars } from "../charts.js";
import { createButton, createMaskButton, drawList } from "../controls.js";
import { tokenLabel } from "../encodings.js";
import { allHeads, currentEdge, edgeValues, openingHead } from "../find_heads.js";
import { createLink, lineOf } from "../frame.js";
import { drawHeadList } from "../head_list.js";
import { withProgress } from "../progress.js";
import { isSameHead, PAGE_NAMES, sortedHeads, withoutPositions } from "../state.js";
import { swapWord } from "../swaps.js";
import { originalId, probabilityOf } from "../targets.js";
import { quoted } from "../texts.js";

/** @import { Choice } from "../../../components/messages.d.ts" */
/** @import { Edge } from "../find_heads.js" */
/** @import { Ablations, Head, Page, PageContext, Run } from "../types.d.ts" */

/**
 * What is drawn: the run with all heads on and the one of the state, the selected head, and the compared tokens.
 * @typedef {{ full: Run, run: Run, head: Head, edge: Edge, labels: string[] }} Shown
 *
 * The elements and views of the page, which remain while it is open.
 * @typedef {object} Parts
 * @property {HTMLElement} prediction
 * @property {HTMLElement} headTitle
 * @property {HTMLElement} headReading
 * @property {HTMLElement} gridTitle
 * @property {HTMLSelectElement[]} lists of the query and the key
 * @property {HTMLElement} text how to read the figure
 * @property {HTMLElement} ways what to do next
 * @property {HTMLElement} heads the sentence about all heads, and their list
 * @property {HeadView} view
 * @property {ShadowRoot} grid
 * @property {PageContext} context
 * @property {Shown | null} shown
 */

const LISTED_WORDS = 5; // of a prediction

/** @type {Page} */
export const startPage = { draw };

/** @type {Page["draw"]} */
async function draw(context, places, memory) {
  const { state, runs, signal } = context;
  const parts = /** @type {Parts} */ (memory.parts ?? createParts(context, places));
  memory.parts = parts;
  parts.context = context;
  drawExamples(context, places.controls);
  drawReading(context, parts);
  const full = await runs.run(context.request({ off: [], gradients: state.head === null }), { signal });
  const head = state.head ?? openingHead(full) ?? [0, 0];
  if (signal.aborted) return;
  if (parts.shown === null && state.off.length) drawViews(parts, full, full, head); // until the model is loaded
  const run = state.off.length ? await runs.run(context.request(), { signal }) : full;
  if (signal.aborted) return;
  const shown = drawViews(parts, full, run, head);
  drawPrediction(parts, shown);
  await drawHeads(parts, shown);
}

/**
 * @param {PageContext} context
 * @param {import("../types.d.ts").Places} places
 * @returns {Parts}
 */
function createParts(context, { figure, reading }) {
  const { views } = context.site.look;
  const columns = element("div", "home");
  const [prediction, middle, right] = [element("section"), element("section"), element("section")];
  const [headTitle, gridTitle] = [element("h2"), element("h2")];
  const [viewHost, gridHost] = [element("div", "view"), element("div", "grid")];
  const headReading = element("p", "note");
  middle.append(headTitle, viewHost, headReading);
  const lists = [element("select"), element("select")];
  const ends = element("div", "lists");
  for (const list of lists) {
    const label = element("label");
    label.append(element("span"), list);
    ends.append(label);
  }
  right.append(gridTitle, gridHost, ends);
  columns.append(prediction, middle, right);
  figure.replaceChildren(columns);
  const [text, ways, heads] = [element("p", "note"), element("div", "ways"), element("div", "head-list")];
  reading.replaceChildren(text, ways, heads);
  /** @type {Parts} */
  const parts = {
    ...{ prediction, headTitle, headReading, gridTitle, lists, text, ways, heads, context },
    view: new HeadView(mountView(viewHost, views.attention_view), (choice) => choose(parts, choice)),
    grid: mountView(gridHost, views.head_grid),
    shown: null,
  };
  return parts;
}

/**
 * Draw the selected head and all heads.
 * @param {Parts} parts
 * @param {Run} full
 * @param {Run} run
 * @param {Head} head
 */
function drawViews(parts, full, run, head) {
  const { context } = parts;
  const masked = context.text("frame:tokens.masked");
  const labels = run.encoding.tokens.map((_, position) => tokenLabel(run.encoding, position, masked));
  const shown = { full, run, head, edge: currentEdge(run, head, context.state.edge), labels };
  parts.shown = shown;
  drawHead(parts, shown);
  drawAllHeads(parts, shown);
  return shown;
}

/**
 * Draw a button for each example.
 * @param {PageContext} context
 * @param {HTMLElement} place
 */
function drawExamples({ site, change, state }, place) {
  const buttons = site.examples.map(({ label, text, pair, masked }) => {
    const isOpen = state.text === text && state.pair === pair && state.masked.join() === masked.join();
    const open = () => change({ text, pair, ...withoutPositions(), masked, off: [], head: null });
    const button = createButton(label, "example", open);
    button.setAttribute("aria-pressed", String(isOpen));
    return button;
  });
  place.replaceChildren(...buttons);
}

/**
 * Draw the most likely words for the first mask, and what happens without the head.
 * @param {Parts} parts
 * @param {Shown} shown
 */
function drawPrediction({ prediction, context }, shown) {
  const { full, run } = shown;
  const { text, site, state } = context;
  prediction.replaceChildren(element("h2", "", text("prediction")));
  if (!site.model.has_mlm) {
    prediction.append(element("p", "note", text("no_mlm")));
    return;
  }
  if (!run.predictions.length) {
    prediction.append(element("p", "", text("no_mask")), createMaskButton(context, run));
    return;
  }
  const [now, before] = [run.predictions[0], full.predictions[0]];
  const tokens = new Map([...before.top.slice(0, LISTED_WORDS), now.top[0]].map(({ id, token }) => [id, token]));
  const truth = originalId(run, now.position);
  const rows = [...tokens].map(([id, token]) => ({
    label: token,
    now: probabilityOf(now, id),
    before: state.off.length ? probabilityOf(before, id) : undefined,
    isOriginal: id === truth,
  }));
  prediction.append(probabilityBars(rows, { texts: barTexts(context, text("prediction")) }));
  drawEffect(prediction, context, shown);
}

/**
 * Write how much the head attends, or what the prediction is without the heads that are off, with the buttons.
 * @param {HTMLElement} place
 * @param {PageContext} context
 * @param {Shown} shown
 */
function drawEffect(place, context, shown) {
  const { state, site, text, change } = context;
  const { run, head, edge, labels } = shown;
  if (isPruned(context, head)) return;
  const isOff = state.off.some((off) => isSameHead(off, head));
  const sentence = element("p", state.off.length ? "result" : "");
  if (state.off.length) sentence.textContent = offSentence(context, shown);
  else {
    const weight = edgeValues(run, run.attention, edge)[head[0] * run.heads + head[1]];
    const [query, key] = edge.map((position) => quoted(labels[position], state.lang));
    const attends = element("span");
    context.write(attends, "attends", { share: `${Math.round(100 * weight)}%`, query, key });
    const question = element("span");
    context.write(question, "question");
    sentence.append(attends, " ", question);
  }
  const buttons = element("div", "buttons");
  const others = state.off.filter((off) => off.join() !== head.join());
  const off = isOff ? others : sortedHeads([...others, head]);
  buttons.append(createButton(text(isOff ? "switch_on" : "switch_off"), "primary", () => change({ off, head, edge })));
  const swap = swapWord(run.original, state.masked, site.swaps);
  if (isOff) buttons.append(createLink(context, text("more_heads"), { page: "heads" }));
  else if (swap) {
    const label = text("swap", { old: swap.old, new: swap.replacement });
    buttons.append(
      createButton(label, "quiet", () => change({ ...withoutPositions(), masked: state.masked, text: swap.text })),
    );
  }
  place.append(sentence, buttons);
}

/**
 * Return what the prediction is without the heads that are off.
 * @param {PageContext} context
 * @param {Shown} shown
 */
function offSentence({ state, text, site }, { full, run, head }) {
  const { off } = state;
  const [first, present] = [full.predictions[0].top[0], run.predictions[0].top[0]];
  const count = existingHeads(site.model).length;
  const one = isSameHead(off[0], head) ? text("off.this", { count }) : headName(off[0]);
  const heads = off.length > 1 ? text("off.several", { off: off.length, count }) : one;
  const [before, after] = [twoDigits(first.probability), twoDigits(present.probability)];
  if (first.id === present.id) return text("off.stays", { heads, word: present.token, before, after });
  return text("off.changes", { heads, word: present.token, share: after });
}

/**
 * Draw the attention of the selected head from the query of the edge.
 * @param {Parts} parts
 * @param {Shown} shown
 */
function drawHead({ context, view, headTitle, headReading }, { run, head, edge, labels }) {
  const { state, site, text } = context;
  const { encoding, layers, heads } = run;
  const isOff = state.off.some((off) => isSameHead(off, head));
  const count = existingHeads(site.model).length;
  headTitle.textContent = text(isOff ? "head_off" : "head", { count, name: headName(head) });
  headReading.textContent = text("head_reading", { query: quoted(labels[edge[0]], state.lang) });
  const length = encoding.tokens.length;
  const tokens = labels.map(
    (label, position) =>
      /** @type {import("../../../components/messages.d.ts").Token} */ ([label, position, encoding.sides[position]]),
  );
  const { look } = site;
  const form = { layers, heads, rows: length, columns: length, signed: false, codes: look.constants.codes };
  view.choice = { layer: head[0], heads: [head[1]], side: "query", positions: [edge[0]], kept: state.kept_share / 100 };
  view.show({
    name: run.name,
    fixed: fixedHeader(look, {
      ...{ queries: tokens, keys: tokens, layers, heads, signed: false },
      unit: text("site:units.attention"),
      lecture: state.lecture,
    }),
    exact: true,
    mode: "curves",
    layer: layerReader(run.attention, form, { listed: look.listed, off: state.off }),
    listed: look.listed,
    limit: 1,
    compact: true,
  });
}

/**
 * Take a choice in the view of the head: another head, share, or a token, which changes one end of the edge.
 * @param {Parts} parts
 * @param {Choice} choice
 */
function choose({ context, shown }, { layer, heads, side, positions, kept }) {
  if (!shown) return;
  const { head, edge } = shown;
  const kept_share = Math.round(100 * kept);
  const [query, key] = edge;
  const clicked = positions.filter((position) => side === "key" || position !== query);
  /** @type {Edge} */
  const next = clicked.length !== 1 ? edge : side === "query" ? [clicked[0], key] : [query, clicked[0]];
  const isNew = next.join() !== edge.join() || layer !== head[0] || heads[0] !== head[1];
  context.change({ head: [layer, heads[0]], edge: next, kept_share }, { replace: !isNew });
}

/**
 * Draw the attention of every head from the query to the key, and the lists in which both are selected.
 * @param {Parts} parts
 * @param {Shown} shown
 */
function drawAllHeads({ context, grid, gridTitle, lists }, { run, head, edge, labels }) {
  const { state, site, text, change } = context;
  const [query, key] = edge.map((position) => quoted(labels[position], state.lang));
  const values = edgeValues(run, run.attention, edge);
  const unit = text("site:units.attention");
  gridTitle.textContent = text("heads", { query, key });
  const titles = allHeads(run).map((cell, index) => titleOf(cell, values[index], unit, text));
  showHeadGrid(
    grid,
    {
      ...{ look: site.look, layers: run.layers, heads: run.heads, values, limit: 1, unit },
      selected: head,
      off: state.off,
      pruned: allHeads(run).filter((cell) => isPruned(context, cell)),
      titles: Array.from({ length: run.layers }, (_, layer) =>
        titles.slice(layer * run.heads, (layer + 1) * run.heads),
      ),
      lecture: state.lecture,
    },
    (layer, number) => {
      if (layer !== null && number !== null) change({ head: [layer, number], edge });
    },
  );
  const options = labels.map((name, index) =>
    labels.indexOf(name) === labels.lastIndexOf(name) ? name : `${name} (${index})`,
  );
  for (const [end, key] of /** @type {const} */ ([
    [0, "find:from"],
    [1, "find:to"],
  ])) {
    const label = text(key);
    const onChoose = (/** @type {number} */ position) =>
      change({ head, edge: end ? [edge[0], position] : [position, edge[1]] });
    lists[end].labels[0].firstElementChild?.replaceChildren(label);
    drawList(lists[end], { label, options, index: edge[end], onChoose });
  }
}

/**
 * @param {Head} head
 * @param {number} weight
 * @param {string} unit
 * @param {PageContext["text"]} text
 */
function titleOf(head, weight, unit, text) {
  if (Number.isNaN(weight)) return text("site:pruned_head", { head: headName(head) });
  return `${headName(head)}: ${unit} ${twoDigits(weight)}`;
}

/**
 * Draw how many heads change the prediction alone, and the heads that attend most from the query to the key.
 * @param {Parts} parts
 * @param {Shown} shown
 */
async function drawHeads({ context, heads }, shown) {
  const { runs, signal, state, text } = context;
  const { full, run, edge, labels } = shown;
  const [sentence, list, work] = [element("p"), element("div"), element("div")];
  heads.replaceChildren(sentence, list, work);
  const [query, key] = edge.map((position) => quoted(labels[position], state.lang));
  const onOpen = (/** @type {Head} */ head) => context.change({ head, edge });
  const drawWith = (/** @type {Ablations | null} */ ablations) => {
    sentence.textContent = ablations && run.predictions.length ? aloneSentence(context, full, ablations) : "";
    drawHeadList(list, context, { run, full, edge, ablations, names: { query, key }, onOpen });
  };
  drawWith(null);
  if (!full.target) return;
  const request = context.request({ off: [] });
  const label = text("find:measure");
  const measure = async () => {
    const ablations = await withProgress(work, context, label, (options) => runs.ablations(request, options));
    if (signal.aborted) return;
    if (ablations) drawWith(ablations);
    else offer();
  };
  const offer = () => work.replaceChildren(createButton(label, "quiet", () => measure().catch(context.fail)));
  if (runs.isStored(request)) await measure();
  else offer();
}

/**
 * Return how many heads change the prediction when they are switched off one at a time.
 * @param {PageContext} context
 * @param {Run} full
 * @param {Ablations} ablations
 */
function aloneSentence({ text }, full, ablations) {
  const ranked = rankedContributions(full, ablations);
  const changing = ranked.filter(({ changes }) => changes);
  const kind = changing.length > 1 ? "some" : changing.length === 1 ? "one" : "none";
  const name = headName((changing.length === 1 ? changing : ranked)[0].head);
  return text(`alone.${kind}`, { count: ranked.length, changing: changing.length, name });
}

/**
 * Write how to read the figure, and draw cards with what to do next.
 * @param {PageContext} context
 * @param {Parts} parts
 */
function drawReading(context, { text: place, ways }) {
  const { site, state, text } = context;
  const misleads = element("span");
  context.write(place, "reading");
  context.write(misleads, "misleads");
  place.append(" ", misleads);
  const own = createCard(text("next.own"), text("next.own_line"));
  own.append(createButton(text("site:type_sentence"), "quiet", context.editText));
  const lesson = site.first_lesson;
  ways.replaceChildren(own);
  if (lesson) {
    const question = lesson.questions[state.lang];
    const card = createCard(text("next.lesson"), text("next.lesson_line", { question }));
    card.append(createLink(context, text("next.learn"), { page: "learn" }));
    ways.append(card);
  }
  const pages = createCard(text("next.page"), "");
  const list = element("ul");
  for (const page of PAGE_NAMES.slice(1)) {
    const entry = element("li");
    entry.append(createLink(context, text(`${page}:title`), { page }), ` ${lineOf(context, page)}`);
    list.append(entry);
  }
  pages.append(list);
  ways.append(pages);
}

/**
 * @param {string} title
 * @param {string} line
 */
function createCard(title, line) {
  const card = element("section", "card");
  card.append(element("h2", "", title));
  if (line) card.append(element("p", "", line));
  return card;
}

/** @param {Head} head */
const headName = ([layer, head]) => `L${layer} H${head}`;

/**
 * @param {PageContext} context
 * @param {Head} head
 */
const isPruned = ({ site }, [layer, head]) => site.model.pruned_heads[layer]?.includes(head) ?? false;

/** @param {import("../types.d.ts").SiteDescription["model"]} model */
const existingHeads = (model) => allHeads(model).filter(([layer, head]) => !model.pruned_heads[layer]?.includes(head));
