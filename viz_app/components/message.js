// Messages as bytes: four with the length of the header, the header as JSON, then arrays.

/**
 * @template Header
 * @param {Uint8Array} data
 * @returns {{ header: Header, tail: Uint8Array }}
 */
export function unpack(data) {
  const length = new DataView(data.buffer, data.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
  return { header, tail: data.subarray(4 + length) };
}

/**
 * What follows the header starts at a multiple of four.
 * @param {object} header
 * @param {Uint8Array[]} parts
 */
export function packed(header, parts) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const start = 4 + upToFour(text.length);
  const bytes = new Uint8Array(start + parts.reduce((sum, part) => sum + part.length, 0)).fill(32, 4, start);
  new DataView(bytes.buffer).setUint32(0, start - 4, true);
  bytes.set(text, 4);
  let at = start;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** @param {number} length */
export const upToFour = (length) => Math.ceil(length / 4) * 4;

/** @param {Uint8Array<ArrayBuffer>} bytes */
export function inflated(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer();
}
