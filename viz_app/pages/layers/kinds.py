"""The view Token types: the attention that each kind of token receives, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.analysis.kinds import KindFigures, kind_figures, kind_names
from viz_app.figures.style import current_look
from viz_app.pages.layers import TEXTS
from viz_app.pages.layers.shared import draw_lines
from viz_app.shell.downloads import add_numbers
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.token_range import show_whole_needed
from viz_app.shell.view import View, write_result


def draw(page: View, row: DeltaGenerator) -> None:
    """Draw the share of attention and the size of the gradient of each kind of token, layer by layer."""
    selection = page.selection
    if show_whole_needed(selection):
        return
    figures = _figures(selection)
    layers = [f"L{layer}" for layer in range(len(figures.share))]
    names = kind_names(selection.encoding.special_tokens)
    present = _present(figures, names)
    with page.figure():
        write_result(*_describe_largest_share(figures, names))
        left, right = st.columns(2, gap="medium")
        with left:
            # In a lecture these names would need a line each.
            shares = [f" ({figures.tokens[n]:.0%} of tokens)" * (not current_look().lecture) for n in present]
            lines = {f"{names[n]}{share}": figures.share[:, n] for n, share in zip(present, shares, strict=True)}
            draw_lines("kind_share", lines, layers, "share of attention received")
        with right:
            if figures.gradient is None:
                show_missing_target(selection, TEXTS["no_target"])
            else:
                gradient = {names[n]: figures.gradient[:, n] for n in present}
                draw_lines("kind_gradient", gradient, layers, "mean absolute gradient of the target")
    add_numbers("kinds", lambda: _columns(selection))


def _figures(selection: Selection) -> KindFigures:
    run = selection.run(gradients=selection.target is not None)
    return kind_figures(run.attention, run.gradient, selection.encoding)


def _present(figures: KindFigures, names: Sequence[str]) -> list[int]:
    return [number for number in range(len(names)) if figures.tokens[number] > 0]


def _describe_largest_share(figures: KindFigures, names: Sequence[str]) -> tuple[str, str]:
    """Describe the kind, apart from the last, that receives the largest share of attention in any layer."""
    shares = figures.share[:, :-1]
    layer, kind = divmod(int(shares.argmax()), shares.shape[1])
    heading = f"{names[kind]} receives {figures.share[layer, kind]:.0%} of the attention in L{layer}"
    line = f"It is {figures.tokens[kind]:.0%} of the tokens."
    if figures.gradient is None:
        return heading, line
    gradient, word_gradient = figures.gradient[layer, [kind, -1]]
    if word_gradient <= 0:
        return heading, f"{line} The gradient at other words is zero there."
    return heading, f"{line} The gradient there is {gradient / word_gradient:.2g} times that at other words."


def _columns(selection: Selection) -> dict[str, Sequence[object]]:
    """Return the figures of every layer and kind as the columns of a table."""
    figures, names = _figures(selection), kind_names(selection.encoding.special_tokens)
    present, layers = _present(figures, names), range(len(figures.share))
    arrays = {"share_of_attention": figures.share, "mean_size_of_gradient": figures.gradient}
    return {
        "layer": [layer for layer in layers for _ in present],
        "kind": [names[n] for n in present] * len(layers),
        **{name: [*array[:, present].flat] for name, array in arrays.items() if array is not None},
    }
