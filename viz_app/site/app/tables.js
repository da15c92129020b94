// Tables of heads, of which each row can be opened.

import { element } from "../../components/elements.js";
import { createButton } from "./controls.js";

/**
 * @typedef {object} Table
 * @property {string} label of the first column, which names the rows
 * @property {{ label: string, help: string }[]} columns the others
 * @property {TableRow[]} rows
 *
 * @typedef {object} TableRow
 * @property {string} label
 * @property {boolean} isSelected
 * @property {() => void} onOpen
 * @property {string[]} cells
 */

/**
 * Draw a table in place of another one; the row with the focus keeps it.
 * @param {HTMLElement} place
 * @param {Table} table
 */
export function drawTable(place, { label, columns, rows }) {
  const table = element("table", "head-table");
  const head = element("tr");
  head.append(
    ...[{ label, help: "" }, ...columns].map((column) => {
      const cell = element("th", "", column.label);
      cell.scope = "col";
      cell.title = column.help;
      return cell;
    }),
  );
  const section = element("thead");
  section.append(head);
  const body = element("tbody");
  body.append(...rows.map(createRow));
  table.append(section, body);
  const focused = [.../** @type {NodeListOf<Element>} */ (place.querySelectorAll("button"))].indexOf(
    document.activeElement ?? place,
  );
  place.replaceChildren(table);
  place.querySelectorAll("button")[focused]?.focus();
}

/** @param {TableRow} row */
function createRow({ label, isSelected, onOpen, cells }) {
  const row = element("tr");
  const name = element("th");
  name.scope = "row";
  const button = createButton(label, "link", onOpen);
  button.setAttribute("aria-pressed", String(isSelected));
  name.append(button);
  row.append(name, ...cells.map((cell) => element("td", "", cell)));
  return row;
}
