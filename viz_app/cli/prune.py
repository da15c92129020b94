"""Commands that take heads out of a model, and show what that does to it."""

from __future__ import annotations

import csv
import io
import tempfile
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import (
    Device,
    ModelName,
    Notes,
    TextFile,
    check_place,
    first_texts,
    load,
    note,
    note_each,
    parse_heads,
)

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import Batch, CurvePoint, PruningPlan
    from bert_core.tokenizer import Encoding


def prune(
    out: Annotated[Path, typer.Option(help="The new model: a folder, or a name that ends in .zip.")],
    heads: Annotated[
        str, typer.Option(help="Which to take out, as in 0.3,2.11: layer.head from zero, 4.* a layer.")
    ] = "",
    plan: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A plan file, as prune-curve writes them.")
    ] = None,
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="How much of the plan to carry out.")] = 0.3,
    full_shape: Annotated[
        bool, typer.Option("--full-shape", help="Zeros where heads were, for programs that expect the first shapes.")
    ] = False,
    model: ModelName = "headlight-mini",
    device: Device = "cpu",
) -> None:
    """A new, smaller model without some heads; the old one stays as it is."""
    import bert_core

    if bool(heads) == (plan is not None):
        raise Refused("say which heads: either --heads, as in 0.3,2.11, or --plan and --share")
    loaded = load(model, device)
    layers, count = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
    gone = parse_heads(heads, layers, count) if plan is None else list(_read_plan(plan, loaded).first(share))
    smaller = bert_core.pruned(loaded, gone)
    bert_core.save(bert_core.zero_filled(smaller) if full_shape else smaller, out)
    left = sum(len(smaller.config.heads_of(layer)) for layer in range(layers))
    before, after = (sum(p.numel() for p in one.model.parameters()) for one in (loaded, smaller))
    typer.echo(f"{left} of {layers * count} heads and {after:,} of {before:,} parameters are left: {out}")


def prune_curve(
    corpus: TextFile,
    out: Annotated[Path, typer.Option(dir_okay=False, help="A CSV file; what it has already is not computed again.")],
    orders: Annotated[
        str,
        typer.Option(
            help="importance, importance-in-layer, ablation, ablation-mean, ablation-resample, iterative, "
            "random: some of them, with commas."
        ),
    ] = "importance,random",
    reference: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Texts for ablation-mean and -resample, a line each."),
    ] = None,
    points: Annotated[int, typer.Option(min=1, help="Into how many steps the heads are divided.")] = 10,
    examples: Annotated[int, typer.Option(min=1, help="Examples to ask, and as many others to estimate on.")] = 256,
    length: Annotated[int, typer.Option(min=5, help="Tokens of each.")] = 64,
    model: ModelName = "headlight-mini",
    device: Device = "auto",
) -> None:
    """Loss, accuracies, size and speed as more and more heads go, beside the band of five random orders.

    Every point is a model that was really pruned. The same command again goes on where it stopped. Each order is kept
    beside the CSV as a plan that `headlight prune --plan` takes.
    """
    from bert_core.analysis.pruning import hardly_missed
    from bert_core.run.costs import curve_points
    from bert_core.run.losses import check_has_heads
    from bert_core.run.plans import METHODS, RANDOM_ORDERS

    check_place(out, corpus, *([] if reference is None else [reference]))
    chosen = [name.strip() for name in orders.split(",") if name.strip()]
    if not chosen or (unknown := [name for name in chosen if name not in METHODS]):
        raise Refused(f"--orders is {orders!r}: some of {', '.join(METHODS)}" if not chosen else
                         f"order {unknown[0]!r} is unknown: one of {', '.join(METHODS)}")  # fmt: skip
    loaded = load(model, device)
    check_has_heads(loaded)
    longest = loaded.config.max_position_embeddings
    others = [] if reference is None else [
        loaded.tokenizer.encode(text, max_length=longest) for text in first_texts(reference)
    ]  # fmt: skip
    same = {"model": Path(loaded.name).name, "text": corpus.name, "examples": str(examples), "length": str(length)}
    known = _known_points(out, same)
    estimated, asked = _examples(loaded, corpus, examples, length)
    on = f"{examples} examples of {length} tokens of {_sized(corpus)}"
    plans = [
        _kept_plan(loaded, estimated, name, seed, out, on, reference, others)
        for name in chosen
        for seed in (range(RANDOM_ORDERS) if name == "random" else [0])
    ]
    there = len(plans[0].order)
    removed = sorted({round(there * step / points) for step in range(points + 1)})
    _rewrite(out, same, known)
    found = list(known)
    with open(out, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        wanted = {plan.method: plan.order for plan in plans}
        for point in curve_points(loaded, asked, wanted, removed, known=known):
            writer.writerow([*same.values(), *astuple(point)])
            file.flush()
            note(f"{point.order}: {point.removed} of {there} heads gone, loss {point.loss:.3f}, MLM {point.mlm:.1%}")
            found.append(point)
    for plan in plans:
        fine = hardly_missed(found, plan.method)
        typer.echo(f"{plan.method}: {fine} of {there} heads can go before the loss rises by more than 1%")
    typer.echo(str(out))


def _examples(loaded: LoadedModel, corpus: Path, count: int, length: int) -> tuple[list[Batch], list[Batch]]:
    """Examples to estimate on, and others to ask, of the same text."""
    from bert_core.training.data import Corpus, ExampleMaker
    from bert_core.training.pretrain import EVALUATION_MASKING

    if length > loaded.config.max_position_embeddings:
        raise Refused(f"--length is {length}: {loaded.name} reads {loaded.config.max_position_embeddings} tokens")
    with tempfile.TemporaryDirectory() as cache:
        maker = ExampleMaker(
            Corpus.prepare(corpus, loaded.tokenizer, Path(cache), note_each), loaded.tokenizer, EVALUATION_MASKING
        )
        return maker.examples(count, length, 0), maker.examples(count, length, 1)


def _kept_plan(
    loaded: LoadedModel,
    batches: list[Batch],
    method: str,
    seed: int,
    out: Path,
    on: str,
    reference: Path | None,
    others: list[Encoding],
) -> PruningPlan:
    """The plan of this name beside the CSV file, made and kept there the first time.

    on: what it is found on, in words; reference, others: the file of what stands in for a head, and its texts.
    Raises Refused for a plan that was found on something else.
    """
    from bert_core import checkpoint
    from bert_core.run.plans import propose_plan

    name = f"{method}-{seed}" if method == "random" else method
    path = out.with_name(f"{out.stem}.{name}.json")
    on = "" if method == "random" else on
    if method in ("ablation-mean", "ablation-resample") and reference is not None:
        on += f", with {_sized(reference)} in the place of a head"
    if path.is_file():
        plan = _read_plan(path, loaded)
        if plan.found_on not in ("", on):  # older plans do not say it
            raise Refused(f"{path} was found on {plan.found_on}, not on {on}: choose another name for --out")
        return plan
    note(f"finding the order by {name}")
    plan = propose_plan(loaded, batches, method, seed=seed, reference=others, report=Notes())
    plan = replace(plan, found_on=on)
    checkpoint.write_whole(path, lambda temporary: Path(temporary).write_text(plan.to_json(), encoding="utf-8"))
    return plan


def _sized(path: Path) -> str:
    """A file by its name and size: another of the same name is told apart."""
    return f"{path.name} ({path.stat().st_size:,} bytes)"


def _read_plan(path: Path, loaded: LoadedModel) -> PruningPlan:
    """The plan in a file. Raises Refused if it is none, or one for another model."""
    from bert_core.records import PruningPlan

    try:
        plan = PruningPlan.from_json(path.read_text(encoding="utf-8", errors="replace"))
        plan.check(loaded.name, loaded.config.num_hidden_layers, loaded.config.num_attention_heads)
    except Refused as error:
        raise Refused(f"{path}: {error}") from error
    return plan


def _known_points(out: Path, same: dict[str, str]) -> list[CurvePoint]:
    """The points that a CSV file has already; a line that was cut short is left out.

    Raises Refused if it is of another run, or no such file.
    """
    from bert_core.records import CurvePoint

    if not out.is_file():
        return []
    with open(out, newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.DictReader(file))
        names = [entry.name for entry in fields(CurvePoint)]
    found = []
    for row in rows:
        if set(row) != {*same, *names}:
            raise Refused(f"{out} is there already and holds no pruning curve: choose another name")
        if differs := [name for name in same if row[name] is not None and row[name] != same[name]]:
            raise Refused(
                f"{out} holds a curve with another {differs[0]} ({row[differs[0]]}, not {same[differs[0]]}): "
                "choose another name"
            )
        try:
            values: dict[str, Any] = {name: float(row[name]) for name in names[2:]}
            found.append(
                CurvePoint(
                    order=row["order"], removed=int(row["removed"]), **{**values, "parameters": int(row["parameters"])}
                )
            )
        except (TypeError, ValueError):
            continue
    return found


def _rewrite(out: Path, same: dict[str, str], known: list[CurvePoint]) -> None:
    """The file with its header and the points that are whole; as it was, where the disk takes no more."""
    from bert_core import checkpoint
    from bert_core.records import CurvePoint

    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*same, *(entry.name for entry in fields(CurvePoint))])
    writer.writerows([*same.values(), *astuple(point)] for point in known)
    checkpoint.write_whole(out, lambda temporary: Path(temporary).write_bytes(text.getvalue().encode()))
