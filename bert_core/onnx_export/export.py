"""The exported folder: the graph, its weights, the tokenizer, and a description for programs without Python."""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from bert_core.checkpoint import write_atomically
from bert_core.edits import check_unedited
from bert_core.loading import LoadedModel
from bert_core.refused import Refused, validate_arguments

GRAPH_FILE = "model.onnx"
DESCRIPTION_FILE = "model.json"
REQUIRED_PACKAGES = ("onnx", "onnxscript")


@validate_arguments
def export_onnx(loaded: LoadedModel, folder: str | Path, *, gradients: bool = False) -> list[Path]:
    """Write a model as an ONNX graph that computes attention maps, states and predictions of one text of any length.

    The graph has inputs and outputs named like the fields of `onnx_export.graph.GraphInputs` and `GraphOutputs`, which
    the guide to ONNX lists. The same model gives files with the same bytes. Weights that are exact in float16 are
    stored in float16.
    folder: written with `model.onnx`, `weights-0.bin` and further files of at most 8 MB, the files of the
        tokenizer, and `model.json`, which describes the model. Files of weights of an earlier export are removed.
    gradients: include the gradients of a target with respect to attention maps, head mask and embeddings. They are
        computed if the input `compute_gradients` is true.
    Returns the paths of the written files.
    Raises Refused for a model that cannot be exported: edited, not in float32, with local attention, with a layer
    without heads, or for `gradients` without an MLM and NSP head. Raises Refused if the packages of the extra `site`
    are missing.
    """
    check_unedited(loaded.edits, "the export to ONNX")
    _check_supported(loaded, gradients)
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise Refused(f"{' and '.join(missing)} must be installed for this: pip install 'headlight[site]'")
    from bert_core.onnx_export.graph import GRADIENTS, trace_graph
    from bert_core.onnx_export.rewriting import make_gradients_optional, remove_metadata, remove_transposed_weights
    from bert_core.onnx_export.weights import externalise_weights

    model = trace_graph(on_cpu(loaded), gradients=gradients)
    remove_transposed_weights(model)
    if gradients:
        make_gradients_optional(model, GRADIENTS, "compute_gradients")
    remove_metadata(model)
    files = externalise_weights(model)
    files = {GRAPH_FILE: model.SerializeToString(deterministic=True), **files}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_files = _tokenizer_files(loaded)
    for name, content in {**files, **tokenizer_files}.items():
        write_atomically(folder / name, content)
    for old_part in folder.glob("weights-*.bin"):
        if old_part.name not in files:
            old_part.unlink()
    write_atomically(folder / DESCRIPTION_FILE, json.dumps(_describe(loaded, files, gradients), indent=1) + "\n")
    return [folder / name for name in (*files, *tokenizer_files, DESCRIPTION_FILE)]


def _tokenizer_files(loaded: LoadedModel) -> dict[str, bytes]:
    """Return the content of the files of the tokenizer by name."""
    with tempfile.TemporaryDirectory() as folder:
        loaded.tokenizer.save(folder, segments=bool(loaded.config.type_vocab_size))
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def on_cpu(loaded: LoadedModel) -> LoadedModel:
    """Return the model on the CPU: itself if it is there, and otherwise a copy."""
    if loaded.device.type == "cpu":
        return loaded
    return replace(loaded, model=copy.deepcopy(loaded.model).cpu(), device=torch.device("cpu"))


def _check_supported(loaded: LoadedModel, gradients: bool) -> None:
    """Raise Refused for a model that cannot be exported."""
    config, name = loaded.config, loaded.name
    dtypes = {parameter.dtype for parameter in loaded.model.parameters()}
    if dtypes != {torch.float32}:
        dtype_names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise Refused(f"{name} is in {dtype_names}: only a model in float32 can be exported to ONNX")
    if config.position_scheme.rotation is not None:
        raise Refused(
            f"{name} has rotary positions and local attention: only models without them can be exported to ONNX"
        )
    headless = [
        layer
        for layer in range(config.num_hidden_layers)
        if not config.heads_of(layer) and layer not in config.pruned_layers
    ]
    if headless:
        raise Refused(
            f"layer {headless[0]} of {name} has no attention heads left: only models with a head in each layer that is "
            "not removed can be exported to ONNX"
        )
    if gradients and not (loaded.has_mlm or loaded.has_nsp):
        raise Refused(
            f"{name} has neither a masked language modelling head nor a next-sentence head: it has no target for "
            "gradients"
        )


def _describe(loaded: LoadedModel, files: dict[str, bytes], gradients: bool) -> dict[str, Any]:
    """Return the content of `model.json`.

    The version is a hash of the graph, the weights and the tokenizer, which changes with any of them.
    """
    config = loaded.config
    digest = hashlib.sha256(json.dumps(loaded.tokenizer.rules(), sort_keys=True).encode())
    for content in files.values():
        digest.update(content)
    return {
        "name": Path(loaded.name).name,
        "version": digest.hexdigest()[:16],
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "hidden_size": config.hidden_size,
        "vocabulary": config.vocab_size,
        "max_tokens": config.max_position_embeddings,
        "segments": config.type_vocab_size,
        "has_mlm": loaded.has_mlm,
        "has_nsp": loaded.has_nsp,
        "gradients": gradients,
        "pruned_heads": {str(layer): list(heads) for layer, heads in config.pruned_heads.items()},
        "files": [{"name": name, "bytes": len(content)} for name, content in files.items()],
    }
