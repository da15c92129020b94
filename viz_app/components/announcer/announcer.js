// A live region is read when its text changes; the first sentence of a page is part of the page and is not read.

import { part } from "../elements.js";

/** @param {{ parentElement: HTMLElement, data: { sentence: string } }} component */
export default function announcer({ parentElement, data }) {
  const status = part(parentElement, ".status");
  if (status.dataset.sentence !== undefined && status.dataset.sentence !== data.sentence) {
    status.textContent = data.sentence;
  }
  status.dataset.sentence = data.sentence;
}
