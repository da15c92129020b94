// The page Home.

/** @import { Page } from "../types.d.ts" */

/** @type {Page} */
export const startPage = { draw };

/** @type {Page["draw"]} */
async function draw() {}
