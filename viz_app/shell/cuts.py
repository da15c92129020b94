"""The arrows that are cut in the text: how an address writes them, what is said of them, and putting them back."""

from __future__ import annotations

import re

import streamlit as st

from bert_core.editing import edited
from bert_core.edits import Cut
from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.run.inputs import check_cuts
from bert_core.tokenizer import Encoding
from viz_app.maps import cut_in_words
from viz_app.shell.choices import Choice, parse_numbers, write_numbers
from viz_app.shell.language import spoken
from viz_app.shell.markdown import as_written, helped, sentence

MOST_CUTS = 20  # cuts of one text
SHOWN = 3  # that are named in the line
RENORMALISED, REMOVED = "r", "x"
_WRITTEN = re.compile(r"(all|\d+(?:\.[\d,]+)?):q([\d,]*)>k([\d,]*):([rx])")


def with_cuts(loaded: LoadedModel, encoding: Encoding) -> LoadedModel:
    """The model with the arrows cut that the reader cut in this text; what cannot be is said, and nothing is cut."""
    state = st.session_state
    try:
        model = edited(loaded, state.cut)
        check_cuts(model, len(encoding))
    except Refused as error:
        st.warning(helped(f"{sentence(error)} {spoken('Nothing is cut.')}"), icon=":material/content_cut:")
        state.cut, model = (), loaded
    return model


def say_cut(cuts: tuple[Cut, ...], encoding: Encoding) -> None:
    """Which arrows are cut, in one line, and the way to put them back; nothing where none are."""
    if not cuts:
        return
    every, layers = spoken("every token"), spoken("all layers")
    ways = spoken("the rest of the row grows"), spoken("the rest stays as it was")
    named = "; ".join(
        as_written(cut_in_words(cut, encoding, every=every, all_layers=layers, ways=ways)) for cut in cuts[:SHOWN]
    )
    if len(cuts) > SHOWN:
        named += spoken(" and {many} more").format(many=len(cuts) - SHOWN)
    with st.container(key="arrows_cut", horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f":orange[:material/content_cut:] {spoken('Cut: {names}').format(names=named)}")
        st.button(spoken("Restore"), on_click=_restore, key="restore_cuts")


def add_cut(cut: Cut) -> None:
    """Cut some arrows too; a click on a button."""
    st.session_state.cut = tuple(dict.fromkeys((*st.session_state.cut, cut)))[-MOST_CUTS:]


def _restore() -> None:
    st.session_state.cut = ()


def parse_cuts(value: str) -> tuple[Cut, ...]:
    """Cuts as the address names them, as 2.3:q4>k7,8:r. Raises Refused for anything else, and for too many."""
    parts = [part for part in value.split("_") if part]
    if len(parts) > MOST_CUTS:
        raise Refused(f"at most {MOST_CUTS} cuts")
    return tuple(_parsed(part) for part in parts)


def _parsed(part: str) -> Cut:
    found = _WRITTEN.fullmatch(part)
    if found is None:
        raise Refused("write a cut as layer.head:qQUERIES>kKEYS:r, such as 2.3:q4>k7,8:r")
    where, queries, keys, way = found.groups()
    layer, _, heads = where.partition(".")
    return Cut(
        parse_numbers(queries) or None,
        parse_numbers(keys) or None,
        None if layer == "all" else (int(layer),),
        parse_numbers(heads) or None,
        way == RENORMALISED,
    )


def write_cuts(cuts: tuple[Cut, ...]) -> str:
    """Cuts as the address names them: what `parse_cuts` reads."""
    return "_".join(map(_written, cuts))


def _written(cut: Cut) -> str:
    where = "all" if cut.layers is None else write_numbers(cut.layers)
    if cut.heads is not None:
        where += f".{write_numbers(cut.heads)}"
    queries, keys = write_numbers(cut.queries or ()), write_numbers(cut.keys or ())
    return f"{where}:q{queries}>k{keys}:{RENORMALISED if cut.renormalised else REMOVED}"


CHOICES = {"cut": Choice((), parse_cuts, write_cuts, step=True, about="text")}
