"""Many texts at once: their maps, the slope of every head's gate, and their loss without each head.

Texts of like length travel together, padded. Nothing is written to the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass

import numpy as np
import torch

from bert_core.loading import LoadedModel
from bert_core.modeling import IGNORED_LABEL
from bert_core.recording import record
from bert_core.records import Batch
from bert_core.run.ablation import Replacement
from bert_core.run.asked import KINDS, Asked, check_can_answer, losses_and_slopes, states_without_each
from bert_core.run.capture import with_gaps
from bert_core.run.layers import BYTES_AT_ONCE, TOKENS_AT_ONCE, as_array, copies_at_once
from bert_core.tokenizer import MASK, PAD, Encoding, Tokenizer

VARIANTS_AT_ONCE = 8  # of a batch of texts, at least, so that short texts fill a batch and long ones do not swell it


@dataclass(frozen=True)
class AskedText:
    """A text, and what a model should say of it; at least one of the three.

    positions, answers: where pieces are asked for, rising, and the number of the one that should stand at each.
    follows: 0 if B follows A, 1 if not. label: the number of its class.
    Its loss: the mean over its pieces, plus that of its second text, plus that of its class; nats.
    """

    encoding: Encoding
    positions: tuple[int, ...] = ()
    answers: tuple[int, ...] = ()
    follows: int | None = None
    label: int | None = None

    def __len__(self) -> int:
        return len(self.encoding)

    @property
    def kinds(self) -> set[str]:
        """Which of `KINDS` are asked of it."""
        asked = (bool(self.positions), self.follows is not None, self.label is not None)
        return {kind for kind, there in zip(KINDS, asked, strict=True) if there}


def hide_pieces(
    tokenizer: Tokenizer, encoding: Encoding, rng: np.random.Generator, *, share: float = 0.15
) -> AskedText:
    """The text with this share of its pieces, at least one, behind [MASK]; the added [CLS] and [SEP] stay."""
    typed = [position for position, special in enumerate(encoding.special) if not special]
    count = max(1, round(share * len(typed)))
    positions = tuple(sorted(rng.choice(typed, count, replace=False).tolist()))
    hidden, mask = frozenset(positions), tokenizer.id_of(MASK)
    return AskedText(
        dataclasses.replace(
            encoding,
            tokens=tuple(MASK if n in hidden else token for n, token in enumerate(encoding.tokens)),
            input_ids=tuple(mask if n in hidden else number for n, number in enumerate(encoding.input_ids)),
        ),
        positions,
        tuple(encoding.input_ids[position] for position in positions),
    )


def attention_maps(loaded: LoadedModel, encodings: Sequence[Encoding]) -> Iterator[tuple[int, np.ndarray]]:
    """The number and the maps of every text, the short ones first; (layer, head, query, key) float32.

    Probabilities after the softmax, without padding: each row sums to 1. A pruned head is NaN.
    """
    config = loaded.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    there = [list(module.heads) for module in loaded.model.attention_modules]

    def at_once(tokens: int) -> int:
        return min(copies_at_once(loaded, tokens), BYTES_AT_ONCE // (4 * layers * heads * tokens**2))

    for some in together(encodings, at_once):
        asked = _asked(loaded, [AskedText(encodings[number]) for number in some])
        with torch.no_grad(), record() as recording:
            asked.states(None)
        for row, number in enumerate(some):
            length = len(encodings[number])
            seen = (as_array(recording.attention[layer][row, :, :length, :length]) for layer in range(layers))
            yield number, np.stack([with_gaps(one, kept, heads) for one, kept in zip(seen, there, strict=True)])


def gate_gradients(loaded: LoadedModel, texts: Sequence[AskedText]) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every text, and how it changes with each head's gate, as `losses_and_slopes` has them.

    Returns (text,) and (text, layer, head), float64, signed; a pruned head is NaN.
    Raises ValueError for a model without a trained head for what is asked.
    """
    check_can_answer(loaded, {kind for text in texts for kind in text.kinds})
    config = loaded.config
    losses = np.empty(len(texts))
    gradients = np.empty((len(texts), config.num_hidden_layers, config.num_attention_heads))
    for some in together(texts, lambda tokens: copies_at_once(loaded, tokens, gradients=True)):
        losses[some], gradients[some] = losses_and_slopes(_asked(loaded, [texts[number] for number in some]))
    return losses, gradients


@torch.no_grad()
def losses_without_each(
    loaded: LoadedModel,
    texts: Sequence[AskedText],
    replacement: Replacement | None = None,
    *,
    batch_tokens: int = TOKENS_AT_ONCE,
) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every text with all heads, and without each of them in turn, exactly.

    replacement: what takes the place of a head's output; None: zeros. batch_tokens: bounds the memory.
    Returns (text,) and (text, layer, head), float64; a pruned head is NaN.
    Raises ValueError for a model without a trained head for what is asked.
    Source: Michel 2019, section 3 (arXiv:1905.10650).
    """
    check_can_answer(loaded, {kind for text in texts for kind in text.kinds})
    config = loaded.config
    whole = np.empty(len(texts))
    without = np.full((len(texts), config.num_hidden_layers, config.num_attention_heads), np.nan)
    for some in together(texts, lambda tokens: batch_tokens // (VARIANTS_AT_ONCE * tokens)):
        asked = _asked(loaded, [texts[number] for number in some])
        leaving, parts = states_without_each(asked, replacement, batch_tokens=batch_tokens)
        whole[some] = as_array(asked.losses(leaving))
        for gone, states in parts:
            layers, heads = zip(*gone, strict=True)
            without[np.array(some)[:, None], layers, heads] = as_array(asked.losses(states)).T
    return whole, without


def together(texts: Sequence[Sized], at_once: Callable[[int], int]) -> Iterator[list[int]]:
    """The numbers of the texts that travel together, the shortest first.

    at_once: how many texts of so many tokens fit, padding included; one always does.
    """
    some: list[int] = []
    for number in sorted(range(len(texts)), key=lambda number: len(texts[number])):
        if some and len(some) >= at_once(len(texts[number])):
            yield some
            some = []
        some.append(number)
    if some:
        yield some


def _asked(loaded: LoadedModel, texts: Sequence[AskedText]) -> Asked:
    """The texts as one padded batch on the model's device."""
    shape = (len(texts), max(map(len, texts)))
    ids, segments = np.full(shape, loaded.tokenizer.id_of(PAD)), np.zeros(shape, np.int64)
    mask, labels = np.zeros(shape, np.int64), np.full(shape, IGNORED_LABEL)
    follows, classes = np.full(len(texts), IGNORED_LABEL), np.full(len(texts), IGNORED_LABEL)
    for row, text in enumerate(texts):
        length = len(text)
        ids[row, :length], segments[row, :length] = text.encoding.input_ids, text.encoding.token_type_ids
        mask[row, :length] = 1
        labels[row, list(text.positions)] = text.answers
        follows[row] = IGNORED_LABEL if text.follows is None else text.follows
        classes[row] = IGNORED_LABEL if text.label is None else text.label
    return Asked(loaded, Batch(ids, segments, mask, labels, follows), classes)
