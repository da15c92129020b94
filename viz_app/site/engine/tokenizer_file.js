// The parts of a tokenizer.json that the tokenizer of the engine uses, and checks that it supports them.

import { UnsupportedModelError } from "./errors.js";

/** @import { NormalizerOptions } from "./normalizer.js" */

/** @typedef {"A" | "B"} Side */

/**
 * Names of special tokens, as in a tokenizer_config.json.
 * @typedef {"cls_token" | "sep_token" | "mask_token" | "pad_token" | "unk_token"} TokenName
 */

/** @typedef {Record<TokenName, string>} SpecialTokens */

/**
 * A token that is found before a text is split into words.
 * @typedef {object} AddedToken
 * @property {number} id
 * @property {string} content
 * @property {boolean} single_word whether it is found only as a whole word; not supported
 * @property {boolean} lstrip whether white space before it belongs to it
 * @property {boolean} rstrip whether white space after it belongs to it
 * @property {boolean} normalized whether it is found in the normalized text
 * @property {boolean} special
 */

/**
 * The content of a tokenizer.json.
 * @typedef {object} TokenizerFile
 * @property {WordPieceModel} model
 * @property {NormalizerOptions & { type: string }} normalizer
 * @property {{ type: string }} pre_tokenizer
 * @property {BertProcessing | TemplateProcessing} post_processor
 * @property {AddedToken[]} [added_tokens]
 */

/**
 * @typedef {object} WordPieceModel
 * @property {string} [type]
 * @property {Record<string, number>} vocab
 * @property {string} unk_token
 * @property {string} [continuing_subword_prefix]
 * @property {number} [max_input_chars_per_word]
 */

/** @typedef {{ type: "BertProcessing", cls: [string, number], sep: [string, number] }} BertProcessing */

/**
 * @typedef {object} TemplateProcessing
 * @property {"TemplateProcessing"} type
 * @property {TemplatePart[]} single
 * @property {TemplatePart[]} pair
 * @property {Record<string, { ids: number[] }>} special_tokens
 */

/**
 * Special tokens, or a text, with the number of their segment.
 * @typedef {{ SpecialToken?: { id: string, type_id: number }, Sequence?: { id: Side, type_id: number } }} TemplatePart
 */

/**
 * Special tokens to insert, or the place of a text, with the number of their segment.
 * @typedef {{ ids: number[], side: Side | null, typeId: number }} FramePart
 */

/**
 * What the tokenizer uses of its file.
 * @typedef {object} TokenizerParts
 * @property {Map<string, number>} pieces numbers of the pieces of the model
 * @property {Map<string, number>} ids numbers of all tokens
 * @property {string} prefix prefix of a piece that continues a word
 * @property {string} unknown
 * @property {number} maxWordLength longest word that is split, in code points
 * @property {NormalizerOptions} normalizer
 * @property {AddedToken[]} addedTokens
 * @property {SpecialTokens} specialTokens
 * @property {FramePart[]} single the special tokens around a single text
 * @property {FramePart[]} pair the special tokens around a pair of texts
 */

const SUPPORTED_TYPES = { model: "WordPiece", normalizer: "BertNormalizer", pre_tokenizer: "BertPreTokenizer" };
const DEFAULT_MAX_WORD_LENGTH = 100;
/** @type {SpecialTokens} */
const BERT_TOKENS = {
  cls_token: "[CLS]",
  sep_token: "[SEP]",
  mask_token: "[MASK]",
  pad_token: "[PAD]",
  unk_token: "[UNK]",
};
/** @type {SpecialTokens} */
const ROBERTA_TOKENS = {
  cls_token: "<s>",
  sep_token: "</s>",
  mask_token: "<mask>",
  pad_token: "<pad>",
  unk_token: "<unk>",
};
const SPECIAL_TOKEN_FAMILIES = [
  BERT_TOKENS,
  ROBERTA_TOKENS,
  { ...BERT_TOKENS, pad_token: ROBERTA_TOKENS.pad_token, unk_token: ROBERTA_TOKENS.unk_token },
];

/**
 * Return what the tokenizer uses of a tokenizer.json.
 * @param {TokenizerFile} file
 * @param {Partial<SpecialTokens>} names special tokens that the tokenizer_config.json states
 * @returns {TokenizerParts}
 * @throws {UnsupportedModelError} if the file is invalid, or not of a supported kind
 */
export function readTokenizerFile(file, names) {
  checkTypes(file);
  const { model, normalizer } = file;
  const pieces = readVocabulary(model);
  const addedTokens = (file.added_tokens ?? []).filter(({ content }) => content !== "");
  const ids = addTokens(pieces, addedTokens);
  const frames = readFrames(file.post_processor, ids.size);
  return {
    pieces,
    ids,
    prefix: model.continuing_subword_prefix ?? "##",
    unknown: model.unk_token,
    maxWordLength: model.max_input_chars_per_word ?? DEFAULT_MAX_WORD_LENGTH,
    normalizer,
    addedTokens,
    specialTokens: findSpecialTokens(ids, names),
    ...frames,
  };
}

/**
 * Raise an error unless the parts of the file are of the supported types.
 * @param {TokenizerFile} file
 */
function checkTypes(file) {
  for (const [part, supported] of Object.entries(SUPPORTED_TYPES)) {
    const value = file?.[/** @type {keyof typeof SUPPORTED_TYPES} */ (part)];
    // Old files have no type for the model.
    const type = value?.type ?? (part === "model" && value ? supported : "missing");
    if (type !== supported)
      throw new UnsupportedModelError(`the tokenizer's ${part} is ${type}: it must be ${supported}`);
  }
  const { clean_text, handle_chinese_chars, strip_accents, lowercase } = file.normalizer;
  const options = { clean_text, handle_chinese_chars, lowercase, strip_accents: strip_accents ?? lowercase };
  for (const [option, value] of Object.entries(options)) {
    if (typeof value !== "boolean") {
      throw new UnsupportedModelError(`the normalizer's ${option} is ${value}: it must be true or false`);
    }
  }
}

/**
 * Return the number of each piece of a model.
 * @param {WordPieceModel} model
 */
function readVocabulary({ vocab, unk_token: unknown }) {
  const pieces = new Map(Object.entries(vocab ?? {}));
  const numbers = new Set(pieces.values());
  if (!pieces.size || [...pieces.keys()].some((_, number) => !numbers.has(number))) {
    throw new UnsupportedModelError("the vocabulary must give every piece a number, from 0 on, each once");
  }
  if (!pieces.has(unknown)) {
    throw new UnsupportedModelError(`the tokenizer's unk_token is ${unknown}: it must be one of the vocabulary`);
  }
  return pieces;
}

/**
 * Return the number of each token: those of the pieces, and those of added tokens, which follow them.
 * @param {Map<string, number>} pieces
 * @param {AddedToken[]} addedTokens
 */
function addTokens(pieces, addedTokens) {
  const ids = new Map(pieces);
  for (const { id, content, single_word } of addedTokens) {
    const expected = ids.get(content) ?? ids.size;
    if (id !== expected) {
      throw new UnsupportedModelError(`the added token ${content} has the number ${id}: it must be ${expected}`);
    }
    if (single_word) {
      throw new UnsupportedModelError(`the added token ${content} has single_word: it must be false`);
    }
    ids.set(content, id);
  }
  return ids;
}

/**
 * Return the special tokens of a vocabulary: those stated, and the others from the first family that it contains.
 * @param {Map<string, number>} ids
 * @param {Partial<SpecialTokens>} names
 * @returns {SpecialTokens}
 */
function findSpecialTokens(ids, names) {
  const families = SPECIAL_TOKEN_FAMILIES.map((family) => override(family, names));
  const missing = families.map((family) => Object.values(family).filter((token) => !ids.has(token)));
  const complete = families[missing.findIndex((tokens) => tokens.length === 0)];
  if (!complete)
    throw new UnsupportedModelError(`the vocabulary has no ${missing[0].join(", ")}: it must contain them`);
  return complete;
}

/**
 * Return special tokens with others in their place.
 * @param {SpecialTokens} tokens
 * @param {Partial<SpecialTokens>} names
 */
function override(tokens, names) {
  const entries = /** @type {[TokenName, string][]} */ (Object.entries(tokens));
  return /** @type {SpecialTokens} */ (
    Object.fromEntries(entries.map(([name, token]) => [name, names[name] ?? token]))
  );
}

/**
 * Return the special tokens that a post-processor inserts around a single text and around a pair.
 * @param {BertProcessing | TemplateProcessing} processor
 * @param {number} size number of tokens
 */
function readFrames(processor, size) {
  const frames =
    processor?.type === "BertProcessing"
      ? createBertFrames(processor)
      : { single: readTemplate(processor, "single"), pair: readTemplate(processor, "pair") };
  if (textsOf(frames.single) !== "A" || textsOf(frames.pair) !== "AB") {
    throw new UnsupportedModelError("the post_processor must have each text once, and the first one first");
  }
  if ([...frames.single, ...frames.pair].some(({ ids }) => ids.some((id) => id >= size))) {
    throw new UnsupportedModelError(`the post_processor must not insert tokens beyond the ${size} of the vocabulary`);
  }
  return frames;
}

/**
 * Return the texts of a frame.
 * @param {FramePart[]} frame
 */
function textsOf(frame) {
  return frame.map(({ side }) => side ?? "").join("");
}

/**
 * Return the special tokens that a BertProcessing inserts.
 * @param {BertProcessing} processor
 * @returns {{ single: FramePart[], pair: FramePart[] }}
 */
function createBertFrames({ cls, sep }) {
  const end = { ids: [sep[1]], side: null };
  /** @type {FramePart[]} */
  const single = [
    { ids: [cls[1]], side: null, typeId: 0 },
    { ids: [], side: "A", typeId: 0 },
    { ...end, typeId: 0 },
  ];
  return { single, pair: [...single, { ids: [], side: "B", typeId: 1 }, { ...end, typeId: 1 }] };
}

/**
 * Return the special tokens that a template of a TemplateProcessing inserts.
 * @param {TemplateProcessing | BertProcessing} processor
 * @param {"single" | "pair"} name
 * @returns {FramePart[]}
 */
function readTemplate(processor, name) {
  if (processor?.type !== "TemplateProcessing") {
    const type = processor ? /** @type {{ type: string }} */ (processor).type : "missing";
    throw new UnsupportedModelError(
      `the tokenizer's post_processor is ${type}: it must be TemplateProcessing or BertProcessing`,
    );
  }
  return processor[name].map(({ SpecialToken: special, Sequence: sequence }) => {
    if (special) return { ids: processor.special_tokens[special.id].ids, side: null, typeId: special.type_id };
    return { ids: [], side: sequence?.id ?? null, typeId: sequence?.type_id ?? 0 };
  });
}
