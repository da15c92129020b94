"""Three small BERTs whose weights are set by hand, so that the words that determine a prediction are known exactly.

Features stand in pairs, x and -x, so that the mean of a state is 0 and a LayerNorm only scales it. The first features
are the word at a token, the next are the word that a head copied to it, and the last are its position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer
from torch import Tensor

from bert_core.checkpoint import LoadReport
from bert_core.config import BertConfig
from bert_core.loading import LoadedModel
from bert_core.modeling import BertForPreTraining
from bert_core.records import TruthSentence
from bert_core.refused import Refused, require_int, short_repr, validate_arguments
from bert_core.tokenizer import MASK, SPECIAL_TOKENS, Tokenizer

WORDS = (
    "the", "a", "cat", "dog", "man", "king", "door", "city", "river", "day", "house", "child", "ran", "saw", "has",
    "was",
)  # fmt: skip
VOCABULARY = (*SPECIAL_TOKENS, *WORDS)
POSITIONS = 16
MAX_SENTENCES = 100_000
FEATURES = 2 * len(VOCABULARY) + POSITIONS
WORD, COPIED, POSITION = (
    range(first, last) for first, last in pairwise((0, len(VOCABULARY), 2 * len(VOCABULARY), FEATURES))
)
ATTENTION_SCALE = 40.0  # the largest weight of attention is then 1, up to rounding
_TO_PREVIOUS = tuple((later, earlier) for earlier, later in pairwise(POSITION))


@dataclass(frozen=True)
class Circuit:
    """A model with known weights.

    description: one sentence. build: returns the model. sentence: draws a sentence of the set.
    """

    description: str
    build: Callable[[], BertForPreTraining]
    sentence: Callable[[np.random.Generator], TruthSentence]


@validate_arguments
def load_circuit(name: str) -> LoadedModel:
    """Build the model of a circuit. Raises Refused for an unknown name.

    >>> from bert_core.circuits import load_circuit
    >>> loaded = load_circuit("copied word")
    >>> encoding = loaded.tokenizer.encode("the cat [MASK] ran")
    >>> import bert_core
    >>> bert_core.capture(loaded, encoding).predictions[0].top[0][0] == loaded.tokenizer.id_of("cat")
    True
    """
    circuit = _circuit(name)
    numbers = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(BertWordPieceTokenizer(numbers, lowercase=True)._tokenizer)
    return LoadedModel(name, circuit.build(), tokenizer, LoadReport(name, (), ()), torch.device("cpu"))


@validate_arguments
def circuit_sentences(name: str, count: int, *, seed: int = 0) -> tuple[TruthSentence, ...]:
    """Draw sentences for a circuit, with the words that determine the prediction at [MASK].

    Raises Refused for an unknown name, or a count that is not from 1 to `MAX_SENTENCES`.
    """
    circuit, generator = _circuit(name), np.random.default_rng(require_int("seed", seed))
    return tuple(circuit.sentence(generator) for _ in range(require_int("count", count, 1, MAX_SENTENCES)))


def _circuit(name: str) -> Circuit:
    if name not in CIRCUITS:
        raise Refused(f"the circuit {short_repr(name)} is unknown: one of {', '.join(CIRCUITS)}")
    return CIRCUITS[name]


# ---------------------------------------------------------------------------- weights


def _copied_word() -> BertForPreTraining:
    """Head L0 H1 copies the previous word."""
    model = _model_without_heads(2)
    _set_head(model, 0, 1, attends=_TO_PREVIOUS, source=WORD, destination=COPIED, gain=1.0)
    return model


def _looked_up_word() -> BertForPreTraining:
    """Head L0 H0 copies the previous word; L1 H1 copies the word that follows an earlier occurrence of this word."""
    model = _model_without_heads(2)
    _set_head(model, 0, 0, attends=_TO_PREVIOUS, source=WORD, destination=COPIED, gain=1.0)
    same_word = [(feature, feature) for feature in COPIED]
    _set_head(model, 1, 1, attends=same_word, source=WORD, destination=COPIED, gain=50.0)
    # [MASK] has the same previous word as itself, so that its attention to itself is suppressed.
    mask, slot = VOCABULARY.index(MASK), FEATURES + len(VOCABULARY)
    layer: Any = model.bert.encoder.layer[1]
    attention = layer.attention.self
    attention.query.weight[slot, mask] = -ATTENTION_SCALE * 1e3
    attention.key.weight[slot, mask] = 1.0
    return model


def _redundant_heads() -> BertForPreTraining:
    """Heads L0 H0 and L0 H1 both copy the previous word, with a gain so large that one head suffices (saturation)."""
    model = _model_without_heads(1)
    for head in (0, 1):
        _set_head(model, 0, head, attends=_TO_PREVIOUS, source=WORD, destination=COPIED, gain=1e4)
    return model


def _model_without_heads(layers: int) -> BertForPreTraining:
    """Return a model whose heads are zero. It passes words and positions on, and predicts the copied word."""
    config = BertConfig(
        vocab_size=len(VOCABULARY), hidden_size=2 * FEATURES, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=2, max_position_embeddings=POSITIONS,
    )  # fmt: skip
    model = BertForPreTraining(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.zero_()
        if name.endswith("LayerNorm.weight"):
            parameter.fill_(1)
    embeddings: Any = model.bert.embeddings
    embeddings.word_embeddings.weight.copy_(_states(torch.eye(len(VOCABULARY)), WORD))
    embeddings.position_embeddings.weight.copy_(_states(torch.eye(POSITIONS), POSITION))
    transform = model.cls.predictions.transform.dense.weight
    transform[WORD, COPIED] = transform[[FEATURES + i for i in WORD], [FEATURES + i for i in COPIED]] = 1.0
    return model


def _states(values: Tensor, features: range) -> Tensor:
    """Return values (row, feature) as states (row, hidden)."""
    states = torch.zeros(len(values), 2 * FEATURES)
    states[:, features], states[:, [FEATURES + feature for feature in features]] = values, -values
    return states


def _set_head(
    model: BertForPreTraining, layer: int, head: int, *, attends: Sequence[tuple[int, int]], source: range,
    destination: range, gain: float,
) -> None:  # fmt: skip
    """Set the weights of a head.

    attends: pairs of a feature of the query and a feature of the key. source, destination: the features that the head
    reads, and those that it writes. gain: factor of what it writes.
    """
    attention: Any = model.bert.encoder.layer[layer].attention
    first = head * FEATURES
    for slot, (query, key) in enumerate(attends):
        attention.self.query.weight[first + slot, query] = ATTENTION_SCALE
        attention.self.key.weight[first + slot, key] = 1.0
    for slot, (source_feature, feature) in enumerate(zip(source, destination, strict=True)):
        attention.self.value.weight[first + slot, source_feature] = 1.0
        attention.output.dense.weight[feature, first + slot] = gain
        attention.output.dense.weight[FEATURES + feature, first + slot] = -gain


# ---------------------------------------------------------------------------- sentences


def _sentence(words: Sequence[str], relevant: Sequence[int], right: str, wrong: str, name: str) -> TruthSentence:
    """Return a sentence of words separated by spaces. relevant: numbers of words."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    spans = tuple((int(starts[number]), int(starts[number]) + len(words[number])) for number in relevant)
    return TruthSentence(" ".join(words), spans, right, wrong, name)


def _previous_word_sentence(name: str) -> Callable[[np.random.Generator], TruthSentence]:
    """Return a function that draws a sentence of different words, of which the word before [MASK] is relevant."""

    def draw(generator: np.random.Generator) -> TruthSentence:
        *words, wrong = _draw_words(generator, 9)
        gap = int(generator.integers(1, 9))
        return _sentence([*words[:gap], MASK, *words[gap:]], [gap - 1], words[gap - 1], wrong, name)

    return draw


def _look_up_sentence(generator: np.random.Generator) -> TruthSentence:
    """Draw three pairs of words, and the first word of one pair before [MASK]."""
    words = _draw_words(generator, 6)
    pair, wrong_pair = (int(number) * 2 for number in generator.permutation(3)[:2])
    sentence = [*words, words[pair], MASK]
    return _sentence(sentence, [pair, pair + 1, 6], words[pair + 1], words[wrong_pair + 1], "looked-up word")


def _draw_words(generator: np.random.Generator, count: int) -> list[str]:
    """Draw different words."""
    return [WORDS[number] for number in generator.permutation(len(WORDS))[:count].tolist()]


CIRCUITS: Mapping[str, Circuit] = {
    "copied word": Circuit(
        "One head copies the word before [MASK].", _copied_word, _previous_word_sentence("copied word")
    ),
    "looked-up word": Circuit(
        "Two heads find the word that followed the word before [MASK] at its earlier occurrence.",
        _looked_up_word, _look_up_sentence,
    ),
    "redundant heads": Circuit(
        "Two heads copy the word before [MASK], and either suffices.",
        _redundant_heads, _previous_word_sentence("redundant heads"),
    ),
}  # fmt: skip
