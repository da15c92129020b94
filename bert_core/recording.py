"""Who is looking: where the attention maps of a forward pass go, and their gradients.

Two doors, one mechanism. Inside `with record() as recording:` the maps of every watched layer go to
that recording, whatever thread or visitor shares the model. Outside it, a module whose
`save_attention` is True keeps them itself (`get_attention_map`, `get_attn_gradients`).
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from torch import Tensor

from bert_core.refused import Refused, require_int, require_sequence, validate_arguments

_current: ContextVar[Recording | None] = ContextVar("headlight_recording", default=None)


class Watcher(Protocol):
    """Something that takes one attention module's map, and later the gradient of it."""

    def save_attention_map(self, attention_map: Tensor) -> None:
        """Take the map of a forward pass, (batch, head, query, key)."""

    def save_attn_gradients(self, attn_gradients: Tensor) -> None:
        """Take the gradient of that map, of the same shape."""


class WatchedModule(Watcher, Protocol):
    """An attention module that may be asked to keep its own maps."""

    save_attention: bool
    layer_num: int
    is_cross_attention: bool


class Recording:
    """What the attention modules of one forward pass gave, layer by layer.

    attention, cross_attention: layer -> probabilities (batch, head, query, key), after the softmax, before dropout
    and the head mask, still part of the autograd graph.
    gradients, cross_gradients: layer -> gradient of the same shape, filled by whatever backward pass follows.
    """

    def __init__(self, layers: Collection[int] | None = None) -> None:
        given = None if layers is None else require_sequence("layers", layers, "their numbers")
        self.layers = None if given is None else frozenset(require_int("a layer", layer) for layer in given)
        self.attention: dict[int, Tensor] = {}
        self.gradients: dict[int, Tensor] = {}
        self.cross_attention: dict[int, Tensor] = {}
        self.cross_gradients: dict[int, Tensor] = {}

        self._slots: dict[tuple[int, bool], _LayerSlot] = {}

    def watcher(self, layer: int, is_cross_attention: bool = False) -> Watcher | None:
        """The place for one layer's values, or None if this recording does not watch that layer."""
        if self.layers is not None and layer not in self.layers:
            return None
        maps = (self.cross_attention, self.cross_gradients) if is_cross_attention else (self.attention, self.gradients)
        return self._slots.setdefault((layer, is_cross_attention), _LayerSlot(layer, *maps))


class _LayerSlot:
    """One layer's place in a recording; holding it is enough to save, from any thread."""

    def __init__(self, layer: int, attention: dict[int, Tensor], gradients: dict[int, Tensor]) -> None:
        self._layer, self._attention, self._gradients = layer, attention, gradients

    def save_attention_map(self, attention_map: Tensor) -> None:
        self._attention[self._layer] = attention_map

    def save_attn_gradients(self, attn_gradients: Tensor) -> None:
        self._gradients[self._layer] = attn_gradients


@validate_arguments
@contextmanager
def record(layers: Collection[int] | None = None) -> Iterator[Recording]:
    """Watch the forward passes made in this context, and only those: other threads do not see it.

    layers: the layers to watch, counted from zero; None watches all of them. Every model that runs in the context must
    have them, both halves of a captioner too. Raises Refused for what is no number, and in the forward pass of a model
    without one of the layers.
    """
    recording = Recording(layers)
    token = _current.set(recording)
    try:
        yield recording
    finally:
        _current.reset(token)


def find_watcher(module: WatchedModule) -> Watcher | None:
    """What takes this module's map in this context: a recording's place for its layer, the module itself, or None."""
    recording = _current.get()
    if recording is not None:
        return recording.watcher(module.layer_num, module.is_cross_attention)
    return module if module.save_attention else None


def check_recorded_layers(layers: int) -> None:
    """Raise Refused if the recording of this context names a layer that a model with `layers` layers does not have."""
    recording = _current.get()
    if recording is not None and recording.layers and (last := max(recording.layers)) >= layers:
        raise Refused(f"layer {last} does not exist, so it cannot be recorded: this model has layers 0 to {layers - 1}")


def save_map(watcher: Watcher, attention_map: Tensor) -> None:
    """Give a map to its watcher now, and its gradient when a backward pass computes it."""
    watcher.save_attention_map(attention_map)
    if not attention_map.requires_grad:
        return
    # Bound here: on CUDA the hook runs in another thread, where the context is another one. Weakly: the watcher
    # holds the map and the map its hooks, a ring through C++ that the garbage collector cannot see.
    bound = weakref.ref(watcher)

    def save(gradient: Tensor) -> None:
        if (alive := bound()) is not None:
            alive.save_attn_gradients(gradient)

    attention_map.register_hook(save)  # type: ignore[no-untyped-call]
