"""What is different?"""

from collections.abc import Callable
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.compare import Change, largest_changes
from viz_app.comparison import LISTED, Comparison
from viz_app.components.attention_view.view import attention_view
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.style import two_digits
from viz_app.figures.thumbnails import LARGE, SMALL, blocks, common_limit, thumbnails
from viz_app.maps import MapView
from viz_app.pages.compare import AGAINST, COMPARE_VIEWS
from viz_app.pages.compare.sides import compared
from viz_app.shell import downloads, frame, screen
from viz_app.shell.address import end_run, publish
from viz_app.shell.calm import calm
from viz_app.shell.controls import control
from viz_app.shell.heads import VIEWS, choose_head, choose_view, open_head, view_choice
from viz_app.shell.markdown import as_written
from viz_app.shell.models import models_on_offer, shown_name, whole_name

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

state = st.session_state
view = state.compare_view
frame.title(
    "What is different?",
    "How attention changes when you hide words, or take another text, another model or fewer heads.",
)
with screen.controls().container(horizontal=True, vertical_alignment="bottom", gap="medium"):
    control(
        st.segmented_control, "Compare with", "against", options=AGAINST, format_func=AGAINST_NAMES.__getitem__,
        required=True,
    )  # fmt: skip
    control(
        st.segmented_control, "View", "compare_view", options=COMPARE_VIEWS,
        format_func=VIEWS.__getitem__, required=True,
    )  # fmt: skip
    if state.against == "text":
        control(st.text_input, "Other text", "other", placeholder="Type another sentence", width=420)
    if state.against == "model":
        control(
            st.selectbox, "Other model", "other_model", options=models_on_offer(),
            format_func=shown_name, width=300, help=whole_name(state.other_model),
        )  # fmt: skip
both = compared()
if both is None:
    end_run()
before, after = both
names, models = SIDES[state.against], (before.loaded.name, after.loaded.name)
comparison = Comparison(before.run(), after.run(), names, models)
there, tokens = comparison.there, comparison.tokens


def summary() -> tuple[np.ndarray, np.ndarray, float | None, list[Change]]:
    """What is small: the thumbnails, the largest difference of each head, and the list."""
    ours, theirs = comparison.maps()
    changed = theirs - ours
    reduced = blocks(changed, size, signed=True)
    limit = common_limit(reduced)
    small = thumbnails(reduced, size, signed=True, limit=limit)
    return small, abs(changed).max((-1, -2)), limit, largest_changes(ours, theirs, LISTED)


other = (after.loaded.name, after.encoding.input_ids, after.encoding.token_type_ids, after.head_mask.tobytes())
size = LARGE if view == "heads" else SMALL
small, largest, limit, changes = before.kept("change", size, *other, make=summary)
first = (changes[0].layer, changes[0].head) if changes else None
most = abs(changes[0].after - changes[0].before) if changes else 0.0
layers, heads = largest.shape
if comparison.left_out is not None:
    st.caption(as_written(comparison.left_out))
listed = comparison.listed(changes)


def title(layer: int, head: int) -> str:
    """A head's name and its largest change, for hover."""
    what = f"changes by up to {two_digits(largest[layer, head])}" if there[layer, head] else "pruned"
    return f"L{layer} H{head}: {what}"


def small_heads(on_click: Callable[[HeadClick], None]) -> None:
    """Every head's difference."""
    choice = view_choice(first)
    head_grid(
        layers=layers,
        heads=heads,
        thumbnails=small,
        signed=True,
        limit=limit or None,
        selected=(choice.layer, choice.heads[0]),
        off=after.off,
        titles=[[title(layer, head) for head in range(heads)] for layer in range(layers)],
        there=there,
        key="changes",
        lecture=before.lecture,
        on_click=on_click,
    )
    st.caption(
        "Change of attention in every head, all on one scale: orange is more, blue is less. Changes beyond "
        f"±{two_digits(limit)} share the darkest colour; the largest is {two_digits(most)}. Click a head to see it "
        "large."
    )


def large_head() -> None:
    """The difference of the chosen heads of a layer."""
    choice = view_choice(first)
    ours, theirs = comparison.maps(slice(choice.layer, choice.layer + 1))
    attention_view(
        (theirs - ours)[0],
        tokens,
        tokens,
        choice=choice,
        layers=layers,
        mode=view,
        off=[head for layer, head in after.off if layer == choice.layer],
        pruned=[head for head in range(heads) if not there[choice.layer, head]],
        signed=True,
        limit=(limit if view == "matrix" else most) or None,
        notes=[comparison.difference],
        unit="change of attention",
        key="difference",
        lecture=before.lecture,
        on_change=choose_view,
    )


def files() -> None:
    """What is seen, the chosen heads or all of them, and the list."""
    choice = view_choice(first)
    drawn = MapView(
        layer=choice.layer,
        heads=() if view == "heads" else tuple(head for head in choice.heads if there[choice.layer, head]),
        mode="matrix" if view == "matrix" else "curves",
        kept=choice.kept,
    )
    downloads.changes(comparison, drawn, listed)


@st.fragment
@calm()
def picture() -> None:
    """Every head's difference small, and the chosen ones large; runs alone while the hand is on them."""
    if state.compare_view != view:  # a head was opened
        st.rerun()
    if view == "heads":
        small_heads(partial(open_head, control="compare_view"))
        files()
    else:
        left, right = st.columns([1, 2 if view == "curves" else 3], gap="medium")
        with left:
            small_heads(choose_head)
            files()
        with right:
            large_head()
    publish()


def choose_listed() -> None:
    """Make the head of the clicked line the chosen one."""
    for row in state.largest.selection.rows:
        click = HeadClick(changes[row].layer, changes[row].head)
        choose_head(click) if view != "heads" else open_head(click, "compare_view")


with screen.picture():
    picture()
st.subheader("Largest changes", anchor=False)
if changes:
    st.dataframe(
        listed,
        hide_index=True,
        key="largest",
        on_select=choose_listed,
        selection_mode="single-row",
        column_config={name: st.column_config.NumberColumn(format="%.4f") for name in (*names, "change")},
    )
else:
    st.info("No head's attention changed.")
screen.read(
    f"**How to read this:** {comparison.reading}; the changes of each row add up to 0. "
    f"**How it can mislead:** {comparison.misleading}"
)
