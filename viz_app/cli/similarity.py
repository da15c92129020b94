"""The command that says how alike two texts are, read apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Device, ModelName, Notes, PairColumn, TextColumn, check_place, kind_of_file, load, note

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.tokenizer import Encoding

SHOWN = 10  # parts


def similarity(
    first: Annotated[str | None, typer.Argument(metavar="A", help="A text.")] = None,
    second: Annotated[str | None, typer.Argument(metavar="B", help="Another.")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A table of pairs instead, by --text and --pair."),
    ] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="What each pair of tokens adds: .csv, or .png, .svg, .pdf as a picture."),
    ] = None,
    model: ModelName = "headlight-mini",
    device: Device = "auto",
) -> None:
    """How alike two texts are, each read by itself: the cosine of their vectors, and what tokens add to it.

    With --pairs the cosine of every row of a table, as CSV.
    """
    from bert_core.studies.files import identify
    from bert_core.studies.texts import missing_columns_message

    if pairs is not None:
        if first is not None or out is not None:
            raise Refused("--pairs is a table instead of two texts, and its cosines go to the standard output")
        if text is None or pair is None:
            raise Refused(
                missing_columns_message(identify(pairs), "the first texts (--text) and that of the second (--pair)")
            )
        _table(load(model, device), pairs, text, pair)
        return
    if first is None or second is None:
        raise Refused("give two texts, or --pairs and a table of them")
    if out is not None:
        check_place(out)
        kind_of_file("--out", out, ("csv", "png", "svg", "pdf"))
    _two(load(model, device), first, second, out)


def _two(loaded: LoadedModel, first: str, second: str, out: Path | None) -> None:
    """Two texts: the cosine, where it stands among those of unrelated sentences, and its largest parts."""
    import numpy as np

    import bert_core

    found = bert_core.sentence_similarity(loaded, _read(loaded, first), _read(loaded, second))
    others = bert_core.unrelated_cosines(loaded)
    low, high = np.quantile(others, (0.025, 0.975))
    typer.echo(f"cosine {found.cosine:.4f}")
    typer.echo(
        f"above {int((others < found.cosine).sum())} of {len(others)} cosines of unrelated English sentences "
        f"(middle 95%: {low:.2f} to {high:.2f})"
    )
    _note_pooling(loaded)
    order = np.argsort(-np.abs(found.parts), axis=None)[:SHOWN]
    typer.echo(f"its largest parts of {found.parts.size:,} (they sum to it)")
    for row, column in zip(*np.unravel_index(order, found.parts.shape), strict=True):
        typer.echo(f"  {found.parts[row, column]:+.4f}  {found.first.labels[row]}  {found.second.labels[column]}")
    if out is not None:
        from bert_core.checkpoint import write_atomically
        from viz_app.export.drawing import picture_bytes
        from viz_app.export.similarity import parts_csv, parts_picture

        kind = out.suffix.removeprefix(".").lower()
        write_atomically(out, parts_csv(found) if kind == "csv" else picture_bytes(parts_picture(found), kind))


def _table(loaded: LoadedModel, path: Path, text: str, pair: str) -> None:
    """Every row of a table with its cosine, as CSV; each text is read once."""
    import numpy as np

    import bert_core
    from bert_core.studies.rows import Columns, check_rows, row_shards
    from viz_app.export.tables import labelled_csv

    columns = Columns(text, pair)
    check_rows(path, columns, pairs=True)
    lines = [line for shard in row_shards(path, columns) for line in shard.lines]
    texts = list(dict.fromkeys(one for line in lines for one in (line.text, line.pair or "")))
    report, units = Notes(), dict[str, np.ndarray]()
    for number, one in enumerate(texts):
        vector = bert_core.sentence_vector(loaded, _read(loaded, one)).astype(np.float64)
        units[one] = vector / np.linalg.norm(vector)
        report((number + 1) / len(texts), f"{number + 1:,} of {len(texts):,} texts")
    _note_pooling(loaded)
    written = labelled_csv({
        "row": [line.number for line in lines], "first": [line.text for line in lines],
        "second": [line.pair for line in lines],
        "cosine": [float(units[line.text] @ units[line.pair or ""]) for line in lines],
    })  # fmt: skip
    typer.echo(written.decode(), nl=False)


def _read(loaded: LoadedModel, text: str) -> Encoding:
    """A text by itself; what was cut is said on stderr."""
    import bert_core

    encoding = bert_core.read_sentence(loaded, text)
    if encoding.truncated_count:
        note(
            f"the last {encoding.truncated_count} of {encoding.full_length} tokens did not fit and were left out: "
            f"{text:.40}"
        )
    return encoding


def _note_pooling(loaded: LoadedModel) -> None:
    if loaded.pooling is None:
        note(f"{loaded.name} was not trained to make one vector of a text: this is the mean of its states")
