// The page Home: a prediction, one head and all heads beside each other, what the head does for it, and ways to go on.

import { layerReader } from "../../../components/array_maps.js";
import { element } from "../../../components/elements.js";
import { HeadView } from "../../../components/head_views.js";
import { twoDigits } from "../../../components/numbers.js";
import { fixedHeader, mountView, showHeadGrid } from "../../../components/run_views.js";
import { probabilityBars } from "../charts.js";
import { longestWord, tokenLabel, wordText } from "../encodings.js";
import { allHeads, currentEdge, edgeValues, openingHead } from "../find_heads.js";
import { createLink } from "../frame.js";
import { drawHeadList } from "../head_list.js";
import { sortedHeads, withoutPositions } from "../state.js";
import { swapWord } from "../swaps.js";
import { probabilityOf } from "../targets.js";
import { quoted } from "../texts.js";

/** @import { Choice } from "../../../components/messages.d.ts" */
/** @import { Edge } from "../find_heads.js" */
/** @import { Ablations, Head, Page, PageContext, Run } from "../types.d.ts" */

/**
 * What is drawn: the run with all heads on and that of the state, the selected head, and the compared tokens.
 * @typedef {{ full: Run, run: Run, head: Head, edge: Edge, labels: string[] }} Shown
 *
 * The elements and views of the page, which remain while it is open.
 * @typedef {object} Parts
 * @property {HTMLElement} prediction
 * @property {HTMLElement} headTitle
 * @property {HTMLElement} headReading
 * @property {HTMLElement} gridTitle
 * @property {HTMLElement} lists of the query and the key
 * @property {HTMLElement} heads the sentence about all heads, and their list
 * @property {HeadView} view
 * @property {ShadowRoot} grid
 * @property {PageContext} context
 * @property {Shown | null} shown
 */

const WORDS = 5; // of a prediction

/** @type {Page} */
export const startPage = { draw };

/** @type {Page["draw"]} */
async function draw(context, places, memory) {
  const { state, runs, signal } = context;
  const parts = /** @type {Parts} */ (memory.parts ?? createParts(context, places.figure));
  memory.parts = parts;
  parts.context = context;
  drawExamples(context, places.controls);
  drawReading(context, places.reading, parts);
  const full = await runs.run(context.request({ off: [], gradients: state.head === null }), { signal });
  const head = state.head ?? openingHead(full) ?? [0, 0];
  const run = state.off.length ? await runs.run(context.request(), { signal }) : full;
  if (signal.aborted) return;
  const labels = run.encoding.tokens.map((_, position) =>
    tokenLabel(run.encoding, position, context.site.texts[state.lang].frame.tokens.masked),
  );
  parts.shown = { full, run, head, edge: currentEdge(run, head, state.edge), labels };
  drawFigure(parts, parts.shown);
  await drawHeads(parts, parts.shown);
}
