// The token strip. Every text reaches the page through textContent; nothing here builds HTML from data.

const LONGEST_TIP = 600;
const LOG_SECONDS = 30;
const LONG = 100; // tokens of a text that would fill four lines of a wide window

// Only grows, also between two views and when the clock is set back.
let stamp = 0;

export default function ({ data, parentElement, setTriggerValue }) {
  const strip = parentElement.querySelector(".strip");
  const tip = parentElement.querySelector(".tip");
  const dark = isDark(strip);
  strip.classList.toggle("lecture", data.lecture);
  strip.classList.toggle("on-dark", dark);
  strip.classList.toggle("long", data.chips.length > LONG);
  strip.classList.toggle("numbered", data.chips.some((chip) => chip[7]));
  tip.classList.toggle("lecture", data.lecture);
  strip.setAttribute("aria-label", data.label);
  for (const [side, [light, night]] of Object.entries(data.tints)) {
    strip.style.setProperty(`--tint-${side.toLowerCase()}`, (dark ? night : light)[0]);
  }

  const focused = parentElement.activeElement?.dataset?.word;
  const hadFocus = focused !== undefined;
  const first = strip.childElementCount === 0;
  const scrolled = strip.scrollTop;
  strip.replaceChildren(...build(data, dark));
  strip.scrollTop = first ? placeOfInterest(strip) : scrolled;
  hide(tip);
  if ((strip.dataset.appear ?? "") !== data.appear) {
    strip.dataset.appear = data.appear;
    if (data.appear) [...strip.children].forEach(appear);
  }

  const words = [...strip.querySelectorAll("button:not(:disabled)")];
  const kept = words.findIndex((word) => word.dataset.word === (focused ?? strip.dataset.current));
  move(words, Math.max(kept, 0), hadFocus);

  // Assigned, not added: this function runs again with every change of data, on the same elements.
  strip.onclick = (event) => {
    const word = event.target.closest("button.word");
    if (!word || word.disabled) return;
    move(words, words.indexOf(word), false);
    strip.dataset.current = word.dataset.word;
    setTriggerValue("click", log(strip, Number(word.dataset.word)));
  };
  strip.onkeydown = (event) => {
    if (event.key === "Escape") hide(tip);
    // A key held down is one click, not many.
    if (event.repeat && (event.key === "Enter" || event.key === " ")) event.preventDefault();
    const next = neighbour(words, words.indexOf(event.target), event.key);
    if (next === null) return;
    event.preventDefault();
    move(words, next, true);
    strip.dataset.current = words[next].dataset.word;
    show(tip, words[next], tipText([...words[next].children]));
  };
  strip.onpointerover = (event) => {
    const piece = event.target.closest(".piece");
    if (piece) show(tip, piece, tipText([piece]));
    else hide(tip);
  };
  strip.onpointerleave = () => hide(tip);
  strip.onscroll = () => hide(tip);
}

// How far to scroll so that the target, or else the first hidden word, is seen when the strip is drawn first.
function placeOfInterest(strip) {
  const piece = strip.querySelector(".target") ?? strip.querySelector(".masked");
  if (!piece) return 0;
  const [line, box] = [piece.getBoundingClientRect(), strip.getBoundingClientRect()];
  return line.bottom > box.bottom ? line.top - box.top - line.height : 0;
}

function appear(part, number) {
  part.classList.add("appear");
  part.style.animationDelay = `${number * 110}ms`;
}

function build({ chips, disabled }, dark) {
  const pair = chips.some((chip) => chip[3] === "B");
  const parts = [];
  let word = null;
  let side = null;
  for (const [text, title, number, chipSide, special, masked, target, note, shades] of chips) {
    if (pair && !special && chipSide !== side) {
      side = chipSide;
      if (side) parts.push(element("span", "side", side));
    }
    const piece = element("span", "piece", text);
    piece.dir = "auto";
    piece.dataset.title = title;
    if (chipSide && !special) piece.classList.add(chipSide.toLowerCase());
    for (const [name, is] of Object.entries({ special, masked, target })) piece.classList.toggle(name, is);
    if (note) piece.append(" ", element("span", "number", note));
    if (shades) {
      const [ground, ink] = shades[Number(dark)];
      piece.style.background = ground;
      piece.style.color = ink;
    }
    if (special || number === null) {
      word = null;
      parts.push(piece);
      continue;
    }
    if (word === null || word.dataset.word !== String(number)) {
      word = element("button", "word");
      word.type = "button";
      word.disabled = disabled;
      word.tabIndex = -1;
      word.dataset.word = number;
      parts.push(word);
    }
    word.append(piece);
  }
  for (const button of parts) {
    if (button.matches("button")) describe(button);
  }
  return parts;
}

function describe(word) {
  const pieces = [...word.children];
  const has = (name) => pieces.some((piece) => piece.classList.contains(name));
  const said = [pieces.map((piece) => piece.textContent).join(" ")];
  for (const side of ["a", "b"]) if (has(side)) said.push(`sentence ${side.toUpperCase()}`);
  if (has("target")) said.push("target");
  word.setAttribute("aria-label", said.join(", "));
  word.setAttribute("aria-pressed", String(has("masked")));
}

function element(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

// One word can be reached with the tab key; the arrow keys choose which.
function move(words, index, focus) {
  words.forEach((word, i) => (word.tabIndex = i === index ? 0 : -1));
  if (focus) words[index]?.focus();
}

function neighbour(words, index, key) {
  if (index < 0) return null;
  if (key === "ArrowRight") return Math.min(index + 1, words.length - 1);
  if (key === "ArrowLeft") return Math.max(index - 1, 0);
  if (key === "Home") return 0;
  if (key === "End") return words.length - 1;
  if (key !== "ArrowDown" && key !== "ArrowUp") return null;
  // The nearest word on the next line in that direction.
  const here = words[index].getBoundingClientRect();
  const sign = key === "ArrowDown" ? 1 : -1;
  let best = index;
  let shortest = Infinity;
  words.forEach((word, i) => {
    const box = word.getBoundingClientRect();
    const lines = sign * (box.top - here.top);
    const distance = lines * 1000 + Math.abs(box.left + box.width / 2 - here.left - here.width / 2);
    if (lines > here.height / 2 && distance < shortest) [best, shortest] = [i, distance];
  });
  return best;
}

function log(strip, what) {
  const now = Date.now();
  stamp = Math.max(stamp + 1, now);
  strip.clicks = [...(strip.clicks ?? []), [stamp, what]].filter(([at]) => at > now - LOG_SECONDS * 1000).slice(-16);
  return strip.clicks;
}

function tipText(pieces) {
  return pieces
    .map((piece) => {
      const cut = piece.scrollWidth > piece.clientWidth + 1;
      const whole = cut ? `${shorten(piece.textContent)}\n` : "";
      return whole + shorten(piece.dataset.title);
    })
    .join("\n");
}

function shorten(text) {
  return text.length > LONGEST_TIP ? `${text.slice(0, LONGEST_TIP)}…` : text;
}

function show(tip, anchor, text) {
  if (!text) return hide(tip);
  tip.textContent = text;
  tip.showPopover();
  const at = anchor.getBoundingClientRect();
  const box = tip.getBoundingClientRect();
  const below = at.bottom + 6 + box.height < window.innerHeight;
  tip.style.left = `${Math.max(4, Math.min(at.left, window.innerWidth - box.width - 4))}px`;
  tip.style.top = `${below ? at.bottom + 6 : at.top - 6 - box.height}px`;
}

function hide(tip) {
  tip.hidePopover();
}

function isDark(node) {
  const [r, g, b] = getComputedStyle(node)
    .getPropertyValue("--st-background-color")
    .trim()
    .replace("#", "")
    .match(/../g)
    .map((part) => parseInt(part, 16));
  return 0.299 * r + 0.587 * g + 0.114 * b < 128;
}
