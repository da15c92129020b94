"""The command that probes a label of words at every depth."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Device, ModelName, Notes, check_place, load, note

if TYPE_CHECKING:
    from bert_core.analysis.probes import ProbeDepth
    from bert_core.records import ProbePoint

ENDINGS = (".csv", ".json")


def probe(
    file: Annotated[
        Path,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="A treebank, CoNLL-U; a table (.csv, .tsv, .jsonl, .json) with the columns sentence, word and labels; "
            "or CoNLL columns.",
        ),
    ],
    label: Annotated[
        str,
        typer.Option(
            metavar="LABEL", help="upos, relation or a feature such as number; of a .csv a column; else its number."
        ),
    ],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The table, .csv or .json: a line a depth and seed.")],
    layers: Annotated[
        str, typer.Option(help="Depths with commas, 0 for the embeddings, n for what leaves the n-th layer; or all.")
    ] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="Splits into sentences learned from and asked about.")] = 3,
    erase: Annotated[
        bool, typer.Option("--erase", help="Then erase the label, and see what the model still predicts.")
    ] = False,
    words: Annotated[int, typer.Option(min=100, help="Words at most, of sentences drawn from all.")] = 20_000,
    least: Annotated[int, typer.Option(min=1, help="Leave out labels of fewer words.")] = 20,
    model: ModelName = "headlight-mini",
    device: Device = "auto",
) -> None:
    """What of a label a linear probe reads off the words' states, layer by layer, beside what misleads.

    A majority line, a table of word types, and a control task of random labels stand beside it. Stopped, it keeps what
    it has; the same command goes on.
    """
    from bert_core import checkpoint
    from bert_core.analysis.probes import probe_depths
    from bert_core.studies.probes import probe_file
    from bert_core.studies.settings import ProbeSettings
    from bert_core.studies.words import read_labelled_words, skipped_comments_note

    if out.suffix.lower() not in ENDINGS:
        raise Refused(f"--out is {str(out)!r}: its ending must be one of {', '.join(ENDINGS)}")
    check_place(out, file)
    as_json = out.suffix.lower() == ".json"
    table = out.with_suffix(".csv") if as_json else out
    check_place(table, file)
    depths = _parse_depths(layers)
    settings = ProbeSettings(seeds=seeds, words=words, least=least, erase=erase)
    sentences = read_labelled_words(file, label)  # what is wrong with it is said before a model is loaded
    if comments := skipped_comments_note(sentences):
        note(f"{len(sentences):,} sentences{comments}")
    points = probe_file(load(model, device), file, label, table, settings, depths=depths, report=Notes())
    found = probe_depths(points)
    if as_json:
        checkpoint.write_atomically(out, json.dumps(_as_json(label, points), indent=1) + "\n")
    typer.echo("\n".join(_lines(found)))


def _parse_depths(written: str) -> list[int] | None:
    """`0,3,6` as numbers, None for all. Raises Refused for anything else."""
    if written.strip() == "all":
        return None
    try:
        return [int(part) for part in written.split(",")]
    except ValueError as error:
        raise Refused(f"--layers is {written!r}: write depths with commas, as in 0,3,6, or all") from error


def _as_json(label: str, points: list[ProbePoint]) -> dict[str, object]:
    """What stands in the file: numbers, and null for what was not asked."""
    rows = [dataclasses.asdict(point) for point in points]
    return {
        "label": label,
        "points": [
            {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
            for row in rows
        ],
    }


def _lines(found: list[ProbeDepth]) -> list[str]:
    """A line a depth: means over the seeds, and how far the accuracies spread."""
    erased = not math.isnan(found[0].figures["erased"][0])
    lines = [
        f"{'depth':>5} {'accuracy':>9} {'seeds':>14} {'control':>8} {'selectivity':>12} {'lookup':>7} "
        f"{'majority':>9} {'compression':>12} {'of control':>11}"
        + (f" {'erased':>7}  hidden words' loss" if erased else "")
    ]
    for depth in found:
        mean = {name: of_seeds[0] for name, of_seeds in depth.figures.items()}
        _, low, high = depth.figures["accuracy"]
        line = (
            f"{depth.depth:>5} {mean['accuracy']:>9.1%} {f'{low:.1%}-{high:.1%}':>14} {mean['control']:>8.1%} "
            f"{mean['selectivity']:>+12.1%} {mean['lookup']:>7.1%} {mean['majority']:>9.1%} "
            f"{mean['compression']:>12.2f} {mean['control_compression']:>11.2f}"
        )
        if erased:
            line += (
                f" {mean['erased']:>7.1%}  {mean['loss']:.3f}, {mean['loss_erased']:.3f} without, "
                f"{mean['loss_random']:.3f} without random directions"
            )
        lines.append(line)
    return lines
