"""bert_core/studies/engines.py: on which device the workers of a cluster run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bert_core import iter_explanations, iter_heads, iter_index
from bert_core.refused import Refused

ROOT = Path(__file__).parents[2]

# Runs by itself, for what Ray leaves in a process. Ray believes how many GPUs there are, and shows each worker its own.
DRIVER = """
import json, os, time
import ray
from bert_core.refused import Refused
from bert_core.studies.engines import ray_worker_device, run_on_ray

def visible(shard):
    time.sleep(0.2)
    return os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid()

def shards_until(seen, processes):
    # at least 8 shards, and more until that many processes have measured one
    for shard in range(600):
        if shard >= 8 and len(seen) >= processes:
            return
        yield shard

found = {}
for gpus in (2, 0):
    ray.init(num_cpus=4, num_gpus=gpus, include_dashboard=False, log_to_driver=False)
    for device in ("auto", "cuda", "cpu", None):
        try:
            of_workers = ray_worker_device(device)
            seen = set()
            of_study = run_on_ray(visible, (), shards_until(seen, 2 if of_workers == "cuda" else 1), of_workers)
            for _, result in of_study:
                seen.add(result)
            found[f"{device} {gpus}"] = [of_workers, sorted({visible_gpu for visible_gpu, _ in seen}), len(seen)]
        except Refused as error:
            found[f"{device} {gpus}"] = str(error)
    ray.shutdown()
print(json.dumps(found))
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, so it is not refused")
def test_a_gpu_that_is_not_there_is_refused_before_a_cluster_starts(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence, where Ray would wait for ever for a GPU; and a number of a GPU says nothing to a cluster."""
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "a.txt").write_text("the cat sat\n", encoding="utf-8")
    given, model = tmp_path / "a.txt", str(tiny_model_folder)
    for device, sentence in (
        ("cuda", "device 'cuda' is not available"),
        ("cuda:1", "give 'cuda', and each worker"),
    ):
        for study in (
            iter_heads(given, model, engine="ray", device=device),
            iter_explanations(given, tmp_path / "a.csv", model, engine="ray", device=device),
            iter_index(given, tmp_path / "index", model, engine="ray", device=device),
        ):
            with pytest.raises(Refused, match=sentence):
                next(study)
        assert not ray.is_initialized()


@pytest.mark.slow
def test_workers_share_the_gpus_of_a_cluster() -> None:
    """With `auto` and `cuda` each GPU has one worker that measures all its shards; otherwise no worker has one."""
    pytest.importorskip("ray")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for device in ("auto", "cuda", "None"):
        assert found[f"{device} 2"] == ["cuda", ["0", "1"], 2], device  # 2 processes measured all 8 shards
    assert found["cpu 2"][0] == "cpu" and not set(found["cpu 2"][1]) & {"0", "1"}
    assert found["auto 0"][0] == found["None 0"][0] == "auto" and found["cpu 0"][0] == "cpu"
    assert found["cuda 0"] == "device 'cuda' is not in the Ray cluster: it has 4 CPUs and no GPU"
