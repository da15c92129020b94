"""Some texts at once and what is asked of them: their losses, how these move with every head's gate, and without each.

Texts of any kind of answer, for a file as for a pruning plan, come through here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.modeling import IGNORED_LABEL
from bert_core.records import Batch
from bert_core.run.ablation import Head, Replacement, clean_pass, without_each
from bert_core.run.layers import TOKENS_AT_ONCE, as_array

KINDS = ("pieces", "next sentences", "classes")


class Asked:
    """A batch of texts on the model's device, and the answers that are asked of them.

    batch: the texts, their hidden pieces and next sentences; classes: (text,), the number of the class of each, or -100
    where nobody asks. What the model has no trained head for is not asked.
    positions: (text, some), where the last layer is read: [CLS] if a text as a whole is asked, then the hidden pieces,
        those of a text with fewer filled up with [CLS].
    counts: how many answers of each of `KINDS` are asked for.
    The loss of a text is the sum of its kinds, each the mean over its answers.
    """

    def __init__(self, loaded: LoadedModel, batch: Batch, classes: np.ndarray | None = None) -> None:
        texts = len(batch.input_ids)
        nothing = np.full(texts, IGNORED_LABEL)
        labels = batch.labels if loaded.has_mlm else np.full_like(batch.labels, IGNORED_LABEL)
        follows = batch.next_sentence_label if loaded.has_nsp else nothing
        classes = nothing if classes is None or not loaded.has_classifier else classes
        hidden, told, sorted_in = labels != IGNORED_LABEL, follows != IGNORED_LABEL, classes != IGNORED_LABEL
        counts, first = hidden.sum(1), int(told.any() or sorted_in.any())
        positions = np.zeros((texts, max(first + counts.max(initial=0), 1)), np.int64)
        for row, count in enumerate(counts):
            positions[row, first : first + count] = np.flatnonzero(hidden[row])
        owners = [np.repeat(np.arange(texts), counts), np.flatnonzero(told), np.flatnonzero(sorted_in)]
        shares = [1 / counts[owners[0]], np.ones(len(owners[1])), np.ones(len(owners[2]))]

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(loaded.device)

        self.loaded, self.texts = loaded, texts
        self.ids = tensor(batch.input_ids)
        self.segments = tensor(batch.token_type_ids) if loaded.config.type_vocab_size else None
        self.mask = tensor(batch.attention_mask) if (batch.attention_mask == 0).any() else None
        self.positions = tensor(positions)
        self.counts = np.array([len(of_kind) for of_kind in owners])
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
        heads, classifier = self.loaded.model.cls, self.loaded.classifier
        pieces, told, sorted_in = self._of_kind
        found = [heads.predictions(states[..., pieces, self._places, :]).float()]
        judges = (heads.seq_relationship, None if classifier is None else classifier.classifier)
        for whole, head in zip((told, sorted_in), judges, strict=True):
            if len(whole) and head is not None:
                pooler = self.loaded.model.bert.pooler
                assert pooler is not None  # a model that judges whole texts has one
                # It reads the first of the positions, which is [CLS] wherever a text as a whole is asked.
                logits = head(pooler(states[..., whole, :1, :].flatten(0, -3))).float()
                found.append(logits.view(*states.shape[:-3], len(whole), -1))
            else:
                found.append(states.new_empty(*states.shape[:-3], 0, 2))
        return list(zip(found, self._right, strict=True))

    def losses(self, states: Tensor) -> Tensor:
        """The loss of every text, (..., text), nats. states: as for `answers`."""
        found = states.new_zeros(*states.shape[:-3], self.texts, dtype=torch.float32)
        return found.index_add(-1, self._owners, torch.cat(losses_of(self.answers(states)), dim=-1) * self._shares)


def losses_of(answers: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """The loss of every answer, (..., answer), kind after kind, nats. answers: as `Asked.answers` gives them."""
    found = []
    for logits, right in answers:
        wanted = right.expand(logits.shape[:-1])
        each = F.cross_entropy(logits.flatten(0, -2), wanted.flatten(), reduction="none")
        found.append(each.view(wanted.shape))
    return found


def losses_and_slopes(asked: Asked) -> tuple[np.ndarray, np.ndarray]:
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
        found = asked.losses(asked.states(gates, maps=loaded.device.type == "cpu"))
        slopes = np.full((asked.texts, shape[0], shape[2]), np.nan)
        if found.requires_grad:  # a model without any head has no slope
            slopes = as_array(torch.autograd.grad(found.sum(), gates)[0].transpose(0, 1)).astype(np.float64)
    slopes[:, ~heads_there(loaded)] = np.nan
    return as_array(found).astype(np.float64), slopes


@torch.no_grad()
def states_without_each(
    asked: Asked, replacement: Replacement | None = None, *, batch_tokens: int = TOKENS_AT_ONCE
) -> tuple[Tensor, Iterator[tuple[Sequence[Head], Tensor]]]:
    """The last layer at the positions with all heads, and then without each of them in turn, exactly.

    replacement: what takes the place of a head's output; None: zeros. batch_tokens: bounds the memory.
    Returns (text, some, hidden), and some heads at a time with (head, text, some, hidden).
    """
    bert = asked.loaded.model.bert
    mask = None
    if asked.mask is not None:
        mask = bert.get_extended_attention_mask(asked.mask, (asked.texts, asked.ids.shape[1]))
    clean = clean_pass(bert, bert.embeddings(asked.ids, token_type_ids=asked.segments), mask, None, asked.positions)
    heads: list[Head] = [(int(layer), int(head)) for layer, head in np.argwhere(heads_there(asked.loaded))]
    without = without_each(
        bert, clean, heads, mask, None, asked.positions,
        replacement=None if replacement is None else replacement.of_length(asked.ids.shape[1]),
        batch_tokens=batch_tokens,
    )  # fmt: skip
    return clean.leaving, without


def check_can_answer(loaded: LoadedModel, kinds: Collection[str]) -> None:
    """Raise ValueError if a model has no trained head for some of `KINDS`, and so no loss to speak of."""
    if "pieces" in kinds and not loaded.has_mlm:
        raise ValueError(f"{loaded.name} has no trained masked-word head: its heads have no loss to be measured by")
    if "next sentences" in kinds and not loaded.has_nsp:
        raise ValueError(f"{loaded.name} has no trained next-sentence head: its heads have no loss to be measured by")
    if "classes" not in kinds:
        return
    if not loaded.has_classifier:
        raise ValueError(f"{loaded.name} has no trained classifier: its heads have no loss to be measured by")
    if loaded.config.problem_type in ("regression", "multi_label_classification") or len(loaded.labels) < 2:
        raise ValueError(f"{loaded.name} does not give a text one of several classes: there is no class to be right")


def check_has_heads(loaded: LoadedModel) -> None:
    """Raise ValueError for a model that has lost all its heads."""
    if not heads_there(loaded).any():
        raise ValueError(f"{loaded.name} has no heads left: there is nothing to ask of them")


def heads_there(loaded: LoadedModel) -> np.ndarray:
    """Whether the model has each head, (layer, head)."""
    there = np.zeros((loaded.config.num_hidden_layers, loaded.config.num_attention_heads), bool)
    for layer, module in enumerate(loaded.model.attention_modules):
        there[layer, list(module.heads)] = True
    return there
