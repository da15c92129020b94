"""bert_core/run/memory.py: how much is computed together, by the length of a text and by the device."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import bert_core
from bert_core import LoadedModel
from bert_core.run.memory import TOKENS_AT_ONCE, copies_at_once, copies_per_batch, tokens_at_once

DEVICES = {"cpu": 1, "mps": 1, "cuda": 4}  # how many times as many tokens as on the CPU


def test_fewer_copies_of_a_longer_text() -> None:
    """At least one copy, fewer of a longer text, and fewer where a backward pass keeps the layers."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    for gradients in (False, True):
        counts = [copies_at_once(loaded, tokens, gradients=gradients) for tokens in (8, 64, 512, 100_000)]
        assert counts == sorted(counts, reverse=True) and counts[-1] == 1 < counts[0]
    assert copies_at_once(loaded, 64, gradients=True) < copies_at_once(loaded, 64)


@pytest.mark.parametrize(("kind", "times"), DEVICES.items())
def test_a_cuda_device_computes_more_together(tiny_loaded: LoadedModel, kind: str, times: int) -> None:
    """Four times as many tokens as the CPU, with gradients too; a caller's own bound counts on every device."""
    device = torch.device(kind)
    on_device = replace(tiny_loaded, device=device)
    assert tokens_at_once(device) == times * TOKENS_AT_ONCE
    for gradients in (False, True):
        assert copies_at_once(on_device, 16, gradients=gradients) == times * copies_at_once(
            tiny_loaded, 16, gradients=gradients
        )
    assert copies_per_batch(None, device, 16) == times * TOKENS_AT_ONCE // 16
    assert [copies_per_batch(bound, device, 16) for bound in (0, 15, 33)] == [1, 1, 2]
