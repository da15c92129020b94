"""Fine-tuning: it learns, keeps its best weights, repeats with a seed, and says what is wrong with a table."""

from __future__ import annotations

import copy
import csv
import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import bert_core
from bert_core import BertConfig, BertForSequenceClassification, BertModel, checkpoint
from bert_core.studies.rows import LabelledText, read_labelled
from bert_core.training import finetune as tuning
from bert_core.training import optimization
from bert_core.training.class_labels import sorted_classes, stratified_split
from bert_core.training.finetune import ClassifierScores, finetune
from bert_core.training.settings import FinetuneSettings
from tests.near import assert_near
from tests.padding import assert_padding_changes_nothing

pytestmark = pytest.mark.slow

TEMPLATES = {
    "home": ("the {} {} sat in the house by {}", ("cat", "dog", "child")),
    "realm": ("the {} {} of france went to {}", ("king", "queen", "capital")),
    "river": ("a {} {} ran from london to {}", ("river", "city", "man")),
}
ADJECTIVES = ("old", "new", "big", "small", "red", "blue")
ENDS = ("the red mat", "the blue door", "an old man", "a small city", "one new house")
QUICK = FinetuneSettings(epochs=12, learning_rate=3e-3, max_length=32, patience=4)


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences and their classes, drawn from three templates."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        label = draw.choice(sorted(TEMPLATES))
        template, subjects = TEMPLATES[label]
        rows.append((template.format(draw.choice(ADJECTIVES), draw.choice(subjects), draw.choice(ENDS)), label))
    return rows


def write_csv(path: Path, rows: Iterable[Sequence[str]], header: Sequence[str] = ("text", "class")) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "train.csv", sentences(96, seed=1))


def run(
    table: Path, folder: Path, start: Path | str, settings: FinetuneSettings = QUICK, **more: Any
) -> ClassifierScores:
    said: list[str] = []
    scores = finetune(
        table, folder, settings, text="text", label="class", start=str(start), device="cpu",
        **{"held_out": 0.25, "report": lambda done, what="": said.append(what), **more},
    )  # fmt: skip
    (folder / "said.txt").write_text("\n".join(said), encoding="utf-8")
    return scores


def said(folder: Path) -> str:
    return (folder / "said.txt").read_text(encoding="utf-8")


def guess(loaded: bert_core.LoadedModel, text: str) -> str:
    """The class that a loaded model gives one text, by a plain forward pass."""
    encoding = loaded.tokenizer.encode(text)
    logits = loaded.task_models["classifier"](torch.tensor([encoding.input_ids])).logits
    return loaded.labels[int(logits[0].argmax())]


# ---------------------------------------------------------------------------- learning


def test_padding_changes_neither_loss_nor_gradient(tiny_config: BertConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp32, texts that are padded beyond the longest have the loss and the gradients that they have without."""
    quiet = tiny_config.with_labels(("a", "b", "c")).replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    torch.manual_seed(3)
    exact = BertForSequenceClassification(quiet)
    padded = copy.deepcopy(exact)
    rng = np.random.default_rng(1)
    batch = [tuning.ClassifierExample(tuple(rng.integers(5, 150, n)), (0,) * n, n % 3) for n in (7, 11, 20, 13)]
    assert_padding_changes_nothing(tuning, exact, padded, batch, monkeypatch)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_widths_repeat_where_a_kernel_is_kept_for_each(
    precision: torch.dtype, tiny_config: BertConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bfloat16 on a CPU rows have one of a few widths, which hold the longest text and fit the model's positions;
    elsewhere they are as wide as the longest text.
    """
    monkeypatch.setattr(optimization, "fast_dtype", lambda device: precision)
    config = tiny_config.replace(max_position_embeddings=130)
    lengths = range(1, 131)
    texts = [tuning.ClassifierExample((5,) * length, (0,) * length, 0) for length in lengths]
    widths = [tuning.training_width([texts[0], text], config, torch.device("cpu")) for text in texts]
    assert all(length <= width <= 130 for length, width in zip(lengths, widths, strict=True))
    assert widths == list(lengths) if precision == torch.float32 else len(set(widths)) == 13
    inputs = tuning.model_inputs(texts[:3], config, 0, torch.device("cpu"), width=16)
    assert [None if table is None else tuple(table.shape) for table in inputs.values()] == [(3, 16)] * 3


def test_it_learns_a_small_set(table: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """On sentences that it never saw, where chance is a third, at least nine in ten are right; so are the scores."""
    scores = run(table, tmp_path / "model", tiny_model_folder)
    loaded = bert_core.load(str(tmp_path / "model"), device="cpu")
    seen = {text for text, _ in sentences(96, seed=1)}
    unseen = [(text, label) for text, label in sentences(300, seed=2) if text not in seen]
    assert len(set(unseen)) >= 100
    assert np.mean([guess(loaded, text) == label for text, label in unseen]) >= 0.9
    assert loaded.labels == ("home", "realm", "river") and scores.accuracy >= 0.9


def test_a_real_start_learns_in_seconds(tmp_path: Path) -> None:
    """From the bundled model two classes of everyday words are told apart on words it was not fine-tuned on."""
    drinks = ("tea", "coffee", "milk", "wine", "beer", "water", "juice", "rum")
    animals = ("dogs", "cats", "horses", "birds", "wolves", "sheep", "cows", "bears")
    rows = [
        (f"They like {word} very much.", label)
        for label, group in (("drink", drinks), ("animal", animals))
        for word in group
    ]
    train = [
        row
        for row in rows
        if not row[0].startswith(("They like rum", "They like juice", "They like cows", "They like bears"))
    ]
    table = write_csv(tmp_path / "train.csv", train * 4)
    held = write_csv(tmp_path / "held.csv", [row for row in rows if row not in train])
    settings = FinetuneSettings(epochs=3, learning_rate=2e-4, batch=8, max_length=16)
    scores = run(table, tmp_path / "model", "headlight-mini", settings, held_out=held)
    assert scores.confusion.sum() == 4 and scores.accuracy == 1


def test_the_scores_are_those_of_the_saved_model(table: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """What is reported is what the folder does when it is loaded and asked the held-out rows one by one."""
    held = write_csv(tmp_path / "held.csv", sentences(40, seed=3))
    settings = FinetuneSettings(epochs=1, learning_rate=5e-4)
    scores = run(table, tmp_path / "model", tiny_model_folder, settings, held_out=held)
    loaded = bert_core.load(str(tmp_path / "model"), device="cpu")
    confusion = np.zeros((3, 3), int)
    for text, label in sentences(40, seed=3):
        confusion[loaded.labels.index(label), loaded.labels.index(guess(loaded, text))] += 1
    np.testing.assert_array_equal(scores.confusion, confusion)
    assert f"accuracy {scores.accuracy:.1%}" in said(tmp_path / "model")


def test_a_pair_is_read_as_a_pair(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Where only the two texts together give the class away, both are read, in their segments."""
    draw = random.Random(4)
    words = ("cat", "dog")
    rows = []
    for _ in range(160):
        first, second = draw.choice(words), draw.choice(words)
        rows.append((f"the {first} sat", f"the {second} ran", "same" if first == second else "other"))
    table = write_csv(tmp_path / "pairs.csv", rows, ("text", "second", "class"))
    settings = FinetuneSettings(epochs=12, learning_rate=3e-3, patience=12, dropout=0.0)
    scores = run(table, tmp_path / "model", tiny_model_folder, settings, pair="second")
    assert scores.accuracy >= 0.9


def test_one_seed_gives_one_set_of_weights(table: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Two runs with one seed are equal to the last bit, dropout and split included; another seed differs."""
    settings = [FinetuneSettings(epochs=1, seed=seed) for seed in (3, 3, 4)]
    weights = []
    for number, one in enumerate(settings):
        run(table, tmp_path / str(number), tiny_model_folder, one)
        weights.append(load_file(tmp_path / str(number) / "model.safetensors"))
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    assert not all(torch.equal(tensor, weights[2][name]) for name, tensor in weights[0].items())


def test_the_best_weights_are_kept_and_it_stops_early(
    table: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its best epoch the run goes on for `patience` epochs and no longer; the folder holds the best epoch's."""
    scores = {1: 0.5, 2: 0.9, 3: 0.9, 4: 0.7, 5: 0.95}
    weights: list[torch.Tensor] = []

    def judged(classifier: Any, held: Any, **_: Any) -> ClassifierScores:
        weights.append(classifier.classifier.weight.detach().clone())
        right = round(100 * scores[len(weights)])
        return ClassifierScores(
            ("home", "realm", "river"),
            np.diag([right, right, right]) + np.roll(np.eye(3, dtype=int) * (100 - right), 1, 1),
            1.0,
        )

    monkeypatch.setattr(tuning, "evaluate_classifier", judged)
    best = run(table, tmp_path / "model", tiny_model_folder, FinetuneSettings(epochs=5, patience=2))
    assert len(weights) == 4 and best.accuracy == pytest.approx(0.9)
    assert torch.equal(load_file(tmp_path / "model" / "model.safetensors")["classifier.weight"], weights[1])
    assert "stopped early: no better held-out result for 2 epochs" in said(tmp_path / "model")
    assert "holds the weights after epoch 2, which are the best" in said(tmp_path / "model")
    lines = [json.loads(line) for line in (tmp_path / "model" / "log.jsonl").read_text().splitlines()]
    assert [line["kept"] for line in lines if "held_out" in line] == [True, True, False, False]


# ---------------------------------------------------------------------------- the folder that comes out


def test_transformers_loads_the_result(table: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """AutoModelForSequenceClassification reads the folder, with the names of the classes, and gives the same logits."""
    folder = tmp_path / "model"
    run(table, folder, tiny_model_folder, FinetuneSettings(epochs=1, learning_rate=1e-3))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    loaded = bert_core.load(str(folder), device="cpu")
    assert theirs.config.id2label == dict(enumerate(loaded.labels))
    assert theirs.config.label2id == {name: number for number, name in enumerate(loaded.labels)}
    ids = torch.tensor([loaded.tokenizer.encode("the cat of france ran to the river").input_ids])
    with torch.no_grad():
        ours, expected = loaded.task_models["classifier"](ids).logits, theirs(ids).logits
    assert_near(ours, expected)


def test_the_heads_of_the_start_are_kept(table: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """The masked-word and next-sentence heads come along unchanged, every key is accounted for, the encoder moved."""
    run(table, tmp_path / "model", tiny_model_folder, FinetuneSettings(epochs=1))
    before, after = (load_file(f / "model.safetensors") for f in (tiny_model_folder, tmp_path / "model"))
    assert after.keys() - before.keys() == {"classifier.weight", "classifier.bias"} and before.keys() <= after.keys()
    for name in before:
        assert torch.equal(before[name], after[name]) == name.startswith("cls."), name
    loaded = bert_core.load(str(tmp_path / "model"), device="cpu")
    assert (loaded.report.missing, loaded.report.unexpected) == ((), ())
    assert loaded.has_mlm and loaded.has_nsp and loaded.has_classifier


def test_a_head_that_was_never_trained_is_not_written(table: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """From an encoder without pooler and heads comes a classifier and nothing that was drawn at random and left."""
    config = checkpoint.read_config(tiny_model_folder)
    torch.manual_seed(0)
    BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "bare")
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / "bare" / name).write_bytes((tiny_model_folder / name).read_bytes())
    run(table, tmp_path / "model", tmp_path / "bare", FinetuneSettings(epochs=1))
    names = load_file(tmp_path / "model" / "model.safetensors").keys()
    assert not [name for name in names if name.startswith("cls.")]
    loaded = bert_core.load(str(tmp_path / "model"), device="cpu")
    assert loaded.has_classifier and not loaded.has_mlm and not loaded.has_nsp


def test_a_classifier_of_the_same_classes_goes_on(table: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """From its own result training starts where it was; with other classes the classifier is new."""
    run(table, tmp_path / "first", tiny_model_folder)
    slow = FinetuneSettings(epochs=1, learning_rate=1e-9)
    assert run(table, tmp_path / "second", tmp_path / "first", slow).accuracy >= 0.9
    others = write_csv(tmp_path / "others.csv", [(text, label + "s") for text, label in sentences(96, seed=1)])
    other_seed = FinetuneSettings(epochs=1, learning_rate=1e-9, seed=1)
    assert run(others, tmp_path / "third", tmp_path / "first", other_seed).classes == ("homes", "realms", "rivers")
    first, second, third = (
        load_file(tmp_path / name / "model.safetensors")["classifier.weight"] for name in ("first", "second", "third")
    )
    assert (first - third).abs().mean() > 0.1
    assert_near(first, second)


# ---------------------------------------------------------------------------- scores


def test_scores_are_those_of_the_definitions() -> None:
    """Accuracy, precision, recall and F1 of a confusion matrix worked out by hand; one nobody has is out."""
    scores = ClassifierScores(("a", "b", "c"), np.array([[3, 1, 0], [2, 4, 0], [0, 0, 0]]), 0.5)
    assert scores.accuracy == 0.7
    np.testing.assert_allclose(scores.precision, [3 / 5, 4 / 5, 0])
    np.testing.assert_allclose(scores.recall, [3 / 4, 4 / 6, 0])
    np.testing.assert_allclose(scores.f1, [6 / 9, 8 / 11, 0])
    assert scores.macro_f1 == pytest.approx((6 / 9 + 8 / 11) / 2)
    assert scores.table()[1].split() == ["a", "60.0%", "75.0%", "0.667", "4"]


# ---------------------------------------------------------------------------- tables


def test_a_table_is_read_as_spreadsheets_write_it(tmp_path: Path) -> None:
    """A byte-order mark, quotes, commas, quotes in quotes, new lines, empty lines and other columns are all fine."""
    path = tmp_path / "t.csv"
    text = '\ufeffid,text,class\r\n1,"a ""b"", c",x\r\n\r\n2,"two\nlines", y \r\n'
    path.write_bytes(text.encode())
    assert read_labelled(path, "text", "class") == [
        LabelledText('a "b", c', None, "x", 2),
        LabelledText("two\nlines", None, "y", 4),
    ]


def test_a_table_with_semicolons_is_read(tmp_path: Path) -> None:
    """As spreadsheets write it where the comma is the decimal point; a text keeps its commas, and in quotes its own."""
    path = tmp_path / "t.csv"
    path.write_bytes('\ufeff\r\n"id, or number";text;class\r\n1;one, two, three;x\r\n2;"four; five";y\r\n'.encode())
    assert read_labelled(path, "text", "class") == [
        LabelledText("one, two, three", None, "x", 3),
        LabelledText("four; five", None, "y", 4),
    ]
    path.write_bytes(b"text;class\na;b;x\n")
    with pytest.raises(ValueError, match=r"row 2 of t.csv has 3 fields and the header 2: put a text that contains"):
        read_labelled(path, "text", "class")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "t.csv is empty: there is no text in it"),
        (b"words,class\na,b\n", "the column 'text' is not in t.csv: its columns are words, class"),
        (b"text,text,class\na,b,c\n", "'text' is twice in t.csv: its columns are text, text, class"),
        (b"text,class\n", "t.csv has no rows: there is nothing to learn from"),
        (b"text,class\na,\nb,x\nc, \n", "2 of 3 rows of t.csv have an empty field in the column 'class' (rows 2, 4;"),
        (b"text,class\n" + b",x\n" * 8, "8 of 8 rows of t.csv have an empty field in the column 'text' (rows 2, 3, 4, 5, 6 and 3 more"),  # noqa: E501
        (b"text,class\na, b,x\n", "row 2 of t.csv has 3 fields and the header 2"),
        (b"text,class\na,caf\xe9\n", "t.csv is not UTF-8"),
        (b'text,class\n"a,x\n', "t.csv is not a valid table: unexpected end of data"),
        (b"text,class\na,x\nb,x\n", "every row has the same class, 'x', in the column 'class'"),
        (b"text,class\na,x\nb,y\nc,z\n", "each of the 3 rows has a class of its own in the column 'class'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    """Each says what was found, where, and what is needed."""
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError) as error:
        sorted_classes(read_labelled(tmp_path / "t.csv", "text", "class"), "class")
    assert sentence in str(error.value)


def test_a_share_of_each_class_is_held_out() -> None:
    """The parts are disjoint and complete, keep the classes' shares, and are one seed's own."""
    examples = [LabelledText(str(n), None, "rare" if n % 10 == 0 else "common", n) for n in range(100)]
    train, held = stratified_split(examples, 0.2, seed=0)
    assert sorted(e.row for e in train + held) == list(range(100))
    assert sum(e.label == "rare" for e in held) == 2 and len(held) == 20
    assert stratified_split(examples, 0.2, seed=0) == (train, held) != stratified_split(examples, 0.2, seed=1)
    few = [LabelledText("", None, label, 0) for label in "aabb"]
    assert [[e.label for e in part] for part in stratified_split(few, 0.9, seed=0)] == [["a", "b"], ["a", "b"]]


Change = Callable[[Path], dict[str, Any]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: {"held_out": 1.0}, "the held-out share is 1"),
        (lambda f: {"held_out": write_csv(f / "h.csv", [("a", "home"), ("b", "moon")])}, "h.csv has the class 'moon' (row 3)"),  # noqa: E501
        (lambda f: {"table": write_csv(f / "o.csv", [("a", "x"), ("b", "x"), ("c", "y")])}, "class 'y' has one row"),
        (lambda f: {"table": write_csv(f / "o.csv", [("\u200b", "x"), ("b", "y")] * 2)}, "of o.csv: the text"),
        (lambda f: {"pair": "text"}, "must be different"),
        (lambda f: {"settings": FinetuneSettings(max_length=600)}, "a length of 600 is too long"),
        (lambda f: {"settings": FinetuneSettings(learning_rate=1e20)}, "at step 1: choose a lower learning rate"),
        (lambda f: {"start": f / "nothing"}, "there is no model"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_one_sentence(
    table: Path, tiny_model_folder: Path, tmp_path: Path, change: Change, sentence: str
) -> None:
    """A share, a class, a text, a length, a rate or a start that cannot be used, each in a sentence of its own."""
    arguments = {"table": table, "folder": tmp_path / "model", "start": tiny_model_folder, **change(tmp_path)}
    with pytest.raises(ValueError) as error:
        run(**arguments)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_decoder_is_no_start(table: Path, tiny_config: BertConfig, tiny_model_folder: Path, tmp_path: Path) -> None:
    """A model that reads from left to right says so: its [CLS] has seen nothing."""
    BertModel(tiny_config.replace(is_decoder=True)).save_pretrained(tmp_path / "decoder")
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / "decoder" / name).write_bytes((tiny_model_folder / name).read_bytes())
    with pytest.raises(ValueError, match=r"decoder is a decoder, .*: start from an encoder"):
        run(table, tmp_path / "model", tmp_path / "decoder")
    assert not (tmp_path / "model").exists()


def test_settings_that_mean_nothing_are_refused() -> None:
    """No epochs, no rate: one sentence each."""
    for wrong in ({"epochs": 0}, {"batch": 0}, {"patience": 0}, {"learning_rate": 0.0}):
        with pytest.raises(ValueError, match=r"it must be a whole number of at least 1|greater than 0"):
            FinetuneSettings(**wrong)  # type: ignore[arg-type]


def test_a_folder_with_a_model_is_left_alone(table: Path, tiny_model_folder: Path) -> None:
    """Training never writes over a model, not even over its own start."""
    before = (tiny_model_folder / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="already holds a model: choose another folder"):
        finetune(table, tiny_model_folder, QUICK, text="text", label="class", start=str(tiny_model_folder))
    assert (tiny_model_folder / "model.safetensors").read_bytes() == before


def test_what_should_be_known_is_said(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Texts that are cut, and held-out texts that were trained on, are counted."""
    table = write_csv(tmp_path / "t.csv", [*sentences(30, seed=1), ("the " * 40, "home")])
    held = write_csv(tmp_path / "h.csv", sentences(30, seed=1)[:5])
    run(table, tmp_path / "model", tiny_model_folder, FinetuneSettings(epochs=1, max_length=24), held_out=held)
    assert "1 of 31 texts are longer than 24 tokens and were truncated" in said(tmp_path / "model")
    assert "held-out texts are also training texts, so the scores overestimate the model" in said(tmp_path / "model")
    assert "examples/s" in said(tmp_path / "model") and "left" in said(tmp_path / "model")


def test_no_segments_is_no_hindrance(
    table: Path, tiny_config: BertConfig, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """A start without segment embeddings learns as well."""
    torch.manual_seed(0)
    BertModel(tiny_config.replace(type_vocab_size=0)).save_pretrained(tmp_path / "plain")
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / "plain" / name).write_bytes((tiny_model_folder / name).read_bytes())
    assert run(table, tmp_path / "model", tmp_path / "plain").accuracy >= 0.9
