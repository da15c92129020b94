// The floor plan of a pass. Every text reaches the page through textContent; nothing here builds HTML from data.

const LOG_SECONDS = 30;

// Only grows, also between two views and when the clock is set back.
let stamp = 0;

export default function ({ data, parentElement, setTriggerValue }) {
  const plan = parentElement.querySelector(".plan");
  const hadFocus = parentElement.activeElement?.matches?.(".stage") ?? false;
  plan.classList.toggle("lecture", data.lecture);
  plan.setAttribute("aria-label", data.label);
  plan.replaceChildren(...data.rooms.map((room) => build(room, data.chosen)));
  const stages = [...plan.querySelectorAll(".stage")];
  move(stages, stages.findIndex((stage) => stage.dataset.name === data.chosen), hadFocus);

  // Assigned, not added: this function runs again with every change of data, on the same elements.
  plan.onclick = (event) => {
    const stage = event.target.closest(".stage");
    if (stage && stage.dataset.name !== data.chosen) setTriggerValue("click", log(plan, stage.dataset.name));
  };
  plan.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const here = stages.indexOf(event.target);
    if (step === undefined || here < 0) return;
    event.preventDefault();
    move(stages, Math.min(Math.max(here + step, 0), stages.length - 1), true);
  };
}

// A room is [title, parts]; a stage is [name, number, title].
function build(part, chosen) {
  if (Array.isArray(part[1])) {
    const room = element("div", "room");
    const parts = element("div", "parts");
    parts.append(...part[1].map((inner) => build(inner, chosen)));
    room.append(element("div", "title", part[0]), parts);
    room.style.setProperty("--stages", room.querySelectorAll(".stage").length);
    return room;
  }
  const [name, number, title] = part;
  const stage = element("button", "stage");
  stage.type = "button";
  stage.dataset.name = name;
  if (name === chosen) stage.setAttribute("aria-current", "step");
  stage.append(element("span", "number", `${number}`), " ", element("span", "name", title));
  return stage;
}

function element(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

// One stage can be reached with the tab key; the arrow keys choose which.
function move(stages, index, focus) {
  stages.forEach((stage, i) => (stage.tabIndex = i === index ? 0 : -1));
  if (focus) stages[index]?.focus();
}

function log(plan, what) {
  const now = Date.now();
  stamp = Math.max(stamp + 1, now);
  plan.clicks = [...(plan.clicks ?? []), [stamp, what]].filter(([at]) => at > now - LOG_SECONDS * 1000).slice(-16);
  return plan.clicks;
}
