"""The source and the text of the page Causes, and the slow work of patching one with the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np

from bert_core.analysis.causes import Partners, mask_same_words, word_partners
from bert_core.edits import HEAD_PARTS
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.records import MeanOf, Noised, PatchBand, Patches, Target, source_labels, without_noise
from bert_core.refused import Refused
from bert_core.run.answers import Answer
from bert_core.run.memory import forward_bytes, gradient_bytes
from bert_core.run.patching import estimate_patches, patch, patch_band, predict_with_patch
from bert_core.tokenizer import Encoding
from viz_app.export.effects import both_labels, shares
from viz_app.figures.lens import short_names
from viz_app.pages.causes import direction, noise, origin, patched, source
from viz_app.shell.change import reference_encodings
from viz_app.shell.selection import Selection
from viz_app.shell.work import estimate_seconds, wait_for, work

RANDOM_TEXTS = 10
CLOSE = 1.0  # largest difference of two values, in the unit of the target, that random texts have to be compared with
NOISE_SHARE = 0.25  # of the difference, which the median move by random texts exceeds where the difference is small
# The first of these words that a text contains, unmasked, is swapped in its source.
SWAPS = {
    "he": "she", "she": "he", "man": "woman", "woman": "man", "boy": "girl", "girl": "boy", "king": "queen",
    "queen": "king", "father": "mother", "mother": "father", "brother": "sister", "sister": "brother",
    "his": "her", "her": "his", "was": "were", "were": "was", "is": "are", "are": "is", "not": "never",
}  # fmt: skip
ESTIMATE_PASSES = 4  # forward passes that an estimate takes: one of each text, and one backward pass

Source = Encoding | Noised | MeanOf
Text = Encoding | Noised


@dataclass(frozen=True)
class Patching:
    """A part of the activations of a source, which is patched into a text place by place.

    source, text: as the model reads them, with masks. part: one of `PARTS`, or "neuron". layers, positions,
    per_position: arguments of `patch`; by default the places of the map.
    """

    selection: Selection
    source: Source
    text: Text
    part: str
    layers: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None
    per_position: bool | None = None

    @property
    def loaded(self) -> LoadedModel:
        """The model, in memory."""
        return self.selection.loaded

    @cached_property
    def identity(self) -> tuple[Hashable, ...]:
        """All that the results depend on."""
        places = self.part, self.layers, self.positions, self.per_position
        head_mask = self.selection.head_mask.tobytes()
        return self.loaded.identity, self.source, self.text, self.target, head_mask, places

    def compute(self, function: Callable[..., Patches], **arguments: Any) -> Patches:
        """Return the result of `patch` or `estimate_patches`, called with further arguments."""
        return function(
            self.loaded, self.source, self.text, self.target, head_mask=self.selection.head_mask, part_kind=self.part,
            align="tokens" if self.partners is None else "words", layers=self.layers, positions=self.positions,
            per_position=self.per_position, **arguments,
        )  # fmt: skip

    @cached_property
    def target(self) -> Target:
        """The target whose value is patched; in the direction "out", at the partners of its positions.

        Raises Refused if one of its positions has no partner.
        """
        target = self.selection.target
        assert target is not None  # the page ends without one
        if self.partners is None or self.source is not self.selection.encoding:
            return target
        if target.pooled:
            pooling = self.selection.loaded.effective_pooling
            return replace(target, pooled=pooling.pooled_positions(len(self.encoding)))
        partner_of = {source_position: position for position, source_position in enumerate(self.partners.partners)}
        if missing := [row for row, _ in target.target_pieces if row not in partner_of]:
            raise Refused(
                f"position {missing[0]} of the text, where the answer is read, has no partner in the other: hide the "
                "same word in both"
            )
        position = None if target.position is None else partner_of[target.position]
        return replace(
            target, position=position, pieces=tuple((partner_of[row], piece) for row, piece in target.pieces)
        )

    @property
    def is_per_head(self) -> bool:
        """Whether the part of a whole head is patched; else that of a token."""
        return self.part in HEAD_PARTS

    @property
    def encoding(self) -> Encoding:
        """The text without noise."""
        return without_noise(self.text)

    @cached_property
    def partners(self) -> Partners | None:
        """Which words correspond to each other; None unless the source is a text of another length."""
        if not isinstance(self.source, Encoding) or len(self.source) == len(self.text):
            return None
        return word_partners(self.source, self.encoding)

    @cached_property
    def tokens(self) -> list[str]:
        """The label of each token: both tokens where the texts differ."""
        partners = range(len(self.text)) if self.partners is None else self.partners.partners
        return both_labels(self.encoding.labels, source_labels(self.source, self.encoding, partners))

    @property
    def rows(self) -> list[str]:
        """Labels of the rows of the map."""
        return [f"L{layer}" for layer in range(len(self.selection.head_mask))] if self.is_per_head else self.tokens

    @property
    def columns(self) -> list[str]:
        """Labels of the columns of the map."""
        layers, heads = self.selection.head_mask.shape
        if self.is_per_head:
            return [f"H{head}" for head in range(heads)]
        return short_names(layers + 1) if self.part == "state" else [f"L{layer}" for layer in range(layers)]

    @property
    def place_count(self) -> int:
        """The number of places that are patched."""
        if self.part == "neuron":
            return self.loaded.config.intermediate_size
        columns = len(self.columns)
        return columns * len(self.text) if self.per_position else columns * len(self.rows)

    @property
    def seconds(self) -> float:
        """Estimated duration of patching every place in a run of its own."""
        return estimate_seconds(self.loaded, len(self.text), self.place_count / 2)

    @property
    def memory(self) -> int:
        """Estimated bytes that this takes."""
        return forward_bytes(self.loaded, len(self.text), self.place_count)

    def limit(self, patches: Patches) -> float:
        """Return the end of the colour scale: the answer of the source; of a mean, the largest change of the answer."""
        return float(np.nanmax(np.abs(shares(patches)))) if isinstance(self.source, MeanOf) else 1.0

    def effects(self, patches: Patches) -> np.ndarray:
        """Return the effects as the map shows them."""
        return self.as_map(shares(patches))

    def as_map(self, values: np.ndarray) -> np.ndarray:
        """Return values of all places as the map shows them: (token, layer), or (layer, head)."""
        return values if self.is_per_head else values.T


@work("{patching}: patches of another text", seconds=attrgetter("seconds"), memory=attrgetter("memory"))
def patch_places(patching: Patching, report: Progress = ignore_progress) -> Patches:
    """Patch every place in a run of its own."""
    return patching.compute(patch, report=report)


@work(
    "{patching}: estimate of patches",
    seconds=lambda patching: estimate_seconds(patching.loaded, len(patching.text), ESTIMATE_PASSES),
    memory=lambda patching: gradient_bytes(patching.loaded, len(patching.text), 2),
)
def estimate_places(patching: Patching) -> Patches:
    """Estimate the patches of all places from one forward and one backward pass."""
    return patching.compute(estimate_patches)


@work(
    f"{{patching}}: patches from {RANDOM_TEXTS} random texts",
    seconds=lambda patching: RANDOM_TEXTS * patching.seconds,
    memory=attrgetter("memory"),
)
def patch_random_texts(patching: Patching, report: Progress = ignore_progress) -> PatchBand:
    """Patch every place from random texts."""
    patches = wait_for(patch_places(patching))
    return patch_band(patching.loaded, patches, texts=RANDOM_TEXTS, report=report)


@work(
    "{patching} reads with a part of another text",
    seconds=lambda patching, _: estimate_seconds(patching.loaded, len(patching.text), 4),
)
def predict_patched(patching: Patching, index: tuple[int, ...]) -> tuple[Answer, Answer]:
    """Predict the text without patches, and with the patch at an index of `patch_places`."""
    patches = wait_for(patch_places(patching))
    before, after = (predict_with_patch(patching.loaded, patches, place) for place in (None, index))
    return before, after


def is_close(patches: Patches) -> bool:
    """Return whether the values of both texts are so close that effects, which are shares of it, exaggerate."""
    return bool(abs(patches.source_value - patches.base_value) < CLOSE)


def is_small(patches: Patches, band: PatchBand) -> bool:
    """Return whether random texts move the value, in the median place, by a large share of the difference."""
    moves = np.maximum(np.abs(band.low - patches.base_value), np.abs(band.high - patches.base_value))
    return bool(np.nanmedian(moves) > NOISE_SHARE * abs(patches.source_value - patches.base_value))


def selected_patching(selection: Selection) -> Patching:
    """Return source and text in the selected direction. In a typed source, the same words are masked as in the text.

    Raises Refused for a source that cannot be read.
    """
    encoding, second = selection.encoding, _read_source(selection)
    if direction.value == "out" and origin.value != "mean":
        assert not isinstance(second, MeanOf)
        return Patching(selection, encoding, second, patched.value)
    return Patching(selection, second, encoding, patched.value)


def _read_source(selection: Selection) -> Source:
    encoding, original = selection.encoding, selection.original
    if origin.value == "mean":
        return MeanOf(reference_encodings(selection))
    if origin.value == "noise":
        return Noised(encoding, noise.value)
    tokenizer = selection.loaded.tokenizer
    typed_source = tokenizer.encode(source.value, original.pair)
    return mask_same_words(tokenizer, typed_source, original, selection.masked_words)
