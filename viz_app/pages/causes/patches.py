"""The two texts of the page Causes, and what patching one with the other finds; from the queue."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import streamlit as st

from bert_core.analysis.causes import Partners, mask_same_words, word_partners
from bert_core.edits import HEAD_PARTS
from bert_core.loading import LoadedModel
from bert_core.progress import Progress
from bert_core.records import MeanOf, Noised, PatchBand, Patches, Target, without_noise
from bert_core.refused import Refused
from bert_core.run.answers import Answer
from bert_core.run.memory import forward_bytes, gradient_bytes
from bert_core.run.patching import estimate_patches, patch, patch_band, predict_with_patch
from bert_core.tokenizer import Encoding
from viz_app.export.effects import both_labels, shares, source_labels
from viz_app.figures.lens import short_names
from viz_app.shell.change import reference_encodings
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection
from viz_app.shell.work import Work

RANDOM_TEXTS = 10
THERE_AND_BACK = 4  # forward passes that an estimate takes: one of each text, and one back


@dataclass(frozen=True)
class Sides:
    """Two texts of one question: parts of the reading of the source are put into that of the text.

    source, text: what the model reads, gaps in place. what: the part that is carried over.
    """

    current: Selection
    source: Encoding | Noised | MeanOf
    text: Encoding | Noised
    what: str

    @property
    def target(self) -> Target:
        """What is followed; the page asks for one, of the text above: the way back, at the words that stand for it.

        Raises Refused where none does.
        """
        asked = self.current.target
        assert asked is not None
        if self.partners is None or self.source is not self.current.encoding:
            return asked
        if asked.pooled:
            return replace(asked, pooled=self.current.loaded.effective_pooling.pooled_positions(len(self.read)))
        places = {theirs: own for own, theirs in enumerate(self.partners.partners)}
        if lost := [row for row, _ in asked.target_pieces if row not in places]:
            raise Refused(
                f"position {lost[0]} of the text, where the answer is read, has no partner in the other: hide the same "
                "word in both"
            )
        position = None if asked.position is None else places[asked.position]
        return replace(asked, position=position, pieces=tuple((places[row], piece) for row, piece in asked.pieces))

    @property
    def of_heads(self) -> bool:
        """Whether heads are patched as a whole, else token by token."""
        return self.what in HEAD_PARTS

    @property
    def read(self) -> Encoding:
        """The text without noise."""
        return without_noise(self.text)

    @cached_property
    def partners(self) -> Partners | None:
        """Which words stand for each other, where the source is a text of other length; None where it is none."""
        if not isinstance(self.source, Encoding) or len(self.source) == len(self.text):
            return None
        return word_partners(self.source, self.read)

    @property
    def other_tokens(self) -> list[str]:
        """The token of the source that each comes from; "" where there is none."""
        of = range(len(self.text)) if self.partners is None else self.partners.partners
        return source_labels(self.source, self.read, of)

    @property
    def tokens(self) -> list[str]:
        """What is written at each token: both, where the texts differ."""
        return both_labels(self.read.labels, self.other_tokens)

    @property
    def rows(self) -> list[str]:
        """What is written at the rows of the picture."""
        return [f"L{layer}" for layer in range(len(self.current.head_mask))] if self.of_heads else self.tokens

    @property
    def columns(self) -> list[str]:
        """What is written at its columns."""
        layers, heads = self.current.head_mask.shape
        if self.of_heads:
            return [f"H{head}" for head in range(heads)]
        return short_names(layers + 1) if self.what == "state" else [f"L{layer}" for layer in range(layers)]

    def limit(self, found: Patches) -> float:
        """Where the colours end: at the source's answer; of a mean, at the place that moves the answer most."""
        return float(np.nanmax(np.abs(shares(found)))) if isinstance(self.source, MeanOf) else 1.0

    def effects(self, found: Patches) -> np.ndarray:
        """The effects as the picture has them."""
        return self.seen(shares(found))

    def seen(self, values: np.ndarray) -> np.ndarray:
        """What was found as the picture has it: (token, layer), or (layer, head)."""
        return values if self.of_heads else values.T

    def exact(self) -> Work[Patches]:
        """Each place by itself."""
        cells = len(self.rows) * len(self.columns)
        return self._work("patches", patch, cells / 2, forward_bytes(self.current.loaded, len(self.text), cells))

    def estimate(self) -> Work[Patches]:
        """All places from one pass there and back."""
        memory = gradient_bytes(self.current.loaded, len(self.text), 2)
        return self._work(
            "estimated patches", lambda *a, report, **k: estimate_patches(*a, **k), THERE_AND_BACK, memory
        )

    def band(self, found: Patches) -> Work[PatchBand]:
        """What random texts do at the same places."""
        cells = len(self.rows) * len(self.columns)
        current, loaded = self.current, self.current.loaded
        return Work(
            ("patch band", *self._key, self.what),
            f"{shown_name(loaded.name)}: patches from {RANDOM_TEXTS} random texts",
            lambda report: patch_band(loaded, found, texts=RANDOM_TEXTS, report=report),
            current.seconds(RANDOM_TEXTS * cells / 2),
            memory=forward_bytes(loaded, len(self.text), cells),
        )

    def said(self, found: Patches, place: tuple[int, ...]) -> Work[tuple[Answer, Answer]]:
        """All that the model says of the text, and what it says with one patch in."""
        loaded = self.current.loaded
        return Work(
            ("answer with", *self._key, self.what, place),
            f"{shown_name(loaded.name)} reads with a part of another text",
            lambda _: (predict_with_patch(loaded, found, None), predict_with_patch(loaded, found, place)),
            self.current.seconds(4),
        )

    def closer(self, layer: int) -> Work[Patches]:
        """The heads of a layer token by token."""
        cells = self.current.head_mask.shape[1] * len(self.text)
        memory = forward_bytes(self.current.loaded, len(self.text), cells)
        return self._work("patches", patch, cells / 2, memory, layers=(layer,), per_position=True)

    def neurons(self, layer: int, position: int) -> Work[Patches]:
        """Every neuron of a layer at a token."""
        cells = self.current.loaded.config.intermediate_size
        memory = forward_bytes(self.current.loaded, len(self.text), cells)
        given = {"layers": (layer,), "positions": (position,), "part_kind": "neuron"}
        return self._work("patches", patch, cells / 2, memory, **given)

    @property
    def _key(self) -> tuple[Hashable, ...]:
        current = self.current
        return (current.loaded.identity, self.source, self.text, repr(self.target), current.head_mask.tobytes())

    def _work(
        self, kind: str, find: Callable[..., Patches], passes: float, memory: int, **given: object
    ) -> Work[Patches]:
        current, target, source, text = self.current, self.target, self.source, self.text
        loaded: LoadedModel = current.loaded
        given = {"part_kind": self.what, "align": "tokens" if self.partners is None else "words", **given}
        gates = current.head_mask

        def do(report: Progress) -> Patches:
            return find(loaded, source, text, target, head_mask=gates, report=report, **given)

        return Work(
            (kind, *self._key, tuple(given.items())),
            f"{shown_name(loaded.name)}: patches of {len(text)} tokens",
            do,
            current.seconds(passes),
            memory=memory,
        )


def sides(current: Selection) -> Sides:
    """Both texts, the way round that is chosen. A source that was typed has the same words hidden as the text.

    Raises Refused for a source that cannot be read.
    """
    state, loaded = st.session_state, current.loaded
    if state.origin == "mean":
        return Sides(current, MeanOf(reference_encodings(current)), current.encoding, state.carried)
    if state.origin == "noise":
        noised = Noised(current.encoding, state.noise)
        if state.way == "out":
            return Sides(current, current.encoding, noised, state.carried)
        return Sides(current, noised, current.encoding, state.carried)
    read, original = current.encoding, current.original
    typed = loaded.tokenizer.encode(state.source, original.pair, max_length=loaded.config.max_position_embeddings)
    pieces = zip(read.words, read.tokens, original.tokens, strict=True)
    masked = {word for word, token, own in pieces if word is not None and token != own}
    source = mask_same_words(loaded.tokenizer, typed, original, masked)
    if state.way == "out":
        return Sides(current, current.encoding, source, state.carried)
    return Sides(current, source, current.encoding, state.carried)
