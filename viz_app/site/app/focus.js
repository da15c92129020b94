// The keyboard focus stays where it was when its element is drawn again.

const FOCUSABLE = "a[href], button, select, input, summary, [tabindex]";

/**
 * Remember the element with the focus.
 * @param {HTMLElement} root
 * @returns {() => void} gives the focus to the element that is drawn in its place, if nothing else has it
 */
export function rememberFocus(root) {
  const { activeElement } = document;
  if (!(activeElement instanceof HTMLElement) || !root.contains(activeElement)) return () => {};
  const place = /** @type {HTMLElement} */ (placeOf(activeElement, root));
  const index = focusableIn(place).indexOf(activeElement);
  const name = nameOf(activeElement);
  return () => {
    if (activeElement.isConnected || document.activeElement !== document.body) return;
    const candidates = focusableIn(place).filter((element) => element.tagName === activeElement.tagName);
    const sameName = candidates.find((element) => nameOf(element) === name);
    const successor = sameName ?? focusableIn(place)[index] ?? candidates[0];
    successor?.focus({ preventScroll: true });
  };
}

/**
 * Return the part of the frame that contains an element: these parts remain, their content is drawn again.
 * @param {HTMLElement} element
 * @param {HTMLElement} root
 */
const placeOf = (element, root) => element.closest("[data-place]") ?? root;

/** @param {HTMLElement} place */
const focusableIn = (place) => /** @type {HTMLElement[]} */ ([...place.querySelectorAll(FOCUSABLE)]);

/** @param {HTMLElement} element */
const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent;
