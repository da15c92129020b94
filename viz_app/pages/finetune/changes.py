"""What changed in a model from the start of a run to one of its kept steps, from the queue."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_core.analysis.roles import describe_roles, roles_of_heads
from bert_core.loading import LoadedModel, load, save
from bert_core.progress import Progress, ignore_progress, report_count
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
from viz_app.shell.work import cached, estimate_seconds, work

COMPARED_TEXTS = 16  # texts of the file on which two steps are compared
PASSES_PER_TEXT = 10  # forward: states and maps of two models, and a forward and backward pass of each


@dataclass(frozen=True)
class StepComparison:
    """A kept step of a run and its start.

    number: of the step. before, after: the models at the start and at the step.
    """

    run: TuningRun
    number: int
    before: LoadedModel
    after: LoadedModel

    @property
    def identity(self) -> tuple[LoadedModel, LoadedModel]:
        """The key of results: a run may be created again under the same name, but not with the same weights."""
        return self.before, self.after

    @property
    def texts(self) -> TrainingTexts:
        """The first texts of the file of the run."""
        return _first_texts(self.run, self.before)

    @property
    def texts_name(self) -> str:
        """Their number and unit, such as "16 rows"."""
        return f"{len(self.texts.texts)} {self.run.request.kind.unit}"

    @property
    def max_length(self) -> int:
        """The number of tokens to which a text is cut."""
        return min(self.run.request.max_length, self.before.config.max_position_embeddings)

    @property
    def depths(self) -> int:
        """The number of layers, and one for the embeddings."""
        return self.before.config.num_hidden_layers + 1

    def seconds(self, passes: float, *, places: float = 0) -> float:
        """Estimate the duration of forward passes over all texts. places: as in `estimate_seconds`, per token."""
        tokens, count = mean_token_count(self.before, self.texts.texts, self.max_length), len(self.texts.texts)
        return estimate_seconds(self.before, tokens, passes * count, places=places * tokens * count)


@cached
def _first_texts(run: TuningRun, start: LoadedModel) -> TrainingTexts:
    """Return the first texts of the file of a run. start: its start, which a new run of the same name does not have."""
    texts = run.texts
    return TrainingTexts(texts.texts[:COMPARED_TEXTS], texts.labels[:COMPARED_TEXTS])


def load_comparison(run: TuningRun, steps: Mapping[int, Path], number: int) -> StepComparison:
    """Return a kept step and the start of a run, loaded by the queue and kept for all visitors.

    steps: folders of the kept steps. Raises Refused if one does not exist any more.
    """
    start, step = (loaded_model(str(steps[index]), f"Loading step {index}") for index in (0, number))
    return StepComparison(run, number, start, step)


@work("Step {changes.number} is compared with the start", seconds=lambda changes: changes.seconds(PASSES_PER_TEXT))
def compare_with_start(changes: StepComparison, report: Progress = ignore_progress) -> ModelComparison:
    """Compare states and heads on the first texts; the loss is that of hidden words if no classes are learned."""
    texts, labels = changes.texts.texts, changes.texts.labels or None
    max_length = changes.max_length
    return compare_models(changes.before, changes.after, texts, labels=labels, max_length=max_length, report=report)


@work(
    "Logit lens of step {changes.number}",
    seconds=lambda changes, encoding: estimate_seconds(
        changes.before, len(encoding), 2, places=2 * changes.depths * len(encoding)
    ),
    memory=lambda changes, encoding: mlm_head_bytes(changes.before, len(encoding)),
)
def read_layers(changes: StepComparison, encoding: Encoding) -> LensChange:
    """Return what the word head reads at every depth of a text, at the start and at the step."""
    return lens_change(changes.before, changes.after, encoding)


@work(
    "Top words of step {changes.number}",
    seconds=lambda changes: changes.seconds(2, places=2 * changes.depths),
    memory=lambda changes: mlm_head_bytes(changes.before, changes.max_length),
)
def equal_word_shares(changes: StepComparison, report: Progress = ignore_progress) -> np.ndarray:
    """Return the share of tokens of the first texts, without special ones, with the same first word, (depth,)."""
    texts = changes.texts.texts
    equal, token_count = np.zeros(changes.depths), 0
    for count, encoding in enumerate(encode_texts(changes.before, texts, changes.max_length), 1):
        places = [place for place, special in enumerate(encoding.special) if not special]
        equal += lens_change(changes.before, changes.after, encoding).equal[:, places].sum(1)
        token_count += len(places)
        report_count(report, count, len(texts), "texts")
    return equal / max(token_count, 1)


@work(
    "Attention of step {number}, {encoding} tokens",
    memory=lambda model, encoding, number: capture_bytes(model, len(encoding)),
)
def capture_step(model: LoadedModel, encoding: Encoding, number: int) -> ModelRun:
    """Return the record of a text on the model of a step. number: of the step."""
    return capture(model, encoding, top_k=KEPT_PREDICTIONS)


def mean_token_count(loaded: LoadedModel, texts: Sequence[str | tuple[str, str]], max_length: int) -> int:
    """Return the mean number of tokens of some texts."""
    return round(float(np.mean([len(encoding) for encoding in encode_texts(loaded, texts, max_length)])))


def encode_texts(loaded: LoadedModel, texts: Sequence[str | tuple[str, str]], max_length: int) -> Iterator[Encoding]:
    """Yield the encoding of each text or pair of texts, cut to a number of tokens."""
    for text in texts:
        yield loaded.tokenizer.encode(*((text,) if isinstance(text, str) else text), max_length=max_length)


def head_titles(result: ModelComparison, values: np.ndarray, figure_name: str) -> list[list[str]]:
    """Return a tooltip for each head: name, the value that colours it, and its role before and after."""
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
    """Return the model of a folder as a .zip file."""
    with tempfile.TemporaryDirectory() as temporary:
        return save(load(folder, device="cpu"), Path(temporary) / "model.zip").read_bytes()
