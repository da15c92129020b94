"""Image captioning: a BERT encoder of image patches, and a BERT decoder that attends to the patches.

The bundled captioner, headlight-shapes, is trained on the drawings of `scenes` only.
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
from bert_core.deprecation import RenamedAttribute
from bert_core.generation import generate
from bert_core.loading import ASSETS, best_device
from bert_core.modeling import BertLMHeadModel, BertModel, CausalLMOutput
from bert_core.refused import Refused, require_int, short_repr, validate_arguments
from bert_core.tokenizer import Tokenizer

VOCABULARY_FILE = "vocab.txt"
BUNDLED_CAPTIONER = "headlight-shapes"
MAX_IMAGE_SIZE = 4096  # pixels per side


# ---------------------------------------------------------------------------- sizes


@dataclass(frozen=True, kw_only=True)
class CaptionerConfig:
    """The configuration of a captioner.

    image_size, patch_size: pixels per side of the square images and of the square patches that they are split into.
    vision: the configuration of the encoder, whose word embeddings are not used.
    text: the configuration of the decoder. Its encoder_width is the hidden_size of the encoder.
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
                f"image_size is {self.image_size}: it must be a multiple of patch_size, which is {self.patch_size}"
            )
        if not (self.text.is_decoder and self.text.add_cross_attention):
            raise Refused("the text configuration of a captioner must set is_decoder and add_cross_attention")
        width = self.text.encoder_width or self.text.hidden_size
        if width != self.vision.hidden_size:
            raise Refused(
                f"the encoder_width of the decoder is {width}: it must be the hidden_size of the encoder, which is "
                f"{self.vision.hidden_size}"
            )

    @property
    def grid(self) -> int:
        """Number of patches per side of an image."""
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
        """Return a configuration that can be trained on a CPU, without dropout and segments.

        hidden, heads: width and number of heads of both encoder and decoder. positions: maximum length of a caption
        in tokens, special tokens included.
        """
        common: dict[str, Any] = {
            "hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": 4 * hidden, "type_vocab_size": 0,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "label_smoothing": 0.0,
        }  # fmt: skip
        return cls(
            image_size=image_size,
            patch_size=patch_size,
            # Small initial weights, so that the embeddings of the positions keep their share of the sum.
            vision=BertConfig(
                **common, initializer_range=0.03, num_hidden_layers=vision_layers, vocab_size=1,
                max_position_embeddings=1,
            ),
            # Large initial weights, so that the heads attend to different keys from the start.
            text=BertConfig(
                **common, initializer_range=0.08, num_hidden_layers=text_layers, vocab_size=vocab_size,
                max_position_embeddings=positions, is_decoder=True, add_cross_attention=True, encoder_width=hidden,
            ),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `captioner.json`."""
        sizes = {"image_size": self.image_size, "patch_size": self.patch_size}
        return {**sizes, "vision": self.vision.to_dict(), "text": self.text.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CaptionerConfig:
        """Return the configuration in the content of `captioner.json`; raise Refused if it is incomplete or invalid."""
        missing = [name for name in ("image_size", "patch_size", "vision", "text") if name not in values]
        if missing:
            raise Refused(f"the configuration of a captioner must have {', '.join(missing)}")
        for name in ("vision", "text"):
            if not isinstance(values[name], Mapping):
                raise Refused(f"{name} is {short_repr(values[name])}: it must be an object, with a size for each name")
        configs = {name: BertConfig.from_dict(values[name]) for name in ("vision", "text")}
        return cls(image_size=values["image_size"], patch_size=values["patch_size"], **configs)


# ---------------------------------------------------------------------------- model


class PatchEmbeddings(nn.Module):
    """The embeddings of image patches: two dense layers with the embeddings of the patch's row and column.

    The position is added before the activation function as well as after it, so that one feature can represent a
    content at a position.
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
            if table.weight.is_meta:  # has no values yet
                continue
            # Embeddings that vary linearly from edge to edge make relations such as "above" faster to learn.
            slope = torch.linspace(-1.0, 1.0, config.grid)[:, None] * torch.randn(hidden)
            nn.init.normal_(table.weight, std=0.2)
            table.weight.data += slope

    def forward(self, images: Tensor) -> Tensor:
        """Compute the embeddings (batch, patch, hidden) of images, row by row.

        images: uint8 (batch, image_size, image_size, 3).
        """
        grid, side = self.config.grid, self.config.patch_size
        pixels = images.to(self.dense.weight.dtype)
        # Normalised by brightness and contrast of the image, so that dark and light images are similar.
        spread = pixels.std((1, 2, 3), keepdim=True).clamp(min=1.0)
        pixels = (pixels - pixels.mean((1, 2, 3), keepdim=True)) / spread
        # (batch, row, y, column, x, 3) -> (batch, patch, 3 * side * side)
        patches = pixels.reshape(-1, grid, side, grid, side, 3).transpose(2, 3).reshape(-1, grid * grid, 3 * side**2)
        positions = self.row_embeddings.weight[:, None] + self.column_embeddings.weight[None]
        activations = F.gelu(self.dense(patches) + positions.flatten(0, 1))
        normalised: Tensor = self.LayerNorm(self.projection(activations) + positions.flatten(0, 1))
        return normalised


class Captioner(nn.Module):
    """A BERT encoder of image patches, and a BERT decoder with cross-attention that generates the caption."""

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = PatchEmbeddings(config)
        self.vision = BertModel(config.vision, add_pooling_layer=False)
        self.text = BertLMHeadModel(config.text)

    def encode(self, images: Tensor) -> Tensor:
        """Compute the hidden states (batch, patch, hidden) of images.

        images: uint8 (batch, image_size, image_size, 3). Raises ValueError for another shape or type.
        """
        side = self.config.image_size
        if images.dim() != 4 or images.shape[1:] != (side, side, 3) or images.dtype != torch.uint8:
            raise ValueError(
                f"the images have shape {tuple(images.shape)} and {images.dtype}: they must be uint8 "
                f"(batch, {side}, {side}, 3), as `fit_image` returns one"
            )
        # The embeddings of patches contain their positions, so they enter the first layer unchanged.
        states: Tensor = self.vision(encoder_embeds=self.patches(images)).last_hidden_state
        return states

    def forward(self, images: Tensor, input_ids: Tensor, **text_arguments: Any) -> CausalLMOutput:
        """Compute the logits of the token after each token of the images' captions.

        images: as in `encode`. input_ids: (batch, seq). text_arguments: as in BertLMHeadModel.forward.
        """
        outputs: CausalLMOutput = self.text(input_ids, encoder_hidden_states=self.encode(images), **text_arguments)
        return outputs


# ---------------------------------------------------------------------------- loaded captioner


@dataclass(frozen=True)
class LoadedCaptioner:
    """A captioner in evaluation mode with frozen parameters, its tokenizer, and its device."""

    name: str
    model: Captioner
    tokenizer: Tokenizer
    device: torch.device

    @property
    def config(self) -> CaptionerConfig:
        """The configuration of the model."""
        return self.model.config

    @torch.no_grad()
    def caption_ids(self, images: np.ndarray) -> list[tuple[int, ...]]:
        """Generate captions with greedy decoding.

        images: uint8 (batch, image_size, image_size, 3).
        Returns the token ids of each caption, from [CLS] to [SEP]. A caption of the maximum length can lack [SEP].
        """
        states = self.model.encode(torch.from_numpy(images).to(self.device))
        start, end = self.tokenizer.first_id, self.tokenizer.end_id
        prompt = torch.full((len(images), 1), start, device=self.device)
        max_new_tokens = self.config.text.max_position_embeddings - 1
        sequences = generate(
            self.model.text, prompt, max_new_tokens=max_new_tokens, eos_token_id=end, encoder_hidden_states=states
        )
        return [_truncate_after(row, end) for row in sequences.tolist()]

    def captions(self, images: np.ndarray) -> list[str]:
        """Return a caption for each image of uint8 (batch, image_size, image_size, 3)."""
        return [self.decode(ids) for ids in self.caption_ids(images)]

    def caption(self, picture: np.ndarray) -> str:
        """Return the caption of an image of any size, uint8 (rows, columns, 3); its central square is used."""
        return self.captions(fit_image(picture, self.config.image_size)[None])[0]

    def decode(self, ids: tuple[int, ...]) -> str:
        """Return the words of a caption, without [CLS], [SEP] and padding."""
        special_ids = (self.tokenizer.first_id, self.tokenizer.end_id, self.tokenizer.pad_id)
        return " ".join(self.tokenizer.token_of(number) for number in ids if number not in special_ids)

    sentence = RenamedAttribute("decode")


def _truncate_after(ids: list[int], end: int) -> tuple[int, ...]:
    """Return the ids up to and including the first `end`."""
    return tuple(ids[: ids.index(end) + 1] if end in ids else ids)


def fit_image(picture: np.ndarray, size: int) -> np.ndarray:
    """Return the central square of an image, resized to uint8 (size, size, 3).

    picture: uint8 (rows, columns, 3). size: pixels per side.
    Raises Refused for another shape or type.
    """
    if not isinstance(picture, np.ndarray):
        raise Refused(f"the picture is {short_repr(picture)}: it must be a uint8 array (rows, columns, 3)")
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or 0 in picture.shape:
        raise Refused(
            f"the picture has shape {picture.shape} and type {picture.dtype}: it must be uint8 (rows, columns, 3)"
        )
    rows, columns, _ = picture.shape
    side = min(rows, columns)
    top, left = (rows - side) // 2, (columns - side) // 2
    square = np.array(
        picture[top : top + side, left : left + side]
    )  # a copy, since torch does not accept read-only arrays
    if side == size:
        return square
    channels = torch.from_numpy(square).permute(2, 0, 1)[None].float()
    resized = F.interpolate(channels, (size, size), mode="bilinear", antialias=True, align_corners=False)
    return resized[0].permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8).numpy()


# ---------------------------------------------------------------------------- files


def save_captioner(
    model: Captioner, words: Sequence[str], folder: str | Path, dtype: torch.dtype | None = None
) -> None:
    """Write `captioner.json`, the weights and the vocabulary to a folder, each file completely or not at all.

    words: the vocabulary, in the order of the token ids. dtype: the dtype of the file; None keeps that of the weights.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = tensors_for_file(model.state_dict(keep_vars=True), dtype)
    sizes = json.dumps(model.config.to_dict(), indent=2, sort_keys=True) + "\n"
    write_vocabulary(words, folder)
    write_atomically(folder / CAPTIONER_FILE, sizes)
    write_atomically(folder / WEIGHTS_FILE, lambda path: save_file(tensors, path, metadata={"format": "pt"}))


def write_vocabulary(words: Sequence[str], folder: Path) -> None:
    """Write a vocabulary to a folder in the form that `Tokenizer.from_folder` reads."""
    lines = "\n".join(words) + "\n"
    write_atomically(folder / VOCABULARY_FILE, lines)


@validate_arguments
def load_captioner(name: str | os.PathLike[str] = BUNDLED_CAPTIONER, *, device: str | None = None) -> LoadedCaptioner:
    """Load a captioner in evaluation mode with frozen parameters.

    name: the bundled captioner or a folder. device: "cuda", "mps", "cpu" or None, as in `best_device`.
    Raises CheckpointError if there is no captioner, or its files do not fit together. Raises Refused for an unknown
    device.
    """
    torch_device = best_device(device)
    folder = ASSETS / BUNDLED_CAPTIONER if name == BUNDLED_CAPTIONER else Path(name)
    if not (folder / CAPTIONER_FILE).is_file():
        raise CheckpointError(f"{name} is no captioner: give {BUNDLED_CAPTIONER} or a folder with {CAPTIONER_FILE}")
    try:
        values = read_json_object(folder / CAPTIONER_FILE)
        config = CaptionerConfig.from_dict(values)
        tokenizer = Tokenizer.from_folder(folder)
        tokenizer.check_against(config.text)
        if len(tokenizer) != config.text.vocab_size:  # captioners have no unused word embeddings
            raise Refused(
                f"the tokenizer has {len(tokenizer)} tokens and the model {config.text.vocab_size}: the numbers must "
                "be equal"
            )
        weights = read_tensors(folder / WEIGHTS_FILE)
        check_layers(config.vision, weights, "vision.", str(folder))
        check_layers(config.text, weights, "text.bert.", str(folder))
        with on_meta_device():
            model = Captioner(config)
        _load_weights(model, weights, str(folder))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"the captioner in {folder} cannot be used: {error}") from error
    return LoadedCaptioner(str(name), model.requires_grad_(False).to(torch_device).eval(), tokenizer, torch_device)


def _load_weights(model: Captioner, weights: Mapping[str, Tensor], source: str) -> None:
    """Allocate a model on the meta device, and copy weights into it; raise Refused unless all names and shapes fit."""
    parameters = model.state_dict(keep_vars=True)
    provided = {id(parameters[name]) for name in parameters.keys() & weights.keys()}
    missing = [name for name, tensor in parameters.items() if name not in weights and id(tensor) not in provided]
    unknown = [name for name in weights if name not in parameters]
    if missing or unknown:
        raise Refused(f"{len(missing)} weights are missing and {len(unknown)} unknown, first {(missing + unknown)[0]}")
    for name, tensor in weights.items():
        shape = tuple(parameters[name].shape)
        if tuple(tensor.shape) != shape:
            raise Refused(f"{name} has shape {tuple(tensor.shape)}: the configuration requires {shape}")
    check_weights(weights, source)
    allocate(model)
    model.load_state_dict(weights, strict=False)
