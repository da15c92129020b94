"""Commands that remove heads, neurons or layers from a model, and measure the effect."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.help import OUTPUT
from viz_app.cli.shared import input_file, option, output_file

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import Batch


def prune(
    out: Annotated[Path, option("The new model: a folder or a .zip file.", group=OUTPUT, metavar="PATH")],
    heads: Annotated[str, option("Heads to remove: layer.head from 0, such as 0.3,2.11; 4.* is a layer.")] = "",
    neurons: Annotated[
        str, option("Neurons to remove: layer.neuron from 0, such as 0.3,2.100-199; 4.* is a layer.")
    ] = "",
    layers: Annotated[str, option("Layers to remove, such as 4,5.")] = "",
    plan: Annotated[Path | None, input_file("A plan file of `headlight prune-curve`.")] = None,
    share: Annotated[float, option("Share of the plan to carry out.", min=0.0, max=1.0)] = 0.3,
    full_shape: Annotated[
        bool,
        option("Keep the original shapes, filled with zeros, for other libraries.", "--full-shape", group=OUTPUT),
    ] = False,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    device: shared.Device = "cpu",
) -> None:
    """Write a model without some heads, neurons or layers.

    The original model is not changed.
    """
    import bert_core
    from bert_core.pruning import prune_parts
    from bert_core.run.losses import existing_parts
    from bert_core.studies.curve import read_plan

    if bool(heads or neurons or layers) == (plan is not None):
        raise Refused(
            "say which heads, neurons or layers: either --heads, as in 0.3,2.11, --neurons and --layers, or --plan and "
            "--share"
        )
    loaded = shared.load(model, device)
    config = loaded.config
    if plan is not None:
        pruning_plan = read_plan(plan, loaded)
        smaller = prune_parts(loaded, pruning_plan.what, pruning_plan.first(share))
        part_kinds = [pruning_plan.what]
    else:
        smaller = bert_core.pruned(
            loaded,
            shared.parse_heads(heads, config.num_attention_heads) if heads else [],
            neurons=shared.parse_neurons(neurons, config.intermediate_size) if neurons else [],
            layers=_parse_layers(layers) if layers else [],
        )
        part_kinds = [kind for kind, text in (("heads", heads), ("neurons", neurons), ("layers", layers)) if text]
    bert_core.save(bert_core.zero_filled(smaller) if full_shape else smaller, out)
    masks = {kind: existing_parts(smaller, kind) for kind in part_kinds}
    counts = ", ".join(f"{mask.sum():,} of {mask.size:,} {kind}" for kind, mask in masks.items())
    before, after = (
        sum(parameter.numel() for parameter in version.model.parameters()) for version in (loaded, smaller)
    )
    typer.echo(f"{counts} and {after:,} of {before:,} parameters are left: {out}")


def _parse_layers(text: str) -> list[int]:
    """Return the numbers of `4,5`. Raises Refused for another form; the model checks whether the layers exist."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise Refused(f"--layers is {text!r}: write numbers with commas, as in 4,5") from error


def prune_curve(
    corpus: shared.TextFile,
    out: Annotated[Path, output_file("A CSV file; points that it already contains are not computed again.")],
    part_kind: Annotated[str, option("Parts to prune: heads, neurons or layers.", "--what")] = "heads",
    orders: Annotated[
        str | None,
        option(
            "importance, importance-in-layer, ablation, ablation-mean, ablation-resample, iterative, random: some "
            "of them, with commas; neurons have no ablation, layers ablation, iterative and random. If left out: "
            "importance,random, of layers ablation,random."
        ),
    ] = None,
    reference: Annotated[
        Path | None, input_file("Texts for ablation-mean and ablation-resample, one per line.")
    ] = None,
    points: Annotated[int, option("Number of points of the curve.", min=1)] = 10,
    examples: Annotated[
        int, option("Number of examples for the evaluation, and of others for the order.", min=1)
    ] = 256,
    length: Annotated[int, option("Number of tokens of each example.", min=5)] = 64,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    column: shared.TextColumn = None,
    device: shared.Device = "auto",
) -> None:
    """Measure loss, size and speed as a model is pruned.

    The curve has loss, accuracies, size and speed, in several orders of pruning. Every point is a model that was really
    pruned. Run the same command again to resume. Each order is saved next to the CSV as a plan for `headlight prune
    --plan`.
    """
    from bert_core.analysis.pruning import removable_head_count
    from bert_core.run.losses import existing_parts
    from bert_core.run.plans import ORDERS_BY_PART, check_orders
    from bert_core.studies.curve import existing_points, pruning_curve, read_curve
    from bert_core.studies.documents import check_documents

    shared.check_output(out, corpus, reference)
    check_orders(part_kind, [])
    known_orders = ORDERS_BY_PART[part_kind]
    order_names = [known_orders[0], "random"] if orders is None else list(shared.parse_names(orders))
    if not order_names:
        raise Refused(f"--orders is {orders!r}: some of {', '.join(known_orders)}")
    loaded = shared.load(model, device)
    check_documents(corpus, column)
    example_columns = {"text": corpus.name, "examples": str(examples), "length": str(length)}
    existing_points(loaded, out, order_names, example_columns, part_kind=part_kind)  # reports errors before any work
    reference_texts = () if reference is None else shared.first_texts(reference)
    part_count, printer = int(existing_parts(loaded, part_kind).sum()), shared.ProgressPrinter()

    def report(share: float | None, message: str = "") -> None:
        if message.startswith("finding"):
            shared.note(message)
        else:
            printer(share, message)

    curve_points = pruning_curve(
        loaded,
        *_examples(loaded, corpus, column, examples, length),
        out,
        part_kind=part_kind,
        orders=order_names,
        steps=points,
        reference=[*map(loaded.tokenizer.encode, reference_texts)],
        example_columns=example_columns,
        estimation_source=f"{examples} examples of {length} tokens of {_name_and_size(corpus)}",
        reference_name="" if reference is None else _name_and_size(reference),
        report=report,
    )
    for point in curve_points:
        shared.note(
            f"{point.order}: {point.removed:,} of {part_count:,} {part_kind} removed, loss {point.loss:.3f}, "
            f"MLM {point.mlm:.1%}"
        )
    curve = read_curve(out)
    for order in dict.fromkeys(point.order for point in curve):
        if order.partition(" ")[0] in order_names:
            count = removable_head_count(curve, order)
            typer.echo(
                f"{order}: {count:,} of {part_count:,} {part_kind} can be removed before the loss rises by more than 1%"
            )
    typer.echo(str(out))


def _examples(
    loaded: LoadedModel, corpus: Path, column: str | None, count: int, length: int
) -> tuple[list[Batch], list[Batch]]:
    """Return examples for the estimates, and other examples of the same text for the evaluation."""
    from bert_core.training.data import Corpus, ExampleMaker
    from bert_core.training.pretrain import EVALUATION_MASKING

    if length > loaded.config.max_position_embeddings:
        raise Refused(f"--length is {length}: {loaded.name} reads {loaded.config.max_position_embeddings} tokens")
    with tempfile.TemporaryDirectory() as cache:
        text = Corpus.prepare(corpus, loaded.tokenizer, Path(cache), shared.note_progress, column=column)
        maker = ExampleMaker(text, loaded.tokenizer, EVALUATION_MASKING, predict_order=loaded.predicts_order)
        return maker.examples(count, length, 0), maker.examples(count, length, 1)


def _name_and_size(path: Path) -> str:
    """Return the name and size of a file, which distinguish it from another one of the same name."""
    return f"{path.name} ({path.stat().st_size:,} bytes)"
