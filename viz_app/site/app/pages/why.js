// The page Attribution.

/** @import { Page } from "../types.d.ts" */

/** @type {Page} */
export const whyPage = { draw };

/** @type {Page["draw"]} */
async function draw() {}
