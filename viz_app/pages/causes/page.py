"""Draws the page Activation patching."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.causes import patch_estimate_quality
from bert_core.records import MeanOf, PatchBand, Patches
from bert_core.refused import Refused
from bert_core.run.answers import Answer
from bert_core.tokenizer import Encoding
from viz_app.export.effects import describe_values, effects_file, shares, strongest
from viz_app.figures.causes import effect_map, value_bars
from viz_app.figures.stages import ROWS_THAT_FIT, window
from viz_app.figures.style import Look, cell_number, current_look, sized, two_digits, use_look
from viz_app.notation import PatchAddress
from viz_app.pages.causes import (
    EXAMPLE,
    PARTS,
    SOURCE,
    TEXTS,
    centre,
    direction,
    estimated,
    noise,
    origin,
    patched,
    place,
    source,
)
from viz_app.pages.causes.patches import (
    RANDOM_TEXTS,
    SWAPS,
    Patching,
    estimate_places,
    is_close,
    is_small,
    patch_places,
    patch_random_texts,
    predict_patched,
    selected_patching,
)
from viz_app.shell.address import end_run
from viz_app.shell.change import nsp_change, replaced_change, set_reference_texts, word_change
from viz_app.shell.controls import example_button
from viz_app.shell.edits import keep_patch
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.notices import selection_without_patches
from viz_app.shell.selection import is_current_example, open_example_text
from viz_app.shell.swaps import swap_word
from viz_app.shell.target import answer_name, show_missing_target
from viz_app.shell.token_range import show_whole_needed
from viz_app.shell.view import View, add_file, chart, write_heading, write_note
from viz_app.shell.work import confirm, wait_for

PROPOSED_SOURCE = "_proposed_source"  # session key: the source that the page proposed, which follows the text
STRONGEST_NEURONS = 12
UNMATCHED_WORDS = 8  # listed of each text
MAP_WIDTH = 640  # of the map beside its result, in pixels
MAP_HEIGHT, MAX_ROW_HEIGHT = 460, 48  # pixels: of a map of few rows, and of each of its rows
MAX_WORDS = 6  # that are drawn of the predictions before and with a patch


def draw(page: View) -> None:
    """Draw the effect of patching each part of the source into the text, and the selected patch in detail."""
    if show_whole_needed(page.selection):
        return
    selection = selection_without_patches(page, TEXTS["without_patch"])
    if selection.target is not None and source.value in ("", st.session_state.get(PROPOSED_SOURCE)):
        swapped = swap_word(selection.original, selection.masked_words, SWAPS) or ""
        source.set(SOURCE if is_current_example(EXAMPLE) else swapped)
        st.session_state[PROPOSED_SOURCE] = source.value
    with page.controls():
        _draw_controls(page, selection.encoding)
    with page.figure():
        if selection.target is None:
            show_missing_target(selection, TEXTS["missing"])
            end_run()
        if origin.value == "text" and not source.value.strip():
            example_button(TEXTS["hint"], TEXTS["example"], _take_example)
            end_run()
        patching = selected_patching(selection)
        reading = TEXTS["reading_mean" if origin.value == "mean" else "reading"].format(giver=_giver())
        page.read(reading, TEXTS["misleads"])
        result = _draw_effects(patching)
    if result is not None:
        _draw_details(patching, *result)


def _giver() -> str:
    """Return the text whose prediction has the effect 1."""
    return "text" if direction.value == "out" and origin.value != "mean" else "source"


def _take_example() -> None:
    open_example_text(EXAMPLE)
    source.set(SOURCE)


def _draw_controls(page: View, encoding: Encoding) -> None:
    if origin.value == "text":
        source()
    elif origin.value == "noise":
        noise()
    else:
        set_reference_texts()
    patched(on_change=place.set, args=(None,))
    with page.options(origin, direction, estimated, centre):
        origin()
        direction(disabled=origin.value == "mean")
        tokens = len(encoding)
        if tokens > ROWS_THAT_FIT:
            names = {None: "the largest effect"} | {
                number: f"{encoding.labels[number]} ({number})" for number in range(tokens)
            }
            centre(options=[*names], format_func=names.__getitem__)
        estimated()


def _draw_effects(patching: Patching) -> tuple[Patches, tuple[int, int]] | None:
    """Draw the map of effects, and beside it the result of the selected patch; return both once they are known."""
    estimate = wait_for(estimate_places(patching))
    if not np.isnan(estimate.source_value):
        try:
            _ = estimate.effects
        except Refused as error:
            st.markdown(_headline(patching, estimate))
            st.info(with_help(error_sentence(error)), icon=":material/equal:")
            end_run()
    if not np.isfinite(estimate.values).any():
        st.info(with_help(TEXTS["no_heads"]))
        end_run()
    headline = st.empty()
    left, right = st.columns([3, 2], gap="medium")
    with right:
        run = confirm(TEXTS["run"].format(count=f"{patching.place_count:,}"), patch_places(patching), slot="patches")
        patches: Patches = estimate if run is None else run
        cell, band = _current_cell(patching, patches), None
        if run is not None:
            wait_for(patch_places(patching), timed=True)  # for the status line
            _draw_result(patching, run, cell)
            band = _draw_band(patching, run)
    headline.markdown("  \n".join(filter(None, (_headline(patching, patches, band), _unmatched(patching)))))
    with left:
        rows = slice(0, len(patching.rows))
        if not patching.is_per_head:
            rows = _visible_tokens(patching, strongest(patches)[1])
        if run is None:
            st.caption(TEXTS["until"])
            _draw_map(patching, estimate, "estimate", rows)
            return None
        if estimated.value:
            st.markdown(TEXTS["exact"])
        _draw_map(patching, run, "found", rows, band)
        if estimated.value:
            st.markdown(TEXTS["estimate"])
            _draw_map(patching, estimate, "estimate", rows)
            st.markdown(_estimate_quality(run, estimate))
    return run, cell


def _draw_details(patching: Patching, patches: Patches, cell: tuple[int, int]) -> None:
    """Draw what belongs to the selected patch below the figure."""
    if is_current_example(EXAMPLE) and (origin.value, source.value) == ("text", SOURCE):
        write_note(EXAMPLE.remark)
    if np.isfinite(patching.effects(patches)[cell]):
        _draw_keep_button(patching, cell if patching.is_per_head else cell[::-1])
    if place.value is not None and patching.is_per_head:
        _draw_head_positions(patching, cell[0])
    elif place.value is not None and patching.part == "feed_forward":
        _draw_neurons(patching, cell[1], cell[0])
    for label, kind in (("Effects (CSV)", "csv"), ("Picture (SVG)", "svg"), ("Picture (PNG)", "png")):
        add_file(label, partial(_make_file, patching, kind), f"causes.{kind}")


@use_look(Look())  # files are light, whatever the page is
def _make_file(patching: Patching, kind: str) -> bytes:
    patches, estimate = wait_for(patch_places(patching)), wait_for(estimate_places(patching))
    return effects_file(patches, estimate, kind, values=describe_values(patching.loaded, patches))


def _headline(patching: Patching, patches: Patches, band: PatchBand | None = None) -> str:
    """Return the values of the target in both texts, in Markdown; whether their difference is small comes first."""
    kind, answer = patching.target.target_kind, answer_name(patching.selection, patching.target)
    ends = [kind.format_value(value, two_digits) for value in (patches.base_value, patches.source_value)]
    text, source_text = ends if _giver() == "source" else ends[::-1]
    template = TEXTS["mean_value" if np.isnan(patches.source_value) else "values"]
    source_text = source_text.removeprefix(kind.value_text.partition("{")[0])  # the quantity is named once
    values = template.format(answer=answer[:1].upper() + answer[1:], text=text, source=source_text, unit=kind.unit)
    if _is_grey(patches, band):
        return TEXTS["untested" if band is None else "small"].format(values=values)
    return values


def _is_grey(patches: Patches, band: PatchBand | None) -> bool:
    """Return whether the values of both texts are close; with a band of random texts, whether they are close to it."""
    return is_close(patches) if band is None else is_small(patches, band)


def _unmatched(patching: Patching) -> str:
    """Return which words of texts of different lengths have no partner, in Markdown."""
    if patching.partners is None:
        return ""
    unmatched = {"text": patching.partners.unmatched, "source": patching.partners.unmatched_source}
    quoted = {name: [f"“{escape_markdown(word)}”" for word in words] for name, words in unmatched.items() if words}
    lists = [
        TEXTS[f"unmatched_{name}"].format(words=", ".join(words[:UNMATCHED_WORDS])) for name, words in quoted.items()
    ]
    return TEXTS["unmatched"].format(lists="; ".join(lists)) if lists else ""


def _visible_tokens(patching: Patching, strongest_token: int) -> slice:
    """Return the tokens of a long text to draw: around the selected one, that of the selected cell, or the strongest.

    Writes which they are.
    """
    cell, tokens = _selected_cell(patching), len(patching.tokens)
    if tokens <= ROWS_THAT_FIT:
        return slice(0, tokens)
    middle = strongest_token
    if centre.value is not None and centre.value < tokens:
        middle = centre.value
    elif cell is not None and not patching.is_per_head and cell[0] not in range(tokens)[window(tokens, middle)]:
        middle = cell[0]
    rows = window(tokens, middle)
    st.caption(TEXTS["window"].format(first=rows.start, last=rows.stop - 1, count=tokens))
    return rows


def _draw_map(patching: Patching, patches: Patches, name: str, rows: slice, band: PatchBand | None = None) -> None:
    effects, labels, cell = patching.effects(patches)[rows], patching.rows[rows], _current_cell(patching, patches)
    marked = None if band is None else patching.as_map(band.contains(patches))[rows]
    greyed = np.ones(effects.shape, bool) if _is_grey(patches, band) else marked
    unit = TEXTS["unit"].format(giver=_giver())
    if isinstance(patching.source, MeanOf):
        unit = TEXTS["mean_unit"].format(unit=patching.target.target_kind.unit)
    figure = effect_map(
        effects, labels, patching.columns, limit=patching.limit(patches), unit=unit, width=MAP_WIDTH,
        selected=(cell[0] - rows.start, cell[1]) if rows.start <= cell[0] < rows.stop else None,
        by_chance=marked, greyed=greyed,
    )  # fmt: skip
    if not current_look().lecture:
        figure.layout.height = max(figure.layout.height, min(MAP_HEIGHT, 110 + MAX_ROW_HEIGHT * len(labels)))
    key, alt = f"causes_{name}", f"Effects of {effects.size} patches"
    select = partial(_select_cell, key, rows.start)
    chart(figure, key=key, on_select=select, selection_mode="points", alt=alt)


def _draw_band(patching: Patching, patches: Patches) -> PatchBand | None:
    """Draw the button that patches from random texts; return their band, or None before it is known.

    Where both predictions are close, quick work needs no button.
    """
    label, quick = TEXTS["compare"].format(count=RANDOM_TEXTS), None if is_close(patches) else 0.0
    band: PatchBand | None = confirm(label, patch_random_texts(patching), quick=quick, slot="band")
    if band is not None:
        grey, places = int(band.contains(patches).sum()), int(np.isfinite(patches.values).sum())
        write_note(TEXTS["band"].format(count=RANDOM_TEXTS, grey=grey, places=places))
    return band


def _current_cell(patching: Patching, patches: Patches) -> tuple[int, int]:
    """Return row and column of the selected cell, or of the largest effect."""
    index = strongest(patches)
    return _selected_cell(patching) or ((index[0], index[1]) if patching.is_per_head else (index[1], index[0]))


def _selected_cell(patching: Patching) -> tuple[int, int] | None:
    """Return row and column of the selected cell, or None if the map does not have it."""
    cell = place.value
    if cell is None or cell[0] >= len(patching.rows) or cell[1] >= len(patching.columns):
        return None
    return cell


def _select_cell(key: str, first_row: int) -> None:
    """Select the cell that was clicked. key: of the map. first_row: the row that is drawn on top."""
    if points := st.session_state[key].selection.points:
        place.set((first_row + int(points[0]["y"]), int(points[0]["x"])))


def _cell_name(patching: Patching, row: int, column: int) -> str:
    """Return the name of a cell, in Markdown."""
    if patching.is_per_head:
        return f"L{row} H{column}"
    return TEXTS["cell"].format(token=escape_markdown(patching.tokens[row]), column=patching.columns[column])


def _estimate_quality(exact: Patches, estimate: Patches) -> str:
    quality = patch_estimate_quality(exact, estimate)
    missed, agreement = round(quality.missed * quality.top), two_digits(quality.agreement)
    return TEXTS["quality"].format(count=quality.top, missed=missed, agreement=agreement)


def _draw_result(patching: Patching, patches: Patches, cell: tuple[int, int]) -> None:
    """Draw what the model predicts with a patch, and without it."""
    name, index = _cell_name(patching, *cell), cell if patching.is_per_head else cell[::-1]
    effect = float(patching.effects(patches)[cell])
    write_heading(TEXTS["heading"].format(part=PARTS[patching.part], cell=name))
    if np.isnan(effect):
        st.caption(TEXTS["pruned" if patching.is_per_head else "unpaired"].format(cell=name))
        return
    before, after = wait_for(predict_patched(patching, index))
    changes = ", ".join(_changes(patching, (patches.base_value, float(patches.values[index])), (before, after)))
    template = TEXTS["largest" if index == strongest(patches) else "result"]
    st.markdown(template.format(changes=changes, effect=cell_number(effect)))
    _draw_predictions(patching, before, after)


def _changes(patching: Patching, values: tuple[float, float], answers: tuple[Answer, Answer]) -> list[str]:
    """Return the probabilities of the target's words without and with a patch, or else its values, in Markdown."""
    selection, target, kind = patching.selection, patching.target, patching.target.target_kind
    if target.kind not in ("mlm", "contrast"):
        old, new = (kind.format_value(value, two_digits) for value in values)
        return [TEXTS["change"].format(name=answer_name(selection, target), before=old, after=new)]
    predictions = [prediction for answer in answers for prediction in answer.predictions]
    shares_of_words = [p.probabilities for p in predictions if p.position == target.position]
    changes = []
    for token in [token for token in (target.token_id, target.against) if token is not None]:
        old, new = (two_digits(float(probabilities[token])) for probabilities in shares_of_words)
        name = f"“{escape_markdown(selection.word(token))}”"
        changes.append(TEXTS["change"].format(name=name, before=old, after=new))
    return changes


def _draw_head_positions(patching: Patching, layer: int) -> None:
    """Draw the effects of the heads of a layer, token by token."""
    label = TEXTS["heads"].format(layer=layer)
    patches = confirm(label, patch_places(replace(patching, layers=(layer,), per_position=True)), slot="heads")
    if patches is None:
        return
    effects = shares(patches)[layer].T
    rows = _visible_tokens(patching, int(np.nanargmax(np.nanmax(np.abs(effects), axis=1))))
    figure = effect_map(effects[rows], patching.tokens[rows], patching.columns)
    chart(figure, key="causes_closer", alt=f"Effects of the heads of L{layer}, token by token", grows=False)
    write_note(TEXTS["heads_reading"].format(layer=layer))


def _draw_neurons(patching: Patching, layer: int, position: int) -> None:
    """Draw the neurons of a layer with the largest effects at a token."""
    places = replace(patching, part="neuron", layers=(layer,), positions=(position,))
    count = places.place_count
    label = TEXTS["neurons"].format(count=f"{count:,}")
    patches = confirm(label, patch_places(places), slot="neurons")
    if patches is None:
        return
    effects = shares(patches)[layer, position]
    order = np.argsort(-np.abs(effects), kind="stable")[:STRONGEST_NEURONS].tolist()
    figure = value_bars([f"neuron {number}" for number in order], effects[order].tolist(), title="effect")
    chart(figure, key="causes_neurons", alt=f"The {len(order)} neurons with the largest effects", grows=False)
    write_note(TEXTS["neurons_reading"].format(shown=len(order), count=f"{count:,}", layer=layer))


def _draw_predictions(patching: Patching, before: Answer, after: Answer) -> None:
    """Draw what the model predicts of the target with a patch, and without it."""
    selection, target = patching.selection, patching.target
    for prediction in after.predictions:
        if prediction.position not in target.rows[:1]:
            continue
        base = next(p for p in before.predictions if p.position == prediction.position)
        largest = max(base.top[0][1], prediction.top[0][1])
        word_change(selection, base, prediction, top_k=sized(5, 2), max_words=MAX_WORDS, largest=largest, key="patched")
    if before.replaced is not None and after.replaced is not None and target.kind == "replaced":
        replaced_change(selection, before.replaced, after.replaced, key="patched_replaced", position=target.rows[0])
    if before.nsp is not None and after.nsp is not None and target.kind == "nsp":
        nsp_change(selection, before.nsp, after.nsp, key="patched_nsp")


def _draw_keep_button(patching: Patching, index: tuple[int, int]) -> None:
    """Draw the button that keeps the patch on all pages about the text, or why it cannot be kept."""
    state = st.session_state
    if origin.value == "mean":
        st.caption(TEXTS["keep_mean"])
        return
    if direction.value == "out":
        st.caption(TEXTS["keep_noising"])
        return
    head, position = (index[1], None) if patching.is_per_head else (None, index[1])
    patch = PatchAddress(patching.part, index[0], head, position, noise.value if origin.value == "noise" else None)
    source_text = source.value if origin.value == "text" else ""
    if (state.put, state.put_from) == (patch, source_text):
        st.caption(TEXTS["kept"])
        return
    button: dict[str, Any] = {"icon": ":material/keep:", "key": "keep_put", "help": TEXTS["keep_help"]}
    st.button(TEXTS["keep"], on_click=keep_patch, args=(patch, source_text), **button)
