"""bert_core/unknown_tokens.py: what a vocabulary does not know is counted wherever texts are read, and only there."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

import bert_core
from bert_core import LoadedModel, iter_heads
from bert_core.run.similarity import unrelated_cosines
from bert_core.studies.engines import _add_counts, _measure_and_count
from bert_core.studies.settings import CorpusSettings
from bert_core.unknown_tokens import UnknownTokens, count_unknown_tokens, current_counts

UNKNOWN_TEXT = "ភាសា ខ្មែរ"


def test_texts_of_both_ways_of_reading_count(tiny_loaded: LoadedModel) -> None:
    """Encodings and plain pieces are counted alike; single texts that are mostly unknown are named."""
    tokenizer = tiny_loaded.tokenizer
    assert current_counts() is None
    with count_unknown_tokens() as read:
        known = tokenizer.encode("a b c")
        assert read.token_count == known.typed_count and not read.mostly_unknown and not read.texts
        unknown = tokenizer.encode(UNKNOWN_TEXT, UNKNOWN_TEXT)
        assert unknown.mostly_unknown and list(read.texts) == [UNKNOWN_TEXT]
        before = read.token_count
        plain = tokenizer.encode_plain([UNKNOWN_TEXT, UNKNOWN_TEXT])
        assert read.token_count - before == sum(map(len, plain)) == 2 * len(plain[0])
        assert read.mostly_unknown == (read.unknown_count * 2 > read.token_count)
    tokenizer.encode("a b c")
    assert current_counts() is None and read.token_count == before + sum(map(len, plain))


def test_a_count_within_a_count_is_its_own(tiny_loaded: LoadedModel) -> None:
    """What is read aside, and in another thread, does not count."""
    with count_unknown_tokens() as outer:
        with count_unknown_tokens() as inner:
            tiny_loaded.tokenizer.encode("a b c")
        thread = threading.Thread(target=lambda: tiny_loaded.tokenizer.encode("a b c"))
        thread.start()
        thread.join()
        unrelated_cosines(tiny_loaded)
    assert inner.token_count == 3 and outer == UnknownTokens()


def test_what_a_worker_read_counts_where_it_was_asked_for(tiny_loaded: LoadedModel) -> None:
    """A cluster's workers bring back what they counted."""
    found, read = _measure_and_count(lambda text: tiny_loaded.tokenizer.encode(text).typed_count, UNKNOWN_TEXT)
    assert read.token_count == read.unknown_count == found > 0
    with count_unknown_tokens() as here:
        assert _add_counts(found, read) == found
    assert (here.token_count, here.unknown_count, here.mostly_unknown) == (found, found, True)
    assert _add_counts(found, read) == found  # where nobody counts


def test_a_corpus_is_counted(tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Every text of a file is in the count of what is computed from it."""
    (tmp_path / "texts.txt").write_text(f"{UNKNOWN_TEXT}\n{UNKNOWN_TEXT}\na b\n", encoding="utf-8")
    with count_unknown_tokens() as read:
        *_, (total, _) = iter_heads(tmp_path / "texts.txt", str(tiny_model_folder), CorpusSettings(max_length=32))
    assert read.mostly_unknown and np.isfinite(total.loss)
    tokenizer = bert_core.Tokenizer.from_folder(tiny_model_folder)
    assert read.token_count == 2 * tokenizer.encode(UNKNOWN_TEXT).typed_count + 2
