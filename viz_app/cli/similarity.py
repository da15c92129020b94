"""The command that measures how similar two texts are that are encoded separately."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.progress import report_count
from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.shared import input_file, output_file
from viz_app.cli.tables import print_csv

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import Similarity
    from bert_core.tokenizer import Encoding

MAX_PRINTED = 10  # parts


def similarity(
    first: Annotated[str | None, typer.Argument(metavar="A", help="A text.")] = None,
    second: Annotated[str | None, typer.Argument(metavar="B", help="Another text.")] = None,
    pairs: Annotated[Path | None, input_file("A table of pairs, with --text and --pair.")] = None,
    text: shared.TextColumn = None,
    pair: shared.PairColumn = None,
    out: Annotated[
        Path | None, output_file("Parts of the cosine by pairs of tokens: .csv, or a picture, .png, .svg or .pdf.")
    ] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    device: shared.Device = "auto",
) -> None:
    """Compute the cosine of two sentence vectors.

    Prints the cosine, and its parts by pairs of tokens. With --pairs, print the cosine of every row of a table as CSV.
    """
    from bert_core.studies.files import identify
    from bert_core.studies.texts import missing_columns_message

    if pairs is not None:
        if first is not None or out is not None:
            raise Refused("--pairs is a table instead of two texts, and its cosines go to the standard output")
        if text is None or pair is None:
            columns = "the first texts (--text) and that of the second (--pair)"
            raise Refused(missing_columns_message(identify(pairs), columns))
        _print_cosines(shared.load(model, device), pairs, text, pair)
        return
    if first is None or second is None:
        raise Refused("give two texts, or --pairs and a table of them")
    kind = shared.check_output(out, kinds=("csv", "png", "svg", "pdf"))
    result = _compare_texts(shared.load(model, device), first, second)
    if out is not None:
        from viz_app.export.drawing import picture_bytes
        from viz_app.export.similarity import parts_csv, parts_picture

        shared.write_file(out, parts_csv(result) if kind == "csv" else picture_bytes(parts_picture(result), kind))


def _compare_texts(loaded: LoadedModel, first: str, second: str) -> Similarity:
    """Print and return the cosine of two texts, its rank among those of unrelated sentences, and its largest parts."""
    import numpy as np

    import bert_core

    result = bert_core.sentence_similarity(loaded, _encode(loaded, first), _encode(loaded, second))
    cosines = bert_core.unrelated_cosines(loaded)
    low, high = np.quantile(cosines, (0.025, 0.975))
    typer.echo(f"cosine {result.cosine:.4f}")
    typer.echo(
        f"above {int((cosines < result.cosine).sum())} of {len(cosines)} cosines of unrelated English sentences "
        f"(middle 95%: {low:.2f} to {high:.2f})"
    )
    _note_pooling(loaded)
    order = np.argsort(-np.abs(result.parts), axis=None)[:MAX_PRINTED]
    typer.echo(f"the largest of its {result.parts.size:,} parts, which sum to it")
    for row, column in zip(*np.unravel_index(order, result.parts.shape), strict=True):
        typer.echo(f"  {result.parts[row, column]:+.4f}  {result.first.labels[row]}  {result.second.labels[column]}")
    return result


def _print_cosines(loaded: LoadedModel, path: Path, text: str, pair: str) -> None:
    """Print the rows of a table with their cosines, as CSV; each text is encoded once."""
    import numpy as np

    import bert_core
    from bert_core.studies.rows import Columns, table_lines

    lines = list(table_lines(path, Columns(text, pair)))
    texts = list(dict.fromkeys(side for line in lines for side in (line.text, line.pair or "")))
    report, units = shared.ProgressPrinter(), dict[str, np.ndarray]()
    for number, sentence in enumerate(texts, 1):
        vector = bert_core.sentence_vector(loaded, _encode(loaded, sentence)).astype(np.float64)
        units[sentence] = vector / np.linalg.norm(vector)
        report_count(report, number, len(texts), "texts")
    _note_pooling(loaded)
    cosines = [float(units[line.text] @ units[line.pair or ""]) for line in lines]
    rows = [(line.number, line.text, line.pair, cosine) for line, cosine in zip(lines, cosines, strict=True)]
    print_csv(("row", "first", "second", "cosine"), rows)


def _encode(loaded: LoadedModel, text: str) -> Encoding:
    """Return the encoding of a text; truncation is noted on stderr."""
    import bert_core

    encoding = bert_core.read_sentence(loaded, text)
    if encoding.truncated_count:
        shared.note(
            f"the last {encoding.truncated_count} of {encoding.full_length} tokens did not fit and were left out: "
            f"{text:.40}"
        )
    return encoding


def _note_pooling(loaded: LoadedModel) -> None:
    """Note on stderr if the model was not trained for sentence vectors."""
    if loaded.pooling is None:
        shared.note(f"{loaded.name} was not trained for sentence vectors: the mean of its hidden states is used")
