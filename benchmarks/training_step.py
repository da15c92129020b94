"""What a step of pre-training costs: a loop as one first writes it, and what each thing that was done to it brought.

    python benchmarks/training_step.py            print the table
    python benchmarks/training_step.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/training_step.py --quick    the smallest size, to check that it works

The text is made of random pieces: what a step costs does not depend on what it says. One thread, and its own seconds
(`time.process_time`), so that other work on the machine moves the figures little; the rows take turns.

The memory rows train 500 steps with sizes that differ from step to step, in a process for each side: with sizes padded
to a few, where the device keeps a kernel for each, and fragments of memory released, as the loops do it; without both.
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
from tables import QUICK, parse_arguments, write_table

from bert_core import load
from bert_core.modeling import BertForPreTraining, BertForSequenceClassification
from bert_core.records import Batch
from bert_core.training import finetune, lens, optimization, pretrain, tuning
from bert_core.training.data import Corpus, ExampleMaker
from bert_core.training.pretrain import make_optimizer, train_step
from bert_core.training.settings import MaskingRule, Mix, PretrainSettings
from bert_core.translators import Translators
from viz_app.cli.serve import MALLOC

CPU = torch.device("cpu")
ROUNDS, SMALL, LARGE = (1, 128, 512) if QUICK else (3, 1024, 4096)  # rounds; tokens of a step
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
    ids, segments, mask, labels, next_labels = map(torch.from_numpy, tables)
    outputs = model(ids, token_type_ids=segments, attention_mask=mask)
    loss = F.cross_entropy(outputs.prediction_logits.flatten(0, 1), labels.flatten())
    (loss + F.cross_entropy(outputs.seq_relationship_logits, next_labels)).backward()


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
        optimizer_of_model = make_optimizer(model, PretrainSettings(optimizer=optimizer))
        mean = optimization.WeightAverage(model, average) if average else None

        def update() -> None:
            optimization.apply_gradients(optimizer_of_model, parameters, 1e-6)
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
        with mock.patch.object(optimization, "fast_dtype", return_value=torch.float32):
            train_step(plain, batch, CPU)
        plain_update()

    def quick(batch: Batch) -> None:
        train_step(plain, batch, CPU)
        plain_update()

    def new(batch: Batch) -> None:
        train_step(muon, batch, CPU)
        muon_update()

    results = {
        f"naive: float32, scores at every position, {SMALL:,} tokens": (first, pairs, SMALL),
        "scores only at masked positions": (masked, pairs, SMALL),
        "and the precision that the device is quick in": (quick, pairs, SMALL),
        f"the same, {LARGE:,} tokens a step": (quick, pairs, LARGE),
        f"whole sentences, Muon, average, {LARGE:,} tokens": (new, mixed, LARGE),
    }
    if compiled:
        whole = torch.compile(plain.bert.encoder, dynamic=False)

        def with_compile(batch: Batch) -> None:
            without_maps = mock.patch.object(optimization, "record", mock.MagicMock())
            with mock.patch.object(plain.bert, "encoder", whole), without_maps:
                train_step(plain, batch, CPU)
            plain_update()

        results[f"{LARGE:,} tokens a step, torch.compile of the layers"] = (with_compile, pairs, LARGE)
    return results


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
        f"{optimization.describe_precision(CPU)}; one thread, {platform.machine()}, torch {torch.__version__}; "
        f"`headlight-mini`, {LENGTH} tokens an example, 20% masked, malloc as `headlight` sets it. Medians of "
        f"{ROUNDS} steps.\n",
        "| step | tokens a second of one core | compared with the naive loop |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {1 / value:,.0f} | {slowest / value:.2f} |" for name, value in medians.items()),
    ]
    return "\n".join(lines) + "\n"


MEMORY_LOOPS = {
    "pretrain": "`pretrain`: 1,024 tokens a step of the usual lengths, 40% of the rows whole sentences, Muon, average",
    "finetune": "`finetune`: 16 texts a step, 5 to 128 tokens, median 30",
    "lens": "`tune-lens`: 4 examples of 64 tokens a step",
}
MEMORY_SIDES = {"now": "", "before": "exact sizes, fragments kept"}
MEMORY_STEPS, MEMORY_EARLY = (2, 1) if QUICK else (500, 50)
MEMORY_BLOCK = 1 if QUICK else 25  # steps of one side before it is the other's turn
STATM = Path("/proc/self/statm")


def resident() -> float:
    """MiB of this process that are in memory; Linux only."""
    return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def training_loop(loop: str) -> Callable[[int], int]:
    """A function that trains the step with a number and returns its tokens, padding not counted."""
    loaded = load("headlight-mini", device="cpu")
    text = corpus(len(loaded.tokenizer))
    model = load("headlight-mini", device="cpu").model.train().requires_grad_(True)
    if loop == "pretrain":
        settings = PretrainSettings(masking=MASKING, mix=Mix(whole=0.4), optimizer="muon", average=0.99)
        maker = ExampleMaker(text, loaded.tokenizer, settings.masking, settings.mix)
        parameters = list(model.parameters())
        optimizer, mean = make_optimizer(model, settings), optimization.WeightAverage(model, settings.average)

        def pretraining_step(number: int) -> int:
            rng = np.random.default_rng([0, number])
            length = int(rng.choice(list(settings.lengths), p=list(settings.lengths.values())))
            batch = maker.batch(1024 // length, length, rng)
            train_step(model, batch, CPU)
            optimization.apply_gradients(optimizer, parameters, 1e-6)
            mean.add(model)
            return int((batch.input_ids != loaded.tokenizer.pad_id).sum())

        return pretraining_step
    if loop == "finetune":
        classifier = BertForSequenceClassification(loaded.config.with_labels(("a", "b")), model.bert).train()
        draw = np.random.default_rng(0)
        sizes = np.clip(draw.lognormal(3.4, 0.6, 8000), 5, 128).astype(int)
        examples = [
            finetune.ClassifierExample(tuple(draw.integers(1000, 30000, n).tolist()), (0,) * n, n % 2) for n in sizes
        ]
        batches = tuning._batches(examples, 16, draw)
        weights = list(classifier.parameters())
        adamw = optimization.adamw(weights, 1e-6, 0.01)

        def finetuning_step(number: int) -> int:
            batch = next(batches)
            with optimization.training_autocast(CPU):
                loss = finetune._loss(classifier, batch, pad=0, device=CPU)
            loss.backward()
            optimization.apply_gradients(adamw, weights, 1e-6)
            return sum(len(example.input_ids) for example in batch)

        return finetuning_step
    hidden = ExampleMaker(text, loaded.tokenizer, lens._MASKING)
    translators = Translators(loaded.config).train()
    maps = list(translators.parameters())
    optimizer_of_maps = optimization.adamw(maps, 1e-6, 0.01)

    def lens_step(number: int) -> int:
        rng = np.random.default_rng([0, number])
        batch = hidden.batch(4, 64, rng)
        lens._train_step(loaded, translators, batch, rng)
        optimization.apply_gradients(optimizer_of_maps, maps, 1e-6)
        return int((batch.input_ids != loaded.tokenizer.pad_id).sum())

    return lens_step


def train_on_request(loop: str, side: str) -> None:
    """Train `MEMORY_BLOCK` steps for each line of the standard input; answer with peak MiB, seconds and tokens."""
    torch.set_num_threads(1)
    if side == "before":
        for module in (pretrain, tuning, lens):
            module.padded_size = lambda count, device: count
    step_of, step = training_loop(loop), 0
    for _ in sys.stdin:
        peak = seconds = tokens = 0.0
        for _ in range(MEMORY_BLOCK):
            start = time.process_time()
            tokens += step_of(step)
            step += 1
            peak = max(peak, resident())
            if side == "now":
                optimization.release_memory(step)
            seconds += time.process_time() - start
        print(json.dumps([peak, seconds, tokens]), flush=True)


def memory_table() -> str:
    """Peak memory of every loop now and before, early and late, and the speeds, as Markdown; empty but on Linux."""
    if not STATM.is_file():
        return ""
    blocks = [f"{end - MEMORY_BLOCK + 1} to {end}" for end in (MEMORY_EARLY, MEMORY_STEPS)]
    lines = [
        f"\nMemory: a process for each side, one thread, in turns of {MEMORY_BLOCK} steps; medians of the turns.\n",
        f"| steps of different sizes | peak MiB, steps {blocks[0]} | steps {blocks[1]} | growth "
        "| tokens a second of one core | times before |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for loop, title in MEMORY_LOOPS.items():
        measured = _in_turns(loop)
        speeds = {side: [tokens / seconds for _, seconds, tokens in blocks] for side, blocks in measured.items()}
        ratio = statistics.median(
            speed_now / speed_before for speed_now, speed_before in zip(speeds["now"], speeds["before"], strict=True)
        )
        for side, name in MEMORY_SIDES.items():
            early, late = measured[side][MEMORY_EARLY // MEMORY_BLOCK - 1][0], measured[side][-1][0]
            lines.append(
                f"| {name or title} | {early:,.0f} | {late:,.0f} | {late / early - 1:+.1%} "
                f"| {statistics.median(speeds[side]):,.0f} | {f'{ratio:.2f}' if side == 'now' else ''} |"
            )
    return "\n".join(lines) + "\n"


def _in_turns(loop: str) -> dict[str, list[list[float]]]:
    """What `train_on_request` answers for each block, by side; the sides take turns."""
    command = [sys.executable, __file__, *["--quick"] * QUICK, "--memory", loop]
    processes = {
        side: subprocess.Popen([*command, side], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for side in MEMORY_SIDES
    }
    measured: dict[str, list[list[float]]] = {side: [] for side in MEMORY_SIDES}
    for _ in range(MEMORY_STEPS // MEMORY_BLOCK):
        for side, process in processes.items():
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            measured[side].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        process.communicate()
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of pre-training.")
    parser.add_argument("--compile", action="store_true", help="try torch.compile too, which needs a C++ compiler")
    parser.add_argument("--memory", nargs=2, metavar=("LOOP", "SIDE"), help=argparse.SUPPRESS)
    arguments = parse_arguments(parser)
    if platform.libc_ver()[0] == "glibc" and not os.environ.keys() >= MALLOC.keys():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**MALLOC, **os.environ})
    if arguments.memory:
        train_on_request(*arguments.memory)
        return
    text = table(arguments.compile) + memory_table()
    print(text)
    if arguments.write:
        write_table(__file__, text)


if __name__ == "__main__":
    main()
