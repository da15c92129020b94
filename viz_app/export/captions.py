"""The cross-attention of a captioner as maps from the words of a sentence to the patches of its picture."""

from __future__ import annotations

import numpy as np

from bert_core.records import DecoderRun
from viz_app.maps import ShownMaps, read_only
from viz_app.tokens import Token

NOTE = "a word's row shows where the decoder looked when it predicted that word"


def caption_maps(run: DecoderRun, quantity: str = "attention", *, as_one: bool = False) -> ShownMaps:
    """Return the maps of a captioner's decoder, with words as queries and patches, row by row, as keys.

    quantity: "attention", "gradient", "product", of which only positive values are kept, or "brought". as_one: return
    the average of all heads in place of all heads. Raises Refused for another quantity.
    """
    values = run.select_map(quantity).transpose(1, 2, 0, 3)
    if quantity == "product":
        quantity, values = "positive_product", values.clip(min=0)
    layers, heads, _, patches = values.shape
    columns = run.grid[1]
    if as_one:
        values = values.mean((0, 1), keepdims=True)
    return ShownMaps(
        read_only(values),
        tuple(Token(word, place) for place, word in enumerate(run.words)),
        tuple(Token(f"row {n // columns}, column {n % columns}", n) for n in range(patches)),
        quantity,
        np.ones(values.shape[:2], bool),
        notes=(NOTE,),
        combined_name=f"average of all {layers} × {heads} heads" if as_one else "",
    )
