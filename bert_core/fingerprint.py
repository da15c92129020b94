"""The fingerprint of a model: what tells it from every other one, and files that were made for it from others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, MutableMapping
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from bert_core.checkpoint import fits_exactly, split_chunks
from bert_core.config import BertConfig
from bert_core.loading import LoadedModel
from bert_core.tokenizer import Tokenizer

# Settings that only training, decoders or the use of memory depend on: an encoder computes the same whatever they are.
IGNORED_SETTINGS = frozenset({
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "initializer_range", "label_smoothing",
    "use_cache", "chunk_size_feed_forward", "is_decoder", "add_cross_attention", "encoder_width",
})  # fmt: skip
CLASSIFIERS = ("classifier", "tagger")  # heads whose outputs have names

# A tensor -> what was found of it last, with its version and the number type that it was asked for. Kept by tensor and
# not by model, so that edited models, which share their tensors, share these too.
_digests: MutableMapping[Tensor, tuple[int | None, torch.dtype, str]] = WeakIdKeyDictionary()
_fits: MutableMapping[Tensor, tuple[int | None, torch.dtype, bool]] = WeakIdKeyDictionary()
_tokenizers: WeakKeyDictionary[Tokenizer, str] = WeakKeyDictionary()


def fingerprint(loaded: LoadedModel) -> str:
    """16 hexadecimal digits that are equal for two models if they are the same model.

    It covers
    - every parameter: its name, shape, numbers, and the number type in which `save` writes it, which is that of its
      file. Parameters that came untrained (`LoadReport.missing`), and tensors of a file that are not used, are left
      out, as `save` leaves them out;
    - the settings that an encoder computes with, what was pruned, the family of its architecture, the pooling of a
      sentence encoder, and the names and the kind of the classes of a classifier;
    - the tokenizer: vocabulary, normalisation, added and special tokens.
    So it is the same whatever the device, and whether a model was opened from a folder, from a .zip or from what `save`
    made of it; names of files, their layout, and settings of training alone are not in it.
    Of a model that exists only in memory, pruned or trained, it is that of the checkpoint that `save` would write.
    Edits are no weights: an edited model has the fingerprint of the model that it stands on.

    It is computed when it is first asked for, one tensor at a time. Later calls read only tensors that were changed in
    place since then, as by an optimizer or `load_state_dict`; changes that torch does not count, through
    `Tensor.data` or by a fused optimizer, are not seen.
    """
    dtypes, pooling = loaded.saved_dtypes(_fits_exactly), loaded.pooling
    described = {
        "tensors": [
            [name, list(tensor.shape), str(dtypes[name]), _digest_of(tensor, dtypes[name])]
            for name, tensor in sorted(loaded.trained_parameters.items())
        ],
        "settings": fingerprinted_settings(loaded.saved_config, loaded.task_models),
        # What lower_case does is in the tokenizer.
        "pooling": None if pooling is None else [pooling.mode, pooling.normalize, pooling.max_length],
        "tokenizer": tokenizer_digest(loaded.tokenizer),
    }
    return sha256(_as_json(described)).hexdigest()[:16]


def fingerprinted_settings(config: BertConfig, heads: Collection[str]) -> dict[str, Any]:
    """The settings of a configuration that an encoder with these heads computes with, as JSON has them.

    Those with their default value are left out, so that one that a later version adds changes no fingerprint.
    """
    values = {
        field.name: (getattr(config, field.name), field.default) for field in dataclasses.fields(config)
        if field.name not in {*IGNORED_SETTINGS, "extra"}
    }  # fmt: skip
    settings: dict[str, Any] = {name: value for name, (value, default) in values.items() if value != default}
    settings["pruned_heads"], settings["pruned_neurons"] = dict(config.pruned_heads), dict(config.pruned_neurons)
    # These two have several spellings.
    settings["embedding_size"], settings["num_hidden_groups"] = config.embedding_width, config.layers_per_group
    if callable(config.hidden_act):
        name = getattr(config.hidden_act, "__qualname__", type(config.hidden_act).__qualname__)
        settings["hidden_act"] = f"{config.hidden_act.__module__}.{name}"
    settings["family"], settings["heads"] = config.family.name, sorted(heads)
    if any(head in heads for head in CLASSIFIERS):
        settings["classes"] = [list(config.labels), config.problem_type, config.activation]
    return settings


def tensor_digest(tensor: Tensor, dtype: torch.dtype) -> str:
    """A digest of the bytes of a tensor in a number type."""
    digest = sha256()
    for part in split_chunks(tensor.to("cpu")):
        digest.update(part.to(dtype).view(torch.uint8).numpy().data)  # as bytes: NumPy has no bfloat16
    return digest.hexdigest()


def _digest_of(tensor: Tensor, dtype: torch.dtype) -> str:
    """The same, kept until the tensor is changed in place."""
    version = _version_of(tensor)
    kept = _digests.get(tensor)
    if kept is None or version is None or kept[:2] != (version, dtype):
        kept = _digests[tensor] = (version, dtype, tensor_digest(tensor, dtype))
    return kept[2]


def _fits_exactly(tensor: Tensor, dtype: torch.dtype) -> bool:
    """`fits_exactly`, kept until the tensor is changed in place."""
    if tensor.dtype == dtype:
        return True
    version = _version_of(tensor)
    kept = _fits.get(tensor)
    if kept is None or version is None or kept[:2] != (version, dtype):
        kept = _fits[tensor] = (version, dtype, fits_exactly(tensor, dtype))
    return kept[2]


def _version_of(tensor: Tensor) -> int | None:
    """How often a tensor was changed in place; None where torch does not count."""
    return None if tensor.is_inference() else tensor._version


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """A digest of the rules of a tokenizer: vocabulary, normalisation, added and special tokens."""
    if tokenizer not in _tokenizers:
        _tokenizers[tokenizer] = sha256(_as_json(tokenizer.rules())).hexdigest()
    return _tokenizers[tokenizer]


def _as_json(described: object) -> bytes:
    return json.dumps(described, sort_keys=True).encode()
