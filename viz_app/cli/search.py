"""The commands that make an index of a corpus, and look up in it where else."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import (
    Device,
    ModelName,
    Notes,
    TextColumn,
    check_place,
    encode,
    kind_of_file,
    load,
    note,
    parse_heads,
)

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.studies.search import Match, Matches
    from bert_core.tokenizer import Encoding

AROUND = 44  # characters on either side of a match

IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="A folder that `headlight index` made.")]


def index(
    file: Annotated[
        Path | None,
        typer.Argument(
            exists=True, dir_okay=False,
            help="Plain text (.txt), one paragraph per line, read sentence by sentence; a treebank (.conllu); or, with "
            "--text, a table (.csv, .tsv, .jsonl, .json).",
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(file_okay=False, help="The folder of the index; one that is there grows.")],
    layers: Annotated[
        str, typer.Option(help="Layers with commas: their heads, and the states that leave them; or all.")
    ] = "all",
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Take a file out of the index, by its name, instead.")
    ] = None,
    text: TextColumn = None,
    model: ModelName = "headlight-mini",
    max_length: Annotated[int, typer.Option(min=3, max=65_536, help="Tokens of a sentence that are read.")] = 128,
    engine: Annotated[str, typer.Option(help="local, or ray: on a Ray cluster.")] = "local",
    device: Device = "auto",
) -> None:  # fmt: skip
    """Keep what a model makes of every token of a corpus, to look up where else: states, heads, strongest keys.

    Stopped, it keeps what it has; the same command again goes on. With another file the index grows.
    """
    from bert_core.studies.index import (
        incomplete_note,
        index_file,
        read_contents,
        remove_from_index,
    )
    from bert_core.studies.runner import exclusive_lock
    from bert_core.studies.settings import IndexSettings

    if (file is None) == (remove is None):
        raise Refused("give a file that is added, or --remove and the name of one that is taken out")
    if remove is not None:
        read_contents(out)
        with exclusive_lock(out):
            remove_from_index(out, remove)
        note(f"{out} holds {remove} no more")
        return
    assert file is not None
    settings = IndexSettings(_parse_layers(layers), max_length)
    made = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    report = Notes()
    try:
        with exclusive_lock(out):
            counts = index_file(
                file, out, model, settings, engine=engine, device=device, column=text,
                on_progress=lambda counts, share: report(
                    share, f"{counts['texts']:,} sentences, {counts['tokens']:,} tokens"
                ),
            )  # fmt: skip
    except KeyboardInterrupt:
        note("stopped: the same command goes on")
        raise
    except Refused:
        if made and not any(out.iterdir()):
            out.rmdir()
        raise
    contents = read_contents(out)
    tokens = sum(one["counts"].get("tokens", 0) for one in contents["documents"])
    size = sum(path.stat().st_size for path in out.glob("*/*"))
    if counts:
        note(f"{file.name}: {counts['texts']:,} sentences, {counts['tokens']:,} tokens{incomplete_note(counts)}")
    typer.echo(f"{out}: {len(contents['documents'])} files, {tokens:,} tokens, {size / 1e6:,.1f} MB")


def search(
    folder: IndexFolder,
    text: Annotated[str, typer.Argument(help="A sentence.")],
    token: Annotated[
        str, typer.Option(help="A word of it, as in king, or 'the at 7'; or positions with commas, a phrase.")
    ],
    heads: Annotated[
        str | None, typer.Option(help="Where else these heads do the like: layer.head with commas, as in 0.3, 4.*.")
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(min=0, help="Where else a state is like it: 0 the embeddings, n + 1 what leaves layer n."),
    ] = None,
    alike: Annotated[str, typer.Option(help="Of heads: brings, what they bring; looks, where they look.")] = "brings",
    phrase: Annotated[
        str, typer.Option(help="Several tokens: mean, tokens like their mean; each, sentences with the like of each.")
    ] = "mean",
    where: Annotated[
        str | None,
        typer.Option(help="Only tokens with word=king,upos=NOUN|PROPN: also piece, document, relation, distance, "
                     "governor, features, offset."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Matches.")] = 20,
    out: Annotated[Path | None, typer.Option(dir_okay=False, help="The matches as .csv or .json.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The model that the index was made with, where it is now.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local, or ray: on a Ray cluster whose machines see INDEX.")] = "local",
    device: Device = "auto",
) -> None:  # fmt: skip
    """Where else in a corpus a token is in a state like this one, or heads bring the same or look alike."""
    from bert_core import checkpoint
    from bert_core.studies.index_reader import open_index
    from bert_core.studies.search import search as search_index

    kind = None
    if out is not None:
        kind = kind_of_file("--out", out, ("csv", "json"))
        check_place(out)
    index = open_index(folder)
    loaded = load(index.model if model is None else model, device)
    index.check_model(loaded)
    encoding = encode(loaded, text, None)
    positions = parse_tokens(encoding, token)
    if heads is None and depth is None:
        depth = index.depths[-1]
    pairs = [] if heads is None else parse_heads(heads, loaded.config.num_hidden_layers, index.heads)
    found = search_index(
        index, loaded, encoding, positions, depth=depth, heads=pairs, head_similarity=alike, phrase=phrase,
        where=parse_where(where), top=top, engine=engine, report=Notes(),
    )  # fmt: skip
    for said in found.broken:
        note(said)
    if out is not None:
        asked = {
            "model": index.model, "text": text, "tokens": positions, "depth": depth, "heads": pairs,
            "alike": alike if pairs else None, "phrase": phrase, "where": where, "compared": found.compared,
        }  # fmt: skip
        checkpoint.write_atomically(out, _csv(found) if kind == "csv" else _json(found, asked))
    typer.echo("\n".join(_lines(found, encoding, positions, index.tokens)))


def parse_tokens(encoding: Encoding, written: str) -> list[int]:
    """Positions, or the pieces of a word, as in king, or the at 7 where it stands several times.

    Raises Refused for anything else.
    """
    parts = [part.strip() for part in written.split(",")]
    if all(part.isdecimal() for part in parts) and all(int(part) < len(encoding) for part in parts):
        return [int(part) for part in parts]
    from bert_core.studies.index import word_per_piece

    before, at, place = written.rpartition(" at ")
    named, only = (before, int(place)) if at and place.isdecimal() else (written, None)
    wanted = named.strip().casefold()
    places: dict[int, list[int]] = {}
    for position, (word, number) in enumerate(zip(word_per_piece(encoding), encoding.words, strict=True)):
        if number is not None and word is not None and word.casefold() == wanted:
            places.setdefault(number, []).append(position)
    if only is not None:
        places = {number: own for number, own in places.items() if only in own}
    if len(places) == 1:
        return next(iter(places.values()))
    tokens = " ".join(f"{position}:{token}" for position, token in enumerate(encoding.tokens))
    often = f"{len(places)} times" if places else "not"
    raise Refused(f"--token is {written!r}, which is {often} a word of the text: name one of {tokens} by its number")


def parse_where(written: str | None) -> dict[str, list[Any]]:
    """`word=king,upos=NOUN|PROPN` as columns and their values. Raises Refused for anything else."""
    found: dict[str, list[Any]] = {}
    for part in (written or "").split(",") if written else ():
        name, equals, values = part.partition("=")
        if not equals or not name.strip() or not values.strip():
            raise Refused(f"--where is {written!r}: write column=value with commas, | between several values")
        given = [value.strip() for value in values.split("|")]
        numbers = name.strip() in ("distance", "offset")
        found.setdefault(name.strip(), []).extend(
            int(one) if numbers and re.fullmatch(r"[-+]?\d+", one) else one for one in given
        )
    return found


def _parse_layers(written: str) -> tuple[int, ...] | None:
    if written.strip() == "all":
        return None
    parts = [part.strip() for part in written.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise Refused(f"--layers is {written!r}: write layers with commas, as in 0,5, or all")
    return tuple(int(part) for part in parts)


def _lines(found: Matches, encoding: Encoding, positions: Sequence[int], of: int) -> list[str]:
    """What was compared, and every match in the middle of its line."""
    asked = " ".join(encoding.tokens[position] for position in positions)
    lines = [f"«{asked}»: the best {len(found.matches)} of {found.compared:,} tokens, {of:,} in the index"]
    widest = max((len(_place(one)) for one in found.matches), default=0)
    for one in found.matches:
        left, right = (re.sub(r"\s+", " ", part) for part in (one.text[: one.start], one.text[one.end :]))
        left = left if len(left) <= AROUND else "…" + left[1 - AROUND :]
        right = right if len(right) <= AROUND else right[: AROUND - 1] + "…"
        middle = one.text[one.start : one.end] or one.piece
        offset = "" if one.offset is None else f"  looks {one.offset:+d}" if isinstance(one.offset, int) else (
            f"  looks {one.offset}")  # fmt: skip
        labels = " ".join(str(one.labels[name]) for name in ("upos", "relation") if one.labels.get(name))
        tail = f"{offset}{'  ' + labels if labels else ''}"
        lines.append(f"{one.score:7.4f}  {_place(one):<{widest}}  {left:>{AROUND}}«{middle}»{right}{tail}")
    return lines


def _place(match: Match) -> str:
    return f"{match.document}:{match.line}"


def _rows(found: Matches) -> list[dict[str, Any]]:
    return [{name: value for name, value in asdict(one).items() if name != "labels"} | dict(one.labels)
            for one in found.matches]  # fmt: skip


def _csv(found: Matches) -> str:
    from bert_core.csv_cells import as_csv

    rows = [{**row, "also": " ".join(map(str, row["also"]))} for row in _rows(found)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return as_csv([names, *([row.get(name) for name in names] for row in rows)])


def _json(found: Matches, asked: dict[str, Any]) -> str:
    return json.dumps({**asked, "matches": _rows(found)}, ensure_ascii=False, indent=1) + "\n"
