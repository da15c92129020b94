"""What one head makes its attention from: its query and key vectors, and what distances add to their products."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from bert_core.config import check_head_exists
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.records import HeadVectors
from bert_core.refused import Refused, validate_arguments
from bert_core.run.inputs import gate_tensor, id_tensor, segment_tensor
from bert_core.tokenizer import Encoding


@validate_arguments
@torch.no_grad()
def head_vectors(
    loaded: LoadedModel, encoding: Encoding, layer: int, head: int, *, head_mask: np.ndarray | None = None
) -> HeadVectors:
    """The query and key vectors of one head on a text; see `HeadVectors` for what follows from them.

    head_mask: as for `capture`; a head that is off changes the vectors of the layers above it, not its own.
    Nothing is written to the model.
    Raises Refused for a head that does not exist, or not any more, and for one some of whose arrows are cut.
    """
    config, bert = loaded.config, loaded.model.bert
    check_head_exists(config, layer, head)
    attention = cast("BertLayer", bert.encoder.layer[layer]).attention.self
    if any(put.head == head for put in attention.pattern_patches):
        raise Refused(f"L{layer} H{head} looks as in another text, so its queries and keys do not make its attention")
    if any(cut.heads is None or head in cut.heads for cut in attention.knockouts):
        raise Refused(
            f"arrows of L{layer} H{head} are cut: its queries and keys alone do not make its attention, so put them "
            "back, or look at another head"
        )
    outputs = bert(
        id_tensor(loaded, encoding),
        token_type_ids=segment_tensor(loaded, encoding),
        head_mask=gate_tensor(loaded, head_mask),
        output_hidden_states=True,
    )
    entering = outputs.hidden_states[layer]
    queries, keys = (attention.transpose_for_scores(weights(entering)) for weights in (attention.query, attention.key))
    place = attention.heads.index(head)
    distances = None
    if attention.distances is not None:
        distances = _copied(attention.position_scores(queries, keys, len(encoding), None, attention.heads)[0, place])
    return HeadVectors(
        encoding, layer, head, _copied(queries[0, place]), _copied(keys[0, place]), distances, config.is_decoder
    )


def _copied(value: Tensor) -> np.ndarray:
    """A record must not change with a tensor."""
    return value.float().cpu().numpy().copy()
