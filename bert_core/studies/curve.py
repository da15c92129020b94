"""What is left of a model as more and more of it goes: a table that grows point by point, and its orders as plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from bert_core import checkpoint
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

TABLE_KIND = "pruning curve"
MAX_STEPS = 10_000
_FIGURES = tuple(entry.name for entry in fields(CurvePoint))


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
    found_on: str = "",
    reference_name: str = "",
    report: Progress = ignore_progress,
) -> Iterator[CurvePoint]:
    """Loss, accuracies, size and speed along some orders of parts, each point from a model that was really pruned.

    estimated, asked: examples to find the orders on, and others to test on. table: a CSV file, which is gone on with;
    the order of each name stands beside it, as a plan. what: "heads", "neurons" or "layers". orders: of
    `run.plans.ORDERS_BY_PART`; None: the first of these, and "random", which is a band of several.
    steps: into how many the parts are divided. reference: texts for ablation-mean and -resample.
    made_on: what the examples are, as columns of the table; None: a fingerprint of them. found_on, reference_is: what
    the plans are found on, and what stands in for a head, in words. report: as for `Progress`.
    Yields the points that are new, each when it is in the table: whoever stops has those before, and the same call goes
    on. `read_curve` has all of them.
    Raises Refused for an unknown order, a model without heads, a table of another run or one that another
    run writes to now, or a plan found on something else.
    """
    check_unedited(loaded.edits, "a pruning curve")
    estimation_examples, test_examples = (
        require_instances("estimated", estimation_examples, Batch),
        require_instances("asked", test_examples, Batch),
    )
    steps, reference = require_int("steps", steps, 1, MAX_STEPS), require_instances("reference", reference, Encoding)
    plans.check_orders(part_kind, [])
    orders = (
        (plans.ORDERS_BY_PART[part_kind][0], "random") if orders is None else require_instances("orders", orders, str)
    )
    if table.is_dir():
        raise Refused(f"{table} is a folder: name a table in one")
    if not orders:
        raise Refused(
            f"there is no order to prune by: name at least one of {', '.join(plans.ORDERS_BY_PART[part_kind])}"
        )
    if example_columns is not None and not isinstance(example_columns, Mapping):
        raise Refused(f"made_on is {short_repr(example_columns)}: it must give each column its text")
    examples = _fingerprint(estimation_examples, test_examples)
    example_columns = {"examples": examples} if example_columns is None else example_columns
    identity = {"version": STATE_VERSION, "weights": fingerprint(loaded), "examples": examples, "what": part_kind}
    with exclusive_lock(table):
        known = existing_points(loaded, table, orders, example_columns, part_kind=part_kind)
        place = settings_path(table)
        if place.is_file() or known:
            check_same_study(read_json(place) if place.is_file() else {}, identity, table)
        same = _same(loaded, part_kind, example_columns)
        grows = GrowingTable(table, (*same, *_FIGURES), TABLE_KIND)
        wanted = [
            (name, seed) for name in orders for seed in (range(plans.RANDOM_ORDERS) if name == "random" else (0,))
        ]
        plans_made = []
        for number, (name, seed) in enumerate(wanted):
            on = "" if name == "random" else found_on
            if name in ("ablation-mean", "ablation-resample") and reference_name:
                on += f", with {reference_name} in the place of a head"
            path, told = plan_path(table, name, seed), progress_of_part(report, number, 2 * len(wanted))
            if path.is_file():
                plan = read_plan(path, loaded)
                if plan.what != part_kind:
                    raise Refused(
                        f"{path} is a plan of {plan.what}, not of {part_kind}: choose another name for the table"
                    )
                if plan.found_on not in ("", on):  # older plans do not say it
                    raise Refused(
                        f"{path} was found on {plan.found_on}, not on {on}: choose another name for the table"
                    )
            else:
                told(0, f"finding the order by {name if name != 'random' else f'{name}-{seed}'}")
                plan = plans.propose_plan(
                    loaded, estimation_examples, name, part_kind=part_kind, seed=seed, reference=reference, report=told
                )
                plan = replace(plan, found_on=on)
                if not place.is_file():  # the plans beside a table are of its examples
                    write_settings(table, identity)
                _write_plan(path, plan)
            plans_made.append(plan)
        parts = len(plans_made[0].order)
        removed = sorted({round(parts * step / steps) for step in range(steps + 1)})
        grows.replace_rows([*same.values(), *astuple(point)] for point in known)
        by_name = {plan.method: plan.order for plan in plans_made}
        points = curve_points(
            loaded,
            test_examples,
            by_name,
            removed,
            part_kind=part_kind,
            previous_points=known,
            report=progress_of_part(report, 1, 2),
        )
        for point in points:
            if not place.is_file():
                write_settings(table, identity)
            grows.append_rows([[*same.values(), *astuple(point)]])
            yield point


def existing_points(
    loaded: LoadedModel, table: Path, orders: Sequence[str], made_on: Mapping[str, str], *, part_kind: str = "heads"
) -> list[CurvePoint]:
    """The points from which `pruning_curve` goes on. Raises Refused as it does, before there are examples."""
    plans.check_orders(part_kind, orders)
    check_has_parts(loaded, part_kind)
    same = _same(loaded, part_kind, made_on)
    points = []
    for line in GrowingTable(table, (*same, *_FIGURES), TABLE_KIND).read_rows():
        check_same_study(dict(zip(same, line, strict=False)), same, table)
        points += _point(line)
    return points


def _same(loaded: LoadedModel, what: str, made_on: Mapping[str, str]) -> dict[str, str]:
    """What all points of a table have in common; that they are of heads, no table says."""
    return {"model": Path(loaded.name).name, **({} if what == "heads" else {"what": what}), **made_on}


@validate_arguments
def read_curve(table: Path) -> list[CurvePoint]:
    """All points of a table that `pruning_curve` made. Raises Refused for a file that is none."""
    if not table.is_file():
        raise Refused(f"there is no file {table}: a table of points is one")
    with table.open(encoding="utf-8", errors="replace") as file:
        header = tuple(file.readline().strip().split(","))
    if header[-len(_FIGURES) :] != _FIGURES:
        raise Refused(f"{table} holds no {TABLE_KIND}")
    return [point for line in GrowingTable(table, header, TABLE_KIND).read_rows() for point in _point(line)]


def plan_path(table: Path, method: str, seed: int = 0) -> Path:
    """The file beside a table that holds the order of a method."""
    return table.with_name(f"{table.stem}.{f'{method}-{seed}' if method == 'random' else method}.json")


def read_plan(path: Path, loaded: LoadedModel) -> PruningPlan:
    """The plan in a file. Raises Refused if it is none, or one for another model."""
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
    """The point that a line of the table holds, in a list; an empty list for a line that cannot be read."""
    order, removed, *figures = line[-len(_FIGURES) :]
    try:
        values: dict[str, Any] = dict(zip(_FIGURES[2:], map(float, figures), strict=True))
        return [CurvePoint(order, int(removed), **{**values, "parameters": int(values["parameters"])})]
    except (ValueError, OverflowError):
        return []


def _fingerprint(*parts: Sequence[Batch]) -> str:
    """A digest of some examples; other examples have another one."""
    digest = sha256()
    for batch in (batch for part in parts for batch in part):
        digest.update(batch.input_ids.tobytes() + batch.labels.tobytes() + batch.next_sentence_label.tobytes())
    return digest.hexdigest()[:12]
