"""The configuration of a BERT, validated on creation and immutable."""

from __future__ import annotations

import dataclasses
import json
import operator
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from bert_core.deprecation import RenamedAttribute
from bert_core.layer_design import LayerDesign
from bert_core.naming import Family, family_of
from bert_core.positions import POSITION_SCHEMES, PositionScheme
from bert_core.refused import Refused, require_int, require_sequence, short_repr

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh")
POOLER_ACTIVATIONS = ("tanh", "relu", "gelu")
MAX_JSON_BYTES = 64_000_000  # almost twice the tokenizer.json of mmBERT, with 256,000 pieces
MAX_SIZE = 2**31 - 1
MAX_LABELS = 1_000_000
MAX_PRUNED = 2**21  # neurons in all layers with pruned neurons: twice the neurons of the largest published BERT
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """Sizes and options of a BERT, with the field names of published `config.json` files.

    Files of other families use other names for some fields. `from_dict` and `to_dict` translate them (`naming`).
    extra: keys of a published file that do not concern the model's shape, so that reading and writing a file loses
        nothing.
    Raises Refused if a value, or a combination of values, describes no possible model.

    >>> import bert_core
    >>> config = bert_core.BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> config.replace(num_hidden_layers=3).num_hidden_layers, config.num_hidden_layers
    (3, 2)
    >>> config.to_dict()["hidden_size"]
    64
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str | Callable[[Any], Any] = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2  # 0: no segment embeddings
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    position_embedding_type: str = "absolute"
    pooler_act: str = "tanh"  # activation of the dense layer between the first token's hidden state and a classifier
    use_cache: bool = True
    classifier_dropout: float | None = None
    is_decoder: bool = False
    add_cross_attention: bool = False
    encoder_width: int | None = None  # None: hidden_size
    # Width of the embedding tables. A linear map projects it to hidden_size if the two differ. None: hidden_size.
    # If it is set, hidden_size need not be a multiple of num_attention_heads.
    embedding_size: int | None = None
    # Number of groups of consecutive layers with shared weights. None: every layer has its own weights.
    num_hidden_groups: int | None = None
    label_smoothing: float = 0.1  # of the next-token loss
    chunk_size_feed_forward: int = 0  # tokens per chunk; 0: the whole sequence at once
    tie_word_embeddings: bool = True
    # Layer -> numbers of its pruned heads. Pruning does not renumber the remaining heads.
    pruned_heads: Mapping[int, Collection[int]] = field(default_factory=dict, hash=False)
    # The same for neurons of the feed-forward network. As in files, [first, last] stands for a whole range.
    pruned_neurons: Mapping[int, Collection[int | Sequence[int]]] = field(default_factory=dict, hash=False)
    # Layers that return their input unchanged. They keep their numbers, and have no heads and no neurons.
    pruned_layers: Collection[int] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        tables = ("vocab_size", "max_position_embeddings")
        for name in (*tables, "hidden_size", "num_attention_heads", "intermediate_size"):
            self._require_size(name, minimum=1)
        for name in ("num_hidden_layers", "type_vocab_size", "chunk_size_feed_forward", "pad_token_id"):
            self._require_size(name, minimum=0)
        for name in ("embedding_size", "encoder_width", "num_hidden_groups"):
            if getattr(self, name) is not None:
                self._require_size(name, minimum=1)
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "label_smoothing"):
            _require_probability(name, getattr(self, name), optional=name == "classifier_dropout")
        for name in ("initializer_range", "layer_norm_eps"):
            _require_positive(name, getattr(self, name))
        for name in ("use_cache", "is_decoder", "add_cross_attention", "tie_word_embeddings"):
            _require_switch(name, getattr(self, name))
        if self.embedding_size is not None:
            if self.hidden_size < self.num_attention_heads:
                raise Refused(f"hidden_size {self.hidden_size} is too small for {self.num_attention_heads} heads")
        elif self.hidden_size % self.num_attention_heads:
            raise Refused(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        if not callable(self.hidden_act) and self.hidden_act not in ACTIVATIONS:
            allowed = ", ".join(ACTIVATIONS)
            raise Refused(f"hidden_act {short_repr(self.hidden_act)} is unknown: one of {allowed}, or a callable")
        if self.pooler_act not in POOLER_ACTIVATIONS:
            raise Refused(
                f"pooler_act {short_repr(self.pooler_act)} is unknown: one of {', '.join(POOLER_ACTIVATIONS)}"
            )
        if self.position_embedding_type not in POSITION_SCHEMES:
            raise Refused(
                f"position_embedding_type {short_repr(self.position_embedding_type)} is unknown: "
                f"one of {', '.join(POSITION_SCHEMES)}"
            )
        if self.pad_token_id >= self.vocab_size:
            raise Refused(f"pad_token_id {self.pad_token_id} is not in a vocabulary of {self.vocab_size} tokens")
        if self.num_hidden_groups is not None and self.num_hidden_layers % self.num_hidden_groups:
            raise Refused(
                f"num_hidden_layers {self.num_hidden_layers} is not a multiple of num_hidden_groups "
                f"{self.num_hidden_groups}"
            )
        object.__setattr__(self, "pruned_layers", self._checked_layers())
        for name, part, parts_per_layer, expand in (
            ("pruned_heads", "head", self.num_attention_heads, _plain_numbers),
            ("pruned_neurons", "neuron", self.intermediate_size, _expand_ranges),
        ):
            pruned = self._checked_parts(name, part, parts_per_layer, expand)
            object.__setattr__(self, name, MappingProxyType(pruned))
        if self.layers_per_group > 1 and (self.pruned_heads or self.pruned_neurons):
            raise Refused(
                f"num_hidden_groups is {self.num_hidden_groups}: single layers that share their weights cannot have "
                "pruned heads or neurons"
            )
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))
        self._check_layers()

    def _check_layers(self) -> None:
        """Raise Refused for settings of positions or of layers that are not supported."""
        scheme, _ = self.position_scheme, self.layer_design
        if self.classifier_pooling not in ("cls", "mean"):
            raise Refused(f"classifier_pooling is {short_repr(self.classifier_pooling)}: it must be 'cls' or 'mean'")
        if scheme.rotation is not None and self.num_hidden_layers:
            scheme.rotation.is_local(self.num_hidden_layers - 1)
            if self.attention_head_size % 2:
                raise Refused(f"the head size is {self.attention_head_size}: rotary positions need an even number")

    def _require_size(self, name: str, minimum: int) -> None:
        """Check an integer field, and convert a NumPy integer to an int, which JSON can represent."""
        number = require_int(name, getattr(self, name), minimum)
        if number > MAX_SIZE:
            raise Refused(f"{name} is {short_repr(number)}: it must be at most {MAX_SIZE:,}")
        object.__setattr__(self, name, number)

    def __reduce__(self) -> tuple[Any, ...]:
        # Models are copied and pickled, and mapping proxies support neither.
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain: dict[str, Any] = {
            name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in values.items()
        }
        return partial(type(self), **plain), ()

    def _checked_layers(self) -> tuple[int, ...]:
        """Return the numbers of the pruned layers in ascending order, or raise Refused."""
        layers = {
            require_int("one of pruned_layers", layer)
            for layer in require_sequence("pruned_layers", self.pruned_layers, "layers")
        }
        if layers and max(layers) >= self.num_hidden_layers:
            raise Refused(
                f"pruned_layers: layer {max(layers)} does not exist: this model has layers 0 to "
                f"{self.num_hidden_layers - 1}"
            )
        return tuple(sorted(layers))

    def _checked_parts(
        self, name: str, part: str, parts_per_layer: int, expand: Callable[[Iterable[Any], int], Iterable[int]]
    ) -> dict[int, tuple[int, ...]]:
        """Return the pruned heads or neurons of each layer in ascending order, or raise Refused.

        name: field with the values; in a file, the layers are strings. part: "head" or "neuron".
        parts_per_layer: number of heads or neurons of a layer before pruning.
        expand: turns the list of a layer into numbers.
        """
        values = getattr(self, name)
        layers = len(self.pruned_layers) + (len(values) if isinstance(values, Mapping) else 0)
        if layers * parts_per_layer > MAX_PRUNED:
            raise Refused(
                f"{name} and pruned_layers are {layers:,} layers of {parts_per_layer:,} {part}s: too many to count"
            )
        try:
            parts = {int(layer): set(expand(entries, parts_per_layer)) for layer, entries in values.items()}
        except (TypeError, ValueError, AttributeError) as error:
            raise Refused(
                f"{name} is {short_repr(values)}: it gives some layers a list of {part}s, as in {{'0': [2, 7]}}"
            ) from error
        for layer, numbers in sorted(parts.items()):
            for number in sorted(numbers):
                try:
                    check_part_number(part, layer, number, self.num_hidden_layers, parts_per_layer)
                except Refused as error:
                    raise Refused(f"{name}: {error}") from error
        parts |= {layer: set(range(parts_per_layer)) for layer in self.pruned_layers}
        return {layer: tuple(sorted(numbers)) for layer, numbers in sorted(parts.items()) if numbers}

    def heads_of(self, layer: int) -> tuple[int, ...]:
        """Return the numbers of the heads of a layer that are not pruned. Pruning does not renumber heads."""
        return _remaining_numbers(self.num_attention_heads, self.pruned_heads.get(layer, ()))

    def neurons_of(self, layer: int) -> Sequence[int]:
        """Return the numbers of the neurons in the feed-forward network of a layer that are not pruned."""
        removed = cast("Collection[int]", self.pruned_neurons.get(layer, ()))  # __post_init__ has expanded the ranges
        return _remaining_numbers(self.intermediate_size, removed) if removed else range(self.intermediate_size)

    @property
    def layers_per_group(self) -> int:
        """Number of consecutive layers that share their weights; 1 if every layer has its own."""
        return 1 if self.num_hidden_groups is None else max(1, self.num_hidden_layers // self.num_hidden_groups)

    def first_of_group(self, layer: int) -> int:
        """Return the first of the layers that share the weights of `layer`, or `layer` itself if it shares none."""
        return layer - layer % self.layers_per_group

    @property
    def family(self) -> Family:
        """Family of encoders whose names the model's files use, by `model_type`; BERT if that is missing or unknown."""
        return family_of(self.extra.get("model_type"))

    @property
    def position_scheme(self) -> PositionScheme:
        """What positions add to the embeddings, and what distances add to the attention scores."""
        return POSITION_SCHEMES[self.position_embedding_type].configured(self.extra)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """For each layer the largest distance between a query and a key; None for any distance (a global layer)."""
        rotation = self.position_scheme.rotation
        return tuple(None if rotation is None else rotation.window(layer) for layer in range(self.num_hidden_layers))

    @property
    def layer_design(self) -> LayerDesign:
        """Where the layer norms of a layer are, what its feed-forward network is, and which parts have biases."""
        return self.family.layer_design.configured(self.extra)

    @property
    def first_position(self) -> int:
        """Row of a file's position table for the first token of a text. Loaded tables start at most one row earlier."""
        return self.pad_token_id + 1 if self.family.counts_from_pad else 0

    @property
    def padding_rows(self) -> int:
        """Number of rows before the first token's row in the loaded position table, for padding tokens: 1 or 0."""
        return 1 if self.family.counts_from_pad else 0

    @property
    def embedding_width(self) -> int:
        """Width of the word, segment and position embeddings, and of the vectors that the MLM head's decoder reads."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def dropout_before_classifier(self) -> float:
        """Dropout probability before a classifier: classifier_dropout, or hidden_dropout_prob if that is None."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @property
    def mlm_act(self) -> str | Callable[[Any], Any]:
        """Activation of the MLM head."""
        return self.pooler_act if self.family.one_head_design else self.family.mlm_act or self.hidden_act

    @property
    def classifier_pooling(self) -> str:
        """Which hidden states a classifier of texts reads: the first token's ("cls"), or the mean of all ("mean")."""
        mode: str = self.extra.get("classifier_pooling", "cls") if self.family.one_head_design else "cls"
        return mode

    @property
    def attention_head_size(self) -> int:
        """Width of the query, key and value of one head; rounded down if hidden_size is not a multiple of the heads."""
        return self.hidden_size // self.num_attention_heads

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of a classifier's classes, in the order of its outputs.

        They come from `id2label`, or are numbered names if a file has only `num_labels`. Without both there are two.
        If the numbers in id2label do not start at zero, it is unclear which output each name belongs to, and the names
        are numbered names too.
        Raises Refused if id2label does not number its classes consecutively, contradicts num_labels, or if there are
        more than a million classes.
        """
        names, count = self.extra.get("id2label"), self.extra.get("num_labels")
        if count is not None:
            count = require_int("num_labels", count, 1, MAX_LABELS)
        if names is None:
            return tuple(f"LABEL_{number}" for number in range(2 if count is None else count))
        numbers = {str(number): str(name) for number, name in names.items()} if isinstance(names, Mapping) else {}
        if not numbers or not _are_consecutive(numbers):
            raise Refused(f"id2label is {short_repr(names)}: it must name the classes 0, 1, 2, ..., each once")
        if count is not None and count != len(numbers):
            raise Refused(f"num_labels is {count} and id2label names {len(numbers)} classes: they must agree")
        return tuple(numbers.get(str(n), "") if self.has_label_names else f"LABEL_{n}" for n in range(len(numbers)))

    @property
    def has_label_names(self) -> bool:
        """Whether id2label numbers the classes from zero, so that each name belongs to one output."""
        names = self.extra.get("id2label")
        return isinstance(names, Mapping) and {str(n) for n in names} == {str(n) for n in range(len(names))}

    @property
    def activation(self) -> str | None:
        """Function for a cross-encoder's outputs in sentence-transformers, such as "Sigmoid"; None if not stated."""
        settings = self.extra.get("sentence_transformers")
        name = settings.get("activation_fn") if isinstance(settings, Mapping) else None
        name = name or self.extra.get("sbert_ce_default_activation_function")
        return name.rpartition(".")[2] if isinstance(name, str) else None

    @property
    def architectures(self) -> tuple[str, ...]:
        """Model classes that the weights were saved from, as a published file names them, without "TF" and "Flax"."""
        names = self.extra.get("architectures")
        names = names if isinstance(names, list | tuple) else []
        return tuple(name.removeprefix("TF").removeprefix("Flax") for name in names if isinstance(name, str))

    @property
    def num_labels(self) -> int:
        """Number of a classifier's outputs; a single output is a number, not a class."""
        return len(self.labels)

    @property
    def problem_type(self) -> str | None:
        """Kind of a classifier's outputs, one of `PROBLEM_TYPES`; None if the number of labels has to decide.

        It comes from the key problem_type or the name of the architecture.
        Raises Refused if problem_type is unknown.
        """
        kind: str | None = self.extra.get("problem_type")
        if kind is None and any("multilabel" in name.lower() for name in self.architectures):
            return "multi_label_classification"
        if kind is not None and kind not in PROBLEM_TYPES:
            raise Refused(f"problem_type {short_repr(kind)} is unknown: one of {', '.join(PROBLEM_TYPES)}")
        return kind

    def with_labels(self, labels: Sequence[str]) -> BertConfig:
        """Return a copy for a classifier with these class names, in the order of its outputs.

        Raises Refused if there are no names, or two are equal.
        """
        labels = require_sequence("the classes", labels, "their names")
        if not all(isinstance(label, str) for label in labels):
            raise Refused(f"the classes are {short_repr(labels)}: each must be a text")
        if not labels or len(set(labels)) < len(labels):
            raise Refused(f"the classes are {', '.join(labels) or 'none'}: there must be at least one, each once")
        replaced_keys = ("num_labels", "problem_type", "sentence_transformers", "sbert_ce_default_activation_function")
        extra = {name: value for name, value in self.extra.items() if name not in replaced_keys}
        id2label = {str(number): label for number, label in enumerate(labels)}
        label2id = {label: number for number, label in enumerate(labels)}
        return self.replace(extra={**extra, "id2label": id2label, "label2id": label2id})

    def replace(self, **changes: Any) -> BertConfig:
        """Return a copy with some fields changed. Raises Refused as the constructor does."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BertConfig:
        """Create a configuration from the keys of a published `config.json`; unknown keys become `extra`.

        Raises Refused if the keys are not strings, or describe no possible model.
        """
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise Refused(f"the configuration is {short_repr(values)}: it must give values by name")
        family = family_of(values.get("model_type"))
        file_values = {**family.default_sizes, **values}
        for name, value in family.required_values.items():
            if file_values.get(name, value) != value:
                raise Refused(f"{name} is {short_repr(file_values[name])}: only models with {value} are supported")
        bert_names = {family_name: name for name, family_name in family.sizes.items()}
        renamed = {**family.default_sizes, **{bert_names.get(name, name): value for name, value in values.items()}}
        # A file that has both names of a field means the family's, and some fields have one value whatever it states.
        renamed |= {name: values[family_name] for name, family_name in family.sizes.items() if family_name in values}
        renamed |= family.fixed_values
        field_names = {f.name for f in dataclasses.fields(cls)} - {"extra"}
        # Published files write `null` for "not set", which is a value only for fields that may be None.
        optional = {"classifier_dropout", "encoder_width", "embedding_size"}
        arguments = {k: v for k, v in renamed.items() if k in field_names and (v is not None or k in optional)}
        config = cls(**arguments, extra={k: v for k, v in renamed.items() if k not in field_names})
        return config.replace(max_position_embeddings=config.max_position_embeddings - config.first_position)

    def to_dict(self) -> dict[str, Any]:
        """Return the keys and values of a `config.json`, including those of `extra`.

        Raises Refused if hidden_act is a callable, which JSON cannot represent.
        """
        if callable(self.hidden_act):
            allowed = ", ".join(ACTIVATIONS)
            raise Refused(f"hidden_act is a callable, which a file cannot hold: name one of {allowed}")
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "extra"}
        values["max_position_embeddings"] += self.first_position
        values["pruned_heads"] = {str(layer): list(heads) for layer, heads in self.pruned_heads.items()}
        values["pruned_neurons"] = {
            str(layer): _compress_ranges(cast("Collection[int]", neurons))
            for layer, neurons in self.pruned_neurons.items()
        }
        values["pruned_layers"] = list(self.pruned_layers)
        family = self.family
        if self.num_hidden_groups is None and "num_hidden_groups" in family.default_sizes:
            values["num_hidden_groups"] = self.num_hidden_layers  # one group per layer
        defaults = {name for name, value in family.default_sizes.items() if values.get(name) == value}
        omitted = defaults - set(family.sizes)
        omitted |= {"num_hidden_groups"} if values["num_hidden_groups"] is None else set()
        renamed = {family.sizes.get(name, name): value for name, value in values.items() if name not in omitted}
        return {**self.extra, **renamed}

    @classmethod
    def from_json(cls, path: str | Path) -> BertConfig:
        """Create a configuration from a `config.json` file.

        Raises Refused if the file does not contain a JSON object, or describes no possible model.
        """
        return cls.from_dict(read_json_object(path))

    def to_json(self, path: str | Path) -> None:
        """Write a `config.json` file that `from_json` reads as an equal configuration."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n", encoding="utf-8")

    layers_together = RenamedAttribute("layers_per_group")
    word_act = RenamedAttribute("mlm_act")
    names_labels = RenamedAttribute("has_label_names")


def check_head_number(layer: int, head: int, layers: int, heads: int) -> None:
    """Raise Refused unless an unpruned model of these sizes has this head.

    layer, head: numbers from zero. layers: number of layers. heads: number of heads in each layer before pruning.
    """
    check_part_number("head", layer, head, layers, heads)


def check_head_exists(config: BertConfig, layer: int, head: int) -> None:
    """Raise Refused unless the model has this head and it is not pruned."""
    check_head_number(layer, head, config.num_hidden_layers, config.num_attention_heads)
    remaining = config.heads_of(layer)
    if head not in remaining:
        listing = ", ".join(map(str, remaining)) or "none"
        raise Refused(f"L{layer} H{head} was pruned: this layer still has the heads {listing}")


def check_part_number(part: str, layer: int, number: int, layers: int, parts_per_layer: int) -> None:
    """Raise Refused unless an unpruned model of these sizes has this head or neuron.

    part: "head" or "neuron". layer, number: numbers from zero. layers: number of layers.
    parts_per_layer: number of heads or neurons in each layer before pruning.
    """
    if not 0 <= layer < layers:
        raise Refused(f"layer {layer} does not exist: this model has layers 0 to {layers - 1}")
    if not 0 <= number < parts_per_layer:
        raise Refused(
            f"{part} {number} does not exist in layer {layer}: this model has {part}s 0 to {parts_per_layer - 1}"
        )


def head_pairs(heads: Iterable[tuple[int, ...]], part: str = "head") -> list[tuple[int, int]]:
    """Return heads as (layer, head) pairs of ints; NumPy integers are accepted.

    part: what the pairs stand for, in messages; "neuron" for neurons.
    Raises Refused if `heads` is not iterable, or an item is not a pair of integers.
    """
    pairs = []
    for head in require_sequence(f"{part}s", heads, f"pairs (layer, {part})"):
        pair = require_sequence(f"a {part}", head, f"two numbers, (layer, {part})")
        if len(pair) != 2:
            raise Refused(f"a {part} is {short_repr(head)}: it must be a pair (layer, {part})")
        layer = require_int(f"the layer of a {part}", pair[0], None)
        pairs.append((layer, require_int(f"the number of a {part}", pair[1], None)))
    return pairs


def _remaining_numbers(count: int, removed: Collection[int]) -> tuple[int, ...]:
    """Return the numbers from 0 to count - 1 that are not removed."""
    removed = frozenset(removed)
    return tuple(number for number in range(count) if number not in removed)


def _plain_numbers(entries: Iterable[Any], parts_per_layer: int) -> Iterable[int]:
    """Return the entries as ints, or raise TypeError. parts_per_layer: not used."""
    return map(operator.index, entries)


def _expand_ranges(entries: Iterable[Any], parts_per_layer: int) -> Iterable[int]:
    """Return the numbers in a list of numbers and of ranges [first, last].

    Raises ValueError or TypeError for other entries, and for ranges of more numbers than a layer has neurons.
    """
    available = parts_per_layer
    for entry in entries:
        first, last = entry if isinstance(entry, Sequence) else (entry, entry)
        first, last = operator.index(first), operator.index(last)
        available -= last - first
        if first > last or available < 0:
            raise ValueError("a range ends before it begins, or the ranges contain too many numbers")
        yield from range(first, last + 1)


def _compress_ranges(numbers: Collection[int]) -> list[int | list[int]]:
    """Return ascending numbers as a list for `_expand_ranges`, with consecutive numbers as [first, last]."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return [first if first == last else [first, last] for first, last in ranges]


def read_json_object(path: str | Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises Refused if the file is missing, does not contain a JSON object, or has more than `MAX_JSON_BYTES` bytes.
    """
    text = read_text(path, MAX_JSON_BYTES)
    if not text.strip():
        raise Refused(f"{path} is empty: it must hold a JSON object")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not a JSON file: {error}") from error
    if not isinstance(values, dict):
        raise Refused(f"{path} holds a {type(values).__name__}: a configuration is a JSON object")
    return values


def read_text(path: str | Path, max_bytes: int) -> str:
    """Return the text of a UTF-8 file.

    Raises Refused if the file is missing, has more than `max_bytes` bytes, or is not valid UTF-8.
    """
    if not isinstance(path, str | os.PathLike) or not os.path.isfile(path):
        raise Refused(f"there is no file {short_repr(path) if not isinstance(path, os.PathLike) else path}")
    check_size(path, max_bytes)
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is no text in UTF-8: {error}") from error


def check_size(path: str | Path, max_bytes: int) -> None:
    """Raise Refused if a file has more than `max_bytes` bytes."""
    size = Path(path).stat().st_size
    if size > max_bytes:
        raise Refused(f"{path} has {size:,} bytes: at most {max_bytes:,} are read")


def _are_consecutive(numbers: Collection[str]) -> bool:
    """Return whether strings are consecutive integers, in any order and with any first number."""
    if not all(re.fullmatch(r"0|-?[1-9]\d{0,8}", number) for number in numbers):
        return False
    ordered = sorted(map(int, numbers))
    return ordered[-1] - ordered[0] == len(ordered) - 1


def _require_probability(name: str, value: object, *, optional: bool) -> None:
    """Raise Refused unless a value is a number from 0 to below 1, or None where that is allowed."""
    if optional and value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise Refused(f"{name} is {short_repr(value)}: it must be at least 0 and less than 1")


def _require_switch(name: str, value: object) -> None:
    """Raise Refused unless a value is a bool."""
    if not isinstance(value, bool):
        raise Refused(f"{name} is {short_repr(value)}: it must be true or false")


def _require_positive(name: str, value: object) -> None:
    """Raise Refused unless a value is a positive number that float32 can represent."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e38:
        raise Refused(f"{name} is {short_repr(value)}: it must be a number greater than 0, and less than 1e38")
