"""What a page asks about: the text, the model, the target and the heads that are on."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import streamlit as st

from bert_core.editing import edited, unedited
from bert_core.edits import ActivationPatch
from bert_core.loading import LoadedModel
from bert_core.records import ModelRun, Target
from bert_core.run.capture import capture, captures
from bert_core.run.inputs import head_mask_without
from bert_core.run.memory import capture_bytes
from bert_core.tokenizer import Encoding
from viz_app.components.token_strip import TokenClick
from viz_app.shell import examples
from viz_app.shell.edits import NO_EDITS
from viz_app.shell.examples import Example
from viz_app.shell.jobs import Batch
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import ModelReference
from viz_app.shell.params import Head, Param, parse_int, toggle, write_indices
from viz_app.shell.work import Work, estimate_seconds, wait_for
from viz_app.texts import page_texts

TEXTS = page_texts("frame")
NO_TOKENS = ("query", ())
KEPT_PREDICTIONS = 20  # words for a gap that are kept
BATCHED_TOKENS = 64  # tokens of a text that is read together with others
SELECTION = "_question"  # what the page asks about; None on a page that is not about the text
AUTOMATIC_MASK = "_automatic_mask"  # words that were masked because the text changed; a click moves this mask
MAX_WORD_CHARACTERS = 40  # of a word in a sentence
EXAMPLES = "examples_open"  # whether the list of examples is open

TokenRange = tuple[int, int]  # the first position and the one after the last


@dataclass(frozen=True)
class Selection:
    """The text, model, target and heads that a page shows.

    model: with the edits of the visitor.
    encoding: the input of the model, with masks. original: the same without the masks that were clicked.
    target: what gradients explain; None if there is nothing to explain.
    off: the heads that are switched off.
    first_word: number of the first word in the address; not 0 for the second sentence read by itself.
    token_range: of a long text, the positions of the tokens that are drawn; None for a text that is drawn whole.
    """

    model: ModelReference
    encoding: Encoding
    original: Encoding
    target: Target | None
    off: tuple[Head, ...]
    first_word: int = 0
    token_range: TokenRange | None = None

    @property
    def loaded(self) -> LoadedModel:
        """The model with its edits."""
        return self.model.get()

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """The key of results; see `identity_of`."""
        return (
            self.loaded.identity,
            self.encoding,
            self.original.input_ids,
            repr(self.target),
            self.off,
            self.token_range,
        )

    def with_model(self, loaded: LoadedModel) -> Selection:
        """Return the same selection with another model."""
        return replace(self, model=ModelReference(loaded))

    @property
    def head_mask(self) -> np.ndarray:
        """(layer, head): 0 for each head that is off, 1 for all others."""
        return head_mask_without(self.loaded.config, self.off)

    @property
    def without_patches(self) -> LoadedModel:
        """The model without activation patches from other texts, but with all other edits."""
        edits = self.loaded.edits
        return edited(unedited(self.loaded), [edit for edit in edits if not isinstance(edit, ActivationPatch)])

    @property
    def plain(self) -> LoadedModel:
        """The model without edits, for other texts than this one."""
        return unedited(self.loaded)

    @property
    def positions(self) -> range:
        """The positions of the tokens that are drawn, and that the maps of `run` have."""
        return range(*(self.token_range or (0, len(self.encoding))))

    @property
    def masked_words(self) -> tuple[int, ...]:
        """The numbers of the words that were masked by a click, in order."""
        pieces = zip(self.encoding.words, self.encoding.tokens, self.original.tokens, strict=True)
        return tuple(sorted({word for word, token, piece in pieces if word is not None and token != piece}))

    def truth_at(self, position: int) -> int | None:
        """Return the piece that a mask at a position replaces; None if [MASK] itself was typed."""
        is_masked = self.encoding.tokens[position] != self.original.tokens[position]
        return self.original.input_ids[position] if is_masked else None

    def gap(self, position: int) -> str:
        """Describe a masked position in Markdown: "Masked word “door” (position 4)"."""
        piece, word = self.encoding.masked_piece(position), self.encoding.words[position]
        if piece is None or word is None:
            return f"{escape_markdown(self.encoding.special_tokens.mask)} (position {position})"
        unit = "word" if len(self.encoding.pieces_of(word)) == 1 else "token"
        return f"Masked {unit} “{escape_markdown(piece)}” (position {position})"

    def run(self, *, gradients: bool = False, all_heads_on: bool = False) -> ModelRun:
        """Return the record of the text, of a long one with the maps of a range of tokens.

        gradients: of the target, if there is one.
        """
        target = self.target if gradients else None
        gates = np.ones_like(self.head_mask) if all_heads_on else self.head_mask
        loaded, length = self.loaded, len(self.encoding)
        batch = None
        if target is None and length <= BATCHED_TOKENS:
            # Waiting texts of similar length are computed as a batch.
            batch = Batch(
                (loaded.identity, gates.tobytes(), length // 8),
                self.encoding,
                lambda encodings: captures(loaded, encodings, head_mask=gates, top_k=KEPT_PREDICTIONS, norms=True),
            )
        work = Work(
            ("run", loaded.identity, self.encoding, target, gates.tobytes(), self.token_range),
            f"{shown_name(loaded.name)} reads {length} tokens",
            lambda _: capture(
                loaded,
                self.encoding,
                target=target,
                head_mask=gates,
                top_k=KEPT_PREDICTIONS,
                norms=True,
                token_range=self.token_range,
            ),
            batch=batch,
            memory=capture_bytes(loaded, length, gradients=target is not None, map_tokens=len(self.positions)),
        )
        return wait_for(work, timed=True)

    def seconds(self, passes: float = 1, *, places: float = 0) -> float:
        """Estimate the seconds of forward passes over the text; see `estimate_seconds`."""
        return estimate_seconds(self.loaded, len(self.encoding), passes, places=places)

    def word(self, token_id: int) -> str:
        """Return the text of a piece."""
        return self.loaded.tokenizer.token_of(token_id)


def current_selection() -> Selection:
    """Return the selection of this session."""
    selection: Selection = st.session_state[SELECTION]
    return selection


def open_example_text(example: Example) -> None:
    """Open an example, and close the list of examples; callback of a button."""
    state = st.session_state
    state[EXAMPLES] = False
    state.text, state.pair, state.masked = example.text, example.pair, example.masked
    state.target, state.contrast = example.target, example.contrast
    forget_positions()


def forget_positions() -> None:
    """Reset what refers to positions of the previous text: the selected tokens, and edits of the model."""
    st.session_state.update(NO_EDITS, tokens=NO_TOKENS, edge=None, graph_edge=None, token_range=None)


def is_current_example(example: Example) -> bool:
    """Return whether an example is the current text."""
    state = st.session_state
    return (example.text, example.pair, example.masked) == (state.text, state.pair, state.masked)


def toggle_mask(click: TokenClick, first_word: int = 0) -> None:
    """Mask the clicked word, or show it again; a mask that the visitor did not choose moves there.

    The range of a long text stays if it contains the word. first_word: see `Selection`.
    """
    state, word = st.session_state, first_word + click.word
    current: Selection = state[SELECTION]
    is_drawn = any(current.encoding.words[position] == click.word for position in current.positions)
    state.token_range = current.token_range if is_drawn else None
    automatic = state.pop(AUTOMATIC_MASK, None)
    moves = automatic is not None and state.masked == automatic and word not in automatic
    state.masked = (word,) if moves else tuple(sorted(set(state.masked) ^ {word}))


def longest_word(original: Encoding) -> int:
    """Return the number of the longest word of the first text, which is masked if none was chosen."""
    words = [word for word in range(original.word_count) if original.sides[original.pieces_of(word)[0]] == "A"]
    return max(words or range(original.word_count), key=lambda word: len(original.word_text(word)))


def mask_again(original: Encoding, texts: Collection[str]) -> None:
    """Mask the words of a new text that were masked in the previous one, or else its longest word, and say so.

    texts: of the words that were masked.
    """
    state = st.session_state
    words = {original.word_text(word).casefold(): word for word in reversed(range(original.word_count))}
    state.masked = tuple(sorted({words[text.casefold()] for text in texts if text.casefold() in words}))
    if not state.masked and words:
        state.masked = state[AUTOMATIC_MASK] = (longest_word(original),)
    if state.masked == state.get(AUTOMATIC_MASK):
        word = escape_markdown(original.word_text(state.masked[0])[:MAX_WORD_CHARACTERS])
        st.caption(TEXTS["notices.automatic_mask"].format(word=word))


def parse_words(value: str) -> tuple[int, ...]:
    """Return numbers of words that are separated by commas, in order."""
    return tuple(sorted({parse_int(part) for part in value.split(",") if part}))


_TEXT: dict[str, Any] = {"widget": "text_input", "step": True, "text_name": "text", "free": True}
text: Param[str] = Param("text", lambda: examples.first_example().text, default_with_text=None, **_TEXT)
pair: Param[str] = Param("pair", lambda: examples.first_example().pair, default_with_text="", **_TEXT)
PARAMS: tuple[Param[Any], ...] = (
    text,
    pair,
    Param(
        "masked",
        lambda: examples.first_example().masked,
        parse_words,
        write_indices,
        text_name="text",
        default_with_text=(),
        step=True,
    ),
    toggle("words"),  # whether a view is of words, not of pieces
)
