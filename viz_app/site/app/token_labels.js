// Names of tokens for display.

/** @import { Encoding } from "../engine/tokenizer.js" */

/**
 * Return the tokens of a text; a masked one with its original token, such as "door (masked)".
 * @param {Encoding} encoding
 * @param {(piece: string) => string} masked returns the name of a masked token
 */
export const tokenLabels = (encoding, masked) =>
  encoding.tokens.map((token, position) => {
    const original = originalToken(encoding, position);
    return original === null ? token : masked(original);
  });

/**
 * Return the original token at a masked position, with ## if it continues a word; null if it is not masked, or the text
 * itself has a mask there.
 * @param {Encoding} encoding
 * @param {number} position
 */
export function originalToken({ text, pair, tokens, offsets, roles, sides, words }, position) {
  if (roles[position] !== "mask" || sides[position] === null) return null;
  const source = sides[position] === "A" ? text : (pair ?? "");
  const original = [...source]
    .slice(...offsets[position])
    .join("")
    .trim();
  if (!original || original === "[MASK]" || original === tokens[position]) return null;
  const continues = position > 0 && words[position - 1] === words[position];
  return (continues ? "##" : "") + original;
}
