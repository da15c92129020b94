"""Commands that ask a model's heads about a file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.run import MAX_REFERENCES
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
    first_texts,
    kind_asked,
    load,
    note,
)

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.records import HeadTable
    from bert_core.studies.heads import HeadSums
    from bert_core.studies.treebank import TreeSentence

SHOWN = 10


def heads(
    corpus: FileOfTexts,
    out: Annotated[Path, typer.Option(dir_okay=False, help="The table, .csv or .parquet: one row a head.")],
    importance: Annotated[
        bool, typer.Option("--importance", help="How sensitive the loss is to each head (Michel 2019).")
    ] = False,
    ablation: Annotated[bool, typer.Option("--ablation", help="The loss without each head, exactly.")] = False,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Ask for the class of each text, which this column holds.")
    ] = None,
    answer: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Ask for a word at the [MASK] of each text, from this column.")
    ] = None,
    word: Annotated[str, typer.Option(help="Ask for this word at the [MASK] of each text.")] = "",
    follows: Annotated[
        bool, typer.Option("--follows", help="Ask whether the second text, or the next line, follows.")
    ] = False,
    ask: Ask = None,
    tags: Annotated[str, typer.Option(metavar="LABEL", help="Ask for the tags of a file of words: upos, last.")] = "",
    by: Annotated[
        str, typer.Option(metavar="METHOD", help="Ablation by zero, mean or resample: what stands in for a head.")
    ] = "zero",
    reference: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help=f"Texts for mean and resample, one a line, at most {MAX_REFERENCES}."
        ),
    ] = None,
    model: ModelName = "headlight-mini",
    max_length: Annotated[int, typer.Option(min=3, help="Tokens of a text that are read.")] = 128,
    mask_rate: Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of pieces to guess.")] = 0.15,
    seed: Annotated[int, typer.Option(min=0, help="Of which pieces are hidden in each line.")] = 0,
    engine: Annotated[str, typer.Option(help="local, or ray: many shards at once on a Ray cluster.")] = "local",
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """What every head of a model does over a file, how much it matters, and what its removal costs.

    The loss is that of hidden pieces, or of what is asked for: a class, a word, what follows. Stopped, it keeps what
    it has; the same command again goes on.
    """
    from bert_core.studies.heads import heads_file, reading_note
    from bert_core.studies.settings import CorpusSettings

    check_place(out, corpus, *([] if reference is None else [reference]))
    options: dict[str, tuple[str, object]] = {
        "--label": ("class", label), "--answer": ("word", answer), "--word": ("word", word),
        "--follows": ("next", follows),
    }  # fmt: skip
    loss = kind_asked(options, ask, tags, otherwise="words", advice="one of them, or none for hidden pieces")
    settings = CorpusSettings(
        importance, ablation, max_length, mask_rate, seed,
        loss=loss, word=word, columns=columns_asked(text, pair, label, answer),
        method=by, reference=() if reference is None else first_texts(reference),
        tags=tags,
    )  # fmt: skip
    report = Notes()

    def on_progress(sums: HeadSums, share: float) -> None:
        report(share, f"{share:4.0%}  {sums.counts['texts']:,} texts")

    try:
        total = heads_file(
            corpus, out, model, settings, engine=engine, device=device, overwrite=overwrite, on_progress=on_progress
        )
    except KeyboardInterrupt:
        if out.exists():
            note(f"stopped: {out} holds what was measured so far, and the same command goes on")
        raise
    if total is None:
        typer.echo(f"{out} is already complete")
        return
    note(reading_note(total.counts))
    _print_heads(total.table(model, settings))


def roles(
    treebank: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Sentences with trees, CoNLL-U.")],
    out: Annotated[Path | None, typer.Option(dir_okay=False, help="The table as CSV: one row a relation.")] = None,
    model: ModelName = "headlight-mini",
    least: Annotated[int, typer.Option(min=1, help="Leave out relations that are rarer.")] = 20,
    device: Device = "auto",
) -> None:
    """Which head finds which dependency relation of a treebank, beside the best fixed offset (Clark 2019)."""
    from bert_core import checkpoint
    from bert_core.studies.relations import relations_csv, track_relations
    from bert_core.studies.texts import read_trees

    if out is not None:
        check_place(out, treebank)
    comments = 0

    def counted() -> Iterator[TreeSentence]:
        nonlocal comments
        for tree, _ in read_trees(treebank):
            comments += tree.comments
            yield tree

    sentences = counted()
    first = next(sentences)  # what is wrong with the file is said before a model is loaded
    loaded = load(model, device)
    tally = track_relations(loaded, chain([first], sentences), report=Notes())
    rows = tally.rows(least)
    if out is not None:
        text = relations_csv(rows)
        checkpoint.write_atomically(out, text)
    note(
        f"{tally.sentences:,} sentences, {sum(tally.counts.values()):,} relations; "
        f"{tally.left_out:,} of words without a piece of their own were left out"
        + (f"; {comments:,} lines of comments were left out" if comments else "")
    )
    if not rows:
        note(f"no relation was asked {least:,} times: --least 1 shows all")
        return
    typer.echo(f"{'relation':<16} {'count':>6}  best head  accuracy  direction          best offset  accuracy")
    for row in rows:
        head, finds = ("-", "-") if row.layer is None else (f"L{row.layer} H{row.head}", f"{row.accuracy:.1%}")
        typer.echo(
            f"{row.relation:<16} {row.asked:>6}  {head:<9}  {finds:>8}  {row.direction or '-':<17}  "
            f"{row.offset:>+11}  {row.offset_accuracy:>8.1%}"
        )


def _print_heads(table: HeadTable) -> None:
    """The heads that count most, by what was asked; and how well the estimate ranks them."""
    from bert_core.analysis.heads import heads_agreement, leading_heads

    figures = table.figures
    if table.loss is not None:
        typer.echo(f"{table.texts:,} texts, loss {table.loss_text}")
    by = next((name for name in ("loss_change", "importance", "confidence") if name in figures), "confidence")
    shown = [name for name in ("importance", "loss_change", "confidence", "entropy") if name in figures]
    typer.echo(f"{'head':<8}" + "".join(f"{name:>14}" for name in shown))
    for layer, head in leading_heads(figures[by], SHOWN):
        typer.echo(f"{f'L{layer} H{head}':<8}" + "".join(f"{figures[name][layer, head]:>14.4g}" for name in shown))
    if "importance" in figures and "loss_change" in figures:
        rank = heads_agreement(figures["importance"], figures["loss_change"])
        typer.echo(f"importance and the cost of removal: Spearman's rank correlation {rank:+.2f}")
