"""bert_core/run/lens.py and translators.py: what each layer says, beside transformers and beside the model itself."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

import bert_core
from bert_core import Encoding, LoadedModel, Translators, layer_states, logit_lens, read_translators
from bert_core.checkpoint import CheckpointError
from bert_core.run import lens
from bert_core.translators import FILE, write_translators
from tests.near import assert_near

GATES = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0]])
FIGURES = (
    *("probabilities", "final_rank", "final_probability", "followed_rank", "followed_probability"),
    *("divergence", "entropy"),
)


@pytest.fixture(scope="module")
def tiny(tiny_loaded: LoadedModel) -> LoadedModel:
    return tiny_loaded


def example(loaded: LoadedModel) -> Encoding:
    return loaded.tokenizer.encode("the cat sat on the [MASK] .", "it was a big old house")


def moved(loaded: LoadedModel, seed: int = 3) -> Translators:
    """Translators that do something."""
    torch.manual_seed(seed)
    made = Translators(loaded.config)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return made.requires_grad_(False)


@pytest.mark.parametrize("lens_kind", ["logit", "tuned"])
def test_the_last_layer_is_the_models_own_prediction(lens_kind: str, tiny: LoadedModel) -> None:
    """With either lens, heads off or on; its divergence is 0 and its own first piece has rank 1."""
    encoding = example(tiny)
    translators = None if lens_kind == "logit" else moved(tiny)
    for gates in (None, GATES):
        found = logit_lens(tiny, encoding, translators=translators, head_mask=gates, top_k=4)
        run = bert_core.capture(tiny, encoding, positions=range(len(encoding)), head_mask=gates, top_k=4)
        assert found.lens == lens_kind
        for position, prediction in enumerate(run.predictions):
            pieces, shares = zip(*prediction.top, strict=True)
            assert tuple(found.top[-1, position]) == pieces
            np.testing.assert_allclose(found.probabilities[-1, position], shares, rtol=1e-4)
            stood = encoding.input_ids[position]
            assert found.followed_rank[-1, position] == prediction.rank_of(stood)
            np.testing.assert_allclose(
                found.followed_probability[-1, position], prediction.probabilities[stood], rtol=1e-4
            )
        assert (found.divergence[-1] == 0).all() and (found.divergence >= 0).all()
        assert found.divergence[:-1].max() > 0.01
        assert (found.final_rank[-1] == 1).all() and (found.final == found.top[-1, :, 0]).all()


def test_every_layer_is_the_head_on_its_states(tiny: LoadedModel, tiny_model_folder: Path) -> None:
    """Words, probabilities, ranks, KL and entropy beside transformers' states and head, and SciPy's entropies."""
    encoding = example(tiny)
    theirs = transformers.BertForPreTraining.from_pretrained(tiny_model_folder, attn_implementation="eager").eval()
    with torch.no_grad():
        outputs = theirs(
            torch.tensor([encoding.input_ids]), token_type_ids=torch.tensor([encoding.token_type_ids]),
            output_hidden_states=True,
        )  # fmt: skip
        expected = torch.stack([theirs.cls.predictions(states[0]) for states in outputs.hidden_states])
    shares = expected.double().softmax(-1).numpy()  # (depth, seq, vocab)
    followed = [7] * len(encoding)
    found = logit_lens(tiny, encoding, followed=followed, top_k=3)
    assert found.top.shape == (3, len(encoding), 3)
    final = shares[-1].argmax(-1)
    for depth, position in np.ndindex(3, len(encoding)):
        here, last = shares[depth, position], shares[-1, position]
        np.testing.assert_allclose(here[found.top[depth, position]], np.sort(here)[::-1][:3], rtol=1e-3)
        np.testing.assert_allclose(found.probabilities[depth, position], np.sort(here)[::-1][:3], rtol=1e-3)
        for name, word in (("final", final[position]), ("followed", 7)):
            assert getattr(found, f"{name}_rank")[depth, position] == 1 + (here > here[word]).sum()
            np.testing.assert_allclose(getattr(found, f"{name}_probability")[depth, position], here[word], rtol=1e-3)
        assert_near(found.divergence[depth, position], entropy(last, here), 1e-4, of=1)
        np.testing.assert_allclose(found.entropy[depth, position], entropy(here), rtol=1e-3)
    states = layer_states(tiny, encoding).states
    assert_near(states, torch.cat(outputs.hidden_states).numpy())


def test_positions_in_batches_give_the_same(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some positions at a time is all of them at once; the report counts cells; every table stays within the bound."""
    encoding = example(tiny)
    whole = logit_lens(tiny, encoding)
    monkeypatch.setattr(lens, "BYTES_AT_ONCE", 4 * tiny.config.vocab_size * 3)
    seen: list[int] = []
    head = tiny.model.cls.predictions
    forward = head.forward
    monkeypatch.setattr(head, "forward", lambda states: (seen.append(len(states)), forward(states))[1])
    told: list[tuple[float, str]] = []
    parts = logit_lens(tiny, encoding, report=lambda done, what="": told.append((done, what)))
    for name in FIGURES:
        assert_near(getattr(parts, name), getattr(whole, name))
    assert (parts.top[..., 0] == whole.top[..., 0]).all()
    cells = whole.entropy.size
    assert max(seen) == 3 and len(told) == 6 * 3 and told[-1] == (1, f"{cells:,} of {cells:,} cells")
    assert all(one[0] < other[0] for one, other in itertools.pairwise(told))


def test_some_positions_are_those_of_the_whole(tiny: LoadedModel) -> None:
    """Asked for some, in any order: the same figures, under their own positions."""
    encoding, followed = example(tiny), range(16)
    whole, some = logit_lens(tiny, encoding, followed=followed), logit_lens(tiny, encoding, positions=[9, 2, 9])
    assert whole.positions == tuple(range(16)) and some.positions == (2, 9)
    assert some.followed == (encoding.input_ids[2], encoding.input_ids[9])
    assert logit_lens(tiny, encoding, positions=[9, 2], followed=followed).followed == (2, 9)
    for name in ("probabilities", "final_rank", "final_probability", "divergence", "entropy"):
        assert_near(getattr(some, name), getattr(whole, name)[:, [2, 9]])
    assert (some.final == whole.final[[2, 9]]).all()
    with pytest.raises(ValueError, match=r"^position 16 does not exist: this text has positions 0 to 15$"):
        logit_lens(tiny, encoding, positions=[16])


def test_translators_that_do_nothing_are_the_logit_lens(tiny: LoadedModel) -> None:
    """New ones are the identity; others are h + W h + b before the head, and leave the last depth alone."""
    encoding = example(tiny)
    plain, same = logit_lens(tiny, encoding), logit_lens(tiny, encoding, translators=Translators(tiny.config))
    for name in FIGURES:
        np.testing.assert_array_equal(getattr(plain, name), getattr(same, name))
    made, states = moved(tiny), torch.from_numpy(layer_states(tiny, encoding).states.copy())
    other = logit_lens(tiny, encoding, translators=made)
    assert np.abs(other.entropy[:-1] - plain.entropy[:-1]).max() > 1e-3
    one = made[1]
    read = states[1] + states[1] @ one.weight.T + one.bias
    shares = tiny.model.cls.predictions(read).softmax(-1).numpy()
    np.testing.assert_allclose(other.entropy[1], entropy(shares, axis=-1), rtol=1e-4)


def test_translators_come_back_from_their_file(tiny: LoadedModel, tmp_path: Path) -> None:
    """What was written is read again, to float16; beside a model without the file there are none."""
    made = moved(tiny)
    write_translators(made, tiny, tmp_path)
    found = read_translators(tiny, tmp_path)
    assert found is not None and not any(p.requires_grad for p in found.parameters())
    for one, other in zip(made.parameters(), found.parameters(), strict=True):
        assert torch.equal(one.half().float(), other)
    assert read_translators(tiny, tmp_path / "nowhere") is None and read_translators(tiny) is None


def test_a_lens_of_other_weights_is_refused(
    tiny: LoadedModel, tiny_model_folder: Path, tmp_path: Path, tiny_config: bert_core.BertConfig
) -> None:
    """Other weights, another size, a broken file: one sentence each; the same weights in another folder are fine."""
    write_translators(moved(tiny), tiny, tmp_path)
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model_folder, folder)
    shutil.copyfile(tmp_path / FILE, folder / FILE)
    copied = bert_core.load(str(folder), device="cpu")
    assert read_translators(copied) is not None
    torch.manual_seed(9)
    strange = dataclasses.replace(tiny, model=bert_core.BertForPreTraining(tiny_config).eval())
    with pytest.raises(
        CheckpointError, match=r"was trained for other weights than those of .* earlier version .* trains it again"
    ):
        read_translators(strange, tmp_path)
    (tmp_path / FILE).write_bytes(b"not a file of tensors")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_translators(tiny, tmp_path)


def test_the_bundled_lens_is_nearer_to_the_end_than_the_logit_lens() -> None:
    """In every layer, over the hidden words of some sentences, and over the words that are seen."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    translators = read_translators(loaded)
    assert translators is not None
    sentences = (
        "The harbour was closed for [MASK] weeks because of the storm.",
        "The bridge over the [MASK] was built by a company from London.",
        "Most of these birds lay their eggs in the [MASK].",
        "The minister said that the new [MASK] would cost too much.",
        "He looked at the [MASK] for a long time and then went home.",
    )
    found: dict[str, list[np.ndarray]] = {"logit": [], "tuned": []}
    for sentence in sentences:
        encoding = loaded.tokenizer.encode(sentence)
        for name, maps in (("logit", None), ("tuned", translators)):
            divergence = logit_lens(loaded, encoding, translators=maps).divergence
            hidden = encoding.mask_positions[0]
            found[name].append(np.stack([divergence[:-1, hidden], np.delete(divergence[:-1], hidden, 1).mean(1)]))
    assert (np.mean(found["tuned"], 0) < np.mean(found["logit"], 0)).all()


def test_records_of_the_layers_cannot_be_changed(tiny: LoadedModel) -> None:
    """Every array refuses to be written."""
    found = logit_lens(tiny, example(tiny))
    for array in (found.top, found.divergence, layer_states(tiny, example(tiny)).states):
        with pytest.raises(ValueError, match="read-only"):
            array.flat[0] = 1


def test_bad_questions_to_the_layers_are_one_sentence(tiny: LoadedModel) -> None:
    """What was given, and what is allowed."""
    encoding = example(tiny)
    headless = dataclasses.replace(tiny, report=dataclasses.replace(tiny.report, missing=("cls.predictions.bias",)))
    with pytest.raises(ValueError, match="has no trained masked-word head: its layers cannot be read as words"):
        logit_lens(headless, encoding)
    assert layer_states(headless, encoding).states.shape == (3, 16, 32)
    with pytest.raises(
        ValueError, match=r"^followed has 2 ids and the text has 16 positions: give one id for each position$"
    ):
        logit_lens(tiny, encoding, followed=[1, 2])
    with pytest.raises(ValueError, match="an id of followed does not exist: the vocabulary has 0 to"):
        logit_lens(tiny, encoding, followed=[10**6] * 16)


def other_weights(loaded: LoadedModel, seed: int = 5) -> LoadedModel:
    """The same model with its encoder moved a little; its word head stays."""
    torch.manual_seed(seed)
    model = copy.deepcopy(loaded.model)
    with torch.no_grad():
        for parameter in model.bert.encoder.parameters():
            if parameter.dim() > 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return dataclasses.replace(loaded, model=model)


def test_what_two_models_read_is_what_each_reads_alone(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Top pieces and shares are those of `logit_lens`; the divergence is scipy's, and nothing between equal models."""
    other, encoding, vocab = other_weights(tiny), example(tiny), tiny.config.vocab_size
    alone = [logit_lens(loaded, encoding, top_k=vocab) for loaded in (tiny, other)]
    readings = [np.zeros((*run.top.shape[:2], vocab)) for run in alone]
    for reading, run in zip(readings, alone, strict=True):
        np.put_along_axis(reading, run.top.astype(np.int64), run.probabilities.astype(np.float64), -1)
    wanted = jensenshannon(*readings, axis=-1) ** 2
    for room in (lens.BYTES_AT_ONCE, 4 * vocab * 3):  # all at once, and three positions at a time
        monkeypatch.setattr(lens, "BYTES_AT_ONCE", room)
        found = lens.lens_change(tiny, other, encoding)
        assert_near(found.divergence, wanted)
        assert_near(found.shares_before, alone[0].probabilities[..., 0])
        assert_near(found.shares_after, alone[1].probabilities[..., 0])
        np.testing.assert_array_equal(found.before, alone[0].top[..., 0])
        np.testing.assert_array_equal(found.after, alone[1].top[..., 0])
    assert found.equal[0].all() and not found.equal.all(), "the embeddings are the same, some layer is not"
    nothing = lens.lens_change(tiny, tiny, encoding)
    assert nothing.equal.all() and nothing.divergence.max() < 1e-6


def test_two_models_that_cannot_be_read_side_by_side_are_refused(tiny: LoadedModel) -> None:
    """Without a word head, or with other layers, there is no depth to compare."""
    encoding = example(tiny)
    report = dataclasses.replace(tiny.report, missing=("cls.predictions.bias",))
    with pytest.raises(bert_core.Refused, match="no trained masked-word head"):
        lens.lens_change(tiny, dataclasses.replace(tiny, report=report), encoding)
    shallow = bert_core.BertForPreTraining(tiny.config.replace(num_hidden_layers=1))
    with pytest.raises(bert_core.Refused, match="both numbers must be equal"):
        lens.lens_change(tiny, dataclasses.replace(tiny, model=shallow), encoding)
