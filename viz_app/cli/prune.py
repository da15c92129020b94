"""Commands that take heads, neurons or layers out of a model, and show what that does to it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import (
    Device,
    ModelName,
    Notes,
    TextColumn,
    TextFile,
    check_place,
    first_texts,
    load,
    note,
    note_each,
    parse_heads,
    parse_neurons,
)

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import Batch


def prune(
    out: Annotated[Path, typer.Option(help="The new model: a folder, or a name that ends in .zip.")],
    heads: Annotated[
        str, typer.Option(help="Which to take out, as in 0.3,2.11: layer.head from zero, 4.* a layer.")
    ] = "",
    neurons: Annotated[
        str, typer.Option(help="Neurons to take out, as in 0.3,2.100-199: layer.neuron from zero, 4.* a layer's.")
    ] = "",
    layers: Annotated[str, typer.Option(help="Whole layers to take out, as in 4,5.")] = "",
    plan: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A plan file, as prune-curve writes them.")
    ] = None,
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="How much of the plan to carry out.")] = 0.3,
    full_shape: Annotated[
        bool,
        typer.Option("--full-shape", help="Zeros where heads and neurons were, for programs that know no pruning."),
    ] = False,
    model: ModelName = "headlight-mini",
    device: Device = "cpu",
) -> None:
    """A new, smaller model without some heads, neurons or layers; the old one stays as it is."""
    import bert_core
    from bert_core.pruning import prune_parts
    from bert_core.run.losses import existing_parts
    from bert_core.studies.curve import read_plan

    if bool(heads or neurons or layers) == (plan is not None):
        raise Refused(
            "say which heads, neurons or layers: either --heads, as in 0.3,2.11, --neurons and --layers, or --plan and "
            "--share"
        )
    loaded = load(model, device)
    config = loaded.config
    if plan is not None:
        carried_out = read_plan(plan, loaded)
        smaller = prune_parts(loaded, carried_out.what, carried_out.first(share))
        changed = [carried_out.what]
    else:
        smaller = bert_core.pruned(
            loaded,
            parse_heads(heads, config.num_hidden_layers, config.num_attention_heads) if heads else [],
            neurons=parse_neurons(neurons, config.intermediate_size) if neurons else [],
            layers=_parse_layers(layers) if layers else [],
        )
        given = {"heads": heads, "neurons": neurons, "layers": layers}
        changed = [what for what, written in given.items() if written]
    bert_core.save(bert_core.zero_filled(smaller) if full_shape else smaller, out)
    counts = (
        f"{existing_parts(smaller, what).sum():,} of {existing_parts(smaller, what).size:,} {what}, "
        for what in changed
    )
    before, after = (sum(p.numel() for p in one.model.parameters()) for one in (loaded, smaller))
    said = "".join(counts).removesuffix(", ")
    typer.echo(f"{said} and {after:,} of {before:,} parameters are left: {out}")


def _parse_layers(written: str) -> list[int]:
    """`4,5` as numbers. Raises Refused for anything else; whether a layer exists, the model says."""
    try:
        return [int(part) for part in written.split(",")]
    except ValueError as error:
        raise Refused(f"--layers is {written!r}: write numbers with commas, as in 4,5") from error


def prune_curve(
    corpus: TextFile,
    out: Annotated[Path, typer.Option(dir_okay=False, help="A CSV file; what it has already is not computed again.")],
    what: Annotated[str, typer.Option(help="What goes: heads, neurons or layers.")] = "heads",
    orders: Annotated[
        str | None,
        typer.Option(
            help="importance, importance-in-layer, ablation, ablation-mean, ablation-resample, iterative, random: some "
            "of them, with commas; neurons have no ablation, layers ablation, iterative and random. If left out: "
            "importance,random, of layers ablation,random."
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Texts for ablation-mean and -resample, a line each."),
    ] = None,
    points: Annotated[int, typer.Option(min=1, help="Into how many steps they are divided.")] = 10,
    examples: Annotated[int, typer.Option(min=1, help="Examples to ask, and as many others to estimate on.")] = 256,
    length: Annotated[int, typer.Option(min=5, help="Tokens of each.")] = 64,
    model: ModelName = "headlight-mini",
    column: TextColumn = None,
    device: Device = "auto",
) -> None:
    """Loss, accuracies, size and speed as more and more heads go, or neurons or layers, beside five random orders.

    Every point is a model that was really pruned. The same command again goes on where it stopped. Each order is kept
    beside the CSV as a plan that `headlight prune --plan` takes.
    """
    from bert_core.analysis.pruning import removable_head_count
    from bert_core.run.losses import existing_parts
    from bert_core.run.plans import ORDERS_BY_PART, check_orders
    from bert_core.studies.curve import existing_points, pruning_curve, read_curve
    from bert_core.studies.documents import check_documents

    check_place(out, corpus, *([] if reference is None else [reference]))
    check_orders(what, [])
    offered = ORDERS_BY_PART[what]
    chosen = [offered[0], "random"] if orders is None else [one.strip() for one in orders.split(",") if one.strip()]
    if not chosen:
        raise Refused(f"--orders is {orders!r}: some of {', '.join(offered)}")
    loaded = load(model, device)
    check_documents(corpus, column)
    made_on = {"text": corpus.name, "examples": str(examples), "length": str(length)}
    existing_points(loaded, out, chosen, made_on, part_kind=what)  # what is wrong is said before anything is read
    longest = loaded.config.max_position_embeddings
    others = [] if reference is None else [
        loaded.tokenizer.encode(text, max_length=longest) for text in first_texts(reference)
    ]  # fmt: skip
    there, notes = int(existing_parts(loaded, what).sum()), Notes()

    def report(done: float | None, what: str = "") -> None:
        if what.startswith("finding"):
            note(what)
        else:
            notes(done, what)

    for point in pruning_curve(
        loaded, *_examples(loaded, corpus, column, examples, length), out, part_kind=what, orders=chosen, steps=points,
        reference=others, example_columns=made_on,
        estimation_source=f"{examples} examples of {length} tokens of {_sized(corpus)}",
        reference_name="" if reference is None else _sized(reference), report=report,
    ):  # fmt: skip
        note(f"{point.order}: {point.removed:,} of {there:,} {what} gone, loss {point.loss:.3f}, MLM {point.mlm:.1%}")
    found = read_curve(out)
    for order in dict.fromkeys(point.order for point in found):
        if order.partition(" ")[0] in chosen:
            fine = removable_head_count(found, order)
            typer.echo(f"{order}: {fine:,} of {there:,} {what} can go before the loss rises by more than 1%")
    typer.echo(str(out))


def _examples(
    loaded: LoadedModel, corpus: Path, column: str | None, count: int, length: int
) -> tuple[list[Batch], list[Batch]]:
    """Examples to estimate on, and others to ask, of the same text."""
    from bert_core.training.data import Corpus, ExampleMaker
    from bert_core.training.pretrain import EVALUATION_MASKING

    if length > loaded.config.max_position_embeddings:
        raise Refused(f"--length is {length}: {loaded.name} reads {loaded.config.max_position_embeddings} tokens")
    with tempfile.TemporaryDirectory() as cache:
        maker = ExampleMaker(
            Corpus.prepare(corpus, loaded.tokenizer, Path(cache), note_each, column=column), loaded.tokenizer,
            EVALUATION_MASKING, predict_order=loaded.predicts_order,
        )  # fmt: skip
        return maker.examples(count, length, 0), maker.examples(count, length, 1)


def _sized(path: Path) -> str:
    """A file by its name and size: another of the same name is told apart."""
    return f"{path.name} ({path.stat().st_size:,} bytes)"
