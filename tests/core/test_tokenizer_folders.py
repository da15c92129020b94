"""Tokenizer folders, families by settings by layouts: each is read as AutoTokenizer reads it, or refused."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from tokenizers import normalizers, pre_tokenizers, processors
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
from tokenizers.models import WordPiece
from transformers.convert_slow_tokenizer import import_protobuf

from bert_core import Refused, Tokenizer
from tests.families import save_byte_files, save_tokenizer, save_tweet_pieces, sentences, signs

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the cat sat on a mat Cat SAT Zürich zurich café cafe 東京 任务 完成 covid new york".split()  # noqa: SIM905
MARKERS = ["[E1]", "[/E1]", "<ent>", "@USER", "covid", "New York"]
FLAGS = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
Make = Callable[[Path], None]


@cache
def pieces() -> list[str]:
    """Word pieces that cover the texts, but for some scripts: these are unknown."""
    letters = [sign for sign in signs() if ord(sign) < 0x500 or 0x4E00 <= ord(sign) < 0x6000]
    lower = sorted(
        {sign for letter in letters for sign in letter.lower()} | set("abcdefghijklmnopqrstuvwxyz0123456789")
    )
    both = dict.fromkeys([*letters, *lower, *"[]/<>@#!?.,'\"", *"東京任务完成", "é", "ü"])
    return list(dict.fromkeys([*SPECIAL, *both, *(f"##{sign}" for sign in both), *WORDS, "##s", "##at"]))


@cache
def texts() -> list[tuple[str, str | None]]:
    """300 texts, every third a pair: ten languages, markers inside and beside words, spaces, controls and cases."""
    rng = random.Random(0)
    odd = [
        "ZÜRICH",
        "é",
        "e\u0301",
        "任务完成",
        "東京都に行く",
        "😀",
        "\u00a0",
        "\t",
        "  ",
        "\n",
        "a\u200bb",
        "\x00x",
        "½",
        "ﬁ",
        "İ",
        "ß",
    ]
    found: list[tuple[str, str | None]] = []
    while len(found) < 300:
        parts = [rng.choice([*sentences(), *WORDS * 6, *MARKERS * 8, *odd * 3, *SPECIAL * 2, "<s>", "</s>", "<mask>"])
                 for _ in range(rng.randint(2, 7))]  # fmt: skip
        text = "".join(part + rng.choice([" ", " ", " ", "", "."]) for part in parts)
        pair = None if len(found) % 3 else rng.choice(sentences()) + " " + rng.choice(MARKERS)
        found.append((f"the {text}", pair))
    return found


def write(folder: Path, **files: Any) -> None:
    """Files by name, with _ for the dot: lists as lines, texts as they are, and else JSON."""
    for name, content in files.items():
        stem, _, ending = name.rpartition("_")
        text = "\n".join(content) + "\n" if isinstance(content, list) else content
        written = text if isinstance(text, str) else json.dumps(text)
        (folder / f"{stem}.{ending}").write_text(written, encoding="utf-8")


def words(settings: dict[str, Any] | None = None, /, config: dict[str, Any] | None = None, **files: Any) -> Make:
    """A folder with vocab.txt, of the class BertTokenizer unless the settings are None."""
    own = None if settings is None else {"tokenizer_class": "BertTokenizer", **settings}

    def make(folder: Path) -> None:
        write(folder, vocab_txt=pieces(), **({} if own is None else {"tokenizer_config_json": own}), **files)
        write(folder, config_json={"model_type": "bert", **(config or {})})

    return make


def token(content: str, **flags: bool) -> dict[str, Any]:
    return {"content": content, **FLAGS, "special": True, **flags}


def typed(content: str, **flags: bool) -> dict[str, Any]:
    return {"__type": "AddedToken", **token(content, **flags)}


def whole(post: Any = None, *, lowercase: bool = True, added: tuple[str, ...] = (), **settings: Any) -> Make:
    """A folder with a tokenizer.json of word pieces, with the special tokens among its added tokens."""

    def make(folder: Path) -> None:
        backend = tokenizers.Tokenizer(WordPiece({p: n for n, p in enumerate(pieces())}, unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.add_special_tokens(SPECIAL)
        backend.add_tokens(list(added))
        if post is not None:
            backend.post_processor = post
        backend.save(str(folder / "tokenizer.json"))
        names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
        own = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs, **names, **settings}
        write(folder, tokenizer_config_json=own, config_json={"model_type": "bert"})

    return make


def template(single: str, pair: str, *more: str) -> Any:
    numbers = [("[CLS]", 2), ("[SEP]", 3), *((name, pieces().index(name)) for name in more)]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=numbers)


def edited(make: Make, **files: Callable[[dict[str, Any]], object]) -> Make:
    """The same folder with JSON files changed; one that is not there begins empty."""

    def change(folder: Path) -> None:
        make(folder)
        for name, edit in files.items():
            path = folder / f"{name}.json"
            values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            edit(values)
            path.write_text(json.dumps(values), encoding="utf-8")

    return change


def family(name: str, *, cased: bool = True, **settings: Any) -> Make:
    """What transformers saves of a trained tokenizer, with some settings changed."""

    def make(folder: Path) -> None:
        saved = trained(name, cased)
        for file, content in saved.items():
            (folder / file).write_text(content, encoding="utf-8")
        write(folder, config_json={"model_type": name})

    return edited(make, tokenizer_config=lambda values: values.update(settings)) if settings else make


_SAVED: dict[tuple[str, bool], dict[str, str]] = {}


def trained(name: str, cased: bool) -> dict[str, str]:
    if (name, cased) not in _SAVED:
        with tempfile.TemporaryDirectory() as folder:
            save_tokenizer(name, Path(folder), cased=cased)
            files = {path.name: path.read_text(encoding="utf-8") for path in Path(folder).iterdir()}
        _SAVED[name, cased] = files
    return _SAVED[name, cased]


def byte_files(**settings: Any) -> Make:
    def make(folder: Path) -> None:
        save_byte_files(folder)
        write(folder, config_json={"model_type": "roberta"})

    return edited(make, tokenizer_config=lambda values: values.update(settings))


def tweets(name: str, **settings: Any) -> Make:
    def make(folder: Path) -> None:
        save_tweet_pieces(folder)
        write(
            folder, config_json={"model_type": "roberta"}, tokenizer_config_json={"tokenizer_class": name, **settings}
        )

    return make


def herbert(folder: Path, **files: Any) -> None:
    """What transformers saves of a HerBERT's pairs, with the files that it was published with."""
    letters = [sign for sign in signs() if ord(sign) < 0x500]
    first = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    known = [*first, *letters, *(f"{sign}</w>" for sign in letters), "th", "the</w>", "at</w>"]
    merges = [("t", "h"), ("th", "e</w>"), ("a", "t</w>")]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(known))}
    made = transformers.HerbertTokenizer(vocab=vocabulary, merges=merges)
    made.save_pretrained(folder)
    write(folder, config_json={"model_type": "bert"})


def herbert_files(folder: Path) -> None:
    herbert(folder)
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    (folder / "tokenizer.json").unlink()
    write(folder, vocab_json=model["vocab"], merges_txt=[" ".join(pair) for pair in model["merges"]])


def sentencepiece(name: str, class_name: str | None, file: str) -> Make:
    """A folder with SentencePiece's own file, written of trained pieces, as older folders of a family have it."""

    def make(folder: Path) -> None:
        trained_pieces = json.loads(trained(name, True)["tokenizer.json"])["model"]["vocab"]
        first = {
            "albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
            "deberta-v2": ["[PAD]", "[CLS]", "[SEP]", "[UNK]"],
        }.get(name, ["<unk>", "<s>", "</s>"])
        unknown = next(piece for piece in first if "unk" in piece.lower())
        proto: Any = import_protobuf().ModelProto()  # type: ignore[no-untyped-call]
        for piece, score in [*((p, 0.0) for p in first), *(p for p in trained_pieces if p[0][0] not in "<[")]:
            kind = 2 if piece == unknown else 3 if piece in first else 1
            proto.pieces.add(piece=piece, score=score, type=kind)
        proto.trainer_spec.model_type = 1
        proto.trainer_spec.unk_id = first.index(unknown)
        (folder / file).write_bytes(proto.SerializeToString())
        settings = {"vocab_type": "spm"} if class_name is None else {"tokenizer_class": class_name}
        write(folder, config_json={"model_type": name}, tokenizer_config_json=settings)

    return make


def split_on_a_pattern(folder: Path) -> None:
    whole(template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"))(folder)
    values = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    values["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    write(folder, tokenizer_json=values)


def beside_another_vocabulary(folder: Path) -> None:
    whole(template(*USUAL), tokenizer_class="BertTokenizer")(folder)
    write(folder, vocab_txt=[*reversed(pieces())])


def with_added_tokens_of_version_4(folder: Path) -> None:
    """mmBERT's files as published: tokenizer_config.json has the added tokens too, and an object of further ones."""
    family("mmbert", tokenizer_class="PreTrainedTokenizerFast", extra_special_tokens={})(folder)
    values = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    added = {str(one["id"]): {key: one[key] for key in one if key != "id"} for one in values["added_tokens"]}
    names = {name: token(text, lstrip=text == "<mask>") for name, text in settings.items() if name.endswith("_token")}
    for one in names.values():
        del one["special"]
    settings |= {"added_tokens_decoder": added, "additional_special_tokens": ["<start_of_turn>"]}
    write(folder, tokenizer_config_json=settings, special_tokens_map_json=names)


def without_normal_form(values: dict[str, Any]) -> None:
    values["normalizer"] = {"type": "Lowercase"}


USUAL = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
BEHIND = len(pieces())
OTHER_NAMES = {"cls_token": "<ent>", "sep_token": "@", "pad_token": "#", "unk_token": "[UNK]", "mask_token": "[MASK]"}
# Name -> a folder.
FOLDERS: dict[str, Make] = {
    # vocab.txt by settings
    "bert lower": words({}),
    "bert cased": words({"do_lower_case": False}),
    "bert lower with accents": words({"strip_accents": False}),
    "bert cased without accents": words({"do_lower_case": False, "strip_accents": True}),
    "bert whole Chinese words": words({"tokenize_chinese_chars": False}),
    "bert all settings": words({"do_lower_case": False, "strip_accents": False, "tokenize_chinese_chars": False}),
    "bert without settings": words(None),
    "bert with a class in config.json": words(None, config={"tokenizer_class": "DistilBertTokenizer"}),
    "distilbert": words({"tokenizer_class": "DistilBertTokenizerFast"}, config={"model_type": "distilbert"}),
    "electra": words({"tokenizer_class": "ElectraTokenizerFast"}, config={"model_type": "electra"}),
    "roberta of word pieces": words({}, config={"model_type": "roberta", "type_vocab_size": 1}),
    "mpnet": family("mpnet"),
    "mpnet lower": family("mpnet", cased=False),
    "mpnet with added tokens": family("mpnet", extra_special_tokens=["[E1]", "covid"]),
    "mpnet as it is": family("mpnet", tokenizer_class="PreTrainedTokenizerFast"),
    "mpnet by its vocab.txt": words(
        {"tokenizer_class": "MPNetTokenizer", **OTHER_NAMES}, added_tokens_json={"<ent>": BEHIND}
    ),
    "bert never split": words({"never_split": ["covid", "New York", "[E1]"]}),
    "bert specials split": words({"split_special_tokens": True}),
    # added tokens by the file that states them
    "additional tokens behind": words({"additional_special_tokens": ["[E1]", "[/E1]", "New York"]}),
    "additional tokens inside": words({"additional_special_tokens": ["covid", "cat", "##s"]}),
    "additional tokens as objects": words({"additional_special_tokens": [typed("[E1]", lstrip=True), typed("cat")]}),
    "extra tokens": words({"extra_special_tokens": ["[E1]", "<ent>"]}),
    "extra tokens by name": words({"extra_special_tokens": {"start_token": "[E1]", "end_token": "[/E1]"}}),
    "a token of a name of its own": words({"entity_token": "<ent>", "user_token": "@USER"}),
    "added_tokens_decoder": words(
        {"added_tokens_decoder": {str(BEHIND + 1): token("[/E1]", rstrip=True),
                                  str(BEHIND): token("[E1]", lstrip=True)}}
    ),
    "added words": words(
        {"added_tokens_decoder": {str(BEHIND): token("covid", special=False, normalized=True, single_word=True),
                                  str(BEHIND + 1): token("New York", special=False, normalized=True)}}
    ),
    "added_tokens.json": words({}, added_tokens_json={"[/E1]": BEHIND + 1, "[E1]": BEHIND, "New York": BEHIND + 2}),
    "added_tokens.json and special_tokens_map.json": words(
        {}, added_tokens_json={"[E1]": BEHIND, "@USER": BEHIND + 1},
        special_tokens_map_json={"additional_special_tokens": ["[E1]"], "mask_token": token("[MASK]", lstrip=True)},
    ),
    "special_tokens_map.json": words(
        {}, special_tokens_map_json={"additional_special_tokens": ["<ent>", "covid"], "cls_token": "[CLS]"}
    ),
    "special tokens of other names": words(OTHER_NAMES, added_tokens_json={"<ent>": BEHIND}),
    # files that contradict each other
    "two names of the first token": words({"cls_token": "[CLS]"}, special_tokens_map_json={"cls_token": "[SEP]"}),
    "two lists of added tokens": words(
        {"added_tokens_decoder": {str(BEHIND): token("[E1]")}}, added_tokens_json={"<ent>": BEHIND},
        special_tokens_map_json={"additional_special_tokens": ["@USER"]},
    ),
    "two lists of additional tokens": words(
        {"additional_special_tokens": ["[E1]"]}, special_tokens_map_json={"additional_special_tokens": ["<ent>"]}
    ),
    "vocab.txt beside a tokenizer.json": beside_another_vocabulary,
    "two statements of case": whole(
        template(*USUAL), lowercase=True, tokenizer_class="BertTokenizer", do_lower_case=False
    ),
    "a case that only tokenizer.json states": whole(template(*USUAL), lowercase=False, tokenizer_class="BertTokenizer"),
    "two frames": whole(template("[CLS] $A", "[CLS] $A $B:1"), tokenizer_class="BertTokenizerFast"),
    # tokenizer.json by what stands around texts
    "template": whole(template(*USUAL)),
    "template in one segment": whole(template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:0 [SEP]:0")),
    "template with the first token alone": whole(template("[CLS] $A", "[CLS] $A [SEP] $B:1")),
    "template with more tokens": whole(
        template("the [CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] cat $B:1 [SEP]:1", "the", "cat")
    ),
    "BertProcessing": whole(processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))),
    "RobertaProcessing": whole(processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))),
    "a sequence of processors": whole(
        processors.Sequence([processors.ByteLevel(trim_offsets=True), template(*USUAL)])
    ),
    "no processor": whole(None),
    "tokenizer.json with added tokens": whole(
        template(*USUAL), added=("[E1]", "covid"), additional_special_tokens=["<ent>"]
    ),
    "tokenizer.json of an unknown class": whole(template(*USUAL), tokenizer_class="KoBertTokenizer"),
    # byte-level pairs
    "roberta files": byte_files(),
    "roberta files with a space first": byte_files(add_prefix_space=True),
    "roberta files with whole offsets": byte_files(trim_offsets=False),
    "roberta files with a plain mask": byte_files(mask_token="<mask>"),
    "roberta files with added tokens": byte_files(additional_special_tokens=["[E1]", "New York"]),
    "roberta": family("roberta"),
    "roberta with a space first": family("roberta", add_prefix_space=True),
    "roberta with added tokens": family("roberta", extra_special_tokens=["[E1]", "@USER"]),
    "roberta as it is": family("roberta", tokenizer_class="PreTrainedTokenizerFast"),
    "roberta lower by tokenizer.json alone": family("roberta", cased=False),
    "roberta lower as it is": family("roberta", cased=False, tokenizer_class="PreTrainedTokenizerFast"),
    "modernbert": family("modernbert"),
    "modernbert with a space first": family("modernbert", add_prefix_space=True),
    "modernbert with added tokens": family("modernbert", extra_special_tokens=["[E1]", "@USER"]),
    "modernbert lower": family("modernbert", cased=False),
    # pairs of characters, with bytes for the others
    "mmbert": family("mmbert"),
    "mmbert with added tokens": family("mmbert", extra_special_tokens=["[E1]", "@USER"]),
    "mmbert lower": family("mmbert", cased=False),
    "mmbert of transformers 4": with_added_tokens_of_version_4,
    "mmbert of the class": family("mmbert", tokenizer_class="GemmaTokenizer"),
    "gemma": family("gemma"),
    "gemma with whole special tokens split": family("gemma", split_special_tokens=True),
    "bart": family("roberta", tokenizer_class="BartTokenizer"),
    # unigrams
    "xlm-roberta": family("xlm-roberta"),
    "xlm-roberta without a space first": family("xlm-roberta", add_prefix_space=False),
    "xlm-roberta with added tokens": family("xlm-roberta", additional_special_tokens=["[E1]", "covid"]),
    "xlm-roberta as it is": family("xlm-roberta", tokenizer_class="PreTrainedTokenizerFast"),
    "xlm-roberta that lower-cases": edited(family("xlm-roberta"), tokenizer=without_normal_form),
    "camembert": family("camembert"),
    "camembert as it is": family("camembert", tokenizer_class="PreTrainedTokenizerFast"),
    "albert lower": family("albert", cased=False),
    "albert cased": family("albert"),
    "albert with accents": family("albert", cased=False, keep_accents=True),
    "albert as it is": family("albert", tokenizer_class="PreTrainedTokenizerFast"),
    "deberta-v2 cased": family("deberta-v2"),
    "deberta-v2 lower": family("deberta-v2", cased=False),
    "deberta-v2 with punctuation apart": family("deberta-v2", split_by_punct=True),
    "deberta-v2 without a space first": family("deberta-v2", add_prefix_space=False),
    "deberta-v2 with added tokens": family("deberta-v2", additional_special_tokens=["[E1]", "covid"]),
    "deberta-v2 as it is": family("deberta-v2", tokenizer_class="PreTrainedTokenizerFast"),
    # SentencePiece's own file, and classes that transformers converts
    "xlm-roberta by its model file": sentencepiece("xlm-roberta", "XLMRobertaTokenizer", "sentencepiece.bpe.model"),
    "albert by its model file": sentencepiece("albert", "AlbertTokenizer", "spiece.model"),
    "deberta-v2 by its model file": sentencepiece("deberta-v2", "DebertaV2Tokenizer", "spm.model"),
    "deberta-v2 as published": sentencepiece("deberta-v2", None, "spm.model"),
    "gpt2": family("roberta", tokenizer_class="GPT2Tokenizer"),
    # pairs of characters
    "bertweet": tweets("BertweetTokenizer"),
    "phobert": tweets("PhobertTokenizer"),
    "bertweet with added tokens": tweets("BertweetTokenizer", additional_special_tokens=["[E1]"]),
    "herbert": herbert,
    "herbert files": herbert_files,
    # other programs, patterns, classes that nobody knows
    "japanese": words({"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab"}),
    "canine": words({"tokenizer_class": "CanineTokenizer"}),
    "a class that nobody knows": words({"tokenizer_class": "KoBertTokenizer"}),
    "a pattern": split_on_a_pattern,
}  # fmt: skip
# Folders whose offsets include the space before a word in transformers, and never here.
WITH_SPACES = ("deberta-v2", "modernbert", "mmbert", "gemma", "roberta files with whole offsets")
REFUSED = {
    "bertweet with added tokens": "its files add the token '.E1.': with vocab.txt and bpe.codes, added tokens are not",
    "herbert files": "its tokenizer_class is HerbertTokenizer, which has its byte pairs with </w> .*: save a tokeniz",
    "japanese": "its tokenizer_class is BertJapaneseTokenizer, which needs another program",
    "canine": "its tokenizer_class is CanineTokenizer, which is code in Python and not run here: ",
    "a class that nobody knows": "its tokenizer_class is KoBertTokenizer, which is not read from what is here: save a ",
    "a pattern": "the tokenizer files in .* are broken: its pre_tokenizer is 'Split': one of ",
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_read_as_transformers_reads_it_or_refused(name: str, tmp_path: Path) -> None:
    """Ids, segments and offsets of 300 texts agree, or the folder is refused in one sentence."""
    FOLDERS[name](tmp_path)
    if name in REFUSED:
        with pytest.raises(Refused, match=f"^{REFUSED[name]}[^\n]*$"):
            Tokenizer.from_folder(tmp_path)
        return
    ours, theirs = Tokenizer.from_folder(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    mask = str(theirs.mask_token)
    for text, pair in texts():
        text = text if mask == "[MASK]" else text.replace("[MASK]", mask)  # a typed [MASK] is the model's own
        encoding = ours.encode(text, pair, max_length=100_000)
        wanted = theirs(text, pair, return_offsets_mapping=theirs.is_fast)
        assert list(encoding.input_ids) == wanted["input_ids"], (text, pair)
        if "token_type_ids" in wanted:
            assert list(encoding.token_type_ids) == wanted["token_type_ids"]
        if theirs.is_fast:
            spans = zip(encoding.offsets, wanted["offset_mapping"], encoding.roles, encoding.sides, strict=True)
            for own, span, duty, side in spans:
                source = text if side == "A" else pair or ""
                drawn = without_space(span, source) if duty == "mask" or name.startswith(WITH_SPACES) else span
                assert own == drawn, (text, pair)
    assert len(ours) == len(theirs)


@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_saved_has_the_same_rules(name: str, tmp_path: Path) -> None:
    """So that a model that is saved again keeps its fingerprint; whatever config.json then says of its type."""
    folder, again = tmp_path / "published", tmp_path / "saved"
    for place in (folder, again):
        place.mkdir()
    FOLDERS[name](folder)
    try:
        first = Tokenizer.from_folder(folder)
    except Refused:
        return
    first.save(again)
    for config in ({}, {"model_type": "bert"}, {"model_type": "roberta"}):
        (again / "config.json").write_text(json.dumps(config), encoding="utf-8")
        assert Tokenizer.from_folder(again).rules() == first.rules()


def without_space(span: tuple[int, int], source: str) -> tuple[int, int]:
    """A span without the spaces before a mask or a DeBERTa's piece, which is drawn where it was typed."""
    start, end = span
    return (end - len(source[start:end].lstrip()) if source[start:end].strip() else start), end


def test_the_table_is_as_large_as_it_should_be() -> None:
    """At least 30 folders, of which at least 24 load, each with 300 texts."""
    assert len(FOLDERS) >= 30 and len(FOLDERS) - len(REFUSED) >= 24 and len(texts()) == 300
    assert sum(pair is not None for _, pair in texts()) == 100


def test_settings_that_are_not_used_are_said(tmp_path: Path) -> None:
    """never_split, which transformers 5 does not use either, and a tokenizer.json that another file overrules."""
    FOLDERS["bert never split"](tmp_path)
    assert Tokenizer.from_folder(tmp_path).notes == (
        "never_split names 'covid', which is split all the same, as by transformers: only added tokens stay whole",
    )
    FOLDERS["two statements of case"](tmp_path)
    (said,) = Tokenizer.from_folder(tmp_path).notes
    assert said.startswith("tokenizer.json alone would treat case, accents or spaces differently")
    for name in ("bert lower", "roberta", "albert lower"):
        folder = tmp_path / name
        folder.mkdir()
        FOLDERS[name](folder)
        assert Tokenizer.from_folder(folder).notes == ()


@pytest.mark.parametrize("name", ["gpt2", "xlm-roberta by its model file", "deberta-v2 as published"])
def test_without_transformers_the_sentence_says_how_to_install_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only transformers can convert is refused with the command that installs it; the rest does without it."""
    FOLDERS[name](tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(Refused, match=r'transformers 5 converts: install it by pip install "headlight\[convert\]"'):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "bert").mkdir()
    FOLDERS["added_tokens_decoder"](tmp_path / "bert")
    assert Tokenizer.from_folder(tmp_path / "bert").encode("the [E1] cat").tokens[2] == "[E1]"


def test_what_the_refusals_advise_works(tmp_path: Path) -> None:
    """A HerBERT that transformers has saved again, and a tokenizer.json made of a Japanese vocab.txt, load."""
    for name in ("herbert files", "japanese"):
        (tmp_path / name).mkdir()
        FOLDERS[name](tmp_path / name)
    transformers.AutoTokenizer.from_pretrained(tmp_path / "herbert files").save_pretrained(tmp_path / "herbert files")
    found = Tokenizer.from_folder(tmp_path / "herbert files").encode("the cat")
    assert found.tokens == ("<s>", "the", "c", "##at", "</s>") and found.words == (None, 0, 1, 1, None)
    folder = tmp_path / "japanese"
    made = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=False, handle_chinese_chars=False)
    made.save(str(folder / "tokenizer.json"))
    write(folder, tokenizer_config_json={"tokenizer_class": "PreTrainedTokenizerFast"})
    assert Tokenizer.from_folder(folder).encode("東京 完成").tokens == ("[CLS]", "東京", "完成", "[SEP]")


def test_added_tokens_stand_as_they_are_and_alone(tmp_path: Path) -> None:
    """An added token is a word of its own, named and found as it is written, for every kind of vocabulary."""
    for name in ("additional tokens behind", "roberta with added tokens", "xlm-roberta with added tokens"):
        folder = tmp_path / name
        folder.mkdir()
        FOLDERS[name](folder)
        found = Tokenizer.from_folder(folder)
        encoding = found.encode("the cat[E1]mat [E1]", "[E1] cat")
        places = [place for place, written in enumerate(encoding.tokens) if written == "[E1]"]
        assert len(places) == 3 and len({encoding.words[place] for place in places}) == 3
        assert all(encoding.words.count(encoding.words[place]) == 1 for place in places)
        assert found.has_token("[E1]") and found.token_of(found.id_of("[E1]")) == "[E1]"
        (folder / "saved").mkdir()
        found.save(folder / "saved")
        again = transformers.AutoTokenizer.from_pretrained(folder / "saved")
        assert again("the cat[E1]mat [E1]", "[E1] cat")["input_ids"] == list(encoding.input_ids)


def template_of(single: list[Any], pair: list[Any]) -> dict[str, Any]:
    known = {name: {"id": name, "ids": [n], "tokens": [name]} for name, n in (("[CLS]", 2), ("[SEP]", 10**6))}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": known}


A, B = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
LAST = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}


@pytest.mark.parametrize(
    ("post", "words"),
    [
        (template_of([A, A], [A, B]), "it must have each text once, and the first one first"),
        (template_of([A], [B, A]), "it must have each text once, and the first one first"),
        (template_of([A], [A]), "it must have each text once, and the first one first"),
        (template_of([LAST], [A, B]), "it must have each text once, and the first one first"),
        (template_of(["A"], [A, B]), "it must have each text once, and the first one first"),
        (template_of([A, LAST], [A, B]), "inserts a token that is not among the"),
        ({"type": "Sequence", "processors": [template_of([A, A], [A, B])] * 40}, "it must have each text once"),
        ({"type": "Sequence", "processors": "none"}, "its post_processor is a Sequence of 'none'"),
    ],
)
def test_a_frame_that_repeats_or_leaves_out_texts_is_refused(post: object, words: str, tmp_path: Path) -> None:
    """A few lines of a file must not make a text longer without end, nor name tokens that are not there."""
    FOLDERS["template"](tmp_path)
    values = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    write(tmp_path, tokenizer_json={**values, "post_processor": post})
    with pytest.raises(Refused, match=words):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cls_token": 3}, "cls_token is 3: it must be a token"),
        ({"cls_token": None}, "cls_token is null: its tokenizer_class needs a token"),
        ({"cls_token": "[FIRST]"}, r"the vocabulary has no \[FIRST\]: a BERT's vocabulary has"),
        ({"tokenizer_class": ["x"]}, "tokenizer_class is .*: it must be the name of a class"),
        ({"tokenizer_class": "../x"}, "tokenizer_class is '../x': it must be the name of a class"),
        ({"tokenize_chinese_chars": "no"}, "tokenize_chinese_chars is 'no': it must be true or false"),
        ({"strip_accents": 1}, "strip_accents is 1: it must be true or false"),
        ({"added_tokens_decoder": {"x": {"content": "a"}}}, "the number 'x': it must be a whole number"),
        ({"added_tokens_decoder": {"9": {"content": 1}}}, "it must have a content"),
        ({"added_tokens_decoder": {"9": {"content": "a", "special": 1}}}, "it must have a content"),
        ({"added_tokens_decoder": [1]}, "added_tokens_decoder is .1.: it must be an object"),
        ({"additional_special_tokens": [{"content": "a"}]}, "extra_special_tokens is .*: it must be a token"),
        ({"additional_special_tokens": "[E1]"}, "extra_special_tokens is '.E1.': it must be a list of tokens"),
    ],
)
def test_settings_of_another_kind_are_one_sentence(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    """What cannot be a setting is named with its value."""
    FOLDERS["bert lower"](tmp_path)
    write(tmp_path, tokenizer_config_json=settings)
    with pytest.raises(Refused, match=words):
        Tokenizer.from_folder(tmp_path)


def test_a_model_file_is_held_to_sizes(tmp_path: Path) -> None:
    """Pieces of SentencePiece's file that conversion would take for ever to divide are refused, and broken files."""
    FOLDERS["albert by its model file"](tmp_path)
    file = tmp_path / "spiece.model"
    proto: Any = import_protobuf().ModelProto.FromString(file.read_bytes())
    proto.pieces.add(piece="x" * 501, score=0.0, type=1)
    for content, said in (
        (proto.SerializeToString(), "pieces of up to 501 characters: at most 1,000,000 of 500 are read"),
        (b"\x0a\xff\xff", "are broken: "),
        (bytes(65_000_000), "has 65,000,000 bytes: at most 64,000,000 are read"),
    ):
        file.write_bytes(content)
        with pytest.raises(Refused, match=said):
            Tokenizer.from_folder(tmp_path)


def test_a_word_that_a_template_sets_between_texts_is_still_a_word(tmp_path: Path) -> None:
    """Only special tokens have a duty where they are typed."""
    FOLDERS["template with more tokens"](tmp_path)
    encoding = Tokenizer.from_folder(tmp_path).encode("a cat", "a cat")
    assert encoding.tokens == ("[CLS]", "a", "cat", "[SEP]", "[SEP]", "cat", "a", "cat", "[SEP]")
    assert encoding.roles == ("first", None, None, "between", "between", None, None, None, "end")
    assert encoding.special == (True, False, False, True, True, True, False, False, True)
