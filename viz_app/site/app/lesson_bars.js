// The answer of a reader beside the truth, as bars.

import { element } from "../../components/elements.js";
import { formatBarNumber } from "./number_format.js";

/** @import { Bar } from "./lesson_checks.js" */
/** @import { LessonReveal, PageContext } from "./types.d.ts" */

/**
 * Return a chart of bars, whose marks are also written.
 * @param {Pick<LessonReveal, "title" | "bars" | "form">} reveal
 * @param {Bar[]} bars
 * @param {PageContext["text"]} text
 */
export function createBars({ title, bars: labels, form }, bars, text) {
  const figure = element("figure", "lesson-bars");
  const list = element("ul");
  const low = Math.min(0, ...bars.map(({ value }) => value));
  const high = Math.max(0, ...bars.map(({ value }) => value));
  const share = (/** @type {number} */ value) => `${(100 * value) / (high - low || 1)}%`;
  for (const { name, value, mark } of bars) {
    const item = element("li", mark);
    const label = element("span", "label", labels[name] ?? name);
    label.dir = "auto";
    const caption = element("span", "value");
    caption.append(label, " ", element("strong", "", formatBarNumber(value, form)));
    if (mark) caption.append(" ", element("span", "mark", text(`lesson:marks.${mark}`)));
    const track = element("span", "track");
    const bar = element("span", "fill");
    track.setAttribute("aria-hidden", "true");
    bar.style.marginInlineStart = share(Math.min(value, 0) - low);
    bar.style.inlineSize = share(Math.abs(value));
    track.append(bar);
    item.append(caption, track);
    list.append(item);
  }
  figure.append(element("figcaption", "", title), list);
  return figure;
}
