"""How much of a text, or of many, fits at once."""

from __future__ import annotations

from pathlib import Path

import torch

from bert_core.loading import LoadedModel
from bert_core.refused import Refused

TOKENS_AT_ONCE = 4096  # of all copies of a text together: more only fall out of the processor's cache
BYTES_AT_ONCE = 256 * 2**20  # for what a backward pass needs of all copies together
# Calculated, not measured, for an encoder of 6 layers and 384 hidden units in float32 on a GPU of 40 TFLOP/s: the host
# starts about 15 kernels a layer in 5 us each, 0.45 ms a pass, and a token takes 0.53 us (21 MFLOP). Starting kernels
# takes a fifth as long as computing 4,096 tokens, and a twentieth as long as computing 16,384. An encoder of base size
# needs 1.3 GiB of activations for 16,384 tokens in texts of 512. An Apple GPU computes a tenth as fast or less, so that
# 4,096 tokens hide the start of the kernels, and shares its memory with the host: it takes as many as the CPU.
TOKENS_AT_ONCE_ON_CUDA = 4 * TOKENS_AT_ONCE


def tokens_at_once(device: torch.device) -> int:
    """How many tokens of all copies of a text, or of several texts, are computed together on a device."""
    return TOKENS_AT_ONCE_ON_CUDA if device.type == "cuda" else TOKENS_AT_ONCE


def copies_per_batch(batch_tokens: int | None, device: torch.device, tokens: int) -> int:
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


def capture_bytes(loaded: LoadedModel, tokens: int, *, gradients: bool = False) -> int:
    """What `capture` of a text of so many tokens takes while it runs, about; what it returns is a third of that.

    Measured from 128 tokens to 480: with the maps, the scores before the softmax and NumPy's own copy are there for a
    moment; with gradients, what autograd keeps and the gradients too.
    """
    config = loaded.config
    one = 4 * config.num_hidden_layers * config.num_attention_heads * tokens**2
    return one * (7 if gradients else 3)


def forward_bytes(loaded: LoadedModel, tokens: int, copies: int) -> int:
    """What forward passes of so many copies of a text take, about, however many of them travel together.

    Measured with all heads of a text switched off in turn: within a third from 256 tokens to 510.
    """
    config = loaded.config
    rows = tokens * min(copies, copies_per_batch(None, loaded.device, tokens))
    return 4 * rows * (config.num_attention_heads * tokens + 8 * config.hidden_size + 3 * config.intermediate_size)


def gradient_bytes(loaded: LoadedModel, tokens: int, copies: int) -> int:
    """What a pass there and back of so many copies of a text together takes, about.

    Measured from 8 copies of 32 tokens to 2 of 510: within a quarter.
    """
    config = loaded.config
    a_row = 12 * config.hidden_size + 3 * config.intermediate_size + 1.7 * config.num_attention_heads * tokens
    return int(4 * config.num_hidden_layers * copies * tokens * a_row)


def mlm_head_bytes(loaded: LoadedModel, positions: int) -> int:
    """What reading so many positions through the word head takes, about: a number a word, six times for a moment."""
    return 6 * 4 * positions * loaded.config.vocab_size


def decomposition_bytes(loaded: LoadedModel, tokens: int) -> int:
    """Entering and leaving vectors and the values between them, for every two tokens of a text."""
    return 3 * 4 * tokens**2 * loaded.config.hidden_size


def check_memory(loaded: LoadedModel, method: str, tokens: int, needed: int, cheaper: str) -> None:
    """Raise Refused if a method needs more bytes than there are, naming a cheaper one."""
    free = free_bytes(loaded.device)
    if free is not None and needed > free:
        raise Refused(
            f"{method} on {tokens} tokens needs {needed / 2**20:,.1f} MiB of memory, but only {free / 2**20:,.1f} MiB "
            f"are free: shorten the text, or use {cheaper}"
        )


def free_bytes(device: torch.device) -> int | None:
    """Memory that new tensors can still take on a device; None where the system does not say.

    On a GPU this includes what PyTorch's allocator keeps of freed tensors.
    """
    if device.type == "cuda":
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reusable
    if device.type == "mps":
        return max(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory(), 0)
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def gpu_bytes(device: torch.device) -> int:
    """All memory of a GPU; on MPS what the system recommends to use at most."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return torch.mps.recommended_max_memory()
