"""Commands that print the predictions of the task heads of a model: of all of them, or of one by its own command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.shared import column, file_argument, input_file, option
from viz_app.cli.tables import json_line, print_csv

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import ModelRun, Span
    from bert_core.task_heads import TaskHead
    from bert_core.tokenizer import Encoding

ANSWER_COLUMNS = ("row", "question", "answer", "probability", "score", "start", "end", "no_answer", "no_answer_score")


def predict(
    text: Annotated[str, typer.Argument(help="A text, with a [MASK] where a word is to be guessed.")],
    pair: Annotated[str | None, option("A second text: does it follow, or where in it is the answer?")] = None,
    head: Annotated[
        list[str] | None, option("Only this trained head of the model; may be given again.", metavar="NAME")
    ] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    top_k: Annotated[int, option("How many pieces for each [MASK], classes or answers.", min=1)] = 5,
    as_json: Annotated[bool, option("As one JSON object, with the rows of each head.", "--json")] = False,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """What every trained head of a model predicts: pieces at each [MASK], classes, tags, an answer, what follows."""
    import bert_core
    from bert_core.task_heads import TASK_HEADS

    loaded = shared.load(model, device)
    encoding = shared.encode(loaded, text, pair)
    heads = _trained_heads(loaded, head or ())
    lacks_word_head = bool(encoding.mask_positions) and not head and not loaded.has_head("words")
    run = bert_core.capture(shared.with_cuts(loaded, cut), encoding, top_k=top_k)
    readouts = {task_head.name: task_head.readouts(loaded, run, top_k) for task_head in heads}
    silent = [name for name, head_readouts in readouts.items() if not head_readouts]
    if lacks_word_head and len(silent) == len(heads):
        loaded.require_head("words", "it cannot guess words")
    if len(silent) == len(heads) or (head and silent):
        advice = shared.additions(encoding, heads) or [f"its trained heads are {', '.join(readouts) or 'none'}"]
        with_head = f" with the head {', '.join(silent)}" if head else ""
        raise Refused(f"{loaded.name} predicts nothing of this text{with_head}: {' or '.join(advice)}")
    if lacks_word_head:
        shared.note(f"{loaded.name} {TASK_HEADS['words'].missing_reason(loaded)}: it cannot guess words")
    predictions = {name: head_readouts for name, head_readouts in readouts.items() if head_readouts}
    if as_json:
        typer.echo(json_line({name: [readout._asdict() for readout in rows] for name, rows in predictions.items()}))
        return
    for name, head_readouts in predictions.items():
        if name in HEAD_FORMS and (lines := HEAD_FORMS[name].lines):
            typer.echo("\n".join(lines(loaded, run)))
        else:
            for readout in head_readouts:
                typer.echo("\n".join([readout.title, *(f"  {number:.3f}  {row}" for row, number in readout.rows)]))


def nsp(
    first: Annotated[str, typer.Argument(metavar="A", help="The first text.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The text that may follow it.")],
    model: shared.ModelName = shared.DEFAULT_MODEL,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """Whether the second text follows the first."""
    if not second.strip():
        raise Refused("there is no second text: type at least one word")
    run_head("next", shared.load(model, device), first, second, cut=cut)


def replaced(
    text: Annotated[str, typer.Argument(help="A text, maybe with a word in it that does not belong there.")],
    pair: Annotated[str | None, option("A second text.")] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """How likely each token was put in the place of another: what the discriminator of an ELECTRA says."""
    encoding = run_head("detector", shared.load(model, device), text, pair, cut=cut).encoding
    if encoding.mask_positions:
        shared.note(f"{model} has never read a {encoding.special_tokens.mask}: leave it out for a fair answer")


def tags(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Texts whose words are to be tagged.")],
    model: Annotated[str, option("A checkpoint folder, or a hub id, of a model that tags words.")],
    as_json: Annotated[bool, option("As JSON, one object a text: its words and spans.", "--json")] = False,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """The tag of every word, and the spans that they come to: names, parts of speech."""
    loaded = shared.load(model, device)
    for number, text in enumerate(texts):
        run_head("tagger", loaded, text, cut=cut, as_json=as_json, prefix="\n" * (number > 0 and not as_json))


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
    from bert_core.studies.files import Format, identify
    from bert_core.studies.texts import missing_columns_message

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
    loaded.require_head("reader", HEAD_FORMS["reader"].consequence)
    if file is None:
        if not (context or "").strip():
            raise Refused("there is no context: type the text in which the answer stands")
        run_head("reader", loaded, question or "", context, max_rows=top_k, as_json=as_json)
    elif has_answers:
        from bert_core.training.answers import reader_scores

        typer.echo("\n".join(reader_scores(loaded, file, report=shared.note_progress).table()))
    else:
        _print_answers(loaded, file, text or "", pair or "")


def choose(
    model: Annotated[str, option("A checkpoint folder, or a hub id, of a model for multiple choice.")],
    question: Annotated[str | None, typer.Argument(help="The question, or what is to be gone on with.")] = None,
    choices: Annotated[
        list[str] | None, typer.Argument(metavar="CHOICE...", help="Two answers or more to choose from.")
    ] = None,
    table: Annotated[Path | None, input_file("Many questions instead: a table.")] = None,
    text: shared.TextColumn = None,
    choice: Annotated[
        list[str] | None, column("A column of choices, given again for each; where it is empty is none.")
    ] = None,
    label: Annotated[
        str | None, column("The column of the right choice: its number from 0, or its column's name.")
    ] = None,
    as_json: Annotated[bool, option("As JSON, in the order given, with the logits.", "--json")] = False,
    device: shared.Device = "auto",
) -> None:
    """Which of several answers the model chooses, and how probable it finds each among them, the likeliest first.

    With --table, --text and a --choice for each column of answers, what it chooses in each row, as CSV; with --label,
    how often that is right.
    """
    import bert_core
    from bert_core.studies.files import identify
    from bert_core.studies.texts import missing_columns_message

    if table is not None:
        if question is not None or as_json:
            raise Refused("--table is many questions instead of one, and what it gives is CSV")
        if text is None or not choice or len(choice) < 2:
            columns = "the questions (--text) and each that holds an answer (--choice, two or more)"
            raise Refused(missing_columns_message(identify(table), columns))
        _print_choices(shared.load(model, device), table, text, choice, label)
        return
    if text or choice or label:
        raise Refused("--text, --choice and --label name the columns of a table: give --table")
    if question is None or not choices:
        raise Refused("give a question and its choices, or --table and many of them")
    scores = bert_core.choose(shared.load(model, device), question, choices)
    if as_json:
        values = zip(scores.choices, scores.probabilities.tolist(), scores.logits.tolist(), strict=True)
        rows = [{"choice": name, "probability": share, "logit": logit} for name, share, logit in values]
        typer.echo(json_line({"question": question, "choices": rows}))
        return
    for index in scores.order:
        typer.echo(f"{scores.probabilities[index]:.3f}  {' '.join(scores.choices[index].split())}")


# ---------------------------------------------------------------------------- one text


def run_head(
    name: str, loaded: LoadedModel, text: str, pair: str | None = None, *, cut: str = "", max_rows: int = 5,
    as_json: bool = False, prefix: str = "",
) -> ModelRun:  # fmt: skip
    """Print the prediction of one task head for a text, as lines or as JSON, and return the run.

    name: the head in `HEAD_FORMS`. max_rows: of each readout. prefix: what is printed before.
    Raises Refused if the model does not have the head trained.
    """
    import bert_core
    from bert_core.task_heads import TASK_HEADS

    form = HEAD_FORMS[name]
    loaded.require_head(name, form.consequence)
    run = bert_core.capture(shared.with_cuts(loaded, cut), shared.encode(loaded, text, pair), top_k=1)
    if as_json and form.values is not None:
        lines = [json_line(form.values(run, max_rows))]
    elif form.lines is not None:
        lines = list(form.lines(loaded, run))
    else:
        readouts = TASK_HEADS[name].readouts(loaded, run, max_rows)
        lines = [f"{number:.3f}  {row}" for readout in readouts for row, number in readout.rows]
    typer.echo(prefix + "\n".join(lines))
    return run


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


def _tag_values(run: ModelRun, max_rows: int) -> dict[str, Any]:
    """Return the tagged words and spans of a text for JSON."""
    import bert_core

    spans = [
        {"kind": span.kind, "first": span.first, "last": span.last, "begun": span.has_begin_tag}
        for span in bert_core.tagged_spans(run)
    ]
    return {"text": run.encoding.text, "words": list(map(asdict, bert_core.tagged_words(run))), "spans": spans}


def _answer_values(run: ModelRun, max_rows: int) -> dict[str, Any]:
    """Return the best answers, and the value of no answer, for JSON."""
    best, no_answer = _best_spans(run, max_rows)
    return {"answers": list(map(asdict, best)), "none": asdict(no_answer)}


def _best_spans(run: ModelRun, count: int) -> tuple[tuple[Span, ...], Span]:
    """Return the best answers, and the span that stands for no answer."""
    import bert_core
    from bert_core.analysis.spans import span_at

    assert run.spans is not None  # there is a reader and a context
    return bert_core.best_spans(run.encoding, run.spans, count), span_at(run.encoding, run.spans, 0, 0)


class HeadForm(NamedTuple):
    """How the command of one task head presents its prediction.

    consequence: end of the message about a model without the head.
    lines: lines with more details than the readouts of the head; None for the rows of its readouts.
    values: what is printed as JSON, with at most a given number of rows; None for a command without --json.
    """

    consequence: str
    lines: Callable[[LoadedModel, ModelRun], Iterator[str]] | None = None
    values: Callable[[ModelRun, int], dict[str, Any]] | None = None


HEAD_FORMS = {
    "next": HeadForm("it cannot say what follows", _next_lines),
    "detector": HeadForm("choose the discriminator of an ELECTRA", _detector_lines),
    "tagger": HeadForm("`headlight finetune` can teach it", _tag_lines, _tag_values),
    "reader": HeadForm("`headlight finetune` can teach it", None, _answer_values),
}

# ---------------------------------------------------------------------------- tables of questions


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
        count = f"{truncated:,} of {len(rows):,}"
        shared.note(f"{count} contexts did not fit: what stands behind their beginning was not read")
    print_csv(ANSWER_COLUMNS, rows)


def _print_choices(loaded: LoadedModel, file: Path, text: str, choices: list[str], label: str | None) -> None:
    """Print the choice of each row, and the probabilities, as CSV; the accuracy is noted on stderr."""
    from bert_core.run.multiple_choice import score_choices

    questions, report = _read_questions(loaded, file, text, choices, label), shared.ProgressPrinter()
    rows, correct = list[list[object]](), 0
    for number, (row, pairs, answer) in enumerate(questions, 1):
        scores, names = score_choices(loaded, tuple(pairs.values())), list(pairs)
        best = scores.order[0]
        correct += names[best] == answer
        shares = dict(zip(names, scores.probabilities.tolist(), strict=True))
        rows.append([row, scores.question, names[best], scores.choices[best], *(shares.get(name) for name in choices)])
        if label is not None:
            rows[-1].append(int(names[best] == answer))
        report(number / len(questions), f"{number:,} of {len(questions):,} questions")
    if label is not None:
        shared.note(f"{correct:,} of {len(rows):,} right ({correct / len(rows):.1%})")
    headings = ["row", "question", "chosen", "choice", *(f"p({name})" for name in choices)]
    print_csv([*headings, *["right"] * (label is not None)], rows)


def _read_questions(
    loaded: LoadedModel, file: Path, text: str, choices: list[str], label: str | None
) -> list[tuple[int, dict[str, Encoding], str]]:
    """Return the number of each row, its encoded pairs by the columns of the choices, and the correct column.

    Raises Refused for a row that has no question or choices, before the model runs.
    """
    from bert_core.run.multiple_choice import encode_choices
    from bert_core.studies.rows import read_rows

    loaded.require_head("chooser", "load a model for multiple choice")
    rows = []
    for row, fields, _ in read_rows(file, [text, *choices, *([] if label is None else [label])]):
        names = [name for name in choices if fields[name].strip()]
        try:
            pairs = encode_choices(loaded, fields[text], [fields[name] for name in names])
            answer = "" if label is None else _correct_column(fields[label].strip(), choices, names)
        except Refused as error:
            raise Refused(f"row {row} of {file.name}: {error}") from error
        rows.append((row, dict(zip(names, pairs, strict=True)), answer))
    if not rows:
        raise Refused(f"{file.name} has no rows: there is nothing to ask")
    return rows


def _correct_column(label: str, choices: list[str], names: list[str]) -> str:
    """Return the column that a label names, or numbers from 0. names: columns whose choice is not empty."""
    name = choices[int(label)] if label.isascii() and label.isdigit() and int(label) < len(choices) else label
    if name not in names:
        raise Refused(f"{label!r:.60} is none of its choices: they are {', '.join(names)}, or their numbers from 0")
    return name
