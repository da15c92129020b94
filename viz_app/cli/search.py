"""Commands that build an index of a corpus, and search in it for similar tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bert_core.refused import Refused
from bert_core.studies.settings import IndexSettings
from viz_app.cli import shared
from viz_app.cli.help import MODEL, OUTPUT, RUN
from viz_app.cli.options import options
from viz_app.cli.shared import file_argument, option, output_file, output_folder
from viz_app.cli.tables import write_csv, write_json

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.studies.search import Match, Matches
    from bert_core.tokenizer import Encoding

CONTEXT_CHARACTERS = 44  # on either side of a match

IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="A folder of `headlight index`.")]


@options(IndexSettings, partial=True)
def index(
    file: Annotated[
        Path | None,
        file_argument(
            "Plain text (.txt), one paragraph per line, read sentence by sentence; a treebank (.conllu); or, with "
            "--text, a table (.csv, .tsv, .jsonl, .json)."
        ),
    ] = None,
    *,
    out: Annotated[Path, output_folder("The folder of the index; an existing index is extended.")],
    settings: Any,
    layers: Annotated[str, option("Layers, comma-separated, whose heads and outputs are kept; or all.")] = "all",
    remove: Annotated[str | None, option("Remove a file from the index, by its name.", metavar="NAME")] = None,
    text: shared.TextColumn = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    engine: shared.Engine = "local",
    device: shared.Device = "auto",
) -> None:
    """Build a corpus index.

    The index has hidden states, head outputs and strongest keys of every token. Run the same command again to resume.
    Another file is added to the index.
    """
    from bert_core.studies.index import incomplete_note, index_file, read_contents, remove_from_index
    from bert_core.studies.runner import exclusive_lock

    if (file is None) == (remove is None):
        raise Refused("give a file that is added, or --remove and the name of one that is taken out")
    if remove is not None:
        read_contents(out)
        with exclusive_lock(out):
            remove_from_index(out, remove)
        shared.note(f"{out} holds {remove} no more")
        return
    assert file is not None
    numbers = shared.parse_numbers(layers, "--layers", "layers", "0,5")
    study: IndexSettings = settings(layers=None if numbers is None else tuple(numbers))
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    report = shared.ProgressPrinter()

    def report_counts(counts: dict[str, int], share: float) -> None:
        report(share, f"{counts['texts']:,} sentences, {counts['tokens']:,} tokens")

    try:
        with shared.resumable(out), exclusive_lock(out):
            counts = index_file(
                file, out, model, study, engine=engine, device=device, column=text, on_progress=report_counts
            )
    except Refused:
        if is_new and not any(out.iterdir()):
            out.rmdir()
        raise
    contents = read_contents(out)
    tokens = sum(document["counts"].get("tokens", 0) for document in contents["documents"])
    size = sum(path.stat().st_size for path in out.glob("*/*"))
    if counts:
        shared.note(f"{file.name}: {counts['texts']:,} sentences, {counts['tokens']:,} tokens{incomplete_note(counts)}")
    typer.echo(f"{out}: {len(contents['documents'])} files, {tokens:,} tokens, {size / 1e6:,.1f} MB")


def search(
    folder: IndexFolder,
    text: Annotated[str, typer.Argument(help="A sentence.")],
    token: Annotated[str, option("A word such as king or 'the at 7'; or comma-separated positions, for a phrase.")],
    heads: Annotated[str | None, option("Search by these heads: layer.head, such as 0.3,4.*.")] = None,
    depth: Annotated[
        int | None,
        option("Search by hidden state at this depth: 0 for embeddings, n + 1 for layer n.", min=0),
    ] = None,
    alike: Annotated[
        Literal["output", "pattern", "brings", "looks"],
        option(
            "Similarity of heads: output, or attention pattern (formerly brings and looks).", metavar="output|pattern"
        ),
    ] = "output",
    phrase: Annotated[
        str, option("Several tokens: mean, tokens similar to their mean; each, sentences with a match of each.")
    ] = "mean",
    conditions: Annotated[
        str | None,
        option(
            "Only tokens with word=king,upos=NOUN|PROPN: also piece, document, relation, distance, "
            "governor, features, offset.",
            "--where",
        ),
    ] = None,
    top: Annotated[int, option("Number of matches.", group=OUTPUT, min=1)] = 20,
    out: Annotated[Path | None, output_file("Output file of the matches, .csv or .json.")] = None,
    model: Annotated[str | None, option("The model of the index, if it has moved.", group=MODEL)] = None,
    engine: Annotated[str, option("local, or ray: on a Ray cluster whose machines see INDEX.", group=RUN)] = "local",
    device: shared.Device = "auto",
) -> None:
    """Find similar tokens in a corpus index.

    The matches are tokens with similar hidden states, head outputs or attention patterns.
    """
    from bert_core.studies.index_reader import open_index
    from bert_core.studies.search import search as search_index

    kind = shared.check_output(out, kinds=("csv", "json"))
    corpus = open_index(folder)
    loaded = shared.load(corpus.model if model is None else model, device)
    corpus.check_model(loaded)
    encoding = shared.encode(loaded, text, None)
    positions = shared.parse_tokens(encoding, token, "--token")
    if heads is None and depth is None:
        depth = corpus.depths[-1]
    pairs = [] if heads is None else shared.parse_heads(heads, corpus.heads)
    head_similarity = "looks" if alike in ("pattern", "looks") else "brings"
    matches = search_index(
        corpus,
        loaded,
        encoding,
        positions,
        depth=depth,
        heads=pairs,
        head_similarity=head_similarity,
        phrase=phrase,
        where=parse_conditions(conditions),
        top=top,
        engine=engine,
        report=shared.ProgressPrinter(),
    )
    for message in matches.broken:
        shared.note(message)
    if out is not None and kind == "csv":
        rows = [{**row, "also": " ".join(map(str, row["also"]))} for row in _match_rows(matches)]
        names = list(dict.fromkeys(name for row in rows for name in row))
        write_csv(names, ([row.get(name) for name in names] for row in rows), out)
    elif out is not None:
        query = {
            "model": corpus.model, "text": text, "tokens": positions, "depth": depth, "heads": pairs,
            "alike": head_similarity if pairs else None, "phrase": phrase, "where": conditions,
            "compared": matches.compared,
        }  # fmt: skip
        write_json({**query, "matches": _match_rows(matches)}, out)
    typer.echo("\n".join(_match_lines(matches, encoding, positions, corpus.tokens)))


def parse_conditions(text: str | None) -> dict[str, list[Any]]:
    """Return the columns and values of `word=king,upos=NOUN|PROPN`. Raises Refused for another form."""
    conditions: dict[str, list[Any]] = {}
    for part in text.split(",") if text else ():
        name, equals, values = part.partition("=")
        if not equals or not name.strip() or not values.strip():
            raise Refused(f"--where is {text!r}: write column=value with commas, | between several values")
        is_number = name.strip() in ("distance", "offset")
        conditions.setdefault(name.strip(), []).extend(
            int(value) if is_number and re.fullmatch(r"[-+]?\d+", value) else value
            for value in map(str.strip, values.split("|"))
        )
    return conditions


def _match_lines(matches: Matches, encoding: Encoding, positions: Sequence[int], token_count: int) -> Iterator[str]:
    """Yield a line about what was compared, and one for each match, in the middle of its line."""
    phrase = " ".join(encoding.tokens[position] for position in positions)
    yield f"«{phrase}»: the best {len(matches.matches)} of {matches.compared:,} tokens, {token_count:,} in the index"
    places = [f"{match.document}:{match.line}" for match in matches.matches]
    width = max(map(len, places), default=0)
    for match, place in zip(matches.matches, places, strict=True):
        left, right = (re.sub(r"\s+", " ", part) for part in (match.text[: match.start], match.text[match.end :]))
        left = left if len(left) <= CONTEXT_CHARACTERS else "…" + left[1 - CONTEXT_CHARACTERS :]
        right = right if len(right) <= CONTEXT_CHARACTERS else right[: CONTEXT_CHARACTERS - 1] + "…"
        middle = match.text[match.start : match.end] or match.piece
        line = f"{match.score:7.4f}  {place:<{width}}  {left:>{CONTEXT_CHARACTERS}}«{middle}»{right}"
        yield "  ".join([line, *_match_details(match)])


def _match_details(match: Match) -> Iterator[str]:
    """Yield the offset to which a head attends, and the labels of the token, if there are any."""
    if match.offset is not None:
        yield f"offset {match.offset:+d}" if isinstance(match.offset, int) else f"offset {match.offset}"
    labels = [str(match.labels[name]) for name in ("upos", "relation") if match.labels.get(name)]
    if labels:
        yield " ".join(labels)


def _match_rows(matches: Matches) -> list[dict[str, Any]]:
    """Return the values of each match by the names of their columns."""
    rows = ({name: value for name, value in asdict(match).items() if name != "labels"} for match in matches.matches)
    return [row | dict(match.labels) for row, match in zip(rows, matches.matches, strict=True)]
