"""Bytes on disk <-> configuration and weights: checkpoint folders, in today's and yesterday's spelling."""

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
from bert_core.naming import FAMILIES, UNSUPPORTED_TYPES, renumber_layers, to_current_names
from bert_core.refused import Refused, short_repr

WEIGHTS_FILE = "model.safetensors"
OLD_WEIGHTS_FILE = "pytorch_model.bin"
SHARD_PATTERNS = ("model-*-of-*.safetensors", "pytorch_model-*-of-*.bin")  # of weights that stand in several files
CONFIG_FILE = "config.json"
SAFETENSORS_TEMPORARY_PATTERN = (
    ".tmp" + 6 * "[0-9A-Za-z]"
)  # the names, as a pattern, under which safetensors writes a file at first
CAPTIONER_FILE = "captioner.json"  # not config.json: a folder with that file is a BERT for texts
# Captioners whose text decoder is a BERT (Li 2022, arXiv:2201.12086), and the sizes that their files may leave out.
BLIP_TYPES = ("blip", "blip_text_model")
BLIP_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 30524, "num_attention_heads": 8, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "label_smoothing": 0.0,
}  # fmt: skip
# Patterns of keys that published files have too many: a table of numbers from 0 on, which we count ourselves.
IGNORED_KEYS = (r"position_ids$",)
MAX_LISTED_KINDS, MAX_NAME_CHARACTERS = 3, 80  # of unused tensors, in one sentence
WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
PREDICTION_BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
DECODER_WEIGHT = "cls.predictions.decoder.weight"
EMBEDDING_PROJECTION = "bert.embeddings.embeddings_project.weight"
POSITION_EMBEDDINGS = "bert.embeddings.position_embeddings.weight"
MAX_LAYERS = 1000  # twenty times the deepest published BERT
MISSING_NUMBERS_ALLOWED = 2**24  # so many may be drawn for any file; beyond, no more than the file holds
CHUNK_NUMBERS = 2**14  # numbers: torch converts so few on one core, and their copies stay in its cache
HALF_PRECISION = (torch.float16, torch.bfloat16)
WEIGHT_DTYPES = (torch.float32, *HALF_PRECISION, torch.float64)
# What the pickle of a checkpoint names, beside the storages of torch: of tensors, and of those that are then refused.
ALLOWED_PICKLE_NAMES = re.compile(
    r"collections OrderedDict|torch\.nn\.parameter Parameter|torch(\.storage)? \w+Storage|torch Size|torch device|"
    r"torch\._utils _rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state|qtensor|sparse_tensor|"
    r"meta_tensor_no_storage)|"
    r"torch\._tensor _rebuild_from_type_v2|torch\.serialization _get_layout|torch [a-z]\w*"
)
MAX_PICKLE_BYTES = 16_000_000  # bytes of names and shapes
MAX_TUPLE_PARTS = 1000  # parts, and their parts: a tensor's is of some twenty


class CheckpointError(Refused):
    """A file or folder is not a checkpoint that this code can use; the message says why."""


@dataclass(frozen=True)
class LoadReport:
    """Every key accounted for.

    missing: parameters of the model that the file did not have (left as initialised).
    unexpected: entries of the file that the model has no place for.
    dtypes: number types of the parameters that the file has in half precision, by name; all others are float32.
    """

    source: str
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict, repr=False, compare=False)

    def merge(self, other: LoadReport) -> LoadReport:
        """The report of two models that were filled from one file: what either misses, and what neither has taken."""
        missing = dict.fromkeys((*self.missing, *other.missing))
        unexpected = tuple(name for name in self.unexpected if name in other.unexpected)
        return LoadReport(self.source, tuple(missing), unexpected, {**self.dtypes, **other.dtypes})

    @property
    def unused_note(self) -> str | None:
        """One sentence on the entries of the file that are not used; None where all are."""
        if not self.unexpected:
            return None
        kinds = Counter(re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in self.unexpected)
        listed = [f"{kind} ({count:,})" if count > 1 else kind for kind, count in kinds.items()]
        more = [f"{len(listed) - MAX_LISTED_KINDS:,} more names"] * (len(listed) > MAX_LISTED_KINDS)
        count = len(self.unexpected)
        return (
            f"{count:,} {'tensor' if count == 1 else 'tensors'} of its file {'is' if count == 1 else 'are'} not used: "
            f"{', '.join([name[:MAX_NAME_CHARACTERS] for name in listed[:MAX_LISTED_KINDS]] + more)}"
        )

    def lacks(self, part: str) -> bool:
        """Whether any parameter whose name starts with `part` was missing."""
        return any(key.startswith(part) for key in self.missing)


def read(folder: str | Path) -> tuple[BertConfig, dict[str, Tensor]]:
    """The configuration and the weights of a checkpoint folder, ready for a model to be built and filled.

    Raises CheckpointError as read_config and read_weights do, and where the weights have another vocabulary or width,
    or fewer layers, than the configuration says: what is built in Python for each head and layer is held against
    them here, and every other size in `fill`.
    """
    config, weights = read_config(folder), read_weights(folder)
    if POSITION_EMBEDDINGS in weights and weights[POSITION_EMBEDDINGS].dim():
        weights[POSITION_EMBEDDINGS] = weights[POSITION_EMBEDDINGS][config.first_position - config.padding_rows :]
    if WORD_EMBEDDINGS not in weights:
        raise CheckpointError(f"{folder} is not a complete BERT: {WORD_EMBEDDINGS} is missing")
    given, said = tuple(weights[WORD_EMBEDDINGS].shape), (config.vocab_size, config.embedding_width)
    if given != said:
        raise CheckpointError(f"{WORD_EMBEDDINGS} in {folder} has shape {given}, but the configuration says {said}")
    if EMBEDDING_PROJECTION in weights and config.embedding_width == config.hidden_size:
        raise CheckpointError(
            f"{EMBEDDING_PROJECTION} is in {folder}, but embedding_size and hidden_size are both {config.hidden_size}: only "
            "vectors of another width are mapped"
        )
    check_layers(config, weights, "bert.", str(folder))
    if not config.tie_word_embeddings and DECODER_BIAS in weights:
        weights.pop(PREDICTION_BIAS, None)  # transformers reads it only where the two are one
    return infer_num_labels(config, weights), renumber_layers(weights, lambda group: group * config.layers_per_group)


def check_layers(config: BertConfig, weights: Mapping[str, Tensor], prefix: str, source: str) -> None:
    """Raise CheckpointError if a configuration has more layers than the weights that begin so, or than can be."""
    numbers = (re.match(rf"{re.escape(prefix)}encoder\.layer\.(\d{{1,9}})\.", name) for name in weights)
    there = max((int(number[1]) for number in numbers if number), default=-1) + 1
    if config.num_hidden_layers > min(there * config.layers_per_group, MAX_LAYERS):
        raise CheckpointError(
            f"{source} says {config.num_hidden_layers:,} layers and holds {there:,}: it must hold all, and at most "
            f"{MAX_LAYERS:,} are built"
        )


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
        values = read_json_object(path)
        config = BertConfig.from_dict(_blip_decoder(values) if values.get("model_type") in BLIP_TYPES else values)
    except (ValueError, TypeError, RecursionError, OSError) as error:
        raise CheckpointError(f"{path} is not a configuration of BERT: {error}") from error
    model_type = str(config.extra.get("model_type", "bert"))[:40]
    if model_type not in FAMILIES:
        known = f"only {', '.join(map(repr, FAMILIES))} and 'blip' can be loaded"
        how = UNSUPPORTED_TYPES.get(model_type)
        raise CheckpointError(
            f"{folder} holds a model of type {model_type!r}{'' if how is None else f', {how}'}: {known}"
        )
    return config


def _blip_decoder(values: Mapping[str, Any]) -> dict[str, Any]:
    """The text decoder inside a captioner's configuration, by our names; what is not said there has BLIP's defaults."""
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
    """All tensors of a checkpoint folder, by today's names; safetensors first.

    A `.bin` file is read with weights_only=True, so that no code in it can run.
    Raises CheckpointError if there is no weights file or it cannot be read.
    """
    folder = Path(folder)
    path = next((p for p in (folder / WEIGHTS_FILE, folder / OLD_WEIGHTS_FILE) if p.is_file()), None)
    if path is None:
        if shards := sum(1 for name in SHARD_PATTERNS for _ in folder.glob(name)):
            raise CheckpointError(
                f"the weights in {folder} are in {shards} files, and are read from one: load them with transformers' "
                "AutoModel, or the class that config.json names, and save them by save_pretrained(FOLDER, "
                "max_shard_size='100GB')"
            )
        raise CheckpointError(f"{folder} has no weights: neither {WEIGHTS_FILE} nor {OLD_WEIGHTS_FILE}")
    return to_current_names(read_tensors(path))


def check_not_empty(path: Path) -> None:
    """Raise CheckpointError for a file of no bytes, as an interrupted copy leaves it."""
    if path.is_file() and not path.stat().st_size:
        raise CheckpointError(f"{path} is empty: copy or download it again")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, by its own names. Raises CheckpointError if it cannot be read, or holds anything else."""
    check_not_empty(path)
    try:
        raw = load_file(path) if path.suffix == ".safetensors" else _read_pickled(path)
    except CheckpointError:
        raise
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # torch.load raises many kinds on a damaged or hostile file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"{path} is broken, or contains more than tensors (code in a file is never run): {reason}"
        ) from error
    if not isinstance(raw, Mapping) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in raw.items()):
        raise CheckpointError(f"{path} does not contain named tensors")
    return dict(raw)


def _read_pickled(path: Path) -> object:
    """What a `.bin` file holds, no more of it in memory than is used."""
    packed = zipfile.is_zipfile(path)
    if packed:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            # torch packs nothing, so that the file is as large as what it holds.
            size = sum(entry.file_size for entry in entries)
            if any(entry.compress_type for entry in entries) or size > path.stat().st_size:
                raise CheckpointError(f"{path} unpacks to {size:,} bytes, and a file of weights is not packed")
            for entry in entries:
                if entry.filename.endswith("/data.pkl"):
                    with archive.open(entry) as pickled:
                        _check_pickle(pickled, path)
    else:  # before torch 1.6: a magic number, a version, the writer's system and the tensors, each a pickle of its own
        with path.open("rb") as pickled:
            for _ in range(4):
                _check_pickle(pickled, path)
    return torch.load(path, map_location="cpu", weights_only=True, mmap=packed)


def _check_pickle(pickled: IO[bytes], path: Path) -> None:
    """Refuse a pickle that names anything but tensors; torch would make large objects of some that it takes as safe."""
    begin = pickled.tell()
    stack: list[int] = []  # how many parts each object has, those of its parts counted; a mark has none
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
            parts = 1 + _taken_off(stack, code.stack_before)
            if "TUPLE" in code.name and parts > MAX_TUPLE_PARTS:  # finding its hash would take the stack, or for ever
                raise pickle.UnpicklingError(f"it has a tuple of more than {MAX_TUPLE_PARTS:,} parts")
            parts = parts if "TUPLE" in code.name else 1
            stack += [0 if one is pickletools.markobject else parts for one in code.stack_after]


def _taken_off(stack: list[int], wanted: Sequence[pickletools.StackObject]) -> int:
    """Take what a pickle's operation wants off its stack, down to a mark if it wants one; how many parts that has."""
    first = len(stack) - len(wanted)
    if pickletools.markobject in wanted:
        mark = next(place for place in reversed(range(len(stack))) if not stack[place])
        first = mark - wanted.index(pickletools.markobject)
    parts = sum(stack[first:])
    del stack[first:]
    return parts


def infer_num_labels(config: BertConfig, weights: Mapping[str, Tensor]) -> BertConfig:
    """The configuration with the number of a classifier's outputs, where it says nothing of its classes."""
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
) -> LoadReport:
    """Copy weights into a model, name by name, and account for every name on both sides.

    model: built under `sizes_alone` it has no memory; it gets some when every size agrees with the file's, and what
        the file lacks is drawn.
    weights: by today's names (see `rename`). A bare BertModel takes those below `bert.`.
    may_lack, may_have: patterns of names that are no news when missing, or left over.
    Raises CheckpointError if a shape differs, a weight is not made of plain numbers, a part that no BERT can do without
    is missing, what is missing would be larger than what is there, or two names of one tied weight hold different
    numbers.
    """
    prefix = "" if hasattr(model, "bert") else "bert."
    # A tied weight is one tensor under several names: a file may give it under each of them, or under one.
    own = {prefix + name: tensor for name, tensor in model.state_dict(keep_vars=True).items()}
    given: dict[int, str] = {}  # the first name under which a file gives a tensor
    for name, tensor in own.items():
        if name in weights:
            given.setdefault(id(tensor), name)
    found = {name: name if name in weights else given.get(id(tensor), name) for name, tensor in own.items()}
    missing = tuple(n for n, where in found.items() if where not in weights and not _matches(n, ignored_missing))
    unexpected = tuple(n for n in weights if n not in own and not _matches(n, ignored_unexpected))
    # An encoder can do without its pooler and without any head: what these would have computed is then not shown.
    essential = [name for name in missing if name.startswith("bert.") and not name.startswith("bert.pooler.")]
    if essential:
        raise CheckpointError(
            f"{source} is not a complete BERT: {len(essential)} of {len(own)} weights are missing, first {essential[0]}"
        )
    taken = {where: weights[where] for where in found.values() if where in weights}
    check_weights(taken, source)
    for name, where in found.items():
        if where in weights and weights[where].shape != own[name].shape:
            raise CheckpointError(
                f"{where} in {source} has shape {tuple(weights[where].shape)}, but the configuration says "
                f"{tuple(own[name].shape)}" + _of_pruned_parts(model, where)
            )
    for name in own:
        other = given.get(id(own[name]), name)
        if name in weights and name != other and not torch.equal(weights[name], weights[other]):
            raise CheckpointError(f"{name} and {other} differ in {source}: the configuration ties them")
    lacking = {name: own[name] for name, where in found.items() if where not in weights}
    drawn, held = sum(t.numel() for t in lacking.values()), sum(t.numel() for t in taken.values())
    if drawn > max(held, MISSING_NUMBERS_ALLOWED):
        raise CheckpointError(
            f"{source} lacks {drawn:,} of the numbers that its configuration asks for, and holds {held:,}: a part that "
            "is missing may be no larger than the rest"
        )
    allocate(model, {name.removeprefix(prefix) for name in lacking})
    own = {prefix + name: tensor for name, tensor in model.state_dict(keep_vars=True).items()}
    with torch.no_grad():
        for name, where in found.items():
            if where in weights:
                own[name].copy_(weights[where])
    dtypes = {name: weights[where].dtype for name, where in found.items()
              if where in weights and weights[where].dtype in HALF_PRECISION}  # fmt: skip
    return LoadReport(source, missing, unexpected, dtypes)


def check_weights(weights: Mapping[str, Tensor], source: str) -> None:
    """Raise CheckpointError unless each tensor is dense, of finite floats, and no larger than its part of the file."""
    room = 0
    seen: set[int] = set()
    for name, tensor in weights.items():
        if tensor.is_meta or tensor.layout != torch.strided or tensor.dtype not in WEIGHT_DTYPES:
            kind = (
                "a tensor without numbers" if tensor.is_meta
                else f"a tensor of {tensor.dtype}" if tensor.layout == torch.strided
                else f"a tensor of layout {tensor.layout}"
            ).replace("torch.", "")  # fmt: skip
            raise CheckpointError(
                f"{name} in {source} is {kind}: weights are dense tensors of float32, float16, bfloat16 or float64"
            )
        # The extremes are finite where every number is, and are found ten times as fast as asking each number.
        if tensor.numel() and not all(map(torch.isfinite, torch.aminmax(tensor))):
            count = int((~torch.isfinite(tensor)).sum())
            raise CheckpointError(
                f"{name} in {source} holds NaN or infinity in {count:,} of {tensor.numel():,} places: its training "
                "diverged, or the file is damaged; take an earlier checkpoint"
            )
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            room += storage.nbytes()
        if tensor.nbytes > storage.nbytes():
            raise CheckpointError(
                f"{name} in {source} has shape {tuple(tensor.shape)} and {storage.nbytes():,} bytes: "
                "a file must hold every number of a weight"
            )
    # Only the word table stands twice in a file: as itself, and as the decoder's.
    if (size := sum(tensor.nbytes for tensor in weights.values())) > 2 * room:
        raise CheckpointError(f"{source} makes {size:,} bytes of weights out of {room:,}: each must have its own")


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Models that this thread builds inside have sizes, no memory and no numbers: `fill` gives them both."""
    with torch.device("meta"), _NothingDrawn():
        yield


class _NothingDrawn(TorchFunctionMode):
    """Leaves out `torch.nn.init`: to draw numbers that are not there, torch imports its compiler, for a second."""

    def __torch_function__(
        self, function: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", "") == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def allocate(model: nn.Module, lacking: Collection[str] = ()) -> None:
    """Give the parameters that are on the meta device memory, those that are tied once, and draw what is lacking."""
    made: dict[int, nn.Parameter] = {}
    places: dict[str, nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.is_meta:
            if id(parameter) not in made:
                made[id(parameter)] = nn.Parameter(torch.empty_like(parameter, device="cpu"), parameter.requires_grad)
            places[name] = made[id(parameter)]
    model.load_state_dict(places, strict=False, assign=True)
    for path, module in model.named_modules():
        own = (f"{path}.{name}".lstrip(".") for name, _ in module.named_parameters(recurse=False))
        if any(name in places and name in lacking for name in own):
            cast("Any", model)._init_weights(module)


def _of_pruned_parts(model: nn.Module, name: str) -> str:
    """What the configuration says of the heads or neurons that a weight has lost; nothing for one that has none."""
    match = re.search(
        r"encoder\.layer\.(\d+)\.(attention\.(self\.(query|key|value)|output\.dense)|intermediate|output\.dense)\.",
        name,
    )
    config = getattr(model, "config", None)
    if match is None or not isinstance(config, BertConfig):
        return ""
    layer = int(match[1])
    if layer in config.pruned_layers:
        return f": layer {layer} is gone (pruned_layers)"
    if match[2].startswith("attention"):
        heads = config.pruned_heads.get(layer, ())
        gone = f"without heads {', '.join(map(str, heads))}" if heads else "with all its heads"
        return f", a layer {layer} {gone} (pruned_heads)"
    neurons = len(config.pruned_neurons.get(layer, ()))
    gone = f"without {neurons:,} of its neurons" if neurons else "with all its neurons"
    return f", a layer {layer} {gone} (pruned_neurons)"


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

    Names of weights and sizes are those of the configuration's family, and rows of places that no text has are zeros.
    dtype: the number type of the file, if it is not that of the tensors.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    kept = tensors_for_file(tensors, dtype)
    if (before := config.first_position - config.padding_rows) and POSITION_EMBEDDINGS in kept:
        table = kept[POSITION_EMBEDDINGS]
        kept[POSITION_EMBEDDINGS] = torch.cat([table.new_zeros(before, table.shape[1]), table])
    if not config.tie_word_embeddings and PREDICTION_BIAS in kept:
        kept[DECODER_BIAS] = kept[PREDICTION_BIAS].clone()
    kept = renumber_layers(kept, lambda layer: layer // config.layers_per_group)
    pooled = not {config.family.token_classifier, config.family.multiple_choice} & set(config.architectures)
    kept = config.family.from_bert_names(kept, pooled=pooled)
    write_atomically(folder / CONFIG_FILE, config.to_json)  # first: a configuration that no file can hold stops here
    write_atomically(folder / WEIGHTS_FILE, lambda path: save_file(kept, path, metadata={"format": "pt"}))


def tensors_for_file(tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Weights as a file takes them: on the CPU, and one that stands under two names under the first of them alone.

    dtype: the number type of the file, if it is not that of the tensors.
    """
    return {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in unique_tensors(tensors).items()}


def unique_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, not copies; one that stands under two names, as tied weights do, under the first alone."""
    kept: dict[str, Tensor] = {}
    seen: set[tuple[int, torch.Size]] = set()
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tensor.shape)
        if place not in seen or not tensor.numel():  # all empty tensors stand at one address
            seen.add(place)
            kept[name] = tensor
    return kept


def fits_exactly(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether another number type holds every number of a tensor without rounding."""
    return all(torch.equal(part.to(dtype).to(part.dtype), part) for part in split_chunks(tensor))


def split_chunks(tensor: Tensor) -> tuple[Tensor, ...]:
    """The numbers of a tensor in their order, `PART` at a time."""
    return torch.split(tensor.detach().flatten(), CHUNK_NUMBERS)


def write_atomically(path: Path, content: str | bytes | Callable[[str], object]) -> None:
    """Write to a neighbour first and then rename, so that no reader ever sees half a file.

    content: what is written, a text as UTF-8, or what writes it to a path that it is given.
    A process that is killed meanwhile leaves a hidden file that ends in .tmp, which nothing reads.
    Raises OSError with this path where the disk refuses, also where the writer only says that something failed.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:12]}.tmp")
    try:
        temporary.touch()
        rights = temporary.stat().st_mode  # what umask leaves; some writers leave less
        if callable(content):
            content(str(temporary))
        else:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.chmod(rights)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())  # before the new name: after a power cut it must not stand for an empty file
        os.replace(temporary, path)
    except Exception as error:
        refusal = error if isinstance(error, OSError) and error.errno else _refusal(temporary)
        if refusal is None:
            raise
        raise OSError(refusal.errno, refusal.strerror, str(path)) from error  # the name that the reader knows
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def temporary_pattern(name: str = "*") -> str:
    """The pattern of the names that `write_whole` writes to first, for `Path.glob`."""
    return f".{name}.{'[0-9a-f]' * 12}.tmp"


def append_atomically(path: Path, text: str) -> None:
    """Add text to the end of a file, and see it to the disk; where that fails, all of it is taken back.

    Raises OSError with this path.
    """
    try:
        with path.open("ab", buffering=0) as file:
            end, left = file.tell(), memoryview(text.encode())
            try:
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(end)
                if not end:
                    path.unlink()
                raise
    except OSError as error:
        error.filename = str(path)
        raise


def _refusal(path: Path) -> OSError | None:
    """What the system says to some more bytes in a file: writers in C++ and Rust, and NumPy's, lose its reason."""
    try:
        with path.open("ab") as file:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None
