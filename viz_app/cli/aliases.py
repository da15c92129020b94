"""Former commands: hidden, with their options and output, and a note on stderr that names the new command.

`headlight predict` replaced those for one task head each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.deprecation import REMOVED_IN
from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.predict import FINETUNE_ADVICE, has_answers, head_lines, print_rows, print_scores
from viz_app.cli.profiles import profile
from viz_app.cli.shared import column, file_argument, input_file, option
from viz_app.cli.tables import json_line

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import ModelRun


def nsp(
    first: Annotated[str, typer.Argument(metavar="A", help="The first text.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The text that may follow it.")],
    model: shared.ModelName = shared.DEFAULT_MODEL,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """Print the probability that the second text follows the first."""
    if not second.strip():
        raise Refused("there is no second text: type at least one word")
    _print_head("next", "it cannot say what follows", shared.load(model, device), first, second, cut=cut)


def replaced(
    text: Annotated[str, typer.Argument(help="A text, possibly with a replaced word.")],
    pair: Annotated[str | None, option("A second text.")] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """Print the probability that each token was replaced, by the discriminator of an ELECTRA."""
    loaded, advice = shared.load(model, device), "choose the discriminator of an ELECTRA"
    encoding = _print_head("detector", advice, loaded, text, pair, cut=cut).encoding
    if encoding.mask_positions:
        shared.note(f"{model} has never read a {encoding.special_tokens.mask}: leave it out for a fair answer")


def tags(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Texts to tag.")],
    model: Annotated[str, option("A checkpoint folder, or a hub id, of a model that tags words.")],
    as_json: Annotated[bool, option("Print JSON, one object for each text, with words and spans.", "--json")] = False,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """Print the tag of every word, and the spans of adjacent words of one kind."""
    loaded = shared.load(model, device)
    for number, text in enumerate(texts):
        if number and not as_json:
            typer.echo()
        values = _tag_values if as_json else None
        _print_head("tagger", FINETUNE_ADVICE, loaded, text, cut=cut, values=values)


def answer(
    model: Annotated[str, option("A checkpoint folder, or a hub id, of a model that finds answers.")],
    file: Annotated[
        Path | None, file_argument("A table of questions (.csv, .tsv, .jsonl, .json), or a .json file in SQuAD's form.")
    ] = None,
    question: Annotated[str | None, option("The question.")] = None,
    context: Annotated[str | None, option("The text that contains the answer.")] = None,
    text: shared.TextColumn = None,
    pair: shared.PairColumn = None,
    top_k: Annotated[int, option("Number of answers for each question.", min=1)] = 5,
    as_json: Annotated[bool, option("Print JSON, with the character positions of each answer.", "--json")] = False,
    device: shared.Device = "auto",
) -> None:
    """Print the most probable answers to a question in a text, and the probability of no answer.

    With a table (--text names its column of questions, --pair that of contexts) the best answer to each row, as CSV;
    with questions in SQuAD's form, how many it answers rightly: exact match and F1.
    """
    from bert_core.studies.files import identify
    from bert_core.studies.predictions import predict_rows
    from bert_core.studies.rows import Columns
    from bert_core.studies.texts import missing_columns_message
    from bert_core.task_heads import TASK_HEADS

    if (question is None) != (context is None) or (question is None) == (file is None):
        raise Refused("give either --question and --context, or a file of many")
    is_squad = file is not None and has_answers(file, text, pair)
    if file is not None and not is_squad and (text is None or pair is None):
        contents = "the questions (--text) and that of the contexts (--pair)"
        raise Refused(missing_columns_message(identify(file), contents))
    if file is None and (text or pair):
        raise Refused("--text and --pair name the columns of a table: give one")
    if file is not None and as_json:
        raise Refused("--json is for one question, and a file was given")
    loaded = shared.load(model, device)
    loaded.require_head("reader", FINETUNE_ADVICE)
    if file is None:
        if not (context or "").strip():
            raise Refused("there is no context: type the text that contains the answer")
        values = _answer_values if as_json else None
        _print_head("reader", FINETUNE_ADVICE, loaded, question or "", context, top_k=top_k, values=values)
    elif is_squad:
        print_scores(loaded, file)
    else:
        columns, report = Columns(text or "", pair), shared.ProgressPrinter()
        print_rows(predict_rows(loaded, TASK_HEADS["reader"], file, columns, report=report))


def choose(
    model: Annotated[str, option("A checkpoint folder, or a hub id, of a model for multiple choice.")],
    question: Annotated[str | None, typer.Argument(help="The question, or the beginning of a text.")] = None,
    choices: Annotated[list[str] | None, typer.Argument(metavar="CHOICE", help="At least two answer options.")] = None,
    table: Annotated[Path | None, input_file("A table of questions.")] = None,
    text: shared.TextColumn = None,
    choice: Annotated[
        list[str] | None, column("A column of answer options, repeatable; empty cells are left out.")
    ] = None,
    label: Annotated[
        str | None, column("The column of the correct option: its number from 0, or the name of its column.")
    ] = None,
    as_json: Annotated[bool, option("Print JSON, in the given order, with the logits.", "--json")] = False,
    device: shared.Device = "auto",
) -> None:
    """Print the probability of each answer option, the most probable first.

    With --table, --text and a --choice for each column of answers, what it chooses in each row, as CSV; with --label,
    how often that is right.
    """
    import bert_core
    from bert_core.studies.predictions import choose_rows

    if table is not None:
        if question is not None or as_json:
            raise Refused("--table is many questions instead of one, and what it gives is CSV")
        loaded, report = shared.load(model, device), shared.ProgressPrinter()
        print_rows(choose_rows(loaded, table, text, choice or [], label, report=report))
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


def _print_head(
    name: str, advice: str, loaded: LoadedModel, text: str, pair: str | None = None, *, cut: str = "", top_k: int = 5,
    values: Callable[[ModelRun, int], dict[str, Any]] | None = None,
) -> ModelRun:  # fmt: skip
    """Print the prediction of one task head for a text, and return the run.

    advice: end of the message about a model without the head. values: returns what is printed as JSON; None for lines.
    Raises Refused if the model does not have the head trained.
    """
    from bert_core.task_heads import TASK_HEADS

    loaded.require_head(name, advice)
    run = shared.capture_predictions(shared.with_cuts(loaded, cut), shared.encode(loaded, text, pair), 1)
    if values is not None:
        typer.echo(json_line(values(run, top_k)))
    else:
        readouts = TASK_HEADS[name].readouts(loaded, run, top_k)
        typer.echo("\n".join(head_lines(name, loaded, run, readouts, titles=False)))
    return run


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
    import bert_core
    from bert_core.analysis.spans import span_at

    assert run.spans is not None  # there is a reader and a context
    best, no_answer = bert_core.best_spans(run.encoding, run.spans, max_rows), span_at(run.encoding, run.spans, 0, 0)
    return {"answers": list(map(asdict, best)), "none": asdict(no_answer)}


def with_note(name: str) -> Callable[..., None]:
    """Return the function of a former command, which first notes on stderr what replaces it, and until when it works.

    name: a key of `FORMER_COMMANDS`.
    """
    function, new = FORMER_COMMANDS[name]

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        shared.note(f"headlight {name}: use headlight {new}; this command is removed in {REMOVED_IN}.0")
        function(**arguments)

    return run


# name -> function, and the command that replaces it
FORMER_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "nsp": (nsp, "predict --head next"),
    "replaced": (replaced, "predict --head detector"),
    "tags": (tags, "predict --head tagger"),
    "answer": (answer, "predict --head reader"),
    "choose": (choose, "predict --head chooser"),
    "dossier": (profile, "profile"),
}
