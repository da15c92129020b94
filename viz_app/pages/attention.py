"""Who looks at whom?"""

import streamlit as st

from bert_core.analysis.patterns import attention_entropy, mean_distance, part_positions, share_to
from viz_app import frame, session
from viz_app.components.head_grid import head_grid
from viz_app.figures.attention import attention_heatmap
from viz_app.figures.thumbnails import thumbnails

NAMES = {"attention": "Attention", "gradient": "Gradient", "product": "Attention × gradient"}

current = frame.current()
encoding, state = current.encoding, st.session_state
st.header("Who looks at whom?", anchor=False)
first, second, third = st.columns([4, 4, 2], vertical_alignment="bottom")
first.segmented_control("Show", session.SHOWN, key="show", format_func=NAMES.__getitem__, required=True)
second.segmented_control("From and to", session.PARTS, key="part", disabled=encoding.pair is None, required=True)
third.toggle("Hide [CLS] and [SEP]", key="hide")

signed = state.show != "attention"
if signed and current.target is None:
    st.info("A gradient needs a target: click a word above to mask it, or add a second sentence.")
    signed = False
show = state.show if signed else "attention"
run = current.run(gradients=signed)
values = run.shown(show)
part = state.part if encoding.pair is not None else "all"
queries, keys = part_positions(encoding, part, hide_special=state.hide)
shown = values[..., queries[:, None], keys[None, :]]

entropy, distance = attention_entropy(run.attention), mean_distance(run.attention)
to_sep = share_to(run.attention, [token == "[SEP]" for token in encoding.tokens])
titles = [
    [
        f"L{layer} H{head}: entropy {entropy[layer, head]:.2f} nats, {to_sep[layer, head]:.0%} to [SEP], "
        f"mean distance {distance[layer, head]:.1f} tokens"
        for head in range(shown.shape[1])
    ]
    for layer in range(shown.shape[0])
]
layer, head = state.head
left, right = st.columns([5, 6], gap="large")
with left:
    head_grid(
        layers=shown.shape[0],
        heads=shown.shape[1],
        thumbnails=thumbnails(shown, signed=signed),
        values=None,
        signed=signed,
        mode="select",
        selected=state.head,
        off=current.off,
        titles=titles,
        key="grid",
        lecture=current.lecture,
        on_click=frame.choose_head,
    )
    st.caption("Every head at a glance; each is scaled to its own maximum. Click one, or walk with the arrow keys.")
with right:
    labels = list(encoding.tokens)
    st.plotly_chart(
        attention_heatmap(
            shown[layer, head],
            [labels[position] for position in queries],
            [labels[position] for position in keys],
            signed=signed,
            title=f"{NAMES[show]}, L{layer} H{head}",
            dark=current.dark,
            lecture=current.lecture,
            unit=NAMES[show].lower(),
        ),
        theme=None,
        key="map",
        alt=f"{titles[layer][head]}; rows are queries, columns keys",
    )
if signed:
    st.caption(
        "**How to read this:** rows are queries, columns keys; a cell says how the target would change with that "
        "probability. **How it can mislead:** a gradient is a slope at this one point: switching a head off can do "
        "something else, which the page Heads shows."
    )
else:
    st.caption(
        "**How to read this:** rows are queries, columns keys; a row sums to 1 over all tokens"
        + (", and is not renormalised here. " if part != "all" or state.hide else ". ")
        + "**How it can mislead:** attention says where a head looks, not what the prediction is owed to; "
        "much of it rests on [SEP], where it does nothing."
    )
