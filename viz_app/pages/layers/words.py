"""What the word head reads out of every layer: a word in every cell, and how the answer rises."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.lens import settled_depth
from bert_core.records import LensRun
from bert_core.run.lens import logit_lens
from bert_core.run.memory import mlm_head_bytes
from viz_app.figures.lens import ROWS_THAT_FIT, depth_names, lens_grid, lens_width, short_names
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.stages import window
from viz_app.figures.style import ordinal
from viz_app.pages.layers import BY, EXAMPLE, LENSES
from viz_app.pages.layers.shared import Part, draw_lines, quoted, take_along
from viz_app.shell.controls import control
from viz_app.shell.lenses import has_translators, translators_of
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection, is_current_example
from viz_app.shell.view import chart, page_place, write_line, write_note
from viz_app.shell.work import UNCONFIRMED_SECONDS, Work, is_confirmed, poll, wait_for

SHOWN_WORDS = 12
MOST_BESIDE = 9  # depths that leave room for a distribution beside them
FOLLOWED_POSITIONS = 6
BY_NAMES = {
    "probability": "Probability",
    "divergence": "Distance to the end (KL)",
    "entropy": "Uncertainty (entropy)",
    "rank": "Rank of the final word",
}
LENS_NAMES = {"logit": "Logit lens", "tuned": "Tuned lens"}


def words(current: Selection) -> None:
    """A word in every cell, and the whole distribution of the chosen one."""
    if _has_no_head(current):
        return
    _lens_controls(current, colours=True)
    depth, position = chosen_cell(current)
    run, encoding, state = lens_run(current, position), current.encoding, st.session_state
    names = depth_names(len(run.top))
    shown = window(len(encoding), position, ROWS_THAT_FIT)
    places = range(len(encoding))[shown]
    rows = [run.positions.index(place) for place in places]
    values, unit = _coloured(run)
    write_line(story(current, run, position))
    if len(names) > MOST_BESIDE:  # many layers have the whole width
        grid, cell = page_place("figure").container(), st.container()
    else:
        grid, cell = page_place("figure").columns([8, 3.4], gap="medium")
    with grid:
        if len(places) < len(encoding):
            write_note(f"Tokens {shown.start} to {shown.stop - 1} of {len(encoding)}, around the chosen one.")
        chart(
            lens_grid(
                [[current.word(int(run.top[d, row, 0])) for d in range(len(names))] for row in rows],
                values[:, rows].T,
                [encoding.labels[p] for p in places],
                [[_hover(current, run, names[d], d, row) for d in range(len(names))] for row in rows],
                places,
                highest=1.0 if state.by in ("probability", "rank") else None,
                selected=(position, depth),
                unit=unit,
            ),
            key="lens_grid",
            min_width=lens_width(len(names)),
            on_select=_take_cell, selection_mode="points",
            config={"displayModeBar": False},
            alt=f"The likeliest word at each of {len(places)} tokens and {len(names)} depths",
        )  # fmt: skip
    with cell:
        state.cell_depth, state.cell_position = depth, position
        one, two = st.columns(2)
        control(
            one.selectbox, "Depth", "cell_depth", options=range(len(names)), format_func=names.__getitem__,
            on_change=_move_cell,
        )  # fmt: skip
        control(
            two.selectbox, "Token", "cell_position", options=range(len(encoding)), on_change=_move_cell,
            format_func=lambda p: f"{encoding.labels[p]} ({p})",
        )  # fmt: skip
        row = run.positions.index(position)
        likely = run.probabilities[depth, row].tolist()
        chart(
            prediction_bars(
                [current.word(int(token)) for token in run.top[depth, row]], likely,
            ),
            key="lens_cell", config={"displayModeBar": False},
            alt=f"The likeliest words at {encoding.labels[position]} {names[depth]}",
        )  # fmt: skip
        final, stood = current.word(int(run.final[row])), current.word(run.followed[row])
        write_note(
            f"All other pieces together: {max(1 - sum(likely), 0):.2g}. The model's final word {quoted(final)} ranks "
            f"**{ordinal(int(run.final_rank[depth, row]))}** here"
            + (
                "."
                if stood in (final, encoding.special_tokens.mask)  # where a mask was typed, no word stood
                else f"; {quoted(stood)}, the word of the text, ranks "
                f"**{ordinal(int(run.followed_rank[depth, row]))}**."
            )
            + f" Distance to the final prediction (KL): {run.divergence[depth, row]:.2f} nats. Uncertainty (entropy): "
            f"{run.entropy[depth, row]:.2f} nats."
        )
    take_along("words", partial(_lens_columns, current, run.positions, _is_tuned()))


def answer(current: Selection) -> None:
    """How the final word rises, how far each layer is from the end, and how sure it is."""
    if _has_no_head(current):
        return
    _lens_controls(current, colours=False)
    position = chosen_cell(current)[1]
    run, encoding = lens_run(current, position), current.encoding
    names = short_names(len(run.top))
    write_line(story(current, run, position))
    places = list(dict.fromkeys([*encoding.mask_positions[:FOLLOWED_POSITIONS], position]))
    ranks: dict[str, np.ndarray] = {}
    rows = {place: run.positions.index(place) for place in places}
    for place, row in rows.items():
        final, stood = int(run.final[row]), run.followed[row]
        ranks[f"{current.word(final)} at {place}"] = run.final_rank[:, row]
        if stood != final and current.original.tokens[place] != encoding.tokens[place]:
            ranks[f"{current.word(stood)} at {place}, hidden word"] = run.followed_rank[:, row]
    draw_lines(current, "ranks", ranks, names, "rank of the word (1 on top)", ranks=True)
    left, right = st.columns(2, gap="medium")
    tokens = {place: f"{encoding.labels[place]} ({place})" for place in places}
    with left:
        draw_lines(
            current,
            "kl",
            {n: run.divergence[:, rows[p]] for p, n in tokens.items()},
            names,
            "distance to the end (KL, nats)",
        )
    with right:
        draw_lines(
            current,
            "entropy",
            {n: run.entropy[:, rows[p]] for p, n in tokens.items()},
            names,
            "uncertainty (entropy, nats)",
        )
    take_along("answer", partial(_lens_columns, current, run.positions, _is_tuned()))


def lens_run(current: Selection, position: int) -> LensRun:
    """What the chosen lens reads, from the queue: everywhere, where that is quick, or when its button is clicked.

    Until then, around a position and at the first masks. Raises Refused for a model without a word head.
    """
    encoding, tuned = current.encoding, _is_tuned()
    length, depths = len(encoding), current.loaded.config.num_hidden_layers + 1
    whole = _lens_work(current, range(length), tuned=tuned)
    if whole.seconds <= UNCONFIRMED_SECONDS:
        return wait_for(whole, timed=True)
    if is_confirmed("lens", whole.key, f"Read all {length} tokens at {depths} depths", whole.seconds):
        run = poll(whole, request_slot="lens").value
        if run is not None:
            return run
    around = range(length)[window(length, position, ROWS_THAT_FIT)]
    some = sorted({*around, *encoding.mask_positions[:FOLLOWED_POSITIONS]})
    return wait_for(_lens_work(current, some, tuned=tuned), timed=True)


def _is_tuned() -> bool:
    return bool(st.session_state.lens == "tuned")


def _lens_work(current: Selection, positions: Sequence[int], *, tuned: bool) -> Work[LensRun]:
    loaded, encoding, gates = current.loaded, current.encoding, current.head_mask
    depths, read = loaded.config.num_hidden_layers + 1, current.original.input_ids
    return Work(
        ("lens", loaded.identity, encoding, read, tuned, gates.tobytes(), tuple(positions)),
        f"{shown_name(loaded.name)} read at every layer",
        lambda report: logit_lens(
            loaded, encoding, positions=positions, translators=translators_of(loaded) if tuned else None,
            followed=read, top_k=SHOWN_WORDS, head_mask=gates, report=report,
        ),
        current.seconds(places=len(positions) * depths),
        memory=mlm_head_bytes(loaded, len(positions)),
    )  # fmt: skip


def _lens_columns(current: Selection, positions: Sequence[int], tuned: bool) -> dict[str, Sequence[object]]:
    """Everything that is known of every cell, as the columns of a table: depth by depth, token by token."""
    run = wait_for(_lens_work(current, positions, tuned=tuned))
    names, (depths, places) = short_names(len(run.top)), run.entropy.shape
    return {
        "depth": [name for name in names for _ in range(places)],
        "position": [*run.positions] * depths,
        "token": [current.encoding.tokens[position] for position in run.positions] * depths,
        "word": [current.word(int(piece)) for piece in run.top[..., 0].flat],
        "probability": [*run.probabilities[..., 0].flat],
        "final_word": [current.word(int(piece)) for piece in run.final] * depths,
        "rank_of_final_word": [*run.final_rank.flat],
        "kl_to_the_end": [*run.divergence.flat],
        "entropy": [*run.entropy.flat],
    }


def story(current: Selection, run: LensRun, position: int) -> str:
    """When the model knows its answer at a position, in a sentence; and what is surprising about the example."""
    shown = is_current_example(EXAMPLE) and position in current.encoding.mask_positions
    return f"{_settling(current, run, position)} {EXAMPLE.remark if shown else ''}"


def _settling(current: Selection, run: LensRun, position: int) -> str:
    names = depth_names(len(run.top))
    row = run.positions.index(position)
    settled = int(settled_depth(run.final_rank)[row])
    final = quoted(current.word(int(run.final[row])))
    before = [current.word(int(run.top[depth, row, 0])) for depth in range(settled)]
    hidden = current.encoding.masked_piece(position)
    where = f"At position {position}" + ("" if hidden is None else f" ({quoted(hidden)} is hidden)") + f", {final}"
    if settled == 0:
        return f"{where} is in first place from the embeddings on: no layer changes that."
    changes = [word for place, word in enumerate(before) if place == 0 or word != before[place - 1]]
    path = " → ".join(map(quoted, changes[-6:]))
    return f"{where} takes first place **{names[settled]}** and keeps it. Before that, the lens reads {path}."


def _has_no_head(current: Selection) -> bool:
    """Whether there is nothing to read layers with; then the page says so."""
    if current.loaded.has_head("words"):
        return False
    name = escape_markdown(shown_name(current.loaded.name))
    st.info(
        with_help(
            f"{name} has no trained masked-word output, so its layers cannot be read as words. The other views work "
            "without it."
        )
    )
    return True


def _lens_controls(current: Selection, *, colours: bool) -> None:
    state = st.session_state
    has_tuned = has_translators(current.loaded)
    if not has_tuned:
        state.lens = "logit"
    left, right = page_place("controls").columns([3, 6], vertical_alignment="bottom")
    control(
        left.segmented_control, "Lens", "lens", options=LENSES,
        format_func=LENS_NAMES.__getitem__, required=True, disabled=not has_tuned,
        help=None if has_tuned else "This model has no tuned lens: train one with `headlight tune-lens`",
    )  # fmt: skip
    if colours:
        control(right.segmented_control, "Colour by", "by", options=BY, format_func=BY_NAMES.__getitem__, required=True)


def _coloured(run: LensRun) -> tuple[np.ndarray, str]:
    """What the cells are coloured by (depth, seq), and what that is."""
    return {
        "probability": (run.probabilities[..., 0], "probability"),
        "divergence": (run.divergence, "distance to the end (KL, nats)"),
        "entropy": (run.entropy, "uncertainty (entropy, nats)"),
        "rank": (1 / run.final_rank, "1 / rank of the final word"),
    }[st.session_state.by]


def _hover(current: Selection, run: LensRun, name: str, depth: int, row: int) -> list[str]:
    first = [
        f"{current.word(int(token))} {likely:.3g}"
        for token, likely in zip(run.top[depth, row, :3], run.probabilities[depth, row, :3], strict=True)
    ]
    return [
        f"{current.encoding.labels[run.positions[row]]} ({run.positions[row]}), {name}", ", ".join(first),
        f"final word {current.word(int(run.final[row]))}: rank {run.final_rank[depth, row]:,}",
        f"KL to the end {run.divergence[depth, row]:.4g} nats, entropy {run.entropy[depth, row]:.4g} nats",
    ]  # fmt: skip


def chosen_cell(current: Selection) -> tuple[int, int]:
    """Depth and position of the chosen cell; the last depth at the target's place, or the first mask, to begin with."""
    cell, length = st.session_state.cell, len(current.encoding)
    depths = current.loaded.config.num_hidden_layers + 1
    if cell is not None and 0 <= cell[0] < depths and 0 <= cell[1] < length:
        return int(cell[0]), int(cell[1])
    of_target = None if current.target is None else current.target.position
    places = [place for place in (of_target, *current.encoding.mask_positions, 1) if place is not None]
    return depths - 1, places[0]


def _take_cell() -> None:
    """Choose the cell that was clicked in the grid."""
    points = st.session_state.lens_grid["selection"]["points"]
    if points:
        st.session_state.cell = (int(points[0]["x"]), int(points[0]["y"]))


def _move_cell() -> None:
    state = st.session_state
    cell = (state.cell_depth, state.cell_position)
    # When the text becomes another one, a list still says the name of a token that it had.
    if all(isinstance(part, int) for part in cell):
        state.cell = cell


WORDS = Part(
    "Words",
    words,
    "each row is a token, each column a depth. The cell shows the word that the model would predict if it ended "
    "there. Click a cell to see the other candidates.",
    "the output was trained for the last layer only: earlier layers may know the word in another form. The tuned "
    "lens translates each layer first, but may read what the model itself does not use.",
)

ANSWER = Part(
    "The answer",
    answer,
    "top: the rank of the final word after each layer, for every hidden word and the chosen token. Below, in nats: "
    "how far each layer's prediction is from the final one (KL divergence), and how uncertain it is (entropy).",
    "for a visible token the answer is in the text: a good rank there is not a prediction.",
)
