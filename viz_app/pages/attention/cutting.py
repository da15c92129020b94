"""The control that cuts arrows: from which tokens, to which, in which heads, and what becomes of the rest."""

from __future__ import annotations

import streamlit as st

from bert_core.edits import AttentionKnockout
from bert_core.refused import Refused
from bert_core.run.inputs import check_edits
from viz_app.components.attention_view import ViewChoice
from viz_app.shell.controls import control
from viz_app.shell.edits import add_knockouts
from viz_app.shell.markdown import error_sentence
from viz_app.shell.selection import Selection
from viz_app.shell.view import write_note

OPENED = "cut_open"  # whether the control is open
PREFILLED = "_cut_of"  # the tokens that were selected when the control was filled in
ROOM = 480  # pixels of what is in it
WAYS = {"grows": "Grows", "stays": "Stays as it was"}
WAY_SAYS = {
    "grows": "These tokens are out of sight: the others of each row share the attention that is left (-inf among the "
    "scores).",
    "stays": "What these arrows bring is taken away, and the row sums to less than 1.",
}


def offer(current: Selection, choice: ViewChoice) -> None:
    """Draw the control, filled in with the tokens that are selected in the large view."""
    state, encoding = st.session_state, current.encoding
    if state.get(PREFILLED) != state.tokens:
        side, positions = state[PREFILLED] = state.tokens
        there = [position for position in positions if position < len(encoding)]
        if state.words:
            there = sorted({piece for position in there for piece in _word_at(current, position)})
        state.cut_from, state.cut_to = ([], there) if side == "key" else (there, [])
    heads = ", ".join(f"H{head}" for head in choice.heads)
    wheres = {"heads": f"L{choice.layer} {heads}", "layer": f"All heads of L{choice.layer}", "all": "All layers"}
    with st.popover(
        "Cut arrows", icon=":material/content_cut:", width="content", key=OPENED, on_change="rerun"
    ) as opened:
        if not opened.open:
            opened.container(height=ROOM, border=False)  # a browser looks for a place by the height that it opens with
            return
        for label, name in (("From the tokens that look", "cut_from"), ("To those they look at", "cut_to")):
            kept = [position for position in state[name] if position < len(encoding)]
            if kept != state[name]:
                state[name] = kept
            control(
                st.multiselect, label, name, options=range(len(encoding)), placeholder="every token",
                format_func=lambda position: f"{encoding.tokens[position]} ({position})",
            )  # fmt: skip
        control(
            st.segmented_control, "In", "cut_in", first="heads", options=list(wheres),
            format_func=wheres.__getitem__, required=True,
        )  # fmt: skip
        control(
            st.segmented_control, "The rest of the row", "cut_way", first="grows", options=list(WAYS),
            format_func=WAYS.__getitem__, required=True,
        )  # fmt: skip
        write_note(WAY_SAYS[state.cut_way])
        cut, problem = _asked(current, choice)
        if problem:
            st.caption(f":orange[{problem}]")
        st.button(
            "Cut these arrows", type="primary", key="cut_arrows", disabled=cut is None, on_click=_cut, args=(cut,)
        )


def _cut(cut: AttentionKnockout) -> None:
    st.session_state[OPENED] = False
    add_knockouts(cut)


def _asked(current: Selection, choice: ViewChoice) -> tuple[AttentionKnockout | None, str]:
    """What is filled in, as a cut; None where it cannot be, and why."""
    state = st.session_state
    if not state.cut_to and state.cut_way == "grows":
        return None, f"Choose whom they no longer see, or “{WAYS['stays']}”: of nothing, nothing can grow."
    try:
        cut = AttentionKnockout(
            tuple(state.cut_from) or None,
            tuple(state.cut_to) or None,
            None if state.cut_in == "all" else (choice.layer,),
            choice.heads if state.cut_in == "heads" else None,
            state.cut_way == "grows",
        )
        check_edits(current.loaded, len(current.encoding), (*current.loaded.edits, cut))
    except Refused as error:
        return None, error_sentence(error)
    return cut, ""


def _word_at(current: Selection, position: int) -> tuple[int, ...]:
    """The pieces of the word at a position; of a special token, itself."""
    word = current.encoding.words[position]
    return (position,) if word is None else current.encoding.pieces_of(word)
