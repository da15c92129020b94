"""The command that probes a label of words at every depth."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bert_core.studies.settings import ProbeSettings
from viz_app.cli import shared
from viz_app.cli.help import INPUT
from viz_app.cli.options import options
from viz_app.cli.shared import file_argument, option, output_file
from viz_app.cli.tables import print_table, write_json

if TYPE_CHECKING:
    from bert_core.analysis.probes import ProbeDepth

COLUMNS = {
    "depth": "d", "accuracy": ".1%", "seeds": ">", "control task": ".1%", "selectivity": "+.1%", "word type": ".1%",
    "majority class": ".1%", "compression": ".2f", "of control task": ".2f",
}  # fmt: skip
MEANS = ("control", "selectivity", "lookup", "majority", "compression", "control_compression")


@options(ProbeSettings, omit=("held_out", "penalty"))
def probe(
    file: Annotated[
        Path,
        file_argument(
            "A treebank, CoNLL-U; a table (.csv, .tsv, .jsonl, .json) with the columns sentence, word and labels; "
            "or CoNLL columns."
        ),
    ],
    label: Annotated[
        str,
        option(
            "upos, relation or a feature such as number; in a table, a column; in CoNLL, its number.",
            group=INPUT,
            metavar="LABEL",
        ),
    ],
    out: Annotated[Path, output_file("The table, .csv or .json: one row for each depth and seed.")],
    settings: ProbeSettings,
    layers: Annotated[
        str, option("Depths, comma-separated: 0 for the embeddings, n + 1 for the output of layer n; or all.")
    ] = "all",
    model: shared.ModelName = shared.DEFAULT_MODEL,
    device: shared.Device = "auto",
) -> None:
    """Train linear probes for a label of words at each depth.

    The baselines are the majority class, the word type, and a control task with random labels. Run the same command
    again to resume.
    """
    from bert_core.analysis.probes import probe_depths
    from bert_core.studies.probes import probe_file
    from bert_core.studies.words import read_labelled_words, skipped_comments_note

    as_json = shared.check_output(out, file, kinds=("csv", "json")) == "json"
    table = out.with_suffix(".csv") if as_json else out
    shared.check_output(table, file)
    depths = shared.parse_numbers(layers, "--layers", "depths", "0,3,6")
    sentences = read_labelled_words(file, label)  # errors of the file are reported before a model is loaded
    if comments := skipped_comments_note(sentences):
        shared.note(f"{len(sentences):,} sentences{comments}")
    points = probe_file(
        shared.load(model, device), file, label, table, settings, depths=depths, report=shared.ProgressPrinter()
    )
    if as_json:
        write_json({"label": label, "points": [dataclasses.asdict(point) for point in points]}, out)
    _print_depths(probe_depths(points))


def _print_depths(depths: list[ProbeDepth]) -> None:
    """Print one line per depth: means over the seeds, and the range of the accuracies."""
    columns = dict(COLUMNS)
    has_erasure = not math.isnan(depths[0].figures["erased"][0])
    if has_erasure:
        columns |= {"erased": ".1%", "masked-token loss": ""}
    rows = []
    for depth in depths:
        mean = {name: values[0] for name, values in depth.figures.items()}
        _, low, high = depth.figures["accuracy"]
        row: list[object] = [depth.depth, mean["accuracy"], f"{low:.1%}-{high:.1%}", *(mean[name] for name in MEANS)]
        if has_erasure:
            losses = f"{mean['loss']:.3f}, {mean['loss_erased']:.3f} without, {mean['loss_random']:.3f} without random"
            row += [mean["erased"], f"{losses} directions"]
        rows.append(row)
    print_table(columns, rows)
