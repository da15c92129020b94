"""The status line, and what has to be said of a text or of a run."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from bert_core.analysis.cautions import cautions
from bert_core.records import ModelRun
from bert_core.unknown_tokens import UnknownTokens
from viz_app.components.token_strip import TokenClick
from viz_app.maps import of_what_is_left
from viz_app.shell import screen
from viz_app.shell.address import LONGEST_LINK
from viz_app.shell.controls import missing
from viz_app.shell.edits import say_edits
from viz_app.shell.heads import say_off
from viz_app.shell.language import spoken
from viz_app.shell.markdown import as_written, helped
from viz_app.shell.models import shown_name
from viz_app.shell.question import Question, mask_word
from viz_app.shell.work import seconds_taken


def say_notices(notices: Sequence[str]) -> None:
    """Say what of a link could not be."""
    for notice in notices:
        st.warning(helped(as_written(notice)), icon=":material/link_off:")


def say_of_text(current: Question, *, keep_place: bool) -> None:
    """Say what there is to know before the text is looked at; keep_place: as in `say_off`."""
    encoding, loaded = current.encoding, current.loaded
    said = []
    if encoding.truncated_count:
        said.append(
            ":orange[:material/content_cut:] "
            + spoken(
                "The text has {length:,} tokens, but {model} reads at most {most:,}: the last {cut:,} are left out."
            ).format(
                length=encoding.full_length,
                model=as_written(shown_name(loaded.name)),
                most=len(encoding),
                cut=encoding.truncated_count,
            )
        )
    if unknown := current.original.unknown_count:
        sentence = spoken(
            "{unknown:,} of {all:,} tokens are [UNK]: these characters are not in the vocabulary, so the model cannot "
            "tell them apart."
        ).format(unknown=unknown, all=current.original.typed_count)
        if current.original.mostly_unknown:
            st.warning(helped(sentence))
        else:
            said.append(sentence)
    if len(st.session_state.text) + len(st.session_state.pair) > LONGEST_LINK:
        said.append(
            spoken(
                "The text is longer than {most:,} characters, so the link in the address bar does not contain it."
            ).format(most=LONGEST_LINK)
        )
    if said:
        st.caption(" ".join(said))
    if not loaded.has_head("words") or (loaded.supports_nsp and not loaded.has_head("next")):
        name = as_written(shown_name(loaded.name))
        if loaded.has_head("words"):
            says = spoken("{model} has no trained output for two sentences, so it makes no such predictions.")
        elif loaded.has_head("next") or not loaded.supports_nsp:
            says = spoken("{model} has no trained masked-word output, so it makes no such predictions.")
        else:
            says = spoken("{model} has no trained output for words or two sentences, so it makes no such predictions.")
        st.info(helped(says.format(model=name)))
    say_off(current.off, keep_place=keep_place)
    say_edits(loaded.edits, encoding)


def say_unknown(read: UnknownTokens) -> None:
    """Say which texts beside that of the page are mostly unknown to the vocabulary."""
    if others := [as_written(text) for text in read.texts if not st.session_state.text.strip().startswith(text)]:
        st.warning(helped(
            spoken("Mostly [UNK], so what is computed from it says little: {texts}").format(texts=", ".join(others))
        ))  # fmt: skip


def say_cautions(run: ModelRun) -> None:
    """Say what should make a reader careful with the attention of this run; nothing where nothing should."""
    found = cautions(of_what_is_left(run), run.encoding)
    said = []
    if found.mostly_flat:
        said.append(
            f"{int(found.flat.sum())} of {found.flat.size} heads spread their attention evenly over all tokens, as an "
            "untrained model does: are these the right weights?"
        )
    if found.mostly_special:
        said.append(
            f"{found.to_cls + found.to_sep:.0%} of all attention goes to [CLS] ({found.to_cls:.0%}) and [SEP] "
            f"({found.to_sep:.0%}), where it has little effect: attention alone overrates them."
        )
    for sentence in said:
        screen.note(f":material/warning: {sentence}")


def say_no_word_hidden(current: Question, sentence: str) -> None:
    """Say that no word is hidden, and offer to hide the longest of the text."""
    original = current.original
    word = max(range(original.word_count), key=lambda number: len(original.word_text(number)))
    missing(
        sentence, f"Hide “{as_written(original.word_text(word)[:40])}”", mask_word, TokenClick(word), current.first_word
    )


def status(current: Question) -> str:
    """What the page is about, in one line."""
    config = current.loaded.config
    name = as_written(shown_name(current.loaded.name))
    seconds = seconds_taken()
    parts = [
        spoken("click a word to hide it"),
        spoken("{tokens} tokens of {most}").format(tokens=len(current.encoding), most=config.max_position_embeddings),
        f"{name} {config.num_hidden_layers} × {config.num_attention_heads}" + _pruned(current),
        f"{current.loaded.device.type.upper()}, fp32",
        *map(as_written, current.loaded.notes),
    ]
    if seconds is not None:
        parts.append(f"{seconds * 1000:.0f} ms")
    return " &nbsp;·&nbsp; ".join(parts) + " &nbsp;·&nbsp; " + spoken("counts from 0")


def _pruned(current: Question) -> str:
    """How many heads the model has lost, for the status line; nothing for a whole one."""
    gone = sum(map(len, current.loaded.config.pruned_heads.values()))
    return spoken(", {gone} pruned").format(gone=gone) if gone else ""
