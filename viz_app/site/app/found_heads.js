// The heads that attend most from one token to another, with the effect of switching each off.

import { element } from "../../components/elements.js";
import { contributionsOf } from "./ablations.js";
import { createButton, drawList } from "./controls.js";
import { tokenLabel } from "./encodings.js";
import { findHeads } from "./find_heads.js";
import { withProgress } from "./progress.js";
import { drawTable } from "./tables.js";

/** @import { Edge, PairHead } from "./find_heads.js" */
/** @import { Ablations, PageContext, Run } from "./types.d.ts" */

const LISTED = 6;

/** The section with two lists of tokens and the table of heads; it is hidden until two tokens are compared. */
export function createFoundHeads() {
  const box = element("section", "found");
  const lists = element("div", "pair");
  const [from, to] = [element("select"), element("select")];
  const heading = element("h2");
  const table = element("div");
  const [work, measure, note] = [element("div"), createButton("", "quiet"), element("p", "note")];
  const labels = [element("label"), element("label")];
  labels.forEach((label, end) => {
    label.append(element("span"), [from, to][end]);
  });
  lists.append(...labels);
  box.append(lists, heading, table, work, measure, note);
  /** @type {string | null} key of the request of which the effects were measured */
  let measured = null;

  /**
   * @param {PageContext} context
   * @param {Run} run
   * @param {Edge} edge
   */
  async function draw(context, run, edge) {
    const { state, text, runs, request, signal } = context;
    box.hidden = state.edge === null;
    if (box.hidden) return;
    drawTokens(context, run, edge);
    const template = text("frame:tokens.masked");
    const [query, key] = edge.map((position) => `“${tokenLabel(run.encoding, position, template)}”`);
    heading.textContent = text("find:title", { query, key });
    note.textContent = text("find:reading");
    const heads = findHeads(run, edge).slice(0, LISTED);
    drawTable(table, tableOf(context, heads, null, null));
    const ablated = request({ off: [] });
    const id = JSON.stringify(ablated);
    measure.textContent = text("find:measure");
    measure.hidden = run.target === null || runs.isStored(ablated) || measured === id;
    measure.onclick = () => {
      measured = id;
      measure.hidden = true;
      addEffects().catch(context.fail);
    };
    const addEffects = async () => {
      const full = await runs.run(ablated, { signal });
      const ablations = await withProgress(work, context, text("find:measure"), (options) =>
        runs.ablations(ablated, options),
      );
      if (signal.aborted) return;
      if (ablations) drawTable(table, tableOf(context, heads, full, ablations));
      else [measured, measure.hidden] = [null, false];
    };
    if (run.target !== null && measure.hidden) await addEffects();
  }

  /**
   * @param {PageContext} context
   * @param {Run} run
   * @param {Edge} edge
   */
  function drawTokens({ text, change }, { encoding }, edge) {
    const template = text("frame:tokens.masked");
    const names = encoding.tokens.map((_, position) => tokenLabel(encoding, position, template));
    const options = names.map((name, position) =>
      names.indexOf(name) === names.lastIndexOf(name) ? name : `${name} (${position})`,
    );
    [from, to].forEach((list, end) => {
      const label = text(end ? "find:to" : "find:from");
      labels[end].children[0].textContent = label;
      drawList(list, {
        label,
        options,
        index: edge[end],
        onChoose: (position) => change({ edge: end ? [edge[0], position] : [position, edge[1]] }),
      });
    });
  }

  return { box, draw };
}

/**
 * @param {PageContext} context
 * @param {PairHead[]} heads
 * @param {Run | null} full with all heads on
 * @param {Ablations | null} ablations
 * @returns {import("./tables.js").Table}
 */
function tableOf({ text, change, state }, heads, full, ablations) {
  const contributions = full && ablations && contributionsOf(full, ablations);
  const names = ["weight", "percentile", ...(contributions ? ["effect"] : [])];
  return {
    label: text("find:head"),
    columns: names.map((name) => ({ label: text(`find:${name}`), help: text(`find:help.${name}`) })),
    rows: heads.map(({ layer, head, weight, percentile }) => ({
      label: `L${layer} H${head}`,
      isSelected: state.head?.[0] === layer && state.head[1] === head,
      onOpen: () => change({ head: [layer, head] }),
      cells: [
        weight.toFixed(2),
        percentile.toFixed(0),
        ...(contributions && full ? [signedNumber(-contributions[layer * full.heads + head])] : []),
      ],
    })),
  };
}

/**
 * Return a number with two decimals and its sign.
 * @param {number} value
 */
export const signedNumber = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
