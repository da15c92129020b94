"""The page Glossary: every technical word of the pages, in one sentence."""

from bert_core.refused import Refused
from viz_app.shell.params import Page, Param
from viz_app.texts import page_texts

MAX_QUERY_LENGTH = 40  # characters


def parse_term(query: str) -> str:
    """Return a search query. Raises Refused for one that is longer than any term."""
    if len(query) > MAX_QUERY_LENGTH:
        raise Refused(f"at most {MAX_QUERY_LENGTH} characters")
    return query


term: Param[str] = Param(
    "term", "", parse_term, widget="text_input", arguments={"live": "50ms", "max_chars": MAX_QUERY_LENGTH, "width": 320}
)

TEXTS = page_texts("glossary")
PAGE = Page(
    TEXTS,
    ":material/dictionary:",
    group="Learn",
    params=(term,),
    text=False,
    models=False,
)
