"""The selected head, and the heads that are off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.run.inputs import head_mask_without
from viz_app.components.attention_view import ViewChoice
from viz_app.components.head_grid import HeadClick
from viz_app.shell import selection
from viz_app.shell.address import HEAD_CHOSEN
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.params import Head, Param, parse_head, parse_indices, write_indices, write_pair
from viz_app.shell.selection import Selection
from viz_app.texts import page_texts

TEXTS = page_texts("frame")

Tokens = tuple[str, tuple[int, ...]]  # selected on the side of the "query" or the "key", and where
MAX_NAMED_HEADS, MAX_LISTED_HEADS = 2, 30  # on the button, and in its tooltip


def choose_head(click: HeadClick) -> None:
    """Select the clicked head; callback of a grid of heads."""
    if click.layer is not None and click.head is not None:
        set_head((click.layer, click.head))


def set_head(head: Head, other_heads: tuple[int, ...] = ()) -> None:
    """Select a head. other_heads: numbers of heads of its layer that are selected together with it."""
    state = st.session_state
    state.head, state.other_heads, state[HEAD_CHOSEN] = head, other_heads, True


def selected_head(first: Callable[[], Head | None]) -> Head:
    """Return the selected head, or `first()` if none was selected."""
    state = st.session_state
    head: Head = state.head
    if state.get(HEAD_CHOSEN) or (*head, *state.other_heads) != (0, 0):
        return head
    return first() or head


def view_choice(first: Callable[[], Head | None] = lambda: None) -> ViewChoice:
    """Return the layer, heads and tokens that the large view shows. first: returns the head if none was selected."""
    state = st.session_state
    (layer, head), (side, positions) = selected_head(first), state.tokens
    heads = (head, *state.other_heads)
    return ViewChoice(layer, heads, "key" if side == "key" else "query", positions, state.kept_share)


def open_head(click: HeadClick, control: str) -> None:
    """Select the clicked head and show it in the large view. control: name of the parameter of the page's view."""
    choose_head(click)
    st.session_state[control] = "curves"


def choose_view(choice: ViewChoice) -> None:
    """Set heads, tokens and share to those of the large view; its callback."""
    state = st.session_state
    set_head((choice.layer, choice.heads[0]), choice.heads[1:])
    state.tokens, state.kept_share = (choice.side, choice.positions), choice.kept_share


def head_title(current: Selection, layer: int, head: int, label: str, values: np.ndarray | None, unit: str = "") -> str:
    """Return the name of a head with its value, for hover. values: (layer, head), in `unit`; label: their name."""
    name = f"L{layer} H{head}"
    if head not in current.loaded.config.heads_of(layer):
        return f"{name}: pruned"
    if values is None:
        return name
    sign = "+" if np.nanmin(values) < 0 else ""
    return f"{name}: {label} {values[layer, head]:{sign}.3g} {unit}".rstrip()


def switch_heads(click: HeadClick) -> None:
    """Switch the clicked heads off, or on if all of them are off; callback of a grid of heads."""
    config = selection.current_selection().loaded.config
    clicked = {
        (layer, head)
        for layer in (range(config.num_hidden_layers) if click.layer is None else [click.layer])
        for head in config.heads_of(layer)
        if click.head in (None, head)
    }
    if not clicked:
        return
    off = set(st.session_state.off)
    st.session_state.off = tuple(sorted(off - clicked if clicked <= off else off | clicked))


def existing_heads(loaded: LoadedModel) -> tuple[Head, ...]:
    """Return the heads that are off; heads that the model does not have are removed with a warning."""
    layers, heads = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
    state = st.session_state
    # A head that was pruned needs no warning.
    state.off = tuple(head for head in state.off if head[1] not in loaded.config.pruned_heads.get(head[0], ()))
    wrong = [head for head in (*state.off, state.head) if not (0 <= head[0] < layers and 0 <= head[1] < heads)]
    if wrong:
        layer, head = wrong[0]
        sentence = TEXTS["heads.missing"]
        model = escape_markdown(shown_name(loaded.name))
        st.warning(with_help(sentence.format(layer=layer, head=head, model=model, last=layers - 1, most=heads - 1)))
        state.off = tuple(h for h in state.off if h not in wrong)
        if state.head in wrong:
            state.head, state[HEAD_CHOSEN] = (0, 0), False
    remaining = loaded.config.heads_of(state.head[0])
    if remaining and state.head[1] not in remaining:
        state.head = (state.head[0], remaining[0])
    state.other_heads = tuple(head for head in state.other_heads if head < heads and head != state.head[1])
    return tuple(state.off)


def heads_off(loaded: LoadedModel) -> np.ndarray:
    """Return the head mask, (layer, head), of a page without the shared text, and write which heads are off."""
    off = existing_heads(loaded)
    show_heads_off(off)
    return head_mask_without(loaded.config, off)


def show_heads_off(off: tuple[Head, ...], *, keep_place: bool = False) -> None:
    """Draw the button that switches all heads on again, which says how many are off and, as a tooltip, which.

    keep_place: whether it is drawn also if none is off, so that nothing below it moves.
    """
    if not off and not keep_place:
        return
    names = ", ".join(f"L{layer} H{head}" for layer, head in off[:MAX_LISTED_HEADS])
    if len(off) > MAX_LISTED_HEADS:
        names += TEXTS["more"].format(many=len(off) - MAX_LISTED_HEADS)
    sentence = TEXTS["heads.one_off"] if len(off) == 1 else TEXTS["heads.off"]
    restore = TEXTS["heads.switch_all_on"]
    named = f": {names}" if len(off) <= MAX_NAMED_HEADS else ""
    label = f":orange[:material/visibility_off: **{sentence.format(many=len(off))}{named}**] · {restore}"
    with st.container(key="heads_off"):
        st.button(
            label if off else TEXTS["heads.all_on"],
            on_click=_restore_heads,
            key="restore_heads",
            disabled=not off,
            help=names or TEXTS["heads.all_on"],  # a button without a tooltip is higher
            type="tertiary",
        )


def _restore_heads() -> None:
    st.session_state.off = ()


def parse_heads(value: str) -> tuple[Head, ...]:
    """Return heads that are separated by commas, in order, each once."""
    return tuple(sorted({parse_head(part) for part in value.split(",") if part}))


def parse_tokens(value: str) -> Tokens:
    """Return selected tokens, written as q4 or k2,7. Raises Refused for anything else."""
    side = {"q": "query", "k": "key"}.get(value[:1])
    if side is None:
        raise Refused("q or k, then positions")
    return side, parse_indices(value[1:])


def parse_share(value: str) -> float:
    """Return a share written in percent. Raises Refused for less than 5 or more than 100."""
    try:
        share = float(value)
    except ValueError:
        share = 0.0
    if not 5 <= share <= 100:
        raise Refused("5 to 100")
    return share / 100


PARAMS: tuple[Param[Any], ...] = (
    Param("off", (), parse_heads, lambda heads: ",".join(map(write_pair, heads)), step=True),
    Param("head", (0, 0), parse_head, write_pair, step=True),
    Param("other_heads", (), parse_indices, write_indices, step=True, old_name="also"),
    Param("tokens", ("query", ()), parse_tokens, lambda tokens: tokens[0][0] + write_indices(tokens[1])),
    Param("kept_share", 0.7, parse_share, lambda share: f"{100 * share:.0f}", old_name="kept"),
)
