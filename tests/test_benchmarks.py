"""benchmarks/: every script runs with its smallest size, and leaves the tables of README.md as they are."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))}
RUN = [name for name, source in SCRIPTS.items() if re.search(r"^if __name__ == .__main__.:", source, re.MULTILINE)]
# A row of a table that has a number in it, or a sentence with a time.
RESULT = re.compile(r"^\|.*\d.*\|$|\d (?:ms|s)\b", re.MULTILINE)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the scripts share, which is in no package."""
    monkeypatch.setattr(sys, "argv", ["script.py"])
    spec = importlib.util.spec_from_file_location("tables", FOLDER / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.release
@pytest.mark.parametrize(
    "command", [*RUN, "crowd.py --again --crowd 2x1:0.1s", "crowd.py --beside 1", "crowd.py --copies 2"]
)
def test_every_script_runs_with_its_smallest_size(command: str) -> None:
    """With --quick each script ends well, prints a result without NaN, and does not change README.md.

    Each still compares what it times: a script ends with another status where the sides differ.
    """
    readme = (FOLDER / "README.md").read_bytes()
    script, *options = command.split()
    # npm, which views.py needs, may be a package of the environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), "--quick", *options],
        cwd=ROOT, env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert RESULT.search(done.stdout), done.stdout
    assert not re.search(r"\bnan\b", done.stdout), done.stdout
    assert (FOLDER / "README.md").read_bytes() == readme


@pytest.mark.slow
def test_every_script_imports() -> None:
    """The names that the scripts import exist; `make test-release` runs them."""
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = subprocess.run(
        [sys.executable, "-c", code, *(name.removesuffix(".py") for name in RUN)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{FOLDER}{os.pathsep}{ROOT}"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]


def test_every_script_has_the_common_options() -> None:
    """Scripts leave the command line to tables.py, so that each has --quick, and --write is refused beside it."""
    assert {"crowd.py", "encoder.py", "figures.py", "views.py", "why.py"} <= set(RUN)
    assert "tables.py" not in RUN and "by_faiss.py" not in RUN
    for name in RUN:
        source = SCRIPTS[name]
        assert re.search(r"\b(?:command|parse_arguments)\(", source), name
        assert not re.search(r"\.parse_(?:known_)?args\(|add_argument\(\"--(?:quick|write)\"", source), name


def test_no_table_of_the_smallest_size_is_written(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--quick with --write is refused in one sentence before anything is measured; --write alone writes the table."""
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- table of script.py -->\nold\n<!-- end of script.py -->\nb\n", encoding="utf-8")
    monkeypatch.setattr(tables, "README", readme)
    monkeypatch.setattr(sys, "argv", ["script.py", "--quick", "--write"])
    with pytest.raises(SystemExit) as refused:
        tables.command("script.py", "", lambda: pytest.fail("it was measured"), print)
    assert refused.value.code == (
        "--write with --quick: README.md takes tables of the full size only, so give one of the two"
    )
    assert "old" in readme.read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["script.py", "--write"])
    tables.command("script.py", "", lambda: "new\n", print)
    assert readme.read_text(encoding="utf-8") == ("a\n<!-- table of script.py -->\nnew\n<!-- end of script.py -->\nb\n")


def test_a_measurement_has_a_process_of_its_own(tables: ModuleType, tmp_path: Path) -> None:
    """What `measure` returns comes back from another process, which has the given settings of malloc and no others."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nfrom tables import command\n"
        "def measure(*given):\n"
        "    malloc = {name: value for name, value in os.environ.items() if name.startswith('MALLOC_')}\n"
        "    return {'given': given, 'malloc': malloc, 'process': os.getpid()}\n"
        "command(__file__, '', str, measure)\n",
        encoding="utf-8",
    )
    inherited = dict(os.environ)
    os.environ |= {"PYTHONPATH": str(FOLDER), "MALLOC_ARENA_MAX": "2"}
    try:
        result = tables.in_own_process(str(script), 1, "two", malloc={"MALLOC_TOP_PAD_": "3"})
    finally:
        os.environ.clear()
        os.environ.update(inherited)
    assert result.pop("process") != os.getpid()
    assert result == {"given": [1, "two"], "malloc": {"MALLOC_TOP_PAD_": "3"}}
