"""The speed of a model on this machine, measured once, for estimates of how long an analysis takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bert_core.editing import unedited
from bert_core.loading import LoadedModel
from bert_core.run.memory import TOKENS_AT_ONCE, tokens_at_once

_SHORT_TOKENS, _LONG_TOKENS, _ROUNDS = 8, 128, 5


@dataclass(frozen=True)
class PassTiming:
    """Seconds that a model takes on a device.

    seconds_per_pass: fixed cost of one forward pass. seconds_per_token: additional cost of each token.
    seconds_per_prediction: cost of the log-probabilities of the whole vocabulary, and of sorting them, at one position.
    tokens_at_once: tokens that are computed together.
    The times hold for short texts. Attention to hundreds of tokens takes longer than they say.
    """

    seconds_per_pass: float
    seconds_per_token: float
    seconds_per_prediction: float
    tokens_at_once: int = TOKENS_AT_ONCE

    def estimate_seconds(self, tokens: int, passes: float = 1, predictions: float = 0) -> float:
        """Estimate the seconds of forward passes over a text; a backward pass counts as two passes.

        tokens: of the text. passes: number of copies of the text, which are batched.
        predictions: number of positions at which the whole vocabulary is scored and sorted.
        """
        token_count = passes * tokens
        return (
            max(token_count / self.tokens_at_once, min(passes, 1)) * self.seconds_per_pass
            + token_count * self.seconds_per_token
            + predictions * self.seconds_per_prediction
        )


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished all work that was submitted to it; on the CPU there is nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@torch.no_grad()
def measure_timing(loaded: LoadedModel) -> PassTiming:
    """Measure the speed of a model, each time as the fastest of five rounds, since other work only slows them down."""
    loaded = unedited(loaded)  # edits may refer to positions that the short dummy texts do not have

    def fastest(compute: Callable[[], Tensor]) -> float:
        seconds = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            compute().sum().item()
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    def run_pass(tokens: int) -> Tensor:
        states: Tensor = loaded.model.bert(ids[:, :tokens]).last_hidden_state
        return states

    long_tokens = min(_LONG_TOKENS, loaded.config.max_position_embeddings)
    short_tokens = min(_SHORT_TOKENS, long_tokens)
    ids = torch.zeros((1, long_tokens), dtype=torch.long, device=loaded.device)
    short, long = fastest(lambda: run_pass(short_tokens)), fastest(lambda: run_pass(long_tokens))
    states = run_pass(short_tokens)[0]
    predictions = fastest(lambda: loaded.model.cls.predictions(states).log_softmax(-1).sort().values)
    per_token = max(long - short, 0.0) / max(long_tokens - short_tokens, 1)
    return PassTiming(
        max(short - short_tokens * per_token, 0.0), per_token, predictions / len(states), tokens_at_once(loaded.device)
    )
