"""Queries and keys in one plane: bert_core, and transformers with hooks, scikit-learn and SciPy, taking turns.

The second table has the correlation and trustworthiness of PCA, t-SNE and UMAP.

    python benchmarks/query_keys.py            print the table
    python benchmarks/query_keys.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/query_keys.py --quick    the smallest size, to check that it works

Both sides must find the same points and measures before a clock starts.
"""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
import warnings
from functools import partial
from typing import Any

import numpy as np
import sklearn
import torch
import transformers
from encoder import MALLOC, Findings, encoding_of, in_turns, require_same, sentence
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE, trustworthiness
from tables import QUICK, SIZES, command, in_own_process
from torch import Tensor

import bert_core
from bert_core import LoadedModel, query_key_planes
from bert_core.analysis.query_keys import align_queries_keys, distance_correlation
from bert_core.loading import ASSETS, LoadReport, best_device
from bert_core.modeling import BertForPreTraining
from bert_core.studies.texts import read_trees
from bert_core.tokenizer import Tokenizer
from viz_app.lessons import TREES

TEXTS, TOKENS = (4, 16) if QUICK else (8, 32)
REPEATS = 1 if QUICK else 3
LAYER, HEAD, NEIGHBOURS = 1, 2, 10
HEADS = [(3, 8)] if QUICK else [(layer, 8) for layer in range(6)]  # of headlight-mini
ROWS = (
    ("transformers with hooks, PCA and trustworthiness of scikit-learn, SciPy; no shuffles or rotations", "pca"),
    ("the same with t-SNE in place of PCA", "tsne"),
)


def ours(loaded: LoadedModel, ids: Tensor) -> Findings:
    """The plane and its measures, with those of 20 shuffles and 20 rotations."""
    (plane,) = query_key_planes(loaded, [encoding_of(row[None]) for row in ids], [(LAYER, HEAD)])
    distances = np.linalg.norm(np.concatenate([plane.queries, plane.keys]), axis=1)
    return {"points": [distances], "measures": [[plane.correlation, plane.trustworthiness]]}


@torch.no_grad()
def theirs(model: Any, tsne: bool, ids: Tensor) -> Findings:
    """The same by hooks, text by text, without shuffles."""
    attention = model.encoder.layer[LAYER].attention.self
    size, outputs = attention.attention_head_size, {"query": [], "key": []}
    hooks = [
        getattr(attention, name).register_forward_hook(
            lambda module, inputs, output, rows=rows: rows.append(output[0, :, HEAD * size : (HEAD + 1) * size])
        )
        for name, rows in outputs.items()
    ]
    try:
        for row in ids:
            model(row[None])
    finally:
        for hook in hooks:
            hook.remove()
    queries, keys = (torch.cat(rows).double().cpu().numpy() for rows in outputs.values())
    scale = np.sqrt(np.linalg.norm(keys - keys.mean(0)) / np.linalg.norm(queries - queries.mean(0)))
    scaled, divided = queries * scale, keys / scale
    vectors = np.concatenate([scaled, divided + scaled.mean(0) - divided.mean(0)])
    points = (TSNE(random_state=0) if tsne else PCA(2, svd_solver="full")).fit_transform(vectors)
    correlations = []
    for start in range(0, len(queries), ids.shape[1]):
        stop = start + ids.shape[1]
        for query in range(start, stop):
            distances = np.linalg.norm(points[len(queries) + start : len(queries) + stop] - points[query], axis=1)
            correlations.append(spearmanr(keys[start:stop] @ queries[query], -distances).statistic)
    trust = trustworthiness(vectors, points, n_neighbors=NEIGHBOURS)
    return {"points": [np.linalg.norm(points, axis=1)], "measures": [[np.mean(correlations), trust]]}


def projections() -> dict[str, list[float]]:
    """Name of a projection -> medians of correlation and trustworthiness over `HEADS`, on the bundled sentences."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from umap import UMAP

    loaded = bert_core.load("headlight-mini", device="cpu")
    encodings = [loaded.tokenizer.encode(tree.text) for tree, _ in read_trees(TREES)]
    texts = np.repeat(np.arange(len(encodings)), [len(encoding) for encoding in encodings])
    factories = {
        "PCA": lambda: PCA(2, svd_solver="full"),
        "t-SNE": lambda: TSNE(random_state=0),
        "UMAP": lambda: UMAP(random_state=0, n_jobs=1),
    }
    measures: dict[str, list[tuple[float, float]]] = {name: [] for name in factories}
    for layer, head in HEADS:
        heads = [bert_core.head_vectors(loaded, encoding, layer, head) for encoding in encodings]
        queries, keys, _, _ = align_queries_keys(
            np.concatenate([vectors.queries for vectors in heads]), np.concatenate([vectors.keys for vectors in heads])
        )
        vectors = np.concatenate([queries, keys])
        for name, factory in factories.items():
            points = factory().fit_transform(vectors)
            correlation = distance_correlation(queries, keys, texts, points[: len(queries)], points[len(queries) :])
            measures[name].append((correlation, trustworthiness(vectors, points, n_neighbors=NEIGHBOURS)))
    return {name: [statistics.median(values) for values in zip(*rows, strict=True)] for name, rows in measures.items()}


def measure() -> dict[str, Any]:
    """What was timed, median milliseconds of ours and of theirs, the machine meanwhile; and `projections`."""
    torch.manual_seed(0)
    device = best_device()
    with tempfile.TemporaryDirectory() as folder:
        transformers.BertForPreTraining(transformers.BertConfig(**SIZES)).save_pretrained(folder)
        peer = transformers.BertModel.from_pretrained(folder).to(device).eval()
        model = BertForPreTraining.from_pretrained(folder).requires_grad_(False).to(device)
    tokenizer = Tokenizer.from_folder(ASSETS / "headlight-mini")
    loaded = LoadedModel("random", model, tokenizer, LoadReport("random", (), ()), device)
    ids = torch.cat([sentence(TOKENS).roll(text + 1, 1) for text in range(TEXTS)])
    require_same(ours(loaded, ids), theirs(peer, False, ids), f"{TEXTS} texts")
    results = []
    for label, name in ROWS:
        runs = {"ours": partial(ours, loaded), "theirs": partial(theirs, peer, name == "tsne")}
        ms, machine = in_turns(runs, ids, REPEATS)
        results.append((label, ms["ours"], ms["theirs"], machine))
    return {"rows": results, "projections": projections()}


def table() -> str:
    """The table of all rows as Markdown."""
    lines = [
        f"{torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()}, "
        f"{torch.get_num_threads()} threads; Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, scikit-learn {sklearn.__version__}; {TEXTS} texts of {TOKENS} "
        f"tokens, medians of {REPEATS} runs a side; {time.strftime('%Y-%m-%d')}.\n",
        "| theirs | ours, ms | theirs, ms | ratio | load; others' CPUs |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    measured = in_own_process(__file__, malloc=MALLOC["default"])
    for label, left, right, machine in measured["rows"]:
        lines.append(f"| {label} | {left:.0f} | {right:.0f} | {left / right:.3f} | {machine} |")
    lines += [
        f"\nMedians over {len(HEADS)} heads of headlight-mini on the bundled sentences:\n",
        "| projection | correlation | trustworthiness |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {left:.2f} | {right:.2f} |" for name, (left, right) in measured["projections"].items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "queries and keys in one plane, side by side", table, measure)
