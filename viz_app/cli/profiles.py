"""The command that counts what heads, tokens and neurons do over an index."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Device, Notes, check_place, note, parse_heads, parse_neurons

if TYPE_CHECKING:
    from bert_core.loading import LoadedModel
    from bert_core.studies.index_reader import Index
    from bert_core.studies.profiles import HeadProfile

ENDINGS = (".json", ".json.gz", ".csv", ".parquet")
SHOWN = 8  # heads


def profile(
    index: Annotated[Path, typer.Argument(help="A folder that `headlight index` made.")],
    out: Annotated[
        Path,
        typer.Option(dir_okay=False, help="A .json or .json.gz, which the page Profiles opens; or .csv, .parquet."),
    ],
    heads: Annotated[str, typer.Option(help="layer.head with commas, as in 3.8,4.*; all, or none.")] = "all",
    tokens: Annotated[
        str, typer.Option(help="Also of these pieces of the vocabulary, with spaces: 'bank ##ing'.")
    ] = "",
    frequent: Annotated[int, typer.Option(min=0, help="Also of so many tokens, those that come most often.")] = 0,
    neurons: Annotated[str, typer.Option(help="Also of these, layer.neuron with commas, as in 3.120,4.7-19.")] = "",
    drawn: Annotated[int, typer.Option(min=0, help="Also of so many neurons of every layer, drawn by the seed.")] = 0,
    each: Annotated[int, typer.Option(min=1, max=100, help="Sentences drawn from every tenth of each.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 0,
    pages: Annotated[
        Path | None, typer.Option(file_okay=False, help="Also a page for each, .html, into this folder.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A table of `headlight heads`: what removal costs.")
    ] = None,
    table_source: Annotated[str, typer.Option(help="Over whose text the table was measured; shown beside it.")] = "",
    source: Annotated[str, typer.Option(help="Whose text it is, and its licence; shown beside the sentences.")] = "",
    device: Device = "auto",
) -> None:
    """What every head does over a corpus: kinds, offsets, relations and words it looks at, beside what chance gives.

    With sentences from every tenth of its activity, the heads that look in the same way, and what its removal costs.
    Of tokens, where they stand and how alike their states are; of neurons, at what they fire.
    """
    from bert_core import checkpoint, load
    from bert_core.studies.head_profiles import head_profiles
    from bert_core.studies.head_tables import read_table
    from bert_core.studies.index_reader import open_index
    from bert_core.studies.neuron_profiles import neuron_profiles
    from bert_core.studies.profiles import profile_columns, write_profiles
    from bert_core.studies.tables import write_columns
    from bert_core.studies.token_profiles import token_profiles
    from viz_app.export.profiles import file_name, profile_page

    if not out.name.lower().endswith(ENDINGS):
        raise Refused(f"--out is {str(out)!r}: its ending must be one of {', '.join(ENDINGS)}")
    check_place(out, index)
    if pages is not None and pages.resolve() == index.resolve():
        raise Refused(f"--pages is the index, {str(pages)!r}: name another folder")
    there = open_index(index)
    given: dict[str, Any] = {"examples": each, "seed": seed, "report": Notes()}
    pairs = _parse_heads(heads, there)
    measured = None if table is None else read_table(table.read_bytes(), table.name)
    found = head_profiles(there, pairs, **given, source=source, table=measured, table_source=table_source)
    if table is not None and measured is not None and not measured.weights:
        note(
            f"{table.name} does not say of which weights it is, as tables of version 0.2: its name and the number of "
            "heads fit the index"
        )
    if frequent:
        found = replace(found, tokens=token_profiles(there, max_pieces=frequent, **given))
    known = {one.piece for one in found.tokens}
    if pieces := [piece for piece in tokens.split() if piece not in known]:
        found = replace(found, tokens=(*found.tokens, *token_profiles(there, pieces, **given)))
    if neurons or drawn:
        loaded = load(there.model, device=device)
        named = parse_neurons(neurons, loaded.config.intermediate_size) if neurons else []
        wanted = [*named, *_drawn(loaded, drawn, seed)]
        found = replace(found, neurons=neuron_profiles(there, loaded, wanted, **given))
    if not found.all_profiles:
        raise Refused("nothing was asked for: name --heads, --tokens, --frequent, --neurons or --drawn")
    if out.suffix.lower() in (".json", ".gz"):
        write_profiles(found, out)
    else:
        write_columns(profile_columns(found.all_profiles), out)
    if pages is not None:
        pages.mkdir(parents=True, exist_ok=True)
        for one in found.all_profiles:
            checkpoint.write_atomically(pages / f"{file_name(found, one)}.html", profile_page(found, one))
    for head in found.heads[:SHOWN]:
        typer.echo(_line(head))
    counts = {"heads": found.heads, "tokens": found.tokens, "neurons": found.neurons}
    said = ", ".join(f"{len(of)} {name}" for name, of in counts.items() if of)
    typer.echo(f"{out}: {said} over {found.all_profiles[0].tokens:,} tokens")


@functools.wraps(profile)
def dossier(**arguments: Any) -> None:
    """Run `headlight profile` under its old name, with a note on stderr."""
    note("`headlight dossier` is deprecated: use `headlight profile`")
    profile(**arguments)


def _parse_heads(written: str, index: Index) -> list[tuple[int, int]] | None:
    """`3.8,4.*` as pairs; None for all. Raises Refused for anything else."""
    if written.strip() in ("all", "none"):
        return None if written.strip() == "all" else []
    return parse_heads(written, max(index.layers) + 1, index.heads)


def _drawn(loaded: LoadedModel, count: int, seed: int) -> list[tuple[int, int]]:
    """So many neurons of every layer, drawn by the seed."""
    import numpy as np

    draw, config, found = np.random.default_rng(seed), loaded.config, list[tuple[int, int]]()
    for layer in range(config.num_hidden_layers):
        there = config.neurons_of(layer)
        some = draw.choice(there, min(count, len(there)), replace=False)
        found += [(layer, neuron) for neuron in sorted(some.tolist())]
    return found


def _line(one: HeadProfile) -> str:
    """Where a head rests, and what stands out most where it is active."""
    best = [
        f"{asked} {bar.name} {bar.share:.0%} (chance {bar.chance:.0%})" for asked, bar in one.distinctive_groups[:3]
    ]
    rests = f"L{one.layer} H{one.head}: at [CLS] or [SEP] from {one.sink_share:.0%}"
    return f"{rests}; where most active: {', '.join(best) or 'nothing above chance'}"
