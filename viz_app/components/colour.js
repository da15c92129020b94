// Colours, as Python hands them over (#rrggbb) and as three bytes.

/**
 * @typedef {import("./messages.d.ts").Scale} Scale
 * @typedef {number[]} Rgb three numbers, 0 to 255
 */

/**
 * @param {string} colour
 * @returns {Rgb}
 */
export const rgb = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

/**
 * 256 colours between the given ones. Byte 128 is the zero of signed values: the stops are spread over 0 to 255 so that
 * the middle stop falls on it to within half a step.
 * @param {Scale} stops
 * @returns {Rgb[]}
 */
export function shades(stops) {
  const parts = stops.map(rgb);
  return Array.from({ length: 256 }, (_, i) => {
    const x = (i / 255) * (parts.length - 1);
    const low = Math.min(Math.floor(x), parts.length - 2);
    return parts[low].map((part, c) => Math.round(part + (parts[low + 1][c] - part) * (x - low)));
  });
}

/**
 * The bar of a legend.
 * @param {Rgb[]} colours 256 of them
 */
export function gradient(colours) {
  const stops = [0, 32, 64, 96, 128, 160, 192, 224, 255].map((i) => `rgb(${colours[i].join(" ")})`);
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

/**
 * Relative luminance, 0 to 1.
 * @param {Rgb} colour
 */
export function luminance(colour) {
  const [r, g, b] = colour.map((part) => (part / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * Whether an element stands on a dark page.
 * @param {Element} node
 */
export function isDark(node) {
  const background = getComputedStyle(node).getPropertyValue("--st-background-color").trim() || "#ffffff";
  const [r, g, b] = rgb(background);
  return 0.299 * r + 0.587 * g + 0.114 * b < 128;
}
