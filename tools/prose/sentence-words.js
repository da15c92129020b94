// A rule of textlint: a sentence has at most MAX_WORDS words. Code is one word; tables, code blocks and the targets of links
// have none; a bold label ("**How to read:**") is a sentence of its own.

const MAX_WORDS = 30;
const SENTENCE_END = /(?<=[.:?!]\*\*)\s+|(?<=[.?!][)”"’']*[*_]*)(?<!\b(?:al|cf|vs|e\.g|i\.e)\.)\s+/;

/** @typedef {import("@textlint/types").TextlintRuleContext} Context */
/** @typedef {import("@textlint/ast-node-types").AnyTxtNode} Node */

/** @param {Context} context */
export default function sentenceWords({ Syntax, RuleError, getSource, report }) {
  return {
    /** @param {import("@textlint/ast-node-types").TxtParagraphNode} paragraph */
    [Syntax.Paragraph](paragraph) {
      let index = 0;
      const text = readableText(paragraph, getSource(paragraph));
      for (const sentence of text.split(SENTENCE_END)) {
        index = text.indexOf(sentence, index);
        const count = sentence.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
        if (count > MAX_WORDS) {
          const message = `A sentence of ${count} words, ${count - MAX_WORDS} too many`;
          report(paragraph, new RuleError(message, { index: index + sentence.search(/\S/) }));
        }
        index += sentence.length;
      }
    },
  };
}

/**
 * Return the source of a node with code as one word and without targets of links and HTML, in the same length.
 *
 * @param {Node} node
 * @param {string} source
 */
function readableText(node, source) {
  if (node.type === "Code") return "C".repeat(source.length);
  if (node.type === "Html" || node.type === "Image") return " ".repeat(source.length);
  if (!("children" in node)) return source;
  const outside = node.type === "Link" ? (/** @type {string} */ text) => " ".repeat(text.length) : String;
  const [start] = node.range;
  let text = "";
  for (const child of node.children) {
    const [from, to] = child.range.map((position) => position - start);
    text += outside(source.slice(text.length, from)) + readableText(child, source.slice(from, to));
  }
  return text + outside(source.slice(text.length));
}
