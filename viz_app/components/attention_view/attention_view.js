// Heads of one layer, as curves, one of them as a matrix or down to its vectors. Here is what every mode has.
// Messages come in by arriving.js, choices go out by choosing.js, shown.js says what of the maps is seen; curves.js,
// matrix.js with matrix_picture.js, and vectors.js are the modes.

import { isDark, shades } from "../colour.js";
import { childrenOf, element, part } from "../elements.js";
import { hearOpened } from "../opened.js";
import { arrive } from "./arriving.js";
import { rem } from "./canvas.js";
import { ask, choose, open } from "./choosing.js";
import { column, listenToHeads, listenToTokens, swatches, tokenElement } from "./columns.js";
import { drawCurves } from "./curves.js";
import { listenToMatrix, mountMatrix } from "./matrix.js";
import { drawMatrix } from "./matrix_picture.js";
import { edgesTable, showNumbers } from "./panel.js";
import { activeTokens, isMatrix, isNeuron, showsOne, sums, tokens } from "./shown.js";
import { drawVectors, listenToVectors, pairOf, showSum } from "./vectors.js";

/** @import { Handed, Side, ViewHeader } from "../messages.d.ts" */
/** @import { View } from "./view.d.ts" */

const BOTH = /** @type {Side[]} */ (["query", "key"]);

/** @param {Handed<Uint8Array<ArrayBuffer>>} handed */
export default function attentionView({ data, parentElement, setStateValue }) {
  const root = /** @type {HTMLElement & { view?: View }} */ (part(parentElement, ".view"));
  root.view ??= mount(root, part(parentElement, ".tip"));
  const { view } = root;
  view.say = (said) => setStateValue("said", said);
  arrive(view, data, (before) => show(view, before));
}

/**
 * @param {HTMLElement} root
 * @param {HTMLElement} tip
 */
function mount(root, tip) {
  const view = /** @type {View} */ ({ root, tip, focus: null, cell: null, asked: null, pointed: null, window: null });
  view.chosenAt = view.drawing = 0;
  view.refresh = () => refresh(view);
  view.redraw = () => redraw(view);
  const layer = element("div", "layer");
  const step = (/** @type {number} */ by, /** @type {string} */ text, /** @type {string} */ name) => {
    const button = element("button", "step", text);
    button.type = "button";
    button.setAttribute("aria-label", name);
    button.onclick = () => choose(view, { layer: view.choice.layer + by }, 0);
    return button;
  };
  view.earlier = step(-1, "‹", "the layer before");
  view.later = step(1, "›", "the next layer");
  view.layerName = element("span", "name");
  layer.append(view.earlier, view.layerName, view.later);

  view.heads = element("div", "heads");
  view.heads.setAttribute("role", "toolbar");
  view.heads.setAttribute("aria-label", "Heads; a click adds or removes one, a double click shows it alone");

  view.keep = element("label", "keep");
  view.keepName = element("span");
  view.slider = element("input");
  view.slider.type = "range";
  view.slider.step = "5";
  view.slider.oninput = () => choose(view, { kept: Number(view.slider.value) / 100 });
  view.keep.append(view.keepName, view.slider);

  const bar = element("div", "bar");
  bar.append(layer, view.heads);
  view.note = element("div", "note");
  view.note.setAttribute("role", "status");
  const under = element("div", "bar");
  under.append(view.keep, view.note);

  const titles = element("div", "titles");
  titles.append(element("span", "", "query (from)"), element("span", "", "key (to)"));
  view.stage = element("div", "stage");
  view.columns = element("div", "columns");
  view.canvas = element("canvas");
  view.canvas.setAttribute("aria-hidden", "true");
  view.query = column("query", "Queries (from)");
  view.key = column("key", "Keys (to)");
  view.columns.append(view.query, view.canvas, view.key);
  view.stage.append(view.columns);
  view.curves = element("div", "curves");
  view.crown = element("canvas", "crown");
  view.crown.setAttribute("aria-hidden", "true");
  view.curves.append(titles, view.crown, view.stage);
  const picture = element("div", "picture");
  picture.append(view.curves, mountMatrix(view));
  view.numbers = element("div", "numbers");
  view.body = element("div", "body");
  view.body.append(picture, view.numbers);
  view.table = element("table", "unseen");
  root.append(bar, under, view.body, view.table);

  listenToHeads(view);
  listenToTokens(view);
  listenToMatrix(view);
  listenToVectors(view);
  hearOpened(root, (opened) => open(view, opened));
  const observer = new ResizeObserver(() => {
    if (view.header?.fills) setRows(view);
    redraw(view);
  });
  for (const one of [view.stage, view.matrix, view.matrixBox]) observer.observe(one);
  return view;
}

/**
 * A message has come.
 * @param {View} view
 * @param {ViewHeader | undefined} before
 */
function show(view, before) {
  const { header } = view;
  const same = (/** @type {keyof ViewHeader} */ name) =>
    before && JSON.stringify(before[name]) === JSON.stringify(header[name]);
  const sameText = same("queries") && same("keys") && same("lecture");
  if (!sameText || !same("mode")) view.cell = view.pointed = view.asked = null;
  if (!sameText) view.window = null;
  build(view, Boolean(sameText));
  refresh(view);
}

/**
 * The elements: the columns stay as long as the text does, so that the focus and the place stay too.
 * @param {View} view
 * @param {boolean} sameText
 */
function build(view, sameText) {
  const { header, root, slider } = view;
  root.classList.toggle("lecture", header.lecture);
  root.classList.toggle("fills", Boolean(header.fills));
  root.classList.toggle("compact", Boolean(header.compact));
  view.tip.classList.toggle("lecture", header.lecture);
  view.dark = isDark(root);
  view.colours = shades(header.colours[view.dark ? 1 : 0]);
  view.signColours = shades(header.signColours[view.dark ? 1 : 0]);
  for (const [side, scale] of Object.entries(header.tints)) {
    root.style.setProperty(`--tint-${side.toLowerCase()}`, scale[view.dark ? 1 : 0][0]);
  }
  [slider.min, slider.max] = header.keeps.map((share) => String(Math.round(share * 100)));
  setRows(view);
  if (!sameText) {
    view.focus = null;
    view.tip.hidePopover();
    root.classList.toggle("long", header.keys.filter(([text]) => text.length > 12).length * 2 > header.keys.length);
    for (const side of BOTH) {
      view[side].replaceChildren(...tokens(view, side).map(tokenElement));
      childrenOf(view[side])[0].tabIndex = 0;
    }
    const { side, positions } = view.choice;
    const first = tokens(view, side).findIndex(([, position]) => positions.includes(position));
    view.stage.scrollTop = Math.max(first - 5, 0) * view.row; // the first that is selected is in sight
  }
  if (view.heads.children.length !== header.count) {
    view.heads.replaceChildren(...Array.from({ length: header.count }, (_, head) => headButton(view, head)));
  }
}

/**
 * @param {View} view
 * @param {number} head
 */
function headButton({ header: { headColours } }, head) {
  const button = element("button", "head", `H${head}`);
  button.type = "button";
  button.tabIndex = head === 0 ? 0 : -1;
  button.dataset.head = String(head);
  button.style.setProperty("--colour", headColours[head % headColours.length]);
  return button;
}

/**
 * As high as lets every token be seen, as long as they can be read.
 * @param {View} view
 */
function setRows(view) {
  const { header, root, stage, columns } = view;
  const longest = Math.max(header.queries.length, header.keys.length);
  let [least, most, room] = header.lecture ? [24, 36, 900] : [18, 26, 660];
  if (header.fills) [least, most, room] = [0.95 * rem(), 2 * rem(), stage.clientHeight];
  view.row = Math.floor(Math.min(most, Math.max(least, room / longest)));
  root.style.setProperty("--row", `${view.row}px`);
  columns.style.height = `${longest * view.row}px`;
}

/**
 * Everything that follows from the choice and from what is looked at.
 * @param {View} view
 */
function refresh(view) {
  const { header, choice } = view;
  view.layerName.textContent = `L${choice.layer}`;
  view.earlier.disabled = choice.layer <= 0;
  view.later.disabled = choice.layer >= header.layers - 1;
  for (const button of /** @type {HTMLButtonElement[]} */ (childrenOf(view.heads))) {
    const head = Number(button.dataset.head);
    const on = showsOne(view) ? choice.heads[0] === head : choice.heads.includes(head);
    const off = header.off.includes(head);
    button.classList.toggle("off", off);
    button.setAttribute("aria-pressed", String(on));
    button.disabled = header.pruned.includes(head);
    const state = button.disabled ? ", pruned" : off ? ", switched off" : "";
    button.setAttribute("aria-label", `H${head}${state}`);
  }
  view.body.classList.toggle("stacked", header.mode !== "curves");
  view.body.classList.toggle("vectors", isNeuron(view));
  view.curves.hidden = isMatrix(view);
  view.matrixBox.hidden = !isMatrix(view);
  view.keep.hidden = header.mode !== "curves";
  view.crown.hidden = !isNeuron(view);
  view.canvas.classList.toggle("cells", isNeuron(view));
  view.canvas.classList.toggle("off", Boolean(header.compact) && header.off.includes(choice.heads[0]));
  const share = Math.round(choice.kept * 100);
  view.slider.value = String(share);
  view.keepName.textContent = `strongest ${share}% of each row`;
  const pair = isNeuron(view) ? pairOf(view) : null;
  const active = pair ? null : activeTokens(view);
  const found = active ? sums(view, active) : [];
  view.stage.classList.toggle("narrowed", Boolean(active));
  for (const side of isMatrix(view) ? [] : BOTH) {
    const chosen = new Set(choice.side === side ? choice.positions : []);
    childrenOf(view[side]).forEach((node, i) => {
      node.setAttribute("aria-selected", String(chosen.has(tokens(view, side)[i][1])));
      const lit = pair ? pair[side] === i : active?.side === side && active.indices.includes(i);
      node.classList.toggle("lit", lit);
      node.style.backgroundImage = active && side !== active.side ? swatches(view, found, i) : "";
    });
  }
  if (pair) showSum(view, pair);
  else showNumbers(view, active, found);
  if (view.listed !== header) edgesTable(view);
  view.listed = header;
  redraw(view);
  if (!pair) ask(view);
}

/**
 * Drawn once before the next frame, however many things changed.
 * @param {View} view
 */
function redraw(view) {
  if (view.drawing || !view.header) return;
  view.drawing = requestAnimationFrame(() => {
    view.drawing = 0;
    if (isMatrix(view)) drawMatrix(view);
    else if (isNeuron(view)) drawVectors(view);
    else drawCurves(view);
  });
}
