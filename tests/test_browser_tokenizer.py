"""The tokenizer of the browser engine beside Python's, and the table of characters that it uses."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors

import bert_core
from bert_core import BertConfig, Tokenizer
from bert_core.refused import Refused
from bert_core.tokenizer import SPECIAL_TOKENS
from bert_core.tokenizer_files import TokenizerFiles
from tests.browser_texts import REFUSED, WORDS, fuzzed_texts, python_encodings, texts
from tests.test_javascript import node
from tools import unicode_table
from viz_app.site.stored_runs import encoding_fields

ENCODE = """
import { readFileSync } from "node:fs";
import { Tokenizer } from "./viz_app/site/engine/tokenizer.js";

const { file, options, requests } = JSON.parse(readFileSync(process.argv[1], "utf8"));
const tokenizer = new Tokenizer(file, options);
const results = requests.map(({ method, values }) => {
  try {
    return tokenizer[method](...values);
  } catch (error) {
    return { error: error.message, name: error.name };
  }
});
console.log(JSON.stringify(results));
"""
TINY_WORDS = (
    "Headlight",
    "Zürich",
    "cafe",
    "café",
    "##light",
    "##able",
    "un",
    "##believ",
    "İ",
    "東京",
    "naïve",
    "##'s",
)


def javascript(
    tokenizer: Tokenizer, requests: Iterable[tuple[str, Sequence[Any]]], folder: Path, **options: Any
) -> list[Any]:
    """The results of methods of the engine's tokenizer, made from the file that Python's tokenizer saves."""
    tokenizer.save(folder)
    content = {
        "file": json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")),
        "options": options,
        "requests": [{"method": method, "values": values} for method, values in requests],
    }
    (folder / "requests.json").write_text(json.dumps(content), encoding="utf-8")
    results: list[Any] = json.loads(node("--input-type=module", "-e", ENCODE, folder / "requests.json"))
    return results


def assert_same(
    tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], folder: Path, max_length: int = 512, **options: Any
) -> None:
    """Both tokenizers give the same encoding, with all its fields, for each text."""
    requests = [("encode", (text, pair, max_length)) for text, pair in pairs]
    results = javascript(tokenizer, requests, folder, **options)
    for pair, expected, result in zip(pairs, python_encodings(tokenizer, pairs, max_length), results, strict=True):
        if "error" in expected:
            assert result["name"] == "InvalidInputError", pair
            assert result["error"] == adapted(expected["error"]), pair
        else:
            assert result == expected, pair


def adapted(message: str) -> str:
    """Python's message without the quoted text, which has no visible character, and with the engine's argument."""
    message = re.sub(r"(text|second sentence) '.*' contains", r"\1 contains", message, flags=re.DOTALL)
    return message.replace("max_length", "maxLength")


def tiny(
    *, characters: str = "", mask: str = "[MASK]", added: Sequence[AddedToken] = (), **options: bool | None
) -> Tokenizer:
    """A tokenizer with a small vocabulary, which has these characters and their decompositions, and options."""
    letters = dict.fromkeys(characters + unicodedata.normalize("NFD", characters + characters.lower()))
    special = [token if token != "[MASK]" else mask for token in SPECIAL_TOKENS]
    pieces = dict.fromkeys([*special, *TINY_WORDS, *WORDS, *letters, *(f"##{letter}" for letter in letters)])
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(**options)  # type: ignore[arg-type]
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    backend.add_special_tokens(special)
    backend.add_tokens(list(added))
    return Tokenizer(backend, TokenizerFiles(backend, {"mask_token": mask}))


@pytest.fixture(scope="module")
def mini() -> Tokenizer:
    return bert_core.load("headlight-mini").tokenizer


@pytest.fixture(scope="module")
def everything() -> list[tuple[str, str]]:
    """The written texts and 2,000 fuzzed ones."""
    return [*texts(), *fuzzed_texts(2_000, seed=0)]


def characters_of(pairs: Iterable[tuple[str, str]]) -> str:
    """Every second character of some texts, so that the others are unknown."""
    return "".join(sorted({character for pair in pairs for text in pair for character in text})[::2])


def test_the_table_is_that_of_the_tokenizers_library() -> None:
    assert unicode_table.FILE.read_text(encoding="utf-8") == unicode_table.table()


def test_written_texts_have_3_to_512_tokens(mini: Tokenizer) -> None:
    """Texts, pairs, masks and truncated texts are among them."""
    encodings = python_encodings(mini, texts())
    lengths = {len(encoding["tokens"]) for encoding in encodings}
    assert (min(lengths), max(lengths)) == (3, 512)
    assert sum(bool(encoding["maskPositions"]) for encoding in encodings) >= 6
    assert sum(encoding["pair"] is not None for encoding in encodings) >= 6
    assert sum(encoding["truncatedCount"] > 0 for encoding in encodings) >= 4


def test_encodings_of_the_bundled_model_are_equal(
    mini: Tokenizer, everything: list[tuple[str, str]], tmp_path: Path
) -> None:
    assert_same(mini, everything, tmp_path)


@pytest.mark.parametrize(("clean_text", "handle_chinese_chars"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("lowercase", "strip_accents"), [(True, None), (True, False), (False, None), (False, True)])
def test_encodings_are_equal_with_every_option(
    clean_text: bool,
    handle_chinese_chars: bool,
    lowercase: bool,
    strip_accents: bool | None,
    everything: list[tuple[str, str]],
    tmp_path: Path,
) -> None:
    options = {"lowercase": lowercase, "strip_accents": strip_accents}
    options |= {"clean_text": clean_text, "handle_chinese_chars": handle_chinese_chars}
    assert_same(tiny(characters=characters_of(everything), **options), everything, tmp_path)


@pytest.mark.parametrize("max_length", [2, 3, 4, 5, 6, 7, 16, 17, 33])
def test_truncation_is_equal(mini: Tokenizer, max_length: int, tmp_path: Path) -> None:
    """Also for lengths that leave no room for a token of each text."""
    assert_same(mini, [*texts(), *fuzzed_texts(50, seed=1)], tmp_path, max_length)


def test_texts_that_cannot_be_encoded_have_the_same_messages(mini: Tokenizer, tmp_path: Path) -> None:
    assert all("error" in encoding for encoding in python_encodings(mini, REFUSED))
    assert_same(mini, REFUSED, tmp_path)


def test_added_tokens_and_other_mask_tokens_are_found(everything: list[tuple[str, str]], tmp_path: Path) -> None:
    """Before or after normalization, with or without the spaces around them."""
    added = [
        AddedToken("Brown Fox", normalized=True),
        AddedToken("(é)", rstrip=True, normalized=True),
        AddedToken("lazy", lstrip=True, normalized=False),
        *(AddedToken(content, normalized=False) for content in ("QUICK", "[", "dog while")),
        AddedToken("dog", lstrip=True, rstrip=True, special=True),
    ]
    sentences = [
        ("the quick QUICK brown fox  Brown Fox \u00a0 lazy  lazy (É)  x(e)", "over  dog   dog while a [MASK] ["),
        ("  [MASK] lazydog [MASK][MASK]  <mask> dog", "\u3000\u3000[MASK]"),
    ]
    for mask, lstrip in itertools.product(("[MASK]", "<mask>"), (False, True)):
        tokenizer = tiny(mask=mask, added=[*added, AddedToken(mask, lstrip=lstrip, special=True)], lowercase=True)
        assert_same(tokenizer, [*sentences, *everything[-300:]], tmp_path, names={"mask_token": mask})


def test_models_with_one_segment_have_the_same_token_types(tmp_path: Path) -> None:
    tokenizer = tiny(lowercase=True)
    tokenizer.fit(BertConfig(vocab_size=len(tokenizer), type_vocab_size=1))
    assert_same(tokenizer, texts()[-9:], tmp_path, typeVocabSize=1)


def test_templates_are_followed(tmp_path: Path) -> None:
    """Other numbers of special tokens, and their segments."""
    tokenizer = tiny(lowercase=True)
    special = [(token, tokenizer.id_of(token)) for token in ("[CLS]", "[SEP]")]
    for single, pair in (
        ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]"),
        ("[CLS]:1 [CLS] $A:0", "[CLS] $A:1 $B:0 [SEP]:1"),
    ):
        backend = tokenizer.backend
        backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)
        assert_same(Tokenizer(backend), texts(), tmp_path)


def test_masked_words_tokens_and_words_are_equal(mini: Tokenizer, tmp_path: Path) -> None:
    """`maskWords`, `idOf`, `tokenOf` and `piecesOf` give what Python's methods give."""
    encoding = mini.encode("Unbelievable embeddings [MASK] cafés.", "日本 is far.")
    words = [[], [0], [1, 2], [encoding.word_count - 1], [99], [-1, 3]]
    terms = [
        "door",
        " door ",
        "##ing",
        "unbelievable",
        "Zürich",
        "[MASK]",
        "𠀋",
        "x" * 200,
        "",
        "no such word",
        "é",
    ]
    requests = [
        *(("maskWords", (encoding_fields(encoding), selected)) for selected in words),
        *(("piecesOf", (term,)) for term in terms),
        *(("idOf", (term,)) for term in terms),
        *(("tokenOf", (number,)) for number in (0, 103, 2_000, len(mini) - 1)),
    ]
    expected = [
        *(answer(lambda selected=selected: encoding_fields(mini.mask_words(encoding, selected))) for selected in words),
        *(answer(lambda term=term: list(bert_core.records.targets.pieces_of(mini, term))) for term in terms),
        *map(mini.id_of, terms),
        *map(mini.token_of, (0, 103, 2_000, len(mini) - 1)),
    ]
    assert javascript(mini, requests, tmp_path) == expected


def answer(call: Any) -> Any:
    """What a function returns, or the message of its error with the engine's name of it."""
    try:
        return call()
    except Refused as error:
        return {"error": str(error), "name": "InvalidInputError"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lower", "cased"])
def test_every_character_is_equal(name: str, tmp_path: Path) -> None:
    """With a vocabulary of all characters outside of private planes, within a word; a text has many such words."""
    characters = [chr(number) for number in range(0x110000) if not 0xD800 <= number < 0xE000]
    listed = "".join(characters[: 0x32000 - 0x800]) + "".join(map(chr, range(0xE0000, 0xE0200)))
    tokenizer = tiny(characters=listed, lowercase=name == "lower", strip_accents=name == "lower", clean_text=True)
    pairs = [
        (" ".join(f"a{character}b" for character in characters[start : start + 100]), "")
        for start in range(0, len(characters), 100)
    ]
    assert_same(tokenizer, pairs, tmp_path, max_length=10_000)
