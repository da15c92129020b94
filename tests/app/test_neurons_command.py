"""`headlight neurons`: what it prints and writes, going on where it stopped, and how it says no."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from bert_core.studies import neurons as study
from tests.app.test_cli import Run, headlight, text_file

__all__ = ["headlight", "text_file"]  # fixtures


def test_neurons_of_a_text(headlight: Run, text_file: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Deciles, pieces and examples from the top down on the terminal; a row a neuron, and all examples, in files."""
    out, examples = tmp_path / "t.parquet", tmp_path / "t.json"
    given = ("neurons", text_file, "--neurons", "0.3,1.5", "--model", tiny_model_folder, "--device", "cpu", "--out")
    code, printed, err = headlight(*given, out, "--examples", examples, "--each", "2", "--window", "3")
    assert code == 0, err
    first, second, *rest = printed.splitlines()
    assert first.startswith("48 texts, ") and first.endswith("; 96 special tokens apart")
    assert " random tokens: " in second
    of_neurons = [line for line in rest if line.startswith("L")]
    assert [line.split(":")[0] for line in of_neurons] == ["L0 neuron 3", "L1 neuron 5"]
    groups = [line.split()[0] for line in rest if "«" in line][: 4 + 20 + 4]
    assert groups == ["top"] * 4 + [f"{n}/10" for n in range(10, 0, -1) for _ in range(2)] + ["random"] * 4
    table = parquet.read_table(out)
    assert table["neuron"].to_pylist() == [3, 5]
    told = json.loads(examples.read_text())
    assert [own["neuron"] for own in told["neurons"]] == [3, 5]
    strongest = told["places"][told["neurons"][0]["strongest"][0][0]]
    assert f"«{strongest['written']}»" in printed
    assert headlight(*given, out, "--each", "2", "--window", "3")[:2] == (0, printed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "t.parquet"]


def test_all_neurons_and_a_layer(headlight: Run, text_file: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Of many the few that are most specific to one token are shown; the table has all of them."""
    out = tmp_path / "t.csv"
    given = ("neurons", text_file, "--model", tiny_model_folder, "--device", "cpu", "--out", out)
    code, printed, err = headlight(*given)
    assert code == 0, err
    rows = len(out.read_text().splitlines()) - 1
    assert f"5 of {rows:,} neurons, those that are most specific to one token:" in printed
    assert sum(line.startswith("L") for line in printed.splitlines()) == 5
    code, printed, err = headlight(*given, "--neurons", "1.*")
    assert code == 0 and len(out.read_text().splitlines()) - 1 == rows // 2, err


def test_stopped_and_gone_on_with(
    headlight: Run, text_file: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C keeps what there is and says so; the same command makes the file of a run that was never stopped."""
    given = ("neurons", text_file, "--model", tiny_model_folder, "--device", "cpu", "--out")
    assert headlight(*given, tmp_path / "whole.csv")[0] == 0
    read, done = study._Reader.read, []

    def stops(self: object, shard: object) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(shard)
        read(self, shard)  # type: ignore[arg-type]

    out = tmp_path / "t.csv"
    with monkeypatch.context() as patched:
        patched.setattr(study._Reader, "read", stops)
        code, printed, err = headlight(*given, out)
    assert (code, printed) == (130, "") and "stopped: run the same command again to resume" in err
    assert not out.exists() and out.with_name("t.csv.part").exists()
    assert headlight(*given, out)[0] == 0 and out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "whole.csv"]


def test_drawn_tokens_are_said(
    headlight: Run, text_file: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where not all tokens are kept, the line says how many were, and the error of their ranks."""
    monkeypatch.setattr(study, "MAX_SAMPLED_TOKENS", 100)
    code, printed, err = headlight(
        "neurons", text_file, "--neurons", "0.1", "--model", tiny_model_folder, "--out", tmp_path / "t.csv"
    )
    assert code == 0 and "; deciles from 100 of them, whose ranks have a standard error of 5.0%;" in printed, err
    assert np.isfinite([float(one) for one in (tmp_path / "t.csv").read_text().splitlines()[1].split(",")[7:-3]]).all()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--neurons", "3"), "--neurons is '3': write layer.neuron with commas, as in 3.120,4.7, or 3.* for a layer"),
        (("--neurons", "1.x"), "--neurons is '1.x'"),
        (("--neurons", "9.1"), "layer 9 does not exist: this model has layers 0 to 1"),
        (("--out", "OUT.txt"), "the name of the table OUT.txt must end in .csv or .parquet"),
        (("--out", "there.csv"), "there.csv exists and is no table of neurons: choose another name"),
        (("--examples", "OUT.txt"), "OUT.txt': its ending must be one of json"),
        (("--examples", "there.csv"), "there.csv': its ending must be one of json"),
        (("--pair", "b"), "--pair names a column: say with --text which column holds the texts"),
        (("--text", "b"), "words.txt contains plain text, which has no named columns"),
        (("--max-length", "600"), "reads at most 512 tokens"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    headlight: Run, tmp_path: Path, tiny_model_folder: Path, given: tuple[str, ...], sentence: str
) -> None:
    """What was given and what is allowed; and nothing is left behind."""
    (tmp_path / "words.txt").write_text("the cat sat\n")
    (tmp_path / "there.csv").write_text("a,b\n1,2\n")
    options = [str(tmp_path / one) if one.startswith(("OUT", "there")) else one for one in given]
    out = () if "--out" in options else ("--out", tmp_path / "OUT.csv")
    code, printed, err = headlight("neurons", tmp_path / "words.txt", *options, *out, "--model", tiny_model_folder)
    assert (code, printed) == (2, "") and sentence in err and len(err.splitlines()) == 1, err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.csv", "words.txt"]
