"""bert_core/config.py: the sizes of a BERT, read from and written to published files."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from bert_core import BertConfig

# What the published bert-base-uncased says of itself.
PUBLISHED: dict[str, Any] = {
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 30522,
}
# A value other than the default for every field.
OTHER: dict[str, Any] = {
    "pruned_heads": {0: (5,), 1: tuple(range(6)), 2: (1, 4)},
    "pruned_neurons": {0: (0, 1, 2, 9, 68, 69), 1: tuple(range(70))},
    "pruned_layers": (1,),
    "vocab_size": 99,
    "hidden_size": 36,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 70,
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.25,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 40,
    "type_vocab_size": 0,
    "initializer_range": 0.5,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 7,
    "position_embedding_type": "relative_key",
    "pooler_act": "relu",
    "use_cache": False,
    "classifier_dropout": 0.3,
    "is_decoder": True,
    "embedding_size": 20,
    "num_hidden_groups": 3,
    "label_smoothing": 0.2,
    "add_cross_attention": True,
    "encoder_width": 20,
    "chunk_size_feed_forward": 8,
    "tie_word_embeddings": False,
    "extra": {"model_type": "bert", "id2label": {"0": "no"}},
}

NAN = float("nan")


def test_defaults_are_those_of_bert_base() -> None:
    """A configuration made with no arguments is the published bert-base-uncased, field by field."""
    config = BertConfig()
    named = {field.name for field in dataclasses.fields(BertConfig)}
    assert {name: getattr(config, name) for name in PUBLISHED if name in named} == {
        name: value for name, value in PUBLISHED.items() if name in named
    }
    assert config.attention_head_size == 64


def test_every_field_can_be_set_and_comes_back_from_a_file(tmp_path: Path) -> None:
    """Each field takes another value than its default, and a file written with it reads back equal."""
    assert set(OTHER) == {field.name for field in dataclasses.fields(BertConfig)}
    config = BertConfig(**OTHER)
    for name, value in OTHER.items():
        assert getattr(config, name) == value != getattr(BertConfig(), name)
    config.to_json(tmp_path / "config.json")
    assert BertConfig.from_json(tmp_path / "config.json") == config


def test_a_published_file_loses_nothing(tmp_path: Path) -> None:
    """Every key of a published file, also one that says nothing about the shape, is in the file written from it."""
    (tmp_path / "published.json").write_text(json.dumps(PUBLISHED), encoding="utf-8")
    config = BertConfig.from_json(tmp_path / "published.json")
    assert dict(config.extra) == {
        "architectures": ["BertForMaskedLM"],
        "gradient_checkpointing": False,
        "model_type": "bert",
        "transformers_version": "4.6.0.dev0",
    }
    config.to_json(tmp_path / "written.json")
    written = json.loads((tmp_path / "written.json").read_text(encoding="utf-8"))
    assert {name: written[name] for name in PUBLISHED} == PUBLISHED
    assert BertConfig.from_dict(written) == config


def test_null_means_not_set() -> None:
    """A null in a file leaves the default, and does not come back when the field is set later."""
    config = BertConfig.from_dict({"pad_token_id": None, "classifier_dropout": None, "encoder_width": None})
    assert config == BertConfig()
    assert config.replace(pad_token_id=3).to_dict()["pad_token_id"] == 3


def test_a_field_wins_over_an_extra_key_of_its_name() -> None:
    """A size hidden among the extra keys never replaces the real one in a file."""
    assert BertConfig(extra={"hidden_size": 5}).to_dict()["hidden_size"] == 768


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"hidden_size": 100, "num_attention_heads": 12},
            "hidden_size 100 is not a multiple of num_attention_heads 12",
        ),
        ({"vocab_size": 0}, "vocab_size is 0: it must be a whole number of at least 1"),
        ({"hidden_size": 768.0}, "hidden_size is 768.0: it must be a whole number of at least 1"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1: it must be a whole number of at least 0"),
        ({"num_attention_heads": True}, "num_attention_heads is True: it must be a whole number of at least 1"),
        ({"intermediate_size": "3072"}, "intermediate_size is '3072': it must be a whole number of at least 1"),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0: it must be a whole number of at least 1"),
        ({"type_vocab_size": -2}, "type_vocab_size is -2: it must be a whole number of at least 0"),
        ({"chunk_size_feed_forward": -1}, "chunk_size_feed_forward is -1: it must be a whole number of at least 0"),
        ({"encoder_width": 0}, "encoder_width is 0: it must be a whole number of at least 1"),
        ({"pad_token_id": 30522}, "pad_token_id 30522 is not in a vocabulary of 30522 tokens"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0: it must be at least 0 and less than 1"),
        (
            {"attention_probs_dropout_prob": None},
            "attention_probs_dropout_prob is None: it must be at least 0 and less than 1",
        ),
        ({"classifier_dropout": -0.1}, "classifier_dropout is -0.1: it must be at least 0 and less than 1"),
        ({"initializer_range": 0}, "initializer_range is 0: it must be a number greater than 0, and less than 1e38"),
        ({"layer_norm_eps": NAN}, "layer_norm_eps is nan: it must be a number greater than 0, and less than 1e38"),
        ({"vocab_size": 10**30}, "vocab_size is 1000000000000000000000000000000: it must be at most 2,147,483,647"),
        ({"use_cache": "false"}, "use_cache is 'false': it must be true or false"),
        ({"is_decoder": 1}, "is_decoder is 1: it must be true or false"),
        ({"add_cross_attention": None}, "add_cross_attention is None: it must be true or false"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes': it must be true or false"),
        (
            {"hidden_act": "sine"},
            "hidden_act 'sine' is unknown: one of gelu, gelu_new, gelu_pytorch_tanh, relu, silu, swish, tanh, "
            "or a callable",
        ),
        (
            {"position_embedding_type": "sinusoidal"},
            "position_embedding_type 'sinusoidal' is unknown: one of absolute, relative_key, "
            "relative_key_query, relative_bias, disentangled, rotary",
        ),
    ],
)
def test_an_impossible_size_is_one_clear_sentence(changes: dict[str, Any], sentence: str) -> None:
    """What was given and what is allowed, whether at first or in a later change."""
    with pytest.raises(ValueError) as first:
        BertConfig(**changes)
    with pytest.raises(ValueError) as later:
        BertConfig().replace(**changes)
    assert str(first.value) == str(later.value) == sentence


def test_it_is_frozen() -> None:
    """Neither a field nor an extra key can be changed after the check."""
    config = BertConfig(extra={"model_type": "bert"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.hidden_size = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.extra["model_type"] = "other"  # type: ignore[index]


def test_the_extra_keys_are_a_copy() -> None:
    """Changing the mapping that a configuration was made from does not change the configuration."""
    given = {"model_type": "bert"}
    config = BertConfig(extra=given)
    given["model_type"] = "other"
    assert config.extra["model_type"] == "bert"


def test_it_can_be_copied_pickled_and_used_as_a_key() -> None:
    """Copies and pickles are equal to the original, and hash alike."""
    config = BertConfig(**OTHER)
    for again in (copy.deepcopy(config), pickle.loads(pickle.dumps(config)), dataclasses.replace(config)):
        assert again == config
        assert hash(again) == hash(config)


@pytest.mark.parametrize(
    ("content", "words"), [("{", "is not a JSON file"), ("[1]", "holds a list"), ('"bert"', "holds a str")]
)
def test_a_file_that_is_no_configuration(tmp_path: Path, content: str, words: str) -> None:
    """A broken file, or one holding something else, is a ValueError that names the file."""
    path = tmp_path / "config.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=words) as caught:
        BertConfig.from_json(path)
    assert str(path) in str(caught.value)


def test_a_callable_activation_stays_out_of_files(tmp_path: Path) -> None:
    """A function works as an activation, and writing it is refused before a file is there."""
    config = BertConfig(hidden_act=abs)
    with pytest.raises(ValueError, match="hidden_act is a callable, which a file cannot hold"):
        config.to_json(tmp_path / "config.json")
    assert not (tmp_path / "config.json").exists()
