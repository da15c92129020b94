// The tokens of the text as the model reads them; a click masks a word or shows it again.

import { mountView, showTokenStrip } from "../../components/run_views.js";
import { maskedPiece } from "./encodings.js";

/** @import { PageContext, Texts } from "./types.d.ts" */

/**
 * @param {HTMLElement} host an element for the strip alone
 * @param {PageContext} context
 * @param {Texts} texts
 * @param {object} options
 * @param {number | null} options.target position of the explained token
 * @param {(word: number) => void} options.onClick
 */
export function drawTokens(host, context, texts, { target, onClick }) {
  const { look } = context.site;
  const root = host.shadowRoot ?? mountView(host, look.views.token_strip);
  const chips = texts.encoding.tokens.map((_, position) => chipOf(context, texts, position, target));
  const label = context.text("frame:tokens.label");
  showTokenStrip(root, { look, chips, label, lecture: context.state.lecture }, onClick);
}

/**
 * @param {PageContext} context
 * @param {Texts} texts
 * @param {number} position
 * @param {number | null} target
 */
function chipOf({ text }, { encoding, original }, position, target) {
  const typed = maskedPiece(encoding, position);
  const piece = original.tokens[position];
  const word = encoding.words[position];
  const isMasked = encoding.roles[position] === "mask";
  const isSpecial = encoding.sides[position] === null;
  const title = text("frame:tokens.title", { piece, position, number: original.inputIds[position] });
  const advice = text(typed === null ? "frame:tokens.mask" : "frame:tokens.show");
  const isLast = encoding.words[position + 1] !== word;
  return {
    text: typed !== null && isLast ? text("frame:tokens.masked", { piece }) : piece,
    title: isSpecial ? title : `${title}\n${advice}`,
    word,
    side: encoding.sides[position],
    special: isSpecial,
    masked: isMasked,
    target: position === target,
  };
}

/**
 * Return sentences about a text: what the model does not read of it.
 * @param {PageContext} context
 * @param {Texts} texts
 */
export function textNotices({ text, site }, { encoding, original }) {
  const notices = [];
  const { length } = encoding.tokens;
  const { fullLength, truncatedCount } = original;
  if (truncatedCount) {
    const { name } = site.model;
    notices.push(text("frame:notices.cut", { length: fullLength, model: name, most: length, cut: truncatedCount }));
  }
  const unknown = original.roles.filter((role) => role === "unknown").length;
  const all = original.sides.filter((side) => side !== null).length;
  if (unknown) notices.push(text("frame:notices.unknown", { unknown, all }));
  return notices;
}
