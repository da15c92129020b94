// The page Predictions.

/** @import { Page } from "../types.d.ts" */

/** @type {Page} */
export const predictPage = { draw };

/** @type {Page["draw"]} */
async function draw() {}
