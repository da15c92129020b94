"""The views of the app in a notebook: after `from viz_app.notebook import view`, `view(run)` ends a cell."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Literal

from bert_core.record import ModelRun
from viz_app.export.maps import MapView
from viz_app.export.page import Theme, attention_page


class AttentionDisplay:
    """A page that Jupyter shows in place; `page` is its HTML, which is also what a file of it would hold."""

    def __init__(self, page: str, height: int) -> None:
        self.page, self.height = page, height

    def _repr_html_(self) -> str:
        # The frame keeps the page's style and script away from the notebook, and has no rights but to run its script.
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" sandbox="allow-scripts" title="Who looks at whom?" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"AttentionDisplay of {len(self.page):,} characters: show it as the last line of a cell of a notebook"


def view(
    run: ModelRun,
    what: str = "attention",
    *,
    part: str = "all",
    hide_special: bool = False,
    words: bool = False,
    renormalise: bool = False,
    layer: int = 0,
    heads: Sequence[int] = (0,),
    mode: Literal["curves", "matrix"] = "curves",
    kept: float = 0.7,
    theme: Theme | None = None,
    height: int = 860,
) -> AttentionDisplay:
    """Every layer and head of a run, to look around in; needs no network, and no Headlight once it is there.

    what: "attention", or with a target "gradient" or "product". part: "all", or from which text to which, as in
    "A to B". hide_special: without [CLS] and [SEP]. words: between words instead of pieces.
    renormalise: rows sum to 1 again where tokens were left out.
    layer, heads, mode, kept: what it opens with. theme: "light" or "dark"; None follows the system. height: in pixels.
    Raises ValueError for a head that does not exist, a part that the text does not have, or a gradient not captured.
    """
    shown = MapView(what, part, hide_special, words, renormalise, layer, tuple(heads), mode, kept)
    return AttentionDisplay(attention_page(run, shown, theme=theme), height)
