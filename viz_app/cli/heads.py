"""Commands about the heads of a model over a file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.run import MAX_REFERENCES
from bert_core.studies.settings import CorpusSettings
from viz_app.cli import shared
from viz_app.cli.options import options
from viz_app.cli.shared import file_argument, input_file, option, output_file
from viz_app.cli.tables import print_table

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.records import HeadTable
    from bert_core.studies.heads import HeadSums
    from bert_core.studies.treebank import TreeSentence

MAX_PRINTED = 10  # heads
QUESTION_HELPS = {
    "label": "Loss of the class of each text, from this column.",
    "answer": "Loss of the word at the [MASK] of each text, from this column.",
    "word": "Loss of this word at the [MASK] of each text.",
    "is_next": "Loss of next sentence prediction, for pairs or consecutive lines.",
    "tags": "Loss of the tags of a file of words: upos or last.",
}


@options(CorpusSettings, names={"mask_share": "mask_rate"}, partial=True)
@options(shared.QuestionOptions, parameter="question", omit=("guess",), helps=QUESTION_HELPS, group="Loss")
def heads(
    corpus: shared.FileOfTexts,
    out: Annotated[Path, output_file("The table, .csv or .parquet: one row for each head.")],
    settings: Any,
    *,
    importance: Annotated[
        bool, option("Compute the gradient importance of each head (Michel 2019).", "--importance")
    ] = False,
    ablation: Annotated[bool, option("Compute the loss without each head (ablation).", "--ablation")] = False,
    question: shared.QuestionOptions,
    method: Annotated[str, option("Type of ablation: zero, mean or resample.", "--by", metavar="METHOD")] = "zero",
    reference: Annotated[
        Path | None, input_file(f"Texts for mean and resample ablation, one per line, at most {MAX_REFERENCES}.")
    ] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    engine: shared.Engine = "local",
    overwrite: shared.Overwrite = False,
    device: shared.Device = "auto",
) -> None:
    """Measure every head over a file.

    The table has the attention pattern, confidence, importance and ablation of each head. The loss is that of masked
    tokens, unless an option selects another prediction. Run the same command again to resume.
    """
    from bert_core.studies.heads import heads_file, reading_note

    shared.check_output(out, corpus, reference)
    study: CorpusSettings = settings(
        importance=importance,
        ablation=ablation,
        loss=question.choose("words", "one of them, or none for masked tokens"),
        word=question.word,
        columns=question.columns,
        method=method,
        reference=() if reference is None else shared.first_texts(reference),
        tags=question.tags,
    )
    report = shared.ProgressPrinter()

    def report_sums(sums: HeadSums, share: float) -> None:
        report(share, f"{share:4.0%}  {sums.counts['texts']:,} texts")

    with shared.resumable(out, f"{out} holds what was measured so far, and "):
        total = heads_file(
            corpus, out, model, study, engine=engine, device=device, overwrite=overwrite, on_progress=report_sums
        )
    if total is None:
        typer.echo(f"{out} is already complete")
        return
    shared.note(reading_note(total.counts))
    _print_heads(total.table(model, study))


def roles(
    treebank: Annotated[Path, file_argument("Sentences with trees, CoNLL-U.")],
    out: Annotated[Path | None, output_file("The table as CSV: one row for each relation.")] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    min_count: Annotated[int, option("Minimum count of a relation; rarer ones are left out.", "--least", min=1)] = 20,
    device: shared.Device = "auto",
) -> None:
    """Find the head that tracks each syntactic relation best.

    The baseline is the best fixed offset, such as the previous word.
    """
    from bert_core.studies.relations import relations_csv, track_relations
    from bert_core.studies.texts import read_trees

    shared.check_output(out, treebank)
    comments = 0

    def count_comments() -> Iterator[TreeSentence]:
        nonlocal comments
        for tree, _ in read_trees(treebank):
            comments += tree.comments
            yield tree

    sentences = count_comments()
    first = next(sentences)  # errors of the file are reported before a model is loaded
    tally = track_relations(shared.load(model, device), chain([first], sentences), report=shared.ProgressPrinter())
    relations = tally.rows(min_count)
    if out is not None:
        shared.write_file(out, relations_csv(relations))
    shared.note(
        f"{tally.sentences:,} sentences, {sum(tally.counts.values()):,} relations; "
        f"{tally.left_out:,} of words without their own token were left out"
        + (f"; {comments:,} lines of comments were left out" if comments else "")
    )
    if not relations:
        shared.note(f"no relation occurs {min_count:,} times: --least 1 shows all")
        return
    columns = {"relation": "", "words": "d", "best head": "", "found": ".1%", "direction": "", "fixed offset": "+d"}
    rows = []
    for row in relations:
        head, accuracy = (None, None) if row.layer is None else (f"L{row.layer} H{row.head}", row.accuracy)
        direction = row.direction or None
        rows.append((row.relation, row.asked, head, accuracy, direction, row.offset, row.offset_accuracy))
    print_table({**columns, "by fixed offset": ".1%"}, rows)


def _print_heads(table: HeadTable) -> None:
    """Print the heads with the largest figures, and the rank correlation of importance with the change of the loss."""
    from bert_core.analysis.heads import heads_agreement, leading_heads

    figures = table.figures
    if table.loss is not None:
        typer.echo(f"{table.texts:,} texts, loss {table.loss_text}")
    order = next((name for name in ("loss_change", "importance", "confidence") if name in figures), "confidence")
    names = [name for name in ("importance", "loss_change", "confidence", "entropy") if name in figures]
    print_table(
        {"head": "", **dict.fromkeys(names, ".4g")},
        (
            (f"L{layer} H{head}", *(figures[name][layer, head] for name in names))
            for layer, head in leading_heads(figures[order], MAX_PRINTED)
        ),
    )
    if "importance" in figures and "loss_change" in figures:
        rank = heads_agreement(figures["importance"], figures["loss_change"])
        typer.echo(f"importance and change of the loss: rank correlation (Spearman) {rank:+.2f}")
