"""What every head is worth: ours beside the plain way, for one sentence and for a file of them.

    python benchmarks/heads.py            print the tables
    python benchmarks/heads.py --write    and put them between the markers of benchmarks/README.md
    python benchmarks/heads.py --quick    one run a side on few sentences, to try a change

One sentence, base size: the slope of a word's log-probability with each of 144 heads, from `capture` (one pass forward,
one back) and from autograd with a gate of its own for every head, one backward pass a gate; both keep no gradient of a
weight. A file, headlight-mini: the mean size of the slope of every head over sentences, as `headlight heads
--importance` finds it, and in a plain loop over transformers: its own loss on the same hidden pieces, its own
attentions, map times gradient. Both sides must find the same numbers (to 1e-4 of the largest) before a clock starts.
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
from collections.abc import Callable, Sequence

import numpy as np
import torch
import transformers
from encoder import KEPT, SEED, TOKEN, TOLERANCE, busy_and_own, seconds_of, sentence
from tables import write_table
from torch import Tensor

import bert_core
from bert_core.checkpoint import LoadReport
from bert_core.config import BertConfig
from bert_core.loading import LoadedModel, best_device
from bert_core.modeling import BertForPreTraining
from bert_core.records import Target
from bert_core.run.capture import capture
from bert_core.run.losses import AskedText, gate_gradients, hide_pieces
from bert_core.tokenizer import Encoding

TOKENS = (16, 128)
REPEATS = {16: 5, 128: 3}
SENTENCES, ROUNDS = 256, 3
WORDS = ("the", "old", "king", "saw", "a", "river", "and", "she", "went", "to", "london", "in", "winter", ".")


def by_capture(loaded: LoadedModel, ids: Tensor) -> np.ndarray:
    """Ours: (layer, head)."""
    middle = ids.shape[1] // 2
    row = tuple(ids[0].tolist())
    encoding = Encoding(
        "", None, ("x",) * len(row), row, (0,) * len(row), ((0, 1),) * len(row), tuple(range(len(row))),
        ("A",) * len(row), len(row),
    )  # fmt: skip
    slopes = capture(loaded, encoding, target=Target("mlm", middle, TOKEN), positions=(middle,)).gate_gradient
    assert slopes is not None  # there is a target
    return slopes


def gate_by_gate(model: BertForPreTraining, ids: Tensor) -> np.ndarray:
    """The plain way: one leaf a head, and one backward pass for each through one forward pass."""
    config, middle = model.config, ids.shape[1] // 2
    shape = (config.num_hidden_layers, config.num_attention_heads)
    leaves = [torch.ones((), device=ids.device, requires_grad=True) for _ in range(shape[0] * shape[1])]
    hidden = model.bert(ids, head_mask=torch.stack(leaves).view(shape)).last_hidden_state[:, middle]
    value = model.cls.predictions(hidden).log_softmax(-1)[0, TOKEN]
    found = [torch.autograd.grad(value, leaf, retain_graph=True)[0].item() for leaf in leaves]
    return np.array(found, np.float32).reshape(shape)


def corpus(loaded: LoadedModel, count: int) -> list[AskedText]:
    """Sentences of 8 to 40 words drawn from a seed, some pieces hidden."""
    rng = np.random.default_rng(SEED)
    texts = [" ".join(rng.choice(WORDS, rng.integers(8, 41))) for _ in range(count)]
    return [hide_pieces(loaded.tokenizer, loaded.tokenizer.encode(text), rng) for text in texts]


def ours_over(loaded: LoadedModel, texts: Sequence[AskedText]) -> np.ndarray:
    """Mean size of the slopes, (layer, head)."""
    found: np.ndarray = np.abs(gate_gradients(loaded, texts)[1]).mean(0)
    return found


def theirs_over(model: transformers.BertForPreTraining, texts: Sequence[AskedText]) -> np.ndarray:
    """The same from transformers' own attentions, one sentence after another."""
    total = np.zeros((model.config.num_hidden_layers, model.config.num_attention_heads))
    for text in texts:
        encoding = text.encoding
        embeddings = model.bert.embeddings.word_embeddings(torch.tensor([encoding.input_ids])).detach().requires_grad_()
        output = model(inputs_embeds=embeddings, output_attentions=True)
        rows = output.prediction_logits[0, list(text.positions)]
        loss = torch.nn.functional.cross_entropy(rows, torch.tensor(text.answers))
        slopes = torch.autograd.grad(loss, output.attentions)
        each = [(a * g).sum((0, 2, 3)) for a, g in zip(output.attentions, slopes, strict=True)]
        total += torch.stack(each).detach().numpy().__abs__()
    return total / len(texts)


def check(what: str, ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference over the largest value; ends the run where it is too large."""
    difference = float(np.abs(ours - theirs).max() / np.abs(ours).max())
    if difference > TOLERANCE:
        raise SystemExit(f"{what}: the two sides differ by {difference}")
    return difference


def in_turns(sides: dict[str, Callable[[], np.ndarray]], repeats: int) -> dict[str, object]:
    """Median seconds of each side, and what else ran on the machine."""
    (busy, used), start = busy_and_own(), time.perf_counter()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            seconds[name].append(seconds_of(lambda _, side=side: side(), torch.empty(0)))
    (busy_after, used_after), elapsed = busy_and_own(), time.perf_counter() - start
    return {
        "seconds": {name: statistics.median(times) for name, times in seconds.items()},
        "machine": f"{os.getloadavg()[0]:.1f}; {max(busy_after - busy - used_after + used, 0) / elapsed:.2f}",
    }


def measure_sentence(tokens: int, repeats: int) -> dict[str, object]:
    """Ours and one backward pass a gate, on one sentence."""
    torch.manual_seed(SEED)
    device = best_device()
    model = BertForPreTraining(BertConfig(initializer_range=0.05)).eval().requires_grad_(False).to(device)
    tokenizer = bert_core.load("headlight-mini", device="cpu").tokenizer
    loaded = LoadedModel("base", model, tokenizer, LoadReport("", (), ()), device)
    ids = sentence(tokens)
    difference = check(f"{tokens} tokens", by_capture(loaded, ids), gate_by_gate(model, ids))
    sides = {"ours": lambda: by_capture(loaded, ids), "theirs": lambda: gate_by_gate(model, ids)}
    return in_turns(sides, repeats) | {"difference": difference}


def measure_corpus(count: int, repeats: int) -> dict[str, object]:
    """Ours in batches and a plain loop over transformers, on sentences."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    config = transformers.BertConfig(**{name: getattr(loaded.config, name) for name in names})
    peer = transformers.BertForPreTraining._from_config(config, attn_implementation="eager").eval()
    peer.load_state_dict(loaded.model.state_dict())
    peer.requires_grad_(False)
    texts = corpus(loaded, count)
    difference = check("sentences", ours_over(loaded, texts), theirs_over(peer, texts))
    sides = {"ours": lambda: ours_over(loaded, texts), "theirs": lambda: theirs_over(peer, texts)}
    return in_turns(sides, repeats) | {"difference": difference}


def in_a_process(*arguments: object) -> dict:
    """What this script finds with these arguments in a process of its own."""
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, **KEPT}, stdout=subprocess.PIPE, check=True)
    found: dict = json.loads(done.stdout)
    return found


def tables(quick: bool) -> str:
    """The whole measurement as Markdown."""
    repeats = {tokens: 1 if quick else REPEATS[tokens] for tokens in TOKENS}
    rounds, count = (1, 16) if quick else (ROUNDS, SENTENCES)
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"transformers {transformers.__version__}; malloc as `headlight` sets it; medians of "
        f"{', '.join(f'{n} (at {t} tokens)' for t, n in repeats.items())} runs a side, {rounds} over sentences.\n",
        "| one sentence, base size | ours, ms | one backward pass a gate, ms | times faster | load; others' CPUs |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for tokens in TOKENS:
        found = in_a_process("--tokens", tokens, "--repeats", repeats[tokens])
        ours, theirs = found["seconds"]["ours"], found["seconds"]["theirs"]
        lines.append(
            f"| {tokens} tokens | {1000 * ours:.0f} | {1000 * theirs:.0f} | {theirs / ours:.1f} | {found['machine']} |"
        )
    found = in_a_process("--sentences", count, "--repeats", rounds)
    ours, theirs = (count / found["seconds"][side] for side in ("ours", "theirs"))
    lines += [
        "\n| a file, headlight-mini | ours, sentences/s | transformers, sentences/s | times faster | "
        "load; others' CPUs |",
        "| --- | ---: | ---: | ---: | --- |",
        f"| {count} sentences | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} | {found['machine']} |",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Importance of every head.")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    parser.add_argument("--quick", action="store_true", help="one run a side, few sentences")
    parser.add_argument("--tokens", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--sentences", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tokens:
        print(json.dumps(measure_sentence(arguments.tokens, arguments.repeats)))
        return
    if arguments.sentences:
        print(json.dumps(measure_corpus(arguments.sentences, arguments.repeats)))
        return
    found = tables(arguments.quick)
    print(found)
    if arguments.write:
        write_table(__file__, found)


if __name__ == "__main__":
    main()
