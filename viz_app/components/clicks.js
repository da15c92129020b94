// Clicks on their way to Python: each goes along with those shortly before it (`clicks.py` delivers each once).

/** @import { Click } from "./messages.d.ts" */

const LOG_SECONDS = 30;
const MOST = 16;

// Only grows, also between two views and when the clock is set back.
let stamp = 0;

/**
 * The clicks of a view, with one that has just been made.
 * @param {Element & { clicks?: Click[] }} node keeps them
 * @param {unknown} what
 */
export function logged(node, what) {
  const now = Date.now();
  stamp = Math.max(stamp + 1, now);
  const before = node.clicks ?? [];
  node.clicks = [...before, /** @type {Click} */ ([stamp, what])]
    .filter(([at]) => at > now - LOG_SECONDS * 1000)
    .slice(-MOST);
  return node.clicks;
}
