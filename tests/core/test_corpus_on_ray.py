"""The same shards on a cluster: the numbers of one machine, also when a worker dies on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_core import iter_heads
from bert_core.studies.head_tables import read_table
from bert_core.studies.rows import Columns
from bert_core.studies.settings import CorpusSettings
from tests.near import assert_near

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

# Runs by itself, for what Ray leaves in a process. After the first shard a worker that holds a model is killed.
DRIVER = """
import os, signal, sys
from pathlib import Path
import ray
from bert_core.studies.heads import iter_heads
from bert_core.studies.settings import CorpusSettings
from bert_core.studies.rows import Columns
from bert_core.studies.head_tables import write_table

text, model, out, pairs, other = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

@ray.remote
def who() -> int:
    return os.getpid()

killed = 0
for total, _ in iter_heads(Path(text), model, engine="ray", device="cpu"):
    if not killed:
        killed = ray.get(who.remote())
        os.kill(killed, signal.SIGKILL)
write_table(total.table(model), Path(out))
Path(out).with_suffix(".pid").write_text(str(killed))
settings = CorpusSettings(loss="next", columns=Columns("a", "b"), method="mean", reference=("the old door",))
*_, (total, _) = iter_heads(Path(pairs), model, settings, engine="ray", device="cpu")
write_table(total.table(model, settings), Path(other))
"""


def test_a_cluster_gives_the_same_numbers_though_a_worker_dies(tiny_model_folder: Path, tmp_path: Path) -> None:
    """On two workers, one of them killed: every text once, and every figure within 1e-6 of the local one; so for rows
    of a table, what follows, and ablation by mean.
    """
    text, out = tmp_path / "corpus.txt", tmp_path / "heads.csv"
    pairs, other = tmp_path / "pairs.csv", tmp_path / "follows.csv"
    pairs.write_text("a,b\n" + "".join(f"the cat {n},it was {n % 7} dogs\n" for n in range(70)))
    text.write_text("".join(f"the cat sat on the {n} mat and {n % 7} dogs ran\n" for n in range(320)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, text, tiny_model_folder, out, pairs, other],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(out.with_suffix(".pid").read_text()) > 0
    settings = CorpusSettings(loss="next", columns=Columns("a", "b"), method="mean", reference=("the old door",))
    for path, asked, table, texts in ((text, CorpusSettings(), out, 320), (pairs, settings, other, 70)):
        *_, (local, _) = iter_heads(path, str(tiny_model_folder), asked, device="cpu")
        expected, found = local.table("tiny-bert", asked), read_table(table.read_bytes(), table.name)
        assert found.texts == expected.texts == texts
        for name, values in expected.figures.items():
            assert_near(found.figures[name], values, of=np.abs(values).max() or 1.0, what=name)
