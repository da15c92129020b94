"""Fine-tuning a tagger: it learns, its scores are those of seqeval, its files open elsewhere, bad files are named."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import bert_core
from bert_core import capture, tagged_words
from bert_core.modeling import IGNORED_LABEL
from bert_core.studies.words import read_labelled_words
from bert_core.training import tagging
from bert_core.training.settings import FinetuneSettings
from bert_core.training.tagging import TagScores, finetune_tags
from tests.families import FAMILIES, reference_of, save_family, sentences
from tests.near import assert_near
from tests.padding import assert_padding_changes_nothing

pytestmark = pytest.mark.slow

QUICK = FinetuneSettings(epochs=15, learning_rate=3e-3, max_length=48, patience=10)
PLACES = ("paris", "london", "red city", "old france")  # of one word, or of two
PEOPLE = ("anna", "the king", "bob s")


def lines(count: int, seed: int) -> list[list[tuple[str, str]]]:
    """Sentences of words and their tags, drawn from a template; "old" and "the" also stand outside names."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        person, place = draw.choice(PEOPLE).split(), draw.choice(PLACES).split()
        named = [*zip(person, ("B-PER", "I-PER"), strict=False)]
        where = [*zip(place, ("B-LOC", "I-LOC"), strict=False)]
        found.append([("old", "O"), *named, (draw.choice(("sat", "went")), "O"), ("in", "O"), *where, (".", "O")])
    return found


def write(path: Path, given: list[list[tuple[str, str]]]) -> Path:
    text = "\n\n".join("\n".join(f"{word}\tx\t{tag}" for word, tag in sentence) for sentence in given)
    path.write_text(text + "\n", encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "names.conll", lines(180, seed=1))


def run(file: Path, folder: Path, start: Path | str, settings: FinetuneSettings = QUICK, **more: Any) -> TagScores:
    said: list[str] = []
    given = {"held_out": 0.25, "report": lambda done, what="": said.append(what), **more}
    scores = finetune_tags(file, folder, settings, start=str(start), device="cpu", **given)
    (folder / "said.txt").write_text("\n".join(said), encoding="utf-8")
    return scores


def said(folder: Path) -> str:
    return (folder / "said.txt").read_text(encoding="utf-8")


def test_padding_changes_neither_loss_nor_gradient(tiny_tagger_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp32, sentences that are padded beyond the longest have the loss and the gradients that they have without."""
    exact, padded = (bert_core.load(str(tiny_tagger_folder), device="cpu").task_models["tagger"] for _ in range(2))
    assert exact is not None and padded is not None
    rng = np.random.default_rng(1)
    batch = [
        tagging.TaggedText(tuple(rng.integers(5, 150, n)), (0,) * n, (IGNORED_LABEL, *rng.integers(0, 3, n - 1)))
        for n in (7, 11, 20, 13)
    ]
    assert_padding_changes_nothing(tagging, exact.requires_grad_(True), padded.requires_grad_(True), batch, monkeypatch)


def test_it_learns_names_and_scores_as_seqeval_does(file: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """The scores that are told are those of seqeval on what the saved model says of the held-out words, one by one."""
    from seqeval.metrics import f1_score, precision_score, recall_score

    held = write(tmp_path / "held.conll", lines(40, seed=2))
    few = FinetuneSettings(epochs=4, learning_rate=2e-3, max_length=48)
    scores = run(file, tmp_path / "model", tiny_model_folder, few, held_out=held)
    loaded = bert_core.load(str(tmp_path / "model"), device="cpu")
    assert loaded.tags == ("O", "B-LOC", "B-PER", "I-LOC", "I-PER") and loaded.has_mlm and loaded.has_nsp
    truth, guessed = [], []
    for sentence in read_labelled_words(held, "last"):
        words = tagged_words(capture(loaded, loaded.tokenizer.encode(sentence.text)))
        assert len(words) == len(sentence.labels)
        truth.append([str(label) for label in sentence.labels])
        guessed.append([word.label for word in words])
    assert 0.1 < scores.f1 < 1, "all right or all wrong would prove little"
    assert scores.f1 == pytest.approx(f1_score(truth, guessed))
    assert scores.precision == pytest.approx(precision_score(truth, guessed))
    assert scores.recall == pytest.approx(recall_score(truth, guessed))
    pairs = [pair for rows in zip(truth, guessed, strict=True) for pair in zip(*rows, strict=True)]
    assert scores.word_counts == (len(pairs), sum(own == its for own, its in pairs))
    for number, kind in enumerate(scores.kinds):
        of_kind = [[tag if tag.endswith(kind) else "O" for tag in row] for row in truth]
        assert scores.support[number] == sum(tag.startswith("B") for row in of_kind for tag in row)
    told = f"F1 {scores.f1:.3f} (precision {scores.precision:.1%}, recall {scores.recall:.1%})"
    assert told in said(tmp_path / "model")
    assert run(file, tmp_path / "longer", tiny_model_folder, held_out=held).f1 > 0.95


def test_parts_of_speech_are_learned_from_a_treebank(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Tags without B- and I- are judged by the accuracy of words, and a line for each tag says how it fares."""
    rows = []
    for noun in ("cat", "dog", "king", "queen", "man", "city") * 12:
        words = [("the", "DET"), (noun, "NOUN"), ("was", "AUX"), ("big", "ADJ")]
        rows += [f"{n}\t{one}\t_\t{tag}\t_\t_\t{3 * (n != 3)}\tdep\t_\t_" for n, (one, tag) in enumerate(words, 1)]
        rows.append("")
    (tmp_path / "trees.conllu").write_text("\n".join(rows) + "\n", encoding="utf-8")
    scores = run(tmp_path / "trees.conllu", tmp_path / "model", tiny_model_folder, label="upos")
    assert not scores.mark_spans and scores.kinds == ("ADJ", "AUX", "DET", "NOUN") and scores.accuracy == scores.f1 == 1
    assert scores.rank[0] == scores.accuracy and "f1" not in scores.metrics
    assert scores.table()[0].startswith("tag ")
    assert scores.table()[-1].split() == ["all", "100.0%", "100.0%", "1.000", "72"]


def test_later_pieces_are_neither_taught_nor_asked(tiny_model_folder: Path, tmp_path: Path) -> None:
    """The loss is the mean over first pieces alone, as transformers has it with -100 elsewhere."""
    from bert_core.training import tagging

    loaded = bert_core.load(str(tiny_model_folder), device="cpu")
    given = read_labelled_words(write(tmp_path / "a.conll", lines(5, seed=3)), "last")
    tags = ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")
    encoded = tagging._encode(given, tags, loaded.tokenizer, QUICK, tmp_path, lambda done, what="": None)
    for sentence, example in zip(given, encoded, strict=True):
        encoding = loaded.tokenizer.encode(sentence.text)
        firsts = [encoding.words.index(word) for word in range(encoding.word_count)]
        assert [place for place, label in enumerate(example.labels) if label != IGNORED_LABEL] == firsts
        assert [tags[example.labels[place]] for place in firsts] == list(sentence.labels)
        assert len(firsts) < len(example.labels) - 2 or "##" not in "".join(encoding.tokens)
    tagger = bert_core.BertForTokenClassification(loaded.config.with_labels(tags)).eval()
    loss = tagging._loss(tagger, encoded, pad=0, device=torch.device("cpu"))
    ours = transformers.BertForTokenClassification(transformers.BertConfig(**tagger.config.to_dict())).eval()
    ours.load_state_dict(tagger.state_dict())
    longest = max(len(example.input_ids) for example in encoded)
    pads = [longest - len(example.input_ids) for example in encoded]
    ids, mask, labels = (
        torch.tensor([[*row, *[pad] * more] for row, more in zip(rows, pads, strict=True)])
        for rows, pad in (
            ([e.input_ids for e in encoded], 0), ([[1] * len(e.input_ids) for e in encoded], 0),
            ([e.labels for e in encoded], IGNORED_LABEL),
        )
    )  # fmt: skip
    assert_near(loss.item(), ours(ids, attention_mask=mask, labels=labels).loss.item())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_its_own_format(family: str, tmp_path: Path) -> None:
    """transformers reads the saved folder as a classifier of tokens of its family, every key of it, alike."""
    start = save_family(family, tmp_path / "start")
    tagged = [[(word, "LONG" if len(word) > 4 else "SHORT") for word in line.split()] for line in sentences()]
    settings = FinetuneSettings(epochs=1, max_length=48)
    run(write(tmp_path / "words.conll", tagged), tmp_path / "made", start, settings)
    made = bert_core.load(tmp_path / "made", device="cpu")
    assert made.tags == ("LONG", "SHORT") and made.has_mlm and made.config.family.name in (family, "roberta")
    encoding = made.tokenizer.encode("The cat sat on the mat.")
    kind = type(reference_of(family, tmp_path / "made", "ForTokenClassification"))
    theirs, info = kind.from_pretrained(tmp_path / "made", attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    run_ = capture(made, encoding)
    assert run_.tags is not None
    assert_near(run_.tags.logits, theirs.eval()(torch.tensor([encoding.input_ids])).logits[0], 1e-4)


def test_a_stopped_run_goes_on_to_the_same_weights(file: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Stopped in its second epoch and begun again, it ends as one that was not; with another column it is refused."""
    settings = FinetuneSettings(epochs=3, learning_rate=1e-3, max_length=48)
    whole = run(file, tmp_path / "whole", tiny_model_folder, settings)

    def stop(done: float | None, what: str = "") -> None:
        if done is not None and done > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(file, tmp_path / "stopped", tiny_model_folder, settings, report=stop)
    with pytest.raises(ValueError, match="tags"):
        run(file, tmp_path / "stopped", tiny_model_folder, settings, label="1")
    again = run(file, tmp_path / "stopped", tiny_model_folder, settings)
    assert again.f1 == whole.f1
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_a_tagger_of_the_same_tags_goes_on_from_its_own(file: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """What the first run taught is where the second begins; of other tags it begins anew."""
    run(file, tmp_path / "first", tiny_model_folder)
    one = FinetuneSettings(epochs=1, learning_rate=1e-6, max_length=48)
    assert run(file, tmp_path / "second", tmp_path / "first", one).f1 > 0.95
    assert run(file, tmp_path / "third", tmp_path / "first", one, label="1").accuracy < 0.5


def test_long_sentences_are_cut_and_counted(tiny_model_folder: Path, tmp_path: Path) -> None:
    """How many were cut and how many words that left out is said, and what is left is learned from."""
    given = [*lines(20, seed=1), [("the", "O")] * 30]
    scores = run(write(tmp_path / "n.conll", given), tmp_path / "model", tiny_model_folder,
                 FinetuneSettings(epochs=1, max_length=16), held_out=write(tmp_path / "h.conll", given))  # fmt: skip
    assert "1 of 21 sentences are longer than 16 tokens and were truncated" in said(tmp_path / "model")
    assert "16 labelled words without a token were left out" in said(tmp_path / "model")
    assert scores.word_counts[0] == sum(map(len, given)) - 16
    assert "held-out sentences are also training sentences, so the scores overestimate the model" in said(
        tmp_path / "model"
    )


def test_tags_that_do_not_nest_are_counted_and_said(tiny_model_folder: Path, tmp_path: Path) -> None:
    """An I- without its B- begins a span, as the field counts; how many there are and where the first is, is said."""
    given = [*lines(20, seed=1), [("anna", "I-PER"), ("sat", "O"), ("in", "O"), ("paris", "I-LOC")]]
    run(write(tmp_path / "n.conll", given), tmp_path / "model", tiny_model_folder, FinetuneSettings(epochs=1),
        held_out=write(tmp_path / "h.conll", lines(5, seed=2)))  # fmt: skip
    line = sum(len(sentence) + 1 for sentence in given[:-1]) + 1
    assert (
        f"2 of 42 spans start with an I- or E- tag, the first in the sentence at line {line}: that tag counts as the "
        "start of the span"
    ) in said(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: {"file": write(f / "o.conll", [[("a", "O"), ("b", "O")]] * 3)},
         "every word of o.conll has the same label, 'O': training needs at least two labels"),
        (lambda f: {"held_out": write(f / "t.conll", [[("a", "O"), ("b", "B-MISC")]])},
         "t.conll has the label 'B-MISC' (in the sentence at line 1), which no training word has: the labels are O, "
         "B-LOC, B-PER, I-LOC, I-PER"),
        (lambda f: {"held_out": 1.5}, "the held-out share is 1.5: it must be greater than 0 and less than 1"),
        (lambda f: {"file": write(f / "o.conll", [[("a", "X"), ("b", "Y")]])},
         "1 sentence cannot be split so that each label is in a training sentence: add sentences, or name a held-out "
         "file"),
        (lambda f: {"label": "4"}, "line 1 of names.conll has 3 columns: the word is in column 1 and its label in "
         "column 4, so at least 4 are needed"),
        (lambda f: {"file": write(f / "z.conll", [[("\u200b", "X"), ("\u200b", "Y")]] * 4)}, "the sentence at line"),
        (lambda f: {"settings": FinetuneSettings(max_length=600)}, "a length of 600 is too long"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_one_sentence(
    file: Path, tiny_model_folder: Path, tmp_path: Path, change: Callable[[Path], dict[str, Any]], sentence: str
) -> None:
    """A label, a share, a column, a word or a length that cannot be used, each in a sentence of its own."""
    arguments = {"file": file, "folder": tmp_path / "model", "start": tiny_model_folder, **change(tmp_path)}
    with pytest.raises(ValueError) as error:
        run(**arguments)
    assert sentence in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "model").exists()


def test_a_share_never_takes_all_words_of_a_label(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Whatever is drawn, each label that is asked was also taught."""
    from bert_core.training.tagging import split_sentences

    given = read_labelled_words(write(tmp_path / "n.conll", [*lines(12, seed=5), [("x", "RARE"), ("y", "O")]]), "last")
    for seed in range(20):
        rest, held = split_sentences(given, 0.3, seed)
        assert len(held) == 4 and len(rest) == 9
        assert {label for one in held for label in one.labels} <= {label for one in rest for label in one.labels}
    again = [[one.line for one in split_sentences(given, 0.3, 1)[1]] for _ in range(2)]
    assert again[0] == again[1]
