"""The command that asks at which words of a file neurons fire."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import (
    Device,
    FileOfTexts,
    ModelName,
    Notes,
    PairColumn,
    TextColumn,
    check_place,
    kind_of_file,
    note,
)

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.studies.neurons import NeuronStats

SHOWN = 5  # neurons, where more were asked for


def neurons(
    file: FileOfTexts,
    out: Annotated[Path, typer.Option(dir_okay=False, help="The table, .csv or .parquet: one row a neuron.")],
    neurons: Annotated[
        str, typer.Option(help="layer.neuron with commas, as in 3.120,4.7; 3.* for a layer; or all.")
    ] = "all",
    examples: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Tokens in their sentences, a .json file.")
    ] = None,
    each: Annotated[int, typer.Option(min=1, max=50, help="Examples from every tenth of a neuron's activations.")] = 3,
    window: Annotated[int, typer.Option(min=0, max=1000, help="Words on either side of a token.")] = 8,
    text: TextColumn = None,
    pair: PairColumn = None,
    model: ModelName = "headlight-mini",
    max_length: Annotated[int, typer.Option(min=3, max=65_536, help="Tokens of a text that are read.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Of the tokens that are drawn.")] = 0,
    device: Device = "auto",
) -> None:
    """At which words of a file neurons fire: how often, how strongly, and examples from every tenth, not only the top.

    Random tokens stand beside the strongest. Stopped, it keeps what it has; the same command again goes on.
    """
    from bert_core.studies.neurons import (
        check_neuron_table,
        measure_neurons,
        write_examples,
        write_neuron_table,
    )
    from bert_core.studies.rows import Columns
    from bert_core.studies.runner import exclusive_lock
    from bert_core.studies.settings import NeuronSettings

    places = [out] if examples is None else [out, examples]
    for place in places:
        check_place(place, file)
    check_neuron_table(out)
    if examples is not None:
        kind_of_file("--examples", examples, ("json",))
    if pair is not None and text is None:
        raise Refused("--pair names a column: say with --text which column holds the texts")
    settings = NeuronSettings(
        _parse_neurons(neurons), max_length, each, window, seed, None if text is None else Columns(text, pair),
    )  # fmt: skip
    state = out.with_name(out.name + ".part")
    with exclusive_lock(out):
        try:
            found = measure_neurons(file, model, settings, state=state, device=device, report=Notes())
        except KeyboardInterrupt:
            if state.exists():
                note("stopped: the same command goes on")
            raise
        write_neuron_table(found, out)
        if examples is not None:
            write_examples(found, examples)
        state.unlink(missing_ok=True)
    typer.echo("\n".join(_lines(found)))


def _parse_neurons(written: str) -> tuple[tuple[int, int | None], ...] | None:
    """`3.120,4.*` as pairs, None for all neurons of a layer, or of the model. Raises Refused for anything else."""
    if written.strip() == "all":
        return None
    found = []
    for part in written.split(","):
        layer, point, neuron = part.strip().partition(".")
        if not (point and layer.isdecimal() and (neuron == "*" or neuron.isdecimal())):
            raise Refused(
                f"--neurons is {written!r}: write layer.neuron with commas, as in 3.120,4.7, or 3.* for a layer, or all"
            )
        found.append((int(layer), None if neuron == "*" else int(neuron)))
    return tuple(found)


def _lines(found: NeuronStats) -> list[str]:
    """What was read; of some neurons their deciles, the pieces that they fire at, and examples from the top down."""
    counts, exact = found.counts, ""
    if found.rank_error:
        exact = f"; deciles from {found.drawn:,} of them, whose ranks have a standard error of {found.rank_error:.1%}"
    lines = [
        f"{counts['texts']:,} texts, {counts['tokens']:,} tokens{exact}; {counts['added']:,} special tokens apart"
        + (f"; {counts['comments']:,} lines of comments left out" if counts.get("comments") else ""),
        f"{found.top} random tokens: {_shares(found.random_pieces)}",
    ]
    shown = list(range(len(found.neurons)))
    if len(found.neurons) > SHOWN:
        # Those of whose strongest tokens most are of one piece, beyond its share of all tokens.
        ahead = [own[0][1] - own[0][2] for own in found.pieces]
        shown = sorted(shown, key=lambda number: -ahead[number])[:SHOWN]
        lines.append(f"{SHOWN} of {len(found.neurons):,} neurons, those that fire most at one piece:")
    for number in shown:
        lines += ["", *_of_neuron(found, number)]
    return lines


def _of_neuron(found: NeuronStats, number: int) -> list[str]:
    layer, neuron = found.neurons[number].tolist()
    own = {name: values[number] for name, values in found.figures.items()}
    lines = [
        f"L{layer} neuron {neuron}: mean {own['mean']:.3f}, spread {own['spread']:.3f}, above 0 at "
        f"{own['active']:.1%}; at special tokens mean {own['added_mean']:.3f}, above 0 at {own['added_active']:.1%}",
        "deciles " + " ".join(f"{value:.3g}" for value in found.deciles[number]),
        f"{found.top} strongest: {_shares(found.pieces[number])}",
    ]
    groups = [("top", found.strongest[number], found.strongest_values[number])]
    groups += [
        (f"{tenth + 1}/10", found.tenths[number, tenth], found.tenths_values[number, tenth])
        for tenth in reversed(range(found.tenths.shape[1]))
    ]
    groups.append(("random", found.at_random, found.at_random_values[number]))
    for name, places, values in groups:
        for at, value in zip(places.tolist(), values.tolist(), strict=True):
            if at >= 0:
                place = found.places[at]
                lines.append(f"{name:>7} {value:>8.3f}  {place.line:>6}: {place.before}«{place.written}»{place.after}")
    return lines


def _shares(pieces: tuple[tuple[str, float, float], ...]) -> str:
    return ", ".join(f"{piece} {share:.0%} ({of_all:.1%} of all)" for piece, share, of_all in pieces)
