"""Find a head: the heads that attend from one token to another, and the head that pages open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import streamlit as st

from bert_core.analysis.heads import find_heads, most_relevant_head
from bert_core.records import HeadSweep
from bert_core.studies.index_reader import Index
from bert_core.studies.search import PairCounts, count_pairs, pair_offset
from bert_core.tokenizer import Encoding
from viz_app.components.attention_view import ViewChoice
from viz_app.shell.change import sweep_work
from viz_app.shell.heads import set_head
from viz_app.shell.markdown import quoted
from viz_app.shell.params import Head, Param, parse_pair, write_pair
from viz_app.shell.selection import Selection
from viz_app.shell.view import write_heading, write_note
from viz_app.shell.work import cached, confirm, wait_for, work
from viz_app.texts import page_texts

TEXTS = page_texts("find")
Edge = tuple[int, int]  # positions of a query and a key
MAX_RANKED_TOKENS = 64  # of a text for which the head that opens is chosen by its effect, which needs gradients
LISTED_HEADS = 6
QUICK = 10.0  # estimated seconds of the ablation of each head up to which it needs no button; short texts take less
TABLE = "edge_heads"  # key of the list
# Of the columns with a help text.
FORMATS = {"weight": "%.2f", "percentile": "%.0f", "effect": "%+.2f", "corpus": None, "offset": "%.0f%%"}

edge: Param[Edge | None] = Param("edge", None, parse_pair, write_pair, text_name="text", step=True)
PARAMS: tuple[Param[Any], ...] = (edge,)


@cached
def opening_head(selection: Selection) -> Head | None:
    """Return the head that a page opens: the largest product of attention from the mask to another word and effect.

    All heads are on for it. Without a masked word, all words count as queries. None for a text without two words.
    Of a long text, the range of tokens that is drawn counts.
    """
    encoding, positions = selection.encoding, selection.positions
    is_word = ~np.array(encoding.special)[positions.start : positions.stop]
    masks = tuple(position - positions.start for position in encoding.mask_positions if position in positions)
    queries = masks or tuple(np.flatnonzero(is_word).tolist())
    is_explained = selection.target is not None and len(encoding) <= MAX_RANKED_TOKENS
    run = selection.run(gradients=is_explained, all_heads_on=True)
    return most_relevant_head(run.attention, queries, is_word, run.gate_gradient if is_explained else None)


def current_edge(selection: Selection, head: Head) -> Edge:
    """Return the selected query and key, or else the mask and the other word to which a head attends most from it.

    Without a mask, all words count as queries. Of a long text, the range of tokens that is drawn counts.
    """
    encoding, selected, positions = selection.encoding, edge.value, selection.positions
    if selected is not None and all(position in positions for position in selected):
        return selected
    words = [position for position in positions if not encoding.special[position]] or [positions.start]
    queries = [position for position in encoding.mask_positions if position in positions][:1] or words
    rows = np.ix_(np.subtract(queries, positions.start), np.subtract(words, positions.start))
    weights = np.nan_to_num(selection.run().attention[head][rows])
    weights[np.equal.outer(queries, words)] = -1  # another word
    query, key = np.unravel_index(weights.argmax(), weights.shape)
    return queries[query], words[key]


def select_edge(selection: Selection, current: Edge) -> None:
    """Draw the lists in which the query and the key are selected."""
    positions = selection.positions
    tokens = selection.encoding.labels[positions.start : positions.stop]
    labels = {
        place: f"{label} ({place})" if tokens.count(label) > 1 else label
        for place, label in zip(positions, tokens, strict=True)
    }
    for end, (place, name) in enumerate(zip(st.columns(2, gap="small"), (TEXTS["from"], TEXTS["to"]), strict=True)):
        # A list of its own for each edge and each text: the label of a list that the browser still shows after a click
        # on a token must not undo the click, and must be an option.
        key = f"edge_{end}_{write_pair(current)}_{crc32(repr([*labels.values()]).encode())}"
        options: dict[str, Any] = {"index": current[end] - positions.start, "format_func": labels.__getitem__}
        place.selectbox(name, positions, key=key, on_change=_take_list, args=(end, key, current), **options)


def _take_list(end: int, key: str, current: Edge) -> None:
    """Set the query or the key, end 0 or 1 of the edge, to the selected token of a list."""
    position = int(st.session_state[key])
    if position != current[end]:  # after an interrupted run, the browser reports lists that nobody changed
        edge.set((current[0], position) if end else (position, current[1]))


def take_tokens(choice: ViewChoice, current: Edge | None) -> None:
    """Make two tokens that were clicked one after the other the edge.

    choice: the new selection in a large view. current: the edge before, for a view that always shows one; otherwise
    None, and the token that is selected in the other column counts.
    """
    side, positions = st.session_state.tokens
    clicked_tokens = set(choice.positions)
    if current is not None:
        query, key = current
        clicked_tokens -= {query} if choice.side == "query" else set()  # it was selected before
        before = key if choice.side == "query" else query
    elif side != choice.side and len(positions) == 1:
        before = positions[0]
    else:
        return
    if len(clicked_tokens) == 1:
        (clicked,) = clicked_tokens
        edge.set((clicked, before) if choice.side == "query" else (before, clicked))


def edge_weights(selection: Selection, current: Edge) -> np.ndarray:
    """Return the attention weight of each head from a query to a key, (layer, head); NaN for a pruned head."""
    return edge_map(selection, selection.run().attention, current)


def edge_map(selection: Selection, maps: np.ndarray, current: Edge) -> np.ndarray:
    """Return the values (...) of the maps (..., query, key) of a run of the selection from a query to a key."""
    query, key = (position - selection.positions.start for position in current)
    values: np.ndarray = maps[..., query, key]
    return values


def possible_layers(selection: Selection, current: Edge) -> np.ndarray | None:
    """Return in which layers a query can attend to a key, (layer,) boolean; None: in all of them."""
    distance = abs(current[0] - current[1])
    possible = np.array([window is None or distance <= window for window in selection.run().windows])
    return None if possible.all() else possible


def ablate_each_head(selection: Selection) -> HeadSweep | None:
    """Return the record of the text without each head in turn, in the model without patches.

    None without a target, and until the visitor has pressed the button if it takes long.
    """
    if selection.target is None:
        return None
    work = sweep_work(selection.with_model(selection.without_patches), "zero")
    ablations: HeadSweep | None = wait_for(work) if work.seconds <= QUICK else confirm(TEXTS["measure"], work)
    return ablations


def draw_list(selection: Selection, current: Edge, index: Index | None, ablations: HeadSweep | None) -> None:
    """Draw the heads that attend most from a query to a key, with the effect of each on the target.

    ablations: as `ablate_each_head` returns them; None: without the effects. index: of a corpus, for how often each
        head does this in it; None: without these columns.
    """
    query, label = (quoted(selection.encoding.labels[position]) for position in current)
    write_heading(TEXTS["title"].format(query=query, key=label))
    heads = find_heads(selection.run(), *current)[:LISTED_HEADS]
    columns: dict[str, list[Any]] = {
        TEXTS["head"]: [f"L{row.layer} H{row.head}" for row in heads],
        TEXTS["weight"]: [row.weight for row in heads],
        TEXTS["percentile"]: [row.percentile for row in heads],
    }
    if ablations is not None and (effect := ablations.effect) is not None:
        columns[TEXTS["effect"]] = [float(effect[row.layer, row.head]) for row in heads]
    pairs = [(row.layer, row.head) for row in heads]
    if index is not None:
        columns |= _corpus_columns(wait_for(_count_pairs(index, selection.original, current, tuple(pairs))))
    st.dataframe(
        columns,
        hide_index=True,
        key=TABLE,
        on_select=partial(_open_row, current, pairs),
        selection_mode="single-row",
        column_config={TEXTS[name]: _column(form, TEXTS[f"help.{name}"]) for name, form in FORMATS.items()},
    )
    note = TEXTS["reading"]
    if possible_layers(selection, current) is not None:
        note += " " + TEXTS["left_out"].format(query=query, key=label)
    write_note(note)


def _column(form: str | None, help_text: str) -> Any:
    """Return the configuration of a column of numbers, or of texts without a format."""
    columns = st.column_config
    return columns.TextColumn(help=help_text) if form is None else columns.NumberColumn(format=form, help=help_text)


@work("Counting the pair in the corpus")
def _count_pairs(index: Index, original: Encoding, current: Edge, heads: tuple[Head, ...]) -> list[PairCounts | None]:
    query, key = (original.tokens[position] for position in current)
    return count_pairs(index, heads, query, key, pair_offset(original, *current))


def _corpus_columns(counts: Sequence[PairCounts | None]) -> dict[str, list[Any]]:
    """Return how often heads do the same in a corpus: with the same two tokens, and at the same distance."""
    return {
        TEXTS["corpus"]: [None if row is None else f"{row.strongest} / {row.pairs}" for row in counts],
        TEXTS["offset"]: [None if row is None else 100 * row.same_offset / max(row.tokens, 1) for row in counts],
    }


def _open_row(current: Edge, heads: Sequence[Head]) -> None:
    """Open the head of the row that was clicked, and keep the tokens that are compared."""
    if rows := st.session_state[TABLE].selection.rows:
        edge.set(current)
        set_head(heads[rows[0]])
