"""What it costs to read and analyse a table of evaluated texts, and to evaluate texts in batches.

    python benchmarks/dataset.py            print the table
    python benchmarks/dataset.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/dataset.py --quick    the smallest size, to check that it works

A table of 100,000 random rows against pandas and scikit-learn, which must find the same counts; and a classifier of the
size of headlight-mini with random weights against a loop of transformers over batches of the same size. The runs of the
page Dataset on the server have no peer.
"""

from __future__ import annotations

import os
import platform
import resource
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from encoder import KEPT, SEED
from search import median_ms
from sklearn.metrics import confusion_matrix
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
from tables import QUICK, command, in_own_process
from transformers import BertForSequenceClassification

import bert_core
from bert_core import Line, checkpoint
from bert_core.analysis import evaluation
from bert_core.run.losses import batch_by_length
from bert_core.run.memory import copies_at_once
from bert_core.studies.tables import write_columns
from viz_app.pages.dataset.sources import UPLOAD
from viz_app.shell.controls import Upload

ROWS, TEXTS, REPEATS = (1_000, 40, 1) if QUICK else (100_000, 4_000, 5)
LABELS = 12
WORDS = ["the", "king", "saw", "an", "old", "door", "and", "walked", "into", "his", "house", "by", "the", "river"]


def random_columns() -> dict[str, list[object]]:
    """Return the columns of a table of random rows, as `headlight evaluate-file` writes them."""
    rng = np.random.default_rng(SEED)
    names = np.array([f"label {number}" for number in range(LABELS)], object)
    answers = names[rng.integers(LABELS, size=ROWS)]
    predictions = np.where(rng.random(ROWS) < 0.7, answers, names[rng.integers(LABELS, size=ROWS)])
    return {
        "question": ["class"] * ROWS, "row": list(range(ROWS)),
        "text": [" ".join(rng.choice(WORDS, count)) for count in rng.integers(5, 30, size=ROWS)],
        "pair": [""] * ROWS, "position": [-1] * ROWS, "answer": answers.tolist(), "prediction": predictions.tolist(),
        **{name: rng.random(ROWS).tolist() for name in ("probability", "confidence", "loss")},
        "source": rng.choice(["web", "book", "news"], ROWS).tolist(),
    }  # fmt: skip


def measure_table() -> dict[str, object]:
    """Milliseconds of the library and its peer for each step, and the growth of the peak memory by reading, in MiB."""
    columns = random_columns()
    with tempfile.TemporaryDirectory() as folder:
        files = {ending: Path(folder, f"table{ending}") for ending in (".csv", ".parquet")}
        for path in files.values():
            write_columns(columns, path)
        del columns
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        table = bert_core.read_evaluation(files[".parquet"])
        memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        frame = pd.read_parquet(files[".parquet"])
        matrix = evaluation.confusion(table)
        expected = confusion_matrix(frame["answer"], frame["prediction"], labels=list(matrix.labels))
        groups = frame.groupby("source")["loss"].agg(["size", "mean", "sem"])
        parts = {part.value: part for part in evaluation.slices(table, "source")}
        own_groups = [(parts[name].count, parts[name].mean_loss, parts[name].loss_error) for name in groups.index]
        if not (np.array_equal(matrix.counts, expected) and np.allclose(own_groups, groups.to_numpy())):
            raise SystemExit("the counts differ from those of scikit-learn or pandas")
        pairs = {
            "read .parquet": (
                lambda: bert_core.read_evaluation(files[".parquet"]), lambda: pd.read_parquet(files[".parquet"])
            ),
            "read .csv": (lambda: bert_core.read_evaluation(files[".csv"]), lambda: pd.read_csv(files[".csv"])),
            "order by loss": (
                lambda: evaluation.order(table), lambda: frame["loss"].argsort(kind="stable")
            ),
            "confusion matrix": (
                lambda: evaluation.confusion(table),
                lambda: confusion_matrix(frame["answer"], frame["prediction"], labels=list(matrix.labels)),
            ),
            "slices by a column": (
                lambda: evaluation.slices(table, "source"),
                lambda: frame.groupby("source")["loss"].agg(["size", "mean", "sem"]),
            ),
        }  # fmt: skip
        return {"rows": {name: median_ms(pair, REPEATS) for name, pair in pairs.items()}, "memory": memory}


def measure_page() -> dict[str, object]:
    """Milliseconds of the first run of the page with an uploaded table and of later ones, and the memory that it adds.

    The runs are those of the server, without a browser. The first one has no peer: it includes a wait for the queue.
    """
    app = AppTest.from_file(Path(__file__).parents[1] / "streamlit_app.py", default_timeout=600)
    app._page_hash = calc_hash("dataset")
    _run(app)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.parquet")
        write_columns(random_columns(), path)
        app.session_state[UPLOAD] = Upload(path.name, path.read_bytes())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = {"first run": [_run(app)]}
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    changes = {"next rows": ("row_page", (2, 3, 4, 5, 6)), "rows of an outcome": ("outcome", ("wrong", "correct") * 2)}
    for name, (key, values) in changes.items():
        times[name] = []
        for value in values:
            app.session_state[key] = value
            times[name].append(_run(app))
    if f"of {ROWS:,} predictions" not in " ".join(element.value for element in app.markdown):
        raise SystemExit("the page has no result")
    return {"times": {name: float(np.median(values)) for name, values in times.items()}, "memory": memory}


def _run(app: AppTest) -> float:
    """Run the page until its work is done, and return the milliseconds."""
    start = time.perf_counter()
    app.run()
    while any(button.key == "stop_job" for button in app.button):
        time.sleep(0.05)
        app.run()
    if app.exception or app.error:
        raise SystemExit("the page has an error")
    return 1000 * (time.perf_counter() - start)


def measure_texts() -> dict[str, object]:
    """Milliseconds of `evaluate_texts` and of a loop of transformers, over the same batches of texts."""
    rng = np.random.default_rng(SEED)
    texts = [" ".join(rng.choice(WORDS, count)) for count in rng.integers(5, 30, size=TEXTS)]
    source = Path(bert_core.load("headlight-mini", device="cpu").report.source)
    config = checkpoint.read_config(source).with_labels(["no", "yes"])
    torch.manual_seed(SEED)
    head = {"classifier.weight": torch.randn(2, config.hidden_size), "classifier.bias": torch.randn(2)}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write_tensors({**checkpoint.read_weights(source), **head}, config, Path(folder))
        for path in source.glob("*token*"):
            Path(folder, path.name).write_bytes(path.read_bytes())
        for path in source.glob("vocab*"):
            Path(folder, path.name).write_bytes(path.read_bytes())
        loaded = bert_core.load(folder, device="cpu")
        model = BertForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    lines = [Line(number, text, answer="yes") for number, text in enumerate(texts)]
    settings = bert_core.EvaluationSettings("class")

    def library() -> np.ndarray:
        return bert_core.evaluate_texts(loaded, lines, settings).loss

    def peer() -> np.ndarray:
        """The losses, in batches of texts of similar length, as large as those of the library."""
        losses = np.empty(TEXTS)
        encodings = [loaded.tokenizer.encode(text) for text in texts]
        for indices in batch_by_length(encodings, lambda tokens: copies_at_once(loaded, tokens)):
            ids = [torch.tensor(encodings[index].input_ids) for index in indices]
            padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
            mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
            with torch.no_grad():
                logits = model(padded, attention_mask=mask).logits
            losses[indices] = -logits.log_softmax(-1)[:, 1].numpy()
        return losses

    if not np.allclose(library(), peer(), rtol=1e-3, atol=1e-4):
        raise SystemExit("the losses differ from those of transformers")
    return {"rows": {f"evaluate {TEXTS:,} texts": median_ms((library, peer), REPEATS)}}


def measure(name: str) -> dict[str, object]:
    """The result of one of the parts."""
    return {"table": measure_table, "page": measure_page, "texts": measure_texts}[name]()


def table() -> str:
    """The table, with the machine that it is of."""
    results = {name: in_own_process(__file__, name, malloc=KEPT) for name in ("table", "texts", "page")}
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs; Python {platform.python_version()}, torch {torch.__version__}, "
        f"pandas {version('pandas')}, scikit-learn {version('scikit-learn')}; {ROWS:,} rows; reading .parquet adds "
        f"{results['table']['memory']:,.0f} MiB; medians of {REPEATS} runs a side.",
        "",
        "| | library, ms | peer, ms | ratio |",
        "| --- | ---: | ---: | ---: |",
    ]
    for part in ("table", "texts"):
        for name, (library, peer) in results[part]["rows"].items():
            lines.append(f"| {name} | {library:,.1f} | {peer:,.1f} | {library / peer:.2f} |")
    library, peer = results["texts"]["rows"][f"evaluate {TEXTS:,} texts"]
    lines += ["", f"Texts per second: {1000 * TEXTS / library:,.0f}; transformers {1000 * TEXTS / peer:,.0f}."]
    page_times = ", ".join(f"{name} {milliseconds:,.0f} ms" for name, milliseconds in results["page"]["times"].items())
    lines += ["", f"Server of the page Dataset: {page_times}; it adds {results['page']['memory']:,.0f} MiB."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "What evaluated texts cost.", table, measure)
