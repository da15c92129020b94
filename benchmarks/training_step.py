"""What a step of pre-training costs: a loop as one first writes it, and what each thing that was done to it brought.

    python benchmarks/training_step.py            print the table
    python benchmarks/training_step.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/training_step.py --quick    the smallest size, to check that it works

The text is made of random pieces: what a step costs does not depend on what it says. One thread, and its own seconds
(`time.process_time`), so that other work on the machine moves the figures little; the rows take turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from tables import QUICK, parse_arguments, write_table

from bert_core import load
from bert_core.modeling import BertForPreTraining
from bert_core.records import Batch
from bert_core.training import runs
from bert_core.training.data import Corpus, ExampleMaker, MaskingRule, Mix
from bert_core.training.pretrain import PretrainSettings, optimizer_of, train_step
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
        f"naive: float32, scores at every position, {SMALL:,} tokens": (first, pairs, SMALL),
        "scores only at masked positions": (masked, pairs, SMALL),
        "and the precision that the device is quick in": (quick, pairs, SMALL),
        f"the same, {LARGE:,} tokens a step": (quick, pairs, LARGE),
        f"whole sentences, Muon, average, {LARGE:,} tokens": (new, mixed, LARGE),
    }
    if compiled:
        whole = torch.compile(plain.bert.encoder, dynamic=False)

        def with_compile(batch: Batch) -> None:
            with mock.patch.object(plain.bert, "encoder", whole), mock.patch.object(runs, "record", mock.MagicMock()):
                train_step(plain, batch, CPU)
            plain_update()

        found[f"{LARGE:,} tokens a step, torch.compile of the layers"] = (with_compile, pairs, LARGE)
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


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of pre-training.")
    parser.add_argument("--compile", action="store_true", help="try torch.compile too, which needs a C++ compiler")
    arguments = parse_arguments(parser)
    if platform.libc_ver()[0] == "glibc" and not os.environ.keys() >= MALLOC.keys():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**MALLOC, **os.environ})
    found = table(arguments.compile)
    print(found)
    if arguments.write:
        write_table(__file__, found)


if __name__ == "__main__":
    main()
