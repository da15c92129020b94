// The first sentence of a text with one word replaced by its counterpart, such as "he" by "she".

import { piecesOfWord, wordText } from "./encodings.js";

/** @import { Encoding } from "../engine/tokenizer.js" */

/**
 * Return the text with its first word that has a counterpart replaced; null if none has.
 * @param {Encoding} original
 * @param {number[]} masked numbers of words that stay
 * @param {Record<string, string>} swaps counterparts of words in lower case
 */
export function swapWord(original, masked, swaps) {
  const { text, sides, offsets, maskPositions } = original;
  for (let word = 0; word < original.wordCount; word++) {
    const pieces = piecesOfWord(original, word);
    if (masked.includes(word) || sides[pieces[0]] !== "A" || maskPositions.includes(pieces[0])) continue;
    const old = wordText(original, word);
    const counterpart = Object.hasOwn(swaps, old.toLowerCase()) ? swaps[old.toLowerCase()] : null;
    if (counterpart === null) continue;
    const replacement = /^\p{Lu}/u.test(old) ? counterpart[0].toUpperCase() + counterpart.slice(1) : counterpart;
    const characters = [...text];
    const end = offsets[pieces[pieces.length - 1]][1];
    const start = end - [...old].length;
    return { old, replacement, text: [...characters.slice(0, start), replacement, ...characters.slice(end)].join("") };
  }
  return null;
}
