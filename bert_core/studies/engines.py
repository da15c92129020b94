"""Who measures shards, of a file or of an index: this process, or the workers of a Ray cluster; in their order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bert_core.loading import best_device
from bert_core.refused import Refused
from bert_core.unknown_tokens import UnknownTokens, count_unknown_tokens, current_counts

ENGINES = ("local", "ray")
QUEUED_SHARDS_PER_WORKER = 2  # shards: a cluster is never idle, and never holds the file
Given = TypeVar("Given")
Found = TypeVar("Found")


def check_engine(engine: str) -> None:
    """Raise Refused for an engine that is unknown."""
    if engine not in ENGINES:
        raise Refused(f"engine {engine!r} is unknown: one of {', '.join(ENGINES)}")


def ray_worker_device(device: str | None) -> str:
    """The device on which the workers of a Ray cluster load a model: "cuda" where each of them gets a GPU of its own.

    device: as for `load`, for this machine or a cluster at RAY_ADDRESS; Ray is started if it is not yet.
    Raises Refused if Ray is missing, for GPUs that neither this machine nor the cluster has, before a cluster starts on
    this machine, and for a GPU by its number, which only one machine has.
    """
    name = device or "auto"
    if name.startswith("cuda:"):
        raise Refused(
            f"device {name!r} is one GPU of one machine: with the engine 'ray' give 'cuda', and each worker gets a GPU "
            "of the cluster"
        )
    if not (_ray().is_initialized() or os.environ.get("RAY_ADDRESS")):
        best_device(name)
    ray = _started()
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if name == "cuda" and not gpus:
        cpus = int(ray.cluster_resources().get("CPU", 0))
        raise Refused(f"device 'cuda' is not in the Ray cluster: it has {cpus:,} CPUs and no GPU")
    return "cuda" if name == "auto" and gpus else name


def run_on_ray(
    measure: Callable[..., Found], given: tuple[Any, ...], rest: Iterator[Given], device: str | None
) -> Iterator[tuple[Given, Found]]:
    """Each shard with what `measure(*given, shard)` finds on a worker, in their order, whoever is done first.

    A shard whose worker died is measured again by another. device: as `device_of_workers` gives it, or None for work
    without a model; on "cuda" every worker has a GPU of its own.
    Raises Refused if Ray is missing.
    """
    ray = _started()
    resource = "GPU" if device == "cuda" else "CPU"
    task = ray.remote(num_cpus=1, num_gpus=int(resource == "GPU"), max_retries=-1)(_with_unknown)
    workers = int(ray.cluster_resources().get(resource, 1))
    most = QUEUED_SHARDS_PER_WORKER * max(1, workers)
    waiting: deque[tuple[Given, Any]] = deque()
    for shard in rest:
        waiting.append((shard, task.remote(measure, *given, shard)))
        if len(waiting) >= most:
            first, result = waiting.popleft()
            yield first, _counted_here(*ray.get(result))
    while waiting:
        first, result = waiting.popleft()
        yield first, _counted_here(*ray.get(result))


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise Refused("the engine 'ray' needs Ray: pip install 'headlight[ray]'") from error
    return ray


def _started() -> Any:
    """Ray, connected to the cluster at RAY_ADDRESS, or to one on this machine that is started now."""
    ray = _ray()
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    return ray


def _with_unknown(measure: Callable[..., Found], *given: Any) -> tuple[Found, UnknownTokens]:
    """What a worker finds, and how much of what it read the vocabulary does not know."""
    with count_unknown_tokens() as read:
        return measure(*given), read


def _counted_here(found: Found, read: UnknownTokens) -> Found:
    if (here := current_counts()) is not None:
        here.add(read.token_count, read.unknown_count)
    return found
