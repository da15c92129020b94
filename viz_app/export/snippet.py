"""The Python that makes a picture of attention again, from the text on."""

from __future__ import annotations

import numpy as np

from bert_core.record import ModelRun
from viz_app.export.maps import MapView

_SCRIPT = """\
from pathlib import Path

import numpy as np

import bert_core
from viz_app.export.maps import MapView
from viz_app.export.pictures import picture_of

loaded = bert_core.load({model!r})
encoding = loaded.tokenizer.encode({text!r}, {pair!r}, max_length=loaded.config.max_position_embeddings)
encoding = loaded.tokenizer.mask_words(encoding, {masked!r})
head_mask = np.ones((loaded.config.num_hidden_layers, loaded.config.num_attention_heads), np.float32)
for layer, head in {off!r}:
    head_mask[layer, head] = 0
run = bert_core.capture(loaded, encoding, target={target}, head_mask=head_mask)

view = {view}
maps = view.of(run).values  # (layer, head, query, key)
Path({name!r}).write_bytes(picture_of(run, view, {kind!r}))
"""


def snippet(run: ModelRun, view: MapView, model: str, *, kind: str = "svg") -> str:
    """A script that loads the model, reads the same text and writes the same picture; `maps` holds its numbers.

    model: what `bert_core.load` takes. Everything that was typed stands in it as a quoted string, and as nothing else.
    """
    encoding = run.encoding
    words = (encoding.words[position] for position in encoding.mask_positions)
    return _SCRIPT.format(
        model=model,
        text=encoding.text,
        pair=encoding.pair,
        masked=tuple(sorted({word for word in words if word is not None})),
        off=[(int(layer), int(head)) for layer, head in np.argwhere((run.head_mask == 0) & run.there)],
        target="None" if run.target is None else f"bert_core.{run.target!r}",
        view=repr(view),
        name=f"attention.{kind}",
        kind=kind,
    )
