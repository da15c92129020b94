"""The models that this server offers, and their names."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import streamlit as st

from bert_core.loading import bundled_models
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.params import parse_option


@cache
def _bundled() -> tuple[str, ...]:
    # Cached: they are part of the installation.
    return bundled_models()


def models_on_offer() -> tuple[str, ...]:
    """Return the names of the bundled models, of those named at start, and of those added on this machine."""
    requested = json.loads(os.environ.get("HEADLIGHT_MODELS", "[]"))
    return tuple(dict.fromkeys((*_bundled(), *requested, *added_models())))


def parse_model(value: str) -> str:
    """Return the name of a model that is offered now. Raises Refused for any other."""
    return parse_option(value, models_on_offer())


def shown_name(model: str) -> str:
    """Return the name of a model as it is shown: the shortest end of a path that no other offered model has."""
    path = Path(model)
    if not path.expanduser().exists():
        return model
    other_paths = [Path(name).parts for name in models_on_offer() if name != model]
    for length in range(1, len(path.parts)):
        if all(parts[-length:] != path.parts[-length:] for parts in other_paths):
            return "/".join(path.parts[-length:])
    return model


def full_name(model: str) -> str | None:
    """Return the whole path of a model as a help text; None if `shown_name` is the whole path."""
    return None if shown_name(model) == model else escape_markdown(model)


@st.cache_resource
def added_models() -> list[str]:
    """Return the list of models that were added on this machine since the server started."""
    return []
