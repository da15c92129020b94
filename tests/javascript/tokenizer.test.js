// The tokenizer of the engine on a small vocabulary.

import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidInputError, UnsupportedModelError } from "../../viz_app/site/engine/errors.js";
import { Tokenizer } from "../../viz_app/site/engine/tokenizer.js";

const PIECES = [
  "[PAD]",
  "[UNK]",
  "[CLS]",
  "[SEP]",
  "[MASK]",
  "the",
  "cafe",
  "un",
  "##believ",
  "##able",
  "door",
  "!",
  "日",
];
const SPECIAL = PIECES.slice(0, 5);

const special = (/** @type {string} */ token, typeId = 0) => ({ SpecialToken: { id: token, type_id: typeId } });
const sequence = (/** @type {string} */ id, typeId = 0) => ({ Sequence: { id, type_id: typeId } });

/**
 * A tokenizer.json with some of its parts changed.
 * @param {Record<string, any>} changes
 */
function file({ model = {}, normalizer = {}, ...parts } = {}) {
  return {
    model: {
      type: "WordPiece",
      vocab: Object.fromEntries(PIECES.map((piece, id) => [piece, id])),
      unk_token: "[UNK]",
      continuing_subword_prefix: "##",
      max_input_chars_per_word: 20,
      ...model,
    },
    normalizer: {
      type: "BertNormalizer",
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: null,
      lowercase: true,
      ...normalizer,
    },
    pre_tokenizer: { type: "BertPreTokenizer" },
    post_processor: {
      type: "TemplateProcessing",
      single: [special("[CLS]"), sequence("A"), special("[SEP]")],
      pair: [special("[CLS]"), sequence("A"), special("[SEP]"), sequence("B", 1), special("[SEP]", 1)],
      special_tokens: Object.fromEntries(SPECIAL.map((token, id) => [token, { ids: [id] }])),
    },
    added_tokens: SPECIAL.map((content, id) => ({ id, content, ...flags, special: true })),
    ...parts,
  };
}

const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false };

/**
 * Spans of tokens as text.
 * @param {{ offsets: [number, number][] }} encoding
 */
const spans = ({ offsets }) => offsets.map(([start, end]) => `${start}-${end}`).join(" ");

/**
 * @param {Record<string, any>} [changes]
 * @param {object} [options]
 */
const tokenizer = (changes, options) => new Tokenizer(/** @type {any} */ (file(changes)), options);

test("A word is split into the longest pieces, and each piece has its span", () => {
  const encoding = tokenizer().encode("The unbelievable door!");
  assert.deepEqual(encoding.tokens, ["[CLS]", "the", "un", "##believ", "##able", "door", "!", "[SEP]"]);
  assert.deepEqual(encoding.inputIds, [2, 5, 7, 8, 9, 10, 11, 3]);
  assert.equal(spans(encoding), "0-0 0-3 4-6 6-12 12-16 17-21 21-22 0-0");
  assert.deepEqual(encoding.words, [null, 0, 1, 1, 1, 2, 3, null]);
  assert.deepEqual(encoding.sides, [null, "A", "A", "A", "A", "A", "A", null]);
});

test("Offsets count code points, with accents of their own and without characters that are removed", () => {
  const encoding = tokenizer().encode("😀 CAFÉ cafe\u0301 ca\u200bfe 日日");
  assert.deepEqual(encoding.tokens, ["[CLS]", "[UNK]", "cafe", "cafe", "cafe", "日", "日", "[SEP]"]);
  assert.equal(spans(encoding), "0-0 0-1 2-6 7-11 13-18 19-20 20-21 0-0");
});

test("The options of the normalizer are used", () => {
  const tokensOf = (/** @type {object} */ normalizer, /** @type {string} */ text) =>
    tokenizer({ normalizer }).encode(text).tokens.slice(1, -1);
  assert.deepEqual(tokensOf({ lowercase: false }, "The the café"), ["[UNK]", "the", "[UNK]"]);
  assert.deepEqual(tokensOf({ strip_accents: false }, "Café CAFE"), ["[UNK]", "cafe"]);
  assert.deepEqual(tokensOf({ lowercase: false, strip_accents: true }, "café"), ["cafe"]);
  assert.deepEqual(tokensOf({ clean_text: false }, "ca\u200bfe"), ["[UNK]"]);
  assert.deepEqual(tokensOf({ handle_chinese_chars: false }, "日日"), ["[UNK]"]);
});

test("A mask is a word of its own, also within a word", () => {
  const encoding = tokenizer().encode("un[MASK][MASK] [mask]");
  assert.deepEqual(encoding.maskPositions, [2, 3]);
  assert.deepEqual(encoding.words.slice(1, 4), [0, 1, 2]);
  assert.deepEqual(encoding.offsets[2], [2, 8]);
});

test("A pair has two segments, and its words are counted through both texts", () => {
  const encoding = tokenizer().encode("the door", "unbelievable !");
  assert.deepEqual(encoding.tokenTypeIds, [0, 0, 0, 0, 1, 1, 1, 1, 1]);
  assert.deepEqual(encoding.words, [null, 0, 1, null, 2, 2, 2, 3, null]);
  assert.deepEqual(encoding.offsets[4], [0, 2]);
  assert.deepEqual(encoding.roles, ["first", null, null, "between", null, null, null, null, "end"]);
  assert.deepEqual([encoding.wordCount, encoding.pair], [4, "unbelievable !"]);
});

test("A blank second text is none, and a model with one segment has one token type", () => {
  assert.deepEqual([tokenizer().encode("door", " \u001c").pair, tokenizer().encode("door").pair], [null, null]);
  const { tokenTypeIds } = tokenizer({}, { typeVocabSize: 1 }).encode("the", "door");
  assert.deepEqual(tokenTypeIds, [0, 0, 0, 0, 0]);
});

test("The longer text is truncated at its end first", () => {
  const { tokens, fullLength, truncatedCount } = tokenizer().encode("the the the the the", "door !", 7);
  assert.deepEqual(tokens, ["[CLS]", "the", "the", "[SEP]", "door", "!", "[SEP]"]);
  assert.deepEqual([fullLength, truncatedCount], [10, 3]);
});

test("A word that is too long, or has no piece, is unknown as a whole", () => {
  assert.deepEqual(tokenizer().encode("unable undo").tokens.slice(1, -1), ["un", "##able", "[UNK]"]);
  const { tokens, offsets } = tokenizer().encode(`un${"able".repeat(5)} unable`);
  assert.deepEqual(tokens.slice(1, -1), ["[UNK]", "un", "##able"]);
  assert.deepEqual(offsets[1], [0, 22]);
});

test("Words are masked in a copy", () => {
  const encoding = tokenizer().encode("The unbelievable door!");
  const masked = tokenizer().maskWords(encoding, [1, 2]);
  assert.deepEqual(masked.tokens, ["[CLS]", "the", "[MASK]", "[MASK]", "[MASK]", "[MASK]", "!", "[SEP]"]);
  assert.deepEqual([masked.maskPositions, masked.offsets], [[2, 3, 4, 5], encoding.offsets]);
  assert.deepEqual(encoding.maskPositions, []);
  assert.throws(() => tokenizer().maskWords(encoding, [4]), InvalidInputError);
});

test("Tokens have numbers, and a row without a token has a name", () => {
  assert.deepEqual([tokenizer().idOf("door"), tokenizer().idOf("window")], [10, 1]);
  assert.deepEqual([tokenizer().tokenOf(10), tokenizer().tokenOf(1000), tokenizer().size], ["door", "row 1,000", 13]);
  assert.deepEqual(tokenizer().piecesOf(" unable"), ["un", "##able"]);
  assert.deepEqual(tokenizer().piecesOf("##able"), ["##able"]);
  assert.throws(() => tokenizer().piecesOf("window"), InvalidInputError);
});

test("Added tokens follow the vocabulary, and are found before or after normalization", () => {
  const added_tokens = [
    ...file().added_tokens,
    { ...flags, id: 13, content: "Door", special: false },
    { ...flags, id: 14, content: "Ẑ", normalized: true, special: false },
    { ...flags, id: 15, content: "{x}", lstrip: true, rstrip: true, special: false },
  ];
  const encoding = tokenizer({ added_tokens }).encode("Doorun door cafe\u0301 Z  {x} the");
  assert.deepEqual(encoding.tokens.slice(1, -1), ["Door", "un", "door", "cafe", "Ẑ", "{x}", "the"]);
  assert.equal(spans(encoding), "0-0 0-4 4-6 7-11 12-16 18-19 19-25 25-28 0-0");
  assert.deepEqual(encoding.words.slice(1, 4), [0, 1, 2]);
});

test("A text that cannot be encoded is an error of the user", () => {
  for (const [text, pair, message] of [
    ["", "", /there is no text: type at least one word/],
    [" ", "door", /there is a second sentence but no first one/],
    ["\u200b", "", /the text contains no readable character/],
    ["door", "\ufeff", /the second sentence contains no readable character/],
    ["half \ud83d", "", /the text contains a broken character/],
  ]) {
    assert.throws(() => tokenizer().encode(String(text), String(pair)), { name: "InvalidInputError", message });
  }
  assert.throws(() => tokenizer().encode("door", "the", 4), { message: /leaves no room .* at least 5/ });
});

test("A file of another kind is refused with what was given and what is allowed", () => {
  const { vocab } = file().model;
  const { post_processor, added_tokens } = file();
  for (const [changes, message] of /** @type {[Record<string, any>, RegExp][]} */ ([
    [{ model: { type: "BPE" } }, /model is BPE: it must be WordPiece/],
    [{ normalizer: { type: "Sequence" } }, /normalizer is Sequence: it must be BertNormalizer/],
    [{ normalizer: { lowercase: undefined } }, /lowercase is undefined: it must be true or false/],
    [{ pre_tokenizer: null }, /pre_tokenizer is missing: it must be BertPreTokenizer/],
    [{ post_processor: null }, /post_processor is missing: it must be TemplateProcessing or BertProcessing/],
    [{ post_processor: { ...post_processor, pair: [sequence("B"), sequence("A")] } }, /the first one first/],
    [{ post_processor: { type: "BertProcessing", cls: ["[CLS]", 2], sep: ["[SEP]", 99] } }, /beyond the 13/],
    [{ model: { vocab: { ...vocab, the: 99 } } }, /must give every piece a number/],
    [{ model: { unk_token: "<unk>" } }, /unk_token is <unk>: it must be one of the vocabulary/],
    [{ added_tokens: [{ ...added_tokens[0], content: "x", id: 99 }] }, /x has the number 99: it must be 13/],
    [{ added_tokens: [{ ...added_tokens[0], single_word: true }] }, /single_word: it must be false/],
  ])) {
    assert.throws(() => tokenizer(changes), { name: "UnsupportedModelError", message });
  }
  assert.throws(() => tokenizer({}, { names: { mask_token: "<mask>" } }), UnsupportedModelError);
  assert.throws(() => new Tokenizer(/** @type {any} */ (null)), UnsupportedModelError);
});
