"""The command that compares two models on the same texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Device, FileOfTexts, Notes, PairColumn, TextColumn, check_place, load, note

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.records import ModelComparison

SHOWN = 10  # heads


def compare_models(
    before: Annotated[str, typer.Argument(help="A bundled model, a checkpoint folder, or a hub id.")],
    after: Annotated[str, typer.Argument(help="Another, which reads the same tokens.")],
    file: FileOfTexts,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="How each head changed, .csv or .parquet: one row a head.")
    ] = None,
    cka: Annotated[
        Path | None, typer.Option("--cka", dir_okay=False, help="How alike the depths are, .csv or .parquet.")
    ] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of the classes: importance is then that of their loss."),
    ] = None,
    texts: Annotated[int, typer.Option(min=1, max=100_000, help="The first so many texts of the file.")] = 200,
    max_length: Annotated[int, typer.Option(min=3, max=65_536, help="Tokens of a text that are read.")] = 128,
    importance: Annotated[
        bool, typer.Option("--importance/--no-importance", help="Also the importance of each head, and the lens.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of the pieces that are hidden for it.")] = 0,
    device: Device = "auto",
) -> None:
    """What changed from one model to another: how alike their depths are (CKA), and how each head attends otherwise."""
    from bert_core.studies.compare import check_heads, read_texts, write_depths, write_heads
    from bert_core.studies.compare import compare_models as compare
    from bert_core.studies.rows import Columns
    from bert_core.studies.tables import check_table_suffix

    for place in filter(None, (out, cka)):
        check_place(place, file)
        check_table_suffix(place)
    if text is None and (pair or label):
        raise Refused("--pair and --label name columns: say with --text which column holds the texts")
    read, classes = read_texts(file, None if text is None else Columns(text, pair, label), texts)
    one, other = load(before, device), load(after, device)
    if out is not None:
        check_heads(one, other)
    found = compare(
        one, other, read,
        labels=classes or None, max_length=max_length, importance=importance, seed=seed, report=Notes(),
    )  # fmt: skip
    if out is not None:
        write_heads(found, out)
    if cka is not None:
        write_depths(found, cka)
    if found.divergence is None:
        note("the models have not as many layers and heads: their states are compared, their heads are not")
    typer.echo("\n".join(_lines(found)))


def _lines(found: ModelComparison) -> list[str]:
    """What was read; each depth with itself; and the heads that attend most differently."""
    from bert_core.analysis.heads import leading_heads
    from bert_core.analysis.roles import describe_roles, roles_of_heads

    lines = [f"{found.texts:,} texts, {found.tokens:,} tokens"]
    lenses = None if found.lens_before is None or found.lens_after is None else (found.lens_before, found.lens_after)
    if found.divergence is None:  # of models of other depths the lines do not stand side by side
        lenses = None
    titles = "" if lenses is None else "  lens before  lens after"
    lines.append(f"depth     CKA  unbiased  nearest depth{titles}")
    for depth, row in enumerate(found.cka):
        same = depth if depth < len(row) else len(row) - 1
        line = f"{depth:>5}  {row[same]:>6.3f}  {found.cka_unbiased[depth, same]:>8.3f}  {int(row.argmax()):>13}"
        of_lens = "" if lenses is None else f"  {lenses[0][depth]:>11.3f}  {lenses[1][depth]:>10.3f}"
        lines.append(line + of_lens)
    if found.divergence is None:
        return lines
    roles = [describe_roles(roles_of_heads(table.figures)) for table in (found.before, found.after)]
    weighed = "importance" in found.before.figures
    lines += [
        "",
        "head      divergence" + ("  importance before   after" if weighed else "") + "  role before -> after",
    ]
    for layer, head in leading_heads(found.divergence, SHOWN):
        line = f"{f'L{layer} H{head}':<8}  {found.divergence[layer, head]:>10.4f}"
        if weighed:
            one, two = (table.figures["importance"][layer, head] for table in (found.before, found.after))
            line += f"  {one:>17.4g} {two:>7.4g}"
        first, second = (of_model[layer][head] for of_model in roles)
        lines.append(f"{line}  {first} -> {second}")
    return lines
