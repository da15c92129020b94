"""Draws the page Corpus search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from zlib import crc32

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.index_reader import Index
from bert_core.studies.search import CLS_OFFSET, SEP_OFFSET, Match, Matches, ValueShare, search, value_shares
from bert_core.tokenizer import Encoding
from viz_app.figures.lens import depth_names, depth_phrase
from viz_app.figures.style import current_look, two_digits
from viz_app.pages.search import EXAMPLE, TEXTS, query_head, query_position, query_token, similarity
from viz_app.shell import corpus, own_corpus
from viz_app.shell.depth import select_depth
from viz_app.shell.downloads import add_numbers
from viz_app.shell.examples import Example
from viz_app.shell.heads import set_head
from viz_app.shell.markdown import escape_markdown, quoted, quoted_without_terms, special_tokens, with_help
from viz_app.shell.params import Head
from viz_app.shell.selection import is_current_example, open_example_text
from viz_app.shell.view import View, write_note, write_result
from viz_app.shell.work import wait_for, work

TOP = 50
SECONDS_PER_MILLION_TOKENS = 1.0  # on a busy server
CONTEXT_CHARACTERS = 36  # on either side of a match
MAX_SHARES = 8
TABLE = "matches"  # key of the table of matches, before the number of its text
COUNTED_COLUMNS = TEXTS.options("shares")
HEIGHT = 500  # pixels, of the table of matches
Shares = dict[str, list[ValueShare]]  # by the name of a column


def draw(page: View) -> None:
    """Draw the matches of the selected token in their sentences, and what is frequent among them."""
    selection, plain = page.selection, page.selection.plain
    encoding = corpus.query_encoding(selection)
    page.read(TEXTS["reading"], TEXTS["misleads"])
    is_own = corpus.server_index(plain) is None
    index = corpus.find_index(plain)
    query_token.set(corpus.query_position(selection))
    with page.controls(gap="small"):
        by_state = similarity() == "state"
        position = query_token(
            options=range(len(encoding)),
            format_func=lambda number: f"{number}: {encoding.labels[number]}",
            on_change=_take_token,
        )
        depth = select_depth(len(selection.head_mask) + 1) if by_state else None
        heads = () if by_state or index is None else _select_heads(index)
        if is_own:
            own_corpus.corpus_control(plain)
    if index is None:
        with page.figure():
            corpus.show_index_error(plain)
            own_corpus.index_controls(plain)
        return
    with page.figure():
        if depth is not None and depth not in index.depths:
            names = depth_names(len(selection.head_mask) + 1)
            stored = ", ".join(names[number] for number in index.depths)
            st.info(with_help(f"The index has no hidden states at this depth. It has: {stored}."))
            return
        try:
            matches, shares = wait_for(_search_index(plain, encoding, index, position, depth, heads, similarity.value))
        except Refused as error:
            st.info(with_help(f"{escape_markdown(str(error))}."))
            return
        for sentence in matches.broken:
            st.warning(with_help(escape_markdown(sentence)))
        score = "overlap" if similarity.value == "looks" else "cosine"
        is_example = is_current_example(EXAMPLE) and (depth, position) == (index.depths[-1], *encoding.mask_positions)
        lines = (_describe_query(depth, heads), _describe_scores(matches, shares, score))
        heading = _describe_best(matches, encoding.labels[position], score)
        write_result(heading, " ".join((*lines, EXAMPLE.remark if is_example else "")))
        left, right = st.columns([3, 1], gap="medium")
        with left:
            _draw_matches(matches, score, encoding.text)
        with right:
            if shares:  # special tokens are not words
                _draw_shares(shares)
            write_note(TEXTS["matches_note"])
            if selection.encoding.pair is not None:
                write_note(TEXTS["pair_note"])
    add_numbers("matches", partial(_columns, matches))


def _describe_best(matches: Matches, token: str, score: str) -> str:
    """Return a heading with the best match. score: the name of the scores."""
    if not matches.matches:
        return f"No token can be compared with {quoted(token)}"
    best = matches.matches[0]
    return f"Most similar to {quoted(token)}: {quoted(_matched(best))} ({score} {two_digits(best.score)})"


def _describe_query(depth: int | None, heads: Sequence[Head]) -> str:
    """Return what of the token is compared, as a sentence."""
    if depth is not None:
        return f"Compared by hidden state {depth_phrase(depth)}."
    names = ", ".join(f"L{layer} H{head}" for layer, head in heads)
    return f"Compared by the {'attention pattern' if similarity.value == 'looks' else 'output'} of {names}."


def _describe_scores(matches: Matches, shares: Shares, score: str) -> str:
    """Describe how fast the scores fall, and the most frequent word among the matches. score: their name."""
    count = len(matches.matches)
    if not count:
        return ""
    last = two_digits(matches.matches[-1].score)
    sentence = f"Below: the {count} most similar of {matches.compared:,} tokens; the last has {score} {last}."
    if not (words := shares.get("word")):
        return sentence
    first = max(words, key=lambda value: value.share_of_matches)
    return (
        f"{sentence} {quoted_without_terms(first.value)} is {first.share_of_matches:.0%} of the matches and "
        f"{first.share_of_corpus:.1%} of the corpus."
    )


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


def _take_token() -> None:
    query_position.set(query_token.value)


def _take_head() -> None:
    set_head(query_head.value)


@work(
    "Comparison with {index.tokens:,} tokens",
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


def _draw_matches(matches: Matches, score: str, text: str) -> None:
    """Draw the matches of a text as a table, each in the middle of its sentence. score: title of its column."""
    key = f"{TABLE}_{crc32(text.encode())}"  # a selected row does not remain selected in the table of its sentence
    text_column, number = st.column_config.TextColumn, st.column_config.NumberColumn
    st.dataframe(
        [_row(match, score) for match in matches.matches],
        hide_index=True,
        key=key,
        height="stretch" if current_look().lecture else HEIGHT,
        on_select=partial(_open_sentence, matches, key),
        selection_mode="single-row",
        column_config={
            score: number(format="%.2f", width=64),
            "before": text_column(alignment="right", width=252),
            "match": text_column(alignment="center", width=90),
            "after": text_column(width=252),
        },
    )


def _row(match: Match, score: str) -> dict[str, object]:
    return {
        score: match.score,
        "before": _last_characters(match.text[: match.start]),
        "match": _matched(match),
        "after": _first_characters(match.text[match.end :]),
        "source": f"{match.document}:{match.line}",
    }


def _matched(match: Match) -> str:
    return match.text[match.start : match.end] or match.piece


def _last_characters(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= CONTEXT_CHARACTERS else f"…{text[1 - CONTEXT_CHARACTERS :]}"


def _first_characters(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= CONTEXT_CHARACTERS else f"{text[: CONTEXT_CHARACTERS - 1]}…"


def _draw_shares(shares: Mapping[str, Sequence[ValueShare]]) -> None:
    """Draw the share of each value among the matches beside its share in the corpus, a tab for each column."""
    percent = {name: st.column_config.NumberColumn(format="percent") for name in ("matches", "corpus")}
    tabs = st.tabs([COUNTED_COLUMNS[name] for name in shares])
    for tab, (name, values) in zip(tabs, shares.items(), strict=True):
        rows = [
            {name: _value_label(name, value.value), "matches": value.share_of_matches, "corpus": value.share_of_corpus}
            for value in values[:MAX_SHARES]
        ]
        tab.dataframe(rows, hide_index=True, key=f"shares_{name}", column_config=percent)


def _value_label(column: str, value: str) -> str:
    """Return a value as text; the offsets of special tokens and of the token itself in words."""
    tokens = special_tokens()
    names = {CLS_OFFSET: tokens.substitute_in("[CLS]"), SEP_OFFSET: tokens.substitute_in("[SEP]"), "0": "itself"}
    return names.get(value, value) if column == "offset" else value


def _open_sentence(matches: Matches, key: str) -> None:
    """Make the sentence of the clicked row the text. key: of the table."""
    if rows := st.session_state[key].selection.rows:
        match = matches.matches[rows[0]]
        open_example_text(Example(match.text))
        query_position.set(match.position)


def _columns(matches: Matches) -> dict[str, Sequence[object]]:
    """Return every match as the columns of a table."""
    names = ("score", "document", "line", "sentence", "position", "piece", "word", "start", "end", "text")
    return {name: [getattr(match, name) for match in matches.matches] for name in names}
