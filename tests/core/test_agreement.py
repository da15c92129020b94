"""bert_core/agreement: every sentence has one right verb, and its neighbours differ from it in one token."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict

import pytest

from bert_core.agreement import FRAME_COUNTS, STRUCTURES, Agreement, as_csv, as_word_csv, conditions, sentences
from bert_core.loading import LoadedModel, load
from bert_core.run.capture import capture
from bert_core.tokenizer import MASK
from bert_core.training.measures import agreement_counts


@pytest.fixture(scope="module")
def mini() -> LoadedModel:
    """The bundled model."""
    return load("headlight-mini", device="cpu")


def test_there_are_as_many_as_the_card_says() -> None:
    """2,640 different sentences in 840 frames, each number as often as the other."""
    items = sentences()
    assert len(items) == len({item.text for item in items}) == 2640
    assert len({item.frame for item in items}) == sum(FRAME_COUNTS.values()) == 840
    assert {item.structure for item in items} == set(STRUCTURES)
    assert Counter(item.subject for item in items) == {"singular": 1320, "plural": 1320}
    assert Counter(item.condition for item in items)["clause, other number"] == 480 and len(conditions()) == 6
    assert all(item.text.count(MASK) == 1 for item in items)


def test_the_right_verb_has_the_number_of_the_subject() -> None:
    """A singular verb is right where the subject is singular, whatever stands between; and no word is both."""
    singular, plural = {"is", "was", "has"}, {"are", "were", "have"}
    for item in sentences():
        of_subject, of_other = (singular, plural) if item.subject == "singular" else (plural, singular)
        assert item.right in of_subject and item.wrong in of_other
        # The subject is the second word, and only plural nouns of the lists end in s.
        assert item.text.split()[1].endswith("s") == (item.subject == "plural")


def test_neighbours_differ_in_one_token(mini: LoadedModel) -> None:
    """Two sentences of a frame that differ in the number of one noun differ in one piece, and in no place else."""
    frames: dict[int, list[Agreement]] = defaultdict(list)
    for item in sentences():
        frames[item.frame].append(item)
    for frame in frames.values():
        first = frame[0]
        ids = mini.tokenizer.encode(first.text).input_ids
        for item in frame[1:]:
            changed = (item.subject != first.subject) + (item.attractor != first.attractor)
            others = mini.tokenizer.encode(item.text).input_ids
            assert len(others) == len(ids)
            assert sum(a != b for a, b in zip(ids, others, strict=True)) == changed


def test_verbs_meet_every_word_between() -> None:
    """No preposition, adverb or verb of a clause goes with one verb only, which would let it tell the answer."""
    met: dict[tuple[str, str], set[str]] = defaultdict(set)
    for item in sentences():
        words = item.text.split()
        if item.structure != "alone":
            between = words[5] if item.structure == "clause" else words[2]
            met[item.structure, between].add(min(item.right, item.wrong))
    assert {len(verbs) for verbs in met.values()} == {3}


def test_the_set_as_a_file() -> None:
    """The CSV holds the fields of every sentence."""
    rows = list(csv.DictReader(io.StringIO(as_csv())))
    assert len(rows) == len(sentences())
    assert Agreement(**{**rows[7], "frame": int(rows[7]["frame"])}) == sentences()[7]


def test_what_the_measure_counts(mini: LoadedModel) -> None:
    """Sentence by sentence it is the comparison of two probabilities that `capture` gives."""
    some, id_of = sentences()[::120], mini.tokenizer.id_of
    right: Counter[str] = Counter()
    for item in some:
        given = capture(mini, mini.tokenizer.encode(item.text)).predictions[0].probabilities
        right[item.condition] += bool(given[id_of(item.right)] > given[id_of(item.wrong)])
    found = agreement_counts(mini, some)
    assert {condition: share for condition, (share, _) in found.items()} == dict(right)
    assert sum(count for _, count in found.values()) == len(some)
    swapped = [Agreement(**{**vars(item), "right": item.wrong, "wrong": item.right}) for item in some]
    other = agreement_counts(mini, swapped)
    for condition, (share, count) in found.items():
        assert share + other[condition][0] == count


def test_its_words_tell_their_own_number_and_not_that_of_the_subject() -> None:
    """As a table: a noun's form tells its own, and no other word type stands with one number of the subject only."""
    rows = list(csv.DictReader(io.StringIO(as_word_csv())))
    assert len({row["sentence"] for row in rows}) == len(sentences())
    own, of_subject = defaultdict(Counter), defaultdict(Counter)
    for row in rows:
        own[row["word"]][row["number"]] += 1
        of_subject[row["word"]][row["subject"]] += 1
    nouns = {word for word, labels in own.items() if set(labels) != {""}}
    assert len(nouns) == 80 and all(len(own[word]) == 1 for word in nouns)
    for word, labels in of_subject.items():
        assert labels["singular"] == labels["plural"], word
