// Maps as the view holds them, from numbers.

// Any will do: the real ones come with each message.
export const codes = { highest: 128, zero: 127, none: 255 };

/** A map whose values are multiples of what a byte can say, or near it. */
export function mapOf(values, { signed = false } = {}) {
  const maxima = Float32Array.from(values, (row) =>
    row.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0),
  );
  const codeOf = (x, most) => {
    if (!Number.isFinite(x)) return codes.none;
    const share = most ? x / most : 0;
    return signed ? codes.zero + Math.round(codes.zero * share) : Math.round(codes.highest * share);
  };
  return {
    name: "map",
    rows: values.length,
    columns: values[0].length,
    maxima,
    bytes: Uint8Array.from(values.flatMap((row, i) => row.map((x) => codeOf(x, maxima[i])))),
    codes,
    signed,
    exact: new Map(),
    weight: 0,
  };
}
