// The browser edition: reads the address, and draws the frame and the page; each change of the state is in the address.

import { element } from "../../components/elements.js";
import { createContext, linkTo } from "./context.js";
import { received, receivedFile } from "./downloads.js";
import { maskAgain, wordText } from "./encodings.js";
import { rememberFocus } from "./focus.js";
import { createFrame } from "./frame.js";
import { createModelLoader } from "./loading.js";
import { startPage } from "./pages/start.js";
import { createRuns } from "./runs.js";
import { formatState, PAGE_NAMES, parseState, withoutPositions } from "./state.js";
import { createStoredRuns } from "./stored_runs.js";

/** @import { Fault } from "./state.js" */
/** @import { Page, PageContext, PageName, SiteDescription, State, Texts } from "./types.d.ts" */

/**
 * The modules of the pages. Home, which most visits begin with, is in this script; a visit loads others when they open.
 * @type {Record<PageName, () => Promise<Page>>}
 */
const PAGE_MODULES = {
  start: async () => startPage,
  predict: async () => (await import("./pages/predict.js")).predictPage,
  attention: async () => (await import("./pages/attention.js")).attentionPage,
  heads: async () => (await import("./pages/heads.js")).headsPage,
  why: async () => (await import("./pages/why.js")).whyPage,
  learn: async () => (await import("./pages/learn.js")).learnPage,
};

/**
 * Start the site.
 * @param {SiteDescription} site
 * @param {URL} root address of the folder of the site
 */
function start(site, root) {
  const loader = createModelLoader({ root });
  const runs = createRuns({ site, loader, stored: createStoredRuns(site, root) });
  const frame = createFrame(document.body, { changeTexts, toggleMask, openExample });
  /** @type {State} */
  let state;
  /** @type {Fault[]} */
  let faults;
  let controller = new AbortController();
  /** @type {Record<string, unknown>} */
  let pageMemory = {};
  /** @type {Record<string, unknown>} */
  const lessonMemory = {};
  /** @type {PageName | undefined} */
  let drawnPage;
  /** Those of the last text that was drawn. @type {Texts | null} */
  let texts = null;
  /**
   * Words of a text that were masked because it changed: a click moves this mask.
   * @type {{ text: string, pair: string, masked: number[] } | null}
   */
  let automaticMask = null;
  let automaticWord = "";

  const readAddress = () => {
    ({ state, faults } = parseState(site, pageOf(root), history.state?.query ?? location.search));
  };

  /**
   * @param {Partial<State>} changes
   * @param {object} [options]
   * @param {boolean} [options.replace]
   * @param {string[]} [options.maskedTexts] words that are masked again as soon as the tokens of a new text are known
   */
  const change = (changes, { replace = false, maskedTexts = [] } = {}) => {
    const before = state;
    state = { ...state, ...changes };
    faults = [];
    const entry = { query: formatState(site, state, { isWhole: true }), maskedTexts };
    const isSame = before.page === state.page && entry.query === formatState(site, before, { isWhole: true });
    const address = linkTo(root, site, state);
    if (replace || isSame) history.replaceState(entry, "", address);
    else history.pushState(entry, "", address);
    if (before.page !== state.page) scrollTo(0, 0);
    draw();
  };

  /** @param {string} text @param {string} pair */
  function changeTexts(text, pair) {
    if (text === state.text && pair === state.pair) return;
    const isExamplePair = site.examples.some((example) => example.pair === pair);
    const keptPair = pair === state.pair && isExamplePair ? "" : pair;
    const previous = texts?.original;
    const isDrawn = previous?.text === state.text && (previous.pair ?? "") === state.pair;
    const maskedTexts = isDrawn ? state.masked.map((word) => wordText(previous, word)).filter(Boolean) : [];
    const target = state.target === "nsp" && keptPair ? state.target : null;
    change({ text, pair: keptPair, ...withoutPositions(), target }, { maskedTexts });
  }

  /** Return whether the masked words are those that were masked because the text changed. */
  function isAutomaticMask() {
    const { text, pair, masked } = automaticMask ?? {};
    return text === state.text && pair === state.pair && masked?.join() === state.masked.join();
  }

  /** @param {number} word */
  function toggleMask(word) {
    const isMoved = isAutomaticMask() && !state.masked.includes(word);
    const others = state.masked.filter((masked) => masked !== word);
    const toggled = state.masked.includes(word) ? others : [...others, word].sort((a, b) => a - b);
    automaticMask = null;
    change({ masked: isMoved ? [word] : toggled });
  }

  /** @param {number} index */
  function openExample(index) {
    const { text, pair, masked } = site.examples[index];
    change({ text, pair, ...withoutPositions(), masked, off: [], head: null });
  }

  /**
   * Mask the words of a new text that were masked in the one before it, or else its longest word.
   * @param {string[]} maskedTexts
   * @param {AbortSignal} signal
   */
  const maskNewText = async (maskedTexts, signal) => {
    const { original } = await runs.encode({ ...state, masked: [] }, { signal });
    if (signal.aborted) return;
    const { masked, isAutomatic } = maskAgain(original, maskedTexts);
    automaticMask = isAutomatic ? { text: state.text, pair: state.pair, masked } : null;
    automaticWord = isAutomatic ? wordText(original, masked[0]) : "";
    change({ masked }, { replace: true });
  };

  /**
   * Draw the tokens and the target as soon as they are known; the page reports what prevents it.
   * @param {PageContext} context
   */
  const drawFrame = async (context) => {
    if (state.page === "learn") return;
    const { signal } = context;
    try {
      texts = await runs.encode(context.request(), { signal });
      if (signal.aborted) return;
      frame.drawTokens(texts);
      const run = await runs.run(context.request({ off: [] }), { signal });
      if (!signal.aborted) frame.drawTarget(run);
    } catch {
      // The page fails too, and says why.
    }
  };

  /**
   * Draw the open lesson, if there is one.
   * @param {PageContext} context
   * @param {HTMLElement} place
   */
  const drawLesson = async (context, place) => {
    if (context.state.lesson) {
      const { drawLessonPanel } = await received(import("./lesson_panel.js"));
      if (!context.signal.aborted) drawLessonPanel(context, place, lessonMemory);
      return;
    }
    place.hidden = true;
    document.body.classList.remove("with-lesson");
    lessonMemory.panel = undefined;
    lessonMemory.drawnStep = "";
  };

  const draw = async () => {
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    const fail = (/** @type {unknown} */ error) => {
      if (!signal.aborted) frame.fail(error, loader);
    };
    const { editText, announce } = frame;
    const context = createContext({ site, state, runs, root, signal, change, fail, editText, announce });
    if (drawnPage !== state.page) {
      drawnPage = state.page;
      pageMemory = {};
      frame.clear();
    }
    try {
      const notice = isAutomaticMask() ? context.text("frame:notices.automatic_mask", { word: automaticWord }) : "";
      const restoreFocus = rememberFocus(document.body);
      const places = frame.draw(context, { faults, loader, notice });
      const maskedTexts = history.state?.maskedTexts ?? [];
      if (maskedTexts.length) {
        await maskNewText(maskedTexts, signal);
        return;
      }
      drawFrame(context);
      restoreFocus();
      if (state.page === "learn" || state.lesson) await readLessons(site, root);
      const page = await received(PAGE_MODULES[state.page]());
      if (signal.aborted) return;
      await drawLesson(context, places.lesson);
      await page.draw(context, places, pageMemory);
      if (signal.aborted) return;
      frame.complete();
      restoreFocus();
      if (!state.embed) afterPaint(loader.begin); // the figure is seen before the download begins
    } catch (error) {
      fail(error);
    }
  };

  addEventListener("popstate", () => {
    readAddress();
    draw();
  });
  loader.onChange(() => frame.drawLoading(loader));
  loader.onReady(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  readAddress();
  draw().then(() => navigator.serviceWorker?.register(new URL("offline.js", root)).catch(() => {}));
}

/**
 * Read the lessons and their texts, which most visits do not need.
 * @param {SiteDescription} site
 * @param {URL} root
 */
async function readLessons(site, root) {
  if (site.texts.en.lesson) return;
  const response = await receivedFile(new URL("lessons.json", root));
  /** @type {Pick<SiteDescription, "lessons" | "texts">} */
  const { lessons, texts } = await received(response.json());
  site.lessons = lessons;
  Object.assign(site.texts.en, texts.en);
  Object.assign(site.texts.de, texts.de);
}

/**
 * Call a function after the next frame is painted.
 * @param {() => void} callback
 */
function afterPaint(callback) {
  requestAnimationFrame(() => setTimeout(callback));
}

/**
 * Return the page of the address.
 * @param {URL} root
 * @returns {PageName}
 */
function pageOf(root) {
  const name = location.pathname.slice(root.pathname.length).split("/")[0];
  return PAGE_NAMES.find((page) => page === name) ?? "start";
}

const root = new URL(".", document.baseURI);
try {
  const response = await fetch(new URL("site.json", root));
  if (!response.ok) throw new Error(`site.json: ${response.status}`);
  start(await response.json(), root);
} catch (error) {
  console.error(error);
  document.body.append(element("p", "boot-error", "The site could not be loaded: reload the page."));
}
