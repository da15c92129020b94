"""The views of the app in a notebook: after `from viz_app.notebook import view`, `view(run)` ends a cell."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from bert_core.records import DecoderRun, HeadVectors, ModelRun
from bert_core.refused import Refused
from viz_app.comparison import Comparison
from viz_app.export.bertviz import View, bertviz_page
from viz_app.export.page import Theme, attention_page, caption_page, change_page, maps_page, neuron_page
from viz_app.maps import Maps, MapView, maps_across


class AttentionDisplay:
    """A page that Jupyter shows in place; `page` is its HTML, which is also what a file of it would hold."""

    def __init__(self, page: str, height: int) -> None:
        self.page, self.height = page, height

    def _repr_html_(self) -> str:
        # The frame keeps the page's style and script away from the notebook, and has no rights but to run its script.
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" sandbox="allow-scripts" title="Headlight" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"AttentionDisplay of {len(self.page):,} characters: show it as the last line of a cell of a notebook"


def view(
    run: ModelRun,
    what: str = "attention",
    *,
    vectors: HeadVectors | None = None,
    query: int = 0,
    against: ModelRun | None = None,
    theme: Theme | None = None,
    height: int = 860,
    **choices: Any,
) -> AttentionDisplay:
    """Every layer and head of a run, to look around in; needs no network, and no Headlight once it is there.

    what: "attention", with a target "gradient" or "product", or of a run with norms "brought". choices: what it opens
    with, all that `MapView` takes: layer, heads, mode, kept, words, part, hide_special, renormalise, and together for
    several heads as one map.
    vectors, query: of a head of the same run (`bert_core.head_vectors`): opens at the neuron view of that query.
    against: a run of another text, model or head mask: what that one gives, minus what this one gives, of attention or
        of what is brought.
    theme: "light" or "dark"; None follows the system. height: in pixels.
    Raises Refused for a head that does not exist, a part that the text does not have, a gradient or norms that were not
    captured, or choices that do not go together.
    """
    map_view = MapView(what, **choices)
    if vectors is not None and against is not None:
        raise Refused("vectors and against: the neuron view is of one run, choose one of the two")
    if vectors is not None:
        map_view.check_whole("the neuron view")
        page = neuron_page(run, vectors, query, theme=theme)
    elif against is not None:
        page = change_page(Comparison(run, against, ("this run", "the other run"), what=what), map_view, theme=theme)
    else:
        page = attention_page(run, map_view, theme=theme)
    return AttentionDisplay(page, height)


def view_bertviz(
    run: ModelRun,
    kind: View = "model",
    *,
    vectors: Sequence[HeadVectors] = (),
    layers: Sequence[int] | None = None,
    height: int = 700,
) -> AttentionDisplay:
    """Show BertViz's head, model or neuron view of a run; it loads three scripts from a network when it is shown.

    vectors: for the neuron view, those of all heads (`bert_core.all_head_vectors`). layers: of the head or model view;
    None for all. height: in pixels.
    Raises Refused for a page that a browser cannot open, and for vectors that are missing; see `bertviz_page`.
    """
    return AttentionDisplay(bertviz_page(MapView().of(run), kind, layers, vectors), height)


def view_caption(
    run: DecoderRun,
    what: str = "attention",
    *,
    head: tuple[int, int] | None = None,
    word: int = 0,
    theme: Theme | None = None,
    height: int = 1100,
) -> AttentionDisplay:
    """Where a captioner looked for each word of its sentence (`bert_core.describe`), over its picture.

    what: "attention", "gradient" or "product", what of it is above zero. head: (layer, head) to open, None for the
    average of all. word: the one to begin with. Raises Refused for a word or head that does not exist.
    """
    return AttentionDisplay(caption_page(run, what, head, word, theme=theme), height)


def view_maps(
    maps: Maps,
    queries: Sequence[str],
    keys: Sequence[str],
    what: str = "attention",
    *,
    theme: Theme | None = None,
    height: int = 860,
    **choices: Any,
) -> AttentionDisplay:
    """Maps from anywhere in the same view, also across: from the tokens of one text to those of another.

    maps: (layer, head, query, key), or the attentions of a model of transformers, for each layer (batch, head, query,
    key) with a batch of 1; arrays, or tensors of any device and number type, with gradients too.
    queries, keys: a name for each row and column. what: "attention", whose rows sum to 1, "gradient", "product",
    "brought" or "change". choices: layer, heads, mode and kept, as `MapView` takes them.
    Raises Refused for names that do not fit the maps, several texts, numbers that are not finite, rows of attention
    that do not sum to 1, or as `view`.
    """
    return AttentionDisplay(maps_page(maps_across(maps, queries, keys, what), MapView(**choices), theme=theme), height)
