"""What one head makes its attention from: its query and key vectors, and what distances add to their products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from bert_core.attention import BertSelfAttention
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
    check_head_exists(loaded.config, layer, head)
    (vectors,) = _vectors(loaded, encoding, [(layer, head)], head_mask)
    return vectors


@validate_arguments
@torch.no_grad()
def all_head_vectors(
    loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None
) -> tuple[HeadVectors, ...]:
    """Return the query and key vectors of every head of a model on a text, from one pass.

    head_mask: as for `capture`. Pruned heads have no vectors.
    Raises Refused if an edit changes the attention of a head, as `head_vectors` does.
    """
    config = loaded.config
    heads = [(layer, head) for layer in range(config.num_hidden_layers) for head in config.heads_of(layer)]
    return tuple(_vectors(loaded, encoding, heads, head_mask))


def _vectors(
    loaded: LoadedModel, encoding: Encoding, heads: Sequence[tuple[int, int]], head_mask: np.ndarray | None
) -> list[HeadVectors]:
    """The vectors of existing heads, given as (layer, head)."""
    bert = loaded.model.bert
    for layer, head in heads:
        _check_unedited(cast("BertLayer", bert.encoder.layer[layer]).attention.self, layer, head)
    outputs = bert(
        id_tensor(loaded, encoding),
        token_type_ids=segment_tensor(loaded, encoding),
        head_mask=gate_tensor(loaded, head_mask),
        output_hidden_states=True,
    )
    vectors = []
    for layer in sorted({layer for layer, _ in heads}):
        attention = cast("BertLayer", bert.encoder.layer[layer]).attention.self
        states = outputs.hidden_states[layer]
        queries, keys = (attention.transpose_for_scores(linear(states)) for linear in (attention.query, attention.key))
        distances = None
        if attention.distances is not None:
            distances = attention.position_scores(queries, keys, len(encoding), None, attention.heads)[0]
        for head in (head for head_layer, head in heads if head_layer == layer):
            index = attention.heads.index(head)
            vectors.append(
                HeadVectors(
                    encoding,
                    layer,
                    head,
                    _copied(queries[0, index]),
                    _copied(keys[0, index]),
                    None if distances is None else _copied(distances[index]),
                    loaded.config.is_decoder,
                )
            )
    return vectors


def _check_unedited(attention: BertSelfAttention, layer: int, head: int) -> None:
    """Raise Refused if an edit changes how a head computes its attention."""
    if any(put.head == head for put in attention.pattern_patches):
        raise Refused(f"L{layer} H{head} looks as in another text, so its queries and keys do not make its attention")
    if any(cut.heads is None or head in cut.heads for cut in attention.knockouts):
        raise Refused(
            f"arrows of L{layer} H{head} are cut: its queries and keys alone do not make its attention, so put them "
            "back, or look at another head"
        )


def _copied(value: Tensor) -> np.ndarray:
    """A record must not change with a tensor."""
    return value.float().cpu().numpy().copy()
