"""bert_core/modeling: the models around attention, and what they refuse."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core import (
    BertConfig,
    BertEmbeddings,
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertModel,
)
from bert_core.recording import record
from tests.near import assert_near

MODELS = (BertModel, BertForPreTraining, BertForMaskedLM, BertForNextSentencePrediction)


def made(kind: type[Any], config: BertConfig, **arguments: Any) -> Any:
    torch.manual_seed(4)
    return kind(config, **arguments).eval()


def some_ids(batch: int = 2, length: int = 9, seed: int = 0) -> Tensor:
    return torch.randint(5, 90, (batch, length), generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------------- outputs


def test_outputs_have_the_published_names(tiny_config: BertConfig) -> None:
    """Each model gives its fields by name, those that are absent as None."""
    ids, sentence_labels = some_ids(), torch.tensor([0, 1])
    wanted = {"output_hidden_states": True, "output_attentions": True}
    expected: dict[type[Any], tuple[dict[str, Any], list[str]]] = {
        BertModel: ({}, ["last_hidden_state", "pooler_output"]),
        BertForPreTraining: (
            {"labels": ids, "next_sentence_label": sentence_labels},
            ["loss", "prediction_logits", "seq_relationship_logits"],
        ),
        BertForMaskedLM: ({"labels": ids}, ["loss", "logits"]),
        BertForNextSentencePrediction: ({"labels": sentence_labels}, ["loss", "logits"]),
    }
    for kind, (labels, names) in expected.items():
        model = made(kind, tiny_config)
        full = model(ids, **labels, **wanted)
        assert [name for name in vars(full) if getattr(full, name) is not None] == [
            *names,
            "hidden_states",
            "attentions",
        ]
        bare = model(ids)
        assert [name for name in vars(bare) if getattr(bare, name) is not None] == [n for n in names if n != "loss"]


def test_outputs_are_tuples_too(tiny_config: BertConfig) -> None:
    """They can be unpacked, indexed, sliced, counted and asked by name; what is absent is left out."""
    outputs = made(BertForPreTraining, tiny_config)(some_ids())
    scores, follows = outputs
    assert scores is outputs[0] is outputs.prediction_logits is outputs["prediction_logits"]
    assert follows is outputs[-1] is outputs[:2][1] is outputs.seq_relationship_logits
    assert len(outputs) == 2
    for absent in ("loss", "attentions", "no such field"):
        with pytest.raises(KeyError):
            outputs[absent]
    with pytest.raises(IndexError):
        outputs[2]


def test_hidden_states_are_the_embeddings_and_every_layer(tiny_config: BertConfig) -> None:
    """One more than there are layers: the first is the embeddings, the last is last_hidden_state."""
    model = made(BertModel, tiny_config)
    outputs = model(some_ids(), output_hidden_states=True)
    assert len(outputs.hidden_states) == 3
    assert torch.equal(outputs.hidden_states[0], model.embeddings(some_ids()))
    assert outputs.hidden_states[-1] is outputs.last_hidden_state


def test_the_pooler_is_optional(tiny_config: BertConfig) -> None:
    """Without it there is no pooler_output and no parameter for one."""
    model = made(BertModel, tiny_config, add_pooling_layer=False)
    assert model(some_ids()).pooler_output is None
    assert not [name for name in model.state_dict() if name.startswith("pooler")]


# ---------------------------------------------------------------------------- losses


def test_the_loss_is_masked_words_plus_next_sentence(tiny_config: BertConfig) -> None:
    """Both labels give the sum, one label gives its own part, and unlabelled positions count for nothing."""
    model = made(BertForPreTraining, tiny_config)
    ids, follows = some_ids(), torch.tensor([1, 0])
    labels = torch.full_like(ids, -100)
    labels[0, 2], labels[1, 7] = 30, 40
    outputs = model(ids, labels=labels, next_sentence_label=follows)
    chosen = outputs.prediction_logits[[0, 1], [2, 7]].log_softmax(-1)
    words = -(chosen[0, 30] + chosen[1, 40]) / 2
    sentences = -outputs.seq_relationship_logits.log_softmax(-1)[[0, 1], [1, 0]].mean()
    assert_near(outputs.loss, words + sentences)
    assert_near(model(ids, labels=labels).loss, words)
    assert_near(model(ids, next_sentence_label=follows).loss, sentences)


def test_single_heads_compute_their_own_loss(tiny_config: BertConfig) -> None:
    """BertForMaskedLM and BertForNextSentencePrediction have the loss of their logits."""
    ids, follows = some_ids(), torch.tensor([1, 0])
    words = made(BertForMaskedLM, tiny_config)(ids, labels=ids)
    assert_near(words.loss, F.cross_entropy(words.logits.flatten(0, 1), ids.flatten()))
    sentences = made(BertForNextSentencePrediction, tiny_config)(ids, labels=follows)
    assert_near(sentences.loss, F.cross_entropy(sentences.logits, follows))


# ---------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("kind", [*MODELS, BertEmbeddings])
def test_segments_cannot_land_in_the_mask(kind: type[Any], tiny_config: BertConfig) -> None:
    """Whatever follows the ids must be named."""
    with pytest.raises(TypeError, match="positional"):
        made(kind, tiny_config)(some_ids(), torch.zeros(2, 9, dtype=torch.long))


def test_a_model_without_segments(tiny_config: BertConfig) -> None:
    """type_vocab_size 0 has no segment table, equals a table of zeros, and refuses segments that are given."""
    without = made(BertModel, tiny_config.replace(type_vocab_size=0))
    assert not [name for name in without.state_dict() if "token_type" in name]
    with_zeros = BertModel(tiny_config.replace(type_vocab_size=1)).eval()
    with_zeros.load_state_dict(without.state_dict(), strict=False)
    nn.init.zeros_(with_zeros.embeddings.token_type_embeddings.weight)
    assert torch.equal(without(some_ids()).last_hidden_state, with_zeros(some_ids()).last_hidden_state)
    with pytest.raises(ValueError, match="this model has type_vocab_size 0: it has no segments"):
        without(some_ids(), token_type_ids=torch.zeros(2, 9, dtype=torch.long))


def test_without_segments_given_everything_is_in_the_first(tiny_config: BertConfig) -> None:
    """Leaving token_type_ids out is giving zeros; giving ones is not."""
    model = made(BertModel, tiny_config)
    zeros = torch.zeros(2, 9, dtype=torch.long)
    left_out = model(some_ids()).last_hidden_state
    assert torch.equal(left_out, model(some_ids(), token_type_ids=zeros).last_hidden_state)
    assert not torch.allclose(left_out, model(some_ids(), token_type_ids=zeros + 1).last_hidden_state, atol=1e-2)


@pytest.mark.parametrize("configured", [True, False])
def test_is_decoder_overrides_the_configuration(tiny_config: BertConfig, configured: bool) -> None:
    """True hides later positions and False does not, whatever the configuration says; None asks it.

    A mask for each query is taken as it is.
    """
    model = made(BertModel, tiny_config.replace(is_decoder=configured))
    above = torch.ones(9, 9).triu(1).bool()
    for given, causal in ((True, True), (False, False), (None, configured)):
        for mask in (None, torch.ones(2, 9), torch.ones(2, 9, 9)):
            maps = model(some_ids(), is_decoder=given, attention_mask=mask, output_attentions=True).attentions
            hidden = causal and (mask is None or mask.dim() == 2)
            assert all(bool((one[..., above] == 0).all()) == hidden for one in maps)


def test_a_decoder_does_not_see_what_comes_later(tiny_config: BertConfig) -> None:
    """Another last token changes no earlier position of a decoder, and every position of an encoder."""
    model = made(BertModel, tiny_config)
    one, other = some_ids(), some_ids()
    other[:, -1] = 91
    causal = [model(ids, is_decoder=True).last_hidden_state[:, :-1] for ids in (one, other)]
    full = [model(ids).last_hidden_state[:, :-1] for ids in (one, other)]
    assert_near(*causal)
    assert (full[0] - full[1]).abs().amax(-1).min() > 1e-4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "give exactly one of input_ids, inputs_embeds and encoder_embeds"),
        (
            {"input_ids": some_ids(), "inputs_embeds": torch.zeros(2, 9, 32)},
            "give exactly one of input_ids, inputs_embeds and encoder_embeds",
        ),
        (
            {"input_ids": some_ids(length=513)},
            "the sequence has 513 tokens: this model takes at most 512",
        ),
        (
            {"input_ids": some_ids(), "attention_mask": torch.ones(2, 8)},
            "attention_mask has shape (2, 8): for this input it must be (2, 9) or (2, 9, 9)",
        ),
        (
            {"input_ids": some_ids(), "attention_mask": torch.ones(2, 1, 9, 9)},
            "attention_mask has shape (2, 1, 9, 9): for this input it must be (2, 9) or (2, 9, 9)",
        ),
    ],
)
def test_bad_arguments_are_one_clear_sentence(
    tiny_config: BertConfig, arguments: dict[str, Any], sentence: str
) -> None:
    """What was given and what is allowed."""
    with pytest.raises(ValueError) as caught:
        made(BertModel, tiny_config)(**arguments)
    assert str(caught.value) == sentence


# ---------------------------------------------------------------------------- weights


@pytest.mark.parametrize("kind", MODELS)
def test_the_embedding_table_can_be_read_and_replaced(kind: type[Any], tiny_config: BertConfig) -> None:
    """get_input_embeddings gives the table that is used; after set_input_embeddings the model uses the new one."""
    model = made(kind, tiny_config)
    assert model.get_input_embeddings() is model.base_model.embeddings.word_embeddings
    table = nn.Embedding(tiny_config.vocab_size, tiny_config.hidden_size)
    before = model(some_ids())[0]
    model.set_input_embeddings(table)
    assert model.get_input_embeddings() is table
    assert not torch.allclose(model(some_ids())[0], before, atol=1e-3)
    with pytest.raises(ValueError, match="the new embeddings are 31 wide: this model needs 32"):
        model.set_input_embeddings(nn.Embedding(tiny_config.vocab_size, 31))


@pytest.mark.parametrize("kind", [BertForPreTraining, BertForMaskedLM])
def test_replacing_the_table_keeps_the_decoder_tied(kind: type[Any], tiny_config: BertConfig) -> None:
    """A tied decoder follows a new table; one that is not tied stays as it was."""
    table = nn.Embedding(tiny_config.vocab_size, tiny_config.hidden_size)
    tied = made(kind, tiny_config)
    assert tied.cls.predictions.decoder.weight is tied.get_input_embeddings().weight
    tied.set_input_embeddings(table)
    assert tied.cls.predictions.decoder.weight is table.weight
    untied = made(kind, tiny_config.replace(tie_word_embeddings=False))
    own = untied.cls.predictions.decoder.weight
    untied.set_input_embeddings(table)
    assert untied.cls.predictions.decoder.weight is own is not table.weight


def test_narrow_tables_are_brought_to_the_width_of_the_layers(tiny_config: BertConfig) -> None:
    """With an embedding_size the tables and the decoder have it and stay tied; a linear map leads to the layers."""
    model = made(BertForPreTraining, tiny_config.replace(embedding_size=20))
    embeddings, head = model.bert.embeddings, model.cls.predictions
    assert embeddings.embeddings_project is not None and head.decoder.weight is embeddings.word_embeddings.weight
    normed = embeddings.LayerNorm(
        embeddings.word_embeddings(some_ids())
        + embeddings.token_type_embeddings.weight[0]
        + embeddings.position_embeddings.weight[: some_ids().shape[1]]
    )
    assert normed.shape[-1] == 20
    by_hand = normed @ embeddings.embeddings_project.weight.T + embeddings.embeddings_project.bias
    assert torch.allclose(embeddings(some_ids()), by_hand, atol=1e-6)
    assert model.resize_token_embeddings(tiny_config.vocab_size + 3).weight.shape[1] == 20
    assert model(some_ids()).prediction_logits.shape[-1] == tiny_config.vocab_size + 3
    with pytest.raises(ValueError, match="the new embeddings are 32 wide: this model needs 20"):
        model.set_input_embeddings(nn.Embedding(tiny_config.vocab_size, 32))
    assert made(BertForPreTraining, tiny_config.replace(embedding_size=32)).bert.embeddings.embeddings_project is None


def test_weights_start_as_bert_starts_them(tiny_config: BertConfig) -> None:
    """Normal weights of width initializer_range, biases zero, layer norms that do nothing, padding at zero."""
    config = tiny_config.replace(initializer_range=0.05, pad_token_id=3, vocab_size=2000)
    model = made(BertForPreTraining, config)
    for name, parameter in model.named_parameters():
        if "LayerNorm.weight" in name:
            assert (parameter == 1).all()
        elif name.endswith("bias"):
            assert (parameter == 0).all()
        elif parameter.numel() > 1000:
            assert abs(parameter.std().item() / 0.05 - 1) < 0.1, name
            assert abs(parameter.mean().item()) < 0.01, name
    assert (model.get_input_embeddings().weight[3] == 0).all()


def test_a_model_can_be_copied(tiny_config: BertConfig) -> None:
    """A deep copy computes the same, is tied in itself, and shares no parameter with the original."""
    model = made(BertForPreTraining, tiny_config)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(some_ids())[0], model(some_ids())[0])
    assert twin.cls.predictions.decoder.weight is twin.get_input_embeddings().weight
    ours = {id(p) for p in model.parameters()}
    assert ours.isdisjoint(id(p) for p in twin.parameters())


# ---------------------------------------------------------------------------- some positions only


@pytest.mark.parametrize("kind", ["absolute", "relative_key_query", "relative_bias", "disentangled"])
@pytest.mark.parametrize("mask", [None, "padding", "square"])
def test_some_positions_are_those_of_all(tiny_config: BertConfig, kind: str, mask: str | None) -> None:
    """Asked for some positions only, the last layer gives their rows, in their order; maps and gradients stay whole."""
    model = made(BertModel, tiny_config.replace(position_embedding_type=kind))
    wanted = torch.tensor([[0, 7, 3], [0, 1, 1]])
    given: dict[str, Any] = {"head_mask": torch.tensor([[1.0, 0.5, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0]])}
    if mask is not None:
        given["attention_mask"] = torch.ones(2, 9)
        given["attention_mask"][1, 6:] = 0
    if mask == "square":
        given["attention_mask"] = given["attention_mask"][:, None].expand(2, 9, 9).tril() + torch.eye(9)
        given["attention_mask"] = given["attention_mask"].clamp(max=1)
    whole = model(some_ids(), **given)
    rows = whole.last_hidden_state.gather(1, wanted[..., None].expand(-1, -1, 32))
    some = model(some_ids(), positions=wanted, **given)
    assert_near(some.last_hidden_state, rows)
    assert_near(some.pooler_output, whole.pooler_output)
    gradients = []
    for positions in (None, wanted):
        with record() as recording:
            hidden = model(some_ids(), positions=positions, **given).last_hidden_state
        maps = [recording.attention[layer] for layer in (0, 1)]
        assert all(one.shape == (2, 4, 9, 9) for one in maps)
        row = hidden[:, 1] if positions is not None else rows_of(hidden, wanted[:, 1])
        gradients.append(torch.autograd.grad(row.pow(3).sum(), maps))
    for one, other in zip(*gradients, strict=True):
        assert_near(one, other)


def rows_of(hidden: Tensor, positions: Tensor) -> Tensor:
    return hidden[torch.arange(len(hidden)), positions]
