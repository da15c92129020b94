"""A task head that a program registers: everything that asks a head by name works with it, and nothing else changes.

The head scores two tokens of a text: a linear layer over their states of the last layer, side by side.
"""

from __future__ import annotations

import csv
import dataclasses
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bert_core import (
    METHODS,
    AttentionKnockout,
    BertConfig,
    BertModel,
    BertPreTrainedModel,
    Columns,
    CorpusSettings,
    Encoding,
    ExplainSettings,
    LoadedModel,
    ModelRun,
    Refused,
    Target,
    capture,
    captures,
    decompx,
    edited,
    explain_file,
    explained_rows,
    faithfulness,
    integrated_gradients,
    iter_heads,
    judge_file,
    load,
    pruned,
    save,
    token_scores,
    values_without,
)
from bert_core.analysis.faithfulness import MEASURES
from bert_core.fingerprint import fingerprint
from bert_core.run.target_grammar import format_target, parse_target, target_forms
from bert_core.studies.faithfulness import draw_questions
from bert_core.studies.settings import StudySettings
from bert_core.target_kinds import FILE_QUESTIONS, TARGET_KINDS, FileQuestion, TargetKind
from bert_core.task_heads import (
    TASK_HEADS,
    LinearPath,
    Readout,
    TaskHead,
    as_wide_floats,
    copy_to_array,
    head_of,
    register_head,
    trained_heads,
    unregister_head,
)
from tests.near import assert_near

NAME = "pair score"
TEXT = "the king of france ran to the door"
OFFERED = 3
METHOD_NAMES = tuple(method.name for method in METHODS)


# ---------------------------------------------------------------------------- the head


class BertForPairScore(BertPreTrainedModel):
    """BERT with one score of two tokens."""

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False) if bert is None else bert
        self.pair_score = nn.Linear(2 * config.hidden_size, 1)
        self._init_head(self.pair_score, with_encoder=bert is None)


class PairScore(TaskHead):
    """The log-odds that two tokens belong together."""

    name = NAME
    description = "has no trained pair score"
    module = BertForPairScore
    parts = ("pair_score.",)
    architectures = ("PairScore",)
    every_token = True
    title = "Which two tokens belong together?"
    subtitle = "The two tokens with the largest score."

    def halves(self, loaded: LoadedModel) -> tuple[Tensor, ...]:
        """The weights (hidden,) of the first token and of the second."""
        weight: Tensor = self.head_module(loaded).pair_score.weight
        return weight[0].chunk(2)

    def logits(self, loaded: LoadedModel, states: Tensor) -> Tensor:
        """states: (..., 2, hidden), of both tokens. Returns (...)."""
        return as_wide_floats(self.head_module(loaded).pair_score(states.flatten(-2))[..., 0])

    def outputs(self, loaded: LoadedModel, states: Tensor) -> dict[str, Tensor]:
        first, last = self.halves(loaded)
        return {
            "first": as_wide_floats(states @ first + self.head_module(loaded).pair_score.bias),
            "last": states @ last,
        }

    def prediction(self, loaded: LoadedModel, encoding: Encoding, outputs: Mapping[str, Tensor]) -> np.ndarray:
        """Scores (first, last) of every two tokens."""
        return copy_to_array(outputs["first"][:, None] + outputs["last"])

    def readouts(self, loaded: LoadedModel, run: ModelRun, most: int = 10) -> list[Readout]:
        labels = run.encoding.labels
        rows = tuple(
            (f"{labels[first]} and {labels[last]}", float(self.prediction_of(run)[first, last]))
            for first, last in self.best(run)[:most]
        )
        return [Readout(self.name, rows)]

    def best(self, run: ModelRun) -> list[tuple[int, int]]:
        """All pairs of two typed tokens, the largest score first."""
        scores, typed = self.prediction_of(run), np.flatnonzero(~np.array(run.encoding.special))
        pairs = [(first, last) for first in typed.tolist() for last in typed.tolist() if first != last]
        return sorted(pairs, key=lambda pair: -float(scores[pair]))

    def value(self, loaded: LoadedModel, target: Target, rows: Tensor, other: Tensor | None) -> Tensor:
        return self.logits(loaded, rows)

    def linear_path(self, loaded: LoadedModel, target: Target, row: int) -> LinearPath | None:
        bias = self.head_module(loaded).pair_score.bias[0]
        return LinearPath((), self.halves(loaded)[row], bias if row == 0 else torch.zeros_like(bias))

    def suggested_targets(
        self, loaded: LoadedModel, run: ModelRun, original: Encoding, linked: Target | None
    ) -> list[Target]:
        pairs = self.best(run)[:OFFERED]
        if linked is not None and linked.kind == "pair":
            pairs.append((linked.rows[0], linked.rows[1]))
        return [Target("pair", first, last=last) for first, last in dict.fromkeys(pairs)]


KINDS = {
    "pair": TargetKind(
        ("position", "last"), NAME, "nats of log-odds", "sigmoid",
        "“{word}” at {first} with “{other}” at {last}", "Why do “{word}” and “{other}” belong together?",
        "“{word}” with “{other}”", "probability {probability}",
    )
}  # fmt: skip
QUESTIONS = {"pair": FileQuestion(NAME, "nats of log-odds a pair", {"pair": "Two tokens that belong together"})}


@pytest.fixture
def registered() -> Iterator[PairScore]:
    """The head, registered until the test ends."""
    head = PairScore()
    register_head(head, KINDS, QUESTIONS)
    yield head
    unregister_head(NAME)


def save_pair_model(tiny: LoadedModel, folder: Path, seed: int = 7) -> Path:
    """A checkpoint with the weights of another and those of the head; it does not ask whether the head is known."""
    torch.manual_seed(seed)
    module = BertForPairScore(tiny.config, tiny.model.bert)
    nn.init.normal_(module.pair_score.weight)
    nn.init.constant_(module.pair_score.bias, 0.7)
    module.eval().requires_grad_(False)
    return save(dataclasses.replace(tiny, task_models={NAME: module}), folder)


@pytest.fixture
def folder(tiny_loaded: LoadedModel, tmp_path: Path) -> Path:
    return save_pair_model(tiny_loaded, tmp_path / "pairs")


@pytest.fixture
def loaded(registered: PairScore, folder: Path) -> LoadedModel:
    return load(folder, device="cpu")


@pytest.fixture
def encoding(loaded: LoadedModel) -> Encoding:
    return loaded.tokenizer.encode(TEXT)


def weights_of(loaded: LoadedModel) -> tuple[np.ndarray, float]:
    """The weight (2, hidden) and the bias, float64."""
    layer: Any = loaded.task_models[NAME].pair_score
    return layer.weight.detach().double().numpy().reshape(2, -1), float(layer.bias.detach())


def by_hand(loaded: LoadedModel, encoding: Encoding, gates: np.ndarray | None = None) -> np.ndarray:
    """Scores (first, last) from the states of the encoder alone."""
    with torch.no_grad():
        states = loaded.model.bert(
            torch.tensor([encoding.input_ids]), token_type_ids=torch.tensor([encoding.token_type_ids]),
            head_mask=None if gates is None else torch.tensor(gates, dtype=torch.float32),
        ).last_hidden_state[0].double().numpy()  # fmt: skip
    (first, last), bias = weights_of(loaded)
    scores: np.ndarray = (states @ first)[:, None] + states @ last + bias
    return scores


# ---------------------------------------------------------------------------- files


def test_a_saved_model_has_the_head_again(loaded: LoadedModel, folder: Path, tmp_path: Path) -> None:
    """The weights are those that were saved, nothing is missing or unused, and a second round trip changes no file."""
    assert [head.name for head in trained_heads(loaded)] == ["words", "next", NAME]
    assert loaded.has_head(NAME) and not loaded.notes and not loaded.report.unexpected
    again = save(loaded, tmp_path / "again")
    assert (again / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert fingerprint(load(again, device="cpu")) == fingerprint(loaded)
    packed = save(loaded, tmp_path / "packed.zip")
    assert fingerprint(load(packed, device="cpu")) == fingerprint(loaded)


def test_without_registration_the_weights_are_unused(folder: Path, tiny_loaded: LoadedModel) -> None:
    """The checkpoint loads as the one without the head, and its notes name the tensors that are not used."""
    plain = load(folder, device="cpu")
    assert not plain.task_models and NAME not in TASK_HEADS
    assert set(plain.report.unexpected) == {"pair_score.weight", "pair_score.bias"}
    assert any("2 tensors of its file are not used: pair_score." in note for note in plain.notes)
    assert fingerprint(plain) == fingerprint(tiny_loaded)
    with pytest.raises(Refused, match="the target kind 'pair' is unknown"):
        Target("pair", 3, last=7)


def test_a_model_without_the_weights_does_not_have_the_head(registered: PairScore, tiny_loaded: LoadedModel) -> None:
    """Registration gives no head to a model whose file has none: its target is refused, and nothing is predicted."""
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    assert not registered.is_trained(tiny_loaded) and not tiny_loaded.notes
    assert capture(tiny_loaded, encoding).others == {}
    with pytest.raises(Refused, match="has no trained pair score"):
        capture(tiny_loaded, encoding, target=Target("pair", 3, last=7))


def test_half_of_the_weights_is_no_head(registered: PairScore, folder: Path, tiny_loaded: LoadedModel) -> None:
    """Where the file lacks one of the two tensors the head is untrained, and the notes name what is missing."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["pair_score.bias"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    half = load(folder, device="cpu")
    assert not half.has_head(NAME) and half.notes == ("missing in its file: pair_score",)
    assert capture(half, half.tokenizer.encode(TEXT)).others == {}


def test_the_fingerprint_changes_with_the_weights_of_the_head(
    loaded: LoadedModel, tiny_loaded: LoadedModel, tmp_path: Path
) -> None:
    """Other weights of the head are another model, and so is the model without the head."""
    other = load(save_pair_model(tiny_loaded, tmp_path / "other", seed=8), device="cpu")
    assert len({fingerprint(loaded), fingerprint(other), fingerprint(tiny_loaded)}) == 3
    assert loaded.nbytes - tiny_loaded.nbytes == 4 * (2 * loaded.config.hidden_size + 1)


def test_pruned_and_edited_copies_keep_the_head(loaded: LoadedModel, encoding: Encoding, tmp_path: Path) -> None:
    """A pruned copy predicts what the head mask does, also read from a file; an edited one what its encoder says."""
    gates = np.ones((2, 4))
    gates[0, 1] = gates[1, 2] = 0
    expected = capture(loaded, encoding, head_mask=gates).others[NAME]
    smaller = pruned(loaded, [(0, 1), (1, 2)])
    assert_near(capture(smaller, encoding).others[NAME], expected)
    read = load(save(smaller, tmp_path / "smaller"), device="cpu")
    assert_near(capture(read, encoding).others[NAME], expected)
    assert smaller.task_models[NAME].base_model is smaller.model.bert and loaded.config.pruned_heads == {}
    cut = edited(loaded, [AttentionKnockout((3,), (7,))])
    assert cut.has_head(NAME) and fingerprint(cut) == fingerprint(loaded)
    found = capture(cut, encoding).others[NAME]
    assert_near(found, by_hand(cut, encoding))
    assert np.abs(found - capture(loaded, encoding).others[NAME]).max() > 1e-3


# ---------------------------------------------------------------------------- one text


def test_capture_gives_the_prediction_and_the_value(
    registered: PairScore, loaded: LoadedModel, encoding: Encoding
) -> None:
    """`ModelRun.others` has the scores by hand, read-only and counted; the value of a target is one of them."""
    run = capture(loaded, encoding, target=Target("pair", 3, last=7))
    expected = by_hand(loaded, encoding)
    assert set(run.others) == {NAME} and run.others[NAME].shape == expected.shape
    assert_near(run.others[NAME], expected)
    assert_near(run.target_value, expected[3, 7], of=np.abs(expected).max())
    assert not run.others[NAME].flags.writeable
    assert run.nbytes - dataclasses.replace(run, others={}).nbytes == expected.size * 4
    assert run == capture(loaded, encoding, target=Target("pair", 3, last=7)) and run == pickle.loads(pickle.dumps(run))
    assert run != dataclasses.replace(run, others={NAME: run.others[NAME] + 1}) and isinstance(hash(run), int)
    best = max(row[1] for row in registered.readouts(loaded, run)[0].rows)
    typed = expected[1:-1, 1:-1]
    assert_near(best, typed[~np.eye(len(typed), dtype=bool)].max())


def test_texts_of_a_batch_have_the_prediction_without_padding(loaded: LoadedModel, encoding: Encoding) -> None:
    """Each text of `captures` has the scores that it has alone."""
    texts = [encoding, loaded.tokenizer.encode("the cat"), loaded.tokenizer.encode("a dog", "the old man sat")]
    for text, run in zip(texts, captures(loaded, texts), strict=True):
        assert_near(run.others[NAME], by_hand(loaded, text))


def test_gradients_are_those_of_finite_differences(loaded: LoadedModel, encoding: Encoding) -> None:
    """The slope of each gate is the difference quotient of scores by hand with the gate above and below 1."""
    run, step = capture(loaded, encoding, target=Target("pair", 3, last=7)), 0.02
    assert run.gate_gradient is not None
    expected = np.empty_like(run.gate_gradient)
    for head in np.ndindex(*expected.shape):
        above, below = np.ones(expected.shape), np.ones(expected.shape)
        above[head], below[head] = 1 + step, 1 - step
        change = by_hand(loaded, encoding, above)[3, 7] - by_hand(loaded, encoding, below)[3, 7]
        expected[head] = change / (2 * step)
    assert_near(run.gate_gradient, expected, within=5e-3)


def test_every_method_explains_it(loaded: LoadedModel, encoding: Encoding) -> None:
    """Each method gives finite scores; the parts of DecompX sum to the logit, integrated gradients to the change."""
    target, expected = Target("pair", 3, last=7), by_hand(loaded, encoding)
    scores = token_scores(loaded, encoding, target)
    assert scores.shape == (len(METHODS), len(encoding)) and np.isfinite(scores).all()
    assert (np.abs(scores).max(1) > 0).all()
    parts = decompx(loaded, encoding, target)
    assert_near(parts.scores.sum(dtype=np.float64), expected[3, 7], of=np.abs(parts.scores).sum())
    assert_near(parts.target_value, expected[3, 7], of=np.abs(expected).max())
    assert_near(scores[METHOD_NAMES.index("DecompX")], parts.scores)
    way = integrated_gradients(loaded, encoding, target, steps=200)
    assert way.baseline_value is not None and abs(way.target_value - way.baseline_value) > 0.1
    assert_near(way.scores.sum(dtype=np.float64), way.target_value - way.baseline_value, within=1e-3)


def test_removals_are_those_of_the_text_with_masks(loaded: LoadedModel, encoding: Encoding) -> None:
    """Occlusion is the score by hand less that of the text with the token behind [MASK]; probabilities its sigmoid."""
    target, whole = Target("pair", 3, last=7), by_hand(loaded, encoding)[3, 7]
    expected = np.zeros(len(encoding))
    for position in range(1, len(encoding) - 1):
        ids = list(encoding.input_ids)
        ids[position] = loaded.tokenizer.mask_id
        expected[position] = whole - by_hand(loaded, dataclasses.replace(encoding, input_ids=tuple(ids)))[3, 7]
    found = token_scores(loaded, encoding, target, ["occlusion"])[0]
    assert_near(found, expected)
    nothing = np.zeros((1, len(encoding)), bool)
    assert_near(values_without(loaded, encoding, target, nothing, probability=True), [1 / (1 + np.exp(-whole))])


def test_targets_that_cannot_be_are_refused(loaded: LoadedModel, encoding: Encoding) -> None:
    """A position beyond the text, and a target without its second position, are refused in one sentence."""
    with pytest.raises(Refused, match="position 99 does not exist"):
        capture(loaded, encoding, target=Target("pair", 3, last=99))
    with pytest.raises(Refused, match="a 'pair' target needs a position and a last position"):
        Target("pair", 3)


# ---------------------------------------------------------------------------- targets as text


def test_targets_are_written_and_read(registered: PairScore, loaded: LoadedModel, encoding: Encoding) -> None:
    """ "pair:3:7" stands for the target and the target for it; each offered target makes the round trip too."""
    target = Target("pair", 3, last=7)
    assert parse_target(loaded, encoding, "pair:3:7") == (target, encoding)
    assert format_target(loaded, target) == "pair:3:7"
    assert "pair:POSITION:LAST" in target_forms(loaded) and "pair:POSITION:LAST" in target_forms()
    run = capture(loaded, encoding)
    offered = registered.suggested_targets(loaded, run, encoding, Target("pair", 1, last=1))
    assert len(offered) == OFFERED + 1 and offered[-1] == Target("pair", 1, last=1)
    for one in offered:
        assert parse_target(loaded, encoding, format_target(loaded, one)).target == one
        assert capture(loaded, encoding, target=one).target_value is not None
    assert head_of(target).template_values(loaded, encoding, target) == {
        "first": 3, "last": 7, "count": 0, "word": encoding.labels[3], "other": encoding.labels[7]
    }  # fmt: skip
    with pytest.raises(Refused, match="the target is 'pair:3': write pair:POSITION:LAST"):
        parse_target(loaded, encoding, "pair:3")


# ---------------------------------------------------------------------------- files of texts


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["text", *(f"{TEXT} {n % 5}" for n in range(12))]) + "\n", encoding="utf-8")
    return path


def test_importance_of_heads_over_a_file(
    registered: PairScore, loaded: LoadedModel, folder: Path, table: Path, tmp_path: Path
) -> None:
    """Importance is the mean size of the slopes by hand, and the cost of a head what a head mask costs."""
    settings = CorpusSettings(loss="pair", columns=Columns("text"))
    *_, (sums, share) = iter_heads(table, str(folder), settings, device="cpu")
    measured = sums.table("pairs", settings)
    assert share == 1 and measured.texts == 12 and sums.counts["questions"] == 12 * OFFERED
    shape, losses = (2, 4), []
    importance, change = np.zeros(shape), np.zeros(shape)
    for n in range(5):
        weight = sum(row % 5 == n for row in range(12)) / 12
        text = loaded.tokenizer.encode(f"{TEXT} {n}")
        pairs = registered.best(capture(loaded, text))[:OFFERED]
        runs = [capture(loaded, text, target=Target("pair", first, last=last)) for first, last in pairs]
        importance += weight * np.abs(np.mean([run.gate_gradient for run in runs if run.gate_gradient is not None], 0))
        scores = by_hand(loaded, text)
        losses.append(-weight * np.mean([scores[pair] for pair in pairs]))
        for head in np.ndindex(*shape):
            gates = np.ones(shape)
            gates[head] = 0
            without = by_hand(loaded, text, gates)
            change[head] += weight * np.mean([scores[pair] - without[pair] for pair in pairs])
    assert_near(measured.figures["importance"], importance)
    assert_near(measured.figures["loss_change"], change, within=1e-4)
    assert_near(measured.loss, sum(losses))
    assert measured.loss_text == f"{measured.loss:.3f} nats of log-odds a pair"


def test_every_text_of_a_file_is_explained(
    registered: PairScore, loaded: LoadedModel, folder: Path, table: Path, tmp_path: Path
) -> None:
    """The rows of the first text are the scores of its targets, each with its kind, its places and its probability."""
    out, methods = tmp_path / "out.csv", ("DecompX", "occlusion")
    settings = ExplainSettings("pair", methods, columns=Columns("text"))
    counts, _ = explain_file(table, out, str(folder), settings, device="cpu")
    assert counts["texts"] == 12 and counts["questions"] == 12 * OFFERED
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(batch["text"]) for batch in explained_rows(out))
    text = loaded.tokenizer.encode(f"{TEXT} 0")
    for number, (first, last) in enumerate(registered.best(capture(loaded, text))[:OFFERED]):
        own = rows[number * len(text) : (number + 1) * len(text)]
        assert {(row["kind"], row["asked"], row["first"], row["last"]) for row in own} == {
            ("pair", NAME, str(first), str(last))
        }
        expected = token_scores(loaded, text, Target("pair", first, last=last), methods)
        assert_near([[float(row[method]) for row in own] for method in methods], expected)
        assert_near(float(own[0]["probability"]), 1 / (1 + np.exp(-by_hand(loaded, text)[first, last])))


def test_methods_are_judged_on_it(loaded: LoadedModel, tmp_path: Path) -> None:
    """A study has the number of questions that was asked for, and what it says is what `faithfulness` says."""
    path, out = tmp_path / "text.txt", tmp_path / "table.csv"
    path.write_text("The cat sat on the mat. A dog ran in the house. The king saw the door. She is old.\n" * 2)
    settings = StudySettings(
        questions=2, kinds=("pair",), methods=("occlusion", "DecompX"), lengths=(4, 60), least=0, random_rankings=4
    )
    judged = judge_file(loaded, path, out, settings)
    assert [one.kind for one in judged] == ["pair"] * 4
    question = draw_questions(loaded, path, settings)[0]
    scores = token_scores(loaded, question.encoding, question.target, settings.methods)
    expected = faithfulness(
        loaded, question.encoding, question.target, scores, words=True, random_rankings=4, seed=question.number
    )
    for row in range(2):
        assert_near(judged[row].scores, [expected[name].scores[row] for name in MEASURES])


# ---------------------------------------------------------------------------- registration


def test_unregister_head_removes_everything(tiny_loaded: LoadedModel, folder: Path) -> None:
    """Afterwards the tables are those of before, and the same head can be registered again."""
    before = (dict(TASK_HEADS), dict(TARGET_KINDS), dict(FILE_QUESTIONS))
    for _ in range(2):
        register_head(PairScore(), KINDS, QUESTIONS)
        assert NAME in TASK_HEADS and "pair" in TARGET_KINDS and "pair" in FILE_QUESTIONS
        unregister_head(NAME)
        assert (dict(TASK_HEADS), dict(TARGET_KINDS), dict(FILE_QUESTIONS)) == before
    for make in (
        lambda: CorpusSettings(loss="pair"),
        lambda: ExplainSettings("pair"),
        lambda: Target("pair", 1, last=2),
        lambda: StudySettings(kinds=("pair",)),
    ):
        with pytest.raises(Refused, match="'pair' is unknown"):
            make()


def test_a_target_of_a_head_that_was_removed_is_refused(folder: Path) -> None:
    """What was made while the head was there is refused afterwards in one sentence, and the model works without it."""
    register_head(PairScore(), KINDS, QUESTIONS)
    try:
        loaded, target = load(folder, device="cpu"), Target("pair", 3, last=7)
    finally:
        unregister_head(NAME)
    encoding = loaded.tokenizer.encode(TEXT)
    with pytest.raises(Refused, match="the target kind 'pair' is unknown"):
        capture(loaded, encoding, target=target)
    assert capture(loaded, encoding).others == {}
