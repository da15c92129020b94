"""The command that prints what the task heads of a model predict: of texts, or of every row of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.help import INPUT, MODEL, OUTPUT
from viz_app.cli.shared import column, input_file, option
from viz_app.cli.tables import json_line, print_csv

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import ModelRun
    from bert_core.studies.predictions import PredictionTable
    from bert_core.task_heads import Readout, TaskHead


FINETUNE_ADVICE = "`headlight finetune` can teach it"


def predict(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts, with [MASK] for each word to predict.")
    ] = None,
    text: shared.TextColumn = None,
    pair: Annotated[
        str | None,
        option("Second sentence, or the context of a question. With --table: its column.", group=INPUT, metavar="TEXT"),
    ] = None,
    choice: Annotated[
        list[str] | None,
        option("Answer option, repeatable. With --table: its column.", group=INPUT, metavar="TEXT"),
    ] = None,
    head: Annotated[
        list[str] | None,
        option("Task head of the model, repeatable; by default all trained ones.", group=MODEL, metavar="NAME"),
    ] = None,
    table: Annotated[Path | None, input_file("A table of texts, or a .json file of questions in SQuAD's form.")] = None,
    label: Annotated[
        str | None, column("The column of the correct option: its number from 0, or the name of its column.")
    ] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    top_k: Annotated[
        int, option("Number of tokens for each [MASK], of classes or of answers.", group=OUTPUT, min=1)
    ] = 5,
    as_json: Annotated[
        bool, option("Print one JSON object for each text, with the rows of each task head.", "--json", group=OUTPUT)
    ] = False,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """Predict masked words, next sentences, classes or tags.

    Prints the predictions of all trained task heads of the model. With --choice, print the probability of each answer
    option. With --table and --text, print the predictions of one head for every row as CSV; for a file in SQuAD's form,
    print exact match and F1.
    """
    if choice and (set(head or ()) - {"chooser"} or pair or cut):
        raise Refused("--choice asks the head chooser about several second texts: leave --head, --pair and --cut out")
    if table is not None:
        if texts or as_json or cut:
            raise Refused("--table is many texts instead of one, and what it gives is CSV: leave --json and --cut out")
        _predict_table(shared.load(model, device), table, (text, pair), choice or [], label, head or (), top_k)
        return
    if text or label:
        raise Refused("--text and --label name the columns of a table: give --table")
    if not texts:
        raise Refused("Missing argument 'TEXT': give a text, or --table and a file of many")
    loaded = shared.load(model, device)
    for number, sentence in enumerate(texts):
        if choice:
            run, readouts = None, {"chooser": [_choice_readout(loaded, sentence, choice, top_k)]}
        else:
            run, readouts = _predict_text(loaded, sentence, pair, head or (), top_k, cut)
        if as_json:
            typer.echo(json_line({name: [readout._asdict() for readout in rows] for name, rows in readouts.items()}))
            continue
        lines = [line for name, rows in readouts.items() for line in head_lines(name, loaded, run, rows, titles=True)]
        typer.echo("\n".join(["", *lines] if number else lines))


# ---------------------------------------------------------------------------- one text


def _predict_text(
    loaded: LoadedModel, text: str, pair: str | None, names: Sequence[str], top_k: int, cut: str
) -> tuple[ModelRun, dict[str, list[Readout]]]:
    """Return the run of a text, and what all trained heads predict of it by their names, or those with these names.

    Raises Refused if all of them, or one of those that are named, predict nothing.
    """
    from bert_core.task_heads import TASK_HEADS

    encoding = shared.encode(loaded, text, pair)
    heads = _trained_heads(loaded, names)
    lacks_word_head = bool(encoding.mask_positions) and not names and not loaded.has_head("words")
    run = shared.capture_predictions(shared.with_cuts(loaded, cut), encoding, top_k)
    readouts = {head.name: head.readouts(loaded, run, top_k) for head in heads}
    silent = [name for name, head_readouts in readouts.items() if not head_readouts]
    if lacks_word_head and len(silent) == len(heads):
        loaded.require_head("words", "it cannot guess words")
    if len(silent) == len(heads) or (names and silent):
        advice = shared.additions(encoding, heads) or [f"its trained heads are {', '.join(readouts) or 'none'}"]
        with_head = f" with the head {', '.join(silent)}" if names else ""
        raise Refused(f"{loaded.name} predicts nothing of this text{with_head}: {' or '.join(advice)}")
    if lacks_word_head:
        shared.note(f"{loaded.name} {TASK_HEADS['words'].missing_reason(loaded)}: it cannot guess words")
    return run, {name: head_readouts for name, head_readouts in readouts.items() if head_readouts}


def head_lines(
    name: str, loaded: LoadedModel, run: ModelRun | None, readouts: Sequence[Readout], *, titles: bool
) -> list[str]:
    """Return the lines of `HEAD_LINES` for the run of a head, or else a line for each row of its readouts.

    titles: whether the rows are indented below the title of each readout.
    """
    if run is not None and name in HEAD_LINES:
        return list(HEAD_LINES[name](loaded, run))
    lines = []
    for readout in readouts:
        lines += [readout.title] * titles
        lines += [f"{'  ' * titles}{number:.3f}  {row}" for row, number in readout.rows]
    return lines


def _choice_readout(loaded: LoadedModel, question: str, choices: Sequence[str], top_k: int) -> Readout:
    """Return the probabilities of the choices for a question, the most probable first."""
    import bert_core
    from bert_core.task_heads import Readout

    scores = bert_core.choose(loaded, question, choices)
    rows = ((" ".join(scores.choices[index].split()), float(scores.probabilities[index])) for index in scores.order)
    return Readout("choice", tuple(rows)[:top_k])


def _trained_heads(loaded: LoadedModel, names: Sequence[str]) -> list[TaskHead]:
    """Return the trained heads with given names; all if there are none. Raises Refused for an unknown name."""
    from bert_core.task_heads import trained_heads

    trained = {head.name: head for head in trained_heads(loaded) if head.gives_predictions}
    for name in names:
        if name not in trained:
            names_text = ", ".join(trained) or "none"
            raise Refused(f"--head is {name!r:.60}: the trained heads of {loaded.name} are {names_text}")
    return [head for name, head in trained.items() if not names or name in names]


def _next_lines(loaded: LoadedModel, run: ModelRun) -> Iterator[str]:
    """Yield a sentence about whether the second text follows."""
    assert run.nsp is not None  # there is a pair and a head
    yes, no = ("In order", "Swapped") if loaded.predicts_order else ("Yes", "No")
    yield f"{yes if run.nsp >= 0.5 else no}: B follows A with probability {run.nsp:#.2g}"


def _detector_lines(loaded: LoadedModel, run: ModelRun) -> Iterator[str]:
    """Yield each typed token with the probability that it was replaced, marked from one half."""
    assert run.replaced is not None  # there is a detector
    encoding, width = run.encoding, max(map(len, run.encoding.tokens))
    for position, (token, probability) in enumerate(zip(encoding.tokens, run.replaced.tolist(), strict=True)):
        if not encoding.special[position]:
            verdict = "  replaced" if probability >= 0.5 else ""
            yield f"{position:4}  {token:<{width}}  {probability:.3f}{verdict}"


def _tag_lines(loaded: LoadedModel, run: ModelRun) -> Iterator[str]:
    """Yield each word with its tag, its probability, and the kind of its span."""
    import bert_core

    words, spans = bert_core.tagged_words(run), bert_core.tagged_spans(run)
    width, tag_width = (max((len(getattr(word, name)) for word in words), default=0) for name in ("text", "label"))
    kinds = {number: span.kind for span in spans for number in range(span.first, span.last + 1)}
    first_words = {span.first for span in spans}
    for word in words:
        kind = kinds.get(word.word, "")
        mark = "" if kind in ("", word.label) else f"  {'' if word.word in first_words else '… '}{kind}"
        yield f"{word.text:<{width}}  {word.label:<{tag_width}}  {word.probability:.3f}{mark}"


# Lines that say more of the prediction of a head than its readouts.
HEAD_LINES: Mapping[str, Callable[[LoadedModel, ModelRun], Iterator[str]]] = {
    "next": _next_lines,
    "detector": _detector_lines,
    "tagger": _tag_lines,
}

# ---------------------------------------------------------------------------- tables


def _predict_table(
    loaded: LoadedModel,
    file: Path,
    columns: tuple[str | None, str | None],
    choices: list[str],
    label: str | None,
    names: Sequence[str],
    top_k: int,
) -> None:
    """Print what one task head predicts of every row of a table, or the scores of a file in SQuAD's form.

    columns: those of the texts and of the second texts. choices, label: those of the answers, and of the correct one.
    names: of the head; not needed if the model has a single trained head.
    """
    from bert_core.studies.files import identify
    from bert_core.studies.predictions import choose_rows, predict_rows
    from bert_core.studies.rows import Columns
    from bert_core.studies.texts import missing_columns_message

    text, pair = columns
    if choices or label:
        print_rows(choose_rows(loaded, file, text, choices, label, report=shared.ProgressPrinter()))
        return
    if has_answers(file, text, pair):
        if set(names) - {"reader"}:
            raise Refused(f"--head is {', '.join(names)}: questions in SQuAD's form are for the head reader")
        loaded.require_head("reader", FINETUNE_ADVICE)
        print_scores(loaded, file)
        return
    heads = _trained_heads(loaded, names)
    if len(heads) != 1:
        names_text = ", ".join(head.name for head in heads) or "none"
        raise Refused(f"--table is read by one head: name it by --head, one of {names_text}")
    (head,) = heads
    if text is None or (pair is None and head.needs_pair):
        contents = "the texts (--text)" + " and that of the second texts (--pair)" * bool(head.needs_pair)
        raise Refused(missing_columns_message(identify(file), contents))
    report = shared.ProgressPrinter()
    print_rows(predict_rows(loaded, head, file, Columns(text, pair), max_rows=top_k, report=report))


def print_rows(table: PredictionTable) -> None:
    """Print the predictions for the rows of a table as CSV, and the sentence about them on stderr."""
    if table.note:
        shared.note(table.note)
    print_csv(table.columns, table.rows)


def has_answers(file: Path, *columns: str | None) -> bool:
    """Return whether a file holds questions in SQuAD's form, which it does not if columns of it are named."""
    from bert_core.studies.files import Format, identify

    return identify(file).format is Format.JSON and not any(columns)


def print_scores(loaded: LoadedModel, file: Path) -> None:
    """Print how many questions of a file in SQuAD's form a model answers correctly: exact match and F1."""
    from bert_core.training.answers import reader_scores

    typer.echo("\n".join(reader_scores(loaded, file, report=shared.note_progress).table()))
