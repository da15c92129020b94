// The grid of heads. Every text reaches the page through textContent; nothing here builds HTML from data.

const LONGEST_TIP = 600;
const LOG_SECONDS = 30;
// The luminance from which black has more contrast than white.
const BLACK_READS_BETTER = 0.179;

// Only grows, also between two views and when the clock is set back.
let stamp = 0;

export default function ({ data, parentElement, setTriggerValue }) {
  const frame = parentElement.querySelector(".frame");
  const grid = parentElement.querySelector(".grid");
  const tip = parentElement.querySelector(".tip");
  const { header, pixels } = unpack(data);
  const dark = isDark(frame);
  const colours = table(dark ? header.colours[1] : header.colours[0]);
  frame.classList.toggle("lecture", header.lecture);
  frame.classList.toggle("fills", Boolean(header.fills));
  tip.classList.toggle("lecture", header.lecture);

  // The cells stay as long as the grid has the same form, so that the focus stays too.
  const form = [header.layers, header.heads, header.mode, header.size === null, header.order, header.rows].join();
  if (grid.dataset.form !== form) {
    grid.dataset.form = form;
    grid.style.setProperty("--heads", header.heads);
    frame.style.setProperty("--layers", header.layers);
    grid.classList.toggle("pictures", header.size !== null);
    grid.replaceChildren(...build(header));
    hide(tip);
  }
  const at = (layer, head) => grid.querySelector(`[data-layer="${layer}"][data-head="${head}"]`);
  grid.paint = () => paint(grid, header, pixels, colours);
  grid.paint();
  if (!grid.observer) {
    grid.observer = new ResizeObserver(() => grid.paint());
    grid.observer.observe(grid);
  }
  legend(parentElement.querySelector(".legend"), header, colours);
  if (!grid.querySelector('[tabindex="0"]')) {
    const [layer, head] = header.selected ?? [0, 0];
    const first = at(layer, head);
    (first && !first.disabled ? first : grid.querySelector("button:not(:disabled)") ?? first).tabIndex = 0;
  }

  // Assigned, not added: this function runs again with every change of data, on the same elements.
  grid.onclick = (event) => {
    const button = event.target.closest("button");
    if (!button || button.disabled) return;
    focusable(grid, button);
    const place = [button.dataset.layer, button.dataset.head].map((n) => (n === "" ? null : Number(n)));
    setTriggerValue("click", log(grid, place));
  };
  grid.onkeydown = (event) => {
    if (event.key === "Escape") hide(tip);
    // A key held down is one click, not many.
    if (event.repeat && (event.key === "Enter" || event.key === " ")) event.preventDefault();
    const next = neighbour(header, event.target, event.key, at);
    if (!next) return;
    event.preventDefault();
    focusable(grid, next);
    next.focus();
    show(tip, next, tipText(header, next));
  };
  grid.onpointerover = (event) => {
    const button = event.target.closest("button");
    if (button) show(tip, button, tipText(header, button));
    else hide(tip);
  };
  grid.onpointerleave = () => hide(tip);
}

// Four bytes with the length of the header, the header as JSON, then one byte a pixel: layer, head, row, column.
function unpack(data) {
  const length = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
  return { header, pixels: data.subarray(4 + length) };
}

function build({ layers, heads, mode, size, order, rows: placed }) {
  const corner = element("div", "");
  corner.setAttribute("role", "columnheader");
  const top = row([corner]);
  // In an order of their own the heads of a layer are not those of the next: a column has no name.
  const named = (head) => (order ? { 0: "most", [heads - 1]: heads > 1 ? "least" : "most" }[head] ?? "" : `H${head}`);
  for (let head = 0; head < heads; head++) top.append(label("columnheader", mode, "", head, named(head)));
  const rows = [top];
  for (let place = 0; place < layers; place++) {
    const layer = placed ? placed[place] : place;
    const cells = [label("rowheader", mode, layer, "", `L${layer}`)];
    for (let place = 0; place < heads; place++) {
      const head = order ? order[layer][place] : place;
      const button = element("button", "cell");
      button.type = "button";
      button.tabIndex = -1;
      button.dataset.layer = layer;
      button.dataset.head = head;
      if (size) {
        button.classList.add("picture");
        button.append(element("canvas", ""));
      } else {
        button.append(element("span", "number"));
      }
      cells.push(wrapped("gridcell", button));
    }
    rows.push(row(cells));
  }
  return rows;
}

function label(role, mode, layer, head, text) {
  // The letter goes first where there is no room.
  const parts = text.startsWith("H") ? [element("span", "letter", "H"), text.slice(1)] : [text];
  if (mode !== "switch") {
    const made = element("span", "label");
    made.append(...parts);
    return wrapped(role, made);
  }
  const button = element("button", "label");
  button.append(...parts);
  button.type = "button";
  button.tabIndex = -1;
  button.dataset.layer = layer;
  button.dataset.head = head;
  button.setAttribute("aria-label", head === "" ? `switch layer ${layer}` : `switch head ${head} in every layer`);
  return wrapped(role, button);
}

function row(cells) {
  const made = element("div", "row");
  made.setAttribute("role", "row");
  made.append(...cells);
  return made;
}

function wrapped(role, child) {
  const made = element("div", "");
  made.setAttribute("role", role);
  made.append(child);
  return made;
}

function element(tag, name, text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}

function paint(grid, header, pixels, colours) {
  // Most runs change only what is chosen: the pictures are painted when they, or the page, have changed.
  const before = grid.painted;
  const room = header.size && roomOf(grid, header.size);
  const now = [colours[255], room, grid.dataset.form].join();
  const same = before?.now === now && before.pixels.length === pixels.length
    && before.pixels.every((code, i) => code === pixels[i]);
  if (!same) grid.painted = { now, pixels: pixels.slice() };
  const off = new Set(header.off.map(String));
  const chosen = String(header.selected);
  const gone = new Set(header.gone.map(String));
  for (const button of grid.querySelectorAll("button.cell")) {
    const layer = Number(button.dataset.layer);
    const head = Number(button.dataset.head);
    const isOff = off.has(`${layer},${head}`);
    const isChosen = chosen === `${layer},${head}`;
    button.classList.toggle("off", isOff);
    button.classList.toggle("selected", isChosen);
    button.setAttribute("aria-pressed", String(header.mode === "switch" ? !isOff : isChosen));
    const share = header.shares?.[layer][head];
    const number = header.numbers?.[layer][head];
    button.disabled = share === null || gone.has(`${layer},${head}`);
    const said = [`L${layer} H${head}`];
    if (button.disabled) said.push("pruned");
    else if (number) said.push(number);
    if (isOff) said.push("off");
    button.setAttribute("aria-label", said.join(", "));
    if (header.size) button.querySelector("canvas").hidden = button.disabled;
    if (header.size) {
      if (same) continue;
      const [rows, columns] = header.size;
      const start = (layer * header.heads + head) * rows * columns;
      const codes = pixels.subarray(start, start + rows * columns);
      draw(button.querySelector("canvas"), fitted(codes, header, room), room, colours);
    } else {
      button.querySelector(".number").textContent = number ?? "";
      const colour = share == null ? null : colours[Math.round(share * 255)];
      button.style.backgroundColor = colour ? `rgb(${colour.join(" ")})` : "";
      button.style.color = colour ? (luminance(colour) > BLACK_READS_BETTER ? "#000000" : "#ffffff") : "";
    }
  }
}

// Rows and columns of a picture: its own, or as many pixels as the screen has for it.
function roomOf(grid, size) {
  const pixels = Math.round(grid.querySelector("button.cell").clientWidth * (window.devicePixelRatio || 1));
  return size.map((length) => Math.min(length, pixels || length));
}

// Of the values that share a pixel of the screen the strongest is shown, so that no line is lost.
function fitted(codes, { size: [rows, columns], signed }, [height, width]) {
  if (height === rows && width === columns) return codes;
  const strength = (code) => (signed ? Math.abs(code - 128) : code);
  const made = new Uint8Array(height * width).fill(signed ? 128 : 0);
  for (let i = 0; i < codes.length; i++) {
    const at = Math.floor((Math.floor(i / columns) * height) / rows) * width + Math.floor(((i % columns) * width) / columns);
    if (strength(codes[i]) > strength(made[at])) made[at] = codes[i];
  }
  return made;
}

// One pixel a value; the style sheet enlarges them with hard edges, sharp at every density of the screen.
function draw(canvas, values, [rows, columns], colours) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let i = 0; i < values.length; i++) {
    const [r, g, b] = colours[values[i]];
    image.data[4 * i] = r;
    image.data[4 * i + 1] = g;
    image.data[4 * i + 2] = b;
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

function legend(node, header, colours) {
  node.hidden = !header.legend;
  if (!header.legend) return;
  const [low, bar, high, unit] = node.children;
  [low.textContent, high.textContent] = header.legend;
  unit.textContent = header.unit;
  const stops = [0, 32, 64, 96, 128, 160, 192, 224, 255].map((i) => `rgb(${colours[i].join(" ")})`);
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
}

// 256 colours between the given ones. Byte 128 is the zero of signed values: the stops are spread over 0 to 255 so
// that the middle stop falls on it to within half a step.
function table(stops) {
  const parts = stops.map((stop) => stop.slice(1).match(/../g).map((part) => parseInt(part, 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const x = (i / 255) * (parts.length - 1);
    const low = Math.min(Math.floor(x), parts.length - 2);
    return parts[low].map((part, c) => Math.round(part + (parts[low + 1][c] - part) * (x - low)));
  });
}

// One button can be reached with the tab key; the arrow keys choose which.
function focusable(grid, button) {
  for (const other of grid.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  button.tabIndex = 0;
}

function neighbour(header, button, key, at) {
  const first = header.mode === "switch" ? -1 : 0;
  const number = (text) => (text === "" ? -1 : Number(text));
  let layer = number(button.dataset.layer);
  if (header.rows) layer = header.rows.indexOf(layer);
  // Steps are from place to place; only without an order is the place of a layer or a head its number.
  const layerAt = (place) => (header.rows && place >= 0 ? header.rows[place] : place);
  let head = number(button.dataset.head);
  if (header.order) head = header.order[layerAt(layer)].indexOf(head);
  const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[key];
  const edge = { Home: first, End: header.heads - 1 }[key];
  if (!step && edge === undefined) return null;
  for (;;) {
    if (step) [layer, head] = [layer + step[0], head + step[1]];
    else head = edge;
    if (layer < first || head < first || layer >= header.layers || head >= header.heads) return null;
    const row = layerAt(layer);
    const there = header.order ? header.order[row][head] : head;
    const found = at(row === -1 ? "" : row, there === -1 ? "" : there);
    // A pruned head cannot be focused: go on past it.
    if (found && !found.disabled) return found;
    if (!step) return null;
  }
}

function log(grid, what) {
  const now = Date.now();
  stamp = Math.max(stamp + 1, now);
  grid.clicks = [...(grid.clicks ?? []), [stamp, what]].filter(([at]) => at > now - LOG_SECONDS * 1000).slice(-16);
  return grid.clicks;
}

function tipText(header, button) {
  if (button.matches(".label")) return button.getAttribute("aria-label");
  const text = header.titles[button.dataset.layer]?.[button.dataset.head] ?? button.getAttribute("aria-label");
  return text.length > LONGEST_TIP ? `${text.slice(0, LONGEST_TIP)}…` : text;
}

function show(tip, anchor, text) {
  if (!text) return hide(tip);
  tip.textContent = text;
  tip.showPopover();
  const at = anchor.getBoundingClientRect();
  const box = tip.getBoundingClientRect();
  const below = at.bottom + 8 + box.height < window.innerHeight;
  tip.style.left = `${Math.max(4, Math.min(at.left, window.innerWidth - box.width - 4))}px`;
  tip.style.top = `${below ? at.bottom + 8 : at.top - 8 - box.height}px`;
}

function hide(tip) {
  tip.hidePopover();
}

// Relative luminance, 0 to 1.
function luminance(colour) {
  const [r, g, b] = colour.map((part) => (part / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function isDark(node) {
  const background = getComputedStyle(node).getPropertyValue("--st-background-color").trim();
  return luminance(background.slice(1).match(/../g).map((part) => parseInt(part, 16))) < 0.2;
}
