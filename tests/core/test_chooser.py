"""A chooser among answers: against transformers, in checkpoints, and as a target wherever a class is one."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bert_core
from bert_core import BertForMultipleChoice, BertForPreTraining, Encoding, LoadedModel, Target, capture, checkpoint
from bert_core.methods import faithfulness, token_scores
from bert_core.recording import record
from bert_core.refused import Refused
from bert_core.run.ablation import ablate_heads
from bert_core.run.multiple_choice import MAX_CHOICES, choose
from bert_core.run.patching import patch, predict_with_patch
from bert_core.run.perturbation import values_without
from tests.core.test_classifier import SIZES, batch, peaked
from tests.near import assert_near
from tests.sums import assert_parts_and_paths_add_up

QUESTION = "the man sat"
ANSWERS = ("An old cats sat on the mat", "the king", "a big dog ran to the red door")
CHOICE = Target("choice")
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def tiny(tiny_chooser_folder: Path) -> LoadedModel:
    return bert_core.load(str(tiny_chooser_folder), device="cpu")


@pytest.fixture(scope="module")
def encoding(tiny: LoadedModel) -> Encoding:
    """[CLS] the man sat [SEP] an old cat ##s sat on the mat [SEP]."""
    return tiny.tokenizer.encode(QUESTION, ANSWERS[0])


def logit_of(loaded: LoadedModel, encoding: Encoding, **more: torch.Tensor) -> torch.Tensor:
    """Of one pair, by an ordinary forward pass."""
    ids, segments = (torch.tensor([[part]]) for part in (encoding.input_ids, encoding.token_type_ids))
    logit: torch.Tensor = loaded.task_models["chooser"](ids, token_type_ids=segments, **more).logits[0, 0]
    return logit


def of_choices(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Two questions with three choices each, of the same texts: (batch, choice, seq)."""
    return {name: torch.stack([tensor, tensor.flip(0)]) for name, tensor in inputs.items()}


def test_every_number_is_that_of_transformers() -> None:
    """Logits, loss, maps, their gradients and every parameter's agree."""
    torch.manual_seed(3)
    ours = peaked(BertForMultipleChoice(SIZES)).eval()
    with torch.no_grad():  # so that the choices differ: of equal ones, no weight has a gradient
        for name, parameter in ours.named_parameters():
            parameter.add_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
    sizes = transformers.BertConfig(**ours.config.to_dict(), attn_implementation="eager")
    theirs = transformers.BertForMultipleChoice(sizes).eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    inputs = {**of_choices(batch(ours.config)), "labels": torch.tensor([1, 2])}
    with record() as recording:
        found = ours(**inputs, output_attentions=True, output_hidden_states=True)
        found.loss.backward()
    expected = theirs(**inputs, output_attentions=True)
    for one in expected.attentions:
        one.retain_grad()
    expected.loss.backward()
    assert found.logits.shape == (2, 3)
    assert_near(found.logits, expected.logits, what="logits")
    assert_near(found.loss, expected.loss, what="loss")
    for layer, one in enumerate(expected.attentions):
        assert_near(found.attentions[layer], one, TOLERANCE, what=f"attention {layer}")
        assert_near(recording.gradients[layer], one.grad, TOLERANCE, what=f"gradient {layer}")
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None and gradients[name] is not None
        assert_near(parameter.grad, gradients[name], TOLERANCE, of=largest, what=name)


def test_embeddings_stand_for_numbers_and_other_axes_are_refused() -> None:
    """Vectors in the place of pieces give the same logits; one text by itself is no question with choices."""
    torch.manual_seed(3)
    model, inputs = BertForMultipleChoice(SIZES).eval(), of_choices(batch(SIZES))
    vectors = model.bert.embeddings.word_embeddings(inputs["input_ids"])
    rest = {name: tensor for name, tensor in inputs.items() if name != "input_ids"}
    assert_near(model(inputs_embeds=vectors, **rest).logits, model(**inputs).logits)
    with pytest.raises(ValueError, match=r"^input_ids has shape \(3, 21\): .* it must be \(batch, choice, seq\)$"):
        model(batch(SIZES)["input_ids"])
    with pytest.raises(ValueError, match=r"^inputs_embeds has shape \(3, 21, 48\): .* \(batch, choice, seq, em"):
        model(inputs_embeds=vectors[0])


def test_a_shared_encoder_is_left_as_it_is() -> None:
    """Standing on another model's encoder changes none of its numbers."""
    model = BertForPreTraining(SIZES)
    before = copy.deepcopy(model.bert.state_dict())
    chooser = BertForMultipleChoice(SIZES, model.bert)
    assert chooser.bert is model.bert and chooser.classifier.weight.shape == (1, 48)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.bert.state_dict().items())


def test_a_chooser_beside_the_other_heads_loads_with_them(
    tiny: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Every key is accounted for, each weight is counted once, and transformers reads what is saved."""
    assert tiny.has_chooser and tiny.has_mlm and tiny.has_nsp
    assert not (tiny.has_classifier or tiny.has_tagger or tiny.has_reader or tiny.labels)
    assert (tiny.report.missing, tiny.report.unexpected) == ((), ())
    assert tiny.task_models["chooser"].bert is tiny.model.bert
    plain = bert_core.load(str(tiny_model_folder), device="cpu")
    assert not plain.has_chooser and "chooser" not in plain.task_models
    assert tiny.nbytes - plain.nbytes == 4 * (tiny.config.hidden_size + 1)
    folder = bert_core.save(tiny, tmp_path / "saved")
    theirs = transformers.AutoModelForMultipleChoice.from_pretrained(folder).eval()
    inputs = of_choices(batch(tiny.config))
    with torch.no_grad():
        assert_near(tiny.task_models["chooser"](**inputs).logits, theirs(**inputs).logits)
    again = bert_core.load(folder, device="cpu")
    assert again.has_chooser and np.array_equal(
        choose(again, QUESTION, ANSWERS).logits, choose(tiny, QUESTION, ANSWERS).logits
    )


@pytest.mark.parametrize("absent", ["classifier.bias", "bert.pooler.dense.weight"])
def test_half_a_chooser_is_none(absent: str, tiny_chooser_folder: Path, tmp_path: Path) -> None:
    """Without a weight of its own, or of the pooler before it, a chooser is reported and not used."""
    weights = {name: t for name, t in checkpoint.read_weights(tiny_chooser_folder).items() if name != absent}
    checkpoint.write_tensors(weights, checkpoint.read_config(tiny_chooser_folder), tmp_path)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_chooser_folder / name).read_bytes())
    loaded = bert_core.load(str(tmp_path), device="cpu")
    assert loaded.report.missing == (absent,) and not loaded.has_chooser
    assert capture(loaded, loaded.tokenizer.encode("the cat", "sat")).choice is None


# ---------------------------------------------------------------------------- a question and its choices


@pytest.mark.parametrize("gated", [False, True], ids=["all heads", "gates"])
def test_the_choices_share_one_probability(tiny: LoadedModel, gated: bool) -> None:
    """Each pair by itself has the logit of the whole batch in transformers; the softmax is over the choices."""
    gates = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0]], np.float32) if gated else None
    found = choose(tiny, QUESTION, ANSWERS, head_mask=gates)
    pairs = [tiny.tokenizer.encode(QUESTION, answer) for answer in ANSWERS]
    more = {} if gates is None else {"head_mask": torch.tensor(gates)}
    expected = torch.stack([logit_of(tiny, pair, **more) for pair in pairs])
    assert_near(found.logits, expected)
    assert_near(found.probabilities, expected.softmax(-1))
    assert found.order == tuple(expected.argsort(descending=True).tolist())
    assert (found.question, found.choices) == (QUESTION, ANSWERS)
    runs = bert_core.captures(tiny, [*pairs, tiny.tokenizer.encode(QUESTION)], head_mask=gates)
    assert_near([run.choice for run in runs[:3]], expected)
    assert runs[3].choice is None
    assert_near(capture(tiny, pairs[1], head_mask=gates).choice, expected[1], of=1.0)


@pytest.mark.parametrize(
    ("question", "answers", "sentence"),
    [
        (QUESTION, ["the king"], "1 choice was given: give from 2 to 26 choices"),
        (QUESTION, [], "0 choices were given: give from 2 to 26 choices"),
        (QUESTION, ["a"] * 27, "27 choices were given: give from 2 to 26 choices"),
        (QUESTION, ["the king", " \n"], "choice 2 is empty: type at least one word"),
        (" ", ANSWERS, "the question is empty: type at least one word"),
        (QUESTION, ["the king", None], "choice 2 is None: it must be a string"),
        (QUESTION, "the king", "the choices is 'the king': it must be a list of texts"),
    ],
)
def test_what_cannot_be_chosen_from_is_one_sentence(
    tiny: LoadedModel, question: str, answers: list[str], sentence: str
) -> None:
    """Too few, too many, empty, or no text."""
    assert MAX_CHOICES == 26
    with pytest.raises(Refused) as caught:
        choose(tiny, question, answers)
    assert str(caught.value) == sentence


def test_a_choice_that_does_not_fit_is_refused(tiny: LoadedModel, tiny_loaded: LoadedModel) -> None:
    """What is cut could be what tells it from the others. A model that was not trained to choose is refused too."""
    with pytest.raises(Refused, match=r"^choice 2 with its question has [\d,]+ tokens: .* takes at most \d+$"):
        choose(tiny, QUESTION, ["the king", "the cat sat " * 300])
    with pytest.raises(Refused, match=r"has no trained multiple-choice head: load a model for multiple choice$"):
        choose(tiny_loaded, QUESTION, ANSWERS)


# ---------------------------------------------------------------------------- as a target


@pytest.mark.parametrize("gated", [False, True], ids=["all heads", "gates"])
def test_a_choice_is_a_target(tiny: LoadedModel, encoding: Encoding, gated: bool) -> None:
    """Its value is the logit of the pair, and the gradients are those of an ordinary backward pass."""
    gates = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0]], np.float32) if gated else None
    run = capture(tiny, encoding, target=CHOICE, head_mask=gates)
    assert run.gradient is not None and run.target_value is not None
    model = copy.deepcopy(tiny.task_models["chooser"])
    assert model is not None
    model.requires_grad_(True)
    for module in model.attention_modules:
        module.save_attention = True
    ids, segments = (torch.tensor([[part]]) for part in (encoding.input_ids, encoding.token_type_ids))
    more = {} if gates is None else {"head_mask": torch.tensor(gates)}
    logit = model(ids, token_type_ids=segments, **more).logits[0, 0]
    logit.backward()
    assert_near(run.target_value, logit, of=1.0)
    assert_near(run.choice, logit, of=1.0)
    for layer, module in enumerate(model.attention_modules):
        expected = module.get_attn_gradients()[0]
        assert float(expected.abs().max()) > 1e-4
        assert_near(run.gradient[layer], expected)


def test_parts_and_paths_add_up_to_the_choice(tiny: LoadedModel, encoding: Encoding) -> None:
    """DecompX's parts sum to the logit, integrated gradients to the way from [PAD]; every method answers."""
    value = float(logit_of(tiny, encoding))
    empty = assert_parts_and_paths_add_up(tiny, encoding, CHOICE, value, of=1.0)
    assert abs(value - empty) > 1e-3


def test_its_faithfulness_follows_the_logit(tiny: LoadedModel, encoding: Encoding) -> None:
    """By itself a choice has no probability; every typed word of both texts can be taken out."""
    assert CHOICE.removable(encoding) == tuple(i for i, added in enumerate(encoding.special) if not added)
    hidden = copy.copy(encoding)
    ids = [tiny.tokenizer.mask_id if i in (2, 7) else number for i, number in enumerate(encoding.input_ids)]
    object.__setattr__(hidden, "input_ids", tuple(ids))
    removed = np.isin(np.arange(len(encoding)), [2, 7])[None]
    for probability in (False, True):
        (value,) = values_without(tiny, encoding, CHOICE, removed, baseline="mask", probability=probability)
        assert_near(value, logit_of(tiny, hidden), of=1.0)
    judged = faithfulness(tiny, encoding, CHOICE, token_scores(tiny, encoding, CHOICE, ["attention"]))
    assert judged and all(np.isfinite(one.scores).all() for one in judged.values())


def test_heads_are_ablated_and_pruned_for_a_choice(tiny: LoadedModel, encoding: Encoding, tmp_path: Path) -> None:
    """A head's value is that of the model with it off, and of the model that was pruned of it, saved or not."""
    found = ablate_heads(tiny, encoding, target=CHOICE)
    assert found.values is not None
    smaller = bert_core.pruned(tiny, [(1, 2)])
    assert smaller.task_models["chooser"].bert is smaller.model.bert
    again = bert_core.load(bert_core.save(smaller, tmp_path / "smaller"), device="cpu")
    gates = torch.ones(2, 4)
    gates[1, 2] = 0
    for logit in (logit_of(smaller, encoding), logit_of(again, encoding), logit_of(tiny, encoding, head_mask=gates)):
        assert_near(found.values[1, 2], logit, of=1.0)


def test_a_patch_brings_the_choice_of_the_other_text(tiny: LoadedModel, encoding: Encoding) -> None:
    """The last state of the first token carries all of it, and no other one any; so says the patched model's run."""
    source = tiny.tokenizer.encode("the dog ran", "the big dogs ran to the door")
    found, own, other = patch(tiny, source, encoding, CHOICE), logit_of(tiny, encoding), logit_of(tiny, source)
    size = float(torch.stack([own, other]).abs().max())
    assert_near(found.base_value, own, of=size)
    assert_near(found.source_value, other, of=size)
    assert_near(found.values[-1][0], other, of=size)
    assert_near(found.values[-1][1:], found.base_value, of=size)
    assert_near(predict_with_patch(tiny, found, (2, 0)).choice, other, of=size)


def test_a_source_without_a_second_text_has_no_choice(tiny: LoadedModel, encoding: Encoding) -> None:
    """Also where words go to words."""
    with pytest.raises(Refused, match=r"^multiple choice needs two texts: give the answer option as the second text$"):
        patch(tiny, tiny.tokenizer.encode("the dog ran"), encoding, CHOICE, align="words")


def test_an_edited_model_chooses_so(tiny: LoadedModel, encoding: Encoding) -> None:
    """An edit reaches the chooser's encoder, which stays that of the model."""
    changed = bert_core.edited(tiny, [bert_core.ScaledNeuron(0, 3, 0.0)])
    assert changed.task_models["chooser"].bert is changed.model.bert
    run = capture(changed, encoding)
    assert run.choice is not None and abs(run.choice - float(logit_of(tiny, encoding))) > 1e-5
    assert_near(run.choice, logit_of(changed, encoding), of=1.0)
    assert_near(choose(changed, QUESTION, ANSWERS).logits[0], run.choice, of=1.0)


def test_a_choice_that_cannot_be_asked_is_one_sentence(
    tiny: LoadedModel, tiny_loaded: LoadedModel, encoding: Encoding
) -> None:
    """Without a second text, or a chooser."""
    with pytest.raises(Refused, match=r"^multiple choice needs two texts: give the answer option as the second text$"):
        capture(tiny, tiny.tokenizer.encode(QUESTION), target=CHOICE)
    with pytest.raises(Refused, match=r"has no trained multiple-choice head: choose another target$"):
        capture(tiny_loaded, encoding, target=CHOICE)
