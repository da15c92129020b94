"""Tokenizers whose pieces and merges are files of their own, `vocab.json` or `vocab.txt`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, pre_tokenizers
from tokenizers.models import BPE

from bert_core.config import MAX_JSON_BYTES, read_json_object, read_text
from bert_core.refused import Refused, short_repr
from bert_core.spelling import CONTINUATION_SUFFIX

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")  # in the order of their numbers, where a file leaves them out
MASK_TOKEN = "<mask>"
MAX_PIECES = 1_000_000  # twice the largest published vocabulary
BYTE_FILES = ("vocab.json", "merges.txt")
TWEET_FILES = ("vocab.txt", "bpe.codes")
WORD_END_SUFFIX = "</w>"  # behind the last piece of a word, as merges write it
# Python's spaces, at which words of tweets are parted; a line's end belongs to the word before it.
TWEET_WORD_PATTERN = "[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+\n?"


def read_byte_pairs(folder: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A RoBERTa's `vocab.json` and `merges.txt`: the number of each piece, and the merges in their order.

    Raises Refused where a file is broken, or the two do not belong together.
    """
    pieces: dict[str, int] = read_json_object(folder / BYTE_FILES[0])
    numbers = list(pieces.values())
    if not all(type(number) is int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
        raise Refused(f"{BYTE_FILES[0]} must give every piece a number, from 0 on, each once")
    _check_count(BYTE_FILES[0], len(pieces))
    lines = _lines(folder / BYTE_FILES[1])
    merges = _pairs(BYTE_FILES[1], (line for line in lines if not line.startswith("#version")))
    for one, other in merges:
        if lacking := [piece for piece in (one, other, one + other) if piece not in pieces]:
            raise Refused(
                f"{BYTE_FILES[1]} puts {short_repr(one)} and {short_repr(other)} together, and {BYTE_FILES[0]} has no "
                f"{short_repr(lacking[0])}: they do not belong together"
            )
    return pieces, merges


def read_tweet_pieces(
    folder: Path, settings: Mapping[str, Any]
) -> tuple[tokenizers.Tokenizer, tuple[int, ...], dict[str, str]]:
    """Of a BERTweet's `vocab.txt` and `bpe.codes`: pieces of words, `@@` behind those that a word goes on after.

    Returns the library's tokenizer, the number in the vocabulary of each of its pieces, and the texts of both files by
    their names, which the library's own file cannot say.

    Codes without counts, as transformers 5 writes them, are given some: it takes the last part of a line as one.

    What merges make on the way need not be in the vocabulary: left as it is, it is the unknown piece. The library
    numbers it behind the vocabulary.
    Source: Nguyen 2020 (arXiv:2005.10200).
    Raises Refused where a file is broken, the two do not belong together, or texts are to be rewritten first.
    """
    if settings.get("normalization"):
        raise Refused(
            "its tokenizer_config.json wants each tweet rewritten first, which is not done here: set its normalization "
            "to false, and give texts as it was trained on, with @USER and HTTPURL"
        )
    vocabulary, codes = (read_text(folder / name, MAX_JSON_BYTES) for name in TWEET_FILES)
    codes = "".join(f"{line} 0\n" if line.count(" ") == 1 else f"{line}\n" for line in _without_end(codes))
    given = list(SPECIAL_TOKENS)
    for line in _without_end(vocabulary):
        piece, space, _ = line.strip().rpartition(" ")
        if not space:
            raise Refused(f"{TWEET_FILES[0]} has the line {short_repr(line)}: beside {TWEET_FILES[1]} it must be of a piece "
                          "and its count")  # fmt: skip
        given.append(piece)
    known = {piece: number for number, piece in enumerate(given)}
    if len(known) < len(given):
        raise Refused(f"{TWEET_FILES[0]} has {len(given):,} pieces, {len(known):,} of them different: each must be "
                      "there once")  # fmt: skip
    known.setdefault(MASK_TOKEN, len(known))
    _check_count(TWEET_FILES[0], len(known))
    merges = _pairs(TWEET_FILES[1], _without_end(codes))
    pieces = {
        piece if piece in (*SPECIAL_TOKENS, MASK_TOKEN) else _of_library(piece): number
        for piece, number in known.items()
    }
    numbers = list(range(len(known)))
    reached: set[int] = set()
    for one, other in merges:
        for piece in (one, other, one + other):
            if piece not in pieces:
                pieces[piece] = len(numbers)
                numbers.append(known.get(_of_vocabulary(piece), known["<unk>"]))
        reached.add(numbers[pieces[one + other]])
    longer = [number for piece, number in known.items()
              if number >= len(SPECIAL_TOKENS) and piece != MASK_TOKEN and len(piece.removesuffix(CONTINUATION_SUFFIX)) > 1]  # fmt: skip
    made = sum(number in reached for number in longer)
    if made * 2 < len(longer):
        raise Refused(
            f"{TWEET_FILES[1]} makes {made:,} of the {len(longer):,} longer pieces of {TWEET_FILES[0]}: they do not "
            "belong together"
        )
    backend = tokenizers.Tokenizer(
        BPE(pieces, merges, unk_token="<unk>", end_of_word_suffix=WORD_END_SUFFIX, fuse_unk=False)
    )
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(TWEET_WORD_PATTERN), "removed", invert=True)
    backend.decoder = decoders.BPEDecoder(WORD_END_SUFFIX)
    _add_special(backend, pieces)
    return backend, tuple(numbers), dict(zip(TWEET_FILES, (vocabulary, codes), strict=True))


def _add_special(backend: tokenizers.Tokenizer, pieces: Mapping[str, int]) -> None:
    """Make the special tokens whole, wherever they are typed; those that are lacking are no news here."""
    there = [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS if token in pieces]
    if MASK_TOKEN in pieces:
        there.append(AddedToken(MASK_TOKEN, lstrip=True, special=True, normalized=False))
    backend.add_special_tokens(there)


def _of_library(piece: str) -> str:
    """A piece of a tweets' vocabulary as merges write it."""
    return (
        piece.removesuffix(CONTINUATION_SUFFIX)
        if piece.endswith(CONTINUATION_SUFFIX) and piece != CONTINUATION_SUFFIX
        else piece + WORD_END_SUFFIX
    )


def _of_vocabulary(piece: str) -> str:
    """A piece as merges write it as a tweets' vocabulary does."""
    return piece.removesuffix(WORD_END_SUFFIX) if piece.endswith(WORD_END_SUFFIX) else piece + CONTINUATION_SUFFIX


def _lines(path: Path) -> list[str]:
    return _without_end(read_text(path, MAX_JSON_BYTES))


def _without_end(text: str) -> list[str]:
    """The lines of a text, without an empty one at its end."""
    return text.removesuffix("\n").split("\n") if text else []


def _pairs(name: str, lines: Iterable[str]) -> list[tuple[str, str]]:
    """The merges of a file, the first to be done first; behind one its count may stand."""
    merges = []
    for line in lines:
        one, other, *rest = [*line.split(" "), "", ""]
        if not one or not other or len(rest) > 3 or not all(part.isdecimal() for part in rest[:-2]):
            raise Refused(f"{name} has the line {short_repr(line)}: it must be of two pieces, and their count at most")
        merges.append((one, other))
    _check_count(name, len(merges))
    return merges


def _check_count(name: str, count: int) -> None:
    if count > MAX_PIECES:
        raise Refused(f"{name} has {count:,} lines: at most {MAX_PIECES:,} are read")
