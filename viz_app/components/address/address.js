// Streamlit adds an entry to the browser's history for every change of the address, and two for a new page: one
// without its parameters, one with them. Back would walk through all of them. So an address that differs from the
// entry it stands on by no step takes that entry's place.

/** @import { AddressMessage, Handed } from "../messages.d.ts" */

// On window: this module may be loaded more than once, its wrapper must not be.
const shared = /** @type {{ headlightSteps?: string[] }} */ (globalThis);

/** @param {Handed<AddressMessage>} handed */
export default function address({ data }) {
  if (!shared.headlightSteps) {
    const add = window.history.pushState.bind(window.history);
    window.history.pushState = (state, title, url) => {
      const before = new URL(window.location.href);
      const after = new URL(url ?? "", before);
      if (isStep(before, after, shared.headlightSteps ?? [])) add(state, title, url);
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
