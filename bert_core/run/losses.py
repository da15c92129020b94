"""Texts and what is asked of them: their losses, how these move with every head's gate, and without each head.

Texts of any kind of answer, for a file as for a pruning plan, come through here. Nothing is written to the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence, Sized
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.editing import with_neuron_gates
from bert_core.edits import check_unpatched
from bert_core.loading import LoadedModel
from bert_core.modeling import IGNORED_LABEL
from bert_core.progress import Progress, ignore_progress
from bert_core.pruning import PRUNABLE_PARTS
from bert_core.recording import record
from bert_core.records import Batch
from bert_core.refused import Refused, short_repr
from bert_core.run.ablation import ABLATION_NAME, Replacement, iter_head_ablations
from bert_core.run.arrays import as_array, fill_pruned_with_nan, to_cpu
from bert_core.run.inputs import check_edits
from bert_core.run.memory import BYTES_AT_ONCE, copies_at_once, copies_per_batch
from bert_core.run.stack import encoder_layers, pad
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Encoding, Tokenizer

LOSS_HEADS = ("words", "next", "classifier")  # whose loss over a batch is a cross-entropy, in this order
MIN_VARIANTS_PER_BATCH = (
    8  # of a batch of texts, at least, so that short texts fill a batch and long ones do not swell it
)
MASKING_STRIDE = 8  # every how many pieces of a text are hidden together: about as many as in pre-training
TOKENS_PER_BATCH = 1024  # of copies of a text that are asked at once, so that there is progress to report

# ---------------------------------------------------------------------------- what is asked


@dataclass(frozen=True)
class TextExample:
    """A text, and what a model should say of it; at least one of the three.

    positions, answers: where pieces are asked for, rising, and the number of the one that should stand at each.
    follows: 0 if B follows A, 1 if not. label: the number of its class.
    Its loss: the mean over its pieces, plus that of its second text, plus that of its class; nats.
    """

    encoding: Encoding
    positions: tuple[int, ...] = ()
    answers: tuple[int, ...] = ()
    next_sentence_label: int | None = None
    label: int | None = None

    def __len__(self) -> int:
        return len(self.encoding)

    @property
    def kinds(self) -> set[str]:
        """The heads of `LOSS_HEADS` that answer for it."""
        given = (bool(self.positions), self.next_sentence_label is not None, self.label is not None)
        return {head for head, is_given in zip(LOSS_HEADS, given, strict=True) if is_given}


def mask_pieces(
    tokenizer: Tokenizer, encoding: Encoding, rng: np.random.Generator, *, share: float = 0.15
) -> TextExample:
    """The text with this share of its pieces, at least one, behind [MASK]; the added [CLS] and [SEP] stay.

    A [MASK] that was typed has no answer, and is not asked for where anything else stands.
    """
    typed = [position for position, special in enumerate(encoding.special) if not special]
    typed = [position for position in typed if encoding.roles[position] != "mask"] or typed
    count = max(1, round(share * len(typed)))
    positions = tuple(sorted(rng.choice(typed, count, replace=False).tolist()))
    hidden, mask = frozenset(positions), tokenizer.special_tokens.mask
    return TextExample(
        dataclasses.replace(
            encoding,
            tokens=tuple(mask if n in hidden else token for n, token in enumerate(encoding.tokens)),
            input_ids=tuple(
                tokenizer.mask_id if n in hidden else number for n, number in enumerate(encoding.input_ids)
            ),
        ),
        positions,
        tuple(encoding.input_ids[position] for position in positions),
    )


def masked_examples(loaded: LoadedModel, encoding: Encoding) -> tuple[Batch, ...]:
    """A text as examples: every piece is hidden once, an eighth of them at a time; and does B follow A? (taken as yes).

    What is a [MASK] already has no answer and stays hidden.
    """
    places = [p for p, special in enumerate(encoding.special) if not special and encoding.roles[p] != "mask"]
    parts = [part for first in range(MASKING_STRIDE) if (part := places[first::MASKING_STRIDE])]
    rows = len(parts) + (encoding.pair is not None)
    if not rows:
        return ()
    ids = np.tile(np.array(encoding.input_ids), (rows, 1))
    labels = np.full_like(ids, IGNORED_LABEL)
    for row, part in enumerate(parts):
        labels[row, part] = ids[row, part]
        ids[row, part] = loaded.tokenizer.mask_id
    follows = np.full(rows, IGNORED_LABEL)
    if encoding.pair is not None:  # asked of the text as it is, in the last row
        follows[-1] = 0
    segments = np.tile(np.array(encoding.token_type_ids), (rows, 1))
    together = max(1, TOKENS_PER_BATCH // ids.shape[1])
    parts_of = (slice(first, first + together) for first in range(0, rows, together))
    return tuple(
        Batch(ids[part], segments[part], np.ones_like(ids[part]), labels[part], follows[part]) for part in parts_of
    )


def check_loss_heads(loaded: LoadedModel, kinds: Collection[str]) -> None:
    """Raise Refused if a model has not all of these heads of `LOSS_HEADS` trained, and so no loss of its own."""
    for head in kinds:
        loaded.require_head(head, "its heads have no loss to be measured by")
    if "classifier" not in kinds:
        return
    if loaded.config.problem_type in ("regression", "multi_label_classification") or len(loaded.labels) < 2:
        raise Refused(f"{loaded.name} does not give a text one of several classes: there is no class to be right")


def existing_parts(loaded: LoadedModel, part_kind: str = "heads") -> np.ndarray:
    """Whether the model has each head (layer, head), neuron (layer, neuron) or layer (layer,): one of `PARTS`."""
    layers, config = encoder_layers(loaded), loaded.config
    if part_kind == "layers":
        return np.array([not layer.removed for layer in layers], bool)
    size = config.num_attention_heads if part_kind == "heads" else config.intermediate_size
    there = np.zeros((config.num_hidden_layers, size), bool)
    for number, layer in enumerate(layers):
        there[number, list(layer.attention.self.heads if part_kind == "heads" else layer.intermediate.neurons)] = True
    return there


def check_has_parts(loaded: LoadedModel, part_kind: str = "heads") -> None:
    """Raise Refused for a model that has lost all its heads, neurons or layers, or for another name than of `PARTS`."""
    if part_kind not in PRUNABLE_PARTS:
        raise Refused(f"what {short_repr(part_kind)} is unknown: one of {', '.join(PRUNABLE_PARTS)}")
    if not existing_parts(loaded, part_kind).any():
        raise Refused(f"{loaded.name} has no {part_kind} left: there is nothing to ask of them")


# ---------------------------------------------------------------------------- a batch, and its losses


class ExampleBatch:
    """A batch of texts on the model's device, and the answers that are asked of them.

    batch: the texts, their hidden pieces and next sentences; classes: (text,), the number of the class of each, or -100
    where nobody asks. What the model has no trained head for is not asked.
    positions: (text, some), where the last layer is read: [CLS] if a text as a whole is asked, then the hidden pieces,
        those of a text with fewer filled up with [CLS].
    kinds: (answer,), the number in `LOSS_HEADS` of each answer; they come head after head.
    counts: how many answers each of `LOSS_HEADS` gives.
    The loss of a text is the sum of its kinds, each the mean over its answers.
    """

    def __init__(self, loaded: LoadedModel, batch: Batch, classes: np.ndarray | None = None) -> None:
        texts = len(batch.input_ids)
        nothing = np.full(texts, IGNORED_LABEL)
        labels = batch.labels if loaded.has_head("words") else np.full_like(batch.labels, IGNORED_LABEL)
        follows = batch.next_sentence_label if loaded.has_head("next") else nothing
        classes = nothing if classes is None or not loaded.has_head("classifier") else classes
        hidden, told, sorted_in = labels != IGNORED_LABEL, follows != IGNORED_LABEL, classes != IGNORED_LABEL
        counts, first = hidden.sum(1), int(told.any() or sorted_in.any())
        positions = pad([[0] * first + np.flatnonzero(row).tolist() or [0] for row in hidden])
        owners = [np.repeat(np.arange(texts), counts), np.flatnonzero(told), np.flatnonzero(sorted_in)]
        shares = [1 / counts[owners[0]], np.ones(len(owners[1])), np.ones(len(owners[2]))]

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(loaded.device)

        check_edits(loaded, int(batch.attention_mask.sum(1).min(initial=batch.attention_mask.shape[1])))
        self.loaded, self.texts = loaded, texts
        self.ids = tensor(batch.input_ids)
        self.segments = tensor(batch.token_type_ids) if loaded.config.type_vocab_size else None
        self.mask = tensor(batch.attention_mask) if (batch.attention_mask == 0).any() else None
        self.positions = tensor(positions)
        self.counts = np.array([len(of_kind) for of_kind in owners])
        self.kinds = np.repeat(np.arange(len(LOSS_HEADS)), self.counts)
        self._owners = tensor(np.concatenate(owners))
        self._shares = tensor(np.concatenate(shares).astype(np.float32))
        self._of_kind = [tensor(of_kind) for of_kind in owners]
        self._places = tensor(first + np.concatenate([np.arange(0), *(np.arange(count) for count in counts)]))
        self._right = [tensor(labels[hidden]), tensor(follows[told]), tensor(classes[sorted_in])]

    def states(self, gates: Tensor | None, *, maps: bool = False) -> Tensor:
        """The last layer at the positions, (text, some, hidden).

        gates: (layer, head) or (layer, text, head), or None. maps: whether attention goes through explicit maps.
        """
        states: Tensor = self.loaded.model.bert(
            self.ids,
            token_type_ids=self.segments,
            attention_mask=self.mask,
            head_mask=gates,
            positions=self.positions,
            output_attentions=maps,
        ).last_hidden_state
        return states

    def answers(self, states: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The model's logits (..., answer, choice) and the right choices (answer,), kind after kind.

        states: (..., text, some, hidden), the last layer at the positions.
        """
        answers = []
        for name, texts, right in zip(LOSS_HEADS, self._of_kind, self._right, strict=True):
            # A head of whole texts reads the first of the positions, which is [CLS] wherever one is asked.
            places = self._places if name == "words" else torch.zeros_like(texts)
            if len(texts):
                logits = TASK_HEADS[name].logits(self.loaded, states[..., texts, places, :]).float()
            else:
                logits = states.new_empty(*states.shape[:-3], 0, 2, dtype=torch.float32)
            answers.append((logits, right))
        return answers

    def losses(self, answers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """The loss of every answer, (..., answer), nats. answers: as `answers` gives them."""
        of_kinds = []
        for logits, right in answers:
            wanted = right.expand(logits.shape[:-1])
            each = F.cross_entropy(logits.flatten(0, -2), wanted.flatten(), reduction="none")
            of_kinds.append(each.view(wanted.shape))
        return torch.cat(of_kinds, dim=-1)

    def text_losses(self, losses: Tensor) -> Tensor:
        """The loss of every text, (..., text), from that of every answer, (..., answer)."""
        zeros = losses.new_zeros(*losses.shape[:-1], self.texts)
        return zeros.index_add(-1, self._owners, losses * self._shares)


def batch_gate_gradients(asked: ExampleBatch) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every text, and how it changes with each head's gate: one pass forward and one back for all.

    Each text has gates of its own, and texts do not meet, so the gradient of the summed losses is that of each.
    Returns (text,) and (text, layer, head), signed, with all gates at 1; a pruned head is NaN.
    Source: Michel 2019, equation 2 (arXiv:1905.10650), before the absolute value.
    """
    loaded, config = asked.loaded, asked.loaded.config
    shape = (config.num_hidden_layers, asked.texts, config.num_attention_heads)
    gates = torch.ones(shape, device=loaded.device, requires_grad=True)
    with torch.enable_grad():
        # On a CPU the way back through fused attention costs more than that through the maps.
        states = asked.states(gates, maps=loaded.device.type == "cpu")
        losses = asked.text_losses(asked.losses(asked.answers(states)))
        # A model without any head has no slope.
        found = torch.autograd.grad(losses.sum(), gates) if losses.requires_grad else ()
    of_texts, *of_gates = (as_array(values).astype(np.float64) for values in to_cpu([losses, *found]))
    slopes = of_gates[0].swapaxes(0, 1).copy() if of_gates else np.full((asked.texts, shape[0], shape[2]), np.nan)
    slopes[:, ~existing_parts(loaded)] = np.nan
    return of_texts, slopes


def neuron_gate_gradients(loaded: LoadedModel, batch: Batch) -> np.ndarray:
    """How the loss of every text changes with each neuron's gate, as `losses_and_slopes` has it of heads.

    With all gates at 1 it is the sum over the text of each activation times the gradient at it.
    Returns (text, layer, neuron), signed; a pruned neuron is NaN.
    Source: Michel 2019, equation 2 (arXiv:1905.10650), of neurons; Molchanov 2019, section 3 (arXiv:1906.10771).
    """
    config, texts = loaded.config, len(batch.input_ids)
    there = [list(layer.intermediate.neurons) for layer in encoder_layers(loaded)]
    gates = [torch.ones(texts, 1, len(neurons), device=loaded.device, requires_grad=True) for neurons in there]
    asked = ExampleBatch(with_neuron_gates(loaded, gates), batch)
    slopes = np.full((texts, config.num_hidden_layers, config.intermediate_size), np.nan)
    with torch.enable_grad():
        losses = asked.text_losses(asked.losses(asked.answers(asked.states(None, maps=loaded.device.type == "cpu"))))
        if losses.requires_grad:  # a model without any neuron has no slope
            found = torch.autograd.grad(losses.sum(), gates, allow_unused=True, materialize_grads=True)
            for layer, (neurons, slope) in enumerate(zip(there, to_cpu(found), strict=True)):
                slopes[:, layer, neurons] = as_array(slope[:, 0])
    return slopes


@torch.no_grad()
def answer_losses_without_heads(
    asked: ExampleBatch,
    replacement: Replacement | None = None,
    *,
    batch_tokens: int | None = None,
    report: Progress = ignore_progress,
) -> tuple[Tensor, Tensor]:
    """The loss of every answer with all heads, and without each of them in turn, exactly.

    replacement: what takes the place of a head's output; None: zeros. batch_tokens: as for `patch`.
    report: told how many heads are done, as for `Progress`.
    Returns (answer,) and (layer, head, answer), NaN for a head that was pruned.
    Source: Michel 2019, section 3 (arXiv:1905.10650).
    """
    check_unpatched(asked.loaded.edits, ABLATION_NAME)
    bert, config, mask = asked.loaded.model.bert, asked.loaded.config, None
    if asked.mask is not None:
        mask = bert.get_extended_attention_mask(asked.mask, (asked.texts, asked.ids.shape[1]))
    last, without_heads = iter_head_ablations(
        encoder_layers(asked.loaded), bert.embeddings(asked.ids, token_type_ids=asked.segments), asked.positions,
        mask=mask, replacement=replacement, batch_tokens=batch_tokens, report=report,
    )  # fmt: skip
    whole = asked.losses(asked.answers(last))
    without = whole.new_full((config.num_hidden_layers, config.num_attention_heads, len(whole)), torch.nan)
    for heads, states in without_heads:
        layers, numbers = zip(*heads, strict=True)
        without[list(layers), list(numbers)] = asked.losses(asked.answers(states))
    return whole, without


# ---------------------------------------------------------------------------- many texts


def attention_maps(loaded: LoadedModel, encodings: Sequence[Encoding]) -> Iterator[tuple[int, np.ndarray]]:
    """The number and the maps of every text, the short ones first; (layer, head, query, key) float32.

    Probabilities after the softmax, without padding: each row sums to 1. A pruned head is NaN.
    """
    config = loaded.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    heads_left = [list(module.heads) for module in loaded.model.attention_modules]

    def at_once(tokens: int) -> int:
        return min(copies_at_once(loaded, tokens), BYTES_AT_ONCE // (4 * layers * heads * tokens**2))

    for some in batch_by_length(encodings, at_once):
        asked = _batch_of(loaded, [TextExample(encodings[number]) for number in some])
        with torch.no_grad(), record() as recording:
            asked.states(None)
        maps = to_cpu([recording.attention[layer] for layer in range(layers)])
        for row, number in enumerate(some):
            length = len(encodings[number])
            seen = (as_array(of_layer[row, :, :length, :length]) for of_layer in maps)
            whole = [
                fill_pruned_with_nan(of_layer, left, heads) for of_layer, left in zip(seen, heads_left, strict=True)
            ]
            yield number, np.stack(whole)


def gate_gradients(loaded: LoadedModel, texts: Sequence[TextExample]) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every text, and how it changes with each head's gate, as `losses_and_slopes` has them.

    Returns (text,) and (text, layer, head), float64, signed; a pruned head is NaN.
    Raises Refused for a model without a trained head for what is asked.
    """
    check_loss_heads(loaded, {kind for text in texts for kind in text.kinds})
    config = loaded.config
    losses = np.empty(len(texts))
    gradients = np.empty((len(texts), config.num_hidden_layers, config.num_attention_heads))
    for some in batch_by_length(texts, lambda tokens: copies_at_once(loaded, tokens, gradients=True)):
        losses[some], gradients[some] = batch_gate_gradients(_batch_of(loaded, [texts[number] for number in some]))
    return losses, gradients


@torch.no_grad()
def losses_without_heads(
    loaded: LoadedModel,
    texts: Sequence[TextExample],
    replacement: Replacement | None = None,
    *,
    batch_tokens: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every text with all heads, and without each of them in turn, as `answers_without_each` has them.

    replacement: what takes the place of a head's output; None: zeros. batch_tokens: as for `patch`.
    Returns (text,) and (text, layer, head), float64; a pruned head is NaN.
    Raises Refused for a model without a trained head for what is asked.
    """
    check_loss_heads(loaded, {kind for text in texts for kind in text.kinds})
    config = loaded.config
    whole = np.empty(len(texts))
    without = np.full((len(texts), config.num_hidden_layers, config.num_attention_heads), np.nan)
    for some in batch_by_length(
        texts, lambda tokens: copies_per_batch(batch_tokens, loaded.device, MIN_VARIANTS_PER_BATCH * tokens)
    ):
        asked = _batch_of(loaded, [texts[number] for number in some])
        losses, of_heads = answer_losses_without_heads(asked, replacement, batch_tokens=batch_tokens)
        of_all, of_each = to_cpu([asked.text_losses(losses), asked.text_losses(of_heads).movedim(-1, 0)])
        whole[some], without[some] = as_array(of_all), as_array(of_each)
    return whole, without


def batch_by_length(texts: Sequence[Sized], at_once: Callable[[int], int]) -> Iterator[list[int]]:
    """The numbers of the texts that travel together, the shortest first.

    at_once: how many texts of so many tokens fit, padding included; one always does.
    """
    some: list[int] = []
    for number in sorted(range(len(texts)), key=lambda number: len(texts[number])):
        if some and len(some) >= at_once(len(texts[number])):
            yield some
            some = []
        some.append(number)
    if some:
        yield some


def _batch_of(loaded: LoadedModel, texts: Sequence[TextExample]) -> ExampleBatch:
    """The texts as one padded batch on the model's device."""
    ids = pad([text.encoding.input_ids for text in texts], loaded.config.pad_token_id)
    labels = np.full_like(ids, IGNORED_LABEL)
    for row, text in zip(labels, texts, strict=True):
        row[list(text.positions)] = text.answers
    follows, classes = (
        np.array([IGNORED_LABEL if answer is None else answer for answer in answers])
        for answers in ([text.next_sentence_label for text in texts], [text.label for text in texts])
    )
    segments, mask = pad([text.encoding.token_type_ids for text in texts]), pad([[1] * len(text) for text in texts])
    return ExampleBatch(loaded, Batch(ids, segments, mask, labels, follows), classes)
