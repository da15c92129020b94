// The checks of lessons: the record of a text that a check needs, and the verdict on an answer. They are those of
// viz_app/lessons/checks, which say what each is about, and give the same results.

import { wordText } from "./encodings.js";
import { probabilityOf } from "./targets.js";

/** @import { CheckSettings, LessonOption, Run, RunRequest, Runs, SiteDescription, Texts } from "./types.d.ts" */

/**
 * The texts of a request.
 * @typedef {Pick<RunRequest, "text" | "pair" | "masked">} LessonText
 *
 * What a check is about.
 * @typedef {object} CheckContext
 * @property {Runs} runs
 * @property {SiteDescription["model"]} model
 * @property {CheckSettings} settings
 * @property {LessonText} page the text on the page
 * @property {LessonText} lesson the text of the question
 * @property {AbortSignal} [signal]
 * @property {(completed: number, total: number) => void} [onProgress] receives the number of completed runs
 *
 * A word of `checks.toml` as a figure, which is translated where it is shown.
 * @typedef {{ phrase: string }} Phrase
 *
 * @typedef {"" | "yours" | "true" | "both"} Mark whether a bar is that of the answer, of the truth, or of both
 *
 * @typedef {{ name: string, value: number, mark: Mark }} Bar
 *
 * @typedef {object} Verdict
 * @property {boolean} right
 * @property {Record<string, string | number | Phrase>} figures what a sentence can contain
 * @property {Bar[]} bars
 * @property {boolean} claimHolds whether the claim of the lesson is true of this model and this text
 *
 * A check: its record is plain data, so that it can be stored.
 * @typedef {object} LessonCheck
 * @property {(context: CheckContext) => Promise<any>} record throws UnsuitableError
 * @property {(record: any, answer: any, settings: CheckSettings) => Verdict} judge
 */

const TYPED_GAP = "[MASK]";
// Python's \b and \w know all letters.
const VERB = /(?<![\p{L}\p{N}_])(?:am|is|are|was|were|can|could|will|would|should|must|may|might)(?![\p{L}\p{N}_])/iu;
const NEGATION =
  /(?<=(?<![\p{L}\p{N}_])can)not(?![\p{L}\p{N}_])|(?<=[\p{L}\p{N}_])n['’]t(?![\p{L}\p{N}_])|\s+(?:not|never)(?![\p{L}\p{N}_])/giu;

/** A text or a model that a check cannot be applied to. key: of a text in the table `unsuitable` of checks.toml. */
export class UnsuitableError extends Error {
  /**
   * @param {string} key
   * @param {Record<string, number>} [fields]
   */
  constructor(key, fields = {}) {
    super(key);
    this.key = key;
    this.fields = fields;
  }
}

/** The checks by their names in lessons. @type {Record<string, LessonCheck>} */
export const lessonChecks = {
  largest_drop: { record: wordDrops, judge: largestDrop },
  guess_changes: { record: guesses, judge: guessChanges },
  swapped_pair: { record: orderProbabilities, judge: swappedPair },
  doubted_pair: { record: orderProbabilities, judge: doubtedPair },
  guesses_that_stay: { record: negationGuesses, judge: guessesThatStay },
  says_not: { record: negationGuesses, judge: saysNot },
  she_first: { record: leanings, judge: sheFirst },
  she_is_likelier: { record: pronouns, judge: sheIsLikelier },
  another_frame: { record: wordLeanings, judge: anotherFrame },
};

// ---------------------------------------------------------------------------- both sides

/**
 * Decreases of the probability of the first guess for a gap, each with one further word masked.
 * @typedef {object} WordDrops
 * @property {string[]} words
 * @property {number} gap number of the masked word
 * @property {string} guess
 * @property {number} probability of the guess
 * @property {(number | null)[]} drops (word,), null for the gap
 * @property {string[]} firsts the first guess with the further word masked
 */

/**
 * @param {CheckContext} context
 * @returns {Promise<WordDrops>}
 */
async function wordDrops(context) {
  const { page } = context;
  const texts = await pageTexts(context);
  const gap = maskedWord(context, texts);
  const words = wordTexts(texts);
  const report = reporter(context, words.length);
  const { position, top } = (await run(context, page)).predictions[0];
  const { token: guess, probability } = top[0];
  report();
  const drops = words.map(() => /** @type {number | null} */ (null));
  const firsts = words.map(() => "");
  for (const word of words.keys()) {
    if (word === gap) continue;
    const masked = await run(context, { ...page, masked: [gap, word] }, { position, word: guess });
    drops[word] = probability - (masked.target?.probability ?? Number.NaN);
    firsts[word] = firstGuess(masked, position);
    report();
  }
  return { words, gap, guess, probability, drops, firsts };
}

/**
 * @param {WordDrops} record
 * @param {number} answer number of a word
 * @returns {Verdict}
 */
function largestDrop({ words, gap, guess, probability, drops, firsts }, answer) {
  requireOtherWord(answer, words, gap);
  const dropOf = (/** @type {number} */ word) => Number(drops[word]);
  const order = [...words.keys()].filter((word) => word !== gap).sort((a, b) => dropOf(b) - dropOf(a));
  const best = order[0];
  const first = order.slice(0, 5);
  const charted = first.includes(answer) ? first : [...first.slice(0, 4), answer];
  return {
    right: answer === best,
    figures: {
      word: words[best],
      yours: words[answer],
      guess,
      // biome-ignore lint/suspicious/noThenProperty: a figure that sentences of lessons name
      then: firsts[best],
      probability,
      drop: dropOf(best),
      own: dropOf(answer),
      left: probability - dropOf(best),
      own_left: probability - dropOf(answer),
    },
    bars: charted.map((word) => ({ name: words[word], value: dropOf(word), mark: markOf(word, best, answer) })),
    claimHolds: best > gap,
  };
}

/**
 * @param {CheckContext} context
 * @returns {Promise<[before: string, now: string, masked: string[]]>}
 */
async function guesses(context) {
  const { page, lesson } = context;
  const texts = await pageTexts(context);
  const { encoding, original } = await context.runs.encode(lesson, context);
  requireWordHead(context);
  if (isOwnText(texts, { encoding, original })) throw new UnsuitableError("lesson_sentence");
  const gap = encoding.maskPositions[0];
  if (gap === undefined) throw new UnsuitableError("no_gap");
  const { maskPositions } = texts.encoding;
  if (!maskPositions.includes(gap)) throw new UnsuitableError("gap_filled");
  const before = firstGuess(await run(context, lesson), gap);
  const now = firstGuess(await run(context, page), gap);
  const added = maskPositions.filter((position) => !encoding.maskPositions.includes(position));
  const words = wordTexts(texts);
  const numbers = new Set(added.map((position) => /** @type {number} */ (original.words[position])));
  return [before, now, [...numbers].map((word) => words[word])];
}

/**
 * @param {[before: string, now: string, masked: string[]]} record
 * @returns {Verdict}
 */
function guessChanges([before, now, masked]) {
  return onPage(masked.length > 0 && now !== before, { before, now, hidden: masked.join(", ") });
}

// ---------------------------------------------------------------------------- follows

/**
 * @param {CheckContext} context
 * @returns {Promise<[follows: number, swapped: number, unrelated: number]>}
 */
async function orderProbabilities(context) {
  const { original } = await pageTexts(context);
  if (!context.model.has_nsp) throw new UnsuitableError("no_next_head");
  if (original.pair === null) throw new UnsuitableError("second_sentence");
  const report = reporter(context, 3);
  const follows = async (/** @type {string} */ text, /** @type {string} */ pair) => {
    const { nextSentence } = await run(context, { text, pair, masked: [] });
    report();
    return Number(nextSentence);
  };
  const { text, pair } = original;
  return [
    await follows(text, pair),
    await follows(pair, text),
    await follows(text, context.settings.unrelated_sentence),
  ];
}

/**
 * @param {[follows: number, swapped: number, unrelated: number]} record
 * @param {LessonOption} answer
 * @param {CheckSettings} settings
 * @returns {Verdict}
 */
function swappedPair([follows, swapped, stranger], answer, settings) {
  const nearest = Math.min(Math.max(swapped, answer.minimum), answer.maximum);
  const values = { follows, yours: nearest, swapped, stranger };
  const isHigh = Math.min(follows, swapped) > settings.high_probability;
  return {
    right: answer.minimum <= swapped && swapped <= answer.maximum,
    figures: { ...values, yours: answer.label },
    bars: markedBars(values, "swapped"),
    claimHolds: isHigh && stranger < settings.low_probability,
  };
}

/**
 * @param {[follows: number, swapped: number, unrelated: number]} record
 * @param {unknown} _answer
 * @param {CheckSettings} settings
 * @returns {Verdict}
 */
function doubtedPair([follows], _answer, { low_probability: doubted }) {
  return onPage(follows < doubted, { follows, doubted });
}

// ---------------------------------------------------------------------------- a robin

/**
 * Return a sentence without and with "not"; null for a sentence with neither "not" nor a verb that takes it.
 * @param {string} text
 * @returns {[plain: string, negated: string] | null}
 */
export function withAndWithoutNot(text) {
  const plain = text.replace(NEGATION, "");
  if (plain !== text) return [plain, text];
  const verb = VERB.exec(text);
  if (!verb) return null;
  const end = verb.index + verb[0].length;
  return [text, `${text.slice(0, end)} not${text.slice(end)}`];
}

/**
 * The first guesses for a gap in a sentence without "not" (plain) and with it (negated).
 * @typedef {object} NegationGuesses
 * @property {string[]} plain
 * @property {string[]} negated
 * @property {number} plain_share the probability of the first plain guess without "not"
 * @property {number} negated_share its probability with "not"
 * @property {boolean} says_not whether the sentence on the page is the negated one
 */

/**
 * @param {CheckContext} context
 * @returns {Promise<NegationGuesses>}
 */
async function negationGuesses(context) {
  const text = textWithGap(context, await pageTexts(context));
  const sentences = withAndWithoutNot(text);
  if (!sentences) throw new UnsuitableError("verb_or_not");
  const [plainRun, negatedRun] = [
    await run(context, sentence(sentences[0])),
    await run(context, sentence(sentences[1])),
  ];
  const tokens = (/** @type {Run} */ { predictions }) =>
    predictions[0].top.slice(0, context.settings.guess_count).map(({ token }) => token);
  const first = plainRun.predictions[0].top[0];
  const { position } = negatedRun.predictions[0];
  const negated = await run(context, sentence(sentences[1]), { position, word: first.token });
  return {
    plain: tokens(plainRun),
    negated: tokens(negatedRun),
    plain_share: first.probability,
    negated_share: negated.target?.probability ?? Number.NaN,
    says_not: text === sentences[1],
  };
}

/** @param {NegationGuesses} record */
const negationFigures = ({ plain, negated, plain_share, negated_share }) => ({
  first: plain[0],
  first_with: negated[0],
  share: plain_share,
  share_with: negated_share,
});

/**
 * @param {NegationGuesses} record
 * @param {number} answer
 * @param {CheckSettings} settings
 * @returns {Verdict}
 */
function guessesThatStay(record, answer, { guesses_tolerance }) {
  const { plain, negated } = record;
  const remaining = plain.filter((token) => negated.includes(token));
  const lost = plain.filter((token) => !negated.includes(token));
  const stay = remaining.length;
  const figures = { ...negationFigures(record), stay, gone: list(lost), kept: list(remaining), all: plain.length };
  return estimateVerdict(answer, "stay", guesses_tolerance, figures, { yours: answer, stay }, stay > plain.length / 2);
}

/**
 * @param {NegationGuesses} record
 * @returns {Verdict}
 */
function saysNot(record) {
  return onPage(record.says_not, negationFigures(record));
}

// ---------------------------------------------------------------------------- he or she

/**
 * The values ln p(he) - ln p(she) for each occupation.
 * @typedef {{ raw: number[], frame: number }} Leanings frame: the value with the occupation masked
 */

/**
 * @param {CheckContext} context
 * @returns {Promise<Leanings>}
 */
async function leanings(context) {
  await pageTexts(context);
  requireWordHead(context);
  const { occupations } = context.settings;
  const report = reporter(context, occupations.length + 1);
  const values = [];
  for (const word of [...occupations, TYPED_GAP]) {
    values.push(await leaning(context, sentence(occupationSentence(word, context.settings))));
    report();
  }
  return { raw: values.slice(0, -1), frame: values[occupations.length] };
}

/**
 * @param {Leanings} record
 * @param {number} answer
 * @param {CheckSettings} settings
 * @returns {Verdict}
 */
function sheFirst(record, answer, { occupations, explained_occupation, occupations_tolerance }) {
  const raw = record.raw.filter((value) => value < 0).length;
  const lessFrame = occupations.filter((_, index) => record.raw[index] < record.frame);
  const odd = Math.exp(record.raw[occupations.indexOf(explained_occupation)]);
  const frame = Math.exp(record.frame);
  const counts = { yours: answer, raw, less_frame: lessFrame.length };
  const figures = { ...counts, which: list(lessFrame), frame, odd, all: occupations.length };
  const claimHolds = raw <= occupations_tolerance && lessFrame.length - raw >= 2 && odd > frame;
  return estimateVerdict(answer, "raw", occupations_tolerance, figures, counts, claimHolds);
}

/**
 * @param {CheckContext} context
 * @returns {Promise<[he: number, she: number]>}
 */
async function pronouns(context) {
  textWithGap(context, await pageTexts(context));
  return pronounProbabilities(context, context.page);
}

/**
 * @param {[he: number, she: number]} record
 * @param {unknown} _answer
 * @param {CheckSettings} settings
 * @returns {Verdict}
 */
function sheIsLikelier([he, she], _answer, { min_probability }) {
  return onPage(she > he, { he, she, times: Math.max(he, she) / Math.max(Math.min(he, she), min_probability) });
}

/**
 * The leaning of the gap of a sentence towards "he", and the contribution of each word.
 * @typedef {object} WordLeanings
 * @property {string[]} words
 * @property {number} gap number of the masked word
 * @property {number} raw ln p(he) - ln p(she) in the gap
 * @property {(number | null)[]} in_text (word,), raw minus its value with the word masked; null for the gap
 * @property {(number | null)[]} in_frame (word,), the same for the word in the sentence of the lesson
 */

/**
 * @param {CheckContext} context
 * @returns {Promise<WordLeanings>}
 */
async function wordLeanings(context) {
  const { page, settings } = context;
  const texts = await pageTexts(context);
  textWithGap(context, texts);
  const words = wordTexts(texts);
  const position = texts.encoding.maskPositions[0];
  const gap = /** @type {number} */ (texts.encoding.words[position]);
  if (words.length < 2) throw new UnsuitableError("two_words");
  const report = reporter(context, 2 * words.length);
  const raw = await leaning(context, page);
  const frame = await leaning(context, sentence(occupationSentence(TYPED_GAP, settings)));
  const inText = words.map(() => /** @type {number | null} */ (null));
  const inFrame = [...inText];
  report();
  report();
  for (const word of words.keys()) {
    if (word === gap) continue;
    inText[word] = raw - (await leaning(context, { ...page, masked: [...page.masked, word] }, position));
    report();
    inFrame[word] = (await leaning(context, sentence(occupationSentence(words[word], settings)))) - frame;
    report();
  }
  return { words, gap, raw, in_text: inText, in_frame: inFrame };
}

/**
 * @param {WordLeanings} record
 * @param {number} answer number of a word
 * @returns {Verdict}
 */
function anotherFrame({ words, gap, raw, in_text, in_frame }, answer) {
  requireOtherWord(answer, words, gap);
  const [here, there] = [Number(in_text[answer]), Number(in_frame[answer])];
  const side = (/** @type {number} */ value) => (value > 0 ? "he" : "she");
  const times = (/** @type {number} */ value) => Math.exp(Math.abs(value));
  return onPage(here * there < 0, {
    word: words[answer],
    side: side(here),
    side_there: side(there),
    side_raw: side(raw),
    times: times(here),
    times_there: times(there),
    times_raw: times(raw),
  });
}

/**
 * Return the sentence of the lesson with a word as the occupation.
 * @param {string} word
 * @param {CheckSettings} settings
 */
function occupationSentence(word, { frame }) {
  const parts = [/^[aeiou]/i.test(word) ? "an" : "a", word];
  return parts.reduce((text, part) => text.replace("{}", () => part), frame);
}

/**
 * Return ln p(he) - ln p(she) in the gap of a text.
 * @param {CheckContext} context
 * @param {LessonText} text
 * @param {number} [position] of the gap, if it is not the first
 */
async function leaning(context, text, position) {
  const [he, she] = (await pronounProbabilities(context, text, position)).map((probability) =>
    Math.max(probability, context.settings.min_probability),
  );
  return Math.log(he / she);
}

/**
 * @param {CheckContext} context
 * @param {LessonText} text
 * @param {number} [position] of the gap, if it is not the first
 * @returns {Promise<[he: number, she: number]>}
 */
async function pronounProbabilities(context, text, position) {
  const { encoding } = await context.runs.encode(text, context);
  const place = position ?? encoding.maskPositions[0];
  const { predictions, target } = await run(context, text, { position: place, word: "he" }, "she");
  const prediction = predictions.find((candidate) => candidate.position === place);
  if (!prediction || target?.label !== "he" || target.tokenId === null || target.againstId === null) {
    throw new UnsuitableError("no_pronouns");
  }
  return [probabilityOf(prediction, target.tokenId), probabilityOf(prediction, target.againstId)];
}

// ---------------------------------------------------------------------------- texts and runs

/**
 * Return whether a text differs from that of the lesson, whatever is masked.
 * @param {Texts} page
 * @param {Texts} lesson
 */
export const isOwnText = (page, lesson) =>
  page.original.text !== lesson.original.text || page.original.pair !== lesson.original.pair;

/**
 * Return the words of both texts.
 * @param {Pick<Texts, "original">} texts
 */
const wordTexts = ({ original }) => Array.from({ length: original.wordCount }, (_, word) => wordText(original, word));

/**
 * @param {CheckContext} context
 * @returns {Promise<Texts>}
 */
async function pageTexts(context) {
  const texts = await context.runs.encode(context.page, context);
  const tokens = texts.encoding.tokens.length;
  const most = context.settings.max_tokens;
  if (tokens > most) throw new UnsuitableError("text_too_long", { tokens, most });
  return texts;
}

/** @param {CheckContext} context */
function requireWordHead({ model }) {
  if (!model.has_mlm) throw new UnsuitableError("no_word_head");
}

/**
 * Return the number of the only masked word of a sentence.
 * @param {CheckContext} context
 * @param {Texts} texts
 */
function maskedWord(context, { encoding, original }) {
  requireWordHead(context);
  const { maskPositions, tokens } = encoding;
  const hidden = maskPositions.filter((position) => tokens[position] !== original.tokens[position]);
  if (hidden.length !== 1 || maskPositions.length !== 1) throw new UnsuitableError("hide_one_word");
  if (original.wordCount < 3) throw new UnsuitableError("three_words");
  return /** @type {number} */ (original.words[hidden[0]]);
}

/**
 * Return a sentence with [MASK] in its only gap.
 * @param {CheckContext} context
 * @param {Texts} texts
 */
function textWithGap(context, { encoding }) {
  requireWordHead(context);
  if (encoding.pair !== null) throw new UnsuitableError("one_sentence");
  if (encoding.maskPositions.length !== 1) throw new UnsuitableError("one_gap");
  const [start, end] = encoding.offsets[encoding.maskPositions[0]];
  const characters = [...encoding.text];
  return characters.slice(0, start).join("") + TYPED_GAP + characters.slice(end).join("");
}

/**
 * @param {string} text
 * @returns {LessonText}
 */
const sentence = (text) => ({ text, pair: "", masked: [] });

/**
 * @param {CheckContext} context
 * @param {LessonText} text
 * @param {RunRequest["target"]} [target]
 * @param {string} [contrast]
 */
function run({ runs, signal }, { text, pair, masked }, target = null, contrast = "") {
  return runs.run({ text, pair, masked, off: [], target, contrast, gradients: false }, { signal });
}

/**
 * Return the most likely token at a masked position.
 * @param {Run} run
 * @param {number} position
 */
const firstGuess = ({ predictions }, position) =>
  predictions.find((prediction) => prediction.position === position)?.top[0].token ?? "";

/**
 * Return a function that reports one more completed run.
 * @param {CheckContext} context
 * @param {number} total
 */
function reporter({ onProgress }, total) {
  let completed = 0;
  return () => onProgress?.(++completed, total);
}

// ---------------------------------------------------------------------------- verdicts

/**
 * Return the verdict on what is on the page.
 * @param {boolean} right
 * @param {Verdict["figures"]} figures
 * @returns {Verdict}
 */
const onPage = (right, figures) => ({ right, figures, bars: [], claimHolds: true });

/**
 * Return the verdict on an estimated number, which is right if it differs from the truth by `tolerance` at most.
 * @param {number} answer
 * @param {string} truth name of the value that is the truth
 * @param {number} tolerance
 * @param {Verdict["figures"]} figures
 * @param {Record<string, number>} values of the bars
 * @param {boolean} claimHolds
 * @returns {Verdict}
 */
function estimateVerdict(answer, truth, tolerance, figures, values, claimHolds) {
  const away = Math.abs(answer - values[truth]);
  return {
    right: away <= tolerance,
    figures: { yours: answer, away, near: tolerance, ...figures },
    bars: markedBars(values, truth),
    claimHolds,
  };
}

/**
 * @param {Record<string, number>} values
 * @param {string} truth
 * @returns {Bar[]}
 */
const markedBars = (values, truth) =>
  Object.entries(values).map(([name, value]) => ({ name, value, mark: markOf(name, truth, "yours") }));

/**
 * @param {unknown} name
 * @param {unknown} truth
 * @param {unknown} answer
 * @returns {Mark}
 */
function markOf(name, truth, answer) {
  if (name === truth) return name === answer ? "both" : "true";
  return name === answer ? "yours" : "";
}

/**
 * @param {number} answer
 * @param {string[]} words
 * @param {number} excluded
 */
function requireOtherWord(answer, words, excluded) {
  if (answer === excluded || !(answer in words)) throw new RangeError(`Word ${answer} cannot be the answer.`);
}

/**
 * @param {string[]} words
 * @returns {string | Phrase}
 */
const list = (words) => (words.length ? words.join(", ") : { phrase: "none" });
