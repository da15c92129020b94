"""The command that chooses among answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.shared import column, input_file, option
from viz_app.cli.tables import print_csv, print_json

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.tokenizer import Encoding


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
        print_json({"question": question, "choices": rows})
        return
    for index in scores.order:
        typer.echo(f"{scores.probabilities[index]:.3f}  {' '.join(scores.choices[index].split())}")


def _print_choices(loaded: LoadedModel, file: Path, text: str, choices: list[str], label: str | None) -> None:
    """Print the choice of each row, and the probabilities, as CSV; the accuracy is noted on stderr."""
    from bert_core.run.multiple_choice import score_choices

    rows, report = _read_rows(loaded, file, text, choices, label), shared.ProgressPrinter()
    columns: dict[str, list[object]] = {name: [] for name in ("row", "question", "chosen", "choice")}
    columns |= {f"p({name})": [] for name in choices} | ({} if label is None else {"right": []})
    correct = 0
    for number, (row, pairs, answer) in enumerate(rows, 1):
        scores, names = score_choices(loaded, tuple(pairs.values())), list(pairs)
        best = scores.order[0]
        is_correct = names[best] == answer
        correct += is_correct
        shares = dict(zip(names, scores.probabilities.tolist(), strict=True))
        values = [row, scores.question, names[best], scores.choices[best], *(shares.get(name) for name in choices)]
        for column_values, value in zip(columns.values(), [*values, int(is_correct)][: len(columns)], strict=True):
            column_values.append(value)
        report(number / len(rows), f"{number:,} of {len(rows):,} questions")
    if label is not None:
        shared.note(f"{correct:,} of {len(rows):,} right ({correct / len(rows):.1%})")
    print_csv(columns)


def _read_rows(
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
