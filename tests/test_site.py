"""The files of the browser edition: the pinned runtime, and compressed weights."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np

from tools import browser_runtime
from viz_app.site.compression import compress_parts


def test_the_runtime_is_that_of_the_pinned_package() -> None:
    """Each file has the bytes of the npm package, and the description is that of these files."""
    source, target = browser_runtime.SOURCE, browser_runtime.TARGET
    package = json.loads((browser_runtime.ROOT / "package.json").read_text(encoding="utf-8"))
    for name in browser_runtime.MODULES:
        assert (target / f"{name}.js").read_bytes() == (source / f"{name}.mjs").read_bytes()
    compressed = (target / browser_runtime.COMPRESSED).read_bytes()
    assert zlib.decompress(compressed, -zlib.MAX_WBITS) == (source / browser_runtime.WEBASSEMBLY).read_bytes()
    description = json.loads((target / browser_runtime.DESCRIPTION).read_text(encoding="utf-8"))
    assert description == browser_runtime.describe()
    assert description["version"] == package["devDependencies"]["onnxruntime-web"]


def test_compressed_parts_replace_the_weights(tmp_path: Path) -> None:
    """They are smaller, contain the same bytes, and are listed; a second call changes nothing."""
    draw = np.random.default_rng(0)
    contents = {
        "weights-0.bin": draw.normal(0, 0.02, 40_000).astype("<f2").tobytes(),
        "weights-1.bin": draw.normal(0, 0.02, 1_000).astype("<f4").tobytes(),
    }
    files = [
        {"name": "model.onnx", "bytes": 4},
        *({"name": name, "bytes": len(part)} for name, part in contents.items()),
    ]
    (tmp_path / "model.json").write_text(json.dumps({"version": "1", "files": files}))
    for name, content in {"model.onnx": b"onnx", **contents}.items():
        (tmp_path / name).write_bytes(content)
    for _ in range(2):
        compress_parts(tmp_path)
        description = json.loads((tmp_path / "model.json").read_text())
        assert description["version"] == "1"
        assert description["files"][0] == files[0]
        listed = {file.get("compressed_name", file["name"]) for file in description["files"]}
        assert {path.name for path in tmp_path.iterdir()} == {"model.json", *listed}
        for entry in description["files"][1:]:
            compressed = (tmp_path / entry["compressed_name"]).read_bytes()
            assert len(compressed) == entry["compressed_bytes"] < entry["bytes"]
            first, second = np.frombuffer(zlib.decompress(compressed, -zlib.MAX_WBITS), np.uint8).reshape(2, -1)
            assert np.stack([first, second], axis=1).tobytes() == contents[entry["name"]]
