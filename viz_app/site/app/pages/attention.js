// The page Attention.

/** @import { Page } from "../types.d.ts" */

/** @type {Page} */
export const attentionPage = { draw };

/** @type {Page["draw"]} */
async function draw() {}
