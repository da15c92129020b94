"""Settings of Sphinx, which makes the documents a site: `make docs` (docs/build.py) runs it.

The source folder is the repository, so that a document can link to each other one, and to files, wherever they are.
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

from sphinx.application import Sphinx

import bert_core

ROOT = Path(__file__).parents[1]
INDEX, PYTHON = "docs/index", "docs/reference/python"

project = "Headlight"
version = release = bert_core.__version__
copyright = "The Headlight authors, Apache-2.0"
extensions = ["myst_parser"]
root_doc = INDEX
include_patterns = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/*.md", "bert_core/assets/*/*.md", "docs/index.md",
    "docs/*/*.md",
]  # fmt: skip
exclude_patterns = [".*", "node_modules", "build", "dist", "runs", "tests", "viz_app", "docs/site"]
myst_heading_anchors = 4  # as GitHub has them
myst_enable_extensions = ["dollarmath"]
html_theme = "furo"
html_title = f"Headlight {release}"
html_favicon = "../viz_app/shell/headlight.svg"
html_show_sourcelink = False
html_copy_source = False
pygments_style, pygments_dark_style = "default", "monokai"


def public_names() -> dict[str, list[str]]:
    """Return the public names by the module that defines them, as `bert_core/__init__.pyi` lists them."""
    modules: dict[str, list[str]] = {}
    for node in ast.parse((ROOT / "bert_core" / "__init__.pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            modules.setdefault(f"bert_core.{node.module}", []).extend(alias.name for alias in node.names)
    return modules


def add_contents(app: Sphinx, name: str, content: list[str]) -> None:
    """Append the navigation to the index, and the public names to the page of the library.

    The navigation has a table of contents for each section of the index, in the order of its links.
    """
    if name == INDEX:
        for section in re.split(r"^## ", content[0], flags=re.MULTILINE)[1:]:
            caption, _, text = section.partition("\n")
            documents = re.findall(r"\]\((?!\w+:)([^)#]+)\.md\)", text)
            content[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(documents) + "\n```\n"
    elif name == PYTHON:
        content[0] += "\n## Public names\n\nEach link leads to the docstring, with types, shapes and examples.\n"
        for module, names in public_names().items():
            summary = (import_module(module).__doc__ or "").strip().partition("\n")[0]
            links = ", ".join(
                f'<a href="python/bert_core.html#{public}"><code>{public}</code></a>' for public in sorted(names)
            )
            content[0] += f"\n`{module}`: {summary}\n{links}\n"


def setup(app: Sphinx) -> None:
    """Register what Sphinx is to call."""
    app.connect("source-read", add_contents)
