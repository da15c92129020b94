// The heads that attend most from one token to another, with the effect of switching each off.

import { element } from "../../components/elements.js";
import { createButton, drawList } from "./controls.js";
import { tokenLabel } from "./encodings.js";
import { drawHeadList } from "./head_list.js";
import { withProgress } from "./progress.js";

/** @import { Edge } from "./find_heads.js" */
/** @import { Ablations, Head, PageContext, Run } from "./types.d.ts" */

/** The section with two lists of tokens and the table of heads; it is hidden until two tokens are compared. */
export function createFoundHeads() {
  const box = element("section", "found");
  const lists = element("div", "pair");
  const [from, to] = [element("select"), element("select")];
  const [list, work] = [element("div"), element("div")];
  const labels = [element("label"), element("label")];
  labels.forEach((label, end) => {
    label.append(element("span"), [from, to][end]);
  });
  lists.append(...labels);
  box.append(lists, list, work);
  /** @type {string | null} key of the request of which the effects were measured */
  let measured = null;

  /**
   * @param {PageContext} context
   * @param {Run} run
   * @param {Edge} edge
   */
  async function draw(context, run, edge) {
    const { state, text, runs, request, signal } = context;
    work.replaceChildren();
    box.hidden = state.edge === null;
    if (box.hidden) return;
    drawTokens(context, run, edge);
    const ablated = request({ off: [] });
    const id = JSON.stringify(ablated);
    const full = run.target && (await runs.run(ablated, { signal }));
    if (signal.aborted) return;
    drawHeads(context, { run, full, edge, ablations: null });
    if (full === null) return;
    const addEffects = async () => {
      const ablations = await withProgress(work, context, text("find:measure"), (options) =>
        runs.ablations(ablated, options),
      );
      if (signal.aborted) return;
      if (ablations) drawHeads(context, { run, full, edge, ablations });
      else offer();
    };
    const offer = () => {
      const button = createButton(text("find:measure"), "quiet", () => {
        measured = id;
        button.remove();
        addEffects().catch(context.fail);
      });
      measured = null;
      work.replaceChildren(button);
    };
    if (runs.isStored(ablated) || measured === id) await addEffects();
    else offer();
  }

  /**
   * @param {PageContext} context
   * @param {{ run: Run, full: Run | null, edge: Edge, ablations: Ablations | null }} content
   */
  function drawHeads(context, { run, full, edge, ablations }) {
    const { text, change } = context;
    const template = text("frame:tokens.masked");
    const [query, key] = edge.map((position) => `“${tokenLabel(run.encoding, position, template)}”`);
    const onOpen = (/** @type {Head} */ head) => change({ head });
    drawHeadList(list, context, { run, full: full ?? run, edge, ablations, names: { query, key }, onOpen });
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
