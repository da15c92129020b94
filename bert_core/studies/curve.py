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
from bert_core.progress import Progress, silent, within
from bert_core.records import Batch, CurvePoint, PruningPlan
from bert_core.refused import Refused, checked, each, shown, whole
from bert_core.run import plans
from bert_core.run.costs import curve_points
from bert_core.run.losses import check_has_parts
from bert_core.studies.runner import (
    STATE_VERSION,
    check_same,
    exclusive_lock,
    read_json,
    settings_beside,
    write_settings,
)
from bert_core.studies.tables import GrowingTable
from bert_core.tokenizer import Encoding

WHAT = "pruning curve"
MOST_STEPS = 10_000
_FIGURES = tuple(entry.name for entry in fields(CurvePoint))


@checked
def pruning_curve(
    loaded: LoadedModel,
    estimated: Sequence[Batch],
    asked: Sequence[Batch],
    table: Path,
    *,
    what: str = "heads",
    orders: Sequence[str] | None = None,
    steps: int = 10,
    reference: Sequence[Encoding] = (),
    made_on: Mapping[str, str] | None = None,
    found_on: str = "",
    reference_is: str = "",
    report: Progress = silent,
) -> Iterator[CurvePoint]:
    """Loss, accuracies, size and speed along some orders of parts, each point from a model that was really pruned.

    estimated, asked: examples to find the orders on, and others to test on. table: a CSV file, which is gone on with;
    the order of each name stands beside it, as a plan. what: "heads", "neurons" or "layers". orders: of
    `run.plans.ORDERS_OF`; None: the first of these, and "random", which is a band of several.
    steps: into how many the parts are divided. reference: texts for ablation-mean and -resample.
    made_on: what the examples are, as columns of the table; None: a fingerprint of them. found_on, reference_is: what
    the plans are found on, and what stands in for a head, in words. report: as for `Progress`.
    Yields the points that are new, each when it is in the table: whoever stops has those before, and the same call goes
    on. `read_curve` has all of them.
    Raises Refused for an unknown order, a model without heads, a table of another run or one that another
    run writes to now, or a plan found on something else.
    """
    check_unedited(loaded.edits, "a pruning curve")
    estimated, asked = each("estimated", estimated, Batch), each("asked", asked, Batch)
    steps, reference = whole("steps", steps, 1, MOST_STEPS), each("reference", reference, Encoding)
    plans.check_orders(what, [])
    orders = (plans.ORDERS_OF[what][0], "random") if orders is None else each("orders", orders, str)
    if table.is_dir():
        raise Refused(f"{table} is a folder: name a table in one")
    if not orders:
        raise Refused(f"there is no order to prune by: name at least one of {', '.join(plans.ORDERS_OF[what])}")
    if made_on is not None and not isinstance(made_on, Mapping):
        raise Refused(f"made_on is {shown(made_on)}: it must give each column its text")
    examples = _fingerprint(estimated, asked)
    made_on = {"examples": examples} if made_on is None else made_on
    identity = {"version": STATE_VERSION, "weights": fingerprint(loaded), "examples": examples, "what": what}
    with exclusive_lock(table):
        known = points_there(loaded, table, orders, made_on, what=what)
        place = settings_beside(table)
        if place.is_file() or known:
            check_same(read_json(place) if place.is_file() else {}, identity, table)
        same = _same(loaded, what, made_on)
        grows = GrowingTable(table, (*same, *_FIGURES), WHAT)
        wanted = [
            (name, seed) for name in orders for seed in (range(plans.RANDOM_ORDERS) if name == "random" else (0,))
        ]
        plans_made = []
        for number, (name, seed) in enumerate(wanted):
            on = "" if name == "random" else found_on
            if name in ("ablation-mean", "ablation-resample") and reference_is:
                on += f", with {reference_is} in the place of a head"
            path, told = plan_beside(table, name, seed), within(report, number, 2 * len(wanted))
            if path.is_file():
                plan = read_plan(path, loaded)
                if plan.what != what:
                    raise Refused(f"{path} is a plan of {plan.what}, not of {what}: choose another name for the table")
                if plan.found_on not in ("", on):  # older plans do not say it
                    raise Refused(
                        f"{path} was found on {plan.found_on}, not on {on}: choose another name for the table"
                    )
            else:
                told(0, f"finding the order by {name if name != 'random' else f'{name}-{seed}'}")
                plan = plans.propose_plan(
                    loaded, estimated, name, what=what, seed=seed, reference=reference, report=told
                )
                plan = replace(plan, found_on=on)
                if not place.is_file():  # the plans beside a table are of its examples
                    write_settings(table, identity)
                _write_plan(path, plan)
            plans_made.append(plan)
        parts = len(plans_made[0].order)
        removed = sorted({round(parts * step / steps) for step in range(steps + 1)})
        grows.keep([*same.values(), *astuple(point)] for point in known)
        by_name = {plan.method: plan.order for plan in plans_made}
        points = curve_points(loaded, asked, by_name, removed, what=what, known=known, report=within(report, 1, 2))
        for point in points:
            if not place.is_file():
                write_settings(table, identity)
            grows.add([[*same.values(), *astuple(point)]])
            yield point


def points_there(
    loaded: LoadedModel, table: Path, orders: Sequence[str], made_on: Mapping[str, str], *, what: str = "heads"
) -> list[CurvePoint]:
    """The points from which `pruning_curve` goes on. Raises Refused as it does, before there are examples."""
    plans.check_orders(what, orders)
    check_has_parts(loaded, what)
    same = _same(loaded, what, made_on)
    points = []
    for line in GrowingTable(table, (*same, *_FIGURES), WHAT).lines():
        check_same(dict(zip(same, line, strict=False)), same, table)
        points += _point(line)
    return points


def _same(loaded: LoadedModel, what: str, made_on: Mapping[str, str]) -> dict[str, str]:
    """What all points of a table have in common; that they are of heads, no table says."""
    return {"model": Path(loaded.name).name, **({} if what == "heads" else {"what": what}), **made_on}


@checked
def read_curve(table: Path) -> list[CurvePoint]:
    """All points of a table that `pruning_curve` made. Raises Refused for a file that is none."""
    if not table.is_file():
        raise Refused(f"there is no file {table}: a table of points is one")
    with table.open(encoding="utf-8", errors="replace") as file:
        header = tuple(file.readline().strip().split(","))
    if header[-len(_FIGURES) :] != _FIGURES:
        raise Refused(f"{table} holds no {WHAT}")
    return [point for line in GrowingTable(table, header, WHAT).lines() for point in _point(line)]


def plan_beside(table: Path, method: str, seed: int = 0) -> Path:
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
    checkpoint.write_whole(path, plan.to_json())


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
