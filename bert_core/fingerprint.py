"""The fingerprint of a model, which identifies its weights, settings and tokenizer and the files made for it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Collection, MutableMapping
from hashlib import sha256
from types import CellType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from bert_core.checkpoint import fits_exactly, split_chunks
from bert_core.config import BertConfig
from bert_core.loading import LoadedModel
from bert_core.tokenizer import Tokenizer

# Settings of training, of decoders and of the use of memory, which do not change the results of an encoder.
IGNORED_SETTINGS = frozenset({
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "initializer_range", "label_smoothing",
    "use_cache", "chunk_size_feed_forward", "is_decoder", "add_cross_attention", "encoder_width",
})  # fmt: skip
CLASSIFIERS = ("classifier", "tagger")  # task heads whose outputs have names
POOLED_HEADS = frozenset(("classifier", "chooser"))  # task heads that read the first token or the mean of all tokens

# Caches: tensor -> its version, a dtype and the result for that dtype. The keys are tensors and not models, because
# edited models share their tensors.
_digests: MutableMapping[Tensor, tuple[int | None, torch.dtype, str]] = WeakIdKeyDictionary()
_fits: MutableMapping[Tensor, tuple[int | None, torch.dtype, bool]] = WeakIdKeyDictionary()
_tokenizers: WeakKeyDictionary[Tokenizer, str] = WeakKeyDictionary()


def fingerprint(loaded: LoadedModel) -> str:
    """Return 16 hexadecimal digits that are equal for two models if they are the same model.

    The fingerprint covers

    - every parameter: its name, shape, values, and the dtype in which `save` writes it. Parameters that were missing in
      the checkpoint (`LoadReport.missing`) and unused tensors of the file are left out, as `save` leaves them out.
    - the settings that affect the results of an encoder, the pruned parts and the family of the architecture. Of a
      sentence encoder also the pooling, and of a classifier the names and the problem type of its classes.
    - the tokenizer: vocabulary, normalisation, added tokens and special tokens.

    It does not depend on the device, the names and layout of files, or settings of training. It is the same for a model
    from a folder, from a .zip file, and from a checkpoint written by `save`. The fingerprint of a model that was pruned
    or trained in memory is that of the checkpoint that `save` would write. Edits do not change it.

    The first call reads all tensors, one at a time. Later calls read only tensors that were modified in place, for
    example by an optimizer or `load_state_dict`. Changes that torch does not count are not detected, such as those
    through `Tensor.data` or by a fused optimizer. For a model with `shares_weights`, each call reads all tensors.
    """
    fits, digest = (fits_exactly, tensor_digest) if loaded.shares_weights else (_cached_fits_exactly, _cached_digest)
    dtypes, pooling = loaded.saved_dtypes(fits), loaded.pooling
    description = {
        "tensors": [
            [name, list(tensor.shape), str(dtypes[name]), digest(tensor, dtypes[name])]
            for name, tensor in sorted(loaded.trained_parameters.items())
        ],
        "settings": fingerprinted_settings(loaded.saved_config, loaded.task_models),
        # Lower-casing is part of the tokenizer's rules.
        "pooling": None if pooling is None else [pooling.mode, pooling.normalize, pooling.max_length],
        "tokenizer": tokenizer_digest(loaded.tokenizer),
    }
    return sha256(_to_json(description)).hexdigest()[:16]


def fingerprinted_settings(config: BertConfig, heads: Collection[str]) -> dict[str, Any]:
    """Return the settings that affect the results of an encoder, as values that JSON can hold.

    Settings with their default value are left out, so that a setting added later does not change a fingerprint.
    config: the configuration. heads: names of the task heads of the model.
    """
    values = {
        field.name: (getattr(config, field.name), field.default) for field in dataclasses.fields(config)
        if field.name not in {*IGNORED_SETTINGS, "extra"}
    }  # fmt: skip
    settings: dict[str, Any] = {name: value for name, (value, default) in values.items() if value != default}
    settings["pruned_heads"], settings["pruned_neurons"] = dict(config.pruned_heads), dict(config.pruned_neurons)
    # A configuration can leave out these two, or state the same value explicitly.
    settings["embedding_size"], settings["num_hidden_groups"] = config.embedding_width, config.layers_per_group
    if callable(config.hidden_act):
        name = getattr(config.hidden_act, "__qualname__", type(config.hidden_act).__qualname__)
        settings["hidden_act"] = f"{config.hidden_act.__module__}.{name}"
    distances = config.position_scheme.distances
    if distances is not None and distances.settings:
        settings["distances"] = dict(distances.settings)
    if (rotation := config.position_scheme.rotation) is not None:
        settings["rotation"] = [[rotation.base(n), rotation.window(n)] for n in range(config.num_hidden_layers)]
    settings["family"], settings["heads"] = config.family.name, sorted(heads)
    if any(head in heads for head in CLASSIFIERS):
        settings["classes"] = [list(config.labels), config.problem_type, config.activation]
    if config.classifier_pooling != "cls" and not POOLED_HEADS.isdisjoint(heads):
        settings["classifier_pooling"] = config.classifier_pooling
    return settings


def function_digest(function: Callable[..., Any]) -> str:
    """Return 16 hexadecimal digits that change with a function: its source, defaults and the values that it encloses.

    Without source, as in an interactive session, its bytecode and constants take its place. Enclosed tensors and arrays
    count with all their values, and other objects with their `repr`. Global variables and the functions that it calls
    are not covered.
    """
    return sha256(_to_json(_describe_function(function))).hexdigest()[:16]


def _describe_function(function: Callable[..., Any]) -> Any:
    """Return what `function_digest` covers, as values that JSON can hold."""
    if isinstance(function, functools.partial):
        parts = (*function.args, *sorted(function.keywords.items()))
        return ["partial", _describe_function(function.func), *map(_describe_value, parts)]
    if not hasattr(function, "__code__"):  # an object with __call__, or a function of another language
        return [type(function).__qualname__, _describe_value(getattr(function, "__dict__", {})), repr(function)]
    try:
        text: Any = inspect.getsource(function)
    except (OSError, TypeError):
        text = [function.__code__.co_code.hex(), [repr(constant) for constant in function.__code__.co_consts]]
    defaults = [getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)]
    cells = [_cell_contents(cell) for cell in getattr(function, "__closure__", None) or ()]
    return [
        text,
        _describe_value(defaults),
        _describe_value(cells),
        _describe_value(getattr(function, "__self__", None)),
    ]


def _describe_value(value: object) -> Any:
    """Return a value that a function encloses as values that JSON can hold."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return [str(value.dtype), list(value.shape), sha256(np.ascontiguousarray(value).data).hexdigest()]
    if isinstance(value, Tensor):
        return [str(value.dtype), list(value.shape), tensor_digest(value.detach(), value.dtype)]
    if isinstance(value, torch.nn.Module):
        return {name: _describe_value(tensor) for name, tensor in value.state_dict().items()}
    if isinstance(value, list | tuple):
        return [_describe_value(item) for item in value]
    if isinstance(value, dict):
        return [[repr(key), _describe_value(item)] for key, item in value.items()]
    return _describe_function(value) if isinstance(value, FunctionType | functools.partial) else repr(value)


def _cell_contents(cell: CellType) -> object:
    """Return the content of a cell of a closure, None for a variable without a value."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def tensor_digest(tensor: Tensor, dtype: torch.dtype) -> str:
    """Return the SHA-256 digest of the bytes of a tensor that is converted to a dtype."""
    digest = sha256()
    for chunk in split_chunks(tensor.to("cpu")):
        digest.update(chunk.to(dtype).view(torch.uint8).numpy().data)  # as bytes, since NumPy has no bfloat16
    return digest.hexdigest()


def _cached_digest(tensor: Tensor, dtype: torch.dtype) -> str:
    """Return `tensor_digest`, cached until the tensor is modified in place."""
    version = _tensor_version(tensor)
    entry = _digests.get(tensor)
    if entry is None or version is None or entry[:2] != (version, dtype):
        entry = _digests[tensor] = (version, dtype, tensor_digest(tensor, dtype))
    return entry[2]


def _cached_fits_exactly(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Return `fits_exactly`, cached until the tensor is modified in place."""
    if tensor.dtype == dtype:
        return True
    version = _tensor_version(tensor)
    entry = _fits.get(tensor)
    if entry is None or version is None or entry[:2] != (version, dtype):
        entry = _fits[tensor] = (version, dtype, fits_exactly(tensor, dtype))
    return entry[2]


def _tensor_version(tensor: Tensor) -> int | None:
    """Return how often a tensor was modified in place; None for tensors whose changes torch does not count."""
    return None if tensor.is_inference() else tensor._version


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Return the SHA-256 digest of a tokenizer's rules: vocabulary, normalisation, added and special tokens."""
    if tokenizer not in _tokenizers:
        _tokenizers[tokenizer] = sha256(_to_json(tokenizer.rules())).hexdigest()
    return _tokenizers[tokenizer]


def _to_json(value: object) -> bytes:
    """Return a value as JSON with sorted keys."""
    return json.dumps(value, sort_keys=True).encode()
