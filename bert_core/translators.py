"""The affine maps of a tuned lens, which translate hidden states of each depth for the masked language modelling head.

They are stored in a file next to a checkpoint, and are accepted only for the weights that they were trained for.
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
_MODEL = "model"  # the key of the model's fingerprint in the header of the file


class Translators(nn.ModuleList):
    """One affine map h + W h + b for each depth but the last, with W and b initialised to zero.

    Depth 0 is the embeddings, and depth n + 1 the output of layer n.
    Source: Belrose 2023 (arXiv:2303.08112), section 3.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(nn.Linear(config.hidden_size, config.hidden_size) for _ in range(config.num_hidden_layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, depth: int, states: Tensor) -> Tensor:
        """Translate hidden states of a depth to the last depth.

        depth: 0 for the embeddings, up to the number of layers, whose states are returned unchanged.
        states: (..., hidden). Returns (..., hidden).
        """
        if depth == len(self):
            return states
        translated: Tensor = states + self[depth](states)
        return translated

    def on_device_of(self, states: Tensor) -> Translators:
        """Return the translators on the device of states: themselves, or a copy if they are on another device."""
        if next(self.parameters()).device == states.device:
            return self
        return copy.deepcopy(self).to(states.device)


def write_translators(translators: Translators, loaded: LoadedModel, folder: Path) -> None:
    """Write the maps to a folder as float16, for the weights of a model; the folder is created if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().to("cpu", torch.float16) for name, value in translators.state_dict().items()}
    header = {_MODEL: fingerprint(loaded)}  # a single key, because safetensors writes several in arbitrary order
    write_atomically(folder / FILE, lambda path: save_file(tensors, path, metadata=header))


@validate_arguments
def read_translators(loaded: LoadedModel, folder: Path | None = None) -> Translators | None:
    """Read the maps for a model, with frozen parameters and on its device.

    folder: the folder of the file; None uses the folder of the model's weights.
    Returns None if the folder has no such file.
    Raises CheckpointError if the file is damaged, or was trained for other weights or by an earlier version.
    """
    path = Path(loaded.report.source if folder is None else folder) / FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118, not a mapping
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    translators = Translators(loaded.config)
    expected = {name: tuple(value.shape) for name, value in translators.state_dict().items()}
    actual = {name: tuple(value.shape) for name, value in tensors.items()}
    if actual != expected or header.get(_MODEL) != fingerprint(loaded):
        raise CheckpointError(
            f"the tuned lens in {path} was trained for other weights than those of {loaded.name}, or by an earlier "
            f"version of Headlight: `headlight tune-lens TEXT --model {loaded.name} --folder FOLDER` trains it again"
        )
    translators.load_state_dict(tensors)
    return translators.requires_grad_(False).eval().to(loaded.device)
