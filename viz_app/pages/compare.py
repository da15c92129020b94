"""What is different?"""

import streamlit as st

from bert_core.analysis.compare import largest_changes
from viz_app import downloads, frame, session
from viz_app.components.attention_view import attention_view
from viz_app.components.head_grid import HeadClick, head_grid
from viz_app.export.comparison import LISTED, Comparison
from viz_app.export.maps import MapView
from viz_app.figures.thumbnails import thumbnails

AGAINST = {
    "masked": "Shown and hidden words",
    "text": "Another text",
    "model": "Another model",
    "heads": "Heads on and off",
}
SIDES = {
    "masked": ("words shown", "words hidden"),
    "text": ("this text", "the other text"),
    "model": ("this model", "the other model"),
    "heads": ("all heads on", "some off"),
}

state = st.session_state
st.header("What is different?", anchor=False)
with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
    st.segmented_control("Compare", session.AGAINST, key="against", format_func=AGAINST.__getitem__, required=True)
    st.segmented_control("View", session.VIEWS[:2], key="compare_view", format_func=str.capitalize, required=True)
    if state.against == "text":
        st.text_input("Other text", key="other", placeholder="Type another sentence", width=420)
    if state.against == "model":
        st.selectbox("Other model", session.models_on_offer(), key="other_model", width=300)
both = frame.compared()
if both is None:
    st.stop()
before, after = both
names, models = SIDES[state.against], (before.loaded.name, after.loaded.name)
comparison = Comparison(before.run(), after.run(), names, models)
there, tokens = comparison.there, comparison.tokens


def summary():
    """What is small: the thumbnails, the largest difference of each head, and the list."""
    ours, theirs = comparison.maps()
    changed = theirs - ours
    return (
        thumbnails(changed, signed=True, shared_scale=True),
        abs(changed).max((-1, -2)),
        largest_changes(ours, theirs, LISTED),
    )


other = (after.loaded.name, after.encoding.input_ids, after.encoding.token_type_ids, after.head_mask.tobytes())
small, largest, changes = before.kept("change", *other, make=summary)
layers, heads = largest.shape
if comparison.left_out is not None:
    st.caption(session.as_written(comparison.left_out))
listed = comparison.listed(changes)


@st.fragment
def picture() -> None:
    """Every head's difference small, and the chosen ones large; runs alone while the hand is on them."""
    left, right = st.columns([1, 2], gap="medium")
    with left:
        head_grid(
            layers=layers,
            heads=heads,
            thumbnails=small,
            signed=True,
            selected=state.head,
            off=after.off,
            titles=[
                [f"L{layer} H{head}: changes by up to {largest[layer, head]:.3f}" for head in range(heads)]
                for layer in range(layers)
            ],
            there=there,
            key="changes",
            lecture=before.lecture,
            on_click=frame.choose_head,
        )
        st.caption("Every head's difference, all on one scale: orange grew, blue fell. Click one to see it large.")
    with right:
        choice = frame.view_choice()
        ours, theirs = comparison.maps(slice(choice.layer, choice.layer + 1))
        attention_view(
            (theirs - ours)[0],
            tokens,
            tokens,
            choice=choice,
            layers=layers,
            mode=state.compare_view,
            off=[head for layer, head in after.off if layer == choice.layer],
            pruned=[head for head in range(heads) if not there[choice.layer, head]],
            signed=True,
            limit=float(largest[largest == largest].max(initial=0)) or None,
            notes=[comparison.difference],
            unit="change of attention",
            key="difference",
            lecture=before.lecture,
            on_change=frame.choose_view,
        )
        view = MapView(
            layer=choice.layer,
            heads=tuple(head for head in choice.heads if there[choice.layer, head]),
            mode="matrix" if state.compare_view == "matrix" else "curves",
            kept=choice.kept,
        )
        downloads.changes(comparison, view, listed)
    session.publish()


def choose_listed() -> None:
    """Make the head of the clicked line the chosen one."""
    for row in state.largest.selection.rows:
        frame.choose_head(HeadClick(changes[row].layer, changes[row].head))


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
    st.info("No head's attention changed at all.")
st.caption(
    f"**How to read this:** {comparison.reading}; over all tokens the changes of a row sum to 0. "
    f"**How it can mislead:** {comparison.misleading}"
)
