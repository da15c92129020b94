"""Where attention goes, in a few numbers a head, and which part of a map is looked at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_core.tokenizer import Encoding


def part_positions(encoding: Encoding, part: str, *, hide_special: bool) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the queries and of the keys that belong to a part of the map.

    part: "all", or from which text to which: "A to A", "A to B", "B to A", "B to B".
    hide_special: leave the added [CLS] and [SEP] out. Rows are not renormalised by this.
    Returns two rising integer arrays (query,) and (key,), empty where the text has no such part.
    Raises ValueError for an unknown part.
    """
    sides = np.array([side or "" for side in encoding.sides])
    shown = ~np.array(encoding.special) if hide_special else np.ones(len(encoding), bool)
    if part == "all":
        positions = np.nonzero(shown)[0]
        return positions, positions
    query_side, separator, key_side = part.partition(" to ")
    if not separator or {query_side, key_side} - {"A", "B"}:
        raise ValueError(f"part {part!r} is unknown: 'all', 'A to A', 'A to B', 'B to A' or 'B to B'")
    return np.nonzero(sides == query_side)[0], np.nonzero(sides == key_side)[0]


def attention_entropy(attention: np.ndarray) -> np.ndarray:
    """Mean over queries of how spread out a head's attention is, in nats: 0 for one key, ln(keys) for all alike.

    attention: (layer, head, query, key), each row sums to 1. Returns (layer, head).
    """
    terms = attention * np.log(np.maximum(attention, np.finfo(np.float32).tiny))
    entropy: np.ndarray = -terms.sum(-1).mean(-1)
    return entropy


def mean_distance(attention: np.ndarray) -> np.ndarray:
    """Mean distance in tokens between a query and what it attends to, weighted by attention.

    attention: (layer, head, query, key). Returns (layer, head).
    """
    positions = np.arange(attention.shape[-1])
    distances = np.abs(positions[:, None] - positions[None, :]).astype(np.float32)
    mean: np.ndarray = (attention * distances).sum(-1).mean(-1)
    return mean


def share_to(attention: np.ndarray, keys: Sequence[bool] | np.ndarray) -> np.ndarray:
    """Share of a head's attention that goes to some keys, mean over queries, 0 to 1.

    attention: (layer, head, query, key). keys: boolean (key,). Returns (layer, head).
    """
    share: np.ndarray = attention[..., np.asarray(keys)].sum(-1).mean(-1)
    return share
