"""What the visitor chose, what is kept for them, and the frame around every page.

Every choice that defines a view lives in `st.session_state` under the name of its URL parameter, so the address bar
is a link to the view. Model runs go through one queue (`jobs`), and their records are shared between visitors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from streamlit.navigation.page import StreamlitPage

from bert_core.checkpoint import CheckpointError
from bert_core.loading import LoadedModel, bundled_models, load
from bert_core.record import MaskPrediction, ModelRun, Target
from bert_core.run.capture import capture
from bert_core.tokenizer import Encoding
from viz_app import examples
from viz_app.components.head_grid import HeadClick
from viz_app.components.token_strip import Chip, TokenClick, token_strip
from viz_app.jobs import Job, JobQueue

LONGEST_TEXT = 200_000  # characters that are read at all
LONGEST_LINK = 2_000  # characters of text that the address bar takes
PATIENCE = 2.0  # seconds a page waits before it shows the queue
UNSURE = 0.2  # a best guess below this probability is called unsure
LOGO = str(Path(__file__).parent / "static" / "headlight.svg")
# Less empty space above the text; in lectures, larger type that the last row can read.
STYLE = "<style>[data-testid=stMainBlockContainer] { padding-top: 4.4rem; }</style>"
LECTURE_STYLE = STYLE.replace("<style>", "<style>html { font-size: 21px; }")
MEMORY = "_memory"  # copy of the choices, for the pages that do not draw their control

Head = tuple[int, int]


# ---------------------------------------------------------------------------- choices and the address bar


@dataclass(frozen=True)
class Choice:
    """One choice: its default, and how it is written into and read from the address bar.

    parse raises ValueError for a value that is no possible choice.
    """

    default: Any
    parse: Callable[[str], Any] = str
    write: Callable[[Any], str] = str


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return value

    return parse


def _parse_words(value: str) -> tuple[int, ...]:
    return tuple(sorted({int(part) for part in value.split(",") if part}))


def _parse_head(value: str) -> Head:
    layer, _, head = value.partition(".")
    return int(layer), int(head)


def _write_head(head: Head) -> str:
    return f"{head[0]}.{head[1]}"


def _parse_heads(value: str) -> tuple[Head, ...]:
    return tuple(sorted({_parse_head(part) for part in value.split(",") if part}))


SHOWN = ("attention", "gradient", "product")
PARTS = ("all", "A to A", "A to B", "B to A", "B to B")


def _choices() -> dict[str, Choice]:
    first = examples.first()
    flag = Choice(False, parse=lambda value: value == "1", write=lambda value: "1" if value else "0")
    return {
        "text": Choice(first.text),
        "pair": Choice(first.pair),
        "masked": Choice(first.masked, _parse_words, lambda words: ",".join(map(str, words))),
        "model": Choice(models_on_offer()[0], _one_of(*models_on_offer())),
        "target": Choice(""),
        "off": Choice((), _parse_heads, lambda heads: ",".join(map(_write_head, heads))),
        "head": Choice((0, 0), _parse_head, _write_head),
        "show": Choice("attention", _one_of(*SHOWN)),
        "part": Choice("all", _one_of(*PARTS)),
        "hide": flag,
        "lecture": flag,
    }


def restore() -> list[str]:
    """Bring every choice into the session: from the address bar at first, from memory later. Returns notices."""
    notices: list[str] = []
    state = st.session_state
    if MEMORY not in state:
        state[MEMORY] = {}
        given = st.query_params.to_dict()
        # A link that names its text says everything about it: nothing of the first example stays.
        blank = {"pair": "", "masked": ()} if "text" in given else {}
        for name, choice in _choices().items():
            value = blank.get(name, choice.default)
            if name in given:
                try:
                    value = choice.parse(given[name])
                except ValueError as error:
                    notices.append(f"The address said {name}={given[name][:60]!r}, which is not possible: {error}.")
            state[MEMORY][name] = value
    for name, value in state[MEMORY].items():
        # A control that the last page did not draw has lost its value: give it back.
        if name not in state:
            state[name] = value
    return notices


def publish() -> None:
    """Remember every choice, and write those that are not the default into the address bar."""
    state = st.session_state
    state[MEMORY] = {name: state[name] for name in state[MEMORY]}
    link: dict[str, str] = {}
    for name, choice in _choices().items():
        if state[name] != choice.default or name in ("text", "pair", "masked"):
            link[name] = choice.write(state[name])
    if len(link["text"]) + len(link["pair"]) > LONGEST_LINK:
        for name in ("text", "pair", "masked", "target"):
            link.pop(name, None)
    if not link.get("pair"):
        link.pop("pair", None)
    if not link.get("masked"):
        link.pop("masked", None)
    if st.query_params.to_dict() != link:
        st.query_params.from_dict(link)


# ---------------------------------------------------------------------------- models and the queue


def serves_localhost() -> bool:
    """Whether only this machine can open the page; then any folder and the hub may be loaded."""
    return st.get_option("server.address") in ("localhost", "127.0.0.1", "::1")


def models_on_offer() -> tuple[str, ...]:
    """The bundled models, those named at start, and those that were added on this machine, in that order."""
    named = json.loads(os.environ.get("HEADLIGHT_MODELS", "[]"))
    return tuple(dict.fromkeys((*bundled_models(), *named, *_added_models())))


@st.cache_resource
def _added_models() -> list[str]:
    """Models that a visitor on this machine named while the app ran."""
    return []


@st.cache_resource
def queue() -> JobQueue:
    """The one queue of this server."""
    return JobQueue()


def result_of(job: Job) -> Any:
    """What a job gives; while it runs, the page shows its place in the queue instead, and comes back by itself.

    Raises what the job raised.
    """
    if (label := st.session_state.pop("_stopped", None)) is not None:
        st.info(f"{label} was stopped: change anything, or reload the page, to start again.")
        st.stop()
    if not job.wait(PATIENCE):
        _waiting_room(job)
        st.stop()
    if job.error is not None:
        queue().forget(job.key)
        raise job.error
    return job.result


def loaded_model(name: str) -> LoadedModel:
    """A model, loaded by the queue and kept for everyone.

    Raises CheckpointError or ValueError, as `load` does.
    """
    device = os.environ.get("HEADLIGHT_DEVICE")
    model: LoadedModel = result_of(
        queue().submit(("model", name), f"Loading {name}", lambda _: load(name, device=device))
    )
    return model


@st.fragment(run_every=0.5)
def _waiting_room(job: Job) -> None:
    if job.done:
        st.rerun()
    place = queue().place(job)
    where = "running" if place == 0 else f"waiting, {place} before it"
    st.progress(job.progress or 0.0, text=f"{job.label}: {where}")
    if st.button("Stop", key="stop_job"):
        queue().forget(job.key)
        st.session_state["_stopped"] = job.label
        st.rerun()


# ---------------------------------------------------------------------------- what a page sees


@dataclass(frozen=True)
class Frame:
    """The shared state as a page uses it.

    encoding: what the model reads, masks in place. original: the same without the masks that were clicked.
    target: what gradients explain; None if nothing is masked and there is no second sentence.
    head_mask: (layer, head), 0 for a head that is off.
    """

    loaded: LoadedModel
    encoding: Encoding
    original: Encoding
    target: Target | None
    off: tuple[Head, ...]
    dark: bool
    lecture: bool

    @property
    def head_mask(self) -> np.ndarray:
        config = self.loaded.config
        gates = np.ones((config.num_hidden_layers, config.num_attention_heads), np.float32)
        for layer, head in self.off:
            gates[layer, head] = 0
        return gates

    def truth_at(self, position: int) -> int | None:
        """The piece that was typed where now a mask is; None where a [MASK] was typed."""
        hidden = self.encoding.tokens[position] != self.original.tokens[position]
        return self.original.input_ids[position] if hidden else None

    def run(self, *, gradients: bool = False, all_heads_on: bool = False) -> ModelRun:
        """The record of this text, from the queue. gradients: for the frame's target, if there is one."""
        target = self.target if gradients else None
        gates = np.ones_like(self.head_mask) if all_heads_on else self.head_mask
        key = (self.loaded.name, self.encoding, target, gates.tobytes())
        job = queue().submit(
            key,
            f"{self.loaded.name} reads {len(self.encoding)} tokens",
            lambda _: capture(self.loaded, self.encoding, target=target, head_mask=gates, top_k=20),
        )
        run: ModelRun = result_of(job)
        st.session_state["_seconds"] = job.seconds
        return run

    def word(self, token_id: int) -> str:
        """A piece as text."""
        return self.loaded.tokenizer.token_of(token_id)


def open_frame(notices: list[str]) -> bool:
    """Draw the shared frame, with notices under the text; whether there is something for a page to show."""
    drawn = _frame(notices)
    st.session_state["_frame"] = drawn
    return drawn is not None


def show(page: StreamlitPage) -> None:
    """Run a page; a mistake in what was chosen becomes a sentence, and nothing chosen is lost."""
    try:
        page.run()
    except (ValueError, RuntimeError, MemoryError) as error:
        st.error(_sentence(error), icon=":material/error:")


def current() -> Frame:
    """The frame that was drawn above this page."""
    drawn: Frame = st.session_state["_frame"]
    return drawn


def _frame(notices: list[str]) -> Frame | None:
    state = st.session_state
    st.html(LECTURE_STYLE if state.lecture else STYLE)
    with st.popover("Settings", icon=":material/tune:") if state.lecture else st.sidebar:
        _settings()
    loaded = _chosen_model()
    if loaded is None:
        return None
    _text_inputs()
    text, pair = st.session_state.text, st.session_state.pair
    for notice in notices:
        st.warning(notice, icon=":material/link_off:")
    if len(text) + len(pair) > LONGEST_TEXT:
        st.error(f"The text has {len(text) + len(pair):,} characters: at most {LONGEST_TEXT:,} can be given at once.")
        return None
    try:
        original = loaded.tokenizer.encode(text, pair, max_length=loaded.config.max_position_embeddings)
    except ValueError as error:
        st.error(_sentence(error), icon=":material/edit:")
        return None
    masked = tuple(word for word in st.session_state.masked if word < original.word_count)
    encoding = loaded.tokenizer.mask_words(original, masked)
    off = _existing_heads(loaded)
    if off is None:
        return None
    current = Frame(
        loaded, encoding, original, None, off, st.context.theme.type == "dark", bool(st.session_state.lecture)
    )
    token_strip(_chips(current), key="strip", lecture=current.lecture, on_click=_mask_word)
    _notices(current)
    return _with_target(current)


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:] + "."


def _settings() -> None:
    state = st.session_state
    offered = models_on_offer()
    if "_other_model" in state:
        state.model = state.pop("_other_model")
    if state.model not in offered:
        state.model = offered[0]
    st.selectbox("Model", offered, key="model")
    if serves_localhost():
        with st.popover("Another model", width="stretch"):
            st.text_input("Checkpoint folder or hub id", key="another_model", placeholder="bert-base-uncased")
            st.button("Load", on_click=_add_model, key="add_model")
    if problem := state.pop("_load_problem", None):
        st.error(problem, icon=":material/folder_off:")
    st.toggle("Lecture mode", key="lecture", help="Larger type, thicker lines, for a projector")


def _add_model() -> None:
    """Offer the model that was named, and choose it."""
    state = st.session_state
    name = state.another_model.strip()
    if not name:
        state["_load_problem"] = "There is no name: give a checkpoint folder or a hub id."
        return
    if name not in models_on_offer():
        _added_models().append(name)
    state["_model_before"], state.model = state.model, name


def _chosen_model() -> LoadedModel | None:
    """The model, or None where it cannot be loaded, and why is said; one that was just added is taken back."""
    state = st.session_state
    name = state.model
    try:
        return loaded_model(name)
    except (CheckpointError, ValueError) as error:
        if name in _added_models():
            _added_models().remove(name)
            state["_load_problem"] = _sentence(error)
            state["_other_model"] = state.get("_model_before", models_on_offer()[0])
            st.rerun()
        st.error(f"{_sentence(error)} Choose another model in the sidebar.", icon=":material/folder_off:")
        return None


def _text_inputs() -> None:
    first, second, side = st.columns([5, 4, 1.4], vertical_alignment="bottom")
    first.text_input("Sentence", key="text", on_change=_text_changed, placeholder="Type a sentence")
    second.text_input(
        "Second sentence", key="pair", on_change=_text_changed, placeholder="Optional: does this one follow?"
    )
    with side.popover("Examples", width="stretch"):
        for number, example in enumerate(examples.all_examples()):
            st.button(example.title, key=f"example_{number}", on_click=_take_example, args=(example,), width="stretch")


def _text_changed() -> None:
    st.session_state.masked = ()


def _take_example(example: examples.Example) -> None:
    state = st.session_state
    state.text, state.pair, state.masked, state.target = example.text, example.pair, example.masked, ""


def swap_sentences() -> None:
    """A becomes B and B becomes A; a click on a button."""
    state = st.session_state
    state.text, state.pair, state.masked = state.pair, state.text, ()


def put_word(current: Frame, position: int, word: str) -> None:
    """Write a word into the text where a mask is, and take the mask away."""
    encoding, state = current.encoding, st.session_state
    number, side = encoding.words[position], "text" if encoding.sides[position] == "A" else "pair"
    pieces = encoding.pieces_of(number) if number is not None else (position,)
    start, end = encoding.offsets[pieces[0]][0], encoding.offsets[pieces[-1]][1]
    source = state[side]
    state[side] = source[:start] + word.removeprefix("##") + source[end:]
    state.masked = tuple(w for w in state.masked if w != number)


def put_chosen_word(current: Frame, position: int, key: str) -> None:
    """Write the word that was picked in the control `key` into the text."""
    if (word := st.session_state[key]) is not None:
        put_word(current, position, word)


def choose_head(click: HeadClick) -> None:
    """Make the clicked head the chosen one; a click in a grid."""
    if click.layer is not None and click.head is not None:
        st.session_state.head = (click.layer, click.head)


def switch_heads(click: HeadClick) -> None:
    """Switch the clicked heads off, or on again where all of them are off; a click in a grid."""
    layers, heads = current().head_mask.shape
    touched = {
        (layer, head)
        for layer in (range(layers) if click.layer is None else [click.layer])
        for head in (range(heads) if click.head is None else [click.head])
    }
    off = set(st.session_state.off)
    st.session_state.off = tuple(sorted(off - touched if touched <= off else off | touched))


def _mask_word(click: TokenClick) -> None:
    """Hide the clicked word from the model, or show it again."""
    st.session_state.masked = tuple(sorted(set(st.session_state.masked) ^ {click.word}))


def _existing_heads(loaded: LoadedModel) -> tuple[Head, ...] | None:
    """The heads that are off; None if the address named one that this model does not have."""
    layers, heads = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
    state = st.session_state
    wrong = [head for head in (*state.off, state.head) if not (0 <= head[0] < layers and 0 <= head[1] < heads)]
    if wrong:
        layer, head = wrong[0]
        st.warning(
            f"L{layer} H{head} does not exist: {loaded.name} has layers 0 to {layers - 1} and heads 0 to {heads - 1}. "
            "It was left out."
        )
        state.off = tuple(h for h in state.off if h not in wrong)
        if state.head in wrong:
            state.head = (0, 0)
    return tuple(state.off)


def _chips(current: Frame) -> list[Chip]:
    encoding, original = current.encoding, current.original
    chips = []
    for position, token in enumerate(encoding.tokens):
        masked = token != original.tokens[position]
        title = f"position {position}, piece {original.tokens[position]!r}, number {original.input_ids[position]}"
        chips.append(
            Chip(
                text=token,
                title=f"{title}; hidden, click to show it again" if masked else title,
                word=encoding.words[position],
                side=encoding.sides[position],
                special=encoding.special[position],
                masked=masked or token == "[MASK]",
                target=_target_position() == position,
            )
        )
    return chips


def _notices(current: Frame) -> None:
    encoding, loaded = current.encoding, current.loaded
    if encoding.cut:
        st.warning(
            f"{loaded.name} reads {len(encoding):,} of the {encoding.full_length:,} tokens: "
            f"the last {encoding.cut:,} were cut off.",
            icon=":material/content_cut:",
        )
    if unknown := current.original.unknown_count:
        typed = len(current.original) - sum(current.original.special)
        (st.warning if unknown * 2 > typed else st.caption)(
            f"{unknown:,} of {typed:,} tokens are [UNK]: the vocabulary does not know these signs, "
            "and the model cannot tell them apart."
        )
    if len(st.session_state.text) + len(st.session_state.pair) > LONGEST_LINK:
        st.caption(f"The text is longer than {LONGEST_LINK:,} characters and stays out of the address bar.")
    if not loaded.has_mlm or not loaded.has_nsp:
        missing = [n for n, there in (("masked-word", loaded.has_mlm), ("next-sentence", loaded.has_nsp)) if not there]
        st.info(f"{loaded.name} came without a trained {' and '.join(missing)} head: it predicts nothing there.")
    if current.off:
        names = ", ".join(f"L{layer} H{head}" for layer, head in current.off[:8])
        more = f" and {len(current.off) - 8} more" if len(current.off) > 8 else ""
        left, right = st.columns([6, 1], vertical_alignment="center")
        heads = "head is" if len(current.off) == 1 else "heads are"
        left.warning(f"{len(current.off)} {heads} off: {names}{more}", icon=":material/visibility_off:")
        right.button("Restore", on_click=_restore_heads, key="restore_heads", width="stretch")


def _restore_heads() -> None:
    st.session_state.off = ()


# ---------------------------------------------------------------------------- the target


def _target_position() -> int | None:
    position = st.session_state.target.partition(":")[0]
    return int(position) if position.isdigit() else None


def _with_target(current: Frame) -> Frame:
    """Draw the status line with the target's control, and put the target into the frame."""
    loaded, encoding = current.loaded, current.encoding
    options: dict[str, Target] = {}
    labels: dict[str, str] = {}
    positions = encoding.mask_positions[:20] if loaded.has_mlm else ()
    run = current.run() if positions else None
    for position in positions:
        prediction = run.prediction_at(position) if run is not None else None
        words = [] if prediction is None else [token for token, _ in prediction.top[:3]]
        truth = current.truth_at(position)
        for token in dict.fromkeys([*words[:1], *([] if truth is None else [truth]), *words[1:]]):
            key = f"{position}:{current.word(token)}"
            options[key] = Target("mlm", position, token)
            labels[key] = f"“{current.word(token)}” at {position}"
    if loaded.has_nsp and encoding.pair is not None:
        options["nsp"] = Target("nsp")
        labels["nsp"] = "B follows A"
    state = st.session_state
    left, right = st.columns([3, 1.4], vertical_alignment="center")
    left.caption(_status(current))
    if not options:
        state.target = ""
        right.caption("No target: click a word to mask it")
        return current
    if state.target not in options:
        state.target = next(iter(options))
    right.selectbox(
        "Target", list(options), key="target", format_func=labels.__getitem__, label_visibility="collapsed",
        help="What gradients explain",
    )  # fmt: skip
    return Frame(loaded, encoding, current.original, options[state.target], current.off, current.dark, current.lecture)


def _status(current: Frame) -> str:
    config = current.loaded.config
    seconds = st.session_state.get("_seconds")
    parts = [
        f"{len(current.encoding)} tokens of {config.max_position_embeddings}",
        f"{current.loaded.name.rsplit('/', 1)[-1]} {config.num_hidden_layers} × {config.num_attention_heads}",
        f"{current.loaded.device.type.upper()}, fp32",
    ]
    if seconds is not None:
        parts.append(f"{seconds * 1000:.0f} ms")
    return " &nbsp;·&nbsp; ".join(parts) + " &nbsp;·&nbsp; layers and heads count from zero"


def is_unsure(prediction: MaskPrediction) -> bool:
    """Whether the best guess is too improbable to be called an answer."""
    return prediction.top[0][1] < UNSURE
