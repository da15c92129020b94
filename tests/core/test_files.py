"""Input files are identified by extension and content, and read alike in any compression and encoding."""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
import re
from pathlib import Path

import pyarrow
import pytest

from bert_core.refused import Refused
from bert_core.studies.documents import read_documents
from bert_core.studies.files import Format, identify
from bert_core.studies.lines import MAX_LINE_BYTES, line_shards
from bert_core.studies.rows import Columns, read_labelled, read_rows, row_shards
from bert_core.studies.squad import read_squad
from bert_core.studies.texts import check_texts, text_shards
from bert_core.studies.words import read_labelled_words

TEXTS = ["The café is open.", "It closes at ten,", 'and "nobody" stays; not even I.']
PLAIN = "".join(f"{text}\n" for text in TEXTS)
COMMA = 'sentence,label\n"The café is open.",a\n"It closes at ten,",b\n"and ""nobody"" stays; not even I.",a\n'
TAB = "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in zip(TEXTS, "aba", strict=True))
RECORDS = [{"sentence": text, "label": label} for text, label in zip(TEXTS, "aba", strict=True)]
JSON_LINES = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS)
TREE = "# sent_id = 1\n1\tCats\tcat\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_\n\n"
WORDS = "Anna B-PER\nlives O\n\nBergen B-LOC\n\n"
SQUAD = {"data": [{"paragraphs": [{"context": "A cat.", "qas": [{"id": "1", "question": "Who?", "answers": [
    {"text": "cat", "answer_start": 2}]}]}]}]}  # fmt: skip


def zstd(data: bytes) -> bytes:
    """Data compressed by Zstandard."""
    out = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return bytes(out.getvalue().to_pybytes())


STORED = {
    "utf-8": ("", lambda text: text.encode()),
    "byte order mark": ("", lambda text: text.encode("utf-8-sig")),
    "utf-16": ("", lambda text: text.encode("utf-16")),
    "utf-16 big-endian": ("", lambda text: b"\xfe\xff" + text.encode("utf-16-be")),
    "carriage returns": ("", lambda text: text.replace("\n", "\r").encode()),
    "windows": ("", lambda text: text.replace("\n", "\r\n").encode()),
    "gzip": (".gz", lambda text: gzip.compress(text.encode(), mtime=0)),
    "gzip of two parts": (
        ".gz",
        lambda text: b"".join(gzip.compress(part.encode(), mtime=0) for part in (text[:9], text[9:])),
    ),
    "xz": (".xz", lambda text: lzma.compress(text.encode())),
    "zstandard": (".zst", lambda text: zstd(text.encode())),
    "utf-16, gzip": (".gz", lambda text: gzip.compress(text.encode("utf-16"), mtime=0)),
}


@pytest.mark.parametrize("stored", STORED)
def test_texts_are_the_same_in_every_format_compression_and_encoding(stored: str, tmp_path: Path) -> None:
    """Plain text, tables, JSON, trees, words in columns and questions give the same texts however they are stored."""
    extension, encode = STORED[stored]

    def written(name: str, text: str) -> Path:
        path = tmp_path / (name + extension)
        path.write_bytes(encode(text))
        return path

    def texts(path: Path, columns: Columns | None = None) -> list[str]:
        return [line.text for shard in text_shards(path, columns, size=2) for line in shard.lines]

    columns = Columns("sentence", answer="label")
    assert texts(written("a.txt", PLAIN)) == TEXTS
    assert texts(written("plain", PLAIN)) == TEXTS
    for name, text in (("a.csv", COMMA), ("a.tsv", TAB), ("a.jsonl", JSON_LINES), ("a.json", json.dumps(RECORDS))):
        path = written(name, text)
        assert texts(path, columns) == TEXTS, name
        assert [example.label for example in read_labelled(path, "sentence", "label")] == ["a", "b", "a"], name
        assert list(read_documents(path, "sentence")) == [[text] for text in TEXTS], name
    assert list(read_documents(tmp_path / f"a.txt{extension}")) == [TEXTS]
    for name in ("a.conllu", "b.conll", "tree"):
        path = written(name, TREE)
        assert texts(path) == ["Cats sleep"]
        assert [sentence.labels for sentence in read_labelled_words(path, "upos")] == [("NOUN", "VERB")]
    for name in ("words.conll", "words.iob2", "words.txt", "words"):
        found = read_labelled_words(written(name, WORDS), "last")
        assert [(one.text, one.labels) for one in found] == [("Anna lives", ("B-PER", "O")), ("Bergen", ("B-LOC",))]
    (question,), _ = read_squad(written("squad.json", json.dumps(SQUAD)))
    assert (question.question, question.answers) == ("Who?", ("cat",))


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("table", [False, True])
def test_reading_goes_on_in_the_middle_of_any_file(stored: str, table: bool, tmp_path: Path) -> None:
    """From where each shard ended the rest of the file is read, also where it is compressed or converted."""
    extension, encode = STORED[stored]
    rows = [f"text number {number} x" + "x" * (number % 7) * 40 for number in range(700)]
    path = tmp_path / (("a.jsonl" if table else "a.txt") + extension)
    path.write_bytes(encode("".join((json.dumps({"t": row}) if table else row) + "\n" for row in rows)))
    columns = Columns("t") if table else None
    whole = list(text_shards(path, columns))
    assert [line.text for shard in whole for line in shard.lines] == rows
    assert [shard.read for shard in whole] == sorted(shard.read for shard in whole)
    assert whole[-1].read == path.stat().st_size
    for shard in whole[:-1:5]:
        rest = text_shards(path, columns, number=shard.number + 1, start=shard.end, line=shard.next_line)
        assert list(rest) == whole[shard.number + 1 :]


DISAGREEMENTS = {
    "a.txt": (JSON_LINES, "has the extension .txt for plain text but contains JSON lines: rename it to a.jsonl"),
    "b.txt": (TAB, "contains a table of tab-separated values: rename it to b.tsv"),
    "c.txt": (TREE, "contains a treebank in CoNLL-U: rename it to c.conllu"),
    "d.txt": (json.dumps(SQUAD, indent=1), "contains a JSON document: rename it to d.json"),
    "a.csv": (TAB, "contains a table of tab-separated values: rename it to a.tsv"),
    "b.csv": (JSON_LINES, "contains JSON lines: rename it to b.jsonl"),
    "a.tsv": (COMMA, "contains a table of comma-separated values: rename it to a.csv"),
    "a.jsonl": (PLAIN, "has the extension .jsonl for JSON lines but contains plain text: rename it to a.txt"),
    "b.jsonl": (json.dumps(RECORDS, indent=1), "contains a JSON document: rename it to b.json"),
    "a.json": (JSON_LINES, "has the extension .json for a JSON document but contains JSON lines"),
    "b.json": (PLAIN, "contains plain text: rename it to b.txt"),
    "a.conllu": (JSON_LINES, "contains JSON lines: rename it to a.jsonl"),
    "a.iob2": (JSON_LINES, "has the extension .iob2 for words in columns but contains JSON lines"),
}


@pytest.mark.parametrize("name", DISAGREEMENTS)
@pytest.mark.parametrize("compressed", [False, True])
def test_an_extension_that_the_content_contradicts_is_refused(name: str, compressed: bool, tmp_path: Path) -> None:
    """One sentence names both, and a name that would be right."""
    text, sentence = DISAGREEMENTS[name]
    path = tmp_path / (name + (".gz" if compressed else ""))
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if compressed else text.encode())
    if compressed:
        sentence = re.sub(r"(rename it to \S+)", r"\1.gz", sentence)
    with pytest.raises(Refused, match=re.escape(sentence)):
        identify(path)


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    ids=itertools.count(),
    argvalues=[
        ("a.parquet", b"PAR1....PAR1", "a.parquet is a Parquet file, which is not read: save it as plain text (.txt)"),
        ("a.xlsx", b"PK\x03\x04....", "a.xlsx is an Excel workbook, which is not read"),
        ("a.pdf", b"%PDF-1.7\n", "a.pdf is a PDF document, which is not read"),
        ("a.txt", b"PAR1....", "a.txt is a Parquet file, which is not read"),
        ("a.csv", b"PK\x03\x04....", "a.csv is a ZIP archive, which is not read"),
        ("a.docx", b"not really", "a.docx is a Word document, which is not read"),
        ("a.html.gz", gzip.compress(b"<html>", mtime=0), "a.html.gz is an HTML page, which is not read"),
        ("a.txt", gzip.compress(b"a\n", mtime=0), "contains compressed data: rename it to a.txt.gz"),
        ("a.txt.gz", b"a\n", "a.txt.gz has the extension .gz but is not compressed that way: rename it to a.txt"),
        ("a.txt.gz", lzma.compress(b"a\n"), "its content is that of a .xz file"),
        ("a.txt", "a b\n".encode("utf-32"), "a.txt is in UTF-32, which is not read: save it as UTF-8"),
        ("a.txt", ("plain words\n" * 9).encode("utf-16-le"), "a.txt looks like UTF-16 without a byte order mark"),
        ("a.txt", bytes(range(8)) * 40 + bytes(100), "a.txt is a binary file, which is not read"),
        ("a.txt", b"", "a.txt is empty: there is no text in it"),
    ],
)  # fmt: skip
def test_other_formats_are_refused_by_name(name: str, data: bytes, sentence: str, tmp_path: Path) -> None:
    """Parquet, Excel, PDF, other compressions and encodings are named, by content and by extension."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Refused, match=re.escape(sentence)):
        identify(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    ids=itertools.count(),
    argvalues=[
        ("a.txt.gz", gzip.compress(PLAIN.encode() * 99, mtime=0)[:60], "a.txt.gz is not a whole .gz file: "),
        ("a.txt.xz", lzma.compress(PLAIN.encode() * 99)[:-9], "a.txt.xz is not a whole .xz file: "),
        ("a.txt.zst", zstd(PLAIN.encode() * 99)[:40], "a.txt.zst is not a whole .zst file: "),
        ("a.txt", PLAIN.encode("utf-16")[:-1], "a.txt is not whole UTF-16: "),
    ],
)
def test_a_file_that_is_cut_off_is_one_sentence(name: str, data: bytes, sentence: str, tmp_path: Path) -> None:
    """A download that stopped is named, whichever compression it has."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Refused, match=re.escape(sentence)):
        list(line_shards(tmp_path / name))


def test_plain_text_may_look_like_other_formats(tmp_path: Path) -> None:
    """Braces, brackets, tabs, commas and # in plain text make no other format of it."""
    for number, text in enumerate((
        "{curly} words\n[bracketed] words\n", "[[wiki]] link\n", "# A heading\n\nOne\ttab here\nnone here\n",
        "one, two\nthree, four\n", "{\n", "1\tone\n\n2\ttwo\n", "a \0 zero byte in a long enough line of plain text\n",
    )):  # fmt: skip
        path = tmp_path / f"{number}.txt"
        path.write_text(text, encoding="utf-8")
        assert identify(path).format is Format.TEXT, text
    (tmp_path / "0.txt").write_text(TAB, encoding="utf-8")
    assert identify(tmp_path / "0.txt", tabs_in_text=True).format is Format.TEXT


def test_a_long_json_document_on_one_line_is_identified(tmp_path: Path) -> None:
    """SQuAD's files are one line of many megabytes; the objects of JSON lines may be long too."""
    value = {"data": [], "text": "x" * 3 * MAX_LINE_BYTES}
    for name, content in (("a.json", json.dumps(value)), ("a.jsonl", json.dumps(value) + "\n" + json.dumps(value))):
        (tmp_path / name).write_text(content, encoding="utf-8")
        assert identify(tmp_path / name).is_table


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.csv", COMMA, "a.csv contains a table of comma-separated values: name the column of the texts (--text); its "
         "columns are sentence, label"),
        ("a.tsv", TAB, "name the column of the texts (--text); its columns are sentence, label"),
        ("a.jsonl", JSON_LINES, "a.jsonl contains JSON lines: name the field of the texts (--text); its fields are "
         "sentence, label"),
        ("a.json", json.dumps(RECORDS), "name the field of the texts (--text); its fields are sentence, label"),
        ("a.iob2", WORDS, "a.iob2 contains words in columns, from which only labels of words can be read"),
    ],
)  # fmt: skip
def test_texts_without_a_column_are_refused_with_its_columns(
    name: str, text: str, sentence: str, tmp_path: Path
) -> None:
    """A table is not read line by line: the sentence lists its columns."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(Refused, match=re.escape(sentence)):
        check_texts(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"t": "a"}\n{"t": "b"', "line 2 of a.jsonl is not valid JSON: "),
        ('{"t": "a"}\n["b"]', "line 2 of a.jsonl is ['b']: it must be an object with named fields"),
        ('{"t": "a"}\n{"u": "b"}', "line 2 of a.jsonl has no field 't': its fields are u"),
        ('{"u": "a"}\n{"u": "b"}', "no object of a.jsonl has the field 't': its fields are u"),
        ('{"t": ["a"]}', "the field 't' of line 1 of a.jsonl is ['a']: it must be a text"),
        (
            '{"t": "a"}\n{"t": null}',
            "1 of 2 rows of a.jsonl have an empty field in the column 't' (row 2): fill them in",
        ),
    ],
)
def test_a_broken_line_of_json_is_named(text: str, sentence: str, tmp_path: Path) -> None:
    """The number of the line, what it is, and what is needed."""
    (tmp_path / "a.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(Refused, match=re.escape(sentence)):
        list(row_shards(tmp_path / "a.jsonl", Columns("t")))


def test_values_of_json_are_written_as_texts(tmp_path: Path) -> None:
    """A number is a label like its digits in a .csv, and null is an empty field."""
    (tmp_path / "a.jsonl").write_text('{"a": 1, "b": 0.5, "c": true, "d": null, "e": "é"}\n', encoding="utf-8")
    ((_, fields, _),) = read_rows(tmp_path / "a.jsonl", ["a"])
    assert fields == {"a": "1", "b": "0.5", "c": "true", "d": "", "e": "é"}
