"""The vocabulary of mmBERT, which writes a space as `▁` and characters without a piece as their bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bert_core
from bert_core import BertConfig, Tokenizer
from bert_core.records.targets import word_target
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.tokenizer import GEMMA_SPECIAL_TOKENS
from tests.core.test_families import trimmed
from tests.core.test_tokenizer import TEXTS
from tests.families import reference_of, save_family, save_tokenizer, sentences
from tests.near import assert_near

KINDS = ("mmbert", "gemma")
MORE_TEXTS: list[tuple[str, str | None]] = [
    ("Café Zürich e\u0301 ñ", "ça va"),
    ("猫坐在垫子上。日本語", "東京 都"),
    ("👩‍👩‍👧 a😀b 😀😀", "👍🏽"),
    ("a  b   c    d", "  e"),
    ("a\n\nb\n\tc\r\n d\n", "\n"),
    (" a ", "b  "),
    ("  \t[MASK]  [MASK][MASK], ", " [MASK]"),
    ("<table><b>x</b></table><script>alert(1)</script>&amp;<0x41><0xF0>", "<unused0><bos><eos><pad><unk>"),
    ("▁ ▁▁ a▁b", "\u0000\u0001\x7f"),
    ("the\u00a0old\u3000man\u200b", "\u2028"),
]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def files(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(kind)
    save_tokenizer(kind, folder, cased=True)
    return folder


@pytest.fixture(scope="module")
def tokenizer(files: Path) -> Tokenizer:
    return Tokenizer.from_folder(files)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family("mmbert", tmp_path_factory.mktemp("model") / "mmbert", cased=True)


def test_ids_and_offsets_are_those_of_transformers(tokenizer: Tokenizer, files: Path) -> None:
    """Of ten languages, the hostile texts and the odd ones; the saved files give the same again."""
    reference = transformers.AutoTokenizer.from_pretrained(files)
    (files / "saved").mkdir()
    tokenizer.save(files / "saved", segments=False)
    saved = Tokenizer.from_folder(files / "saved")
    saved_reference = transformers.AutoTokenizer.from_pretrained(files / "saved")
    assert saved.rules() == tokenizer.rules() and len(tokenizer) == len(reference) == len(saved)
    lines = sentences()
    texts = [*((line, None) for line in lines), *zip(lines, reversed(lines), strict=True), *TEXTS.values(), *MORE_TEXTS]
    seen = set[int]()
    for text, pair in texts:
        text, pair = text.replace("[MASK]", "<mask>"), pair and pair.replace("[MASK]", "<mask>")
        encoding, wanted = tokenizer.encode(text, pair), reference(text, pair or None, return_offsets_mapping=True)
        if pair is not None and not pair.strip():  # an empty second text counts as none
            wanted = reference(text, return_offsets_mapping=True)
        assert list(encoding.input_ids) == wanted["input_ids"], text
        assert saved.encode(text, pair) == encoding
        assert saved_reference(text, None if encoding.pair is None else pair)["input_ids"] == wanted["input_ids"]
        spans = zip(wanted["offset_mapping"], encoding.sides, strict=True)
        assert list(encoding.offsets) == [trimmed(span, (pair or "") if side == "B" else text) for span, side in spans]
        assert tokenizer.decode(encoding.input_ids) == reference.decode(wanted["input_ids"], skip_special_tokens=True)
        seen |= set(encoding.input_ids)
    pieces = {str(tokenizer.backend.id_to_token(number)) for number in seen}
    assert {
        "<0xF0>",
        "<0x00>",
        "▁▁",
        "\n",
        "\n\n",
        "\t",
        "<table>",
        "<unused0>",
    } <= pieces and tokenizer.unknown_id in seen


def test_special_tokens_around_texts(tokenizer: Tokenizer) -> None:
    assert tokenizer.special_tokens == GEMMA_SPECIAL_TOKENS and tokenizer.segments == 1
    encoding = tokenizer.encode("the [MASK]", "old")
    assert [encoding.tokens[at] for at, added in enumerate(encoding.special) if added] == ["<bos>", "<eos>", "<eos>"]
    assert encoding.roles[-1] == "end" and [encoding.tokens[at] for at in encoding.mask_positions] == ["<mask>"]
    (mask,) = encoding.mask_positions
    assert encoding.offsets[mask] == (4, 10) and encoding.word_text(encoding.words[mask] or 0) == "[MASK]"


def test_the_special_tokens_are_found_without_other_files(tokenizer: Tokenizer, files: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((files / "tokenizer.json").read_bytes())
    alone = Tokenizer.from_folder(tmp_path)
    assert alone.special_tokens == GEMMA_SPECIAL_TOKENS
    assert alone.encode("the [MASK] 😀", "old") == tokenizer.encode("the [MASK] 😀", "old")


def test_words_begin_at_spaces_and_signs_stand_alone(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode("The river, it's  unseen [MASK].", "हर सुबह बेकर")
    words = [encoding.word_text(word) for word in range(encoding.word_count)]
    assert [word for word in words if word] == [
        *("The", "river", ",", "it", "'", "s", "unseen", "[MASK]", "."), *("हर", "सुबह", "बेकर"),
    ]  # fmt: skip
    encoding = tokenizer.encode("猫坐在垫子上。埼玉 a\n\nb\tc")
    words = [encoding.word_text(word) for word in range(encoding.word_count)]
    assert [word for word in words if word] == [*"猫坐在垫子上。埼玉", "a", "b", "c"]


def test_a_character_in_bytes_is_one_range_of_one_word(tokenizer: Tokenizer) -> None:
    """Each byte is drawn as the character with its number; what is masked there is the character."""
    drawn = ("😀₁", "##😀₂", "##😀₃", "##😀₄")
    encoding = tokenizer.encode("the 😀😀")
    assert encoding.tokens[-10:-1] == ("␣", *drawn, *drawn)
    assert encoding.offsets[-9:-1] == ((4, 5),) * 4 + ((5, 6),) * 4
    first, second = encoding.words[-9], encoding.words[-5]
    assert encoding.words[-9:-1] == (first,) * 4 + (second,) * 4 and first != second
    hidden = tokenizer.mask_words(encoding, [second or 0])
    assert [hidden.masked_piece(at) for at in hidden.mask_positions] == ["😀", "##😀", "##😀", "##😀"]
    masks = tokenizer.encode("the" + " [MASK]" * 8)
    target = word_target(tokenizer, masks, "😀", position=masks.mask_positions[0])
    assert tuple(number for _, number in target.target_pieces) == tokenizer.encode("the 😀").input_ids[-6:-1]


def test_every_piece_has_a_name_that_finds_it(tokenizer: Tokenizer) -> None:
    """No name has a `▁`, a line break or a tab; bytes keep the notation of the vocabulary."""
    names = [tokenizer.token_of(number) for number in range(len(tokenizer))]
    assert not any(set(name) & set("▁\n\t ") for name in names)
    assert [tokenizer.id_of(name) for name in names] == list(range(len(tokenizer)))
    known = {"<0xF0>", "␣", "␣␣", "\\x0a", "\\x0a\\x0a", "\\x09", "<table>", "the", "##e", ",", "<mask>"}
    assert known <= set(names)
    assert tokenizer.encode("a\n\n\tb").tokens[-5:-2] in (("a", "\\x0a\\x0a", "\\x09"), ("\\x0a\\x0a", "␣", "\\x09"))
    assert "␣␣" in tokenizer.encode("▁▁").tokens
    assert tokenizer.spelling.candidate_pieces("###") == ("###", "#")
    assert tokenizer.spelling.candidate_pieces("##e") == ("e", "##e")


def changed(**parts: Any) -> Callable[[dict[str, Any]], None]:
    """A tokenizer.json with other parts, or other fields of its model."""

    def change(values: dict[str, Any]) -> None:
        for name, value in parts.items():
            (values["model"] if name in values["model"] else values)[name] = value

    return change


def without_piece(values: dict[str, Any]) -> None:
    vocabulary = values["model"]["vocab"]
    vocabulary["another"] = vocabulary.pop("<0xF0>")


def in_merges(values: dict[str, Any]) -> None:
    values["model"]["merges"] = [["▁", "<nowhere>"]]


SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
SENTENCES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a byte is missing": (without_piece, "its vocabulary has no <0xF0>: it must have every byte"),
    "no unknown token": (changed(unk_token=None), "its unk_token is None: with byte_fallback it must be one of the"),
    "the end of words": (changed(end_of_word_suffix="</w>"), "its byte_fallback is true beside an end_of_word_suffix"),
    "bytes of bytes": (changed(pre_tokenizer={"type": "ByteLevel"}), "its byte_fallback is true and its pre_tokenizer"),
    "another space": (changed(normalizer={**REPLACE, "content": "_"}, pre_tokenizer=SPLIT), "must write a space as"),
    "a longer space": (changed(normalizer={**REPLACE, "content": "▁▁"}), "its normalizer is .*: it must be one of"),
    "a pattern of spaces": (
        changed(normalizer={**REPLACE, "pattern": {"Regex": "(a+)+$"}}), "its normalizer is .*: it must be one of",
    ),
    "another split": (
        changed(pre_tokenizer={**SPLIT, "pattern": {"Regex": "(a+)+$"}}), "its pre_tokenizer is 'Split': one of",
    ),
    "a split of another kind": (
        changed(pre_tokenizer={**SPLIT, "behavior": "Removed"}), "its pre_tokenizer is 'Split': one of"
    ),
    "another decoder": (
        changed(decoder={"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}),
        "its decoder is 'Replace': one of",
    ),
    "no fallback": (changed(byte_fallback=False), "it must be ByteLevel for a model of type 'BPE'"),
    "merges of other pieces": (in_merges, "are broken"),
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_files_of_another_kind_are_refused_in_one_sentence(name: str, files: Path, tmp_path: Path) -> None:
    change, sentence = SENTENCES[name]
    values = json.loads((files / "tokenizer.json").read_text(encoding="utf-8"))
    change(values)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((files / file).read_bytes())
    (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(Refused, match=sentence) as refused:
        Tokenizer.from_folder(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_unigram_model_has_no_byte_fallback(tmp_path: Path) -> None:
    save_tokenizer("xlm-roberta", tmp_path)
    values = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    values["model"]["byte_fallback"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(Refused, match="its byte_fallback is true: it must be false for a model of type 'Unigram'"):
        Tokenizer.from_folder(tmp_path)


def test_a_model_predicts_a_mask_as_transformers_does(folder: Path) -> None:
    """The typed [MASK] is `<mask>`, and a word that is asked for is found by its pieces."""
    loaded, reference = bert_core.load(str(folder)), reference_of("mmbert", folder)
    text = "The old man 😀 walked [MASK] the river."
    encoding = loaded.tokenizer.encode(text)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(text.replace("[MASK]", "<mask>"), return_tensors="pt")
    assert list(encoding.input_ids) == theirs["input_ids"][0].tolist()
    (position,) = encoding.mask_positions
    probabilities = reference(**theirs).logits[0, position].softmax(-1)
    (prediction,) = (row for row in capture(loaded, encoding).predictions if row.position == position)
    for number, probability in prediction.top:
        assert_near(torch.tensor(probability), probabilities[number], 1e-4)
        assert loaded.tokenizer.id_of(loaded.tokenizer.token_of(number)) == number


# Sizes, numbers of special tokens and bases of jhu-clsp/mmBERT-base and jhu-clsp/ettin-encoder-17m, as public code
# that runs them states them. The other keys are those that the files of all ModernBERTs have.
MMBERT: dict[str, Any] = {
    "architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2,
    "classifier_activation": "gelu", "classifier_bias": False, "classifier_dropout": 0.0, "classifier_pooling": "mean",
    "cls_token_id": 1, "decoder_bias": True, "embedding_dropout": 0.0, "eos_token_id": 1,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000, "hidden_activation": "gelu", "hidden_size": 768,
    "intermediate_size": 1152, "layer_norm_eps": 1e-05, "local_attention": 128, "local_rope_theta": 160000,
    "mask_token_id": 4, "max_position_embeddings": 8192, "mlp_bias": False, "mlp_dropout": 0.0,
    "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05, "num_attention_heads": 12,
    "num_hidden_layers": 22, "pad_token_id": 0, "position_embedding_type": "sans_pos", "sep_token_id": 1,
    "sparse_pred_ignore_index": -100, "torch_dtype": "float32", "transformers_version": "4.48.0", "unk_token_id": 3,
    "vocab_size": 256000,
}  # fmt: skip
ETTIN = {
    **MMBERT, "bos_token_id": 50281, "cls_token_id": 50281, "eos_token_id": 50282, "hidden_size": 256,
    "intermediate_size": 384, "num_attention_heads": 4, "num_hidden_layers": 7, "pad_token_id": 50283,
    "sep_token_id": 50282, "vocab_size": 50368,
}  # fmt: skip


@pytest.mark.parametrize("settings", [MMBERT, ETTIN], ids=["mmbert", "ettin"])
@pytest.mark.parametrize("version", [4, 5])
def test_published_settings_are_read_as_transformers_reads_them(settings: dict[str, Any], version: int) -> None:
    """All layers have the same base, in the keys of transformers 4 and 5; its type of positions changes nothing."""
    values = dict(settings)
    if version == 5:
        rope = {"rope_theta": values.pop("global_rope_theta"), "rope_type": "default"}
        del values["local_rope_theta"]
        values["rope_parameters"] = {"full_attention": rope, "sliding_attention": rope}
    config, reference = BertConfig.from_dict(values), transformers.ModernBertConfig(**values)
    rotation = config.position_scheme.rotation
    assert rotation is not None and config.layer_design.pre_norm
    for layer, kind in enumerate(reference.layer_types):
        assert rotation.is_local(layer) == (kind == "sliding_attention")
        assert rotation.base(layer) == reference.rope_parameters[kind]["rope_theta"] == 160_000.0
        assert rotation.window(layer) in (None, reference.local_attention // 2)
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"):
        assert getattr(config, name) == getattr(reference, name) == settings[name]
    assert config.max_position_embeddings == 8192 and config.pad_token_id == settings["pad_token_id"]
