// A lesson on paper: the reader answers, and only then sees what is true.

/**
 * What is said of an answer. Where a bar starts and how long it is are shares of the width; its mark: "yours",
 * "true", "both" or none.
 * @typedef {{ label: string, number: string, start: number, length: number, mark: string, mark_label: string }} Bar
 * @typedef {{ paragraphs: string[], bars: Bar[] }} Outcome
 */

/** @type {Record<string, Outcome>} */
const outcomes = JSON.parse(/** @type {HTMLElement} */ (document.getElementById("outcomes")).textContent ?? "");
const form = /** @type {HTMLFormElement} */ (document.querySelector("form"));
const say = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
const truth = /** @type {HTMLElement} */ (document.getElementById("truth"));

/** What is chosen, as the outcomes name it; nothing of them until all of it is. */
function answer() {
  const parts = new FormData(form).getAll("answer").map(String);
  return outcomes[parts.every(Boolean) ? parts.map(Number).join(",") : ""];
}

/** @param {Bar} bar */
function line({ label, number, start, length, mark, mark_label }) {
  const item = document.createElement("li");
  const strong = document.createElement("b");
  const drawn = document.createElement("div");
  item.className = mark === "both" ? "true" : mark;
  strong.textContent = number;
  drawn.style.marginLeft = `${100 * start}%`;
  drawn.style.width = `${100 * length}%`;
  item.append(`${label} `, strong, ` ${mark_label}`, drawn);
  return item;
}

form.addEventListener("input", () => {
  say.disabled = !answer();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const given = answer();
  if (!given) return;
  for (const part of form.querySelectorAll("fieldset, button")) part.toggleAttribute("disabled", true);
  const paragraphs = given.paragraphs.map((text) => {
    const paragraph = document.createElement("p");
    paragraph.textContent = text;
    return paragraph;
  });
  document.getElementById("says")?.replaceChildren(...paragraphs);
  document.getElementById("bars")?.replaceChildren(...given.bars.map(line));
  truth.hidden = false;
  truth.querySelector("h2")?.focus();
});
document.getElementById("needs")?.remove();
document.body.dataset.ready = "";
