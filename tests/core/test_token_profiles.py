"""What becomes of a token over a corpus: counted again token by token, its states compared again pair by pair."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core import Index, Refused, head_profiles, neuron_profiles, read_profiles, token_profiles, write_profiles
from bert_core.loading import LoadedModel, load
from bert_core.studies.profiles import COLUMNS, profile_columns
from bert_core.studies.token_profiles import MAX_HEADS, MAX_SIMILAR_PIECES, MIN_TIMES
from tests.core.test_profiles import indexed, of_a_text, of_a_treebank, rows_of, strongest
from tests.near import assert_near

__all__ = ["of_a_text", "of_a_treebank"]  # fixtures


def states_of(index: Index, depth: int) -> np.ndarray:
    """All states of a depth as the index keeps them, each of length 1."""
    place = index.depths.index(depth)
    states = np.concatenate([
        shard.part("states", place) * shard.part("state_scales", place)[0][:, None] for shard in index.shards
    ]).astype(np.float64)  # fmt: skip
    return states / np.linalg.norm(states, axis=1, keepdims=True)


def test_places_and_neighbouring_words_are_counted(of_a_text: Index) -> None:
    """Where it stands and what is beside it, each beside what is beside any token."""
    rows = rows_of(of_a_text)
    typed = [row for row in rows if row["word"] is not None]
    (one,) = token_profiles(of_a_text, ["cat"])
    own = [row for row in typed if row["piece"] == "cat"]
    assert (one.times, one.tokens) == (len(own), len(typed)) and len(own) >= MIN_TIMES
    for name, share, chance in ((bar.name, bar.share, bar.chance) for bar in one.bars["place"]):
        low, _, high = name.partition(" to ")
        within = range(int(low), int(high or low) + 1)
        assert share == pytest.approx(sum(row["position"] in within for row in own) / len(own))
        assert chance == pytest.approx(sum(row["position"] in within for row in typed) / len(typed))
    assert sum(bar.share for bar in one.bars["place"]) == pytest.approx(1)
    # A word is its pieces without a space between.
    word_of, last = {}, None
    for row in rows:
        same = (
            last is not None and last["word"] is not None and (last["word"], last["end"]) == (row["word"], row["start"])
        )
        word_of[row["row"]] = word_of[row["row"] - 1] if same else row["row"]
        last = row

    def beside(tokens: list[dict[str, Any]], step: int) -> Counter[str]:
        there = {
            word_of[row["row"] + step] for row in tokens
            if rows[row["row"] + step]["word"] is not None and word_of[row["row"] + step] != word_of[row["row"]]
        }  # fmt: skip
        return Counter(rows[word]["word"].casefold() for word in there)

    for step, found in ((-1, one.before), (1, one.after)):
        times, of_all = beside(own, step), beside(typed, step)
        assert found
        for word in found:
            assert word.times == times[word.key] > word.expected
            assert word.expected == pytest.approx(of_all[word.key] * times.total() / of_all.total())
    assert {word.key for word in one.before} == {"old", "big"} and one.after[0].key == "sat"


def test_states_are_compared_pair_by_pair(of_a_text: Index) -> None:
    """The mean cosine of all pairs at every depth, beside any two tokens; the nearness of each to the others' mean."""
    rows = rows_of(of_a_text)
    typed = np.array([row["row"] for row in rows if row["word"] is not None])
    own = np.array([row["row"] for row in rows if row["piece"] == "cat"])
    (one,) = token_profiles(of_a_text, ["cat"], examples=2)
    assert [depth for depth, _, _ in one.likeness] == list(of_a_text.depths)
    for depth, value, chance in one.likeness:
        states = states_of(of_a_text, depth)
        pairs = [states[a] @ states[b] for a, b in permutations(own, 2)]
        assert_near(value, np.mean(pairs))
        assert_near(chance, np.mean([states[a] @ states[b] for a, b in permutations(typed[:400], 2)])
                    if len(typed) <= 400 else (np.linalg.norm(states[typed].sum(0)) ** 2 - len(typed))
                    / (len(typed) * (len(typed) - 1)))  # fmt: skip
    assert one.depth == of_a_text.depths[-1]
    states = states_of(of_a_text, one.depth)
    near = []
    for row in own:
        others = states[own[own != row]].mean(0)
        near.append(states[row] @ others / np.linalg.norm(others))
    assert_near(one.deciles, np.quantile(near, np.linspace(0, 1, 11)))
    for tenth, seen in enumerate(one.tenths):
        for token in seen:
            assert one.deciles[tenth] - 1e-6 <= token.value <= one.deciles[tenth + 1] + 1e-6
            (row,) = [row for row in rows if (row["line"], row["sentence_text"]) == (token.line, token.text)
                      and (row["start"], row["end"]) == token.at and row["word"]]  # fmt: skip
            assert row["piece"] == "cat"
            assert_near(token.value, near[own.tolist().index(row["row"])])
    among = [piece for piece, times in Counter(rows[row]["piece"] for row in typed).items() if times >= MIN_TIMES]
    means = {
        piece: states[[row for row in typed if rows[row]["piece"] == piece]].mean(0) - states[typed].mean(0)
        for piece in among
    }
    cosines = {
        piece: mean @ means["cat"] / np.linalg.norm(mean) / np.linalg.norm(means["cat"])
        for piece, mean in means.items() if piece != "cat"
    }  # fmt: skip
    assert [piece for piece, _ in one.alike] == sorted(cosines, key=lambda piece: -cosines[piece])[:MAX_SIMILAR_PIECES]
    assert_near([cosine for _, cosine in one.alike], [cosines[piece] for piece, _ in one.alike])


def test_heads_watch_it_more_than_any_token(of_a_text: Index) -> None:
    """How often it is a head's strongest key, from other tokens, beside what any typed token is to that head."""
    rows = rows_of(of_a_text)
    watched = 0
    for one in token_profiles(of_a_text, max_pieces=5):
        assert len(one.watched) <= MAX_HEADS
        for layer, head, times, expected in one.watched:
            looks = [key for query, key in strongest(of_a_text, layer, head, rows).items() if key != query]
            looks = [key for key in looks if rows[key]["word"] is not None]
            assert times == sum(rows[key]["piece"] == one.piece for key in looks) > expected
            assert expected == pytest.approx(len(looks) / one.tokens * one.times)
            watched += 1
    assert watched > 5


def test_of_a_treebank_its_parts_of_speech_are_said(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Each share beside that of all tokens."""
    from tests.core.test_treebank import SENTENCES

    (tmp_path / "trees.conllu").write_text(("\n".join(SENTENCES) + "\n\n") * MIN_TIMES)
    index = indexed(tmp_path / "trees.conllu", tmp_path / "index", tiny_model_folder)
    typed = [row for row in rows_of(index) if row["word"] is not None]
    (one,) = token_profiles(index, max_pieces=1)
    own = [row for row in typed if row["piece"] == one.piece]
    assert set(one.bars) == {"place", "upos", "relation"}
    for asked in ("upos", "relation"):
        for bar in one.bars[asked]:
            assert bar.share == pytest.approx(sum((row[asked] or "no label") == bar.name for row in own) / len(own))
            assert bar.chance == pytest.approx(
                sum((row[asked] or "no label") == bar.name for row in typed) / len(typed)
            )


def test_those_typed_most_come_unasked(of_a_text: Index) -> None:
    """As many as are asked for, the commonest first, and none that is too rare; a seed draws the same again."""
    counts = Counter(row["piece"] for row in rows_of(of_a_text) if row["word"] is not None)
    found = token_profiles(of_a_text, max_pieces=3, seed=2)
    assert [one.times for one in found] == [times for _, times in counts.most_common(3)]
    every = token_profiles(of_a_text, max_pieces=10_000)
    assert {one.piece for one in every} == {piece for piece, times in counts.items() if times >= MIN_TIMES}
    assert found == token_profiles(of_a_text, [one.piece for one in found], seed=2)
    assert found != token_profiles(of_a_text, [one.piece for one in found], seed=3)
    assert token_profiles(of_a_text, max_pieces=0) == token_profiles(of_a_text, []) == ()


def test_a_file_gives_all_three_back(of_a_text: Index, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Heads, tokens and neurons as they were written, each sentence once in the file; and as one table."""
    loaded: LoadedModel = load(str(tiny_model_folder), device="cpu")
    found = dataclasses.replace(
        head_profiles(of_a_text, [(1, 1)]), tokens=token_profiles(of_a_text, max_pieces=2),
        neurons=neuron_profiles(of_a_text, loaded, [(0, 3), (1, 5)]),
    )  # fmt: skip
    path = tmp_path / "profiles.json"
    write_profiles(found, path)
    assert read_profiles(path) == found
    kept = json.loads(path.read_text())
    sentences = [tuple(one) for one in kept["sentences"]]
    assert len(set(sentences)) == len(sentences) <= 60 and path.read_text().count(sentences[0][2]) == 1
    assert found.find_token(found.tokens[1].piece) == found.tokens[1] and found.find_neuron(1, 5) == found.neurons[1]
    with pytest.raises(Refused, match="there is no profile of zebra: there are 2 of other tokens"):
        found.find_token("zebra")
    with pytest.raises(Refused, match="there is no profile of L0 neuron 4: there are 2 of other neurons"):
        found.find_neuron(0, 4)
    columns = profile_columns(found.all_profiles)
    assert tuple(columns) == COLUMNS and Counter(columns["of"]).keys() == {"head", "token", "neuron"}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    of_token = [row for row in rows if row["piece"] == found.tokens[0].piece]
    assert [(row["value"], row["chance"]) for row in of_token if row["asked"] == "likeness"] == [
        (value, chance) for _, value, chance in found.tokens[0].likeness
    ]
    assert {row["name"]: row["value"] for row in rows if row["neuron"] == 5
            and row["asked"] == "figure"}["mean"] == found.neurons[1].mean  # fmt: skip
    for broken in (
        kept | {"sentences": []}, kept | {"tokens": [{}]}, kept | {"neurons": 3},
        kept | {"tokens": [kept["tokens"][0] | {"deciles": [0.0]}]},
    ):  # fmt: skip
        path.write_text(json.dumps(broken))
        with pytest.raises(Refused, match="contains no profiles"):
            read_profiles(path)
    path.write_text(json.dumps(kept | {"format": 1}))
    with pytest.raises(Refused, match="has an older format: make it again"):
        read_profiles(path)


def test_what_cannot_be_is_refused(of_a_text: Index) -> None:
    """A piece that is not there, or too rare, or no text; a depth that is not kept; a broken shard."""
    with pytest.raises(
        Refused, match=r"'zebra' occurs 0 times in .*: a profile of a token needs at least 10 occurrences"
    ):
        token_profiles(of_a_text, ["zebra"])
    with pytest.raises(Refused, match=r"'\[CLS\]' occurs 0 times"):
        token_profiles(of_a_text, ["[CLS]"])
    with pytest.raises(Refused, match="must be text"):
        token_profiles(of_a_text, [3])  # type: ignore[list-item]
    with pytest.raises(Refused, match=r"depth is 9: .* has states at 0, 1, 2"):
        token_profiles(of_a_text, ["cat"], depth=9)
    path = of_a_text.folder / "0000.000000" / "states.npy"
    path.write_bytes(b"broken")
    with pytest.raises(Refused, match="is broken"):
        token_profiles(dataclasses.replace(of_a_text), ["cat"])
