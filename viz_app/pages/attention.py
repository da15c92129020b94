"""Who looks at whom?"""

import streamlit as st

from bert_core.analysis.attribution import word_units
from bert_core.analysis.patterns import (
    heads_by,
    map_between_words,
    part_of,
    part_positions,
    role_figures,
    word_as_read,
)
from viz_app import frame, session
from viz_app.components.attention_view import Token, attention_view
from viz_app.components.head_grid import head_grid
from viz_app.figures.thumbnails import thumbnails

SORTS = {"number": "by number", "entropy": "by entropy", "to_sep": "by share to [SEP]", "distance": "by mean distance"}
NAMES = {"attention": "Attention", "gradient": "Gradient", "product": "Attention × gradient"}

current = frame.current()
encoding, state = current.encoding, st.session_state
st.header("Who looks at whom?", anchor=False)
with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
    st.segmented_control("View", session.VIEWS, key="view", format_func=str.capitalize, required=True)
    st.segmented_control("Show", session.SHOWN, key="show", format_func=NAMES.__getitem__, required=True)
    st.segmented_control("From and to", session.PARTS, key="part", disabled=encoding.pair is None, required=True)
    st.toggle("Hide [CLS] and [SEP]", key="hide")
    st.toggle("Words, not pieces", key="words", help="To a word: the sum over its pieces. From a word: their mean.")

signed = state.show != "attention"
if signed and current.target is None:
    st.info("A gradient needs a target: click a word above to mask it, or add a second sentence.")
    signed = False
show = state.show if signed else "attention"
run = current.run(gradients=signed)
values = run.shown(show)
layers, heads = run.head_mask.shape
part = state.part if encoding.pair is not None else "all"
units = word_units(encoding) if state.words else [(position,) for position in range(len(encoding))]
queries, keys = part_positions(encoding, part, hide_special=state.hide, units=units)
tokens = [Token(word_as_read(encoding, unit), unit[0], encoding.sides[unit[0]]) for unit in units]

figures = current.kept("roles", make=lambda: role_figures(run.attention, encoding))
titles = [
    [
        f"L{layer} H{head}: entropy {figures.entropy[layer, head]:.2f} nats, "
        f"{figures.to_sep[layer, head]:.0%} to [SEP], mean distance {figures.distance[layer, head]:.1f} tokens"
        if run.there[layer, head]
        else f"L{layer} H{head}: pruned"
        for head in range(heads)
    ]
    for layer in range(layers)
]


@st.fragment
def large() -> None:
    """The chosen heads, large; runs alone while the hand is on them."""
    choice = frame.view_choice()
    maps = values[choice.layer]
    if state.words:
        maps = map_between_words(maps, units, show)
    attention_view(
        part_of(maps, queries, keys),
        [tokens[position] for position in queries],
        [tokens[position] for position in keys],
        choice=choice,
        layers=layers,
        mode=state.view,
        off=[head for layer, head in current.off if layer == choice.layer],
        signed=signed,
        unit=NAMES[show].lower(),
        key="large",
        lecture=current.lecture,
        on_change=frame.choose_view,
    )
    session.publish()
    if state.head != opened:
        st.rerun()


opened = state.head
rows, columns = part_positions(encoding, part, hide_special=state.hide)
left, right = st.columns([1, 2], gap="medium")
with left:
    st.selectbox("Heads of a layer", session.SORTS, key="sort", format_func=SORTS.__getitem__)
    head_grid(
        layers=layers,
        heads=heads,
        thumbnails=current.kept(
            "thumbnails", show, part, state.hide,
            make=lambda: thumbnails(part_of(values, rows, columns), signed=signed),
        ),
        values=None,
        signed=signed,
        mode="select",
        selected=state.head,
        off=current.off,
        there=run.there,
        titles=titles,
        order=None if state.sort == "number" else heads_by(getattr(figures, state.sort)),
        key="grid",
        lecture=current.lecture,
        on_click=frame.choose_head,
    )  # fmt: skip
    st.caption(
        "Every head at a glance; each is scaled to its own maximum. Click one, or walk with the arrow keys."
        + ("" if state.sort == "number" else " The heads of each layer stand in falling order: hover one for its name.")
    )
with right:
    large()
if signed:
    st.caption(
        "**How to read this:** from queries, who look, to keys, who are looked at; a value says how the target would "
        "change with that probability. **How it can mislead:** a gradient is a slope at this one point: switching a "
        "head off can do something else, which the page Heads shows."
    )
else:
    st.caption(
        "**How to read this:** from queries, who look, to keys, who are looked at; what a query gives sums to 1 over "
        "all tokens"
        + (", and is not renormalised here. " if part != "all" or state.hide else ". ")
        + "**How it can mislead:** attention says where a head looks, not what the prediction is owed to; "
        "much of it rests on [SEP], where it does nothing."
    )
