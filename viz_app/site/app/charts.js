// Horizontal bars of probabilities, as a table, so that they can be read without seeing them.

import { element } from "../../components/elements.js";
import { twoDigits } from "../../components/numbers.js";

/** @import { PageContext } from "./types.d.ts" */

/**
 * A row of bars.
 * @typedef {object} BarRow
 * @property {string} label
 * @property {number} now probability
 * @property {number} [before] probability with all heads on
 * @property {boolean} [isOriginal] whether it is the masked word, whose label is underlined
 * @property {boolean} [isSelected] whether its label is bold
 *
 * Texts of the bars: the name of the table and of both columns, and of the bars in a row.
 * @typedef {{ caption: string, label: string, value: string, before: string, now: string }} BarTexts
 */

/**
 * Return bars from 0, the first row on top; hatched bars are those with all heads on.
 * @param {BarRow[]} rows
 * @param {object} options
 * @param {BarTexts} options.texts
 * @param {number} [options.limit] probability at the end of the scale; the largest by default
 * @param {(row: number) => void} [options.onSelect] called with the row that is clicked
 */
export function probabilityBars(rows, { texts, limit = largestProbability(rows), onSelect }) {
  const hasBefore = rows.some(({ before }) => before !== undefined);
  const body = element("tbody");
  for (const [index, row] of rows.entries()) {
    const line = element("tr");
    const label = element("th");
    label.scope = "row";
    label.append(createLabel(row, onSelect && (() => onSelect(index))));
    const cell = element("td");
    if (hasBefore) cell.append(createBar(row.before ?? Number.NaN, limit, "before", texts.before));
    cell.append(createBar(row.now, limit, "now", hasBefore ? texts.now : ""));
    line.append(label, cell);
    body.append(line);
  }
  const table = createTable(texts);
  table.append(body);
  const figure = element("div", "bar-figure");
  if (hasBefore) figure.append(createLegend(texts));
  figure.append(table);
  return figure;
}

/**
 * Return the texts of bars.
 * @param {PageContext} context
 * @param {string} caption
 * @returns {BarTexts}
 */
export const barTexts = ({ text }, caption) => ({
  caption,
  label: text("site:bars.token"),
  value: text("site:bars.probability"),
  before: text("site:bars.before"),
  now: text("site:bars.now"),
});

/** @param {BarRow[]} rows */
export const largestProbability = (rows) => Math.max(...rows.flatMap(({ now, before }) => [now, before || 0])) || 1;

/**
 * Return a bar from one half to a probability, above it the one with all heads on.
 * @param {number} now
 * @param {object} options
 * @param {number} [options.before]
 * @param {[no: string, yes: string]} options.ends what 0 and 1 mean
 * @param {string} options.label
 */
export function halfBar(now, { before, ends, label }) {
  const figure = element("div", "half");
  figure.setAttribute("role", "img");
  figure.setAttribute("aria-label", label);
  for (const [kind, value] of /** @type {const} */ ([
    ["before", before],
    ["now", now],
  ])) {
    if (value === undefined) continue;
    const track = element("div", "track");
    const bar = element("div", `bar ${kind}`);
    bar.style.left = `${100 * Math.min(value, 0.5)}%`;
    bar.style.width = `${100 * Math.abs(value - 0.5)}%`;
    track.append(bar);
    figure.append(track);
  }
  const scale = element("div", "scale");
  scale.append(...[`0: ${ends[0]}`, "0.5", `1: ${ends[1]}`].map((text) => element("span", "", text)));
  figure.append(scale);
  return figure;
}

/** @param {BarTexts} texts */
function createTable({ caption, label, value }) {
  const table = element("table", "bars");
  const head = element("thead", "heard");
  const line = element("tr");
  for (const name of [label, value]) {
    const cell = element("th", "", name);
    cell.scope = "col";
    line.append(cell);
  }
  head.append(line);
  table.append(element("caption", "heard", caption), head);
  return table;
}

/**
 * @param {BarRow} row
 * @param {() => void} [onClick]
 */
function createLabel({ label, isOriginal, isSelected }, onClick) {
  const names = ["token", isOriginal ? "original" : "", isSelected ? "selected" : ""].filter(Boolean).join(" ");
  if (!onClick) return element("span", names, label);
  const button = element("button", names, label);
  button.type = "button";
  button.setAttribute("aria-pressed", String(Boolean(isSelected)));
  button.onclick = onClick;
  return button;
}

/**
 * @param {number} value
 * @param {number} limit
 * @param {"before" | "now"} kind
 * @param {string} name of the bar, for screen readers
 */
function createBar(value, limit, kind, name) {
  const line = element("span", "bar-line");
  if (name) line.append(element("span", "heard", name));
  const bar = element("span", `bar ${kind}`);
  const isKnown = Number.isFinite(value);
  bar.style.setProperty("--share", String(isKnown ? Math.min(value / limit, 1) : 0));
  const number = element("span", "number", isKnown ? twoDigits(value) : "–");
  if (isKnown) number.title = value.toPrecision(4);
  line.append(bar, number);
  return line;
}

/** @param {BarTexts} texts */
function createLegend({ before, now }) {
  const legend = element("p", "legend");
  legend.setAttribute("aria-hidden", "true");
  legend.append(element("span", "bar before"), before, element("span", "bar now"), now);
  return legend;
}
