"""Parts of the page that profiles of heads, tokens and neurons have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from bert_core.studies.profiles import GroupShare
from viz_app.export.profiles import (
    BAR_NAMES,
    PROFILE_KINDS,
    QUESTION_TITLES,
    Profile,
    coloured_sentences,
    largest,
    neuron_name,
    profile_name,
    similar_profiles,
    tenth_names,
)
from viz_app.figures.profiles import share_bars
from viz_app.figures.style import current_look
from viz_app.pages.profiles import ASPECTS, TEXTS, aspect, profile_of, tenth
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.params import Param
from viz_app.shell.view import chart, write_note

LECTURE_BARS = 6
MAX_BARS_HEIGHT = 640  # pixels
ExtraTables = Mapping[str, Sequence[Mapping[str, object]]]  # rows by the title of a table


@dataclass(frozen=True)
class SimilarTable:
    """The table of the most similar profiles, whose rows select them.

    columns: names of the profiles and of their similarity. select: called with the value of a clicked row. values: by
    row, None for a row that cannot be selected; by default layer and number. form: of the similarity.
    """

    title: str
    note: str
    columns: tuple[str, str]
    select: Callable[[Any], None]
    values: Sequence[Any] | None = None
    form: str = "%.2f"


def largest_excess(bars: Mapping[str, Iterable[GroupShare]], names: Sequence[str] = ()) -> float:
    """Return the largest difference of a share from its baseline. names: of the groups that count, by default all."""
    return max(
        (bar.share - bar.chance for groups in bars.values() for bar in groups if not names or bar.name in names),
        default=0.0,
    )


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
    name: str, bars: Mapping[str, Sequence[GroupShare]], profile: Profile, *, is_cosine: bool = False
) -> None:
    """Draw the shares of an aspect, compared with the baseline. is_cosine: whether the shares are cosines."""
    texts = profile_of.value
    legend, title = TEXTS[f"{texts}.bars_of"], TEXTS[f"{texts}.{'cosine_axis' if is_cosine else 'axis'}"]
    form, largest_bars = ".2f" if is_cosine else ".0%", largest(bars[name], name)
    if current_look().lecture:  # as many as are legible, in their order
        limit = sorted(bar.share for bar in largest_bars)[-LECTURE_BARS:][0]
        largest_bars = [bar for bar in largest_bars if bar.share >= limit]
    names = [BAR_NAMES.get(bar.name, bar.name.replace("-", "−")) for bar in largest_bars]
    shares, chances = [bar.share for bar in largest_bars], [bar.chance for bar in largest_bars]
    values = zip(names, shares, chances, strict=True)
    alt = ", ".join(f"{label} {share:{form}}, {chance:{form}}" for label, share, chance in values)
    figure = share_bars(names, shares, chances, series_name=legend, title=title, form=form)
    if not current_look().lecture:
        figure.layout.height = min(figure.layout.height, MAX_BARS_HEIGHT)
    chart(
        figure,
        key="profile_bars",
        min_share=0.6,
        alt=f"{title} of {profile_name(profile)}, compared with the baseline: {alt}",
    )


def draw_sentences(profile: Profile, note: str, write: Callable[[Any], tuple[str, float]]) -> None:
    """Draw the control of the tenth, a note with its limits, and its sentences with coloured tokens.

    note: its {low} and {high} are replaced by the limits of the tenth. write: returns the number of an example and its
    share of the colour scale.
    """
    names = tenth_names(*PROFILE_KINDS[type(profile)].ends)
    number = tenth(format_func=lambda number: names[number - 1]) - 1
    write_note(note.format(low=profile.deciles[number], high=profile.deciles[number + 1]))
    sentences = profile.examples_of_tenth(number)
    st.html(coloured_sentences(sentences, [write(example) for example in sentences]))


def draw_tables(profile: Profile, similar: SimilarTable, extra: ExtraTables) -> None:
    """Draw the tables of words, of similar profiles, and further ones, each in a tab."""
    titles = PROFILE_KINDS[type(profile)].words
    tabs = iter(st.tabs([*titles, similar.title, *extra]))
    for field in titles.values():
        words = [
            ({"from": word.query, "to": word.key} if word.query else {"word": word.key})
            | {"times": word.times, "baseline": word.expected}
            for word in getattr(profile, field)
        ]
        with next(tabs):
            _draw_table(words, field)
    with next(tabs):
        _draw_similar(profile, similar)
    for tab, rows in zip(tabs, extra.values(), strict=True):
        with tab:
            _draw_table(rows, "watched")


def _draw_table(rows: Sequence[Mapping[str, object]], key: str) -> None:
    """Draw counts with those of the baseline, or a sentence if there are none."""
    if rows:
        formats = {"baseline": st.column_config.NumberColumn(format="%.1f")}
        st.dataframe(rows, hide_index=True, key=f"profile_{key}", column_config=formats)
    else:
        write_note(TEXTS["none_above_baseline"])


def _draw_similar(profile: Profile, table: SimilarTable) -> None:
    write_note(table.note)
    key = f"profile_alike_{profile_name(profile)}"  # a selected row does not remain selected in the next table
    values = table.values or [tuple(place) for *place, _ in profile.alike]
    st.dataframe(
        [dict(zip(table.columns, row, strict=True)) for row in similar_profiles(profile)],
        hide_index=True,
        key=key,
        on_select=partial(_select_row, key, values, table.select),
        selection_mode="single-row",
        column_config={table.columns[1]: st.column_config.NumberColumn(format=table.form)},
    )


def _select_row(key: str, values: Sequence[Any], select: Callable[[Any], None]) -> None:
    rows = st.session_state[key].selection.rows
    if rows and values[rows[0]] is not None:
        select(values[rows[0]])


def select_listed(
    param: Param[Any],
    labels: Mapping[Any, str],
    row: Any,
    *,
    first: Callable[[], Any],
    on_change: Callable[[], None] | None = None,
) -> Any:
    """Draw the control of a parameter whose values have profiles, and return its value.

    Writes a note if the address names a value without a profile, and selects the first. labels: by value. row: the
    container of the control. first: returns the value that is selected if none is.
    """
    value = param.value
    if value not in labels:
        param.set(first())
    selected = param(row, options=list(labels), format_func=labels.__getitem__, on_change=on_change)
    if value and value not in labels:
        name = value if isinstance(value, str) else neuron_name(*value)
        note = TEXTS["no_profile"].format(name=escape_markdown(name), count=len(labels))
        st.info(with_help(note), icon=":material/info:")
    return selected
