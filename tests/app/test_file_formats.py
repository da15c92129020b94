"""docs/reference/file-formats.md: the columns that it lists are those that the commands write."""

from __future__ import annotations

import io
import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import bert_core
from bert_core.analysis.heads import PairHead
from bert_core.analysis.relations import RelationRow
from bert_core.loading import LoadedModel
from bert_core.records import Contribution, CurvePoint
from bert_core.records.probes import ProbePoint
from bert_core.studies import external_scores, faithfulness, ground_truth, profiles, subject_verb
from bert_core.studies.bias import BIAS_COLUMNS
from bert_core.studies.evaluation import ROW_COLUMNS
from bert_core.studies.explain import BASE_COLUMNS
from bert_core.studies.explanation_tables import WordTotal
from bert_core.studies.index import TREE_COLUMNS
from bert_core.studies.index_reader import TOKEN_COLUMNS
from bert_core.studies.pairs import PAIR_COLUMNS
from bert_core.studies.search import Match, PairCounts
from bert_core.task_heads import TASK_HEADS, TaskHead
from bert_core.training.measures import Measures
from tests.families import save_family
from viz_app import cli
from viz_app.export.query_keys import plane_columns
from viz_app.pages.why.graph import edge_columns, graph_npz

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "file-formats.md"
PAIRS = "text,second\nThe cat sat.,The dog sat.\nThe king ran.,The woman ran.\n"
TEXT = "The cat sat on the mat.\nThe king went to the door.\nThe dog ran.\n"


def field_names(record: type) -> set[str]:
    """The names of the fields of a dataclass."""
    return {field.name for field in fields(record)}


def documented_tables() -> dict[tuple[str, int], list[str]]:
    """Heading of a section and number of the table in it -> the names in its first column."""
    tables = {}
    for section in DOCUMENT.read_text("utf-8").split("\n## ")[1:]:
        blocks = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
        for number, block in enumerate(blocks):
            cells = [line.split(" | ")[0] for line in block.splitlines()[2:]]
            tables[section.partition("\n")[0], number] = [
                name for cell in cells for name in re.findall("`(.+?)`", cell)
            ]
    return tables


TABLES = documented_tables()
DECLARED = {
    ("headlight roles", 0): set(RelationRow._fields),
    ("headlight probe", 0): field_names(ProbePoint),
    ("headlight faithfulness", 0): set(faithfulness._HEADER),
    ("headlight faithfulness", 1): set(external_scores.REQUIRED_COLUMNS),
    ("headlight ground-truth", 0): set(ground_truth._HEADER),
    ("headlight ground-truth", 1): set(subject_verb.TABLE_COLUMNS),
    ("headlight explain", 0): {*BASE_COLUMNS, "DecompX"},
    ("headlight explain", 1): field_names(WordTotal),
    ("headlight evaluate-file", 0): set(ROW_COLUMNS),
    ("headlight score", 0): set(PAIR_COLUMNS),
    ("headlight bias", 0): set(BIAS_COLUMNS),
    ("headlight prune-curve", 0): {"model", "text", "examples", "length", "what"} | field_names(CurvePoint),
    ("headlight direct", 0): {*Contribution._fields},
    ("headlight find-heads", 0): {*PairHead._fields, "effect", *PairCounts._fields},
    ("headlight predict", 0): {"row", TaskHead.text_name, *TaskHead.table_columns},
    ("headlight predict", 1): {"row", TASK_HEADS["reader"].text_name, *TASK_HEADS["reader"].table_columns},
    ("headlight search", 0): field_names(Match) - {"labels"} | {*TREE_COLUMNS},
    ("headlight profile", 0): set(profiles.COLUMNS),
    ("headlight query-keys", 0): set(plane_columns([])),
    ("headlight query-keys", 1): {
        "token",
        "label",
        "text",
        "position",
        "query_x",
        "query_y",
        "key_x",
        "key_y",
    },
    ("headlight evaluate", 0): field_names(Measures),
    ("Index folder", 1): {*TOKEN_COLUMNS, "text"} - {"document"},
}
# Names in capitals in the document, and what they stand for.
PATTERNS = {
    "COLUMN": ".+",
    "METHOD": "DecompX",
    "N": "[1-9]",
    "NAME": "[a-z_]+",
    "VALUE": "attention|gradient|product|norm",
}
ONLY_GATED = {"activated_mean", "gate_mean", "gate_negative"}  # columns that only a model with gated neurons has
# Arguments of commands, and the tables that they write into the files a and b, or to the standard output.
WRITTEN = (
    ("heads TEXT --importance --ablation --out a.csv", ("headlight heads", 0), None),
    ("neurons TEXT --neurons 0.1 --out a.csv --examples b.json", ("headlight neurons", 0), ("headlight neurons", 1)),
    ("neurons TEXT --neurons 0.1 --out a.csv --model GATED", ("headlight neurons", 0), None),
    (
        "compare-models MODEL MODEL TEXT --out a.csv --cka b.csv",
        ("headlight compare-models", 0),
        ("headlight compare-models", 1),
    ),
    ("evaluate-file TEXT --ask surprise --out a.csv", ("headlight evaluate-file", 0), None),
    (
        "steer WORDS A --label kind --depth 1 --target 1:the --draws 2 --model MODEL --out a.csv",
        ("headlight steer", 0),
        None,
    ),
    ("lens A --position all --model MODEL --out a.csv", ("headlight lens", 0), None),
    ("similarity A B --out a.csv", ("headlight similarity", 0), None),
    ("attention A --out a.csv", ("headlight attention", 0), None),
)


def test_the_files_of_a_contribution_graph_have_the_documented_columns(tiny_loaded: LoadedModel) -> None:
    """The columns of the table of edges and the arrays of the NPZ; both have the shares of the graph."""
    graph = bert_core.contribution_graph(tiny_loaded, tiny_loaded.tokenizer.encode("The cat sat on the mat."))
    edges = bert_core.paths_to(graph.shares, [2], 0.05)
    columns = edge_columns(graph, edges)
    assert list(columns) == TABLES["Contribution graph", 0]
    for layer, query, key, share, head in zip(
        *(columns[name] for name in ("layer", "query_position", "key_position", "share", "head")), strict=True
    ):
        assert share == graph.shares[layer, query, key]
        assert graph.head_shares[layer, head, query, key] == graph.head_shares[layer, :, query, key].max()
    with np.load(io.BytesIO(graph_npz(graph)), allow_pickle=False) as file:
        assert set(file) == set(TABLES["Contribution graph", 1])
        assert np.array_equal(file["shares"], graph.shares)


def matches(documented: list[str], columns: set[str]) -> bool:
    """Whether each column has a name in the document, and each name a column; those in capitals are patterns."""
    patterns = [re.sub("[A-Z]+", lambda found: PATTERNS[found[0]], re.escape(name)) for name in documented]
    return all(any(re.fullmatch(pattern, column) for pattern in patterns) for column in columns) and all(
        any(re.fullmatch(pattern, column) for column in columns) for pattern in patterns
    )


@pytest.mark.parametrize("place", DECLARED)
def test_documented_columns_are_those_that_are_declared(place: tuple[str, int]) -> None:
    """Also of tables that take long to compute, or need a model with a certain head."""
    assert matches(TABLES[place], DECLARED[place]), set(TABLES[place]) ^ DECLARED[place]


@pytest.mark.parametrize(("command", "first", "second"), WRITTEN)
def test_documented_columns_are_those_that_are_written(
    command: str,
    first: tuple[str, int],
    second: tuple[str, int] | None,
    tiny_model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first line of a table, or the keys of an object."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    labelled = [f"{number},{chr(97 + number)},letter\n{number},the,other" for number in range(26)]
    (tmp_path / "words.csv").write_text("\n".join(["sentence,word,kind", *labelled]), encoding="utf-8")
    words = {
        "WORDS": "words.csv",
        "TEXT": "text.txt",
        "MODEL": str(tiny_model_folder),
        "A": "The cat sat.",
        "B": "The dog ran.",
    }
    if "GATED" in command:
        words["GATED"] = str(save_family("modernbert", tmp_path / "gated"))
    arguments = [words.get(word, word) for word in command.split()]
    model = [] if "MODEL" in command or "GATED" in command else ["--model", str(tiny_model_folder)]
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, *model, "--device", "cpu"])
    assert not ended.value.code
    for place, file in ((first, "a.csv"), (second, next(iter(tmp_path.glob("b.*")), None))):
        if place is not None and file is not None:
            text = (tmp_path / file).read_text("utf-8")
            columns = set(json.loads(text)) if str(file).endswith("json") else set(text.splitlines()[0].split(","))
            documented = [name for name in TABLES[place] if "GATED" in command or name not in ONLY_GATED]
            assert matches(documented, columns), set(documented) ^ columns
