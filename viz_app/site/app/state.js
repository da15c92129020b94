// The state of the site and its address, with the names and the notation of the app.

import { METHOD_NAMES } from "./attributions.js";

/** @import { Head, PageName, SiteDescription, State, Target } from "./types.d.ts" */

/**
 * A value of the address that is not possible. reason: key of a text, with its fields.
 * @typedef {{ name: string, value: string, reason: string, fields: Record<string, string | number> }} Fault
 *
 * How a parameter is read and written.
 * @typedef {object} Parameter
 * @property {(value: string, site: SiteDescription) => any} parse throws ImpossibleValue
 * @property {(value: any) => string} format
 * @property {boolean} [ofText] whether its value refers to the text
 */

/** @type {PageName[]} */
export const PAGE_NAMES = ["start", "predict", "attention", "heads", "why", "learn"];
/** @type {State["step"][]} */
export const LESSON_STEPS = ["predict", "do", "reveal", "yours", "free"];

const MAX_QUOTED_CHARACTERS = 60;

class ImpossibleValue extends Error {
  /**
   * @param {string} reason key of a text
   * @param {Record<string, string | number>} [fields]
   */
  constructor(reason, fields = {}) {
    super(reason);
    this.reason = reason;
    this.fields = fields;
  }
}

/** @type {Record<string, Parameter>} */
const PARAMETERS = {
  text: { parse: (value) => value, format: (value) => value, ofText: true },
  pair: { parse: (value) => value, format: (value) => value, ofText: true },
  masked: { parse: (value) => sortedIndices(value), format: (numbers) => numbers.join(","), ofText: true },
  target: { parse: parseTarget, format: formatTarget, ofText: true },
  contrast: { parse: (value) => value, format: (value) => value, ofText: true },
  off: { parse: parseHeads, format: (heads) => heads.map(formatPair).join(",") },
  head: { parse: parseHead, format: formatPair },
  edge: { parse: parseEdge, format: formatPair, ofText: true },
  tokens: { parse: parseTokens, format: ([side, positions]) => side[0] + positions.join(",") },
  kept_share: { parse: parseShare, format: String },
  view: option("heads", "curves", "matrix"),
  show: option("attention", "gradient", "product"),
  method: option(...METHOD_NAMES),
  colour: option("slope", "removal"),
  lesson: { parse: (value) => value, format: (value) => value },
  step: option(...LESSON_STEPS),
  lang: option("en", "de"),
  embed: { parse: parseToggle, format: () => "true" },
  lecture: { parse: parseToggle, format: () => "1" },
};
/** Names of parameters in addresses of version 0.2. @type {Record<string, string>} */
const OLD_NAMES = { kept: "kept_share" };

/**
 * Return the state of an address without parameters.
 * @param {SiteDescription} site
 * @param {PageName} page
 * @param {boolean} [hasText] whether the address contains a text; otherwise an example is opened
 * @returns {State}
 */
export function defaultState(site, page, hasText = false) {
  const example = hasText ? undefined : site.examples[0];
  return {
    page,
    text: example?.text ?? "",
    pair: example?.pair ?? "",
    masked: example?.masked ?? [],
    target: null,
    contrast: "",
    off: [],
    head: null,
    edge: null,
    tokens: ["query", []],
    kept_share: 70,
    view: "curves",
    show: "attention",
    method: "gradient x attention",
    colour: "slope",
    lesson: "",
    step: "predict",
    lang: "en",
    embed: false,
    lecture: false,
  };
}

/**
 * Return the state of an address, with the values that are not possible, which are replaced by their defaults.
 * @param {SiteDescription} site
 * @param {PageName} page
 * @param {string} query what follows the question mark
 * @returns {{ state: State, faults: Fault[] }}
 */
export function parseState(site, page, query) {
  const values = new Map([...new URLSearchParams(query)].map(([name, value]) => [OLD_NAMES[name] ?? name, value]));
  /** @type {Record<string, any>} */
  const state = { ...defaultState(site, page, values.has("text")) };
  /** @type {Fault[]} */
  const faults = [];
  for (const [name, value] of values) {
    if (!Object.hasOwn(PARAMETERS, name)) continue;
    try {
      state[name] = PARAMETERS[name].parse(value, site);
    } catch (error) {
      if (!(error instanceof ImpossibleValue)) throw error;
      faults.push({ name, value: shortened(value), reason: error.reason, fields: error.fields });
    }
  }
  return { state: /** @type {State} */ (state), faults };
}

/**
 * Return the parameters of a state that are not the default, and its text, as what follows the question mark.
 * @param {SiteDescription} site
 * @param {State} state
 * @param {object} [options]
 * @param {boolean} [options.isWhole] whether it also contains a text that is too long for the address bar
 */
export function formatState(site, state, { isWhole = false } = {}) {
  const query = new URLSearchParams();
  /** @type {Record<string, any>} */
  const values = { ...state };
  /** @type {Record<string, any>} */
  const defaults = { ...defaultState(site, state.page, true) };
  const leavesOutTexts = !isWhole && isTooLong(site, state);
  for (const [name, { format, ofText }] of Object.entries(PARAMETERS)) {
    if (ofText && leavesOutTexts) continue;
    const isDefault = JSON.stringify(values[name]) === JSON.stringify(defaults[name]);
    if (name === "text" || !isDefault) query.set(name, format(values[name]));
  }
  return query.toString();
}

/**
 * Return whether the texts of a state are too long for the address bar.
 * @param {SiteDescription} site
 * @param {Pick<State, "text" | "pair">} state
 */
export const isTooLong = ({ limits }, { text, pair }) => text.length + pair.length > limits.link;

/**
 * Return what is reset by another text: all that refers to positions of the previous one.
 * @returns {Pick<State, "masked" | "target" | "contrast" | "tokens" | "edge">}
 */
export const withoutPositions = () => ({
  masked: [],
  target: null,
  contrast: "",
  tokens: ["query", []],
  edge: null,
});

/**
 * Return a target as the address contains it.
 * @param {Target} target
 */
export function formatTarget(target) {
  if (target === null) return "";
  return target === "nsp" ? "nsp" : `${target.position}:${target.word}`;
}

/**
 * @param {string} value
 * @returns {Target}
 */
export function parseTarget(value) {
  if (value === "") return null;
  if (value === "nsp") return "nsp";
  const [, position, word] = /^(\d{1,6}):(.*\S.*)$/s.exec(value) ?? [];
  if (position === undefined) throw new ImpossibleValue("target");
  return { position: Number(position), word };
}

/** @param {string} value */
function parseInteger(value) {
  if (!/^\s*[+-]?\d{1,9}\s*$/.test(value)) throw new ImpossibleValue("integer");
  return Number(value);
}

/** @param {string} value */
function parseIndex(value) {
  const index = parseInteger(value);
  if (index < 0) throw new ImpossibleValue("index");
  return index;
}

/** @param {string} value */
const parseIndices = (value) => [...new Set(value.split(",").filter(Boolean).map(parseIndex))];

/** @param {string} value */
const sortedIndices = (value) => parseIndices(value).sort((a, b) => a - b);

/**
 * @param {string} value
 * @param {SiteDescription} site
 * @returns {Head}
 */
function parseHead(value, { model }) {
  const [layer, head, ...others] = value.split(".");
  if (!/^\d{1,4}$/.test(layer) || !/^\d{1,4}$/.test(head ?? "") || others.length) throw new ImpossibleValue("head");
  const parsed = /** @type {Head} */ ([Number(layer), Number(head)]);
  const exists = parsed[0] < model.layers && parsed[1] < model.heads;
  if (!exists) throw new ImpossibleValue("head_range", { last: model.layers - 1, most: model.heads - 1 });
  return parsed;
}

/**
 * @param {string} value
 * @param {SiteDescription} site
 * @returns {Head[]}
 */
function parseHeads(value, site) {
  const heads = value
    .split(",")
    .filter(Boolean)
    .map((part) => parseHead(part, site));
  return sortedHeads(heads.filter(([layer, head]) => !site.model.pruned_heads[layer]?.includes(head)));
}

/**
 * Return whether two heads are the same.
 * @param {Head} first
 * @param {Head} second
 */
export const isSameHead = (first, second) => first[0] === second[0] && first[1] === second[1];

/**
 * Return heads in order, each once.
 * @param {Head[]} heads
 * @returns {Head[]}
 */
export function sortedHeads(heads) {
  const unique = new Map(heads.map((head) => [formatPair(head), head]));
  return [...unique.values()].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}

/**
 * @param {string} value
 * @returns {[query: number, key: number]}
 */
function parseEdge(value) {
  const parts = value.split(".");
  if (parts.length !== 2 || !parts.every((part) => /^\d{1,6}$/.test(part))) throw new ImpossibleValue("pair");
  return [Number(parts[0]), Number(parts[1])];
}

/** @param {[number, number]} pair */
function formatPair(pair) {
  return pair.join(".");
}

/**
 * @param {string} value
 * @returns {State["tokens"]}
 */
function parseTokens(value) {
  const side = /** @type {const} */ ({ q: "query", k: "key" })[value[0]];
  if (side === undefined) throw new ImpossibleValue("tokens");
  return [side, parseIndices(value.slice(1))];
}

/** @param {string} value */
function parseShare(value) {
  const share = value.trim() === "" ? Number.NaN : Number(value);
  if (!(share >= 5 && share <= 100)) throw new ImpossibleValue("share");
  return share;
}

/** @param {string} value */
function parseToggle(value) {
  return ["1", "true"].includes(value.toLowerCase());
}

/**
 * Return a parameter with one of some options as its value.
 * @param {...string} options
 * @returns {Parameter}
 */
function option(...options) {
  const parse = (/** @type {string} */ value) => {
    if (!options.includes(value)) throw new ImpossibleValue("option", { options: options.join(", ") });
    return value;
  };
  return { parse, format: (value) => value };
}

/** @param {string} value */
function shortened(value) {
  const characters = [...value];
  return characters.length > MAX_QUOTED_CHARACTERS ? `${characters.slice(0, MAX_QUOTED_CHARACTERS).join("")}…` : value;
}
