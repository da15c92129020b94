"""bert_core/__init__.py: names that load when they are used, and that a type checker and an editor know as well."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import re
import rlcompleter
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import bert_core

ROOT = Path(__file__).parents[2]
STUB = ast.parse((ROOT / "bert_core" / "__init__.pyi").read_text(encoding="utf-8"))
A_RIGHT_SCRIPT = """
import bert_core
loaded = bert_core.load("headlight-mini")
encoding = loaded.tokenizer.encode("She opened the [MASK].")
run = bert_core.capture(loaded, encoding, target=bert_core.word_target(loaded.tokenizer, encoding, "door"))
print(run.attention.shape, [method.name for method in bert_core.METHODS])
"""
A_WRONG_SCRIPT = """
import bert_core
loaded = bert_core.load("headlight-mini")
with bert_core.record() as recording:
    bert_core.capture(1, 2, nonsense=3)
print(recording.attention, bert_core.capture_all)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy, as strict as for the library, says of each script, a line a message."""
    folder = tmp_path_factory.mktemp("scripts")
    scripts = {
        "names": "import bert_core\n" + "".join(f"reveal_type(bert_core.{name})\n" for name in bert_core.__all__),
        "right": A_RIGHT_SCRIPT,
        "wrong": A_WRONG_SCRIPT,
    }
    for name, script in scripts.items():
        (folder / f"{name}.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-color-output"]
    paths = [str(folder / f"{name}.py") for name in scripts]
    done = subprocess.run([*command, *paths], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode in (0, 1), done.stderr
    lines = done.stdout.splitlines()
    return {name: [line for line in lines if f"{name}.py:" in line] for name in scripts}


@pytest.mark.slow
def test_no_public_name_is_any(told: dict[str, list[str]]) -> None:
    """For mypy there is a class, a function or a value with a type of its own behind each."""
    revealed = [re.findall(r'Revealed type is "(.*)"', line) for line in told["names"]]
    assert [line for line, found in zip(told["names"], revealed, strict=True) if len(found) != 1] == []
    assert len(revealed) == len(bert_core.__all__) > 150
    assert [line for line, (found,) in zip(told["names"], revealed, strict=True) if found in ("Any", "...")] == []


@pytest.mark.slow
def test_a_wrong_call_does_not_pass_mypy(told: dict[str, list[str]]) -> None:
    """An unknown argument, one of another type and an unknown name are errors; in a right script there are none."""
    assert told["right"] == []
    wrong = "\n".join(told["wrong"])
    assert 'Unexpected keyword argument "nonsense" for "capture"' in wrong
    assert 'Argument 1 to "capture" has incompatible type "int"; expected "LoadedModel"' in wrong
    assert 'Module has no attribute "capture_all"' in wrong


def test_types_and_the_interpreter_find_the_same() -> None:
    """Each name of the stub is exported by it, loaded from the module that defines it, and hides no module of ours."""
    imports = [node for node in STUB.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: f"bert_core.{node.module}" for node in imports for alias in node.names}
    assert [alias.name for node in imports for alias in node.names if alias.asname != alias.name] == []
    assert sum(len(node.names) for node in imports) == len(seen) and bert_core.__all__ == sorted(seen)
    assert not set(seen) & {module.name for module in pkgutil.iter_modules(bert_core.__path__)}
    for name in bert_core.__all__:
        value = getattr(bert_core, name)
        assert value is getattr(importlib.import_module(seen[name]), name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__ == seen[name], name


@pytest.mark.slow
def test_names_are_listed_completed_and_pickled() -> None:
    """dir, tab completion, and pickle by reference, each in a new process where nothing has been loaded before."""
    assert set(bert_core.__all__) <= set(dir(bert_core)) and "__version__" in dir(bert_core)
    completer = rlcompleter.Completer({"bert_core": bert_core})
    assert str(completer.complete("bert_core.integrated_g", 0)).startswith("bert_core.integrated_gradients")
    for value in (bert_core.capture, bert_core.Target, bert_core.record, bert_core.METHODS[0].name):
        assert pickle.loads(pickle.dumps(value)) == value
    target = bert_core.Target("mlm", 3, 70)
    script = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, input=pickle.dumps(target), capture_output=True)
    assert done.stdout.decode().strip() == repr(target)
    script = "import sys, bert_core; dir(bert_core); print(len(bert_core.__all__), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True)
    assert done.stdout.decode().split() == [str(len(bert_core.__all__)), "False"]
    with pytest.raises(AttributeError, match="module 'bert_core' has no attribute 'capture_all'"):
        bert_core.capture_all  # type: ignore[attr-defined]  # noqa: B018


def test_a_deprecated_name_gives_the_new_object_and_one_warning() -> None:
    """The old name still works, says what to write and until when; it is not listed, and type checkers know it."""
    renamed = bert_core._RENAMED
    assert renamed["carried"] == "make_patch"
    assert not set(renamed) & {*bert_core.__all__, *dir(bert_core)} and set(renamed.values()) <= set(bert_core.__all__)
    for old, new in renamed.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert getattr(bert_core, old) is getattr(bert_core, new)
        sentence = f"bert_core.{old} is now bert_core.{new}; the old name will be removed in version 0.4"
        assert [(w.category, str(w.message), w.filename) for w in caught] == [(DeprecationWarning, sentence, __file__)]
    assigned = {
        ast.unparse(target): ast.unparse(node.value)
        for node in STUB.body if isinstance(node, ast.Assign)
        for target in node.targets
    }  # fmt: skip
    assert assigned == renamed
