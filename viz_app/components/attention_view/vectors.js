// A head down to its vectors: how one query comes to what it gives every key. From exact numbers.

import { element, shortened } from "../elements.js";
import { putTip } from "../tip.js";
import { rem, sized, snapped, styleOf } from "./canvas.js";
import { pointKey } from "./choosing.js";
import { exactly, placed, rounded, withPlaces } from "./digits.js";
import { peak } from "./maps.js";
import { note } from "./note.js";
import { digits, tableRow } from "./panel.js";
import { headColour, isNeuron, vectorsOf } from "./shown.js";

/** @import { VectorsSaid } from "../messages.d.ts" */
/** @import { Pair, Reckoned, Vectors, View } from "./view.d.ts" */

const DIMENSIONS_SHOWN = 8;

/**
 * What one query gives: the score of every key, what its distance added, and the softmax of all.
 * @param {Vectors} vectors
 * @param {VectorsSaid} said
 * @param {number} query
 * @returns {Reckoned}
 */
export function reckoned({ queries, keys, distances }, { name, size, terms, causal, window }, query) {
  const count = keys.length / size;
  const scores = new Float64Array(count);
  let largestProduct = 0;
  for (let key = 0; key < count; key++) {
    let sum = 0;
    for (let i = 0; i < size; i++) {
      const product = queries[query * size + i] * keys[key * size + i];
      largestProduct = Math.max(largestProduct, Math.abs(product) || 0);
      sum += product;
    }
    const product = sum / Math.sqrt(size * terms);
    const masked = (causal && key > query) || (window !== null && Math.abs(key - query) > window);
    scores[key] = masked ? -Infinity : product + (distances?.[query * count + key] ?? 0);
  }
  const highest = scores.reduce((most, x) => Math.max(most, x), -Infinity);
  const powers = scores.map((score) => Math.exp(score - highest));
  const all = powers.reduce((sum, x) => sum + x, 0);
  return { name, query, scores, shares: powers.map((x) => x / all), largestProduct };
}

/**
 * The same for the view, kept while the query stays.
 * @param {View} view
 * @param {Vectors} vectors
 * @param {number} query
 */
function reckonedOf(view, vectors, query) {
  const said = saidOf(view);
  if (view.reckoned?.name !== said.name || view.reckoned.query !== query) {
    view.reckoned = reckoned(vectors, said, query);
  }
  return view.reckoned;
}

/**
 * Where vectors are here, the header speaks of them.
 * @param {View} view
 */
const saidOf = (view) => /** @type {VectorsSaid} */ (view.header.vectors);

/**
 * The query looked at last, or selected, or that of the page; the key looked at, or the one that this query looks at most.
 * @param {View} view
 * @returns {Pair}
 */
export function pairOf(view) {
  const { header, choice } = view;
  const selected = choice.side === "query" && choice.positions.length ? choice.positions : [header.query];
  const first = header.queries.findIndex(([, at]) => selected.includes(at));
  const query = view.asked ?? Math.max(first, 0);
  const vectors = vectorsOf(view);
  if (!vectors) return { query, key: null };
  const { shares } = reckonedOf(view, vectors, query);
  const key = view.pointed?.key ?? shares.reduce((best, x, i) => (x > shares[best] ? i : best), 0);
  return { query, key };
}

/** @param {View} view */
export function listenToVectors(view) {
  const { canvas, tip } = view;
  canvas.onpointermove = (event) => {
    const vectors = isNeuron(view) && vectorsOf(view);
    if (!vectors) return;
    const box = canvas.getBoundingClientRect();
    const key = Math.floor((event.clientY - box.top + view.stage.scrollTop) / view.row);
    if (key < 0 || key >= view.header.keys.length) return;
    const layout = layoutOf(view);
    const x = event.clientX - box.left;
    const strip = [layout.key, layout.product].find((start) => x >= start && x < start + layout.strip);
    const { size, rotated } = saidOf(view);
    const dimension = strip === undefined ? null : Math.min(Math.floor(((x - strip) / layout.strip) * size), size - 1);
    pointKey(view, key, dimension);
    if (dimension === null) return tip.hidePopover();
    const { query } = pairOf(view);
    const [q, k] = [vectors.queries[query * size + dimension], vectors.keys[key * size + dimension]];
    const which = `${placed(view.header.queries[query])} → ${placed(view.header.keys[key])}`;
    const pair = rotated ? ` (pair with ${pairedWith(dimension, size)})` : "";
    const text = `${which}\ndimension ${dimension}${pair}: q ${exactly(q)} × k ${exactly(k)} = ${exactly(q * k)}`;
    putTip(tip, text, () => [event.clientX + 14, event.clientY + 16]);
  };
  canvas.onpointerleave = () => {
    if (!isNeuron(view)) return;
    tip.hidePopover();
    if (view.pointed) pointKey(view, view.pointed.key, null);
  };
}

/**
 * The dimension that is rotated together with another.
 * @param {number} dimension
 * @param {number} size
 */
const pairedWith = (dimension, size) => (dimension + size / 2) % size;

/**
 * Where the columns of the picture begin, in pixels of the canvas: two strips of cells, then numbers.
 * @param {View} view
 */
function layoutOf(view) {
  const { lecture, vectors } = view.header;
  const font = lecture ? Math.round(rem()) : 13;
  const [gap, number, share] = lecture ? [0.7 * font, 4 * font, 6.2 * font] : [14, 62, 116];
  const numbers = vectors?.distances ? 3 : 1;
  const strip = Math.max((view.canvas.clientWidth - 4 * gap - numbers * number - share) / 2, 40);
  const key = gap;
  const product = key + strip + gap;
  const score = product + strip + gap;
  return { font, gap, number, share, strip, key, product, score, softmax: score + numbers * number + gap };
}

/** @param {View} view */
export function drawVectors(view) {
  const { canvas, stage, header } = view;
  const [width, height] = [canvas.clientWidth, stage.clientHeight];
  canvas.style.height = `${height}px`;
  const context = sized(canvas, width, height);
  const crown = sized(view.crown, view.crown.clientWidth, view.crown.clientHeight);
  const said = header.vectors;
  const pairs = said?.rotated ? [`after the rotation; dimensions i and i + ${said.size / 2} are a pair`] : [];
  note(view, said ? [`${said.size} numbers in each vector, exact; blue below zero, orange above`, ...pairs] : []);
  const vectors = vectorsOf(view);
  if (!said || !vectors) return;
  const layout = layoutOf(view);
  const { query, key: pointed } = pairOf(view);
  const { queries, keys, distances } = vectors;
  const { size } = said;
  const { scores, shares, largestProduct } = reckonedOf(view, vectors, query);
  const limit = Math.max(peak(queries), peak(keys)) || 1;
  const { ink, faint, line, family } = styleOf(view.root);
  /**
   * @param {CanvasRenderingContext2D} on
   * @param {number} x
   * @param {number} y
   * @param {number} tall
   * @param {(i: number) => number} numberAt
   * @param {number} most
   */
  const vector = (on, x, y, tall, numberAt, most) => {
    const cell = layout.strip / size;
    for (let i = 0; i < size; i++) {
      const shade = view.signColours[Math.round(127.5 + 127.5 * Math.max(-1, Math.min(numberAt(i) / most, 1)))];
      on.fillStyle = `rgb(${shade.join(" ")})`;
      // Neighbours share an edge at whole pixels of the screen, so that no seam shows.
      const [left, right] = [x + i * cell, x + (i + 1) * cell].map(snapped);
      on.fillRect(left, y, right - left, tall);
    }
    on.strokeStyle = line;
    on.strokeRect(x - 0.5, y - 0.5, layout.strip + 1, tall + 1);
  };

  // Above: the query's own vector over the keys', and what the columns are.
  const beside = canvas.getBoundingClientRect().left - view.crown.getBoundingClientRect().left;
  const tall = Math.round(layout.font * 1.4);
  crown.translate(beside, 0);
  crown.font = `${layout.font}px ${family}`;
  crown.textBaseline = "middle";
  crown.fillStyle = ink;
  crown.textAlign = "right";
  crown.fillText("query q", layout.key - 8, 4 + tall / 2, Math.max(beside + layout.key - 8, 40));
  vector(crown, layout.key, 4, tall, (i) => queries[query * size + i], limit);
  crown.textAlign = "left";
  crown.fillStyle = faint;
  crown.fillText(`±${rounded(limit, 2, true)}`, layout.product, 4 + tall / 2);
  const under = 4 + tall + layout.font;
  crown.fillText("key k", layout.key, under, layout.strip);
  const product = `q × k, ±${rounded(largestProduct, 2, true)}`;
  const fits = crown.measureText(product).width <= layout.strip + layout.gap;
  crown.fillText(fits ? product : "q × k", layout.product, under);
  crown.textAlign = "right";
  const heading = `q·k/√${size * said.terms}`;
  const titles = distances ? [heading, "distance", "score"] : [heading];
  titles.forEach((text, i) => {
    crown.fillText(text, layout.score + (i + 1) * layout.number, under, layout.number);
  });
  crown.textAlign = "left";
  crown.fillText("softmax", layout.softmax, under, layout.share);

  const first = Math.max(Math.floor(stage.scrollTop / view.row), 0);
  const last = Math.min(Math.ceil((stage.scrollTop + height) / view.row), header.keys.length);
  context.textBaseline = "middle";
  const bar = layout.share - 3.6 * layout.font - 6; // beside its number
  const most = peak(shares) || 1;
  for (let key = first; key < last; key++) {
    const y = key * view.row - stage.scrollTop;
    const middle = y + view.row / 2;
    if (key === pointed) {
      context.fillStyle = `rgb(${view.dark ? "255 255 255" : "0 0 0"} / 0.08)`;
      context.fillRect(0, y, width, view.row);
    }
    const [q, k] = [query * size, key * size];
    vector(context, layout.key, y + 2, view.row - 4, (i) => keys[k + i], limit);
    vector(context, layout.product, y + 2, view.row - 4, (i) => queries[q + i] * keys[k + i], largestProduct || 1);
    context.font = `${key === pointed ? "bold " : ""}${Math.min(layout.font, view.row - 4)}px ${family}`;
    context.fillStyle = ink;
    context.textAlign = "right";
    const added = distances?.[query * header.keys.length + key];
    const list = added === undefined ? [scores[key]] : [scores[key] - added, added, scores[key]];
    list.forEach((x, i) => {
      context.fillText(withPlaces(x, 2), layout.score + (i + 1) * layout.number, middle);
    });
    context.fillStyle = headColour(view, view.choice.heads[0]);
    context.fillRect(layout.softmax, y + 3, Math.max((bar * shares[key]) / most, 0.5), view.row - 6);
    context.fillStyle = ink;
    context.fillText(rounded(shares[key], 3, false), layout.softmax + layout.share - 6, middle);
  }
}

/**
 * The panel: the sum of one query and one key, its largest parts first, and what the softmax makes of it.
 * @param {View} view
 * @param {Pair} pair
 */
export function showSum(view, { query, key }) {
  const title = element("div", "title");
  const grid = element("table");
  view.numbers.replaceChildren(title, grid);
  const vectors = vectorsOf(view);
  if (key === null || !vectors) return;
  const { queries, keys, distances } = vectors;
  const { size, terms, causal, rotated } = saidOf(view);
  const { scores, shares } = reckonedOf(view, vectors, query);
  const [from, to] = [view.header.queries[query], view.header.keys[key]];
  const quoted = (/** @type {string} */ text) => {
    const made = element("b", "", shortened(text, 24));
    made.dir = "auto";
    return made;
  };
  title.append(quoted(from[0]), ` (${from[1]}) → `, quoted(to[0]), ` (${to[1]})`);
  const parts = Array.from({ length: size }, (_, i) => {
    const [q, k] = [queries[query * size + i], keys[key * size + i]];
    return { i, q, k, product: q * k };
  });
  const sum = (/** @type {typeof parts} */ some) => some.reduce((total, { product }) => total + product, 0);
  const order = [...parts].sort((a, b) => Math.abs(b.product) - Math.abs(a.product) || a.i - b.i);
  const named = (/** @type {string} */ text) => element("th", "number", text);
  grid.append(tableRow([named("dimension"), named("q"), named("k"), named("q × k")], "th"));
  for (const { i, q, k, product } of order.slice(0, DIMENSIONS_SHOWN)) {
    const name = rotated ? `${i} (with ${pairedWith(i, size)})` : String(i);
    grid.append(tableRow([element("td", "number", name), ...[q, k, product].map(signedDigits)], "td"));
  }
  const foot = (/** @type {string} */ text, /** @type {HTMLElement} */ number) => {
    const label = element("td", "label", text);
    label.colSpan = 3;
    const row = tableRow([label, number], "td");
    row.className = "foot";
    grid.append(row);
  };
  const rest = order.slice(DIMENSIONS_SHOWN);
  if (rest.length) foot(`${rest.length} others`, signedDigits(sum(rest)));
  foot("q · k, all together", signedDigits(sum(parts)));
  foot(`divided by √${size * terms}`, signedDigits(sum(parts) / Math.sqrt(size * terms)));
  if (distances) foot("what the distance adds", signedDigits(distances[query * view.header.keys.length + key]));
  const reason = causal && key > query ? "a later token: masked" : "outside the window: masked";
  if (scores[key] === -Infinity) foot(reason, element("td", "number", "−∞"));
  foot("softmax over all keys", digits(shares[key], true, false));
}

/** @param {number} number */
function signedDigits(number) {
  const made = element("td", "number", withPlaces(number, 3));
  made.title = exactly(number);
  return made;
}
