// What every view is made of. Every text reaches the page through textContent; nothing here builds HTML from data.

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} [name] its classes
 * @param {string} [text]
 */
export function element(tag, name = "", text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}

/**
 * The one element that is known to be there.
 * @param {ParentNode} parent
 * @param {string} selector
 */
export const part = (parent, selector) => /** @type {HTMLElement} */ (parent.querySelector(selector));

/**
 * An element's own elements, in order.
 * @param {HTMLElement} node
 */
export const childrenOf = (node) => /** @type {HTMLElement[]} */ ([...node.children]);

/**
 * What an event fell on.
 * @param {Event} event
 */
export const struck = (event) => /** @type {HTMLElement} */ (event.target);

/**
 * One of several can be reached with the tab key; the arrow keys choose which.
 * @param {HTMLElement} parent
 * @param {HTMLElement} node
 */
export function reachable(parent, node) {
  for (const other of /** @type {NodeListOf<HTMLElement>} */ (parent.querySelectorAll('[tabindex="0"]'))) {
    other.tabIndex = -1;
  }
  node.tabIndex = 0;
}

/**
 * The same where all that can be reached are known by their order.
 * @param {HTMLElement[]} nodes
 * @param {number} index
 * @param {boolean} focus
 */
export function reachableAt(nodes, index, focus) {
  nodes.forEach((node, i) => {
    node.tabIndex = i === index ? 0 : -1;
  });
  if (focus) nodes[index]?.focus();
}

/**
 * A text that may be cut, between signs, never inside one of two units.
 * @param {string} text
 * @param {number} longest
 */
export function shortened(text, longest) {
  return text.length > longest ? `${[...text.slice(0, 2 * longest)].slice(0, longest - 1).join("")}…` : text;
}
