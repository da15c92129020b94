"""The command that ranks the heads by their attention weight from one token of a text to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viz_app.cli import shared
from viz_app.cli.help import INPUT, OUTPUT
from viz_app.cli.shared import input_folder, option, output_file
from viz_app.cli.tables import print_table, write_csv

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import HeadSweep
    from bert_core.studies.index_reader import Index
    from bert_core.studies.search import PairCounts


def find_heads(
    text: Annotated[str, typer.Argument(help="A text.")],
    query: Annotated[
        str,
        option(
            "The word that attends, or its position; where there are several, as in 'the at 7'.",
            "--from",
            metavar="WORD",
        ),
    ],
    key: Annotated[str, option("The word that it attends to, or its position.", "--to", metavar="WORD")],
    pair: Annotated[str | None, option("A second text.", group=INPUT, metavar="TEXT")] = None,
    mask: Annotated[
        list[int] | None, option("Mask this word, from zero; may be given again.", group=INPUT, min=0)
    ] = None,
    target: Annotated[
        str | None,
        option(f"Target of the effect: {shared.TARGET_FORMS}, or loss, all words of --mask. Default: the top guess."),
    ] = None,
    index: Annotated[
        Path | None, input_folder("A corpus index of the model: how often each head attends in the same way there.")
    ] = None,
    top: Annotated[int, option("Heads that are printed.", group=OUTPUT, min=1)] = 10,
    out: Annotated[Path | None, output_file("All heads as .csv.")] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    device: shared.Device = "auto",
) -> None:
    """Find the heads that attend from one word to another.

    They are ranked by attention weight. Each has its percentile among all pairs of the text, and the effect of its
    ablation on the target, if there is one.
    """
    shared.check_output(out, kinds=("csv",))
    import bert_core
    from bert_core.analysis.heads import PairHead
    from bert_core.run.target_grammar import parse_target
    from bert_core.studies.index_reader import open_index
    from bert_core.studies.search import PairCounts, count_pairs, pair_offset

    corpus = None if index is None else open_index(index)
    loaded = shared.load(model, device)
    if corpus is not None:
        corpus.check_model(loaded)
    original = shared.encode(loaded, text, pair)
    encoding, model_target = loaded.tokenizer.mask_words(original, mask or ()), None
    if target is not None:
        model_target, target_encoding = parse_target(loaded, encoding, target, original=original, label="--target")
        if target_encoding is not encoding:  # one text of a pair, encoded alone
            original, encoding = bert_core.read_sentence(loaded, target_encoding.text), target_encoding
    positions = shared.parse_token(encoding, query, "--from"), shared.parse_token(encoding, key, "--to")
    shared.check_maps(loaded, encoding)
    run = bert_core.capture(loaded, encoding, top_k=1)
    if target is None:
        model_target = shared.suggested_target(loaded, run, original)
    all_heads = bert_core.find_heads(run, *positions)
    query_label, key_label = (f"{encoding.labels[position]} ({position})" for position in positions)
    head_count = len(all_heads)
    row_count = min(top, head_count)
    lines = [f"attention from {query_label} to {key_label}: {row_count} of {head_count} heads, largest weight first"]
    heads = all_heads[:row_count] if out is None else all_heads
    columns: dict[str, list[Any]] = {name: [getattr(head, name) for head in heads] for name in PairHead._fields}
    if model_target is not None:
        sweep = bert_core.ablate_heads(loaded, encoding, target=model_target, report=shared.ProgressPrinter())
        assert sweep.effect is not None  # there is a target
        columns["effect"] = [float(sweep.effect[head.layer, head.head]) for head in heads]
        lines.append(_target_line(loaded, sweep))
    if corpus is not None:
        query_piece, key_piece = (original.tokens[position] for position in positions)
        offset = pair_offset(original, *positions)
        counts = count_pairs(corpus, [(head.layer, head.head) for head in heads], query_piece, key_piece, offset)
        columns |= {
            name: [None if entry is None else getattr(entry, name) for entry in counts] for name in PairCounts._fields
        }
        lines.append(_corpus_line(corpus, query_piece, key_piece, counts))
    if out is not None:
        write_csv(list(columns), zip(*columns.values(), strict=True), out)
    typer.echo("\n".join(lines))
    _print_heads({name: values[:row_count] for name, values in columns.items()})


def _target_line(loaded: LoadedModel, sweep: HeadSweep) -> str:
    """Return a line with the target, its value with all heads, and the unit of the effect."""
    from bert_core.task_heads import head_of

    assert sweep.target is not None and sweep.base_value is not None  # the sweep has a target
    kind = sweep.target.target_kind
    title = kind.title.format(**head_of(sweep.target).template_values(loaded, sweep.encoding, sweep.target))
    return f"target {title}, {kind.format_value(sweep.base_value, '{:.3g}'.format)}; effect in {kind.unit}"


def _corpus_line(corpus: Index, query: str, key: str, counts: Sequence[PairCounts | None]) -> str:
    """Return a line with how often two tokens occur together in an index. counts: those of the heads."""
    stored = next((entry for entry in counts if entry is not None), None)
    if stored is None:
        layers = ", ".join(map(str, corpus.layers))
        return f"{corpus.folder} holds none of these heads: it has those of layers {layers}"
    occurrences = f"occurrences of {query} in sentences with {key}: {stored.pairs:,}"
    return f"{corpus.folder}: {occurrences}; typed tokens: {stored.tokens:,}"


def _print_heads(columns: Mapping[str, Sequence[Any]]) -> None:
    """Print the values of heads by the names of their columns as a table."""
    formats = {"head": "", "weight": ".4f", "percentile": ".1f", "effect": "+.4f"}
    heads = [f"L{layer} H{head}" for layer, head in zip(columns["layer"], columns["head"], strict=True)]
    table = {name: values for name, values in {**columns, "head": heads}.items() if name in formats}
    if "pairs" in columns:
        formats |= {"strongest/pairs": ">", "same_offset/tokens": ".1%"}
        table["strongest/pairs"] = [
            None if pairs is None else f"{strongest:,}/{pairs:,}"
            for strongest, pairs in zip(columns["strongest"], columns["pairs"], strict=True)
        ]
        table["same_offset/tokens"] = [
            None if tokens is None else count / max(1, tokens)
            for count, tokens in zip(columns["same_offset"], columns["tokens"], strict=True)
        ]
    print_table({name: formats[name] for name in table}, zip(*table.values(), strict=True))
