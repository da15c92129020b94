// The floor plan of a pass.

import { logged } from "../clicks.js";
import { element, part, reachableAt, struck } from "../elements.js";

/** @import { Handed, PlanMessage, Room, Stage } from "../messages.d.ts" */

/** @param {Handed<PlanMessage>} handed */
export default function floorPlan({ data, parentElement, setTriggerValue }) {
  const plan = part(parentElement, ".plan");
  const hadFocus = parentElement.activeElement?.matches?.(".stage") ?? false;
  plan.classList.toggle("lecture", data.lecture);
  plan.setAttribute("aria-label", data.label);
  plan.replaceChildren(...data.rooms.map((room) => build(room, data.chosen)));
  const stages = /** @type {HTMLElement[]} */ ([...plan.querySelectorAll(".stage")]);
  const chosen = stages.findIndex((stage) => stage.dataset.name === data.chosen);
  reachableAt(stages, chosen, hadFocus);

  // Assigned, not added: this function runs again with every change of data, on the same elements.
  plan.onclick = (event) => {
    const stage = /** @type {HTMLElement | null} */ (struck(event).closest(".stage"));
    if (stage && stage.dataset.name !== data.chosen) setTriggerValue("click", logged(plan, stage.dataset.name));
  };
  plan.onkeydown = (event) => {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    const here = stages.indexOf(struck(event));
    if (step === undefined || here < 0) return;
    event.preventDefault();
    reachableAt(stages, Math.min(Math.max(here + step, 0), stages.length - 1), true);
  };
}

/** @param {Stage | Room} one */
const isRoom = (one) => Array.isArray(one[1]);

/**
 * @param {Stage | Room} one
 * @param {string} chosen
 * @returns {HTMLElement}
 */
function build(one, chosen) {
  if (isRoom(one)) {
    const [title, inner] = /** @type {Room} */ (one);
    const room = element("div", "room");
    const parts = element("div", "parts");
    parts.append(...inner.map((below) => build(below, chosen)));
    room.append(element("div", "title", title), parts);
    room.style.setProperty("--stages", String(room.querySelectorAll(".stage").length));
    return room;
  }
  const [name, number, title] = /** @type {Stage} */ (one);
  const stage = element("button", "stage");
  stage.type = "button";
  stage.dataset.name = name;
  if (name === chosen) stage.setAttribute("aria-current", "step");
  stage.append(element("span", "number", `${number}`), " ", element("span", "name", title));
  return stage;
}
