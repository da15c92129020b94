// What pages read from the tokens of a text.

/** @import { Encoding } from "../engine/tokenizer.js" */

const TYPED_MASK = "[MASK]";
const CONTINUATION = "##";

/**
 * Return the positions of the tokens of a word.
 * @param {Encoding} encoding
 * @param {number | null} word
 */
export const piecesOfWord = ({ words }, word) => [...words.keys()].filter((position) => words[position] === word);

/**
 * Return the text of a word.
 * @param {Encoding} encoding
 * @param {number} word
 */
export function wordText(encoding, word) {
  const pieces = piecesOfWord(encoding, word);
  if (!pieces.length) return "";
  const [start, end] = [encoding.offsets[pieces[0]][0], encoding.offsets[pieces[pieces.length - 1]][1]];
  return sourceOf(encoding, pieces[0]).slice(start, end).join("").trim();
}

/**
 * Return the token that was typed at a masked position; null if the position is not masked, or a mask was typed.
 * @param {Encoding} encoding
 * @param {number} position
 */
export function maskedPiece(encoding, position) {
  if (encoding.roles[position] !== "mask" || encoding.sides[position] === null) return null;
  const typed = sourceOf(encoding, position)
    .slice(...encoding.offsets[position])
    .join("")
    .trim();
  if (typed === "" || typed === TYPED_MASK || typed === encoding.tokens[position]) return null;
  const isContinuation = position > 0 && encoding.words[position] === encoding.words[position - 1];
  return (isContinuation ? CONTINUATION : "") + typed;
}

/**
 * Return the name of a token for display, such as "door (masked)".
 * @param {Encoding} encoding
 * @param {number} position
 * @param {string} masked text with a field {piece}
 */
export function tokenLabel(encoding, position, masked) {
  const piece = maskedPiece(encoding, position);
  return piece === null ? encoding.tokens[position] : masked.replace("{piece}", () => piece);
}

/**
 * Return the numbers of the words of the first text, or of both if it has none.
 * @param {Encoding} encoding
 */
function firstWords({ words, sides }) {
  const numbers = (/** @type {(position: number) => boolean} */ isCounted) =>
    /** @type {number[]} */ ([...new Set(words.filter((word, position) => word !== null && isCounted(position)))]);
  const first = numbers((position) => sides[position] === "A");
  return first.length ? first : numbers(() => true);
}

/**
 * Return the number of the longest word of the first text, which is masked if none was chosen.
 * @param {Encoding} original
 */
export function longestWord(original) {
  const length = (/** @type {number} */ word) => [...wordText(original, word)].length;
  return firstWords(original).reduce((longest, word) => (length(word) > length(longest) ? word : longest));
}

/**
 * Return the words of a text that are masked because they were masked in the text before it, or else its longest one.
 * @param {Encoding} original
 * @param {string[]} texts of the words that were masked
 * @returns {{ masked: number[], isAutomatic: boolean }}
 */
export function maskAgain(original, texts) {
  if (!texts.length || original.maskPositions.length) return { masked: [], isAutomatic: false };
  const folded = (/** @type {string} */ text) => text.toLowerCase();
  const words = new Map();
  for (let word = original.wordCount - 1; word >= 0; word--) words.set(folded(wordText(original, word)), word);
  const found = texts.map((text) => words.get(folded(text))).filter((word) => word !== undefined);
  if (found.length) return { masked: [...new Set(found)].sort((a, b) => a - b), isAutomatic: false };
  return { masked: [longestWord(original)], isAutomatic: true };
}

/**
 * Return the characters of the text of a token.
 * @param {Encoding} encoding
 * @param {number} position
 */
function sourceOf({ text, pair, sides }, position) {
  return [...(sides[position] === "A" ? text : (pair ?? ""))];
}
