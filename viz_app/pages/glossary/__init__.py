"""The page Glossary: every technical word of the pages, in one sentence."""

from bert_core.refused import Refused
from viz_app.shell.params import Page, Param

LONGEST = 40  # signs of what is looked for


def parse_term(typed: str) -> str:
    """What is looked for. Raises Refused for what is longer than any term."""
    if len(typed) > LONGEST:
        raise Refused(f"at most {LONGEST} characters")
    return typed


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
