// Controls and texts that several pages have.

import { childrenOf, element } from "../../components/elements.js";
import { csvText, saveFile } from "./csv.js";
import { templateOf, withoutMarkup } from "./texts.js";

/** @import { PageContext } from "./types.d.ts" */
/** @import { Cell } from "./csv.js" */

/**
 * Draw a group of buttons of which one is pressed. The buttons stay as long as the options do, and so does the focus.
 * @template {string} Value
 * @param {HTMLElement} group
 * @param {object} choice
 * @param {string} choice.label
 * @param {[value: Value, label: string][]} choice.options
 * @param {Value} choice.value
 * @param {(value: Value) => void} choice.onChoose
 */
export function drawChoice(group, { label, options, value, onChoose }) {
  group.className = "choice";
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  while (group.childElementCount > options.length) group.lastElementChild?.remove();
  while (group.childElementCount < options.length) group.append(createButton(""));
  childrenOf(group).forEach((button, index) => {
    const [option, text] = options[index];
    button.textContent = text;
    button.setAttribute("aria-pressed", String(option === value));
    button.onclick = () => {
      if (option !== value) onChoose(option);
    };
  });
}

/**
 * @param {string} text
 * @param {string} [name] its classes
 */
export function createButton(text, name = "") {
  const button = element("button", name, text);
  button.type = "button";
  return button;
}

/**
 * Draw a list of options; it keeps its element as long as the options are the same.
 * @param {HTMLSelectElement} list
 * @param {object} choice
 * @param {string} choice.label
 * @param {string[]} choice.options
 * @param {number} choice.index of the selected option
 * @param {(index: number) => void} choice.onChoose
 */
export function drawList(list, { label, options, index, onChoose }) {
  list.setAttribute("aria-label", label);
  if (String([...list.options].map(({ text }) => text)) !== String(options)) {
    list.replaceChildren(...options.map((text) => element("option", "", text)));
  }
  list.selectedIndex = index;
  list.onchange = () => onChoose(list.selectedIndex);
}

/**
 * Return a button that saves a table as a CSV file.
 * @param {string} label
 * @param {string} name of the file
 * @param {() => Cell[][]} rows
 */
export function createDownload(label, name, rows) {
  const button = createButton(label, "quiet");
  button.onclick = () => saveFile(name, csvText(rows()));
  return button;
}

/**
 * Write how to read the figure, and how it can mislead. Both texts are in English, and so are their headings.
 * @param {HTMLElement} place
 * @param {PageContext} context
 * @param {string} reading
 * @param {string} misleads
 */
export function writeReading(place, { site }, reading, misleads) {
  const paragraph = element("p");
  paragraph.append(
    element("strong", "", templateOf(site, "en", "site", "reading")),
    ` ${reading} `,
    element("strong", "", withoutMarkup(templateOf(site, "en", "frame", "misleads"))),
    ` ${misleads}`,
  );
  place.replaceChildren(paragraph);
}
