// Controls and texts that several pages have.

import { childrenOf, element } from "../../components/elements.js";
import { csvText, saveFile } from "./csv.js";
import { longestWord, wordText } from "./encodings.js";

/** @import { Cell } from "./csv.js" */
/** @import { PageContext, Run } from "./types.d.ts" */

/**
 * Return a button.
 * @param {string} label
 * @param {"primary" | "quiet" | "example" | "link" | "option"} kind
 * @param {() => void} onClick
 */
export function createButton(label, kind, onClick) {
  const button = element("button", kind, label);
  button.type = "button";
  button.onclick = onClick;
  return button;
}

/**
 * Return the button that masks the longest word of the text.
 * @param {PageContext} context
 * @param {Run} run
 */
export function createMaskButton({ text, change }, { original }) {
  const word = longestWord(original);
  const label = text("site:mask_word", { word: wordText(original, word) });
  return createButton(label, "primary", () => change({ masked: [word] }));
}

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
  while (group.childElementCount < options.length) group.append(createButton("", "option", () => {}));
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
  return createButton(label, "quiet", () => saveFile(name, csvText(rows())));
}

/**
 * Say that a text has nothing to explain, with a button that masks a word.
 * @param {HTMLElement} place
 * @param {PageContext} context
 * @param {Run} run
 * @param {string} beginning of the sentence
 */
export function drawMissingTarget(place, context, run, beginning) {
  const { text, site } = context;
  const ways = [...(site.model.has_mlm ? ["mask"] : []), ...(site.model.has_nsp && !run.encoding.pair ? ["pair"] : [])];
  const advice = ways.map((way) => text(`frame:advice.${way}`)).join(text("site:or"));
  place.replaceChildren(element("p", "notice", `${beginning}: ${advice}.`));
  if (site.model.has_mlm) place.append(createMaskButton(context, run));
}

/**
 * Write how to read the figure, and how it can mislead.
 * @param {HTMLElement} place
 * @param {PageContext} context
 * @param {string} reading
 * @param {string} misleads
 */
export function writeReading(place, { text }, reading, misleads) {
  const paragraph = element("p", "note");
  paragraph.append(
    element("strong", "", text("site:read")),
    ` ${reading} `,
    element("strong", "", text("frame:misleads")),
    ` ${misleads}`,
  );
  place.replaceChildren(paragraph);
}
