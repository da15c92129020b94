"""The notebook of docs/: what is kept in it, and that it runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "tutorials" / "headlight.ipynb"


def cells(path: Path) -> list[nbformat.NotebookNode]:
    """The cells of code, in order."""
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_what_is_kept_was_run_in_order_and_is_small() -> None:
    """Every cell once from the first to the last, without an error, under 1 MB in all, and no path of a machine."""
    assert [cell.execution_count for cell in cells(NOTEBOOK)] == list(range(1, len(cells(NOTEBOOK)) + 1))
    outputs = [output for cell in cells(NOTEBOOK) for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert {output.name for output in outputs if output.output_type == "stream"} == {"stdout"}, "no warnings"
    assert NOTEBOOK.stat().st_size < 1_000_000
    words = "\n".join(str(output.get("text") or output.data.get("text/plain")) for output in outputs)
    assert re.findall(r"(?:/\w+){2,}|[A-Z]:\\", words) == []


def test_the_first_part_has_ten_cells_and_every_part_states_its_aim() -> None:
    """Ten cells of code lead from an empty kernel to one sentence about an ablated head; the other parts follow."""
    parts: dict[str, list[nbformat.NotebookNode]] = {}
    aims = {}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            title, _, aims[title] = cell.source.partition("\n\n")
            parts[title] = []
        elif cell.cell_type == "code":
            parts[title].append(cell)
    first, *_, last = parts
    assert (first, len(parts[first])) == ("## Ten cells: from a text to an ablated head", 10)
    assert parts[first][0].execution_count == 1 and "head_mask=" in "".join(cell.source for cell in parts[first])
    assert re.fullmatch(r"Without L\d+ H\d+ .+\.\n", parts[first][-1].outputs[0].text), "one sentence"
    assert [title for title, aim in aims.items() if not aim.startswith("After this part you can ")] == [last]
    assert last == "## Next steps" and parts[last] == []


def test_nothing_but_public_names_is_asked_of_the_library() -> None:
    """The notebook reads `import bert_core` and the app's notebook view, no room of either."""
    code = "\n".join(cell.source for cell in cells(NOTEBOOK))
    assert re.findall(r"(?:from|import) ((?:bert_core|viz_app)[\w.]*)", code) == ["bert_core", "viz_app.notebook"]
    assert re.findall(r"\b_\w+", code) == []


@pytest.mark.slow
def test_every_cell_runs(tmp_path: Path) -> None:
    """From top to bottom in a kernel of its own, as Jupyter would; each cell shows what is kept of it."""
    command = ["-m", "jupyter", "execute", "--output", str(tmp_path / "run.ipynb"), str(NOTEBOOK)]
    own = {name: str(tmp_path) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    # A test before this one may have told matplotlib to draw for files alone.
    inherited = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    environment = {**inherited, **own, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    kinds = [
        [{output.output_type for output in cell.outputs} for cell in cells(path)]
        for path in (NOTEBOOK, tmp_path / "run.ipynb")
    ]
    assert kinds[0] == kinds[1]
