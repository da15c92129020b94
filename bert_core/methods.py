"""All methods that explain a prediction, by name: one score for each token, what a method measures and its limits.

`run` contains the computations that need the model, and `analysis` those that need arrays. This module turns each
method into scores of the tokens for one target, so that methods can be compared and evaluated with the same measures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
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
from bert_core.run.targets import check_target, target_rows
from bert_core.tokenizer import Encoding


class _MethodInputs:
    """Inputs of a method. The run of the text is captured when a method first needs it."""

    def __init__(
        self,
        loaded: LoadedModel,
        encoding: Encoding,
        target: Target,
        head_mask: np.ndarray | None,
        run: ModelRun | None,
    ) -> None:
        self.loaded, self.encoding, self.target, self.head_mask = loaded, encoding, target, head_mask
        self._given_run = run

    @cached_property
    def run(self) -> ModelRun:
        """The run of the text, with gradients of the target. Raises Refused for a given run with a part of the maps."""
        if self._given_run is not None:
            if self._given_run.layers is not None or self._given_run.token_range is not None:
                raise Refused("the run has a part of the maps: give one of all layers and tokens, or none")
            return self._given_run
        return capture(self.loaded, self.encoding, target=self.target, positions=(), head_mask=self.head_mask)

    @cached_property
    def gradient(self) -> np.ndarray:
        """The gradient of the target, (layer, head, query, key). Raises Refused for a run without a target."""
        return self.run.select_map("gradient")

    @property
    def target_rows(self) -> tuple[int, ...]:
        """The positions of the last layer that the target is computed from."""
        return target_rows(self.loaded, self.encoding, self.target)

    def at_target(self, maps: np.ndarray) -> np.ndarray:
        """Return the row (..., key) of maps (..., query, key) at the target, or the mean of several rows."""
        rows: np.ndarray = maps[..., list(self.target_rows), :].mean(-2)
        return rows

    def rolled(self, method: Callable[..., TokenMaps]) -> np.ndarray:
        """Return scores (token,): the maps of a method, multiplied through all layers, at the target."""
        token_maps = method(self.loaded, self.encoding, head_mask=self.head_mask)
        return self.at_target(norm_rollout(token_maps.maps, residual=not token_maps.residual)[-1])


@dataclass(frozen=True)
class Method:
    """One method that scores the tokens of a text for a target.

    name: its name in the app, in commands and in `token_scores`.
    signed: whether negative scores oppose the target.
    targeted: whether the scores depend on the target, and not only on its position.
    claims: sentence about what the method measures.
    misleads: sentence about how it can mislead.
    scores: function that returns scores (token,).
    layers: function that returns scores (layer, token), one row for each layer; None if the method has no such scores.
    passes: function from a number of tokens to the approximate cost of the method, in forward passes of the text.
    check: function that raises Refused for a model whose layers the method does not support, and for a target without
        the path to its value that the method needs, if a target is given as its second argument.

    >>> import bert_core
    >>> len(bert_core.METHODS)
    16
    >>> [method.name for method in bert_core.METHODS if method.signed]
    ['gradient x attention', 'DecompX', 'input x gradient', 'integrated gradients', 'occlusion']
    """

    name: str
    signed: bool
    targeted: bool
    claims: str
    misleads: str
    scores: Callable[[_MethodInputs], np.ndarray]
    layers: Callable[[_MethodInputs], np.ndarray] | None = None
    passes: Callable[[int], int] = lambda tokens: 1
    check: Callable[..., None] = lambda loaded, target=None: None


def _pass_per_token(tokens: int) -> int:
    """Return the cost of one forward pass for each token."""
    return tokens


def _forward_and_backward(tokens: int) -> int:
    """Return the cost of one forward and one backward pass."""
    return 3


def _norms_of_pairs(tokens: int) -> int:
    """Return the measured cost of a norm for each head and pair of tokens."""
    return 1 + tokens // 100


def _vectors_of_pairs(tokens: int) -> int:
    """Return the measured cost of a vector for each pair of tokens."""
    return 1 + tokens // 25


def _layer_shares(method: Callable[..., TokenMaps]) -> Callable[[_MethodInputs], np.ndarray]:
    """Return a function for `Method.layers`: the normalised rows of the maps of each layer at the target."""

    def layers(inputs: _MethodInputs) -> np.ndarray:
        return inputs.at_target(normalise_rows(method(inputs.loaded, inputs.encoding, head_mask=inputs.head_mask).maps))

    return layers


def _effective_attention(inputs: _MethodInputs) -> np.ndarray:
    """Return the effective attention of the last layer at the target, averaged over heads."""
    # `head_values` returns the values of all layers, at the cost of one forward pass.
    values = decomposition.head_values(inputs.loaded, inputs.encoding)[-1]
    return inputs.at_target(mean_of_heads(effective_attention(inputs.run.attention[-1], values)))


def _attribution_scores(method: Callable[..., object]) -> Callable[[_MethodInputs], np.ndarray]:
    """Return a function for `Method.scores` of a method that returns an `Attribution`."""

    def scores(inputs: _MethodInputs) -> np.ndarray:
        attribution = method(inputs.loaded, inputs.encoding, inputs.target, head_mask=inputs.head_mask)
        array: np.ndarray = attribution.scores  # type: ignore[attr-defined]
        return array

    return scores


METHODS = (
    Method(
        "attention", False, False,
        "Attention weights of the last layer at the predicted position, averaged over its heads.",
        "A large weight is not a large contribution: [CLS] and [SEP] get much attention and contribute little.",
        lambda inputs: inputs.at_target(mean_of_heads(inputs.run.attention[-1])),
        layers=lambda inputs: inputs.at_target(mean_of_heads(inputs.run.attention)),
    ),
    Method(
        "effective attention", False, False,
        "Attention without the part that cancels out in the sum of the value vectors.",
        "It equals attention if the text has at most as many tokens as a head has dimensions. Scores can be negative.",
        _effective_attention,
    ),
    Method(
        "rollout", False, False,
        "Attention multiplied through all layers, with a weight of one half for each residual connection.",
        "It has no sign, weights all heads equally, favours the predicted position and does not depend on the word.",
        lambda inputs: inputs.at_target(attention_rollout(inputs.run.attention)[-1]),
        layers=lambda inputs: inputs.at_target(attention_rollout(inputs.run.attention)),
    ),
    Method(
        "flow", False, False,
        "Maximum flow of attention from each token to the predicted position, through all layers.",
        "In a deep model the first layer limits the flow, so that all positions get nearly the same scores.",
        lambda inputs: attention_flow(inputs.run.attention, inputs.target_rows).mean(0),
        passes=_pass_per_token,
    ),
    Method(
        "gradient x attention", True, True,
        "Each attention weight times the gradient of the target, summed for each token over all heads and layers.",
        "A gradient describes small changes only, and in upper layers a position represents more than its own word.",
        # A pruned head has NaN in both arrays and contributes nothing.
        lambda inputs: np.nansum(gradient_attention(inputs.run.attention, inputs.gradient), (0, 1, 2)),
        layers=lambda inputs: np.nansum(gradient_attention(inputs.run.attention, inputs.gradient), (1, 2)),
        passes=_forward_and_backward,
    ),
    Method(
        "gradient relevance", False, True,
        "Positive part of attention times gradient, multiplied through all layers (Chefer 2021).",
        "It sets negative products to zero. If all are negative, no score is left.",
        lambda inputs: inputs.at_target(gradient_relevance(inputs.run.attention, inputs.gradient)),
        layers=lambda inputs: inputs.at_target(
            mean_of_heads(gradient_attention(inputs.run.attention, inputs.gradient, clip=True))
        ),
        passes=_forward_and_backward,
    ),
    Method(
        "norms of attention", False, False,
        "Norm of the attention-weighted value vectors of each token, multiplied through all layers.",
        "Later layers need not use a long vector, and the norm does not depend on the predicted word.",
        lambda inputs: inputs.rolled(decomposition.attention_norms),
        layers=_layer_shares(decomposition.attention_norms),
        passes=_norms_of_pairs,
    ),
    Method(
        "norms with residual", False, False,
        "Norms of attention that include the residual connection and the layer norm after attention.",
        "Norms have no direction, and the product of layers treats each layer as a weighted average of tokens.",
        lambda inputs: inputs.rolled(decomposition.residual_norms),
        layers=_layer_shares(decomposition.residual_norms),
        passes=_norms_of_pairs,
    ),
    Method(
        "GlobEnc", False, False,
        "Norms of attention that include both residual connections and both layer norms of every layer.",
        "It leaves out the feed-forward network, and does not depend on the predicted word.",
        lambda inputs: inputs.rolled(decomposition.globenc),
        layers=_layer_shares(decomposition.globenc),
        passes=_norms_of_pairs,
    ),
    Method(
        "ALTI", False, False,
        "How much closer each token's contribution brings a position to its output, multiplied through all layers.",
        "Contributions that increase the distance count as zero. The feed-forward network and the word are ignored.",
        lambda inputs: inputs.rolled(decomposition.alti),
        layers=_layer_shares(decomposition.alti),
        passes=_vectors_of_pairs,
    ),
    Method(
        "value zeroing", False, False,
        "Cosine distance of a layer's output with and without a token's values, multiplied through all layers.",
        "Each layer is tested separately, and a change of direction need not change the prediction.",
        lambda inputs: inputs.rolled(perturbation.value_zeroing),
        layers=_layer_shares(perturbation.value_zeroing),
        passes=_pass_per_token,
    ),
    Method(
        "DecompX", True, True,
        "The logit of the target as a sum of one contribution of each token, propagated through all layers.",
        "It linearises the network at this text, and the distribution of the biases over the tokens is a convention.",
        _attribution_scores(decomposition.decompx),
        passes=_pass_per_token,
        check=decomposition.check_decomposable,
    ),
    Method(
        "saliency", False, True,
        "Norm of the gradient of the target with respect to the embedding of each token.",
        "A word that already determines the prediction can have a gradient near zero (saturation).",
        _attribution_scores(perturbation.saliency),
        passes=_forward_and_backward,
    ),
    Method(
        "input x gradient", True, True,
        "Embedding of each token times its gradient: a first-order estimate of its contribution.",
        "The network is not linear, so the gradient at this text may not predict the effect of removing a word.",
        _attribution_scores(perturbation.input_x_gradient),
        passes=_forward_and_backward,
    ),
    Method(
        "integrated gradients", True, True,
        "Gradients averaged on a path from a text of [PAD] to this text. The scores sum to the change of the target.",
        "The path contains embeddings that no word has, and another baseline gives other scores.",
        _attribution_scores(perturbation.integrated_gradients),
        passes=lambda tokens: 3 * 50,
    ),
    Method(
        "occlusion", True, True,
        "Decrease of the value of the target when [MASK] replaces a token.",
        "Redundant words hide each other's effect, and an evaluation by masking favours methods that mask.",
        _attribution_scores(perturbation.occlusion),
        passes=_pass_per_token,
    ),
)  # fmt: skip


@validate_arguments
def method_of(name: str) -> Method:
    """Return the method of a name. Raises Refused for an unknown name."""
    for method in METHODS:
        if method.name == name:
            return method
    raise Refused(f"method {name!r} is unknown: one of {', '.join(method.name for method in METHODS)}")


DEFAULT_METHODS = ("DecompX", "occlusion")


def supported_methods(loaded: LoadedModel, target: Target | None = None) -> tuple[str, ...]:
    """Return the names of all methods that a model supports, for a target if one is given."""
    names = []
    for method in METHODS:
        with suppress(Refused):
            method.check(loaded, target)
            names.append(method.name)
    return tuple(names)


def default_methods(loaded: LoadedModel, target: Target | None = None) -> tuple[str, ...]:
    """Return the methods of explanations of a file, of `DEFAULT_METHODS` those that `supported_methods` returns."""
    supported = supported_methods(loaded, target)
    return tuple(name for name in DEFAULT_METHODS if name in supported)


def check_methods(loaded: LoadedModel, names: Sequence[str], target: Target | None = None) -> list[Method]:
    """Return methods by their names.

    Raises Refused for an unknown one, and for one that a model does not support, or a target if one is given.
    """
    methods = [method_of(name) for name in names]
    for method in methods:
        method.check(loaded, target)
    return methods


def score_bytes(loaded: LoadedModel, method: str, tokens: int) -> int:
    """Estimate the peak memory of `token_scores` of one method in bytes, without the memory of the run of the text.

    The estimate is fitted to measurements with 32 to 480 tokens. DecompX holds two copies of vectors for all pairs of
    tokens, and batches of a few hundred MiB. All other methods need less than a run with gradients or use batches of
    limited size, and the estimate for them is 0.
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
    """Compute the scores of all tokens for one target by several methods.

    methods: names of methods, in the order of the result; None computes all that the model and the target support.
    run: result of `capture` for the same text, target and head mask; None captures it when a method needs it.
    head_mask: gates of the heads, (layer, head); None means 1 for each head.
    report: called with the number of finished methods (see `Progress`).
    Returns (method, token), float64, in the units of each method.
    Several threads may call it with one model.
    Raises Refused for an unknown method, a method that does not support the layers of the model, a target without a
    trained head, or a text that is too long for the memory of a method.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "door")
    >>> scores = bert_core.token_scores(loaded, encoding, target, ["DecompX", "occlusion"])
    >>> scores.shape  # (method, token)
    (2, 10)
    >>> [encoding.tokens[position] for position in scores.argmax(1)]
    ['opened', 'opened']
    """
    check_target(loaded, encoding, target)
    names = supported_methods(loaded, target) if methods is None else require_sequence("methods", methods, "names")
    selected = check_methods(loaded, names)
    inputs = _MethodInputs(loaded, encoding, target, head_mask, run)
    scores = np.empty((len(selected), len(encoding)))
    for number, method in enumerate(selected):
        scores[number] = method.scores(inputs)
        report_count(report, number + 1, len(selected), "methods")
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
    """Compute the scores of all tokens for one target by one method, separately for each layer.

    Most methods return their maps at the position of the target: attention averaged over heads, rollout up to each
    layer, or normalised norms within each layer. For gradient x attention the result is the sum over heads and queries,
    and the sum over layers is the result of `token_scores`.
    run, head_mask: as for `token_scores`.
    Returns (layer, token), float64.
    Raises Refused for a method without scores of single layers, and in the cases of `token_scores`.
    """
    selected = method_of(method)
    if selected.layers is None:
        names = ", ".join(row.name for row in METHODS if row.layers is not None)
        raise Refused(f"{method} has no scores of single layers: the methods with such scores are {names}")
    return np.asarray(selected.layers(_MethodInputs(loaded, encoding, target, head_mask, run)), np.float64)


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
    """Compute comprehensiveness, sufficiency and AOPC of token scores on one text, compared with random rankings.

    scores: (method, token).
    words: whether to remove whole words instead of single pieces.
    baseline: replacement of removed tokens, "mask", "pad" or "zero".
    random_rankings, seed: number of random rankings of the tokens, and the seed that draws them.
    head_mask: as for `token_scores`.
    report: called with the number of finished copies of the text (see `Progress`).
    Returns the result of each measure, by its name.
    Raises Refused if no token can be removed, or the target has no probability.
    Source: DeYoung et al. 2020, ERASER (arXiv:1911.03429), for comprehensiveness and sufficiency.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "door")
    >>> scores = bert_core.token_scores(loaded, encoding, target, ["occlusion"])
    >>> measures = bert_core.faithfulness(loaded, encoding, target, scores)
    >>> for measure, result in measures.items():
    ...     print(f"{measure}: {result.scores[0]:.2f}")
    comprehensiveness: 0.67
    sufficiency: 0.25
    aopc: 0.68
    """
    plan = plan_removals(
        scores, removable_units(encoding, target, words=words), len(encoding),
        random_rankings=random_rankings, seed=seed,
    )  # fmt: skip
    values = perturbation.values_without(
        loaded, encoding, target, plan.removed, baseline=baseline, probability=True, head_mask=head_mask, report=report
    )
    return evaluate_removals(plan, values)
