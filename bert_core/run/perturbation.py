"""What a target rests on, found by changing the input: gradients at the words, paths, and words taken away.

Every function here is safe to call from many threads on one model: no gradient of a parameter is computed, and nothing
is written to the model.
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
from bert_core.run.targets import check_target, rows_of_probability, target_probabilities, target_values
from bert_core.tokenizer import Encoding

BASELINES = ("pad", "mask", "zero")
VARIANTS = ("original", "within word")

# ---------------------------------------------------------------------------- copies of a text

MAX_STEPS = 10_000  # finding so many points takes a minute by itself


class _TargetOnCopies:
    """One target on one text, to be asked of copies of the text with other words.

    words: (1, seq, embedding), the word embeddings of the text itself.
    """

    def __init__(
        self, loaded: LoadedModel, encoding: Encoding, target: Target, head_mask: np.ndarray | None = None
    ) -> None:
        check_target(loaded, check_text(loaded, encoding), target)
        self.loaded, self.encoding, self.target = loaded, encoding, target
        self._gates, self._segments = gate_tensor(loaded, head_mask), segment_tensor(loaded, encoding)
        self._positions = position_tensor(loaded, encoding)  # of the text as it is, whatever stands for a word
        self.words = self.embedded(torch.tensor([encoding.input_ids], device=loaded.device))

    @torch.no_grad()
    def embedded(self, ids: Tensor) -> Tensor:
        """(copies, seq) -> word embeddings (copies, seq, embedding)."""
        words: Tensor = self.loaded.model.bert.embeddings.word_embeddings(ids)
        return words

    def rows(self, words: Tensor, *, probability: bool = False) -> Tensor:
        """The last layer where the target is read, (copies, row, hidden); it is computed nowhere else.

        words: (copies, seq, embedding). probability: where its probability is.
        """
        at = rows_of_probability(self.encoding, self.target) if probability else self.target.rows
        outputs = self.loaded.model.bert(
            inputs_embeds=words, token_type_ids=self._segments, position_ids=self._positions, head_mask=self._gates,
            positions=torch.tensor([at], device=self.loaded.device),
        )  # fmt: skip
        rows: Tensor = outputs.last_hidden_state
        return rows

    def gradients(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The target of each copy (copies,), and its gradient at each copy's words (copies, seq, embedding)."""
        with torch.enable_grad():
            leaf = words.detach().requires_grad_()
            values = target_values(self.loaded, self.target, self.rows(leaf))
            (gradient,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach(), gradient

    def without(
        self,
        removed: np.ndarray,
        baseline: str,
        *,
        probability: bool,
        report: Progress = ignore_progress,
    ) -> np.ndarray:
        """The target, or its probability, with words taken away, float64 (copies,).

        removed: boolean (copies, seq). baseline: what stands in their place. report: told how many are read.
        """
        changed = torch.from_numpy(removed).to(self.loaded.device)
        nothing = self.words_of(baseline)
        read = target_probabilities if probability else target_values
        values = []
        with torch.no_grad():
            for some in torch.split(changed, copies_at_once(self.loaded, len(self.encoding))):
                rows = self.rows(torch.where(some[..., None], nothing, self.words), probability=probability)
                values.append(as_array(read(self.loaded, self.target, rows)))
                report_count(report, sum(map(len, values)), len(changed), "changed copies")
        return np.concatenate(values).astype(np.float64)

    def words_of(self, baseline: str) -> Tensor:
        """The word embedding (embedding,) that stands for no word. Raises Refused for an unknown baseline."""
        if baseline not in BASELINES:
            raise Refused(f"baseline {baseline!r} is unknown: one of {', '.join(BASELINES)}")
        if baseline == "zero":
            return torch.zeros_like(self.words[0, 0])
        tokenizer = self.loaded.tokenizer
        number = tokenizer.pad_id if baseline == "pad" else tokenizer.mask_id
        return self.embedded(torch.tensor([[number]], device=self.loaded.device))[0, 0]

    def attribution(self, method: str, scores: Tensor | np.ndarray, value: float, **more: object) -> Attribution:
        """The record of a method's scores (seq,)."""
        array = as_array(scores) if isinstance(scores, Tensor) else scores.astype(np.float32)
        return Attribution(self.encoding, self.target, method, array, value, **more)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- gradients at the words


@validate_arguments
def saliency(
    loaded: LoadedModel, encoding: Encoding, target: Target, *, head_mask: np.ndarray | None = None
) -> Attribution:
    """How fast the target changes with each token's word embedding: the length of the gradient there.

    head_mask: as for `capture`. The scores have no sign, and sum to nothing in particular.
    Raises Refused for a target that the model has no trained head for, or a position that does not exist.
    Source: Simonyan 2014 (arXiv:1312.6034).
    """
    copies = _TargetOnCopies(loaded, encoding, target, head_mask)
    values, gradient = copies.gradients(copies.words)
    return copies.attribution("saliency", gradient[0].norm(dim=-1), values.item(), signed=False)


@validate_arguments
def input_x_gradient(
    loaded: LoadedModel, encoding: Encoding, target: Target, *, head_mask: np.ndarray | None = None
) -> Attribution:
    """The gradient at each token's word embedding times that embedding, summed: a first-order share, signed.

    head_mask and errors: as for `saliency`. The sum is the target's way from zero embeddings only for a model that is
    linear in them, which none is.
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
    """The gradient at the word embeddings, averaged on the straight way from a text without words, times that way.

    baseline: what stands for no word: "pad", "mask" or "zero", an embedding of zeros. It is a choice, and matters.
    steps: Gauss-Legendre points on the way, computed in batches that fit.
    keep: positions that the baseline leaves as they are, whose score is then 0; None: [CLS], [SEP] and the target's.
    head_mask: as for `capture`.
    The scores sum to the target's value less its value at the baseline; `gap` is by how much they miss it.
    Raises Refused as `saliency`, and for an unknown baseline, fewer than one step, or a kept position that is not
    there.
    Source: Sundararajan 2017 (arXiv:1703.01365).
    """
    copies = _TargetOnCopies(loaded, encoding, target, head_mask)
    along, weights = quadrature_points(steps)
    removed = _removable(encoding, target, keep)
    start = torch.where(removed[:, None].to(loaded.device), copies.words_of(baseline), copies.words)
    way = copies.words - start
    mean = torch.zeros_like(way[0])
    together = copies_at_once(loaded, len(encoding), gradients=True)
    for some in range(0, steps, together):
        points, weight = (part[some : some + together].to(way) for part in (along, weights))
        _, gradient = copies.gradients(start + points[:, None, None] * way)
        mean += torch.einsum("c,csh->sh", weight, gradient)
    with torch.no_grad():
        ends = target_values(loaded, target, copies.rows(torch.cat([start, copies.words]))).tolist()
    return copies.attribution(
        "integrated gradients", (mean * way[0]).sum(-1), ends[1],
        signed=True, baseline=baseline, baseline_value=ends[0], complete=True,
    )  # fmt: skip


def quadrature_points(steps: int) -> tuple[Tensor, Tensor]:
    """Where a straight way from 0 to 1 is looked at, and what each counts: Gauss-Legendre, float64 (steps,) each.

    Raises Refused for fewer than one step, or too many.
    """
    if not 1 <= steps <= MAX_STEPS:
        raise Refused(f"{short_repr(steps)} steps: it takes at least one, and at most {MAX_STEPS:,}")
    points, weights = np.polynomial.legendre.leggauss(steps)
    return torch.from_numpy((points + 1) / 2), torch.from_numpy(weights / 2)  # the rule's way is from -1 to 1


def _removable(encoding: Encoding, target: Target, keep: Sequence[int] | None) -> Tensor:
    """Boolean (seq,): which tokens may go. Raises Refused for a kept position that does not exist."""
    length = len(encoding)
    if keep is None:
        keep = sorted(set(range(length)) - set(target.removable(encoding)))
    keep = [check_position(encoding, position) for position in require_sequence("keep", keep, "positions")]
    removable = torch.ones(length, dtype=torch.bool)
    removable[keep] = False
    return removable


# ---------------------------------------------------------------------------- words taken away


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
    """The target with some tokens taken away, for every row of `removed`, in batches that fit.

    removed: boolean (copies, seq), True where a token goes. baseline: what stands in its place, "mask", "pad", "zero".
    probability: of the word, of the word and not the other, that B follows A, of the class; else the target's value.
    report: told how many different copies are done, as for `Progress`.
    Returns float64 (copies,); copies that are alike are computed once.
    Raises Refused as `saliency`, for an unknown baseline, or if removed has another shape.
    """
    copies = _TargetOnCopies(loaded, encoding, target, head_mask)
    removed = np.asarray(removed)
    if removed.dtype.kind not in "biu":
        raise Refused(f"removed is of {removed.dtype}: True where a token goes, False where it stays")
    if removed.ndim != 2 or removed.shape[1] != len(encoding):
        raise Refused(f"removed is {removed.shape}: (copies, {len(encoding)}) for this text")
    different, place = np.unique(removed.astype(bool), axis=0, return_inverse=True)
    return copies.without(different, baseline, probability=probability, report=report)[place.reshape(-1)]


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
    """How much the target falls when a token is taken away, one at a time.

    baseline: what stands in its place, "mask", "pad" or "zero". units: positions that go together, such as the pieces
        of a word; they share the fall evenly. None: each by itself. head_mask: as for `capture`.
    Positive where the token speaks for the target. [CLS], [SEP] and the target's own position stay and score 0; so does
    what is a [MASK] already, where a [MASK] takes its place. Two tokens that say the same hide each other.
    Raises Refused as `values_without`.
    Source: Zeiler 2014 (arXiv:1311.2901); Li 2016 (arXiv:1612.08220).
    """
    removable = target.removable(encoding)
    given = [(position,) for position in removable] if units is None else require_sequence("units", units, "units")
    parts = [
        [check_position(encoding, position) for position in require_sequence("a unit", unit, "positions")]
        for unit in given
    ]
    parts = [kept for unit in parts if (kept := [position for position in unit if position in removable])]
    removed = np.zeros((len(parts) + 1, len(encoding)), bool)  # the last row is the text itself
    for row, unit in zip(removed, parts, strict=False):
        row[unit] = True
    copies = _TargetOnCopies(loaded, encoding, target, head_mask)
    values = copies.without(removed, baseline, probability=False)
    scores = np.zeros(len(encoding))
    for unit, value in zip(parts, values, strict=False):
        scores[unit] = (values[-1] - value) / len(unit)
    return copies.attribution("occlusion", scores, float(values[-1]), signed=True, baseline=baseline)


@validate_arguments
@torch.no_grad()
def value_zeroing(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> TokenMaps:
    """How far each position's output turns in a layer when one token's values are zero in all its heads.

    head_mask: as for `capture`. The maps are cosine distances after the whole layer, 0 to 2; divide rows by their sum
    to compare them. They know nothing of any target; the residual connection is in them.
    Source: Mohebbi 2023, section 3 (arXiv:2301.12971).
    """
    length = len(encoding)
    maps = np.empty((loaded.config.num_hidden_layers, length, length), np.float32)
    for number, traced in enumerate(trace_text(loaded, encoding, head_mask)):
        layer, context = traced.layer, traced.merged_context
        for first in range(0, length, together := copies_at_once(loaded, length)):
            some = slice(first, first + together)
            # Attention is a sum over keys: taking one key's part off is zeroing its value.
            parts = torch.einsum("hqk,hkd->kqhd", traced.gated_probs[..., some], traced.value[:, some]).flatten(2)
            attended = layer.attention.output(context - parts, traced.input_states.expand(len(parts), -1, -1))
            changed = layer.feed_forward_chunk(attended)  # (token, query, hidden)
            # Where nothing was taken off, nothing turns: rounding alone would look like a map.
            distance = (1 - F.cosine_similarity(changed, traced.output_states[None], dim=-1)) * parts.any(-1)
            maps[number, :, some] = as_array(distance.clamp(min=0).T)
    return TokenMaps(encoding, "value zeroing", maps, residual=True)


# ---------------------------------------------------------------------------- a text's own likelihood


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
    """How likely each piece is when it alone is masked, all pieces in batches that fit.

    variant: "original"; or "within word", where the later pieces of the same word are masked too, so that a rare word
    is not likely only because its end gives its beginning away.
    head_mask: as for `capture`. The added [CLS] and [SEP] are not scored.
    report: told how many masked copies the model has read, as for `Progress`.
    Raises Refused for an unknown variant, a text that holds a [MASK], or a model without a trained word head.
    Source: Salazar 2020 (arXiv:1910.14659); Kauf & Ivanova 2023 (arXiv:2305.10588).
    """
    if variant not in VARIANTS:
        raise Refused(f"variant {variant!r} is unknown: {' or '.join(map(repr, VARIANTS))}")
    loaded.require_head("words", "it cannot score a text")
    if check_text(loaded, encoding).mask_positions:
        raise Refused(
            f"the text contains {encoding.special_tokens.mask} at position {encoding.mask_positions[0]}: only words "
            "that are there can be scored"
        )
    scored = [position for position, special in enumerate(encoding.special) if not special]
    words = np.array([-1 if word is None else word for word in encoding.words])
    places = np.arange(len(encoding))
    hidden = places[None] == np.array(scored)[:, None]
    if variant == "within word":
        hidden |= (words[None] == words[scored][:, None]) & (places[None] > np.array(scored)[:, None])
    ids = torch.tensor([encoding.input_ids], device=loaded.device)
    masked = torch.where(
        torch.from_numpy(hidden).to(loaded.device), torch.tensor(loaded.tokenizer.mask_id, device=ids.device), ids
    )
    gates, segments = gate_tensor(loaded, head_mask), segment_tensor(loaded, encoding)
    log_probabilities = np.full(len(encoding), np.nan, np.float32)
    for first in range(0, len(scored), together := copies_at_once(loaded, len(encoding))):
        some = scored[first : first + together]
        at = torch.tensor(some, device=ids.device)[:, None]
        copies = masked[first : first + together]
        outputs = loaded.model.bert(
            copies,
            token_type_ids=None if segments is None else segments.expand(len(some), -1),
            head_mask=gates,
            positions=at,
        )
        scores = loaded.model.cls.predictions(outputs.last_hidden_state[:, 0]).float().log_softmax(-1)
        log_probabilities[some] = as_array(scores.gather(1, ids[0, at])[:, 0])
        report_count(report, first + len(some), len(scored), "masked copies")
    return SentenceScore(encoding, variant, log_probabilities)
