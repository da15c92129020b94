// Messages as bytes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateRawSync } from "node:zlib";
import { inflated, packed, unpack } from "../../viz_app/components/message.js";

test("A header and what follows it come back as they were, also from the middle of a buffer", () => {
  const header = { text: "naïve 😀", list: [1, null] };
  const bytes = packed(header, [Uint8Array.of(1, 2, 3), Uint8Array.of(4)]);
  const inside = new Uint8Array(bytes.length + 3);
  inside.set(bytes, 3);
  for (const data of [bytes, inside.subarray(3)]) {
    const { header: again, tail } = unpack(data);
    assert.deepEqual(again, header);
    assert.deepEqual([...tail], [1, 2, 3, 4]);
  }
});

test("What follows a header starts at a multiple of four, so that numbers can be read in place", () => {
  for (const text of ["", "a", "ab", "abc"]) {
    const bytes = packed({ text }, [Uint8Array.of(9)]);
    assert.equal((bytes.length - 1) % 4, 0);
  }
});

test("What was deflated without a header is unpacked", async () => {
  const bytes = Uint8Array.from({ length: 1000 }, (_, i) => i % 7);
  assert.deepEqual(new Uint8Array(await inflated(new Uint8Array(deflateRawSync(bytes)))), bytes);
});
