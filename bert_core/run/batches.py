"""How many tokens are computed together, by the device that computes them."""

from __future__ import annotations

import torch

from bert_core.loading import LoadedModel
from bert_core.run.memory import BYTES_AT_ONCE, TOKENS_AT_ONCE

# Calculated, not measured, for an encoder of 6 layers and 384 hidden units in float32 on a GPU of 40 TFLOP/s: the host
# starts about 15 kernels a layer in 5 us each, 0.45 ms a pass, and a token takes 0.53 us (21 MFLOP). Starting kernels
# takes a fifth as long as computing 4,096 tokens, and a twentieth as long as computing 16,384. An encoder of base size
# needs 1.3 GiB of activations for 16,384 tokens in texts of 512. An Apple GPU computes a tenth as fast or less, so that
# 4,096 tokens hide the start of the kernels, and shares its memory with the host: it takes as many as the CPU.
TOKENS_AT_ONCE_ON_CUDA = 4 * TOKENS_AT_ONCE


def tokens_at_once(device: torch.device) -> int:
    """How many tokens of all copies of a text, or of several texts, are computed together on a device."""
    return TOKENS_AT_ONCE_ON_CUDA if device.type == "cuda" else TOKENS_AT_ONCE


def copies_within(batch_tokens: int | None, device: torch.device, tokens: int) -> int:
    """How many copies of so many tokens a caller's bound allows, at least one; None: as many as suit the device."""
    return max(1, (tokens_at_once(device) if batch_tokens is None else batch_tokens) // tokens)


def copies_at_once(loaded: LoadedModel, tokens: int, *, gradients: bool = False) -> int:
    """How many copies of a text of so many tokens are computed together, at least one.

    gradients: whether a backward pass follows, for which autograd keeps the states of every layer.
    """
    at_once = tokens_at_once(loaded.device)
    together = at_once // tokens
    if gradients:
        config = loaded.config
        # What autograd keeps of a layer: the states around its norms and maps, and both sides of the activation.
        kept = tokens * (12 * config.hidden_size + 3 * config.intermediate_size) * config.num_hidden_layers
        together = min(together, BYTES_AT_ONCE * at_once // TOKENS_AT_ONCE // (4 * kept))
    return max(1, together)
