"""Batch sizes and estimates of memory."""

from __future__ import annotations

import torch

from bert_core.config import BertConfig
from bert_core.heap import available_bytes
from bert_core.loading import LoadedModel
from bert_core.refused import Refused

FUSED_KEYS = 512  # whose scores fused attention holds for each query at once, as estimated
TOKENS_AT_ONCE = 4096  # of all copies of a text together; larger batches no longer fit into the processor's cache
BYTES_AT_ONCE = 256 * 2**20  # for the activations that a backward pass needs of all copies together
# Calculated, not measured, for an encoder of 6 layers and 384 hidden units in float32 on a GPU of 40 TFLOP/s: the host
# starts about 15 kernels a layer in 5 us each, 0.45 ms a pass, and a token takes 0.53 us (21 MFLOP). Starting kernels
# takes a fifth as long as computing 4,096 tokens, and a twentieth as long as computing 16,384. An encoder of base size
# needs 1.3 GiB of activations for 16,384 tokens in texts of 512. An Apple GPU computes a tenth as fast or less, so that
# 4,096 tokens hide the start of the kernels, and shares its memory with the host: it takes as many as the CPU.
TOKENS_AT_ONCE_ON_CUDA = 4 * TOKENS_AT_ONCE


def tokens_at_once(device: torch.device) -> int:
    """Return how many tokens, of several texts or of all copies of a text, are computed together on a device."""
    return TOKENS_AT_ONCE_ON_CUDA if device.type == "cuda" else TOKENS_AT_ONCE


def copies_per_batch(batch_tokens: int | None, device: torch.device, tokens: int) -> int:
    """Return how many copies of a text fit into a batch, at least one.

    batch_tokens: the limit of tokens in a batch; None: the number that suits the device. tokens: of one copy.
    """
    return max(1, (tokens_at_once(device) if batch_tokens is None else batch_tokens) // tokens)


def copies_at_once(loaded: LoadedModel, tokens: int, *, gradients: bool = False) -> int:
    """Return how many copies of a text of a given length are computed together, at least one.

    gradients: whether a backward pass follows, for which autograd stores the activations of every layer.
    """
    token_limit = tokens_at_once(loaded.device)
    copies = token_limit // tokens
    if gradients:
        config = loaded.config
        # Autograd stores the inputs of norms and linear maps, and the activation's input and output, of each layer.
        stored = tokens * (12 * config.hidden_size + _network_floats(config)) * config.num_hidden_layers
        copies = min(copies, BYTES_AT_ONCE * token_limit // TOKENS_AT_ONCE // (4 * stored))
    return max(1, copies)


def _network_floats(config: BertConfig) -> int:
    """Return how many numbers the feed-forward network of a layer holds for each token.

    A gated network also holds the second inputs of its neurons and the products.
    """
    return (5 if config.layer_design.gated else 3) * config.intermediate_size


def capture_bytes(loaded: LoadedModel, tokens: int, *, gradients: bool = False, map_tokens: int | None = None) -> int:
    """Estimate the peak memory of `capture` for a text of a given length, in bytes; its result takes a third of that.

    map_tokens: number of tokens in the range whose maps are kept; None: all.
    Measured for 128 to 480 tokens, and for ranges of 512 in 2,048 and 8,192. Besides the attention maps, the scores
    before the softmax and a NumPy copy exist for a moment; with gradients, the activations that autograd stores and the
    gradients are added.
    """
    config = loaded.config
    kept_tokens = tokens if map_tokens is None else map_tokens
    map_bytes = 4 * config.num_hidden_layers * config.num_attention_heads * kept_tokens**2
    if kept_tokens == tokens:
        return map_bytes * (7 if gradients else 3)
    # Fused attention: the states of each layer, the activations of one layer or of all, and scores of the range.
    width = 12 * config.hidden_size + _network_floats(config)
    activations = width * (config.num_hidden_layers if gradients else 1) + config.num_hidden_layers * config.hidden_size
    scores = 2 * config.num_attention_heads * kept_tokens
    return map_bytes * (4 if gradients else 3) + 4 * tokens * (activations + scores)


def forward_bytes(loaded: LoadedModel, tokens: int, copies: int) -> int:
    """Estimate the memory of forward passes of copies of a text, in bytes; copies beyond one batch add nothing.

    Measured for ablations of all heads of a text: correct to within a third for 256 to 510 tokens. Fused attention
    holds no more scores of a longer text, unless they have terms for distances: measured for 2,048 and 8,192 tokens.
    """
    config = loaded.config
    rows = tokens * min(copies, copies_per_batch(None, loaded.device, tokens))
    keys = min(tokens, FUSED_KEYS) if config.position_scheme.distances is None else tokens
    return 4 * rows * (config.num_attention_heads * keys + 8 * config.hidden_size + _network_floats(config))


def gradient_bytes(loaded: LoadedModel, tokens: int, copies: int) -> int:
    """Estimate the memory of one forward and one backward pass of copies of a text in one batch, in bytes.

    Measured from 8 copies of 32 tokens to 2 copies of 510: correct to within a quarter.
    """
    config = loaded.config
    floats_per_token = 12 * config.hidden_size + _network_floats(config) + 1.7 * config.num_attention_heads * tokens
    return int(4 * config.num_hidden_layers * copies * tokens * floats_per_token)


def mlm_head_bytes(loaded: LoadedModel, positions: int) -> int:
    """Estimate the memory of the MLM head at some positions, in bytes: six float32 copies of the logits at its peak."""
    return 6 * 4 * positions * loaded.config.vocab_size


def decomposition_bytes(loaded: LoadedModel, tokens: int) -> int:
    """Estimate the memory of DecompX, in bytes: the input, value and output vectors of every pair of tokens."""
    return 3 * 4 * tokens**2 * loaded.config.hidden_size


def contribution_graph_bytes(loaded: LoadedModel, tokens: int) -> int:
    """Estimate the peak memory of `contribution_graph` in bytes; its result takes most of it for many layers.

    The shares of all heads in float32 and of all layers in float64, and for one layer the attention maps, their copies,
    and a batch of vectors.
    """
    config = loaded.config
    shares = config.num_hidden_layers * (4 * config.num_attention_heads + 8)
    return tokens**2 * (shares + 5 * 4 * config.num_attention_heads) + 2 * BYTES_AT_ONCE


def direct_bytes(loaded: LoadedModel, rows: int) -> int:
    """Estimate the memory of direct logit attribution, in bytes. rows: number of positions that the target reads.

    Each component of each row is a vector in float64, before and after the final norm.
    """
    config = loaded.config
    components = config.num_hidden_layers * (config.num_attention_heads + 1) + 4
    return 2 * 8 * components * rows * config.hidden_size


def check_memory(loaded: LoadedModel, method: str, tokens: int, required: int, cheaper: str) -> None:
    """Raise Refused if a method needs more memory than is free.

    method: its name. required: bytes that it needs. cheaper: name of a method that needs less memory.
    """
    free = free_bytes(loaded.device)
    if free is not None and required > free:
        raise Refused(
            f"{method} on {tokens} tokens needs {required / 2**20:,.1f} MiB of memory, but only "
            f"{free / 2**20:,.1f} MiB are free: shorten the text, or use {cheaper}"
        )


def free_bytes(device: torch.device) -> int | None:
    """Return the memory that is available for new tensors on a device, in bytes; None if the system does not report it.

    On a GPU this includes freed memory that PyTorch's allocator still reserves.
    """
    if device.type == "cuda":
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reusable
    if device.type == "mps":
        return max(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory(), 0)
    return available_bytes()


def gpu_bytes(device: torch.device) -> int:
    """Return the total memory of a GPU in bytes; on MPS, the maximum that the system recommends to use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return torch.mps.recommended_max_memory()
