"""Changes of an exported graph that keep its results: one copy of each weight, and an optional backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper


def remove_transposed_weights(model: ModelProto) -> None:
    """Replace products with a transposed weight by a Gemm that transposes, in place.

    A runtime would otherwise compute and keep a second copy of each weight that the backward pass needs.
    """
    graph = model.graph
    weights = {initializer.name for initializer in graph.initializer}
    producers = {name: node for node in graph.node for name in node.output}

    def find_weight(name: str) -> tuple[str, bool]:
        """Return the tensor of which a name is the transpose or a copy, and whether it is the transpose."""
        node = producers.get(name)
        if node is None or node.op_type != "Transpose" or list(node.attribute[0].ints) != [1, 0]:
            return name, False
        source, is_transposed = find_weight(node.input[0])
        return source, not is_transposed

    for node in graph.node:
        if node.op_type not in ("MatMul", "Gemm"):
            continue
        weight, is_transposed = find_weight(node.input[1])
        if weight not in weights:
            continue
        node.input[1] = weight
        if is_transposed:
            was_transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            attributes = [attribute for attribute in node.attribute if attribute.name != "transB"]
            del node.attribute[:]
            node.attribute.extend([*attributes, helper.make_attribute("transB", int(not was_transposed))])
            node.op_type = "Gemm"  # the products with weights are of matrices: there is no batch axis
    _replace(graph.node, _needed_nodes(graph.node, {output.name for output in graph.output}))


def make_gradients_optional(model: ModelProto, gradients: Sequence[str], condition: str) -> None:
    """Move what only the gradients need to a branch of an If node, in place.

    gradients: names of the outputs, which have length 0 on every axis if the condition is false.
    condition: name of the new input, a boolean scalar.
    """
    graph = model.graph
    forward = _needed_nodes(graph.node, {output.name for output in graph.output if output.name not in gradients})
    forward_ids = {id(node) for node in forward}
    backward = [node for node in graph.node if id(node) not in forward_ids]
    outputs = {output.name: output for output in graph.output if output.name in gradients}
    renamed = {name: f"computed_{name}" for name in gradients}
    for node in backward:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    empty = [
        helper.make_node(
            "Constant",
            [],
            [f"empty_{name}"],
            value=helper.make_tensor(f"{name}_value", TensorProto.FLOAT, [0] * _rank(outputs[name]), []),
        )
        for name in gradients
    ]
    branches = {
        "then_branch": _branch("with_gradients", backward, outputs, renamed),
        "else_branch": _branch("without_gradients", empty, outputs, {name: f"empty_{name}" for name in gradients}),
    }
    choice = helper.make_node("If", [condition], list(gradients), name="optional_gradients", **branches)
    for output in outputs.values():  # the lengths differ between the branches
        for dimension in output.type.tensor_type.shape.dim:
            dimension.Clear()
    _replace(graph.node, [*forward, choice])
    graph.input.append(helper.make_tensor_value_info(condition, TensorProto.BOOL, []))


def remove_metadata(model: ModelProto) -> None:
    """Remove the origin of each node, which is larger than the graph, and the inferred shapes, in place."""
    del model.metadata_props[:]
    for graph in _graphs(model.graph):
        del graph.value_info[:]
        graph.ClearField("doc_string")
        for part in (*graph.node, *graph.initializer, *graph.input, *graph.output):
            part.ClearField("doc_string")
            del part.metadata_props[:]


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and those of the branches of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _needed_nodes(nodes: Sequence[NodeProto], names: Iterable[str]) -> list[NodeProto]:
    """Return the nodes that the given tensors need, in their order."""
    tensors, producers = set(names), []
    for node in reversed(nodes):
        if tensors & set(node.output):
            producers.append(node)
            tensors |= set(node.input)
    return producers[::-1]


def _replace(nodes: object, new_nodes: Iterable[NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in new_nodes]
    del nodes[:]  # type: ignore[attr-defined]
    nodes.extend(copies)  # type: ignore[attr-defined]


def _rank(output: onnx.ValueInfoProto) -> int:
    return len(output.type.tensor_type.shape.dim)


def _branch(
    name: str, nodes: Sequence[NodeProto], outputs: dict[str, onnx.ValueInfoProto], names: dict[str, str]
) -> GraphProto:
    """Return a branch with these nodes. names: for each output of the If node its name in the branch."""
    branch_outputs = []
    for output_name, output in outputs.items():
        branch_output = onnx.ValueInfoProto()
        branch_output.CopyFrom(output)
        branch_output.name = names[output_name]
        branch_outputs.append(branch_output)
    return helper.make_graph(nodes, name, [], branch_outputs)
