"""Engines that measure the shards of a study in order: this process, or the workers of a Ray cluster."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bert_core.loading import best_device
from bert_core.refused import Refused
from bert_core.unknown_tokens import UnknownTokens, count_unknown_tokens, current_counts

ENGINES = ("local", "ray")
QUEUED_SHARDS_PER_WORKER = 2  # keeps every worker busy while only a few shards of the file are in memory
ShardT = TypeVar("ShardT")
ResultT = TypeVar("ResultT")


def check_engine(engine: str) -> None:
    """Raise Refused for an unknown engine."""
    if engine not in ENGINES:
        raise Refused(f"engine {engine!r} is unknown: one of {', '.join(ENGINES)}")


def ray_worker_device(device: str | None) -> str:
    """Return the device on which the workers of a Ray cluster load a model; "cuda" means one GPU for each worker.

    device: as for `load`, for this machine or the cluster at RAY_ADDRESS. Ray is started if it is not running.
    Raises Refused if Ray is not installed, for a single GPU such as "cuda:1", and for "cuda" without a GPU. Without a
    cluster, this machine is checked before Ray starts.
    """
    name = device or "auto"
    if name.startswith("cuda:"):
        raise Refused(
            f"device {name!r} is one GPU of one machine: with the engine 'ray' give 'cuda', and each worker gets a GPU "
            "of the cluster"
        )
    if not (_import_ray().is_initialized() or os.environ.get("RAY_ADDRESS")):
        best_device(name)
    ray = _start_ray()
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if name == "cuda" and not gpus:
        cpus = int(ray.cluster_resources().get("CPU", 0))
        raise Refused(f"device 'cuda' is not in the Ray cluster: it has {cpus:,} CPUs and no GPU")
    return "cuda" if name == "auto" and gpus else name


def run_on_ray(
    measure: Callable[..., ResultT], arguments: tuple[Any, ...], shards: Iterator[ShardT], device: str | None
) -> Iterator[tuple[ShardT, ResultT]]:
    """Compute `measure(*arguments, shard)` for each shard on the workers of a Ray cluster.

    device: result of `ray_worker_device`, or None for work without a model. With "cuda", each worker has one
        GPU, and loads a model once for all its shards.
    Yields (shard, result) in the order of the shards. If a worker dies, another one measures its shard again.
    Raises Refused if Ray is not installed.
    """
    ray = _start_ray()
    resource = "GPU" if device == "cuda" else "CPU"
    workers = int(ray.cluster_resources().get(resource, 1))
    if device == "cuda":
        submit = _submit_to_gpus(ray, workers)
    else:
        submit = ray.remote(num_cpus=1, max_retries=-1)(_measure_and_count).remote
    queue_size = QUEUED_SHARDS_PER_WORKER * workers
    queue: deque[tuple[ShardT, Any]] = deque()
    for shard in shards:
        queue.append((shard, submit(measure, *arguments, shard)))
        if len(queue) >= queue_size:
            first, result = queue.popleft()
            yield first, _add_counts(*ray.get(result))
    while queue:
        first, result = queue.popleft()
        yield first, _add_counts(*ray.get(result))


def _submit_to_gpus(ray: Any, gpus: int) -> Callable[..., Any]:
    """Return a function that submits a task to one of the workers with a GPU, in turn.

    Ray ends the process of a task with a GPU after the task, so that each shard would load the model again. The process
    of an actor, and with it the model, remains until the last reference to the actor is gone. A worker whose GPU is in
    use by other work gets no task until it starts.
    """
    actor = ray.remote(num_cpus=1, num_gpus=1, max_restarts=-1, max_task_retries=-1)(_GpuWorker)
    workers = [actor.remote() for _ in range(gpus)]
    waiting = {worker.has_started.remote(): worker for worker in workers}
    started: deque[Any] = deque()

    def submit(*arguments: Any) -> Any:
        if waiting:
            count, timeout = (len(waiting), 0) if started else (1, None)
            ready, _ = ray.wait(list(waiting), num_returns=count, timeout=timeout)
            started.extend(waiting.pop(reference) for reference in ready)
        started.rotate()
        return started[0].run.remote(*arguments)

    return submit


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise Refused("the engine 'ray' needs Ray: pip install 'headlight[ray]'") from error
    return ray


def _start_ray() -> Any:
    """Return the module ray, connected to the cluster at RAY_ADDRESS or to a new one on this machine."""
    ray = _import_ray()
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    return ray


class _GpuWorker:
    """A process with one GPU that measures one shard after another."""

    def has_started(self) -> bool:
        return True

    def run(self, measure: Callable[..., ResultT], *arguments: Any) -> tuple[ResultT, UnknownTokens]:
        return _measure_and_count(measure, *arguments)


def _measure_and_count(measure: Callable[..., ResultT], *arguments: Any) -> tuple[ResultT, UnknownTokens]:
    """Return the result of a worker with its counts of unknown tokens."""
    with count_unknown_tokens() as counts:
        return measure(*arguments), counts


def _add_counts(result: ResultT, counts: UnknownTokens) -> ResultT:
    """Add the counts of a worker to the current counts of this process, if there are any, and return the result."""
    if (process_counts := current_counts()) is not None:
        process_counts.add(counts.token_count, counts.unknown_count)
    return result
