// A head as a matrix: its window, in which one zooms and moves, and what a hand does on it.

import { element } from "../elements.js";
import { rem } from "./canvas.js";

/** @import { Cell, MatrixLayout, View } from "./view.d.ts" */

const LARGEST_CELL = 64; // pixels
const STEP = 1.6; // of the zoom

/** @param {View} view */
export function mountMatrix(view) {
  view.matrixBox = element("div", "matrix-box");
  const tools = element("div", "tools");
  const legend = element("div", "legend");
  view.legend = [element("span"), element("span", "scale"), element("span")];
  legend.append(...view.legend);
  const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {number} */ factor) => {
    const made = element("button", "step", text);
    made.type = "button";
    made.setAttribute("aria-label", label);
    made.onclick = () => zoom(view, factor);
    return made;
  };
  tools.append(
    legend,
    button("−", "zoom out", 1 / STEP),
    button("+", "zoom in", STEP),
    button("fit", "show the whole map", 0),
  );
  view.hatched = element("div", "hatched");
  view.matrix = element("canvas", "matrix");
  view.matrix.tabIndex = 0;
  view.matrix.setAttribute("role", "img");
  view.reading = element("div", "unseen reading");
  view.reading.setAttribute("aria-live", "polite");
  view.matrixBox.append(tools, view.hatched, view.matrix, view.reading);
  return view.matrixBox;
}

/** @param {View} view */
export function listenToMatrix(view) {
  const { matrix } = view;
  const place = (/** @type {MouseEvent} */ event) => {
    const box = matrix.getBoundingClientRect();
    return /** @type {[number, number]} */ ([event.clientX - box.left, event.clientY - box.top]);
  };
  /** @type {{ start: [number, number], from: { x: number, y: number } } | null} */
  let drag = null;
  matrix.onpointermove = (event) => {
    if (!view.layout) return;
    const [x, y] = place(event);
    if (!drag) return point(view, cellAt(view, view.layout, x, y));
    const { cell } = view.layout;
    const { start, from } = drag;
    shift(view, from.x - (x - start[0]) / cell, from.y - (y - start[1]) / cell);
    point(view, null);
  };
  matrix.onpointerdown = (event) => {
    if (event.button !== 0 || !view.window) return;
    drag = { start: place(event), from: { ...view.window } };
    matrix.setPointerCapture(event.pointerId);
  };
  matrix.onpointerup = matrix.onpointercancel = () => {
    drag = null;
  };
  matrix.onpointerleave = () => point(view, null);
  matrix.onblur = () => point(view, null);
  matrix.ondblclick = (event) => zoom(view, 2, place(event));
  // Alone the wheel scrolls the page, as everywhere.
  matrix.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(view, Math.exp(-event.deltaY / 300), place(event));
    },
    { passive: false },
  );
  matrix.onkeydown = (event) => {
    if (pressed(view, event.key)) event.preventDefault();
  };
}

/**
 * What a key does; false for nothing.
 * @param {View} view
 * @param {string} key
 */
function pressed(view, key) {
  const { layout } = view;
  if (!layout) return false;
  const factors = { "+": STEP, "=": STEP, "-": 1 / STEP, 0: 0 };
  const factor = factors[/** @type {keyof typeof factors} */ (key)];
  if (factor !== undefined) zoom(view, factor, view.cell ? centreOf(view, layout, view.cell) : undefined);
  else if (key === "Escape") point(view, null);
  else {
    const to = neighbour(view.cell, key, layout.rows, layout.columns);
    if (!to) return false;
    reveal(view, layout, to);
    point(view, to);
  }
  return true;
}

/**
 * The cell that a key goes to, the first one from none; null for a key that goes nowhere.
 * @param {Cell | null} from
 * @param {string} key
 * @param {number} rows
 * @param {number} columns
 */
export function neighbour(from, key, rows, columns) {
  const { row, column } = from ?? { row: 0, column: 0 };
  const steps = {
    ArrowRight: [row, column + 1],
    ArrowLeft: [row, column - 1],
    ArrowDown: [row + 1, column],
    ArrowUp: [row - 1, column],
    Home: [row, 0],
    End: [row, columns - 1],
  };
  const to = steps[/** @type {keyof typeof steps} */ (key)];
  if (!to) return null;
  if (!from) return { row, column };
  const limited = (/** @type {number} */ n, /** @type {number} */ count) => Math.min(Math.max(n, 0), count - 1);
  return { row: limited(to[0], rows), column: limited(to[1], columns) };
}

/**
 * The whole map is a window from 0 with a zoom of 1; all in cells.
 * @param {View} view
 */
export function windowOf(view) {
  view.window ??= { x: 0, y: 0, zoom: 1 };
  return view.window;
}

/**
 * @param {View} view
 * @returns {MatrixLayout}
 */
export function layoutOf(view) {
  const { header, matrix, matrixBox } = view;
  const [rows, columns] = [header.queries.length, header.keys.length];
  const { lecture, fills } = header;
  const font = lecture ? Math.round(0.85 * rem()) : 13;
  const letters = fills ? 9 : 16; // of a label: where the view is as high as its place, the map needs the room
  const longest = (/** @type {import("../messages.d.ts").Token[]} */ list) =>
    Math.min(Math.max(...list.map(([text]) => [...text.slice(0, 40)].length)), letters);
  const margin = { left: 24 + longest(header.queries) * font * 0.62, bottom: 26 + longest(header.keys) * font * 0.62 };
  const width = matrix.clientWidth;
  // With its labels and tools a map is no taller than the screen, or than its share of it.
  const screen = Math.min(lecture ? 820 : 600, 0.68 * window.innerHeight - margin.bottom);
  const share = matrixBox.clientHeight - matrix.offsetTop + matrixBox.offsetTop - margin.bottom - font;
  const room = {
    width: Math.max(width - margin.left - 6, 40),
    height: fills ? Math.max(share, 120) : Math.max(screen, 240),
  };
  const fit = Math.min(room.width / columns, room.height / rows, LARGEST_CELL);
  const { zoom: by } = windowOf(view);
  const cell = fit * by;
  const area = { width: fit * columns, height: fit * rows };
  // Zoomed in, the room beside a narrow map is used too.
  if (by > 1) {
    area.width = Math.min(room.width, cell * columns);
    area.height = Math.min(Math.max(area.height, Math.min(room.height, room.width)), cell * rows);
  }
  const height = area.height + margin.bottom + font;
  return { rows, columns, font, letters, margin, width, height, area, cell, fit, top: Math.ceil(font / 2) };
}

/**
 * @param {View} view
 * @param {MatrixLayout} layout
 * @param {number} x
 * @param {number} y
 */
function cellAt(view, { margin, top, area, cell, rows, columns }, x, y) {
  const [inX, inY] = [x - margin.left, y - top];
  if (inX < 0 || inY < 0 || inX >= area.width || inY >= area.height) return null;
  const { x: left, y: above } = windowOf(view);
  const [column, row] = [Math.floor(left + inX / cell), Math.floor(above + inY / cell)];
  return row < rows && column < columns ? { row, column } : null;
}

/**
 * @param {View} view
 * @param {MatrixLayout} layout
 * @param {Cell} cell
 * @returns {[x: number, y: number]}
 */
export function centreOf(view, { margin, top, cell }, { row, column }) {
  const { x, y } = windowOf(view);
  return [margin.left + (column + 0.5 - x) * cell, top + (row + 0.5 - y) * cell];
}

/**
 * Zoom about a point of the canvas, so that what is there stays there; 0 goes back to the whole.
 * @param {View} view
 * @param {number} factor
 * @param {[x: number, y: number]} [at]
 */
function zoom(view, factor, at) {
  const before = view.layout;
  if (!before) return;
  const { margin, top, area, cell, fit } = before;
  const seen = windowOf(view);
  const [x, y] = at ?? [margin.left + area.width / 2, top + area.height / 2];
  const [inX, inY] = [(x - margin.left) / cell + seen.x, (y - top) / cell + seen.y];
  seen.zoom = factor ? Math.min(Math.max(seen.zoom * factor, 1), Math.max(LARGEST_CELL / fit, 1)) : 1;
  const after = layoutOf(view);
  shift(view, inX - (x - margin.left) / after.cell, inY - (y - top) / after.cell);
}

/**
 * @param {View} view
 * @param {number} x
 * @param {number} y
 */
function shift(view, x, y) {
  const { rows, columns, area, cell } = layoutOf(view);
  const seen = windowOf(view);
  seen.x = Math.min(Math.max(x, 0), Math.max(columns - area.width / cell, 0));
  seen.y = Math.min(Math.max(y, 0), Math.max(rows - area.height / cell, 0));
  view.redraw();
}

/**
 * Move the window as little as brings a cell into it.
 * @param {View} view
 * @param {MatrixLayout} layout
 * @param {Cell} cell
 */
function reveal(view, { area, cell }, { row, column }) {
  const inside = (/** @type {number} */ start, /** @type {number} */ length, /** @type {number} */ at) =>
    Math.min(Math.max(start, at + 1 - length), at);
  const { x, y } = windowOf(view);
  shift(view, inside(x, area.width / cell, column), inside(y, area.height / cell, row));
}

/**
 * @param {View} view
 * @param {Cell | null} cell
 */
function point(view, cell) {
  if (cell?.row === view.cell?.row && cell?.column === view.cell?.column) return;
  view.cell = cell;
  if (!cell) view.tip.hidePopover();
  view.refresh();
}
