"""The part Kinds of tokens: the attention that each kind of token gets, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence

from bert_core.analysis.kinds import KindFigures, kind_figures, kind_names
from viz_app.pages.layers.shared import add_numbers, draw_lines
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.view import View, write_heading, write_line

READING = (
    "**How to read this:** left: the share of attention that goes to [CLS], [SEP], punctuation and all other tokens. "
    "Right: how sensitive the answer is to that attention (mean size of its gradient). **How it can mislead:** much "
    "attention with a small gradient is where heads look when they have nothing to do (Clark 2019); but this is one "
    "text and one answer only."
)


def draw(page: View) -> None:
    """Draw the share of attention and the size of the gradient of each kind of token, layer by layer."""
    selection = page.selection
    figures = _figures(selection)
    layers = [f"L{layer}" for layer in range(len(figures.share))]
    names = kind_names(selection.encoding.special_tokens)
    present = _present(figures, names)
    left, right = page.figure().columns(2, gap="medium")
    with left:
        write_heading("Where attention goes")
        share = {f"{names[n]} ({figures.tokens[n]:.0%} of tokens)": figures.share[:, n] for n in present}
        draw_lines("kind_share", share, layers, "share of attention")
    with right:
        write_heading("How much it matters")
        if figures.gradient is None:
            show_missing_target(selection, "A gradient needs something to explain")
        else:
            gradient = {names[n]: figures.gradient[:, n] for n in present}
            draw_lines("kind_gradient", gradient, layers, "sensitivity of the answer (mean size of the gradient)")
    write_line(_describe_largest_share(figures, names))
    add_numbers("kinds", lambda: _columns(selection))


def _figures(selection: Selection) -> KindFigures:
    run = selection.run(gradients=selection.target is not None)
    return kind_figures(run.attention, run.gradient, selection.encoding)


def _present(figures: KindFigures, names: Sequence[str]) -> list[int]:
    return [number for number in range(len(names)) if figures.tokens[number] > 0]


def _describe_largest_share(figures: KindFigures, names: Sequence[str]) -> str:
    """Describe the kind, apart from the last, that gets the largest share of attention in any layer."""
    shares = figures.share[:, :-1]
    layer, kind = divmod(int(shares.argmax()), shares.shape[1])
    sentence = (
        f"{names[kind]} is {figures.tokens[kind]:.0%} of the tokens and gets **{figures.share[layer, kind]:.0%}** of "
        f"the attention of L{layer}"
    )
    if figures.gradient is not None:
        gradient, word_gradient = figures.gradient[layer, [kind, -1]]
        ratio = f"{gradient / word_gradient:.2g} times" if word_gradient > 0 else "not comparable with"
        sentence += f"; the gradient there is {ratio} that at other words"
    return f"{sentence}."


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
