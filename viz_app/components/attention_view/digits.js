// Numbers and tokens as text.

import { shortened } from "../elements.js";

/** @import { Token } from "../messages.d.ts" */

export const LONGEST_TOKEN = 60;

/**
 * Probabilities with a fixed number of places, so that they stand below each other; signed values have any size.
 * @param {number} number
 * @param {number} count of places, or of digits where values are signed
 * @param {boolean} signed
 */
export function rounded(number, count, signed) {
  if (!Number.isFinite(number)) return "no number";
  if (number === 0) return "0";
  if (!signed) return number < 0.5 / 10 ** count ? `< ${(10 ** -count).toFixed(count)}` : number.toFixed(count);
  const text = Math.abs(number) < 1e-4 ? number.toExponential(count - 1) : number.toPrecision(count);
  return text.replaceAll("-", "−");
}

/** @param {number} number */
export const exactly = (number) =>
  Number.isFinite(number) ? Number(number.toPrecision(9)).toString().replaceAll("-", "−") : "no number";

/**
 * @param {number} number
 * @param {number} count
 */
export function withPlaces(number, count) {
  if (number === -Infinity) return "−∞";
  return Number.isFinite(number) ? number.toFixed(count).replaceAll("-", "−") : "no number";
}

/** @param {Token} token */
export const placed = ([text, position]) => `${shortened(text, LONGEST_TOKEN)} (${position})`;
