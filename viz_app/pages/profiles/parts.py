"""Parts of the page that profiles of heads, tokens and neurons have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.studies.profiles import GroupShare, TokenExample, WordCount
from viz_app.export.profiles import (
    BAR_NAMES,
    PROFILE_KINDS,
    QUESTION_TITLES,
    Profile,
    largest,
    mark_example,
    neuron_name,
    profile_name,
    similar_profiles,
    tenth_names,
)
from viz_app.figures.profiles import share_bars
from viz_app.pages.profiles import ASPECTS, aspect, tenth
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.params import Param
from viz_app.shell.view import chart, write_heading, write_note


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
    profile: Profile,
    *,
    legend: str,
    title: str,
    form: str = ".0%",
) -> None:
    """Draw the shares of an aspect, compared with chance.

    legend: what has the profile. title, form: of the shares.
    """
    largest_bars = largest(bars[name], name)
    names = [BAR_NAMES.get(bar.name, bar.name) for bar in largest_bars]
    shares, chances = [bar.share for bar in largest_bars], [bar.chance for bar in largest_bars]
    values = zip(names, shares, chances, strict=True)
    alt = ", ".join(f"{label} {share:{form}}, {chance:{form}}" for label, share, chance in values)
    chart(
        share_bars(names, shares, chances, series_name=legend, title=title, form=form),
        key="profile_bars",
        grows=False,
        alt=f"{title} of {profile_name(profile)}, beside chance: {alt}",
    )


def draw_words(profile: Profile, more_columns: int = 0) -> DeltaGenerator:
    """Draw the tables of words, or pairs of words, side by side, and return the last column.

    more_columns: empty columns behind them.
    """
    tables = PROFILE_KINDS[type(profile)].words
    columns = st.columns(len(tables) + more_columns, gap="large")
    for column, (title, field) in zip(columns, tables.items(), strict=False):
        words: tuple[WordCount, ...] = getattr(profile, field)
        rows: list[dict[str, object]] = []
        for word in words:
            names = {"from": word.query, "to": word.key} if word.query else {"word": word.key}
            rows.append({**names, "times": word.times, "by chance": word.expected})
        with column:
            write_heading(title)
            draw_table(rows, field)
    return columns[-1]


def draw_table(rows: Sequence[Mapping[str, object]], key: str) -> None:
    """Draw counts with those expected by chance, or a sentence if there are none."""
    if rows:
        formats = {"by chance": st.column_config.NumberColumn(format="%.1f")}
        st.dataframe(rows, hide_index=True, key=f"profile_{key}", column_config=formats)
    else:
        write_note("None is clearly above chance.")


def draw_similar(
    profile: Profile,
    title: str,
    note: str,
    columns: tuple[str, str],
    select: Callable[[Any], None],
    values: Sequence[Any] | None = None,
    form: str = "%.2f",
) -> None:
    """Draw the most similar profiles as a table; a click on a row selects its profile.

    columns: names of the profiles and of their similarity. values: with which `select` is called, by row; None for a
    row that cannot be selected. By default layer and number. form: of the similarity.
    """
    write_heading(title)
    write_note(note)
    key = f"profile_alike_{profile_name(profile)}"  # a selected row does not remain selected in the next table
    st.dataframe(
        [dict(zip(columns, row, strict=True)) for row in similar_profiles(profile)],
        hide_index=True,
        key=key,
        on_select=partial(_select_row, key, values or [tuple(place) for *place, _ in profile.alike], select),
        selection_mode="single-row",
        column_config={columns[1]: st.column_config.NumberColumn(format=form)},
    )


def _select_row(key: str, values: Sequence[Any], select: Callable[[Any], None]) -> None:
    rows = st.session_state[key].selection.rows
    if rows and values[rows[0]] is not None:
        select(values[rows[0]])


def select_tenth(profile: Profile, note: str) -> int:
    """Draw the heading of the sentences, the control of their tenth, and a note; return the tenth from 0.

    note: its {low} and {high} are replaced by the limits of the tenth.
    """
    kind = PROFILE_KINDS[type(profile)]
    write_heading(kind.sentences)
    names = tenth_names(*kind.ends)
    number = tenth(format_func=lambda number: names[number - 1]) - 1
    write_note(note.format(low=profile.deciles[number], high=profile.deciles[number + 1]))
    return number


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
