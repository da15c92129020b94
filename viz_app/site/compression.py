"""Compression of the weights of an exported model, for the transfer to a browser."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import Z_HUFFMAN_ONLY

import numpy as np

from bert_core.checkpoint import write_atomically
from bert_core.onnx_export.export import DESCRIPTION_FILE, GRAPH_FILE
from viz_app.components.attention_view.packing import deflated
from viz_app.export.packing import planes


def compress_parts(folder: Path) -> None:
    """Replace the files of weights in an exported folder by compressed ones, and list these in its description.

    A compressed file is the content in two byte planes, as a raw deflate stream. Files that are compressed already are
    left unchanged.
    folder: written by `export_onnx`.
    """
    description = json.loads((folder / DESCRIPTION_FILE).read_text(encoding="utf-8"))
    raw_files = []
    for entry in description["files"]:
        if entry["name"] == GRAPH_FILE or "compressed_name" in entry:
            continue
        raw_file = folder / entry["name"]
        # The bits of a weight seldom repeat, but the first bytes of weights have few different values.
        compressed = deflated(planes(np.fromfile(raw_file, "<u2")), Z_HUFFMAN_ONLY)
        entry["compressed_name"] = f"{raw_file.name}.deflated"
        entry["compressed_bytes"] = len(compressed)
        write_atomically(folder / entry["compressed_name"], compressed)
        raw_files.append(raw_file)
    write_atomically(folder / DESCRIPTION_FILE, json.dumps(description, indent=1) + "\n")
    for raw_file in raw_files:
        raw_file.unlink()
