"""The command that looks for the answer to a question in a text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Device, Notes, PairColumn, TextColumn, encode, load, note, note_each

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import ModelRun, Span


def answer(
    model: Annotated[str, typer.Option(help="A checkpoint folder, or a hub id, of a model that finds answers.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="Many instead: a table (.csv, .tsv, .jsonl, .json), or a .json as SQuAD's.",
        ),
    ] = None,
    question: Annotated[str | None, typer.Option(help="The question.")] = None,
    context: Annotated[str | None, typer.Option(help="The text in which its answer stands.")] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    top_k: Annotated[int, typer.Option(min=1, help="How many answers to one question.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with the places of each answer.")] = False,
    device: Device = "auto",
) -> None:
    """Where a text answers a question: the likeliest parts of it, as typed, and how probable it is that none does.

    With a table (--text names its column of questions, --pair that of contexts) the best answer to each row, as CSV;
    with questions in SQuAD's form, how many it answers rightly: exact match and F1.
    """
    import bert_core
    from bert_core.studies.files import Format, identify
    from bert_core.studies.texts import missing_columns_message
    from bert_core.task_heads import TASK_HEADS

    if (question is None) != (context is None) or (question is None) == (file is None):
        raise Refused("give either --question and --context, or a file of many")
    source = None if file is None else identify(file)
    judged = source is not None and source.format is Format.JSON and text is None and pair is None
    if file is not None and not judged and (text is None or pair is None):
        assert source is not None
        raise Refused(missing_columns_message(source, "the questions (--text) and that of the contexts (--pair)"))
    if (file is None or judged) and (text or pair):
        raise Refused("--text and --pair name the columns of a table: give one")
    if file is not None and as_json:
        raise Refused("--json is for one question, and a file was given")
    loaded = load(model, device)
    loaded.require_head("reader", "`headlight finetune` can teach it")
    if file is not None and judged:
        from bert_core.training.answers import reader_scores

        typer.echo("\n".join(reader_scores(loaded, file, report=note_each).table()))
        return
    if file is not None:
        assert text is not None and pair is not None  # both were asked for
        typer.echo(_table(loaded, file, text, pair), nl=False)
        return
    assert question is not None and context is not None
    if not context.strip():
        raise Refused("there is no context: type the text in which the answer stands")
    run = bert_core.capture(loaded, encode(loaded, question, context))
    if as_json:
        best, none = _answers(run, top_k)
        typer.echo(json.dumps({"answers": [asdict(one) for one in best], "none": asdict(none)}, ensure_ascii=False))
        return
    for readout in TASK_HEADS["reader"].readouts(loaded, run, top_k):
        for name, probability in readout.rows:
            typer.echo(f"{probability:.3f}  {name}")


def _answers(run: ModelRun, count: int) -> tuple[tuple[Span, ...], Span]:
    """The best answers, and that there is none."""
    import bert_core
    from bert_core.analysis.spans import span_at

    assert run.spans is not None  # there is a reader and a context
    return bert_core.best_spans(run.encoding, run.spans, count), span_at(run.encoding, run.spans, 0, 0)


def _table(loaded: LoadedModel, file: Path, text: str, pair: str) -> str:
    """The best answer to each row, and its numbers, as CSV; what was cut is said on stderr."""
    import bert_core
    from bert_core.studies.rows import Columns, check_rows, row_shards
    from viz_app.export.tables import labelled_csv

    columns, found, cut = Columns(text, pair), list[tuple[object, ...]](), 0
    check_rows(file, columns, pairs=True)
    notes = Notes()
    for line in (line for shard in row_shards(file, columns) for line in shard.lines):
        try:
            encoding = loaded.tokenizer.encode(line.text, line.pair, max_length=loaded.config.max_position_embeddings)
        except Refused as error:
            raise Refused(f"row {line.number} of {file.name}: {error}") from error
        cut += encoding.truncated_count > 0
        (best,), none = _answers(bert_core.capture(loaded, encoding), 1)
        found.append((line.number, line.text, *_shown(best, none)))
        notes(None, f"{len(found):,} questions")
    if cut:
        note(f"{cut:,} of {len(found):,} contexts did not fit: what stands behind their beginning was not read")
    names = ("row", "question", "answer", "probability", "score", "start", "end", "no_answer", "no_answer_score")
    return labelled_csv(dict(zip(names, zip(*found, strict=True), strict=True))).decode()


def _shown(best: Span, none: Span) -> Iterator[object]:
    """What is written of a row: nothing is the answer where it has the larger score."""
    answered = best.score >= none.score
    yield from (best.text if answered else "", best.probability, best.score, best.start, best.end)
    yield from (none.probability, none.score)
