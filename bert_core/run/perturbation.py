"""Token attributions from changes of the input: gradients, integrated gradients, occlusion and value zeroing.

All functions are thread-safe: they compute no gradient of a parameter and do not change the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import Attribution, SentenceScore, Target, TokenMaps
from bert_core.refused import Refused, require_sequence, short_repr, validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.inputs import check_position, check_text, gate_tensor, position_tensor, segment_tensor
from bert_core.run.memory import copies_at_once
from bert_core.run.stack import trace_text
from bert_core.run.targets import check_target, rows_of_probability, target_probabilities, target_rows, target_values
from bert_core.tokenizer import Encoding

BASELINES = ("pad", "mask", "zero")
VARIANTS = ("original", "within word")

# ---------------------------------------------------------------------------- copies of a text

MAX_STEPS = 10_000  # computing the points of the quadrature rule alone takes a minute


class _TargetOnCopies:
    """A target of a text, which is computed for copies of the text with other word embeddings.

    words: (1, seq, embedding), the word embeddings of the unmodified text.
    """

    def __init__(
        self, loaded: LoadedModel, encoding: Encoding, target: Target, head_mask: np.ndarray | None = None
    ) -> None:
        check_target(loaded, check_text(loaded, encoding), target)
        self.loaded, self.encoding, self.target = loaded, encoding, target
        self._gates, self._segments = gate_tensor(loaded, head_mask), segment_tensor(loaded, encoding)
        self._positions = position_tensor(loaded, encoding)  # those of the unmodified text, also for padding tokens
        self.words = self.embed(torch.tensor([encoding.input_ids], device=loaded.device))

    @torch.no_grad()
    def embed(self, ids: Tensor) -> Tensor:
        """Look up the word embeddings (copies, seq, embedding) of token ids (copies, seq)."""
        words: Tensor = self.loaded.model.bert.embeddings.word_embeddings(ids)
        return words

    def rows(self, words: Tensor, *, probability: bool = False) -> Tensor:
        """Compute the output of the last layer at the positions that the target needs, (copies, row, hidden).

        words: (copies, seq, embedding). probability: whether the positions are those of the target's probability.
        """
        positions = (
            rows_of_probability(self.loaded, self.encoding, self.target)
            if probability
            else target_rows(self.loaded, self.encoding, self.target)
        )
        outputs = self.loaded.model.bert(
            inputs_embeds=words, token_type_ids=self._segments, position_ids=self._positions, head_mask=self._gates,
            positions=torch.tensor([positions], device=self.loaded.device),
        )  # fmt: skip
        rows: Tensor = outputs.last_hidden_state
        return rows

    def gradients(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the target of each copy (copies,) and its gradient at the words (copies, seq, embedding)."""
        with torch.enable_grad():
            leaf = words.detach().requires_grad_()
            values = target_values(self.loaded, self.encoding, self.target, self.rows(leaf))
            (gradient,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach(), gradient

    def values_without(
        self,
        removed: np.ndarray,
        baseline: str,
        *,
        probability: bool,
        report: Progress = ignore_progress,
    ) -> np.ndarray:
        """Compute the target, or its probability, with some tokens replaced by a baseline, float64 (copies,).

        removed: boolean (copies, seq), True for replaced tokens. baseline: one of `BASELINES`.
        report: receives the number of copies that are done.
        """
        changed = torch.from_numpy(removed).to(self.loaded.device)
        baseline_embedding = self.baseline_embedding(baseline)
        compute = target_probabilities if probability else target_values
        values = []
        with torch.no_grad():
            for batch in torch.split(changed, copies_at_once(self.loaded, len(self.encoding))):
                rows = self.rows(torch.where(batch[..., None], baseline_embedding, self.words), probability=probability)
                values.append(as_array(compute(self.loaded, self.encoding, self.target, rows)))
                report_count(report, sum(map(len, values)), len(changed), "changed copies")
        return np.concatenate(values).astype(np.float64)

    def baseline_embedding(self, baseline: str) -> Tensor:
        """Return the word embedding (embedding,) of a baseline. Raises Refused for an unknown baseline."""
        if baseline not in BASELINES:
            raise Refused(f"baseline {baseline!r} is unknown: one of {', '.join(BASELINES)}")
        if baseline == "zero":
            return torch.zeros_like(self.words[0, 0])
        tokenizer = self.loaded.tokenizer
        number = tokenizer.pad_id if baseline == "pad" else tokenizer.mask_id
        return self.embed(torch.tensor([[number]], device=self.loaded.device))[0, 0]

    def attribution(self, method: str, scores: Tensor | np.ndarray, value: float, **fields: object) -> Attribution:
        """Create the record of a method's scores (seq,). value: of the target; fields: further fields of the record."""
        array = as_array(scores) if isinstance(scores, Tensor) else scores.astype(np.float32)
        return Attribution(self.encoding, self.target, method, array, value, **fields)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- gradients at the word embeddings


@validate_arguments
def saliency(
    loaded: LoadedModel, encoding: Encoding, target: Target, *, head_mask: np.ndarray | None = None
) -> Attribution:
    """Compute saliency: the norm of the target's gradient at the word embedding of each token.

    head_mask: as for `capture`. The scores are at least 0 and have no meaningful sum.
    Raises Refused for a target without a trained head, or for a position that does not exist.
    Source: Simonyan 2014 (arXiv:1312.6034).
    """
    copies = _TargetOnCopies(loaded, encoding, target, head_mask)
    values, gradient = copies.gradients(copies.words)
    return copies.attribution("saliency", gradient[0].norm(dim=-1), values.item(), signed=False)


@validate_arguments
def input_x_gradient(
    loaded: LoadedModel, encoding: Encoding, target: Target, *, head_mask: np.ndarray | None = None
) -> Attribution:
    """Compute input x gradient: the dot product of each token's word embedding and the target's gradient there.

    head_mask: as for `capture`. The scores are signed first-order contributions. They would sum to the difference of
    the target from its value at zero embeddings only for a model that is linear in the embeddings.
    Raises Refused as `saliency`.
    Source: Shrikumar 2016 (arXiv:1605.01713).
    """
    copies = _TargetOnCopies(loaded, encoding, target, head_mask)
    values, gradient = copies.gradients(copies.words)
    return copies.attribution("input x gradient", (gradient * copies.words)[0].sum(-1), values.item(), signed=True)


@validate_arguments
def integrated_gradients(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    *,
    baseline: str = "pad",
    steps: int = 50,
    keep: Sequence[int] | None = None,
    head_mask: np.ndarray | None = None,
) -> Attribution:
    """Compute integrated gradients on the straight path from a baseline to the word embeddings of a text.

    baseline: the embedding at the start of the path, "pad", "mask" or "zero" (all zeros). The scores depend on it.
    steps: number of Gauss-Legendre points on the path, 1 to `MAX_STEPS`.
    keep: positions that the baseline does not replace, whose score is 0; None: [CLS], [SEP] and the target's masks.
    head_mask: as for `capture`.
    The scores sum to the difference between the target's values for the text and for the baseline; `gap` is the error
    of this sum.
    Raises Refused as `saliency`, and for an unknown baseline, another number of steps, or a kept position that does not
    exist.
    Source: Sundararajan 2017 (arXiv:1703.01365).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "door")
    >>> attribution = bert_core.integrated_gradients(loaded, encoding, target)
    >>> attribution.scores.shape, bool(abs(attribution.gap) < 0.01)
    ((10,), True)
    """
    copies = _TargetOnCopies(loaded, encoding, target, head_mask)
    nodes, weights = quadrature_points(steps)
    removed = _removable_tokens(encoding, target, keep)
    start = torch.where(removed[:, None].to(loaded.device), copies.baseline_embedding(baseline), copies.words)
    difference = copies.words - start
    mean = torch.zeros_like(difference[0])
    copies_per_batch = copies_at_once(loaded, len(encoding), gradients=True)
    for first_point in range(0, steps, copies_per_batch):
        points, weight = (
            part[first_point : first_point + copies_per_batch].to(difference) for part in (nodes, weights)
        )
        _, gradient = copies.gradients(start + points[:, None, None] * difference)
        mean += torch.einsum("c,csh->sh", weight, gradient)
    with torch.no_grad():
        ends = target_values(loaded, encoding, target, copies.rows(torch.cat([start, copies.words]))).tolist()
    return copies.attribution(
        "integrated gradients", (mean * difference[0]).sum(-1), ends[1],
        signed=True, baseline=baseline, baseline_value=ends[0], complete=True,
    )  # fmt: skip


def quadrature_points(steps: int) -> tuple[Tensor, Tensor]:
    """Return the points and the weights of a Gauss-Legendre rule on the interval from 0 to 1, float64 (steps,) each.

    Raises Refused unless steps is from 1 to `MAX_STEPS`.
    """
    if not 1 <= steps <= MAX_STEPS:
        raise Refused(f"steps is {short_repr(steps)}: it must be from 1 to {MAX_STEPS:,}")
    points, weights = np.polynomial.legendre.leggauss(steps)
    return torch.from_numpy((points + 1) / 2), torch.from_numpy(weights / 2)  # NumPy's rule is for -1 to 1


def _removable_tokens(encoding: Encoding, target: Target, keep: Sequence[int] | None) -> Tensor:
    """Return a boolean mask (seq,) of the tokens to replace. Raises Refused for a position that does not exist."""
    length = len(encoding)
    if keep is None:
        keep = sorted(set(range(length)) - set(target.removable(encoding)))
    keep = [check_position(encoding, position) for position in require_sequence("keep", keep, "positions")]
    removable = torch.ones(length, dtype=torch.bool)
    removable[keep] = False
    return removable


# ---------------------------------------------------------------------------- replaced tokens and zeroed values


@validate_arguments
def values_without(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    removed: np.ndarray,
    *,
    baseline: str = "mask",
    probability: bool = False,
    head_mask: np.ndarray | None = None,
    report: Progress = ignore_progress,
) -> np.ndarray:
    """Compute a target with some tokens removed, for every row of `removed`.

    removed: boolean (copies, seq), True for removed tokens; equal rows are computed once.
    baseline: what replaces a removed token: "mask", "pad" or "zero" (an embedding of zeros).
    probability: whether the probability of the target is returned, see `target_probabilities`, instead of its value.
    head_mask: as for `capture`. report: receives the number of different copies that are done, see `Progress`.
    Returns float64 (copies,).
    Raises Refused as `saliency`, for an unknown baseline, and if `removed` has another shape or type.
    """
    copies = _TargetOnCopies(loaded, encoding, target, head_mask)
    removed = np.asarray(removed)
    if removed.dtype.kind not in "biu":
        raise Refused(f"removed is of {removed.dtype}: it must be boolean, True for removed tokens")
    if removed.ndim != 2 or removed.shape[1] != len(encoding):
        raise Refused(f"removed has the shape {removed.shape}: it must be (copies, {len(encoding)}) for this text")
    unique_rows, inverse = np.unique(removed.astype(bool), axis=0, return_inverse=True)
    return copies.values_without(unique_rows, baseline, probability=probability, report=report)[inverse.reshape(-1)]


@validate_arguments
def occlusion(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    *,
    baseline: str = "mask",
    units: Sequence[Sequence[int]] | None = None,
    head_mask: np.ndarray | None = None,
) -> Attribution:
    """Compute occlusion: the decrease of a target when each token, or group of tokens, is removed.

    baseline: what replaces a removed token: "mask", "pad" or "zero" (an embedding of zeros).
    units: groups of positions that are removed together, such as the pieces of a word, which share the decrease evenly;
        None: each token separately. head_mask: as for `capture`.
    A score is positive if the token supports the target. [CLS], [SEP] and the target's own masks are never removed and
    score 0, as does a typed [MASK] with the baseline "mask". Two tokens with the same information both score low, since
    each can replace the other.
    Raises Refused as `values_without`.
    Source: Zeiler 2014 (arXiv:1311.2901); Li 2016 (arXiv:1612.08220).
    """
    removable = target.removable(encoding)
    groups = [(position,) for position in removable] if units is None else require_sequence("units", units, "units")
    selected = [
        [check_position(encoding, position) for position in require_sequence("a unit", unit, "positions")]
        for unit in groups
    ]
    selected = [
        positions for unit in selected if (positions := [position for position in unit if position in removable])
    ]
    removed = np.zeros((len(selected) + 1, len(encoding)), bool)  # the last row removes nothing
    for row, unit in zip(removed, selected, strict=False):
        row[unit] = True
    copies = _TargetOnCopies(loaded, encoding, target, head_mask)
    values = copies.values_without(removed, baseline, probability=False)
    scores = np.zeros(len(encoding))
    for unit, value in zip(selected, values, strict=False):
        scores[unit] = (values[-1] - value) / len(unit)
    return copies.attribution("occlusion", scores, float(values[-1]), signed=True, baseline=baseline)


@validate_arguments
@torch.no_grad()
def value_zeroing(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> TokenMaps:
    """Compute value zeroing: how much a layer's output changes when the value vectors of one token are set to zero.

    head_mask: as for `capture`.
    The maps (layer, query, key) are cosine distances between outputs of the whole layer, 0 to 2. Divide the rows by
    their sums to compare them. They include the residual connection and do not depend on a target.
    Source: Mohebbi 2023, section 3 (arXiv:2301.12971).
    """
    length = len(encoding)
    maps = np.empty((loaded.config.num_hidden_layers, length, length), np.float32)
    for number, traced in enumerate(trace_text(loaded, encoding, head_mask)):
        layer, context = traced.layer, traced.merged_context
        for first in range(0, length, keys_per_batch := copies_at_once(loaded, length)):
            keys = slice(first, first + keys_per_batch)
            # Attention is a sum over keys, so subtracting the term of a key equals zeroing its value.
            parts = torch.einsum("hqk,hkd->kqhd", traced.gated_probs[..., keys], traced.value[:, keys]).flatten(2)
            attention_output = layer.attention.output(context - parts, traced.input_states.expand(len(parts), -1, -1))
            changed = layer.feed_forward_chunk(attention_output)  # (token, query, hidden)
            # Without a change the distance is set to exactly 0, since rounding errors would look like a map.
            distance = (1 - F.cosine_similarity(changed, traced.output_states[None], dim=-1)) * parts.any(-1)
            maps[number, :, keys] = as_array(distance.clamp(min=0).T)
    return TokenMaps(encoding, "value zeroing", maps, residual=True)


# ---------------------------------------------------------------------------- pseudo-log-likelihood


@validate_arguments
@torch.no_grad()
def pseudo_log_likelihood(
    loaded: LoadedModel,
    encoding: Encoding,
    *,
    variant: str = "original",
    head_mask: np.ndarray | None = None,
    report: Progress = ignore_progress,
) -> SentenceScore:
    """Compute the log-probability of each token of a text when this token is masked.

    variant: "original" masks one token at a time. "within word" also masks the later pieces of the same word, because
        the end of a rare word would reveal its beginning.
    head_mask: as for `capture`. report: receives the number of masked copies that are done, see `Progress`.
    Returns log-probabilities in nats; the added [CLS] and [SEP] are not scored.
    Raises Refused for an unknown variant, a text that contains a [MASK], or a model without a trained MLM head.
    Source: Salazar 2020 (arXiv:1910.14659); Kauf & Ivanova 2023 (arXiv:2305.10588).
    """
    if variant not in VARIANTS:
        raise Refused(f"variant {variant!r} is unknown: {' or '.join(map(repr, VARIANTS))}")
    loaded.require_head("words", "it cannot score a text")
    if check_text(loaded, encoding).mask_positions:
        raise Refused(
            f"the text contains {encoding.special_tokens.mask} at position {encoding.mask_positions[0]}: a masked "
            "position cannot be scored"
        )
    scored = [position for position, special in enumerate(encoding.special) if not special]
    words = np.array([-1 if word is None else word for word in encoding.words])
    places = np.arange(len(encoding))
    is_masked = places[None] == np.array(scored)[:, None]
    if variant == "within word":
        is_masked |= (words[None] == words[scored][:, None]) & (places[None] > np.array(scored)[:, None])
    ids = torch.tensor([encoding.input_ids], device=loaded.device)
    masked = torch.where(
        torch.from_numpy(is_masked).to(loaded.device), torch.tensor(loaded.tokenizer.mask_id, device=ids.device), ids
    )
    gates, segments = gate_tensor(loaded, head_mask), segment_tensor(loaded, encoding)
    log_probabilities = np.full(len(encoding), np.nan, np.float32)
    for first in range(0, len(scored), copies_per_batch := copies_at_once(loaded, len(encoding))):
        batch_positions = scored[first : first + copies_per_batch]
        position_rows = torch.tensor(batch_positions, device=ids.device)[:, None]
        batch_ids = masked[first : first + copies_per_batch]
        outputs = loaded.model.bert(
            batch_ids,
            token_type_ids=None if segments is None else segments.expand(len(batch_positions), -1),
            head_mask=gates,
            positions=position_rows,
        )
        scores = loaded.model.cls.predictions(outputs.last_hidden_state[:, 0]).float().log_softmax(-1)
        log_probabilities[batch_positions] = as_array(scores.gather(1, ids[0, position_rows])[:, 0])
        report_count(report, first + len(batch_positions), len(scored), "masked copies")
    return SentenceScore(encoding, variant, log_probabilities)
