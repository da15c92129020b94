"""Reading of a corpus index: its shards are memory-mapped, and each part is verified before its first use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from bert_core.config import check_part_number
from bert_core.deprecation import RenamedAttribute
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.studies.index import (
    SHARD_FILE,
    TREE_COLUMNS,
    digest,
    read_contents,
    shard_folders,
)
from bert_core.studies.runner import read_json
from bert_core.studies.settings import IndexSettings

TOKEN_COLUMNS = ("document", "line", "sentence", "position", "piece", "word", "start", "end", *TREE_COLUMNS)


class BrokenShard(Refused):
    """Error for a shard whose files are missing or differ from those that were written."""


@dataclass(frozen=True)
class IndexedShard:
    """One shard of an index. Columns are cached, and arrays are memory-mapped.

    Every property and method raises BrokenShard for a file that is missing or has another size or digest.

    folder: folder of the shard. document: name of the file whose tokens it holds.
    """

    folder: Path
    document: str
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return int(self._contents["tokens"])

    def part(self, name: str, number: int) -> np.ndarray:
        """Return one depth or layer of an array of `index.PackedShard`.

        name: name from `index.ARRAYS`. number: index of the depth or layer among those that are stored.
        """
        if (name, number) not in self._cache:
            if name not in self._cache:
                self._cache[name] = self._map_array(name)
            part = self._cache[name][number]
            if digest(part) != self._contents["digests"][name][number]:
                raise self._broken(f"{name}.npy", "differs from what was written")
            self._cache[name, number] = part
        verified: np.ndarray = self._cache[name, number]
        return verified

    def column(self, name: str) -> Any:
        """Return a column of the tokens as a pyarrow array; None if the shard has no such column."""
        return self._column("tokens", name)

    def integer_column(self, name: str, *, table: str = "tokens") -> np.ndarray:
        """Return a column of integers without missing values, of the table "tokens" or "texts"."""
        values: np.ndarray = self._column(table, name).to_numpy(zero_copy_only=False)
        return values

    @property
    def special(self) -> np.ndarray:
        """Whether each token is special ([CLS], [SEP]) and not typed, (token,)."""
        if "special" not in self._cache:
            self._cache["special"] = self.column("word").is_null().to_numpy(zero_copy_only=False)
        special: np.ndarray = self._cache["special"]
        return special

    @property
    def texts(self) -> list[str]:
        """The sentences of the shard."""
        texts: list[str] = self._column("texts", "text").to_pylist()
        return texts

    def row(self, number: int) -> dict[str, Any]:
        """Return the existing `TOKEN_COLUMNS` of a token by name, and its sentence as "sentence_text"."""
        values = {}
        for name in TOKEN_COLUMNS:
            column = self.column(name)
            if column is not None:
                values[name] = column[number].as_py()
        values["sentence_text"] = self._column("texts", "text")[self.column("text")[number].as_py()].as_py()
        return values

    @property
    def _contents(self) -> dict[str, Any]:
        """The sizes and digests of the files; the sizes are verified when it is first read."""
        if "contents" not in self._cache:
            contents = read_json(self.folder / SHARD_FILE) if (self.folder / SHARD_FILE).is_file() else {}
            if not isinstance(contents.get("sizes"), dict) or not isinstance(contents.get("digests"), dict):
                raise self._broken(SHARD_FILE, "is missing, or cannot be read")
            for name, size in contents["sizes"].items():
                path = self.folder / name
                if not path.is_file() or path.stat().st_size != size:
                    actual = f"has {path.stat().st_size:,} bytes" if path.is_file() else "is missing"
                    raise self._broken(name, f"{actual} instead of {size:,} bytes")
            self._cache["contents"] = contents
        cached: dict[str, Any] = self._cache["contents"]
        return cached

    def _map_array(self, name: str) -> np.ndarray:
        _ = self._contents  # verifies the sizes
        try:
            mapped: np.ndarray = np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise self._broken(f"{name}.npy", "cannot be read") from error
        return mapped

    def _column(self, table: str, name: str) -> Any:
        """Return a column of the table "tokens" or "texts" as a pyarrow array; None if there is no such column."""
        import pyarrow
        from pyarrow import parquet

        if (table, name) in self._cache:
            return self._cache[table, name]
        path = self.folder / f"{table}.parquet"
        if table not in self._cache:
            digests = self._contents["digests"]
            if digest(path.read_bytes() if table in digests else b"") != digests[table]:
                raise self._broken(path.name, "differs from what was written")
            self._cache[table] = parquet.read_schema(path).names
        column = None
        if name in self._cache[table]:
            try:
                column = parquet.read_table(path, columns=[name]).column(0).combine_chunks()
            except (pyarrow.ArrowException, OSError) as error:
                raise self._broken(path.name, "cannot be read") from error
            if isinstance(column, pyarrow.ChunkedArray):
                column = column.chunk(0)
            if pyarrow.types.is_string(column.type) and table == "tokens":
                column = column.dictionary_encode()
        self._cache[table, name] = column
        return column

    def _broken(self, name: str, damage: str) -> BrokenShard:
        """Return the error for a damaged file. damage: the end of a sentence with the file as its subject."""
        return BrokenShard(
            f"the shard {self.folder.name} of {self.folder.parent} is broken, its {name} {damage}: "
            f"remove {self.document} from the index and add it again"
        )


@dataclass(frozen=True)
class Index:
    """A corpus index, opened for searches.

    folder: folder of the index.
    model, weights: name and fingerprint of the model.
    settings: settings with which the index was made.
    layers: layers whose heads and outputs are stored. heads: number of heads per layer.
    documents: number of tokens by the name of each file.
    shards: complete shards, in the order of the documents.
    windows: for each layer of the model the largest distance between a query and a key; None for any distance. Empty
        without local layers.
    """

    folder: Path
    model: str
    weights: str
    settings: IndexSettings
    layers: tuple[int, ...]
    heads: int
    documents: dict[str, int]
    shards: tuple[IndexedShard, ...]
    windows: tuple[int | None, ...] = ()
    _verified_models: WeakSet[LoadedModel] = field(default_factory=WeakSet, repr=False, compare=False)

    @property
    def depths(self) -> tuple[int, ...]:
        """Depths whose hidden states are stored: 0 for the embeddings, n + 1 for the output of layer n."""
        return (0, *(layer + 1 for layer in self.layers))

    @property
    def all_heads(self) -> list[tuple[int, int]]:
        """All stored heads, as (layer, head)."""
        return [(layer, head) for layer in self.layers for head in range(self.heads)]

    @property
    def tokens(self) -> int:
        """Number of tokens of all documents."""
        return sum(self.documents.values())

    def validate_heads(self, heads: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return pairs (layer, head) as integers. Raises Refused for another value, or a head that is not stored."""
        valid_heads = []
        for value in require_sequence("heads", heads, "pairs (layer, head)"):
            pair = require_sequence("a head", value, "two numbers, (layer, head)")
            if len(pair) != 2:
                raise Refused(f"a head is {short_repr(pair)}: it must be two numbers, (layer, head)")
            layer, head = (require_int("a head", part, 0) for part in pair)
            if layer not in self.layers:
                layers = ", ".join(map(str, self.layers))
                raise Refused(f"{self.folder} has no heads of layer {layer}: it has those of {layers}")
            check_part_number("head", layer, head, max(self.layers) + 1, self.heads)
            valid_heads.append((layer, head))
        return valid_heads

    def check_model(self, loaded: LoadedModel) -> None:
        """Raise Refused for a model whose weights are not those of the index."""
        if loaded in self._verified_models:
            return
        if fingerprint(loaded) != self.weights:
            raise Refused(
                f"{self.folder} is an index of {self.model}, and {loaded.name} has other weights: search it with the "
                "model that it was made with, or make it again with `headlight index` if an earlier version of "
                "Headlight made it"
            )
        self._verified_models.add(loaded)

    every_head = RenamedAttribute("all_heads")
    known_heads = RenamedAttribute("validate_heads")


@validate_arguments
def open_index(folder: Path) -> Index:
    r"""Open an index of `index_file`, which may be incomplete. Raises Refused for a folder that is not an index.

    >>> from pathlib import Path
    >>> import bert_core
    >>> _ = Path("corpus.txt").write_text("She opened the door.\nHe closed the window.\n")
    >>> counts = bert_core.index_file(Path("corpus.txt"), Path("index"))
    >>> index = bert_core.open_index(Path("index"))
    >>> index.documents, index.layers
    ({'corpus.txt': 14}, (0, 1, 2, 3, 4, 5))
    """
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
            {entry["name"]: int(entry["counts"].get("tokens", 0)) for entry in contents["documents"]},
            tuple(IndexedShard(folder / name, document) for name, document in shard_folders(contents)),
            tuple(contents.get("windows", ())),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Refused(f"{folder} is a damaged index: make it again with `headlight index`") from error
