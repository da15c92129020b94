"""What an index of a corpus costs to make and to search, and what int8 loses.

    python benchmarks/search.py            print the tables
    python benchmarks/search.py --write    and put them between the markers of benchmarks/README.md
    python benchmarks/search.py --quick    the smallest size, to check that it works

headlight-mini over the first sentences of the text that HEADLIGHT_TEXT names, or of the guides in docs/. Making: the
index beside passes of the same sentences that keep their maps, where its time goes, and beside what exBERT keeps
(Hoover 2020, arXiv:1910.05276). Recall: of the 50 tokens whose states, or what a head brings, are nearest by cosine in
float32, the share that the search finds, over tokens drawn from a seed. Searching: rows drawn from a seed, by the
search of `headlight search`, by usearch's exact scan of the same int8 rows, and by faiss's of the same rows in float32
and in fp16, on one thread and on two, in processes whose BLAS has one, taking turns; ours, usearch's first and faiss's
in float32 must be the same rows. Of ten million rows faiss's copies, of 23 GB, are left out.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from by_faiss import KINDS, Faiss, random_rows
from encoder import KEPT, SEED
from tables import QUICK, command, in_own_process

import bert_core
from bert_core import IndexSettings
from bert_core.run.losses import attention_maps, batch_by_length
from bert_core.run.memory import BYTES_AT_ONCE, copies_at_once
from bert_core.run.stack import PaddedTexts, encoder_layers, trace
from bert_core.run.states import token_states
from bert_core.studies import index as study
from bert_core.studies.documents import read_documents, split_sentences
from bert_core.studies.search import _products
from bert_core.tokenizer import Encoding

MODEL, BEST = "headlight-mini", 50
TEXT = os.environ.get("HEADLIGHT_TEXT")
ROWS = ((20_000, 32), (20_000, 64)) if QUICK else ((300_000, 384), (1_000_000, 384), (1_000_000, 32), (10_000_000, 384))
BESIDE = 2**20 if QUICK else 2**30  # numbers; of more, faiss's copies do not fit beside these rows


def sentences(count: int) -> list[str]:
    """Of the text, paragraph by paragraph."""
    paths = [Path(TEXT)] if TEXT else sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
    found_sentences: list[str] = []
    for path in paths:
        documents = read_documents(path) if TEXT else [path.read_text(encoding="utf-8").splitlines()]
        for paragraph in chain.from_iterable(documents):
            found_sentences += split_sentences(paragraph)
            if len(found_sentences) >= count:
                return found_sentences[:count]
    return found_sentences


def encoded(loaded: bert_core.LoadedModel, count: int) -> list[Encoding]:
    """What can be read of these."""
    documents = []
    for text in sentences(count):
        try:
            documents.append(loaded.tokenizer.encode(text, max_length=IndexSettings().max_length))
        except bert_core.Refused:
            continue
    return documents


def median_ms(callables: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Of each, taking turns."""
    times: list[list[float]] = [[] for _ in callables]
    for _ in range(repeats):
        for call_times, call in zip(times, callables, strict=True):
            start = time.perf_counter()
            call()
            call_times.append(1000 * (time.perf_counter() - start))
    return [statistics.median(call_times) for call_times in times]


@torch.no_grad()
def written_whole(loaded: bert_core.LoadedModel, encodings: Sequence[Encoding], folder: Path) -> None:
    """What exBERT keeps of each sentence, in float32: all states, what all heads bring, and whole maps."""
    config = loaded.config

    def at_once(tokens: int) -> int:
        map_bytes = 4 * config.num_hidden_layers * config.num_attention_heads * tokens**2
        return min(copies_at_once(loaded, tokens), max(1, BYTES_AT_ONCE // map_bytes))

    with (folder / "states").open("wb") as states, (folder / "contexts").open("wb") as contexts, (
        folder / "maps"
    ).open("wb") as maps:  # fmt: skip
        for numbers in batch_by_length(encodings, at_once):
            batch = PaddedTexts.from_encodings(loaded, [encodings[number] for number in numbers])
            traced = trace(
                encoder_layers(loaded), batch.embeddings, mask=batch.additive_mask, keep=("context", "probs")
            )
            for row, number in enumerate(numbers):
                length = len(encodings[number])
                torch.stack([state[row, :length] for state in traced.states]).numpy().tofile(states)
                torch.stack([layer.merged_context[row, :length] for layer in traced.layers]).numpy().tofile(contexts)
                torch.stack([layer.probs[row, :, :length, :length] for layer in traced.layers]).numpy().tofile(maps)


def measure_making(count: int, repeats: int) -> dict[str, object]:
    """Milliseconds of a whole index, of its parts, of passes that keep maps and of exBERT's way; bytes a token."""
    loaded = bert_core.load(MODEL, device="cpu")
    encodings, layers = encoded(loaded, count), range(loaded.config.num_hidden_layers)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        path.write_text("\n\n".join(encoding.text for encoding in encodings) + "\n", encoding="utf-8")
        number = 0

        def whole() -> None:
            nonlocal number
            number += 1
            for _ in bert_core.iter_index(path, Path(folder, str(number)), MODEL, device="cpu"):
                pass

        def maps() -> None:
            for _ in attention_maps(loaded, encodings):
                pass

        def passes() -> None:
            for _ in token_states(loaded, encodings, layers, study.TOP_KEYS):
                pass

        def packed() -> None:
            study.pack_sentences(loaded, encodings, IndexSettings())

        def exbert() -> None:
            Path(folder, "exbert").mkdir(exist_ok=True)
            written_whole(loaded, encodings, Path(folder, "exbert"))

        whole()  # loads the model once
        sides = {"maps": maps, "passes": passes, "packed": packed, "whole": whole, "exbert": exbert}
        ms = dict(zip(sides, median_ms(list(sides.values()), repeats), strict=True))
        index = bert_core.open_index(Path(folder, "1"))
        sizes: dict[str, float] = {}
        for file in Path(folder, "1").glob("*/*"):
            sizes[file.name] = sizes.get(file.name, 0) + file.stat().st_size / index.tokens
        theirs = {file.name: file.stat().st_size / index.tokens for file in Path(folder, "exbert").iterdir()}
    return {"ms": ms, "tokens": index.tokens, "sizes": sizes, "theirs": theirs, "load": os.getloadavg()[0]}


def measure_recall(count: int, questions: int) -> dict[str, object]:
    """Of every depth, and of every head, the mean share of the nearest in float32 that are found."""
    loaded = bert_core.load(MODEL, device="cpu")
    encodings, layers = encoded(loaded, count), range(loaded.config.num_hidden_layers)
    is_text = np.concatenate([~np.array(encoding.special) for encoding in encodings])
    rng = np.random.default_rng(SEED)
    sample = rng.choice(int(is_text.sum()), questions, replace=False)
    firsts = np.cumsum([0, *map(len, encodings)])
    values: dict[tuple[int, ...], np.ndarray] = {}
    for states in token_states(loaded, encodings, layers, study.TOP_KEYS):
        rows = np.concatenate([np.arange(firsts[number], firsts[number + 1]) for number in states.texts])
        places = {(states.depth,): states.states}
        if states.head_output is not None:
            places |= {(states.depth - 1, head): vectors for head, vectors in enumerate(states.head_output)}
        for place, vectors in places.items():
            values.setdefault(place, np.empty((len(is_text), vectors.shape[-1]), np.float32))[rows] = vectors
    scores: dict[str, list[float]] = {}
    for place, whole in values.items():
        exact = whole[is_text].astype(np.float32)
        exact /= np.linalg.norm(exact, axis=1, keepdims=True)
        small, (_, lengths) = study.quantise_rows(whole[is_text])
        shares = []
        for question in sample.tolist():
            right = np.argpartition(-(exact @ exact[question]), BEST)[:BEST]
            (products,) = _products(small, [small[question].astype(np.float32)])
            ours = np.argpartition(-(products / np.maximum(lengths, 1e-9)), BEST)[:BEST]
            shares.append(len(np.intersect1d(right, ours)) / BEST)
        scores[".".join(map(str, place))] = [float(np.mean(shares)), float(np.min(shares))]
    return {"recall": scores, "tokens": int(is_text.sum())}


def measure_searching(rows: int, size: int, repeats: int) -> dict[str, object]:
    """Milliseconds of a scan of so many rows, on one thread and on two, ours, usearch's and faiss's."""
    faiss = Faiss(rows, size, SEED, BEST) if rows * size <= BESIDE else None
    values = random_rows(rows, size, SEED)
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float32))
    question = values[rows // 2]
    parts = [slice(first, first + 10_000) for first in range(0, rows, 10_000)]  # as shards are

    def of_part(part: slice) -> tuple[np.ndarray, np.ndarray]:
        scores = _products(values[part], [question.astype(np.float32)])[0] / lengths[part]
        best = np.argpartition(-scores, BEST)[:BEST]
        return scores[best], best + part.start

    def ours(threads: int) -> list[int]:
        with ThreadPoolExecutor(threads) as pool:
            scores, places = (np.concatenate(part) for part in zip(*pool.map(of_part, parts), strict=True))
        nearest: list[int] = places[np.argsort(-scores)[:BEST]].tolist()
        return nearest

    def usearch(threads: int) -> list[int]:
        from usearch.index import MetricKind
        from usearch.index import search as scan

        nearest: list[int] = scan(values, question, BEST, MetricKind.Cos, exact=True, threads=threads).keys.tolist()
        return nearest

    sides: dict[str, Callable[[int], list[int]]] = {"ours": ours, "usearch": usearch}
    if faiss is not None:
        sides |= {kind: partial(faiss.find, kind) for kind in KINDS}
    results = {name: side(1) for name, side in sides.items()}
    right = results.get("float32", results["ours"])
    if {result[0] for result in results.values()} != {rows // 2} or sorted(results["ours"]) != sorted(right):
        raise SystemExit("a row does not find itself, or faiss finds others")
    callables = [partial(side, threads) for threads in (1, 2) for side in sides.values()]
    recall = {name: len(set(result) & set(right)) / BEST for name, result in results.items()}
    return {"ms": median_ms(callables, repeats), "recall": recall, "load": os.getloadavg()[0]}


def measure(kind: str, *arguments: int) -> dict[str, object]:
    """One of the three, in a process of its own."""
    return {"making": measure_making, "recall": measure_recall, "searching": measure_searching}[kind](*arguments)


def table() -> str:
    """The whole measurement as Markdown."""
    count, questions, repeats, scans = (20, 5, 1, 1) if QUICK else (800, 200, 3, 9)
    one_thread = {**KEPT, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    result = in_own_process(__file__, "making", count, repeats, malloc=one_thread)
    tokens, ms, sizes, theirs = (result[name] for name in ("tokens", "ms", "sizes", "theirs"))
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, one thread of torch and of BLAS; torch {torch.__version__}, "
        f"NumPy {np.__version__}, usearch {version('usearch')}, faiss {version('faiss-cpu')}, Python "
        f"{sys.version.split()[0]}; malloc as `headlight` sets it. Text: "
        f"{Path(TEXT).name if TEXT else 'the guides in docs/'}, {tokens:,} tokens; medians of {repeats} runs, taking "
        f"turns; load {result['load']:.1f}.\n",
        "| making, headlight-mini | tokens/s | of passes that keep maps |",
        "| --- | ---: | ---: |",
        f"| passes that keep maps (`attention_maps`) | {1000 * tokens / ms['maps']:,.0f} | 1 |",
    ]
    words = {
        "passes": "passes, with head outputs and their strongest keys",
        "packed": "the same, rounded to int8",
        "whole": "the index, read, tokenized and written",
        "exbert": "what exBERT keeps, passes and written, from tokens",
    }
    for name, description in words.items():
        lines.append(f"| {description} | {1000 * tokens / ms[name]:,.0f} | {ms['maps'] / ms[name]:.2f} |")
    lines += ["\n| bytes a token |  |", "| --- | ---: |"]
    lines += [f"| {name} | {sizes[name]:,.1f} |" for name in sorted(sizes, key=lambda name: -sizes[name])]
    ours, once = sum(sizes.values()), sum(theirs.values())
    twice = once + theirs["states"] + theirs["contexts"]
    lines.append(f"| together; of 100,000 tokens {ours / 1e4:.2f} GB | {ours:,.1f} |")
    lines += [
        f"| exBERT's way: {name}, float32 | {theirs[short]:,.1f} |"
        for short, name in (("states", "states"), ("contexts", "head outputs"), ("maps", "whole maps"))
    ]
    lines.append(f"| together; {once / ours:.1f} times as much | {once:,.1f} |")
    lines.append(f"| with the first two once more in flat indexes; {twice / ours:.1f} times as much | {twice:,.1f} |")
    result = in_own_process(__file__, "recall", count, questions, malloc=one_thread)
    recall = result["recall"]
    lines += [
        f"\n| recall of int8 at {BEST}, {result['tokens']:,} tokens, {questions} questions | mean | lowest |",
        "| --- | ---: | ---: |",
    ]
    for place, (mean, minimum) in recall.items():
        if "." not in place:
            lines.append(f"| states of depth {place} | {mean:.3f} | {minimum:.2f} |")
    for layer in sorted({place.split(".")[0] for place in recall if "." in place}):
        layer_recall = {place: figures for place, figures in recall.items() if place.startswith(f"{layer}.")}
        worst = min(layer_recall, key=lambda place: layer_recall[place][0])
        lines.append(
            f"| heads of L{layer}; the worst, H{worst.split('.')[1]}, {layer_recall[worst][0]:.3f} | "
            f"{np.mean([mean for mean, _ in layer_recall.values()]):.3f} | "
            f"{min(minimum for _, minimum in layer_recall.values()):.2f} |"
        )
    lines += [
        f"\n| searching; medians of {scans} | bytes a row | one thread, ms | of ours | two, ms | of ours | of "
        f"float32's {BEST} | load |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for rows, size in ROWS:
        result = in_own_process(__file__, "searching", rows, size, scans, malloc=one_thread)
        sides, ms = list(result["recall"]), result["ms"]
        widths = {"ours": size + 8, "usearch": size, "float32": 4 * size, "fp16": 2 * size}
        for number, side in enumerate(sides):
            single, double = ms[number], ms[number + len(sides)]
            lines.append(
                f"| {rows:,} x {size}, {f'faiss, {side}' if side in KINDS else side} | {widths[side]:,} | "
                f"{single:.0f} | {single / ms[0]:.2f} | {double:.0f} | {double / ms[len(sides)]:.2f} | "
                f"{result['recall'][side] if 'float32' in sides else np.nan:.2f} | "
                f"{result['load']:.1f} |"
            )
    return "\n".join(lines).replace(" nan ", " – ") + "\n"


if __name__ == "__main__":
    command(__file__, "An index of a corpus.", table, measure)
