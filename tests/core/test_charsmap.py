"""bert_core/charsmap.py: a whole table of characters is run as transformers runs it, and no other is run."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import transformers

from bert_core import Tokenizer
from bert_core.charsmap import check_charsmap
from bert_core.refused import Refused
from tests.families import save_tokenizer, sentences

TABLE = {"ﬁ": "fi", "Ａ": "A", "\u00a0": " ", "…": "...", "é": "e", "한": "한", "\u200b": ""}


def charsmap(table: dict[str, str], change: dict[int, int] | None = None) -> str:
    """A table in the form of SentencePiece, each node of its trie in a block of its own. change: units put in place."""
    texts, places = b"", {}
    for found, becomes in table.items():
        places[found.encode()] = len(texts)
        texts += becomes.encode() + b"\0"
    nodes = sorted({key[:length] for key in places for length in range(len(key) + 1)})
    base = {node: 256 * (number + 1) for number, node in enumerate(nodes)}
    units = np.zeros(256 * (len(nodes) + 1), np.uint32)
    units[0] = base[b""] << 10
    for node in nodes[1:]:
        place = base[node[:-1]] ^ node[-1]
        units[place] = (place ^ base[node]) << 10 | node[-1] | (1 << 8 if node in places else 0)
        if node in places:
            units[base[node]] = 1 << 31 | places[node]
    for place, unit in (change or {}).items():
        units[place] = unit
    return base64.b64encode(struct.pack("<I", units.nbytes) + units.tobytes() + texts).decode()


def normalized(table: str, text: str) -> str:
    """A text as the library changes it by a table."""
    part = json.dumps({"type": "Precompiled", "precompiled_charsmap": table})
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a"))
    values = {**json.loads(backend.to_str()), "normalizer": json.loads(part)}
    return str(tokenizers.Tokenizer.from_str(json.dumps(values)).normalizer.normalize_str(text))


def test_a_whole_table_is_taken_and_does_what_it_says() -> None:
    """What was written by hand is read by the library as it was meant."""
    table = charsmap(TABLE)
    check_charsmap(table)
    assert normalized(table, "ﬁne Ａ\u00a0b… é한\u200bx") == "fine A b... e한x"


@pytest.mark.parametrize("family", ["xlm-roberta", "camembert"])
def test_texts_are_read_as_by_transformers(family: str, tmp_path: Path) -> None:
    """With the table in a tokenizer.json, ids and offsets are those of transformers, also of signs that it changes."""
    save_tokenizer(family, tmp_path, cased=True)
    file = tmp_path / "tokenizer.json"
    several = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    steps = [{"type": "Precompiled", "precompiled_charsmap": charsmap(TABLE)}, several]
    values = {**json.loads(file.read_text("utf-8")), "normalizer": {"type": "Sequence", "normalizers": steps}}
    file.write_text(json.dumps(values), "utf-8")
    ours, theirs = Tokenizer.from_folder(tmp_path), transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for line in (*sentences(), "the ﬁne  caﬁé… Ａ\u00a0b", "한 [MASK]"):
        text = line.replace("[MASK]", "<mask>")
        expected = theirs(text, return_offsets_mapping=True)
        encoding = ours.encode(text)
        assert list(encoding.input_ids) == expected["input_ids"]
        ends = zip(encoding.offsets, expected["offset_mapping"], strict=True)
        assert all(own[1] == other[1] and own[0] >= other[0] for own, other in ends)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (3, "must be a text in base64"),
        ("AAA\0", "must be a text in base64"),
        ("", "must be a complete table"),
        (base64.b64encode(struct.pack("<I", 2**32 - 4) + b"abcd").decode(), "states 4,294,967,292 for its trie"),
        (base64.b64encode(struct.pack("<II", 4, 0)).decode(), "leads out of its trie of 1 units"),
        (charsmap(TABLE, {0: (1 << 20) << 10}), "leads out of its trie"),
        (charsmap({"a": "x" * 200}), "longer than 128 bytes"),
        (charsmap({"a": "é"}, {512: 1 << 31 | 1}), "begins within a character"),
        (charsmap({"a": "b"}, {512: 1 << 31 | 900}), "names byte 900 of 2"),
    ],
)
def test_a_table_that_is_not_whole_is_refused(table: object, words: str) -> None:
    """Sizes that are not there, ways out of the trie, and replacements that are none, each in one sentence."""
    with pytest.raises(Refused, match=words):
        check_charsmap(table)


def test_what_is_taken_never_stops_the_library() -> None:
    """Of a hundred tables with a wrong number somewhere, each is refused, or normalizes every character."""
    rng, taken = np.random.default_rng(0), 0
    whole = base64.b64decode(charsmap(TABLE))
    used = np.flatnonzero(np.frombuffer(whole, "<u4", int.from_bytes(whole[:4], "little") // 4, 4))
    every = "".join(map(chr, (*range(1, 0x2100), *range(0xAC00, 0xD7A4), *range(0xFB00, 0xFF30))))
    for _ in range(100):
        place = int(rng.choice(used))
        table = charsmap(TABLE, {place: int(rng.integers(0, 2**32))})
        try:
            check_charsmap(table)
        except Refused:
            continue
        taken += 1
        assert normalized(table, every)
    assert 0 < taken < 100
