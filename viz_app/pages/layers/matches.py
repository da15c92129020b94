"""The part Where else: the tokens of a corpus that are most similar to one of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.index_reader import Index
from bert_core.studies.search import CLS_OFFSET, SEP_OFFSET, Match, Matches, ValueShare, search, value_shares
from bert_core.tokenizer import Encoding
from viz_app.figures.lens import depth_names
from viz_app.pages.layers import query_head, query_position, similarity
from viz_app.pages.layers.shared import add_numbers, select_depth
from viz_app.shell import corpus, own_corpus
from viz_app.shell.examples import Example
from viz_app.shell.heads import set_head
from viz_app.shell.markdown import escape_markdown, special_tokens, with_help
from viz_app.shell.params import Head
from viz_app.shell.selection import open_example_text
from viz_app.shell.view import View, write_note
from viz_app.shell.work import wait_for, work

TOP = 50
SECONDS_PER_MILLION_TOKENS = 1.0  # on a busy server
CONTEXT_CHARACTERS = 36  # on either side of a match
MAX_SHARES = 8
TABLE = "elsewhere_listed"  # key of the table of matches
COUNTED_COLUMNS = {"word": "Words", "offset": "Offsets", "upos": "Parts of speech", "relation": "Relations"}
READING = (
    "**How to read this:** each line is a token of the corpus in its sentence, the one most like the chosen token "
    "first: by the direction of its state at this depth, by that of what the head brings to it, or by the offsets at "
    "which the head looks (and [CLS], [SEP]), as the share of attention that goes to the same. Beside it what the "
    "matches are, and the share of the same among all tokens. **How it can mislead:** the nearest is not always near: "
    "look at the score, and at how fast it falls. What is everywhere is among the matches by chance too, and a head "
    "that looks at [SEP] nearly always finds nearly everything."
)
Shares = dict[str, list[ValueShare]]  # by the name of a column


def draw(page: View) -> None:
    """Draw the matches of the selected token in their sentences, and what is frequent among them."""
    selection, encoding = page.selection, page.selection.encoding
    index = corpus.find_index(selection.plain)
    if index is None:
        with page.figure():
            corpus.show_index_error(selection.plain)
            own_corpus.index_controls(selection.plain)
        return
    query_position.set(corpus.query_position(selection))
    with page.controls():
        by_state = similarity() == "state"
        position = query_position(
            options=range(len(encoding)), format_func=lambda number: f"{number}: {encoding.labels[number]}"
        )
        depth = select_depth(len(selection.head_mask) + 1) if by_state else None
        heads = () if by_state else _select_heads(index)
    if depth is not None and depth not in index.depths:
        names = depth_names(len(selection.head_mask) + 1)
        stored = ", ".join(names[number] for number in index.depths)
        st.info(with_help(f"The index has no states there: it has {stored}."))
        return
    assert position is not None  # one of the options
    try:
        matches, shares = wait_for(
            _search_index(selection.plain, encoding, index, position, depth, heads, similarity.value)
        )
    except Refused as error:
        st.info(with_help(f"{escape_markdown(str(error))}."))
        return
    for sentence in matches.broken:
        st.warning(with_help(escape_markdown(sentence)))
    left, right = page.figure().columns([3, 1], gap="medium")
    with left:
        _draw_matches(matches, "alike" if similarity.value == "looks" else "cosine")
    if shares:  # special tokens are not words
        with right:
            _draw_shares(shares)
    write_note(
        f"The {len(matches.matches)} nearest of {matches.compared:,} tokens, every one compared. Click a line to open "
        "its sentence as the text; beside are the words of the matches and more of them, and how often that is in all."
    )
    add_numbers("elsewhere", partial(_columns, matches))
    own_corpus.remove_corpus_button(selection.plain)


def _select_heads(index: Index) -> tuple[Head, ...]:
    """Draw the control of the head and return it with those of its layer that are selected in addition."""
    if query_head.value not in index.all_heads:
        set_head(index.all_heads[0])
    selected = query_head.value
    additional = [head for head in st.session_state.other_heads if head < index.heads]

    def head_label(head: Head) -> str:
        suffix = "".join(f" + H{number}" for number in additional) if head == selected else ""
        return f"L{head[0]} H{head[1]}{suffix}"

    layer, number = query_head(options=index.all_heads, format_func=head_label, on_change=_take_head)
    return (layer, number), *((layer, head) for head in additional if head != number)


def _take_head() -> None:
    set_head(query_head.value)


@work(
    "{index.tokens:,} tokens are compared with one",
    seconds=lambda model, encoding, index, *_: SECONDS_PER_MILLION_TOKENS * index.tokens / 1e6,
)
def _search_index(
    model: LoadedModel,
    encoding: Encoding,
    index: Index,
    position: int,
    depth: int | None,
    heads: tuple[Head, ...],
    similarity: str,
) -> tuple[Matches, Shares]:
    """Search for tokens similar to that at a position, with its masks, and return what is frequent among them."""
    head_similarity = "looks" if similarity == "looks" else "brings"  # irrelevant to a search by states
    matches = search(
        index, model, encoding, [position], depth=depth, heads=heads, head_similarity=head_similarity, top=TOP
    )
    # An offset is relative to where one head looks.
    columns = [name for name in COUNTED_COLUMNS if name != "offset" or len(heads) == 1]
    shares = {name: value_shares(index, matches, name, head=heads[0] if name == "offset" else None) for name in columns}
    return matches, {name: rows for name, rows in shares.items() if rows}


def _draw_matches(matches: Matches, score: str) -> None:
    """Draw the matches as a table, each in the middle of its sentence. score: the title of the column of scores."""
    st.dataframe(
        [_row(match, score) for match in matches.matches],
        hide_index=True,
        key=TABLE,
        on_select=partial(_open_sentence, matches),
        selection_mode="single-row",
        column_config={
            "before": st.column_config.TextColumn(alignment="right", width=200),
            "match": st.column_config.TextColumn(alignment="center", width=90),
            "after": st.column_config.TextColumn(width=250),
            score: st.column_config.NumberColumn(format="%.3f", width=64),
        },
    )


def _row(match: Match, score: str) -> dict[str, object]:
    return {
        "before": _last_characters(match.text[: match.start]),
        "match": match.text[match.start : match.end] or match.piece,
        "after": _first_characters(match.text[match.end :]),
        score: match.score,
        "where": f"{match.document}:{match.line}",
    }


def _last_characters(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= CONTEXT_CHARACTERS else f"…{text[1 - CONTEXT_CHARACTERS :]}"


def _first_characters(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= CONTEXT_CHARACTERS else f"{text[: CONTEXT_CHARACTERS - 1]}…"


def _draw_shares(shares: Mapping[str, Sequence[ValueShare]]) -> None:
    """Draw the share of each value among the matches beside its share in the corpus, a tab for each column."""
    percent = {name: st.column_config.NumberColumn(format="percent") for name in ("here", "in all")}
    tabs = st.tabs([COUNTED_COLUMNS[name] for name in shares])
    for tab, (name, values) in zip(tabs, shares.items(), strict=True):
        rows = [
            {name: _value_label(name, value.value), "here": value.share_of_matches, "in all": value.share_of_corpus}
            for value in values[:MAX_SHARES]
        ]
        tab.dataframe(rows, hide_index=True, key=f"elsewhere_{name}", column_config=percent)


def _value_label(column: str, value: str) -> str:
    """Return a value as text; the offsets of special tokens and of the token itself in words."""
    tokens = special_tokens()
    names = {CLS_OFFSET: tokens.substitute_in("[CLS]"), SEP_OFFSET: tokens.substitute_in("[SEP]"), "0": "itself"}
    return names.get(value, value) if column == "offset" else value


def _open_sentence(matches: Matches) -> None:
    """Make the sentence of the clicked row the text."""
    if rows := st.session_state[TABLE].selection.rows:
        match = matches.matches[rows[0]]
        open_example_text(Example(match.text))
        query_position.set(match.position)


def _columns(matches: Matches) -> dict[str, Sequence[object]]:
    """Return every match as the columns of a table."""
    names = ("score", "document", "line", "sentence", "position", "piece", "word", "start", "end", "text")
    return {name: [getattr(match, name) for match in matches.matches] for name in names}
