"""What changed in a model from the start of a run to one of its kept steps, from the queue."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_core.analysis.roles import describe_roles, roles_of_heads
from bert_core.loading import LoadedModel, load, save
from bert_core.progress import Progress, report_count
from bert_core.records import LensChange, ModelComparison, ModelRun
from bert_core.run.capture import capture
from bert_core.run.lens import lens_change
from bert_core.run.memory import capture_bytes, mlm_head_bytes
from bert_core.studies.compare import compare_models
from bert_core.tokenizer import Encoding
from viz_app.finetuning.material import TrainingTexts
from viz_app.finetuning.runs import TuningRun
from viz_app.shell.models import loaded_model
from viz_app.shell.selection import KEPT_PREDICTIONS
from viz_app.shell.work import Work, cached_by_key, estimate_seconds, wait_for

COMPARED_TEXTS = 16  # texts of the file on which two steps are compared
PASSES_PER_TEXT = 10  # forward, that a text takes: states and maps of two models, and one pass there and back of each
UNITS = {
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

    def load_model(self) -> LoadedModel:
        """The model as it was at this step, loaded by the queue and kept for everyone."""
        return loaded_model(str(self.folder), f"Loading step {self.number}")


@dataclass(frozen=True)
class StepComparison:
    """What is asked of two steps of a run, the start and another."""

    run: TuningRun
    start: Step
    step: Step

    @property
    def texts(self) -> TrainingTexts:
        """The first texts of what the run learns from."""

        def first() -> TrainingTexts:
            whole = self.run.texts
            return TrainingTexts(whole.texts[:COMPARED_TEXTS], whole.labels[:COMPARED_TEXTS])

        result: TrainingTexts = cached_by_key(("tuned texts", *self.start.key), first)
        return result

    @property
    def texts_name(self) -> str:
        """How many these are, in words."""
        return f"{len(self.texts.texts)} {self.run.request.kind.unit}"

    def model_comparison(self) -> Work[ModelComparison]:
        """Their states and heads on the first texts; of a run that learns no classes, hidden words are asked."""
        before, after, texts = self.start.load_model(), self.step.load_model(), self.texts
        longest = min(self.run.request.max_length, before.config.max_position_embeddings)
        return Work(
            ("tuned changes", self.start.key, self.step.key),
            f"Step {self.step.number} is compared with the start",
            lambda report: compare_models(
                before, after, texts.texts, labels=texts.labels or None, max_length=longest, report=report
            ),
            estimate_seconds(
                before, mean_token_count(before, texts.texts, longest), PASSES_PER_TEXT * len(texts.texts)
            ),
        )

    def lens_change(self, encoding: Encoding) -> Work[LensChange]:
        """What the word head reads out of every layer of a text, then and now."""
        before, after = self.start.load_model(), self.step.load_model()
        depths = before.config.num_hidden_layers + 1
        return Work(
            ("tuned lens", self.start.key, self.step.key, encoding), f"Step {self.step.number} is read at every layer",
            lambda _: lens_change(before, after, encoding),
            estimate_seconds(before, len(encoding), 2, places=2 * depths * len(encoding)),
            memory=mlm_head_bytes(before, len(encoding)),
        )  # fmt: skip

    def equal_word_shares(self) -> Work[np.ndarray]:
        """Of the typed tokens of the first texts, the share at which both read the same word first, (depth,)."""
        before, after, texts = self.start.load_model(), self.step.load_model(), self.texts.texts
        longest = min(self.run.request.max_length, before.config.max_position_embeddings)
        tokens, depths = mean_token_count(before, texts, longest), before.config.num_hidden_layers + 1

        def share(report: Progress) -> np.ndarray:
            equal, token_count = np.zeros(depths), 0
            for count, encoding in enumerate(encode_texts(before, texts, longest), 1):
                places = [place for place, special in enumerate(encoding.special) if not special]
                equal += lens_change(before, after, encoding).equal[:, places].sum(1)
                token_count += len(places)
                report_count(report, count, len(texts), "texts")
            return equal / max(token_count, 1)

        return Work(
            ("tuned words", self.start.key, self.step.key), f"The texts of step {self.step.number} are read as words",
            share, estimate_seconds(before, tokens, 2 * len(texts), places=2 * depths * tokens * len(texts)),
            memory=mlm_head_bytes(before, longest),
        )  # fmt: skip

    def model_run(self, step: Step, encoding: Encoding) -> ModelRun:
        """The maps of a text at one of the steps."""
        loaded = step.load_model()
        result: ModelRun = wait_for(Work(
            ("tuned run", step.key, encoding), f"Step {step.number} reads {len(encoding)} tokens",
            lambda _: capture(loaded, encoding, top_k=KEPT_PREDICTIONS), memory=capture_bytes(loaded, len(encoding)),
        ))  # fmt: skip
        return result


def mean_token_count(loaded: LoadedModel, texts: Sequence[str | tuple[str, str]], longest: int) -> int:
    """How many tokens a typical text has."""
    return round(float(np.mean([len(encoding) for encoding in encode_texts(loaded, texts, longest)])))


def encode_texts(loaded: LoadedModel, texts: Sequence[str | tuple[str, str]], longest: int) -> Iterator[Encoding]:
    """The texts as a model reads them."""
    for text in texts:
        yield loaded.tokenizer.encode(*((text,) if isinstance(text, str) else text), max_length=longest)


def head_titles(result: ModelComparison, values: np.ndarray, figure_name: str) -> list[list[str]]:
    """A head's name, the figure that colours it, and its role before and after, for hover, layer by layer."""
    before, after = (describe_roles(roles_of_heads(table.figures)) for table in (result.before, result.after))

    def title(layer: int, head: int) -> str:
        name, role, later_role = f"L{layer} H{head}", before[layer][head], after[layer][head]
        if not role:
            return f"{name}: pruned"
        figure = f"{values[layer, head]:{'' if figure_name == 'divergence' else '+'}.3g} nats"
        return f"{name}: {figure}\n{role}" + ("" if role == later_role else f", then {later_role}")

    layers, heads = values.shape
    return [[title(layer, head) for head in range(heads)] for layer in range(layers)]


def zip_model(folder: Path) -> bytes:
    """A model that stands in a folder, as a .zip file."""
    with tempfile.TemporaryDirectory() as space:
        return save(load(folder, device="cpu"), Path(space) / "model.zip").read_bytes()
