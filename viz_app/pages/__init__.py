"""The pages, in the order of the navigation; each is declared in the package of its name."""

from importlib import import_module

from viz_app.shell.params import Page

NAMES = (
    "start",
    "predict",
    "attention",
    "inside",
    "images",
    "why",
    "layers",
    "neurons",
    "probes",
    "heads",
    "causes",
    "compare",
    "roles",
    "profiles",
    "search",
    "dataset",
    "score",
    "similarity",
    "finetune",
    "prune",
    "learn",
    "glossary",
)
PAGES: tuple[Page, ...] = tuple(import_module(f"viz_app.pages.{name}").PAGE for name in NAMES)
BY_PATH = {page.path: page for page in PAGES}
