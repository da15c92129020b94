"""Accuracies against known relevant tokens: values by hand, means over ties, scikit-learn, and known circuits."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import label_ranking_average_precision_score

import bert_core
from bert_core import LoadedModel, Refused
from bert_core.agreement import sentences
from bert_core.analysis.ground_truth import ACCURACIES, VARIANTS, truth_accuracy
from bert_core.loading import ASSETS
from bert_core.methods import METHODS
from bert_core.records import TruthSentence
from bert_core.studies.ground_truth import (
    RANDOM,
    judge_ground_truth,
    method_ranks,
    read_truth_judgements,
    summarise_truth,
    truth_markdown,
)
from bert_core.studies.settings import GroundTruthSettings
from bert_core.studies.subject_verb import (
    masked_agreement,
    read_truth_sentences,
    subject_verb_sentences,
    third_person,
)
from bert_core.studies.treebank import read_treebank
from tests.near import assert_near

QUICK = GroundTruthSettings(sentences=6, methods=("attention", "occlusion", "input x gradient"))


def accuracy(scores: list[float], relevant: list[int], variant: str, name: str) -> float:
    """One accuracy of one method."""
    result = truth_accuracy(np.array([scores]), np.array(relevant))
    return float(result[0, VARIANTS.index(variant), ACCURACIES.index(name)])


# ---------------------------------------------------------------------------- accuracies


def test_accuracies_by_hand() -> None:
    """Two relevant tokens with the scores 2 and -3, two others with 1 and 4."""
    scores, relevant = [2.0, 1.0, -3.0, 4.0], [1, 0, 1, 0]
    expected = {
        ("signed", "mass"): -0.1, ("absolute", "mass"): 0.5, ("clipped", "mass"): 2 / 7,
        ("signed", "rank"): 0.5, ("absolute", "rank"): 0.5, ("clipped", "rank"): 0.5,
        ("signed", "pointing"): 0, ("absolute", "pointing"): 0, ("clipped", "pointing"): 0,
        ("signed", "reciprocal_rank"): 0.5, ("absolute", "reciprocal_rank"): 0.5,
        ("clipped", "reciprocal_rank"): 0.5,
    }  # fmt: skip
    for (variant, name), value in expected.items():
        assert_near(accuracy(scores, relevant, variant, name), value, of=1.0, what=f"{variant} {name}")


@pytest.mark.parametrize("scores", [[1, 1, 1, 1], [2, 2, 1, 0], [0, 1, 1, 3], [1, 1, 0, 0], [0, 0, 0, 5]])
@pytest.mark.parametrize("relevant", [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1], [0, 1, 1, 1]])
def test_equal_scores_count_with_the_mean_over_their_orders(scores: list[float], relevant: list[int]) -> None:
    """Every order of tokens with equal scores is computed, without ties."""
    ranks, pointing, reciprocal = [], [], []
    for order in permutations(range(4)):
        if list(np.array(scores)[list(order)]) != sorted(scores, reverse=True):
            continue
        in_order = [relevant[token] for token in order]
        ranks.append(sum(in_order[: sum(relevant)]) / sum(relevant))
        pointing.append(in_order[0])
        reciprocal.append(1 / (1 + in_order.index(1)))
    for name, values in zip(("rank", "pointing", "reciprocal_rank"), (ranks, pointing, reciprocal), strict=True):
        assert_near(accuracy(scores, relevant, "signed", name), np.mean(values), of=1.0, what=name)


def test_one_relevant_token_has_the_reciprocal_rank_of_scikit_learn() -> None:
    """Without ties, label ranking average precision of one label is its reciprocal rank."""
    generator = np.random.default_rng(0)
    for _ in range(20):
        scores, relevant = generator.normal(size=7), np.zeros(7, int)
        relevant[generator.integers(7)] = 1
        expected = label_ranking_average_precision_score(relevant[None], scores[None])
        assert_near(accuracy(scores.tolist(), relevant.tolist(), "signed", "reciprocal_rank"), expected, of=1.0)


def test_positive_scores_have_equal_variants_and_scale_does_not_matter() -> None:
    """All variants of positive scores are the same, and a factor changes no accuracy."""
    generator = np.random.default_rng(1)
    scores, relevant = generator.normal(size=(3, 9)), np.arange(9) % 4 == 0
    positive = truth_accuracy(np.abs(scores), relevant.astype(int))
    assert_near(positive, np.repeat(positive[:, :1], len(VARIANTS), axis=1), of=1.0)
    assert_near(truth_accuracy(scores * 7, relevant.astype(int)), truth_accuracy(scores, relevant.astype(int)), of=1.0)


def test_random_rankings_have_the_accuracy_of_equal_scores() -> None:
    """The mean over many random rankings approaches that of equal scores."""
    relevant = np.array([1, 0, 0, 1, 0, 0])
    scores = np.random.default_rng(2).uniform(size=(4_000, 6))
    expected = truth_accuracy(np.ones((1, 6)), relevant)[0]
    assert_near(truth_accuracy(scores, relevant).mean(0), expected, 0.04, of=1.0)


def test_scores_of_zero_have_no_mass_and_invalid_arrays_are_refused() -> None:
    """Without a relevant token, or with NaN, there is no accuracy."""
    assert accuracy([0, 0, 0], [1, 0, 0], "signed", "mass") == 0
    assert_near(accuracy([0, 0, 0], [1, 0, 0], "clipped", "pointing"), 1 / 3, of=1.0)
    for scores, relevant in ([[1.0, np.nan]], [1, 0]), ([[1.0, 2.0]], [0, 0]), ([[1.0, 2.0]], [1, 0, 0]):
        with pytest.raises(Refused):
            truth_accuracy(np.array(scores), np.array(relevant))


# ---------------------------------------------------------------------------- sentences

TREE = """\
# text = The keys to the door open it.
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tkeys\tkey\tNOUN\tNNS\tNumber=Plur\t6\tnsubj\t_\t_
3\tto\tto\tADP\tIN\t_\t5\tcase\t_\t_
4\tthe\tthe\tDET\tDT\t_\t5\tdet\t_\t_
5\tdoor\tdoor\tNOUN\tNN\tNumber=Sing\t2\tnmod\t_\t_
6\topen\topen\tVERB\tVBP\tMood=Ind|Tense=Pres|VerbForm=Fin\t0\troot\t_\t_
7\tit\tit\tPRON\tPRP\tNumber=Sing\t6\tobj\t_\tSpaceAfter=No
8\t.\t.\tPUNCT\t.\t_\t6\tpunct\t_\t_

1\tKing\tking\tNOUN\tNN\tNumber=Sing\t4\tnsubj:pass\t_\t_
2\thas\thave\tAUX\tVBZ\tMood=Ind|Number=Sing|Person=3|Tense=Pres|VerbForm=Fin\t4\taux\t_\t_
3\tbeen\tbe\tAUX\tVBN\tTense=Past|VerbForm=Part\t4\taux:pass\t_\t_
4\tseen\tsee\tVERB\tVBN\tTense=Past|VerbForm=Part\t0\troot\t_\t_

1\tIn\tin\tADP\tIN\t_\t2\tcase\t_\t_
2\ttown\ttown\tNOUN\tNN\tNumber=Sing\t3\tobl\t_\t_
3\truns\trun\tVERB\tVBZ\tMood=Ind|Number=Sing|Person=3|Tense=Pres|VerbForm=Fin\t0\troot\t_\t_
4\ta\ta\tDET\tDT\t_\t5\tdet\t_\t_
5\tdog\tdog\tNOUN\tNN\tNumber=Sing\t3\tnsubj\t_\t_
"""


def changed_tree(old: str, new: str) -> list[TruthSentence]:
    """The sentences of the first tree, with one change."""
    assert old in TREE
    tree = next(read_treebank(TREE.replace(old, new, 1).splitlines(), "tree"))
    return list(subject_verb_sentences(tree))


def test_sentences_of_a_treebank() -> None:
    """A verb with an attractor, an auxiliary, and a subject after its verb."""
    first, second, third = (
        sentence for tree in read_treebank(TREE.splitlines(), "tree") for sentence in subject_verb_sentences(tree)
    )
    assert (first.text, first.right, first.wrong) == ("The keys to the door [MASK] it.", "open", "opens")
    assert (second.text, second.right, second.wrong) == ("King [MASK] been seen", "has", "have")
    assert (third.text, third.right, third.wrong) == ("In town [MASK] a dog", "runs", "run")
    subjects = [sentence.text[slice(*sentence.relevant[0])] for sentence in (first, second, third)]
    assert subjects == ["keys", "King", "dog"]
    assert [sentence.condition for sentence in (first, second, third)] == ["attractor", "no attractor", "no attractor"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Tense=Pres", "Tense=Past"),
        ("NOUN\tNNS\tNumber=Plur", "PRON\tPRP\tNumber=Plur"),
        ("Number=Plur", "Number=Sing"),  # the verb does not agree with the subject
        ("2\tnmod", "2\tconj"),  # a coordinated subject
        ("6\topen\topen", "6\tare\tbe"),
        ("6\topen\topen\tVERB", "6\tcan\tcan\tAUX"),
        ("6\topen\topen", "6\topen\topened"),  # the form is neither that of the lemma nor the third person
        ("it\tit", "[MASK]\tit"),
    ],
)
def test_other_verbs_give_no_sentence(old: str, new: str) -> None:
    """Other tenses, pronouns, other numbers, coordination, forms of "be", modal verbs, and texts with [MASK]."""
    assert changed_tree("The keys", "The keys")
    assert not changed_tree(old, new)


def test_the_third_person_of_verbs_of_the_vocabulary() -> None:
    """It is "-ies" after a consonant and y, "-es" after a sibilant, and "-s" otherwise."""
    forms = {"go": "goes", "try": "tries", "say": "says", "wish": "wishes", "fix": "fixes", "make": "makes"}
    assert {lemma: third_person(lemma) for lemma in forms} == forms


def test_agreement_sentences_have_their_subject_and_both_forms() -> None:
    """The subject is the second word, and its form shows the number that the data set states."""
    for item, sentence in zip(sentences(), masked_agreement(), strict=True):
        ((start, end),) = sentence.relevant
        assert sentence.text[start:end] == item.text.split()[1]
        assert sentence.text[start:end].endswith("s") == (item.subject == "plural")


def test_a_table_of_sentences(tmp_path: Path) -> None:
    """The subject is a word that occurs once, or a number of a word; other rows are refused with their number."""
    table = tmp_path / "table.csv"
    table.write_text("text,subject,right,wrong\nThe cat [MASK] on a cat.,1,sits,sit\nThe dogs [MASK].,dogs,run,runs\n")
    first, second = read_truth_sentences(table)
    assert first.relevant == ((4, 7),) and second.relevant == ((4, 8),)
    for subject in ("cat", "9", "bird", ""):
        table.write_text(f"text,subject,right,wrong\nThe cat [MASK] on a cat.,{subject},sits,sit\n")
        with pytest.raises(Refused):
            read_truth_sentences(table)
    table.write_text("text,subject,right,wrong\nThe cat sits.,cat,sits,sit\n")
    with pytest.raises(Refused, match=r"row 2 .* has 0 \[MASK\]"):
        read_truth_sentences(table)


# ---------------------------------------------------------------------------- the study


@pytest.fixture(scope="module")
def mini() -> LoadedModel:
    """The bundled model."""
    return bert_core.load("headlight-mini", device="cpu")


@pytest.mark.slow
def test_an_interrupted_study_resumes_with_the_same_table(mini: LoadedModel, tmp_path: Path) -> None:
    """A study that lost its last rows, and one with fewer sentences, continue to the same bytes."""
    whole, part = tmp_path / "whole.csv", tmp_path / "part.csv"
    result = judge_ground_truth(mini, "agreement", whole, QUICK)
    assert result.sentences == 6 and len(result.judgements) == 6 * 4
    shorter = GroundTruthSettings(sentences=3, methods=QUICK.methods)
    judge_ground_truth(mini, "agreement", part, shorter)
    part.write_bytes(part.read_bytes()[:-30])
    judge_ground_truth(mini, "agreement", part, QUICK)
    assert part.read_bytes() == whole.read_bytes()
    assert len({row.condition for row in result.judgements}) >= 5, "the conditions in turn, without wrong predictions"
    assert all(row.difference > 0 for row in result.judgements), "only right predictions are explained"
    with pytest.raises(Refused, match="other settings"):
        judge_ground_truth(None, "circuits", whole, QUICK)


def test_occlusion_finds_the_relevant_words_of_circuits(tmp_path: Path) -> None:
    """With one copied word its mass is 1; a random ranking has the expected accuracy."""
    result = judge_ground_truth(None, "circuits", tmp_path / "table.csv", QUICK)
    copies = [row for row in result.judgements if row.condition in ("copied word", "redundant heads")]
    for row in copies:
        if row.method == "occlusion":
            assert_near(row.accuracies[1][0], 1.0, 2e-3, of=1.0)
        if row.method == RANDOM:
            assert_near(row.accuracies[0][2], row.relevant / row.tokens, of=1.0)
    assert read_truth_judgements(tmp_path / "table.csv")[:4] == list(result.judgements[:4])


def test_circuits_have_no_model_and_other_sets_need_one(mini: LoadedModel, tmp_path: Path) -> None:
    """A model that would not be used, and a missing one, are refused before a table is written."""
    for loaded, source in ((mini, "circuits"), (None, "agreement")):
        with pytest.raises(Refused, match="give None as the model"):
            judge_ground_truth(loaded, source, tmp_path / "table.csv", QUICK)
    assert list(tmp_path.iterdir()) == []


def test_special_tokens_are_ranked_on_request(mini: LoadedModel, tmp_path: Path) -> None:
    """[CLS], [SEP] and the masked word are three more tokens."""
    tokens = []
    for special in (False, True):
        settings = GroundTruthSettings(sentences=1, methods=("attention",), special_tokens=special)
        result = judge_ground_truth(mini, "agreement", tmp_path / f"{special}.csv", settings)
        tokens.append(result.judgements[0].tokens)
    assert tokens[1] - tokens[0] == 3


def test_words_of_several_tokens_and_wrong_predictions_are_skipped(mini: LoadedModel, tmp_path: Path) -> None:
    """A file in which no sentence can be judged is refused with both counts."""
    table = tmp_path / "table.csv"
    rows = ["The dogs [MASK] here.,dogs,antidisestablishes,is", "The dogs [MASK] here.,dogs,is,are"]
    table.write_text("\n".join(["text,subject,right,wrong", *rows]) + "\n")
    with pytest.raises(Refused, match="wrong word in 1, and 1 have"):
        judge_ground_truth(mini, table, tmp_path / "out.csv", QUICK)


def test_a_summary_is_the_mean_and_sorted(tmp_path: Path) -> None:
    """Means lie within their intervals, the best method is first, and the random ranking is last."""
    result = judge_ground_truth(None, "circuits", tmp_path / "table.csv", QUICK)
    summaries = summarise_truth(result.judgements)
    assert summaries[-1].method == RANDOM
    pointing = [summary.value("signed", "pointing")[0] for summary in summaries[:-1]]
    assert pointing == sorted(pointing, reverse=True)
    for summary in summaries:
        rows = [row for row in result.judgements if row.method == summary.method]
        expected = np.mean([row.accuracies for row in rows], axis=0)
        assert_near(np.array(summary.means), expected, of=1.0)
        assert (np.array(summary.low) <= expected + 1e-9).all() and (np.array(summary.high) >= expected - 1e-9).all()
    assert list(method_ranks(summaries).values()) == [1, 2, 3]
    assert truth_markdown(summaries).count("\n") == 2 + len(summaries)


def test_settings_and_records_refuse_invalid_values() -> None:
    """Unknown and repeated methods, and sentences without one [MASK] or with a word outside the text."""
    assert set(GroundTruthSettings(methods=tuple(method.name for method in METHODS)).methods)
    for methods in (("unknown",), ("attention", "attention")):
        with pytest.raises(Refused):
            GroundTruthSettings(methods=methods)
    for text, relevant in ("no mask", ((0, 2),)), ("a [MASK]", ((0, 99),)), ("a [MASK]", ()), ("a [MASK]", ((1,),)):
        with pytest.raises(Refused):
            TruthSentence(text, relevant, "is", "are")


def test_the_ranks_of_the_page_are_those_of_the_documented_table() -> None:
    """The bundled file has every method once, in the order of the table of the agreement sentences."""
    document = Path(__file__).parents[2] / "docs" / "results" / "ground-truth.md"
    section = document.read_text("utf-8").partition("figures: truth-agreement")[2].partition("end of figures")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ") and "(" in line]
    shares = {row[0].removeprefix("| "): float(row[1].split()[0]) for row in rows if RANDOM not in row[0]}
    ranks = json.loads((ASSETS / "headlight-mini" / "method_ranks.json").read_text("utf-8"))
    assert ranks == list(shares) and set(ranks) == {method.name for method in METHODS}
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
