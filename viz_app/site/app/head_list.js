// The heads that attend most from one token to another, with the effect of each on the target.

import { childrenOf, element } from "../../components/elements.js";
import { contributionsOf } from "./ablations.js";
import { findHeads } from "./find_heads.js";
import { drawTable } from "./tables.js";

/** @import { Edge } from "./find_heads.js" */
/** @import { Ablations, Head, PageContext, Run } from "./types.d.ts" */

const SHOWN_HEADS = 6;

/**
 * Draw the list in a place, in which nothing else is.
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
export function drawHeadList(place, { state, text }, { run, full, edge, ablations, names, onOpen }) {
  const contributions = ablations && contributionsOf(full, ablations);
  const columns = ["weight", "percentile", ...(contributions ? ["effect"] : [])];
  const found = findHeads(run, edge).slice(0, SHOWN_HEADS);
  const [heading, table, note] = place.children.length
    ? childrenOf(place)
    : [element("h2"), element("div"), element("p", "note")];
  heading.textContent = text("find:title", names);
  note.textContent = text("find:reading");
  if (!place.children.length) place.append(heading, table, note);
  drawTable(table, {
    label: text("find:head"),
    columns: columns.map((column) => ({ label: text(`find:${column}`), help: text(`find:help.${column}`) })),
    rows: found.map(({ layer, head, weight, percentile }) => ({
      label: `L${layer} H${head}`,
      isSelected: state.head?.[0] === layer && state.head[1] === head,
      onOpen: () => onOpen([layer, head]),
      cells: [
        weight.toFixed(2),
        percentile.toFixed(0),
        ...(contributions ? [signed(-contributions[layer * run.heads + head])] : []),
      ],
    })),
  });
}

/** @param {number} effect */
function signed(effect) {
  const number = effect.toFixed(2);
  return Number.isNaN(effect) ? "" : `${effect >= 0 ? "+" : ""}${number}`.replace("-", "−");
}
