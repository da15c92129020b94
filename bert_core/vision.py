"""A picture to a sentence: patches -> a BERT encoder -> a BERT decoder that attends to the patches.

The bundled one, headlight-shapes, knows what `scenes` draws and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from bert_core.checkpoint import (
    CAPTIONER_FILE,
    WEIGHTS_FILE,
    CheckpointError,
    allocate,
    check_layers,
    check_weights,
    on_meta_device,
    read_tensors,
    tensors_for_file,
    write_atomically,
)
from bert_core.config import BertConfig, read_json_object
from bert_core.generation import generate
from bert_core.loading import ASSETS, best_device
from bert_core.modeling import BertLMHeadModel, BertModel, CausalLMOutput
from bert_core.refused import Refused, require_int, short_repr, validate_arguments
from bert_core.tokenizer import Tokenizer

VOCABULARY_FILE = "vocab.txt"
BUNDLED_CAPTIONER = "headlight-shapes"
MAX_IMAGE_SIZE = 4096  # pixels a side


# ---------------------------------------------------------------------------- sizes


@dataclass(frozen=True, kw_only=True)
class CaptionerConfig:
    """The sizes of a captioner: a square picture of image_size pixels, cut into squares of patch_size.

    vision: of the encoder, whose tables for words are never used. text: of the decoder; its encoder_width is the
    encoder's hidden_size.
    Raises Refused for sizes that do not fit together.
    """

    image_size: int = 96
    patch_size: int = 12
    vision: BertConfig = field(default_factory=BertConfig)
    text: BertConfig = field(default_factory=BertConfig)

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size"):
            object.__setattr__(self, name, require_int(name, getattr(self, name), 1, MAX_IMAGE_SIZE))
        if self.image_size % self.patch_size:
            raise Refused(
                f"image_size {self.image_size} is not a multiple of patch_size {self.patch_size}: no patch may be cut"
            )
        if not (self.text.is_decoder and self.text.add_cross_attention):
            raise Refused("the text half of a captioner needs is_decoder and add_cross_attention")
        width = self.text.encoder_width or self.text.hidden_size
        if width != self.vision.hidden_size:
            raise Refused(
                f"the decoder attends to states {width} wide, and the encoder gives {self.vision.hidden_size}"
            )

    @property
    def grid(self) -> int:
        """Patches in a row, and in a column."""
        return self.image_size // self.patch_size

    @classmethod
    def small(
        cls,
        vocab_size: int,
        *,
        image_size: int = 96,
        patch_size: int = 12,
        hidden: int = 128,
        heads: int = 4,
        vision_layers: int = 2,
        text_layers: int = 2,
        positions: int = 32,
    ) -> CaptionerConfig:
        """One that a CPU can train: both halves equally wide, no dropout, no segments."""
        common: dict[str, Any] = {
            "hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": 4 * hidden, "type_vocab_size": 0,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "label_smoothing": 0.0,
        }  # fmt: skip
        return cls(
            image_size=image_size,
            patch_size=patch_size,
            # Narrow at first, so that places are not washed out.
            vision=BertConfig(
                **common, initializer_range=0.03, num_hidden_layers=vision_layers, vocab_size=1,
                max_position_embeddings=1,
            ),
            # Wide, so that heads look at different things from the start.
            text=BertConfig(
                **common, initializer_range=0.08, num_hidden_layers=text_layers, vocab_size=vocab_size,
                max_position_embeddings=positions, is_decoder=True, add_cross_attention=True, encoder_width=hidden,
            ),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The content of `captioner.json`."""
        sizes = {"image_size": self.image_size, "patch_size": self.patch_size}
        return {**sizes, "vision": self.vision.to_dict(), "text": self.text.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CaptionerConfig:
        """Raises Refused unless the values are those of `to_dict`."""
        missing = [name for name in ("image_size", "patch_size", "vision", "text") if name not in values]
        if missing:
            raise Refused(f"a captioner's configuration has {', '.join(missing)}")
        for name in ("vision", "text"):
            if not isinstance(values[name], Mapping):
                raise Refused(f"{name} is {short_repr(values[name])}: it must be an object, with a size for each name")
        halves = {name: BertConfig.from_dict(values[name]) for name in ("vision", "text")}
        return cls(image_size=values["image_size"], patch_size=values["patch_size"], **halves)


# ---------------------------------------------------------------------------- model


class PatchEmbeddings(nn.Module):
    """Squares of the picture, each through two dense layers, with the embeddings of its row and its column.

    The place comes in twice: also before the non-linearity, so that "something, here" is one feature for the layers
    above.
    """

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.vision.hidden_size
        self.dense = nn.Linear(3 * config.patch_size**2, hidden)
        self.projection = nn.Linear(hidden, hidden)
        self.row_embeddings = nn.Embedding(config.grid, hidden)
        self.column_embeddings = nn.Embedding(config.grid, hidden)
        self.LayerNorm = nn.LayerNorm(hidden, eps=config.vision.layer_norm_eps)
        for table in (self.row_embeddings, self.column_embeddings):
            if table.weight.is_meta:  # built for its sizes
                continue
            # Neighbours start alike, along a slope from one edge to the other: what is above what is soon learned.
            slope = torch.linspace(-1.0, 1.0, config.grid)[:, None] * torch.randn(hidden)
            nn.init.normal_(table.weight, std=0.2)
            table.weight.data += slope

    def forward(self, images: Tensor) -> Tensor:
        """images: uint8 (batch, image_size, image_size, 3). Returns (batch, patch, hidden), rows of patches in turn."""
        grid, side = self.config.grid, self.config.patch_size
        pixels = images.to(self.dense.weight.dtype)
        # In terms of the picture's own brightness and contrast, so that a dark scene looks like a light one.
        spread = pixels.std((1, 2, 3), keepdim=True).clamp(min=1.0)
        pixels = (pixels - pixels.mean((1, 2, 3), keepdim=True)) / spread
        # (batch, row, y, column, x, 3) -> (batch, patch, 3 * side * side)
        patches = pixels.reshape(-1, grid, side, grid, side, 3).transpose(2, 3).reshape(-1, grid * grid, 3 * side**2)
        places = self.row_embeddings.weight[:, None] + self.column_embeddings.weight[None]
        placed = F.gelu(self.dense(patches) + places.flatten(0, 1))
        normalised: Tensor = self.LayerNorm(self.projection(placed) + places.flatten(0, 1))
        return normalised


class Captioner(nn.Module):
    """Patches through a BERT encoder, and a BERT decoder with cross-attention that says what is there."""

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = PatchEmbeddings(config)
        self.vision = BertModel(config.vision, add_pooling_layer=False)
        self.text = BertLMHeadModel(config.text)

    def encode(self, images: Tensor) -> Tensor:
        """images: uint8 (batch, image_size, image_size, 3). Returns (batch, patch, hidden).

        Raises Refused for pictures of another size or type.
        """
        side = self.config.image_size
        if images.dim() != 4 or images.shape[1:] != (side, side, 3) or images.dtype != torch.uint8:
            raise ValueError(
                f"the pictures are {tuple(images.shape)} of {images.dtype}: "
                f"this model takes uint8 (batch, {side}, {side}, 3); `fit` makes one of them"
            )
        # The patches already carry their places: they enter the first layer as they are.
        states: Tensor = self.vision(encoder_embeds=self.patches(images)).last_hidden_state
        return states

    def forward(self, images: Tensor, input_ids: Tensor, **text_arguments: Any) -> CausalLMOutput:
        """Scores of the word after each word of captions (batch, seq) about images.

        text_arguments: as BertLMHeadModel.forward.
        """
        outputs: CausalLMOutput = self.text(input_ids, encoder_hidden_states=self.encode(images), **text_arguments)
        return outputs


# ---------------------------------------------------------------------------- one captioner, with its words


@dataclass(frozen=True)
class LoadedCaptioner:
    """A captioner in evaluation mode with frozen parameters, its words, and the device it is on."""

    name: str
    model: Captioner
    tokenizer: Tokenizer
    device: torch.device

    @property
    def config(self) -> CaptionerConfig:
        """The model's own."""
        return self.model.config

    @torch.no_grad()
    def caption_ids(self, images: np.ndarray) -> list[tuple[int, ...]]:
        """The likeliest words, one after the other, for uint8 (batch, image_size, image_size, 3).

        Each row starts with [CLS]; it ends with [SEP], unless there was no room for that.
        """
        states = self.model.encode(torch.from_numpy(images).to(self.device))
        start, end = self.tokenizer.first_id, self.tokenizer.end_id
        prompt = torch.full((len(images), 1), start, device=self.device)
        room = self.config.text.max_position_embeddings - 1
        found = generate(
            self.model.text, prompt, max_new_tokens=room, eos_token_id=end, encoder_hidden_states=states
        )  # fmt: skip
        return [_until(row, end) for row in found.tolist()]

    def captions(self, images: np.ndarray) -> list[str]:
        """A sentence for each picture of uint8 (batch, image_size, image_size, 3)."""
        return [self.decode(ids) for ids in self.caption_ids(images)]

    def caption(self, picture: np.ndarray) -> str:
        """A sentence for a picture of any size, uint8 (rows, columns, 3)."""
        return self.captions(fit_image(picture, self.config.image_size)[None])[0]

    def decode(self, ids: tuple[int, ...]) -> str:
        """The words of a caption, without [CLS] and [SEP]."""
        left_out = (self.tokenizer.first_id, self.tokenizer.end_id, self.tokenizer.pad_id)
        return " ".join(self.tokenizer.token_of(number) for number in ids if number not in left_out)


def _until(ids: list[int], end: int) -> tuple[int, ...]:
    """Everything up to the first `end`, which is kept."""
    return tuple(ids[: ids.index(end) + 1] if end in ids else ids)


def fit_image(picture: np.ndarray, size: int) -> np.ndarray:
    """The middle square of a picture, uint8 (rows, columns, 3), at (size, size, 3).

    Raises Refused if it is not a picture of that kind.
    """
    if not isinstance(picture, np.ndarray):
        raise Refused(f"the picture is {short_repr(picture)}: uint8 (rows, columns, 3) is expected")
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or 0 in picture.shape:
        raise Refused(f"the picture is {picture.shape} of {picture.dtype}: uint8 (rows, columns, 3) is expected")
    rows, columns, _ = picture.shape
    side = min(rows, columns)
    top, left = (rows - side) // 2, (columns - side) // 2
    square = np.array(picture[top : top + side, left : left + side])  # a copy: torch takes no read-only array
    if side == size:
        return square
    channels = torch.from_numpy(square).permute(2, 0, 1)[None].float()
    resized = F.interpolate(channels, (size, size), mode="bilinear", antialias=True, align_corners=False)
    return resized[0].permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8).numpy()


# ---------------------------------------------------------------------------- files


def save_captioner(
    model: Captioner, words: Sequence[str], folder: str | Path, dtype: torch.dtype | None = None
) -> None:
    """Write `captioner.json`, the weights and the vocabulary to a folder, each file whole or not at all.

    dtype: the number type of the file, if it is not that of the weights.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = tensors_for_file(model.state_dict(keep_vars=True), dtype)
    sizes = json.dumps(model.config.to_dict(), indent=2, sort_keys=True) + "\n"
    write_vocabulary(words, folder)
    write_atomically(folder / CAPTIONER_FILE, sizes)
    write_atomically(folder / WEIGHTS_FILE, lambda path: save_file(tensors, path, metadata={"format": "pt"}))


def write_vocabulary(words: Sequence[str], folder: Path) -> None:
    """Write a vocabulary as `Tokenizer.from_folder` reads it."""
    lines = "\n".join(words) + "\n"
    write_atomically(folder / VOCABULARY_FILE, lines)


@validate_arguments
def load_captioner(name: str | os.PathLike[str] = BUNDLED_CAPTIONER, *, device: str | None = None) -> LoadedCaptioner:
    """A captioner in evaluation mode, its parameters frozen: the bundled one by its name, or one from a folder.

    Raises CheckpointError if there is none, or its files do not belong together, ValueError for an unknown device.
    """
    chosen = best_device(device)
    folder = ASSETS / BUNDLED_CAPTIONER if name == BUNDLED_CAPTIONER else Path(name)
    if not (folder / CAPTIONER_FILE).is_file():
        raise CheckpointError(f"{name} is no captioner: name {BUNDLED_CAPTIONER}, or a folder with {CAPTIONER_FILE}")
    try:
        values = read_json_object(folder / CAPTIONER_FILE)
        config = CaptionerConfig.from_dict(values)
        tokenizer = Tokenizer.from_folder(folder)
        tokenizer.check_against(config.text)
        if len(tokenizer) != config.text.vocab_size:  # no word of ours is spare
            raise Refused(
                f"the tokenizer has {len(tokenizer)} tokens but the model {config.text.vocab_size}: they do not belong "
                "together"
            )
        weights = read_tensors(folder / WEIGHTS_FILE)
        check_layers(config.vision, weights, "vision.", str(folder))
        check_layers(config.text, weights, "text.bert.", str(folder))
        with on_meta_device():
            model = Captioner(config)
        _fill(model, weights, str(folder))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"the captioner in {folder} cannot be used: {error}") from error
    return LoadedCaptioner(str(name), model.requires_grad_(False).to(chosen).eval(), tokenizer, chosen)


def _fill(model: Captioner, weights: Mapping[str, Tensor], source: str) -> None:
    """Copy weights into a model that has no memory yet. Raises Refused unless every name and shape is accounted for."""
    own = model.state_dict(keep_vars=True)
    filled = {id(own[name]) for name in own.keys() & weights.keys()}
    missing = [name for name, tensor in own.items() if name not in weights and id(tensor) not in filled]
    unknown = [name for name in weights if name not in own]
    if missing or unknown:
        raise Refused(f"{len(missing)} weights are missing and {len(unknown)} unknown: {(missing + unknown)[0]}")
    for name, tensor in weights.items():
        if own[name].shape != tensor.shape:
            raise Refused(f"{name} is {tuple(tensor.shape)}: the configuration says {tuple(own[name].shape)}")
    check_weights(weights, source)
    allocate(model)
    model.load_state_dict(weights, strict=False)
