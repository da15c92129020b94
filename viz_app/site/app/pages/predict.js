// The page Predictions: the most likely words of each mask, and whether the second sentence follows.

import { element } from "../../../components/elements.js";
import { twoDigits } from "../../../components/numbers.js";
import { barTexts, halfBar, largestProbability, probabilityBars } from "../charts.js";
import { createButton, createMaskButton, writeReading } from "../controls.js";
import { maskedPiece, piecesOfWord } from "../encodings.js";
import { withoutPositions } from "../state.js";
import { originalId, probabilityOf } from "../targets.js";

/** @import { Page, PageContext, Prediction, Run } from "../types.d.ts" */

/** @typedef {{ run: Run, full: Run | null }} Runs full: with all heads on, if a head is off */
/** @typedef {{ prediction: Prediction, before: Prediction | null, rows: BarRow[], ids: number[] }} MaskBars */
/** @typedef {import("../charts.js").BarRow} BarRow */

const LISTED_WORDS = 10; // of a mask
const SHOWN_MASKS = 6;

/** @type {Page} */
export const predictPage = { draw };

/** @type {Page["draw"]} */
async function draw(context, { figure, reading }) {
  const { state, runs, signal } = context;
  const run = await runs.run(context.request(), { signal });
  const full = state.off.length ? await runs.run(context.request({ off: [] }), { signal }) : null;
  if (signal.aborted) return;
  const columns = element("div", "predictions");
  columns.append(createWords(context, { run, full }));
  if (run.nextSentence !== null) columns.append(createVerdict(context, { run, full }));
  figure.replaceChildren(columns);
  drawReading(context, reading, run);
}

/**
 * Return the bars of each mask, two beside each other, on one scale.
 * @param {PageContext} context
 * @param {Runs} runs
 */
function createWords(context, { run, full }) {
  const { text } = context;
  const words = element("section", "masks");
  if (!run.predictions.length) {
    if (context.site.model.has_mlm)
      words.append(element("p", "", text("missing_mask")), createMaskButton(context, run));
    return words;
  }
  const masks = run.predictions.slice(0, SHOWN_MASKS).map((prediction) => {
    const before = full?.predictions.find(({ position }) => position === prediction.position) ?? null;
    return barsOf(run, prediction, before);
  });
  const limit = Math.max(...masks.map(({ rows }) => largestProbability(rows)));
  words.append(...masks.map((mask) => createMask(context, run, mask, limit)));
  words.classList.toggle("several", masks.length > 1);
  const left = run.predictions.length - masks.length;
  if (left) words.append(element("p", "note", text("site:more_masks", { count: left })));
  if (full) words.append(element("p", "note", text("modified")));
  return words;
}

/**
 * Return the rows of the bars of a mask: its most likely words, the masked word and the explained one.
 * @param {Run} run
 * @param {Prediction} prediction
 * @param {Prediction | null} before
 * @returns {MaskBars}
 */
function barsOf(run, prediction, before) {
  const { top, position } = prediction;
  const truth = originalId(run, position);
  const tokens = new Map(top.slice(0, LISTED_WORDS).map(({ id, token }) => [id, token]));
  if (truth !== null) tokens.set(truth, run.original.tokens[position]);
  const target = run.target?.position === position ? run.target : null;
  if (target?.tokenId != null && !tokens.has(target.tokenId)) tokens.set(target.tokenId, target.label);
  const rows = [...tokens].map(([id, label]) => ({
    label,
    now: probabilityOf(prediction, id),
    before: before ? probabilityOf(before, id) : undefined,
    isOriginal: id === truth,
    isSelected: id === target?.tokenId,
  }));
  return { prediction, before, rows, ids: [...tokens.keys()] };
}

/**
 * Return the bars of a mask below their result; a click on one makes its word the target.
 * @param {PageContext} context
 * @param {Run} run
 * @param {MaskBars} mask
 * @param {number} limit
 */
function createMask(context, run, { prediction, before, rows }, limit) {
  const { position } = prediction;
  const { text, change } = context;
  const part = element("section", "mask");
  const sentence = element("p", "result", resultSentence(context, run, prediction, before));
  const caption = text("site:mask_caption", { position });
  const onSelect = (/** @type {number} */ index) =>
    change({ target: { position, word: rows[index].label }, contrast: "" });
  const selected = rows.find(({ isSelected }) => isSelected) ?? rows[0];
  const put = createButton(text("site:put", { word: selected.label }), "quiet", () =>
    change(putWord(run, position, selected.label, context)),
  );
  part.append(sentence, probabilityBars(rows, { texts: barTexts(context, caption), limit, onSelect }));
  if (!/^(##|\[)/.test(selected.label)) part.append(put); // a whole word
  return part;
}

/**
 * Return the probability of the masked word, or the top guess at a typed mask.
 * @param {PageContext} context
 * @param {Run} run
 * @param {Prediction} prediction
 * @param {Prediction | null} before
 */
function resultSentence({ text }, run, prediction, before) {
  const { position, top } = prediction;
  const id = originalId(run, position) ?? top[0].id;
  const piece = maskedPiece(run.encoding, position);
  const probability = probabilityOf(prediction, id);
  const earlier = before ? probabilityOf(before, id) : Number.NaN;
  const rank = rankOf(prediction, id);
  const fields = {
    position,
    piece: piece ?? "",
    word: top[0].token,
    rank,
    probability: twoDigits(probability),
    before: twoDigits(earlier),
  };
  const kind = piece === null ? "guess" : Number.isNaN(probability) ? "unranked" : "rank";
  const change = before && !Number.isNaN(earlier) ? ` ${text("site:result.before", fields)}` : "";
  return text(`site:result.${kind}`, fields) + (kind === "unranked" ? "" : change);
}

/**
 * Return the rank of a token, from 1; 0 if it is not stored.
 * @param {Prediction} prediction
 * @param {number} id
 */
function rankOf({ top, logits }, id) {
  const place = top.findIndex((token) => token.id === id);
  if (place >= 0 || !logits) return place + 1;
  return logits.reduce((rank, logit) => rank + Number(logit > logits[id]), 1);
}

/**
 * Return the state in which a word is put into the text in place of a mask.
 * @param {Run} run
 * @param {number} position
 * @param {string} word
 * @param {PageContext} context
 */
function putWord({ encoding }, position, word, { state }) {
  const number = encoding.words[position];
  const name = encoding.sides[position] === "B" ? "pair" : "text";
  const pieces = piecesOfWord(encoding, number);
  const [start, end] = [encoding.offsets[pieces[0]][0], encoding.offsets[pieces[pieces.length - 1]][1]];
  const characters = [...state[name]];
  const text = [...characters.slice(0, start), word, ...characters.slice(end)].join("");
  return { [name]: text, masked: state.masked.filter((masked) => masked !== number), target: null, contrast: "" };
}

/**
 * Return whether the second sentence follows the first.
 * @param {PageContext} context
 * @param {Runs} runs
 */
function createVerdict({ text, state, change }, { run, full }) {
  const probability = run.nextSentence ?? Number.NaN;
  const part = element("section", "verdict");
  const kind = probability >= 0.5 ? "follows" : "does_not_follow";
  const verdict = text(`site:verdict.${kind}`, { probability: twoDigits(probability) });
  const swap = createButton(text("site:swap_sentences"), "quiet", () =>
    change({ text: state.pair, pair: state.text, ...withoutPositions() }),
  );
  const before = full?.nextSentence ?? undefined;
  const ends = /** @type {[string, string]} */ ([text("site:verdict.no"), text("site:verdict.yes")]);
  part.append(element("p", "result", verdict), halfBar(probability, { before, ends, label: verdict }), swap);
  return part;
}

/**
 * @param {PageContext} context
 * @param {HTMLElement} place
 * @param {Run} run
 */
function drawReading(context, place, run) {
  const { text, site } = context;
  const parts = [...(run.predictions.length ? ["words"] : []), ...(run.nextSentence === null ? [] : ["pair"])];
  place.replaceChildren();
  if (parts.length) {
    const readings = parts.map((part) => text(`${part}.reading`, { size: site.model.vocabulary }));
    const misleads = parts.map((part) => text(`${part}.misleads`));
    writeReading(place, context, readings.join(" "), misleads.join(" "));
  }
  if (site.model.has_nsp && run.nextSentence === null) {
    const offer = element("p", "note", `${text("missing_pair")} `);
    offer.append(createButton(text("add_example"), "quiet", () => context.change({ pair: site.pair })));
    place.append(offer);
  }
}
