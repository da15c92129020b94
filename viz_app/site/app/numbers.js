// Numbers as text, with the same digits as in the app.

const SMALLEST_EXPONENT = -4; // of a number that is written without an exponent

/**
 * Return a number with two significant digits: 0.97, 0.031, −12, 1.0e−5.
 * @param {number} value
 */
export function twoDigits(value) {
  if (!Number.isFinite(value)) return String(value).replace("-", "−");
  const [digits, power] = value.toExponential(1).split("e");
  const exponent = Number(power);
  const text =
    exponent < SMALLEST_EXPONENT || exponent > 1 ? `${digits}e${exponent}` : value.toFixed(Math.max(0, 1 - exponent));
  return text.replaceAll("-", "−");
}

/**
 * Return a number as short as a cell has room for: 0.07, −1.20, 12.3, 0.00 for what rounds to 0, nothing for NaN.
 * @param {number} value
 */
export function cellNumber(value) {
  if (Number.isNaN(value)) return "";
  const size = Math.abs(value);
  const text = value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}
