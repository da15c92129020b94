"""The view Predictions: the most likely word in every cell, and the distribution of the selected cell."""

from __future__ import annotations

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.records import LensRun
from viz_app.figures.lens import ROWS_THAT_FIT, depth_names, depth_phrase, lens_grid
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.stages import window
from viz_app.figures.style import current_look, ordinal, two_digits
from viz_app.pages.layers import TEXTS, cell, cell_depth, cell_position, rank_by
from viz_app.pages.layers.lens_runs import (
    check_word_head,
    draw_settling,
    lens_button,
    lens_run,
    select_lens,
    selected_cell,
)
from viz_app.shell.markdown import quoted_without_terms
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, write_line, write_note

MAX_NARROW_DEPTHS = 9  # with more depths, the grid has the whole width of the page
HOVER_WORDS = 3
WORDS, LECTURE_WORDS = 10, 6  # of the selected cell, which fit the window


def draw(page: View, row: DeltaGenerator) -> None:
    """Draw the grid of words and the distribution of the selected cell. row: of the controls."""
    selection = page.selection
    if not check_word_head(selection):
        return
    with row:
        select_lens(selection)
        with page.options(rank_by):
            rank_by()
    depth, position = selected_cell(selection)
    run = lens_run(selection, position)
    is_wide = len(run.top) > MAX_NARROW_DEPTHS
    with page.figure():
        draw_settling(selection, run, position)
        grid, distribution = (st.container(), st.container()) if is_wide else st.columns([5, 2], gap="medium")
    with grid:
        _draw_grid(selection, run, depth, position)
    with distribution:
        _draw_cell_controls(selection, depth, position)
        _draw_distribution(selection, run, depth, position)
    length = len(selection.encoding)
    lens_button("words", selection, run, range(length)[window(length, position, ROWS_THAT_FIT)])


def _draw_cell_controls(selection: Selection, depth: int, position: int) -> None:
    """Draw the controls of the cell next to its distribution; a click on the grid selects a cell, too."""
    labels, names = selection.encoding.labels, depth_names(selection.loaded.config.num_hidden_layers + 1)
    cell_depth.set(depth)
    cell_position.set(position)
    left, right = st.columns([2, 3])
    cell_depth(left, options=range(len(names)), format_func=names.__getitem__, on_change=_take_controls)
    cell_position(
        right,
        options=sorted({*selection.positions, position}),
        format_func=lambda position: f"{labels[position]} ({position})",
        on_change=_take_controls,
    )


def _take_controls() -> None:
    values = (cell_depth.value, cell_position.value)
    # When the text changes, a control may still contain the name of a token.
    if all(isinstance(value, int) for value in values):
        cell.set(values)


def _take_click() -> None:
    if points := st.session_state.lens_grid["selection"]["points"]:
        cell.set((int(points[0]["x"]), int(points[0]["y"])))


def _draw_grid(selection: Selection, run: LensRun, depth: int, position: int) -> None:
    """Draw the rows around a position."""
    encoding, depths = selection.encoding, range(len(run.top))
    visible = window(len(encoding), position, ROWS_THAT_FIT)
    positions = range(len(encoding))[visible]
    rows = [run.positions.index(place) for place in positions]
    values = {
        "probability": run.probabilities[..., 0],
        "divergence": run.divergence,
        "entropy": run.entropy,
        "rank": 1 / run.final_rank,
    }[rank_by.value]
    if len(positions) < len(encoding):
        write_note(f"Tokens {visible.start} to {visible.stop - 1} of {len(encoding)}, around the selected one.")
    figure = lens_grid(
        [[selection.word(int(run.top[column, row, 0])) for column in depths] for row in rows],
        values[:, rows].T,
        [encoding.labels[place] for place in positions],
        [[_hover_lines(selection, run, column, row) for column in depths] for row in rows],
        positions,
        highest=1.0 if rank_by.value in ("probability", "rank") else None,
        selected=(position, depth),
        unit=TEXTS[f"units.{rank_by.value}"],
    )
    chart(
        figure,
        key="lens_grid",
        alt=f"The most likely word at each of {len(positions)} tokens and {len(depths)} depths",
        on_select=_take_click,
        selection_mode="points",
    )


def _hover_lines(selection: Selection, run: LensRun, depth: int, row: int) -> list[str]:
    position, name = run.positions[row], depth_names(len(run.top))[depth]
    candidates = zip(run.top[depth, row, :HOVER_WORDS], run.probabilities[depth, row, :HOVER_WORDS], strict=True)
    return [
        f"{selection.encoding.labels[position]} ({position}), {name}",
        ", ".join(f"{selection.word(int(piece))} {probability:.3g}" for piece, probability in candidates),
        f"final prediction {selection.word(int(run.final[row]))}: rank {run.final_rank[depth, row]:,}",
        f"KL divergence {run.divergence[depth, row]:.4g} nats, entropy {run.entropy[depth, row]:.4g} nats",
    ]


def _draw_distribution(selection: Selection, run: LensRun, depth: int, position: int) -> None:
    """Draw the most likely words of a cell, below a sentence with its other numbers."""
    encoding, row, name = selection.encoding, run.positions.index(position), depth_phrase(depth)
    shown = slice(LECTURE_WORDS if current_look().lecture else WORDS)
    probabilities: np.ndarray = run.probabilities[depth, row, shown]
    first = quoted_without_terms(selection.word(int(run.top[depth, row, 0])))
    final, original = selection.word(int(run.final[row])), selection.word(run.followed[row])
    rank = (
        f"The final prediction {quoted_without_terms(final)} ranks **{ordinal(int(run.final_rank[depth, row]))}** here"
    )
    if original not in (final, encoding.special_tokens.mask):  # a mask that was typed replaces no word
        original_rank = ordinal(int(run.followed_rank[depth, row]))
        rank += f"; {quoted_without_terms(original)}, the word of the text, ranks **{original_rank}**"
    write_line(
        f"**{first} has probability {two_digits(float(probabilities[0]))} {name}.** {rank}. KL divergence: "
        f"{run.divergence[depth, row]:.2f} nats; entropy: {run.entropy[depth, row]:.2f} nats."
    )
    figure = prediction_bars(
        [selection.word(int(piece)) for piece in run.top[depth, row, shown]], probabilities.tolist()
    )
    chart(figure, key="lens_cell", alt=f"The most likely words at {encoding.labels[position]} {name}")
    write_note(f"All other tokens together: {two_digits(max(1 - sum(probabilities.tolist()), 0))}.")
