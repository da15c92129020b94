"""Draws the page Causes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.causes import patch_estimate_quality
from bert_core.records import PatchBand, Patches
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.export.effects import effects_file, shares, strongest
from viz_app.figures.causes import effect_map, map_width, neuron_bars, two_places
from viz_app.figures.stages import ROWS_THAT_FIT, window
from viz_app.figures.style import two_digits
from viz_app.notation import PatchAddress
from viz_app.pages.causes import (
    EXAMPLE,
    PARTS,
    SOURCE,
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
    Patching,
    estimate_places,
    patch_places,
    patch_random_texts,
    predict_patched,
    selected_patching,
)
from viz_app.shell.address import end_run
from viz_app.shell.change import nsp_change, replaced_change, set_reference_texts, word_change
from viz_app.shell.controls import example_button
from viz_app.shell.downloads import file_button
from viz_app.shell.edits import keep_patch
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.selection import is_current_example, open_example_text
from viz_app.shell.target import escape_names, show_missing_target
from viz_app.shell.view import View, chart, write_heading, write_note
from viz_app.shell.work import confirm, wait_for

STRONGEST_NEURONS = 12
UNMATCHED_WORDS = 8  # listed of each text
STATIC: Mapping[str, Any] = {"grows": False, "toolbar": False}
READING = (
    "**How to read this:** 0 changes nothing, 1 gives the answer of the {giver}: each cell is a run of its own with "
    "one part of the {giver}'s reading put in. Orange goes towards that answer, blue away from it. Click a cell to "
    "look closer. **How it can mislead:** a state carries all that was read before it, used or not; parts do not add "
    "up, as a LayerNorm stands behind each; and heads that stand in for each other show only one way round."
)


def draw(page: View) -> None:
    """Draw the effect of patching each part of the source into the text, and the selected patch in detail."""
    selection = page.selection.with_model(page.selection.without_patches)
    if not source.value and is_current_example(EXAMPLE):
        source.set(SOURCE)
    if page.selection.loaded.edits != selection.loaded.edits:
        write_note("Here the text is read without what is put in, and so asked once more; other pages keep it.")
    with page.controls():
        _draw_controls(selection.encoding)
    if selection.target is None:
        show_missing_target(selection, "There is no answer yet that could be carried over")
        end_run()
    if origin.value == "text" and not source.value.strip():
        hint = "Type a second text that differs in a word or two: parts of its reading are put into that of the first."
        example_button(hint, "Take an example", _take_example)
        end_run()
    patching = selected_patching(selection)
    with page.figure():
        _draw_effects(patching)
    page.read(READING.format(giver="text" if direction.value == "out" and origin.value != "mean" else "source"))


def _take_example() -> None:
    open_example_text(EXAMPLE)
    source.set(SOURCE)


def _draw_controls(encoding: Encoding) -> None:
    if origin() == "text":
        source()
    elif origin.value == "noise":
        noise()
    else:
        set_reference_texts()
    patched(on_change=place.set, args=(None,))
    direction(disabled=origin.value == "mean")
    tokens = len(encoding)
    if tokens > ROWS_THAT_FIT:
        names = {None: "the largest effect"} | {
            number: f"{encoding.labels[number]} ({number})" for number in range(tokens)
        }
        centre(options=[*names], format_func=names.__getitem__)
    estimated()


def _draw_effects(patching: Patching) -> None:
    """Draw the map of effects, and its selected cell in detail."""
    estimate = wait_for(estimate_places(patching))
    st.markdown(_both_answers(patching, estimate))
    _write_unmatched(patching)
    if not np.isnan(estimate.source_value):
        try:
            _ = estimate.effects
        except Refused as error:
            st.info(with_help(error_sentence(error)), icon=":material/equal:")
            end_run()
    if not np.isfinite(estimate.values).any():
        st.info(with_help("All heads of this model were pruned: there is none whose part could be put in."))
        end_run()
    rows = slice(0, len(patching.rows))
    if not patching.is_per_head:
        rows = _visible_tokens(patching, strongest(estimate)[1])
    exact = confirm(f"Run all {patching.place_count:,} patches", patch_places(patching), slot="patches")
    if exact is None:
        st.caption("Until then, the estimate from one pass there and back:")
        _draw_map(patching, estimate, "estimate", rows)
        return
    wait_for(patch_places(patching), timed=True)  # for the status line
    maps = st.container()
    band = _draw_band(patching, exact)
    with maps:
        if estimated.value:
            left, right = st.columns(2, gap="medium")
            with left:
                st.markdown("**Found**, each in a run of its own")
                _draw_map(patching, exact, "found", rows, band)
            with right:
                st.markdown("**Estimated**, all from one pass there and back")
                _draw_map(patching, estimate, "estimate", rows)
            st.markdown(_estimate_quality(exact, estimate))
        else:
            _draw_map(patching, exact, "found", rows, band)
    st.markdown(_largest_effect(patching, exact))
    if is_current_example(EXAMPLE) and (origin.value, source.value) == ("text", SOURCE):
        st.info(with_help(EXAMPLE.remark), icon=":material/lightbulb:")
    _draw_selected_patch(patching, exact)
    file_button("Effects (CSV)", partial(_csv, patching), "causes.csv")


def _csv(patching: Patching) -> bytes:
    return effects_file(wait_for(patch_places(patching)), wait_for(estimate_places(patching)), "csv")


def _both_answers(patching: Patching, patches: Patches) -> str:
    """Return the answers of both texts, in Markdown."""
    target, kind = patching.target, patching.target.target_kind
    answer = kind.supports.format(**escape_names(patching.selection, target))
    if target.against is not None:
        answer += f" rather than “{escape_markdown(patching.selection.word(target.against))}”"
    text, source_text = (kind.format_value(value, two_digits) for value in (patches.base_value, patches.source_value))
    if np.isnan(patches.source_value):
        return f"{answer}: **{text}** in the text. Cells say how much it rises or falls, in {kind.unit}."
    names = ("text", "source") if direction.value == "into" else ("source", "text")
    return f"{answer}: **{text}** in the {names[0]}, **{source_text}** in the {names[1]}."


def _write_unmatched(patching: Patching) -> None:
    """Write which words of texts of different lengths have no partner."""
    if patching.partners is None:
        return
    unmatched = {"text": patching.partners.unmatched, "source": patching.partners.unmatched_source}
    lists = [
        f"only in the {name}: {', '.join(f'“{escape_markdown(word)}”' for word in words[:UNMATCHED_WORDS])}"
        for name, words in unmatched.items()
        if words
    ]
    st.caption(f"The texts have other numbers of tokens, so words go to words; {'; '.join(lists)}.")


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
    st.caption(f"Tokens {rows.start} to {rows.stop - 1} of {tokens} are drawn; the file has all of them.")
    return rows


def _draw_map(patching: Patching, patches: Patches, name: str, rows: slice, band: PatchBand | None = None) -> None:
    effects, labels, cell = patching.effects(patches)[rows], patching.rows[rows], _selected_cell(patching)
    is_visible = cell is not None and rows.start <= cell[0] < rows.stop
    figure = effect_map(
        effects, labels, patching.columns, limit=patching.limit(patches),
        selected=(cell[0] - rows.start, cell[1]) if cell is not None and is_visible else None,
        by_chance=None if band is None else patching.as_map(band.contains(patches))[rows],
    )  # fmt: skip
    key, width, alt = f"causes_{name}", map_width(labels, len(patching.columns)), f"Effects of {effects.size} patches"
    select = partial(_select_cell, key, rows.start)
    chart(figure, key=key, min_width=width, on_select=select, selection_mode="points", alt=alt, **STATIC)


def _draw_band(patching: Patching, patches: Patches) -> PatchBand | None:
    """Draw the button that patches from random texts; return their band, or None before it is known."""
    label = f"Hold it against {RANDOM_TEXTS} random texts"
    band: PatchBand | None = confirm(label, patch_random_texts(patching), quick=0.0, slot="band")
    if band is not None:
        write_note(
            f"○ moves the answer no more than random texts of as many tokens do ({RANDOM_TEXTS} of them, from the "
            f"lowest answer to the highest): {int(band.contains(patches).sum())} of "
            f"{int(np.isfinite(patches.values).sum())} places."
        )
    return band


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


def _largest_effect(patching: Patching, patches: Patches) -> str:
    """Return the place with the largest effect, in Markdown."""
    index = strongest(patches)
    row, column = index if patching.is_per_head else index[::-1]
    return f"The largest effect: {_cell_name(patching, row, column)}, **{two_places(float(shares(patches)[index]))}**."


def _cell_name(patching: Patching, row: int, column: int) -> str:
    """Return the name of a cell, in Markdown."""
    if patching.is_per_head:
        return f"L{row} H{column}"
    return f"{escape_markdown(patching.tokens[row])} at {patching.columns[column]}"


def _estimate_quality(exact: Patches, estimate: Patches) -> str:
    quality = patch_estimate_quality(exact, estimate)
    return (
        f"Of the {quality.top} places that move the answer most, the estimate misses "
        f"**{round(quality.missed * quality.top)}**; rank correlation (Spearman) **{two_digits(quality.agreement)}**."
    )


def _draw_selected_patch(patching: Patching, patches: Patches) -> None:
    """Draw the predictions with the selected patch, and its heads token by token or its neurons."""
    cell = _selected_cell(patching)
    if cell is None:
        return
    row, column = cell
    effect, name = float(patching.effects(patches)[row, column]), _cell_name(patching, row, column)
    if np.isnan(effect):
        reason = "this head was pruned" if patching.is_per_head else "no word of the source stands for it"
        st.caption(f"Nothing could be put in at {name}: {reason}.")
        return
    write_heading(f"{PARTS[patching.part]}: {name}, effect {two_places(effect)}")
    index = (row, column) if patching.is_per_head else (column, row)
    _draw_predictions(patching, index)
    _draw_keep_button(patching, index)
    if patching.is_per_head:
        _draw_head_positions(patching, row)
    elif patching.part == "feed_forward":
        _draw_neurons(patching, column, row)


def _draw_head_positions(patching: Patching, layer: int) -> None:
    """Draw the effects of the heads of a layer, token by token."""
    label = f"Patch the heads of L{layer} token by token"
    patches = confirm(label, patch_places(replace(patching, layers=(layer,), per_position=True)), slot="heads")
    if patches is None:
        return
    effects = shares(patches)[layer].T
    rows = _visible_tokens(patching, int(np.nanargmax(np.nanmax(np.abs(effects), axis=1))))
    tokens, columns = patching.tokens[rows], patching.columns
    alt = f"Effects of the heads of layer {layer}, token by token"
    figure = effect_map(effects[rows], tokens, columns)
    chart(figure, key="causes_closer", min_width=map_width(tokens, len(columns)), alt=alt, **STATIC)
    write_note(
        f"The heads of L{layer}, one token at a time: of a pattern or a query the row that looks, of a key or a value "
        "the token that is looked at."
    )


def _draw_neurons(patching: Patching, layer: int, position: int) -> None:
    """Draw the neurons of a layer with the largest effects at a token."""
    places = replace(patching, part="neuron", layers=(layer,), positions=(position,))
    count = places.place_count
    label = f"Patch its {count:,} neurons one by one"
    patches = confirm(label, patch_places(places), slot="neurons")
    if patches is None:
        return
    effects = shares(patches)[layer, position]
    order = np.argsort(-np.abs(effects), kind="stable")[:STRONGEST_NEURONS].tolist()
    figure, alt = neuron_bars(order, effects[order].tolist()), f"The {len(order)} neurons with the largest effects"
    chart(figure, key="causes_neurons", alt=alt, **STATIC)
    write_note(f"The {len(order)} of {count:,} neurons of L{layer} at this token with the largest effects.")


def _draw_predictions(patching: Patching, index: tuple[int, int]) -> None:
    """Draw what the model predicts of the target with a patch, and without it."""
    selection, target = patching.selection, patching.target
    before, after = wait_for(predict_patched(patching, index))
    for prediction in after.predictions:
        if prediction.position not in target.rows[:1]:
            continue
        base = next(p for p in before.predictions if p.position == prediction.position)
        largest = max(base.top[0][1], prediction.top[0][1])
        word_change(selection, base, prediction, top_k=6, max_words=8, largest=largest, key="patched")
        write_note("The likeliest words for the gap: before, of the text as it is; now, with this one part put in.")
    if before.replaced is not None and after.replaced is not None and target.kind == "replaced":
        replaced_change(selection, before.replaced, after.replaced, key="patched_replaced", position=target.rows[0])
        write_note("The tokens that are likeliest to be replaced: before, of the text; now, with this one part put in.")
    if before.nsp is not None and after.nsp is not None and target.kind == "nsp":
        nsp_change(selection, before.nsp, after.nsp, key="patched_nsp")
        write_note("Before, of the texts as they are; now, with this one part put in.")


def _draw_keep_button(patching: Patching, index: tuple[int, int]) -> None:
    """Draw the button that keeps the patch on all pages about the text, or why it cannot be kept."""
    state = st.session_state
    if origin.value == "mean":
        st.caption("The mean of other texts can be kept in from Python (`make_patch`), not from here: it has no link.")
        return
    if direction.value == "out":
        st.caption("Here parts of the text go into the source. To keep one in, choose *Source into text*.")
        return
    head, position = (index[1], None) if patching.is_per_head else (None, index[1])
    patch = PatchAddress(patching.part, index[0], head, position, noise.value if origin.value == "noise" else None)
    source_text = source.value if origin.value == "text" else ""
    if (state.put, state.put_from) == (patch, source_text):
        st.caption(":material/keep: It stays in: every other page about the text shows the model's answer with it.")
        return
    advice = "Every page about the text then reads it with this one part put in, until Restore or another text."
    button: dict[str, Any] = {"icon": ":material/keep:", "key": "keep_put", "help": advice}
    st.button("Keep it in on other pages", on_click=keep_patch, args=(patch, source_text), **button)
