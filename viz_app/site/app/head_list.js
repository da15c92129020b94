// The heads that attend most from one token to another, with the effect of each on the target.

import { element } from "../../components/elements.js";
import { contributionsOf } from "./ablations.js";
import { createButton } from "./controls.js";
import { findHeads } from "./find_heads.js";

/** @import { Edge } from "./find_heads.js" */
/** @import { Ablations, Head, PageContext, Run } from "./types.d.ts" */

const LISTED_HEADS = 6;

/**
 * @param {HTMLElement} place
 * @param {PageContext} context
 * @param {object} options
 * @param {Run} options.run whose attention is ranked
 * @param {Run} options.full with all heads on, of which the effects are
 * @param {Edge} options.edge
 * @param {Ablations | null} options.ablations null: the effects are left out
 * @param {{ query: string, key: string }} options.names quoted tokens
 * @param {(head: Head) => void} options.onOpen
 */
export function drawHeadList(place, { text }, { run, full, edge, ablations, names, onOpen }) {
  const contributions = ablations && contributionsOf(full, ablations);
  const columns = ["head", "weight", "percentile", ...(contributions ? ["effect"] : [])];
  const table = element("table", "head-table");
  const head = element("tr");
  for (const column of columns) {
    const cell = element("th", "", text(`find:${column}`));
    cell.scope = "col";
    if (column !== "head") cell.title = text(`find:help.${column}`);
    head.append(cell);
  }
  table.append(element("thead"), element("tbody"));
  table.tHead?.append(head);
  for (const { layer, head: number, weight, percentile } of findHeads(run, edge).slice(0, LISTED_HEADS)) {
    const line = element("tr");
    const name = element("th");
    name.scope = "row";
    name.append(createButton(`L${layer} H${number}`, "quiet", () => onOpen([layer, number])));
    line.append(name, element("td", "", weight.toFixed(2)), element("td", "", percentile.toFixed(0)));
    if (contributions) line.append(element("td", "", signed(-contributions[layer * run.heads + number])));
    table.tBodies[0].append(line);
  }
  place.replaceChildren(
    element("h2", "", text("find:title", names)),
    table,
    element("p", "note", text("find:reading")),
  );
}

/** @param {number} effect */
function signed(effect) {
  const number = effect.toFixed(2);
  return Number.isNaN(effect) ? "" : `${effect >= 0 ? "+" : ""}${number}`.replace("-", "−");
}
