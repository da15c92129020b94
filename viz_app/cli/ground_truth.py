"""The command that compares attribution methods with known relevant words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bert_core.studies.settings import GroundTruthSettings
from viz_app.cli import shared
from viz_app.cli.options import options
from viz_app.cli.shared import option, output_file

SETS = ("agreement", "circuits")


@options(GroundTruthSettings, partial=True)
def ground_truth(
    out: Annotated[Path, output_file("The table as CSV: one row for each sentence and method.")],
    settings: Any,
    sentences_from: Annotated[
        str,
        option(
            f"{', '.join(SETS)}, or a file: a treebank (CoNLL-U), or a table with text, subject, right and wrong.",
            "--set",
            metavar="NAME|FILE",
        ),
    ] = SETS[0],
    methods: Annotated[
        str | None,
        option("Attribution methods, comma-separated; by default all.", metavar="NAME,NAME"),
    ] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    device: shared.Device = "auto",
) -> None:
    """Compare attribution methods with known relevant words.

    In the sentences a verb is masked, and its subject determines its number. The set "circuits" has models of its own
    in place of --model: their weights are set by hand, so that the relevant words are known exactly. Run the same
    command again to resume. Prints a table in Markdown: the share of sentences in which a relevant word gets the
    largest score, and other accuracies.
    """
    from bert_core.studies.files import check_file
    from bert_core.studies.ground_truth import judge_ground_truth, summarise_truth, truth_markdown

    study: GroundTruthSettings = settings(methods=() if methods is None else shared.parse_names(methods))
    source: str | Path = sentences_from
    if sentences_from not in SETS:
        source = Path(sentences_from)
        check_file(source)
    shared.check_output(out, source if isinstance(source, Path) else None, kinds=("csv",))
    loaded = None if source == "circuits" else shared.load(model, device)
    result = judge_ground_truth(loaded, source, out, study, report=shared.ProgressPrinter())
    shared.note(
        f"{result.sentences:,} sentences; the model predicts the wrong word in {result.wrong:,}, and "
        f"{result.unusable:,} have a word of several tokens or are too long"
    )
    typer.echo(truth_markdown(summarise_truth(result.judgements)), nl=False)
