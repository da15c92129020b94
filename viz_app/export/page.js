// The two views in a page of their own. What Streamlit's server answers in the app is answered here, from what the
// page holds: `headGrid` and `attentionView` stand above. Every text reaches the page through textContent.

const [shown, gridData] = await Promise.all([unpacked("shown"), unpacked("grid")]);
const about = JSON.parse(new TextDecoder().decode(shown));
const grid = read(gridData);
const [rows, columns] = [about.fixed.queries.length, about.fixed.keys.length];
const layers = new Map();
let choice = about.choice;
let mode = about.mode;
// What the view holds, and the last of its choices that was answered.
let held = new Set();
let answered = 0;

document.getElementById("text").append(...sentences());
for (const button of document.querySelectorAll("[data-mode]")) {
  button.onclick = () => {
    mode = button.dataset.mode;
    show();
  };
}
const gridRoot = shadow("grid-view");
const viewRoot = shadow("head-view");
matchMedia("(prefers-color-scheme: dark)").onchange = () => show();
await show();
document.getElementById("what").textContent = about.says;
document.body.dataset.ready = "1";

// ------------------------------------------------------------------------------------------------ what is shown

async function show() {
  const { layer } = choice;
  const maps = await mapsOf(layer);
  // Another layer was chosen while this one was unpacked.
  if (layer !== choice.layer) return;
  for (const button of document.querySelectorAll("[data-mode]")) {
    button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
  }
  const header = { ...grid.header, selected: [layer, choice.heads[0]] };
  headGrid({ data: packed(header, [grid.tail]), parentElement: gridRoot, setTriggerValue: (_, log) => clicked(log) });
  attentionView({ data: answer(layer, maps), parentElement: viewRoot, setStateValue: (_, said) => heard(said) });
}

// A click in the grid opens that head alone.
function clicked(log) {
  const [layer, head] = log.at(-1)[1];
  choice = { ...choice, layer, heads: [head] };
  answered = Math.max(answered + 1, Date.now());
  show();
}

// A choice in the view, or that it lacks a map. Exact numbers are not in this page: what asks for them gets none.
function heard(said) {
  held = new Set(said.have);
  const chosen = said.choice !== null && said.stamp > answered;
  if (chosen) [choice, answered] = [said.choice, said.stamp];
  if (chosen || existing(choice.layer).some((head) => !held.has(name(choice.layer, head)))) setTimeout(show);
}

function answer(layer, maps) {
  const here = about.layers[layer];
  const there = existing(layer);
  const drawn = (mode === "curves" ? choice.heads : choice.heads.slice(0, 1)).filter((head) => there.includes(head));
  const sent = there.filter((head) => !held.has(name(layer, head)));
  for (const head of sent) held.add(name(layer, head));
  const strongest = drawn.flatMap((head) => here.strongest[head].map((edge) => [head, ...edge]));
  strongest.sort((a, b) => Math.abs(b[3]) - Math.abs(a[3]));
  const header = {
    ...about.fixed,
    layer,
    mode,
    names: Object.fromEntries(there.map((head) => [head, name(layer, head)])),
    sent,
    lines: [],
    drawn,
    combined: null,
    vectors: null,
    limit: null,
    notes: about.notes,
    heads: choice.heads,
    selected: [choice.side, choice.positions],
    kept: choice.kept,
    stamp: answered,
    pruned: here.pruned,
    off: here.off,
    holes: Object.fromEntries(drawn.map((head) => [head, here.holes[head]])),
    strongest: strongest.slice(0, about.strongest),
  };
  return packed(header, sent.map((head) => maps[head]));
}

function name(layer, head) {
  return `${about.name} L${layer} H${head}`;
}

function existing(layer) {
  return [...Array(about.fixed.count).keys()].filter((head) => !about.layers[layer].pruned.includes(head));
}

// ------------------------------------------------------------------------------------------------ bytes

// The maps of a layer, for each head the maxima of its rows and then its codes; unpacked when it is first looked at.
async function mapsOf(layer) {
  if (!layers.has(layer)) {
    const bytes = await unpacked(`layer-${layer}`);
    const length = 4 * rows + Math.ceil((rows * columns) / 4) * 4;
    const maps = Array.from({ length: about.fixed.count }, (_, head) => bytes.subarray(head * length, (head + 1) * length));
    layers.set(layer, maps);
  }
  return layers.get(layer);
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

// ------------------------------------------------------------------------------------------------ elements

// Each view stands behind a shadow, as in the app, so that its style is its own.
function shadow(id) {
  const root = document.getElementById(id).attachShadow({ mode: "open" });
  root.append(document.getElementById(`${id}-markup`).content);
  return root;
}

function sentences() {
  return about.texts.map((text, i) => {
    const made = document.createElement("span");
    made.className = i ? "b" : "a";
    made.dir = "auto";
    made.textContent = text;
    return made;
  });
}
