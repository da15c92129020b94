"""The command that draws attention into a file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import (
    TARGET_FORMS,
    Arrows,
    Device,
    ModelName,
    additions,
    check_place,
    encode,
    kind_of_file,
    load,
    note,
    parse_heads,
    with_cuts,
)
from viz_app.export import FILE_KINDS, PICTURES
from viz_app.figures.style import Look, use_look

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from collections.abc import Sequence

    from bert_core.loading import LoadedModel
    from bert_core.records import HeadVectors, ModelRun
    from bert_core.run.target_grammar import TextTarget
    from bert_core.tokenizer import Encoding
    from viz_app.comparison import Comparison
    from viz_app.maps import Combination, MapView


def attention(
    text: Annotated[str, typer.Argument(help="A text.")],
    out: Annotated[Path, typer.Option(help=f"The file; its ending says which kind: {', '.join(FILE_KINDS)}.")],
    pair: Annotated[str | None, typer.Option(help="A second text.")] = None,
    model: ModelName = "headlight-mini",
    layer: Annotated[int | None, typer.Option(min=0, help="Which layer; layers count from zero.")] = None,
    head: Annotated[list[int] | None, typer.Option(min=0, help="A head of it, may be given again.")] = None,
    mode: Annotated[Literal["curves", "matrix"], typer.Option(help="How heads are drawn.")] = "curves",
    show: Annotated[
        Literal["attention", "gradient", "product", "brought"],
        typer.Option(help="What a value is; product is of the first two, brought how long a vector attention brings."),
    ] = "attention",
    target: Annotated[
        str | None,
        typer.Option(
            help=f"What a gradient explains: {TARGET_FORMS}. Default: the best guess.",
        ),
    ] = None,
    part: Annotated[str, typer.Option(help="all, or from which text to which, as in 'A to B'.")] = "all",
    hide_special: Annotated[bool, typer.Option("--hide-special", help="Without [CLS] and [SEP].")] = False,
    words: Annotated[bool, typer.Option("--words", help="Between words, not pieces.")] = False,
    renormalise: Annotated[
        bool, typer.Option("--renormalise", help="Rescale rows to 1 where tokens are left out.")
    ] = False,
    kept: Annotated[float, typer.Option(min=0.05, max=1.0, help="Share of each row that the curves hold.")] = 0.7,
    combine: Annotated[
        Literal["average", "maximum", "weighted"] | None,
        typer.Option(help="One map of the chosen heads, of the layer, or without --layer of all."),
    ] = None,
    weights: Annotated[str, typer.Option(help="As in 2,1,0.5: one for each head; without it, by importance.")] = "",
    neuron: Annotated[
        int | None,
        typer.Option(min=0, metavar="POSITION", help="Show how this query's attention is computed; [CLS] is at 0."),
    ] = None,
    against: Annotated[str | None, typer.Option(help="Another text: what it gives, minus what TEXT gives.")] = None,
    against_pair: Annotated[str | None, typer.Option(help="Its second text.")] = None,
    against_model: Annotated[str | None, typer.Option(help="The same with another model.")] = None,
    without_heads: Annotated[
        str, typer.Option(help="The same with heads off, as in 0.3,2.11: layer.head from zero, 4.* a layer.")
    ] = "",
    cut: Arrows = "",
    dark: Annotated[bool, typer.Option("--dark", help="On a dark page.")] = False,
    bertviz: Annotated[
        Literal["head", "model", "neuron"] | None,
        typer.Option(help="Write this view of BertViz as .html instead of the page of Headlight."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Draw where heads look: as a picture, a page, or numbers.

    Without --layer all heads of all layers; with it, one or some of its heads, or all of them.
    """
    kind = kind_of_file("--out", out, FILE_KINDS)
    check_place(out)
    if against is not None and not against.strip():
        raise Refused("--against is empty: give the text to compare with")
    if head and layer is None:
        raise Refused("--head needs --layer: which layer is the head in?")
    together = _together(combine, weights, "chosen" if head else "all" if layer is None else "layer")
    compared = bool(against or against_pair or against_model or without_heads)
    if neuron is not None and (layer is None or len(head or ()) != 1 or compared):
        raise Refused("--neuron shows one head of one run: give --layer and one --head, and nothing to compare with")
    if cut and compared:
        raise Refused("--cut names tokens of one text: give nothing to compare with")
    if mode == "matrix" and len(set(head or ())) != 1 and together is None and kind in PICTURES:
        raise Refused("a matrix shows one head: give --layer and one --head, or --combine")
    if bertviz is not None and kind != "html":
        raise Refused(f"BertViz writes .html and no .{kind}")
    import numpy as np

    import bert_core
    from bert_core.checkpoint import write_atomically
    from viz_app.export.files import AttentionFiles, ChangeFiles, Files, NeuronFiles, file_of
    from viz_app.maps import UNSIGNED, MapView

    loaded = with_cuts(load(model, device), cut)
    encoding = encode(loaded, text, pair)
    explains = show not in UNSIGNED or target is not None or (together is not None and together.by_importance)
    explained = None
    if explains:
        explained, encoding = _target(loaded, encoding, target)
    run = bert_core.capture(loaded, encoding, target=explained, norms=show == "brought")
    heads: tuple[int, ...] = tuple(dict.fromkeys(head or ()))
    if layer is not None and not heads and layer < len(run.attention):
        heads = tuple(int(number) for number in np.nonzero(run.existing_heads[layer])[0])
        if not heads:
            raise Refused(f"layer {layer} has no head to draw: all of them are pruned")
    view = MapView(show, part, hide_special, words, renormalise, layer or 0, heads, mode, kept, together)
    files: Files = AttentionFiles(run, view, model)
    if neuron is not None:
        view.check_whole("the neuron view")
        files = NeuronFiles(run, bert_core.head_vectors(loaded, encoding, view.layer, heads[0]), neuron, model)
    elif compared:
        texts = encoding.text, encoding.pair
        if against is not None or against_pair is not None:
            texts = against or text, against_pair
        comparison = _comparison(run, loaded, model, *texts, against_model, without_heads, device, show)
        files = ChangeFiles(comparison, view)
    with warnings.catch_warnings(record=True) as heard:
        warnings.filterwarnings("always", category=UserWarning)
        if bertviz is None:
            with use_look(Look(dark=dark)):
                written = file_of(files, kind)
        else:
            vectors = bert_core.all_head_vectors(loaded, encoding) if bertviz == "neuron" else ()
            written = _bertviz(run, view, bertviz, vectors)
    for warning in heard:
        if warning.category is UserWarning:
            note(str(warning.message))
    write_atomically(out, written)


def _bertviz(
    run: ModelRun, view: MapView, kind: Literal["head", "model", "neuron"], vectors: Sequence[HeadVectors]
) -> bytes:
    """Return BertViz's page of the chosen attention. Raises Refused if BertViz is not installed."""
    from viz_app.export.bertviz import bertviz_page

    try:
        return bertviz_page(view.of(run), kind, [view.layer] if view.heads else None, vectors).encode()
    except ModuleNotFoundError as error:
        raise Refused(str(error)) from error


def _comparison(
    run: ModelRun, loaded: LoadedModel, model: str, text: str, pair: str | None, other_model: str | None, off: str,
    device: str, what: str,
) -> Comparison:  # fmt: skip
    """A run beside that of another text, with another model or with heads off; what differs gives them their names."""
    import bert_core
    from bert_core.run.inputs import head_mask_without
    from viz_app.comparison import Comparison

    there = loaded if other_model is None else load(other_model, device)
    encoding = encode(there, text, pair)
    layers, count = there.config.num_hidden_layers, there.config.num_attention_heads
    gates = head_mask_without(there.config, parse_heads(off, layers, count, "--without-heads") if off else ())
    changed = {"text": (text, pair) != (run.encoding.text, run.encoding.pair), "model": other_model, "heads": off}
    different = [name for name, value in changed.items() if value]
    side = different[0] if len(different) == 1 else "run"
    names = ("all heads on", "some off") if side == "heads" else (f"this {side}", f"the other {side}")
    other = bert_core.capture(there, encoding, head_mask=gates, norms=what == "brought")
    return Comparison(run, other, names, (model, other_model or model), what)


def _together(how: str | None, written: str, among: str) -> Combination | None:
    """How heads are to be one map; None to have them apart. Raises Refused for weights that are no numbers."""
    from viz_app.maps import Combination

    if written and how != "weighted":
        raise Refused("--weights needs --combine weighted")
    if how is None:
        return None
    try:
        weights = tuple(float(part) for part in written.split(",") if part.strip())
    except ValueError as error:
        raise Refused(f"--weights is {written!r}: numbers between commas, as in 2,1,0.5") from error
    return Combination(how, among, weights)


def _target(loaded: LoadedModel, encoding: Encoding, written: str | None) -> TextTarget:
    """What a gradient is to explain, and in which text: what is written, or else the first target that a head offers.

    Raises Refused for what cannot be one, and where no head offers one.
    """
    import bert_core
    from bert_core.run.target_grammar import TextTarget, parse_target, target_forms
    from bert_core.task_heads import trained_heads

    if written is not None:
        return parse_target(loaded, encoding, written, label="--target")
    run, heads = bert_core.capture(loaded, encoding, top_k=1), trained_heads(loaded)
    for head in heads:
        if head.applies(loaded, encoding) and (targets := head.suggested_targets(loaded, run, encoding, None)):
            return TextTarget(targets[0], encoding)
    ways = [*additions(encoding, heads), f"give --target {', '.join(target_forms(loaded))}"]
    raise Refused(f"a gradient needs something to explain: {' or '.join(ways)}")
