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
    LONGEST_ASK,
    MARKUP,
    MAX_SHARE,
    MIN_SHARE,
    STRONGEST,
    STYLE,
    Vectors,
    ViewChoice,
    fixed_header,
)
from viz_app.components.attention_view.everywhere import AllMaps
from viz_app.components.attention_view.packing import coded, deflated, name_of, name_of_bytes, padded, strongest_edges
from viz_app.components.joining import joined
from viz_app.figures.style import current_look
from viz_app.tokens import Combined, Token
from viz_app.windows import Hatching

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
    query: int = 0,
    off: Collection[int] = (),
    pruned: Collection[int] | None = None,
    signed: bool = False,
    limit: float | None = None,
    notes: Sequence[str] = (),
    unit: str = "attention",
    preload: AllMaps | None = None,
    grid: str | None = None,
    hatching: Hatching | None = None,
    is_compact: bool = False,
    key: str,
    on_change: Callable[[ViewChoice], None] | None = None,
) -> None:
    """The chosen heads of one layer as curves between two columns of tokens, or the first of them in more detail.

    maps: (head, query, key), those of `choice.layer`. NaN is no number.
    mode: "curves"; "matrix", the map of the first chosen head; "neuron", how that head comes to its attention, for
        which `vectors` are needed where the head exists. query: position of its token as long as none is chosen.
    combined: a map to draw instead of the chosen heads, as curves or as a matrix.
    layers: how many there are to go through. off: the heads that are switched off. unit: what a value is.
    pruned: the heads that do not exist; None takes those that are NaN throughout.
    signed: values have a sign, and curves its colour. limit: the value of the strongest colour, where it is to be the
        same for several views; None takes the largest that is drawn.
    notes: sentences that the view says of its rows.
    preload: the heads of all layers, to show those that are chosen before the server answers; only where `notes` and
        `limit` are the same for all. grid: the key of the grid whose clicks choose a head of this view.
    hatching: the area of the map outside the window of a local layer; None: all pairs are possible.
    is_compact: whether it has the curves alone, without the choice of heads and the table of numbers.
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
        message = _last_message(key)
        requested = _choice(message.get("choice"), layers, heads)
        if requested is not None and message["stamp"] > st.session_state.get(f"_delivered_{key}", 0):
            st.session_state[f"_delivered_{key}"] = message["stamp"]
            if on_change is not None:
                on_change(requested)

    message = _last_message(key)
    stamp = max(st.session_state.get(f"_delivered_{name}", 0) for name in (key, grid or key))
    if combined is not None or mode == "neuron":
        preload = None
    cached_names = {name for name in message.get("have", []) if isinstance(name, str)}
    if pruned is None:
        pruned = [head for head in heads if np.isnan(maps[head]).all()]
    open_heads = choice.heads if mode == "curves" else choice.heads[:1]
    drawn_heads = [COMBINED] if combined is not None else [head for head in open_heads if head not in pruned]
    # What is looked at first, then the other heads where they are small, so that they are there when they are wanted.
    other_heads = [head for head in heads if head not in drawn_heads and head not in pruned]
    early = combined is None and preload is None and maps.size <= SENT_EARLY
    requested = [] if mode == "neuron" else [*drawn_heads, *other_heads] if early else drawn_heads

    def map_of(head: int) -> np.ndarray:
        return combined.map if combined is not None and head == COMBINED else maps[head]

    names = {head: name_of(map_of(head), signed=signed) for head in requested}
    parts: list[bytes] = []
    sent_heads = []
    for head in requested:
        if names[head] not in cached_names:
            parts.append(coded(map_of(head), signed=signed))
            sent_heads.append(head)
    vector_header, arrays = (
        _vector_message(vectors, cached_names) if mode == "neuron" and vectors is not None else (None, [])
    )
    parts += arrays
    lines = [line for line in message.get("lines", [])[:LONGEST_ASK] if _is_line(line, maps.shape)]
    for head in drawn_heads if mode != "neuron" else ():
        for side, index in lines:
            line = map_of(head)[index] if side == "query" else map_of(head)[:, index]
            parts.append(line.astype("<f4").tobytes())
    arrays_sent = b"".join(parts)
    packed = len(arrays_sent) > PACKED_FROM
    header = fixed_header(queries, keys, layers=layers, heads=len(maps), signed=signed, unit=unit) | {
        "fills": look.lecture and not is_compact,
        "compact": is_compact,
        "packed": packed,
        "layer": choice.layer,
        "mode": mode,
        "names": names,
        "sent": sent_heads,
        "lines": lines,
        "drawn": drawn_heads if mode != "neuron" else [],
        "combined": None if combined is None else combined.name,
        "vectors": vector_header,
        "query": query,
        "heads": choice.heads,
        "selected": [choice.side, choice.positions],
        "kept": min(max(choice.kept_share, MIN_SHARE), MAX_SHARE),
        "stamp": stamp,
        "pruned": sorted(pruned),
        "off": sorted(off),
        "holes": {head: int((~np.isfinite(map_of(head))).sum()) for head in drawn_heads},
        "limit": limit,
        "notes": list(notes),
        "hatching": hatching,
        "strongest": strongest_edges({head: map_of(head) for head in drawn_heads}, drawn_heads, STRONGEST),
    }
    all_maps = b""
    if preload is not None:
        header["everywhere"] = preload.name
        if st.session_state.get(f"_everywhere_{key}") != preload.name:
            st.session_state[f"_everywhere_{key}"] = preload.name
            header["all"], all_maps = preload.header(), preload.packed
    _view(
        key=key,
        data=_packed(header, (deflated(arrays_sent) if packed else arrays_sent) + all_maps),
        height="stretch" if look.lecture and not is_compact else "content",
        on_said_change=receive,
    )


def _vector_message(vectors: Vectors, cached_names: Collection[str]) -> tuple[dict[str, Any], list[bytes]]:
    """What the header says of the vectors, and the vectors, exactly, if the browser does not have them."""
    content = b"".join(part.astype("<f4").tobytes() for part in vectors[:3] if part is not None)
    name = name_of_bytes(content, repr(vectors.queries.shape))
    header = {
        "name": name,
        "size": vectors.queries.shape[1],
        "terms": vectors.root_terms,
        "distances": vectors.distances is not None,
        "causal": vectors.causal,
        "window": vectors.window,
        "rotated": vectors.rotated,
        "sent": name not in cached_names,
    }
    return header, [] if name in cached_names else [content]


def _last_message(key: str) -> dict[str, Any]:
    """What the view said last; empty where it said nothing, or nothing of ours."""
    view = st.session_state.get(key)
    message = view.get("said") if view else None
    if not isinstance(message, dict) or not isinstance(message.get("stamp"), int | float):
        return {}
    lists = {name: message[name] for name in ("have", "lines") if isinstance(message.get(name), list)}
    return {"stamp": message["stamp"], "choice": message.get("choice"), **lists}


def _choice(message: object, layers: int, heads: range) -> ViewChoice | None:
    """The choice in a message of the view; None for one that cannot be."""
    if not isinstance(message, dict):
        return None
    layer, side, kept_share = (message.get(name) for name in ("layer", "side", "kept"))
    heads_drawn, positions = (_numbers(message.get(name)) for name in ("heads", "positions"))
    if (
        not (type(layer) is int and layer in range(layers))
        or side not in ("query", "key")
        or not heads_drawn
        or any(head not in heads for head in heads_drawn)
        or positions is None
        or not isinstance(kept_share, int | float)
        or not MIN_SHARE <= kept_share <= MAX_SHARE
    ):
        return None
    return ViewChoice(
        layer, tuple(dict.fromkeys(heads_drawn)), side, tuple(sorted(set(positions))), round(float(kept_share), 2)
    )


def _numbers(numbers: object) -> list[int] | None:
    if not isinstance(numbers, list) or any(type(number) is not int or number < 0 for number in numbers):
        return None
    return numbers


def _is_line(line: object, shape: tuple[int, ...]) -> bool:
    if not isinstance(line, list) or len(line) != 2 or line[0] not in ("query", "key"):
        return False
    return type(line[1]) is int and line[1] in range(shape[1 if line[0] == "query" else 2])


def _packed(header: dict[str, Any], arrays: bytes) -> bytes:
    """The length of the header, the header, then the arrays, which start at a multiple of four."""
    text = padded(json.dumps(header).encode(), b" ")
    return len(text).to_bytes(4, "little") + text + arrays
