"""bert_core/tokenizer.py: text to tokens and back, beside transformers' tokenizer on the same files."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
import transformers

import bert_core
from bert_core import BertConfig, Encoding, Tokenizer
from bert_core.tokenizer import ROBERTA_SPECIAL_TOKENS, SPECIAL_TOKENS
from tests.families import save_family

# Whole words, pieces of words, signs, and letters in several scripts; no Greek, so that Greek is [UNK].
VOCABULARY = (
    *SPECIAL_TOKENS,
    *"!\"#$%&'()*+,-./:;<=>?@[]_`{|}~“”’…",
    *"abcdefghijklmnopqrstuvwxyz0123456789",
    *(f"##{sign}" for sign in "abcdefghijklmnopqrstuvwxyz0123456789"),
    *"ABCEIPZßéüçñ東京猫日本жд😀👍",
    *("##é", "##ü", "##ж", "##д", "##ß", "##👍"),
    *"the cat sat on mat dog was big house in city un play cafe Zurich zurich".split(),  # noqa: SIM905
    *("##ing", "##ed", "##able", "##believ", "script", "</", "##s", "##er"),
)


def save(folder: Path, *, lowercase: bool = True, **settings: object) -> Path:
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(VOCABULARY)) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": lowercase, "tokenizer_class": "BertTokenizer", **settings}), encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("words") / "lower")


@pytest.fixture(scope="module")
def cased_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("words") / "cased", lowercase=False)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(folder)


TEXTS: dict[str, tuple[str, str | None]] = {
    "plain": ("The cat sat on the mat.", None),
    "pair": ("The cat sat on the mat.", "The dog was big!"),
    "pieces": ("unbelievable playing, zzz played", "12345"),
    "accents": ("Café Zürich ça señor", "ZÜRICH É ßß"),
    "combining": ("Cafe\u0301 Zu\u0308rich", None),
    "emoji": ("the 😀 cat 👍👍🏽", "👩‍👩‍👧 dog"),
    "chinese": ("東京の猫 cat日本", "日本"),
    "cyrillic": ("жд ж д", None),
    "mask": ("the [MASK] sat on [MASK][MASK]mat", "[MASK]"),
    "other specials": ("[CLS] the [SEP] cat [PAD] [UNK]", "[SEP]"),
    "unknown": ("Ωμέγα λόγος", "the λόγος"),
    "spaces": ("  the\t\tcat\n\nsat  ", " \u00a0dog\u3000big "),
    "controls": ("the\x00cat\ufffd\u200bsat\u202e", None),
    "markup": ('</script><script>alert("cat")</script>', "<b>&amp; the</b>"),
    "very long word": ("a" * 300 + " cat", None),
    "quotes": ("“the cat’s…” it's [mask] [ MASK ]", None),
}


def assert_same(ours: Encoding, theirs: transformers.BatchEncoding) -> None:
    assert list(ours.input_ids) == theirs["input_ids"]
    assert list(ours.token_type_ids) == theirs["token_type_ids"]
    assert list(ours.offsets) == theirs["offset_mapping"]
    assert list(ours.tokens) == theirs.tokens()


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("cased", [False, True], ids=["lower", "cased"])
def test_tokens_are_those_of_transformers(name: str, cased: bool, folder: Path, cased_folder: Path) -> None:
    """Ids, segments, offsets and pieces agree, for every script, with [MASK] typed, with and without lower-casing."""
    chosen = cased_folder if cased else folder
    reference = transformers.AutoTokenizer.from_pretrained(chosen)
    text, pair = TEXTS[name]
    ours = Tokenizer.from_folder(chosen).encode(text, pair)
    assert_same(ours, reference(text, pair, return_offsets_mapping=True))
    assert ours.truncated_count == 0


@pytest.mark.parametrize("lengths", [(30, 4), (4, 30), (20, 20), (21, 20), (20, 21), (3, 3), (40, None)])
@pytest.mark.parametrize("room", [7, 16, 17, 33])
def test_the_longer_text_gives_way(
    tokenizer: Tokenizer, folder: Path, lengths: tuple[int, int | None], room: int
) -> None:
    """A pair that is too long loses the end of its longer text first, as in transformers, and says how much."""
    text = "the cat " * (lengths[0] // 2) + "mat" * (lengths[0] % 2)
    pair = None if lengths[1] is None else "dog " * lengths[1]
    ours = tokenizer.encode(text, pair, max_length=room)
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    whole = len(reference(text, pair)["input_ids"])
    expected = reference(text, pair, max_length=room, truncation="longest_first", return_offsets_mapping=True)
    assert_same(ours, expected)
    assert (ours.full_length, ours.truncated_count) == (whole, max(0, whole - room))


def test_sides_and_specials(tokenizer: Tokenizer) -> None:
    """Added [CLS] and [SEP] belong to no side; typed ones belong to the text they were typed in."""
    encoding = tokenizer.encode("the [SEP] cat", "dog")
    assert encoding.tokens == ("[CLS]", "the", "[SEP]", "cat", "[SEP]", "dog", "[SEP]")
    assert encoding.sides == (None, "A", "A", "A", None, "B", None)
    assert encoding.special == (True, False, False, False, True, False, True)
    assert encoding.token_type_ids == (0, 0, 0, 0, 0, 1, 1)


def test_duties_are_told_by_place_and_spelling(tokenizer: Tokenizer) -> None:
    """Added special tokens have the duty of their place, typed ones that of their spelling, and words have none."""
    encoding = tokenizer.encode("[CLS] the [SEP] [MASK] Ω [PAD]", "dog")
    typed = ("first", None, "between", "mask", "unknown", "pad")
    assert encoding.roles == ("first", *typed, "between", None, "end")
    assert encoding.has_role("mask", "pad") == (False,) * 4 + (True, False, True) + (False,) * 3
    hidden = tokenizer.mask_words(encoding, [1])
    assert hidden.roles[2] == "mask" and hidden.masked_piece(2) == "the"
    assert (encoding.mask_positions, hidden.mask_positions, encoding.unknown_count) == ((4,), (2, 4), 1)


@pytest.fixture(scope="module")
def other_signs(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The same words, with special tokens written as RoBERTa writes them."""
    folder = tmp_path_factory.mktemp("signs")
    words = [word for word in dict.fromkeys(VOCABULARY) if word not in SPECIAL_TOKENS]
    (folder / "vocab.txt").write_text("\n".join([*ROBERTA_SPECIAL_TOKENS.roles, *words]) + "\n", encoding="utf-8")
    return Tokenizer.from_folder(folder)


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>"])
def test_a_typed_mask_is_the_models_own(mask: str, other_signs: Tokenizer) -> None:
    """BERT's [MASK] and the model's own spelling are both taken, and offsets point into what was typed."""
    text = f"the {mask}{mask} cat, {mask}"
    encoding = other_signs.encode(text, f"{mask} dog")
    assert encoding.tokens == (
        *("<s>", "the", "<mask>", "<mask>", "cat", ",", "<mask>"), "</s>", "</s>", "<mask>", "dog", "</s>",
    )  # fmt: skip
    assert encoding.roles[7:] == ("between", "between", "mask", None, "end")
    assert set(encoding.token_type_ids) == {0} and encoding.mask_positions == (2, 3, 6, 9)
    for position, (start, end) in enumerate(encoding.offsets):
        source = text if encoding.sides[position] == "A" else f"{mask} dog"
        written = mask if encoding.roles[position] == "mask" else encoding.tokens[position]
        assert encoding.special[position] or source[start:end] == written
    assert [encoding.masked_piece(position) for position in encoding.mask_positions] == [None] * 4
    hidden = other_signs.mask_words(encoding, [0])
    assert (hidden.masked_piece(1), hidden.tokens[1]) == ("the", "<mask>")


def test_words_group_pieces(tokenizer: Tokenizer) -> None:
    """Pieces of one word share a number, counted through both texts; a word is given back as it was typed."""
    encoding = tokenizer.encode("Unbelievable, playing!", "The PLAYED cat")
    assert encoding.tokens[1:4] == ("un", "##believ", "##able")
    assert encoding.words == (None, 0, 0, 0, 1, 2, 2, 3, None, 4, 5, 5, 6, None)
    assert encoding.word_count == 7
    assert [encoding.pieces_of(word) for word in (0, 2, 5)] == [(1, 2, 3), (5, 6), (10, 11)]
    assert [encoding.word_text(word) for word in range(7)] == [
        "Unbelievable",
        ",",
        "playing",
        "!",
        "The",
        "PLAYED",
        "cat",
    ]


def test_every_typed_mask_is_a_word_of_its_own(tokenizer: Tokenizer) -> None:
    """Masks that touch each other or a word are separate words, and their positions are listed."""
    encoding = tokenizer.encode("the[MASK][MASK]playing [MASK]")
    assert encoding.tokens == ("[CLS]", "the", "[MASK]", "[MASK]", "play", "##ing", "[MASK]", "[SEP]")
    assert encoding.mask_positions == (2, 3, 6)
    assert encoding.words == (None, 0, 1, 2, 3, 3, 4, None)


def test_words_can_be_masked(tokenizer: Tokenizer) -> None:
    """Every piece of a masked word becomes [MASK] and still points at its own text; other words stay."""
    encoding = tokenizer.encode("the unbelievable cat", "dog")
    masked = tokenizer.mask_words(encoding, [1, 3])
    assert masked.tokens == ("[CLS]", "the", "[MASK]", "[MASK]", "[MASK]", "cat", "[SEP]", "[MASK]", "[SEP]")
    assert [masked.input_ids[i] for i in masked.mask_positions] == [tokenizer.id_of("[MASK]")] * 4
    assert (masked.offsets, masked.words, masked.sides) == (encoding.offsets, encoding.words, encoding.sides)
    assert masked.word_text(1) == "unbelievable"
    named = (
        "[CLS]",
        "the",
        "un (masked)",
        "##believ (masked)",
        "##able (masked)",
        "cat",
        "[SEP]",
        "dog (masked)",
        "[SEP]",
    )
    assert masked.labels == tuple(named)
    typed = tokenizer.encode("a [MASK]")
    assert typed.labels == typed.tokens and typed.masked_piece(2) is None
    assert encoding.mask_positions == ()
    with pytest.raises(ValueError, match=r"^word 4 does not exist in this text: it has words 0 to 3$"):
        tokenizer.mask_words(encoding, [4])


@pytest.mark.parametrize("text", ["", " ", "\t\n \u00a0\u3000"])
def test_no_text_is_one_clear_sentence(tokenizer: Tokenizer, text: str) -> None:
    """An empty text is refused; so is a second sentence without a first; an empty second one is no second one."""
    with pytest.raises(ValueError, match=r"^there is no text: type at least one word$"):
        tokenizer.encode(text, text)
    with pytest.raises(ValueError, match=r"^there is a second sentence but no first one: type the first, or move"):
        tokenizer.encode(text, "the dog")
    assert tokenizer.encode("the cat", text) == tokenizer.encode("the cat")


def test_a_text_of_invisible_signs_only_is_refused(tokenizer: Tokenizer) -> None:
    """Signs that all vanish in tokenizing leave no text, on either side."""
    with pytest.raises(ValueError, match=r"^the text '.*' contains no readable character: type at least one word$"):
        tokenizer.encode("\x00\u200b\u202e")
    with pytest.raises(ValueError, match=r"^the second sentence '.*' contains no readable character"):
        tokenizer.encode("the cat", "\u200b")


def test_unknown_tokens_are_counted(tokenizer: Tokenizer) -> None:
    """Words in an unknown script count, in both texts; known ones do not."""
    assert tokenizer.encode("Ωμέγα λόγος").unknown_count == 2
    assert tokenizer.encode("cat λόγος", "ω the").unknown_count == 2
    assert tokenizer.encode("the cat").unknown_count == 0
    assert tokenizer.encode("the cat").typed_count == 2
    assert tokenizer.encode("cat λόγος", "ω the").typed_count == 4
    assert tokenizer.encode("Ωμέγα λόγος").mostly_unknown and not tokenizer.encode("cat λόγος").mostly_unknown


def test_a_hundred_thousand_characters(tokenizer: Tokenizer) -> None:
    """A long text, also one without a single space, is cut to the length asked for and says what was left out."""
    words = tokenizer.encode("the cat sat " * 8334, "dog", max_length=512)
    assert (len(words), words.full_length) == (512, 3 * 8334 + 4)
    assert words.tokens[-3:] == ("[SEP]", "dog", "[SEP]")
    unbroken = tokenizer.encode("a" * 100_000)
    assert unbroken.tokens == ("[CLS]", "[UNK]", "[SEP]")
    assert unbroken.word_text(0) == "a" * 100_000
    signs = tokenizer.encode("!" * 100_000)
    assert (len(signs), signs.truncated_count) == (512, 100_002 - 512)


@pytest.mark.parametrize(("pair", "least"), [(None, 3), ("dog", 5)])
def test_a_length_without_room_is_refused(tokenizer: Tokenizer, pair: str | None, least: int) -> None:
    """Each text keeps at least one token, or the sentence says what is the least."""
    assert len(tokenizer.encode("the cat sat", pair, max_length=least)) == least
    for too_short in (least - 1, 0, -5):
        with pytest.raises(
            ValueError, match=f"^max_length {too_short} leaves no room .*: it must be at least {least}$"
        ):
            tokenizer.encode("the cat sat", pair, max_length=too_short)


@pytest.mark.parametrize(
    "text",
    [
        '</script><script>alert("cat")</script>',
        "<img src=x onerror=alert(1)>",
        "the\u2028cat\u2029sat",
        "{{cat}} ${the} %s \\n \\u0000",
        "' OR 1=1 --",
        "𝕔𝕒𝕥 🏳️‍🌈 \U0010ffff",
        "a\u0301" * 50,
    ],
)
def test_hostile_text_stays_text(tokenizer: Tokenizer, text: str) -> None:
    """What was typed is kept as it is, and every token's span lies inside it."""
    encoding = tokenizer.encode(text, text)
    assert (encoding.text, encoding.pair) == (text, text)
    for (start, end), special in zip(encoding.offsets, encoding.special, strict=True):
        assert (start, end) == (0, 0) if special else 0 <= start < end <= len(text)
    for word in range(encoding.word_count):
        assert encoding.word_text(word) in text


def test_half_a_character_is_an_error_that_can_be_shown(tokenizer: Tokenizer) -> None:
    """A lone surrogate, which is no text, is one clear sentence on either side."""
    for text, pair in (("the \ud83d cat", None), ("the cat", "\udc00")):
        with pytest.raises(ValueError, match=r"^the text contains a broken character: type it again$"):
            tokenizer.encode(text, pair)


def test_numbers_and_names(tokenizer: Tokenizer) -> None:
    """Every piece has one number, an unknown one has that of [UNK], and pieces join to readable text."""
    assert len(tokenizer) == len(dict.fromkeys(VOCABULARY))
    assert [tokenizer.token_of(tokenizer.id_of(piece)) for piece in ("cat", "##ing", "[MASK]")] == [
        "cat",
        "##ing",
        "[MASK]",
    ]
    assert tokenizer.id_of("dinosaur") == tokenizer.id_of("[UNK]") == 1
    encoding = tokenizer.encode("the cat playing")
    assert tokenizer.decode(encoding.input_ids) == "the cat playing"


def test_plain_encoding_has_no_frame(tokenizer: Tokenizer) -> None:
    """encode_plain gives the pieces alone, one array a text, as small as the vocabulary allows."""
    first, second = tokenizer.encode_plain(["the cat", "playing"])
    assert first.tolist() == [tokenizer.id_of("the"), tokenizer.id_of("cat")]
    assert second.tolist() == [tokenizer.id_of("play"), tokenizer.id_of("##ing")]
    assert first.dtype.itemsize == 2


def test_a_table_has_a_row_for_every_token(tokenizer: Tokenizer) -> None:
    """A model with fewer rows than there are tokens is refused; rows that no token has are allowed."""
    size = len(tokenizer)
    for rows in (size, size + 35):
        tokenizer.check_against(BertConfig(vocab_size=rows))
    with pytest.raises(ValueError, match=f"the tokenizer has {size} tokens but the model {size - 1}: they do not"):
        tokenizer.check_against(BertConfig(vocab_size=size - 1))


def test_rows_that_no_token_has_are_named_and_said(folder: Path) -> None:
    """A tokenizer that fits a larger table says so in a note, and names the rows beyond its own tokens."""
    found = Tokenizer.from_folder(folder)
    size = len(found)
    found.fit(BertConfig(vocab_size=size + 2000))
    assert found.notes == (
        f"the embedding table has {size + 2000:,} rows and the tokenizer {size} tokens: 2,000 rows belong to no token",
    )
    assert found.token_of(size + 1999) == f"row {size + 1999:,}" and len(found) == size
    with pytest.raises(ValueError, match="a piece is"):
        found.token_of(size + 2000)


@pytest.mark.parametrize("limit", [16, 40, 512, 8192])
def test_a_text_is_truncated_to_the_limit_of_the_model(folder: Path, limit: int) -> None:
    """By default, alone and in a pair; a copy and a pickled tokenizer keep the limit, and max_length replaces it."""
    fitted = Tokenizer.from_folder(folder)
    fitted.fit(BertConfig(vocab_size=len(fitted), max_position_embeddings=limit))
    text, full_length = "the " * limit, limit + 2
    encoding = fitted.encode(text)
    assert (len(encoding), encoding.full_length, encoding.truncated_count) == (limit, full_length, 2)
    assert len(fitted.encode(text, "the dog")) == limit
    assert fitted.encode(text, max_length=full_length).truncated_count == 0
    for tokenizer in (copy.copy(fitted), copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert tokenizer.encode(text) == encoding


def test_without_a_model_a_text_is_truncated_to_512_tokens(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode("the " * 600)
    assert (len(encoding), encoding.truncated_count) == (512, 602 - 512)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "positions", "limit"), [("electra", 40, 40), ("roberta", 42, 40)])
def test_a_loaded_model_reads_as_many_tokens_as_its_positions(
    tmp_path: Path, family: str, positions: int, limit: int
) -> None:
    """The default fills a model exactly; RoBERTa's table has two more rows, which no token of a text has."""
    loaded = bert_core.load(save_family(family, tmp_path / family, max_position_embeddings=positions))
    encoding = loaded.tokenizer.encode("the cat sat " * 40)
    assert len(encoding) == loaded.config.max_position_embeddings == limit and encoding.truncated_count > 0
    assert bert_core.capture(loaded, encoding).attention.shape[-2:] == (limit, limit)
    longer = loaded.tokenizer.encode("the cat sat " * 40, max_length=limit + 1)
    with pytest.raises(bert_core.Refused, match=f"has {limit + 1} tokens: this model takes at most {limit}"):
        bert_core.capture(loaded, longer)


def test_both_kinds_of_files_give_one_tokenizer(folder: Path, tmp_path: Path) -> None:
    """tokenizer.json gives what vocab.txt gives, and is read first."""
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    reference.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").write_text("broken", encoding="utf-8")
    one, other = Tokenizer.from_folder(folder), Tokenizer.from_folder(tmp_path)
    for text, pair in TEXTS.values():
        assert one.encode(text, pair) == other.encode(text, pair)


def test_a_tokenizer_saved_with_padding_and_truncation_does_neither(folder: Path, tmp_path: Path) -> None:
    """What a file says of padding and cutting does not change a text."""
    backend = transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer
    backend.enable_truncation(4)
    backend.enable_padding(length=40)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.from_folder(tmp_path).encode("the cat sat on the mat").full_length == 8


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "has no tokenizer: neither tokenizer.json nor vocab.txt"),
        ({"tokenizer.json": "{"}, "the tokenizer files in .* are broken"),
        ({"tokenizer.json": "[]"}, "the tokenizer files in .* are broken"),
        ({"vocab.txt": "cat\n", "tokenizer_config.json": "{"}, "the tokenizer files in .* are broken"),
        ({"vocab.txt": "cat\n", "tokenizer_config.json": "[]"}, "the tokenizer files in .* are broken"),
        ({"vocab.txt": "cat\n[UNK]\n[SEP]\n[CLS]\n[PAD]\n"}, r"the vocabulary has no \[MASK\]"),
        ({"vocab.txt": ""}, r"the tokenizer files in .* are broken: the vocabulary has no \[PAD\], \[UNK\]"),
    ],
)
def test_broken_files_are_one_clear_error(tmp_path: Path, files: dict[str, str], words: str) -> None:
    """A folder without a usable tokenizer is a ValueError that says what is wrong."""
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        Tokenizer.from_folder(tmp_path)
