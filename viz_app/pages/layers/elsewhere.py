"""Where else in a corpus, the server's or one's own, a token is in a state like this one, or heads do the like."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from bert_core.refused import Refused
from bert_core.studies.index_reader import Index
from bert_core.studies.search import CLS_OFFSET, SEP_OFFSET, Matches, ValueShare, search, value_shares
from viz_app.figures.lens import depth_names
from viz_app.pages.layers import ALIKE
from viz_app.pages.layers.shared import Part, depth_slider, take_along
from viz_app.shell import own_corpus
from viz_app.shell.controls import control
from viz_app.shell.corpus import find_index, query_position, show_index_error
from viz_app.shell.examples import Example
from viz_app.shell.heads import set_head
from viz_app.shell.markdown import escape_markdown, special_tokens, with_help
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection, open_example_text
from viz_app.shell.view import page_place, write_note
from viz_app.shell.work import Work, wait_for

TOP = 50
A_MILLION = 1.0  # seconds, about, for so many tokens on a busy server
AROUND = 36  # characters on either side
MOST_SHARES = 8
NAMES = dict(zip(ALIKE, ("A state", "What a head brings", "Where a head looks"), strict=True))
SCORES = dict(zip(ALIKE, ("cosine", "cosine", "alike"), strict=True))
COUNTED = {"word": "Words", "offset": "Offsets", "upos": "Parts of speech", "relation": "Relations"}
Counted = dict[str, list[ValueShare]]  # of each of these, what stands among the matches


def elsewhere(current: Selection) -> None:
    """The tokens of the index that are most like the chosen one, in their sentences."""
    index, state, encoding = find_index(current.plain), st.session_state, current.encoding
    if index is None:
        with page_place("figure"):
            show_index_error(current.plain)
            own_corpus.index_controls(current.plain)
        return
    state.sought = query_position(current)
    with page_place("controls").container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        alike = control(
            st.segmented_control, "Alike in", "alike", options=ALIKE, format_func=NAMES.__getitem__, required=True
        )
        control(
            st.selectbox, "Token", "sought", options=range(len(encoding)), width=160,
            format_func=lambda at: f"{at}: {encoding.labels[at]}",
        )  # fmt: skip
        of_state = alike == ALIKE[0]
        depth = depth_slider(len(current.head_mask) + 1) if of_state else None
        heads = () if of_state else _chosen_heads(index)
    if depth is not None and depth not in index.depths:
        names = depth_names(len(current.head_mask) + 1)
        st.info(with_help(f"The index has no states there: it has {', '.join(names[one] for one in index.depths)}."))
        return
    try:
        found, counted = _found(current, index, int(state.sought), depth, heads, alike)
    except Refused as error:
        st.info(with_help(f"{escape_markdown(str(error))}."))
        return
    for said in found.broken:
        st.warning(with_help(escape_markdown(said)))
    left, right = page_place("figure").columns([3, 1], gap="medium")
    with left:
        _list(found, SCORES[alike])
    if counted:  # added tokens are no words
        with right:
            _count(counted)
    write_note(
        f"The {len(found.matches)} nearest of {found.compared:,} tokens, every one compared. Click a line to open its "
        "sentence as the text; beside are the words of the matches and more of them, and how often that is in all."
    )
    take_along("elsewhere", partial(_columns, found))
    own_corpus.remove_corpus_button(current.plain)


def _chosen_heads(index: Index) -> tuple[Head, ...]:
    """The heads that are searched by: the chosen one, with those of its layer that were chosen beside it."""
    state, offered = st.session_state, index.all_heads
    if state.head not in offered:
        set_head(offered[0])
    also = tuple(head for head in state.other_heads if head < index.heads)

    def named(head: Head) -> str:
        others = [f" + H{other}" for other in also] if head == state.head else []
        return f"L{head[0]} H{head[1]}{''.join(others)}"

    chosen = control(
        st.selectbox, "Head", "head", options=offered, format_func=named, width=160,
        on_change=lambda: set_head(state.head),
    )  # fmt: skip
    return chosen, *((chosen[0], other) for other in also if other != chosen[1])


def _list(found: Matches, score: str) -> None:
    """The matches, each in the middle of its sentence; what a narrow screen shows first is the match."""
    st.dataframe(
        [
            {
                "before": _cut(one.text[: one.start], AROUND, ahead=True),
                "match": one.text[one.start : one.end] or one.piece,
                "after": _cut(one.text[one.end :], AROUND, ahead=False),
                score: one.score,
                "where": f"{one.document}:{one.line}",
            }
            for one in found.matches
        ],
        hide_index=True, key="elsewhere_listed", on_select=partial(_open, found), selection_mode="single-row",
        column_config={
            "before": st.column_config.TextColumn(alignment="right", width=200),
            "match": st.column_config.TextColumn(alignment="center", width=90),
            "after": st.column_config.TextColumn(width=250),
            score: st.column_config.NumberColumn(format="%.3f", width=64),
        },
    )  # fmt: skip


def _count(counted: Counted) -> None:
    """What stands among the matches, beside how often it is in all; what the index does not know is not there."""
    for tab, (column, rows) in zip(st.tabs([COUNTED[name] for name in counted]), counted.items(), strict=True):
        with tab:
            st.dataframe(
                [
                    {column: _said(column, one.value), "here": one.share_of_matches, "in all": one.share_of_corpus}
                    for one in rows[:MOST_SHARES]
                ],
                hide_index=True, key=f"elsewhere_{column}",
                column_config={name: st.column_config.NumberColumn(format="percent") for name in ("here", "in all")},
            )  # fmt: skip


def _said(column: str, value: str) -> str:
    """A value as it is shown: an offset in words where it is none that counts."""
    tokens = special_tokens()
    names = {CLS_OFFSET: tokens.substitute_in("[CLS]"), SEP_OFFSET: tokens.substitute_in("[SEP]"), "0": "itself"}
    return names.get(value, value) if column == "offset" else value


def _found(
    current: Selection, index: Index, position: int, depth: int | None, heads: tuple[Head, ...], alike: str
) -> tuple[Matches, Counted]:  # fmt: skip
    """The matches and what stands among them, from the queue; of the text as the model reads it, masks and all."""
    loaded, encoding = current.plain, current.encoding
    compared = "looks" if alike == "looks" else "brings"  # which a search by states does not ask

    def look_up(_: object) -> tuple[Matches, Counted]:
        found = search(index, loaded, encoding, [position], depth=depth, heads=heads, head_similarity=compared, top=TOP)
        counted = {
            name: value_shares(index, found, name, head=heads[0] if name == "offset" else None)
            for name in COUNTED
            if name != "offset" or len(heads) == 1  # an offset is one head's
        }
        return found, {name: rows for name, rows in counted.items() if rows}

    work = Work(
        ("elsewhere", loaded.identity, str(index.folder), encoding, position, depth, heads, alike),
        f"{index.tokens:,} tokens are compared with one",
        look_up,
        A_MILLION * index.tokens / 1e6,
    )
    return wait_for(work)


def _open(found: Matches) -> None:
    """Take the sentence of the line that was clicked as the text."""
    if rows := st.session_state["elsewhere_listed"].selection.rows:
        chosen = found.matches[rows[0]]
        open_example_text(Example(chosen.text))
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
    "each line is a token of the corpus in its sentence, the one most like the chosen token first: by the direction of "
    "its state at this depth, by that of what the head brings to it, or by the offsets at which the head looks (and "
    "[CLS], [SEP]), as the share of attention that goes to the same. Beside it what the matches are, and the share of "
    "the same among all tokens.",
    "the nearest is not always near: look at the score, and at how fast it falls. What is everywhere is among the "
    "matches by chance too, and a head that looks at [SEP] nearly always finds nearly everything.",
)
