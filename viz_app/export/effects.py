"""The effects of patches with the tokens at their positions, as numbers and as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_core.records import MeanOf, PatchBand, Patches, source_labels
from bert_core.refused import Refused
from viz_app.export import EFFECT_KINDS
from viz_app.export.tables import labelled_csv, npz


def shares(patches: Patches) -> np.ndarray:
    """Return the effects of patches, or the change of the answer if the source is a mean, which has no own answer."""
    if isinstance(patches.source, MeanOf):
        moved: np.ndarray = patches.values - patches.base_value
        return moved
    return patches.effects


def strongest(patches: Patches) -> tuple[int, ...]:
    """Return the index of the largest effect in magnitude; for states, the first and last depth are left out."""
    effects = np.abs(shares(patches))
    if patches.kind == "state" and len(effects) > 2:
        effects[[0, -1]] = np.nan
    return tuple(int(number) for number in np.unravel_index(np.nanargmax(effects), effects.shape))


def both_labels(labels: Sequence[str], source_labels: Sequence[str]) -> list[str]:
    """Return the label of each token: both tokens where the texts differ."""
    return [
        label if label == source_label else f"{label} → {source_label or 'none'}"
        for label, source_label in zip(labels, source_labels, strict=True)
    ]


def effects_file(exact: Patches, estimate: Patches, kind: str, band: PatchBand | None = None) -> bytes:
    """Return the exact and estimated effect of every patch as a file of one of `EFFECT_KINDS`.

    CSV has a line for each patch. NPZ and JSON have arrays by the axes of the patches, and the answers of both texts;
    JSON has null where nothing was patched. band: the lowest and highest answers with patches of random texts.
    Raises Refused for another kind, and if both texts give the same answer.
    """
    if kind not in EFFECT_KINDS:
        raise Refused(f"a file of kind {kind!r} is unknown: one of {', '.join(EFFECT_KINDS)}")
    numbers = {"value": exact.values, "effect": shares(exact)}
    numbers |= {"estimated_value": estimate.values, "estimated_effect": shares(estimate)}
    if band is not None:
        numbers |= {"random_low": band.low, "random_high": band.high}
    encoding = exact.text
    words = {"token": list(encoding.tokens), "source_token": source_labels(exact.source, encoding, exact.partners)}
    if kind == "csv":
        table = exact.table("value")
        index = {name: table[name].to_numpy() for name in table.columns if name not in numbers}
        return labelled_csv({**index, **{name: values.ravel() for name, values in numbers.items()}})
    ends = {"base_value": exact.base_value, "source_value": exact.source_value}
    if kind == "npz":
        arrays = numbers | {name: np.array(value) for name, value in ends.items()}
        return npz(arrays, **words, what=[exact.kind], axes=exact.axes)
    document: dict[str, Any] = {"what": exact.kind, "axes": exact.axes, **words}
    document |= {name: _json_values(np.asarray(value)) for name, value in {**ends, **numbers}.items()}
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "replace")


def _json_values(values: np.ndarray) -> object:
    """Return an array as nested lists for JSON, with None for NaN."""
    nested = values.astype(object)
    nested[np.isnan(values)] = None
    return nested.tolist()
