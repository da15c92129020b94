"""The page Compare: the differences of attention between two runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import streamlit as st

from bert_core.analysis.compare import Change, largest_changes
from viz_app.comparison import MAX_CHANGES, Comparison
from viz_app.components.attention_view.view import Mode, attention_view
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.style import two_digits
from viz_app.figures.thumbnails import LARGE, SMALL, blocks, common_limit, thumbnails
from viz_app.maps import CHANGES, UNITS, MapView
from viz_app.pages.compare import COMPARE_VIEWS, COMPARISONS
from viz_app.pages.compare.sides import compared_selections
from viz_app.shell import downloads, frame
from viz_app.shell.address import end_run, publish
from viz_app.shell.controls import control
from viz_app.shell.heads import VIEWS, choose_head, choose_view, open_head, view_choice
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import full_name, models_on_offer, shown_name
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, page_place, write_note, write_reading

COMPARISON_NAMES = {
    "masked": "Hidden words",
    "text": "Another text",
    "model": "Another model",
    "heads": "Heads off",
}
SIDES = {
    "masked": ("words shown", "words hidden"),
    "text": ("this text", "the other text"),
    "model": ("this model", "the other model"),
    "heads": ("all heads on", "some off"),
}
CUT = ("all heads on, nothing changed", "as it is now")


class Summary(NamedTuple):
    """The small data of a comparison.

    thumbnails: of the differences of all heads. limit: end of their colour scale. largest: (layer, head), the largest
    difference of each head. changes: the largest of all, in descending order.
    """

    thumbnails: np.ndarray
    limit: float
    largest: np.ndarray
    changes: list[Change]

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

    def summary(self, comparison: Comparison, size: int) -> Summary:
        """Return the cached summary. size: largest number of rows and columns of a thumbnail."""

        def compute() -> Summary:
            before_maps, after_maps = comparison.maps()
            changed = after_maps - before_maps
            reduced = blocks(changed, size, signed=True)
            limit = common_limit(reduced)
            small = thumbnails(reduced, size, signed=True, limit=limit)
            return Summary(
                small, limit, abs(changed).max((-1, -2)), largest_changes(before_maps, after_maps, MAX_CHANGES)
            )

        after = self.after
        ids = after.encoding.input_ids, after.encoding.token_type_ids
        key = (self.quantity, size, after.loaded.identity, *ids, after.head_mask.tobytes())
        summary: Summary = self.before.kept("change", *key, make=compute)
        return summary


def draw(page: View) -> None:
    """Draw the page."""
    state = st.session_state
    view = state.compare_view
    frame.title(
        "What is different?",
        "How attention changes when you hide words, or take another text, another model or fewer heads.",
    )
    _controls()
    selections = compared_selections()
    if selections is None:
        end_run()
    is_edited = selections[1].loaded.edits and state.against == "heads"
    sides = Sides(*selections, CUT if is_edited else SIDES[state.against], state.differs)
    comparison = sides.comparison()
    changes = sides.summary(comparison, _thumbnail_size(view)).changes
    if comparison.left_out is not None:
        st.caption(escape_markdown(comparison.left_out))
    with page_place("figure"):
        picture(sides, view)
    st.subheader("Largest changes", anchor=False)
    if changes:
        heads = [HeadClick(change.layer, change.head) for change in changes]
        st.dataframe(
            comparison.change_rows(changes),
            hide_index=True,
            key="largest",
            on_select=partial(_choose_listed, heads, view),
            selection_mode="single-row",
            column_config={
                name: st.column_config.NumberColumn(format="%.4f") for name in (*comparison.names, "change")
            },
        )
    else:
        st.info(with_help("Nothing changed in any head."))
    sums = ""
    if comparison.quantity == "attention":
        removed = comparison.before.edits or comparison.after.edits
        sums = f"; the changes of each row add up to {'0 unless arrows were removed from it' if removed else '0'}"
    write_reading(f"**How to read this:** {comparison.reading}{sums}. **How it can mislead:** {comparison.misleading}")


def _controls() -> None:
    state = st.session_state
    with page_place("controls").container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        quantities = {name: UNITS[name].capitalize() for name in CHANGES}
        for label, name, options, names in (
            ("Compare with", "against", COMPARISONS, COMPARISON_NAMES),
            ("View", "compare_view", COMPARE_VIEWS, VIEWS),
            ("Show", "differs", CHANGES, quantities),
        ):
            look: dict[str, Any] = {"options": options, "format_func": names.__getitem__, "required": True}
            control(st.segmented_control, label, name, **look)
        if state.against == "text":
            control(st.text_input, "Other text", "other", placeholder="Type another sentence", width=420)
        if state.against == "model":
            look = {"options": models_on_offer(), "format_func": shown_name, "help": full_name(state.other_model)}
            control(st.selectbox, "Other model", "other_model", width=300, **look)


def _thumbnail_size(view: str) -> int:
    return LARGE if view == "heads" else SMALL


def _choose_listed(heads: Sequence[HeadClick], view: str) -> None:
    """Choose the head of the clicked row. heads: those of the rows."""
    for row in st.session_state.largest.selection.rows:
        choose_head(heads[row]) if view != "heads" else open_head(heads[row], "compare_view")


@frame.fragment
def picture(sides: Sides, view: str) -> None:
    """Draw the difference of every head as a thumbnail, and of the chosen heads as a large map, as a fragment.

    Streamlit keeps the arguments for as long as the page is open; they hold selections and no runs.
    """
    if st.session_state.compare_view != view:  # a head was opened
        st.rerun()
    comparison = sides.comparison()
    summary = sides.summary(comparison, _thumbnail_size(view))
    if view == "heads":
        _small_heads(sides, comparison.existing_heads, summary, partial(open_head, control="compare_view"))
        _export(sides, comparison, summary, view)
    else:
        left, right = st.columns([1, 2 if view == "curves" else 3], gap="medium")
        with left:
            _small_heads(sides, comparison.existing_heads, summary, choose_head)
            _export(sides, comparison, summary, view)
        with right:
            _large_head(sides, comparison, summary, cast(Mode, view))
    publish()


def _small_heads(sides: Sides, existing: np.ndarray, summary: Summary, on_click: Callable[[HeadClick], None]) -> None:
    """Draw the difference of every head."""
    choice, largest = view_choice(summary.first), summary.largest
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
        selected=(choice.layer, choice.heads[0]),
        off=sides.after.off,
        titles=[[title(layer, head) for head in range(heads)] for layer in range(layers)],
        existing=existing,
        key="changes",
        on_click=on_click,
    )
    write_note(
        f"{UNITS[CHANGES[sides.quantity]].capitalize()} in every head, all on one scale: orange is more, blue is less. "
        f"Changes beyond ±{two_digits(summary.limit)} share the darkest colour; the largest is "
        f"{two_digits(summary.largest_change)}. Click a head to see it large."
    )


def _large_head(sides: Sides, comparison: Comparison, summary: Summary, mode: Mode) -> None:
    """Draw the difference of the chosen heads of a layer."""
    choice, existing = view_choice(summary.first), comparison.existing_heads
    before, after = comparison.maps(slice(choice.layer, choice.layer + 1))
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
        unit=comparison.unit,
        key="difference",
        on_change=choose_view,
    )


def _export(sides: Sides, comparison: Comparison, summary: Summary, view: str) -> None:
    """Draw the Export control of the visible heads and of the list."""
    choice, existing = view_choice(summary.first), comparison.existing_heads
    exported_view = MapView(
        comparison.quantity,
        layer=choice.layer,
        heads=() if view == "heads" else tuple(head for head in choice.heads if existing[choice.layer, head]),
        mode="matrix" if view == "matrix" else "curves",
        kept_share=choice.kept_share,
    )
    downloads.changes(sides.comparison, exported_view, comparison.change_rows(summary.changes))
