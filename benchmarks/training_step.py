"""What a step of pre-training costs: a loop as one first writes it, and what each thing that was done to it brought.

    python benchmarks/training_step.py            print the table
    python benchmarks/training_step.py --write    and put it between the markers of benchmarks/README.md

The text is made of random pieces: what a step costs does not depend on what it says. One thread, and its own seconds
(`time.process_time`), so that other work on the machine moves the figures little; the rows take turns.

The memory rows train 500 steps with sizes that differ from step to step, in a process for each side: as `pretrain` does
it, with the rows of the heads padded to a few sizes on this device and fragments of memory released, and without both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from tables import write_table

from bert_core import load
from bert_core.modeling import BertForPreTraining
from bert_core.records import Batch
from bert_core.training import pretrain, runs
from bert_core.training.data import Corpus, ExampleMaker, MaskingRule, Mix
from bert_core.training.pretrain import PretrainSettings, optimizer_of, train_step
from viz_app.cli.serve import MALLOC

CPU = torch.device("cpu")
ROUNDS = 3
LENGTH = 128
MASKING = MaskingRule(rate=0.2)


def corpus(vocabulary: int) -> Corpus:
    """Random pieces in sentences of 3 to 50 and documents of 20 sentences."""
    rng = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(rng.integers(3, 51, 8000))])
    return Corpus(rng.integers(1000, vocabulary, starts[-1]), starts, np.arange(0, 8001, 20))


def naive_step(model: BertForPreTraining, batch: Batch) -> None:
    """The model's own loss: float32, scores of all words at every position."""
    tables = (batch.input_ids, batch.token_type_ids, batch.attention_mask, batch.labels, batch.next_sentence_label)
    ids, segments, seen, labels, follows = map(torch.from_numpy, tables)
    outputs = model(ids, token_type_ids=segments, attention_mask=seen)
    loss = F.cross_entropy(outputs.prediction_logits.flatten(0, 1), labels.flatten())
    (loss + F.cross_entropy(outputs.seq_relationship_logits, follows)).backward()


def seconds_a_token(step: Callable[[Batch], None], batch: Batch) -> float:
    """Of this process, for each token that is no padding."""
    tokens = int((batch.input_ids != 0).sum())
    start = time.process_time()
    step(batch)
    return (time.process_time() - start) / tokens


def rows(compiled: bool) -> dict[str, tuple[Callable[[Batch], None], ExampleMaker, int]]:
    """What each row does in a step, with the maker of its batches and their tokens."""
    loaded = load("headlight-mini", device="cpu")
    text = corpus(len(loaded.tokenizer))
    pairs = ExampleMaker(text, loaded.tokenizer, MASKING)
    mixed = ExampleMaker(text, loaded.tokenizer, MASKING, Mix(whole=0.4, near=0.3))

    def fresh(optimizer: str, average: float = 0.0) -> tuple[BertForPreTraining, Callable[[], None]]:
        model = load("headlight-mini", device="cpu").model.train().requires_grad_(True)
        parameters = list(model.parameters())
        chosen = optimizer_of(model, PretrainSettings(optimizer=optimizer))
        mean = runs.Average(model, average) if average else None

        def update() -> None:
            runs.update(chosen, parameters, 1e-6)
            if mean:
                mean.add(model)

        return model, update

    naive, naive_update = fresh("adamw")
    plain, plain_update = fresh("adamw")
    muon, muon_update = fresh("muon", 0.99)

    def first(batch: Batch) -> None:
        naive_step(naive, batch)
        naive_update()

    def masked(batch: Batch) -> None:
        with mock.patch.object(runs, "quick_precision", return_value=torch.float32):
            train_step(plain, batch, CPU)
        plain_update()

    def quick(batch: Batch) -> None:
        train_step(plain, batch, CPU)
        plain_update()

    def new(batch: Batch) -> None:
        train_step(muon, batch, CPU)
        muon_update()

    found = {
        "naive: float32, scores at every position, 1,024 tokens": (first, pairs, 1024),
        "scores only at masked positions": (masked, pairs, 1024),
        "and the precision that the device is quick in": (quick, pairs, 1024),
        "the same, 4,096 tokens a step": (quick, pairs, 4096),
        "whole sentences, Muon, average, 4,096 tokens": (new, mixed, 4096),
    }
    if compiled:
        whole = torch.compile(plain.bert.encoder, dynamic=False)

        def with_compile(batch: Batch) -> None:
            with mock.patch.object(plain.bert, "encoder", whole), mock.patch.object(runs, "record", mock.MagicMock()):
                train_step(plain, batch, CPU)
            plain_update()

        found["4,096 tokens a step, torch.compile of the layers"] = (with_compile, pairs, 4096)
    return found


def table(compiled: bool) -> str:
    """The whole measurement as Markdown."""
    torch.set_num_threads(1)
    measured = rows(compiled)
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    for number in range(ROUNDS):
        for name, (step, maker, tokens) in measured.items():
            batch = maker.batch(tokens // LENGTH, LENGTH, np.random.default_rng(number))
            seconds[name].append(seconds_a_token(step, batch))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    slowest = next(iter(medians.values()))
    lines = [
        f"{runs.in_words(CPU)}; one thread, {platform.machine()}, torch {torch.__version__}; `headlight-mini`, "
        f"{LENGTH} tokens an example, 20% masked, malloc as `headlight` sets it; medians of {ROUNDS} steps.\n",
        "| step | tokens a second of one core | beside the naive loop |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {1 / value:,.0f} | {slowest / value:.2f} |" for name, value in medians.items()),
    ]
    return "\n".join(lines) + "\n"


MEMORY_SIDES = {"now": "padded to a few sizes, fragments released", "before": "exact sizes"}
STATM = Path("/proc/self/statm")
MEMORY_STEPS = 500
MEMORY_BLOCK = 25  # steps of one side before it is the other's turn
MEMORY_TOKENS = 1024
MEMORY_SETTINGS = PretrainSettings(masking=MASKING, mix=Mix(whole=0.4), optimizer="muon", average=0.99)


def resident() -> float:
    """MiB of this process that are in memory; Linux only."""
    pages = int(STATM.read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def train_on_request(side: str) -> None:
    """Train `MEMORY_BLOCK` steps for each line of the standard input; answer with peak MiB, seconds and tokens."""
    torch.set_num_threads(1)
    loaded = load("headlight-mini", device="cpu")
    settings = MEMORY_SETTINGS
    maker = ExampleMaker(corpus(len(loaded.tokenizer)), loaded.tokenizer, settings.masking, settings.mix)
    model = load("headlight-mini", device="cpu").model.train().requires_grad_(True)
    optimizer, mean = optimizer_of(model, settings), runs.Average(model, settings.average)
    if side == "before":
        pretrain.padded_size = lambda count, device: count
    step = 0
    for _ in sys.stdin:
        peak = seconds = tokens = 0.0
        for _ in range(MEMORY_BLOCK):
            rng = np.random.default_rng([0, step])
            length = int(rng.choice(list(settings.lengths), p=list(settings.lengths.values())))
            batch = maker.batch(MEMORY_TOKENS // length, length, rng)
            start = time.process_time()
            train_step(model, batch, CPU)
            runs.update(optimizer, list(model.parameters()), 1e-6)
            mean.add(model)
            before_release = resident()
            if side == "now":
                runs.release_fragments(step + 1)
            seconds += time.process_time() - start
            tokens += int((batch.input_ids != 0).sum())
            peak = max(peak, before_release)
            step += 1
        print(json.dumps([peak, seconds, tokens]), flush=True)


def memory_table(steps: int = MEMORY_STEPS) -> str:
    """Peak memory of both sides, early and late, and their speed, as Markdown; empty where it is not Linux."""
    if not STATM.is_file():
        return ""
    sides = {
        side: subprocess.Popen(
            [sys.executable, __file__, "--memory-side", side], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for side in MEMORY_SIDES
    }
    measured: dict[str, list[list[float]]] = {side: [] for side in MEMORY_SIDES}
    for _ in range(max(steps, 3 * MEMORY_BLOCK) // MEMORY_BLOCK):
        for side, process in sides.items():
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            measured[side].append(json.loads(process.stdout.readline()))
    for process in sides.values():
        process.communicate()
    speeds = {side: [tokens / seconds for _, seconds, tokens in blocks] for side, blocks in measured.items()}
    ratios = [one / other for one, other in zip(speeds["now"], speeds["before"], strict=True)]
    early, last = 50, len(measured["now"]) * MEMORY_BLOCK
    lengths = ", ".join(f"{length}: {share:.0%}" for length, share in MEMORY_SETTINGS.lengths.items())
    lines = [
        f"\nMemory: {MEMORY_TOKENS:,} tokens a step, lengths {lengths}, 40% of the rows whole sentences, Muon, "
        f"average; a process for each side, in turns of {MEMORY_BLOCK} steps; speeds are medians of the turns.\n",
        f"| {last} steps of different sizes | peak MiB, steps {early - MEMORY_BLOCK + 1} to {early} | steps "
        f"{last - MEMORY_BLOCK + 1} to {last} | growth | tokens a second of one core | times the other |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for side, name in MEMORY_SIDES.items():
        first, final = measured[side][early // MEMORY_BLOCK - 1][0], measured[side][-1][0]
        ratio = statistics.median(ratios if side == "now" else [1 / value for value in ratios])
        lines.append(
            f"| {name} | {first:,.0f} | {final:,.0f} | {final / first - 1:+.1%} "
            f"| {statistics.median(speeds[side]):,.0f} | {ratio:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of pre-training.")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    parser.add_argument("--compile", action="store_true", help="try torch.compile too, which needs a C++ compiler")
    parser.add_argument("--memory-side", choices=MEMORY_SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if platform.libc_ver()[0] == "glibc" and not os.environ.keys() >= MALLOC.keys():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**MALLOC, **os.environ})
    if arguments.memory_side:
        train_on_request(arguments.memory_side)
        return
    found = table(arguments.compile) + memory_table()
    print(found)
    if arguments.write:
        write_table(__file__, found)


if __name__ == "__main__":
    main()
