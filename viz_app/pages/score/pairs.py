"""What the page Score compares: two sentences, or a table of pairs; and what it says of them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.scoring import PairColumns, mostly_unknown
from bert_core.loading import LoadedModel
from bert_core.records import PairRow, PairScore
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes
from bert_core.run.scoring import score_pairs
from bert_core.studies.pairs import PAIR_COLUMNS, pair_values, pairs_csv, read_pairs
from bert_core.tokenizer import Encoding
from viz_app.pages.score import EXAMPLE, VARIANTS
from viz_app.shell.address import end_run
from viz_app.shell.controls import control, example_button, file_control, set_choice
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import ModelReference
from viz_app.shell.view import page_place
from viz_app.shell.work import (
    PolledResult,
    ResultState,
    Work,
    earlier_result,
    earlier_results,
    estimate_seconds,
    is_confirmed,
    poll,
    remember_works,
    wait_for,
)

LARGEST_FILE = 5  # megabytes of an upload
EXAMPLE_PAIRS = """\
The keys to the cabinet are on the table. | The keys to the cabinet is on the table.
The author laughed. | The author laugh.
She drank a cup of tea. | She drank a cup of table.
"""
VARIANT_NAMES = {"original": "One piece at a time", "within word": "The rest of its word too"}


def scored_pair(loaded: LoadedModel, gates: np.ndarray, first: str, second: str) -> tuple[dict[str, PairScore], bool]:
    """Two sentences in every variant, from the queue; long ones only when asked for. gates: the head mask.

    Where no word has several pieces the variants are one, and the original stands alone.
    Until they are there, the last pair's, and True; stops the page where there is none.
    Raises Refused for a sentence that cannot be scored.
    """
    encodings = _encoded(loaded, first, second)
    works = _works(loaded, gates, first, second)
    copies, seconds = len(works) * sum(map(len, encodings)), sum(work.seconds for work in works)
    key = ("pair", loaded.weights_key, gates.tobytes(), first, second)
    if not is_confirmed("score", key, f"Score both sentences ({copies:,} masked copies)", seconds):
        return _last_pair()
    found: list[list[PairScore]] = []
    for work in works:
        scores = poll(work, request_slot="score").value
        if scores is None:
            return _last_pair()
        (score,) = scores
        if score.problem is not None:
            raise Refused(score.problem)
        found.append(scores)
    remember_works("pair", *works)
    return _by_variant(found), False


def pair_csv(model: ModelReference, gates: np.ndarray, first: str, second: str, variant: str) -> str:
    """Two sentences in one variant, or in the only one that there is, as a file."""
    works = _works(model.get(), gates, first, second)
    scores = wait_for(dict(zip(VARIANTS, works, strict=False)).get(variant, works[0]))
    return pairs_csv(scores)


def _encoded(loaded: LoadedModel, first: str, second: str) -> list[Encoding]:
    most = loaded.config.max_position_embeddings
    return [loaded.tokenizer.encode(sentence, max_length=most) for sentence in (first, second)]


def _works(loaded: LoadedModel, gates: np.ndarray, first: str, second: str) -> list[Work[list[PairScore]]]:
    """One for each variant, in their order."""
    encodings = _encoded(loaded, first, second)
    variants = VARIANTS if any(e.typed_count > e.word_count for e in encodings) else VARIANTS[:1]
    seconds = sum(estimate_seconds(loaded, len(encoding), len(encoding)) for encoding in encodings)
    return [_work(loaded, gates, [PairRow(1, first, second)], variant, seconds) for variant in variants]


def _last_pair() -> tuple[dict[str, PairScore], bool]:
    before: Sequence[list[PairScore]] = earlier_results("pair")
    if not before:
        end_run()
    return _by_variant(before), True


def _by_variant(found: Sequence[list[PairScore]]) -> dict[str, PairScore]:
    """The only pair of each table; the variants come in their order, where the pair has more than one."""
    return {variant: score for variant, (score,) in zip(VARIANTS, found, strict=False)}


def scored_table(
    loaded: LoadedModel, gates: np.ndarray, rows: Sequence[PairRow], variant: str
) -> tuple[list[PairScore], bool] | None:
    """All pairs of a table, from the queue, when they were asked for. gates: the head mask.

    Until they are there, those of the last table, and True; None where there is none.
    """
    good = [row for row in rows if row.problem is None]
    key = ("table", loaded.weights_key, gates.tobytes(), variant, _digest(rows))
    found: PolledResult[list[PairScore]] = earlier_result("table of pairs")
    if good and is_confirmed("score", key, f"Score {len(good):,} {'pair' if len(good) == 1 else 'pairs'}", None):
        found = poll(_table_work(loaded, gates, rows, variant), slot="table of pairs", request_slot="score")
    return None if found.value is None else (found.value, found.state is ResultState.STALE)


def table_csv(model: ModelReference, gates: np.ndarray, rows: Sequence[PairRow], variant: str) -> str:
    """All pairs of a table with their scores, as a file."""
    scores = wait_for(_table_work(model.get(), gates, rows, variant))
    return pairs_csv(scores)


def _table_work(loaded: LoadedModel, gates: np.ndarray, rows: Sequence[PairRow], variant: str) -> Work[list[PairScore]]:
    good = [row for row in rows if row.problem is None]
    pieces = sum(len(row.first) + len(row.second) for row in good) / 4  # about four letters to a piece
    seconds = estimate_seconds(loaded, round(pieces / max(len(good), 1) / 2), pieces)
    return _work(loaded, gates, rows, variant, seconds)


def table_of_pairs() -> list[PairRow] | None:
    """The pairs that were pasted or uploaded; None where there are none yet. Raises Refused as `read_pairs`."""
    left, right = page_place("controls").columns([3, 2], gap="medium")
    pasted = control(
        left.text_area, "Pairs, one per line: two sentences separated by a tab, |, a comma or a semicolon",
        "pairs_pasted", first="", placeholder=EXAMPLE_PAIRS, height=150,
    )  # fmt: skip
    upload = file_control(
        right, "or a CSV file in UTF-8", "pairs_upload", types=["csv", "tsv", "txt"], megabytes=LARGEST_FILE
    )
    given: str | bytes | None = pasted if upload is None else upload.data
    return read_pairs(given) if given else None


def say_no_pairs() -> None:
    """Say that there are no pairs yet, and offer some."""
    example_button(
        "Paste some pairs, or upload a file.", "Try three example pairs", set_choice, "pairs_pasted", EXAMPLE_PAIRS
    )


def say_sentence_missing(first: str, second: str) -> None:
    """Say which of two sentences is empty, and offer a pair."""
    which = (
        "are no sentences"
        if not (first.strip() or second.strip())
        else ("is no first sentence" if not first.strip() else "is no second sentence")
    )
    example_button(f"There {which}: type at least one word.", "Take an example", _take_pair)


def _take_pair() -> None:
    st.session_state.one, st.session_state.two = EXAMPLE.text, EXAMPLE.pair


def _work(
    loaded: LoadedModel, gates: np.ndarray, rows: Sequence[PairRow], variant: str, seconds: float
) -> Work[list[PairScore]]:
    return Work(
        ("pairs", loaded.weights_key, gates.tobytes(), variant, _digest(rows)),
        f"{shown_name(loaded.name)} scores {len(rows):,} {'pair' if len(rows) == 1 else 'pairs'}",
        lambda report: score_pairs(loaded, rows, variant=variant, head_mask=gates, report=report),
        seconds,
        memory=max((forward_bytes(loaded, tokens, 2 * tokens) for tokens in map(_pieces, rows)), default=0),
    )


def _pieces(row: PairRow) -> int:
    """About how many pieces the longer sentence of a pair has: one for four letters."""
    return max(len(row.first), len(row.second)) // 4 + 2


def _digest(rows: Sequence[PairRow]) -> str:
    return sha256(repr(list(rows)).encode()).hexdigest()


# ---------------------------------------------------------------------------- words about it


def verdict(score: PairScore, columns: PairColumns) -> str:
    """Which sentence is likelier, by how much, and where that comes from."""
    gap = score.difference
    if score.preferred == "neither":
        return "#### It finds both sentences equally likely"
    name, number, sign = ("first", 1, 1) if gap > 0 else ("second", 2, -1)
    parts = sign * columns.differing_contribution, sign * columns.shared_contribution
    part, rest = (f"**{nats:+.1f}**".replace("-", "−") for nats in parts)
    differing = "differing word" if (~columns.equal).sum() == 1 else "differing words"
    return (
        f"#### It finds the {name} sentence likelier, by {abs(gap):.1f} nats\n\n"
        f"{differing.capitalize()}: {part} for sentence {number}; shared words: {rest}."
    )


def figures(scores: dict[str, PairScore]) -> dict[str, list[Any]]:
    """Totals and perplexities of a pair by variant, as the columns of a table."""
    table: dict[str, list[Any]] = {
        name: []
        for name in ("variant", "first, nats", "second, nats", "first − second", "perplexity 1", "perplexity 2")
    }
    for variant, score in scores.items():
        first, second = score.scores
        name = VARIANT_NAMES[variant] if len(scores) > 1 else "Either: no word has several pieces"
        row = (
            name, first.total, second.total, score.difference, first.perplexity, second.perplexity
        )  # fmt: skip
        for column, value in zip(table.values(), row, strict=True):
            column.append(value)
    return table


def disagreement(scores: dict[str, PairScore]) -> str | None:
    """A sentence, where the two ways of hiding pieces end with different verdicts."""
    believed = [score.preferred for score in scores.values()]
    if len(set(believed)) == 1:
        return None
    return (
        f"The two ways of hiding disagree: one piece at a time favours the {believed[0]} sentence; hiding the rest of "
        f"the word too favours the {believed[1]}. The end of a rare word gives its beginning away."
    )


def table_columns(scores: Sequence[PairScore]) -> dict[str, list[Any]]:
    """The scored table by column, as it is shown: what it comes to stands first."""
    rows = [pair_values(score) for score in scores]
    columns = {name: list(column) for name, column in zip(PAIR_COLUMNS, zip(*rows, strict=True), strict=True)}
    first = ("row", "first", "second", "difference", "believed", "problem")
    return {name: columns[name] for name in dict.fromkeys((*first, *columns))}


def summary(scores: Sequence[PairScore]) -> str:
    """How many pairs were scored, and how often each side won."""
    scored = [score for score in scores if score.preferred is not None]
    first = sum(score.preferred == "first" for score in scored)
    left_out = len(scores) - len(scored)
    share = f" ({first / len(scored):.0%})" if scored else ""
    more = f" {left_out:,} could not be scored: see the column “problem”." if left_out else ""
    return f"The first sentence is likelier in **{first:,} of {len(scored):,}** pairs{share}.{more}"


def unknown(scores: Sequence[PairScore]) -> str | None:
    """What makes a score say little: how many sentences are mostly [UNK]; None where none is."""
    count = mostly_unknown(scores)
    if not count:
        return None
    which = "One sentence is" if count == 1 else f"{count:,} sentences are"
    return (
        f"{which} mostly [UNK]: the vocabulary does not know these characters, so any others would get the same score."
    )


def labels(columns: PairColumns, score: PairScore) -> tuple[list[str | None], list[str | None]]:
    """The tokens of both sentences, column by column."""
    first, second = (sentence.encoding.tokens for sentence in score.scores)
    return (
        [None if column.first is None else first[column.first] for column in columns.columns],
        [None if column.second is None else second[column.second] for column in columns.columns],
    )


def problems(rows: Sequence[PairRow]) -> str | None:
    """What is wrong with the rows of a table, in one sentence; None where nothing is."""
    bad = [row for row in rows if row.problem is not None]
    if not bad:
        return None
    more = {1: "", 2: " (and 1 more line has a problem)"}.get(
        len(bad), f" (and {len(bad) - 1} more lines have problems)"
    )
    return escape_markdown(f"Line {bad[0].row} has {bad[0].problem}{more}. They stay in the table without a score.")
