"""Write docs/reference/glossary.md from the glossary of the app: `python docs/make_glossary.py`."""

from __future__ import annotations

from pathlib import Path

from viz_app.glossary import terms
from viz_app.pages import PAGES

DOCUMENT = Path(__file__).parent / "reference" / "glossary.md"
OPENING = (
    "# Glossary\n\n"
    "Every technical term of the app in one sentence. On the pages such terms have a dotted line: point at one, tap "
    "it, or reach it with the Tab key. The page *Glossary* has a search, and `?term=entropy` opens a term. "
    "`python docs/make_glossary.py` writes this document from `viz_app/glossary/terms.toml`.\n\n"
    "| Term | Meaning | Page | Source |\n| --- | --- | --- | --- |\n"
)


def document() -> str:
    """The whole document."""
    titles = {page.path: page.title for page in PAGES}
    rows = []
    for term in terms():
        source = f"[{term.source}]({term.link})" if term.source else ""
        rows.append(f"| {term.name} | {term.meaning} | {titles[term.page]} | {source} |\n")
    return OPENING + "".join(rows)


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
