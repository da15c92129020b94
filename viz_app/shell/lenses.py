"""The tuned lens of a model, if it has one."""

from __future__ import annotations

import streamlit as st

from bert_core.checkpoint import CheckpointError
from bert_core.loading import LoadedModel
from bert_core.translators import Translators, read_translators
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.work import cached_of_model_by_key


def translators_of(loaded: LoadedModel) -> Translators | None:
    """Return the translators of a model; None if it has none. Raises CheckpointError for a file of another model."""
    translators: Translators | None = cached_of_model_by_key(
        ("translators", loaded.weights_key), lambda: read_translators(loaded)
    )
    return translators


def has_translators(loaded: LoadedModel) -> bool:
    """Return whether a model has a tuned lens; a file of another model is ignored with a warning."""
    try:
        return translators_of(loaded) is not None
    except CheckpointError as error:
        st.warning(with_help(escape_markdown(f"{error}.")), icon=":material/link_off:")
        return False
