"""The heads of all layers, sent once, so that the browser shows a head that is chosen before the server answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from viz_app.components.attention_view import STRONGEST
from viz_app.components.attention_view.packing import coded, deflated, name_of, name_of_bytes, strongest_edges

MOST_VALUES = 2 << 20  # of all maps together: a byte each, before they are packed


@dataclass(frozen=True)
class Everywhere:
    """The maps of all heads on their way to the browser, and what is said of each layer.

    name: of the content. layers: by layer the names of the maps, the heads that do not exist or are off, the values
    that are no number and the strongest edges of each head. packed: the maps, deflated.
    """

    name: str
    layers: tuple[dict[str, Any], ...]
    packed: bytes

    def said(self) -> dict[str, Any]:
        """What the browser is told of it."""
        return {"name": self.name, "layers": self.layers, "listed": STRONGEST, "bytes": len(self.packed)}


def everywhere(maps: np.ndarray, *, there: np.ndarray, off: np.ndarray, signed: bool) -> Everywhere | None:
    """All heads, ready to be sent; None where they are too many bytes to be sent for a click that may never come.

    maps: (layer, head, query, key), as they are shown. there, off: (layer, head), heads that exist, and that are off.
    """
    if maps.size > MOST_VALUES:
        return None
    parts: list[bytes] = []
    layers = []
    for of_layer, present, is_off in zip(maps, there, off, strict=True):
        heads = np.flatnonzero(present).tolist()
        names = {head: name_of(of_layer[head], signed=signed) for head in heads}
        parts += [coded(of_layer[head], signed=signed) for head in heads]
        edges = {head: strongest_edges({head: of_layer[head]}, [head], STRONGEST) for head in heads}
        layers.append(
            {
                "names": names,
                "pruned": np.flatnonzero(~present).tolist(),
                "off": np.flatnonzero(is_off).tolist(),
                "holes": (~np.isfinite(of_layer)).sum((-2, -1)).tolist(),
                "strongest": [[edge[1:] for edge in edges.get(head, ())] for head in range(len(of_layer))],
            }
        )
    name = name_of_bytes(repr([layer["names"] for layer in layers]).encode(), repr(np.argwhere(off).tolist()))
    return Everywhere(name, tuple(layers), deflated(b"".join(parts)))
