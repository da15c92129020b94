"""The command that judges the methods over a whole file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Device, ModelName, Notes, TextFile, kind_of_file, load, note
from viz_app.export import PICTURES


def faithfulness(
    text: TextFile,
    out: Annotated[Path, typer.Option(dir_okay=False, help="The table, a CSV file: a line for every answer.")],
    methods: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Of docs/methods.md, between commas; all of them.")
    ] = None,
    kinds: Annotated[
        str, typer.Option(metavar="KIND,KIND", help="Of content, function, nsp; or tag, span, replaced, similarity.")
    ] = "content,function,nsp",
    tags: Annotated[
        str, typer.Option(metavar="LABEL", help="With --kinds tag: the tags of a file of words, as upos or last.")
    ] = "",
    questions: Annotated[int, typer.Option(min=1, help="Of each kind.")] = 150,
    lengths: Annotated[str, typer.Option(help="Tokens of a sentence, from and to.")] = "10:24",
    pair_lengths: Annotated[str, typer.Option(help="Tokens of a pair, from and to.")] = "16:40",
    pieces: Annotated[bool, typer.Option("--pieces", help="Take pieces away, not whole words.")] = False,
    random_rankings: Annotated[int, typer.Option(min=1, help="That the methods stand beside.")] = 100,
    least: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Probability that the model gives the answer, at least.")
    ] = 0.1,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, help="A picture: .png, .svg or .pdf.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the words and the rankings.")] = 0,
    scores: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Judge these scores of its texts (.csv, .parquet): columns text, start, end, asked, and methods.",
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option("--text", metavar="COLUMN", help="The column of the texts, in a table.")
    ] = None,
    pair: Annotated[str | None, typer.Option(metavar="COLUMN", help="With --scores: of second texts.")] = None,
    model: ModelName = "headlight-mini",
    device: Device = "auto",
) -> None:
    """Judge the methods of "why this word?" on the sentences of a file, beside random rankings.

    With --scores the texts and answers are those of a file of scores, whoever made them, and the methods stand beside
    them. The same command goes on where it stopped. On stdout at the end: the summary, in Markdown.
    """
    from bert_core.methods import METHODS
    from bert_core.studies.external_scores import judge_scores
    from bert_core.studies.faithfulness import judge_file, summarise_methods, summary_markdown
    from bert_core.studies.rows import Columns
    from bert_core.studies.settings import StudySettings
    from bert_core.studies.words import read_labelled_words, skipped_comments_note

    drawn = None if plot is None else kind_of_file("--plot", plot, PICTURES)
    settings = StudySettings(
        questions=questions,
        kinds=_parse_names(kinds),
        methods=tuple(method.name for method in METHODS) if methods is None else _parse_names(methods),
        lengths=_parse_lengths(lengths),
        pair_lengths=_parse_lengths(pair_lengths),
        least=least,
        words=not pieces,
        random_rankings=random_rankings,
        seed=seed,
        tags=tags,
    )
    notes: Notes | None = None

    def report(done: float | None, what: str = "") -> None:
        nonlocal notes
        if notes is None or done == 1:  # the questions have been found, or answered
            notes = Notes(begun=done or 0.0)
            note(what)
        else:
            notes(done, what)

    if tags and (comments := skipped_comments_note(sentences := read_labelled_words(text, tags))):
        note(f"{len(sentences):,} sentences{comments}")
    loaded = load(model, device)
    if scores is None:
        if pair:
            raise Refused("--pair names a column of the texts of --scores: give that file too")
        found = judge_file(loaded, text, out, settings, column=column, report=report)
    else:
        found = judge_scores(
            loaded, text, scores, out, columns=None if column is None else Columns(column, pair),
            methods=("DecompX", "occlusion") if methods is None else settings.methods, texts=questions,
            words=not pieces, random_rankings=random_rankings, seed=seed, report=report,
        )  # fmt: skip
    typer.echo(summary_markdown(summarise_methods(found)), nl=False)
    if plot is not None and drawn is not None:
        from bert_core.checkpoint import write_atomically
        from viz_app.export.drawing import picture_bytes
        from viz_app.export.standings import standings_picture

        plot.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(plot, picture_bytes(standings_picture(summarise_methods(found)), drawn))


def _parse_names(written: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in written.split(",") if (name := part.strip())))


def _parse_lengths(written: str) -> tuple[int, int]:
    """`10:24` as two numbers. Raises Refused for anything else."""
    try:
        shortest, longest = map(int, written.split(":"))
    except ValueError as error:
        raise Refused(f"lengths {written!r}: write the fewest and the most tokens, as in 10:24") from error
    return shortest, longest
