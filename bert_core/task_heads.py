"""Task heads: one declaration of each kind of prediction that a model can be trained to make.

`TASK_HEADS` holds the declarations. Loading, capture, targets, losses, studies of files, the command line and the pages
iterate over it, so that only the declaration knows what is specific to a head. A built-in head consists of its module
in `modeling/models.py`, its declaration here and its texts in `target_kinds.py`. A program adds its own head with
`register_head`, and an installed package with an entry point (see `registry`).
"""

from __future__ import annotations

import itertools
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
from bert_core.analysis.tags import OUTSIDE_TAG, tagged_words
from bert_core.checkpoint import classifier_input
from bert_core.config import BertConfig
from bert_core.deprecation import RenamedAttribute, accept_old_overrides
from bert_core.modeling import (
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForReplacedTokenDetection,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertPooler,
    BertPredictionHeadTransform,
    BertPreTrainedModel,
)
from bert_core.pooling import Pooling
from bert_core.records import (
    ClassPrediction,
    MaskPrediction,
    ModelRun,
    Span,
    SpanPrediction,
    TagPrediction,
    Target,
    masked_pieces,
)
from bert_core.records.targets import word_targets
from bert_core.refused import Refused, require_instances, require_sequence, short_repr, validate_arguments
from bert_core.registry import Table
from bert_core.target_kinds import (
    CUSTOM,
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

if TYPE_CHECKING:  # at run time, loading imports this module
    from bert_core.loading import LoadedModel

MAX_QUOTED_CHARACTERS = 60  # of a text that is quoted in a sentence
# Maximum number of targets that one head suggests, by what the targets are about.
MAX_MASK_TARGETS, MAX_CLASS_TARGETS, MAX_TOKEN_TARGETS = 20, 20, 5
MAX_SPAN_TARGETS, MAX_TAGGED_WORDS, MAX_TAGS_OF_TOKEN = 5, 20, 6
# Names of answers in the tables of studies, where neither the file nor the model has a label for the answer.
IS_NEXT, NOT_NEXT, SIMILAR, REPLACED, NO_ANSWER = "follows", "from elsewhere", "alike", "replaced", "no answer"


class NamedTarget(NamedTuple):
    """A target of one text of a file, with the name of the answer that it explains."""

    target: Target
    name: str


class Readout(NamedTuple):
    """A prediction of a head as a title and rows (name, number), sorted from the largest if they are alternatives."""

    title: str
    rows: tuple[tuple[str, float], ...]


class LinearPath(NamedTuple):
    """The modules between a hidden state of the last layer and one logit, which DecompX decomposes.

    stages: (dense layer, activation, layer norm or None) of each hidden layer of the head, in the order of computation.
    weight: (hidden,), the row of the output layer for this logit. bias: ().
    sum_norm: layer norm of the sum of the hidden states at all rows of the target, which share one path; None if each
        row has a path and a logit of its own.
    reads_mean: whether all rows of the target share one path, which reads the mean of their hidden states.
    """

    stages: tuple[tuple[nn.Linear, Callable[[Tensor], Tensor], nn.Module | None], ...]
    weight: Tensor
    bias: Tensor
    sum_norm: nn.Module | None = None
    reads_mean: bool = False


@dataclass(frozen=True)
class FileText:
    """One text of a file, with its labels in the file and the settings of the study.

    text, pair: the first text and the second one (or None), as in the file.
    answer: value of the column of answers; empty without one.
    marks: (start, end, name) of each tagged word of the first text, or of the answer in the second text, in characters;
        None if the file has no such labels.
    question: name of the question, a key of `FILE_QUESTIONS`.
    word: only targets about this word are used; empty for all words.
    run: function that captures the text.
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
    """Declaration of a task head. Each subclass describes one kind of head, and its instances have no state.

    name: unique name. Rows of `TARGET_KINDS` and `FILE_QUESTIONS` refer to it, and `LoadedModel.task_models` holds the
        module under it.
    description: predicate of the sentence about a model without the head, for example "has no trained classifier".
    module: class of the model on top of the encoder, created as `module(config, encoder)`; None if the head is a part
        of `BertForPreTraining`.
    parts: prefixes of the names of its weights. The head counts as trained if the file has all weights with them.
    architectures: suffixes, after "For", of the architectures in config.json that have this head.
    result: field of `ModelRun` with the prediction; if empty, `ModelRun.others[name]` holds it.
    every_token: whether the prediction needs the last layer at every token instead of the first token alone.
    gives_predictions: whether the head predicts something for a text without a target.
    needs_pair: error message for a text without a second one, if the head needs two texts; otherwise empty.
    pair_advice: what a user of the app can do if a second text is needed.
    title, subtitle: heading of its section on a page, and one sentence about the prediction.
    text_name, long_text_name: what the first text of a row of a table is, and the text that may be truncated.
    table_columns: names of the values in each row of `table_rows`.
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
    text_name: ClassVar[str] = "text"
    long_text_name: ClassVar[str] = "text"
    table_columns: ClassVar[tuple[str, ...]] = ("title", "name", "number")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Accept heads of programs that override attributes and methods under their old names."""
        super().__init_subclass__(**kwargs)
        accept_old_overrides(cls, TaskHead)

    # ------------------------------------------------------------------ availability

    def is_in_checkpoint(self, config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
        """Return whether a checkpoint has this head. Raises Refused for an unsupported variant of the head."""
        return bool(self.parts) and any(name.startswith(self.parts[0]) for name in weights)

    def is_trained(self, loaded: LoadedModel) -> bool:
        """Return whether a model has this head with weights from its file. Random weights do not count."""
        return (self.module is None or self.name in loaded.task_models) and not any(
            map(loaded.report.lacks, self.parts)
        )

    def applies(self, loaded: LoadedModel, encoding: Encoding) -> bool:
        """Return whether a model has this head trained, and the text has a second part if the head needs one."""
        return self.is_trained(loaded) and (not self.needs_pair or encoding.pair is not None)

    def missing_reason(self, loaded: LoadedModel) -> str:
        """Return why a model does not have this head, as the predicate of a sentence."""
        return self.description

    def require(self, loaded: LoadedModel, consequence: str) -> None:
        """Raise Refused if a model does not have this head trained. consequence: second half of the message."""
        if not self.is_trained(loaded):
            raise Refused(f"{loaded.name} {self.missing_reason(loaded)}: {consequence}")

    def heading(self, loaded: LoadedModel) -> tuple[str, str]:
        """Return `title` and `subtitle`, which may depend on the model."""
        return self.title, self.subtitle

    def labels(self, loaded: LoadedModel) -> tuple[str, ...]:
        """Return the names of the labels that a target can have, by label number; empty if targets have no label."""
        return ()

    def head_module(self, loaded: LoadedModel) -> Any:
        """Return the module with the weights of this head, for a model that has the head."""
        return loaded.task_models[self.name]

    # ------------------------------------------------------------------ predictions

    def pooling(self, loaded: LoadedModel) -> Pooling | None:
        """Return how the head pools the hidden states of a text; None if it reads the states of tokens."""
        return None

    def text_states(self, loaded: LoadedModel, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute the states (..., hidden) that a head of whole texts reads, by default those of the first token.

        states: (..., row, hidden), hidden states of the last layer at the positions of `pooling`, [CLS] first.
        mask: (..., row), 0 at padding and 1 elsewhere; None without padding.
        """
        return states[..., 0, :]

    def prediction_positions(self, loaded: LoadedModel, encoding: Encoding) -> Sequence[int]:
        """Return the positions of the last layer that the prediction for a text needs."""
        pooling = self.pooling(loaded)
        if self.every_token or pooling is None:
            return range(len(encoding) if self.every_token else 1)
        return pooling.pooled_positions(len(encoding))

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        """Compute the logits of the head from hidden states of the last layer.

        states: (..., hidden), at any token, or at the first token if the head classifies the text as a whole.
        Returns (..., output), or (...) if the head has a single output, in float32 or wider.
        """
        raise NotImplementedError

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        """Compute the tensors that `prediction` needs, by name. The first axis of each is the text.

        states: (text, token, hidden), hidden states of the last layer, with padding after shorter texts. For a head
            that pools them, the pooled states are the only token.
        If `every_token` is true, the second axis of each tensor is the token.
        """
        return {"logits": self.logits(loaded, states if self.every_token else states[:, 0])}

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> Any:
        """Return the prediction for one text. outputs: slices of `outputs` for it, on the CPU and without padding."""
        return copy_to_array(outputs["logits"])

    def prediction_of(self, run: Any) -> Any:
        """Return the prediction of this head in a `ModelRun` or `Answer`, or None if there is none."""
        return getattr(run, self.result) if self.result else run.others.get(self.name)

    def readouts(self, loaded: LoadedModel, run: ModelRun, max_rows: int = 10) -> list[Readout]:
        """Return the prediction in a run as rows of text and numbers, for commands and pages.

        max_rows: maximum number of rows of each readout.
        """
        numbers = self.prediction_of(run)
        if numbers is None:
            return []
        names = self.labels(loaded) or [self.title.removesuffix("?") or self.name]
        values = np.ravel(numbers)
        if len(values) != len(names):
            names = [f"{self.name} {output}" for output in range(len(values))]
        rows = sorted(zip(names, values.tolist(), strict=True), key=lambda row: -row[1])
        return [Readout(self.name, tuple(rows[:max_rows]))]

    def table_rows(self, loaded: LoadedModel, run: ModelRun, max_rows: int = 10) -> list[tuple[object, ...]]:
        """Return the prediction in a run as rows of a table of many texts: by default a row for each number.

        max_rows: as for `readouts`.
        Returns the values of `table_columns` for each row.
        """
        readouts = self.readouts(loaded, run, max_rows)
        return [(readout.title, name, number) for readout in readouts for name, number in readout.rows]

    # ------------------------------------------------------------------ targets

    def check(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> None:
        """Raise Refused if a model cannot compute a target of this head on a text."""
        self.require(loaded, "choose another target")
        if self.needs_pair and encoding.pair is None:
            raise Refused(self.needs_pair)
        names = self.labels(loaded)
        if target.label is not None and not 0 <= target.label < len(names):
            raise Refused(f"{target.kind} {target.label} does not exist: this model has 0 to {len(names) - 1}")

    def target_rows(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> tuple[int, ...]:
        """Return the positions of the last layer that `value` needs: those of the target, and others of the model."""
        pooling = self.pooling(loaded)
        return target.rows if pooling is None else pooling.pooled_positions(len(encoding))

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, reference: Tensor | None) -> Tensor:
        """Compute the value of a target for several copies of a text, differentiable with respect to `rows`.

        rows: (copy, row, hidden), hidden states of the last layer at the positions `target_rows`.
        reference: (1, hidden), sentence vector of `target.other`; None if the target has no second text.
        Returns (copy,), in the unit of the target kind.
        """
        logits = self.logits(loaded, self.text_states(loaded, rows))
        return logits if target.label is None else logits[:, target.label]

    def rows_of_probability(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> tuple[int, ...]:
        """Return the positions whose hidden states `probability` needs."""
        return self.target_rows(loaded, encoding, target)

    def probability(self, loaded: LoadedModel, target: Target, rows: Tensor, reference: Tensor | None) -> Tensor:
        """Compute the probability of a target for several copies of a text.

        rows: (copy, row, hidden), hidden states of the last layer at `rows_of_probability`.
        reference: as for `value`.
        Returns (copy,), probabilities, or values of the target if it has no probability.
        """
        values = self.value(loaded, target, rows, reference)
        link = target.target_kind.link
        return values if link is None else values.exp() if link == "exp" else values.sigmoid()

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        """Return the path from the hidden state at one row of a target to its logit, or None if there is none.

        row: index into `target_rows`. The value of the target is the sum of the logits of all its rows.
        """
        return None

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, selected: Target | None
    ) -> list[Target]:
        """Return targets for a text for a user to choose from, the most probable first.

        run: run of the text without gradients, for which this head `applies`.
        original: encoding of the text before words were masked.
        selected: target of any head that is selected at present, which should stay in the list; None if there is none.
        """
        kinds = [name for name, kind in TARGET_KINDS.items() if kind.head == self.name and not kind.needs]
        return [Target(name) for name in kinds]

    def target_title(self, target: Target) -> str:
        """Return the title of a target in a list, a template for `template_values`."""
        return target.target_kind.title

    def template_values(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> dict[str, str | int]:
        """Return the values that fill the templates of a target's kind, by name (see `TargetKind`)."""
        values: dict[str, str | int] = {"first": target.rows[0], "last": target.rows[-1], "count": len(target.pieces)}
        if target.target_pieces:
            values["word"] = join_pieces(loaded.tokenizer.token_of(token) for _, token in target.target_pieces)
        elif target.position is not None:
            values["word"] = encoding.labels[target.position]
        if target.against is not None:
            values["other"] = loaded.tokenizer.token_of(target.against)
        elif target.last is not None:
            values["other"] = encoding.labels[target.last]
        if target.label is not None:
            values["label"] = self.labels(loaded)[target.label]
        if target.other is not None:
            values["text"] = quote(target.other.text)
        return values

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        """Return the targets of one text of a file, or an empty list if it has none.

        The target is the answer in the file if there is one, and otherwise the prediction of the model.
        Raises Refused if the text is not suitable for the question of the study.
        """
        if not self.applies(loaded, text.encoding):
            return []
        targets = self.suggested_targets(loaded, text.run(), text.encoding, None)
        return [NamedTarget(target, self.name) for target in targets]

    says = RenamedAttribute("subtitle")
    is_held = RenamedAttribute("is_in_checkpoint")
    lack = RenamedAttribute("missing_reason")
    own_module = RenamedAttribute("head_module")
    predicted = RenamedAttribute("prediction_of")
    offered = RenamedAttribute("suggested_targets")
    offer = RenamedAttribute("target_title")
    names = RenamedAttribute("template_values")


class _PoolerHead(TaskHead):
    """A head on top of the pooler, which classifies a text as a whole."""

    def output_layer(self, loaded: LoadedModel) -> nn.Linear:
        """Return the linear layer after the pooler."""
        classifier: nn.Linear = self.head_module(loaded).classifier
        return classifier

    def pooler(self, loaded: LoadedModel) -> BertPooler:
        """Return the pooler of a model."""
        pooler = loaded.model.bert.pooler
        assert pooler is not None  # a pre-training model has a pooler
        return pooler

    def pooling(self, loaded: LoadedModel) -> Pooling | None:
        return Pooling(loaded.config.classifier_pooling)

    def text_states(self, loaded: LoadedModel, states: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.pooler(loaded).text_states(states, mask)

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        """Compute the logits (..., output) from the result of `text_states`."""
        return as_wide_floats(self.output_layer(loaded)(self.pooler(loaded).transform(states)))

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        pooler = self.pooler(loaded)
        norm = pooler.LayerNorm if isinstance(pooler.LayerNorm, nn.LayerNorm) else None
        return LinearPath(
            ((pooler.dense, pooler.activation, norm),),
            *_output_unit(self.output_layer(loaded), target.label or 0),
            reads_mean=pooler.pooling == "mean",
        )


# ---------------------------------------------------------------------------- the heads


class MaskedWordHead(TaskHead):
    """The masked-language-modelling head: which word piece of the vocabulary is at a position."""

    name = "words"
    description = "has no trained masked-word head"
    parts = ("cls.predictions.",)
    architectures = ("PreTraining", "MaskedLM")
    result = "predictions"
    title = "What belongs in the gap?"
    subtitle = "The words that the model predicts for each mask."

    def head_module(self, loaded: LoadedModel) -> Any:
        return loaded.model.cls.predictions

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        return as_wide_floats(self.head_module(loaded)(states))

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        """Compute probabilities (position, vocab) at the positions of `states`, (position, hidden)."""
        return {"probabilities": self.logits(loaded, states).softmax(-1)}

    def prediction_of(self, run: Any) -> Any:
        return run.predictions or None

    def predictions(
        self, positions: Sequence[int], outputs: Mapping[str, Tensor], top_k: int
    ) -> tuple[MaskPrediction, ...]:
        """Return one record for each position. outputs: result of `outputs` for these positions, on the CPU."""
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

    def readouts(self, loaded: LoadedModel, run: ModelRun, max_rows: int = 10) -> list[Readout]:
        mask, token_of = run.encoding.special_tokens.mask, loaded.tokenizer.token_of
        return [
            Readout(
                f"{mask} at {prediction.position}",
                tuple((token_of(token), probability) for token, probability in prediction.top[:max_rows]),
            )
            for prediction in run.predictions
        ]

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, reference: Tensor | None) -> Tensor:
        head = self.head_module(loaded)
        if target.against is not None:  # the softmax cancels in the difference of two logits
            words, decoder = [target.token_id, target.against], head.decoder
            logits = as_wide_floats(F.linear(head.transform(rows[:, 0]), decoder.weight[words], decoder.bias[words]))
            return torch.sub(logits[:, 0], logits[:, 1])
        tokens = torch.tensor([token for _, token in target.target_pieces], device=rows.device)
        log_probabilities = as_wide_floats(head(rows)).log_softmax(-1)  # (copy, row, vocab)
        scores = log_probabilities.gather(-1, tokens.expand(len(rows), -1)[..., None])[..., 0]
        return scores.mean(-1) if target.target_kind.mean else scores.sum(-1)

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        head = self.head_module(loaded)
        token = target.target_pieces[row][1]
        weight, bias = _output_unit(head.decoder, token)
        if target.against is not None:
            other_weight, other_bias = _output_unit(head.decoder, target.against)
            weight, bias = weight - other_weight, bias - other_bias
        return LinearPath(_transform_stages(head.transform), weight, bias)

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, selected: Target | None
    ) -> list[Target]:
        encoding, masked = run.encoding, masked_pieces(run.encoding, original)
        original_tokens, targets = dict(masked), []
        for position in encoding.mask_positions[:MAX_MASK_TARGETS]:
            prediction = run.prediction_at(position)
            top = [] if prediction is None else [token for token, _ in prediction.top[:3]]
            truth = [original_tokens[position]] if position in original_tokens else []
            targets += [Target("mlm", position, token) for token in dict.fromkeys([*top[:1], *truth, *top[1:]])]
        for word in dict.fromkeys(encoding.words[position] for position, _ in masked):
            pieces = tuple((position, piece) for position, piece in masked if encoding.words[position] == word)
            if len(pieces) > 1:
                targets.append(Target("joint", pieces=pieces))
        if len(masked) > 1:
            targets.append(Target("loss", pieces=masked))
        return targets

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        if word := text.word or text.answer:
            targets = word_targets(loaded.tokenizer, text.encoding, word)
            return [NamedTarget(target, name) for name, target in targets]
        if not text.encoding.mask_positions:
            raise Refused("the text has no [MASK]")
        prediction = text.run().predictions[0]
        token = prediction.top[0][0]
        return [NamedTarget(Target("mlm", prediction.position, token), loaded.tokenizer.token_of(token))]


class ClassificationHead(_PoolerHead):
    """A classifier of single texts or text pairs, or a regression with one number."""

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

    def readouts(self, loaded: LoadedModel, run: ModelRun, max_rows: int = 10) -> list[Readout]:
        classes = run.classes
        if classes is None:
            return []
        numbers = classes.logits if classes.probabilities is None else classes.probabilities
        rows = tuple((classes.labels[label], float(numbers[label])) for label in classes.order[:max_rows])
        return [Readout("number" if classes.probabilities is None else "class", rows)]

    def probability(self, loaded: LoadedModel, target: Target, rows: Tensor, reference: Tensor | None) -> Tensor:
        logits = self.logits(loaded, self.text_states(loaded, rows))
        return (logits if is_number(loaded.config) else self._probabilities(loaded, logits))[:, target.label]

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, selected: Target | None
    ) -> list[Target]:
        labels = [] if run.classes is None else run.classes.order[:MAX_CLASS_TARGETS]
        current = [selected.label] if selected is not None and selected.kind == "class" else []
        return [Target("class", label=label) for label in dict.fromkeys((*labels, *current))]

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        if text.answer:
            label = loaded.labels.index(text.answer)
        else:
            classes = text.run().classes
            assert classes is not None  # the model has a classifier
            label = int(np.argmax(classes.logits))
        return [NamedTarget(Target("class", label=label), loaded.labels[label])]


class ReplacedTokenHead(TaskHead):
    """The discriminator of ELECTRA or DeBERTa-v3: whether each token replaces the original one."""

    name = "detector"
    description = "has no trained replaced-token detection head"
    module = BertForReplacedTokenDetection
    parts = ("discriminator_predictions.",)
    architectures = ("PreTraining of ELECTRA",)
    result = "replaced"
    every_token = True
    title = "Which token was replaced?"
    subtitle = "The probability that each token was replaced."

    def is_in_checkpoint(self, config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
        return "discriminator_predictions.dense_prediction.weight" in weights

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        """Compute the logits (..., seq) of whole texts, states (..., seq, hidden): some models add the first token."""
        return as_wide_floats(self.head_module(loaded).discriminator_predictions(states))

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        return {"probabilities": self.logits(loaded, states).sigmoid()}

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> np.ndarray:
        return copy_to_array(outputs["probabilities"])

    def readouts(self, loaded: LoadedModel, run: ModelRun, max_rows: int = 10) -> list[Readout]:
        if run.replaced is None:
            return []
        positions = rank_typed_tokens(run.replaced, run.encoding)[:max_rows]
        names = [f"{run.encoding.labels[position]} ({position})" for position in positions]
        return [Readout("replaced", tuple(zip(names, run.replaced[positions].tolist(), strict=True)))]

    def target_rows(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> tuple[int, ...]:
        return (*target.rows, 0) if loaded.config.family.detector_adds_first_token else target.rows

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, reference: Tensor | None) -> Tensor:
        return as_wide_floats(self.head_module(loaded).discriminator_predictions(rows[:, 0], rows[:, -1]))

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        head = self.head_module(loaded).discriminator_predictions
        stages = ((head.dense, head.activation, None),)
        return LinearPath(stages, *_output_unit(head.dense_prediction, 0), sum_norm=head.LayerNorm)

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, selected: Target | None
    ) -> list[Target]:
        ranked = [] if run.replaced is None else rank_typed_tokens(run.replaced, run.encoding)[:MAX_TOKEN_TARGETS]
        current = [selected.rows[0]] if selected is not None and selected.kind == "replaced" else []
        return [Target("replaced", position) for position in dict.fromkeys((*ranked, *current))]

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        return [
            NamedTarget(Target("replaced", position), REPLACED)
            for position, special in enumerate(text.encoding.special)
            if not special and (not text.word or _word_at(text.encoding, position).casefold() == text.word.casefold())
        ]


class AnswerSpanHead(TaskHead):
    """Extractive question answering: the span of the second text that answers the question in the first."""

    name = "reader"
    description = "has no trained question-answering head"
    module = BertForQuestionAnswering
    parts = ("qa_outputs.", "transform.")
    architectures = ("QuestionAnswering",)
    result = "spans"
    every_token = True
    needs_pair = "question answering needs two texts: give the context of the question as the second text"
    pair_advice = "add the context as the second text"
    title = "What is the answer?"
    subtitle = "The part of B that answers the question in A, as this model was trained to find it."
    text_name = "question"
    long_text_name = "context"
    table_columns = ("answer", "probability", "score", "start", "end", "no_answer", "no_answer_score")

    def is_in_checkpoint(self, config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
        return "qa_outputs.weight" in weights

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        """Compute (..., 2): the logits of a token as the first and as the last token of an answer."""
        module = self.head_module(loaded)
        return as_wide_floats(module.qa_outputs(module.transform(states)))

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> SpanPrediction:
        logits = copy_to_array(outputs["logits"].T)
        return SpanPrediction(*logits, *span_probabilities(logits, encoding))

    def readouts(self, loaded: LoadedModel, run: ModelRun, max_rows: int = 10) -> list[Readout]:
        if run.spans is None:
            return []
        rows = (
            (" ".join(span.text.split()) if span.last else f"({NO_ANSWER})", span.probability)
            for span in ranked_spans(run.encoding, run.spans, max_rows)
        )
        return [Readout("answer", tuple(rows))]

    def table_rows(self, loaded: LoadedModel, run: ModelRun, max_rows: int = 10) -> list[tuple[object, ...]]:
        """Return one row: the best answer, which is empty if "no answer" has a higher score, and its numbers."""
        if run.spans is None:
            return []
        (best,), no_answer = best_spans(run.encoding, run.spans, 1), span_at(run.encoding, run.spans, 0, 0)
        text = best.text if best.score >= no_answer.score else ""
        numbers = (best.probability, best.score, best.start, best.end, no_answer.probability, no_answer.score)
        return [(text, *numbers)]

    def check(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> None:
        super().check(loaded, encoding, target)
        (first, last), context = target.rows, context_positions(encoding)
        if (first, last) != (0, 0) and not (first in context and last in context and first <= last):
            raise Refused(
                f"an answer cannot be at positions {short_repr(first)} to {short_repr(last)}: the context has "
                f"positions {context[0]} to {context[-1]}, and 0 to 0 means no answer"
            )

    def target_title(self, target: Target) -> str:
        return super().target_title(target) if target.last else NO_ANSWER

    def template_values(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> dict[str, str | int]:
        first, last = target.rows
        word = answer_text(encoding, first, last) if last else NO_ANSWER
        return super().template_values(loaded, encoding, target) | {"word": word}

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, reference: Tensor | None) -> Tensor:
        return self.logits(loaded, rows).diagonal(dim1=1, dim2=2).sum(-1)

    def rows_of_probability(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> tuple[int, ...]:
        """Return the two positions of the answer, then all positions in the softmax that normalises its logits."""
        return (*target.rows, 0, *context_positions(encoding))

    def probability(self, loaded: LoadedModel, target: Target, rows: Tensor, reference: Tensor | None) -> Tensor:
        logits = self.logits(loaded, rows)
        answer, normaliser = logits[:, :2].diagonal(dim1=1, dim2=2), logits[:, 2:].logsumexp(1)  # (copy, 2) each
        return (answer - normaliser).sum(-1).exp()

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        module = self.head_module(loaded)
        return LinearPath(_transform_stages(module.transform), *_output_unit(module.qa_outputs, row))

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, selected: Target | None
    ) -> list[Target]:
        spans = [] if run.spans is None else ranked_spans(run.encoding, run.spans, MAX_SPAN_TARGETS)
        current = [selected.rows] if selected is not None and selected.kind == "span" else []
        ends = dict.fromkeys((*((span.first, span.last) for span in spans), *current))
        return [Target("span", first, last=last) for first, last in ends]

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        encoding = text.encoding
        if encoding.pair is None:
            return []
        if text.marks is None:
            spans = text.run().spans
            assert spans is not None  # the model has this head, and the text a second part
            best = best_spans(encoding, spans, 1)
            return [NamedTarget(Target("span", span.first, last=span.last), span.text) for span in best]
        if not text.marks:
            return [NamedTarget(Target("span", 0, last=0), NO_ANSWER)]
        ((start, end, answer),) = text.marks
        first, last = answer_positions(encoding, start, end)
        # An answer that truncation removed, in part or as a whole, is not a target.
        complete = last and encoding.offsets[last][1] >= start + len(answer.rstrip())
        return [NamedTarget(Target("span", first, last=last), answer)] if complete else []


class TokenTagHead(TaskHead):
    """A token classifier, for example of named entities or parts of speech."""

    name = "tagger"
    description = "has no trained token classifier"
    module = BertForTokenClassification
    parts = ("classifier.", "transform.")
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
        module = self.head_module(loaded)
        return as_wide_floats(module.classifier(module.transform(states)))

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        logits = self.logits(loaded, states)
        return {"logits": logits, "probabilities": logits.softmax(-1)}

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> TagPrediction:
        return TagPrediction(loaded.tags, copy_to_array(outputs["logits"]), copy_to_array(outputs["probabilities"]))

    def readouts(self, loaded: LoadedModel, run: ModelRun, max_rows: int = 10) -> list[Readout]:
        words = [] if run.tags is None else tagged_words(run)
        return [Readout(word.text, ((word.label, word.probability),)) for word in words]

    def template_values(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> dict[str, str | int]:
        """Return the values of the base class, with the whole word if the target is at its first piece, as tags are."""
        (position,), values = target.rows, super().template_values(loaded, encoding, target)
        word = encoding.words[position]
        if word is not None and encoding.pieces_of(word)[0] == position:
            values["word"] = encoding.word_text(word)
        return values

    def probability(self, loaded: LoadedModel, target: Target, rows: Tensor, reference: Tensor | None) -> Tensor:
        return self.logits(loaded, rows[:, 0]).softmax(-1)[:, target.label]

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        module = self.head_module(loaded)
        return LinearPath(_transform_stages(module.transform), *_output_unit(module.classifier, target.label or 0))

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, selected: Target | None
    ) -> list[Target]:
        """Return the predicted tags of words, without O if possible, and other tags of the selected token."""
        tags = run.tags
        if tags is None:
            return []
        words = tagged_words(run)
        tagged = [word for word in words if word.label != OUTSIDE_TAG] or list(words)
        pairs = [(word.position, tags.labels.index(word.label)) for word in tagged[:MAX_TAGGED_WORDS]]
        if selected is not None and selected.kind == "tag":
            (position,) = selected.rows
            labels = (selected.label or 0, *tags.order_at(position)[:MAX_TAGS_OF_TOKEN])
            pairs += [(position, label) for label in labels]
        return [Target("tag", position, label=label) for position, label in dict.fromkeys(pairs)]

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        if text.marks is None:
            tagged = [(word.position, word.label, word.text) for word in tagged_words(text.run())]
        else:
            pieces = pieces_of_words(text.encoding, [(start, end) for start, end, _ in text.marks])
            marks = zip(pieces, text.marks, strict=True)
            tagged = [
                (positions[0], label, text.text[start:end]) for positions, (start, end, label) in marks if positions
            ]
        return [
            NamedTarget(Target("tag", position, label=loaded.tags.index(label)), label)
            for position, label, word in tagged
            if label != OUTSIDE_TAG and (not text.word or word.casefold() == text.word.casefold())
        ]


class MultipleChoiceHead(_PoolerHead):
    """Multiple choice: the score of one answer option, given with its question."""

    name = "chooser"
    description = "has no trained multiple-choice head"
    module = BertForMultipleChoice
    parts = ("classifier.", "bert.pooler.")
    architectures = ("MultipleChoice",)
    result = "choice"
    needs_pair = "multiple choice needs two texts: give the answer option as the second text"
    pair_advice = "add one of the options as the second text"
    title = "Which answer does the model choose?"
    subtitle = "Each answer option is read together with A; the most probable one is chosen."

    def is_in_checkpoint(self, config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
        if classifier_input(config, weights) != "choices":
            return False
        for name, value in config.family.choice_head_values.items():
            if config.extra.get(name, value) != value:
                setting = short_repr(config.extra[name])
                raise Refused(f"{name} is {setting}: a multiple-choice head with {value!r} alone is supported")
        return True

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        return super().logits(loaded, states)[..., 0]

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> float:
        return outputs["logits"].item()

    def template_values(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> dict[str, str | int]:
        return super().template_values(loaded, encoding, target) | {"text": quote(encoding.pair or "")}

    def readouts(self, loaded: LoadedModel, run: ModelRun, max_rows: int = 10) -> list[Readout]:
        choice = " ".join((run.encoding.pair or "").split())
        return [] if run.choice is None else [Readout("logit of the choice", ((choice, run.choice),))]


class NextSentenceHead(_PoolerHead):
    """Next-sentence prediction, or sentence-order prediction in ALBERT."""

    name = "next"
    description = "has no trained next-sentence head"
    parts = ("cls.seq_relationship.", "bert.pooler.")
    architectures = ("PreTraining", "NextSentencePrediction")
    result = "nsp"
    needs_pair = "next-sentence prediction needs two texts: add a second sentence"
    title = "Does B follow A?"
    subtitle = "Whether the second sentence could come after the first."

    def is_trained(self, loaded: LoadedModel) -> bool:
        return super().is_trained(loaded) and loaded.has_segments

    def missing_reason(self, loaded: LoadedModel) -> str:
        return f"has no trained {loaded.pair_head} head"

    def heading(self, loaded: LoadedModel) -> tuple[str, str]:
        if loaded.predicts_order:
            return "Are A and B in order?", "Whether the sentences are in their original order, or were swapped."
        return super().heading(loaded)

    def output_layer(self, loaded: LoadedModel) -> nn.Linear:
        return loaded.model.cls.seq_relationship

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        return {"probability": self.logits(loaded, states[:, 0]).softmax(-1)[:, 0]}

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> float:
        return outputs["probability"].item()

    def readouts(self, loaded: LoadedModel, run: ModelRun, max_rows: int = 10) -> list[Readout]:
        return [] if run.nsp is None else [Readout("B follows A", (("yes", run.nsp), ("no", 1 - run.nsp)))]

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, reference: Tensor | None) -> Tensor:
        logits = self.logits(loaded, rows[:, 0])
        return torch.sub(logits[:, 0], logits[:, 1])

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        path = super().linear_path(loaded, target, row)
        assert path is not None  # a pooler has a path
        weight, bias = _output_unit(self.output_layer(loaded), 1)
        return path._replace(weight=path.weight - weight, bias=path.bias - bias)

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        if text.encoding.pair is None:
            raise Refused("the text has no second text")
        return [NamedTarget(Target("nsp"), IS_NEXT)]


class SimilarityHead(TaskHead):
    """Cosine similarity of the sentence vectors of two texts, each encoded separately, with any encoder."""

    name = "pooling"
    description = "has no pooling settings in its files"
    gives_predictions = False

    def is_trained(self, loaded: LoadedModel) -> bool:
        return loaded.pooling is not None

    def pooling(self, loaded: LoadedModel) -> Pooling | None:
        return loaded.effective_pooling

    def check(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> None:
        """Raise Refused if a target pools other positions than the model, which may use the default, the mean."""
        rows = loaded.effective_pooling.pooled_positions(len(encoding))
        if target.pooled != rows:
            raise Refused(
                f"the target pools {len(target.pooled)} positions, but {loaded.name} pools {len(rows)} positions of "
                f"this text (mode {loaded.effective_pooling.mode!r}): create the target with similarity_target"
            )

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, reference: Tensor | None) -> Tensor:
        assert reference is not None  # Target requires its second text
        return F.cosine_similarity(as_wide_floats(loaded.effective_pooling.pool(rows)), reference, dim=-1)

    def targets_of(self, loaded: LoadedModel, text: FileText) -> list[NamedTarget]:
        if not text.pair or not text.pair.strip():
            return []
        second = loaded.tokenizer.encode(text.pair, max_length=loaded.max_sentence_tokens)
        rows = loaded.effective_pooling.pooled_positions(len(text.encoding))
        return [NamedTarget(Target("similarity", other=second, pooled=rows), SIMILAR)]


class FunctionHead(TaskHead):
    """Functions of the outputs of a model as targets (`Target.function`), which need no weights of their own.

    `run.own_targets` computes their values, because a function also reads the text.
    """

    name = CUSTOM
    description = "has no weights of a function"
    gives_predictions = False

    def is_trained(self, loaded: LoadedModel) -> bool:
        return False

    def check(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> None:
        """Accept every model: the function itself requires the heads that it reads."""

    def target_rows(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> tuple[int, ...]:
        return target.positions or tuple(range(len(encoding)))

    def template_values(self, loaded: LoadedModel, encoding: Encoding, target: Target) -> dict[str, str | int]:
        return super().template_values(loaded, encoding, target) | {"word": target.name}


# ---------------------------------------------------------------------------- shared functions


def as_wide_floats(logits: Tensor) -> Tensor:
    """Return logits as float32 if they are narrower. Logits in float64 stay unchanged."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def copy_to_array(tensor: Tensor) -> np.ndarray:
    """Return a copy of a CPU tensor as an array of the same dtype."""
    return tensor.numpy().copy()


def is_exclusive(config: BertConfig) -> bool:
    """Return whether a text has exactly one class, according to `problem_type` or a sigmoid in the configuration."""
    return config.problem_type != "multi_label_classification" and config.activation != "Sigmoid"


def is_number(config: BertConfig) -> bool:
    """Return whether the classifier is a regression: `problem_type` says so, or it has one output without a sigmoid."""
    if config.activation == "Sigmoid" and config.problem_type != "regression":
        return False
    return config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1)


def quote(text: str) -> str:
    """Return a text on one line of at most `MAX_QUOTED_CHARACTERS` characters, for a sentence that quotes it."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUOTED_CHARACTERS else f"{line[:MAX_QUOTED_CHARACTERS]}…"


def rank_typed_tokens(scores: np.ndarray, encoding: Encoding) -> list[int]:
    """Return the positions of all tokens but special ones, the largest score first. scores: (seq,)."""
    return [int(position) for position in np.argsort(-scores, kind="stable") if not encoding.special[position]]


def ranked_spans(encoding: Encoding, spans: SpanPrediction, max_spans: int) -> list[Span]:
    """Return the best answers and "no answer", sorted by score."""
    return sorted(
        (*best_spans(encoding, spans, max_spans), span_at(encoding, spans, 0, 0)), key=lambda span: -span.score
    )


def _output_unit(layer: nn.Linear, number: int) -> tuple[Tensor, Tensor]:
    """Return the weight (hidden,) and bias () of one output of a linear layer."""
    return layer.weight[number], layer.bias[number]


def _transform_stages(transform: nn.Module) -> tuple[tuple[nn.Linear, Callable[[Tensor], Tensor], nn.Module], ...]:
    """Return the stages of a `LinearPath` before the outputs of a head; none for the identity."""
    if not isinstance(transform, BertPredictionHeadTransform):
        return ()
    return ((transform.dense, transform.transform_act_fn, transform.LayerNorm),)


def _word_at(encoding: Encoding, position: int) -> str:
    """Return the word that a position belongs to, or an empty text for a special token."""
    word = encoding.words[position]
    return "" if word is None else encoding.word_text(word)


# ---------------------------------------------------------------------------- the registry

# Pages and commands list targets and predictions in this order.
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
        FunctionHead(),
    )
}
TASK_HEADS = Table(_HEADS)
_BUILT_IN = frozenset(_HEADS)


def head_of(target: Target) -> TaskHead:
    """Return the declaration of the head that computes a target."""
    return TASK_HEADS[target.target_kind.head]


def trained_heads(loaded: LoadedModel) -> list[TaskHead]:
    """Return the trained heads of a model, in the order of `TASK_HEADS`."""
    return [head for head in TASK_HEADS.values() if head.is_trained(loaded)]


def optional_parts() -> tuple[str, ...]:
    """Return the name prefixes of all weights that belong to a task head, which an encoder does not need."""
    return tuple(dict.fromkeys(part for head in TASK_HEADS.values() for part in head.parts))


def parts_of_architectures(config: BertConfig) -> set[str]:
    """Return the name prefixes of the task head weights that the architectures in a configuration have."""
    parts: set[str] = set()
    for name in config.architectures:
        kind = name.partition("For")[2] or name
        if kind == "PreTraining" and config.family.name == "electra":
            kind = "PreTraining of ELECTRA"  # the discriminator, which has no masked-language-modelling head
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
    """Register a task head. Models that are loaded afterwards have it if their files hold its weights.

    head: an instance of a subclass of `TaskHead`.
    kinds: the kinds of its targets, by name. They may need only values with a text form: `position`, `last`, `label`.
    questions: the questions that studies of files can ask of it, by name. The loss of each must be computed from its
        targets (`loss_from_targets`). None adds no question.
    Raises Refused, and registers nothing, if a name is already used or not valid, the head is not a complete
    declaration, or a row has the wrong type or belongs to another head.
    """
    file_questions = {} if questions is None else questions
    for parameter, rows, row_type in (("kinds", kinds, TargetKind), ("questions", file_questions, FileQuestion)):
        if not isinstance(rows, Mapping):
            raise Refused(f"{parameter} is {short_repr(rows)}: it must be a mapping of names to {row_type.__name__}")
        require_instances(parameter, rows.values(), row_type)
    _check_declaration(head)
    taken_names = (
        {head.name} & set(TASK_HEADS) | set(kinds) & set(TARGET_KINDS) | set(file_questions) & set(FILE_QUESTIONS)
    )
    if taken_names:
        raise Refused(
            f"{', '.join(sorted(taken_names))} is already registered: choose another name, or remove it with "
            "unregister_head"
        )
    new_rows: dict[str, TargetKind | FileQuestion] = {**kinds, **file_questions}
    for name, row in new_rows.items():
        if not isinstance(name, str) or not name.isidentifier() or name in RESERVED_NAMES:
            raise Refused(
                f"{short_repr(name)} is not a valid name of a target or a question: use letters, digits and underscores"
            )
        if row.head != head.name:
            raise Refused(f"{name} belongs to the head {row.head!r}: it must belong to {head.name!r}")
    for name, kind in kinds.items():
        if not kind.has_text_form:
            raise Refused(f"{name} needs {', '.join(kind.needs)}: it may need {', '.join(TEXT_VALUES)}")
    for name, question in file_questions.items():
        if not question.loss_from_targets:
            raise Refused(f"loss_from_targets of the question {name} is False: it must be True for a registered head")
        if set(question.faithfulness_kinds) - {name}:
            raise Refused(
                f"faithfulness_kinds of the question {name} are {', '.join(question.faithfulness_kinds)}: the only "
                f"allowed kind is {name}"
            )
    _HEADS[head.name] = head
    add_rows(kinds, file_questions)


def _check_declaration(head: TaskHead) -> None:
    """Raise Refused if the class variables of a registered head are incomplete or invalid."""
    for name in ("name", "description"):
        value = getattr(head, name, None)
        if not isinstance(value, str) or not value.strip():
            raise Refused(f"{name} of the head {type(head).__name__} is {short_repr(value)}: it must be a text")
    parts = require_sequence(f"parts of the head {head.name!r}", head.parts, "name prefixes")
    if not all(isinstance(part, str) and part for part in parts):
        raise Refused(f"parts of the head {head.name!r} is {short_repr(head.parts)}: it must be a list of texts")
    if head.result:
        raise Refused(
            f"result of the head {head.name!r} is {head.result!r}: it must be empty, because ModelRun.others holds the "
            "predictions of registered heads"
        )
    if head.module is None:
        return
    if not isinstance(head.module, type) or not issubclass(head.module, BertPreTrainedModel):
        raise Refused(
            f"module of the head {head.name!r} is {short_repr(head.module)}: it must extend BertPreTrainedModel"
        )
    if not parts:
        raise Refused(
            f"parts of the head {head.name!r} is empty: a head with a module needs the prefixes of its weights"
        )
    for second in TASK_HEADS.values():
        for part, second_part in itertools.product(parts, second.parts):
            # Heads may share weights of the encoder, such as the pooler. All other tensors belong to one head.
            if not part.startswith("bert.") and (part.startswith(second_part) or second_part.startswith(part)):
                raise Refused(
                    f"the weight prefix {part!r} of the head {head.name!r} overlaps with {second_part!r} of the head "
                    f"{second.name!r}: choose another name"
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
