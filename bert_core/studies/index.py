"""What a model makes of every token of a corpus, kept so that it can be looked up: an index, in shards.

A shard is read by one function, here or on another machine, into a folder of its own; what an index holds does not
depend on who did the work, nor on where it was stopped and went on. Plain texts are read sentence by sentence.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from bert_core import checkpoint
from bert_core.analysis.relations import pieces_of_words
from bert_core.loading import LoadedModel
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.run.states import TokenStates, token_states
from bert_core.studies.documents import split_sentences
from bert_core.studies.file_questions import check_length
from bert_core.studies.files import Format
from bert_core.studies.lines import MAX_LINE_BYTES, Line, Shard
from bert_core.studies.rows import Columns
from bert_core.studies.runner import (
    ResumePoint,
    ShardRun,
    ShardStudy,
    SourceFile,
    as_json_values,
    check_same_study,
    read_json,
    run_to_end,
)
from bert_core.studies.tables import write_columns
from bert_core.studies.texts import check_texts, read_trees, text_shards
from bert_core.studies.treebank import TreeSentence
from bert_core.tokenizer import Encoding

TOP_KEYS = 4  # of the strongest of each head
FORMAT_VERSION = 1
SHARD_CHARACTERS = 1 << 16  # of text: about 16,000 tokens, and 110 MB of the bundled model's
CONTENTS_FILE, SHARD_FILE = "index.json", "shard.json"
ARRAYS = ("states", "state_scales", "heads", "head_scales", "keys", "weights")
TREE_COLUMNS = ("upos", "relation", "governor", "distance", "features")
MAX_INT8 = 127  # of int8
_WHOLE_NUMBERS = {"line", "sentence", "text", "position", "start", "end", "first", "distance"}  # columns


@dataclass(frozen=True)
class IndexSettings:
    """What is kept of every text.

    layers: whose heads are kept, and the states that leave them; None: all. The embeddings always are.
    max_length: tokens of a sentence that are read.
    Raises Refused for settings that cannot be.
    """

    layers: tuple[int, ...] | None = None
    max_length: int = 128

    def __post_init__(self) -> None:
        if self.layers is not None:
            given = {
                require_int("a layer", layer) for layer in require_sequence("layers", self.layers, "their numbers")
            }
            object.__setattr__(self, "layers", tuple(sorted(given)))
        object.__setattr__(self, "max_length", require_int("max_length", self.max_length, 3, 2**16))


@dataclass(frozen=True)
class CorpusShard(Shard):
    """A shard of a text or of a treebank; of the second each sentence with its tree, as many as lines."""

    trees: tuple[TreeSentence, ...] = ()


@compared_by_value
@dataclass(frozen=True)
class PackedShard:
    """What is kept of a shard.

    arrays: by the names of `ARRAYS`; a depth or a layer after the other, in the order in which these are kept.
        states (depth, token, hidden) and heads (layer, head, token, head size) int8, rounded from what they stand for;
        state_scales (depth, 2, token) and head_scales (layer, head, 2, token) float32: what one unit is worth, and the
        length of the row in these units; NaN for a head that was pruned. keys, weights (layer, head, token, key): the
        positions in their sentence that a head attends to most, and how much, 0 where there are no more.
    tokens: columns with a row a token: line (from 1), sentence (of that line, from 0), text (the row in `texts`),
        position, piece, word (none of [CLS] and [SEP]), start and end in the text; of a treebank `TREE_COLUMNS`.
    texts: columns with a row a sentence: line, sentence, text, first (its first token).
    counts: of `lines.Shard`, and of "texts" and "tokens", texts "shortened" to the length that is read, "unreadable".
    """

    arrays: dict[str, np.ndarray]
    tokens: dict[str, list[Any]]
    texts: dict[str, list[Any]]
    counts: Counter[str]


# ---------------------------------------------------------------------------- one shard


def index_shard(loaded: LoadedModel, shard: CorpusShard, settings: IndexSettings) -> PackedShard:
    """Everything that is kept of a shard."""
    counts, read = Counter(shard.counts), list(iter_sentences(loaded, shard, settings))
    encodings = [encoding for _, _, _, encoding in read if encoding is not None]
    counts["unreadable"] += len(read) - len(encodings)
    counts["texts"], counts["tokens"] = len(encodings), sum(map(len, encodings))
    counts["shortened"] += sum(bool(encoding.truncated_count) for encoding in encodings)
    there = [(line, sentence, tree, encoding) for line, sentence, tree, encoding in read if encoding is not None]
    firsts = [0, *accumulate(map(len, encodings))]
    texts: dict[str, list[Any]] = {
        "line": [line + 1 for line, *_ in there],
        "sentence": [sentence for _, sentence, *_ in there],
        "text": [encoding.text for encoding in encodings],
        "first": firsts[:-1],
    }
    return PackedShard(pack_sentences(loaded, encodings, settings), _tokens(there, bool(shard.trees)), texts, counts)


def iter_sentences(
    loaded: LoadedModel, shard: CorpusShard, settings: IndexSettings
) -> Iterator[tuple[int, int, TreeSentence | None, Encoding | None]]:
    """Line, number in the line, tree and encoding of every sentence; no encoding where nothing can be read."""
    trees: Sequence[TreeSentence | None] = shard.trees or [None] * len(shard.lines)
    for line, tree in zip(shard.lines, trees, strict=True):
        for number, text in enumerate([line.text] if tree is not None else split_sentences(line.text)):
            try:
                yield line.number, number, tree, loaded.tokenizer.encode(text, max_length=settings.max_length)
            except Refused:  # nothing in it that can be read
                yield line.number, number, tree, None


def indexed_layers(loaded: LoadedModel, settings: IndexSettings) -> tuple[int, ...]:
    """Raises Refused for a layer that the model does not have."""
    of = loaded.config.num_hidden_layers
    layers = tuple(range(of)) if settings.layers is None else settings.layers
    for layer in layers:
        require_int(f"a layer of {loaded.name}", layer, 0, of - 1)
    return layers


def pack_sentences(
    loaded: LoadedModel, encodings: Sequence[Encoding], settings: IndexSettings
) -> dict[str, np.ndarray]:
    """The arrays of some sentences, one after the other, as `Packed` has them."""
    layers, config = indexed_layers(loaded, settings), loaded.config
    heads, size, tokens = config.num_attention_heads, config.attention_head_size, sum(map(len, encodings))
    firsts = np.array([0, *accumulate(map(len, encodings))])
    found: dict[str, np.ndarray] = {
        "states": np.zeros((len(layers) + 1, tokens, config.hidden_size), np.int8),
        "state_scales": np.zeros((len(layers) + 1, 2, tokens), np.float32),
        "heads": np.zeros((len(layers), heads, tokens, size), np.int8),
        "head_scales": np.zeros((len(layers), heads, 2, tokens), np.float32),
        "keys": np.zeros((len(layers), heads, tokens, TOP_KEYS), np.uint8 if settings.max_length <= 256 else np.uint16),
        "weights": np.zeros((len(layers), heads, tokens, TOP_KEYS), np.float16),
    }
    rows = np.arange(0)
    for one in token_states(loaded, encodings, layers, TOP_KEYS):
        if not one.depth:
            rows = np.concatenate([np.arange(firsts[number], firsts[number + 1]) for number in one.texts])
        place = (0, *(layer + 1 for layer in layers)).index(one.depth)
        found["states"][place, rows], found["state_scales"][place][:, rows] = quantise_rows(one.states)
        if one.depth:
            _keep_heads(found, place - 1, rows, one)
    return found


def _keep_heads(found: Mapping[str, np.ndarray], place: int, rows: np.ndarray, one: TokenStates) -> None:
    assert one.head_output is not None and one.keys is not None and one.weights is not None  # of a layer
    values, scales = quantise_rows(one.head_output)
    found["heads"][place][:, rows], found["head_scales"][place][:, :, rows] = values, scales.swapaxes(0, 1)
    some, weights = one.keys.shape[-1], np.nan_to_num(one.weights)
    found["keys"][place][:, rows, :some] = np.where(weights > 0, np.nan_to_num(one.keys), 0)
    found["weights"][place][:, rows, :some] = weights


def quantise_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of numbers as int8, and what gives them back.

    values: (..., size). Returns the same as int8, and float32 (2, ...): what one unit is worth, and the length of the
    row in these units. A row of NaN is one of zeros, whose two figures are NaN.
    """
    scale = np.abs(values).max(-1, initial=0) / np.float32(MAX_INT8)
    whole_numbers = np.rint(values / np.where(scale > 0, scale, 1)[..., None])
    length = np.sqrt((whole_numbers * whole_numbers).sum(-1))
    return np.nan_to_num(whole_numbers).astype(np.int8), np.stack([scale, length]).astype(np.float32)


def _tokens(
    read: Sequence[tuple[int, int, TreeSentence | None, Encoding]], treebank: bool
) -> dict[str, list[Any]]:  # fmt: skip
    names = ("line", "sentence", "text", "position", "piece", "word", "start", "end")
    columns: dict[str, list[Any]] = {name: [] for name in (*names, *(TREE_COLUMNS if treebank else ()))}
    for row, (line, sentence, tree, encoding) in enumerate(read):
        words = word_per_piece(encoding)
        labels: dict[int, tuple[Any, ...]] = {}
        if tree is not None:
            for word, pieces in enumerate(pieces_of_words(encoding, tree.spans)):
                for position in pieces:
                    words[position], labels[position] = tree.words[word], _labels(tree, word)
        for position, (start, end) in enumerate(encoding.offsets):
            own = (line + 1, sentence, row, position, encoding.tokens[position], words[position], start, end)
            for name, value in zip(columns, (*own, *labels.get(position, (None,) * len(TREE_COLUMNS))), strict=False):
                columns[name].append(value)
    return columns


def word_per_piece(encoding: Encoding) -> list[str | None]:
    """The word that each piece is of, as it was typed; None of [CLS] and [SEP]."""
    spans: dict[int, list[int]] = {}
    for word, (start, end) in zip(encoding.words, encoding.offsets, strict=True):
        if word is not None:
            own = spans.setdefault(word, [start, end])
            own[1] = max(own[1], end)
    return [None if word is None else encoding.text[slice(*spans[word])] for word in encoding.words]


def _labels(tree: TreeSentence, word: int) -> tuple[Any, ...]:
    governor = tree.heads[word]
    written = (tree.tags[word] if tree.tags else "_", tree.relations[word])
    features = tree.features[word] if tree.features else "_"
    above = (None, None) if governor is None else (tree.words[governor], governor - word)
    return (*(None if label == "_" else label for label in written), *above, None if features == "_" else features)


# ---------------------------------------------------------------------------- a file


def _check(loaded: LoadedModel, settings: IndexSettings) -> None:
    """Raise Refused if a model has not what is kept."""
    indexed_layers(loaded, settings)
    check_length(loaded, settings.max_length)


STUDY = ShardStudy(index_shard, _check)


@validate_arguments
def index_file(
    path: Path,
    out: Path,
    model: str | LoadedModel = "headlight-mini",
    settings: IndexSettings | None = None,
    *,
    engine: str = "local",
    device: str | None = None,
    column: str | None = None,
    characters: int | None = None,
    on_progress: Callable[[Counter[str], float], None] | None = None,
) -> Counter[str]:
    """Add a file to an index, a folder that is made where there is none: every token of its texts.

    path: plain text with one paragraph per line, a table, or a treebank. column: of the texts, of a table. It may be
    stopped at any moment: the same call goes on. model: a name, or a loaded model, which is used here. engine, device:
    as for `heads_over`. characters: of a shard, about. on_progress: called after each shard with what was read of this
    file so far, as `Packed` counts, and the share of the file.
    Returns these counts. A file that is there whole already is not read again.
    Raises Refused for a folder that holds something else, an index of other settings or other weights, a file of the
    same name with another content, an unknown engine, Ray missing, and where the file or the model changes meanwhile.
    """
    steps = iter_index(path, out, model, settings, engine=engine, device=device, column=column, characters=characters)
    return run_to_end(steps, on_progress, Counter[str]())


@validate_arguments
def iter_index(
    path: Path,
    out: Path,
    model: str | LoadedModel = "headlight-mini",
    settings: IndexSettings | None = None,
    *,
    engine: str = "local",
    device: str | None = None,
    column: str | None = None,
    characters: int | None = None,
) -> Iterator[tuple[Counter[str], float]]:
    """What `index_file` has read after each shard, and the share of the file; a shard is added when it is asked for."""
    settings = IndexSettings() if settings is None else settings
    columns = None if column is None else Columns(column)
    check_texts(path, columns)
    run = ShardRun(STUDY, path, model, settings, engine=engine, device=device)
    contents = _begun(out, run)
    document = _document(contents, run.source, out, columns)
    place, counts = document["place"], Counter[str](document["counts"])
    if counts:
        yield counts, document["read"] / run.source.size
    if document["whole"]:
        return
    _sweep(out, contents)
    for shard, packed in run.measure_shards(corpus_shards(path, columns, **place, characters=characters)):
        if packed.counts["texts"]:
            _write_shard(out / _folder(document["number"], document["shards"]), packed, path.name)
            document["shards"] += 1
        counts = counts + packed.counts
        document |= {"counts": dict(counts), "place": ResumePoint.after(shard).shard_arguments, "read": shard.read}
        _write(out, contents)
        yield counts, min(shard.read / run.source.size, 1.0)
    document["whole"] = True
    _write(out, contents)


@validate_arguments
def remove_from_index(folder: Path, document: str) -> None:
    """Take a file out of an index, by its name. Raises Refused for one that is not there."""
    contents = read_contents(folder)
    names = [one["name"] for one in contents["documents"]]
    if document not in names:
        raise Refused(f"{folder} holds no file {short_repr(document)}: it holds {', '.join(names) or 'none'}")
    contents["documents"] = [one for one in contents["documents"] if one["name"] != document]
    _write(folder, contents)
    _sweep(folder, contents)


def incomplete_note(counts: Mapping[str, int]) -> str:
    """What of a file is not read whole, as the end of a sentence; empty where all of it is."""
    names = {
        "shortened": "sentences cut to the length that is read", "unreadable": "without a sign that can be read",
        "overlong": "so long that only the beginning was read",
        "not UTF-8": "lines with bytes that are not UTF-8, which were replaced",
        "comments": "lines of comments left out",
    }  # fmt: skip
    return "".join(f"; {counts[name]:,} {words}" for name, words in names.items() if counts.get(name))


def corpus_shards(
    path: Path, columns: Columns | None = None, *, number: int = 0, start: int = 0, line: int = 0,
    characters: int | None = None,
) -> Iterator[CorpusShard]:  # fmt: skip
    """The shards of a text, a table or a treebank from one on, of about so many characters, never of half a line."""
    most = SHARD_CHARACTERS if characters is None else characters
    found: Iterator[Shard]
    if columns is None and check_texts(path).format is Format.TREEBANK:
        found = _trees(path, line)
    else:
        found = text_shards(path, columns, start=start, line=line, size=1)
    # An index counts lines and rows from one, the shards of a text lines from zero and those of a table rows from one.
    first = 0 if columns is None else 1
    lines: list[Line] = []
    trees: list[TreeSentence] = []
    counts: Counter[str] = Counter()
    held, last = 0, None
    for last in found:
        lines += [one._replace(number=one.number - first) for one in last.lines]
        trees += last.trees if isinstance(last, CorpusShard) else ()
        counts += last.counts
        held += sum(len(one.text) for one in last.lines)
        if held >= most:
            yield CorpusShard(number, tuple(lines), last.end, last.next_line, counts, last.read, tuple(trees))
            number, lines, trees, counts, held = number + 1, [], [], Counter(), 0
    if last is not None and counts:
        yield CorpusShard(number, tuple(lines), last.end, last.next_line, counts, last.read, tuple(trees))


def _trees(path: Path, line: int) -> Iterator[CorpusShard]:
    """The sentences of a treebank from a line on, each by itself."""
    for tree, read in read_trees(path, line):
        own, counts = Line(tree.line - 1, tree.text[:MAX_LINE_BYTES]), Counter(lines=1, comments=tree.comments)
        if len(tree.text) > MAX_LINE_BYTES:
            counts["overlong"] = 1
        yield CorpusShard(0, (own,), read, tree.line, counts, read, (tree,))


# ---------------------------------------------------------------------------- the folder


def read_contents(folder: Path) -> dict[str, Any]:
    """What an index says of itself. Raises Refused for a folder that is none."""
    place = folder / CONTENTS_FILE
    contents = read_json(place) if place.is_file() else {}
    if contents.get("format") != FORMAT_VERSION or not isinstance(contents.get("documents"), list):
        raise Refused(f"{folder} is no index: `headlight index FILE --out {folder}` makes one")
    return contents


def _begun(out: Path, run: ShardRun[IndexSettings, PackedShard]) -> dict[str, Any]:
    """The contents of an index that is there, or those of an empty one. Raises Refused if it is another."""
    config, model = run.loaded.config, run.model
    asked = as_json_values({
        "format": FORMAT_VERSION, "model": model, "weights": run.weights, **asdict(run.settings),
        "hidden_size": config.hidden_size, "heads": config.num_attention_heads,
        "head_size": config.attention_head_size, "kept_layers": indexed_layers(run.loaded, run.settings),
    })  # fmt: skip
    if (out / CONTENTS_FILE).exists():
        contents = read_contents(out)
        if contents.get("weights") != asked["weights"]:
            raise Refused(
                f"{out} is an index of other weights than those of {model}, or of an earlier version of Headlight: "
                "choose another folder, or remove this one, and `headlight index` makes it again"
            )
        check_same_study(contents, {name: value for name, value in asked.items() if name != "model"}, out)
        return contents
    if out.is_dir() and any(one.name != ".lock" for one in out.iterdir()):
        raise Refused(f"{out} is there already and holds no index: choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    contents = {**asked, "documents": []}
    _write(out, contents)
    return contents


def _document(contents: dict[str, Any], source: SourceFile, out: Path, columns: Columns | None) -> dict[str, Any]:
    """What the index holds of a file so far. Raises Refused if the file has another content than then."""
    path = source.path
    known: dict[str, dict[str, Any]] = {one["name"]: one for one in contents["documents"]}
    asked: dict[str, Any] = {"name": path.name, "bytes": path.stat().st_size, "content": source.digest}
    if columns is not None:
        asked["column"] = columns.text
    if path.name in known:
        document = known[path.name]
        # An index of version 0.2 holds the time of the last change in the place of a digest.
        old = "content" not in document and document.get("changed") == path.stat().st_mtime_ns
        same = ("name", "bytes", "column") if old else ("name", "bytes", "column", "content")
        if any(document.get(name) != asked.get(name) for name in same):
            raise Refused(f"{out} holds another file {path.name}: remove that first, or give this one another name")
        return document
    number = max((one["number"] for one in contents["documents"]), default=-1) + 1
    place = {"number": 0, "start": 0, "line": 0}
    document = {**asked, "number": number, "shards": 0, "counts": {}, "place": place, "read": 0, "whole": False}
    contents["documents"].append(document)
    return document


def _folder(document: int, shard: int) -> str:
    return f"{document:04d}.{shard:06d}"


def shard_folders(contents: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The folder of every shard that is whole, and the name of its document, in their order."""
    return [
        (_folder(one["number"], shard), one["name"]) for one in contents["documents"] for shard in range(one["shards"])
    ]


def _sweep(out: Path, contents: Mapping[str, Any]) -> None:
    """Clear away shards that no document has: half written, or of one that was removed."""
    known = {folder for folder, _ in shard_folders(contents)}
    for one in out.glob("[0-9]*.[0-9]*"):
        if one.is_dir() and one.name not in known:
            shutil.rmtree(one)


def _write(out: Path, contents: Mapping[str, Any]) -> None:
    checkpoint.write_atomically(out / CONTENTS_FILE, json.dumps(contents, indent=1) + "\n")


def _write_shard(folder: Path, packed: PackedShard, document: str) -> None:
    """The files of a shard, last of them what they must be: their sizes, and a digest of every part of an array."""
    folder.mkdir(exist_ok=True)
    for name, array in packed.arrays.items():
        checkpoint.write_atomically(folder / f"{name}.npy", _saves(array))
    tokens = {"document": [document] * packed.counts["tokens"], **packed.tokens}
    for name, columns in (("tokens", tokens), ("texts", packed.texts)):
        types = {column: "int32" if column in _WHOLE_NUMBERS else "string" for column in columns}
        types |= {"text": "string"} if name == "texts" else {}  # there the text itself, and not its row
        write_columns(columns, folder / f"{name}.parquet", types, compression="zstd")
    kept: dict[str, Any] = {"tokens": packed.counts["tokens"], "sizes": {}, "digests": {}}
    for file in sorted(folder.iterdir()):
        if file.suffix in (".npy", ".parquet"):
            kept["sizes"][file.name] = file.stat().st_size
    for name, array in packed.arrays.items():
        kept["digests"][name] = [digest(part) for part in array]
    for name in ("tokens", "texts"):
        kept["digests"][name] = digest((folder / f"{name}.parquet").read_bytes())
    checkpoint.write_atomically(folder / SHARD_FILE, json.dumps(kept, indent=1) + "\n")


def digest(data: np.ndarray | bytes) -> str:
    """Of an array, or a file, as its shard keeps it."""
    return hashlib.sha256(data if isinstance(data, bytes) else np.ascontiguousarray(data).data).hexdigest()[:32]


def _saves(array: np.ndarray) -> Any:
    def save(temporary: str) -> None:
        with open(temporary, "wb") as file:
            np.save(file, array, allow_pickle=False)

    return save
