// The maps of a page, from the bytes that `export/packing.py` makes, or from numbers, to those that the view takes.

import { upToFour } from "./message.js";
import { halfToEven } from "./rounding.js";

/** @import { Codes, Line } from "./messages.d.ts" */

/**
 * What all maps of a page have in common.
 * @typedef {{ rows: number, columns: number, exact: boolean, signed: boolean, codes: Codes }} Form
 */
/**
 * A map: as the view takes it; one row of it; and of an exact one every row, then every column.
 * @typedef {{ coded(): Uint8Array, row(i: number): Float32Array, lines(): Uint8Array }} PageMap
 */

/**
 * The maps of a layer.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {number[]} ranks of each map's two matrices; 0 for none
 * @param {Form} form
 * @returns {PageMap[]}
 */
export function mapsIn(bytes, ranks, form) {
  const { rows, columns } = form;
  let at = 0;
  const take = (/** @type {number} */ length) => {
    at += length;
    return bytes.slice(at - length, at);
  };
  const none = () => new Uint8Array();
  return ranks.map((rank) => {
    if (form.exact) {
      return exactMap(new Float32Array(woven(take(4 * rows * columns), 4).buffer), form);
    }
    if (!rank) {
      const map = take(4 * rows + upToFour(rows * columns));
      return { coded: () => map, row: (i) => decoded(map, i, form), lines: none };
    }
    const head = new Float32Array(take(4 * rows + 4).buffer);
    const [left, right] = [rows, columns].map((length) => new Int16Array(woven(take(2 * rank * length), 2).buffer));
    take(-at & 3);
    const made = () => coded(product(left, right, head[rows], rank), form, head.subarray(0, rows));
    return { coded: made, row: (i) => decoded(made(), i, form), lines: none };
  });
}

/**
 * A map whose values are known exactly.
 * @param {Float32Array} numbers (query, key)
 * @param {Form} form
 * @returns {PageMap}
 */
export function exactMap(numbers, form) {
  const { columns } = form;
  return {
    coded: () => coded(numbers, form),
    lines: () => linesOf(numbers, form),
    row: (i) => numbers.subarray(i * columns, (i + 1) * columns),
  };
}

/**
 * The bytes of numbers that stand in planes: all first bytes, then all second ones.
 * @param {Uint8Array} bytes
 * @param {number} width
 */
export function woven(bytes, width) {
  const count = bytes.length / width;
  const made = new Uint8Array(bytes.length);
  for (let plane = 0, i = 0; plane < width; plane++) {
    for (let j = 0; j < count; j++, i++) made[j * width + plane] = bytes[i];
  }
  return made;
}

/**
 * Two thin matrices (rank, row) and (rank, column), multiplied: each row in shares of its largest magnitude.
 * @param {Int16Array} left
 * @param {Int16Array} right
 * @param {number} step
 * @param {number} rank
 */
export function product(left, right, step, rank) {
  const [rows, columns] = [left.length / rank, right.length / rank];
  const made = new Float32Array(rows * columns);
  for (let i = 0; i < rank; i++) {
    const other = right.subarray(i * columns, (i + 1) * columns);
    for (let row = 0, at = 0; row < rows; row++) {
      const factor = left[i * rows + row] * step * step;
      for (let column = 0; column < columns; column++, at++) made[at] += factor * other[column];
    }
  }
  return made;
}

/**
 * As the view takes a map; computed in float32, like `coded` of attention_view/packing.py.
 * @param {Float32Array} numbers the values, or with maxima given their shares of these
 * @param {Form} form
 * @param {Float32Array} [given] maxima
 */
export function coded(numbers, { rows, columns, signed, codes }, given) {
  const maxima = given?.slice() ?? new Float32Array(rows);
  const bytes = new Uint8Array(upToFour(rows * columns));
  for (let row = 0; row < rows; row++) {
    const values = numbers.subarray(row * columns, (row + 1) * columns);
    if (!given) maxima[row] = values.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0);
    const whole = given ? 1 : maxima[row] || 1;
    values.forEach((x, i) => {
      const share = Math.fround(Math.max(-1, Math.min(x / whole, 1)));
      const steps = signed ? Math.fround(codes.zero + Math.fround(codes.zero * share)) : codes.highest * share;
      bytes[row * columns + i] = Number.isFinite(x) ? halfToEven(steps) : codes.none;
    });
  }
  const made = new Uint8Array(4 * rows + bytes.length);
  made.set(new Uint8Array(maxima.buffer));
  made.set(bytes, 4 * rows);
  return made;
}

/**
 * One row of a map as the view takes it.
 * @param {Uint8Array} map
 * @param {number} row
 * @param {Form} form
 */
export function decoded(map, row, { rows, columns, signed, codes: { highest, zero } }) {
  const [maximum] = new Float32Array(map.slice(4 * row, 4 * row + 4).buffer);
  const bytes = map.subarray(4 * rows + row * columns, 4 * rows + (row + 1) * columns);
  return Float32Array.from(bytes, (code) => (signed ? (code - zero) / zero : code / highest) * maximum);
}

/**
 * Every row, then every column.
 * @param {Float32Array} numbers
 * @param {Form} form
 */
export function linesOf(numbers, { rows, columns }) {
  const turned = numbers.map((_, i) => numbers[(i % rows) * columns + Math.floor(i / rows)]);
  const made = new Float32Array(2 * numbers.length);
  made.set(numbers);
  made.set(turned, numbers.length);
  return new Uint8Array(made.buffer);
}

/**
 * The lines that these are.
 * @param {Pick<Form, "rows" | "columns">} form
 * @returns {Line[]}
 */
export function everyLine({ rows, columns }) {
  /** @type {Line[]} */
  const queries = Array.from({ length: rows }, (_, i) => ["query", i]);
  return [...queries, ...Array.from({ length: columns }, (_, i) => /** @type {Line} */ (["key", i]))];
}
