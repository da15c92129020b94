// Browsers open an element that scrolls at its left edge, where the target of a wide figure may be out of sight.

import { part } from "../elements.js";

const WAIT = 100; // ms between two attempts, while Streamlit draws the figure
const ATTEMPTS = 100;

/** @param {{ parentElement: HTMLElement, data: { place: string, center: number, identity: string } }} component */
export default function figureScroll({ parentElement, data }) {
  const state = part(parentElement, ".state");
  if (state.dataset.identity === data.identity) return;
  state.dataset.identity = data.identity;
  let attempts = 0;

  function scroll() {
    const place = document.querySelector(`.${data.place}`);
    if (place?.querySelector(".main-svg")) {
      place.scrollLeft = data.center * place.scrollWidth - place.clientWidth / 2;
    } else if (++attempts < ATTEMPTS) {
      setTimeout(scroll, WAIT);
    }
  }

  scroll();
}
