"""Make the documentation a site that opens from disk: `make docs` writes docs/site/index.html.

Sphinx renders the documents (docs/conf.py). pdoc renders the docstring of every public name of `bert_core`: it imports
the package, so it reads lazy names and types as the interpreter has them. Neither needs a network.
The argument is the folder, docs/site by default.
"""

from __future__ import annotations

import re
import shutil
import sys
import warnings
from pathlib import Path

import pdoc
import pdoc.render
from conf import public_names
from sphinx.cmd.build import build_main

import bert_core

DOCS = Path(__file__).parent
# A line that starts something new: an argument, or what is returned, raised or cited.
NEW_ITEM = re.compile(r"^(?=[a-z_]\w*(?:, \w+)*: |(?:Returns|Raises|Source)\b)", re.MULTILINE)
FIRST_PAGE = '<!doctype html><meta charset="utf-8"><title>Headlight</title>\
<meta http-equiv="refresh" content="0; url=docs/index.html"><a href="docs/index.html">Headlight</a>\n'


def build(folder: Path = DOCS / "site") -> Path:
    """Write the site to a folder, in place of an earlier one, and return its first page."""
    shutil.rmtree(folder, ignore_errors=True)
    arguments = ["-q", "-W", "--keep-going", "-c", DOCS, "-d", folder / ".doctrees", DOCS.parent, folder]
    if build_main([str(argument) for argument in arguments]):
        raise SystemExit("the documents have the faults above")
    shutil.rmtree(folder / ".doctrees")
    for name in bert_core.__all__:  # pdoc takes only what a module holds
        setattr(bert_core, name, getattr(bert_core, name))
    pdoc.render.configure(docformat="markdown", show_source=False, footer_text=f"Headlight {bert_core.__version__}")
    pdoc.render.env.filters["to_markdown"] = in_lines
    with warnings.catch_warnings():  # a type that it cannot resolve stays as it is written
        warnings.filterwarnings("ignore", "Error parsing type annotation")
        pdoc.pdoc("bert_core", *sorted(public_names()), output_directory=folder / "docs" / "reference" / "python")
    (folder / "index.html").write_text(FIRST_PAGE, encoding="utf-8")
    return folder / "index.html"


def in_lines(text: str) -> str:
    """Return a docstring with a paragraph for each argument and each thing that is returned or raised.

    Examples, at its end, are unchanged.
    """
    description, prompt, example = text.partition(">>> ")
    return NEW_ITEM.sub("\n", description) + prompt + example


if __name__ == "__main__":
    print(build(*map(Path, sys.argv[1:])))
