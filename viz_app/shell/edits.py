"""Edits of the model for the text: attention knockouts, scaled neurons, an activation patch; and their removal."""

from __future__ import annotations

from typing import Any

import streamlit as st

from bert_core.analysis.causes import mask_same_words
from bert_core.editing import edited
from bert_core.edits import ActivationPatch, AttentionKnockout, Edit, ScaledNeuron
from bert_core.loading import LoadedModel
from bert_core.records import Noised
from bert_core.refused import Refused
from bert_core.run.inputs import check_edits, head_mask_without
from bert_core.run.patch_edits import make_patch
from bert_core.tokenizer import Encoding
from viz_app.notation import (
    MOST_EDITS,
    PatchAddress,
    cut_in_words,
    parse_cuts,
    parse_put,
    parse_scaled,
    put_in_words,
    scaled_in_words,
    write_cuts,
    write_put,
    write_scaled,
)
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.params import Head, Param
from viz_app.shell.work import cached
from viz_app.texts import page_texts

TEXTS, FRAME_TEXTS = page_texts("edits"), page_texts("frame")
MAX_LISTED = 3  # edits of a kind that are listed
NO_EDITS: dict[str, Any] = {"cut": (), "scaled": (), "put": None, "put_from": ""}


def with_edits(
    loaded: LoadedModel, encoding: Encoding, original: Encoding, masked: tuple[int, ...], off: tuple[Head, ...]
) -> LoadedModel:
    """Return the model with the edits of the session; impossible ones are removed with a warning.

    encoding, original: the text with and without the words `masked` masked. off: heads that are off.
    """
    state, model = st.session_state, loaded
    for kind, notice in (("cut", TEXTS["knockout.none"]), ("scaled", TEXTS["scaled.none"])):
        try:
            changed = edited(model, state[kind])
            check_edits(changed, len(encoding))
            model = changed
        except Refused as error:
            st.warning(with_help(f"{error_sentence(error)} {notice}"), icon=":material/content_cut:")
            state[kind] = ()
    if state.put is None:
        return model
    try:
        return edited(model, [_patch(model, state.put, _source(model, encoding, original, masked), encoding, off)])
    except Refused as error:
        notice = TEXTS["patch.none"]
        st.warning(with_help(f"{error_sentence(error)} {notice}"), icon=":material/conversion_path:")
        state.put = None
        return model


def _source(loaded: LoadedModel, encoding: Encoding, original: Encoding, masked: tuple[int, ...]) -> Encoding | Noised:
    """Return the source of the activation patch: another text with the same words masked, or this one with noise."""
    state, tokenizer = st.session_state, loaded.tokenizer
    if state.put.noise is not None:
        return Noised(encoding, state.put.noise)
    source = tokenizer.encode(state.put_from, original.pair)
    return mask_same_words(tokenizer, source, original, masked)


@cached
def _patch(
    loaded: LoadedModel, part: PatchAddress, source: Encoding | Noised, encoding: Encoding, off: tuple[Head, ...]
) -> ActivationPatch:
    """Return the activation patch that an address names."""
    return make_patch(
        loaded,
        source,
        encoding,
        part.component,
        part.layer,
        position=part.position,
        head=part.head,
        align="tokens" if len(source) == len(encoding) else "words",
        head_mask=head_mask_without(loaded.config, off),
    )


def show_edits(edits: tuple[Edit, ...], encoding: Encoding) -> None:
    """Write a line for each kind of edits, with a button that removes them."""
    cuts, scaled, patches = [], [], []
    for edit in edits:
        if isinstance(edit, AttentionKnockout):
            cuts.append(escape_markdown(cut_in_words(edit, encoding, TEXTS)))
        elif isinstance(edit, ScaledNeuron):
            scaled.append(scaled_in_words(edit, TEXTS))
        elif isinstance(edit, ActivationPatch):
            patches.append(escape_markdown(put_in_words(edit, encoding, TEXTS)))
    _write_edits("cut", cuts, TEXTS["knockout.names"], "content_cut", "arrows_cut")
    _write_edits("scaled", scaled, TEXTS["scaled.names"], "tune", "neurons_scaled")
    _write_edits("put", patches, TEXTS["patch.names"], "conversion_path", "part_put_in")


def _write_edits(kind: str, names: list[str], sentence: str, icon: str, key: str) -> None:
    if not names:
        return
    line = "; ".join(names[:MAX_LISTED])
    if len(names) > MAX_LISTED:
        line += FRAME_TEXTS["more"].format(many=len(names) - MAX_LISTED)
    with st.container(key=key, horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f":orange[:material/{icon}:] {sentence.format(names=line)}")
        st.button(TEXTS["restore"], on_click=_restore, args=(kind,), key=f"restore_{kind}")


def add_knockouts(cut: AttentionKnockout) -> None:
    """Add an attention knockout; callback of a button."""
    st.session_state.cut = tuple(dict.fromkeys((*st.session_state.cut, cut)))[-MOST_EDITS:]


def add_scaled_neurons(*scaled: ScaledNeuron) -> None:
    """Set the factors of neurons; a factor of 1 removes the edit. A callback of a button."""
    edits = {(edit.layer, edit.neuron): edit for edit in (*st.session_state.scaled, *scaled)}
    st.session_state.scaled = tuple(edit for edit in edits.values() if edit.factor != 1)[-MOST_EDITS:]


def keep_patch(part: PatchAddress, source: str) -> None:
    """Set the activation patch of all pages; callback of a button. source: the text from which it comes."""
    st.session_state.put, st.session_state.put_from = part, source


def _restore(kind: str) -> None:
    st.session_state[kind] = NO_EDITS[kind]
    if kind == "put":
        st.session_state.put_from = ""


PARAMS: tuple[Param[Any], ...] = (
    Param("cut", (), parse_cuts, write_cuts, step=True, text_name="text"),
    Param("scaled", (), parse_scaled, write_scaled, step=True, text_name="text"),
    Param("put", None, parse_put, write_put, step=True, text_name="text"),
    Param("put_from", "", text_name="text", free=True),
)
