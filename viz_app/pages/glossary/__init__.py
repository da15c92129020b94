"""The page Glossary: every technical word of the pages, in one sentence."""

from bert_core.refused import Refused
from viz_app.shell.params import Page, Param

MAX_QUERY_LENGTH = 40  # characters


def parse_term(query: str) -> str:
    """Return a search query. Raises Refused for one that is longer than any term."""
    if len(query) > MAX_QUERY_LENGTH:
        raise Refused(f"at most {MAX_QUERY_LENGTH} characters")
    return query


PAGE = Page(
    "glossary",
    "Glossary",
    ":material/dictionary:",
    group="Learn",
    question="What does this word mean?",
    subtitle=None,
    params=(Param("term", "", parse_term),),
    text=False,
    models=False,
)
