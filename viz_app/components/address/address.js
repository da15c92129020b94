// Streamlit adds an entry to the browser's history for every change of the address, and two for a new page: one
// without its parameters, one with them. Back would walk through all of them. So an address that differs from the
// entry it stands on by no step takes that entry's place.

/** @import { AddressMessage, Handed } from "../messages.d.ts" */

// On window: this module may be loaded more than once, its wrapper must not be.
/** @typedef {{ url: string, state: unknown, added: boolean }} Early the entry before, and whether one was added */
/**
 * @typedef {{ headlightSteps?: string[], headlightRun?: () => void,
 *   headlightOpened?: string }} Shared
 */
const shared = /** @type {Shared} */ (globalThis);

const STILL = 10; // tenths of a second after which nothing more is to come

/** @param {Handed<AddressMessage>} handed */
export default function address({ data, setTriggerValue }) {
  if (!shared.headlightRun) runAfterReconnecting();
  shared.headlightRun = () => setTriggerValue("again", true);
  if (!shared.headlightSteps) keepEntries();
  shared.headlightSteps = data.steps;
}

function keepEntries() {
  const add = window.history.pushState.bind(window.history);
  /** @type {Early | undefined} */
  let early;
  // Whatever comes after a click or a key is of another change than what came before it.
  for (const event of ["click", "keydown", "popstate"]) {
    window.addEventListener(event, () => (early = undefined), { capture: true });
  }
  window.history.pushState = (state, title, url) => {
    const before = new URL(window.location.href);
    const after = new URL(url ?? "", before);
    if (early && isOfTheNewPage(before, after)) {
      // The page that was left gets its own entry back.
      if (early.added) window.history.replaceState(state, title, url);
      else {
        window.history.replaceState(early.state, "", early.url);
        add(state, title, url);
      }
      early = shared.headlightOpened = undefined;
      return;
    }
    const isSamePage = before.pathname === after.pathname;
    // A page opened by another one stands first under that one's address.
    const justOpened = before.href === shared.headlightOpened && isSamePage;
    shared.headlightOpened = isSamePage ? undefined : after.href;
    const added = !justOpened && isStep(before, after, shared.headlightSteps ?? []);
    early = isSamePage ? { url: before.href, state: window.history.state, added } : undefined;
    if (added) add(state, title, url);
    else window.history.replaceState(state, title, url);
    if (!isSamePage && before.search && !after.search) sayAgain(before.search);
    // What a step of a lesson speaks of stands on top of its page.
    if (differs("lesson", before, after) || differs("step", before, after)) {
      document.querySelector("[data-testid=stMain]")?.scrollTo(0, 0);
    }
  };
}

/**
 * A page that is drawn at once may say its parameters while the address still is that of the page before: where these
 * are the same, Streamlit writes nothing, and the new path stands without them. They are written once it stands still.
 * @param {string} search
 */
function sayAgain(search) {
  const path = window.location.pathname;
  let still = 0;
  const timer = setInterval(() => {
    if (window.location.pathname !== path || window.location.search) return clearInterval(timer);
    const app = /** @type {HTMLElement | null} */ (document.querySelector("[data-testid=stApp]"));
    still = app?.dataset.testScriptState === "notRunning" ? still + 1 : 0;
    if (still < STILL) return;
    clearInterval(timer);
    window.history.replaceState(window.history.state, "", path + search);
  }, 100);
}

/**
 * Whether what the address said last was of the page that comes only now: one that is drawn at once may say its
 * parameters before Streamlit has changed the path.
 * @param {URL} before
 * @param {URL} after
 */
function isOfTheNewPage(before, after) {
  return before.pathname !== after.pathname && before.search !== "" && before.search === after.search;
}

/**
 * Whether a person would say that something else is shown now.
 * @param {URL} before
 * @param {URL} after
 * @param {string[]} steps
 */
export function isStep(before, after, steps) {
  if (before.pathname !== after.pathname) return true;
  // The address of a page just opened, which says nothing yet.
  if (!before.search) return false;
  return steps.some((name) => differs(name, before, after));
}

/**
 * @param {string} name
 * @param {URL} before
 * @param {URL} after
 */
function differs(name, before, after) {
  return before.searchParams.get(name) !== after.searchParams.get(name);
}

/**
 * A server that was started again, or another one behind a proxy, knows a page only once it has run: without a run of
 * its own, what is typed next would be taken for what stood there before.
 */
function runAfterReconnecting() {
  const connection = "data-test-connection-state";
  let connected = true;
  new MutationObserver((changes) => {
    for (const { target } of changes) {
      const now = /** @type {Element} */ (target).getAttribute(connection) === "CONNECTED";
      if (now && !connected) shared.headlightRun?.();
      connected = now;
    }
  }).observe(document.body, { attributes: true, attributeFilter: [connection], subtree: true });
}
