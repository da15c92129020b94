"""Queries and keys of attention heads over a file of texts, in planes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.records import QueryKeyPlane
from bert_core.refused import MAX_SEED, Refused, require_int, validate_arguments
from bert_core.run.query_keys import MAX_TOKENS, MAX_TOKENS_LIMIT, MIN_TOKENS, query_key_planes
from bert_core.studies.lines import Line
from bert_core.studies.rows import Columns
from bert_core.studies.texts import text_shards
from bert_core.tokenizer import Encoding


@validate_arguments
def query_keys_file(
    path: Path,
    loaded: LoadedModel,
    heads: Sequence[tuple[int, int]] | None = None,
    *,
    columns: Columns | None = None,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    report: Progress = ignore_progress,
) -> tuple[QueryKeyPlane, ...]:
    r"""Project the queries and keys of attention heads over random texts of a file onto planes.

    path: plain text with one text per line, a treebank, or a table. columns: columns of a table, otherwise None.
    The other arguments, and the result, are those of `query_key_planes`; `texts` has the numbers of the lines.
    Raises Refused as `query_key_planes` and `text_shards`, and if no text has a readable character.

    >>> from pathlib import Path
    >>> import bert_core
    >>> lines = ["She opened the door and walked in.", "The sun rises in the east.", "A dog ran home."]
    >>> _ = Path("corpus.txt").write_text("\n".join(lines))
    >>> planes = bert_core.query_keys_file(Path("corpus.txt"), bert_core.load("headlight-mini"))
    >>> len(planes), planes[0].labels[:3]
    (72, ('[CLS]', 'she', 'opened'))
    """
    max_tokens = require_int("max_tokens", max_tokens, MIN_TOKENS, MAX_TOKENS_LIMIT)
    rng = np.random.default_rng(require_int("seed", seed, 0, MAX_SEED))
    lines = _sample_lines(path, columns, max_tokens, rng)
    texts: list[tuple[int, Encoding]] = []  # number of the line, and its encoding
    tokens = 0
    for line in lines:
        try:
            encoding = loaded.tokenizer.encode(line.text, line.pair)
        except Refused:  # no readable character
            continue
        texts.append((line.number, encoding))
        tokens += len(encoding)
        if tokens >= max_tokens:
            break
    texts.sort(key=lambda text: text[0])
    encodings = [encoding for _, encoding in texts]
    planes = query_key_planes(loaded, encodings, heads, max_tokens=max_tokens, seed=seed, report=report)
    line_numbers = np.array([number for number, _ in texts], np.int32)
    return tuple(replace(plane, texts=line_numbers[plane.texts]) for plane in planes)


def _sample_lines(path: Path, columns: Columns | None, count: int, rng: np.random.Generator) -> list[Line]:
    """Return at most `count` random texts of a file in random order, by reservoir sampling."""
    sample: list[Line] = []
    line_count = 0
    for shard in text_shards(path, columns):
        for line in shard.lines:
            line_count += 1
            if len(sample) < count:
                sample.append(line)
            elif (place := int(rng.integers(line_count))) < count:
                sample[place] = line
    return [sample[place] for place in rng.permutation(len(sample)).tolist()]
