"""docs/agreement_figures.py: pairs and roles are what they are called, its patches are those of the library, and the
study runs on another model.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import bert_core
from bert_core.agreement import FRAME_COUNTS, sentences
from bert_core.loading import LoadedModel
from bert_core.training.measures import agreement_counts
from tests.near import assert_near

SCRIPT = Path(__file__).parents[1] / "docs" / "agreement_figures.py"
NOUNS = (("attractor", "phrase"), ("attractor", "clause"), ("subject", "adverb"), ("subject", "clause"))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script, which is in no package."""
    spec = importlib.util.spec_from_file_location("agreement_figures", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["agreement_figures"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def mini() -> LoadedModel:
    """The bundled model."""
    return bert_core.load("headlight-mini", device="cpu")


@pytest.fixture(scope="module")
def tiny(mini: LoadedModel) -> LoadedModel:
    """A model of two layers and random weights, with the whole vocabulary."""
    config = bert_core.BertConfig(
        vocab_size=mini.config.vocab_size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    model = bert_core.BertForPreTraining(config).eval().requires_grad_(False)
    return LoadedModel("tiny", model, mini.tokenizer, mini.report, mini.device)


def test_every_token_has_the_role_that_it_is_said_to_have(script: ModuleType, mini: LoadedModel) -> None:
    """In each construction subject, attractor, gap and what stands between are found, and each token once."""
    expected = {
        "alone": ("author", "", ""), "adverb": ("author", "", "certainly"), "phrase": ("author", "actor", "near the"),
        "clause": ("author", "actor", "that the saw"),
    }  # fmt: skip
    for structure, (subject, attractor, between) in expected.items():
        item = next(item for item in sentences() if item.structure == structure)
        encoding = mini.tokenizer.encode(item.text)
        roles = script.roles_of(encoding, item)
        words = {role: " ".join(encoding.tokens[place] for place in places) for role, places in roles.items()}
        assert (words["subject"], words["attractor"], words["between"]) == (subject, attractor, between)
        assert words["mask"] == "[MASK]" and words["rest"].startswith("[CLS] the") and words["rest"].endswith("[SEP]")
        assert sorted(place for places in roles.values() for place in places) == list(range(len(encoding)))


@pytest.mark.parametrize(("noun", "structure"), NOUNS)
def test_pairs_differ_in_one_token(script: ModuleType, mini: LoadedModel, noun: str, structure: str) -> None:
    """It is the noun that is studied, half of the pairs go each way, and none is of a frame that is tested on."""
    pairs = script.pairs_of(noun, structure, 8)
    for pair in pairs:
        one, other = (mini.tokenizer.encode(item.text) for item in pair)
        differ = [n for n, (a, b) in enumerate(zip(one.input_ids, other.input_ids, strict=True)) if a != b]
        assert differ == script.roles_of(one, pair.read)[noun] and one.mask_positions == other.mask_positions
    assert [getattr(pair.source, noun) for pair in pairs].count("plural") == 4
    assert min(FRAME_COUNTS.values()) >= script.PAIRS + script.TESTED
    tested = {item.frame for item in script.tested_frames(script.TESTED)}
    assert not tested & {pair.read.frame for pair in script.pairs_of(noun, structure, script.PAIRS)}


def test_its_patches_are_those_of_the_library(script: ModuleType, tiny: LoadedModel) -> None:
    """Pairs of all lengths at once give what `patch` gives of each by itself, at single tokens and heads."""
    pairs = script.pairs_of("attractor", "clause", 4)
    found, id_of = script.patched(tiny, pairs), tiny.tokenizer.id_of
    for number, pair in enumerate(pairs):
        read, source = (tiny.tokenizer.encode(item.text) for item in pair)
        verbs = [pair.read.right, pair.read.wrong][:: 1 if pair.read.subject == pair.source.attractor else -1]
        gap, attractor = read.mask_positions[0], script.roles_of(read, pair.read)["attractor"][0]
        target = bert_core.Target("contrast", gap, id_of(verbs[0]), against=id_of(verbs[1]))
        for what, places in (("state", {1: attractor, 3: gap}), ("attention", {1: attractor, 3: gap}), ("head", {})):
            exact = bert_core.patch(tiny, source, read, target, part_kind=what, per_position=True)
            moved, size = exact.values - exact.base_value, np.abs(exact.values).max()
            assert_near(found["whole"][number], exact.source_value - exact.base_value, of=size)
            if what == "head":
                assert_near(found[what][..., number], moved[..., gap], of=size)
            for role, place in places.items():
                assert_near(found[what][:, role, number], moved[:, place], of=size)


def test_what_is_right_is_what_the_card_counts(script: ModuleType, tiny: LoadedModel) -> None:
    """Nothing off, the shares of the groups are those of `agreement_counts` by condition."""
    items = script.tested_frames(3)
    counted: dict[str, list[int]] = {}
    for condition, (right, asked) in agreement_counts(tiny, items).items():
        group = condition.partition(", ")[2] or "no attractor"
        before = counted.setdefault(group, [0, 0])
        before[:] = before[0] + right, before[1] + asked
    assert script.right_of(tiny, items) == {group: right / asked for group, (right, asked) in counted.items()}


def test_the_study_runs_and_goes_on(script: ModuleType, tiny: LoadedModel, tmp_path: Path) -> None:
    """On a tiny model every table is made, random heads are others of the same layers, and nothing is done twice."""
    study = script.Study(tiny, tmp_path, ["The old king saw a small city."], pairs=4, tested=2, draws=2)
    heads = [(0, 1), (0, 2), (3, 0)]
    drawn = script.others_of(heads, 4, np.random.default_rng(0))
    assert [layer for layer, _ in drawn] == [0, 0, 3] and not set(drawn) & set(heads) and len(set(drawn)) == 3
    tables = [make(study) for make in (script.removal_table, lambda one: script.head_table(one, "attractor"))]
    tables += [script.place_table(study, noun, what) for noun in script.STUDIED for what in ("state", "attention")]
    assert "| none | " in tables[0] and all("nan" not in table for table in tables)
    again = script.Study(None, tmp_path, [], pairs=4, tested=2, draws=2)
    assert script.head_table(again, "attractor") == tables[1]
