"""Generation: the tokens that transformers gives, the same with and without a cache, drawn alike from one seed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.blip.modeling_blip_text import BlipTextLMHeadModel

from bert_core import BertLMHeadModel, generate
from tests.core.test_decoder import bert_pair, blip_config, decoder_config, ids_of, made, states_of

EOS = 2


@pytest.fixture(scope="module")
def model() -> Any:
    """A decoder with cross-attention whose scores are far apart, so that a text ends now and then."""
    decoder = made(BertLMHeadModel, decoder_config())
    with torch.no_grad():
        decoder.cls.predictions.decoder.bias[EOS] = 4.0
    return decoder


def texts(rows: Tensor) -> list[list[int]]:
    """Each row up to its end: what stands behind that is filling, with which a search may do as it likes."""
    return [row[: 3 + row[3:].index(EOS) + 1] if EOS in row[3:] else row for row in rows.tolist()]


@pytest.mark.parametrize("num_beams", [1, 2, 3, 5])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0, -1.0])
def test_beams_are_those_of_transformers(model: Any, num_beams: int, length_penalty: float) -> None:
    """Token by token the text of BLIP's decoder under transformers' generation, greedy and with beams."""
    theirs = BlipTextLMHeadModel(blip_config(model.config)).eval()
    theirs.load_state_dict(model.state_dict())
    lengths = set()
    for seed in range(6):
        prompt, states = ids_of(3, seed=seed), states_of(seed=seed)
        reference = theirs.generate(
            prompt, encoder_hidden_states=states, max_new_tokens=9, num_beams=num_beams, do_sample=False,
            length_penalty=length_penalty, eos_token_id=EOS, pad_token_id=0, early_stopping=False,
        )  # fmt: skip
        ours = generate(
            model, prompt, encoder_hidden_states=states, max_new_tokens=9, num_beams=num_beams,
            length_penalty=length_penalty, eos_token_id=EOS,
        )  # fmt: skip
        assert texts(ours) == texts(reference)
        lengths |= set((ours != 0).sum(1).tolist())
    assert len(lengths) > 1, "some texts end early, or the end was never tested"


def test_berts_decoder_goes_on_as_in_transformers() -> None:
    """Greedy text of transformers' BERT decoder, without cross-attention."""
    ours, theirs = bert_pair(decoder_config(add_cross_attention=False, encoder_width=None, type_vocab_size=2))
    prompt = ids_of(4)
    reference = theirs.generate(prompt, max_new_tokens=10, do_sample=False, eos_token_id=EOS, pad_token_id=0)
    assert texts(generate(ours, prompt, max_new_tokens=10, eos_token_id=EOS)) == texts(reference)


@pytest.mark.parametrize("kind", ["absolute", "relative_key", "relative_key_query", "relative_bias", "disentangled"])
@pytest.mark.parametrize("how", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 9, "top_p": 0.9}])
def test_a_cache_changes_no_token(kind: str, how: dict[str, Any]) -> None:
    """With and without the cache the same tokens come out, greedy, drawn or by beams, for every kind of positions."""
    decoder = made(BertLMHeadModel, decoder_config(position_embedding_type=kind))
    given = {"encoder_hidden_states": states_of(), "max_new_tokens": 8, "eos_token_id": EOS, **how}
    assert torch.equal(
        generate(decoder, ids_of(3), use_cache=True, **given), generate(decoder, ids_of(3), use_cache=False, **given)
    )


def test_padding_on_the_left_changes_no_token(model: Any) -> None:
    """A prompt padded on the left goes on as it does alone."""
    prompt, states = ids_of(3, rows=1), states_of(rows=1)
    alone = generate(model, prompt, encoder_hidden_states=states, max_new_tokens=6)
    padded = torch.cat([torch.zeros(1, 2, dtype=torch.long), prompt], dim=1)
    mask = torch.tensor([[0, 0, 1, 1, 1]])
    for beams in (1, 3):
        alone = generate(model, prompt, encoder_hidden_states=states, max_new_tokens=6, num_beams=beams)
        moved = generate(
            model, padded, attention_mask=mask, encoder_hidden_states=states, max_new_tokens=6, num_beams=beams
        )
        assert torch.equal(moved[:, 2:], alone)


class Scores(BertLMHeadModel):
    """A decoder with the same scores at every step."""

    def __init__(self, scores: Tensor) -> None:
        sizes = {"vocab_size": len(scores), "max_position_embeddings": 5000}
        super().__init__(decoder_config(**sizes, add_cross_attention=False, encoder_width=None))
        self.scores = scores

    def prepare_inputs_for_generation(self, input_ids: Tensor, **_: Any) -> dict[str, Any]:
        return {"input_ids": input_ids}

    def forward(self, input_ids: Tensor, use_cache: bool) -> Any:  # type: ignore[override]
        logits = self.scores.expand(len(input_ids), 1, -1)
        return type("Output", (), {"logits": logits, "past_key_values": None})


def drawn(probabilities: list[float], **how: Any) -> dict[int, float]:
    """Share of each token among 4,000 draws."""
    decoder = Scores(torch.tensor(probabilities).log())
    text = generate(decoder, torch.zeros(4, 1, dtype=torch.long), max_new_tokens=1000, do_sample=True, **how)
    return {token: count / 4000 for token, count in Counter(text[:, 1:].flatten().tolist()).items()}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, {0: 0.5, 1: 0.25, 2: 0.15, 3: 0.1}),
        ({"top_k": 2}, {0: 2 / 3, 1: 1 / 3}),
        ({"top_p": 0.75}, {0: 2 / 3, 1: 1 / 3}),
        ({"top_p": 0.76}, {0: 5 / 9, 1: 2.5 / 9, 2: 1.5 / 9}),
        ({"top_p": 0.01}, {0: 1.0}),
        ({"temperature": 0.5}, {0: 0.25 / 0.345, 1: 0.0625 / 0.345, 2: 0.0225 / 0.345, 3: 0.01 / 0.345}),
    ],
)  # fmt: skip
def test_draws_follow_the_probabilities(how: dict[str, Any], expected: dict[int, float]) -> None:
    """Shares of 4,000 draws are the probabilities after temperature, top-k and top-p, worked out by hand."""
    shares = drawn([0.5, 0.25, 0.15, 0.1], **how)
    assert set(shares) == set(expected)
    assert all(abs(shares[token] - share) < 0.03 for token, share in expected.items())


def test_a_seed_decides_the_draw(model: Any) -> None:
    """Equal seeds draw the same text and another seed another; the caller's own random state is left alone."""
    given = {"encoder_hidden_states": states_of(), "max_new_tokens": 12, "do_sample": True, "temperature": 2.0}
    before = torch.get_rng_state()
    first = generate(model, ids_of(3), seed=1, **given)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, generate(model, ids_of(3), seed=1, **given))
    assert not torch.equal(first, generate(model, ids_of(3), seed=2, **given))


def test_a_model_in_training_is_left_in_training(model: Any) -> None:
    """Generation runs without dropout and puts the mode back, also after an error."""
    model.train()
    generate(model, ids_of(3), encoder_hidden_states=states_of(), max_new_tokens=2)
    assert model.training
    with pytest.raises(ValueError, match="encoder_hidden_states are missing"):
        generate(model, ids_of(3), max_new_tokens=2)
    assert model.training
    model.eval()


@pytest.mark.parametrize(
    ("prompt", "how", "sentence"),
    [
        (ids_of(0), {}, "the prompt has shape (2, 0): it must be (batch, seq), with at least one token"),
        (ids_of(3)[0], {}, "the prompt has shape (3,): it must be (batch, seq), with at least one token"),
        (ids_of(3), {"top_k": -1}, "top_k is -1: it must be 0 for all tokens, or a number of tokens"),
        (ids_of(3), {"top_p": 0.0}, "top_p is 0: it must be above 0 and at most 1"),
        (ids_of(3), {"temperature": 0.0},
         "temperature is 0: it must be above 0, and without do_sample decoding is greedy"),
        (ids_of(3), {"num_beams": 0}, "num_beams is 0: it must be at least 1"),
        (ids_of(3), {"num_beams": 2, "do_sample": True},
         "do_sample is set with 2 beams: sample with one beam, or search without sampling"),
        (ids_of(3), {"max_new_tokens": 0}, "max_new_tokens is 0: it must be at least 1"),
        (ids_of(38), {"max_new_tokens": 9},
         "the prompt has 38 tokens and max_new_tokens is 9: this model has 40 positions, so max_new_tokens can be at "
         "most 3"),
    ],
)  # fmt: skip
def test_bad_settings_are_one_clear_sentence(model: Any, prompt: Tensor, how: dict[str, Any], sentence: str) -> None:
    """What was given and what is allowed."""
    with pytest.raises(ValueError) as caught:
        generate(model, prompt, encoder_hidden_states=states_of(), **how)
    assert str(caught.value) == sentence


def test_the_documented_example_runs() -> None:
    """The code of docs/reference/decoder.md runs as it stands, and its recording holds what the page says."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "decoder.md"
    code = "".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    names: dict[str, Any] = {}
    with torch.enable_grad():
        exec(code, names)
    recording, length = names["recording"], names["text"].shape[1]
    assert recording.cross_attention[1].shape == recording.cross_gradients[1].shape == (1, 4, length, 64)
    assert torch.allclose(recording.cross_attention[1].sum(-1), torch.ones(1, 4, length))
    assert recording.cross_gradients[1][:, :, 0].abs().max() > 0
    assert torch.equal(names["across"][1], recording.cross_attention[1])
