// What the server will say of a choice of heads, where the heads of all layers are here.

import { cache } from "./maps.js";

/** @import { Edge, EverywhereSaid } from "../messages.d.ts" */
/** @import { View } from "./view.d.ts" */

const REMEMBERED = 4; // texts

// By name, of the last texts; like the maps they outlive the view.
/** @type {Map<string, EverywhereSaid>} */
const known = new Map();

/** @param {EverywhereSaid} all */
export function remember(all) {
  known.set(all.name, all);
  for (const name of [...known.keys()].slice(0, -REMEMBERED)) known.delete(name);
}

/**
 * What the server will answer to a choice of heads, where everything that it needs is here; whether that is so.
 * @param {View} view
 */
export function foresee(view) {
  const { header, choice } = view;
  const all = known.get(header.everywhere ?? "");
  const layer = all?.layers[choice.layer];
  if (!layer || header.combined || header.mode === "neuron") return false;
  const heads = header.mode === "curves" ? choice.heads : choice.heads.slice(0, 1);
  const drawn = heads.filter((head) => !layer.pruned.includes(head));
  if (drawn.some((head) => !cache.has(layer.names[head]))) return false;
  const { names, pruned, off, hatching } = layer;
  const holes = Object.fromEntries(drawn.map((head) => [head, layer.holes[head]]));
  const edges = drawn.flatMap((head) => layer.strongest[head].map((edge) => /** @type {Edge} */ ([head, ...edge])));
  const strongest = edges.sort((a, b) => Math.abs(b[3]) - Math.abs(a[3])).slice(0, all.listed);
  view.header = {
    ...header,
    layer: choice.layer,
    heads: [...choice.heads],
    drawn,
    names,
    pruned,
    off,
    holes,
    strongest,
    hatching,
  };
  return true;
}
