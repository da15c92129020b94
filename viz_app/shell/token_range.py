"""The range of tokens of a long text whose maps pages draw, and the control that moves it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.maps import WHOLE_TOKENS
from viz_app.shell.markdown import with_help
from viz_app.shell.params import Param, number, parse_pair, select, write_pair
from viz_app.shell.selection import Selection, TokenRange, forget_positions
from viz_app.shell.view import page_place
from viz_app.texts import page_texts

TEXTS = page_texts("frame")
SIZES = ("64", "128", "256", "512")
EDGE_TOKENS = 4  # left out on each side when a range becomes a text, which gets special tokens


def parse_range(value: str) -> TokenRange:
    """Return the first position and the one after the last, as in 512.1024. Raises Refused for anything else."""
    start, stop = parse_pair(value)
    if not 0 < stop - start <= WHOLE_TOKENS:
        raise Refused(f"1 to {WHOLE_TOKENS} tokens, such as {WHOLE_TOKENS}.{2 * WHOLE_TOKENS}")
    return start, stop


token_range: Param[TokenRange | None] = Param("token_range", None, parse_range, write_pair, step=True)
first_token = number("first_token", minimum=0)
range_size = select("range_size", SIZES, default=str(WHOLE_TOKENS))
PARAMS: tuple[Param[Any], ...] = (token_range,)


def shown_range(encoding: Encoding) -> TokenRange | None:
    """Return the selected range of a long text, by default that around its first mask; None for a shorter text."""
    length = len(encoding)
    if length <= WHOLE_TOKENS:
        return None
    if token_range.value is None:
        start, size = next(iter(encoding.mask_positions), 0) - WHOLE_TOKENS // 2, WHOLE_TOKENS
    else:
        start, size = token_range.value[0], token_range.value[1] - token_range.value[0]
    start = min(max(start, 0), length - size)
    return start, start + size


def draw_range_control(current: Selection) -> None:
    """Draw the control that moves the range of a long text; nothing for a text that is drawn whole."""
    if current.token_range is None:
        return
    (start, stop), length = current.token_range, len(current.encoding)
    size = stop - start
    with st.container(key="token_range_control", horizontal=True, vertical_alignment="center", gap="small"):
        for name, target, is_end in (("back", start - size, start == 0), ("next", stop, stop == length)):
            label = TEXTS[f"token_range.{name}"]
            st.button(label, key=f"range_{name}", disabled=is_end, on_click=_move, args=(target, size, length))
            if name == "back":
                with st.popover(_label(current), key="range_choice", width="content"):
                    _draw_choice(current)
        masks = current.encoding.mask_positions
        if masks and not any(start <= position < stop for position in masks):
            label = TEXTS["token_range.mask"].format(position=masks[0])
            arguments = (masks[0] - size // 2, size, length)
            st.button(label, key="range_mask", type="tertiary", on_click=_move, args=arguments)


def _label(current: Selection) -> str:
    assert current.token_range is not None  # of a long text
    start, stop = current.token_range
    return TEXTS["token_range.label"].format(first=start, last=stop - 1, count=len(current.encoding))


def _draw_choice(current: Selection) -> None:
    """Draw the controls of the first token and of the number of tokens, and the button that makes them the text."""
    assert current.token_range is not None  # of a long text
    (start, stop), length = current.token_range, len(current.encoding)
    first_token.set(start)
    size = str(stop - start)
    range_size.set(size)
    changes: dict[str, Any] = {"on_change": _take_controls, "args": (length,)}
    first_token(label=TEXTS["token_range.first"], max_value=length - 1, **changes)
    range_size(label=TEXTS["token_range.size"], options=list(dict.fromkeys((*SIZES, size))), **changes)
    _draw_text_button(current, "range_as_text")


def _draw_text_button(current: Selection, key: str) -> None:
    """Draw the button that makes the range of tokens the text."""
    st.button(
        TEXTS["token_range.as_text"], key=key, icon=":material/content_cut:", on_click=_use_range, args=(current,)
    )


def _take_controls(length: int) -> None:
    _move(first_token.value, int(range_size.value), length)


def _move(start: int, size: int, length: int) -> None:
    """Select the range that begins at a token, or the last one; a callback. length: of the text."""
    start = min(max(start, 0), max(length - size, 0))
    token_range.set((start, start + size))


def _use_range(current: Selection) -> None:
    """Make the tokens of the range the text, with the same words masked; a callback."""
    assert current.token_range is not None  # of a long text
    original, state = current.original, st.session_state
    positions = range(*current.token_range)
    if len(positions) > WHOLE_TOKENS - 2 * EDGE_TOKENS:
        positions = positions[EDGE_TOKENS:-EDGE_TOKENS]
    sides = []
    for name, text in (("A", original.text), ("B", original.pair or "")):
        offsets = [original.offsets[position] for position in positions if original.sides[position] == name]
        sides.append(text[offsets[0][0] : offsets[-1][1]].strip() if offsets else "")
    numbers = [word for position in positions if (word := original.words[position]) is not None]
    state.text, state.pair = sides if sides[0] else (sides[1], "")
    state.masked = tuple(word - numbers[0] for word in current.masked_words if word in numbers)
    forget_positions()


def show_whole_needed(current: Selection) -> bool:
    """Write, in the place of the figure, that it needs the whole text if that is too long for it; return whether so."""
    if current.token_range is None:
        return False
    with page_place("figure").container():
        sentence = TEXTS["token_range.whole"].format(count=len(current.encoding), most=WHOLE_TOKENS)
        st.info(with_help(sentence), icon=":material/width:")
        _draw_text_button(current, "whole_as_text")
    return True
