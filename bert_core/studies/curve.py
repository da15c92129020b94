"""Pruning curves: a model measured at increasing numbers of removed parts, in a table that grows, and their plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from bert_core import checkpoint
from bert_core.deprecation import renamed_parameters
from bert_core.edits import check_unedited
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, progress_of_part
from bert_core.records import Batch, CurvePoint, PruningPlan
from bert_core.refused import Refused, require_instances, require_int, short_repr, validate_arguments
from bert_core.run import plans
from bert_core.run.costs import curve_points
from bert_core.run.losses import check_has_parts
from bert_core.studies.runner import (
    STATE_VERSION,
    check_same_study,
    exclusive_lock,
    read_json,
    settings_path,
    write_settings,
)
from bert_core.studies.tables import GrowingTable
from bert_core.tokenizer import Encoding

TABLE_KIND = "pruning curve"  # in error messages
MAX_STEPS = 10_000
_FIGURES = tuple(entry.name for entry in fields(CurvePoint))


@renamed_parameters(
    estimated="estimation_examples",
    asked="test_examples",
    what="part_kind",
    made_on="example_columns",
    found_on="estimation_source",
    reference_is="reference_name",
)
@validate_arguments
def pruning_curve(
    loaded: LoadedModel,
    estimation_examples: Sequence[Batch],
    test_examples: Sequence[Batch],
    table: Path,
    *,
    part_kind: str = "heads",
    orders: Sequence[str] | None = None,
    steps: int = 10,
    reference: Sequence[Encoding] = (),
    example_columns: Mapping[str, str] | None = None,
    estimation_source: str = "",
    reference_name: str = "",
    report: Progress = ignore_progress,
) -> Iterator[CurvePoint]:
    """Measure loss, accuracies, size and speed of models pruned step by step along several orders of their parts.

    Each new point is written to the table before it is yielded, so the same call resumes after an interruption.
    `read_curve` returns all points of the table.

    estimation_examples: examples from which the orders are estimated.
    test_examples: examples on which the pruned models are tested.
    table: CSV file of the points, which is resumed if it exists. The plan of each order is saved next to it.
    part_kind: "heads", "neurons" or "layers".
    orders: names from `run.plans.ORDERS_BY_PART`; None means the first of them and "random", which stands for several
        random orders.
    steps: number of steps between the complete model and the removal of all parts, 1 to `MAX_STEPS`.
    reference: texts for the orders "ablation-mean" and "ablation-resample".
    example_columns: columns of the table that describe the examples; None means one column with their digest.
    estimation_source: description of the texts of `estimation_examples`, which is saved in the plans.
    reference_name: description of the reference texts, which is saved in the plans.
    report: receives the progress, see `Progress`.
    Yields the points that the table did not hold before.
    Raises Refused for an edited model, an unknown order, or a model without such parts. Raises Refused for a table of
    another run, a table that another run is writing to, or a saved plan of other parts or another source.
    """
    check_unedited(loaded.edits, "a pruning curve")
    estimation_examples, test_examples = (
        require_instances("estimation_examples", estimation_examples, Batch),
        require_instances("test_examples", test_examples, Batch),
    )
    steps, reference = require_int("steps", steps, 1, MAX_STEPS), require_instances("reference", reference, Encoding)
    plans.check_orders(part_kind, [])
    orders = (
        (plans.ORDERS_BY_PART[part_kind][0], "random") if orders is None else require_instances("orders", orders, str)
    )
    if table.is_dir():
        raise Refused(f"{table} is a folder: give the name of a table in it")
    if not orders:
        raise Refused(
            f"there is no order to prune by: name at least one of {', '.join(plans.ORDERS_BY_PART[part_kind])}"
        )
    if example_columns is not None and not isinstance(example_columns, Mapping):
        raise Refused(
            f"example_columns is {short_repr(example_columns)}: it must be a mapping of column names to texts"
        )
    examples = _fingerprint(estimation_examples, test_examples)
    example_columns = {"examples": examples} if example_columns is None else example_columns
    identity = {"version": STATE_VERSION, "weights": fingerprint(loaded), "examples": examples, "what": part_kind}
    with exclusive_lock(table):
        previous_points = existing_points(loaded, table, orders, example_columns, part_kind=part_kind)
        settings = settings_path(table)
        if settings.is_file() or previous_points:
            check_same_study(read_json(settings) if settings.is_file() else {}, identity, table)
        fixed = _fixed_columns(loaded, part_kind, example_columns)
        growing_table = GrowingTable(table, (*fixed, *_FIGURES), TABLE_KIND)
        methods = [
            (name, seed) for name in orders for seed in (range(plans.RANDOM_ORDERS) if name == "random" else (0,))
        ]
        found_plans = []
        for number, (name, seed) in enumerate(methods):
            source = "" if name == "random" else estimation_source
            if name in ("ablation-mean", "ablation-resample") and reference_name:
                source += f", with {reference_name} in the place of a head"  # plans of earlier versions hold this text
            path, plan_report = plan_path(table, name, seed), progress_of_part(report, number, 2 * len(methods))
            if path.is_file():
                plan = read_plan(path, loaded)
                if plan.what != part_kind:
                    raise Refused(
                        f"{path} is a plan of {plan.what}, not of {part_kind}: choose another name for the table"
                    )
                if plan.found_on not in ("", source):  # plans of earlier versions have an empty source
                    raise Refused(
                        f"{path} was found on {plan.found_on}, not on {source}: choose another name for the table"
                    )
            else:
                plan_report(0, f"finding the order by {name if name != 'random' else f'{name}-{seed}'}")
                plan = plans.propose_plan(
                    loaded,
                    estimation_examples,
                    name,
                    part_kind=part_kind,
                    seed=seed,
                    reference=reference,
                    report=plan_report,
                )
                plan = replace(plan, found_on=source)
                if not settings.is_file():  # the settings say which examples the saved plans belong to
                    write_settings(table, identity)
                _write_plan(path, plan)
            found_plans.append(plan)
        parts = len(found_plans[0].order)
        removed = sorted({round(parts * step / steps) for step in range(steps + 1)})
        growing_table.replace_rows([*fixed.values(), *astuple(point)] for point in previous_points)
        order_by_method = {plan.method: plan.order for plan in found_plans}
        points = curve_points(
            loaded,
            test_examples,
            order_by_method,
            removed,
            part_kind=part_kind,
            previous_points=previous_points,
            report=progress_of_part(report, 1, 2),
        )
        for point in points:
            if not settings.is_file():
                write_settings(table, identity)
            growing_table.append_rows([[*fixed.values(), *astuple(point)]])
            yield point


def existing_points(
    loaded: LoadedModel,
    table: Path,
    orders: Sequence[str],
    example_columns: Mapping[str, str],
    *,
    part_kind: str = "heads",
) -> list[CurvePoint]:
    """Return the points from which `pruning_curve` resumes; an empty list without a table.

    orders, example_columns, part_kind: as for `pruning_curve`.
    Raises Refused for an unknown order, a model without such parts, or a table of another run.
    """
    plans.check_orders(part_kind, orders)
    check_has_parts(loaded, part_kind)
    fixed = _fixed_columns(loaded, part_kind, example_columns)
    points = []
    for line in GrowingTable(table, (*fixed, *_FIGURES), TABLE_KIND).read_rows():
        check_same_study(dict(zip(fixed, line, strict=False)), fixed, table)
        points += _point(line)
    return points


def _fixed_columns(loaded: LoadedModel, part_kind: str, example_columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that are the same for all points of a table; a table of heads has no column for its parts."""
    parts = {} if part_kind == "heads" else {"what": part_kind}
    return {"model": Path(loaded.name).name, **parts, **example_columns}


@validate_arguments
def read_curve(table: Path) -> list[CurvePoint]:
    """Read all points of a table of `pruning_curve`. Raises Refused for a missing file or another kind of file."""
    if not table.is_file():
        raise Refused(f"there is no file {table}: give a table of {TABLE_KIND} points")
    with table.open(encoding="utf-8", errors="replace") as file:
        header = tuple(file.readline().strip().split(","))
    if header[-len(_FIGURES) :] != _FIGURES:
        raise Refused(f"{table} holds no {TABLE_KIND}")
    return [point for line in GrowingTable(table, header, TABLE_KIND).read_rows() for point in _point(line)]


def plan_path(table: Path, method: str, seed: int = 0) -> Path:
    """Return the file next to a table that holds the plan of an order; `seed` numbers the random orders."""
    return table.with_name(f"{table.stem}.{f'{method}-{seed}' if method == 'random' else method}.json")


def read_plan(path: Path, loaded: LoadedModel) -> PruningPlan:
    """Read a plan from a file. Raises Refused for a file that is not a plan, or a plan for another model."""
    try:
        plan = PruningPlan.from_json(path.read_text(encoding="utf-8", errors="replace"))
        config = loaded.config
        plan.check(loaded.name, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size)
    except Refused as error:
        raise Refused(f"{path}: {error}") from error
    return plan


def _write_plan(path: Path, plan: PruningPlan) -> None:
    checkpoint.write_atomically(path, plan.to_json())


def _point(line: Sequence[str]) -> list[CurvePoint]:
    """Return a list with the point of a line of the table; an empty list for a line that cannot be read."""
    order, removed, *figures = line[-len(_FIGURES) :]
    try:
        values: dict[str, Any] = dict(zip(_FIGURES[2:], map(float, figures), strict=True))
        return [CurvePoint(order, int(removed), **{**values, "parameters": int(values["parameters"])})]
    except (ValueError, OverflowError):
        return []


def _fingerprint(*parts: Sequence[Batch]) -> str:
    """Return a digest of the examples, in 12 hexadecimal digits."""
    digest = sha256()
    for batch in (batch for part in parts for batch in part):
        digest.update(batch.input_ids.tobytes() + batch.labels.tobytes() + batch.next_sentence_label.tobytes())
    return digest.hexdigest()[:12]
