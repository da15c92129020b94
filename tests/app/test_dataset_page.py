"""The page Dataset without a browser: its numbers against scikit-learn, filters, order, the selected row and files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core.analysis.evaluation import confusion
from bert_core.records import EvaluatedTexts
from bert_core.studies.rows import Columns
from tests.visit import columns_of, exported_files, settled, visited, words
from viz_app.pages.dataset import rows, selected_row, sources
from viz_app.shell.controls import Upload

LARGE_ROWS = 5_000


def start(**address: str) -> AppTest:
    """The page as someone sees it who follows a link."""
    return finished(visited("dataset", **address))


def finished(app: AppTest) -> AppTest:
    """The page when its work is finished."""
    return settled(app, "stop_here")


def uploaded(upload: Upload, **address: str) -> AppTest:
    """The page with a file of the visitor."""
    app = start(**address)
    app.session_state[sources.UPLOAD] = upload
    return finished(app.run())


def list_of(app: AppTest) -> dict[str, list[object]]:
    """The rows of the list, without the edited copy below it."""
    return {str(name): list(values) for name, values in app.dataframe[0].value.items()}


def evaluated(count: int, seed: int = 0) -> EvaluatedTexts:
    """Random rows with three frequent answers and many rare ones, and a column with empty fields."""
    draw = np.random.default_rng(seed)
    names = np.array(["yes", "no", "maybe", *(f"rare {number}" for number in range(30))], object)
    weights = np.array([0.4, 0.3, 0.2, *[0.1 / 30] * 30])
    answers, predictions = (names[draw.choice(len(names), count, p=weights)] for _ in range(2))
    loss = draw.exponential(size=count)
    loss[draw.random(count) < 0.05] = np.nan
    return EvaluatedTexts(
        "class", "nats per text", np.arange(count) + 2, [f"Text {number} of {number % 7}" for number in range(count)],
        [""] * count, [-1] * count, answers, predictions, draw.random(count), draw.random(count), loss,
        {"topic": np.array(["", "a", "b"], object)[draw.integers(0, 3, count)]},
    )  # fmt: skip


def as_csv(table: EvaluatedTexts) -> bytes:
    """A table as `headlight evaluate-file` writes it."""
    file = io.StringIO()
    names = ["row", "text", "pair", "position", "answer", "prediction", "probability", "confidence", "loss"]
    columns = [getattr(table, name).tolist() for name in names]
    columns = [["" if value != value else value for value in column] for column in columns]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["question", *names, "topic"])
    writer.writerows(zip([table.question] * len(table), *columns, table.columns["topic"], strict=True))
    return file.getvalue().encode()


def test_it_opens_on_an_example_whose_counts_are_those_of_scikit_learn() -> None:
    """The matrix, the accuracy and the bars are counted again from the rows of all parts of the list."""
    app = start(row_order="row")
    assert not app.exception and not app.error
    pages = [list_of(app)]
    for number in range(2, 6):
        app.session_state.row_page = number
        pages.append(list_of(app.run()))
    assert [len(part["row"]) for part in pages] == [50, 50, 50, 50, 40]
    assert [row for part in pages for row in part["row"]] == list(range(2, 242))
    answers, predictions, conditions = (
        [v for part in pages for v in part[n]] for n in ("answer", "prediction", "condition")
    )
    key = next(name for name in columns_keys(app) if name.startswith("confusion"))
    figure_table = columns_of(app, key)
    labels = list(dict.fromkeys(figure_table["prediction"]))
    assert labels[-1] == "other" and set(labels[:-1]) == set(answers)
    grouped = [value if value in labels else "other" for value in predictions]
    expected = confusion_matrix(answers, grouped, labels=labels)
    assert not expected[-1].any()  # no answer is grouped, so that the figure has no such row
    assert np.reshape(figure_table["texts"], (-1, len(labels))).tolist() == expected[:-1].tolist()
    assert f"{np.trace(expected[:-1, :-1])} of 240 predictions are the expected answer" in words(app)
    bars = columns_of(app, next(name for name in columns_keys(app) if name.startswith("slices")))
    for label, share in zip(bars["label"], bars["Accuracy"], strict=True):
        members = [number for number, name in enumerate(conditions) if f"{name} (40)" == label]
        assert share == pytest.approx(
            accuracy_score(*([values[n] for n in members] for values in (answers, predictions)))
        )
    assert "How it can mislead" in words(app)


def columns_keys(app: AppTest) -> list[str]:
    """The keys of the figures of the page."""
    from viz_app.shell.view import VIEW

    return list(app.session_state[VIEW].figures)


@pytest.mark.parametrize(
    "row_filter",
    [
        rows.Filter("topic", None, "", "", "all", "", "loss"),
        rows.Filter("topic", "", "", "", "all", "", "confidence"),
        rows.Filter("topic", "a", "yes", "no", "all", "", "loss_up"),
        rows.Filter("topic", None, "other", "", "wrong", "", "row"),
        rows.Filter("topic", None, "", "yes", "correct", "of 3", "confidence_up"),
        rows.Filter("length", "0 to 4", "other", "other", "all", "text 1", "row"),
    ],
)
def test_a_filter_lists_the_rows_that_pass_it_in_its_order(row_filter: rows.Filter) -> None:
    """Against a loop over the rows in Python; rows without a loss come last."""
    table = evaluated(500)
    matrix = confusion(table, 3)

    def passes(number: int) -> bool:
        label = {name: name if name in matrix.labels[:-1] else "other" for name in table.labels}
        is_right = table.answer[number] == table.prediction[number]
        return all((
            row_filter.value in (None, "0 to 4") or table.columns["topic"][number] == row_filter.value,
            row_filter.answer in ("", label[table.answer[number]]),
            row_filter.prediction in ("", label[table.prediction[number]]),
            row_filter.outcome == "all" or (row_filter.outcome == "correct") == is_right,
            row_filter.text in table.text[number].lower(),
        ))  # fmt: skip

    name, descending = rows.ORDERS[row_filter.order]
    values = getattr(table, name)
    indices = rows.filtered_rows(table, matrix, row_filter)
    assert sorted(indices) == [number for number in range(500) if passes(number)] and len(indices)
    ordered = values[indices]
    present = ordered[~np.isnan(ordered)]
    assert np.isnan(ordered[len(present) :]).all()
    assert (np.diff(present) <= 0).all() if descending else (np.diff(present) >= 0).all()


def test_the_address_has_the_filter_the_part_and_the_row() -> None:
    """A link opens the same rows, and what it names that the table does not have is no filter."""
    app = start(expected="is", predicted="was", outcome="wrong", row_text="THE ", row_order="confidence")
    part = list_of(app)
    assert set(part["answer"]) == {"is"} and set(part["prediction"]) == {"was"}
    assert part["confidence"] == sorted(part["confidence"], reverse=True)
    matrix = columns_of(app, next(name for name in columns_keys(app) if name.startswith("confusion")))
    cells = zip(matrix["answer"], matrix["prediction"], matrix["texts"], strict=True)
    (count,) = (texts for answer, prediction, texts in cells if answer.startswith("is (") and prediction == "was")
    assert len(part["row"]) == count and f"1 to {count} of {count} texts" in words(app)
    sliced = start(slices="subject", slice="plural", row_page="2", data_row="7")
    assert set(list_of(sliced)["subject"]) == {"plural"} and "51 to 100 of" in words(sliced)
    impossible = start(expected="zebra", predicted="was", slices="nothing", slice="x", row_page="99")
    assert not impossible.exception and not impossible.error
    assert set(list_of(impossible)["prediction"]) == {"was"} and impossible.session_state.slices == "condition"
    without_rows = start(row_text="no such text")
    assert "No text passes" in words(without_rows)
    without_rows.button(key="clear_filters").click().run()
    assert "of 240 texts" in words(without_rows)


def test_the_address_has_a_column_of_slices_only_if_it_was_selected() -> None:
    """The column by which a table opens depends on the table, so it is the default of the parameter."""
    app = start()
    assert app.session_state.slices == "condition" and "slices" not in current_address(app)
    app.session_state.slices = "subject"
    app.run()
    assert current_address(app)["slices"] == "subject"
    everyday = start(dataset="everyday")
    assert everyday.session_state.slices == "kind" and "slices" not in current_address(everyday)


def current_address(app: AppTest) -> dict[str, object]:
    """The parameters in the address bar after a run."""
    return dict(app.query_params)


def test_heads_that_are_off_have_no_effect_and_the_page_says_so() -> None:
    """The numbers are those of the whole model."""
    plain, off = start(), start(off="0.0,1.1")
    assert "have no effect on this page" in words(off) and "have no effect on this page" not in words(plain)
    assert list_of(plain) == list_of(off)


def test_a_row_is_opened_on_another_page_with_its_target() -> None:
    """The text, the predicted word as the target and the expected one as the contrast."""
    app = start(expected="is", predicted="was")
    text = list_of(app)["text"][2]
    number = list_of(app)["row"][2] - 2
    app.session_state.data_row = number
    app.run()
    assert text in words(app)
    app.button(key="open_attention").click().run()
    state = finished(app).session_state
    assert not app.exception and "Attention" in [title.value for title in app.title]
    position = bert_core.load("headlight-mini").tokenizer.encode(text).mask_positions[0]
    assert (state.text, state.pair, state.target, state.contrast) == (text, "", f"{position}:was", "is")
    assert (state.expected, state.predicted, state.data_row) == ("is", "was", number)


@pytest.mark.parametrize(
    ("question", "answer", "prediction", "target", "contrast"),
    [
        ("word", "is", "is", "3:is", ""),
        ("word", "is", "was", "3:was", "is"),
        ("tag", "NOUN", "VERB", "tag:3:VERB", ""),
        ("class", "good", "bad", "class:bad", ""),
        ("class", "good", "", "class:good", ""),
        ("next", "follows", "from elsewhere", "nsp", ""),
        ("surprise", "", "", "", ""),
    ],
)
def test_the_target_of_a_row(question: str, answer: str, prediction: str, target: str, contrast: str) -> None:
    """What is predicted is explained; of words rather than the expected one."""
    row = EvaluatedTexts(question, "nats", [2], ["a"], ["b"], [3], [answer], [prediction], [0.1], [0.2], [0.3])
    example = selected_row.example_of(row)
    assert (example.text, example.pair, example.target, example.contrast) == ("a", "b", target, contrast)


def test_an_edited_copy_is_read_and_compared() -> None:
    """The values of the copy are those of the library; the button opens Compare with both texts."""
    app = start(row_order="row")
    text = list_of(app)["text"][0]
    changed = text.replace("The ", "All the ", 1).replace("the ", "the old ", 1)
    app.text_area(key="edited_text").set_value(changed).run()
    finished(app)
    values = app.dataframe[1].value
    loaded = bert_core.load("headlight-mini")
    run = bert_core.capture(loaded, loaded.tokenizer.encode(changed))
    token, confidence = run.predictions[0].top[0]
    edited = dict(zip(values[""], values["edited"], strict=True))
    assert edited["predicted"] == loaded.tokenizer.token_of(token)
    assert float(edited["p(predicted)"]) == pytest.approx(confidence, rel=0.06)  # two digits
    original = dict(zip(values[""], values["original"], strict=True))
    assert original["predicted"] == list_of(app)["prediction"][0]
    app.button(key="compare_edited").click().run()
    state = finished(app).session_state
    assert not app.exception and (state.text, state.other, state.against) == (text, changed, "text")


def test_a_copy_that_cannot_be_read_is_refused_in_one_sentence() -> None:
    """A text without a mask has no answer at it."""
    app = start()
    app.text_area(key="edited_text").set_value("No gap here.").run()
    assert "no [MASK]" in words(finished(app)) and not app.exception and not app.error


def test_a_table_is_evaluated_before_only_if_it_has_all_columns() -> None:
    """A table of the visitor may have columns named question, loss and prediction; the extension may be in capitals."""
    own = b"question,answer,loss,prediction\nThe cat [MASK] old.,is,1,a\nThe cats [MASK] old.,are,2,b\n"
    app = uploaded(Upload("own.CSV", own))
    assert not app.exception and not app.error and app.session_state.dataset_text == "question"
    assert "of 2 predictions are the expected answer" in words(app)
    table = evaluated(20)
    app = uploaded(Upload("table.CSV", as_csv(table)))
    assert not app.exception and not app.error and f"{table.is_correct.sum()} of 20 predictions" in words(app)


def as_upload(question: str, text: str, position: int, answer: str, prediction: str) -> Upload:
    """A table with one evaluated text."""
    numbers = [[0.5], [0.5], [0.7]]
    table = EvaluatedTexts(
        question, "nats", [2], [text], [""], [position], [answer], [prediction], *numbers, columns={"topic": ["a"]}
    )
    return Upload("table.csv", as_csv(table))


def test_an_edited_copy_of_a_table_is_read_by_the_selected_model() -> None:
    """The page says so; a word for each group of masks is needed, and the values are those at the place of the row."""
    app = uploaded(as_upload("word", "The [MASK] saw the [MASK].", 2, "king", "cat"))
    app.text_area(key="edited_text").set_value("The [MASK] saw an old [MASK].").run()
    assert "2 groups of [MASK]" in words(finished(app)) and "position" not in words(app)
    app.text_input(key="edited_answer").set_value("king door").run()
    finished(app)
    assert not app.exception and "original: from the table; edited: by" in words(app)
    values = app.dataframe[1].value
    assert dict(zip(values[""], values["edited"], strict=True))["expected"] == "king"


def test_an_answer_that_is_marked_in_a_file_is_not_edited() -> None:
    """The field would have no effect for tags."""
    app = uploaded(as_upload("tag", "The cat sat.", 1, "DET", "NOUN"))
    assert not app.exception and [field.key for field in app.text_area] == ["edited_text"]
    assert "edited_answer" not in [field.key for field in app.text_input]


def test_many_answers_are_shown_by_slice_first() -> None:
    """Everyday sentences have hundreds of words: the first figure is that of the slices, the matrix names eight."""
    app = start(dataset="everyday")
    keys = columns_keys(app)
    assert keys[0].startswith("slices_kind") and keys[1].startswith("confusion")
    assert len(set(columns_of(app, keys[1])["prediction"])) == sources_labels() + 1
    loss = start(dataset="everyday", slice_measure="loss")
    bars = columns_of(loss, columns_keys(loss)[0])
    assert "Mean loss (nats per word)" in bars and len(bars["label"]) == 10


def sources_labels() -> int:
    """The number of labels of a matrix of many answers."""
    from viz_app.pages.dataset.page import LABELS_OF_MANY

    return LABELS_OF_MANY


def test_an_own_table_is_evaluated_with_the_columns_that_it_has() -> None:
    """The columns are proposed by name, another file proposes its own, and the cost is stated if it is long."""
    content = "topic,Label,Sentence\nx,door,She opened the [MASK] and walked in.\ny,cat,The [MASK] says meow.\n"
    app = uploaded(Upload("own.csv", content.encode()))
    assert not app.exception and not app.error
    state = app.session_state
    assert (state.dataset_text, state.dataset_answer, state.dataset_pair) == ("Sentence", "Label", "")
    assert state.dataset_question == "word" and state.slices == "topic"
    part = list_of(app)
    assert sorted(part["answer"]) == ["cat", "door"] and sorted(part["row"]) == [2, 3]
    (control,) = (box for box in app.selectbox if box.label == "Predict")
    assert control.options == ["Word at the mask", "Surprisal of the text, without answers"]
    app.session_state[sources.UPLOAD] = Upload("plain.txt", b"The old cat sat.\nA queen saw the sea.\n")
    plain = finished(app.run())
    assert not plain.exception and not plain.error and plain.session_state.dataset_question == "surprise"
    assert "2 texts with a mean loss of" in words(plain) and "answer" not in list_of(plain)
    assert columns_keys(plain)[0].startswith("slices_length")
    assert "Confusion" not in words(plain) and exported_files(plain) == ["Listed texts (CSV)"]


def test_rows_that_are_left_out_are_counted() -> None:
    """The note has the counts of the library for each reason; without any left out there is no note."""
    content = (
        "text,answer\nThe cat [MASK] on the mat.,sat\nThe old cat sat.,cat\nThe cats [MASK] old.,unbelievably\n"
        "The [MASK] saw the [MASK].,king\nThe [MASK] saw the [MASK].,king door\n"
    )
    app = uploaded(Upload("partly.csv", content.encode()))
    assert not app.exception and not app.error and "rows were read" not in words(start())
    assert "2 of 5 rows were read: 2 without a [MASK] for each token of the word, 1 with several" in words(app)


def test_a_long_evaluation_states_its_cost_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is computed before the button is pressed."""
    monkeypatch.setattr(sources, "estimate_seconds", lambda *_: 100.0)
    lines = [f"The {name} [MASK] old.,is" for name in ("cat", "dog", "king")]
    app = uploaded(Upload("long.csv", "\n".join(["text,answer", *lines]).encode()))
    (button,) = (button for button in app.button if button.label.startswith("Evaluate 3 texts"))
    assert "about" in button.label


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("empty.csv", b"", "is empty"),
        ("damaged.parquet", b"PAR1 nothing", "damaged.parquet"),
        ("utf16.csv", b"text,answer\n\xff\xfe\xfa,is\n", "UTF-8"),
        ("short.csv", b"text,answer\nThe [MASK] sat.\n", "has 1 fields and the header 2"),
        ("none.csv", b"text,answer\nThe cat sat.,is\n", "[MASK]"),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_sentence(name: str, content: bytes, sentence: str) -> None:
    """The error stands in the place of the figure, and the file can be removed."""
    app = uploaded(Upload(name, content))
    assert not app.exception and sentence in words(app)
    assert "has a bug" not in words(app)
    app.button(key=f"{sources.UPLOAD}#away").click().run()
    assert "of 240 predictions" in words(finished(app))


def test_a_table_that_was_evaluated_before_needs_no_model() -> None:
    """Its rows and columns are read as they are; an empty field is a slice with its own name."""
    table = evaluated(300)
    app = uploaded(Upload("table.csv", as_csv(table)), row_order="loss")
    assert not app.exception and not app.error
    assert f"{table.is_correct.sum()} of 300 predictions" in words(app)
    losses = list_of(app)["loss"]
    np.testing.assert_allclose(losses, np.sort(table.loss[~np.isnan(table.loss)])[::-1][:50])
    app.session_state.slice = ""
    app.run()
    assert set(list_of(app)["topic"]) == {""}
    assert f"of {sum(table.columns['topic'] == '')} texts" in words(app)


@pytest.mark.slow
def test_only_one_part_of_a_large_table_is_sent() -> None:
    """Of thousands of rows the page has fifty, in each order."""
    app = uploaded(Upload("table.csv", as_csv(evaluated(LARGE_ROWS))))
    for order in rows.ORDERS:
        app.session_state.row_order = order
        app.run()
        assert len(list_of(app)["row"]) == rows.PAGE_ROWS and f"of {LARGE_ROWS:,} texts" in words(app)


def test_the_questions_are_those_of_the_model_and_the_columns(
    tiny_classifier_folder: Path, tiny_tagger_folder: Path, tiny_reader_folder: Path
) -> None:
    """A model without a head has no question of it; those that need an answer or a second text follow the columns."""
    text, with_answers = Columns("text"), Columns("text", answer="label")
    pair = Columns("text", "context")
    words = bert_core.load("headlight-mini")
    assert sources.possible_questions(words, with_answers) == ["word", "surprise"]
    assert sources.possible_questions(words, text) == sources.possible_questions(words, None) == ["surprise", "word"]
    assert sources.possible_questions(words, pair) == ["surprise", "word", "next"]
    classifier, tagger, reader = (
        bert_core.load(str(folder)) for folder in (tiny_classifier_folder, tiny_tagger_folder, tiny_reader_folder)
    )
    for columns in (None, text, with_answers):
        assert sources.possible_questions(classifier, columns)[0] == "class"
        assert "tag" in sources.possible_questions(tagger, columns)
        assert "span" not in sources.possible_questions(reader, columns)
    assert sources.possible_questions(reader, pair)[0] == "span"


TAGGED = "king\tB-PER\nsaw\tO\n\nparis\tI-PER\n"
SQUAD_QUESTION = {"id": "1", "question": "where was the king", "answers": [{"text": "the door", "answer_start": 17}]}
SQUAD = {"data": [{"paragraphs": [{"context": "the king ran to the door", "qas": [SQUAD_QUESTION]}]}]}


@pytest.mark.parametrize(
    ("head", "name", "content", "question", "columns", "tags", "answers"),
    [
        ("tagger", "names.conll", TAGGED, "tag", None, "last", ["B-PER", "O", "I-PER"]),
        ("tagger", "words.csv", "sentence,word,tag\n1,king,B-PER\n1,saw,O\n", "tag", None, "tag", ["B-PER", "O"]),
        ("tagger", "plain.txt", "the king\nsaw paris\n", "tag", None, "", [""] * 4),
        ("reader", "squad.json", json.dumps(SQUAD).replace("17", "16"), "span", None, "", ["the door"]),
        (
            "reader",
            "asked.csv",
            "text,context\nwhere was he,he ran to the door\n",
            "span",
            ("text", "context"),
            "",
            [""],
        ),
        ("classifier", "texts.csv", "text,topic\nthe king saw,a\nthe dog,b\n", "class", ("text", None), "", ["", ""]),
        ("classifier", "list.json", '[{"text": "the king"}, {"text": "a dog"}]', "class", ("text", None), "", ["", ""]),
    ],
)
def test_tags_answers_and_predictions_without_answers_are_those_of_the_library(
    head: str, name: str, content: str, question: str, columns: tuple[str, str | None] | None, tags: str,
    answers: list[str], tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The page evaluates a file as `evaluate_texts` does; without expected answers it shows the predictions."""
    folder: Path = request.getfixturevalue(f"tiny_{head}_folder")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = uploaded(Upload(name, content.encode()), model=str(folder))
    assert not app.exception and not app.error
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    settings = bert_core.EvaluationSettings(question, columns=columns and Columns(*columns), tags=tags)
    loaded = bert_core.load(str(folder))
    table = bert_core.evaluate_texts(loaded, bert_core.lines_to_evaluate(path, loaded, settings), settings)
    assert table.answer.tolist() == answers
    listed = list_of(app)
    order = {value: number for number, value in enumerate(listed["row"])}
    assert sorted(order) == sorted(set(table.row.tolist()))
    assert sorted(map(str, listed["prediction"])) == sorted(table.prediction.tolist())
    if any(answers):
        assert f"of {len(answers)} predictions are the expected answer" in words(app)
    else:
        assert f"{len(answers)} predictions, without expected answers" in words(app)
        bars = columns_of(app, next(key for key in columns_keys(app) if key.startswith("slices_prediction")))
        shares = [float(share) for share in bars["Share of the texts"]]
        assert shares == pytest.approx(sorted(shares_of_predictions(table), reverse=True))


@pytest.mark.parametrize("columns", ["sentence,word", "sentence,word,source"])
def test_a_table_of_words_is_one_of_texts_to_a_model_without_tags(columns: str) -> None:
    """Its columns are the text and the expected word."""
    values = dict(zip(columns.split(","), ("The boys [MASK] tired.", "were", "own"), strict=False))
    app = uploaded(Upload("cloze.csv", f"{columns}\n{','.join(values.values())}\n".encode()))
    assert not app.exception and not app.error
    assert "of 1 predictions are the expected answer" in words(app)


def shares_of_predictions(table: EvaluatedTexts) -> list[float]:
    """The share of each prediction of a table."""
    predictions = table.prediction.tolist()
    return [predictions.count(name) / len(predictions) for name in set(predictions)]


@pytest.mark.parametrize("name", ["reviews of may.csv", "reviews.csv"])
def test_the_name_of_a_file_is_shown_as_it_is(name: str) -> None:
    """A message about a file in Latin-1 names the file, the invalid byte and what is allowed."""
    app = uploaded(Upload(name, "text,answer\nThe caf\xe9 [MASK].,is\n".encode("latin-1")))
    message = (
        f"The file {name} is not UTF-8 (invalid byte 0xE9, as in files in Latin-1 or Windows-1252): save it as UTF-8."
    )
    assert message in words(app)


def test_the_examples_have_as_many_sentences_of_each_condition() -> None:
    """Six conditions of agreement, ten kinds of everyday sentences; each has one mask."""
    for upload, column, count in (
        (sources.agreement_example(), "condition", 40), (sources.everyday_example(), "kind", 20)
    ):  # fmt: skip
        entries = list(csv.DictReader(io.StringIO(upload.data.decode())))
        names: Sequence[str] = [entry[column] for entry in entries]
        assert {names.count(name) for name in names} == {count}
        assert all(entry["text"].count("[MASK]") == 1 and entry["answer"] for entry in entries)
        assert len(set(upload.data.splitlines())) == len(entries) + 1
    assert sources.TextSource(sources.agreement_example(), "word", Columns("text", answer="answer")).settings
