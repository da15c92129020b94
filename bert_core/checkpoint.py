"""Bytes on disk <-> configuration and weights: checkpoint folders, in today's and yesterday's spelling."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bert_core.config import BertConfig, json_object
from bert_core.naming import rename
from bert_core.refused import Refused

WEIGHTS_FILE = "model.safetensors"
OLD_WEIGHTS_FILE = "pytorch_model.bin"
CONFIG_FILE = "config.json"
CAPTIONER_FILE = "captioner.json"  # not config.json: a folder with that file is a BERT for texts
# Parameters that a file may leave out because another name holds the same numbers.
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "cls.predictions.bias": "cls.predictions.decoder.bias",
}
# Captioners whose text decoder is a BERT (Li 2022, arXiv:2201.12086), and the sizes that their files may leave out.
BLIP_TYPES = ("blip", "blip_text_model")
BLIP_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 30524, "num_attention_heads": 8, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "label_smoothing": 0.0,
}  # fmt: skip
# Patterns of keys that published files have too many: a table of numbers from 0 on, which we count ourselves.
NO_NEWS = (r"position_ids$",)
# What a model can do without: the app then does not show what it would have computed.
OPTIONAL_PARTS = ("cls.predictions.", "cls.seq_relationship.", "bert.pooler.", "classifier.")
# Classifiers of tokens, or of answers to choose from, have weights of the same name.
TEXT_CLASSIFIER = "BertForSequenceClassification"


class CheckpointError(Refused):
    """A file or folder is not a checkpoint that this code can use; the message says why."""


@dataclass(frozen=True)
class LoadReport:
    """Every key accounted for.

    missing: parameters of the model that the file did not have (left as initialised).
    unexpected: entries of the file that the model has no place for.
    """

    source: str
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    def joined(self, other: LoadReport) -> LoadReport:
        """The report of two models that were filled from one file: what either misses, and what neither has taken."""
        missing = dict.fromkeys((*self.missing, *other.missing))
        unexpected = tuple(name for name in self.unexpected if name in other.unexpected)
        return LoadReport(self.source, tuple(missing), unexpected)

    def lacks(self, part: str) -> bool:
        """Whether any parameter whose name starts with `part` was missing."""
        return any(key.startswith(part) for key in self.missing)

    @property
    def has_mlm(self) -> bool:
        """Whether the file held a trained masked-word head."""
        return not self.lacks("cls.predictions.")

    @property
    def has_nsp(self) -> bool:
        """Whether the file held a trained next-sentence head and the pooler under it."""
        return not (self.lacks("cls.seq_relationship.") or self.lacks("bert.pooler."))


def read_config(folder: str | Path) -> BertConfig:
    """The configuration of a checkpoint folder.

    Raises CheckpointError if there is no folder, no `config.json`, or it is not a BERT's.
    """
    folder = Path(folder)
    expected = f"a checkpoint is a folder with {CONFIG_FILE} and {WEIGHTS_FILE}"
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder: {expected}")
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {CONFIG_FILE}: {expected}")
    try:
        values = json_object(path)
        config = BertConfig.from_dict(_blip_decoder(values) if values.get("model_type") in BLIP_TYPES else values)
    except (ValueError, TypeError, RecursionError, OSError) as error:
        raise CheckpointError(f"{path} is not a configuration of BERT: {error}") from error
    model_type = config.extra.get("model_type", "bert")
    if model_type != "bert":
        raise CheckpointError(
            f"{folder} holds a model of type {str(model_type)[:40]!r}: only 'bert' and 'blip' can be loaded"
        )
    return config


def _blip_decoder(values: Mapping[str, Any]) -> dict[str, Any]:
    """The text decoder inside a captioner's configuration, by our names; what is not said there has BLIP's defaults."""
    text = dict(values.get("text_config") or values)
    width = (values.get("vision_config") or {}).get("hidden_size") or text.pop("encoder_hidden_size", 768)
    for name in ("model_type", "encoder_hidden_size", "architectures"):
        text.pop(name, None)
    is_decoder = text.pop("is_decoder", True)
    return {
        **BLIP_DEFAULTS, **text, "type_vocab_size": 0, "encoder_width": width,
        "is_decoder": is_decoder, "add_cross_attention": is_decoder,
    }  # fmt: skip


def read_weights(folder: str | Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint folder, by today's names; safetensors first.

    A `.bin` file is read with weights_only=True, so that no code in it can run.
    Raises CheckpointError if there is no weights file or it cannot be read.
    """
    folder = Path(folder)
    path = next((p for p in (folder / WEIGHTS_FILE, folder / OLD_WEIGHTS_FILE) if p.is_file()), None)
    if path is None:
        raise CheckpointError(f"{folder} has no weights: neither {WEIGHTS_FILE} nor {OLD_WEIGHTS_FILE}")
    try:
        raw = load_file(path) if path.name == WEIGHTS_FILE else torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # torch.load raises many kinds on a damaged or hostile file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"{path} is broken, or contains more than tensors (code in a file is never run): {reason}"
        ) from error
    if not isinstance(raw, Mapping) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in raw.items()):
        raise CheckpointError(f"{path} does not contain named tensors")
    return rename(raw)


def holds_classifier(config: BertConfig, weights: Mapping[str, Tensor]) -> bool:
    """Whether a file has a classifier of whole texts; its configuration may name the model that it was saved from."""
    architectures = config.extra.get("architectures") or [TEXT_CLASSIFIER]
    return "classifier.weight" in weights and TEXT_CLASSIFIER in architectures


def fill(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    source: str,
    *,
    may_lack: Sequence[str] = (),
    may_have: Sequence[str] = NO_NEWS,
) -> LoadReport:
    """Copy weights into a model, name by name, and account for every name on both sides.

    weights: by today's names (see `rename`). A bare BertModel takes those below `bert.`.
    may_lack, may_have: patterns of names that are no news when missing, or left over.
    Raises CheckpointError if a shape differs, a part that no BERT can do without is missing, or two names of one
    tied weight hold different numbers.
    """
    prefix = "" if hasattr(model, "bert") else "bert."
    # A tied weight is one tensor under several names: a file may give it under each of them, or under one.
    own = {prefix + name: tensor for name, tensor in model.state_dict(keep_vars=True).items()}
    found = {name: name for name in own}
    for name, other in TIED.items():
        if name in own and name not in weights and own[name] is own.get(other):
            found[name] = other
    missing = tuple(n for n, where in found.items() if where not in weights and not _matches(n, may_lack))
    unexpected = tuple(n for n in weights if n not in own and not _matches(n, may_have))
    essential = [name for name in missing if not name.startswith(OPTIONAL_PARTS)]
    if essential:
        raise CheckpointError(
            f"{source} is not a complete BERT: {len(essential)} of {len(own)} weights are missing, first {essential[0]}"
        )
    for name, where in found.items():
        if where in weights and weights[where].shape != own[name].shape:
            raise CheckpointError(
                f"{where} in {source} has shape {tuple(weights[where].shape)}, but the configuration says "
                f"{tuple(own[name].shape)}" + _of_pruned_heads(model, where)
            )
    for name, other in TIED.items():
        given_twice = own.get(name) is own.get(other) and name in weights and other in weights
        if given_twice and not torch.equal(weights[name], weights[other]):
            raise CheckpointError(f"{name} and {other} differ in {source}: the configuration ties them")
    with torch.no_grad():
        for name, where in found.items():
            if where in weights:
                own[name].copy_(weights[where])
    return LoadReport(source, missing, unexpected)


def _of_pruned_heads(model: nn.Module, name: str) -> str:
    """What the configuration says of the heads that a weight has lost; nothing for one that has no part in a head."""
    match = re.search(r"encoder\.layer\.(\d+)\.attention\.(self|output\.dense)\.", name)
    if match is None:
        return ""
    heads = getattr(model, "pruned_heads", {}).get(int(match[1]), ())
    gone = f"without heads {', '.join(map(str, heads))}" if heads else "with all its heads"
    return f", a layer {match[1]} {gone} (pruned_heads)"


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def write(model: nn.Module, config: BertConfig, folder: str | Path) -> None:
    """Write a model's configuration and weights to a folder, each file whole or not at all."""
    prefix = "" if hasattr(model, "bert") else "bert."
    write_tensors({prefix + name: t for name, t in model.state_dict(keep_vars=True).items()}, config, folder)


def write_tensors(
    tensors: Mapping[str, Tensor], config: BertConfig, folder: str | Path, dtype: torch.dtype | None = None
) -> None:
    """Write named weights and their configuration to a folder; one that stands under two names is written once.

    dtype: the number type of the file, if it is not that of the tensors.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    kept = named_once(tensors, dtype)
    write_whole(folder / CONFIG_FILE, config.to_json)  # first: a configuration that no file can hold stops here
    write_whole(folder / WEIGHTS_FILE, lambda path: save_file(kept, path, metadata={"format": "pt"}))


def named_once(tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Weights as a file takes them: on the CPU, and one that stands under two names under the first of them alone.

    dtype: the number type of the file, if it is not that of the tensors.
    """
    kept: dict[str, Tensor] = {}
    seen: set[tuple[int, torch.Size]] = set()
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tensor.shape)
        if place not in seen or not tensor.numel():  # all empty tensors stand at one address
            seen.add(place)
            kept[name] = tensor.detach().to("cpu", dtype).contiguous()
    return kept


def write_whole(path: Path, writer: Callable[[str], object]) -> None:
    """Write to a neighbour first and then rename, so that no reader ever sees half a file."""
    temporary = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        temporary.touch()
        rights = temporary.stat().st_mode  # what umask leaves; some writers leave less
        writer(str(temporary))
        temporary.chmod(rights)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.strerror:
            error.filename = str(path)  # the name that the reader knows
        raise
