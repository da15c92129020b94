// The open lesson, beside the page.

/** @import { PageContext } from "./types.d.ts" */

/**
 * Draw the step of the open lesson; nothing if none is open.
 * @param {PageContext} _context
 * @param {HTMLElement} _place an element beside the page
 * @param {Record<string, unknown>} _memory lives as long as the site is open
 */
export function drawLessonPanel(_context, _place, _memory) {}
