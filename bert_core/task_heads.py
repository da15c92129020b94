"""Task heads: one declaration for each thing that a model can be trained to predict.

Everything that depends on the kind of a head asks its declaration: loading, capture, targets, losses, studies of files,
the command line and the pages iterate over `TASK_HEADS`. A new built-in head has its module in `modeling/models.py`,
its declaration here, and its texts in `target_kinds.py`; a program adds its own with `register_head`, and an installed
package with an entry point (`registry`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.analysis.relations import pieces_of_words
from bert_core.analysis.spans import (
    answer_positions,
    answer_text,
    best_spans,
    context_positions,
    span_at,
    span_probabilities,
)
from bert_core.analysis.tags import OUTSIDE, tagged_words
from bert_core.config import BertConfig
from bert_core.modeling import (
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForReplacedTokenDetection,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertPreTrainedModel,
)
from bert_core.records import (
    ClassPrediction,
    MaskPrediction,
    ModelRun,
    Span,
    SpanPrediction,
    TagPrediction,
    Target,
    hidden_pieces,
    word_target,
)
from bert_core.refused import Refused, require_instances, require_sequence, short_repr, validate_arguments
from bert_core.registry import Table
from bert_core.target_kinds import (
    FILE_QUESTIONS,
    RESERVED_NAMES,
    TARGET_KINDS,
    TEXT_VALUES,
    FileQuestion,
    TargetKind,
    add_rows,
    remove_rows,
)
from bert_core.tokenizer import Encoding, join_pieces

if TYPE_CHECKING:  # loading builds the heads that are declared here
    from bert_core.loading import LoadedModel

MAX_QUOTED_CHARACTERS = 60  # characters of a text in a sentence
# How many targets of one head a list offers.
MAX_MASK_TARGETS, MAX_CLASS_TARGETS, MAX_TOKEN_TARGETS, MAX_SPAN_TARGETS, MAX_TAGGED_WORDS, MAX_TAGS_OF_TOKEN = (
    20,
    20,
    5,
    5,
    20,
    6,
)
# What a study calls the answer that it explains, where the file or the model has no name for it.
IS_NEXT, SIMILAR, REPLACED, NO_ANSWER = "follows", "alike", "replaced", "no answer"


class NamedTarget(NamedTuple):
    """A target of one text of a file, and the name of the answer that it is about."""

    target: Target
    name: str


class Readout(NamedTuple):
    """What a head predicts, as a title and rows of (name, number), the largest first where they are alternatives."""

    title: str
    rows: tuple[tuple[str, float], ...]


class LinearPath(NamedTuple):
    """The modules between a state of the last layer and a logit: DecompX follows them.

    stages: (dense layer, activation, layer norm or None), in turn. weight: (hidden,), and bias: (), of the logit.
    """

    stages: tuple[tuple[nn.Linear, Callable[[Tensor], Tensor], nn.Module | None], ...]
    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class FileText:
    """A text of a file, and what the file and a study say about it.

    text, pair: as they stand in the file. answer: what a column names, or empty. marks: (start, end, name) of the words
    of the first text that have a tag, or of the answer in the second; None where the file says nothing of the kind.
    question: of `FILE_QUESTIONS`. word: the targets are restricted to this word; empty: all. run: captures the text.
    """

    encoding: Encoding
    text: str
    pair: str | None
    answer: str
    marks: tuple[tuple[int, int, str], ...] | None
    question: str
    word: str
    run: Callable[[], ModelRun]


# ---------------------------------------------------------------------------- the interface


class TaskHead:
    """Declaration of a task head; a subclass describes one kind of head, and its methods have no state.

    name: unique; rows of `TARGET_KINDS` and `FILE_QUESTIONS` refer to it, and `LoadedModel.tuned` has the module
        under it. description: what a model without it lacks, as in "has no trained classifier".
    module: class that stands beside the encoder, built as `module(config, encoder)`; None for a part of
        `BertForPreTraining`. parts: beginnings of the names of its weights; all must be in the file for it to count as
        trained. architectures: names of architectures in config.json that have this head, from behind "For".
    result: field of `ModelRun` that holds its prediction; empty: `ModelRun.others` holds it under `name`.
    every_token: whether its prediction needs the last layer at every token, not only at the first.
    gives_predictions: whether it predicts something of a text by itself, without a target.
    needs_pair: one sentence for a text without a second one, where the head judges two texts; else empty.
    pair_advice: what a visitor can do where a second text is needed.
    title, subtitle: the question that its section on a page answers, and one line about the answer.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    module: ClassVar[type[BertPreTrainedModel] | None] = None
    parts: ClassVar[tuple[str, ...]] = ()
    architectures: ClassVar[tuple[str, ...]] = ()
    result: ClassVar[str] = ""
    every_token: ClassVar[bool] = False
    gives_predictions: ClassVar[bool] = True
    needs_pair: ClassVar[str] = ""
    pair_advice: ClassVar[str] = "add a second sentence"
    title: ClassVar[str] = ""
    subtitle: ClassVar[str] = ""

    # ------------------------------------------------------------------ whether a model has it

    def is_in_checkpoint(self, config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
        """Whether a checkpoint holds this head. Raises Refused for a variant of it that is not supported."""
        return bool(self.parts) and any(name.startswith(self.parts[0]) for name in weights)

    def is_trained(self, loaded: LoadedModel) -> bool:
        """Whether a model has this head with weights from its file; untrained weights predict nothing."""
        return (self.module is None or self.name in loaded.task_models) and not any(
            map(loaded.report.lacks, self.parts)
        )

    def applies(self, loaded: LoadedModel, encoding: Encoding) -> bool:
        """Whether a model has this head trained, and the text is one that it judges."""
        return self.is_trained(loaded) and (not self.needs_pair or encoding.pair is not None)

    def missing_reason(self, loaded: LoadedModel) -> str:
        """What a model without this head lacks, as the predicate of a sentence."""
        return self.description

    def require(self, loaded: LoadedModel, consequence: str) -> None:
        """Raise Refused if a model does not have this head trained. consequence: the end of the sentence."""
        if not self.is_trained(loaded):
            raise Refused(f"{loaded.name} {self.missing_reason(loaded)}: {consequence}")

    def heading(self, loaded: LoadedModel) -> tuple[str, str]:
        """`title` and `subtitle` for a model."""
        return self.title, self.subtitle

    def labels(self, loaded: LoadedModel) -> tuple[str, ...]:
        """Names of what targets with a label choose from."""
        return ()

    def head_module(self, loaded: LoadedModel) -> Any:
        """The module with the weights of this head, of a model that has it."""
        return loaded.task_models[self.name]

    # ------------------------------------------------------------------ what it predicts

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        """What the head computes from states of the last layer.

        states: (..., hidden), of a token, or of the first token where the head judges the text as a whole.
        Returns (..., output), or (...) for a head with one output, at least float32.
        """
        raise NotImplementedError

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        """Tensors from which `prediction` makes a record, by name, each with the text as its first axis.

        states: (text, token, hidden), the last layer; the tokens of shorter texts are padded. A head with `every_token`
        gives each tensor the token as its second axis.
        """
        return {"logits": self.logits(loaded, states if self.every_token else states[:, 0])}

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> Any:
        """The prediction for one text. outputs: its part of each tensor of `outputs`, on the CPU, without padding."""
        return copy_to_array(outputs["logits"])

    def prediction_of(self, run: Any) -> Any:
        """The prediction of this head in a `ModelRun` or `Answer`; None if it has none."""
        return getattr(run, self.result) if self.result else run.others.get(self.name)

    def readouts(self, loaded: LoadedModel, run: ModelRun, most: int = 10) -> list[Readout]:
        """The prediction in a run as rows, for commands and pages without a presentation of their own for this head.

        most: rows of each readout at most.
        """
        numbers = self.prediction_of(run)
        if numbers is None:
            return []
        names = self.labels(loaded) or [self.title.removesuffix("?") or self.name]
        values = np.ravel(numbers)
        if len(values) != len(names):
            names = [f"{self.name} {place}" for place in range(len(values))]
        rows = sorted(zip(names, values.tolist(), strict=True), key=lambda row: -row[1])
        return [Readout(self.name, tuple(rows[:most]))]

    # ------------------------------------------------------------------ its targets

    def check(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> None:
        """Raise Refused unless a model can compute a target of this head on a text."""
        self.require(loaded, "choose another target")
        if self.needs_pair and encoding.pair is None:
            raise Refused(self.needs_pair)
        names = self.labels(loaded)
        if target.label is not None and not 0 <= target.label < len(names):
            raise Refused(f"{target.kind} {target.label} does not exist: this model has 0 to {len(names) - 1}")

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, other: Tensor | None) -> Tensor:
        """The value of a target for copies of a text, (copies,), with a graph if the rows have one.

        rows: (copies, row, hidden), the last layer at `target.rows`. other: (1, hidden), the vector of `target.other`.
        """
        logits = self.logits(loaded, rows[:, 0])
        return logits if target.label is None else logits[:, target.label]

    def rows_of_probability(self, encoding: Encoding, target: Target) -> tuple[int, ...]:
        """Positions of the last layer that `probability` reads."""
        return target.rows

    def probability(self, loaded: LoadedModel, target: Target, rows: Tensor, other: Tensor | None) -> Tensor:
        """The probability of a target for copies of a text, (copies,); the value itself if there is no probability.

        rows: (copies, row, hidden), at `rows_of_probability`. other: as for `value`.
        """
        values = self.value(loaded, target, rows, other)
        link = target.target_kind.link
        return values if link is None else values.exp() if link == "exp" else values.sigmoid()

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        """How the state at one of the target's rows reaches its logit; None if no such path exists.

        row: number of the row in `target.rows`; the logit is the sum over the rows.
        """
        return None

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, linked: Target | None
    ) -> list[Target]:
        """Targets that a list offers for a text, the likeliest first.

        run: the text without gradients, to which this head applies. original: the text before words were hidden.
        linked: the target that was chosen before, of any head; None without one.
        """
        kinds = [name for name, kind in TARGET_KINDS.items() if kind.head == self.name and not kind.needs]
        return [Target(name) for name in kinds]

    def target_title(self, target: Target) -> str:
        """The name of a target in a list, to be formatted with its `names`."""
        return target.target_kind.title

    def template_values(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> dict[str, str | int]:
        """The names with which the sentences of a target's kind are formatted; see `TargetKind`."""
        names: dict[str, str | int] = {
            "first": target.rows[0], "last": target.rows[-1], "count": len(target.pieces),
        }  # fmt: skip
        if target.target_pieces:
            names["word"] = join_pieces(loaded.tokenizer.token_of(token) for _, token in target.target_pieces)
        elif target.position is not None:
            names["word"] = encoding.labels[target.position]
        if target.against is not None:
            names["other"] = loaded.tokenizer.token_of(target.against)
        elif target.last is not None:
            names["other"] = encoding.labels[target.last]
        if target.label is not None:
            names["label"] = self.labels(loaded)[target.label]
        if target.other is not None:
            names["text"] = quote(target.other.text)
        return names

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        """The targets of a text of a file; empty if it has none. Raises Refused if the question cannot be asked of it.

        An answer in the file is the target; without one the model's own answer is.
        """
        if not self.applies(loaded, text.encoding):
            return []
        targets = self.suggested_targets(loaded, text.run(), text.encoding, None)
        return [NamedTarget(target, self.name) for target in targets]


class _PoolerHead(TaskHead):
    """A head on top of the pooler, which judges a text as a whole."""

    def last(self, loaded: LoadedModel) -> nn.Linear:
        """The linear layer behind the pooler."""
        classifier: nn.Linear = self.head_module(loaded).classifier
        return classifier

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        pooler = loaded.model.bert.pooler
        assert pooler is not None  # a pre-training model has one
        pooled = pooler(states.reshape(-1, 1, states.shape[-1])).view(states.shape)
        return as_wide_floats(self.last(loaded)(pooled))

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        pooler = loaded.model.bert.pooler
        assert pooler is not None  # a pre-training model has one
        return LinearPath(
            ((pooler.dense, pooler.activation, None),), *_output_unit(self.last(loaded), target.label or 0)
        )


# ---------------------------------------------------------------------------- the heads


class MaskedWordHead(TaskHead):
    """The masked-word head: which piece of the vocabulary stands at a position."""

    name = "words"
    description = "has no trained masked-word head"
    parts = ("cls.predictions.",)
    architectures = ("PreTraining", "MaskedLM")
    result = "predictions"
    title = "What belongs in the gap?"
    subtitle = "Which words the model puts in the place of a hidden word."

    def head_module(self, loaded: LoadedModel) -> Any:
        return loaded.model.cls.predictions

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        return as_wide_floats(self.head_module(loaded)(states))

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        """states: (position, hidden): this head is computed at the positions that are asked for, not at every text."""
        return {"probabilities": self.logits(loaded, states).softmax(-1)}

    def prediction_of(self, run: Any) -> Any:
        return run.predictions or None

    def predictions(
        self, positions: Sequence[int], outputs: Mapping[str, Tensor], top_k: int
    ) -> tuple[MaskPrediction, ...]:
        """One record for each position. outputs: of `outputs`, (position, vocab), on the CPU."""
        probabilities = outputs["probabilities"]
        top = probabilities.topk(min(top_k, probabilities.shape[-1]), dim=-1)
        return tuple(
            MaskPrediction(
                position,
                tuple(zip(top.indices[row].tolist(), top.values[row].tolist(), strict=True)),
                copy_to_array(probabilities[row]),
            )
            for row, position in enumerate(positions)
        )

    def readouts(self, loaded: LoadedModel, run: ModelRun, most: int = 10) -> list[Readout]:
        mask, token_of = run.encoding.special_tokens.mask, loaded.tokenizer.token_of
        return [
            Readout(f"{mask} at {guess.position}", tuple((token_of(token), share) for token, share in guess.top[:most]))
            for guess in run.predictions
        ]

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, other: Tensor | None) -> Tensor:
        head = self.head_module(loaded)
        if target.against is not None:  # the difference of two words needs no others
            words, decoder = [target.token_id, target.against], head.decoder
            logits = as_wide_floats(F.linear(head.transform(rows[:, 0]), decoder.weight[words], decoder.bias[words]))
            return torch.sub(logits[:, 0], logits[:, 1])
        wanted = torch.tensor([token for _, token in target.target_pieces], device=rows.device)
        of_pieces = (
            as_wide_floats(head(rows)).log_softmax(-1).gather(-1, wanted.expand(len(rows), -1)[..., None])[..., 0]
        )
        return of_pieces.mean(-1) if target.target_kind.mean else of_pieces.sum(-1)

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        head = self.head_module(loaded)
        token = target.target_pieces[row][1]
        weight, bias = _output_unit(head.decoder, token)
        if target.against is not None:
            other_weight, other_bias = _output_unit(head.decoder, target.against)
            weight, bias = weight - other_weight, bias - other_bias
        transform = head.transform
        return LinearPath(((transform.dense, transform.transform_act_fn, transform.LayerNorm),), weight, bias)

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, linked: Target | None
    ) -> list[Target]:
        encoding, hidden = run.encoding, hidden_pieces(run.encoding, original)
        truth, targets = dict(hidden), []
        for position in encoding.mask_positions[:MAX_MASK_TARGETS]:
            prediction = run.prediction_at(position)
            likely = [] if prediction is None else [token for token, _ in prediction.top[:3]]
            known = [truth[position]] if position in truth else []
            targets += [Target("mlm", position, n) for n in dict.fromkeys([*likely[:1], *known, *likely[1:]])]
        for word in dict.fromkeys(encoding.words[position] for position, _ in hidden):
            pieces = tuple((position, piece) for position, piece in hidden if encoding.words[position] == word)
            if len(pieces) > 1:
                targets.append(Target("joint", pieces=pieces))
        if len(hidden) > 1:
            targets.append(Target("loss", pieces=hidden))
        return targets

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        if wanted := text.word or text.answer:
            return [NamedTarget(word_target(loaded.tokenizer, text.encoding, wanted), wanted)]
        if not text.encoding.mask_positions:
            raise Refused("there is no [MASK]")
        guess = text.run().predictions[0]
        token = guess.top[0][0]
        return [NamedTarget(Target("mlm", guess.position, token), loaded.tokenizer.token_of(token))]


class ClassificationHead(_PoolerHead):
    """A classifier of texts, or of pairs; its output may also be a number."""

    name = "classifier"
    description = "has no trained classifier"
    module = BertForSequenceClassification
    parts = ("classifier.", "bert.pooler.")
    architectures = ("SequenceClassification",)
    result = "classes"
    title = "Which class is it?"
    subtitle = "The class that this model was trained to give to a text."

    def is_in_checkpoint(self, config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
        return classifier_input(config, weights) == "texts"

    def heading(self, loaded: LoadedModel) -> tuple[str, str]:
        if is_number(loaded.config):
            return "Which number is it?", "The number that this model was trained to give for a text."
        return super().heading(loaded)

    def labels(self, loaded: LoadedModel) -> tuple[str, ...]:
        return loaded.labels

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        logits = self.logits(loaded, states[:, 0])
        return {"logits": logits, "probabilities": self._probabilities(loaded, logits)}

    def _probabilities(self, loaded: LoadedModel, logits: Tensor) -> Tensor:
        return logits.softmax(-1) if is_exclusive(loaded.config) else logits.sigmoid()

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> ClassPrediction:
        config = loaded.config
        probabilities = None if is_number(config) else copy_to_array(outputs["probabilities"])
        return ClassPrediction(config.labels, copy_to_array(outputs["logits"]), probabilities, is_exclusive(config))

    def readouts(self, loaded: LoadedModel, run: ModelRun, most: int = 10) -> list[Readout]:
        classes = run.classes
        if classes is None:
            return []
        numbers = classes.logits if classes.probabilities is None else classes.probabilities
        rows = tuple((classes.labels[label], float(numbers[label])) for label in classes.order[:most])
        return [Readout("number" if classes.probabilities is None else "class", rows)]

    def probability(self, loaded: LoadedModel, target: Target, rows: Tensor, other: Tensor | None) -> Tensor:
        logits = self.logits(loaded, rows[:, 0])
        return (logits if is_number(loaded.config) else self._probabilities(loaded, logits))[:, target.label]

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, linked: Target | None
    ) -> list[Target]:
        likely = [] if run.classes is None else run.classes.order[:MAX_CLASS_TARGETS]
        chosen = [linked.label] if linked is not None and linked.kind == "class" else []
        return [Target("class", label=number) for number in dict.fromkeys((*likely, *chosen))]

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        if text.answer:
            label = loaded.labels.index(text.answer)
        else:
            classes = text.run().classes
            assert classes is not None  # the model has a classifier
            label = int(np.argmax(classes.logits))
        return [NamedTarget(Target("class", label=label), loaded.labels[label])]


class ReplacedTokenHead(TaskHead):
    """The discriminator of an ELECTRA: whether each token was put in the place of another."""

    name = "detector"
    description = "has no trained detector of replaced tokens"
    module = BertForReplacedTokenDetection
    parts = ("discriminator_predictions.",)
    architectures = ("PreTraining of ELECTRA",)
    result = "replaced"
    every_token = True
    title = "Which token was replaced?"
    subtitle = "How likely it is that each token was put in the place of another one."

    def is_in_checkpoint(self, config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
        return "discriminator_predictions.dense_prediction.weight" in weights

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        return as_wide_floats(self.head_module(loaded).discriminator_predictions(states))

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        return {"probabilities": self.logits(loaded, states).sigmoid()}

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> np.ndarray:
        return copy_to_array(outputs["probabilities"])

    def readouts(self, loaded: LoadedModel, run: ModelRun, most: int = 10) -> list[Readout]:
        if run.replaced is None:
            return []
        likely = rank_typed_tokens(run.replaced, run.encoding)[:most]
        names = [f"{run.encoding.labels[at]} ({at})" for at in likely]
        return [Readout("replaced", tuple(zip(names, run.replaced[likely].tolist(), strict=True)))]

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        head = self.head_module(loaded).discriminator_predictions
        return LinearPath(((head.dense, head.activation, None),), *_output_unit(head.dense_prediction, 0))

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, linked: Target | None
    ) -> list[Target]:
        likely = [] if run.replaced is None else rank_typed_tokens(run.replaced, run.encoding)[:MAX_TOKEN_TARGETS]
        chosen = [linked.rows[0]] if linked is not None and linked.kind == "replaced" else []
        return [Target("replaced", position) for position in dict.fromkeys((*likely, *chosen))]

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        return [
            NamedTarget(Target("replaced", position), REPLACED)
            for position, special in enumerate(text.encoding.special)
            if not special and (not text.word or _word_at(text.encoding, position).casefold() == text.word.casefold())
        ]


class AnswerSpanHead(TaskHead):
    """A reader: where the second text answers the question in the first."""

    name = "reader"
    description = "was not trained to find answers in a text"
    module = BertForQuestionAnswering
    parts = ("qa_outputs.",)
    architectures = ("QuestionAnswering",)
    result = "spans"
    every_token = True
    needs_pair = "an answer is looked for in a second text: give the context of the question"
    pair_advice = "add the context as the second text"
    title = "What is the answer?"
    subtitle = "The part of B that answers the question in A, as this model was trained to find it."

    def is_in_checkpoint(self, config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
        return "qa_outputs.weight" in weights

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        """Returns (..., 2): as the first token of an answer, and as its last."""
        return as_wide_floats(self.head_module(loaded).qa_outputs(states))

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> SpanPrediction:
        logits = copy_to_array(outputs["logits"].T)
        return SpanPrediction(*logits, *span_probabilities(logits, encoding))

    def readouts(self, loaded: LoadedModel, run: ModelRun, most: int = 10) -> list[Readout]:
        if run.spans is None:
            return []
        rows = (
            (" ".join(span.text.split()) if span.last else f"({NO_ANSWER})", span.probability)
            for span in ranked_spans(run.encoding, run.spans, most)
        )
        return [Readout("answer", tuple(rows))]

    def check(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> None:
        super().check(loaded, encoding, target)
        (first, last), places = target.rows, context_positions(encoding)
        if (first, last) != (0, 0) and not (first in places and last in places and first <= last):
            raise Refused(
                f"no answer can stand at positions {short_repr(first)} to {short_repr(last)}: the context has {places[0]} to "
                f"{places[-1]}, and 0 to 0 means that there is none"
            )

    def target_title(self, target: Target) -> str:
        return super().target_title(target) if target.last else NO_ANSWER

    def template_values(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> dict[str, str | int]:
        first, last = target.rows
        word = answer_text(encoding, first, last) if last else NO_ANSWER
        return super().template_values(loaded, encoding, target) | {"word": word}

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, other: Tensor | None) -> Tensor:
        return self.logits(loaded, rows).diagonal(dim1=1, dim2=2).sum(-1)

    def rows_of_probability(self, encoding: Encoding, target: Target) -> tuple[int, ...]:
        """The answer's own two positions, and behind them all that it is compared with."""
        return (*target.rows, 0, *context_positions(encoding))

    def probability(self, loaded: LoadedModel, target: Target, rows: Tensor, other: Tensor | None) -> Tensor:
        logits = self.logits(loaded, rows)
        own, among = logits[:, :2].diagonal(dim1=1, dim2=2), logits[:, 2:].logsumexp(1)
        return (own - among).sum(-1).exp()

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        return LinearPath((), *_output_unit(self.head_module(loaded).qa_outputs, row))

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, linked: Target | None
    ) -> list[Target]:
        spans = [] if run.spans is None else ranked_spans(run.encoding, run.spans, MAX_SPAN_TARGETS)
        chosen = [linked.rows] if linked is not None and linked.kind == "span" else []
        ends = dict.fromkeys((*((span.first, span.last) for span in spans), *chosen))
        return [Target("span", first, last=last) for first, last in ends]

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        encoding = text.encoding
        if encoding.pair is None:
            return []
        if text.marks is None:
            spans = text.run().spans
            assert spans is not None  # the model has a reader, and the text a second part
            best = best_spans(encoding, spans, 1)
            return [NamedTarget(Target("span", span.first, last=span.last), span.text) for span in best]
        if not text.marks:
            return [NamedTarget(Target("span", 0, last=0), NO_ANSWER)]
        ((start, end, answer),) = text.marks
        first, last = answer_positions(encoding, start, end)
        # An answer that was cut off, in part or as a whole, is not asked for.
        complete = last and encoding.offsets[last][1] >= start + len(answer.rstrip())
        return [NamedTarget(Target("span", first, last=last), answer)] if complete else []


class TokenTagHead(TaskHead):
    """A classifier of tokens, as for names or parts of speech."""

    name = "tagger"
    description = "has no trained tagger of tokens"
    module = BertForTokenClassification
    parts = ("classifier.",)
    architectures = ("TokenClassification",)
    result = "tags"
    every_token = True
    title = "How is each word tagged?"
    subtitle = "The tag that this model was trained to give to each word of a text."

    def is_in_checkpoint(self, config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
        return classifier_input(config, weights) == "tokens"

    def labels(self, loaded: LoadedModel) -> tuple[str, ...]:
        return loaded.tags

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        return as_wide_floats(self.head_module(loaded).classifier(states))

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        logits = self.logits(loaded, states)
        return {"logits": logits, "probabilities": logits.softmax(-1)}

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> TagPrediction:
        return TagPrediction(loaded.tags, copy_to_array(outputs["logits"]), copy_to_array(outputs["probabilities"]))

    def readouts(self, loaded: LoadedModel, run: ModelRun, most: int = 10) -> list[Readout]:
        words = [] if run.tags is None else tagged_words(run)
        return [Readout(word.text, ((word.label, word.probability),)) for word in words]

    def template_values(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> dict[str, str | int]:
        """The whole word where the target is at its first piece, as tags are; else the piece."""
        (position,), names = target.rows, super().template_values(loaded, encoding, target)
        number = encoding.words[position]
        if number is not None and encoding.pieces_of(number)[0] == position:
            names["word"] = encoding.word_text(number)
        return names

    def probability(self, loaded: LoadedModel, target: Target, rows: Tensor, other: Tensor | None) -> Tensor:
        return self.logits(loaded, rows[:, 0]).softmax(-1)[:, target.label]

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        return LinearPath((), *_output_unit(self.head_module(loaded).classifier, target.label or 0))

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, linked: Target | None
    ) -> list[Target]:
        """Tags of the words that have one, and more tags of the token that the linked target is about."""
        tags = run.tags
        if tags is None:
            return []
        words = tagged_words(run)
        tagged = [word for word in words if word.label != OUTSIDE] or list(words)
        pairs = [(word.position, tags.labels.index(word.label)) for word in tagged[:MAX_TAGGED_WORDS]]
        if linked is not None and linked.kind == "tag":
            (position,) = linked.rows
            pairs += [(position, n) for n in (linked.label or 0, *tags.order_at(position)[:MAX_TAGS_OF_TOKEN])]
        return [Target("tag", position, label=number) for position, number in dict.fromkeys(pairs)]

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        if text.marks is None:
            tagged = [(word.position, word.label, word.text) for word in tagged_words(text.run())]
        else:
            pieces = pieces_of_words(text.encoding, [(start, end) for start, end, _ in text.marks])
            marks = zip(pieces, text.marks, strict=True)
            tagged = [(at[0], label, text.text[start:end]) for at, (start, end, label) in marks if at]
        return [
            NamedTarget(Target("tag", position, label=loaded.tags.index(label)), label)
            for position, label, word in tagged
            if label != OUTSIDE and (not text.word or word.casefold() == text.word.casefold())
        ]


class MultipleChoiceHead(_PoolerHead):
    """The score of one answer, beside its question, among several to choose from."""

    name = "chooser"
    description = "was not trained to choose among answers"
    module = BertForMultipleChoice
    parts = ("classifier.", "bert.pooler.")
    architectures = ("MultipleChoice",)
    result = "choice"
    needs_pair = "a choice is judged beside its question: give it as the second text"
    pair_advice = "add one of its choices as the second text"
    title = "Which answer does it choose?"
    subtitle = "Each of your choices is read with A, and the likeliest among them counts."

    def is_in_checkpoint(self, config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
        if classifier_input(config, weights) != "choices":
            return False
        for name, value in config.family.choice_head_values.items():
            if config.extra.get(name, value) != value:
                given = short_repr(config.extra[name])
                raise Refused(f"{name} is {given}: before scores of choices only {value!r} is built")
        return True

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        return super().logits(loaded, states)[..., 0]

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> float:
        return outputs["logits"].item()

    def template_values(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> dict[str, str | int]:
        return super().template_values(loaded, encoding, target) | {"text": quote(encoding.pair or "")}

    def readouts(self, loaded: LoadedModel, run: ModelRun, most: int = 10) -> list[Readout]:
        choice = " ".join((run.encoding.pair or "").split())
        return [] if run.choice is None else [Readout("logit of the choice", ((choice, run.choice),))]


class NextSentenceHead(_PoolerHead):
    """Whether the second text follows the first, or, of an ALBERT, whether both are in order."""

    name = "next"
    description = "has no trained next-sentence head"
    parts = ("cls.seq_relationship.", "bert.pooler.")
    architectures = ("PreTraining", "NextSentencePrediction")
    result = "nsp"
    needs_pair = "whether B follows A is asked of two texts: this target needs a second sentence"
    title = "Does B follow A?"
    subtitle = "Whether the second sentence could come after the first."

    def is_trained(self, loaded: LoadedModel) -> bool:
        return super().is_trained(loaded) and loaded.has_segments

    def missing_reason(self, loaded: LoadedModel) -> str:
        return f"has no trained {loaded.pair_head} head"

    def heading(self, loaded: LoadedModel) -> tuple[str, str]:
        if loaded.predicts_order:
            return "Are A and B in order?", "Whether the sentences stand as they were written, or were swapped."
        return super().heading(loaded)

    def last(self, loaded: LoadedModel) -> nn.Linear:
        return loaded.model.cls.seq_relationship

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        return {"probability": self.logits(loaded, states[:, 0]).softmax(-1)[:, 0]}

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> float:
        return outputs["probability"].item()

    def readouts(self, loaded: LoadedModel, run: ModelRun, most: int = 10) -> list[Readout]:
        return [] if run.nsp is None else [Readout("B follows A", (("yes", run.nsp), ("no", 1 - run.nsp)))]

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, other: Tensor | None) -> Tensor:
        logits = self.logits(loaded, rows[:, 0])
        return torch.sub(logits[:, 0], logits[:, 1])

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        path = super().linear_path(loaded, target, row)
        assert path is not None  # behind a pooler there is one
        weight, bias = _output_unit(self.last(loaded), 1)
        return path._replace(weight=path.weight - weight, bias=path.bias - bias)

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        if text.encoding.pair is None:
            raise Refused("there is no second text")
        return [NamedTarget(Target("nsp"), IS_NEXT)]


class SimilarityHead(TaskHead):
    """How alike two texts are, each read by itself: the cosine of their vectors, of any encoder."""

    name = "pooling"
    description = "does not say in its files how it makes a vector of a text"
    gives_predictions = False

    def is_trained(self, loaded: LoadedModel) -> bool:
        return loaded.pooling is not None

    def check(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> None:
        """An encoder without a pooling of its own is asked, too: by the mean of its states."""
        rows = loaded.effective_pooling.pooled_positions(len(encoding))
        if target.pooled != rows:
            raise Refused(
                f"the target pools {len(target.pooled)} positions of a text, and of this one {loaded.name} pools "
                f"{len(rows)}, by {loaded.effective_pooling.mode!r}: make it with similarity_target"
            )

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, other: Tensor | None) -> Tensor:
        assert other is not None  # Target checks that it has another text
        return F.cosine_similarity(as_wide_floats(loaded.effective_pooling.pool(rows)), other, dim=-1)

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        if not text.pair or not text.pair.strip():
            return []
        other = loaded.tokenizer.encode(text.pair, max_length=loaded.max_sentence_tokens)
        rows = loaded.effective_pooling.pooled_positions(len(text.encoding))
        return [NamedTarget(Target("similarity", other=other, pooled=rows), SIMILAR)]


# ---------------------------------------------------------------------------- what several heads share


def as_wide_floats(logits: Tensor) -> Tensor:
    """Logits as float32 where they are narrower; a model in float64 keeps its precision."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def copy_to_array(tensor: Tensor) -> np.ndarray:
    """An array with memory of its own, in the number type of the tensor, which is on the CPU."""
    return tensor.numpy().copy()


def is_exclusive(config: BertConfig) -> bool:
    """Whether a text has one class; published files say so by `problem_type`, or name a sigmoid."""
    return config.problem_type != "multi_label_classification" and config.activation != "Sigmoid"


def is_number(config: BertConfig) -> bool:
    """Whether the classifier gives a number; one output alone is one, unless a sigmoid belongs to it."""
    if config.activation == "Sigmoid" and config.problem_type != "regression":
        return False
    return config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1)


def quote(text: str) -> str:
    """A text as a sentence quotes it: on one line, and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUOTED_CHARACTERS else f"{line[:MAX_QUOTED_CHARACTERS]}…"


def rank_typed_tokens(scores: np.ndarray, encoding: Encoding) -> list[int]:
    """Positions of the tokens that were typed, the largest score first. scores: (seq,)."""
    return [int(at) for at in np.argsort(-scores, kind="stable") if not encoding.special[at]]


def ranked_spans(encoding: Encoding, spans: SpanPrediction, most: int) -> list[Span]:
    """The best answers, and that there is none, in the order of their scores."""
    return sorted((*best_spans(encoding, spans, most), span_at(encoding, spans, 0, 0)), key=lambda span: -span.score)


# What the name of an architecture says about a tensor called `classifier.weight`; published files also use others'.
_ARCHITECTURES = {
    "choices": r"ForMultipleChoice",
    "tokens": r"(?i)ForToken|ForNER|ForPos|Tagg|ForSlot|ForWord|TokenClass|Crf$",
    "texts": r"(?i)ForSequence|MultiLabel|ForText|ForClassif|ForDocument|CrossEncoder|ForRegression|SequenceClass",
}


def classifier_input(config: BertConfig, weights: Mapping[str, Tensor]) -> str | None:
    """What `classifier.weight` classifies: "texts", "tokens" or "choices"; None without such a tensor.

    The name of the architecture in the configuration decides, if only in part. Without one, tags that begin and go on
    are of tokens, and so is a classifier without the layer that precedes one of texts.
    """
    table = weights.get("classifier.weight")
    if table is None:
        return None
    for kind, pattern in _ARCHITECTURES.items():
        if any(re.search(pattern, name) for name in config.architectures):
            return kind
    if table.dim() != 2 or table.shape[1] != config.hidden_size:
        return None
    names = config.extra.get("id2label")
    tags = set(map(str, names.values())) if isinstance(names, Mapping) else set()
    if any(tag.startswith("B-") for tag in tags) and any(tag.startswith("I-") for tag in tags):
        return "tokens"
    return "texts" if "bert.pooler.dense.weight" in weights else "tokens"


def _output_unit(last: nn.Linear, number: int) -> tuple[Tensor, Tensor]:
    """Weight (hidden,) and bias () of one output of a linear layer."""
    return last.weight[number], last.bias[number]


def _word_at(encoding: Encoding, position: int) -> str:
    number = encoding.words[position]
    return "" if number is None else encoding.word_text(number)


# ---------------------------------------------------------------------------- the registry

# In the order in which pages and commands list their targets and predictions.
_HEADS: dict[str, TaskHead] = {
    head.name: head
    for head in (
        MaskedWordHead(),
        ClassificationHead(),
        ReplacedTokenHead(),
        AnswerSpanHead(),
        TokenTagHead(),
        MultipleChoiceHead(),
        NextSentenceHead(),
        SimilarityHead(),
    )
}
TASK_HEADS = Table(_HEADS)
_BUILT_IN = frozenset(_HEADS)


def head_of(target: Target) -> TaskHead:
    """The declaration of the head that computes a target."""
    return TASK_HEADS[target.target_kind.head]


def trained_heads(loaded: LoadedModel) -> list[TaskHead]:
    """The heads that came trained with a model, in the order of `TASK_HEADS`."""
    return [head for head in TASK_HEADS.values() if head.is_trained(loaded)]


def optional_parts() -> tuple[str, ...]:
    """Beginnings of the names of all tensors that belong to a head, and that an encoder can do without."""
    return tuple(dict.fromkeys(part for head in TASK_HEADS.values() for part in head.parts))


def parts_of_architectures(config: BertConfig) -> set[str]:
    """Beginnings of the names of the tensors that the architecture in a configuration has."""
    parts: set[str] = set()
    for name in config.architectures:
        kind = name.partition("For")[2] or name
        if kind == "PreTraining" and config.family.name == "electra":
            kind = "PreTraining of ELECTRA"  # of the discriminator, which has no head for words
        for head in TASK_HEADS.values():
            if kind in head.architectures:
                parts.update(head.parts)
    if not config.family.next_sentences:
        parts.discard("cls.seq_relationship.")
    return parts


@validate_arguments
def register_head(
    head: TaskHead, kinds: Mapping[str, TargetKind], questions: Mapping[str, FileQuestion] | None = None
) -> None:
    """Add a task head: models that are loaded from now on have it if their files hold its weights.

    kinds: its targets, by name; they need values that can be written: `position`, `last` and `label`.
    questions: what studies of files ask of it, by name; their loss is minus the mean value of its targets.
    Raises Refused, and adds nothing, for a name that is taken or cannot be written, a head that is no `TaskHead` or
    lacks what a declaration states, or a row that is no row of its table or belongs to another head.
    """
    given = {} if questions is None else questions
    for what, rows, row_type in (("kinds", kinds, TargetKind), ("questions", given, FileQuestion)):
        if not isinstance(rows, Mapping):
            raise Refused(f"{what} is {short_repr(rows)}: it must be a mapping of names to {row_type.__name__}")
        require_instances(what, rows.values(), row_type)
    _check_declaration(head)
    taken = {head.name} & set(TASK_HEADS) | set(kinds) & set(TARGET_KINDS) | set(given) & set(FILE_QUESTIONS)
    if taken:
        raise Refused(f"{', '.join(sorted(taken))} is taken: choose another name, or remove it with unregister_head")
    added: dict[str, TargetKind | FileQuestion] = {**kinds, **given}
    for name, row in added.items():
        if not isinstance(name, str) or not name.isidentifier() or name in RESERVED_NAMES:
            raise Refused(f"{short_repr(name)} cannot name a target or a question: letters, digits and _ can")
        if row.head != head.name:
            raise Refused(f"{name} belongs to the head {row.head!r}: it must be {head.name!r}")
    for name, kind in kinds.items():
        if not kind.has_text_form:
            raise Refused(f"{name} needs {', '.join(kind.needs)}: it may need {', '.join(TEXT_VALUES)}")
    for name, question in given.items():
        if not question.loss_from_targets:
            raise Refused(f"the question {name} has a loss of its own: it must be that of its targets (of_target)")
        if set(question.faithfulness_kinds) - {name}:
            raise Refused(
                f"the question {name} is judged as {', '.join(question.faithfulness_kinds)}: it must be {name}"
            )
    _HEADS[head.name] = head
    add_rows(kinds, given)


def _check_declaration(head: TaskHead) -> None:
    """Raise Refused for a head of a program whose class variables do not describe one."""
    for name in ("name", "description"):
        value = getattr(head, name, None)
        if not isinstance(value, str) or not value.strip():
            raise Refused(f"{name} of the head {type(head).__name__} is {short_repr(value)}: it must be a text")
    parts = require_sequence(f"parts of the head {head.name!r}", head.parts, "beginnings of names")
    if not all(isinstance(part, str) and part for part in parts):
        raise Refused(f"parts of the head {head.name!r} is {short_repr(head.parts)}: it must be a list of texts")
    if head.result:
        raise Refused(f"result of the head {head.name!r} is {head.result!r}: ModelRun.others has its prediction, so ''")
    if head.module is None:
        return
    if not isinstance(head.module, type) or not issubclass(head.module, BertPreTrainedModel):
        raise Refused(
            f"module of the head {head.name!r} is {short_repr(head.module)}: it must extend BertPreTrainedModel"
        )
    if not parts:
        raise Refused(f"the head {head.name!r} has a module: say in parts how the names of its weights begin")
    for other in TASK_HEADS.values():
        for part, of_other in itertools.product(parts, other.parts):
            # The encoder's own, such as the pooler, are shared; other tensors are written and read for one head.
            if not part.startswith("bert.") and (part.startswith(of_other) or of_other.startswith(part)):
                raise Refused(
                    f"weights of the head {head.name!r} are called {part!r} and those of {other.name!r} {of_other!r}: "
                    "choose another name"
                )


@validate_arguments
def unregister_head(name: str) -> None:
    """Remove a task head that `register_head` added, with its targets and questions.

    Raises Refused for a head that is built in or does not exist.
    """
    if name in _BUILT_IN or name not in TASK_HEADS:
        registered = ", ".join(sorted(set(TASK_HEADS) - _BUILT_IN)) or "none"
        raise Refused(f"the head {short_repr(name)} cannot be removed: registered heads are {registered}")
    del _HEADS[name]
    remove_rows(name)
