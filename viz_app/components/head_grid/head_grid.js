// The grid of heads.

import { logged } from "../clicks.js";
import { gradient, isDark, luminance, shades } from "../colour.js";
import { element, part, reachable, shortened, struck } from "../elements.js";
import { hatch } from "../hatching.js";
import { unpack } from "../message.js";
import { tellOpened } from "../opened.js";
import { LONGEST_TIP, showTip } from "../tip.js";

/** @import { Rgb } from "../colour.js" */
/** @import { Click, GridHeader, Handed, Range } from "../messages.d.ts" */

/**
 * What is kept on the grid's element from one message to the next.
 * @typedef {HTMLElement & {
 *   paint?: () => void,
 *   observer?: ResizeObserver,
 *   painted?: { now: string, pixels: Uint8Array },
 *   clicks?: Click[],
 * }} Grid
 */
/** @typedef {[rows: number, columns: number]} Size */

const GAP = 8; // pixels between a cell and its tooltip
// The luminance from which black has more contrast than white.
const BLACK_READS_BETTER = 0.179;

/** @param {Handed<Uint8Array>} handed */
export default function headGrid({ data, parentElement, setTriggerValue }) {
  const frame = part(parentElement, ".frame");
  const grid = /** @type {Grid} */ (part(parentElement, ".grid"));
  const tip = part(parentElement, ".tip");
  const { header, tail: pixels } = /** @type {{ header: GridHeader, tail: Uint8Array }} */ (unpack(data));
  const colours = shades(header.colours[isDark(frame) ? 1 : 0]);
  frame.classList.toggle("lecture", header.lecture);
  frame.classList.toggle("fills", header.fills);
  tip.classList.toggle("lecture", header.lecture);

  // The cells stay as long as the grid has the same form, so that the focus stays too.
  const form = [header.layers, header.heads, header.mode, header.size === null, header.order, header.rows].join();
  if (grid.dataset.form !== form) {
    grid.dataset.form = form;
    grid.style.setProperty("--heads", String(header.heads));
    frame.style.setProperty("--layers", String(header.layers));
    grid.classList.toggle("pictures", header.size !== null);
    grid.replaceChildren(...build(header));
    tip.hidePopover();
  }
  /** @type {At} */
  const at = (layer, head) => grid.querySelector(`[data-layer="${layer}"][data-head="${head}"]`);
  const paintNow = () => paint(grid, header, pixels, colours);
  grid.paint = paintNow;
  paintNow();
  if (!grid.observer) {
    grid.observer = new ResizeObserver(() => grid.paint?.());
    grid.observer.observe(grid);
  }
  legend(part(parentElement, ".legend"), header, colours);
  if (!grid.querySelector('[tabindex="0"]')) {
    const [layer, head] = header.selected ?? [0, 0];
    const wanted = at(layer, head);
    const first = wanted && !wanted.disabled ? wanted : (grid.querySelector("button:not(:disabled)") ?? wanted);
    /** @type {HTMLElement} */ (first).tabIndex = 0;
  }

  // Assigned, not added: this function runs again with every change of data, on the same elements.
  grid.onclick = (event) => {
    const button = struck(event).closest("button");
    if (!button || button.disabled) return;
    reachable(grid, button);
    const place = [button.dataset.layer, button.dataset.head].map((n) => (n === "" ? null : Number(n)));
    const clicks = logged(grid, place);
    if (header.mode === "select") {
      mark(grid, button);
      tellOpened({ layer: Number(place[0]), head: Number(place[1]), stamp: clicks[clicks.length - 1][0] });
    }
    setTriggerValue("click", clicks);
  };
  grid.onkeydown = (event) => {
    if (event.key === "Escape") tip.hidePopover();
    // A key held down is one click, not many.
    if (event.repeat && (event.key === "Enter" || event.key === " ")) event.preventDefault();
    const next = neighbour(header, struck(event).dataset, event.key, at);
    if (!next) return;
    event.preventDefault();
    reachable(grid, next);
    next.focus();
    showTip(tip, next, tipText(header, next), GAP);
  };
  grid.onpointerover = (event) => {
    const button = struck(event).closest("button");
    if (button) showTip(tip, button, tipText(header, button), GAP);
    else tip.hidePopover();
  };
  grid.onpointerleave = () => tip.hidePopover();
}

/**
 * @param {GridHeader} header
 */
function build({ layers, heads, mode, size, order, rows: placed }) {
  const corner = element("div");
  corner.setAttribute("role", "columnheader");
  const top = row([corner]);
  for (let head = 0; head < heads; head++) {
    top.append(label("columnheader", mode, "", head, order ? ordinal(head, heads) : `H${head}`));
  }
  const rows = [top];
  for (let place = 0; place < layers; place++) {
    const layer = placed ? placed[place] : place;
    const cells = [label("rowheader", mode, layer, "", `L${layer}`)];
    for (let place = 0; place < heads; place++) {
      const head = order ? order[layer][place] : place;
      const button = element("button", "cell");
      button.type = "button";
      button.tabIndex = -1;
      button.dataset.layer = String(layer);
      button.dataset.head = String(head);
      if (size) {
        button.classList.add("picture");
        const picture = element("img");
        picture.alt = "";
        picture.draggable = false;
        button.append(picture);
      } else {
        button.append(element("span", "number"));
      }
      cells.push(wrapped("gridcell", button));
    }
    rows.push(row(cells));
  }
  return rows;
}

/**
 * In an order of their own the heads of a layer are not those of the next: a column has no name.
 * @param {number} place
 * @param {number} heads
 */
function ordinal(place, heads) {
  if (place === 0 && heads > 1) return "most";
  if (place === heads - 1) return heads > 1 ? "least" : "most";
  return "";
}

/**
 * @param {string} role
 * @param {GridHeader["mode"]} mode
 * @param {number | ""} layer
 * @param {number | ""} head
 * @param {string} text
 */
function label(role, mode, layer, head, text) {
  // The letter goes first where there is no room.
  const parts = text.startsWith("H") ? [element("span", "letter", "H"), text.slice(1)] : [text];
  if (mode !== "switch") {
    const made = element("span", "label");
    made.append(...parts);
    return wrapped(role, made);
  }
  const button = element("button", "label");
  button.append(...parts);
  button.type = "button";
  button.tabIndex = -1;
  button.dataset.layer = String(layer);
  button.dataset.head = String(head);
  const label = head === "" ? `L${layer}: switch layer ${layer}` : `H${head}: switch head ${head} in every layer`;
  button.setAttribute("aria-label", label);
  return wrapped(role, button);
}

/** @param {HTMLElement[]} cells */
function row(cells) {
  const made = element("div", "row");
  made.setAttribute("role", "row");
  made.append(...cells);
  return made;
}

/**
 * @param {string} role
 * @param {HTMLElement} child
 */
function wrapped(role, child) {
  const made = element("div");
  made.setAttribute("role", role);
  made.append(child);
  return made;
}

/**
 * @param {Grid} grid
 * @param {GridHeader} header
 * @param {Uint8Array} pixels
 * @param {Rgb[]} colours
 */
function paint(grid, header, pixels, colours) {
  // Most runs change only what is chosen: the pictures are painted when they, or the page, have changed.
  const before = grid.painted;
  const room = header.size && roomOf(grid, header.size);
  const now = [colours[255], room, grid.dataset.form, JSON.stringify(header.hatching)].join();
  const same =
    before?.now === now &&
    before.pixels.length === pixels.length &&
    before.pixels.every((code, i) => code === pixels[i]);
  if (!same) grid.painted = { now, pixels: pixels.slice() };
  const off = new Set(header.off.map(String));
  const chosen = String(header.selected);
  const gone = new Set(header.gone.map(String));
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (grid.querySelectorAll("button.cell"))) {
    const layer = Number(button.dataset.layer);
    const head = Number(button.dataset.head);
    const isOff = off.has(`${layer},${head}`);
    const isChosen = chosen === `${layer},${head}`;
    button.classList.toggle("off", isOff);
    button.classList.toggle("selected", isChosen);
    button.setAttribute("aria-pressed", String(header.mode === "switch" ? !isOff : isChosen));
    const share = header.shares?.[layer][head];
    const number = header.numbers?.[layer][head];
    button.disabled = share === null || gone.has(`${layer},${head}`);
    const ranges = header.hatching?.layers[layer];
    const isOutside = Boolean(ranges && !header.size);
    button.classList.toggle("outside", isOutside && !button.disabled);
    const said = [`L${layer} H${head}`];
    if (button.disabled) said.push("pruned");
    else if (isOutside) said.push(header.hatching?.outside ?? "");
    // The name contains what is written in the cell (WCAG 2.5.3), and the value with more digits.
    else if (number) said.push(...new Set([header.digits?.[layer][head] || number, number]));
    if (isOff) said.push("off");
    button.setAttribute("aria-label", said.join(", "));
    if (header.size && room) {
      const picture = /** @type {HTMLImageElement} */ (part(button, "img"));
      picture.hidden = button.disabled;
      if (same) continue;
      const [rows, columns] = header.size;
      const start = (layer * header.heads + head) * rows * columns;
      const codes = pixels.subarray(start, start + rows * columns);
      const canvas = drawn(fitted(codes, header.size, room, header.zero), room, colours);
      picture.src = (ranges ? hatched(grid, canvas, ranges, columns) : canvas).toDataURL();
    } else {
      part(button, ".number").textContent = (!isOutside && header.digits?.[layer][head]) || "";
      const colour = share == null || isOutside ? null : colours[Math.round(share * 255)];
      button.style.backgroundColor = colour ? `rgb(${colour.join(" ")})` : "";
      button.style.color = colour ? (luminance(colour) > BLACK_READS_BETTER ? "#000000" : "#ffffff") : "";
    }
  }
}

/**
 * The chosen head, until the server says so.
 * @param {Grid} grid
 * @param {HTMLButtonElement} chosen
 */
function mark(grid, chosen) {
  for (const button of grid.querySelectorAll("button.cell")) {
    button.classList.toggle("selected", button === chosen);
    button.setAttribute("aria-pressed", String(button === chosen));
  }
}

/**
 * Rows and columns of a picture: its own, or as many pixels as the screen has for it.
 * @param {Grid} grid
 * @param {Size} size
 */
function roomOf(grid, size) {
  const pixels = Math.round(part(grid, "button.cell").clientWidth * (window.devicePixelRatio || 1));
  return /** @type {Size} */ (size.map((length) => Math.min(length, pixels || length)));
}

/**
 * Of the values that share a pixel of the screen the strongest is shown, so that no line is lost.
 * @param {Uint8Array} codes
 * @param {Size} size
 * @param {Size} room
 * @param {number} zero the code of 0
 */
export function fitted(codes, [rows, columns], [height, width], zero) {
  if (height === rows && width === columns) return codes;
  const made = new Uint8Array(height * width).fill(zero);
  for (let i = 0; i < codes.length; i++) {
    const y = Math.floor((Math.floor(i / columns) * height) / rows);
    const at = y * width + Math.floor(((i % columns) * width) / columns);
    if (Math.abs(codes[i] - zero) > Math.abs(made[at] - zero)) made[at] = codes[i];
  }
  return made;
}

/**
 * A picture, one pixel a value, which becomes an address; the style sheet enlarges them with hard edges, sharp at every density of
 * the screen. No canvas stays on the page: browsers put each into a layer of its own, and all of them together anew
 * whenever anything on the page has changed.
 * @param {Uint8Array} values
 * @param {Size} size
 * @param {Rgb[]} colours
 */
function drawn(values, [rows, columns], colours) {
  const canvas = element("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
  const image = context.createImageData(columns, rows);
  for (let i = 0; i < values.length; i++) {
    const [r, g, b] = colours[values[i]];
    image.data[4 * i] = r;
    image.data[4 * i + 1] = g;
    image.data[4 * i + 2] = b;
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/**
 * A picture in the pixels of the screen, so that lines are thin over what is outside the window.
 * @param {Grid} grid
 * @param {HTMLCanvasElement} picture
 * @param {Range[]} ranges
 * @param {number} columns of the ranges
 */
function hatched(grid, picture, ranges, columns) {
  const density = window.devicePixelRatio || 1;
  const pixels = Math.max(Math.round(part(grid, "button.cell").clientWidth * density), picture.width);
  const canvas = element("canvas");
  canvas.width = canvas.height = pixels;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, 0, 0, pixels, pixels);
  const style = getComputedStyle(grid);
  const [ground, faint] = ["--st-background-color", "--st-gray-text-color"].map((name) => style.getPropertyValue(name));
  const cell = { x: 0, y: 0, width: pixels / columns, height: pixels / ranges.length };
  hatch(context, ranges, columns, cell, { x: 0, y: 0, width: pixels, height: pixels }, { ground, faint }, 5 * density);
  return canvas;
}

/**
 * @param {HTMLElement} node
 * @param {GridHeader} header
 * @param {Rgb[]} colours
 */
function legend(node, header, colours) {
  node.hidden = !header.legend;
  if (!header.legend) return;
  const [low, bar, high, unit, hatched] = /** @type {HTMLCollectionOf<HTMLElement>} */ (node.children);
  [low.textContent, high.textContent] = header.legend;
  unit.textContent = header.unit;
  hatched.hidden = !header.hatching;
  hatched.textContent = header.hatching?.label ?? "";
  bar.style.background = gradient(colours);
}

/**
 * The button of a head; "" stands for a whole layer or for that head in every layer.
 * @typedef {(layer: number | "", head: number | "") => HTMLButtonElement | null} At
 */

/**
 * The button that a key goes to; null for a key that goes nowhere.
 * @param {Pick<GridHeader, "mode" | "layers" | "heads" | "rows" | "order">} header
 * @param {DOMStringMap} from the data of a button
 * @param {string} key
 * @param {At} at
 */
export function neighbour(header, from, key, at) {
  const first = header.mode === "switch" ? -1 : 0;
  const number = (/** @type {string | undefined} */ text) => (text === "" ? -1 : Number(text));
  let layer = number(from.layer);
  if (header.rows) layer = header.rows.indexOf(layer);
  // Steps are from place to place; only without an order is the place of a layer or a head its number.
  const layerAt = (/** @type {number} */ place) => (header.rows && place >= 0 ? header.rows[place] : place);
  let head = number(from.head);
  if (header.order) head = header.order[layerAt(layer)].indexOf(head);
  const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  const edges = { Home: first, End: header.heads - 1 };
  const step = steps[/** @type {keyof typeof steps} */ (key)];
  const edge = edges[/** @type {keyof typeof edges} */ (key)];
  if (!step && edge === undefined) return null;
  for (;;) {
    if (step) [layer, head] = [layer + step[0], head + step[1]];
    else head = edge;
    if (layer < first || head < first || layer >= header.layers || head >= header.heads) return null;
    const row = layerAt(layer);
    const there = header.order ? header.order[row][head] : head;
    const found = at(row === -1 ? "" : row, there === -1 ? "" : there);
    // A pruned head cannot be focused: go on past it.
    if (found && !found.disabled) return found;
    if (!step) return null;
  }
}

/**
 * @param {GridHeader} header
 * @param {HTMLButtonElement} button
 */
function tipText(header, button) {
  const name = button.getAttribute("aria-label") ?? "";
  if (button.matches(".label")) return name;
  const { layer, head } = button.dataset;
  const title = button.matches(".outside") ? name : (header.titles[Number(layer)]?.[Number(head)] ?? name);
  return shortened(title, LONGEST_TIP);
}
