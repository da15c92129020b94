"""Every public name of `bert_core` from its docstring, and the guides, as pages in docs/api: `make docs`.

Made by pdoc, which runs on what is imported and asks no network: it reads the lazy names and the types as the
interpreter has them, takes our prose docstrings as they are, and brings no theme to be fetched when a page is opened.
Griffe with mkdocstrings parses without importing, finds no lazy name, and wants a site generator of its own.
A folder named after the command takes the place of docs/api.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pdoc
import pdoc.doc
import pdoc.render
import pdoc.render_helpers
from markupsafe import escape

import bert_core

DOCS = Path(__file__).parent
# A line that starts something new: an argument, or what is returned, raised or cited.
NEW_ITEM = re.compile(r"^(?=[a-z_]\w*(?:, \w+)*: |(?:Returns|Raises|Source)\b)", re.MULTILINE)
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
body {{ max-width: 52rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif }}
pre {{ overflow-x: auto; padding: .8rem; background: #f5f5f5 }} img {{ max-width: 100% }}
table {{ display: block; overflow-x: auto; border-collapse: collapse }}
td, th {{ border: 1px solid #ccc; padding: .3rem .6rem }}
</style></head><body><p><a href="{up}index.html">Headlight</a></p>
{body}
</body></html>
"""


def build(folder: Path = DOCS / "api") -> Path:
    """Write the pages; what an earlier call wrote there goes. Returns the folder."""
    modules = sorted(public_names())
    for name in bert_core.__all__:  # pdoc takes only what a module holds
        setattr(bert_core, name, getattr(bert_core, name))
    if folder.exists():
        shutil.rmtree(folder)
    pdoc.render.configure(docformat="markdown", show_source=False, footer_text=f"Headlight {bert_core.__version__}")
    pdoc.render.env.filters["to_markdown"] = in_lines
    with warnings.catch_warnings():  # a type that it cannot resolve stays as it is written
        warnings.filterwarnings("ignore", "Error parsing type annotation")
        pdoc.pdoc("bert_core", *modules, output_directory=folder)
    guides = folder / "guides"
    guides.mkdir()
    shutil.copytree(DOCS / "screenshots", guides / "screenshots")
    titles = {}
    for path in sorted([*DOCS.glob("*.md"), *DOCS.glob("contributing/*.md")], key=lambda path: path.stem):
        text = path.read_text(encoding="utf-8")
        titles[path.stem] = text.partition("\n")[0].removeprefix("# ")
        links = re.sub(r"\]\((?:\.\./|contributing/)?(\w+)\.md(#[\w-]+)?\)", r"](\1.html\2)", text)
        body = pdoc.render_helpers.to_html(links)
        page = PAGE.format(title=escape(titles[path.stem]), up="../", body=body)
        (guides / f"{path.stem}.html").write_text(page, encoding="utf-8")
    (folder / "index.html").write_text(PAGE.format(title="Headlight", up="", body=contents(titles)), encoding="utf-8")
    return folder


def contents(titles: dict[str, str]) -> str:
    """The first page: the guides, and the public names under the module that each lives in."""
    lines = [
        "<h1>Headlight</h1>",
        f"<p>{escape((bert_core.__doc__ or '').partition(chr(10))[0])}</p>",
        "<h2>Guides</h2><ul>",
    ]
    lines += [f'<li><a href="guides/{stem}.html">{escape(title)}</a></li>' for stem, title in titles.items()]
    lines += ["</ul>", '<h2>Public names</h2><p>All of them on <a href="bert_core.html">one page</a>.</p>']
    for module, names in public_names().items():
        about = (import_module(module).__doc__ or "").strip().partition("\n")[0]
        lines.append(f'<h3><a href="{module.replace(".", "/")}.html">{module}</a></h3><p>{escape(about)}</p><ul>')
        lines += [f'<li><a href="bert_core.html#{name}"><code>{name}</code></a></li>' for name in sorted(names)]
        lines.append("</ul>")
    return "\n".join(lines)


def public_names() -> dict[str, list[str]]:
    """Module -> the public names that it defines, as `bert_core/__init__.pyi` lists them."""
    modules: dict[str, list[str]] = {}
    for node in ast.parse(Path(bert_core.__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            modules.setdefault(f"bert_core.{node.module}", []).extend(alias.name for alias in node.names)
    return modules


def in_lines(text: str) -> str:
    """A docstring with a paragraph for each argument and each thing that is returned or raised, before its example."""
    description, prompt, example = text.partition(">>> ")
    return NEW_ITEM.sub("\n", description) + prompt + example


if __name__ == "__main__":
    print(build(*map(Path, sys.argv[1:])) / "index.html")
