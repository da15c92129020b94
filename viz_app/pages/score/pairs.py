"""Two sentences, or a table of pairs of sentences, with the score of each sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import streamlit as st

from bert_core.analysis.scoring import PairColumns, mostly_unknown, pair_columns
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.records import PairRow, PairScore
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes
from bert_core.run.scoring import score_pairs
from bert_core.studies.pairs import PAIR_COLUMNS, pair_values, pairs_csv, read_pairs
from bert_core.tokenizer import Encoding
from viz_app.figures.scores import pair_bars
from viz_app.pages.score import EXAMPLE_PAIRS, TEXTS, VARIANT_NAMES, pasted_pairs, variant
from viz_app.shell.controls import example_button, file_control, set_choice
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.models import ModelReference
from viz_app.shell.results import Results, confirmed_results
from viz_app.shell.sentence_pair import EXAMPLE, select_sentences
from viz_app.shell.view import View, add_file, chart
from viz_app.shell.work import Work, estimate_seconds, wait_for, work

MAX_FILE_MEGABYTES = 5
LETTERS_PER_PIECE = 4  # typical
TABLE_HEIGHT, ROWS_THAT_FIT = 460, 12  # pixels, and rows that need less
FIGURES = ("masking", "first, nats", "second, nats", "first − second", "perplexity 1", "perplexity 2")
FIRST_COLUMNS = ("row", "first", "second", "difference", "believed", "problem")  # of the table of scored pairs

Scores = Mapping[str, PairScore]  # by variant


def draw_pair(page: View, model: LoadedModel, head_mask: np.ndarray) -> None:
    """Draw the scores of two sentences, token by token. head_mask: (layer, head)."""
    sentences = select_sentences(page)
    encodings, works = _encode(model, *sentences), _pair_works(model, head_mask, *sentences)
    copies = len(works) * sum(map(len, encodings))
    label = f"Score both sentences ({copies:,} masked copies)"
    with page.figure():
        results = confirmed_results("pair", label, list(works.values()), check=_check_pair)
    scores = {name: score for name, (score,) in zip(VARIANT_NAMES, results.values, strict=False)}
    score = scores.get(variant.value, next(iter(scores.values())))
    with page.figure().container(key=results.key("scored_pair")):
        is_example = sentences == (EXAMPLE.text, EXAMPLE.pair) and not results.are_stale and head_mask.all()
        columns = pair_columns(score)
        st.markdown(f"{_verdict(score, columns)} {EXAMPLE.remark if is_example else ''}")
        warn_unknown([score])
        if (warning := disagreement(scores)) is not None:
            st.warning(with_help(warning), icon=":material/call_split:")
        figure = pair_bars(*_labels(columns, score), columns.first, columns.second, columns.equal)
        width, alt = 56 * len(columns.columns), "Surprisal of every token of both sentences"
        chart(figure, key="pair_bars", min_width=width, alt=alt)
    with st.container(key=results.key("figures")):
        formats = dict.fromkeys(FIGURES[1:], st.column_config.NumberColumn(format="%.3f"))
        st.dataframe(_score_rows(scores), hide_index=True, width="stretch", column_config=formats)
        make_file = partial(_pair_csv, ModelReference(model), head_mask, *sentences, variant.value)
        add_file("This pair (CSV)", make_file, "pair.csv", disabled=results.are_stale)


def _check_pair(scores: Sequence[PairScore]) -> None:
    if scores[0].problem is not None:
        raise Refused(scores[0].problem)


def draw_table(page: View, model: LoadedModel, head_mask: np.ndarray) -> None:
    """Draw the scores of all pairs of a table, beside the pairs. head_mask: (layer, head)."""
    with page.figure():
        left, right = st.columns([2, 3], gap="medium")
    with left:
        source = _select_pairs()
    with right:
        if not source:
            example_button(TEXTS["table_hint"], "Use three example pairs", set_choice, pasted_pairs.name, EXAMPLE_PAIRS)
            return
        rows = read_pairs(source)
        quick = None if source == EXAMPLE_PAIRS else 0
        results = confirmed_scores("table of pairs", model, head_mask, tuple(rows), variant.value, quick=quick)
        if results is None:
            return
        (scores,) = results.values
        with st.container(key=results.key("scored_table")):
            st.markdown(_summary(scores))
            warn_unknown(scores)
            height: int | Literal["content"] = TABLE_HEIGHT if len(scores) > ROWS_THAT_FIT else "content"
            columns = {name: st.column_config.TextColumn(width=252) for name in ("first", "second")}
            columns |= {"difference": st.column_config.NumberColumn(format="%.2f")}
            st.dataframe(_table_columns(scores), hide_index=True, height=height, column_config=columns)
    make_file = partial(_table_csv, ModelReference(model), head_mask, tuple(rows), variant.value)
    add_file("All pairs (CSV)", make_file, "pairs.csv", disabled=results.are_stale)


def _select_pairs() -> str | bytes:
    """Draw the controls of the pairs and return the uploaded file, or else the pasted pairs."""
    text = pasted_pairs()
    types, label = ["csv", "tsv", "txt"], "or a CSV file in UTF-8"
    upload = file_control(st, label, "pairs_upload", types=types, megabytes=MAX_FILE_MEGABYTES)
    return text if upload is None else upload.data


# ---------------------------------------------------------------------------- work


def _encode(model: LoadedModel, first: str, second: str) -> list[Encoding]:
    return [model.tokenizer.encode(sentence) for sentence in (first, second)]


def _pair_seconds(model: LoadedModel, head_mask: np.ndarray, first: str, second: str, variant: str) -> float:
    lengths = map(len, _encode(model, first, second))
    return sum(estimate_seconds(model, length, length) for length in lengths)


def _pair_memory(model: LoadedModel, head_mask: np.ndarray, first: str, second: str, variant: str) -> int:
    return _memory(model, (PairRow(1, first, second),))


@work("{model} scores 1 pair", seconds=_pair_seconds, memory=_pair_memory)
def _score_pair(
    model: LoadedModel,
    head_mask: np.ndarray,
    first: str,
    second: str,
    variant: str,
    report: Progress = ignore_progress,
) -> list[PairScore]:
    return score_pairs(model, [PairRow(1, first, second)], variant=variant, head_mask=head_mask, report=report)


def _pair_works(model: LoadedModel, head_mask: np.ndarray, first: str, second: str) -> dict[str, Work[list[PairScore]]]:
    """Return the work of each variant; only the first if no word consists of several pieces."""
    has_long_words = any(text.typed_count > text.word_count for text in _encode(model, first, second))
    names = list(VARIANT_NAMES)[: None if has_long_words else 1]
    return {name: _score_pair(model, head_mask, first, second, name) for name in names}


def _pair_csv(model: ModelReference, head_mask: np.ndarray, first: str, second: str, variant: str) -> str:
    works = _pair_works(model.get(), head_mask, first, second)
    return pairs_csv(wait_for(works.get(variant, next(iter(works.values())))))


def _table_seconds(model: LoadedModel, head_mask: np.ndarray, rows: Sequence[PairRow], variant: str) -> float:
    scored = [row for row in rows if row.problem is None]
    pieces = sum(len(row.first) + len(row.second) for row in scored) / LETTERS_PER_PIECE
    return estimate_seconds(model, round(pieces / max(len(scored), 1) / 2), pieces)


def _table_memory(model: LoadedModel, head_mask: np.ndarray, rows: Sequence[PairRow], variant: str) -> int:
    return _memory(model, rows)


@work("{model} scores {rows} pairs", seconds=_table_seconds, memory=_table_memory)
def score_table(
    model: LoadedModel,
    head_mask: np.ndarray,
    rows: Sequence[PairRow],
    variant: str,
    report: Progress = ignore_progress,
) -> list[PairScore]:
    """Score all pairs of a table."""
    return score_pairs(model, rows, variant=variant, head_mask=head_mask, report=report)


def _table_csv(model: ModelReference, head_mask: np.ndarray, rows: Sequence[PairRow], variant: str) -> str:
    return pairs_csv(wait_for(score_table(model.get(), head_mask, rows, variant)))


def _memory(model: LoadedModel, rows: Sequence[PairRow]) -> int:
    lengths = (max(len(row.first), len(row.second)) // LETTERS_PER_PIECE + 2 for row in rows)
    return max((forward_bytes(model, length, 2 * length) for length in lengths), default=0)


# ---------------------------------------------------------------------------- texts and tables


def _verdict(score: PairScore, columns: PairColumns) -> str:
    """Return which sentence is more probable, by how much, and the part of the words in which they differ."""
    if score.preferred == "neither":
        return "#### Both sentences are equally likely to the model"
    name, number, sign = ("first", 1, 1) if score.difference > 0 else ("second", 2, -1)
    parts = sign * columns.differing_contribution, sign * columns.shared_contribution
    differing, shared = (f"**{nats:+.1f}**".replace("-", "−") for nats in parts)
    label = "Differing word" if (~columns.equal).sum() == 1 else "Differing words"
    return (
        f"#### The {name} sentence is more likely to the model, by {abs(score.difference):.1f} nats\n\n"
        f"{label}: {differing} for sentence {number}; shared words: {shared}."
    )


def _score_rows(scores: Scores) -> list[dict[str, Any]]:
    """Return the rows of the table of a pair: its totals and perplexities in each variant."""
    rows = []
    for name, score in scores.items():
        first, second = score.scores
        label = VARIANT_NAMES[name] if len(scores) > 1 else "Either: every word is one token"
        figures = (first.total, second.total, score.difference, first.perplexity, second.perplexity)
        rows.append(dict(zip(FIGURES, (label, *figures), strict=True)))
    return rows


def disagreement(scores: Scores) -> str | None:
    """Return a sentence if the variants prefer different sentences, else None."""
    preferred = [score.preferred for score in scores.values()]
    if len(set(preferred)) == 1:
        return None
    names = list(VARIANT_NAMES.values())
    return (
        f"The two maskings disagree. “{names[0]}” favours the {preferred[0]} sentence; “{names[1]}” favours the "
        f"{preferred[1]}. The end of a rare word reveals its beginning."
    )


def _table_columns(scores: Sequence[PairScore]) -> dict[str, list[Any]]:
    """Return the table of scored pairs by column, the result first."""
    rows = [pair_values(score) for score in scores]
    columns = {name: list(column) for name, column in zip(PAIR_COLUMNS, zip(*rows, strict=True), strict=True)}
    return {name: columns[name] for name in dict.fromkeys((*FIRST_COLUMNS, *columns))}


def _summary(scores: Sequence[PairScore]) -> str:
    """Return how many pairs were scored, and how often the first sentence is preferred."""
    preferred = [score.preferred for score in scores if score.preferred is not None]
    first, failed = preferred.count("first"), len(scores) - len(preferred)
    share = f" ({first / len(preferred):.0%})" if preferred else ""
    note = f"{failed:,} could not be scored: see the column “problem”." if failed else ""
    return f"#### The first sentence is more likely in {first:,} of {len(preferred):,} pairs{share}\n\n{note}"


def warn_unknown(scores: Sequence[PairScore]) -> None:
    """Write how many sentences are mostly [UNK], if any: their scores mean little."""
    if count := mostly_unknown(scores):
        sentences = "One sentence is" if count == 1 else f"{count:,} sentences are"
        warning = (
            f"{sentences} mostly [UNK]: the vocabulary lacks these characters, so any others would get the same score."
        )
        st.warning(with_help(warning), icon=":material/question_mark:")


def _labels(columns: PairColumns, score: PairScore) -> tuple[list[str | None], list[str | None]]:
    """Return the tokens of both sentences, column by column; None where a sentence has none."""
    first, second = (sentence.encoding.tokens for sentence in score.scores)
    return (
        [None if column.first is None else first[column.first] for column in columns.columns],
        [None if column.second is None else second[column.second] for column in columns.columns],
    )


def confirmed_scores(
    slot: str,
    model: LoadedModel,
    head_mask: np.ndarray,
    rows: tuple[PairRow, ...],
    masking: str,
    *,
    quick: float | None,
) -> Results | None:
    """Return the scores of all pairs as `confirmed_results`, below a warning about rows that have no score.

    head_mask: (layer, head). masking: name of the variant. Returns None if no row can be scored.
    """
    if (warning := pair_problems(rows)) is not None:
        st.warning(with_help(warning), icon=":material/rule:")
    count = sum(row.problem is None for row in rows)
    if not count:
        return None
    label = TEXTS["score"].format(count=count, pairs="pair" if count == 1 else "pairs")
    return confirmed_results(slot, label, [score_table(model, head_mask, rows, masking)], quick=quick)


def pair_problems(rows: Sequence[PairRow]) -> str | None:
    """Return what is wrong with the rows of a table, in one sentence; None if nothing is."""
    faulty = [row for row in rows if row.problem is not None]
    if not faulty:
        return None
    count = len(faulty) - 1
    lines = "1 more line has a problem" if count == 1 else f"{count} more lines have problems"
    note = f" (and {lines})" if count else ""
    return escape_markdown(f"Line {faulty[0].row} has {faulty[0].problem}{note}. Such lines have no score.")
