"""Targets as text: each form of the grammar, round trips, words that are also kinds, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bert_core import Encoding, LoadedModel, Refused, Target, capture, load, loss_target, save, sentence_similarity
from bert_core.run.similarity import similarity_target
from bert_core.run.target_grammar import encode_pair_text, format_target, parse_target, target_forms
from bert_core.target_kinds import TARGET_KINDS
from bert_core.task_heads import head_of
from tests.conftest import VOCABULARY
from tests.families import save_family
from tests.near import assert_near

PAIR = ("who sat on the mat", "an old cat sat on the red mat")


@pytest.fixture
def masked(tiny_loaded: LoadedModel) -> Encoding:
    """[CLS] the cat [MASK] on the mat [SEP]"""
    return tiny_loaded.tokenizer.encode("the cat [MASK] on the mat")


@pytest.fixture
def twice(tiny_loaded: LoadedModel) -> Encoding:
    """[CLS] the [MASK] [MASK] on the [MASK] [SEP]"""
    return tiny_loaded.tokenizer.encode("the [MASK] [MASK] on the [MASK]")


@pytest.fixture
def tagger(tiny_tagger_folder: Path) -> LoadedModel:
    return load(tiny_tagger_folder, device="cpu")


@pytest.fixture
def classifier(tiny_classifier_folder: Path) -> LoadedModel:
    return load(tiny_classifier_folder, device="cpu")


@pytest.fixture
def reader(tiny_reader_folder: Path) -> LoadedModel:
    return load(tiny_reader_folder, device="cpu")


@pytest.fixture
def chooser(tiny_chooser_folder: Path) -> LoadedModel:
    return load(tiny_chooser_folder, device="cpu")


def id_of(loaded: LoadedModel, piece: str) -> int:
    return loaded.tokenizer.id_of(piece)


# ---------------------------------------------------------------------------- the forms


@pytest.mark.parametrize("written", ["sat", " sat ", "SAT", "sat at 3", "3:sat"])
def test_a_word_at_the_only_mask(tiny_loaded: LoadedModel, masked: Encoding, written: str) -> None:
    """A word alone, with its position behind or before it, is the log-probability of its piece at the mask."""
    found = parse_target(tiny_loaded, masked, written)
    assert found == (Target("mlm", 3, id_of(tiny_loaded, "sat")), masked)
    assert format_target(tiny_loaded, found.target) == "3:sat"


def test_a_word_of_several_pieces_fits_the_masks_in_a_row(tiny_loaded: LoadedModel, twice: Encoding) -> None:
    """It is asked for where as many masks stand in a row; its text has its pieces and comes back as the same target."""
    pieces = (id_of(tiny_loaded, "cat"), id_of(tiny_loaded, "##s"))
    expected = Target("joint", pieces=((2, pieces[0]), (3, pieces[1])))
    for written in ("cats", "cats at 2", "2:cats"):
        assert parse_target(tiny_loaded, twice, written).target == expected
    assert format_target(tiny_loaded, expected) == "2:cats"
    assert parse_target(tiny_loaded, twice, "mat").target == Target("mlm", 6, id_of(tiny_loaded, "mat"))
    with pytest.raises(Refused, match="there is only one mask"):
        parse_target(tiny_loaded, twice, "6:cats")


@pytest.mark.parametrize("written", ["sat rather than ran", "sat at 3 rather than ran", "3:sat rather than ran"])
def test_a_word_rather_than_another(tiny_loaded: LoadedModel, masked: Encoding, written: str) -> None:
    """The contrast of two words, wherever the position stands."""
    expected = Target("contrast", 3, id_of(tiny_loaded, "sat"), against=id_of(tiny_loaded, "ran"))
    assert parse_target(tiny_loaded, masked, written).target == expected
    assert format_target(tiny_loaded, expected) == "3:sat rather than ran"


def test_a_piece_at_a_position_that_is_not_hidden(tiny_loaded: LoadedModel, masked: Encoding) -> None:
    """With a position any piece of the vocabulary can be asked for at any token, as a piece within a word."""
    for written, position, piece in (("2:dog", 2, "dog"), ("dog at 2", 2, "dog"), ("3:##ing", 3, "##ing")):
        target = parse_target(tiny_loaded, masked, written).target
        assert target == Target("mlm", position, id_of(tiny_loaded, piece))
        assert parse_target(tiny_loaded, masked, format_target(tiny_loaded, target)).target == target


def test_a_piece_with_a_colon_or_a_number_is_a_word(tiny_loaded: LoadedModel, masked: Encoding) -> None:
    """Signs of the grammar are words where a position stands before them."""
    for piece in (":", "7", "-", "."):
        target = Target("mlm", 3, id_of(tiny_loaded, piece))
        assert parse_target(tiny_loaded, masked, piece).target == target
        assert format_target(tiny_loaded, target) == f"3:{piece}"
        assert parse_target(tiny_loaded, masked, f"3:{piece}").target == target


def test_loss_is_of_all_words_that_were_hidden(tiny_loaded: LoadedModel) -> None:
    """With the text of before it is the loss over the hidden pieces; without it, or with nothing hidden, a word."""
    original = tiny_loaded.tokenizer.encode("the cat sat on the mat")
    hidden = tiny_loaded.tokenizer.mask_words(original, [1, 5])
    expected = loss_target(hidden, original)
    assert parse_target(tiny_loaded, hidden, "loss", original=original) == (expected, hidden)
    assert format_target(tiny_loaded, expected) == "loss"
    for before in (None, hidden):
        with pytest.raises(Refused, match=r"'loss' has 4 pieces|are masked: add the position"):
            parse_target(tiny_loaded, hidden, "loss", original=before)


def test_kinds_without_values(tiny_loaded: LoadedModel, chooser: LoadedModel) -> None:
    """`nsp` and `choice` stand for themselves."""
    pair = tiny_loaded.tokenizer.encode(*PAIR)
    assert parse_target(tiny_loaded, pair, "nsp") == (Target("nsp"), pair)
    assert parse_target(chooser, pair, "choice") == (Target("choice"), pair)
    assert format_target(chooser, Target("choice")) == "choice" and format_target(tiny_loaded, Target("nsp")) == "nsp"


def test_labels_are_numbers_or_names(classifier: LoadedModel, tagger: LoadedModel) -> None:
    """Both stand for the same class or tag, a name full of signs too; a text made of a target has the number."""
    encoding = classifier.tokenizer.encode("the cat sat")
    for label, name in enumerate(classifier.labels):
        target = Target("class", label=label)
        assert parse_target(classifier, encoding, f"class:{name}").target == target
        assert parse_target(classifier, encoding, f"class:{label}").target == target
        assert format_target(classifier, target) == f"class:{label}"
    for label, name in enumerate(tagger.tags):
        target = Target("tag", 2, label=label)
        assert parse_target(tagger, encoding, f"tag:2:{name}").target == target
        assert parse_target(tagger, encoding, format_target(tagger, target)).target == target


def test_places_are_positions(reader: LoadedModel, tmp_path: Path) -> None:
    """An answer has two, 0 and 0 for none; a replaced token has one."""
    pair = reader.tokenizer.encode(*PAIR)
    assert parse_target(reader, pair, "span:9:10").target == Target("span", 9, last=10)
    assert parse_target(reader, pair, "span:0:0").target == Target("span", 0, last=0)
    assert format_target(reader, Target("span", 9, last=10)) == "span:9:10"
    electra = load(save_family("electra", tmp_path / "electra", "ForPreTraining"), device="cpu")
    encoding = electra.tokenizer.encode("The old man sat.")
    assert parse_target(electra, encoding, "replaced:3").target == Target("replaced", 3)
    assert format_target(electra, Target("replaced", 3)) == "replaced:3"


def test_likeness_to_another_text(tiny_loaded: LoadedModel) -> None:
    """All that stands behind `like:` is the other text, colons and spaces too; the text itself stays."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat")
    for other in ("a dog ran", "nsp", "3:cat", "like:a dog", " a dog "):
        found = parse_target(tiny_loaded, encoding, f"like:{other}")
        assert found == (similarity_target(tiny_loaded, encoding, tiny_loaded.tokenizer.encode(other)), encoding)
        assert parse_target(tiny_loaded, encoding, format_target(tiny_loaded, found.target)) == found
    assert head_of(found.target).template_values(tiny_loaded, encoding, found.target)["text"] == "a dog"


def test_likeness_of_the_two_texts_of_a_pair(tiny_loaded: LoadedModel) -> None:
    """`alike:A` is of the first text alone, compared with the second alone, and `alike:B` the other way round."""
    pair = tiny_loaded.tokenizer.encode(*PAIR)
    alone = [tiny_loaded.tokenizer.encode(text) for text in PAIR]
    for side, (own, other) in (("A", alone), ("B", alone[::-1])):
        target, encoding = parse_target(tiny_loaded, pair, f"alike:{side}")
        assert encoding == own and target.other == other
        value = capture(tiny_loaded, encoding, target=target).target_value
        assert_near(value, sentence_similarity(tiny_loaded, *alone).cosine, of=1)


def test_words_hidden_in_a_pair_are_hidden_in_its_texts(tiny_loaded: LoadedModel) -> None:
    """Each text read by itself has the masks that it has in the pair, and no more."""
    original = tiny_loaded.tokenizer.encode(*PAIR)
    hidden = tiny_loaded.tokenizer.mask_words(original, [1, 7])
    first, second = (encode_pair_text(tiny_loaded, hidden, original, side) for side in "AB")
    encode, mask = tiny_loaded.tokenizer.encode, tiny_loaded.tokenizer.mask_words
    assert first == mask(encode(PAIR[0]), [1]) and second == mask(encode(PAIR[1]), [2])
    target, encoding = parse_target(tiny_loaded, hidden, "alike:B", original=original)
    assert encoding == second and target.other == first


def test_forms_name_what_a_model_can_be_asked(
    tiny_loaded: LoadedModel, classifier: LoadedModel, tagger: LoadedModel
) -> None:
    """Without a model all written kinds are there, with one those of its trained heads."""
    assert target_forms(tiny_loaded) == ["POSITION:WORD", "nsp", "like:TEXT"]
    assert target_forms(classifier) == ["POSITION:WORD", "nsp", "class:LABEL", "like:TEXT"]
    assert "tag:POSITION:LABEL" in target_forms(tagger)
    everything = target_forms()
    assert {form.partition(":")[0] for form in everything[1:-1]} == {
        name for name, kind in TARGET_KINDS.items() if kind.has_text_form
    }


# ---------------------------------------------------------------------------- words that are also names of kinds


def test_the_name_of_a_kind_is_a_word_at_a_mask(tiny_loaded: LoadedModel, chooser: LoadedModel, tmp_path: Path) -> None:
    """`choice` is the word where a mask stands, the vocabulary has it and no chooser is there; else it is the kind."""
    known = tmp_path / "known"
    save(tiny_loaded, known)
    words = ["choice" if word == "ran" else word for word in VOCABULARY]
    for file in known.glob("*token*.json"):
        file.unlink()
    (known / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    loaded = load(known, device="cpu")
    encoding = loaded.tokenizer.encode("the cat [MASK] on the mat", "it is old")
    assert parse_target(loaded, encoding, "choice").target == Target("mlm", 3, id_of(loaded, "choice"))
    typed = loaded.tokenizer.encode("the cat sat on the mat", "it is old")
    assert parse_target(loaded, typed, "choice").target == Target("choice")
    trained = replace(loaded, task_models=chooser.task_models)
    assert parse_target(trained, encoding, "choice").target == Target("choice")
    assert parse_target(trained, encoding, "3:choice").target == Target("mlm", 3, id_of(loaded, "choice"))
    # A word that the vocabulary lacks is the kind, which says best what is missing.
    masked = tiny_loaded.tokenizer.encode("the cat [MASK] on the mat", "it is old")
    assert parse_target(tiny_loaded, masked, "choice").target == Target("choice")


def test_words_of_the_grammar_are_words_where_nothing_follows(tiny_loaded: LoadedModel, masked: Encoding) -> None:
    """A kind that needs values is not meant by its name with none, `like` alone is a word, and so is `at`."""
    assert parse_target(tiny_loaded, masked, "at").target == Target("mlm", 3, id_of(tiny_loaded, "at"))
    for word in ("like", "alike", "similarity", "mlm"):
        with pytest.raises(Refused, match=f"'{word}' has \\d+ pieces in this vocabulary"):
            parse_target(tiny_loaded, masked, word)


# ---------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("", "the target is '': write POSITION:WORD, nsp, like:TEXT"),
        ("   ", "the target is ' ': write POSITION:WORD"),
        ("::", "the target is '::': write"),
        ("sat:", "the target is 'sat:': write"),
        ("x:sat", "the target is 'x:sat': write"),
        ("-3:sat", "the target is '-3:sat': write"),
        ("3.0:sat", "write POSITION:WORD"),
        ("nsp:1", "the target is 'nsp:1': write nsp"),
        ("class", "the target is 'class': write class:LABEL"),
        ("class:", "the target is 'class:': write class:LABEL"),
        ("class:pet", "the class 'pet' does not exist: {name} has none"),
        ("class:-1", "the class '-1' does not exist"),
        ("tag:2", "the target is 'tag:2': write tag:POSITION:LABEL"),
        ("tag:x:1", "the target is 'tag:x:1': write tag:POSITION:LABEL"),
        ("span:3", "the target is 'span:3': write span:POSITION:LAST"),
        ("span:3:", "the target is 'span:3:': write span:POSITION:LAST"),
        ("span:3:4:5", "the target is 'span:3:4:5': write span:POSITION:LAST"),
        ("span::4", "the target is 'span::4': write span:POSITION:LAST"),
        ("replaced:-1", "the target is 'replaced:-1': write replaced:POSITION"),
        ("99:cats", "has no token 'cats', and no word is masked at position 99"),
        ("sat rather than cats", "'cats' has 2 pieces in this vocabulary"),
        ("alike:A", "the target is 'alike:A': this target needs a second text"),
        ("alike:C", "the target is 'alike:C': write"),
        ("like:", "the target is 'like:': write"),
        ("π", "'π' has characters that are not in the vocabulary"),
        ("sat rather than π", "'π' has characters that are not in the vocabulary"),
    ],
)
def test_what_is_no_target_is_refused_in_one_sentence(
    tiny_loaded: LoadedModel, masked: Encoding, written: str, sentence: str
) -> None:
    """The sentence has what was given and what is allowed, on one line."""
    with pytest.raises(Refused) as refused:
        parse_target(tiny_loaded, masked, written)
    assert sentence.format(name=tiny_loaded.name) in str(refused.value) and "\n" not in str(refused.value)


def test_what_the_model_or_the_text_lacks_is_refused_when_it_is_computed(
    tiny_loaded: LoadedModel, classifier: LoadedModel, masked: Encoding
) -> None:
    """The grammar reads what a model has no head for, and a label or a place beyond; `capture` refuses them."""
    for loaded, written, sentence in (
        (tiny_loaded, "replaced:3", "has no trained replaced-token detection head"),
        (tiny_loaded, "span:1:2", "has no trained question-answering head"),
        (tiny_loaded, "nsp", "needs two texts: add a second sentence"),
        (classifier, "class:3", "class 3 does not exist: this model has 0 to 2"),
        (tiny_loaded, "99:sat", "position 99 does not exist"),
    ):
        with pytest.raises(Refused, match=sentence):
            capture(loaded, masked, target=parse_target(loaded, masked, written).target)


def test_words_are_refused_without_a_place(tiny_loaded: LoadedModel, twice: Encoding) -> None:
    """Where nothing is hidden, or several words are, the sentence says what to do."""
    with pytest.raises(Refused, match="no word is masked, so mask one, or write"):
        parse_target(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat"), "ran")
    two = tiny_loaded.tokenizer.encode("the [MASK] sat on the [MASK]")
    with pytest.raises(Refused, match="add the position of the word, as in 'cat at 2'"):
        parse_target(tiny_loaded, two, "dog")


HOSTILE = (
    "9" * 5_000, f"{'9' * 5_000}:sat", f"class:{'9' * 5_000}", f"span:{'9' * 5_000}:1", f"tag:1:{'x' * 100_000}",
    "x" * 1_000_000, ":" * 100_000, "like:" * 50_000, " rather than " * 10_000, " at " * 10_000, f"x at {'9' * 5_000}",
    "\x00", "sat\x00", "class:\x00", "like:\x00", "\u202esat", "\u202e" * 10_000, "like:\u202e\u202e", "\u0663:sat",
    "class:\u0661", "\u00b2:sat", "\ud800", "like:\ud800", "3:\ud800", "\U0001f600" * 1_000, "a\nb", "class:a\nb",
    "<script>alert(1)</script>", "{0.__class__}", "class:{name}", "%s%n", "../../etc/passwd",
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_texts_are_targets_or_refused(
    tiny_loaded: LoadedModel, classifier: LoadedModel, masked: Encoding, number: int
) -> None:
    """Very long texts, NUL, marks of direction, lone surrogates and digits of other scripts raise nothing else, and
    a sentence that refuses one is short and on one line."""
    for loaded in (tiny_loaded, classifier):
        sentence = ""
        try:
            target = parse_target(loaded, masked, HOSTILE[number]).target
        except Refused as refused:
            sentence = str(refused)
        if sentence:
            assert len(sentence) < 1_000 and "\n" not in sentence
        else:
            assert parse_target(loaded, masked, format_target(loaded, target)).target == target
