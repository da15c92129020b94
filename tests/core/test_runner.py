"""How studies run: known by content and weights, stopped and gone on with, alone in their place."""

from __future__ import annotations

import csv
import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bert_core import Columns, LoadedModel, Refused
from bert_core.fingerprint import fingerprint
from bert_core.studies import runner
from bert_core.studies.lines import Shard
from bert_core.studies.rows import row_shards
from bert_core.studies.runner import (
    ResumePoint,
    ShardRun,
    ShardStudy,
    SourceFile,
    StateFile,
    exclusive_lock,
    is_complete,
    is_locked,
    write_settings,
)
from bert_core.studies.texts import text_shards


@dataclass(frozen=True)
class Settings:
    """most: tokens of a text that are counted."""

    most: int = 8


def measure(loaded: LoadedModel, shard: Shard, settings: Settings) -> Counter[str]:
    """Texts and their tokens, the longest cut."""
    lengths = [len(loaded.tokenizer.encode(line.text)) for line in shard.lines]
    return Counter(texts=len(lengths), tokens=sum(min(length, settings.most) for length in lengths))


def check(loaded: LoadedModel, settings: Settings) -> None:
    """Raise Refused for settings that no model can be asked."""
    if settings.most < 1:
        raise Refused("most is 0: at least 1")


STUDY = ShardStudy(measure, check)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A text of three shards."""
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"the cat sat on the mat {number}\n" for number in range(80)), encoding="utf-8")
    return path


def counted(run: ShardRun[Settings, Counter[str]], state: Path | None, most: int | None = None) -> Counter[str]:
    """The sums of a run, from its state on. most: shards after which it stops."""
    kept = StateFile(state, run.identity())
    sums, place = Counter[str](), ResumePoint()
    if (before := kept.read()) is not None:
        place, values, _ = before
        sums = Counter(values)
    for number, (shard, part) in enumerate(
        run.measure_shards(text_shards(run.source.path, **place.shard_arguments)), 1
    ):
        sums, place = sums + part, ResumePoint.after(shard)
        kept.write(place, sums, {})
        if number == most:
            break
    return sums


def test_a_stopped_study_goes_on_to_the_same_sums(corpus: Path, tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """After each shard, and at the end where nothing is left; the work of before is not done again."""
    whole = counted(ShardRun(STUDY, corpus, tiny_loaded, Settings()), None)
    state = tmp_path / "state"
    for done in (1, 2, 3, 3):
        sums = counted(ShardRun(STUDY, corpus, tiny_loaded, Settings()), state, most=1)
        assert sums["texts"] == min(32 * done, 80)
    assert sums == whole


def test_a_study_is_known_by_content_weights_and_settings(
    corpus: Path, tiny_loaded: LoadedModel, tmp_path: Path
) -> None:
    """Another text, settings or weights are refused; another name, place or time of the same text is the same."""
    state = tmp_path / "state"
    counted(ShardRun(STUDY, corpus, tiny_loaded, Settings()), state, most=1)
    moved = tmp_path / "moved.txt"
    moved.write_bytes(corpus.read_bytes())
    os.utime(moved, (1, 1))
    assert counted(ShardRun(STUDY, moved, tiny_loaded, Settings()), state)["texts"] == 80
    with pytest.raises(Refused, match=r"holds a run with other settings \(most: 8, not 9\)"):
        counted(ShardRun(STUDY, corpus, tiny_loaded, Settings(9)), state)
    other = ShardRun(STUDY, corpus, tiny_loaded, Settings())
    other.weights = "0" * 16
    with pytest.raises(Refused, match=rf"\(weights: {fingerprint(tiny_loaded)}, not 0{{16}}\)"):
        counted(other, state)
    corpus.write_text(corpus.read_text(encoding="utf-8").replace("cat", "dog", 1), encoding="utf-8")
    with pytest.raises(Refused, match=r"holds a run with other settings \(text\)"):
        counted(ShardRun(STUDY, corpus, tiny_loaded, Settings()), state)


def test_weights_that_change_on_a_worker_are_refused(corpus: Path, tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """A part is taken from a worker only with the fingerprint of the study."""
    run = ShardRun(STUDY, corpus, tiny_loaded, Settings())
    run.engine, run.device = "ray", "cpu"
    part = (Shard(0, (), 0, 0), ("f" * 16, Counter[str]()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "run_on_ray", lambda *given: iter([part]))
        with pytest.raises(
            Refused, match=rf"had the fingerprint {run.weights} when the study began, and now has f{{16}}"
        ):
            next(run.measure_shards(iter(())))


def test_a_file_that_changes_is_noticed_and_one_that_is_touched_is_not(corpus: Path) -> None:
    """Also where the size stays; the content is hashed again only where the file was written."""
    source = SourceFile(corpus)
    text = corpus.read_bytes()
    source.check_unchanged()
    os.utime(corpus, (1, 1))
    source.check_unchanged()
    corpus.write_bytes(text.replace(b"cat", b"dog"))
    with pytest.raises(Refused, match=r"corpus\.txt changed while it was read"):
        source.check_unchanged()
    corpus.unlink()
    with pytest.raises(Refused, match=r"corpus\.txt cannot be read any more"):
        source.check_unchanged()


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut off"])
def test_a_state_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    """With what to do, in one sentence; so is one without the version that states have now."""
    state = tmp_path / "state"
    state.write_bytes(content)
    with pytest.raises(Refused, match=r"state is not the state of a study: delete it to start again$"):
        StateFile(state, {"version": 1}).read()
    StateFile(state, {"text": ["a", 1]}).write(ResumePoint(), {}, {})
    with pytest.raises(
        Refused, match=r"state was written by an earlier version of Headlight: delete it to start again$"
    ):
        StateFile(state, {"version": 1}).read()


def test_a_result_is_complete_for_its_own_study_alone(tmp_path: Path) -> None:
    """None is not, that of another study is refused, and one that may be overwritten is not complete."""
    result, identity = tmp_path / "t.csv", {"version": 1, "methods": ("a", "b")}
    assert not is_complete(result, identity)
    result.write_text("x\n")
    with pytest.raises(Refused, match=r"t\.csv exists and holds another result"):
        is_complete(result, identity)
    write_settings(result, {**identity, "counts": {"texts": 1}})
    assert is_complete(result, identity) and not is_complete(result, identity, overwrite=True)
    with pytest.raises(Refused, match="overwrite"):
        is_complete(result, {**identity, "version": 2})


def test_one_run_writes_to_a_place(tmp_path: Path) -> None:
    """The second is refused while the first is there, and then may write; what was left half written goes."""
    with exclusive_lock(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(Refused, match="another run writes to"), exclusive_lock(tmp_path):
            pass
    assert not is_locked(tmp_path)


def test_a_model_that_cannot_be_asked_is_refused_before_the_text_is_read(
    corpus: Path, tiny_loaded: LoadedModel, tiny_model_folder: Path
) -> None:
    """By its name as loaded."""
    for model in (tiny_loaded, str(tiny_model_folder)):
        with pytest.raises(Refused, match="most is 0"):
            ShardRun(STUDY, corpus, model, Settings(0), device=None if model is tiny_loaded else "cpu")
    with pytest.raises(Refused, match="engine 'cloud' is unknown"):
        ShardRun(replace(STUDY), corpus, tiny_loaded, Settings(), engine="cloud")


def test_reading_a_table_leaves_the_largest_field_of_the_process(tmp_path: Path) -> None:
    """Between two rows of one reader, of two, and behind one that is given up."""
    before = csv.field_size_limit()
    path = tmp_path / "rows.csv"
    path.write_text("text\n" + "a cat\n" * 40 + "x" * 200_000 + "\n", encoding="utf-8")
    readers = [row_shards(path, Columns("text"), size=8) for _ in range(2)]
    for _ in range(3):
        for reader in readers:
            next(reader)
            assert csv.field_size_limit() == before
    readers[0].close()
    assert sum(len(shard.lines) for shard in readers[1]) == 41 - 3 * 8 and csv.field_size_limit() == before
