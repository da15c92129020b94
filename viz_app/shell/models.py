"""Loading of models, references to them, and the selected model."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from bert_core.editing import edited
from bert_core.loading import LoadedModel, load, stat_model_files
from bert_core.refused import Refused
from viz_app.access import is_local_server
from viz_app.shell.markdown import error_sentence, with_help
from viz_app.shell.memory import DEVICE_SETTING, MODELS
from viz_app.shell.model_cache import use
from viz_app.shell.model_names import added_models, full_name, models_on_offer, parse_model, shown_name
from viz_app.shell.params import Param
from viz_app.shell.work import Work, wait_for
from viz_app.texts import page_texts

TEXTS = page_texts("frame")

# Session keys.
LOAD_PROBLEM = "_load_problem"  # why the last model could not be loaded
_NEXT_MODEL = "_other_model"  # the model that the next run selects
_LAST_MODEL = "_model_before"  # the model that was selected before the last addition

model_choice: Param[str] = Param(
    "model",
    lambda: models_on_offer()[0],
    parse_model,
    widget="selectbox",
    step=True,
    arguments={"format_func": shown_name},
)
PARAMS: tuple[Param[Any], ...] = (model_choice,)


def loaded_model(name: str, label: str = "") -> LoadedModel:
    """Return a model from the cache for all visitors; the queue loads it first, and after its files have changed.

    label: as the queue shows it. Raises Refused, as `load` does.
    """
    device, files = os.environ.get(DEVICE_SETTING), stat_model_files(name)
    key = name, files.version
    loaded = MODELS.get(key)
    if loaded is None:
        work = Work(
            ("model", *key),
            label or f"Loading {shown_name(name)}",
            lambda _: MODELS.load(key, lambda: load(name, device=device), files.weights_bytes),
            is_kept=False,
        )
        loaded = wait_for(work)
    use(loaded)
    return loaded


class ModelReference:
    """A reference to a model with its edits, which an open page may hold between runs: it is weak for cached models."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._key, self._edits = loaded.weights_key, loaded.edits
        cached = MODELS.get(self._key)
        is_cached = cached is not None and next(cached.model.parameters()) is next(loaded.model.parameters())
        self._deref: Callable[[], LoadedModel | None] = weakref.ref(loaded) if is_cached else lambda: loaded
        use(loaded)

    def get(self) -> LoadedModel:
        """Return the model, and keep it in memory until the run of the page or the job ends.

        A model that was dropped from memory is loaded again. Raises Refused if its files were changed or removed.
        """
        loaded = self._deref()
        if loaded is None:
            name = self._key[0]
            reloaded = loaded_model(name)
            if reloaded.weights_key != self._key:
                raise Refused(f"the files of {shown_name(name)} were changed: draw the page again")
            loaded = edited(reloaded, self._edits)
            self._deref = weakref.ref(loaded)
        use(loaded)
        return loaded


def model_settings() -> None:
    """Draw the control of the model, and on a local server the form that adds another."""
    state = st.session_state
    options = models_on_offer()
    if _NEXT_MODEL in state:
        state.model = state.pop(_NEXT_MODEL)
    if state.model not in options:
        state.model = options[0]
    model_choice(label=TEXTS["model.label"], options=options, help=full_name(state.model))
    if is_local_server():
        # In a form, the Enter key loads the model.
        with st.popover(TEXTS["model.another"], width="stretch"), st.form("another_model_form", border=False):
            help_text = TEXTS["model.name_help"]
            label = TEXTS["model.name"]
            st.text_input(label, key="another_model", placeholder="bert-base-uncased", help=help_text)
            st.form_submit_button(TEXTS["model.load"], on_click=_add_model, key="add_model")


def show_load_error() -> None:
    """Write why the last model could not be loaded, until the visitor closes the message or adds another model."""
    state = st.session_state
    if LOAD_PROBLEM not in state:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.error(with_help(state[LOAD_PROBLEM]), icon=":material/folder_off:", width="stretch")
        st.button(TEXTS["model.close"], on_click=state.pop, args=(LOAD_PROBLEM,), key="close_problem")


def _add_model() -> None:
    """Add the model of the form, and select it; callback of its button."""
    state = st.session_state
    name = state.another_model.strip()
    state.pop(LOAD_PROBLEM, None)
    if not name:
        state[LOAD_PROBLEM] = TEXTS["model.name_missing"]
        return
    if name.startswith("~"):
        name = str(Path(name).expanduser())
    open_model(name)


def open_model(name: str) -> None:
    """Add a model to those on offer, and select it; callback of a button."""
    state = st.session_state
    if name not in models_on_offer():
        added_models().append(name)
    state[_LAST_MODEL], state.model = state.model, name


def forget_model(name: str) -> None:
    """Remove a model that was added while the app ran from those on offer."""
    if name in added_models():
        added_models().remove(name)


def selected_model() -> LoadedModel | None:
    """Return the selected model; None, with a message, if it cannot be loaded.

    An added model that cannot be loaded is removed, and the previous model is selected.
    """
    state = st.session_state
    name = state.model
    try:
        return loaded_model(name)
    except Refused as error:
        if name in added_models():
            forget_model(name)
            state[LOAD_PROBLEM] = error_sentence(error)
            state[_NEXT_MODEL] = state.get(_LAST_MODEL, models_on_offer()[0])
            st.rerun()
        sentence = f"{error_sentence(error)} {TEXTS['model.choose_another']}"
        st.error(with_help(sentence), icon=":material/folder_off:")
        return None
