// The tokenizer of the engine: WordPiece with offsets, with the same result as `Tokenizer` of bert_core/tokenizer.py.

import { InvalidInputError } from "./errors.js";
import { isWhiteSpace, normalize, splitWords } from "./normalizer.js";
import { readTokenizerFile } from "./tokenizer_file.js";

/** @import { Character } from "./normalizer.js" */
/** @import { AddedToken, FramePart, Side, SpecialTokens, TokenizerFile, TokenizerParts } from "./tokenizer_file.js" */

/** @typedef {"first" | "between" | "end" | "mask" | "pad" | "unknown"} TokenRole */

/**
 * The tokens of one text or a pair of texts; every array has one entry per token.
 * @typedef {object} Encoding
 * @property {string} text the text as entered
 * @property {string | null} pair the second text as entered; null for a single text
 * @property {string[]} tokens
 * @property {number[]} inputIds
 * @property {number[]} tokenTypeIds number of the segment of each token
 * @property {[start: number, end: number][]} offsets span of each token in its own text, counted in code points; [0, 0]
 *   for added special tokens
 * @property {(number | null)[]} words number of each token's word, counted through both texts; null for added special
 *   tokens
 * @property {(Side | null)[]} sides the text of each token; null for added special tokens
 * @property {(TokenRole | null)[]} roles role of each special token, added or part of a text
 * @property {number[]} maskPositions positions of the mask token
 * @property {number} wordCount number of words in both texts after truncation
 * @property {number} fullLength number of tokens before truncation
 * @property {number} truncatedCount number of tokens that were removed by truncation
 */

/**
 * A token within an encoding.
 * @typedef {object} Row
 * @property {number} id
 * @property {number} typeId
 * @property {[start: number, end: number]} offsets
 * @property {number | null} word
 * @property {Side | null} side
 */

/**
 * A token of a text. word: its number within the text.
 * @typedef {{ id: number, start: number, end: number, word: number }} Piece
 */

/**
 * Characters of a text, with the added token that they are; null for other text.
 * @typedef {{ token: AddedToken | null, characters: Character[] }} Part
 */

/**
 * A pattern for added tokens, and the token of each match.
 * @typedef {{ pattern: RegExp, byText: Map<string, AddedToken> }} Matcher
 */

const TYPED_MASK = "[MASK]";
const MAX_QUOTED_LENGTH = 40;
const MAX_LENGTH = 512;
const LONE_SURROGATE = /\p{Surrogate}/u;

/** A tokenizer with a WordPiece vocabulary. */
export class Tokenizer {
  /** @type {TokenizerParts} */
  #parts;
  /** @type {string[]} */
  #tokens = [];
  #longestPiece = 0;
  /** @type {Matcher | null} */
  #matcher;
  /** For added tokens that are found in the normalized text. @type {Matcher | null} */
  #normalizedMatcher;
  /** @type {Map<string, TokenRole>} */
  #roles;
  #oneSegment;

  /**
   * @param {TokenizerFile} file parsed content of a tokenizer.json
   * @param {object} [options]
   * @param {Partial<SpecialTokens>} [options.names] special tokens that the tokenizer_config.json states
   * @param {number} [options.typeVocabSize] number of segments of the model; with 1, all tokens are in segment 0
   * @throws {UnsupportedModelError} if the file is invalid, or not of a supported kind
   */
  constructor(file, { names = {}, typeVocabSize = 2 } = {}) {
    this.#parts = readTokenizerFile(file, names);
    const { pieces, ids, addedTokens, specialTokens, normalizer } = this.#parts;
    for (const [token, id] of ids) this.#tokens[id] = token;
    for (const piece of pieces.keys()) this.#longestPiece = Math.max(this.#longestPiece, piece.length);
    this.#matcher = createMatcher(addedTokens, false, (content) => content);
    this.#normalizedMatcher = createMatcher(addedTokens, true, (content) => {
      return textOf(normalize(toCharacters(content), normalizer));
    });
    this.#roles = findRoles(this.#parts, this.#tokens);
    this.#oneSegment = typeVocabSize === 1;
    this.specialTokens = specialTokens;
    this.unknownId = /** @type {number} */ (ids.get(specialTokens.unk_token));
    this.maskId = this.idOf(specialTokens.mask_token);
  }

  /** Number of tokens, including added ones. */
  get size() {
    return this.#tokens.length;
  }

  /**
   * Return the number of a token, or that of the unknown token if the vocabulary does not contain it.
   * @param {string} token
   */
  idOf(token) {
    return this.#parts.ids.get(token) ?? this.unknownId;
  }

  /**
   * Return the token with a number; for an unused row of the embedding table, "row 250,010".
   * @param {number} id
   */
  tokenOf(id) {
    return this.#tokens[id] ?? `row ${id.toLocaleString("en")}`;
  }

  /**
   * Return the tokens of a word, such as that of a target.
   * @param {string} word a word, or a piece such as "##ing", which is returned unchanged
   * @throws {InvalidInputError} if there is no word, or a character is not in the vocabulary
   */
  piecesOf(word) {
    const stripped = strip(word);
    if (this.#parts.ids.has(stripped)) return [stripped];
    const { tokens, sides, roles } = this.encode(stripped);
    if (roles.includes("unknown")) {
      const characters = [...stripped];
      const quoted =
        characters.length > MAX_QUOTED_LENGTH ? `${characters.slice(0, MAX_QUOTED_LENGTH).join("")}…` : stripped;
      throw new InvalidInputError(`'${quoted}' has characters that are not in the vocabulary: choose another word`);
    }
    return tokens.filter((_, position) => sides[position] !== null);
  }

  /**
   * Encode a text or a pair of texts, with the special tokens of the model.
   * @param {string} text
   * @param {string} [pair] the second text; empty if there is none. [MASK] stands for the mask token of any model
   * @param {number} [maxLength] maximum number of tokens; the longer text is truncated at its end first
   * @returns {Encoding}
   * @throws {InvalidInputError} if a text is empty or has no readable character, or there is a pair without a text, or
   *   `maxLength` leaves no room for a token of each text
   */
  encode(text, pair = "", maxLength = MAX_LENGTH) {
    const second = strip(pair) ? pair : null;
    checkTexts(text, second);
    const texts = (second === null ? [text] : [text, second]).map((source) => this.#split(source));
    const empty = texts.findIndex((pieces) => !pieces.length);
    if (empty >= 0) {
      const name = empty ? "second sentence" : "text";
      throw new InvalidInputError(`the ${name} contains no readable character: type at least one word`);
    }
    const frame = second === null ? this.#parts.single : this.#parts.pair;
    const specialCount = frame.reduce((count, { ids }) => count + ids.length, 0);
    if (maxLength < specialCount + texts.length) {
      const minimum = specialCount + texts.length;
      throw new InvalidInputError(
        `maxLength ${maxLength} leaves no room for a token of each text: it must be at least ${minimum}`,
      );
    }
    const [first, last = []] = texts;
    const lengths = truncatedLengths(maxLength - specialCount, first.length, last.length);
    const rows = this.#rows(frame, [first.slice(0, lengths[0]), last.slice(0, lengths[1])]);
    const fullLength = specialCount + first.length + last.length;
    return { text, pair: second, ...this.#columns(rows), fullLength, truncatedCount: fullLength - rows.length };
  }

  /**
   * Return a copy of an encoding in which every token of some words is masked; the offsets are unchanged.
   * @param {Encoding} encoding
   * @param {Iterable<number>} words numbers of words, as in `words` of the encoding
   * @returns {Encoding}
   * @throws {InvalidInputError} if a word does not exist
   */
  maskWords(encoding, words) {
    const selected = new Set(words);
    const missing = [...selected].filter((word) => !encoding.words.includes(word));
    if (missing.length) {
      throw new InvalidInputError(
        `word ${Math.min(...missing)} does not exist in this text: it has words 0 to ${encoding.wordCount - 1}`,
      );
    }
    const inputIds = encoding.inputIds.map((id, position) => {
      const word = encoding.words[position];
      return word !== null && selected.has(word) ? this.maskId : id;
    });
    return { ...encoding, inputIds, ...this.#named(inputIds, encoding.sides) };
  }

  /**
   * Return the tokens of a text.
   * @param {string} text
   */
  #split(text) {
    /** @type {Piece[]} */
    const pieces = [];
    let word = 0;
    for (const part of this.#findAddedTokens(this.#read(text))) {
      if (part.token) pieces.push(this.#addedPiece(part.token, part.characters, word++));
      else for (const characters of splitWords(part.characters)) pieces.push(...this.#splitWord(characters, word++));
    }
    return pieces;
  }

  /**
   * Return the characters of a text, with the model's own mask token in place of [MASK].
   * @param {string} text
   */
  #read(text) {
    const mask = this.specialTokens.mask_token;
    if (mask === TYPED_MASK) return toCharacters(text);
    let end = 0;
    return text.split(TYPED_MASK).flatMap((part, index) => {
      const start = end;
      if (index) end += TYPED_MASK.length;
      const inserted = index ? Array.from(mask, (letter) => ({ text: letter, start, end: start })) : [];
      if (index) inserted[inserted.length - 1].end = end;
      const characters = toCharacters(part, end);
      end += characters.length;
      return [...inserted, ...characters];
    });
  }

  /**
   * Return the added tokens of a text, and the normalized text between them.
   * @param {Character[]} characters
   * @returns {Part[]}
   */
  #findAddedTokens(characters) {
    return splitAt(this.#matcher, characters).flatMap((part) =>
      part.token ? [part] : splitAt(this.#normalizedMatcher, normalize(part.characters, this.#parts.normalizer)),
    );
  }

  /**
   * Return an added token as a token of the text. The span of a mask token has no spaces before it.
   * @param {AddedToken} token
   * @param {Character[]} characters
   * @param {number} word
   */
  #addedPiece({ id }, characters, word) {
    const start = id === this.maskId ? characters.findIndex(({ text }) => !isWhiteSpace(text)) : 0;
    return createPiece(id, characters.slice(start), word);
  }

  /**
   * Return the longest pieces of a word, from left to right, or the unknown token if a part of it is no piece.
   * @param {Character[]} characters
   * @param {number} word
   */
  #splitWord(characters, word) {
    const { pieces: ids, prefix, maxWordLength, unknown } = this.#parts;
    const whole = [createPiece(/** @type {number} */ (ids.get(unknown)), characters, word)];
    if (characters.length > maxWordLength) return whole;
    /** @type {Piece[]} */
    const pieces = [];
    for (let start = 0; start < characters.length; ) {
      let end = Math.min(characters.length, start + this.#longestPiece);
      let text = (start ? prefix : "") + textOf(characters.slice(start, end));
      while (end > start && !ids.has(text)) text = text.slice(0, -characters[--end].text.length);
      const id = ids.get(text);
      if (end === start || id === undefined) return whole;
      pieces.push(createPiece(id, characters.slice(start, end), word));
      start = end;
    }
    return pieces;
  }

  /**
   * Return the tokens of one or two texts with the special tokens around them.
   * @param {FramePart[]} frame
   * @param {Piece[][]} texts
   * @returns {Row[]}
   */
  #rows(frame, texts) {
    /** @type {Row[]} */
    const rows = [];
    let wordCount = 0;
    for (const { ids, side, typeId: frameTypeId } of frame) {
      const typeId = this.#oneSegment ? 0 : frameTypeId;
      for (const id of ids) rows.push({ id, typeId, offsets: [0, 0], word: null, side: null });
      const firstWord = wordCount;
      for (const { id, start, end, word } of side === null ? [] : texts[side === "A" ? 0 : 1]) {
        wordCount = firstWord + word + 1;
        rows.push({ id, typeId, offsets: [start, end], word: firstWord + word, side });
      }
    }
    return rows;
  }

  /**
   * Return the fields of an encoding that have one entry per token, and the number of words.
   * @param {Row[]} rows
   */
  #columns(rows) {
    const inputIds = rows.map(({ id }) => id);
    const words = rows.map(({ word }) => word);
    const sides = rows.map(({ side }) => side);
    return {
      ...this.#named(inputIds, sides),
      inputIds,
      tokenTypeIds: rows.map(({ typeId }) => typeId),
      offsets: rows.map(({ offsets }) => offsets),
      words,
      sides,
      wordCount: Math.max(...words.map((word) => (word ?? -1) + 1)),
    };
  }

  /**
   * Return the tokens with these numbers, and what follows from them.
   * @param {number[]} inputIds
   * @param {(Side | null)[]} sides
   */
  #named(inputIds, sides) {
    const tokens = inputIds.map((id) => this.#tokens[id]);
    const last = tokens.length - 1;
    const endsWithSpecial = sides[last] === null && tokens[last] === this.specialTokens.sep_token;
    const roles = tokens.map((token, position) =>
      position === last && endsWithSpecial ? "end" : (this.#roles.get(token) ?? null),
    );
    const maskPositions = [...roles.keys()].filter((position) => roles[position] === "mask");
    return { tokens, roles, maskPositions };
  }
}

/**
 * Raise an error unless there is a text that can be encoded.
 * @param {string} text
 * @param {string | null} pair
 */
function checkTexts(text, pair) {
  if (!strip(text)) {
    throw new InvalidInputError(
      pair === null
        ? "there is no text: type at least one word"
        : "there is a second sentence but no first one: type the first, or move the second up",
    );
  }
  if (LONE_SURROGATE.test(text) || LONE_SURROGATE.test(pair ?? "")) {
    throw new InvalidInputError("the text contains a broken character: type it again");
  }
}

/**
 * Return a text without white space at its start and end, as Python's `str.strip` does.
 * @param {string} text
 */
function strip(text) {
  const isSpace = (/** @type {string} */ character) =>
    isWhiteSpace(character) || (character >= "\u001c" && character <= "\u001f");
  const characters = [...text];
  const start = characters.findIndex((character) => !isSpace(character));
  const end = characters.findLastIndex((character) => !isSpace(character)) + 1;
  return start < 0 ? "" : characters.slice(start, end).join("");
}

/**
 * Return the characters of a text.
 * @param {string} text
 * @param {number} [position] of the first character
 * @returns {Character[]}
 */
function toCharacters(text, position = 0) {
  return Array.from(text, (character, index) => ({
    text: character,
    start: position + index,
    end: position + index + 1,
  }));
}

/**
 * Return the text of characters.
 * @param {Character[]} characters
 */
function textOf(characters) {
  return characters.map(({ text }) => text).join("");
}

/**
 * Return a token of a text with the span of its characters.
 * @param {number} id
 * @param {Character[]} characters
 * @param {number} word
 * @returns {Piece}
 */
function createPiece(id, characters, word) {
  return { id, start: characters[0].start, end: characters[characters.length - 1].end, word };
}

/**
 * Return the numbers of tokens of both texts that fit into `room`; the longer text is truncated first.
 * @param {number} room
 * @param {number} first
 * @param {number} second
 */
function truncatedLengths(room, first, second) {
  if (first + second <= room) return [first, second];
  const shorter = Math.min(first, second, Math.floor(room / 2));
  return first <= second ? [shorter, room - shorter] : [room - shorter, shorter];
}

/**
 * Return the role of each special token in a text; "between" for one that is both a separator and the end.
 * @param {TokenizerParts} parts
 * @param {string[]} tokens
 * @returns {Map<string, TokenRole>}
 */
function findRoles({ specialTokens, addedTokens, pair }, tokens) {
  const special = new Set(addedTokens.filter((token) => token.special).map(({ content }) => content));
  special.add(specialTokens.cls_token).add(specialTokens.sep_token);
  const between = pair.slice(
    pair.findIndex(({ side }) => side === "A"),
    pair.findIndex(({ side }) => side === "B"),
  );
  const separators = between.flatMap(({ ids }) => ids.map((id) => tokens[id])).filter((token) => special.has(token));
  return new Map([
    [specialTokens.pad_token, "pad"],
    [specialTokens.unk_token, "unknown"],
    [specialTokens.cls_token, "first"],
    [specialTokens.sep_token, separators.length ? "end" : "between"],
    ...separators.map((token) => /** @type {[string, TokenRole]} */ ([token, "between"])),
    [specialTokens.mask_token, "mask"],
  ]);
}

/**
 * Return the pattern of the added tokens that are found before normalization, or after it; null if there are none.
 * @param {AddedToken[]} addedTokens
 * @param {boolean} normalized
 * @param {(content: string) => string} convert returns the text that is searched for
 * @returns {Matcher | null}
 */
function createMatcher(addedTokens, normalized, convert) {
  /** @type {Map<string, AddedToken>} */
  const byText = new Map();
  for (const token of addedTokens.filter((candidate) => candidate.normalized === normalized)) {
    const text = convert(token.content);
    if (text && !byText.has(text)) byText.set(text, token);
  }
  if (!byText.size) return null;
  const longestFirst = [...byText.keys()].sort((one, other) => other.length - one.length);
  const alternatives = longestFirst.map((text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  return { pattern: new RegExp(alternatives.join("|"), "gu"), byText };
}

/**
 * Return the added tokens in a text, and the text between them.
 * @param {Matcher | null} matcher
 * @param {Character[]} characters
 * @returns {Part[]}
 */
function splitAt(matcher, characters) {
  const text = textOf(characters);
  const matches = matcher ? [...text.matchAll(matcher.pattern)] : [];
  /** @type {Part[]} */
  const parts = [];
  let previous = 0;
  let start = 0;
  const add = (/** @type {number} */ next, /** @type {AddedToken | null} */ token) => {
    const end = start + codePointCount(text.slice(previous, next));
    if (end > start) parts.push({ token, characters: characters.slice(start, end) });
    [previous, start] = [next, end];
  };
  for (const match of matches) {
    const token = /** @type {AddedToken} */ (matcher?.byText.get(match[0]));
    const end = match.index + match[0].length;
    const spaceBefore = token.lstrip ? trailingSpace(text.slice(previous, match.index)) : 0;
    add(match.index - spaceBefore, null);
    add(end + (token.rstrip ? leadingSpace(text.slice(end)) : 0), token);
  }
  add(text.length, null);
  return parts;
}

/**
 * Return the number of code points of a text.
 * @param {string} text
 */
function codePointCount(text) {
  return [...text].length;
}

/**
 * Return the length of the white space at the start of a text.
 * @param {string} text
 */
function leadingSpace(text) {
  return text.length - text.replace(/^\p{White_Space}+/u, "").length;
}

/**
 * Return the length of the white space at the end of a text.
 * @param {string} text
 */
function trailingSpace(text) {
  return text.length - text.replace(/\p{White_Space}+$/u, "").length;
}
