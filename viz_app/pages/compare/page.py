"""Draws the page Compare."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import streamlit as st

from bert_core.analysis.compare import Change, largest_changes
from viz_app.comparison import MAX_CHANGES, Comparison
from viz_app.components.attention_view import ViewChoice
from viz_app.components.attention_view.view import Mode, attention_view
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.style import current_look, two_digits
from viz_app.figures.thumbnails import LARGE, SMALL, blocks, common_limit, possible_blocks, thumbnails
from viz_app.maps import CHANGES, UNITS, MapView
from viz_app.pages.compare import TEXTS, compared_with, other_model, other_text, quantity, view
from viz_app.pages.compare.predictions import draw_predictions
from viz_app.pages.compare.sides import compared_selections, other_models, prefill_other_text
from viz_app.shell import downloads, frame
from viz_app.shell.address import end_run, publish
from viz_app.shell.heads import choose_head, choose_view, view_choice
from viz_app.shell.markdown import escape_markdown, quoted, with_help
from viz_app.shell.model_names import full_name, models_on_offer
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.token_range import show_whole_needed
from viz_app.shell.view import View, write_heading, write_note
from viz_app.shell.work import cached
from viz_app.windows import Hatching, hatching, note_of_layer

NAMES = {
    "masked": ("words visible", "words masked"),
    "text": ("this text", "the other text"),
    "model": ("this model", "the other model"),
    "heads": ("all heads on", "some off"),
}
NAMES_WITH_EDITS = ("all heads on, nothing changed", "as it is now")
CHANGE = "**{head}**: the {quantity} from {query} to {key} changes most, {before} → {after} ({names})."
UNCHANGED = "**{head}**: the {quantity} is the same with {names}."
NUMBER = st.column_config.NumberColumn(format="%.4f")


class Summary(NamedTuple):
    """The small data of a comparison.

    thumbnails: of the differences of all heads. limit: end of their colour scale. largest: (layer, head), the largest
    difference of each head. changes: the largest of all, in descending order. possible: as for `head_grid`.
    """

    thumbnails: np.ndarray
    limit: float
    largest: np.ndarray
    changes: list[Change]
    possible: np.ndarray | None

    @property
    def first(self) -> Head | None:
        """The head with the largest change; None if nothing changed."""
        return (self.changes[0].layer, self.changes[0].head) if self.changes else None

    @property
    def largest_change(self) -> float:
        """The magnitude of the largest change."""
        return abs(self.changes[0].after - self.changes[0].before) if self.changes else 0.0


@dataclass(frozen=True)
class Sides:
    """Two selections with their names, and the compared quantity. Their runs are kept by the queue."""

    before: Selection
    after: Selection
    names: tuple[str, str]
    quantity: str

    def comparison(self) -> Comparison:
        """Return the comparison of the two runs."""
        models = self.before.loaded.name, self.after.loaded.name
        return Comparison(self.before.run(), self.after.run(), self.names, models, self.quantity)

    def summary(self) -> Summary:
        """Return the summary at the size of the thumbnails of the view."""
        size = LARGE if view.value == "heads" else SMALL
        return _summarize(self.before, self.after, self.quantity, size)


@cached
def _summarize(before: Selection, after: Selection, quantity: str, size: int) -> Summary:
    """Return the summary of a comparison. size: largest number of rows and columns of a thumbnail."""
    comparison = Comparison(before.run(), after.run(), quantity=quantity)
    before_maps, after_maps = comparison.maps()
    changed = after_maps - before_maps
    reduced = blocks(changed, size, signed=True)
    limit = common_limit(reduced)
    small = thumbnails(reduced, size, signed=True, limit=limit)
    changes = largest_changes(before_maps, after_maps, MAX_CHANGES)
    return Summary(small, limit, abs(changed).max((-1, -2)), changes, possible_blocks(comparison.possible, size))


def draw(page: View) -> None:
    """Draw the predictions of both sides, the difference of every head, and the largest changes."""
    if show_whole_needed(page.selection):
        return
    _draw_controls(page)
    with page.figure():
        selections = compared_selections(page.selection)
    if selections is None:
        end_run()
    is_edited = selections[1].loaded.edits and compared_with.value == "heads"
    sides = Sides(*selections, NAMES_WITH_EDITS if is_edited else NAMES[compared_with.value], quantity.value)
    comparison = sides.comparison()
    changes = sides.summary().changes
    with page.figure():
        _draw_heads(sides, view.value)
    page.exports.append(partial(_draw_export, sides))
    page.read(f"{comparison.reading}.{_row_sums(comparison)}", comparison.misleading)
    if comparison.left_out is not None:
        st.caption(escape_markdown(comparison.left_out))
    _draw_list(comparison, changes)


def _row_sums(comparison: Comparison) -> str:
    """Return a sentence with the sum of the changes of a row of attention, or "" for another quantity."""
    if comparison.quantity != "attention":
        return ""
    removed = any(
        not getattr(edit, "renormalised", True) for run in (comparison.before, comparison.after) for edit in run.edits
    )
    return " The changes of each row sum to 0" + (", except where edges are blocked." if removed else ".")


def _draw_controls(page: View) -> None:
    prefill_other_text(page.selection)
    with page.controls(gap="small"):
        compared_with()
        if compared_with.value == "text":
            other_text()
        if compared_with.value == "model":
            other_model(options=other_models() or models_on_offer(), help=full_name(other_model.value) or "")
        view()
        with page.options(quantity):
            quantity()


def _draw_list(comparison: Comparison, changes: Sequence[Change]) -> None:
    """Draw the list of the largest changes; a click on a row selects its head."""
    write_heading(TEXTS["changes"])
    if not changes:
        st.info(with_help(TEXTS["no_change"]))
        return
    heads = [HeadClick(change.layer, change.head) for change in changes]
    st.dataframe(
        comparison.change_rows(changes),
        hide_index=True,
        key="largest",
        on_select=partial(_select_listed, heads),
        selection_mode="single-row",
        column_config=dict.fromkeys((*comparison.names, "change"), NUMBER),
    )


def _select_listed(heads: Sequence[HeadClick]) -> None:
    """Select the head of the clicked row. heads: those of the rows."""
    for row in st.session_state.largest.selection.rows:
        _open_head(heads[row])


def _open_head(click: HeadClick) -> None:
    """Select the clicked head, and draw it large."""
    choose_head(click)
    if view.value == "heads":
        view.set("curves")


@frame.fragment
def _draw_heads(sides: Sides, drawn_view: str) -> None:
    """Draw the predictions, every head as a thumbnail, and the selected heads as a large map, as a fragment.

    Streamlit keeps the arguments for as long as the page is open; they hold selections and no runs.
    """
    if view.value != drawn_view:  # a head was opened
        st.rerun()
    comparison, summary = sides.comparison(), sides.summary()
    is_overview, is_lecture = drawn_view == "heads", current_look().lecture
    if is_overview:
        bars, right = st.columns([1, 2], gap="medium")
        grid = right
    elif is_lecture:
        bars, grid, right = st.columns([2, 2, 5], gap="small")
    else:
        left, right = st.columns([1, 2], gap="medium")
        bars = grid = left
    with bars:
        draw_predictions(comparison, sides.before, sides.after)
    with grid:
        _draw_thumbnails(sides, comparison.existing_heads, summary)
    if not is_overview:
        with right:
            _draw_large_map(sides, comparison, summary, cast(Mode, drawn_view))
    publish()


def _draw_thumbnails(sides: Sides, existing: np.ndarray, summary: Summary) -> None:
    """Draw the difference of every head. existing: (layer, head), the heads that both runs have."""
    choice, largest = view_choice(lambda: summary.first), summary.largest
    layers, heads = largest.shape

    def title(layer: int, head: int) -> str:
        description = f"changes by up to {two_digits(largest[layer, head])}" if existing[layer, head] else "pruned"
        return f"L{layer} H{head}: {description}"

    head_grid(
        layers=layers,
        heads=heads,
        thumbnails=summary.thumbnails,
        signed=True,
        limit=summary.limit or None,
        unit=UNITS[CHANGES[sides.quantity]],
        selected=(choice.layer, choice.heads[0]),
        off=sides.after.off,
        titles=[[title(layer, head) for head in range(heads)] for layer in range(layers)],
        existing=existing,
        possible=summary.possible,
        key="changes",
        on_click=_open_head,
    )
    if not summary.changes:
        write_note(TEXTS["no_change"])
        return
    write_note(
        f"Orange: more {UNITS[sides.quantity]} with {sides.names[1]}; blue: less. Changes beyond "
        f"±{two_digits(summary.limit)} share the darkest colour; the largest is {two_digits(summary.largest_change)}. "
        "Click a head to open it."
    )


def _draw_large_map(sides: Sides, comparison: Comparison, summary: Summary, mode: Mode) -> None:
    """Draw the difference of the selected heads of a layer."""
    choice, existing = view_choice(lambda: summary.first), comparison.existing_heads
    before, after = comparison.maps(slice(choice.layer, choice.layer + 1))
    if existing[choice.layer, choice.heads[0]]:
        window = comparison.windows[choice.layer] if comparison.windows else None
        st.markdown(_result_sentence(comparison, choice, before[0], after[0]) + note_of_layer(choice.layer, window))
    attention_view(
        (after - before)[0],
        comparison.tokens,
        comparison.tokens,
        choice=choice,
        layers=len(existing),
        mode=mode,
        off=[head for layer, head in sides.after.off if layer == choice.layer],
        pruned=[head for head, is_there in enumerate(existing[choice.layer].tolist()) if not is_there],
        signed=True,
        limit=(summary.limit if mode == "matrix" else summary.largest_change) or None,
        notes=[comparison.difference],
        hatching=_hatching(comparison, choice.layer),
        unit=comparison.unit,
        key="difference",
        on_change=choose_view,
    )


def _hatching(comparison: Comparison, layer: int) -> Hatching | None:
    """Return the area of the difference of a layer that is outside its window in both runs."""
    possible = comparison.possible
    return None if possible is None else hatching(possible[layer], comparison.windows[layer])


def _result_sentence(comparison: Comparison, choice: ViewChoice, before: np.ndarray, after: np.ndarray) -> str:
    """Return a sentence in Markdown with the largest change of the selected head. before, after: (head, query, key)."""
    old, new = before[choice.heads[0]], after[choice.heads[0]]
    changes = np.nan_to_num(abs(new - old))
    if not changes.any():
        head = f"L{choice.layer} H{choice.heads[0]}"
        return UNCHANGED.format(head=head, quantity=UNITS[comparison.quantity], names=" and ".join(comparison.names))
    query, key = np.unravel_index(changes.argmax(), old.shape)
    return CHANGE.format(
        head=f"L{choice.layer} H{choice.heads[0]}",
        quantity=UNITS[comparison.quantity],
        query=quoted(comparison.tokens[query].text, comparison.tokens[query].position),
        key=quoted(comparison.tokens[key].text, comparison.tokens[key].position),
        before=two_digits(float(old[query, key])),
        after=two_digits(float(new[query, key])),
        names=" → ".join(comparison.names),
    )


def _draw_export(sides: Sides) -> None:
    """Draw the files of the visible heads and of the list in Export."""
    comparison, summary = sides.comparison(), sides.summary()
    choice, existing = view_choice(lambda: summary.first), comparison.existing_heads
    exported_view = MapView(
        comparison.quantity,
        layer=choice.layer,
        heads=() if view.value == "heads" else tuple(head for head in choice.heads if existing[choice.layer, head]),
        mode="matrix" if view.value == "matrix" else "curves",
        kept_share=choice.kept_share,
        side=choice.side,
        positions=choice.positions,
    )
    downloads.changes(sides.comparison, exported_view, comparison.change_rows(summary.changes))
