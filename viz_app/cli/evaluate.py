"""The command that evaluates a model on every text of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.refused import Refused
from bert_core.studies.settings import EVALUATION_LOSSES, EvaluationSettings
from viz_app.cli import shared
from viz_app.cli.help import INPUT
from viz_app.cli.options import options
from viz_app.cli.shared import column, option, output_file

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.records import EvaluatedTexts

MAX_CONFUSIONS = 5  # printed; the table has all


@options(EvaluationSettings, partial=True, group=INPUT)
def evaluate_file(
    file: shared.FileOfTexts,
    out: Annotated[Path, output_file("The table, .csv or .parquet: one row for each answer.")],
    settings: Any,
    *,
    text: shared.TextColumn = None,
    pair: shared.PairColumn = None,
    label: Annotated[str | None, column("The column of the expected answers.")] = None,
    word: Annotated[str, option("Evaluate this word at the [MASK], or only this tagged word.", group=INPUT)] = "",
    tags: Annotated[
        str, option("Evaluate the tags of a file of words: upos, last, or a column.", group=INPUT, metavar="LABEL")
    ] = "",
    question: Annotated[
        str | None, option(f"What is evaluated: {', '.join(EVALUATION_LOSSES)}.", "--ask", group=INPUT, metavar="KIND")
    ] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    engine: shared.Engine = "local",
    overwrite: shared.Overwrite = False,
    device: shared.Device = "auto",
) -> None:
    """Evaluate the predictions for every text of a file.

    The table has the answer, the prediction and the loss of each text, and the other columns of the file. The default
    question is the class. Without answers, --ask surprise sorts texts by their surprisal. Run the same command again to
    resume.
    """
    from bert_core.studies.evaluation import evaluate_file as evaluate_texts_of_file
    from bert_core.studies.evaluation_tables import read_evaluation

    shared.check_output(out, file)
    if tags and question not in (None, "tag"):
        raise Refused(f"--tags {tags!r} is the label of a file of words: it is evaluated by --ask tag")
    study: EvaluationSettings = settings(
        question=question or ("tag" if tags else "class"),
        word=word,
        columns=shared.table_columns(text, pair, label),
        tags=tags,
    )
    shared.run_table_study(
        evaluate_texts_of_file, file, out, model, study, engine=engine, device=device, overwrite=overwrite
    )
    typer.echo("\n".join(_summary(read_evaluation(out))))
    typer.echo(out)


def _summary(table: EvaluatedTexts) -> Iterator[str]:
    """Yield lines with the accuracy, F1 and mean loss, and the most frequent confusions."""
    from bert_core.analysis.evaluation import confusion, summary

    totals = summary(table)
    if table.has_answers:
        low, high = totals.interval
        yield (
            f"accuracy {totals.accuracy:.1%} ({totals.correct:,} of {totals.scored:,}, 95% interval {low:.1%} to "
            f"{high:.1%}), macro F1 {totals.macro_f1:.3f}"
        )
    if totals.mean_loss == totals.mean_loss:
        yield f"mean loss {totals.mean_loss:.4f} {table.loss_unit}"
    matrix = confusion(table)
    cells = [
        (int(matrix.counts[row, column]), answer, prediction)
        for row, answer in enumerate(matrix.labels)
        for column, prediction in enumerate(matrix.labels)
        if row != column and matrix.counts[row, column]
    ]
    for count, answer, prediction in sorted(cells, key=lambda cell: -cell[0])[:MAX_CONFUSIONS]:
        yield f"{count:,} × {answer} predicted as {prediction}"
