// What is chosen in the view, and how the server hears of it.

import { foresee } from "./foreseen.js";
import { cache } from "./maps.js";
import { activeTokens, drawnHeads, isNeuron, mapOf, showsOne, tokens } from "./shown.js";

/** @import { Choice, Line, ViewSaid } from "../messages.d.ts" */
/** @import { Spot, View } from "./view.d.ts" */

// Only grows, also between two views and when the clock is set back.
let stamp = 0;

/**
 * Only the newest message reaches the server: a choice that it has not answered yet goes along again.
 * @param {View} view
 * @param {Line[]} lines
 * @returns {ViewSaid}
 */
export function said(view, lines) {
  const answered = !view.choice || view.header.stamp >= view.chosenAt;
  const choice = answered ? null : { ...view.choice };
  return { stamp: view.chosenAt, turn: ++stamp, choice, have: [...cache.keys()], lines };
}

/**
 * A change of the choice is shown at once, and told when the hand rests.
 * @param {View} view
 * @param {Partial<Choice>} change
 * @param {number} [wait] milliseconds
 */
export function choose(view, change, wait = 180) {
  Object.assign(view.choice, change);
  stamp = view.chosenAt = Math.max(stamp + 1, Date.now());
  clearTimeout(view.telling);
  view.telling = setTimeout(() => view.say(said(view, wantedLines(view))), wait);
  if (change.heads || change.layer !== undefined) foresee(view);
  view.refresh();
}

/**
 * A head was clicked in a grid, which tells the server: what is here of it is shown before that answers.
 * @param {View} view
 * @param {import("../opened.js").Opened} opened
 */
export function open(view, { layer, head, stamp: clicked }) {
  const { header, choice } = view;
  if (!header?.everywhere) return;
  const chosen = { layer, heads: [head] };
  // What was chosen here and is not answered yet must not get lost in the answer to the click.
  if (header.stamp < view.chosenAt) return choose(view, chosen);
  view.choice = { ...choice, ...chosen };
  if (!foresee(view)) {
    view.choice = choice;
    return;
  }
  stamp = Math.max(stamp, clicked);
  view.chosenAt = clicked;
  view.refresh();
}

/**
 * The exact numbers of what is looked at, if they are not here yet.
 * @param {View} view
 */
export function ask(view) {
  clearTimeout(view.asking);
  if (!wantedLines(view).length) return;
  view.asking = setTimeout(() => {
    const lines = wantedLines(view);
    if (lines.length) view.say(said(view, lines));
  }, 160);
}

/**
 * @param {View} view
 * @returns {Line[]}
 */
function wantedLines(view) {
  const active = activeTokens(view);
  if (!active) return [];
  const { side, indices } = active;
  const missing = (/** @type {number} */ index) =>
    drawnHeads(view).some((head) => !mapOf(view, head).exact.has(side + index));
  return indices
    .filter(missing)
    .slice(0, view.header.longestAsk)
    .map((index) => [side, index]);
}

/**
 * @param {View} view
 * @param {number} head
 */
export function toggleHead(view, head) {
  if (showsOne(view)) return isolate(view, head);
  const { heads } = view.choice;
  const now = heads.includes(head) ? heads.filter((h) => h !== head) : [...heads, head];
  if (now.length) choose(view, { heads: now }, 300);
}

/**
 * @param {View} view
 * @param {number} head
 */
export function isolate(view, head) {
  choose(view, { heads: [head] });
}

/**
 * A selection stands in one column; one begun in the other takes its place.
 * @param {View} view
 * @param {Spot} spot
 */
export function select(view, { side, index }) {
  if (isNeuron(view) && side === "key") return pointKey(view, index, null);
  const position = tokens(view, side)[index][1];
  const before = view.choice.side === side ? view.choice.positions : [];
  const has = before.includes(position);
  if (isNeuron(view)) return choose(view, { side, positions: has ? [] : [position] });
  choose(view, { side, positions: has ? before.filter((p) => p !== position) : [...before, position] });
}

/**
 * @param {View} view
 * @param {Spot | null} at
 */
export function look(view, at) {
  const [was, is] = [view.focus, at && { side: at.side, index: at.index }];
  if (was?.side === is?.side && was?.index === is?.index) return;
  view.focus = is;
  if (isNeuron(view)) {
    if (is?.side === "query") [view.asked, view.pointed] = [is.index, null];
    if (is?.side === "key") view.pointed = { key: is.index, dimension: null };
  }
  view.refresh();
}

/**
 * @param {View} view
 * @param {number} key
 * @param {number | null} dimension
 */
export function pointKey(view, key, dimension) {
  if (view.pointed?.key === key && view.pointed.dimension === dimension) return;
  view.pointed = { key, dimension };
  view.refresh();
}
