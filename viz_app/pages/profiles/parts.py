"""Parts of the page that profiles of heads, tokens and neurons have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st

from bert_core.studies.profiles import GroupShare, HeadProfile, NeuronProfile, TokenExample, TokenProfile, WordCount
from viz_app.export.profiles import (
    BAR_NAMES,
    ORDERED_QUESTIONS,
    QUESTION_TITLES,
    largest,
    mark_example,
    neuron_name,
    tenth_names,
)
from viz_app.figures.profiles import share_bars
from viz_app.pages.profiles import ASPECTS, aspect, tenth
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.params import Param
from viz_app.shell.view import chart, write_heading, write_note

Profile = HeadProfile | TokenProfile | NeuronProfile


def select_aspect(bars: Mapping[str, Sequence[GroupShare]], default: str | None = None) -> str:
    """Draw the control of the aspect, and return the aspect that the figure shows, one of those of the profile.

    default: instead of an aspect that the profile does not have; its first one if None.
    """
    options = [name for name in ASPECTS if name in bars]
    if aspect.value not in options:
        aspect.set(default or options[0])
    return aspect(options=options, format_func=QUESTION_TITLES.__getitem__)


def reset_aspect() -> None:
    """Show the default aspect of the next profile instead of the selected one."""
    aspect.set(ASPECTS[0])


def draw_bars(
    name: str,
    bars: Mapping[str, Sequence[GroupShare]],
    profile_name: str,
    *,
    legend: str,
    title: str,
    form: str = ".0%",
) -> None:
    """Draw the shares of an aspect, compared with chance.

    profile_name, legend: what has the profile, in the description and in the legend. title, form: of the shares.
    """
    largest_bars = largest(bars[name], in_order=name in ORDERED_QUESTIONS)
    names = [BAR_NAMES.get(bar.name, bar.name) for bar in largest_bars]
    shares, chances = [bar.share for bar in largest_bars], [bar.chance for bar in largest_bars]
    values = zip(names, shares, chances, strict=True)
    alt = ", ".join(f"{label} {share:{form}}, {chance:{form}}" for label, share, chance in values)
    chart(
        share_bars(names, shares, chances, series_name=legend, title=title, form=form),
        key="profile_bars",
        grows=False,
        alt=f"{title} of {profile_name}, beside chance: {alt}",
    )


def draw_words(words: Iterable[WordCount], title: str, key: str) -> None:
    """Draw words, or pairs of words, with their counts and those expected by chance."""
    write_heading(title)
    rows: list[dict[str, object]] = []
    for word in words:
        names = {"from": word.query, "to": word.key} if word.query else {"word": word.key}
        rows.append({**names, "times": word.times, "by chance": word.expected})
    draw_table(rows, key)


def draw_table(rows: Sequence[Mapping[str, object]], key: str) -> None:
    """Draw counts with those expected by chance, or a sentence if there are none."""
    if rows:
        formats = {"by chance": st.column_config.NumberColumn(format="%.1f")}
        st.dataframe(rows, hide_index=True, key=f"profile_{key}", column_config=formats)
    else:
        write_note("None is clearly above chance.")


def draw_similar(
    name: str,
    title: str,
    note: str,
    rows: Sequence[Mapping[str, object]],
    values: Sequence[Any],
    select: Callable[[Any], None],
    form: str = "%.2f",
) -> None:
    """Draw the most similar profiles as a table; a click on a row selects its profile.

    name: of the profile. rows: with two columns, the name and a number. values: with which `select` is called, by row;
    None for a row that cannot be selected.
    """
    write_heading(title)
    write_note(note)
    key = f"profile_alike_{name}"  # a selected row does not remain selected in the next table
    formats = {column: st.column_config.NumberColumn(format=form) for row in rows[:1] for column in list(row)[1:]}
    st.dataframe(
        rows,
        hide_index=True,
        key=key,
        on_select=partial(_select_row, key, values, select),
        selection_mode="single-row",
        column_config=formats,
    )


def _select_row(key: str, values: Sequence[Any], select: Callable[[Any], None]) -> None:
    rows = st.session_state[key].selection.rows
    if rows and values[rows[0]] is not None:
        select(values[rows[0]])


def select_tenth(*ends: str) -> int:
    """Draw the control of the tenth whose sentences are shown, and return it from 0. ends: names of first and last."""
    names = tenth_names(*ends)
    return tenth(format_func=lambda number: names[number - 1]) - 1


def select_listed(param: Param[Any], labels: Mapping[Any, str], on_change: Callable[[], None] | None = None) -> Any:
    """Draw the control of a parameter whose values have profiles, and return its value.

    Writes a note if the address names a value without a profile, and selects the first. labels: by value.
    """
    value = param.value
    if value not in labels:
        param.set(next(iter(labels)))
    selected = param(options=list(labels), format_func=labels.__getitem__, on_change=on_change)
    if value and value not in labels:
        name = value if isinstance(value, str) else neuron_name(*value)
        note = f"There is no profile of {escape_markdown(name)} here; {len(labels)} others are in the list."
        st.info(with_help(note), icon=":material/info:")
    return selected


def draw_examples(examples: Sequence[TokenExample], value: str) -> None:
    """Draw tokens in their sentences. value: the name of their number."""
    rows = [
        {
            "token": example.text[slice(*example.at)],
            value: example.value,
            "sentence": mark_example(example),
            "line": example.line,
        }
        for example in examples
    ]
    draw_sentences(rows, **{value: st.column_config.NumberColumn(format="%.2f")})


def draw_sentences(rows: Sequence[Mapping[str, object]], **formats: Any) -> None:
    """Draw a table with a column of sentences. formats: of other columns."""
    formats["sentence"] = st.column_config.TextColumn(width="large")
    st.dataframe(rows, hide_index=True, key="profile_tenth", column_config=formats)
