"""The number that an explanation explains, and words as such a target."""

from __future__ import annotations

from dataclasses import dataclass

from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.target_kinds import TARGET_KINDS, TARGET_VALUES, TargetKind
from bert_core.tokenizer import Encoding, Tokenizer

MAX_QUOTED_CHARACTERS = 40  # characters of a word, in an error
MAX_LISTED = 8  # pieces


_PIECES = "pairs (position, token_id)"


def _piece(given: object) -> tuple[int, int]:
    pair = require_sequence("a piece of a target", given, "two numbers, (position, token_id)")
    if len(pair) != 2:
        raise Refused(f"a piece of a target is {short_repr(given)}: it must be a pair (position, token_id)")
    return require_int("the position of a piece", pair[0], None), require_int("the token_id of a piece", pair[1], None)


@dataclass(frozen=True)
class Target:
    """The one number a gradient explains; what speaks for the answer makes it larger.

    kind: "mlm", the log-probability (nats) of the piece `token_id` at `position`;
    "contrast", by how much its logit there is above that of the piece `against`;
    "joint", the log-probability of several `pieces` together, each at its own mask: the sum of theirs;
    "loss", minus the masked-word loss over `pieces`: the mean of their log-probabilities;
    "nsp", logit(B follows A) - logit(B does not);
    "class", the logit of the class with the number `label`;
    "tag", the logit of the tag with the number `label` for the token at `position`;
    "span", the logit of `position` as the first token of an answer plus that of `last` as its last one; with 0 for
    both, that there is no answer;
    "choice", the logit of the second text as the answer, among several, to the first;
    "similarity", the cosine of the text's vector with that of the text `other`, which stays as it is; or
    "replaced", the logit that the token at `position` was put in the place of another.
    pieces: (position, token_id) of each. pooled: the positions whose states make the text's vector.
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

    def __post_init__(self) -> None:
        needs = self.target_kind.needs
        for name in ("position", "token_id", "label", "against", "last"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, require_int(f"the {name} of a target", getattr(self, name), None))
        object.__setattr__(self, "pieces", tuple(map(_piece, require_sequence("pieces", self.pieces, _PIECES))))
        if self.other is not None and not isinstance(self.other, Encoding):
            raise Refused(f"the other text of a target is {short_repr(self.other)}: it must be an Encoding")
        pooled = require_sequence("pooled", self.pooled, "positions")
        object.__setattr__(
            self, "pooled", tuple(require_int("a pooled position", position, None) for position in pooled)
        )
        if any(getattr(self, name) in (None, ()) for name in needs):
            *first, last = (TARGET_VALUES[name] for name in needs)
            values = f"{', '.join(first)} and {last}" if first else last
            raise Refused(f"{'an' if self.kind == 'mlm' else 'a'} {self.kind!r} target needs {values}")
        if len({position for position, _ in self.pieces}) < len(self.pieces):
            raise Refused(f"a {self.kind!r} target asks for two pieces at one position")

    @property
    def target_kind(self) -> TargetKind:
        """The row of `TARGET_KINDS` for its kind. Raises Refused for one that `unregister_head` removed since."""
        if not isinstance(self.kind, str) or self.kind not in TARGET_KINDS:
            raise Refused(f"target kind {short_repr(self.kind)} is unknown: one of {', '.join(TARGET_KINDS)}")
        return TARGET_KINDS[self.kind]

    @property
    def rows(self) -> tuple[int, ...]:
        """The positions of the last layer that it is read from: its own, or the first for the text as a whole.

        Those that are pooled, where its vector is asked for.
        """
        own: list[int] = [getattr(self, name) for name in ("position", "last") if name in self.target_kind.needs]
        return tuple(own) or tuple(position for position, _ in self.pieces) or self.pooled or (0,)

    @property
    def target_pieces(self) -> tuple[tuple[int, int], ...]:
        """The pieces that are asked for, as (position, token_id); none where the text as a whole is."""
        if self.position is None or self.token_id is None:
            return self.pieces
        return ((self.position, self.token_id),)

    def removable(self, encoding: Encoding) -> tuple[int, ...]:
        """Positions that can be taken out of a text while the question stays: not the added ones, nor masks asked for.

        The word that a tag is asked of can be taken out, and those of an answer: their places are left, and what stands
        around them.
        """
        asked = {position for position, _ in self.target_pieces}
        return tuple(i for i, special in enumerate(encoding.special) if not special and i not in asked)


@validate_arguments
def word_target(
    tokenizer: Tokenizer, encoding: Encoding, word: str, *, position: int | None = None, against: str | None = None
) -> Target:
    """The target for a word at a mask, or for how far it is above another word.

    word, against: as they would be typed, or a piece such as "##ing". position: of the (first) [MASK]; it may be left
    out where there is but one place. A word of several pieces takes as many masks in a row, and is asked for as a
    whole: the sum of the log-probabilities of its pieces, each at its own mask.
    Raises Refused if there is no [MASK], or no such one; if the masks are fewer than the pieces; for signs that the
    vocabulary does not have; or for a word of several pieces in a contrast.
    """
    pieces = pieces_of(tokenizer, word)
    first = _place(encoding, len(pieces), position)
    if against is not None:
        for one, its in ((word, pieces), (against, pieces_of(tokenizer, against))):
            if len(its) > 1:
                raise Refused(f"{_in_pieces(one, its)}: only words of one piece can be compared with each other")
        other = tokenizer.id_of(pieces_of(tokenizer, against)[0])
        return Target("contrast", first, tokenizer.id_of(pieces[0]), against=other)
    if len(pieces) == 1:
        return Target("mlm", first, tokenizer.id_of(pieces[0]))
    room = _masks_from(encoding, first)
    if room < len(pieces):
        masks = "one is" if room == 1 else f"{room} are"
        raise Refused(
            f"{_in_pieces(word, pieces)}, but at position {first} only {masks} hidden: hide a word of {len(pieces)} "
            "pieces, or choose one of these"
        )
    return Target("joint", pieces=tuple((first + n, tokenizer.id_of(piece)) for n, piece in enumerate(pieces)))


@validate_arguments
def loss_target(encoding: Encoding, original: Encoding) -> Target:
    """Minus the masked-word loss over every mask of which it is known what stood there.

    original: the same text before words were hidden. Raises Refused if nothing is hidden.
    """
    hidden = hidden_pieces(encoding, original)
    if not hidden:
        raise Refused("no word was hidden from the typed text, so there is no loss: hide one")
    return Target("loss", pieces=hidden)


def hidden_pieces(encoding: Encoding, original: Encoding) -> tuple[tuple[int, int], ...]:
    """Where a mask stands in the place of a piece, and the number of that piece."""
    masks = frozenset(original.mask_positions)
    return tuple((i, original.input_ids[i]) for i in encoding.mask_positions if i not in masks)


def pieces_of(tokenizer: Tokenizer, word: str) -> tuple[str, ...]:
    """The pieces of a word, or the piece itself if it is one. Raises Refused for signs that no piece has."""
    written = word.strip()
    if tokenizer.has_token(written):
        return (written,)
    read = tokenizer.encode(f" {written}")  # as within a text: some vocabularies count the space to the word
    if read.unknown_count:
        raise Refused(f"{_shortened(written)!r} has characters that are not in the vocabulary: choose another word")
    typed = zip(read.input_ids, read.special, strict=True)
    return tuple(tokenizer.token_of(number) for number, special in typed if not special)


def _place(encoding: Encoding, pieces: int, position: int | None) -> int:
    """The first position at which a word of so many pieces is asked for. Raises Refused as `word_target`."""
    masks = encoding.mask_positions
    if not masks:
        raise Refused(f"no word is hidden: hide one first, or type {encoding.special_tokens.mask}")
    if position is not None:
        if position not in masks:
            raise Refused(f"no word is hidden at position {position}: choose {_listed(masks)}")
        return position
    starts = [mask for mask in masks if mask - 1 not in masks]
    fitting = [start for start in starts if _masks_from(encoding, start) == pieces] or starts
    if len(fitting) > 1:
        raise Refused(
            f"words are hidden at positions {_listed(masks)}: add the one you mean, as in 'cat at {masks[0]}'"
        )
    return fitting[0]


def _masks_from(encoding: Encoding, position: int) -> int:
    """How many masks stand in a row from a position on."""
    return next((n for n, duty in enumerate(encoding.roles[position:]) if duty != "mask"), 0)


def _in_pieces(word: str, pieces: tuple[str, ...]) -> str:
    """As in "'quasar' is 2 pieces here, qua and ##sar"."""
    count = "one piece" if len(pieces) == 1 else f"{len(pieces)} pieces"
    some = pieces if len(pieces) <= MAX_LISTED else (*pieces[: MAX_LISTED - 1], "…", pieces[-1])
    return f"{_shortened(word.strip())!r} has {count} in this vocabulary, {_listed(some)}"


def _shortened(word: str) -> str:
    """A word as an error quotes it."""
    return word if len(word) <= MAX_QUOTED_CHARACTERS else f"{word[:MAX_QUOTED_CHARACTERS]}…"


def _listed(names: tuple[object, ...]) -> str:
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}" if first else last
