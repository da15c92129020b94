// The page Head ablation.

/** @import { Page } from "../types.d.ts" */

/** @type {Page} */
export const headsPage = { draw };

/** @type {Page["draw"]} */
async function draw() {}
