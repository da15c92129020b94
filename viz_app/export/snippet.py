"""Python scripts that reproduce an exported figure from the text."""

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
encoding = loaded.tokenizer.encode({text!r}, {pair!r}, max_length={max_length})
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
maps = view.maps(run).values  # {axes}
Path({name!r}).write_bytes(picture_of(run, view, {kind!r}))
"""
_NEURON = """\
vectors = bert_core.head_vectors(loaded, encoding, {layer}, {head}, head_mask=head_mask)
q, k, scores, softmax = vectors.queries, vectors.keys, vectors.scores, vectors.attention
Path({name!r}).write_bytes(picture_bytes(neuron_picture(vectors, {query}), {kind!r}))
"""
_CHANGE = """
shown = Comparison(before, after, {names!r}, {models!r}{what}).difference_maps()
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
    """Return a script that loads the model, encodes the text and writes the figure; its `maps` holds the numbers.

    model: the argument of `bert_core.load`. Input of the user occurs only in quoted string literals.
    """
    is_combined = view.combination is not None
    axes = "(1, 1, query, key)" if is_combined else "(layer, head, query, key)"
    names = "Combination, MapView" if is_combined else "MapView"
    imports = ["viz_app.export.pictures.picture_of", f"viz_app.maps.{names}"]
    lines = _load_lines(run, model) + _capture_lines(run, "run", norms=view.quantity == "brought")
    return _script(imports, lines, _MAPS, kind, name="attention", view=view, axes=axes)


def neuron_snippet(run: ModelRun, vectors: HeadVectors, query: int, model: str, *, kind: str = "svg") -> str:
    """Return a script that draws the neuron view of one query, with its numbers in `q`, `k`, `scores` and `softmax`."""
    imports = ["viz_app.export.drawing.picture_bytes", "viz_app.export.pictures.neuron_picture"]
    place = {"layer": vectors.layer, "head": vectors.head, "query": query}
    return _script(imports, _load_lines(run, model), _NEURON, kind, name="neuron", **place)


def change_snippet(comparison: Comparison, view: MapView, *, kind: str = "svg") -> str:
    """Return a script that draws the difference of two runs, `before` and `after`, with its numbers in `maps`."""
    before, after, needs_norms = comparison.before, comparison.after, comparison.quantity == "brought"
    imports = ["viz_app.comparison.Comparison", "viz_app.export.drawing.picture_bytes"]
    imports += ["viz_app.export.pictures.maps_picture", "viz_app.maps.MapView"]
    lines = "\n".join(
        _load_lines(run, model) + _capture_lines(run, name, norms=needs_norms)
        for run, model, name in zip((before, after), comparison.models, ("before", "after"), strict=True)
    )
    sides = {"names": comparison.names, "models": comparison.models, "what": f", {comparison.quantity!r}" * needs_norms}
    return _script(imports, lines, _CHANGE, kind, name="change", view=view, **sides)


def caption_snippet(
    run: DecoderRun, quantity: str, head: tuple[int, int] | None, model: str, *, kind: str = "svg"
) -> str:
    """Return a script that draws the cross-attention of a captioner and contains its picture."""
    text = base64.b64encode(zlib.compress(run.image.tobytes(), 9)).decode()
    packed = "\n".join(f'    "{text[start : start + 100]}"' for start in range(0, len(text), 100))
    imports = ["viz_app.export.captions.caption_maps", "viz_app.export.drawing.picture_bytes"]
    imports.append("viz_app.export.pictures.caption_picture")
    values = {"packed": packed, "shape": run.image.shape, "model": model, "what": quantity, "head": head}
    return "import base64\nimport zlib\n" + _script(imports, "", _CAPTION, kind, name="caption", **values)


def _script(imports: list[str], lines: str, template: str, kind: str, *, name: str, **values: object) -> str:
    """Return a script of imports, lines, and a template filled with values and with the name and kind of the figure.

    imports: paths of the imported names, such as "viz_app.maps.MapView".
    """
    paths = (path.rpartition(".") for path in imports)
    header = ["from pathlib import Path", "", "import numpy as np", "", "import bert_core"]
    header += [f"from {module} import {imported}" for module, _, imported in paths]
    return "\n".join([*header, "", lines]) + template.format(name=f"{name}.{kind}", kind=kind, **values)


def _load_lines(run: ModelRun, model: str) -> str:
    """Return the lines that load a model and create the encoding and the head mask of a run."""
    encoding = run.encoding
    edits = ", ".join(f"bert_core.{edit!r}" for edit in run.edits if not isinstance(edit, ActivationPatch))
    patches = "".join(_patch_lines(edit, encoding) for edit in run.edits if isinstance(edit, ActivationPatch))
    max_length = f"loaded.{'config.max_position_embeddings' if _compared_text(run) is None else 'max_sentence_tokens'}"
    lines = _LOAD.format(model=model, max_length=max_length, off=list(heads_off(run)), **_text_values(encoding))
    return lines + (_EDIT.format(edits=edits) if edits else "") + patches


def _patch_lines(patch: ActivationPatch, encoding: Encoding) -> str:
    """Return the lines that patch a component with that of another text, or of this one with noise."""
    source = patch.source
    if isinstance(source, Noised):
        lines = _NOISED.format(size=source.size, positions=source.positions, seed=source.seed)
    else:
        assert isinstance(source, Encoding)
        lines = _SOURCE.format(**_text_values(source))
    align = "tokens" if isinstance(source, Noised) or len(source) == len(encoding) else "words"
    place = {name: getattr(patch, name) for name in ("layer", "position", "head", "neuron")}
    return lines + _PATCH.format(what=patch.component, align=align, **place)


def _text_values(encoding: Encoding) -> dict[str, object]:
    """Return the text, the pair and the indices of the masked words, the values of a template."""
    words = (encoding.words[position] for position in encoding.mask_positions)
    masked = tuple(sorted({word for word in words if word is not None}))
    return {"text": encoding.text, "pair": encoding.pair, "masked": masked}


def _capture_lines(run: ModelRun, name: str, *, norms: bool = False) -> str:
    """Return the lines that repeat a run with the same target. name: its variable in the script."""
    target, lines, text = "None" if run.target is None else f"bert_core.{run.target!r}", "", _compared_text(run)
    if text is not None:
        lines = _OTHER_TEXT.format(**_text_values(text))
        target = "bert_core.similarity_target(loaded, encoding, other)"
    return lines + _RUN.format(run=name, target=target, more=", norms=True" if norms else "")


def _compared_text(run: ModelRun) -> Encoding | None:
    """Return the other text if the target is the similarity to it, else None."""
    return None if run.target is None else run.target.other
