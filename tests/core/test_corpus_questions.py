"""What can be asked of every text of a file: one word, a class, what follows; and what stands in for a head."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_core
from bert_core import Columns, Encoding, LoadedModel, ModelRun, Target, ablate_heads, capture, iter_heads, word_target
from bert_core.studies import runner
from bert_core.studies.heads import IS_NEXT, NOT_NEXT, HeadSums, draw_pairs, reading_note
from bert_core.studies.lines import MAX_LINE_BYTES, SHARD_LINES, Line, line_shards
from bert_core.studies.rows import row_shards
from bert_core.studies.settings import CorpusSettings
from tests.core.test_corpus import last
from tests.near import assert_near

pytestmark = pytest.mark.slow


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def without(loaded: LoadedModel, layer: int, head: int) -> np.ndarray:
    """Every gate open but one."""
    gates = np.ones((loaded.config.num_hidden_layers, loaded.config.num_attention_heads), np.float32)
    gates[layer, head] = 0
    return gates


def check_against_capture(
    loaded: LoadedModel, total: HeadSums, asked: list[tuple[Encoding, Target]], loss: Callable[[ModelRun], float]
) -> None:
    """Loss, importance and what removal costs are those of each text alone, by `capture` with a gate at zero.

    asked: each text with a target of which the loss falls as it rises, in nats: a log-probability.
    """
    table = total.table("m")
    assert table.texts == len(asked)
    base = [loss(capture(loaded, encoding, target=target)) for encoding, target in asked]
    assert_near(table.loss, np.mean(base))
    for layer, head in ((0, 1), (1, 2)):
        gone = [
            loss(capture(loaded, encoding, target=target, head_mask=without(loaded, layer, head)))
            for encoding, target in asked
        ]
        assert_near(table.figures["loss_change"][layer, head], np.mean(gone) - np.mean(base), of=np.mean(base))
        step = without(loaded, layer, head)
        step[layer, head] = 1 - 1e-2
        down = [loss(capture(loaded, encoding, target=target, head_mask=step)) for encoding, target in asked]
        step[layer, head] = 1 - 2e-2
        lower = [loss(capture(loaded, encoding, target=target, head_mask=step)) for encoding, target in asked]
        slopes = [abs(3 * b - 4 * d + e) / 2e-2 for b, d, e in zip(base, down, lower, strict=True)]
        assert table.figures["importance"][layer, head] == pytest.approx(np.mean(slopes), rel=0.05, abs=2e-3)


def test_one_word_for_every_line(tmp_path: Path, tiny_loaded: LoadedModel, tiny_model_folder: Path) -> None:
    """--word asks for it at the [MASK] of each line; a line without one is counted, and left out of everything."""
    lines = ("the [MASK] sat on the mat", "a dog ran", "she saw the [MASK]", "the [MASK] ran to the [MASK]")
    path = write(tmp_path / "gaps.txt", *lines)
    total = last(path, tiny_model_folder, CorpusSettings(loss="word", word="cat"))
    assert total.counts["without the word"] == 1 and total.counts["texts"] == 2
    note = reading_note(total.counts)
    assert "2 of 4 lines were read: 1 without a [MASK] for each token of the word, 1 with several groups" in note
    encodings = [tiny_loaded.tokenizer.encode(line) for line in (lines[0], lines[2])]
    asked = [(encoding, word_target(tiny_loaded.tokenizer, encoding, "cat")) for encoding in encodings]
    check_against_capture(tiny_loaded, total, asked, lambda run: -run.target_value)


def test_a_column_names_the_word(tmp_path: Path, tiny_loaded: LoadedModel, tiny_model_folder: Path) -> None:
    """Each row's own word at its own [MASK]; a word of two pieces takes two, and its loss is the mean of theirs."""
    rows = ("the [MASK] sat on the mat,cat", '"she saw the [MASK] [MASK], the old one",catly', "he is [MASK],old")
    path = write(tmp_path / "gaps.csv", "text,word", *rows)
    settings = CorpusSettings(loss="word", columns=Columns("text", answer="word"))
    total = last(path, tiny_model_folder, settings)
    assert total.counts["hidden"] == 4
    asked, words = [], ("cat", "catly", "old")
    texts = ("the [MASK] sat on the mat", "she saw the [MASK] [MASK], the old one", "he is [MASK]")
    for text, word in zip(texts, words, strict=True):
        encoding = tiny_loaded.tokenizer.encode(text)
        asked.append((encoding, word_target(tiny_loaded.tokenizer, encoding, word)))

    def loss(run: ModelRun) -> float:
        return -run.target_value / max(1, len(run.target.pieces))

    check_against_capture(tiny_loaded, total, asked, loss)


def test_a_column_names_the_class(tmp_path: Path, tiny_classifier_folder: Path) -> None:
    """The loss is minus the log-probability of the row's own class, of a text or of a pair."""
    loaded = bert_core.load(str(tiny_classifier_folder), device="cpu")
    rows = (("the cat sat", "it was old", "pet"), ("the king went to london", "", "ruler"), ("a dog", "no", "ruler"))
    path = write(tmp_path / "t.csv", "a,b,kind", *(",".join(row) for row in rows))
    settings = CorpusSettings(loss="class", columns=Columns("a", "b", "kind"))
    total = last(path, tiny_classifier_folder, settings)
    asked = [(loaded.tokenizer.encode(a, b), Target("class", label=loaded.labels.index(kind))) for a, b, kind in rows]
    check_against_capture(loaded, total, asked, lambda run: -float(np.log(run.classes.probabilities[run.target.label])))


def test_what_follows(tmp_path: Path, tiny_loaded: LoadedModel, tiny_model_folder: Path) -> None:
    """Lines that follow each other are pairs, not over an empty line; half get a second text from elsewhere."""
    lines = [f"the {animal} sat on the {place} by the door" for animal in ("cat", "dog", "man", "king")
             for place in ("mat", "city", "river")]  # fmt: skip
    path = write(tmp_path / "text.txt", *lines[:6], "", *lines[6:])
    (shard,) = line_shards(path)
    pairs = draw_pairs(shard.lines, 0)
    assert [pair.number for pair in pairs] == [0, 1, 2, 3, 4, 7, 8, 9, 10, 11]
    for pair in pairs:
        at = lines.index(pair.text)
        assert (pair.pair == lines[at + 1]) == (pair.answer == IS_NEXT) and pair.pair != pair.text
    assert 2 <= sum(pair.answer == NOT_NEXT for pair in pairs) <= 8 and draw_pairs(shard.lines, 0) == pairs
    total = last(path, tiny_model_folder, CorpusSettings(loss="next"))
    strangers = sum(pair.answer == NOT_NEXT for pair in pairs)
    assert f"10 pairs from 13 lines were read, {strangers} of them with a second text from" in reading_note(
        total.counts
    )
    asked = [(tiny_loaded.tokenizer.encode(pair.text, pair.pair), Target("nsp")) for pair in pairs]

    def loss(run: ModelRun) -> float:
        follows = next(p for p in pairs if (p.text, p.pair) == (run.encoding.text, run.encoding.pair)).answer == IS_NEXT
        return float(np.log1p(np.exp(-run.target_value if follows else run.target_value)))

    check_against_capture(tiny_loaded, total, asked, loss)


def test_pairs_of_a_table(tmp_path: Path, tiny_model_folder: Path) -> None:
    """Rows are their own pairs; a stranger is the second text of another row, and one row alone has none."""
    rows = [Line(n, f"first {n}", f"second {n}") for n in range(2, 22)]
    pairs = draw_pairs(rows, 1)
    assert [pair.number for pair in pairs] == list(range(2, 22))
    assert all((pair.pair == f"second {pair.number}") == (pair.answer == IS_NEXT) for pair in pairs)
    assert {pair.answer for pair in pairs} == {IS_NEXT, NOT_NEXT}
    assert [pair.answer for pair in draw_pairs(rows[:1], 1)] == [IS_NEXT]
    path = write(tmp_path / "pairs.csv", "a,b", *(f"the cat {n},it was {n}" for n in range(40)))
    total = last(path, tiny_model_folder, CorpusSettings(ablation=False, loss="next", columns=Columns("a", "b")))
    assert total.counts["texts"] == 40 and total.counts["lines"] == 40


def test_rows_in_shards(tmp_path: Path) -> None:
    """The rows of a table in shards are its rows, those from any shard on are those of the whole; of a long text the
    beginning is read.
    """
    long = "word " * 100_000
    rows = [f'"text {n}, with\na new line",second {n},x' for n in range(70)] + [f"{long},short,y"]
    path = write(tmp_path / "t.csv", "a,b,c", *rows)
    columns = Columns("a", "b", "c")
    whole = list(row_shards(path, columns))
    assert [len(shard.lines) for shard in whole] == [SHARD_LINES, SHARD_LINES, 7]
    lines = [line for shard in whole for line in shard.lines]
    assert lines[1] == Line(3, "text 1, with\na new line", "second 1", "x")
    assert lines[-1].text == long[:MAX_LINE_BYTES] and whole[-1].counts == {"lines": 7, "overlong": 1}
    for number, before in enumerate(whole[:-1], 1):
        again = list(row_shards(path, columns, number=number, start=before.end, line=before.next_line))
        assert [shard.lines for shard in again] == [shard.lines for shard in whole[number:]]
    assert whole[-1].end == path.stat().st_size


def test_a_stopped_table_of_classes_goes_on(tmp_path: Path, tiny_classifier_folder: Path) -> None:
    """After one shard: the sums of a run that was never stopped, to the last bit."""
    rows = (f"the {'cat' if n % 2 else 'king'} sat by {n},{'pet' if n % 2 else 'ruler'}" for n in range(50))
    path = write(tmp_path / "t.csv", "text,kind", *rows)
    settings, state = CorpusSettings(loss="class", columns=Columns("text", answer="kind")), tmp_path / "state"
    whole = last(path, tiny_classifier_folder, settings)
    next(iter_heads(path, str(tiny_classifier_folder), settings, state=state, device="cpu"))
    resumed = last(path, tiny_classifier_folder, settings, state=state)
    assert resumed.counts == whole.counts and resumed.loss == whole.loss
    assert all((resumed.figures[name] == values).all() for name, values in whole.figures.items())


@pytest.mark.parametrize("method", ["mean", "resample"])
def test_what_stands_in_for_a_head(
    tmp_path: Path, tiny_loaded: LoadedModel, tiny_model_folder: Path, method: str
) -> None:
    """What removal costs by mean and resample is that of `ablate_heads`, text by text, padded together or not."""
    lines, reference = ("the [MASK] sat on the old mat", "a [MASK] ran"), ("she opened the door", "he said it was new")
    path = write(tmp_path / "gaps.txt", *lines)
    settings = CorpusSettings(False, loss="word", word="dog", method=method, reference=reference)
    table = last(path, tiny_model_folder, settings).table("m", settings)
    encode = tiny_loaded.tokenizer.encode
    changes = []
    for line in lines:
        encoding = encode(line)
        target = word_target(tiny_loaded.tokenizer, encoding, "dog")
        given = {"target": target, "method": method, "reference": [encode(text) for text in reference]}
        changes.append(-ablate_heads(tiny_loaded, encoding, **given).effect)
    assert (table.method, table.loss_of) == (method, "word")
    assert_near(table.figures["loss_change"], np.mean(changes, axis=0))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"loss": "sense"}, "the loss 'sense' is unknown: one of words, next, word, class"),
        ({"loss": "next", "importance": False, "ablation": False}, "has no effect without importance or ablation"),
        ({"loss": "class"}, "the loss 'class' needs a column of classes"),
        ({"loss": "word"}, "the loss 'word' needs either one word for all texts, or a column"),
        ({"loss": "word", "word": "a", "columns": Columns("a", None, "b")}, "the loss 'word' needs either one word"),
        ({"columns": Columns("a", None, "b")}, "the loss 'words' does not take the answer column 'b'"),
        ({"loss": "next", "columns": Columns("a")}, "the loss 'next' needs a column of second texts"),
        ({"method": "half"}, "method 'half' is unknown: one of zero, mean, resample"),
        ({"method": "mean"}, "method 'mean' needs a reference text"),
        ({"reference": ("a",)}, "method 'zero' needs no reference text"),
        ({"ablation": False, "method": "mean", "reference": ("a",)}, "method 'mean' has no effect without ablation"),
    ],
)
def test_questions_that_cannot_be(given: dict[str, Any], sentence: str) -> None:
    """What was given and what is allowed."""
    with pytest.raises(ValueError) as caught:
        CorpusSettings(**given)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("content", "settings", "sentence"),
    [
        ("text,kind\na cat,pet\na dog,\n,pet\n", {}, "3 rows of t.csv have an empty field in the column 'kind' (row 3"),
        ("text,kind\na cat,pet\na dog,moon\n", {}, "has the class 'moon' (row 3), which the model does not have: its classes are pet, ruler"),  # noqa: E501
        ("text,kind\n", {}, "t.csv has no rows: there is nothing to read"),
        ("text,sort\na,b\n", {}, "the column 'kind' is not in t.csv: its columns are text, sort"),
        ("text,kind\na,b,c\n", {}, "row 2 of t.csv has 3 fields and the header 2"),
        ("a,b\nx,\n", {"loss": "next", "columns": Columns("a", "b")}, "1 of 1 rows of t.csv have an empty field in the column 'b'"),  # noqa: E501
        ("a,b\nx,\n", {"loss": "word", "columns": Columns("a", answer="b")}, "1 of 1 rows of t.csv have an empty field in the column 'b'"),  # noqa: E501
        ("a [MASK]\n", {"loss": "word", "word": "☃☃", "columns": None}, "characters that are not in the vocabulary"),
    ],
)  # fmt: skip
def test_a_table_with_gaps_is_refused_before_work_begins(
    tmp_path: Path, tiny_classifier_folder: Path, content: str, settings: dict[str, Any], sentence: str
) -> None:
    """Missing and unknown labels, missing texts and columns: one sentence with their rows, and no state is left."""
    path, state = tmp_path / "t.csv", tmp_path / "state"
    path.write_text(content, encoding="utf-8")
    given = {"loss": "class", "columns": Columns("text", answer="kind"), **settings}
    with pytest.raises(ValueError) as caught:
        next(iter_heads(path, str(tiny_classifier_folder), CorpusSettings(**given), state=state, device="cpu"))
    assert sentence in str(caught.value) and not state.exists()


@pytest.mark.parametrize(
    ("loss", "given", "sentence"),
    [
        ("class", {"columns": Columns("text", answer="kind")}, "has no trained classifier"),
        ("next", {}, "has no trained next-sentence head"),
        ("words", {}, "has no trained masked-word head"),
    ],
)
def test_a_model_without_the_head_says_so(
    tmp_path: Path, tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, loss: str, given: dict[str, Any],
    sentence: str,
) -> None:  # fmt: skip
    """Before a text is read."""
    missing = {"next": "cls.seq_relationship.bias", "words": "cls.predictions.bias"}.get(loss)
    report = dataclasses.replace(tiny_loaded.report, missing=() if missing is None else (missing,))
    monkeypatch.setattr(runner, "load", lambda name, device: dataclasses.replace(tiny_loaded, report=report))
    runner._load_checked.cache_clear()
    with pytest.raises(ValueError, match=f"{sentence}: the loss cannot be computed"):
        next(iter_heads(write(tmp_path / "t.txt", "a cat"), "tiny", CorpusSettings(loss=loss, **given)))
    runner._load_checked.cache_clear()
