"""What causes the difference?"""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.causes import patches_missed
from bert_core.records import Patches
from bert_core.refused import Refused
from viz_app.export.tables import labelled_csv
from viz_app.figures.causes import effect_map, map_width, neuron_bars, two_places
from viz_app.figures.style import two_digits
from viz_app.pages.causes import CARRIED, EXAMPLE, SOURCE, WAYS
from viz_app.pages.causes.patches import Sides, sides
from viz_app.shell import frame, question, screen
from viz_app.shell.address import end_run
from viz_app.shell.controls import control, missing, put
from viz_app.shell.markdown import as_written, helped, sentence
from viz_app.shell.question import take_example
from viz_app.shell.target import names_in, say_no_target
from viz_app.shell.work import need, offered

STRONGEST = 12  # neurons that are shown
CARRIED_NAMES = {
    "state": "The state of a token",
    "attention": "What attention adds",
    "feed_forward": "What the feed-forward network adds",
    "head": "What a head brings",
    "pattern": "Where a head looks",
    "query": "A head's queries",
    "key": "A head's keys",
    "value": "A head's values",
}
WAY_NAMES = {"into": "Source into text", "out": "Text into source"}
READING = (
    "**How to read this:** 0 changes nothing, 1 gives the answer of the source: each cell is a run of its own with one "
    "part of the source's reading put in. Orange goes towards the source's answer, blue away from it. Click a cell to "
    "look closer. **How it can mislead:** a state carries all that was read before it, used or not; parts do not add "
    "up, as a LayerNorm stands behind each; and heads that stand in for each other show only one way round."
)


def draw() -> None:
    """Draw the page."""
    current = question.current()
    frame.title(
        "What causes the difference?",
        "The model reads one text with parts of its reading of another put in: which part carries the answer over?",
    )
    if not st.session_state.source and question.is_shown(EXAMPLE):
        st.session_state.source = SOURCE
    _controls()
    if current.target is None:
        say_no_target(current, "There is no answer yet that could be carried over")
        end_run()
    if not st.session_state.source.strip():
        missing(
            "Type a second text that differs in a word or two: parts of its reading are put into that of the first.",
            "Take an example", _take_example,
        )  # fmt: skip
        end_run()
    both = sides(current)
    with screen.picture():
        _picture(both)
    screen.read(READING)


def _take_example() -> None:
    take_example(EXAMPLE)
    put("source", SOURCE)


def _controls() -> None:
    with screen.controls().container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        control(st.text_input, "Source", "source", placeholder="Type a text that differs in a word or two", width=420)
        control(
            st.selectbox, "Carry over", "carried", options=CARRIED, format_func=CARRIED_NAMES.__getitem__, width=290,
            on_change=put, args=("place", None),
        )  # fmt: skip
        control(
            st.segmented_control, "Way", "way", options=WAYS, format_func=WAY_NAMES.__getitem__, required=True,
            help="Put what was right into what was wrong, and you see what is enough for the answer; the other way "
            "round, what it needs. The two often differ.",
        )  # fmt: skip
        control(
            st.toggle, "Estimate beside it", "estimated",
            help="All patches at once from one pass there and back, right for small changes only (attribution "
            "patching): does the cheap estimate tell the truth here?",
        )  # fmt: skip


def _picture(both: Sides) -> None:
    """What each place does, and what the chosen one does more closely."""
    estimate = need(both.estimate())
    st.markdown(_answers(both, estimate))
    try:
        _ = estimate.effects
    except Refused as error:
        st.info(helped(sentence(error)), icon=":material/equal:")
        end_run()
    work = both.exact()
    cells = len(both.rows) * len(both.columns)
    asked = offered("patches", work.key, f"Run all {cells:,} patches", work.seconds)
    if not asked:
        st.caption("Until then, the estimate from one pass there and back:")
        _map(both, estimate, "estimate")
        return
    exact = need(work, timed=True)
    if st.session_state.estimated:
        left, right = st.columns(2, gap="medium")
        with left:
            st.markdown("**Found**, each in a run of its own")
            _map(both, exact, "found")
        with right:
            st.markdown("**Estimated**, all from one pass there and back")
            _map(both, estimate, "estimate")
        st.markdown(_missed(exact, estimate))
    else:
        _map(both, exact, "found")
    st.markdown(_strongest(both, exact))
    if question.is_shown(EXAMPLE) and st.session_state.source == SOURCE:
        st.info(helped(EXAMPLE.remark), icon=":material/lightbulb:")
    _closer(both, exact)
    _files(both)


def _answers(both: Sides, found: Patches) -> str:
    """What both texts answer, in Markdown."""
    target = both.target
    what = target.asks.speaks_for.format(**names_in(both.current, target))
    text, source = (_written(target, value) for value in (found.base_value, found.source_value))
    asked = what if target.against is None else f"{what} rather than “{as_written(both.current.word(target.against))}”"
    return f"{asked}: **{text}** in the text, **{source}** in the source."


def _written(target: object, value: float) -> str:
    asks = target.asks  # type: ignore[attr-defined]
    probability = asks.probability(value)
    numbers = {"value": value, "loss": -value, "probability": np.nan if probability is None else probability}
    said: str = asks.says.format(**{name: two_digits(number) for name, number in numbers.items()})
    return said


def _map(both: Sides, found: Patches, key: str) -> None:
    effects = both.seen(found.effects)
    screen.chart(
        effect_map(
            effects, both.rows, both.columns, chosen=_chosen(both), dark=both.current.dark,
            lecture=both.current.lecture,
        ),
        key=f"causes_{key}", grows=False, least_width=map_width(both.rows, len(both.columns)),
        on_select=partial(_take_place, f"causes_{key}"), selection_mode="points", config={"displayModeBar": False},
        alt=f"Effects of {effects.size} patches",
    )  # fmt: skip


def _chosen(both: Sides) -> tuple[int, int] | None:
    """The row and column that are chosen; None where there is no such cell."""
    place = st.session_state.place
    if place is None or place[0] >= len(both.rows) or place[1] >= len(both.columns):
        return None
    return int(place[0]), int(place[1])


def _take_place(key: str) -> None:
    """Choose the cell that was clicked."""
    if points := st.session_state[key].selection.points:
        st.session_state.place = (int(points[0]["y"]), int(points[0]["x"]))


def _strongest(both: Sides, found: Patches) -> str:
    """The place with the largest effect, in Markdown; of states between the layers, as the ends are the texts' own."""
    effects = both.seen(found.effects).copy()
    if both.what == "state" and effects.shape[1] > 2:
        effects[:, [0, -1]] = np.nan
    row, column = np.unravel_index(int(np.nanargmax(np.abs(effects))), effects.shape)
    return f"The largest effect: {_named(both, int(row), int(column))}, **{two_places(float(effects[row, column]))}**."


def _named(both: Sides, row: int, column: int) -> str:
    """A cell in words, in Markdown."""
    if both.of_heads:
        return f"L{row} H{column}"
    return f"{as_written(both.tokens[row])} at {both.columns[column]}"


def _missed(exact: Patches, estimate: Patches) -> str:
    missed = patches_missed(exact, estimate)
    share = round(missed.missed * missed.top)
    return (
        f"Of the {missed.top} places that move the answer most, the estimate misses **{share}**; rank correlation "
        f"(Spearman) **{two_digits(missed.agreement)}**."
    )


def _closer(both: Sides, found: Patches) -> None:
    """More of the chosen cell: its heads token by token, or its neurons."""
    chosen = _chosen(both)
    if chosen is None:
        return
    row, column = chosen
    current = both.current
    effect = float(both.seen(found.effects)[row, column])
    screen.heading(f"{CARRIED_NAMES[both.what]}: {_named(both, row, column)}, effect {two_places(effect)}")
    if both.of_heads:
        work = both.closer(row)
        if offered("closer", work.key, f"Patch the heads of L{row} token by token", work.seconds):
            closer = need(work)
            screen.chart(
                effect_map(
                    closer.effects[row].T, both.tokens, both.columns, dark=current.dark, lecture=current.lecture
                ),
                key="causes_closer", grows=False, least_width=map_width(both.tokens, len(both.columns)),
                config={"displayModeBar": False}, alt=f"Effects of the heads of layer {row}, token by token",
            )  # fmt: skip
            screen.note(
                f"The heads of L{row}, one token at a time: of a pattern or a query the row that looks, of a key or a "
                "value the token that is looked at."
            )
    elif both.what == "feed_forward":
        work = both.neurons(column, row)
        many = current.loaded.config.intermediate_size
        if offered("neurons", work.key, f"Patch its {many:,} neurons one by one", work.seconds):
            effects = need(work).effects[column, row]
            order = np.argsort(-np.abs(effects), kind="stable")[:STRONGEST].tolist()
            screen.chart(
                neuron_bars(order, effects[order].tolist(), dark=current.dark, lecture=current.lecture),
                key="causes_neurons", grows=False, config={"displayModeBar": False},
                alt=f"The {len(order)} neurons with the largest effects",
            )  # fmt: skip
            screen.note(f"The {len(order)} of {many:,} neurons of L{column} at this token with the largest effects.")


def _files(both: Sides) -> None:
    st.download_button(
        "Effects (CSV)", lambda: labelled_csv(_columns(both)), "causes.csv", "text/csv", on_click="ignore",
        icon=":material/table:", key="causes_csv",
    )  # fmt: skip


def _columns(both: Sides) -> dict[str, list[object]]:
    """Every place with its effect, found and estimated, as the columns of a table."""
    exact, estimate = need(both.exact()), need(both.estimate())
    places = list(np.ndindex(exact.values.shape))
    columns: dict[str, list[object]] = {
        axis: [place[number] for place in places] for number, axis in enumerate(exact.axes)
    }
    if not both.of_heads:
        columns["token"] = [both.text.tokens[place[-1]] for place in places]
        columns["source_token"] = [both.source.tokens[place[-1]] for place in places]
    return columns | {
        "value": [*exact.values.flat],
        "effect": [*exact.effects.flat],
        "estimated_value": [*estimate.values.flat],
        "estimated_effect": [*estimate.effects.flat],
    }
