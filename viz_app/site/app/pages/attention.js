// The page Attention: the maps of all heads, one head in detail, and the heads that attend from one token to another.

import { curveLimit, layerReader, thumbnails } from "../../../components/array_maps.js";
import { element } from "../../../components/elements.js";
import { HeadView } from "../../../components/head_views.js";
import { twoDigits } from "../../../components/numbers.js";
import { fixedHeader, mountView, showHeadGrid } from "../../../components/run_views.js";
import { createButton, drawChoice, drawMissingTarget, writeReading } from "../controls.js";
import { tokenLabel } from "../encodings.js";
import {
  clickedEdge,
  currentEdge,
  edgeValues,
  existingHead,
  largestValue,
  mapOf,
  mapsOf,
  openingHead,
  prunedHeads,
} from "../find_heads.js";
import { createFoundHeads } from "../found_heads.js";

/** @import { Choice, Look, Token } from "../../../components/messages.d.ts" */
/** @import { Head, Page, PageContext, Places, Run, Shown, State } from "../types.d.ts" */

/** @type {State["view"][]} */
const VIEW_NAMES = ["heads", "curves", "matrix"];
/** @type {Shown[]} */
const SHOWN_MAPS = ["attention", "gradient", "product"];

/** @typedef {ReturnType<typeof createView>} AttentionView */

/**
 * What is drawn: a run and the selected maps of it.
 * @typedef {object} Content
 * @property {Run} run
 * @property {Shown} shown
 * @property {Float32Array} maps (layer, head, query, key)
 * @property {Head} head
 * @property {Token[]} tokens
 * @property {string} unit
 */

/** @type {Page} */
export const attentionPage = { draw };

/** @type {Page["draw"]} */
async function draw(context, places, memory) {
  memory.view ??= createView(places);
  const view = /** @type {AttentionView} */ (memory.view);
  view.context = context;
  drawControls(view, context);
  const content = await readContent(context);
  if (context.signal.aborted) return;
  const isMissing = context.state.show !== "attention" && content.run.target === null;
  if (isMissing) drawMissingTarget(view.missing, context, content.run, context.text("site:attention.missing_target"));
  else view.missing.replaceChildren();
  drawFigure(view, context, content);
  const texts = `views.${content.shown}`;
  const sums = content.shown === "attention" ? `${context.text("sums.whole")} ` : "";
  writeReading(places.reading, context, sums + context.text(`${texts}.reading`), context.text(`${texts}.misleads`));
}

/**
 * The elements of the page, which stay as long as it is open.
 * @param {Places} places
 */
function createView({ controls, figure }) {
  const [views, quantities] = [element("div"), element("div")];
  controls.append(views, quantities);
  const missing = element("div");
  const layout = element("div", "maps");
  const [small, large] = [element("div", "small"), element("div", "large")];
  const [gridHost, note, pairButton] = [element("div"), element("p", "note"), createButton("", "quiet", () => {})];
  const [result, headHost] = [element("p", "result"), element("div", "head-view")];
  result.setAttribute("role", "status");
  small.append(gridHost, note, pairButton);
  large.append(result, headHost);
  const found = createFoundHeads();
  layout.append(small, large, found.box);
  figure.append(missing, layout);
  return {
    context: /** @type {PageContext | null} */ (null),
    views,
    quantities,
    missing,
    layout,
    gridHost,
    note,
    pairButton,
    result,
    headHost,
    found,
    gridRoot: /** @type {ShadowRoot | null} */ (null),
    headView: /** @type {HeadView | null} */ (null),
    product: { name: "", maps: new Float32Array() }, // the last one, which takes time to compute
  };
}

/**
 * @param {AttentionView} view
 * @param {PageContext} context
 */
function drawControls({ views, quantities }, { state, text, change }) {
  drawChoice(views, {
    label: text("controls.view.label"),
    options: VIEW_NAMES.map((name) => [name, text(`controls.view.options.${name}`)]),
    value: state.view,
    onChoose: (view) => change({ view }),
  });
  drawChoice(quantities, {
    label: text("controls.show.label"),
    options: SHOWN_MAPS.map((name) => [name, text(`controls.show.options.${name}`)]),
    value: state.show,
    onChoose: (show) => change({ show }),
  });
}

/**
 * Return what the state selects: attention in place of a gradient without a target.
 * @param {PageContext} context
 * @returns {Promise<Content>}
 */
async function readContent({ state, runs, request, signal, text }) {
  const gradients = state.show !== "attention";
  const [run, full] = await Promise.all([
    runs.run(request({ gradients }), { signal }),
    state.head === null ? runs.run(request({ off: [], gradients: true }), { signal }) : null,
  ]);
  const shown = run.attentionGradient ? state.show : "attention";
  const opened = state.head ?? (full && openingHead(full)) ?? [0, 0];
  const template = text("frame:tokens.masked");
  return {
    run,
    shown,
    maps: mapsOf(run, shown),
    head: existingHead(run, opened),
    tokens: run.encoding.sides.map((side, position) => [tokenLabel(run.encoding, position, template), position, side]),
    unit: text(`library:units.${shown}`),
  };
}

/**
 * @param {AttentionView} view
 * @param {PageContext} context
 * @param {Content} content
 */
function drawFigure(view, context, content) {
  const { state } = context;
  view.layout.dataset.view = state.view;
  drawGrid(view, context, content);
  if (state.view === "heads") view.result.textContent = "";
  else drawHead(view, context, content);
  view.found.draw(context, content.run, currentEdge(content.run, content.head, state.edge)).catch(context.fail);
}

/**
 * All heads: small maps on one scale, or the attention weight of each from a query to a key.
 * @param {AttentionView} view
 * @param {PageContext} context
 * @param {Content} content
 */
function drawGrid(view, { state, site, text, change }, { run, shown, maps, head, unit }) {
  const { look } = site;
  view.gridRoot ??= mountView(view.gridHost, look.views.head_grid);
  const { layers, heads, encoding } = run;
  const edge = state.edge && currentEdge(run, head, state.edge);
  const signed = shown !== "attention";
  const form = formOf(run, signed, look);
  const size = state.view === "heads" ? look.thumbnails.large : look.thumbnails.small;
  const colours = edge
    ? { values: edgeValues(run, run.attention, edge), limit: 1, unit: text("library:units.attention") }
    : { thumbnails: thumbnails(maps, form, encoding.sides, size, look.thumbnails), signed, unit };
  const titles = Array.from({ length: layers }, (_, l) => Array.from({ length: heads }, (_, h) => `L${l} H${h}`));
  const off = state.off;
  const content = {
    look,
    layers,
    heads,
    selected: head,
    off,
    pruned: prunedHeads(run),
    titles,
    lecture: state.lecture,
  };
  showHeadGrid(view.gridRoot, { ...content, ...colours }, (layer, number) => {
    if (layer === null || number === null) return;
    change({ head: [layer, number], view: state.view === "heads" ? "curves" : state.view });
  });
  view.note.textContent = text(edge ? "grid_edge" : "grid");
  view.pairButton.textContent = text(edge ? "show_maps" : "find_pair");
  view.pairButton.title = text("find_pair_help");
  view.pairButton.onclick = () => change({ edge: edge ? null : currentEdge(run, head, null) });
}

/**
 * @param {Run} run
 * @param {boolean} signed
 * @param {Look} look
 */
function formOf({ layers, heads, encoding }, signed, look) {
  const length = encoding.tokens.length;
  return { layers, heads, rows: length, columns: length, signed, codes: look.constants.codes };
}

/**
 * One head in detail, and a sentence with its strongest value.
 * @param {AttentionView} view
 * @param {PageContext} context
 * @param {Content} content
 */
function drawHead(view, { state, site, write }, { run, shown, maps, head, tokens, unit }) {
  const { look } = site;
  view.headView ??= new HeadView(mountView(view.headHost, look.views.attention_view), (choice, before) =>
    takeChoice(view, choice, before),
  );
  const { headView } = view;
  const choice = choiceOf(state, head, headView.choice);
  if (JSON.stringify(choice) !== JSON.stringify(headView.choice)) headView.choice = choice;
  const signed = shown !== "attention";
  const fixed = { queries: tokens, keys: tokens, layers: run.layers, heads: run.heads, signed, unit };
  headView.show({
    name: `${run.name} ${shown}`,
    fixed: fixedHeader(look, { ...fixed, lecture: state.lecture }),
    exact: true,
    mode: state.view === "matrix" ? "matrix" : "curves",
    layer: layerReader(maps, formOf(run, signed, look), { listed: look.listed, off: state.off }),
    listed: look.listed,
    limit: state.view === "curves" ? curveLimit(maps, !signed) : null,
  });
  const { query, key, value } = largestValue(run, mapOf(run, maps, head), state.tokens);
  const side = state.tokens[0] === "key" && state.tokens[1].length ? "key" : "query";
  write(view.result, `result.${side}_${signed ? "other" : "attention"}`, {
    head: `L${head[0]} H${head[1]}`,
    query: namedToken(tokens[query]),
    key: namedToken(tokens[key]),
    value: twoDigits(value),
    quantity: unit,
  });
}

/** @param {Token} token */
const namedToken = ([text, position]) => `“${text}” (${position})`;

/**
 * Return the choice of the large view for a state; heads that were opened together with its head stay open.
 * @param {Readonly<State>} state
 * @param {Head} head
 * @param {Choice} before
 * @returns {Choice}
 */
function choiceOf({ tokens: [side, positions], kept_share }, [layer, head], before) {
  const isSame = before.layer === layer && before.heads[0] === head;
  return { layer, heads: isSame ? before.heads : [head], side, positions, kept: kept_share / 100 };
}

/**
 * Take over what was chosen in the large view: another head is a step of the history.
 * @param {AttentionView} view
 * @param {Choice} choice
 * @param {Choice} before
 */
function takeChoice({ context }, choice, before) {
  if (!context) return;
  /** @type {State["tokens"]} */
  const tokens = [choice.side, choice.positions];
  const isHead = choice.layer !== before.layer || choice.heads[0] !== before.heads[0];
  const edge = clickedEdge([before.side, before.positions], tokens);
  /** @type {Partial<State>} */
  const changes = { tokens, kept_share: Math.round(100 * choice.kept) };
  if (isHead) changes.head = [choice.layer, choice.heads[0]];
  if (edge) changes.edge = edge;
  context.change(changes, { replace: !(isHead || edge) });
}
