"""Steering: a vector is added to the hidden states at one depth, and the target and all other words are predicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bert_core.analysis.steering import random_vectors
from bert_core.editing import edited
from bert_core.edits import AddedVector
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import Steering, Target
from bert_core.refused import (
    Refused,
    require_array,
    require_float,
    require_int,
    require_sequence,
    validate_arguments,
)
from bert_core.run.arrays import as_array
from bert_core.run.inputs import check_position, embed_text, layer_gates
from bert_core.run.memory import BYTES_AT_ONCE, copies_per_batch
from bert_core.run.stack import encoder_layers, run_layers
from bert_core.run.targets import check_target, target_rows, target_values
from bert_core.tokenizer import Encoding

FACTORS = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
MAX_FACTORS = 1000
MAX_DIVERGENCES = 10_000_000  # of all random vectors, factors and positions: 80 MB
SCORE_COPIES = 4  # float32 copies of the scores of all words that exist at once


@validate_arguments
@torch.no_grad()
def steer(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    vector: np.ndarray,
    depth: int,
    *,
    factors: Sequence[float] = FACTORS,
    positions: Sequence[int] | None = None,
    draws: int = 20,
    seed: int = 0,
    head_mask: np.ndarray | None = None,
    batch_tokens: int | None = None,
    report: Progress = ignore_progress,
) -> Steering:
    """Compute a target with a vector added to the hidden states, and with random vectors of the same norm.

    The random vectors show what any change of this size does. The predictions at the other positions show what the
    vector changes besides the target. Each value equals that of a model with an `AddedVector`. The layers below the
    depth are computed once, and all vectors and factors in batches.
    target: the value to compute. vector: (hidden,), such as one from `steering_vector`.
    depth: 0 for the embeddings, n + 1 for the output of layer n.
    factors: of the vector; 0 is the unchanged text.
    positions: the tokens to which the vector is added. None: all but the added [CLS] and [SEP].
    draws: number of random vectors, 1 to 1,000. seed: random seed.
    head_mask: as for `capture`. batch_tokens: as for `patch`.
    report: called with the number of passes done, see `Progress`.
    Raises Refused for a target without a trained head, a depth or position that does not exist, a vector of another
    width, factors that are empty or not finite, more than 10 million divergences, and factors so large that the states
    overflow.
    Source: activation addition, Turner 2023 (arXiv:2308.10248).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("The pilots [MASK] tired.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "were", against="was")
    >>> rows = loaded.model.bert.embeddings.word_embeddings.weight.detach().numpy()
    >>> vector = rows[loaded.tokenizer.id_of("pilot")] - rows[loaded.tokenizer.id_of("pilots")]
    >>> steering = bert_core.steer(loaded, encoding, target, vector, 0, factors=[0, 1], positions=[2])
    >>> bool(steering.values[0] == steering.base_value), bool(steering.effects[1] < 0)
    (True, True)
    """
    check_target(loaded, encoding, target)
    vector = require_array("the vector", vector, "hidden")
    factor_values = check_factors(factors)
    special = encoding.special
    typed_positions = [position for position in range(len(encoding)) if not special[position]]
    requested = typed_positions if positions is None else require_sequence("positions", positions, "whole numbers")
    steered_positions = tuple(sorted({check_position(encoding, position) for position in requested}))
    if not steered_positions:
        raise Refused("positions is empty: give at least one")
    edits = [AddedVector(depth, vector, factor, steered_positions) for factor in factor_values]
    edited(loaded, edits[:1])  # checks the depth and the width
    depth, vector = edits[0].depth, edits[0].vector
    vectors = np.concatenate([vector[None], random_vectors(vector, require_int("draws", draws, 1), seed)])
    norm = float(np.linalg.norm(vectors[0]))
    layers, gates = encoder_layers(loaded), layer_gates(loaded, head_mask)
    states = run_layers(layers, embed_text(loaded, encoding), 0, depth, gates=gates)
    _check_size(vectors, factor_values, states)
    rows = target_rows(loaded, encoding, target)
    excluded = {*rows, *encoding.mask_positions}
    other_positions = [
        position for position in typed_positions if position not in excluded and loaded.has_head("words")
    ]
    random_count = len(vectors) - 1
    divergence_count = random_count * len(factor_values) * len(other_positions)
    if divergence_count > MAX_DIVERGENCES:
        raise Refused(
            f"{random_count:,} random vectors, {len(factor_values):,} factors and {len(other_positions):,} other "
            f"words make {divergence_count:,} divergences: give fewer, for at most {MAX_DIVERGENCES:,}"
        )
    last_positions = sorted({*rows, *other_positions})
    row_indices, other_indices = (
        [last_positions.index(position) for position in part] for part in (rows, other_positions)
    )
    position_tensor = torch.tensor([last_positions], device=loaded.device)

    def run(variants: Tensor) -> tuple[np.ndarray, Tensor]:
        """Return the target of each variant (variant, seq, hidden), and its last states at the other positions."""
        last = run_layers(layers, variants, depth, gates=gates, positions=position_tensor)
        values = target_values(loaded, encoding, target, last[:, row_indices])
        return values.cpu().double().numpy(), last[:, other_indices]

    base_values, base_states = run(states)
    base_scores = loaded.model.cls.predictions(base_states[0]).float().log_softmax(-1) if other_positions else None
    base_tokens = np.empty(0, np.int64) if base_scores is None else base_scores.argmax(-1).cpu().numpy()
    shape = len(vectors), len(factor_values)
    values, divergences = np.full(shape, base_values[0]), np.zeros((*shape, len(other_positions)))
    tokens = np.tile(base_tokens, (len(factor_values), 1))  # with the vector itself
    variants = [(draw, index) for draw, index in np.ndindex(shape) if factor_values[index]]
    copies = copies_per_batch(batch_tokens, loaded.device, len(encoding))
    for first in range(0, len(variants), copies):
        draw_numbers, factor_numbers = np.array(variants[first : first + copies]).T
        added = (vectors[draw_numbers] * factor_values[factor_numbers, None]).astype(np.float32)
        steered = states.repeat(len(added), 1, 1)
        steered[:, list(steered_positions)] += torch.from_numpy(added).to(states)[:, None]
        part_values, last = run(steered)
        values[draw_numbers, factor_numbers] = part_values
        finite = np.isfinite(part_values)
        if base_scores is not None:
            token_copies = int((draw_numbers == 0).sum())  # the first ones
            part_divergences, part_tokens = _compare_predictions(loaded, base_scores, last, token_copies)
            divergences[draw_numbers, factor_numbers] = part_divergences
            tokens[factor_numbers[:token_copies]] = part_tokens
            finite &= np.isfinite(part_divergences).all(-1)
        if not finite.all():
            factor = factor_values[factor_numbers[~finite][0]]
            raise Refused(
                f"a factor of {factor:g} gives predictions that are not finite: the norm of the vector is {norm:.3g}, "
                "so give smaller factors"
            )
        report_count(report, first + len(added), len(variants), "passes")
    return Steering(
        encoding, target, depth, steered_positions, norm, factor_values, float(base_values[0]), values[0],
        values[1:], tuple(other_positions), divergences[0], divergences[1:], base_tokens, tokens,
    )  # fmt: skip


def _compare_predictions(
    loaded: LoadedModel, base_scores: Tensor, states: Tensor, token_copies: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the divergences (copy, position), and the most likely tokens of the first copies (copy, position).

    base_scores: (position, vocab), log-probabilities of the unchanged text. states: (copy, position, hidden), of the
    last layer. token_copies: number of copies whose most likely tokens are returned.
    """
    divergences, tokens = [], []
    for part in states.split(max(1, BYTES_AT_ONCE // (SCORE_COPIES * 4 * base_scores.numel()))):  # type: ignore[no-untyped-call]
        scores = loaded.model.cls.predictions(part).float().log_softmax(-1)
        differences = (base_scores.exp() * (base_scores - scores)).sum(-1)
        divergences.append(differences.clamp(min=0))
        tokens.append(scores[:token_copies].argmax(-1))
        token_copies -= len(tokens[-1])
    return as_array(torch.cat(divergences)), torch.cat(tokens).cpu().numpy()


def _check_size(vectors: np.ndarray, factors: np.ndarray, states: Tensor) -> None:
    """Raise Refused if the squared norm of a vector times a factor overflows, as layer normalisation computes it.

    vectors: (draw, hidden), of the same norm. states: to which they are added.
    """
    factor = factors[np.abs(factors).argmax()]
    with np.errstate(over="ignore"):
        largest = torch.from_numpy((vectors * factor).astype(np.float32)).to(states.dtype)
    if not largest.to(torch.promote_types(torch.float32, states.dtype)).square().sum(-1).isfinite().all():
        raise Refused(
            f"a factor of {factor:g} is too large for a vector of norm {np.linalg.norm(vectors[0]):.3g}: the squared "
            "norm of the product overflows, so give smaller factors"
        )


def check_factors(factors: Sequence[float]) -> np.ndarray:
    """Return the different factors in ascending order, float64.

    Raises Refused if there are none or too many, and for one that is not a finite number.
    """
    items = require_sequence("factors", factors, "numbers")
    values = sorted({require_float("a factor", item) for item in items})
    for value in values:
        if not np.isfinite(value):
            raise Refused(f"a factor is {value:g}: it must be a finite number")
    if not 1 <= len(values) <= MAX_FACTORS:
        raise Refused(f"factors has {len(values):,} different numbers: give 1 to {MAX_FACTORS:,}")
    return np.array(values)
