"""The models on offer, their names, and the one that is chosen."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path

import streamlit as st

from bert_core.editing import edited
from bert_core.loading import LoadedModel, bundled_models, load, stat_model_files
from bert_core.refused import Refused
from viz_app.access import is_local_server
from viz_app.shell.controls import control
from viz_app.shell.language import translate
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.memory import DEVICE_SETTING, MODELS
from viz_app.shell.model_cache import use
from viz_app.shell.params import Param, parse_option
from viz_app.shell.work import Work, wait_for

LOAD_PROBLEM = "_load_problem"  # why the model that was named last could not be loaded


@cache
def _bundled() -> tuple[str, ...]:
    # They come with the installation: while the app runs, none is added.
    return bundled_models()


def models_on_offer() -> tuple[str, ...]:
    """The bundled models, those named at start, and those that were added on this machine, in that order."""
    configured = json.loads(os.environ.get("HEADLIGHT_MODELS", "[]"))
    return tuple(dict.fromkeys((*_bundled(), *configured, *added_models())))


def parse_model(value: str) -> str:
    """A model that is on offer now. Raises Refused for any other."""
    return parse_option(*models_on_offer())(value)


def shown_name(model: str) -> str:
    """A model's name as it is shown: of a path its end, as much of it as tells it from all others on offer."""
    path = Path(model)
    if not path.expanduser().exists():
        return model
    other_paths = [Path(name).parts for name in models_on_offer() if name != model]
    ends = (
        "/".join(path.parts[-n:])
        for n in range(1, len(path.parts))
        if all(parts[-n:] != path.parts[-n:] for parts in other_paths)
    )
    return next(ends, model)


def full_name(model: str) -> str | None:
    """All of a model's path as a help text; None where all of it is shown."""
    return None if shown_name(model) == model else escape_markdown(model)


@st.cache_resource
def added_models() -> list[str]:
    """Models that a visitor on this machine named while the app ran."""
    return []


def loaded_model(name: str, label: str = "") -> LoadedModel:
    """A model, loaded by the queue and kept for everyone as `ModelCache` does; after a change of its files the new one.

    label: as the queue shows it. Raises Refused, as `load` does.
    """
    device, files = os.environ.get(DEVICE_SETTING), stat_model_files(name)
    key = name, files.version
    loaded = MODELS.get(key)
    if loaded is None:
        loaded = wait_for(Work(
            ("model", *key), label or f"Loading {shown_name(name)}",
            lambda _: MODELS.load(key, lambda: load(name, device=device), files.weights_bytes), kept=False,
        ))  # fmt: skip
    use(loaded)
    return loaded


class ModelReference:
    """A model with its edits, which an open page may hold: between two runs it does not keep the model in memory.

    A model that is not of the app's cache is kept.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self._key, self._edits = loaded.weights_key, loaded.edits
        cached = MODELS.get(self._key)
        is_cached = cached is not None and next(cached.model.parameters()) is next(loaded.model.parameters())
        self._reference: Callable[[], LoadedModel | None] = weakref.ref(loaded) if is_cached else lambda: loaded
        use(loaded)

    def get(self) -> LoadedModel:
        """The model, loaded again if it was dropped meanwhile; it stays until the run of the page or the job ends.

        Raises Refused where its files were changed or removed since.
        """
        loaded = self._reference()
        if loaded is None:
            name = self._key[0]
            reloaded = loaded_model(name)
            if reloaded.weights_key != self._key:
                raise Refused(f"the files of {shown_name(name)} were changed: draw the page again")
            loaded = edited(reloaded, self._edits)
            self._reference = weakref.ref(loaded)
        use(loaded)
        return loaded


def model_settings() -> None:
    """Draw the controls of the model, and on a server of one's own that of another one."""
    state = st.session_state
    names = models_on_offer()
    if "_other_model" in state:
        state.model = state.pop("_other_model")
    if state.model not in names:
        state.model = names[0]
    control(
        st.selectbox, translate("Model"), "model", options=names, format_func=shown_name, help=full_name(state.model)
    )
    if is_local_server():
        # In a form Enter loads.
        with st.popover(translate("Another model"), width="stretch"), st.form("another_model_form", border=False):
            st.text_input(
                translate("Checkpoint folder or hub id"), key="another_model", placeholder="bert-base-uncased",
                help=translate(
                    "A folder with config.json and the weights, the same files in one .zip, or a name on the hub."
                ),
            )  # fmt: skip
            st.form_submit_button(translate("Load"), on_click=_add_model, key="add_model")


def show_load_error() -> None:
    """Say on the page why the model that was named last is not there, until that is put away or another is named."""
    state = st.session_state
    if LOAD_PROBLEM not in state:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.error(with_help(state[LOAD_PROBLEM]), icon=":material/folder_off:", width="stretch")
        st.button(translate("Close"), on_click=state.pop, args=(LOAD_PROBLEM,), key="close_problem")


def _add_model() -> None:
    """Offer the model that was named, and choose it."""
    state = st.session_state
    name = state.another_model.strip()
    state.pop(LOAD_PROBLEM, None)
    if not name:
        state[LOAD_PROBLEM] = translate(
            "The name is empty: type a folder, a .zip file with a model, or a name on the hub."
        )
        return
    if name.startswith("~"):
        name = str(Path(name).expanduser())
    open_model(name)


def open_model(name: str) -> None:
    """Offer a model, and choose it; a click on a button."""
    state = st.session_state
    if name not in models_on_offer():
        added_models().append(name)
    state["_model_before"], state.model = state.model, name


def forget_model(name: str) -> None:
    """Offer a model no more that was added while the app ran: its folder goes."""
    if name in added_models():
        added_models().remove(name)


def selected_model() -> LoadedModel | None:
    """The model, or None where it cannot be loaded, and why is said; one that was just added is taken back."""
    state = st.session_state
    name = state.model
    try:
        return loaded_model(name)
    except Refused as error:
        if name in added_models():
            added_models().remove(name)
            state[LOAD_PROBLEM] = error_sentence(error)
            state["_other_model"] = state.get("_model_before", models_on_offer()[0])
            st.rerun()
        st.error(
            with_help(f"{error_sentence(error)} {translate('Choose another model in the sidebar.')}"),
            icon=":material/folder_off:",
        )
        return None


PARAMS = {"model": Param(lambda: models_on_offer()[0], parse_model, step=True)}
