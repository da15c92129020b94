"""`table()` of a run of base size beside the same DataFrame by `pandas.MultiIndex.from_product`.

    python benchmarks/record_tables.py            print the table
    python benchmarks/record_tables.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/record_tables.py --quick    the smallest size, to check that it works

Both DataFrames must be equal in values, order and dtypes before a clock starts. They have the attention, its gradient,
their product, and the norm of value-weighted attention. Memory is the peak of allocations above that of the arrays.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
from tables import QUICK, command, in_own_process

import bert_core
from bert_core import Encoding, ModelRun

REPEATS = 1 if QUICK else 7
LAYERS, HEADS, TOKENS = (2, 2, 8) if QUICK else (12, 12, 128)
LAYER = 1  # of the table with a selection
WORDS = ("the", "king", "opened", "a", "door", "and", "walked", "in")


def random_run() -> ModelRun:
    """A run with random maps, gradients and norms."""
    tokens = ("[CLS]", *(WORDS[place % len(WORDS)] for place in range(TOKENS - 2)), "[SEP]")
    text = bert_core.load("headlight-mini", device="cpu").tokenizer.encode(" ".join(tokens[1:-1]))
    if text.tokens != tokens:
        raise SystemExit("a word of the text is not one token")
    generator = np.random.default_rng(0)
    attention, gradient = generator.standard_normal((2, LAYERS, HEADS, TOKENS, TOKENS), np.float32)
    norms = generator.random((LAYERS, HEADS, TOKENS), np.float32)
    return ModelRun(text, attention, np.ones((LAYERS, HEADS), np.float32), gradient=gradient, norms=norms)


def with_tokens(frame: pandas.DataFrame, text: Encoding) -> pandas.DataFrame:
    """The DataFrame of the axes and values with small dtypes and the tokens, in the order of the columns of `table`."""
    frame = frame.astype(dict.fromkeys(("layer", "head", "query_position", "key_position"), np.int32))
    categories, codes = np.unique(np.array(text.tokens, object), return_inverse=True)
    for name in ("query", "key"):
        positions = frame[f"{name}_position"].to_numpy()
        frame[name] = pandas.Categorical.from_codes(codes[positions], categories)
    index = ["layer", "head", "query_position", "query", "key_position", "key"]
    return frame[[*index, "attention", "gradient", "product", "norm"]]


def by_pandas(run: ModelRun, layers: slice = slice(None)) -> pandas.DataFrame:
    """The DataFrame that the documentation of pandas suggests: an index of all places, as columns."""
    attention, gradient = run.attention[layers], run.gradient[layers]
    norm = attention * run.norms[layers][:, :, None]
    index = pandas.MultiIndex.from_product(
        [range(LAYERS)[layers], range(HEADS), range(TOKENS), range(TOKENS)],
        names=["layer", "head", "query_position", "key_position"],
    )
    values = {"attention": attention, "gradient": gradient, "product": gradient * attention, "norm": norm}
    frame = pandas.DataFrame({name: array.ravel() for name, array in values.items()}, index=index)
    return with_tokens(frame.reset_index(), run.encoding)


def seconds_and_memory(side: Callable[[], object]) -> tuple[float, float]:
    """Seconds of a side, and the peak of its allocations in MiB from a second run."""
    start = time.perf_counter()
    side()
    seconds = time.perf_counter() - start
    tracemalloc.start()
    side()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return seconds, peak


def measure() -> dict[str, Any]:
    """Rows, median seconds and MiB of each side, by the name of the table."""
    run = random_run()
    cases: dict[str, tuple[Callable[[], pandas.DataFrame], Callable[[], pandas.DataFrame]]] = {
        "all layers": (run.table, lambda: by_pandas(run)),
        "one layer": (lambda: run.table(layer=LAYER), lambda: by_pandas(run, slice(LAYER, LAYER + 1))),
    }
    results: dict[str, Any] = {}
    for name, sides in cases.items():
        tables = [side() for side in sides]
        pandas.testing.assert_frame_equal(*tables, check_exact=True)
        samples = np.array([[seconds_and_memory(side) for side in sides] for _ in range(REPEATS)])
        medians = [[statistics.median(samples[:, side, figure]) for side in range(2)] for figure in range(2)]
        results[name] = {"rows": len(tables[0]), "seconds": medians[0], "memory": medians[1]}
    return results


def table() -> str:
    """The whole measurement as Markdown."""
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs; pandas {pandas.__version__}, NumPy {np.__version__}; a run of "
        f"{LAYERS} layers, {HEADS} heads and {TOKENS} tokens; medians of {REPEATS} runs a side; "
        f"{time.strftime('%Y-%m-%d')}.\n",
        "| table | rows | `table()`, ms | pandas, ms | ratio | `table()`, MiB | pandas, MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, result in in_own_process(__file__, malloc={}).items():
        ours, peer = result["seconds"]
        memory = " | ".join(f"{peak:.1f}" for peak in result["memory"])
        lines.append(
            f"| {name} | {result['rows']:,} | {1000 * ours:.1f} | {1000 * peer:.1f} | {ours / peer:.2f} | {memory} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Tables of a run.", table, measure)
