"""Position schemes: how a model represents the positions of its tokens. The code works for PyTorch and NumPy."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from bert_core.refused import Refused, require_int, short_repr

# A tensor or a NumPy array. This module uses only operations that both libraries have under one name.
Array = Any
Heads = Sequence[int] | Sequence[Sequence[int]]
CONTENT, TO_POSITION, FROM_POSITION = "content-to-content", "content-to-position", "position-to-content"
POSITION = "position"


class Addend(NamedTuple):
    """One of the terms that a scheme adds to the dot products of queries and keys.

    name: its name in records.
    factor: what is multiplied by the vector of the distance, "query" or "key"; None if the table has the term itself,
        a number for each head.
    projection: linear layer of the attention module that maps a row of the table to the vectors of all heads; None if
        all heads use the row itself.
    """

    name: str
    factor: str | None = None
    projection: str | None = None


class DistanceScores(ABC):
    """Terms that depend on the distance between two tokens, added to the scores of self-attention.

    The distance is the position of the query minus the position of the key. A table has the parameters.

    table: name of the table within the attention module of a layer.
    norm: name of the layer norm of the rows of the table, in the same module; None without one. Each layer applies it
        to the rows that it uses, which is a small share of the cost of their projection.
    shared_by_layers: whether all layers share one table and its layer norm.
    scaled: whether the terms are divided by the root by which the dot products are divided.
    root_terms: factor of the head size under that root.
    addends: the terms.
    """

    table: ClassVar[str]
    shared_by_layers: ClassVar[bool] = False
    scaled: ClassVar[bool] = True

    @property
    @abstractmethod
    def addends(self) -> tuple[Addend, ...]:
        """The terms that are added to each dot product."""

    @property
    def norm(self) -> str | None:
        """Name of the layer norm of the table; None without one."""
        return None

    @property
    def root_terms(self) -> int:
        """Factor of the head size under the root."""
        return 1

    @property
    def own_projections(self) -> tuple[str, ...]:
        """Linear layers that map rows of the table, apart from those of queries and keys."""
        projections = [addend.projection for addend in self.addends if addend.projection not in (None, "query", "key")]
        return tuple(name for name in projections if name is not None)

    @property
    def shared_modules(self) -> tuple[str, ...]:
        """Names of the modules that all layers share if `shared_by_layers` is set: the table and its layer norm."""
        return (self.table,) if self.norm is None else (self.table, self.norm)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings that change the terms, as values that JSON can hold."""
        return {}

    def configured(self, settings: Mapping[str, Any]) -> DistanceScores:
        """Return the scheme with the settings of a configuration file. Raises Refused for one that is not supported."""
        return self

    @abstractmethod
    def table_shape(self, max_length: int, heads: int, head_size: int) -> tuple[int, int]:
        """Return the shape of the table, (row, width).

        max_length: maximum number of tokens. heads: number of heads in a layer before pruning.
        """

    @abstractmethod
    def rows(self, distances: np.ndarray, max_length: int) -> np.ndarray:
        """Return the row of the table for each distance, in the shape of `distances`."""

    def terms(
        self, query: Array, key: Array, vectors: Sequence[Array], index: Array, take_along: Callable[..., Array]
    ) -> dict[str, Array]:
        """Return each term by name, (batch, head, query, key).

        Vectors are multiplied once for each used row of the table, and the products then taken by distance, so that no
        array has the axes query, key and head size.
        query, key: (batch, head, seq, head size).
        vectors: for each addend (batch or 1, head or 1, used row, head size), or (batch or 1, head, 1, used row)
            without a factor.
        index: (batch or 1, 1, query, key), which of the used rows each pair of tokens has.
        take_along: `take_along_axis` of NumPy, or a function that does the same with tensors.
        """
        terms = {}
        for addend, table in zip(self.addends, vectors, strict=True):
            if addend.factor == "query":
                terms[addend.name] = take_along(query @ table.swapaxes(-1, -2), index, -1)
            elif addend.factor == "key":
                terms[addend.name] = take_along(table @ key.swapaxes(-1, -2), index, -2)
            else:
                terms[addend.name] = take_along(table, index, -1)
        return terms


@lru_cache(maxsize=64)
def used_rows(scheme: DistanceScores, length: int, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a table that a sequence of `length` tokens uses, and the index of each distance among them.

    The distances are those from -(length - 1) to length - 1. The arrays are shared: they must not be modified.
    """
    rows, index = np.unique(scheme.rows(np.arange(1 - length, length), max_length), return_inverse=True)
    return rows, index


def select_heads(vectors: Array, available: Sequence[int], heads: Heads) -> Array:
    """Return the vectors (batch or 1, head, ...) of some heads from those of all available ones (head, ...).

    heads: number before pruning of each head, as one list for the batch or one for each of its rows.
    """
    if tuple(heads) == tuple(available):
        return vectors[None]
    places = np.array([available.index(head) for head in np.ravel(heads)], np.int64).reshape(np.shape(heads))
    return vectors[places] if places.ndim == 2 else vectors[places][None]


class RelativeKey(DistanceScores):
    """Dot product of the query with a vector for the distance (Shaw 2018, arXiv:1803.02155, equation 5)."""

    table = "distance_embedding"

    @property
    def addends(self) -> tuple[Addend, ...]:
        """One dot product; all heads use the same vectors."""
        return (Addend(TO_POSITION, "query"),)

    def table_shape(self, max_length: int, heads: int, head_size: int) -> tuple[int, int]:
        """Return (row, head size), with one row for each distance from -(max_length - 1) to max_length - 1."""
        return 2 * max_length - 1, head_size

    def rows(self, distances: np.ndarray, max_length: int) -> np.ndarray:
        """Return the row of each distance; distance 0 has the middle row."""
        return distances + max_length - 1


class RelativeKeyQuery(RelativeKey):
    """Dot products of the query and of the key with the vector (Huang 2020, arXiv:2009.13658, method 4)."""

    @property
    def addends(self) -> tuple[Addend, ...]:
        """Both dot products; all heads use the same vectors."""
        return (*super().addends, Addend(FROM_POSITION, "key"))


class RelativeBias(DistanceScores):
    """A bias for each head and each bucket of distances (Raffel 2020, arXiv:1910.10683, section 2.1).

    There are 16 buckets for keys before the query and 16 for keys after it. Each distance below 8 has its own bucket.
    From 8 on, a bucket starts at each 8 * 2**(n / 2), rounded up, and the last bucket is unbounded.
    MPNet has one table for all layers (Song 2020, arXiv:2004.09297).
    """

    table = "relative_attention_bias"
    shared_by_layers = True
    scaled = False
    BUCKET_STARTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)  # absolute distances; the first bucket is 0

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The bias, which does not depend on the text."""
        return (Addend(POSITION),)

    def table_shape(self, max_length: int, heads: int, head_size: int) -> tuple[int, int]:
        """Return (bucket, head); the buckets of keys after the query come last."""
        return 2 * (len(self.BUCKET_STARTS) + 1), heads

    def rows(self, distances: np.ndarray, max_length: int) -> np.ndarray:
        """Return the bucket of each distance."""
        magnitudes = abs(distances)
        buckets: np.ndarray = np.searchsorted(self.BUCKET_STARTS, magnitudes, side="right")
        rows: np.ndarray = buckets + (len(self.BUCKET_STARTS) + 1) * (distances < 0)
        return rows


@dataclass(frozen=True)
class Disentangled(DistanceScores):
    """Dot products of contents with projected vectors of buckets of distances (He 2021, arXiv:2006.03654, section 3.1).

    The query is multiplied by the key vector of the distance ("c2p"), and the key by the query vector of the distance
    ("p2c"). All layers share one table. Each projects it by its own query and key layers, or by layers for this alone.
    Both terms use the row of the query's position minus the key's, as in the published code. The scores are divided by
    the root of the head size times the number of all terms.
    The default settings are those of DeBERTa-v3 (He 2021, arXiv:2111.09543). Its published code also sets the
    embeddings of padding to 0 and masks the queries of padding. Here it does neither: the states of padding differ, and
    nothing of it reaches a token, because no token attends to padding.

    position_buckets: number of rows for distances in one direction: distances up to half of it have their own rows, and
        larger ones logarithmic buckets up to the maximum distance. 0: a row for each distance.
    max_relative_positions: maximum distance plus 1; 0 for the maximum number of tokens.
    pos_att_type: the terms, of "c2p" and "p2c". share_att_key: whether the layers for queries and keys project the
        table. layer_norm: whether the rows are normalised.
    """

    table: ClassVar[str] = "rel_embeddings"
    shared_by_layers: ClassVar[bool] = True
    TERMS: ClassVar[tuple[str, ...]] = ("c2p", "p2c")

    position_buckets: int = 256
    max_relative_positions: int = 0
    pos_att_type: tuple[str, ...] = TERMS
    share_att_key: bool = True
    layer_norm: bool = True

    @property
    def settings(self) -> Mapping[str, Any]:
        """The fields by name."""
        return dataclasses.asdict(self)

    def configured(self, settings: Mapping[str, Any]) -> Self:
        """Return the scheme with the settings of a configuration file, which names the terms as "p2c|c2p" or a list.

        Numbers below 1 mean that a setting is not used. Raises Refused for a value that is not supported.
        """
        names = ("position_buckets", "max_relative_positions", "pos_att_type", "share_att_key")
        changes = {name: settings[name] for name in names if name in settings}
        for name in ("position_buckets", "max_relative_positions"):
            if name in changes:
                changes[name] = max(0, require_int(name, changes[name], None, 2**20))
        if changes.get("position_buckets") in (1, 2, 3) or changes.get("position_buckets", 0) % 2:
            raise Refused(f"position_buckets is {changes['position_buckets']}: it must be an even number from 4, or -1")
        if "share_att_key" in changes and not isinstance(changes["share_att_key"], bool):
            raise Refused(f"share_att_key is {short_repr(changes['share_att_key'])}: it must be true or false")
        if "pos_att_type" in changes:
            terms = changes["pos_att_type"]
            terms = terms.lower().split("|") if isinstance(terms, str) else terms
            terms = [str(term).strip() for term in terms] if isinstance(terms, list | tuple) else []
            if not terms or not set(terms) <= set(self.TERMS):
                raise Refused(
                    f"pos_att_type is {short_repr(changes['pos_att_type'])}: only models with c2p, p2c or both are "
                    "supported"
                )
            changes["pos_att_type"] = tuple(term for term in self.TERMS if term in terms)
        if "norm_rel_ebd" in settings:
            norm = settings["norm_rel_ebd"]
            if norm not in ("none", "layer_norm"):
                raise Refused(
                    f"norm_rel_ebd is {short_repr(norm)}: only models with 'none' or 'layer_norm' are supported"
                )
            changes["layer_norm"] = norm == "layer_norm"
        return dataclasses.replace(self, **changes)

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The terms of the setting `pos_att_type`."""
        to_position = Addend(TO_POSITION, "query", "key" if self.share_att_key else "pos_key_proj")
        from_position = Addend(FROM_POSITION, "key", "query" if self.share_att_key else "pos_query_proj")
        by_name = {"c2p": to_position, "p2c": from_position}
        return tuple(by_name[term] for term in self.pos_att_type)

    @property
    def norm(self) -> str | None:
        """Name of the layer norm of the table, if the setting has one."""
        return "rel_LayerNorm" if self.layer_norm else None

    @property
    def root_terms(self) -> int:
        """Number of all terms, that of the contents included."""
        return 1 + len(self.pos_att_type)

    def table_shape(self, max_length: int, heads: int, head_size: int) -> tuple[int, int]:
        """Return (row, hidden), with the same number of rows for negative distances and for the others."""
        return 2 * self._span(max_length), heads * head_size

    def rows(self, distances: np.ndarray, max_length: int) -> np.ndarray:
        """Return the row of each distance. Distance 0 has the first row of the second half."""
        span, buckets = self._span(max_length), self._buckets(max_length)
        signs, magnitudes = (distances > 0) * 1 - (distances < 0) * 1, abs(distances)
        if buckets is not None:
            magnitudes = buckets[magnitudes]
        rows: np.ndarray = (signs * magnitudes + span).clip(0, 2 * span - 1)
        return rows

    def _span(self, max_length: int) -> int:
        """Return the number of rows for distances in one direction."""
        return self.position_buckets or self.max_relative_positions or max_length

    def _buckets(self, max_length: int) -> np.ndarray | None:
        """Return the bucket of each distance from 0 to max_length, which is the distance itself up to the middle."""
        if not self.position_buckets:
            return None
        middle, furthest = self.position_buckets // 2, (self.max_relative_positions or max_length) - 1
        distances = np.arange(max(max_length, 1))
        if furthest <= middle:  # no distance is so large that it has a logarithmic bucket
            return distances
        # In single precision as in transformers, since the limits of a bucket are those of rounding.
        share = np.log(np.maximum(distances, middle).astype(np.float32) / np.float32(middle))
        share = share / np.log(np.float32(furthest / middle))
        return np.where(distances <= middle, distances, np.ceil(share * np.float32(middle - 1)) + middle).astype(int)


@dataclass(frozen=True)
class Rotary:
    """Rotation of queries and keys by their positions (Su 2021, arXiv:2104.09864), with global and local layers.

    Dimensions i and i + head size / 2 of a vector are a pair. At position p, the pair is rotated by the angle
    p / base**(2 i / head size), so that the product of a query and a key depends on their distance.
    A query of a local layer has only the keys up to half of `local_attention` away (Warner 2024, arXiv:2412.13663).

    local_attention: size of the window of a local layer, to both sides together.
    global_attn_every_n_layers: number of layers from one global layer to the next; the first layer is global.
    local_layers: for each layer whether it is local; None for the layers given by `global_attn_every_n_layers`.
    global_rope_theta, local_rope_theta: bases of the angles.
    """

    TYPES: ClassVar[Mapping[str, bool]] = MappingProxyType({"full_attention": False, "sliding_attention": True})

    local_attention: int = 128
    global_attn_every_n_layers: int = 3
    local_layers: tuple[bool, ...] | None = None
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0

    def configured(self, settings: Mapping[str, Any]) -> Rotary:
        """Return the scheme with the settings of a configuration file. Raises Refused for one that is not supported."""
        changes: dict[str, Any] = {}
        for name in ("local_attention", "global_attn_every_n_layers"):
            if settings.get(name) is not None:
                changes[name] = require_int(name, settings[name], 1, 2**20)
        if (types := settings.get("layer_types")) is not None:
            if not isinstance(types, list | tuple) or not all(isinstance(t, str) and t in self.TYPES for t in types):
                raise Refused(
                    f"layer_types is {short_repr(types)}: only layers of the types {' and '.join(self.TYPES)} are "
                    "supported"
                )
            changes["local_layers"] = tuple(self.TYPES[t] for t in types)
        if settings.get("rope_scaling") is not None:
            raise Refused(
                f"rope_scaling is {short_repr(settings['rope_scaling'])}: only models without it are supported"
            )
        by_type = settings.get("rope_parameters")
        if by_type is not None and not isinstance(by_type, Mapping):
            raise Refused(f"rope_parameters is {short_repr(by_type)}: it must be an object")
        if unknown := [name for name in by_type or () if name not in self.TYPES]:
            raise Refused(
                f"rope_parameters has the key {short_repr(unknown[0])}: it must have one object for each of "
                f"{' and '.join(self.TYPES)}"
            )
        for layer_type, name in (("full_attention", "global_rope_theta"), ("sliding_attention", "local_rope_theta")):
            parameters = (by_type or {}).get(layer_type) or {}
            if not isinstance(parameters, Mapping) or parameters.get("rope_type", "default") != "default":
                raise Refused(
                    f"rope_parameters of {layer_type} is {short_repr(parameters)}: only the rope_type 'default' is "
                    "supported"
                )
            base = parameters.get("rope_theta", settings.get(name))
            if base is not None:
                if not isinstance(base, int | float) or isinstance(base, bool) or not 0 < base < 1e38:
                    raise Refused(f"the rope_theta of {layer_type} is {short_repr(base)}: it must be a positive number")
                changes[name] = float(base)
        return dataclasses.replace(self, **changes)

    def is_local(self, layer: int) -> bool:
        """Return whether a layer is local. Raises Refused if `layer_types` has no such layer."""
        if self.local_layers is None:
            return layer % self.global_attn_every_n_layers > 0
        if layer >= len(self.local_layers):
            raise Refused(f"layer_types has {len(self.local_layers)} layers: layer {layer} is missing")
        return self.local_layers[layer]

    def base(self, layer: int) -> float:
        """Return the base of the angles of a layer."""
        return self.local_rope_theta if self.is_local(layer) else self.global_rope_theta

    def window(self, layer: int) -> int | None:
        """Return the largest distance between a query and a key of a layer; None for a global layer."""
        return self.local_attention // 2 if self.is_local(layer) else None


@dataclass(frozen=True)
class PositionScheme:
    """How a model represents the positions of its tokens.

    adds_vectors: whether the embeddings include a vector for each position.
    distances: terms that self-attention adds to its scores for distances; None for none.
    has_table: whether checkpoints contain a table of position vectors, even if the embeddings do not include them.
    rotation: how self-attention rotates its queries and keys; None if it does not.
    """

    adds_vectors: bool
    distances: DistanceScores | None = None
    has_table: bool = True
    rotation: Rotary | None = None

    def configured(self, settings: Mapping[str, Any]) -> PositionScheme:
        """Return the scheme with the settings of a configuration file. Raises Refused for one that is not supported."""
        return dataclasses.replace(
            self,
            distances=None if self.distances is None else self.distances.configured(settings),
            rotation=None if self.rotation is None else self.rotation.configured(settings),
        )


# The keys are the values of `position_embedding_type` in a configuration.
POSITION_SCHEMES = MappingProxyType(
    {
        "absolute": PositionScheme(adds_vectors=True),
        "relative_key": PositionScheme(adds_vectors=False, distances=RelativeKey()),
        "relative_key_query": PositionScheme(adds_vectors=False, distances=RelativeKeyQuery()),
        "relative_bias": PositionScheme(adds_vectors=True, distances=RelativeBias()),
        "disentangled": PositionScheme(adds_vectors=False, distances=Disentangled(), has_table=False),
        "rotary": PositionScheme(adds_vectors=False, has_table=False, rotation=Rotary()),
    }
)
