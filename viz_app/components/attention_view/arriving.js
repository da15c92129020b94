// Messages of the server: what they hold is kept by its name, and the view is told what has changed.

import { inflated, unpack, upToFour } from "../message.js";
import { said } from "./choosing.js";
import { foresee, remember } from "./foreseen.js";
import { cache, forget } from "./maps.js";

/** @import { EverywhereSaid, ViewHeader } from "../messages.d.ts" */
/** @import { HeadMap, View } from "./view.d.ts" */

/**
 * Messages are taken in the order they come, also where one is still being unpacked.
 * @param {View} view
 * @param {Uint8Array<ArrayBuffer>} data
 * @param {(before: ViewHeader | undefined) => void} show called when everything that a message needs is here
 */
export function arrive(view, data, show) {
  const { header, tail } = /** @type {{ header: ViewHeader, tail: Uint8Array<ArrayBuffer> }} */ (unpack(data));
  const rest = tail.length - (header.all?.bytes ?? 0);
  const main = tail.slice(0, rest);
  const ready = () => receive(view, header, main.buffer, show);
  if (!header.packed && !view.arriving) ready();
  else {
    const before = (view.arriving ?? Promise.resolve()).catch(() => {}); // its error is told already
    view.arriving = before.then(header.packed ? async () => receive(view, header, await inflated(main), show) : ready);
  }
  if (header.all) keepAll(header, header.all, tail.slice(rest));
}

/**
 * @param {View} view
 * @param {ViewHeader} header
 * @param {ArrayBuffer} tail
 * @param {(before: ViewHeader | undefined) => void} show
 */
function receive(view, header, tail, show) {
  keep(header, tail);
  const { vectors } = header;
  forget(new Set([...Object.values(header.names), vectors?.name]));
  const needed = [...header.drawn.map((head) => header.names[head]), ...(vectors ? [vectors.name] : [])];
  if (needed.some((name) => !cache.has(name))) {
    // The server believes that a map is here which has gone: say what is.
    view.say(said(view, []));
    return;
  }
  const before = view.header;
  view.header = header;
  // What was chosen here since the server last heard of it is newer than what it says.
  if (!view.choice || header.stamp >= view.chosenAt) {
    const [side, positions] = header.selected;
    view.choice = { layer: header.layer, heads: [...header.heads], side, positions: [...positions], kept: header.kept };
  } else foresee(view);
  show(before);
}

/**
 * @param {ViewHeader} header
 * @param {EverywhereSaid} all
 * @param {Uint8Array<ArrayBuffer>} packed
 */
async function keepAll(header, all, packed) {
  const heads = all.layers.flatMap(({ names }) => Object.values(names));
  const tail = await inflated(packed);
  for (const [i, name] of heads.entries()) {
    const at = (tail.byteLength / heads.length) * i;
    if (!cache.has(name)) cache.set(name, mapIn(header, name, tail, at));
  }
  remember(all);
}

/**
 * The map that begins at a byte: the maxima of its rows, then its codes.
 * @param {ViewHeader} header
 * @param {string} name
 * @param {ArrayBuffer} tail
 * @param {number} at
 * @returns {HeadMap}
 */
function mapIn({ queries, keys, codes, signed }, name, tail, at) {
  const [rows, columns] = [queries.length, keys.length];
  const maxima = new Float32Array(tail, at, rows);
  const bytes = new Uint8Array(tail, at + 4 * rows, rows * columns);
  return { name, rows, columns, maxima, bytes, codes, signed, exact: new Map(), weight: rows * columns };
}

/**
 * What follows a header, into the cache.
 * @param {ViewHeader} header
 * @param {ArrayBuffer} tail
 */
function keep(header, tail) {
  let at = 0;
  const floats = (/** @type {number} */ count) => {
    at += 4 * count;
    return new Float32Array(tail, at - 4 * count, count);
  };
  const [rows, columns] = [header.queries.length, header.keys.length];
  const { vectors } = header;
  for (const head of header.sent) {
    const name = header.names[head];
    cache.set(name, mapIn(header, name, tail, at));
    at += 4 * rows + upToFour(rows * columns);
  }
  if (vectors?.sent) {
    const [queries, keys] = [floats(rows * vectors.size).slice(), floats(columns * vectors.size).slice()];
    const distances = vectors.distances ? floats(rows * columns).slice() : null;
    const weight = 4 * (queries.length + keys.length + (distances?.length ?? 0));
    cache.set(vectors.name, { queries, keys, distances, weight });
  }
  for (const head of header.drawn) {
    const map = /** @type {HeadMap | undefined} */ (cache.get(header.names[head]));
    for (const [side, index] of header.lines) {
      const line = floats(side === "query" ? columns : rows);
      map?.exact.set(side + index, line.slice());
    }
  }
}
