"""Neurons over a file: what transformers and NumPy find at each token, whatever the file is and wherever it stopped."""

from __future__ import annotations

import copy
import itertools
import json
import lzma
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertModel

from bert_core import Columns, LoadedModel, Refused, pruned, read_treebank, save
from bert_core.studies import neurons as study
from bert_core.studies.neurons import (
    NeuronStats,
    check_neuron_table,
    measure_neurons,
    write_examples,
    write_neuron_table,
)
from bert_core.studies.settings import NeuronSettings
from bert_core.studies.texts import text_shards
from tests.core.test_relations import conllu, sentences
from tests.near import assert_near

WORDS = ("cat", "dog", "king", "queen", "queen", "old", "new", "house", "ran", "sat")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Ninety lines of three to nine words, every seventh empty: three shards."""
    rng = np.random.default_rng(0)
    lines = ["" if n % 7 == 3 else " ".join(rng.choice(WORDS, rng.integers(3, 10))) for n in range(90)]
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def over(path: Path, folder: Path, **settings: object) -> NeuronStats:
    """The file read to its end."""
    return measure_neurons(path, str(folder), NeuronSettings(**settings), device="cpu")  # type: ignore[arg-type]


@torch.no_grad()
def by_transformers(
    folder: Path, loaded: LoadedModel, lines: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """Every neuron at every typed token, and at every added one, (token, layer, neuron); and where these are."""
    model, heard = BertModel.from_pretrained(str(folder)).eval(), {}
    for number, layer in enumerate(model.encoder.layer):
        layer.intermediate.register_forward_hook(lambda _, __, out, n=number: heard.update({n: out[0].numpy().copy()}))
    typed, added, places = [], [], []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        encoding = loaded.tokenizer.encode(line)
        model(torch.tensor([encoding.input_ids]), token_type_ids=torch.tensor([encoding.token_type_ids]))
        values = np.stack([heard[layer] for layer in sorted(heard)], 1)
        special = np.array(encoding.special)
        typed.append(values[~special])
        added.append(values[special])
        places += [(number + 1, int(position)) for position in np.flatnonzero(~special)]
    return np.concatenate(typed), np.concatenate(added), places


def test_every_figure_is_that_of_transformers(corpus: Path, tiny_loaded: LoadedModel, tiny_model_folder: Path) -> None:
    """Mean, spread, share above 0, all deciles, and the strongest tokens; [CLS] and [SEP] apart from them."""
    found = over(corpus, tiny_model_folder, examples=5)
    typed, added, places = by_transformers(tiny_model_folder, tiny_loaded, corpus.read_text().splitlines())
    assert found.counts["tokens"] == found.drawn == len(typed) and found.counts["added"] == len(added)
    assert found.neurons.tolist() == [[layer, neuron] for layer, neuron in np.ndindex(*typed.shape[1:])]
    assert found.rank_error == 0 and found.counts["texts"] == 77
    for name, of in (("", typed), ("added_", added)):
        flat = of.reshape(len(of), -1).astype(np.float64)
        assert_near(found.figures[f"{name}mean"], flat.mean(0), what=f"{name}mean")
        assert_near(found.figures[f"{name}spread"], flat.std(0), 1e-4, what=f"{name}spread")
        assert_near(found.figures[f"{name}active"], (flat > 0).mean(0), 2 / len(flat), of=1.0)
    flat = typed.reshape(len(typed), -1)
    scale = np.abs(flat).max()
    assert_near(found.deciles, np.quantile(flat, np.linspace(0, 1, 11), axis=0).T, of=scale)
    of_place = {where: number for number, where in enumerate(places)}
    assert found.strongest.shape == (len(flat.T), 10)
    assert_near(found.strongest_values, -np.sort(-flat, axis=0)[:10].T, of=scale)
    for neuron, own in enumerate(found.strongest):
        at = [of_place[found.places[one].line, found.places[one].position] for one in own]
        assert len(set(at)) == 10
        assert_near(found.strongest_values[neuron], flat[at, neuron], of=scale)


def test_examples_are_of_their_tenth(corpus: Path, tiny_loaded: LoadedModel, tiny_model_folder: Path) -> None:
    """Each lies between its two deciles, is the activation at its place, and is told as it stands in its line."""
    found = over(corpus, tiny_model_folder, neurons=((0, 3), (1, None)), examples=4, window=2)
    typed, _, places = by_transformers(tiny_model_folder, tiny_loaded, lines := corpus.read_text().splitlines())
    flat, of_place = typed[:, found.neurons[:, 0], found.neurons[:, 1]], {at: n for n, at in enumerate(places)}
    assert found.neurons[0].tolist() == [0, 3] and (found.neurons[1:, 0] == 1).all()
    assert (found.tenths >= 0).all(), "every tenth of several hundred tokens has four examples"
    low, high = found.deciles[:, :-1, None], found.deciles[:, 1:, None]
    assert ((found.tenths_values >= low) & (found.tenths_values <= high)).all()
    for group, values in ((found.tenths, found.tenths_values), (found.at_random, found.at_random_values)):
        for neuron in range(len(found.neurons)):
            own = group[neuron] if group.ndim > 1 else group
            at = [of_place[found.places[one].line, found.places[one].position] for one in own.ravel()]
            assert_near(values[neuron].ravel(), flat[at, neuron], of=np.abs(flat).max())
    for place in found.places:
        words = lines[place.line - 1].split()
        here = place.position - 1  # every word here is one piece, behind [CLS]
        assert place.token == place.written == words[here]
        assert place.before.split() == words[max(0, here - 2) : here]
        assert place.after.split() == words[here + 1 : here + 3]


@pytest.fixture
def planted(tiny_loaded: LoadedModel, tmp_path: Path) -> Path:
    """A model in whose first layer neuron 7 fires at "queen", wherever it stands, and neuron 8 at nothing."""
    model = copy.deepcopy(tiny_loaded.model)
    with torch.no_grad():
        embeddings, layer = model.bert.embeddings, model.bert.encoder.layer[0]
        embeddings.position_embeddings.weight.zero_()
        layer.attention.output.dense.weight.zero_()
        queen = embeddings.word_embeddings.weight[tiny_loaded.tokenizer.id_of("queen")]
        layer.intermediate.dense.weight[7] = 10 * (queen - queen.mean()) / queen.norm()
        layer.intermediate.dense.bias[7] = 0
        layer.intermediate.dense.weight[8], layer.intermediate.dense.bias[8] = 0, -20.0
    folder = tmp_path / "planted"
    save(replace(tiny_loaded, model=model), folder)
    return folder


def test_a_planted_word_is_found(corpus: Path, planted: Path) -> None:
    """All of its strongest tokens are that word, far beyond its share of all; random tokens have no such piece."""
    found = over(corpus, planted, neurons=((0, 7), (0, 8)))
    words = corpus.read_text().split()
    assert {found.places[one].token for one in found.strongest[0]} == {"queen"}
    (piece, share, of_all), *others = found.pieces[0]
    assert (piece, share, others) == ("queen", 1.0, []) and found.top == len(words) // 10
    assert_near(of_all, words.count("queen") / len(words))
    assert 0 < max(share for _, share, _ in found.random_pieces) < 0.5
    queens = words.count("queen") / len(words)
    assert found.deciles[0, 10] > 2 and queens > 0.05
    silent = {found.places[one].line for one in found.strongest[1]}
    assert silent == {1}, "of equal ones those that stand first"
    assert (found.deciles[1] == found.deciles[1, 0]).all() and found.figures["active"][1] == 0
    assert (found.tenths[1, :-1] == -1).all(), "what is everywhere the same has one tenth"


def few_drawn(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """So many tokens, where one neuron is asked for."""
    monkeypatch.setattr(study, "MAX_SAMPLED_TOKENS", count)


def test_drawn_tokens_stand_for_all(corpus: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their deciles are near those of all, by the error that is stated; ends, means and the strongest stay exact."""
    whole = over(corpus, tiny_model_folder)
    few_drawn(monkeypatch, 100)
    some = over(corpus, tiny_model_folder)
    assert some.drawn == 100 and some.rank_error == 0.05 and some.counts == whole.counts
    for name in ("mean", "spread", "active"):
        assert np.array_equal(some.figures[name], whole.figures[name])
    assert np.array_equal(some.deciles[:, [0, -1]], whole.deciles[:, [0, -1]])
    assert np.array_equal(some.strongest_values, whole.strongest_values)
    # The share of all tokens below what is said to be the fifth decile; its mean error is that of the same tokens.
    below = np.array([np.interp(own[5], all_of[:], np.linspace(0, 1, 11)) for own, all_of in
                      zip(some.deciles, whole.deciles, strict=True)])  # fmt: skip
    assert abs(below - 0.5).max() < 5 * some.rank_error and abs(below - 0.5).max() > 0
    low, high = some.deciles[:, :-1, None], some.deciles[:, 1:, None]
    there = some.tenths >= 0
    inside = (some.tenths_values >= low) & (some.tenths_values <= high)
    assert inside[there].all()
    other = over(corpus, tiny_model_folder, seed=1)
    assert other.places != some.places and np.array_equal(other.strongest_values, some.strongest_values)


def test_lots_are_even_and_never_equal() -> None:
    """Of a hundred thousand places none has the lot of another, and each tenth of all numbers has its share."""
    lines, positions = np.divmod(np.arange(100_000), 100)
    lots = study._random_numbers(lines, positions, 0)
    assert len(np.unique(lots)) == len(lots)
    counts = np.histogram(lots.astype(np.float64), bins=10, range=(0, 2.0**64))[0]
    assert abs(counts - 10_000).max() < 500
    assert not np.array_equal(lots, study._random_numbers(lines, positions, 1))


@pytest.mark.parametrize("drawn", [100, 2**16])
def test_shards_of_any_size_give_the_same(
    corpus: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch, drawn: int
) -> None:
    """The same tokens are drawn and shown; numbers agree to rounding."""
    few_drawn(monkeypatch, drawn)
    whole = over(corpus, tiny_model_folder, neurons=((0, 1), (1, 5)))
    for size in (1, 7, 200):
        monkeypatch.setattr(study, "text_shards", partial(text_shards, size=size))
        other = over(corpus, tiny_model_folder, neurons=((0, 1), (1, 5)))
        assert (other.places, other.pieces, other.drawn) == (whole.places, whole.pieces, whole.drawn)
        assert np.array_equal(other.at_random, whole.at_random)
        assert np.array_equal(other.tenths, whole.tenths)
        assert_near(other.deciles, whole.deciles)
        assert_near(other.strongest_values, whole.strongest_values)


def written(found: NeuronStats, folder: Path) -> list[bytes]:
    """All that can be written of it."""
    folder.mkdir(exist_ok=True)
    for name, write in (("t.csv", write_neuron_table), ("t.parquet", write_neuron_table), ("t.json", write_examples)):
        write(found, folder / name)
    return [(folder / name).read_bytes() for name in ("t.csv", "t.parquet", "t.json")]


class Stopped(Exception):
    """What ends a run in a test."""


@pytest.mark.parametrize("small", [0, 2**30])
@pytest.mark.parametrize("drawn", [50, 2**16])
def test_stopped_anywhere_it_goes_on_to_the_same_bytes(
    corpus: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: int, small: int
) -> None:
    """After any shard, also where the state was last kept some shards before; and from a state that is complete."""
    few_drawn(monkeypatch, drawn)
    monkeypatch.setattr(study, "MAX_SAVING_SHARE", 0.0)
    monkeypatch.setattr(study, "SMALL_STATE_BYTES", small)
    whole = written(over(corpus, tiny_model_folder), tmp_path / "whole")
    for stop in (1, 2, 3):
        state, told = tmp_path / f"{stop}.part", itertools.count(1)

        def report(done: float | None, what: str = "", stop: int = stop, told: itertools.count[int] = told) -> None:
            if next(told) == stop:
                raise Stopped

        with pytest.raises(Stopped):
            measure_neurons(corpus, str(tiny_model_folder), state=state, device="cpu", report=report)
        for _ in range(2):
            found = measure_neurons(corpus, str(tiny_model_folder), state=state, device="cpu")
            assert written(found, tmp_path / "resumed") == whole


def test_what_is_kept_does_not_grow_with_the_file(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Of ten times the text the state has as many numbers, once as many tokens are drawn as will be."""
    longer = tmp_path / "longer.txt"
    longer.write_text(corpus.read_text() * 10)
    sizes = []
    for path in (corpus, longer):
        with pytest.MonkeyPatch.context() as patched:
            few_drawn(patched, 50)
            state = tmp_path / f"{path.stem}.part"
            measure_neurons(path, str(tiny_model_folder), state=state, device="cpu")
        sizes.append(state.stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 100


def test_files_of_every_kind_say_the_same(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """An .xz is its text; a table its rows, with their numbers; a treebank its sentences, where they begin."""
    whole = over(corpus, tiny_model_folder, neurons=((1, 2),))
    packed = tmp_path / "corpus.txt.xz"
    packed.write_bytes(lzma.compress(corpus.read_bytes()))
    assert over(packed, tiny_model_folder, neurons=((1, 2),)).places == whole.places
    table = tmp_path / "table.csv"
    rows = [line for line in corpus.read_text().splitlines() if line]
    table.write_text("kind,text\n" + "\n".join(f"a,{line}" for line in rows))
    of_table = over(table, tiny_model_folder, neurons=((1, 2),), columns=Columns("text"))
    assert_near(of_table.deciles, whole.deciles)
    assert {place.line for place in of_table.places} <= set(range(2, len(rows) + 2))
    for place in of_table.places:
        assert rows[place.line - 2].split()[place.position - 1] == place.written
    bank = tmp_path / "bank.conllu"
    bank.write_text("\n".join(conllu() * 3))
    trees = {tree.line: tree.text for tree in read_treebank(bank.read_text().splitlines(), bank.name)}
    of_trees = over(bank, tiny_model_folder, neurons=((1, 2),))
    assert (
        of_trees.counts["texts"] == 3 * len(sentences()) and {place.line for place in of_trees.places} <= trees.keys()
    )
    assert all(place.written in trees[place.line] for place in of_trees.places)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("a,b\n" + "\n".join(f"{one},{two}" for one, two in itertools.pairwise(rows)))
    of_pairs = over(pairs, tiny_model_folder, neurons=((1, 2),), columns=Columns("a", "b"))
    assert of_pairs.counts["added"] == 3 * of_pairs.counts["texts"]


def test_treebanks_in_shards_go_on_where_another_ended(tmp_path: Path) -> None:
    """The shards from any one on are those of the whole file, whatever their size."""
    bank = tmp_path / "bank.conllu"
    bank.write_text("\n".join(conllu() * 20))
    whole = list(text_shards(bank, size=6))
    assert sum(len(shard.lines) for shard in whole) == 20 * len(sentences()) and len(whole) > 3
    assert {len(shard.lines) for shard in whole[:-1]} == {6}
    for number, before in enumerate(whole[:-1], 1):
        rest = list(text_shards(bank, number=number, start=before.end, line=before.next_line, size=6))
        assert [shard.lines for shard in rest] == [shard.lines for shard in whole[number:]]


def test_the_files_that_are_written(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """A row a neuron, the same in both kinds; every example of the JSON names a place of it; nothing is NaN."""
    from pyarrow import csv, parquet

    found = over(corpus, tiny_model_folder, neurons=((0, 1), (1, 5), (1, 5), (0, 0)))
    written(found, tmp_path)
    of_csv, of_parquet = csv.read_csv(tmp_path / "t.csv"), parquet.read_table(tmp_path / "t.parquet")
    assert of_csv.column_names == of_parquet.column_names
    assert list(zip(*(of_csv[name].to_pylist() for name in ("layer", "neuron")), strict=True)) == [
        (0, 0), (0, 1), (1, 5)
    ]  # fmt: skip
    assert_near(of_csv["decile_5"].to_pylist(), of_parquet["decile_5"].to_pylist())
    told = json.loads((tmp_path / "t.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert len(told["places"]) == len(found.places) and len(told["neurons"]) == 3
    for own, row in zip(told["neurons"], range(3), strict=True):
        assert own["strongest"][0][1] == pytest.approx(of_csv["most"][row].as_py())
        assert len(own["tenths"]) == 10 and all(0 <= at < len(told["places"]) for at, _ in own["at_random"])
    check_neuron_table(tmp_path / "t.csv")
    check_neuron_table(tmp_path / "t.parquet")
    check_neuron_table(tmp_path / "new.csv")
    (tmp_path / "other.csv").write_text("layer,head\n0,0\n")
    (tmp_path / "broken.parquet").write_bytes(b"x" * 100)
    for name in ("other.csv", "broken.parquet"):
        with pytest.raises(Refused, match="exists and is no table of neurons: choose another name"):
            check_neuron_table(tmp_path / name)


def test_what_cannot_be_read_or_asked_is_refused(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """One sentence each: a broken or empty file, a table without a column, a neuron that is not there."""
    packed = tmp_path / "half.txt.xz"
    packed.write_bytes(lzma.compress(corpus.read_bytes())[:-40])
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "t.csv").write_text("text\n\n")
    (tmp_path / "bank.conllu").write_text("1\tcats\n")
    (tmp_path / "latin.conllu").write_bytes("1\tété\t_\t_\t_\t_\t0\troot\t_\t_\n\n".encode("latin-1"))
    for path, settings, sentence in (
        (packed, {}, "half.txt.xz is not a whole .xz file"),
        (tmp_path / "empty.txt", {}, "there is no text in 2 lines of empty.txt: nothing was measured"),
        (tmp_path / "t.csv", {}, r"name the column of the texts \(--text\); its columns are text"),
        (tmp_path / "t.csv", {"columns": Columns("words")}, "the column 'words' is not in t.csv"),
        (tmp_path / "bank.conllu", {}, "line 1 of bank.conllu has 2 columns"),
        (tmp_path / "latin.conllu", {}, "latin.conllu is not UTF-8"),
        (tmp_path / "none.txt", {}, "there is no file"),
        (corpus, {"neurons": ((2, 0),)}, "layer 2 does not exist: this model has layers 0 to 1"),
        (corpus, {"neurons": ((0, 10**6),)}, "neuron 1000000 does not exist in layer 0: this model has neurons 0 to"),
        (corpus, {"max_length": 600}, "reads at most 512 tokens"),
    ):
        with pytest.raises(Refused, match=sentence):
            over(path, tiny_model_folder, **settings)
    for settings, sentence in (
        ({"neurons": ()}, "at least one pair"),
        ({"neurons": ((1, 2, 3),)}, "at least one pair"),
        ({"neurons": ((0, -1),)}, "a neuron is -1"),
        ({"examples": 0}, "examples is 0"),
        ({"columns": Columns("a", None, "b")}, "columns has the answer 'b'"),
    ):
        with pytest.raises(Refused, match=sentence):
            NeuronSettings(**settings)


def test_a_state_of_something_else_is_refused(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Another seed, another text, or no state at all: one sentence, and the file stays as it was."""
    state = tmp_path / "t.part"
    model = str(tiny_model_folder)
    measure_neurons(corpus, model, NeuronSettings(neurons=((0, 1),)), state=state, device="cpu")
    kept = state.read_bytes()
    with pytest.raises(Refused, match=r"holds a run with other settings \(seed: 0, not 1\)"):
        measure_neurons(corpus, model, NeuronSettings(neurons=((0, 1),), seed=1), state=state)
    corpus.write_text(corpus.read_text() + "cat\n")
    with pytest.raises(Refused, match=r"other settings \(text\)"):
        measure_neurons(corpus, model, NeuronSettings(neurons=((0, 1),)), state=state)
    assert state.read_bytes() == kept
    state.write_bytes(kept[:100])
    with pytest.raises(Refused, match="is not the state of a study: delete it to start again"):
        measure_neurons(corpus, model, NeuronSettings(neurons=((0, 1),)), state=state)


def test_pruned_neurons_leave_gaps(
    corpus: Path, tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """The others keep their numbers and, in the first layer, their figures; what is gone is refused."""
    save(pruned(tiny_loaded, neurons=[(0, 0), (0, 3), (1, 2)]), tmp_path / "smaller")
    whole, less = over(corpus, tiny_model_folder), over(corpus, tmp_path / "smaller", neurons=((0, None),))
    kept = [number for number, (layer, neuron) in enumerate(whole.neurons) if layer == 0 and neuron not in (0, 3)]
    assert less.neurons.tolist() == whole.neurons[kept].tolist()
    assert_near(less.deciles, whole.deciles[kept])
    with pytest.raises(Refused, match="neuron 3 of layer 0 was pruned"):
        over(corpus, tmp_path / "smaller", neurons=((0, 3),))
    save(pruned(tiny_loaded, layers=[1]), tmp_path / "shorter")
    with pytest.raises(Refused, match="shorter were pruned: choose other layers"):
        over(corpus, tmp_path / "shorter", neurons=((1, None),))


def test_a_broken_model_is_said(corpus: Path, tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """Neurons that give no number end in a sentence and not in a table."""
    model = copy.deepcopy(tiny_loaded.model)
    with torch.no_grad():
        model.bert.encoder.layer[1].intermediate.dense.weight[3] = 3e38  # finite, and no sum of several is
    save(replace(tiny_loaded, model=model), tmp_path / "broken")
    with pytest.raises(Refused, match="neuron 3 of layer 1 gives no finite numbers"):
        over(corpus, tmp_path / "broken", neurons=((1, 3),))
