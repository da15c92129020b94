"""What `run` computes with the layers of headlight-mini, before and after they were run in one place (run/stack.py).

    python benchmarks/layer_runner.py --before FOLDER     compare with the bert_core in another checkout
    python benchmarks/layer_runner.py --before FOLDER --write    and put the table into benchmarks/README.md
    python benchmarks/layer_runner.py                     time this checkout alone
    python benchmarks/layer_runner.py --quick             the smallest size, to check that it works

Each checkout runs in a process of its own, with one thread; the processes take turns, run by run. Timed is the CPU's
time, which other work on the machine changes least. Before that they must find the same numbers, to 1e-5 of the
largest. Products of two numbers are counted by torch. The memory is the peak of a run above what the process held
before it (VmHWM; Linux only), in a new process that has run the shortest text.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tables import QUICK, parse_arguments, write_table

ROOT = Path(__file__).parents[1]
MODEL = "headlight-mini"
RUNS = 1 if QUICK else 7
WORDS = ("the", "old", "man", "opened", "the", "door", "of", "the", "house", "and", "walked", "into", "the", "garden")
TOKENS = (8,) if QUICK else (16, 64)  # timed; the memory is that of the longest
WITHIN = 1e-5


def paths(tokens: int) -> dict[str, Callable[[], object]]:
    """Name -> what is timed, for a text of so many tokens with a gap in its middle."""
    import bert_core
    from bert_core.run.losses import TextExample
    from bert_core.run.states import masked_losses_by_depth

    loaded = bert_core.load(MODEL, device="cpu")
    words = [WORDS[number % len(WORDS)] for number in range(tokens - 2)]
    middle = len(words) // 2
    text, source = (
        loaded.tokenizer.encode(" ".join([*words[:middle], "[MASK]", *words[middle + 1 : -1], last]))
        for last in ("house", "garden")
    )
    target = bert_core.Target("mlm", text.mask_positions[0], loaded.tokenizer.id_of("door"))
    shorter = loaded.tokenizer.encode("the old man opened the [MASK]")
    example = TextExample(text, text.mask_positions, (target.token_id,))
    arguments = (loaded, source, text, target)
    return {
        "`capture`, with a target": lambda: bert_core.capture(loaded, text, target=target, norms=True),
        "`captures`, two texts": lambda: bert_core.captures(loaded, [text, shorter], norms=True),
        "`ablate_heads`": lambda: bert_core.ablate_heads(loaded, text, target=target),
        "`patch`, states": lambda: bert_core.patch(*arguments),
        "`patch`, heads": lambda: bert_core.patch(*arguments, part_kind="head"),
        "`estimate_patches`, heads": lambda: bert_core.estimate_patches(*arguments, part_kind="head"),
        "`cut_each`, layer 2": lambda: bert_core.knock_out_edges(loaded, shorter, target_of(shorter, target), 2, 3),
        "`patch_path`, two receivers": lambda: bert_core.patch_path(*arguments, receivers=[(3, 1), (4, 2)]),
        "`neuron_activations`": lambda: bert_core.neuron_activations(loaded, text),
        "`neuron_gradients`, 5 steps": lambda: bert_core.neuron_gradients(loaded, text, target, steps=5),
        "`hidden_words_by_depth`": lambda: masked_losses_by_depth(loaded, [example]),
    }


def target_of(text: Any, target: Any) -> Any:
    """The same word at the gap of another text."""
    return dataclasses.replace(target, position=text.mask_positions[0])


def numbers(value: object) -> Iterator[np.ndarray]:
    """The arrays and numbers of a result, in order; NaN as 0."""
    if isinstance(value, np.ndarray | float | np.number):
        yield np.nan_to_num(np.asarray(value, np.float64)).ravel()
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name not in ("encoding", "source"):
                yield from numbers(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)


def summary(value: object) -> list[list[float]]:
    """Of each array of a result its size, and eight sums of it with weights drawn once, over its number of entries."""
    summaries = []
    for array in numbers(value):
        weights = np.random.default_rng(0).uniform(0.5, 1.5, (8, array.size))
        summaries.append(
            [float(array.size), float(np.abs(array).max(initial=0)), *(weights @ array / max(array.size, 1))]
        )
    return summaries


def multiplications(run: Callable[[], object]) -> int:
    """How many products of two numbers a run adds up."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counter(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if func._overloadpacket in flop_registry:
                self.total += flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=out) // 2
            return out

    with Counter() as counter:
        run()
    return counter.total


def resident(name: str) -> float:
    """MiB of this process: VmRSS now, VmHWM at its peak; NaN where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def serve(checkout: Path) -> None:
    """The process of a checkout: for each line "tokens, name, what" on its input, a line of JSON."""
    sys.path.insert(0, str(checkout))
    import torch

    import bert_core

    torch.set_num_threads(1)
    assert Path(bert_core.__file__).parents[1] == checkout
    works = {tokens: paths(tokens) for tokens in TOKENS}
    print(json.dumps(list(works[TOKENS[0]])), flush=True)
    for line in sys.stdin:
        tokens, name, work = json.loads(line)
        run = works[tokens][name]
        answer: object
        if work == "check":
            answer = [summary(run()), multiplications(run)]
        elif work == "memory":
            if Path("/proc/self/clear_refs").exists():
                Path("/proc/self/clear_refs").write_text("5")
            memory_before = resident("VmRSS")
            run()
            answer = resident("VmHWM") - memory_before
        else:
            start = time.process_time()
            run()
            answer = 1000 * (time.process_time() - start)
        print(json.dumps(answer), flush=True)


class Side:
    """The process of one checkout."""

    def __init__(self, checkout: Path) -> None:
        command = [sys.executable, __file__, "--serve", str(checkout), *["--quick"] * QUICK]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.names: list[str] = self.read()

    def read(self) -> Any:
        """The next line that the process writes."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, *question: object) -> Any:
        """What the process answers: question is tokens, name and "check", "memory" or "time"."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.read()

    def stop(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def peak_of(checkout: Path, work: str) -> float:
    """MiB that the longest text takes in a process of its own."""
    side = Side(checkout)
    side.ask(TOKENS[0], work, "time")
    peak: float = side.ask(TOKENS[-1], work, "memory")
    side.stop()
    return peak


def require_same(results: list[Any], label: str) -> None:
    """End the script if two sides found other numbers."""
    first, *remaining = (np.concatenate([np.zeros(0), *map(np.asarray, summaries)]) for summaries, _ in results)
    for result in remaining:
        if first.shape != result.shape or np.abs(first - result).max() > WITHIN * np.abs(first).max():
            raise SystemExit(f"{label}: the checkouts find different numbers")


def table(before: Path | None) -> str:
    """The whole measurement as Markdown."""
    checkouts = {name: checkout for name, checkout in (("before", before), ("now", ROOT)) if checkout}
    sides = {name: Side(checkout) for name, checkout in checkouts.items()}
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs; Python {platform.python_version()}; {MODEL}; medians of {RUNS} "
        "runs a side, in turns, of one thread.",
        "",
        f"| what | tokens |{''.join(f' {name}, ms |' for name in sides)}{' ratio |' * (len(sides) > 1)}"
        f"{''.join(f' {name}, M products |' for name in sides)}{''.join(f' {name}, MiB |' for name in sides)}",
        f"| --- | ---: |{' ---: |' * (3 * len(sides) + (len(sides) > 1))}",
    ]
    for tokens in TOKENS:
        for work in next(iter(sides.values())).names:
            checks = [side.ask(tokens, work, "check") for side in sides.values()]
            require_same(checks, work)
            memory = [peak_of(checkout, work) if tokens == TOKENS[-1] else None for checkout in checkouts.values()]
            ms: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(RUNS):
                for name, side in sides.items():
                    ms[name].append(side.ask(tokens, work, "time"))
            medians = [statistics.median(values) for values in ms.values()]
            ratio = f" {medians[-1] / medians[0]:.2f} |" if len(sides) > 1 else ""
            lines.append(
                f"| {work} | {tokens} |{''.join(f' {median:.1f} |' for median in medians)}{ratio}"
                f"{''.join(f' {products / 1e6:.1f} |' for _, products in checks)}"
                f"{''.join(' |' if mebibytes is None else f' {mebibytes:.1f} |' for mebibytes in memory)}"
            )
    for side in sides.values():
        side.stop()
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="The layer runner, before and after.")
    parser.add_argument("--before", type=Path, help="the checkout of another commit")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parse_arguments(parser)
    if arguments.serve:
        serve(arguments.serve)
        return
    text = table(arguments.before and arguments.before.resolve())
    print(text)
    if arguments.write:
        write_table(__file__, text)


if __name__ == "__main__":
    main()
