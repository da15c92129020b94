"""A tagger of tokens: against transformers, in checkpoints, and as a target wherever a class is one."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bert_core
from bert_core import BertForPreTraining, BertForTokenClassification, Encoding, LoadedModel, Target, capture, checkpoint
from bert_core.methods import faithfulness, token_scores
from bert_core.recording import record
from bert_core.run.ablation import ablate_heads
from bert_core.run.patching import patch, predict_with_patch
from bert_core.run.perturbation import values_without
from tests.conftest import TAGS
from tests.core.test_classifier import SIZES, batch, peaked
from tests.near import assert_near
from tests.sums import assert_parts_and_paths_add_up

ASKED = Target("tag", 3, label=1)


@pytest.fixture(scope="module")
def tiny(tiny_tagger_folder: Path) -> LoadedModel:
    return bert_core.load(str(tiny_tagger_folder), device="cpu")


@pytest.fixture(scope="module")
def encoding(tiny: LoadedModel) -> Encoding:
    """[CLS] the cat ##s sat on the mat [SEP] it was old [SEP]."""
    return tiny.tokenizer.encode("the cats sat on the mat", "it was old")


def logits_of(loaded: LoadedModel, encoding: Encoding, **more: torch.Tensor) -> torch.Tensor:
    """(token, tag), by an ordinary forward pass."""
    ids, segments = (torch.tensor([part]) for part in (encoding.input_ids, encoding.token_type_ids))
    logits: torch.Tensor = loaded.task_models["tagger"](ids, token_type_ids=segments, **more).logits[0]
    return logits


def test_every_number_is_that_of_transformers() -> None:
    """Logits, loss over the labels that are there, maps, their gradients and every parameter's gradient agree."""
    torch.manual_seed(3)
    ours = peaked(BertForTokenClassification(SIZES.with_labels(["a", "b", "c", "d"]))).eval()
    sizes = transformers.BertConfig(**ours.config.to_dict(), attn_implementation="eager")
    theirs = transformers.BertForTokenClassification(sizes).eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    inputs = batch(ours.config)
    labels = torch.randint(0, 4, inputs["input_ids"].shape, generator=torch.Generator().manual_seed(1))
    labels[:, ::3] = -100
    with record() as recording:
        found = ours(**inputs, labels=labels, output_attentions=True, output_hidden_states=True)
        found.loss.backward()
    expected = theirs(**inputs, labels=labels, output_attentions=True)
    for one in expected.attentions:
        one.retain_grad()
    expected.loss.backward()
    assert_near(found.logits, expected.logits, what="logits")
    assert_near(found.loss, expected.loss, what="loss")
    for layer, one in enumerate(expected.attentions):
        assert_near(found.attentions[layer], one, what=f"attention {layer}")
        assert_near(recording.gradients[layer], one.grad, what=f"gradient {layer}")
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None and gradients[name] is not None
        assert_near(parameter.grad, gradients[name], of=largest, what=name)


def test_a_shared_encoder_is_left_as_it_is() -> None:
    """Standing on another model's encoder changes none of its numbers."""
    model = BertForPreTraining(SIZES)
    before = copy.deepcopy(model.bert.state_dict())
    tagger = BertForTokenClassification(SIZES, model.bert)
    assert tagger.bert is model.bert and tagger.classifier.bias.abs().max() == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.bert.state_dict().items())


def test_a_tagger_beside_the_other_heads_loads_with_them(
    tiny: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Every key is accounted for, each weight is counted once, and transformers reads what is saved."""
    assert tiny.has_tagger and tiny.tags == TAGS and tiny.has_mlm and tiny.has_nsp
    assert not tiny.has_classifier and tiny.labels == ()
    assert (tiny.report.missing, tiny.report.unexpected) == ((), ())
    assert tiny.task_models["tagger"].bert is tiny.model.bert
    plain = bert_core.load(str(tiny_model_folder), device="cpu")
    assert not plain.has_tagger and plain.tags == () and "tagger" not in plain.task_models
    assert tiny.nbytes - plain.nbytes == 4 * 5 * (tiny.config.hidden_size + 1)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(bert_core.save(tiny, tmp_path / "saved"))
    assert tuple(theirs.config.id2label[number] for number in range(5)) == TAGS
    inputs = batch(tiny.config)
    with torch.no_grad():
        assert_near(tiny.task_models["tagger"](**inputs).logits, theirs.eval()(**inputs).logits)


def test_half_a_tagger_is_none(tiny_tagger_folder: Path, tmp_path: Path) -> None:
    """Without its bias a tagger is reported and not used."""
    weights = {n: t for n, t in checkpoint.read_weights(tiny_tagger_folder).items() if n != "classifier.bias"}
    checkpoint.write_tensors(weights, checkpoint.read_config(tiny_tagger_folder), tmp_path)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_tagger_folder / name).read_bytes())
    loaded = bert_core.load(str(tmp_path), device="cpu")
    assert loaded.report.missing == ("classifier.bias",) and not loaded.has_tagger and loaded.tags == ()
    assert capture(loaded, loaded.tokenizer.encode("the cat")).tags is None


# ---------------------------------------------------------------------------- as a target


@pytest.mark.parametrize("gated", [False, True], ids=["all heads", "gates"])
def test_a_tag_is_a_target(tiny: LoadedModel, encoding: Encoding, gated: bool) -> None:
    """Its value is the logit of one tag of one token, and the gradients are those of an ordinary backward pass."""
    gates = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0]], np.float32) if gated else None
    run = capture(tiny, encoding, target=ASKED, head_mask=gates)
    assert run.gradient is not None and run.tags is not None and run.tags.labels == TAGS
    model = copy.deepcopy(tiny.task_models["tagger"])
    assert model is not None
    model.requires_grad_(True)
    for module in model.attention_modules:
        module.save_attention = True
    ids, segments = (torch.tensor([part]) for part in (encoding.input_ids, encoding.token_type_ids))
    more = {} if gates is None else {"head_mask": torch.tensor(gates)}
    logits = model(ids, token_type_ids=segments, **more).logits[0]
    logits[3, 1].backward()
    assert_near(run.tags.logits, logits)
    assert_near(run.tags.probabilities, logits.softmax(-1))
    assert run.target_value is not None
    assert_near(run.target_value, run.tags.logits[3, 1], of=1.0)
    assert list(run.tags.order_at(3)) == sorted(range(5), key=lambda n: -logits[3, n].item())
    for layer, module in enumerate(model.attention_modules):
        expected = module.get_attn_gradients()[0]
        assert float(expected.abs().max()) > 1e-4
        assert_near(run.gradient[layer], expected)


def test_several_texts_at_once_say_the_same(tiny: LoadedModel, encoding: Encoding) -> None:
    """Padding beside a longer text changes no tag, and each text has its own tokens."""
    other = tiny.tokenizer.encode("the old king went")
    for run, one in zip(bert_core.captures(tiny, [encoding, other]), (encoding, other), strict=True):
        assert run.tags is not None and run.tags.logits.shape == (len(one), 5)
        assert_near(run.tags.logits, logits_of(tiny, one))


def test_parts_and_paths_add_up_to_the_tag(tiny: LoadedModel, encoding: Encoding) -> None:
    """DecompX's parts sum to the logit, integrated gradients to its way from [PAD]; every method answers."""
    value = float(logits_of(tiny, encoding)[3, 1])
    assert_parts_and_paths_add_up(tiny, encoding, ASKED, value)


def test_the_word_itself_can_be_taken_out(tiny: LoadedModel, encoding: Encoding) -> None:
    """Its place is left to be asked, so a name can be told from its surroundings; the other words stay as ever."""
    assert ASKED.removable(encoding) == (1, 2, 3, 4, 5, 6, 7, 9, 10, 11)
    hidden = copy.copy(encoding)
    ids = [tiny.tokenizer.mask_id if i == 3 else number for i, number in enumerate(encoding.input_ids)]
    object.__setattr__(hidden, "input_ids", tuple(ids))
    removed = np.arange(len(encoding))[None] == 3
    (without,) = values_without(tiny, encoding, ASKED, removed, baseline="mask")
    assert_near(without, logits_of(tiny, hidden)[3, 1], of=1.0)
    (share,) = values_without(tiny, encoding, ASKED, removed, baseline="mask", probability=True)
    assert_near(share, logits_of(tiny, hidden)[3].softmax(-1)[1])
    judged = faithfulness(tiny, encoding, ASKED, token_scores(tiny, encoding, ASKED, ["attention"]))
    assert judged and all(np.isfinite(one.scores).all() for one in judged.values())


def test_heads_are_ablated_and_pruned_for_a_tag(tiny: LoadedModel, encoding: Encoding) -> None:
    """A head's value is that of the model with it off, and of the model that was pruned of it."""
    found = ablate_heads(tiny, encoding, target=ASKED)
    assert found.values is not None
    smaller = bert_core.pruned(tiny, [(1, 2)])
    assert smaller.task_models["tagger"].bert is smaller.model.bert
    assert_near(found.values[1, 2], logits_of(smaller, encoding)[3, 1])
    gates = torch.ones(2, 4)
    gates[1, 2] = 0
    assert_near(found.values[1, 2], logits_of(tiny, encoding, head_mask=gates)[3, 1])


def test_a_patch_brings_the_tag_of_the_other_text(tiny: LoadedModel, encoding: Encoding) -> None:
    """The states of the last layer at the word carry all of its answer; what the patched model says, says its tags."""
    source = tiny.tokenizer.encode("the dogs ran to the door", "he was big")
    found = patch(tiny, source, encoding, ASKED)
    assert_near(found.base_value, logits_of(tiny, encoding)[3, 1])
    assert_near(found.source_value, logits_of(tiny, source)[3, 1])
    last = found.values[-1]
    assert_near(last[3], found.source_value)
    assert_near(np.delete(last, 3), found.base_value)
    tags = predict_with_patch(tiny, found, (2, 3)).tags
    assert tags is not None
    assert_near(tags.logits[3], logits_of(tiny, source)[3])
    assert_near(tags.logits[2], logits_of(tiny, encoding)[2])


def test_an_edited_model_tags_so(tiny: LoadedModel, encoding: Encoding) -> None:
    """An edit reaches the tagger's encoder, which stays that of the model."""
    changed = bert_core.edited(tiny, [bert_core.ScaledNeuron(0, 3, 0.0)])
    assert changed.task_models["tagger"].bert is changed.model.bert
    run = capture(changed, encoding)
    assert run.tags is not None
    assert_near(run.tags.logits, logits_of(changed, encoding))
    assert np.abs(run.tags.logits - logits_of(tiny, encoding).numpy()).max() > 1e-4


def test_a_tag_that_is_not_there_is_one_sentence(
    tiny: LoadedModel, tiny_loaded: LoadedModel, encoding: Encoding
) -> None:
    """A number beyond the tags, a place beyond the text, a model without a tagger, and a target without its parts."""
    with pytest.raises(ValueError, match=r"^tag 5 does not exist: this model has 0 to 4$"):
        capture(tiny, encoding, target=Target("tag", 3, label=5))
    with pytest.raises(ValueError, match=r"^position 40 does not exist: this text has positions 0 to 12$"):
        capture(tiny, encoding, target=Target("tag", 40, label=1))
    with pytest.raises(ValueError, match=r"has no trained token classifier: choose another target$"):
        capture(tiny_loaded, encoding, target=ASKED)
    with pytest.raises(ValueError, match=r"^a 'tag' target needs a position and a label$"):
        Target("tag", 3)
