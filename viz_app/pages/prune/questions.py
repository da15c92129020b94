"""What the page Prune asks of the model, from the queue."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel, save
from bert_core.modeling import IGNORED_LABEL
from bert_core.progress import Progress, progress_of_part
from bert_core.pruning import Part, prune_parts, zero_filled
from bert_core.records import Batch, CurvePoint, PruningPlan
from bert_core.refused import Refused
from bert_core.run.costs import BATCHES, Cost, Score, measure_curve_point, pruning_costs, score
from bert_core.run.losses import masked_examples
from bert_core.run.memory import gradient_bytes
from bert_core.run.plans import RANDOM_ORDERS, REESTIMATION_SHARE, loss_importance, propose_plan
from bert_core.tokenizer import Encoding
from bert_core.training.data import Corpus, ExampleMaker
from bert_core.training.pretrain import EVALUATION_MASKING
from viz_app.access import is_local_server
from viz_app.shell.change import reference_encodings
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection
from viz_app.shell.work import (
    Work,
    cached_by_key,
    estimate_seconds,
    finished_result,
    is_confirmed,
    progress_of,
    stop,
    wait_for,
)

STEPS = 12  # points of a curve after the first
FILE_EXAMPLES, FILE_TOKENS = 64, 64  # drawn from an uploaded text: how many, and how long
LARGEST_FILE = 20 * 2**20
PASSES = 5  # forward, that it costs to open the page: forward and back for the importance, and two scores
REPEATS = 3  # of each measured pass

# ---------------------------------------------------------------------------- questions


class PruningQuestions:
    """What the page asks of the page's model; every answer comes from the queue.

    upload: a text file to ask about, or None for the text of the page. what: the parts that go, one of `PARTS`.
    Raises Refused for a file that is too large, or of which no examples can be made.
    """

    def __init__(self, current: Selection, upload: Any, what: str = "heads") -> None:
        self.current, self.what = current, what
        self.of_file = upload is not None
        self._upload = upload
        text = current.original
        content = repr((text.text, text.pair, text.input_ids)).encode() if upload is None else upload.data
        if len(content) > LARGEST_FILE:
            raise Refused(f"the file has {len(content) / 2**20:.0f} MB: at most {LARGEST_FILE >> 20} MB can be read")
        self.key = (self.loaded.weights_key, blake2b(content, digest_size=12).hexdigest())
        _ = self.batches  # says what is wrong with a file

    @property
    def loaded(self) -> LoadedModel:
        """The model that is pruned."""
        return self.current.loaded

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The examples, made once for all who ask: a page that is open does not hold them."""
        text, upload = self.current.original, self._upload
        made: tuple[Batch, ...] = cached_by_key(
            ("lab examples", *self.key),
            lambda: masked_examples(self.loaded, text) if upload is None else _drawn(upload.data, self.loaded),
        )
        return made

    @property
    def can_ask(self) -> bool:
        """Whether the model has a trained head for any of the examples."""
        pieces = any((batch.labels != IGNORED_LABEL).any() for batch in self.batches)
        sentences = any((batch.next_sentence_label != IGNORED_LABEL).any() for batch in self.batches)
        return (pieces and self.loaded.has_head("words")) or (sentences and self.loaded.has_head("next"))

    def may_begin(self) -> bool:
        """Whether to ask: what is quick, or what was asked for by the button that is drawn here until then."""
        rows, what = sum(len(batch.input_ids) for batch in self.batches), "examples" if self.of_file else "copies"
        of = "the file" if self.of_file else "the text"
        return is_confirmed("lab", self.key, f"Test on {rows} {what} of {of}", self._seconds(PASSES))

    def _seconds(self, passes: float) -> float:
        """What so many forward passes over all examples take, about; a pass back counts as two."""
        texts = ((len(batch.input_ids), batch.input_ids.shape[1]) for batch in self.batches)
        return sum(estimate_seconds(self.loaded, tokens, passes * count) for count, tokens in texts)

    def _bytes(self) -> int:
        """What the largest batch takes there and back."""
        shapes = (batch.input_ids.shape for batch in self.batches)
        return max((gradient_bytes(self.loaded, tokens, count) for count, tokens in shapes), default=0)

    def _work(self, what: Hashable, label: str, do: Callable[[Progress], Any], passes: float) -> Work[Any]:
        return Work(
            (what, *self.key),
            f"{shown_name(self.loaded.name)} {label}",
            do,
            self._seconds(passes),
            memory=self._bytes(),
        )

    def score(self, head_mask: np.ndarray) -> Score:
        """What the model gets right with some heads off."""
        found: Score = wait_for(self._work(
            ("score", head_mask.tobytes()), "is tested",
            lambda report: score(self.loaded, self.batches, head_mask=head_mask, report=report), passes=1,
        ))  # fmt: skip
        return found

    def with_all(self) -> Score:
        """What it gets right with all heads on."""
        return self.score(np.ones_like(self.current.head_mask))

    def score_without(self, gone: Sequence[Part]) -> Score:
        """What the model gets right without some parts, really pruned."""
        found: Score = wait_for(self._work(
            ("score without", self.what, tuple(gone)), "is pruned and tested",
            lambda report: score(prune_parts(self.loaded, self.what, gone), self.batches, report=report), passes=1,
        ))  # fmt: skip
        return found

    def importance(self) -> np.ndarray:
        """The size of the loss's slope at each head, (layer, head)."""
        found: np.ndarray = wait_for(self._work(
            "importance", "with the gradient of the loss at every head",
            lambda report: loss_importance(self.loaded, self.batches, report=report), passes=3,
        ))  # fmt: skip
        return found

    def plan(self, method: str) -> PruningPlan:
        """The order in which a method would take the heads out; waits for it."""
        found: PruningPlan = wait_for(self._plan(method))
        return found

    def _plan(self, method: str) -> Work[PruningPlan]:
        reference = self.reference(method)
        return self._work(
            ("plan", self.what, method, reference), f"ranks its {self.what} by {method}",
            lambda report: propose_plan(
                self.loaded, self.batches, method, part_kind=self.what, reference=reference, report=report
            ),
            passes=self._passes(method),
        )  # fmt: skip

    def _passes(self, method: str) -> float:
        """How many forward passes over all examples an order takes, about; one forward and back counts as three."""
        layers = len(self.current.head_mask)
        if self.what == "layers":
            return layers * (layers + 1) / 2 if method == "iterative" else layers
        if method == "iterative":
            return 3 / REESTIMATION_SHARE
        return self.current.head_mask.size if method.startswith("ablation") else 3

    def needs_reference(self, method: str) -> bool:
        """Whether other texts stand in for a head in this order."""
        return method in ("ablation-mean", "ablation-resample")

    def reference(self, method: str) -> tuple[Encoding, ...]:
        """The texts that stand in for a head in this order. Raises Refused if it needs some and there are none."""
        return reference_encodings(self.current) if self.needs_reference(method) else ()

    def made_plan(self, method: str) -> PruningPlan | None:
        """The order of a method, if it was made before; None if not, and nothing is started."""
        return finished_result(self._plan(method))

    def read_plan(self, upload: Any) -> PruningPlan:
        """The plan in a file. Raises Refused if it is none, or one for another model."""
        plan = PruningPlan.from_json(upload.data.decode("utf-8", errors="replace"))
        plan.check(self.loaded.name, self.loaded.config.num_hidden_layers, self.loaded.config.num_attention_heads)
        if plan.what != "heads":
            raise Refused(
                f"the plan is of {plan.what}, and only heads are switched off: headlight prune carries it out"
            )
        return plan

    def carry_out(self, plan: PruningPlan, share: float) -> None:
        """Switch a share of a plan's heads off, and all others on."""
        st.session_state.off = tuple(sorted((layer, head) for layer, head in plan.first(share)))

    def points(self, method: str) -> list[CurvePoint]:
        """The points of an order and of random ones that there are so far; `grow` adds more."""
        return list(self._points(method).values())

    def _points(self, method: str) -> dict[tuple[str, int], CurvePoint]:
        # By name and place: two visitors may let one curve grow.
        found: dict[tuple[str, int], CurvePoint] = cached_by_key(
            ("lab points", self.what, method, self.reference(method), *self.key), dict
        )
        return found

    def points_in_all(self, there: int) -> int:
        """How many points a curve with its band has, for a model of so many parts."""
        return len(_removed(there)) * (1 + RANDOM_ORDERS)

    def seconds_a_point(self) -> float:
        """What a point takes, about: asking, and copying the model."""
        return self._seconds(1) + self.loaded.nbytes / 2**30

    def seconds_to_measure(self) -> float:
        """What `costs` takes, about: so many texts through three models, and a round to warm up."""
        return self.current.seconds(3 * (REPEATS + 1) * sum(BATCHES))

    def grow(self, method: str) -> float | None:
        """Begin a curve, or look after it, without waiting: the share of it that is there; None when all of it is.

        Its points come one by one (`points`), in one long piece of work that gives way to whatever else is asked.
        """
        plan = self._plan(method)
        return 0.0 if progress_of(plan) is not None else progress_of(self._curve(method, wait_for(plan)))

    def stop(self, method: str) -> None:
        """Stop a curve that is being made; its points so far stay."""
        plan = finished_result(self._plan(method))
        stop(self._plan(method) if plan is None else self._curve(method, plan))

    def _curve(self, method: str, plan: PruningPlan) -> Work[None]:
        plans = [
            plan,
            *(propose_plan(self.loaded, (), "random", part_kind=self.what, seed=seed) for seed in range(RANDOM_ORDERS)),
        ]
        removed, points = _removed(len(plan.order)), self._points(method)
        wanted = [(plan, count) for plan in plans for count in removed if (plan.method, count) not in points]

        def draw(report: Progress) -> None:
            whole = len(plans) * len(removed)
            for plan, count in wanted:
                smaller = prune_parts(self.loaded, plan.what, plan.order[:count])
                part = progress_of_part(report, len(points), whole)
                points[plan.method, count] = measure_curve_point(smaller, self.batches, plan.method, count, report=part)

        return Work(
            (("curve", self.what, method, self.reference(method)), *self.key),
            f"{shown_name(self.loaded.name)} is pruned and tested",
            draw,
            len(wanted) * self.seconds_a_point(),
            memory=self._bytes(),
        )

    def costs(self, gone: Sequence[Part]) -> tuple[Cost, ...]:
        """Size and speed of the model as it is, with heads that go masked, and pruned of what goes."""
        encoding = self.current.original
        found: tuple[Cost, ...] = wait_for(self._work(
            ("costs", self.what, tuple(gone), encoding.input_ids), "is pruned, and timed",
            lambda report: pruning_costs(
                self.loaded, gone, encoding, part_kind=self.what, repeats=REPEATS, report=report
            ),
            passes=0,
        ))  # fmt: skip
        return found

    def file(self, gone: Sequence[Part], *, full_shape: bool) -> bytes:
        """The model without what goes, as a zip file."""
        with tempfile.TemporaryDirectory() as folder:
            return save(self._smaller(gone, full_shape), Path(folder) / "pruned.zip").read_bytes()

    def save(self, gone: Sequence[Part], place: str, *, full_shape: bool) -> Path:
        """Write it to a folder, or a .zip, of this machine.

        Raises Refused for a server that others reach, or a place that is taken, missing or full.
        """
        if not is_local_server():
            raise Refused("only a page that this machine alone can open may write to its disk")
        if not place.strip():
            raise Refused("there is no name: give a folder, or a name that ends in .zip")
        return save(self._smaller(gone, full_shape), Path(place.strip()).expanduser())

    def _smaller(self, gone: Sequence[Part], full_shape: bool) -> LoadedModel:
        smaller = prune_parts(self.loaded, self.what, gone)
        return zero_filled(smaller) if full_shape else smaller


def _drawn(content: bytes, loaded: LoadedModel) -> tuple[Batch, ...]:
    """Examples of a text file, masked as for an evaluation."""
    length = min(FILE_TOKENS, loaded.config.max_position_embeddings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "the file.txt"
        path.write_bytes(content)
        corpus = Corpus.prepare(path, loaded.tokenizer, Path(folder))
        maker = ExampleMaker(corpus, loaded.tokenizer, EVALUATION_MASKING, predict_order=loaded.predicts_order)
        return tuple(maker.examples(FILE_EXAMPLES, length, 0))


def _removed(there: int) -> Sequence[int]:
    """How many are gone at each point of a curve."""
    return sorted({round(there * number / STEPS) for number in range(STEPS + 1)})
