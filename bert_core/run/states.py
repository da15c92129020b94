"""Hidden states of many texts, activations of their heads and neurons, and predictions from erased states."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.analysis.erasure import Eraser
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_instances, require_int, require_sequence, short_repr, validate_arguments
from bert_core.run.answers import Answer, predict_answers
from bert_core.run.arrays import as_array, fill_pruned_with_nan, to_cpu
from bert_core.run.losses import TextExample, batch_by_length
from bert_core.run.memory import BYTES_AT_ONCE, copies_at_once
from bert_core.run.stack import LayerTrace, PaddedTexts, encoder_layers, run_layers, trace_layers
from bert_core.run.targets import prediction_positions
from bert_core.tokenizer import Encoding

StateChange = Callable[[Tensor], Tensor]


@validate_arguments
@torch.no_grad()
def word_states(
    loaded: LoadedModel,
    encodings: Sequence[Encoding],
    words: Sequence[Sequence[Sequence[int]]],
    depth: int,
    *,
    report: Progress = ignore_progress,
) -> np.ndarray:
    """Compute the hidden state of every word of several texts at one depth, as the mean over its word pieces.

    words: for each text, the positions of the pieces of each word.
    depth: 0 for the embeddings, n + 1 for the output of layer n. The layers above are not computed.
    report: receives the number of texts that are done, see `Progress`.
    Returns float32 (word, hidden) in the order of `words`, text after text.
    Raises Refused for a depth or a position that does not exist, a word without pieces, or another number of texts.
    """
    texts, depth = require_instances("encodings", encodings, Encoding), _depth(loaded, depth)
    pieces = [
        require_sequence("the words of a text", text_words, "positions")
        for text_words in require_sequence("words", words, "words, text by text")
    ]
    if len(pieces) != len(texts):
        raise Refused(
            f"words are given for {len(pieces)} texts and there are {len(texts)} texts: both numbers must be equal"
        )
    firsts = np.cumsum([0, *map(len, pieces)])
    result = np.empty((firsts[-1], loaded.config.hidden_size), np.float32)
    for indices, batch in _batches(loaded, texts, report):
        states, numbers, means = _run(batch, 0, depth), [], []
        for row, number in enumerate(indices):
            for word, word_positions in enumerate(pieces[number], firsts[number]):
                positions = [
                    require_int("a position of a word", piece, 0, len(texts[number]) - 1) for piece in word_positions
                ]
                if not positions:
                    raise Refused("a word has no position: leave it out")
                numbers.append(word)
                means.append(states[row, positions].mean(0))
        if numbers:
            result[numbers] = as_array(torch.stack(means))
    return result


@validate_arguments
@torch.no_grad()
def masked_losses_with_erasers(
    loaded: LoadedModel,
    texts: Sequence[TextExample],
    depth: int,
    erasers: Sequence[Eraser | None],
    *,
    report: Progress = ignore_progress,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the loss at every masked position while a property is erased from the hidden states at one depth.

    texts: texts with masked positions and their original tokens. depth: as for `word_states`.
    erasers: applied in turn to the states of all tokens but the added [CLS] and [SEP]; None changes nothing.
    report: receives the number of texts that are done, see `Progress`. Thread-safe: the model is not changed.
    Returns the losses (eraser, masked position) in nats, and whether the original token is the most likely one (eraser,
    masked position), text after text.
    Raises Refused for a depth that does not exist, or for a model without a trained MLM head.
    Source: amnesic probing, Elazar 2021 (arXiv:2006.00995).
    """
    depth, texts = _depth(loaded, depth), require_instances("texts", texts, TextExample)
    loaded.require_head("words", "it predicts nothing at a masked position")
    firsts = np.cumsum([0, *(len(text.positions) for text in texts)])
    changes = [_erasing_function(eraser, loaded.device) for eraser in require_sequence("erasers", erasers, "Eraser")]
    losses, right = np.empty((len(changes), firsts[-1])), np.empty((len(changes), firsts[-1]), bool)
    for indices, batch in _batches(loaded, [text.encoding for text in texts], report):
        base_states = _run(batch, 0, depth)
        masked_rows, answers = _masked_tokens([texts[number] for number in indices], loaded.device)
        numbers = np.concatenate([np.arange(firsts[number], firsts[number + 1]) for number in indices])
        for eraser_index, change in enumerate(changes):
            states = _run(batch, depth, states=_change_typed_tokens(batch, base_states, change))
            scores = loaded.model.cls.predictions(states[masked_rows]).float()
            answer_scores = scores.gather(1, answers[:, None])
            piece_losses, larger = to_cpu(
                [scores.logsumexp(-1) - answer_scores[:, 0], (scores > answer_scores).sum(-1)]
            )
            losses[eraser_index, numbers], right[eraser_index, numbers] = as_array(piece_losses), larger.numpy() == 0
    return losses, right


@validate_arguments
@torch.no_grad()
def predict_with_erasers(
    loaded: LoadedModel,
    encoding: Encoding,
    depth: int,
    erasers: Sequence[Eraser | None],
    *,
    top_k: int = 10,
) -> list[Answer]:
    """Compute all predictions for a text with each eraser in turn applied to its hidden states at one depth.

    depth, erasers: as for `masked_losses_with_erasers`. top_k: number of most likely tokens in each MLM prediction.
    Thread-safe: the model is not changed. Raises Refused for a depth that does not exist.
    """
    depth, top_k = _depth(loaded, depth), require_int("top_k", top_k, 1)
    changes = [_erasing_function(eraser, loaded.device) for eraser in require_sequence("erasers", erasers, "Eraser")]
    positions, needed_positions = prediction_positions(loaded, encoding, None, None)
    rows = [needed_positions.index(position) for position in positions]
    batch = PaddedTexts.from_encodings(loaded, [encoding])
    base_states, predictions = _run(batch, 0, depth), []
    for change in changes:
        states = _run(batch, depth, states=_change_typed_tokens(batch, base_states, change))
        predictions += predict_answers(loaded, [encoding], states[:, needed_positions], [positions], [rows], top_k)
    return predictions


@torch.no_grad()
def iter_states(loaded: LoadedModel, encodings: Sequence[Encoding]) -> Iterator[tuple[list[int], list[np.ndarray]]]:
    """Yield the hidden states of many texts at every depth, a batch of texts at a time, the shortest texts first.

    Yields the indices of the texts and, for each depth, the states (token, hidden) float32 of all their tokens, one
    text after another, with [CLS] and [SEP]. Depth 0 is the embeddings, depth n + 1 the output of layer n.
    """
    for indices, batch in _batches(loaded, encodings):
        yield indices, [as_array(states[batch.token_index]) for states in _iter_depths(batch)]


@torch.no_grad()
def masked_losses_by_depth(loaded: LoadedModel, texts: Sequence[TextExample]) -> np.ndarray:
    """Compute the mean loss of the logit lens at the masked positions of several texts at every depth.

    texts: texts with masked positions and their original tokens. The last depth is the prediction of the model itself.
    In a pre-norm model, the layer norm of the final hidden states is applied at the other depths too.
    Returns (depth,) in nats. Raises Refused for a model without a trained MLM head.
    Source: nostalgebraist 2020.
    """
    loaded.require_head("words", "its layers cannot be read as words")
    losses, pieces = np.zeros(loaded.config.num_hidden_layers + 1), 0
    for indices, batch in _batches(loaded, [text.encoding for text in texts]):
        masked_rows, answers = _masked_tokens([texts[number] for number in indices], loaded.device)
        depth_losses = []
        for depth, states in enumerate(_iter_depths(batch)):
            masked_states = states[masked_rows]
            if depth < loaded.config.num_hidden_layers:
                masked_states = loaded.model.bert.encoder.final_norm(masked_states)
            scores = loaded.model.cls.predictions(masked_states).float()
            depth_losses.append(F.cross_entropy(scores, answers, reduction="sum"))
        losses += torch.stack(depth_losses).tolist()
        pieces += len(answers)
    return losses / pieces


@torch.no_grad()
def iter_activations(
    loaded: LoadedModel, encodings: Sequence[Encoding], layers: Collection[int]
) -> Iterator[tuple[list[int], int, np.ndarray]]:
    """Yield the activations of the neurons of some layers for many texts, a batch of texts at a time, layer by layer.

    Yields the indices of the texts, the layer, and float32 (token, intermediate) for all tokens of these texts, one
    text after another, with [CLS] and [SEP]. Layers above the highest of `layers` are not computed.
    """
    for indices, layer, traced, index in _traced_layers(loaded, encodings, layers, ("neurons",)):
        yield indices, layer, as_array(traced.neurons[index])


@torch.no_grad()
def iter_neurons(
    loaded: LoadedModel, encodings: Sequence[Encoding], layers: Collection[int]
) -> Iterator[tuple[list[int], int, np.ndarray, tuple[np.ndarray, ...]]]:
    """Yield the same as `iter_activations`, and the two inputs of the neurons of a gated network; none for others.

    Inputs have the shape of the activations: the first is after the activation function, the second is the gate.
    """
    is_gated = loaded.config.layer_design.gated
    keep = ("after_attention", "neurons") if is_gated else ("neurons",)
    for indices, layer, traced, index in _traced_layers(loaded, encodings, layers, keep):
        inputs = traced.layer.intermediate.gated_inputs(traced.after_attention[index]) if is_gated else ()
        yield indices, layer, as_array(traced.neurons[index]), tuple(map(as_array, inputs))


def _traced_layers(
    loaded: LoadedModel, encodings: Sequence[Encoding], layers: Collection[int], keep: Collection[str]
) -> Iterator[tuple[list[int], int, LayerTrace, tuple[Tensor, Tensor]]]:
    """Yield the indices of a batch of texts, a layer, its trace, and the index of all tokens in the trace.

    keep: as for `trace`.
    """
    for indices, batch in _batches(loaded, encodings):
        lower_layers, mask = encoder_layers(loaded)[: max(layers) + 1], batch.additive_mask
        for layer, traced in enumerate(trace_layers(lower_layers, batch.embeddings, mask=mask, keep=keep)):
            if layer in layers:
                yield indices, layer, traced, batch.token_index


@compared_by_value
@dataclass(frozen=True)
class TokenStates:
    """Hidden states and attention of all tokens of a batch of texts at one depth, float32.

    Tokens include [CLS] and [SEP] and are ordered text after text. The last three fields are None at depth 0.
    texts: indices of the texts. depth: 0 for the embeddings, n + 1 for the output of layer n.
    states: (token, hidden).
    head_output: (head, token, head size), the attention-weighted sum of the value vectors of each head of the layer,
        before the output projection; NaN for a pruned head.
    keys: (head, token, key), the positions with the highest attention of each head, in descending order.
    weights: (head, token, key), their attention weights; 0 if the text has fewer tokens.
    keys and weights are NaN for a pruned head.
    """

    texts: list[int]
    depth: int
    states: np.ndarray
    head_output: np.ndarray | None = None
    keys: np.ndarray | None = None
    weights: np.ndarray | None = None


@torch.no_grad()
def token_states(
    loaded: LoadedModel, encodings: Sequence[Encoding], layers: Collection[int], keys: int
) -> Iterator[TokenStates]:
    """Yield the hidden states and the strongest attention of all tokens of many texts at some depths.

    layers: the layers whose output is yielded, besides the embeddings. keys: number of keys with the highest attention.
    Texts are batched by length, and each batch is yielded depth by depth. Layers above the highest of `layers` are not
    computed.
    """
    heads = loaded.config.num_attention_heads
    for indices, batch in _batches(loaded, encodings, maps=True):
        yield TokenStates(indices, 0, as_array(batch.embeddings[batch.token_index]))
        states, depth = batch.embeddings, 0
        for number in sorted(set(layers)):
            states = _run(batch, depth, number, states)
            (traced,) = trace_layers(
                [encoder_layers(loaded)[number]], states, mask=batch.additive_mask, keep=("probs", "context")
            )
            states, depth = traced.output_states, number + 1
            rows, positions = batch.token_index
            strongest = traced.probs.topk(min(keys, traced.probs.shape[-1]), dim=-1)
            # (text, head, query, key) to (head, token, key), without padding
            parts = (traced.context, strongest.indices, strongest.values)
            token_parts = [part.transpose(0, 1)[:, rows, positions] for part in parts]
            token_states_array, *head_parts = map(as_array, to_cpu([states[batch.token_index], *token_parts]))
            remaining_heads = traced.layer.attention.self.heads
            yield TokenStates(
                indices,
                depth,
                token_states_array,
                *(fill_pruned_with_nan(part, remaining_heads, heads) for part in head_parts),
            )


def _batches(
    loaded: LoadedModel, encodings: Sequence[Encoding], report: Progress = ignore_progress, *, maps: bool = False
) -> Iterator[tuple[list[int], PaddedTexts]]:
    """Yield batches of texts with their indices, the shortest texts first.

    report: receives the number of texts that are done. maps: whether the attention maps of a layer must fit as well.
    """

    def batch_size(tokens: int) -> int:
        texts_by_maps = BYTES_AT_ONCE // (4 * loaded.config.num_attention_heads * tokens**2)
        return min(copies_at_once(loaded, tokens), max(1, texts_by_maps)) if maps else copies_at_once(loaded, tokens)

    text_count = 0
    for indices in batch_by_length(encodings, batch_size):
        yield indices, PaddedTexts.from_encodings(loaded, [encodings[number] for number in indices])
        text_count += len(indices)
        report_count(report, text_count, len(encodings), "texts")


def _change_typed_tokens(batch: PaddedTexts, states: Tensor, change: StateChange) -> Tensor:
    """Apply a change to the states (text, seq, hidden) of all tokens but padding and the added [CLS] and [SEP]."""
    return torch.where(batch.typed_mask[..., None], change(states), states)


def _run(batch: PaddedTexts, start: int, stop: int | None = None, states: Tensor | None = None) -> Tensor:
    """Run some layers on padded texts, see `run_layers`; None for the states starts from the embeddings."""
    states = batch.embeddings if states is None else states
    return run_layers(encoder_layers(batch.loaded), states, start, stop, mask=batch.additive_mask)


def _iter_depths(batch: PaddedTexts) -> Iterator[Tensor]:
    """Yield the states (text, seq, hidden) at every depth: the embeddings and the output of each layer."""
    states = batch.embeddings
    yield states
    for number in range(batch.loaded.config.num_hidden_layers):
        states = _run(batch, number, number + 1, states)
        yield states


def _masked_tokens(texts: Sequence[TextExample], device: torch.device) -> tuple[tuple[list[int], list[int]], Tensor]:
    """Return the rows and positions of all masked tokens of a batch, and the ids of the original tokens."""
    rows = [row for row, text in enumerate(texts) for _ in text.positions]
    positions = [position for text in texts for position in text.positions]
    return (rows, positions), torch.tensor([answer for text in texts for answer in text.answers], device=device)


def _erasing_function(eraser: Eraser | None, device: torch.device) -> StateChange:
    """Return a function that applies an eraser to states (..., hidden) on a device."""
    if eraser is None:
        return lambda states: states
    if not isinstance(eraser, Eraser):
        raise Refused(f"an item of erasers is {short_repr(eraser)}: it must be an Eraser or None")
    mean, readout, directions = (
        torch.tensor(part, dtype=torch.float32, device=device)
        for part in (eraser.mean, eraser.readout, eraser.directions)
    )

    def erase(states: Tensor) -> Tensor:
        return states - (states - mean) @ readout @ directions

    return erase


def _depth(loaded: LoadedModel, depth: int) -> int:
    """Return a depth as an int. Raises Refused if the model does not have it."""
    return require_int("depth", depth, 0, loaded.config.num_hidden_layers)
