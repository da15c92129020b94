"""The command that patches activations of one text into another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.help import INPUT
from viz_app.cli.shared import input_file, option, output_file
from viz_app.cli.tables import text_table
from viz_app.export import EFFECT_KINDS, PICTURES

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.records import Noised, PatchBand, Patches
    from bert_core.tokenizer import Encoding

RANDOM_TEXTS = 10  # of the band
MAX_UNMATCHED = 8  # words without a partner that are printed
MAX_NEURONS = 12  # printed; a file has all


def patch(
    *,  # the source comes before the text, as in `bert_core.patch`
    source: Annotated[
        str | None,
        option(
            "Text that the activations come from; words are aligned if the lengths differ.", group=INPUT, metavar="TEXT"
        ),
    ] = None,
    text: Annotated[str, typer.Argument(help="The patched text, with [MASK] or --mask.")],
    former_source: Annotated[str | None, typer.Argument(hidden=True, metavar="SOURCE")] = None,
    word: shared.TargetWord = None,
    contrast: shared.ContrastWord = None,
    target: Annotated[
        str | None,
        option(f"Target, instead of --word: {shared.TARGET_FORMS}, or loss (all words of --mask).", group="Target"),
    ] = None,
    mask: Annotated[
        list[int] | None,
        option("Mask this word, numbered from 0 in TEXT, in both texts; repeatable.", group=INPUT, min=0),
    ] = None,
    pair: Annotated[str | None, option("Second sentence of both texts.", group=INPUT, metavar="TEXT")] = None,
    part_kind: Annotated[
        Literal["state", "attention", "feed_forward", "head", "pattern", "query", "key", "value", "neuron"],
        option("Patched activation: of a token at a depth or in a layer, of a head, or of neurons.", "--what"),
    ] = "state",
    noise: Annotated[
        float | None,
        option(
            "Instead of --source: TEXT with noise, in standard deviations of the word embeddings.",
            group=INPUT,
            metavar="SIZE",
        ),
    ] = None,
    mean_of: Annotated[
        Path | None, input_file("Instead of --source: the mean over all tokens of these texts, one per line.")
    ] = None,
    place: Annotated[
        str | None, option("For --what neuron: layer and position, such as 3.4.", metavar="LAYER.POSITION")
    ] = None,
    reverse: Annotated[
        bool, option("Noising: patch activations of TEXT into the source; positions refer to the source.", "--reverse")
    ] = False,
    estimate: Annotated[
        bool,
        option("Compare with attribution patching, an estimate from one forward and one backward pass.", "--estimate"),
    ] = False,
    band: Annotated[
        bool, option(f"Mark effects that are no stronger than those of {RANDOM_TEXTS} random texts.", "--band")
    ] = False,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    out: Annotated[Path | None, output_file(f"Output file with all effects: {', '.join(EFFECT_KINDS)}.")] = None,
    device: shared.Device = "auto",
) -> None:
    """Patch activations of one text into another.

    Activation patching replaces activations of TEXT by those of a source, and measures the change of the prediction. An
    effect of 0 is no change, and 1 is the prediction of the source.
    The order is that of `bert_core.patch`: the source, then the text.
    """
    file_format = shared.check_output(out, kinds=EFFECT_KINDS)
    if former_source is not None:
        if source is not None:
            raise Refused("two sources are given: give --source and one TEXT")
        shared.note("a second text without an option is deprecated: use headlight patch --source SOURCE TEXT")
        source = former_source
    if [source is None, noise is None, mean_of is None].count(False) != 1:
        raise Refused("give one of --source, a second text that differs in a word or two, --noise and --mean-of")
    if reverse and mean_of is not None:
        raise Refused("a mean of texts is none that could be read: leave --reverse out")
    if (part_kind == "neuron") != (place is not None):
        raise Refused("neurons are put in one by one at a token of a layer: give --what neuron and --place together")
    if part_kind == "neuron" and file_format in PICTURES:
        raise Refused(f"--out is {str(out)!r}: single neurons are no map that can be drawn, choose .csv")
    if (word is None) == (target is None):
        raise Refused("say what is followed: either --word, as in --word her --against his, or --target")
    if contrast is not None and word is None:
        raise Refused("--against is another word in the place of --word: give both")
    import bert_core
    from bert_core import MeanOf, Noised
    from bert_core.analysis.causes import mask_same_words
    from bert_core.records import without_noise
    from bert_core.run.target_grammar import CONTRAST_SEPARATOR, parse_target
    from viz_app.export.effects import describe_values, effects_file

    loaded = shared.load(model, device)
    original = source_original = shared.encode(loaded, text, pair)
    base: Encoding | Noised = loaded.tokenizer.mask_words(original, mask or ())
    patch_source: Encoding | Noised | MeanOf
    if mean_of is not None:
        patch_source = MeanOf(tuple(map(loaded.tokenizer.encode, shared.first_texts(mean_of))))
    elif noise is not None:
        patch_source = Noised(loaded.tokenizer.mask_words(original, mask or ()), noise)
    else:
        source_original = shared.encode(loaded, source or "", pair)
        patch_source = mask_same_words(loaded.tokenizer, source_original, original, mask or ())
    if reverse and not isinstance(patch_source, MeanOf):
        base, patch_source = patch_source, base
        original, source_original = source_original, original
    target_text = target or (word or "") + ("" if contrast is None else CONTRAST_SEPARATOR + contrast)
    option = "--word" if target is None else "--target"
    model_target, encoding = parse_target(loaded, without_noise(base), target_text, original=original, label=option)
    if encoding is not without_noise(base):  # one text of a pair, encoded alone: so is that of the source
        if not isinstance(patch_source, MeanOf):
            single = parse_target(loaded, without_noise(patch_source), target_text, original=source_original)
            patch_source = _with_noise_of(patch_source, single.encoding)
        base = _with_noise_of(base, encoding)
    same_length = isinstance(patch_source, MeanOf) or len(patch_source) == len(base)
    options: dict[str, Any] = {"part_kind": part_kind, "align": "tokens" if same_length else "words"}
    if place is not None:
        layer, _, position = place.partition(".")
        if not (layer.isdecimal() and position.isdecimal()):
            raise Refused(f"--place is {place!r}: write the layer and the position, as in 3.4")
        options |= {"layers": [int(layer)], "positions": [int(position)]}
    estimates = bert_core.estimate_patches(loaded, patch_source, base, model_target, **options)
    _check_sides(estimates)
    patches = bert_core.patch(loaded, patch_source, base, model_target, **options, report=shared.ProgressPrinter())
    random = (
        bert_core.patch_band(loaded, patches, texts=RANDOM_TEXTS, report=shared.ProgressPrinter()) if band else None
    )
    values = describe_values(loaded, patches)
    typer.echo(values)
    if "neuron" in patches.axes:
        typer.echo("\n".join(_neuron_lines(patches)))
    else:
        typer.echo("\n".join(_effect_lines(patches, random)))
    if estimate:
        quality = bert_core.patch_estimate_quality(patches, estimates)
        typer.echo(
            f"of the {quality.top} largest effects, attribution patching misses "
            f"{round(quality.missed * quality.top)}; rank correlation (Spearman) {quality.agreement:.2f}"
        )
    if out is not None:
        shared.write_file(out, effects_file(patches, estimates, file_format, random, values=values))


def _with_noise_of(text: Encoding | Noised, encoding: Encoding) -> Encoding | Noised:
    """Return an encoding with the noise of another text, if that has any."""
    from bert_core.records import Noised

    return replace(text, encoding=encoding) if isinstance(text, Noised) else encoding


def _check_sides(patches: Patches) -> None:
    """Note words without a partner on stderr.

    Raises Refused if both texts give the same answer, or if a word is masked in one text only, so that the source
    would read its own word.
    """
    from bert_core.analysis.causes import word_partners
    from bert_core.tokenizer import Encoding

    base, source = patches.text, patches.source
    if isinstance(source, Encoding):
        for row in () if patches.target.pooled else patches.target.rows:
            partner = patches.partners[row] or 0
            if base.roles[row] == "mask" != source.roles[partner]:
                raise Refused(
                    f"position {row} is masked in the text, and in the source {source.tokens[partner]!r} "
                    f"is there: type {base.special_tokens.mask} in both, or mask the word with --mask"
                )
        if len(source) != len(base):
            _, base_only, source_only = word_partners(source, base)
            unmatched = [
                f"{side}: {', '.join(words[:MAX_UNMATCHED])}"
                for side, words in (("only in the text", base_only), ("only in the source", source_only))
                if words
            ]
            shared.note("; ".join(["the texts have other numbers of tokens, so words go to words", *unmatched]))
    if not math.isnan(patches.source_value):
        _ = patches.effects  # raises Refused if both answers are equal


def _effect_lines(patches: Patches, band: PatchBand | None) -> Iterator[str]:
    """Yield the effects as a table of layers and heads, or of tokens and depths, and the largest effect.

    band: effects within it are marked.
    """
    from viz_app.export.effects import effect_map, strongest

    (effects, rows, columns), best, separator = effect_map(patches), strongest(patches), " "
    band_mask = None if band is None else band.contains(patches)
    if "head" not in patches.axes:
        best, separator = best[::-1], " at "
        band_mask = None if band_mask is None else band_mask.T
    marked = [[False] * len(columns)] * len(rows) if band_mask is None else band_mask.tolist()
    yield text_table(
        {"": "", **{column + " ": ">" for column in columns}},
        (
            [label, *(_format_effect(float(value)) + "○ "[not mark] for value, mark in zip(values, marks, strict=True))]
            for label, values, marks in zip(rows, effects, marked, strict=True)
        ),
    )
    yield f"the largest effect: {rows[best[0]]}{separator}{columns[best[1]]}, {_format_effect(float(effects[best]))}"
    if band_mask is not None:
        counts = f"{int(band_mask.sum())} of {int((patches.values == patches.values).sum())}"  # without NaN
        yield f"○ no stronger than {RANDOM_TEXTS} random texts: {counts} places"


def _neuron_lines(patches: Patches) -> Iterator[str]:
    """Yield the neurons of a token of a layer with the largest effects, the largest first."""
    import numpy as np

    from viz_app.export.effects import shares

    effects = shares(patches)
    (layer, position), *_ = np.argwhere(np.isfinite(effects).any(-1)).tolist()
    values = effects[layer, position]
    order = np.argsort(-np.abs(values), kind="stable")[:MAX_NEURONS].tolist()
    yield f"{len(order)} of {len(values):,} neurons of L{layer} at {patches.text.labels[position]} ({position})"
    for neuron in order:
        yield f"neuron {neuron:<6}{_format_effect(float(values[neuron])):>6}"


def _format_effect(effect: float) -> str:
    """Return an effect with two decimals: "0" for what rounds to it, "" where nothing was patched."""
    if math.isnan(effect):
        return ""
    return f"{effect:.2f}" if round(abs(effect), 2) else "0"
