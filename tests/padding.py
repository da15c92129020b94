"""What padding must not change in a loop that trains."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from bert_core.training import optimization
from tests.near import assert_gradients_near, assert_near

WIDER = 29  # tokens of a padded row; no text of the tests is as long


def assert_padding_changes_nothing(
    loop: ModuleType, exact: nn.Module, padded: nn.Module, batch: Sequence[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fp32 the loss and the gradients of a batch are the same when its rows are padded beyond the longest.

    loop: a module with `_loss` and `training_width`. exact, padded: two models with equal weights.
    """
    monkeypatch.setattr(optimization, "fast_dtype", lambda device: torch.float32)
    expected = loop._loss(exact, batch, pad=0, device=torch.device("cpu"))
    expected.backward()
    monkeypatch.setattr(loop, "training_width", lambda *_: WIDER)
    loss = loop._loss(padded, batch, pad=0, device=torch.device("cpu"))
    loss.backward()
    assert_near(loss.item(), expected.item())
    assert_gradients_near(padded, exact)
