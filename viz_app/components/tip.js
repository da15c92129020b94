// The tooltip that every view has. It says what stands in a message, so it is cut where that is very long.

export const LONGEST_TIP = 600;

/**
 * Below its anchor, or above it where the window ends.
 * @param {HTMLElement} tip
 * @param {HTMLElement} anchor
 * @param {string | null | undefined} text
 * @param {number} gap pixels
 */
export function showTip(tip, anchor, text, gap) {
  if (!text) return tip.hidePopover();
  const at = anchor.getBoundingClientRect();
  putTip(tip, text, (box) => [
    at.left,
    at.bottom + gap + box.height < window.innerHeight ? at.bottom + gap : at.top - gap - box.height,
  ]);
}

/**
 * Where it is wanted, as far as the window goes.
 * @param {HTMLElement} tip
 * @param {string} text
 * @param {(box: DOMRect) => [left: number, top: number]} place
 */
export function putTip(tip, text, place) {
  tip.textContent = text;
  tip.showPopover();
  const box = tip.getBoundingClientRect();
  const [left, top] = place(box);
  tip.style.left = `${Math.max(4, Math.min(left, window.innerWidth - box.width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(top, window.innerHeight - box.height - 4))}px`;
}
