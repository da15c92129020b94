// The heads as curves from queries to keys.

import { sized } from "./canvas.js";
import { byStrength, keptEdges, lightened, line, peak } from "./maps.js";
import { note } from "./note.js";
import { activeTokens, colourOf, drawnHeads, mapOf } from "./shown.js";

/** @import { Active, Place, View } from "./view.d.ts" */
/** @typedef {{ list: Place[], shown: number, left: number }} Edges weakest first; how many are meant, and not drawn */

const MOST_OF_A_HEAD = 6000;
const FAINTEST = 200; // times weaker than the strongest of the tokens that are looked at: not drawn
const DASH_PATTERNS = [[], [7, 4], [2, 3], [8, 3, 2, 3]];

/** @param {View} view */
export function drawCurves(view) {
  const { canvas, stage, header } = view;
  const [width, height] = [canvas.clientWidth, stage.clientHeight];
  canvas.style.height = `${height}px`;
  const context = sized(canvas, width, height);
  context.lineCap = "round";
  const active = activeTokens(view);
  const drawn = drawnHeads(view).map((head) => ({ head, edges: edgesOf(view, head, active) }));
  // One scale for all heads and tokens: a weak edge is thin beside a strong one that is drawn elsewhere.
  const largest = header.limit || Math.max(...drawn.map(({ head }) => peak(mapOf(view, head).maxima)), 0) || 1;
  for (const { head, edges } of drawn) {
    const dashed = drawn.length > 1 && edges.list.length < 1500;
    context.setLineDash(dashed ? DASH_PATTERNS[(head + Math.floor(head / 12)) % 4] : []);
    strokes(context, view, head, edges.list, largest, width);
  }
  note(view, said(view, active, drawn));
}

/**
 * The edges of a head that are drawn.
 * @param {View} view
 * @param {number} head
 * @param {Active | null} active
 * @returns {Edges}
 */
function edgesOf(view, head, active) {
  const map = mapOf(view, head);
  const top = view.stage.scrollTop / view.row - 1;
  const bottom = top + view.stage.clientHeight / view.row + 2;
  const inside = (/** @type {number} */ place) => place >= top && place <= bottom;
  const seen = (/** @type {number} */ row, /** @type {number} */ column) => inside(row) || inside(column);
  /** @type {Place[]} */
  let list = [];
  let shown = 0;
  if (active) {
    // All that goes from or to these tokens, whatever the share: a row that is spread thin is seen too.
    const lines = active.indices.map((index) => ({ index, numbers: line(map, active.side, index).numbers }));
    const least = Math.max(...lines.map(({ numbers }) => peak(numbers))) / FAINTEST;
    for (const { index, numbers } of lines) {
      numbers.forEach((number, i) => {
        const [row, column] = active.side === "query" ? [index, i] : [i, index];
        if (Math.abs(number) > least && seen(row, column)) list.push([row, column, number]);
      });
    }
    list.sort(byStrength);
    shown = list.length;
  } else {
    const kept = keptEdges(map, view.choice.kept);
    shown = kept.length;
    list = kept.filter(([row, column]) => seen(row, column));
  }
  const left = Math.max(list.length - MOST_OF_A_HEAD, 0);
  return { list: left ? lightened(map, list, left) : list, shown, left };
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {View} view
 * @param {number} head
 * @param {Place[]} list
 * @param {number} largest
 * @param {number} width
 */
function strokes(context, view, head, list, largest, width) {
  const off = view.header.off.includes(head);
  const half = view.row / 2;
  const top = view.stage.scrollTop;
  const heavy = view.header.lecture ? 1.7 : 1;
  // Thousands of curves would paint a wall: the more there are, the lighter each, and a hint of what leaves the sight.
  const many = Math.min(1, Math.max(0.3, Math.sqrt(500 / list.length)));
  const last = top + view.stage.clientHeight;
  const stays = (/** @type {number} */ place) => (place + 1) * view.row > top && place * view.row < last;
  // Curves of one strength are one path: a few paths are much faster than a thousand.
  let level = -1;
  let waiting = 0;
  const flush = () => {
    if (waiting) context.stroke();
    context.beginPath();
    waiting = 0;
  };
  flush();
  let sign = 0;
  let leaving = false;
  for (const [row, column, number] of list) {
    const share = Math.min(Math.abs(number) / largest, 1);
    const leaves = !stays(row) || !stays(column);
    const now = Math.round(share * 24);
    if (now !== level || Math.sign(number) !== sign || leaves !== leaving || waiting >= 48) {
      flush();
      [level, sign, leaving] = [now, Math.sign(number), leaves];
      const light = (off ? 0.35 : 1) * many * (leaves ? 0.2 : 1);
      const alpha = (0.16 + 0.76 * (now / 24)) * light;
      context.strokeStyle = `rgb(${colourOf(view, head, number).join(" ")} / ${alpha.toFixed(3)})`;
      context.lineWidth = (0.8 + (leaves ? 0.4 : 2.8) * (now / 24)) * heavy;
    }
    const [from, to] = [(row * 2 + 1) * half - top, (column * 2 + 1) * half - top];
    context.moveTo(0, from);
    context.bezierCurveTo(width * 0.45, from, width * 0.55, to, width, to);
    waiting++;
  }
  flush();
}

/**
 * What is said of the curves.
 * @param {View} view
 * @param {Active | null} active
 * @param {{ head: number, edges: Edges }[]} drawn
 */
function said(view, active, drawn) {
  const told = [];
  if (active)
    told.push(`all edges of ${active.indices.length > 1 ? "these tokens" : "this token"} (threshold ignored)`);
  else {
    const shown = drawn.reduce((sum, { edges }) => sum + edges.shown, 0);
    const { hatching } = view.header;
    const possible = hatching?.ranges.reduce((sum, [first, end]) => sum + end - first, 0);
    const all = drawn.reduce((sum, { head }) => sum + (possible ?? mapOf(view, head).bytes.length), 0);
    told.push(`${shown.toLocaleString("en")} of ${all.toLocaleString("en")} edges`);
  }
  const left = drawn.reduce((sum, { edges }) => sum + edges.left, 0);
  if (left) told.push(`${left.toLocaleString("en")} weakest visible edges not drawn`);
  return told;
}
