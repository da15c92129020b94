// Numbers as the figures write them: like `two_digits` and `cell_number` of figures/style.py.

import { halfToEven } from "./rounding.js";

/**
 * A number with two significant digits: 0.97, 0.031, −12, 1.0e−5.
 * @param {number} number
 */
export function twoDigits(number) {
  const [digits, power] = exponential(number);
  if (power < -4 || power > 1) return signed(`${digits}e${power}`);
  return signed(fixed(number, 1 - power));
}

/**
 * A number as short as a cell has room for: 0.07, −1.20, 12.3, 0.00 for what rounds to 0, "" for NaN.
 * @param {number} number
 */
export function cellNumber(number) {
  if (Number.isNaN(number)) return "";
  const size = Math.abs(number);
  return withDecimals(number, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

/**
 * A number with some decimals, without the sign of what rounds to 0.
 * @param {number} number
 * @param {number} decimals
 */
export function withDecimals(number, decimals) {
  const text = fixed(number, decimals);
  return signed(Number(text) === 0 ? text.replace("-", "") : text);
}

/** @param {string} text */
const signed = (text) => text.replaceAll("-", "−");

/**
 * The digits and the power of ten of a number with two significant digits.
 * @param {number} number
 * @returns {[digits: string, power: number]}
 */
function exponential(number) {
  const [digits, power] = number.toExponential(1).split("e");
  return [digits, Number(power)];
}

/**
 * `toFixed`, but as Python rounds: of two numbers that are as near, the even one.
 * @param {number} number
 * @param {number} decimals
 */
function fixed(number, decimals) {
  const isHalf = Math.abs(number * 2 ** (decimals + 1)) % 2 === 1;
  if (!isHalf) return number.toFixed(decimals);
  const even = halfToEven(Math.abs(number) * 10 ** decimals) / 10 ** decimals;
  return (Math.sign(number) * even).toFixed(decimals);
}
