"""An index of a corpus: what is kept of every token, whoever made it, and how it says no."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bert_core import (
    IndexSettings,
    LoadedModel,
    Refused,
    capture,
    head_values,
    iter_index,
    load,
    open_index,
    remove_from_index,
    search,
)
from bert_core.run.states import word_states
from bert_core.studies import index as study
from bert_core.studies.index import TOP_KEYS, corpus_shards
from tests.core.test_treebank import SENTENCES
from tests.near import assert_near

ROOT = Path(__file__).parents[2]
SENTENCE = "the old king saw a red door."


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty lines of two sentences each, an empty one among them, in several shards."""
    monkeypatch.setattr(study, "SHARD_CHARACTERS", 600)
    path = tmp_path / "corpus.txt"
    lines = [f"The {'old' if n % 3 else 'big'} cat sat on mat {n}. A dog ran to door {n}!" for n in range(40)]
    path.write_text("\n".join([*lines[:7], "", *lines[7:], SENTENCE]) + "\n", encoding="utf-8")
    return path


def made(path: Path, out: Path, model: Path, **settings: object) -> None:
    """A whole index."""
    for _ in iter_index(path, out, str(model), IndexSettings(**settings), device="cpu"):  # type: ignore[arg-type]
        pass


def files(folder: Path) -> dict[str, bytes]:
    """Every file of an index."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_kept_is_what_the_model_does(
    corpus: Path, tiny_model_folder: Path, tiny_loaded: LoadedModel, tmp_path: Path
) -> None:
    """States, what heads bring (attention times values) and the strongest keys are those of one text by itself, to half
    a unit of int8; every token has its place in its sentence.
    """
    made(corpus, tmp_path / "index", tiny_model_folder)
    index = open_index(tmp_path / "index")
    shard = index.shards[-1]
    encoding = tiny_loaded.tokenizer.encode(SENTENCE)
    run, values = capture(tiny_loaded, encoding), head_values(tiny_loaded, encoding)
    words = [[[position] for position in range(len(encoding))]]
    rows = slice(shard.tokens - len(encoding), shard.tokens)
    assert index.depths == (0, 1, 2) and len(index.shards) > 3
    for depth in index.depths:
        scales = shard.part("state_scales", depth)[:, rows]
        found = shard.part("states", depth)[rows] * scales[0][:, None]
        states = word_states(tiny_loaded, [encoding], words, depth)
        assert np.abs(found - states).max() <= scales[0].max() * 0.501
        assert_near(scales[1] * scales[0], np.linalg.norm(found, axis=-1))
    for layer in index.layers:
        brought = run.attention[layer] @ values[layer]
        scales = shard.part("head_scales", layer)[:, :, rows]
        found = shard.part("heads", layer)[:, rows] * scales[:, 0][..., None]
        assert np.abs(found - brought).max() <= scales[:, 0].max() * 0.501
        falling = -np.sort(-run.attention[layer], axis=-1)[..., :TOP_KEYS]
        assert np.abs(shard.part("weights", layer)[:, rows] - falling).max() < 1e-3
        of_keys = np.take_along_axis(run.attention[layer], shard.part("keys", layer)[:, rows].astype(int), axis=-1)
        assert np.abs(of_keys - falling).max() < 1e-3
    for position in range(len(encoding)):
        row = shard.row(rows.start + position)
        assert row["sentence_text"] == SENTENCE and row["line"] == 42 and row["position"] == position
        assert row["piece"] == encoding.tokens[position]
        assert (row["word"] is None) == encoding.special[position]
        assert SENTENCE[row["start"] : row["end"]] == ("" if row["word"] is None else row["piece"])


def test_a_paragraph_is_read_sentence_by_sentence(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Two texts a line, each with its number in the line; the empty line counts as one."""
    *_, (counts, share) = iter_index(corpus, tmp_path / "index", str(tiny_model_folder), device="cpu")
    assert share == 1 and counts["texts"] == 81 and counts["lines"] == 42 and counts["empty"] == 1
    index = open_index(tmp_path / "index")
    assert index.tokens == counts["tokens"] == sum(shard.tokens for shard in index.shards)
    where = [(row["line"], row["sentence"]) for shard in index.shards for row in map(shard.row, range(shard.tokens))]
    assert list(dict.fromkeys(where))[13:16] == [(7, 1), (9, 0), (9, 1)]


def test_killed_and_gone_on_with_gives_the_same_bytes(
    corpus: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after any shard, or in the middle of writing one, the same call makes every byte of a run that was not;
    called once more it reads nothing.
    """
    made(corpus, tmp_path / "whole", tiny_model_folder)
    expected, write, left = files(tmp_path / "whole"), study._write_shard, [2]

    def dies(folder: Path, packed: study.PackedShard, document: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            left[0] = 1
            (folder / "half").mkdir(parents=True)
            raise KeyboardInterrupt
        write(folder, packed, document)

    monkeypatch.setattr(study, "_write_shard", dies)
    for _ in range(20):
        try:
            made(corpus, tmp_path / "stopped", tiny_model_folder)
            break
        except KeyboardInterrupt:
            continue
    assert files(tmp_path / "stopped") == expected
    monkeypatch.setattr(study, "index_shard", None)
    made(corpus, tmp_path / "stopped", tiny_model_folder)
    assert files(tmp_path / "stopped") == expected


# Runs by itself, and is killed when it has written so many files.
KILLED = """
import os, signal, sys
from pathlib import Path
from bert_core import checkpoint
from bert_core.studies import index as study

study.SHARD_CHARACTERS = 600
text, out, model, files = sys.argv[1:]
left, write = [int(files)], checkpoint.write_atomically

def dies(*given: object) -> None:
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    write(*given)

checkpoint.write_atomically = dies
for _ in study.iter_index(Path(text), Path(out), model, device="cpu"):
    pass
"""


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_what_can_go_on(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Three times, between the files of a shard and before the contents know of it: then every byte is that of a run
    that was not.
    """
    made(corpus, tmp_path / "whole", tiny_model_folder)
    for count in (6, 10, 15):
        given = [corpus, tmp_path / "killed", tiny_model_folder, str(count)]
        done = subprocess.run([sys.executable, "-c", KILLED, *given], cwd=ROOT, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert files(tmp_path / "killed") != files(tmp_path / "whole")
    made(corpus, tmp_path / "killed", tiny_model_folder)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


# Runs by itself, for what Ray leaves in a process. A worker that holds a model is killed after the first shard.
DRIVER = """
import os, signal, sys
from pathlib import Path
import ray
from bert_core.run.states import word_states
from bert_core.studies import index as study

study.SHARD_CHARACTERS = 600
text, out, model, pid = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

@ray.remote
def who() -> int:
    return os.getpid()

killed = 0
for _ in study.iter_index(Path(text), Path(out), model, engine="ray", device="cpu"):
    if not killed:
        killed = ray.get(who.remote())
        os.kill(killed, signal.SIGKILL)
Path(pid).write_text(str(killed))
"""


@pytest.mark.slow
def test_a_cluster_makes_the_same_index_though_a_worker_dies(
    corpus: Path, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """On two workers, one of them killed: every byte is that of this process."""
    made(corpus, tmp_path / "here", tiny_model_folder)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    given = [corpus, tmp_path / "there", tiny_model_folder, tmp_path / "pid"]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *given],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int((tmp_path / "pid").read_text()) > 0
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_an_index_grows_and_loses_a_file(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """A second file stands behind the first, whose bytes stay; taken out, nothing of it is left."""
    other, out = tmp_path / "other.txt", tmp_path / "index"
    other.write_text("the queen went to paris.\n", encoding="utf-8")
    made(corpus, out, tiny_model_folder)
    before = files(out)
    made(other, out, tiny_model_folder)
    assert list(open_index(out).documents) == ["corpus.txt", "other.txt"]
    assert {name: data for name, data in files(out).items() if name in before and name != "index.json"} == {
        name: data for name, data in before.items() if name != "index.json"
    }
    remove_from_index(out, "other.txt")
    assert files(out) == before
    remove_from_index(out, "corpus.txt")
    assert open_index(out).shards == () and list(files(out)) == ["index.json"]
    with pytest.raises(Refused, match=r"holds no file 'other\.txt': it holds none"):
        remove_from_index(out, "other.txt")


def test_a_treebank_brings_its_columns(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Every piece of a word has the word's label, head and how far on that is; added tokens have none."""
    path = tmp_path / "some.conllu"
    path.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    made(path, tmp_path / "index", tiny_model_folder)
    (shard,) = open_index(tmp_path / "index").shards
    rows = [row for row in map(shard.row, range(shard.tokens)) if row["line"] == 2]
    assert rows[0]["sentence_text"] == "The cat didn't sleep."
    labels = {row["word"]: (row["relation"], row["governor"], row["distance"]) for row in rows}
    assert labels["The"] == ("det", "cat", 1) and labels["cat"] == ("nsubj", "sleep", 3)
    assert labels["sleep"] == ("root", None, None) and labels[None] == (None, None, None)
    assert sum(row["word"] == "sleep" for row in rows) > 1  # several pieces


def test_overlong_sentences_of_a_treebank_are_counted(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first of these the beginning is kept, with the labels of its words, and it is counted once."""
    monkeypatch.setattr(study, "MAX_LINE_BYTES", 8)
    path = tmp_path / "some.conllu"
    path.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    *_, (counts, _) = iter_index(path, tmp_path / "index", str(tiny_model_folder), device="cpu")
    assert counts["lines"] == counts["texts"] == 2 and counts["overlong"] == 1
    (shard,) = open_index(tmp_path / "index").shards
    rows = [row for row in map(shard.row, range(shard.tokens)) if row["line"] == 2]
    assert rows[0]["sentence_text"] == "The cat "
    assert {row["word"]: row["relation"] for row in rows if row["relation"]} == {"The": "det", "cat": "nsubj"}


def test_shards_of_a_file_can_begin_anywhere(corpus: Path, tmp_path: Path) -> None:
    """From where any shard ends the rest of the file is the same, of a text and of a treebank."""
    treebank = tmp_path / "some.conllu"
    treebank.write_text("\n".join([*SENTENCES, ""] * 30) + "\n", encoding="utf-8")
    for path in (corpus, treebank):
        all_of_it = list(corpus_shards(path))
        assert len(all_of_it) > 1
        for number, one in enumerate(all_of_it, 1):
            assert list(corpus_shards(path, number=number, start=one.end, line=one.next_line)) == all_of_it[number:]


@pytest.mark.parametrize("name", ["states.npy", "keys.npy", "tokens.parquet", "shard.json"])
@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_a_broken_shard_is_named_and_not_read(
    corpus: Path, tiny_model_folder: Path, tiny_loaded: LoadedModel, tmp_path: Path, name: str, harm: str
) -> None:
    """A file that was cut off, changed or taken away: its shard is named, and what is found stands in the others."""
    made(corpus, tmp_path / "index", tiny_model_folder)
    folder = tmp_path / "index" / "0000.000001"
    data = (folder / name).read_bytes()
    if harm == "gone":
        (folder / name).unlink()
    else:
        middle = len(data) // 2
        changed = data[:middle] if harm == "cut" else data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        (folder / name).write_bytes(changed)
    index = open_index(tmp_path / "index")
    encoding = tiny_loaded.tokenizer.encode(SENTENCE)
    heads = [(0, 1), (1, 2)]
    found = [search(index, tiny_loaded, encoding, [3], depth=depth) for depth in index.depths]
    found += [
        search(index, tiny_loaded, encoding, [3], heads=heads, head_similarity=alike) for alike in ("brings", "looks")
    ]
    said = {sentence for one in found for sentence in one.broken}
    assert said and all("0000.000001" in sentence and "corpus.txt" in sentence for sentence in said)
    for one in found:
        assert one.matches[0].text == SENTENCE
        assert one.broken or harm == "changed"  # of a change only what is looked at is checked


def test_what_it_refuses(
    corpus: Path, tiny_model_folder: Path, tiny_loaded: LoadedModel, tiny_classifier_folder: Path, tmp_path: Path
) -> None:
    """One sentence each: a folder of something else, other settings, a changed file, a layer that is not there."""
    out, model = tmp_path / "index", str(tiny_model_folder)
    made(corpus, out, tiny_model_folder, layers=(1,))

    def refused(match: str, path: Path = corpus, place: Path = out, asked: str = model, **settings: object) -> None:
        with pytest.raises(Refused, match=match):
            made(path, place, Path(asked), **{"layers": (1,), **settings})

    refused("other settings", layers=(0,))
    refused(r"a layer of .* is 7", place=tmp_path / "new", layers=(7,))
    refused("reads at most 512 tokens", place=tmp_path / "new", max_length=600)
    refused("holds no index", place=tmp_path)
    refused("there is no file", path=tmp_path / "nothing.txt")
    table = tmp_path / "table.csv"
    table.write_text("a,b\n")
    refused(r"name the column of the texts \(--text\); its columns are a, b", path=table)
    corpus.write_text("something else", encoding="utf-8")
    refused(r"holds another file corpus\.txt")
    with pytest.raises(Refused, match="is not an index"):
        open_index(tmp_path)
    (out / "index.json").write_text(json.dumps({"format": 1, "documents": []}))
    with pytest.raises(Refused, match="is a damaged index"):
        open_index(out)


def test_another_model_is_refused(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Weights that differ in one number of the first layer are other weights, for adding as for searching."""
    out, other = tmp_path / "index", tmp_path / "other"
    made(corpus, out, tiny_model_folder)
    loaded = load(str(tiny_model_folder), device="cpu")
    loaded.model.bert.encoder.layer[0].attention.self.query.weight.data[0, 0] += 1  # type: ignore[index, union-attr]
    loaded.model.save_pretrained(other)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (other / name).write_bytes((tiny_model_folder / name).read_bytes())
    with pytest.raises(Refused, match=r"an index of other weights .* earlier version .*run `headlight index` again"):
        made(corpus, out, other)
    with pytest.raises(
        Refused, match="has other weights: search it with the model that it was made with, or make it again"
    ):
        search(open_index(out), loaded, loaded.tokenizer.encode(SENTENCE), [3], depth=1)


def test_an_index_of_version_0_2_goes_on(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """It knew a file by the time of its last change: that file is there still, and one that was written is another."""
    out, model = tmp_path / "index", str(tiny_model_folder)
    made(corpus, out, tiny_model_folder)
    contents = json.loads((out / "index.json").read_text(encoding="utf-8"))
    (document,) = contents["documents"]
    del document["content"]
    document["changed"] = corpus.stat().st_mtime_ns
    (out / "index.json").write_text(json.dumps(contents), encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.npy")}
    assert list(iter_index(corpus, out, model, device="cpu")) == [(Counter(document["counts"]), 1.0)]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.npy")} == before
    os.utime(corpus, (1, 1))
    with pytest.raises(Refused, match="holds another file"):
        list(iter_index(corpus, out, model, device="cpu"))
