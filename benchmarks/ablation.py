"""Every head of a base-size BERT taken out in turn: in our batches, and by one forward pass a head.

    python benchmarks/ablation.py            print the table
    python benchmarks/ablation.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/ablation.py --quick    the smallest size, to check that it works

All sides hold the same weights and must find the same log-probabilities (transformers to 1e-4, our own to 1e-5) before
a clock starts; each asks for one word at one position. Each number of tokens has a process of its own.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable

import numpy as np
import torch
import transformers
from encoder import KEPT, SEED, TOKEN, in_turns, sentence
from tables import QUICK, SIZES, command, in_own_process
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.loading import best_device
from bert_core.modeling import BertForPreTraining
from bert_core.run.ablation import iter_head_ablations

TARGETS = {16: 6.0, 32: 5.0, 128: 2.5}  # tokens -> how many times faster than one masked forward a head
BF16_TARGETS = {128: 6.0}
REPEATS = {16: 1} if QUICK else {16: 5, 32: 3, 128: 3}


def in_batches(model: BertForPreTraining, ids: Tensor, autocast: bool) -> np.ndarray:
    """Ours: log-probability of the word (layer, head) without each head."""
    bert, config = model.bert, model.config
    middle = torch.tensor([[ids.shape[1] // 2]], device=ids.device)
    log_probs = []
    with torch.no_grad(), torch.autocast(ids.device.type, torch.bfloat16, enabled=autocast):
        _, ablated_states = iter_head_ablations(list(bert.encoder.layer), bert.embeddings(ids), middle)
        for _, states in ablated_states:
            log_probs.append(model.cls.predictions(states[:, 0, 0]).float().log_softmax(-1)[:, TOKEN])
    return torch.cat(log_probs).reshape(config.num_hidden_layers, config.num_attention_heads).cpu().numpy()


@torch.no_grad()
def heads_one_by_one(model: BertForPreTraining, ids: Tensor) -> np.ndarray:
    """One forward pass a head with its gate at zero, the last layer and the word head at the asked position alone."""
    middle = torch.tensor([[ids.shape[1] // 2]], device=ids.device)
    differences = np.empty((model.config.num_hidden_layers, model.config.num_attention_heads), np.float32)
    for layer, head in np.ndindex(differences.shape):
        gates = torch.ones(differences.shape, device=ids.device)
        gates[layer, head] = 0
        hidden = model.bert(ids, head_mask=gates, positions=middle).last_hidden_state[:, 0]
        differences[layer, head] = model.cls.predictions(hidden).log_softmax(-1)[0, TOKEN].item()
    return differences


@torch.no_grad()
def hooked(model: transformers.BertForPreTraining, ids: Tensor) -> np.ndarray:
    """Theirs: transformers 5 has no head mask, so a hook silences the head before the output projection."""
    config = model.config
    size = config.hidden_size // config.num_attention_heads
    differences = np.empty((config.num_hidden_layers, config.num_attention_heads), np.float32)
    for layer, head in np.ndindex(differences.shape):

        def silence(_module: torch.nn.Module, inputs: tuple[Tensor], head: int = head) -> tuple[Tensor]:
            changed = inputs[0].clone()
            changed[..., head * size : (head + 1) * size] = 0
            return (changed,)

        hook = model.bert.encoder.layer[layer].attention.output.dense.register_forward_pre_hook(silence)
        hidden = model.bert(ids).last_hidden_state[:, ids.shape[1] // 2]
        hook.remove()
        differences[layer, head] = model.cls.predictions(hidden).log_softmax(-1)[0, TOKEN].item()
    return differences


def ranks(values: np.ndarray) -> np.ndarray:
    return values.ravel().argsort().argsort()


def measure(tokens: int, repeats: int) -> dict[str, object]:
    """Median milliseconds of each side, the largest difference, and the rank correlation of bfloat16."""
    torch.manual_seed(SEED)
    device = best_device()
    ours = BertForPreTraining(BertConfig(initializer_range=0.05, **SIZES)).eval().requires_grad_(False).to(device)
    theirs = transformers.BertForPreTraining(transformers.BertConfig(attn_implementation="sdpa", **SIZES)).eval()
    theirs.to(device).load_state_dict(ours.state_dict())
    sides: dict[str, Callable[[Tensor], np.ndarray]] = {
        "ours": lambda ids: in_batches(ours, ids, autocast=False),
        "ours, bfloat16": lambda ids: in_batches(ours, ids, autocast=True),
        "one masked pass a head": lambda ids: heads_one_by_one(ours, ids),
        "transformers, one hooked pass a head": lambda ids: hooked(theirs, ids),
    }
    ids = sentence(tokens)
    results = {name: side(ids) for name, side in sides.items()}
    base = np.abs(results["ours"]).max()
    own_error, peers = (np.abs(results["ours"] - result).max() / base for result in list(results.values())[2:])
    if own_error > 1e-5 or peers > 1e-4:
        raise SystemExit(
            f"{tokens} tokens: ours differs by {own_error} from our masked passes, by {peers} from the hooked ones"
        )
    ms, machine = in_turns(sides, ids, repeats)
    correlation = np.corrcoef(ranks(results["ours"]), ranks(results["ours, bfloat16"]))[0, 1]
    return {
        "ms": ms,
        "difference": float(own_error),
        "correlation": float(correlation),
        "machine": machine,
    }


def table() -> str:
    """The whole measurement as Markdown."""
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"transformers {transformers.__version__}; malloc as `headlight` sets it. Medians of "
        f"{', '.join(f'{n} (at {t} tokens)' for t, n in REPEATS.items())} runs a side.\n",
        "| tokens | | ms | times faster than one masked pass a head | than transformers, hooked | target | "
        "load; others' CPUs |",
        "| ---: | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for tokens, repeats in REPEATS.items():
        result = in_own_process(__file__, tokens, repeats, malloc=KEPT)
        masked, peer = list(result["ms"].values())[2:]
        for name, targets in (("ours", TARGETS), ("ours, bfloat16", BF16_TARGETS)):
            ms, goal = result["ms"][name], targets.get(tokens)
            goal_met = "" if goal is None else f"{goal:g} {'met' if masked / ms >= goal else '**missed**'}"
            label = name if name == "ours" else f"{name} (rank correlation {result['correlation']:.3f})"
            lines.append(
                f"| {tokens} | {label} | {ms:.0f} | {masked / ms:.2f} | {peer / ms:.2f} | {goal_met} | "
                f"{result['machine']} |"
            )
        lines.append(f"| {tokens} | one masked pass a head | {masked:.0f} | 1 | {peer / masked:.2f} | | |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Ablation of every head.", table, measure)
