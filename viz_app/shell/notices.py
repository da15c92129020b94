"""The status line, and notices about a link, a text and a run."""

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
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import MAX_WORD_CHARACTERS, Selection, longest_word, toggle_mask
from viz_app.shell.view import View, page_place, write_note
from viz_app.shell.work import seconds_taken
from viz_app.texts import page_texts

TEXTS = page_texts("frame")


def show_link_notices(notices: Sequence[str]) -> None:
    """Write the faults of a link."""
    for notice in notices:
        st.warning(with_help(escape_markdown(notice)), icon=":material/link_off:")


def show_text_notices(current: Selection, *, keep_place: bool) -> None:
    """Write notices about the text, the model, heads that are off and edits. keep_place: see `show_heads_off`."""
    encoding, loaded = current.encoding, current.loaded
    name = escape_markdown(shown_name(loaded.name))
    notices = []
    if encoding.truncated_count:
        sentence = TEXTS["notices.cut"].format(
            length=encoding.full_length, model=name, most=len(encoding), cut=encoding.truncated_count
        )
        notices.append(f":orange[:material/content_cut:] {sentence}")
    if unknown := current.original.unknown_count:
        sentence = TEXTS["notices.unknown"].format(unknown=unknown, all=current.original.typed_count)
        if current.original.mostly_unknown:
            st.warning(with_help(sentence))
        else:
            notices.append(sentence)
    if len(st.session_state.text) + len(st.session_state.pair) > MAX_LINK_CHARACTERS:
        sentence = TEXTS["notices.long_link"]
        notices.append(sentence.format(most=MAX_LINK_CHARACTERS))
    if notices:
        st.caption(" ".join(notices))
    lacks_words, lacks_next = not loaded.has_head("words"), loaded.supports_nsp and not loaded.has_head("next")
    if lacks_words or lacks_next:
        if not lacks_words:
            sentence = TEXTS["notices.no_next"]
        elif not lacks_next:
            sentence = TEXTS["notices.no_words"]
        else:
            sentence = TEXTS["notices.no_words_or_next"]
        st.info(with_help(sentence.format(model=name)))
    with page_place("heads_off"):
        show_heads_off(current.off, keep_place=keep_place)
    show_edits(loaded.edits, encoding)


def show_unknown_tokens(counted: UnknownTokens) -> None:
    """Warn about texts, other than that of the page, whose tokens are mostly unknown."""
    page_text = st.session_state.text.strip()
    if texts := ", ".join(escape_markdown(text) for text in counted.texts if not page_text.startswith(text)):
        sentence = TEXTS["notices.mostly_unknown"]
        st.warning(with_help(sentence.format(texts=texts)))


def show_attention_cautions(run: ModelRun) -> None:
    """Write cautions about the attention of a run, if there are any."""
    caution = cautions(renormalised_attention(run), run.encoding, windows=run.windows)
    if caution.mostly_flat:
        write_note(
            f":material/warning: {int(caution.flat.sum())} of {caution.flat.size} heads spread their attention evenly "
            "over all tokens, as an untrained model does: are these the right weights?"
        )
    if caution.mostly_special:
        write_note(
            f":material/warning: {caution.to_cls + caution.to_sep:.0%} of all attention goes to [CLS] "
            f"({caution.to_cls:.0%}) and [SEP] ({caution.to_sep:.0%}), where it has little effect. Attention weights "
            "alone overstate the importance of these tokens."
        )


def selection_without_patches(page: View, notice: str) -> Selection:
    """Return the selection of a page without its activation patch; `notice` is written if there is one."""
    selection = page.selection.with_model(page.selection.without_patches)
    if page.selection.loaded.edits != selection.loaded.edits:
        write_note(notice)
    return selection


def show_no_mask(current: Selection, sentence: str) -> None:
    """Write a sentence, with a button that masks the longest word of the text."""
    word = longest_word(current.original)
    label = f"Mask “{escape_markdown(current.original.word_text(word)[:MAX_WORD_CHARACTERS])}”"
    example_button(sentence, label, toggle_mask, TokenClick(word), current.first_word)


def status_line(current: Selection) -> str:
    """Return the line with the length of the text, the model, the device and the time of the run."""
    config = current.loaded.config
    name = escape_markdown(shown_name(current.loaded.name))
    seconds = seconds_taken()
    parts = [
        TEXTS["notices.length"].format(tokens=len(current.encoding), most=config.max_position_embeddings),
        f"{name} {config.num_hidden_layers} × {config.num_attention_heads}" + _pruned(current),
        f"{current.loaded.device.type.upper()}, fp32",
        *map(escape_markdown, current.loaded.notes),
    ]
    if seconds is not None:
        parts.append(f"{seconds * 1000:.0f} ms")
    return " &nbsp;·&nbsp; ".join(parts) + " &nbsp;·&nbsp; " + TEXTS["notices.numbering"]


def _pruned(current: Selection) -> str:
    """Return the number of pruned heads, for the status line; "" for none."""
    count = sum(map(len, current.loaded.config.pruned_heads.values()))
    return TEXTS["heads.pruned"].format(gone=count) if count else ""
