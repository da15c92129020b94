"""What is different?"""

import streamlit as st

from bert_core.analysis.compare import aligned, change, largest_changes
from viz_app import downloads, frame, session
from viz_app.components.attention_view import Token, attention_view
from viz_app.components.head_grid import HeadClick, head_grid
from viz_app.export.maps import MapView, ShownMaps
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
LISTED = 20
MOST_NAMED = 12  # tokens without a partner

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
run = before.run()
earlier, later = run.attention, after.run().attention
pairs = aligned(before.encoding.tokens, after.encoding.tokens)
names = SIDES[state.against]
difference = f"{names[1]} minus {names[0]}"


def left_out(positions, encoding) -> str:
    """The tokens of one side that have no partner."""
    named = ", ".join(f"{session.as_written(encoding.tokens[at])} ({at})" for at in positions[:MOST_NAMED])
    return named + (f" and {len(positions) - MOST_NAMED} more" if len(positions) > MOST_NAMED else "") or "none"


def token(ours: int, theirs: int) -> Token:
    """A token that both sides have, or what it became."""
    was, became = before.encoding.tokens[ours], after.encoding.tokens[theirs]
    return Token(was if was == became else f"{was}→{became}", ours, before.encoding.sides[ours])


def summary():
    """What is small: the thumbnails, the largest difference of each head, and the list."""
    ours, theirs = change(earlier, later, pairs)
    changed = theirs - ours
    return (
        thumbnails(changed, signed=True, shared_scale=True),
        abs(changed).max((-1, -2)),
        largest_changes(ours, theirs, LISTED),
    )


tokens = [token(ours, theirs) for ours, theirs in zip(pairs.before.tolist(), pairs.after.tolist(), strict=True)]
other = (after.loaded.name, after.encoding.input_ids, after.encoding.token_type_ids, after.head_mask.tobytes())
small, largest, changes = before.kept("change", *other, make=summary)
layers, heads = largest.shape
if pairs.left_out_before or pairs.left_out_after:
    st.caption(
        f"The texts have {len(before.encoding)} and {len(after.encoding)} tokens, and {len(tokens)} are in both, in "
        f"this order. Left out of {names[0]}: {left_out(pairs.left_out_before, before.encoding)}; "
        f"of {names[1]}: {left_out(pairs.left_out_after, after.encoding)}."
    )


def every_change() -> ShownMaps:
    """The difference of all heads, for a file."""
    ours, theirs = change(earlier, later, pairs)
    both_sides, off = tuple(tokens), tuple(sorted(after.off))
    return ShownMaps(theirs - ours, both_sides, both_sides, "change", run.there, off, (difference,))


listed = [
    {
        "head": f"L{one.layer} H{one.head}",
        "query": f"{tokens[one.query].text} ({tokens[one.query].position})",
        "key": f"{tokens[one.key].text} ({tokens[one.key].position})",
        names[0]: one.before,
        names[1]: one.after,
        "change": one.after - one.before,
    }
    for one in changes
]


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
            there=run.there,
            key="changes",
            lecture=before.lecture,
            on_click=frame.choose_head,
        )
        st.caption("Every head's difference, all on one scale: orange grew, blue fell. Click one to see it large.")
    with right:
        choice = frame.view_choice()
        ours, theirs = change(earlier[choice.layer, None], later[choice.layer, None], pairs)
        attention_view(
            (theirs - ours)[0],
            tokens,
            tokens,
            choice=choice,
            layers=layers,
            mode=state.compare_view,
            off=[head for layer, head in after.off if layer == choice.layer],
            pruned=[head for head in range(heads) if not run.there[choice.layer, head]],
            signed=True,
            limit=float(largest[largest == largest].max(initial=0)) or None,
            notes=[difference],
            unit="change of attention",
            key="difference",
            lecture=before.lecture,
            on_change=frame.choose_view,
        )
        view = MapView(
            layer=choice.layer,
            heads=tuple(head for head in choice.heads if run.there[choice.layer, head]),
            mode="matrix" if state.compare_view == "matrix" else "curves",
            kept=choice.kept,
        )
        downloads.changes(every_change, view, listed)
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
    f"**How to read this:** what a query gives to a key with {names[1]}, minus what it gives with {names[0]}; over all "
    "tokens the changes of a row sum to 0. **How it can mislead:** "
    + (
        "heads of models that were trained apart share a number and nothing else."
        if state.against == "model"
        else "a large change shows where a head looks now, not that the answer depends on it."
    )
)
