"""Controls whose values are kept in the session, file controls, and buttons that fill in an example.

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
from viz_app.shell.markdown import escape_markdown, help_on_terms, with_help, with_special_tokens


@dataclass(frozen=True)
class Upload:
    """A file that a visitor uploaded, kept when its control is no longer drawn."""

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
        """The file under its name, as far as that can be one here, in a folder of its own as long as it is read."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", self.name)[-60:]
            path.write_bytes(self.data)
            yield path


def control(
    draw: Callable[..., Any],
    label: str,
    name: str,
    *,
    first: Any = None,
    on_change: Callable[..., None] | None = None,
    args: Sequence[Any] = (),
    **arguments: Any,
) -> Any:
    """Draw the control of the choice `name` and return the choice.

    draw: `st.text_input`, `st.segmented_control`, ..., of the page or of a place on it. look: its other arguments;
    without a help of its own, a control explains the technical words in its label, and in what lies beside each other.
    first: the choice before anything was chosen, where it is none of those in the address.
    on_change: called with args after a visitor changed the choice.
    """
    state = st.session_state
    value = state.get(name, first)
    if "options" in arguments and value not in arguments["options"] and first is not None:
        value = first
    state[name] = value
    if arguments.get("help") is None:
        format_func, is_row = arguments.get("format_func", str), draw.__name__ == "segmented_control"
        arguments["help"] = help_on_terms(
            " · ".join([label, *map(format_func, arguments["options"] if is_row else ())])
        )

    if draw.__name__ == "number_input":
        arguments |= {"value": None, "required": True}  # an emptied field keeps its number

    def receive() -> None:
        if state[name] is None:  # emptied: the value stays, and is shown again
            state[name] = value
        elif state[name] != value and on_change is not None:
            on_change(*args)

    draw(with_special_tokens(label), key=name, on_change=receive, persist_state="session", **arguments)
    return state[name]


def choose_neuron(
    name: str, shown: tuple[int, int], loaded: LoadedModel, *, on_change: Callable[[], None] | None = None
) -> None:
    """Draw the controls of any neuron by its numbers, for the choice `name`. shown: layer and neuron that are shown.

    on_change: called after a visitor chose another one.
    """
    state, config = st.session_state, loaded.config
    layer, number = f"{name}_layer", f"{name}_number"
    parts = (("Layer", layer, config.num_hidden_layers), ("Neuron", number, config.intermediate_size))
    for (_, part, count), at in zip(parts, shown, strict=True):
        state[part] = min(at, count - 1)  # a link may name any

    def take() -> None:
        state[name] = int(state[layer]), int(state[number])
        if on_change is not None:
            on_change()

    for label, part, count in parts:
        control(st.number_input, label, part, min_value=0, max_value=count - 1, step=1, width=150, on_change=take)


def file_control(place: Any, label: str, name: str, *, types: Sequence[str], megabytes: int) -> Upload | None:
    """Draw the control of a file and return the file that was given last; it stays until it is taken away.

    place: the page, or a place on it.
    """
    state = st.session_state
    key = f"{name}#file"

    def take() -> None:
        given = state[key]
        state[name] = None if given is None else Upload(given.name, given.getvalue())

    place.file_uploader(label, type=list(types), key=key, max_upload_size=megabytes, on_change=take)
    kept: Upload | None = state.get(name)
    if kept is not None and state.get(key) is None:
        # The page was left meanwhile: the control is empty, the file is not.
        place.button(
            f"{escape_markdown(kept.name)} ({len(kept.data):,} bytes)",
            key=f"{name}#away", icon=":material/close:", help="Take this file away", on_click=state.pop, args=(name,),
        )  # fmt: skip
    return kept


def example_button(sentence: str, label: str, fill: Callable[..., None], *args: Any) -> None:
    """Say what a page still needs, beside a button that fills in an example.

    sentence: Markdown. fill: called with args by a click on the button, which says `label`.
    """
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.info(with_help(sentence), icon=":material/lightbulb:", width=640)
        st.button(label, key=f"fill: {sentence}", on_click=fill, args=args, type="primary")


def set_choice(name: str, value: Any) -> None:
    """Make `value` the choice `name`; a click on a button."""
    st.session_state[name] = value
