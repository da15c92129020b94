"""The heads of one layer, shown in the app."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import streamlit as st
from streamlit.components.v2 import component

from viz_app.components.attention_view import (
    COMBINED,
    LEAST_KEPT,
    LONGEST_ASK,
    MARKUP,
    MOST_KEPT,
    STRONGEST,
    STYLE,
    Vectors,
    ViewChoice,
    fixed_header,
)
from viz_app.components.attention_view.everywhere import Everywhere
from viz_app.components.attention_view.packing import coded, deflated, name_of, name_of_bytes, padded, strongest_edges
from viz_app.components.joining import joined
from viz_app.figures.style import current_look
from viz_app.tokens import Combined, Token

PACKED_FROM = 1 << 14  # bytes; less is drawn at once
SENT_EARLY = 1 << 20  # bytes: a layer of no more is sent whole, so that its other heads are there when they are wanted
MODES = ("curves", "matrix", "neuron")

Mode = Literal["curves", "matrix", "neuron"]

_view = component(
    "headlight.attention_view", html=MARKUP, css=STYLE, js=joined(Path(__file__).parent / "attention_view.js")
)


def attention_view(
    maps: np.ndarray,
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    choice: ViewChoice,
    layers: int,
    mode: Mode = "curves",
    combined: Combined | None = None,
    vectors: Vectors | None = None,
    off: Collection[int] = (),
    pruned: Collection[int] | None = None,
    signed: bool = False,
    limit: float | None = None,
    notes: Sequence[str] = (),
    unit: str = "attention",
    everywhere: Everywhere | None = None,
    grid: str | None = None,
    key: str,
    on_change: Callable[[ViewChoice], None] | None = None,
) -> None:
    """The chosen heads of one layer as curves between two columns of tokens, or the first of them in more detail.

    maps: (head, query, key), those of `choice.layer`. NaN is no number.
    mode: "curves"; "matrix", the map of the first chosen head; "neuron", how that head comes to its attention, for
        which `vectors` are needed where the head exists.
    combined: a map to draw instead of the chosen heads, as curves or as a matrix.
    layers: how many there are to go through. off: the heads that are switched off. unit: what a value is.
    pruned: the heads that do not exist; None takes those that are NaN throughout.
    signed: values have a sign, and curves its colour. limit: the value of the strongest colour, where it is to be the
        same for several views; None takes the largest that is drawn.
    notes: sentences that the view says of its rows.
    everywhere: the heads of all layers, to show those that are chosen before the server answers; only where `notes` and
        `limit` are the same for all. grid: the key of the grid whose clicks choose a head of this view.
    on_change: called with what was chosen in the view, before the run that this starts.
    Raises ValueError for maps or vectors that do not fit the tokens, or a chosen head that they do not have.
    """
    look = current_look()
    if maps.ndim != 3 or maps.shape[1:] != (len(queries), len(keys)) or 0 in maps.shape:
        raise ValueError(
            f"maps of shape {maps.shape} with {len(queries)} queries and {len(keys)} keys: "
            "expected (head, query, key), at least one of each"
        )
    heads = range(len(maps))
    if mode not in MODES:
        raise ValueError(f"mode {mode!r}: one of {', '.join(MODES)}")
    if not choice.heads or any(head not in heads for head in choice.heads):
        raise ValueError(f"heads {choice.heads}: at least one of 0 to {len(maps) - 1}")
    if combined is not None and (mode == "neuron" or combined.map.shape != maps.shape[1:]):
        raise ValueError(
            f"a combined map of shape {combined.map.shape} as {mode!r}: "
            f"expected {maps.shape[1:]}, as 'curves' or 'matrix'"
        )
    if vectors is not None and (len(vectors.queries), len(vectors.keys)) != maps.shape[1:]:
        raise ValueError(
            f"vectors of {len(vectors.queries)} queries and {len(vectors.keys)} keys: expected {maps.shape[1:]}"
        )

    def receive() -> None:
        said = _said(key)
        wanted = _choice(said.get("choice"), layers, heads)
        if wanted is not None and said["stamp"] > st.session_state.get(f"_delivered_{key}", 0):
            st.session_state[f"_delivered_{key}"] = said["stamp"]
            if on_change is not None:
                on_change(wanted)

    said = _said(key)
    stamp = max(st.session_state.get(f"_delivered_{one}", 0) for one in (key, grid or key))
    if combined is not None or mode == "neuron":
        everywhere = None
    held = {name for name in said.get("have", []) if isinstance(name, str)}
    if pruned is None:
        pruned = [head for head in heads if np.isnan(maps[head]).all()]
    chosen = choice.heads if mode == "curves" else choice.heads[:1]
    drawn = [COMBINED] if combined is not None else [head for head in chosen if head not in pruned]
    # What is looked at first, then the other heads where they are small, so that they are there when they are wanted.
    others = [head for head in heads if head not in drawn and head not in pruned]
    early = combined is None and everywhere is None and maps.size <= SENT_EARLY
    wanted = [] if mode == "neuron" else [*drawn, *others] if early else drawn

    def map_of(head: int) -> np.ndarray:
        return combined.map if combined is not None and head == COMBINED else maps[head]

    names = {head: name_of(map_of(head), signed=signed) for head in wanted}
    parts: list[bytes] = []
    sent = []
    for head in wanted:
        if names[head] not in held:
            parts.append(coded(map_of(head), signed=signed))
            sent.append(head)
    made_from, arrays = _made_from(vectors, held) if mode == "neuron" and vectors is not None else (None, [])
    parts += arrays
    lines = [line for line in said.get("lines", [])[:LONGEST_ASK] if _is_line(line, maps.shape)]
    for head in drawn if mode != "neuron" else ():
        for side, index in lines:
            line = map_of(head)[index] if side == "query" else map_of(head)[:, index]
            parts.append(line.astype("<f4").tobytes())
    arrays_sent = b"".join(parts)
    packed = len(arrays_sent) > PACKED_FROM
    header = fixed_header(queries, keys, layers=layers, heads=len(maps), signed=signed, unit=unit) | {
        "fills": look.lecture,
        "packed": packed,
        "layer": choice.layer,
        "mode": mode,
        "names": names,
        "sent": sent,
        "lines": lines,
        "drawn": drawn if mode != "neuron" else [],
        "combined": None if combined is None else combined.name,
        "vectors": made_from,
        "heads": choice.heads,
        "selected": [choice.side, choice.positions],
        "kept": min(max(choice.kept, LEAST_KEPT), MOST_KEPT),
        "stamp": stamp,
        "pruned": sorted(pruned),
        "off": sorted(off),
        "holes": {head: int((~np.isfinite(map_of(head))).sum()) for head in drawn},
        "limit": limit,
        "notes": list(notes),
        "strongest": strongest_edges({head: map_of(head) for head in drawn}, drawn, STRONGEST),
    }
    all_maps = b""
    if everywhere is not None:
        header["everywhere"] = everywhere.name
        if st.session_state.get(f"_everywhere_{key}") != everywhere.name:
            st.session_state[f"_everywhere_{key}"] = everywhere.name
            header["all"], all_maps = everywhere.said(), everywhere.packed
    _view(
        key=key,
        data=_packed(header, (deflated(arrays_sent) if packed else arrays_sent) + all_maps),
        height="stretch" if look.lecture else "content",
        on_said_change=receive,
    )


def _made_from(vectors: Vectors, held: Collection[str]) -> tuple[dict[str, Any], list[bytes]]:
    """What the header says of the vectors, and the vectors, exactly, if the browser does not have them."""
    content = b"".join(part.astype("<f4").tobytes() for part in vectors[:3] if part is not None)
    name = name_of_bytes(content, repr(vectors.queries.shape))
    said = {
        "name": name,
        "size": vectors.queries.shape[1],
        "distances": vectors.distances is not None,
        "causal": vectors.causal,
        "sent": name not in held,
    }
    return said, [] if name in held else [content]


def _said(key: str) -> dict[str, Any]:
    """What the view said last; empty where it said nothing, or nothing of ours."""
    view = st.session_state.get(key)
    said = view.get("said") if view else None
    if not isinstance(said, dict) or not isinstance(said.get("stamp"), int | float):
        return {}
    lists = {name: said[name] for name in ("have", "lines") if isinstance(said.get(name), list)}
    return {"stamp": said["stamp"], "choice": said.get("choice"), **lists}


def _choice(said: object, layers: int, heads: range) -> ViewChoice | None:
    """The choice in a message of the view; None for one that cannot be."""
    if not isinstance(said, dict):
        return None
    layer, side, kept = (said.get(name) for name in ("layer", "side", "kept"))
    drawn, positions = (_numbers(said.get(name)) for name in ("heads", "positions"))
    if (
        not (type(layer) is int and layer in range(layers))
        or side not in ("query", "key")
        or not drawn
        or any(head not in heads for head in drawn)
        or positions is None
        or not isinstance(kept, int | float)
        or not LEAST_KEPT <= kept <= MOST_KEPT
    ):
        return None
    return ViewChoice(layer, tuple(dict.fromkeys(drawn)), side, tuple(sorted(set(positions))), round(float(kept), 2))


def _numbers(said: object) -> list[int] | None:
    if not isinstance(said, list) or any(type(number) is not int or number < 0 for number in said):
        return None
    return said


def _is_line(line: object, shape: tuple[int, ...]) -> bool:
    if not isinstance(line, list) or len(line) != 2 or line[0] not in ("query", "key"):
        return False
    return type(line[1]) is int and line[1] in range(shape[1 if line[0] == "query" else 2])


def _packed(header: dict[str, Any], arrays: bytes) -> bytes:
    """The length of the header, the header, then the arrays, which start at a multiple of four."""
    text = padded(json.dumps(header).encode(), b" ")
    return len(text).to_bytes(4, "little") + text + arrays
