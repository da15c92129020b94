"""Where attention goes by kind of token, and how much it would matter there."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.analysis.kinds import TOKEN_KINDS, kind_figures
from viz_app.pages.layers.shared import Part, draw_lines, take_along
from viz_app.shell.question import Question
from viz_app.shell.target import say_no_target


def kinds(current: Question) -> None:
    """Where attention goes by kind of token, and how much it would matter there."""
    run = current.run(gradients=current.target is not None)
    found = kind_figures(run.attention, run.gradient, current.encoding)
    layers = [f"L{layer}" for layer in range(len(found.share))]
    there = [(number, name) for number, name in enumerate(TOKEN_KINDS) if found.tokens[number] > 0]
    left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("Where attention goes", anchor=False)
        share = {f"{name} ({found.tokens[n]:.0%} of tokens)": found.share[:, n] for n, name in there}
        draw_lines(current, "kind_share", share, layers, "share of attention")
    with right:
        st.subheader("How much it matters", anchor=False)
        if found.gradient is None:
            say_no_target(current, "A gradient needs something to explain")
        else:
            gradient = {name: found.gradient[:, n] for n, name in there}
            draw_lines(
                current, "kind_gradient", gradient, layers, "sensitivity of the answer (mean size of the gradient)"
            )
    # The kind, apart from the rest, that draws the most attention in any layer.
    most, kind = np.unravel_index(int(found.share[:, :-1].argmax()), found.share[:, :-1].shape)
    st.markdown(
        f"{TOKEN_KINDS[kind]} is {found.tokens[kind]:.0%} of the tokens and gets **{found.share[most, kind]:.0%}** of "
        f"the attention of L{most}"
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
    take_along(
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


PART = Part(
    "Kinds of tokens",
    kinds,
    "left: the share of attention that goes to [CLS], [SEP], punctuation and all other tokens. Right: how "
    "sensitive the answer is to that attention (mean size of its gradient).",
    "much attention with a small gradient is where heads look when they have nothing to do (Clark 2019); but this "
    "is one text and one answer only.",
)
