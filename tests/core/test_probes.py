"""Linear probes by depth: what is found, what is no finding, and how a label is asked of files."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import bert_core
from bert_core import LabelledSentence, LoadedModel, ProbePoint, ProbeSettings, Refused
from bert_core.analysis.probes import lookup
from bert_core.analysis.relations import pieces_of_words
from bert_core.run.states import word_states
from bert_core.studies.probes import split_by_sentence
from bert_core.studies.treebank import read_treebank
from tests.near import assert_near

RNG = np.random.default_rng(0)
WORDS, TYPES, HIDDEN, LEARNED = 1500, 300, 24, 1000
# Every word type has a vector of its own, and every word some noise: far more types than a plane can tell apart.
OF_TYPES = RNG.integers(0, TYPES, WORDS)
STATES = (RNG.standard_normal((TYPES, HIDDEN))[OF_TYPES] + 0.3 * RNG.standard_normal((WORDS, HIDDEN))).astype(
    np.float32
)


def found(states: np.ndarray, labels: np.ndarray) -> float:
    """What a probe finds in the words that it did not learn from."""
    probe = bert_core.fit_probe(states[:LEARNED], labels[:LEARNED], int(labels.max()) + 1)
    return probe.accuracy(states[LEARNED:], labels[LEARNED:])


def test_a_planted_label_is_found_and_its_control_is_not() -> None:
    """A label that a direction of the states tells, whatever the word: found; random labels of the types are not."""
    labels = RNG.integers(0, 2, WORDS)
    states = STATES.copy()
    states[:, 0] += 4 * labels
    control = bert_core.control_labels(labels, OF_TYPES)
    assert found(states, labels) > 0.95
    assert found(states, control) < 0.7
    majority, of_types = lookup(labels, OF_TYPES, LEARNED)
    assert max(majority, of_types) < 0.6


def test_a_label_by_word_type_alone_has_no_selectivity() -> None:
    """What the word type says, however it says it, a probe learns as well at random: both or neither are found."""
    labels = RNG.integers(0, 3, TYPES)[OF_TYPES]
    differences = [found(STATES, labels) - found(STATES, bert_core.control_labels(labels, OF_TYPES, seed))
                   for seed in range(5)]  # fmt: skip
    assert abs(np.mean(differences)) < 0.06
    assert lookup(labels, OF_TYPES, LEARNED)[1] > 0.95  # and the table of types finds it without any state


def test_either_but_not_both_is_not_found() -> None:
    """A label that no plane tells apart is as good as hidden from a linear probe, though the states say it."""
    one, other = RNG.integers(0, 2, (2, WORDS))
    states = STATES.copy()
    states[:, :2] = np.stack([one, other], 1) * 6
    assert found(states, one) > 0.99 and found(states, other) > 0.99
    assert found(states, one ^ other) < 0.6


@pytest.mark.parametrize("penalty", [0.1, 10.0])
def test_the_weights_are_those_of_scikit_learn(penalty: float) -> None:
    """The same sum is minimised: of the losses, and half the penalty times the squares of all weights."""
    labels = RNG.integers(0, 4, WORDS)
    states = STATES.astype(np.float64) * np.linspace(0.1, 30, HIDDEN) + 5
    states[:, 3] += 8 * labels
    probe = bert_core.fit_probe(states, labels, 4, penalty=penalty, tolerance=1e-13)
    scaled = np.column_stack([(states - states.mean(0)) / states.std(0), np.ones(WORDS)])
    theirs = LogisticRegression(C=1 / penalty, fit_intercept=False, tol=1e-9, max_iter=10_000).fit(scaled, labels)
    assert_near(np.exp(probe.log_probabilities(states)), theirs.predict_proba(scaled), 1e-5)
    assert_near(probe.weights * states.std(0)[:, None], theirs.coef_.T[:-1], 1e-4)


def test_single_precision_finds_the_same() -> None:
    """The probe of float32 states says what that of float64 says."""
    labels = RNG.integers(0, 3, WORDS)
    one, other = (bert_core.fit_probe(STATES.astype(kind), labels, 3) for kind in (np.float32, np.float64))
    assert_near(np.exp(one.log_probabilities(STATES)), np.exp(other.log_probabilities(STATES)), 1e-2)


def test_a_label_that_no_word_has_keeps_a_small_probability() -> None:
    """Not zero, so that a code can send it."""
    probe = bert_core.fit_probe(STATES, OF_TYPES % 2, 3)
    rare = np.exp(probe.log_probabilities(STATES))[:, 2]
    assert (rare > 1e-6).all() and (rare < 0.1).all()


def test_control_labels_are_of_types_and_as_frequent() -> None:
    """One label a type, the seed decides which; over many types they are as frequent as the labels of the words."""
    labels = (np.arange(20_000) % 10 == 0).astype(int)
    types = np.arange(20_000) // 2
    control = bert_core.control_labels(labels, types, 3)
    assert (control[::2] == control[1::2]).all()
    assert abs(control.mean() - 0.1) < 0.01
    assert (control == bert_core.control_labels(labels, types, 3)).all()
    assert (control != bert_core.control_labels(labels, types, 4)).any()


def test_the_table_of_types_by_hand() -> None:
    """The commonest label of each type; of a type that was not seen, or has two as often, the commonest of all."""
    labels = np.array([0, 0, 1, 1, 1, 0, 1, 1, 0, 1])
    types = np.array([0, 0, 0, 1, 1, 2, 2, 0, 2, 3])
    assert lookup(labels, types, 7) == (2 / 3, 1 / 3)  # type 0 says 0, type 2 is undecided: 1, type 3 is new: 1


def test_code_lengths() -> None:
    """Of one part the code is the uniform one; of many, a planted label takes a fraction of it, and noise no less."""
    labels = RNG.integers(0, 4, WORDS)
    ends = [15, 30, 60, 120, 250, 500, WORDS]
    assert bert_core.code_lengths(STATES, labels, 4, [WORDS]) == (2.0 * WORDS, 2.0 * WORDS)
    planted = STATES.copy()
    planted[:, :4] += 5 * np.eye(4, dtype=np.float32)[labels]
    bits, uniform = bert_core.code_lengths(planted, labels, 4, ends)
    noise, _ = bert_core.code_lengths(STATES, labels, 4, ends)
    assert uniform == 2 * WORDS and bits < uniform / 3 and noise > uniform
    by_hand = 2.0 * ends[0]
    for before, end in pairwise(ends):
        said = bert_core.fit_probe(planted[:before], labels[:before], 4).log_probabilities(planted[before:end])
        by_hand -= said[np.arange(end - before), labels[before:end]].sum() / np.log(2)
    assert_near(bits, by_hand)


def test_states_of_words_are_means_of_their_pieces(tiny_loaded: LoadedModel) -> None:
    """Texts of all lengths together, at every depth, as each text alone gives them."""
    texts = [tiny_loaded.tokenizer.encode(text) for text in ("the cats sat.", "a", "the old king walked to london")]
    words = [[encoding.pieces_of(word) for word in range(encoding.word_count)] for encoding in texts]
    for depth in range(3):
        together = word_states(tiny_loaded, texts, words, depth)
        alone = [
            bert_core.layer_states(tiny_loaded, encoding).states[depth, list(pieces)].mean(0)
            for encoding, own in zip(texts, words, strict=True)
            for pieces in own
        ]
        assert_near(together, np.stack(alone))


# ---------------------------------------------------------------------------- studies


def sentences(count: int = 40) -> list[LabelledSentence]:
    """Random words of the tiny vocabulary, labelled by what they are, with a word here and there that has no label."""
    rng, made = np.random.default_rng(1), []
    people, animals, others = ["king", "queen", "man"], ["cat", "dog"], ["the", "old", "sat"]
    for _ in range(count):
        words = [*rng.choice(people, 3), *rng.choice(animals, 2), *rng.choice(others, 2)]
        words = rng.permutation(words).tolist()
        starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
        labels = tuple("person" if word in people else "animal" if word in animals else None for word in words)
        spans = tuple((start, start + len(word)) for start, word in zip(starts, words, strict=False))
        made.append(LabelledSentence(" ".join(words), spans, labels))
    return made


SMALL = ProbeSettings(seeds=2, least=1, penalty=0.1, erase=True)


def test_no_sentence_is_on_both_sides() -> None:
    """Sentences are whole on one side, every word is on one, the share is kept, and the seed decides."""
    of_words = np.repeat(np.arange(50), RNG.integers(1, 6, 50))
    rows, places, held_out = split_by_sentence(of_words, 0.2, 7)
    learned = int((places >= len(held_out)).sum())
    assert sorted(rows) == list(range(len(of_words))) and len(held_out) == 10
    assert set(of_words[rows[learned:]]) == set(held_out.tolist())
    assert not set(of_words[rows[:learned]]) & set(held_out.tolist())
    assert (split_by_sentence(of_words, 0.2, 7)[0] == rows).all() and (
        split_by_sentence(of_words, 0.2, 8)[0] != rows
    ).any()


def test_a_sentence_that_is_there_twice_is_asked_once(tiny_loaded: LoadedModel) -> None:
    """Else one side of the split could tell the other its labels."""
    settings = ProbeSettings(seeds=1, least=1)
    given = sentences(30)
    once, twice = (list(bert_core.probe_points(tiny_loaded, some, settings, depths=[0])) for some in (given, given * 2))
    assert once[0].learned + once[0].asked == twice[0].learned + twice[0].asked


def test_points_are_the_same_each_time_and_differ_by_seed(tiny_loaded: LoadedModel) -> None:
    """The seed decides the split, the random labels, the hidden pieces and the random directions."""
    first, again = (list(bert_core.probe_points(tiny_loaded, sentences(), SMALL)) for _ in range(2))
    assert first == again
    assert [(point.depth, point.seed) for point in first] == [(d, s) for d in range(3) for s in range(2)]
    assert first[0] != dataclasses.replace(first[1], seed=0)
    for point in first:
        assert point.lookup == 1 and point.rank == 1  # a type says its label
        assert point.depth or (point.accuracy > 0.95 and point.erased < 0.9)  # and so does its embedding
        assert point.selectivity == point.accuracy - point.control
        assert point.compression == point.uniform_bits / point.bits
        assert np.isfinite([point.loss, point.loss_erased, point.loss_random]).all()


def test_depths_together(tiny_loaded: LoadedModel) -> None:
    """The mean over the seeds, the lowest and the highest; what was not asked is no number."""
    points = [ProbePoint(1, seed, 2, 80, 20, 0.7 + seed / 10, 0.5, 0.5, 0.4, 50.0, 100.0, 100.0) for seed in (0, 1)]
    (one,) = bert_core.probe_depths(points)
    assert (one.depth, one.seeds) == (1, 2)
    assert_near(one.figures["accuracy"], (0.75, 0.7, 0.8))
    assert_near(one.figures["selectivity"], (0.35, 0.3, 0.4))
    assert one.figures["compression"] == (2, 2, 2)
    assert np.isnan(one.figures["erased"]).all()


TABLE = "\n".join(
    ["sentence,word,kind,empty,same", *(
        f"{number},{word},{label},,x"
        for number, one in enumerate(sentences())
        for word, label in zip(one.text.split(), (label or "" for label in one.labels), strict=True)
    )]
)  # fmt: skip
TREES = "\n".join(
    f"{identity}\t{word}\t_\t{tag}\t_\t{feature}\t{head}\t{relation}\t_\t_" if identity else ""
    for identity, word, tag, feature, head, relation in [
        (1, "The", "DET", "_", 2, "det"), (2, "cats", "NOUN", "Case=Nom|Number=Plur", 3, "nsubj"),
        (3, "sat", "VERB", "_", 0, "root"), (0, "", "", "", 0, ""), (1, "Rain", "_", "Number=Sing", 0, "root"),
    ]
)  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The sentences as a file of one row a word."""
    (tmp_path / "words.csv").write_text(TABLE, encoding="utf-8")
    return tmp_path / "words.csv"


def test_labels_of_a_table_and_of_a_treebank(table: Path, tmp_path: Path) -> None:
    """Both give the text, the place of each word, and its label; a part of speech, a relation or a feature by name."""
    assert bert_core.read_labelled_words(table, "kind") == sentences()
    trees = tmp_path / "a.conllu"
    trees.write_text(TREES, encoding="utf-8")
    first, second = bert_core.read_labelled_words(trees, "number")
    assert first.labels == (None, "Plur", None) and second.labels == ("Sing",)
    assert [first.text[start:end] for start, end in filter(None, first.spans)] == ["The", "cats", "sat"]
    assert bert_core.read_labelled_words(trees, "upos")[1].labels == (None,)
    assert bert_core.read_labelled_words(trees, "relation")[0].labels == ("det", "nsubj", "root")
    assert bert_core.label_names(table) == ["kind", "same"] and bert_core.label_names(trees) == [
        "upos", "relation", "Case", "Number",
    ]  # fmt: skip
    tree, _ = read_treebank(TREES.split("\n"), "a.conllu")
    assert tree.feature_names == {"Case", "Number"}


def test_a_table_of_probes_goes_on(tiny_loaded: LoadedModel, table: Path, tmp_path: Path) -> None:
    """Stopped after a point, and cut off in a line, it holds in the end what one run gives, if asked the same."""
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"

    def probed(out: Path, **given: object) -> list[ProbePoint]:
        return bert_core.probe_file(tiny_loaded, table, "kind", out, **{"settings": SMALL, **given})  # type: ignore[arg-type]

    everything = probed(whole)
    assert len(everything) == 6 and bert_core.read_probes(whole) == everything
    assert bert_core.probes_csv(everything[::-1]).encode() == whole.read_bytes()

    def stops(done: float | None, what: str = "") -> None:
        if what == "2 of 6 probes":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probed(cut, report=stops)
    assert bert_core.read_probes(cut) == everything[:2]
    cut.write_text(cut.read_text() + "1,0,2,9", encoding="utf-8")
    assert probed(cut) == everything and cut.read_bytes() == whole.read_bytes()
    assert len(probed(cut, settings=dataclasses.replace(SMALL, seeds=3))) == 9
    with pytest.raises(Refused, match="holds a run with other settings"):
        probed(cut, settings=dataclasses.replace(SMALL, held_out=0.3))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(Refused, match="is no table of probes"):
        probed(tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda path, loaded: bert_core.read_labelled_words(path, "colour"), "the column 'colour' is not in words.csv"),
        (lambda path, loaded: bert_core.read_labelled_words(path, "empty"), "of words.csv has the label 'empty'"),
        (lambda path, loaded: bert_core.read_labelled_words(path, "word"), "which is the column of the words"),
        (lambda path, loaded: run(loaded, path, "same"), "1 of 1 labels occur 1 times or more"),
        (lambda path, loaded: run(loaded, path, "kind", least=1000), "0 of 2 labels occur 1,000 times or more"),
        (lambda path, loaded: asked(loaded, sentences(10)), "10 sentences have words with a label: at least 20"),
        (lambda path, loaded: asked(loaded, many_labels()), "280 labels occur 1 times or more, and a probe"),
        (lambda path, loaded: asked(loaded, sentences(), depths=[3]), "a depth is 3: it must be a whole number from 0"),
        (lambda path, loaded: asked(loaded, sentences(), depths=[]), "depths is empty"),
        (lambda path, loaded: ProbeSettings(held_out=0.9), "held_out is 0.9: it must be a number of at least 0.05"),
        (lambda path, loaded: bert_core.fit_probe(STATES, OF_TYPES, 3), "they must be whole numbers from 0 to 2"),
        (lambda path, loaded: bert_core.fit_probe(STATES * np.inf, OF_TYPES, TYPES), "every number must be finite"),
        (lambda path, loaded: bert_core.code_lengths(STATES, OF_TYPES, TYPES, [9, 3]), "the ends are [9, 3]"),
    ],
)  # fmt: skip
def test_what_cannot_be_probed_is_said(
    ask: Callable[[Path, LoadedModel], object], sentence: str, table: Path, tiny_loaded: LoadedModel
) -> None:
    """In one sentence with what was given; and no file is left."""
    with pytest.raises(Refused) as caught:
        ask(table, tiny_loaded)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)
    assert [path.name for path in table.parent.iterdir()] == ["words.csv"]


def run(loaded: LoadedModel, path: Path, label: str, **settings: int) -> object:
    given = ProbeSettings(**{"least": 1, "seeds": 1, **settings})  # type: ignore[arg-type]
    return bert_core.probe_file(loaded, path, label, path.with_name("out.csv"), given)


def asked(loaded: LoadedModel, some: list[LabelledSentence], **given: object) -> object:
    return list(bert_core.probe_points(loaded, some, ProbeSettings(least=1), **given))  # type: ignore[arg-type]


def many_labels() -> list[LabelledSentence]:
    return [
        dataclasses.replace(one, labels=tuple(f"{number} {word}" for word in range(7)))
        for number, one in enumerate(sentences())
    ]


def test_a_word_without_pieces_is_not_asked(tiny_loaded: LoadedModel) -> None:
    """As the second of two that are written as one; the others of its sentence are."""
    encoding = tiny_loaded.tokenizer.encode("the cat")
    assert pieces_of_words(encoding, [(0, 3), None, (4, 7)])[1] == ()
    some = [dataclasses.replace(one, spans=(*one.spans[:-1], None)) for one in sentences()]
    (point, *_) = bert_core.probe_points(tiny_loaded, some, ProbeSettings(least=1, seeds=1), depths=[0])
    everything = sum(label is not None for one in some for label in one.labels)
    last = sum(one.labels[-1] is not None for one in some)
    assert point.learned + point.asked == everything - last


def test_the_example_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/how-to/probe.md: the mean, the lowest and the highest of the seeds, a line a depth; then a line a model."""
    root = Path(__file__).parents[2]
    examples = re.findall(
        r"```python\n(.*?)```", (root / "docs" / "how-to" / "probe.md").read_text(encoding="utf-8"), re.DOTALL
    )
    shutil.copy(root / "viz_app" / "lessons" / "trees.conllu", tmp_path / "treebank.conllu")
    monkeypatch.chdir(tmp_path)
    exec(compile("".join(examples), "probe.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line[0] for line in lines[:2]] == ["0", "3"] and all(line.count(", ") == 4 for line in lines[:2])
    assert [line.count(", ") for line in lines[2:]] == [2, 2, 2]
