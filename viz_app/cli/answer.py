"""The command that finds the answer to a question in a text."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.shared import file_argument, option
from viz_app.cli.tables import print_csv, print_json

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import ModelRun, Span

COLUMNS = ("row", "question", "answer", "probability", "score", "start", "end", "no_answer", "no_answer_score")


def answer(
    model: Annotated[str, option("A checkpoint folder, or a hub id, of a model that finds answers.")],
    file: Annotated[
        Path | None, file_argument("Many instead: a table (.csv, .tsv, .jsonl, .json), or a .json as SQuAD's.")
    ] = None,
    question: Annotated[str | None, option("The question.")] = None,
    context: Annotated[str | None, option("The text in which its answer stands.")] = None,
    text: shared.TextColumn = None,
    pair: shared.PairColumn = None,
    top_k: Annotated[int, option("How many answers to one question.", min=1)] = 5,
    as_json: Annotated[bool, option("As JSON, with the places of each answer.", "--json")] = False,
    device: shared.Device = "auto",
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
    has_answers = source is not None and source.format is Format.JSON and text is None and pair is None
    if source is not None and not has_answers and (text is None or pair is None):
        raise Refused(missing_columns_message(source, "the questions (--text) and that of the contexts (--pair)"))
    if (file is None or has_answers) and (text or pair):
        raise Refused("--text and --pair name the columns of a table: give one")
    if file is not None and as_json:
        raise Refused("--json is for one question, and a file was given")
    loaded = shared.load(model, device)
    loaded.require_head("reader", "`headlight finetune` can teach it")
    if file is not None and has_answers:
        from bert_core.training.answers import reader_scores

        typer.echo("\n".join(reader_scores(loaded, file, report=shared.note_progress).table()))
        return
    if file is not None:
        assert text is not None and pair is not None  # both were checked
        _print_answers(loaded, file, text, pair)
        return
    assert question is not None and context is not None
    if not context.strip():
        raise Refused("there is no context: type the text in which the answer stands")
    run = bert_core.capture(loaded, shared.encode(loaded, question, context))
    if as_json:
        best, no_answer = _best_spans(run, top_k)
        print_json({"answers": [asdict(span) for span in best], "none": asdict(no_answer)})
        return
    for readout in TASK_HEADS["reader"].readouts(loaded, run, top_k):
        for name, probability in readout.rows:
            typer.echo(f"{probability:.3f}  {name}")


def _best_spans(run: ModelRun, count: int) -> tuple[tuple[Span, ...], Span]:
    """Return the best answers, and the span that stands for no answer."""
    import bert_core
    from bert_core.analysis.spans import span_at

    assert run.spans is not None  # there is a reader and a context
    return bert_core.best_spans(run.encoding, run.spans, count), span_at(run.encoding, run.spans, 0, 0)


def _print_answers(loaded: LoadedModel, file: Path, text: str, pair: str) -> None:
    """Print the best answer to each row, empty where no answer has a higher score, and its numbers, as CSV.

    Truncated contexts are noted on stderr.
    """
    import bert_core
    from bert_core.studies.rows import Columns, check_rows, row_shards

    columns, rows, truncated = Columns(text, pair), list[tuple[object, ...]](), 0
    check_rows(file, columns, pairs=True)
    report = shared.ProgressPrinter()
    for line in (line for shard in row_shards(file, columns) for line in shard.lines):
        try:
            encoding = loaded.tokenizer.encode(line.text, line.pair, max_length=loaded.config.max_position_embeddings)
        except Refused as error:
            raise Refused(f"row {line.number} of {file.name}: {error}") from error
        truncated += encoding.truncated_count > 0
        (best,), no_answer = _best_spans(bert_core.capture(loaded, encoding), 1)
        span_text = best.text if best.score >= no_answer.score else ""
        numbers = (best.probability, best.score, best.start, best.end, no_answer.probability, no_answer.score)
        rows.append((line.number, line.text, span_text, *numbers))
        report(None, f"{len(rows):,} questions")
    if truncated:
        shared.note(
            f"{truncated:,} of {len(rows):,} contexts did not fit: what stands behind their beginning was not read"
        )
    print_csv(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))
