// Maps as the browser holds them, and what is read from them.

/** @import { Side } from "../messages.d.ts" */
/** @import { HeadMap, Place, Vectors } from "./view.d.ts" */

const CACHE_BYTES = 32 << 20;

// By the name of their content; they outlive the view, so that coming back costs nothing.
/** @type {Map<string, HeadMap | Vectors>} */
export const cache = new Map();

/**
 * The oldest go first, but none that is needed now.
 * @param {Set<string | undefined>} needed
 */
export function forget(needed) {
  let bytes = 0;
  for (const held of cache.values()) bytes += held.weight;
  for (const [name, held] of cache) {
    if (bytes < CACHE_BYTES) return;
    if (needed.has(name)) continue;
    cache.delete(name);
    bytes -= held.weight;
  }
}

/**
 * @param {HeadMap} map
 * @param {number} row
 * @param {number} column
 */
export function value(map, row, column) {
  const { highest, zero, none } = map.codes;
  const code = map.bytes[row * map.columns + column];
  if (code === none) return NaN;
  return (map.signed ? (code - zero) / zero : code / highest) * map.maxima[row];
}

/**
 * A row or a column of a map: exact where the server has sent it, else as it was drawn.
 * @param {HeadMap} map
 * @param {Side} side
 * @param {number} index
 */
export function line(map, side, index) {
  const exact = map.exact.get(side + index);
  if (exact) return { numbers: exact, exact: true };
  const length = side === "query" ? map.columns : map.rows;
  const numbers = Float32Array.from({ length }, (_, i) =>
    side === "query" ? value(map, index, i) : value(map, i, index),
  );
  return { numbers, exact: false };
}

/**
 * How large a value is, in steps of the largest of its row; 0 for what is no number.
 * @param {HeadMap} map
 * @param {number} place
 */
function size(map, place) {
  const { zero, none } = map.codes;
  const code = map.bytes[place];
  if (code === none) return 0;
  return map.signed ? Math.abs(code - zero) : code;
}

/**
 * The size of the last value that is needed for this share of a row, from its largest on.
 * @param {HeadMap} map
 * @param {number} row
 * @param {number} kept
 */
export function leastOf(map, row, kept) {
  const { highest } = map.codes;
  const counts = new Uint32Array(highest + 1);
  for (let column = 0; column < map.columns; column++) counts[size(map, row * map.columns + column)]++;
  const wanted = kept * counts.reduce((sum, count, steps) => sum + count * steps, 0) - 1e-9;
  let held = 0;
  for (let steps = highest; steps > 0; steps--) {
    held += steps * counts[steps];
    if (counts[steps] && held >= wanted) return steps;
  }
  return highest + 1; // a row of zeros
}

/**
 * Of each row the strongest that hold the share, and those as strong as the last of them; kept while one scrolls.
 * @param {HeadMap} map
 * @param {number} kept
 */
export function keptEdges(map, kept) {
  if (map.kept?.share === kept) return map.kept.list;
  /** @type {Place[]} */
  const list = [];
  for (let row = 0; row < map.rows; row++) {
    const least = leastOf(map, row, kept);
    for (let column = 0; column < map.columns; column++) {
      if (size(map, row * map.columns + column) >= least) list.push([row, column, value(map, row, column)]);
    }
  }
  list.sort(byStrength);
  map.kept = list.length < 50000 ? { share: kept, list } : null;
  return list;
}

/**
 * Without so many of the weakest; what a row looks at most goes last.
 * @param {HeadMap} map
 * @param {Place[]} list
 * @param {number} left
 */
export function lightened(map, list, left) {
  const isLargest = (/** @type {Place} */ [row, , number]) => Math.abs(number) >= map.maxima[row];
  return [...list.filter((edge) => !isLargest(edge)), ...list.filter(isLargest)].slice(left).sort(byStrength);
}

/**
 * Weakest first.
 * @param {Place} a
 * @param {Place} b
 */
export const byStrength = (a, b) => Math.abs(a[2]) - Math.abs(b[2]);

/**
 * Where the colours end: in a long map a few values would leave all others pale, so one in a thousand may exceed it.
 * @param {HeadMap} map
 */
export function capOf(map) {
  if (map.cap === undefined) {
    const sizes = new Float32Array(map.bytes.length);
    for (let row = 0, i = 0; row < map.rows; row++) {
      for (let column = 0; column < map.columns; column++, i++) sizes[i] = Math.abs(value(map, row, column)) || 0;
    }
    sizes.sort();
    map.cap = sizes[sizes.length - 1 - Math.floor(sizes.length / 1000)] || sizes[sizes.length - 1];
  }
  return map.cap;
}

/**
 * The largest magnitude.
 * @param {Float32Array | Float64Array} numbers
 */
export function peak(numbers) {
  let most = 0;
  for (const x of numbers) most = Math.max(most, Math.abs(x) || 0);
  return most;
}
