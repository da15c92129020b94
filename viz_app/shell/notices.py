"""The status line, and what has to be said of a text or of a run."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from bert_core.analysis.cautions import cautions
from bert_core.records import ModelRun
from bert_core.unknown_tokens import UnknownTokens
from viz_app.components.token_strip import TokenClick
from viz_app.maps import renormalised_attention
from viz_app.shell.address import MAX_LINK_CHARACTERS
from viz_app.shell.controls import example_button
from viz_app.shell.edits import show_edits
from viz_app.shell.heads import show_heads_off
from viz_app.shell.language import translate
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection, toggle_mask
from viz_app.shell.view import write_note
from viz_app.shell.work import seconds_taken


def show_link_notices(notices: Sequence[str]) -> None:
    """Say what of a link could not be."""
    for notice in notices:
        st.warning(with_help(escape_markdown(notice)), icon=":material/link_off:")


def show_text_notices(current: Selection, *, keep_place: bool) -> None:
    """Say what there is to know before the text is looked at; keep_place: as in `say_off`."""
    encoding, loaded = current.encoding, current.loaded
    sentences = []
    if encoding.truncated_count:
        sentences.append(
            ":orange[:material/content_cut:] "
            + translate(
                "The text has {length:,} tokens, but {model} reads at most {most:,}: the last {cut:,} are left out."
            ).format(
                length=encoding.full_length,
                model=escape_markdown(shown_name(loaded.name)),
                most=len(encoding),
                cut=encoding.truncated_count,
            )
        )
    if unknown := current.original.unknown_count:
        sentence = translate(
            "{unknown:,} of {all:,} tokens are [UNK]: these characters are not in the vocabulary, so the model cannot "
            "tell them apart."
        ).format(unknown=unknown, all=current.original.typed_count)
        if current.original.mostly_unknown:
            st.warning(with_help(sentence))
        else:
            sentences.append(sentence)
    if len(st.session_state.text) + len(st.session_state.pair) > MAX_LINK_CHARACTERS:
        sentences.append(
            translate(
                "The text is longer than {most:,} characters, so the link in the address bar does not contain it."
            ).format(most=MAX_LINK_CHARACTERS)
        )
    if sentences:
        st.caption(" ".join(sentences))
    if not loaded.has_head("words") or (loaded.supports_nsp and not loaded.has_head("next")):
        name = escape_markdown(shown_name(loaded.name))
        if loaded.has_head("words"):
            template = translate("{model} has no trained output for two sentences, so it makes no such predictions.")
        elif loaded.has_head("next") or not loaded.supports_nsp:
            template = translate("{model} has no trained masked-word output, so it makes no such predictions.")
        else:
            template = translate(
                "{model} has no trained output for words or two sentences, so it makes no such predictions."
            )
        st.info(with_help(template.format(model=name)))
    show_heads_off(current.off, keep_place=keep_place)
    show_edits(loaded.edits, encoding)


def show_unknown_tokens(unknown: UnknownTokens) -> None:
    """Say which texts beside that of the page are mostly unknown to the vocabulary."""
    if texts := [escape_markdown(text) for text in unknown.texts if not st.session_state.text.strip().startswith(text)]:
        st.warning(with_help(
            translate("Mostly [UNK], so what is computed from it says little: {texts}").format(texts=", ".join(texts))
        ))  # fmt: skip


def show_attention_cautions(run: ModelRun) -> None:
    """Say what should make a reader careful with the attention of this run; nothing where nothing should."""
    result = cautions(renormalised_attention(run), run.encoding)
    sentences = []
    if result.mostly_flat:
        sentences.append(
            f"{int(result.flat.sum())} of {result.flat.size} heads spread their attention evenly over all tokens, as "
            "an "
            "untrained model does: are these the right weights?"
        )
    if result.mostly_special:
        sentences.append(
            f"{result.to_cls + result.to_sep:.0%} of all attention goes to [CLS] ({result.to_cls:.0%}) and [SEP] "
            f"({result.to_sep:.0%}), where it has little effect: attention alone overrates them."
        )
    for sentence in sentences:
        write_note(f":material/warning: {sentence}")


def show_no_mask(current: Selection, sentence: str) -> None:
    """Say that no word is hidden, and offer to hide the longest of the text."""
    original = current.original
    word = max(range(original.word_count), key=lambda number: len(original.word_text(number)))
    example_button(
        sentence,
        f"Hide “{escape_markdown(original.word_text(word)[:40])}”",
        toggle_mask,
        TokenClick(word),
        current.first_word,
    )


def status_line(current: Selection) -> str:
    """What the page is about, in one line."""
    config = current.loaded.config
    name = escape_markdown(shown_name(current.loaded.name))
    seconds = seconds_taken()
    parts = [
        translate("click a word to hide it"),
        translate("{tokens} tokens of {most}").format(
            tokens=len(current.encoding), most=config.max_position_embeddings
        ),
        f"{name} {config.num_hidden_layers} × {config.num_attention_heads}" + _pruned(current),
        f"{current.loaded.device.type.upper()}, fp32",
        *map(escape_markdown, current.loaded.notes),
    ]
    if seconds is not None:
        parts.append(f"{seconds * 1000:.0f} ms")
    return " &nbsp;·&nbsp; ".join(parts) + " &nbsp;·&nbsp; " + translate("counts from 0")


def _pruned(current: Selection) -> str:
    """How many heads the model has lost, for the status line; nothing for a whole one."""
    pruned_count = sum(map(len, current.loaded.config.pruned_heads.values()))
    return translate(", {gone} pruned").format(gone=pruned_count) if pruned_count else ""
