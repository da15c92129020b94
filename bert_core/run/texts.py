"""Many texts at once: their maps, the slope of every head's gate, and their loss without each head.

Texts of like length travel together, padded. Nothing is written to the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.recording import record
from bert_core.run.ablation import clean_pass, without_each
from bert_core.run.capture import with_gaps
from bert_core.run.layers import BYTES_AT_ONCE, TOKENS_AT_ONCE, as_array, copies_at_once
from bert_core.tokenizer import MASK, PAD, Encoding, Tokenizer

VARIANTS_AT_ONCE = 8  # of a batch of texts, at least, so that short texts fill a batch and long ones do not swell it


@dataclass(frozen=True)
class HiddenText:
    """A text with some of its pieces behind [MASK], and what stood there.

    positions: rising, at least one. answers: the number of the piece that stood at each.
    """

    encoding: Encoding
    positions: tuple[int, ...]
    answers: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.encoding)


def hide_pieces(
    tokenizer: Tokenizer, encoding: Encoding, rng: np.random.Generator, *, share: float = 0.15
) -> HiddenText:
    """The text with this share of its pieces, at least one, behind [MASK]; the added [CLS] and [SEP] stay."""
    typed = [position for position, special in enumerate(encoding.special) if not special]
    count = max(1, round(share * len(typed)))
    positions = tuple(sorted(rng.choice(typed, count, replace=False).tolist()))
    hidden, mask = frozenset(positions), tokenizer.id_of(MASK)
    return HiddenText(
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
        batch = _padded(loaded, [encodings[number] for number in some])
        with torch.no_grad(), record() as recording:
            loaded.model.bert(batch.ids, token_type_ids=batch.segments, attention_mask=batch.mask)
        for row, number in enumerate(some):
            length = len(encodings[number])
            seen = (as_array(recording.attention[layer][row, :, :length, :length]) for layer in range(layers))
            yield number, np.stack([with_gaps(one, kept, heads) for one, kept in zip(seen, there, strict=True)])


def gate_gradients(loaded: LoadedModel, texts: Sequence[HiddenText]) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every text, and how it changes with each head's gate; one forward and one backward pass for all.

    The loss is the mean over its hidden pieces, in nats. Each text has gates of its own, so the gradient of the summed
    losses is that of each.
    Returns (text,) and (text, layer, head), float64, signed; a pruned head is NaN.
    Source: Michel 2019, equation 2 (arXiv:1905.10650), before the absolute value.
    """
    check_has_words(loaded)
    config = loaded.config
    losses = np.empty(len(texts))
    gradients = np.full((len(texts), config.num_hidden_layers, config.num_attention_heads), np.nan)
    for some in together(texts, lambda tokens: copies_at_once(loaded, tokens, gradients=True)):
        batch, asked = _padded(loaded, [texts[n].encoding for n in some]), _Asked(loaded, [texts[n] for n in some])
        gates = torch.ones(
            config.num_hidden_layers, len(some), config.num_attention_heads, device=loaded.device, requires_grad=True
        )
        with torch.enable_grad():
            states = loaded.model.bert(
                batch.ids,
                token_type_ids=batch.segments,
                attention_mask=batch.mask,
                head_mask=gates,
                positions=asked.positions,
                # On a CPU the way back through fused attention costs more than that through the maps.
                output_attentions=loaded.device.type == "cpu",
            ).last_hidden_state
            found = asked.losses(states)
            if found.requires_grad:  # a model without any head has no slope
                (slopes,) = torch.autograd.grad(found.sum(), gates)
                gradients[some] = as_array(slopes.transpose(0, 1))
        losses[some] = as_array(found)
    _leave_out_pruned(loaded, gradients)
    return losses, gradients


@torch.no_grad()
def losses_without_each(
    loaded: LoadedModel, texts: Sequence[HiddenText], *, batch_tokens: int = TOKENS_AT_ONCE
) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every text with all heads, and without each of them in turn (its output zero), exactly.

    The loss is the mean over its hidden pieces, in nats. batch_tokens: bounds the memory.
    Returns (text,) and (text, layer, head), float64; a pruned head is NaN.
    Source: Michel 2019, section 3 (arXiv:1905.10650).
    """
    check_has_words(loaded)
    bert, config = loaded.model.bert, loaded.config
    heads = [(layer, head) for layer, module in enumerate(loaded.model.attention_modules) for head in module.heads]
    whole = np.empty(len(texts))
    without = np.full((len(texts), config.num_hidden_layers, config.num_attention_heads), np.nan)
    for some in together(texts, lambda tokens: batch_tokens // (VARIANTS_AT_ONCE * tokens)):
        batch, asked = _padded(loaded, [texts[n].encoding for n in some]), _Asked(loaded, [texts[n] for n in some])
        mask = None
        if batch.mask is not None:
            mask = bert.get_extended_attention_mask(batch.mask, (len(some), batch.ids.shape[1]))
        states = bert.embeddings(batch.ids, token_type_ids=batch.segments)
        clean = clean_pass(bert, states, mask, None, asked.positions)
        whole[some] = as_array(asked.losses(clean.leaving))
        for gone, leaving in without_each(bert, clean, heads, mask, None, asked.positions, batch_tokens=batch_tokens):
            layers, numbers = zip(*gone, strict=True)
            without[np.array(some)[:, None], layers, numbers] = as_array(asked.losses(leaving)).T
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


def check_has_words(loaded: LoadedModel) -> None:
    """Raise ValueError for a model without a trained masked-word head, which has no loss to speak of."""
    if not loaded.has_mlm:
        raise ValueError(f"{loaded.name} has no trained masked-word head: its heads have no loss to be measured by")


class _Padded(NamedTuple):
    """ids, segments: (text, seq); segments None for a model without. mask: (text, seq), None if nothing is padded."""

    ids: Tensor
    segments: Tensor | None
    mask: Tensor | None


def _padded(loaded: LoadedModel, encodings: Sequence[Encoding]) -> _Padded:
    lengths = [len(encoding) for encoding in encodings]
    shape = (len(encodings), max(lengths))
    ids, segments = np.full(shape, loaded.tokenizer.id_of(PAD)), np.zeros(shape, np.int64)
    for row, encoding in enumerate(encodings):
        ids[row, : lengths[row]], segments[row, : lengths[row]] = encoding.input_ids, encoding.token_type_ids
    mask = None
    if min(lengths) < max(lengths):
        mask = torch.from_numpy(np.arange(shape[1]) < np.array(lengths)[:, None]).float().to(loaded.device)
    return _Padded(
        torch.from_numpy(ids).to(loaded.device),
        torch.from_numpy(segments).to(loaded.device) if loaded.config.type_vocab_size else None,
        mask,
    )


class _Asked:
    """The hidden pieces of some texts: where the last layer is read, and what should stand there.

    positions: (text, most), those of a text with fewer filled up with [CLS], which nobody reads.
    """

    def __init__(self, loaded: LoadedModel, texts: Sequence[HiddenText]) -> None:
        counts = [len(text.positions) for text in texts]
        positions = np.zeros((len(texts), max(counts)), np.int64)
        for row, text in enumerate(texts):
            positions[row, : counts[row]] = text.positions
        self._words, device = loaded.model.cls.predictions, loaded.device
        self.positions = torch.from_numpy(positions).to(device)
        self._texts = torch.tensor(np.repeat(np.arange(len(texts)), counts), device=device)
        self._places = torch.tensor(np.concatenate([np.arange(count) for count in counts]), device=device)
        self._answers = torch.tensor([answer for text in texts for answer in text.answers], device=device)
        self._weights = torch.tensor(np.repeat(1 / np.array(counts, np.float32), counts), device=device)

    def losses(self, states: Tensor) -> Tensor:
        """states: (..., text, most, hidden), the last layer at the positions. Returns (..., text), nats."""
        scores = self._words(states[..., self._texts, self._places, :]).float()  # (..., piece, vocab)
        answers = self._answers.expand(scores.shape[:-1])
        each = F.cross_entropy(scores.flatten(0, -2), answers.flatten(), reduction="none").view(answers.shape)
        zeros = each.new_zeros(*states.shape[:-2])
        return zeros.index_add(-1, self._texts, each * self._weights)


def _leave_out_pruned(loaded: LoadedModel, figures: np.ndarray) -> None:
    """NaN for the heads (..., layer, head) that the model does not have."""
    for layer, module in enumerate(loaded.model.attention_modules):
        gone = sorted(set(range(loaded.config.num_attention_heads)) - set(module.heads))
        figures[..., layer, gone] = np.nan
