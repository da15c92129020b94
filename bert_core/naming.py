"""The names of a BERT's weights: yesterday's spellings turned into today's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Weight = TypeVar("Weight")  # a tensor or an array: only its name matters here


def rename(state_dict: Mapping[str, Weight]) -> dict[str, Weight]:
    """The same weights under today's names: `gamma` and `beta` become weight and bias, `bert.` is put in front.

    The decoder of a captioner loses its `text_decoder.`; the captioner's other parts keep their names.
    """
    inner = "text_decoder." if any(key.startswith("text_decoder.") for key in state_dict) else "module."
    prefixed = any(key.removeprefix(inner).startswith(("bert.", "cls.")) for key in state_dict)
    renamed = {}
    for key, value in state_dict.items():
        name = key.removeprefix(inner)
        if name.endswith(".gamma"):
            name = name.removesuffix("gamma") + "weight"
        elif name.endswith(".beta"):
            name = name.removesuffix("beta") + "bias"
        if not prefixed and name.startswith(("embeddings.", "encoder.", "pooler.")):
            name = "bert." + name
        renamed[name] = value
    return renamed
