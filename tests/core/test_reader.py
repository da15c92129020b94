"""A reader that finds answers: against transformers, in checkpoints, and as a target wherever a class is one."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bert_core
from bert_core import (
    BertForPreTraining,
    BertForQuestionAnswering,
    Encoding,
    LoadedModel,
    Target,
    best_spans,
    capture,
    checkpoint,
)
from bert_core.analysis.spans import context_positions
from bert_core.methods import faithfulness, token_scores
from bert_core.recording import record
from bert_core.run.ablation import ablate_heads
from bert_core.run.patching import patch, predict_with_patch
from bert_core.run.perturbation import values_without
from tests.core.test_classifier import SIZES, batch, peaked
from tests.near import assert_near
from tests.sums import assert_parts_and_paths_add_up

ASKED = Target("span", 6, last=8)


@pytest.fixture(scope="module")
def tiny(tiny_reader_folder: Path) -> LoadedModel:
    return bert_core.load(str(tiny_reader_folder), device="cpu")


@pytest.fixture(scope="module")
def encoding(tiny: LoadedModel) -> Encoding:
    """[CLS] the man sat [SEP] an old cat ##s sat on the mat [SEP]."""
    return tiny.tokenizer.encode("the man sat", "An old cats sat on the mat")


def logits_of(loaded: LoadedModel, encoding: Encoding, **more: torch.Tensor) -> torch.Tensor:
    """(2, token), by an ordinary forward pass."""
    ids, segments = (torch.tensor([part]) for part in (encoding.input_ids, encoding.token_type_ids))
    found = loaded.task_models["reader"](ids, token_type_ids=segments, **more)
    return torch.stack([found.start_logits[0], found.end_logits[0]])


def test_every_number_is_that_of_transformers() -> None:
    """Logits, loss (a place beyond the text has no part), maps, their gradients and every parameter's agree."""
    torch.manual_seed(3)
    ours = peaked(BertForQuestionAnswering(SIZES)).eval()
    sizes = transformers.BertConfig(**ours.config.to_dict(), attn_implementation="eager")
    theirs = transformers.BertForQuestionAnswering(sizes).eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    inputs = batch(ours.config)
    places = {"start_positions": torch.tensor([9, 0, 500]), "end_positions": torch.tensor([12, 0, 21])}
    with record() as recording:
        found = ours(**inputs, **places, output_attentions=True, output_hidden_states=True)
        found.loss.backward()
    expected = theirs(**inputs, **places, output_attentions=True)
    for one in expected.attentions:
        one.retain_grad()
    expected.loss.backward()
    assert_near(found.start_logits, expected.start_logits, what="first")
    assert_near(found.end_logits, expected.end_logits, what="last")
    assert_near(found.loss, expected.loss, what="loss")
    for layer, one in enumerate(expected.attentions):
        assert_near(found.attentions[layer], one, what=f"attention {layer}")
        assert_near(recording.gradients[layer], one.grad, what=f"gradient {layer}")
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None and gradients[name] is not None
        assert_near(parameter.grad, gradients[name], 1e-4, of=largest, what=name)


def test_a_shared_encoder_is_left_as_it_is() -> None:
    """Standing on another model's encoder changes none of its numbers."""
    model = BertForPreTraining(SIZES)
    before = copy.deepcopy(model.bert.state_dict())
    reader = BertForQuestionAnswering(SIZES, model.bert)
    assert reader.bert is model.bert and reader.qa_outputs.bias.abs().max() == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.bert.state_dict().items())


def test_a_reader_beside_the_other_heads_loads_with_them(
    tiny: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Every key is accounted for, each weight is counted once, and transformers reads what is saved."""
    assert tiny.has_reader and tiny.has_mlm and tiny.has_nsp and not (tiny.has_classifier or tiny.has_tagger)
    assert (tiny.report.missing, tiny.report.unexpected) == ((), ())
    assert tiny.task_models["reader"].bert is tiny.model.bert
    plain = bert_core.load(str(tiny_model_folder), device="cpu")
    assert not plain.has_reader and "reader" not in plain.task_models
    assert tiny.nbytes - plain.nbytes == 4 * 2 * (tiny.config.hidden_size + 1)
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(bert_core.save(tiny, tmp_path / "saved"))
    inputs = batch(tiny.config)
    with torch.no_grad():
        assert_near(tiny.task_models["reader"](**inputs).end_logits, theirs.eval()(**inputs).end_logits)


def test_half_a_reader_is_none(tiny_reader_folder: Path, tmp_path: Path) -> None:
    """Without its bias a reader is reported and not used."""
    weights = {n: t for n, t in checkpoint.read_weights(tiny_reader_folder).items() if n != "qa_outputs.bias"}
    checkpoint.write_tensors(weights, checkpoint.read_config(tiny_reader_folder), tmp_path)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_reader_folder / name).read_bytes())
    loaded = bert_core.load(str(tmp_path), device="cpu")
    assert loaded.report.missing == ("qa_outputs.bias",) and not loaded.has_reader
    assert capture(loaded, loaded.tokenizer.encode("the cat", "sat")).spans is None


def test_without_a_context_there_is_no_answer(tiny: LoadedModel) -> None:
    """One text alone is read as ever, and has no spans."""
    run = capture(tiny, tiny.tokenizer.encode("the cat [MASK]"))
    assert run.spans is None and run.predictions


# ---------------------------------------------------------------------------- as a target


@pytest.mark.parametrize("gated", [False, True], ids=["all heads", "gates"])
def test_an_answer_is_a_target(tiny: LoadedModel, encoding: Encoding, gated: bool) -> None:
    """Its value is the sum of its two logits, and the gradients are those of an ordinary backward pass."""
    gates = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0]], np.float32) if gated else None
    run = capture(tiny, encoding, target=ASKED, head_mask=gates)
    assert run.gradient is not None and run.spans is not None and run.target_value is not None
    model = copy.deepcopy(tiny.task_models["reader"])
    assert model is not None
    model.requires_grad_(True)
    for module in model.attention_modules:
        module.save_attention = True
    ids, segments = (torch.tensor([part]) for part in (encoding.input_ids, encoding.token_type_ids))
    more = {} if gates is None else {"head_mask": torch.tensor(gates)}
    found = model(ids, token_type_ids=segments, **more)
    asked = found.start_logits[0, 6] + found.end_logits[0, 8]
    asked.backward()
    assert_near(run.spans.start_logits, found.start_logits[0])
    assert_near(run.spans.end_logits, found.end_logits[0])
    assert_near(run.target_value, asked, of=1.0)
    for layer, module in enumerate(model.attention_modules):
        expected = module.get_attn_gradients()[0]
        assert float(expected.abs().max()) > 1e-4
        assert_near(run.gradient[layer], expected)


def test_several_texts_at_once_say_the_same(tiny: LoadedModel, encoding: Encoding) -> None:
    """Padding beside a longer text changes no answer, and a text alone has none."""
    others = [tiny.tokenizer.encode("who went", "the old king"), tiny.tokenizer.encode("the king")]
    first, second, alone = bert_core.captures(tiny, [encoding, *others])
    for run, one in ((first, encoding), (second, others[0])):
        assert run.spans is not None
        expected = logits_of(tiny, one)
        assert_near(run.spans.start_logits, expected[0])
        assert_near(run.spans.end_logits, expected[1])
    assert alone.spans is None


@pytest.mark.parametrize("target", [ASKED, Target("span", 7, last=7), Target("span", 0, last=0)])
def test_parts_and_paths_add_up_to_the_answer(tiny: LoadedModel, encoding: Encoding, target: Target) -> None:
    """DecompX's parts sum to both logits, integrated gradients to the way from [PAD]; every method answers."""
    logits = logits_of(tiny, encoding)
    value = float(logits[0, target.rows[0]] + logits[1, target.rows[1]])
    assert_parts_and_paths_add_up(tiny, encoding, target, value, of=1.0)


def test_the_words_of_the_answer_can_be_taken_out(tiny: LoadedModel, encoding: Encoding) -> None:
    """Their places are left to be asked; the probability is that of the answer among all of the context."""
    assert ASKED.removable(encoding) == tuple(i for i, added in enumerate(encoding.special) if not added)
    hidden = copy.copy(encoding)
    ids = [tiny.tokenizer.mask_id if i in (2, 7) else number for i, number in enumerate(encoding.input_ids)]
    object.__setattr__(hidden, "input_ids", tuple(ids))
    removed = np.isin(np.arange(len(encoding)), [2, 7])[None]
    logits = logits_of(tiny, hidden)
    (value,) = values_without(tiny, encoding, ASKED, removed, baseline="mask")
    assert_near(value, logits[0, 6] + logits[1, 8], of=1.0)
    (share,) = values_without(tiny, encoding, ASKED, removed, baseline="mask", probability=True)
    among = [0, *context_positions(encoding)]
    shares = logits[:, among].softmax(-1)
    assert_near(share, shares[0, among.index(6)] * shares[1, among.index(8)])
    spans = capture(tiny, hidden).spans
    assert spans is not None
    (same,) = (span for span in best_spans(hidden, spans, 99) if (span.first, span.last) == (6, 8))
    assert_near(share, same.probability)
    judged = faithfulness(tiny, encoding, ASKED, token_scores(tiny, encoding, ASKED, ["attention"]))
    assert judged and all(np.isfinite(one.scores).all() for one in judged.values())


def test_heads_are_ablated_and_pruned_for_an_answer(tiny: LoadedModel, encoding: Encoding) -> None:
    """A head's value is that of the model with it off, and of the model that was pruned of it."""
    found = ablate_heads(tiny, encoding, target=ASKED)
    assert found.values is not None
    smaller = bert_core.pruned(tiny, [(1, 2)])
    assert smaller.task_models["reader"].bert is smaller.model.bert
    gates = torch.ones(2, 4)
    gates[1, 2] = 0
    for logits in (logits_of(smaller, encoding), logits_of(tiny, encoding, head_mask=gates)):
        assert_near(found.values[1, 2], logits[0, 6] + logits[1, 8], of=1.0)


def test_a_patch_brings_the_answer_of_the_other_text(tiny: LoadedModel, encoding: Encoding) -> None:
    """The last states at both ends carry it, each its own half; what the patched model says, says its spans."""
    source = tiny.tokenizer.encode("the dog ran", "the big dogs ran to the door")
    found, own, other = patch(tiny, source, encoding, ASKED), logits_of(tiny, encoding), logits_of(tiny, source)
    size = float(torch.cat([own, other]).abs().max())
    assert_near(found.base_value, own[0, 6] + own[1, 8], of=size)
    assert_near(found.source_value, other[0, 6] + other[1, 8], of=size)
    last = found.values[-1]
    assert_near(last[6], other[0, 6] + own[1, 8], of=size)
    assert_near(last[8], own[0, 6] + other[1, 8], of=size)
    assert_near(np.delete(last, [6, 8]), found.base_value, of=size)
    spans = predict_with_patch(tiny, found, (2, 8)).spans
    assert spans is not None
    assert_near(spans.end_logits[8], other[1, 8], of=size)
    assert_near(spans.end_logits[7], own[1, 7], of=size)


def test_an_edited_model_answers_so(tiny: LoadedModel, encoding: Encoding) -> None:
    """An edit reaches the reader's encoder, which stays that of the model."""
    changed = bert_core.edited(tiny, [bert_core.ScaledNeuron(0, 3, 0.0)])
    assert changed.task_models["reader"].bert is changed.model.bert
    run = capture(changed, encoding)
    assert run.spans is not None
    assert_near(run.spans.start_logits, logits_of(changed, encoding)[0])
    assert np.abs(run.spans.start_logits - logits_of(tiny, encoding)[0].numpy()).max() > 1e-4


def test_an_answer_that_cannot_be_is_one_sentence(
    tiny: LoadedModel, tiny_loaded: LoadedModel, encoding: Encoding
) -> None:
    """In the question, behind the end, backwards; without a context, a reader, or a part of the target."""
    for first, last in ((2, 6), (6, 40), (8, 6), (0, 6), (6, 13)):
        with pytest.raises(ValueError, match=rf"^an answer cannot be at positions {first} to {last}: the context has"):
            capture(tiny, encoding, target=Target("span", first, last=last))
    with pytest.raises(ValueError, match=r"^question answering needs two texts: give the context of the que"):
        capture(tiny, tiny.tokenizer.encode("the cat sat on the mat"), target=Target("span", 2, last=3))
    with pytest.raises(ValueError, match=r"has no trained question-answering head: choose another target$"):
        capture(tiny_loaded, encoding, target=ASKED)
    with pytest.raises(ValueError, match=r"^a 'span' target needs a position and a last position$"):
        Target("span", 3)
