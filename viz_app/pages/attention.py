"""Who looks at whom?"""

import streamlit as st

from bert_core.analysis.attribution import word_units
from bert_core.analysis.patterns import (
    combined,
    heads_by,
    layers_by,
    map_between_words,
    part_of,
    part_positions,
    renormalised,
    role_figures,
    rows_without_numbers,
    word_as_read,
)
from viz_app import downloads, frame, session
from viz_app.components.attention_view import Combined, Token, Vectors, attention_view
from viz_app.components.head_grid import head_grid
from viz_app.export.maps import MapView
from viz_app.figures.heads import head_titles
from viz_app.figures.thumbnails import thumbnails

SORTS = {"number": "by number", "entropy": "by entropy", "to_sep": "by share to [SEP]", "distance": "by mean distance"}
NAMES = {"attention": "Attention", "gradient": "Gradient", "product": "Attention × gradient"}
AMONG = {"chosen": "of the chosen heads", "layer": "of the whole layer", "all": "of all layers"}
MOST_NAMED = 6  # rows without numbers

current = frame.current()
encoding, state = current.encoding, st.session_state
st.header("Who looks at whom?", anchor=False)
neuron = state.view == "neuron"
with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
    st.segmented_control("View", session.VIEWS, key="view", format_func=str.capitalize, required=True)
    if not neuron:
        st.segmented_control("Show", session.SHOWN, key="show", format_func=NAMES.__getitem__, required=True)
        st.selectbox("From and to", session.PARTS, key="part", disabled=encoding.pair is None, width=110)
        st.selectbox(
            "Heads", session.COMBINED, key="combine", format_func=str.capitalize, width=130,
            help="Weighted: by importance, the size of the gradient of each head's gate.",
        )  # fmt: skip
if not neuron:
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.toggle("Hide [CLS] and [SEP]", key="hide")
        st.toggle("Words, not pieces", key="words", help="To a word: the sum over its pieces. From a word: their mean.")
        st.toggle(
            "Rows sum to 1 again", key="share", disabled=state.show != "attention",
            help="Where tokens are left out, what a query gives to the others is divided by its sum.",
        )  # fmt: skip
        if state.combine != "apart":
            st.selectbox(
                "Together", session.AMONG, key="among", format_func=AMONG.__getitem__, width=190,
                label_visibility="collapsed",
            )  # fmt: skip
        if state.combine == "weighted" and state.among == "chosen":
            given = st.text_input(
                "Weights", session.write_weights(state.weights), placeholder="by importance, or 2, 1, 0.5", width=210,
                label_visibility="collapsed", help="As many numbers as chosen heads, none of them negative.",
            )  # fmt: skip
            state.weights = session.parse_weights(given)

signed = state.show != "attention" and not neuron
if signed and current.target is None:
    st.info("A gradient needs a target: click a word above to mask it, or add a second sentence.")
    signed = False
show = state.show if signed else "attention"
run = current.run(gradients=signed)
values = run.shown(show)
layers, heads = run.head_mask.shape
there = run.there
part = state.part if encoding.pair is not None and not neuron else "all"
hide, words = state.hide and not neuron, state.words and not neuron
partial = part != "all" or hide
again = partial and state.share and not signed
units = word_units(encoding) if words else [(position,) for position in range(len(encoding))]
queries, keys = part_positions(encoding, part, hide_special=hide, units=units)
rows, columns = part_positions(encoding, part, hide_special=hide)
tokens = [Token(word_as_read(encoding, unit), unit[0], encoding.sides[unit[0]]) for unit in units]

figures = current.kept("roles", make=lambda: role_figures(run.attention, encoding))
titles = head_titles(*figures, there=there)


def seen(maps):
    """Maps (..., query, key) as they are looked at: between words, of the chosen part, their rows renormalised."""
    maps = part_of(map_between_words(maps, units, show) if words else maps, queries, keys)
    return renormalised(maps) if again else maps


def small():
    """Every head's thumbnail."""
    maps = part_of(values, rows, columns)
    return thumbnails(renormalised(maps) if again else maps, signed=signed)


def together(layer: int, chosen: tuple[int, ...]) -> Combined | None:
    """The one map that is drawn in the stead of the chosen heads, of their layer or of all; None to draw them apart."""
    if neuron or state.combine == "apart":
        return None
    of = (layer, list(chosen)) if state.among == "chosen" else layer if state.among == "layer" else ...
    weights, by = None, ""
    if state.combine == "weighted" and state.among == "chosen" and state.weights:
        if len(state.weights) != len(chosen) or not any(state.weights):
            st.info(f"{len(state.weights)} weights for {len(chosen)} heads: one for each is needed, and not all zero.")
            return None
        weights, by = state.weights, " by " + ", ".join(f"{weight:g}" for weight in state.weights)
    elif state.combine == "weighted":
        if current.target is None:
            st.info("Weights by importance need a target: click a word above to mask it, or add a second sentence.")
            return None
        slopes = current.run(gradients=True).gate_gradient
        assert slopes is not None  # there is a target
        weights, by = abs(slopes[of]).ravel(), " by importance"

    def make():
        maps = values[of].reshape(-1, *values.shape[-2:])
        return combined(maps, state.combine, weights)

    of_whom = {"chosen": f"L{layer} " + ", ".join(f"H{head}" for head in chosen), "layer": f"L{layer}"}
    name = f"{state.combine} of {of_whom.get(state.among, 'all layers')}{by}"
    return Combined(name, seen(current.kept("together", show, name, make=make)))


def said_of_rows(maps) -> list[str]:
    """Whether rows were renormalised, and which of them have nothing left."""
    if not partial or signed:
        return []
    if not again:
        return ["rows not renormalised: what goes to hidden tokens is missing"]
    empty = rows_without_numbers(maps)
    named = ", ".join(f"“{tokens[queries[row]].text}” ({tokens[queries[row]].position})" for row in empty[:MOST_NAMED])
    more = f" and {len(empty) - MOST_NAMED} more" if len(empty) > MOST_NAMED else ""
    return ["rows renormalised to 1"] + ([f"nothing is left in the row of {named}{more}"] if len(empty) else [])


@st.fragment
def picture() -> None:
    """All heads small, and the chosen ones large; runs alone while the hand is on them."""
    left, right = st.columns([1, 3 if neuron else 2], gap="medium")
    with left:
        first, second = st.columns(2)
        first.selectbox("Heads of a layer", session.SORTS, key="sort", format_func=SORTS.__getitem__)
        second.selectbox("Layers", session.SORTS, key="rows", format_func=SORTS.__getitem__)
        head_grid(
            layers=layers,
            heads=heads,
            thumbnails=current.kept("thumbnails", show, part, hide, again, make=small),
            signed=signed,
            mode="select",
            selected=state.head,
            off=current.off,
            titles=titles,
            order=None if state.sort == "number" else heads_by(getattr(figures, state.sort)),
            rows=None if state.rows == "number" else layers_by(getattr(figures, state.rows)).tolist(),
            there=there,
            key="grid",
            lecture=current.lecture,
            on_click=frame.choose_head,
        )
        st.caption(
            "Every head at a glance; each is scaled to its own maximum. Click one, or walk with the arrow keys."
            + (
                ""
                if state.sort == "number"
                else " The heads of each layer stand in falling order: hover one for its name."
            )
            + ("" if state.rows == "number" else " Layers stand in falling order of the mean over their heads.")
        )
    with right:
        choice = frame.view_choice()
        maps, one = seen(values[choice.layer]), together(choice.layer, choice.heads)
        opened = (choice.layer, choice.heads[0])
        missing = [head for head in range(heads) if not there[choice.layer, head]]
        made_from = None
        if neuron and there[opened]:
            of = current.vectors(*opened)
            made_from = Vectors(of.queries, of.keys, of.distances, of.causal)
        attention_view(
            maps,
            [tokens[position] for position in queries],
            [tokens[position] for position in keys],
            choice=choice,
            layers=layers,
            mode=state.view,
            combined=one,
            vectors=made_from,
            off=[head for layer, head in current.off if layer == choice.layer],
            pruned=missing,
            signed=signed,
            notes=said_of_rows(
                maps[[head for head in choice.heads if head not in missing]] if one is None else one.map[None]
            ),
            unit=NAMES[show].lower(),
            key="large",
            lecture=current.lecture,
            on_change=frame.choose_view,
        )
        present = tuple(head for head in choice.heads if head not in missing)
        view = MapView(show, part, hide, words, again, choice.layer, present,
                       "matrix" if state.view == "matrix" else "curves", choice.kept)  # fmt: skip
        downloads.attention(run, view, current.loaded.name, apart=neuron or one is not None)
    session.publish()


picture()
if neuron:
    st.caption(
        "**How to read this:** one query on the left, every key on the right: their vectors, multiplied number by "
        "number; the sum over the root of their length is the score, and the softmax of all scores is the attention. "
        "It is always between pieces and over all tokens. **How it can mislead:** a single number of a vector has no "
        "meaning of its own: turn queries and keys together, and every score stays what it is."
    )
elif signed:
    st.caption(
        "**How to read this:** from queries, who look, to keys, who are looked at; a value says how the target would "
        "change with that probability. **How it can mislead:** a gradient is a slope at this one point: switching a "
        "head off can do something else, which the page Heads shows."
    )
else:
    sums = "what a query gives sums to 1 over all tokens"
    if again:
        sums = "what a query gives to the tokens that are shown was divided by its sum, so that it is 1 again"
    elif partial:
        sums += ", and was not renormalised for those that are shown"
    st.caption(
        f"**How to read this:** from queries, who look, to keys, who are looked at; {sums}"
        + ("; the maximum over heads sums to 1 or more. " if state.combine == "maximum" else ". ")
        + "**How it can mislead:** attention says where a head looks, not what the prediction is owed to; "
        "much of it rests on [SEP], where it does nothing."
    )
frame.say_cautions(run)
st.page_link(
    "viz_app/pages/why.py", label="Attention is not explanation: how far it can be trusted on this text",
    icon=":material/verified:",
)  # fmt: skip
