"""`headlight prune` and `prune-curve`: smaller models, curves that go on where they stopped, and how they say no."""

from __future__ import annotations

import csv
import json
import resource
from pathlib import Path

import numpy as np
import pytest

import bert_core
from bert_core import LoadedModel, PruningPlan
from bert_core.run import costs, plans
from tests.app.test_cli import QUICK, Run, headlight, text_file
from tests.near import assert_near
from viz_app.cli import prune
from viz_app.cli.shared import first_texts

__all__ = ["headlight", "text_file"]  # fixtures
SMALL = ("--examples", 6, "--length", 16, "--points", 2, "--device", "cpu")


@pytest.mark.parametrize("name", ["smaller", "smaller.zip"])
def test_prune_writes_the_model_without_these_heads(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path, name: str
) -> None:
    """What is loaded from there has the outputs of the old model with these heads off; one line says what is left."""
    out = tmp_path / name
    code, said, err = headlight("prune", "--model", tiny_model_folder, "--heads", "0.1, 1.*", "--out", out)
    assert (code, err) == (0, "") and said.startswith("3 of 8 heads and ")
    encoding = tiny_loaded.tokenizer.encode("the [MASK] sat")
    gates = np.ones((2, 4))
    gates[0, 1] = gates[1] = 0
    masked = bert_core.capture(tiny_loaded, encoding, head_mask=gates).predictions[0].probabilities
    left = bert_core.load(str(out))
    assert_near(bert_core.capture(left, encoding).predictions[0].probabilities, masked)
    assert dict(left.config.pruned_heads) == {0: (1,), 1: (0, 1, 2, 3)}


def test_a_plan_is_carried_out_as_far_as_asked(headlight: Run, tiny_model_folder: Path, tmp_path: Path) -> None:
    """--share takes that much of the order; --full-shape writes zeros instead of smaller matrices."""
    plan = PruningPlan(str(tiny_model_folder), 2, 4, "mine", ((1, 2), (0, 0), (0, 3), (1, 1)))
    (tmp_path / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    given = ("prune", "--model", tiny_model_folder, "--plan", tmp_path / "plan.json", "--share", 0.5)
    assert headlight(*given, "--out", tmp_path / "half")[0] == 0
    assert dict(bert_core.load(str(tmp_path / "half")).config.pruned_heads) == {0: (0,), 1: (2,)}
    assert headlight(*given, "--out", tmp_path / "zeros", "--full-shape")[0] == 0
    zeros = bert_core.load(str(tmp_path / "zeros"))
    assert not zeros.config.pruned_heads
    assert (zeros.model.bert.encoder.layer[0].attention.output.dense.weight[:, :8] == 0).all()


def test_prune_takes_neurons_and_layers(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """By number, in ranges and whole layers; the line says how many are left; --full-shape is read by any program."""
    given = ("prune", "--model", tiny_model_folder, "--neurons", "0.3,0.10-19", "--layers", "1")
    code, said, err = headlight(*given, "--out", tmp_path / "smaller")
    assert (code, err) == (0, "")
    left = bert_core.load(str(tmp_path / "smaller"))
    assert said.startswith(f"53 of 128 neurons, 1 of 2 layers and {sum(p.numel() for p in left.model.parameters()):,} ")
    expected = bert_core.pruned(tiny_loaded, neurons=[(0, 3), *((0, n) for n in range(10, 20))], layers=[1])
    assert left.config.replace(extra={}) == expected.config.replace(extra={})
    encoding = tiny_loaded.tokenizer.encode("the [MASK] sat")
    found, wanted = (bert_core.capture(one, encoding).predictions[0].probabilities for one in (left, expected))
    assert_near(found, wanted)
    assert headlight(*given, "--out", tmp_path / "full", "--full-shape")[0] == 0
    full = bert_core.load(str(tmp_path / "full"))
    assert full.config.num_hidden_layers == 1 and not full.config.pruned_neurons


@pytest.mark.parametrize(("what", "parts"), [("neurons", 128), ("layers", 2)])
def test_a_curve_of_neurons_or_layers_ends_in_a_plan_that_prune_takes(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path, what: str, parts: int
) -> None:
    """One line an order says how many can go; half of a plan of its leaves half; a second run asks nothing again."""
    out = tmp_path / "c.csv"
    given = ("prune-curve", text_file, "--model", tiny_model_folder, "--what", what, "--out", out, *SMALL)
    code, said, _ = headlight(*given)
    assert code == 0 and said.count(f" of {parts} {what} can be removed before the loss rises by more than 1%") == 6
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["what"] for row in rows} == {what}
    assert [int(row["removed"]) for row in rows] == [0, parts // 2, parts] * 6
    assert headlight(*given)[2].count(" removed, loss") == 0
    plan = tmp_path / "c.random-2.json"
    code, said, _ = headlight(
        "prune", "--model", tiny_model_folder, "--plan", plan, "--share", 0.5, "--out", tmp_path / "half"
    )
    assert code == 0 and said.startswith(f"{parts // 2} of {parts} {what} and ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["prune", "--out", "OUT"], "say which heads"),
        (["prune", "--out", "OUT", "--heads", "0.1", "--plan", "PLAN"], "say which heads"),
        (["prune", "--out", "OUT", "--layers", "1", "--plan", "PLAN"], "say which heads"),
        (["prune", "--out", "OUT", "--neurons", "0"], "--neurons is '0': write layer.neuron with commas"),
        (["prune", "--out", "OUT", "--neurons", "0.9-3"], "--neurons is '0.9-3': write layer.neuron"),
        (["prune", "--out", "OUT", "--neurons", "0.0-99999999999"], "--neurons is '0.0-99999999999': write layer"),
        (["prune", "--out", "OUT", "--neurons", "0.64"], "neuron 64 does not exist in layer 0: this model has neurons"),
        (["prune", "--out", "OUT", "--layers", "a"], "--layers is 'a': write numbers with commas, as in 4,5"),
        (["prune", "--out", "OUT", "--layers", "2"], "layer 2 does not exist: this model has layers 0 to 1"),
        (
            ["prune-curve", "TEXT", "--out", "OUT", "--what", "words"],
            "the kind of part 'words' is unknown: one of heads, neurons",
        ),
        (
            ["prune-curve", "TEXT", "--out", "OUT", "--what", "layers", "--orders", "importance"],
            "order 'importance' is unknown for layers: one of ablation, iterative, random",
        ),
        (["prune", "--out", "OUT", "--heads", "0-1"], "--heads is '0-1': write layer.head with commas"),
        (["prune", "--out", "OUT", "--heads", "0.4"], "head 4 does not exist in layer 0: this model has heads 0 to 3"),
        (["prune", "--out", "OUT", "--heads", "9.*"], "layer 9 does not exist: this model has layers 0 to 1"),
        (["prune", "--out", "TAKEN", "--heads", "0.1"], "already exists: choose another name"),
        (
            ["prune", "--out", "OUT", "--plan", "PLAN"],
            "the plan is for other (6 layers of 12 heads), but the model here is",
        ),
        (["prune", "--out", "OUT", "--plan", "TEXT"], "this is not a pruning plan"),
        (["prune-curve", "TEXT", "--out", "OUT", "--orders", "best"], "order 'best' is unknown: one of importance"),
        (["prune-curve", "TEXT", "--out", "OUT", "--length", "600"], "--length is 600"),
        (["prune-curve", "TEXT", "--out", "CSV"], "exists and is no pruning curve"),
    ],
)
def test_what_cannot_be_pruned_is_one_sentence(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    """Exit code 2, one sentence on stderr, and nothing is written."""
    plan = PruningPlan("other", 6, 12, "mine", ((1, 2),))
    (tmp_path / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    (tmp_path / "table.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    places = {"OUT": tmp_path / "out", "PLAN": tmp_path / "plan.json", "TAKEN": tmp_path / "taken",
              "TEXT": text_file, "CSV": tmp_path / "table.csv"}  # fmt: skip
    given = [places.get(argument, argument) for argument in arguments]
    code, _, err = headlight(*given, "--model", tiny_model_folder)
    assert code == 2 and sentence in err and len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_curve_goes_on_where_it_stopped(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points and orders that are there are kept; a line cut short is done again; five random orders make the band."""
    out = tmp_path / "curve.csv"
    given = ("prune-curve", text_file, "--model", tiny_model_folder, "--out", out, "--orders", "importance,random")
    code, said, _ = headlight(*given, *SMALL)
    assert code == 0
    whole = rows_of(out)
    losses = [float(row["loss"]) for row in whole if row["order"] == "importance"]
    fine = 0 if losses[1] > 1.01 * losses[0] else 4 if losses[2] > 1.01 * losses[0] else 8
    assert said.startswith(f"importance: {fine} of 8 heads can be removed before the loss rises by more than 1%\n")
    orders = ["importance", *(f"random {seed}" for seed in range(5))]
    assert [(row["order"], row["removed"]) for row in whole] == [(o, c) for o in orders for c in ("0", "4", "8")]
    plan = PruningPlan.from_json((tmp_path / "curve.importance.json").read_text(encoding="utf-8"))
    assert sorted(plan.order) == list(np.ndindex(2, 4))
    text = out.read_text(encoding="utf-8").splitlines(keepends=True)
    out.write_text("".join(text[:5]) + text[5][:20], encoding="utf-8")
    asked: list[int] = []
    honest = costs.score
    monkeypatch.setattr(costs, "score", lambda *a, **k: asked.append(1) or honest(*a, **k))
    monkeypatch.setattr(plans, "propose_plan", lambda *a, **k: pytest.fail("the orders are kept"))
    assert headlight(*given, *SMALL)[0] == 0
    again = rows_of(out)
    steady = [name for name in whole[0] if name != "tokens_per_second"]
    assert [[row[n] for n in steady] for row in again] == [[row[n] for n in steady] for row in whole]
    assert len(asked) == 14 + 1  # the points that were missing, and one pass to warm up
    code, _, err = headlight(*given, *SMALL[:3], 32, *SMALL[4:])
    assert code == 2 and "holds a run with other settings (length: 16, not 32)" in err


def test_an_order_is_kept_for_what_it_was_found_on(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """A plan that was left there is no plan for other examples, also where its curve is gone."""
    given = ("prune-curve", text_file, "--model", tiny_model_folder, "--out", tmp_path / "c.csv", "--orders",
             "importance")  # fmt: skip
    assert headlight(*given, *SMALL)[0] == 0
    (tmp_path / "c.csv").unlink()
    code, _, err = headlight(*given, *SMALL[:3], 32, *SMALL[4:])
    assert code == 2 and "holds a run with other settings (examples: " in err and "choose another name" in err
    (tmp_path / "c.csv.settings.json").unlink()
    code, _, err = headlight(*given, *SMALL[:3], 32, *SMALL[4:])
    assert code == 2 and "was found on 6 examples of 16 tokens of" in err and "choose another name for the table" in err
    assert headlight(*given, *SMALL)[0] == 0


def test_a_full_disk_leaves_what_was_there(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """One sentence; a curve, its plans, a table of heads and what it goes on from are as they were, or not there."""
    model, curve, table = ("--model", tiny_model_folder, "--device", "cpu"), tmp_path / "c.csv", tmp_path / "t.csv"
    commands = (
        ("prune-curve", text_file, *SMALL, *model[:2], "--orders", "importance", "--out", curve),
        ("heads", text_file, "--importance", *model, "--out", table),
        ("heads", text_file, "--importance", *model, "--out", tmp_path / "new.parquet"),
    )
    for command in commands[:2]:
        assert headlight(*command)[0] == 0
    curve.write_text(curve.read_text(encoding="utf-8").rpartition("importance")[0].rpartition("\n")[0] + "\n")
    there = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert there.keys() == {"c.csv", "c.importance.json", "c.csv.settings.json", "t.csv", "t.csv.settings.json"}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        for command in commands:
            code, _, err = headlight(*command, *["--overwrite"] * (command[0] == "heads"))
            assert code == 2 and "File too large: make room" in err.splitlines()[-1]
            assert command[0] == "prune-curve" or f"{command[-1]}" in err.splitlines()[-1]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == there


def test_orders_by_what_stands_in_for_a_head(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """`ablation-mean` reads the reference file, and says if there is none; each order is a plan of its own."""
    given = ("prune-curve", text_file, "--model", tiny_model_folder, "--out", tmp_path / "c.csv",
             "--orders", "importance-in-layer,ablation-mean,ablation-resample")  # fmt: skip
    code, _, err = headlight(*given, *SMALL)
    assert code == 2 and err.splitlines()[-1] == "method 'mean' needs a reference text"
    assert headlight(*given, "--reference", text_file, *SMALL)[0] == 0
    assert {row["order"] for row in rows_of(tmp_path / "c.csv")} == set(given[-1].split(","))
    estimated, _ = prune._examples(tiny_loaded, text_file, None, 6, 16)
    reference = [tiny_loaded.tokenizer.encode(text) for text in first_texts(text_file)]
    other = tmp_path / "other.txt"
    other.write_text("the dog ran\n", encoding="utf-8")
    code, _, err = headlight(*given, "--reference", other, *SMALL)
    assert code == 2 and "c.ablation-mean.json was found on 6 examples of 16 tokens of" in err.splitlines()[-1]
    assert err.splitlines()[-1].endswith(
        "other.txt (12 bytes) in the place of a head: choose another name for the table"
    )
    for method in ("ablation-mean", "ablation-resample"):
        kept = PruningPlan.from_json((tmp_path / f"c.{method}.json").read_text(encoding="utf-8"))
        assert kept.order == plans.propose_plan(tiny_loaded, estimated, method, reference=reference).order


def test_recovery_training_goes_on_from_a_pruned_model(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """`pretrain --init pruned/` trains the smaller matrices, and its result has lost the same heads; 1.* is empty."""
    pruned, run = tmp_path / "pruned", tmp_path / "run"
    headlight("prune", "--model", tiny_model_folder, "--heads", "0.2,1.*", "--out", pruned)
    code, said, err = headlight("pretrain", text_file, "--folder", run, "--init", pruned, *QUICK)
    assert (code, err) == (0, "") and "step 4/4" in said
    start, end = bert_core.load(str(pruned)), bert_core.load(str(run / "model"))
    assert dict(end.config.pruned_heads) == {0: (2,), 1: (0, 1, 2, 3)} == dict(start.config.pruned_heads)
    assert json.loads((run / "model" / "config.json").read_text())["pruned_heads"] == {"0": [2], "1": [0, 1, 2, 3]}
    moved = [
        name
        for name, tensor in end.model.state_dict().items()
        if tensor.numel() and not tensor.equal(start.model.state_dict()[name])
    ]
    assert "bert.encoder.layer.0.attention.self.query.weight" in moved
    assert end.model.bert.encoder.layer[0].attention.self.query.weight.shape == (24, 32)
