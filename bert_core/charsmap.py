"""SentencePiece's table of characters, as a `tokenizer.json` holds it: whether every text read by it stays inside."""

from __future__ import annotations

import base64
import binascii

import numpy as np

from bert_core.refused import Refused, short_repr

MAX_UNITS = 1 << 19  # ten times those of the published tables
MAX_REPLACEMENT_BYTES = 128  # bytes for one character; Unicode's longest, of NFKC, has 33
_LABEL, _LEAF = 1 << 31 | 0xFF, 1 << 8


def check_charsmap(table: object) -> None:
    """Raise Refused unless a table in base64 is whole: the library that runs it stops the program where it is not.

    The table is a trie over bytes in a double array, then the replacements, each with a zero at its end. Every place
    that some text can lead to is looked at: it must be in the array, and a replacement short and of whole characters.
    Source of the form: darts-clone, as SentencePiece writes it (`precompiled_charsmap`).
    """
    if not isinstance(table, str):
        raise Refused(f"its precompiled_charsmap is {short_repr(table)}: it must be a text in base64")
    try:
        data = base64.b64decode(table, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(f"its precompiled_charsmap is {short_repr(table)}: it must be a text in base64") from error
    size = int.from_bytes(data[:4], "little")
    if len(data) < 8 or not 4 <= size <= min(len(data) - 4, 4 * MAX_UNITS) or size % 4:
        raise Refused(
            f"its precompiled_charsmap is of {len(data):,} bytes and says that its trie has {size:,}: it must be a "
            f"whole table with a trie of at most {MAX_UNITS:,} units"
        )
    units = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64)
    replacements = np.frombuffer(data, np.uint8, offset=4 + size)
    try:
        replacements.tobytes().decode()
    except UnicodeDecodeError as error:
        raise Refused(f"the replacements of its precompiled_charsmap are no text in UTF-8: {error}") from error
    begins = _replacements_of(units)
    # The end of each: the next zero, or the end of all.
    ends = np.append(np.flatnonzero(replacements == 0), len(replacements))
    if begins.size and begins.max() > len(replacements):
        raise Refused(f"its precompiled_charsmap names byte {begins.max():,} of {len(replacements):,} as a replacement")
    longest = (ends[np.searchsorted(ends, begins)] - begins).max(initial=0)
    inside = begins[begins < len(replacements)]
    if longest > MAX_REPLACEMENT_BYTES or (replacements[inside] & 0xC0 == 0x80).any():
        raise Refused(
            "its precompiled_charsmap has a replacement that begins within a character, or is longer than "
            f"{MAX_REPLACEMENT_BYTES} bytes"
        )


def _replacements_of(units: np.ndarray) -> np.ndarray:
    """Where the replacements begin that a trie's leaves name. Raises Refused if a text can lead out of the array."""
    offsets = units >> 10 << ((units & 1 << 9) >> 6)
    signs = np.arange(1, 256)
    seen, found = np.zeros(len(units), bool), []
    bases = offsets[:1]  # where the children of the root are
    while bases.size:
        if ((bases | 0xFF) >= len(units)).any():
            raise Refused(f"its precompiled_charsmap leads out of its trie of {len(units):,} units")
        next_bases = []
        for some in np.array_split(bases, len(bases) // 4096 + 1):
            children = some[:, None] ^ signs
            there = children[units[children] & _LABEL == signs]
            there = np.unique(there[~seen[there]])
            seen[there] = True
            next_bases.append(there ^ offsets[there])
            leaves = next_bases[-1][units[there] & _LEAF != 0]
            if (leaves >= len(units)).any():
                raise Refused(f"its precompiled_charsmap leads out of its trie of {len(units):,} units")
            found.append(units[leaves] & (1 << 31) - 1)
        bases = np.concatenate(next_bases)
    return np.concatenate(found) if found else np.empty(0, np.int64)
