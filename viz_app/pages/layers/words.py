"""What the page Layers shows: the word head at every layer, states in the plane, one word in many sentences, kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.kinds import KINDS, kind_figures
from bert_core.analysis.lens import (
    MOST_NEIGHBOURS,
    cosine_similarities,
    mean_similarity,
    neighbours_in_plane,
    settled_depth,
    states_in_plane,
)
from bert_core.checkpoint import CheckpointError
from bert_core.records import LayerStates, LensRun
from bert_core.refused import Refused
from bert_core.run.lens import layer_states, logit_lens
from bert_core.tokenizer import MASK, Encoding
from bert_core.translators import Translators, read_translators
from viz_app.export.tables import labelled_csv
from viz_app.figures.lens import (
    ROWS_THAT_FIT,
    depth_names,
    layer_lines,
    lens_grid,
    lens_width,
    short_names,
    similarity_matrix,
    state_map,
)
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.stages import window
from viz_app.figures.style import ordinal
from viz_app.shell import examples, screen
from viz_app.shell.controls import control, missing
from viz_app.shell.jobs import Job
from viz_app.shell.question import Question
from viz_app.shell.session import (
    BY,
    LENSES,
    PLANES,
    as_written,
    asked_for,
    kept,
    queue,
    result_of,
    shown_name,
    still_running,
    surprise,
)
from viz_app.shell.target import say_no_target

SHOWN_WORDS = 12
MOST_BESIDE = 9  # depths that leave room for a distribution beside them
FOLLOWED_POSITIONS = 6
MOST_SENTENCES, LONGEST_SENTENCE = 20, 2_000
QUICK = 2.0  # seconds that nobody is asked for
A_SECOND = 6e9  # multiplications of the word head, with all that is read off its scores, on two cores
CONTEXT = 3  # words on either side of the word that is compared
BY_NAMES = {
    "probability": "Probability",
    "divergence": "Distance to the end (KL)",
    "entropy": "Uncertainty (entropy)",
    "rank": "Rank of the final word",
}
LENS_NAMES = {"logit": "Logit lens", "tuned": "Tuned lens"}
PLANE_NAMES = {"axes": "Principal components (PCA)", "neighbours": "Neighbours (UMAP)"}
NEIGHBOURS = f"UMAP by cosine distance, with at most {MOST_NEIGHBOURS} neighbours and a fixed seed."


@dataclass(frozen=True)
class Part:
    """One way to look through the layers: its name, what draws it, and two lines on reading it."""

    title: str
    draw: Callable[[Question], None]
    reading: str
    misleading: str


# ---------------------------------------------------------------------------- what is asked


def lens_run(current: Question, position: int) -> LensRun:
    """What the chosen lens reads, from the queue: everywhere, where that is quick, or when its button is clicked.

    Until then, around a position and at the first masks. Raises ValueError for a model without a word head.
    """
    loaded, encoding, gates = current.loaded, current.encoding, current.head_mask
    length = len(encoding)
    maps = _translators(current) if st.session_state.lens == "tuned" else None
    config, depths = loaded.config, loaded.config.num_hidden_layers + 1
    seconds = length * depths * config.hidden_size * config.vocab_size / A_SECOND
    key = ("lens", loaded.name, encoding, current.original.input_ids, maps is not None, gates.tobytes())
    if seconds <= QUICK:
        return _read(_lens_job(current, key, maps, range(length)))
    label = f"Read all {length} tokens at {depths} depths, about {seconds:.0f} s"
    if asked_for("lens", key, label):
        job = _lens_job(current, key, maps, range(length))
        if not still_running(job, lambda: st.session_state.pop("_asked_lens", None)):
            return _read(job)
    around = range(length)[window(length, position, ROWS_THAT_FIT)]
    some = sorted({*around, *encoding.mask_positions[:FOLLOWED_POSITIONS]})
    return _read(_lens_job(current, key, maps, some))


def _lens_job(current: Question, key: tuple[Any, ...], maps: Translators | None, positions: Sequence[int]) -> Job:
    loaded = current.loaded
    return queue().submit(
        (*key, tuple(positions)),
        f"{shown_name(loaded.name)} read at every layer",
        lambda job: logit_lens(
            loaded, current.encoding, positions=positions, translators=maps, followed=current.original.input_ids,
            top_k=SHOWN_WORDS, head_mask=current.head_mask, report=job.report,
        ),
    )  # fmt: skip


def _read(job: Job) -> LensRun:
    run: LensRun = result_of(job)
    st.session_state["_seconds"] = job.seconds
    return run


def _lens_columns(current: Question, run: LensRun) -> dict[str, Sequence[object]]:
    """Everything that is known of every cell, as the columns of a table: depth by depth, token by token."""
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


def _take_along(name: str, columns: Callable[[], dict[str, Sequence[object]]]) -> None:
    st.download_button(
        "Numbers (CSV)", lambda: labelled_csv(columns()), f"{name}.csv", "text/csv", on_click="ignore",
        icon=":material/table:", key=f"{name}_csv",
    )  # fmt: skip


def _translators(current: Question) -> Translators | None:
    """Those of the chosen model, or None where it has none; a file that does not fit is said and left out."""
    loaded = current.loaded
    try:
        found: Translators | None = kept(("translators", loaded.name), lambda: read_translators(loaded))
    except CheckpointError as error:
        st.warning(as_written(f"{error}."), icon=":material/link_off:")
        return None
    return found


def _states(current: Question, encoding: Encoding) -> LayerStates:
    loaded, gates = current.loaded, current.head_mask
    job = queue().submit(
        ("states", loaded.name, encoding, gates.tobytes()),
        f"{shown_name(loaded.name)} reads {len(encoding)} tokens",
        lambda _: layer_states(loaded, encoding, head_mask=gates),
    )
    states: LayerStates = result_of(job)
    return states


# ---------------------------------------------------------------------------- the word head at every layer


def words(current: Question) -> None:
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
    st.markdown(story(current, run, position))
    if len(names) > MOST_BESIDE:  # many layers have the whole width
        grid, cell = screen.picture().container(), st.container()
    else:
        grid, cell = screen.picture().columns([8, 3.4], gap="medium")
    with grid:
        if len(places) < len(encoding):
            st.caption(f"Tokens {shown.start} to {shown.stop - 1} of {len(encoding)}, around the chosen one.")
        screen.chart(
            lens_grid(
                [[current.word(int(run.top[d, row, 0])) for d in range(len(names))] for row in rows],
                values[:, rows].T,
                [encoding.labels[p] for p in places],
                [[_hover(current, run, names[d], d, row) for d in range(len(names))] for row in rows],
                places,
                highest=1.0 if state.by in ("probability", "rank") else None,
                chosen=(position, depth),
                unit=unit,
                dark=current.dark,
                lecture=current.lecture,
            ),
            key="lens_grid",
            least_width=lens_width(len(names), lecture=current.lecture),
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
        screen.chart(
            prediction_bars(
                [current.word(int(token)) for token in run.top[depth, row]], likely,
                dark=current.dark, lecture=current.lecture,
            ),
            key="lens_cell", config={"displayModeBar": False},
            alt=f"The likeliest words at {encoding.labels[position]} {names[depth]}",
        )  # fmt: skip
        final, stood = current.word(int(run.final[row])), current.word(run.followed[row])
        st.caption(
            f"All other pieces together: {max(1 - sum(likely), 0):.2g}. The model's final word {_quoted(final)} ranks "
            f"**{ordinal(int(run.final_rank[depth, row]))}** here"
            + (
                "."
                if stood in (final, MASK)  # where a [MASK] was typed, no word stood
                else f"; {_quoted(stood)}, the word of the text, ranks "
                f"**{ordinal(int(run.followed_rank[depth, row]))}**."
            )
            + f" Distance to the final prediction (KL): {run.divergence[depth, row]:.2f} nats. Uncertainty (entropy): "
            f"{run.entropy[depth, row]:.2f} nats."
        )
    _take_along("words", lambda: _lens_columns(current, run))


def story(current: Question, run: LensRun, position: int) -> str:
    """When the model knows its answer at a position, in a sentence; and what is surprising about the example."""
    why = surprise("layers") if position in current.encoding.mask_positions else ""
    return f"{_settling(current, run, position)} {why}"


def _settling(current: Question, run: LensRun, position: int) -> str:
    names = depth_names(len(run.top))
    row = run.positions.index(position)
    settled = int(settled_depth(run.final_rank)[row])
    final = _quoted(current.word(int(run.final[row])))
    before = [current.word(int(run.top[depth, row, 0])) for depth in range(settled)]
    hidden = current.encoding.hidden_piece(position)
    where = f"At position {position}" + ("" if hidden is None else f" ({_quoted(hidden)} is hidden)") + f", {final}"
    if settled == 0:
        return f"{where} is in first place from the embeddings on: no layer changes that."
    changes = [word for place, word in enumerate(before) if place == 0 or word != before[place - 1]]
    path = " → ".join(map(_quoted, changes[-6:]))
    return f"{where} takes first place **{names[settled]}** and keeps it. Before that, the lens reads {path}."


def answer(current: Question) -> None:
    """How the final word rises, how far each layer is from the end, and how sure it is."""
    if _has_no_head(current):
        return
    _lens_controls(current, colours=False)
    position = chosen_cell(current)[1]
    run, encoding = lens_run(current, position), current.encoding
    names = short_names(len(run.top))
    st.markdown(story(current, run, position))
    places = list(dict.fromkeys([*encoding.mask_positions[:FOLLOWED_POSITIONS], position]))
    ranks: dict[str, np.ndarray] = {}
    rows = {place: run.positions.index(place) for place in places}
    for place, row in rows.items():
        final, stood = int(run.final[row]), run.followed[row]
        ranks[f"{current.word(final)} at {place}"] = run.final_rank[:, row]
        if stood != final and current.original.tokens[place] != encoding.tokens[place]:
            ranks[f"{current.word(stood)} at {place}, hidden word"] = run.followed_rank[:, row]
    _lines(current, "ranks", ranks, names, "rank of the word (1 on top)", ranks=True)
    left, right = st.columns(2, gap="medium")
    tokens = {place: f"{encoding.labels[place]} ({place})" for place in places}
    with left:
        _lines(
            current,
            "kl",
            {n: run.divergence[:, rows[p]] for p, n in tokens.items()},
            names,
            "distance to the end (KL, nats)",
        )
    with right:
        _lines(
            current,
            "entropy",
            {n: run.entropy[:, rows[p]] for p, n in tokens.items()},
            names,
            "uncertainty (entropy, nats)",
        )
    _take_along("answer", lambda: _lens_columns(current, run))


def _has_no_head(current: Question) -> bool:
    """Whether there is nothing to read layers with; then the page says so."""
    if current.loaded.has_mlm:
        return False
    name = as_written(shown_name(current.loaded.name))
    st.info(
        f"{name} has no trained masked-word output, so its layers cannot be read as words. The other views work "
        "without it."
    )
    return True


def _lens_controls(current: Question, *, colours: bool) -> None:
    state = st.session_state
    has_tuned = _translators(current) is not None
    if not has_tuned:
        state.lens = "logit"
    left, right = screen.controls().columns([3, 6], vertical_alignment="bottom")
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


def _hover(current: Question, run: LensRun, name: str, depth: int, row: int) -> list[str]:
    first = [
        f"{current.word(int(token))} {likely:.3g}"
        for token, likely in zip(run.top[depth, row, :3], run.probabilities[depth, row, :3], strict=True)
    ]
    return [
        f"{current.encoding.labels[run.positions[row]]} ({run.positions[row]}), {name}", ", ".join(first),
        f"final word {current.word(int(run.final[row]))}: rank {run.final_rank[depth, row]:,}",
        f"KL to the end {run.divergence[depth, row]:.4g} nats, entropy {run.entropy[depth, row]:.4g} nats",
    ]  # fmt: skip


def chosen_cell(current: Question) -> tuple[int, int]:
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
    state.cell = (state.cell_depth, state.cell_position)


# ---------------------------------------------------------------------------- states


def plane(current: Question) -> None:
    """All tokens' states in the plane, one depth at a time."""
    encoding, state = current.encoding, st.session_state
    has_umap = find_spec("umap") is not None
    if not has_umap:
        state.laid = "axes"
    control(
        st.segmented_control, "Layout", "laid", options=PLANES,
        format_func=PLANE_NAMES.__getitem__, required=True, disabled=not has_umap,
        help=NEIGHBOURS if has_umap else "Neighbours need umap-learn: pip install 'headlight[umap]'",
    )  # fmt: skip
    states = _states(current, encoding).states
    if state.laid == "axes":
        found = current.kept("plane", make=lambda: states_in_plane(states))
        points, axes = found.points, ("first axis", "second axis")
    else:
        try:
            points, axes = _neighbours(current, states), ("", "")
        except Refused as error:
            st.info(f"{error}: choose principal components for this text.")
            return
    depth = _depth_slider(len(points))
    groups = [
        "hidden"
        if place in encoding.mask_positions
        else {"A": "first sentence", "B": "second sentence"}.get(side or "") or "[CLS], [SEP]"
        for place, side in enumerate(encoding.sides)
    ]
    screen.chart(
        state_map(points[depth], encoding.labels, groups, axes=axes, dark=current.dark, lecture=current.lecture),
        key="plane", config={"displayModeBar": False},
        alt=f"The states of {len(encoding)} tokens in the plane, {depth_names(len(points))[depth]}",
    )  # fmt: skip
    if state.laid == "axes":
        st.caption(f"These two axes hold {found.shown[depth]:.0%} of the variance at this depth.")
    else:
        st.caption(NEIGHBOURS)
    length, names = len(encoding), short_names(len(points))
    _take_along(
        "states",
        lambda: {
            "depth": [name for name in names for _ in range(length)],
            "position": [*range(length)] * len(names),
            "token": [*encoding.tokens] * len(names),
            "first_axis": [*points[..., 0].flat],
            "second_axis": [*points[..., 1].flat],
        },
    )


def _neighbours(current: Question, states: np.ndarray) -> np.ndarray:
    """The layout by neighbours, from the queue. Raises ValueError for a text that is too short."""
    loaded, encoding, gates = current.loaded, current.encoding, current.head_mask
    job = queue().submit(
        ("neighbours", loaded.name, encoding, gates.tobytes()),
        f"{len(encoding)} tokens of {len(states)} depths are laid out by their neighbours",
        lambda job: neighbours_in_plane(states, report=job.report),
    )
    points: np.ndarray = result_of(job)
    return points


def _take_sentences() -> None:
    st.session_state.several, st.session_state.like = examples.SEVERAL, examples.LIKE


def sentences(current: Question) -> None:
    """How alike the states of one word are in several sentences."""
    state = st.session_state
    left, right = st.columns([5, 2])
    control(left.text_area, "Sentences, one per line", "several", height="content")
    control(right.text_input, "Word to compare", "like")
    lines = [line.strip() for line in state.several.splitlines() if line.strip()]
    if len(lines) > MOST_SENTENCES or any(len(line) > LONGEST_SENTENCE for line in lines):
        st.error(
            f"There are {len(lines)} sentences, the longest with {max(map(len, lines)):,} characters: at most "
            f"{MOST_SENTENCES} sentences of {LONGEST_SENTENCE:,} characters can be compared."
        )
        return
    vectors, labels, everything = [], [], []
    for number, line in enumerate(lines, start=1):
        encoding = current.loaded.tokenizer.encode(line, max_length=current.loaded.config.max_position_embeddings)
        places = _occurrences(encoding, state.like)
        if not places:
            st.warning(f"Sentence {number} does not contain {_quoted(state.like.strip())} and is left out.")
            continue
        states = _states(current, encoding).states
        everything.append(states[:, [place for place, special in enumerate(encoding.special) if not special]])
        for word in places:
            vectors.append(states[:, list(encoding.pieces_of(word))].mean(1))
            labels.append(_in_context(encoding, word))
    if len(vectors) < 2:
        missing(
            "Give at least two sentences that contain the word, or one that contains it twice.",
            f"Four sentences with “{examples.LIKE}”", _take_sentences,
        )  # fmt: skip
        return
    similar = cosine_similarities(np.stack(vectors, 1))
    common = mean_similarity(np.concatenate(everything, 1))
    depth = _depth_slider(len(similar))
    matrix, lines_through = st.columns([6, 5], gap="medium")
    with matrix:
        screen.chart(
            similarity_matrix(similar[depth], labels, dark=current.dark, lecture=current.lecture),
            key="similar", config={"displayModeBar": False},
            alt=f"Cosine similarity of {len(labels)} occurrences, {depth_names(len(similar))[depth]}",
        )  # fmt: skip
    with lines_through:
        pairs = [(i, j) for i in range(len(labels)) for j in range(i)]
        # The pairs that end furthest apart and nearest, and what any two words have in common.
        order = sorted(pairs, key=lambda pair: similar[-1][pair])
        drawn = dict.fromkeys([*order[-2:][::-1], *order[:2]])
        series = {f"{min(pair) + 1} and {max(pair) + 1}": similar[:, *pair] for pair in drawn}
        _lines(current, "similar_lines", {**series, "any two words": common}, short_names(len(similar)), "cosine")
    names = short_names(len(similar))
    _take_along(
        "sentences",
        lambda: {
            "depth": [name for name in names for _ in pairs],
            "one": [labels[j] for _, j in pairs] * len(names),
            "other": [labels[i] for i, _ in pairs] * len(names),
            "cosine": [similar[depth, i, j] for depth in range(len(names)) for i, j in pairs],
        },
    )


def _occurrences(encoding: Encoding, word: str) -> list[int]:
    """The words of a text that are this word, whatever their case."""
    wanted = word.strip().casefold()
    return [n for n in range(encoding.word_count) if wanted and encoding.word_text(n).casefold() == wanted]


def _in_context(encoding: Encoding, word: int) -> str:
    """A word with some of its neighbours."""
    around = range(max(word - CONTEXT, 0), min(word + CONTEXT + 1, encoding.word_count))
    return " ".join(f"‹{encoding.word_text(n)}›" if n == word else encoding.word_text(n) for n in around)


def _depth_slider(depths: int) -> int:
    """The chosen depth, from the slider; the last to begin with."""
    state, names = st.session_state, depth_names(depths)
    state.depth_slider = state.depth if state.depth is not None and 0 <= state.depth < depths else depths - 1
    depth: int = control(
        st.select_slider,
        "Through the layers",
        "depth_slider",
        options=range(depths),
        format_func=names.__getitem__,
        on_change=_take_depth,
    )
    return depth


def _take_depth() -> None:
    st.session_state.depth = st.session_state.depth_slider


# ---------------------------------------------------------------------------- kinds of tokens


def kinds(current: Question) -> None:
    """Where attention goes by kind of token, and how much it would matter there."""
    run = current.run(gradients=current.target is not None)
    found = kind_figures(run.attention, run.gradient, current.encoding)
    layers = [f"L{layer}" for layer in range(len(found.share))]
    there = [(number, name) for number, name in enumerate(KINDS) if found.tokens[number] > 0]
    left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("Where attention goes", anchor=False)
        share = {f"{name} ({found.tokens[n]:.0%} of tokens)": found.share[:, n] for n, name in there}
        _lines(current, "kind_share", share, layers, "share of attention")
    with right:
        st.subheader("How much it matters", anchor=False)
        if found.gradient is None:
            say_no_target(current, "A gradient needs something to explain")
        else:
            gradient = {name: found.gradient[:, n] for n, name in there}
            _lines(current, "kind_gradient", gradient, layers, "sensitivity of the answer (mean size of the gradient)")
    # The kind, apart from the rest, that draws the most attention in any layer.
    most, kind = np.unravel_index(int(found.share[:, :-1].argmax()), found.share[:, :-1].shape)
    st.markdown(
        f"{KINDS[kind]} is {found.tokens[kind]:.0%} of the tokens and gets **{found.share[most, kind]:.0%}** of the "
        f"attention of L{most}"
        + (
            "."
            if found.gradient is None
            else f"; the gradient there is {_times(found.gradient[most, kind], found.gradient[most, -1])} that at "
            "other words."
        )
    )
    figures = {"share_of_attention": found.share}
    if found.gradient is not None:
        figures["mean_size_of_gradient"] = found.gradient
    _take_along(
        "kinds",
        lambda: {
            "layer": [layer for layer in range(len(layers)) for _ in there],
            "kind": [name for _, name in there] * len(layers),
            **{
                what: [table[layer, n] for layer in range(len(layers)) for n, _ in there]
                for what, table in figures.items()
            },
        },
    )


def _times(one: float, other: float) -> str:
    return "not comparable with" if not other > 0 else f"{one / other:.2g} times"


def _lines(
    current: Question, key: str, series: dict[str, np.ndarray], names: list[str], title: str, *, ranks: bool = False
) -> None:
    screen.chart(
        layer_lines(series, names, title=title, ranks=ranks, dark=current.dark, lecture=current.lecture),
        key=key, config={"displayModeBar": False}, alt=f"{title} through the layers",
    )  # fmt: skip


def _quoted(word: str) -> str:
    return f"“{as_written(word)}”"


PARTS = {
    "words": Part(
        "Words",
        words,
        "each row is a token, each column a depth. The cell shows the word that the model would predict if it ended "
        "there. Click a cell to see the other candidates.",
        "the output was trained for the last layer only: earlier layers may know the word in another form. The tuned "
        "lens translates each layer first, but may read what the model itself does not use.",
    ),
    "answer": Part(
        "The answer",
        answer,
        "top: the rank of the final word after each layer, for every hidden word and the chosen token. Below: how far "
        "each layer's prediction is from the final one (KL divergence), and how uncertain it is (entropy).",
        "for a visible token the answer is in the text: a good rank there is not a prediction.",
    ),
    "states": Part(
        "States",
        plane,
        "each point is a token's state. PCA: the two directions in which the states of this depth differ most, rotated "
        "to match the layer before. UMAP: laid out so that similar states stay close, starting from the layer before.",
        "only two of hundreds of directions: points that look close may be far apart, and each depth has its own axes. "
        "With UMAP, gaps and group sizes mean nothing, and chance shapes the picture.",
    ),
    "sentences": Part(
        "One word in several sentences",
        sentences,
        "how similar the word's states are in each two sentences: a cosine of 1 is the same direction. In the "
        "embeddings they differ by position only; the layers move them apart by context.",
        "all states share a common direction, so even unrelated words look similar: compare with the line “any two "
        "words”.",
    ),
    "kinds": Part(
        "Kinds of tokens",
        kinds,
        "left: the share of attention that goes to [CLS], [SEP], punctuation and all other tokens. Right: how "
        "sensitive the answer is to that attention (mean size of its gradient).",
        "much attention with a small gradient is where heads look when they have nothing to do (Clark 2019); but this "
        "is one text and one answer only.",
    ),
}
