"""The Python that makes what an export shows again, from the text on."""

from __future__ import annotations

import base64
import zlib

from bert_core.edits import ActivationPatch
from bert_core.records import DecoderRun, HeadVectors, ModelRun, Noised
from bert_core.tokenizer import Encoding
from viz_app.comparison import Comparison
from viz_app.maps import MapView, heads_off

_LOAD = """\
loaded = bert_core.load({model!r})
encoding = loaded.tokenizer.encode({text!r}, {pair!r}, max_length={most})
encoding = loaded.tokenizer.mask_words(encoding, {masked!r})
head_mask = np.ones((loaded.config.num_hidden_layers, loaded.config.num_attention_heads), np.float32)
for layer, head in {off!r}:
    head_mask[layer, head] = 0
"""
_EDIT = "loaded = bert_core.edited(loaded, [{edits}])\n"
_SOURCE = """\
source = loaded.tokenizer.encode({text!r}, {pair!r}, max_length=loaded.config.max_position_embeddings)
source = loaded.tokenizer.mask_words(source, {masked!r})
"""
_OTHER_TEXT = """\
other = loaded.tokenizer.encode({text!r}, {pair!r}, max_length=loaded.max_sentence_tokens)
other = loaded.tokenizer.mask_words(other, {masked!r})
"""
_NOISED = "source = bert_core.Noised(encoding, {size!r}, {positions!r}, {seed!r})\n"
_PATCH = """\
put = bert_core.make_patch(
    loaded, source, encoding, {what!r}, {layer!r}, position={position!r}, head={head!r}, neuron={neuron!r},
    align={align!r}, head_mask=head_mask,
)
loaded = bert_core.edited(loaded, [put])
"""
_RUN = "{run} = bert_core.capture(loaded, encoding, target={target}, head_mask=head_mask{more})\n"
_MAPS = """
view = {view}
maps = view.of(run).values  # {axes}
Path({name!r}).write_bytes(picture_of(run, view, {kind!r}))
"""
_NEURON = """\
vectors = bert_core.head_vectors(loaded, encoding, {layer}, {head}, head_mask=head_mask)
q, k, scores, softmax = vectors.queries, vectors.keys, vectors.scores, vectors.attention
Path({name!r}).write_bytes(picture_bytes(neuron_picture(vectors, {query}), {kind!r}))
"""
_CHANGE = """
shown = Comparison(before, after, {names!r}, {models!r}{what}).shown()
maps = shown.values  # after minus before (layer, head, query, key), between the tokens that both texts have
Path({name!r}).write_bytes(picture_bytes(maps_picture(shown, {view}), {kind!r}))
"""
_CAPTION = """\
# The picture as the model saw it, packed: uint8 (rows, columns, 3).
packed = (
{packed}
)
picture = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8).reshape({shape})
run = bert_core.describe(bert_core.load_captioner({model!r}), picture)
maps = caption_maps(run, {what!r}).values  # (layer, head, word, patch)
Path({name!r}).write_bytes(picture_bytes(caption_picture(run, {what!r}, {head!r}), {kind!r}))
"""


def snippet(run: ModelRun, view: MapView, model: str, *, kind: str = "svg") -> str:
    """A script that loads the model, reads the same text and writes the same picture; `maps` holds its numbers.

    model: what `bert_core.load` takes. Everything that was typed stands in it as a quoted string, and as nothing else.
    """
    is_combined = view.together is not None
    axes = "(1, 1, query, key)" if is_combined else "(layer, head, query, key)"
    names = "Combination, MapView" if is_combined else "MapView"
    return _script(
        ["from viz_app.export.pictures import picture_of", f"from viz_app.maps import {names}"],
        _load_lines(run, model), _capture_lines(run, "run", norms=view.what == "brought"),
        _MAPS.format(view=repr(view), axes=axes, name=f"attention.{kind}", kind=kind),
    )  # fmt: skip


def neuron_snippet(run: ModelRun, vectors: HeadVectors, query: int, model: str, *, kind: str = "svg") -> str:
    """The Python that draws the neuron view of one query; `q`, `k`, `scores` and `softmax` hold its numbers."""
    return _script(
        ["from viz_app.export.drawing import picture_bytes", "from viz_app.export.pictures import neuron_picture"],
        _load_lines(run, model),
        _NEURON.format(layer=vectors.layer, head=vectors.head, query=query, name=f"neuron.{kind}", kind=kind),
    )


def change_snippet(comparison: Comparison, view: MapView, *, kind: str = "svg") -> str:
    """The Python that draws the difference of two runs, `before` and `after`; `maps` holds it."""
    before, after, needs_norms = comparison.before, comparison.after, comparison.what == "brought"
    return _script(
        ["from viz_app.comparison import Comparison", "from viz_app.export.drawing import picture_bytes",
         "from viz_app.export.pictures import maps_picture", "from viz_app.maps import MapView"],
        _load_lines(before, comparison.models[0]), _capture_lines(before, "before", norms=needs_norms), "\n",
        _load_lines(after, comparison.models[1]), _capture_lines(after, "after", norms=needs_norms),
        _CHANGE.format(names=comparison.names, models=comparison.models, what=f", {comparison.what!r}" * needs_norms,
                       view=repr(view), name=f"change.{kind}", kind=kind),
    )  # fmt: skip


def caption_snippet(
    run: DecoderRun, quantity: str, head: tuple[int, int] | None, model: str, *, kind: str = "svg"
) -> str:
    """The Python that draws where a captioner looks, with the picture in the script; `maps` holds the numbers."""
    text = base64.b64encode(zlib.compress(run.image.tobytes(), 9)).decode()
    lines = (text[start : start + 100] for start in range(0, len(text), 100))
    return _script(
        ["from viz_app.export.captions import caption_maps",
         "from viz_app.export.drawing import picture_bytes", "from viz_app.export.pictures import caption_picture"],
        _CAPTION.format(packed="\n".join(f'    "{line}"' for line in lines), shape=run.image.shape, model=model,
                        what=quantity, head=head, name=f"caption.{kind}", kind=kind),
        first=("base64", "zlib"),
    )  # fmt: skip


def _script(imports: list[str], *parts: str, first: tuple[str, ...] = ()) -> str:
    """A script: the imports, then its parts in this order. first: modules of the standard library to import."""
    header = [*(f"import {name}" for name in first), "from pathlib import Path", "", "import numpy as np", "",
             "import bert_core", *imports]  # fmt: skip
    return "\n".join([*header, "", ""]) + "".join(parts)


def _load_lines(run: ModelRun, model: str) -> str:
    """The lines of a script that load a model and make the text and the head mask of a run."""
    encoding = run.encoding
    edits = ", ".join(f"bert_core.{edit!r}" for edit in run.edits if not isinstance(edit, ActivationPatch))
    patches = "".join(_patch_lines(edit, encoding) for edit in run.edits if isinstance(edit, ActivationPatch))
    lines = _LOAD.format(
        model=model,
        text=encoding.text,
        pair=encoding.pair,
        most=f"loaded.{'config.max_position_embeddings' if _compared_text(run) is None else 'max_sentence_tokens'}",
        masked=_hidden_words(encoding),
        off=list(heads_off(run)),
    )
    return lines + (_EDIT.format(edits=edits) if edits else "") + patches


def _patch_lines(patch: ActivationPatch, encoding: Encoding) -> str:
    """The lines that carry a part of another text, or of this one with noise, over again."""
    source = patch.source
    if isinstance(source, Noised):
        lines = _NOISED.format(size=source.size, positions=source.positions, seed=source.seed)
    else:
        assert isinstance(source, Encoding)
        lines = _SOURCE.format(text=source.text, pair=source.pair, masked=_hidden_words(source))
    align = "tokens" if isinstance(source, Noised) or len(source) == len(encoding) else "words"
    return lines + _PATCH.format(
        what=patch.component,
        layer=patch.layer,
        position=patch.position,
        head=patch.head,
        neuron=patch.neuron,
        align=align,
    )


def _hidden_words(encoding: Encoding) -> tuple[int, ...]:
    """The words that are hidden, by their numbers."""
    words = (encoding.words[position] for position in encoding.mask_positions)
    return tuple(sorted({word for word in words if word is not None}))


def _capture_lines(run: ModelRun, name: str, *, norms: bool = False) -> str:
    """The lines of a script that make the run again, with the same target. name: what it is called there."""
    target, lines, text = "None" if run.target is None else f"bert_core.{run.target!r}", "", _compared_text(run)
    if text is not None:
        lines = _OTHER_TEXT.format(text=text.text, pair=text.pair, masked=_hidden_words(text))
        target = "bert_core.similarity_target(loaded, encoding, other)"
    return lines + _RUN.format(run=name, target=target, more=", norms=True" if norms else "")


def _compared_text(run: ModelRun) -> Encoding | None:
    """The other text, where it is explained what makes this one like it."""
    return None if run.target is None else run.target.other
