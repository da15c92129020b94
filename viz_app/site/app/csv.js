// Tables as CSV files, which the browser saves.

// Characters that begin a formula in a spreadsheet, their full-width forms, and white space that is skipped before one.
const FORMULA = /^'*[=+\-@\t\r\n＝＋－＠]/;
const FLOAT32_DIGITS = 9; // with which every float32 can be read back exactly
const RELEASE_AFTER = 60_000; // milliseconds in which the browser has begun to save a file

/** @typedef {string | number | null} Cell */

/**
 * Return a table as CSV, with numbers in full precision. A text that a spreadsheet would read as a formula gets an
 * apostrophe in front, and a missing number an empty cell.
 * @param {Cell[][]} rows
 */
export const csvText = (rows) => rows.map((cells) => `${cells.map(cellText).join(",")}\n`).join("");

/** @param {Cell} cell */
function cellText(cell) {
  if (cell === null || Number.isNaN(cell)) return "";
  if (typeof cell === "number") return String(Number(cell.toPrecision(FLOAT32_DIGITS)));
  const text = FORMULA.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * Let the browser save a text as a file.
 * @param {string} name
 * @param {string} text
 */
export function saveFile(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), RELEASE_AFTER);
}
