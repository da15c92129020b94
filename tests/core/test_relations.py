"""Heads and dependency relations: worked by hand, in loops, and on a dozen sentences written for this."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bert_core import LoadedModel
from bert_core.analysis.relations import DIRECTIONS, RelationTally, pieces_of_words
from bert_core.analysis.units import map_of_units
from bert_core.run.losses import attention_maps
from bert_core.studies.relations import relations_csv, track_relations
from bert_core.studies.treebank import TreeSentence, read_treebank

# word/head/relation; the head by its number from 1, 0 for the root.
TREES = """
the/2/det cat/3/nsubj sat/0/root ./3/punct
a/2/det dog/3/nsubj saw/0/root the/5/det cat/3/obj ./3/punct
she/2/nsubj opened/0/root the/5/det old/5/amod door/2/obj ./2/punct
the/3/det old/3/amod king/4/nsubj ran/0/root to/7/case the/7/det river/4/obl ./4/punct
he/2/nsubj saw/0/root a/5/det blue/5/amod house/2/obj ./2/punct
it/4/nsubj was/4/cop a/4/det city/0/root of/6/case london/4/nmod ./4/punct
the/2/det queen/3/nsubj opened/0/root the/6/det red/6/amod door/3/obj ./3/punct
they/2/nsubj went/0/root to/4/case paris/2/obl ./2/punct
the/2/det child/3/nsubj ran/0/root from/6/case the/6/det dog/3/obl ./3/punct
a/3/det small/3/amod man/4/nsubj sat/0/root on/7/case the/7/det mat/4/obl ./4/punct
two/2/nummod people/3/nsubj had/0/root a/6/det new/6/amod house/3/obj ./3/punct
the/2/det woman/3/nsubj closed/0/root the/5/det door/3/obj and/7/cc went/3/conj ./3/punct
"""


def conllu() -> list[str]:
    """The trees as CoNLL-U."""
    lines: list[str] = []
    for tree in TREES.strip().splitlines():
        for number, word in enumerate(tree.split(), 1):
            form, head, relation = word.split("/")
            lines.append("\t".join([str(number), form, *"_" * 4, head, relation, "_", "_"]))
        lines.append("")
    return lines


def sentences() -> list[TreeSentence]:
    return list(read_treebank(conllu(), "trees.conllu"))


def test_pieces_belong_to_the_word_in_which_they_start(tiny_loaded: LoadedModel) -> None:
    """All pieces of a word, words written together apart, and none for a word that has no place of its own."""
    encoding = tiny_loaded.tokenizer.encode("cats can't sit")
    assert encoding.tokens[1:3] == ("cat", "##s")
    pieces = pieces_of_words(encoding, [(0, 4), (5, 7), (7, 10), None, (11, 14)])
    words = ["".join(encoding.tokens[n].removeprefix("##") for n in own) for own in pieces]
    assert words[0] == "cats" and words[1:3] == ["ca", "n't"] and words[3] == "" and words[4] == "sit"
    assert sorted(n for own in pieces for n in own) == list(range(1, len(encoding) - 1))
    # Two words in one piece: it belongs to the first.
    assert pieces_of_words(tiny_loaded.tokenizer.encode("the"), [(0, 1), (1, 3)]) == [(1,), ()]


def always_right(tiny_loaded: LoadedModel) -> RelationTally:
    """Two heads that are drawn so that both find everything, each in its direction."""
    tally = RelationTally(1, 2)
    for sentence in sentences():
        encoding = tiny_loaded.tokenizer.encode(sentence.text)
        pieces = pieces_of_words(encoding, sentence.spans)
        attention = np.full((1, 2, len(encoding), len(encoding)), 1e-3)
        attention[..., 0] = 0.9  # most of it rests on [CLS], which is no answer
        for word, head in enumerate(sentence.heads):
            if head is not None:
                attention[0, 0, pieces[word][0], pieces[head][0]] = 0.5  # H0: from the dependent
                attention[0, 1, pieces[head][0], pieces[word][0]] = 0.5  # H1: from the head
        tally.add(attention, encoding, sentence.spans, sentence.heads, sentence.relations)
    return tally


def test_a_head_that_always_looks_at_the_right_word(tiny_loaded: LoadedModel) -> None:
    """It is found with accuracy 1 in its direction, beside the best offset counted by hand."""
    tally = always_right(tiny_loaded)
    rows = {row.relation: row for row in tally.rows()}
    assert sum(row.asked for row in rows.values()) == sum(tally.counts.values()) == TREES.count("/") // 2 - 12
    for row in rows.values():
        assert (row.accuracy, row.layer, row.head, row.direction) == (1, 0, 0, DIRECTIONS[0])
    assert tally.accuracy("det")[1, 0, 1] == 1
    offsets = [head - word for s in sentences() for word, head in enumerate(s.heads) if s.relations[word] == "det"]
    assert (rows["det"].offset, rows["det"].offset_accuracy) == (1, offsets.count(1) / len(offsets))
    assert [row.asked for row in tally.rows()] == sorted((row.asked for row in tally.rows()), reverse=True)
    assert all(row.asked >= 8 for row in tally.rows(min_count=8)) and len(tally.rows(min_count=8)) < len(rows)


def test_every_head_counted_in_loops(tiny_loaded: LoadedModel) -> None:
    """On a model, each accuracy is that of an argmax over the other words, taken one word at a time."""
    there = sentences()
    tally = track_relations(tiny_loaded, there)
    encodings = [tiny_loaded.tokenizer.encode(sentence.text) for sentence in there]
    right = {direction: np.zeros((2, 4)) for direction in DIRECTIONS}
    count = 0
    for number, attention in attention_maps(tiny_loaded, encodings):
        sentence = there[number]
        between = map_of_units(attention, pieces_of_words(encodings[number], sentence.spans))
        for word, head in enumerate(sentence.heads):
            if sentence.relations[word] != "nsubj":
                continue
            count += 1
            others = [n for n in range(len(sentence.words)) if n != word]
            for layer, h in itertools.product(range(2), range(4)):
                one = between[layer, h]
                right[DIRECTIONS[0]][layer, h] += max(others, key=lambda n: one[word, n]) == head
                right[DIRECTIONS[1]][layer, h] += max(others, key=lambda n: one[n, word]) == head
    assert tally.counts["nsubj"] == count == 12
    expected = np.stack([right[direction] for direction in DIRECTIONS]) / count
    assert tally.accuracy("nsubj") == pytest.approx(expected)
    best = next(row for row in tally.rows() if row.relation == "nsubj")
    assert best.accuracy == pytest.approx(expected.max())
    assert expected[DIRECTIONS.index(best.direction or ""), best.layer, best.head] == best.accuracy
    assert relations_csv(tally.rows()).splitlines()[0].startswith("relation,asked,layer,head,direction,accuracy,offset")
    assert len(relations_csv(tally.rows()).splitlines()) == len(tally.rows()) + 1


def test_what_a_head_is_the_best_at(tiny_loaded: LoadedModel) -> None:
    """Its relations, where no other head and no offset finds as many, the surest first; rare ones are left out."""
    tally = always_right(tiny_loaded)
    beaten = [row for row in tally.rows(3) if row.offset_accuracy < 1]
    assert 2 < len(beaten) < len(tally.rows(3)) < len(tally.rows())
    assert (
        sorted(tally.rows_of_head(0, 0, min_count=3)) == sorted(beaten) and tally.rows_of_head(0, 1, min_count=3) == []
    )


def test_words_that_were_not_read_are_counted(tiny_loaded: LoadedModel) -> None:
    """A relation of a word without a piece of its own is left out, and the number of these is told."""
    sentence = TreeSentence(
        "du roi", ("de", "le", "roi"), (2, 2, None), ("case", "det", "root"), ((0, 2), None, (3, 6)), 1
    )
    tally = track_relations(tiny_loaded, [sentence])
    assert dict(tally.counts) == {"case": 1} and tally.left_out == 1
    with pytest.raises(ValueError, match="the relation 'det' did not occur: it must be one of case"):
        tally.accuracy("det")


def test_a_head_that_is_gone_finds_nothing(tiny_loaded: LoadedModel) -> None:
    """It is NaN, and never the best."""
    tally, sentence = RelationTally(1, 2), sentences()[0]
    encoding = tiny_loaded.tokenizer.encode(sentence.text)
    attention = np.full((1, 2, len(encoding), len(encoding)), 0.1)
    attention[0, 0] = np.nan
    tally.add(attention, encoding, sentence.spans, sentence.heads, sentence.relations)
    assert np.isnan(tally.accuracy("det")[:, 0, 0]).all()
    assert {row.head for row in tally.rows()} == {1, None}  # None: of a relation that no head finds


def test_progress_is_told_and_can_stop(tiny_loaded: LoadedModel) -> None:
    """The report counts sentences up to all of them, and what it raises ends the work."""
    told: list[str] = []
    track_relations(tiny_loaded, sentences() * 6, report=lambda done, what="": told.append(what))
    assert told == ["64 sentences", "72 sentences"]

    def stop(done: float | None, what: str = "") -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        track_relations(tiny_loaded, sentences(), report=stop)
