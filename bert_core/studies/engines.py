"""Who measures shards, of a file or of an index: this process, or the workers of a Ray cluster; in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bert_core.refused import Refused
from bert_core.unknown import UnknownTokens, counting, current_count

ENGINES = ("local", "ray")
WAITING_PER_WORKER = 2  # shards: a cluster is never idle, and never holds the file
Given = TypeVar("Given")
Found = TypeVar("Found")


def check_engine(engine: str) -> None:
    """Raise Refused for an engine that is unknown."""
    if engine not in ENGINES:
        raise Refused(f"engine {engine!r} is unknown: one of {', '.join(ENGINES)}")


def on_ray(
    measure: Callable[..., Found], given: tuple[Any, ...], rest: Iterator[Given], device: str | None
) -> Iterator[tuple[Given, Found]]:
    """Each shard with what `measure(*given, shard)` finds on a worker, in their order, whoever is done first.

    A shard whose worker died is measured again by another. device: as for `load`; with one on a GPU a worker takes one.
    Raises Refused if Ray is missing.
    """
    try:
        import ray
    except ImportError as error:
        raise Refused("the engine 'ray' needs Ray: pip install 'headlight[ray]'") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    gpus = 1 if (device or "").startswith("cuda") else 0
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=-1)(_with_unknown)
    workers = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
    most = WAITING_PER_WORKER * max(1, workers)
    waiting: deque[tuple[Given, Any]] = deque()
    for shard in rest:
        waiting.append((shard, task.remote(measure, *given, shard)))
        if len(waiting) >= most:
            first, result = waiting.popleft()
            yield first, _counted_here(*ray.get(result))
    while waiting:
        first, result = waiting.popleft()
        yield first, _counted_here(*ray.get(result))


def _with_unknown(measure: Callable[..., Found], *given: Any) -> tuple[Found, UnknownTokens]:
    """What a worker finds, and how much of what it read the vocabulary does not know."""
    with counting() as read:
        return measure(*given), read


def _counted_here(found: Found, read: UnknownTokens) -> Found:
    if (here := current_count()) is not None:
        here.add(read.typed, read.unknown)
    return found
