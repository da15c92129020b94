"""The same shards on a cluster: the numbers of one machine, also when a worker dies on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from bert_core.corpus.heads import heads_over
from bert_core.corpus.table import read_table

ROOT = Path(__file__).parents[2]

# Runs by itself, for what Ray leaves in a process. After the first shard a worker that holds a model is killed.
DRIVER = """
import os, signal, sys
from pathlib import Path
import ray
from bert_core.corpus.heads import heads_over
from bert_core.corpus.table import write_table

text, model, out = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

@ray.remote
def who() -> int:
    return os.getpid()

killed = 0
for total, _ in heads_over(Path(text), model, engine="ray", device="cpu"):
    if not killed:
        killed = ray.get(who.remote())
        os.kill(killed, signal.SIGKILL)
write_table(total.table(model), Path(out))
Path(out).with_suffix(".pid").write_text(str(killed))
"""


def test_a_cluster_gives_the_same_numbers_though_a_worker_dies(tiny_model_folder: Path, tmp_path: Path) -> None:
    """On two workers, one of them killed: every text once, and every figure within 1e-6 of the local one."""
    text, out = tmp_path / "corpus.txt", tmp_path / "heads.csv"
    text.write_text("".join(f"the cat sat on the {n} mat and {n % 7} dogs ran\n" for n in range(320)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, text, tiny_model_folder, out],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(out.with_suffix(".pid").read_text()) > 0
    *_, (local, _) = heads_over(text, str(tiny_model_folder), device="cpu")
    expected, found = local.table("tiny-bert"), read_table(out.read_bytes(), out.name)
    assert found.texts == expected.texts == 320
    for name, values in expected.figures.items():
        assert np.abs(found.figures[name] - values).max() <= 1e-6, name
