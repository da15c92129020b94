"""Losses of labelled texts, their gradients with respect to head gates, and their values without each head.

Studies of files and pruning plans use these functions for every kind of label. No function writes to the model.
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

LOSS_HEADS = ("words", "next", "classifier")  # task heads with a cross-entropy loss, in the order of their answers
MIN_VARIANTS_PER_BATCH = 8  # variants of a batch of texts; fewer texts share a batch, so that its variants fit as well
MASKING_STRIDE = 8  # every eighth token of a text is masked together, about the share of pre-training
TOKENS_PER_BATCH = 1024  # of all copies of a text; larger batches would rarely report progress

# ---------------------------------------------------------------------------- labelled texts


@dataclass(frozen=True)
class TextExample:
    """A text with at least one label: masked tokens, a next-sentence label or a class.

    positions, answers: the masked positions in ascending order, and the id of the original token at each.
    next_sentence_label: 0 if text B follows text A, 1 if not. label: the number of the class of the text.
    Its loss in nats is the mean over its masked tokens, plus the next-sentence loss, plus the loss of its class.
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
        """The names of the heads in `LOSS_HEADS` for which the text has labels."""
        has_labels = (bool(self.positions), self.next_sentence_label is not None, self.label is not None)
        return {head for head, has_label in zip(LOSS_HEADS, has_labels, strict=True) if has_label}


def mask_pieces(
    tokenizer: Tokenizer, encoding: Encoding, rng: np.random.Generator, *, share: float = 0.15
) -> TextExample:
    """Replace a random share of the tokens of a text by [MASK], at least one, and record the original tokens.

    share: share of the tokens, 0 to 1. The added [CLS] and [SEP] are never masked. A typed [MASK] has no original token
    and is only chosen if the text has no other token.
    """
    candidates = [position for position, special in enumerate(encoding.special) if not special]
    candidates = [position for position in candidates if encoding.roles[position] != "mask"] or candidates
    count = max(1, round(share * len(candidates)))
    positions = tuple(sorted(rng.choice(candidates, count, replace=False).tolist()))
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
    """Create examples from a text in which every token is masked once, an eighth of the tokens in each example.

    A pair adds one unmasked example with the next-sentence label "B follows A". A typed [MASK] has no label and remains
    masked in all examples. Returns batches; none for a text without anything to predict.
    """
    places = [p for p, special in enumerate(encoding.special) if not special and encoding.roles[p] != "mask"]
    parts = [selection for first in range(MASKING_STRIDE) if (selection := places[first::MASKING_STRIDE])]
    rows = len(parts) + (encoding.pair is not None)
    if not rows:
        return ()
    ids = np.tile(np.array(encoding.input_ids), (rows, 1))
    labels = np.full_like(ids, IGNORED_LABEL)
    for row, selection in enumerate(parts):
        labels[row, selection] = ids[row, selection]
        ids[row, selection] = loaded.tokenizer.mask_id
    next_sentence_labels = np.full(rows, IGNORED_LABEL)
    if encoding.pair is not None:  # the last row is the unmasked pair
        next_sentence_labels[-1] = 0
    segments = np.tile(np.array(encoding.token_type_ids), (rows, 1))
    rows_per_batch = max(1, TOKENS_PER_BATCH // ids.shape[1])
    batch_slices = (slice(first, first + rows_per_batch) for first in range(0, rows, rows_per_batch))
    return tuple(
        Batch(
            ids[selection],
            segments[selection],
            np.ones_like(ids[selection]),
            labels[selection],
            next_sentence_labels[selection],
        )
        for selection in batch_slices
    )


def check_loss_heads(loaded: LoadedModel, kinds: Collection[str]) -> None:
    """Raise Refused unless all of some heads of `LOSS_HEADS` are trained and have a cross-entropy loss."""
    for head in kinds:
        loaded.require_head(head, "the loss cannot be computed")
    if "classifier" not in kinds:
        return
    if loaded.config.problem_type in ("regression", "multi_label_classification") or len(loaded.labels) < 2:
        raise Refused(
            f"{loaded.name} does not assign one of several classes to a text, so there is no classification loss"
        )


def existing_parts(loaded: LoadedModel, part_kind: str = "heads") -> np.ndarray:
    """Return a boolean array that is False for pruned parts.

    part_kind: one of `PRUNABLE_PARTS`. Returns (layer, head), (layer, neuron) or (layer,).
    """
    layers, config = encoder_layers(loaded), loaded.config
    if part_kind == "layers":
        return np.array([not layer.removed for layer in layers], bool)
    size = config.num_attention_heads if part_kind == "heads" else config.intermediate_size
    exists = np.zeros((config.num_hidden_layers, size), bool)
    for number, layer in enumerate(layers):
        exists[number, list(layer.attention.self.heads if part_kind == "heads" else layer.intermediate.neurons)] = True
    return exists


def check_has_parts(loaded: LoadedModel, part_kind: str = "heads") -> None:
    """Raise Refused if all heads, neurons or layers of a model were pruned, or if the kind of part is unknown."""
    if part_kind not in PRUNABLE_PARTS:
        raise Refused(f"the kind of part {short_repr(part_kind)} is unknown: one of {', '.join(PRUNABLE_PARTS)}")
    if not existing_parts(loaded, part_kind).any():
        raise Refused(f"{loaded.name} has no {part_kind} left: all of them were pruned")


# ---------------------------------------------------------------------------- batches and their losses


class ExampleBatch:
    """A batch of labelled texts on the model's device; each label of a text is an answer that the model should give.

    batch: texts with labels of masked tokens and of next sentences. classes: (text,), the number of the class of each
        text, or -100 without a class. Labels for which the model has no trained head are ignored.
    positions: (text, position), the positions at which the last layer is needed. [CLS] comes first if a text has a
        label as a whole, then the masked positions. Rows with fewer positions are padded with that of [CLS]. A
        classifier that reads the mean of the hidden states needs all positions.
    kinds: (answer,), the index of each answer's head in `LOSS_HEADS`; answers are ordered by head.
    counts: the number of answers of each head in `LOSS_HEADS`.
    The loss of a text is the sum over its heads of the mean loss of their answers.
    """

    def __init__(self, loaded: LoadedModel, batch: Batch, classes: np.ndarray | None = None) -> None:
        texts = len(batch.input_ids)
        no_labels = np.full(texts, IGNORED_LABEL)
        labels = batch.labels if loaded.has_head("words") else np.full_like(batch.labels, IGNORED_LABEL)
        next_sentence_labels = batch.next_sentence_label if loaded.has_head("next") else no_labels
        classes = no_labels if classes is None or not loaded.has_head("classifier") else classes
        is_masked, has_next_label, has_class = (
            labels != IGNORED_LABEL,
            next_sentence_labels != IGNORED_LABEL,
            classes != IGNORED_LABEL,
        )
        counts, first = is_masked.sum(1), int(has_next_label.any() or has_class.any())
        positions = pad([[0] * first + np.flatnonzero(row).tolist() or [0] for row in is_masked])
        rows = first + np.concatenate([np.arange(0), *(np.arange(count) for count in counts)])
        if has_class.any() and loaded.config.classifier_pooling != "cls":
            positions, rows = np.tile(np.arange(is_masked.shape[1]), (texts, 1)), np.nonzero(is_masked)[1]
        owners = [np.repeat(np.arange(texts), counts), np.flatnonzero(has_next_label), np.flatnonzero(has_class)]
        shares = [1 / counts[owners[0]], np.ones(len(owners[1])), np.ones(len(owners[2]))]

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(loaded.device)

        check_edits(loaded, int(batch.attention_mask.sum(1).min(initial=batch.attention_mask.shape[1])))
        self.loaded, self.texts = loaded, texts
        self.ids = tensor(batch.input_ids)
        self.segments = tensor(batch.token_type_ids) if loaded.config.type_vocab_size else None
        self.mask = tensor(batch.attention_mask) if (batch.attention_mask == 0).any() else None
        self.positions = tensor(positions)
        self.counts = np.array([len(head_owners) for head_owners in owners])
        self.kinds = np.repeat(np.arange(len(LOSS_HEADS)), self.counts)
        self._owners = tensor(np.concatenate(owners))
        self._shares = tensor(np.concatenate(shares).astype(np.float32))
        self._owners_by_head = [tensor(head_owners) for head_owners in owners]
        self._rows = tensor(rows)
        self._labels = [
            tensor(labels[is_masked]),
            tensor(next_sentence_labels[has_next_label]),
            tensor(classes[has_class]),
        ]

    def states(self, gates: Tensor | None, *, maps: bool = False) -> Tensor:
        """Compute the output of the last layer at the positions, (text, position, hidden).

        gates: (layer, head) or (layer, text, head), or None. maps: whether attention is computed as explicit maps.
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
        """Compute the logits of each head in `LOSS_HEADS`, paired with the correct classes.

        states: (..., text, position, hidden), the output of the last layer at the positions.
        Returns logits (..., answer, class) and correct classes (answer,) for each head.
        """
        answers = []
        for name, texts, right in zip(LOSS_HEADS, self._owners_by_head, self._labels, strict=True):
            head = TASK_HEADS[name]
            if len(texts):
                # For heads of whole texts the first position is [CLS].
                head_states = (
                    states[..., texts, self._rows, :]
                    if name == "words"
                    else head.text_states(self.loaded, states, self.mask)[..., texts, :]
                )
                logits = head.logits(self.loaded, head_states).float()
            else:
                logits = states.new_empty(*states.shape[:-3], 0, 2, dtype=torch.float32)
            answers.append((logits, right))
        return answers

    def losses(self, answers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Compute the loss of every answer in nats, (..., answer). answers: the result of `ExampleBatch.answers`."""
        head_losses = []
        for logits, right in answers:
            expected = right.expand(logits.shape[:-1])
            answer_losses = F.cross_entropy(logits.flatten(0, -2), expected.flatten(), reduction="none")
            head_losses.append(answer_losses.view(expected.shape))
        return torch.cat(head_losses, dim=-1)

    def text_losses(self, losses: Tensor) -> Tensor:
        """Compute the loss of every text (..., text) from the losses of its answers (..., answer)."""
        zeros = losses.new_zeros(*losses.shape[:-1], self.texts)
        return zeros.index_add(-1, self._owners, losses * self._shares)


def batch_gate_gradients(examples: ExampleBatch) -> tuple[np.ndarray, np.ndarray]:
    """Compute the loss of every text and its gradient with respect to each head gate, at gates of 1.

    One forward and one backward pass give all gradients. Each text has its own gates and no influence on other texts.
    The gradient of the summed losses with respect to its gates is therefore the gradient of its own loss.
    Returns (text,) and (text, layer, head), signed; NaN for a pruned head.
    Source: Michel 2019, equation 2 (arXiv:1905.10650), before the absolute value.
    """
    loaded, config = examples.loaded, examples.loaded.config
    shape = (config.num_hidden_layers, examples.texts, config.num_attention_heads)
    gates = torch.ones(shape, device=loaded.device, requires_grad=True)
    with torch.enable_grad():
        # On a CPU the backward pass of fused attention is slower than that of explicit maps.
        states = examples.states(gates, maps=loaded.device.type == "cpu")
        losses = examples.text_losses(examples.losses(examples.answers(states)))
        # The loss of a model without any head has no graph.
        gradients = torch.autograd.grad(losses.sum(), gates) if losses.requires_grad else ()
    text_losses, *gate_gradients = (as_array(values).astype(np.float64) for values in to_cpu([losses, *gradients]))
    text_gradients = (
        gate_gradients[0].swapaxes(0, 1).copy()
        if gate_gradients
        else np.full((examples.texts, shape[0], shape[2]), np.nan)
    )
    text_gradients[:, ~existing_parts(loaded)] = np.nan
    return text_losses, text_gradients


def neuron_gate_gradients(loaded: LoadedModel, batch: Batch) -> np.ndarray:
    """Compute the gradient of the loss of every text with respect to a gate of each neuron, at gates of 1.

    It equals the sum over positions of each activation times its gradient.
    Returns (text, layer, neuron), signed; NaN for a pruned neuron.
    Source: Michel 2019, equation 2 (arXiv:1905.10650), applied to neurons; Molchanov 2019, section 3
    (arXiv:1906.10771).
    """
    config, texts = loaded.config, len(batch.input_ids)
    neurons_by_layer = [list(layer.intermediate.neurons) for layer in encoder_layers(loaded)]
    gates = [
        torch.ones(texts, 1, len(neurons), device=loaded.device, requires_grad=True) for neurons in neurons_by_layer
    ]
    examples = ExampleBatch(with_neuron_gates(loaded, gates), batch)
    text_gradients = np.full((texts, config.num_hidden_layers, config.intermediate_size), np.nan)
    with torch.enable_grad():
        losses = examples.text_losses(
            examples.losses(examples.answers(examples.states(None, maps=loaded.device.type == "cpu")))
        )
        if losses.requires_grad:  # the loss of a model without any neuron has no graph
            gate_gradients = torch.autograd.grad(losses.sum(), gates, allow_unused=True, materialize_grads=True)
            for layer, (neurons, gradient) in enumerate(zip(neurons_by_layer, to_cpu(gate_gradients), strict=True)):
                text_gradients[:, layer, neurons] = as_array(gradient[:, 0])
    return text_gradients


@torch.no_grad()
def answer_losses_without_heads(
    examples: ExampleBatch,
    replacement: Replacement | None = None,
    *,
    batch_tokens: int | None = None,
    report: Progress = ignore_progress,
) -> tuple[Tensor, Tensor]:
    """Compute the exact loss of every answer with all heads, and with each head ablated in turn.

    replacement: what replaces the output of a head; None: zeros. batch_tokens: as for `patch`.
    report: receives the number of heads that are done, see `Progress`.
    Returns (answer,) and (layer, head, answer) in nats, NaN for a pruned head.
    Raises Refused for a model with activation patches.
    Source: Michel 2019, section 3 (arXiv:1905.10650).
    """
    check_unpatched(examples.loaded.edits, ABLATION_NAME)
    bert, config, mask = examples.loaded.model.bert, examples.loaded.config, None
    if examples.mask is not None:
        mask = bert.get_extended_attention_mask(examples.mask, (examples.texts, examples.ids.shape[1]))
    last, ablations = iter_head_ablations(
        encoder_layers(examples.loaded),
        bert.embeddings(examples.ids, token_type_ids=examples.segments),
        examples.positions,
        mask=mask,
        replacement=replacement,
        batch_tokens=batch_tokens,
        report=report,
    )
    losses = examples.losses(examples.answers(last))
    ablated_losses = losses.new_full((config.num_hidden_layers, config.num_attention_heads, len(losses)), torch.nan)
    for heads, states in ablations:
        layers, numbers = zip(*heads, strict=True)
        ablated_losses[list(layers), list(numbers)] = examples.losses(examples.answers(states))
    return losses, ablated_losses


# ---------------------------------------------------------------------------- many texts


def attention_maps(loaded: LoadedModel, encodings: Sequence[Encoding]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the index and the attention maps of every text, from the shortest text to the longest.

    A map is float32 (layer, head, query, key): probabilities after the softmax, without padding, whose rows sum to 1.
    Pruned heads are NaN.
    """
    config = loaded.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    heads_left = [list(module.heads) for module in loaded.model.attention_modules]

    def batch_size(tokens: int) -> int:
        return min(copies_at_once(loaded, tokens), BYTES_AT_ONCE // (4 * layers * heads * tokens**2))

    for indices in batch_by_length(encodings, batch_size):
        batch = _batch_examples(loaded, [TextExample(encodings[number]) for number in indices])
        with torch.no_grad(), record() as recording:
            batch.states(None)
        maps = to_cpu([recording.attention[layer] for layer in range(layers)])
        for row, number in enumerate(indices):
            length = len(encodings[number])
            layer_maps_of_text = (as_array(layer_maps[row, :, :length, :length]) for layer_maps in maps)
            text_maps = [
                fill_pruned_with_nan(layer_maps, heads_of_layer, heads)
                for layer_maps, heads_of_layer in zip(layer_maps_of_text, heads_left, strict=True)
            ]
            yield number, np.stack(text_maps)


def gate_gradients(loaded: LoadedModel, texts: Sequence[TextExample]) -> tuple[np.ndarray, np.ndarray]:
    """Compute the loss of every text and its gradient with respect to each head gate, see `batch_gate_gradients`.

    Returns float64 (text,) and (text, layer, head), signed; NaN for a pruned head.
    Raises Refused for a label for which the model has no trained head.
    """
    check_loss_heads(loaded, {kind for text in texts for kind in text.kinds})
    config = loaded.config
    losses = np.empty(len(texts))
    gradients = np.empty((len(texts), config.num_hidden_layers, config.num_attention_heads))
    for indices in batch_by_length(texts, lambda tokens: copies_at_once(loaded, tokens, gradients=True)):
        losses[indices], gradients[indices] = batch_gate_gradients(
            _batch_examples(loaded, [texts[number] for number in indices])
        )
    return losses, gradients


@torch.no_grad()
def losses_without_heads(
    loaded: LoadedModel,
    texts: Sequence[TextExample],
    replacement: Replacement | None = None,
    *,
    batch_tokens: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the exact loss of every text with all heads, and with each head ablated in turn.

    replacement: what replaces the output of a head; None: zeros. batch_tokens: as for `patch`.
    Returns float64 (text,) and (text, layer, head) in nats; NaN for a pruned head.
    Raises Refused for a label for which the model has no trained head, and for a model with activation patches.
    """
    check_loss_heads(loaded, {kind for text in texts for kind in text.kinds})
    config = loaded.config
    text_losses = np.empty(len(texts))
    ablated_losses = np.full((len(texts), config.num_hidden_layers, config.num_attention_heads), np.nan)
    for indices in batch_by_length(
        texts, lambda tokens: copies_per_batch(batch_tokens, loaded.device, MIN_VARIANTS_PER_BATCH * tokens)
    ):
        examples = _batch_examples(loaded, [texts[number] for number in indices])
        answer_losses, answer_losses_by_head = answer_losses_without_heads(
            examples, replacement, batch_tokens=batch_tokens
        )
        batch_losses, batch_ablated_losses = to_cpu(
            [examples.text_losses(answer_losses), examples.text_losses(answer_losses_by_head).movedim(-1, 0)]
        )
        text_losses[indices], ablated_losses[indices] = as_array(batch_losses), as_array(batch_ablated_losses)
    return text_losses, ablated_losses


def batch_by_length(texts: Sequence[Sized], batch_size: Callable[[int], int]) -> Iterator[list[int]]:
    """Yield batches of the indices of texts, from the shortest text to the longest.

    batch_size: function from the length of the longest text of a batch, to which the others are padded, to the number
        of texts that fit. A batch always has at least one text.
    """
    batch: list[int] = []
    for number in sorted(range(len(texts)), key=lambda number: len(texts[number])):
        if batch and len(batch) >= batch_size(len(texts[number])):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _batch_examples(loaded: LoadedModel, texts: Sequence[TextExample]) -> ExampleBatch:
    """Pad labelled texts to one batch on the model's device."""
    ids = pad([text.encoding.input_ids for text in texts], loaded.config.pad_token_id)
    labels = np.full_like(ids, IGNORED_LABEL)
    for row, text in zip(labels, texts, strict=True):
        row[list(text.positions)] = text.answers
    next_sentence_labels, classes = (
        np.array([IGNORED_LABEL if answer is None else answer for answer in answers])
        for answers in ([text.next_sentence_label for text in texts], [text.label for text in texts])
    )
    segments, mask = pad([text.encoding.token_type_ids for text in texts]), pad([[1] * len(text) for text in texts])
    return ExampleBatch(loaded, Batch(ids, segments, mask, labels, next_sentence_labels), classes)
