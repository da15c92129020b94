"""Patching finds the circuit of a model whose circuit is known, because it was written by hand, and nothing else.

Features stand in pairs, x and -x, so that the mean of a state is always 0 and a LayerNorm only scales it. The first
features say which word stands at a token, the next what heads bring, the last its position.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from bert_core import BertConfig, BertForPreTraining, Encoding, LoadedModel, Target, capture, patch, patch_path
from tests.conftest import VOCABULARY
from tests.near import assert_near

WORDS, PLACES = len(VOCABULARY), 16
FEATURES = 2 * WORDS + PLACES
OWN, BROUGHT, PLACE = (range(first, last) for first, last in pairwise((0, WORDS, 2 * WORDS, FEATURES)))
SHARP = 40.0  # scores so far apart that a softmax takes one
CLOSE = 1e-3  # what a sharp softmax and the tails of its activation leave of 0 and of 1


def blank(loaded: LoadedModel, layers: int) -> LoadedModel:
    """A model of two heads a layer that passes words and positions on, and says the word that was brought to a gap."""
    config = BertConfig(
        vocab_size=WORDS, hidden_size=2 * FEATURES, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=2, max_position_embeddings=PLACES,
    )  # fmt: skip
    model = BertForPreTraining(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.zero_()
        if name.endswith("LayerNorm.weight"):
            parameter.fill_(1)
    embeddings = model.bert.embeddings
    embeddings.word_embeddings.weight.copy_(written(torch.eye(WORDS), OWN))
    embeddings.position_embeddings.weight.copy_(written(torch.eye(PLACES), PLACE))
    transform = model.cls.predictions.transform.dense.weight
    transform[OWN, BROUGHT] = transform[[FEATURES + one for one in OWN], [FEATURES + one for one in BROUGHT]] = 1.0
    return replace(loaded, model=model, name="by hand")


def written(values: Tensor, features: range) -> Tensor:
    """(row, feature) as states: (row, hidden)."""
    states = torch.zeros(len(values), 2 * FEATURES)
    states[:, features], states[:, [FEATURES + one for one in features]] = values, -values
    return states


def set_head(
    loaded: LoadedModel, layer: int, head: int, *, looks: list[tuple[int, int]], reads: range, to: range, much: float
) -> None:
    """Give a head its weights.

    looks: pairs of a feature of the token that looks and one of the token that it looks at. reads, to: the features
    that it brings, and where. much: how much of them.
    """
    module = loaded.model.bert.encoder.layer[layer].attention
    first = head * FEATURES
    for slot, (query, key) in enumerate(looks):
        module.self.query.weight[first + slot, query] = SHARP
        module.self.key.weight[first + slot, key] = 1.0
    for slot, (read, write) in enumerate(zip(reads, to, strict=True)):
        module.self.value.weight[first + slot, read] = 1.0
        module.output.dense.weight[write, first + slot] = much
        module.output.dense.weight[FEATURES + write, first + slot] = -much


AT_THE_TOKEN_BEFORE = [(later, earlier) for earlier, later in pairwise(PLACE)]


@pytest.fixture
def copies(tiny_loaded: LoadedModel) -> LoadedModel:
    """One head, L0 H1, brings the word of the token before."""
    loaded = blank(tiny_loaded, 2)
    set_head(loaded, 0, 1, looks=AT_THE_TOKEN_BEFORE, reads=OWN, to=BROUGHT, much=1.0)
    return loaded


@pytest.fixture
def looks_up(tiny_loaded: LoadedModel) -> LoadedModel:
    """L0 H0 brings the word before; L1 H1 looks for a token behind the same word, and brings what stands there."""
    loaded = blank(tiny_loaded, 2)
    set_head(loaded, 0, 0, looks=AT_THE_TOKEN_BEFORE, reads=OWN, to=BROUGHT, much=1.0)
    set_head(loaded, 1, 1, looks=[(one, one) for one in BROUGHT], reads=OWN, to=BROUGHT, much=50.0)
    # A gap that looks for itself finds only other tokens: nothing stands behind [MASK] here, and it is told so.
    mask = VOCABULARY.index("[MASK]")
    loaded.model.bert.encoder.layer[1].attention.self.query.weight[FEATURES + WORDS, mask] = -SHARP * 1e3
    loaded.model.bert.encoder.layer[1].attention.self.key.weight[FEATURES + WORDS, mask] = 1.0
    return loaded


@pytest.fixture
def stand_in(tiny_loaded: LoadedModel) -> LoadedModel:
    """L0 H0 and L0 H1 both bring the word before, so much of it that either of them suffices."""
    loaded = blank(tiny_loaded, 1)
    for head in (0, 1):
        set_head(loaded, 0, head, looks=AT_THE_TOKEN_BEFORE, reads=OWN, to=BROUGHT, much=1e4)
    return loaded


def asked(loaded: LoadedModel, source: str, text: str, theirs: str, own: str) -> tuple[Encoding, Encoding, Target]:
    """Both texts, and whether the source's word rather than the text's stands in the last gap; what the model says."""
    encodings = tuple(loaded.tokenizer.encode(one) for one in (source, text))
    ids = [VOCABULARY.index(word) for word in (theirs, own)]
    target = Target("contrast", encodings[1].mask_positions[-1], ids[0], against=ids[1])
    for encoding, word in zip(encodings, (theirs, own), strict=True):
        run = capture(loaded, encoding)
        assert VOCABULARY[run.predictions[-1].top[0][0]] == word, "the model does what it was written for"
    return *encodings, target


def found(loaded: LoadedModel, question: tuple[Encoding, Encoding, Target], what: str, **given: object) -> np.ndarray:
    """The effects."""
    return patch(loaded, *question, part_kind=what, **given).effects  # type: ignore[arg-type]


def is_only(effects: np.ndarray, *places: tuple[int, ...]) -> None:
    """1 at these places, and 0 everywhere else."""
    expected = np.zeros(effects.shape)
    for place in places:
        expected[place] = 1
    assert_near(effects, expected, CLOSE, of=1.0)


def test_a_copied_neighbour(copies: LoadedModel) -> None:
    """One head brings it, by its value at the neighbour; where it looks, and every other head, does not matter."""
    question = asked(copies, "the cat [MASK] ran", "the dog [MASK] ran", "cat", "dog")
    is_only(found(copies, question, "head"), (0, 1))
    is_only(found(copies, question, "value"), (0, 1))
    is_only(found(copies, question, "head", per_position=True), (0, 1, 3))
    is_only(found(copies, question, "value", per_position=True), (0, 1, 2))
    for what in ("pattern", "query", "key"):
        is_only(found(copies, question, what))
    is_only(found(copies, question, "attention"), (0, 3))
    is_only(found(copies, question, "state"), (0, 2), (1, 3), (2, 3))
    is_only(found(copies, question, "feed_forward"))


def test_what_is_looked_up(looks_up: LoadedModel) -> None:
    """With another thing to find, the second head alone carries it over, by its value where it looks."""
    question = asked(looks_up, "the cat a dog the [MASK]", "the man a dog the [MASK]", "cat", "man")
    is_only(found(looks_up, question, "head"), (1, 1))
    is_only(found(looks_up, question, "value", per_position=True), (1, 1, 2))
    for what in ("pattern", "query", "key"):
        is_only(found(looks_up, question, what))
    is_only(found(looks_up, question, "state"), (0, 2), (1, 2), (2, 6))


def test_what_is_looked_for(looks_up: LoadedModel) -> None:
    """With another thing to look for, both heads do it in turn: the first by its value, the second by its queries."""
    question = asked(looks_up, "the cat a dog the [MASK]", "the cat a dog a [MASK]", "cat", "dog")
    is_only(found(looks_up, question, "head"), (0, 0), (1, 1))
    is_only(found(looks_up, question, "value", per_position=True), (0, 0, 5))
    is_only(found(looks_up, question, "pattern"), (1, 1))
    is_only(found(looks_up, question, "query", per_position=True), (1, 1, 6))
    is_only(found(looks_up, question, "key"))
    is_only(found(looks_up, question, "state"), (0, 5), (1, 6), (2, 6))


def test_the_way_between_two_heads(looks_up: LoadedModel) -> None:
    """What the second head looks for it hears of the first, by its queries; no other head, part or way is found."""
    question = asked(looks_up, "the cat a dog the [MASK]", "the cat a dog a [MASK]", "cat", "dog")

    def ways(receivers: list[tuple[int, int]] | None, through: str | None = None) -> np.ndarray:
        return patch_path(looks_up, *question, receivers=receivers, receiver_input=through).effects[0]

    is_only(ways([(1, 1)], "query"), (0,))
    is_only(ways([(1, 1)]), (0,))
    for through in ("key", "value"):
        is_only(ways([(1, 1)], through))
    is_only(ways([(1, 0)]))
    is_only(ways(None))  # what the first brings is too little to be said by itself
    straight = patch_path(looks_up, *question).effects
    is_only(straight, (1, 1))


def test_a_copy_goes_straight_to_the_answer(copies: LoadedModel) -> None:
    """The head that copies is heard by the answer and by no head above it."""
    question = asked(copies, "the cat [MASK] ran", "the dog [MASK] ran", "cat", "dog")
    is_only(patch_path(copies, *question).effects, (0, 1))
    for head in (0, 1):
        is_only(patch_path(copies, *question, receivers=[(1, head)]).effects[:1])


def test_heads_that_stand_in_for_each_other(stand_in: LoadedModel) -> None:
    """Put into a text that lacks it, each alone does it; taken from one that has it, neither does, and both together.

    A gap behind [UNK] has no word brought to it that is asked for: the word is missing, not another one.
    """
    has, lacks = (stand_in.tokenizer.encode(one) for one in ("the cat [MASK] ran", "the ☃ [MASK] ran"))
    cat, dog = (VOCABULARY.index(word) for word in ("cat", "dog"))
    unknown = VOCABULARY.index("[UNK]")
    for head in (0, 1):  # what is not known is not brought
        value = stand_in.model.bert.encoder.layer[0].attention.self.value.weight
        value[head * FEATURES + unknown] = 0
    target = Target("contrast", 3, cat, against=dog)
    denoised = patch(stand_in, has, lacks, target, part_kind="head").effects
    assert_near(denoised, np.ones((1, 2)), 0.01, of=1.0)
    noised = patch(stand_in, lacks, has, target, part_kind="head").effects
    assert_near(noised, np.zeros((1, 2)), 0.01, of=1.0)
    both = patch(stand_in, lacks, has, target, part_kind="attention").effects
    is_only(both, (0, 3))
