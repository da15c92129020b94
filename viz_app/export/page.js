// The two views in a page of their own. What Streamlit's server answers in the app is answered here, from what the
// page holds: `headGrid` and `attentionView` stand above. Every text reaches the page through textContent.

const COMBINED = -1; // stands for a head where several are one map

const [shown, gridData] = await Promise.all([unpacked("shown"), unpacked("grid")]);
const about = JSON.parse(new TextDecoder().decode(shown));
const grid = read(gridData);
const [rows, columns] = [about.fixed.queries.length, about.fixed.keys.length];
const everyLine = [...counted(rows, "query"), ...counted(columns, "key")];
const layers = new Map();
const one = about.one && mapsIn(await unpacked("one"), [0])[0];
const vectors = await Promise.all(about.vectors.map(async (said, i) => ({ ...said, bytes: await unpacked(`vectors-${i}`) })));
const pixels = about.picture && (await unpacked("pixels"));
let choice = about.choice;
let mode = vectors.length ? "neuron" : about.mode;
let together = Boolean(one);
let alone = false; // whether the small maps have the page for themselves
let lecture = new URLSearchParams(location.search).get("lecture") === "1";
const sorted = { heads: null, layers: null }; // the names of their orders; null for by number
// What the view holds, and the last of its choices that was answered.
let held = new Set();
let answered = 0;

document.getElementById("text").append(...sentences());
const buttons = modes();
chooseOrder();
const gridRoot = shadow("grid-view");
const viewRoot = shadow("head-view");
matchMedia("(prefers-color-scheme: dark)").onchange = () => show();
await show();
listChanges();
if (!pixels) document.getElementById("seen").remove();
document.getElementById("what").textContent = about.says;
document.body.dataset.ready = "1";

// ------------------------------------------------------------------------------------------------ what is shown

async function show() {
  const { layer } = choice;
  const maps = await mapsOf(layer);
  // Another layer was chosen while this one was unpacked.
  if (layer !== choice.layer) return;
  document.querySelector("main").classList.toggle("alone", alone);
  for (const [button, pressed] of buttons) button.setAttribute("aria-pressed", String(pressed()));
  document.documentElement.classList.toggle("lecture", lecture);
  const header = {
    ...grid.header,
    selected: [layer, choice.heads[0]],
    order: about.sorts[sorted.heads]?.[0] ?? null,
    rows: about.sorts[sorted.layers]?.[1] ?? null,
    lecture,
  };
  headGrid({ data: packed(header, [grid.tail]), parentElement: gridRoot, setTriggerValue: (_, log) => open(...log.at(-1)[1]) });
  if (pixels) drawPicture(maps);
  attentionView({ data: answer(layer, maps), parentElement: viewRoot, setStateValue: (_, said) => heard(said) });
}

// One head alone: a click in the grid or in the list, or the head whose vectors are wanted.
function open(layer, head) {
  alone = false;
  choose({ ...choice, layer, heads: [head] }, Math.max(answered + 1, Date.now()));
  show();
}

// Several heads as one map are those that the page was made with, and only some heads have their vectors here.
function choose(chosen, stamp) {
  if (chosen.layer !== choice.layer || String(chosen.heads) !== String(choice.heads)) together = false;
  [choice, answered] = [chosen, stamp];
  if (mode === "neuron" && !vectorsHere()) mode = "curves";
}

// A choice in the view, or that it lacks a map.
function heard(said) {
  held = new Set(said.have);
  const chosen = said.choice !== null && said.stamp > answered;
  if (chosen) choose(said.choice, said.stamp);
  const seen = mode === "neuron" && vectorsHere();
  const needed = [...wanted(choice.layer).map((head) => name(choice.layer, head)), ...(seen ? [vectorsName(seen)] : [])];
  if (chosen || needed.some((one) => !held.has(one))) setTimeout(show);
}

function answer(layer, maps) {
  const here = about.layers[layer];
  const drawn = drawnOf(layer);
  const sent = wanted(layer).filter((head) => !held.has(name(layer, head)));
  const map = (head) => (head === COMBINED ? one : maps[head]);
  const strongest = drawn.flatMap((head) =>
    (head === COMBINED ? about.one : { strongest: here.strongest[head] }).strongest.map((edge) => [head, ...edge]),
  );
  strongest.sort((a, b) => Math.abs(b[3]) - Math.abs(a[3]));
  const seen = mode === "neuron" ? vectorsHere() : null;
  const seenName = seen && vectorsName(seen);
  const lines = about.exact && drawn.length ? everyLine : [];
  const header = {
    ...about.fixed,
    lecture,
    layer,
    mode,
    names: Object.fromEntries([...existing(layer), ...(one ? [COMBINED] : [])].map((head) => [head, name(layer, head)])),
    sent,
    lines,
    drawn,
    combined: drawn.includes(COMBINED) ? about.one.name : null,
    vectors: seen && { ...seen, bytes: null, name: seenName, sent: !held.has(seenName) },
    limit: drawn.includes(COMBINED) ? null : mode === "matrix" ? about.cap : about.limit,
    notes: about.notes,
    heads: choice.heads,
    selected: [choice.side, choice.positions],
    kept: choice.kept,
    stamp: answered,
    pruned: here.pruned,
    off: here.off,
    holes: Object.fromEntries(drawn.map((head) => [head, head === COMBINED ? about.one.holes : here.holes[head]])),
    strongest: strongest.slice(0, about.strongest),
  };
  const parts = sent.map((head) => map(head).coded());
  if (header.vectors?.sent) parts.push(seen.bytes);
  for (const head of lines.length ? drawn : []) parts.push(map(head).lines());
  for (const head of sent) held.add(name(layer, head));
  if (seen) held.add(seenName);
  return packed(header, parts);
}

// What is drawn large: one map in the heads' stead, the chosen heads that exist, or in a matrix the first of them.
function drawnOf(layer) {
  if (mode === "neuron") return [];
  if (together) return [COMBINED];
  const there = existing(layer);
  return (mode === "curves" ? choice.heads : choice.heads.slice(0, 1)).filter((head) => there.includes(head));
}

// The maps that the view should have. Thin matrices are only multiplied when they are looked at.
function wanted(layer) {
  const drawn = drawnOf(layer);
  const quick = mode !== "neuron" && !about.layers[layer].ranks.some(Boolean);
  return quick ? [...new Set([...drawn, ...existing(layer)])] : drawn;
}

function vectorsHere() {
  return vectors.find(({ layer, head }) => layer === choice.layer && head === choice.heads[0]) ?? null;
}

function name(layer, head) {
  return head === COMBINED ? `${about.name} together` : `${about.name} L${layer} H${head}`;
}

function vectorsName({ layer, head }) {
  return `${about.name} L${layer} H${head} vectors`;
}

function existing(layer) {
  return [...Array(about.fixed.count).keys()].filter((head) => !about.layers[layer].pruned.includes(head));
}

// ------------------------------------------------------------------------------------------------ bytes

// The maps of a layer; unpacked when it is first looked at.
async function mapsOf(layer) {
  if (!layers.has(layer)) layers.set(layer, mapsIn(await unpacked(`layer-${layer}`), about.layers[layer].ranks));
  return layers.get(layer);
}

// Each map as the view takes it: the maxima of its rows with its codes, and where they are here its exact numbers.
function mapsIn(bytes, ranks) {
  let at = 0;
  const take = (length) => bytes.slice(at, (at += length));
  return ranks.map((rank) => {
    if (about.exact) {
      const numbers = new Float32Array(woven(take(4 * rows * columns), 4).buffer);
      const row = (i) => numbers.subarray(i * columns, (i + 1) * columns);
      return { coded: () => coded(numbers), lines: () => everyLineOf(numbers), row };
    }
    if (!rank) {
      const map = take(4 * rows + Math.ceil((rows * columns) / 4) * 4);
      return { coded: () => map, row: (i) => decoded(map, i) };
    }
    const head = new Float32Array(take(4 * rows + 4).buffer);
    const [left, right] = [rows, columns].map((length) => new Int16Array(woven(take(2 * rank * length), 2).buffer));
    take(-at & 3);
    return { coded: () => coded(product(left, right, head.at(-1), rank), head.subarray(0, rows)) };
  });
}

// The bytes of numbers that stand in planes: all first bytes, then all second ones.
function woven(bytes, width) {
  const count = bytes.length / width;
  const made = new Uint8Array(bytes.length);
  for (let plane = 0, i = 0; plane < width; plane++) {
    for (let j = 0; j < count; j++, i++) made[j * width + plane] = bytes[i];
  }
  return made;
}

// Two thin matrices (rank, row) and (rank, column), multiplied: each row in shares of its largest magnitude.
function product(left, right, step, rank) {
  const made = new Float32Array(rows * columns);
  for (let i = 0; i < rank; i++) {
    const other = right.subarray(i * columns, (i + 1) * columns);
    for (let row = 0, at = 0; row < rows; row++) {
      const factor = left[i * rows + row] * step * step;
      for (let column = 0; column < columns; column++, at++) made[at] += factor * other[column];
    }
  }
  return made;
}

// As the view takes a map. numbers: the values, or with maxima given their shares of these.
function coded(numbers, given = null) {
  const maxima = given?.slice() ?? new Float32Array(rows);
  const codes = new Uint8Array(Math.ceil((rows * columns) / 4) * 4);
  for (let row = 0; row < rows; row++) {
    const values = numbers.subarray(row * columns, (row + 1) * columns);
    if (!given) maxima[row] = values.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0);
    const whole = given ? 1 : maxima[row] || 1;
    values.forEach((x, i) => {
      const share = Math.max(-1, Math.min(x / whole, 1));
      const code = about.fixed.signed ? 127 + Math.round(127 * share) : Math.round(128 * share);
      codes[row * columns + i] = Number.isFinite(x) ? code : 255;
    });
  }
  const made = new Uint8Array(4 * rows + codes.length);
  made.set(new Uint8Array(maxima.buffer));
  made.set(codes, 4 * rows);
  return made;
}

// One row of a map as the view takes it.
function decoded(map, row) {
  const [maximum] = new Float32Array(map.slice(4 * row, 4 * row + 4).buffer);
  const codes = map.subarray(4 * rows + row * columns, 4 * rows + (row + 1) * columns);
  return Float32Array.from(codes, (code) => ((about.fixed.signed ? (code - 127) / 127 : code / 128) * maximum));
}

// Every row, then every column.
function everyLineOf(numbers) {
  const turned = Float32Array.from(numbers, (_, i) => numbers[(i % rows) * columns + Math.floor(i / rows)]);
  const made = new Float32Array(2 * numbers.length);
  made.set(numbers);
  made.set(turned, numbers.length);
  return new Uint8Array(made.buffer);
}

async function unpacked(id) {
  const text = document.getElementById(id).textContent;
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Four bytes with the length of the header, the header as JSON, then what follows it at a multiple of four.
function packed(header, parts) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = Math.ceil(text.length / 4) * 4;
  const bytes = new Uint8Array(4 + length + parts.reduce((sum, part) => sum + part.length, 0)).fill(32, 4, 4 + length);
  new DataView(bytes.buffer).setUint32(0, length, true);
  bytes.set(text, 4);
  let at = 4 + length;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

function read(bytes) {
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  return { header, tail: bytes.subarray(4 + length) };
}

function counted(count, side) {
  return Array.from({ length: count }, (_, i) => [side, i]);
}

// ------------------------------------------------------------------------------------------------ elements

// Each view stands behind a shadow, as in the app, so that its style is its own.
function shadow(id) {
  const root = document.getElementById(id).attachShadow({ mode: "open" });
  root.append(document.getElementById(`${id}-markup`).content);
  return root;
}

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.textContent = text;
  return made;
}

// What was read, a line each; the label of a line says whose it is.
function sentences() {
  return about.texts.map(([label, parts]) => {
    const line = element("div", "", "");
    if (label) line.append(element("span", "label", label));
    line.append(...parts.map((text, i) => element("span", i ? "b" : "a", text)));
    for (const part of line.children) part.dir = "auto";
    return line;
  });
}

// The ways to look, in groups of which one button is pressed: [button, whether it is].
function modes() {
  const made = [];
  const group = (...entries) => {
    const box = element("div", "modes", "");
    box.setAttribute("role", "group");
    for (const [text, act, pressed] of entries) {
      const button = element("button", "", text);
      button.type = "button";
      button.onclick = () => {
        act();
        show();
      };
      made.push([button, pressed]);
      box.append(button);
    }
    document.getElementById("modes").append(box);
  };
  const large = (act) => () => {
    alone = false;
    act();
  };
  const drawAs = (next) => [large(() => (mode = next)), () => mode === next && !alone];
  group(
    ["All heads", () => (alone = true), () => alone],
    ["Curves", ...drawAs("curves")],
    ["Matrix", ...drawAs("matrix")],
    ...vectors.map(({ layer, head }) => [
      `Neuron L${layer} H${head}`,
      large(() => {
        mode = "neuron";
        choose({ ...choice, layer, heads: [head] }, Math.max(answered + 1, Date.now()));
      }),
      () => mode === "neuron" && !alone && choice.layer === layer && choice.heads[0] === head,
    ]),
  );
  if (one) {
    group(
      [about.one.name, large(() => (together = true)), () => together],
      ["heads apart", large(() => (together = false)), () => !together],
    );
  }
  group(["Larger type", () => (lecture = !lecture), () => lecture]);
  return made;
}

// In which order heads stand in their layer, and layers below each other.
function chooseOrder() {
  const names = Object.keys(about.sorts);
  for (const [what, text] of names.length ? [["heads", "Heads of a layer"], ["layers", "Layers"]] : []) {
    const label = element("label", "", text);
    const select = element("select", "", "");
    const there = names.filter((name) => about.sorts[name][what === "heads" ? 0 : 1]);
    select.append(...["by number", ...there].map((name) => element("option", "", name)));
    select.onchange = () => {
      sorted[what] = select.value;
      show();
    };
    label.append(select);
    document.getElementById("sorting").append(label);
  }
}

// The picture, faint, under the row of the word that is selected.
function drawPicture(maps) {
  const word = Math.max(about.fixed.queries.findIndex(([, at]) => choice.side === "query" && choice.positions.includes(at)), 0);
  const head = drawnOf(choice.layer)[0];
  const values = (head === COMBINED ? one : maps[head]).row(word);
  const most = values.reduce((so, x) => Math.max(so, Math.abs(x) || 0), 0) || 1;
  const [height, width] = about.picture.size;
  const [down, across] = about.picture.grid;
  const style = getComputedStyle(document.body);
  const dark = style.colorScheme === "dark";
  const [canvas, caption] = document.getElementById("seen").children;
  const side = 4; // pixels of the screen for one of the picture, so that the edges of patches are sharp
  [canvas.width, canvas.height] = [width * side, height * side];
  const small = new OffscreenCanvas(width, height);
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    image.data.set(pixels.subarray(3 * i, 3 * i + 3), 4 * i);
    image.data[4 * i + 3] = 255;
  }
  small.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.fillStyle = style.backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.filter = "grayscale(1)";
  context.globalAlpha = 0.4;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  context.filter = "none";
  const scale = about.fixed.colours[Number(dark)];
  values.forEach((x, i) => {
    const [row, column] = [Math.floor(i / across), i % across];
    context.globalAlpha = 0.9 * (Math.abs(x) / most) ** 0.6 || 0;
    context.fillStyle = scale[about.fixed.signed && x < 0 ? 1 : scale.length - 2];
    context.fillRect((column * canvas.width) / across, (row * canvas.height) / down, canvas.width / across, canvas.height / down);
  });
  const whose = head === COMBINED ? about.one.name : `L${choice.layer} H${head}`;
  const said = `“${about.fixed.queries[word][0]}”, ${whose}`;
  canvas.setAttribute("aria-label", `${about.fixed.unit} over the picture for ${said}`);
  caption.textContent = said;
  caption.dir = "auto";
}

// The largest changes as a table; a click on a line opens its head.
function listChanges() {
  const box = document.getElementById("changes");
  if (!about.changes) return box.remove();
  const [names, lines] = about.changes;
  if (!lines.length) return box.replaceChildren(element("p", "faint", "Nothing changed at all."));
  const table = element("table", "", "");
  const head = element("tr", "", "");
  head.append(...names.map((text) => element("th", "", text)));
  table.append(head);
  for (const [layer, number, cells] of lines) {
    const row = element("tr", "", "");
    row.append(...cells.map((x) => (typeof x === "number" ? element("td", "number", signed(x)) : element("td", "", x))));
    for (const cell of row.children) cell.dir = "auto";
    const button = element("button", "", cells[0]);
    button.type = "button";
    button.onclick = () => open(layer, number);
    row.children[0].replaceChildren(button);
    table.append(row);
  }
  box.append(table);
}

function signed(x) {
  return x.toFixed(4).replace("-", "−");
}
