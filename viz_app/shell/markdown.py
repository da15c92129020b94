"""Words in a place that reads Markdown: what was typed, as it was written; terms of the glossary, each explained."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import streamlit as st

from bert_core.tokenizer import BERT_SPECIAL_TOKENS, SpecialTokens
from viz_app.glossary import first_uses
from viz_app.shell.language import language
from viz_app.streamlit_compat import is_in_script_run

SPECIAL_TOKENS = "_special_tokens"  # how the page's model writes them

_FOREIGN = "\u2063"  # stands before and behind words that are not ours, until their text is drawn
_WORDS_OF_OTHERS = re.compile(f"{_FOREIGN}[^{_FOREIGN}]*{_FOREIGN}")
# What is no word of ours in Markdown: signs as they are written, code, formulas, links, icons, named signs, and these.
_NO_WORDS = re.compile(
    r"\\.|`[^`]*`|\$[^$\n]*\$|\[[^\]\n]*\]\([^)\s]*\)|:\w+/\w+:|&\w+;|" + _WORDS_OF_OTHERS.pattern, re.DOTALL
)


def escape_markdown(text: str) -> str:
    """A text for a place that reads Markdown, so that it shows as it was written: no link, picture or formula."""
    # An address becomes a link even behind backslashes: a joiner that nobody sees takes it apart.
    apart = re.sub(r"(?=://|@)|(?<=www)(?=\.)", "\u2060", text, flags=re.IGNORECASE)
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", apart)


def special_tokens() -> SpecialTokens:
    """How the page's model writes its special tokens; BERT's way where there is none."""
    if not is_in_script_run():
        return BERT_SPECIAL_TOKENS
    found: SpecialTokens = st.session_state.get(SPECIAL_TOKENS, BERT_SPECIAL_TOKENS)
    return found


def with_special_tokens(text: str) -> str:
    """A text of ours in Markdown that says [CLS], with what the page's model writes in its place."""
    return special_tokens().substitute_in(text, escape_markdown)


def error_sentence(error: Exception) -> str:
    """What an error says, as a sentence for a place that reads Markdown."""
    text = str(error)
    return escape_markdown(text[:1].upper() + text[1:] + ".")


def protect_terms(text: str) -> str:
    """What was typed or guessed, for a text that is `explained`: “head” is then a word like any other."""
    return f"{_FOREIGN}{text}{_FOREIGN}"


def mark_terms(text: str, said: set[str] | None = None) -> str:
    """A text in Markdown with each term of the glossary marked where it is said first, for a place that takes HTML.

    The marks are its only HTML: any other tag shows as it was written, and what was typed must be `as_written`.
    said: the names of terms that are not marked any more; those that are marked here are added.
    """
    return _marked(with_special_tokens(text), _NO_WORDS, set() if said is None else said, _without_tags)


def escape_and_mark_terms(text: str, said: set[str]) -> str:
    """A text `as_written`, with its terms marked as in `explained`."""
    return _marked(text, _WORDS_OF_OTHERS, said, escape_markdown)


def _marked(text: str, apart: re.Pattern[str], said: set[str], write: Callable[[str], str]) -> str:
    """apart: what holds no terms. write: makes Markdown of what stands between the marks and in them."""
    plain = apart.sub(lambda match: "\0" * len(match[0]), text)
    parts, done = [], 0
    for start, end, term in first_uses(plain, language()):
        if term.name not in said:
            said.add(term.name)
            says = html.escape(f"{term.title}: {term.meaning}")
            parts += [
                write(text[done:start]), f'<abbr tabindex="0" data-says="{says}">', write(text[start:end]), "</abbr>",
            ]  # fmt: skip
            done = end
    return "".join([*parts, write(text[done:])]).replace(_FOREIGN, "")


def help_on_terms(text: str) -> str | None:
    """What the terms of the glossary in a text mean, in Markdown, for `help=`; None for a text that says none."""
    said = [
        f"**{escape_markdown(term.title)}**: {escape_markdown(term.meaning)}"
        for *_, term in first_uses(text, language())
    ]
    return "\n\n".join(said) or None


def with_help(text: str) -> str:
    """A text in Markdown for a coloured box, which takes no HTML: what its terms mean stands on a sign at its end."""
    signs = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)  # as they are read
    says = help_on_terms(_NO_WORDS.sub(" ", signs))
    # Streamlit reads the help twice: here, and where it stands.
    sign = "" if says is None else f" :help[{escape_markdown(says).replace(chr(10), '&#10;')}]"
    return with_special_tokens(text).replace(_FOREIGN, "") + sign


def _without_tags(text: str) -> str:
    """A text in Markdown in which no sign opens a tag; code and what stands behind a backslash opens none anyway."""
    return re.sub(r"(\\.|`[^`]*`)|<", lambda match: match[1] or "&lt;", text, flags=re.DOTALL)
