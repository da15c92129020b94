"""The command that counts what every head does over an index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Notes, check_place

if TYPE_CHECKING:
    from bert_core.studies.dossier import Dossier

ENDINGS = (".json", ".csv", ".parquet")
SHOWN = 8  # heads


def dossier(
    index: Annotated[Path, typer.Argument(help="A folder that `headlight index` made.")],
    out: Annotated[
        Path, typer.Option(dir_okay=False, help="A .json file, which the page Dossier opens; or .csv, .parquet.")
    ],
    heads: Annotated[str, typer.Option(help="layer.head with commas, as in 3.8,4.1; or all.")] = "all",
    each: Annotated[int, typer.Option(min=1, max=100, help="Looks drawn from every tenth of a head's activity.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the looks that are drawn.")] = 0,
    pages: Annotated[
        Path | None, typer.Option(file_okay=False, help="Also a page for each head, .html, into this folder.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A table of `headlight heads`: what removal costs.")
    ] = None,
    table_source: Annotated[str, typer.Option(help="Over whose text the table was measured; shown beside it.")] = "",
    source: Annotated[str, typer.Option(help="Whose text it is, and its licence; shown beside the sentences.")] = "",
) -> None:
    """What every head does over a corpus: kinds, offsets, relations and words it looks at, beside what chance gives.

    With sentences from every tenth of its activity, the heads that look in the same way, and what its removal costs.
    """
    from bert_core import checkpoint
    from bert_core.studies.dossier import dossier_columns, head_dossiers, write_dossiers
    from bert_core.studies.indexed import open_index
    from bert_core.studies.table import read_table, write_columns
    from viz_app.export.dossier import dossier_page

    if out.suffix.lower() not in ENDINGS:
        raise Refused(f"--out is {str(out)!r}: its ending must be one of {', '.join(ENDINGS)}")
    check_place(out, index)
    if pages is not None and pages.resolve() == index.resolve():
        raise Refused(f"--pages is the index, {str(pages)!r}: name another folder")
    found = head_dossiers(
        open_index(index), _parse_heads(heads), examples=each, seed=seed, source=source,
        table=None if table is None else read_table(table.read_bytes(), table.name), table_source=table_source,
        report=Notes(),
    )  # fmt: skip
    if out.suffix.lower() == ".json":
        write_dossiers(found, out)
    else:
        write_columns(dossier_columns(found.heads), out)
    if pages is not None:
        pages.mkdir(parents=True, exist_ok=True)
        for one in found.heads:
            checkpoint.write_whole(pages / f"dossier.L{one.layer}.H{one.head}.html", dossier_page(found, one))
    for one in found.heads[:SHOWN]:
        typer.echo(_line(one))
    typer.echo(f"{out}: {len(found.heads)} heads over {found.heads[0].tokens:,} tokens")


def _parse_heads(written: str) -> list[tuple[int, int]] | None:
    """`3.8,4.1` as pairs; None for all. Raises Refused for anything else."""
    if written.strip() == "all":
        return None
    pairs = []
    for part in written.split(","):
        layer, _, head = part.strip().partition(".")
        if not (layer.isdecimal() and head.isdecimal()):
            raise Refused(f"--heads is {written!r}: write layer.head with commas, as in 3.8,4.1, or all")
        pairs.append((int(layer), int(head)))
    return pairs


def _line(one: Dossier) -> str:
    """Where a head rests, and what stands out most where it is active."""
    best = [f"{asked} {bar.name} {bar.share:.0%} (chance {bar.chance:.0%})" for asked, bar in one.standing_out[:3]]
    rests = f"L{one.layer} H{one.head}: at [CLS] or [SEP] from {one.sinks:.0%}"
    return f"{rests}; where most active: {', '.join(best) or 'nothing above chance'}"
