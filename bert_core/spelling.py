"""How a vocabulary writes its pieces, turned into one way for all: as text, with ## before what goes on with a word."""

from __future__ import annotations

import re
import unicodedata
from itertools import count

VISIBLE_SPACE = "␣"  # a space that is a piece, or part of one
CONTINUATION_PREFIX = "##"
CONTINUATION_SUFFIX = (
    "@@"  # behind a piece that a word goes on after: a BERTweet's vocabulary says that in place of the other
)


class Spelling:
    """Of word pieces, which already write `##`; other vocabularies write the space before a word instead.

    knows_words: whether what the library takes as a word is one.
    """

    has_library_words = True

    def readable(self, piece: str) -> str:
        """A piece of the vocabulary as it is read."""
        return piece

    def readable_in_text(self, piece: str, goes_on: bool) -> str:
        """The same where it is known whether it goes on with the word before it."""
        return piece

    def candidate_pieces(self, shown: str) -> tuple[str, ...]:
        """The pieces that are shown so, the likelier first."""
        return (shown,)

    def is_separate_word(self, sign: str) -> bool:
        """Whether a sign is a word of its own though the vocabulary's pieces do not say so."""
        return False

    def is_partial_character(self, piece: str) -> bool:
        """Whether a piece begins or ends within a sign."""
        return False

    def readable_part(self, typed: str, number: int, goes_on: bool) -> str:
        """Such a piece, by the signs that it is of and how many pieces of them came before, the first being 1."""
        return (CONTINUATION_PREFIX if goes_on else "") + _readable(typed) + "₀₁₂₃₄₅₆₇₈₉"[min(number, 9)]


class Unigrams(Spelling):
    """Of SentencePiece: a space is `▁`. Source: Kudo 2018 (arXiv:1808.06226)."""

    has_library_words = False

    def text(self, piece: str) -> str:
        """What a piece stands for."""
        return piece.replace("▁", " ")

    def piece(self, text: str) -> str:
        """How the vocabulary writes a text."""
        return text.replace(" ", "▁")

    def readable(self, piece: str) -> str:
        """As in `Spelling`: words bare, what goes on with one behind `##`, a sign behind a space with that space."""
        text = self.text(piece)
        if text.startswith(" "):
            return _readable(text[1:] if text[1:2].isalnum() else text)
        return (CONTINUATION_PREFIX if text[:1].isalnum() else "") + _readable(text)

    def readable_in_text(self, piece: str, goes_on: bool) -> str:
        """As in `Spelling`."""
        text = self.text(piece)
        return (CONTINUATION_PREFIX if goes_on else "") + _readable(
            text[1:] if text.startswith(" ") and len(text) > 1 else text
        )

    def candidate_pieces(self, shown: str) -> tuple[str, ...]:
        """As in `Spelling`."""
        if shown.startswith(CONTINUATION_PREFIX) and len(shown) > len(CONTINUATION_PREFIX):
            return (self.piece(shown.removeprefix(CONTINUATION_PREFIX)), self.piece(shown))
        text = shown.replace(VISIBLE_SPACE, " ")
        behind, bare = self.piece(" " + text), self.piece(text)
        return (behind, bare) if text[:1].isalnum() else (bare, behind)

    def is_separate_word(self, sign: str) -> bool:
        """As in `Spelling`: signs, and letters of scripts that put no space between words."""
        if sign.isspace() or unicodedata.category(sign)[0] in "PS":
            return True
        wide = unicodedata.east_asian_width(sign) == "W" and not unicodedata.name(sign, "").startswith("HANGUL")
        return wide or any(first <= sign <= last for first, last in (("\u0e00", "\u0eff"), ("\u1000", "\u109f")))


class Bytes(Unigrams):
    """Of byte-level pieces: every byte has a sign of its own. Source: Radford 2019, section 2.2."""

    def text(self, piece: str) -> str:
        """As in `Unigrams`; bytes that are no whole character stand as their numbers behind a backslash."""
        numbers = [_BYTE_OF.get(sign) for sign in piece]
        if None in numbers:  # a piece that was added as it is
            return piece
        return bytes(number for number in numbers if number is not None).decode("utf-8", "backslashreplace")

    def piece(self, text: str) -> str:
        """As in `Unigrams`."""
        return "".join(_SIGN_OF[number] for number in text.encode("utf-8", "replace"))

    def is_partial_character(self, piece: str) -> bool:
        """As in `Spelling`."""
        numbers = [_BYTE_OF[sign] for sign in piece if sign in _BYTE_OF]
        try:
            bytes(numbers).decode()
        except UnicodeDecodeError:
            return True
        return False

    def candidate_pieces(self, shown: str) -> tuple[str, ...]:
        """As in `Unigrams`; then with the numbers behind backslashes as bytes."""
        found = super().candidate_pieces(shown)
        if "\\x" not in shown:
            return found
        text = shown.removeprefix(CONTINUATION_PREFIX).replace(VISIBLE_SPACE, " ").encode("utf-8", "replace")
        numbers = re.sub(rb"\\x([0-9a-f]{2})", lambda number: bytes([int(number[1], 16)]), text)
        as_bytes = "".join(_SIGN_OF[number] for number in numbers)
        return (*found, as_bytes, _SIGN_OF[ord(" ")] + as_bytes)


class Tweets(Unigrams):
    """Of a BERTweet's words: the last piece ends in `</w>`, and alone every other is shown as there, with `@@`."""

    def text(self, piece: str) -> str:
        """As in `Unigrams`."""
        return piece.removesuffix("</w>")

    def readable(self, piece: str) -> str:
        """As in `Spelling`."""
        return self.text(piece) if piece.endswith("</w>") else piece + CONTINUATION_SUFFIX

    def candidate_pieces(self, shown: str) -> tuple[str, ...]:
        """As in `Spelling`."""
        bare = shown.removeprefix(CONTINUATION_PREFIX) if len(shown) > len(CONTINUATION_PREFIX) else shown
        inside = (
            (bare.removesuffix(CONTINUATION_SUFFIX),)
            if bare.endswith(CONTINUATION_SUFFIX) and bare != CONTINUATION_SUFFIX
            else ()
        )
        return (*inside, bare + "</w>", bare)


class WordEnds(Tweets):
    """Of pairs of characters whose words are found first, and whose last piece ends in `</w>`."""

    has_library_words = True


def _readable(text: str) -> str:
    """A text whose spaces and signs without a look can be seen."""
    return "".join(
        VISIBLE_SPACE if sign == " " else sign if sign.isprintable() else "".join(f"\\x{n:02x}" for n in sign.encode())
        for sign in text
    )


def _signs() -> dict[int, str]:
    """The sign of each byte: itself where it has a look, else one from 256 on."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = count(256)
    return {number: chr(number if number in seen else next(others)) for number in range(256)}


_SIGN_OF = _signs()
_BYTE_OF = {sign: number for number, sign in _SIGN_OF.items()}
