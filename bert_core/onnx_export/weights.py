"""The weights of an ONNX graph as external data: float16 where that is exact, in files of limited size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

MIN_VALUES = 256  # smaller tensors stay in the graph
MAX_PART_BYTES = 8_000_000
WEIGHT_FILE = "weights-{number}.bin"


def externalise_weights(model: ModelProto) -> dict[str, bytes]:
    """Move the weights of a graph to files of at most `MAX_PART_BYTES`, in place.

    A tensor whose values are all exact in float16 is stored in float16, and a Cast node restores float32. Other tensors
    stay float32. A tensor that is larger than the rest of a file is split along its first axis, and a Concat node joins
    the pieces. A runtime computes both nodes once, when it loads the model.
    Returns the content of the files by name.
    """
    graph = model.graph
    files: dict[str, bytearray] = {}
    initializers, nodes = [], []
    for initializer in graph.initializer:
        values = numpy_helper.to_array(initializer)
        if values.dtype != np.float32 or values.size < MIN_VALUES:
            initializers.append(initializer)
            continue
        stored = _stored(values)
        is_half = stored.dtype == np.float16
        pieces = []
        for piece in _split_rows(stored, _room(files)):
            content = piece.tobytes()
            if not files or len(content) > _room(files):
                files[WEIGHT_FILE.format(number=len(files))] = bytearray()
            file_name = next(reversed(files))
            pieces.append((piece, file_name, len(files[file_name])))
            files[file_name] += content
        joined_name = f"{initializer.name}_float16" if is_half else initializer.name
        names = [joined_name] if len(pieces) == 1 else [f"{joined_name}_{number}" for number in range(len(pieces))]
        initializers += [_external(name, *piece) for name, piece in zip(names, pieces, strict=True)]
        if len(names) > 1:
            nodes.append(helper.make_node("Concat", names, [joined_name], axis=0))
        if is_half:
            nodes.append(helper.make_node("Cast", [joined_name], [initializer.name], to=TensorProto.FLOAT))
    graph_nodes = [*nodes, *(onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node)]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(graph_nodes)
    graph.initializer.extend(initializers)
    return {name: bytes(content) for name, content in files.items()}


def _stored(values: np.ndarray) -> np.ndarray:
    """Return float32 values as little-endian float16 if that is exact, and otherwise as little-endian float32."""
    with np.errstate(over="ignore"):
        half = values.astype("<f2")
    return half if np.array_equal(half.astype(np.float32), values, equal_nan=True) else values.astype("<f4")


def _room(files: dict[str, bytearray]) -> int:
    """Return the bytes that are free in the last file."""
    return MAX_PART_BYTES - len(files[next(reversed(files))]) if files else MAX_PART_BYTES


def _split_rows(values: np.ndarray, room: int) -> Iterator[np.ndarray]:
    """Yield pieces of consecutive rows that fit into the room, and then into new files; a vector is not split."""
    if values.ndim < 2 or values.nbytes <= room:
        yield values
        return
    row_bytes = values[0].nbytes
    start = 0
    while start < len(values):
        rows = room // row_bytes
        if rows:
            yield values[start : start + rows]
        start += rows
        room = max(MAX_PART_BYTES, row_bytes)


def _external(name: str, values: np.ndarray, file_name: str, offset: int) -> TensorProto:
    """Return a tensor whose values are in a file."""
    tensor = TensorProto(
        name=name,
        dims=values.shape,
        data_type=helper.np_dtype_to_tensor_dtype(values.dtype),
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in (("location", file_name), ("offset", offset), ("length", values.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor
