// The frame of all pages: navigation, title, texts, tokens, notices, and the places of the page.

import { element } from "../../components/elements.js";
import { InvalidInputError } from "../engine/errors.js";
import { createButton } from "./controls.js";
import { drawFailure } from "./failures.js";
import { drawLoading } from "./loading_bar.js";
import { isTooLong, PAGE_NAMES } from "./state.js";
import { drawTargetControl, targetNotice } from "./target_control.js";
import { drawTokens, textNotices } from "./tokens.js";

/** @import { ModelLoader } from "./loading.js" */
/** @import { Fault } from "./state.js" */
/** @import { Language, PageContext, PageName, Places, Run, State, Texts } from "./types.d.ts" */

/**
 * What a visitor can do in the frame.
 * @typedef {object} Actions
 * @property {(text: string, pair: string) => void} changeTexts
 * @property {(word: number) => void} toggleMask
 * @property {(index: number) => void} openExample
 *
 * @typedef {ReturnType<typeof createFrame>} Frame
 */

const TEXTLESS_PAGES = ["learn"];
const TARGET_PAGES = ["predict", "attention", "heads", "why"];
const SHOWN_NAMES = 2; // heads that are off and named on the button
const LANGUAGE_NAMES = /** @type {[Language, string][]} */ ([
  ["en", "English"],
  ["de", "Deutsch"],
]);

/**
 * @param {HTMLElement} parent
 * @param {Actions} actions
 */
export function createFrame(parent, actions) {
  const nodes = createNodes();
  const { body } = nodes;
  parent.append(body);
  /** @type {PageContext} */
  let context;
  let announced = /** @type {string[]} */ ([]); // results of the state, which screen readers read once
  const fields = createTextFields(nodes.texts, actions, () => context);

  return {
    /**
     * Draw the frame of a state.
     * @param {PageContext} current
     * @param {{ faults: Fault[], loader: ModelLoader, notice: string }} options
     * @returns {Places}
     */
    draw: (current, { faults, loader, notice }) => {
      context = current;
      const { state, text } = context;
      document.documentElement.lang = state.lang;
      document.title = `${text("title")} · Headlight`;
      document.body.classList.toggle("embed", state.embed);
      document.body.classList.toggle("lecture", state.lecture);
      document.body.dataset.page = state.page;
      nodes.problem.replaceChildren();
      announced = [];
      nodes.figure.setAttribute("aria-busy", "true");
      nodes.figure.hidden = nodes.reading.hidden = nodes.strip.hidden = false;
      drawNavigation(nodes, context);
      nodes.title.textContent = text("title");
      nodes.line.textContent = lineOf(context, state.page);
      nodes.texts.hidden = nodes.tokens.hidden = TEXTLESS_PAGES.includes(state.page);
      nodes.target.hidden = !TARGET_PAGES.includes(state.page);
      fields.draw();
      drawNotices(nodes.notices, context, faults, notice);
      drawHeadsOff(nodes.headsOff, context);
      drawLoading(nodes.loading, loader, context);
      return nodes;
    },
    /**
     * Draw the tokens of the text.
     * @param {Texts} texts
     */
    drawTokens: (texts) => {
      const { target } = context.state;
      const position = target === null || target === "nsp" ? null : target.position;
      const explained = target === null ? (texts.encoding.maskPositions[0] ?? null) : position;
      drawTokens(nodes.strip, context, texts, { target: explained, onClick: actions.toggleMask });
      addNotices(nodes.notices, textNotices(context, texts));
    },
    /**
     * Draw the control of the target, where the page has one.
     * @param {Run} run with all heads on
     */
    drawTarget: (run) => {
      if (!nodes.target.hidden) drawTargetControl(nodes.target, context, run);
      addNotices(nodes.notices, [targetNotice(context, run)]);
    },
    /** The figure of the state is drawn. */
    complete: () => {
      nodes.figure.setAttribute("aria-busy", "false");
      const results = announced.length ? announced : [nodes.figure.querySelector(".result")?.textContent ?? ""];
      nodes.announcer.textContent = `${nodes.title.textContent}. ${results.join(" ")}`;
    },
    /** Let screen readers read a result, together with those of the same state. @param {string} result */
    announce: (result) => {
      if (announced.includes(result)) return;
      announced.push(result);
      if (nodes.figure.getAttribute("aria-busy") === "false") nodes.announcer.textContent = announced.join(" ");
    },
    /** Let the visitor type a sentence. */
    editText: () => {
      const field = /** @type {HTMLInputElement} */ (nodes.texts.elements.namedItem("text"));
      field.focus();
      field.select();
    },
    /** Show how far the model is loaded. @param {ModelLoader} loader */
    drawLoading: (loader) => drawLoading(nodes.loading, loader, context),
    /** Empty the places of a page. */
    clear: () => {
      for (const place of [nodes.controls, nodes.figure, nodes.reading]) place.replaceChildren();
    },
    /**
     * Show an error where the figure is.
     * @param {unknown} error
     * @param {ModelLoader} loader
     */
    fail: (error, loader) => {
      nodes.figure.setAttribute("aria-busy", "false");
      nodes.figure.hidden = nodes.reading.hidden = true; // of another state
      // Tokens and target are those of another text if this one cannot be read.
      if (error instanceof InvalidInputError) nodes.strip.hidden = nodes.target.hidden = true;
      drawFailure(nodes.problem, error, context, { loader, openExample: actions.openExample });
    },
  };
}

function createNodes() {
  const body = element("div", "site");
  const header = element("header", "top");
  const brand = element("a", "brand", "Headlight");
  const navigation = element("nav", "pages");
  const tools = element("div", "tools");
  header.append(brand, navigation, tools);
  const loading = element("div", "loading");
  loading.setAttribute("role", "status");
  const main = element("main", "page");
  const heading = element("div", "heading");
  const title = element("h1");
  const line = element("p", "line");
  heading.append(title, line);
  const texts = element("form", "texts");
  const tokens = element("div", "tokens");
  const [strip, choices] = [element("div", "strip"), element("div", "choices")];
  const [target, headsOff] = [element("div", "target"), element("div", "heads-off")];
  choices.append(target, headsOff);
  tokens.append(strip, choices);
  const notices = element("div", "notices");
  const controls = element("div", "controls");
  const problem = element("div", "problem");
  problem.setAttribute("role", "alert");
  const figure = element("div", "figure");
  const reading = element("div", "reading");
  main.append(heading, texts, tokens, notices, controls, problem, figure, reading);
  const lesson = element("aside", "lesson");
  const columns = element("div", "columns");
  columns.append(main, lesson);
  const announcer = element("p", "heard");
  announcer.setAttribute("role", "status");
  body.append(header, columns, loading, announcer);
  for (const place of [navigation, tools, target, headsOff, controls, problem, figure, reading, lesson]) {
    place.dataset.place = "";
  }
  return {
    ...{ body, brand, navigation, tools, loading, title, line, texts, tokens, strip, target, headsOff },
    ...{ notices, controls, problem, figure, reading, lesson, announcer },
  };
}

/**
 * @param {ReturnType<typeof createNodes>} nodes
 * @param {PageContext} context
 */
function drawNavigation({ brand, navigation, tools }, context) {
  const { state, text } = context;
  brand.setAttribute("href", context.link({ page: "start" }));
  brand.onclick = (event) => follow(event, context, { page: "start" });
  navigation.setAttribute("aria-label", text("site:navigation"));
  navigation.replaceChildren(
    ...PAGE_NAMES.map((page) => {
      const link = createLink(context, text(`${page}:title`), { page });
      if (page === state.page) link.setAttribute("aria-current", "page");
      link.title = lineOf(context, page);
      return link;
    }),
  );
  const languages = LANGUAGE_NAMES.filter(([language]) => language !== state.lang).map(([lang, name]) => {
    const link = createLink(context, name, { lang });
    link.lang = lang;
    return link;
  });
  const lecture = createLink(context, text("frame:settings.lecture"), { lecture: !state.lecture });
  lecture.title = text("frame:settings.lecture_help");
  if (state.lecture) lecture.setAttribute("aria-current", "true");
  const whole = element("a", "whole", text("frame:open_in_app"));
  whole.href = context.link({ embed: false });
  whole.target = "_blank";
  tools.replaceChildren(createCopyButton(context), lecture, ...languages, whole);
}

/**
 * Return the sentence about a page. Pages with less than in the app have their own.
 * @param {PageContext} context
 * @param {PageName} page
 */
export const lineOf = ({ text, site }, page) =>
  text(Object.hasOwn(/** @type {object} */ (site.texts.en.site.lines), page) ? `site:lines.${page}` : `${page}:line`);

/**
 * Return a link to another state, which is opened without loading the site again.
 * @param {PageContext} context
 * @param {string} label
 * @param {Partial<State>} changes
 */
export function createLink(context, label, changes) {
  const link = element("a", "", label);
  link.href = context.link(changes);
  link.onclick = (event) => follow(event, context, changes);
  return link;
}

/**
 * @param {MouseEvent} event
 * @param {PageContext} context
 * @param {Partial<State>} changes
 */
function follow(event, context, changes) {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  context.change(changes);
}

/** @param {PageContext} context */
function createCopyButton({ link, text }) {
  const button = element("button", "quiet", text("site:copy_link"));
  button.type = "button";
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(link({}));
      button.textContent = text("site:link_copied");
    } catch {
      button.textContent = text("site:copy_from_address");
    }
  };
  return button;
}

/**
 * @param {HTMLElement} place
 * @param {PageContext} context
 * @param {Fault[]} faults
 * @param {string} notice
 */
function drawNotices(place, { text, state, site }, faults, notice) {
  const sentences = faults.map(({ name, value, reason, fields }) =>
    text("frame:link.impossible", { name, value: `'${value}'`, reason: text(`site:reasons.${reason}`, fields) }),
  );
  if (isTooLong(site, state)) sentences.push(text("frame:notices.long_link", { most: site.limits.link }));
  place.replaceChildren();
  addNotices(place, [...sentences, notice]);
}

/**
 * @param {HTMLElement} place
 * @param {string[]} sentences empty ones are left out
 */
function addNotices(place, sentences) {
  place.append(...sentences.filter(Boolean).map((sentence) => element("p", "notice", sentence)));
}

/**
 * Draw the button that switches all heads on again, which says how many are off.
 * @param {HTMLElement} place
 * @param {PageContext} context
 */
function drawHeadsOff(place, { state, text, change }) {
  const names = state.off.map(([layer, head]) => `L${layer} H${head}`).join(", ");
  const many = state.off.length;
  const sentence = text(many === 1 ? "frame:heads.one_off" : "frame:heads.off", { many });
  const named = many <= SHOWN_NAMES ? `${sentence}: ${names}` : sentence;
  const button = createButton(`${named} · ${text("frame:heads.switch_all_on")}`, "quiet", () => change({ off: [] }));
  button.title = names;
  place.replaceChildren(...(many ? [button] : []));
}

/**
 * The fields of both texts. What was typed remains until another text is shown.
 * @param {HTMLFormElement} form
 * @param {Actions} actions
 * @param {() => PageContext} current
 */
function createTextFields(form, actions, current) {
  const first = element("input", "text");
  const second = element("input", "text");
  for (const [field, name] of /** @type {const} */ ([
    [first, "text"],
    [second, "pair"],
  ])) {
    Object.assign(field, { type: "text", name, autocomplete: "off", spellcheck: false });
    field.dir = "auto";
    field.oninput = () => showApply();
  }
  const add = element("button", "quiet");
  const apply = element("button", "primary");
  Object.assign(add, { type: "button" });
  form.append(first, add, second, apply);
  /** @type {[string, string]} */
  let drawn = ["", ""];
  let isPairOpen = false;

  const showApply = () => {
    apply.hidden = first.value === drawn[0] && second.value === drawn[1];
  };
  const showPair = () => {
    second.hidden = !isPairOpen;
    add.hidden = isPairOpen;
  };
  add.onclick = () => {
    isPairOpen = true;
    showPair();
    second.focus();
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    actions.changeTexts(first.value, second.value);
  };

  return {
    draw: () => {
      const { state, text } = current();
      if (first.value === drawn[0] || state.text !== drawn[0]) first.value = state.text;
      if (second.value === drawn[1] || state.pair !== drawn[1]) second.value = state.pair;
      drawn = [state.text, state.pair];
      isPairOpen = second.value !== "";
      first.maxLength = second.maxLength = current().site.limits.text;
      first.setAttribute("aria-label", text("frame:text.first"));
      first.placeholder = text("frame:text.first_placeholder");
      second.setAttribute("aria-label", text("frame:text.second"));
      second.placeholder = text("frame:text.second_placeholder_next");
      add.textContent = text("site:add_second");
      apply.textContent = text("site:apply");
      showApply();
      showPair();
    },
  };
}
