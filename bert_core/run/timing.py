"""How quick a model is on this machine, measured once, so that what is asked of it can be told beforehand."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bert_core.editing import unedited
from bert_core.loading import LoadedModel
from bert_core.run.memory import TOKENS_AT_ONCE, tokens_at_once

_FEW, _MANY, _ROUNDS = 8, 128, 5


@dataclass(frozen=True)
class PassTiming:
    """Seconds of a forward pass however short, of each of its tokens, and of all words at one place.

    Short texts: in a pass over hundreds of tokens attention weighs more, and this is too little.
    at_once: tokens that are computed together.
    """

    seconds_per_pass: float
    seconds_per_token: float
    seconds_per_prediction: float
    tokens_at_once: int = TOKENS_AT_ONCE

    def estimate_seconds(self, tokens: int, passes: float = 1, places: float = 0) -> float:
        """What so many forward passes over a text of so many tokens take, about; a pass back counts as two.

        Copies of a text travel together, as many as fit a batch. places: at how many the scores of all words are
        computed and sorted.
        """
        read = passes * tokens
        return (
            max(read / self.tokens_at_once, min(passes, 1)) * self.seconds_per_pass
            + read * self.seconds_per_token
            + places * self.seconds_per_prediction
        )


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished all work that was submitted to it; on the CPU there is nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@torch.no_grad()
def measure_timing(loaded: LoadedModel) -> PassTiming:
    """Time a model: the quickest of five short passes, as other work on the machine only makes them slower."""
    loaded = unedited(loaded)  # texts of no meaning are read, which need not have the positions of an edit

    def quickest(do: Callable[[], Tensor]) -> float:
        took = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            do().sum().item()
            took.append(time.perf_counter() - start)
        return min(took)

    def read(tokens: int) -> Tensor:
        states: Tensor = loaded.model.bert(ids[:, :tokens]).last_hidden_state
        return states

    many = min(_MANY, loaded.config.max_position_embeddings)
    few = min(_FEW, many)
    ids = torch.zeros((1, many), dtype=torch.long, device=loaded.device)
    short, long, states = quickest(lambda: read(few)), quickest(lambda: read(many)), read(few)[0]
    words = quickest(lambda: loaded.model.cls.predictions(states).log_softmax(-1).sort().values)
    a_token = max(long - short, 0.0) / max(many - few, 1)
    return PassTiming(max(short - few * a_token, 0.0), a_token, words / len(states), tokens_at_once(loaded.device))
