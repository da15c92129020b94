"""The command that chooses among answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Device, Notes, TextColumn, load, note

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.tokenizer import Encoding


def choose(
    model: Annotated[str, typer.Option(help="A checkpoint folder, or a hub id, of a model for multiple choice.")],
    question: Annotated[str | None, typer.Argument(help="The question, or what is to be gone on with.")] = None,
    choices: Annotated[
        list[str] | None, typer.Argument(metavar="CHOICE...", help="Two answers or more to choose from.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Many questions instead: a table.")
    ] = None,
    text: TextColumn = None,
    choice: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of choices, given again for each; where it is empty is none."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of the right choice: its number from 0, or its column's name."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, in the order given, with the logits.")] = False,
    device: Device = "auto",
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
            source = identify(table)
            needed = "the questions (--text) and each that holds an answer (--choice, two or more)"
            raise Refused(missing_columns_message(source, needed))
        typer.echo(_table(load(model, device), table, text, choice, label), nl=False)
        return
    if text or choice or label:
        raise Refused("--text, --choice and --label name the columns of a table: give --table")
    if question is None or not choices:
        raise Refused("give a question and its choices, or --table and many of them")
    found = bert_core.choose(load(model, device), question, choices)
    if as_json:
        columns = zip(found.choices, found.probabilities.tolist(), found.logits.tolist(), strict=True)
        rows = [{"choice": one, "probability": share, "logit": logit} for one, share, logit in columns]
        typer.echo(json.dumps({"question": question, "choices": rows}, ensure_ascii=False))
        return
    for number in found.order:
        typer.echo(f"{found.probabilities[number]:.3f}  {' '.join(found.choices[number].split())}")


def _table(loaded: LoadedModel, file: Path, text: str, choices: list[str], label: str | None) -> str:
    """What is chosen in each row, and each choice's probability, as CSV; how often that is right is said on stderr."""
    from bert_core.run.multiple_choice import score_choices
    from viz_app.export.tables import labelled_csv

    read, report = _read(loaded, file, text, choices, label), Notes()
    columns: dict[str, list[object]] = {name: [] for name in ("row", "question", "chosen", "choice")}
    columns |= {f"p({name})": [] for name in choices} | ({} if label is None else {"right": []})
    right = 0
    for done, (row, pairs, answer) in enumerate(read, 1):
        found, names = score_choices(loaded, tuple(pairs.values())), list(pairs)
        chosen = names[found.order[0]]
        shares = dict(zip(names, found.probabilities.tolist(), strict=True))
        right += chosen == answer
        values = [row, found.question, chosen, found.choices[found.order[0]], *(shares.get(name) for name in choices)]
        for column, value in zip(columns.values(), [*values, int(chosen == answer)][: len(columns)], strict=True):
            column.append(value)
        report(done / len(read), f"{done:,} of {len(read):,} questions")
    if label is not None:
        note(f"{right:,} of {len(read):,} right ({right / len(read):.1%})")
    return labelled_csv(columns).decode()


def _read(
    loaded: LoadedModel, file: Path, text: str, choices: list[str], label: str | None
) -> list[tuple[int, dict[str, Encoding], str]]:
    """The number of each row, its pairs by the columns of their choices, and the column of the right one.

    Raises Refused for a row that cannot be asked, before any is.
    """
    from bert_core.run.multiple_choice import encode_choices
    from bert_core.studies.rows import read_rows

    loaded.require_head("chooser", "load a model for multiple choice")
    found = []
    for row, fields, _ in read_rows(file, [text, *choices, *([] if label is None else [label])]):
        names = [name for name in choices if fields[name].strip()]
        try:
            pairs = encode_choices(loaded, fields[text], [fields[name] for name in names])
            answer = "" if label is None else _right(fields[label].strip(), choices, names)
        except Refused as error:
            raise Refused(f"row {row} of {file.name}: {error}") from error
        found.append((row, dict(zip(names, pairs, strict=True)), answer))
    if not found:
        raise Refused(f"{file.name} has no rows: there is nothing to ask")
    return found


def _right(label: str, choices: list[str], names: list[str]) -> str:
    """The column that a label names, or numbers from 0. names: of the choices that are there."""
    name = choices[int(label)] if label.isascii() and label.isdigit() and int(label) < len(choices) else label
    if name not in names:
        raise Refused(f"{label!r:.60} is none of its choices: they are {', '.join(names)}, or their numbers from 0")
    return name
