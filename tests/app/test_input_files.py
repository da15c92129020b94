"""Every command that reads a file gives the same result for the same content in every format, or refuses the format."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import lzma
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.app.test_cli import Run, headlight
from tests.core.test_files import zstd

__all__ = ["headlight"]  # a fixture

SENTENCES = [
    f"The old {pet} sat near the {place}. The {ruler} saw it and went home."
    for place, pet, ruler in itertools.product(
        ("door", "sea", "house", "wall"), ("cat", "dog", "man"), ("king", "queen")
    )
]
TEXTS = SENTENCES[::3]
SECOND = [f"It was a {'dog' if number % 2 else 'cat'} of {number} years." for number in range(len(TEXTS))]
CLASSES = ["a", "b"] * (len(TEXTS) // 2)
NAMES = ("text", "second", "class")
ROWS = [dict(zip(NAMES, row, strict=True)) for row in zip(TEXTS, SECOND, CLASSES, strict=True)]
WORDS = [
    {"sentence": number, "word": word, "tag": "PET" if word in ("cat", "dog") else "O"}
    for number, text in enumerate(SENTENCES)
    for word in text.split()
]
SQUAD = {"data": [{"paragraphs": [
    {"context": text, "qas": [{"id": str(number), "question": "Who sat there?", "answers": [
        {"text": text.split()[2], "answer_start": text.index(text.split()[2])}]}]}
    for number, text in enumerate(TEXTS)
]}]}  # fmt: skip

TABLES = (".csv", ".tsv", ".jsonl", ".json")
COLUMNS = (".conll", ".iob2")
OTHERS = {
    ".parquet": (b"PAR1", "is a Parquet file, which is not read"),
    ".xlsx": (b"PK\x03\x04", "is an Excel workbook, which is not read"),
    ".pdf": (b"%PDF-1.7", "is a PDF document, which is not read"),
}


STORED: dict[str, Callable[[str], bytes]] = {
    ".gz": lambda text: gzip.compress(text.encode(), mtime=0),
    ".xz": lambda text: lzma.compress(text.encode()),
    ".zst": lambda text: zstd(text.encode()),
    " with a byte order mark": lambda text: text.encode("utf-8-sig"),
    " in UTF-16": lambda text: text.encode("utf-16"),
    " with carriage returns": lambda text: text.replace("\n", "\r").encode(),
}


def as_table(rows: list[dict[str, Any]], extension: str) -> str:
    """Rows as a table, of the kind that an extension says."""
    if extension == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    if extension == ".json":
        return json.dumps(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter="\t" if extension == ".tsv" else ",", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_columns(*, tree: bool) -> str:
    """The words in columns: with all that CoNLL-U has, or a word and its tag."""
    blocks = []
    for number in dict.fromkeys(row["sentence"] for row in WORDS):
        words = [row for row in WORDS if row["sentence"] == number]
        blocks.append("".join(
            f"{place}\t{row['word']}\t_\t{row['tag']}\t_\t_\t{place - 1}\tdep\t_\t_\n" if tree
            else f"{row['word']} {row['tag']}\n"
            for place, row in enumerate(words, 1)
        ))  # fmt: skip
    return "\n".join(blocks) + "\n"


@dataclass(frozen=True)
class Command:
    """A command and what it does with each format.

    arguments: what is given; FILE stands for the file, OUT for what is written, TINY for a model. table: the options
    that name columns. content: what the file holds in each format that is read: all of these give the same result.
    refused: other extensions, and the sentence. model: the fixture of the model. without_columns: extensions of tables
    that are also read without columns, as something else.
    """

    arguments: tuple[Any, ...]
    content: dict[str, str]
    refused: dict[str, str]
    table: tuple[str, ...] = ()
    model: str = "tiny_model_folder"
    out: str = "out.csv"
    without_columns: tuple[str, ...] = ()


PLAIN = "\n\n".join(TEXTS) + "\n"
PAIRS = "".join(f"{row['text']}\t{row['second']}\n" for row in ROWS)
IN_TABLES = {extension: as_table(ROWS, extension) for extension in TABLES}
OF_WORDS = {extension: as_table(WORDS, extension) for extension in TABLES}
TREES, TAGS = as_columns(tree=True), as_columns(tree=False)
ONE_TREE_A_TEXT = "\n\n".join(TREES.split("\n\n")[: len(SENTENCES) : 3]) + "\n\n"
NOT_DOCUMENTS = dict.fromkeys([".conllu", *COLUMNS], "plain text is needed, one paragraph per line, or a table")
NO_COLUMNS = "a table is needed|which has no named columns"
STEP = ("--steps", 1, "--warmup", 0, "--decay", 0)

READ_AS_TEXTS = {".txt": PLAIN, "": PLAIN, ".conllu": ONE_TREE_A_TEXT, **IN_TABLES}
NOT_TEXTS = dict.fromkeys(COLUMNS, "contains words in columns, from which only labels of words can be read")
READ_AS_DOCUMENTS = {".txt": PLAIN, "": PLAIN, **IN_TABLES}

COMMANDS = {
    "heads": Command(("heads", "FILE", "--out", "OUT"), READ_AS_TEXTS, NOT_TEXTS, ("--text", "text")),
    "explain": Command(
        ("explain", "FILE", "--out", "OUT", "--methods", "occlusion", "--least", 1), READ_AS_TEXTS, NOT_TEXTS,
        ("--text", "text"), "tiny_classifier_folder",
    ),
    "neurons": Command(
        ("neurons", "FILE", "--out", "OUT", "--neurons", "0.1,1.2"), READ_AS_TEXTS, NOT_TEXTS, ("--text", "text")
    ),
    "compare-models": Command(
        ("compare-models", "TINY", "TINY", "FILE", "--out", "OUT"), READ_AS_TEXTS, NOT_TEXTS, ("--text", "text"),
    ),
    "index": Command(
        ("index", "FILE", "--out", "OUT"), {**READ_AS_DOCUMENTS}, NOT_TEXTS, ("--text", "text"), out="index"
    ),
    "faithfulness": Command(
        ("faithfulness", "FILE", "--out", "OUT", "--methods", "rollout", "--kinds", "content", "--questions", 1,
         "--lengths", "4:30", "--least", 0, "--random-rankings", 2),
        READ_AS_DOCUMENTS, NOT_DOCUMENTS, ("--text", "text"),
    ),
    "pretrain": Command(
        ("pretrain", "FILE", "--start", "TINY", "--folder", "OUT", "--tokens", 64, "--lengths", "16:1", *STEP),
        READ_AS_DOCUMENTS, NOT_DOCUMENTS, ("--text", "text"), out="run",
    ),
    "tune-lens": Command(
        ("tune-lens", "FILE", "--folder", "OUT", "--examples", 2, "--length", 16, *STEP),
        READ_AS_DOCUMENTS, NOT_DOCUMENTS, ("--text", "text"), out="run",
    ),
    "evaluate": Command(
        ("evaluate", "TINY", "FILE", "--batches", 1, "--out", "OUT"), READ_AS_DOCUMENTS, NOT_DOCUMENTS,
        ("--text", "text"), out="out.json",
    ),
    "prune-curve": Command(
        ("prune-curve", "FILE", "--out", "OUT", "--orders", "importance", "--points", 1, "--examples", 2,
         "--length", 16),
        READ_AS_DOCUMENTS, NOT_DOCUMENTS, ("--text", "text"),
    ),
    "finetune, classes": Command(
        ("finetune", "FILE", "--init", "TINY", "--folder", "OUT", "--epochs", 1, "--held-out", 0.5),
        IN_TABLES, {},
        ("--text", "text", "--label", "class"), out="run", without_columns=(".json",),
    ),
    "finetune, tags": Command(
        ("finetune", "FILE", "--init", "TINY", "--folder", "OUT", "--epochs", 1, "--held-out", 0.5, "--label", "2"),
        {".conll": TAGS, ".iob2": TAGS, ".txt": TAGS, "": TAGS},
        {".conllu": "no word of .* has the label '2'", ".csv": "name the column of the texts",
         ".jsonl": "name the field of the texts"},
        out="run",
    ),
    "finetune, questions": Command(
        ("finetune", "FILE", "--init", "TINY", "--folder", "OUT", "--epochs", 1, "--held-out", 0.5,
         "--max-length", 64, "--stride", 8),
        {".json": json.dumps(SQUAD)}, {".jsonl": "name the field of the texts"}, out="run",
    ),
    "probe": Command(
        ("probe", "FILE", "--label", "tag", "--out", "OUT", "--layers", "1", "--seeds", 1, "--least", 1),
        OF_WORDS, {".conll": "the label must be the number of a column, such as 4, or last", ".txt": "CoNLL-U has 10"},
    ),
    "roles": Command(
        ("roles", "FILE", "--out", "OUT", "--least", 1), {".conllu": TREES, ".conll": TREES, "": TREES},
        {".txt": "a treebank in CoNLL-U is needed", ".iob2": "columns: CoNLL-U has 10",
         **dict.fromkeys(TABLES, "a treebank in CoNLL-U is needed")},
    ),
    "answer": Command(
        ("answer", "FILE", "--model", "TINY"), IN_TABLES, {".txt": NO_COLUMNS, ".conllu": NO_COLUMNS},
        ("--text", "second", "--pair", "text"), "tiny_reader_folder", without_columns=(".json",),
    ),
    "answer, questions": Command(
        ("answer", "FILE", "--model", "TINY"), {".json": json.dumps(SQUAD)},
        {".jsonl": "name the field of the questions"}, (), "tiny_reader_folder",
    ),
    "choose": Command(
        ("choose", "--model", "TINY", "--table", "FILE"), IN_TABLES, {".txt": NO_COLUMNS, ".iob2": NO_COLUMNS},
        ("--text", "text", "--choice", "second", "--choice", "class"), "tiny_chooser_folder",
    ),
    "similarity": Command(
        ("similarity", "--pairs", "FILE"), IN_TABLES, {".txt": NO_COLUMNS, ".conllu": NO_COLUMNS},
        ("--text", "text", "--pair", "second"),
    ),
    "score": Command(
        ("score", "--pairs", "FILE"), IN_TABLES, {".conllu": "two sentences per line are needed"},
        ("--text", "text", "--pair", "second"), without_columns=(".csv", ".tsv"),
    ),
    "score, without columns": Command(
        ("score", "--pairs", "FILE"),
        {".txt": PAIRS, ".tsv": PAIRS, ".csv": as_table(ROWS, ".csv").replace(",a\n", "\n").replace(",b\n", "\n")
         .replace("text,second,class\n", "")},
        {".jsonl": "name the field of the first sentences", ".conllu": "two sentences per line are needed"},
    ),
}  # fmt: skip


def result_of(out: Path, printed: str) -> object:
    """What a command wrote or printed, without the file's name, places in it, and times."""
    if out.is_dir():
        weights = {path for pattern in ("*", "*/*") for path in out.glob(f"{pattern}.safetensors")}
        arrays = {path.name: {name: value.tobytes() for name, value in load_file(path).items()} for path in weights}
        vectors = {path.name: path.read_bytes() for path in out.glob("*/*.npy")}
        assert arrays or vectors
        return arrays, vectors
    if out.suffix == ".json":
        return {name: value for name, value in json.loads(out.read_text()).items() if name != "held_out"}
    if out.is_file():
        rows = list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8"))))
        left_out = ("text", "line", "file", "speed", "tokens_per_second", "seconds")
        assert rows
        return [{name: value for name, value in row.items() if name not in left_out} for row in rows]
    assert printed
    rows = list(csv.DictReader(io.StringIO(printed)))
    return [{name: value for name, value in row.items() if name != "row"} for row in rows]


@pytest.fixture
def ask(headlight: Run, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., tuple[int, str, str, Path]]:
    """Run a command on a file: its code, what it printed and said, and where its result is."""
    made = 0

    def run(command: Command, name: str, data: bytes, *, columns: bool = True) -> tuple[int, str, str, Path]:
        nonlocal made
        made += 1
        folder = tmp_path / str(made)
        folder.mkdir()
        path, model = folder / name, request.getfixturevalue(command.model)
        path.write_bytes(data)
        places = {"FILE": path, "OUT": folder / command.out, "TINY": model}
        options = command.table if columns else ()
        named = () if "TINY" in command.arguments else ("--model", model)
        arguments = [places.get(word, word) for word in command.arguments]
        code, printed, err = headlight(*arguments, *options, *named, "--device", "cpu")
        return code, printed, err, folder / command.out

    return run


def named(extension: str) -> bool:
    """Whether files of such an extension have columns that are named."""
    return extension in TABLES


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.release) if name == "evaluate" else name for name in COMMANDS]
)
def test_the_same_content_gives_the_same_result_in_every_format(ask: Any, name: str) -> None:
    """Plain text, tables, JSON lines and treebanks, compressed or not, and in each encoding that is read."""
    command = COMMANDS[name]
    first, *_ = command.content
    expected = None
    ways = [(extension, f"file{extension}", text.encode()) for extension, text in command.content.items()]
    for stored, encode in STORED.items():
        suffix = stored if stored.startswith(".") else ""
        for extension in {first, *command.content} & {first, ".jsonl"}:
            ways.append((extension, f"file{extension}{suffix}", encode(command.content[extension])))
    for extension, file, data in ways:
        code, printed, err, out = ask(command, file, data, columns=named(extension))
        assert code == 0, (file, err)
        result = result_of(out, printed)
        expected = result if expected is None else expected
        assert result == expected, file


@pytest.mark.parametrize("name", COMMANDS)
def test_other_formats_are_one_sentence(ask: Any, name: str) -> None:
    """Exit code 2, nothing on stdout, one line that names what the file is or what is needed."""
    command = COMMANDS[name]
    contents = {".txt": PLAIN, ".conllu": TREES, ".conll": TAGS, ".iob2": TAGS, **IN_TABLES}
    other = "has the extension .txt for plain text but contains JSON lines"
    cases = [
        *(
            (f"file{extension}", contents[extension].encode(), said, False)
            for extension, said in command.refused.items()
        ),
        *((f"file{extension}", data, said, True) for extension, (data, said) in OTHERS.items()),
        ("file.txt", IN_TABLES[".jsonl"].encode(), other, True),
        ("file.txt.gz", PLAIN.encode(), "has the extension .gz but is not compressed that way", True),
    ]
    if command.table:
        listed = r"name the (column|field) of .*; its (columns|fields) are text, second, class"
        cases += [
            (f"file{extension}", contents[extension].encode(), listed, False)
            for extension in command.content
            if extension in TABLES and extension not in command.without_columns
        ]
    for file, data, sentence, columns in cases:
        code, printed, err, _ = ask(command, file, data, columns=columns)
        assert (code, printed) == (2, ""), (file, printed)
        assert re.search(sentence, err) and err.count("\n") == 1, (file, err)


@pytest.mark.parametrize("name", ["faithfulness", "heads", "explain", "finetune", "probe"])
def test_comments_of_a_file_of_words_are_left_out_and_counted(
    headlight: Run, tiny_model_folder: Path, tiny_tagger_folder: Path, tmp_path: Path, name: str
) -> None:
    """Every command that reads labels of words says how many lines of comments it left out."""
    path, out = tmp_path / "words.conll", tmp_path / "out.csv"
    path.write_text(TAGS.replace("PET", "B-PER").replace("\n\n", "\n\n# a line about the sentence\n"), encoding="utf-8")
    comments = path.read_text(encoding="utf-8").count("#")
    tagger = ("--model", tiny_tagger_folder, "--device", "cpu", "--out", out)
    arguments = {
        "faithfulness": ("--kinds", "tag", "--tags", "last", "--methods", "rollout", "--questions", 1, "--least", 0,
                         "--lengths", "4:30", "--random-rankings", 2, *tagger),
        "heads": ("--tags", "last", "--importance", *tagger),
        "explain": ("--tags", "last", "--methods", "occlusion", "--least", 1, *tagger),
        "finetune": ("--init", tiny_model_folder, "--folder", tmp_path / "run", "--epochs", 1, "--device", "cpu"),
        "probe": ("--label", "last", "--layers", "1", "--seeds", 1, "--least", 1, "--model", tiny_model_folder,
                  "--device", "cpu", "--out", out),
    }  # fmt: skip
    code, printed, err = headlight(name, path, *arguments[name])
    assert code == 0, err
    assert f"{comments:,} lines of comments" in printed + err
