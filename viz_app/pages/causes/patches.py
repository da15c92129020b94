"""The two texts of the page Causes, and what patching one with the other finds; from the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.progress import Progress
from bert_core.records import Patches, Target
from bert_core.run.memory import passes_bytes, slopes_bytes
from bert_core.run.patching import OF_HEADS, estimate_patches, patch
from bert_core.tokenizer import Encoding
from viz_app.figures.lens import short_names
from viz_app.shell.models import shown_name
from viz_app.shell.question import Question
from viz_app.shell.work import Work

THERE_AND_BACK = 4  # forward passes that an estimate takes: one of each text, and one back


@dataclass(frozen=True)
class Sides:
    """Two texts of one question: parts of the reading of the source are put into that of the text.

    source, text: what the model reads, gaps in place. what: the part that is carried over.
    """

    current: Question
    source: Encoding
    text: Encoding
    what: str

    @property
    def target(self) -> Target:
        """What is followed; the page asks for one."""
        assert self.current.target is not None
        return self.current.target

    @property
    def of_heads(self) -> bool:
        """Whether heads are patched as a whole, else token by token."""
        return self.what in OF_HEADS

    @cached_property
    def changed(self) -> tuple[int, ...]:
        """The positions at which the texts differ."""
        pairs = zip(self.source.input_ids, self.text.input_ids, strict=False)
        return tuple(position for position, (theirs, own) in enumerate(pairs) if theirs != own)

    @property
    def tokens(self) -> list[str]:
        """What is written at each token: both, where the texts differ."""
        return [
            f"{label} → {self.source.labels[position]}" if position in self.changed else label
            for position, label in enumerate(self.text.labels)
        ]

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

    def seen(self, values: np.ndarray) -> np.ndarray:
        """What was found as the picture has it: (token, layer), or (layer, head)."""
        return values if self.of_heads else values.T

    def exact(self) -> Work[Patches]:
        """Each place by itself."""
        cells = len(self.rows) * len(self.columns)
        return self._work("patches", patch, cells / 2, passes_bytes(self.current.loaded, len(self.text), cells))

    def estimate(self) -> Work[Patches]:
        """All places from one pass there and back."""
        memory = slopes_bytes(self.current.loaded, len(self.text), 2)
        return self._work(
            "estimated patches", lambda *a, report, **k: estimate_patches(*a, **k), THERE_AND_BACK, memory
        )

    def closer(self, layer: int) -> Work[Patches]:
        """The heads of a layer token by token."""
        cells = self.current.head_mask.shape[1] * len(self.text)
        memory = passes_bytes(self.current.loaded, len(self.text), cells)
        return self._work("patches", patch, cells / 2, memory, layers=(layer,), apart=True)

    def neurons(self, layer: int, position: int) -> Work[Patches]:
        """Every neuron of a layer at a token."""
        cells = self.current.loaded.config.intermediate_size
        memory = passes_bytes(self.current.loaded, len(self.text), cells)
        given = {"layers": (layer,), "positions": (position,), "what": "neuron"}
        return self._work("patches", patch, cells / 2, memory, **given)

    def _work(
        self, kind: str, find: Callable[..., Patches], passes: float, memory: int, **given: object
    ) -> Work[Patches]:
        current, target, source, text = self.current, self.target, self.source, self.text
        loaded: LoadedModel = current.loaded
        gates, given = current.head_mask, {"what": self.what, **given}

        def do(report: Progress) -> Patches:
            return find(loaded, source, text, target, head_mask=gates, report=report, **given)

        return Work(
            (kind, loaded.identity, source, text, repr(target), gates.tobytes(), tuple(given.items())),
            f"{shown_name(loaded.name)}: patches of {len(text)} tokens",
            do,
            current.seconds(passes),
            memory=memory,
        )


def _estimated(*texts: Any, report: Progress, **how: Any) -> Patches:
    """As `estimate_patches`, which is done before there is anything to report."""
    return estimate_patches(*texts, **how)


def sides(current: Question) -> Sides:
    """The source that was typed, with the same words hidden as in the text; the other way round where that is chosen.

    Raises Refused for a source that cannot be read.
    """
    state, loaded = st.session_state, current.loaded
    typed = loaded.tokenizer.encode(state.source, state.pair, max_length=loaded.config.max_position_embeddings)
    hidden = tuple(word for word in state.masked if word < typed.word_count)
    source = loaded.tokenizer.mask_words(typed, hidden)
    pair = (source, current.encoding) if state.way == "into" else (current.encoding, source)
    return Sides(current, *pair, state.carried)
