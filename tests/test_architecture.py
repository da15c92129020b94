"""Imports against the table of docs/contributing/architecture.md, names of variables, packaging, pinned versions."""

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
from tests import naming

ROOT = Path(__file__).parents[1]

EVERYWHERE = {"bert_core.refused", "bert_core.deprecation"}
# Module or package -> the modules and packages that it imports, besides the standard library and itself. A package
# stands for all modules below it that have no row of their own. The table is exact: missing and superfluous entries
# fail, except that the modules of `EVERYWHERE` may be imported everywhere and need no entry.
MAY_IMPORT: dict[str, set[str]] = {
    "bert_core": {"lazy_loader"},
    "bert_core.refused": {"numpy"},
    "bert_core.progress": set(),
    "bert_core.settings": set(),
    "bert_core.deprecation": set(),
    "bert_core.heap": set(),
    "bert_core.unknown_tokens": set(),
    "bert_core.registry": set(),
    "bert_core.config": {"bert_core.naming", "bert_core.positions"},
    "bert_core.naming": set(),
    "bert_core.positions": {"numpy"},
    "bert_core.charsmap": {"numpy"},
    "bert_core.spelling": set(),
    "bert_core.csv_cells": set(),
    "bert_core.target_kinds": {"bert_core.registry"},
    "bert_core.merges": {"tokenizers", "bert_core.config", "bert_core.spelling"},
    "bert_core.convert": {"transformers", "bert_core.charsmap", "bert_core.config", "bert_core.merges"},
    "bert_core.tokenizer_files": {
        "tokenizers", "bert_core.charsmap", "bert_core.config", "bert_core.merges", "bert_core.convert",
        "bert_core.spelling",
    },
    "bert_core.tokenizer": {
        "numpy", "tokenizers", "bert_core.config", "bert_core.spelling", "bert_core.tokenizer_files",
        "bert_core.unknown_tokens",
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
        "bert_core.tokenizer", "bert_core.loading", "bert_core.registry", "bert_core.checkpoint", "bert_core.pooling",
    },
    "bert_core.generation": {"torch", "bert_core.modeling"},
    "bert_core.loading": {
        "torch", "safetensors", "huggingface_hub",
        "bert_core.config", "bert_core.tokenizer", "bert_core.modeling", "bert_core.checkpoint", "bert_core.edits",
        "bert_core.pooling", "bert_core.tokenizer_files", "bert_core.task_heads",
    },
    "bert_core.transformers_models": {
        "torch", "bert_core.config", "bert_core.naming", "bert_core.checkpoint", "bert_core.pooling",
        "bert_core.loading",
    },
    "bert_core.editing": {"torch", "bert_core.config", "bert_core.edits", "bert_core.modeling", "bert_core.loading"},
    "bert_core.pruning": {
        "torch", "bert_core.config", "bert_core.edits", "bert_core.modeling",
        "bert_core.loading",
    },
    "bert_core.fingerprint": {
        "numpy", "torch", "bert_core.config", "bert_core.tokenizer", "bert_core.checkpoint", "bert_core.loading",
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
    "bert_core.circuits": {
        "numpy", "torch", "tokenizers", "bert_core.config", "bert_core.tokenizer", "bert_core.checkpoint",
        "bert_core.modeling", "bert_core.loading", "bert_core.records",
    },
    "bert_core.vision": {
        "torch", "numpy", "safetensors", "bert_core.config", "bert_core.tokenizer", "bert_core.checkpoint",
        "bert_core.modeling", "bert_core.generation", "bert_core.loading",
    },
    "bert_core.records": {
        "bert_core.target_kinds", "numpy", "pandas", "bert_core.heap", "bert_core.positions", "bert_core.edits",
        "bert_core.tokenizer",
    },
    "bert_core.run": {
        "bert_core.target_kinds",
        "numpy", "torch", "bert_core.progress", "bert_core.config", "bert_core.tokenizer", "bert_core.numpy_bert",
        "bert_core.recording", "bert_core.attention", "bert_core.modeling", "bert_core.loading", "bert_core.pruning",
        "bert_core.translators", "bert_core.vision", "bert_core.records", "bert_core.analysis", "bert_core.edits",
        "bert_core.editing", "bert_core.unknown_tokens", "bert_core.task_heads", "bert_core.heap",
    },
    "bert_core.analysis": {
        "numpy", "scipy", "umap", "bert_core.progress", "bert_core.records", "bert_core.tokenizer",
    },
    "bert_core.onnx_export": {
        "numpy", "onnx", "torch", "bert_core.checkpoint", "bert_core.edits", "bert_core.loading",
        "bert_core.recording",
    },
    "bert_core.methods": {
        "numpy", "bert_core.progress", "bert_core.loading", "bert_core.records", "bert_core.tokenizer",
        "bert_core.run", "bert_core.analysis",
    },
    "bert_core.studies": {
        "bert_core.csv_cells", "bert_core.settings", "bert_core.target_kinds",
        "filelock", "numpy", "pyarrow", "ray", "bert_core.progress", "bert_core.checkpoint", "bert_core.loading",
        "bert_core.records", "bert_core.tokenizer", "bert_core.run", "bert_core.analysis", "bert_core.methods",
        "bert_core.edits", "bert_core.config", "bert_core.fingerprint", "bert_core.unknown_tokens",
        "bert_core.task_heads", "bert_core.agreement", "bert_core.circuits",
    },
    "bert_core.training": {
        "filelock", "numpy", "torch", "bert_core.progress", "bert_core.config", "bert_core.naming",
        "bert_core.heap", "bert_core.tokenizer", "bert_core.recording", "bert_core.pooling",
        "bert_core.checkpoint", "bert_core.modeling", "bert_core.loading", "bert_core.translators",
        "bert_core.fingerprint", "bert_core.calibration", "bert_core.scenes", "bert_core.agreement",
        "bert_core.vision", "bert_core.records", "bert_core.run", "bert_core.analysis", "bert_core.studies",
        "bert_core.edits", "bert_core.task_heads", "bert_core.settings",
    },
    "viz_app": set(),
    "viz_app.windows": {"numpy", "viz_app.texts"},
    "viz_app.figures": {"numpy", "plotly", "PIL", "viz_app.windows"},
    "viz_app.tokens": {"numpy"},
    "viz_app.components": {"numpy", "streamlit", "viz_app.figures", "viz_app.tokens", "viz_app.windows"},
    "viz_app.notation": {
        "numpy", "bert_core.refused", "bert_core.tokenizer", "bert_core.edits", "bert_core.records", "viz_app.texts",
    },
    "viz_app.maps": {
        "numpy", "bert_core.refused", "bert_core.tokenizer", "bert_core.edits", "bert_core.records",
        "bert_core.analysis", "viz_app.notation", "viz_app.tokens", "viz_app.windows",
    },
    "viz_app.comparison": {
        "numpy", "bert_core.refused", "bert_core.tokenizer", "bert_core.records", "bert_core.analysis",
        "viz_app.notation", "viz_app.tokens", "viz_app.maps", "viz_app.windows",
    },
    "viz_app.export": {
        "bert_core.csv_cells", "bert_core.loading", "bert_core.target_kinds", "bert_core.task_heads", "jinja2",
        "pandas",
        "numpy", "matplotlib", "threadpoolctl", "bert_core.refused", "bert_core.progress", "bert_core.tokenizer",
        "bert_core.edits", "bert_core.records", "bert_core.analysis", "bert_core.studies", "viz_app.figures",
        "viz_app.texts", "viz_app.tokens", "viz_app.components", "viz_app.maps", "viz_app.comparison",
        "viz_app.windows",
    },
    "viz_app.export.bertviz": {
        "numpy", "torch", "bertviz", "bert_core.refused", "bert_core.records", "viz_app.export", "viz_app.maps",
    },
    "viz_app.notebook": {
        "bert_core.refused", "bert_core.records", "viz_app.maps", "viz_app.comparison", "viz_app.export",
        "viz_app.export.bertviz",
    },
    "viz_app.moved_pages": set(),
    "viz_app.lessons": {"bert_core.refused", "viz_app.lessons.checks", "viz_app.moved_pages", "viz_app.texts"},
    "viz_app.lessons.checks": {
        "numpy", "bert_core.refused", "bert_core.progress", "bert_core.tokenizer", "bert_core.checkpoint",
        "bert_core.loading", "bert_core.translators", "bert_core.fingerprint", "bert_core.agreement",
        "bert_core.records", "bert_core.run", "bert_core.analysis", "bert_core.methods", "bert_core.studies",
        "viz_app.lessons", "viz_app.texts",
    },
    "viz_app.site": {
        "numpy", "torch", "bert_core.checkpoint", "bert_core.loading", "bert_core.methods", "bert_core.onnx_export",
        "bert_core.progress", "bert_core.records", "bert_core.refused", "bert_core.run", "bert_core.target_kinds",
        "bert_core.tokenizer", "viz_app.components", "viz_app.export", "viz_app.lessons", "viz_app.lessons.checks",
        "viz_app.access", "viz_app.maps", "viz_app.pages.start", "viz_app.pages.why",
        "viz_app.shell", "viz_app.texts",
    },
    "viz_app.classroom": {"segno", "bert_core.refused", "viz_app.lessons", "viz_app.export", "viz_app.texts"},
    "viz_app.glossary": {"viz_app.texts"},
    "viz_app.texts": {"bert_core.refused"},
    "viz_app.shell": {
        "viz_app.texts",
        "bert_core.target_kinds",
        "bert_core.task_heads",
        "filelock", "numpy", "torch", "plotly", "streamlit",
        "bert_core.refused", "bert_core.progress", "bert_core.heap", "bert_core.tokenizer",
        "bert_core.checkpoint", "bert_core.loading", "bert_core.translators", "bert_core.fingerprint",
        "bert_core.records", "bert_core.run", "bert_core.analysis", "bert_core.studies", "viz_app",
        "bert_core.edits", "bert_core.editing", "bert_core.unknown_tokens", "viz_app.access", "viz_app.notation",
        "viz_app.figures", "viz_app.components", "viz_app.maps", "viz_app.comparison", "viz_app.lessons",
        "viz_app.lessons.checks",
        "viz_app.glossary", "viz_app.classroom",
        "viz_app.export", "viz_app.export.bertviz",
        "bert_core.settings", "viz_app.streamlit_compat",
    },
    "viz_app.finetuning": {
        "numpy",
        "bert_core.refused", "bert_core.checkpoint", "bert_core.studies", "bert_core.training", "viz_app.access",
        "viz_app.shell",
    },
    # Of every page; the row of a page lists what it imports in addition.
    "viz_app.pages": {
        "bert_core.analysis", "bert_core.loading", "bert_core.progress", "bert_core.records", "bert_core.refused",
        "bert_core.run", "bert_core.studies", "bert_core.tokenizer", "numpy", "streamlit", "viz_app.components",
        "viz_app.export", "viz_app.figures", "viz_app.maps", "viz_app.shell", "viz_app.texts", "viz_app.windows",
    },
    "viz_app.pages.predict": {"bert_core.calibration", "bert_core.task_heads"},
    "viz_app.pages.attention": {"bert_core.edits", "viz_app.tokens"},
    "viz_app.pages.compare": {"viz_app.comparison"},
    "viz_app.pages.why": {"bert_core.methods"},
    "viz_app.pages.causes": {"bert_core.edits", "viz_app.notation"},
    "viz_app.pages.probes": {"bert_core.agreement", "bert_core.fingerprint", "viz_app.lessons"},
    "viz_app.pages.neurons": {"bert_core.edits"},
    "viz_app.pages.heads": {"bert_core.task_heads"},
    "viz_app.pages.roles": {"bert_core.fingerprint", "viz_app.lessons"},
    "viz_app.pages.dataset": {"bert_core.agreement", "bert_core.target_kinds"},
    "viz_app.pages.score": {"bert_core.edits"},
    "viz_app.pages.prune": {"bert_core.modeling", "bert_core.pruning", "bert_core.training", "viz_app.access"},
    "viz_app.pages.finetune": {"bert_core.training", "viz_app.finetuning"},
    "viz_app.pages.images": {"PIL", "bert_core.csv_cells", "bert_core.scenes", "bert_core.vision"},
    "viz_app.pages.inside": {"plotly"},
    "viz_app.pages.learn": {"viz_app.access", "viz_app.classroom", "viz_app.lessons", "viz_app.lessons.checks"},
    "viz_app.pages.start": {"viz_app.lessons", "bert_core.methods", "viz_app.glossary"},
    "viz_app.pages.glossary": {"viz_app.glossary"},
    "viz_app.cli": {
        "bert_core.csv_cells", "bert_core.settings", "bert_core.target_kinds",
        "bert_core.task_heads",
        "numpy", "typer", "bert_core.progress", "bert_core.refused", "bert_core.tokenizer", "bert_core.checkpoint",
        "bert_core.loading",
        "bert_core.pruning", "bert_core.calibration", "bert_core.scenes", "bert_core.vision", "bert_core.records",
        "bert_core.run", "bert_core.analysis", "bert_core.studies", "bert_core.training",
        "bert_core.onnx_export",
        "bert_core.pooling", "viz_app", "viz_app.classroom", "viz_app.access", "viz_app.notation", "viz_app.figures",
        "viz_app.maps",
        "viz_app.comparison", "viz_app.lessons", "bert_core.editing", "bert_core.translators",
        "bert_core.unknown_tokens",
        "viz_app.export",
        "viz_app.export.bertviz", "viz_app.shell", "viz_app.site", "viz_app.pages", "viz_app.streamlit_compat",
        "viz_app.texts",
    },
    "viz_app.access": {
        "starlette", "streamlit", "bert_core.refused", "viz_app.moved_pages", "viz_app.streamlit_compat",
    },
    "viz_app.server": {"viz_app.access", "viz_app.shell", "viz_app.streamlit_compat"},
    "viz_app.streamlit_compat": {"google", "streamlit"},
    "viz_app.script": {
        "viz_app.figures",
        "streamlit", "viz_app.access", "viz_app.shell", "viz_app.pages", "viz_app.streamlit_compat", "viz_app.texts",
        "viz_app.moved_pages",
    },
    "streamlit_app": {"streamlit", "viz_app.access", "viz_app.server", "viz_app.script"},
    "tools": {
        "numpy", "torch", "tokenizers", "bert_core.progress", "bert_core.tokenizer", "bert_core.checkpoint",
        "bert_core.loading", "bert_core.calibration", "bert_core.fingerprint", "bert_core.scenes", "bert_core.studies",
        "bert_core.vision", "bert_core.run", "bert_core.analysis", "bert_core.records", "bert_core.training",
        "viz_app.finetuning", "viz_app.pages.probes",
    },
}  # fmt: skip


# Public name -> the module that defines it, from the stub by which the library loads its names.
HOME_OF = {
    alias.name: f"bert_core.{node.module}"
    for node in ast.parse((ROOT / "bert_core" / "__init__.pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}

COMPUTED_IMPORT = "an import by a computed name"
# Modules that load others by a computed name: the lazy public names of the library, and the page that is opened.
WITH_COMPUTED_IMPORTS = {"bert_core", "viz_app.pages", "viz_app.script"}

# Each package has fewer rejected names (tests/naming.py) than this. Lower a limit whenever names improve.
LIMIT_OF_BERT_CORE = 60
LIMIT_OF_VIZ_APP = 30


def package_of(module: str) -> str:
    """The innermost row of the table that holds a module; for third-party modules, the top-level package."""
    top_level = module.partition(".")[0]
    if top_level not in ("bert_core", "viz_app", "streamlit_app", "tools"):
        return top_level
    parts = module.split(".")
    candidates = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in candidates if name in MAY_IMPORT), module)


def imported_modules(source: str, *, type_checking: bool = True) -> Iterator[str]:
    """Every module that a source text imports, at any depth; lazy public names count as the module that defines them.

    type_checking: include imports under `if TYPE_CHECKING`.
    """
    tree = ast.parse(source)
    if not type_checking:
        tree.body = [
            node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                yield defining_module(node.module or "", alias.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "bert_core":
            yield defining_module("bert_core", node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            yield COMPUTED_IMPORT


def defining_module(module: str, name: str) -> str:
    """The module that `from module import name` reads."""
    if module == "bert_core" and name in HOME_OF:
        return HOME_OF[name]
    path = ROOT / module.replace(".", "/") / name
    return f"{module}.{name}" if path.is_dir() or path.with_suffix(".py").is_file() else module


def imported_packages(module: str, source: str) -> set[str]:
    """The packages that a module imports, besides the standard library and its own package."""
    # `import bert_core` for its lazy names needs no entry: each name used counts as the package that defines it.
    packages = {package_of(name) for name in imported_modules(source)}
    return packages - sys.stdlib_module_names - {package_of(module), "bert_core"}


def disallowed_imports(module: str, source: str) -> set[str]:
    """The packages that a module imports and that its row does not list."""
    return imported_packages(module, source) - allowed_packages(package_of(module)) - EVERYWHERE


def allowed_packages(package: str) -> set[str]:
    """The packages that the row of a package lists; for that of a page, those of the row of all pages too."""
    return MAY_IMPORT[package] | (MAY_IMPORT["viz_app.pages"] if package.startswith("viz_app.pages.") else set())


def modules() -> dict[str, Path]:
    """The file of each module of this repository, by module name; tests, benchmarks and documents excluded."""
    folders = ("bert_core", "viz_app", "tools")
    files = [*(file for folder in folders for file in ROOT.glob(f"{folder}/**/*.py")), ROOT / "streamlit_app.py"]
    names = (file.relative_to(ROOT).with_suffix("").parts for file in files)
    return {".".join(name).removesuffix(".__init__"): file for name, file in zip(names, files, strict=True)}


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_imports_only_what_the_import_table_lists(module: str) -> None:
    """Every import of every file, including those inside functions, is listed in the row of its package."""
    assert package_of(module) in MAY_IMPORT, (
        f"{module} has no row: add one here and in docs/contributing/architecture.md"
    )
    disallowed = disallowed_imports(module, modules()[module].read_text(encoding="utf-8"))
    if module in WITH_COMPUTED_IMPORTS:
        disallowed.discard(COMPUTED_IMPORT)
    if module == "bert_core":  # imports all public names for type checkers only
        disallowed -= MAY_IMPORT.keys()
    assert disallowed == set()


def test_the_import_table_has_no_superfluous_entry() -> None:
    """Every row is a module or package of this repository, and some module of it imports every entry."""
    superfluous = {package: set(allowed) for package, allowed in MAY_IMPORT.items()}
    packages = set()
    for module, file in modules().items():
        package = package_of(module)
        packages.add(package)
        imported = imported_packages(module, file.read_text(encoding="utf-8"))
        superfluous[package] -= imported
        if package.startswith("viz_app.pages."):
            superfluous["viz_app.pages"] -= imported
    assert MAY_IMPORT.keys() - packages == set(), "rows of no module"
    assert {package: entries for package, entries in superfluous.items() if entries} == {}


@pytest.mark.parametrize(
    ("module", "source", "disallowed"),
    [
        ("bert_core.analysis.flow", "def f():\n    import torch", "torch"),
        ("bert_core.analysis.flow", "from bert_core import load", "bert_core.loading"),
        ("bert_core.analysis.flow", "import bert_core\nbert_core.capture()", "bert_core.run"),
        ("bert_core.modeling", "from bert_core import loading", "bert_core.loading"),
        ("bert_core.run.capture", "if x:\n    import streamlit.web", "streamlit"),
        ("viz_app.pages.heads", "from bert_core.training import data", "bert_core.training"),
        ("viz_app.pages.heads", "import importlib\nimportlib.import_module('torch')", COMPUTED_IMPORT),
    ],
)
def test_a_disallowed_import_is_detected(module: str, source: str, disallowed: str) -> None:
    """Imports inside functions and conditions, through lazy public names and by computed names are detected."""
    assert disallowed_imports(module, source) == {disallowed}


# How code would depend on the family of a model. `fingerprint` and training, which write its name, are elsewhere.
FAMILY_CHECK = re.compile(r"family\.name|\bfamily\s*[!=]=|family_of|model_type|position_embedding_type")


def test_code_that_runs_or_displays_a_model_does_not_depend_on_its_family() -> None:
    """What differs between families is a property of the configuration, a position scheme or a block."""
    assert FAMILY_CHECK.search('if loaded.config.family.name == "albert":')
    packages = ("bert_core.run", "bert_core.analysis", "bert_core.studies", "viz_app")
    family_checks = {
        name: match[0] for name, file in modules().items()
        if name.startswith(packages) and (match := FAMILY_CHECK.search(file.read_text(encoding="utf-8")))
    }  # fmt: skip
    assert family_checks == {}


def parse_table(table: str) -> dict[str, set[str]]:
    """The import table of a Markdown text, whose last column has our modules without the name of their package."""
    rows = [row.split("|")[1:4] for row in table.splitlines() if row.startswith("| `")]
    names = [package.strip(" `") for package, _, _ in rows]
    assert sorted(names) == sorted(set(names)), "each module or package has one row"
    return {
        name: {full_name(entry.strip()) for entry in entries.split(",") if entry.strip()}
        for name, (_, _, entries) in zip(names, rows, strict=True)
    }


def full_name(short_name: str) -> str:
    """The row that a name without its package means; other names are third-party packages."""
    candidates = [name for name in (f"bert_core.{short_name}", f"viz_app.{short_name}") if name in MAY_IMPORT]
    assert len(candidates) <= 1, f"{short_name} may mean {' or '.join(candidates)}"
    return candidates[0] if candidates else short_name


def test_the_import_table_of_the_documentation_is_the_same() -> None:
    """docs/contributing/architecture.md has one row for each module or package, with the same entries."""
    assert parse_table((ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")) == MAY_IMPORT


def test_no_page_imports_another() -> None:
    """What two pages need is in the shell or in the view-model; only the list of pages imports them all."""
    for module, file in modules().items():
        if module.startswith("viz_app.pages."):
            own = ".".join(module.split(".")[:3])
            imported = imported_modules(file.read_text(encoding="utf-8"))
            other_pages = [
                name for name in imported if name.startswith("viz_app.pages") and not f"{name}.".startswith(f"{own}.")
            ]
            assert not other_pages, module


def test_pages_are_given_their_places() -> None:
    """A page draws in the places of the `View` that it receives, and in no other place of the window."""
    functions = {"page_place", "current_view", "make_view"}
    for module, file in modules().items():
        if module.startswith("viz_app.pages."):
            imported = {
                alias.name
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
                if isinstance(node, ast.ImportFrom) and node.module == "viz_app.shell.view"
                for alias in node.names
            }
            assert not imported & functions, module


def test_modules_have_no_import_cycles() -> None:
    """The modules can be ordered so that each comes after all that it imports."""
    files = modules()
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        names = set(imported_modules(file.read_text(encoding="utf-8"), type_checking=False))
        dependencies = {name if name in files else name.rpartition(".")[0] for name in names}
        graph[module] = dependencies & files.keys() - {module}
    TopologicalSorter(graph).prepare()


def test_few_names_in_bert_core_are_rejected() -> None:
    """Hardly any name of the library is a pronoun, a participle or another word that does not state what it holds."""
    rejected = list(naming.rejected_names(ROOT / "bert_core"))
    count = len(rejected)
    assert count < LIMIT_OF_BERT_CORE, naming.summary(rejected)


def test_few_names_in_viz_app_are_rejected() -> None:
    """The same for the app."""
    rejected = list(naming.rejected_names(ROOT / "viz_app"))
    count = len(rejected)
    assert count < LIMIT_OF_VIZ_APP, naming.summary(rejected)


def test_every_kind_of_binding_is_counted() -> None:
    """Each name of this source that is rejected is bound in another way, and each counts once per occurrence."""
    source = """
def asked(given, /, *other, known=1, **others):
    self.kept = config.kept = lambda at: at
    for one, [_found, *rest] in pairs:
        one = one + 1
    with file as opened, (said := 1):
        pass
    try:
        pass
    except ValueError as drawn:
        pass
    match value:
        case {"a": shown, **ours}:
            pass
        case [*theirs] | str() as seen:
            pass
class Wanted:
    typed: int = 0
    of_layer: int
    async def _said(self): ...
squares = [written for written in values]
"""
    expected = (
        "asked given other known others kept at one _found rest one opened said drawn shown ours theirs seen Wanted "
        "typed of_layer _said written"
    )
    rejected = [binding.name for binding in naming.bindings(source) if naming.is_rejected(binding)]
    assert sorted(rejected) == sorted(expected.split())


@pytest.mark.parametrize(
    ("name", "is_function", "is_rejected"),
    [
        ("found", False, True),
        ("__found", False, True),
        ("FOUND", False, True),
        ("goes_on", True, True),
        ("of_layer", False, True),
        ("found_layers", False, False),
        ("held_out", False, False),
        ("offset", False, False),
        ("before", False, False),
        ("masked", False, False),
        ("_", False, False),
        ("__call__", True, False),
        ("read", True, False),
        ("read", False, True),
    ],
)
def test_a_name_is_rejected_where_all_of_its_words_are(name: str, is_function: bool, is_rejected: bool) -> None:
    """Case and outer underscores do not count; a verb in the imperative is accepted as the name of a function."""
    assert naming.is_rejected(naming.Binding(1, name, is_function)) is is_rejected


def test_the_report_lists_each_rejected_name_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m tests.naming PATH` prints file, line and name, and the number of them."""
    (tmp_path / "example.py").write_text("layer = 0\nfound = layer\n", encoding="utf-8")
    naming.main([str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{tmp_path / 'example.py'}:2 found"
    assert lines[1].startswith("1 rejected name")


@pytest.mark.parametrize("folder", sorted({file.parent for file in modules().values()} - {ROOT}))
def test_every_folder_of_code_is_a_package(folder: Path) -> None:
    """A folder without `__init__.py` would be left out of the wheel."""
    assert (folder / "__init__.py").is_file()


def test_importing_the_library_does_not_import_torch() -> None:
    """`import bert_core` is light; the first use of a name that needs torch imports it."""
    code = "import sys, bert_core\nprint('torch' in sys.modules)\nbert_core.BertModel\nprint('torch' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "True"]


def test_undocumented_parts_of_streamlit_are_used_in_one_module() -> None:
    """All others import documented modules only: each use of the rest has its contract test in one place."""
    documented = {"streamlit", "streamlit.components.v2", "streamlit.delta_generator", "streamlit.starlette"}
    files = [*(ROOT / "viz_app").rglob("*.py"), ROOT / "streamlit_app.py"]
    imports = {
        (file.name, module)
        for file in files
        if file.name != "streamlit_compat.py"
        for module in imported_modules(file.read_text(encoding="utf-8"))
        if module.partition(".")[0] == "streamlit" and module not in documented
    }
    assert imports <= {("trial.py", "streamlit.testing.v1")}
    assert not [
        file
        for file in files
        if file.name != "streamlit_compat.py"
        and re.search(r"streamlit\.(runtime|proto|web|elements|navigation)\b", file.read_text(encoding="utf-8"))
    ]


def test_exports_do_not_import_streamlit() -> None:
    """The view-model, the lessons and all of `export` can be imported without Streamlit."""
    exports = [name for name in modules() if name.startswith("viz_app.export")]
    view_model = ["viz_app.tokens", "viz_app.maps", "viz_app.comparison", "viz_app.lessons.parsing"]
    imports = [f"import {name}" for name in (*view_model, "viz_app.notebook", *exports)]
    code = "\n".join([*imports, "import sys", "print('streamlit' in sys.modules)"])
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False"]


def test_every_public_name_can_be_imported() -> None:
    """Every name in `bert_core.__all__` is an attribute of the package."""
    renamed = {"PreTrainedBertModel": "BertPreTrainedModel", "ACT2FN": None, "METHODS": None}
    for name in bert_core.__all__:
        assert getattr(getattr(bert_core, name), "__name__", None) == renamed.get(name, name)


def test_constraints_pin_every_dependency_and_contain_nothing_specific_to_a_machine() -> None:
    """Each line is name==version, and each package that pyproject.toml requires, tools included, has one."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    pinned = {normalized_name(line.partition("==")[0]) for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["dev"], *extras["references"]]
    assert {normalized_name(re.split(r"[<>=]", name)[0]) for name in requirements} <= pinned


def normalized_name(name: str) -> str:
    """A package name as PEP 503 compares it: lower case, with single hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def statements_with_references(source: str) -> dict[ast.stmt, bool]:
    """The statements of a module that import a package of the extra `references`, and whether they may.

    A statement imports one by itself, in a text that another process runs, or through a name of another statement. Only
    functions may, and tests among them only if they are marked `slow`.
    """
    is_reference = re.compile(rf"\b(?:import|from) (?:{'|'.join(REFERENCES)})\b").search
    if not is_reference(source):
        return {}
    tree = ast.parse(source)
    importing = {node for node in tree.body if is_reference(ast.get_source_segment(source, node) or "")}
    while True:
        names = {
            name.id if isinstance(name, ast.Name) else name.name
            for node in importing
            for name in (getattr(node, "targets", None) or [node])
            if isinstance(name, ast.Name | ast.FunctionDef | ast.ClassDef)
        }
        users = {
            node
            for node in tree.body
            if any(isinstance(name, ast.Name | ast.arg) and used_name(name) in names for name in ast.walk(node))
        }
        if users <= importing:
            break
        importing |= users
    all_slow = "pytestmark = pytest.mark.slow" in source
    return {node: may_import_references(node, all_slow) for node in importing}


def used_name(node: ast.Name | ast.arg) -> str:
    """The name that an expression reads, or that of a fixture."""
    return node.id if isinstance(node, ast.Name) else node.arg


def may_import_references(node: ast.stmt, all_slow: bool) -> bool:
    """Whether `make test` does not run this statement of a module."""
    if isinstance(node, ast.FunctionDef):
        marks = {ast.unparse(decorator) for decorator in node.decorator_list}
        return all_slow or not node.name.startswith("test_") or "pytest.mark.slow" in marks
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


# Modules of the packages of the extra `references`.
REFERENCES = ("captum", "concept_erasure", "faiss", "sentence_transformers", "seqeval", "usearch")
COMPARED_WITH_REFERENCES = {
    "test_erasure.py", "test_neurons.py", "test_own_targets.py", "test_perturbation.py", "test_pooling.py",
    "test_search.py", "test_similarity.py", "test_tagging.py", "test_tags.py", "test_transformers_models.py",
}  # fmt: skip


def test_only_slow_tests_import_the_packages_of_the_extra_references() -> None:
    """These modules import them, only in functions, and each test that does is marked slow; nothing else does."""
    importing = {}
    for file in (ROOT / "tests").rglob("*.py"):
        if file != Path(__file__) and (statements := statements_with_references(file.read_text(encoding="utf-8"))):
            importing[file.name] = [ast.unparse(node)[:80] for node, may_import in statements.items() if not may_import]
    assert importing == {name: [] for name in COMPARED_WITH_REFERENCES}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    packages = {re.split(r"[<>=]", name)[0].replace("-", "_").removesuffix("_cpu") for name in extras["references"]}
    assert packages == set(REFERENCES)


@pytest.mark.parametrize(
    ("source", "may_import"),
    [
        ("from captum.attr import Saliency", [False]),
        ("def test_a():\n    import faiss", [False]),
        ("@pytest.mark.slow\ndef test_a():\n    import faiss", [True]),
        ("pytestmark = pytest.mark.slow\ndef test_a():\n    import faiss", [True]),
        ("CODE = 'import faiss'\ndef test_a():\n    run(CODE)", [True, False]),
        ("def a():\n    import seqeval\ndef b():\n    a()\ndef test_c():\n    b()", [True, True, False]),
        ("@pytest.fixture\ndef a():\n    import seqeval\ndef test_b(a):\n    pass", [True, False]),
    ],
)
def test_an_import_of_a_reference_is_detected(source: str, may_import: list[bool]) -> None:
    """At the top of a module, in a test that is not slow, in a text, through other functions and by a fixture."""
    statements = statements_with_references(source)
    assert [statements[node] for node in sorted(statements, key=lambda node: node.lineno)] == may_import


def test_names_of_test_files_are_unique() -> None:
    """pytest identifies a test file outside a package by its base name alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_the_tracked_files_have_at_most_72_megabytes() -> None:
    """Every clone downloads them; 46 MB are the weights of the bundled model, and 4 MB the browser runtime."""
    process = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    sizes = {name: (ROOT / name).stat().st_size for name in process.stdout.split("\0") if (ROOT / name).is_file()}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
    assert len(sizes) > 500
    assert sum(sizes.values()) <= 72_000_000, f"the largest: {', '.join(f'{n} {sizes[n]:,}' for n in largest)}"
