// The static texts of the site, by page and key, in the language of the reader.

import { element } from "../../components/elements.js";

/** @import { Language, SiteDescription } from "./types.d.ts" */

/** @typedef {Record<string, string | number>} Fields */
/** @typedef {(page: string, key: string, fields?: Fields) => string} TextFunction */

const FALLBACK = "en";

/**
 * Return a text as it is stored, with **bold** parts and {fields}; in English if the language does not have it.
 * @param {SiteDescription} site
 * @param {Language} language
 * @param {string} page
 * @param {string} key the keys of tables are joined by points
 */
export function templateOf(site, language, page, key) {
  for (const tag of [language, FALLBACK]) {
    /** @type {any} */
    let value = site.texts[/** @type {Language} */ (tag)]?.[page];
    for (const part of key.split(".")) value = value?.[part];
    if (typeof value === "string") return value;
  }
  throw new Error(`There is no text ${page}.${key}.`);
}

/**
 * Return a text with its fields replaced, such as {word}, or {count:,} for a number with separators.
 * @param {string} template
 * @param {Fields} [fields]
 */
export function fillFields(template, fields = {}) {
  return template.replace(/\{(\w+)(:,)?\}/g, (whole, name, isGrouped) => {
    if (!Object.hasOwn(fields, name)) return whole;
    return isGrouped ? Number(fields[name]).toLocaleString("en") : String(fields[name]);
  });
}

/**
 * Write a text with **bold** parts and `code`. The fields are plain text, whatever they contain.
 * @param {Element} parent
 * @param {string} template
 * @param {Fields} [fields]
 */
export function writeMarkup(parent, template, fields) {
  const parts = template.split(/(\*\*.+?\*\*|`[^`]+`)/g).filter(Boolean);
  parent.replaceChildren(
    ...parts.map((part) => {
      if (part.startsWith("**")) return element("strong", "", fillFields(part.slice(2, -2), fields));
      if (part.startsWith("`")) return element("code", "", fillFields(part.slice(1, -1), fields));
      return fillFields(part, fields);
    }),
  );
}

/**
 * Return a text without the marks of bold parts and code.
 * @param {string} template
 */
export const withoutMarkup = (template) => template.replace(/\*\*|`/g, "");

/**
 * Return a text in quotation marks.
 * @param {string} text
 * @param {Language} language
 */
export const quoted = (text, language) => (language === "de" ? `„${text}“` : `“${text}”`);
