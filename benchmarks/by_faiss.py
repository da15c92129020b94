"""Exact scans by faiss for `search.py`, in a process without torch: their two OpenMPs do not go together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

KINDS = ("float32", "fp16")  # flat, and the scalar quantizer


def random_rows(rows: int, size: int, seed: int) -> np.ndarray:
    """The rows that all sides look through, int8 (row, size)."""
    rng = np.random.default_rng(seed)
    values = np.empty((rows, size), np.int8)
    for first in range(0, rows, 50_000):
        values[first : first + 50_000] = rng.integers(-127, 128, values[first : first + 50_000].shape, np.int8)
    return values


class Faiss:
    """The other process, from this one."""

    def __init__(self, rows: int, size: int, seed: int, best: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import by_faiss; by_faiss.answer()", *map(str, (rows, size, seed, best))],
            cwd=Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def find(self, kind: str, threads: int) -> list[int]:
        """The rows most like the one in the middle by cosine, the best first."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(kind, threads, file=self._process.stdin, flush=True)
        indices: list[int] = json.loads(self._process.stdout.readline())
        return indices


def answer() -> None:
    """Answer what `Faiss.find` asks, until nobody asks any more."""
    import faiss

    rows, size, seed, best = map(int, sys.argv[1:])
    values = random_rows(rows, size, seed)
    half = faiss.IndexScalarQuantizer(size, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    indexes = dict(zip(KINDS, (faiss.IndexFlatIP(size), half), strict=True))
    for first in range(0, rows, 50_000):
        block = values[first : first + 50_000].astype(np.float32)
        block /= np.linalg.norm(block, axis=1, keepdims=True)
        for index in indexes.values():
            index.add(block)
    question = values[rows // 2 : rows // 2 + 1].astype(np.float32)
    question /= np.linalg.norm(question)
    del values
    for line in sys.stdin:
        kind, threads = line.split()
        faiss.omp_set_num_threads(int(threads))
        print(json.dumps(indexes[kind].search(question, best)[1][0].tolist()), flush=True)
