// The two views in a page of their own. What Streamlit's server answers in the app is answered here, from what the page
// holds.

import attentionView from "../components/attention_view/attention_view.js";
import { childrenOf, element, part } from "../components/elements.js";
import headGrid from "../components/head_grid/head_grid.js";
import { inflated, packed, unpack } from "../components/message.js";
import { everyLine, mapsIn } from "./page_maps.js";
import { drawPicture } from "./page_picture.js";

/** @import { Choice, Edge, GridHeader, Mode, PageHeader, PageVectors, Token } from "../components/messages.d.ts" */
/** @import { ViewHeader, ViewSaid } from "../components/messages.d.ts" */
/** @import { PageMap } from "./page_maps.js" */
/** @typedef {PageVectors & { bytes: Uint8Array }} Vectors */

const [shown, gridData] = await Promise.all([unpacked("shown"), unpacked("grid")]);
const about = /** @type {PageHeader} */ (JSON.parse(new TextDecoder().decode(shown)));
const grid = /** @type {{ header: GridHeader, tail: Uint8Array }} */ (unpack(gridData));
const { fixed, combined } = about;
const form = {
  rows: fixed.queries.length,
  columns: fixed.keys.length,
  exact: about.exact,
  signed: fixed.signed,
  codes: fixed.codes,
};
/** @type {Map<number, PageMap[]>} */
const layers = new Map();
// Several heads as one map: what is said of it, and the map.
const one = about.one && { ...about.one, map: mapsIn(await unpacked("one"), [0], form)[0] };
/** @type {Vectors[]} */
const vectors = await Promise.all(
  about.vectors.map(async (said, i) => ({ ...said, bytes: await unpacked(`vectors-${i}`) })),
);
const pixels = about.picture && (await unpacked("pixels"));
let { choice } = about;
/** @type {Mode} */
let mode = vectors.length ? "neuron" : about.mode;
let together = Boolean(one);
let alone = false; // whether the small maps have the page for themselves
let lecture = new URLSearchParams(location.search).get("lecture") === "1";
// The names of their orders; "" for by number.
const sorted = { heads: "", layers: "" };
// What the view holds, and the last of its choices that was answered.
let held = new Set();
let answered = 0;

byId("text").append(...sentences());
const buttons = modes();
chooseOrder();
const gridRoot = shadow("grid-view");
const viewRoot = shadow("head-view");
matchMedia("(prefers-color-scheme: dark)").onchange = () => show();
await show();
listChanges();
if (!pixels) byId("seen").remove();
byId("what").textContent = about.says;
document.body.dataset.ready = "1";

// ------------------------------------------------------------------------------------------------ what is shown

async function show() {
  const { layer } = choice;
  const maps = await mapsOf(layer);
  // Another layer was chosen while this one was unpacked.
  if (layer !== choice.layer) return;
  part(document.body, "main").classList.toggle("alone", alone);
  for (const { button, pressed } of buttons) button.setAttribute("aria-pressed", String(pressed()));
  document.documentElement.classList.toggle("lecture", lecture);
  /** @type {GridHeader} */
  const header = {
    ...grid.header,
    selected: [layer, choice.heads[0]],
    order: about.sorts[sorted.heads]?.[0] ?? null,
    rows: about.sorts[sorted.layers]?.[1] ?? null,
    lecture,
  };
  headGrid({
    data: packed(header, [grid.tail]),
    parentElement: gridRoot,
    setTriggerValue: (_, log) => {
      const [, place] = /** @type {[number, [number, number]][]} */ (log).slice(-1)[0];
      open(...place);
    },
    setStateValue: () => {},
  });
  showPicture(maps);
  attentionView({
    data: answer(layer, maps),
    parentElement: viewRoot,
    setTriggerValue: () => {},
    setStateValue: (_, said) => heard(/** @type {ViewSaid} */ (said)),
  });
}

/**
 * One head alone: a click in the grid or in the list, or the head whose vectors are wanted.
 * @param {number} layer
 * @param {number} head
 */
function open(layer, head) {
  alone = false;
  choose({ ...choice, layer, heads: [head] }, Math.max(answered + 1, Date.now()));
  show();
}

/**
 * Several heads as one map are those that the page was made with, and only some heads have their vectors here.
 * @param {Choice} chosen
 * @param {number} stamp
 */
function choose(chosen, stamp) {
  if (chosen.layer !== choice.layer || String(chosen.heads) !== String(choice.heads)) together = false;
  [choice, answered] = [chosen, stamp];
  if (mode === "neuron" && !vectorsHere()) mode = "curves";
}

/**
 * A choice in the view, or that it lacks a map.
 * @param {ViewSaid} said
 */
function heard(said) {
  held = new Set(said.have);
  const chosen = said.choice && said.stamp > answered;
  if (said.choice && chosen) choose(said.choice, said.stamp);
  const seen = mode === "neuron" && vectorsHere();
  const needed = [
    ...wanted(choice.layer).map((head) => name(choice.layer, head)),
    ...(seen ? [vectorsName(seen)] : []),
  ];
  if (chosen || needed.some((one) => !held.has(one))) setTimeout(show);
}

/**
 * The view's message.
 * @param {number} layer
 * @param {PageMap[]} maps
 */
function answer(layer, maps) {
  const here = about.layers[layer];
  const drawn = drawnOf(layer);
  const asOne = drawn.includes(combined) ? one : null;
  const sent = wanted(layer).filter((head) => !held.has(name(layer, head)));
  const known = [...existing(layer), ...(one ? [combined] : [])];
  const strongest = drawn.flatMap((head) =>
    (asOne?.strongest ?? here.strongest[head]).map((edge) => /** @type {Edge} */ ([head, ...edge])),
  );
  strongest.sort((a, b) => Math.abs(b[3]) - Math.abs(a[3]));
  const seen = mode === "neuron" ? vectorsHere() : null;
  const lines = about.exact && drawn.length ? everyLine(form) : [];
  /** @type {ViewHeader} */
  const header = {
    ...fixed,
    lecture,
    layer,
    mode,
    names: Object.fromEntries(known.map((head) => [head, name(layer, head)])),
    sent,
    lines,
    drawn,
    combined: asOne?.name ?? null,
    query: 0,
    vectors: seen && {
      name: vectorsName(seen),
      size: seen.size,
      distances: seen.distances,
      terms: seen.terms,
      causal: seen.causal,
      window: seen.window,
      rotated: seen.rotated,
      sent: !held.has(vectorsName(seen)),
    },
    limit: mode === "matrix" ? about.cap : about.limit,
    notes: about.notes,
    heads: choice.heads,
    selected: [choice.side, choice.positions],
    kept: choice.kept,
    stamp: answered,
    pruned: here.pruned,
    off: here.off,
    holes: Object.fromEntries(drawn.map((head) => [head, asOne?.holes ?? here.holes[head]])),
    strongest: strongest.slice(0, about.strongest),
    hatching: mode === "neuron" ? null : (asOne ?? here).hatching,
  };
  const parts = sent.map((head) => mapIn(maps, head).coded());
  if (seen && header.vectors?.sent) parts.push(seen.bytes);
  for (const head of lines.length ? drawn : []) parts.push(mapIn(maps, head).lines());
  for (const head of sent) held.add(name(layer, head));
  if (seen) held.add(vectorsName(seen));
  return packed(header, parts);
}

/**
 * What is drawn large: one map in the heads' stead, the chosen heads that exist, or in a matrix the first of them.
 * @param {number} layer
 */
function drawnOf(layer) {
  if (mode === "neuron") return [];
  if (together) return [combined];
  const there = existing(layer);
  return (mode === "curves" ? choice.heads : choice.heads.slice(0, 1)).filter((head) => there.includes(head));
}

/**
 * The maps that the view should have. Thin matrices are only multiplied when they are looked at.
 * @param {number} layer
 */
function wanted(layer) {
  const drawn = drawnOf(layer);
  const quick = mode !== "neuron" && !about.layers[layer].ranks.some(Boolean);
  return quick ? [...new Set([...drawn, ...existing(layer)])] : drawn;
}

function vectorsHere() {
  return vectors.find(({ layer, head }) => layer === choice.layer && head === choice.heads[0]) ?? null;
}

/**
 * @param {number} layer
 * @param {number} head
 */
function name(layer, head) {
  return head === combined ? `${about.name} together` : `${about.name} L${layer} H${head}`;
}

/** @param {PageVectors} head */
function vectorsName({ layer, head }) {
  return `${about.name} L${layer} H${head} vectors`;
}

/** @param {number} layer */
function existing(layer) {
  return [...Array(fixed.count).keys()].filter((head) => !about.layers[layer].pruned.includes(head));
}

// ------------------------------------------------------------------------------------------------ what the page holds

/**
 * The maps of a layer; unpacked when it is first looked at.
 * @param {number} layer
 */
async function mapsOf(layer) {
  const here = layers.get(layer) ?? mapsIn(await unpacked(`layer-${layer}`), about.layers[layer].ranks, form);
  layers.set(layer, here);
  return here;
}

/**
 * @param {PageMap[]} maps
 * @param {number} head
 */
function mapIn(maps, head) {
  return one && head === combined ? one.map : maps[head];
}

/** @param {string} id */
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (sign) => sign.charCodeAt(0));
  return new Uint8Array(await inflated(bytes));
}

// ------------------------------------------------------------------------------------------------ elements

/** @param {string} id */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * Each view stands behind a shadow, as in the app, so that its style is its own.
 * @param {string} id
 */
function shadow(id) {
  const root = byId(id).attachShadow({ mode: "open" });
  root.append(/** @type {HTMLTemplateElement} */ (byId(`${id}-markup`)).content);
  return root;
}

/** What was read, a line each; the label of a line says whose it is. */
function sentences() {
  return about.texts.map(([label, parts]) => {
    const line = element("div");
    if (label) line.append(element("span", "label", label));
    line.append(...parts.map((text, i) => element("span", i ? "b" : "a", text)));
    for (const part of childrenOf(line)) part.dir = "auto";
    return line;
  });
}

/** The ways to look, in groups of which one button is pressed: each button, and whether it is. */
function modes() {
  /** @typedef {{ text: string, act: () => void, pressed: () => boolean }} Way */
  /** @type {{ button: HTMLButtonElement, pressed: () => boolean }[]} */
  const made = [];
  const group = (/** @type {Way[]} */ ...ways) => {
    const box = element("div", "modes");
    box.setAttribute("role", "group");
    for (const { text, act, pressed } of ways) {
      const button = element("button", "", text);
      button.type = "button";
      button.onclick = () => {
        act();
        show();
      };
      made.push({ button, pressed });
      box.append(button);
    }
    byId("modes").append(box);
  };
  const large = (/** @type {string} */ text, /** @type {() => void} */ act, /** @type {() => boolean} */ pressed) => ({
    text,
    act: () => {
      alone = false;
      act();
    },
    pressed,
  });
  const drawn = (/** @type {string} */ text, /** @type {Mode} */ next) =>
    large(
      text,
      () => {
        mode = next;
      },
      () => mode === next && !alone,
    );
  const asOne = (/** @type {string} */ text, /** @type {boolean} */ next) =>
    large(
      text,
      () => {
        together = next;
      },
      () => together === next,
    );
  const toVectors = (/** @type {Vectors} */ { layer, head }) =>
    large(
      `Query-key L${layer} H${head}`,
      () => {
        mode = "neuron";
        choose({ ...choice, layer, heads: [head] }, Math.max(answered + 1, Date.now()));
      },
      () => mode === "neuron" && !alone && choice.layer === layer && choice.heads[0] === head,
    );
  const allHeads = () => {
    alone = true;
  };
  const larger = () => {
    lecture = !lecture;
  };
  group(
    { text: "All heads", act: allHeads, pressed: () => alone },
    drawn("Head", "curves"),
    drawn("Matrix", "matrix"),
    ...vectors.map(toVectors),
  );
  if (one) group(asOne(one.name, true), asOne("heads apart", false));
  group({ text: "Larger type", act: larger, pressed: () => lecture });
  return made;
}

/** In which order heads stand in their layer, and layers below each other. */
function chooseOrder() {
  const names = Object.keys(about.sorts);
  if (!names.length) return;
  const offer = (/** @type {"heads" | "layers"} */ what, /** @type {string} */ text, /** @type {string[]} */ there) => {
    const label = element("label", "", text);
    const select = element("select");
    select.append(...["by number", ...there].map((name) => element("option", "", name)));
    select.onchange = () => {
      sorted[what] = select.value;
      show();
    };
    label.append(select);
    byId("sorting").append(label);
  };
  offer("heads", "Heads of a layer", names);
  offer(
    "layers",
    "Layers",
    names.filter((name) => about.sorts[name][1]),
  );
}

/**
 * The picture under the row of the word that is selected.
 * @param {PageMap[]} maps
 */
function showPicture(maps) {
  if (!about.picture || !pixels) return;
  const selected = (/** @type {Token} */ [, at]) => choice.side === "query" && choice.positions.includes(at);
  const word = Math.max(fixed.queries.findIndex(selected), 0);
  const [head] = drawnOf(choice.layer);
  const [canvas, caption] = childrenOf(byId("seen"));
  const scale = fixed.colours[Number(getComputedStyle(document.body).colorScheme === "dark")];
  const values = mapIn(maps, head).row(word);
  drawPicture(/** @type {HTMLCanvasElement} */ (canvas), pixels, about.picture, values, scale, fixed.signed);
  const whose = one && head === combined ? one.name : `L${choice.layer} H${head}`;
  const said = `“${fixed.queries[word][0]}”, ${whose}`;
  canvas.setAttribute("aria-label", `${fixed.unit} over the picture for ${said}`);
  caption.textContent = said;
  caption.dir = "auto";
}

/** The largest changes as a table; a click on a line opens its head. */
function listChanges() {
  const box = byId("changes");
  if (!about.changes) return box.remove();
  const [names, lines] = about.changes;
  if (!lines.length) return box.replaceChildren(element("p", "faint", "Nothing changed at all."));
  const table = element("table");
  const head = element("tr");
  head.append(...names.map((text) => element("th", "", text)));
  table.append(head);
  for (const [layer, number, cells] of lines) {
    const row = element("tr");
    const button = element("button", "", String(cells[0]));
    button.type = "button";
    button.onclick = () => open(layer, number);
    const first = element("td");
    first.append(button);
    row.append(first, ...cells.slice(1).map(cell));
    for (const one of childrenOf(row)) one.dir = "auto";
    table.append(row);
  }
  box.append(table);
}

/** @param {string | number} what */
function cell(what) {
  if (typeof what !== "number") return element("td", "", what);
  return element("td", "number", what.toFixed(4).replace("-", "−"));
}
