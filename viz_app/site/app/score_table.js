// The scores of tokens by several methods: a strip of coloured tokens, and bars in the same columns.

import { isDark, luminance, shades } from "../../components/colour.js";
import { element } from "../../components/elements.js";
import { cellNumber } from "../../components/numbers.js";
import { sharesOf } from "./attributions.js";
import { createButton } from "./controls.js";

/** @import { Look } from "../../components/messages.d.ts" */
/** @import { Method } from "./types.d.ts" */

/**
 * A method with its scores, or with what is shown in their place.
 * @typedef {{ method: Method, scores: Float32Array | null, pending: HTMLElement | null }} ScoreRow
 */

const LIGHT_INK_BELOW = 0.179; // luminance, below which white has more contrast than black
const [LOWEST, HIGHEST] = [0, 255]; // of the colours
const [NARROWEST, WIDEST] = [5, 14]; // columns, in characters
const BAR_COLOUR = 1 / 4; // place of the colour of a bar between the end of the colours and their middle

/**
 * @param {HTMLElement} place
 * @param {object} content
 * @param {Look} content.look
 * @param {string[]} content.labels of the tokens
 * @param {ScoreRow[]} content.rows
 * @param {Method} content.selected its scores are the colours of the tokens
 * @param {string} content.caption
 * @param {(method: Method) => void} content.onSelect
 */
export function drawScores(place, { look, labels, rows, selected, caption, onSelect }) {
  const colours = shades(look.diverging[isDark(place) ? 1 : 0]);
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.method : undefined;
  const table = element("table", "scores");
  const widths = labels.map(columnWidth);
  table.style.setProperty("--characters", String(widths.reduce((sum, width) => sum + width, 0)));
  const scores = rows.find(({ method }) => method === selected)?.scores ?? null;
  const head = element("thead");
  head.append(createStrip(labels, selected, scores, colours));
  const body = element("tbody");
  body.append(...rows.map((row) => createRow(row, labels.length, row.method === selected, colours, onSelect)));
  table.append(element("caption", "heard", caption), createColumns(widths), head, body);
  place.replaceChildren(table);
  if (focused) /** @type {HTMLElement | null} */ (place.querySelector(`[data-method="${focused}"]`))?.focus();
}

/**
 * Return the width of the column of a token, in characters: that of its longest word, within limits.
 * @param {string} label
 */
function columnWidth(label) {
  const longest = Math.max(...label.split(" ").map((word) => word.length));
  return Math.min(Math.max(longest, NARROWEST), WIDEST);
}

/** @param {number[]} widths in characters */
function createColumns(widths) {
  const columns = element("colgroup");
  columns.append(element("col", "method"));
  for (const width of widths) {
    const column = element("col");
    column.style.setProperty("--characters", String(width));
    columns.append(column);
  }
  return columns;
}

/**
 * @param {string[]} labels
 * @param {Method} method
 * @param {Float32Array | null} scores
 * @param {number[][]} colours
 */
function createStrip(labels, method, scores, colours) {
  const line = element("tr");
  const name = element("td", "method", method);
  const shares = scores && sharesOf(scores);
  const cells = labels.map((label, position) => {
    const cell = element("th");
    cell.scope = "col";
    const token = element("span", "token", label);
    token.dir = "auto";
    cell.append(token);
    if (shares && scores) {
      cell.append(element("span", "number", cellNumber(scores[position])));
      const colour = colours[Math.round((HIGHEST * (shares[position] + 1)) / 2)];
      cell.style.backgroundColor = `rgb(${colour.join(" ")})`;
      cell.style.color = luminance(colour) < LIGHT_INK_BELOW ? "#ffffff" : "#000000";
    }
    return cell;
  });
  line.append(name, ...cells);
  return line;
}

/**
 * @param {ScoreRow} row
 * @param {number} count of the tokens
 * @param {boolean} isSelected
 * @param {number[][]} colours
 * @param {(method: Method) => void} onSelect
 */
function createRow({ method, scores, pending }, count, isSelected, colours, onSelect) {
  const line = element("tr");
  const name = element("th", "method");
  name.scope = "row";
  const button = createButton(method, "link", () => onSelect(method));
  button.dataset.method = method;
  button.setAttribute("aria-pressed", String(isSelected));
  name.append(button);
  line.append(name);
  if (scores) line.append(...createBars(scores, colours));
  else {
    const cell = element("td", "pending");
    cell.colSpan = count;
    if (pending) cell.append(pending);
    line.append(cell);
  }
  line.onclick = ({ target }) => {
    if (scores && !(target instanceof HTMLButtonElement)) onSelect(method);
  };
  return line;
}

/**
 * Return a cell with a bar for each score; all have the same scale, with its zero at the same height.
 * @param {Float32Array} scores
 * @param {number[][]} colours
 */
function createBars(scores, colours) {
  const shares = sharesOf(scores);
  const [low, high] = [Math.min(0, ...shares), Math.max(0, ...shares)];
  const range = high - low || 1;
  const step = Math.round((BAR_COLOUR * HIGHEST) / 2);
  return [...shares].map((share, position) => {
    const cell = element("td", "score");
    const track = element("div", "track");
    track.style.setProperty("--above", `${(100 * high) / range}%`);
    const bar = element("div", share < 0 ? "score-bar below" : "score-bar");
    bar.style.setProperty("--length", `${(100 * Math.abs(share)) / range}%`);
    bar.style.backgroundColor = `rgb(${colours[share < 0 ? LOWEST + step : HIGHEST - step].join(" ")})`;
    const number = element("span", share < 0 ? "score-number below" : "score-number", cellNumber(scores[position]));
    number.style.setProperty("--length", `${(100 * Math.abs(share)) / range}%`);
    track.title = String(Number(scores[position].toPrecision(9)));
    track.append(bar, number);
    cell.append(track);
    return cell;
  });
}
