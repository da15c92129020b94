"""Checked input tensors: token ids, segments, position ids, embeddings and head gates of one text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from bert_core.config import BertConfig, check_head_number, head_pairs
from bert_core.edits import Edit, activation_patches, added_vectors, blocked_edges, knockouts_in_layer
from bert_core.loading import LoadedModel
from bert_core.refused import Refused, require_int, short_repr, validate_arguments
from bert_core.tokenizer import Encoding


def id_tensor(loaded: LoadedModel, encoding: Encoding) -> Tensor:
    """Return the token ids of a text, (1, seq), on the model's device. Raises Refused as `check_text`."""
    return torch.tensor([check_text(loaded, encoding).input_ids], device=loaded.device)


def check_text(loaded: LoadedModel, encoding: Encoding) -> Encoding:
    """Return the encoding if the model, with its edits, can process it.

    Raises Refused for a value that is no Encoding, for token ids outside the vocabulary, for more tokens than the model
    has positions, and as `check_edits`.
    """
    if not isinstance(encoding, Encoding):
        raise Refused(f"the text is {short_repr(encoding)}: it must be an Encoding from `loaded.tokenizer.encode`")
    if max(encoding.input_ids) >= loaded.config.vocab_size:
        raise Refused(
            f"the text has token id {max(encoding.input_ids)}: the vocabulary of {loaded.name} has ids 0 to "
            f"{loaded.config.vocab_size - 1}, so encode the text with this model's tokenizer"
        )
    longest = loaded.config.max_position_embeddings
    if len(encoding) > longest:
        raise Refused(f"the sequence has {len(encoding)} tokens: this model takes at most {longest}")
    check_edits(loaded, len(encoding))
    return encoding


def check_edits(loaded: LoadedModel, tokens: int, edits: Sequence[Edit] | None = None) -> None:
    """Raise Refused unless edits can be applied to a text of a given length.

    edits: the edits to check; None: the edits of the model.
    Raises Refused for an attention knockout or an added vector at a position beyond the text, and for renormalised
    knockouts that leave a query without keys. Raises Refused also for an activation patch that was made for a text of
    another length.
    """
    edits = loaded.edits if edits is None else edits
    for layer, module in enumerate(loaded.model.attention_modules):
        for renormalised in (True, False):
            knockouts = knockouts_in_layer(edits, layer)
            blocked_edges(knockouts, module.heads, tokens, renormalised=renormalised, window=module.window)
    for activation_patch in activation_patches(edits):
        if activation_patch.tokens != tokens:
            raise Refused(
                f"the activation patch was made for a text of {activation_patch.tokens} tokens and this text has "
                f"{tokens}: each token is patched with its own activation, so both need the same number of tokens"
            )
    for vector in added_vectors(edits):
        if vector.positions is not None and vector.positions[-1] >= tokens:
            raise Refused(
                f"the added vector names position {vector.positions[-1]}: the text has positions 0 to {tokens - 1}"
            )


def segment_tensor(loaded: LoadedModel, encoding: Encoding) -> Tensor | None:
    """Return the segment ids of a text, (1, seq), or None for a model without segments."""
    if not loaded.config.type_vocab_size:
        return None
    return torch.tensor([encoding.token_type_ids], device=loaded.device)


def position_tensor(loaded: LoadedModel, encoding: Encoding) -> Tensor | None:
    """Return position ids (1, seq) for a pass from embeddings, or None if they are simply 0, 1, 2 and so on."""
    return loaded.model.bert.embeddings.create_position_ids(id_tensor(loaded, encoding))


@torch.no_grad()
def embed_text(loaded: LoadedModel, encoding: Encoding) -> Tensor:
    """Return the output of the embedding layer, which is the input of the first layer, (1, seq, hidden)."""
    states: Tensor = loaded.model.bert.embeddings(
        id_tensor(loaded, encoding), token_type_ids=segment_tensor(loaded, encoding)
    )
    return states


def gate_tensor(loaded: LoadedModel, head_mask: np.ndarray | None) -> Tensor | None:
    """Return checked head gates (layer, head) on the model's device, or None if all of them are 1."""
    gates = check_head_mask(head_mask, loaded.config.num_hidden_layers, loaded.config.num_attention_heads)
    return None if (gates == 1).all() else torch.tensor(gates, device=loaded.device)


def layer_gates(loaded: LoadedModel, head_mask: np.ndarray | None) -> Tensor | None:
    """Return checked head gates in the shape that layers take, (layer, 1, head, 1, 1), or None if all of them are 1."""
    gates: Tensor | None = loaded.model.bert.get_head_mask(gate_tensor(loaded, head_mask), 1)
    return gates


@validate_arguments
def head_mask_without(config: BertConfig, heads: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return a head mask that switches some heads off: 0 for these heads and 1 for all others.

    heads: pairs (layer, head), counted from zero.
    Returns float32 (layer, head). Raises Refused for a head that the unpruned model does not have.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> head_mask = bert_core.head_mask_without(loaded.config, [(0, 2), (5, 10)])
    >>> head_mask.shape, head_mask[0, :4].tolist()
    ((6, 12), [1.0, 1.0, 0.0, 1.0])
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> run = bert_core.capture(loaded, encoding, head_mask=head_mask)
    >>> loaded.tokenizer.token_of(run.predictions[0].top[0][0])
    'door'
    """
    gates = np.ones((config.num_hidden_layers, config.num_attention_heads), np.float32)
    for layer, head in head_pairs(heads):
        check_head_number(layer, head, *gates.shape)
        gates[layer, head] = 0
    return gates


def check_head_mask(head_mask: np.ndarray | None, layers: int, heads: int) -> np.ndarray:
    """Return a head mask as float32 gates (layer, head); None gives all ones.

    Raises Refused for another shape, or for a gate outside 0 to 1.
    """
    if head_mask is None:
        return np.ones((layers, heads), np.float32)
    try:
        gates = np.asarray(head_mask).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise Refused(
            f"head_mask is {short_repr(head_mask)}: this model needs an array of {layers} layers by {heads} heads"
        ) from error
    if gates.shape != (layers, heads):
        raise Refused(f"head_mask has the shape {gates.shape}: this model has {layers} layers of {heads} heads")
    if not ((gates >= 0) & (gates <= 1)).all():
        raise Refused("head_mask holds a gate outside 0 to 1: 0 switches a head off and 1 leaves it on")
    return gates


def check_position(encoding: Encoding, position: int) -> int:
    """Return a position as an int. Raises Refused unless the text has a token at this position."""
    number = require_int("a position", position, None)
    if not 0 <= number < len(encoding):
        raise Refused(f"position {number} does not exist: this text has positions 0 to {len(encoding) - 1}")
    return number
