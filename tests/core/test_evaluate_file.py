"""Evaluation of files: each number is that of a loop over single texts, and interruptions change nothing."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, log_loss

from bert_core import Columns, ExplainSettings, LoadedModel, Refused, capture, checkpoint, iter_explanations, load
from bert_core.analysis import evaluation as analysis
from bert_core.records import EvaluatedTexts
from bert_core.run.perturbation import pseudo_log_likelihood
from bert_core.studies.evaluation import (
    EVALUATION_LOSSES,
    STUDY,
    evaluate_file,
    evaluate_in_memory,
    evaluate_texts,
    iter_evaluation,
    lines_to_evaluate,
)
from bert_core.studies.evaluation_tables import read_evaluation
from bert_core.studies.heads import reading_note
from bert_core.studies.lines import Line
from bert_core.studies.rows import MAX_OTHER_COLUMNS
from bert_core.studies.runner import ShardStudy
from bert_core.studies.settings import EvaluationSettings
from bert_core.studies.tables import write_columns
from tests.near import assert_near

SENTENCES = ["the cat sat on the mat", "a dog ran in the house", "the king saw the old door , a cat", "she is small"]


def class_file(path: Path, rows: int = 300) -> Path:
    """Write a table of texts of different lengths with a class, a number and a source; some values are formulas."""
    lines = ["review,kind,source,loss,"]
    for number in range(rows):
        text = " ".join([SENTENCES[number % 4]] * (1 + number % 3)) + f" {number % 9}"
        lines.append(f'"{text}",{("pet", "ruler")[number % 2]},{("=web", "paper")[number % 3 == 0]},{number},')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def evaluated(*arguments: Any, **options: Any) -> EvaluatedTexts:
    """Return the table that `evaluate_file` writes on the CPU."""
    evaluate_file(*arguments, device="cpu", **options)
    return read_evaluation(arguments[1])


def assert_same_table(first: EvaluatedTexts, second: EvaluatedTexts) -> None:
    """Check that texts are equal and numbers close."""
    assert (first.question, first.loss_unit, len(first)) == (second.question, second.loss_unit, len(second))
    for name in ("row", "text", "pair", "position", "answer", "prediction"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist(), name
    for name in ("probability", "confidence", "loss"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-4, atol=1e-6, err_msg=name)
    assert {name: values.tolist() for name, values in first.columns.items()} == {
        name: values.tolist() for name, values in second.columns.items()
    }


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_classes_are_those_of_a_loop_over_texts(tiny_classifier_folder: Path, tmp_path: Path, ending: str) -> None:
    """Predictions, probabilities and losses of `capture`; accuracy, F1 and mean loss of scikit-learn."""
    file, out = class_file(tmp_path / "rows.csv"), tmp_path / f"out{ending}"
    settings = EvaluationSettings("class", columns=Columns("review", answer="kind"))
    table = evaluated(file, out, str(tiny_classifier_folder), settings)
    loaded = load(str(tiny_classifier_folder), device="cpu")
    probabilities = []
    assert len(table) == 300 and table.row.tolist() == list(range(2, 302)) and (table.position == -1).all()
    for index in range(len(table)):
        classes = capture(loaded, loaded.tokenizer.encode(table.text[index])).classes
        assert classes is not None and classes.probabilities is not None
        probabilities.append(classes.probabilities)
        assert table.prediction[index] == loaded.labels[int(classes.logits.argmax())]
        assert table.answer[index] == ("pet", "ruler")[index % 2]
    shares = np.array(probabilities)
    expected = shares[np.arange(300), [loaded.labels.index(answer) for answer in table.answer]]
    assert_near(table.probability, expected, of=1)
    assert_near(table.confidence, shares.max(1), of=1)
    assert_near(table.loss, -np.log(expected), of=1)
    totals = analysis.summary(table)
    answers, predictions = table.answer.tolist(), table.prediction.tolist()
    assert totals.accuracy == accuracy_score(answers, predictions)
    assert totals.macro_f1 == pytest.approx(f1_score(answers, predictions, average="macro"))
    order = sorted(loaded.labels)
    by_name = shares[:, [loaded.labels.index(label) for label in order]].astype(np.float64)
    by_name /= by_name.sum(1, keepdims=True)
    assert totals.mean_loss == pytest.approx(log_loss(answers, by_name, labels=order), rel=1e-4)
    assert set(table.columns) == {"source", "loss (file)", "unnamed"}
    assert set(table.columns["source"]) == {"=web", "paper"} and table.columns["loss (file)"][5] == "5"
    assert json.loads(Path(f"{out}.settings.json").read_text())["counts"]["texts"] == 300


def test_classes_are_those_of_transformers(tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """Against the sequence classifier of transformers with the same weights, one text at a time."""
    transformers = pytest.importorskip("transformers")
    file = class_file(tmp_path / "rows.csv", 24)
    settings = EvaluationSettings("class", columns=Columns("review", answer="kind"))
    table = evaluated(file, tmp_path / "out.parquet", str(tiny_classifier_folder), settings)
    model = transformers.BertForSequenceClassification.from_pretrained(tiny_classifier_folder).eval()
    tokenizer = transformers.BertTokenizerFast.from_pretrained(tiny_classifier_folder)
    labels = load(str(tiny_classifier_folder), device="cpu").labels
    for index in range(len(table)):
        with torch.no_grad():
            logits = model(**tokenizer(table.text[index], return_tensors="pt")).logits[0]
        assert table.prediction[index] == labels[int(logits.argmax())]
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels.index(table.answer[index])))
        assert table.loss[index] == pytest.approx(float(loss), rel=1e-4)


def test_masked_words_are_those_of_a_loop_over_texts(
    tiny_model_folder: Path, tiny_loaded: LoadedModel, tmp_path: Path
) -> None:
    """One word, one of several pieces, and several words: log-probabilities at the masks, and the top tokens there."""
    file = tmp_path / "rows.csv"
    rows = [
        ("the cat [MASK] on the mat", "sat"),
        ("the [MASK] saw the [MASK]", "king door"),
        ("a [MASK] [MASK] ran", "old cat"),
        ("the dog ran", "cat"),  # no mask
        ("the [MASK] saw the [MASK]", "king"),  # no word for the second mask
    ]
    file.write_text("text,word\n" + "".join(f"{text},{word}\n" for text, word in rows))
    out = tmp_path / "out.csv"
    settings = EvaluationSettings("word", columns=Columns("text", answer="word"))
    result = evaluate_file(file, out, str(tiny_model_folder), settings, device="cpu")
    assert (result.counts["texts"], result.counts["questions"], result.counts["without the word"]) == (3, 4, 1)
    assert "1 with several groups of [MASK] and another number of words in the answer" in reading_note(result.counts)
    table, counts = evaluate_in_memory(file, tiny_loaded, settings)
    assert counts == result.counts and counts["other number of words"] == 1 and len(table) == 4
    with pytest.raises(Refused, match=r"has 2 groups of .* and the expected answer has 1 word: give one word for each"):
        evaluate_texts(tiny_loaded, [Line(1, rows[-1][0], answer="king")], settings)
    table = read_evaluation(out)
    assert table.answer.tolist() == ["sat", "king", "door", "old cat"] and table.row.tolist() == [2, 3, 3, 4]
    for index in range(len(table)):
        encoding = tiny_loaded.tokenizer.encode(table.text[index])
        predictions = {prediction.position: prediction for prediction in capture(tiny_loaded, encoding).predictions}
        words = table.answer[index].split()
        positions = range(table.position[index], table.position[index] + len(words))
        expected = [predictions[p].probabilities[tiny_loaded.tokenizer.id_of(w)] for p, w in zip(positions, words)]  # noqa: B905
        best = [predictions[position].top[0] for position in positions]
        assert table.probability[index] == pytest.approx(math.prod(map(float, expected)), rel=1e-4)
        assert table.loss[index] == pytest.approx(-sum(map(math.log, expected)), rel=1e-4)
        assert table.confidence[index] == pytest.approx(math.prod(share for _, share in best), rel=1e-4)
        names = [tiny_loaded.tokenizer.token_of(token) for token, _ in best]
        assert table.is_correct[index] == (names == words)
        if len(words) == 1:
            assert table.prediction[index] == names[0]


def test_pairs_are_scored_by_the_next_sentence_head(
    tiny_model_folder: Path, tiny_loaded: LoadedModel, tmp_path: Path
) -> None:
    """With answers in a column, and without, where every pair is expected to follow."""
    file, out = tmp_path / "rows.tsv", tmp_path / "out.csv"
    rows = [(SENTENCES[n % 4], SENTENCES[(n + 1) % 4], ("yes", "from elsewhere")[n % 2]) for n in range(8)]
    file.write_text("one\ttwo\tfollows\n" + "".join("\t".join(row) + "\n" for row in rows))
    model = str(tiny_model_folder)
    table = evaluated(file, out, model, EvaluationSettings("next", columns=Columns("one", "two", "follows")))
    unlabelled = evaluated(file, tmp_path / "b.csv", model, EvaluationSettings("next", columns=Columns("one", "two")))
    assert set(unlabelled.answer) == {"follows"} and set(unlabelled.columns) == {"follows"}
    for index, (first, second, answer) in enumerate(rows):
        share = capture(tiny_loaded, tiny_loaded.tokenizer.encode(first, second)).nsp
        assert share is not None
        expected = share if answer == "yes" else 1 - share
        assert table.probability[index] == pytest.approx(expected, rel=1e-3)
        assert table.prediction[index] == ("follows" if share > 0.5 else "from elsewhere")
        assert unlabelled.probability[index] == pytest.approx(share, rel=1e-3)
    file.write_text(file.read_text().replace("yes", "perhaps"))
    settings = EvaluationSettings("next", columns=Columns("one", "two", "follows"))
    with pytest.raises(Refused, match="has the class 'perhaps'"):
        evaluate_file(file, tmp_path / "c.csv", model, settings)


def test_every_tagged_word_is_a_row(tiny_tagger_folder: Path, tmp_path: Path) -> None:
    """Of a file with tags, words outside of entities included; and of texts without tags, without a loss."""
    words = [("the", "O"), ("king", "B-PER"), ("saw", "O"), ("a", "O"), ("house", "I-PER")]
    file, out = tmp_path / "words.conll", tmp_path / "out.csv"
    file.write_text("\n".join(f"{word}\t{tag}" for word, tag in words) + "\n\nthe\tO\n")
    model = str(tiny_tagger_folder)
    table = evaluated(file, out, model, EvaluationSettings("tag", tags="last"))
    assert table.answer.tolist() == [tag for _, tag in words] + ["O"]
    assert table.columns["word"].tolist() == [word for word, _ in words] + ["the"]
    loaded = load(model, device="cpu")
    for index in range(len(table)):
        tags = capture(loaded, loaded.tokenizer.encode(table.text[index])).tags
        assert tags is not None
        shares = tags.probabilities[table.position[index]]
        assert table.prediction[index] == loaded.tags[int(shares.argmax())]
        assert table.probability[index] == pytest.approx(shares[loaded.tags.index(table.answer[index])], rel=1e-4)
    texts = tmp_path / "texts.txt"
    texts.write_text("the king saw a house\n")
    unlabelled = evaluated(texts, tmp_path / "b.parquet", model, EvaluationSettings("tag"))
    assert unlabelled.prediction.tolist() == table.prediction.tolist()[:5] and np.isnan(unlabelled.loss).all()
    assert not unlabelled.has_answers
    file.write_text("the\tO\ncat\tB-ANIMAL\nsat\tB-VERB\n")
    with pytest.raises(Refused, match=r"has the tags 'B-ANIMAL' \(.*\) and 'B-VERB' \(.* its tags are O, B-PER"):
        evaluate_file(file, tmp_path / "c.csv", model, EvaluationSettings("tag", tags="last"))


def test_answers_of_squad_are_evaluated(tiny_reader_folder: Path, tmp_path: Path) -> None:
    """The expected span and the best one, and no answer, with the probabilities of `capture`."""
    context = "the old cat sat on the mat . a dog ran in the house ."
    questions = [
        {"id": "1", "question": "who sat", "answers": [{"text": "the old cat", "answer_start": 0}]},
        {"id": "2", "question": "who is small", "is_impossible": True, "answers": []},
    ]
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}))
    table = evaluated(file, tmp_path / "out.csv", str(tiny_reader_folder), EvaluationSettings("span"))
    assert table.answer.tolist() == ["the old cat", "no answer"] and table.pair.tolist() == [context] * 2
    loaded = load(str(tiny_reader_folder), device="cpu")
    for index in range(2):
        encoding = loaded.tokenizer.encode(table.text[index], table.pair[index])
        spans = capture(loaded, encoding).spans
        assert spans is not None
        begin = encoding.tokens.index("[SEP]") + 1
        first, last = (begin, begin + 2) if index == 0 else (0, 0)
        expected = float(spans.start[first]) * float(spans.end[last])
        assert table.probability[index] == pytest.approx(expected, rel=1e-3)
        assert table.loss[index] == pytest.approx(-math.log(expected), rel=1e-3)
        assert table.prediction[index] in (context if index == 0 else f"{context} no answer")


def test_surprise_is_the_mean_pseudo_log_likelihood(
    tiny_model_folder: Path, tiny_loaded: LoadedModel, tmp_path: Path
) -> None:
    """Of every token but [CLS] and [SEP], each masked alone; texts with a [MASK] are left out."""
    file, out = tmp_path / "texts.txt", tmp_path / "out.csv"
    file.write_text("\n".join([*SENTENCES, "the [MASK] sat", "", SENTENCES[0]]) + "\n")
    result = evaluate_file(file, out, str(tiny_model_folder), EvaluationSettings("surprise"), device="cpu")
    assert (result.counts["texts"], result.counts["with a mask"], result.counts["empty"]) == (5, 1, 1)
    table = read_evaluation(out)
    assert table.row.tolist() == [0, 1, 2, 3, 6] and not table.has_answers
    for index in range(len(table)):
        score = pseudo_log_likelihood(tiny_loaded, tiny_loaded.tokenizer.encode(table.text[index]))
        assert table.loss[index] == pytest.approx(-np.nanmean(score.log_probabilities), rel=1e-4)


@pytest.mark.parametrize("question", ["class", "word", "surprise"])
def test_texts_in_memory_give_the_table_of_the_file(
    tiny_classifier_folder: Path, tmp_path: Path, question: str
) -> None:
    """`evaluate_texts` on the lines of a file, with reports of its progress; a changed text changes only its row."""
    file = class_file(tmp_path / "rows.csv", 40)
    if question == "word":
        file.write_text(file.read_text().replace("cat", "[MASK]").replace("dog", "[MASK]"))
    columns = Columns("review", answer="kind" if question == "class" else None)
    settings = EvaluationSettings(question, columns=columns)
    table = evaluated(file, tmp_path / "out.parquet", str(tiny_classifier_folder), settings)
    loaded = load(str(tiny_classifier_folder), device="cpu")
    lines = lines_to_evaluate(file, loaded, settings)
    shares: list[float | None] = []
    result = evaluate_texts(loaded, lines, settings, lambda share, _="": shares.append(share))
    assert_same_table(result, table)
    assert shares == sorted(shares) and shares[-1] == 1  # type: ignore[type-var]
    changed = evaluate_texts(loaded, [lines[0]._replace(text="a [MASK]" if question == "word" else "a dog")], settings)
    assert (len(changed) == 1 and changed.loss[0] != table.loss[0]) or question == "word"


def test_an_interrupted_evaluation_resumes(tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """After the first shard, with a part that was written and not counted: the same bytes as without interruption."""
    file = class_file(tmp_path / "rows.csv", 600)
    settings = EvaluationSettings("class", columns=Columns("review", answer="kind"))
    for ending in (".csv", ".parquet"):
        whole, out = tmp_path / f"whole{ending}", tmp_path / f"out{ending}"
        evaluate_file(file, whole, str(tiny_classifier_folder), settings, device="cpu")
        steps = iter_evaluation(file, out, str(tiny_classifier_folder), settings, device="cpu")
        counts, share = next(steps)
        assert counts["texts"] == 256 and 0 < share < 1
        steps.close()
        parts = Path(f"{out}.parts")
        assert not out.exists() and len(list(parts.glob(f"0*{ending}"))) == 1
        (parts / f"00000001{ending}").write_bytes(b"incomplete")
        result = evaluate_file(file, out, str(tiny_classifier_folder), settings, device="cpu")
        assert out.read_bytes() == whole.read_bytes() and not parts.exists() and not result.was_complete
        assert evaluate_file(file, out, str(tiny_classifier_folder), settings, device="cpu").was_complete
        with pytest.raises(Refused, match="holds another result"):
            evaluate_file(file, out, str(tiny_classifier_folder), replace(settings, max_length=5), device="cpu")


def test_other_columns_are_limited(tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """The first 50, without the text and the answer; long values end in an ellipsis and are counted."""
    names = [f"c{number}" for number in range(60)]
    file = tmp_path / "rows.jsonl"
    rows = [{"review": "the cat", "kind": "pet"} | dict.fromkeys(names, "x" * 150), {"review": "a dog", "kind": "pet"}]
    rows[0]["c1"] = "y" * 300
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = EvaluationSettings("class", columns=Columns("review", answer="kind"))
    out = tmp_path / "out.csv"
    result = evaluate_file(file, out, str(tiny_classifier_folder), settings, device="cpu")
    table = read_evaluation(out)
    assert list(table.columns) == names[:MAX_OTHER_COLUMNS] and result.counts["shortened values"] == 1
    assert table.columns["c1"].tolist() == ["y" * 199 + "…", ""] and table.columns["c2"][0] == "x" * 150


def test_what_cannot_be_evaluated_is_one_sentence(
    tiny_model_folder: Path, tiny_classifier_folder: Path, tmp_path: Path
) -> None:
    """Unknown classes with both lists, models that predict numbers or several classes, and unsuitable settings."""
    file, out = class_file(tmp_path / "rows.csv", 4), tmp_path / "out.csv"
    settings = EvaluationSettings("class", columns=Columns("review", answer="kind"))
    with pytest.raises(Refused, match="has no trained classifier"):
        evaluate_file(file, out, str(tiny_model_folder), settings)
    content = file.read_text()
    file.write_text(content.replace("pet", "animal").replace("ruler", "monarch"))
    message = r"has the classes 'animal' \(rows 2, 4\) and 'monarch' \(rows 3, 5\), .*: its classes are pet, ruler, "
    with pytest.raises(Refused, match=message):
        evaluate_file(file, out, str(tiny_classifier_folder), settings)
    loaded = load(str(tiny_classifier_folder), device="cpu")
    with pytest.raises(Refused, match="the answer 'animal' does not exist: the model has pet, ruler and"):
        evaluate_texts(loaded, [Line(1, "the cat", answer="animal")], settings)
    for problem_type, reason in (("regression", "predicts a number"), ("multi_label_classification", "does not give")):
        folder = shutil.copytree(tiny_classifier_folder, tmp_path / problem_type)
        config = json.loads((folder / "config.json").read_text()) | {"problem_type": problem_type}
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(Refused, match=f"{reason}.*: only classes that exclude each other can be evaluated"):
            evaluate_file(file, out, str(folder), settings, device="cpu")
    for values, message in (
        ({"question": "colour"}, "question 'colour' is unknown"),
        ({"question": "next"}, "needs a column of second texts"),
        ({"question": "surprise", "word": "cat"}, "takes no word"),
        ({"question": "class", "word": "cat"}, "does not take the word"),
        ({"columns": ("a",)}, "the columns are"),
        ({"tags": "last"}, "label of tags"),
        ({"word": 3}, "word is 3"),
        ({"max_length": 2}, "max_length"),
    ):
        with pytest.raises(Refused, match=message):
            EvaluationSettings(**values)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="rows is empty"):
        evaluate_texts(loaded, [], settings)
    with pytest.raises(Refused, match="no \\[MASK\\]"):
        evaluate_texts(loaded, [Line(1, "the cat", answer="cat")], EvaluationSettings("word"))
    text = tmp_path / "plain.txt"
    text.write_text("the cat sat\n")
    with pytest.raises(Refused, match=r"none of 1 lines of plain\.txt could be evaluated: 1 without the"):
        evaluate_file(text, out, str(tiny_classifier_folder), EvaluationSettings("word"), device="cpu")
    assert isinstance(STUDY, ShardStudy) and set(EVALUATION_LOSSES) > {"class", "word", "surprise"}


# ---------------------------------------------------------------------------- reading


def test_a_table_of_explanations_is_read(tiny_classifier_folder: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Texts are rebuilt from words, and each target has the loss of its probability, as in an evaluation."""
    file = class_file(tmp_path / "rows.csv", 10)
    file.write_text(file.read_text().replace("=web", "the old door").replace("paper", "a cat"))
    columns = Columns("review", "source", "kind")
    explained, evaluation = tmp_path / "explained.csv", tmp_path / "evaluated.csv"
    methods = ("gradient x attention",)
    model = str(tiny_classifier_folder)
    list(iter_explanations(file, explained, model, ExplainSettings("class", methods, columns=columns), device="cpu"))
    table = read_evaluation(explained)
    expected = evaluated(file, evaluation, model, EvaluationSettings("class", columns=columns))
    assert table.question == "class" and table.text.tolist() == expected.text.tolist()
    assert table.pair.tolist() == expected.pair.tolist() and set(table.pair) == {"the old door", "a cat"}
    assert table.row.tolist() == expected.row.tolist() and table.answer.tolist() == expected.answer.tolist()
    np.testing.assert_allclose(table.loss, expected.loss, rtol=1e-4)
    assert not table.has_answers and np.isnan(analysis.summary(table).accuracy)
    masked = tmp_path / "masked.txt"
    masked.write_text("the cat [MASK] on the mat\n")
    out = tmp_path / "masked.parquet"
    list(iter_explanations(masked, out, str(tiny_model_folder), ExplainSettings("word", methods, "sat"), device="cpu"))
    table = read_evaluation(out)
    assert table.text.tolist() == ["the cat [MASK] on the mat"] and table.answer.tolist() == ["sat"]
    assert table.position.tolist() == [3]


def test_other_files_are_refused(tmp_path: Path) -> None:
    """Tables of other kinds, damaged files, unusable values: one sentence each."""
    columns = {
        "question": ["class"], "row": [2], "text": ["a"], "pair": [""], "position": [-1], "answer": ["x"],
        "prediction": ["x"], "probability": [0.5], "confidence": [0.5], "loss": [0.7],
    }  # fmt: skip
    for ending in (".csv", ".parquet", ".CSV", ".PARQUET"):
        path = tmp_path / f"table{ending}"
        write_columns(columns, path)
        assert read_evaluation(path).answer.tolist() == ["x"]
        for changes, message in (
            ({"question": ["colour"]}, "'colour' in the column 'question'"),
            ({"loss": ["much"]}, "not a whole table"),
            ({"row": [None]}, "empty value in the column 'row'|not a whole table"),
        ):
            write_columns({**columns, **changes}, path)
            with pytest.raises(Refused, match=message):
                read_evaluation(path)
        write_columns({"text": ["a"], "label": ["b"]}, path)
        with pytest.raises(Refused, match="has no column 'question': a table of `headlight evaluate-file` or"):
            read_evaluation(path)
        path.write_bytes(b"PAR1 and nothing")
        with pytest.raises(Refused):
            read_evaluation(path)
    with pytest.raises(Refused, match="must end in"):
        read_evaluation(tmp_path / "table.txt")
    with pytest.raises(Refused):
        read_evaluation(tmp_path / "missing.csv")


def test_texts_that_look_like_formulas_come_back(tmp_path: Path) -> None:
    """Texts, labels and columns with formulas, quotes, new lines and apostrophes are the same from both formats."""
    texts = ["=1+1", "'=1", "''+2", "it's", "a,b", 'say "no"', "two\nlines", "", " -x", "＝1", "é日🙂", "-", "'"]
    count = len(texts)
    columns = {
        "question": ["class"] * count, "row": list(range(count)), "text": texts, "pair": texts[::-1],
        "position": [-1] * count, "answer": texts, "prediction": texts, "probability": [None, *[0.25] * (count - 1)],
        "confidence": [0.5] * count, "loss": [None, math.inf, *[1.5] * (count - 2)], "note": texts,
    }  # fmt: skip
    tables = []
    for ending in (".csv", ".parquet"):
        write_columns(columns, tmp_path / f"table{ending}")
        tables.append(read_evaluation(tmp_path / f"table{ending}"))
    assert tables[0] == tables[1] and tables[0].columns["note"].tolist() == texts == tables[0].text.tolist()
    assert math.isnan(tables[0].loss[0]) and tables[0].loss[1] == math.inf and tables[0].loss[2] == 1.5


def test_a_model_of_another_size_reads_fewer_tokens(tiny_classifier_folder: Path) -> None:
    """The maximum length is at most that of the model."""
    loaded = load(str(tiny_classifier_folder), device="cpu")
    assert STUDY.checked_settings(loaded, EvaluationSettings(max_length=10_000)).max_length == 512
    assert checkpoint.read_config(tiny_classifier_folder).max_position_embeddings == 512
