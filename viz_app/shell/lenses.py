"""The tuned lens of a model."""

from __future__ import annotations

import streamlit as st

from bert_core.checkpoint import CheckpointError
from bert_core.editing import unedited
from bert_core.loading import LoadedModel
from bert_core.translators import Translators, read_translators
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.work import cached_per_model


def translators_of(model: LoadedModel) -> Translators | None:
    """Return the translators of a model, or None without any. Raises CheckpointError for a file that does not fit."""
    return _translators(unedited(model))


@cached_per_model
def _translators(model: LoadedModel) -> Translators | None:
    return read_translators(model)


def has_translators(model: LoadedModel) -> bool:
    """Return whether a model has a tuned lens; a file that does not fit is reported and not used."""
    try:
        return translators_of(model) is not None
    except CheckpointError as error:
        st.warning(with_help(escape_markdown(f"{error}.")), icon=":material/link_off:")
        return False
