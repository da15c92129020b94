// The numbers beside the picture, and the table for those who do not see it.

import { element, shortened } from "../elements.js";
import { LONGEST_TIP } from "../tip.js";
import { exactly, placed, rounded } from "./digits.js";
import { headColour, headName, isOutside, other, tokens } from "./shown.js";

/** @import { Token } from "../messages.d.ts" */
/** @import { Active, Sum, View } from "./view.d.ts" */

const LINES_SHOWN = 10;
const HEADS_LISTED = 3;

/**
 * The row or column of what is looked at, or the strongest edges of all.
 * @param {View} view
 * @param {Active | null} active
 * @param {Sum[]} found
 */
export function showNumbers(view, active, found) {
  view.numbers.replaceChildren(...(active ? lineNumbers(view, active, found) : strongestNumbers(view)));
}

/** @param {View} view */
function strongestNumbers(view) {
  const { header } = view;
  const title = element("div", "title", header.strongest.length ? "Strongest edges" : "All values are zero");
  const grid = element("table");
  const several = header.drawn.length > 1;
  for (const [head, query, key, number] of header.strongest) {
    const pair = [word(shortened(header.queries[query][0], 18)), word(shortened(header.keys[key][0], 18))];
    pair[1].classList.add("to");
    grid.append(
      tableRow([...(several ? [swatch(view, head)] : []), ...pair, digits(number, true, header.signed)], "td"),
    );
  }
  return [title, grid];
}

/**
 * @param {View} view
 * @param {Active} active
 * @param {Sum[]} found
 */
function lineNumbers(view, active, found) {
  const { header } = view;
  const title = element("div", "title");
  const grid = element("table");
  const here = tokens(view, active.side);
  const there = tokens(view, other(active.side));
  const [first] = active.indices;
  title.append(...sentence(header.unit, active, here[first]));
  const strength = (/** @type {number} */ i) => found.reduce((sum, { total }) => sum + (Math.abs(total[i]) || 0), 0);
  const isPossible = (/** @type {number} */ i) =>
    !active.indices.every((j) => (active.side === "query" ? isOutside(view, j, i) : isOutside(view, i, j)));
  const order = [...there.keys()].filter(isPossible).sort((a, b) => strength(b) - strength(a) || a - b);
  // More heads than have room beside each other are averaged; each one's number is in the tooltip.
  const many = found.length > HEADS_LISTED;
  if (many) grid.append(tableRow([element("th"), element("th", "number", `mean of ${found.length} heads`)], "th"));
  else if (found.length > 1) {
    grid.append(tableRow([element("th"), ...found.map(({ head }) => swatch(view, head))], "th"));
  }
  const cellsOf = (/** @type {(total: Float64Array) => number} */ numberOf) => {
    if (!many) {
      const places = found.length > 2 ? 3 : 4;
      return found.map(({ total, exact }) => digits(numberOf(total), exact, header.signed, places));
    }
    const mean = found.reduce((sum, { total }) => sum + numberOf(total), 0) / found.length;
    const made = digits(
      mean,
      found.every(({ exact }) => exact),
      header.signed,
    );
    made.title = found.map(({ head, total }) => `${headName(view, head)} ${exactly(numberOf(total))}`).join("\n");
    return [made];
  };
  for (const i of order.slice(0, LINES_SHOWN)) {
    const label = word(shortened(there[i][0], 18));
    label.title = shortened(`${there[i][0]} at ${there[i][1]}`, LONGEST_TIP);
    grid.append(tableRow([label, ...cellsOf((total) => total[i])], "td"));
  }
  const rest = order.slice(LINES_SHOWN);
  const foot = (/** @type {string} */ text, /** @type {number[]} */ some) => {
    const row = tableRow([text, ...cellsOf((total) => some.reduce((sum, i) => sum + total[i], 0))], "td");
    row.className = "foot";
    return row;
  };
  if (rest.length) grid.append(foot(`${rest.length} others`, rest));
  if (!header.signed) grid.append(foot("together", order));
  const left = there.length - order.length;
  if (left) {
    const row = tableRow([`${left} ${header.hatching?.outside}`, ...cellsOf(() => 0).map(() => element("td"))], "td");
    row.className = "foot";
    grid.append(row);
  }
  return [title, grid];
}

/**
 * @param {string} unit
 * @param {Active} active
 * @param {Token} first of the active tokens
 */
function sentence(unit, { side, indices }, [text, position]) {
  const several = indices.length > 1;
  const quoted = element("b", "", several ? `${indices.length} tokens` : shortened(text, 30));
  quoted.dir = "auto";
  const at = several ? "" : ` (${position})`;
  const sum = several ? ", added up" : "";
  return [`${unit.charAt(0).toUpperCase()}${unit.slice(1)} ${side === "query" ? "from" : "to"} `, quoted, at + sum];
}

/**
 * The strongest edges as a table; exact, from the server.
 * @param {View} view
 */
export function edgesTable(view) {
  const { header } = view;
  const caption = element("caption", "", `Strongest edges of ${header.combined ?? `layer ${header.layer}`}`);
  const rows = header.strongest.map(([head, query, key, number]) =>
    tableRow([headName(view, head), placed(header.queries[query]), placed(header.keys[key]), exactly(number)], "td"),
  );
  view.table.replaceChildren(caption, tableRow(["head", "query", "key", header.unit], "th"), ...rows);
}

/**
 * @param {(HTMLElement | string)[]} cells
 * @param {"td" | "th"} tag of those that are texts
 */
export function tableRow(cells, tag) {
  const row = element("tr");
  row.append(...cells.map((cell) => (typeof cell === "string" ? element(tag, "", cell) : cell)));
  return row;
}

/** @param {string} text */
function word(text) {
  const made = element("td", "word");
  const inner = element("span", "", text);
  inner.dir = "auto";
  made.title = text;
  made.append(inner);
  return made;
}

/**
 * @param {View} view
 * @param {number} head
 */
function swatch(view, head) {
  const made = element("th", "swatch", headName(view, head));
  made.style.setProperty("--colour", headColour(view, head));
  return made;
}

/**
 * @param {number} number
 * @param {boolean} exact
 * @param {boolean} signed
 * @param {number} [places]
 */
export function digits(number, exact, signed, places = 4) {
  const count = exact ? (signed ? 3 : places) : 2;
  const made = element("td", "number", `${exact ? "" : "≈ "}${rounded(number, count, signed)}`);
  if (exact) made.title = exactly(number);
  return made;
}
