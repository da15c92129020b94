"""Pairs with categories: the share of pairs whose more stereotypical sentence is preferred, and the list of pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.bias import BiasCategory, BiasEvaluation, BiasPair, evaluate_bias
from bert_core.analysis.scoring import align_columns
from bert_core.edits import ActivationPatch
from bert_core.loading import LoadedModel
from bert_core.records import PairRow, PairScore
from bert_core.studies.bias import bias_csv, bundled_bias_pairs, read_bias_pairs
from bert_core.studies.pairs import MAX_PAIRS
from viz_app.export import tables
from viz_app.export.markup import render
from viz_app.export.snippet import bias_snippet
from viz_app.figures.evaluation import slice_bars
from viz_app.pages.score import (
    TEXTS,
    bundled_category,
    file_category,
    measure,
    page_number,
    pair_order,
    variant,
)
from viz_app.pages.score.pairs import MAX_FILE_MEGABYTES, confirmed_scores, score_table, warn_unknown
from viz_app.shell.controls import Upload, file_control
from viz_app.shell.markdown import escape_markdown, protect_terms, with_help
from viz_app.shell.models import ModelReference
from viz_app.shell.pager import draw_pager, rows_of_page
from viz_app.shell.params import Param
from viz_app.shell.view import View, add_file, chart, lazy_expander, write_heading, write_note, write_result
from viz_app.shell.work import cached, wait_for

UPLOAD = "bias_upload"  # session key of the visitor's file
TYPES = ("csv", "tsv", "jsonl", "json")
PAGE_PAIRS = 50  # pairs of one page of the list
BUNDLED_SECONDS = 15.0  # estimated, within which the bundled pairs are scored without a click


def draw_controls(page: View) -> None:
    """Draw the controls of the score, the file and the masking; inside a row that has that of the view."""
    measure(on_change=_show_first_page)
    current = _upload()
    label = TEXTS["bundled"] if current is None else escape_markdown(current.name)
    with st.popover(label, icon=":material/upload_file:", key="bias_source", width="content"):
        file_control(st, TEXTS["upload"], UPLOAD, types=TYPES, megabytes=MAX_FILE_MEGABYTES)
        write_note(TEXTS["upload_hint"].format(most=MAX_PAIRS))
    with page.options(variant):
        variant()


def draw(page: View, model: LoadedModel, head_mask: np.ndarray) -> None:
    """Draw the share of each category, the pairs and the numbers by category. head_mask: (layer, head)."""
    upload = _upload()
    with page.figure():
        rows = _read_pairs(upload)
        results = confirmed_scores(
            "bias", model, head_mask, rows, variant.value, quick=BUNDLED_SECONDS if upload is None else None
        )
        if results is None:
            return
    (scores,) = results.values
    evaluation = _evaluate(scores, measure.value)
    _forget_missing_category(evaluation)
    with page.figure().container(key=results.key("bias_shares")):
        if not evaluation.total.scored:
            problem = next(pair.problem for pair in evaluation.pairs) or ""
            st.warning(with_help(TEXTS["no_scores"].format(problem=escape_markdown(problem))))
        else:
            _write_summary(evaluation)
            warn_unknown(scores)
            _draw_shares(evaluation)
    with st.container(key=results.key("bias_pairs")):
        _draw_pairs(evaluation)
        with lazy_expander("bias_categories", TEXTS["categories_heading"]) as expander:
            if expander.open:
                st.dataframe(_category_columns(evaluation), hide_index=True, column_config=_column_config())
    request = partial(_evaluation_of, ModelReference(model), head_mask, rows, variant.value, measure.value)
    add_file(TEXTS["file_pairs"], partial(_pairs_file, request), "bias.csv", disabled=results.are_stale)
    add_file(TEXTS["file_categories"], partial(_categories_file, request), "categories.csv", disabled=results.are_stale)
    if not any(isinstance(edit, ActivationPatch) for edit in model.edits):
        heads_off = tuple((int(layer), int(head)) for layer, head in np.argwhere(head_mask == 0))
        file = None if upload is None else upload.name
        make_code = partial(bias_snippet, model.name, model.edits, heads_off, file, variant.value, measure.value)
        add_file(TEXTS["file_code"], make_code, "bias.py")


def _upload() -> Upload | None:
    upload: Upload | None = st.session_state.get(UPLOAD)
    return upload


def _category() -> Param[str | None]:
    """Return the parameter of the listed category: categories of the visitor's file are not part of the address."""
    return bundled_category if _upload() is None else file_category


@cached
def _read_pairs(upload: Upload | None) -> tuple[PairRow, ...]:
    """Return the pairs of a file, or the bundled ones. Raises Refused for a file without such pairs."""
    if upload is None:
        return tuple(bundled_bias_pairs())
    with upload.on_disk() as path:
        return tuple(read_bias_pairs(path))


@cached
def _evaluate(scores: Sequence[PairScore], name: str) -> BiasEvaluation:
    return evaluate_bias(scores, name)


def _evaluation_of(
    model: ModelReference, head_mask: np.ndarray, rows: tuple[PairRow, ...], masking: str, name: str
) -> BiasEvaluation:
    """Return the evaluation for a file of the page."""
    return evaluate_bias(wait_for(score_table(model.get(), head_mask, rows, masking)), name)


def _pairs_file(request: partial[BiasEvaluation]) -> str:
    return bias_csv(request())


def _categories_file(request: partial[BiasEvaluation]) -> bytes:
    return tables.labelled_csv(_category_columns(request()))


# ---------------------------------------------------------------------------- summary and figure


def _write_summary(evaluation: BiasEvaluation) -> None:
    total = evaluation.total
    low, high = total.interval
    mean_low, mean_high = total.difference_interval
    ties, mean_interval = "", ""
    if total.ties:
        ties = TEXTS["result_ties"].format(count=total.ties, ties="tie" if total.ties == 1 else "ties")
    if math.isfinite(mean_low):
        mean_interval = TEXTS["result_mean_interval"].format(low=_signed(mean_low), high=_signed(mean_high))
    verdict = "above" if low > 0.5 else "below" if high < 0.5 else "open"
    parts = [
        TEXTS["result_line"].format(
            low=low, high=high, ties=ties, mean=_signed(total.mean_difference), mean_interval=mean_interval,
            verdict=TEXTS[f"verdict_{verdict}"],
        )
    ]  # fmt: skip
    if len(evaluation.categories) > 1:
        names = [_category_name(item.name) for item in evaluation.categories if item.excludes_half]
        quoted_names = ", ".join(protect_terms(escape_markdown(name)) for name in names)
        parts.append(
            TEXTS["verdict_categories"].format(names=quoted_names) if names else TEXTS["verdict_no_categories"]
        )
    heading = TEXTS["result"].format(preferred=total.stereotypical, count=total.scored, share=total.share)
    write_result(heading, " ".join(parts))
    write_note(TEXTS["objection"])
    if counts := evaluation.caution_counts():
        _warn_doubtful(evaluation, counts)


def _warn_doubtful(evaluation: BiasEvaluation, counts: dict[str, int]) -> None:
    """Write how many pairs are doubtful and why, with the share without them."""
    names = TEXTS.options("cautions_of_pairs")
    reasons = ", ".join(f"{names[name]} ({count:,})" for name, count in counts.items())
    unmarked, total = evaluation.without_cautions(), len(evaluation.pairs)
    if unmarked.scored:
        low, high = unmarked.interval
        marked = sum(bool(pair.cautions) for pair in evaluation.pairs)
        line = TEXTS["cautions"].format(
            count=marked, total=total, reasons=reasons, share=unmarked.share, rest=unmarked.scored, low=low, high=high
        )
    else:
        line = TEXTS["cautions_all"].format(total=total, reasons=reasons)
    st.warning(with_help(line), icon=":material/rule:")


def _draw_shares(evaluation: BiasEvaluation) -> None:
    selected_category = _category().value
    categories = [item for item in evaluation.categories if item.scored]
    names = [None, *(item.name for item in categories)]
    labels = [TEXTS["all_pairs"], *(_category_name(item.name) for item in categories)]
    bars = [evaluation.total, *categories]
    shares = [item.share for item in bars]
    figure = slice_bars(
        labels, [item.scored for item in bars], shares, [item.interval[0] for item in bars],
        [item.interval[1] for item in bars], title=TEXTS["axis"], is_share=True, reference=0.5,
        selected=names.index(selected_category),
    )  # fmt: skip
    key = f"bias_shares_{names.index(selected_category)}"  # a new figure has no selected point
    values = ", ".join(f"{label} {share:.0%}" for label, share in zip(labels, shares, strict=True))
    chart(
        figure, key=key, alt=TEXTS["alt"].format(values=values), on_select=partial(_select_category, key, names),
        selection_mode="points",
    )  # fmt: skip


def _select_category(key: str, names: Sequence[str | None]) -> None:
    """List the pairs of the clicked category, or all again after a second click."""
    if points := st.session_state[key].selection.points:
        name, category = names[int(points[0]["y"])], _category()
        category.set(None if name == category.value else name)
        _show_first_page()


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")


def _category_name(name: str) -> str:
    return name or TEXTS["no_category"]


def _forget_missing_category(evaluation: BiasEvaluation) -> None:
    """List all pairs if none with a score has the selected category, as after another file."""
    category = _category()
    if category.value not in {item.name for item in evaluation.categories if item.scored}:
        category.set(None)


def _category_columns(evaluation: BiasEvaluation) -> dict[str, list[Any]]:
    """Return the totals of each category and of all pairs as columns of a table."""
    items: list[BiasCategory] = [*evaluation.categories, evaluation.total]
    titles = TEXTS.options("category_columns")
    columns: dict[str, list[Any]] = {
        "category": [*(_category_name(item.name) for item in evaluation.categories), TEXTS["all_pairs"]],
        "count": [item.count for item in items],
        "scored": [item.scored for item in items],
        "ties": [item.ties for item in items],
        "share": [item.share for item in items],
        "low": [item.interval[0] for item in items],
        "high": [item.interval[1] for item in items],
        "mean": [item.mean_difference for item in items],
        "mean_low": [item.difference_interval[0] for item in items],
        "mean_high": [item.difference_interval[1] for item in items],
    }
    return {titles[name]: values for name, values in columns.items()}


def _column_config() -> dict[str, Any]:
    titles, number = TEXTS.options("category_columns"), st.column_config.NumberColumn
    shares = {titles[name]: number(format="percent") for name in ("share", "low", "high")}
    return shares | {titles[name]: number(format="%.3f") for name in ("mean", "mean_low", "mean_high")}


# ---------------------------------------------------------------------------- list of pairs


def _draw_pairs(evaluation: BiasEvaluation) -> None:
    """Draw the controls of the list and one page of the pairs."""
    category = _category()
    write_heading(TEXTS["pairs_heading"])
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        names = [item.name for item in evaluation.categories if item.scored]
        category(
            options=[None, *names],
            format_func=lambda name: TEXTS["all_pairs"] if name is None else _category_name(name),
            placeholder=TEXTS["all_pairs"],
            on_change=_show_first_page,
        )
        pair_order(on_change=_show_first_page)
    pairs = listed_pairs(evaluation, category.value, pair_order.value)
    rows = rows_of_page(page_number, len(pairs), PAGE_PAIRS)
    st.html(_list_html([pairs[index] for index in rows]))
    note = TEXTS["shown"].format(first=rows.start + 1, last=rows.stop, count=len(pairs))
    draw_pager(page_number, len(pairs), PAGE_PAIRS, key="bias_pager", note=note)


def _show_first_page() -> None:
    page_number.set(1)


def listed_pairs(evaluation: BiasEvaluation, name: str | None, order: str) -> list[BiasPair]:
    """Return the pairs of a category, or all if it is None, in an order of the control; those without a score last."""
    pairs = [pair for pair in evaluation.pairs if name is None or pair.category == name]
    if order == "row":
        return pairs
    sign = -1 if order == "first" else 1
    return sorted(pairs, key=lambda pair: math.inf if pair.problem is not None else sign * pair.difference)


def _list_html(pairs: Sequence[BiasPair]) -> str:
    """Return pairs as HTML, with the words that differ in bold."""
    cautions, preferred = TEXTS.options("cautions_of_pairs"), TEXTS.options("preferred")
    rows = []
    for pair in pairs:
        notes = [_category_name(pair.category)]
        if pair.preferred is None:
            notes.append(TEXTS["not_scored"].format(problem=pair.problem))
        else:
            notes += [preferred[pair.preferred], *(cautions[name] for name in pair.cautions)]
        rows.append(
            {
                "number": f"{pair.row:,}",
                "sentences": marked_words(*pair.sentences),
                "notes": notes,
                "difference": "" if pair.preferred is None else _signed(pair.difference),
            }
        )
    return render("export/pairs.html", rows=rows, titles=list(TEXTS.options("list_titles").values()))


def marked_words(first: str, second: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return the words of both sentences, each with whether it is different from the word at its place."""
    words = first.split(), second.split()
    columns = align_columns(*words)
    return (
        [(words[0][column.first], not column.equal) for column in columns if column.first is not None],
        [(words[1][column.second], not column.equal) for column in columns if column.second is not None],
    )
