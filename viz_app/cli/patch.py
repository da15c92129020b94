"""The command that puts parts of the reading of one text into that of another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import (
    TARGET_FORMS,
    Device,
    ModelName,
    Notes,
    check_place,
    encode,
    first_texts,
    kind_of_file,
    load,
    note,
)
from viz_app.export import EFFECT_KINDS

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import Noised, PatchBand, Patches
    from bert_core.tokenizer import Encoding

RANDOM_TEXTS = 10  # of the band
MOST_NAMED = 8  # words without a partner
MOST_NEURONS = 12  # that are printed; a file has all


def patch(
    text: Annotated[str, typer.Argument(help="The text that is read, with [MASK] or --mask.")],
    source: Annotated[
        str | None, typer.Argument(help="The text that the parts come from; as many tokens, or words go to words.")
    ] = None,
    word: Annotated[
        str | None, typer.Option(help="The word to follow at the [MASK]; where there are several, as in 'door at 4'.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Another word there: the difference of the two logits is followed.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help=f"What to follow, instead of --word: {TARGET_FORMS}, or loss, all words hidden by --mask.",
        ),
    ] = None,
    mask: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Hide this word of TEXT, from zero, in both texts; may be given again."),
    ] = None,
    pair: Annotated[str | None, typer.Option(help="A second text, of both.")] = None,
    what: Annotated[
        Literal["state", "attention", "feed_forward", "head", "pattern", "query", "key", "value", "neuron"],
        typer.Option(help="What is carried over: of a token at a depth or in a layer, of a head, or single neurons."),
    ] = "state",
    noise: Annotated[
        float | None,
        typer.Option(metavar="SIZE", help="Instead of SOURCE: TEXT with noise, in deviations of word embeddings."),
    ] = None,
    mean_of: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Instead of SOURCE: the mean over all tokens of these texts, one a line."
        ),
    ] = None,
    place: Annotated[
        str | None, typer.Option(metavar="LAYER.POSITION", help="Of neurons: the layer and the token, as in 3.4.")
    ] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Read the source, with parts of TEXT; positions are those of the source.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="What the estimate from one pass there and back misses.")
    ] = False,
    band: Annotated[bool, typer.Option("--band", help=f"Mark what {RANDOM_TEXTS} random texts do as well.")] = False,
    model: ModelName = "headlight-mini",
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help=f"All numbers as a file: {', '.join(EFFECT_KINDS)}.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Which part of its reading of SOURCE makes a model answer TEXT as it answers SOURCE: patches, one by one.

    0 changes nothing, 1 gives the source's answer.
    """
    kind = None if out is None else kind_of_file("--out", out, EFFECT_KINDS)
    if out is not None:
        check_place(out)
    if [source is None, noise is None, mean_of is None].count(False) != 1:
        raise Refused("give one of SOURCE, a second text that differs in a word or two, --noise and --mean-of")
    if reverse and mean_of is not None:
        raise Refused("a mean of texts is none that could be read: leave --reverse out")
    if (what == "neuron") != (place is not None):
        raise Refused("neurons are put in one by one at a token of a layer: give --what neuron and --place together")
    if (word is None) == (target is None):
        raise Refused("say what is followed: either --word, as in --word her --against his, or --target")
    if against is not None and word is None:
        raise Refused("--against is another word in the place of --word: give both")
    import bert_core
    from bert_core import MeanOf, Noised
    from bert_core.analysis.causes import mask_same_words
    from bert_core.records import without_noise
    from bert_core.run.target_grammar import CONTRAST_SEPARATOR, parse_target
    from viz_app.export.effects import effects_file

    loaded = load(model, device)
    typed = source_typed = encode(loaded, text, pair)
    read: Encoding | Noised = loaded.tokenizer.mask_words(typed, mask or ())
    other: Encoding | Noised | MeanOf
    if mean_of is not None:
        longest = loaded.config.max_position_embeddings
        texts = first_texts(mean_of)
        other = MeanOf(tuple(loaded.tokenizer.encode(one, max_length=longest) for one in texts))
    elif noise is not None:
        other = Noised(loaded.tokenizer.mask_words(typed, mask or ()), noise)
    else:
        source_typed = encode(loaded, source or "", pair)
        other = mask_same_words(loaded.tokenizer, source_typed, typed, mask or ())
    if reverse and not isinstance(other, MeanOf):
        read, other, typed, source_typed = other, read, source_typed, typed
    written = target or (word or "") + ("" if against is None else CONTRAST_SEPARATOR + against)
    option = "--word" if target is None else "--target"
    followed, encoding = parse_target(loaded, without_noise(read), written, original=typed, label=option)
    if encoding is not without_noise(read):  # one text of a pair, read by itself: so is that of the source
        if not isinstance(other, MeanOf):
            other = _with(other, parse_target(loaded, without_noise(other), written, original=source_typed).encoding)
        read = _with(read, encoding)
    some: dict[str, Any] = {"part_kind": what}
    some["align"] = "tokens" if isinstance(other, MeanOf) or len(other) == len(read) else "words"
    if place is not None:
        layer, _, position = place.partition(".")
        if not (layer.isdecimal() and position.isdecimal()):
            raise Refused(f"--place is {place!r}: write the layer and the position, as in 3.4")
        some |= {"layers": [int(layer)], "positions": [int(position)]}
    estimated = bert_core.estimate_patches(loaded, other, read, followed, **some)
    _check_sides(estimated)
    found = bert_core.patch(loaded, other, read, followed, **some, report=Notes())
    random = bert_core.patch_band(loaded, found, texts=RANDOM_TEXTS, report=Notes()) if band else None
    typer.echo(_answers(loaded, found))
    typer.echo("\n".join(_lines(found, random)))
    if estimate:
        missed = bert_core.patch_estimate_quality(found, estimated)
        typer.echo(
            f"of the {missed.top} places that move the answer most, the estimate misses "
            f"{round(missed.missed * missed.top)}; Spearman's rank correlation {missed.agreement:.2f}"
        )
    if out is not None and kind is not None:
        from bert_core.checkpoint import write_atomically

        write_atomically(out, effects_file(found, estimated, kind, random))


def _with(text: Encoding | Noised, encoding: Encoding) -> Encoding | Noised:
    """Another text, with the noise that this one carries."""
    from bert_core.records import Noised

    return replace(text, encoding=encoding) if isinstance(text, Noised) else encoding


def _check_sides(found: Patches) -> None:
    """Say on stderr which words have no partner. Raise Refused where there is nothing to explain.

    That is where both texts give the same answer, or a word is hidden in one alone: the source would read its own.
    """
    from bert_core.analysis.causes import word_partners
    from bert_core.tokenizer import Encoding

    read, source = found.text, found.source
    if isinstance(source, Encoding):
        for row in () if found.target.pooled else found.target.rows:
            partner = found.partners[row] or 0
            theirs = source.tokens[partner]
            if read.roles[row] == "mask" != source.roles[partner]:
                raise Refused(
                    f"position {row} is hidden in the text that is read, and in the source {theirs!r} stands there: "
                    f"type {read.special_tokens.mask} in both, or hide the word with --mask"
                )
        if len(source) != len(read):
            _, alone, only = word_partners(source, read)
            said = [
                f"{where}: {', '.join(words[:MOST_NAMED])}"
                for where, words in (("only in the text that is read", alone), ("only in the source", only))
                if words
            ]
            note("; ".join(["the texts have other numbers of tokens, so words go to words", *said]))
    if not math.isnan(found.source_value):
        _ = found.effects


def _answers(loaded: LoadedModel, found: Patches) -> str:
    """What is followed, and what both texts answer."""
    from bert_core.task_heads import head_of

    target = found.target
    names = head_of(target).template_values(loaded, found.text, target)
    what = target.target_kind.supports.format(**names)
    if target.against is not None:
        what += f" rather than “{names['other']}”"
    text, source = (
        target.target_kind.format_value(value, "{:.3g}".format) for value in (found.base_value, found.source_value)
    )
    if math.isnan(found.source_value):
        return (
            f"{what}: {text} in the text that is read; the table says how far that moves, in {target.target_kind.unit}"
        )
    return f"{what}: {text} in the text that is read, {source} in the source"


def _lines(found: Patches, band: PatchBand | None) -> Iterator[str]:
    """The effects as a table, of layers and heads or of tokens and depths, the largest of them, and what is marked."""
    from viz_app.export.effects import both_labels, shares, source_labels, strongest

    if "neuron" in found.axes:
        yield from _neuron_lines(found)
        return
    layers, heads = found.head_mask.shape
    depths = [f"L{layer}" for layer in range(layers)]
    if of_heads := "head" in found.axes:
        rows, columns = depths, [f"H{head}" for head in range(heads)]
    else:
        read = found.text
        rows = both_labels(read.labels, source_labels(found.source, read, found.partners))
        columns = ["emb."] * (found.kind == "state") + depths
    effects, width = shares(found), max(map(len, rows))
    yield " " * width + "".join(f"{column:>7}" for column in columns)
    held = None if band is None else band.contains(found)
    for row, label in enumerate(rows):
        line = f"{label:<{width}}"
        for column in range(len(columns)):
            place: tuple[int, ...] = (row, column) if of_heads else (column, row)
            line += f"{_two_places(float(effects[place])):>6}{'○' if held is not None and held[place] else ' '}"
        yield line.rstrip()
    place = strongest(found)
    row, column = place if of_heads else place[::-1]
    named = f"{rows[row]} {columns[column]}" if of_heads else f"{rows[row]} at {columns[column]}"
    yield f"the largest effect: {named}, {_two_places(float(effects[place]))}"
    if held is not None:
        there = int((found.values == found.values).sum())
        yield f"○ moves the answer no more than {RANDOM_TEXTS} random texts do: {int(held.sum())} of {there} places"


def _neuron_lines(found: Patches) -> Iterator[str]:
    """The neurons of a token of a layer with the largest effects, the largest first."""
    import numpy as np

    from viz_app.export.effects import shares

    effects = shares(found)
    (layer, position), *_ = np.argwhere(np.isfinite(effects).any(-1)).tolist()
    of_place = effects[layer, position]
    order = np.argsort(-np.abs(of_place), kind="stable")[:MOST_NEURONS].tolist()
    yield f"the {len(order)} of {len(of_place):,} neurons of L{layer} at {found.text.labels[position]} ({position})"
    for neuron in order:
        yield f"neuron {neuron:<6}{_two_places(float(of_place[neuron])):>6}"


def _two_places(effect: float) -> str:
    """An effect as it stands in the table: 0 for what rounds to it, nothing where nothing was patched."""
    if math.isnan(effect):
        return ""
    return f"{effect:.2f}" if round(abs(effect), 2) else "0"
