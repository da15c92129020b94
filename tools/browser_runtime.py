"""Copy the pinned ONNX Runtime Web from node_modules to the package: python -m tools.browser_runtime.

The WebAssembly file is stored compressed, because many hosts of static files do not compress it.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "node_modules" / "onnxruntime-web" / "dist"
TARGET = ROOT / "viz_app" / "site" / "runtime"
MODULES = ("ort.wasm.min", "ort-wasm-simd-threaded")
WEBASSEMBLY = "ort-wasm-simd-threaded.wasm"
COMPRESSED = f"{WEBASSEMBLY}.deflated"
DESCRIPTION = "runtime.json"


def deflated(data: bytes) -> bytes:
    """Return data compressed with deflate, without a header, as `DecompressionStream("deflate-raw")` reads it."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    return compressor.compress(data) + compressor.flush()


def describe() -> dict[str, object]:
    """Return the version of the runtime, and its WebAssembly file as the description of a model lists a file."""
    version = json.loads((SOURCE.parent / "package.json").read_text(encoding="utf-8"))["version"]
    sizes = {"bytes": (SOURCE / WEBASSEMBLY).stat().st_size, "compressed_bytes": (TARGET / COMPRESSED).stat().st_size}
    return {"version": version, "file": {"name": WEBASSEMBLY, "compressed_name": COMPRESSED, **sizes, "planes": 1}}


def main() -> None:
    """Copy the files, and write their description."""
    for name in MODULES:  # many hosts of static files do not know that .mjs is JavaScript
        (TARGET / f"{name}.js").write_bytes((SOURCE / f"{name}.mjs").read_bytes())
    (TARGET / COMPRESSED).write_bytes(deflated((SOURCE / WEBASSEMBLY).read_bytes()))
    (TARGET / DESCRIPTION).write_text(json.dumps(describe(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
