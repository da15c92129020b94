"""Words in a place that reads Markdown: what was typed, as it was written; terms of the glossary, each explained."""

from __future__ import annotations

import html
import re

from viz_app.glossary import first_uses
from viz_app.shell.language import language

# What is no plain word in Markdown: signs as they are written, code, formulas, links, icons and named signs.
_NO_WORDS = re.compile(r"\\.|`[^`]*`|\$[^$\n]*\$|\[[^\]\n]*\]\([^)\s]*\)|:\w+/\w+:|&\w+;", re.DOTALL)


def as_written(text: str) -> str:
    """A text for a place that reads Markdown, so that it shows as it was written: no link, picture or formula."""
    # An address becomes a link even behind backslashes: a joiner that nobody sees takes it apart.
    apart = re.sub(r"(?=://|@)|(?<=www)(?=\.)", "\u2060", text, flags=re.IGNORECASE)
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", apart)


def sentence(error: Exception) -> str:
    """What an error says, as a sentence for a place that reads Markdown."""
    text = str(error)
    return as_written(text[:1].upper() + text[1:] + ".")


def explained(text: str, *, but: str = "") -> str:
    """A text in Markdown with each term of the glossary marked where it is said first, for a place that takes HTML.

    The marks are its only HTML: any other tag shows as it was written, and what was typed must be `as_written`.
    but: the name of a term that is not marked.
    """
    plain = _NO_WORDS.sub(lambda match: "\0" * len(match[0]), text)
    parts, done = [], 0
    for start, end, term in first_uses(plain, language()):
        if term.name != but:
            says = html.escape(f"{term.title}: {term.says}")
            parts += [
                _without_tags(text[done:start]),
                f'<abbr tabindex="0" data-says="{says}">',
                text[start:end],
                "</abbr>",
            ]
            done = end
    return "".join([*parts, _without_tags(text[done:])])


def terms_in(text: str) -> str | None:
    """What the terms of the glossary in a text mean, in Markdown, for `help=`; None for a text that says none."""
    said = [f"**{as_written(term.title)}**: {as_written(term.says)}" for *_, term in first_uses(text, language())]
    return "\n\n".join(said) or None


def _without_tags(text: str) -> str:
    """A text in Markdown in which no sign opens a tag; code and what stands behind a backslash opens none anyway."""
    return re.sub(r"(\\.|`[^`]*`)|<", lambda match: match[1] or "&lt;", text, flags=re.DOTALL)
