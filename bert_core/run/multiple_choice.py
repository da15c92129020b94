"""Multiple choice: each answer option is paired with the question, and the model scores the pairs."""

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
    """Predict which of several answer options answers a question.

    question: text A of every pair. choices: the answer options, each text B of its own pair.
    head_mask: as for `capture`, in all pairs.
    Returns the logit of each option, and the softmax of the logits over the options.
    Raises Refused for a model without a trained multiple-choice head, and as `encode_choices`.
    Source: Devlin 2019, section 4.4 (arXiv:1810.04805).
    """
    loaded.require_head("chooser", "load a model for multiple choice")
    return score_choices(loaded, encode_choices(loaded, question, choices), head_mask=head_mask)


@torch.no_grad()
def score_choices(
    loaded: LoadedModel, pairs: Sequence[Encoding], *, head_mask: np.ndarray | None = None
) -> ChoicePrediction:
    """Score pairs from `encode_choices`, in which words may have been masked since; otherwise as `choose`."""
    gates, chooser, logits = gate_tensor(loaded, head_mask), TASK_HEADS["chooser"], []
    for pair in pairs:
        positions = torch.tensor([chooser.prediction_positions(loaded, pair)], device=loaded.device)
        outputs = loaded.model.bert(
            id_tensor(loaded, pair), token_type_ids=segment_tensor(loaded, pair), head_mask=gates, positions=positions
        )
        logits.append(chooser.logits(loaded, chooser.text_states(loaded, outputs.last_hidden_state)))
    scores = torch.cat(logits)
    options = tuple(pair.pair or "" for pair in pairs)
    return ChoicePrediction(pairs[0].text, options, as_array(scores), as_array(scores.softmax(-1)))


def encode_choices(loaded: LoadedModel, question: str, choices: Sequence[str]) -> tuple[Encoding, ...]:
    """Encode each answer option with the question as a pair.

    Raises Refused for an empty question or option, for fewer than 2 options or more than `MAX_CHOICES`, and for a pair
    that is too long for the model. Pairs are not truncated, since options may differ only in the truncated words.
    """
    options = require_sequence("the choices", choices, "texts")
    for number, text in enumerate((question, *options)):
        name = f"choice {number}" if number else "the question"
        if not isinstance(text, str):
            raise Refused(f"{name} is {short_repr(text)}: it must be a string")
        if not text.strip():
            raise Refused(f"{name} is empty: type at least one word")
    if not 2 <= len(options) <= MAX_CHOICES:
        count = "1 choice was" if len(options) == 1 else f"{len(options):,} choices were"
        raise Refused(f"{count} given: give from 2 to {MAX_CHOICES} choices")
    pairs = []
    for number, text in enumerate(options, 1):
        pair = loaded.tokenizer.encode(question, text)
        if pair.truncated_count:
            raise Refused(
                f"choice {number} with its question has {pair.full_length:,} tokens: {loaded.name} takes at most "
                f"{loaded.config.max_position_embeddings:,}"
            )
        pairs.append(pair)
    return tuple(pairs)
