"""Similarity of the hidden states of two models, independent of their coordinate axes: centred kernel alignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from bert_core.deprecation import renamed_parameters
from bert_core.refused import Refused, check_finite, validate_arrays

MIN_TOKENS = 4  # for the unbiased estimate


@renamed_parameters(one="first", other="second")
@validate_arrays(first="token width", second="token size")
def linear_cka(first: np.ndarray, second: np.ndarray, *, unbiased: bool = False) -> float:
    """Compute linear CKA, the similarity of two sets of hidden states of the same tokens.

    It does not change if either set is rotated or scaled.

    first: (token, width). second: (token, size), which may have a different width.
    unbiased: remove the bias that makes any two sets similar if there are few tokens compared with the width. The
        estimate is near 0 for unrelated states and may be slightly negative.
    Returns 0 to 1 (biased estimate), or NaN if the states of either set are the same for all tokens.
    Raises Refused if a number is not finite, or for an unbiased estimate from fewer than four tokens.
    Source: Kornblith 2019, section 3 (arXiv:1905.00414). The unbiased estimate is that of Nguyen 2021, section 2
    (arXiv:2010.15327), after Song 2012, equation 5 (JMLR 13).
    """
    if unbiased and len(first) < MIN_TOKENS:
        raise Refused(f"the number of tokens is {len(first)}: the unbiased estimate needs at least {MIN_TOKENS}")
    sums = CkaSums()
    sums.add([first], [second])
    return float((sums.unbiased() if unbiased else sums.cka())[0, 0])


class CkaSums:
    """Sums over tokens from which the exact CKA between the depths of two models is computed.

    Memory use is one (hidden, hidden) matrix for every pair of depths and for each depth with itself, for any number of
    tokens.

    rows: depths of the first model that are compared with all depths of the second. None means all depths.
    """

    def __init__(self, rows: Iterable[int] | None = None) -> None:
        self.rows = None if rows is None else tuple(rows)
        self.tokens = 0
        self._depths: tuple[int, int] = (0, 0)
        self._shifts: list[np.ndarray] = []
        self._sums: list[np.ndarray] = []  # (hidden,) for each depth, the sum of the states
        self._sizes: np.ndarray = np.zeros(0)  # (depth,), the sum of the squared norms
        self._pairs: dict[tuple[int, int], _Pair] = {}

    def add(self, first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> None:
        """Add the states of some tokens.

        first, second: for each depth of either model, states (token, hidden).
        Raises Refused if a number is not finite.
        """
        rows = range(len(first)) if self.rows is None else self.rows
        states = [*(first[row] for row in rows), *second]
        if not self._pairs:
            row_count = len(rows)
            self._depths = row_count, len(second)
            # Subtracting a common shift keeps the sums small, which reduces rounding errors.
            self._shifts = [part.mean(0) for part in states]
            self._sums = [np.zeros(part.shape[1]) for part in states]
            self._sizes = np.zeros(len(states))
            numbers = [(n, n) for n in range(len(states))]
            numbers += [(row, row_count + column) for row in range(row_count) for column in range(len(second))]
            self._pairs = {(n, m): _Pair(states[n].shape[1], states[m].shape[1]) for n, m in numbers}
        shifted = [part - shift for part, shift in zip(states, self._shifts, strict=True)]
        sizes = [np.einsum("th,th->t", part, part, dtype=np.float64) for part in shifted]
        for number, part in enumerate(shifted):
            check_finite("states", part)
            self._sums[number] += part.sum(0, dtype=np.float64)
            self._sizes[number] += sizes[number].sum()
        for (n, m), pair in self._pairs.items():
            pair.add(shifted[n], shifted[m], sizes[n], sizes[m])
        self.tokens += len(states[0])

    def cka(self) -> np.ndarray:
        """Compute linear CKA, (row, depth of the second model), 0 to 1. NaN if a depth has equal states everywhere."""
        return self._normalise(self._product)

    def unbiased(self) -> np.ndarray:
        """Compute unbiased CKA, (row, depth of the second model), which may be slightly below 0.

        All entries are NaN for fewer than four tokens.
        """
        return self._normalise(self._unbiased)

    def _normalise(self, covariance: Callable[[int, int], float]) -> np.ndarray:
        """Divide the covariance of each pair of depths by the geometric mean of those of each depth with itself."""
        first, second = self._depths
        variances = np.array([covariance(number, number) for number in range(first + second)])
        covariances = np.array([[covariance(row, first + column) for column in range(second)] for row in range(first)])
        lengths = np.sqrt(np.where(variances > 0, variances, np.nan))
        similarities: np.ndarray = covariances / (lengths[:first, None] * lengths[None, first:])
        return similarities

    def _product(self, n: int, m: int) -> float:
        """Compute the squared Frobenius norm of the cross-covariance times the squared number of tokens."""
        mean_n, mean_m = self._sums[n] / self.tokens, self._sums[m] / self.tokens
        return float(((self._pairs[n, m].product - self.tokens * np.outer(mean_n, mean_m)) ** 2).sum())

    def _unbiased(self, n: int, m: int) -> float:
        """Compute the same without the products of each token with itself."""
        count, pair = self.tokens, self._pairs[n, m]
        if count < MIN_TOKENS:
            return float("nan")
        mean_n, mean_m = self._sums[n] / count, self._sums[m] / count
        size_n, size_m = mean_n @ mean_n, mean_m @ mean_m
        # The sum over tokens of the product of both squared distances from the mean.
        joint_sizes = (
            pair.sizes - 2 * mean_m @ pair.second_sums - 2 * mean_n @ pair.first_sums
            + 4 * mean_n @ pair.product @ mean_m
            + size_m * self._sizes[n] + size_n * self._sizes[m] - 3 * count * size_n * size_m
        )  # fmt: skip
        separate_sizes = (self._sizes[n] - count * size_n) * (self._sizes[m] - count * size_m)
        return float(
            self._product(n, m) - count / (count - 2) * joint_sizes + separate_sizes / ((count - 1) * (count - 2))
        )


class _Pair:
    """Sums over the tokens of two depths.

    product: (hidden, hidden), sum of the outer products of the states.
    sizes: sum of the products of the squared norms.
    first_sums, second_sums: (hidden,), sum of the states of one depth times the squared norms of the other depth.
    """

    def __init__(self, width: int, size: int) -> None:
        self.product = np.zeros((width, size))
        self.sizes = 0.0
        self.first_sums, self.second_sums = np.zeros(width), np.zeros(size)

    def add(self, first: np.ndarray, second: np.ndarray, first_sizes: np.ndarray, second_sizes: np.ndarray) -> None:
        """Add states (token, hidden) and their squared norms (token,)."""
        self.product += first.T @ second
        self.sizes += float(first_sizes @ second_sizes)
        self.first_sums += second_sizes @ first
        self.second_sums += first_sizes @ second
