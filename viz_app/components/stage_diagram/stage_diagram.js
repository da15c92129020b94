// The stages of a forward pass as nested groups.

import { logged } from "../clicks.js";
import { element, part, reachableAt, struck } from "../elements.js";

/** @import { Handed, DiagramMessage, Stage, StageGroup } from "../messages.d.ts" */

/** @param {Handed<DiagramMessage>} handed */
export default function stageDiagram({ data, parentElement, setTriggerValue }) {
  const diagram = part(parentElement, ".diagram");
  const hadFocus = parentElement.activeElement?.matches?.(".stage") ?? false;
  diagram.classList.toggle("lecture", data.lecture);
  diagram.setAttribute("aria-label", data.label);
  diagram.replaceChildren(...data.groups.map((group) => build(group, data.selected)));
  const stages = /** @type {HTMLElement[]} */ ([...diagram.querySelectorAll(".stage")]);
  const selected = stages.findIndex((stage) => stage.dataset.name === data.selected);
  reachableAt(stages, selected, hadFocus);

  // Assigned, not added: this function runs again with every change of data, on the same elements.
  diagram.onclick = (event) => {
    const stage = /** @type {HTMLElement | null} */ (struck(event).closest(".stage"));
    if (stage && stage.dataset.name !== data.selected) setTriggerValue("click", logged(diagram, stage.dataset.name));
  };
  diagram.onkeydown = (event) => {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    const here = stages.indexOf(struck(event));
    if (step === undefined || here < 0) return;
    event.preventDefault();
    reachableAt(stages, Math.min(Math.max(here + step, 0), stages.length - 1), true);
  };
}

/** @param {Stage | StageGroup} node */
const isGroup = (node) => Array.isArray(node[1]);

/**
 * @param {Stage | StageGroup} node
 * @param {string} selected
 * @returns {HTMLElement}
 */
function build(node, selected) {
  if (isGroup(node)) {
    const [title, inner] = /** @type {StageGroup} */ (node);
    const group = element("div", "group");
    const parts = element("div", "parts");
    parts.append(...inner.map((child) => build(child, selected)));
    group.append(element("div", "title", title), parts);
    group.style.setProperty("--stages", String(group.querySelectorAll(".stage").length));
    return group;
  }
  const [name, number, title] = /** @type {Stage} */ (node);
  const stage = element("button", "stage");
  stage.type = "button";
  stage.dataset.name = name;
  if (name === selected) stage.setAttribute("aria-current", "step");
  stage.append(element("span", "number", `${number}`), " ", element("span", "name", title));
  return stage;
}
