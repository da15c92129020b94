"""The states of many texts, and what their heads do; what the model says when states are changed at one depth."""

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
from bert_core.run.stack import PaddedTexts, encoder_layers, run_layers, trace_layers
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
    """The state of every word of some texts at one depth: the mean over its pieces, (word, hidden) float32.

    words: of each text the positions of each word's pieces; the words come out in this order, text after text.
    depth: 0 for the embeddings, n + 1 for what leaves layer n; the layers above are not computed.
    report: told how many texts are done, as for `Progress`.
    Raises Refused for a depth that does not exist, or a word without a piece.
    """
    texts, depth = require_instances("encodings", encodings, Encoding), _depth(loaded, depth)
    pieces = [
        require_sequence("the words of a text", own, "positions")
        for own in require_sequence("words", words, "words, text by text")
    ]
    if len(pieces) != len(texts):
        raise Refused(f"{len(pieces)} texts have words and {len(texts)} are given: the words of each")
    firsts = np.cumsum([0, *map(len, pieces)])
    found = np.empty((firsts[-1], loaded.config.hidden_size), np.float32)
    for some, batch in _batches(loaded, texts, report):
        states, numbers, of_words = _run(batch, 0, depth), [], []
        for row, number in enumerate(some):
            for word, own in enumerate(pieces[number], firsts[number]):
                at = [require_int("a piece", piece, 0, len(texts[number]) - 1) for piece in own]
                if not at:
                    raise Refused("a word has no piece: leave it out")
                numbers.append(word)
                of_words.append(states[row, at].mean(0))
        if numbers:
            found[numbers] = as_array(torch.stack(of_words))
    return found


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
    """What a model says at every hidden piece of some texts while a label is erased from the states at one depth.

    texts: with hidden pieces and their answers. depth: as for `word_states`.
    erasers: tried in turn, each on every token but the added [CLS] and [SEP]; None changes nothing.
    report: told how many texts are done, as for `Progress`. Safe to call from many threads on one model.
    Returns the losses (eraser, piece) in nats, and whether the answer comes first (eraser, piece), text after text.
    Raises Refused for a depth that does not exist, or a model without a trained masked-word head.
    Source: amnesic probing, Elazar 2021 (arXiv:2006.00995).
    """
    depth, texts = _depth(loaded, depth), require_instances("texts", texts, TextExample)
    loaded.require_head("words", "it says nothing at a hidden word")
    firsts = np.cumsum([0, *(len(text.positions) for text in texts)])
    changes = [_on_tensors(eraser, loaded.device) for eraser in require_sequence("erasers", erasers, "Eraser")]
    losses, right = np.empty((len(changes), firsts[-1])), np.empty((len(changes), firsts[-1]), bool)
    for some, batch in _batches(loaded, [text.encoding for text in texts], report):
        reached = _run(batch, 0, depth)
        places, answers = _answers([texts[number] for number in some], loaded.device)
        numbers = np.concatenate([np.arange(firsts[number], firsts[number + 1]) for number in some])
        for which, change in enumerate(changes):
            states = _run(batch, depth, states=_changed(batch, reached, change))
            scores = loaded.model.cls.predictions(states[places]).float()
            own = scores.gather(1, answers[:, None])
            of_change, larger = to_cpu([scores.logsumexp(-1) - own[:, 0], (scores > own).sum(-1)])
            losses[which, numbers], right[which, numbers] = as_array(of_change), larger.numpy() == 0
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
    """All that a model says of a text, with each eraser in turn at work on its states at one depth.

    depth, erasers: as for `hidden_words`. top_k: likeliest pieces of each prediction.
    Safe to call from many threads on one model. Raises Refused for a depth that does not exist.
    """
    depth, top_k = _depth(loaded, depth), require_int("top_k", top_k, 1)
    changes = [_on_tensors(eraser, loaded.device) for eraser in require_sequence("erasers", erasers, "Eraser")]
    positions, wanted = prediction_positions(loaded, encoding, None, None)
    rows = [wanted.index(position) for position in positions]
    batch = PaddedTexts.from_encodings(loaded, [encoding])
    reached, found = _run(batch, 0, depth), []
    for change in changes:
        states = _run(batch, depth, states=_changed(batch, reached, change))
        found += predict_answers(loaded, [encoding], states[:, wanted], [positions], [rows], top_k)
    return found


@torch.no_grad()
def iter_states(loaded: LoadedModel, encodings: Sequence[Encoding]) -> Iterator[tuple[list[int], list[np.ndarray]]]:
    """The states of many texts at every depth, some texts at a time, the short ones first.

    Yields the numbers of the texts, and for each depth (token, hidden) float32: the tokens of these texts, one text
    after the other, [CLS] and [SEP] too. Depth 0 is the embeddings, depth n + 1 what leaves layer n.
    """
    for some, batch in _batches(loaded, encodings):
        yield some, [as_array(states[batch.token_index]) for states in _at_every_depth(batch)]


@torch.no_grad()
def masked_losses_by_depth(loaded: LoadedModel, texts: Sequence[TextExample]) -> np.ndarray:
    """The loss at the hidden pieces of some texts when the word head reads every depth, (depth,): nats, their mean.

    texts: with hidden pieces and their answers. The last depth is the model's own prediction.
    Raises Refused for a model without a trained masked-word head.
    Source: nostalgebraist 2020.
    """
    loaded.require_head("words", "its layers cannot be read as words")
    losses, pieces = np.zeros(loaded.config.num_hidden_layers + 1), 0
    for some, batch in _batches(loaded, [text.encoding for text in texts]):
        places, answers = _answers([texts[number] for number in some], loaded.device)
        of_depths = []
        for states in _at_every_depth(batch):
            scores = loaded.model.cls.predictions(states[places]).float()
            of_depths.append(F.cross_entropy(scores, answers, reduction="sum"))
        losses += torch.stack(of_depths).tolist()
        pieces += len(answers)
    return losses / pieces


@torch.no_grad()
def iter_activations(
    loaded: LoadedModel, encodings: Sequence[Encoding], layers: Collection[int]
) -> Iterator[tuple[list[int], int, np.ndarray]]:
    """What every neuron of some layers passes on at every token of many texts, some texts at a time, layer by layer.

    Yields the numbers of the texts, the layer, and (token, intermediate) float32: the tokens of these texts, one text
    after the other, [CLS] and [SEP] too. The layers above the last of these are not computed.
    """
    for some, batch in _batches(loaded, encodings):
        used, mask = encoder_layers(loaded)[: max(layers) + 1], batch.additive_mask
        for number, traced in enumerate(trace_layers(used, batch.embeddings, mask=mask, keep=("neurons",))):
            if number in layers:
                yield some, number, as_array(traced.neurons[batch.token_index])


@compared_by_value
@dataclass(frozen=True)
class TokenStates:
    """What the tokens of some texts have at one depth, one text after the other, [CLS] and [SEP] too; float32.

    texts: their numbers. depth: 0 for the embeddings, n + 1 for what leaves layer n.
    states: (token, hidden). head_output: (head, token, head size), the sum of a head's values in the layer below,
    weighted by its attention, before the output map; NaN for a head that was pruned.
    keys, weights: (head, token, some), the positions that each head attends to most, falling, and how much: 0 where
    the text has no more tokens, NaN for a head that was pruned. The last three are None at depth 0.
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
    """Every token of many texts: the embeddings, and of some layers what leaves them and what their heads do.

    keys: how many of the strongest. Some texts are computed together, and come depth by depth; the layers above the
    last of these are not computed.
    """
    heads = loaded.config.num_attention_heads
    for some, batch in _batches(loaded, encodings, maps=True):
        yield TokenStates(some, 0, as_array(batch.embeddings[batch.token_index]))
        states, done = batch.embeddings, 0
        for number in sorted(set(layers)):
            states = _run(batch, done, number, states)
            (traced,) = trace_layers(
                [encoder_layers(loaded)[number]], states, mask=batch.additive_mask, keep=("probs", "context")
            )
            states, done = traced.output_states, number + 1
            rows, positions = batch.token_index
            strongest = traced.probs.topk(min(keys, traced.probs.shape[-1]), dim=-1)
            # (text, head, query, some) to (head, token, some), of the tokens that are there
            parts = (traced.context, strongest.indices, strongest.values)
            of_tokens = [part.transpose(0, 1)[:, rows, positions] for part in parts]
            own, *of_heads = map(as_array, to_cpu([states[batch.token_index], *of_tokens]))
            left = traced.layer.attention.self.heads
            yield TokenStates(some, done, own, *(fill_pruned_with_nan(part, left, heads) for part in of_heads))


def _batches(
    loaded: LoadedModel, encodings: Sequence[Encoding], report: Progress = ignore_progress, *, maps: bool = False
) -> Iterator[tuple[list[int], PaddedTexts]]:
    """The numbers of the texts that are computed together, the short ones first, and their batch.

    report: told how many texts are done. maps: whether the maps of a layer must fit as well.
    """

    def at_once(tokens: int) -> int:
        of_maps = BYTES_AT_ONCE // (4 * loaded.config.num_attention_heads * tokens**2)
        return min(copies_at_once(loaded, tokens), max(1, of_maps)) if maps else copies_at_once(loaded, tokens)

    done = 0
    for some in batch_by_length(encodings, at_once):
        yield some, PaddedTexts.from_encodings(loaded, [encodings[number] for number in some])
        done += len(some)
        report_count(report, done, len(encodings), "texts")


def _changed(batch: PaddedTexts, states: Tensor, change: StateChange) -> Tensor:
    """States (text, seq, hidden) with those of the tokens that were typed changed."""
    return torch.where(batch.typed_mask[..., None], change(states), states)


def _run(batch: PaddedTexts, start: int, stop: int | None = None, states: Tensor | None = None) -> Tensor:
    """As `run_layers` for padded texts; without states those that enter the first layer."""
    states = batch.embeddings if states is None else states
    return run_layers(encoder_layers(batch.loaded), states, start, stop, mask=batch.additive_mask)


def _at_every_depth(batch: PaddedTexts) -> Iterator[Tensor]:
    """States (text, seq, hidden) that enter the first layer, and those that leave each."""
    states = batch.embeddings
    yield states
    for number in range(batch.loaded.config.num_hidden_layers):
        states = _run(batch, number, number + 1, states)
        yield states


def _answers(texts: Sequence[TextExample], device: torch.device) -> tuple[tuple[list[int], list[int]], Tensor]:
    """Row and position of every hidden piece of some texts in a batch, and the pieces that should stand there."""
    rows = [row for row, text in enumerate(texts) for _ in text.positions]
    positions = [position for text in texts for position in text.positions]
    return (rows, positions), torch.tensor([answer for text in texts for answer in text.answers], device=device)


def _on_tensors(eraser: Eraser | None, device: torch.device) -> StateChange:
    if eraser is None:
        return lambda states: states
    if not isinstance(eraser, Eraser):
        raise Refused(f"one of erasers is {short_repr(eraser)}: it must be an Eraser, or nothing")
    mean, taken, put = (
        torch.tensor(part, dtype=torch.float32, device=device)
        for part in (eraser.mean, eraser.readout, eraser.directions)
    )

    def change(states: Tensor) -> Tensor:
        return states - (states - mean) @ taken @ put

    return change


def _depth(loaded: LoadedModel, depth: int) -> int:
    return require_int("depth", depth, 0, loaded.config.num_hidden_layers)
