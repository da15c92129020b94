"""Task heads: what holds for every declaration, and what registration refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from bert_core import Encoding, LoadedModel, ModelRun, Refused, Target, capture, decompx, load, save
from bert_core.checkpoint import classifier_input
from bert_core.pooling import Pooling
from bert_core.registry import ENTRY_POINTS
from bert_core.run.similarity import similarity_target
from bert_core.run.target_grammar import format_target, parse_target
from bert_core.run.targets import rows_of_probability, target_probabilities, target_values
from bert_core.studies.settings import StudySettings, question_kinds
from bert_core.target_kinds import CUSTOM, FILE_QUESTIONS, TARGET_KINDS, FileQuestion, TargetKind
from bert_core.task_heads import (
    TASK_HEADS,
    TaskHead,
    head_of,
    is_number,
    optional_parts,
    parts_of_architectures,
    register_head,
    trained_heads,
    unregister_head,
)
from tests.conftest import named
from tests.families import save_family
from tests.near import assert_near

ROOT = Path(__file__).parents[2]
PAIR = ("who sat on the mat", "an old cat sat on the red mat")
MASKED = ("the cat [MASK] on the mat", "it is old")
# Head -> the fixture of a checkpoint that has it; the others are made here.
FOLDERS = {
    "words": "tiny_model_folder", "next": "tiny_model_folder", "classifier": "tiny_classifier_folder",
    "tagger": "tiny_tagger_folder", "reader": "tiny_reader_folder", "chooser": "tiny_chooser_folder",
}  # fmt: skip
BUILT_IN = (*FOLDERS, "detector", "pooling")


@pytest.fixture
def folder_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Path]:
    """A tiny checkpoint with a head."""

    def folder(head: str) -> Path:
        if head == "detector":
            return save_family("electra", tmp_path / "electra", "ForPreTraining")
        if head == "pooling":
            tiny = load(request.getfixturevalue("tiny_model_folder"), device="cpu")
            return save(replace(tiny, pooling=Pooling()), tmp_path / "pooled")
        path: Path = request.getfixturevalue(FOLDERS[head])
        return path

    return folder


def texts_of(loaded: LoadedModel, head: str) -> tuple[Encoding, Encoding]:
    """A pair on which the head has targets, and the same before a word was hidden."""
    original = loaded.tokenizer.encode(*PAIR)
    return (loaded.tokenizer.mask_words(original, [1, 6]) if head == "words" else original), original


def offered_by(loaded: LoadedModel, head: str) -> tuple[ModelRun, list[Target]]:
    encoding, original = texts_of(loaded, head)
    run = capture(loaded, encoding)
    targets = TASK_HEADS[head].suggested_targets(loaded, run, original, None)
    if head == "pooling":
        targets = [similarity_target(loaded, encoding, loaded.tokenizer.encode("a dog ran"))]
    return run, targets


def last_states(loaded: LoadedModel, encoding: Encoding) -> torch.Tensor:
    """The last layer (token, hidden), from the encoder alone."""
    with torch.no_grad():
        states: torch.Tensor = loaded.model.bert(
            torch.tensor([encoding.input_ids]), token_type_ids=torch.tensor([encoding.token_type_ids])
        ).last_hidden_state[0]
    return states


# ---------------------------------------------------------------------------- the tables


def test_every_head_of_a_table_is_declared() -> None:
    """Each row of both tables names a head, every head has a target, and what is declared twice agrees."""
    assert tuple(TASK_HEADS) == (
        "words",
        "classifier",
        "detector",
        "reader",
        "tagger",
        "chooser",
        "next",
        "pooling",
        CUSTOM,
    )
    assert {*BUILT_IN, CUSTOM} == set(TASK_HEADS)
    with pytest.raises(TypeError):
        TASK_HEADS["words"] = TASK_HEADS["next"]  # type: ignore[index]
    assert {kind.head for kind in TARGET_KINDS.values()} == set(TASK_HEADS)
    assert {question.head for question in FILE_QUESTIONS.values()} <= set(TASK_HEADS)
    for name, head in TASK_HEADS.items():
        assert head.name == name and head.description and (head.module is None or head.parts)
        assert not head.result or head.result in ModelRun.__dataclass_fields__
        assert bool(head.title) == bool(head.subtitle) == head.gives_predictions
    results = [head.result for head in TASK_HEADS.values() if head.result]
    assert len(set(results)) == len(results)


def test_every_question_that_is_judged_is_known_to_a_study() -> None:
    """A study takes each kind of `question_kinds`, and each of them has a title."""
    titles = {kind for question in FILE_QUESTIONS.values() for kind in question.faithfulness_kinds}
    assert set(question_kinds()) <= titles
    for kind in question_kinds():
        assert StudySettings(kinds=(kind,)).kinds == (kind,)


@pytest.mark.parametrize("head", BUILT_IN)
def test_weights_of_a_head_are_found_by_its_parts(head: str, folder_of: Callable[[str], Path]) -> None:
    """A module's own tensors begin as its parts say, and an architecture with the head has these parts."""
    declared = TASK_HEADS[head]
    loaded = load(folder_of(head), device="cpu")
    if declared.module is not None:
        assert all(name.startswith(declared.parts) for name in loaded.head_weights(head)) and loaded.head_weights(head)
        assert loaded.task_models[head].base_model is loaded.model.bert and isinstance(
            loaded.task_models[head], declared.module
        )
    for architecture in declared.architectures:
        if " of " not in architecture:
            config = named(loaded.config.replace(extra={"model_type": "bert"}), f"BertFor{architecture}")
            assert set(declared.parts) <= parts_of_architectures(config) <= set(optional_parts())


@pytest.mark.parametrize("head", BUILT_IN)
def test_a_head_is_trained_only_with_its_weights(head: str, folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    """Loaded from its checkpoint it is trained; with its tensors taken out of the file it is not, and refuses."""
    declared, folder = TASK_HEADS[head], folder_of(head)
    loaded = load(folder, device="cpu")
    assert declared.is_trained(loaded) and declared in trained_heads(loaded) and loaded.has_head(head)
    encoding, _ = texts_of(loaded, head)
    assert declared.applies(loaded, encoding)
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in folder.iterdir():
        if file.is_file() and file.name != "modules.json":
            (bare / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(declared.parts or "nothing")}
    assert not declared.parts or len(kept) < len(weights)
    save_file(kept, bare / "model.safetensors", {"format": "pt"})
    without = load(bare, device="cpu")
    assert not declared.is_trained(without) and declared not in trained_heads(without)
    if head != "pooling":  # the cosine of two texts is asked of any encoder
        target = next(target for target in offered_by(loaded, head)[1])
        with pytest.raises(Refused, match="choose another target"):
            capture(without, encoding, target=target)
    with pytest.raises(Refused, match="cannot be asked for"):
        without.require_head(head, "it cannot be asked for")


def test_heads_of_pairs_apply_to_pairs_alone(folder_of: Callable[[str], Path]) -> None:
    """A head that judges two texts predicts nothing of one, and its target says what is needed."""
    for head in ("next", "reader", "chooser"):
        loaded, declared = load(folder_of(head), device="cpu"), TASK_HEADS[head]
        alone = loaded.tokenizer.encode(PAIR[0])
        assert not declared.applies(loaded, alone) and declared.prediction_of(capture(loaded, alone)) is None
        target = offered_by(loaded, head)[1][0]
        with pytest.raises(Refused) as refused:
            capture(loaded, alone, target=target)
        assert str(refused.value) == declared.needs_pair


# ---------------------------------------------------------------------------- predictions and targets


@pytest.mark.parametrize("head", BUILT_IN)
def test_a_prediction_is_there_where_the_head_applies(head: str, folder_of: Callable[[str], Path]) -> None:
    """A run holds it under the head's result, and its readouts have names and finite numbers, the largest first."""
    declared = TASK_HEADS[head]
    loaded = load(folder_of(head), device="cpu")
    run, _ = offered_by(loaded, head)
    if not declared.gives_predictions:
        return
    assert declared.prediction_of(run) is not None and declared.prediction_of(run) is getattr(run, declared.result)
    readouts = declared.readouts(loaded, run, 3)
    assert readouts
    for title, rows in readouts:
        assert title and len(rows) > 0 and all(name and np.isfinite(number) for name, number in rows)
        if head not in ("reader", "tagger", "next"):  # by score, in the order of the text, and yes before no
            assert [number for _, number in rows] == sorted((number for _, number in rows), reverse=True)


@pytest.mark.parametrize("head", BUILT_IN)
def test_offered_targets_can_be_computed_written_and_read(head: str, folder_of: Callable[[str], Path]) -> None:
    """Each is of the head, has a finite value, sentences, and comes back from the text that stands for it."""
    loaded = load(folder_of(head), device="cpu")
    encoding, original = texts_of(loaded, head)
    _, targets = offered_by(loaded, head)
    assert targets and len(set(targets)) == len(targets)
    for target in targets:
        assert head_of(target) is TASK_HEADS[head]
        run = capture(loaded, encoding, target=target)
        assert run.target_value is not None and np.isfinite(run.target_value)
        again = parse_target(loaded, encoding, format_target(loaded, target), original=original)
        assert again == (target, encoding)
        names, kind = head_of(target).template_values(loaded, encoding, target), TARGET_KINDS[target.kind]
        for sentence in (kind.title, kind.question, kind.supports):
            assert "{" not in sentence.format(**names, verdict="accept")
        assert kind.format_value(run.target_value, "{:.3g}".format)


@pytest.mark.parametrize("head", BUILT_IN)
def test_a_linked_target_is_offered_again(head: str, folder_of: Callable[[str], Path]) -> None:
    """The target that was chosen before is among those that are offered, also where it is not a likely one."""
    loaded = load(folder_of(head), device="cpu")
    encoding, original = texts_of(loaded, head)
    run = capture(loaded, encoding)
    unlikely = {
        "classifier": Target("class", label=2), "detector": Target("replaced", 1),
        "tagger": Target("tag", 3, label=4), "reader": Target("span", 7, last=7),
    }.get(head)  # fmt: skip
    if unlikely is not None:
        assert unlikely in TASK_HEADS[head].suggested_targets(loaded, run, original, unlikely)
    for declared in trained_heads(loaded):  # one of another head changes nothing
        if declared.name != head and unlikely is not None:
            assert unlikely not in declared.suggested_targets(loaded, run, original, unlikely)


@pytest.mark.parametrize("head", BUILT_IN)
def test_the_linear_path_leads_to_the_value(head: str, folder_of: Callable[[str], Path]) -> None:
    """Each row's state through the stages to the logit, in turn, adds up to the value; DecompX says the same."""
    loaded = load(folder_of(head), device="cpu")
    encoding, _ = texts_of(loaded, head)
    states, declared = last_states(loaded, encoding), TASK_HEADS[head]
    for target in offered_by(loaded, head)[1]:
        run = capture(loaded, encoding, target=target)
        parts = decompx(loaded, encoding, target)
        assert parts.gap is not None and abs(parts.gap) < 1e-4 * max(1, np.abs(parts.scores).sum())
        if head == "pooling":
            assert declared.linear_path(loaded, target, 0) is None
            assert_near(parts.target_value, run.target_value, of=1)
            continue
        logits = []
        for number, row in enumerate(target.rows):
            path = declared.linear_path(loaded, target, number)
            assert path is not None
            state = states[row]
            for dense, activation, norm in path.stages:
                state = activation(dense(state))
                state = state if norm is None else norm(state)
            logits.append(float(state @ path.weight + path.bias))
        logit = float(np.mean(logits) if target.target_kind.mean else np.sum(logits))
        assert_near(parts.target_value, logit, of=max(1.0, abs(logit)))
        if head != "words" or target.kind == "contrast":  # of a word the value is a log-probability
            assert_near(run.target_value, logit, of=max(1.0, abs(logit)))


def test_the_linear_path_of_a_contrast_leads_to_its_value(tiny_loaded: LoadedModel) -> None:
    """Of two words at one mask the path gives the difference of the logits, which is the value."""
    encoding = tiny_loaded.tokenizer.encode(MASKED[0])
    target = parse_target(tiny_loaded, encoding, "sat rather than ran").target
    assert target.kind == "contrast"
    value = capture(tiny_loaded, encoding, target=target).target_value
    assert_near(decompx(tiny_loaded, encoding, target).target_value, value, of=1)


@pytest.mark.parametrize("head", BUILT_IN)
def test_probabilities_follow_from_values(head: str, folder_of: Callable[[str], Path]) -> None:
    """Where a kind has a link, the probability is the link of the value; every one of the words, classes or places
    among which a head chooses has one, and they share 1."""
    loaded = load(folder_of(head), device="cpu")
    encoding, _ = texts_of(loaded, head)
    states = last_states(loaded, encoding)
    for target in offered_by(loaded, head)[1]:
        value = target_values(loaded, encoding, target, states[None, list(target.rows)]).item()
        rows = list(rows_of_probability(loaded, encoding, target))
        probability = target_probabilities(loaded, encoding, target, states[None, rows]).item()
        if (linked := target.target_kind.probability(value)) is not None:
            assert_near(probability, linked, of=1)
    if head == "classifier" and not is_number(loaded.config):
        targets = [Target("class", label=label) for label in range(len(loaded.labels))]
        assert_near(sum(target_probabilities(loaded, encoding, t, states[None, :1]).item() for t in targets), 1)
    if head == "tagger":
        targets = [Target("tag", 2, label=label) for label in range(len(loaded.tags))]
        assert_near(sum(target_probabilities(loaded, encoding, t, states[None, 2:3]).item() for t in targets), 1)


def test_values_are_those_of_the_modules_themselves(folder_of: Callable[[str], Path]) -> None:
    """The value of a class, a tag and a next sentence is what the model's forward pass gives."""
    for head, target, logit in (
        ("classifier", Target("class", label=1), lambda model, given: model(*given[0], **given[1]).logits[0, 1]),
        ("tagger", Target("tag", 2, label=3), lambda model, given: model(*given[0], **given[1]).logits[0, 2, 3]),
    ):
        loaded = load(folder_of(head), device="cpu")
        encoding = loaded.tokenizer.encode(*PAIR)
        given: Any = ([torch.tensor([encoding.input_ids])], {"token_type_ids": torch.tensor([encoding.token_type_ids])})
        with torch.no_grad():
            expected = float(logit(loaded.task_models[head], given))
        assert_near(capture(loaded, encoding, target=target).target_value, expected, of=max(1, abs(expected)))


def test_a_classifier_without_a_named_architecture_is_told_by_its_weights(tiny_loaded: LoadedModel) -> None:
    """A pooler makes it one of texts, tags that begin and go on, or no pooler, one of tokens."""
    config, pooler = tiny_loaded.config, {"bert.pooler.dense.weight": torch.zeros(32, 32)}
    table = {"classifier.weight": torch.zeros(3, 32)}
    assert classifier_input(config, {}) is None
    assert classifier_input(config, table) == "tokens" and classifier_input(config, table | pooler) == "texts"
    tagged = config.with_labels(["O", "B-PER", "I-PER"])
    assert classifier_input(tagged, table | pooler) == "tokens"
    assert classifier_input(named(config, "BertForMultipleChoice"), table) == "choices"
    assert classifier_input(config, {"classifier.weight": torch.zeros(3, 7)}) is None


# ---------------------------------------------------------------------------- registration


class Nothing(TaskHead):
    """A head without weights of its own."""

    name = "nothing"
    description = "has nothing"


class WithModule(Nothing):
    """A head whose module has weights."""

    module = TASK_HEADS["reader"].module
    parts = ("nothing.",)


def kind(head: str = "nothing", **changed: Any) -> TargetKind:
    row: dict[str, Any] = {
        "needs": (), "head": head, "unit": "", "link": None, "title": "", "question": "", "supports": "",
        "value_text": "",
    }  # fmt: skip
    return TargetKind(**(row | changed))


def like(parent: type[TaskHead] = Nothing, **variables: Any) -> TaskHead:
    """An instance of a class with other class variables."""
    head: TaskHead = type("Changed", (parent,), variables)()
    return head


@pytest.mark.parametrize(
    ("head", "kinds", "questions", "sentence"),
    [
        (Nothing, {}, None, "it must be of type TaskHead"),
        ("words", {}, None, "it must be of type TaskHead"),
        (TaskHead(), {}, None, "name of the head TaskHead is None: it must be a text"),
        (like(name=""), {}, None, "name of the head Changed is ''"),
        (like(description=None), {}, None, "description of the head Changed is None"),
        (like(name="words"), {}, None, "words is already registered: choose another name"),
        (Nothing(), {"mlm": kind()}, None, "mlm is already registered"),
        (Nothing(), {}, {"class": FileQuestion("nothing", "")}, "class is already registered"),
        (Nothing(), [], None, "kinds is []: it must be a mapping of names to TargetKind"),
        (Nothing(), {"x": "y"}, None, "one of kinds is 'y': it must be of type TargetKind"),
        (Nothing(), {}, {"x": kind()}, "must be of type FileQuestion"),
        (Nothing(), {"x": kind("words")}, None, "x belongs to the head 'words': it must belong to 'nothing'"),
        (Nothing(), {}, {"x": FileQuestion("words", "")}, "x belongs to the head 'words'"),
        (Nothing(), {"like": kind()}, None, "'like' is not a valid name of a target"),
        (Nothing(), {"a:b": kind()}, None, "'a:b' is not a valid name of a target"),
        (Nothing(), {"7": kind()}, None, "'7' is not a valid name of a target"),
        (Nothing(), {3: kind()}, None, "3 is not a valid name of a target"),
        (Nothing(), {"x": kind(needs=("position", "token_id"))}, None, "x needs position, token_id: it may need"),
        (
            Nothing(),
            {},
            {"x": FileQuestion("nothing", "", loss_from_targets=False)},
            "loss_from_targets of the question x is False",
        ),
        (Nothing(), {}, {"x": FileQuestion("nothing", "", {"y": "Y"})}, "faithfulness_kinds of the question x are y"),
        (like(result="classes"), {}, None, "result of the head 'nothing' is 'classes'"),
        (like(parts="nothing."), {}, None, "parts of the head 'nothing' is 'nothing.'"),
        (like(parts=(3,)), {}, None, "parts of the head 'nothing' is (3,)"),
        (like(module=nn.Linear, parts=("nothing.",)), {}, None, "must extend BertPreTrainedModel"),
        (like(WithModule, parts=()), {}, None, "is empty: a head with a module needs the prefixes of its weights"),
        (
            like(WithModule, parts=("classifier.",)),
            {},
            None,
            "prefix 'classifier.' of the head 'nothing' overlaps with 'classifier.' of the head 'classifier'",
        ),
        (
            like(WithModule, parts=("cls.",)),
            {},
            None,
            "the weight prefix 'cls.' of the head 'nothing' overlaps with 'cls.predictions.' of the head 'words'",
        ),
    ],
)
def test_what_cannot_be_registered_is_refused(head: Any, kinds: Any, questions: Any, sentence: str) -> None:
    """Each fault is named in one sentence, and nothing is added."""
    before = (dict(TASK_HEADS), dict(TARGET_KINDS), dict(FILE_QUESTIONS))
    with pytest.raises(Refused) as refused:
        register_head(head, kinds, questions)
    assert sentence in str(refused.value)
    assert (dict(TASK_HEADS), dict(TARGET_KINDS), dict(FILE_QUESTIONS)) == before


def test_a_kind_of_target_states_only_what_there_is() -> None:
    """A value, a link or a name in a sentence that does not exist is refused where the kind is made."""
    for changed, sentence in (
        ({"needs": ("token",)}, "needs contains 'token': a target has the fields position"),
        ({"link": "softmax"}, "link is 'softmax': it must be 'exp', 'sigmoid' or None"),
        ({"title": "{verdict}"}, "title contains {verdict}: it may contain word"),
        ({"value_text": "{word}"}, "value_text contains {word}: it may contain value, probability, loss"),
        ({"question": "{word"}, "question is '{word': it must be a text with names in braces"),
        ({"question": None}, "question is None: it must be a text"),
    ):
        with pytest.raises(Refused) as refused:
            kind(**changed)
        assert sentence in str(refused.value)


def test_only_registered_heads_can_be_removed() -> None:
    """Built-in heads, unknown names and anything else stay, with a sentence that lists what can go."""
    for name in ("words", "nothing", ""):
        with pytest.raises(Refused, match="cannot be removed: registered heads are none"):
            unregister_head(name)
    with pytest.raises(Refused, match="name is 3: it must be of type str"):
        unregister_head(3)  # type: ignore[arg-type]
    register_head(Nothing(), {})
    try:
        with pytest.raises(Refused, match="registered heads are nothing"):
            unregister_head("words")
        with pytest.raises(Refused, match="nothing is already registered"):
            register_head(Nothing(), {})
    finally:
        unregister_head("nothing")
    assert set(TASK_HEADS) == {*BUILT_IN, CUSTOM}


class Follower(TaskHead):
    """A head on weights of another: how much likelier one word is than another at the first [MASK]."""

    name = "follower"
    description = "cannot say which of two words is likelier"
    parts = ("cls.predictions.",)
    words: ClassVar[tuple[str, str]] = ("sat", "ran")

    def logits(self, loaded: LoadedModel, states: torch.Tensor) -> torch.Tensor:
        first, second = map(loaded.tokenizer.id_of, self.words)
        scores: torch.Tensor = loaded.model.cls.predictions(states)
        return scores[..., first] - scores[..., second]


def test_a_head_without_a_module_stands_on_weights_that_are_there(tiny_loaded: LoadedModel) -> None:
    """It is trained where the weights are, predicts from the first token, and offers the kind that needs nothing."""
    head = Follower()
    register_head(head, {"follows": kind("follower", link="sigmoid", value_text="probability {probability}")})
    try:
        encoding = tiny_loaded.tokenizer.encode(PAIR[0])
        assert head.is_trained(tiny_loaded)
        target = Target("follows")
        assert head.suggested_targets(tiny_loaded, capture(tiny_loaded, encoding), encoding, None) == [target]
        run = capture(tiny_loaded, encoding, target=target)
        expected = float(head.logits(tiny_loaded, last_states(tiny_loaded, encoding)[0]))
        assert_near(run.target_value, expected, of=1)
        assert_near(float(run.others["follower"]), expected, of=1)
        ((title, ((name, number),)),) = head.readouts(tiny_loaded, run)
        assert (title, name) == ("follower", "follower")
        assert_near(number, expected, of=1)
        assert parse_target(tiny_loaded, encoding, "follows").target == target
        with pytest.raises(Refused, match="DecompX does not support the head 'follower'"):
            decompx(tiny_loaded, encoding, target)
    finally:
        unregister_head("follower")


# ---------------------------------------------------------------------------- entry points

PACKAGE = '''
"""A package with task heads."""

from bert_core.target_kinds import TargetKind
from bert_core.task_heads import TaskHead, register_head


class Length(TaskHead):
    name = "length"
    description = "has no length"


def add():
    register_head(Length(), {"length": TargetKind((), "length", "", None, "", "", "", "")})


def fail():
    raise RuntimeError("a fault of the package")
'''
REPORT = """
import json, logging, sys
messages = []
class Handler(logging.Handler):
    def emit(self, record):
        messages.append([record.levelname, record.getMessage()])
logging.getLogger("bert_core").addHandler(Handler())
if sys.argv[1:]:
    __import__(sys.argv[1])
from bert_core.loading import load
from bert_core.target_kinds import TARGET_KINDS
from bert_core.task_heads import TASK_HEADS
print(json.dumps({"heads": list(TASK_HEADS), "kinds": list(TARGET_KINDS), "messages": messages}))
"""


@pytest.mark.parametrize("first", ["", "bert_core.run.capture", "headlight_length"])
def test_heads_of_installed_packages_are_registered(first: str, tmp_path: Path) -> None:
    """Each entry point is called once, whatever is imported first; failing ones are warnings, and hinder no other."""
    (tmp_path / "headlight_length.py").write_text(PACKAGE, encoding="utf-8")
    distribution = tmp_path / "headlight_length-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: headlight-length\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(
        f"[{ENTRY_POINTS}]\n"
        "broken = headlight_length:fail\n"
        "gone = headlight_length:gone\n"
        "length = headlight_length:add\n"
        "missing = no_such_module:add\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *filter(None, [first])], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["heads"] == [*TASK_HEADS, "length"] and report["kinds"][-1] == "length"
    assert sorted(report["messages"]) == [
        ["WARNING", f"the entry point {value} failed and added no task head"]
        for value in ("headlight_length:fail", "headlight_length:gone", "no_such_module:add")
    ]


def test_the_commands_start_without_installed_packages(tmp_path: Path) -> None:
    """Their help is made of the rows that are there: a package may import torch, which takes seconds."""
    (tmp_path / "headlight_length.py").write_text("raise SystemExit(9)", encoding="utf-8")
    distribution = tmp_path / "headlight_length-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: headlight-length\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\nlength = headlight_length:add\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    code = "import sys, viz_app.cli.command\nprint('headlight_length' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False False\n"), done.stderr
