"""The cache of models, with a limit of its own; the least recently used are dropped first, models in use never.

The run of a page, or a job, keeps the models that it uses (`use`) until its end. An open page refers to its model
between runs without keeping it in memory (`models.ModelReference`).
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
    """Loaded models up to a number of bytes; the most recently used model stays, however large it is.

    limit: returns the maximum of bytes of all models together.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._models: OrderedDict[Key, LoadedModel] = OrderedDict()  # the least recently used first
        self._sizes: dict[Key, int] = {}  # bytes of all models that were ever loaded
        self._lock = threading.RLock()
        self._loading = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of the weights of all models in the cache."""
        with self._lock:
            return sum(self._sizes[key] for key in self._models)

    def get(self, key: Key) -> LoadedModel | None:
        """Return a model and mark it as most recently used; None if it is not in memory."""
        with self._lock:
            if key in self._models:
                self._models.move_to_end(key)
            return self._models.get(key)

    def load(self, key: Key, load: Callable[[], LoadedModel], weights_bytes: int = 0) -> LoadedModel:
        """Return a model, loaded if it is not in memory; one model is loaded at a time.

        Other versions of its files are dropped. weights_bytes: size of its weights on disk, for which space is freed
        before the first load. Raises the exceptions of `load`, and Refused for a limit that is not a size.
        """
        with self._loading:
            if (cached := self.get(key)) is not None:
                return cached
            with self._lock:
                for version in [version for version in self._models if version[0] == key[0]]:
                    self._drop(version)
            self._shrink(self._sizes.get(key, weights_bytes))
            loaded = load()
            with self._lock:
                self._models[loaded.weights_key] = loaded
                self._sizes[loaded.weights_key] = loaded.nbytes
            self._shrink(0, exempt=loaded.weights_key)
            return loaded

    def shrink(self) -> None:
        """Drop models that are not in use until the limit is met; called when a use has ended."""
        with self._lock:
            self._shrink(0, exempt=next(reversed(self._models), None))

    def _shrink(self, reserved: int, exempt: Key | None = None) -> None:
        """Drop models, except one, until `reserved` bytes fit into the limit."""
        with self._lock:
            for key in list(self._models):
                if self.nbytes + reserved <= self._limit():
                    break
                if key != exempt:
                    self._drop(key)

    def _drop(self, key: Key) -> None:
        """Drop a model; if it is in use, keep it and mark it as most recently used."""
        reference = weakref.ref(self._models.pop(key))
        if (loaded := reference()) is not None:  # in use
            self._models[key] = loaded
        else:
            release_freed_memory()


_in_thread = threading.local()  # .models: in use by the run of a page or the job in this thread


def use(loaded: LoadedModel) -> None:
    """Keep a model in memory until the run of the page or the job in the calling thread ends."""
    models = getattr(_in_thread, "models", None)
    if models is not None and not any(loaded is model for model in models):
        models.append(loaded)


def in_use() -> tuple[LoadedModel, ...]:
    """Return the models that the run of the page or the job in the calling thread uses."""
    return tuple(getattr(_in_thread, "models", None) or ())


def begin_use() -> None:
    """Begin to keep the models that the run of a page in the calling thread uses."""
    _in_thread.models = []


def end_use() -> None:
    """Stop keeping the models of the calling thread."""
    _in_thread.models = None


@contextmanager
def using(models: Sequence[LoadedModel]) -> Iterator[None]:
    """Keep models, and those for which `use` is called inside, until the end of a job."""
    before = getattr(_in_thread, "models", None)
    _in_thread.models = [*models]
    try:
        yield
    finally:
        _in_thread.models = before
