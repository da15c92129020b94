"""The command that profiles heads, tokens and neurons over an index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.help import INPUT
from viz_app.cli.shared import input_file, option, output_file, output_folder

if TYPE_CHECKING:
    from bert_core.loading import LoadedModel
    from bert_core.studies.index_reader import Index
    from bert_core.studies.profiles import HeadProfile

ENDINGS = (".json", ".json.gz", ".csv", ".parquet")
MAX_PRINTED = 8  # heads


def profile(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="A folder that `headlight index` made.")],
    out: Annotated[
        Path, output_file("Output file: .json or .json.gz, which the page Profiles opens; .csv or .parquet.")
    ],
    heads: Annotated[str, option("Heads as layer.head, such as 3.8,4.*; all, or none.")] = "all",
    tokens: Annotated[
        str, option("Also profile these tokens of the vocabulary, separated by spaces: 'bank ##ing'.")
    ] = "",
    frequent: Annotated[int, option("Also profile this number of the most frequent tokens.", min=0)] = 0,
    neurons: Annotated[str, option("Also profile these neurons: layer.neuron, such as 3.120,4.7-19.")] = "",
    random_neurons: Annotated[
        int, option("Also profile this number of random neurons of each layer.", "--drawn", min=0)
    ] = 0,
    examples: Annotated[int, option("Number of example sentences from each decile.", "--each", min=1, max=100)] = 3,
    seed: Annotated[int, option("Random seed of examples and neurons.", min=0)] = 0,
    pages: Annotated[Path | None, output_folder("Folder for an HTML page of each profile.")] = None,
    table: Annotated[Path | None, input_file("A table of `headlight heads` with the ablation of each head.")] = None,
    table_source: Annotated[
        str, option("Text of that table and its licence, shown with it.", group=INPUT, metavar="TEXT")
    ] = "",
    source: Annotated[
        str, option("Source of the corpus and its licence, shown with the sentences.", group=INPUT, metavar="TEXT")
    ] = "",
    device: shared.Device = "auto",
) -> None:
    """Profile heads, tokens and neurons over a corpus.

    Each profile is compared with a random baseline. Heads: attended tokens, example sentences, similar heads, and
    ablation. Tokens: positions, and similarity of their hidden states. Neurons: the tokens with the largest
    activations.
    """
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
    shared.check_output(out, index)
    if pages is not None and pages.resolve() == index.resolve():
        raise Refused(f"--pages is the index, {str(pages)!r}: name another folder")
    corpus = open_index(index)
    options: dict[str, Any] = {"examples": examples, "seed": seed, "report": shared.ProgressPrinter()}
    head_table = None if table is None else read_table(table.read_bytes(), table.name)
    profiles = head_profiles(
        corpus, _parse_heads(heads, corpus), **options, source=source, table=head_table, table_source=table_source
    )
    if table is not None and head_table is not None and not head_table.weights:
        shared.note(
            f"{table.name} does not say of which weights it is, as tables of version 0.2: its name and the number of "
            "heads fit the index"
        )
    if frequent:
        profiles = replace(profiles, tokens=token_profiles(corpus, max_pieces=frequent, **options))
    profiled = {token.piece for token in profiles.tokens}
    if pieces := [piece for piece in tokens.split() if piece not in profiled]:
        profiles = replace(profiles, tokens=(*profiles.tokens, *token_profiles(corpus, pieces, **options)))
    if neurons or random_neurons:
        loaded = shared.load(corpus.model, device)
        pairs = shared.parse_neurons(neurons, loaded.config.intermediate_size) if neurons else []
        pairs += _random_neurons(loaded, random_neurons, seed)
        profiles = replace(profiles, neurons=neuron_profiles(corpus, loaded, pairs, **options))
    if not profiles.all_profiles:
        raise Refused("nothing was asked for: name --heads, --tokens, --frequent, --neurons or --drawn")
    if out.suffix.lower() in (".json", ".gz"):
        write_profiles(profiles, out)
    else:
        write_columns(profile_columns(profiles.all_profiles), out)
    if pages is not None:
        pages.mkdir(parents=True, exist_ok=True)
        for entry in profiles.all_profiles:
            shared.write_file(pages / f"{file_name(profiles, entry)}.html", profile_page(profiles, entry))
    for head in profiles.heads[:MAX_PRINTED]:
        typer.echo(_summary(head))
    groups = {"heads": profiles.heads, "tokens": profiles.tokens, "neurons": profiles.neurons}
    counts = ", ".join(f"{len(entries)} {name}" for name, entries in groups.items() if entries)
    typer.echo(f"{out}: {counts} over {profiles.all_profiles[0].tokens:,} tokens")


def _parse_heads(text: str, index: Index) -> list[tuple[int, int]] | None:
    """Return the (layer, head) pairs of `3.8,4.*`; None for "all". Raises Refused for another form."""
    if text.strip() in ("all", "none"):
        return None if text.strip() == "all" else []
    return shared.parse_heads(text, index.heads)


def _random_neurons(loaded: LoadedModel, count: int, seed: int) -> list[tuple[int, int]]:
    """Return (layer, neuron) pairs, `count` random neurons of each layer."""
    import numpy as np

    rng, config, pairs = np.random.default_rng(seed), loaded.config, list[tuple[int, int]]()
    for layer in range(config.num_hidden_layers):
        neurons = config.neurons_of(layer)
        sample = rng.choice(neurons, min(count, len(neurons)), replace=False)
        pairs += [(layer, neuron) for neuron in sorted(sample.tolist())]
    return pairs


def _summary(head: HeadProfile) -> str:
    """Return a line about a head: its attention to [CLS] and [SEP], and the groups that exceed chance most."""
    groups = ", ".join(
        f"{kind} {group.name} {group.share:.0%} (chance {group.chance:.0%})"
        for kind, group in head.distinctive_groups[:3]
    )
    sinks = f"L{head.layer} H{head.head}: strongest attention to [CLS] or [SEP] for {head.sink_share:.0%}"
    return f"{sinks}; where most active: {groups or 'nothing above chance'}"
