"""The view Ranks: rank of the final word, KL divergence from the final prediction, and entropy."""

from __future__ import annotations

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from viz_app.figures.lens import short_names
from viz_app.pages.layers import TEXTS
from viz_app.pages.layers.lens_runs import (
    MAX_MASKS,
    check_word_head,
    draw_settling,
    lens_button,
    lens_run,
    select_lens,
    selected_cell,
)
from viz_app.pages.layers.shared import LOW, draw_lines
from viz_app.shell.view import View


def draw(page: View, row: DeltaGenerator) -> None:
    """Draw the lines of the masked positions and of the selected one. row: of the controls."""
    selection = page.selection
    if not check_word_head(selection):
        return
    with row:
        select_lens(selection)
    position = selected_cell(selection)[1]
    run, encoding = lens_run(selection, position), selection.encoding
    names = short_names(len(run.top))
    rows = {place: run.positions.index(place) for place in (*encoding.mask_positions[:MAX_MASKS], position)}
    ranks: dict[str, np.ndarray] = {}
    for place, row_number in rows.items():
        final, original = int(run.final[row_number]), run.followed[row_number]
        ranks[f"{selection.word(final)} at {place}"] = run.final_rank[:, row_number]
        if original != final and selection.original.tokens[place] != encoding.tokens[place]:
            ranks[f"{selection.word(original)} at {place}, masked word"] = run.followed_rank[:, row_number]
    figures = {"kl": (run.divergence, TEXTS["units.divergence"]), "entropy": (run.entropy, TEXTS["units.entropy"])}
    with page.figure():
        draw_settling(selection, run, position)
        left, right = st.columns([3, 2], gap="medium")
        with left:
            draw_lines("ranks", ranks, names, "rank of the word", ranks=True)
        with right:
            for key, (values, title) in figures.items():
                series = {f"{encoding.labels[place]} ({place})": values[:, number] for place, number in rows.items()}
                draw_lines(key, series, names, title, height=LOW)
    lens_button("answer", selection, run)
