"""Dose and response of a steering vector in a base-size BERT: all passes in batches, and by one hooked pass each.

    python benchmarks/steering.py            print the table
    python benchmarks/steering.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/steering.py --quick    the smallest size, to check that it works

Both sides hold the same weights and add a vector and random vectors of the same norm, times several factors, to all
typed tokens in the middle of the layers. They compute the log-probability of a word and the change of the predictions
at all other words, and must agree to 1e-4 of the largest before a clock starts. Each number of tokens has a process of
its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from encoder import KEPT, TOKEN, in_turns
from patching import loaded_model, passes_table, peer_of, text_of
from tables import QUICK, SIZES, command
from torch import Tensor

import bert_core
from bert_core import Encoding, Target
from bert_core.config import BertConfig

TARGETS = {16: 2.0}  # tokens -> how many times faster than one hooked pass for each vector and factor
REPEATS = {16: 1} if QUICK else {16: 3}
FACTORS = (-1.0, 1.0) if QUICK else (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)
DRAWS = 2 if QUICK else 10
DEPTH = BertConfig(**SIZES).num_hidden_layers // 2


@torch.no_grad()
def hooked(
    model: transformers.BertForPreTraining, text: Encoding, target: Target, vectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Theirs: a hook adds a vector, and one pass is run for each; values and divergences (vector, factor).

    vectors: (vector, hidden).
    """
    device = next(model.parameters()).device
    ids = torch.tensor([text.input_ids], device=device)
    segments = torch.tensor([text.token_type_ids], device=device)
    typed_positions = [position for position, special in enumerate(text.special) if not special]
    other_positions = [position for position in typed_positions if position != target.position]

    def run() -> tuple[Tensor, Tensor]:
        states = model.bert(ids, token_type_ids=segments).last_hidden_state[0]
        scores: Tensor = model.cls.predictions(states[[target.position, *other_positions]]).log_softmax(-1)
        return scores[0, target.token_id], scores[1:]

    _, original = run()
    values, divergences = np.empty((2, len(vectors), len(FACTORS)))
    for row, column in np.ndindex(values.shape):
        added = torch.zeros(1, len(text), vectors.shape[1], device=device)
        added[0, typed_positions] = torch.from_numpy(vectors[row] * FACTORS[column]).to(added)

        def add(_module: object, _inputs: object, out: Tensor | tuple[Tensor, ...], added: Tensor = added) -> object:
            return out + added if isinstance(out, Tensor) else (out[0] + added, *out[1:])

        hook = model.bert.encoder.layer[DEPTH - 1].register_forward_hook(add)
        value, scores = run()
        hook.remove()
        values[row, column] = value.item()
        divergences[row, column] = (original.exp() * (original - scores)).sum(-1).mean().item()
    return values, divergences


def measure(tokens: int, repeats: int) -> dict[str, object]:
    """Median milliseconds of each side, and the largest difference."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = loaded_model(Path(folder))
    theirs, text = peer_of(loaded), text_of(loaded, tokens, 0)
    target = Target("mlm", tokens // 2, TOKEN)
    vector = np.random.default_rng(0).standard_normal(loaded.config.hidden_size).astype(np.float32)
    vectors = np.concatenate([vector[None], bert_core.random_vectors(vector, DRAWS, 0)])

    def ours() -> tuple[np.ndarray, np.ndarray]:
        steering = bert_core.steer(loaded, text, target, vector, DEPTH, factors=FACTORS, draws=DRAWS, seed=0)
        values = np.concatenate([steering.values[None], steering.random_values])
        return values, np.concatenate([steering.divergences[None], steering.random_divergences]).mean(-1)

    sides: dict[str, Callable[[Tensor], object]] = {
        "ours": lambda _: ours(),
        "transformers, one hooked pass each": lambda _: hooked(theirs, text, target, vectors),
    }
    difference = max(
        float(np.abs(own - peer).max() / np.abs(peer).max())
        for own, peer in zip(ours(), hooked(theirs, text, target, vectors), strict=True)
    )
    if difference > 1e-4:
        raise SystemExit(f"{tokens} tokens: the sides differ by {difference} of the largest")
    ms, machine = in_turns(sides, torch.tensor([text.input_ids], device=loaded.device), repeats)
    return {"passes": len(vectors) * len(FACTORS), "ms": ms, "apart": difference, "machine": machine}


def table() -> str:
    """The whole measurement as Markdown."""
    return passes_table(__file__, REPEATS, TARGETS, "passes", "one hooked pass each", malloc=KEPT)


if __name__ == "__main__":
    command(__file__, "Steering with many factors and random vectors.", table, measure)
