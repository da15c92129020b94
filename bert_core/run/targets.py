"""A target as a number with a graph and as a probability, and where the last layer is read for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.analysis.spans import context_places
from bert_core.config import BertConfig
from bert_core.editing import unedited
from bert_core.loading import LoadedModel
from bert_core.records import Target
from bert_core.refused import Refused, several, shown
from bert_core.run.inputs import check_position, gate_tensor, ids_of, known_text, segments_of
from bert_core.tokenizer import Encoding


def asked_positions(
    loaded: LoadedModel, encoding: Encoding, target: Target | None, positions: Sequence[int] | None
) -> tuple[tuple[int, ...], list[int]]:
    """Where to predict pieces, and where the last layer is read for that, for the target and, at [CLS], the pooler.

    A tagger, or a detector of replaced tokens, answers for every token, and a reader finds its answer among all, so
    then it is read everywhere.
    positions: None means every [MASK]; without a trained masked-word head there are none.
    Raises Refused for a target that the model has no trained head for, or a position that does not exist.
    """
    check_target(loaded, known_text(loaded, encoding), target)
    given = encoding.mask_positions if positions is None else several("positions", positions, "whole numbers")
    positions = tuple(check_position(encoding, position) for position in given)
    if not loaded.has_mlm:
        positions = ()
    if loaded.has_tagger or loaded.has_detector or finds_answers(loaded, encoding):
        return positions, list(range(len(encoding)))
    return positions, sorted({0, *positions, *(() if target is None else target.rows)})


def finds_answers(loaded: LoadedModel, encoding: Encoding) -> bool:
    """Whether the model looks in the second text for an answer to the first."""
    return loaded.has_reader and encoding.pair is not None


def check_target(loaded: LoadedModel, encoding: Encoding, target: Target | None) -> None:
    """Raise Refused unless this model can compute this target on this text."""
    if target is None:
        return
    if not isinstance(target, Target):
        raise Refused(f"the target is {shown(target)}: it must be a Target, as `word_target` makes it")
    if target.asks.head == "next":
        if not loaded.has_nsp:
            raise Refused(f"{loaded.name} has no trained {loaded.pair_head} head: choose a masked word as the target")
        if encoding.pair is None:
            raise Refused(f"the {loaded.pair_head} target needs a second sentence")
    elif target.asks.head == "classifier":
        assert target.label is not None  # Target checks this
        if not loaded.has_classifier:
            raise Refused(f"{loaded.name} has no trained classifier: choose another target")
        if not 0 <= target.label < len(loaded.labels):
            raise Refused(f"class {target.label} does not exist: this model has 0 to {len(loaded.labels) - 1}")
    elif target.asks.head == "tagger":
        assert target.label is not None  # Target checks this
        if not loaded.has_tagger:
            raise Refused(f"{loaded.name} has no trained tagger of tokens: choose another target")
        if not 0 <= target.label < len(loaded.tags):
            raise Refused(f"tag {target.label} does not exist: this model has 0 to {len(loaded.tags) - 1}")
    elif target.asks.head == "reader":
        if not loaded.has_reader:
            raise Refused(f"{loaded.name} was not trained to find answers in a text: choose another target")
        _check_span(encoding, *target.rows)
    elif target.asks.head == "chooser":
        if not loaded.has_chooser:
            raise Refused(f"{loaded.name} was not trained to choose among answers: choose another target")
        if encoding.pair is None:
            raise Refused("a choice is judged beside its question: give it as the second text")
    elif target.asks.head == "pooling":
        assert target.other is not None  # Target checks this
        known_text(unedited(loaded), target.other)
        rows = loaded.pools.rows(len(encoding))
        if target.pooled != rows:
            raise Refused(
                f"the target pools {len(target.pooled)} positions of a text, and of this one {loaded.name} pools "
                f"{len(rows)}, by {loaded.pools.mode!r}: make it with similarity_target"
            )
    elif target.asks.head == "detector":
        if not loaded.has_detector:
            raise Refused(f"{loaded.name} has no trained detector of replaced tokens: choose another target")
    elif not loaded.has_mlm:
        raise Refused(f"{loaded.name} has no trained masked-word head: choose another target")
    for position in target.rows:
        check_position(encoding, position)
    last = loaded.config.vocab_size - 1
    for token in (*(token for _, token in target.asked), target.against):
        if token is not None and not 0 <= token <= last:
            raise Refused(f"token {token} does not exist: the vocabulary has 0 to {last}")


def _check_span(encoding: Encoding, first: int, last: int) -> None:
    """Raise Refused unless an answer can stand there."""
    if encoding.pair is None:
        raise Refused("an answer is looked for in a second text: give the context of the question")
    places = context_places(encoding)
    if (first, last) != (0, 0) and not (first in places and last in places and first <= last):
        raise Refused(
            f"no answer can stand at positions {shown(first)} to {shown(last)}: the context has {places[0]} to "
            f"{places[-1]}, and 0 to 0 means that there is none"
        )


def target_values(loaded: LoadedModel, target: Target, rows: Tensor) -> Tensor:
    """The target for some copies of a text, (copies,), with a graph if the rows have one.

    rows: (copies, row, hidden), the last layer at `target.rows`. The masked-word head is computed there alone, and for
    a contrast only for its two words.
    """
    heads, asks = loaded.model.cls, target.asks
    if asks.head == "classifier":
        return class_logits(loaded, _pooled(loaded, rows))[:, target.label]
    if asks.head == "chooser":
        return choice_logits(loaded, _pooled(loaded, rows))
    if asks.head == "tagger":
        return tag_logits(loaded, rows[:, 0])[:, target.label]
    if asks.head == "reader":
        return span_logits(loaded, rows).diagonal(dim1=1, dim2=2).sum(-1)
    if asks.head == "detector":
        return replaced_logits(loaded, rows)[:, 0]
    if asks.head == "next":
        logits = _wide(heads.seq_relationship(_pooled(loaded, rows)))
        return torch.sub(logits[:, 0], logits[:, 1])
    if asks.head == "pooling":
        return F.cosine_similarity(_wide(loaded.pools.pooled(rows)), vector_of_other(loaded, target)[None], dim=-1)
    if "against" in asks.needs:
        words, head = [target.token_id, target.against], heads.predictions
        decoder = head.decoder
        logits = _wide(F.linear(head.transform(rows[:, 0]), decoder.weight[words], decoder.bias[words]))
        return torch.sub(logits[:, 0], logits[:, 1])
    scores: Tensor = heads.predictions(rows)
    wanted = torch.tensor([token for _, token in target.asked], device=rows.device)
    of_pieces = _wide(scores).log_softmax(-1).gather(-1, wanted.expand(len(rows), -1)[..., None])[..., 0]
    return of_pieces.mean(-1) if asks.mean else of_pieces.sum(-1)


def rows_of_probability(encoding: Encoding, target: Target) -> tuple[int, ...]:
    """Where the last layer is read for `target_probabilities`: behind an answer's own two places, all that it beats."""
    return target.rows if target.asks.head != "reader" else (*target.rows, 0, *context_places(encoding))


def target_probabilities(loaded: LoadedModel, target: Target, rows: Tensor) -> Tensor:
    """The target as a probability, (copies,): of the word; of it and not the other; that B follows A; and so on.

    Of several pieces it is the product of theirs, and of a loss their geometric mean; of an answer the product of its
    first token's and its last one's. rows: (copies, row, hidden), at `rows_of_probability`.
    Of how alike two texts are there is none, nor of a choice without the others, nor of a number that a classifier
    gives: it is the cosine, logit or number itself.
    """
    if target.asks.link is not None:
        values = target_values(loaded, target, rows)
        return values.exp() if target.asks.link == "exp" else values.sigmoid()
    if target.asks.head == "tagger":
        return tag_logits(loaded, rows[:, 0]).softmax(-1)[:, target.label]
    if target.asks.head == "reader":
        logits = span_logits(loaded, rows)
        own, among = logits[:, :2].diagonal(dim1=1, dim2=2), logits[:, 2:].logsumexp(1)
        return (own - among).sum(-1).exp()
    if target.asks.head in ("pooling", "chooser") or is_number(loaded.config):
        return target_values(loaded, target, rows)
    logits = class_logits(loaded, _pooled(loaded, rows))
    probabilities = logits.softmax(-1) if is_exclusive(loaded.config) else logits.sigmoid()
    return probabilities[:, target.label]


@torch.no_grad()
def vector_of_other(loaded: LoadedModel, target: Target) -> Tensor:
    """The vector (hidden,) of the text that a text is like: of the model as it was loaded, all heads on, no edits.

    One more pass for each batch of copies; nothing is kept, so that weights may change.
    """
    assert target.other is not None  # Target checks this
    plain = unedited(loaded)
    return plain.pools.pooled(_wide(states_pooled(plain, target.other)))


def states_pooled(loaded: LoadedModel, encoding: Encoding, head_mask: np.ndarray | None = None) -> Tensor:
    """The states of the last layer that make a text's vector, (row, hidden)."""
    rows = torch.tensor([loaded.pools.rows(len(known_text(loaded, encoding)))], device=loaded.device)
    outputs = loaded.model.bert(
        ids_of(loaded, encoding), token_type_ids=segments_of(loaded, encoding),
        head_mask=gate_tensor(loaded, head_mask), positions=rows,
    )  # fmt: skip
    states: Tensor = outputs.last_hidden_state[0]
    return states


def _pooled(loaded: LoadedModel, rows: Tensor) -> Tensor:
    """rows: (copies, 1, hidden), [CLS] of the last layer."""
    pooler = loaded.model.bert.pooler
    assert pooler is not None  # a pre-training model has one
    pooled: Tensor = pooler(rows)
    return pooled


def class_logits(loaded: LoadedModel, pooled: Tensor) -> Tensor:
    """pooled: (copies, hidden). Returns (copies, label)."""
    assert loaded.classifier is not None  # has_classifier was asked
    logits: Tensor = loaded.classifier.classifier(pooled)
    return _wide(logits)


def choice_logits(loaded: LoadedModel, pooled: Tensor) -> Tensor:
    """pooled: (pair, hidden), of a question with one of its choices each. Returns (pair,)."""
    assert loaded.chooser is not None  # has_chooser was asked
    logits: Tensor = loaded.chooser.classifier(pooled)[:, 0]
    return _wide(logits)


def tag_logits(loaded: LoadedModel, rows: Tensor) -> Tensor:
    """rows: (..., hidden), of the last layer. Returns (..., label)."""
    assert loaded.tagger is not None  # has_tagger was asked
    logits: Tensor = loaded.tagger.classifier(rows)
    return _wide(logits)


def span_logits(loaded: LoadedModel, rows: Tensor) -> Tensor:
    """rows: (..., hidden), of the last layer. Returns (..., 2): as the first token of an answer, and as its last."""
    assert loaded.reader is not None  # has_reader was asked
    logits: Tensor = loaded.reader.qa_outputs(rows)
    return _wide(logits)


def replaced_logits(loaded: LoadedModel, states: Tensor) -> Tensor:
    """states: (..., hidden), the last layer. Returns (...): above 0 a token rather was put in the place of another."""
    assert loaded.detector is not None  # has_detector was asked
    logits: Tensor = loaded.detector.discriminator_predictions(states)
    return _wide(logits)


def _wide(logits: Tensor) -> Tensor:
    """As float32 where they are narrower; a model in float64 keeps its digits."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def is_exclusive(config: BertConfig) -> bool:
    """Whether a text has one class; published files say so by `problem_type`, or name a sigmoid."""
    return config.problem_type != "multi_label_classification" and config.activation != "Sigmoid"


def is_number(config: BertConfig) -> bool:
    """Whether the classifier gives a number; one output alone is one, unless a sigmoid belongs to it."""
    if config.activation == "Sigmoid" and config.problem_type != "regression":
        return False
    return config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1)
