"""Search over pages, attribution methods and terms of the glossary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bert_core.methods import METHODS
from viz_app.glossary import find_terms
from viz_app.shell.params import Page

MAX_RESULTS = 8


class SearchResult(NamedTuple):
    """A result. kind: "page", "method" or "term". name, line: what it is. path, params: of the page that it opens."""

    kind: str
    name: str
    line: str
    path: str
    params: dict[str, str]


def find_pages(query: str, pages: Iterable[Page], language: str) -> list[SearchResult]:
    """Return pages, methods and terms that match a query, pages first.

    A page matches by its title and line, and by the terms of the glossary that lead to it, with their synonyms.
    """
    words = query.casefold().split()
    if not words:
        return []
    terms = find_terms(" ".join(words), language)
    paths = [term.page for term in terms]
    by_title = [page for page in pages if all(word in f"{page.title} {page.line}".casefold() for word in words)]
    by_term = [page for page in pages if page.path in paths and page not in by_title]
    results = [SearchResult("page", page.title, page.line, page.path, {}) for page in (*by_title, *by_term)]
    results += [
        SearchResult("method", method.name, method.claims, "why", {"method": method.name})
        for method in METHODS
        if all(word in method.name.casefold() for word in words)
    ]
    results += [SearchResult("term", term.name, term.meaning, "glossary", {"term": term.name}) for term in terms]
    # No kind hides another one.
    limits = {"page": MAX_RESULTS // 2, "method": MAX_RESULTS, "term": MAX_RESULTS // 2}
    kinds = {kind: [result for result in results if result.kind == kind][:limit] for kind, limit in limits.items()}
    return [result for kind_results in kinds.values() for result in kind_results][:MAX_RESULTS]
