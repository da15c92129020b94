// The view of the heads of a layer on a page without a server: here the script answers what the view asks for.

import attentionView from "./attention_view/attention_view.js";
import headGrid from "./head_grid/head_grid.js";
import { packed } from "./message.js";
import { everyLine } from "./page_maps.js";

/** @import { Choice, Click, Edge, FixedHeader, GridHeader, Mode } from "./messages.d.ts" */
/** @import { PageLayer, PageOne, PageVectors, VectorsSaid, ViewHeader, ViewSaid } from "./messages.d.ts" */
/** @import { PageMap } from "./page_maps.js" */

/**
 * The heads of a layer. isEager: whether the maps of all heads are sent with those that are drawn.
 * @typedef {Omit<PageLayer, "ranks"> & { maps: PageMap[], isEager: boolean }} LayerHeads
 */
/**
 * Several heads as one map. head: the number that stands for it among the heads.
 * @typedef {PageOne & { head: number, map: PageMap }} CombinedMap
 */
/**
 * The vectors of a head. bytes: queries, keys and distances, in float32.
 * @typedef {PageVectors & { bytes: Uint8Array }} Vectors
 */
/**
 * The content of the view.
 * @typedef {object} HeadContent
 * @property {string} name of the numbers: the view keeps maps by name, so other numbers need another name
 * @property {FixedHeader} fixed
 * @property {boolean} exact whether rows and columns are sent in float32
 * @property {Mode} mode
 * @property {(layer: number) => LayerHeads | Promise<LayerHeads>} layer returns the heads of a layer
 * @property {number} listed length of the table of the strongest edges
 * @property {CombinedMap | null} [combined] drawn in place of the chosen heads
 * @property {Vectors | null} [vectors] of the opened head, for the mode "neuron"
 * @property {number} [query] position of the token whose vectors are drawn if none is selected
 * @property {number | null} [limit] the value of the strongest colour; null for the largest of those that are drawn
 * @property {string[]} [notes] sentences about the rows
 * @property {boolean} [compact] whether only the curves are drawn
 * @property {boolean} [fills] whether the view is as high as its place
 */

/** @type {Choice} */
const FIRST_CHOICE = { layer: 0, heads: [0], side: "query", positions: [], kept: 0.7 };

/** The view of the heads of one layer. It sends the maps that the view lacks, and draws each choice. */
export class HeadView {
  /** @type {ShadowRoot} */
  #root;
  /** @type {(choice: Choice, previousChoice: Choice) => void} */
  #onChoice;
  /** @type {Choice} */
  #choice;
  /** @type {typeof attentionView} */
  #drawView;
  /** @type {HeadContent | null} */
  #content = null;
  #stamp = 0; // of the last choice
  #drawings = 0; // number of drawings that were begun
  /** @type {Set<string>} */
  #availableNames = new Set(); // names of the maps and vectors that the view has
  /** @type {string[]} */
  #neededNames = []; // names in the last message

  /**
   * @param {ShadowRoot} root with the markup of the view
   * @param {(choice: Choice, previousChoice: Choice) => void} onChoice called with each choice in the view before it is
   *   drawn; it may call `show` with other content
   * @param {Choice} [choice] the first one
   * @param {typeof attentionView} [drawView] takes each message
   */
  constructor(root, onChoice, choice = FIRST_CHOICE, drawView = attentionView) {
    this.#root = root;
    this.#onChoice = onChoice;
    this.#choice = choice;
    this.#drawView = drawView;
  }

  get choice() {
    return this.#choice;
  }

  /** A choice that is set here is drawn with the next `show`. */
  set choice(choice) {
    this.#choice = choice;
    this.#stamp = Math.max(this.#stamp + 1, Date.now());
  }

  /**
   * Choose one head.
   * @param {number} layer
   * @param {number} head
   */
  open(layer, head) {
    this.choice = { ...this.#choice, layer, heads: [head] };
  }

  /**
   * Draw some content with the current choice.
   * @param {HeadContent} content
   * @returns {Promise<Map<number, PageMap> | null>} the maps that are drawn, by head; null if something newer is drawn
   */
  show(content) {
    this.#content = content;
    return this.#draw(content);
  }

  /** @param {HeadContent} content */
  async #draw(content) {
    const number = ++this.#drawings;
    const { layer } = this.#choice;
    const heads = await content.layer(layer);
    // Other content or another layer was chosen since, and is drawn next.
    if (number !== this.#drawings || layer !== this.#choice.layer) return null;
    const drawnMaps = mapsToDraw(content, this.#choice, heads);
    this.#drawView({
      data: this.#message(content, heads, drawnMaps),
      parentElement: this.#root,
      setTriggerValue: () => {},
      setStateValue: (_, message) => this.#receive(/** @type {ViewSaid} */ (message)),
    });
    return drawnMaps;
  }

  /**
   * A message of the view: a choice, or what it has.
   * @param {ViewSaid} message
   */
  #receive({ have, choice, stamp }) {
    this.#availableNames = new Set(have);
    const [previousChoice, drawings] = [this.#choice, this.#drawings];
    const isNew = choice !== null && stamp > this.#stamp;
    if (isNew) [this.#choice, this.#stamp] = [choice, stamp];
    if (!isNew && this.#neededNames.every((name) => this.#availableNames.has(name))) return;
    // The view may still be reading the message that it answers.
    setTimeout(() => {
      if (isNew) this.#onChoice(this.#choice, previousChoice);
      if (this.#content && drawings === this.#drawings) this.#draw(this.#content);
    });
  }

  /**
   * The message to the view.
   * @param {HeadContent} content
   * @param {LayerHeads} heads
   * @param {Map<number, PageMap>} drawnMaps
   */
  #message(content, heads, drawnMaps) {
    const { fixed, mode, combined = null, compact, fills } = content;
    const { layer, side, positions, kept } = this.#choice;
    const nameOf = (/** @type {number} */ head) =>
      `${content.name} ${head === combined?.head ? "together" : `L${layer} H${head}`}`;
    const vectors = mode === "neuron" ? vectorsHeader(content, this.#availableNames) : null;
    const existingMaps = [...heads.maps.entries()].filter(([head]) => !heads.pruned.includes(head));
    const neededMaps = heads.isEager && mode !== "neuron" ? new Map([...drawnMaps, ...existingMaps]) : drawnMaps;
    const newMaps = [...neededMaps].filter(([head]) => !this.#availableNames.has(nameOf(head)));
    const lines =
      content.exact && drawnMaps.size ? everyLine({ rows: fixed.queries.length, columns: fixed.keys.length }) : [];
    /** @type {ViewHeader} */
    const header = {
      ...fixed,
      compact,
      fills,
      layer,
      mode,
      names: Object.fromEntries([...existingMaps, ...drawnMaps].map(([head]) => [head, nameOf(head)])),
      sent: newMaps.map(([head]) => head),
      lines,
      drawn: [...drawnMaps.keys()],
      combined: mode === "neuron" ? null : (combined?.name ?? null),
      query: content.query ?? 0,
      vectors,
      limit: content.limit ?? null,
      notes: content.notes ?? [],
      heads: this.#choice.heads,
      selected: [side, positions],
      kept,
      stamp: this.#stamp,
      pruned: heads.pruned,
      off: heads.off,
      holes: Object.fromEntries([...drawnMaps.keys()].map((head) => [head, combined?.holes ?? heads.holes[head]])),
      strongest: strongestOf([...drawnMaps.keys()], combined, heads).slice(0, content.listed),
      hatching: mode === "neuron" ? null : (combined ?? heads).hatching,
    };
    const parts = newMaps.map(([, map]) => map.coded());
    if (vectors?.sent && content.vectors) parts.push(content.vectors.bytes);
    if (lines.length) parts.push(...[...drawnMaps.values()].map((map) => map.lines()));
    this.#neededNames = [...[...neededMaps.keys()].map(nameOf), ...(vectors ? [vectors.name] : [])];
    for (const name of this.#neededNames) this.#availableNames.add(name);
    return packed(header, parts);
  }
}

/**
 * The maps that are drawn, by head: the combined one, the chosen heads that exist, or in a matrix the first of them.
 * @param {HeadContent} content
 * @param {Choice} choice
 * @param {LayerHeads} heads
 * @returns {Map<number, PageMap>}
 */
function mapsToDraw({ mode, combined }, choice, { maps, pruned }) {
  if (mode === "neuron") return new Map();
  if (combined) return new Map([[combined.head, combined.map]]);
  const openHeads = mode === "curves" ? choice.heads : choice.heads.slice(0, 1);
  return new Map(openHeads.filter((head) => maps[head] && !pruned.includes(head)).map((head) => [head, maps[head]]));
}

/**
 * The description of the vectors of the opened head; null if there are none.
 * @param {HeadContent} content
 * @param {Set<string>} availableNames of what the view has
 * @returns {VectorsSaid | null}
 */
function vectorsHeader({ name: contentName, vectors }, availableNames) {
  if (!vectors) return null;
  const { layer, head, bytes: _, ...fields } = vectors;
  const name = `${contentName} L${layer} H${head} vectors`;
  return { ...fields, name, sent: !availableNames.has(name) };
}

/**
 * The strongest edges of the maps that are drawn, the strongest first.
 * @param {number[]} drawnHeads
 * @param {CombinedMap | null} combined
 * @param {LayerHeads} heads
 */
function strongestOf(drawnHeads, combined, heads) {
  const edges = drawnHeads.flatMap((head) =>
    (combined?.strongest ?? heads.strongest[head]).map((edge) => /** @type {Edge} */ ([head, ...edge])),
  );
  return edges.sort((a, b) => Math.abs(b[3]) - Math.abs(a[3]));
}

/**
 * All heads, small.
 * @param {ShadowRoot} root with the markup of the grid
 * @param {GridHeader} header
 * @param {Uint8Array} pixels of the thumbnails
 * @param {(layer: number | null, head: number | null) => void} onClick null for a head in all layers, or a whole layer
 */
export function drawHeadGrid(root, header, pixels, onClick) {
  headGrid({
    data: packed(header, [pixels]),
    parentElement: root,
    setTriggerValue: (_, clicks) => {
      const [layer, head] = /** @type {(number | null)[]} */ (lastClick(clicks));
      onClick(layer, head);
    },
    setStateValue: () => {},
  });
}

/**
 * What was clicked last; a view gives its clicks of the last seconds.
 * @param {unknown} clicks
 */
export function lastClick(clicks) {
  const [, target] = /** @type {Click[]} */ (clicks).slice(-1)[0];
  return target;
}
