// Controls of pages.

import { element } from "../../components/elements.js";
import { longestWord, wordText } from "./encodings.js";

/** @import { PageContext, Run } from "./types.d.ts" */

/**
 * Return a button.
 * @param {string} label
 * @param {"primary" | "quiet" | "example"} kind
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
