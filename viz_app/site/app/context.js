// What a page gets to draw itself.

import { formatState } from "./state.js";
import { fillFields, templateOf, withoutMarkup, writeMarkup } from "./texts.js";

/** @import { PageContext, PageName, Runs, SiteDescription, State } from "./types.d.ts" */

const SHARED_TEXTS = ["site", "frame"]; // where a key is looked up that the page does not have

/**
 * @param {object} options
 * @param {SiteDescription} options.site
 * @param {State} options.state
 * @param {Runs} options.runs
 * @param {URL} options.root address of the folder of the site
 * @param {AbortSignal} options.signal
 * @param {PageContext["change"]} options.change
 * @param {PageContext["fail"]} options.fail
 * @param {PageContext["editText"]} options.editText
 * @param {PageContext["announce"]} options.announce
 * @returns {PageContext}
 */
export function createContext({ site, state, runs, root, signal, change, fail, editText, announce }) {
  const template = (/** @type {string} */ key) => findTemplate(site, state, key);
  return {
    state,
    site,
    runs,
    signal,
    change,
    fail,
    editText,
    announce,
    text: (key, fields) => fillFields(withoutMarkup(template(key)), fields),
    write: (parent, key, fields) => writeMarkup(parent, template(key), fields),
    link: (changes) => linkTo(root, site, { ...state, ...changes }),
    request: (changes) => {
      const { text, pair, masked, off, target, contrast } = state;
      return { text, pair, masked, off, target, contrast, gradients: false, ...changes };
    },
  };
}

/**
 * Return the address of a state.
 * @param {URL} root
 * @param {SiteDescription} site
 * @param {State} state
 */
export function linkTo(root, site, state) {
  const folder = new URL(folderOf(state.page), root);
  folder.search = formatState(site, state);
  return folder.href;
}

/** @param {PageName} page */
const folderOf = (page) => (page === "start" ? "./" : `${page}/`);

/**
 * Return a text of the page, or else a shared one; "find:title" is the text `title` of the file `find`.
 * @param {SiteDescription} site
 * @param {State} state
 * @param {string} key
 */
function findTemplate(site, { lang, page }, key) {
  const [file, name] = key.includes(":") ? key.split(":") : ["", key];
  if (file) return templateOf(site, lang, file, name);
  const files = [page, ...SHARED_TEXTS];
  const found = files.find((candidate) => hasText(site, candidate, key)) ?? page;
  return templateOf(site, lang, found, key);
}

/**
 * @param {SiteDescription} site
 * @param {string} page
 * @param {string} key
 */
function hasText(site, page, key) {
  /** @type {any} */
  let value = site.texts.en[page];
  for (const part of key.split(".")) value = value?.[part];
  return typeof value === "string";
}
