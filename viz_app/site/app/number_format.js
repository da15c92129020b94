// Numbers and sentences with numbers, in the format specifications of Python that lessons use.

/** @typedef {Record<string, string | number>} Figures */

const SPECIFICATION = /^(\+?)(,?)(?:\.(\d+))?([fg%]?)$/;
const MANY_DIGITS = 100; // enough for the exact decimal expansion of every number of a lesson
const DEFAULT_PRECISION = 6;

/**
 * Return a sentence with its figures in place of {name} or {name:specification}; {{ and }} are braces.
 * @param {string} sentence
 * @param {Figures} figures
 */
export function fillFigures(sentence, figures) {
  return sentence.replace(/\{\{|\}\}|\{(\w+)(?::([^{}]*))?\}/g, (whole, name, specification) => {
    if (name === undefined) return whole[0];
    if (!Object.hasOwn(figures, name)) throw new RangeError(`There is no figure ${name}.`);
    const value = figures[name];
    return typeof value === "number" ? formatNumber(value, specification) : value;
  });
}

/**
 * Return a number as Python formats it, with a sign, thousands separators, a precision and one of f, g and %.
 * @param {number} value
 * @param {string} [specification]
 */
export function formatNumber(value, specification = "") {
  const parts = SPECIFICATION.exec(specification);
  if (!parts) throw new RangeError(`The format specification ${specification} is not supported.`);
  const [, plus, comma, digits, type] = parts;
  const precision = digits === undefined ? undefined : Number(digits);
  const isNegative = value < 0 || Object.is(value, -0);
  const text = formatMagnitude(Math.abs(value), type, precision);
  return (isNegative ? "-" : plus) + (comma ? grouped(text) : text);
}

/**
 * Return a number as it is written beside a bar: with a minus sign instead of a hyphen, and without a negative zero.
 * @param {number} value
 * @param {string} specification
 */
export function formatBarNumber(value, specification) {
  const text = formatNumber(value, specification);
  const isZero = !/[1-9]/.test(text);
  return isZero ? text.replace("-", specification.startsWith("+") ? "+" : "") : text.replaceAll("-", "−");
}

/**
 * @param {number} value not negative
 * @param {string} type
 * @param {number | undefined} precision
 */
function formatMagnitude(value, type, precision) {
  if (!Number.isFinite(value)) return (Number.isNaN(value) ? "nan" : "inf") + (type === "%" ? "%" : "");
  if (type === "f") return fixed(value, precision ?? DEFAULT_PRECISION);
  if (type === "%") return `${fixed(value * 100, precision ?? DEFAULT_PRECISION)}%`;
  if (type === "" && precision === undefined) return String(value);
  return general(value, Math.max(precision ?? DEFAULT_PRECISION, 1));
}

/**
 * Return a number with some decimals; halves are rounded to the even neighbour.
 * @param {number} value
 * @param {number} decimals
 */
function fixed(value, decimals) {
  const rounded = value.toFixed(decimals);
  const exact = value.toFixed(MANY_DIGITS);
  const end = exact.indexOf(".") + 1 + decimals;
  const isHalf = /^50*$/.test(exact.slice(end));
  const below = exact.slice(0, decimals ? end : end - 1);
  return isHalf && Number(below.at(-1)) % 2 === 0 ? below : rounded;
}

/**
 * Return a number with some significant digits, without zeros at its end, with an exponent if it is large or small.
 * @param {number} value
 * @param {number} precision
 */
function general(value, precision) {
  if (value === 0) return "0";
  const [mantissa, exponent] = value.toExponential(precision - 1).split("e");
  const power = Number(exponent);
  if (power >= -4 && power < precision) return withoutZeros(fixed(value, precision - 1 - power));
  const magnitude = String(Math.abs(power)).padStart(2, "0");
  return `${withoutZeros(mantissa)}e${power < 0 ? "-" : "+"}${magnitude}`;
}

/** @param {string} digits */
const withoutZeros = (digits) => (digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits);

/** @param {string} text */
function grouped(text) {
  const [whole] = /^\d*/.exec(text) ?? [""];
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + text.slice(whole.length);
}
