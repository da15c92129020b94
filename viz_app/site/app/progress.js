// Work that takes seconds: how much of it is done, the time left, and a button that cancels it.

import { element } from "../../components/elements.js";
import { CancelledError } from "../engine/errors.js";
import { createButton } from "./controls.js";

/** @import { PageContext, RunOptions } from "./types.d.ts" */

const SHOWN_AFTER = 200; // milliseconds; shorter work needs no progress bar

/**
 * Do some work with a progress bar in a place, which is empty before and after it. Another state cancels the work.
 * @template Result
 * @param {HTMLElement} place
 * @param {PageContext} context
 * @param {string} label of the work
 * @param {(options: Required<RunOptions>) => Promise<Result>} work
 * @returns {Promise<Result | null>} null if the visitor cancelled it
 */
export async function withProgress(place, context, label, work) {
  const controller = new AbortController();
  const stop = () => controller.abort();
  context.signal.addEventListener("abort", stop);
  const { box, draw } = createBar(context, label, stop);
  const timer = setTimeout(() => place.replaceChildren(box), SHOWN_AFTER);
  try {
    return await work({ signal: controller.signal, onProgress: draw });
  } catch (error) {
    if (error instanceof CancelledError && controller.signal.aborted && !context.signal.aborted) return null;
    throw error;
  } finally {
    clearTimeout(timer);
    context.signal.removeEventListener("abort", stop);
    box.remove();
  }
}

/**
 * @param {PageContext} context
 * @param {string} label
 * @param {() => void} onCancel
 */
function createBar({ text }, label, onCancel) {
  const box = element("div", "work");
  const name = element("span", "", label);
  const bar = element("progress");
  bar.setAttribute("aria-label", label);
  const note = element("span", "note");
  note.setAttribute("role", "status");
  const cancel = createButton(text("site:work.cancel"), "quiet", onCancel);
  box.append(name, bar, note, cancel);
  const start = performance.now();
  const draw = (/** @type {number} */ done, /** @type {number} */ total) => {
    bar.max = total;
    bar.value = done;
    const seconds = secondsLeft((performance.now() - start) / 1000, done, total);
    note.textContent = text(seconds === null ? "site:work.progress" : "site:work.time_left", {
      done,
      total,
      seconds: seconds ?? 0,
    });
  };
  return { box, draw };
}

/**
 * Estimate the seconds that some work still takes; null before any of it is done.
 * @param {number} seconds since its beginning
 * @param {number} done
 * @param {number} total
 */
export const secondsLeft = (seconds, done, total) => (done ? Math.ceil((seconds * (total - done)) / done) : null);
