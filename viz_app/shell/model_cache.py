"""Models in memory: limited apart from results; a model in use is never dropped, others the least recently used first.

A page or a job names the models that it uses (`use`); until it ends they stay. What an open page holds between two
clicks does not count as use: it refers to its model without keeping it in memory (`models.ModelReference`).
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bert_core.heap import release_freed_memory
from bert_core.loading import LoadedModel

Key = tuple[str, str]  # `LoadedModel.weights_key`


class ModelCache:
    """Loaded models up to a number of bytes; the one that was used last stays, however large it is.

    limit: returns the bytes that all models together may hold.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._models: OrderedDict[Key, LoadedModel] = OrderedDict()  # the least recently used first
        self._sizes: dict[Key, int] = {}  # bytes of those that were read once
        self._lock = threading.RLock()
        self._loading = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of the weights of all models that are kept."""
        with self._lock:
            return sum(self._sizes[key] for key in self._models)

    def get(self, key: Key) -> LoadedModel | None:
        """The model with this key if it is in memory; it is then the most recently used one."""
        with self._lock:
            if key in self._models:
                self._models.move_to_end(key)
            return self._models.get(key)

    def load(self, key: Key, load_model: Callable[[], LoadedModel], weights_bytes: int = 0) -> LoadedModel:
        """The model with this key, read if it is not in memory; one is read at a time.

        weights_bytes: size of its weights on disk: room is made for so much first, or for its size where that is known.
        Other versions of its files are dropped.
        Raises what `read` raises, and Refused for a limit that is no size.
        """
        with self._loading:
            if (cached := self.get(key)) is not None:
                return cached
            with self._lock:
                for other_key in list(self._models):
                    if other_key[0] == key[0]:
                        self._drop(other_key)
            self._shrink(self._sizes.get(key, weights_bytes), kept_key=None)
            loaded = load_model()
            with self._lock:
                self._models[loaded.weights_key] = loaded
                self._sizes[loaded.weights_key] = loaded.nbytes
            self._shrink(0, kept_key=loaded.weights_key)
            return loaded

    def shrink(self) -> None:
        """Drop models that are not in use until the limit is kept; called when a use has ended."""
        with self._lock:
            self._shrink(0, kept_key=next(reversed(self._models), None))

    def _shrink(self, room: int, kept_key: Key | None) -> None:
        with self._lock:
            for key in list(self._models):
                if self.nbytes + room <= self._limit():
                    break
                if key != kept_key:
                    self._drop(key)

    def _drop(self, key: Key) -> None:
        """Drop a model, or where it is in use make it the most recently used one."""
        reference = weakref.ref(self._models.pop(key))
        if (loaded := reference()) is not None:  # someone else holds it
            self._models[key] = loaded
        else:
            release_freed_memory()


_in_thread = threading.local()  # models: those that the run of a page or the job in this thread uses


def use(loaded: LoadedModel) -> None:
    """Keep a model in memory until the run of the page or the job in the calling thread ends."""
    models = getattr(_in_thread, "models", None)
    if models is not None and not any(loaded is other_key for other_key in models):
        models.append(loaded)


def in_use() -> tuple[LoadedModel, ...]:
    """The models that the run of the page or the job in the calling thread uses."""
    return tuple(getattr(_in_thread, "models", None) or ())


def begin_use() -> None:
    """Begin to collect the models that the run of a page in the calling thread uses."""
    _in_thread.models = []


def end_use() -> None:
    """Use none of them any more."""
    _in_thread.models = None


@contextmanager
def using(models: Sequence[LoadedModel]) -> Iterator[None]:
    """Use these models, and those that are named inside, until the end of a job."""
    before = getattr(_in_thread, "models", None)
    _in_thread.models = [*models]
    try:
        yield
    finally:
        _in_thread.models = before
