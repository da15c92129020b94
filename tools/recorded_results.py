"""Records the results with which the pages Probing and Fine-tuning open, as dated JSON files of the package.

    python -m tools.recorded_results probes
    python -m tools.recorded_results finetuning

Each file holds the date, the model with its fingerprint, the settings and the numbers. Run it again whenever the
weights of the bundled model change.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel, load
from bert_core.progress import print_progress
from bert_core.run.capture import capture
from bert_core.studies.compare import compare_models
from bert_core.studies.probes import probe_points
from bert_core.studies.settings import ProbeSettings
from bert_core.training.finetune import finetune
from bert_core.training.runs import kept_steps, read_log
from bert_core.training.settings import FinetuneSettings
from viz_app.finetuning.examples import example_file
from viz_app.finetuning.material import KINDS, FinetuneRequest
from viz_app.finetuning.recorded import RUN_FILE
from viz_app.pages.probes.labels import AGREEMENT, MAX_WORDS
from viz_app.pages.probes.recorded import LABEL, PROBES_FILE, SEEDS

MODEL = "headlight-mini"
COMPARED_TEXTS = 16  # rows of the file on which each kept step is compared with the start
DIGITS = 4  # significant digits of the numbers of a run


def record_probes() -> dict[str, Any]:
    """Probe the number of the subject in the words of bert-agreement, as the page does."""
    model, settings = load(MODEL, device="cpu"), ProbeSettings(seeds=SEEDS, words=MAX_WORDS)
    points = list(probe_points(model, AGREEMENT.sentences(LABEL), settings, report=print_progress))
    return {
        **_origin(model),
        "label": LABEL,
        "settings": dataclasses.asdict(settings),
        "points": [
            {name: value for name, value in vars(point).items() if value == value}  # without NaN: not measured
            for point in points
        ],
    }


def record_finetuning() -> dict[str, Any]:
    """Fine-tune on the example reviews, and compare every kept step with the start."""
    request = FinetuneRequest(
        MODEL, KINDS["classes"].example_file, "text", "class", epochs=2, learning_rate=3e-4, keep=8, max_length=32
    )
    names = {field.name for field in dataclasses.fields(FinetuneSettings)}
    settings = FinetuneSettings(**{name: value for name, value in vars(request).items() if name in names})
    with tempfile.TemporaryDirectory() as temporary:
        table, folder = Path(temporary) / request.table, Path(temporary) / "run"
        table.write_bytes(example_file("classes"))
        finetune(table, folder, settings, text="text", label="class", keep=request.keep, device="cpu")
        texts = request.kind.read_file(table, request)
        steps = {number: load(path, device="cpu") for number, path in kept_steps(folder).items()}
        log = read_log(folder)
    first, *later_steps = steps
    rows: dict[str, Any] = {"labels": texts.labels[:COMPARED_TEXTS], "max_length": request.max_length}
    compared = {
        number: compare_models(steps[first], steps[number], texts.texts[:COMPARED_TEXTS], **rows)
        for number in later_steps
    }
    divergence = compared[later_steps[-1]].divergence
    assert divergence is not None  # training changes no shape
    layer, head = (int(index) for index in np.unravel_index(divergence.argmax(), divergence.shape))
    text = texts.texts[0]
    assert isinstance(text, str)  # the file has one column of texts
    encoding = steps[first].tokenizer.encode(text, max_length=request.max_length)
    return {
        **_origin(load(MODEL, device="cpu")),
        "request": dataclasses.asdict(request),
        "texts": COMPARED_TEXTS,
        "tokens": compared[later_steps[-1]].tokens,
        "steps": log.steps,
        "losses": log.losses,
        "held_out": [
            [step, {name: scores[name] for name in ("loss", *request.kind.scores)}] for step, scores in log.held_out
        ],
        "best_steps": log.best_steps,
        "head": [layer, head],
        "text_tokens": encoding.tokens,
        "maps": {number: _rounded(capture(model, encoding).attention[layer, head]) for number, model in steps.items()},
        "divergence": {number: _rounded(result.divergence) for number, result in compared.items()},
        "cka": {number: _rounded(result.cka) for number, result in compared.items()},
    }


def _origin(model: LoadedModel) -> dict[str, str]:
    return {"date": date.today().isoformat(), "model": model.name, "fingerprint": fingerprint(model)}


def _rounded(values: np.ndarray | None) -> list[list[float]]:
    """Return a matrix with few significant digits."""
    assert values is not None
    return [[float(f"{value:.{DIGITS}g}") for value in row] for row in values.tolist()]


def write_file(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file with one line for each entry."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


RECORDED = {"probes": (record_probes, PROBES_FILE), "finetuning": (record_finetuning, RUN_FILE)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Record one result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("result", choices=RECORDED)
    record, path = RECORDED[parser.parse_args(arguments).result]
    write_file(path, record())


if __name__ == "__main__":
    main()
