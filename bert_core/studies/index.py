"""Corpus index: hidden states, head outputs and strongest keys of every token of a corpus, stored in shards.

Each shard is computed into its own folder, in this process or on another machine, so an index depends neither on the
engine nor on interruptions. Plain text is split into sentences.
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
from bert_core.refused import Refused, require_int, short_repr, validate_arguments
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
from bert_core.studies.settings import IndexSettings
from bert_core.studies.tables import write_columns
from bert_core.studies.texts import check_texts, read_trees, text_shards
from bert_core.studies.treebank import TreeSentence
from bert_core.tokenizer import Encoding

TOP_KEYS = 4  # strongest keys that are stored for each token and head
FORMAT_VERSION = 1
SHARD_CHARACTERS = 1 << 16  # about 16,000 tokens, whose arrays take 110 MB for the bundled model
CONTENTS_FILE, SHARD_FILE = "index.json", "shard.json"
ARRAYS = ("states", "state_scales", "heads", "head_scales", "keys", "weights")
TREE_COLUMNS = ("upos", "relation", "governor", "distance", "features")
MAX_INT8 = 127
_INTEGER_COLUMNS = {"line", "sentence", "text", "position", "start", "end", "first", "distance"}


@dataclass(frozen=True)
class CorpusShard(Shard):
    """Shard of a text or of a treebank.

    trees: for a treebank, the tree of the sentence in each line, (line,); else empty.
    """

    trees: tuple[TreeSentence, ...] = ()


@compared_by_value
@dataclass(frozen=True)
class PackedShard:
    """Content of one shard of an index.

    arrays: arrays by the names of `ARRAYS`, along the stored depths or layers in increasing order.
        states (depth, token, hidden), heads (layer, head, token, head size): hidden states and head outputs, quantised
            to int8.
        state_scales (depth, 2, token), head_scales (layer, head, 2, token): float32 value of one int8 unit, and norm
            of the row in these units; NaN for a pruned head.
        keys, weights (layer, head, token, key): positions in the sentence with the largest attention weights of the
            head, and these weights; 0 where the sentence has fewer keys.
    tokens: columns with one row per token. They are line (from 1), sentence (in the line, from 0), text (row in
        `texts`), position, piece, word (None for [CLS] and [SEP]), start and end (characters of the text). A treebank
        also has `TREE_COLUMNS`.
    texts: columns with one row per sentence: line, sentence, text, first (row of its first token).
    counts: the counts of `lines.Shard` and these: "texts", "tokens", texts "shortened" to `max_length` tokens, and
        "unreadable" texts without a character that the tokenizer knows.
    """

    arrays: dict[str, np.ndarray]
    tokens: dict[str, list[Any]]
    texts: dict[str, list[Any]]
    counts: Counter[str]


# ---------------------------------------------------------------------------- one shard


def index_shard(loaded: LoadedModel, shard: CorpusShard, settings: IndexSettings) -> PackedShard:
    """Compute the content of one shard of an index."""
    counts, sentences = Counter(shard.counts), list(iter_sentences(loaded, shard, settings))
    encodings = [encoding for _, _, _, encoding in sentences if encoding is not None]
    counts["unreadable"] += len(sentences) - len(encodings)
    counts["texts"], counts["tokens"] = len(encodings), sum(map(len, encodings))
    counts["shortened"] += sum(bool(encoding.truncated_count) for encoding in encodings)
    readable = [
        (line, sentence, tree, encoding) for line, sentence, tree, encoding in sentences if encoding is not None
    ]
    firsts = [0, *accumulate(map(len, encodings))]
    texts: dict[str, list[Any]] = {
        "line": [line + 1 for line, *_ in readable],
        "sentence": [sentence for _, sentence, *_ in readable],
        "text": [encoding.text for encoding in encodings],
        "first": firsts[:-1],
    }
    return PackedShard(pack_sentences(loaded, encodings, settings), _tokens(readable, bool(shard.trees)), texts, counts)


def iter_sentences(
    loaded: LoadedModel, shard: CorpusShard, settings: IndexSettings
) -> Iterator[tuple[int, int, TreeSentence | None, Encoding | None]]:
    """Yield the line, number in the line, tree and encoding of every sentence of a shard.

    The tree is None outside treebanks. The encoding is None without a character that the tokenizer knows.
    """
    trees: Sequence[TreeSentence | None] = shard.trees or [None] * len(shard.lines)
    for line, tree in zip(shard.lines, trees, strict=True):
        for number, text in enumerate([line.text] if tree is not None else split_sentences(line.text)):
            try:
                yield line.number, number, tree, loaded.tokenizer.encode(text, max_length=settings.max_length)
            except Refused:  # no character that the tokenizer knows
                yield line.number, number, tree, None


def indexed_layers(loaded: LoadedModel, settings: IndexSettings) -> tuple[int, ...]:
    """Return the layers whose heads and outputs are stored. Raises Refused for a layer that the model does not have."""
    layer_count = loaded.config.num_hidden_layers
    layers = tuple(range(layer_count)) if settings.layers is None else settings.layers
    for layer in layers:
        require_int(f"a layer of {loaded.name}", layer, 0, layer_count - 1)
    return layers


def pack_sentences(
    loaded: LoadedModel, encodings: Sequence[Encoding], settings: IndexSettings
) -> dict[str, np.ndarray]:
    """Compute the arrays of `PackedShard` for sentences, concatenated along the tokens."""
    layers, config = indexed_layers(loaded, settings), loaded.config
    heads, size, tokens = config.num_attention_heads, config.attention_head_size, sum(map(len, encodings))
    firsts = np.array([0, *accumulate(map(len, encodings))])
    arrays: dict[str, np.ndarray] = {
        "states": np.zeros((len(layers) + 1, tokens, config.hidden_size), np.int8),
        "state_scales": np.zeros((len(layers) + 1, 2, tokens), np.float32),
        "heads": np.zeros((len(layers), heads, tokens, size), np.int8),
        "head_scales": np.zeros((len(layers), heads, 2, tokens), np.float32),
        "keys": np.zeros((len(layers), heads, tokens, TOP_KEYS), np.uint8 if settings.max_length <= 256 else np.uint16),
        "weights": np.zeros((len(layers), heads, tokens, TOP_KEYS), np.float16),
    }
    rows = np.arange(0)
    depths = (0, *(layer + 1 for layer in layers))
    for batch in token_states(loaded, encodings, layers, TOP_KEYS):
        if not batch.depth:
            rows = np.concatenate([np.arange(firsts[number], firsts[number + 1]) for number in batch.texts])
        place = depths.index(batch.depth)
        arrays["states"][place, rows], arrays["state_scales"][place][:, rows] = quantise_rows(batch.states)
        if batch.depth:
            _store_heads(arrays, place - 1, rows, batch)
    return arrays


def _store_heads(arrays: Mapping[str, np.ndarray], place: int, rows: np.ndarray, batch: TokenStates) -> None:
    """Store the head outputs and the strongest keys of one layer in the arrays. place: index among stored layers."""
    assert batch.head_output is not None and batch.keys is not None and batch.weights is not None  # depth > 0
    values, scales = quantise_rows(batch.head_output)
    arrays["heads"][place][:, rows], arrays["head_scales"][place][:, :, rows] = values, scales.swapaxes(0, 1)
    key_count, weights = batch.keys.shape[-1], np.nan_to_num(batch.weights)
    arrays["keys"][place][:, rows, :key_count] = np.where(weights > 0, np.nan_to_num(batch.keys), 0)
    arrays["weights"][place][:, rows, :key_count] = weights


def quantise_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantise rows (..., size) to int8, each with its own scale.

    Returns the int8 values (..., size) and a float32 array (2, ...): the value of one unit, and the norm of the row in
    these units. A row of NaN becomes zeros, and its scale and norm are NaN.
    """
    scale = np.abs(values).max(-1, initial=0) / np.float32(MAX_INT8)
    units = np.rint(values / np.where(scale > 0, scale, 1)[..., None])
    norm = np.sqrt((units * units).sum(-1))
    return np.nan_to_num(units).astype(np.int8), np.stack([scale, norm]).astype(np.float32)


def _tokens(
    sentences: Sequence[tuple[int, int, TreeSentence | None, Encoding]], treebank: bool
) -> dict[str, list[Any]]:  # fmt: skip
    """Return the columns of the tokens of sentences, as `PackedShard.tokens`."""
    names = ("line", "sentence", "text", "position", "piece", "word", "start", "end")
    columns: dict[str, list[Any]] = {name: [] for name in (*names, *(TREE_COLUMNS if treebank else ()))}
    for row, (line, sentence, tree, encoding) in enumerate(sentences):
        words = word_per_piece(encoding)
        labels: dict[int, tuple[Any, ...]] = {}
        if tree is not None:
            for word, pieces in enumerate(pieces_of_words(encoding, tree.spans)):
                for position in pieces:
                    words[position], labels[position] = tree.words[word], _labels(tree, word)
        for position, (start, end) in enumerate(encoding.offsets):
            token = (line + 1, sentence, row, position, encoding.tokens[position], words[position], start, end)
            tree_labels = labels.get(position, (None,) * len(TREE_COLUMNS))
            for name, value in zip(columns, (*token, *tree_labels), strict=False):
                columns[name].append(value)
    return columns


def word_per_piece(encoding: Encoding) -> list[str | None]:
    """Return the word of each token as it is typed in the text; None for [CLS] and [SEP]."""
    spans: dict[int, list[int]] = {}
    for word, (start, end) in zip(encoding.words, encoding.offsets, strict=True):
        if word is not None:
            span = spans.setdefault(word, [start, end])
            span[1] = max(span[1], end)
    return [None if word is None else encoding.text[slice(*spans[word])] for word in encoding.words]


def _labels(tree: TreeSentence, word: int) -> tuple[Any, ...]:
    """Return the values of `TREE_COLUMNS` for a word; None for a missing label."""
    governor = tree.heads[word]
    tag_and_relation = (tree.tags[word] if tree.tags else "_", tree.relations[word])
    features = tree.features[word] if tree.features else "_"
    governor_and_distance = (None, None) if governor is None else (tree.words[governor], governor - word)
    return (
        *(None if label == "_" else label for label in tag_and_relation),
        *governor_and_distance,
        None if features == "_" else features,
    )


# ---------------------------------------------------------------------------- a file


def _check(loaded: LoadedModel, settings: IndexSettings) -> None:
    """Raise Refused if a model lacks a layer of the settings, or `max_length` is too large for it."""
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
    r"""Add every token of a file to an index.

    The call may be interrupted at any moment, and the same call resumes. A file that the index holds completely is not
    read again.

    path: plain text with one paragraph per line, a table, or a treebank.
    out: folder of the index, which is created if it does not exist.
    model: name of a model as for `load`, or a loaded model, which the engine "local" uses.
    settings: None means `IndexSettings()`.
    engine, device: as for `iter_heads`.
    column: column of the texts in a table, else None.
    characters: approximate number of characters of a shard; None means `SHARD_CHARACTERS`.
    on_progress: called after each shard with the counts of `PackedShard` for the file so far and its share, 0 to 1.
    Returns the counts of the file.
    Raises Refused for a folder with other content, an index of other settings or weights, and a file whose name stands
    for another content in the index. Raises Refused for an unknown engine, a missing installation of Ray, and if the
    file or the model changes during the run.

    >>> from pathlib import Path
    >>> import bert_core
    >>> _ = Path("corpus.txt").write_text("She opened the door.\nHe closed the window.\n")
    >>> counts = bert_core.index_file(Path("corpus.txt"), Path("index"))
    >>> counts["tokens"]
    14
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
    """Run `index_file` step by step: yield its counts and the share of the file after each shard.

    Arguments and exceptions are those of `index_file`.
    """
    settings = IndexSettings() if settings is None else settings
    columns = None if column is None else Columns(column)
    check_texts(path, columns)
    run = ShardRun(STUDY, path, model, settings, engine=engine, device=device)
    contents = _open_contents(out, run)
    document = _document(contents, run.source, out, columns)
    place, counts = document["place"], Counter[str](document["counts"])
    if counts:
        yield counts, document["read"] / run.source.size
    if document["whole"]:
        return
    _remove_unknown_shards(out, contents)
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
    """Remove a file from an index by its name. Raises Refused for a file that the index does not hold."""
    contents = read_contents(folder)
    names = [entry["name"] for entry in contents["documents"]]
    if document not in names:
        raise Refused(f"{folder} holds no file {short_repr(document)}: it holds {', '.join(names) or 'none'}")
    contents["documents"] = [entry for entry in contents["documents"] if entry["name"] != document]
    _write(folder, contents)
    _remove_unknown_shards(folder, contents)


def incomplete_note(counts: Mapping[str, int]) -> str:
    """Return the end of a sentence with what was not read completely; empty if everything was.

    counts: counts of `PackedShard`.
    """
    reasons = {
        "shortened": "sentences cut to the maximum length",
        "unreadable": "sentences without a character that the tokenizer knows",
        "overlong": "lines too long, of which only the beginning was read",
        "not UTF-8": "lines with bytes that are not UTF-8, which were replaced",
        "comments": "lines of comments left out",
    }
    return "".join(f"; {counts[name]:,} {reason}" for name, reason in reasons.items() if counts.get(name))


def corpus_shards(
    path: Path, columns: Columns | None = None, *, number: int = 0, start: int = 0, line: int = 0,
    characters: int | None = None,
) -> Iterator[CorpusShard]:  # fmt: skip
    """Yield the shards of a text, a table or a treebank, without splitting a line.

    number, start, line: as for `text_shards`. characters: as for `index_file`.
    """
    min_characters = SHARD_CHARACTERS if characters is None else characters
    small_shards: Iterator[Shard]
    if columns is None and check_texts(path).format is Format.TREEBANK:
        small_shards = _tree_shards(path, line)
    else:
        small_shards = text_shards(path, columns, start=start, line=line, size=1)
    # Shards count the lines of a text from 0 and the rows of a table from 1; an index counts both from 1.
    first = 0 if columns is None else 1
    lines: list[Line] = []
    trees: list[TreeSentence] = []
    counts: Counter[str] = Counter()
    size, last = 0, None
    for last in small_shards:
        lines += [entry._replace(number=entry.number - first) for entry in last.lines]
        trees += last.trees if isinstance(last, CorpusShard) else ()
        counts += last.counts
        size += sum(len(entry.text) for entry in last.lines)
        if size >= min_characters:
            yield CorpusShard(number, tuple(lines), last.end, last.next_line, counts, last.read, tuple(trees))
            number, lines, trees, counts, size = number + 1, [], [], Counter(), 0
    if last is not None and counts:
        yield CorpusShard(number, tuple(lines), last.end, last.next_line, counts, last.read, tuple(trees))


def _tree_shards(path: Path, line: int) -> Iterator[CorpusShard]:
    """Yield the sentences of a treebank from a line on, one shard per sentence."""
    for tree, bytes_read in read_trees(path, line):
        entry, counts = Line(tree.line - 1, tree.text[:MAX_LINE_BYTES]), Counter(lines=1, comments=tree.comments)
        if len(tree.text) > MAX_LINE_BYTES:
            counts["overlong"] = 1
        yield CorpusShard(0, (entry,), bytes_read, tree.line, counts, bytes_read, (tree,))


# ---------------------------------------------------------------------------- the folder


def read_contents(folder: Path) -> dict[str, Any]:
    """Read the contents file of an index. Raises Refused for a folder that is not an index."""
    path = folder / CONTENTS_FILE
    contents = read_json(path) if path.is_file() else {}
    if contents.get("format") != FORMAT_VERSION or not isinstance(contents.get("documents"), list):
        raise Refused(f"{folder} is not an index: create one with `headlight index FILE --out {folder}`")
    return contents


def _open_contents(out: Path, run: ShardRun[IndexSettings, PackedShard]) -> dict[str, Any]:
    """Return the contents of an index, which is created if it does not exist. Raises Refused for another index."""
    config, model = run.loaded.config, run.model
    expected = as_json_values({
        "format": FORMAT_VERSION, "model": model, "weights": run.weights, **asdict(run.settings),
        "hidden_size": config.hidden_size, "heads": config.num_attention_heads,
        "head_size": config.attention_head_size, "kept_layers": indexed_layers(run.loaded, run.settings),
        **({"windows": config.windows} if {*config.windows} > {None} else {}),
    })  # fmt: skip
    if (out / CONTENTS_FILE).exists():
        contents = read_contents(out)
        if contents.get("weights") != expected["weights"]:
            raise Refused(
                f"{out} is an index of other weights than those of {model}, or of an earlier version of Headlight: "
                "choose another folder, or delete this one and run `headlight index` again"
            )
        check_same_study(contents, {name: value for name, value in expected.items() if name != "model"}, out)
        return contents
    if out.is_dir() and any(path.name != ".lock" for path in out.iterdir()):
        raise Refused(f"{out} exists and holds no index: choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    contents = {**expected, "documents": []}
    _write(out, contents)
    return contents


def _document(contents: dict[str, Any], source: SourceFile, out: Path, columns: Columns | None) -> dict[str, Any]:
    """Return the entry of a file in the contents, which is added if missing. Raises Refused if the file has changed."""
    path = source.path
    documents: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in contents["documents"]}
    expected: dict[str, Any] = {"name": path.name, "bytes": path.stat().st_size, "content": source.digest}
    if columns is not None:
        expected["column"] = columns.text
    if path.name in documents:
        document = documents[path.name]
        # An index of version 0.2 holds the time of the last change instead of a digest.
        is_old = "content" not in document and document.get("changed") == path.stat().st_mtime_ns
        compared = ("name", "bytes", "column") if is_old else ("name", "bytes", "column", "content")
        if any(document.get(name) != expected.get(name) for name in compared):
            raise Refused(f"{out} holds another file {path.name}: remove that first, or give this one another name")
        return document
    number = max((entry["number"] for entry in contents["documents"]), default=-1) + 1
    place = {"number": 0, "start": 0, "line": 0}
    document = {**expected, "number": number, "shards": 0, "counts": {}, "place": place, "read": 0, "whole": False}
    contents["documents"].append(document)
    return document


def _folder(document: int, shard: int) -> str:
    return f"{document:04d}.{shard:06d}"


def shard_folders(contents: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the folder of every complete shard with the name of its document, in order."""
    return [
        (_folder(entry["number"], shard), entry["name"])
        for entry in contents["documents"]
        for shard in range(entry["shards"])
    ]


def _remove_unknown_shards(out: Path, contents: Mapping[str, Any]) -> None:
    """Delete the folders of shards that are in no document: incomplete ones, and those of removed documents."""
    shards = {folder for folder, _ in shard_folders(contents)}
    for path in out.glob("[0-9]*.[0-9]*"):
        if path.is_dir() and path.name not in shards:
            shutil.rmtree(path)


def _write(out: Path, contents: Mapping[str, Any]) -> None:
    checkpoint.write_atomically(out / CONTENTS_FILE, json.dumps(contents, indent=1) + "\n")


def _write_shard(folder: Path, packed: PackedShard, document: str) -> None:
    """Write the files of a shard, and last of all the file with their sizes and digests, which marks it as complete."""
    folder.mkdir(exist_ok=True)
    for name, array in packed.arrays.items():
        checkpoint.write_atomically(folder / f"{name}.npy", _array_writer(array))
    tokens = {"document": [document] * packed.counts["tokens"], **packed.tokens}
    for name, columns in (("tokens", tokens), ("texts", packed.texts)):
        types = {column: "int32" if column in _INTEGER_COLUMNS else "string" for column in columns}
        types |= {"text": "string"} if name == "texts" else {}  # among the tokens, "text" is a row of the texts
        write_columns(columns, folder / f"{name}.parquet", types, compression="zstd")
    shard_contents: dict[str, Any] = {"tokens": packed.counts["tokens"], "sizes": {}, "digests": {}}
    for file in sorted(folder.iterdir()):
        if file.suffix in (".npy", ".parquet"):
            shard_contents["sizes"][file.name] = file.stat().st_size
    for name, array in packed.arrays.items():
        shard_contents["digests"][name] = [digest(part) for part in array]
    for name in ("tokens", "texts"):
        shard_contents["digests"][name] = digest((folder / f"{name}.parquet").read_bytes())
    checkpoint.write_atomically(folder / SHARD_FILE, json.dumps(shard_contents, indent=1) + "\n")


def digest(data: np.ndarray | bytes) -> str:
    """Return the digest of an array or of the content of a file, in 32 hexadecimal digits."""
    return hashlib.sha256(data if isinstance(data, bytes) else np.ascontiguousarray(data).data).hexdigest()[:32]


def _array_writer(array: np.ndarray) -> Any:
    """Return a function that saves an array under a given name, for `checkpoint.write_atomically`."""

    def save(temporary: str) -> None:
        with open(temporary, "wb") as file:
            np.save(file, array, allow_pickle=False)

    return save
