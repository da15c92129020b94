"""Tokenization of one text or a pair of texts for a BERT, and the reverse."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tokenizers
from tokenizers import normalizers
from tokenizers.models import BPE, Unigram, WordPiece

from bert_core.config import BertConfig
from bert_core.deprecation import RenamedAttribute
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.spelling import (
    CONTINUATION_PREFIX,
    CONTINUATION_SUFFIX,
    VISIBLE_SPACE,
    ByteFallback,
    Bytes,
    Spelling,
    Tweets,
    Unigrams,
    WordEnds,
)
from bert_core.tokenizer_files import TOKENIZER_FILES as TOKENIZER_FILES
from bert_core.tokenizer_files import TokenizerFiles, UnsupportedTokenizer, read_files
from bert_core.unknown_tokens import current_counts

MASK, UNKNOWN, CLS, SEP, PAD = "[MASK]", "[UNK]", "[CLS]", "[SEP]", "[PAD]"
Side = Literal["A", "B"]
TokenRole = Literal["first", "between", "end", "mask", "pad", "unknown"]
SPECIAL_TOKENS = (PAD, UNKNOWN, CLS, SEP, MASK)
SPELLINGS: Mapping[type, type[Spelling]] = {WordPiece: Spelling, BPE: Bytes, Unigram: Unigrams}


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a family of models, by their role; the defaults are those of BERT.

    first, end: tokens before the first text and after the last one, BERT's [CLS] and [SEP].
    separators: tokens between two texts.
    mask, pad, unknown: tokens for masked positions, padding and text outside the vocabulary.
    segment: segment number of the second text; 0 for a family with a single segment.
    """

    first: str = CLS
    separators: tuple[str, ...] = (SEP,)
    end: str = SEP
    mask: str = MASK
    pad: str = PAD
    unknown: str = UNKNOWN
    segment: int = 1

    @cached_property
    def roles(self) -> Mapping[str, TokenRole]:
        """Role of each special token in a text; "between" for one that is both a separator and the end."""
        roles: dict[str, TokenRole] = {self.pad: "pad", self.unknown: "unknown", self.first: "first", self.end: "end"}
        return {**roles, **dict.fromkeys(self.separators, "between"), self.mask: "mask"}

    def substitute_in(self, sentence: str, write: Callable[[str], str] = str) -> str:
        """Return a sentence about BERT's special tokens with these special tokens in their place.

        write: returns the notation of a token for the sentence, for example with escaped characters.
        """
        replacements = {CLS: self.first, SEP: self.end, MASK: self.mask, PAD: self.pad, UNKNOWN: self.unknown}
        for bert_token, token in replacements.items():
            sentence = sentence if bert_token == token else sentence.replace(bert_token, write(token))
        return sentence


BERT_SPECIAL_TOKENS = SpecialTokens()
ROBERTA_SPECIAL_TOKENS = SpecialTokens("<s>", ("</s>", "</s>"), "</s>", "<mask>", "<pad>", "<unk>", segment=0)
ALBERT_SPECIAL_TOKENS = SpecialTokens(pad="<pad>", unknown="<unk>")
GEMMA_SPECIAL_TOKENS = SpecialTokens("<bos>", ("<eos>",), "<eos>", "<mask>", "<pad>", "<unk>", segment=0)
SPECIAL_TOKEN_FAMILIES = (BERT_SPECIAL_TOKENS, ROBERTA_SPECIAL_TOKENS, ALBERT_SPECIAL_TOKENS, GEMMA_SPECIAL_TOKENS)


@dataclass(frozen=True)
class Encoding:
    """The tokens of one text or a pair of texts; every tuple has one entry per token.

    text, pair: the texts as entered; pair is None for a single text.
    tokens: the tokens in the readable notation of `spelling`.
    input_ids, token_type_ids: numbers of the tokens, and of their segments (0 for text A, 1 for text B).
    offsets: (start, end) character positions of each token in its own text; (0, 0) for added special tokens.
    words: number of each token's word, counted through both texts; None for added special tokens.
    sides: "A" or "B", the text of each token; None for added special tokens.
    full_length: number of tokens before truncation.
    special_tokens: special tokens of the tokenizer.

    >>> import bert_core
    >>> encoding = bert_core.load("headlight-mini").tokenizer.encode("She opened the [MASK].", "It was cold.")
    >>> encoding.mask_positions, encoding.word_count, len(encoding)
    ((4,), 9, 12)
    >>> encoding.word_text(1), encoding.pieces_of(1)
    ('opened', (2,))
    """

    text: str
    pair: str | None
    tokens: tuple[str, ...]
    input_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    words: tuple[int | None, ...]
    sides: tuple[Side | None, ...]
    full_length: int
    special_tokens: SpecialTokens = BERT_SPECIAL_TOKENS

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def truncated_count(self) -> int:
        """Number of tokens that were removed by truncation."""
        return self.full_length - len(self)

    @cached_property
    def special(self) -> tuple[bool, ...]:
        """Whether each token is a special token that the tokenizer added, such as [CLS] and [SEP]."""
        return tuple(side is None for side in self.sides)

    @cached_property
    def roles(self) -> tuple[TokenRole | None, ...]:
        """Role of each special token, added or part of a text; None for every other token.

        The roles are "first", "between", "end", "mask", "pad" and "unknown".
        """
        token_roles, last = self.special_tokens.roles, len(self) - 1
        return tuple(
            "end" if added and position == last and token == self.special_tokens.end else token_roles.get(token)
            for position, (token, added) in enumerate(zip(self.tokens, self.special, strict=True))
        )

    def has_role(self, *roles: TokenRole) -> tuple[bool, ...]:
        """Return whether each token has one of these roles."""
        return tuple(role in roles for role in self.roles)

    @cached_property
    def mask_positions(self) -> tuple[int, ...]:
        """Positions of the mask token, BERT's [MASK]."""
        return tuple(i for i, role in enumerate(self.roles) if role == "mask")

    @property
    def word_count(self) -> int:
        """Number of words in both texts after truncation."""
        return max((word for word in self.words if word is not None), default=-1) + 1

    @property
    def unknown_count(self) -> int:
        """Number of unknown tokens, BERT's [UNK]."""
        return self.roles.count("unknown")

    @property
    def typed_count(self) -> int:
        """Number of tokens without the added special tokens."""
        return len(self) - sum(self.special)

    @property
    def mostly_unknown(self) -> bool:
        """Whether more than half of the tokens are unknown, so that a model's predictions mean little."""
        return self.unknown_count * 2 > self.typed_count

    def masked_piece(self, position: int) -> str | None:
        """Return the original token at a masked position, with `##` if it continues a word.

        Returns None if the position is not masked, or the text itself has a mask token there.
        Raises Refused if the position does not exist.
        """
        if not 0 <= require_int("a position", position, None) < len(self):
            raise Refused(f"position {position} does not exist: this text has positions 0 to {len(self) - 1}")
        side = self.sides[position]
        if self.roles[position] != "mask" or side is None:
            return None
        (start, end), source = self.offsets[position], self.text if side == "A" else self.pair or ""
        original = source[start:end].strip()
        return (
            None
            if original in ("", MASK, self.special_tokens.mask)
            else (CONTINUATION_PREFIX if self._is_continuation(position) else "") + original
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Tokens for display; a masked one has its original token, such as "door (masked)"."""
        masked = [self.masked_piece(position) for position in range(len(self))]
        return tuple(t if m is None else f"{m} (masked)" for t, m in zip(self.tokens, masked, strict=True))

    def _is_continuation(self, position: int) -> bool:
        """Return whether the token at a position continues the word of the previous token."""
        word = self.words[position]
        return word is not None and position > 0 and self.words[position - 1] == word

    @validate_arguments
    def pieces_of(self, word: int) -> tuple[int, ...]:
        """Return the positions of the tokens of a word. word: its number, as in `words`."""
        return self._positions_by_word.get(word, ())

    @cached_property
    def _positions_by_word(self) -> Mapping[int | None, tuple[int, ...]]:
        """Positions of the tokens of each word, and of the added special tokens by None."""
        positions: dict[int | None, list[int]] = {}
        for position, word in enumerate(self.words):
            positions.setdefault(word, []).append(position)
        return {word: tuple(places) for word, places in positions.items()}

    @validate_arguments
    def word_text(self, word: int) -> str:
        """Return the text of a word by its number. Raises Refused if the word does not exist."""
        pieces = self.pieces_of(word)
        if not pieces:
            raise Refused(f"word {word} does not exist in this text: it has words 0 to {self.word_count - 1}")
        source = self.text if self.sides[pieces[0]] == "A" else self.pair or ""
        return source[self.offsets[pieces[0]][0] : self.offsets[pieces[-1]][1]].strip()

    duties = RenamedAttribute("roles")
    with_duty = RenamedAttribute("has_role")
    hidden_piece = RenamedAttribute("masked_piece")
    cut = RenamedAttribute("truncated_count")


class Tokenizer:
    """A tokenizer with a WordPiece, byte-level BPE or SentencePiece vocabulary, which may have byte fallback.

    spelling: translates the vocabulary's notation of tokens to the readable one.
    special_tokens: the vocabulary's special tokens.
    first_id, end_id, mask_id, pad_id, unknown_id: numbers of the special tokens.
    segments: number of segments that it distinguishes.
    max_length: maximum number of tokens of an `Encoding`, by default: the limit of the model to which the tokenizer is
        fitted, and 512 before that.
    notes: statements of the files that are not used, one sentence each.

    >>> import bert_core
    >>> tokenizer = bert_core.load("headlight-mini").tokenizer
    >>> tokenizer.has_token("door"), tokenizer.token_of(tokenizer.mask_id)
    (True, '[MASK]')
    >>> tokenizer.decode(tokenizer.encode("She opened the door.").input_ids)
    'she opened the door.'
    """

    def __init__(self, backend: tokenizers.Tokenizer, source: TokenizerFiles | None = None) -> None:
        """Create a tokenizer from one of the tokenizers library. source: its files; None if there are none."""
        source = TokenizerFiles(backend) if source is None else source
        self.backend = backend
        self.notes = source.notes
        self._numbers, self._files = source.numbers, source.files
        self.spelling = Tweets() if self._files else _find_spelling(backend.model)()
        self._size = max(self._numbers, default=-1) + 1 or int(backend.get_vocab_size())
        self._rows, self._one_segment = self._size, False
        self.max_length = BertConfig.max_position_embeddings
        self.backend.no_padding()
        self.backend.no_truncation()
        vocabulary = backend.get_vocab()
        special_tokens = _find_special_tokens(vocabulary, source.special_tokens)
        self.first_id, self.end_id, self.mask_id, self.pad_id, self.unknown_id = (
            vocabulary[token]
            for token in (
                special_tokens.first,
                special_tokens.end,
                special_tokens.mask,
                special_tokens.pad,
                special_tokens.unknown,
            )
        )
        self.special_tokens, self.segments = self._inspect_post_processor(special_tokens)
        self._special = {vocabulary[token]: token for token in self.special_tokens.roles if token in vocabulary}
        self._added = {
            number: token.content for number, token in backend.get_added_tokens_decoder().items()
            if number not in self._special and not self.spelling.is_added_space(token.content)
        }  # fmt: skip
        self._added_numbers = {token: number for number, token in self._added.items()}

    def _inspect_post_processor(self, special_tokens: SpecialTokens) -> tuple[SpecialTokens, int]:
        """Return the special tokens with the separators that the post-processor inserts, and the number of segments.

        Raises Refused if the post-processor omits, repeats or reorders texts, or inserts a token that is not in the
        vocabulary.
        """
        mask = special_tokens.mask
        single, double = self.backend.encode(mask), self.backend.encode(mask, mask)
        for encoded, texts in ((single, [0]), (double, [0, 1])):
            sides = [side for side in encoded.sequence_ids if side is not None]
            if [side for index, side in enumerate(sides) if index == 0 or sides[index - 1] != side] != texts:
                raise Refused("its post_processor must have each text once, and the first one first")
            if max(self._vocabulary_numbers(encoded)) >= len(self):
                raise Refused(
                    f"its post_processor inserts a token that is not among the {len(self):,} of the vocabulary"
                )
        side_ids = double.sequence_ids
        first_end, second_start = len(side_ids) - side_ids[::-1].index(0), side_ids.index(1)
        special = {token.content for token in self.backend.get_added_tokens_decoder().values() if token.special}
        separators = tuple(
            token
            for token in double.tokens[first_end:second_start]
            if token in special or token in (special_tokens.first, special_tokens.end)
        )
        segment = double.type_ids[second_start]
        segments = max((*single.type_ids, *double.type_ids)) + 1
        separators = separators or (special_tokens.end,)
        return dataclasses.replace(special_tokens, separators=separators, segment=segment), segments

    @classmethod
    @validate_arguments
    def from_folder(cls, folder: str | Path) -> Tokenizer:
        """Load the tokenizer of a checkpoint folder.

        It is read from `tokenizer.json` or, in older folders, from `vocab.txt`, `vocab.txt` and `bpe.codes` of a
        BERTweet, or `vocab.json` and `merges.txt`. Each is combined with `tokenizer_config.json`,
        `special_tokens_map.json` and `added_tokens.json`, if they exist. If files contradict each other, the one that
        transformers 5 uses takes precedence (`read_files`).
        Raises Refused if there is no such file, one is invalid, or the tokenizer is of an unsupported kind.
        """
        folder = Path(folder)
        try:
            source = read_files(folder)
            return cls(source.backend, source)
        except UnsupportedTokenizer:
            raise
        except BaseException as error:  # the Rust library raises Exception, and a BaseException if it panics
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise Refused(f"the tokenizer files in {folder} are broken: {reason}") from error

    def save(self, folder: str | Path, *, segments: bool = True) -> None:
        """Write files that `from_folder` and transformers' AutoTokenizer read.

        segments: whether the model has segment embeddings.
        """
        if self._files:
            settings = {"tokenizer_class": "BertweetTokenizer", "normalization": False}
            for name, text in {**self._files, "tokenizer_config.json": json.dumps(settings, indent=2) + "\n"}.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            return
        special = self.special_tokens
        names = {
            "pad_token": special.pad,
            "unk_token": special.unknown,
            "cls_token": special.first,
            "sep_token": special.end,
            "mask_token": special.mask,
        }
        inputs = ["input_ids", *["token_type_ids"] * segments, "attention_mask"]
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs, **names}
        self.backend.save(str(Path(folder) / "tokenizer.json"))
        text = json.dumps(settings, indent=2) + "\n"
        (Path(folder) / "tokenizer_config.json").write_text(text, encoding="utf-8")

    def rules(self) -> dict[str, Any]:
        """Return everything that determines the tokens of a text, as JSON values; saving does not change it.

        Settings for decoding, truncation and padding are not included.
        """
        content = json.loads(self.backend.to_str())
        parts = ("model", "normalizer", "pre_tokenizer", "post_processor", "added_tokens")
        special = self.special_tokens
        return {
            **{part: content[part] for part in parts},
            "spelling": type(self.spelling).__name__,
            "special_tokens": [
                special.first,
                *special.separators,
                special.end,
                special.mask,
                special.pad,
                special.unknown,
                special.segment,
            ],
            "numbers": list(self._numbers),
        }

    def __len__(self) -> int:
        """Return the size of the vocabulary, including added tokens."""
        return self._size

    def check_against(self, config: BertConfig) -> None:
        """Raise Refused unless the model's embedding tables have a row for every token and segment.

        Unused rows are accepted, and so is a single segment, which both texts then share.
        """
        if len(self) > config.vocab_size:
            raise Refused(
                f"the tokenizer has {len(self)} tokens but the model {config.vocab_size}: they do not belong together"
            )
        if config.type_vocab_size > 1 and self.segments > config.type_vocab_size:
            raise Refused(
                f"the tokenizer reads texts in {self.segments} segments but the model has {config.type_vocab_size}: "
                "they do not belong together"
            )

    def fit(self, config: BertConfig) -> None:
        """Adapt the tokenizer to a model's number of segments, positions and rows in its embedding table.

        Raises Refused as `check_against` does.
        """
        self.check_against(config)
        if config.type_vocab_size == 1:
            self._one_segment = True
            self.special_tokens = dataclasses.replace(self.special_tokens, segment=0)
        self.max_length = config.max_position_embeddings
        self._rows = config.vocab_size
        if spare := self._rows - len(self):
            self.notes = (
                *self.notes,
                f"the embedding table has {self._rows:,} rows and the tokenizer {len(self):,} tokens: {spare:,} rows "
                "belong to no token",
            )

    @validate_arguments
    def encode(self, text: str, pair: str | None = None, *, max_length: int | None = None) -> Encoding:
        """Encode `[CLS] text [SEP]` or `[CLS] text [SEP] pair [SEP]`, with the special tokens of the model's family.

        text, pair: texts, in which [MASK] stands for the mask token of any family. An empty pair counts as None.
        max_length: maximum number of tokens; None: that of the model (`Tokenizer.max_length`). The longer text is
            truncated at its end first.
        Raises Refused if a text is empty or has no readable character, or if there is a pair without a text. A
        max_length without room for a token of each text is also refused.

        >>> import bert_core
        >>> tokenizer = bert_core.load("headlight-mini").tokenizer
        >>> tokenizer.encode("Headlights shine.").tokens
        ('[CLS]', 'headlights', 'shine', '.', '[SEP]')
        """
        max_length = self.max_length if max_length is None else max_length
        pair = pair if pair is not None and pair.strip() else None
        if not text.strip():
            raise Refused(
                "there is no text: type at least one word"
                if pair is None
                else "there is a second sentence but no first one: type the first, or move the second up"
            )
        try:
            f"{text}{pair}".encode()
        except UnicodeEncodeError as error:
            raise Refused("the text contains a broken character: type it again") from error
        first, second = self._insert_mask(text), None if pair is None else self._insert_mask(pair)
        encoded = self.backend.encode(first.text, None if second is None else second.text)
        sides = encoded.sequence_ids
        lengths = sides.count(0), sides.count(1)
        for name, source, length in (("text", text, lengths[0]), ("second sentence", pair, lengths[1])):
            if source is not None and not length:
                raise Refused(f"the {name} {source!r:.40} contains no readable character: type at least one word")
        full_length, text_count = len(sides), 1 if second is None else 2
        special_count = full_length - sum(lengths)
        room = max_length - special_count
        if room < text_count:
            raise Refused(
                f"max_length {max_length} leaves no room for a token of each text: it must be at least "
                f"{special_count + text_count}"
            )
        kept_lengths = _truncated_lengths(room, *lengths)
        # An attribute of the library's encoding is a new list at every access, so each is read once.
        tokens = _LibraryTokens(
            encoded.tokens,
            self._vocabulary_numbers(encoded),
            encoded.type_ids,
            encoded.offsets,
            encoded.word_ids,
        )
        if self._one_segment:
            tokens = tokens._replace(segments=[0] * full_length)
        rows: list[tuple[str, int, int, tuple[int, int], int | None, Side | None]] = []
        word_count = position = 0
        letters: tuple[Side, Side] = ("A", "B")
        for number, entered in enumerate((first, second)):
            if entered is not None:
                start = sides.index(number)
                text_tokens = tokens.part(start, start + kept_lengths[number])
                rows += self._added_rows(tokens.part(position, start))
                rows += self._text_rows(text_tokens, entered, letters[number], word_count)
                word_count = 1 + max(row[4] or 0 for row in rows)
                position = start + lengths[number]
        rows += self._added_rows(tokens.part(position, full_length))
        readable_tokens, ids, segments, offsets, words, text_sides = zip(*rows, strict=True)
        encoding = Encoding(
            text, pair, readable_tokens, ids, segments, offsets, words, text_sides, full_length, self.special_tokens
        )
        if (counts := current_counts()) is not None:
            counts.add(encoding.typed_count, encoding.unknown_count, text)
        return encoding

    def _added_rows(self, tokens: _LibraryTokens) -> list[_Row]:
        """Return the entries of an `Encoding` for added special tokens."""
        return [
            (self._special.get(number, token), number, segment, (0, 0), None, None)
            for token, number, segment in zip(tokens.tokens, tokens.numbers, tokens.segments, strict=True)
        ]

    def _text_rows(self, tokens: _LibraryTokens, entered: _EnteredText, side: Side, word_count: int) -> list[_Row]:
        """Return the entries of an `Encoding` for the tokens of one text.

        word_count: number of words in the previous text.
        """
        source, positions = entered.source, entered.positions
        spans = [(positions[start], positions[end]) for start, end in tokens.offsets]
        for index, number in enumerate(tokens.numbers):
            if number == self.mask_id or self.spelling.strips_spaces:
                spans[index] = _strip_span(source, *spans[index])
        words, readable_tokens = self._word_groups(tokens, spans, source), list[str]()
        part_number = 0  # of a piece among those of its character, from 1
        for index, (piece, number) in enumerate(zip(tokens.tokens, tokens.numbers, strict=True)):
            is_continuation = index > 0 and words[index] == words[index - 1] and readable_tokens[-1] != VISIBLE_SPACE
            start, end = spans[index]
            if not self._is_whole(number) and self.spelling.is_partial_character(piece):
                part_number = part_number + 1 if part_number and spans[index - 1][1] > start else 1
                readable_tokens.append(self.spelling.readable_part(source[start:end], part_number, is_continuation))
                continue
            part_number = 0
            readable_tokens.append(self._readable_in_text(piece, number, is_continuation))
        rows = zip(readable_tokens, tokens.numbers, tokens.segments, spans, words, strict=True)
        return [(token, number, segment, span, word_count + word, side) for token, number, segment, span, word in rows]

    def _insert_mask(self, source: str) -> _EnteredText:
        """Replace [MASK] in a text by the model's own mask token."""
        mask = self.special_tokens.mask
        if mask == MASK or MASK not in source:
            return _EnteredText(source, source, range(len(source) + 1))
        positions, position = list[int](), 0
        parts = source.split(MASK)
        for number, part in enumerate(parts):
            if number:
                positions += [position] * len(mask)
                position += len(MASK)
            positions += range(position, position + len(part))
            position += len(part)
        return _EnteredText(source, mask.join(parts), (*positions, position))

    def _vocabulary_numbers(self, encoded: tokenizers.Encoding) -> Sequence[int]:
        """Return the numbers in the vocabulary of the library's tokens."""
        return [self._numbers[number] for number in encoded.ids] if self._numbers else encoded.ids

    def _word_groups(self, tokens: _LibraryTokens, spans: Sequence[tuple[int, int]], source: str) -> list[int]:
        """Return the number of the word of each token.

        Adjacent tokens without a space, punctuation mark or symbol between them form one word.
        """
        groups: list[int] = []
        previous_end, previous_token = 0, ""
        rows = zip(tokens.tokens, tokens.numbers, tokens.words, spans, strict=True)
        previous_word: int | None = None  # of the library
        for piece, number, word, (start, end) in rows:
            is_separate = self._is_whole(number) and number != self.unknown_id
            if self.spelling.has_library_words:
                is_continuation = word == previous_word
            elif is_separate or start > previous_end or not source[start:end].strip():
                is_continuation = False
            else:
                is_boundary = start == previous_end and any(
                    map(self.spelling.is_separate_word, source[start - 1 : start + 1])
                )
                follows_whole = previous_token in self.special_tokens.roles or previous_token in self._added_numbers
                is_continuation = previous_token == VISIBLE_SPACE or (not follows_whole and not is_boundary)
            groups.append(groups[-1] if is_continuation and groups else (groups[-1] + 1 if groups else 0))
            previous_end, previous_word = max(previous_end, end), word
            previous_token = self._readable_in_text(piece, number, is_continuation=False)
        return groups

    def _readable_in_text(self, piece: str, number: int, is_continuation: bool) -> str:
        """Return a token of a text in the readable notation, unless it would look like a special token."""
        if self._is_whole(number):
            return self._special.get(number) or self._added[number]
        token = self.spelling.readable_in_text(piece, is_continuation)
        return piece if token in self.special_tokens.roles else token

    def _is_whole(self, number: int) -> bool:
        """Return whether a token is a special or an added token, which is not part of a word."""
        return number in self._special or number in self._added

    @validate_arguments
    def mask_words(self, encoding: Encoding, words: Iterable[int]) -> Encoding:
        """Return a copy of an encoding in which every token of some words is masked; the offsets are unchanged.

        words: numbers of words, as in `Encoding.words`.
        Raises Refused if a word does not exist.

        >>> import bert_core
        >>> tokenizer = bert_core.load("headlight-mini").tokenizer
        >>> tokenizer.mask_words(tokenizer.encode("She opened the door."), [3]).tokens
        ('[CLS]', 'she', 'opened', 'the', '[MASK]', '.', '[SEP]')
        """
        selected = frozenset(
            require_int("a word", word, None) for word in require_sequence("words", words, "their numbers")
        )
        missing = selected - {word for word in encoding.words if word is not None}
        if missing:
            raise Refused(
                f"word {min(missing)} does not exist in this text: it has words 0 to {encoding.word_count - 1}"
            )
        masked = [word in selected for word in encoding.words]
        return dataclasses.replace(
            encoding,
            tokens=tuple(
                self.special_tokens.mask if m else token for m, token in zip(masked, encoding.tokens, strict=True)
            ),
            input_ids=tuple(self.mask_id if m else i for m, i in zip(masked, encoding.input_ids, strict=True)),
        )

    def read_lower_case(self) -> None:
        """Convert every text to lower case from now on, whatever the tokenizer's files state."""
        normalizer = self.backend.normalizer
        if normalizer is None or normalizer.normalize_str("A") != "a":
            parts = [normalizers.Lowercase(), *([] if normalizer is None else [normalizer])]
            self.backend.normalizer = normalizers.Sequence(parts)

    @validate_arguments
    def id_of(self, token: str) -> int:
        """Return the number of a token, or that of the unknown token if the vocabulary does not contain it."""
        return next(self._numbers_of(token), self.unknown_id)

    @validate_arguments
    def has_token(self, token: str) -> bool:
        """Return whether the vocabulary contains a token."""
        return next(self._numbers_of(token), None) is not None

    def _numbers_of(self, token: str) -> Iterator[int]:
        """Return an iterator over the numbers that a readable token can stand for, the most likely first."""
        if any("\ud800" <= character <= "\udfff" for character in token):  # a surrogate is in no vocabulary
            return iter(())
        is_whole = token in self.special_tokens.roles or token in self._added_numbers
        numbers = map(self.backend.token_to_id, (token,) if is_whole else self.spelling.candidate_pieces(token))
        return (number for number in numbers if number is not None and number < len(self))

    def token_of(self, number: int) -> str:
        """Return the readable token with a number; for an unused row of the embedding table, "row 250,010".

        Raises Refused if the embedding table has no such row.
        """
        number = require_int("a piece", number, 0, self._rows - 1)
        if number >= len(self):
            return f"row {number:,}"
        if self._is_whole(number):
            return self._special.get(number) or self._added[number]
        return self.spelling.readable(str(self.backend.id_to_token(number)))

    def encode_plain(self, texts: Iterable[str]) -> list[np.ndarray]:
        """Return the token numbers of many texts without special tokens, one array (token,) per text.

        The arrays are uint16 if the vocabulary is small enough, otherwise int32.
        Raises Refused if a text is not a str.
        """
        dtype = np.uint16 if len(self) <= 1 << 16 else np.int32
        items = require_sequence("texts", texts, "texts")
        if invalid := [text for text in items if not isinstance(text, str)]:
            raise Refused(f"one of the texts is {short_repr(invalid[0])}: it must be of type str")
        encodings = self.backend.encode_batch_fast(items, add_special_tokens=False)
        numbers = [np.array(self._vocabulary_numbers(encoded), dtype) for encoded in encodings]
        if (counts := current_counts()) is not None:
            unknown_count = sum(int((text_numbers == self.unknown_id).sum()) for text_numbers in numbers)
            counts.add(sum(map(len, numbers)), unknown_count)
        return numbers

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token numbers, without special tokens. Raises Refused if a token does not exist."""
        pieces = require_sequence("ids", ids, "the numbers of pieces")
        return str(self.backend.decode([require_int("a piece", piece, 0, len(self) - 1) for piece in pieces]))

    has = RenamedAttribute("has_token")


def join_pieces(tokens: Iterable[str]) -> str:
    """Return the word that readable tokens form, without a space before it, which some vocabularies include."""
    *leading_tokens, last = [
        token if index == 0 else token.removeprefix(CONTINUATION_PREFIX) for index, token in enumerate(tokens)
    ]
    word = "".join([*(token.removesuffix(CONTINUATION_SUFFIX) or token for token in leading_tokens), last])
    return word.removeprefix(VISIBLE_SPACE) or word


_Row = tuple[str, int, int, tuple[int, int], int | None, Side | None]  # token, number, segment, offsets, word, side


class _EnteredText(NamedTuple):
    """A text as entered, and as encoded with the model's own mask token.

    source: the text as entered. text: the text to encode.
    positions: position in `source` of each character of `text`, and of its end.
    """

    source: str
    text: str
    positions: Sequence[int]


class _LibraryTokens(NamedTuple):
    """The tokens that the tokenizers library returned for one text or a pair; every field has one entry per token."""

    tokens: list[str]
    numbers: Sequence[int]
    segments: list[int]
    offsets: list[tuple[int, int]]
    words: list[int | None]

    def part(self, start: int, end: int) -> _LibraryTokens:
        """Return the tokens from `start` to before `end`."""
        return _LibraryTokens(
            self.tokens[start:end],
            self.numbers[start:end],
            self.segments[start:end],
            self.offsets[start:end],
            self.words[start:end],
        )


def _find_spelling(model: Any) -> type[Spelling]:
    """Return the notation of the vocabulary of a model of the tokenizers library."""
    if isinstance(model, BPE) and (model.end_of_word_suffix or model.byte_fallback):
        return WordEnds if model.end_of_word_suffix else ByteFallback
    return SPELLINGS[type(model)]


def _find_special_tokens(vocabulary: Container[str], named_tokens: Mapping[str, str]) -> SpecialTokens:
    """Return the special tokens of a vocabulary.

    named_tokens: special tokens that the files state, by names such as "cls_token". The others are those of the family
        with the fewest missing tokens.
    Raises Refused if the vocabulary lacks special tokens of every family.
    """
    families = [
        SpecialTokens(
            first=named_tokens.get("cls_token", family.first),
            separators=family.separators,
            end=named_tokens.get("sep_token", family.end),
            mask=named_tokens.get("mask_token", family.mask),
            pad=named_tokens.get("pad_token", family.pad),
            unknown=named_tokens.get("unk_token", family.unknown),
        )
        for family in SPECIAL_TOKEN_FAMILIES
    ]
    required = {
        family: dict.fromkeys((family.pad, family.unknown, family.first, family.end, family.mask))
        for family in families
    }
    missing = {family: [token for token in required[family] if token not in vocabulary] for family in families}
    nearest = min(families, key=lambda family: len(missing[family]))
    if missing[nearest]:
        raise Refused(
            f"the vocabulary has no {', '.join(missing[nearest])}: a BERT's vocabulary has "
            f"{', '.join(required[nearest])}"
        )
    return nearest


def _truncated_lengths(room: int, first: int, second: int) -> tuple[int, int]:
    """Return the numbers of tokens of both texts that fit into `room`; the longer text is truncated first."""
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (shorter, room - shorter) if first <= second else (room - shorter, shorter)


def _strip_span(source: str, start: int, end: int) -> tuple[int, int]:
    """Return a span of a text without spaces at its start, which some vocabularies include in a mask token."""
    stripped_start = end - len(source[start:end].lstrip())
    return (stripped_start, end) if stripped_start < end else (start, end)
