// The progress of the loading of the model, with the buttons that cancel it or begin it again.

import { element } from "../../components/elements.js";

/** @import { ModelLoader } from "./loading.js" */
/** @import { PageContext } from "./types.d.ts" */

const MEGABYTE = 1e6;

/**
 * Show how far the model is loaded.
 * @param {HTMLElement} place
 * @param {ModelLoader} loader
 * @param {PageContext} context
 */
export function drawLoading(place, loader, context) {
  const { status } = loader;
  const { phase, warning } = status;
  place.hidden = phase === "idle" || (phase === "ready" && !warning);
  if (phase === "loading") drawProgress(place, loader, context);
  else place.replaceChildren();
  if (phase === "ready" && warning) {
    place.append(context.text("site:loading.not_stored"), createHideButton(loader, context));
  }
  if (phase === "asking") place.append(context.text("site:loading.ask"), createLoadButton(loader, context));
  if (phase === "failed") {
    const isCancelled = status.error?.name === "CancelledError";
    const sentence = isCancelled ? context.text("site:loading.cancelled") : errorSentence(status.error, context);
    place.append(sentence, createLoadButton(loader, context));
  }
}

/**
 * Return the button that loads the model.
 * @param {ModelLoader} loader
 * @param {PageContext} context
 */
export function createLoadButton(loader, { text, site }) {
  const isFirst = loader.status.phase === "asking";
  const label = isFirst ? text("site:loading.load", { size: megabytes(site.model.bytes) }) : text("site:loading.again");
  const button = element("button", "primary", label);
  button.type = "button";
  button.onclick = () => loader.load();
  return button;
}

/**
 * @param {ModelLoader} loader
 * @param {PageContext} context
 */
function createHideButton(loader, { text }) {
  const button = element("button", "quiet", text("site:loading.hide"));
  button.type = "button";
  button.onclick = () => loader.hideWarning();
  return button;
}

/**
 * Return the sentence of an error, with what can be done.
 * @param {unknown} error
 * @param {PageContext} context
 */
export function errorSentence(error, { text, site, state }) {
  const { name, message } = error instanceof Error ? error : new Error(String(error));
  if (name === "InvalidInputError" && !state.text.trim()) {
    return text(state.pair.trim() ? "frame:text.second_only" : "frame:text.empty");
  }
  const errors = /** @type {Record<string, string>} */ (site.texts.en.site.errors);
  return text(`site:errors.${Object.hasOwn(errors, name) ? name : "other"}`, { reason: message });
}

/**
 * The bar and the button remain the same elements, so that the button keeps the focus.
 * @param {HTMLElement} place
 * @param {ModelLoader} loader
 * @param {PageContext} context
 */
function drawProgress(place, loader, { text, site }) {
  const { progress, secondsLeft } = loader.status;
  const total = progress?.totalBytes ?? site.model.bytes;
  const loaded = progress?.loadedBytes ?? 0;
  if (!place.querySelector("progress")) place.replaceChildren(...progressNodes(loader));
  const [label, bar, button] = /** @type {[HTMLElement, HTMLProgressElement, HTMLButtonElement]} */ ([
    ...place.children,
  ]);
  bar.setAttribute("aria-label", text("site:loading.label"));
  bar.max = total;
  bar.value = loaded;
  const sizes = text("site:loading.progress", { loaded: megabytes(loaded), total: megabytes(total) });
  const remaining = secondsLeft === null ? "" : `, ${text("site:loading.seconds_left", { seconds: secondsLeft })}`;
  label.textContent = progress?.phase === "start" ? text("site:loading.start") : sizes + remaining;
  button.textContent = text("site:loading.cancel");
}

/** @param {ModelLoader} loader */
function progressNodes(loader) {
  const button = element("button", "quiet");
  button.type = "button";
  button.onclick = () => loader.cancel();
  return [element("span", "amount"), element("progress"), button];
}

/** @param {number} bytes */
const megabytes = (bytes) => Math.round(bytes / MEGABYTE);
