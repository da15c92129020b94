// The two views in a page of their own. What Streamlit's server answers in the app is answered here, from what the page
// holds.

import { childrenOf, element, part } from "../components/elements.js";
import { drawHeadGrid, HeadView } from "../components/head_views.js";
import { inflated, unpack } from "../components/message.js";
import { mapsIn } from "../components/page_maps.js";
import { drawPicture } from "./page_picture.js";

/** @import { CombinedMap, HeadContent, LayerHeads, Vectors } from "../components/head_views.js" */
/** @import { Choice, GridHeader, Mode, PageHeader, Token } from "../components/messages.d.ts" */
/** @import { PageMap } from "../components/page_maps.js" */

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
/** @type {Map<number, LayerHeads>} */
const layers = new Map();
/** @type {CombinedMap | null} */
const one = about.one && { ...about.one, head: combined, map: mapsIn(await unpacked("one"), [0], form)[0] };
/** @type {Vectors[]} */
const vectors = await Promise.all(
  about.vectors.map(async (said, i) => ({ ...said, bytes: await unpacked(`vectors-${i}`) })),
);
const pixels = about.picture && (await unpacked("pixels"));
/** @type {Mode} */
let mode = vectors.length ? "neuron" : about.mode;
let together = Boolean(one);
let alone = false; // whether the small maps have the page for themselves
let lecture = new URLSearchParams(location.search).get("lecture") === "1";
// The names of their orders; "" for by number.
const sorted = { heads: "", layers: "" };

byId("text").append(...sentences());
const buttons = modes();
chooseOrder();
const gridRoot = shadow("grid-view");
const view = new HeadView(
  shadow("head-view"),
  (_, previousChoice) => {
    follow(previousChoice);
    show();
  },
  about.choice,
);
matchMedia("(prefers-color-scheme: dark)").onchange = () => show();
await show();
listChanges();
if (!pixels) byId("seen").remove();
byId("what").textContent = about.says;
document.body.dataset.ready = "1";

// ------------------------------------------------------------------------------------------------ what is shown

async function show() {
  part(document.body, "main").classList.toggle("alone", alone);
  for (const { button, pressed } of buttons) button.setAttribute("aria-pressed", String(pressed()));
  document.documentElement.classList.toggle("lecture", lecture);
  /** @type {GridHeader} */
  const header = {
    ...grid.header,
    selected: [view.choice.layer, view.choice.heads[0]],
    order: about.sorts[sorted.heads]?.[0] ?? null,
    rows: about.sorts[sorted.layers]?.[1] ?? null,
    lecture,
  };
  drawHeadGrid(gridRoot, header, grid.tail, (layer, head) => open(Number(layer), Number(head)));
  const maps = await view.show(content());
  if (maps) showPicture(maps);
}

/** @returns {HeadContent} */
function content() {
  return {
    name: about.name,
    fixed: { ...fixed, lecture },
    exact: about.exact,
    mode,
    layer: headsOf,
    listed: about.strongest,
    combined: together ? one : null,
    vectors: vectorsHere(),
    limit: mode === "matrix" ? about.cap : about.limit,
    notes: about.notes,
  };
}

/**
 * One head alone: a click in the grid or in the list, or the head whose vectors are wanted.
 * @param {number} layer
 * @param {number} head
 */
function open(layer, head) {
  alone = false;
  choose(layer, head);
  show();
}

/**
 * @param {number} layer
 * @param {number} head
 */
function choose(layer, head) {
  const previousChoice = view.choice;
  view.open(layer, head);
  follow(previousChoice);
}

/**
 * Several heads as one map are those that the page was made with, and only some heads have their vectors here.
 * @param {Choice} previousChoice
 */
function follow(previousChoice) {
  const { layer, heads } = view.choice;
  if (layer !== previousChoice.layer || String(heads) !== String(previousChoice.heads)) together = false;
  if (mode === "neuron" && !vectorsHere()) mode = "curves";
}

function vectorsHere() {
  const { layer, heads } = view.choice;
  return vectors.find((one) => one.layer === layer && one.head === heads[0]) ?? null;
}

// ------------------------------------------------------------------------------------------------ what the page holds

/**
 * The heads of a layer; unpacked when it is first looked at. Thin matrices are only multiplied when they are looked at.
 * @param {number} layer
 */
async function headsOf(layer) {
  const { ranks, ...fields } = about.layers[layer];
  const heads = layers.get(layer) ?? {
    ...fields,
    maps: mapsIn(await unpacked(`layer-${layer}`), ranks, form),
    isEager: !ranks.some(Boolean),
  };
  layers.set(layer, heads);
  return heads;
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
        choose(layer, head);
      },
      () => mode === "neuron" && !alone && view.choice.layer === layer && view.choice.heads[0] === head,
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
 * @param {Map<number, PageMap>} maps that are drawn
 */
function showPicture(maps) {
  if (!about.picture || !pixels) return;
  const { layer, side, positions } = view.choice;
  const selected = (/** @type {Token} */ [, at]) => side === "query" && positions.includes(at);
  const word = Math.max(fixed.queries.findIndex(selected), 0);
  const [[head, map]] = maps;
  const [canvas, caption] = childrenOf(byId("seen"));
  const scale = fixed.colours[Number(getComputedStyle(document.body).colorScheme === "dark")];
  const values = map.row(word);
  drawPicture(/** @type {HTMLCanvasElement} */ (canvas), pixels, about.picture, values, scale, fixed.signed);
  const whose = one && head === combined ? one.name : `L${layer} H${head}`;
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
