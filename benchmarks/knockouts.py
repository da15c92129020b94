"""Every arrow of one head of a base-size BERT cut by itself: together, by one edited pass and one hooked pass an arrow.

    python benchmarks/knockouts.py            print the table
    python benchmarks/knockouts.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/knockouts.py --quick    the smallest size, to check that it works

All sides hold the same weights, cut as -inf among the scores, ask for one word at one position, and must find the same
log-probabilities, to 1e-5 of the largest, before a clock starts. Each layer has a process of its own.
"""

from __future__ import annotations

import math
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from encoder import KEPT, TOKEN, in_turns
from patching import loaded_model, peer_of, text_of
from tables import QUICK, command, in_own_process
from torch import Tensor

import bert_core
from bert_core import AttentionKnockout, Encoding, LoadedModel, Target
from bert_core.run.targets import target_values

TOKENS, HEAD, REPEATS = 8, 3, 1 if QUICK else 3
LAYERS = (0, 1) if QUICK else (0, 5, 11)


@torch.no_grad()
def one_by_one(loaded: LoadedModel, text: Encoding, target: Target, layer: int) -> np.ndarray:
    """Ours: one edited model an arrow, and one pass of it that computes the last layer where it is asked."""
    ids, rows = (torch.tensor([numbers], device=loaded.device) for numbers in (text.input_ids, target.rows))
    differences = np.empty((len(text), len(text)))
    for query, key in np.ndindex(differences.shape):
        edited = bert_core.edited(loaded, [AttentionKnockout((query,), (key,), (layer,), (HEAD,))])
        states = edited.model.bert(ids, positions=rows).last_hidden_state
        differences[query, key] = target_values(edited, text, target, states).item()
    return differences


@torch.no_grad()
def hooked(model: transformers.BertForPreTraining, text: Encoding, target: Target, layer: int) -> np.ndarray:
    """Theirs: a hook hands the layer a mask with -inf at one arrow, and one pass is run for each."""
    ids = torch.tensor([text.input_ids], device=next(model.parameters()).device)
    module, heads = model.bert.encoder.layer[layer].attention.self, model.config.num_attention_heads
    differences = np.empty((len(text), len(text)))
    for query, key in np.ndindex(differences.shape):
        mask = torch.zeros(1, heads, *differences.shape, device=ids.device)
        mask[0, HEAD, query, key] = -math.inf

        def cut(_: object, args: tuple[Any, ...], keywords: dict[str, Any], mask: Tensor = mask) -> Any:
            return args[:1], {**keywords, "attention_mask": mask}

        hook = module.register_forward_pre_hook(cut, with_kwargs=True)
        states = model.bert(ids).last_hidden_state[:, target.position]
        differences[query, key] = model.cls.predictions(states).log_softmax(-1)[0, target.token_id].item()
        hook.remove()
    return differences


def measure(layer: int, repeats: int) -> dict[str, object]:
    """Median milliseconds of each side, and the largest difference."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = loaded_model(Path(folder))
    theirs = peer_of(loaded)
    text, target = text_of(loaded, TOKENS, 0), Target("mlm", TOKENS // 2, TOKEN)
    ids = torch.tensor([text.input_ids], device=loaded.device)
    sides: dict[str, Callable[[Tensor], np.ndarray]] = {
        "ours": lambda _: bert_core.knock_out_edges(loaded, text, target, layer, HEAD),
        "ours, one edited pass an arrow": lambda _: one_by_one(loaded, text, target, layer),
        "transformers, one hooked pass an arrow": lambda _: hooked(theirs, text, target, layer),
    }
    ours, edited, peers = (side(ids) for side in sides.values())
    difference = max(float(np.abs(result - peers).max() / np.abs(peers).max()) for result in (ours, edited))
    if difference > 1e-5:
        raise SystemExit(f"layer {layer}: the sides differ by {difference} of the largest")
    ms, machine = in_turns(sides, ids, repeats)
    return {"arrows": ours.size, "ms": ms, "apart": difference, "machine": machine}


def table() -> str:
    """The whole measurement as Markdown."""
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"transformers {transformers.__version__}; malloc as `headlight` sets it. Medians of {REPEATS} runs a side, "
        f"{TOKENS} tokens.\n",
        "| layer | arrows | `knock_out_edges`, ms | one edited pass an arrow, ms | one hooked pass an arrow, ms | "
        "`knock_out_edges` is faster | apart, of the largest | load; others' CPUs |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for layer in LAYERS:
        result = in_own_process(__file__, layer, REPEATS, malloc=KEPT)
        ours, edited, peers = result["ms"].values()
        lines.append(
            f"| {layer} | {result['arrows']} | {ours:.0f} | {edited:.0f} | {peers:.0f} | {peers / ours:.1f} | "
            f"{result['apart']:.0e} | {result['machine']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Every arrow of a head cut.", table, measure)
