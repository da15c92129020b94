"""The decoder: a causal BERT with a cache, relative positions, and cross-attention to an encoder's states.

transformers is the independent source where it still has the part; relative positions are worked by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers.models.blip.modeling_blip_text import BlipTextLMHeadModel, BlipTextModel

import bert_core
from bert_core import (
    ACT2FN,
    BertConfig,
    BertForPreTraining,
    BertLMHeadModel,
    BertModel,
    BertSelfAttention,
    CheckpointError,
)
from bert_core.naming import to_current_names
from bert_core.recording import record
from tests.near import assert_near

WIDTH = 20  # of the states that are attended to


def decoder_config(**changes: Any) -> BertConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 40, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.3, "is_decoder": True, "add_cross_attention": True, "encoder_width": WIDTH,
        "type_vocab_size": 0,
    }  # fmt: skip
    return BertConfig(**{**sizes, **changes})


def encoder_config(**changes: Any) -> BertConfig:
    return decoder_config(is_decoder=False, add_cross_attention=False, **changes)


def made(kind: type[Any], config: BertConfig, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return kind(config).eval()


def ids_of(length: int, rows: int = 2, seed: int = 1, vocab: int = 61) -> Tensor:
    return torch.randint(1, vocab, (rows, length), generator=torch.Generator().manual_seed(seed))


def states_of(keys: int = 7, rows: int = 2, width: int = WIDTH, seed: int = 2) -> Tensor:
    return torch.randn(rows, keys, width, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", autouse=True)
def no_gradients() -> Iterator[None]:
    """Most tests here only look; those about gradients switch them on."""
    with torch.no_grad():
        yield


# ---------------------------------------------------------------------------- against transformers


def blip_config(config: BertConfig, **changes: Any) -> transformers.BlipTextConfig:
    sizes = {
        "vocab_size": config.vocab_size, "hidden_size": config.hidden_size, "encoder_hidden_size": WIDTH,
        "intermediate_size": config.intermediate_size, "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads, "max_position_embeddings": config.max_position_embeddings,
        "label_smoothing": 0.1, "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2, "hidden_act": "gelu",
    }  # fmt: skip
    return transformers.BlipTextConfig(**{**sizes, **changes}, attn_implementation="eager")


def padded() -> Tensor:
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    return mask


def test_the_text_model_of_blip_is_reproduced() -> None:
    """Hidden states of BLIP's text model, as decoder and as encoder, with padding.

    Its cross-attention drops the encoder's mask on the way, so that one is compared with BERT's decoder below.
    """
    config = decoder_config()
    ours = made(BertModel, config)
    theirs = BlipTextModel(blip_config(config)).eval()
    theirs.load_state_dict(ours.state_dict())
    for is_decoder in (True, False):
        given = {
            "input_ids": ids_of(9), "attention_mask": padded(), "encoder_hidden_states": states_of(),
            "is_decoder": is_decoder,
        }  # fmt: skip
        one, other = ours(**given, output_hidden_states=True), theirs(**given, output_hidden_states=True)
        for mine, reference in zip(one.hidden_states, other.hidden_states, strict=True):
            assert_near(mine[padded().bool()], reference[padded().bool()])
        assert_near(one.pooler_output, other.pooler_output)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_word_loss_of_blip_is_reproduced(reduction: str) -> None:
    """Logits, the smoothed loss in every reduction, and return_logits; weights go over in both directions."""
    config = decoder_config()
    theirs = BlipTextLMHeadModel(blip_config(config)).eval()
    ours = made(BertLMHeadModel, config)
    ours.load_state_dict(theirs.state_dict())
    back = BlipTextLMHeadModel(blip_config(config)).eval()
    back.load_state_dict(ours.state_dict())
    labels = ids_of(9).masked_fill(padded() == 0, -100)
    given = {
        "input_ids": ids_of(9), "attention_mask": padded(), "encoder_hidden_states": states_of(),
        "labels": labels, "reduction": reduction,
    }  # fmt: skip
    mine = ours(**given)
    for reference in (theirs(**given), back(**given)):
        assert_near(mine.logits[padded().bool()], reference.logits[padded().bool()])
        assert mine.loss.shape == reference.loss.shape == ((2,) if reduction == "none" else ())
        assert_near(mine.loss, reference.loss)
    only = {name: value for name, value in given.items() if name not in ("labels", "reduction")}
    assert_near(ours(**only, return_logits=True)[0], theirs(**only, return_logits=True)[0])


def bert_pair(config: BertConfig) -> tuple[Any, Any]:
    """Our decoder and transformers' BERT with a language model head, with the same weights."""
    ours = made(BertLMHeadModel, config)
    sizes = {
        name: value for name, value in config.to_dict().items() if name not in ("encoder_width", "label_smoothing")
    }
    theirs = transformers.BertLMHeadModel(transformers.BertConfig(**sizes, attn_implementation="eager")).eval()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def test_the_decoder_of_transformers_is_reproduced() -> None:
    """Logits and both kinds of maps of its BERT decoder: causal, with padding on both sides of the attention."""
    config = decoder_config(encoder_width=None, type_vocab_size=2)
    ours, theirs = bert_pair(config)
    seen = torch.ones(2, 7, dtype=torch.long)
    seen[0, 5:] = 0
    given = {
        "input_ids": ids_of(9), "attention_mask": padded(), "encoder_hidden_states": states_of(width=32),
        "encoder_attention_mask": seen,
    }  # fmt: skip
    mine, reference = ours(**given, output_attentions=True), theirs(**given, output_attentions=True)
    assert_near(mine.logits[padded().bool()], reference.logits[padded().bool()])
    for name in ("attentions", "cross_attentions"):
        for one, other in zip(getattr(mine, name), getattr(reference, name), strict=True):
            assert_near(one[0], other[0])


def test_the_cache_of_transformers_is_reproduced() -> None:
    """Three tokens, then two, then one: each step's logits are those of its BERT decoder with its own cache."""
    ours, theirs = bert_pair(decoder_config(encoder_width=None, type_vocab_size=2))
    ids, states = ids_of(6), states_of(width=32)
    mine_past = their_past = None
    for start, end in ((0, 3), (3, 5), (5, 6)):
        given = {"input_ids": ids[:, start:end], "encoder_hidden_states": states, "use_cache": True}
        mine = ours(**given, past_key_values=mine_past)
        reference = theirs(**given, past_key_values=their_past)
        mine_past, their_past = mine.past_key_values, reference.past_key_values
        assert_near(mine.logits, reference.logits)


# ---------------------------------------------------------------------------- the cache


@pytest.mark.parametrize(
    "position_embedding_type", ["absolute", "relative_key", "relative_key_query", "relative_bias", "disentangled"]
)
@pytest.mark.parametrize("cut", [1, 4, 8])
def test_a_cache_changes_nothing(position_embedding_type: str, cut: int) -> None:
    """The tokens after a cache get the logits that they get in the whole sequence, padding included."""
    model = made(BertLMHeadModel, decoder_config(position_embedding_type=position_embedding_type))
    ids, mask = ids_of(9), torch.ones(2, 9)
    mask[1, :2] = 0
    context = {"encoder_hidden_states": states_of(), "encoder_attention_mask": torch.ones(2, 7)}
    whole = model(ids, attention_mask=mask, **context)
    first = model(ids[:, :cut], attention_mask=mask[:, :cut], use_cache=True, **context)
    # The second call needs no encoder states: their keys and values are in the cache.
    second = model(ids[:, cut:], attention_mask=mask, past_key_values=first.past_key_values, use_cache=True)
    real = mask[:, cut:].bool()
    assert_near(second.logits[real], whole.logits[:, cut:][real])
    assert [len(layer) for layer in second.past_key_values] == [4, 4]
    assert second.past_key_values[0][0].shape == (2, 4, 9, 8)


def test_reordering_a_cache_takes_its_rows() -> None:
    """Row i of the new cache is row beam_idx[i] of the old, in every layer, for self- and cross-attention."""
    model = made(BertLMHeadModel, decoder_config())
    past = model(ids_of(3), encoder_hidden_states=states_of(), use_cache=True).past_key_values
    turned = model._reorder_cache(past, torch.tensor([1, 1, 0]))
    for old, new in zip(past, turned, strict=True):
        for before, after in zip(old, new, strict=True):
            assert torch.equal(after, torch.stack([before[1], before[1], before[0]]))


def test_the_next_token_needs_only_itself() -> None:
    """With a cache the last token goes in alone, and positions are counted from the first that is no padding."""
    model = made(BertLMHeadModel, decoder_config())
    ids, mask = ids_of(5), torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    inputs = model.prepare_inputs_for_generation(ids, past=(), attention_mask=mask, encoder_hidden_states=states_of())
    assert torch.equal(inputs["input_ids"], ids[:, -1:])
    assert inputs["position_ids"].tolist() == [[4], [2]]
    assert inputs["is_decoder"] is True
    assert torch.equal(inputs["encoder_hidden_states"], states_of())
    assert torch.equal(model.prepare_inputs_for_generation(ids)["attention_mask"], torch.ones_like(ids))


# ---------------------------------------------------------------------------- cross-attention


def test_text_mode_leaves_the_encoder_out() -> None:
    """In mode "text" a decoder with cross-attention computes what the same weights without it compute."""
    model = made(BertModel, decoder_config())
    plain = made(BertModel, decoder_config(add_cross_attention=False))
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if "crossattention" not in k})
    text = model(ids_of(6), encoder_hidden_states=states_of(), mode="text")
    assert torch.equal(text.last_hidden_state, plain(ids_of(6)).last_hidden_state)
    both = model(ids_of(6), encoder_hidden_states=states_of())
    assert not torch.allclose(both.last_hidden_state, text.last_hidden_state, atol=1e-2)


def test_each_layer_takes_its_element_of_a_list() -> None:
    """Layer l reads element l modulo the length: a list of one serves all layers, a list of two in turn."""
    model = made(BertModel, decoder_config(num_hidden_layers=3))
    one, other = states_of(seed=3), states_of(keys=5, seed=4)
    alike = model(ids_of(6), encoder_hidden_states=[one], output_attentions=True)
    assert_near(alike.last_hidden_state, model(ids_of(6), encoder_hidden_states=one).last_hidden_state)
    masks = [torch.ones(2, 7), torch.ones(2, 5)]
    mixed = model(
        ids_of(6), encoder_hidden_states=[one, other], encoder_attention_mask=masks, output_attentions=True
    ).cross_attentions
    assert [layer.shape[-1] for layer in mixed] == [7, 5, 7]
    assert_near(mixed[0], alike.cross_attentions[0])


def test_a_masked_patch_is_as_good_as_none() -> None:
    """Masking the last encoder states gives what leaving them out gives; a mask for each query is possible too."""
    model = made(BertModel, decoder_config())
    mask = torch.ones(2, 7)
    mask[:, 4:] = 0
    shorter = model(ids_of(6), encoder_hidden_states=states_of()[:, :4]).last_hidden_state
    for given in (mask, mask[:, None].expand(2, 6, 7)):
        masked = model(ids_of(6), encoder_hidden_states=states_of(), encoder_attention_mask=given).last_hidden_state
        assert_near(masked, shorter)


@torch.enable_grad()
def test_maps_and_gradients_of_both_attentions_are_kept() -> None:
    """A recording, and a module with save_attention, hold maps (batch, head, query, key) of both, and gradients.

    The sum of map x gradient over queries and keys, of both attentions, is the gradient of the head's gate.
    """
    model = made(BertLMHeadModel, decoder_config())
    gates = torch.ones(2, 4, requires_grad=True)
    with record() as recording:
        outputs = model(ids_of(6), encoder_hidden_states=states_of(), head_mask=gates)
    outputs.logits[0, -1].log_softmax(-1)[5].backward()
    for layer in (0, 1):
        assert recording.attention[layer].shape == (2, 4, 6, 6)
        assert recording.cross_attention[layer].shape == (2, 4, 6, 7)
        product = (recording.attention[layer] * recording.gradients[layer]).sum((0, 2, 3))
        product += (recording.cross_attention[layer] * recording.cross_gradients[layer]).sum((0, 2, 3))
        assert_near(product, gates.grad[layer])
    crossing = model.bert.encoder.layer[1].crossattention.self
    crossing.save_attention = True
    model(ids_of(6), encoder_hidden_states=states_of()).logits[0, -1].log_softmax(-1)[5].backward()
    assert torch.allclose(crossing.get_attention_map(), recording.cross_attention[1])
    assert_near(crossing.get_attn_gradients(), recording.cross_gradients[1])


def test_embeddings_given_as_they_are_enter_the_first_layer() -> None:
    """encoder_embeds skip the tables: the embedding output put back in gives the same hidden states."""
    model = made(BertModel, encoder_config())
    embedded = model.embeddings(ids_of(6))
    given = model(encoder_embeds=embedded, output_hidden_states=True)
    assert torch.equal(given.hidden_states[0], embedded)
    assert torch.equal(given.last_hidden_state, model(ids_of(6)).last_hidden_state)


# ---------------------------------------------------------------------------- relative positions


def by_hand(kind: str) -> BertSelfAttention:
    """One head of width 1: query 2, key and value as the token says, distance d adds a vector of -1, 0 or 3.

    The table has 2 x 3 - 1 rows for distances -2 to 2 (query minus key).
    """
    config = BertConfig(hidden_size=1, num_attention_heads=1, max_position_embeddings=3, position_embedding_type=kind)
    attention = BertSelfAttention(config).eval()
    for parameter in attention.parameters():
        parameter.zero_()
    attention.query.bias.fill_(2.0)
    attention.key.weight.fill_(1.0)
    attention.value.weight.fill_(1.0)
    attention.distance_embedding.weight.copy_(torch.tensor([[0.5], [-1.0], [0.0], [3.0], [1.0]]))
    return attention


# Tokens 1, 0, -1. Scores are query x key + query x table[distance] (+ key x table[distance]), all by hand:
# distance 0 adds 0, one back (query after key) 3, two back 1, one ahead -1, two ahead 0.5; the query is always 2.
RELATIVE_KEY = [
    [2 * 1 + 2 * 0, 2 * 0 + 2 * -1, 2 * -1 + 2 * 0.5],
    [2 * 1 + 2 * 3, 2 * 0 + 2 * 0, 2 * -1 + 2 * -1],
    [2 * 1 + 2 * 1, 2 * 0 + 2 * 3, 2 * -1 + 2 * 0],
]
RELATIVE_KEY_QUERY = [
    [2 + 1 * 0, -2 + 0 * -1, -1 + -1 * 0.5],
    [8 + 1 * 3, 0 + 0 * 0, -4 + -1 * -1],
    [4 + 1 * 1, 6 + 0 * 3, -2 + -1 * 0],
]


@pytest.mark.parametrize(
    ("kind", "scores"), [("relative_key", RELATIVE_KEY), ("relative_key_query", RELATIVE_KEY_QUERY)]
)
def test_relative_positions_worked_by_hand(kind: str, scores: list[list[float]]) -> None:
    """Three tokens, every score worked out: the watched map is their softmax, and both paths give its context."""
    tokens = torch.tensor([[[1.0], [0.0], [-1.0]]])
    expected = torch.tensor([[[math.exp(s) / sum(map(math.exp, row)) for s in row] for row in scores]])
    watched = by_hand(kind)(tokens, output_attentions=True)
    assert_near(watched.attention_probs[0], expected)
    for context in (watched.context, by_hand(kind)(tokens).context):
        assert_near(context, expected @ tokens)


def test_only_distances_count() -> None:
    """With relative positions a text moved to the right by padding keeps its hidden states."""
    model = made(
        BertModel,
        encoder_config(position_embedding_type="relative_key_query"),
    )
    ids, mask = ids_of(5), torch.ones(2, 8)
    moved = F.pad(ids, (3, 0))
    mask[:, :3] = 0
    assert_near(model(moved, attention_mask=mask).last_hidden_state[:, 3:], model(ids).last_hidden_state)


def test_relative_positions_ask_for_no_position_ids() -> None:
    """position_ids would be ignored, so they are refused; and a sequence longer than the table is too."""
    model = made(BertModel, encoder_config(position_embedding_type="relative_key"))
    with pytest.raises(ValueError, match="position_ids were given, but position_embedding_type is 'relative_key'"):
        model(ids_of(5), position_ids=torch.arange(5)[None])
    with pytest.raises(ValueError, match="the sequence has 41 tokens: this model takes at most 40"):
        model(ids_of(41))


# ---------------------------------------------------------------------------- memory


@pytest.mark.parametrize("size", [1, 3, 4, 9, 100])
def test_chunks_of_the_feed_forward_change_nothing(size: int) -> None:
    """Any chunk size gives the hidden states of the whole sequence at once."""
    config = encoder_config()
    whole = made(BertModel, config)(ids_of(9)).last_hidden_state
    chunked = made(BertModel, config.replace(chunk_size_feed_forward=size))(ids_of(9)).last_hidden_state
    assert_near(chunked, whole)


@torch.enable_grad()
def test_checkpointing_gives_the_same_gradients_and_keeps_less() -> None:
    """Checkpointing in training gives every parameter its gradient, while fewer values wait for the way back."""
    gradients, kept = [], []
    for checkpointing in (False, True):
        model = made(BertLMHeadModel, decoder_config(num_hidden_layers=4, use_cache=False)).train()
        model.bert.encoder.gradient_checkpointing = checkpointing
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: (s.append(t.numel()), t)[1], lambda t: t):
            loss = model(ids_of(9), labels=ids_of(9), encoder_hidden_states=states_of()).loss
        kept.append(sum(sizes))
        loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    assert kept[1] < kept[0] / 2
    largest = max(float(one.abs().max()) for one in gradients[0].values() if one is not None)
    for name, one in gradients[0].items():
        if one is None:
            assert gradients[1][name] is None
        else:
            assert_near(gradients[1][name], one, of=largest, what=name)


@torch.enable_grad()
def test_a_watched_layer_is_not_checkpointed() -> None:
    """With checkpointing on, a recording still gets every map once, with its gradient."""
    model = made(BertLMHeadModel, decoder_config(use_cache=False)).train()
    model.bert.encoder.gradient_checkpointing = True
    with record() as recording:
        loss = model(ids_of(6), labels=ids_of(6), encoder_hidden_states=states_of()).loss
    maps = dict(recording.attention)
    loss.backward()
    assert all(recording.attention[layer] is maps[layer] for layer in maps)
    assert set(recording.gradients) == set(recording.cross_gradients) == {0, 1}


# ---------------------------------------------------------------------------- outputs, vocabulary


def test_a_plain_tuple_on_request() -> None:
    """return_dict False gives what is there, in the order of the fields, from encoder, model and decoder."""
    model = made(BertLMHeadModel, decoder_config())
    given = {"encoder_hidden_states": states_of()}
    logits, past = model(ids_of(4), **given, return_dict=False)
    assert logits.shape == (2, 4, 61) and len(past) == 2
    hidden, past = model.bert(ids_of(4), **given, return_dict=False)
    assert hidden.shape == (2, 4, 32)
    embedded = model.bert.embeddings(ids_of(4))
    assert isinstance(model.bert.encoder(embedded, encoder_hidden_states=states_of(), return_dict=False), tuple)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", [BertForPreTraining, BertLMHeadModel])
def test_the_vocabulary_grows_and_shrinks(kind: type[Any], tied: bool) -> None:
    """Kept words keep rows, scores and biases; new words start at bias zero; one bias has two names."""
    config = encoder_config(tie_word_embeddings=tied)
    model = made(kind, config)
    nn.init.normal_(model.cls.predictions.decoder.bias)
    before = model(ids_of(5, vocab=50))
    scores = before.prediction_logits if kind is BertForPreTraining else before.logits
    for size in (70, 50):
        table = model.resize_token_embeddings(size)
        head = model.cls.predictions
        assert model.get_input_embeddings() is table and model.config.vocab_size == size
        assert model.base_model.embeddings.config.vocab_size == size
        assert head.decoder.weight.shape == (size, 32) and head.decoder.bias.shape == (size,)
        assert head.bias is head.decoder.bias and (head.decoder.weight is table.weight) == tied
        after = model(ids_of(5, vocab=50))
        now = after.prediction_logits if kind is BertForPreTraining else after.logits
        assert_near(now[..., :50], scores[..., :50])
        assert (head.bias[61:] == 0).all()


def test_output_embeddings_can_be_replaced() -> None:
    """set_output_embeddings takes weight and bias together, and get_output_embeddings gives them back."""
    model = made(BertLMHeadModel, decoder_config(add_cross_attention=False))
    other = nn.Linear(32, 61)
    model.set_output_embeddings(other)
    assert model.get_output_embeddings() is other
    assert model.cls.predictions.bias is other.bias


def test_an_embedding_size_lifts_the_rule_of_multiples() -> None:
    """With embedding_size, 30 wide and 4 heads are allowed: heads of 7, and a projection from 28 back to 30."""
    model = made(BertModel, decoder_config(hidden_size=30, embedding_size=30, add_cross_attention=False))
    attention = model.encoder.layer[0].attention
    assert attention.self.all_head_size == 28 == attention.output.dense.in_features
    assert model(ids_of(5)).last_hidden_state.shape == (2, 5, 30)


# ---------------------------------------------------------------------------- files


def test_a_decoder_comes_back_from_its_folder(tmp_path: Path) -> None:
    """Saved and loaded again, a decoder gives the same logits; the encoder's loader names the right door."""
    model = made(BertLMHeadModel, decoder_config())
    model.save_pretrained(tmp_path / "decoder")
    loaded = bert_core.load_decoder(str(tmp_path / "decoder"), device="cpu")
    assert loaded.report.missing == loaded.report.unexpected == () and loaded.tokenizer is None
    given = {"input_ids": ids_of(5), "encoder_hidden_states": states_of()}
    assert torch.equal(loaded.model(**given).logits, model(**given).logits)
    with pytest.raises(CheckpointError, match="is a decoder and not an encoder: load it with"):
        bert_core.load(str(tmp_path / "decoder"))
    with pytest.raises(CheckpointError, match="is an encoder and not a decoder: load it with"):
        bert_core.load_decoder("headlight-mini")


def test_a_captioner_of_blips_layout_gives_its_text_decoder(tmp_path: Path) -> None:
    """A tiny random checkpoint written by transformers: its decoder loads, with the parts left over named."""
    config = decoder_config()
    whole = transformers.BlipForConditionalGeneration(
        transformers.BlipConfig(
            text_config=blip_config(config).to_dict(),
            vision_config={
                "hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
                "image_size": 16, "patch_size": 8,
            },
        )
    ).eval()  # fmt: skip
    for parameter in whole.text_decoder.parameters():
        parameter.normal_(std=0.3)
    whole.save_pretrained(tmp_path / "captioner")
    loaded = bert_core.load_decoder(str(tmp_path / "captioner"), device="cpu")
    assert loaded.report.missing == ()
    assert loaded.report.unexpected and all(name.startswith("vision_model.") for name in loaded.report.unexpected)
    given = {"input_ids": ids_of(5), "encoder_hidden_states": states_of()}
    assert_near(loaded.model(**given).logits, whole.text_decoder(**given).logits)


def test_names_of_a_captioner_are_translated() -> None:
    """The decoder's names lose their prefix, other parts keep theirs."""
    names = ["text_decoder.bert.embeddings.LayerNorm.gamma", "text_decoder.cls.predictions.bias", "vision_model.x"]
    assert list(to_current_names({name: torch.zeros(1) for name in names})) == [
        "bert.embeddings.LayerNorm.weight", "cls.predictions.bias", "vision_model.x",
    ]  # fmt: skip


# ---------------------------------------------------------------------------- bad input


def cache_of(length: int = 3, rows: int = 2) -> Any:
    model = made(BertLMHeadModel, decoder_config())
    return model(ids_of(length, rows), encoder_hidden_states=states_of(rows=rows), use_cache=True).past_key_values


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "encoder_hidden_states are missing: this model has cross-attention; mode='text' leaves it out"),
        ({"mode": "image"}, "mode 'image' is unknown: it must be 'multimodal' or 'text'"),
        (
            {"encoder_hidden_states": states_of(width=21)},
            "encoder_hidden_states has shape (2, 7, 21): it must be (batch, key, 20), and the last size is the "
            "encoder_width of this model",
        ),
        (
            {"past_key_values": cache_of, "is_decoder": False},
            "past_key_values were given without is_decoder: only a decoder can continue from a cache",
        ),
        (
            {"past_key_values": cache_of, "attention_mask": torch.ones(2, 4)},
            "attention_mask has shape (2, 4): with 3 tokens in the cache and 4 in the input it must be (2, 7)",
        ),
        (
            {"past_key_values": lambda: cache_of(rows=3)},
            "past_key_values has 2 layers with keys of shape (3, 4, 3, 8): this model and batch need 2 layers with "
            "keys of shape (2, 4, 3, 8)",
        ),
        (
            {"past_key_values": lambda: (cache_of(3)[0], cache_of(4)[1])},
            "past_key_values has 2 layers with keys of shape (2, 4, 3, 8), (2, 4, 4, 8): this model and batch need 2 "
            "layers with keys of shape (2, 4, 3, 8)",
        ),
        (
            {"encoder_hidden_states": states_of(), "encoder_attention_mask": torch.ones(7)},
            "encoder_attention_mask has shape (7,): it must be (batch, key) or (batch, query, key)",
        ),
        (
            {"encoder_hidden_states": states_of(), "use_cache": True, "is_decoder": False},
            "use_cache needs is_decoder: an encoder also attends to later tokens, which a cache lacks",
        ),
        (
            {"encoder_hidden_states": states_of(), "labels": ids_of(4), "reduction": "max"},
            "reduction 'max' is unknown: it must be 'mean', 'sum' or 'none'",
        ),
    ],
)  # fmt: skip
def test_bad_arguments_are_one_clear_sentence(arguments: dict[str, Any], sentence: str) -> None:
    """What was given and what is allowed."""
    made_now = {name: value() if callable(value) else value for name, value in arguments.items()}
    with pytest.raises(ValueError) as caught:
        made(BertLMHeadModel, decoder_config())(ids_of(4), **made_now)
    assert str(caught.value) == sentence


def test_a_layer_by_itself_says_what_is_wrong() -> None:
    """A layer refuses another mode, and to cross-attend without states; in mode "text" it needs none."""
    layer = made(BertModel, decoder_config()).encoder.layer[0]
    hidden_states = states_of(width=32)
    with pytest.raises(ValueError, match="mode 'image' is unknown: it must be 'multimodal' or 'text'"):
        layer(hidden_states, mode="image")
    with pytest.raises(ValueError, match="cross-attention needs encoder_hidden_states"):
        layer(hidden_states)
    assert layer(hidden_states, mode="text").cross_attention_probs is None


def test_states_without_cross_attention_are_refused() -> None:
    """Encoder states that no layer would read are an error, not silence."""
    with pytest.raises(ValueError, match="encoder_hidden_states were given, but this model has add_cross_attention"):
        made(BertModel, decoder_config(add_cross_attention=False))(ids_of(4), encoder_hidden_states=states_of())


# ---------------------------------------------------------------------------- names


def test_an_activation_is_a_name_or_a_callable() -> None:
    """Each name of ACT2FN can be configured, and a callable does the same as its name."""
    for name, function in ACT2FN.items():
        named = made(BertModel, encoder_config(hidden_act=name))
        given = made(BertModel, encoder_config(hidden_act=function))
        assert named.encoder.layer[0].intermediate.intermediate_act_fn is function
        assert torch.equal(named(ids_of(5)).last_hidden_state, given(ids_of(5)).last_hidden_state)
    curious = made(BertModel, encoder_config(hidden_act=torch.sin))
    assert torch.isfinite(curious(ids_of(5)).last_hidden_state).all()


def test_attributes_have_the_published_names() -> None:
    """The parts of a layer are found where the published classes have them."""
    layer = made(BertModel, decoder_config(chunk_size_feed_forward=3)).encoder.layer[1]
    assert (layer.chunk_size_feed_forward, layer.seq_len_dim, layer.layer_num) == (3, 1, 1)
    assert layer.is_decoder and layer.add_cross_attention and layer.attention.pruned_heads == set()
    crossing = layer.crossattention.self
    assert (crossing.num_attention_heads, crossing.attention_head_size, crossing.all_head_size) == (4, 8, 32)
    assert crossing.key.in_features == crossing.value.in_features == WIDTH
    assert crossing.position_embedding_type == "absolute" and crossing.is_decoder and not crossing.save_attention
    pooler = made(BertModel, decoder_config()).pooler
    assert isinstance(pooler.dense, nn.Linear) and isinstance(pooler.activation, nn.Tanh)


def test_the_mask_of_a_decoder_worked_by_hand() -> None:
    """Two new tokens after a cache of one: 0 for what is seen, -10000 for what is later or padding."""
    model = made(BertModel, decoder_config())
    mask = torch.tensor([[1, 1, 1], [0, 1, 1]])
    hidden = -10000.0
    expected = [[[[0, 0, hidden], [0, 0, 0]]], [[[hidden, 0, hidden], [hidden, 0, 0]]]]
    assert model.get_extended_attention_mask(mask, (2, 2)).tolist() == expected
    encoder = model.get_extended_attention_mask(mask, (2, 3), is_decoder=False)
    assert encoder.tolist() == [[[[0, 0, 0]]], [[[hidden, 0, 0]]]]
    each = torch.tensor([[[1, 0], [1, 1]]])
    assert model.get_extended_attention_mask(each, (1, 2)).tolist() == [[[[0, hidden], [0, 0]]]]
    with pytest.raises(
        ValueError, match=r"attention_mask has shape \(2,\): for this input it must be \(1, 2\) or \(1, 2, 2\)"
    ):
        model.get_extended_attention_mask(torch.ones(2), (1, 2))


def test_keys_of_no_concern_are_not_reported(tmp_path: Path) -> None:
    """A decoder filled from an encoder with all heads reports neither pooler nor next-sentence head as left over."""
    whole = made(BertForPreTraining, encoder_config())
    whole.save_pretrained(tmp_path)
    decoder = BertLMHeadModel.from_pretrained(tmp_path)
    assert decoder.load_report.missing == decoder.load_report.unexpected == ()
    given = {"input_ids": ids_of(5), "is_decoder": False}
    assert_near(decoder(**given).logits, whole(ids_of(5)).prediction_logits)

    class Forgiving(BertForPreTraining):
        _keys_to_ignore_on_load_missing = (r"^cls\.seq_relationship\.",)

    decoder.save_pretrained(tmp_path / "decoder")
    assert "cls.seq_relationship.bias" in BertForPreTraining.from_pretrained(tmp_path / "decoder").load_report.missing
    assert not Forgiving.from_pretrained(tmp_path / "decoder").load_report.lacks("cls.seq_relationship.")
