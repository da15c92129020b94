"""Where attention goes by kind of token, and how much it would matter there."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.analysis.kinds import kind_figures, kind_names
from viz_app.pages.layers.shared import Part, draw_lines, take_along
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.view import write_heading, write_line


def kinds(current: Selection) -> None:
    """Where attention goes by kind of token, and how much it would matter there."""
    run = current.run(gradients=current.target is not None)
    by_kind = kind_figures(run.attention, run.gradient, current.encoding)
    layers = [f"L{layer}" for layer in range(len(by_kind.share))]
    names = kind_names(current.encoding.special_tokens)
    present = [(number, name) for number, name in enumerate(names) if by_kind.tokens[number] > 0]
    left, right = st.columns(2, gap="medium")
    with left:
        write_heading("Where attention goes")
        share = {f"{name} ({by_kind.tokens[n]:.0%} of tokens)": by_kind.share[:, n] for n, name in present}
        draw_lines(current, "kind_share", share, layers, "share of attention")
    with right:
        write_heading("How much it matters")
        if by_kind.gradient is None:
            show_missing_target(current, "A gradient needs something to explain")
        else:
            gradient = {name: by_kind.gradient[:, n] for n, name in present}
            draw_lines(
                current, "kind_gradient", gradient, layers, "sensitivity of the answer (mean size of the gradient)"
            )
    # The kind, apart from the rest, that draws the most attention in any layer.
    most, kind = np.unravel_index(int(by_kind.share[:, :-1].argmax()), by_kind.share[:, :-1].shape)
    write_line(
        f"{names[kind]} is {by_kind.tokens[kind]:.0%} of the tokens and gets "
        f"**{by_kind.share[most, kind]:.0%}** of the attention of L{most}"
        + (
            "."
            if by_kind.gradient is None
            else f"; the gradient there is {_times(by_kind.gradient[most, kind], by_kind.gradient[most, -1])} that at "
            "other words."
        )
    )
    figures = {"share_of_attention": by_kind.share}
    if by_kind.gradient is not None:
        figures["mean_size_of_gradient"] = by_kind.gradient
    take_along(
        "kinds",
        lambda: {
            "layer": [layer for layer in range(len(layers)) for _ in present],
            "kind": [name for _, name in present] * len(layers),
            **{
                what: [table[layer, n] for layer in range(len(layers)) for n, _ in present]
                for what, table in figures.items()
            },
        },
    )


def _times(one: float, other: float) -> str:
    return "not comparable with" if not other > 0 else f"{one / other:.2g} times"


PART = Part(
    "Kinds of tokens",
    kinds,
    "left: the share of attention that goes to [CLS], [SEP], punctuation and all other tokens. Right: how "
    "sensitive the answer is to that attention (mean size of its gradient).",
    "much attention with a small gradient is where heads look when they have nothing to do (Clark 2019); but this "
    "is one text and one answer only.",
)
