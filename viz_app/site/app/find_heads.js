// Heads that attend from one token to another, and the head that a page opens first.

/** @import { Encoding } from "../engine/tokenizer.js" */
/** @import { Head, Run, Shown, State } from "./types.d.ts" */

/**
 * The attention of one head from one token to another.
 * @typedef {object} PairHead
 * @property {number} layer
 * @property {number} head
 * @property {number} weight
 * @property {number} percentile percentage of all pairs of tokens with a smaller weight in this head
 *
 * The largest value from or to some tokens in a head.
 * @typedef {{ query: number, key: number, value: number }} LargestValue
 *
 * @typedef {[query: number, key: number]} Edge
 */

const MAX_GRADIENT_TOKENS = 64; // of a text for which the head that opens is chosen by its effect

/**
 * Return the values of a run that are shown, (layer, head, query, key). Without a gradient they are those of attention.
 * @param {Run} run
 * @param {Shown} shown
 */
export function mapsOf({ attention, attentionGradient }, shown) {
  if (shown === "attention" || !attentionGradient) return attention;
  return shown === "gradient" ? attentionGradient : attention.map((weight, i) => weight * attentionGradient[i]);
}

/**
 * Return the map of one head, (query, key).
 * @param {Run} run
 * @param {Float32Array} maps (layer, head, query, key)
 * @param {Head} head
 */
export function mapOf(run, maps, [layer, head]) {
  const size = run.encoding.tokens.length ** 2;
  const start = (layer * run.heads + head) * size;
  return maps.subarray(start, start + size);
}

/**
 * Return all heads of a model, (layer, head), also pruned ones.
 * @param {{ layers: number, heads: number }} model
 * @returns {Head[]}
 */
export const allHeads = ({ layers, heads }) =>
  Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]);

/**
 * Return the heads that do not exist, because they were pruned.
 * @param {Run} run
 */
export const prunedHeads = (run) => allHeads(run).filter((head) => Number.isNaN(mapOf(run, run.attention, head)[0]));

/**
 * Return a head, or if it was pruned the first one of its layer that exists.
 * @param {Run} run
 * @param {Head} head
 * @returns {Head}
 */
export function existingHead(run, head) {
  const pruned = prunedHeads(run).map(String);
  const candidates = [head, ...allHeads(run).filter(([layer]) => layer === head[0])];
  return candidates.find((candidate) => !pruned.includes(String(candidate))) ?? head;
}

/**
 * Return the values of all heads from a query to a key, (layer, head); NaN for a pruned head.
 * @param {Run} run
 * @param {Float32Array} maps (layer, head, query, key)
 * @param {Edge} edge
 */
export function edgeValues(run, maps, [query, key]) {
  const length = run.encoding.tokens.length;
  return Float32Array.from(allHeads(run), (_, i) => maps[i * length * length + query * length + key]);
}

/**
 * Rank the heads by their attention weight from a query to a key, the largest first. Pruned heads are left out.
 * @param {Run} run
 * @param {Edge} edge
 * @returns {PairHead[]}
 */
export function findHeads(run, edge) {
  const weights = edgeValues(run, run.attention, edge);
  const ranked = allHeads(run).map(([layer, head], i) => {
    const map = mapOf(run, run.attention, [layer, head]);
    const smaller = map.reduce((count, weight) => count + Number(weight < weights[i]), 0);
    return { layer, head, weight: weights[i], percentile: (100 * smaller) / map.length };
  });
  return ranked.filter(({ weight }) => Number.isFinite(weight)).sort((a, b) => b.weight - a.weight);
}

/**
 * Return the positions of words, which special tokens around the text are not.
 * @param {Encoding} encoding
 */
const wordPositions = ({ sides }) => [...sides.keys()].filter((position) => sides[position] !== null);

/**
 * Return the head with the largest product of the attention from the masks to another word, and the effect on the
 * target. Without a mask all words are queries, and without gradients, or in a long text, all effects are equal.
 * @param {Run} run with all heads on
 * @returns {Head | null} null if no head attends to another word
 */
export function openingHead(run) {
  const { encoding, headMaskGradient } = run;
  const words = wordPositions(encoding);
  const queries = encoding.maskPositions.length ? encoding.maskPositions : words;
  const effects = encoding.tokens.length <= MAX_GRADIENT_TOKENS ? headMaskGradient : null;
  /** @type {Head | null} */
  let largestHead = null;
  let largest = 0;
  for (const [i, head] of allHeads(run).entries()) {
    const map = mapOf(run, run.attention, head);
    const weights = queries.map((query) => largestWeight(map, encoding.tokens.length, query, words));
    const mean = weights.reduce((sum, weight) => sum + weight, 0) / queries.length;
    const relevance = mean * Math.abs(effects ? effects[i] || 0 : 1);
    if (relevance > largest) [largest, largestHead] = [relevance, head];
  }
  return largestHead;
}

/**
 * Return the largest attention weight from a query to another word; 0 without one.
 * @param {Float32Array} map (query, key)
 * @param {number} length
 * @param {number} query
 * @param {number[]} words
 */
const largestWeight = (map, length, query, words) =>
  words.reduce((largest, key) => (key === query ? largest : Math.max(largest, map[query * length + key] || 0)), 0);

/**
 * Return the query and the key of the state, or else the mask and the other word to which a head attends most from it.
 * @param {Run} run
 * @param {Head} head
 * @param {State["edge"]} edge
 * @returns {Edge}
 */
export function currentEdge(run, head, edge) {
  const { encoding } = run;
  const length = encoding.tokens.length;
  if (edge?.every((position) => position < length)) return edge;
  const map = mapOf(run, run.attention, head);
  const words = wordPositions(encoding);
  const queries = encoding.maskPositions.length ? encoding.maskPositions.slice(0, 1) : words;
  /** @type {Edge} */
  let current = [queries[0] ?? 0, words[0] ?? 0];
  let largest = -1;
  for (const query of queries) {
    for (const key of words) {
      const weight = map[query * length + key] || 0;
      if (key !== query && weight > largest) [largest, current] = [weight, [query, key]];
    }
  }
  return current;
}

/**
 * Return the edge after a click on a token: two tokens that are clicked one after the other, in both columns.
 * @param {State["tokens"]} before
 * @param {State["tokens"]} after
 * @returns {Edge | null} null unless one token is selected on each side
 */
export function clickedEdge([sideBefore, before], [side, after]) {
  if (side === sideBefore || before.length !== 1 || after.length !== 1) return null;
  return side === "query" ? [after[0], before[0]] : [before[0], after[0]];
}

/**
 * Return the largest value of a map from or to the selected tokens, or else from the masks, or else of the whole map.
 * @param {Run} run
 * @param {Float32Array} map (query, key)
 * @param {State["tokens"]} tokens
 * @returns {LargestValue}
 */
export function largestValue({ encoding }, map, [side, positions]) {
  const length = encoding.tokens.length;
  const selected = positions.length ? positions : encoding.maskPositions;
  const isKey = side === "key" && positions.length > 0;
  let largest = { query: 0, key: 0, value: map[0] || 0 };
  let size = -1;
  map.forEach((number, i) => {
    const [query, key] = [Math.floor(i / length), i % length];
    const counts = !selected.length || selected.includes(isKey ? key : query);
    const value = number || 0;
    if (counts && Math.abs(value) > size) [size, largest] = [Math.abs(value), { query, key, value }];
  });
  return largest;
}
