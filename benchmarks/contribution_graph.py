"""The contribution graph of a base-size BERT by ALTI, and the same shares by a loop over the queries of transformers.

    python benchmarks/contribution_graph.py            print the table
    python benchmarks/contribution_graph.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/contribution_graph.py --quick    the smallest size, to check that it works

Both sides have the same weights. The peer keeps the hidden states and the attention maps of transformers, and computes
the vectors of one query at a time. Both must find the same shares within 1e-4 before a clock starts. Ours also divides
each share among the heads. Each length has a process of its own.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from encoder import KEPT, in_turns
from patching import loaded_model, peer_of, text_of
from tables import QUICK, command, in_own_process
from torch import Tensor

import bert_core
from bert_core import Encoding

LENGTHS, REPEATS = ((16,) if QUICK else (16, 128, 512)), 1 if QUICK else 3


@torch.no_grad()
def loop_over_queries(model: transformers.BertForPreTraining, text: Encoding) -> np.ndarray:
    """Return the shares of ALTI (layer, query, key) of transformers' model, one query at a time."""
    ids = torch.tensor([text.input_ids], device=next(model.parameters()).device)
    outputs = model.bert(ids, output_hidden_states=True, output_attentions=True)
    layers = []
    for number, layer in enumerate(model.bert.encoder.layer):
        states, maps = outputs.hidden_states[number][0], outputs.attentions[number][0]
        value, output = layer.attention.self.value, layer.attention.output
        size, norm = len(states[0]) // len(maps), output.LayerNorm
        vectors = [
            value(states)[:, head * size : (head + 1) * size]
            @ output.dense.weight[:, head * size : (head + 1) * size].T
            for head in range(len(maps))
        ]
        rows = []
        for query in range(len(states)):
            parts = sum(maps[head, query, :, None] * vectors[head] for head in range(len(maps)))
            parts[query] += states[query]
            total = parts.sum(0) + output.dense.bias
            target = norm(total)
            spread = (total.var(unbiased=False) + norm.eps).sqrt()
            parts = (parts - parts.mean(-1, keepdim=True)) * norm.weight / spread
            scores = (target.abs().sum() - (target - parts).abs().sum(-1)).clamp(min=0)
            rows.append(scores / scores.sum())
        layers.append(torch.stack(rows))
    return torch.stack(layers).double().numpy()


def measure(length: int, repeats: int) -> dict[str, object]:
    """Return the median milliseconds of each side, and the largest difference of a share."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = loaded_model(Path(folder))
    peer, text = peer_of(loaded), text_of(loaded, length, 0)
    peer.set_attn_implementation("eager")  # the only implementation that returns attention maps
    ids = torch.tensor([text.input_ids], device=loaded.device)
    sides: dict[str, Callable[[Tensor], np.ndarray]] = {
        "contribution_graph": lambda _: bert_core.contribution_graph(loaded, text).shares,
        "loop over queries": lambda _: loop_over_queries(peer, text),
    }
    graph_shares, loop_shares = (side(ids) for side in sides.values())
    difference = float(np.abs(graph_shares - loop_shares).max())
    if difference > 1e-4:
        raise SystemExit(f"{length} tokens: the shares of the sides differ by {difference}")
    milliseconds, machine = in_turns(sides, ids, repeats)
    return {"ms": milliseconds, "apart": difference, "machine": machine}


def table() -> str:
    """Return the whole measurement as Markdown."""
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"transformers {transformers.__version__}; malloc as `headlight` sets it. Medians of {REPEATS} runs a side.\n",
        "| tokens | `contribution_graph`, ms | loop over queries, ms | times faster | largest difference of a share | "
        "load; others' CPUs |",
        "| ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for length in LENGTHS:
        result = in_own_process(__file__, length, REPEATS, malloc=KEPT)
        graph_ms, loop_ms = result["ms"].values()
        lines.append(
            f"| {length} | {graph_ms:.0f} | {loop_ms:.0f} | {loop_ms / graph_ms:.2f} | {result['apart']:.0e} | "
            f"{result['machine']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "The contribution graph of a text.", table, measure)
