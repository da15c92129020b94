"""Python scripts that reproduce an exported figure from the text, and write it as an SVG."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence

from bert_core.edits import ActivationPatch, Edit
from bert_core.records import DecoderRun, HeadVectors, ModelRun, Steering
from bert_core.tokenizer import Encoding
from viz_app.comparison import Comparison
from viz_app.export.markup import environment
from viz_app.maps import MapView, heads_off


def _literal(value: object) -> object:
    """Return a value as a Python literal; code of the template, which is marked as `safe`, stays as it is."""
    return value if hasattr(value, "__html__") else repr(value)


def _masked_words(encoding: Encoding) -> tuple[int, ...]:
    """Return the indices of the words with a masked piece."""
    words = (encoding.words[position] for position in encoding.mask_positions)
    return tuple(sorted({word for word in words if word is not None}))


_SCRIPTS = environment(finalize=_literal)
_SCRIPTS.globals |= {"heads_off": heads_off, "masked_words": _masked_words}
_SCRIPTS.tests["patch"] = lambda edit: isinstance(edit, ActivationPatch)


def snippet(run: ModelRun, view: MapView, model: str) -> str:
    """Return a script that loads the model, encodes the text and writes the figure; its `maps` holds the numbers.

    model: the argument of `bert_core.load`. Input of the user occurs only in quoted string literals.
    """
    return _script("attention", run=run, view=view, model=model)


def neuron_snippet(run: ModelRun, vectors: HeadVectors, query: int, model: str) -> str:
    """Return a script that draws the neuron view of one query, with its numbers in `q`, `k`, `scores` and `softmax`."""
    return _script("neuron", run=run, vectors=vectors, query=query, model=model)


def terms_snippet(run: ModelRun, vectors: HeadVectors, query: int | None, model: str) -> str:
    """Return a script that draws the terms of the scores of a head, with its numbers in `terms` and `scores`.

    query: whose terms are drawn; None for the maps of all queries.
    """
    return _script("terms", run=run, vectors=vectors, query=query, model=model)


def change_snippet(comparison: Comparison, view: MapView) -> str:
    """Return a script that draws the difference of two runs, `before` and `after`, with its numbers in `maps`."""
    return _script("change", comparison=comparison, view=view)


def steering_snippet(
    steering: Steering, words: str, label: str, values: tuple[str, str], direction: str, most_words: int, model: str
) -> str:
    """Return a script that fits a direction of a label and steers a text with it, with its numbers in `steering`.

    words: name of the file of words; the names of the bundled files stand for these. most_words: used of them.
    """
    arguments = {"words": words, "label": label, "values": values, "direction": direction, "most_words": most_words}
    return _script("steering", steering=steering, model=model, **arguments)


def caption_snippet(run: DecoderRun, quantity: str, head: tuple[int, int] | None, model: str) -> str:
    """Return a script that draws the cross-attention of a captioner and contains its picture."""
    packed = base64.b64encode(zlib.compress(run.image.tobytes(), 9)).decode()
    return _script("caption", run=run, quantity=quantity, head=head, model=model, packed=packed)


def bias_snippet(
    model: str,
    edits: Sequence[Edit],
    heads_off: Sequence[tuple[int, int]],
    file: str | None,
    variant: str,
    measure: str,
) -> str:
    """Return a script that evaluates pairs of sentences and prints the share of each category.

    file: name of the table; None for the bundled pairs. variant: as for `score_pairs`. measure: as for `evaluate_bias`.
    """
    values = {"model": model, "edits": list(edits), "heads_off": list(heads_off), "file": file}
    return _SCRIPTS.get_template("export/bias.py.jinja").render(values, variant=variant, measure=measure)


def _script(view_kind: str, **values: object) -> str:
    return _SCRIPTS.get_template("export/script.py.jinja").render(values, view_kind=view_kind)
