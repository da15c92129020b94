"""The command that judges attribution methods over a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bert_core.refused import Refused
from bert_core.studies.settings import StudySettings
from viz_app.cli import shared
from viz_app.cli.options import options
from viz_app.cli.shared import column, input_file, option, output_file
from viz_app.export import PICTURES


@options(StudySettings, partial=True)
def faithfulness(
    text: shared.TextFile,
    out: Annotated[Path, output_file("The table as CSV: one row for each question and method.")],
    settings: Any,
    methods: Annotated[
        str | None,
        option("Attribution methods, comma-separated; by default all.", metavar="NAME,NAME"),
    ] = None,
    kinds: Annotated[
        str,
        option(
            "Kinds of targets: content, function, nsp; tag, span, replaced or similarity.",
            group="Targets",
            metavar="KIND,KIND",
        ),
    ] = ",".join(StudySettings.kinds),
    lengths: Annotated[
        str, option("Range of the number of tokens of a sentence.", group="Targets", metavar="N:N")
    ] = "{}:{}".format(*StudySettings.lengths),
    pair_lengths: Annotated[
        str, option("Range of the number of tokens of a pair.", group="Targets", metavar="N:N")
    ] = "{}:{}".format(*StudySettings.pair_lengths),
    pieces: Annotated[bool, option("Mask single tokens instead of whole words.", "--pieces")] = False,
    plot: Annotated[Path | None, output_file("Figure of the results, .png, .svg or .pdf.")] = None,
    scores: Annotated[
        Path | None,
        input_file("Evaluate these scores (.csv, .parquet): columns text, start, end, asked, methods."),
    ] = None,
    text_column: shared.TextColumn = None,
    pair: Annotated[str | None, column("With --scores: the column of second texts.")] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    device: shared.Device = "auto",
) -> None:
    """Evaluate the faithfulness of attribution methods.

    The tokens that a method ranks first are masked, and the effect is compared with random rankings. With --scores,
    texts and targets are those of a file of scores, which are evaluated together with the methods. Run the same command
    again to resume. Prints a summary in Markdown.
    """
    from bert_core.studies.external_scores import judge_scores
    from bert_core.studies.faithfulness import judge_file, summarise_methods, summary_markdown
    from bert_core.studies.words import read_labelled_words, skipped_comments_note

    picture_kind = "" if plot is None else shared.file_kind("--plot", plot, PICTURES)
    named_methods = {} if methods is None else {"methods": shared.parse_names(methods)}
    study: StudySettings = settings(
        kinds=shared.parse_names(kinds),
        lengths=_parse_lengths(lengths),
        pair_lengths=_parse_lengths(pair_lengths),
        words=not pieces,
        **named_methods,
    )
    printer: shared.ProgressPrinter | None = None

    def report(share: float | None, message: str = "") -> None:
        nonlocal printer
        if printer is None or share == 1:  # the questions have been found, or answered
            printer = shared.ProgressPrinter(initial_share=share or 0.0)
            shared.note(message)
        else:
            printer(share, message)

    if study.tags and (comments := skipped_comments_note(sentences := read_labelled_words(text, study.tags))):
        shared.note(f"{len(sentences):,} sentences{comments}")
    loaded = shared.load(model, device)
    if scores is None:
        if pair:
            raise Refused("--pair names a column of the texts of --scores: give that file too")
        judgements = judge_file(loaded, text, out, study, column=text_column, report=report)
    else:
        judgements = judge_scores(
            loaded,
            text,
            scores,
            out,
            columns=None if text_column is None else shared.table_columns(text_column, pair),
            methods=named_methods.get("methods"),
            texts=study.questions,
            words=study.words,
            random_rankings=study.random_rankings,
            seed=study.seed,
            report=report,
        )
    summaries = summarise_methods(judgements)
    typer.echo(summary_markdown(summaries), nl=False)
    if plot is not None:
        from viz_app.export.drawing import picture_bytes
        from viz_app.export.standings import standings_picture

        plot.parent.mkdir(parents=True, exist_ok=True)
        shared.write_file(plot, picture_bytes(standings_picture(summaries), picture_kind))


def _parse_lengths(text: str) -> tuple[int, int]:
    """Return the two numbers of `10:24`. Raises Refused for another form."""
    try:
        shortest, longest = map(int, text.split(":"))
    except ValueError as error:
        raise Refused(f"lengths {text!r}: write the fewest and the most tokens, as in 10:24") from error
    return shortest, longest
