"""Targets, the scalars that gradients and other explanations explain, and targets for words at masked positions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bert_core.deprecation import RenamedAttribute
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.target_kinds import CUSTOM, TARGET_KINDS, TARGET_VALUES, TargetKind
from bert_core.tokenizer import Encoding, Tokenizer

MAX_QUOTED_CHARACTERS = 40  # of a word in an error message
MAX_NAME_CHARACTERS = 60  # of the name of a custom target
MAX_LISTED = 8  # word pieces in an error message


_PIECES = "pairs (position, token_id)"


def _check_piece(piece: object) -> tuple[int, int]:
    """Return a pair (position, token_id) of ints. Raises Refused for anything else."""
    pair = require_sequence("a piece of a target", piece, "two numbers, (position, token_id)")
    if len(pair) != 2:
        raise Refused(f"a piece of a target is {short_repr(piece)}: it must be a pair (position, token_id)")
    position, token_id = pair
    return (
        require_int("the position of a piece", position, None),
        require_int("the token_id of a piece", token_id, None),
    )


@dataclass(frozen=True)
class Target:
    """The scalar that a gradient explains. A larger value supports the prediction.

    kind: kind of the target, which determines its value:
        "mlm": log-probability (nats) of the token `token_id` at `position`.
        "contrast": logit of the token `token_id` at `position` minus that of the token `against`.
        "joint": sum of the log-probabilities (nats) of `pieces`, each at its own mask.
        "loss": minus the MLM loss over `pieces`, the mean of their log-probabilities (nats).
        "nsp": logit(B follows A) - logit(B does not follow A).
        "class": logit of the class with the number `label`.
        "tag": logit of the tag with the number `label` for the token at `position`.
        "span": start logit at `position` plus end logit at `last`. Both are 0 for no answer.
        "choice": logit of the second text as the answer to the first.
        "similarity": cosine of the vector of the text with that of the text `other`, which is held constant.
        "replaced": logit that the token at `position` was replaced.
        "custom": value of `function`, in units of its own.
        Other kinds are those of task heads added with `register_head`.
    pieces: (position, token_id) of each token.
    pooled: positions whose hidden states are pooled to the vector of the text.
    name: name of a custom target, one line of text.
    function: function of a `TargetOutputs` that returns one finite number for each copy of the text, a floating-point
        tensor (copy,). The value for a copy must depend neither on other copies nor on chance.
    positions: positions of the last layer that `function` reads; () for those of all tokens.
    Two custom targets are equal if their functions are, which for functions means the same object.
    Raises Refused if the kind is unknown, or a value that it needs is missing or not valid.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.", "It was cold.")
    >>> run = bert_core.capture(loaded, encoding, target=bert_core.Target("nsp"))
    >>> run.gradient.shape, run.target_value > 0
    ((6, 12, 15, 15), True)
    """

    kind: str
    position: int | None = None
    token_id: int | None = None
    label: int | None = None
    against: int | None = None
    pieces: tuple[tuple[int, int], ...] = ()
    last: int | None = None
    other: Encoding | None = None
    pooled: tuple[int, ...] = ()
    name: str = ""
    function: Callable[[Any], Any] | None = field(default=None, hash=False)
    positions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        needs = self.target_kind.needs
        for name in ("position", "token_id", "label", "against", "last"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, require_int(f"the {name} of a target", getattr(self, name), None))
        object.__setattr__(self, "pieces", tuple(map(_check_piece, require_sequence("pieces", self.pieces, _PIECES))))
        if self.other is not None and not isinstance(self.other, Encoding):
            raise Refused(f"the other text of a target is {short_repr(self.other)}: it must be an Encoding")
        pooled = require_sequence("pooled", self.pooled, "positions")
        positions = tuple(require_int("a pooled position", position, None) for position in pooled)
        object.__setattr__(self, "pooled", positions)
        self._check_function()
        if any(getattr(self, name) is None or getattr(self, name) in ((), "") for name in needs):
            *first, last = (TARGET_VALUES[name] for name in needs)
            values = f"{', '.join(first)} and {last}" if first else last
            raise Refused(f"{'an' if self.kind == 'mlm' else 'a'} {self.kind!r} target needs {values}")
        if len({position for position, _ in self.pieces}) < len(self.pieces):
            raise Refused(f"a {self.kind!r} target has two pieces at one position: it may have one at each position")

    def _check_function(self) -> None:
        """Check the fields of a custom target. Raises Refused for invalid ones, and if another kind has them."""
        if not isinstance(self.name, str) or len(self.name) > MAX_NAME_CHARACTERS or not f"{self.name}x".isprintable():
            raise Refused(
                f"the name of a target is {short_repr(self.name)}: it must be one line of at most "
                f"{MAX_NAME_CHARACTERS} characters"
            )
        if self.function is not None and not callable(self.function):
            raise Refused(f"the function of a target is {short_repr(self.function)}: it must be callable")
        items = require_sequence("positions of a target", self.positions, "positions")
        positions = tuple(require_int("a position of a target", item, None) for item in items)
        if len(set(positions)) < len(positions):
            raise Refused(f"the positions of a target are {short_repr(positions)}: they must be different")
        object.__setattr__(self, "positions", positions)
        if self.kind != CUSTOM and (self.name or self.function is not None or positions):
            raise Refused(f"a {self.kind!r} target has a name, function or positions: only a {CUSTOM!r} target may")

    @property
    def target_kind(self) -> TargetKind:
        """The row of `TARGET_KINDS` for the kind.

        Raises Refused if the kind is unknown, as after `unregister_head` removed it.
        """
        if not isinstance(self.kind, str) or self.kind not in TARGET_KINDS:
            raise Refused(
                f"the target kind {short_repr(self.kind)} is unknown: it must be one of {', '.join(TARGET_KINDS)}"
            )
        return TARGET_KINDS[self.kind]

    @property
    def rows(self) -> tuple[int, ...]:
        """Positions of the last layer that the target is computed from.

        These are its own positions, the pooled positions, or the first position for a target of the whole text. Some
        models also read others (`TaskHead.target_rows`).
        """
        positions: list[int] = [getattr(self, name) for name in ("position", "last") if name in self.target_kind.needs]
        pieces = tuple(position for position, _ in self.pieces)
        return tuple(positions) or pieces or self.pooled or self.positions or (0,)

    @property
    def target_pieces(self) -> tuple[tuple[int, int], ...]:
        """The tokens whose probability is the target, as (position, token_id). Empty for a target without tokens."""
        if self.position is None or self.token_id is None:
            return self.pieces
        return ((self.position, self.token_id),)

    def removable(self, encoding: Encoding) -> tuple[int, ...]:
        """Return the positions that can be removed from a text while the target stays defined.

        These are all positions except special tokens and the masks of the target. The word of a tag target and those of
        a span target can be removed, because their positions and context remain.
        """
        positions = {position for position, _ in self.target_pieces}
        if self.function is not None:  # it may read any mask among its positions
            positions = {mask for mask in encoding.mask_positions if not self.positions or mask in self.positions}
        return tuple(i for i, special in enumerate(encoding.special) if not special and i not in positions)

    asks = RenamedAttribute("target_kind")
    asked = RenamedAttribute("target_pieces")


@validate_arguments
def word_target(
    tokenizer: Tokenizer, encoding: Encoding, word: str, *, position: int | None = None, against: str | None = None
) -> Target:
    """Return the target for a word at a masked position, or for its logit difference from a second word.

    A word of several pieces needs as many consecutive masks. Its target is the sum of the log-probabilities of its
    pieces, each at its own mask.

    word, against: words as typed, or word pieces such as "##ing".
    position: position of the (first) mask. None is allowed if only one position is possible.
    Raises Refused if there is no mask (at this position), there are fewer masks than pieces, a character is not in the
    vocabulary, or a word with `against` has several pieces.

    >>> import bert_core
    >>> tokenizer = bert_core.load("headlight-mini").tokenizer
    >>> encoding = tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target = bert_core.word_target(tokenizer, encoding, "door", against="window")
    >>> target.kind, target.position, tokenizer.token_of(target.token_id)
    ('contrast', 4, 'door')
    """
    pieces = pieces_of(tokenizer, word)
    first = _first_position(encoding, len(pieces), position)
    if against is not None:
        against_pieces = pieces_of(tokenizer, against)
        for compared_word, word_pieces in ((word, pieces), (against, against_pieces)):
            if len(word_pieces) > 1:
                raise Refused(f"{_count_pieces(compared_word, word_pieces)}: only words of one piece can be compared")
        return Target("contrast", first, tokenizer.id_of(pieces[0]), against=tokenizer.id_of(against_pieces[0]))
    if len(pieces) == 1:
        return Target("mlm", first, tokenizer.id_of(pieces[0]))
    mask_count = _masks_from(encoding, first)
    if mask_count < len(pieces):
        masks = "is only one mask" if mask_count == 1 else f"are only {mask_count} masks"
        raise Refused(
            f"{_count_pieces(word, pieces)}, but there {masks} from position {first}: mask a word of "
            f"{len(pieces)} pieces, or choose one of these pieces"
        )
    return Target("joint", pieces=tuple((first + n, tokenizer.id_of(piece)) for n, piece in enumerate(pieces)))


class OtherNumberOfWords(Refused):
    """The answer about a text has another number of words than the text has groups of [MASK]."""


def mask_groups(encoding: Encoding) -> list[tuple[int, ...]]:
    """Return the positions of each group of adjacent masks, in order."""
    numbered = enumerate(encoding.mask_positions)
    groups = itertools.groupby(numbered, key=lambda pair: pair[1] - pair[0])
    return [tuple(position for _, position in group) for _, group in groups]


def word_targets(tokenizer: Tokenizer, encoding: Encoding, words: str) -> list[tuple[str, Target]]:
    """Return the words that are expected at the masks of a text, each with its target.

    words: one word; or several, separated by spaces, one for each group of adjacent masks in order.
    Raises Refused as `word_target`, and `OtherNumberOfWords` for several groups that the words do not fit.
    """
    groups, names = mask_groups(encoding), words.split()
    if len(groups) > 1 and len(names) == len(groups):
        pairs = zip(names, groups, strict=True)
        return [(name, word_target(tokenizer, encoding, name, position=group[0])) for name, group in pairs]
    try:
        return [(words, word_target(tokenizer, encoding, words))]
    except Refused as error:
        if len(groups) < 2:
            raise
        raise OtherNumberOfWords(
            f"the text has {len(groups)} groups of {encoding.special_tokens.mask} and the expected answer has "
            f"{len(names)} {'word' if len(names) == 1 else 'words'}: give one word for each group, such as "
            "'king door' for two"
        ) from error


@validate_arguments
def loss_target(encoding: Encoding, original: Encoding) -> Target:
    """Return the target "loss", minus the MLM loss over all masked tokens whose original is known.

    original: the same text without masks.
    Raises Refused if no token is masked.
    """
    masked = masked_pieces(encoding, original)
    if not masked:
        raise Refused("no word of the text is masked, so there is no loss: mask a word")
    return Target("loss", pieces=masked)


def masked_pieces(encoding: Encoding, original: Encoding) -> tuple[tuple[int, int], ...]:
    """Return the original tokens of all masked positions as (position, token_id)."""
    masks = frozenset(original.mask_positions)
    return tuple((i, original.input_ids[i]) for i in encoding.mask_positions if i not in masks)


def pieces_of(tokenizer: Tokenizer, word: str) -> tuple[str, ...]:
    """Split a word into word pieces. Raises Refused if a character is not in the vocabulary.

    word: a word, or a word piece such as "##ing", which is returned unchanged.
    """
    stripped = word.strip()
    if tokenizer.has_token(stripped):
        return (stripped,)
    encoding = tokenizer.encode(f" {stripped}")  # with a space, because some vocabularies include it in the word
    if encoding.unknown_count:
        raise Refused(f"{_shorten(stripped)!r} has characters that are not in the vocabulary: choose another word")
    tokens = zip(encoding.input_ids, encoding.special, strict=True)
    return tuple(tokenizer.token_of(number) for number, special in tokens if not special)


def _first_position(encoding: Encoding, pieces: int, position: int | None) -> int:
    """Return the position of the first mask for a word of so many pieces. Raises Refused as `word_target`."""
    masks = encoding.mask_positions
    if not masks:
        raise Refused(f"no word is masked: mask a word first, or type {encoding.special_tokens.mask}")
    if position is not None:
        if position not in masks:
            raise Refused(f"position {position} is not masked: choose {_join_names(masks)}")
        return position
    starts = [mask for mask in masks if mask - 1 not in masks]
    fitting = [start for start in starts if _masks_from(encoding, start) == pieces] or starts
    if len(fitting) > 1:
        raise Refused(
            f"positions {_join_names(masks)} are masked: add the position of the word, as in 'cat at {masks[0]}'"
        )
    return fitting[0]


def _masks_from(encoding: Encoding, position: int) -> int:
    """Return the number of consecutive masks from a position on."""
    return next((n for n, role in enumerate(encoding.roles[position:]) if role != "mask"), 0)


def _count_pieces(word: str, pieces: tuple[str, ...]) -> str:
    """Return the start of an error message, as "'quasar' has 2 pieces in this vocabulary, qua and ##sar"."""
    count = "one piece" if len(pieces) == 1 else f"{len(pieces)} pieces"
    names = pieces if len(pieces) <= MAX_LISTED else (*pieces[: MAX_LISTED - 1], "…", pieces[-1])
    return f"{_shorten(word.strip())!r} has {count} in this vocabulary, {_join_names(names)}"


def _shorten(word: str) -> str:
    """Shorten a word for an error message."""
    return word if len(word) <= MAX_QUOTED_CHARACTERS else f"{word[:MAX_QUOTED_CHARACTERS]}…"


def _join_names(names: tuple[object, ...]) -> str:
    """Join names with commas and "and"."""
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}" if first else last
