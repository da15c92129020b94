"""The effects of patches with the tokens at their positions, as numbers, files and a figure."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_core.loading import LoadedModel
from bert_core.records import MeanOf, PatchBand, Patches, source_labels
from bert_core.refused import Refused
from bert_core.task_heads import head_of
from viz_app.export import EFFECT_KINDS, PICTURES
from viz_app.export.tables import labelled_csv, npz
from viz_app.figures.lens import short_names
from viz_app.figures.style import cell_number, page
from viz_app.texts import ENGLISH, page_texts

if TYPE_CHECKING:  # matplotlib takes half a second to import, which no page should wait for
    from matplotlib.figure import Figure

PART_NAMES = page_texts("causes").in_language(ENGLISH).control("patched")["options"]
LINE_LETTERS = 56  # of each line below the title of a picture
NUMBER_CELL = 0.3  # inches: smallest size of a cell with its number


def shares(patches: Patches) -> np.ndarray:
    """Return the effects of patches, or the change of the answer if the source is a mean, which has no own answer."""
    if isinstance(patches.source, MeanOf):
        moved: np.ndarray = patches.values - patches.base_value
        return moved
    return patches.effects


def strongest(patches: Patches) -> tuple[int, ...]:
    """Return the index of the largest effect in magnitude; for states, the first and last depth are left out."""
    effects = np.abs(shares(patches))
    if patches.kind == "state" and len(effects) > 2:
        effects[[0, -1]] = np.nan
    return tuple(int(number) for number in np.unravel_index(np.nanargmax(effects), effects.shape))


def both_labels(labels: Sequence[str], source_labels: Sequence[str]) -> list[str]:
    """Return the label of each token: both tokens where the texts differ."""
    return [
        label if label == source_label else f"{label} → {source_label or 'none'}"
        for label, source_label in zip(labels, source_labels, strict=True)
    ]


def effect_map(patches: Patches) -> tuple[np.ndarray, list[str], list[str]]:
    """Return the effects as a map, (layer, head) or (token, depth), and the labels of its rows and columns.

    Raises Refused for patches with other axes, which are no map.
    """
    layers, heads = patches.head_mask.shape
    depths = short_names(layers + 1)[patches.kind != "state" :]
    if patches.axes == ("layer", "head"):
        return shares(patches), depths, [f"H{head}" for head in range(heads)]
    if patches.axes[1:] != ("position",):
        raise Refused(f"patches by {', '.join(patches.axes)} are no map: choose CSV")
    tokens = both_labels(patches.text.labels, source_labels(patches.source, patches.text, patches.partners))
    return shares(patches).T, tokens, depths


def describe_values(loaded: LoadedModel, patches: Patches) -> str:
    """Return a sentence about the target and its values for both texts."""
    target, kind = patches.target, patches.target.target_kind
    names = head_of(target).template_values(loaded, patches.text, target)
    answer = kind.supports.format(**names)
    if target.against is not None:
        answer += f" rather than “{names['other']}”"
    base, source = (kind.format_value(value, "{:.3g}".format) for value in (patches.base_value, patches.source_value))
    if math.isnan(patches.source_value):
        return f"{answer}: {base} in the text; each effect is its change, in {kind.unit}"
    source = source.removeprefix(kind.value_text.partition("{")[0])  # the quantity is named once
    return f"{answer}: {base} in the text, {source} in the source"


def effects_file(
    exact: Patches, estimate: Patches, kind: str, band: PatchBand | None = None, *, values: str = ""
) -> bytes:
    """Return the exact and estimated effect of every patch as a file of one of `EFFECT_KINDS`.

    CSV has a line for each patch. NPZ and JSON have arrays by the axes of the patches, and the answers of both texts;
    JSON has null where nothing was patched. A picture has the exact effects. band: the lowest and highest answers with
    patches of random texts. values: the sentence of `describe_values`, for a picture.
    Raises Refused for another kind, if both texts give the same answer, and for a picture as `effect_map` does.
    """
    if kind not in EFFECT_KINDS:
        raise Refused(f"a file of kind {kind!r} is unknown: one of {', '.join(EFFECT_KINDS)}")
    if kind in PICTURES:
        from viz_app.export.drawing import picture_bytes

        return picture_bytes(effects_picture(exact, band, values=values), kind)
    numbers = {"value": exact.values, "effect": shares(exact)}
    numbers |= {"estimated_value": estimate.values, "estimated_effect": shares(estimate)}
    if band is not None:
        numbers |= {"random_low": band.low, "random_high": band.high}
    encoding = exact.text
    words = {"token": list(encoding.tokens), "source_token": source_labels(exact.source, encoding, exact.partners)}
    if kind == "csv":
        table = exact.table("value")
        index = {name: table[name].to_numpy() for name in table.columns if name not in numbers}
        return labelled_csv({**index, **{name: values.ravel() for name, values in numbers.items()}})
    ends = {"base_value": exact.base_value, "source_value": exact.source_value}
    if kind == "npz":
        arrays = numbers | {name: np.array(value) for name, value in ends.items()}
        return npz(arrays, **words, what=[exact.kind], axes=exact.axes)
    document: dict[str, Any] = {"what": exact.kind, "axes": exact.axes, **words}
    document |= {name: _json_values(np.asarray(value)) for name, value in {**ends, **numbers}.items()}
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "replace")


def effects_picture(patches: Patches, band: PatchBand | None = None, *, values: str = "") -> Figure:
    """Draw the effects as a map: orange towards the prediction of the source, blue away from it, 1 the strongest.

    band: effects within it are marked with a ring. values: the sentence of `describe_values`, below the title.
    Raises Refused as `effect_map` does.
    """
    from viz_app.export.drawing import MATRIX_MARGIN, draw_colour_bar, draw_matrix, inches, write_in_cells

    effects, rows, columns = effect_map(patches)
    colours, is_change = page(), isinstance(patches.source, MeanOf)
    options: dict[str, Any] = {"bottom": MATRIX_MARGIN, "top": 1.4, "min_cell": 0.02}
    matrix = draw_matrix(effects, rows, columns, signed=True, limit=None if is_change else 1.0, **options)
    figure, axes, mesh, cell, limit = matrix
    map_top = MATRIX_MARGIN + len(rows) * cell
    draw_colour_bar(figure, mesh, MATRIX_MARGIN, map_top + 0.08, min(1.6, len(columns) * cell), limit, signed=True)
    unit = f"change in {patches.target.target_kind.unit}" if is_change else "effect: 1 = the prediction of the source"
    lines = [(f"Activation patching: {PART_NAMES[patches.kind].lower()}", 11, colours.text)]
    lines += [(line, 9, colours.faint) for line in (*textwrap.wrap(values, LINE_LETTERS), unit)]
    left, _, _, _ = inches(figure, MATRIX_MARGIN, 0, 0, 0)
    for place, (line, size, colour) in enumerate(reversed(lines)):
        bottom = (map_top + 0.4 + 0.19 * place) / figure.get_figheight()
        figure.text(left, bottom, line, fontsize=size, color=colour, parse_math=False)
    if cell >= NUMBER_CELL:
        numbers = [[cell_number(effect) for effect in line] for line in effects.tolist()]
        write_in_cells(axes, effects, numbers, signed=True, limit=limit, size=6.5)
        axes.tick_params(axis="x", labelrotation=0)
    if band is not None:
        marks = band.contains(patches)
        places = np.argwhere(marks if "head" in patches.axes else marks.T)
        style: dict[str, Any] = {"markersize": max(cell * 12, 1), "markerfacecolor": "none", "color": colours.text}
        axes.plot(places[:, 1] + 0.84, places[:, 0] + 0.16, "o", markeredgewidth=0.7, **style)
    names = ("layer", "head") if "head" in patches.axes else ("token", patches.axes[0])
    note = "" if band is None else f"\n○ no stronger than {band.texts} random texts"
    axes.set_xlabel(names[1] + note, color=colours.faint, fontsize=9)
    axes.set_ylabel(names[0], color=colours.faint, fontsize=9)
    return figure


def _columns(
    axes: Sequence[str], words: dict[str, list[str]], numbers: dict[str, np.ndarray]
) -> dict[str, Sequence[object]]:
    """Return the columns of the CSV: the index of each patch, its tokens if it has a position, and its numbers."""
    places = list(np.ndindex(numbers["value"].shape))
    columns: dict[str, Sequence[object]] = {
        axis: [place[number] for place in places] for number, axis in enumerate(axes)
    }
    if "position" in axes:
        axis = axes.index("position")
        columns |= {name: [tokens[place[axis]] for place in places] for name, tokens in words.items()}
    return columns | {name: [*values.flat] for name, values in numbers.items()}


def _json_values(values: np.ndarray) -> object:
    """Return an array as nested lists for JSON, with None for NaN."""
    nested = values.astype(object)
    nested[np.isnan(values)] = None
    return nested.tolist()
