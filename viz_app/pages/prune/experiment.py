"""A model that is pruned and tested on examples: the work for the queue, and the pruned model as a file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_core.loading import LoadedModel, save
from bert_core.modeling import IGNORED_LABEL
from bert_core.progress import Progress, ignore_progress, progress_of_part
from bert_core.pruning import Part, prune_parts, zero_filled
from bert_core.records import Batch, CurvePoint, ModelRun, PruningPlan
from bert_core.refused import Refused
from bert_core.run import costs
from bert_core.run.capture import capture
from bert_core.run.losses import masked_examples
from bert_core.run.memory import capture_bytes, gradient_bytes
from bert_core.run.plans import RANDOM_ORDERS, REESTIMATION_SHARE, loss_importance, propose_plan
from bert_core.tokenizer import Encoding
from bert_core.training.data import Corpus, ExampleMaker
from bert_core.training.pretrain import EVALUATION_MASKING
from viz_app.access import is_local_server
from viz_app.maps import prediction_range
from viz_app.shell.change import reference_encodings
from viz_app.shell.controls import Upload
from viz_app.shell.selection import KEPT_PREDICTIONS, Selection
from viz_app.shell.work import cached, estimate_seconds, finished_result, progress_of, stop, wait_for, work

STEPS = 12  # points of a curve after the first
FILE_EXAMPLES, FILE_TOKENS = 64, 64  # number and length of the examples from an uploaded text
MAX_FILE_BYTES = 20 * 2**20
REPEATS = 3  # of each pass whose duration is measured
ORDERS_WITH_REFERENCE = ("ablation-mean", "ablation-resample")  # other texts replace the output of a head

Points = dict[tuple[str, int], CurvePoint]  # by order and number of removed parts


@dataclass(frozen=True)
class Experiment:
    """A model without edits, the kind of its parts that are removed, and the examples on which it is tested.

    part_kind: one of `PRUNABLE_PARTS`. upload: a text file from which examples are drawn; None for the selected text.
    """

    selection: Selection
    part_kind: str
    upload: Upload | None

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """The model, the kind of part, and the text or file."""
        text = self.selection.original
        source = (text.text, text.pair, text.input_ids) if self.upload is None else self.upload.identity
        return self.loaded.identity, self.part_kind, source

    @property
    def loaded(self) -> LoadedModel:
        """The model that is pruned."""
        return self.selection.loaded

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The examples, cached for all users. Raises Refused for a file of which no examples can be made."""
        if self.upload is None:
            return _mask_text(self.loaded, self.selection.original)
        return _draw_examples(self.loaded, self.upload)

    @property
    def has_loss(self) -> bool:
        """Whether the model has a trained head for any of the examples."""
        words = any((batch.labels != IGNORED_LABEL).any() for batch in self.batches)
        pairs = any((batch.next_sentence_label != IGNORED_LABEL).any() for batch in self.batches)
        return (words and self.loaded.has_head("words")) or (pairs and self.loaded.has_head("next"))

    def seconds(self, passes: float) -> float:
        """Estimate the duration of forward passes over all examples; a backward pass counts as two."""
        shapes = (batch.input_ids.shape for batch in self.batches)
        return sum(estimate_seconds(self.loaded, tokens, passes * rows) for rows, tokens in shapes)

    def seconds_per_point(self) -> float:
        """Estimate the duration of a point of a curve: the test, and the copy of the model."""
        return self.seconds(1) + self.loaded.nbytes / 2**30

    def reference(self, method: str) -> tuple[Encoding, ...]:
        """Return the texts that replace a head in an order. Raises Refused if it needs some and there are none."""
        return reference_encodings(self.selection) if method in ORDERS_WITH_REFERENCE else ()


@cached
def _mask_text(model: LoadedModel, encoding: Encoding) -> tuple[Batch, ...]:
    return masked_examples(model, encoding)


@cached
def _draw_examples(model: LoadedModel, upload: Upload) -> tuple[Batch, ...]:
    """Draw examples from a text file, masked as for an evaluation."""
    if len(upload.data) > MAX_FILE_BYTES:
        megabytes = len(upload.data) / 2**20
        raise Refused(f"the file has {megabytes:.0f} MB: at most {MAX_FILE_BYTES >> 20} MB can be read")
    length = min(FILE_TOKENS, model.config.max_position_embeddings)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "the file.txt"
        path.write_bytes(upload.data)
        corpus = Corpus.prepare(path, model.tokenizer, Path(temporary))
        maker = ExampleMaker(corpus, model.tokenizer, EVALUATION_MASKING, predict_order=model.predicts_order)
        return tuple(maker.examples(FILE_EXAMPLES, length, 0))


# ---------------------------------------------------------------------------- work


def _memory(experiment: Experiment, *_: object) -> int:
    """Estimate the bytes of a forward and a backward pass over the largest batch."""
    shapes = (batch.input_ids.shape for batch in experiment.batches)
    return max((gradient_bytes(experiment.loaded, tokens, rows) for rows, tokens in shapes), default=0)


def _passes(count: float) -> Callable[..., float]:
    return lambda experiment, *_: experiment.seconds(count)


@work("{experiment} is tested", seconds=_passes(1), memory=_memory)
def score_masked(experiment: Experiment, head_mask: np.ndarray, report: Progress = ignore_progress) -> costs.Score:
    """Test the model with a head mask, (layer, head)."""
    return costs.score(experiment.loaded, experiment.batches, head_mask=head_mask, report=report)


@work("{experiment} is pruned and tested", seconds=_passes(1), memory=_memory)
def score_pruned(experiment: Experiment, removed: tuple[Part, ...], report: Progress = ignore_progress) -> costs.Score:
    """Test the model after some parts were pruned."""
    smaller = prune_parts(experiment.loaded, experiment.part_kind, removed)
    return costs.score(smaller, experiment.batches, report=report)


def _run_memory(experiment: Experiment, removed: tuple[Part, ...], encoding: Encoding) -> int:
    map_tokens = None if prediction_range(encoding) is None else 1
    return capture_bytes(experiment.loaded, len(encoding), map_tokens=map_tokens)


@work(
    "{experiment}: forward pass after pruning",
    seconds=lambda experiment, *_: experiment.selection.seconds(),
    memory=_run_memory,
)
def run_pruned(experiment: Experiment, removed: tuple[Part, ...], encoding: Encoding) -> ModelRun:
    """Return the record of a text after some parts were pruned, of a long one with nearly no maps."""
    smaller = prune_parts(experiment.loaded, experiment.part_kind, removed)
    return capture(smaller, encoding, top_k=KEPT_PREDICTIONS, token_range=prediction_range(encoding))


@work("{experiment} with the gradient of the loss at every head", seconds=_passes(3), memory=_memory)
def head_importance(experiment: Experiment, report: Progress = ignore_progress) -> np.ndarray:
    """Compute the importance of each head for the loss, (layer, head)."""
    return loss_importance(experiment.loaded, experiment.batches, report=report)


def _ranking_seconds(experiment: Experiment, method: str, reference: tuple[Encoding, ...]) -> float:
    layers, heads = experiment.selection.head_mask.shape
    if experiment.part_kind == "layers":
        passes = layers * (layers + 1) / 2 if method == "iterative" else layers
    elif method == "iterative":
        passes = 3 / REESTIMATION_SHARE
    else:
        passes = layers * heads if method.startswith("ablation") else 3
    return experiment.seconds(passes)


@work("{experiment} ranks its parts by {method}", seconds=_ranking_seconds, memory=_memory)
def rank_parts(
    experiment: Experiment, method: str, reference: tuple[Encoding, ...], report: Progress = ignore_progress
) -> PruningPlan:
    """Return the order in which a method removes the parts."""
    return propose_plan(
        experiment.loaded,
        experiment.batches,
        method,
        part_kind=experiment.part_kind,
        reference=reference,
        report=report,
    )


def _cost_seconds(experiment: Experiment, removed: tuple[Part, ...]) -> float:
    """Estimate the duration of the passes through three models, with one more of each to warm up."""
    return experiment.selection.seconds(3 * (REPEATS + 1) * sum(costs.BATCHES))


@work("{experiment} is pruned, and timed", seconds=_cost_seconds, memory=_memory)
def measure_costs(
    experiment: Experiment, removed: tuple[Part, ...], report: Progress = ignore_progress
) -> tuple[costs.Cost, ...]:
    """Measure size and speed of the model as it is, with the removed heads masked, and pruned."""
    encoding, part_kind = experiment.selection.original, experiment.part_kind
    return costs.pruning_costs(
        experiment.loaded, removed, encoding, part_kind=part_kind, repeats=REPEATS, report=report
    )


# ---------------------------------------------------------------------------- curve


@cached
def curve_points(experiment: Experiment, method: str, reference: tuple[Encoding, ...]) -> Points:
    """Return the points of an order and of random orders that are measured so far; `extend_curve` adds more.

    Two users may measure one curve: points are stored by order and number of removed parts.
    """
    return {}


def removed_counts(part_count: int) -> Sequence[int]:
    """Return the number of removed parts at each point of a curve."""
    return sorted({round(part_count * number / STEPS) for number in range(STEPS + 1)})


def curve_length(part_count: int) -> int:
    """Return the number of points of a curve and its band of random orders."""
    return len(removed_counts(part_count)) * (1 + RANDOM_ORDERS)


def _curve_seconds(experiment: Experiment, reference: tuple[Encoding, ...], plan: PruningPlan) -> float:
    missing = curve_length(len(plan.order)) - len(curve_points(experiment, plan.method, reference))
    return missing * experiment.seconds_per_point()


@work("{experiment} is pruned and tested", seconds=_curve_seconds, memory=_memory)
def _measure_points(
    experiment: Experiment, reference: tuple[Encoding, ...], plan: PruningPlan, report: Progress = ignore_progress
) -> None:
    model, batches, part_kind = experiment.loaded, experiment.batches, experiment.part_kind
    points = curve_points(experiment, plan.method, reference)
    random = (propose_plan(model, (), "random", part_kind=part_kind, seed=seed) for seed in range(RANDOM_ORDERS))
    for ranking in (plan, *random):
        for count in removed_counts(len(plan.order)):
            if (ranking.method, count) in points:
                continue
            part = progress_of_part(report, len(points), curve_length(len(plan.order)))
            smaller = prune_parts(model, part_kind, ranking.order[:count])
            points[ranking.method, count] = costs.measure_curve_point(
                smaller, batches, ranking.method, count, report=part
            )


def extend_curve(experiment: Experiment, method: str, reference: tuple[Encoding, ...]) -> tuple[float, str] | None:
    """Start a curve, or continue it, without waiting; return the measured share with its text; None if complete.

    Its points (`curve_points`) come one by one, in one long job that gives way to others.
    """
    ranking = rank_parts(experiment, method, reference)
    if (progress := progress_of(ranking)) is not None:
        return 0.0, progress[1]
    return progress_of(_measure_points(experiment, reference, wait_for(ranking)))


def stop_curve(experiment: Experiment, method: str, reference: tuple[Encoding, ...]) -> None:
    """Stop the measurement of a curve; its points so far are kept."""
    ranking = rank_parts(experiment, method, reference)
    plan = finished_result(ranking)
    stop(ranking if plan is None else _measure_points(experiment, reference, plan))


# ---------------------------------------------------------------------------- files


def read_plan(model: LoadedModel, upload: Upload) -> PruningPlan:
    """Return the plan of a file. Raises Refused if it is none, one for another model, or not of heads."""
    plan = PruningPlan.from_json(upload.data.decode("utf-8", errors="replace"))
    plan.check(model.name, model.config.num_hidden_layers, model.config.num_attention_heads)
    if plan.what != "heads":
        raise Refused(f"the plan is of {plan.what}, and only heads are switched off: headlight prune carries it out")
    return plan


def _smaller_model(experiment: Experiment, removed: Sequence[Part], *, full_shape: bool) -> LoadedModel:
    smaller = prune_parts(experiment.loaded, experiment.part_kind, removed)
    return zero_filled(smaller) if full_shape else smaller


def pruned_zip(experiment: Experiment, removed: Sequence[Part], *, full_shape: bool) -> bytes:
    """Return the model without some parts as a zip file. full_shape: with zeros in their place."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "pruned.zip"
        return save(_smaller_model(experiment, removed, full_shape=full_shape), path).read_bytes()


def save_pruned(experiment: Experiment, removed: Sequence[Part], path: str, *, full_shape: bool) -> Path:
    """Write the model without some parts to a folder or a zip file of this machine.

    Raises Refused on a server that others reach, and for a path that exists or cannot be written.
    """
    if not is_local_server():
        raise Refused("only a page that this machine alone can open may write to its disk")
    if not path.strip():
        raise Refused("there is no name: give a folder, or a name that ends in .zip")
    return save(_smaller_model(experiment, removed, full_shape=full_shape), Path(path.strip()).expanduser())
