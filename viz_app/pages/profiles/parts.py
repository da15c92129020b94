"""What profiles of heads, tokens and neurons are drawn with alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st

from bert_core.studies.profiles import TENTHS, GroupShare, TokenExample, WordCount
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
from viz_app.pages.profiles import QUESTIONS
from viz_app.shell.controls import control
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.view import chart, write_heading, write_note


def choose_question(bars: Mapping[str, Sequence[GroupShare]], first: str | None = None) -> str:
    """The control of what is asked, of those that the profile answers; the one that is shown.

    first: before one was asked; the first of all where it is None.
    """
    there, state = [name for name in QUESTIONS if name in bars], st.session_state
    if state.asked_of not in there:  # asked of another profile
        state.asked_of = first or there[0]
    asked: str = control(
        st.segmented_control, "Ask", "asked_of", options=there, format_func=QUESTION_TITLES.__getitem__, required=True,
        label_visibility="collapsed",
    )  # fmt: skip
    return asked


def ask_anew() -> None:
    """Ask first what another one answers first, not what was asked of the one before it."""
    st.session_state.asked_of = QUESTIONS[0]


def draw_bars(asked: str, bars: Sequence[GroupShare], name: str, *, of: str, title: str, form: str = ".0%") -> None:
    """The shares beside chance. name, of: whose they are, in words and in the legend. title: what they are."""
    shown = largest(bars, in_order=asked in ORDERED_QUESTIONS)
    chart(
        share_bars(
            [BAR_NAMES.get(bar.name, bar.name) for bar in shown], [bar.share for bar in shown],
            [bar.chance for bar in shown], series_name=of, title=title, form=form,
        ),
        key="profile_bars", grows=False, config={"displayModeBar": False},
        alt=f"{title} of {name}, beside chance: "
        + ", ".join(f"{BAR_NAMES.get(bar.name, bar.name)} {bar.share:{form}}, {bar.chance:{form}}" for bar in shown),
    )  # fmt: skip


def draw_words(joined: Iterable[WordCount], title: str, key: str) -> None:
    """Words, or pairs of words, with their times and those by chance."""
    write_heading(title)
    rows = [
        {
            **({} if word.query is None else {"from": word.query}), "to" if word.query else "word": word.key,
            "times": word.times, "by chance": word.expected,
        }
        for word in joined
    ]  # fmt: skip
    draw_table(rows, key)


def draw_table(rows: Sequence[Mapping[str, object]], key: str) -> None:
    """Rows with what they are by chance; a sentence where there are none."""
    if not rows:
        write_note("None is clearly above chance.")
        return
    st.dataframe(
        rows, hide_index=True, key=f"profile_{key}",
        column_config={"by chance": st.column_config.NumberColumn(format="%.1f")},
    )  # fmt: skip


def draw_alike(
    of: str, title: str, says: str, names: tuple[str, str], rows: Sequence[tuple[str, float, Any]],
    take: Callable[[Any], None], form: str = "%.2f",
) -> None:  # fmt: skip
    """Others that are alike, and how much; a click on a line takes it.

    of: whom they are like. names: of the two columns. rows: how each is written, the number, and what `take` is called
    with, None for one that cannot be taken.
    """
    write_heading(title)
    write_note(says)
    key = f"profile_alike_{of}"  # a line of another table is another line
    st.dataframe(
        [dict(zip(names, row[:2], strict=True)) for row in rows], hide_index=True, key=key,
        on_select=partial(_take_line, key, [row[2] for row in rows], take), selection_mode="single-row",
        column_config={names[1]: st.column_config.NumberColumn(format=form)},
    )  # fmt: skip


def _take_line(key: str, lines: Sequence[Any], take: Callable[[Any], None]) -> None:
    if (rows := st.session_state[key].selection.rows) and lines[rows[0]] is not None:
        take(lines[rows[0]])


def choose_tenth(*ends: str) -> int:
    """The control of the tenth of which sentences are shown, from 0. ends: how the first and the last are called."""
    names = tenth_names(*ends)
    tenth: int = control(
        st.segmented_control, "Tenth", "tenth", options=list(range(1, TENTHS + 1)),
        format_func=lambda number: names[number - 1], required=True, label_visibility="collapsed",
    )  # fmt: skip
    return tenth - 1


def choose_from(
    label: str, name: str, there: Mapping[Any, str], *, on_change: Callable[[], None] | None = None
) -> Any:  # fmt: skip
    """The control of one of those that have a profile; there: how each is written, by what the address has of it.

    Says so where a link asks for one that has none, and takes the first. on_change: called when another was chosen.
    """
    wanted = st.session_state[name]
    chosen = control(
        st.selectbox, label, name, options=list(there), format_func=there.__getitem__, first=next(iter(there)),
        on_change=on_change,
    )  # fmt: skip
    if wanted and wanted not in there:
        written = wanted if isinstance(wanted, str) else neuron_name(*wanted)
        st.info(
            with_help(f"There is no profile of {escape_markdown(written)} here; {len(there)} others are in the list."),
            icon=":material/info:",
        )
    return chosen


def draw_seen(seen: Sequence[TokenExample], value: str) -> None:
    """Tokens in their sentences. value: what the number of each is."""
    st.dataframe(
        [{"token": one.text[slice(*one.at)], value: one.value, "sentence": mark_example(one), "line": one.line}
         for one in seen],
        hide_index=True, key="profile_tenth",
        column_config={
            value: st.column_config.NumberColumn(format="%.2f"),
            "sentence": st.column_config.TextColumn(width="large"),
        },
    )  # fmt: skip
