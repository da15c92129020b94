"""What is changed in the model for this text: arrows cut, neurons scaled, a part put in; and putting it back."""

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
    PUT_WORDS,
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
from viz_app.shell.language import translate
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.params import Head, Param
from viz_app.shell.work import cached_by_key

MAX_LISTED = 3  # of a kind, that are named in the line
NO_EDITS: dict[str, Any] = {"cut": (), "scaled": (), "put": None, "put_from": ""}


def with_edits(
    loaded: LoadedModel, encoding: Encoding, original: Encoding, masked: tuple[int, ...], off: tuple[Head, ...]
) -> LoadedModel:
    """The model with all that the reader changed in it for this text; what cannot be is said, and left out.

    encoding, original: the text with the words hidden that the reader hid, `masked`, and without. off: heads.
    """
    state, model = st.session_state, loaded
    cleared_notes = {"cut": translate("Nothing is cut."), "scaled": translate("No neuron is scaled.")}
    for kind, note in cleared_notes.items():
        try:
            changed = edited(model, state[kind])
            check_edits(changed, len(encoding))
            model = changed
        except Refused as error:
            st.warning(with_help(f"{error_sentence(error)} {note}"), icon=":material/content_cut:")
            state[kind] = ()
    if state.put is None:
        return model
    try:
        return edited(model, [_activation_patch(model, state.put, state.put_from, encoding, original, masked, off)])
    except Refused as error:
        note = translate("Nothing is put in.")
        st.warning(with_help(f"{error_sentence(error)} {note}"), icon=":material/conversion_path:")
        state.put = None
        return model


def _activation_patch(
    loaded: LoadedModel,
    activation: PatchAddress,
    source_text: str,
    encoding: Encoding,
    original: Encoding,
    masked: tuple[int, ...],
    off: tuple[Head, ...],
) -> ActivationPatch:
    """The part that an address names, of a text in which the same words are hidden, or of this one with noise."""
    source: Encoding | Noised
    if activation.noise is None:
        longest = loaded.config.max_position_embeddings
        source_encoding = loaded.tokenizer.encode(source_text, original.pair, max_length=longest)
        source = mask_same_words(loaded.tokenizer, source_encoding, original, masked)
    else:
        source = Noised(encoding, activation.noise)
    align = "tokens" if len(source) == len(encoding) else "words"
    patch: ActivationPatch = cached_by_key(
        ("put", loaded.identity, activation, source, encoding, off),
        lambda: make_patch(
            loaded,
            source,
            encoding,
            activation.component,
            activation.layer,
            position=activation.position,
            head=activation.head,
            align=align,
            head_mask=head_mask_without(loaded.config, off),
        ),
    )  # fmt: skip
    return patch


def show_edits(edits: tuple[Edit, ...], encoding: Encoding) -> None:
    """What is changed, in a line for each kind, and the way to put it back; nothing where nothing is."""
    every_token, layers, neuron = translate("every token"), translate("all layers"), translate("neuron")
    row_texts = translate("the rest of the row grows"), translate("the rest stays as it was")
    cuts = [
        escape_markdown(cut_in_words(edit, encoding, every_token=every_token, all_layers=layers, row_effects=row_texts))
        for edit in edits
        if isinstance(edit, AttentionKnockout)
    ]
    scaled = [
        scaled_in_words(edit, neuron=neuron, off=translate("off")) for edit in edits if isinstance(edit, ScaledNeuron)
    ]
    translate_word = {word: translate(word) for word in PUT_WORDS}.__getitem__
    patches = [
        escape_markdown(put_in_words(edit, encoding, translate=translate_word))
        for edit in edits
        if isinstance(edit, ActivationPatch)
    ]
    _line("cut", cuts, translate("Cut: {names}"), "content_cut", "arrows_cut")
    _line("scaled", scaled, translate("Scaled: {names}"), "tune", "neurons_scaled")
    _line("put", patches, translate("Put in: {names}"), "conversion_path", "part_put_in")


def _line(kind: str, names: list[str], template: str, icon: str, key: str) -> None:
    if not names:
        return
    name_list = "; ".join(names[:MAX_LISTED])
    if len(names) > MAX_LISTED:
        name_list += translate(" and {many} more").format(many=len(names) - MAX_LISTED)
    with st.container(key=key, horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f":orange[:material/{icon}:] {template.format(names=name_list)}")
        st.button(translate("Restore"), on_click=_restore, args=(kind,), key=f"restore_{kind}")


def add_knockouts(cut: AttentionKnockout) -> None:
    """Cut some arrows too; a click on a button."""
    st.session_state.cut = tuple(dict.fromkeys((*st.session_state.cut, cut)))[-MOST_EDITS:]


def add_scaled_neurons(*scaled: ScaledNeuron) -> None:
    """Scale some neurons, in the place of what was done to them before; a factor of 1 leaves them be. A click."""
    neurons = {(neuron.layer, neuron.neuron): neuron for neuron in (*st.session_state.scaled, *scaled)}
    st.session_state.scaled = tuple(neuron for neuron in neurons.values() if neuron.factor != 1)[-MOST_EDITS:]


def keep_patch(patch: PatchAddress, source: str) -> None:
    """Keep a part of another text in while other pages are looked at; a click on a button. source: what it is from."""
    st.session_state.put, st.session_state.put_from = patch, source


def _restore(kind: str) -> None:
    st.session_state[kind] = NO_EDITS[kind]
    if kind == "put":
        st.session_state.put_from = ""


PARAMS: tuple[Param[Any], ...] = (
    Param("cut", (), parse_cuts, write_cuts, step=True, about="text"),
    Param("scaled", (), parse_scaled, write_scaled, step=True, about="text"),
    Param("put", None, parse_put, write_put, step=True, about="text"),
    Param("put_from", "", about="text", free=True),
)
