// What Python tells the browser's views, and what they say back. Types alone: nothing of this file reaches a browser.
// A message as bytes is four bytes with the length of its header, the header as JSON, then arrays (`message.js`).

/** A text that the browser stores under a name; null asks for the stored one. */
export interface StorageMessage {
  name: string;
  text: string | null;
  tab: boolean; // whether the tab keeps it, not the browser
}

/** What Streamlit hands to a view of ours; the page of an export does the same. */
export interface Handed<Data> {
  data: Data;
  parentElement: ShadowRoot;
  setTriggerValue(name: string, value: unknown): void;
  setStateValue(name: string, value: unknown): void;
}

/** For a light page and for a dark one. */
export type ByGround<T> = [light: T, dark: T];
/** Colours as #rrggbb, from the lowest value to the highest. */
export type Scale = string[];
/** A click and when it was, by a clock that only grows. */
export type Click = [stamp: number, what: unknown];

// ------------------------------------------------------------------------------------------------ attention_view

export type Side = "query" | "key";
export type Mode = "curves" | "matrix" | "neuron";
/** What stands in a column; its position is in the text as the model reads it. */
export type Token = [text: string, position: number, sentence: "A" | "B" | null];
export type Edge = [head: number, query: number, key: number, value: number];
/** A whole row (of a query) or a whole column (of a key) of a map. */
export type Line = [side: Side, index: number];

/** Of a row: the first column within the window of a local layer, and the column behind the last. */
export type Range = [first: number, end: number];

/** The area of a map outside the window, the text of its legend, and what is said there in place of a number. */
export interface Hatching {
  ranges: Range[]; // of each row
  label: string;
  outside: string;
}

/** How bytes stand for values: the code of a row's maximum, that of 0 among signed values, and that of no number. */
export interface Codes {
  highest: number;
  zero: number;
  none: number;
}

/** What is the same in every message. */
export interface ViewConstants {
  codes: Codes;
  longestAsk: number; // lines that may be asked for at once
  keeps: [least: number, most: number]; // what `kept` may be
  signColours: ByGround<Scale>;
  headColours: string[];
  tints: Record<"A" | "B", ByGround<Scale>>;
}

/** What is the same whichever layer and heads are chosen. */
export interface FixedHeader extends ViewConstants {
  layers: number;
  count: number; // of heads in a layer
  signed: boolean;
  unit: string;
  queries: Token[];
  keys: Token[];
  lecture: boolean;
  colours: ByGround<Scale>;
}

/** What a head makes its attention from, and whether it follows in this message. Products are divided by √(size·terms). */
export interface VectorsSaid {
  name: string;
  size: number;
  terms: number;
  distances: boolean;
  causal: boolean;
  window: number | null; // largest distance of a key, in a local layer
  rotated: boolean; // by positions: numbers i and i + size / 2 are a pair
  sent: boolean;
}

/** What is said of a layer's heads, by head. */
export interface LayerSaid {
  names: Record<number, string>;
  pruned: number[];
  off: number[];
  holes: number[];
  strongest: [query: number, key: number, value: number][][];
  hatching: Hatching | null;
}

/** The heads of all layers, and how many bytes at the end of the message hold their maps, deflated: those of `names`. */
export interface EverywhereSaid {
  name: string;
  layers: LayerSaid[];
  listed: number; // edges in the table
  bytes: number;
}

/**
 * Followed by, for each head of `sent`, the maxima of its rows (float32) and its codes, filled up to a multiple of
 * four; the vectors if they are sent (float32: queries, keys, distances); for each head of `drawn` its `lines`
 * (float32); the maps of `all`.
 */
export interface ViewHeader extends FixedHeader {
  fills?: boolean; // whether it is as high as its place
  compact?: boolean; // whether it has the curves alone
  packed?: boolean; // whether what follows is deflated
  layer: number;
  mode: Mode;
  names: Record<number, string>; // of maps, by head: equal content has one name
  sent: number[];
  lines: Line[];
  drawn: number[];
  combined: string | null; // what the one map is that stands for several heads
  vectors: VectorsSaid | null;
  query: number; // position of the token whose vectors are shown where none is selected
  heads: number[];
  selected: [side: Side, positions: number[]];
  kept: number;
  stamp: number; // of the last choice that is answered
  pruned: number[];
  off: number[];
  holes: Record<number, number>; // values that are no number, by head
  limit: number | null;
  notes: string[];
  strongest: Edge[];
  hatching?: Hatching | null; // of a local layer
  everywhere?: string | null; // the name of the heads of all layers, where the browser has them or gets them
  all?: EverywhereSaid | null; // once
}

export interface Choice {
  layer: number;
  heads: number[];
  side: Side;
  positions: number[];
  kept: number;
}

/** What the view says: a choice not answered yet, the names of what it has, and the lines that it wants exactly. */
export interface ViewSaid {
  stamp: number;
  turn: number;
  choice: Choice | null;
  have: string[];
  lines: Line[];
}

// ------------------------------------------------------------------------------------------------ head_grid

/** Followed by a byte a pixel: layer, head, row, column. */
export interface GridHeader {
  layers: number;
  heads: number;
  size: [rows: number, columns: number] | null; // of a thumbnail; null where cells hold numbers
  signed: boolean;
  zero: number; // the byte that stands for 0
  unit: string;
  mode: "select" | "switch";
  selected: [layer: number, head: number] | null;
  off: [layer: number, head: number][];
  gone: [layer: number, head: number][];
  titles: string[][];
  order: number[][] | null; // the heads of each layer from left to right
  rows: number[] | null; // the layers from top to bottom
  lecture: boolean;
  fills: boolean;
  colours: ByGround<Scale>;
  shares: (number | null)[][] | null;
  numbers: string[][] | null; // for screen readers
  digits: string[][] | null; // in the cells
  legend: [low: string, high: string] | null;
  hatching: GridHatching | null;
}

/** By layer the ranges of the rows of a thumbnail, empty where the cells of numbers are hatched; null for none. */
export interface GridHatching {
  layers: (Range[] | null)[];
  label: string;
  outside: string;
}

// ------------------------------------------------------------------------------------------------ the others

export type Chip = [
  text: string,
  title: string,
  word: number | null,
  side: "A" | "B" | null,
  special: boolean,
  masked: boolean,
  target: boolean,
  number: string,
  shades: ByGround<[ground: string, ink: string]> | null,
];

export interface StripMessage {
  chips: Chip[];
  tints: Record<"A" | "B", ByGround<Scale>>;
  lecture: boolean;
  disabled: boolean;
  label: string;
  appear: string;
  start: number;
}

export interface AddressMessage {
  steps: string[];
}

// ------------------------------------------------------------------------------------------------ a page with a model

/** The elements of a view, in the state before its first message. */
export interface ViewMarkup {
  markup: string;
  style: string;
}

/** What a script needs that makes the messages to the views itself (`look.py`). */
export interface Look {
  constants: ViewConstants;
  listed: number; // edges in the table
  combined: number; // stands for a head where several are one map
  sequential: ByGround<Scale>;
  diverging: ByGround<Scale>;
  thumbnails: ThumbnailConstants;
  minDigits: number; // largest value of a grid whose cells have numbers
  views: Record<"attention_view" | "head_grid" | "token_strip", ViewMarkup>;
}

/** Of small maps: most rows of a small and of a large one, the byte of 0 among signed values, and the colours. */
export interface ThumbnailConstants {
  small: number;
  large: number;
  middle: number;
  pale: number; // strength of the colours of special tokens
  shareBelow: number; // share of the values below the end of the colours
}

// ------------------------------------------------------------------------------------------------ an export's page

/** What is said of a map whichever heads are drawn. */
export interface PageLayer {
  pruned: number[];
  off: number[];
  holes: number[]; // values that are no number, by head
  strongest: [query: number, key: number, value: number][][]; // by head
  ranks: number[]; // of the two matrices that stand for a map, by head; 0 for none
  hatching: Hatching | null;
}

/** Several heads as one map. */
export interface PageOne {
  name: string;
  holes: number;
  strongest: [query: number, key: number, value: number][];
  hatching: Hatching | null;
}

/** A head that can be seen down to its vectors. */
export interface PageVectors {
  layer: number;
  head: number;
  size: number;
  distances: boolean;
  terms: number;
  causal: boolean;
  window: number | null;
  rotated: boolean;
}

/** What the page is made of, beside the grid's message and the maps. */
export interface PageHeader {
  texts: [label: string, parts: string[]][];
  says: string;
  choice: Choice;
  mode: Mode;
  notes: string[];
  name: string; // of the maps' content
  strongest: number; // how many edges are listed
  exact: boolean; // whether maps are float32
  limit: number | null;
  cap: number | null; // where the colours of a matrix end
  combined: number; // stands for a head where several are one map
  fixed: FixedHeader;
  layers: PageLayer[];
  one: PageOne | null;
  vectors: PageVectors[];
  changes: [names: string[], lines: [layer: number, head: number, cells: (string | number)[]][]] | null;
  sorts: Record<string, [heads: number[][], layers: number[] | null]>;
  picture: { size: [height: number, width: number]; grid: [down: number, across: number] } | null;
}
