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
    normalise_rows,
)
from bert_core.analysis.faithfulness import (
    RANDOM_RANKINGS,
    Faithfulness,
    evaluate_removals,
    plan_removals,
    removable_units,
)
from bert_core.analysis.flow import attention_flow, attention_rollout, mean_of_heads
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import ModelRun, Target, TokenMaps
from bert_core.refused import Refused, require_sequence, validate_arguments
from bert_core.run import decomposition, perturbation
from bert_core.run.capture import capture
from bert_core.run.memory import decomposition_bytes
from bert_core.tokenizer import Encoding


class _MethodInputs:
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
        """(layer, head, query, key). Raises Refused for a run that was made without a target."""
        return self.run.select_map("gradient")

    def at_target(self, maps: np.ndarray) -> np.ndarray:
        """The rows of maps (..., query, key) where the target is read, (..., key): of several rows the mean."""
        rows: np.ndarray = maps[..., list(self.target.rows), :].mean(-2)
        return rows

    def rolled(self, method: Callable[..., TokenMaps]) -> np.ndarray:
        """The target's rows of a method's maps through all layers, (token,)."""
        of_layers = method(self.loaded, self.encoding, head_mask=self.head_mask)
        return self.at_target(norm_rollout(of_layers.maps, residual=not of_layers.residual)[-1])


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
    scores: Callable[[_MethodInputs], np.ndarray]
    layers: Callable[[_MethodInputs], np.ndarray] | None = None
    passes: Callable[[int], int] = lambda tokens: 1


def _pass_per_token(tokens: int) -> int:
    return tokens


def _forward_and_backward(tokens: int) -> int:
    return 3


def _norms_of_pairs(tokens: int) -> int:
    """Of heads for every two tokens, as measured: a pass itself grows with the tokens."""
    return 1 + tokens // 100


def _vectors_of_pairs(tokens: int) -> int:
    return 1 + tokens // 25


def _layer_shares(method: Callable[..., TokenMaps]) -> Callable[[_MethodInputs], np.ndarray]:
    """Of each layer by itself, how the target's position shares itself out among the tokens."""

    def layers(inputs: _MethodInputs) -> np.ndarray:
        return inputs.at_target(normalise_rows(method(inputs.loaded, inputs.encoding, head_mask=inputs.head_mask).maps))

    return layers


def _effective_attention(inputs: _MethodInputs) -> np.ndarray:
    # All layers' values are computed for the last one's sake: one forward pass either way.
    values = decomposition.head_values(inputs.loaded, inputs.encoding)[-1]
    return inputs.at_target(mean_of_heads(effective_attention(inputs.run.attention[-1], values)))


def _attribution_scores(method: Callable[..., object]) -> Callable[[_MethodInputs], np.ndarray]:
    """Scores of a method that gives an `Attribution`."""

    def scores(inputs: _MethodInputs) -> np.ndarray:
        found = method(inputs.loaded, inputs.encoding, inputs.target, head_mask=inputs.head_mask)
        array: np.ndarray = found.scores  # type: ignore[attr-defined]
        return array

    return scores


METHODS = (
    Method(
        "attention", False, False,
        "Where the last layer looks from the predicted position, averaged over its heads.",
        "Looking is not using: much attention goes to [CLS] and [SEP], which contribute little.",
        lambda inputs: inputs.at_target(mean_of_heads(inputs.run.attention[-1])),
        layers=lambda inputs: inputs.at_target(mean_of_heads(inputs.run.attention)),
    ),
    Method(
        "effective attention", False, False,
        "Attention, without the part that cancels out when the values are added up.",
        "On a text with no more tokens than a head has dimensions it equals attention; its numbers can be negative.",
        _effective_attention,
    ),
    Method(
        "rollout", False, False,
        "Attention multiplied through all layers; the residual connection counts for half of each layer.",
        "It ignores which word is predicted, has no sign, treats all heads alike, and favours the predicted position.",
        lambda inputs: inputs.at_target(attention_rollout(inputs.run.attention)[-1]),
        layers=lambda inputs: inputs.at_target(attention_rollout(inputs.run.attention)),
    ),
    Method(
        "flow", False, False,
        "The most attention that can flow from each token to the predicted position, through all layers.",
        "In a deep model the first layer is the bottleneck, so every prediction gets nearly the same scores.",
        lambda inputs: attention_flow(inputs.run.attention, inputs.target.rows).mean(0),
        passes=_pass_per_token,
    ),
    Method(
        "gradient x attention", True, True,
        "Each attention weight times the gradient of the answer, added up for each token over all heads and layers.",
        "A gradient holds for small changes only; in upper layers a position holds more than its own word.",
        # A head that was pruned, NaN in both, owes nothing to any token.
        lambda inputs: np.nansum(gradient_attention(inputs.run.attention, inputs.gradient), (0, 1, 2)),
        layers=lambda inputs: np.nansum(gradient_attention(inputs.run.attention, inputs.gradient), (1, 2)),
        passes=_forward_and_backward,
    ),
    Method(
        "gradient relevance", False, True,
        "Attention weighted by its gradient where that supports the answer, layer after layer (Chefer 2021).",
        "It drops everything that speaks against the answer; if all does, nothing is left.",
        lambda inputs: inputs.at_target(gradient_relevance(inputs.run.attention, inputs.gradient)),
        layers=lambda inputs: inputs.at_target(
            mean_of_heads(gradient_attention(inputs.run.attention, inputs.gradient, clip=True))
        ),
        passes=_forward_and_backward,
    ),
    Method(
        "norms of attention", False, False,
        "How much attention brings from each token: the length of its weighted value vectors.",
        "Later layers may not use a long vector; it ignores which word is predicted.",
        lambda inputs: inputs.rolled(decomposition.attention_norms),
        layers=_layer_shares(decomposition.attention_norms),
        passes=_norms_of_pairs,
    ),
    Method(
        "norms with residual", False, False,
        "Norms of attention, with the residual connection and the layer norm after attention.",
        "Lengths have no direction, and multiplying the layers treats each as a mere mixing of tokens.",
        lambda inputs: inputs.rolled(decomposition.residual_norms),
        layers=_layer_shares(decomposition.residual_norms),
        passes=_norms_of_pairs,
    ),
    Method(
        "GlobEnc", False, False,
        "Norms of attention, through both layer norms of every layer.",
        "It leaves out what the feed-forward network does, and ignores which word is predicted.",
        lambda inputs: inputs.rolled(decomposition.globenc),
        layers=_layer_shares(decomposition.globenc),
        passes=_norms_of_pairs,
    ),
    Method(
        "ALTI", False, False,
        "How much closer each token's part brings a position to its output, layer by layer.",
        "Parts that pull away count as zero; the feed-forward network and the predicted word are ignored.",
        lambda inputs: inputs.rolled(decomposition.alti),
        layers=_layer_shares(decomposition.alti),
        passes=_vectors_of_pairs,
    ),
    Method(
        "value zeroing", False, False,
        "How far a layer's output turns when a token's values are set to zero, multiplied through all layers.",
        "Each layer is tested alone, and a change of direction need not matter for the answer.",
        lambda inputs: inputs.rolled(perturbation.value_zeroing),
        layers=_layer_shares(perturbation.value_zeroing),
        passes=_pass_per_token,
    ),
    Method(
        "DecompX", True, True,
        "The answer's logit, split into one part for each token through every layer; the parts add up to it.",
        "Treats the network as linear around this text, and how it shares out the biases is a choice.",
        _attribution_scores(decomposition.decompx),
        passes=_pass_per_token,
    ),
    Method(
        "saliency", False, True,
        "How fast the answer changes with each token's embedding: the size of the gradient.",
        "A word that already settles the answer can have almost no gradient left.",
        _attribution_scores(perturbation.saliency),
        passes=_forward_and_backward,
    ),
    Method(
        "input x gradient", True, True,
        "Each token's embedding times its gradient: its share of the answer, to first order.",
        "The network is not linear: the gradient at this text says little about removing a whole word.",
        _attribution_scores(perturbation.input_x_gradient),
        passes=_forward_and_backward,
    ),
    Method(
        "integrated gradients", True, True,
        "Gradients averaged on the way from a text of [PAD] to this one; the scores add up to the whole change.",
        "The way passes through embeddings that are not words, and another start gives other scores.",
        _attribution_scores(perturbation.integrated_gradients),
        passes=lambda tokens: 3 * 50,
    ),
    Method(
        "occlusion", True, True,
        "How much the answer's score falls when a token is replaced by [MASK].",
        "Two words that say the same cover for each other; and a test by masking favours methods that mask.",
        _attribution_scores(perturbation.occlusion),
        passes=_pass_per_token,
    ),
)  # fmt: skip


@validate_arguments
def method_of(name: str) -> Method:
    """The method of this name. Raises Refused for an unknown name."""
    for method in METHODS:
        if method.name == name:
            return method
    raise Refused(f"method {name!r} is unknown: one of {', '.join(method.name for method in METHODS)}")


def score_bytes(loaded: LoadedModel, method: str, tokens: int) -> int:
    """What `token_scores` of one method takes while it runs, about, beside the run that it looks at.

    Measured from 32 tokens to 480: DecompX holds vectors for every two tokens, twice, and some hundred MiB of batches.
    All else stays below what a run with gradients takes, or within batches of a bounded size, and is said to take 0.
    """
    if method != "DecompX":
        return 0
    vectors = decomposition_bytes(loaded, tokens)
    return 2 * vectors + min(10 * vectors, 440 * 2**20)


@validate_arguments
def token_scores(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    methods: Sequence[str] | None = None,
    *,
    run: ModelRun | None = None,
    head_mask: np.ndarray | None = None,
    report: Progress = ignore_progress,
) -> np.ndarray:
    """Scores (method, token) float64 for one target, in the order of the names; None is every method.

    run: what `capture` gave for this text, target and head mask; None captures when a method needs it.
    report: told how many methods are done, as for `Progress`.
    Safe to call from many threads on one model.
    Raises Refused for an unknown method, a target that the model has no trained head for, or a text that is too
    long for the memory of a method.
    """
    names = [one.name for one in METHODS] if methods is None else require_sequence("methods", methods, "names")
    chosen = [method_of(name) for name in names]
    inputs = _MethodInputs(loaded, encoding, target, head_mask, run)
    scores = np.empty((len(chosen), len(encoding)))
    for number, method in enumerate(chosen):
        scores[number] = method.scores(inputs)
        report_count(report, number + 1, len(chosen), "methods")
    return scores


@validate_arguments
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
    run and errors: as for `token_scores`, and Refused for a method that only has an answer for the whole model.
    """
    chosen = method_of(method)
    if chosen.layers is None:
        names = ", ".join(one.name for one in METHODS if one.layers is not None)
        raise Refused(f"{method} has no answer for a layer by itself: these have, {names}")
    return np.asarray(chosen.layers(_MethodInputs(loaded, encoding, target, head_mask, run)), np.float64)


@validate_arguments
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
    report: Progress = ignore_progress,
) -> dict[str, Faithfulness]:
    """Comprehensiveness, sufficiency and AOPC of some scores (method, token) on this text, beside random rankings.

    words: take whole words away instead of pieces. baseline: what stands in their place, "mask", "pad" or "zero".
    report: told how many changed copies the model has read, as for `Progress`.
    Raises Refused where there is nothing to take away, or no probability to follow.
    """
    plan = plan_removals(
        scores, removable_units(encoding, target, words=words), len(encoding),
        random_rankings=random_rankings, seed=seed,
    )  # fmt: skip
    values = perturbation.values_without(
        loaded, encoding, target, plan.removed, baseline=baseline, probability=True, head_mask=head_mask, report=report
    )
    return evaluate_removals(plan, values)
