// Heads of one layer, as curves, one of them as a matrix or down to its vectors. Every text reaches the page through textContent; nothing here builds HTML from data.

const HIGHEST = 128;
const ZERO = 127;
const NO_NUMBER = 255;
const LONGEST_LABEL = 60;
const LONGEST_TIP = 600;
const MOST_CURVES = 6000;
const FAINTEST = 200; // times weaker than the strongest of the tokens that are looked at: not drawn
const LINES_SHOWN = 10;
const HEADS_LISTED = 3;
const LONGEST_ASK = 64;
const COMBINED = -1; // stands for a head where several are one map
const DIMENSIONS_SHOWN = 8;
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
  arrive(root.view, data);
}

// ------------------------------------------------------------------------------------------------ what arrives

// Messages are taken in the order they come, also where one is still being unpacked.
function arrive(view, data) {
  const { header, tail } = unpack(data);
  const ready = () => receive(view, header, tail.slice().buffer);
  if (!header.packed && !view.arriving) ready();
  else {
    const before = (view.arriving ?? Promise.resolve()).catch(() => {}); // its error is told already
    view.arriving = before.then(header.packed ? async () => receive(view, header, await inflated(tail)) : ready);
  }
}

function inflated(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer();
}

function receive(view, header, tail) {
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
    const map = { name: header.names[head], rows, columns, maxima, codes, signed: header.signed, exact: new Map(), bytes: rows * columns };
    cache.set(header.names[head], map);
  }
  const { vectors } = header;
  if (vectors?.sent) {
    const [queries, keys] = [floats(rows * vectors.size).slice(), floats(columns * vectors.size).slice()];
    const distances = vectors.distances ? floats(rows * columns).slice() : null;
    const bytes = 4 * (queries.length + keys.length + (distances?.length ?? 0));
    cache.set(vectors.name, { queries, keys, distances, bytes });
  }
  for (const head of header.drawn) {
    for (const [side, index] of header.lines) {
      const line = floats(side === "query" ? columns : rows);
      cache.get(header.names[head])?.exact.set(side + index, line.slice());
    }
  }
  forget(header);
  if ([...header.drawn.map((head) => header.names[head]), ...(vectors ? [vectors.name] : [])].some((name) => !cache.has(name))) {
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
  if (!sameText || !same("mode")) view.cell = view.pointed = view.asked = null;
  if (!sameText) view.window = null;
  build(view, sameText);
  refresh(view);
}

// Four bytes with the length of the header, the header as JSON, then the arrays, each at a multiple of four.
function unpack(data) {
  const length = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
  return { header, tail: data.subarray(4 + length) };
}

// The oldest maps go first, but none that is needed now.
function forget(header) {
  const needed = new Set([...Object.values(header.names), header.vectors?.name]);
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

// How large a value is, in steps of the largest of its row; 0 for what is no number.
function size(map, place) {
  const code = map.codes[place];
  if (code === NO_NUMBER) return 0;
  return map.signed ? Math.abs(code - ZERO) : code;
}

// The size of the last value that is needed for this share of a row, from its largest on.
function leastOf(map, row, kept) {
  const counts = new Uint32Array(HIGHEST + 1);
  for (let column = 0; column < map.columns; column++) counts[size(map, row * map.columns + column)]++;
  const wanted = kept * counts.reduce((sum, count, steps) => sum + count * steps, 0) - 1e-9;
  let held = 0;
  for (let steps = HIGHEST; steps > 0; steps--) {
    held += steps * counts[steps];
    if (counts[steps] && held >= wanted) return steps;
  }
  return HIGHEST + 1; // a row of zeros
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

const isMatrix = (view) => view.header.mode === "matrix";
const isNeuron = (view) => view.header.mode === "neuron";
const showsOne = (view) => view.header.mode !== "curves" && !view.header.combined;

// The heads that were chosen, as far as they are drawn at once; one map in the stead of all where they are combined.
function chosenHeads(view) {
  if (view.header.combined) return [COMBINED];
  return showsOne(view) ? view.choice.heads.slice(0, 1) : view.choice.heads;
}

function drawnHeads(view) {
  return chosenHeads(view).filter((head) => !view.header.pruned.includes(head) && mapOf(view, head));
}

const headName = (view, head) => (head === COMBINED ? view.header.combined : `H${head}`);

function headColour(view, head) {
  if (head === COMBINED) return view.dark ? "#e9ebee" : "#1c2026";
  return view.header.headColours[head % view.header.headColours.length];
}

// The token under the pointer or the keyboard, else those selected; null for none. In a matrix, the row of the cell.
function activeTokens(view) {
  if (isMatrix(view)) return view.cell && { side: "query", indices: [view.cell.row] };
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
  view.curves = element("div", "curves");
  view.crown = element("canvas", "crown");
  view.crown.setAttribute("aria-hidden", "true");
  view.curves.append(titles, view.crown, view.stage);
  const picture = element("div", "picture");
  picture.append(view.curves, mountMatrix(view));
  view.numbers = element("div", "numbers");
  view.body = element("div", "body");
  view.body.append(picture, view.numbers);
  view.table = element("table", "unseen");
  root.append(bar, under, view.body, view.table);

  listen(view);
  listenMatrix(view);
  listenNeuron(view);
  const observer = new ResizeObserver(() => {
    if (view.header?.fills) setRows(view);
    redraw(view);
  });
  for (const one of [view.stage, view.matrix, view.matrixBox]) observer.observe(one);
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
    if (isNeuron(view) && event.target === view.canvas) return;
    const at = tokenAt(event);
    look(view, at);
    if (at && isCut(view, at)) showTip(view, at.node, tokenTip(view, at));
    else tip.hidePopover();
  };
  stage.onpointerleave = () => {
    tip.hidePopover();
    view.asked = null;
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
  // Over the curves the wheel scrolls the page, as everywhere; over the tokens it goes through a long text.
  stage.addEventListener(
    "wheel",
    (event) => {
      if (event.target !== view.canvas || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const step = [1, view.row, window.innerHeight][event.deltaMode];
      scrollerAround(view.root).scrollBy(0, event.deltaY * step);
    },
    { passive: false },
  );
}

// What scrolls when the page does.
function scrollerAround(node) {
  const above = (one) => one.parentElement ?? one.getRootNode().host;
  for (let one = above(node); one; one = above(one)) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(one).overflowY);
    if (scrolls && one.scrollHeight > one.clientHeight) return one;
  }
  return document.scrollingElement;
}

function toggleHead(view, head) {
  if (showsOne(view)) return isolate(view, head);
  const heads = view.choice.heads;
  const now = heads.includes(head) ? heads.filter((h) => h !== head) : [...heads, head];
  if (now.length) choose(view, { heads: now }, 300);
}

function isolate(view, head) {
  choose(view, { heads: [head] });
}

// A selection stands in one column; one begun in the other takes its place.
function select(view, { side, index }) {
  if (isNeuron(view) && side === "key") return pointKey(view, index, null);
  const position = tokens(view, side)[index][1];
  const before = view.choice.side === side ? view.choice.positions : [];
  const has = before.includes(position);
  if (isNeuron(view)) return choose(view, { side, positions: has ? [] : [position] });
  choose(view, { side, positions: has ? before.filter((p) => p !== position) : [...before, position] });
}

function look(view, at) {
  const [was, is] = [view.focus, at && { side: at.side, index: at.index }];
  if (was?.side === is?.side && was?.index === is?.index) return;
  view.focus = is;
  if (isNeuron(view)) {
    if (is?.side === "query") [view.asked, view.pointed] = [is.index, null];
    if (is?.side === "key") view.pointed = { key: is.index, dimension: null };
  }
  refresh(view);
}

// The elements: the columns stay as long as the text does, so that the focus and the place stay too.
function build(view, sameText) {
  const { header, root } = view;
  root.classList.toggle("lecture", header.lecture);
  root.classList.toggle("fills", Boolean(header.fills));
  view.tip.classList.toggle("lecture", header.lecture);
  view.dark = isDark(root);
  view.colours = table(header.colours[view.dark ? 1 : 0]);
  view.signColours = table((header.signColours ?? header.colours)[view.dark ? 1 : 0]);
  for (const [side, scale] of Object.entries(header.tints)) {
    root.style.setProperty(`--tint-${side.toLowerCase()}`, scale[view.dark ? 1 : 0][0]);
  }
  setRows(view);
  if (!sameText) {
    view.focus = null;
    view.tip.hidePopover();
    root.classList.toggle("long", header.keys.filter(([text]) => text.length > 12).length * 2 > header.keys.length);
    for (const side of ["query", "key"]) view[side].replaceChildren(...tokens(view, side).map(token));
    for (const side of ["query", "key"]) view[side].children[0].tabIndex = 0;
    const { side, positions } = view.choice;
    const first = tokens(view, side).findIndex(([, position]) => positions.includes(position));
    view.stage.scrollTop = Math.max(first - 5, 0) * view.row; // the first that is selected is in sight
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

// As high as lets every token be seen, as long as they can be read.
function setRows(view) {
  const { header, root, stage, columns } = view;
  const longest = Math.max(header.queries.length, header.keys.length);
  const [least, most, room] = header.fills
    ? [0.95 * rem(), 2 * rem(), stage.clientHeight]
    : header.lecture ? [24, 36, 900] : [18, 26, 660];
  view.row = Math.floor(Math.min(most, Math.max(least, room / longest)));
  root.style.setProperty("--row", `${view.row}px`);
  columns.style.height = `${longest * view.row}px`;
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
  const caption = element("caption", "", `Strongest edges of ${header.combined ?? `layer ${header.layer}`}`);
  const rows = [["head", "query", "key", header.unit]];
  for (const [head, query, key, number] of header.strongest) {
    rows.push([headName(view, head), placed(header.queries[query]), placed(header.keys[key]), exactly(number)]);
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
    const on = showsOne(view) ? choice.heads[0] === head : choice.heads.includes(head);
    const off = header.off.includes(head);
    button.classList.toggle("off", off);
    button.setAttribute("aria-pressed", String(on));
    button.disabled = header.pruned.includes(head);
    const state = button.disabled ? ", pruned" : off ? ", switched off" : "";
    button.setAttribute("aria-label", `H${head}${state}`);
  }
  view.body.classList.toggle("stacked", view.header.mode !== "curves");
  view.body.classList.toggle("vectors", isNeuron(view));
  view.curves.hidden = isMatrix(view);
  view.matrixBox.hidden = !isMatrix(view);
  view.slider.parentElement.hidden = view.header.mode !== "curves";
  view.crown.hidden = !isNeuron(view);
  view.canvas.classList.toggle("cells", isNeuron(view));
  const share = Math.round(choice.kept * 100);
  view.slider.value = share;
  view.keepName.textContent = `strongest ${share} % of each row`;
  const pair = isNeuron(view) ? neuronPair(view) : null;
  const active = pair ? null : activeTokens(view);
  const found = active && sums(view, active);
  view.stage.classList.toggle("narrowed", Boolean(active));
  for (const side of isMatrix(view) ? [] : ["query", "key"]) {
    const chosen = choice.side === side ? new Set(choice.positions) : new Set();
    [...view[side].children].forEach((node, i) => {
      node.setAttribute("aria-selected", String(chosen.has(tokens(view, side)[i][1])));
      const lit = pair ? pair[side] === i : active?.side === side && active.indices.includes(i);
      node.classList.toggle("lit", lit);
      node.style.backgroundImage = active && side !== active.side ? swatches(view, found, i) : "";
    });
  }
  if (pair) neuronNumbers(view, pair);
  else numbers(view, active, found);
  redraw(view);
  if (!pair) ask(view);
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
  return rgb(headColour(view, head));
}

// The panel: the row or column of what is looked at, or the strongest edges of all.
function numbers(view, active, found) {
  const { header } = view;
  const title = element("div", "title");
  const grid = element("table", "");
  if (!active) {
    title.textContent = header.strongest.length ? "Strongest edges" : "Nothing but zeros";
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
  // More heads than have room beside each other are averaged; each one's number is in the tooltip.
  const many = found.length > HEADS_LISTED;
  if (many) grid.append(tableRow([element("th", ""), element("th", "number", `mean of ${found.length} heads`)], "th"));
  else if (found.length > 1) {
    grid.append(tableRow([element("th", ""), ...found.map(({ head }) => swatch(view, head))], "th"));
  }
  const cellsOf = (numberOf) => {
    if (!many) return found.map(({ total, exact }) => digits(numberOf(total), exact, header.signed, found.length > 2 ? 3 : 4));
    const mean = found.reduce((sum, { total }) => sum + numberOf(total), 0) / found.length;
    const made = digits(mean, found.every(({ exact }) => exact), header.signed);
    made.title = found.map(({ head, total }) => `${headName(view, head)} ${exactly(numberOf(total))}`).join("\n");
    return [made];
  };
  for (const i of order.slice(0, LINES_SHOWN)) {
    const label = cell(shortened(there[i][0], 18));
    label.title = shortened(`${there[i][0]} at ${there[i][1]}`, LONGEST_TIP);
    grid.append(tableRow([label, ...cellsOf((total) => total[i])], "td"));
  }
  const rest = order.slice(LINES_SHOWN);
  const add = (total, some) => some.reduce((sum, i) => sum + total[i], 0);
  const foot = (text, some) => {
    const row = tableRow([text, ...cellsOf((total) => add(total, some))], "td");
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
  const made = element("td", "word");
  made.append(element("span", "", text));
  made.firstChild.dir = "auto";
  return made;
}

function swatch(view, head) {
  const made = element("th", "swatch", headName(view, head));
  made.style.setProperty("--colour", headColour(view, head));
  return made;
}

function digits(number, exact, signed, places = 4) {
  const made = element("td", "number", `${exact ? "" : "≈ "}${rounded(number, !exact ? 2 : signed ? 3 : places, signed)}`);
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
    if (isMatrix(view)) drawMatrix(view);
    else if (isNeuron(view)) drawNeuron(view);
    else draw(view);
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
  // All curves on one scale: that of the heads, or of what is looked at, so that a weak row can be read too.
  const strongest = ({ head, edges }) => (active ? Math.abs(edges.list.at(-1)?.[2] ?? 0) : peak(mapOf(view, head).maxima));
  const largest = (!active && header.limit) || Math.max(...drawn.map(strongest), 0) || 1;
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
  let list = [];
  const top = view.stage.scrollTop / view.row - 1;
  const bottom = top + view.stage.clientHeight / view.row + 2;
  const inside = (place) => place >= top && place <= bottom;
  const seen = (row, column) => inside(row) || inside(column);
  let shown = 0;
  if (active) {
    // All that goes from or to these tokens, whatever the share: a row that is spread thin is seen too.
    const lines = active.indices.map((index) => [index, line(map, active.side, index).numbers]);
    const least = Math.max(...lines.map(([, numbers]) => peak(numbers))) / FAINTEST;
    for (const [index, numbers] of lines) {
      numbers.forEach((number, i) => {
        const [row, column] = active.side === "query" ? [index, i] : [i, index];
        if (Math.abs(number) > least && seen(row, column)) list.push([row, column, number]);
      });
    }
    list.sort(byStrength);
    shown = list.length;
  } else {
    const kept = keptEdges(map, view.choice.kept);
    shown = kept.length;
    list = kept.filter(([row, column]) => seen(row, column));
  }
  const left = Math.max(list.length - MOST_CURVES, 0);
  return { list: left ? lightened(map, list, left) : list, shown, left };
}

const byStrength = (a, b) => Math.abs(a[2]) - Math.abs(b[2]);

// Of each row the strongest that hold the share, and those as strong as the last of them; kept while one scrolls.
function keptEdges(map, kept) {
  if (map.kept?.share === kept) return map.kept.list;
  const list = [];
  for (let row = 0; row < map.rows; row++) {
    const least = leastOf(map, row, kept);
    for (let column = 0; column < map.columns; column++) {
      if (size(map, row * map.columns + column) >= least) list.push([row, column, value(map, row, column)]);
    }
  }
  list.sort(byStrength);
  map.kept = list.length < 50000 ? { share: kept, list } : null;
  return list;
}

// Without so many of the weakest; what a row looks at most goes last.
function lightened(map, list, left) {
  const isLargest = ([row, , number]) => Math.abs(number) >= map.maxima[row];
  return [...list.filter((edge) => !isLargest(edge)), ...list.filter(isLargest)].slice(left).sort(byStrength);
}

function strokes(context, view, head, list, largest, { width, off }) {
  const half = view.row / 2;
  const top = view.stage.scrollTop;
  const heavy = view.header.lecture ? 1.7 : 1;
  // Thousands of curves would paint a wall: the more there are, the lighter each, and a hint of what leaves the sight.
  const many = Math.min(1, Math.max(0.3, Math.sqrt(500 / list.length)));
  const last = top + view.stage.clientHeight;
  const stays = (place) => (place + 1) * view.row > top && place * view.row < last;
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
  let leaving = false;
  for (const [row, column, number] of list) {
    const share = Math.min(Math.abs(number) / largest, 1);
    const leaves = !stays(row) || !stays(column);
    const now = Math.round(share * 24);
    if (now !== level || Math.sign(number) !== sign || leaves !== leaving || waiting >= 48) {
      flush();
      [level, sign, leaving] = [now, Math.sign(number), leaves];
      const light = (off ? 0.35 : 1) * many * (leaves ? 0.2 : 1);
      const alpha = (0.16 + 0.76 * (now / 24)) * light;
      context.strokeStyle = `rgb(${colourOf(view, head, number).join(" ")} / ${alpha.toFixed(3)})`;
      context.lineWidth = (0.8 + (leaves ? 0.4 : 2.8) * (now / 24)) * heavy;
    }
    const [from, to] = [(row * 2 + 1) * half - top, (column * 2 + 1) * half - top];
    context.moveTo(0, from);
    context.bezierCurveTo(width * 0.45, from, width * 0.55, to, width, to);
    waiting++;
  }
  flush();
}

function notes(view, active, drawn, total) {
  const said = [];
  if (!active) {
    const all = drawn.reduce((sum, { head }) => sum + mapOf(view, head).codes.length, 0);
    said.push(`${total.toLocaleString("en")} of ${all.toLocaleString("en")} edges`);
  } else said.push(`all edges of ${active.indices.length > 1 ? "these tokens" : "this token"}, whatever the share`);
  const left = drawn.reduce((sum, { edges }) => sum + edges.left, 0);
  if (left) said.push(`the ${left.toLocaleString("en")} weakest in sight are not drawn`);
  note(view, said);
}

// What has to be known of the heads that are drawn, after what is said of the picture.
function note(view, said) {
  const { header } = view;
  const heads = chosenHeads(view);
  const listed = (some) => some.map((head) => headName(view, head)).join(", ");
  if (header.combined) said.push(header.combined);
  const off = heads.filter((head) => header.off.includes(head));
  if (off.length) said.push(`${listed(off)} ${off.length > 1 ? "are" : "is"} switched off: ${isNeuron(view) ? "computed" : "drawn faint"}, without effect`);
  const gone = heads.filter((head) => header.pruned.includes(head));
  if (gone.length) said.push(`${listed(gone)} ${gone.length > 1 ? "do" : "does"} not exist (pruned)`);
  const waiting = heads.filter((head) => !gone.includes(head) && !(isNeuron(view) ? vectorsOf(view) : mapOf(view, head)));
  if (waiting.length) said.push(`${listed(waiting)} on the way`);
  for (const head of heads) {
    const holes = header.holes[head];
    if (holes) said.push(`${holes} values of ${headName(view, head)} are no numbers and are ${isMatrix(view) ? "crossed out" : "not drawn"}`);
  }
  said.push(...(header.notes ?? []));
  const text = said.join(" · ");
  if (view.note.textContent !== text) view.note.textContent = text;
}

// ------------------------------------------------------------------------------------------------ the matrix

const LARGEST_CELL = 64;

function mountMatrix(view) {
  view.matrixBox = element("div", "matrix-box");
  const tools = element("div", "tools");
  const legend = element("div", "legend");
  view.legend = [element("span", ""), element("span", "scale"), element("span", "")];
  legend.append(...view.legend);
  const button = (text, label, act) => {
    const made = element("button", "step", text);
    made.type = "button";
    made.setAttribute("aria-label", label);
    made.onclick = act;
    return made;
  };
  tools.append(
    legend,
    button("−", "zoom out", () => zoom(view, 1 / 1.6)),
    button("+", "zoom in", () => zoom(view, 1.6)),
    button("whole", "show the whole map", () => zoom(view, 0)),
  );
  view.matrix = element("canvas", "matrix");
  view.matrix.tabIndex = 0;
  view.matrix.setAttribute("role", "img");
  view.reading = element("div", "unseen reading");
  view.reading.setAttribute("aria-live", "polite");
  view.matrixBox.append(tools, view.matrix, view.reading);
  return view.matrixBox;
}

function listenMatrix(view) {
  const { matrix } = view;
  const place = (event) => {
    const box = matrix.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  matrix.onpointermove = (event) => {
    const [x, y] = place(event);
    if (view.drag) {
      const { area, cell } = view.layout;
      const { start, from } = view.drag;
      view.drag.moved ||= Math.hypot(x - start[0], y - start[1]) > 3;
      shift(view, from.x - (x - start[0]) / cell, from.y - (y - start[1]) / cell, area);
      point(view, null);
      return;
    }
    point(view, cellAt(view, x, y));
  };
  matrix.onpointerdown = (event) => {
    if (event.button !== 0 || !view.window) return;
    view.drag = { start: place(event), from: { ...view.window } };
    matrix.setPointerCapture(event.pointerId);
  };
  matrix.onpointerup = matrix.onpointercancel = () => {
    view.drag = null;
  };
  matrix.onpointerleave = () => point(view, null);
  matrix.onblur = () => point(view, null);
  matrix.ondblclick = (event) => zoom(view, 2, place(event));
  // Alone the wheel scrolls the page, as everywhere.
  matrix.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(view, Math.exp(-event.deltaY / 300), place(event));
    },
    { passive: false },
  );
  matrix.onkeydown = (event) => {
    const factor = { "+": 1.6, "=": 1.6, "-": 1 / 1.6, 0: 0 }[event.key];
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const [rows, columns] = [view.header.queries.length, view.header.keys.length];
    if (factor !== undefined) zoom(view, factor, view.cell && centreOf(view, view.cell));
    else if (event.key === "Escape") point(view, null);
    else if (step || event.key === "Home" || event.key === "End") {
      const { row, column } = view.cell ?? { row: 0, column: 0 };
      const limited = (n, count) => Math.min(Math.max(n, 0), count - 1);
      const next = step ? column + step[1] : event.key === "Home" ? 0 : columns - 1;
      const to = view.cell ? { row: limited(row + (step?.[0] ?? 0), rows), column: limited(next, columns) } : { row, column };
      reveal(view, to);
      point(view, to);
    } else return;
    event.preventDefault();
  };
}

// The whole map is a window from 0 with a zoom of 1; all in cells.
function windowOf(view) {
  return (view.window ??= { x: 0, y: 0, zoom: 1 });
}

function layoutOf(view) {
  const { header, matrix } = view;
  const [rows, columns] = [header.queries.length, header.keys.length];
  const lecture = header.lecture;
  const font = lecture ? Math.round(0.95 * rem()) : 13;
  const longest = (list) => Math.min(Math.max(...list.map(([text]) => [...text.slice(0, 40)].length)), 16);
  const margin = { left: 24 + longest(header.queries) * font * 0.62, bottom: 26 + longest(header.keys) * font * 0.62 };
  const width = matrix.clientWidth;
  // With its labels and tools a map is no taller than the screen, or than its share of it.
  const screen = Math.min(lecture ? 820 : 600, 0.82 * window.innerHeight - margin.bottom);
  const share = header.fills ? view.matrixBox.clientHeight - matrix.offsetTop + view.matrixBox.offsetTop - margin.bottom - font : screen;
  const room = { width: Math.max(width - margin.left - 6, 40), height: Math.max(share, header.fills ? 120 : 240) };
  const fit = Math.min(room.width / columns, room.height / rows, LARGEST_CELL);
  const { zoom: by } = windowOf(view);
  const cell = fit * by;
  const area = { width: fit * columns, height: fit * rows };
  // Zoomed in, the room beside a narrow map is used too.
  if (by > 1) {
    area.width = Math.min(room.width, cell * columns);
    area.height = Math.min(Math.max(area.height, Math.min(room.height, room.width)), cell * rows);
  }
  return { rows, columns, font, margin, width, area, cell, fit, top: Math.ceil(font / 2), height: area.height + margin.bottom + font };
}

function cellAt(view, x, y) {
  const { margin, top, area, cell, rows, columns } = view.layout;
  const [inX, inY] = [x - margin.left, y - top];
  if (inX < 0 || inY < 0 || inX >= area.width || inY >= area.height) return null;
  const [column, row] = [Math.floor(view.window.x + inX / cell), Math.floor(view.window.y + inY / cell)];
  return row < rows && column < columns ? { row, column } : null;
}

function centreOf(view, { row, column }) {
  const { margin, top, cell } = view.layout;
  return [margin.left + (column + 0.5 - view.window.x) * cell, top + (row + 0.5 - view.window.y) * cell];
}

// Zoom about a point of the canvas, so that what is there stays there; 0 goes back to the whole.
function zoom(view, factor, at) {
  const before = view.layout;
  if (!before) return;
  const { margin, top, area, cell, fit } = before;
  const [x, y] = at ?? [margin.left + area.width / 2, top + area.height / 2];
  const [inX, inY] = [(x - margin.left) / cell + view.window.x, (y - top) / cell + view.window.y];
  view.window.zoom = factor ? Math.min(Math.max(view.window.zoom * factor, 1), Math.max(LARGEST_CELL / fit, 1)) : 1;
  const after = layoutOf(view);
  shift(view, inX - (x - margin.left) / after.cell, inY - (y - top) / after.cell, after.area);
}

function shift(view, x, y) {
  const { rows, columns, area, cell } = layoutOf(view);
  view.window.x = Math.min(Math.max(x, 0), Math.max(columns - area.width / cell, 0));
  view.window.y = Math.min(Math.max(y, 0), Math.max(rows - area.height / cell, 0));
  redraw(view);
}

// Move the window as little as brings a cell into it.
function reveal(view, { row, column }) {
  const { area, cell } = view.layout;
  const inside = (start, length, at) => Math.min(Math.max(start, at + 1 - length), at);
  shift(view, inside(view.window.x, area.width / cell, column), inside(view.window.y, area.height / cell, row));
}

function point(view, cell) {
  if (cell?.row === view.cell?.row && cell?.column === view.cell?.column) return;
  view.cell = cell;
  if (!cell) view.tip.hidePopover();
  refresh(view);
}

function drawMatrix(view) {
  const { matrix, header } = view;
  windowOf(view);
  const layout = (view.layout = layoutOf(view));
  const { margin, top, area, cell, rows, columns, width, height, font } = layout;
  const density = window.devicePixelRatio || 1;
  matrix.style.height = `${height}px`;
  matrix.width = Math.round(width * density);
  matrix.height = Math.round(height * density);
  const context = matrix.getContext("2d");
  context.scale(density, density);
  const style = getComputedStyle(view.root);
  const colour = (name) => style.getPropertyValue(name).trim();
  const [ink, faint, line] = [colour("--st-text-color"), colour("--st-gray-text-color"), colour("--st-border-color")];
  const [head] = drawnHeads(view);
  note(view, [`${rows} × ${columns} · Ctrl and wheel, or + and −, to zoom; drag to move`]);
  matrix.setAttribute("aria-label", `Map of ${header.combined ?? `L${header.layer} H${view.choice.heads[0]}`}; arrow keys read its cells`);
  if (head === undefined) return;
  const map = mapOf(view, head);
  const most = peak(map.maxima);
  const limit = Math.min(header.limit || capOf(map), most) || 1;
  context.save();
  context.globalAlpha = header.off.includes(head) ? 0.4 : 1;
  cells(context, view, map, limit, layout, density);
  context.restore();
  if (cell >= 10) {
    context.fillStyle = colour("--st-background-color");
    const first = (start) => Math.ceil(start) - start;
    for (let x = first(view.window.x) * cell; x < area.width; x += cell) {
      context.fillRect(margin.left + x - 0.5, top, 1, area.height);
    }
    for (let y = first(view.window.y) * cell; y < area.height; y += cell) {
      context.fillRect(margin.left, top + y - 0.5, area.width, 1);
    }
  }
  context.strokeStyle = line;
  context.strokeRect(margin.left - 0.5, top - 0.5, area.width + 1, area.height + 1);

  const family = colour("--st-code-font") || "monospace";
  labels(context, view, layout, { ink, faint, family });
  context.font = `${font}px ${colour("--st-font") || "sans-serif"}`;
  context.fillStyle = faint;
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText("key: who is looked at", margin.left + area.width / 2, height - 2);
  context.save();
  context.translate(2, top + area.height / 2);
  context.rotate(-Math.PI / 2);
  context.textBaseline = "top";
  context.fillText("query: who looks", 0, 0);
  context.restore();

  const [low, bar, high] = view.legend;
  const beyond = limit < most;
  low.textContent = header.signed ? `${beyond ? "≤ " : ""}−${rounded(limit, 2, true)}` : "0";
  high.textContent = `${beyond ? "≥ " : ""}${rounded(limit, 2, true)}`;
  const stops = [0, 32, 64, 96, 128, 160, 192, 224, 255].map((i) => `rgb(${view.colours[i].join(" ")})`);
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  if (view.cell) pointed(context, view, map, layout, ink);
}

// Every pixel of the screen shows the strongest of the cells that fall on it, so that no line of a map is lost.
function cells(context, view, map, limit, { margin, top, area, cell, rows, columns }, density) {
  const [width, height] = [Math.round(area.width * density), Math.round(area.height * density)];
  const exactly = cell * density >= 1;
  const { x: left, y: above } = view.window;
  const [firstRow, firstColumn] = [Math.floor(above), Math.floor(left)];
  const lastRow = Math.min(Math.ceil(above + area.height / cell), rows);
  const lastColumn = Math.min(Math.ceil(left + area.width / cell), columns);
  const [w, h] = exactly ? [lastColumn - firstColumn, lastRow - firstRow] : [width, height];
  // Painted again only when something else is seen, not with every cell that is pointed at.
  const now = [map.name, limit, left, above, cell, w, h, view.dark].join();
  if (view.painted?.now !== now) view.painted = { now, picture: painted() };
  context.save();
  context.beginPath();
  context.rect(margin.left, top, area.width, area.height);
  context.clip();
  context.imageSmoothingEnabled = false;
  if (exactly) {
    const [x, y] = [margin.left + (firstColumn - left) * cell, top + (firstRow - above) * cell];
    context.drawImage(view.painted.picture, x, y, w * cell, h * cell);
    if (cell >= 4) crosses(context, map, { margin, top, cell }, { left, above, firstRow, lastRow, firstColumn, lastColumn });
  } else {
    context.drawImage(view.painted.picture, margin.left, top, area.width, area.height);
  }
  context.restore();

  function painted() {
    const image = new ImageData(w, h);
    const sizes = new Float32Array(w * h).fill(-1);
    const gap = view.dark ? [84, 90, 100] : [190, 196, 205];
    for (let row = firstRow; row < lastRow; row++) {
      const y = exactly ? row - firstRow : Math.min(Math.floor((row - above) * cell * density), h - 1);
      for (let column = firstColumn; column < lastColumn; column++) {
        const x = exactly ? column - firstColumn : Math.min(Math.floor((column - left) * cell * density), w - 1);
        if (x < 0 || y < 0) continue;
        const number = value(map, row, column);
        const at = y * w + x;
        // A hole is never covered.
        const size = Number.isNaN(number) ? Infinity : Math.abs(number);
        if (size <= sizes[at]) continue;
        sizes[at] = size;
        const share = Math.max(-1, Math.min(number / limit, 1));
        const shade = map.signed ? 127.5 + 127.5 * share : 255 * share;
        image.data.set(size === Infinity ? gap : view.colours[Math.round(shade)], 4 * at);
        image.data[4 * at + 3] = 255;
      }
    }
    const small = new OffscreenCanvas(w, h);
    small.getContext("2d").putImageData(image, 0, 0);
    return small;
  }
}

// Where the colours end: in a long map a few values would leave all others pale, so one in a thousand may exceed it.
function capOf(map) {
  if (map.cap === undefined) {
    const sizes = new Float32Array(map.codes.length);
    for (let row = 0, i = 0; row < map.rows; row++) {
      for (let column = 0; column < map.columns; column++, i++) sizes[i] = Math.abs(value(map, row, column)) || 0;
    }
    sizes.sort();
    map.cap = sizes[sizes.length - 1 - Math.floor(sizes.length / 1000)] || sizes.at(-1);
  }
  return map.cap;
}

// What is no number is crossed out.
function crosses(context, map, { margin, top, cell }, { left, above, firstRow, lastRow, firstColumn, lastColumn }) {
  context.strokeStyle = "#c0392b";
  context.lineWidth = 1.5;
  context.beginPath();
  for (let row = firstRow; row < lastRow; row++) {
    for (let column = firstColumn; column < lastColumn; column++) {
      if (map.codes[row * map.columns + column] !== NO_NUMBER) continue;
      const [x, y] = [margin.left + (column - left) * cell, top + (row - above) * cell];
      context.moveTo(x + 2, y + 2);
      context.lineTo(x + cell - 2, y + cell - 2);
      context.moveTo(x + cell - 2, y + 2);
      context.lineTo(x + 2, y + cell - 2);
    }
  }
  context.stroke();
}

// As many labels as have room; that of the cell pointed at always.
function labels(context, view, { margin, top, area, cell, font, rows, columns }, { ink, faint, family }) {
  const every = Math.max(1, Math.ceil((font + 2) / cell));
  const size = Math.max(Math.min(font, cell * every - 2), 9);
  const write = (list, start, length, count, chosen, put) => {
    const from = Math.ceil(start / every) * every;
    const shown = [];
    for (let i = from; i < Math.min(start + length, count); i += every) {
      if (chosen === undefined || Math.abs(i - chosen) * cell >= font) shown.push(i);
    }
    if (chosen !== undefined) shown.push(chosen);
    for (const i of shown) {
      const middle = (i + 0.5 - start) * cell;
      if (middle < 0 || middle > length * cell) continue;
      context.fillStyle = i === chosen ? ink : list[i][2] ? ink : faint;
      context.font = `${i === chosen ? "bold " : ""}${size}px ${family}`;
      put(shortened(list[i][0], 16), middle);
    }
  };
  context.textBaseline = "middle";
  context.textAlign = "right";
  write(view.header.queries, view.window.y, area.height / cell, rows, view.cell?.row, (text, middle) =>
    context.fillText(text, margin.left - 6, top + middle, margin.left - 22),
  );
  write(view.header.keys, view.window.x, area.width / cell, columns, view.cell?.column, (text, middle) => {
    context.save();
    context.translate(margin.left + middle, top + area.height + 6);
    context.rotate(-Math.PI / 2);
    context.fillText(text, 0, 0, margin.bottom - 24);
    context.restore();
  });
}

// The cell under the pointer or the keyboard: a ring, and its number, which the server may still be asked for.
function pointed(context, view, map, { margin, top, cell }, ink) {
  const { row, column } = view.cell;
  const side = Math.max(cell, 5);
  const [x, y] = centreOf(view, view.cell);
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.strokeRect(x - side / 2, y - side / 2, side, side);
  const { numbers: found, exact } = line(map, "query", row);
  const number = exact ? exactly(found[column]) : `≈ ${rounded(found[column], 2, view.header.signed)}`;
  const { queries, keys, unit } = view.header;
  const text = `${placed(queries[row])} → ${placed(keys[column])}\n${unit} ${number}`;
  if (exact && view.reading.textContent !== text) view.reading.textContent = text;
  const { tip } = view;
  tip.textContent = text;
  tip.showPopover();
  const box = view.matrix.getBoundingClientRect();
  const size = tip.getBoundingClientRect();
  const left = box.left + x + side / 2 + 10;
  const fits = left + size.width + 4 < window.innerWidth;
  tip.style.left = `${Math.max(4, fits ? left : box.left + x - side / 2 - 10 - size.width)}px`;
  tip.style.top = `${Math.max(4, Math.min(box.top + y + side / 2 + 8, window.innerHeight - size.height - 4))}px`;
}

// ------------------------------------------------------------------------------------------------ the vectors of a head

const vectorsOf = (view) => view.header.vectors && cache.get(view.header.vectors.name);

// What one query gives: the score of every key, what its distance added, and the softmax of all. From exact numbers.
function reckoned(view, query) {
  const { name, size, causal } = view.header.vectors;
  if (view.reckoned?.name === name && view.reckoned.query === query) return view.reckoned;
  const { queries, keys, distances } = vectorsOf(view);
  const count = keys.length / size;
  const scores = new Float64Array(count);
  let largestProduct = 0;
  for (let key = 0; key < count; key++) {
    let sum = 0;
    for (let i = 0; i < size; i++) {
      const product = queries[query * size + i] * keys[key * size + i];
      largestProduct = Math.max(largestProduct, Math.abs(product) || 0);
      sum += product;
    }
    scores[key] = causal && key > query ? -Infinity : sum / Math.sqrt(size) + (distances?.[query * count + key] ?? 0);
  }
  const highest = scores.reduce((most, x) => Math.max(most, x), -Infinity);
  const powers = scores.map((score) => Math.exp(score - highest));
  const all = powers.reduce((sum, x) => sum + x, 0);
  return (view.reckoned = { name, query, scores, shares: powers.map((x) => x / all), largestProduct });
}

// The query looked at last, or selected, or the first; the key looked at, or the one that this query looks at most.
function neuronPair(view) {
  const { header, choice } = view;
  const selected = choice.side === "query" ? header.queries.findIndex(([, at]) => choice.positions.includes(at)) : -1;
  const query = view.asked ?? Math.max(selected, 0);
  if (!vectorsOf(view)) return { query, key: null };
  const { shares } = reckoned(view, query);
  const key = view.pointed?.key ?? shares.reduce((best, x, i) => (x > shares[best] ? i : best), 0);
  return { query, key };
}

function pointKey(view, key, dimension) {
  if (view.pointed?.key === key && view.pointed.dimension === dimension) return;
  view.pointed = { key, dimension };
  refresh(view);
}

function listenNeuron(view) {
  const { canvas, tip } = view;
  canvas.onpointermove = (event) => {
    if (!isNeuron(view) || !vectorsOf(view)) return;
    const box = canvas.getBoundingClientRect();
    const key = Math.floor((event.clientY - box.top + view.stage.scrollTop) / view.row);
    if (key < 0 || key >= view.header.keys.length) return;
    const layout = neuronLayout(view);
    const x = event.clientX - box.left;
    const strip = [layout.key, layout.product].find((start) => x >= start && x < start + layout.strip);
    const { size } = view.header.vectors;
    const dimension = strip === undefined ? null : Math.min(Math.floor(((x - strip) / layout.strip) * size), size - 1);
    pointKey(view, key, dimension);
    if (dimension === null) return tip.hidePopover();
    const { query } = neuronPair(view);
    const { queries, keys } = vectorsOf(view);
    const [q, k] = [queries[query * size + dimension], keys[key * size + dimension]];
    tip.textContent = `${placed(view.header.queries[query])} → ${placed(view.header.keys[key])}\ndimension ${dimension}: q ${exactly(q)} × k ${exactly(k)} = ${exactly(q * k)}`;
    tip.showPopover();
    const size_ = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - size_.width - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, window.innerHeight - size_.height - 4))}px`;
  };
  canvas.onpointerleave = () => {
    if (!isNeuron(view)) return;
    tip.hidePopover();
    if (view.pointed) pointKey(view, view.pointed.key, null);
  };
}

// Where the columns of the picture begin, in pixels of the canvas: two strips of cells, then numbers.
function neuronLayout(view) {
  const lecture = view.header.lecture;
  const font = lecture ? Math.round(rem()) : 13;
  const [gap, number, share] = lecture ? [font, 4.7 * font, 8.3 * font] : [14, 62, 116];
  const numbers = view.header.vectors?.distances ? 3 : 1;
  const strip = Math.max((view.canvas.clientWidth - 4 * gap - numbers * number - share) / 2, 40);
  const key = gap;
  const product = key + strip + gap;
  const score = product + strip + gap;
  return { font, gap, number, share, strip, key, product, score, softmax: score + numbers * number + gap };
}

function drawNeuron(view) {
  const { canvas, stage, header } = view;
  const [width, height] = [canvas.clientWidth, stage.clientHeight];
  canvas.style.height = `${height}px`;
  const context = sized(canvas, width, height);
  const crown = sized(view.crown, view.crown.clientWidth, view.crown.clientHeight);
  note(view, header.vectors ? [`${header.vectors.size} numbers in each vector, exact; blue below zero, orange above`] : []);
  if (!vectorsOf(view)) return;
  const layout = neuronLayout(view);
  const { query, key: pointed } = neuronPair(view);
  const { queries, keys, distances } = vectorsOf(view);
  const { size } = header.vectors;
  const { scores, shares, largestProduct } = reckoned(view, query);
  const limit = (view.vectorLimit = Math.max(peak(queries), peak(keys)) || 1);
  const style = getComputedStyle(view.root);
  const colour = (name) => style.getPropertyValue(name).trim();
  const [ink, faint] = [colour("--st-text-color"), colour("--st-gray-text-color")];
  const family = colour("--st-font") || "sans-serif";
  const vector = (on, x, y, tall, from, numberAt, most) => {
    const cell = layout.strip / size;
    for (let i = 0; i < size; i++) {
      const shade = view.signColours[Math.round(127.5 + 127.5 * Math.max(-1, Math.min(numberAt(from + i, i) / most, 1)))];
      on.fillStyle = `rgb(${shade.join(" ")})`;
      // Neighbours share an edge at whole pixels of the screen, so that no seam shows.
      const [left, right] = [x + i * cell, x + (i + 1) * cell].map(snapped);
      on.fillRect(left, y, right - left, tall);
    }
    on.strokeStyle = colour("--st-border-color");
    on.strokeRect(x - 0.5, y - 0.5, layout.strip + 1, tall + 1);
  };

  // Above: the query's own vector over the keys', and what the columns are.
  const beside = canvas.getBoundingClientRect().left - view.crown.getBoundingClientRect().left;
  const tall = Math.round(layout.font * 1.4);
  crown.translate(beside, 0);
  crown.font = `${layout.font}px ${family}`;
  crown.textBaseline = "middle";
  crown.fillStyle = ink;
  crown.textAlign = "right";
  crown.fillText("query q", layout.key - 8, 4 + tall / 2, Math.max(beside + layout.key - 8, 40));
  vector(crown, layout.key, 4, tall, query * size, (at) => queries[at], limit);
  crown.textAlign = "left";
  crown.fillStyle = faint;
  crown.fillText(`±${rounded(limit, 2, true)}`, layout.product, 4 + tall / 2);
  const under = 4 + tall + layout.font;
  crown.fillText("key k", layout.key, under, layout.strip);
  crown.fillText(`q × k, ±${rounded(largestProduct, 2, true)}`, layout.product, under, layout.strip);
  crown.textAlign = "right";
  const heads = distances ? [`q·k/√${size}`, "distance", "score"] : [`q·k/√${size}`];
  heads.forEach((text, i) => crown.fillText(text, layout.score + (i + 1) * layout.number, under, layout.number));
  crown.textAlign = "left";
  crown.fillText("softmax", layout.softmax, under, layout.share);

  const first = Math.max(Math.floor(stage.scrollTop / view.row), 0);
  const last = Math.min(Math.ceil((stage.scrollTop + height) / view.row), header.keys.length);
  context.textBaseline = "middle";
  const bar = layout.share - 4.6 * layout.font - 6;
  const most = peak(shares) || 1;
  for (let key = first; key < last; key++) {
    const y = key * view.row - stage.scrollTop;
    const middle = y + view.row / 2;
    if (key === pointed) {
      context.fillStyle = `rgb(${view.dark ? "255 255 255" : "0 0 0"} / 0.08)`;
      context.fillRect(0, y, width, view.row);
    }
    vector(context, layout.key, y + 2, view.row - 4, key * size, (at) => keys[at], limit);
    vector(context, layout.product, y + 2, view.row - 4, key * size, (at, i) => queries[query * size + i] * keys[at], largestProduct || 1);
    context.font = `${key === pointed ? "bold " : ""}${Math.min(layout.font, view.row - 4)}px ${family}`;
    context.fillStyle = ink;
    context.textAlign = "right";
    const added = distances?.[query * header.keys.length + key];
    const list = distances ? [scores[key] - added, added, scores[key]] : [scores[key]];
    list.forEach((x, i) => context.fillText(placesOf(x, 2), layout.score + (i + 1) * layout.number, middle));
    context.fillStyle = headColour(view, view.choice.heads[0]);
    context.fillRect(layout.softmax, y + 3, Math.max((bar * shares[key]) / most, 0.5), view.row - 6);
    context.fillStyle = ink;
    context.fillText(rounded(shares[key], 3, false), layout.softmax + layout.share - 6, middle);
  }
}

// The panel: the sum of one query and one key, its largest parts first, and what the softmax makes of it.
function neuronNumbers(view, { query, key }) {
  const title = element("div", "title");
  const grid = element("table", "");
  view.numbers.replaceChildren(title, grid);
  if (key === null) return;
  const { queries, keys, distances } = vectorsOf(view);
  const { size } = view.header.vectors;
  const { scores, shares } = reckoned(view, query);
  const [from, to] = [view.header.queries[query], view.header.keys[key]];
  const quoted = (text) => {
    const made = element("b", "", shortened(text, 24));
    made.dir = "auto";
    return made;
  };
  title.append(quoted(from[0]), ` (${from[1]}) → `, quoted(to[0]), ` (${to[1]})`);
  const parts = Array.from({ length: size }, (_, i) => {
    const [q, k] = [queries[query * size + i], keys[key * size + i]];
    return { i, q, k, product: q * k };
  });
  const sum = (some) => some.reduce((total, { product }) => total + product, 0);
  const order = [...parts].sort((a, b) => Math.abs(b.product) - Math.abs(a.product) || a.i - b.i);
  const named = (text) => element("th", "number", text);
  grid.append(tableRow([named("dimension"), named("q"), named("k"), named("q × k")], "th"));
  for (const { i, q, k, product } of order.slice(0, DIMENSIONS_SHOWN)) {
    grid.append(tableRow([element("td", "number", String(i)), ...[q, k, product].map(signedDigits)], "td"));
  }
  const foot = (text, number) => {
    const label = element("td", "label", text);
    label.colSpan = 3;
    const row = tableRow([label, number], "td");
    row.className = "foot";
    grid.append(row);
  };
  const rest = order.slice(DIMENSIONS_SHOWN);
  if (rest.length) foot(`${rest.length} others`, signedDigits(sum(rest)));
  foot("q · k, all together", signedDigits(sum(parts)));
  foot(`divided by √${size}`, signedDigits(sum(parts) / Math.sqrt(size)));
  if (distances) foot("what the distance adds", signedDigits(distances[query * view.header.keys.length + key]));
  if (scores[key] === -Infinity) foot("a later token: masked", element("td", "number", "−∞"));
  foot("softmax over all keys", digits(shares[key], true, false));
}

function signedDigits(number) {
  const made = element("td", "number", placesOf(number, 3));
  made.title = exactly(number);
  return made;
}

const placesOf = (number, count) =>
  number === -Infinity ? "−∞" : Number.isFinite(number) ? number.toFixed(count).replaceAll("-", "−") : "no number";

// The size of the page's type: in a lecture it grows with the window.
const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);

const snapped = (x) => Math.round(x * (window.devicePixelRatio || 1)) / (window.devicePixelRatio || 1);

function sized(canvas, width, height) {
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  const context = canvas.getContext("2d");
  context.scale(density, density);
  return context;
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
