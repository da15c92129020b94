// The area of a map outside the window of a local layer, where a query cannot attend to a key.

/** @import { Range } from "./messages.d.ts" */
/** @typedef {{ x: number, y: number, width: number, height: number }} Box in pixels */

/**
 * Hatch the cells of a map that are outside the ranges of their rows.
 * @param {CanvasRenderingContext2D} context
 * @param {Range[]} ranges of each row
 * @param {number} columns
 * @param {Box} first the first cell of the map
 * @param {Box} area that is drawn
 * @param {{ ground: string, faint: string }} colours
 * @param {number} gap between two lines, along the top, in pixels
 */
export function hatch(context, ranges, columns, { x, y, width, height }, area, { ground, faint }, gap) {
  const outside = new Path2D();
  const firstRow = Math.max(Math.floor((area.y - y) / height), 0);
  const lastRow = Math.min(Math.ceil((area.y + area.height - y) / height), ranges.length);
  for (let row = firstRow; row < lastRow; row++) {
    const [first, end] = ranges[row];
    if (first > 0) outside.rect(x, y + row * height, first * width, height);
    if (end < columns) outside.rect(x + end * width, y + row * height, (columns - end) * width, height);
  }
  context.save();
  context.beginPath();
  context.rect(area.x, area.y, area.width, area.height);
  context.clip();
  context.clip(outside);
  context.fillStyle = ground;
  context.fillRect(area.x, area.y, area.width, area.height);
  context.globalAlpha = 0.75; // a contrast of 3 to the ground
  context.strokeStyle = faint;
  context.lineWidth = Math.max(gap / 7, 1);
  context.beginPath();
  for (let at = gap / 2; at < area.width + area.height; at += gap) {
    context.moveTo(area.x + at, area.y);
    context.lineTo(area.x + at - area.height, area.y + area.height);
  }
  context.stroke();
  context.restore();
}
