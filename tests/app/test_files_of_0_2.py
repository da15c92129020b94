"""Files that version 0.2 wrote still open: tests/data/version_0.2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bert_core
from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.head_tables import check_fits
from tests.near import assert_near
from viz_app import cli

DATA = Path(__file__).parents[1] / "data" / "version_0.2"


@pytest.mark.parametrize("name", ["heads.csv", "heads.parquet"])
def test_a_table_of_heads_opens(tiny_loaded: LoadedModel, name: str) -> None:
    """Its figures are those of the same study today, and it fits its model by name and sizes, which is all it names."""
    table = bert_core.read_table((DATA / name).read_bytes(), name)
    assert (table.model, table.texts, table.tokens, table.shape) == ("tiny-bert", 9, 117, (2, 4))
    settings = bert_core.CorpusSettings(ablation=name.endswith(".csv"))
    *_, (sums, _) = bert_core.iter_heads(DATA / "corpus.txt", tiny_loaded.name, settings, device="cpu")
    today = sums.table("tiny-bert", settings)
    assert {"entropy", "confidence", "previous"} <= set(table.figures) <= set(today.figures)
    for figure, values in table.figures.items():
        assert_near(values, today.figures[figure], 1e-4, what=figure)
    check_fits(table, "tiny-bert", 2, 4, "another fingerprint")


def test_an_index_opens_or_names_the_command(tiny_loaded: LoadedModel) -> None:
    """Profiles are counted from it; its fingerprint is of another kind, so a search names the command that makes it."""
    index = bert_core.open_index(DATA / "index")
    assert index.tokens == 117 and list(index.documents) == ["corpus.txt"]
    assert len(bert_core.head_profiles(index).heads) == 8
    encoding = tiny_loaded.tokenizer.encode("the king sat on the dog.")
    with pytest.raises(Refused, match="make it again with `headlight index` if an earlier version"):
        bert_core.search(index, tiny_loaded, encoding, [2], depth=2)


def test_profiles_open() -> None:
    """All heads of the model, with their figures and sentences."""
    profiles = bert_core.read_profiles(DATA / "profiles.json")
    assert profiles.model == "tiny-bert" and len(profiles.heads) == 8
    assert all(head.tokens > 0 and head.bars for head in profiles.heads)


def test_a_lesson_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    """`headlight lessons check` finds no fault in the lesson that `lessons new` wrote."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["lessons", "check", str(DATA / "my_lesson.toml"), "--device", "cpu"])
    printed: Any = capsys.readouterr()
    assert ended.value.code == 0, printed.err
