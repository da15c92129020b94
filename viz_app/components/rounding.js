// Rounding as numpy does it.

/**
 * The nearest integer; of two that are as near, the even one.
 * @param {number} number from 0 to 2 ** 51
 */
export const halfToEven = (number) => number + 2 ** 52 - 2 ** 52;
