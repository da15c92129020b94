"""The views of the page Attention as one HTML file that opens from disk and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bert_core.analysis.patterns import role_figures
from bert_core.record import ModelRun
from viz_app.components import attention_view, head_grid
from viz_app.components.attention_view.packing import deflated, quantise, strongest_edges
from viz_app.export.maps import MapView, ShownMaps
from viz_app.figures.heads import head_titles
from viz_app.figures.style import BODY_FONT, SENTENCE_TINTS, TOKEN_FONT, page
from viz_app.figures.thumbnails import thumbnails

Theme = Literal["light", "dark"]
_FOLDER = Path(__file__).parent
READING = "from queries, who look, to keys, who are looked at; each small map is scaled to its own maximum."
MISLEADING = {
    False: "attention says where a head looks, not what the prediction is owed to.",
    True: "a gradient is a slope at this one point: switching a head off can do something else.",
}

PRECISION = {
    signed: f"Values are kept in one byte each, off by at most {error} in their row (≈); the strongest edges are exact."
    for signed, error in {
        False: "1/256 of the largest",
        True: "1/254 of the largest magnitude",
    }.items()
}


def attention_page(run: ModelRun, view: MapView | None = None, *, theme: Theme | None = None) -> str:
    """A page with every layer and head of a run, opened at what a view shows, by default the first head.

    Several heads as one map are shown apart. Values are in one byte each, and the page says so.
    theme: "light" or "dark"; None follows the system.
    Raises ValueError for a head that does not exist, a part that the text does not have, or an unknown theme.
    """
    if theme not in (None, "light", "dark"):
        raise ValueError(f"theme {theme!r}: 'light', 'dark' or None, as the system has it")
    view = replace(view or MapView(), together=None)
    shown, encoding = view.of(run), run.encoding
    heads = view.heads or (0,)
    about = {
        "texts": [text for text in (encoding.text, encoding.pair) if text is not None],
        "says": _says(shown, view),
        "choice": {"layer": view.layer, "heads": heads, "side": "query", "positions": [], "kept": view.kept},
        "mode": view.mode,
        "notes": shown.notes,
        "name": hashlib.blake2b(np.ascontiguousarray(shown.values).data, digest_size=6).hexdigest(),
        "strongest": attention_view.STRONGEST,
        "fixed": attention_view.fixed_header(
            shown.queries, shown.keys,
            layers=len(shown.values), heads=shown.values.shape[1], signed=shown.signed, unit=shown.unit,
        ),
        "layers": [_about_layer(shown, number) for number in range(len(shown.values))],
    }  # fmt: skip
    grid = head_grid.grid_message(
        layers=len(shown.values),
        heads=shown.values.shape[1],
        thumbnails=thumbnails(shown.values, signed=shown.signed),
        signed=shown.signed,
        off=shown.off,
        titles=head_titles(*role_figures(run.attention, encoding), there=run.there),
        there=run.there,
    )
    data = {"shown": json.dumps(about).encode(), "grid": grid}
    data = {name: deflated(part) for name, part in data.items()}
    with ThreadPoolExecutor() as pool:  # zlib works without Python's lock
        packed = pool.map(lambda number: deflated(_packed_layer(shown, number)), range(len(shown.values)))
        data |= {f"layer-{number}": part for number, part in enumerate(packed)}
    return _filled(data, PRECISION[shown.signed], shown.signed, theme)


def _says(shown: ShownMaps, view: MapView) -> str:
    layers, heads = shown.values.shape[:2]
    between = "words" if view.words else "pieces"
    parts = [f"{shown.unit.capitalize()} of {layers} layers × {heads} heads, between {len(shown.keys)} {between}"]
    if view.part != "all":
        parts.append(f"from {view.part}")
    if view.hide_special:
        parts.append("without [CLS] and [SEP]")
    return "; ".join([", ".join(parts), *shown.notes]) + "."


def _about_layer(shown: ShownMaps, layer: int) -> dict[str, Any]:
    """What is said of a layer's heads whichever of them are drawn; the strongest edges are exact."""
    maps, pruned = shown.values[layer], shown.pruned(layer)
    return {
        "pruned": pruned,
        "off": [head for where, head in shown.off if where == layer],
        "holes": [int((~np.isfinite(values)).sum()) for values in maps],
        "strongest": [
            [edge[1:] for edge in strongest_edges({head: maps[head]}, [head], attention_view.STRONGEST)]
            for head in range(len(maps))
        ],
    }


def _packed_layer(shown: ShownMaps, layer: int) -> bytes:
    """For each head the maxima of its rows, then its codes; each at a multiple of four."""
    parts = []
    for values in shown.values[layer]:
        codes, maxima = quantise(values, signed=shown.signed)
        parts += [maxima.astype("<f4").tobytes(), codes.tobytes(), b"\0" * (-codes.size % 4)]
    return b"".join(parts)


def _filled(data: dict[str, bytes], precision: str, signed: bool, theme: Theme | None) -> str:
    """The template with everything in it. What a reader typed is in `data` alone, and goes in as base64."""
    script = "\n".join(
        [_inner(attention_view.SCRIPT, "attentionView"), _inner(head_grid.SCRIPT, "headGrid"), _file("page.js")]
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    filling = {
        "hash": f"sha256-{digest}",
        "variables": _variables(theme),
        "style": _file("page.css"),
        "reading": READING,
        "misleading": MISLEADING[signed],
        "precision": precision,
        "grid-style": head_grid.STYLE,
        "grid-markup": head_grid.MARKUP,
        "view-style": attention_view.STYLE,
        "view-markup": attention_view.MARKUP,
        "data": "\n".join(
            f'<script type="text/plain" id="{name}">{base64.b64encode(part).decode()}</script>'
            for name, part in data.items()
        ),
        "script": script,
    }
    # In one go, so that nothing that was filled in is read as a place to fill.
    return re.sub(r"\{\{([\w-]+)\}\}", lambda found: filling[found[1]], _file("page.html"))


def _inner(module: str, name: str) -> str:
    """A module with one default function as a constant of this name, its other names hidden."""
    body, count = re.subn(r"^export default function", "function main", module, flags=re.MULTILINE)
    if count != 1 or re.search(r"^(import|export)\b", body, re.MULTILINE) or "</script" in body.lower():
        raise ValueError(f"the module of {name} has {count} default functions, or imports: one, and no imports")
    return f"const {name} = (() => {{\n{body}\nreturn main;\n}})();"


def _variables(theme: Theme | None) -> str:
    """The colours that the views read, as Streamlit names them."""

    def rule(dark: bool) -> str:
        colours = page(dark)
        values = {
            "background-color": colours.background,
            "secondary-background-color": colours.raised,
            "text-color": colours.text,
            "gray-text-color": colours.faint,
            "border-color": colours.line,
            "primary-color": colours.accent,
            "font": BODY_FONT,
            "code-font": TOKEN_FONT,
        }
        tints = "".join(f"--tint-{side.lower()}: {SENTENCE_TINTS[side].on(dark)[0]};" for side in ("A", "B"))
        scheme = f"color-scheme: {'dark' if dark else 'light'};"
        return f":root {{{scheme}{tints}{''.join(f'--st-{name}: {value};' for name, value in values.items())}}}"

    if theme is not None:
        return rule(theme == "dark")
    return f"{rule(False)}\n@media (prefers-color-scheme: dark) {{{rule(True)}}}"


def _file(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")
