// The normalizer and the pre-tokenizer of BERT, with the same result as those of the tokenizers library.

import { ACCENTS, DECOMPOSED, DROPPED, IDEOGRAPHS, NONSTARTERS, SEPARATE } from "./unicode.js";

/**
 * A code point with the span of the source that it comes from, counted in code points.
 * @typedef {{ text: string, start: number, end: number }} Character
 */

/**
 * The options of a BertNormalizer, by their names in a tokenizer.json.
 * @typedef {object} NormalizerOptions
 * @property {boolean} clean_text whether control characters are removed
 * @property {boolean} handle_chinese_chars whether each ideograph is a word of its own
 * @property {boolean | null} [strip_accents] whether accents are removed; null for the value of `lowercase`
 * @property {boolean} lowercase whether texts are converted to lower case
 */

const PROPERTY_TABLES = [DROPPED, IDEOGRAPHS, ACCENTS, DECOMPOSED, NONSTARTERS, SEPARATE];
const [IS_DROPPED, IS_IDEOGRAPH, IS_ACCENT, IS_DECOMPOSED, IS_NONSTARTER, IS_SEPARATE] = PROPERTY_TABLES.map(
  (_, i) => 1 << i,
);
const PROPERTIES = readTables();
const WHITE_SPACE = /^\p{White_Space}$/u;

/** Return the properties of every code point as bits, in the order of `PROPERTY_TABLES`. */
function readTables() {
  const properties = new Uint8Array(0x110000);
  PROPERTY_TABLES.forEach((table, index) => {
    for (const range of table.trim().split(/,\s*/)) {
      const [first, last = first] = range.split("-").map((codePoint) => Number.parseInt(codePoint, 16));
      for (let codePoint = first; codePoint <= last; codePoint++) properties[codePoint] |= 1 << index;
    }
  });
  return properties;
}

/**
 * Return whether a character has a property.
 * @param {string} character
 * @param {number} property
 */
function has(character, property) {
  return (PROPERTIES[/** @type {number} */ (character.codePointAt(0))] & property) !== 0;
}

/**
 * Return whether a character is white space.
 * @param {string} character
 */
export function isWhiteSpace(character) {
  return WHITE_SPACE.test(character);
}

/**
 * Return the characters of a text as a BertNormalizer converts them.
 * @param {Character[]} characters
 * @param {NormalizerOptions} options
 * @returns {Character[]}
 */
export function normalize(characters, options) {
  let result = options.clean_text ? clean(characters) : characters;
  if (options.handle_chinese_chars) result = result.flatMap(separateIdeograph);
  if (options.strip_accents ?? options.lowercase) {
    result = sortNonstarters(result.flatMap(decompose)).filter(({ text }) => !has(text, IS_ACCENT));
  }
  return options.lowercase ? result.flatMap((character) => replace(character, character.text.toLowerCase())) : result;
}

/**
 * Return characters without control characters, and with a space for each white space.
 * @param {Character[]} characters
 */
function clean(characters) {
  return characters
    .filter(({ text }) => !has(text, IS_DROPPED))
    .map((character) => (isWhiteSpace(character.text) ? { ...character, text: " " } : character));
}

/**
 * Return an ideograph between two spaces, and any other character unchanged.
 * @param {Character} character
 */
function separateIdeograph(character) {
  return has(character.text, IS_IDEOGRAPH) ? replace(character, ` ${character.text} `) : character;
}

/**
 * Return the canonical decomposition of a character.
 * @param {Character} character
 */
function decompose(character) {
  return has(character.text, IS_DECOMPOSED) ? replace(character, character.text.normalize("NFD")) : character;
}

/**
 * Return another text in place of a character, with the same span for each of its characters.
 * @param {Character} character
 * @param {string} text
 * @returns {Character | Character[]}
 */
function replace(character, text) {
  return text === character.text ? character : Array.from(text, (part) => ({ ...character, text: part }));
}

/**
 * Return characters with adjacent nonstarters in canonical order.
 * @param {Character[]} characters
 */
function sortNonstarters(characters) {
  const result = [...characters];
  let start = 0;
  for (let end = 0; end <= characters.length; end++) {
    if (end < characters.length && has(characters[end].text, IS_NONSTARTER)) continue;
    if (end - start > 1) result.splice(start, end - start, ...inCanonicalOrder(characters, start, end));
    start = end + 1;
  }
  return result;
}

/**
 * Return a run of nonstarters in canonical order. As in the library, the characters of the source keep their order: the
 * first character of each decomposition has the next span, and every other one that of the character before it.
 * @param {Character[]} characters
 * @param {number} start
 * @param {number} end
 * @returns {Character[]}
 */
function inCanonicalOrder(characters, start, end) {
  const run = characters.slice(start, end);
  const isFirst = (/** @type {number} */ index) => characters[index]?.start !== characters[index - 1]?.start;
  const firsts = run.filter((_, index) => isFirst(start + index));
  const remaining = run.map(({ text }, index) => ({ text, isFirst: isFirst(start + index) }));
  let span = characters[start - 1] ?? run[0];
  return Array.from(
    run
      .map(({ text }) => text)
      .join("")
      .normalize("NFD"),
    (text) => {
      const [next] = remaining.splice(
        remaining.findIndex((candidate) => candidate.text === text),
        1,
      );
      if (next.isFirst) span = /** @type {Character} */ (firsts.shift());
      return { ...span, text };
    },
  );
}

/**
 * Return the words of characters as a BertPreTokenizer splits them: at white space, and around each punctuation mark.
 * @param {Character[]} characters
 * @returns {Character[][]}
 */
export function splitWords(characters) {
  /** @type {Character[][]} */
  const words = [];
  let isOpen = false;
  for (const character of characters) {
    const isSpace = isWhiteSpace(character.text);
    const isSeparate = has(character.text, IS_SEPARATE);
    if (isOpen && !isSpace && !isSeparate) words[words.length - 1].push(character);
    else if (!isSpace) words.push([character]);
    isOpen = !isSpace && !isSeparate;
  }
  return words;
}
