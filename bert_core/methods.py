"""Every answer to "why this word?" by name: one number a token, what it claims, and how it misleads.

The methods themselves are in `run` (what needs the model) and `analysis` (what needs arrays); here each becomes the
scores of the tokens for one target, so that they can stand beside each other and be judged by one measure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_core.analysis.attribution import (
    effective_attention,
    gradient_attention,
    gradient_relevance,
    norm_rollout,
    rows_of_one,
)
from bert_core.analysis.faithfulness import RANDOM_RANKINGS, Faithfulness, judge, plan_removals, removable_units
from bert_core.analysis.flow import attention_flow, attention_rollout, mean_of_heads
from bert_core.loading import LoadedModel
from bert_core.record import ModelRun, Target, TokenMaps
from bert_core.run import decomposition, perturbation
from bert_core.run.capture import capture
from bert_core.tokenizer import Encoding


class _Question:
    """What a method may look at; the run is made when a method first asks for it."""

    def __init__(
        self,
        loaded: LoadedModel,
        encoding: Encoding,
        target: Target,
        head_mask: np.ndarray | None,
        run: ModelRun | None,
    ) -> None:
        self.loaded, self.encoding, self.target, self.head_mask = loaded, encoding, target, head_mask
        if run is not None:
            self.run = run

    @cached_property
    def run(self) -> ModelRun:
        return capture(self.loaded, self.encoding, target=self.target, positions=(), head_mask=self.head_mask)

    @cached_property
    def gradient(self) -> np.ndarray:
        """(layer, head, query, key). Raises ValueError for a run that was made without a target."""
        return self.run.shown("gradient")

    def at_target(self, maps: np.ndarray) -> np.ndarray:
        """The rows of maps (..., query, key) where the target is read, (..., key): of several rows the mean."""
        rows: np.ndarray = maps[..., list(self.target.rows), :].mean(-2)
        return rows

    def rolled(self, method: Callable[..., TokenMaps]) -> np.ndarray:
        """The target's rows of a method's maps through all layers, (token,)."""
        found = method(self.loaded, self.encoding, head_mask=self.head_mask)
        return self.at_target(norm_rollout(found.maps, residual=not found.residual)[-1])


@dataclass(frozen=True)
class Method:
    """One way to answer.

    name: as it is shown and asked for. signed: whether a negative score speaks against the target.
    targeted: whether the answer depends on the target; else only on the position it is read from.
    claims, misleads: a sentence each.
    layers: (layer, token), what each layer has to say; None for a method that only has an answer for the whole model.
    passes: about how many forward passes of the text it costs, for so many tokens.
    """

    name: str
    signed: bool
    targeted: bool
    claims: str
    misleads: str
    scores: Callable[[_Question], np.ndarray]
    layers: Callable[[_Question], np.ndarray] | None = None
    passes: Callable[[int], int] = lambda tokens: 1


def _each_token(tokens: int) -> int:
    return tokens


def _there_and_back(tokens: int) -> int:
    return 3


def _each_pair(tokens: int) -> int:
    """Of heads for every two tokens, as measured: a pass itself grows with the tokens."""
    return 1 + tokens // 100


def _each_pairs_vector(tokens: int) -> int:
    return 1 + tokens // 25


def _shares(method: Callable[..., TokenMaps]) -> Callable[[_Question], np.ndarray]:
    """Of each layer by itself, how the target's position shares itself out among the tokens."""

    def layers(asked: _Question) -> np.ndarray:
        return asked.at_target(rows_of_one(method(asked.loaded, asked.encoding, head_mask=asked.head_mask).maps))

    return layers


def _effective(asked: _Question) -> np.ndarray:
    # All layers' values are computed for the last one's sake: one forward pass either way.
    values = decomposition.head_values(asked.loaded, asked.encoding)[-1]
    return asked.at_target(mean_of_heads(effective_attention(asked.run.attention[-1], values)))


def _of_input(method: Callable[..., object]) -> Callable[[_Question], np.ndarray]:
    """Scores of a method that gives an `Attribution`."""

    def scores(asked: _Question) -> np.ndarray:
        found = method(asked.loaded, asked.encoding, asked.target, head_mask=asked.head_mask)
        array: np.ndarray = found.scores  # type: ignore[attr-defined]
        return array

    return scores


METHODS = (
    Method(
        "attention", False, False,
        "The mean attention of the last layer's heads, from the position where the target is read.",
        "It is where the model looks and not why it answers; much of it goes to [CLS] and [SEP] and carries little.",
        lambda asked: asked.at_target(mean_of_heads(asked.run.attention[-1])),
        layers=lambda asked: asked.at_target(mean_of_heads(asked.run.attention)),
    ),
    Method(
        "effective attention", False, False,
        "The same, less the part of attention that adds up to nothing in the values.",
        "In texts with no more tokens than a head is wide it is attention itself; numbers can be negative.",
        _effective,
    ),
    Method(
        "rollout", False, False,
        "Attention multiplied through all layers, half of every layer being the residual connection.",
        "It knows no target and no sign, takes all heads alike, and favours the position itself.",
        lambda asked: asked.at_target(attention_rollout(asked.run.attention)[-1]),
        layers=lambda asked: asked.at_target(attention_rollout(asked.run.attention)),
    ),
    Method(
        "flow", False, False,
        "The most that can flow from each token to the target's position through attention and residuals.",
        "Through many layers the narrowest place is the first layer, so that every target gets much the same answer.",
        lambda asked: attention_flow(asked.run.attention, asked.target.rows).mean(0),
        passes=_each_token,
    ),
    Method(
        "gradient x attention", True, True,
        "What the target owes to each token's place in all maps, to first order, summed over layers and queries.",
        "A slope holds for small changes; in the upper layers a position holds more than its own token.",
        # A head that was pruned, NaN in both, owes nothing to any token.
        lambda asked: np.nansum(gradient_attention(asked.run.attention, asked.gradient), (0, 1, 2)),
        layers=lambda asked: np.nansum(gradient_attention(asked.run.attention, asked.gradient), (1, 2)),
        passes=_there_and_back,
    ),
    Method(
        "gradient relevance", False, True,
        "Attention that speaks for the target, layer upon layer, read at the target's position (Chefer 2021).",
        "What speaks against the target is cut off; where everything does, nothing is left.",
        lambda asked: asked.at_target(gradient_relevance(asked.run.attention, asked.gradient)),
        layers=lambda asked: asked.at_target(
            mean_of_heads(gradient_attention(asked.run.attention, asked.gradient, clip=True))
        ),
        passes=_there_and_back,
    ),
    Method(
        "norms of attention", False, False,
        "Lengths of what attention brings from each token, so that heavy weights on empty values count little.",
        "A long vector may point where nobody reads; it knows no target.",
        lambda asked: asked.rolled(decomposition.attention_norms),
        layers=_shares(decomposition.attention_norms),
        passes=_each_pair,
    ),
    Method(
        "norms with residual", False, False,
        "The same with the residual connection and the layer norm behind attention.",
        "Lengths lose direction, and rolling them out treats layers as if they only mixed.",
        lambda asked: asked.rolled(decomposition.residual_norms),
        layers=_shares(decomposition.residual_norms),
        passes=_each_pair,
    ),
    Method(
        "GlobEnc", False, False,
        "The same through both layer norms of every layer.",
        "What the feed-forward network does to a vector is left out; it knows no target.",
        lambda asked: asked.rolled(decomposition.globenc),
        layers=_shares(decomposition.globenc),
        passes=_each_pair,
    ),
    Method(
        "ALTI", False, False,
        "How much nearer each token brings a position to its output, layer by layer.",
        "Tokens that pull away count as nothing, and so does the feed-forward network; it knows no target.",
        lambda asked: asked.rolled(decomposition.alti),
        layers=_shares(decomposition.alti),
        passes=_each_pairs_vector,
    ),
    Method(
        "value zeroing", False, False,
        "How far a layer's output turns when a token's values are zero, rolled out through the layers.",
        "Each layer is asked by itself; an angle says how much changes and not whether it matters for the target.",
        lambda asked: asked.rolled(perturbation.value_zeroing),
        layers=_shares(perturbation.value_zeroing),
        passes=_each_token,
    ),
    Method(
        "DecompX", True, True,
        "Every token's own part of the logit, carried through every layer and the head; the parts sum to it.",
        "Maps, spreads and slopes are held as they are on this text, and how biases are shared out is a choice.",
        _of_input(decomposition.decompx),
        passes=_each_token,
    ),
    Method(
        "saliency", False, True,
        "How fast the target changes with each token's embedding.",
        "Fast is not much: a word that already decides everything can have no slope left.",
        _of_input(perturbation.saliency),
        passes=_there_and_back,
    ),
    Method(
        "input x gradient", True, True,
        "Each token's embedding times the slope there, to first order its share.",
        "Where the model bends between no word and this one, the slope at the end says little about the way.",
        _of_input(perturbation.input_x_gradient),
        passes=_there_and_back,
    ),
    Method(
        "integrated gradients", True, True,
        "The slope along the whole way from a text of [PAD] to this one; the scores sum to what changes.",
        "The way leads through embeddings that are no words, and another start gives another answer.",
        _of_input(perturbation.integrated_gradients),
        passes=lambda tokens: 3 * 50,
    ),
    Method(
        "occlusion", True, True,
        "How much the target falls when a token is replaced by [MASK].",
        "Two tokens that say the same hide each other; what ranks tokens by masks does well where masks are the judge.",
        _of_input(perturbation.occlusion),
        passes=_each_token,
    ),
)  # fmt: skip


def method_of(name: str) -> Method:
    """A method by its name. Raises ValueError for a name that is none."""
    for method in METHODS:
        if method.name == name:
            return method
    raise ValueError(f"method {name!r} is unknown: one of {', '.join(method.name for method in METHODS)}")


def token_scores(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    methods: Sequence[str] | None = None,
    *,
    run: ModelRun | None = None,
    head_mask: np.ndarray | None = None,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> np.ndarray:
    """Scores (method, token) float64 for one target, in the order of the names; None is every method.

    run: what `capture` gave for this text, target and head mask; None captures when a method needs it.
    report: told how many methods are done, of how many; may raise to stop.
    Safe to call from many threads on one model.
    Raises ValueError for an unknown method, a target that the model has no trained head for, or a text that is too
    long for the memory of a method.
    """
    chosen = [method_of(name) for name in ([one.name for one in METHODS] if methods is None else methods)]
    asked = _Question(loaded, encoding, target, head_mask, run)
    found = np.empty((len(chosen), len(encoding)))
    for number, method in enumerate(chosen):
        found[number] = method.scores(asked)
        report(number + 1, len(chosen))
    return found


def layer_scores(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    method: str,
    *,
    run: ModelRun | None = None,
    head_mask: np.ndarray | None = None,
) -> np.ndarray:
    """What a method has to say of each layer, (layer, token) float64.

    Of maps the rows where the target is read: attention averaged over heads, rollout up to the layer, shares of norms
    in the layer by itself. Of gradient x attention the sum over heads and queries, which adds up to its scores.
    run and errors: as for `token_scores`, and ValueError for a method that only has an answer for the whole model.
    """
    chosen = method_of(method)
    if chosen.layers is None:
        there = ", ".join(one.name for one in METHODS if one.layers is not None)
        raise ValueError(f"{method} has no answer for a layer by itself: these have, {there}")
    return np.asarray(chosen.layers(_Question(loaded, encoding, target, head_mask, run)), np.float64)


def faithfulness(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    scores: np.ndarray,
    *,
    words: bool = False,
    baseline: str = "mask",
    random_rankings: int = RANDOM_RANKINGS,
    seed: int = 0,
    head_mask: np.ndarray | None = None,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Faithfulness]:
    """Comprehensiveness, sufficiency and AOPC of some scores (method, token) on this text, beside random rankings.

    words: take whole words away instead of pieces. baseline: what stands in their place, "mask", "pad" or "zero".
    report: told how many texts the model has read, of how many; may raise to stop.
    Raises ValueError where there is nothing to take away, or no probability to follow.
    """
    plan = plan_removals(
        scores, removable_units(encoding, target, words=words), len(encoding),
        random_rankings=random_rankings, seed=seed,
    )  # fmt: skip
    values = perturbation.values_without(
        loaded, encoding, target, plan.removed, baseline=baseline, probability=True, head_mask=head_mask, report=report
    )
    return judge(plan, values)
