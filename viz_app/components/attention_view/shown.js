// What of its maps the view shows: the heads that are drawn, the tokens that are looked at, and what goes between them.

import { rgb } from "../colour.js";
import { cache, line } from "./maps.js";

/** @import { Side } from "../messages.d.ts" */
/** @import { Active, HeadMap, Sum, Vectors, View } from "./view.d.ts" */

/** @param {View} view */
export const isMatrix = (view) => view.header.mode === "matrix";
/** @param {View} view */
export const isNeuron = (view) => view.header.mode === "neuron";
/** @param {View} view */
export const showsOne = (view) => view.header.mode !== "curves" && !view.header.combined;

/** @param {Side} side */
export const other = (side) => (side === "query" ? "key" : "query");

/**
 * @param {View} view
 * @param {Side} side
 */
export const tokens = (view, side) => (side === "query" ? view.header.queries : view.header.keys);

/**
 * A head that is drawn has its map here.
 * @param {View} view
 * @param {number} head
 */
export const mapOf = (view, head) => /** @type {HeadMap} */ (cache.get(view.header.names[head]));

/**
 * Undefined while they are on the way.
 * @param {View} view
 */
export const vectorsOf = ({ header: { vectors } }) =>
  vectors ? /** @type {Vectors | undefined} */ (cache.get(vectors.name)) : undefined;

/**
 * The heads that were chosen, as far as they are drawn at once; one map in the stead of all where they are combined.
 * @param {View} view
 */
export function chosenHeads(view) {
  if (view.header.combined) return view.header.drawn;
  return showsOne(view) ? view.choice.heads.slice(0, 1) : view.choice.heads;
}

/** @param {View} view */
export function drawnHeads(view) {
  return chosenHeads(view).filter((head) => !view.header.pruned.includes(head) && mapOf(view, head));
}

/**
 * @param {View} view
 * @param {number} head
 */
export const headName = (view, head) => view.header.combined ?? `H${head}`;

/**
 * @param {View} view
 * @param {number} head
 */
export function headColour({ header: { combined, headColours }, dark }, head) {
  if (combined) return dark ? "#e9ebee" : "#1c2026";
  return headColours[head % headColours.length];
}

/**
 * A head's own colour; with a sign, the colour of the sign.
 * @param {View} view
 * @param {number} head
 * @param {number} number
 */
export function colourOf(view, head, number) {
  if (view.header.signed) return view.colours[number < 0 ? 30 : 225];
  return rgb(headColour(view, head));
}

/**
 * The token under the pointer or the keyboard, else those selected; null for none. In a matrix, the row of the cell.
 * @param {View} view
 * @returns {Active | null}
 */
export function activeTokens(view) {
  if (isMatrix(view)) return view.cell && { side: "query", indices: [view.cell.row] };
  if (view.focus) return { side: view.focus.side, indices: [view.focus.index] };
  const { side, positions } = view.choice;
  const indices = tokens(view, side).flatMap(([, position], i) => (positions.includes(position) ? [i] : []));
  return indices.length ? { side, indices } : null;
}

/**
 * Whether a query cannot attend to a key, because its layer is local.
 * @param {View} view
 * @param {number} row
 * @param {number} column
 */
export function isOutside({ header: { hatching } }, row, column) {
  if (!hatching) return false;
  const [first, end] = hatching.ranges[row];
  return column < first || column >= end;
}

/**
 * For each drawn head, what goes between the active tokens and every token of the other column.
 * @param {View} view
 * @param {Active} active
 * @returns {Sum[]}
 */
export function sums(view, active) {
  return drawnHeads(view).map((head) => {
    const map = mapOf(view, head);
    const total = new Float64Array(tokens(view, other(active.side)).length);
    let exact = true;
    for (const index of active.indices) {
      const one = line(map, active.side, index);
      exact &&= one.exact;
      for (let i = 0; i < total.length; i++) total[i] += one.numbers[i];
    }
    return { head, total, exact };
  });
}
