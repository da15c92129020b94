"""`--cut` on the command line: the answers and the files are those of the cut model, and say so."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

import bert_core
from bert_core import AttentionKnockout, LoadedModel
from tests.app.test_cli import Run, headlight
from tests.near import assert_near

__all__ = ["headlight"]  # a fixture
TEXT = "the cat sat on the [MASK]"
CUT, CUTS = AttentionKnockout((6,), (2, 3), (1,), (0, 2)), "1.0,2:q6>k2,3:r"


def test_what_is_guessed_without_some_arrows(headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path) -> None:
    """Words for the gap, and whether a second text follows, are what the cut model says, and not what the whole one."""
    common = ("--model", tiny_model_folder, "--device", "cpu")
    loaded = bert_core.edited(tiny_loaded, [CUT])
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    (prediction,) = bert_core.capture(loaded, encoding, top_k=5).predictions
    code, printed, err = headlight("predict", TEXT, "--cut", CUTS, *common)
    assert (code, err) == (0, "")
    expected = [f"  {p:.3f}  {tiny_loaded.tokenizer.token_of(piece)}" for piece, p in prediction.top]
    assert printed.splitlines()[1:] == expected
    pair = tiny_loaded.tokenizer.encode("the cat sat", "a dog ran")
    without = bert_core.edited(tiny_loaded, [AttentionKnockout(keys=(2,))])
    whole, cut = (bert_core.capture(model, pair).nsp for model in (tiny_loaded, without))
    assert whole is not None and cut is not None and abs(whole - cut) > 1e-6
    code, printed, _ = headlight("nsp", "the cat sat", "a dog ran", "--cut", "all:q>k2:r", *common)
    assert code == 0 and printed.endswith(f"B follows A with probability {cut:#.2g}\n")


def test_files_hold_the_cut_maps_and_name_the_cut(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """As NPZ and as CSV, of heads apart and together; without a cut there is no such column."""
    common = ("--model", tiny_model_folder, "--device", "cpu", "--out")
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    run = bert_core.capture(bert_core.edited(tiny_loaded, [CUT]), encoding)
    npz, table = tmp_path / "a.npz", tmp_path / "a.csv"
    assert headlight("attention", TEXT, "--cut", CUTS, *common, npz) == (0, "", "")
    with np.load(npz, allow_pickle=False) as file:
        assert_near(file["attention"], run.attention)
        (named,) = file["edits"].tolist()
    assert named.startswith("blocked attention: L1 H0, H2") and "renormalised" in named
    assert headlight("attention", TEXT, "--cut", CUTS, "--layer", 1, "--head", 2, *common, table) == (0, "", "")
    rows = list(csv.DictReader(io.StringIO(table.read_text("utf-8"))))
    assert {row["edits"] for row in rows} == {named} and len(rows) == len(encoding) ** 2
    cells = {(row["query_position"], row["key_position"]): float(row["attention"]) for row in rows}
    assert cells["6", "2"] == cells["6", "3"] == 0 < cells["6", "1"]
    assert headlight("attention", TEXT, *common, npz)[0] == 0
    with np.load(npz, allow_pickle=False) as file:
        assert "edits" not in file


@pytest.mark.parametrize(
    ("command", "given", "sentence"),
    [
        ("predict", ("--cut", "x"), "--cut is 'x': write a cut as layer.head:qQUERIES>kKEYS:r, such as 2.3:q4>k7,8:r"),
        ("predict", ("--cut", "9:q1>k2:r"), "--cut is '9:q1>k2:r': layer 9"),
        ("predict", ("--cut", "all:q99>k2:r"), "99"),
        ("attention", ("--cut", CUTS, "--without-heads", "0.1", "--out", "a.npz"), "--cut names tokens of one text"),
    ],
)
def test_what_cannot_be_cut_is_one_sentence(
    headlight: Run, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    command: str, given: tuple[str, ...], sentence: str,
) -> None:  # fmt: skip
    """What was given and what is allowed, and no file is left."""
    monkeypatch.chdir(tmp_path)
    code, printed, err = headlight(command, TEXT, *given, "--model", tiny_model_folder, "--device", "cpu")
    assert (code, printed, err.count("\n")) == (2, "", 1) and sentence in err
    assert not list(tmp_path.glob("*.npz"))
