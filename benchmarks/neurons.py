"""Integrated gradients over the feed-forward neurons of one layer of a base-size BERT, beside captum's.

    python benchmarks/neurons.py            print the table
    python benchmarks/neurons.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/neurons.py --quick    the smallest size, to check that it works

Both sides hold the same weights, turn all neurons of the layer up from 0 in the same steps, ask for one word at one
position, and must find the same score of every neuron at every token, to 1e-4 of the largest, before a clock starts.
captum's LayerIntegratedGradients runs on our model: what it takes is the number that the neurons are multiplied by.
Each layer has a process of its own.
"""

from __future__ import annotations

import copy
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

import captum
import numpy as np
import torch
from captum.attr import LayerIntegratedGradients
from encoder import KEPT, TOKEN, in_turns
from patching import loaded_model, text_of
from tables import QUICK, command, in_own_process
from torch import Tensor, nn

import bert_core
from bert_core import Encoding, LoadedModel, Target

TOKENS, STEPS, REPEATS = 16, 20, 1 if QUICK else 3
LAYERS = (0, 1) if QUICK else (0, 5, 11)


class Times(nn.Module):
    """The neurons of a layer, times a number for each copy of the text."""

    def __init__(self, intermediate: nn.Module) -> None:
        super().__init__()
        self.intermediate, self.by = intermediate, torch.ones(1)

    def forward(self, states: Tensor) -> Tensor:
        """(copies, seq, hidden) -> (copies, seq, intermediate)."""
        out: Tensor = self.intermediate(states) * self.by[:, None, None]
        return out


def by_captum(loaded: LoadedModel, text: Encoding, target: Target, layer: int) -> Callable[[Tensor], np.ndarray]:
    """Theirs: the whole model for every step, all steps of a batch together as ours."""
    model = copy.deepcopy(loaded.model)
    model.bert.encoder.layer[layer].intermediate = times = Times(model.bert.encoder.layer[layer].intermediate)
    ids = torch.tensor([text.input_ids])

    def value(scale: Tensor) -> Tensor:
        times.by = scale
        states = model.bert(ids.expand(len(scale), -1)).last_hidden_state[:, target.position]
        scores: Tensor = model.cls.predictions(states).log_softmax(-1)
        return scores[:, target.token_id]

    peer = LayerIntegratedGradients(value, times)

    def scores(_: Tensor) -> np.ndarray:
        attributions = peer.attribute(torch.ones(1), torch.zeros(1), n_steps=STEPS, method="gausslegendre")
        return attributions[0].detach().numpy()

    return scores


def measure(layer: int, repeats: int) -> dict[str, object]:
    """Median milliseconds of each side, the largest difference, and what the scores of ours miss."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = loaded_model(Path(folder))
    text, target = text_of(loaded, TOKENS, 0), Target("mlm", TOKENS // 2, TOKEN)
    sides: dict[str, Callable[[Tensor], np.ndarray]] = {
        "ours": lambda _: bert_core.neuron_gradients(loaded, text, target, layers=[layer], steps=STEPS).scores[0],
        "captum": by_captum(loaded, text, target, layer),
    }
    ids = torch.tensor([text.input_ids])
    ours, theirs = (side(ids) for side in sides.values())
    difference = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    if difference > 1e-4:
        raise SystemExit(f"layer {layer}: the sides differ by {difference} of the largest")
    attributions = bert_core.neuron_gradients(loaded, text, target, layers=[layer], steps=STEPS)
    missed = float(abs(attributions.gap[0]) / abs(attributions.target_value - attributions.off_values[0]))
    ms, machine = in_turns(sides, ids, repeats)
    return {"neurons": ours.size, "ms": ms, "apart": difference, "missed": missed, "machine": machine}


def table() -> str:
    """The whole measurement as Markdown."""
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"captum {captum.__version__}; malloc as `headlight` sets it. Medians of {REPEATS} runs a side, {TOKENS} "
        f"tokens, {STEPS} steps.\n",
        "| layer | scores | `neuron_gradients`, ms | captum, ms | `neuron_gradients` is faster | apart, of the largest "
        "| missed, of the way | load; others' CPUs |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for layer in LAYERS:
        result = in_own_process(__file__, layer, REPEATS, malloc=KEPT)
        ours, theirs = result["ms"].values()
        lines.append(
            f"| {layer} | {result['neurons']:,} | {ours:.0f} | {theirs:.0f} | {theirs / ours:.1f} | "
            f"{result['apart']:.0e} | {result['missed']:.0e} | {result['machine']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Integrated gradients over neurons.", table, measure)
