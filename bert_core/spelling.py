"""Notations of vocabularies, translated to one readable notation: text, with `##` before a continuation of a word."""

from __future__ import annotations

import re
import unicodedata
from itertools import count

VISIBLE_SPACE = "␣"  # stands for a space within a readable piece
CONTINUATION_PREFIX = "##"
BYTE_PIECES = tuple(f"<0x{number:02X}>" for number in range(256))  # of vocabularies with byte fallback
CONTINUATION_SUFFIX = "@@"  # BERTweet's vocabulary marks a piece with a continuation, not the continuation itself


class Spelling:
    """Notation of WordPiece vocabularies, which is the readable notation itself.

    Other notations mark the space before a word or the end of a word, and are subclasses.
    has_library_words: whether the word boundaries that the tokenizers library reports are those of words.
    strips_spaces: whether the span of a piece is taken without the spaces before it, which some tokenizers include.
    """

    has_library_words = True
    strips_spaces = False

    def readable(self, piece: str) -> str:
        """Return a piece of the vocabulary in the readable notation."""
        return piece

    def readable_in_text(self, piece: str, is_continuation: bool) -> str:
        """Return a piece within a text in the readable notation.

        is_continuation: whether the piece continues the word of the previous piece.
        """
        return piece

    def candidate_pieces(self, token: str) -> tuple[str, ...]:
        """Return the vocabulary pieces that a readable token can stand for, the most likely first."""
        return (token,)

    def is_separate_word(self, character: str) -> bool:
        """Return whether a character is a word of its own although the pieces do not mark it as one."""
        return False

    def is_partial_character(self, piece: str) -> bool:
        """Return whether a piece begins or ends within a character."""
        return False

    def is_added_space(self, token: str) -> bool:
        """Return whether an added token stands for spaces or line breaks, as ordinary pieces do."""
        return False

    def readable_part(self, characters: str, number: int, is_continuation: bool) -> str:
        """Return the readable notation of a piece that begins or ends within a character.

        characters: the characters that the piece belongs to. number: position of the piece among theirs, from 1.
        is_continuation: whether the piece continues the word of the previous piece.
        """
        prefix = CONTINUATION_PREFIX if is_continuation else ""
        return prefix + _make_visible(characters) + "₀₁₂₃₄₅₆₇₈₉"[min(number, 9)]


class Unigrams(Spelling):
    """Notation of SentencePiece vocabularies, which write a space as `▁`. Source: Kudo 2018 (arXiv:1808.06226)."""

    has_library_words = False
    strips_spaces = True

    def text(self, piece: str) -> str:
        """Return the text that a piece stands for."""
        return piece.replace("▁", " ")

    def piece(self, text: str) -> str:
        """Return a text in the notation of the vocabulary."""
        return text.replace(" ", "▁")

    def readable(self, piece: str) -> str:
        """Return a piece in the readable notation, as in `Spelling`.

        A piece that begins a word has no prefix, and a continuation has `##`. A space before a piece that does not
        begin with a letter or digit is visible.
        """
        text = self.text(piece)
        if text.startswith(" "):
            return _make_visible(text[1:] if text[1:2].isalnum() else text)
        return (CONTINUATION_PREFIX if text[:1].isalnum() else "") + _make_visible(text)

    def readable_in_text(self, piece: str, is_continuation: bool) -> str:
        """Return a piece within a text in the readable notation, as in `Spelling`."""
        text = self.text(piece)
        prefix = CONTINUATION_PREFIX if is_continuation else ""
        return prefix + _make_visible(text[1:] if text.startswith(" ") and len(text) > 1 else text)

    def candidate_pieces(self, token: str) -> tuple[str, ...]:
        """Return the pieces that a readable token can stand for, as in `Spelling`."""
        if token.startswith(CONTINUATION_PREFIX) and len(token) > len(CONTINUATION_PREFIX):
            text = token.removeprefix(CONTINUATION_PREFIX)
            pieces = self.piece(text), self.piece(token)
            return pieces if text[:1].isalnum() else pieces[::-1]  # the name of "###" has no prefix
        text = token.replace(VISIBLE_SPACE, " ")
        with_space, bare = self.piece(" " + text), self.piece(text)
        return (with_space, bare) if text[:1].isalnum() else (bare, with_space)

    def is_separate_word(self, character: str) -> bool:
        """Return whether a character is a word of its own, as in `Spelling`.

        This holds for spaces, punctuation, symbols, and characters of scripts without spaces between words.
        """
        if character.isspace() or unicodedata.category(character)[0] in "PS":
            return True
        is_hangul = unicodedata.name(character, "").startswith("HANGUL")
        is_wide = unicodedata.east_asian_width(character) == "W" and not is_hangul
        blocks = (("\u0e00", "\u0eff"), ("\u1000", "\u109f"))  # Thai and Lao, Burmese
        return is_wide or any(first <= character <= last for first, last in blocks)


class Bytes(Unigrams):
    """Notation of byte-level vocabularies, with one character for each byte. Source: Radford 2019, section 2.2."""

    def text(self, piece: str) -> str:
        r"""Return the text that a piece stands for; a byte outside of a complete character becomes `\xNN`."""
        numbers = [_BYTE_OF_CHARACTER.get(character) for character in piece]
        if None in numbers:  # an added token, which the vocabulary has as plain text
            return piece
        return bytes(number for number in numbers if number is not None).decode("utf-8", "backslashreplace")

    def piece(self, text: str) -> str:
        """Return a text in the notation of the vocabulary."""
        return "".join(_CHARACTER_OF_BYTE[number] for number in text.encode("utf-8", "replace"))

    def is_partial_character(self, piece: str) -> bool:
        """Return whether a piece begins or ends within a character."""
        numbers = [_BYTE_OF_CHARACTER[character] for character in piece if character in _BYTE_OF_CHARACTER]
        try:
            bytes(numbers).decode()
        except UnicodeDecodeError:
            return True
        return False

    def candidate_pieces(self, token: str) -> tuple[str, ...]:
        r"""Return the candidates of `Unigrams`, and then those with each `\xNN` of the token as a byte."""
        candidates = super().candidate_pieces(token)
        if "\\x" not in token:
            return candidates
        byte_piece = "".join(_CHARACTER_OF_BYTE[number] for number in _read_escapes(token))
        return (*candidates, byte_piece, _CHARACTER_OF_BYTE[ord(" ")] + byte_piece)


class ByteFallback(Unigrams):
    """Notation of vocabularies that have a piece for each byte, such as `<0xF0>`, for characters without a piece."""

    def is_partial_character(self, piece: str) -> bool:
        """Return whether a piece is one byte of a character of several bytes."""
        return piece in _PARTIAL_BYTES

    def is_added_space(self, token: str) -> bool:
        """Return whether an added token stands for spaces or line breaks, as in `Spelling`."""
        return self.text(token).isspace()

    def readable_in_text(self, piece: str, is_continuation: bool) -> str:
        """Return a piece within a text in the readable notation; one of several spaces shows all of them."""
        text = self.text(piece)
        return _make_visible(text) if text.isspace() else super().readable_in_text(piece, is_continuation)

    def candidate_pieces(self, token: str) -> tuple[str, ...]:
        r"""Return the candidates of `Unigrams`, and then those with each `\xNN` of the token as a byte of its text."""
        candidates = super().candidate_pieces(token)
        if "\\x" not in token:
            return candidates
        text = _read_escapes(token).decode("utf-8", "replace")
        return (*candidates, self.piece(text), self.piece(" " + text))


class Tweets(Unigrams):
    """Notation of BERTweet's vocabulary: the last piece of a word ends in `</w>`.

    The readable notation of a single piece with a continuation ends in `@@`, as in BERTweet's own file.
    """

    def text(self, piece: str) -> str:
        """Return the text that a piece stands for."""
        return piece.removesuffix("</w>")

    def readable(self, piece: str) -> str:
        """Return a piece in the readable notation."""
        return self.text(piece) if piece.endswith("</w>") else piece + CONTINUATION_SUFFIX

    def candidate_pieces(self, token: str) -> tuple[str, ...]:
        """Return the pieces that a readable token can stand for, as in `Spelling`."""
        bare = token.removeprefix(CONTINUATION_PREFIX) if len(token) > len(CONTINUATION_PREFIX) else token
        has_suffix = bare.endswith(CONTINUATION_SUFFIX) and bare != CONTINUATION_SUFFIX
        without_suffix = (bare.removesuffix(CONTINUATION_SUFFIX),) if has_suffix else ()
        return (*without_suffix, bare + "</w>", bare)


class WordEnds(Tweets):
    """Notation of character-pair vocabularies with `</w>`, for text that is split into words first."""

    has_library_words = True


def _make_visible(text: str) -> str:
    """Replace spaces and unprintable characters by visible ones."""
    return "".join(
        VISIBLE_SPACE
        if character == " "
        else character
        if character.isprintable()
        else "".join(f"\\x{n:02x}" for n in character.encode())
        for character in text
    )


def _read_escapes(token: str) -> bytes:
    r"""Return the bytes of a readable token, in which `\xNN` stands for one byte."""
    text = token.removeprefix(CONTINUATION_PREFIX).replace(VISIBLE_SPACE, " ").encode("utf-8", "replace")
    return re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), text)


def _byte_characters() -> dict[int, str]:
    """Return the character for each byte: its Latin-1 character if that is printable, otherwise one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    replacements = count(256)
    return {number: chr(number if number in printable else next(replacements)) for number in range(256)}


_PARTIAL_BYTES = frozenset(BYTE_PIECES[0x80:])  # those of characters of several bytes
_CHARACTER_OF_BYTE = _byte_characters()
_BYTE_OF_CHARACTER = {character: number for number, character in _CHARACTER_OF_BYTE.items()}
