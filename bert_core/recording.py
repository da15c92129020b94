"""Recordings of the attention maps of forward passes and of their gradients.

There are two ways to keep a map. Inside `with record() as recording:` every recorded layer saves its map to that
recording, and other threads that share the model are not affected. Outside it, a module whose `save_attention` is True
keeps its own map (`get_attention_map`, `get_attn_gradients`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from torch import Tensor

from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments

_current: ContextVar[Recording | None] = ContextVar("headlight_recording", default=None)


class Watcher(Protocol):
    """A receiver of the attention map of one module and of its gradient.

    token_range: (start, stop), the queries and keys of which it receives the maps; None for all.
    """

    token_range: tuple[int, int] | None

    def save_attention_map(self, attention_map: Tensor) -> None:
        """Save the map of a forward pass, (batch, head, query, key)."""

    def save_attn_gradients(self, attn_gradients: Tensor) -> None:
        """Save the gradient of that map, (batch, head, query, key)."""


class WatchedModule(Watcher, Protocol):
    """An attention module that can keep its own maps."""

    save_attention: bool
    layer_num: int
    is_cross_attention: bool


class Recording:
    """The attention maps of the forward passes in a `record` context, by layer.

    attention, cross_attention: layer -> probabilities (batch, head, query, key), after the softmax and before dropout
        and the head mask. They are part of the autograd graph, except for a range of tokens.
    gradients, cross_gradients: layer -> gradient of the same shape, set by the next backward pass.
    """

    def __init__(self, layers: Collection[int] | None = None, token_range: tuple[int, int] | None = None) -> None:
        """Create an empty recording.

        layers: the layers to record, counted from zero; None records all of them. token_range: see `record`.
        """
        self.token_range = None if token_range is None else check_token_range(token_range)
        numbers = None if layers is None else require_sequence("layers", layers, "their numbers")
        self.layers = None if numbers is None else frozenset(require_int("a layer", layer) for layer in numbers)
        self.attention: dict[int, Tensor] = {}
        self.gradients: dict[int, Tensor] = {}
        self.cross_attention: dict[int, Tensor] = {}
        self.cross_gradients: dict[int, Tensor] = {}

        self._slots: dict[tuple[int, bool], _LayerSlot] = {}

    def watcher(self, layer: int, is_cross_attention: bool = False) -> Watcher | None:
        """Return the receiver of a layer's maps, or None if the layer is not recorded."""
        if self.layers is not None and layer not in self.layers:
            return None
        maps = (self.cross_attention, self.cross_gradients) if is_cross_attention else (self.attention, self.gradients)
        slot = _LayerSlot(layer, *maps, None if is_cross_attention else self.token_range)
        return self._slots.setdefault((layer, is_cross_attention), slot)


def check_token_range(token_range: Sequence[int], tokens: int | None = None) -> tuple[int, int]:
    """Return a range of positions (start, stop). tokens: length of the text, if it is known.

    Raises Refused unless these are two integers with 0 <= start < stop, and stop is at most the length.
    """
    ends = require_sequence("token_range", token_range, "two positions")
    start, stop = (require_int("an end of token_range", end) for end in ends) if len(ends) == 2 else (0, 0)
    if start >= stop or (tokens is not None and stop > tokens):
        length = "" if tokens is None else f", and this text has {tokens} tokens"
        raise Refused(f"token_range is {short_repr(token_range)}: it must be (start, stop) with start < stop{length}")
    return start, stop


class _LayerSlot:
    """The receiver of one layer's maps; it saves them to its recording from any thread."""

    def __init__(
        self,
        layer: int,
        attention: dict[int, Tensor],
        gradients: dict[int, Tensor],
        token_range: tuple[int, int] | None,
    ) -> None:
        self._layer, self._attention, self._gradients, self.token_range = layer, attention, gradients, token_range

    def save_attention_map(self, attention_map: Tensor) -> None:
        self._attention[self._layer] = attention_map

    def save_attn_gradients(self, attn_gradients: Tensor) -> None:
        self._gradients[self._layer] = attn_gradients


@validate_arguments
@contextmanager
def record(layers: Collection[int] | None = None, token_range: tuple[int, int] | None = None) -> Iterator[Recording]:
    """Record the attention maps of all forward passes in this context; other threads are not recorded.

    layers: the layers to record, counted from zero; None records all of them. Every model that runs in the context
        must have these layers, and so must both halves of a captioner.
    token_range: (start, stop), the positions of the queries and keys whose block of each map of self-attention is
        recorded; None records whole maps. The values are those of the whole map, which is not computed: attention is
        fused, so that time and memory are those of a pass without a recording. The gradients of the block are exact.
    Yields the recording, which the forward and backward passes fill.
    Raises Refused if a layer or an end of the range is not an integer. A forward pass raises it if its model lacks one
        of the layers.

    >>> import torch
    >>> import bert_core
    >>> model = bert_core.load("headlight-mini", device="cpu").model
    >>> with bert_core.record(layers=[0, 5]) as recording:
    ...     output = model(torch.tensor([[101, 2016, 2441, 1996, 103, 102]]))
    >>> {layer: tuple(attention.shape) for layer, attention in recording.attention.items()}
    {0: (1, 12, 6, 6), 5: (1, 12, 6, 6)}
    """
    recording = Recording(layers, token_range)
    token = _current.set(recording)
    try:
        yield recording
    finally:
        _current.reset(token)


def find_watcher(module: WatchedModule) -> Watcher | None:
    """Return the receiver of this module's map in the current context, or None if no map is to be saved.

    It is the active recording's receiver for the layer or, outside a recording, the module itself.
    """
    recording = _current.get()
    if recording is not None:
        return recording.watcher(module.layer_num, module.is_cross_attention)
    return module if module.save_attention else None


def check_recorded_layers(layers: int) -> None:
    """Raise Refused if the active recording names a layer that a model with `layers` layers does not have."""
    recording = _current.get()
    if recording is not None and recording.layers and (last := max(recording.layers)) >= layers:
        raise Refused(f"layer {last} does not exist, so it cannot be recorded: this model has layers 0 to {layers - 1}")


def save_map(watcher: Watcher, attention_map: Tensor) -> None:
    """Pass a map to its receiver, and register a hook that passes its gradient in the backward pass.

    attention_map: (batch, head, query, key), the whole map. A receiver of a range of tokens gets a copy of its block.
    """
    if watcher.token_range is None:
        watcher.save_attention_map(attention_map)
        save_gradient(watcher, attention_map, lambda gradient: gradient)
        return
    rows = slice(*watcher.token_range)
    watcher.save_attention_map(attention_map.detach()[..., rows, rows].clone())
    save_gradient(watcher, attention_map, lambda gradient: gradient[..., rows, rows].clone())


def save_gradient(watcher: Watcher, tensor: Tensor, to_map: Callable[[Tensor], Tensor]) -> None:
    """Register a hook on a tensor that passes the gradient of a map to its receiver in the backward pass.

    to_map: computes the gradient of the map, (batch, head, query, key), from that of the tensor.
    """
    if not tensor.requires_grad:
        return
    # The hook holds the receiver itself, because on CUDA it runs in a thread with another context. The reference is
    # weak: receiver, map and hook would form a cycle through C++ that the garbage collector cannot see.
    watcher_reference = weakref.ref(watcher)

    def save_gradients(gradient: Tensor) -> None:
        if (live_watcher := watcher_reference()) is not None:
            live_watcher.save_attn_gradients(to_map(gradient))

    tensor.register_hook(save_gradients)  # type: ignore[no-untyped-call]
