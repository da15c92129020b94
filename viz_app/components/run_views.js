// The views of a run in the page, without a server: their messages, made from `look` (`look.py`) and from numbers.

import { drawHeadGrid, lastClick } from "./head_views.js";
import { cellNumber, twoDigits, withDecimals } from "./numbers.js";
import tokenStrip from "./token_strip/token_strip.js";

/** @import { Thumbnails } from "./array_maps.js" */
/** @import { ByGround, Chip, FixedHeader, GridHatching, GridHeader, Look, StripMessage } from "./messages.d.ts" */
/** @import { Token, ViewMarkup } from "./messages.d.ts" */

/**
 * A view in a shadow, so that its style is its own. The style is no inline style for a content security policy.
 * @param {Element} host
 * @param {ViewMarkup} view
 */
export function mountView(host, { markup, style }) {
  const root = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style);
  root.adoptedStyleSheets = [sheet];
  root.append(document.createRange().createContextualFragment(markup));
  return root;
}

/**
 * The part of the messages of `HeadView` that does not depend on the choice, like `fixed_header` of attention_view.
 * @param {Look} look
 * @param {object} text
 * @param {Token[]} text.queries
 * @param {Token[]} text.keys
 * @param {number} text.layers
 * @param {number} text.heads
 * @param {boolean} text.signed
 * @param {string} text.unit
 * @param {boolean} [text.lecture]
 * @returns {FixedHeader}
 */
export function fixedHeader(look, { queries, keys, layers, heads, signed, unit, lecture = false }) {
  return {
    ...look.constants,
    layers,
    count: heads,
    signed,
    unit,
    queries,
    keys,
    lecture,
    colours: coloursOf(look, signed),
  };
}

/**
 * The content of a grid of heads: small maps, or a number for each head, or neither.
 * @typedef {object} GridContent
 * @property {Look} look
 * @property {number} layers
 * @property {number} heads
 * @property {Thumbnails | null} [thumbnails] painted into the cells
 * @property {ArrayLike<number> | null} [values] (layer, head), in the cells; NaN for a head that does not exist
 * @property {boolean} [signed]
 * @property {number | null} [limit] the value where the colours end; null for the largest
 * @property {string} [unit] what a value is, written beside the legend
 * @property {"select" | "switch"} [mode] whether a click chooses a head, or switches it off or on
 * @property {[layer: number, head: number] | null} [selected]
 * @property {[layer: number, head: number][]} [off] heads that are switched off
 * @property {[layer: number, head: number][]} [pruned] heads that do not exist
 * @property {string[][]} [titles] (layer, head), shown on hover
 * @property {number[][] | null} [order] the heads of each layer from left to right
 * @property {number[] | null} [rows] the layers from top to bottom
 * @property {GridHatching | null} [hatching]
 * @property {boolean} [lecture]
 * @property {boolean} [fills] whether the grid is as high as its place
 */

/**
 * All heads, like `grid_message` of head_grid.
 * @param {ShadowRoot} root with the markup of the grid
 * @param {GridContent} content
 * @param {(layer: number | null, head: number | null) => void} onClick null for a head in all layers, or a whole layer
 */
export function showHeadGrid(root, content, onClick) {
  drawHeadGrid(root, gridHeader(content), content.thumbnails?.pixels ?? new Uint8Array(), onClick);
}

/**
 * The header of the message to the grid.
 * @param {GridContent} content
 * @returns {GridHeader}
 */
export function gridHeader(content) {
  const { look, thumbnails, signed = false } = content;
  return {
    layers: content.layers,
    heads: content.heads,
    size: thumbnails?.size ?? null,
    signed,
    zero: signed ? look.thumbnails.middle : 0,
    unit: content.unit ?? "",
    mode: content.mode ?? "select",
    selected: content.selected ?? null,
    off: content.off ?? [],
    gone: content.pruned ?? [],
    titles: content.titles ?? [],
    order: content.order ?? null,
    rows: content.rows ?? null,
    lecture: content.lecture ?? false,
    fills: content.fills ?? false,
    hatching: content.hatching ?? null,
    colours: coloursOf(look, signed),
    ...valueFields(content),
  };
}

/**
 * Each value as a share of the colours and as a number to read; null where the head does not exist.
 * @param {GridContent} content
 * @returns {Pick<GridHeader, "shares" | "numbers" | "digits" | "legend">}
 */
function valueFields({ look, heads, values, thumbnails, signed = false, limit }) {
  const numbers = values && Array.from(values);
  if (!numbers) {
    const end = limit || thumbnails?.limit;
    return { shares: null, numbers: null, digits: null, legend: end ? legendOf(end, signed, true) : null };
  }
  const end = limit || Math.max(0, ...numbers.filter(Number.isFinite).map(Math.abs)) || 1;
  const shareOf = (/** @type {number} */ x) => (signed ? (x / end + 1) / 2 : Math.max(0, Math.min(x / end, 1)));
  const cells = (/** @type {(x: number) => any} */ write, /** @type {any} */ missing) =>
    byLayer(
      numbers.map((x) => (Number.isFinite(x) ? write(x) : missing)),
      heads,
    );
  return {
    shares: cells((x) => Math.round(shareOf(x) * 1e4) / 1e4, null),
    numbers: cells(twoDigits, ""),
    digits: cells((x) => cellText(x, end, look.minDigits), "–"),
    legend: legendOf(end, signed, false),
  };
}

/**
 * @template Item
 * @param {Item[]} items (layer, head)
 * @param {number} heads
 */
function byLayer(items, heads) {
  return Array.from({ length: items.length / heads }, (_, layer) => items.slice(layer * heads, (layer + 1) * heads));
}

/**
 * A number with two decimals, or three where the largest of all is below 0.1; empty where it needs more.
 * @param {number} number
 * @param {number} limit the largest of all
 * @param {number} minDigits
 */
function cellText(number, limit, minDigits) {
  if (limit < minDigits) return "";
  return limit >= 0.1 ? cellNumber(number) : withDecimals(number, 3);
}

/**
 * What is written at both ends of the colours.
 * @param {number} limit
 * @param {boolean} signed
 * @param {boolean} isCut whether there may be values beyond them
 * @returns {[low: string, high: string]}
 */
function legendOf(limit, signed, isCut) {
  const [low, high] = isCut ? ["≤ ", "≥ "] : ["", ""];
  return [signed ? `${low}−${twoDigits(limit)}` : "0", high + twoDigits(limit)];
}

/**
 * @param {Look} look
 * @param {boolean} signed
 */
const coloursOf = (look, signed) => (signed ? look.diverging : look.sequential);

/**
 * A token as the reader sees it; the fields are those of `Chip` in token_strip.
 * @typedef {object} ChipContent
 * @property {string} text
 * @property {string} [title] shown on hover
 * @property {number | null} [word] number of its word, the value of a click; null for a special token
 * @property {"A" | "B" | null} [side] its sentence
 * @property {boolean} [special]
 * @property {boolean} [masked] whether it is hidden from the model
 * @property {boolean} [target] whether it is explained
 * @property {string} [number] written under the text
 * @property {ByGround<[ground: string, ink: string]> | null} [shades]
 */
/**
 * The content of a strip of tokens.
 * @typedef {object} StripContent
 * @property {Look} look
 * @property {ChipContent[]} chips
 * @property {string} label what the strip is and what a click does, for screen readers
 * @property {boolean} [disabled]
 * @property {string} [appear] the tokens appear one after another if this is another text than before; "" for at once
 * @property {number} [start] position of the first token
 * @property {boolean} [lecture]
 */

/**
 * The tokens in reading order.
 * @param {ShadowRoot} root with the markup of the strip
 * @param {StripContent} content
 * @param {(word: number) => void} onClick
 */
export function showTokenStrip(root, content, onClick) {
  tokenStrip({
    data: stripMessage(content),
    parentElement: root,
    setTriggerValue: (_, clicks) => onClick(/** @type {number} */ (lastClick(clicks))),
    setStateValue: () => {},
  });
}

/**
 * The message to the strip, like `strip_message` of token_strip.
 * @param {StripContent} content
 * @returns {StripMessage}
 */
export function stripMessage({ look, chips, label, disabled = false, appear = "", start = 0, lecture = false }) {
  return { chips: chips.map(chipOf), tints: look.constants.tints, lecture, disabled, label, appear, start };
}

/**
 * @param {ChipContent} content
 * @returns {Chip}
 */
function chipOf({ text, title = "", word = null, side = null, number = "", shades = null, ...flags }) {
  const { special = false, masked = false, target = false } = flags;
  return [text, title, word, side, special, masked, target, number, shades];
}
