"""What is changed in the model for this text: arrows that are cut, neurons that are scaled; and putting it back."""

from __future__ import annotations

import streamlit as st

from bert_core.editing import edited
from bert_core.edits import Cut, Edit, Scaled
from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.run.inputs import check_cuts
from bert_core.tokenizer import Encoding
from viz_app.notation import (
    MOST_EDITS,
    cut_in_words,
    parse_cuts,
    parse_scaled,
    scaled_in_words,
    write_cuts,
    write_scaled,
)
from viz_app.shell.choices import Choice
from viz_app.shell.language import spoken
from viz_app.shell.markdown import as_written, helped, sentence

SHOWN = 3  # of a kind, that are named in the line
NO_EDITS: dict[str, tuple[Edit, ...]] = {"cut": (), "scaled": ()}


def kept_edits() -> tuple[Edit, ...]:
    """All that the reader changed in the model for this text."""
    return (*st.session_state.cut, *st.session_state.scaled)


def with_edits(loaded: LoadedModel, encoding: Encoding) -> LoadedModel:
    """The model with all that the reader changed in it for this text; what cannot be is said, and left out."""
    state, model = st.session_state, loaded
    nothing = {"cut": spoken("Nothing is cut."), "scaled": spoken("No neuron is scaled.")}
    for kind, said in nothing.items():
        try:
            changed = edited(model, state[kind])
            check_cuts(changed, len(encoding))
            model = changed
        except Refused as error:
            st.warning(helped(f"{sentence(error)} {said}"), icon=":material/content_cut:")
            state[kind] = ()
    return model


def say_edits(edits: tuple[Edit, ...], encoding: Encoding) -> None:
    """What is changed, in a line for each kind, and the way to put it back; nothing where nothing is."""
    every, layers, neuron = spoken("every token"), spoken("all layers"), spoken("neuron")
    ways = spoken("the rest of the row grows"), spoken("the rest stays as it was")
    cuts = [
        as_written(cut_in_words(edit, encoding, every=every, all_layers=layers, ways=ways))
        for edit in edits
        if isinstance(edit, Cut)
    ]
    scaled = [scaled_in_words(edit, neuron=neuron, off=spoken("off")) for edit in edits if isinstance(edit, Scaled)]
    _line("cut", cuts, spoken("Cut: {names}"), "content_cut", "arrows_cut")
    _line("scaled", scaled, spoken("Scaled: {names}"), "tune", "neurons_scaled")


def _line(kind: str, names: list[str], says: str, icon: str, key: str) -> None:
    if not names:
        return
    named = "; ".join(names[:SHOWN])
    if len(names) > SHOWN:
        named += spoken(" and {many} more").format(many=len(names) - SHOWN)
    with st.container(key=key, horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f":orange[:material/{icon}:] {says.format(names=named)}")
        st.button(spoken("Restore"), on_click=_restore, args=(kind,), key=f"restore_{kind}")


def add_cut(cut: Cut) -> None:
    """Cut some arrows too; a click on a button."""
    st.session_state.cut = tuple(dict.fromkeys((*st.session_state.cut, cut)))[-MOST_EDITS:]


def add_scaled(*scaled: Scaled) -> None:
    """Scale some neurons, in the place of what was done to them before; a factor of 1 leaves them be. A click."""
    kept = {(one.layer, one.neuron): one for one in (*st.session_state.scaled, *scaled)}
    st.session_state.scaled = tuple(one for one in kept.values() if one.factor != 1)[-MOST_EDITS:]


def _restore(kind: str) -> None:
    st.session_state[kind] = ()


CHOICES = {
    "cut": Choice((), parse_cuts, write_cuts, step=True, about="text"),
    "scaled": Choice((), parse_scaled, write_scaled, step=True, about="text"),
}
