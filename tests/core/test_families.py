"""Other families of encoders: what transformers computes with a checkpoint, ours computes too, and writes back."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

import bert_core
from bert_core import LoadedModel, Target, Tokenizer, checkpoint, word_target
from bert_core.checkpoint import CheckpointError
from bert_core.numpy_bert import BertForPretraining
from bert_core.refused import Refused
from bert_core.run.ablation import ablate_heads
from bert_core.run.capture import capture, captures
from bert_core.run.decomposition import decompx
from bert_core.run.inputs import id_tensor, segment_tensor
from bert_core.run.lens import layer_states, logit_lens
from bert_core.run.neurons import neuron_words
from bert_core.run.patch_sources import Noised, embed_source
from bert_core.run.stack import trace_text
from bert_core.run.walk import walk
from bert_core.spelling import VISIBLE_SPACE, Bytes
from bert_core.tokenizer import join_pieces
from bert_core.training.finetune import finetune
from bert_core.training.settings import FinetuneSettings
from tests.core.test_hostile_checkpoints import ODD, loaded_or_refused, places
from tests.core.test_tokenizer import TEXTS
from tests.families import (
    CLASSES,
    FAMILIES,
    MODELS,
    WITHOUT_DECOMPX,
    WITHOUT_NUMPY,
    reference_of,
    save_family,
    save_tokenizer,
    sentences,
)
from tests.near import assert_near

TOLERANCE = 1e-4
TEXT, PAIR = "The old man [MASK] along the river with his dog.", "Jeden Morgen bringt er Brot."


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(family, tmp_path_factory.mktemp("families") / family)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module")
def classifier_folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(family, tmp_path_factory.mktemp("families") / "classes", "ForSequenceClassification")


@pytest.fixture(scope="module")
def tagger_folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(family, tmp_path_factory.mktemp("families") / "tags", "ForTokenClassification")


@pytest.fixture(scope="module")
def reader_folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(family, tmp_path_factory.mktemp("families") / "answers", "ForQuestionAnswering")


@pytest.fixture(scope="module")
def chooser_folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(family, tmp_path_factory.mktemp("families") / "choices", "ForMultipleChoice")


@pytest.fixture(scope="module")
def classifier(classifier_folder: Path) -> LoadedModel:
    return bert_core.load(classifier_folder, device="cpu")


def model_with(head: str, family: str, request: pytest.FixtureRequest) -> LoadedModel:
    """The model of the family that predicts words, or classes."""
    model: LoadedModel = request.getfixturevalue("loaded" if head == "words" else "classifier")
    return model


@pytest.mark.parametrize("cased", [False, True], ids=["lower", "cased"])
def test_pieces_of_ten_languages_and_of_hostile_texts_are_those_of_transformers(
    family: str, cased: bool, tmp_path: Path
) -> None:
    """Ids and offsets agree on every sentence, alone and as a pair, and on the hostile texts."""
    save_tokenizer(family, tmp_path, cased=cased)
    ours, reference = Tokenizer.from_folder(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    # AutoTokenizer builds these anew from their pieces, and forgets the lower case of tokenizer.json: ours says so.
    rebuilt = not cased and family in ("roberta", "xlm-roberta", "camembert")
    assert [note[:20] for note in ours.notes] == ["tokenizer.json alone"] * rebuilt
    lines = sentences()
    pairs: list[tuple[str, str | None]] = [(line, None) for line in lines]
    pairs += [*zip(lines, reversed(lines), strict=True), *TEXTS.values()]
    for text, pair in pairs:
        own = str(reference.mask_token)
        text, pair = text.replace("[MASK]", own), None if pair is None else pair.replace("[MASK]", own)
        encoding, theirs = ours.encode(text, pair), reference(text, pair, return_offsets_mapping=reference.is_fast)
        assert list(encoding.input_ids) == theirs["input_ids"]
        spans = zip(theirs.get("offset_mapping", encoding.offsets), encoding.sides, strict=True)
        assert list(encoding.offsets) == [trimmed(span, pair or "" if side == "B" else text) for span, side in spans]
        for word in range(encoding.word_count):
            assert encoding.word_text(word) in f"{text}\0{pair}"


def test_pieces_are_drawn_readable_and_words_grouped_alike(family: str, tmp_path: Path) -> None:
    """No Ġ and no ▁; a word is one word for every vocabulary, signs stand alone, and a name finds its number."""
    save_tokenizer(family, tmp_path, cased=True)
    tokenizer = Tokenizer.from_folder(tmp_path)
    encoding = tokenizer.encode("The river, it's  unseen [MASK].", "हर सुबह बेकर")
    words = [encoding.word_text(word) for word in range(encoding.word_count)]
    assert [word for word in words if word] == [
        *("The", "river", ",", "it", "'", "s", "unseen", "[MASK]", "."), *("हर", "सुबह", "बेकर"),
    ]  # fmt: skip
    for word in range(encoding.word_count):
        tokens = [token for at in encoding.pieces_of(word) if (token := encoding.tokens[at]) != VISIBLE_SPACE]
        assert all(token.startswith("##") for token in tokens[1:]) and not any(t.startswith("##") for t in tokens[:1])
    names = [tokenizer.token_of(number) for number in range(len(tokenizer))]
    assert not any(set(name) & set("ĠĊ▁") for name in (*names, *encoding.tokens) if name != "▁")
    assert [tokenizer.id_of(name) for name in names] == list(range(len(tokenizer)))
    chinese = tokenizer.encode("猫坐在垫子上。")
    # Byte-level pieces begin within a sign and contain several, so that not every sign is a word.
    if not isinstance(tokenizer.spelling, Bytes):
        assert [chinese.word_text(word) for word in range(chinese.word_count)] == list("猫坐在垫子上。")
    hidden = tokenizer.mask_words(encoding, [1])
    assert {encoding.roles[at] for at in hidden.mask_positions} == {None, "mask"}
    assert all(hidden.masked_piece(at) is not None for at in encoding.pieces_of(1))


def test_a_sign_that_is_in_several_pieces_is_drawn_at_each(tmp_path: Path) -> None:
    """Byte-level pieces that begin or end within a sign are drawn as the sign, with the number of the piece."""
    save_tokenizer("roberta", tmp_path, cased=True)
    tokenizer = Tokenizer.from_folder(tmp_path)
    drawn = ("😀₁", "##😀₂", "##😀₃", "##😀₄")
    assert tokenizer.encode("a 😀😀").tokens[1:-1] == ("a", "␣", *drawn, *drawn)
    target = word_target(tokenizer, tokenizer.encode("a" + " [MASK]" * 8), "😀", position=2)
    assert tuple(number for _, number in target.target_pieces) == tokenizer.encode("a 😀").input_ids[2:-1]


def trimmed(span: tuple[int, int], typed: str) -> tuple[int, int]:
    """A span without the spaces before a word, which some tokenizers count to it."""
    start, end = span
    while start < end - 1 and typed[start].isspace():
        start += 1
    return (start, end) if typed[start:end].strip() else span


def reference_inputs(loaded: LoadedModel, encoding: bert_core.Encoding) -> dict[str, Tensor]:
    segments = segment_tensor(loaded, encoding)
    return {"input_ids": id_tensor(loaded, encoding), **({} if segments is None else {"token_type_ids": segments})}


@pytest.mark.parametrize("pair", [None, PAIR])
def test_states_maps_words_and_gradients_are_those_of_transformers(
    pair: str | None, family: str, folder: Path, loaded: LoadedModel
) -> None:
    """Hidden states, logits, every map and every map's gradient agree to 1e-4 of the largest."""
    encoding = loaded.tokenizer.encode(TEXT, pair)
    (position,) = encoding.mask_positions
    reference = reference_of(family, folder)
    theirs = reference(**reference_inputs(loaded, encoding), output_attentions=True, output_hidden_states=True)
    answer = loaded.tokenizer.encode("walked").input_ids[1]
    ours = loaded.model.bert(**reference_inputs(loaded, encoding), output_hidden_states=True)
    for mine, its in zip(ours.hidden_states, theirs.hidden_states, strict=True):
        assert_near(mine, its, TOLERANCE)
    assert_near(loaded.model.cls.predictions(ours.last_hidden_state), theirs.logits, TOLERANCE)
    asked = theirs.logits[0, position].log_softmax(-1)[answer]
    gradients = torch.autograd.grad(asked, theirs.attentions)
    run = capture(loaded, encoding, target=Target("mlm", position, answer))
    assert run.gradient is not None
    for layer, (map_, gradient) in enumerate(zip(theirs.attentions, gradients, strict=True)):
        assert_near(run.attention[layer], map_[0], TOLERANCE)
        assert_near(run.gradient[layer], gradient[0], TOLERANCE)
    assert run.attention.max(-1).mean() > 0.5, "the maps are flat: any error would pass"


def test_a_typed_padding_token_has_the_place_that_transformers_gives_it(
    family: str, folder: Path, loaded: LoadedModel, tmp_path: Path
) -> None:
    """Maps, gradients, the saved copy, both walks and noisy readings agree where padding is typed within a text."""
    pad = loaded.tokenizer.special_tokens.pad
    encoding = loaded.tokenizer.encode(f"The old {pad} man [MASK]{pad} along the river", PAIR)
    assert encoding.roles.count("pad") == 2
    reference = reference_of(family, folder)
    inputs = {**reference_inputs(loaded, encoding), "attention_mask": torch.ones(1, len(encoding), dtype=torch.long)}
    theirs = reference(**inputs, output_attentions=True)
    (position,) = encoding.mask_positions
    gradients = torch.autograd.grad(theirs.logits[0, position].log_softmax(-1)[7], theirs.attentions)
    bert_core.save(loaded, tmp_path / "saved")
    for model in (loaded, bert_core.load(tmp_path / "saved", device="cpu")):
        run = capture(model, encoding, target=Target("mlm", position, 7))
        assert run.gradient is not None
        for layer, (map_, gradient) in enumerate(zip(theirs.attentions, gradients, strict=True)):
            assert_near(run.attention[layer], map_[0], TOLERANCE)
            assert_near(run.gradient[layer], gradient[0], TOLERANCE)
    both = captures(loaded, [encoding, loaded.tokenizer.encode("A dog.")])
    assert_near(both[0].attention, run.attention, TOLERANCE)
    copied = reference_of(family, tmp_path / "saved")(**inputs)
    assert_near(copied.logits, theirs.logits, TOLERANCE)
    if family not in WITHOUT_NUMPY:
        assert_walks_agree(loaded, encoding)
    still = embed_source(loaded, Noised(encoding, seed=0, size=1e-7))
    assert_near(still, embed_source(loaded, encoding), TOLERANCE)


def test_classes_and_their_gradients_are_those_of_transformers(
    family: str, classifier_folder: Path, classifier: LoadedModel
) -> None:
    """A classifier's logits and the gradients of a class agree; what stands before it is read from the file."""
    assert classifier.labels == tuple(CLASSES.values()) and not classifier.has_mlm and not classifier.has_nsp
    encoding = classifier.tokenizer.encode(TEXT.replace("[MASK]", "walked"), PAIR)
    reference = reference_of(family, classifier_folder, "ForSequenceClassification")
    theirs = reference(**reference_inputs(classifier, encoding), output_attentions=True)
    run = capture(classifier, encoding, target=Target("class", label=1))
    assert run.classes is not None and run.gradient is not None
    assert_near(run.classes.logits, theirs.logits[0], TOLERANCE)
    gradients = torch.autograd.grad(theirs.logits[0, 1], theirs.attentions)
    for layer, gradient in enumerate(gradients):
        assert_near(run.gradient[layer], gradient[0], TOLERANCE, of=float(gradients[0].abs().max()))


def test_tags_and_their_gradients_are_those_of_transformers(family: str, tagger_folder: Path) -> None:
    """A tagger's logits at every token and the gradients of one tag of one of them agree."""
    tagger = bert_core.load(tagger_folder, device="cpu")
    assert tagger.tags == tuple(CLASSES.values()) and not tagger.report.unexpected
    assert not (tagger.has_mlm or tagger.has_nsp or tagger.has_classifier or tagger.labels)
    encoding = tagger.tokenizer.encode(TEXT.replace("[MASK]", "walked"), PAIR)
    theirs = reference_of(family, tagger_folder, "ForTokenClassification")(
        **reference_inputs(tagger, encoding), output_attentions=True
    )
    run = capture(tagger, encoding, target=Target("tag", 4, label=1))
    assert run.tags is not None and run.gradient is not None
    assert_near(run.tags.logits, theirs.logits[0], TOLERANCE)
    gradients = torch.autograd.grad(theirs.logits[0, 4, 1], theirs.attentions)
    for layer, gradient in enumerate(gradients):
        assert_near(run.gradient[layer], gradient[0], TOLERANCE, of=float(gradients[0].abs().max()))


def test_answers_and_their_gradients_are_those_of_transformers(family: str, reader_folder: Path) -> None:
    """A reader's two logits of every token and the gradients of one answer agree."""
    reader = bert_core.load(reader_folder, device="cpu")
    assert reader.has_reader and not reader.report.unexpected
    assert not (reader.has_mlm or reader.has_nsp or reader.has_classifier or reader.has_tagger)
    encoding = reader.tokenizer.encode(TEXT.replace("[MASK]", "walked"), PAIR)
    theirs = reference_of(family, reader_folder, "ForQuestionAnswering")(
        **reference_inputs(reader, encoding), output_attentions=True
    )
    first, last = encoding.sides.index("B"), len(encoding) - 2
    run = capture(reader, encoding, target=Target("span", first, last=last))
    assert run.spans is not None and run.gradient is not None and run.target_value is not None
    assert_near(run.spans.start_logits, theirs.start_logits[0], TOLERANCE)
    assert_near(run.spans.end_logits, theirs.end_logits[0], TOLERANCE)
    asked = theirs.start_logits[0, first] + theirs.end_logits[0, last]
    assert_near(run.target_value, asked, TOLERANCE, of=1.0)
    gradients = torch.autograd.grad(asked, theirs.attentions)
    for layer, gradient in enumerate(gradients):
        assert_near(run.gradient[layer], gradient[0], TOLERANCE, of=float(gradients[0].abs().max()))
    assert run.spans.start[: first - 1].sum() == run.spans.start[0] and bert_core.best_spans(encoding, run.spans)


def test_choices_and_their_gradients_are_those_of_transformers(
    family: str, chooser_folder: Path, tmp_path: Path
) -> None:
    """The logit of each pair, its maps and gradients agree; what is saved is the family's own, and pruned too."""
    chooser = bert_core.load(chooser_folder, device="cpu")
    assert chooser.has_chooser and not chooser.report.unexpected
    assert not (chooser.has_mlm or chooser.has_nsp or chooser.has_classifier or chooser.has_tagger)
    question, answers = TEXT.replace("[MASK]", "walked"), [PAIR, "his dog", "The river."]
    found = bert_core.choose(chooser, question, answers)
    reference = reference_of(family, chooser_folder, "ForMultipleChoice")
    for number, answer in enumerate(answers):
        encoding = chooser.tokenizer.encode(question, answer)
        inputs = {name: tensor[:, None] for name, tensor in reference_inputs(chooser, encoding).items()}
        theirs = reference(**inputs, output_attentions=True)
        run = capture(chooser, encoding, target=Target("choice"))
        assert run.gradient is not None
        for ours in (run.choice, run.target_value, found.logits[number]):
            assert_near(ours, theirs.logits[0, 0], TOLERANCE, of=1.0)
        gradients = torch.autograd.grad(theirs.logits[0, 0], theirs.attentions)
        for layer, (map_, gradient) in enumerate(zip(theirs.attentions, gradients, strict=True)):
            assert_near(run.attention[layer], map_[0], TOLERANCE)
            assert_near(run.gradient[layer], gradient[0], TOLERANCE, of=float(gradients[0].abs().max()))
    folder = bert_core.save(chooser, tmp_path / "saved")
    assert checkpoint.read_tensors(folder / "model.safetensors").keys() == (
        checkpoint.read_tensors(chooser_folder / "model.safetensors").keys()
    )
    saved = reference_of(family, folder, "ForMultipleChoice")
    assert_near(saved(**inputs).logits, theirs.logits, TOLERANCE)
    smaller = bert_core.pruned(chooser, [(1, 2)])
    again = bert_core.load(bert_core.save(smaller, tmp_path / "smaller"), device="cpu")
    gates = bert_core.head_mask_without(chooser.config, [(1, 2)])
    assert_near(
        bert_core.choose(again, question, answers).logits,
        bert_core.choose(chooser, question, answers, head_mask=gates).logits, TOLERANCE,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [("summary_type", "mean"), ("summary_use_proj", False), ("summary_activation", "tanh")]
)
def test_an_electra_that_chooses_otherwise_is_refused(name: str, value: object, tmp_path: Path) -> None:
    """What stands before its scores is said by its configuration; what is not built is one sentence."""
    folder = save_family("electra", tmp_path / "odd", "ForMultipleChoice", **{name: value})
    with pytest.raises(
        CheckpointError, match=rf"{name} is {value!r}: a multiple-choice head with .* alone is supported$"
    ):
        bert_core.load(folder, device="cpu")
    words = save_family("electra", tmp_path / "words", **{name: value})
    assert bert_core.load(words, device="cpu").has_mlm


def test_another_activation_is_taken_where_transformers_takes_it(family: str, tmp_path: Path) -> None:
    """With a ReLU in its layers a model has transformers' words, whose head may keep its GELU; also in NumPy."""
    name = {"distilbert": "activation", "modernbert": "hidden_activation"}.get(family, "hidden_act")
    folder = save_family(family, tmp_path / family, **{name: "relu"})
    loaded = bert_core.load(folder, device="cpu")
    encoding = loaded.tokenizer.encode(TEXT)
    theirs = reference_of(family, folder)(**reference_inputs(loaded, encoding)).logits
    ours = loaded.model.cls.predictions(loaded.model.bert(**reference_inputs(loaded, encoding)).last_hidden_state)
    assert_near(ours, theirs, TOLERANCE)
    if family in WITHOUT_NUMPY:
        return
    found = BertForPretraining.from_pretrained(folder).forward(np.array([encoding.input_ids]))
    assert_near(found["mlm_logits"], theirs, TOLERANCE)


def assert_walks_agree(loaded: LoadedModel, encoding: bert_core.Encoding, pads: int = 0) -> set[str]:
    """Return the names of the values on the way, which are the same in torch and in NumPy."""
    by_torch, by_numpy = (walk(loaded, encoding, 1, pads=pads, engine=engine) for engine in ("torch", "numpy"))
    assert by_torch.values.keys() == by_numpy.values.keys()
    for name, value in by_torch.values.items():
        of = 1e4 if "mask" in name else max(float(np.abs(value).max()), 1e-3)
        assert_near(by_numpy.values[name], value, TOLERANCE, of=of, what=name)
    return {*by_torch.values}


@pytest.mark.parametrize("head", ["words", "classes"])
def test_the_numpy_twin_and_both_walks_agree(head: str, family: str, request: pytest.FixtureRequest) -> None:
    """Every value on the way is the same in torch and in NumPy, the state before a classifier too."""
    chosen = model_with(head, family, request)
    encoding = chosen.tokenizer.encode(TEXT, PAIR)
    if family in WITHOUT_NUMPY:
        with pytest.raises(Refused, match=r"^the NumPy implementation has only .*: use the PyTorch implementation$"):
            walk(chosen, encoding, 1, engine="numpy")
        return
    names = assert_walks_agree(chosen, encoding, pads=2)
    assert ("pooler" in names, "mlm_logits" in names) == (head == "classes", head == "words")


def test_the_numpy_twin_reads_the_folder_itself(family: str, folder: Path, loaded: LoadedModel) -> None:
    """Without torch, the same file gives the same scores of words; a family without a twin says why."""
    if family in WITHOUT_NUMPY:
        with pytest.raises(Refused, match=r"^the NumPy implementation has only .*: use the PyTorch implementation$"):
            BertForPretraining.from_pretrained(folder)
        return
    encoding = loaded.tokenizer.encode(TEXT)
    ids = np.array([encoding.input_ids])
    ours = loaded.model.cls.predictions(loaded.model.bert(torch.from_numpy(ids)).last_hidden_state)
    found = BertForPretraining.from_pretrained(folder).forward(ids)
    assert_near(found["mlm_logits"], ours, TOLERANCE)
    assert "nsp_logits" not in found


def test_heads_can_be_switched_off_pruned_and_put_back(family: str, loaded: LoadedModel, tmp_path: Path) -> None:
    """Off, pruned and zero-filled are one thing; transformers reads the zero-filled model and agrees."""
    encoding = loaded.tokenizer.encode(TEXT)
    gates = np.ones((3, 4), np.float32)
    gates[1, 2] = gates[0, 0] = 0
    off = capture(loaded, encoding, head_mask=gates).predictions[0]
    smaller = bert_core.pruned(loaded, [(1, 2), (0, 0)])
    full = bert_core.zero_filled(smaller)
    for one in (smaller, full):
        assert_near(capture(one, encoding).predictions[0].top[0][1], off.top[0][1], TOLERANCE)
        again = bert_core.load(bert_core.save(one, tmp_path / f"{len(one.model.pruned_heads)}"), device="cpu")
        assert capture(again, encoding).predictions[0].top == capture(one, encoding).predictions[0].top
    logits = reference_of(family, tmp_path / "0")(**reference_inputs(loaded, encoding)).logits[
        0, encoding.mask_positions[0]
    ]
    assert int(logits.argmax()) == off.top[0][0]
    assert_near(logits.softmax(-1).max(), off.top[0][1], TOLERANCE)


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta"])
def test_every_field_of_a_tokenizer_takes_any_value(kind: str, tmp_path: Path) -> None:
    """Byte-level and unigram tokenizers too read texts, or are refused in one sentence; none stops the program."""
    save_tokenizer(kind, tmp_path, cased=True)
    parts: dict[str, Any] = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    of_lists = ("vocab", "merges")  # of their pieces a few
    for place in list(places(parts))[1:]:
        if any(name in of_lists and isinstance(at, int) and at > 1 for name, at in itertools.pairwise(place)):
            continue
        for odd in ODD.values():
            values = copy.deepcopy(parts)
            inner: Any = values
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = odd
            (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
            found = loaded_or_refused(lambda: Tokenizer.from_folder(tmp_path))
            if found is not None:
                encoding = found.encode("the cat \x00 sat zzz [MASK].", "on a mat")
                assert max(encoding.input_ids) < len(found), place
                found.decode(encoding.input_ids)


def test_neurons_and_layers_can_go_too(loaded: LoadedModel, tmp_path: Path) -> None:
    """A model without some neurons and a layer comes back from its own format as it was."""
    encoding = loaded.tokenizer.encode(TEXT)
    smaller = bert_core.pruned(loaded, [(1, 2)], neurons=[(0, 3), (1, 47)], layers=[2])
    again = bert_core.load(bert_core.save(smaller, tmp_path / "smaller"), device="cpu")
    assert again.config.pruned_neurons == smaller.config.pruned_neurons and again.config.pruned_layers == (2,)
    assert capture(again, encoding).predictions[0].top == capture(smaller, encoding).predictions[0].top


def test_words_are_asked_for_as_they_would_be_typed(family: str, loaded: LoadedModel) -> None:
    """A word finds its pieces within a text, whatever the vocabulary makes of the space before it."""
    encoding = loaded.tokenizer.encode("The old [MASK][MASK][MASK][MASK][MASK][MASK][MASK][MASK] sat.")
    target = word_target(loaded.tokenizer, encoding, "river", position=encoding.mask_positions[0])
    typed = loaded.tokenizer.encode("the river").input_ids[2:-1]
    asked = tuple(number for _, number in target.target_pieces)
    assert asked == typed[-len(asked) :] and len(asked) >= 1
    assert join_pieces(loaded.tokenizer.token_of(number) for number in asked) == "river"


def test_ablation_and_lenses_run(loaded: LoadedModel) -> None:
    """Every head is taken away in turn; the lens ends at what the model says."""
    encoding = loaded.tokenizer.encode(TEXT)
    (position,) = encoding.mask_positions
    token = capture(loaded, encoding).predictions[0].top[0][0]
    found = ablate_heads(loaded, encoding, target=Target("mlm", position, token))
    gates = np.ones((3, 4), np.float32)
    gates[2, 3] = 0
    without = dict(capture(loaded, encoding, head_mask=gates, top_k=50).predictions[0].top)
    assert found.values is not None
    assert_near(np.exp(found.values[2, 3]), without[token], 1e-3)
    seen = logit_lens(loaded, encoding, positions=[position])
    assert int(seen.top[-1, 0, 0]) == token


def test_what_a_neuron_says_is_what_adding_a_little_of_it_does(loaded: LoadedModel) -> None:
    """The slope of the word that a neuron raises most is that of the word's log-probability, by small steps."""
    encoding = loaded.tokenizer.encode(TEXT)
    (position,) = encoding.mask_positions
    layer = loaded.model.bert.encoder.layer[2]
    found = neuron_words(loaded, encoding, 2, [5], positions=[position])
    states = layer_states(loaded, encoding).states  # before the last layer and after
    *_, traced = trace_text(loaded, encoding)
    summed = (traced.feed_forward_update + traced.after_attention)[position]
    vector, word = layer.output.dense.weight[:, 5], int(found.raised[0, 0])

    def likely(step: float) -> float:
        state = layer.output.LayerNorm(summed + step * vector)
        return float(loaded.model.cls.predictions(state).log_softmax(-1)[word])

    assert_near(layer.output.LayerNorm(summed), states[-1, position], TOLERANCE)
    assert_near(found.raised_slopes[0, 0], (likely(1e-2) - likely(-1e-2)) / 2e-2, 1e-2)


@pytest.mark.parametrize("head", ["words", "classes"])
def test_the_parts_of_decompx_sum_to_the_answer(head: str, family: str, request: pytest.FixtureRequest) -> None:
    """What every token brings to a word's score, or to a class's, adds up to that score; or a sentence says why not."""
    chosen = model_with(head, family, request)
    encoding = chosen.tokenizer.encode(TEXT)
    (position,) = encoding.mask_positions
    target = Target("mlm", position, 7) if head == "words" else Target("class", label=2)
    if family in WITHOUT_DECOMPX:
        with pytest.raises(Refused, match=r"^DecompX replaces .*, and the neurons of this model have two: choose"):
            decompx(chosen, encoding, target)
        return
    found = decompx(chosen, encoding, target)
    classes = capture(chosen, encoding).classes
    if classes is None:
        answer = walk(chosen, encoding, 0, position=position).values["mlm_logits"][7]
    else:
        answer = classes.logits[2]
    assert_near(found.scores.sum(), answer, TOLERANCE, of=float(np.abs(found.scores).sum()))


def test_fine_tuning_goes_on_in_the_familys_own_format(family: str, folder: Path, tmp_path: Path) -> None:
    """A classifier trained from a model of the family is one of the family, for us and for transformers."""
    table = tmp_path / "rows.csv"
    rows = [f"{line.replace(',', ' ')},{'long' if len(line) > 40 else 'short'}" for line in sentences()]
    table.write_text("text,class\n" + "\n".join(rows) + "\n", encoding="utf-8")
    settings = FinetuneSettings(epochs=1, max_length=48)
    finetune(
        table, tmp_path / "made", settings, text="text", label="class", start=str(folder), device="cpu",
        report=lambda done, what="": None,
    )  # fmt: skip
    made = bert_core.load(tmp_path / "made", device="cpu")
    assert made.labels == ("long", "short") and made.has_mlm
    assert made.config.family.classifier == f"{MODELS[family]}ForSequenceClassification"
    encoding = made.tokenizer.encode("The cat sat on the mat.")
    theirs = reference_of(family, tmp_path / "made", "ForSequenceClassification")(**reference_inputs(made, encoding))
    classes = capture(made, encoding).classes
    assert classes is not None
    assert_near(classes.logits, theirs.logits[0], TOLERANCE)


@pytest.mark.parametrize(
    "head", ["ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]
)
def test_what_is_saved_is_in_the_familys_own_format(
    head: str,
    family: str,
    folder: Path,
    classifier_folder: Path,
    tagger_folder: Path,
    reader_folder: Path,
    tmp_path: Path,
) -> None:
    """transformers reads the saved folder back without a word, with the same logits; so does its tokenizer."""
    source = {
        "ForMaskedLM": folder, "ForTokenClassification": tagger_folder, "ForQuestionAnswering": reader_folder,
    }.get(head, classifier_folder)  # fmt: skip
    loaded = bert_core.load(source, device="cpu")
    saved = bert_core.save(loaded, tmp_path / "saved")
    encoding = loaded.tokenizer.encode(TEXT, PAIR)
    kind = type(reference_of(family, source, head))
    theirs, info = kind.from_pretrained(saved, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    before, after = (
        m.eval()(**reference_inputs(loaded, encoding))[0] for m in (reference_of(family, source, head), theirs)
    )
    assert torch.equal(before, after)
    assert theirs.config.to_dict().keys() >= reference_of(family, source, head).config.to_dict().keys()
    fast: Any = transformers.AutoTokenizer.from_pretrained(saved)
    again = fast(encoding.text.replace("[MASK]", fast.mask_token), PAIR)
    assert again["input_ids"] == list(encoding.input_ids)
    theirs(**fast("The cat", return_tensors="pt"))


def test_a_bare_encoder_is_read_too(family: str, tmp_path: Path) -> None:
    """A file of the encoder alone, without prefix and heads, gives its maps and no words."""
    loaded = bert_core.load(save_family(family, tmp_path / "bare", "Model"), device="cpu")
    assert not (loaded.has_mlm or loaded.has_nsp or loaded.has_classifier)
    encoding = loaded.tokenizer.encode(TEXT)
    theirs = reference_of(family, tmp_path / "bare", "Model")(
        **reference_inputs(loaded, encoding), output_attentions=True
    )
    assert_near(capture(loaded, encoding).attention[-1], theirs.attentions[-1][0], TOLERANCE)


def test_no_head_of_a_family_that_lacks_it_is_shown(loaded: LoadedModel) -> None:
    """There is no answer about two texts, and asking for one is refused in a sentence that calls the head by name."""
    encoding = loaded.tokenizer.encode(TEXT, PAIR)
    assert capture(loaded, encoding).nsp is None and not loaded.has_nsp
    head = "sentence-order" if loaded.config.family.name == "albert" else "next-sentence"
    with pytest.raises(ValueError, match=f"has no trained {head} head"):
        capture(loaded, encoding, target=Target("nsp"))


@pytest.mark.parametrize("kind", ["deberta", "nomic_bert", "new", "jina_embeddings_v3"])
def test_a_family_that_is_built_otherwise_is_refused_with_the_reason(kind: str, folder: Path, tmp_path: Path) -> None:
    """One sentence says what is different about it, and what can be loaded."""
    text = json.dumps({**json.loads((folder / "config.json").read_text()), "model_type": kind})
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=f"of type '{kind}', (whose|which) .*: only 'bert', .* can be loaded$"):
        bert_core.load(tmp_path, device="cpu")
