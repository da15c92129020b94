"""What is different?"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

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
from viz_app.pages.compare import AGAINST, COMPARE_VIEWS
from viz_app.pages.compare.sides import compared
from viz_app.shell import downloads, frame, screen
from viz_app.shell.address import end_run, publish
from viz_app.shell.controls import control
from viz_app.shell.heads import VIEWS, choose_head, choose_view, open_head, view_choice
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.models import full_name, models_on_offer, shown_name
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection

AGAINST_NAMES = {
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
    """What is small: the thumbnails and where their scale ends, the largest difference of each head, and the list."""

    thumbnails: np.ndarray
    limit: float
    largest: np.ndarray
    changes: list[Change]

    @property
    def first(self) -> Head | None:
        """The head that changed most."""
        return (self.changes[0].layer, self.changes[0].head) if self.changes else None

    @property
    def most(self) -> float:
        """By how much it changed."""
        return abs(self.changes[0].after - self.changes[0].before) if self.changes else 0.0


@dataclass(frozen=True)
class Sides:
    """What is compared: two questions, what the two are called, and the quantity. Their runs stay with the queue."""

    before: Selection
    after: Selection
    names: tuple[str, str]
    what: str

    def comparison(self) -> Comparison:
        """The difference of the two runs."""
        models = self.before.loaded.name, self.after.loaded.name
        return Comparison(self.before.run(), self.after.run(), self.names, models, self.what)

    def summary(self, comparison: Comparison, size: int) -> Summary:
        """What is small, made once. size: the most rows and columns of a thumbnail."""

        def make() -> Summary:
            ours, theirs = comparison.maps()
            changed = theirs - ours
            reduced = blocks(changed, size, signed=True)
            limit = common_limit(reduced)
            small = thumbnails(reduced, size, signed=True, limit=limit)
            return Summary(small, limit, abs(changed).max((-1, -2)), largest_changes(ours, theirs, MAX_CHANGES))

        after = self.after
        other: tuple[Hashable, ...] = (
            after.loaded.identity, after.encoding.input_ids, after.encoding.token_type_ids, after.head_mask.tobytes()
        )  # fmt: skip
        made: Summary = self.before.kept("change", self.what, size, *other, make=make)
        return made


def draw() -> None:
    """Draw the page."""
    state = st.session_state
    view = state.compare_view
    frame.title(
        "What is different?",
        "How attention changes when you hide words, or take another text, another model or fewer heads.",
    )
    _controls()
    both = compared()
    if both is None:
        end_run()
    cut = both[1].loaded.edits and state.against == "heads"
    sides = Sides(*both, CUT if cut else SIDES[state.against], state.differs)
    comparison = sides.comparison()
    changes = sides.summary(comparison, _size(view)).changes
    if comparison.left_out is not None:
        st.caption(escape_markdown(comparison.left_out))
    with screen.picture():
        picture(sides, view)
    st.subheader("Largest changes", anchor=False)
    if changes:
        heads = [HeadClick(change.layer, change.head) for change in changes]
        st.dataframe(
            comparison.listed(changes),
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
    if comparison.what == "attention":
        removed = comparison.before.edits or comparison.after.edits
        sums = f"; the changes of each row add up to {'0 unless arrows were removed from it' if removed else '0'}"
    screen.write_reading(
        f"**How to read this:** {comparison.reading}{sums}. **How it can mislead:** {comparison.misleading}"
    )


def _controls() -> None:
    state = st.session_state
    with screen.controls().container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        control(
            st.segmented_control, "Compare with", "against", options=AGAINST, format_func=AGAINST_NAMES.__getitem__,
            required=True,
        )  # fmt: skip
        control(
            st.segmented_control, "View", "compare_view", options=COMPARE_VIEWS,
            format_func=VIEWS.__getitem__, required=True,
        )  # fmt: skip
        control(
            st.segmented_control, "Show", "differs", options=CHANGES,
            format_func=lambda name: UNITS[name].capitalize(), required=True,
        )  # fmt: skip
        if state.against == "text":
            control(st.text_input, "Other text", "other", placeholder="Type another sentence", width=420)
        if state.against == "model":
            control(
                st.selectbox, "Other model", "other_model", options=models_on_offer(),
                format_func=shown_name, width=300, help=full_name(state.other_model),
            )  # fmt: skip


def _size(view: str) -> int:
    return LARGE if view == "heads" else SMALL


def _choose_listed(heads: Sequence[HeadClick], view: str) -> None:
    """Make the head of the clicked line the chosen one. heads: those of the lines."""
    for row in st.session_state.largest.selection.rows:
        choose_head(heads[row]) if view != "heads" else open_head(heads[row], "compare_view")


@frame.fragment
def picture(sides: Sides, view: str) -> None:
    """Every head's difference small, and the chosen ones large; runs alone while the hand is on them.

    Streamlit keeps what it is given for as long as the page is open: the questions, whose runs the queue has.
    """
    if st.session_state.compare_view != view:  # a head was opened
        st.rerun()
    comparison = sides.comparison()
    summary = sides.summary(comparison, _size(view))
    if view == "heads":
        _small_heads(sides, comparison.there, summary, partial(open_head, control="compare_view"))
        _files(sides, comparison, summary, view)
    else:
        left, right = st.columns([1, 2 if view == "curves" else 3], gap="medium")
        with left:
            _small_heads(sides, comparison.there, summary, choose_head)
            _files(sides, comparison, summary, view)
        with right:
            _large_head(sides, comparison, summary, cast(Mode, view))
    publish()


def _small_heads(sides: Sides, there: np.ndarray, summary: Summary, on_click: Callable[[HeadClick], None]) -> None:
    """Every head's difference."""
    choice, largest = view_choice(summary.first), summary.largest
    layers, heads = largest.shape

    def title(layer: int, head: int) -> str:
        what = f"changes by up to {two_digits(largest[layer, head])}" if there[layer, head] else "pruned"
        return f"L{layer} H{head}: {what}"

    head_grid(
        layers=layers,
        heads=heads,
        thumbnails=summary.thumbnails,
        signed=True,
        limit=summary.limit or None,
        selected=(choice.layer, choice.heads[0]),
        off=sides.after.off,
        titles=[[title(layer, head) for head in range(heads)] for layer in range(layers)],
        existing=there,
        key="changes",
        on_click=on_click,
    )
    screen.write_note(
        f"{UNITS[CHANGES[sides.what]].capitalize()} in every head, all on one scale: orange is more, blue is less. "
        f"Changes beyond ±{two_digits(summary.limit)} share the darkest colour; the largest is "
        f"{two_digits(summary.most)}. Click a head to see it large."
    )


def _large_head(sides: Sides, comparison: Comparison, summary: Summary, mode: Mode) -> None:
    """The difference of the chosen heads of a layer."""
    choice, there = view_choice(summary.first), comparison.there
    ours, theirs = comparison.maps(slice(choice.layer, choice.layer + 1))
    attention_view(
        (theirs - ours)[0],
        comparison.tokens,
        comparison.tokens,
        choice=choice,
        layers=len(there),
        mode=mode,
        off=[head for layer, head in sides.after.off if layer == choice.layer],
        pruned=[head for head, is_there in enumerate(there[choice.layer].tolist()) if not is_there],
        signed=True,
        limit=(summary.limit if mode == "matrix" else summary.most) or None,
        notes=[comparison.difference],
        unit=comparison.unit,
        key="difference",
        on_change=choose_view,
    )


def _files(sides: Sides, comparison: Comparison, summary: Summary, view: str) -> None:
    """What is seen, the chosen heads or all of them, and the list."""
    choice, there = view_choice(summary.first), comparison.there
    drawn = MapView(
        comparison.what,
        layer=choice.layer,
        heads=() if view == "heads" else tuple(head for head in choice.heads if there[choice.layer, head]),
        mode="matrix" if view == "matrix" else "curves",
        kept=choice.kept,
    )
    downloads.changes(sides.comparison, drawn, comparison.listed(summary.changes))
