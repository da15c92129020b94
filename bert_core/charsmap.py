"""Validation of SentencePiece's character table in a `tokenizer.json`, so that no text can lead outside of it."""

from __future__ import annotations

import base64
import binascii

import numpy as np

from bert_core.refused import Refused, short_repr

MAX_UNITS = 1 << 19  # ten times those of the published tables
MAX_REPLACEMENT_BYTES = 128  # for one character; the longest in Unicode's NFKC has 33
_LABEL, _LEAF = 1 << 31 | 0xFF, 1 << 8


def check_charsmap(table: object) -> None:
    """Raise Refused unless a character table is valid; the tokenizers library aborts the program on an invalid one.

    table: `precompiled_charsmap` in base64. It consists of a trie over bytes, stored as a double array, and of the
        replacements, each with a zero byte at its end.
    The check visits every unit that any text can reach. Each must lie within the array, and each replacement must be
    short and start at the beginning of a character.
    Source: format of darts-clone, as SentencePiece writes it.
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
            f"its precompiled_charsmap is {len(data):,} bytes long and states {size:,} for its trie: it must be a "
            f"complete table with a trie of at most {MAX_UNITS:,} units"
        )
    units = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64)
    replacements = np.frombuffer(data, np.uint8, offset=4 + size)
    try:
        replacements.tobytes().decode()
    except UnicodeDecodeError as error:
        raise Refused(f"the replacements of its precompiled_charsmap are no text in UTF-8: {error}") from error
    starts = _replacement_starts(units)
    # A replacement ends at the next zero byte, or at the end of the data.
    ends = np.append(np.flatnonzero(replacements == 0), len(replacements))
    if starts.size and starts.max() > len(replacements):
        raise Refused(f"its precompiled_charsmap names byte {starts.max():,} of {len(replacements):,} as a replacement")
    max_length = (ends[np.searchsorted(ends, starts)] - starts).max(initial=0)
    valid_starts = starts[starts < len(replacements)]
    if max_length > MAX_REPLACEMENT_BYTES or (replacements[valid_starts] & 0xC0 == 0x80).any():
        raise Refused(
            "its precompiled_charsmap has a replacement that begins within a character, or is longer than "
            f"{MAX_REPLACEMENT_BYTES} bytes"
        )


def _replacement_starts(units: np.ndarray) -> np.ndarray:
    """Return the positions of the replacements in a trie's leaves. Raises Refused if a text can leave the array."""
    offsets = units >> 10 << ((units & 1 << 9) >> 6)
    labels = np.arange(1, 256)
    visited, starts = np.zeros(len(units), bool), []
    bases = offsets[:1]  # positions of the children of the root
    while bases.size:
        if ((bases | 0xFF) >= len(units)).any():
            raise Refused(f"its precompiled_charsmap leads out of its trie of {len(units):,} units")
        next_bases = []
        for chunk in np.array_split(bases, len(bases) // 4096 + 1):
            candidates = chunk[:, None] ^ labels
            children = candidates[units[candidates] & _LABEL == labels]
            children = np.unique(children[~visited[children]])
            visited[children] = True
            next_bases.append(children ^ offsets[children])
            leaves = next_bases[-1][units[children] & _LEAF != 0]
            if (leaves >= len(units)).any():
                raise Refused(f"its precompiled_charsmap leads out of its trie of {len(units):,} units")
            starts.append(units[leaves] & (1 << 31) - 1)
        bases = np.concatenate(next_bases)
    return np.concatenate(starts) if starts else np.empty(0, np.int64)
