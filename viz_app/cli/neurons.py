"""The command that measures at which words of a file neurons are active."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.refused import Refused
from bert_core.studies.settings import NeuronSettings
from viz_app.cli import shared
from viz_app.cli.options import options
from viz_app.cli.shared import option, output_file

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.studies.neurons import NeuronStats

MAX_PRINTED = 5  # neurons


@options(NeuronSettings, names={"examples": "each"}, partial=True)
def neurons(
    file: shared.FileOfTexts,
    out: Annotated[Path, output_file("The table, .csv or .parquet: one row for each neuron.")],
    settings: Any,
    neurons: Annotated[str, option("Neurons as layer.neuron, such as 3.120,4.7; 3.* is a layer; or all.")] = "all",
    examples: Annotated[Path | None, output_file("Example tokens in their sentences, a .json file.")] = None,
    text: shared.TextColumn = None,
    pair: shared.PairColumn = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    device: shared.Device = "auto",
) -> None:
    """Measure the activations of MLP neurons over a file.

    Each neuron has examples from every decile of its activations. The strongest tokens are compared with random ones.
    Run the same command again to resume.
    """
    from bert_core.studies.neurons import check_neuron_table, measure_neurons, write_examples, write_neuron_table
    from bert_core.studies.runner import exclusive_lock

    shared.check_output(out, file)
    check_neuron_table(out)
    shared.check_output(examples, file, kinds=("json",), name="--examples")
    study: NeuronSettings = settings(neurons=_parse_neurons(neurons), columns=shared.table_columns(text, pair))
    state = out.with_name(out.name + ".part")
    with exclusive_lock(out):
        with shared.resumable(state):
            stats = measure_neurons(file, model, study, state=state, device=device, report=shared.ProgressPrinter())
        write_neuron_table(stats, out)
        if examples is not None:
            write_examples(stats, examples)
        state.unlink(missing_ok=True)
    typer.echo("\n".join(_summary(stats)))


def _parse_neurons(text: str) -> tuple[tuple[int, int | None], ...] | None:
    """Return the (layer, neuron) pairs of `3.120,4.*`, with None for all neurons of a layer; None for "all".

    Raises Refused for another form.
    """
    if text.strip() == "all":
        return None
    pairs = []
    for part in text.split(","):
        layer, point, neuron = part.strip().partition(".")
        if not (point and layer.isdecimal() and (neuron == "*" or neuron.isdecimal())):
            raise Refused(
                f"--neurons is {text!r}: write layer.neuron with commas, as in 3.120,4.7, or 3.* for a layer, or all"
            )
        pairs.append((int(layer), None if neuron == "*" else int(neuron)))
    return tuple(pairs)


def _summary(stats: NeuronStats) -> Iterator[str]:
    """Yield lines about the texts, and about neurons: their deciles, word pieces and examples, strongest first."""
    counts, precision = stats.counts, ""
    if stats.rank_error:
        precision = (
            f"; deciles from {stats.drawn:,} of them, whose ranks have a standard error of {stats.rank_error:.1%}"
        )
    comments = f"; {counts['comments']:,} lines of comments left out" if counts.get("comments") else ""
    yield (
        f"{counts['texts']:,} texts, {counts['tokens']:,} tokens{precision}; {counts['added']:,} special tokens apart"
        f"{comments}"
    )
    yield f"{stats.top} random tokens: {_shares(stats.random_pieces)}"
    numbers = list(range(len(stats.neurons)))
    if len(numbers) > MAX_PRINTED:
        # Those of whose strongest tokens the largest share is one piece, above its share of all tokens.
        excess = [pieces[0][1] - pieces[0][2] for pieces in stats.pieces]
        numbers = sorted(numbers, key=lambda number: -excess[number])[:MAX_PRINTED]
        yield f"{MAX_PRINTED} of {len(stats.neurons):,} neurons, those that are most specific to one token:"
    for number in numbers:
        yield ""
        yield from _neuron_summary(stats, number)


def _neuron_summary(stats: NeuronStats, number: int) -> Iterator[str]:
    """Yield lines about one neuron. number: its row in the arrays."""
    layer, neuron = stats.neurons[number].tolist()
    figures = {name: values[number] for name, values in stats.figures.items()}
    yield (
        f"L{layer} neuron {neuron}: mean {figures['mean']:.3f}, spread {figures['spread']:.3f}, above 0 at "
        f"{figures['active']:.1%}; at special tokens mean {figures['added_mean']:.3f}, above 0 at "
        f"{figures['added_active']:.1%}"
    )
    if "gate_mean" in figures:
        yield (
            f"inputs: activated mean {figures['activated_mean']:.3f}, gate mean {figures['gate_mean']:.3f}, below 0 at "
            f"{figures['gate_negative']:.1%}; their product is the activation"
        )
    yield "deciles " + " ".join(f"{value:.3g}" for value in stats.deciles[number])
    yield f"{stats.top} strongest: {_shares(stats.pieces[number])}"
    groups = [
        ("top", stats.strongest[number], stats.strongest_values[number]),
        *(
            (f"{tenth + 1}/10", stats.tenths[number, tenth], stats.tenths_values[number, tenth])
            for tenth in reversed(range(stats.tenths.shape[1]))
        ),
        ("random", stats.at_random, stats.at_random_values[number]),
    ]
    for name, indices, values in groups:
        for index, value in zip(indices.tolist(), values.tolist(), strict=True):
            if index >= 0:
                context = stats.places[index]
                sentence = f"{context.before}«{context.written}»{context.after}"
                yield f"{name:>7} {value:>8.3f}  {context.line:>6}: {sentence}"


def _shares(pieces: tuple[tuple[str, float, float], ...]) -> str:
    """Return word pieces with their shares of the strongest and of all tokens."""
    return ", ".join(f"{piece} {share:.0%} ({total_share:.1%} of all)" for piece, share, total_share in pieces)
