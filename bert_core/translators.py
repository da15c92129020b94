"""The affine maps of a tuned lens: what brings the states of each layer to where the masked-word head reads them.

They are a file of their own beside a checkpoint, and belong to its weights: other weights refuse them.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from bert_core.checkpoint import CheckpointError, write_atomically
from bert_core.config import BertConfig
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.refused import validate_arguments

FILE = "tuned_lens.safetensors"
_MODEL = "model"  # in the file's header: the fingerprint of the model that it was trained for


class Translators(nn.ModuleList):
    """One affine map a depth, h + W h + b, all zero at first; the last depth needs none.

    Depth 0 is the embeddings, depth n + 1 what leaves layer n.
    Source: Belrose 2023, section 3 (arXiv:2303.08112).
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(nn.Linear(config.hidden_size, config.hidden_size) for _ in range(config.num_hidden_layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, depth: int, states: Tensor) -> Tensor:
        """(..., hidden) of a depth -> the same shape, as the last depth would have it."""
        if depth == len(self):
            return states
        moved: Tensor = states + self[depth](states)
        return moved

    def on_device_of(self, states: Tensor) -> Translators:
        """These translators where the states are: themselves, or a copy, so that the caller's stay where they are."""
        if next(self.parameters()).device == states.device:
            return self
        return copy.deepcopy(self).to(states.device)


def write_translators(translators: Translators, loaded: LoadedModel, folder: Path) -> None:
    """Write the maps to a folder as float16, for the weights of this model."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().to("cpu", torch.float16) for name, value in translators.state_dict().items()}
    header = {_MODEL: fingerprint(loaded)}  # one key alone: safetensors writes several in any order
    write_atomically(folder / FILE, lambda path: save_file(tensors, path, metadata=header))


@validate_arguments
def read_translators(loaded: LoadedModel, folder: Path | None = None) -> Translators | None:
    """The maps that lie beside a model's weights, or in another folder; None where there are none.

    Raises CheckpointError if the file is broken, was trained for other weights, or by an earlier version.
    """
    path = Path(loaded.report.source if folder is None else folder) / FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118, no mapping
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    translators = Translators(loaded.config)
    wanted = {name: tuple(value.shape) for name, value in translators.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if found != wanted or header.get(_MODEL) != fingerprint(loaded):
        raise CheckpointError(
            f"the tuned lens in {path} was trained for other weights than those of {loaded.name}, or by an earlier "
            f"version of Headlight: `headlight tune-lens TEXT --model {loaded.name} --folder FOLDER` trains it again"
        )
    translators.load_state_dict(tensors)
    return translators.requires_grad_(False).eval().to(loaded.device)
