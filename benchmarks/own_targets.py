"""A callable as target on a base-size BERT: gradients of all maps and all heads ablated, beside hooks in transformers.

    python benchmarks/own_targets.py            print the table
    python benchmarks/own_targets.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/own_targets.py --quick    the smallest size, to check that it works

The target is the norm of half of a state of the last layer. Both sides hold the same weights, and must find the same
gradients and values, to 1e-4 of the largest, before a clock starts. Each size has a process of its own.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from encoder import KEPT, in_turns
from patching import loaded_model, peer_of, text_of
from tables import QUICK, command, in_own_process
from torch import Tensor

import bert_core
from bert_core import Target, TargetOutputs

REPEATS = {8: 1} if QUICK else {16: 5, 48: 3}  # tokens -> runs of each side
ROW = 2  # position of the state


def norm(outputs: TargetOutputs) -> Tensor:
    """The callable."""
    return outputs.states[:, 0, ::2].norm(dim=-1)


def peer_gradients(model: transformers.BertForPreTraining, ids: Tensor) -> np.ndarray:
    """Gradients (layer, head, query, key) in transformers, with the word embeddings as the leaf."""
    words = model.bert.embeddings.word_embeddings(ids).detach().requires_grad_()
    outputs = model.bert(inputs_embeds=words, output_attentions=True)
    gradients = torch.autograd.grad(outputs.last_hidden_state[0, ROW, ::2].norm(), outputs.attentions)
    return torch.cat(gradients).cpu().numpy()


@torch.no_grad()
def peer_ablation(model: transformers.BertForPreTraining, ids: Tensor) -> np.ndarray:
    """Values (layer, head) in transformers: a hook removes the output of one head, and one pass is run for each."""
    config = model.config
    size = config.hidden_size // config.num_attention_heads
    values = np.empty((config.num_hidden_layers, config.num_attention_heads))
    for layer, head in np.ndindex(values.shape):

        def remove(_: object, inputs: tuple[Any, ...], head: int = head) -> tuple[Any, ...]:
            states = inputs[0].clone()
            states[..., head * size : (head + 1) * size] = 0
            return (states, *inputs[1:])

        hook = model.bert.encoder.layer[layer].attention.output.dense.register_forward_pre_hook(remove)
        values[layer, head] = model.bert(ids).last_hidden_state[0, ROW, ::2].norm().item()
        hook.remove()
    return values


def measure(tokens: int, repeats: int) -> dict[str, Any]:
    """Median milliseconds of each side and analysis, and the largest difference."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = loaded_model(Path(folder))
    model = peer_of(loaded)
    model.set_attn_implementation("eager")
    model.requires_grad_(False)
    text, target = text_of(loaded, tokens, 0), Target("custom", name="norm", function=norm, positions=(ROW,))
    ids = torch.tensor([text.input_ids], device=loaded.device)
    analyses: dict[str, dict[str, Callable[[Tensor], np.ndarray | None]]] = {
        "gradients": {
            "ours": lambda _: bert_core.capture(loaded, text, target=target, positions=()).gradient,
            "transformers": lambda ids: peer_gradients(model, ids),
        },
        "all heads ablated": {
            "ours": lambda _: bert_core.ablate_heads(loaded, text, target=target, positions=()).values,
            "transformers": lambda ids: peer_ablation(model, ids),
        },
    }
    results: dict[str, Any] = {}
    for name, sides in analyses.items():
        values, expected = (np.asarray(side(ids)) for side in sides.values())
        difference = float(np.abs(values - expected).max() / np.abs(expected).max())
        if difference > 1e-4:
            raise SystemExit(f"{name}, {tokens} tokens: the sides differ by {difference} of the largest")
        ms, machine = in_turns(sides, ids, repeats)
        results[name] = {"ms": ms, "difference": difference, "machine": machine}
    return results


def table() -> str:
    """The whole measurement as Markdown."""
    counts = " and ".join(f"{repeats} (at {tokens} tokens)" for tokens, repeats in REPEATS.items())
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"transformers {transformers.__version__}; malloc as `headlight` sets it. Medians of {counts} runs a side.\n",
        "| analysis | tokens | callable target, ms | hooks in transformers, ms | ratio | apart, of the largest | "
        "load; others' CPUs |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for tokens, repeats in REPEATS.items():
        for name, result in in_own_process(__file__, tokens, repeats, malloc=KEPT).items():
            ours, peer = result["ms"].values()
            lines.append(
                f"| {name} | {tokens} | {ours:.0f} | {peer:.0f} | {ours / peer:.2f} | {result['difference']:.0e} | "
                f"{result['machine']} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Callable targets.", table, measure)
