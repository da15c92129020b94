"""The command that compares two models on the same texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.help import INPUT
from viz_app.cli.shared import column, option, output_file
from viz_app.cli.tables import print_table

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.records import ModelComparison

MAX_PRINTED = 10  # heads


def compare_models(
    before: Annotated[str, typer.Argument(help=shared.MODEL_HELP)],
    after: Annotated[str, typer.Argument(help="Another model with the same vocabulary.")],
    file: shared.FileOfTexts,
    out: Annotated[Path | None, output_file("Table of the heads, .csv or .parquet: one row for each head.")] = None,
    cka: Annotated[
        Path | None, output_file("Table of the similarity of depths (linear CKA), .csv or .parquet.")
    ] = None,
    text: shared.TextColumn = None,
    pair: shared.PairColumn = None,
    label: Annotated[str | None, column("The column of the classes; importance then refers to their loss.")] = None,
    texts: Annotated[
        int, option("Maximum number of texts, from the beginning of the file.", group=INPUT, min=1, max=100_000)
    ] = 200,
    max_length: Annotated[
        int, option("Maximum number of tokens of a text; the rest is cut off.", group=INPUT, min=3, max=65_536)
    ] = 128,
    importance: Annotated[
        bool, option("Also compare the importance of each head, and the logit lens.", "--importance/--no-importance")
    ] = True,
    seed: Annotated[int, option("Random seed of the masked tokens.", min=0)] = 0,
    device: shared.Device = "auto",
) -> None:
    """Compare two models on the same texts.

    Prints the similarity of their hidden states at each depth (CKA), and the heads whose attention differs most.
    """
    from bert_core.studies.compare import check_heads, read_texts, write_depths, write_heads
    from bert_core.studies.compare import compare_models as compare
    from bert_core.studies.rows import Columns
    from bert_core.studies.tables import check_table_suffix

    for path in filter(None, (out, cka)):
        shared.check_output(path, file)
        check_table_suffix(path)
    if text is None and (pair or label):
        raise Refused("--pair and --label name columns: say with --text which column holds the texts")
    lines, classes = read_texts(file, None if text is None else Columns(text, pair, label), texts)
    models = shared.load(before, device), shared.load(after, device)
    if out is not None:
        check_heads(*models)
    comparison = compare(
        *models,
        lines,
        labels=classes or None,
        max_length=max_length,
        importance=importance,
        seed=seed,
        report=shared.ProgressPrinter(),
    )
    if out is not None:
        write_heads(comparison, out)
    if cka is not None:
        write_depths(comparison, cka)
    if comparison.divergence is None:
        shared.note("the models have not as many layers and heads: their states are compared, their heads are not")
    _print_comparison(comparison)


def _print_comparison(comparison: ModelComparison) -> None:
    """Print the similarity of each depth with itself, and the heads whose attention differs most."""
    from bert_core.analysis.heads import leading_heads
    from bert_core.analysis.roles import describe_roles, roles_of_heads

    typer.echo(f"{comparison.texts:,} texts, {comparison.tokens:,} tokens")
    columns = {"depth": "d", "CKA": ".3f", "unbiased": ".3f", "nearest depth": "d"}
    lenses = (comparison.lens_before, comparison.lens_after)
    # The lenses of models with different depths are not comparable line by line.
    has_lenses = comparison.divergence is not None and all(lens is not None for lens in lenses)
    if has_lenses:
        columns |= {"lens before": ".3f", "lens after": ".3f"}
    rows = []
    for depth, similarities in enumerate(comparison.cka):
        nearest = min(depth, len(similarities) - 1)
        row = [depth, similarities[nearest], comparison.cka_unbiased[depth, nearest], int(similarities.argmax())]
        rows.append(row + [lens[depth] for lens in lenses if has_lenses and lens is not None])
    print_table(columns, rows)
    if comparison.divergence is None:
        return
    tables = (comparison.before, comparison.after)
    roles = [describe_roles(roles_of_heads(table.figures)) for table in tables]
    importances = [table.figures["importance"] for table in tables if "importance" in comparison.before.figures]
    columns = {"head": "", "divergence": ".4f"}
    if importances:
        columns |= {"importance before": ".4g", "after": ".4g"}
    typer.echo("")
    print_table(
        {**columns, "role before -> after": ""},
        (
            (
                f"L{layer} H{head}",
                comparison.divergence[layer, head],
                *(importance[layer, head] for importance in importances),
                " -> ".join(model_roles[layer][head] for model_roles in roles),
            )
            for layer, head in leading_heads(comparison.divergence, MAX_PRINTED)
        ),
    )
