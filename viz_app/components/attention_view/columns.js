// The two columns of tokens, and what a hand does on them and on the heads above.

import { childrenOf, element, reachable, shortened, struck } from "../elements.js";
import { LONGEST_TIP, putTip } from "../tip.js";
import { choose, isolate, look, select, toggleHead } from "./choosing.js";
import { LONGEST_TOKEN } from "./digits.js";
import { peak } from "./maps.js";
import { colourOf, isNeuron, tokens } from "./shown.js";

/** @import { Side, Token } from "../messages.d.ts" */
/** @import { Struck, Sum, View } from "./view.d.ts" */

const STRONGEST_STRIPE = 0.55; // opacity, on which text has a contrast of 4.5 in every colour of a head

/**
 * @param {Side} side
 * @param {string} name
 */
export function column(side, name) {
  const made = element("div", `column ${side}`);
  made.setAttribute("role", "listbox");
  made.setAttribute("aria-multiselectable", "true");
  made.setAttribute("aria-label", name);
  made.dataset.side = side;
  return made;
}

/**
 * @param {Token} token
 * @param {number} index
 */
export function tokenElement([text, , sentence], index) {
  const made = element("div", "token", shortened(text, LONGEST_TOKEN));
  made.dir = "auto";
  made.dataset.index = String(index);
  made.setAttribute("role", "option");
  made.tabIndex = -1;
  made.classList.add(sentence ? sentence.toLowerCase() : "special");
  return made;
}

/** @param {View} view */
export function listenToHeads(view) {
  const { heads } = view;
  const buttonAt = (/** @type {Event} */ event) => {
    const button = struck(event).closest("button");
    return button?.disabled ? null : button;
  };
  heads.onclick = (event) => {
    const button = buttonAt(event);
    if (!button) return;
    reachable(heads, button);
    (event.shiftKey ? isolate : toggleHead)(view, Number(button.dataset.head));
  };
  heads.ondblclick = (event) => {
    const button = buttonAt(event);
    if (button) isolate(view, Number(button.dataset.head));
  };
  heads.onkeydown = (event) => {
    const all = /** @type {HTMLElement[]} */ ([...heads.querySelectorAll("button:not(:disabled)")]);
    const here = all.indexOf(struck(event));
    const steps = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: all.length - 1 };
    const next = all[steps[/** @type {keyof typeof steps} */ (event.key)]];
    if (!next) return;
    event.preventDefault();
    reachable(heads, next);
    next.focus();
  };
}

/** @param {View} view */
export function listenToTokens(view) {
  const { stage, tip } = view;
  const tokenAt = (/** @type {Event} */ event) => {
    const node = /** @type {HTMLElement | null} */ (struck(event).closest(".token"));
    return node && { side: sideOf(node), index: Number(node.dataset.index), node };
  };
  stage.onpointerover = (event) => {
    if (isNeuron(view) && event.target === view.canvas) return;
    const at = tokenAt(event);
    look(view, at);
    if (at && isCut(view, at)) showToken(view, at);
    else tip.hidePopover();
  };
  stage.onpointerleave = () => {
    tip.hidePopover();
    view.asked = null;
    look(view, null);
  };
  stage.onclick = (event) => {
    const at = tokenAt(event);
    if (!at) return choose(view, { positions: [] });
    reachable(view[at.side], at.node);
    select(view, at);
  };
  // These two have no property to assign to; the stage is made once.
  stage.addEventListener("focusin", (event) => {
    const at = tokenAt(event);
    if (at?.node.matches(":focus-visible")) look(view, at);
  });
  stage.addEventListener("focusout", () => look(view, null));
  stage.onkeydown = (event) => {
    const at = tokenAt(event);
    if (!at) return;
    if (event.key === "Escape") {
      tip.hidePopover();
      choose(view, { positions: [] });
    } else if (event.key === "Enter" || event.key === " ") {
      if (!event.repeat) select(view, at);
    } else {
      const next = neighbour(view, at, event.key);
      if (!next) return;
      reachable(view[sideOf(next)], next);
      next.focus();
    }
    event.preventDefault();
  };
  stage.onscroll = () => view.redraw();
  // Over the curves the wheel scrolls the page, as everywhere; over the tokens it goes through a long text.
  stage.addEventListener(
    "wheel",
    (event) => {
      if (event.target !== view.canvas || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const step = [1, view.row, window.innerHeight][event.deltaMode];
      scrollerAround(view.root)?.scrollBy(0, event.deltaY * step);
    },
    { passive: false },
  );
}

/** @param {HTMLElement} token */
const sideOf = (token) => /** @type {Side} */ (token.parentElement?.dataset.side);

/**
 * The token that a key goes to; undefined for none.
 * @param {View} view
 * @param {Struck} from
 * @param {string} key
 */
function neighbour(view, { side, index }, key) {
  const across = { ArrowRight: /** @type {const} */ ("key"), ArrowLeft: /** @type {const} */ ("query") };
  const to = across[/** @type {keyof typeof across} */ (key)];
  if (to) return childrenOf(view[to])[Math.min(index, tokens(view, to).length - 1)];
  const last = tokens(view, side).length - 1;
  const steps = {
    ArrowDown: index + 1,
    ArrowUp: index - 1,
    Home: 0,
    End: last,
    PageDown: Math.min(index + 10, last),
    PageUp: Math.max(index - 10, 0),
  };
  return childrenOf(view[side])[steps[/** @type {keyof typeof steps} */ (key)]];
}

/**
 * What scrolls when the page does.
 * @param {Element} node
 */
function scrollerAround(node) {
  const above = (/** @type {Element} */ one) =>
    one.parentElement ?? /** @type {ShadowRoot | Document & { host?: undefined }} */ (one.getRootNode()).host;
  for (let one = above(node); one; one = above(one)) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(one).overflowY);
    if (scrolls && one.scrollHeight > one.clientHeight) return one;
  }
  return document.scrollingElement;
}

/**
 * @param {View} view
 * @param {Struck} at
 */
function isCut(view, { side, index, node }) {
  return node.scrollWidth > node.clientWidth + 1 || node.textContent !== tokens(view, side)[index][0];
}

/**
 * The whole of a token that is cut, outside its column.
 * @param {View} view
 * @param {Struck} at
 */
function showToken(view, { side, index, node }) {
  const [text, position, from] = tokens(view, side)[index];
  const at = node.getBoundingClientRect();
  const whole = `${shortened(text, LONGEST_TIP)}\nposition ${position}${from ? `, sentence ${from}` : ""}`;
  putTip(view.tip, whole, (box) => [side === "query" ? at.left - box.width - 8 : at.right + 8, at.top]);
}

/**
 * Beside a token, one stripe a head, as strong as what goes there.
 * @param {View} view
 * @param {Sum[]} found
 * @param {number} index
 */
export function swatches(view, found, index) {
  if (!found.length) return "";
  const largest = view.header.limit || Math.max(...found.map(({ total }) => peak(total))) || 1;
  const stripes = found.map(({ head, total }, i) => {
    const share = Math.min(Math.abs(total[index]) / largest, 1) || 0;
    const at = (/** @type {number} */ n) => `${((100 * n) / found.length).toFixed(1)}%`;
    const colour = colourOf(view, head, total[index]).join(" ");
    return `rgb(${colour} / ${(STRONGEST_STRIPE * share).toFixed(3)}) ${at(i)} ${at(i + 1)}`;
  });
  return `linear-gradient(to right, ${stripes.join(", ")})`;
}
