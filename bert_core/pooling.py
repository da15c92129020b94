"""The states of a text -> its one vector, as a folder of sentence-transformers says; its files, read and written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from bert_core.checkpoint import CheckpointError, write_atomically
from bert_core.config import MAX_JSON_BYTES, MAX_SIZE, read_json_object, read_text
from bert_core.refused import Refused, require_int, short_repr

# How a file of 2019 and one of today call each way; the first is read by both.
POOLING_MODES: Mapping[str, str] = {
    "cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens", "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}  # fmt: skip
MODULES_FILE = "modules.json"
MODULE_CONFIG_FILE = "config.json"  # of a module, in its folder
PROMPTS_FILE = "config_sentence_transformers.json"
# How long a text may be, in the folder of the encoder; today's name first.
SENTENCE_CONFIG_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# Folders of modules in a .zip, and on the hub.
MODULE_FOLDER = re.compile(r"\d_\w{1,40}")
SUPPORTED_MODULES = (["Transformer"], ["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])


@dataclass(frozen=True)
class Pooling:
    """How a model makes one vector of a text's states.

    mode: "cls", the first token's; "lasttoken"; "mean" of all tokens, added ones too; "max" of each of its numbers;
    "mean_sqrt_len_tokens", their sum divided by the root of their count; "weightedmean", by place, from 1.
    normalize: whether the vector is then divided by its length.
    max_length: how many tokens of a text are read; None: as many as the encoder reads.
    lower_case: whether texts are read in lower case whatever the vocabulary.
    """

    mode: str = "mean"
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str) or self.mode not in POOLING_MODES:
            raise Refused(f"the pooling mode is {short_repr(self.mode)}: it must be one of {', '.join(POOLING_MODES)}")
        if self.max_length is not None:
            object.__setattr__(self, "max_length", require_int("max_seq_length", self.max_length, 3))

    def pooled_positions(self, tokens: int) -> tuple[int, ...]:
        """The positions that count, of a text of so many tokens."""
        if self.mode in ("cls", "lasttoken"):
            return (0,) if self.mode == "cls" else (tokens - 1,)
        return tuple(range(tokens))

    def weights(self, states: Tensor) -> Tensor:
        """What each number of each state counts in the vector, which is the sum of their products over the rows.

        states: (..., row, hidden), at `rows` alone. The same shape; of "max" 1 where the largest is, else 0.
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
        """(..., hidden), before it is normalised. states: as for `shares`."""
        return (self.weights(states) * states).sum(-2)


def read_pooling(folder: Path) -> tuple[Path, Pooling | None]:
    """Where the encoder of a checkpoint folder lies, and how it pools; the folder itself and None if it does not say.

    Raises CheckpointError for modules that are not read, that lead out of the folder or are not there.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return folder, None
    try:
        modules = _modules(path)
        kinds = [kind for kind, _ in modules]
        if kinds not in SUPPORTED_MODULES:
            known = "; ".join(", ".join(names) for names in SUPPORTED_MODULES)
            raise Refused(
                f"{path} names {', '.join(kinds)[:200] or 'no module'}: what is read is one of {known}; without that "
                "file the encoder alone is"
            )
        encoder = folder / modules[0][1]
        if not (encoder / MODULE_CONFIG_FILE).is_file():
            raise Refused(f"{path} names the folder {modules[0][1]!r} for the encoder: it has no {MODULE_CONFIG_FILE}")
        if len(modules) == 1:
            return encoder, None
        if not (folder / modules[1][1] / MODULE_CONFIG_FILE).is_file():
            raise Refused(f"{path} names the folder {modules[1][1]!r} for the pooling: it has no {MODULE_CONFIG_FILE}")
        _check_prompts(folder / PROMPTS_FILE)
        limits = next((encoder / name for name in SENTENCE_CONFIG_FILES if (encoder / name).is_file()), None)
        said = {} if limits is None else read_json_object(limits)
        lower = said.get("do_lower_case", False)
        if not isinstance(lower, bool):
            raise Refused(f"do_lower_case in {limits} is {short_repr(lower)}: it must be true or false")
        mode = _mode(folder / modules[1][1] / MODULE_CONFIG_FILE)
        return encoder, Pooling(mode, "Normalize" in kinds, _limit(said, encoder / "tokenizer_config.json"), lower)
    except (Refused, OSError) as error:
        raise CheckpointError(str(error)) from error


def write_pooling(pooling: Pooling, hidden_size: int, folder: Path) -> None:
    """Write what `read_pooling` reads, and sentence-transformers too, beside an encoder.

    Its tokenizer reads in lower case by itself, if that is wanted.
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
    own = {
        "word_embedding_dimension": hidden_size,
        **{key: mode == pooling.mode for mode, key in POOLING_MODES.items()},
    }
    (folder / "1_Pooling").mkdir()
    for path, content in (
        (folder / MODULES_FILE, modules),
        (folder / SENTENCE_CONFIG_FILES[0], limits),
        (folder / "1_Pooling" / MODULE_CONFIG_FILE, own),
    ):
        write_atomically(path, json.dumps(content, indent=2) + "\n")


def _modules(path: Path) -> list[tuple[str, str]]:
    """The kind and the folder of each module, in their order."""
    try:
        listed = json.loads(read_text(path, MAX_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not a JSON file: {error}") from error
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise Refused(f"{path} holds {short_repr(listed)}: it must be a list of modules")
    found = []
    for one in listed:
        kind, place = one.get("type"), one.get("path", "")
        if not isinstance(kind, str) or not isinstance(place, str):
            raise Refused(f"{path} names the module {short_repr(one)}: it must have a type and a path")
        inside = PurePosixPath(place)
        if inside.is_absolute() or ".." in inside.parts or "\\" in place or ":" in place or "\0" in place:
            raise Refused(f"{path} names the folder {short_repr(place)}: it must be one inside {path.parent}")
        own = kind.startswith("sentence_transformers.")  # another's code is never looked for
        found.append((kind.rpartition(".")[2] if own else kind, place))
    return found


def _mode(path: Path) -> str:
    values = read_json_object(path)
    given = values.get("pooling_mode")
    modes = [mode for mode, key in POOLING_MODES.items() if values.get(key)] if given is None else given
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) > 1 or not all(isinstance(mode, str) for mode in modes):
        raise Refused(f"{path} pools by {short_repr(modes)}: it must be by one of {', '.join(POOLING_MODES)}")
    return modes[0] if modes else "mean"


def _limit(said: Mapping[str, Any], tokenizer: Path) -> int | None:
    """How many tokens of a text are read, if its files say so; some have a number there that means any."""
    limit = said.get("max_seq_length")
    if limit is None and tokenizer.is_file():
        limit = read_json_object(tokenizer).get("model_max_length")
    return None if isinstance(limit, int | float) and limit > MAX_SIZE else limit


def _check_prompts(path: Path) -> None:
    """Refuse a prompt that is put before every text: what is read would not be what was typed."""
    values: dict[str, Any] = read_json_object(path) if path.is_file() else {}
    name, prompts = values.get("default_prompt_name"), values.get("prompts")
    prompt = prompts.get(name) if isinstance(prompts, Mapping) and isinstance(name, str) else None
    if prompt:
        raise Refused(f"{path} puts {short_repr(prompt)} before every text: only models without such a prompt are read")
