"""Markdown: escaping of texts from visitors, special tokens of the model, and explanation of glossary terms."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import streamlit as st

from bert_core.tokenizer import BERT_SPECIAL_TOKENS, SpecialTokens
from viz_app.glossary import first_uses
from viz_app.shell.language import language
from viz_app.streamlit_compat import is_in_script_run
from viz_app.texts import TranslatedRefusal

PAGE = "_page"  # session key of the path of the page
SPECIAL_TOKENS = "_special_tokens"  # session key of those of the selected model

_FOREIGN = "\u2063"  # marks both ends of words that are not from the app, until their text is drawn
_FOREIGN_WORDS = re.compile(f"{_FOREIGN}[^{_FOREIGN}]*{_FOREIGN}")
# Parts of Markdown without terms: escaped signs, code, formulas, links, icons, entities, and foreign words.
_NO_WORDS = re.compile(
    r"\\.|`[^`]*`|\$[^$\n]*\$|\[[^\]\n]*\]\([^)\s]*\)|:\w+/\w+:|&\w+;|" + _FOREIGN_WORDS.pattern, re.DOTALL
)


def escape_markdown(text: str) -> str:
    """Return Markdown that shows a text as it is, without links, pictures and formulas."""
    # Streamlit makes a link of an address even if it is escaped: an invisible joiner prevents it.
    unlinked = re.sub(r"(?=://|@)|(?<=www)(?=\.)", "\u2060", text, flags=re.IGNORECASE)
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", unlinked)


def quoted(text: str, position: int | None = None) -> str:
    """Return a text in quotation marks in Markdown, with the position of a token behind it."""
    return f"“{escape_markdown(text)}”" + ("" if position is None else f" ({position})")


def quoted_without_terms(text: str) -> str:
    """Return a text in quotation marks, for a line of Markdown whose terms are explained; those of the text are not."""
    return f"“{protect_terms(escape_markdown(text))}”"


def special_tokens() -> SpecialTokens:
    """Return the special tokens of the selected model; those of BERT if there is none."""
    if not is_in_script_run():
        return BERT_SPECIAL_TOKENS
    tokens: SpecialTokens = st.session_state.get(SPECIAL_TOKENS, BERT_SPECIAL_TOKENS)
    return tokens


def with_special_tokens(text: str) -> str:
    """Return Markdown of the app with special tokens such as [CLS] replaced by those of the selected model."""
    return special_tokens().substitute_in(text, escape_markdown)


def error_sentence(error: Exception) -> str:
    """Return the message of an error as a sentence in Markdown, translated if it has a translation."""
    text = error.sentence if isinstance(error, TranslatedRefusal) else str(error)
    return escape_markdown(text[:1].upper() + text[1:] + ".")


def protect_terms(text: str) -> str:
    """Return a text from a visitor or a model, in which `mark_terms` finds no terms of the glossary."""
    return f"{_FOREIGN}{text}{_FOREIGN}"


def mark_terms(text: str, marked: set[str] | None = None) -> str:
    """Return Markdown with HTML that marks the first use of each term of the glossary.

    Other tags are escaped; texts from visitors must be escaped by `escape_markdown`.
    marked: names of terms that are not marked again; those that are marked here are added.
    """
    return _mark(with_special_tokens(text), _NO_WORDS, set() if marked is None else marked, _escape_tags)


def escape_and_mark_terms(text: str, marked: set[str]) -> str:
    """Escape a text as `escape_markdown` does, and mark its terms as `mark_terms` does."""
    return _mark(text, _FOREIGN_WORDS, marked, escape_markdown)


def _mark(text: str, excluded: re.Pattern[str], marked: set[str], escape: Callable[[str], str]) -> str:
    """Mark terms outside of parts that match `excluded`; `escape` returns the Markdown of all parts."""
    searched = excluded.sub(lambda match: "\0" * len(match[0]), text)
    parts, position = [], 0
    for start, end, term in first_uses(searched, language(), _current_page()):
        if term.name not in marked:
            marked.add(term.name)
            meaning = html.escape(f"{term.title}: {term.meaning}")
            tag = f'<abbr tabindex="0" data-says="{meaning}">'
            parts += [escape(text[position:start]), tag, escape(text[start:end]), "</abbr>"]
            position = end
    return "".join([*parts, escape(text[position:])]).replace(_FOREIGN, "")


def help_on_terms(text: str) -> str | None:
    """Return the meanings of the terms in a text, in Markdown, for `help=`; None if it has none."""
    terms = [term for *_, term in first_uses(text, language(), _current_page())]
    meanings = [f"**{escape_markdown(term.title)}**: {escape_markdown(term.meaning)}" for term in terms]
    return "\n\n".join(meanings) or None


def with_help(text: str) -> str:
    """Return Markdown for a coloured box, which takes no HTML: with a help icon at its end that explains its terms."""
    unescaped = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)
    meanings = help_on_terms(_NO_WORDS.sub(" ", unescaped))
    # Streamlit interprets the help twice: in the text, and in the tooltip.
    icon = "" if meanings is None else f" :help[{escape_markdown(meanings).replace(chr(10), '&#10;')}]"
    return with_special_tokens(text).replace(_FOREIGN, "") + icon


def _current_page() -> str:
    """Return the path of the page that is drawn; "" outside of the app."""
    return str(st.session_state.get(PAGE, "")) if is_in_script_run() else ""


def _escape_tags(text: str) -> str:
    """Return Markdown with `<` escaped, except in code and after a backslash, where it opens no tag."""
    return re.sub(r"(\\.|`[^`]*`)|<", lambda match: match[1] or "&lt;", text, flags=re.DOTALL)
