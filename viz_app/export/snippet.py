"""The Python that makes a picture of attention again, from the text on."""

from __future__ import annotations

import numpy as np

from bert_core.record import ModelRun
from viz_app.export.maps import MapView

_SCRIPT = """\
from pathlib import Path

import numpy as np

import bert_core
{imports}

loaded = bert_core.load({model!r})
encoding = loaded.tokenizer.encode({text!r}, {pair!r}, max_length=loaded.config.max_position_embeddings)
encoding = loaded.tokenizer.mask_words(encoding, {masked!r})
head_mask = np.ones((loaded.config.num_hidden_layers, loaded.config.num_attention_heads), np.float32)
for layer, head in {off!r}:
    head_mask[layer, head] = 0
{rest}"""
_MAPS = """\
run = bert_core.capture(loaded, encoding, target={target}, head_mask=head_mask)

view = {view}
maps = view.of(run).values  # {axes}
Path({name!r}).write_bytes(picture_of(run, view, {kind!r}))
"""
_NEURON = """\
vectors = bert_core.head_vectors(loaded, encoding, {layer}, {head}, head_mask=head_mask)
q, k, scores, softmax = vectors.queries, vectors.keys, vectors.scores, vectors.attention
Path({name!r}).write_bytes(picture_bytes(neuron_picture(vectors, {query}), {kind!r}))
"""


def snippet(run: ModelRun, view: MapView, model: str, *, kind: str = "svg") -> str:
    """A script that loads the model, reads the same text and writes the same picture; `maps` holds its numbers.

    model: what `bert_core.load` takes. Everything that was typed stands in it as a quoted string, and as nothing else.
    """
    together = view.together is not None
    rest = _MAPS.format(
        target="None" if run.target is None else f"bert_core.{run.target!r}",
        view=repr(view),
        axes="(1, 1, query, key)" if together else "(layer, head, query, key)",
        name=f"attention.{kind}",
        kind=kind,
    )
    names = "Combination, MapView" if together else "MapView"
    imports = f"from viz_app.export.maps import {names}\nfrom viz_app.export.pictures import picture_of"
    return _script(run, model, imports, rest)


def neuron_snippet(run: ModelRun, layer: int, head: int, query: int, model: str, *, kind: str = "svg") -> str:
    """The same for one query of a head in the neuron view; `q`, `k`, `scores` and `softmax` hold its numbers."""
    rest = _NEURON.format(layer=layer, head=head, query=query, name=f"neuron.{kind}", kind=kind)
    return _script(run, model, "from viz_app.export.pictures import neuron_picture, picture_bytes", rest)


def _script(run: ModelRun, model: str, imports: str, rest: str) -> str:
    encoding = run.encoding
    words = (encoding.words[position] for position in encoding.mask_positions)
    return _SCRIPT.format(
        model=model,
        text=encoding.text,
        pair=encoding.pair,
        masked=tuple(sorted({word for word in words if word is not None})),
        off=[(int(layer), int(head)) for layer, head in np.argwhere((run.head_mask == 0) & run.there)],
        imports=imports,
        rest=rest,
    )
