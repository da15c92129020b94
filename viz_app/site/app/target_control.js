// The controls of the explained prediction and of its contrast.

import { element } from "../../components/elements.js";
import { formatTarget, parseTarget } from "./state.js";

/** @import { PageContext, Run, Target } from "./types.d.ts" */

const LISTED_MASKS = 4;
const LISTED_GUESSES = 3; // at each mask
const LISTED_CONTRASTS = 4;
const OTHER = "other"; // value of the option for another word

/**
 * @param {HTMLElement} place
 * @param {PageContext} context
 * @param {Run} run with all heads on
 */
export function drawTargetControl(place, context, run) {
  const { text, state, change } = context;
  const { target } = run;
  place.replaceChildren();
  if (target === null) {
    const ways = [text("frame:advice.mask"), text("frame:advice.pair")].join(", ");
    place.append(element("span", "", text("frame:target.missing", { way: ways })));
    return;
  }
  const select = createSelect(text("frame:target.label"), targetOptions(context, run), formatTarget(target.target));
  select.title = text("frame:target.help");
  select.onchange = () => {
    if (select.value === OTHER) drawWordField(place, context, run);
    else change({ target: parseTarget(select.value), contrast: "" });
  };
  place.append(select);
  if (target.target === "nsp") return;
  const contrast = createSelect(text("frame:target.contrast"), contrastOptions(context, run), state.contrast);
  contrast.title = text("frame:target.contrast_help");
  contrast.onchange = () => change({ contrast: contrast.value });
  place.append(contrast);
}

/**
 * Return the sentence that the target of the address is not possible; nothing if it is.
 * @param {PageContext} context
 * @param {Run} run with all heads on
 */
export function targetNotice({ text, state }, { target }) {
  if (state.target === null || formatTarget(state.target) === formatTarget(target?.target ?? null)) {
    const isLeftOut = state.contrast && state.contrast !== target?.label && target?.againstId === null;
    return isLeftOut ? text("site:impossible_contrast", { word: state.contrast }) : "";
  }
  const label = state.target === "nsp" ? text("frame:targets.nsp") : state.target.word;
  return text("site:impossible_target", { word: label });
}

/**
 * @param {string} label
 * @param {[value: string, label: string][]} options
 * @param {string} value
 */
function createSelect(label, options, value) {
  const select = element("select");
  select.setAttribute("aria-label", label);
  for (const [name, title] of options) {
    const option = element("option", "", title);
    option.value = name;
    select.append(option);
  }
  select.value = value;
  return select;
}

/**
 * Return the targets on offer: the first guesses and the original word at each mask, and the next sentence.
 * @param {PageContext} context
 * @param {Run} run
 * @returns {[value: string, label: string][]}
 */
function targetOptions({ text }, run) {
  const { predictions, encoding, original, nextSentence, target } = run;
  /** @type {Exclude<Target, null>[]} */
  const targets = predictions.slice(0, LISTED_MASKS).flatMap(({ position, top }) => {
    const words = top.slice(0, LISTED_GUESSES).map(({ token }) => token);
    if (encoding.tokens[position] !== original.tokens[position]) words.splice(1, 0, original.tokens[position]);
    return [...new Set(words)].map((word) => ({ position, word }));
  });
  if (nextSentence !== null) targets.push("nsp");
  if (target) targets.push(target.target);
  const options = new Map(targets.map((offered) => [formatTarget(offered), targetLabel(text, offered)]));
  return [...options, ...(predictions.length ? [[OTHER, text("site:another_word")]] : [])].map(([value, label]) => [
    value,
    value === OTHER ? label : text("frame:target.explain", { what: label }),
  ]);
}

/**
 * @param {PageContext["text"]} text
 * @param {Exclude<Target, null>} target
 */
const targetLabel = (text, target) =>
  target === "nsp"
    ? text("frame:targets.nsp")
    : text("frame:targets.mlm", { word: target.word, first: target.position });

/**
 * @param {PageContext} context
 * @param {Run} run
 * @returns {[value: string, label: string][]}
 */
function contrastOptions({ text, state }, { predictions, target }) {
  const prediction = predictions.find(({ position }) => position === target?.position);
  const words = (prediction?.top ?? []).map(({ token }) => token).filter((word) => word !== target?.label);
  const offered = new Set([...words.slice(0, LISTED_CONTRASTS), state.contrast].filter(Boolean));
  return [
    ["", text("frame:target.rather_than_nothing")],
    ...[...offered].map((word) => /** @type {[string, string]} */ ([word, text("frame:target.rather_than", { word })])),
  ];
}

/**
 * Draw the field for another word, at the position of the target or else at the first mask.
 * @param {HTMLElement} place
 * @param {PageContext} context
 * @param {Run} run
 */
function drawWordField(place, context, run) {
  const form = element("form");
  const field = element("input");
  Object.assign(field, { type: "text", autocomplete: "off", maxLength: 60 });
  field.setAttribute("aria-label", context.text("site:another_word"));
  field.placeholder = context.text("site:another_word");
  form.append(field);
  form.onsubmit = (event) => {
    event.preventDefault();
    const position = run.target?.position ?? run.predictions[0].position;
    if (field.value.trim()) context.change({ target: { position, word: field.value.trim() }, contrast: "" });
  };
  field.onkeydown = (event) => {
    if (event.key === "Escape") drawTargetControl(place, context, run);
  };
  place.replaceChildren(form);
  field.focus();
}
