// The line above the picture.

import { chosenHeads, headName, isMatrix, isNeuron, mapOf, vectorsOf } from "./shown.js";

/** @import { View } from "./view.d.ts" */

/**
 * What has to be known of the heads that are drawn, after what is said of the picture.
 * @param {View} view
 * @param {string[]} of
 */
export function note(view, of) {
  const { header } = view;
  const heads = chosenHeads(view);
  const said = [...of];
  const listed = (/** @type {number[]} */ some) => some.map((head) => headName(view, head)).join(", ");
  if (header.combined) said.push(header.combined);
  const off = heads.filter((head) => header.off.includes(head));
  if (off.length) {
    const how = isNeuron(view) ? "computed" : "drawn faint";
    said.push(`${listed(off)} ${off.length > 1 ? "are" : "is"} switched off: ${how}, without effect`);
  }
  const gone = heads.filter((head) => header.pruned.includes(head));
  if (gone.length) said.push(`${listed(gone)} ${gone.length > 1 ? "do" : "does"} not exist (pruned)`);
  const here = (/** @type {number} */ head) => (isNeuron(view) ? vectorsOf(view) : mapOf(view, head));
  const waiting = heads.filter((head) => !gone.includes(head) && !here(head));
  if (waiting.length) said.push(`${listed(waiting)} on the way`);
  for (const head of heads) {
    const holes = header.holes[head];
    if (!holes) continue;
    const how = isMatrix(view) ? "crossed out" : "not drawn";
    said.push(`${holes} values of ${headName(view, head)} are not numbers (NaN) and are ${how}`);
  }
  said.push(...header.notes);
  const text = said.join(" · ");
  if (view.note.textContent !== text) view.note.textContent = text;
}
