"""Where else in a corpus a token is in a state like this one, where the server has an index of one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from bert_core.refused import Refused
from bert_core.studies.indexed import Index, open_index
from bert_core.studies.search import Matches, Share, search, shares
from viz_app.figures.lens import depth_names
from viz_app.pages.layers.shared import Part, depth_slider, take_along
from viz_app.shell import screen
from viz_app.shell.controls import control
from viz_app.shell.examples import Example
from viz_app.shell.markdown import as_written, helped
from viz_app.shell.question import Question, take_example
from viz_app.shell.work import Work, kept_of_model, need

INDEX = "HEADLIGHT_INDEX"  # a folder that `headlight index` made, named at start
TOP = 50
A_MILLION = 1.0  # seconds, about, for so many tokens on a busy server
AROUND = 36  # characters on either side
MOST_SHARES = 8
HOW = "`headlight index corpus.txt --out runs/index`, then `headlight app --index runs/index`"


def index_of(current: Question) -> Index | None:
    """The index that this server offers, where it is one of this model."""
    folder = os.environ.get(INDEX)
    if not folder:
        return None
    try:
        index: Index = kept_of_model(("index", folder), lambda: open_index(Path(folder)))
        index.check_model(current.plain)
    except Refused:
        return None
    return index


def elsewhere(current: Question) -> None:
    """The tokens of the index that are most like the chosen one, in their sentences."""
    index, state, encoding = index_of(current), st.session_state, current.encoding
    assert index is not None  # the page offers this way only then
    first = next((at for at, special in enumerate(encoding.special) if not special), 0)
    if state.sought is None or state.sought >= len(encoding):
        state.sought = first
    with screen.controls().container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        control(
            st.selectbox, "Token", "sought", options=range(len(encoding)), width=200,
            format_func=lambda at: f"{at}: {encoding.labels[at]}",
        )  # fmt: skip
        depth = depth_slider(len(current.head_mask) + 1)
    if depth not in index.depths:
        names = depth_names(len(current.head_mask) + 1)
        st.info(helped(f"The index has no states there: it has {', '.join(names[one] for one in index.depths)}."))
        return
    try:
        found, words = _found(current, index, int(state.sought), depth)
    except Refused as error:
        st.info(helped(f"{as_written(str(error))}."))
        return
    for said in found.broken:
        st.warning(helped(as_written(said)))
    left, right = screen.picture().columns([3, 1], gap="medium")
    with left:
        st.dataframe(
            [
                {
                    "cosine": one.score,
                    "before": _cut(one.text[: one.start], AROUND, ahead=True),
                    "match": one.text[one.start : one.end] or one.piece,
                    "after": _cut(one.text[one.end :], AROUND, ahead=False),
                    "where": f"{one.document}:{one.line}",
                }
                for one in found.matches
            ],
            hide_index=True, key="elsewhere_listed", on_select=partial(_open, found), selection_mode="single-row",
            column_config={
                "cosine": st.column_config.NumberColumn(format="%.3f", width=64),
                "before": st.column_config.TextColumn(alignment="right", width=250),
                "match": st.column_config.TextColumn(alignment="center", width=90),
                "after": st.column_config.TextColumn(width=250),
            },
        )  # fmt: skip
    with right:
        st.dataframe(
            [{"word": one.value, "here": one.among, "in all": one.of_all} for one in words],
            hide_index=True, key="elsewhere_words",
            column_config={name: st.column_config.NumberColumn(format="percent") for name in ("here", "in all")},
        )  # fmt: skip
    screen.note(
        f"The {len(found.matches)} nearest of {found.compared:,} tokens, every one compared. Click a line to open its "
        "sentence as the text; the words beside are those of the matches, and how often they are in all."
    )
    take_along("elsewhere", partial(_columns, found))


def _found(current: Question, index: Index, position: int, depth: int) -> tuple[Matches, list[Share]]:
    """The matches and their words, from the queue; of the text as the model reads it, masks and all."""
    loaded, encoding = current.plain, current.encoding

    def look_up(_: object) -> tuple[Matches, list[Share]]:
        found = search(index, loaded, encoding, [position], depth=depth, top=TOP)
        return found, shares(index, found, "word")[:MOST_SHARES]

    work = Work(
        ("elsewhere", loaded.identity, str(index.folder), encoding, position, depth),
        f"{index.tokens:,} tokens are compared with one",
        look_up,
        A_MILLION * index.tokens / 1e6,
    )
    return need(work)


def _open(found: Matches) -> None:
    """Take the sentence of the line that was clicked as the text."""
    if rows := st.session_state["elsewhere_listed"].selection.rows:
        chosen = found.matches[rows[0]]
        take_example(Example(chosen.text))
        st.session_state.sought = chosen.position


def _cut(text: str, most: int, *, ahead: bool) -> str:
    """As much of a text as is shown before a match, or behind it."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    return "…" + text[1 - most :] if ahead else text[: most - 1] + "…"


def _columns(found: Matches) -> dict[str, Sequence[object]]:
    """Every match as the columns of a table."""
    names = ("score", "document", "line", "sentence", "position", "piece", "word", "start", "end", "text")
    return {name: [getattr(one, name) for one in found.matches] for name in names}


PART = Part(
    "Where else",
    elsewhere,
    "each line is a token of the corpus whose state at this depth has nearly the same direction as that of the chosen "
    "token, in its sentence. Beside it the words of the matches, and their share of all tokens.",
    "the nearest is not always near: look at the cosine, and at how fast it falls. A word that is everywhere is among "
    "the matches by chance too.",
)
