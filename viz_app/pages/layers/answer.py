"""The part The answer: rank of the final word, distance to the final prediction and uncertainty at every depth."""

from __future__ import annotations

import numpy as np
import streamlit as st

from viz_app.figures.lens import short_names
from viz_app.pages.layers.lens_runs import (
    MAX_MASKS,
    check_word_head,
    describe_settling,
    lens_button,
    lens_run,
    select_lens,
    selected_cell,
)
from viz_app.pages.layers.shared import draw_lines
from viz_app.shell.view import View, write_line

READING = (
    "**How to read this:** top: the rank of the final word after each layer, for every hidden word and the chosen "
    "token. Below, in nats: how far each layer's prediction is from the final one (KL divergence), and how uncertain "
    "it is (entropy). **How it can mislead:** for a visible token the answer is in the text: a good rank there is not "
    "a prediction."
)


def draw(page: View) -> None:
    """Draw the lines of the masked positions and of the selected one."""
    selection = page.selection
    if not check_word_head(selection):
        return
    with page.controls():
        select_lens(selection)
    position = selected_cell(selection)[1]
    run, encoding = lens_run(selection, position), selection.encoding
    names = short_names(len(run.top))
    rows = {place: run.positions.index(place) for place in (*encoding.mask_positions[:MAX_MASKS], position)}
    ranks: dict[str, np.ndarray] = {}
    for place, row in rows.items():
        final, original = int(run.final[row]), run.followed[row]
        ranks[f"{selection.word(final)} at {place}"] = run.final_rank[:, row]
        if original != final and selection.original.tokens[place] != encoding.tokens[place]:
            ranks[f"{selection.word(original)} at {place}, hidden word"] = run.followed_rank[:, row]
    with page.figure():
        write_line(describe_settling(selection, run, position))
        draw_lines("ranks", ranks, names, "rank of the word (1 on top)", ranks=True)
        figures = {
            "kl": (run.divergence, "distance to the end (KL, nats)"),
            "entropy": (run.entropy, "uncertainty (entropy, nats)"),
        }
        for column, (key, (values, title)) in zip(st.columns(2, gap="medium"), figures.items(), strict=True):
            with column:
                series = {f"{encoding.labels[place]} ({place})": values[:, row] for place, row in rows.items()}
                draw_lines(key, series, names, title)
    lens_button("answer", selection, run)
