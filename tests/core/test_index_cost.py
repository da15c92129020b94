"""What an index will cost is what it then costs, and a file that it cannot be made of is refused before."""

from __future__ import annotations

from pathlib import Path

import pytest

from bert_core import IndexSettings, LoadedModel, Refused
from bert_core.studies import index as study
from bert_core.studies.index import incomplete_note, iter_index
from bert_core.studies.index_cost import bytes_per_token, index_cost
from tests.core.test_treebank import SENTENCES

LINES = [f"The {'old' if n % 3 else 'big'} cat sat on mat {n}. A dog ran to door {n}!" for n in range(300)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three hundred lines of two sentences each."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def size_of(folder: Path) -> int:
    """Bytes of all shards."""
    return sum(path.stat().st_size for path in folder.glob("*/*"))


@pytest.mark.parametrize("kind", ["text", "treebank", "one sentence"])
def test_tokens_are_counted_and_bytes_are_those_of_the_index(
    corpus: Path, tiny_loaded: LoadedModel, tmp_path: Path, kind: str
) -> None:
    """Of a text, a treebank, and a file shorter than what is tried; nothing that was tried is left."""
    if kind == "treebank":
        corpus = tmp_path / "some.conllu"
        corpus.write_text("\n".join([*SENTENCES, ""] * 80) + "\n", encoding="utf-8")
    if kind == "one sentence":
        corpus.write_text("\n\nthe old king saw a red door.\n", encoding="utf-8")
    cost = index_cost(corpus, tiny_loaded, max_tokens=100_000)
    *_, (counts, _) = iter_index(corpus, tmp_path / "index", tiny_loaded, IndexSettings(), characters=4096)
    assert cost.tokens == counts["tokens"] and cost.seconds > 0
    assert abs(cost.nbytes - size_of(tmp_path / "index")) < 0.1 * cost.nbytes
    kept = sum(path.stat().st_size - 128 for path in (tmp_path / "index").glob("*/*.npy"))  # without their headers
    assert kept == counts["tokens"] * bytes_per_token(tiny_loaded, IndexSettings())


def test_what_is_not_read_whole_is_counted(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """Before the index is made, as it will be said of it."""
    path = tmp_path / "a.txt"
    path.write_text(f"{'the cat ' * 200}.\nA dog.\n{'The old king. ' * 6000}\n", encoding="utf-8")
    cost = index_cost(path, tiny_loaded, max_tokens=100_000)
    *_, (counts, _) = iter_index(path, tmp_path / "index", tiny_loaded, IndexSettings(), characters=4096)
    assert {name: counts[name] for name in cost.counts} == cost.counts
    assert (cost.counts["shortened"], cost.counts["overlong"]) == (1, 1)
    assert incomplete_note(cost.counts) == (
        "; 1 sentences cut to the maximum length; 1 lines too long, of which only the beginning was read"
    )


def test_a_model_that_is_there_makes_the_same_index(
    corpus: Path, tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is loaded by its name: every byte of every shard, where shards are as large."""
    monkeypatch.setattr(study, "SHARD_CHARACTERS", 5000)
    for _ in iter_index(corpus, tmp_path / "named", str(tiny_model_folder), device="cpu"):
        pass
    for _ in iter_index(corpus, tmp_path / "there", tiny_loaded, IndexSettings(), characters=5000):
        pass
    named, there = (
        {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in (tmp_path / name).glob("*/*")}
        for name in ("named", "there")
    )
    assert len(named) > 9 and there == named


def test_what_it_refuses(corpus: Path, tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """One sentence each, before anything is indexed."""

    def refused(match: str, data: bytes, name: str = "a.txt", most: int = 100) -> None:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(Refused, match=match):
            index_cost(tmp_path / name, tiny_loaded, max_tokens=most)

    refused(r"a\.txt has more than 100 tokens", corpus.read_bytes())
    refused(r"a\.txt is not UTF-8", "the café.\n".encode("latin-1"))
    refused(r"a\.txt has no sentence that can be read", b"\n \n\n")
    refused(r"a\.csv contains a table of comma-separated values", b"a,b\n", "a.csv")
    refused(r"line 1 of a\.conllu has 1 columns", b"the cat\n", "a.conllu")
    refused(r"a\.conllu is not UTF-8", b"1\tcaf\xe9\n", "a.conllu")
    refused("most is 0", b"the cat.", most=0)
