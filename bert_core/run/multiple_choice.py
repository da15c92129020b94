"""One question and some answers to choose from: each is read with the question, and the model scores the pair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from bert_core.loading import LoadedModel
from bert_core.records import ChoicePrediction
from bert_core.refused import Refused, require_sequence, short_repr, validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.inputs import gate_tensor, id_tensor, segment_tensor
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Encoding

MAX_CHOICES = 26


@validate_arguments
@torch.no_grad()
def choose(
    loaded: LoadedModel, question: str, choices: Sequence[str], *, head_mask: np.ndarray | None = None
) -> ChoicePrediction:
    """Which of some answers to a question a model chooses, and how probable it finds each among them.

    Each answer is read with the question as a pair of its own; the softmax is over the logits of the pairs.
    head_mask: as for `capture`, in all pairs.
    Raises Refused for a model that was not trained to choose, and as `choices_of`.
    Source: Devlin 2019, section 4.4 (arXiv:1810.04805).
    """
    loaded.require_head("chooser", "load a model for multiple choice")
    return score_choices(loaded, encode_choices(loaded, question, choices), head_mask=head_mask)


@torch.no_grad()
def score_choices(
    loaded: LoadedModel, pairs: Sequence[Encoding], *, head_mask: np.ndarray | None = None
) -> ChoicePrediction:
    """The same of pairs that `choices_of` has read, in which words may be hidden since."""
    gates, first = gate_tensor(loaded, head_mask), torch.tensor([[0]], device=loaded.device)
    chooser = TASK_HEADS["chooser"]
    logits = torch.cat([
        chooser.logits(loaded, loaded.model.bert(
            id_tensor(loaded, pair), token_type_ids=segment_tensor(loaded, pair), head_mask=gates, positions=first
        ).last_hidden_state[:, 0])
        for pair in pairs
    ])  # fmt: skip
    answers = tuple(pair.pair or "" for pair in pairs)
    return ChoicePrediction(pairs[0].text, answers, as_array(logits), as_array(logits.softmax(-1)))


def encode_choices(loaded: LoadedModel, question: str, choices: Sequence[str]) -> tuple[Encoding, ...]:
    """Each choice read with its question, as a pair.

    Raises Refused without a question, for fewer than two choices or more than `MOST_CHOICES`, for one that is empty,
    and for one that does not fit into the model whole: what is cut could be what tells it from the others.
    """
    given = require_sequence("the choices", choices, "texts")
    for number, text in enumerate((question, *given)):
        name = f"choice {number}" if number else "the question"
        if not isinstance(text, str):
            raise Refused(f"{name} is {short_repr(text)}: it must be a text")
        if not text.strip():
            raise Refused(f"{name} is empty: write something")
    if not 2 <= len(given) <= MAX_CHOICES:
        count = "1 choice is" if len(given) == 1 else f"{len(given):,} choices are"
        raise Refused(f"{count} given: it takes from 2 to {MAX_CHOICES}")
    most, pairs = loaded.config.max_position_embeddings, []
    for number, text in enumerate(given, 1):
        pair = loaded.tokenizer.encode(question, text, max_length=most)
        if pair.truncated_count:
            raise Refused(
                f"choice {number} with its question has {pair.full_length:,} tokens: {loaded.name} reads at most "
                f"{most:,}"
            )
        pairs.append(pair)
    return tuple(pairs)
