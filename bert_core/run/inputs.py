"""A text, its segments and the gates of the heads as tensors; and whether they can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from bert_core.config import BertConfig, check_head_number, head_pairs
from bert_core.edits import Edit, activation_patches, blocked_edges, knockouts_in_layer
from bert_core.loading import LoadedModel
from bert_core.refused import Refused, require_int, short_repr, validate_arguments
from bert_core.tokenizer import Encoding


def id_tensor(loaded: LoadedModel, encoding: Encoding) -> Tensor:
    """(1, seq), on the model's device."""
    return torch.tensor([check_text(loaded, encoding).input_ids], device=loaded.device)


def check_text(loaded: LoadedModel, encoding: Encoding) -> Encoding:
    """The text, if the model can read it. Raises Refused for what is none, of other pieces, or too short to cut."""
    if not isinstance(encoding, Encoding):
        raise Refused(
            f"the text is {short_repr(encoding)}: it must be an Encoding, as `loaded.tokenizer.encode` gives it"
        )
    if max(encoding.input_ids) >= loaded.config.vocab_size:
        raise Refused(
            f"the text has a piece of number {max(encoding.input_ids)}: the vocabulary of {loaded.name} has 0 to "
            f"{loaded.config.vocab_size - 1}, so encode it with this model's tokenizer"
        )
    check_edits(loaded, len(encoding))
    return encoding


def check_edits(loaded: LoadedModel, tokens: int, edits: Sequence[Edit] | None = None) -> None:
    """Raise Refused if a text of so many tokens is not one in which a model's edits can be.

    It has not all the arrows that are cut, keeps none in a row, or is of other length than that of what is put in.

    edits: those asked about; None: the model's own.
    """
    edits = loaded.edits if edits is None else edits
    for layer, module in enumerate(loaded.model.attention_modules):
        for renormalised in (True, False):
            blocked_edges(knockouts_in_layer(edits, layer), module.heads, tokens, renormalised=renormalised)
    for one in activation_patches(edits):
        if one.tokens != tokens:
            raise Refused(
                f"what is put in belongs to a text of {one.tokens} tokens, and this one has {tokens}: each token gets "
                "the part of its own"
            )


def segment_tensor(loaded: LoadedModel, encoding: Encoding) -> Tensor | None:
    """(1, seq), or None for a model without segments."""
    if not loaded.config.type_vocab_size:
        return None
    return torch.tensor([encoding.token_type_ids], device=loaded.device)


def position_tensor(loaded: LoadedModel, encoding: Encoding) -> Tensor | None:
    """(1, seq), for a model that is given embeddings; None where tokens are counted one by one."""
    return loaded.model.bert.embeddings.create_position_ids(id_tensor(loaded, encoding))


@torch.no_grad()
def embed_text(loaded: LoadedModel, encoding: Encoding) -> Tensor:
    """What enters the first layer, (1, seq, hidden)."""
    states: Tensor = loaded.model.bert.embeddings(
        id_tensor(loaded, encoding), token_type_ids=segment_tensor(loaded, encoding)
    )
    return states


def gate_tensor(loaded: LoadedModel, head_mask: np.ndarray | None) -> Tensor | None:
    """Checked gates (layer, head) on the model's device, or None where every head is on."""
    gates = check_head_mask(head_mask, loaded.config.num_hidden_layers, loaded.config.num_attention_heads)
    return None if (gates == 1).all() else torch.tensor(gates, device=loaded.device)


def layer_gates(loaded: LoadedModel, head_mask: np.ndarray | None) -> Tensor | None:
    """Checked gates as layers take them, (layer, 1, head, 1, 1), or None where every head is on."""
    gates: Tensor | None = loaded.model.bert.get_head_mask(gate_tensor(loaded, head_mask), 1)
    return gates


@validate_arguments
def head_mask_without(config: BertConfig, heads: Iterable[tuple[int, int]]) -> np.ndarray:
    """Gates (layer, head) as float32: 0 for each of these heads, (layer, head) from zero, and 1 for all others.

    Raises Refused for a head that the model has not, and had not before pruning.
    """
    gates = np.ones((config.num_hidden_layers, config.num_attention_heads), np.float32)
    for layer, head in head_pairs(heads):
        check_head_number(layer, head, *gates.shape)
        gates[layer, head] = 0
    return gates


def check_head_mask(head_mask: np.ndarray | None, layers: int, heads: int) -> np.ndarray:
    """Gates (layer, head) as float32; all ones for None.

    Raises Refused for any other shape, or a number not in 0 to 1.
    """
    if head_mask is None:
        return np.ones((layers, heads), np.float32)
    try:
        gates = np.asarray(head_mask).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise Refused(
            f"head_mask is {short_repr(head_mask)}: this model has {layers} layers of {heads} heads"
        ) from error
    if gates.shape != (layers, heads):
        raise Refused(f"head_mask is {gates.shape}: this model has {layers} layers of {heads} heads")
    if not ((gates >= 0) & (gates <= 1)).all():
        raise Refused("a gate is below 0 or above 1: 0 switches a head off, 1 leaves it on")
    return gates


def check_position(encoding: Encoding, position: int) -> int:
    """The position as an int. Raises Refused unless the encoding has a token there."""
    number = require_int("a position", position, None)
    if not 0 <= number < len(encoding):
        raise Refused(f"position {number} does not exist: this text has positions 0 to {len(encoding) - 1}")
    return number
