// Canvases that are sharp at every density of the screen.

/**
 * A canvas of this size, in pixels of the page, and what draws on it.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
export function sized(canvas, width, height) {
  canvas.width = Math.round(width * density());
  canvas.height = Math.round(height * density());
  const context = drawing(canvas);
  context.scale(density(), density());
  return context;
}

/** @param {HTMLCanvasElement} canvas */
export const drawing = (canvas) => /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));

/** Pixels of the screen for one of the page. */
export const density = () => window.devicePixelRatio || 1;

/**
 * At a whole pixel of the screen.
 * @param {number} x
 */
export const snapped = (x) => Math.round(x * density()) / density();

/** The size of the page's type: in a lecture it grows with the window. */
export const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);

/**
 * The page's own colours and fonts, by the names of its style sheet.
 * @param {Element} node
 */
export function styleOf(node) {
  const style = getComputedStyle(node);
  const named = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return {
    ink: named("--st-text-color"),
    faint: named("--st-gray-text-color"),
    line: named("--st-border-color"),
    ground: named("--st-background-color"),
    family: named("--st-font") || "sans-serif",
    code: named("--st-code-font") || "monospace",
  };
}
