"""Patching finds the circuit of a model whose circuit is known, because its weights are set by hand, and no other."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from bert_core import Encoding, LoadedModel, Refused, Target, capture, patch, patch_path, values_without
from bert_core.circuits import CIRCUITS, FEATURES, VOCABULARY, WORDS, circuit_sentences, load_circuit
from bert_core.records import TruthSentence
from tests.near import assert_near

CLOSE = 1e-3  # what a sharp softmax and the tails of its activation leave of 0 and of 1


@pytest.fixture
def copies() -> LoadedModel:
    """One head, L0 H1, brings the word of the token before."""
    return load_circuit("copied word")


@pytest.fixture
def looks_up() -> LoadedModel:
    """L0 H0 brings the word before; L1 H1 looks for a token behind the same word, and brings what stands there."""
    return load_circuit("looked-up word")


@pytest.fixture
def stand_in() -> LoadedModel:
    """L0 H0 and L0 H1 both bring the word before, so much of it that either of them suffices."""
    return load_circuit("redundant heads")


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


# ---------------------------------------------------------------------------- relevant words


def logit_differences(loaded: LoadedModel, sentence: TruthSentence, texts: list[str]) -> np.ndarray:
    """Logit of the right word minus that of the wrong one at [MASK], of each text."""
    values = []
    for text in texts:
        encoding = loaded.tokenizer.encode(text)
        right, wrong = (loaded.tokenizer.id_of(word) for word in (sentence.right, sentence.wrong))
        target = Target("contrast", encoding.mask_positions[0], right, against=wrong)
        values.append(values_without(loaded, encoding, target, np.zeros((1, len(encoding)), bool))[0])
    return np.array(values)


@pytest.mark.parametrize("name", CIRCUITS)
def test_the_relevant_words_are_exactly_those_whose_replacement_matters(name: str) -> None:
    """Every word of the sentence is replaced by every other word, and so are all irrelevant words together."""
    loaded = load_circuit(name)
    for sentence in circuit_sentences(name, 4, seed=1):
        words = sentence.text.split()
        starts = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1].tolist()
        relevant = {starts.index(start) for start, _ in sentence.relevant}
        gap = words.index("[MASK]")
        (value,) = logit_differences(loaded, sentence, [sentence.text])
        assert value > 0, "the model predicts the word"
        others = [word for word in WORDS if word not in words]
        for number in range(len(words)):
            if number == gap:
                continue
            texts = [" ".join([*words[:number], other, *words[number + 1 :]]) for other in others]
            changed = logit_differences(loaded, sentence, texts)
            if number in relevant:
                assert (changed < value / 2).all(), (sentence.text, words[number])
            else:
                assert_near(changed, np.full(len(texts), value), CLOSE, of=float(value))
        irrelevant = [number for number in range(len(words)) if number != gap and number not in relevant]
        replaced = [
            " ".join(other[irrelevant.index(n)] if n in irrelevant else word for n, word in enumerate(words))
            for other in list(combinations(others, len(irrelevant)))[:5]
        ]
        changed = logit_differences(loaded, sentence, replaced)
        assert_near(changed, np.full(len(replaced), value), CLOSE, of=float(value))


def test_a_seed_draws_the_same_sentences() -> None:
    """Other seeds draw other sentences, and an unknown circuit is refused."""
    first, second = (circuit_sentences("copied word", 5, seed=seed) for seed in (0, 1))
    assert first == circuit_sentences("copied word", 5) and first != second
    with pytest.raises(Refused, match="copied word"):
        load_circuit("unknown")
