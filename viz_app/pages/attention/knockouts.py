"""The control that blocks attention edges: from which queries, to which keys, in which heads."""

from __future__ import annotations

import streamlit as st

from bert_core.edits import AttentionKnockout
from bert_core.refused import Refused
from bert_core.run.inputs import check_edits
from viz_app.components.attention_view import ViewChoice
from viz_app.pages.attention import TEXTS, words
from viz_app.shell.edits import add_knockouts
from viz_app.shell.markdown import error_sentence
from viz_app.shell.params import Param, select
from viz_app.shell.selection import Selection
from viz_app.shell.view import write_note

OPEN_KEY = "cut_open"  # whether the popover is open
PREFILLED = "_cut_of"  # the tokens with which the control was filled in last
POPOVER_HEIGHT = 480  # pixels

queries: Param[list[int]] = Param("cut_from", list, widget="multiselect", **TEXTS.control("cut_from"))
keys: Param[list[int]] = Param("cut_to", list, widget="multiselect", **TEXTS.control("cut_to"))
scope = select("cut_in", ("heads", "layer", "all"), **TEXTS.control("cut_in"))
remainder = select("cut_rest", **TEXTS.control("cut_rest"))


def draw_knockouts(selection: Selection, choice: ViewChoice) -> None:
    """Draw the control, filled in with the tokens that are selected in the large view."""
    state, tokens = st.session_state, selection.encoding.tokens
    if state.get(PREFILLED) != state.tokens:
        side, positions = state[PREFILLED] = state.tokens
        selected = [position for position in positions if position < len(tokens)]
        if words.value:
            selected = sorted({piece for position in selected for piece in _pieces_of_word_at(selection, position)})
        queries.set([] if side == "key" else selected)
        keys.set(selected if side == "key" else [])
    with st.popover(
        TEXTS["knockout.open"], icon=":material/block:", width="content", key=OPEN_KEY, on_change="rerun"
    ) as popover:
        if not popover.open:
            # The browser places a popover by its height at the moment it opens.
            popover.container(height=POPOVER_HEIGHT, border=False)
            return
        names = [f"{token} ({position})" for position, token in enumerate(tokens)]
        for tokens_control in (queries, keys):
            tokens_control(
                options=selection.positions, placeholder=TEXTS["knockout.every"], format_func=names.__getitem__
            )
        heads = ", ".join(f"H{head}" for head in choice.heads)
        scopes = {"heads": f"L{choice.layer} {heads}", "layer": f"All heads of L{choice.layer}", "all": "All layers"}
        scope(format_func=scopes.__getitem__)
        write_note(TEXTS[f"knockout.{remainder()}"])
        knockout, problem = _selected_knockout(selection, choice)
        if problem:
            st.caption(f":orange[{problem}]")
        is_off = knockout is None
        st.button(
            TEXTS["knockout.block"], type="primary", key="cut_arrows", disabled=is_off, on_click=_cut, args=(knockout,)
        )


def _cut(knockout: AttentionKnockout) -> None:
    st.session_state[OPEN_KEY] = False
    add_knockouts(knockout)


def _selected_knockout(selection: Selection, choice: ViewChoice) -> tuple[AttentionKnockout | None, str]:
    """Return what is filled in as a knockout and "", or None and why it is not possible."""
    is_renormalised = remainder.value == "grows"
    if not keys.value and is_renormalised:
        return None, TEXTS["knockout.no_keys"]
    layers, heads = None if scope.value == "all" else (choice.layer,), choice.heads if scope.value == "heads" else None
    try:
        knockout = AttentionKnockout(
            tuple(queries.value) or None, tuple(keys.value) or None, layers, heads, is_renormalised
        )
        check_edits(selection.loaded, len(selection.encoding), (*selection.loaded.edits, knockout))
    except Refused as error:
        return None, error_sentence(error)
    return knockout, ""


def _pieces_of_word_at(selection: Selection, position: int) -> tuple[int, ...]:
    """Return the positions of the pieces of the word at a position; for a special token, its own."""
    word = selection.encoding.words[position]
    return (position,) if word is None else selection.encoding.pieces_of(word)
