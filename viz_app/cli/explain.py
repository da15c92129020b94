"""The command that explains every text of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.studies.settings import ExplainSettings
from viz_app.cli import shared
from viz_app.cli.help import INPUT
from viz_app.cli.options import options
from viz_app.cli.shared import option, output_file

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.studies.explanation_tables import WordTotal

MAX_WORDS = 8  # printed for and against each answer
MAX_ANSWERS = 6  # printed; the file has all
QUESTION_HELPS = {
    "label": "Explain the class in this column instead of the predicted one.",
    "answer": "Explain a word at the [MASK] of each text, from this column.",
    "word": "Explain this word at the [MASK] of each text.",
    "guess": "Explain the top prediction at the [MASK] of each text.",
    "is_next": "Explain whether the second text follows.",
    "tags": "Explain the tags of a file of words: upos, last, or a column.",
}


@options(ExplainSettings, partial=True, group=INPUT)
@options(shared.QuestionOptions, parameter="question", helps=QUESTION_HELPS, group="Prediction to explain")
def explain(
    corpus: shared.FileOfTexts,
    out: Annotated[Path, output_file("The table, .csv or .parquet: one row for each token.")],
    settings: Any,
    *,
    methods: Annotated[
        str, option("Attribution methods, comma-separated; docs/reference/methods.md lists them.", metavar="NAME,NAME")
    ] = ("DecompX,occlusion"),
    question: shared.QuestionOptions,
    min_texts: Annotated[
        int, option("Minimum number of texts that contain a word, for the totals.", "--least", min=1)
    ] = 3,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    engine: shared.Engine = "local",
    overwrite: shared.Overwrite = False,
    device: shared.Device = "auto",
) -> None:
    """Attribute the predictions for every text of a file.

    The table has one row for each token; the totals by word are written to a second file that ends in .words.csv. The
    target is the predicted class, unless an option selects another one. With --tags, and for SQuAD files with --ask
    span, it is the tag or answer in the file. Run the same command again to resume.
    """
    from bert_core.studies.explain import explain_file
    from bert_core.studies.explanation_tables import totals_csv, word_totals

    totals_path = out.with_name(f"{out.stem}.words.csv")
    for path in (out, totals_path):
        shared.check_output(path, corpus)
    study: ExplainSettings = settings(
        asked=question.choose("class", "one, or none for the guessed class"),
        methods=shared.parse_names(methods),
        word=question.word,
        columns=question.columns,
        tags=question.tags,
    )
    shared.run_table_study(explain_file, corpus, out, model, study, engine=engine, device=device, overwrite=overwrite)
    totals = word_totals(out, min_texts=min_texts)
    shared.write_file(totals_path, totals_csv(totals))
    typer.echo("\n".join(_summary(totals)))
    typer.echo(f"{out}, {totals_path}")


def _summary(totals: list[WordTotal]) -> Iterator[str]:
    """Yield a line per answer and method with the words that support and oppose it most, with their means."""
    groups: dict[tuple[str, str], list[WordTotal]] = {}
    for total in totals:
        groups.setdefault((total.asked, total.method), []).append(total)
    methods = {method for _, method in groups}
    for (answer, method), words in list(groups.items())[: MAX_ANSWERS * len(methods)]:
        top = ", ".join(f"{total.word} {total.mean:+.3g}" for total in words[:MAX_WORDS])
        bottom = ", ".join(f"{total.word} {total.mean:+.3g}" for total in words[-MAX_WORDS:][::-1] if total.mean < 0)
        yield f"{answer}, {method}: {top}" + (f"; against it {bottom}" if bottom else "")
