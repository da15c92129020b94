"""Pages of a long list: the rows of the selected page, and the buttons that open another one."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from viz_app.shell.params import Param
from viz_app.shell.view import write_note
from viz_app.texts import page_texts

TEXTS = page_texts("frame")


def rows_of_page(page_number: Param[int], count: int, size: int) -> range:
    """Return the indices of the rows of the selected page, or of the last one for a larger number.

    count: number of rows of the whole list. size: number of rows of a page.
    """
    number = min(page_number.value, _page_count(count, size))
    return range((number - 1) * size, min(number * size, count))


def draw_pager(
    page_number: Param[int],
    count: int,
    size: int,
    *,
    key: str,
    note: str,
    on_open: Callable[[], None] = lambda: None,
) -> None:
    """Draw the buttons and the number of the page, unless there is only one page, and a note beside them.

    count, size: as for `rows_of_page`. key: of the container and, with the direction, of the buttons.
    on_open: called after another page is selected.
    """
    pages = _page_count(count, size)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=key):
        if pages > 1:
            number = min(page_number.value, pages)
            page_number.set(number)
            for name, target, icon in (
                ("back", number - 1, ":material/chevron_left:"),
                ("next", number + 1, ":material/chevron_right:"),
            ):
                st.button(
                    TEXTS[f"token_range.{name}"], key=f"{key}_{name}", icon=icon, on_click=_open_page,
                    args=(page_number, target, on_open), disabled=not 1 <= target <= pages,
                )  # fmt: skip
            page_number(max_value=pages, width=110, label_visibility="collapsed", on_change=on_open)
        write_note(note)


def _page_count(count: int, size: int) -> int:
    return max(-(-count // size), 1)


def _open_page(page_number: Param[int], target: int, on_open: Callable[[], None]) -> None:
    page_number.set(target)
    on_open()
