// Streamlit adds an entry to the browser's history for every change of the address, and two for a new page: one
// without its parameters, one with them. Back would walk through all of them. So an address that differs from the
// entry it stands on by no step takes that entry's place.

/** @import { AddressMessage, Handed } from "../messages.d.ts" */

// On window: this module may be loaded more than once, its wrapper must not be.
/** @typedef {{ headlightSteps?: string[], headlightRun?: () => void, headlightOpened?: string }} Shared */
const shared = /** @type {Shared} */ (globalThis);

/** @param {Handed<AddressMessage>} handed */
export default function address({ data, setTriggerValue }) {
  if (!shared.headlightRun) runAfterReconnecting();
  shared.headlightRun = () => setTriggerValue("again", true);
  if (!shared.headlightSteps) {
    const add = window.history.pushState.bind(window.history);
    window.history.pushState = (state, title, url) => {
      const before = new URL(window.location.href);
      const after = new URL(url ?? "", before);
      // A page opened by another one stands first under that one's address.
      const justOpened = before.href === shared.headlightOpened && before.pathname === after.pathname;
      shared.headlightOpened = before.pathname === after.pathname ? undefined : after.href;
      if (!justOpened && isStep(before, after, shared.headlightSteps ?? [])) add(state, title, url);
      else window.history.replaceState(state, title, url);
    };
  }
  shared.headlightSteps = data.steps;
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
  return steps.some((name) => before.searchParams.get(name) !== after.searchParams.get(name));
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
