"""Text, and a second text if there is one, to the tokens a BERT reads, and the way back."""

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
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.spelling import (
    CONTINUATION_PREFIX,
    CONTINUATION_SUFFIX,
    VISIBLE_SPACE,
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
    """How a family of models writes its special tokens, each by its duty; as BERT does, unless said otherwise.

    between: what stands between two texts, one token or several.
    segment: the number of the second text's segment; 0 in a family whose texts are all in one.
    """

    first: str = CLS
    between: tuple[str, ...] = (SEP,)
    end: str = SEP
    mask: str = MASK
    pad: str = PAD
    unknown: str = UNKNOWN
    segment: int = 1

    @cached_property
    def roles(self) -> Mapping[str, TokenRole]:
        """The duty of each spelling, as a typed one has it; where one has two, that between the texts."""
        found: dict[str, TokenRole] = {self.pad: "pad", self.unknown: "unknown", self.first: "first", self.end: "end"}
        return {**found, **dict.fromkeys(self.between, "between"), self.mask: "mask"}

    def substitute_in(self, sentence: str, write: Callable[[str], str] = str) -> str:
        """A sentence about BERT's special tokens with the spellings of these in their places.

        write: makes of a spelling what the sentence is read as.
        """
        own = {CLS: self.first, SEP: self.end, MASK: self.mask, PAD: self.pad, UNKNOWN: self.unknown}
        for name, spelling in own.items():
            sentence = sentence if name == spelling else sentence.replace(name, write(spelling))
        return sentence


BERT_SPECIAL_TOKENS = SpecialTokens()
ROBERTA_SPECIAL_TOKENS = SpecialTokens("<s>", ("</s>", "</s>"), "</s>", "<mask>", "<pad>", "<unk>", segment=0)
ALBERT_SPECIAL_TOKENS = SpecialTokens(pad="<pad>", unknown="<unk>")
SPECIAL_TOKEN_FAMILIES = (BERT_SPECIAL_TOKENS, ROBERTA_SPECIAL_TOKENS, ALBERT_SPECIAL_TOKENS)


@dataclass(frozen=True)
class Encoding:
    """One text, or a pair, as a model reads it; every tuple has one entry a token.

    text, pair: what was typed; pair is None if there is one text.
    input_ids, token_type_ids: word piece numbers; segments (0 in A, 1 in B).
    offsets: character span of each token in its own text; (0, 0) for the added special tokens.
    words: number of the word a piece belongs to, counted through both texts; None for the added special tokens.
    sides: "A", "B", or None for the added special tokens.
    full_length: tokens there would be had nothing been cut.
    special_tokens: how its tokenizer writes them.
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
    def cut(self) -> int:
        """How many tokens did not fit and were left out."""
        return self.full_length - len(self)

    @cached_property
    def special(self) -> tuple[bool, ...]:
        """Whether each token is a special one that was added and not typed, as [CLS] and [SEP]."""
        return tuple(side is None for side in self.sides)

    @cached_property
    def roles(self) -> tuple[TokenRole | None, ...]:
        """What each special token is there for, a typed one too: "first", "between", "end", "mask", "pad" or "unknown".

        None for every other token.
        """
        known, last = self.special_tokens.roles, len(self) - 1
        return tuple(
            "end" if added and position == last and token == self.special_tokens.end else known.get(token)
            for position, (token, added) in enumerate(zip(self.tokens, self.special, strict=True))
        )

    def has_role(self, *duties: TokenRole) -> tuple[bool, ...]:
        """Whether each token has one of these duties."""
        return tuple(duty in duties for duty in self.roles)

    @cached_property
    def mask_positions(self) -> tuple[int, ...]:
        """Positions of the token that hides a word, BERT's [MASK]."""
        return tuple(i for i, duty in enumerate(self.roles) if duty == "mask")

    @property
    def word_count(self) -> int:
        """Number of words in both texts together, as far as they were kept."""
        return max((word for word in self.words if word is not None), default=-1) + 1

    @property
    def unknown_count(self) -> int:
        """How many tokens the vocabulary does not know."""
        return self.roles.count("unknown")

    @property
    def typed_count(self) -> int:
        """How many tokens there are besides the added special ones."""
        return len(self) - sum(self.special)

    @property
    def mostly_unknown(self) -> bool:
        """Whether the vocabulary knows fewer than half of what was typed: what a model says of it then says little."""
        return self.unknown_count * 2 > self.typed_count

    def masked_piece(self, position: int) -> str | None:
        """What was typed where now a mask stands; None where nothing is hidden, or a mask was typed."""
        if not 0 <= require_int("a position", position, None) < len(self):
            raise Refused(f"position {position} does not exist: this text has positions 0 to {len(self) - 1}")
        side = self.sides[position]
        if self.roles[position] != "mask" or side is None:
            return None
        (start, end), source = self.offsets[position], self.text if side == "A" else self.pair or ""
        typed = source[start:end].strip()
        return (
            None
            if typed in ("", MASK, self.special_tokens.mask)
            else (CONTINUATION_PREFIX if self._goes_on(position) else "") + typed
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The tokens as a reader knows them: what is hidden is named, "door, hidden"."""
        typed = [self.masked_piece(position) for position in range(len(self))]
        return tuple(t if h is None else f"{h}, hidden" for t, h in zip(self.tokens, typed, strict=True))

    def _goes_on(self, position: int) -> bool:
        """Whether a piece goes on with the word of the piece before it."""
        word = self.words[position]
        return word is not None and position > 0 and self.words[position - 1] == word

    @validate_arguments
    def pieces_of(self, word: int) -> tuple[int, ...]:
        """Positions of the pieces of a word."""
        return tuple(i for i, w in enumerate(self.words) if w == word)

    @validate_arguments
    def word_text(self, word: int) -> str:
        """A word as it was typed. Raises Refused for one that is not there."""
        pieces = self.pieces_of(word)
        if not pieces:
            raise Refused(f"word {word} does not exist in this text: it has words 0 to {self.word_count - 1}")
        source = self.text if self.sides[pieces[0]] == "A" else self.pair or ""
        return source[self.offsets[pieces[0]][0] : self.offsets[pieces[-1]][1]].strip()


class Tokenizer:
    """Word pieces, byte-level pieces or those of SentencePiece: lower-cased or not, as the checkpoint says.

    spelling: turns what the vocabulary writes into tokens, which are written alike for all. special_tokens: how the
        vocabulary writes these. first_id, end_id, mask_id, pad_id, unknown_id: their numbers.
    """

    def __init__(self, backend: tokenizers.Tokenizer, source: TokenizerFiles | None = None) -> None:
        """source: what the files that the backend was made of say beside it."""
        source = TokenizerFiles(backend) if source is None else source
        self.backend = backend
        self.notes = source.notes
        self._numbers, self._files = source.numbers, source.files
        model = backend.model
        ends = isinstance(model, BPE) and bool(model.end_of_word_suffix)
        self.spelling = Tweets() if self._files else WordEnds() if ends else SPELLINGS[type(model)]()
        self._size = max(self._numbers, default=-1) + 1 or int(backend.get_vocab_size())
        self._rows, self._one_segment = self._size, False
        self.backend.no_padding()
        self.backend.no_truncation()
        vocabulary = backend.get_vocab()
        own = _special_tokens(vocabulary, source.named)
        self.first_id, self.end_id, self.mask_id, self.pad_id, self.unknown_id = (
            vocabulary[token] for token in (own.first, own.end, own.mask, own.pad, own.unknown)
        )
        self.special_tokens, self.segments = self._framed(own)
        self._special = {vocabulary[token]: token for token in self.special_tokens.roles if token in vocabulary}
        self._added = {
            number: token.content for number, token in backend.get_added_tokens_decoder().items()
            if number not in self._special
        }  # fmt: skip
        self._added_numbers = {token: number for number, token in self._added.items()}

    def _framed(self, own: SpecialTokens) -> tuple[SpecialTokens, int]:
        """The special tokens with those that the post-processor sets between two texts, and how many segments it has.

        Raises Refused if it leaves out, repeats or exchanges texts, or sets a token that the vocabulary does not have.
        """
        one, two = self.backend.encode(own.mask), self.backend.encode(own.mask, own.mask)
        for encoded, texts in ((one, [0]), (two, [0, 1])):
            sides = [side for side in encoded.sequence_ids if side is not None]
            if [side for place, side in enumerate(sides) if place == 0 or sides[place - 1] != side] != texts:
                raise Refused("its post_processor must have each text once, and the first one first")
            if max(self._known(encoded)) >= len(self):
                raise Refused(f"its post_processor sets a token that is not among the {len(self):,} of the vocabulary")
        of_two = two.sequence_ids
        first_end, second = len(of_two) - of_two[::-1].index(0), of_two.index(1)
        special = {token.content for token in self.backend.get_added_tokens_decoder().values() if token.special}
        between = tuple(t for t in two.tokens[first_end:second] if t in special or t in (own.first, own.end))
        segment = two.type_ids[second]
        segments = max((*one.type_ids, *two.type_ids)) + 1
        return dataclasses.replace(own, between=between or (own.end,), segment=segment), segments

    @classmethod
    @validate_arguments
    def from_folder(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer of a checkpoint folder: `tokenizer.json`, or what older folders have in its place.

        That is `vocab.txt`, of a BERTweet with `bpe.codes`, or `vocab.json` with `merges.txt`; with each of these
        `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`, where they are there. Where files
        contradict each other, the one counts that counts for transformers 5 (`read_files`).
        Raises Refused if no such file is there, one is broken, or it is none of the kinds that BERTs have.
        """
        folder = Path(folder)
        try:
            source = read_files(folder)
            return cls(source.backend, source)
        except UnsupportedTokenizer:
            raise
        except BaseException as error:  # the Rust library raises bare Exception, and where it panics, no Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise Refused(f"the tokenizer files in {folder} are broken: {reason}") from error

    def save(self, folder: str | Path, *, segments: bool = True) -> None:
        """Write what `from_folder` reads back, and transformers' AutoTokenizer too.

        segments: whether the model takes them.
        """
        if self._files:
            settings = {"tokenizer_class": "BertweetTokenizer", "normalization": False}
            for name, text in {**self._files, "tokenizer_config.json": json.dumps(settings, indent=2) + "\n"}.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            return
        own = self.special_tokens
        names = {"pad": own.pad, "unk": own.unknown, "cls": own.first, "sep": own.end, "mask": own.mask}
        names = {f"{name}_token": token for name, token in names.items()}
        inputs = ["input_ids", *["token_type_ids"] * segments, "attention_mask"]
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs, **names}
        self.backend.save(str(Path(folder) / "tokenizer.json"))
        text = json.dumps(settings, indent=2) + "\n"
        (Path(folder) / "tokenizer_config.json").write_text(text, encoding="utf-8")

    def rules(self) -> dict[str, Any]:
        """All that decides which tokens a text becomes, as JSON has it; the same for what `save` writes.

        What a file says for programs that put tokens together again, cut or pad is left out.
        """
        whole_file = json.loads(self.backend.to_str())
        parts = ("model", "normalizer", "pre_tokenizer", "post_processor", "added_tokens")
        own = self.special_tokens
        return {
            **{part: whole_file[part] for part in parts},
            "spelling": type(self.spelling).__name__,
            "special_tokens": [own.first, *own.between, own.end, own.mask, own.pad, own.unknown, own.segment],
            "numbers": list(self._numbers),
        }

    def __len__(self) -> int:
        """Size of the vocabulary, added tokens included."""
        return self._size

    def check_against(self, config: BertConfig) -> None:
        """Raise Refused unless every token has a row in the model's embedding table, and every segment one in its own.

        A table may have rows that no token has, and a model that has one segment reads both texts in it.
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
        """Read texts as a model of this configuration takes them: in one segment if it has one, with its spare rows.

        Raises Refused as `check_against`.
        """
        self.check_against(config)
        if config.type_vocab_size == 1:
            self._one_segment = True
            self.special_tokens = dataclasses.replace(self.special_tokens, segment=0)
        self._rows = config.vocab_size
        if spare := self._rows - len(self):
            self.notes = (
                *self.notes,
                f"the embedding table has {self._rows:,} rows and the tokenizer {len(self):,} tokens: {spare:,} rows "
                "belong to no token",
            )

    @validate_arguments
    def encode(self, text: str, pair: str | None = None, *, max_length: int = 512) -> Encoding:
        """Tokens of `[CLS] text [SEP]` or `[CLS] text [SEP] pair [SEP]`, the longer text cut from its end to fit.

        Other families have other tokens there; a typed [MASK] is the mask of each.
        Raises Refused if text is empty, only spaces or nothing that can be read, if there is a pair without a
        text, or if max_length has no room for a token of each.
        """
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
        first, second = self._typed(text), None if pair is None else self._typed(pair)
        encoded = self.backend.encode(first.text, None if second is None else second.text)
        sides = encoded.sequence_ids
        lengths = sides.count(0), sides.count(1)
        for name, typed, length in (("text", text, lengths[0]), ("second sentence", pair, lengths[1])):
            if typed is not None and not length:
                raise Refused(f"the {name} {typed!r:.40} contains no readable character: type at least one word")
        full_length, texts = len(sides), 1 if second is None else 2
        frame = full_length - sum(lengths)
        room = max_length - frame
        if room < texts:
            least = frame + texts
            raise Refused(f"max_length {max_length} leaves no room for a token of each text: {least} is the least")
        kept = _share(room, *lengths)
        # Each list of an encoding is built anew when it is asked for.
        read = _Read(encoded.tokens, self._known(encoded), encoded.type_ids, encoded.offsets, encoded.word_ids)
        if self._one_segment:
            read = read._replace(segments=[0] * full_length)
        rows: list[tuple[str, int, int, tuple[int, int], int | None, Side | None]] = []
        words_before = place = 0
        letters: tuple[Side, Side] = ("A", "B")
        for number, source in enumerate((first, second)):
            if source is not None:
                begin = sides.index(number)
                of_text = read.part(begin, begin + kept[number])
                rows += self._added_rows(read.part(place, begin))
                rows += self._text_rows(of_text, source, letters[number], words_before)
                words_before = 1 + max(row[4] or 0 for row in rows)
                place = begin + lengths[number]
        rows += self._added_rows(read.part(place, full_length))
        written, ids, segments, offsets, word_numbers, of_sides = zip(*rows, strict=True)
        encoding = Encoding(
            text, pair, written, ids, segments, offsets, word_numbers, of_sides, full_length, self.special_tokens
        )
        if (count := current_counts()) is not None:
            count.add(encoding.typed_count, encoding.unknown_count, text)
        return encoding

    def _added_rows(self, read: _Read) -> list[_Row]:
        """Special tokens that stand around texts, as `Encoding` has them."""
        return [
            (self._special.get(number, token), number, segment, (0, 0), None, None)
            for token, number, segment in zip(read.tokens, read.numbers, read.segments, strict=True)
        ]

    def _text_rows(self, read: _Read, typed: _Typed, side: Side, words_before: int) -> list[_Row]:
        """The tokens of one text, as `Encoding` has them."""
        source, places = typed.source, typed.places
        spans = [(places[start], places[end]) for start, end in read.offsets]
        for place, number in enumerate(read.numbers):
            if number == self.mask_id:
                spans[place] = _without_space(source, *spans[place])
        words, tokens = self._word_groups(read, spans, source), list[str]()
        nth = 0  # of the pieces of a sign that is in several
        for place, (piece, number) in enumerate(zip(read.tokens, read.numbers, strict=True)):
            goes_on = place > 0 and words[place] == words[place - 1] and tokens[-1] != VISIBLE_SPACE
            start, end = spans[place]
            if not self._is_whole(number) and self.spelling.is_partial_character(piece):
                nth = nth + 1 if nth and spans[place - 1][1] > start else 1
                tokens.append(self.spelling.readable_part(source[start:end], nth, goes_on))
                continue
            nth = 0
            tokens.append(self._shown_in_text(piece, number, goes_on))
        rows = zip(tokens, read.numbers, read.segments, spans, words, strict=True)
        return [
            (token, number, segment, span, words_before + word, side) for token, number, segment, span, word in rows
        ]

    def _typed(self, source: str) -> _Typed:
        """A text, in which a typed [MASK] becomes the model's own mask."""
        own = self.special_tokens.mask
        if own == MASK or MASK not in source:
            return _Typed(source, source, range(len(source) + 1))
        places, at = list[int](), 0
        parts = source.split(MASK)
        for number, part in enumerate(parts):
            if number:
                places += [at] * len(own)
                at += len(MASK)
            places += range(at, at + len(part))
            at += len(part)
        return _Typed(source, own.join(parts), (*places, at))

    def _known(self, encoded: tokenizers.Encoding) -> Sequence[int]:
        """The numbers of pieces in the vocabulary."""
        return [self._numbers[number] for number in encoded.ids] if self._numbers else encoded.ids

    def _word_groups(self, read: _Read, spans: Sequence[tuple[int, int]], typed: str) -> list[int]:
        """Word of each piece: pieces that touch, with no space or sign between, are one word."""
        groups: list[int] = []
        end, before = 0, ""  # of what was read so far; the piece before
        rows = zip(read.tokens, read.numbers, read.words, spans, strict=True)
        of_library: int | None = None
        for piece, number, word, (start, last) in rows:
            alone = self._is_whole(number) and number != self.unknown_id
            if self.spelling.has_library_words:
                continues = word == of_library
            elif alone or start > end or not typed[start:last].strip():
                continues = False
            else:
                apart = start == end and any(map(self.spelling.is_separate_word, typed[start - 1 : start + 1]))
                whole_before = before in self.special_tokens.roles or before in self._added_numbers
                continues = before == VISIBLE_SPACE or (not whole_before and not apart)
            groups.append(groups[-1] if continues and groups else (groups[-1] + 1 if groups else 0))
            end, of_library = max(end, last), word
            before = self._shown_in_text(piece, number, goes_on=False)
        return groups

    def _shown_in_text(self, piece: str, number: int, goes_on: bool) -> str:
        """A piece of a text as it is read; its spelling among the special tokens is theirs alone."""
        if self._is_whole(number):
            return self._special.get(number) or self._added[number]
        found = self.spelling.readable_in_text(piece, goes_on)
        return piece if found in self.special_tokens.roles else found

    def _is_whole(self, number: int) -> bool:
        """Whether a token is read as it stands, a special or an added one: not a piece of a word."""
        return number in self._special or number in self._added

    @validate_arguments
    def mask_words(self, encoding: Encoding, words: Iterable[int]) -> Encoding:
        """The same encoding with a mask in the place of every piece of some words; the offsets still point at the text.

        Raises Refused for a word that is not there.
        """
        chosen = frozenset(
            require_int("a word", word, None) for word in require_sequence("words", words, "their numbers")
        )
        unknown = chosen - {word for word in encoding.words if word is not None}
        if unknown:
            raise Refused(
                f"word {min(unknown)} does not exist in this text: it has words 0 to {encoding.word_count - 1}"
            )
        hidden = [word in chosen for word in encoding.words]
        return dataclasses.replace(
            encoding,
            tokens=tuple(
                self.special_tokens.mask if h else token for h, token in zip(hidden, encoding.tokens, strict=True)
            ),
            input_ids=tuple(self.mask_id if h else i for h, i in zip(hidden, encoding.input_ids, strict=True)),
        )

    def read_lower_case(self) -> None:
        """Read every text in lower case from now on, whatever the vocabulary's own rule."""
        own = self.backend.normalizer
        if own is None or own.normalize_str("A") != "a":
            parts = [normalizers.Lowercase(), *([] if own is None else [own])]
            self.backend.normalizer = normalizers.Sequence(parts)

    @validate_arguments
    def id_of(self, token: str) -> int:
        """Number of a token; that of the unknown one if the vocabulary does not have it."""
        return next(self._numbers_of(token), self.unknown_id)

    @validate_arguments
    def has(self, token: str) -> bool:
        """Whether the vocabulary has a token."""
        return next(self._numbers_of(token), None) is not None

    def _numbers_of(self, token: str) -> Iterator[int]:
        if any("\ud800" <= character <= "\udfff" for character in token):  # half a character: no vocabulary can name it
            return iter(())
        as_it_is = (token,) if token in self.special_tokens.roles or token in self._added_numbers else ()
        numbers = map(self.backend.token_to_id, as_it_is or self.spelling.candidate_pieces(token))
        return (number for number in numbers if number is not None and number < len(self))

    def token_of(self, number: int) -> str:
        """Token of a number; of a row of the model's table that no token has, "row 250,010"."""
        number = require_int("a piece", number, 0, self._rows - 1)
        if number >= len(self):
            return f"row {number:,}"
        if self._is_whole(number):
            return self._special.get(number) or self._added[number]
        return self.spelling.readable(str(self.backend.id_to_token(number)))

    def encode_plain(self, texts: Iterable[str]) -> list[np.ndarray]:
        """Piece numbers of many texts, no special tokens added; uint16 where the vocabulary fits."""
        dtype = np.uint16 if len(self) <= 1 << 16 else np.int32
        given = require_sequence("texts", texts, "texts")
        if other := [text for text in given if not isinstance(text, str)]:
            raise Refused(f"one of the texts is {short_repr(other[0])}: it must be of type str")
        read = self.backend.encode_batch_fast(given, add_special_tokens=False)
        numbers = [np.array(self._known(one), dtype) for one in read]
        if (count := current_counts()) is not None:
            count.add(sum(map(len, numbers)), sum(int((one == self.unknown_id).sum()) for one in numbers))
        return numbers

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text of word pieces, special tokens left out."""
        pieces = require_sequence("ids", ids, "the numbers of pieces")
        return str(self.backend.decode([require_int("a piece", piece, 0, len(self) - 1) for piece in pieces]))


def join_pieces(tokens: Iterable[str]) -> str:
    """The pieces of one word put together; a space before it, which some vocabularies cut off, is no part of it."""
    *inside, last = [
        token if place == 0 else token.removeprefix(CONTINUATION_PREFIX) for place, token in enumerate(tokens)
    ]
    word = "".join([*(token.removesuffix(CONTINUATION_SUFFIX) or token for token in inside), last])
    return word.removeprefix(VISIBLE_SPACE) or word


_Row = tuple[str, int, int, tuple[int, int], int | None, Side | None]


class _Typed(NamedTuple):
    """A text as it was typed and as it is read; for each character of the second, and its end, its place there."""

    source: str
    text: str
    places: Sequence[int]


class _Read(NamedTuple):
    """What the library made of one text or two, with an entry for each token."""

    tokens: list[str]
    numbers: Sequence[int]
    segments: list[int]
    offsets: list[tuple[int, int]]
    words: list[int | None]

    def part(self, begin: int, end: int) -> _Read:
        """The same for some tokens in a row."""
        return _Read(
            self.tokens[begin:end], self.numbers[begin:end], self.segments[begin:end], self.offsets[begin:end],
            self.words[begin:end],
        )  # fmt: skip


def _special_tokens(vocabulary: Container[str], named: Mapping[str, str]) -> SpecialTokens:
    """How a vocabulary writes its special tokens.

    named: those that the files name, by their names there. The others are those of the nearest family.
    Raises Refused for a vocabulary that lacks some, whatever the family.
    """
    families = [
        SpecialTokens(
            first=named.get("cls_token", family.first), between=family.between, end=named.get("sep_token", family.end),
            mask=named.get("mask_token", family.mask), pad=named.get("pad_token", family.pad),
            unknown=named.get("unk_token", family.unknown),
        ) for family in SPECIAL_TOKEN_FAMILIES
    ]  # fmt: skip
    wanted = {family: dict.fromkeys((family.pad, family.unknown, family.first, family.end, family.mask))
              for family in families}  # fmt: skip
    lacking = {family: [token for token in wanted[family] if token not in vocabulary] for family in families}
    nearest = min(families, key=lambda family: len(lacking[family]))
    if lacking[nearest]:
        raise Refused(
            f"the vocabulary has no {', '.join(lacking[nearest])}: a BERT's vocabulary has {', '.join(wanted[nearest])}"
        )
    return nearest


def _share(room: int, first: int, second: int) -> tuple[int, int]:
    """How many tokens of each text are kept: the longer one gives way first."""
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (shorter, room - shorter) if first <= second else (room - shorter, shorter)


def _without_space(typed: str, start: int, end: int) -> tuple[int, int]:
    """A span without the spaces at its beginning, which some vocabularies count to a mask."""
    shorter = end - len(typed[start:end].lstrip())
    return (shorter, end) if shorter < end else (start, end)
