"""Tokenizers whose vocabulary and merges are in separate files, `vocab.json` or `vocab.txt` and a file of merges."""

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

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")  # their numbers are 0 to 3 in vocabularies whose file omits them
MASK_TOKEN = "<mask>"
MAX_PIECES = 1_000_000  # twice the largest published vocabulary
BYTE_FILES = ("vocab.json", "merges.txt")
TWEET_FILES = ("vocab.txt", "bpe.codes")
WORD_END_SUFFIX = "</w>"  # marks the last piece of a word in merges
# Words of tweets are separated by the characters that Python counts as spaces. A line break belongs to its word.
TWEET_WORD_PATTERN = "[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+\n?"


def read_byte_pairs(folder: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Read `vocab.json` and `merges.txt` of a RoBERTa.

    Returns the number of each piece, and the merges in order of priority.
    Raises Refused if a file is invalid, or the two files do not belong together.
    """
    pieces: dict[str, int] = read_json_object(folder / BYTE_FILES[0])
    numbers = list(pieces.values())
    if not all(type(number) is int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
        raise Refused(f"{BYTE_FILES[0]} must give every piece a number, from 0 on, each once")
    _check_count(BYTE_FILES[0], len(pieces))
    lines = _read_lines(folder / BYTE_FILES[1])
    merges = _parse_merges(BYTE_FILES[1], (line for line in lines if not line.startswith("#version")))
    for left, right in merges:
        if missing := [piece for piece in (left, right, left + right) if piece not in pieces]:
            raise Refused(
                f"{BYTE_FILES[1]} merges {short_repr(left)} and {short_repr(right)}, and {BYTE_FILES[0]} has no "
                f"{short_repr(missing[0])}: they do not belong together"
            )
    return pieces, merges


def read_tweet_pieces(
    folder: Path, settings: Mapping[str, Any]
) -> tuple[tokenizers.Tokenizer, tuple[int, ...], dict[str, str]]:
    """Read `vocab.txt` and `bpe.codes` of a BERTweet, which mark pieces that a word continues after with `@@`.

    settings: content of tokenizer_config.json.
    Returns a tokenizer of the tokenizers library, the number in the vocabulary of each of its pieces, and the texts of
    both files by name. The library's own format cannot represent the texts.
    Lines of bpe.codes without a count, as transformers 5 writes them, get one, because transformers takes the last
    part of a line as the count.
    Intermediate results of merges need not be in the vocabulary. They stand for the unknown token, and the library's
    tokenizer numbers them after the vocabulary.
    Raises Refused if a file is invalid, the files do not belong together, or the settings ask for text normalization.
    Source: Nguyen 2020 (arXiv:2005.10200).
    """
    if settings.get("normalization"):
        raise Refused(
            "its tokenizer_config.json asks for normalization of tweets, which is not supported: set its normalization "
            "to false, and enter texts in the form of the training data, with @USER and HTTPURL"
        )
    vocabulary, codes = (read_text(folder / name, MAX_JSON_BYTES) for name in TWEET_FILES)
    codes = "".join(f"{line} 0\n" if line.count(" ") == 1 else f"{line}\n" for line in _split_lines(codes))
    entries = list(SPECIAL_TOKENS)
    for line in _split_lines(vocabulary):
        piece, space, _ = line.strip().rpartition(" ")
        if not space:
            raise Refused(
                f"{TWEET_FILES[0]} has the line {short_repr(line)}: next to {TWEET_FILES[1]} each line must have a "
                "piece and its count"
            )
        entries.append(piece)
    vocabulary_numbers = {piece: number for number, piece in enumerate(entries)}
    if len(vocabulary_numbers) < len(entries):
        raise Refused(
            f"{TWEET_FILES[0]} has {len(entries):,} pieces, {len(vocabulary_numbers):,} of them different: each piece "
            "must occur once"
        )
    vocabulary_numbers.setdefault(MASK_TOKEN, len(vocabulary_numbers))
    _check_count(TWEET_FILES[0], len(vocabulary_numbers))
    merges = _parse_merges(TWEET_FILES[1], _split_lines(codes))
    pieces = {
        piece if piece in (*SPECIAL_TOKENS, MASK_TOKEN) else _to_merge_notation(piece): number
        for piece, number in vocabulary_numbers.items()
    }
    numbers = list(range(len(vocabulary_numbers)))
    merged_numbers: set[int] = set()
    for left, right in merges:
        for piece in (left, right, left + right):
            if piece not in pieces:
                pieces[piece] = len(numbers)
                numbers.append(vocabulary_numbers.get(_to_vocabulary_notation(piece), vocabulary_numbers["<unk>"]))
        merged_numbers.add(numbers[pieces[left + right]])
    long_numbers = [
        number
        for piece, number in vocabulary_numbers.items()
        if number >= len(SPECIAL_TOKENS) and piece != MASK_TOKEN and len(piece.removesuffix(CONTINUATION_SUFFIX)) > 1
    ]
    merged_count = sum(number in merged_numbers for number in long_numbers)
    if merged_count * 2 < len(long_numbers):
        raise Refused(
            f"{TWEET_FILES[1]} produces {merged_count:,} of the {len(long_numbers):,} longer pieces of "
            f"{TWEET_FILES[0]}: they do not belong together"
        )
    model = BPE(pieces, merges, unk_token="<unk>", end_of_word_suffix=WORD_END_SUFFIX, fuse_unk=False)
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(TWEET_WORD_PATTERN), "removed", invert=True)
    backend.decoder = decoders.BPEDecoder(WORD_END_SUFFIX)
    _add_special_tokens(backend, pieces)
    return backend, tuple(numbers), dict(zip(TWEET_FILES, (vocabulary, codes), strict=True))


def _add_special_tokens(backend: tokenizers.Tokenizer, pieces: Mapping[str, int]) -> None:
    """Register the special tokens of the vocabulary, so that the tokenizer does not split them in a text."""
    tokens = [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS if token in pieces]
    if MASK_TOKEN in pieces:
        tokens.append(AddedToken(MASK_TOKEN, lstrip=True, special=True, normalized=False))
    backend.add_special_tokens(tokens)


def _to_merge_notation(piece: str) -> str:
    """Return a piece of BERTweet's vocabulary in the notation of merges, with `</w>` at the end of a word."""
    return (
        piece.removesuffix(CONTINUATION_SUFFIX)
        if piece.endswith(CONTINUATION_SUFFIX) and piece != CONTINUATION_SUFFIX
        else piece + WORD_END_SUFFIX
    )


def _to_vocabulary_notation(piece: str) -> str:
    """Return a piece of the merges in the notation of BERTweet's vocabulary, with `@@` before a continuation."""
    return piece.removesuffix(WORD_END_SUFFIX) if piece.endswith(WORD_END_SUFFIX) else piece + CONTINUATION_SUFFIX


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a file."""
    return _split_lines(read_text(path, MAX_JSON_BYTES))


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text, without an empty line at its end."""
    return text.removesuffix("\n").split("\n") if text else []


def _parse_merges(name: str, lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return the merges in the lines of a file, in order of priority; a count after a merge is ignored."""
    merges = []
    for line in lines:
        left, right, *counts = [*line.split(" "), "", ""]
        if not left or not right or len(counts) > 3 or not all(part.isdecimal() for part in counts[:-2]):
            raise Refused(f"{name} has the line {short_repr(line)}: it must be of two pieces, and their count at most")
        merges.append((left, right))
    _check_count(name, len(merges))
    return merges


def _check_count(name: str, count: int) -> None:
    """Raise Refused if a file has too many lines."""
    if count > MAX_PIECES:
        raise Refused(f"{name} has {count:,} lines: at most {MAX_PIECES:,} are read")
