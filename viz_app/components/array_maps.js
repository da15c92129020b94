// The maps of a run in the page, from one array of numbers (layer, head, query, key) to what the views take.

import { exactMap } from "./page_maps.js";
import { halfToEven } from "./rounding.js";

/** @import { LayerHeads } from "./head_views.js" */
/** @import { Codes, Hatching, PageLayer, ThumbnailConstants } from "./messages.d.ts" */
/** @import { PageMap } from "./page_maps.js" */

/**
 * The form of an array of maps.
 * @typedef {{ layers: number, heads: number, rows: number, columns: number, signed: boolean, codes: Codes }} ArrayForm
 */
/**
 * Small maps of all heads on one scale. pixels: a byte a value. size: rows and columns of each map. limit: where the
 * colours end, 0 if all values are 0.
 * @typedef {{ pixels: Uint8Array, size: [rows: number, columns: number], limit: number }} Thumbnails
 */

/**
 * The maps of a layer.
 * @param {Float32Array} values
 * @param {number} layer
 * @param {ArrayForm} form
 * @returns {PageMap[]}
 */
export function mapsFromArray(values, layer, form) {
  return numbersOf(values, layer, form).map((numbers) => exactMap(numbers, { ...form, exact: true }));
}

/**
 * A function that returns the heads of a layer, for `HeadView`. A head whose numbers are all NaN does not exist.
 * @param {Float32Array} values
 * @param {ArrayForm} form
 * @param {object} options
 * @param {number} options.listed number of the strongest edges of each head
 * @param {[layer: number, head: number][]} [options.off] heads that are switched off
 * @param {(Hatching | null)[]} [options.hatchings] by layer; empty without local layers
 * @returns {(layer: number) => LayerHeads}
 */
export function layerReader(values, form, { listed, off = [], hatchings = [] }) {
  /** @type {Map<number, LayerHeads>} */
  const layers = new Map();
  return (layer) => {
    const heads = layers.get(layer) ?? {
      ...headFields(numbersOf(values, layer, form), form.columns, listed),
      maps: mapsFromArray(values, layer, form),
      off: off.filter(([offLayer]) => offLayer === layer).map(([, head]) => head),
      hatching: hatchings[layer] ?? null,
      isEager: true,
    };
    layers.set(layer, heads);
    return heads;
  };
}

/**
 * The heads of a layer that do not exist, and the values that are no number and the strongest edges of each.
 * @param {Float32Array[]} maps
 * @param {number} columns
 * @param {number} listed
 * @returns {Pick<PageLayer, "pruned" | "holes" | "strongest">}
 */
function headFields(maps, columns, listed) {
  return {
    pruned: [...maps.keys()].filter((head) => maps[head].every(Number.isNaN)),
    holes: maps.map((numbers) => numbers.reduce((count, x) => count + Number(!Number.isFinite(x)), 0)),
    strongest: maps.map((numbers) => strongestEdges(numbers, columns, listed)),
  };
}

/**
 * The numbers of each head of a layer.
 * @param {Float32Array} values
 * @param {number} layer
 * @param {ArrayForm} form
 */
function numbersOf(values, layer, { heads, rows, columns }) {
  const size = rows * columns;
  return Array.from({ length: heads }, (_, head) => {
    const start = (layer * heads + head) * size;
    return values.subarray(start, start + size);
  });
}

/**
 * The finite values of largest magnitude in a map, largest first; of equal ones the first, and no zeros.
 * @param {Float32Array} numbers
 * @param {number} columns
 * @param {number} count
 * @returns {[query: number, key: number, value: number][]}
 */
export function strongestEdges(numbers, columns, count) {
  /** @type {number[]} */
  const places = [];
  let least = 0; // what the next one must exceed
  for (let place = 0; place < numbers.length; place++) {
    const size = Math.abs(numbers[place]);
    if (!(size > least) || size === Infinity) continue;
    const smaller = places.findIndex((other) => Math.abs(numbers[other]) < size);
    places.splice(smaller < 0 ? places.length : smaller, 0, place);
    if (places.length > count) places.pop();
    if (places.length === count) least = Math.abs(numbers[places[count - 1]]);
  }
  return places.map((place) => [Math.floor(place / columns), place % columns, numbers[place]]);
}

/**
 * The value of the strongest curve: 1 for attention, otherwise the largest magnitude of all heads, above 0.
 * @param {Float32Array} values
 * @param {boolean} isAttention
 */
export function curveLimit(values, isAttention) {
  if (isAttention) return 1;
  let most = 0;
  for (const x of values) if (Math.abs(x) > most && Number.isFinite(x)) most = Math.abs(x);
  return most || 1;
}

/**
 * Small maps of all heads on one scale, like `pale_thumbnails` of figures/thumbnails.py. The columns of special tokens
 * are pale if there are others, and the scale is that of the other columns.
 * @param {Float32Array} values
 * @param {ArrayForm} form
 * @param {(string | null)[]} sides sentences of the keys, null for special tokens; empty: no column is pale
 * @param {number} size largest number of rows and columns
 * @param {ThumbnailConstants} constants
 * @returns {Thumbnails}
 */
export function thumbnails(values, form, sides, size, { pale, middle, shareBelow }) {
  const { rows, columns, signed } = form;
  const allColumns = Array.from({ length: columns }, (_, column) => column);
  const otherColumns = allColumns.filter((column) => !sides.length || sides[column] !== null);
  const isPale = allColumns.map((column) => otherColumns.length > 0 && !otherColumns.includes(column));
  const limit = commonLimit(blocks(values, form, otherColumns.length ? otherColumns : allColumns, size), shareBelow);
  const paleValues = isPale.includes(true)
    ? values.map((x, i) => (isPale[i % columns] ? pale * Math.max(-limit, Math.min(x, limit)) : x))
    : values;
  const smallMaps = blocks(paleValues, form, allColumns, size);
  const scale = Math.fround(limit);
  const codes = smallMaps.map((x) => {
    const share = limit && !Number.isNaN(x) ? Math.fround(x / scale) : 0;
    if (signed) return halfToEven(Math.fround(middle + Math.fround(127 * Math.max(-1, Math.min(share, 1)))));
    return halfToEven(Math.fround(255 * Math.max(0, Math.min(share, 1))));
  });
  return { pixels: Uint8Array.from(codes), size: [Math.min(rows, size), Math.min(columns, size)], limit };
}

/**
 * Some columns of all maps in at most `size` rows and columns: of each block the largest, or if signed the largest
 * magnitude.
 * @param {Float32Array} values
 * @param {Pick<ArrayForm, "rows" | "columns" | "signed">} form
 * @param {number[]} selection of columns
 * @param {number} size
 */
function blocks(values, { rows, columns, signed }, selection, size) {
  const [rowEdges, columnEdges] = [edgesOf(rows, size), edgesOf(selection.length, size)];
  const maps = values.length / (rows * columns);
  const extremes = new Float32Array(maps * (rowEdges.length - 1) * (columnEdges.length - 1));
  let at = 0;
  for (let map = 0; map < maps; map++) {
    for (let i = 1; i < rowEdges.length; i++) {
      for (let j = 1; j < columnEdges.length; j++) {
        let [low, high] = [Infinity, -Infinity];
        for (let row = rowEdges[i - 1]; row < rowEdges[i]; row++) {
          const start = (map * rows + row) * columns;
          for (let column = columnEdges[j - 1]; column < columnEdges[j]; column++) {
            const value = values[start + selection[column]];
            low = Math.min(low, value);
            high = Math.max(high, value);
          }
        }
        extremes[at++] = signed && -low > high ? low : high;
      }
    }
  }
  return extremes;
}

/**
 * The first row or column of each block, and the end of the last.
 * @param {number} length
 * @param {number} size largest number of blocks
 */
function edgesOf(length, size) {
  const count = Math.min(length, size);
  return Array.from({ length: count + 1 }, (_, block) => Math.floor((block * length) / count));
}

/**
 * A value for the end of the colours, of which a small share of the finite values is larger; 0 if there are none.
 * @param {Float32Array} values
 * @param {number} shareBelow
 */
function commonLimit(values, shareBelow) {
  const sizes = values.filter(Number.isFinite).map(Math.abs).sort();
  if (!sizes.length) return 0;
  const place = (sizes.length - 1) * shareBelow;
  const [low, high] = [sizes[Math.floor(place)], sizes[Math.ceil(place)]];
  return low + (high - low) * (place % 1) || sizes[sizes.length - 1];
}
