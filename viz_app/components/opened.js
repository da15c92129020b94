// A head that is clicked in a grid, told to the view beside it: what that has, it shows before the server answers.

const EVENT = "headlight-opened";

/** @typedef {{ layer: number, head: number, stamp: number }} Opened stamp: of the click, by a clock that only grows */

/** @param {Opened} opened */
export function tellOpened(opened) {
  document.dispatchEvent(new CustomEvent(EVENT, { detail: opened }));
}

/**
 * @param {Element} root as long as it is on the page
 * @param {(opened: Opened) => void} listen
 */
export function hearOpened(root, listen) {
  const heard = (/** @type {Event} */ event) => {
    if (root.isConnected) listen(/** @type {CustomEvent<Opened>} */ (event).detail);
    else document.removeEventListener(EVENT, heard);
  };
  document.addEventListener(EVENT, heard);
}
