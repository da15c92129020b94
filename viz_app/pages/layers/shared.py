"""Parts of the page that several views have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bert_core.loading import LoadedModel
from bert_core.records import LayerStates
from bert_core.run.lens import layer_states
from bert_core.tokenizer import Encoding
from viz_app.figures.lens import layer_lines
from viz_app.shell.view import chart
from viz_app.shell.work import work

TALL, LOW = 420, 210  # heights of figures, in pixels
LOW_SHARE = 0.34  # of its height in a lecture that a low figure needs


@work("{model} encodes {encoding} tokens")
def hidden_states(model: LoadedModel, encoding: Encoding, head_mask: np.ndarray) -> LayerStates:
    """Compute the hidden states of a text at every depth."""
    return layer_states(model, encoding, head_mask=head_mask)


def draw_lines(
    key: str,
    series: Mapping[str, np.ndarray],
    depths: Sequence[str],
    title: str,
    *,
    ranks: bool = False,
    height: int = TALL,
) -> None:
    """Draw a line for each series, (depth,) each, under its name.

    depths: their names. ranks: as in `layer_lines`. height: in pixels.
    """
    figure = layer_lines(series, depths, title=title, ranks=ranks, height=height)
    chart(figure, key=key, alt=f"{title}, layer by layer", min_share=LOW_SHARE if height == LOW else 0.5)
