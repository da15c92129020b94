"""Controls whose values the session keeps, file controls, and buttons that fill in an example.

The value of a control is `st.session_state[name]`, where `name` is also the name of its URL parameter. It is kept
while no page draws the control (`persist_state`), and callbacks may change it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.params import number


@dataclass(frozen=True)
class Upload:
    """An uploaded file, which stays while no page draws its control."""

    name: str
    data: bytes

    def __str__(self) -> str:
        return self.name

    @cached_property
    def identity(self) -> tuple[str, bytes]:
        """Its type and a digest of its content."""
        return Path(self.name).suffix.lower(), sha256(self.data).digest()

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """The file in a temporary folder, under its name without characters that file systems do not allow.

        A message that begins with the name gets "the file" before it, so that the name does not begin a sentence.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", self.name)[-60:]
            path.write_bytes(self.data)
            try:
                yield path
            except Refused as error:
                if not str(error).startswith(path.name):
                    raise
                raise Refused(f"the file {error}") from error


def choose_neuron(
    name: str, current: tuple[int, int], loaded: LoadedModel, *, on_change: Callable[[], None] | None = None
) -> None:
    """Draw the controls of the layer and the number of a neuron, the value `name` of the session.

    current: layer and neuron that are shown, which may exceed those of the model. on_change: called after the visitor
    has chosen another neuron.
    """
    config = loaded.config
    maxima = config.num_hidden_layers - 1, config.intermediate_size - 1
    layer, neuron = (
        number(f"{name}_{suffix}", label, minimum=0, maximum=maximum, width=150)
        for suffix, label, maximum in zip(("layer", "number"), ("Layer", "Neuron"), maxima, strict=True)
    )

    def receive() -> None:
        st.session_state[name] = int(layer.value), int(neuron.value)
        if on_change is not None:
            on_change()

    for param, index, maximum in zip((layer, neuron), current, maxima, strict=True):
        param.set(min(index, maximum))
        param(on_change=receive)


def file_control(place: Any, label: str, name: str, *, types: Sequence[str], megabytes: int) -> Upload | None:
    """Draw the control of a file in a container, and return the last uploaded file until it is removed."""
    state = st.session_state
    key = f"{name}#file"

    def receive() -> None:
        file = state[key]
        state[name] = None if file is None else Upload(file.name, file.getvalue())

    place.file_uploader(label, type=list(types), key=key, max_upload_size=megabytes, on_change=receive)
    upload: Upload | None = state.get(name)
    if upload is not None and state.get(key) is None:
        # After a visit of another page the control is empty.
        file_label = f"{escape_markdown(upload.name)} ({len(upload.data):,} bytes)"
        remove: dict[str, Any] = {"help": "Take this file away", "on_click": state.pop, "args": (name,)}
        place.button(file_label, key=f"{name}#away", icon=":material/close:", **remove)
    return upload


def example_button(sentence: str, label: str, fill: Callable[..., None], *args: Any) -> None:
    """Write what a page needs, beside a button that fills in an example.

    sentence: Markdown. label: of the button. fill: called with args after a click.
    """
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.info(with_help(sentence), icon=":material/lightbulb:", width=640)
        st.button(label, key=f"fill: {sentence}", on_click=fill, args=args, type="primary")


def set_choice(name: str, value: Any) -> None:
    """Set the value of a parameter; callback of a button."""
    st.session_state[name] = value
