// The page Lessons.

/** @import { Page } from "../types.d.ts" */

/** @type {Page} */
export const learnPage = { draw };

/** @type {Page["draw"]} */
async function draw() {}
