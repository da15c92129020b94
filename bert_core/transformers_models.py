"""Models of transformers and sentence-transformers in memory, as a `LoadedModel` that shares their weights."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bert_core.checkpoint import (
    BLIP_TYPES,
    HALF_PRECISION,
    WEIGHT_DTYPES,
    CheckpointError,
    match_weights,
    unsupported_type,
)
from bert_core.config import BertConfig
from bert_core.loading import LoadedModel, build_model, read_tokenizer
from bert_core.naming import FAMILIES, to_current_names
from bert_core.pooling import (
    Pooling,
    bounded_length,
    check_no_prompt,
    module_kind,
    stated_mode,
    unsupported_modules,
)
from bert_core.refused import Refused, short_repr, validate_arguments

# Parts of the names of weights that are adapters, or the weights below adapters (PEFT).
ADAPTER_PARTS = (".lora_", ".base_layer.", ".modules_to_save.", "prompt_encoder.", ".ia3_", ".adapter_")

# Types of weights; others, such as tensors of quantised models, have operations of their own.
PLAIN_TENSORS: tuple[type, ...] = (Tensor, nn.Parameter)


@validate_arguments
def from_transformers(model: Any, tokenizer: Any = None, *, name: str | None = None) -> LoadedModel:
    """Return a model that shares the weights of a model of transformers in memory.

    Its results are those of `load` for the saved model, without dropout. The weights are not copied: results follow
    changes in place, such as a step of training. After parameters are replaced, as by `to`, `double` or
    `resize_token_embeddings`, call this function again. The parameters of the result are objects of its own, without
    gradients, and the given model, its mode and its hooks stay as they are. The dtype (float32 or float64) and the
    device are those of the weights. Heads that the given model lacks have new parameters, as in a file without them.

    model: a PreTrainedModel of a supported family with any of its heads, or an AutoModel. It may be wrapped by
        DataParallel or torch.compile. A SentenceTransformer of an encoder and a pooling is accepted too.
    tokenizer: its tokenizer from transformers, which is read once; None: that of a SentenceTransformer.
    name: the name in messages and records; None: the name of the class.
    Raises Refused for another object, and for a model that is not an encoder of a supported family. It also raises it
    for weights that are quantised, in half precision, of several dtypes or devices, offloaded, reparametrised or below
    adapters, and for forward hooks. Raises CheckpointError for weights, settings or a tokenizer that do not belong
    together.

    >>> import bert_core
    >>> from transformers import AutoTokenizer, BertForMaskedLM
    >>> folder = bert_core.save(bert_core.load("headlight-mini"), "mini")
    >>> model = BertForMaskedLM.from_pretrained(folder, dtype="float32")
    >>> loaded = bert_core.from_transformers(model, AutoTokenizer.from_pretrained(folder))
    >>> run = bert_core.capture(loaded, loaded.tokenizer.encode("She opened the [MASK] and walked in."))
    >>> loaded.tokenizer.token_of(run.predictions[0].top[0][0])
    'door'
    """
    if isinstance(model, str | os.PathLike):
        raise Refused(f"the model is {short_repr(model)}: load a name or a folder with bert_core.load")
    if isinstance(model, LoadedModel):
        raise Refused(f"the model {model.name} is a LoadedModel already: use it as it is")
    pooling = None
    if _library_class(model, "sentence_transformers") is not None:
        model, tokenizer, pooling = _encoder_of_sentences(model, tokenizer)
    model = _unwrap(model)
    if not (isinstance(model, nn.Module) and callable(getattr(getattr(model, "config", None), "to_json_string", None))):
        raise Refused(f"the model is {short_repr(model)}: it must be a PyTorch model of transformers")
    name = type(model).__name__ if name is None else name
    if not isinstance(name, str) or not name.strip():
        raise Refused(f"name is {short_repr(name)}: it must be a text")
    if not callable(getattr(tokenizer, "save_pretrained", None)):
        raise Refused(f"the tokenizer is {short_repr(tokenizer)}: it must be a tokenizer of transformers")
    _check_hooks(model, name)
    weights = _weights(model, name)
    config, weights = match_weights(_read_config(model, name), to_current_names(weights), name)
    with tempfile.TemporaryDirectory() as folder:
        try:
            tokenizer.save_pretrained(folder)
            own_tokenizer = read_tokenizer(Path(folder), config)
        except CheckpointError as error:
            reason = str(error).replace(folder, f"the {type(tokenizer).__name__}")
            raise CheckpointError(f"the tokenizer cannot be used with {name}: {reason}") from error
    first = next(iter(weights.values()))
    with torch.random.fork_rng(devices=[]):  # new parameters leave the random numbers of a training as they are
        return build_model(
            name, config, weights, own_tokenizer, first.device, pooling=pooling, source=name, dtype=first.dtype,
            share=True,
        )  # fmt: skip


def _library_class(model: object, package: str) -> str | None:
    """Return the name of the first class of a package among the classes of an object, or None."""
    return next((kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith(f"{package}.")), None)


def _unwrap(model: Any) -> Any:
    """Return the model inside the wrappers of torch.compile, DataParallel and DistributedDataParallel."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(model, nn.Module) and "_orig_mod" in model._modules:
            model = model._orig_mod
        else:
            return model


def _encoder_of_sentences(model: Any, tokenizer: Any) -> tuple[Any, Any, Pooling | None]:
    """Return the model of transformers, the tokenizer and the pooling of a SentenceTransformer.

    Raises Refused for other models of sentence-transformers, modules that are not supported, and a prompt.
    """
    kind = _library_class(model, "sentence_transformers")
    if kind != "SentenceTransformer":
        raise Refused(f"the model is a {kind}: give the model of transformers in it, and its tokenizer")
    modules = list(model)
    kinds = [module_kind(f"{type(module).__module__}.{type(module).__name__}") for module in modules]
    if (message := unsupported_modules(kinds)) is not None:
        raise Refused(f"the SentenceTransformer has {message}")
    encoder = modules[0]
    tokenizer = encoder.tokenizer if tokenizer is None else tokenizer
    if len(modules) == 1:
        return encoder.auto_model, tokenizer, None
    check_no_prompt(getattr(model, "prompts", None), getattr(model, "default_prompt_name", None), "the model")
    return (
        encoder.auto_model,
        tokenizer,
        Pooling(
            stated_mode(modules[1].get_config_dict(), "the pooling"),
            "Normalize" in kinds,
            bounded_length(model.max_seq_length),
            bool(getattr(encoder, "do_lower_case", False)),
        ),
    )


def _check_hooks(model: nn.Module, name: str) -> None:
    """Raise Refused if a module has forward hooks, or another forward method than its class.

    Only the encoder's weights are used here, so such changes of its results would be missing. The hooks with which
    transformers records hidden states do not change results, and are accepted. So is the forward method of a whole
    model that accelerate replaces for mixed precision.
    """
    for path, module in model.named_modules():
        hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        place = f"{name}.{path}".rstrip(".")
        if any(not (getattr(hook, "__module__", None) or "").startswith("transformers.") for hook in hooks):
            raise Refused(f"{place} has a forward hook, which could change the results: remove it first")
        if "forward" in vars(module) and "_original_forward" not in vars(module):
            raise Refused(f"the forward method of {place} is replaced: only the methods of its class are supported")


def _weights(model: nn.Module, name: str) -> dict[str, Tensor]:
    """Return the weights of a model by their names there.

    Raises Refused for weights that are not dense floats in memory, of one dtype and on one device.
    """
    state = model.state_dict(keep_vars=True)
    if getattr(model, "_hf_peft_config_loaded", False) or hasattr(model, "peft_config") or any(
        part in f".{key}" for key in state for part in ADAPTER_PARTS
    ):  # fmt: skip
        raise Refused(f"{name} has adapters: merge them into its weights, for example with merge_and_unload()")
    if getattr(model, "hf_quantizer", None) is not None or getattr(model.config, "quantization_config", None):
        raise Refused(f"the weights of {name} are quantised: they must be float32 or float64")
    if any(".parametrizations." in f".{key}" or key.endswith(("_orig", ".weight_g")) for key in state):
        raise Refused(f"{name} has weights that are computed from others: remove the parametrization or pruning first")
    parameters = {key: tensor for key, tensor in state.items() if not _is_index(tensor)}
    if not parameters:
        raise Refused(f"{name} has no weights: it must be an encoder of transformers")
    for key, tensor in parameters.items():
        if not isinstance(tensor, Tensor) or tensor.dtype not in WEIGHT_DTYPES:
            kind = _dtype_name(tensor) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise Refused(f"{key} of {name} is {kind}, as in quantised models: weights must be float32 or float64")
        if tensor.is_meta:
            raise Refused(f"{key} of {name} is on the meta device: all weights must be in memory")
    for property_name, values in (
        ("devices", {str(tensor.device) for tensor in parameters.values()}),
        ("dtypes", {_dtype_name(tensor) for tensor in parameters.values()}),
    ):
        if len(values) > 1:
            raise Refused(
                f"the weights of {name} have {len(values)} {property_name}, {', '.join(sorted(values))}: one is allowed"
            )
    for key, tensor in parameters.items():
        if type(tensor) not in PLAIN_TENSORS:
            raise Refused(f"{key} of {name} is a {type(tensor).__name__}: weights must be plain tensors")
        if tensor.dtype in HALF_PRECISION:
            raise Refused(
                f"the weights of {name} are {_dtype_name(tensor)}, which is too inexact for explanations: convert the "
                "model to float32 with from_transformers(model.float(), tokenizer)"
            )
    return parameters


def _dtype_name(tensor: Tensor) -> str:
    """Return the name of the dtype of a tensor, such as "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def _is_index(tensor: object) -> bool:
    """Return whether a tensor is a buffer of whole numbers, such as the position ids."""
    return isinstance(tensor, Tensor) and not isinstance(tensor, nn.Parameter) and tensor.dtype == torch.long


def _read_config(model: Any, name: str) -> BertConfig:
    """Return the configuration that `save_pretrained` would write for a model.

    Raises Refused for a model that is not an encoder of a supported family, and CheckpointError for wrong settings.
    """
    values: Mapping[str, Any] = json.loads(model.config.to_json_string())
    model_type = str(values.get("model_type"))
    if values.get("is_encoder_decoder") or model_type == "encoder-decoder":
        raise Refused(f"{name} is an encoder-decoder: only encoders are supported")
    if values.get("is_decoder") or values.get("add_cross_attention") or model_type in BLIP_TYPES:
        raise Refused(f"{name} is a decoder: only encoders are supported, and bert_core.load_decoder loads its folder")
    if model_type not in FAMILIES:
        raise Refused(f"{name} is {unsupported_type(model_type)} are supported")
    try:
        return BertConfig.from_dict({**values, "architectures": [type(model).__name__]})
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"the configuration of {name} is not that of a supported model: {error}") from error
