"""The graph of a model: its forward pass and, with gradients, the backward pass, traced as ONNX operators."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from bert_core.loading import LoadedModel
from bert_core.recording import record
from bert_core.refused import Refused

OPSET = 18
# Lengths of the traced example. Lengths that are equal to each other or to a size of the model would be taken for one
# and the same size, and become a constant of the graph.
EXAMPLE_LENGTHS = (37, 41, 43, 47, 53, 59, 61, 67, 71, 73)


class GraphInputs(NamedTuple):
    """The inputs of a graph, in their order. An input that a model lacks is None.

    seq: number of tokens. position: number of rows of `logits`. term: number of terms of the target.
    input_ids: (seq,) int64.
    attention_mask: (seq,) float32, 1 for a token that can be attended to and 0 for one that cannot.
    head_mask: (layer, head) float32, factors of the outputs of the heads: 1 on, 0 off.
    token_type_ids: (seq,) int64, the segments; only in a model with segments.
    positions: (position,) int64, where the tokens are predicted; only with an MLM head.
    baseline_ids: (seq,) int64, the token ids from which the embeddings are interpolated.
    interpolation: () float32, from 0, the embeddings of `baseline_ids`, to 1, those of `input_ids`.
    target_rows: (term,) int64, for each term of the target the row of `logits`.
    target_tokens: (term,) int64, for each term the id of the token.
    target_weights: (term,) float32, for each term the factor of the log-probability of the token.
    next_sentence_weights: (2,) float32, factors of the two next-sentence logits in the target; only with an NSP head.
    """

    input_ids: Tensor
    attention_mask: Tensor
    head_mask: Tensor
    token_type_ids: Tensor | None = None
    positions: Tensor | None = None
    baseline_ids: Tensor | None = None
    interpolation: Tensor | None = None
    target_rows: Tensor | None = None
    target_tokens: Tensor | None = None
    target_weights: Tensor | None = None
    next_sentence_weights: Tensor | None = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The inputs of this model by name."""
        return {name: tensor for name, tensor in self._asdict().items() if tensor is not None}


class GraphOutputs(NamedTuple):
    """The outputs of a graph, in their order. An output that a model lacks is None.

    attention: (layer, head, query, key), after the softmax and before the head mask; NaN for a pruned head.
    hidden_states: (layer + 1, seq, hidden), those that enter each layer, and the final ones.
    logits: (position, vocab), of the MLM head at `positions`.
    next_sentence_logits: (2,), of the NSP head; index 0 means that the second sentence follows.
    embeddings: (seq, embedding), the interpolated embeddings of the tokens.
    target_value: (), the sum over the terms of weight x log-probability, plus the weighted next-sentence logits.
    attention_gradient: as `attention`, the gradient of the target value.
    head_mask_gradient: (layer, head); NaN for a pruned head.
    embedding_gradient: (seq, embedding).
    """

    attention: Tensor
    hidden_states: Tensor
    logits: Tensor | None = None
    next_sentence_logits: Tensor | None = None
    embeddings: Tensor | None = None
    target_value: Tensor | None = None
    attention_gradient: Tensor | None = None
    head_mask_gradient: Tensor | None = None
    embedding_gradient: Tensor | None = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The outputs of this model by name."""
        return {name: tensor for name, tensor in self._asdict().items() if tensor is not None}


GRADIENTS = ("attention_gradient", "head_mask_gradient", "embedding_gradient")


def compute_outputs(loaded: LoadedModel, inputs: GraphInputs) -> GraphOutputs:
    """Compute the outputs of the graph with PyTorch; this function is traced.

    The gradients are computed if the inputs have an `interpolation`.
    """
    model, config = loaded.model, loaded.config
    embedding = model.bert.embeddings.word_embeddings
    with_gradients = inputs.interpolation is not None
    with torch.enable_grad(), record() as recording:
        head_mask = inputs.head_mask.detach().requires_grad_()
        embeddings = embedding(inputs.input_ids)
        if inputs.interpolation is not None and inputs.baseline_ids is not None:
            share = inputs.interpolation
            embeddings = (1 - share) * embedding(inputs.baseline_ids) + share * embeddings
        embeddings = embeddings[None].detach().requires_grad_()
        outputs = model.bert(
            inputs_embeds=embeddings,
            token_type_ids=None if inputs.token_type_ids is None else inputs.token_type_ids[None],
            position_ids=model.bert.embeddings.create_position_ids(inputs.input_ids[None]),
            attention_mask=inputs.attention_mask[None],
            head_mask=head_mask,
            output_hidden_states=True,
        )
        maps = [
            layer_map for layer in range(config.num_hidden_layers) if (layer_map := recording.attention[layer]).numel()
        ]
        logits = next_logits = None
        if inputs.positions is not None:
            logits = model.cls.predictions(outputs.last_hidden_state[0, inputs.positions])
        if loaded.has_nsp:
            next_logits = model.cls.seq_relationship(outputs.pooler_output)[0]
        value, gradients = None, None
        if with_gradients:
            terms = []
            if logits is not None:
                log_probabilities = logits.log_softmax(-1)[inputs.target_rows, inputs.target_tokens]
                terms.append((log_probabilities * inputs.target_weights).sum())
            if next_logits is not None:
                terms.append((next_logits * inputs.next_sentence_weights).sum())
            value = sum(terms[1:], terms[0])
            gradients = torch.autograd.grad(value, [*maps, head_mask, embeddings])
    outputs_without_gradients = GraphOutputs(
        attention=_stack_maps(loaded, maps),
        hidden_states=torch.cat(outputs.hidden_states),
        logits=logits,
        next_sentence_logits=next_logits,
    )
    if gradients is None or value is None:
        return _detached(outputs_without_gradients)
    *map_gradients, head_mask_gradient, embedding_gradient = gradients
    places = _map_places(loaded)
    if places is not None:
        is_pruned = torch.from_numpy(places == places.max())
        head_mask_gradient = head_mask_gradient.masked_fill(is_pruned, torch.nan)
    return _detached(
        outputs_without_gradients._replace(
            embeddings=embeddings[0],
            target_value=value,
            attention_gradient=_stack_maps(loaded, map_gradients),
            head_mask_gradient=head_mask_gradient,
            embedding_gradient=embedding_gradient[0],
        )
    )


def _map_places(loaded: LoadedModel) -> np.ndarray | None:
    """Return the place of each head (layer, head) among all existing heads, with their number for a pruned head.

    Returns None if no head is pruned.
    """
    config = loaded.config
    heads = [config.heads_of(layer) for layer in range(config.num_hidden_layers)]
    count = sum(map(len, heads))
    places = np.full((config.num_hidden_layers, config.num_attention_heads), count)
    if count == places.size:
        return None
    next_place = itertools.count()
    for layer, layer_heads in enumerate(heads):
        for head in layer_heads:
            places[layer, head] = next(next_place)
    return places


def _stack_maps(loaded: LoadedModel, maps: list[Tensor]) -> Tensor:
    """Return the maps (1, head, query, key) of the layers with heads as (layer, head, query, key), NaN if pruned."""
    places = _map_places(loaded)
    if places is None:
        return torch.cat(maps)
    existing = torch.cat(maps, dim=1)[0]  # (existing head, query, key)
    with_nan = torch.cat([existing, torch.full_like(existing[:1], torch.nan)])
    return with_nan[torch.from_numpy(places.ravel())].view(*places.shape, *existing.shape[1:])


def _detached(outputs: GraphOutputs) -> GraphOutputs:
    return GraphOutputs(**{name: tensor.detach() for name, tensor in outputs.tensors.items()})


def example_inputs(
    loaded: LoadedModel, *, tokens: int, positions: int, terms: int, gradients: bool = True, seed: int = 0
) -> GraphInputs:
    """Return random inputs of a graph with the given lengths, all heads on and all tokens visible."""
    config, generator = loaded.config, torch.Generator().manual_seed(seed)

    def integers(size: int, stop: int) -> Tensor:
        return torch.randint(0, stop, (size,), generator=generator)

    targets: dict[str, Tensor | None] = {}
    if gradients:
        targets = {"baseline_ids": integers(tokens, config.vocab_size), "interpolation": torch.tensor(1.0)}
        if loaded.has_mlm:
            targets |= {
                "target_rows": integers(terms, positions),
                "target_tokens": integers(terms, config.vocab_size),
                "target_weights": torch.randn(terms, generator=generator),
            }
        if loaded.has_nsp:
            targets["next_sentence_weights"] = torch.tensor([1.0, -1.0])
    return GraphInputs(
        input_ids=integers(tokens, config.vocab_size),
        token_type_ids=integers(tokens, config.type_vocab_size) if config.type_vocab_size else None,
        attention_mask=torch.ones(tokens),
        head_mask=torch.ones(config.num_hidden_layers, config.num_attention_heads),
        positions=integers(positions, tokens) if loaded.has_mlm else None,
        **targets,
    )


def trace_graph(loaded: LoadedModel, *, gradients: bool) -> onnx.ModelProto:
    """Return the ONNX graph of a model in evaluation mode, as the exporter of PyTorch writes it.

    The lengths seq, position and term are free in it. gradients: include the backward pass.
    Raises Refused if one of the lengths became a constant.
    """
    sizes = {value for value in vars(loaded.config).values() if isinstance(value, int)}
    sizes |= {loaded.config.attention_head_size, loaded.config.embedding_width, loaded.config.num_hidden_layers + 1}
    tokens, positions, terms = [length for length in EXAMPLE_LENGTHS if length not in sizes][:3]
    example = example_inputs(loaded, tokens=tokens, positions=positions, terms=terms, gradients=gradients)
    names = list(example.tensors)
    output_names = list(compute_outputs(loaded, example).tensors)

    def traced(*tensors: Tensor) -> tuple[Tensor, ...]:
        outputs = compute_outputs(loaded, GraphInputs(**dict(zip(names, tensors, strict=True))))
        return tuple(outputs.tensors.values())

    longest = loaded.config.max_position_embeddings
    lengths = {name: torch.export.Dim(name, min=2, max=longest) for name in ("seq", "position", "term")}
    axes = {
        "input_ids": "seq", "token_type_ids": "seq", "attention_mask": "seq", "baseline_ids": "seq",
        "positions": "position", "target_rows": "term", "target_tokens": "term", "target_weights": "term",
    }  # fmt: skip
    # The exporter has no operator for this one.
    decompositions: Any = torch._decomp.get_decompositions([torch.ops.aten.silu_backward])
    with _without_exporter_messages():
        module = make_fx(
            traced,
            tracing_mode="symbolic",
            decomposition_table=decompositions,
            _allow_non_fake_inputs=True,
        )(*example.tensors.values())
        program = torch.onnx.export(
            module.eval(),
            tuple(example.tensors.values()),
            dynamo=True,
            opset_version=OPSET,
            verbose=False,
            input_names=names,
            output_names=output_names,
            dynamic_shapes=tuple({0: lengths[axes[name]]} if name in axes else None for name in names),
        )
    assert program is not None  # None is the answer without dynamo
    model: onnx.ModelProto = program.model_proto
    for graph_input in model.graph.input:
        shape = graph_input.type.tensor_type.shape
        if graph_input.name in axes and shape.dim[0].HasField("dim_value"):
            raise Refused(f"the graph of {loaded.name} would work for one length of {graph_input.name} only")
    return model


@contextmanager
def _without_exporter_messages() -> Iterator[None]:
    """Leave out the warnings of the exporter, which are about its own implementation and optional packages."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
