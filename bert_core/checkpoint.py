"""Reading and writing of checkpoint folders: configurations and weights, under current and earlier names."""

from __future__ import annotations

import os
import pickle
import pickletools
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bert_core.config import BertConfig, read_json_object
from bert_core.deprecation import RenamedAttribute
from bert_core.naming import FAMILIES, UNSUPPORTED_TYPES, renumber_layers, to_current_names
from bert_core.refused import Refused, short_repr

WEIGHTS_FILE = "model.safetensors"
OLD_WEIGHTS_FILE = "pytorch_model.bin"
SHARD_PATTERNS = ("model-*-of-*.safetensors", "pytorch_model-*-of-*.bin")  # weights split over several files
CONFIG_FILE = "config.json"
# The names of the temporary files that safetensors writes.
SAFETENSORS_TEMPORARY_PATTERN = ".tmp" + 6 * "[0-9A-Za-z]"
CAPTIONER_FILE = "captioner.json"  # not config.json, which marks a folder as a BERT for texts
# Model types of captioners whose text decoder is a BERT (Li 2022, arXiv:2201.12086), and the default values of their
# configurations.
BLIP_TYPES = ("blip", "blip_text_model")
BLIP_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 30524, "num_attention_heads": 8, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "label_smoothing": 0.0,
}  # fmt: skip
# Patterns of keys in published files that hold no weights: the position ids 0, 1, 2, ..., which the model computes.
IGNORED_KEYS = (r"position_ids$",)
MAX_LISTED_KINDS, MAX_NAME_CHARACTERS = 3, 80  # limits of the names of unused tensors in a note
WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
PREDICTION_BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
DECODER_WEIGHT = "cls.predictions.decoder.weight"
EMBEDDING_PROJECTION = "bert.embeddings.embeddings_project.weight"
POSITION_EMBEDDINGS = "bert.embeddings.position_embeddings.weight"
MAX_LAYERS = 1000  # twenty times the deepest published BERT
MISSING_NUMBERS_ALLOWED = 2**24  # initialised for any file; more only if the file holds as many
CHUNK_NUMBERS = 2**14  # few enough that torch converts them on one core, and that copies fit into its cache
HALF_PRECISION = (torch.float16, torch.bfloat16)
WEIGHT_DTYPES = (torch.float32, *HALF_PRECISION, torch.float64)
# The globals that the pickle of a checkpoint may name: those of dense tensors, and those of tensors that are refused
# later with a clearer message.
ALLOWED_PICKLE_NAMES = re.compile(
    r"collections OrderedDict|torch\.nn\.parameter Parameter|torch(\.storage)? \w+Storage|torch Size|torch device|"
    r"torch\._utils _rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state|qtensor|sparse_tensor|"
    r"meta_tensor_no_storage)|"
    r"torch\._tensor _rebuild_from_type_v2|torch\.serialization _get_layout|torch [a-z]\w*"
)
MAX_PICKLE_BYTES = 16_000_000  # bytes of names and shapes
MAX_TUPLE_PARTS = 1000  # nested parts included; the tuple of a tensor has about twenty


class CheckpointError(Refused):
    """A file or folder is not a usable checkpoint; the message gives the reason."""


@dataclass(frozen=True)
class LoadReport:
    """The keys of a checkpoint and of the model that do not match.

    source: the folder or file. missing: parameters of the model that the file lacks, which stay as initialised.
    unexpected: tensors of the file that are not parameters of the model.
    dtypes: the dtypes of the parameters that the file has in half precision, by name; all others are float32.
    """

    source: str
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict, repr=False, compare=False)

    def merge(self, second: LoadReport) -> LoadReport:
        """Return the report of two models from one file: keys missing in either, and keys unexpected in both."""
        missing = dict.fromkeys((*self.missing, *second.missing))
        unexpected = tuple(name for name in self.unexpected if name in second.unexpected)
        return LoadReport(self.source, tuple(missing), unexpected, {**self.dtypes, **second.dtypes})

    @property
    def unused_note(self) -> str | None:
        """One sentence on the tensors of the file that are not used; None if all are used."""
        if not self.unexpected:
            return None
        kinds = Counter(re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in self.unexpected)
        kind_texts = [f"{kind} ({count:,})" if count > 1 else kind for kind, count in kinds.items()]
        remainder = [f"{len(kind_texts) - MAX_LISTED_KINDS:,} more names"] * (len(kind_texts) > MAX_LISTED_KINDS)
        count = len(self.unexpected)
        return (
            f"{count:,} {'tensor' if count == 1 else 'tensors'} of its file {'is' if count == 1 else 'are'} not used: "
            f"{', '.join([text[:MAX_NAME_CHARACTERS] for text in kind_texts[:MAX_LISTED_KINDS]] + remainder)}"
        )

    def lacks(self, part: str) -> bool:
        """Return whether any parameter whose name starts with `part` was missing."""
        return any(key.startswith(part) for key in self.missing)

    joined = RenamedAttribute("merge")
    unused = RenamedAttribute("unused_note")


def read(folder: str | Path) -> tuple[BertConfig, dict[str, Tensor]]:
    """Read the configuration and the weights of a checkpoint folder.

    Returns the configuration, and the weights by current names. `load_weights` copies them into a model.
    Raises CheckpointError as read_config and read_weights do, and if the weights have another vocabulary or width, or
    fewer layers, than the configuration. These sizes are checked before a model is built, and all others in
    `load_weights`.
    """
    return match_weights(read_config(folder), read_weights(folder), str(folder))


def match_weights(
    config: BertConfig, weights: Mapping[str, Tensor], source: str
) -> tuple[BertConfig, dict[str, Tensor]]:  # fmt: skip
    """Return a configuration and its weights as `load_weights` needs them.

    weights: by current names. Those in the result are the same tensors, or parts of them that share their memory.
    source: the folder or model, for messages.
    Raises CheckpointError as `read` does for sizes.
    """
    weights = dict(weights)
    if POSITION_EMBEDDINGS in weights and weights[POSITION_EMBEDDINGS].dim():
        weights[POSITION_EMBEDDINGS] = weights[POSITION_EMBEDDINGS][config.first_position - config.padding_rows :]
    if config.family.one_head_design:
        answers = config.family.question_answering in config.architectures
        if answers or classifier_input(config, weights) == "tokens":
            weights = config.family.with_token_head(weights, answers=answers)
    if WORD_EMBEDDINGS not in weights:
        raise CheckpointError(f"{source} is not a complete BERT: {WORD_EMBEDDINGS} is missing")
    shape, required = tuple(weights[WORD_EMBEDDINGS].shape), (config.vocab_size, config.embedding_width)
    if shape != required:
        raise CheckpointError(f"{WORD_EMBEDDINGS} in {source} has shape {shape}: the configuration requires {required}")
    if EMBEDDING_PROJECTION in weights and config.embedding_width == config.hidden_size:
        raise CheckpointError(
            f"{EMBEDDING_PROJECTION} is in {source}, and embedding_size and hidden_size are both "
            f"{config.hidden_size}: they must differ"
        )
    check_layers(config, weights, "bert.", source)
    if not config.tie_word_embeddings and DECODER_BIAS in weights:
        weights.pop(PREDICTION_BIAS, None)  # transformers reads it only if the two are tied
    return infer_num_labels(config, weights), renumber_layers(weights, lambda group: group * config.layers_per_group)


def check_layers(config: BertConfig, weights: Mapping[str, Tensor], prefix: str, source: str) -> None:
    """Raise CheckpointError if a configuration has more layers than its weights, or more than `MAX_LAYERS`.

    prefix: the beginning of the names of the encoder's weights. source: the folder, for the message.
    """
    numbers = (re.match(rf"{re.escape(prefix)}encoder\.layer\.(\d{{1,9}})\.", name) for name in weights)
    layers = max((int(number[1]) for number in numbers if number), default=-1) + 1
    if config.num_hidden_layers > min(layers * config.layers_per_group, MAX_LAYERS):
        raise CheckpointError(
            f"the configuration of {source} has {config.num_hidden_layers:,} layers and its weights {layers:,}: the "
            f"weights must contain all layers, at most {MAX_LAYERS:,}"
        )


def read_config(folder: str | Path) -> BertConfig:
    """Read the configuration of a checkpoint folder.

    Raises CheckpointError if there is no folder or no `config.json`, or if it is not the configuration of a BERT.
    """
    folder = Path(folder)
    expected = f"a checkpoint is a folder with {CONFIG_FILE} and {WEIGHTS_FILE}"
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder: {expected}")
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {CONFIG_FILE}: {expected}")
    try:
        values = read_json_object(path)
        config = BertConfig.from_dict(_blip_decoder(values) if values.get("model_type") in BLIP_TYPES else values)
    except (ValueError, TypeError, RecursionError, OSError) as error:
        raise CheckpointError(f"{path} is not a configuration of BERT: {error}") from error
    model_type = str(config.extra.get("model_type", "bert"))
    if model_type not in FAMILIES:
        raise CheckpointError(f"{folder} holds {unsupported_type(model_type)} and 'blip' can be loaded")
    return config


def unsupported_type(model_type: str) -> str:
    """Return a message about a `model_type` that is none of a supported family, without the end "can be loaded"."""
    model_type = model_type[:40]
    reason = UNSUPPORTED_TYPES.get(model_type)
    difference = "" if reason is None else f", {reason}"
    return f"a model of type {model_type!r}{difference}: only {', '.join(map(repr, FAMILIES))}"


def _blip_decoder(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the text decoder in that of a captioner, with the default values of BLIP."""
    for name in ("text_config", "vision_config"):
        if not isinstance(values.get(name) or {}, Mapping):
            raise Refused(f"{name} is {short_repr(values[name])}: it must be an object, with a size for each name")
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
    """Read all tensors of a checkpoint folder, by current names.

    The safetensors file is preferred. A `.bin` file is read with weights_only=True, so that no code in it can run.
    Raises CheckpointError if there is no file of weights, or it cannot be read.
    """
    folder = Path(folder)
    paths = (folder / WEIGHTS_FILE, folder / OLD_WEIGHTS_FILE)
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        if shards := sum(1 for name in SHARD_PATTERNS for _ in folder.glob(name)):
            raise CheckpointError(
                f"the weights in {folder} are split over {shards} files, and one file is required: load them with "
                "transformers' AutoModel, or the class that config.json names, and save them with "
                "save_pretrained(FOLDER, max_shard_size='100GB')"
            )
        raise CheckpointError(f"{folder} has no weights: neither {WEIGHTS_FILE} nor {OLD_WEIGHTS_FILE}")
    return to_current_names(read_tensors(path))


def check_not_empty(path: Path) -> None:
    """Raise CheckpointError if a file is empty, as an interrupted copy leaves it."""
    if path.is_file() and not path.stat().st_size:
        raise CheckpointError(f"{path} is empty: copy or download it again")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file, by the names in the file.

    Raises CheckpointError if the file cannot be read, or contains anything but tensors.
    """
    check_not_empty(path)
    try:
        raw = load_file(path) if path.suffix == ".safetensors" else _read_pickled(path)
    except CheckpointError:
        raise
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # torch.load raises many types of errors for a damaged or hostile file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"{path} is damaged, or contains more than tensors (code in a file is never run): {reason}"
        ) from error
    if not isinstance(raw, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in raw.items()
    ):
        raise CheckpointError(f"{path} does not contain named tensors")
    return dict(raw)


def _read_pickled(path: Path) -> object:
    """Read the content of a `.bin` file; tensors of a zip archive are mapped into memory and read when used."""
    is_archive = zipfile.is_zipfile(path)
    if is_archive:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            # torch does not compress, so the file is as large as its entries.
            size = sum(entry.file_size for entry in entries)
            if any(entry.compress_type for entry in entries) or size > path.stat().st_size:
                raise CheckpointError(f"{path} unpacks to {size:,} bytes: a file of weights must be uncompressed")
            for entry in entries:
                if entry.filename.endswith("/data.pkl"):
                    with archive.open(entry) as pickled:
                        _check_pickle(pickled, path)
    else:  # the format before torch 1.6: four pickles, a magic number, a version, the system and the tensors
        with path.open("rb") as pickled:
            for _ in range(4):
                _check_pickle(pickled, path)
    return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)


def _check_pickle(pickled: IO[bytes], path: Path) -> None:
    """Raise an error if a pickle names anything but tensors, or has objects that would need much memory or time.

    torch would create large objects from some pickles that it regards as safe.
    """
    begin = pickled.tell()
    stack: list[int] = []  # the number of nested parts of each object; 0 for a mark
    memo: dict[object, int] = {}
    for code, argument, position in pickletools.genops(pickled):
        if (position or 0) - begin > MAX_PICKLE_BYTES:
            raise CheckpointError(f"{path} has more than {MAX_PICKLE_BYTES:,} bytes of names and shapes")
        if code.name in ("GLOBAL", "INST", "STACK_GLOBAL") and not ALLOWED_PICKLE_NAMES.fullmatch(str(argument)):
            raise pickle.UnpicklingError(f"it names {short_repr(argument)}")
        if code.name.endswith("GET"):
            stack.append(memo[int(argument or 0)])
        elif code.name.endswith("PUT"):
            memo[int(argument or 0)] = stack[-1]
        elif code.name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        else:
            parts = 1 + _pop_parts(stack, code.stack_before)
            if "TUPLE" in code.name and parts > MAX_TUPLE_PARTS:  # its hash could overflow the stack or never end
                raise pickle.UnpicklingError(f"it has a tuple of more than {MAX_TUPLE_PARTS:,} parts")
            parts = parts if "TUPLE" in code.name else 1
            stack += [0 if item is pickletools.markobject else parts for item in code.stack_after]


def _pop_parts(stack: list[int], operands: Sequence[pickletools.StackObject]) -> int:
    """Remove the operands of a pickle operation from the stack, and return the number of their parts.

    If a mark is among the operands, everything above the last mark is removed.
    """
    first = len(stack) - len(operands)
    if pickletools.markobject in operands:
        mark = next(index for index in reversed(range(len(stack))) if not stack[index])
        first = mark - operands.index(pickletools.markobject)
    parts = sum(stack[first:])
    del stack[first:]
    return parts


# Patterns of architecture names -> input of the tensor `classifier.weight`. Published files use many names.
_ARCHITECTURES = {
    "choices": r"ForMultipleChoice",
    "tokens": r"(?i)ForToken|ForNER|ForPos|Tagg|ForSlot|ForWord|TokenClass|Crf$",
    "texts": r"(?i)ForSequence|MultiLabel|ForText|ForClassif|ForDocument|CrossEncoder|ForRegression|SequenceClass",
}


def classifier_input(config: BertConfig, weights: Mapping[str, Tensor]) -> str | None:
    """Return what `classifier.weight` classifies: "texts", "tokens" or "choices", or None if it cannot be determined.

    The architecture in the configuration decides if its name matches a known pattern. Otherwise the classifier is one
    of tokens if its labels have the prefixes B- and I-, or if the checkpoint has no pooler, and one of texts if not.
    """
    table = weights.get("classifier.weight")
    if table is None:
        return None
    for kind, pattern in _ARCHITECTURES.items():
        if any(re.search(pattern, name) for name in config.architectures):
            return kind
    if table.dim() != 2 or table.shape[1] != config.hidden_size:
        return None
    names = config.extra.get("id2label")
    tags = set(map(str, names.values())) if isinstance(names, Mapping) else set()
    if any(tag.startswith("B-") for tag in tags) and any(tag.startswith("I-") for tag in tags):
        return "tokens"
    return "texts" if "bert.pooler.dense.weight" in weights else "tokens"


def infer_num_labels(config: BertConfig, weights: Mapping[str, Tensor]) -> BertConfig:
    """Return the configuration with num_labels taken from a classifier's weights, if it states no classes itself."""
    table = weights.get("classifier.weight")
    if table is None or table.dim() != 2 or {"id2label", "num_labels"} & config.extra.keys():
        return config
    return config.replace(extra={**config.extra, "num_labels": len(table)})


def load_weights(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    source: str,
    *,
    ignored_missing: Sequence[str] = (),
    ignored_unexpected: Sequence[str] = IGNORED_KEYS,
    share: bool = False,
) -> LoadReport:
    """Copy weights into a model by name, and report the names that do not match.

    model: a model built under `on_meta_device`, or one with memory. The former is allocated when all shapes agree,
        and its parameters that the file lacks are initialised.
    weights: by current names (see `to_current_names`). A bare BertModel uses those that start with `bert.`.
    source: the folder or file, for messages.
    ignored_missing, ignored_unexpected: patterns of names that the report leaves out.
    share: instead of copying, give the model new parameters that share the memory, device and dtype of the weights.
    Returns the report.
    Raises CheckpointError if a shape differs, or a weight is not a dense tensor of finite floats. Raises it if a part
    is missing that every BERT has, or parts that are larger than the file. Raises it if two names of a tied weight have
    different values.
    """
    prefix = "" if hasattr(model, "bert") else "bert."
    # A tied weight is one tensor under several names. A file can contain it under one or several of them.
    parameters = {prefix + name: tensor for name, tensor in model.state_dict(keep_vars=True).items()}
    first_names: dict[int, str] = {}  # id of a parameter -> the first of its names that the file has
    for name, tensor in parameters.items():
        if name in weights:
            first_names.setdefault(id(tensor), name)
    keys = {  # name of a parameter -> key of its values in the file
        name: name if name in weights else first_names.get(id(tensor), name) for name, tensor in parameters.items()
    }
    missing = tuple(name for name, key in keys.items() if key not in weights and not _matches(name, ignored_missing))
    unexpected = tuple(name for name in weights if name not in parameters and not _matches(name, ignored_unexpected))
    # The pooler and the heads may be missing: their results are then not shown.
    essential = [name for name in missing if name.startswith("bert.") and not name.startswith("bert.pooler.")]
    if essential:
        raise CheckpointError(
            f"{source} is not a complete BERT: {len(essential)} of {len(parameters)} weights are missing, first "
            f"{essential[0]}"
        )
    used_weights = {key: weights[key] for key in keys.values() if key in weights}
    check_weights(used_weights, source)
    for name, key in keys.items():
        if key in weights and weights[key].shape != parameters[name].shape:
            raise CheckpointError(
                f"{key} in {source} has shape {tuple(weights[key].shape)}: the configuration requires "
                f"{tuple(parameters[name].shape)}" + _pruned_parts_text(model, key)
            )
    for name in parameters:
        first_name = first_names.get(id(parameters[name]), name)
        if name not in weights or name == first_name:
            continue
        # Two tensors that are only equal now could differ after a step of training.
        is_tied = _is_same_memory if share else torch.equal
        if not is_tied(weights[name], weights[first_name]):
            raise CheckpointError(f"{name} and {first_name} differ in {source}: the configuration ties them")
    uninitialised = {name: parameters[name] for name, key in keys.items() if key not in weights}
    missing_count = sum(tensor.numel() for tensor in uninitialised.values())
    used_count = sum(tensor.numel() for tensor in used_weights.values())
    if missing_count > max(used_count, MISSING_NUMBERS_ALLOWED):
        raise CheckpointError(
            f"{source} lacks {missing_count:,} of the numbers that its configuration requires, and contains "
            f"{used_count:,}: the missing parts may not be larger than the rest"
        )
    allocate(model, {name.removeprefix(prefix) for name in uninitialised})
    parameters = {prefix + name: tensor for name, tensor in model.state_dict(keep_vars=True).items()}
    if share:
        _share_memory(model, parameters, {name: weights[key] for name, key in keys.items() if key in weights}, prefix)
    else:
        with torch.no_grad():
            for name, key in keys.items():
                if key in weights:
                    parameters[name].copy_(weights[key])
    dtypes = {
        name: weights[key].dtype
        for name, key in keys.items()
        if key in weights and weights[key].dtype in HALF_PRECISION
    }
    return LoadReport(source, missing, unexpected, dtypes)


def _is_same_memory(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors of one shape are the same numbers in memory."""
    return first.data_ptr() == second.data_ptr() and first.stride() == second.stride()


def _share_memory(
    model: nn.Module, parameters: Mapping[str, Tensor], weights: Mapping[str, Tensor], prefix: str
) -> None:  # fmt: skip
    """Replace parameters of a model by new ones that share the memory of weights; tied parameters stay tied.

    parameters: the present ones by name, under a prefix. weights: by the same names.
    A parameter made from `detach` shares the version of its tensor, so that torch counts changes of both together.
    """
    shared: dict[int, nn.Parameter] = {}  # id of a present parameter -> the new one
    for name, weight in weights.items():
        present = parameters[name]
        if not _is_same_memory(present, weight):
            shared.setdefault(id(present), nn.Parameter(weight.detach(), requires_grad=False))
    replaced = {name.removeprefix(prefix): shared[id(old)] for name, old in parameters.items() if id(old) in shared}
    model.load_state_dict(replaced, strict=False, assign=True)


def check_weights(weights: Mapping[str, Tensor], source: str) -> None:
    """Raise CheckpointError unless each tensor is dense, of finite floats, and has its own part of the file.

    weights: the tensors by name. source: the folder or file, for messages.
    """
    storage_bytes = 0
    storages: set[int] = set()  # addresses of the storages counted so far
    for name, tensor in weights.items():
        if tensor.is_meta or tensor.layout != torch.strided or tensor.dtype not in WEIGHT_DTYPES:
            kind = (
                "a tensor without numbers" if tensor.is_meta
                else f"a tensor of {tensor.dtype}" if tensor.layout == torch.strided
                else f"a tensor of layout {tensor.layout}"
            ).replace("torch.", "")  # fmt: skip
            raise CheckpointError(
                f"{name} in {source} is {kind}: weights must be dense tensors of float32, float16, bfloat16 or float64"
            )
        # All numbers are finite if the extremes are, and finding these is ten times as fast as a test of each number.
        if tensor.numel() and not all(map(torch.isfinite, torch.aminmax(tensor))):
            count = int((~torch.isfinite(tensor)).sum())
            raise CheckpointError(
                f"{name} in {source} has {count:,} NaN or infinite values of {tensor.numel():,}: its training diverged "
                "or the file is damaged, so use an earlier checkpoint"
            )
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            storages.add(storage.data_ptr())
            storage_bytes += storage.nbytes()
        if tensor.nbytes > storage.nbytes():
            raise CheckpointError(
                f"{name} in {source} has shape {tuple(tensor.shape)} and {storage.nbytes():,} bytes: "
                "a file must contain every number of a weight"
            )
    # Only the word embeddings occur twice in a file, as themselves and as the weight of the decoder.
    if (size := sum(tensor.nbytes for tensor in weights.values())) > 2 * storage_bytes:
        raise CheckpointError(
            f"{source} has weights of {size:,} bytes in {storage_bytes:,} bytes: each weight must have its own bytes"
        )


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Build the models of this context, in this thread, with shapes only; `load_weights` allocates their memory."""
    with torch.device("meta"), _SkipInitialisation():
        yield


class _SkipInitialisation(TorchFunctionMode):
    """A mode that skips `torch.nn.init`, because torch imports its compiler to initialise on the meta device."""

    def __torch_function__(
        self, function: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", "") == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def allocate(model: nn.Module, uninitialised: Collection[str] = ()) -> None:
    """Allocate the parameters of a model that are on the meta device, in place; tied parameters stay tied.

    uninitialised: names of parameters that are then initialised; all others have arbitrary values.
    """
    allocated: dict[int, nn.Parameter] = {}
    parameters: dict[str, nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.is_meta:
            if id(parameter) not in allocated:
                empty = torch.empty_like(parameter, device="cpu")
                allocated[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
            parameters[name] = allocated[id(parameter)]
    model.load_state_dict(parameters, strict=False, assign=True)
    for path, module in model.named_modules():
        names = (f"{path}.{name}".lstrip(".") for name, _ in module.named_parameters(recurse=False))
        if any(name in parameters and name in uninitialised for name in names):
            cast("Any", model)._init_weights(module)


def _pruned_parts_text(model: nn.Module, name: str) -> str:
    """Describe the pruned parts of a weight's layer for a message; empty for a weight without heads or neurons."""
    match = re.search(
        r"encoder\.layer\.(\d+)\.(attention\.(self\.(query|key|value)|output\.dense)|intermediate|output\.dense)\.",
        name,
    )
    config = getattr(model, "config", None)
    if match is None or not isinstance(config, BertConfig):
        return ""
    layer = int(match[1])
    if layer in config.pruned_layers:
        return f" for layer {layer}, which is removed (pruned_layers)"
    if match[2].startswith("attention"):
        heads = config.pruned_heads.get(layer, ())
        remaining = f"without heads {', '.join(map(str, heads))}" if heads else "with all its heads"
        return f" for layer {layer} {remaining} (pruned_heads)"
    neurons = len(config.pruned_neurons.get(layer, ()))
    remaining = f"without {neurons:,} of its neurons" if neurons else "with all its neurons"
    return f" for layer {layer} {remaining} (pruned_neurons)"


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether any of the regular expressions matches a part of a name."""
    return any(re.search(pattern, name) for pattern in patterns)


def write(model: nn.Module, config: BertConfig, folder: str | Path) -> None:
    """Write the configuration and weights of a model to a folder, each file completely or not at all."""
    prefix = "" if hasattr(model, "bert") else "bert."
    tensors = {prefix + name: tensor for name, tensor in model.state_dict(keep_vars=True).items()}
    write_tensors(tensors, config, folder)


def write_tensors(
    tensors: Mapping[str, Tensor], config: BertConfig, folder: str | Path, dtype: torch.dtype | None = None
) -> None:
    """Write weights and their configuration to a folder, under the names of the configuration's family.

    Tied weights are written once. Rows of the position embeddings that no text uses are written as zeros.
    tensors: the weights by current names. dtype: the dtype of the file; None keeps that of the tensors.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = tensors_for_file(tensors, dtype)
    if (unused_rows := config.first_position - config.padding_rows) and POSITION_EMBEDDINGS in weights:
        table = weights[POSITION_EMBEDDINGS]
        weights[POSITION_EMBEDDINGS] = torch.cat([table.new_zeros(unused_rows, table.shape[1]), table])
    if not config.tie_word_embeddings and PREDICTION_BIAS in weights:
        weights[DECODER_BIAS] = weights[PREDICTION_BIAS].clone()
    weights = renumber_layers(weights, lambda layer: layer // config.layers_per_group)
    pooled = not {config.family.token_classifier, config.family.multiple_choice} & set(config.architectures)
    weights = config.family.from_bert_names(weights, torch.cat, pooled=pooled)
    write_atomically(folder / CONFIG_FILE, config.to_json)  # first, since a configuration can be impossible to write
    write_atomically(folder / WEIGHTS_FILE, lambda path: save_file(weights, path, metadata={"format": "pt"}))


def tensors_for_file(tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Return weights as they are written to a file: contiguous, on the CPU, and tied weights once.

    dtype: the dtype of the file; None keeps that of the tensors.
    """
    return {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in unique_tensors(tensors).items()}


def unique_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors without copying, tied weights under the first of their names only."""
    unique: dict[str, Tensor] = {}
    locations: set[tuple[int, torch.Size]] = set()
    for name, tensor in tensors.items():
        location = (tensor.data_ptr(), tensor.shape)
        if location not in locations or not tensor.numel():  # all empty tensors have the same address
            locations.add(location)
            unique[name] = tensor
    return unique


def fits_exactly(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Return whether a dtype represents every number of a tensor without rounding."""
    return all(torch.equal(chunk.to(dtype).to(chunk.dtype), chunk) for chunk in split_chunks(tensor))


def split_chunks(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the numbers of a tensor in order, in vectors of `CHUNK_NUMBERS`, the last of which can be shorter."""
    return torch.split(tensor.detach().flatten(), CHUNK_NUMBERS)


def write_atomically(path: Path, content: str | bytes | Callable[[str], object]) -> None:
    """Write a file through a temporary file that is renamed, so that no reader sees an incomplete file.

    A process that is killed while it writes leaves a hidden file that ends in .tmp, which nothing reads.
    content: the text (written as UTF-8) or bytes, or a function that writes the content to a given path.
    Raises OSError with this path if the disk refuses, also if the function raises an error without the reason.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:12]}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # as umask sets it; some functions set fewer permissions
        if callable(content):
            content(str(temporary))
        else:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.chmod(mode)
        with temporary.open("rb+") as file:
            os.fsync(
                file.fileno()
            )  # before it is renamed, so that a power cut leaves no empty file under the final name
        os.replace(temporary, path)
    except Exception as error:
        disk_error = error if isinstance(error, OSError) and error.errno else _probe_disk(temporary)
        if disk_error is None:
            raise
        raise OSError(disk_error.errno, disk_error.strerror, str(path)) from error  # not the temporary path
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def temporary_pattern(name: str = "*") -> str:
    """Return the pattern, for `Path.glob`, of the temporary files that `write_atomically` writes."""
    return f".{name}.{'[0-9a-f]' * 12}.tmp"


def append_atomically(path: Path, text: str) -> None:
    """Append text to a file and flush it to the disk; if that fails, the file is restored.

    Raises OSError with this path if the disk refuses.
    """
    try:
        with path.open("ab", buffering=0) as file:
            end, unwritten = file.tell(), memoryview(text.encode())
            try:
                while unwritten:
                    unwritten = unwritten[file.write(unwritten) :]
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(end)
                if not end:
                    path.unlink()
                raise
    except OSError as error:
        error.filename = str(path)
        raise


def _probe_disk(path: Path) -> OSError | None:
    """Return the error of writing more bytes to a file, which functions in C++, Rust and NumPy lose, or None."""
    try:
        with path.open("ab") as file:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None
