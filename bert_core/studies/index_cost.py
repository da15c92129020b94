"""Cost of an index: the tokens of a file are counted, and its beginning is indexed to measure the time and size."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.refused import Refused, require_int, validate_arguments
from bert_core.studies.index import (
    TOP_KEYS,
    corpus_shards,
    indexed_layers,
    iter_index,
    iter_sentences,
)
from bert_core.studies.settings import IndexSettings
from bert_core.studies.texts import check_texts

LONG_CORPUS_ADVICE = (
    "make an index with `headlight index corpus.txt --out runs/index`, and start `headlight app --index runs/index`"
)
PROBE_CHARACTERS, PROBE_SHARDS = 1 << 12, 3  # size and number of the measured shards, about 1,000 tokens each


@dataclass(frozen=True)
class IndexCost:
    """Cost of an index of a file.

    tokens: number of tokens of the file.
    nbytes, seconds: estimated size, and estimated time on this machine, both from the beginning of the file.
    counts: "unreadable", "shortened" and "overlong" as in the counts of `index.PackedShard`.
    """

    tokens: int
    nbytes: int
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)


def bytes_per_token(loaded: LoadedModel, settings: IndexSettings) -> int:
    """Return the number of bytes per token in the arrays of an index; the columns of the token take a few more."""
    layers, config = len(indexed_layers(loaded, settings)), loaded.config
    scales, key = 8, (1 if settings.max_length <= 256 else 2) + 2
    head_bytes = config.num_attention_heads * (config.attention_head_size + scales + TOP_KEYS * key)
    return (layers + 1) * (config.hidden_size + scales) + layers * head_bytes


@validate_arguments
def index_cost(
    path: Path,
    loaded: LoadedModel,
    settings: IndexSettings | None = None,
    *,
    max_tokens: int,
    report: Progress = ignore_progress,
) -> IndexCost:
    """Estimate the cost of `index_file` by counting the tokens of a file and indexing its beginning.

    path: plain text or a treebank. settings: None means `IndexSettings()`.
    max_tokens: maximum number of tokens, from 1.
    report: receives the progress, see `Progress`.
    Raises Refused for a file that cannot be indexed, is not UTF-8, has no readable sentence, or has more tokens than
    `max_tokens`.
    """
    settings, max_tokens = IndexSettings() if settings is None else settings, require_int("most", max_tokens, 1)
    check_texts(path)
    tokens, counts, size = 0, Counter[str](), max(path.stat().st_size, 1)
    for shard in corpus_shards(path, characters=PROBE_CHARACTERS):
        if shard.counts["not UTF-8"]:
            raise Refused(f"{path.name} is not UTF-8, as the text of an index must be: save it as UTF-8")
        for *_, encoding in iter_sentences(loaded, shard, settings):
            tokens += 0 if encoding is None else len(encoding)
            counts["unreadable"] += encoding is None
            counts["shortened"] += encoding is not None and bool(encoding.truncated_count)
        counts["overlong"] += shard.counts["overlong"]
        if tokens > max_tokens:
            raise Refused(f"{path.name} has more than {max_tokens:,} tokens: {LONG_CORPUS_ADVICE}")
        report(0.8 * min(shard.read / size, 1.0))
    if not tokens:
        raise Refused(f"{path.name} has no sentence that can be read")
    seconds, nbytes = _measure_beginning(path, loaded, settings)
    report(1.0)
    return IndexCost(tokens, round(nbytes * tokens), seconds * tokens, counts)


def _measure_beginning(path: Path, loaded: LoadedModel, settings: IndexSettings) -> tuple[float, float]:
    """Return seconds and bytes per token; the time is that of the fastest shard, as other work only slows shards."""
    seconds, tokens, measured_shards, start = float("inf"), 0, 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for counts, _ in iter_index(path, Path(folder), loaded, settings, characters=PROBE_CHARACTERS):
            end, shard_tokens = time.perf_counter(), counts["tokens"] - tokens
            if shard_tokens:
                seconds, measured_shards = min(seconds, (end - start) / shard_tokens), measured_shards + 1
            start, tokens = end, counts["tokens"]
            if measured_shards == PROBE_SHARDS:
                break
        nbytes = sum(file.stat().st_size for file in Path(folder).glob("*/*"))
    return seconds, nbytes / tokens
