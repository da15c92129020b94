// Plotly itself is not visible to other scripts: its own button "Download plot", which is never shown, makes the file
// with the options that the figure has at the moment of the click.

import { element, part } from "../elements.js";

const PICTURE_FORMATS = ["png", "svg"];
const SCALE = 3; // pixels of a PNG for each pixel on the screen: 300 dpi at the usual size on paper

/**
 * The figure in the element with a class.
 * @param {string} name
 * @returns {(HTMLElement & { _context?: { toImageButtonOptions: object } }) | null}
 */
const plotOf = (name) => document.querySelector(`.${name} .js-plotly-plot`);

/**
 * Plotly saves a file by clicking a link of its own in the document: Streamlit would take that for a click outside the
 * popover in which our button is, and close it.
 * @param {MouseEvent} event
 */
function keepPopoverOpen(event) {
  if (!(event.target instanceof HTMLAnchorElement && event.target.download)) return;
  event.stopImmediatePropagation();
  window.removeEventListener("click", keepPopoverOpen, { capture: true });
}

/** @param {{ parentElement: HTMLElement, data: { chart: string, name: string, alt: string } }} component */
export default function figureFiles({ parentElement, data }) {
  const files = part(parentElement, ".files");
  files.replaceChildren(
    ...PICTURE_FORMATS.map((format) => {
      const button = /** @type {HTMLButtonElement} */ (element("button", "file", format.toUpperCase()));
      button.type = "button";
      button.setAttribute("aria-label", `${format.toUpperCase()}: ${data.alt}`);
      button.onclick = () => {
        const plot = plotOf(data.chart);
        /** @type {HTMLElement | null | undefined} */
        const download = plot?.querySelector(".modebar-btn"); // the only one: `PLOT_BUTTONS` of view.py
        if (!plot?._context || !download) return;
        plot._context.toImageButtonOptions = { format, filename: data.name, scale: format === "png" ? SCALE : 1 };
        window.addEventListener("click", keepPopoverOpen, { capture: true });
        download.dispatchEvent(new MouseEvent("click", { bubbles: false }));
      };
      return button;
    }),
  );
}
