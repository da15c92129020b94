// What the files of this view share: the view itself, and the maps that it draws. Types alone: nothing of this file
// reaches a browser.

import type { Rgb } from "../colour.js";
import type { Choice, Codes, Side, ViewHeader, ViewSaid } from "../messages.d.ts";

/** A map as it came: a byte a value, the maxima of its rows, and the lines of it that came exactly. */
export interface HeadMap {
  name: string;
  rows: number;
  columns: number;
  maxima: Float32Array;
  bytes: Uint8Array;
  codes: Codes;
  signed: boolean;
  exact: Map<string, Float32Array>; // by side and index
  weight: number; // bytes
  kept?: { share: number; list: Place[] } | null; // the edges that hold this share, while one scrolls
  cap?: number; // where its colours end
}

/** What a head makes its attention from, exactly: (query, size), (key, size), (query, key). */
export interface Vectors {
  queries: Float32Array;
  keys: Float32Array;
  distances: Float32Array | null;
  weight: number; // bytes
}

export type Place = [row: number, column: number, value: number];

/** Tokens of one column that are looked at or selected. */
export interface Active {
  side: Side;
  indices: number[];
}

/** What goes from or to the active tokens, for every token of the other column. */
export interface Sum {
  head: number;
  total: Float64Array;
  exact: boolean;
}

export interface Spot {
  side: Side;
  index: number;
}

/** The token that an event fell on. */
export interface Struck extends Spot {
  node: HTMLElement;
}

export interface Cell {
  row: number;
  column: number;
}

/** A query and the key that is looked at with it; null until the vectors are here. */
export interface Pair {
  query: number;
  key: number | null;
}

/** What one query gives: the score of every key and the softmax of all. */
export interface Reckoned {
  name: string;
  query: number;
  scores: Float64Array;
  shares: Float64Array;
  largestProduct: number;
}

/** Where a matrix stands on its canvas, in pixels of the page. */
export interface MatrixLayout {
  rows: number;
  columns: number;
  font: number;
  letters: number; // of a label
  margin: { left: number; bottom: number };
  width: number;
  height: number;
  area: { width: number; height: number };
  cell: number;
  fit: number; // a cell's size where the whole map is seen
  top: number;
}

export interface View {
  // Told from outside.
  say(said: ViewSaid): void;
  refresh(): void; // everything that follows from the choice and from what is looked at
  redraw(): void; // the picture alone, before the next frame
  header: ViewHeader; // from the first message on
  choice: Choice; // from the first message on
  chosenAt: number; // the stamp of the choice

  // What is looked at.
  focus: Spot | null; // a token, in the curves
  cell: Cell | null; // in the matrix
  asked: number | null; // a query, down to the vectors
  pointed: { key: number; dimension: number | null } | null;

  // The elements.
  root: HTMLElement;
  tip: HTMLElement;
  earlier: HTMLButtonElement;
  later: HTMLButtonElement;
  layerName: HTMLElement;
  heads: HTMLElement;
  keep: HTMLElement;
  keepName: HTMLElement;
  slider: HTMLInputElement;
  note: HTMLElement;
  body: HTMLElement;
  numbers: HTMLElement;
  table: HTMLElement; // the strongest edges, for those who do not see the picture
  curves: HTMLElement;
  stage: HTMLElement;
  columns: HTMLElement;
  canvas: HTMLCanvasElement;
  crown: HTMLCanvasElement; // above the stage, down to the vectors
  query: HTMLElement;
  key: HTMLElement;
  matrixBox: HTMLElement;
  matrix: HTMLCanvasElement;
  legend: HTMLElement[];
  hatched: HTMLElement; // the legend of what is outside the window
  reading: HTMLElement;

  // How it is drawn.
  dark: boolean;
  colours: Rgb[];
  signColours: Rgb[];
  row: number; // the height of a token, pixels
  window: { x: number; y: number; zoom: number } | null; // of the matrix, in cells; the whole has a zoom of 1
  layout?: MatrixLayout;
  painted?: { now: string; picture: OffscreenCanvas };
  reckoned?: Reckoned;
  listed?: ViewHeader; // whose edges the table holds

  // What waits.
  arriving?: Promise<void>;
  telling?: number;
  asking?: number;
  drawing: number;
}
