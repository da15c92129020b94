"""The sizes of a BERT, checked once and then frozen."""

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

from bert_core.naming import Family, family_of
from bert_core.positions import POSITION_SCHEMES, PositionScheme
from bert_core.refused import Refused, require_int, require_sequence, short_repr

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh")
POOLER_ACTIVATIONS = ("tanh", "relu", "gelu")
MAX_JSON_BYTES = 32_000_000  # bytes: several times the tokenizer of the largest published vocabulary
MAX_SIZE = 2**31 - 1
MAX_LABELS = 1_000_000
MAX_PRUNED = 2**21  # neurons of the layers that have lost some: twice what the largest published BERT has in all
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """Every size and switch of a BERT; the names are those of published `config.json` files of BERTs.

    The files of other families have other names for some of them, which are turned into these and back (`naming`).
    Keys of a published file that say nothing about the model's shape are kept in `extra`,
    so that a file read and written again has lost nothing.
    Raises Refused when a value, or two values together, describe no possible model.
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
    type_vocab_size: int = 2  # 0: no segment table
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    position_embedding_type: str = "absolute"
    pooler_act: str = "tanh"  # what the first token's state goes through before a classifier
    use_cache: bool = True
    classifier_dropout: float | None = None
    is_decoder: bool = False
    add_cross_attention: bool = False
    encoder_width: int | None = None  # None: as wide as hidden_size
    # Width of the tables, brought to hidden_size by a linear map where it is another. None: as wide as hidden_size.
    # Given, hidden_size need not be a multiple of num_attention_heads.
    embedding_size: int | None = None
    # So many groups of layers in a row, each with the weights of one layer. None: every layer has its own.
    num_hidden_groups: int | None = None
    label_smoothing: float = 0.1  # of the next-token loss
    chunk_size_feed_forward: int = 0  # 0: the whole sequence at once
    tie_word_embeddings: bool = True
    # Layer -> the heads that it has lost, by their first numbers, which the others keep.
    pruned_heads: Mapping[int, Collection[int]] = field(default_factory=dict, hash=False)
    # The same of the neurons of its feed-forward network; [first, last] stands for all of a range, as in files.
    pruned_neurons: Mapping[int, Collection[int | Sequence[int]]] = field(default_factory=dict, hash=False)
    # Layers that pass on what they are given: they keep their numbers, and have no heads and no neurons.
    pruned_layers: Collection[int] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        tables = ("vocab_size", "max_position_embeddings")
        for name in (*tables, "hidden_size", "num_attention_heads", "intermediate_size"):
            self._require_size(name, least=1)
        for name in ("num_hidden_layers", "type_vocab_size", "chunk_size_feed_forward", "pad_token_id"):
            self._require_size(name, least=0)
        for name in ("embedding_size", "encoder_width", "num_hidden_groups"):
            if getattr(self, name) is not None:
                self._require_size(name, least=1)
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
            known = ", ".join(ACTIVATIONS)
            raise Refused(f"hidden_act {short_repr(self.hidden_act)} is unknown: one of {known}, or a callable")
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
        for name, one, of_layer, read in (
            ("pruned_heads", "head", self.num_attention_heads, _one_by_one),
            ("pruned_neurons", "neuron", self.intermediate_size, _of_ranges),
        ):
            object.__setattr__(self, name, MappingProxyType(self._checked_parts(name, one, of_layer, read)))
        if self.layers_per_group > 1 and (self.pruned_heads or self.pruned_neurons):
            raise Refused(
                f"num_hidden_groups is {self.num_hidden_groups}: layers that share their weights have lost no heads or "
                "neurons of their own"
            )
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    def _require_size(self, name: str, least: int) -> None:
        number = require_int(name, getattr(self, name), least)
        if number > MAX_SIZE:
            raise Refused(f"{name} is {short_repr(number)}: it must be at most {MAX_SIZE:,}")
        object.__setattr__(self, name, number)  # of NumPy's numbers an int, which a file can hold

    def __reduce__(self) -> tuple[Any, ...]:
        # The read-only views around mappings can be neither copied nor pickled, and models are both.
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain: dict[str, Any] = {
            name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in values.items()
        }
        return partial(type(self), **plain), ()

    def _checked_layers(self) -> tuple[int, ...]:
        """The pruned layers, rising."""
        given = {
            require_int("one of pruned_layers", one)
            for one in require_sequence("pruned_layers", self.pruned_layers, "layers")
        }
        if given and max(given) >= self.num_hidden_layers:
            raise Refused(
                f"pruned_layers: layer {max(given)} does not exist: this model has layers 0 to "
                f"{self.num_hidden_layers - 1}"
            )
        return tuple(sorted(given))

    def _checked_parts(
        self, name: str, one: str, of_layer: int, read: Callable[[Iterable[Any], int], Iterable[int]]
    ) -> dict[int, tuple[int, ...]]:
        """The heads or neurons that each layer has lost, rising; a file names the layers in words.

        of_layer: how many a layer had. read: what a list in a file stands for.
        """
        given = getattr(self, name)
        layers = len(self.pruned_layers) + (len(given) if isinstance(given, Mapping) else 0)
        if layers * of_layer > MAX_PRUNED:
            raise Refused(f"{name} and pruned_layers are {layers:,} layers of {of_layer:,} {one}s: too many to count")
        try:
            parts = {int(layer): set(read(listed, of_layer)) for layer, listed in given.items()}
        except (TypeError, ValueError, AttributeError) as error:
            raise Refused(
                f"{name} is {short_repr(given)}: it gives some layers a list of {one}s, as in {{'0': [2, 7]}}"
            ) from error
        for layer, numbers in sorted(parts.items()):
            for number in sorted(numbers):
                try:
                    check_part_number(one, layer, number, self.num_hidden_layers, of_layer)
                except Refused as error:
                    raise Refused(f"{name}: {error}") from error
        parts |= {layer: set(range(of_layer)) for layer in self.pruned_layers}
        return {layer: tuple(sorted(numbers)) for layer, numbers in sorted(parts.items()) if numbers}

    def heads_of(self, layer: int) -> tuple[int, ...]:
        """The heads that a layer has, by their first numbers; pruning leaves gaps."""
        return _left(self.num_attention_heads, self.pruned_heads.get(layer, ()))

    def neurons_of(self, layer: int) -> Sequence[int]:
        """The neurons that the feed-forward network of a layer has, by their first numbers."""
        gone = cast("Collection[int]", self.pruned_neurons.get(layer, ()))  # of checked ones: no ranges any more
        return _left(self.intermediate_size, gone) if gone else range(self.intermediate_size)

    @property
    def layers_per_group(self) -> int:
        """How many layers in a row share their weights; 1 where each has its own."""
        return 1 if self.num_hidden_groups is None else max(1, self.num_hidden_layers // self.num_hidden_groups)

    def first_of_group(self, layer: int) -> int:
        """The first of the layers that share their weights with one; that one itself where it shares none."""
        return layer - layer % self.layers_per_group

    @property
    def family(self) -> Family:
        """Whose names its files have: the `model_type` that was read; BERT's where that says nothing."""
        return family_of(self.extra.get("model_type"))

    @property
    def position_scheme(self) -> PositionScheme:
        """What positions add to the embeddings, and distances to the scores of attention."""
        return POSITION_SCHEMES[self.position_embedding_type]

    @property
    def first_position(self) -> int:
        """The row of a file's position table that is the first place of a text; ours begin at most one row before."""
        return self.pad_token_id + 1 if self.family.counts_from_pad else 0

    @property
    def padding_rows(self) -> int:
        """How many rows of the position table stand before that of the first place, for padding tokens: 1 or 0."""
        return 1 if self.family.counts_from_pad else 0

    @property
    def embedding_width(self) -> int:
        """Width of the word, segment and position tables, and of what the word head compares with the words."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def dropout_before_classifier(self) -> float:
        """The share of numbers that is dropped before a classifier; that of the layers where none is given."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @property
    def mlm_act(self) -> str | Callable[[Any], Any]:
        """The activation of the word head."""
        return self.family.mlm_act or self.hidden_act

    @property
    def attention_head_size(self) -> int:
        """Width of one head's query, key and value; with an embedding_size, rounded down."""
        return self.hidden_size // self.num_attention_heads

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes of a classifier, in the order of their numbers.

        Published files give them as `id2label`, or give only `num_labels`; where they give neither, there are two.
        Where id2label numbers the classes otherwise than from zero, it does not say which output each name is of, and
        they have numbers in place of names.
        Raises Refused if id2label names no classes by whole numbers, each once, or there are more than a million.
        """
        names, count = self.extra.get("id2label"), self.extra.get("num_labels")
        if count is not None:
            count = require_int("num_labels", count, 1, MAX_LABELS)
        if names is None:
            return tuple(f"LABEL_{number}" for number in range(2 if count is None else count))
        numbers = {str(number): str(name) for number, name in names.items()} if isinstance(names, Mapping) else {}
        if not numbers or not _in_a_row(numbers):
            raise Refused(f"id2label is {short_repr(names)}: it must name the classes 0, 1, 2, ..., each once")
        if count is not None and count != len(numbers):
            raise Refused(f"num_labels is {count} and id2label names {len(numbers)} classes: they must agree")
        return tuple(numbers.get(str(n), "") if self.has_label_names else f"LABEL_{n}" for n in range(len(numbers)))

    @property
    def has_label_names(self) -> bool:
        """Whether id2label numbers the classes from zero, so that each name belongs to an output."""
        names = self.extra.get("id2label")
        return isinstance(names, Mapping) and {str(n) for n in names} == {str(n) for n in range(len(names))}

    @property
    def activation(self) -> str | None:
        """What sentence-transformers applies to the outputs of a cross-encoder, such as "Sigmoid"; None if unsaid."""
        by_name = self.extra.get("sentence_transformers")
        stated = by_name.get("activation_fn") if isinstance(by_name, Mapping) else None
        stated = stated or self.extra.get("sbert_ce_default_activation_function")
        return stated.rpartition(".")[2] if isinstance(stated, str) else None

    @property
    def architectures(self) -> tuple[str, ...]:
        """The classes that the weights were saved from, as a published file names them, without TF and Flax."""
        names = self.extra.get("architectures")
        names = names if isinstance(names, list | tuple) else []
        return tuple(name.removeprefix("TF").removeprefix("Flax") for name in names if isinstance(name, str))

    @property
    def num_labels(self) -> int:
        """How many outputs a classifier has; one of them is a number, not a class."""
        return len(self.labels)

    @property
    def problem_type(self) -> str | None:
        """What a classifier's outputs are, where the file says so, if only by its architecture: else its labels decide.

        Raises Refused for a kind that is unknown.
        """
        kind: str | None = self.extra.get("problem_type")
        if kind is None and any("multilabel" in name.lower() for name in self.architectures):
            return "multi_label_classification"
        if kind is not None and kind not in PROBLEM_TYPES:
            raise Refused(f"problem_type {short_repr(kind)} is unknown: one of {', '.join(PROBLEM_TYPES)}")
        return kind

    def with_labels(self, labels: Sequence[str]) -> BertConfig:
        """The same configuration for a classifier of these classes, numbered in this order.

        Raises Refused if there are none, or two of one name.
        """
        labels = require_sequence("the classes", labels, "their names")
        if not all(isinstance(label, str) for label in labels):
            raise Refused(f"the classes are {short_repr(labels)}: each must be a text")
        if not labels or len(set(labels)) < len(labels):
            raise Refused(f"the classes are {', '.join(labels) or 'none'}: there must be some, each once")
        of_old = ("num_labels", "problem_type", "sentence_transformers", "sbert_ce_default_activation_function")
        kept = {name: value for name, value in self.extra.items() if name not in of_old}
        id2label = {str(number): label for number, label in enumerate(labels)}
        label2id = {label: number for number, label in enumerate(labels)}
        return self.replace(extra={**kept, "id2label": id2label, "label2id": label2id})

    def replace(self, **changes: Any) -> BertConfig:
        """The same configuration with some fields changed, checked again."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BertConfig:
        """A configuration from the keys of a published `config.json`; other keys go to `extra`."""
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise Refused(f"the configuration is {short_repr(values)}: it must give values by name")
        family = family_of(values.get("model_type"))
        for name, value in family.required_values.items():
            if values.get(name, value) != value:
                raise Refused(f"{name} is {short_repr(values[name])}: only models with {value} are built")
        ours = {own: name for name, own in family.sizes.items()}
        read = {**family.default_sizes, **{ours.get(name, name): value for name, value in values.items()}}
        known = {f.name for f in dataclasses.fields(cls)} - {"extra"}
        # Published files write `null` for "not set"; only fields that may be None keep it.
        optional = {"classifier_dropout", "encoder_width", "embedding_size"}
        named = {k: v for k, v in read.items() if k in known and (v is not None or k in optional)}
        config = cls(**named, extra={k: v for k, v in read.items() if k not in known})
        return config.replace(max_position_embeddings=config.max_position_embeddings - config.first_position)

    def to_dict(self) -> dict[str, Any]:
        """The keys of a `config.json`, those of `extra` included.

        Raises Refused if hidden_act is a callable, which no file can hold.
        """
        if callable(self.hidden_act):
            known = ", ".join(ACTIVATIONS)
            raise Refused(f"hidden_act is a callable, which a file cannot hold: name one of {known}")
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "extra"}
        values["max_position_embeddings"] += self.first_position
        values["pruned_heads"] = {str(layer): list(heads) for layer, heads in self.pruned_heads.items()}
        values["pruned_neurons"] = {
            str(layer): _in_ranges(cast("Collection[int]", neurons)) for layer, neurons in self.pruned_neurons.items()
        }
        values["pruned_layers"] = list(self.pruned_layers)
        family = self.family
        if self.num_hidden_groups is None and "num_hidden_groups" in family.default_sizes:
            values["num_hidden_groups"] = self.num_hidden_layers  # one for each
        unsaid = {name for name, value in family.default_sizes.items() if values[name] == value} - set(family.sizes)
        unsaid |= {"num_hidden_groups"} if values["num_hidden_groups"] is None else set()
        own = {family.sizes.get(name, name): value for name, value in values.items() if name not in unsaid}
        return {**self.extra, **own}

    @classmethod
    def from_json(cls, path: str | Path) -> BertConfig:
        """A configuration from a `config.json` file.

        Raises Refused if the file is not a JSON object or describes no possible model.
        """
        return cls.from_dict(read_json_object(path))

    def to_json(self, path: str | Path) -> None:
        """Write a `config.json` that `from_json` reads back unchanged."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n", encoding="utf-8")


def check_head_number(layer: int, head: int, layers: int, heads: int) -> None:
    """Raise Refused unless a model of these sizes has, or had before pruning, this head; both count from zero."""
    check_part_number("head", layer, head, layers, heads)


def check_head_exists(config: BertConfig, layer: int, head: int) -> None:
    """As `check_head`, and raise Refused for a head that was pruned."""
    check_head_number(layer, head, config.num_hidden_layers, config.num_attention_heads)
    there = config.heads_of(layer)
    if head not in there:
        left = ", ".join(map(str, there)) or "none"
        raise Refused(f"L{layer} H{head} was pruned: this layer still has the heads {left}")


def check_part_number(one: str, layer: int, number: int, layers: int, of_layer: int) -> None:
    """As `check_head`, of a head or neuron, as `one` says, of which each layer has so many."""
    if not 0 <= layer < layers:
        raise Refused(f"layer {layer} does not exist: this model has layers 0 to {layers - 1}")
    if not 0 <= number < of_layer:
        raise Refused(f"{one} {number} does not exist in layer {layer}: this model has {one}s 0 to {of_layer - 1}")


def head_pairs(heads: Iterable[tuple[int, ...]], one: str = "head") -> list[tuple[int, int]]:
    """Heads that were given as pairs of numbers, NumPy's too, as (layer, head). Raises Refused for anything else.

    one: what they are; "neuron" for neurons.
    """
    found = []
    for head in require_sequence(f"{one}s", heads, f"pairs (layer, {one})"):
        pair = require_sequence(f"a {one}", head, f"two numbers, (layer, {one})")
        if len(pair) != 2:
            raise Refused(f"a {one} is {short_repr(head)}: it must be a pair (layer, {one})")
        found.append(
            (require_int(f"the layer of a {one}", pair[0], None), require_int(f"the number of a {one}", pair[1], None))
        )
    return found


def _left(count: int, gone: Collection[int]) -> tuple[int, ...]:
    gone = frozenset(gone)
    return tuple(number for number in range(count) if number not in gone)


def _one_by_one(listed: Iterable[Any], of_layer: int) -> Iterable[int]:
    return map(operator.index, listed)


def _of_ranges(listed: Iterable[Any], of_layer: int) -> Iterable[int]:
    """The numbers that a list of numbers and of ranges [first, last] stands for.

    Raises ValueError or TypeError for anything else, and for ranges of more numbers than a layer has.
    """
    room = of_layer
    for one in listed:
        first, last = one if isinstance(one, Sequence) else (one, one)
        first, last = operator.index(first), operator.index(last)
        room -= last - first
        if first > last or room < 0:
            raise ValueError("a range that ends before it begins, or ranges of too many")
        yield from range(first, last + 1)


def _in_ranges(numbers: Collection[int]) -> list[int | list[int]]:
    """Rising numbers as `_of_ranges` reads them: those that follow each other as [first, last]."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return [first if first == last else [first, last] for first, last in ranges]


def read_json_object(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file; raises Refused if it holds anything else, or is larger than such files are."""
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


def read_text(path: str | Path, largest: int) -> str:
    """The UTF-8 text of a file; raises Refused if it has more bytes than `largest`, or others than of UTF-8."""
    if not isinstance(path, str | os.PathLike) or not os.path.isfile(path):
        raise Refused(f"there is no file {short_repr(path) if not isinstance(path, os.PathLike) else path}")
    check_size(path, largest)
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is no text in UTF-8: {error}") from error


def check_size(path: str | Path, largest: int) -> None:
    """Raise Refused for a file of more bytes than `largest`."""
    size = Path(path).stat().st_size
    if size > largest:
        raise Refused(f"{path} has {size:,} bytes: at most {largest:,} are read")


def _in_a_row(numbers: Collection[str]) -> bool:
    """Whether texts are whole numbers one after the other, in any order and from any of them on."""
    if not all(re.fullmatch(r"0|-?[1-9]\d{0,8}", number) for number in numbers):
        return False
    found = sorted(map(int, numbers))
    return found[-1] - found[0] == len(found) - 1


def _require_probability(name: str, value: object, *, optional: bool) -> None:
    if optional and value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise Refused(f"{name} is {short_repr(value)}: it must be at least 0 and less than 1")


def _require_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise Refused(f"{name} is {short_repr(value)}: it must be true or false")


def _require_positive(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e38:  # float32's end
        raise Refused(f"{name} is {short_repr(value)}: it must be a number greater than 0, and less than 1e38")
