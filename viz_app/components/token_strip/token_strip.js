// The token strip.

import { logged } from "../clicks.js";
import { isDark } from "../colour.js";
import { childrenOf, element, part, reachableAt, shortened, struck } from "../elements.js";
import { LONGEST_TIP, showTip } from "../tip.js";

/** @import { Handed, StripMessage } from "../messages.d.ts" */

const LONG = 100; // tokens of a text that would fill four lines of a wide window
const GAP = 6; // pixels between a word and its tooltip

/** @param {Handed<StripMessage>} handed */
export default function tokenStrip({ data, parentElement, setTriggerValue }) {
  const strip = part(parentElement, ".strip");
  const tip = part(parentElement, ".tip");
  const dark = isDark(strip);
  strip.classList.toggle("lecture", data.lecture);
  strip.classList.toggle("on-dark", dark);
  strip.classList.toggle("long", data.chips.length > LONG);
  strip.classList.toggle(
    "numbered",
    data.chips.some(([, , , , , , , number]) => number),
  );
  tip.classList.toggle("lecture", data.lecture);
  strip.setAttribute("aria-label", data.label);
  for (const [side, scale] of Object.entries(data.tints)) {
    strip.style.setProperty(`--tint-${side.toLowerCase()}`, scale[Number(dark)][0]);
  }

  const focused = /** @type {HTMLElement | null} */ (parentElement.activeElement)?.dataset.word;
  const first = strip.childElementCount === 0 || Number(strip.dataset.start) !== data.start;
  strip.dataset.start = String(data.start);
  const scrolled = strip.scrollTop;
  strip.replaceChildren(...build(data, dark));
  strip.scrollTop = first ? placeOfInterest(strip) : scrolled;
  tip.hidePopover();
  if ((strip.dataset.appear ?? "") !== data.appear) {
    strip.dataset.appear = data.appear;
    if (data.appear) childrenOf(strip).forEach(appear);
  }

  const words = /** @type {HTMLElement[]} */ ([...strip.querySelectorAll("button:not(:disabled)")]);
  const kept = words.findIndex((word) => word.dataset.word === (focused ?? strip.dataset.current));
  reachableAt(words, Math.max(kept, 0), focused !== undefined);

  // Assigned, not added: this function runs again with every change of data, on the same elements.
  strip.onclick = (event) => {
    const word = /** @type {HTMLButtonElement | null} */ (struck(event).closest("button.word"));
    if (!word || word.disabled) return;
    reachableAt(words, words.indexOf(word), false);
    strip.dataset.current = word.dataset.word;
    setTriggerValue("click", logged(strip, Number(word.dataset.word)));
  };
  strip.onkeydown = (event) => {
    if (event.key === "Escape") tip.hidePopover();
    // A key held down is one click, not many.
    if (event.repeat && (event.key === "Enter" || event.key === " ")) event.preventDefault();
    const next = neighbour(words, words.indexOf(struck(event)), event.key);
    if (next === null) return;
    event.preventDefault();
    reachableAt(words, next, true);
    strip.dataset.current = words[next].dataset.word;
    showTip(tip, words[next], tipText(childrenOf(words[next])), GAP);
  };
  strip.onpointerover = (event) => {
    const piece = /** @type {HTMLElement | null} */ (struck(event).closest(".piece"));
    if (piece) showTip(tip, piece, tipText([piece]), GAP);
    else tip.hidePopover();
  };
  strip.onpointerleave = () => tip.hidePopover();
  strip.onscroll = () => tip.hidePopover();
}

/**
 * How far to scroll so that the target, or else the first hidden word, is seen when the strip is drawn first.
 * @param {HTMLElement} strip
 */
function placeOfInterest(strip) {
  const piece = strip.querySelector(".target") ?? strip.querySelector(".masked");
  if (!piece) return 0;
  const [line, box] = [piece.getBoundingClientRect(), strip.getBoundingClientRect()];
  return line.bottom > box.bottom ? line.top - box.top - line.height : 0;
}

/**
 * @param {HTMLElement} node
 * @param {number} number
 */
function appear(node, number) {
  node.classList.add("appear");
  node.style.animationDelay = `${number * 110}ms`;
}

/**
 * @param {StripMessage} message
 * @param {boolean} dark
 */
function build({ chips, disabled }, dark) {
  const pair = chips.some(([, , , side]) => side === "B");
  const parts = [];
  /** @type {HTMLButtonElement | null} */
  let word = null;
  /** @type {string | null} */
  let side = null;
  for (const [text, title, number, chipSide, special, masked, target, note, shades] of chips) {
    if (pair && !special && chipSide !== side) {
      side = chipSide;
      if (side) parts.push(element("span", "side", side));
    }
    const piece = element("span", "piece", text);
    piece.dir = "auto";
    piece.dataset.title = title;
    if (chipSide && !special) piece.classList.add(chipSide.toLowerCase());
    for (const [name, is] of Object.entries({ special, masked, target })) piece.classList.toggle(name, is);
    if (note) piece.append(" ", element("span", "number", note));
    if (shades) {
      const [ground, ink] = shades[Number(dark)];
      piece.style.background = ground;
      piece.style.color = ink;
    }
    if (special || number === null) {
      word = null;
      parts.push(piece);
      continue;
    }
    if (word?.dataset.word !== String(number)) {
      word = element("button", "word");
      word.type = "button";
      word.disabled = disabled;
      word.tabIndex = -1;
      word.dataset.word = String(number);
      parts.push(word);
    }
    word.append(piece);
  }
  for (const button of parts) {
    if (button.matches("button")) describe(button);
  }
  return parts;
}

/** @param {HTMLElement} word */
function describe(word) {
  const pieces = childrenOf(word);
  const has = (/** @type {string} */ name) => pieces.some((piece) => piece.classList.contains(name));
  const said = [pieces.map((piece) => piece.textContent).join(" ")];
  for (const side of ["a", "b"]) if (has(side)) said.push(`sentence ${side.toUpperCase()}`);
  if (has("target")) said.push("target");
  word.setAttribute("aria-label", said.join(", "));
  word.setAttribute("aria-pressed", String(has("masked")));
}

/**
 * The word that a key goes to; null for a key that goes nowhere.
 * @param {HTMLElement[]} words
 * @param {number} index
 * @param {string} key
 */
export function neighbour(words, index, key) {
  if (index < 0) return null;
  if (key === "ArrowRight") return Math.min(index + 1, words.length - 1);
  if (key === "ArrowLeft") return Math.max(index - 1, 0);
  if (key === "Home") return 0;
  if (key === "End") return words.length - 1;
  if (key !== "ArrowDown" && key !== "ArrowUp") return null;
  // The nearest word on the next line in that direction.
  const here = words[index].getBoundingClientRect();
  const sign = key === "ArrowDown" ? 1 : -1;
  let best = index;
  let shortest = Infinity;
  words.forEach((word, i) => {
    const box = word.getBoundingClientRect();
    const lines = sign * (box.top - here.top);
    const distance = lines * 1000 + Math.abs(box.left + box.width / 2 - here.left - here.width / 2);
    if (lines > here.height / 2 && distance < shortest) [best, shortest] = [i, distance];
  });
  return best;
}

/** @param {HTMLElement[]} pieces */
function tipText(pieces) {
  return pieces
    .map((piece) => {
      const cut = piece.scrollWidth > piece.clientWidth + 1;
      const whole = cut ? `${shortened(piece.textContent, LONGEST_TIP)}\n` : "";
      return whole + shortened(piece.dataset.title ?? "", LONGEST_TIP);
    })
    .join("\n");
}
