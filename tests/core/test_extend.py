"""docs/contributing/extend.md: the four files of a built-in head give a head that everything works with."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "contributing" / "extend.md").read_text(encoding="utf-8")
# A file is named, then its changes: one block each.
CHANGES = [
    (name, text)
    for name, blocks in re.findall(r"^`([\w./]+)`:\n((?:\n```diff\n.*?\n```\n)+)", GUIDE, re.DOTALL | re.MULTILINE)
    for text in re.findall(r"```diff\n(.*?\n)```", blocks, re.DOTALL)
]
USE = """
import dataclasses, json, sys
from pathlib import Path
import torch
import bert_core
from bert_core.modeling import BertForWordLength

tiny, folder = bert_core.load(sys.argv[1], device="cpu"), Path(sys.argv[2])
module = BertForWordLength(tiny.config, tiny.model.bert).eval().requires_grad_(False)
bert_core.save(dataclasses.replace(tiny, task_models={"length": module}), folder / "model")
loaded = bert_core.load(folder / "model", device="cpu")
encoding = loaded.tokenizer.encode("the old king saw the door")
target, _ = bert_core.parse_target(loaded, encoding, "length:3")
run = bert_core.capture(loaded, encoding, target=target)
with torch.no_grad():
    states = loaded.model.bert(torch.tensor([encoding.input_ids])).last_hidden_state[0]
    expected = (states @ module.word_length.weight[0] + module.word_length.bias)[3].item()
(folder / "texts.txt").write_text("the old king saw the door\\na dog ran\\n")
settings = bert_core.CorpusSettings(loss="length")
sums = bert_core.measure_heads(folder / "texts.txt", str(folder / "model"), settings, device="cpu")
print(json.dumps({
    "file": bert_core.__file__, "heads": [head for head in loaded.task_models], "notes": loaded.notes,
    "expected": expected, "value": run.target_value, "prediction": float(run.others["length"][3]),
    "of_parts": float(bert_core.decompx(loaded, encoding, target).scores.sum()),
    "loss": sums.table("model", settings).loss_text,
}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with the changes of the guide."""
    folder = tmp_path_factory.mktemp("library")
    shutil.copytree(ROOT / "bert_core", folder / "bert_core", ignore=shutil.ignore_patterns("__pycache__", "assets"))
    for name, text in CHANGES:
        file, lines = folder / name, text.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
        whole = file.read_text(encoding="utf-8")
        assert whole.count(old) == 1, f"{name} has no such lines any more:\n{old}"
        file.write_text(whole.replace(old, new), encoding="utf-8")
    return folder


def test_the_guide_changes_four_files() -> None:
    """The module, its name in the package, the declaration with its place, and the texts."""
    assert list(dict.fromkeys(name for name, _ in CHANGES)) == [
        "bert_core/modeling/models.py", "bert_core/modeling/__init__.py", "bert_core/task_heads.py",
        "bert_core/target_kinds.py",
    ]  # fmt: skip
    assert len(CHANGES) == 7


def test_the_head_of_the_guide_works(copy: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """In a copy of the library the head is saved, loaded, captured, explained and asked of every attention head."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)])}
    command = [sys.executable, "-c", USE, str(tiny_model_folder), str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert found["file"] == str(copy / "bert_core" / "__init__.py")
    assert found["heads"] == ["length"] and found["notes"] == []
    for name in ("value", "prediction", "of_parts"):
        assert found[name] == pytest.approx(found["expected"], rel=1e-3, abs=1e-4), name
    assert found["loss"].endswith("letters per token")


def test_both_ways_of_the_guide_declare_the_same_head() -> None:
    """The classes of the four files and those of a program differ in two helpers alone."""
    built_in = "\n".join(line[1:] for _, text in CHANGES for line in text.splitlines() if line.startswith("+"))
    program = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[0]
    for name in ("title", "subtitle", "parts", "architectures", "description", "every_token"):
        assert re.findall(rf"^    {name} = .*$", built_in, re.MULTILINE) == re.findall(
            rf"^    {name} = .*$", program, re.MULTILINE
        )
    for name in ("title", "question", "supports", "value_text"):
        (said,) = re.findall(rf"^        {name}=(\".*\"),$", program, re.MULTILINE)
        assert said in built_in, name
