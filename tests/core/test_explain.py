"""Every text of a file explained: the table has what the library says of each text, and totals by word are its sums."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core import (
    Columns,
    ExplainSettings,
    LoadedModel,
    Refused,
    Target,
    capture,
    explained_rows,
    iter_explanations,
    load,
    read_totals,
    token_scores,
    word_target,
    word_totals,
)  # fmt: skip
from bert_core.studies import explain
from bert_core.studies.explanation_tables import totals_csv
from bert_core.studies.lines import Shard
from bert_core.studies.runner import ResumePoint, StateFile
from tests.near import assert_near

METHODS = ("gradient x attention", "occlusion")
SENTENCES = ["the cat sat on the mat", "a dog ran in the house", "the king saw the old door , a cat", "she is small"]


def table(path: Path, rows: int = 70) -> Path:
    """A table of texts with a class each, in more than one shard."""
    lines = [f'"{SENTENCES[n % 4]} {n % 9}",{("pet", "ruler")[n % 2]},it was {n % 5}' for n in range(rows)]
    path.write_text("\n".join(["review,kind,second", *lines]) + "\n")
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    """All rows of a table of explanations."""
    return [
        dict(zip(batch, row, strict=True))
        for batch in explained_rows(path)
        for row in zip(*batch.values(), strict=True)
    ]


def done(*given: Any, **more: Any) -> Any:
    """What is counted at the end."""
    *_, (counts, share) = iter_explanations(*given, device="cpu", **more)
    assert share == 1
    return counts


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("labelled", [False, True])
def test_each_row_is_what_the_library_says(
    tiny_classifier_folder: Path, tmp_path: Path, ending: str, labelled: bool
) -> None:
    """Of the class that the model says, or of the one in a column; each token once, in the order of the file."""
    file, out = table(tmp_path / "rows.csv", 40), tmp_path / f"out{ending}"
    settings = ExplainSettings("class", METHODS, columns=Columns("review", answer="kind" if labelled else None))
    counts = done(file, out, str(tiny_classifier_folder), settings)
    loaded = load(str(tiny_classifier_folder), device="cpu")
    rows = iter(rows_of(out))
    tokens = 0
    for number in range(40):
        encoding = loaded.tokenizer.encode(f"{SENTENCES[number % 4]} {number % 9}")
        classes = capture(loaded, encoding).classes
        assert classes is not None
        label = ("pet", "ruler")[number % 2] if labelled else loaded.labels[int(classes.logits.argmax())]
        target = Target("class", label=loaded.labels.index(label))
        expected = token_scores(loaded, encoding, target, METHODS)
        assert classes.probabilities is not None
        for position in range(len(encoding)):
            row = next(rows)
            assert (row["text"], row["position"], row["asked"]) == (number + 2, position, label)
            assert row["token"] == encoding.tokens[position] and row["side"] == (encoding.sides[position] or "")
            assert (row["start"], row["end"]) == encoding.offsets[position]
            assert_near([row[name] for name in METHODS], expected[:, position], of=np.abs(expected).max())
            assert_near(row["probability"], classes.probabilities[target.label], 1e-4)  # a share errs as logits do
            tokens += 1
    assert next(rows, None) is None
    assert (counts["texts"], counts["tokens"], counts["lines"]) == (40, tokens, 40)
    assert not Path(f"{out}.parts").exists()


def test_words_guesses_and_what_follows_are_explained(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """A word for all, a word from a column, the guess, and B follows A; texts that cannot be asked are counted."""
    text, out = tmp_path / "text.txt", tmp_path / "out.csv"
    text.write_text("the cat [MASK] on the mat\n\nno gap is here\nthe [MASK] door\n")
    counts = done(text, out, str(tiny_model_folder), ExplainSettings("word", METHODS, "sat"))
    assert (counts["texts"], counts["without the word"], counts["empty"]) == (2, 1, 1)
    encoding = tiny_loaded.tokenizer.encode("the cat [MASK] on the mat")
    expected = token_scores(tiny_loaded, encoding, word_target(tiny_loaded.tokenizer, encoding, "sat"), METHODS)
    rows = rows_of(out)
    assert [row["text"] for row in rows] == [0] * len(encoding) + [3] * 5
    assert_near([row["occlusion"] for row in rows[: len(encoding)]], expected[1], of=np.abs(expected[1]).max())
    assert [row["word"] for row in rows[: len(encoding)]] == ["", "the", "cat", "", "on", "the", "mat", ""]
    guessed = tmp_path / "guessed.csv"
    done(text, guessed, str(tiny_model_folder), ExplainSettings("word", METHODS))
    best = capture(tiny_loaded, encoding, top_k=1).predictions[0].top[0][0]
    assert rows_of(guessed)[0]["asked"] == tiny_loaded.tokenizer.token_of(best)
    pairs = table(tmp_path / "pairs.csv", 5)
    follows = tmp_path / "follows.parquet"
    done(pairs, follows, str(tiny_model_folder), ExplainSettings("next", METHODS, columns=Columns("review", "second")))
    assert {row["asked"] for row in rows_of(follows)} == {"follows"}
    assert {row["side"] for row in rows_of(follows)} == {"", "A", "B"}


def test_words_at_several_groups_of_masks_are_explained_each(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """One word for each group is one target each; another number of words is counted under its own reason."""
    texts, out = tmp_path / "texts.csv", tmp_path / "out.csv"
    text = "the [MASK] saw the [MASK]"
    texts.write_text(f"text,word\n{text},king door\n{text},king\n{text},king of paris\nno gap,king\n")
    columns = Columns("text", answer="word")
    counts = done(texts, out, str(tiny_model_folder), ExplainSettings("word", METHODS, columns=columns))
    assert (counts["texts"], counts["questions"]) == (1, 2)
    assert (counts["other number of words"], counts["without the word"]) == (2, 1)
    encoding = tiny_loaded.tokenizer.encode(text)
    rows = rows_of(out)
    for word, position in (("king", 2), ("door", 5)):
        target = word_target(tiny_loaded.tokenizer, encoding, word, position=position)
        expected = token_scores(tiny_loaded, encoding, target, METHODS)
        scores = [row["occlusion"] for row in rows if row["asked"] == word]
        assert_near(scores, expected[1], of=np.abs(expected[1]).max())


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_run_that_was_stopped_gives_the_same_bytes(
    tiny_classifier_folder: Path, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first of three shards, and once in the middle of the second, after its part was written."""
    file, whole, out = table(tmp_path / "rows.csv"), tmp_path / f"whole{ending}", tmp_path / f"out{ending}"
    settings = ExplainSettings("class", METHODS, columns=Columns("review"))
    given = (str(tiny_classifier_folder), settings)
    done(file, whole, *given)
    running = iter_explanations(file, out, *given, device="cpu")
    next(running)
    running.close()
    write = StateFile.write

    def killed(state: StateFile, place: ResumePoint, *values: Any) -> None:
        if place.number == 2:
            raise KeyboardInterrupt
        write(state, place, *values)

    with monkeypatch.context() as patched:
        patched.setattr(StateFile, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            list(iter_explanations(file, out, *given, device="cpu"))
    assert Path(f"{out}.parts").is_dir() and not out.exists()
    with pytest.raises(Refused, match="holds a run with other settings"):
        done(file, out, given[0], ExplainSettings("class", ("occlusion",), columns=Columns("review")))
    read: list[int] = []

    def counted(loaded: LoadedModel, shard: Shard, asked: ExplainSettings) -> Any:
        read.append(shard.number)
        return explain.explain_shard(loaded, shard, asked)

    monkeypatch.setattr(explain, "STUDY", replace(explain.STUDY, measure=counted))
    done(file, out, *given)
    assert read == [1, 2] and out.read_bytes() == whole.read_bytes()


def test_totals_are_the_sums_of_the_table(tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """By answer, method and word: texts, mean and standard error, counted by hand from the rows."""
    file, out = table(tmp_path / "rows.csv"), tmp_path / "out.csv"
    done(file, out, str(tiny_classifier_folder), ExplainSettings("class", METHODS, columns=Columns("review")))
    by_text: dict[tuple[str, str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows_of(out):
        for method in METHODS:
            if row["word"]:
                by_text[row["asked"], method, row["word"]][row["text"]] += row[method]
    totals = word_totals(out, min_texts=2)
    several = {key for key, found in by_text.items() if len(found) > 1}
    assert {(one.asked, one.method, one.word) for one in totals} == several
    largest = max(abs(one.mean) for one in totals)
    for one in totals:
        values = list(by_text[one.asked, one.method, one.word].values())
        assert one.texts == len(values)
        assert_near(one.mean, np.mean(values), of=largest)
        assert_near(one.error, np.std(values, ddof=1) / math.sqrt(len(values)), 1e-4, of=largest)
    of_one = [one.mean for one in totals if (one.asked, one.method) == (totals[0].asked, METHODS[0])]
    assert of_one == sorted(of_one, reverse=True)
    written = tmp_path / "out.words.csv"
    written.write_text(totals_csv(totals))
    assert read_totals(written) == totals == read_totals(out, min_texts=2)
    assert read_totals(written, min_texts=3) == [one for one in totals if one.texts >= 3]


def test_broken_totals_are_named(tmp_path: Path) -> None:
    """A number that is none, and totals that cannot be."""
    file = tmp_path / "out.words.csv"
    for row in ("good,DecompX,nice,many,0.1,0.1", "good,DecompX,nice,0,0.1,0.1", "good,DecompX,nice,3,nan,0.1"):
        file.write_text(f"asked,method,word,texts,mean,error\n{row}\n")
        with pytest.raises(Refused, match=r"the totals of 'nice' in out\.words\.csv"):
            read_totals(file)


CLUSTER = """
import os, signal, sys
from pathlib import Path
import ray
from bert_core import Columns, ExplainSettings, iter_explanations

file, out, model = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

@ray.remote
def who() -> int:
    return os.getpid()

settings = ExplainSettings("class", ("gradient x attention", "occlusion"), columns=Columns("review"))
killed = 0
for counts, _ in iter_explanations(Path(file), Path(out), model, settings, engine="ray", device="cpu"):
    if not killed:
        killed = ray.get(who.remote())
        os.kill(killed, signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_cluster_writes_the_same_table_though_a_worker_dies(tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """Two workers, one of them killed: the same rows in the same order."""
    file, here, there = table(tmp_path / "rows.csv", 200), tmp_path / "here.csv", tmp_path / "there.csv"
    settings = ExplainSettings("class", METHODS, columns=Columns("review"))
    done(file, here, str(tiny_classifier_folder), settings)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "RAY_USAGE_STATS_ENABLED": "0"}
    run = subprocess.run(
        [sys.executable, "-c", CLUSTER, file, there, tiny_classifier_folder],
        env=environment, cwd=root, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    ours, theirs = rows_of(here), rows_of(there)
    where = ("text", "position", "asked")
    assert [[row[name] for name in where] for row in theirs] == [[row[name] for name in where] for row in ours]
    for name in METHODS:
        expected = np.array([row[name] for row in ours])
        assert_near([row[name] for row in theirs], expected, of=np.abs(expected).max())


def refusals(tmp_path: Path, plain: str, classes: str) -> Iterator[tuple[Any, str]]:
    """What cannot be, and a part of what is said."""
    file, text, out = table(tmp_path / "rows.csv", 4), tmp_path / "text.txt", tmp_path / "out.csv"
    text.write_text("no gap is here\n")
    of = ExplainSettings
    yield lambda: of("what"), "asked 'what' is unknown"
    yield lambda: of(methods=()), "methods is empty"
    yield lambda: of(methods=("what",)), "method 'what' is unknown"
    yield lambda: of("next"), "needs a column of second texts"
    yield lambda: of("class", word="cat"), "the question 'class' does not take the word 'cat'"
    yield lambda: done(file, out, plain, of("class", METHODS)), "has no trained classifier"
    yield lambda: done(file, tmp_path / "out.txt", classes), "must end in .csv or .parquet"
    yield lambda: done(tmp_path / "none.csv", out, classes), "there is no file"
    yield lambda: done(file, out, classes, of(columns=Columns("what"))), "the column 'what' is not in"
    other = of(columns=Columns("review", answer="second"))
    yield lambda: done(file, out, classes, other), "which the model does not have"
    yield lambda: done(file, out, classes, engine="what"), "engine 'what' is unknown"
    yield lambda: done(text, out, plain, of("word", METHODS)), "none of 1 lines of text.txt could be explained"
    yield lambda: done(text, out, classes, of(max_length=4096)), "max_length is 4096"
    yield lambda: list(explained_rows(file)), "has no column 'text'"


def test_what_cannot_be_is_refused(tiny_model_folder: Path, tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """In one sentence, and nothing is left behind."""
    for ask, says in refusals(tmp_path, str(tiny_model_folder), str(tiny_classifier_folder)):
        with pytest.raises(Refused, match=says):
            ask()
        assert not (tmp_path / "out.csv").exists(), says
        shutil.rmtree(tmp_path / "out.csv.parts", ignore_errors=True)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_broken_table_is_named(tiny_classifier_folder: Path, tmp_path: Path, ending: str) -> None:
    """Cut short, without scores, or with words for numbers."""
    file, out = table(tmp_path / "rows.csv", 3), tmp_path / f"out{ending}"
    done(file, out, str(tiny_classifier_folder), ExplainSettings("class", METHODS, columns=Columns("review")))
    with pytest.raises(Refused, match="exists and holds another result: choose another name, or overwrite"):
        done(file, out, str(tiny_classifier_folder), ExplainSettings("class", columns=Columns("review")))
    broken = tmp_path / f"broken{ending}"
    broken.write_bytes(out.read_bytes()[:900] + b"\n")
    with pytest.raises(Refused, match=r"broken\.(csv|parquet)"):
        list(explained_rows(broken))
    if ending == ".csv":
        broken.write_text(out.read_text().replace(",0,", ",x,", 1))
        with pytest.raises(Refused, match="contains a value that is not a number"):
            list(explained_rows(broken))
