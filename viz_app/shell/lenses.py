"""The tuned lens of a model, if it has one."""

from __future__ import annotations

import streamlit as st

from bert_core.checkpoint import CheckpointError
from bert_core.loading import LoadedModel
from bert_core.translators import Translators, read_translators
from viz_app.shell.markdown import as_written, helped
from viz_app.shell.work import kept_of_model


def translators_of(loaded: LoadedModel) -> Translators | None:
    """Those of a model, or None where it has none. Raises CheckpointError for a file that does not fit."""
    key = ("translators", loaded.name, loaded.stamp)
    found: Translators | None = kept_of_model(key, lambda: read_translators(loaded))
    return found


def has_translators(loaded: LoadedModel) -> bool:
    """Whether a model has a tuned lens; a file that does not fit is said and left out."""
    try:
        return translators_of(loaded) is not None
    except CheckpointError as error:
        st.warning(helped(as_written(f"{error}.")), icon=":material/link_off:")
        return False
