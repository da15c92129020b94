// A captioner's picture under the row of a word.

import { peak } from "../components/attention_view/maps.js";

/** @import { Scale } from "../components/messages.d.ts" */

const SHARPNESS = 4; // pixels of the screen for one of the picture, so that the edges of patches are sharp

/**
 * The picture, faint, under a share of colour for each of its patches.
 * @param {HTMLCanvasElement} canvas
 * @param {Uint8Array} pixels red, green and blue of each
 * @param {{ size: [height: number, width: number], grid: [down: number, across: number] }} picture
 * @param {Float32Array} values of the patches
 * @param {Scale} scale
 * @param {boolean} signed
 */
export function drawPicture(canvas, pixels, { size: [height, width], grid: [down, across] }, values, scale, signed) {
  const most = peak(values) || 1;
  [canvas.width, canvas.height] = [width * SHARPNESS, height * SHARPNESS];
  const small = new OffscreenCanvas(width, height);
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    image.data.set(pixels.subarray(3 * i, 3 * i + 3), 4 * i);
    image.data[4 * i + 3] = 255;
  }
  /** @type {OffscreenCanvasRenderingContext2D} */ (small.getContext("2d")).putImageData(image, 0, 0);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.imageSmoothingEnabled = false;
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.filter = "grayscale(1)";
  context.globalAlpha = 0.4;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  context.filter = "none";
  const [wide, tall] = [canvas.width / across, canvas.height / down];
  values.forEach((x, i) => {
    const [row, column] = [Math.floor(i / across), i % across];
    context.globalAlpha = 0.9 * (Math.abs(x) / most) ** 0.6 || 0;
    context.fillStyle = scale[signed && x < 0 ? 1 : scale.length - 2];
    context.fillRect(column * wide, row * tall, wide, tall);
  });
}
