// The types that the modules of the browser edition share. Types alone: nothing of this file reaches a browser.

import type { Look } from "../../components/messages.d.ts";
import type { Target as EngineTarget } from "../engine/targets.js";
import type { Encoding } from "../engine/tokenizer.js";

export type PageName = "start" | "predict" | "attention" | "heads" | "why" | "learn";
export type Head = [layer: number, head: number];
export type Language = "en" | "de";
export type Shown = "attention" | "gradient" | "product";
export type Method = "gradient x attention" | "input x gradient" | "integrated gradients" | "occlusion";

/** The explained prediction: a word at a position, or that the second sentence follows; null for the first guess. */
export type Target = { position: number; word: string } | "nsp" | null;

/** Everything that a visitor has chosen. All of it is in the address, under the names and in the notation of the app. */
export interface State {
  page: PageName;
  text: string;
  pair: string;
  masked: number[]; // numbers of words, as in the parameter `masked`
  target: Target;
  contrast: string; // a word, or empty
  off: Head[];
  head: Head | null; // null: the head that affects the target most
  edge: [query: number, key: number] | null; // of which heads are ranked
  tokens: [side: "query" | "key", positions: number[]];
  kept_share: number; // percent
  view: "heads" | "curves" | "matrix";
  show: Shown;
  method: Method;
  colour: "slope" | "removal"; // by which the heads of Head ablation are coloured
  lesson: string; // name of the open lesson, or empty
  step: "predict" | "do" | "reveal" | "yours" | "free";
  lang: Language;
  embed: boolean;
  lecture: boolean;
}

/** The most likely tokens at a position, the most likely first. */
export interface Prediction {
  position: number;
  top: { id: number; token: string; probability: number }[];
  logits: Float32Array | null; // of the whole vocabulary, in a live run
}

/** What a run is asked for. The target is null only if the text has no mask and there is no second sentence. */
export interface RunRequest {
  text: string;
  pair: string;
  masked: number[];
  off: Head[];
  target: Target;
  contrast: string;
  gradients: boolean;
}

/** The results of the model for a text: stored when the site was built, or computed in this browser. */
export interface Run {
  source: "stored" | "live";
  name: string; // another name for other numbers: views cache maps by name
  encoding: Encoding;
  original: Encoding; // the same text without the masks of the state
  layers: number;
  heads: number;
  attention: Float32Array; // (layer, head, query, key); NaN for pruned heads
  headMask: Float32Array; // (layer, head)
  predictions: Prediction[];
  nextSentence: number | null; // probability that the second sentence follows
  target: ResolvedTarget | null;
  attentionGradient: Float32Array | null; // as `attention`
  headMaskGradient: Float32Array | null; // (layer, head)
}

/** A target with the numbers of its tokens, its value and its probability. */
export interface ResolvedTarget {
  target: Exclude<Target, null>;
  position: number | null; // null for the next sentence
  tokenId: number | null;
  againstId: number | null; // of the contrast
  label: string;
  value: number; // log-probability, difference of logits, or difference of the next-sentence logits
  probability: number;
  terms: EngineTarget; // as the engine takes it
}

/** The effect of switching off each head alone. */
export interface Ablations {
  value: Float32Array; // (layer, head), the value of the target without the head
  probability: Float32Array; // (layer, head), its probability
  first: string[]; // (layer, head), the most likely token at the first mask
}

/** Scores of the tokens by a method. */
export interface Attribution {
  method: Method;
  scores: Float32Array; // (seq,)
  gap: number | null; // of integrated gradients: the sum of the scores minus the difference of the values
}

export interface RunOptions {
  signal?: AbortSignal;
  onProgress?: (done: number, total: number) => void;
}

/** The tokens of a text as the model reads it, and without the masks of the state. */
export interface Texts {
  encoding: Encoding;
  original: Encoding;
}

/** The source of all numbers: stored runs first, else the model in the browser, which is loaded when it is needed. */
export interface Runs {
  /** Whether the request is stored, so that it needs no model. */
  isStored(request: RunRequest): boolean;
  run(request: RunRequest, options?: RunOptions): Promise<Run>;
  /** The tokens of a text, with and without its masks; needs the tokenizer at most. */
  encode(request: Pick<RunRequest, "text" | "pair" | "masked">, options?: RunOptions): Promise<Texts>;
  ablations(request: RunRequest, options?: RunOptions): Promise<Ablations>;
  attribution(request: RunRequest, method: Method, options?: RunOptions): Promise<Attribution>;
}

/** The results of a text that are stored: with all heads on, and of the default target. */
export interface StoredResults {
  run: Run;
  ablations: Ablations | null; // null without a target
  attributions: Attribution[];
}

/** The stored runs of the site. A request is stored whatever its target. */
export interface StoredRuns {
  has(request: Pick<RunRequest, "text" | "pair" | "masked">): boolean;
  /** The results if they were read before. */
  peek(request: Pick<RunRequest, "text" | "pair" | "masked">): StoredResults | undefined;
  read(request: Pick<RunRequest, "text" | "pair" | "masked">): Promise<StoredResults>;
}

/** A sentence of Home, and what its button says. */
export interface Example {
  label: string;
  text: string;
  pair: string;
  masked: number[];
  other: string; // the word by which the button swaps one, or empty
}

/** The content of site.json, which the build writes. */
export interface SiteDescription {
  version: string;
  model: {
    name: string;
    vocabulary: number; // number of tokens
    layers: number;
    heads: number;
    max_tokens: number;
    has_mlm: boolean;
    has_nsp: boolean;
    pruned_heads: Record<string, number[]>;
    bytes: number; // of a first visit with the model
    max_seconds_hint?: number;
  };
  look: Look;
  texts: Record<Language, Record<string, Record<string, unknown>>>; // language -> page -> key -> text
  /** Words in lower case by their counterparts of another gender or number, with which Home swaps one. */
  swaps: Record<string, string>;
  examples: Example[];
  pair: string; // a second sentence that a button adds
  limits: {
    text: number; // most characters of a text
    link: number; // most characters of the texts in the address bar
    named_heads: number; // most heads that a sentence names
    unlikely: number; // probability below which a target is called unlikely
    probability: number; // smallest probability that is written as a number
  };
  /** The name of the first lesson, and its question; null if there are no lessons. */
  first_lesson: { name: string; questions: Record<Language, string> } | null;
  lessons: LessonDescription[]; // empty until lessons.json is read
  check_settings: CheckSettings;
  /** Key of a stored run (`storedKey` of stored_runs.js) -> its file. */
  stored: Record<string, string>;
}

/** A lesson in both languages, and the record of its question, if it is stored; see lesson_checks.js. */
export interface LessonDescription {
  name: string;
  texts: Record<Language, Lesson>;
  record: unknown;
}

/** A lesson in one language, as `Lesson` of viz_app/lessons/__init__.py. */
export interface Lesson {
  name: string;
  title: string;
  question: string;
  course: number;
  number: number;
  minutes: number;
  source: string;
  link: string;
  predict: LessonTask;
  exercise: LessonTask;
  reveal: LessonReveal;
  own_sentence: LessonTask;
  free: { label: string; view: LessonView }[];
}

/** The state of a page, as in an address; an empty address leaves it unchanged. */
export interface LessonView {
  page: PageName;
  address: Record<string, string>;
}

export interface LessonOption {
  minimum: number;
  maximum: number;
  label: string;
}

export interface LessonTask {
  view: LessonView;
  text: string;
  answer: "word" | "number" | "choice" | "order" | "page";
  check: string;
  right: string;
  wrong: string;
  hint: string;
  options: LessonOption[];
  minimum: number;
  maximum: number;
  unit: string;
  items: string[];
}

export interface LessonReveal {
  view: LessonView;
  right: string;
  wrong: string;
  claim_fails: string;
  title: string;
  bars: Record<string, string>;
  form: string;
}

/** What the checks in Python and in JavaScript both need. */
export interface CheckSettings {
  max_tokens: number;
  unrelated_sentence: string;
  high_probability: number;
  low_probability: number;
  guess_count: number;
  guesses_tolerance: number;
  occupations: string[];
  explained_occupation: string;
  occupations_tolerance: number;
  frame: string;
  min_probability: number;
}

/** Where a page draws. `lesson` is beside it. */
export interface Places {
  controls: HTMLElement;
  figure: HTMLElement;
  reading: HTMLElement;
  lesson: HTMLElement;
}

/** What a page gets to draw itself. */
export interface PageContext {
  state: Readonly<State>;
  site: SiteDescription;
  runs: Runs;
  /**
   * The text of a key of this page, or else of "site" or "frame", with {fields} replaced, without marks of bold parts.
   * "find:title" is the text `title` of the file "find".
   */
  text(key: string, fields?: Record<string, string | number>): string;
  /** Write such a text into an element, with its bold parts. The fields are plain text. */
  write(element: Element, key: string, fields?: Record<string, string | number>): void;
  /** Change the state: a new entry of the history, and all is drawn again. `replace`: without a new entry. */
  change(changes: Partial<State>, options?: { replace?: boolean }): void;
  /** A link to another state, as an href. */
  link(changes: Partial<State>): string;
  /** The request of the current state. */
  request(changes?: Partial<RunRequest>): RunRequest;
  /** Aborts when another state is drawn. */
  signal: AbortSignal;
  /** Give the focus to the field of the text. */
  editText(): void;
  /** Let screen readers read a result that is drawn after the figure. */
  announce(result: string): void;
  /** Show an error where the figure is, with a way out; stored runs remain usable. */
  fail(error: unknown): void;
}

/**
 * A page: it fills `figure` and `controls`, which are empty elements, and is called again after each change. What it
 * needs for longer (a view with its shadow root) it keeps in `memory`, which lives as long as the page is open.
 */
export interface Page {
  draw(context: PageContext, places: Places, memory: Record<string, unknown>): Promise<void>;
}
