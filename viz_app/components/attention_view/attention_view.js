// Heads of one layer as curves. Every text reaches the page through textContent; nothing here builds HTML from data.

const HIGHEST = 254;
const ZERO = 127;
const NO_NUMBER = 255;
const LONGEST_LABEL = 60;
const LONGEST_TIP = 600;
const MOST_CURVES = 6000;
const LINES_SHOWN = 10;
const LONGEST_ASK = 64;
const CACHE_BYTES = 32 << 20;
const DASHES = [[], [7, 4], [2, 3], [8, 3, 2, 3]];

// Maps by the name of their content; they outlive the view, so that coming back costs nothing.
const cache = new Map();
// Only grows, also between two views and when the clock is set back.
let stamp = 0;

export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".view");
  root.view ??= mount(root, parentElement.querySelector(".tip"));
  root.view.say = (said) => setStateValue("said", said);
  receive(root.view, data);
}

// ------------------------------------------------------------------------------------------------ what arrives

function receive(view, data) {
  const { header, tail } = unpack(data);
  let at = 0;
  const floats = (count) => {
    at += 4 * count;
    return new Float32Array(tail, at - 4 * count, count);
  };
  const [rows, columns] = [header.queries.length, header.keys.length];
  for (const head of header.sent) {
    const maxima = floats(rows);
    const codes = new Uint8Array(tail, at, rows * columns);
    at += Math.ceil((rows * columns) / 4) * 4;
    const map = { rows, columns, maxima, codes, signed: header.signed, exact: new Map(), bytes: rows * columns };
    cache.set(header.names[head], map);
  }
  for (const head of header.drawn) {
    for (const [side, index] of header.lines) {
      const line = floats(side === "query" ? columns : rows);
      cache.get(header.names[head])?.exact.set(side + index, line.slice());
    }
  }
  forget(header);
  if (header.drawn.some((head) => !cache.has(header.names[head]))) {
    // The server believes that a map is here which has gone: say what is.
    view.say(message(view, []));
    return;
  }
  const before = view.header;
  view.header = header;
  // What was chosen here since the server last heard of it is newer than what it says.
  if (!view.choice || header.stamp >= view.chosenAt) {
    view.choice = {
      layer: header.layer,
      heads: [...header.heads],
      side: header.selected[0],
      positions: [...header.selected[1]],
      kept: header.kept,
    };
  }
  const same = (name) => before && JSON.stringify(before[name]) === JSON.stringify(header[name]);
  const sameText = same("queries") && same("keys") && same("lecture");
  build(view, sameText);
  refresh(view);
}

// Four bytes with the length of the header, the header as JSON, then the arrays, each at a multiple of four.
function unpack(data) {
  const length = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
  return { header, tail: data.slice(4 + length).buffer };
}

// The oldest maps go first, but none that is needed now.
function forget(header) {
  const needed = new Set(Object.values(header.names));
  let bytes = 0;
  for (const map of cache.values()) bytes += map.bytes;
  for (const [name, map] of cache) {
    if (bytes < CACHE_BYTES) return;
    if (needed.has(name)) continue;
    cache.delete(name);
    bytes -= map.bytes;
  }
}

function mapOf(view, head) {
  return cache.get(view.header.names[head]);
}

function value(map, row, column) {
  const code = map.codes[row * map.columns + column];
  if (code === NO_NUMBER) return NaN;
  return (map.signed ? (code - ZERO) / ZERO : code / HIGHEST) * map.maxima[row];
}

// A row or a column of a map: exact where the server has sent it, else as it was drawn.
function line(map, side, index) {
  const exact = map.exact.get(side + index);
  if (exact) return { numbers: exact, exact: true };
  const length = side === "query" ? map.columns : map.rows;
  const numbers = Float32Array.from({ length }, (_, i) =>
    side === "query" ? value(map, index, i) : value(map, i, index),
  );
  return { numbers, exact: false };
}

// All values by size with their running sums, made once.
function ranked(map) {
  if (map.ranked) return map.ranked;
  const sizes = new Float32Array(map.codes.length);
  for (let row = 0, i = 0; row < map.rows; row++) {
    for (let column = 0; column < map.columns; column++, i++) sizes[i] = Math.abs(value(map, row, column)) || 0;
  }
  sizes.sort();
  sizes.reverse();
  const sums = new Float64Array(sizes.length);
  let sum = 0;
  for (let i = 0; i < sizes.length; i++) sums[i] = sum += sizes[i];
  return (map.ranked = { sizes, sums });
}

// How many of the strongest values hold this share of all.
function countHolding(map, kept) {
  const { sums } = ranked(map);
  const wanted = kept * sums.at(-1) - 1e-9;
  let [low, high] = [0, sums.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sums[middle] >= wanted) high = middle;
    else low = middle + 1;
  }
  return low + 1;
}

// ------------------------------------------------------------------------------------------------ what is said

// Only the newest message reaches the server: a choice that it has not answered yet goes along again.
function message(view, lines) {
  const answered = !view.choice || view.header.stamp >= view.chosenAt;
  const choice = answered ? null : { ...view.choice };
  return { stamp: view.chosenAt, turn: ++stamp, choice, have: [...cache.keys()], lines };
}

// A change of the choice is shown at once, and told when the hand rests.
function choose(view, change, wait = 180) {
  Object.assign(view.choice, change);
  stamp = view.chosenAt = Math.max(stamp + 1, Date.now());
  clearTimeout(view.telling);
  view.telling = setTimeout(() => view.say(message(view, wantedLines(view))), wait);
  refresh(view);
}

// The exact numbers of what is looked at, if they are not here yet.
function ask(view) {
  clearTimeout(view.asking);
  if (!wantedLines(view).length) return;
  view.asking = setTimeout(() => {
    const lines = wantedLines(view);
    if (lines.length) view.say(message(view, lines));
  }, 160);
}

function wantedLines(view) {
  const active = activeTokens(view);
  if (!active) return [];
  const missing = (index) =>
    drawnHeads(view).some((head) => !mapOf(view, head)?.exact.has(active.side + index));
  return active.indices.filter(missing).slice(0, LONGEST_ASK).map((index) => [active.side, index]);
}

function drawnHeads(view) {
  return view.choice.heads.filter((head) => !view.header.pruned.includes(head) && mapOf(view, head));
}

// The token under the pointer or the keyboard, else those selected; null for none.
function activeTokens(view) {
  if (view.focus) return { side: view.focus.side, indices: [view.focus.index] };
  const { side, positions } = view.choice;
  const indices = tokens(view, side).flatMap(([, position], i) => (positions.includes(position) ? [i] : []));
  return indices.length ? { side, indices } : null;
}

const other = (side) => (side === "query" ? "key" : "query");
const tokens = (view, side) => (side === "query" ? view.header.queries : view.header.keys);

// For each drawn head, what goes between the active tokens and every token of the other column.
function sums(view, active) {
  return drawnHeads(view).map((head) => {
    const map = mapOf(view, head);
    const total = new Float64Array(tokens(view, other(active.side)).length);
    let exact = true;
    for (const index of active.indices) {
      const one = line(map, active.side, index);
      exact &&= one.exact;
      for (let i = 0; i < total.length; i++) total[i] += one.numbers[i];
    }
    return { head, total, exact };
  });
}

// ------------------------------------------------------------------------------------------------ what stands there

function mount(root, tip) {
  const view = { root, tip, header: null, choice: null, focus: null, chosenAt: 0 };
  const layer = element("div", "layer");
  const step = (by, text, name) => {
    const button = element("button", "step", text);
    button.type = "button";
    button.setAttribute("aria-label", name);
    button.onclick = () => choose(view, { layer: view.choice.layer + by }, 0);
    return button;
  };
  view.earlier = step(-1, "‹", "the layer before");
  view.later = step(1, "›", "the next layer");
  view.layerName = element("span", "name");
  layer.append(view.earlier, view.layerName, view.later);

  view.heads = element("div", "heads");
  view.heads.setAttribute("role", "toolbar");
  view.heads.setAttribute("aria-label", "Heads; a click adds or removes one, a double click shows it alone");

  const keep = element("label", "keep");
  view.keepName = element("span", "");
  view.slider = element("input", "");
  view.slider.type = "range";
  [view.slider.min, view.slider.max, view.slider.step] = ["5", "100", "5"];
  view.slider.oninput = () => choose(view, { kept: Number(view.slider.value) / 100 });
  keep.append(view.keepName, view.slider);

  const bar = element("div", "bar");
  bar.append(layer, view.heads);
  view.note = element("div", "note");
  view.note.setAttribute("role", "status");
  const under = element("div", "bar");
  under.append(keep, view.note);

  const titles = element("div", "titles");
  titles.append(element("span", "", "query: who looks"), element("span", "", "key: who is looked at"));
  view.stage = element("div", "stage");
  view.columns = element("div", "columns");
  view.canvas = element("canvas", "");
  view.canvas.setAttribute("aria-hidden", "true");
  view.query = column("query", "Queries: who looks");
  view.key = column("key", "Keys: who is looked at");
  view.columns.append(view.query, view.canvas, view.key);
  view.stage.append(view.columns);
  const picture = element("div", "picture");
  picture.append(titles, view.stage);
  view.numbers = element("div", "numbers");
  const body = element("div", "body");
  body.append(picture, view.numbers);
  view.table = element("table", "unseen");
  root.append(bar, under, body, view.table);

  listen(view);
  new ResizeObserver(() => redraw(view)).observe(view.stage);
  return view;
}

function column(side, name) {
  const made = element("div", `column ${side}`);
  made.setAttribute("role", "listbox");
  made.setAttribute("aria-multiselectable", "true");
  made.setAttribute("aria-label", name);
  made.dataset.side = side;
  return made;
}

function listen(view) {
  const { heads, stage, tip } = view;
  heads.onclick = (event) => {
    const button = event.target.closest("button");
    if (!button || button.disabled) return;
    reachable(heads, button);
    if (event.shiftKey) isolate(view, Number(button.dataset.head));
    else toggleHead(view, Number(button.dataset.head));
  };
  heads.ondblclick = (event) => {
    const button = event.target.closest("button");
    if (button && !button.disabled) isolate(view, Number(button.dataset.head));
  };
  heads.onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const all = [...heads.querySelectorAll("button:not(:disabled)")];
    const to = { Home: 0, End: all.length - 1 }[event.key] ?? (by && all.indexOf(event.target) + by);
    if (to === undefined || !all[to]) return;
    event.preventDefault();
    reachable(heads, all[to]);
    all[to].focus();
  };

  const tokenAt = (event) => {
    const node = event.target.closest(".token");
    return node && { side: node.parentElement.dataset.side, index: Number(node.dataset.index), node };
  };
  stage.onpointerover = (event) => {
    const at = tokenAt(event);
    look(view, at);
    if (at && isCut(view, at)) showTip(view, at.node, tokenTip(view, at));
    else tip.hidePopover();
  };
  stage.onpointerleave = () => {
    tip.hidePopover();
    look(view, null);
  };
  stage.onclick = (event) => {
    const at = tokenAt(event);
    if (!at) return choose(view, { positions: [] });
    reachable(at.node.parentElement, at.node);
    select(view, at);
  };
  // These two have no property to assign to; the stage is made once.
  stage.addEventListener("focusin", (event) => {
    const at = tokenAt(event);
    if (at?.node.matches(":focus-visible")) look(view, at);
  });
  stage.addEventListener("focusout", () => look(view, null));
  stage.onkeydown = (event) => {
    const at = tokenAt(event);
    if (!at) return;
    if (event.key === "Escape") {
      tip.hidePopover();
      choose(view, { positions: [] });
    } else if (event.key === "Enter" || event.key === " ") {
      if (!event.repeat) select(view, at);
    } else {
      const length = tokens(view, at.side).length;
      const steps = { ArrowDown: at.index + 1, ArrowUp: at.index - 1, Home: 0, End: length - 1 };
      steps.PageDown = Math.min(at.index + 10, length - 1);
      steps.PageUp = Math.max(at.index - 10, 0);
      const across = { ArrowRight: "key", ArrowLeft: "query" }[event.key];
      const next = across
        ? view[across].children[Math.min(at.index, tokens(view, across).length - 1)]
        : view[at.side].children[steps[event.key]];
      if (!next) return;
      reachable(next.parentElement, next);
      next.focus();
    }
    event.preventDefault();
  };
  stage.onscroll = () => redraw(view);
}

function toggleHead(view, head) {
  const heads = view.choice.heads;
  const now = heads.includes(head) ? heads.filter((h) => h !== head) : [...heads, head];
  if (now.length) choose(view, { heads: now }, 300);
}

function isolate(view, head) {
  choose(view, { heads: [head] });
}

// A selection stands in one column; one begun in the other takes its place.
function select(view, { side, index }) {
  const position = tokens(view, side)[index][1];
  const before = view.choice.side === side ? view.choice.positions : [];
  const has = before.includes(position);
  choose(view, { side, positions: has ? before.filter((p) => p !== position) : [...before, position] });
}

function look(view, at) {
  const [was, is] = [view.focus, at && { side: at.side, index: at.index }];
  if (was?.side === is?.side && was?.index === is?.index) return;
  view.focus = is;
  refresh(view);
}

// The elements: the columns stay as long as the text does, so that the focus and the place stay too.
function build(view, sameText) {
  const { header, root } = view;
  root.classList.toggle("lecture", header.lecture);
  view.tip.classList.toggle("lecture", header.lecture);
  view.dark = isDark(root);
  view.colours = table(header.colours[view.dark ? 1 : 0]);
  for (const [side, scale] of Object.entries(header.tints)) {
    root.style.setProperty(`--tint-${side.toLowerCase()}`, scale[view.dark ? 1 : 0][0]);
  }
  const longest = Math.max(header.queries.length, header.keys.length);
  const [least, most, room] = header.lecture ? [24, 36, 900] : [18, 26, 660];
  view.row = Math.round(Math.min(most, Math.max(least, room / longest)));
  root.style.setProperty("--row", `${view.row}px`);
  view.columns.style.height = `${longest * view.row}px`;
  if (!sameText) {
    view.focus = null;
    view.tip.hidePopover();
    for (const side of ["query", "key"]) view[side].replaceChildren(...tokens(view, side).map(token));
    for (const side of ["query", "key"]) view[side].children[0].tabIndex = 0;
    view.stage.scrollTop = 0;
  }
  const colour = (head) => header.headColours[head % header.headColours.length];
  if (view.heads.children.length !== header.count) {
    view.heads.replaceChildren(
      ...Array.from({ length: header.count }, (_, head) => {
        const button = element("button", "head", `H${head}`);
        button.type = "button";
        button.tabIndex = head === 0 ? 0 : -1;
        button.dataset.head = head;
        button.style.setProperty("--colour", colour(head));
        return button;
      }),
    );
  }
  edgesTable(view);
}

function token([text, , side], index) {
  const made = element("div", "token", shortened(text, LONGEST_LABEL));
  made.dir = "auto";
  made.dataset.index = index;
  made.setAttribute("role", "option");
  made.tabIndex = -1;
  made.classList.add(side ? side.toLowerCase() : "special");
  return made;
}

// The strongest edges as a table for those who do not see the curves; exact, from the server.
function edgesTable(view) {
  const { header, table: node } = view;
  const caption = element("caption", "", `Strongest edges of layer ${header.layer}`);
  const rows = [["head", "query", "key", header.unit]];
  for (const [head, query, key, number] of header.strongest) {
    rows.push([`H${head}`, placed(header.queries[query]), placed(header.keys[key]), exactly(number)]);
  }
  node.replaceChildren(caption, ...rows.map((cells, i) => tableRow(cells, i === 0 ? "th" : "td")));
}

const placed = ([text, position]) => `${shortened(text, LONGEST_LABEL)} (${position})`;

function tableRow(cells, tag) {
  const row = element("tr", "");
  row.append(...cells.map((cell) => (cell instanceof Node ? cell : element(tag, "", cell))));
  return row;
}

// Everything that follows from the choice and from what is looked at.
function refresh(view) {
  const { header, choice } = view;
  view.layerName.textContent = `L${choice.layer}`;
  view.earlier.disabled = choice.layer <= 0;
  view.later.disabled = choice.layer >= header.layers - 1;
  for (const button of view.heads.children) {
    const head = Number(button.dataset.head);
    const [on, off] = [choice.heads.includes(head), header.off.includes(head)];
    button.classList.toggle("off", off);
    button.setAttribute("aria-pressed", String(on));
    button.disabled = header.pruned.includes(head);
    const state = button.disabled ? ", pruned" : off ? ", switched off" : "";
    button.setAttribute("aria-label", `H${head}${state}`);
  }
  const share = Math.round(choice.kept * 100);
  view.slider.value = share;
  view.keepName.textContent = `strongest ${share} %`;
  const active = activeTokens(view);
  const found = active && sums(view, active);
  view.stage.classList.toggle("narrowed", Boolean(active));
  for (const side of ["query", "key"]) {
    const chosen = choice.side === side ? new Set(choice.positions) : new Set();
    [...view[side].children].forEach((node, i) => {
      node.setAttribute("aria-selected", String(chosen.has(tokens(view, side)[i][1])));
      const lit = active?.side === side && active.indices.includes(i);
      node.classList.toggle("lit", lit);
      node.style.backgroundImage = active && side !== active.side ? swatches(view, found, i) : "";
    });
  }
  numbers(view, active, found);
  redraw(view);
  ask(view);
}

// Beside a token, one stripe a head, as strong as what goes there.
function swatches(view, found, index) {
  if (!found.length) return "";
  const largest = Math.max(...found.map(({ total }) => peak(total))) || 1;
  const stripes = found.map(({ head, total }, i) => {
    const share = Math.min(Math.abs(total[index]) / largest, 1) || 0;
    const part = (n) => `${((100 * n) / found.length).toFixed(1)}%`;
    return `rgb(${colourOf(view, head, total[index]).join(" ")} / ${(0.75 * share).toFixed(3)}) ${part(i)} ${part(i + 1)}`;
  });
  return `linear-gradient(to right, ${stripes.join(", ")})`;
}

const peak = (numbers) => numbers.reduce((most, x) => Math.max(most, Math.abs(x) || 0), 0);

// A head's own colour; with a sign, the colour of the sign.
function colourOf(view, head, number) {
  if (view.header.signed) return view.colours[number < 0 ? 30 : 225];
  return rgb(view.header.headColours[head % view.header.headColours.length]);
}

// The panel: the row or column of what is looked at, or the strongest edges of all.
function numbers(view, active, found) {
  const { header } = view;
  const title = element("div", "title");
  const grid = element("table", "");
  if (!active) {
    title.textContent = "Strongest edges";
    const several = header.drawn.length > 1;
    for (const [head, query, key, number] of header.strongest) {
      const pair = [cell(shortened(header.queries[query][0], 18)), cell(shortened(header.keys[key][0], 18))];
      pair[1].classList.add("to");
      grid.append(tableRow([...(several ? [swatch(view, head)] : []), ...pair, digits(number, true, header.signed)], "td"));
    }
    view.numbers.replaceChildren(title, grid);
    return;
  }
  const here = tokens(view, active.side);
  const there = tokens(view, other(active.side));
  const [first] = active.indices;
  const one = active.indices.length === 1;
  title.append(...sentence(active, one ? here[first] : [`${active.indices.length} tokens`, null]));
  const strength = (i) => found.reduce((sum, { total }) => sum + (Math.abs(total[i]) || 0), 0);
  const order = there.map((_, i) => i).sort((a, b) => strength(b) - strength(a) || a - b);
  if (found.length > 1) {
    const heads = found.map(({ head }) => swatch(view, head));
    grid.append(tableRow([element("th", ""), ...heads], "th"));
  }
  for (const i of order.slice(0, LINES_SHOWN)) {
    const label = cell(shortened(there[i][0], 18));
    label.title = shortened(`${there[i][0]} at ${there[i][1]}`, LONGEST_TIP);
    grid.append(tableRow([label, ...found.map(({ total, exact }) => digits(total[i], exact, header.signed))], "td"));
  }
  const rest = order.slice(LINES_SHOWN);
  const add = (total, some) => some.reduce((sum, i) => sum + total[i], 0);
  const foot = (text, some) => {
    const row = tableRow([text, ...found.map(({ total, exact }) => digits(add(total, some), exact, header.signed))], "td");
    row.className = "foot";
    return row;
  };
  if (rest.length) grid.append(foot(`${rest.length} others`, rest));
  if (!header.signed) grid.append(foot("together", order));
  view.numbers.replaceChildren(title, grid);
}

function sentence({ side, indices }, [text, position]) {
  const quoted = element("b", "", shortened(text, 30));
  quoted.dir = "auto";
  const at = position === null ? "" : ` (${position})`;
  const sum = indices.length > 1 ? ", added up" : "";
  return side === "query" ? [quoted, `${at} look${sum ? "" : "s"} at${sum}`] : ["Who looks at ", quoted, at + sum];
}

function cell(text) {
  const made = element("td", "word", text);
  made.dir = "auto";
  return made;
}

function swatch(view, head) {
  const made = element("th", "swatch", `H${head}`);
  made.style.setProperty("--colour", view.header.headColours[head % view.header.headColours.length]);
  return made;
}

function digits(number, exact, signed) {
  const made = element("td", "number", `${exact ? "" : "≈ "}${rounded(number, exact ? 4 : 2, signed)}`);
  if (exact) made.title = exactly(number);
  return made;
}

// Probabilities with a fixed number of places, so that they stand below each other; signed values have any size.
function rounded(number, count, signed) {
  if (!Number.isFinite(number)) return "no number";
  if (number === 0) return "0";
  if (!signed) return number < 0.5 / 10 ** count ? `< ${(10 ** -count).toFixed(count)}` : number.toFixed(count);
  const size = Math.abs(number);
  const text = size < 1e-4 ? number.toExponential(count - 1) : number.toPrecision(count);
  return text.replaceAll("-", "−");
}

const exactly = (number) =>
  Number.isFinite(number) ? Number(number.toPrecision(9)).toString().replaceAll("-", "−") : "no number";

// ------------------------------------------------------------------------------------------------ the curves

// Drawn once before the next frame, however many things changed.
function redraw(view) {
  if (view.drawing || !view.header) return;
  view.drawing = requestAnimationFrame(() => {
    view.drawing = 0;
    draw(view);
  });
}

function draw(view) {
  const { canvas, stage, header } = view;
  const [width, height] = [canvas.clientWidth, stage.clientHeight];
  const density = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  const context = canvas.getContext("2d");
  context.scale(density, density);
  context.lineCap = "round";
  const active = activeTokens(view);
  const heads = drawnHeads(view);
  const drawn = heads.map((head) => ({ head, edges: edgesOf(view, head, active) }));
  const largest = Math.max(...heads.map((head) => peak(mapOf(view, head).maxima)), 0) || 1;
  const several = heads.length > 1;
  let total = 0;
  for (const { head, edges } of drawn) {
    total += edges.shown;
    const off = header.off.includes(head);
    context.setLineDash(several && edges.list.length < 1500 ? DASHES[(head + Math.floor(head / 12)) % 4] : []);
    strokes(context, view, head, edges.list, largest, { width, off });
  }
  notes(view, active, drawn, total);
}

// The edges of a head that are drawn, weakest first: [row, column, value].
function edgesOf(view, head, active) {
  const map = mapOf(view, head);
  const list = [];
  const top = view.stage.scrollTop / view.row - 1;
  const bottom = top + view.stage.clientHeight / view.row + 2;
  const inside = (place) => place >= top && place <= bottom;
  const seen = (row, column) => inside(row) || inside(column);
  let shown = 0;
  if (active) {
    const least = peak(map.maxima) / 200;
    for (const index of active.indices) {
      const { numbers } = line(map, active.side, index);
      numbers.forEach((number, i) => {
        const [row, column] = active.side === "query" ? [index, i] : [i, index];
        if (Math.abs(number) > least && seen(row, column)) list.push([row, column, number]);
      });
    }
    shown = list.length;
  } else {
    const { sizes } = ranked(map);
    shown = countHolding(map, view.choice.kept);
    const least = Math.max(sizes[shown - 1], 1e-12);
    for (let row = 0; row < map.rows; row++) {
      if (map.maxima[row] < least) continue;
      for (let column = 0; column < map.columns; column++) {
        const number = value(map, row, column);
        if (Math.abs(number) >= least && seen(row, column)) list.push([row, column, number]);
      }
    }
  }
  list.sort((a, b) => Math.abs(a[2]) - Math.abs(b[2]));
  const left = Math.max(list.length - MOST_CURVES, 0);
  return { list: left ? list.slice(left) : list, shown, left };
}

function strokes(context, view, head, list, largest, { width, off }) {
  const half = view.row / 2;
  const top = view.stage.scrollTop;
  const heavy = view.header.lecture ? 1.7 : 1;
  // Thousands of curves would paint a wall: the more there are, the lighter each.
  const light = (off ? 0.35 : 1) * Math.min(1, Math.max(0.3, Math.sqrt(500 / list.length)));
  // Curves of one strength are one path: a few paths are much faster than a thousand.
  let level = -1;
  let waiting = 0;
  const flush = () => {
    if (waiting) context.stroke();
    context.beginPath();
    waiting = 0;
  };
  flush();
  let sign = 0;
  for (const [row, column, number] of list) {
    const share = Math.min(Math.abs(number) / largest, 1);
    const now = Math.round(share * 24);
    if (now !== level || Math.sign(number) !== sign || waiting >= 48) {
      flush();
      [level, sign] = [now, Math.sign(number)];
      const alpha = (0.07 + 0.85 * (now / 24)) * light;
      context.strokeStyle = `rgb(${colourOf(view, head, number).join(" ")} / ${alpha.toFixed(3)})`;
      context.lineWidth = (0.6 + 3 * (now / 24)) * heavy;
    }
    const [from, to] = [(row * 2 + 1) * half - top, (column * 2 + 1) * half - top];
    context.moveTo(0, from);
    context.bezierCurveTo(width * 0.45, from, width * 0.55, to, width, to);
    waiting++;
  }
  flush();
}

function notes(view, active, drawn, total) {
  const { header } = view;
  const said = [];
  const listed = (heads) => heads.map((head) => `H${head}`).join(", ");
  if (!active) {
    const all = drawn.reduce((sum, { head }) => sum + mapOf(view, head).codes.length, 0);
    said.push(`${total.toLocaleString("en")} of ${all.toLocaleString("en")} edges`);
  }
  const left = drawn.reduce((sum, { edges }) => sum + edges.left, 0);
  if (left) said.push(`the ${left.toLocaleString("en")} weakest in sight are not drawn`);
  const off = view.choice.heads.filter((head) => header.off.includes(head));
  if (off.length) said.push(`${listed(off)} ${off.length > 1 ? "are" : "is"} switched off: drawn faint, without effect`);
  const waiting = view.choice.heads.filter((head) => !header.pruned.includes(head) && !mapOf(view, head));
  if (waiting.length) said.push(`${listed(waiting)} on the way`);
  const gone = view.choice.heads.filter((head) => header.pruned.includes(head));
  if (gone.length) said.push(`${listed(gone)} ${gone.length > 1 ? "do" : "does"} not exist (pruned)`);
  for (const [head, holes] of Object.entries(header.holes)) {
    if (holes) said.push(`${holes} values of H${head} are no numbers and are not drawn`);
  }
  const text = said.join(" · ");
  if (view.note.textContent !== text) view.note.textContent = text;
}

// ------------------------------------------------------------------------------------------------ small things

function isCut(view, { side, index, node }) {
  return node.scrollWidth > node.clientWidth + 1 || node.textContent !== tokens(view, side)[index][0];
}

function tokenTip(view, { side, index }) {
  const [text, position, from] = tokens(view, side)[index];
  return `${shortened(text, LONGEST_TIP)}\nposition ${position}${from ? `, sentence ${from}` : ""}`;
}

function showTip(view, anchor, text) {
  const { tip } = view;
  tip.textContent = text;
  tip.showPopover();
  const at = anchor.getBoundingClientRect();
  const box = tip.getBoundingClientRect();
  const left = anchor.parentElement.dataset.side === "query" ? at.left - box.width - 8 : at.right + 8;
  tip.style.left = `${Math.max(4, Math.min(left, window.innerWidth - box.width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(at.top, window.innerHeight - box.height - 4))}px`;
}

// One of several can be reached with the tab key; the arrow keys choose which.
function reachable(parent, node) {
  for (const one of parent.querySelectorAll('[tabindex="0"]')) one.tabIndex = -1;
  node.tabIndex = 0;
}

function shortened(text, longest) {
  // Cut between signs, never inside one of two units.
  return text.length > longest ? `${[...text.slice(0, 2 * longest)].slice(0, longest - 1).join("")}…` : text;
}

function element(tag, name, text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}

const rgb = (colour) => colour.slice(1).match(/../g).map((part) => parseInt(part, 16));

// 256 colours between the given ones.
function table(stops) {
  const parts = stops.map(rgb);
  return Array.from({ length: 256 }, (_, i) => {
    const x = (i / 255) * (parts.length - 1);
    const low = Math.min(Math.floor(x), parts.length - 2);
    return parts[low].map((part, c) => Math.round(part + (parts[low + 1][c] - part) * (x - low)));
  });
}

function isDark(node) {
  const background = getComputedStyle(node).getPropertyValue("--st-background-color").trim() || "#ffffff";
  const [r, g, b] = rgb(background);
  return 0.299 * r + 0.587 * g + 0.114 * b < 128;
}
