"""The command that explains every text of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viz_app.cli.shared import (
    Ask,
    Device,
    FileOfTexts,
    ModelName,
    Notes,
    Overwrite,
    PairColumn,
    TextColumn,
    check_place,
    columns_asked,
    kind_asked,
    note,
)

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.studies.explanation_tables import WordTotal

SHOWN = 8  # words for and against each answer
MOST_ANSWERS = 6  # that are shown; the file has all


def explain(
    corpus: FileOfTexts,
    out: Annotated[Path, typer.Option(dir_okay=False, help="The table, .csv or .parquet: one row a token.")],
    methods: Annotated[str, typer.Option(metavar="NAME,NAME", help="Of docs/methods.md, between commas.")] = (
        "DecompX,occlusion"
    ),
    text: TextColumn = None,
    pair: PairColumn = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Explain the class that this column holds, not the one that is guessed."),
    ] = None,
    answer: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Explain a word at the [MASK] of each text, from this column.")
    ] = None,
    word: Annotated[str, typer.Option(help="Explain this word at the [MASK] of each text.")] = "",
    guess: Annotated[
        bool, typer.Option("--guess", help="Explain what the model guesses at the [MASK] of each text.")
    ] = False,
    follows: Annotated[bool, typer.Option("--follows", help="Explain whether the second text follows.")] = False,
    ask: Ask = None,
    tags: Annotated[
        str, typer.Option(metavar="LABEL", help="Explain the tags of a file of words: upos, last, a column.")
    ] = "",
    least: Annotated[int, typer.Option(min=1, help="Texts that must have a word, for the totals.")] = 3,
    model: ModelName = "headlight-mini",
    max_length: Annotated[int, typer.Option(min=3, help="Tokens of a text that are read.")] = 128,
    engine: Annotated[str, typer.Option(help="local, or ray: many shards at once on a Ray cluster.")] = "local",
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Why, of every text of a file: a row a token, and what every word says of each answer over the whole file.

    What is explained is the class that the model says, or what is asked for; of words with tags (--tags) and of SQuAD's
    questions (--ask span) what the file says. The totals stand beside the table, in OUT.words.csv. Stopped, it keeps
    what it has; the same command again goes on.
    """
    from bert_core import checkpoint
    from bert_core.studies.explain import explain_file
    from bert_core.studies.explanation_tables import totals_csv, word_totals
    from bert_core.studies.heads import reading_note
    from bert_core.studies.settings import ExplainSettings

    check_place(out, corpus)
    totals_place = out.with_name(f"{out.stem}.words.csv")
    check_place(totals_place, corpus)
    options: dict[str, tuple[str, object]] = {
        "--label": ("class", label), "--answer": ("word", answer), "--word": ("word", word),
        "--guess": ("word", guess), "--follows": ("next", follows),
    }  # fmt: skip
    settings = ExplainSettings(
        kind_asked(options, ask, tags, otherwise="class", advice="one, or none for the guessed class"),
        tuple(dict.fromkeys(name for part in methods.split(",") if (name := part.strip()))),
        word,
        columns_asked(text, pair, label, answer),
        max_length,
        tags,
    )
    report = Notes()
    try:
        counts, was_complete = explain_file(
            corpus, out, model, settings, engine=engine, device=device, overwrite=overwrite,
            on_progress=lambda counts, share: report(share, f"{share:4.0%}  {counts['texts']:,} texts"),
        )  # fmt: skip
    except KeyboardInterrupt:
        note(f"stopped: {out}.parts holds what is done, and the same command goes on")
        raise
    if was_complete:
        note(f"{out} is already complete")
    note(reading_note(counts))
    totals = word_totals(out, min_texts=least)
    checkpoint.write_atomically(totals_place, totals_csv(totals))
    typer.echo("\n".join(_lines(totals)))
    typer.echo(f"{out}, {totals_place}")


def _lines(totals: list[WordTotal]) -> list[str]:
    """For each answer and method the words that say most for it and against it, with their means."""
    groups: dict[tuple[str, str], list[WordTotal]] = {}
    for one in totals:
        groups.setdefault((one.asked, one.method), []).append(one)
    lines = []
    for (asked, method), words in list(groups.items())[: MOST_ANSWERS * len({key[1] for key in groups})]:
        top = ", ".join(f"{one.word} {one.mean:+.3g}" for one in words[:SHOWN])
        bottom = ", ".join(f"{one.word} {one.mean:+.3g}" for one in words[-SHOWN:][::-1] if one.mean < 0)
        lines.append(f"{asked}, {method}: {top}" + (f"; against it {bottom}" if bottom else ""))
    return lines
