"""How alike the states of two models are, whatever axes each of them uses: centred kernel alignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from bert_core.refused import Refused, check_finite, validate_arrays

MIN_TOKENS = 4  # of which the unbiased estimate is made


@validate_arrays(one="token width", other="token size")
def linear_cka(one: np.ndarray, other: np.ndarray, *, unbiased: bool = False) -> float:
    """Linear CKA of two sets of states of the same tokens, 0 to 1: how alike the distances are that both draw.

    one: (token, width). other: (token, size); the two may have different widths. Neither turning nor scaling
    either of them changes it. With few tokens for its width any two states seem alike; unbiased: without that, near 0
    for states that have nothing in common, and then maybe a little below it.
    Returns NaN where either says the same of every token.
    Raises Refused for numbers that are not finite, and for the unbiased estimate of fewer than four tokens.
    Source: Kornblith 2019, section 3 (arXiv:1905.00414); unbiased: Nguyen 2021, section 2 (arXiv:2010.15327), of
    Song 2012, equation 5 (JMLR 13).
    """
    if unbiased and len(one) < MIN_TOKENS:
        raise Refused(f"{len(one)} tokens: the unbiased estimate needs {MIN_TOKENS} at least")
    sums = CkaSums()
    sums.add([one], [other])
    return float((sums.unbiased() if unbiased else sums.cka())[0, 0])


class CkaSums:
    """Sums over tokens from which the CKA of depths of two models comes exactly, however many tokens there were.

    rows: which depths of the first model are held beside all of the second; None: all. The memory is that of a matrix
    (hidden, hidden) for every pair of depths, and for each with itself.
    """

    def __init__(self, rows: Iterable[int] | None = None) -> None:
        self.rows = None if rows is None else tuple(rows)
        self.tokens = 0
        self._depths: tuple[int, int] = (0, 0)
        self._shifts: list[np.ndarray] = []
        self._sums: list[np.ndarray] = []  # of every depth, its states
        self._sizes: np.ndarray = np.zeros(0)  # of every depth, their squared lengths
        self._pairs: dict[tuple[int, int], _Pair] = {}

    def add(self, one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> None:
        """Add the states of some tokens: of each depth of one model, (token, hidden), and of each of the other.

        Raises Refused for numbers that are not finite.
        """
        rows = range(len(one)) if self.rows is None else self.rows
        states = [*(one[row] for row in rows), *other]
        if not self._pairs:
            first = len(rows)
            self._depths = first, len(other)
            # What all states share is taken off at once: the sums are then of the size of what is asked.
            self._shifts = [part.mean(0) for part in states]
            self._sums = [np.zeros(part.shape[1]) for part in states]
            self._sizes = np.zeros(len(states))
            numbers = [(n, n) for n in range(len(states))]
            numbers += [(row, first + column) for row in range(first) for column in range(len(other))]
            self._pairs = {(n, m): _Pair(states[n].shape[1], states[m].shape[1]) for n, m in numbers}
        moved = [part - shift for part, shift in zip(states, self._shifts, strict=True)]
        sizes = [np.einsum("th,th->t", part, part, dtype=np.float64) for part in moved]
        for number, part in enumerate(moved):
            check_finite("states", part)
            self._sums[number] += part.sum(0, dtype=np.float64)
            self._sizes[number] += sizes[number].sum()
        for (n, m), pair in self._pairs.items():
            pair.add(moved[n], moved[m], sizes[n], sizes[m])
        self.tokens += len(states[0])

    def cka(self) -> np.ndarray:
        """Linear CKA, (row, depth of the second model), 0 to 1; NaN where a depth says the same of every token."""
        return self._shares(self._product)

    def unbiased(self) -> np.ndarray:
        """The same from unbiased estimates, (row, depth of the second model), maybe a little below 0.

        NaN for fewer than four tokens.
        """
        return self._shares(self._unbiased)

    def _shares(self, of: Callable[[int, int], float]) -> np.ndarray:
        first, second = self._depths
        own = np.array([of(number, number) for number in range(first + second)])
        both = np.array([[of(row, first + column) for column in range(second)] for row in range(first)])
        lengths = np.sqrt(np.where(own > 0, own, np.nan))
        shares: np.ndarray = both / (lengths[:first, None] * lengths[None, first:])
        return shares

    def _product(self, n: int, m: int) -> float:
        """The squared size of the covariance, times the square of the tokens."""
        mean, other = self._sums[n] / self.tokens, self._sums[m] / self.tokens
        return float(((self._pairs[n, m].product - self.tokens * np.outer(mean, other)) ** 2).sum())

    def _unbiased(self, n: int, m: int) -> float:
        """The same, less what the tokens have in common with themselves alone."""
        count, pair = self.tokens, self._pairs[n, m]
        if count < MIN_TOKENS:
            return float("nan")
        mean, other = self._sums[n] / count, self._sums[m] / count
        length, width = mean @ mean, other @ other
        # The sum over tokens of the squared lengths of both, each from its mean.
        together = (
            pair.sizes - 2 * other @ pair.of_other - 2 * mean @ pair.of_one + 4 * mean @ pair.product @ other
            + width * self._sizes[n] + length * self._sizes[m] - 3 * count * length * width
        )  # fmt: skip
        alone = (self._sizes[n] - count * length) * (self._sizes[m] - count * width)
        return float(self._product(n, m) - count / (count - 2) * together + alone / ((count - 1) * (count - 2)))


class _Pair:
    """Sums over the tokens of two depths.

    product: of the states, (hidden, hidden). sizes: of the squared lengths, multiplied. of_one: of the states of one
    times the squared lengths of the other, (hidden,); of_other: the other way round.
    """

    def __init__(self, width: int, size: int) -> None:
        self.product = np.zeros((width, size))
        self.sizes = 0.0
        self.of_one, self.of_other = np.zeros(width), np.zeros(size)

    def add(self, one: np.ndarray, other: np.ndarray, sizes: np.ndarray, lengths: np.ndarray) -> None:
        self.product += one.T @ other
        self.sizes += float(sizes @ lengths)
        self.of_one += lengths @ one
        self.of_other += sizes @ other
