"""An index read again: its shards, memory-mapped, each part looked at only when it is what was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from bert_core.config import check_part_number
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.studies.index import (
    SHARD_FILE,
    TREE_COLUMNS,
    IndexSettings,
    digest,
    read_contents,
    shard_folders,
)
from bert_core.studies.runner import read_json

TOKEN_COLUMNS = ("document", "line", "sentence", "position", "piece", "word", "start", "end", *TREE_COLUMNS)


class BrokenShard(Refused):
    """A shard whose files are not what was written."""


@dataclass(frozen=True)
class IndexedShard:
    """One shard of an index. What is read of it is kept; arrays stay on disk, and are mapped into memory.

    Whatever reads it raises BrokenShard, naming it, for a file that is missing, or has another size or digest.
    """

    folder: Path
    document: str
    _read: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tokens(self) -> int:
        """How many it has."""
        return int(self._contents["tokens"])

    def part(self, name: str, number: int) -> np.ndarray:
        """One depth, or layer, of an array, by its place among those that are kept; as `index.Packed` has it."""
        if (name, number) not in self._read:
            if name not in self._read:
                self._read[name] = self._mapped(name)
            part = self._read[name][number]
            if digest(part) != self._contents["digests"][name][number]:
                raise self._broken(f"{name}.npy", "is not what was written")
            self._read[name, number] = part
        found: np.ndarray = self._read[name, number]
        return found

    def column(self, name: str) -> Any:
        """A column of the tokens, as pyarrow has it; None where this shard has none of that name."""
        return self._column("tokens", name)

    def integer_column(self, name: str, *, table: str = "tokens") -> np.ndarray:
        """A column without gaps, of the tokens, or of the "texts"."""
        found: np.ndarray = self._column(table, name).to_numpy(zero_copy_only=False)
        return found

    @property
    def special(self) -> np.ndarray:
        """Whether each token was added and not typed, as [CLS] and [SEP]."""
        if "added" not in self._read:
            self._read["added"] = self.column("word").is_null().to_numpy(zero_copy_only=False)
        found: np.ndarray = self._read["added"]
        return found

    @property
    def texts(self) -> list[str]:
        """Its sentences."""
        found: list[str] = self._column("texts", "text").to_pylist()
        return found

    def row(self, number: int) -> dict[str, Any]:
        """All that is written of a token, and its sentence as "sentence_text"."""
        found = {}
        for name in TOKEN_COLUMNS:
            column = self.column(name)
            if column is not None:
                found[name] = column[number].as_py()
        found["sentence_text"] = self._column("texts", "text")[self.column("text")[number].as_py()].as_py()
        return found

    @property
    def _contents(self) -> dict[str, Any]:
        if "contents" not in self._read:
            contents = read_json(self.folder / SHARD_FILE) if (self.folder / SHARD_FILE).is_file() else {}
            if not isinstance(contents.get("sizes"), dict) or not isinstance(contents.get("digests"), dict):
                raise self._broken(SHARD_FILE, "is missing, or cannot be read")
            for name, size in contents["sizes"].items():
                path = self.folder / name
                if not path.is_file() or path.stat().st_size != size:
                    there = f"{path.stat().st_size:,} bytes" if path.is_file() else "nothing"
                    raise self._broken(name, f"has {there} and not {size:,} bytes")
            self._read["contents"] = contents
        found: dict[str, Any] = self._read["contents"]
        return found

    def _mapped(self, name: str) -> np.ndarray:
        _ = self._contents  # the sizes
        try:
            mapped: np.ndarray = np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise self._broken(f"{name}.npy", "cannot be read") from error
        return mapped

    def _column(self, of: str, name: str) -> Any:
        import pyarrow
        from pyarrow import parquet

        if (of, name) in self._read:
            return self._read[of, name]
        path = self.folder / f"{of}.parquet"
        if of not in self._read:
            if digest(path.read_bytes() if of in self._contents["digests"] else b"") != self._contents["digests"][of]:
                raise self._broken(path.name, "is not what was written")
            self._read[of] = parquet.read_schema(path).names
        column = None
        if name in self._read[of]:
            try:
                column = parquet.read_table(path, columns=[name]).column(0).combine_chunks()
            except (pyarrow.ArrowException, OSError) as error:
                raise self._broken(path.name, "cannot be read") from error
            if isinstance(column, pyarrow.ChunkedArray):
                column = column.chunk(0)
            if pyarrow.types.is_string(column.type) and of == "tokens":
                column = column.dictionary_encode()
        self._read[of, name] = column
        return column

    def _broken(self, name: str, what: str) -> BrokenShard:
        return BrokenShard(
            f"the shard {self.folder.name} of {self.folder.parent} is broken, its {name} {what}: "
            f"take {self.document} out and add it again"
        )


@dataclass(frozen=True)
class Index:
    """An index that is there to be searched.

    model, weights: the model's name, and its fingerprint. layers: whose heads are kept.
    heads: of a layer. documents: name -> tokens.
    """

    folder: Path
    model: str
    weights: str
    settings: IndexSettings
    layers: tuple[int, ...]
    heads: int
    documents: dict[str, int]
    shards: tuple[IndexedShard, ...]
    _fitting: WeakSet[LoadedModel] = field(default_factory=WeakSet, repr=False, compare=False)

    @property
    def depths(self) -> tuple[int, ...]:
        """At which states are kept: 0 for the embeddings, n + 1 for what leaves layer n."""
        return (0, *(layer + 1 for layer in self.layers))

    @property
    def all_heads(self) -> list[tuple[int, int]]:
        """All heads that are kept, as (layer, head)."""
        return [(layer, head) for layer in self.layers for head in range(self.heads)]

    @property
    def tokens(self) -> int:
        """How many it has, of all documents."""
        return sum(self.documents.values())

    def validate_heads(self, heads: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Pairs (layer, head) as they were given. Raises Refused for what is no pair, or a head that is not kept."""
        found = []
        for one in require_sequence("heads", heads, "pairs (layer, head)"):
            pair = require_sequence("a head", one, "two numbers, (layer, head)")
            if len(pair) != 2:
                raise Refused(f"a head is {short_repr(pair)}: two numbers, (layer, head)")
            layer, head = (require_int("a head", part, 0) for part in pair)
            if layer not in self.layers:
                kept = ", ".join(map(str, self.layers))
                raise Refused(f"{self.folder} has no heads of layer {layer}: it has those of {kept}")
            check_part_number("head", layer, head, max(self.layers) + 1, self.heads)
            found.append((layer, head))
        return found

    def check_model(self, loaded: LoadedModel) -> None:
        """Raise Refused for a model of other weights."""
        if loaded in self._fitting:
            return
        if fingerprint(loaded) != self.weights:
            raise Refused(
                f"{self.folder} is an index of {self.model}, and {loaded.name} has other weights: search it with the "
                "model that it was made with, or make it again with `headlight index` where an earlier version of "
                "Headlight made it"
            )
        self._fitting.add(loaded)


@validate_arguments
def open_index(folder: Path) -> Index:
    """An index that `index_file` made, or of what it has made so far. Raises Refused for a folder that is none."""
    contents = read_contents(folder)
    try:
        layers = None if contents["layers"] is None else tuple(contents["layers"])
        return Index(
            folder,
            str(contents["model"]),
            str(contents["weights"]),
            IndexSettings(layers, contents["max_length"]),
            tuple(contents["kept_layers"]),
            int(contents["heads"]),
            {one["name"]: int(one["counts"].get("tokens", 0)) for one in contents["documents"]},
            tuple(IndexedShard(folder / name, document) for name, document in shard_folders(contents)),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Refused(f"{folder} is no whole index: make it again") from error
