"""Predictions of a lens at every depth, as a table, as files and as a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_core.records import LensRun
from bert_core.refused import Refused
from viz_app.export import LENS_KINDS, PICTURES
from viz_app.export.tables import labelled_csv
from viz_app.figures.lens import short_names
from viz_app.figures.style import one_line, page

if TYPE_CHECKING:  # matplotlib takes half a second to import, which no page should wait for
    from matplotlib.figure import Figure

MAX_ROWS, MAX_COLUMNS = 60, 12  # positions, and words of a single position, in a picture
MAX_LETTERS, LEAST_LETTERS = 14, 5  # of the word in a cell, and letters that a cell has room for
LETTER, ROW_HEIGHT = 0.078, 0.25  # inches: the width of a letter in a cell, and the height of a cell

GetWord = Callable[[int], str]  # returns the text of a token id


def followed_word(run: LensRun, place: int, word: GetWord) -> str | None:
    """Return the word that is followed at a place; None if it is the final prediction or a typed mask.

    place: index in `run.positions`.
    """
    text = word(run.followed[place])
    return None if text in (word(int(run.final[place])), run.encoding.special_tokens.mask) else text


def lens_columns(run: LensRun, word: GetWord) -> dict[str, Sequence[object]]:
    """Return every value of every cell as the columns of a table, by depth and position."""
    names, (depths, places) = short_names(len(run.top)), run.entropy.shape
    followed = [followed_word(run, place, word) for place in range(places)]
    has_followed = np.tile([text is not None for text in followed], depths).tolist()

    def values_or_empty(values: np.ndarray) -> list[object]:
        return [value if is_followed else "" for value, is_followed in zip(values.flat, has_followed, strict=True)]

    return {
        "depth": [name for name in names for _ in range(places)],
        "position": [*run.positions] * depths,
        "token": [run.encoding.tokens[position] for position in run.positions] * depths,
        "word": [word(int(piece)) for piece in run.top[..., 0].flat],
        "probability": [*run.probabilities[..., 0].flat],
        "final_word": [word(int(piece)) for piece in run.final] * depths,
        "rank_of_final_word": [*run.final_rank.flat],
        "probability_of_final_word": [*run.final_probability.flat],
        "followed_word": [text or "" for text in followed] * depths,
        "rank_of_followed_word": values_or_empty(run.followed_rank),
        "probability_of_followed_word": values_or_empty(run.followed_probability),
        "kl_to_the_end": [*run.divergence.flat],
        "entropy": [*run.entropy.flat],
    }


def lens_file(run: LensRun, word: GetWord, kind: str) -> bytes:
    """Return the predictions of a lens as a file of one of `LENS_KINDS`.

    CSV has the rows of `lens_columns`; a picture is that of `lens_picture`. word: returns the text of a token id.
    Raises Refused for another kind, and as `lens_picture` does.
    """
    if kind not in LENS_KINDS:
        raise Refused(f"a file of kind {kind!r} is unknown: one of {', '.join(LENS_KINDS)}")
    if kind in PICTURES:
        from viz_app.export.drawing import picture_bytes

        return picture_bytes(lens_picture(run, word), kind)
    return labelled_csv(lens_columns(run, word))


def lens_picture(run: LensRun, word: GetWord) -> Figure:
    """Draw the most probable word of every cell, coloured by its probability from 0 to 1.

    Of several positions, the rows are the tokens and the columns the depths. Of one position, the rows are the depths,
    the columns the most probable words, and at the right are the ranks of the final and the followed word.
    Raises Refused for more than `MAX_ROWS` positions.
    """
    from viz_app.export.drawing import (
        MATRIX_MARGIN,
        draw_cells,
        draw_colour_bar,
        empty_figure,
        inches,
        write_in_cells,
    )  # fmt: skip

    if len(run.positions) > MAX_ROWS:
        raise Refused(
            f"a picture has room for {MAX_ROWS} tokens, and these are {len(run.positions)}: choose fewer, or CSV"
        )
    depths, is_single = short_names(len(run.top)), len(run.positions) == 1
    labels = [f"{run.encoding.labels[position]} ({position})" for position in run.positions]
    title = f"{run.lens.capitalize()} lens"
    if is_single:
        values, pieces = run.probabilities[:, 0, :MAX_COLUMNS], run.top[:, 0, :MAX_COLUMNS]
        title, rows, columns = f"{title} at {labels[0]}", depths, [str(rank + 1) for rank in range(values.shape[1])]
        names = ("depth", "rank")
    else:
        values, pieces = run.probabilities[..., 0].T, run.top[..., 0].T
        rows, columns, names = labels, depths, ("token", "depth")
    texts = [[one_line(word(int(piece)), MAX_LETTERS) for piece in line] for line in pieces]
    width = LETTER * max(LEAST_LETTERS, *(len(text) for line in texts for text in line)) + 0.16
    size = len(columns) * width, len(rows) * ROW_HEIGHT
    figure, axes = empty_figure(size[0] + MATRIX_MARGIN, size[1] + 1.1)
    axes.set_position(inches(figure, MATRIX_MARGIN, 0.45, *size))
    mesh = draw_cells(axes, values, rows, columns, signed=False, cell=ROW_HEIGHT, limit=1.0)
    write_in_cells(axes, values, texts, signed=False, limit=1.0, size=8.5)
    colours = page()
    if is_single:
        style: dict[str, Any] = {"parse_math": False, "va": "center_baseline", "ha": "right", "fontsize": 8.5}
        ranks = {word(int(run.final[0])): run.final_rank}
        if (followed := followed_word(run, 0, word)) is not None:
            ranks[followed] = run.followed_rank
        right = len(columns) + 0.12
        for text, numbers in ranks.items():
            heading = f"rank of “{one_line(text, MAX_LETTERS)}”"
            right += (0.062 * len(heading) + 0.08) / width
            axes.text(right, -0.5, heading, color=colours.faint, **style)
            for row, number in enumerate(numbers[:, 0].tolist()):
                axes.text(right, row + 0.5, f"{number:,}", color=colours.text, **style)
    axes.tick_params(axis="x", labelrotation=0)
    axes.set_ylabel(names[0], color=colours.faint, fontsize=9)
    axes.set_xlabel(names[1], color=colours.faint, fontsize=9)
    map_top = 0.45 + size[1]
    draw_colour_bar(figure, mesh, MATRIX_MARGIN, map_top + 0.08, min(1.6, size[0]), 1.0, signed=False)
    left, bottom, _, _ = inches(figure, MATRIX_MARGIN, map_top + 0.42, 0, 0)
    figure.text(
        left, bottom, f"{title}: probability of the word", fontsize=11, color=colours.text, parse_math=False
    )  # fmt: skip
    return figure
