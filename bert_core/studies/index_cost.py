"""What an index of a file will cost: its tokens counted, and its beginning read to see how quickly that goes here."""

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
    IndexSettings,
    corpus_shards,
    indexed_layers,
    iter_index,
    iter_sentences,
)
from bert_core.studies.texts import check_texts

LONG_CORPUS_ADVICE = (
    "make an index with `headlight index corpus.txt --out runs/index`, and start `headlight app --index runs/index`"
)
PROBE_CHARACTERS, PROBE_SHARDS = 1 << 12, 3  # characters of a shard, and shards: about 1,000 tokens each


@dataclass(frozen=True)
class IndexCost:
    """What an index of a file takes: tokens, bytes, and about how many seconds.

    Tokens are counted; bytes and seconds a token are those of the file's beginning. counts: of what is not read whole,
    as `index.Packed` has them.
    """

    tokens: int
    nbytes: int
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)


def bytes_per_token(loaded: LoadedModel, settings: IndexSettings) -> int:
    """What the arrays of an index hold of each token; what is written of the token itself is a few bytes more."""
    layers, config = len(indexed_layers(loaded, settings)), loaded.config
    scales, key = 8, (1 if settings.max_length <= 256 else 2) + 2
    of_heads = config.num_attention_heads * (config.attention_head_size + scales + TOP_KEYS * key)
    return (layers + 1) * (config.hidden_size + scales) + layers * of_heads


@validate_arguments
def index_cost(
    path: Path,
    loaded: LoadedModel,
    settings: IndexSettings | None = None,
    *,
    max_tokens: int,
    report: Progress = ignore_progress,
) -> IndexCost:
    """Count the tokens of a file as `index_file` reads them, and index its beginning to see what that takes here.

    most: tokens that are allowed. report: told how far it is, as for `Progress`.
    Raises Refused for a file that cannot be indexed, that is not UTF-8, without a sentence, or with more tokens.
    """
    settings, max_tokens = IndexSettings() if settings is None else settings, require_int("most", max_tokens, 1)
    check_texts(path)
    tokens, counts, size = 0, Counter[str](), max(path.stat().st_size, 1)
    for shard in corpus_shards(path, characters=PROBE_CHARACTERS):
        if shard.counts["not UTF-8"]:
            raise Refused(f"{path.name} is not UTF-8, which the text of an index must be: save it so")
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
    seconds, nbytes = _paces(path, loaded, settings)
    report(1.0)
    return IndexCost(tokens, round(nbytes * tokens), seconds * tokens, counts)


def _paces(path: Path, loaded: LoadedModel, settings: IndexSettings) -> tuple[float, float]:
    """Seconds and bytes a token, of the quickest of a file's first shards: other work only makes them slower."""
    quickest, read, probes, began = float("inf"), 0, 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for counts, _ in iter_index(path, Path(folder), loaded, settings, characters=PROBE_CHARACTERS):
            now, more = time.perf_counter(), counts["tokens"] - read
            if more:
                quickest, probes = min(quickest, (now - began) / more), probes + 1
            began, read = now, counts["tokens"]
            if probes == PROBE_SHARDS:
                break
        nbytes = sum(file.stat().st_size for file in Path(folder).glob("*/*"))
    return quickest, nbytes / read
