// A head as a matrix: the picture.

import { gradient } from "../colour.js";
import { shortened } from "../elements.js";
import { hatch } from "../hatching.js";
import { putTip } from "../tip.js";
import { density, sized, styleOf } from "./canvas.js";
import { exactly, placed, rounded } from "./digits.js";
import { capOf, line, peak, value } from "./maps.js";
import { centreOf, layoutOf, windowOf } from "./matrix.js";
import { note } from "./note.js";
import { drawnHeads, isOutside, mapOf } from "./shown.js";

/** @import { Token } from "../messages.d.ts" */
/** @import { Cell, HeadMap, MatrixLayout, View } from "./view.d.ts" */
/** @typedef {ReturnType<typeof styleOf>} Style */
/**
 * The cells in the window, the last not included.
 * @typedef {{ firstRow: number, lastRow: number, firstColumn: number, lastColumn: number }} Seen
 */

/** @param {View} view */
export function drawMatrix(view) {
  const { matrix, header } = view;
  const layout = layoutOf(view);
  view.layout = layout;
  const { margin, top, area, rows, columns, width, height, font } = layout;
  matrix.style.height = `${height}px`;
  const context = sized(matrix, width, height);
  const style = styleOf(view.root);
  const [head] = drawnHeads(view);
  note(view, header.fills ? [] : [`${rows} × ${columns} · Ctrl and wheel, or + and −, to zoom; drag to move`]);
  const name = header.combined ?? `L${header.layer} H${view.choice.heads[0]}`;
  const { hatching } = header;
  view.hatched.hidden = !hatching;
  view.hatched.textContent = hatching?.label ?? "";
  matrix.setAttribute(
    "aria-label",
    `Map of ${name}; ${hatching ? `${hatching.label}; ` : ""}arrow keys read its cells`,
  );
  if (head === undefined) return;
  const map = mapOf(view, head);
  const most = peak(map.maxima);
  const limit = Math.min(header.limit || capOf(map), most) || 1;
  context.save();
  context.globalAlpha = header.off.includes(head) ? 0.4 : 1;
  cells(context, view, map, limit, layout);
  context.restore();
  if (layout.cell >= 10) gridLines(context, view, layout, style.ground);
  if (hatching) {
    const { x: left, y: above } = windowOf(view);
    const first = { x: margin.left - left * layout.cell, y: top - above * layout.cell };
    const size = { width: layout.cell, height: layout.cell };
    hatch(context, hatching.ranges, columns, { ...first, ...size }, { x: margin.left, y: top, ...area }, style, 8);
  }
  context.strokeStyle = style.line;
  context.strokeRect(margin.left - 0.5, top - 0.5, area.width + 1, area.height + 1);

  labels(context, view, layout, style);
  context.font = `${font}px ${style.family}`;
  context.fillStyle = style.faint;
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText("key (to)", margin.left + area.width / 2, height - 2);
  context.save();
  context.translate(2, top + area.height / 2);
  context.rotate(-Math.PI / 2);
  context.textBaseline = "top";
  context.fillText("query (from)", 0, 0);
  context.restore();

  const [low, bar, high] = view.legend;
  const beyond = limit < most;
  low.textContent = header.signed ? `${beyond ? "≤ " : ""}−${rounded(limit, 2, true)}` : "0";
  high.textContent = `${beyond ? "≥ " : ""}${rounded(limit, 2, true)}`;
  bar.style.background = gradient(view.colours);
  if (view.cell) pointed(context, view, map, layout, view.cell, style.ink);
}

/**
 * Every pixel of the screen shows the strongest of the cells that fall on it, so that no line of a map is lost.
 * @param {CanvasRenderingContext2D} context
 * @param {View} view
 * @param {HeadMap} map
 * @param {number} limit
 * @param {MatrixLayout} layout
 */
function cells(context, view, map, limit, { margin, top, area, cell, rows, columns }) {
  const exactly = cell * density() >= 1;
  const { x: left, y: above } = windowOf(view);
  const [firstRow, firstColumn] = [Math.floor(above), Math.floor(left)];
  const lastRow = Math.min(Math.ceil(above + area.height / cell), rows);
  const lastColumn = Math.min(Math.ceil(left + area.width / cell), columns);
  const [w, h] = exactly
    ? [lastColumn - firstColumn, lastRow - firstRow]
    : [Math.round(area.width * density()), Math.round(area.height * density())];
  // Painted again only when something else is seen, not with every cell that is pointed at.
  const now = [map.name, limit, left, above, cell, w, h, view.dark].join();
  if (view.painted?.now !== now) view.painted = { now, picture: painted() };
  context.save();
  context.beginPath();
  context.rect(margin.left, top, area.width, area.height);
  context.clip();
  context.imageSmoothingEnabled = false;
  if (exactly) {
    const [x, y] = [margin.left + (firstColumn - left) * cell, top + (firstRow - above) * cell];
    context.drawImage(view.painted.picture, x, y, w * cell, h * cell);
    if (cell >= 4) crosses(context, map, { x, y, cell }, { firstRow, lastRow, firstColumn, lastColumn });
  } else {
    context.drawImage(view.painted.picture, margin.left, top, area.width, area.height);
  }
  context.restore();

  function painted() {
    const image = new ImageData(w, h);
    const sizes = new Float32Array(w * h).fill(-1);
    const gap = view.dark ? [84, 90, 100] : [190, 196, 205];
    const pixels = cell * density();
    for (let row = firstRow; row < lastRow; row++) {
      const y = exactly ? row - firstRow : Math.min(Math.floor((row - above) * pixels), h - 1);
      for (let column = firstColumn; column < lastColumn; column++) {
        const x = exactly ? column - firstColumn : Math.min(Math.floor((column - left) * pixels), w - 1);
        if (x < 0 || y < 0) continue;
        const number = value(map, row, column);
        const at = y * w + x;
        // A hole is never covered.
        const size = Number.isNaN(number) ? Infinity : Math.abs(number);
        if (size <= sizes[at]) continue;
        sizes[at] = size;
        const share = Math.max(-1, Math.min(number / limit, 1));
        const shade = map.signed ? 127.5 + 127.5 * share : 255 * share;
        image.data.set(size === Infinity ? gap : view.colours[Math.round(shade)], 4 * at);
        image.data[4 * at + 3] = 255;
      }
    }
    const small = new OffscreenCanvas(w, h);
    /** @type {OffscreenCanvasRenderingContext2D} */ (small.getContext("2d")).putImageData(image, 0, 0);
    return small;
  }
}

/**
 * What is no number is crossed out.
 * @param {CanvasRenderingContext2D} context
 * @param {HeadMap} map
 * @param {{ x: number, y: number, cell: number }} place of the first cell
 * @param {Seen} seen
 */
function crosses(context, map, { x, y, cell }, { firstRow, lastRow, firstColumn, lastColumn }) {
  context.strokeStyle = "#c0392b";
  context.lineWidth = 1.5;
  context.beginPath();
  for (let row = firstRow; row < lastRow; row++) {
    for (let column = firstColumn; column < lastColumn; column++) {
      if (map.bytes[row * map.columns + column] !== map.codes.none) continue;
      const [left, top] = [x + (column - firstColumn) * cell, y + (row - firstRow) * cell];
      context.moveTo(left + 2, top + 2);
      context.lineTo(left + cell - 2, top + cell - 2);
      context.moveTo(left + cell - 2, top + 2);
      context.lineTo(left + 2, top + cell - 2);
    }
  }
  context.stroke();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {View} view
 * @param {MatrixLayout} layout
 * @param {string} colour
 */
function gridLines(context, view, { margin, top, area, cell }, colour) {
  const { x: left, y: above } = windowOf(view);
  const first = (/** @type {number} */ start) => (Math.ceil(start) - start) * cell;
  context.fillStyle = colour;
  for (let x = first(left); x < area.width; x += cell) context.fillRect(margin.left + x - 0.5, top, 1, area.height);
  for (let y = first(above); y < area.height; y += cell) context.fillRect(margin.left, top + y - 0.5, area.width, 1);
}

/**
 * As many labels as have room; that of the cell pointed at always.
 * @param {CanvasRenderingContext2D} context
 * @param {View} view
 * @param {MatrixLayout} layout
 * @param {Style} style
 */
function labels(context, view, { margin, top, area, cell, font, letters, rows, columns }, { ink, faint, code }) {
  const every = Math.max(1, Math.ceil((font + 2) / cell));
  const size = Math.max(Math.min(font, cell * every - 2), 9);
  /**
   * @param {Token[]} list
   * @param {number} start
   * @param {number} length of the window, in cells
   * @param {number} count
   * @param {number | undefined} chosen
   * @param {(text: string, middle: number) => void} put
   */
  const write = (list, start, length, count, chosen, put) => {
    const from = Math.ceil(start / every) * every;
    const shown = [];
    for (let i = from; i < Math.min(start + length, count); i += every) {
      if (chosen === undefined || Math.abs(i - chosen) * cell >= font) shown.push(i);
    }
    if (chosen !== undefined) shown.push(chosen);
    for (const i of shown) {
      const middle = (i + 0.5 - start) * cell;
      if (middle < 0 || middle > length * cell) continue;
      const [text, , sentence] = list[i];
      context.fillStyle = i === chosen || sentence ? ink : faint;
      context.font = `${i === chosen ? "bold " : ""}${size}px ${code}`;
      put(shortened(text, letters), middle);
    }
  };
  const { x: left, y: above } = windowOf(view);
  context.textBaseline = "middle";
  context.textAlign = "right";
  write(view.header.queries, above, area.height / cell, rows, view.cell?.row, (text, middle) =>
    context.fillText(text, margin.left - 6, top + middle, margin.left - 22),
  );
  write(view.header.keys, left, area.width / cell, columns, view.cell?.column, (text, middle) => {
    context.save();
    context.translate(margin.left + middle, top + area.height + 6);
    context.rotate(-Math.PI / 2);
    context.fillText(text, 0, 0, margin.bottom - 24);
    context.restore();
  });
}

/**
 * The cell under the pointer or the keyboard: a ring, and its number, which the server may still be asked for.
 * @param {CanvasRenderingContext2D} context
 * @param {View} view
 * @param {HeadMap} map
 * @param {MatrixLayout} layout
 * @param {Cell} cell
 * @param {string} ink
 */
function pointed(context, view, map, layout, cell, ink) {
  const { row, column } = cell;
  const side = Math.max(layout.cell, 5);
  const [x, y] = centreOf(view, layout, cell);
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.strokeRect(x - side / 2, y - side / 2, side, side);
  const { numbers, exact } = line(map, "query", row);
  const number = exact ? exactly(numbers[column]) : `≈ ${rounded(numbers[column], 2, view.header.signed)}`;
  const { queries, keys, unit, hatching } = view.header;
  const said = isOutside(view, row, column) ? `${unit}: ${hatching?.outside}` : `${unit} ${number}`;
  const text = `${placed(queries[row])} → ${placed(keys[column])}\n${said}`;
  if (exact && view.reading.textContent !== text) view.reading.textContent = text;
  const box = view.matrix.getBoundingClientRect();
  putTip(view.tip, text, ({ width }) => {
    const right = box.left + x + side / 2 + 10;
    const fits = right + width + 4 < window.innerWidth;
    return [fits ? right : box.left + x - side / 2 - 10 - width, box.top + y + side / 2 + 8];
  });
}
