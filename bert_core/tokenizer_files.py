"""The tokenizer files of a checkpoint folder, read as transformers' AutoTokenizer reads them."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram, WordPiece

from bert_core.charsmap import check_charsmap
from bert_core.config import MAX_JSON_BYTES, read_json_object, read_text
from bert_core.convert import convert_tokenizer
from bert_core.merges import BYTE_FILES, MAX_PIECES, TWEET_FILES, WORD_END_SUFFIX, read_byte_pairs, read_tweet_pieces
from bert_core.refused import Refused, require_int, require_sequence, short_repr

TOKENIZER_FILE, VOCABULARY_FILE, SETTINGS_FILE = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
ADDED_FILE, SPECIAL_FILE = "added_tokens.json", "special_tokens_map.json"
MODEL_FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "sentencepiece.model")
TOKENIZER_FILES = (
    TOKENIZER_FILE, *BYTE_FILES, *TWEET_FILES, *MODEL_FILES, ADDED_FILE, SPECIAL_FILE, SETTINGS_FILE,
)  # fmt: skip
# Files any of which makes a tokenizer; the others only add to it.
PIECE_FILES = (TOKENIZER_FILE, *BYTE_FILES, *TWEET_FILES, *MODEL_FILES)

SPACE_RUN_PATTERN = {"Regex": " {2,}"}  # the one pattern that is run: files made from SentencePiece's have it
# What a tokenizer.json is made of. No other part is run: some take regular expressions, which a file can make endless.
# A binary table, at which the library would stop the whole program, is looked through first (`charsmap`).
ALLOWED_PARTS = {
    "normalizer": (
        "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Replace", "Sequence",
        "Strip", "StripAccents",
    ),
    "pre_tokenizer": (
        "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation", "Sequence",
        "Whitespace", "WhitespaceSplit",
    ),
    "post_processor": ("BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"),
    "decoder": ("BPEDecoder", "ByteLevel", "Metaspace", "WordPiece"),
}  # fmt: skip
# Where the parts of a Sequence stand.
SEQUENCE_KEYS = {
    "normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors",
    "decoder": "decoders",
}  # fmt: skip

# The names of special tokens in transformers' files, in the order in which it adds them to a vocabulary.
TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
REQUIRED_TOKEN_NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
BERT_TOKENS = {
    "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
}  # fmt: skip
ROBERTA_TOKENS = {
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>",
    "cls_token": "<s>", "mask_token": "<mask>",
}  # fmt: skip
ALBERT_TOKENS = {
    **BERT_TOKENS,
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
}
MPNET_TOKENS: Mapping[str, str | AddedToken] = {
    **ROBERTA_TOKENS,
    "unk_token": "[UNK]",
    "mask_token": AddedToken("<mask>", lstrip=True, special=True),
}
# Classes that run another program, or are not made from their files here, and what can be done.
CONVERSION_ADVICE = {
    "BertJapaneseTokenizer": (
        "finds words with another program (MeCab, Sudachi or Juman++) that is not run here: save a tokenizer.json of "
        "its vocab.txt by BertWordPieceTokenizer('vocab.txt', lowercase=False, handle_chinese_chars=False)"
        ".save('tokenizer.json') of the library tokenizers, set tokenizer_class to PreTrainedTokenizerFast, and type a "
        "space between words"
    ),
    "HerbertTokenizer": (
        "reads byte pairs with </w> at the end of a word from files that are not read here: save a tokenizer.json by "
        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers"
    ),
}
CLASS_NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,80}")
# Names of classes that stand for tokenizer.json as it is.
GENERIC_CLASS_NAMES = ("PreTrainedTokenizer", "TokenizersBackend")
TWEET_CLASSES = ("BertweetTokenizer", "PhobertTokenizer")
# The class of a model's tokenizer, where no file names one.
DEFAULT_CLASS_NAMES = {
    "bert": "BertTokenizer", "distilbert": "BertTokenizer", "electra": "BertTokenizer", "blip": "BertTokenizer",
    "roberta": "RobertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer",
    "albert": "AlbertTokenizer", "mpnet": "MPNetTokenizer",
}  # fmt: skip

Names = Mapping[str, str | AddedToken]


class UnsupportedTokenizer(Refused):
    """Tokenizer files that may be whole, and are of a kind that is not read."""


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer of the library, and what the files say beside it.

    named: special tokens by their names in transformers' files, such as "cls_token".
    notes: one sentence for each statement of the files that is not used as it stands.
    numbers: of each piece of the backend the number in the vocabulary; none if they are the same.
    files: what it was read from, by name, where the library's own file cannot say it.
    """

    backend: tokenizers.Tokenizer
    named: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    numbers: Sequence[int] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Stated:
    """What the files of a folder state, merged.

    whole: the content of tokenizer.json. values: the settings. added: tokens beside the vocabulary, by number.
    """

    folder: Path
    whole: Mapping[str, Any] | None
    values: Mapping[str, Any]
    added: Mapping[int, AddedToken]

    def switch(self, name: str, default: bool) -> bool:
        """A setting that is true or false."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise Refused(f"{name} is {short_repr(value)}: it must be true or false")
        return value

    def model(self, kind: str) -> Mapping[str, Any]:
        """The model in tokenizer.json. Raises Refused if it is of another type."""
        model: Mapping[str, Any] = (self.whole or {})["model"]
        if model.get("type", "WordPiece") != kind:
            raise Refused(
                f"its {TOKENIZER_FILE} has a model of type {short_repr(model.get('type'))}, and its tokenizer_class reads "
                f"{kind}: a tokenizer_class of PreTrainedTokenizerFast in {SETTINGS_FILE} reads it as it is"
            )
        return model


@dataclass(frozen=True)
class _Class:
    """How a tokenizer class of transformers 5 makes its tokenizer.

    names: its special tokens, where no file says otherwise. files: what it reads where there is no tokenizer.json.
    build: the tokenizer without added tokens. frame: the post-processor, which sets special tokens around texts.
    extra: additional special tokens, where no file states any.
    """

    names: Names
    build: Callable[[_Stated, Names], tokenizers.Tokenizer]
    frame: Callable[[_Stated, Names, tokenizers.Tokenizer], Any]
    files: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def of_sentencepiece(self) -> bool:
        """Whether its own file is the model file of SentencePiece, which transformers converts."""
        return self in (XLM_ROBERTA, CAMEMBERT, ALBERT)


def read_files(folder: Path) -> TokenizerFiles:
    """The tokenizer of a folder, and what its files say beside it.

    Where several files speak of one thing, the one counts that counts for transformers 5: a tokenizer class that it
    knows is made anew, from the pieces in tokenizer.json and the settings in tokenizer_config.json; for any other,
    tokenizer.json is read as it is.
    Raises Refused if there is no tokenizer, it is broken, or of a kind that is not read.
    """
    config, values = (
        read_json_object(folder / n) if (folder / n).is_file() else {} for n in ("config.json", SETTINGS_FILE)
    )
    whole_file = read_json_object(folder / TOKENIZER_FILE) if (folder / TOKENIZER_FILE).is_file() else None
    if whole_file is not None:
        check_parts(whole_file)
    name = _class_name(config, values)
    if name == "BertJapaneseTokenizer" or (name == "HerbertTokenizer" and whole_file is None):
        raise UnsupportedTokenizer(f"its tokenizer_class is {name}, which {CONVERSION_ADVICE[name]}")
    stated = _Stated(folder, whole_file, *_merged(folder, values, whole_file))
    if name in TWEET_CLASSES or (name is None and whole_file is None and _has(folder, TWEET_FILES)):
        return _of_tweets(stated)
    if name in CLASSES and (whole_file is not None or _has(folder, CLASSES[name].files)):
        return _finished(CLASSES[name], stated)
    if name is None and whole_file is None:
        if _has(folder, BYTE_FILES):
            return _finished(ROBERTA, stated)
        if _has(folder, BERT.files):
            return _finished(_unnamed(read_vocabulary(folder / BERT.files[0])), stated)
    if whole_file is None:
        _check_together(folder, BYTE_FILES, BYTE_FILES[::-1], TWEET_FILES[::-1])
    if not any((folder / file).is_file() for file in PIECE_FILES):
        raise UnsupportedTokenizer(f"{folder} has no tokenizer: neither tokenizer.json nor vocab.txt")
    if name is not None and name not in GENERIC_CLASS_NAMES and (name not in CLASSES or CLASSES[name].of_sentencepiece):
        try:
            made = convert_tokenizer(folder, name)
        except Refused as error:
            raise UnsupportedTokenizer(str(error)) from error
        if made is not None:
            check_parts(json.loads(made[0]))
            return TokenizerFiles(tokenizers.Tokenizer.from_str(made[0]), made[1])
    if whole_file is not None:
        return _finished(GENERIC, stated)
    if name is None:
        raise UnsupportedTokenizer(
            f"{folder} has the model file of SentencePiece alone: load it with transformers' AutoTokenizer and "
            "save it there, which writes the tokenizer.json that is read"
        )
    wanted = " with ".join(CLASSES[name].files) if name in CLASSES else "what is here"
    raise UnsupportedTokenizer(
        f"its tokenizer_class is {name}, which is not read from {'other files than ' * (name in CLASSES)}{wanted}: "
        "save a tokenizer.json by AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers"
    )


def _class_name(config: Mapping[str, Any], values: Mapping[str, Any]) -> str | None:
    """The tokenizer class of a folder; None where no file says one."""
    stated = values.get("tokenizer_class") or config.get("tokenizer_class")
    if stated is None:
        return DEFAULT_CLASS_NAMES.get(str(config.get("model_type")))
    if not isinstance(stated, str) or not CLASS_NAME_PATTERN.fullmatch(stated):
        raise Refused(f"tokenizer_class is {short_repr(stated)}: it must be the name of a class, such as BertTokenizer")
    name = stated.removesuffix("Fast")
    return CLASS_ALIASES.get(name, name)


def _merged(
    folder: Path, values: Mapping[str, Any], whole_file: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[int, AddedToken]]:
    """The settings of all files, and the added tokens by number.

    Files of their own for added and special tokens count where tokenizer_config.json has no added_tokens_decoder.
    """
    merged = {key: value for key, value in values.items() if key != "tokenizer_class"}
    if "additional_special_tokens" in merged and not merged.get("extra_special_tokens"):
        merged["extra_special_tokens"] = merged.pop("additional_special_tokens")
    added: dict[int, AddedToken] = {}
    if "added_tokens_decoder" in merged:
        for number, token in _object("added_tokens_decoder", merged["added_tokens_decoder"]).items():
            if not number.isdecimal() or len(number) > 9:
                raise Refused(
                    f"added_tokens_decoder gives {short_repr(token)} the number {short_repr(number)}: it must be whole"
                )
            added[int(number)] = _added_token("added_tokens_decoder", token)
    else:
        if (folder / SPECIAL_FILE).is_file():
            for key, value in read_json_object(folder / SPECIAL_FILE).items():
                if isinstance(value, Mapping) and key != "extra_special_tokens":
                    value = _added_token(key, {**value, "special": True})
                elif key == "extra_special_tokens" and isinstance(value, list):
                    tokens = [_added_token(key, {**t, "special": True}) if isinstance(t, Mapping) else t for t in value]
                    present = merged.get(key) or []
                    value = [*present, *(token for token in tokens if token not in present)]
                merged[key] = value
        special = {_content(merged[key]) for key in TOKEN_NAMES if merged.get(key)}
        extra = merged.get("extra_special_tokens")
        special |= {_content(token) for token in extra} if isinstance(extra, list) else set()
        if (folder / ADDED_FILE).is_file():
            for content, number in read_json_object(folder / ADDED_FILE).items():
                place = require_int(f"the number of {short_repr(content)} in {ADDED_FILE}", number)
                added[place] = AddedToken(content, normalized=content not in special, special=content in special)
        for token in (whole_file or {}).get("added_tokens") or []:
            place = require_int("the id of an added token", _object("an added token", token).get("id"))
            added[place] = _added_token("an added token", {k: v for k, v in token.items() if k != "id"})
    by_content = {token.content: token for token in added.values()}
    for key in TOKEN_NAMES:
        if merged.get(key) is not None:
            token = _token(key, merged[key])
            merged[key] = by_content.get(_content(token), token)
    return merged, added


def _finished(kind: _Class, stated: _Stated) -> TokenizerFiles:
    """The tokenizer of a class with its added tokens, in the order in which transformers adds them."""
    named: dict[str, str | AddedToken] = dict(kind.names)
    named |= {key: stated.values[key] for key in TOKEN_NAMES if stated.values.get(key) is not None}
    without = [key for key in kind.names if key in stated.values and stated.values[key] is None]
    for key in without:
        if key in REQUIRED_TOKEN_NAMES or kind.frame is ONE_SEGMENT_FRAME:
            raise Refused(f"{key} is null: its tokenizer_class needs one")
        del named[key]
    backend = kind.build(stated, named)
    declared = {token.content for token in stated.added.values()}
    lacking = [name for key in REQUIRED_TOKEN_NAMES if key in named
               and (name := _content(named[key])) not in declared and backend.token_to_id(name) is None]  # fmt: skip
    if lacking:
        raise Refused(
            f"the vocabulary has no {', '.join(lacking)}: a BERT's vocabulary has "
            f"{', '.join(_content(named[key]) for key in REQUIRED_TOKEN_NAMES)}"
        )
    extra = _extra_tokens(kind, stated.values)
    own_names = _own_names(stated.values)
    stated_tokens: list[str | AddedToken] = [token for _, token in sorted(stated.added.items())]
    present = {token.content for token in backend.get_added_tokens_decoder().values()} | declared
    in_order = [*(named[key] for key in TOKEN_NAMES if key in named), *own_names]
    for token in (*in_order, *extra):  # one stated twice, as a text and as an object, is added twice: the second counts
        if _content(token) not in present and token not in stated_tokens:
            stated_tokens.append(token)
    tokens = [token if isinstance(token, AddedToken) else AddedToken(token, special=True) for token in stated_tokens]
    present |= {token.content for token in tokens}
    special = {_content(token) for token in in_order}
    for token in tokens:
        if token.content in special:
            token.special = True
    backend.add_tokens(tokens)
    frame = kind.frame(stated, named, backend)
    if frame is not None:
        backend.post_processor = frame
    backend.encode_special_tokens = stated.switch("split_special_tokens", False)
    names = {key: _content(token) for key, token in named.items()}
    return TokenizerFiles(backend, names, tuple(_notes(stated, backend, present)))


def _notes(stated: _Stated, backend: tokenizers.Tokenizer, added: set[str]) -> Iterator[str]:
    """What the files state and transformers does not use, one sentence each."""
    never_split = stated.values.get("never_split") or []
    if isinstance(never_split, list) and (parted := [word for word in never_split if word not in added]):
        yield (
            f"never_split names {short_repr(parted[0])}, which is split all the same, as by transformers: only added tokens "
            "stay whole"
        )
    if stated.whole is not None and _normalized(stated.whole.get("normalizer")) != _probe(backend.normalizer):
        yield (
            f"{TOKENIZER_FILE} by itself would treat case, accents or spaces otherwise: texts are read as transformers "
            f"reads them, by the tokenizer class and the settings in {SETTINGS_FILE}"
        )


def _normalized(part: object) -> str:
    """What the normalizer in a tokenizer.json makes of some typical signs."""
    alone = {"version": "1.0", "added_tokens": [], "normalizer": part, "model": {"type": "WordPiece", "vocab": {"a": 0},
             "unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 1}}  # fmt: skip
    return _probe(tokenizers.Tokenizer.from_str(json.dumps(alone)).normalizer)


def _probe(normalizer: Any) -> str:
    text = "Aé 猫犬 ½"
    return text if normalizer is None else str(normalizer.normalize_str(text))


def _extra_tokens(kind: _Class, values: Mapping[str, Any]) -> list[str | AddedToken]:
    """Special tokens without a name of their own."""
    extra = values.get("extra_special_tokens")
    if "extra_special_tokens" not in values or isinstance(extra, Mapping):  # those with names are among `_own_names`
        extra = values.get("additional_special_tokens", list(kind.extra))
    if extra is None:
        return []
    if not isinstance(extra, list):
        raise Refused(f"extra_special_tokens is {short_repr(extra)}: it must be a list of tokens")
    return [_token("extra_special_tokens", token) for token in extra]


def _own_names(values: Mapping[str, Any]) -> list[str | AddedToken]:
    """Special tokens with names of a model's own, such as "entity_token"."""
    extra = values.get("extra_special_tokens")
    named = extra if isinstance(extra, Mapping) else {}
    typed = {key: value for key, value in values.items() if key.endswith("_token") and key not in TOKEN_NAMES
             and (isinstance(value, str | AddedToken) or _is_typed(value))}  # fmt: skip
    return [_token(key, value) for key, value in {**typed, **named}.items()]


def _object(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Refused(f"{name} is {short_repr(value)}: it must be an object")
    return value


def _is_typed(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("__type") == "AddedToken"


def _token(name: str, value: object) -> str | AddedToken:
    """A token as a file states it, a text or an object. Raises Refused for anything else."""
    if isinstance(value, str | AddedToken):
        return value
    if not _is_typed(value):
        raise Refused(f"{name} is {short_repr(value)}: it must be a token")
    return _added_token(name, {key: flag for key, flag in _object(name, value).items() if key != "__type"})


def _added_token(name: str, value: object) -> AddedToken:
    values = _object(name, value)
    content, flags = values.get("content"), {key: flag for key, flag in values.items() if key != "content"}
    if not isinstance(content, str) or not all(k in TOKEN_FLAGS and isinstance(f, bool) for k, f in flags.items()):
        raise Refused(
            f"{name} has {short_repr(value)}: it must have a content, and {', '.join(TOKEN_FLAGS)} true or false"
        )
    return AddedToken(content, **flags)


def _content(token: object) -> str:
    return token.content if isinstance(token, AddedToken) else str(token)


def _has(folder: Path, names: Sequence[str]) -> bool:
    return bool(names) and all((folder / name).is_file() for name in names)


def _check_together(folder: Path, *pairs: tuple[str, str]) -> None:
    """Raise NotRead for a folder that has the first file of a pair, and not the second."""
    for here, lacking in pairs:
        if _has(folder, (here,)) and not _has(folder, (lacking,)):
            raise UnsupportedTokenizer(f"{folder} has {here} and no {lacking}: the two are read together")


# ---------------------------------------------------------------------------- classes


def read_vocabulary(path: Path) -> dict[str, int]:
    """The word pieces of a `vocab.txt`, one a line, each once."""
    text = read_text(path, MAX_JSON_BYTES)
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines > MAX_PIECES:
        raise Refused(f"{path.name} has {lines:,} lines: at most {MAX_PIECES:,} are read")
    pieces: dict[str, int] = WordPiece.read_file(str(path))
    if pieces and len(pieces) < lines:
        raise Refused(f"{path.name} has {lines:,} lines and {len(pieces):,} pieces: each piece must stand there once")
    return pieces


def _of_bert(stated: _Stated, names: Names) -> tokenizers.Tokenizer:
    """Of a BertTokenizer (Devlin 2019)."""
    strip_accents = stated.values.get("strip_accents")
    if not isinstance(strip_accents, bool | None):
        raise Refused(f"strip_accents is {short_repr(strip_accents)}: it must be true or false")
    pieces = (
        read_vocabulary(stated.folder / VOCABULARY_FILE) if stated.whole is None else stated.model("WordPiece")["vocab"]
    )
    backend = tokenizers.Tokenizer(WordPiece(pieces, unk_token=_content(names["unk_token"])))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=stated.switch("tokenize_chinese_chars", True),
        strip_accents=strip_accents, lowercase=stated.switch("do_lower_case", True),
    )  # fmt: skip
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def _of_roberta(stated: _Stated, names: Names) -> tokenizers.Tokenizer:
    """Of a RobertaTokenizer: byte-level pairs (Radford 2019, section 2.2)."""
    if stated.whole is None:
        pieces, merges = read_byte_pairs(stated.folder)
    else:
        pieces, merges = _pairs_of(stated.model("BPE"))
    backend = tokenizers.Tokenizer(
        BPE(pieces, merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=stated.switch("add_prefix_space", False))
    backend.decoder = decoders.ByteLevel()
    return backend


def _of_unigrams(unknown: Callable[[Sequence[Sequence[Any]], Names], int], *, of_albert: bool = False) -> Any:
    """Of the classes with SentencePiece's unigrams (Kudo 2018, arXiv:1808.06226).

    unknown: the number of the unknown piece. of_albert: whether quotes, accents and cases are normalized first.
    """

    def build(stated: _Stated, names: Names) -> tokenizers.Tokenizer:
        pieces = [(piece, score) for piece, score in stated.model("Unigram")["vocab"]]
        backend = tokenizers.Tokenizer(Unigram(pieces, unknown(pieces, names), byte_fallback=False))
        parts: list[Any] = []
        if of_albert:
            parts += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
            parts += [] if stated.switch("keep_accents", False) else [normalizers.NFKD(), normalizers.StripAccents()]
            parts += [normalizers.Lowercase()] if stated.switch("do_lower_case", True) else []
        table = _characters((stated.whole or {}).get("normalizer"))
        parts += [] if table is None else [normalizers.Precompiled(base64.b64decode(table))]
        if of_albert:
            backend.normalizer = normalizers.Sequence(parts)
        elif parts:
            backend.normalizer = parts[0]
        scheme = "always" if stated.switch("add_prefix_space", True) else "never"
        spaces = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
        backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
        return backend

    return build


def _characters(normalizer: object) -> str | None:
    """The first table of characters in a normalizer; transformers looks no deeper than one Sequence."""
    if not isinstance(normalizer, Mapping):
        return None
    parts = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    return next((part["precompiled_charsmap"] for part in parts if part["type"] == "Precompiled"), None)


def _pairs_of(model: Mapping[str, Any]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The pieces and merges of a model in tokenizer.json; older files have a space between the two of a merge."""
    pairs = [pair.split(" ") if isinstance(pair, str) else require_sequence("a merge", pair, "two pieces")
             for pair in model["merges"]]  # fmt: skip
    if not all(len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in pairs):
        raise Refused("its merges must be pairs of two pieces")
    return dict(model["vocab"]), [(one, other) for one, other in pairs]


def _of_herbert(stated: _Stated, names: Names) -> tokenizers.Tokenizer:
    """Of a HerbertTokenizer: pairs of characters, `</w>` behind the last piece of a word."""
    pieces, merges = _pairs_of(stated.model("BPE"))
    backend = tokenizers.Tokenizer(
        BPE(pieces, merges, unk_token=_content(names["unk_token"]), end_of_word_suffix=WORD_END_SUFFIX)
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(WORD_END_SUFFIX)
    return backend


def _as_written(stated: _Stated, names: Names) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(stated.folder / TOKENIZER_FILE))


def _template(single: str, pair: str, first: str = "cls_token", last: str = "sep_token") -> Any:
    """A frame in which F and L stand for two special tokens."""

    def frame(stated: _Stated, names: Names, backend: tokenizers.Tokenizer) -> Any:
        begin, end = _content(names[first]), _content(names[last])
        written = [" ".join({"F": begin, "L": end}.get(part[0], part[0]) + part[1:] if part[0] in "FL" else part
                            for part in text.split()) for text in (single, pair)]  # fmt: skip
        tokens = [_numbered_token(backend, token) for token in (begin, end)]
        return processors.TemplateProcessing(single=written[0], pair=written[1], special_tokens=tokens)

    return frame


def _frame_of_roberta(stated: _Stated, names: Names, backend: tokenizers.Tokenizer) -> Any:
    last, first = (_numbered_token(backend, names[key]) for key in ("sep_token", "cls_token"))
    trims, before = stated.switch("trim_offsets", True), stated.switch("add_prefix_space", False)
    return processors.RobertaProcessing(last, first, trims, before)


def _frame_of_mpnet(stated: _Stated, names: Names, backend: tokenizers.Tokenizer) -> Any:
    last, first = (_numbered_token(backend, names[key]) for key in ("sep_token", "cls_token"))
    return processors.RobertaProcessing(last, first, trim_offsets=True, add_prefix_space=False)


def _numbered_token(backend: tokenizers.Tokenizer, token: str | AddedToken) -> tuple[str, int]:
    """A special token and its number. Raises Refused if the vocabulary does not have it."""
    content = _content(token)
    number = backend.token_to_id(content)
    if number is None:
        raise Refused(f"the vocabulary has no {content}")
    return content, int(number)


def _frame_of_albert(stated: _Stated, names: Names, backend: tokenizers.Tokenizer) -> Any:
    """That of tokenizer.json, if it has one."""
    if stated.whole is not None and stated.whole.get("post_processor") is not None:
        return tokenizers.Tokenizer.from_file(str(stated.folder / TOKENIZER_FILE)).post_processor
    return TWO_SEGMENT_FRAME(stated, names, backend)


def _frame_of_herbert(stated: _Stated, names: Names, backend: tokenizers.Tokenizer) -> Any:
    return processors.BertProcessing((_content(names["sep_token"]), 2), (_content(names["cls_token"]), 0))


def _frame_as_written(stated: _Stated, names: Names, backend: tokenizers.Tokenizer) -> Any:
    """That of the file; where it has none, texts stand alone, the second in a segment of its own."""
    if backend.post_processor is None:
        return processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    return None


TWO_SEGMENT_FRAME = _template("F:0 $A:0 L:0", "F:0 $A:0 L:0 $B:1 L:1")
ONE_SEGMENT_FRAME = _template("F $A L", "F $A L L $B L", "bos_token", "eos_token")
BERT = _Class(BERT_TOKENS, _of_bert, TWO_SEGMENT_FRAME, files=(VOCABULARY_FILE,))
ROBERTA = _Class(ROBERTA_TOKENS, _of_roberta, _frame_of_roberta, files=BYTE_FILES)
XLM_ROBERTA = _Class(ROBERTA_TOKENS, _of_unigrams(lambda pieces, names: 3), ONE_SEGMENT_FRAME)
CAMEMBERT = _Class(
    {**ROBERTA_TOKENS, "mask_token": AddedToken("<mask>", lstrip=True, special=True)},
    _of_unigrams(
        lambda pieces, names: next((n for n, p in enumerate(pieces) if p[0] == _content(names["unk_token"])), 0)
    ),
    ONE_SEGMENT_FRAME,
    extra=("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"),
)
ALBERT = _Class(ALBERT_TOKENS, _of_unigrams(lambda pieces, names: 1, of_albert=True), _frame_of_albert)
MPNET = _Class(MPNET_TOKENS, _of_bert, _frame_of_mpnet, files=(VOCABULARY_FILE,))
HERBERT = _Class({**ROBERTA_TOKENS}, _of_herbert, _frame_of_herbert)
GENERIC = _Class({}, _as_written, _frame_as_written)
CLASSES = {
    "BertTokenizer": BERT, "RobertaTokenizer": ROBERTA, "XLMRobertaTokenizer": XLM_ROBERTA,
    "CamembertTokenizer": CAMEMBERT, "AlbertTokenizer": ALBERT, "HerbertTokenizer": HERBERT,
    "MPNetTokenizer": MPNET,
}  # fmt: skip
# Classes that transformers makes as it makes another.
CLASS_ALIASES = {
    **dict.fromkeys(
        ("DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "ConvBertTokenizer", "LayoutLMTokenizer",
         "LxmertTokenizer", "SqueezeBertTokenizer", "DPRQuestionEncoderTokenizer", "DPRContextEncoderTokenizer"),
        "BertTokenizer",
    ),
    **dict.fromkeys(("LongformerTokenizer", "BartTokenizer"), "RobertaTokenizer"),
}  # fmt: skip


def _unnamed(pieces: Mapping[str, int]) -> _Class:
    """The class of a vocab.txt of which no file says one: by how the vocabulary writes its special tokens."""
    names = {key: own if own in pieces or ROBERTA_TOKENS[key] not in pieces else ROBERTA_TOKENS[key]
             for key, own in BERT_TOKENS.items()}  # fmt: skip
    alone = names["cls_token"] == BERT_TOKENS["cls_token"]
    frame = TWO_SEGMENT_FRAME if alone else _template("F $A L", "F $A L L $B L")
    return _Class(names, _of_bert, frame, files=BERT.files)


def _of_tweets(stated: _Stated) -> TokenizerFiles:
    """A BERTweet's or PhoBERT's two files."""
    if not _has(stated.folder, TWEET_FILES):
        _check_together(stated.folder, TWEET_FILES[::-1], TWEET_FILES)
        raise UnsupportedTokenizer(f"{stated.folder} has no tokenizer: neither {' nor '.join(TWEET_FILES)}")
    if stated.switch("split_special_tokens", False):
        raise UnsupportedTokenizer(
            f"split_special_tokens is true: beside {' and '.join(TWEET_FILES)} special tokens stay whole here"
        )
    backend, numbers, files = read_tweet_pieces(stated.folder, stated.values)
    stated_tokens = [
        *stated.added.values(),
        *(stated.values[k] for k in TOKEN_NAMES if stated.values.get(k) is not None),
    ]
    tokens = [*stated_tokens, *_extra_tokens(ROBERTA, stated.values), *_own_names(stated.values)]
    known = set(map(_content, ROBERTA_TOKENS.values()))
    if others := [content for token in tokens if (content := _content(token)) not in known]:
        raise UnsupportedTokenizer(
            f"its files add the token {short_repr(others[0])}: beside {' and '.join(TWEET_FILES)} none can be added here"
        )
    backend.post_processor = _template("F $A L", "F $A L L $B L")(stated, ROBERTA_TOKENS, backend)
    return TokenizerFiles(backend, dict(ROBERTA_TOKENS), numbers=numbers, files=files)


# ---------------------------------------------------------------------------- tokenizer.json


def check_parts(values: Mapping[str, Any]) -> None:
    """Refuse a `tokenizer.json` of another kind, or that has a part whose running nothing bounds."""
    model = values.get("model")
    kind = model.get("type", "WordPiece") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or kind not in MODEL_CHECKS:
        raise Refused(f"its model is {short_repr(model)}: it must be of type {', '.join(map(repr, MODEL_CHECKS))}")
    pieces = MODEL_CHECKS[str(kind)](model)
    added = values.get("added_tokens") or []
    if not isinstance(added, list) or len(added) + len(pieces) > MAX_PIECES:
        raise Refused(f"its added_tokens must be a list, and with its vocabulary at most {MAX_PIECES:,}")
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for part, known in ALLOWED_PARTS.items():
        left, found = [values.get(part)], parts.setdefault(part, [])
        while left:
            one = left.pop()
            if one is None:
                continue
            kind_of_part = one.get("type") if isinstance(one, Mapping) else one
            if kind_of_part not in known:
                raise Refused(f"its {part} is {short_repr(kind_of_part)}: one of {', '.join(known)} is run")
            inner = one.get(SEQUENCE_KEYS[part]) if kind_of_part == "Sequence" else []
            if not isinstance(inner, list):
                raise Refused(f"its {part} is a Sequence of {short_repr(inner)}: it must be of a list")
            found.append(one)
            left += inner
    for one in parts["normalizer"]:
        if one["type"] == "Precompiled":
            check_charsmap(one.get("precompiled_charsmap"))
        if one["type"] == "Replace" and not _is_harmless(one.get("pattern"), one.get("content")):
            raise Refused(f"its normalizer is {short_repr(one)}: it must be one of those without a pattern of its own")
    cut = parts["pre_tokenizer"]
    for one in cut:
        if one["type"] == "Metaspace" and one.get("replacement", "▁") != "▁":
            raise Refused(f"its Metaspace writes a space as {short_repr(one['replacement'])}: it must be '▁'")
    of_bytes = kind == "BPE" and not model.get("end_of_word_suffix")
    if of_bytes != any(one["type"] == "ByteLevel" for one in cut):
        raise Refused(
            f"its pre_tokenizer is {short_repr(values.get('pre_tokenizer'))}: it must be ByteLevel for a model of type "
            "'BPE', and for no other"
        )
    for one in parts["post_processor"]:
        if one["type"] == "TemplateProcessing" and not (
            _texts_of(one.get("single")) == ["A"] and _texts_of(one.get("pair")) == ["A", "B"]
        ):
            raise Refused(
                f"its post_processor is {short_repr(one)}: it must have each text once, and the first one first"
            )


def _texts_of(template: object) -> list[object]:
    """The texts that a template has, in its order; [None] if it is none."""
    parts = template if isinstance(template, list) else [template]
    if not all(isinstance(part, Mapping) for part in parts):
        return [None]
    texts = [_object("a part of its post_processor", part) for part in parts]
    return [_object("a text", text.get("Sequence")).get("id") for text in texts if "SpecialToken" not in text]


def _is_harmless(pattern: object, content: object) -> bool:
    """Whether a normalizer replaces some spaces by one, or signs that stand as they are by no more signs."""
    if pattern == SPACE_RUN_PATTERN:
        return content in (" ", "▁")
    signs = pattern.get("String") if isinstance(pattern, Mapping) and len(pattern) == 1 else None
    return isinstance(signs, str) and isinstance(content, str) and 0 < len(signs) <= 100 and len(content) <= len(signs)


def _word_pieces(model: Mapping[str, Any]) -> Sequence[object]:
    pieces = _numbered(model)
    unknown = model.get("unk_token", BERT_TOKENS["unk_token"])
    if not isinstance(unknown, str) or unknown not in pieces:
        raise Refused(f"its unk_token is {short_repr(unknown)}: it must be one of the vocabulary")
    require_int("its max_input_chars_per_word", model.get("max_input_chars_per_word", 100), 1, 1000)
    return pieces


def _byte_pairs(model: Mapping[str, Any]) -> Sequence[object]:
    pieces, merges = _numbered(model), model.get("merges")
    if not isinstance(merges, list) or len(merges) > MAX_PIECES:
        raise Refused(f"its merges are {short_repr(merges)}: they must be a list of at most {MAX_PIECES:,}")
    if model.get("dropout"):
        raise Refused(f"its dropout is {short_repr(model['dropout'])}: a text must always be cut alike")
    for affix, allowed in (("continuing_subword_prefix", ()), ("end_of_word_suffix", (WORD_END_SUFFIX,))):
        if model.get(affix) and model[affix] not in allowed:
            raise Refused(
                f"its {affix} is {short_repr(model[affix])}: pairs have none{''.join(f' but {a}' for a in allowed)}"
            )
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
    require_int("its unk_id", model.get("unk_id"), 0, len(pieces) - 1)
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
MODEL_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], Sequence[object]]] = {
    "WordPiece": _word_pieces, "BPE": _byte_pairs, "Unigram": _unigrams,
}  # fmt: skip
