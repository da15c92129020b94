"""Query and key vectors of attention heads, and the scores that relative positions add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from bert_core.attention import BertSelfAttention
from bert_core.config import check_head_exists, check_head_number
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.records import HeadVectors
from bert_core.refused import Refused, validate_arguments
from bert_core.run.arrays import fill_pruned_with_nan
from bert_core.run.inputs import gate_tensor, id_tensor, segment_tensor
from bert_core.tokenizer import Encoding


@validate_arguments
@torch.no_grad()
def head_vectors(
    loaded: LoadedModel, encoding: Encoding, layer: int, head: int, *, head_mask: np.ndarray | None = None
) -> HeadVectors:
    """Compute the query and key vectors of one attention head for a text; `HeadVectors` derives scores from them.

    layer, head: the head, counted from zero.
    head_mask: as for `capture`; switching a head off changes the vectors of the layers above it, but not its own.
    The model is not changed.
    Raises Refused for a head that does not exist or was pruned. Raises Refused also for a head with blocked attention
    edges or a patched pattern, since its attention does not follow from its queries and keys.

    >>> import numpy as np
    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> vectors = bert_core.head_vectors(loaded, encoding, layer=0, head=2)
    >>> vectors.queries.shape, np.allclose(vectors.attention.sum(1), 1)
    ((10, 32), True)
    """
    check_head_exists(loaded.config, layer, head)
    (vectors,) = vectors_of_heads(loaded, encoding, [(layer, head)], head_mask)
    return vectors


@validate_arguments
def score_addends(
    loaded: LoadedModel, encoding: Encoding, layer: int, *, head_mask: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Return the terms of the attention scores of a layer for a text by name, (head, query, key) each.

    They are already divided and add up to the scores before the softmax; their names are those of
    `HeadVectors.addends`. DeBERTa has all of "content-to-content", "content-to-position" and "position-to-content".
    head_mask: as for `head_vectors`. A pruned head has NaN.
    Raises Refused for a layer that does not exist or has no heads, and if an edit changes the attention of a head, as
    `head_vectors` does.
    """
    config = loaded.config
    check_head_number(layer, 0, config.num_hidden_layers, config.num_attention_heads)
    heads = config.heads_of(layer)
    if not heads:
        raise Refused(f"layer {layer} has no heads, so it has no attention scores: choose another layer")
    with torch.no_grad():
        vectors = vectors_of_heads(loaded, encoding, [(layer, head) for head in heads], head_mask)
    addends = [head_vectors.addends for head_vectors in vectors]
    return {
        name: fill_pruned_with_nan(np.stack([terms[name] for terms in addends]), heads, config.num_attention_heads)
        for name in addends[0]
    }


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
    return tuple(vectors_of_heads(loaded, encoding, heads, head_mask))


@torch.no_grad()
def vectors_of_heads(
    loaded: LoadedModel, encoding: Encoding, heads: Sequence[tuple[int, int]], head_mask: np.ndarray | None = None
) -> list[HeadVectors]:
    """Compute the vectors of existing heads, given as pairs (layer, head), by layer and in their order there."""
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
        block = cast("BertLayer", bert.encoder.layer[layer])
        attention, states = block.attention.self, block.attention_input(outputs.hidden_states[layer])
        queries, keys = attention.queries(states), attention.keys(states)
        scheme, terms = attention.distances, dict[str, Tensor]()
        if scheme is not None:
            terms = attention.position_terms(queries, keys, len(encoding), None, attention.heads)
        for head in (head for head_layer, head in heads if head_layer == layer):
            index = attention.heads.index(head)
            head_terms = {name: _copied(term[0, index]) for name, term in terms.items()}
            vectors.append(
                HeadVectors(
                    encoding,
                    layer,
                    head,
                    _copied(queries[0, index]),
                    _copied(keys[0, index]),
                    np.sum([*head_terms.values()], axis=0) if head_terms else None,
                    loaded.config.is_decoder,
                    1 if scheme is None else scheme.root_terms,
                    head_terms,
                    attention.window,
                    None if attention.query_rotation is None else attention.query_rotation.base,
                )
            )
    return vectors


def _check_unedited(attention: BertSelfAttention, layer: int, head: int) -> None:
    """Raise Refused if an edit changes how a head computes its attention."""
    if any(pattern_patch.head == head for pattern_patch in attention.pattern_patches):
        raise Refused(
            f"the attention pattern of L{layer} H{head} is patched from another text, so it does not follow from its "
            "queries and keys: remove the patch, or choose another head"
        )
    if any(knockout.heads is None or head in knockout.heads for knockout in attention.knockouts):
        raise Refused(
            f"L{layer} H{head} has blocked attention edges, so its attention does not follow from its queries and keys "
            "alone: remove the attention knockout, or choose another head"
        )


def _copied(value: Tensor) -> np.ndarray:
    """Copy a tensor to an array, so that a record does not change with the tensor."""
    return value.float().cpu().numpy().copy()
