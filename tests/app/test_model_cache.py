"""Models in memory: a limit of their own, the least recently used first, and never one that is in use."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bert_core
from bert_core import ScaledNeuron, edited
from bert_core.loading import LoadedModel
from tests.app.test_models import model_in
from viz_app.shell.model_cache import ModelCache, begin_use, end_use, in_use, use, using

Load = Callable[[str], LoadedModel]


@pytest.fixture
def folders(tiny_model_folder: Path, tmp_path: Path) -> list[Path]:
    """Three models of one size."""
    return [model_in(tmp_path / name, tiny_model_folder, seed) for seed, name in enumerate("abc")]


@pytest.fixture
def counted() -> list[str]:
    """The names of the models that were read, in order."""
    return []


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    """What is freed is freed by its references alone: a model that the app froze is in no collection of Python's."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def loading(cache: ModelCache, counted: list[str]) -> Load:
    """Asks a cache for the model in a folder, and counts what it reads."""

    def load(name: str) -> LoadedModel:
        def read() -> LoadedModel:
            counted.append(Path(name).name)
            return bert_core.load(name, device="cpu")

        files = bert_core.loading.stat_model_files(name)
        return cache.load((name, files.version), read, files.weights_bytes)

    return load


def test_a_model_is_read_once_and_two_that_fit_alternate(folders: list[Path], counted: list[str]) -> None:
    """Whoever asks again, in any order, gets the same object while the limit has room for both."""
    size = bert_core.load(folders[0], device="cpu").nbytes
    cache = ModelCache(lambda: 5 * size // 2)
    load = loading(cache, counted)
    first = [id(load(str(folder))) for folder in folders[:2]]
    assert [id(load(str(folder))) for _ in range(3) for folder in folders[:2]] == 3 * first
    assert counted == ["a", "b"] and cache.nbytes == 2 * size


def test_models_whose_files_are_larger_than_their_weights_alternate(folders: list[Path]) -> None:
    """What is on disk is a guess for the first time only: two models that fit do not displace each other for ever."""
    size, counted = bert_core.load(folders[0], device="cpu").nbytes, []
    cache = ModelCache(lambda: 5 * size // 2)

    def load(folder: Path) -> None:
        def read() -> LoadedModel:
            counted.append(folder.name)
            return bert_core.load(folder, device="cpu")

        cache.load((str(folder), bert_core.loading.stat_model_files(str(folder)).version), read, 10 * size)

    for _ in range(4):
        for folder in folders[:2]:
            load(folder)
    assert counted == ["a", "b", "a"]


def test_the_least_recently_used_model_goes_and_its_memory_is_released(folders: list[Path], counted: list[str]) -> None:
    """A third model takes the place of the one that was asked for longest ago, whose weights are then free."""
    size = bert_core.load(folders[0], device="cpu").nbytes
    load = loading(ModelCache(lambda: 5 * size // 2), counted)
    seen = {}
    for number in (0, 1, 0, 2):
        loaded = load(str(folders[number]))
        seen[number] = [weakref.ref(loaded), weakref.ref(loaded.model), weakref.ref(next(loaded.model.parameters()))]
        del loaded
    assert [[ref() is None for ref in seen[number]] for number in range(3)] == [[False] * 3, [True] * 3, [False] * 3]
    load(str(folders[0]))
    load(str(folders[2]))
    assert counted == ["a", "b", "c"]


def test_a_model_larger_than_the_limit_is_kept_alone(folders: list[Path], counted: list[str]) -> None:
    """Asked twice it is read once; another one takes its place before it is read, so that both are never there."""
    cache = ModelCache(lambda: 1)
    load = loading(cache, counted)
    seen = weakref.ref(load(str(folders[0])).model)
    cache.shrink()
    assert load(str(folders[0])).model is seen() and counted == ["a"]
    alive: list[bool] = []

    def read() -> LoadedModel:
        alive.append(seen() is not None)
        return bert_core.load(folders[1], device="cpu")

    assert cache.load((str(folders[1]), ""), read, 1).name == str(folders[1])
    assert alive == [False] and seen() is None


@pytest.mark.parametrize("changed", [False, True])
def test_a_model_in_use_stays_and_is_not_read_again(folders: list[Path], counted: list[str], changed: bool) -> None:
    """However small the limit, what a page or job uses is there until it ends; then the one used last is left."""
    cache = ModelCache(lambda: 1)
    load = loading(cache, counted)

    def job() -> None:
        with using(()):
            first = load(str(folders[0]))
            use(first)
            seen = weakref.ref(first)
            edited(first, [ScaledNeuron(0, 0, 0.0)]) if changed else None
            del first
            for _ in range(2):
                load(str(folders[1]))
                load(str(folders[2]))
                assert load(str(folders[0])) is seen()
            assert [model.name for model in in_use()] == [str(folders[0])]
        assert in_use() == ()
        assert counted.count("a") == 1

    job()
    load(str(folders[1]))
    assert cache.nbytes == bert_core.load(folders[1], device="cpu").nbytes


def test_use_ends_with_the_run_and_is_of_one_thread(folders: list[Path], counted: list[str]) -> None:
    """A run of a page collects what it names; another thread, or a thread without a run, collects nothing."""
    load = loading(ModelCache(lambda: 1 << 40), counted)
    loaded = load(str(folders[0]))
    use(loaded)
    assert in_use() == ()
    begin_use()
    use(loaded)
    use(loaded)
    others: list[object] = []
    other = threading.Thread(target=lambda: others.append(in_use()))
    other.start()
    other.join()
    assert in_use() == (loaded,) and others == [()]
    with using(in_use()):
        assert in_use() == (loaded,)
    end_use()
    assert in_use() == ()


def test_who_asks_at_once_shares_one_model(folders: list[Path], counted: list[str]) -> None:
    """Two threads that ask for a model that is not there read it once."""
    load = loading(ModelCache(lambda: 1 << 40), counted)
    models: list[LoadedModel] = []
    threads = [threading.Thread(target=lambda: models.append(load(str(folders[0])))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(model) for model in models}) == 1 and counted == ["a"]


def test_another_version_of_a_model_takes_the_place_of_the_first(
    folders: list[Path], counted: list[str], tiny_model_folder: Path
) -> None:
    """After its files change the old weights are free, also where the limit has room for both."""
    load = loading(ModelCache(lambda: 1 << 40), counted)
    seen = weakref.ref(load(str(folders[0])).model)
    model_in(folders[0], tiny_model_folder, 7)
    assert load(str(folders[0])).model is not None and seen() is None and counted == ["a", "a"]


def test_a_model_that_cannot_be_read_is_not_kept(folders: list[Path], counted: list[str]) -> None:
    """The error is raised, and the next one who asks reads again."""
    load = loading(ModelCache(lambda: 1 << 40), counted)
    (folders[0] / "config.json").rename(folders[0] / "elsewhere")
    with pytest.raises(bert_core.Refused):
        load(str(folders[0]))
    (folders[0] / "elsewhere").rename(folders[0] / "config.json")
    assert load(str(folders[0])).name == str(folders[0])
