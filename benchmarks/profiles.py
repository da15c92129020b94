"""What it costs to count the profiles of heads, tokens and neurons over an index that is there.

    python benchmarks/profiles.py            print the table
    python benchmarks/profiles.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/profiles.py --quick    the smallest size, to check that it works

headlight-mini over the text or treebank that HEADLIGHT_TEXT names, or over the guides in docs/. Beside each stands a
pass of the model over the same sentences, some at a time: what whoever has no index pays before anything is counted.
Of neurons it ends at their layer, as ours does.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from encoder import KEPT, SEED
from search import MODEL, TEXT, median_ms, sentences
from tables import QUICK, command, in_own_process

import bert_core
from bert_core import open_index
from bert_core.run.losses import attention_maps
from bert_core.run.states import iter_activations

SENTENCES, REPEATS, NEURONS, TOKENS = (20, 1, 2, 10) if QUICK else (2_000, 5, 32, 500)
THREADS = (1,) if QUICK else (1, 2)


def measure(threads: int) -> dict[str, object]:
    """Milliseconds of each and of its pass; how many tokens the index has, and of how many each is."""
    torch.set_num_threads(threads)
    loaded = bert_core.load(MODEL, device="cpu")
    config = loaded.config
    with tempfile.TemporaryDirectory() as folder:
        path = Path(TEXT) if TEXT else Path(folder, "guides.txt")
        if not TEXT:
            path.write_text("\n\n".join(sentences(SENTENCES)) + "\n", encoding="utf-8")
        for _ in bert_core.iter_index(path, Path(folder, "index"), MODEL, device="cpu"):
            pass
        index = open_index(Path(folder, "index"))
        encodings = [
            loaded.tokenizer.encode(text, max_length=index.settings.max_length)
            for shard in index.shards
            for text in shard.texts
        ]

        def fire(layer: int) -> None:
            for _ in iter_activations(loaded, encodings, [layer]):
                pass

        def see() -> None:
            for _ in attention_maps(loaded, encodings):
                pass

        rows: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            f"{len(index.all_heads)} heads": (partial(bert_core.head_profiles, index), see),
            f"{len(bert_core.token_profiles(index, max_pieces=TOKENS))} tokens": (
                partial(bert_core.token_profiles, index, max_pieces=TOKENS), see
            ),
        }  # fmt: skip
        for layer in (0, config.num_hidden_layers - 1):
            sample = np.random.default_rng(SEED).choice(config.intermediate_size, NEURONS, replace=False)
            neurons = [(layer, neuron) for neuron in sample.tolist()]
            rows[f"{NEURONS} neurons of layer {layer}"] = (
                partial(bert_core.neuron_profiles, index, loaded, neurons), partial(fire, layer)
            )  # fmt: skip
        times = {name: median_ms(pair, REPEATS) for name, pair in rows.items()}
        return {"rows": times, "tokens": index.tokens, "sentences": len(encodings), "text": path.name}


def table() -> str:
    """The table, with the machine that it is of."""
    by_threads = {threads: in_own_process(__file__, threads, malloc=KEPT) for threads in THREADS}
    first = by_threads[THREADS[0]]
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs; Python {platform.python_version()}, torch {torch.__version__}, "
        f"NumPy {version('numpy')}; {first['text']}, {first['sentences']:,} sentences, {first['tokens']:,} tokens; "
        f"medians of {REPEATS} runs a side.",
        "",
        "| | threads | profiles, ms | a pass, ms | ratio |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in first["rows"]:
        for threads, result in by_threads.items():
            ours, theirs = result["rows"][name]
            lines.append(f"| {name} | {threads} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "What profiles cost.", table, measure)
