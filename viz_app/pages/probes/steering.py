"""The view Steer of the page Probing: a direction is added to the hidden states of the text."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.analysis.steering import DIRECTIONS
from bert_core.records import Steering
from bert_core.studies.settings import ProbeSettings
from viz_app.export.snippet import steering_snippet
from viz_app.export.tables import table_csv
from viz_app.figures.lens import depth_names, depth_phrase
from viz_app.figures.probes import dose_lines
from viz_app.figures.style import two_digits
from viz_app.pages.probes import TEXTS, steer_depth, steer_direction, steer_factor, steer_from, steer_to
from viz_app.pages.probes.labels import (
    MAX_WORDS,
    RANDOM_VECTORS,
    Direction,
    LabelledFile,
    steer_text,
    values_of,
)
from viz_app.shell.address import end_run
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.models import ModelReference
from viz_app.shell.selection import Selection
from viz_app.shell.target import answer_name, show_missing_target
from viz_app.shell.view import View, add_file, chart, write_heading, write_line, write_note
from viz_app.shell.work import confirm, wait_for

CHANCE = 0.05  # p-value up to which an effect counts as more than chance
MIN_TARGET_RANGE, MIN_DIVERGENCE_RANGE = 0.5, 0.05  # of the vertical axes, in the unit of the target and in nats
VECTOR, RANDOM = "this direction", "random vectors"
COLUMNS = {"divergence": "%.4f", "random vectors": "%.4f"}


def draw_options(file: LabelledFile, name: str) -> None:
    """Draw the controls in the options of the view: kind of the direction, and the values that it leads between."""
    steer_direction()
    values = values_of(file, name, ProbeSettings().least)
    if len(values) > 1:
        first = steer_from(options=values)
        steer_to(options=[value for value in values if value != first])


def draw_steering(page: View, file: LabelledFile, name: str, material: str) -> None:
    """Draw the prediction by factor, beside random vectors, and what changes at the other words."""
    selection = page.selection
    direction = _direction(file, name, selection.plain.config.num_hidden_layers)
    left, right = page.figure().columns([3, 2], gap="large")
    with right:
        controls = st.container(horizontal=True, gap="medium", vertical_alignment="bottom")
        result = st.container(gap="small")
        with controls:
            names = depth_names(selection.plain.config.num_hidden_layers + 1)
            steer_depth(options=range(len(names)), format_func=names.__getitem__)
            steer_factor()
    with left:
        if selection.target is None:
            show_missing_target(selection, TEXTS["steer_missing"])
            end_run()
        if direction is None:
            st.info(with_help(TEXTS["steer_values"].format(least=ProbeSettings().least)))
            end_run()
    work = steer_text(selection.plain, selection.encoding, selection.target, direction)
    with result:
        steering = confirm(TEXTS["steer_button"], work)
    first, second = map(escape_markdown, direction.values)
    place = depth_phrase(direction.depth)
    if steering is None:
        left.info(with_help(TEXTS["steer_waiting"].format(first=first, second=second, depth=place)))
        end_run()
    factor = int(np.flatnonzero(steering.factors == steer_factor.value)[0])
    with result:
        write_line(_result_sentence(selection, steering, factor))
        notes = TEXTS["steer_material"].format(
            first=first, second=second, depth=place, norm=two_digits(steering.norm), material=material
        )
        write_note(f"{notes} {TEXTS['unmodified']}" if selection.loaded.edits or selection.off else notes)
    with left:
        _draw_target(steering, factor)
    with right:
        _draw_divergences(steering, factor)
    draws = len(steering.random_values)
    page.read(
        TEXTS["steer_reading"].format(draws=draws),
        TEXTS["steer_misleads"].format(draws=draws, outside=f"{2 / (draws + 1):.0%}", p=two_digits(1 / (draws + 1))),
    )
    _draw_words(selection, steering, factor)
    _add_files(selection, direction)


def _direction(file: LabelledFile, name: str, layers: int) -> Direction | None:
    """Return the selected direction; None if the label does not have two values with enough words."""
    values = values_of(file, name, ProbeSettings().least)
    if len(values) < 2:
        return None
    first = steer_from.value if steer_from.value in values else values[0]
    other_values = [value for value in values if value != first]
    second = steer_to.value if steer_to.value in other_values else other_values[0]
    depth = steer_depth.value if steer_depth.value <= layers else 0
    assert steer_direction.value in DIRECTIONS
    return Direction(file, name, (first, second), steer_direction.value, depth)


def _result_sentence(selection: Selection, steering: Steering, factor: int) -> str:
    """Return the value of the target without and with the vector, and how many random vectors do as much."""
    kind, answer = steering.target.target_kind, answer_name(selection, steering.target)
    before, after = (
        kind.format_value(value, two_digits) for value in (steering.base_value, float(steering.values[factor]))
    )
    after = after.removeprefix(kind.value_text.partition("{")[0])  # the quantity is named once
    if not steering.factors[factor]:
        verdict = TEXTS["steer_none"]
    else:
        p_value = float(steering.p_values[factor])
        verdict = TEXTS["steer_stronger" if p_value <= CHANCE else "steer_as_strong"].format(
            count=steering.random_counts[factor], draws=len(steering.random_values), p=two_digits(p_value)
        )
    return TEXTS["steer_result"].format(
        answer=answer[:1].upper() + answer[1:], before=before, after=after,
        factor=f"{steering.factors[factor]:g}", verdict=verdict,
    )  # fmt: skip


def _draw_target(steering: Steering, factor: int) -> None:
    unit = steering.target.target_kind.unit
    write_line(TEXTS["steer_target"].format(unit=unit))
    series = {VECTOR: steering.values, RANDOM: steering.random_mean}
    band = steering.random_low, steering.random_high
    selected = float(steering.factors[factor])
    figure = dose_lines(
        steering.factors, series, title=unit, band=band, selected=selected, min_span=MIN_TARGET_RANGE, height=(440, 440)
    )
    ends = f"from {two_digits(steering.values[0])} to {two_digits(steering.values[-1])}"
    chart(figure, key="steering_target", alt=f"The prediction {ends} by factor, and random vectors", min_share=0.6)


def _draw_divergences(steering: Steering, factor: int) -> None:
    if not steering.other_positions:
        return
    write_line(TEXTS["steer_others"])
    figure = dose_lines(
        steering.factors,
        {VECTOR: steering.mean_divergences, RANDOM: steering.random_divergence_mean},
        title="nats",
        band=(steering.random_divergence_low, steering.random_divergence_high),
        selected=float(steering.factors[factor]),
        min_span=MIN_DIVERGENCE_RANGE,
        height=(280, 300),
    )
    chart(figure, key="steering_others", alt="Change of the predictions at the other words by factor", min_share=0.6)


def _draw_words(selection: Selection, steering: Steering, factor: int) -> None:
    """Draw the table of the other words: the most likely word before and after, and the divergence."""
    if not steering.other_positions:
        return
    write_heading(TEXTS["steer_words"].format(factor=f"{steering.factors[factor]:g}"))
    rows = [
        {
            "word": f"{selection.encoding.labels[position]} ({position})",
            "most likely": selection.word(int(steering.base_tokens[place])),
            "steered": selection.word(int(steering.tokens[factor, place])),
            "divergence": float(steering.divergences[factor, place]),
            "random vectors": float(steering.random_divergences[:, factor, place].mean()),
        }
        for place, position in enumerate(steering.other_positions)
    ]
    formats = {name: st.column_config.NumberColumn(format=format_) for name, format_ in COLUMNS.items()}
    st.dataframe(rows, hide_index=True, key="steering_table", column_config=formats)
    write_note(TEXTS["steer_table"].format(draws=RANDOM_VECTORS))


def _add_files(selection: Selection, direction: Direction) -> None:
    model, encoding, target = ModelReference(selection.plain), selection.encoding, selection.target
    assert target is not None  # the view ends without one

    def steered() -> Steering:
        return wait_for(steer_text(model.get(), encoding, target, direction))

    add_file("Steering (CSV)", lambda: table_csv(steered().table()), "steering.csv")
    if selection.plain.has_head("words"):
        add_file("Other words (CSV)", lambda: table_csv(steered().table("position_divergence")), "other-words.csv")
    add_file(
        "Python code",
        lambda: steering_snippet(
            steered(),
            str(direction.file),
            direction.label,
            direction.values,
            direction.kind,
            MAX_WORDS,
            model.get().name,
        ),
        "steering.py",
    )
