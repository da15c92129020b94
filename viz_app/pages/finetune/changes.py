"""What changed in a model from the start of a run to one of its kept steps, from the queue."""

from __future__ import annotations

import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import streamlit as st

from bert_core.analysis.roles import in_words, roles_of_heads
from bert_core.loading import LoadedModel, load, save
from bert_core.records import ModelComparison, ModelRun
from bert_core.run.capture import capture
from bert_core.run.memory import capture_bytes
from bert_core.studies.compare import compare_models, texts_of
from bert_core.studies.rows import Columns
from bert_core.tokenizer import Encoding
from viz_app.pages.finetune.runs import TuningRun
from viz_app.shell.controls import Upload
from viz_app.shell.question import TOP
from viz_app.shell.work import Work, kept, need, seconds_of

MEASURED = 16  # rows of the table on which two steps are compared
PASSES = 10  # forward, that a text takes: states and maps of two models, and one pass there and back of each
FIGURES = {
    "divergence": "how differently the head attends, in nats",
    "importance": "change of how much the loss rests on the head, in nats",
    "entropy": "change of how widely the head looks, in nats",
}


@dataclass(frozen=True)
class Step:
    """One kept step of a run: its number, and the folder of its weights."""

    number: int
    folder: Path

    @property
    def key(self) -> tuple[str, int]:
        """By which its weights are known: a run of the same name may be made again."""
        return str(self.folder.resolve()), self.folder.stat().st_mtime_ns

    def model(self) -> LoadedModel:
        """The model as it was at this step, loaded by the queue and kept for everyone."""
        device = os.environ.get("HEADLIGHT_DEVICE")
        return need(
            Work(("tuned model", *self.key), f"Loading step {self.number}", lambda _: load(self.folder, device=device))
        )


@dataclass(frozen=True)
class Changes:
    """What is asked of two steps of a run, the start and another."""

    run: TuningRun
    start: Step
    step: Step

    def compared(self) -> Work[ModelComparison]:
        """Their states and heads on the first rows of the table."""
        before, after = self.start.model(), self.step.model()
        asked = self.run.asked
        columns = Columns(asked.text, asked.pair, asked.label)
        texts, labels = kept(("tuned rows", *self.start.key), lambda: texts_of(self.run.table, columns, MEASURED))
        return Work(
            ("tuned changes", self.start.key, self.step.key),
            f"Step {self.step.number} is compared with the start",
            lambda report: compare_models(
                before, after, texts, labels=labels, max_length=asked.max_length, report=report
            ),
            seconds_of(before, min(asked.max_length, 24), PASSES * len(texts)),
        )  # fmt: skip

    def read(self, step: Step, encoding: Encoding) -> ModelRun:
        """The maps of a text at one of the steps."""
        loaded = step.model()
        found: ModelRun = need(Work(
            ("tuned run", step.key, encoding), f"Step {step.number} reads {len(encoding)} tokens",
            lambda _: capture(loaded, encoding, top_k=TOP), memory=capture_bytes(loaded, len(encoding)),
        ))  # fmt: skip
        return found


def titles_of(found: ModelComparison, values: np.ndarray, by: str) -> list[list[str]]:
    """A head's name, the figure that colours it, and its role before and after, for hover, layer by layer."""
    before, after = (in_words(roles_of_heads(table.figures)) for table in (found.before, found.after))

    def title(layer: int, head: int) -> str:
        name, one, other = f"L{layer} H{head}", before[layer][head], after[layer][head]
        if not one:
            return f"{name}: pruned"
        figure = f"{values[layer, head]:{'' if by == 'divergence' else '+'}.3g} nats"
        return f"{name}: {figure}\n{one}" + ("" if one == other else f", then {other}")

    layers, heads = values.shape
    return [[title(layer, head) for head in range(heads)] for layer in range(layers)]


def zipped(folder: Path) -> bytes:
    """A model that stands in a folder, as a .zip file."""
    with tempfile.TemporaryDirectory() as space:
        return save(load(folder, device="cpu"), Path(space) / "model.zip").read_bytes()


def take_example_table() -> None:
    """Upload made-up reviews: a click on a button."""
    st.session_state.tuning_table = Upload("reviews.csv", example_table())


def example_table() -> bytes:
    """Two hundred made-up sentences, each good or bad, drawn with a seed: what a word says is all there is to learn."""
    draw = random.Random(0)
    words = {
        "good": ("lovely", "wonderful", "brilliant", "charming", "superb", "moving", "funny", "delightful"),
        "bad": ("dull", "boring", "awful", "clumsy", "tedious", "weak", "stupid", "dreadful"),
    }
    things = ("film", "story", "play", "book", "song", "music", "ending", "acting")
    verbs = ("was", "felt", "seemed", "looked")
    rows = ["text,class"]
    for number in range(200):
        name = ("good", "bad")[number % 2]
        one, other = draw.sample(things, 2)
        first, second = draw.sample(words[name], 2)
        rows.append(f"The {one} {draw.choice(verbs)} {first} and the {other} {draw.choice(verbs)} {second}.,{name}")
    return "\n".join([*rows, ""]).encode()
