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
from bert_core.spelling import BYTE_PIECES

TOKENIZER_FILE, VOCABULARY_FILE, SETTINGS_FILE = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
ADDED_FILE, SPECIAL_FILE = "added_tokens.json", "special_tokens_map.json"
MODEL_FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "sentencepiece.model", "spm.model")
TOKENIZER_FILES = (
    TOKENIZER_FILE, *BYTE_FILES, *TWEET_FILES, *MODEL_FILES, ADDED_FILE, SPECIAL_FILE, SETTINGS_FILE,
)  # fmt: skip
# Files any of which makes a tokenizer; the others only add to it.
PIECE_FILES = (TOKENIZER_FILE, *BYTE_FILES, *TWEET_FILES, *MODEL_FILES)

# The accepted patterns: those of files converted from SentencePiece, and of a DebertaV2Tokenizer.
SPACE_PATTERN = r"\s{2,}|[\n\r\t]"
SPACE_PATTERNS = ({"Regex": " {2,}"}, {"Regex": SPACE_PATTERN})
# The accepted parts of a tokenizer.json. Others may contain regular expressions whose matching never ends.
# `charsmap` checks binary tables, because the library aborts the program on an invalid one.
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
    "decoder": ("BPEDecoder", "ByteLevel", "Metaspace", "Sequence", "WordPiece"),
}  # fmt: skip
# Further parts, which are accepted with these settings only: those of Gemma's vocabulary, with byte fallback.
SPACE_NORMALIZER = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
EXACT_PARTS: Mapping[str, Sequence[object]] = {
    "pre_tokenizer": (
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    ),
    "decoder": (
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    ),
}  # fmt: skip
# The key under which a Sequence has its parts.
SEQUENCE_KEYS = {
    "normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors",
    "decoder": "decoders",
}  # fmt: skip

# Names of special tokens in the files of transformers, in the order in which it adds them to a vocabulary.
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
DEBERTA_V2_TOKENS = {**BERT_TOKENS, "bos_token": "[CLS]", "eos_token": "[SEP]"}
MPNET_TOKENS: Mapping[str, str | AddedToken] = {
    **ROBERTA_TOKENS,
    "unk_token": "[UNK]",
    "mask_token": AddedToken("<mask>", lstrip=True, special=True),
}
# Unsupported classes, and how to convert their files, for a message.
CONVERSION_ADVICE = {
    "BertJapaneseTokenizer": (
        "needs another program (MeCab, Sudachi or Juman++), which Headlight does not run: save a tokenizer.json of "
        "its vocab.txt by BertWordPieceTokenizer('vocab.txt', lowercase=False, handle_chinese_chars=False)"
        ".save('tokenizer.json') of the tokenizers library, set tokenizer_class to PreTrainedTokenizerFast, and type a "
        "space between words"
    ),
    "HerbertTokenizer": (
        "has its byte pairs with </w> at the end of a word in unsupported files: save a tokenizer.json by "
        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers"
    ),
}
CLASS_NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,80}")
# Names of classes that read tokenizer.json without changes.
GENERIC_CLASS_NAMES = ("PreTrainedTokenizer", "TokenizersBackend")
TWEET_CLASSES = ("BertweetTokenizer", "PhobertTokenizer")
# The tokenizer class of each `model_type`, if no file states one.
DEFAULT_CLASS_NAMES = {
    "bert": "BertTokenizer", "distilbert": "BertTokenizer", "electra": "BertTokenizer", "blip": "BertTokenizer",
    "roberta": "RobertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer",
    "albert": "AlbertTokenizer", "mpnet": "MPNetTokenizer", "deberta-v2": "DebertaV2Tokenizer",
}  # fmt: skip

Names = Mapping[str, str | AddedToken]


class UnsupportedTokenizer(Refused):
    """Tokenizer files that may be valid, but are of an unsupported kind."""


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer of the tokenizers library, and further information from its files.

    special_tokens: special tokens by their names in the files of transformers, such as "cls_token".
    notes: one sentence for each statement of the files that is not used.
    numbers: number in the vocabulary of each of the backend's tokens; empty if they are the same.
    files: texts of the original files by name, if the library's own format cannot represent them.
    """

    backend: tokenizers.Tokenizer
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    numbers: Sequence[int] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _FolderContent:
    """The merged content of a folder's tokenizer files.

    json_file: content of tokenizer.json; None if there is none.
    settings: settings of all files by name.
    added_tokens: tokens outside of the vocabulary, by number.
    """

    folder: Path
    json_file: Mapping[str, Any] | None
    settings: Mapping[str, Any]
    added_tokens: Mapping[int, AddedToken]

    def switch(self, name: str, default: bool) -> bool:
        """Return a boolean setting. Raises Refused if it has another type."""
        value = self.settings.get(name, default)
        if not isinstance(value, bool):
            raise Refused(f"{name} is {short_repr(value)}: it must be true or false")
        return value

    def model(self, kind: str) -> Mapping[str, Any]:
        """Return the model in tokenizer.json. Raises Refused if it is of another type."""
        model: Mapping[str, Any] = (self.json_file or {})["model"]
        if model.get("type", "WordPiece") != kind:
            raise Refused(
                f"its {TOKENIZER_FILE} has a model of type {short_repr(model.get('type'))}, but its tokenizer_class "
                f"needs {kind}: set tokenizer_class to PreTrainedTokenizerFast in {SETTINGS_FILE} to use the file "
                "without changes"
            )
        return model


@dataclass(frozen=True)
class _TokenizerClass:
    """A tokenizer class of transformers 5, and how to build its tokenizer.

    token_names: its special tokens by name, unless a file states others.
    build: builds the tokenizer without added tokens.
    frame: builds the post-processor, which adds special tokens to texts; None to keep that of the tokenizer.
    files: files that it reads if there is no tokenizer.json.
    extra_tokens: additional special tokens, if no file states any.
    """

    token_names: Names
    build: Callable[[_FolderContent, Names], tokenizers.Tokenizer]
    frame: Callable[[_FolderContent, Names, tokenizers.Tokenizer], Any]
    files: tuple[str, ...] = ()
    extra_tokens: tuple[str, ...] = ()

    @property
    def reads_sentencepiece(self) -> bool:
        """Whether its own file is a SentencePiece model, which transformers converts."""
        return self in (XLM_ROBERTA, CAMEMBERT, ALBERT, DEBERTA_V2)


def read_files(folder: Path) -> TokenizerFiles:
    """Read the tokenizer of a folder.

    If several files state the same setting, the one that transformers 5 uses takes precedence. It rebuilds a tokenizer
    of a class that it knows from the vocabulary in tokenizer.json and the settings in tokenizer_config.json. For any
    other class, it uses tokenizer.json without changes.
    Raises Refused if there is no tokenizer, or it is invalid or unsupported.
    """
    config, settings = (
        read_json_object(folder / name) if (folder / name).is_file() else {} for name in ("config.json", SETTINGS_FILE)
    )
    json_file = read_json_object(folder / TOKENIZER_FILE) if (folder / TOKENIZER_FILE).is_file() else None
    if json_file is not None:
        check_parts(json_file)
    name = _class_name(config, settings)
    if name == "BertJapaneseTokenizer" or (name == "HerbertTokenizer" and json_file is None):
        raise UnsupportedTokenizer(f"its tokenizer_class is {name}, which {CONVERSION_ADVICE[name]}")
    content = _FolderContent(folder, json_file, *_merge_files(folder, settings, json_file))
    if name in TWEET_CLASSES or (name is None and json_file is None and _has_files(folder, TWEET_FILES)):
        return _read_tweet_tokenizer(content)
    if name in CLASSES and (json_file is not None or _has_files(folder, CLASSES[name].files)):
        return _build_tokenizer(CLASSES[name], content)
    if name is None and json_file is None:
        if _has_files(folder, BYTE_FILES):
            return _build_tokenizer(ROBERTA, content)
        if _has_files(folder, BERT.files):
            return _build_tokenizer(_infer_class(read_vocabulary(folder / BERT.files[0])), content)
    if json_file is None:
        _check_complete(folder, BYTE_FILES, BYTE_FILES[::-1], TWEET_FILES[::-1])
    if not any((folder / file).is_file() for file in PIECE_FILES):
        raise UnsupportedTokenizer(f"{folder} has no tokenizer: neither tokenizer.json nor vocab.txt")
    is_known = name in CLASSES and not CLASSES[name].reads_sentencepiece
    if name is not None and name not in GENERIC_CLASS_NAMES and not is_known:
        try:
            converted = convert_tokenizer(folder, name)
        except Refused as error:
            raise UnsupportedTokenizer(str(error)) from error
        if converted is not None:
            check_parts(json.loads(converted[0]))
            return TokenizerFiles(tokenizers.Tokenizer.from_str(converted[0]), converted[1])
    if json_file is not None:
        return _build_tokenizer(GENERIC, content)
    if name is None:
        raise UnsupportedTokenizer(
            f"{folder} has only the model file of SentencePiece: load it with transformers' AutoTokenizer and "
            "save it there, which writes the tokenizer.json that is read"
        )
    required_files = " with ".join(CLASSES[name].files) if name in CLASSES else "what is here"
    raise UnsupportedTokenizer(
        f"its tokenizer_class is {name}, which is not read from "
        f"{'other files than ' * (name in CLASSES)}{required_files}: "
        "save a tokenizer.json by AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers"
    )


def _class_name(config: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """Return the name of the tokenizer class of a folder; None if no file states one."""
    class_name = settings.get("tokenizer_class") or config.get("tokenizer_class")
    if class_name is None:
        return DEFAULT_CLASS_NAMES.get(str(config.get("model_type")))
    if not isinstance(class_name, str) or not CLASS_NAME_PATTERN.fullmatch(class_name):
        raise Refused(
            f"tokenizer_class is {short_repr(class_name)}: it must be the name of a class, such as BertTokenizer"
        )
    name = class_name.removesuffix("Fast")
    return CLASS_ALIASES.get(name, name)


def _merge_files(
    folder: Path, settings: Mapping[str, Any], json_file: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[int, AddedToken]]:
    """Return the settings of all files, and the added tokens by number.

    The files for added and special tokens are used only if tokenizer_config.json has no added_tokens_decoder.
    """
    merged = {key: value for key, value in settings.items() if key != "tokenizer_class"}
    if "additional_special_tokens" in merged and not merged.get("extra_special_tokens"):
        merged["extra_special_tokens"] = merged.pop("additional_special_tokens")
    added_tokens: dict[int, AddedToken] = {}
    if "added_tokens_decoder" in merged:
        for number, token in _require_object("added_tokens_decoder", merged["added_tokens_decoder"]).items():
            if not number.isdecimal() or len(number) > 9:
                raise Refused(
                    f"added_tokens_decoder gives {short_repr(token)} the number {short_repr(number)}: it must be a "
                    "whole number"
                )
            added_tokens[int(number)] = _parse_added_token("added_tokens_decoder", token)
    else:
        if (folder / SPECIAL_FILE).is_file():
            for key, value in read_json_object(folder / SPECIAL_FILE).items():
                if isinstance(value, Mapping) and key != "extra_special_tokens":
                    value = _parse_added_token(key, {**value, "special": True})
                elif key == "extra_special_tokens" and isinstance(value, list):
                    tokens = [
                        _parse_added_token(key, {**token, "special": True}) if isinstance(token, Mapping) else token
                        for token in value
                    ]
                    present = merged.get(key) or []
                    value = [*present, *(token for token in tokens if token not in present)]
                merged[key] = value
        special = {_token_text(merged[key]) for key in TOKEN_NAMES if merged.get(key)}
        extra_tokens = merged.get("extra_special_tokens")
        special |= {_token_text(token) for token in extra_tokens} if isinstance(extra_tokens, list) else set()
        if (folder / ADDED_FILE).is_file():
            for text, value in read_json_object(folder / ADDED_FILE).items():
                token_number = require_int(f"the number of {short_repr(text)} in {ADDED_FILE}", value)
                added_tokens[token_number] = AddedToken(text, normalized=text not in special, special=text in special)
        for token in (json_file or {}).get("added_tokens") or []:
            token_number = require_int("the id of an added token", _require_object("an added token", token).get("id"))
            fields = {key: value for key, value in token.items() if key != "id"}
            added_tokens[token_number] = _parse_added_token("an added token", fields)
    token_by_text = {token.content: token for token in added_tokens.values()}
    for key in TOKEN_NAMES:
        if merged.get(key) is not None:
            token = _parse_token(key, merged[key])
            merged[key] = token_by_text.get(_token_text(token), token)
    return merged, added_tokens


def _build_tokenizer(kind: _TokenizerClass, content: _FolderContent) -> TokenizerFiles:
    """Build the tokenizer of a class, and add the added tokens in the order of transformers."""
    named_tokens: dict[str, str | AddedToken] = dict(kind.token_names)
    named_tokens |= {key: content.settings[key] for key in TOKEN_NAMES if content.settings.get(key) is not None}
    null_names = [key for key in kind.token_names if key in content.settings and content.settings[key] is None]
    for key in null_names:
        if key in REQUIRED_TOKEN_NAMES or kind.frame is ONE_SEGMENT_FRAME:
            raise Refused(f"{key} is null: its tokenizer_class needs a token")
        del named_tokens[key]
    backend = kind.build(content, named_tokens)
    declared = {token.content for token in content.added_tokens.values()}
    missing = [
        text
        for key in REQUIRED_TOKEN_NAMES
        if key in named_tokens
        and (text := _token_text(named_tokens[key])) not in declared
        and backend.token_to_id(text) is None
    ]
    if missing:
        raise Refused(
            f"the vocabulary has no {', '.join(missing)}: a BERT's vocabulary has "
            f"{', '.join(_token_text(named_tokens[key]) for key in REQUIRED_TOKEN_NAMES)}"
        )
    extra_tokens = _extra_tokens(kind, content.settings)
    model_tokens = _model_specific_tokens(content.settings)
    candidates: list[str | AddedToken] = [token for _, token in sorted(content.added_tokens.items())]
    present = {token.content for token in backend.get_added_tokens_decoder().values()} | declared
    special_tokens = [*(named_tokens[key] for key in TOKEN_NAMES if key in named_tokens), *model_tokens]
    # A token that is stated both as a text and as an object is added twice, and the second takes precedence.
    for token in (*special_tokens, *extra_tokens):
        if _token_text(token) not in present and token not in candidates:
            candidates.append(token)
    tokens = [token if isinstance(token, AddedToken) else AddedToken(token, special=True) for token in candidates]
    present |= {token.content for token in tokens}
    special_texts = {_token_text(token) for token in special_tokens}
    for token in tokens:
        if token.content in special_texts:
            token.special = True
    backend.add_tokens(tokens)
    frame = kind.frame(content, named_tokens, backend)
    if frame is not None:
        backend.post_processor = frame
    backend.encode_special_tokens = content.switch("split_special_tokens", False)
    names = {key: _token_text(token) for key, token in named_tokens.items()}
    return TokenizerFiles(backend, names, tuple(_notes(content, backend, present)))


def _notes(content: _FolderContent, backend: tokenizers.Tokenizer, added: set[str]) -> Iterator[str]:
    """Yield one sentence for each statement of the files that transformers does not use.

    added: texts of the added tokens.
    """
    never_split = content.settings.get("never_split") or []
    if isinstance(never_split, list) and (split_words := [word for word in never_split if word not in added]):
        yield (
            f"never_split names {short_repr(split_words[0])}, which is split all the same, as by transformers: only "
            "added tokens stay whole"
        )
    json_file = content.json_file
    if json_file is not None and _normalize_sample(json_file.get("normalizer")) != _apply_to_sample(backend.normalizer):
        yield (
            f"{TOKENIZER_FILE} alone would treat case, accents or spaces differently: texts are read as transformers "
            f"reads them, by the tokenizer class and the settings in {SETTINGS_FILE}"
        )


def _normalize_sample(part: object) -> str:
    """Return a sample text after the normalizer of a tokenizer.json."""
    minimal_model = {
        "type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 1,
    }  # fmt: skip
    minimal_file = {"version": "1.0", "added_tokens": [], "normalizer": part, "model": minimal_model}
    return _apply_to_sample(tokenizers.Tokenizer.from_str(json.dumps(minimal_file)).normalizer)


def _apply_to_sample(normalizer: Any) -> str:
    """Return a sample text with cases, accents, wide characters and symbols after a normalizer."""
    text = "Aé 猫犬 ½"
    return text if normalizer is None else str(normalizer.normalize_str(text))


def _extra_tokens(kind: _TokenizerClass, settings: Mapping[str, Any]) -> list[str | AddedToken]:
    """Return the special tokens without a name."""
    extra_tokens = settings.get("extra_special_tokens")
    # A mapping has special tokens with names, which `_model_specific_tokens` returns.
    if "extra_special_tokens" not in settings or isinstance(extra_tokens, Mapping):
        extra_tokens = settings.get("additional_special_tokens", list(kind.extra_tokens))
    if extra_tokens is None:
        return []
    if not isinstance(extra_tokens, list):
        raise Refused(f"extra_special_tokens is {short_repr(extra_tokens)}: it must be a list of tokens")
    return [_parse_token("extra_special_tokens", token) for token in extra_tokens]


def _model_specific_tokens(settings: Mapping[str, Any]) -> list[str | AddedToken]:
    """Return the special tokens with names that only this model has, such as "entity_token"."""
    extra_tokens = settings.get("extra_special_tokens")
    named_tokens = extra_tokens if isinstance(extra_tokens, Mapping) else {}
    tokens = {
        key: value
        for key, value in settings.items()
        if key.endswith("_token")
        and key not in TOKEN_NAMES
        and (isinstance(value, str | AddedToken) or _is_token_object(value))
    }
    return [_parse_token(key, value) for key, value in {**tokens, **named_tokens}.items()]


def _require_object(name: str, value: object) -> Mapping[str, Any]:
    """Return a JSON object. Raises Refused if the value is not one."""
    if not isinstance(value, Mapping):
        raise Refused(f"{name} is {short_repr(value)}: it must be an object")
    return value


def _is_token_object(value: object) -> bool:
    """Return whether a value is a token in the notation of an object."""
    return isinstance(value, Mapping) and value.get("__type") == "AddedToken"


def _parse_token(name: str, value: object) -> str | AddedToken:
    """Return a token that a file states as a text or an object. Raises Refused for other values."""
    if isinstance(value, str | AddedToken):
        return value
    if not _is_token_object(value):
        raise Refused(f"{name} is {short_repr(value)}: it must be a token")
    fields = {key: field_value for key, field_value in _require_object(name, value).items() if key != "__type"}
    return _parse_added_token(name, fields)


def _parse_added_token(name: str, value: object) -> AddedToken:
    """Return a token from an object with its content and flags. Raises Refused if a field is invalid."""
    fields = _require_object(name, value)
    text, flags = fields.get("content"), {key: flag for key, flag in fields.items() if key != "content"}
    if not isinstance(text, str) or not all(k in TOKEN_FLAGS and isinstance(f, bool) for k, f in flags.items()):
        raise Refused(
            f"{name} has {short_repr(value)}: it must have a content, and {', '.join(TOKEN_FLAGS)} true or false"
        )
    return AddedToken(text, **flags)


def _token_text(token: object) -> str:
    """Return the text of a token."""
    return token.content if isinstance(token, AddedToken) else str(token)


def _has_files(folder: Path, names: Sequence[str]) -> bool:
    """Return whether a folder has all of these files, of which there must be at least one."""
    return bool(names) and all((folder / name).is_file() for name in names)


def _check_complete(folder: Path, *pairs: tuple[str, str]) -> None:
    """Raise UnsupportedTokenizer if a folder has the first file of a pair without the second."""
    for present, missing in pairs:
        if _has_files(folder, (present,)) and not _has_files(folder, (missing,)):
            raise UnsupportedTokenizer(f"{folder} has {present} and no {missing}: the two are read together")


# ---------------------------------------------------------------------------- classes


def read_vocabulary(path: Path) -> dict[str, int]:
    """Return the number of each piece in a `vocab.txt`, which has one piece per line.

    Raises Refused if there are too many lines, or a piece occurs twice.
    """
    text = read_text(path, MAX_JSON_BYTES)
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines > MAX_PIECES:
        raise Refused(f"{path.name} has {lines:,} lines: at most {MAX_PIECES:,} are read")
    pieces: dict[str, int] = WordPiece.read_file(str(path))
    if pieces and len(pieces) < lines:
        raise Refused(f"{path.name} has {lines:,} lines and {len(pieces):,} pieces: each piece must occur once")
    return pieces


def _build_bert(content: _FolderContent, token_names: Names) -> tokenizers.Tokenizer:
    """Build a BertTokenizer (Devlin 2019)."""
    strip_accents = content.settings.get("strip_accents")
    if not isinstance(strip_accents, bool | None):
        raise Refused(f"strip_accents is {short_repr(strip_accents)}: it must be true or false")
    pieces = (
        read_vocabulary(content.folder / VOCABULARY_FILE)
        if content.json_file is None
        else content.model("WordPiece")["vocab"]
    )
    backend = tokenizers.Tokenizer(WordPiece(pieces, unk_token=_token_text(token_names["unk_token"])))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=content.switch("tokenize_chinese_chars", True),
        strip_accents=strip_accents, lowercase=content.switch("do_lower_case", True),
    )  # fmt: skip
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def _build_roberta(content: _FolderContent, token_names: Names) -> tokenizers.Tokenizer:
    """Build a RobertaTokenizer with byte-level BPE (Radford 2019, section 2.2)."""
    if content.json_file is None:
        pieces, merges = read_byte_pairs(content.folder)
    else:
        pieces, merges = _read_merges(content.model("BPE"))
    backend = tokenizers.Tokenizer(
        BPE(pieces, merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=content.switch("add_prefix_space", False))
    backend.decoder = decoders.ByteLevel()
    return backend


def _unigram_builder(
    unknown_number: Callable[[Sequence[Sequence[Any]], Names], int], *, normalizes: bool = False
) -> Callable[[_FolderContent, Names], tokenizers.Tokenizer]:
    """Return the builder of a class with SentencePiece's unigram model (Kudo 2018, arXiv:1808.06226).

    unknown_number: returns the number of the unknown piece.
    normalizes: whether quotes, accents and case are normalized first, as for ALBERT.
    """

    def build(content: _FolderContent, token_names: Names) -> tokenizers.Tokenizer:
        pieces = [(piece, score) for piece, score in content.model("Unigram")["vocab"]]
        backend = tokenizers.Tokenizer(Unigram(pieces, unknown_number(pieces, token_names), byte_fallback=False))
        parts: list[Any] = []
        if normalizes:
            parts += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
            parts += [] if content.switch("keep_accents", False) else [normalizers.NFKD(), normalizers.StripAccents()]
            parts += [normalizers.Lowercase()] if content.switch("do_lower_case", True) else []
        table = _find_charsmap((content.json_file or {}).get("normalizer"))
        parts += [] if table is None else [normalizers.Precompiled(base64.b64decode(table))]
        if normalizes:
            backend.normalizer = normalizers.Sequence(parts)
        elif parts:
            backend.normalizer = parts[0]
        scheme = "always" if content.switch("add_prefix_space", True) else "never"
        spaces = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
        backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
        return backend

    return build


def _build_deberta_v2(content: _FolderContent, token_names: Names) -> tokenizers.Tokenizer:
    """Build a DebertaV2Tokenizer, which reads spaces in its own way."""
    pieces = [(piece, score) for piece, score in content.model("Unigram")["vocab"]]
    unknown = (_token_text(token_names["unk_token"]), 0.0)
    default = require_int("unk_id", content.settings.get("unk_id", 1), 0, max(0, len(pieces) - 1))
    number = pieces.index(unknown) if unknown in pieces else default
    backend = tokenizers.Tokenizer(Unigram(pieces, number, byte_fallback=False))
    parts: list[Any] = [normalizers.Lowercase()] if content.switch("do_lower_case", False) else []
    parts += [normalizers.Replace(tokenizers.Regex(SPACE_PATTERN), " "), normalizers.NFC()]
    backend.normalizer = normalizers.Sequence([*parts, normalizers.Strip(left=False, right=True)])
    scheme = "always" if content.switch("add_prefix_space", True) else "first"
    spaces = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    marks = [pre_tokenizers.Punctuation(behavior="isolated")] if content.switch("split_by_punct", False) else []
    backend.pre_tokenizer = pre_tokenizers.Sequence([*marks, spaces])
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    return backend


def _find_charsmap(normalizer: object) -> str | None:
    """Return the first character table of a normalizer, or None. As transformers does, it ignores nested Sequences."""
    if not isinstance(normalizer, Mapping):
        return None
    parts = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    return next((part["precompiled_charsmap"] for part in parts if part["type"] == "Precompiled"), None)


def _read_merges(model: Mapping[str, Any]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the pieces and merges of a model in tokenizer.json. Older files have merges as texts with a space."""
    pairs = [pair.split(" ") if isinstance(pair, str) else require_sequence("a merge", pair, "two pieces")
             for pair in model["merges"]]  # fmt: skip
    if not all(len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in pairs):
        raise Refused("its merges must be pairs of two pieces")
    return dict(model["vocab"]), [(left, right) for left, right in pairs]


def _build_herbert(content: _FolderContent, token_names: Names) -> tokenizers.Tokenizer:
    """Build a HerbertTokenizer with character-level BPE, which marks the last piece of a word with `</w>`."""
    pieces, merges = _read_merges(content.model("BPE"))
    backend = tokenizers.Tokenizer(
        BPE(pieces, merges, unk_token=_token_text(token_names["unk_token"]), end_of_word_suffix=WORD_END_SUFFIX)
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(WORD_END_SUFFIX)
    return backend


def _load_json_tokenizer(content: _FolderContent, token_names: Names) -> tokenizers.Tokenizer:
    """Load tokenizer.json without changes."""
    return tokenizers.Tokenizer.from_file(str(content.folder / TOKENIZER_FILE))


def _template_frame(
    single: str, pair: str, first_name: str = "cls_token", last_name: str = "sep_token"
) -> Callable[[_FolderContent, Names, tokenizers.Tokenizer], Any]:
    """Return the builder of a post-processor from templates, in which F and L stand for two special tokens."""

    def frame(content: _FolderContent, token_names: Names, backend: tokenizers.Tokenizer) -> Any:
        first, last = _token_text(token_names[first_name]), _token_text(token_names[last_name])
        templates = [
            " ".join(
                {"F": first, "L": last}.get(part[0], part[0]) + part[1:] if part[0] in "FL" else part
                for part in text.split()
            )
            for text in (single, pair)
        ]
        tokens = [_numbered_token(backend, token) for token in (first, last)]
        return processors.TemplateProcessing(single=templates[0], pair=templates[1], special_tokens=tokens)

    return frame


def _roberta_frame(content: _FolderContent, token_names: Names, backend: tokenizers.Tokenizer) -> Any:
    """Build the post-processor of a RobertaTokenizer."""
    last, first = (_numbered_token(backend, token_names[key]) for key in ("sep_token", "cls_token"))
    trim_offsets = content.switch("trim_offsets", True)
    return processors.RobertaProcessing(last, first, trim_offsets, content.switch("add_prefix_space", False))


def _mpnet_frame(content: _FolderContent, token_names: Names, backend: tokenizers.Tokenizer) -> Any:
    """Build the post-processor of an MPNetTokenizer."""
    last, first = (_numbered_token(backend, token_names[key]) for key in ("sep_token", "cls_token"))
    return processors.RobertaProcessing(last, first, trim_offsets=True, add_prefix_space=False)


def _numbered_token(backend: tokenizers.Tokenizer, token: str | AddedToken) -> tuple[str, int]:
    """Return the text and number of a special token. Raises Refused if the vocabulary does not contain it."""
    text = _token_text(token)
    number = backend.token_to_id(text)
    if number is None:
        raise Refused(f"the vocabulary has no {text}")
    return text, int(number)


def _albert_frame(content: _FolderContent, token_names: Names, backend: tokenizers.Tokenizer) -> Any:
    """Return the post-processor of tokenizer.json, or that for two segments if it has none."""
    if content.json_file is not None and content.json_file.get("post_processor") is not None:
        return tokenizers.Tokenizer.from_file(str(content.folder / TOKENIZER_FILE)).post_processor
    return TWO_SEGMENT_FRAME(content, token_names, backend)


def _herbert_frame(content: _FolderContent, token_names: Names, backend: tokenizers.Tokenizer) -> Any:
    """Build the post-processor of a HerbertTokenizer."""
    last, first = (_token_text(token_names[key]) for key in ("sep_token", "cls_token"))
    return processors.BertProcessing((last, 2), (first, 0))


def _default_frame(content: _FolderContent, token_names: Names, backend: tokenizers.Tokenizer) -> Any:
    """Return None if the tokenizer has a post-processor, otherwise one without special tokens and with two segments."""
    if backend.post_processor is None:
        return processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    return None


def _find_unknown_piece(pieces: Sequence[Sequence[Any]], token_names: Names) -> int:
    """Return the number of the unknown piece of a CamembertTokenizer; 0 if it is missing."""
    unknown = _token_text(token_names["unk_token"])
    return next((number for number, piece in enumerate(pieces) if piece[0] == unknown), 0)


TWO_SEGMENT_FRAME = _template_frame("F:0 $A:0 L:0", "F:0 $A:0 L:0 $B:1 L:1")
ONE_SEGMENT_FRAME = _template_frame("F $A L", "F $A L L $B L", "bos_token", "eos_token")
BERT = _TokenizerClass(BERT_TOKENS, _build_bert, TWO_SEGMENT_FRAME, files=(VOCABULARY_FILE,))
ROBERTA = _TokenizerClass(ROBERTA_TOKENS, _build_roberta, _roberta_frame, files=BYTE_FILES)
XLM_ROBERTA = _TokenizerClass(ROBERTA_TOKENS, _unigram_builder(lambda pieces, token_names: 3), ONE_SEGMENT_FRAME)
CAMEMBERT = _TokenizerClass(
    {**ROBERTA_TOKENS, "mask_token": AddedToken("<mask>", lstrip=True, special=True)},
    _unigram_builder(_find_unknown_piece),
    ONE_SEGMENT_FRAME,
    extra_tokens=("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"),
)
ALBERT = _TokenizerClass(ALBERT_TOKENS, _unigram_builder(lambda pieces, token_names: 1, normalizes=True), _albert_frame)
MPNET = _TokenizerClass(MPNET_TOKENS, _build_bert, _mpnet_frame, files=(VOCABULARY_FILE,))
DEBERTA_V2 = _TokenizerClass(DEBERTA_V2_TOKENS, _build_deberta_v2, TWO_SEGMENT_FRAME)
HERBERT = _TokenizerClass({**ROBERTA_TOKENS}, _build_herbert, _herbert_frame)
GENERIC = _TokenizerClass({}, _load_json_tokenizer, _default_frame)
CLASSES = {
    "BertTokenizer": BERT, "RobertaTokenizer": ROBERTA, "XLMRobertaTokenizer": XLM_ROBERTA,
    "CamembertTokenizer": CAMEMBERT, "AlbertTokenizer": ALBERT, "HerbertTokenizer": HERBERT,
    "MPNetTokenizer": MPNET, "DebertaV2Tokenizer": DEBERTA_V2,
}  # fmt: skip
# Classes that transformers builds in the same way as another class.
CLASS_ALIASES = {
    **dict.fromkeys(
        ("DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "ConvBertTokenizer", "LayoutLMTokenizer",
         "LxmertTokenizer", "SqueezeBertTokenizer", "DPRQuestionEncoderTokenizer", "DPRContextEncoderTokenizer"),
        "BertTokenizer",
    ),
    **dict.fromkeys(("LongformerTokenizer", "BartTokenizer"), "RobertaTokenizer"),
}  # fmt: skip


def _infer_class(pieces: Mapping[str, int]) -> _TokenizerClass:
    """Return the class of a vocab.txt without other files, by the special tokens in its vocabulary."""
    token_names = {
        key: token if token in pieces or ROBERTA_TOKENS[key] not in pieces else ROBERTA_TOKENS[key]
        for key, token in BERT_TOKENS.items()
    }
    has_bert_tokens = token_names["cls_token"] == BERT_TOKENS["cls_token"]
    frame = TWO_SEGMENT_FRAME if has_bert_tokens else _template_frame("F $A L", "F $A L L $B L")
    return _TokenizerClass(token_names, _build_bert, frame, files=BERT.files)


def _read_tweet_tokenizer(content: _FolderContent) -> TokenizerFiles:
    """Read the two files of a BERTweet or PhoBERT."""
    if not _has_files(content.folder, TWEET_FILES):
        _check_complete(content.folder, TWEET_FILES[::-1], TWEET_FILES)
        raise UnsupportedTokenizer(f"{content.folder} has no tokenizer: neither {' nor '.join(TWEET_FILES)}")
    if content.switch("split_special_tokens", False):
        raise UnsupportedTokenizer(f"split_special_tokens is true: with {' and '.join(TWEET_FILES)} it must be false")
    backend, numbers, files = read_tweet_pieces(content.folder, content.settings)
    tokens = [
        *content.added_tokens.values(),
        *(content.settings[key] for key in TOKEN_NAMES if content.settings.get(key) is not None),
        *_extra_tokens(ROBERTA, content.settings),
        *_model_specific_tokens(content.settings),
    ]
    allowed = set(map(_token_text, ROBERTA_TOKENS.values()))
    if added := [text for token in tokens if (text := _token_text(token)) not in allowed]:
        raise UnsupportedTokenizer(
            f"its files add the token {short_repr(added[0])}: with {' and '.join(TWEET_FILES)}, added tokens are not "
            "supported"
        )
    backend.post_processor = _template_frame("F $A L", "F $A L L $B L")(content, ROBERTA_TOKENS, backend)
    return TokenizerFiles(backend, dict(ROBERTA_TOKENS), numbers=numbers, files=files)


# ---------------------------------------------------------------------------- tokenizer.json


def check_parts(values: Mapping[str, Any]) -> None:
    """Raise Refused if the content of a `tokenizer.json` is of an unsupported kind or has an unsafe part.

    Unsafe parts are those whose running time has no bound, or at which the tokenizers library aborts the program.
    """
    model = values.get("model")
    kind = model.get("type", "WordPiece") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or kind not in MODEL_CHECKS:
        raise Refused(f"its model is {short_repr(model)}: it must be of type {', '.join(map(repr, MODEL_CHECKS))}")
    pieces = MODEL_CHECKS[str(kind)](model)
    added_tokens = values.get("added_tokens") or []
    if not isinstance(added_tokens, list) or len(added_tokens) + len(pieces) > MAX_PIECES:
        raise Refused(f"its added_tokens must be a list, and with its vocabulary at most {MAX_PIECES:,}")
    parts_by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for part_kind, allowed_types in ALLOWED_PARTS.items():
        pending, parts = [values.get(part_kind)], parts_by_kind.setdefault(part_kind, [])
        while pending:
            part = pending.pop()
            if part is None:
                continue
            part_type = part.get("type") if isinstance(part, Mapping) else part
            if part_type not in allowed_types and part not in EXACT_PARTS.get(part_kind, ()):
                raise Refused(
                    f"its {part_kind} is {short_repr(part_type)}: one of {', '.join(allowed_types)} is supported"
                )
            inner_parts = part.get(SEQUENCE_KEYS[part_kind]) if part_type == "Sequence" else []
            if not isinstance(inner_parts, list):
                raise Refused(f"its {part_kind} is a Sequence of {short_repr(inner_parts)}: it must be of a list")
            parts.append(part)
            pending += inner_parts
    for part in parts_by_kind["normalizer"]:
        if part["type"] == "Precompiled":
            check_charsmap(part.get("precompiled_charsmap"))
        if part["type"] == "Replace" and not _is_safe_replacement(part.get("pattern"), part.get("content")):
            raise Refused(f"its normalizer is {short_repr(part)}: it must be one of those without a pattern of its own")
    for part in parts_by_kind["pre_tokenizer"]:
        if part["type"] == "Metaspace" and part.get("replacement", "▁") != "▁":
            raise Refused(f"its Metaspace writes a space as {short_repr(part['replacement'])}: it must be '▁'")
    pre_tokenizer_types = {part["type"] for part in parts_by_kind["pre_tokenizer"]}
    has_byte_level = "ByteLevel" in pre_tokenizer_types
    if kind == "BPE" and model.get("byte_fallback"):
        writes_spaces = "Metaspace" in pre_tokenizer_types or SPACE_NORMALIZER in parts_by_kind["normalizer"]
        if has_byte_level or not writes_spaces:
            raise Refused(
                f"its byte_fallback is true and its pre_tokenizer {short_repr(values.get('pre_tokenizer'))}: Metaspace "
                "or a Replace in the normalizer must write a space as '▁', and no part may be ByteLevel"
            )
    elif (kind == "BPE" and not model.get("end_of_word_suffix")) != has_byte_level:
        raise Refused(
            f"its pre_tokenizer is {short_repr(values.get('pre_tokenizer'))}: it must be ByteLevel for a model of type "
            "'BPE', and for no other"
        )
    for part in parts_by_kind["post_processor"]:
        if part["type"] == "TemplateProcessing" and not (
            _template_texts(part.get("single")) == ["A"] and _template_texts(part.get("pair")) == ["A", "B"]
        ):
            raise Refused(
                f"its post_processor is {short_repr(part)}: it must have each text once, and the first one first"
            )


def _template_texts(template: object) -> list[object]:
    """Return the texts of a template in order, or [None] if the value is not a template."""
    parts = template if isinstance(template, list) else [template]
    if not all(isinstance(part, Mapping) for part in parts):
        return [None]
    texts = [_require_object("a part of its post_processor", part) for part in parts]
    return [_require_object("a text", text.get("Sequence")).get("id") for text in texts if "SpecialToken" not in text]


def _is_safe_replacement(pattern: object, content: object) -> bool:
    """Return whether a normalizer replaces a run of spaces by one, or a fixed string by one that is no longer."""
    if pattern in SPACE_PATTERNS:
        return content in (" ", "▁")
    text = pattern.get("String") if isinstance(pattern, Mapping) and len(pattern) == 1 else None
    return isinstance(text, str) and isinstance(content, str) and 0 < len(text) <= 100 and len(content) <= len(text)


def _check_word_piece(model: Mapping[str, Any]) -> Sequence[object]:
    """Return the pieces of a WordPiece model. Raises Refused if it is invalid."""
    pieces = _numbered_pieces(model)
    unknown = model.get("unk_token", BERT_TOKENS["unk_token"])
    if not isinstance(unknown, str) or unknown not in pieces:
        raise Refused(f"its unk_token is {short_repr(unknown)}: it must be one of the vocabulary")
    require_int("its max_input_chars_per_word", model.get("max_input_chars_per_word", 100), 1, 1000)
    return pieces


def _check_byte_pairs(model: Mapping[str, Any]) -> Sequence[object]:
    """Return the pieces of a BPE model. Raises Refused if it is invalid."""
    pieces, merges = _numbered_pieces(model), model.get("merges")
    if not isinstance(merges, list) or len(merges) > MAX_PIECES:
        raise Refused(f"its merges are {short_repr(merges)}: they must be a list of at most {MAX_PIECES:,}")
    if model.get("dropout"):
        raise Refused(
            f"its dropout is {short_repr(model['dropout'])}: it must be 0, so that tokenization is not random"
        )
    for affix, allowed in (("continuing_subword_prefix", ()), ("end_of_word_suffix", (WORD_END_SUFFIX,))):
        if model.get(affix) and model[affix] not in allowed:
            exceptions = "".join(f" or {value}" for value in allowed)
            raise Refused(f"its {affix} is {short_repr(model[affix])}: it must be empty{exceptions}")
    if model.get("byte_fallback"):
        _check_byte_fallback(model, set(pieces))
    return pieces


def _check_byte_fallback(model: Mapping[str, Any], pieces: set[str]) -> None:
    """Raise Refused if a BPE model cannot represent every character, by a piece of its own or by its bytes."""
    unknown = model.get("unk_token")
    if not isinstance(unknown, str) or unknown not in pieces:
        raise Refused(f"its unk_token is {short_repr(unknown)}: with byte_fallback it must be one of the vocabulary")
    if model.get("end_of_word_suffix"):
        raise Refused("its byte_fallback is true beside an end_of_word_suffix: one of the two is supported")
    # Gemma's vocabulary has the tab itself instead of its byte.
    own_pieces = {ord(piece) for piece in pieces if len(piece) == 1 and piece.isascii()}
    missing = [piece for number, piece in enumerate(BYTE_PIECES) if piece not in pieces and number not in own_pieces]
    if missing:
        raise Refused(f"its byte_fallback is true and its vocabulary has no {missing[0]}: it must have every byte")


def _check_unigrams(model: Mapping[str, Any]) -> Sequence[object]:
    """Return the pieces of a Unigram model. Raises Refused if it is invalid."""
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, list) or not all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and _is_finite_number(entry[1])
        for entry in vocabulary
    ):
        raise Refused("its vocabulary must be a list of pieces, each with its score")
    pieces = [entry[0] for entry in vocabulary]
    if len(set(pieces)) < len(pieces):
        raise Refused("its vocabulary must have each piece once")
    require_int("its unk_id", model.get("unk_id"), 0, len(pieces) - 1)
    if model.get("byte_fallback"):
        raise Refused("its byte_fallback is true: it must be false for a model of type 'Unigram'")
    return pieces


def _numbered_pieces(model: Mapping[str, Any]) -> list[str]:
    """Return the pieces of a vocabulary with numbers. Raises Refused if the numbers are not 0, 1, 2, ..."""
    vocabulary = model.get("vocab")
    numbers = list(vocabulary.values()) if isinstance(vocabulary, Mapping) else []
    if not all(type(number) is int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
        raise Refused("its vocabulary must give every piece a number, from 0 on, each once")
    return list(vocabulary) if isinstance(vocabulary, Mapping) else []


def _is_finite_number(value: object) -> bool:
    """Return whether a value is a finite int or float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# The functions that check the model of a tokenizer.json, by its type. They return the pieces.
MODEL_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], Sequence[object]]] = {
    "WordPiece": _check_word_piece, "BPE": _check_byte_pairs, "Unigram": _check_unigrams,
}  # fmt: skip
