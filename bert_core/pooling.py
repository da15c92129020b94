"""Pooling of hidden states into a sentence vector, and the files of sentence-transformers that describe it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from bert_core.checkpoint import CheckpointError, write_atomically
from bert_core.config import MAX_JSON_BYTES, MAX_SIZE, read_json_object, read_text
from bert_core.deprecation import RenamedAttribute
from bert_core.refused import Refused, require_int, short_repr

# Pooling modes by their current names, with the keys of the first versions of sentence-transformers, which all read.
POOLING_MODES: Mapping[str, str] = {
    "cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens", "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}  # fmt: skip
MODULES_FILE = "modules.json"
MODULE_CONFIG_FILE = "config.json"  # the settings of a module, in its folder
PROMPTS_FILE = "config_sentence_transformers.json"
# Files in the folder of the encoder that state the maximum length of a text; the current name comes first.
SENTENCE_CONFIG_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# Names of the folders of modules, in a .zip file and on the hub.
MODULE_FOLDER = re.compile(r"\d_\w{1,40}")
SUPPORTED_MODULES = (["Transformer"], ["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])


@dataclass(frozen=True)
class Pooling:
    """The pooling of a sentence encoder: how the hidden states of a text become one vector.

    mode: "cls" and "lasttoken" take the state of the first or last token. "mean" and "max" are over all tokens,
        special ones included, "max" for each dimension. "mean_sqrt_len_tokens" is the sum of the states divided by the
        square root of their number. "weightedmean" is the mean weighted by the position, counted from 1.
    normalize: divide the vector by its Euclidean norm.
    max_length: maximum number of tokens of a text, special ones included; None uses the limit of the encoder.
    lower_case: convert texts to lower case before they are tokenized.
    Raises Refused for another mode or a max_length below 3.
    """

    mode: str = "mean"
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str) or self.mode not in POOLING_MODES:
            allowed = ", ".join(POOLING_MODES)
            raise Refused(f"the pooling mode is {short_repr(self.mode)}: it must be one of {allowed}")
        if self.max_length is not None:
            object.__setattr__(self, "max_length", require_int("max_seq_length", self.max_length, 3))

    def pooled_positions(self, tokens: int) -> tuple[int, ...]:
        """Return the positions whose states are pooled, for a text with this number of tokens."""
        if self.mode in ("cls", "lasttoken"):
            return (0,) if self.mode == "cls" else (tokens - 1,)
        return tuple(range(tokens))

    def weights(self, states: Tensor) -> Tensor:
        """Compute the weights of the states, whose weighted sum over the rows is the pooled vector.

        states: (..., row, hidden), at `pooled_positions` only.
        Returns (..., row, hidden). For "max" the weight is 1 at the largest value and 0 elsewhere.
        """
        rows = states.shape[-2]
        if self.mode == "max":
            largest = states.detach().argmax(-2, keepdim=True)
            return torch.zeros_like(states).scatter_(-2, largest, 1.0)
        weights = torch.ones(rows, dtype=states.dtype, device=states.device)
        if self.mode == "weightedmean":
            weights = weights.cumsum(0)
        weights = weights / (rows**0.5 if self.mode == "mean_sqrt_len_tokens" else weights.sum())
        return weights[:, None].expand_as(states)

    def pool(self, states: Tensor) -> Tensor:
        """Compute the pooled vector (..., hidden) before normalisation, from states as in `weights`."""
        return (self.weights(states) * states).sum(-2)

    rows = RenamedAttribute("pooled_positions")
    shares = RenamedAttribute("weights")
    pooled = RenamedAttribute("pool")


def read_pooling(folder: Path) -> tuple[Path, Pooling | None]:
    """Read the pooling of a checkpoint folder of sentence-transformers.

    Returns the folder of the encoder and its pooling. For a folder without `modules.json` these are the folder itself
    and None.
    Raises CheckpointError if the modules are not supported, missing, or outside the folder.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return folder, None
    try:
        modules = _read_modules(path)
        kinds = [kind for kind, _ in modules]
        if (message := unsupported_modules(kinds)) is not None:
            raise Refused(f"{path} names {message}. Remove the file to read the encoder only")
        encoder = folder / modules[0][1]
        if not (encoder / MODULE_CONFIG_FILE).is_file():
            raise Refused(f"{path} names the folder {modules[0][1]!r} of the encoder: it has no {MODULE_CONFIG_FILE}")
        if len(modules) == 1:
            return encoder, None
        if not (folder / modules[1][1] / MODULE_CONFIG_FILE).is_file():
            raise Refused(f"{path} names the folder {modules[1][1]!r} of the pooling: it has no {MODULE_CONFIG_FILE}")
        prompts = folder / PROMPTS_FILE
        values = read_json_object(prompts) if prompts.is_file() else {}
        check_no_prompt(values.get("prompts"), values.get("default_prompt_name"), str(prompts))
        limits = next((encoder / name for name in SENTENCE_CONFIG_FILES if (encoder / name).is_file()), None)
        settings = {} if limits is None else read_json_object(limits)
        lower = settings.get("do_lower_case", False)
        if not isinstance(lower, bool):
            raise Refused(f"do_lower_case in {limits} is {short_repr(lower)}: it must be true or false")
        pooling_file = folder / modules[1][1] / MODULE_CONFIG_FILE
        mode = stated_mode(read_json_object(pooling_file), str(pooling_file))
        max_length = _max_length(settings, encoder / "tokenizer_config.json")
        return encoder, Pooling(mode, "Normalize" in kinds, max_length, lower)
    except (Refused, OSError) as error:
        raise CheckpointError(str(error)) from error


def write_pooling(pooling: Pooling, hidden_size: int, folder: Path) -> None:
    """Write the files of sentence-transformers that `read_pooling` reads, to the folder of an encoder.

    Lower-casing is not written, because the tokenizer's own files contain it.
    pooling: the pooling. hidden_size: width of the hidden states. folder: the folder of the encoder.
    """
    names = ["Transformer", "Pooling", *["Normalize"] * pooling.normalize]
    modules = [
        {
            "idx": number, "name": str(number), "path": f"{number}_{name}" if number else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for number, name in enumerate(names)
    ]  # fmt: skip
    limits = {"max_seq_length": pooling.max_length, "do_lower_case": False}
    pooling_settings = {
        "word_embedding_dimension": hidden_size,
        **{key: mode == pooling.mode for mode, key in POOLING_MODES.items()},
    }
    (folder / "1_Pooling").mkdir()
    for path, content in (
        (folder / MODULES_FILE, modules),
        (folder / SENTENCE_CONFIG_FILES[0], limits),
        (folder / "1_Pooling" / MODULE_CONFIG_FILE, pooling_settings),
    ):
        write_atomically(path, json.dumps(content, indent=2) + "\n")


def _read_modules(path: Path) -> list[tuple[str, str]]:
    """Return the kind and the folder of each module in `modules.json`, in order."""
    try:
        entries = json.loads(read_text(path, MAX_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not a JSON file: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Refused(f"{path} holds {short_repr(entries)}: it must be a list of modules")
    modules = []
    for entry in entries:
        kind, folder = entry.get("type"), entry.get("path", "")
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise Refused(f"{path} names the module {short_repr(entry)}: it must have a type and a path")
        relative = PurePosixPath(folder)
        if relative.is_absolute() or ".." in relative.parts or "\\" in folder or ":" in folder or "\0" in folder:
            raise Refused(f"{path} names the folder {short_repr(folder)}: it must be inside {path.parent}")
        modules.append((module_kind(kind), folder))
    return modules


def module_kind(name: str) -> str:
    """Return the kind of a module of sentence-transformers, by the full name of its class.

    The classes of other packages keep their full name, which matches none of the supported kinds.
    """
    return name.rpartition(".")[2] if name.startswith("sentence_transformers.") else name


def unsupported_modules(kinds: Sequence[str]) -> str | None:
    """Return what modules are given and which are supported, as a part of a message; None for supported modules."""
    if list(kinds) in SUPPORTED_MODULES:
        return None
    supported = "; ".join(", ".join(names) for names in SUPPORTED_MODULES)
    return f"{', '.join(kinds)[:200] or 'no module'}: it must name one of {supported}"


def stated_mode(settings: Mapping[str, Any], source: str) -> str:
    """Return the pooling mode that the settings of a pooling module state; "mean" if they state none.

    source: the file or model, for the message. Raises Refused for several modes.
    """
    given_mode = settings.get("pooling_mode")
    modes = [mode for mode, key in POOLING_MODES.items() if settings.get(key)] if given_mode is None else given_mode
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) > 1 or not all(isinstance(mode, str) for mode in modes):
        allowed = ", ".join(POOLING_MODES)
        raise Refused(f"{source} has the pooling mode {short_repr(modes)}: it must be one of {allowed}")
    return modes[0] if modes else "mean"


def _max_length(settings: Mapping[str, Any], tokenizer: Path) -> int | None:
    """Return the maximum number of tokens of a text; None if no file states one, or a number too large for a limit."""
    limit = settings.get("max_seq_length")
    if limit is None and tokenizer.is_file():
        limit = read_json_object(tokenizer).get("model_max_length")
    return bounded_length(limit)


def bounded_length(limit: int | None) -> int | None:
    """Return a maximum length, or None for a number that is too large for a limit."""
    return None if isinstance(limit, int | float) and limit > MAX_SIZE else limit


def check_no_prompt(prompts: object, name: object, source: str) -> None:
    """Raise Refused if a model prepends a prompt to every text, since results would not be about the text alone.

    prompts: the prompts by name. name: of the default one. source: the file or model, for the message.
    """
    prompt = prompts.get(name) if isinstance(prompts, Mapping) and isinstance(name, str) else None
    if prompt:
        raise Refused(
            f"{source} prepends {short_repr(prompt)} to every text: only models without such a prompt are supported"
        )
