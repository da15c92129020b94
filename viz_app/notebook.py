"""The views of the app in a notebook: after `from viz_app.notebook import view`, `view(run)` ends a cell."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from bert_core.deprecation import renamed_parameters
from bert_core.records import DecoderRun, HeadVectors, ModelRun
from bert_core.refused import Refused
from viz_app.comparison import Comparison
from viz_app.export.bertviz import View, bertviz_page
from viz_app.export.markup import Theme
from viz_app.export.page import attention_page, caption_page, change_page, maps_page, neuron_page
from viz_app.maps import Maps, MapView, maps_across


class AttentionDisplay:
    """A page that Jupyter displays below a cell. page: its HTML, the same as in an exported file."""

    def __init__(self, page: str, height: int) -> None:
        self.page, self.height = page, height

    def _repr_html_(self) -> str:
        # The frame isolates the page from the notebook; it may run its script, and nothing else.
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" sandbox="allow-scripts" title="Headlight" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"AttentionDisplay of {len(self.page):,} characters: show it as the last line of a cell of a notebook"


@renamed_parameters(what="quantity", against="compared_run", kept="kept_share", together="combination")
def view(
    run: ModelRun,
    quantity: str = "attention",
    *,
    vectors: HeadVectors | None = None,
    query: int = 0,
    compared_run: ModelRun | None = None,
    theme: Theme | None = None,
    height: int = 860,
    **choices: Any,
) -> AttentionDisplay:
    """Display every layer and head of a run; the page needs neither a network nor Headlight once it is displayed.

    quantity: "attention", with a target "gradient" or "product", or of a run with norms "brought". choices: further
        arguments of `MapView`: layer, heads, mode, kept_share, words, part, hide_special, renormalise and combination.
    vectors, query: of a head of the same run (`bert_core.head_vectors`): opens the neuron view of that query.
    compared_run: a run of another text, model or head mask: displays its attention (or length brought) minus that of
        `run`.
    theme: "light" or "dark"; None follows the system. height: in pixels.
    Raises Refused for a head that does not exist, a part that the text does not have, a gradient or norms that were not
    captured, or choices that do not go together.
    """
    map_view = MapView(quantity, **choices)
    if vectors is not None and compared_run is not None:
        raise Refused("vectors and compared_run: the neuron view is of one run, choose one of the two")
    if vectors is not None:
        map_view.check_whole("the neuron view")
        page = neuron_page(run, vectors, query, theme=theme)
    elif compared_run is not None:
        page = change_page(
            Comparison(run, compared_run, ("this run", "the other run"), quantity=quantity), map_view, theme=theme
        )
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
    """Display the head, model or neuron view of BertViz; it loads three scripts from a network.

    vectors: for the neuron view, those of all heads (`bert_core.all_head_vectors`). layers: of the head or model view;
    None for all. height: in pixels.
    Raises Refused for a page that a browser cannot open, and for vectors that are missing; see `bertviz_page`.
    """
    return AttentionDisplay(bertviz_page(MapView().maps(run), kind, layers, vectors), height)


@renamed_parameters(what="quantity")
def view_caption(
    run: DecoderRun,
    quantity: str = "attention",
    *,
    head: tuple[int, int] | None = None,
    word: int = 0,
    theme: Theme | None = None,
    height: int = 1100,
) -> AttentionDisplay:
    """Display the attention of a captioner to its image for each word of the caption (`bert_core.describe`).

    quantity: "attention", "gradient" or "product", its part above zero. head: (layer, head) to open, None for the
    average of all heads. word: the first one displayed. Raises Refused for a word or head that does not exist.
    """
    return AttentionDisplay(caption_page(run, quantity, head, word, theme=theme), height)


@renamed_parameters(what="quantity", kept="kept_share")
def view_maps(
    maps: Maps,
    queries: Sequence[str],
    keys: Sequence[str],
    quantity: str = "attention",
    *,
    theme: Theme | None = None,
    height: int = 860,
    **choices: Any,
) -> AttentionDisplay:
    """Display maps from any source, also from the tokens of one text to those of another.

    maps: (layer, head, query, key), or the attentions of a model of transformers, for each layer (batch, head, query,
    key) with a batch of 1; arrays, or tensors of any device and number type, with gradients too.
    queries, keys: a name for each row and column. quantity: "attention", whose rows sum to 1, "gradient", "product",
    "brought" or "change". choices: layer, heads, mode and kept_share of `MapView`.
    Raises Refused for names that do not fit the maps, several texts, numbers that are not finite, rows of attention
    that do not sum to 1, or as `view`.
    """
    return AttentionDisplay(
        maps_page(maps_across(maps, queries, keys, quantity), MapView(**choices), theme=theme), height
    )
