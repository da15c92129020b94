"""The command that draws attention into a file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.help import INPUT, OUTPUT
from viz_app.cli.shared import option
from viz_app.export import FILE_KINDS, PICTURES
from viz_app.figures.style import Look, use_look

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import ModelRun
    from bert_core.run.target_grammar import TextTarget
    from bert_core.tokenizer import Encoding
    from viz_app.maps import Combination


def attention(
    text: Annotated[str, typer.Argument(help="A text.")],
    out: Annotated[Path, option(f"Output file; its ending selects the kind: {', '.join(FILE_KINDS)}.", group=OUTPUT)],
    pair: Annotated[str | None, option("Second text.", group=INPUT, metavar="TEXT")] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    layer: Annotated[int | None, option("Layer, numbered from 0.", group="Heads", min=0)] = None,
    head: Annotated[list[int] | None, option("Head of the layer; may be repeated.", group="Heads", min=0)] = None,
    layers: Annotated[
        str,
        option("Keep the maps of some layers, such as 0,5; for .npz and .csv.", group="Heads", metavar="LIST"),
    ] = "",
    token_range: Annotated[
        str,
        option(
            "Keep the maps of some tokens, such as 100-199; the whole text is read.",
            group="Values",
            metavar="FIRST-LAST",
        ),
    ] = "",
    mode: Annotated[Literal["curves", "matrix"], option("Drawing of the heads.", group="Drawing")] = "curves",
    show: Annotated[
        Literal["attention", "gradient", "product", "norm", "brought"],
        option(
            "Value: product is attention times gradient; norm is value-weighted attention, formerly brought.",
            group="Values",
            metavar="attention|gradient|product|norm",
        ),
    ] = "attention",
    target: Annotated[
        str | None, option(f"Target of the gradient: {shared.TARGET_FORMS}. Default: the top guess.", group="Values")
    ] = None,
    part: Annotated[str, option("Sentences of queries and keys: all, or such as 'A to B'.", group="Drawing")] = "all",
    hide_special: Annotated[bool, option("Leave out [CLS] and [SEP].", "--hide-special", group="Drawing")] = False,
    words: Annotated[bool, option("Map between words instead of word pieces.", "--words", group="Drawing")] = False,
    renormalise: Annotated[
        bool, option("Rescale rows to 1 where tokens are left out.", "--renormalise", group="Values")
    ] = False,
    row_share: Annotated[
        float,
        option("Share of each row that the drawn curves add up to.", "--kept", group="Drawing", min=0.05, max=1.0),
    ] = 0.7,
    combine: Annotated[
        Literal["average", "maximum", "weighted"] | None,
        option("Combine the chosen heads, the layer, or without --layer all heads into one map.", group="Heads"),
    ] = None,
    weights: Annotated[
        str, option("Weights of the heads, such as 2,1,0.5; default: by gradient importance.", group="Heads")
    ] = "",
    neuron: Annotated[
        int | None,
        option(
            "Query-key view of the query at this position; [CLS] is at 0.", group="Drawing", min=0, metavar="POSITION"
        ),
    ] = None,
    terms: Annotated[
        bool, option("Terms of the scores of the head, for models with position terms.", "--terms", group="Drawing")
    ] = False,
    query: Annotated[
        int | None, option("With --terms: only the query at this position.", group="Drawing", min=0, metavar="POSITION")
    ] = None,
    other_text: Annotated[
        str | None,
        option("Other text: draws its maps minus those of TEXT.", "--against", group="Comparison", metavar="TEXT"),
    ] = None,
    other_pair: Annotated[
        str | None, option("Second text of the other text.", "--against-pair", group="Comparison", metavar="TEXT")
    ] = None,
    other_model: Annotated[
        str | None,
        option(
            "Other model: draws its maps minus those of --model.",
            "--against-model",
            group="Comparison",
            metavar="MODEL",
        ),
    ] = None,
    without_heads: Annotated[
        str,
        option(
            "Heads to switch off: draws the difference; such as 0.3,2.11 or 4.* for a layer.",
            group="Comparison",
            metavar="HEADS",
        ),
    ] = "",
    cut: shared.Cuts = "",
    dark: Annotated[bool, option("Dark background.", "--dark", group="Drawing")] = False,
    bertviz: Annotated[
        Literal["head", "model", "neuron"] | None,
        option("Write this view of BertViz as .html instead of Headlight's page.", group=OUTPUT),
    ] = None,
    device: shared.Device = "auto",
) -> None:
    """Draw attention as a picture, a page or numbers.

    Without --layer, all heads are drawn small; with --layer, its heads, or those of --head.
    """
    kind = shared.check_output(out, kinds=FILE_KINDS)
    if other_text is not None and not other_text.strip():
        raise Refused("--against is empty: give the text to compare with")
    if head and layer is None:
        raise Refused("--head needs --layer: which layer is the head in?")
    combination = _combination(combine, weights, "chosen" if head else "all" if layer is None else "layer")
    is_compared = bool(other_text or other_pair or other_model or without_heads)
    if terms and neuron is not None:
        raise Refused("--neuron and --terms are two views: give one of them")
    if query is not None and not terms:
        raise Refused("--query needs --terms")
    if (neuron is not None or terms) and (layer is None or len(head or ()) != 1 or is_compared):
        view_option = "--terms" if terms else "--neuron"
        raise Refused(
            f"{view_option} shows one head of one run: give --layer and one --head, and nothing to compare with"
        )
    if cut and is_compared:
        raise Refused("--cut names tokens of one text: give nothing to compare with")
    if mode == "matrix" and len(set(head or ())) != 1 and combination is None and kind in PICTURES:
        raise Refused("a matrix shows one head: give --layer and one --head, or --combine")
    if bertviz is not None and kind != "html":
        raise Refused(f"BertViz writes .html and no .{kind}")
    if layers and (layer is not None or combination is not None or is_compared or kind not in ("npz", "csv")):
        raise Refused("--layers is for .npz and .csv, without --layer, --combine and a comparison")
    if token_range and (is_compared or neuron is not None or terms or bertviz == "neuron"):
        raise Refused("--token-range is for maps: leave out comparisons and the views of scores")
    import numpy as np

    import bert_core
    from viz_app.comparison import Comparison
    from viz_app.export.bertviz import bertviz_page
    from viz_app.export.files import AttentionFiles, ChangeFiles, Files, NeuronFiles, TermFiles, file_of
    from viz_app.maps import UNSIGNED, MapView

    loaded = shared.with_cuts(shared.load(model, device), cut)
    encoding = shared.encode(loaded, text, pair)
    by_importance = combination is not None and combination.by_importance
    model_target = None
    quantity = "brought" if show == "norm" else show
    if quantity not in UNSIGNED or target is not None or by_importance:
        model_target, encoding = _target(loaded, encoding, target)
    map_range = _token_range(token_range, len(encoding)) if token_range else None
    map_layers = shared.parse_numbers(layers, "--layers", "layers", "0,5") if layers else None
    share = 1.0 if map_layers is None else len(map_layers) / loaded.config.num_hidden_layers
    map_tokens = None if map_range is None else map_range[1] - map_range[0]
    shared.check_maps(loaded, encoding, share, gradients=model_target is not None, map_tokens=map_tokens)
    run = bert_core.capture(
        loaded, encoding, target=model_target, norms=quantity == "brought", layers=map_layers, token_range=map_range
    )
    heads: tuple[int, ...] = tuple(dict.fromkeys(head or ()))
    if layer is not None and not heads and layer < len(run.attention):
        heads = tuple(int(number) for number in np.nonzero(run.existing_heads[layer])[0])
        if not heads:
            raise Refused(f"layer {layer} has no head to draw: all of them are pruned")
    view = MapView(quantity, part, hide_special, words, renormalise, layer or 0, heads, mode, row_share, combination)
    files: Files = AttentionFiles(run, view, model)
    if neuron is not None or terms:
        view.check_whole("the view of the terms" if terms else "the neuron view")
        of_head = run, bert_core.head_vectors(loaded, encoding, view.layer, heads[0])
        files = TermFiles(*of_head, query, model) if neuron is None else NeuronFiles(*of_head, neuron, model)
    elif is_compared:
        texts = encoding.text, encoding.pair
        if other_text is not None or other_pair is not None:
            texts = other_text or text, other_pair
        second = loaded if other_model is None else shared.load(other_model, device)
        second_run = _second_run(second, texts, without_heads, norms=quantity == "brought")
        names = _side_names(texts != (encoding.text, encoding.pair), other_model is not None, bool(without_heads))
        files = ChangeFiles(Comparison(run, second_run, names, (model, other_model or model), quantity), view)
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", category=UserWarning)
        if bertviz is None:
            with use_look(Look(dark=dark)):
                content = file_of(files, kind)
        else:
            vectors = bert_core.all_head_vectors(loaded, encoding) if bertviz == "neuron" else ()
            page_layers = [view.layer] if view.heads else None
            try:
                content = bertviz_page(view.maps(run), bertviz, page_layers, vectors).encode()
            except ModuleNotFoundError as error:
                raise Refused(str(error)) from error
    for warning in caught:
        if warning.category is UserWarning:
            shared.note(str(warning.message))
    shared.write_file(out, content)


def _token_range(text: str, tokens: int) -> tuple[int, int]:
    """Return the first position of `100-199` and the one after the last. Raises Refused for any other form."""
    first, _, last = text.partition("-")
    if not (first.strip().isdecimal() and last.strip().isdecimal() and int(first) <= int(last) < tokens):
        raise Refused(f"--token-range is {text!r}: write the first and the last position, as in 0-{tokens - 1}")
    return int(first), int(last) + 1


def _second_run(loaded: LoadedModel, texts: tuple[str, str | None], disabled: str, *, norms: bool) -> ModelRun:
    """Return the run of the second side of a comparison. disabled: heads that are off, as in --without-heads."""
    import bert_core
    from bert_core.run.inputs import head_mask_without

    config, encoding = loaded.config, shared.encode(loaded, *texts)
    heads = shared.parse_heads(disabled, config.num_attention_heads, "--without-heads") if disabled else ()
    shared.check_maps(loaded, encoding)
    return bert_core.capture(loaded, encoding, head_mask=head_mask_without(config, heads), norms=norms)


def _side_names(text_differs: bool, model_differs: bool, heads_differ: bool) -> tuple[str, str]:
    """Return the names of both sides of a comparison, after what differs between them."""
    differences = {"text": text_differs, "model": model_differs, "heads": heads_differ}
    kinds = [kind for kind, is_different in differences.items() if is_different]
    kind = kinds[0] if len(kinds) == 1 else "run"
    return ("all heads on", "some off") if kind == "heads" else (f"this {kind}", f"the other {kind}")


def _combination(method: str | None, weights: str, scope: str) -> Combination | None:
    """Return the combination of heads into one map; None for separate maps. Raises Refused for invalid weights."""
    from viz_app.maps import Combination

    if weights and method != "weighted":
        raise Refused("--weights needs --combine weighted")
    if method is None:
        return None
    try:
        numbers = tuple(float(part) for part in weights.split(",") if part.strip())
    except ValueError as error:
        raise Refused(f"--weights is {weights!r}: numbers between commas, as in 2,1,0.5") from error
    return Combination(method, scope, numbers)


def _target(loaded: LoadedModel, encoding: Encoding, text: str | None) -> TextTarget:
    """Return the target of a gradient, with the encoding that it refers to.

    text: the target as --target gives it; None for the first target that a task head suggests.
    Raises Refused for an invalid target, and if no head suggests one.
    """
    from bert_core.run.target_grammar import TextTarget, parse_target, target_forms
    from bert_core.task_heads import trained_heads

    if text is not None:
        return parse_target(loaded, encoding, text, label="--target")
    run = shared.capture_predictions(loaded, encoding, 1)
    if (target := shared.suggested_target(loaded, run, encoding)) is not None:
        return TextTarget(target, encoding)
    advice = [*shared.additions(encoding, trained_heads(loaded)), f"give --target {', '.join(target_forms(loaded))}"]
    raise Refused(f"a gradient needs something to explain: {' or '.join(advice)}")
