"""Two runs side by side: the signed difference of every head, between the tokens that both texts have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_core.analysis.compare import Alignment, Change, align_tokens, aligned_maps, largest_changes
from bert_core.analysis.patterns import possible_keys
from bert_core.deprecation import renamed_fields
from bert_core.records import ModelRun
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.maps import CHANGES, UNITS, ShownMaps, check_all_layers, heads_off, read_only
from viz_app.notation import notes_of
from viz_app.tokens import Token
from viz_app.windows import common_window

MAX_CHANGES = 20
MAX_NAMED_TOKENS = 12  # tokens without a partner


@renamed_fields(what="quantity", there="existing_heads", shown="difference_maps", listed="change_rows", said="remarks")
@dataclass(frozen=True)
class Comparison:
    """The maps of the second of two runs minus those of the first: of two texts, two models, or heads on and off.

    names: of the two runs. models: of the two runs. quantity: "attention", or of runs with norms "brought". The tokens
    are those of the first text that are aligned with one of the second.
    Raises Refused for models with different numbers of layers or heads, runs with some layers or tokens, or another
    quantity.
    """

    before: ModelRun
    after: ModelRun
    names: tuple[str, str] = ("before", "after")
    models: tuple[str, str] = ("", "")
    quantity: str = "attention"

    def __post_init__(self) -> None:
        if self.quantity not in CHANGES:
            raise Refused(f"a comparison of {self.quantity!r}: it is of one of {', '.join(CHANGES)}")
        for run in (self.before, self.after):
            check_all_layers(run.layers, "a comparison")
            if run.token_range is not None:
                raise Refused("a comparison needs the maps of all tokens: capture without token_range")
        if self.before.attention.shape[:2] != self.after.attention.shape[:2]:
            aligned_maps(self.before.attention, self.after.attention, self.pairs)  # says how many each has

    @cached_property
    def pairs(self) -> Alignment:
        """The alignment of the tokens of the two texts."""
        return align_tokens(self.before.encoding.tokens, self.after.encoding.tokens)

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens of the rows and the columns: a token of both texts, or the token before and after."""
        places = zip(self.pairs.before.tolist(), self.pairs.after.tolist(), strict=True)
        return tuple(self._token(position_before, position_after) for position_before, position_after in places)

    @property
    def existing_heads(self) -> np.ndarray:
        """(layer, head) bool, the heads that exist in both runs."""
        existing: np.ndarray = self.before.existing_heads & self.after.existing_heads
        return existing

    @property
    def difference(self) -> str:
        """The difference in words: "B minus A"."""
        return f"{self.names[1]} minus {self.names[0]}"

    @property
    def unit(self) -> str:
        """The quantity of the difference, in words."""
        return UNITS[CHANGES[self.quantity]]

    @property
    def reading(self) -> str:
        """The meaning of the difference, in words."""
        quantity = UNITS[self.quantity]
        return f"{quantity.capitalize()} with {self.names[1]}, minus {quantity} with {self.names[0]}"

    @property
    def misleading(self) -> str:
        """How the difference can be misread, in words."""
        if self.models_differ:
            return "Heads of separately trained models have nothing in common but their number."
        if self.quantity == "brought":
            return "Norms have no direction: an equal norm can have the same effect or the opposite one."
        return "A large change shows where a head attends now, not that the prediction depends on it."

    def maps(self, layers: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return the maps of both runs between the aligned tokens, (layer, head, query, key) each, of some layers."""
        return aligned_maps(
            self.before.select_map(self.quantity)[layers], self.after.select_map(self.quantity)[layers], self.pairs
        )

    @cached_property
    def windows(self) -> tuple[int | None, ...]:
        """For each layer the window within which a pair is possible in at least one run; None for any distance."""
        if not (self.before.windows and self.after.windows):
            return ()
        return tuple(map(common_window, zip(self.before.windows, self.after.windows, strict=True)))

    @cached_property
    def possible(self) -> np.ndarray | None:
        """Pairs of aligned tokens within the window of a layer in at least one run, (layer, query, key) bool.

        None: all of them.
        """
        if not self.windows:
            return None
        possible = np.zeros((len(self.windows), len(self.tokens), len(self.tokens)), bool)
        for run, places in ((self.before, self.pairs.before), (self.after, self.pairs.after)):
            in_run = possible_keys(run.windows, len(run.encoding))
            possible |= True if in_run is None else in_run[:, places[:, None], places]
        return None if possible.all() else possible

    def difference_maps(self) -> ShownMaps:
        """Return the difference of all heads for export."""
        values_before, values_after = self.maps()
        off = heads_off(self.after)
        values = read_only(values_after - values_before)
        edits = notes_of(self.after.edits, self.after.encoding)
        notes = (self.difference, *edits)
        sides, quantity = (self.tokens, self.tokens), CHANGES[self.quantity]
        return ShownMaps(
            values,
            *sides,
            quantity,
            self.existing_heads,
            off,
            notes,
            edits=edits,
            windows=self.windows,
            possible=self.possible,
        )

    def largest(self, count: int = MAX_CHANGES) -> list[Change]:
        """Return the largest differences."""
        return largest_changes(*self.maps(), count)

    def change_rows(self, changes: Sequence[Change]) -> list[dict[str, str | float]]:
        """Return changes as rows of a table: the head, the two tokens, both values and their difference."""
        return [
            {
                "head": f"L{change.layer} H{change.head}",
                "query": f"{self.tokens[change.query].text} ({self.tokens[change.query].position})",
                "key": f"{self.tokens[change.key].text} ({self.tokens[change.key].position})",
                self.names[0]: change.before,
                self.names[1]: change.after,
                "change": change.after - change.before,
            }
            for change in changes
        ]

    @property
    def models_differ(self) -> bool:
        """Whether the two are runs of two models."""
        return self.models[0] != self.models[1]

    @property
    def texts(self) -> list[tuple[Encoding, str]]:
        """The texts of the runs with their names; one text without a name if both are the same."""
        before, after = self.before.encoding, self.after.encoding
        if (before.text, before.pair) == (after.text, after.pair):
            return [(before, "")]
        return [(before, self.names[0]), (after, self.names[1])]

    @property
    def remarks(self) -> list[str]:
        """Remarks on the comparison: the models if they differ, and the tokens that were left out."""
        models = [f"{name}: {model}" for name, model in zip(self.names, self.models, strict=True)]
        left_out = [] if self.left_out is None else [self.left_out.removesuffix(".")]
        return ([", ".join(models)] if self.models_differ else []) + left_out

    @property
    def left_out(self) -> str | None:
        """The tokens of both texts that are not aligned, in a sentence; None if all are."""
        if not (self.pairs.left_out_before or self.pairs.left_out_after):
            return None
        before, after = self.before.encoding, self.after.encoding
        return (
            f"The texts have {len(before)} and {len(after)} tokens. The {len(self.tokens)} that both have in the same "
            f"order are compared. Left out of {self.names[0]}: {_token_names(self.pairs.left_out_before, before)}; "
            f"of {self.names[1]}: {_token_names(self.pairs.left_out_after, after)}."
        )

    def _token(self, position_before: int, position_after: int) -> Token:
        label_before = self.before.encoding.labels[position_before]
        label_after = self.after.encoding.labels[position_after]
        is_same = label_after == label_before or label_after.casefold() == f"{label_before} (masked)".casefold()
        return Token(
            label_after if is_same else f"{label_before}→{label_after}",
            position_before,
            self.before.encoding.sides[position_before],
        )


def _token_names(positions: Sequence[int], encoding: Encoding) -> str:
    """Return some tokens of a text with their positions."""
    names = ", ".join(f"{encoding.labels[position]} ({position})" for position in positions[:MAX_NAMED_TOKENS])
    hidden_count = len(positions) - MAX_NAMED_TOKENS
    return (f"{names} and {hidden_count} more" if hidden_count > 0 else names) or "none"
