"""analysis/bias.py and studies/bias.py: shares by category, doubtful pairs, tables of pairs, and the bundled set."""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bert_core
from bert_core import LoadedModel, PairRow, PairScore, SentenceScore, evaluate_bias, read_bias_pairs, score_pairs
from bert_core.analysis.bias import CAUTIONS, MEASURES, TIE_NATS
from bert_core.refused import Refused
from bert_core.studies.bias import BIAS_COLUMNS, BUNDLED_SET, bias_csv, bundled_bias_pairs

SENTENCES = (
    ("the cat sat on the mat .", "the dog sat on the mat ."),
    ("the king ran to the door .", "the woman ran to the door ."),
    ("the old cat sat .", "the cat sat ."),
    ("the cat ran on the mat .", "the dog sat on the mat ."),
)
HEADER = "category,stereotype,other\n"


def peer_scores(model: torch.nn.Module, tokenizer: object, first: str, second: str) -> tuple[float, float]:
    """Sums of log-probabilities of the shared tokens, one masked copy at a time, as the script of CrowS-Pairs does."""
    ids = [tokenizer.encode(text) for text in (first, second)]  # type: ignore[attr-defined]
    blocks = difflib.SequenceMatcher(None, ids[0], ids[1], autojunk=False).get_matching_blocks()
    totals = [0.0, 0.0]
    for block in blocks:
        for offset in range(block.size):
            for side, start in enumerate((block.a, block.b)):
                position = start + offset
                if position in (0, len(ids[side]) - 1):
                    continue
                masked = torch.tensor([ids[side]])
                masked[0, position] = tokenizer.mask_token_id  # type: ignore[attr-defined]
                with torch.no_grad():
                    logits = model(masked).logits[0, position].double()
                totals[side] += float(logits.log_softmax(-1)[ids[side][position]])
    return totals[0], totals[1]


def test_shared_words_are_scored_as_by_transformers(tiny_model_folder: Path, tiny_loaded: LoadedModel) -> None:
    """Each difference is that of a loop over masked copies of the shared tokens, whatever differs."""
    model = transformers.BertForMaskedLM.from_pretrained(tiny_model_folder)
    tokenizer = transformers.BertTokenizer.from_pretrained(tiny_model_folder)
    scores = score_pairs(tiny_loaded, SENTENCES)
    model.train(False)
    evaluation = evaluate_bias(scores)
    for pair, sentences in zip(evaluation.pairs, SENTENCES, strict=True):
        first, second = peer_scores(model, tokenizer, *sentences)
        assert pair.difference == pytest.approx(first - second, abs=1e-4)
        assert abs(first - second) > 1e-3, "a difference that rounding could hide shows nothing"
    expected = np.mean([np.greater(*peer_scores(model, tokenizer, *sentences)) for sentences in SENTENCES])
    assert evaluation.total.share == expected


def test_whole_sentences_are_compared_by_their_pseudo_log_likelihood(tiny_loaded: LoadedModel) -> None:
    """The difference is that of the totals of both sentences, and another one than that of the shared words."""
    scores = score_pairs(tiny_loaded, SENTENCES, variant="within word")
    whole, shared = (evaluate_bias(scores, measure).pairs for measure in ("whole sentence", "shared words"))
    assert [pair.difference for pair in whole] == [score.difference for score in scores]
    assert all(pair.difference != shared[number].difference for number, pair in enumerate(whole))


def made_pair(row: int, difference: float, loaded: LoadedModel, category: str = "") -> PairScore:
    """A pair of sentences of one differing word, of which the shared words differ by some nats."""
    sentences = ("the cat sat .", "the dog sat .")
    encodings = [loaded.tokenizer.encode(text) for text in sentences]
    log_probabilities = np.full((2, len(encodings[0])), -1.0, np.float32)
    log_probabilities[:, [0, -1]] = np.nan
    log_probabilities[0, 3] += difference
    first, second = (
        SentenceScore(encoding, "original", values)
        for encoding, values in zip(encodings, log_probabilities, strict=True)
    )
    return PairScore(row, sentences, first, second, category=category)


def test_a_tie_counts_as_half(tiny_loaded: LoadedModel) -> None:
    """By hand: two for, one against and one tie are 2.5 of 4; a difference of the size of rounding is a tie."""
    differences = (0.5, 0.25, -2.0, TIE_NATS / 2)
    evaluation = evaluate_bias([made_pair(row, value, tiny_loaded) for row, value in enumerate(differences)])
    total = evaluation.total
    assert (total.count, total.scored, total.ties, total.stereotypical, total.share) == (4, 4, 1, 2.5, 0.625)
    assert [pair.preferred for pair in evaluation.pairs] == ["first", "first", "second", "neither"]
    assert total.mean_difference == pytest.approx(np.mean(differences), rel=1e-4)
    low, high = total.difference_interval
    assert min(differences) <= low < total.mean_difference < high <= max(differences)
    assert not total.excludes_half


def test_a_category_differs_from_half_only_if_its_interval_does(tiny_loaded: LoadedModel) -> None:
    """12 of 12 exclude 50%, 8 of 12 do not; the totals of the categories sum to that of all pairs."""
    wins = [made_pair(row, 1.0, tiny_loaded, "clear") for row in range(12)]
    mixed = [made_pair(row, 1.0 if row < 8 else -1.0, tiny_loaded, "mixed") for row in range(12)]
    evaluation = evaluate_bias([*wins, *mixed])
    assert [category.name for category in evaluation.categories] == ["clear", "mixed"]
    assert [category.excludes_half for category in evaluation.categories] == [True, False]
    assert sum(category.stereotypical for category in evaluation.categories) == evaluation.total.stereotypical == 20


def test_exchanged_columns_mirror_the_share(tiny_loaded: LoadedModel) -> None:
    """The share becomes 1 minus the share, each difference changes its sign, and ties stay ties."""
    rows = [*SENTENCES, ("the cat sat .", "the cat sat .")]
    evaluation, mirrored = (
        evaluate_bias(score_pairs(tiny_loaded, pairs)) for pairs in (rows, [(second, first) for first, second in rows])
    )
    np.testing.assert_allclose(
        [pair.difference for pair in evaluation.pairs], [-pair.difference for pair in mirrored.pairs], atol=1e-5
    )
    assert evaluation.total.share == pytest.approx(1 - mirrored.total.share)
    assert evaluation.total.ties == mirrored.total.ties == 1


@pytest.mark.parametrize("measure", MEASURES)
def test_equal_sentences_are_exact_ties(measure: str, tiny_loaded: LoadedModel) -> None:
    """Texts with the same tokens have a difference of exactly 0, also if they are written in another case."""
    scores = score_pairs(tiny_loaded, [("the cat sat .", "the cat sat ."), ("The CAT sat .", "the cat sat .")])
    evaluation = evaluate_bias(scores, measure)
    assert [abs(pair.difference) < TIE_NATS for pair in evaluation.pairs] == [True, True]
    assert evaluation.pairs[0].difference == 0
    assert evaluation.total.share == 0.5 and all(pair.cautions == ("equal tokens",) for pair in evaluation.pairs)


def test_doubtful_pairs_are_marked(tiny_loaded: LoadedModel) -> None:
    """Each property that can be found from the tokens is found, and no other."""
    rows = {
        ("the cat sat on the mat .", "the dog sat on the mat ."): (),
        ("the cat sat on the door .", "the dog sat on the mat ."): ("several places",),
        ("the old cat sat .", "the cat sat ."): ("token counts",),
        ("the ☃ sat .", "the dog sat ."): ("unknown tokens",),
        ("cat", "dog"): ("nothing shared",),
    }
    first, second = next(iter(rows))
    evaluation = evaluate_bias(score_pairs(tiny_loaded, [*rows, (first, second), (second, first)]))
    assert [pair.cautions for pair in evaluation.pairs] == [*rows.values(), ("repeated",), ("repeated",)]
    counts = dict.fromkeys(("several places", "token counts", "unknown tokens", "nothing shared"), 1)
    assert evaluation.caution_counts() == {**counts, "repeated": 2}
    assert set(evaluation.caution_counts()) < set(CAUTIONS)
    assert evaluation.without_cautions().count == 1


def test_pairs_without_a_score_count_in_no_share(tiny_loaded: LoadedModel) -> None:
    """A sentence that is too long, or that has a mask, leaves its category without numbers."""
    rows = [PairRow(2, "a cat " * 400, "a dog", category="long"), PairRow(3, "the [MASK]", "the dog", category="mask")]
    evaluation = evaluate_bias(score_pairs(tiny_loaded, [*rows, PairRow(4, "a cat", "a dog", category="fine")]))
    assert [(category.count, category.scored) for category in evaluation.categories] == [(1, 0), (1, 0), (1, 1)]
    assert math.isnan(evaluation.categories[0].share) and math.isnan(evaluation.categories[0].interval[0])
    assert "takes at most 512" in (evaluation.pairs[0].problem or "")
    assert evaluation.pairs[0].preferred is None and not evaluation.categories[0].excludes_half


# ---------------------------------------------------------------------------- tables


def write(folder: Path, name: str, content: str) -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pairs.csv", "category,stereotype,other\nage,An old cat.,A cat.\n"),
        ("pairs.csv", "Other;Category;note;Stereotype\nA cat.;age;x;An old cat.\n"),
        ("pairs.tsv", "stereotype\tother\tcategory\nAn old cat.\tA cat.\tage\n"),
        ("pairs.jsonl", '{"stereotype": "An old cat.", "other": "A cat.", "category": "age"}\n'),
        ("pairs.json", '[{"sent_more": "An old cat.", "sent_less": "A cat.", "bias_type": "age"}]\n'),
        (
            "crows_pairs_anonymized.csv",
            ",sent_more,sent_less,stereo_antistereo,bias_type,annotations,anon_writer,anon_annotators\n"
            "0,An old cat.,A cat.,antistereo,age,\"[['age'], []]\",a3,\"['a3', 'a1']\"\n",
        ),
    ],
)
def test_tables_are_read_however_they_are_written(name: str, content: str, tmp_path: Path) -> None:
    """Columns in any order and case, further columns, and the names of CrowS-Pairs, in whose both directions."""
    (pair,) = read_bias_pairs(write(tmp_path, name, content))
    assert pair[1:] == ("An old cat.", "A cat.", None, "age")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            "a,b\nx,y\n",
            "pairs.csv has no column of the more stereotypical sentences, which is called stereotype or sent_more: its "
            "columns are a, b",
        ),
        (
            "stereotype\nx\n",
            "pairs.csv has no column of the other sentences, which is called other or sent_less: its columns are "
            "stereotype",
        ),
        (HEADER, "pairs.csv has no pairs: give one pair of sentences in each row"),
        (
            HEADER + "age,One, two.,Three.\n",
            "row 2 of pairs.csv has 4 fields and the header 3: put a text that contains a comma, a quote or a new line "
            "in quotes",
        ),
        (
            HEADER + "".join(f"c{n},a {n},b {n}\n" for n in range(51)),
            "pairs.csv has 51 categories in the column 'category': at most 50",
        ),
        (
            HEADER + f"age,a,b\n{'x' * 101},a,b\n",
            "row 3 of pairs.csv has a category of 101 characters: at most 100",
        ),
        (
            "sent_more,stereotype,other\na,b,c\n",
            "pairs.csv has several columns of the more stereotypical sentences, sent_more and stereotype: keep only "
            "one of them",
        ),
        (
            "stereotype,Other,other\na,b,c\n",
            "pairs.csv has several columns of the other sentences, Other and other: keep only one of them",
        ),
        (
            "stereotype,other,category,bias_type\na,b,c,d\n",
            "pairs.csv has several columns of the categories, category and bias_type: keep only one of them",
        ),
        (HEADER + "c,x,y\n" * 2001, "there are more than 2,000 pairs, the most that are scored at once"),
    ],
)
def test_a_table_that_is_none_is_refused(content: str, sentence: str, tmp_path: Path) -> None:
    """One sentence with the row or the columns that were given, and what is allowed."""
    with pytest.raises(Refused) as caught:
        read_bias_pairs(write(tmp_path, "pairs.csv", content))
    assert str(caught.value) == sentence


def test_no_row_is_read_after_the_limit(tmp_path: Path) -> None:
    """A row that is damaged further below is not reached; at the limit itself all pairs are read."""
    path = write(tmp_path, "pairs.csv", HEADER + "c,x,y\n" * 2001 + "damaged\n")
    with pytest.raises(Refused, match=r"^there are more than 2,000 pairs"):
        read_bias_pairs(path)
    assert len(read_bias_pairs(write(tmp_path, "pairs.csv", HEADER + "c,x,y\n" * 2000))) == 2000


@pytest.mark.parametrize("field", ["stereotype", "other", "category", "note"])
@pytest.mark.parametrize(("name", "place"), [("pairs.jsonl", "line"), ("pairs.json", "record")])
def test_half_of_a_surrogate_pair_in_json_is_refused(name: str, place: str, field: str, tmp_path: Path) -> None:
    """JSON can write it as an escape, but no file, terminal or page can show it; a whole pair is a character."""
    rows = [{"stereotype": "An old \U0001f600.", "other": "A cat.", "category": "age", "note": ""} for _ in range(2)]
    separator = ",\n" if place == "record" else "\n"
    content = separator.join(map(json.dumps, rows))
    path = write(tmp_path, name, f"[{content}]" if place == "record" else content)
    assert [pair.first for pair in read_bias_pairs(path)] == ["An old \U0001f600."] * 2
    rows[1][field] += "\udc00"
    content = separator.join(map(json.dumps, rows))
    with pytest.raises(Refused) as caught:
        read_bias_pairs(write(tmp_path, name, f"[{content}]" if place == "record" else content))
    assert str(caught.value) == (
        f"{place} 2 of {name} contains \\udc00, which is half of a surrogate pair and no character: write both halves "
        "or remove it"
    )


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    """A file without content has no columns."""
    with pytest.raises(Refused, match=r"empty|none"):
        read_bias_pairs(write(tmp_path, "pairs.csv", ""))


def test_a_row_that_is_no_pair_keeps_its_number_and_reason(tmp_path: Path) -> None:
    """Empty categories are allowed, an empty sentence is the problem of its row, and a repeated row stays."""
    content = HEADER + ",One cat.,One dog.\nage,One cat.,\nage,One cat.,One dog.\n"
    pairs = read_bias_pairs(write(tmp_path, "pairs.csv", content))
    assert [(pair.row, pair.category) for pair in pairs] == [(2, ""), (3, "age"), (4, "age")]
    assert [pair.problem for pair in pairs] == [None, "only one sentence: two are needed", None]


def test_results_come_out_as_csv_and_go_in_again(tmp_path: Path, tiny_loaded: LoadedModel) -> None:
    """A row each in full precision, with cautions and problems; formulas get an apostrophe."""
    rows = [PairRow(2, "=SUM(A1)", "the dog", category="=x"), PairRow(3, "a cat", "", "only one", "age")]
    evaluation = evaluate_bias(score_pairs(tiny_loaded, rows))
    text = bias_csv(evaluation)
    header, first, second = csv.reader(io.StringIO(text))
    assert tuple(header) == BIAS_COLUMNS
    assert first[:4] == ["2", "'=x", "'=SUM(A1)", "the dog"] and float(first[4]) == evaluation.pairs[0].difference
    assert first[5] in ("stereotype", "other", "tie") and second[4:] == ["", "", "", "only one"]
    assert [pair.second for pair in read_bias_pairs(write(tmp_path, "again.csv", text))] == ["the dog", ""]


# ---------------------------------------------------------------------------- the bundled set


def test_bundled_pairs_differ_in_one_word_and_are_balanced() -> None:
    """60 different pairs; in each category each of two words is as often in the stereotype as in the other sentence."""
    pairs = bundled_bias_pairs()
    assert len(pairs) == len({pair[1:3] for pair in pairs}) == 60 and all(pair.problem is None for pair in pairs)
    groups = {frozenset(pair.first.split()) ^ frozenset(pair.second.split()) for pair in pairs}
    assert all(len(words) == 2 for words in groups)
    women, men = {"her", "woman", "mother", "girl"}, {"his", "man", "father", "boy"}
    sides: dict[str, int] = {}
    for pair in pairs:
        (first,) = set(pair.first.split()) - set(pair.second.split())
        (second,) = set(pair.second.split()) - set(pair.first.split())
        if pair.category == "gender":
            assert (first in women and second in men) or (first in men and second in women)
            first, second = ("women", "men") if first in women else ("men", "women")
        sides[first] = sides.get(first, 0) + 1
        sides[second] = sides.get(second, 0) - 1
    assert set(sides.values()) == {0}
    assert {sum(pair.category == name for pair in pairs) for name in {pair.category for pair in pairs}} == {12}


def test_no_caution_applies_to_the_bundled_pairs() -> None:
    """For the bundled model each pair differs in one token, and all tokens are known; each row names its stereotype."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    for pair in bundled_bias_pairs():
        first, second = (loaded.tokenizer.encode(text) for text in pair[1:3])
        assert len(first) == len(second) and first.unknown_count == second.unknown_count == 0
        assert np.sum(np.not_equal(first.tokens, second.tokens)) == 1
    with BUNDLED_SET.open(newline="", encoding="utf-8") as file:
        assert all(row["belief"] for row in csv.DictReader(file))
