"""Ours against transformers, number by number: outputs, every attention map, every attention gradient.

Attention is made peaked first. At the usual initial scale every map is flat and most gradients are so small
that any error would pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import bert_core
from bert_core import BertConfig, BertForPreTraining
from bert_core.recording import record
from bert_core.tokenizer import Tokenizer
from tests.near import apart, assert_near

TOLERANCE = 1e-4  # of the largest absolute value of each tensor
LENGTHS = (2, 3, 17, 128, 512)
CONFIGS = {
    "gelu": BertConfig(
        vocab_size=120, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96
    ),
    "relu": BertConfig(
        vocab_size=90,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=50,
        hidden_act="relu",
        pad_token_id=3,
        layer_norm_eps=1e-5,
    ),
    "gelu_new": BertConfig(
        vocab_size=70,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=8,
        intermediate_size=64,
        hidden_act="gelu_new",
        tie_word_embeddings=False,
    ),
}


def bundled() -> list[Path]:
    """The folders of the bundled models."""
    assets = Path(bert_core.__file__).parent / "assets"
    return [assets / name for name in bert_core.bundled_models()]


def peaked_model(config: BertConfig) -> BertForPreTraining:
    """A seeded model in which no parameter is at its neutral value and most queries look mainly at one key."""
    torch.manual_seed(11)
    model = BertForPreTraining(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.15)
            if "LayerNorm.weight" in name:
                parameter.add_(1.0)
        for module in model.attention_modules:
            for dense in (module.query, module.key):
                dense.weight.normal_(std=(9.0 / config.hidden_size) ** 0.5)
    return model


def reference_of(config: BertConfig) -> Any:
    """An untrained transformers model of the same sizes."""
    sizes = transformers.BertConfig(**config.to_dict(), attn_implementation="eager")
    return transformers.BertForPreTraining(sizes).eval()


@dataclass
class Case:
    """One batch, in the form that each side takes it."""

    inputs: dict[str, Tensor]
    labels: Tensor
    next_sentence_label: Tensor
    mask: Tensor | None = None
    additive: Tensor | None = None  # what the reference gets where ours takes a 3-D mask

    def for_ours(self) -> dict[str, Tensor]:
        return self.inputs if self.mask is None else {**self.inputs, "attention_mask": self.mask}

    def for_theirs(self) -> dict[str, Tensor]:
        mask = self.mask if self.additive is None else self.additive
        return self.inputs if mask is None else {**self.inputs, "attention_mask": mask}


def pair_case(config: BertConfig, length: int, seed: int = 5) -> Case:
    """Two random pairs of `length` tokens, a third of them to be predicted."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, config.vocab_size, (2, length), generator=draw)
    segments = torch.zeros(2, length, dtype=torch.long)
    segments[0, length // 2 :] = 1
    segments[1, length // 3 + 1 :] = 1
    labels = torch.where(torch.rand(2, length, generator=draw) < 0.3, ids, -100)
    labels[:, 0] = ids[:, 0]
    return Case({"input_ids": ids, "token_type_ids": segments}, labels, torch.tensor([0, 1]))


def padded_case(config: BertConfig, side: str) -> Case:
    """A pair of 23 tokens and one of 16 with padding on one side; padded left, positions are counted from the text."""
    case = pair_case(config, 23)
    case.mask = torch.ones(2, 23, dtype=torch.long)
    padding = slice(16, 23) if side == "right" else slice(0, 7)
    case.mask[1, padding] = 0
    case.inputs["input_ids"][1, padding] = config.pad_token_id
    case.labels[1, padding] = -100
    if side == "left":
        case.inputs["position_ids"] = (case.mask.cumsum(1) - 1).clamp(min=0)
    return case


def square_mask_case(config: BertConfig) -> Case:
    """Every query has its own keys, and at least itself."""
    case = pair_case(config, 19)
    draw = torch.Generator().manual_seed(2)
    case.mask = (torch.rand(2, 19, 19, generator=draw) < 0.5).long() | torch.eye(19, dtype=torch.long)
    case.additive = (1.0 - case.mask[:, None].float()) * torch.finfo(torch.float32).min
    return case


def position_case(config: BertConfig) -> Case:
    """Positions in an order of their own."""
    case = pair_case(config, 21)
    case.inputs["position_ids"] = torch.stack([torch.arange(20, -1, -1), torch.arange(21) * 7 + 300])
    return case


def embeddings_case(config: BertConfig) -> Case:
    """Vectors in place of ids."""
    case = pair_case(config, 18)
    draw = torch.Generator().manual_seed(3)
    del case.inputs["input_ids"]
    case.inputs["inputs_embeds"] = torch.randn(2, 18, config.hidden_size, generator=draw)
    return case


def ours_results(model: BertForPreTraining, case: Case) -> dict[str, Tensor]:
    """Every tensor of one forward and one backward pass of our model, by name."""
    with record() as recording:
        outputs = model(
            **case.for_ours(),
            labels=case.labels,
            next_sentence_label=case.next_sentence_label,
            output_hidden_states=True,
            output_attentions=True,
        )
        outputs.loss.backward()
    with torch.no_grad():
        plain = model.bert(**case.for_ours())
    gradients = [recording.gradients[layer] for layer in range(model.config.num_hidden_layers)]
    model.zero_grad()
    return _named(plain, outputs, gradients)


def their_results(model: Any, case: Case) -> dict[str, Tensor]:
    """The same of a transformers model, as people write it."""
    outputs = model(
        **case.for_theirs(),
        labels=case.labels,
        next_sentence_label=case.next_sentence_label,
        output_hidden_states=True,
        output_attentions=True,
    )
    for one in outputs.attentions:
        one.retain_grad()
    outputs.loss.backward()
    with torch.no_grad():
        plain = model.bert(**case.for_theirs())
    gradients = [one.grad for one in outputs.attentions]
    model.zero_grad()
    return _named(plain, outputs, gradients)


def _named(plain: Any, outputs: Any, gradients: list[Tensor]) -> dict[str, Tensor]:
    results = {
        "last_hidden_state": plain.last_hidden_state,
        "pooler_output": plain.pooler_output,
        "prediction_logits": outputs.prediction_logits,
        "seq_relationship_logits": outputs.seq_relationship_logits,
        "loss": outputs.loss,
    }
    for name, tensors in (
        ("hidden_states", outputs.hidden_states),
        ("attention", outputs.attentions),
        ("gradient", gradients),
    ):
        results |= {f"{name} {number}": tensor for number, tensor in enumerate(tensors)}
    return {name: tensor.detach() for name, tensor in results.items()}


def errors_between(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict[str, float]:
    """Largest difference of each tensor, as a share of the largest absolute value of theirs."""
    assert ours.keys() == theirs.keys()
    return {name: apart(ours[name], expected) for name, expected in theirs.items()}


def assert_parity(ours: BertForPreTraining, theirs: Any, case: Case) -> dict[str, Tensor]:
    """Every tensor agrees; returns ours."""
    results = ours_results(ours, case)
    too_far = {n: e for n, e in errors_between(results, their_results(theirs, case)).items() if not e <= TOLERANCE}
    assert not too_far
    return results


def peakedness(results: dict[str, Tensor]) -> float:
    """Median over all rows of all maps of the largest probability."""
    rows = torch.cat([t.amax(-1).flatten() for name, t in results.items() if name.startswith("attention")])
    return float(rows.median())


@pytest.fixture(scope="module", params=CONFIGS)
def twins(request: pytest.FixtureRequest) -> tuple[BertForPreTraining, Any]:
    """Our model and the reference with the same weights."""
    ours = peaked_model(CONFIGS[request.param])
    theirs = reference_of(ours.config)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


Twins = tuple[BertForPreTraining, Any]


@pytest.mark.parametrize("length", LENGTHS)
def test_pairs_of_every_length(twins: Twins, length: int) -> None:
    """From 2 to 512 tokens, each output, each map and each gradient is that of transformers, on peaked attention."""
    ours, theirs = twins
    results = assert_parity(ours, theirs, pair_case(ours.config, length))
    assert peakedness(results) > 0.5


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(twins: Twins, side: str) -> None:
    """With padding on either side everything agrees, and no query looks at a padded key."""
    ours, theirs = twins
    case = padded_case(ours.config, side)
    results = assert_parity(ours, theirs, case)
    assert case.mask is not None
    padded = case.mask[1] == 0
    assert all(bool((t[1][..., padded] == 0).all()) for n, t in results.items() if n.startswith("attention"))
    assert peakedness(results) > 0.5


@pytest.mark.parametrize("make", [square_mask_case, position_case, embeddings_case])
def test_other_inputs(twins: Twins, make: Any) -> None:
    """A mask for every query, positions of one's own, and vectors in place of ids."""
    ours, theirs = twins
    assert peakedness(assert_parity(ours, theirs, make(ours.config))) > 0.5


def test_padding_does_not_change_a_text(twins: Twins) -> None:
    """A padded text has the hidden states that it has alone."""
    ours, _ = twins
    case = padded_case(ours.config, "right")
    alone = {name: value[1:, :16] for name, value in case.inputs.items()}
    with torch.no_grad():
        padded = ours.bert(**case.for_ours()).last_hidden_state[1:, :16]
        expected = ours.bert(**alone).last_hidden_state
    assert_near(padded, expected, TOLERANCE)


def test_weights_travel_both_ways(twins: Twins) -> None:
    """Each side's state dict loads strictly into the other, and the models then agree."""
    ours, theirs = twins
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    torch.manual_seed(23)
    stranger = reference_of(ours.config)
    fresh = BertForPreTraining(ours.config).eval()
    fresh.load_state_dict(stranger.state_dict(), strict=True)
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, stranger.state_dict()[name])
    assert_parity(fresh, stranger, pair_case(ours.config, 17))
    stranger.load_state_dict(ours.state_dict(), strict=True)
    assert_parity(ours, stranger, pair_case(ours.config, 17))


def test_a_small_error_is_seen(twins: Twins) -> None:
    """One query weight matrix that is half a percent too large puts its map and its gradient out of tolerance."""
    ours, theirs = twins
    case = pair_case(ours.config, 17)
    expected = their_results(theirs, case)
    query = ours.attention_modules[0].query
    original = query.weight.detach().clone()
    with torch.no_grad():
        query.weight.mul_(1.005)
    errors = errors_between(ours_results(ours, case), expected)
    with torch.no_grad():
        query.weight.copy_(original)
    assert errors["attention 0"] > TOLERANCE
    assert errors["gradient 0"] > TOLERANCE


@pytest.fixture(scope="module", params=bundled(), ids=lambda folder: folder.name)
def pretrained(request: pytest.FixtureRequest) -> Twins:
    """A bundled checkpoint, read by each side from the same files."""
    theirs = transformers.BertForPreTraining.from_pretrained(
        request.param, attn_implementation="eager", dtype=torch.float32
    )
    return BertForPreTraining.from_pretrained(request.param), theirs.eval()


def test_a_model_is_bundled() -> None:
    """The tests below have something to compare."""
    assert "headlight-mini" in [folder.name for folder in bundled()]


@pytest.mark.parametrize(
    "length", [length if length < 128 else pytest.param(length, marks=pytest.mark.slow) for length in LENGTHS]
)
def test_bundled_weights_on_pairs_of_every_length(pretrained: Twins, length: int) -> None:
    """With trained weights, from 2 to 512 tokens, every tensor is that of transformers."""
    assert_parity(*pretrained, pair_case(pretrained[0].config, length))


@pytest.mark.parametrize("side", ["left", "right"])
def test_bundled_weights_with_padding(pretrained: Twins, side: str) -> None:
    """With trained weights and padding on either side every tensor is that of transformers."""
    assert_parity(*pretrained, padded_case(pretrained[0].config, side))


@pytest.mark.parametrize("folder", bundled(), ids=lambda folder: folder.name)
def test_bundled_weights_on_a_real_text(pretrained: Twins, folder: Path) -> None:
    """On a real pair with a masked word every tensor is that of transformers."""
    tokenizer = Tokenizer.from_folder(folder)
    encoding = tokenizer.encode("She opened the [MASK] and went in.", "The room was dark.")
    ids = torch.tensor([encoding.input_ids])
    labels = torch.full_like(ids, -100)
    labels[0, encoding.mask_positions[0]] = tokenizer.id_of("door")
    inputs = {"input_ids": ids, "token_type_ids": torch.tensor([encoding.token_type_ids])}
    assert_parity(*pretrained, Case(inputs, labels, torch.tensor([0])))
