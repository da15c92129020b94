"""The heads of all layers, sent once, so that the browser shows a head that is chosen before the server answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from viz_app.components.attention_view import STRONGEST
from viz_app.components.attention_view.packing import coded, deflated, name_of, name_of_bytes, strongest_edges
from viz_app.windows import Hatching

MOST_VALUES = 2 << 20  # of all maps together: a byte each, before they are packed


@dataclass(frozen=True)
class AllMaps:
    """The maps of all heads on their way to the browser, and what is said of each layer.

    name: of the content. layers: by layer the names of the maps, the heads that do not exist or are off, the values
    that are no number, the strongest edges of each head, and the hatched area. packed: the maps, deflated.
    """

    name: str
    layers: tuple[dict[str, Any], ...]
    packed: bytes

    def header(self) -> dict[str, Any]:
        """Return the fields of the message that describe the maps."""
        return {"name": self.name, "layers": self.layers, "listed": STRONGEST, "bytes": len(self.packed)}


def pack_all_maps(
    maps: np.ndarray,
    *,
    existing: np.ndarray,
    off: np.ndarray,
    signed: bool,
    hatchings: Sequence[Hatching | None] = (),
) -> AllMaps | None:
    """All heads, ready to be sent; None where they are too many bytes to be sent for a click that may never come.

    maps: (layer, head, query, key), as they are shown. existing, off: (layer, head), heads that exist,
    and that are off. hatchings: of each layer; empty without local layers.
    """
    if maps.size > MOST_VALUES:
        return None
    parts: list[bytes] = []
    layers = []
    areas = hatchings or [None] * len(maps)
    for layer_maps, present, is_off, hatching in zip(maps, existing, off, areas, strict=True):
        heads = np.flatnonzero(present).tolist()
        names = {head: name_of(layer_maps[head], signed=signed) for head in heads}
        parts += [coded(layer_maps[head], signed=signed) for head in heads]
        edges = {head: strongest_edges({head: layer_maps[head]}, [head], STRONGEST) for head in heads}
        layers.append(
            {
                "names": names,
                "pruned": np.flatnonzero(~present).tolist(),
                "off": np.flatnonzero(is_off).tolist(),
                "holes": (~np.isfinite(layer_maps)).sum((-2, -1)).tolist(),
                "strongest": [[edge[1:] for edge in edges.get(head, ())] for head in range(len(layer_maps))],
                "hatching": hatching,
            }
        )
    name = name_of_bytes(repr([layer["names"] for layer in layers]).encode(), repr(np.argwhere(off).tolist()))
    return AllMaps(name, tuple(layers), deflated(b"".join(parts)))
