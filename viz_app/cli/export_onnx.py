"""The command that writes a model as an ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from viz_app.cli import shared
from viz_app.cli.help import OUTPUT
from viz_app.cli.shared import option, output_folder


def export_onnx(
    out: Annotated[Path, output_folder("The folder of the graph, its weights and the tokenizer.")],
    gradients: Annotated[
        bool,
        option(
            "Include the gradients of a target with respect to attention, head mask and embeddings.",
            "--gradients",
            group=OUTPUT,
        ),
    ] = False,
    model: shared.ModelName = shared.DEFAULT_MODEL,
) -> None:
    """Write a model as an ONNX graph.

    The graph computes attention maps, hidden states and predictions of a text of any length, in every runtime for ONNX.
    Needs the extra `site`.
    """
    from bert_core.onnx_export.export import export_onnx

    loaded = shared.load(model, "cpu")
    shared.note("Tracing the model: about 20 seconds for a small one")
    paths = export_onnx(loaded, out, gradients=gradients)
    size = sum(path.stat().st_size for path in paths)
    typer.echo(f"{len(paths)} files, {size / 1e6:,.1f} MB: {out}")
