"""Who may import whom: every file of the code against the table of docs/architecture.md; and the pins."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bert_core

ROOT = Path(__file__).parents[1]

# Room -> what it may import beside the standard library and itself.
# A room is a module or a folder with all below it; the innermost counts.
MAY_IMPORT: dict[str, set[str]] = {
    "bert_core": {"lazy_loader"},
    "bert_core.refused": {"numpy"},  # every room may say no
    "bert_core.progress": set(),
    "bert_core.heap": set(),
    "bert_core.unknown": set(),
    "bert_core.registry": set(),
    "bert_core.config": {"bert_core.naming", "bert_core.positions"},
    "bert_core.naming": set(),
    "bert_core.positions": set(),
    "bert_core.charsmap": {"numpy"},
    "bert_core.spelling": set(),
    "bert_core.csv_cells": set(),
    "bert_core.target_kinds": {"bert_core.registry"},
    "bert_core.merges": {"tokenizers", "bert_core.config", "bert_core.spelling"},
    "bert_core.convert": {"transformers", "bert_core.charsmap", "bert_core.config", "bert_core.merges"},
    "bert_core.tokenizer_files": {
        "tokenizers", "bert_core.charsmap", "bert_core.config", "bert_core.merges", "bert_core.convert",
    },
    "bert_core.tokenizer": {
        "numpy", "tokenizers", "bert_core.config", "bert_core.spelling", "bert_core.tokenizer_files",
        "bert_core.unknown",
    },
    "bert_core.numpy_bert": {
        "numpy", "safetensors", "bert_core.config", "bert_core.naming", "bert_core.positions",
    },
    "bert_core.recording": {"torch"},
    "bert_core.edits": {"numpy"},
    "bert_core.attention": {
        "torch", "bert_core.config", "bert_core.positions", "bert_core.recording", "bert_core.edits",
    },
    "bert_core.checkpoint": {"torch", "safetensors", "bert_core.config", "bert_core.naming"},
    "bert_core.modeling": {
        "torch", "bert_core.config", "bert_core.recording", "bert_core.edits", "bert_core.attention",
        "bert_core.checkpoint",
    },
    "bert_core.pooling": {"torch", "bert_core.config", "bert_core.checkpoint"},
    "bert_core.task_heads": {
        "bert_core.target_kinds",
        "numpy", "torch", "bert_core.config", "bert_core.modeling", "bert_core.records", "bert_core.analysis",
        "bert_core.tokenizer", "bert_core.loading", "bert_core.registry",
    },
    "bert_core.generation": {"torch", "bert_core.modeling"},
    "bert_core.loading": {
        "torch", "safetensors", "huggingface_hub",
        "bert_core.config", "bert_core.tokenizer", "bert_core.modeling", "bert_core.checkpoint", "bert_core.edits",
        "bert_core.pooling", "bert_core.tokenizer_files", "bert_core.task_heads",
    },
    "bert_core.editing": {"torch", "bert_core.config", "bert_core.edits", "bert_core.modeling", "bert_core.loading"},
    "bert_core.pruning": {
        "torch", "bert_core.config", "bert_core.edits", "bert_core.attention", "bert_core.modeling",
        "bert_core.loading",
    },
    "bert_core.fingerprint": {
        "torch", "bert_core.config", "bert_core.tokenizer", "bert_core.checkpoint", "bert_core.loading",
    },
    "bert_core.translators": {
        "torch", "safetensors", "bert_core.config", "bert_core.checkpoint", "bert_core.loading",
        "bert_core.fingerprint",
    },
    "bert_core.calibration": {
        "numpy", "bert_core.checkpoint", "bert_core.loading", "bert_core.fingerprint",
    },
    "bert_core.scenes": {"numpy"},
    "bert_core.agreement": {"bert_core.csv_cells", "bert_core.tokenizer"},
    "bert_core.vision": {
        "torch", "numpy", "safetensors", "bert_core.config", "bert_core.tokenizer", "bert_core.checkpoint",
        "bert_core.modeling", "bert_core.generation", "bert_core.loading",
    },
    "bert_core.records": {
        "bert_core.target_kinds", "numpy", "bert_core.edits", "bert_core.tokenizer", "bert_core.registry",
    },
    "bert_core.run": {
        "bert_core.target_kinds",
        "numpy", "torch", "bert_core.progress", "bert_core.config", "bert_core.tokenizer", "bert_core.numpy_bert",
        "bert_core.recording", "bert_core.attention", "bert_core.modeling", "bert_core.loading", "bert_core.pruning",
        "bert_core.translators", "bert_core.vision", "bert_core.records", "bert_core.analysis", "bert_core.edits",
        "bert_core.editing", "bert_core.unknown", "bert_core.task_heads",
    },
    "bert_core.analysis": {
        "numpy", "scipy", "umap", "bert_core.progress", "bert_core.records", "bert_core.tokenizer",
    },
    "bert_core.methods": {
        "numpy", "bert_core.progress", "bert_core.loading", "bert_core.records", "bert_core.tokenizer",
        "bert_core.run", "bert_core.analysis",
    },
    "bert_core.studies": {
        "bert_core.csv_cells", "bert_core.target_kinds",
        "filelock", "numpy", "pyarrow", "ray", "bert_core.progress", "bert_core.checkpoint", "bert_core.loading",
        "bert_core.records", "bert_core.tokenizer", "bert_core.run", "bert_core.analysis", "bert_core.methods",
        "bert_core.edits", "bert_core.config", "bert_core.fingerprint", "bert_core.unknown", "bert_core.task_heads",
    },
    "bert_core.training": {
        "filelock", "numpy", "scipy", "torch", "bert_core.progress", "bert_core.config", "bert_core.naming",
        "bert_core.heap", "bert_core.tokenizer", "bert_core.recording", "bert_core.pooling",
        "bert_core.checkpoint", "bert_core.modeling", "bert_core.loading", "bert_core.translators",
        "bert_core.fingerprint", "bert_core.calibration", "bert_core.scenes", "bert_core.agreement",
        "bert_core.vision", "bert_core.records", "bert_core.run", "bert_core.analysis", "bert_core.studies",
        "bert_core.edits", "bert_core.task_heads",
    },
    "viz_app": set(),
    "viz_app.figures": {"numpy", "plotly", "PIL"},
    "viz_app.tokens": {"numpy"},
    "viz_app.components": {"numpy", "streamlit", "viz_app.figures", "viz_app.tokens"},
    "viz_app.notation": {"bert_core.refused", "bert_core.tokenizer", "bert_core.edits", "bert_core.records"},
    "viz_app.maps": {
        "numpy", "bert_core.refused", "bert_core.tokenizer", "bert_core.edits", "bert_core.records",
        "bert_core.analysis", "viz_app.notation", "viz_app.tokens",
    },
    "viz_app.comparison": {
        "numpy", "bert_core.refused", "bert_core.tokenizer", "bert_core.records", "bert_core.analysis",
        "viz_app.notation", "viz_app.tokens", "viz_app.maps",
    },
    "viz_app.export": {
        "bert_core.csv_cells", "bert_core.target_kinds",
        "numpy", "matplotlib", "threadpoolctl", "bert_core.refused", "bert_core.progress", "bert_core.tokenizer",
        "bert_core.edits", "bert_core.records", "bert_core.analysis", "bert_core.studies", "viz_app.figures",
        "viz_app.tokens", "viz_app.components", "viz_app.maps", "viz_app.comparison",
    },
    "viz_app.export.bertviz": {"numpy", "torch", "bertviz", "bert_core.refused", "viz_app.maps"},
    "viz_app.notebook": {
        "numpy", "bert_core.refused", "bert_core.records", "viz_app.maps", "viz_app.comparison", "viz_app.export",
    },
    "viz_app.lessons": {"numpy", "bert_core.refused", "bert_core.records", "bert_core.analysis"},
    "viz_app.classroom": {"segno", "bert_core.refused", "viz_app.lessons", "viz_app.export"},
    "viz_app.glossary": {"viz_app.lessons"},
    "viz_app.shell": {
        "bert_core.target_kinds",
        "bert_core.task_heads",
        "filelock", "numpy", "torch", "plotly", "streamlit",
        "bert_core.refused", "bert_core.progress", "bert_core.heap", "bert_core.tokenizer",
        "bert_core.checkpoint", "bert_core.loading", "bert_core.translators", "bert_core.fingerprint",
        "bert_core.agreement", "bert_core.records", "bert_core.run", "bert_core.analysis", "bert_core.methods",
        "bert_core.studies", "viz_app",
        "bert_core.edits", "bert_core.editing", "bert_core.unknown", "viz_app.door", "viz_app.notation",
        "viz_app.figures", "viz_app.components", "viz_app.maps", "viz_app.comparison", "viz_app.lessons",
        "viz_app.glossary", "viz_app.classroom",
        "viz_app.export", "viz_app.export.bertviz",
    },
    "viz_app.finetuning": {
        "bert_core.refused", "bert_core.checkpoint", "bert_core.studies", "bert_core.training", "viz_app.door",
        "viz_app.shell",
    },
    "viz_app.pages": {
        "viz_app.pages.predict", "viz_app.pages.attention", "viz_app.pages.compare", "viz_app.pages.why",
        "viz_app.pages.layers", "viz_app.pages.heads", "viz_app.pages.roles", "viz_app.pages.prune",
        "viz_app.pages.finetune",
        "viz_app.pages.score", "viz_app.pages.images", "viz_app.pages.inside", "viz_app.pages.learn",
        "viz_app.pages.glossary", "viz_app.pages.start", "viz_app.pages.causes",
        "viz_app.pages.probes", "viz_app.pages.neurons", "viz_app.pages.dossier",
    },
    "viz_app.pages.predict": {
        "bert_core.task_heads",
        "numpy", "streamlit", "bert_core.refused", "bert_core.calibration", "bert_core.records", "bert_core.tokenizer",
        "bert_core.run", "bert_core.analysis", "viz_app.figures", "viz_app.components", "viz_app.shell",
    },
    "viz_app.pages.attention": {
        "numpy", "streamlit", "bert_core.refused", "bert_core.tokenizer", "bert_core.records", "bert_core.run",
        "bert_core.analysis", "bert_core.edits", "viz_app.figures", "viz_app.tokens", "viz_app.components",
        "viz_app.maps", "viz_app.export", "viz_app.shell",
    },
    "viz_app.pages.compare": {
        "numpy", "streamlit", "bert_core.analysis", "viz_app.figures", "viz_app.components", "viz_app.maps",
        "viz_app.comparison", "viz_app.shell",
    },
    "viz_app.pages.why": {
        "numpy", "streamlit", "bert_core.refused", "bert_core.progress", "bert_core.tokenizer", "bert_core.records",
        "bert_core.analysis", "bert_core.methods", "bert_core.studies", "bert_core.run", "viz_app.figures",
        "viz_app.components", "viz_app.export", "viz_app.shell",
    },
    "viz_app.pages.layers": {
        "numpy", "streamlit", "bert_core.refused", "bert_core.loading", "bert_core.tokenizer", "bert_core.checkpoint",
        "bert_core.translators", "bert_core.records", "bert_core.run", "bert_core.analysis", "bert_core.studies",
        "viz_app.figures", "viz_app.door", "viz_app.export", "viz_app.shell",
    },
    "viz_app.pages.causes": {
        "numpy", "streamlit", "bert_core.refused", "bert_core.progress", "bert_core.tokenizer", "bert_core.loading",
        "bert_core.edits", "bert_core.records", "bert_core.run", "bert_core.analysis", "viz_app.notation",
        "viz_app.figures", "viz_app.export", "viz_app.shell",
    },
    "viz_app.pages.dossier": {
        "numpy", "streamlit", "bert_core.progress", "bert_core.refused", "bert_core.loading", "bert_core.run",
        "bert_core.studies",
        "viz_app.figures", "viz_app.components", "viz_app.export", "viz_app.shell",
    },
    "viz_app.pages.probes": {
        "numpy", "streamlit", "bert_core.progress", "bert_core.refused", "bert_core.loading", "bert_core.tokenizer",
        "bert_core.agreement", "bert_core.records", "bert_core.run", "bert_core.analysis", "bert_core.studies",
        "viz_app.figures", "viz_app.shell",
    },
    "viz_app.pages.neurons": {
        "numpy", "streamlit", "bert_core.refused", "bert_core.edits", "bert_core.records", "bert_core.run",
        "bert_core.analysis", "viz_app.figures", "viz_app.export", "viz_app.shell",
    },
    "viz_app.pages.heads": {
        "bert_core.task_heads",
        "numpy", "streamlit", "bert_core.records", "bert_core.analysis", "viz_app.figures", "viz_app.components",
        "viz_app.shell",
    },
    "viz_app.pages.roles": {
        "numpy", "streamlit", "bert_core.refused", "bert_core.progress", "bert_core.loading", "bert_core.fingerprint",
        "bert_core.records", "bert_core.run", "bert_core.analysis", "bert_core.studies", "viz_app.figures",
        "viz_app.components", "viz_app.maps", "viz_app.shell",
    },
    "viz_app.pages.prune": {
        "numpy", "streamlit", "bert_core.refused", "bert_core.progress", "bert_core.tokenizer", "bert_core.modeling",
        "bert_core.loading", "bert_core.pruning", "bert_core.records", "bert_core.run", "bert_core.analysis",
        "bert_core.training", "viz_app.door", "viz_app.figures", "viz_app.components", "viz_app.shell",
    },
    "viz_app.pages.finetune": {
        "numpy", "streamlit", "bert_core.progress", "bert_core.refused", "bert_core.tokenizer",
        "bert_core.loading", "bert_core.records", "bert_core.run", "bert_core.analysis", "bert_core.studies",
        "viz_app.figures", "viz_app.components", "viz_app.finetuning", "viz_app.shell",
    },
    "viz_app.pages.score": {
        "numpy", "streamlit", "bert_core.refused", "bert_core.loading", "bert_core.tokenizer", "bert_core.records",
        "bert_core.run", "bert_core.analysis", "bert_core.studies", "viz_app.figures", "viz_app.export",
        "viz_app.shell",
    },
    "viz_app.pages.images": {
        "bert_core.csv_cells",
        "numpy", "PIL", "streamlit", "bert_core.refused", "bert_core.tokenizer", "bert_core.scenes", "bert_core.vision",
        "bert_core.records", "bert_core.run", "bert_core.analysis", "viz_app.figures", "viz_app.components",
        "viz_app.maps", "viz_app.export", "viz_app.shell",
    },
    "viz_app.pages.inside": {
        "numpy", "plotly", "streamlit", "bert_core.records", "bert_core.run", "bert_core.analysis", "viz_app.figures",
        "viz_app.components", "viz_app.export", "viz_app.shell",
    },
    "viz_app.pages.learn": {
        "streamlit", "bert_core.refused", "viz_app.door", "viz_app.figures", "viz_app.lessons", "viz_app.classroom",
        "viz_app.shell",
    },
    "viz_app.pages.start": {"streamlit", "viz_app.lessons", "viz_app.shell"},
    "viz_app.pages.glossary": {
        "streamlit", "bert_core.refused", "viz_app.lessons", "viz_app.glossary", "viz_app.shell",
    },
    "viz_app.cli": {
        "bert_core.csv_cells", "bert_core.target_kinds",
        "bert_core.task_heads",
        "numpy", "typer", "bert_core.refused", "bert_core.tokenizer", "bert_core.checkpoint", "bert_core.loading",
        "bert_core.pruning", "bert_core.calibration", "bert_core.scenes", "bert_core.vision", "bert_core.records",
        "bert_core.run", "bert_core.analysis", "bert_core.methods", "bert_core.studies", "bert_core.training",
        "bert_core.pooling", "viz_app", "viz_app.classroom", "viz_app.door", "viz_app.notation", "viz_app.maps",
        "viz_app.comparison", "viz_app.lessons", "bert_core.editing", "bert_core.unknown",
        "viz_app.export",
        "viz_app.export.bertviz", "viz_app.shell", "viz_app.pages",
    },
    "viz_app.door": {"google", "starlette", "streamlit", "bert_core.refused"},
    "viz_app.server": {"prometheus_client", "streamlit", "viz_app", "viz_app.door", "viz_app.shell"},
    "viz_app.streamlit_compat": {"streamlit"},
    "viz_app.front": {"streamlit", "viz_app.door", "viz_app.shell", "viz_app.pages", "viz_app.streamlit_compat"},
    "streamlit_app": {"streamlit", "viz_app.door", "viz_app.server", "viz_app.front"},
    "tools": {
        "numpy", "torch", "bert_core.progress", "bert_core.tokenizer", "bert_core.checkpoint", "bert_core.loading",
        "bert_core.calibration", "bert_core.scenes", "bert_core.vision", "bert_core.run", "bert_core.training",
    },
}  # fmt: skip


# Public name -> the module that defines it, from the stub by which the library loads its names.
HOME_OF = {
    alias.name: f"bert_core.{node.module}"
    for node in ast.parse((ROOT / "bert_core" / "__init__.pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}


def room_of(module: str) -> str:
    """The innermost room of a module; a whole outside package is a room of its own."""
    outermost = module.partition(".")[0]
    if outermost not in ("bert_core", "viz_app", "streamlit_app", "tools"):
        return outermost
    parts = module.split(".")
    candidates = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in candidates if name in MAY_IMPORT), module)


def imported(source: str, *, types: bool = True) -> Iterator[str]:
    """Every module that a source text imports, wherever the import stands; lazy names by the module they live in.

    types: also what only type checkers import.
    """
    tree = ast.parse(source)
    if not types:
        tree.body = [
            node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                yield full_name(node.module or "", alias.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "bert_core":
            yield full_name("bert_core", node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            yield "an import by a computed name"


def full_name(module: str, name: str) -> str:
    """The module that `from module import name` reads."""
    if module == "bert_core" and name in HOME_OF:
        return HOME_OF[name]
    path = ROOT / module.replace(".", "/") / name
    return f"{module}.{name}" if path.is_dir() or path.with_suffix(".py").is_file() else module


def strangers(module: str, source: str) -> set[str]:
    """The rooms that a module imports and may not."""
    here = room_of(module)
    rooms = {room_of(name) for name in imported(source)} - sys.stdlib_module_names - {here}
    # `import bert_core` for its lazy names: what is then used counts by its own room. Every room may refuse.
    return rooms - MAY_IMPORT[here] - {"bert_core", "bert_core.refused"}


def modules() -> dict[str, Path]:
    """Name -> file of all our code."""
    folders = ("bert_core", "viz_app", "tools")
    files = [*(file for folder in folders for file in ROOT.glob(f"{folder}/**/*.py")), ROOT / "streamlit_app.py"]
    names = (file.relative_to(ROOT).with_suffix("").parts for file in files)
    return {".".join(name).removesuffix(".__init__"): file for name, file in zip(names, files, strict=True)}


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_room_imports_only_what_the_house_allows(module: str) -> None:
    """Every import of every file, also inside functions, is one that its room may make."""
    assert room_of(module) in MAY_IMPORT, f"{module} is in no room: give it one, here and in docs/architecture.md"
    # The page that is opened is imported by its name.
    allowed = {"an import by a computed name"} if module == "viz_app.front" else set()
    assert strangers(module, modules()[module].read_text(encoding="utf-8")) <= allowed


@pytest.mark.parametrize(
    ("module", "source", "stranger"),
    [
        ("bert_core.analysis.flow", "def f():\n    import torch", "torch"),
        ("bert_core.analysis.flow", "from bert_core import load", "bert_core.loading"),
        ("bert_core.analysis.flow", "import bert_core\nbert_core.capture()", "bert_core.run"),
        ("bert_core.modeling", "from bert_core import loading", "bert_core.loading"),
        ("bert_core.run.capture", "if x:\n    import streamlit.web", "streamlit"),
        ("viz_app.pages.heads", "from bert_core.run.capture import capture", "bert_core.run"),
        ("viz_app.pages.heads", "import importlib\nimportlib.import_module('torch')", "an import by a computed name"),
    ],
)
def test_the_walk_finds_an_import_that_is_not_allowed(module: str, source: str, stranger: str) -> None:
    """An import planted in a function, behind a lazy name or by a computed name is seen."""
    assert strangers(module, source) == {stranger}


# How code would ask for the family of a model. `fingerprint` and training, which write its name, are elsewhere.
ASKS_FOR_FAMILY = re.compile(r"family\.name|\bfamily\s*[!=]=|family_of|model_type|position_embedding_type")


def test_nothing_that_runs_or_shows_a_model_asks_for_its_family() -> None:
    """What differs between families is a property of the configuration, a position scheme or a block."""
    assert ASKS_FOR_FAMILY.search('if loaded.config.family.name == "albert":')
    rooms = ("bert_core.run", "bert_core.analysis", "bert_core.studies", "viz_app")
    asking = {
        name: found[0] for name, file in modules().items()
        if name.startswith(rooms) and (found := ASKS_FOR_FAMILY.search(file.read_text(encoding="utf-8")))
    }  # fmt: skip
    assert asking == {}


def rows_of(table: str) -> dict[str, set[str]]:
    """Room -> what it may import, as a table in Markdown says; there our own rooms stand without their package."""
    rows = [row.split("|")[1:4] for row in table.splitlines() if row.startswith("| `")]
    return {room.strip(" `"): {whole_name(name.strip()) for name in names.split(",") if name.strip()}
            for room, _, names in rows}  # fmt: skip


def whole_name(short: str) -> str:
    """The room that a short name means; what is none of ours is a package from outside."""
    found = [name for name in (f"bert_core.{short}", f"viz_app.{short}") if name in MAY_IMPORT]
    assert len(found) <= 1, f"{short} may be {' or '.join(found)}"
    return found[0] if found else short


def test_the_table_of_the_documents_is_this_one() -> None:
    """docs/architecture.md names every room, what it may import, and nothing else."""
    assert rows_of((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")) == MAY_IMPORT


def test_no_page_imports_another() -> None:
    """What two pages need is in the shell or in the view-model; only the list of pages names them all."""
    pages = {room for room in MAY_IMPORT if room.startswith("viz_app.pages.")}
    assert {room for room, allowed in MAY_IMPORT.items() if allowed & pages} == {"viz_app.pages"}


def test_modules_import_each_other_in_no_circle() -> None:
    """There is an order in which every module comes after all that it imports."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for module, file in known.items():
        names = set(imported(file.read_text(encoding="utf-8"), types=False))
        read = {name if name in known else name.rpartition(".")[0] for name in names}
        graph[module] = read & known.keys() - {module}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("folder", sorted({file.parent for file in modules().values()} - {ROOT}))
def test_every_folder_of_code_is_a_package(folder: Path) -> None:
    """A folder without `__init__.py` would be left out of the wheel."""
    assert (folder / "__init__.py").is_file()


def test_importing_the_library_does_not_import_torch() -> None:
    """`import bert_core` is light; the first use of a name that needs torch brings it."""
    code = "import sys, bert_core\nprint('torch' in sys.modules)\nbert_core.BertModel\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_files_are_made_without_streamlit() -> None:
    """All of the view-model, of the lessons and of `export` does without Streamlit."""
    modules_of_files = [name for name in modules() if name.startswith("viz_app.export")]
    view_model = ["viz_app.tokens", "viz_app.maps", "viz_app.comparison", "viz_app.lessons.reading"]
    without = [*view_model, "viz_app.notebook", *modules_of_files]
    code = "\n".join([*(f"import {name}" for name in without), "import sys", "print('streamlit' in sys.modules)"])
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_every_public_name_is_there() -> None:
    """Every name that the library lists can be had from it."""
    renamed = {"PreTrainedBertModel": "BertPreTrainedModel", "ACT2FN": None, "METHODS": None}
    for name in bert_core.__all__:
        assert getattr(getattr(bert_core, name), "__name__", None) == renamed.get(name, name)


def test_constraints_pin_every_dependency_and_nothing_of_a_machine() -> None:
    """Each line is name==version, and each package that pyproject.toml asks for, tools included, has one."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    pinned = {canonical(line.partition("==")[0]) for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert {canonical(re.split(r"[<>=]", name)[0]) for name in asked} <= pinned


def canonical(name: str) -> str:
    """A package name as it is compared: lower case, one kind of dash."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest knows a file without a package by its name alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_the_tracked_files_have_at_most_68_megabytes() -> None:
    """Everyone who clones the repository loads them; the weights of the bundled model are 46 MB of them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    sizes = {name: (ROOT / name).stat().st_size for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
    assert len(sizes) > 500
    assert sum(sizes.values()) <= 68_000_000, f"the largest: {', '.join(f'{n} {sizes[n]:,}' for n in largest)}"
