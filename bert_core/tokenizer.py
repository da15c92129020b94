"""Text, and a second text if there is one, to the tokens a BERT reads, and the way back."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import tokenizers
from tokenizers import normalizers
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
from tokenizers.models import BPE, Unigram, WordPiece

from bert_core.charsmap import check_charsmap
from bert_core.config import LARGEST_JSON, BertConfig, json_object, text_of
from bert_core.merges import BYTE_FILES, MOST_PIECES, TWEET_FILES, Merged, byte_pairs, tweet_pieces
from bert_core.refused import Refused, checked, several, shown, whole
from bert_core.spelling import GOES_ON, GOES_ON_AFTER, SPACE, Bytes, Spelling, Tweets, Unigrams

MASK, UNKNOWN, CLS, SEP, PAD = "[MASK]", "[UNK]", "[CLS]", "[SEP]", "[PAD]"
Side = Literal["A", "B"]
Duty = Literal["first", "between", "end", "mask", "pad", "unknown"]
SPECIAL_TOKENS = (PAD, UNKNOWN, CLS, SEP, MASK)
SEVERAL_SPACES = {"Regex": " {2,}"}  # the one pattern that is run: files made from SentencePiece's have it
SPELLINGS: Mapping[type, type[Spelling]] = {WordPiece: Spelling, BPE: Bytes, Unigram: Unigrams}
TOKENIZER_FILES = ("tokenizer.json", *BYTE_FILES, *TWEET_FILES, "tokenizer_config.json")
# What a tokenizer.json is made of. No other part is run: some take regular expressions, which a file can make endless.
# A binary table, at which the library would stop the whole program, is looked through first (`charsmap`).
KNOWN_PARTS = {
    "normalizer": (
        "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Replace", "Sequence",
        "Strip", "StripAccents",
    ),
    "pre_tokenizer": (
        "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation", "Sequence",
        "Whitespace", "WhitespaceSplit",
    ),
    "post_processor": ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing"),
    "decoder": ("ByteLevel", "Metaspace", "WordPiece"),
}  # fmt: skip


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
    def duties(self) -> Mapping[str, Duty]:
        """The duty of each spelling, as a typed one has it; where one has two, that between the texts."""
        found: dict[str, Duty] = {self.pad: "pad", self.unknown: "unknown", self.first: "first", self.end: "end"}
        return {**found, **dict.fromkeys(self.between, "between"), self.mask: "mask"}

    def named_in(self, sentence: str, write: Callable[[str], str] = str) -> str:
        """A sentence about BERT's special tokens with the spellings of these in their places.

        write: makes of a spelling what the sentence is read as.
        """
        own = {CLS: self.first, SEP: self.end, MASK: self.mask, PAD: self.pad, UNKNOWN: self.unknown}
        for name, spelling in own.items():
            sentence = sentence if name == spelling else sentence.replace(name, write(spelling))
        return sentence


OF_BERT = SpecialTokens()
OF_ROBERTA = SpecialTokens("<s>", ("</s>", "</s>"), "</s>", "<mask>", "<pad>", "<unk>", segment=0)
OF_ALBERT = SpecialTokens(pad="<pad>", unknown="<unk>")
FAMILIES = (OF_BERT, OF_ROBERTA, OF_ALBERT)


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
    special_tokens: SpecialTokens = OF_BERT

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
    def duties(self) -> tuple[Duty | None, ...]:
        """What each special token is there for, a typed one too: "first", "between", "end", "mask", "pad" or "unknown".

        None for every other token.
        """
        known, last = self.special_tokens.duties, len(self) - 1
        return tuple(
            "end" if added and position == last and token == self.special_tokens.end else known.get(token)
            for position, (token, added) in enumerate(zip(self.tokens, self.special, strict=True))
        )

    def with_duty(self, *duties: Duty) -> tuple[bool, ...]:
        """Whether each token has one of these duties."""
        return tuple(duty in duties for duty in self.duties)

    @cached_property
    def mask_positions(self) -> tuple[int, ...]:
        """Positions of the token that hides a word, BERT's [MASK]."""
        return tuple(i for i, duty in enumerate(self.duties) if duty == "mask")

    @property
    def word_count(self) -> int:
        """Number of words in both texts together, as far as they were kept."""
        return max((word for word in self.words if word is not None), default=-1) + 1

    @property
    def unknown_count(self) -> int:
        """How many tokens the vocabulary does not know."""
        return self.duties.count("unknown")

    @property
    def typed_count(self) -> int:
        """How many tokens there are besides the added special ones."""
        return len(self) - sum(self.special)

    @property
    def mostly_unknown(self) -> bool:
        """Whether the vocabulary knows fewer than half of what was typed: what a model says of it then says little."""
        return self.unknown_count * 2 > self.typed_count

    def hidden_piece(self, position: int) -> str | None:
        """What was typed where now a mask stands; None where nothing is hidden, or a mask was typed."""
        if not 0 <= whole("a position", position, None) < len(self):
            raise Refused(f"position {position} does not exist: this text has positions 0 to {len(self) - 1}")
        side = self.sides[position]
        if self.duties[position] != "mask" or side is None:
            return None
        (start, end), source = self.offsets[position], self.text if side == "A" else self.pair or ""
        typed = source[start:end].strip()
        return (
            None
            if typed in ("", MASK, self.special_tokens.mask)
            else (GOES_ON if self._goes_on(position) else "") + typed
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The tokens as a reader knows them: what is hidden is named, "door, hidden"."""
        typed = [self.hidden_piece(position) for position in range(len(self))]
        return tuple(t if h is None else f"{h}, hidden" for t, h in zip(self.tokens, typed, strict=True))

    def _goes_on(self, position: int) -> bool:
        """Whether a piece goes on with the word of the piece before it."""
        word = self.words[position]
        return word is not None and position > 0 and self.words[position - 1] == word

    @checked
    def pieces_of(self, word: int) -> tuple[int, ...]:
        """Positions of the pieces of a word."""
        return tuple(i for i, w in enumerate(self.words) if w == word)

    @checked
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

    def __init__(self, backend: tokenizers.Tokenizer, merged: Merged | None = None) -> None:
        """merged: the backend as it was made of older files, where these say more than it can."""
        self.backend = backend
        self._numbers = () if merged is None else merged.numbers
        self._files = {} if merged is None else merged.files
        self.spelling = Tweets() if self._files else SPELLINGS[type(backend.model)]()
        self._size = max(self._numbers, default=-1) + 1 or int(backend.get_vocab_size())
        self.backend.no_padding()
        self.backend.no_truncation()
        known = (token for family in FAMILIES for token in family.duties)
        own = self.special_tokens = _special_tokens([t for t in known if backend.token_to_id(t) is not None])
        self.first_id, self.end_id, self.mask_id, self.pad_id, self.unknown_id = (
            cast("int", backend.token_to_id(token)) for token in (own.first, own.end, own.mask, own.pad, own.unknown)
        )
        self._special = {self.id_of(token): token for token in own.duties}

    @classmethod
    @checked
    def from_folder(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer of a checkpoint folder: `tokenizer.json`, or what older folders have in its place.

        That is `vocab.txt`, of a BERTweet with `bpe.codes`, or `vocab.json` with `merges.txt`; with each of these
        `tokenizer_config.json`, if it is there.
        Raises Refused if no such file is there, one is broken, or it is none of the kinds that BERTs have.
        """
        folder = Path(folder)
        whole, vocabulary, settings_file = (
            folder / n for n in ("tokenizer.json", "vocab.txt", "tokenizer_config.json")
        )
        try:
            if whole.is_file():
                _check_parts(json_object(whole))
                return cls(tokenizers.Tokenizer.from_file(str(whole)))
            for names, read in ((BYTE_FILES, byte_pairs), (TWEET_FILES, tweet_pieces)):
                if all((folder / name).is_file() for name in names):
                    merged = read(folder, json_object(settings_file) if settings_file.is_file() else {})
                    return cls(merged.backend, merged)
            if vocabulary.is_file():
                lowercase, strip_accents = _settings(settings_file)
                pieces = _pieces(vocabulary)
                own = _special_tokens(pieces)
                built = BertWordPieceTokenizer(
                    pieces, lowercase=lowercase, strip_accents=strip_accents, unk_token=own.unknown,
                    sep_token=own.end, cls_token=own.first, pad_token=own.pad, mask_token=own.mask,
                )  # fmt: skip
                return cls(built._tokenizer)
        except BaseException as error:  # the Rust library raises bare Exception, and where it panics, no Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise Refused(f"the tokenizer files in {folder} are broken: {error}") from error
        for here, lacking in (BYTE_FILES, BYTE_FILES[::-1], TWEET_FILES[::-1]):
            if (folder / here).is_file():
                raise Refused(f"{folder} has {here} and no {lacking}: the two are read together")
        if any(folder.glob("*.model")):
            raise Refused(
                f"{folder} has the model file of SentencePiece alone: load it with transformers' AutoTokenizer and "
                "save it there, which writes the tokenizer.json that is read"
            )
        raise Refused(f"{folder} has no tokenizer: neither tokenizer.json nor vocab.txt")

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

    def __len__(self) -> int:
        """Size of the vocabulary, added tokens included."""
        return self._size

    def check_against(self, config: BertConfig) -> None:
        """Raise Refused unless every token has a row in the model's embedding table, and no row is left over."""
        if len(self) != config.vocab_size:
            raise Refused(
                f"the tokenizer has {len(self)} tokens but the model {config.vocab_size}: they do not belong together"
            )

    @checked
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
        first = self._read(text)
        second = None if pair is None else self._read(pair)
        for name, typed, part in (("text", text, first), ("second sentence", pair, second)):
            if part is not None and not len(part.encoded):
                raise Refused(f"the {name} {typed!r:.40} contains no readable character: type at least one word")
        lengths = len(first.encoded), 0 if second is None else len(second.encoded)
        own = self.special_tokens
        texts, frame = (1, 2) if second is None else (2, 2 + len(own.between))
        full_length = frame + sum(lengths)
        room = max_length - frame
        if room < texts:
            least = frame + texts
            raise Refused(f"max_length {max_length} leaves no room for a token of each text: {least} is the least")
        first_room, second_room = _share(room, *lengths)
        # What stands behind each text, and the number of its segment.
        parts: list[tuple[_Read, Side, int, tuple[str, ...], int]] = [(first, "A", first_room, (own.end,), 0)]
        if second is not None:
            parts = [(first, "A", first_room, own.between, 0), (second, "B", second_room, (own.end,), own.segment)]

        rows: list[tuple[str, int, int, tuple[int, int], int | None, Side | None]] = [
            (own.first, self.first_id, 0, (0, 0), None, None)
        ]
        words_before = 0
        for (encoded, places), side, kept, behind, segment in parts:
            # Each of these lists is built anew when it is asked for.
            typed = text if side == "A" else pair or ""
            spans = [_without_space(typed, places[start], places[end]) for start, end in encoded.offsets[:kept]]
            known = self._known(encoded)
            words, tokens = self._word_groups(encoded, known, spans, typed), list[str]()
            nth = 0  # of the pieces of a sign that is in several
            for place, (piece, number) in enumerate(zip(encoded.tokens[:kept], known[:kept], strict=True)):
                goes_on = place > 0 and words[place] == words[place - 1] and tokens[-1] != SPACE
                start, end = spans[place]
                if number not in self._special and self.spelling.is_part(piece):
                    nth = nth + 1 if nth and spans[place - 1][1] > start else 1
                    tokens.append(self.spelling.shown_part(typed[start:end], nth, goes_on))
                    continue
                nth = 0
                tokens.append(self._shown_in_text(piece, number, goes_on))
            pieces = zip(tokens, known[:kept], spans, words, strict=True)
            rows += [(token, number, segment, span, words_before + word, side) for token, number, span, word in pieces]
            words_before += max(words, default=-1) + 1
            rows += [(token, self.id_of(token), segment, (0, 0), None, None) for token in behind]
        written, ids, segments, offsets, word_numbers, sides = zip(*rows, strict=True)
        return Encoding(text, pair, written, ids, segments, offsets, word_numbers, sides, full_length, own)

    def _read(self, typed: str) -> _Read:
        """The pieces of one text, and where each character of what was read stands in what was typed."""
        own = self.special_tokens.mask
        if own == MASK or MASK not in typed:
            return _Read(self.backend.encode(typed, add_special_tokens=False), range(len(typed) + 1))
        places, at = list[int](), 0
        parts = typed.split(MASK)
        for number, part in enumerate(parts):
            if number:
                places += [at] * len(own)
                at += len(MASK)
            places += range(at, at + len(part))
            at += len(part)
        return _Read(self.backend.encode(own.join(parts), add_special_tokens=False), (*places, at))

    def _known(self, encoded: tokenizers.Encoding) -> list[int]:
        """The numbers of pieces in the vocabulary."""
        return [self._numbers[number] for number in encoded.ids] if self._numbers else encoded.ids

    def _word_groups(
        self, encoded: tokenizers.Encoding, ids: Sequence[int], spans: Sequence[tuple[int, int]], typed: str
    ) -> list[int]:
        """Word of each piece: pieces that touch, with no space or sign between, are one word."""
        groups: list[int] = []
        end, before = 0, ""  # of what was read so far; the piece before
        rows = zip(encoded.tokens, ids, encoded.word_ids, spans, strict=False)
        of_library: int | None = None
        for piece, number, word, (start, last) in rows:
            alone = self._special.get(number, self.special_tokens.unknown) != self.special_tokens.unknown
            if self.spelling.knows_words:
                continues = word == of_library
            elif alone or start > end or not typed[start:last].strip():
                continues = False
            else:
                apart = start == end and any(map(self.spelling.is_apart, typed[start - 1 : start + 1]))
                continues = before == SPACE or (before not in self.special_tokens.duties and not apart)
            groups.append(groups[-1] if continues and groups else (groups[-1] + 1 if groups else 0))
            end, of_library = max(end, last), word
            before = self._shown_in_text(piece, number, goes_on=False)
        return groups

    def _shown_in_text(self, piece: str, number: int, goes_on: bool) -> str:
        """A piece of a text as it is read; its spelling among the special tokens is theirs alone."""
        if number in self._special:
            return self._special[number]
        found = self.spelling.shown_in_text(piece, goes_on)
        return piece if found in self.special_tokens.duties else found

    @checked
    def mask_words(self, encoding: Encoding, words: Iterable[int]) -> Encoding:
        """The same encoding with a mask in the place of every piece of some words; the offsets still point at the text.

        Raises Refused for a word that is not there.
        """
        chosen = frozenset(whole("a word", word, None) for word in several("words", words, "their numbers"))
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

    @checked
    def id_of(self, token: str) -> int:
        """Number of a token; that of the unknown one if the vocabulary does not have it."""
        return next(self._numbers_of(token), self.unknown_id)

    @checked
    def has(self, token: str) -> bool:
        """Whether the vocabulary has a token."""
        return next(self._numbers_of(token), None) is not None

    def _numbers_of(self, token: str) -> Iterator[int]:
        as_it_is = (token,) if token in self.special_tokens.duties else ()
        numbers = map(self.backend.token_to_id, as_it_is or self.spelling.written(token))
        return (number for number in numbers if number is not None and number < len(self))

    def token_of(self, number: int) -> str:
        """Token of a number."""
        number = whole("a piece", number, 0, len(self) - 1)
        if number in self._special:
            return self._special[number]
        return self.spelling.shown(str(self.backend.id_to_token(number)))

    def encode_plain(self, texts: Iterable[str]) -> list[np.ndarray]:
        """Piece numbers of many texts, no special tokens added; uint16 where the vocabulary fits."""
        dtype = np.uint16 if len(self) <= 1 << 16 else np.int32
        given = several("texts", texts, "texts")
        if other := [text for text in given if not isinstance(text, str)]:
            raise Refused(f"one of the texts is {shown(other[0])}: it must be of type str")
        read = self.backend.encode_batch_fast(given, add_special_tokens=False)
        return [np.array(self._known(one), dtype) for one in read]

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text of word pieces, special tokens left out."""
        pieces = several("ids", ids, "the numbers of pieces")
        return str(self.backend.decode([whole("a piece", piece, 0, len(self) - 1) for piece in pieces]))


def joined(tokens: Iterable[str]) -> str:
    """The pieces of one word put together; a space before it, which some vocabularies cut off, is no part of it."""
    *inside, last = [token if place == 0 else token.removeprefix(GOES_ON) for place, token in enumerate(tokens)]
    word = "".join([*(token.removesuffix(GOES_ON_AFTER) or token for token in inside), last])
    return word.removeprefix(SPACE) or word


class _Read(NamedTuple):
    """One text as it was read, and for each character of that, and their end, its place in what was typed."""

    encoded: tokenizers.Encoding
    places: Sequence[int]


def _special_tokens(vocabulary: Container[str]) -> SpecialTokens:
    """How a vocabulary writes its special tokens. Raises Refused for one that lacks some, whatever the family."""
    lacking = {family: [token for token in family.duties if token not in vocabulary] for family in FAMILIES}
    nearest = min(lacking, key=lambda family: len(lacking[family]))
    if lacking[nearest]:
        raise Refused(
            f"the vocabulary has no {', '.join(lacking[nearest])}: a BERT's vocabulary has {', '.join(nearest.duties)}"
        )
    return nearest


def _check_parts(values: Mapping[str, Any]) -> None:
    """Refuse a `tokenizer.json` of another kind, or that has a part whose running nothing bounds."""
    model = values.get("model")
    kind = model.get("type", "WordPiece") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or kind not in MODELS:
        raise Refused(f"its model is {shown(model)}: it must be of type {', '.join(map(repr, MODELS))}")
    pieces = MODELS[str(kind)](model)
    added = values.get("added_tokens") or []
    if not isinstance(added, list) or len(added) + len(pieces) > MOST_PIECES:
        raise Refused(f"its added_tokens must be a list, and with its vocabulary at most {MOST_PIECES:,}")
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for part, known in KNOWN_PARTS.items():
        left, found = [values.get(part)], parts.setdefault(part, [])
        while left:
            one = left.pop()
            if one is None:
                continue
            kind_of_part = one.get("type") if isinstance(one, Mapping) else one
            if kind_of_part not in known:
                raise Refused(f"its {part} is {shown(kind_of_part)}: one of {', '.join(known)} is run")
            inner = one.get(f"{part}s", one.get("pretokenizers")) if kind_of_part == "Sequence" else []
            if not isinstance(inner, list):
                raise Refused(f"its {part} is a Sequence of {shown(inner)}: it must be of a list")
            found.append(one)
            left += inner
    for one in parts["normalizer"]:
        if one["type"] == "Precompiled":
            check_charsmap(one.get("precompiled_charsmap"))
        if one["type"] == "Replace" and not _is_harmless(one.get("pattern"), one.get("content")):
            raise Refused(f"its normalizer is {shown(one)}: it must be one of those without a pattern of its own")
    cut = parts["pre_tokenizer"]
    for one in cut:
        if one["type"] == "Metaspace" and one.get("replacement", "▁") != "▁":
            raise Refused(f"its Metaspace writes a space as {shown(one['replacement'])}: it must be '▁'")
    if (kind == "BPE") != any(one["type"] == "ByteLevel" for one in cut):
        raise Refused(
            f"its pre_tokenizer is {shown(values.get('pre_tokenizer'))}: it must be ByteLevel for a model of type "
            "'BPE', and for no other"
        )


def _is_harmless(pattern: object, content: object) -> bool:
    """Whether a normalizer replaces some spaces by one, or signs that stand as they are by no more signs."""
    if pattern == SEVERAL_SPACES:
        return content in (" ", "▁")
    signs = pattern.get("String") if isinstance(pattern, Mapping) and len(pattern) == 1 else None
    return isinstance(signs, str) and isinstance(content, str) and 0 < len(signs) <= 100 and len(content) <= len(signs)


def _word_pieces(model: Mapping[str, Any]) -> Sequence[object]:
    pieces = _numbered(model)
    unknown = model.get("unk_token", UNKNOWN)
    if not isinstance(unknown, str) or unknown not in pieces:
        raise Refused(f"its unk_token is {shown(unknown)}: it must be one of the vocabulary")
    whole("its max_input_chars_per_word", model.get("max_input_chars_per_word", 100), 1, 1000)
    return pieces


def _byte_pairs(model: Mapping[str, Any]) -> Sequence[object]:
    pieces, merges = _numbered(model), model.get("merges")
    if not isinstance(merges, list) or len(merges) > MOST_PIECES:
        raise Refused(f"its merges are {shown(merges)}: they must be a list of at most {MOST_PIECES:,}")
    if model.get("dropout"):
        raise Refused(f"its dropout is {shown(model['dropout'])}: a text must always be cut alike")
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(affix):
            raise Refused(f"its {affix} is {shown(model[affix])}: byte-level pieces have none")
    return pieces


def _unigrams(model: Mapping[str, Any]) -> Sequence[object]:
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, list) or not all(
        isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and _is_number(one[1]) for one in vocabulary
    ):
        raise Refused("its vocabulary must be a list of pieces, each with its score")
    pieces = [one[0] for one in vocabulary]
    if len(set(pieces)) < len(pieces):
        raise Refused("its vocabulary must have each piece once")
    whole("its unk_id", model.get("unk_id"), 0, len(pieces) - 1)
    if model.get("byte_fallback"):
        raise Refused("its pieces fall back to bytes: those of the families that are read do not")
    return pieces


def _numbered(model: Mapping[str, Any]) -> list[str]:
    vocabulary = model.get("vocab")
    numbers = list(vocabulary.values()) if isinstance(vocabulary, Mapping) else []
    if not all(type(number) is int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
        raise Refused("its vocabulary must give every piece a number, from 0 on, each once")
    return list(vocabulary) if isinstance(vocabulary, Mapping) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# What checks the model of a tokenizer.json, by its type; each gives the pieces.
MODELS: Mapping[str, Callable[[Mapping[str, Any]], Sequence[object]]] = {
    "WordPiece": _word_pieces, "BPE": _byte_pairs, "Unigram": _unigrams,
}  # fmt: skip


def _pieces(path: Path) -> dict[str, int]:
    """The word pieces of a `vocab.txt`, one a line, each once."""
    text = text_of(path, LARGEST_JSON)
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines > MOST_PIECES:
        raise Refused(f"{path.name} has {lines:,} lines: at most {MOST_PIECES:,} are read")
    pieces: dict[str, int] = WordPiece.read_file(str(path))
    _special_tokens(pieces)
    if len(pieces) < lines:
        raise Refused(f"{path.name} has {lines:,} lines and {len(pieces):,} pieces: each piece must stand there once")
    return pieces


def _settings(path: Path) -> tuple[bool, bool | None]:
    """Whether a `tokenizer_config.json` wants lower case, and no accents; None where lower case says that too."""
    values = json_object(path) if path.is_file() else {}
    lowercase, strip_accents = values.get("do_lower_case", True), values.get("strip_accents")
    for name, value in (("do_lower_case", lowercase), ("strip_accents", strip_accents)):
        if not isinstance(value, bool) and not (value is None and name == "strip_accents"):
            raise Refused(f"{name} is {shown(value)}: it must be true or false")
    return lowercase, strip_accents


def _share(room: int, first: int, second: int) -> tuple[int, int]:
    """How many tokens of each text are kept: the longer one gives way first."""
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (shorter, room - shorter) if first <= second else (room - shorter, shorter)


def _without_space(typed: str, start: int, end: int) -> tuple[int, int]:
    """A span without the spaces at its beginning, which some vocabularies count to a word or a mask."""
    shorter = end - len(typed[start:end].lstrip())
    return (shorter, end) if shorter < end else (start, end)
