// What is shown in place of a figure that cannot be computed: one sentence, and ways out.

import { element } from "../../components/elements.js";
import { createLoadButton, errorSentence } from "./loading_bar.js";

/** @import { ModelLoader } from "./loading.js" */
/** @import { PageContext } from "./types.d.ts" */

/** Errors after which the model is loaded again. */
const LOAD_AGAIN = ["CancelledError", "DownloadError", "StorageError", "OutOfMemoryError", "EngineError"];

/**
 * @param {HTMLElement} place
 * @param {unknown} error
 * @param {PageContext} context
 * @param {{ loader: ModelLoader, openExample: (index: number) => void }} options
 */
export function drawFailure(place, error, context, { loader, openExample }) {
  const name = error instanceof Error ? error.name : "";
  const ways = element("div", "ways-out");
  if (LOAD_AGAIN.includes(name) && loader.status.phase !== "ready") ways.append(createLoadButton(loader, context));
  const examples = context.site.examples.map(({ label }, index) => {
    const button = element("button", "example", label);
    button.type = "button";
    button.onclick = () => openExample(index);
    return button;
  });
  ways.append(element("span", "", context.text("site:errors.examples")), ...examples);
  place.replaceChildren(element("p", "", errorSentence(error, context)), ways);
  const isExpected = Object.hasOwn(/** @type {object} */ (context.site.texts.en.site.errors), name);
  if (!isExpected) console.error(error);
}
