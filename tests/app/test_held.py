"""What a session holds while its page is open: what was asked, and nothing that was computed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.testing.v1 import AppTest

from bert_core.loading import LoadedModel
from bert_core.translators import Translators
from bert_core.vision import LoadedCaptioner
from tests.visit import settled, visited
from viz_app.pages import PAGES
from viz_app.shell.downloads import OPEN_KEY
from viz_app.shell.jobs import JobQueue
from viz_app.shell.model_cache import ModelCache
from viz_app.shell.work import queue

LARGE = 1 << 16  # bytes
TEXT = "She opened the door and walked in, and the old man looked up from his book. " * 5 + "He drank a cup of [MASK]."
# What every visitor shares, or holds of themselves.
SHARED = (ModelCache, LoadedCaptioner, Translators, JobQueue, torch.nn.Module, type, FrameType)
VISITS: dict[str, dict[str, str]] = {
    "predict": {}, "attention": {"show": "product"}, "attention neuron": {"view": "neuron"},
    "attention together": {"combine": "weighted", "among": "all"}, "attention heads": {"view": "heads"},
    "compare": {"against": "heads", "off": "1.1"}, "compare model": {"against": "masked", "masked": "3"}, "why": {},
    "layers": {}, "layers answer": {"layers_view": "answer"}, "layers states": {"layers_view": "states"},
    "layers sentences": {"layers_view": "sentences"}, "layers kinds": {"layers_view": "kinds"},
    "heads": {}, "roles": {},
    "causes": {"source": TEXT.replace("old", "young"), "place": "2.3"}, "neurons": {"neuron": "3.146"},
    "profiles": {"tenth": "3"}, "probes": {}, "prune": {}, "finetune": {}, "score": {}, "similarity": {}, "search": {},
    "dataset": {"expected": "is", "predicted": "was", "outcome": "wrong"},
    "images": {"edges": "1"},
    "inside": {"stage": "scores"},
    "start": {}, "learn": {}, "glossary": {}, "predict lesson": {"lesson": "both_sides"},
    "learn class": {"class": "0123456789ab"}, "learn teacher": {"teach": "1"},
}  # fmt: skip


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The functions of the files that pages offer, as Streamlit keeps them."""
    found: list[Any] = []
    add = MediaFileManager.add_deferred

    def added(manager: MediaFileManager, make: Any, *given: Any, **how: Any) -> str:
        found.append(make)
        return add(manager, make, *given, **how)

    monkeypatch.setattr(MediaFileManager, "add_deferred", added)
    return found


def reached(*roots: object) -> Iterator[tuple[object, str]]:
    """Everything that these objects hold, with the types of what holds it; not through modules and what all share."""
    modules = {id(vars(module)) for module in list(sys.modules.values()) if isinstance(module, ModuleType)}
    waiting = [(root, type(root).__name__) for root in roots]
    seen = {id(root) for root in roots} | {id(waiting)}
    while waiting:
        thing, way = waiting.pop()
        yield thing, way
        for held in gc.get_referents(thing):
            if id(held) in seen or id(held) in modules or isinstance(held, SHARED):
                continue
            if isinstance(held, ModuleType) and held.__name__ in sys.modules:
                continue
            seen.add(id(held))
            waiting.append((held, f"{way[-300:]} > {getattr(held, '__qualname__', type(held).__name__)}"))


def size_of(thing: object) -> int:
    """Bytes of an array, a tensor or a file."""
    if isinstance(thing, bytes):
        return len(thing)
    return int(thing.nbytes) if isinstance(thing, np.ndarray | torch.Tensor) else 0


def large(app: AppTest, downloads: list[Any]) -> list[str]:
    """What a session holds that is large, or a model, and by what."""
    state = app._session_state._state
    roots = (state._new_widget_state.widget_metadata, state._new_session_state, state._old_state, app._fragment_storage)
    things = list(reached(*roots, downloads))
    models = [f"a model in {way}" for thing, way in things if isinstance(thing, LoadedModel)]
    return models + [f"{size_of(thing):,} bytes in {way}" for thing, way in things if size_of(thing) > LARGE]


def with_files(app: AppTest) -> AppTest:
    """The page when its work is done, with its Export control open, if it has one."""
    settled(app)
    app.session_state[OPEN_KEY] = True
    return settled(app.run())


def test_every_page_is_visited() -> None:
    """The table above has all of them."""
    assert {name.partition(" ")[0] for name in VISITS} == {page.path for page in PAGES}


@pytest.mark.slow
@pytest.mark.parametrize("visit", VISITS)
def test_a_session_holds_what_was_asked_and_no_record(visit: str, downloads: list[Any]) -> None:
    """Callbacks, fragments, downloads and the session's own state of a drawn page reach no array and no model."""
    page = visit.partition(" ")[0]
    app = with_files(visited("" if page == "predict" else page, **{"text": TEXT, **VISITS[visit]}))
    assert not app.exception and not app.error
    assert not large(app, downloads)


@pytest.mark.slow
@pytest.mark.parametrize("visit", ["attention", "attention neuron", "compare", "layers states", "images", "inside"])
def test_a_file_is_made_after_its_run_was_dropped(visit: str, downloads: list[Any]) -> None:
    """The click comes when the queue has forgotten all: in a thread without a page the file is made all the same."""
    page = visit.partition(" ")[0]
    assert not with_files(visited(page, **{"text": "The cat sat on the [MASK].", **VISITS[visit]})).exception
    for key in list(queue()._jobs):
        queue().forget(key)
    with ThreadPoolExecutor(1) as pool:
        made = [pool.submit(make).result() for make in dict.fromkeys(downloads)]
    assert made and all(made)


def test_the_walk_finds_what_a_closure_holds() -> None:
    """An array in a closure in a dictionary is seen, and one in a module is not."""
    held = np.zeros(LARGE)
    module = ModuleType("somewhere")
    module.__dict__["array"] = np.zeros(LARGE)
    sys.modules["somewhere"] = module
    try:
        exec("def there(): return array", module.__dict__)
        found = [
            thing for thing, _ in reached({"a": [lambda: held]}, module.__dict__["there"]) if size_of(thing) > LARGE
        ]
    finally:
        del sys.modules["somewhere"]
    assert len(found) == 1 and found[0] is held
