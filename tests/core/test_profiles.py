"""What a head does over a corpus: counted again token by token, beside chance counted again key by key."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core import HeadTable, Index, Refused, head_profiles, iter_index, open_index, read_profiles, write_profiles
from bert_core.studies import corpus, profiles
from bert_core.studies.corpus import log_likelihood_term
from bert_core.studies.head_profiles import MAX_SIMILAR_HEADS
from bert_core.studies.profiles import GroupShare
from tests.core.test_treebank import SENTENCES
from tests.near import assert_near

DOSSIERS = Path(__file__).parents[1] / "data" / "dossiers.json"  # written before they were called profiles


def indexed(path: Path, out: Path, model: Path) -> Index:
    """A whole index."""
    for _ in iter_index(path, out, str(model), device="cpu"):
        pass
    return open_index(out)


@pytest.fixture
def of_a_text(tiny_model_folder: Path, tmp_path: Path) -> Index:
    """Of plain text, whose words come again."""
    path = tmp_path / "corpus.txt"
    path.write_text("".join(
        f"The {'old' if n % 3 else 'big'} cat sat on the mat {n}. A dog, a king ran to door {n}!\n" for n in range(30)
    ))  # fmt: skip
    return indexed(path, tmp_path / "index", tiny_model_folder)


@pytest.fixture
def of_a_treebank(tiny_model_folder: Path, tmp_path: Path) -> Index:
    """Of sentences with their trees."""
    path = tmp_path / "trees.conllu"
    path.write_text("\n".join(SENTENCES) + "\n")
    return indexed(path, tmp_path / "index", tiny_model_folder)


def rows_of(index: Index) -> list[dict[str, Any]]:
    """Every token with its number and its sentence."""
    rows = [shard.row(number) for shard in index.shards for number in range(shard.tokens)]
    return [row | {"row": number, "first": number - row["position"]} for number, row in enumerate(rows)]


def strongest(index: Index, layer: int, head: int, rows: list[dict[str, Any]]) -> dict[int, int]:
    """Of every typed token the row of its strongest key."""
    keys = np.concatenate([shard.part("keys", layer)[head, :, 0] for shard in index.shards])
    return {row["row"]: row["first"] + int(keys[row["row"]]) for row in rows if row["word"] is not None}


def kind_of(query: dict[str, Any], key: dict[str, Any]) -> str:
    """By hand, for words of one piece or two."""
    if key["word"] is None:
        return "end" if key["position"] else "first"
    if key is query:
        return "itself"
    if key["word"].lower() == query["word"].lower():
        return "its word" if key["end"] == query["start"] or query["end"] == key["start"] else "the same word"
    if key["word"] in ".,!":
        return "punctuation"
    return "number" if key["word"].isdigit() else "another word"


def as_shares(bars: tuple[GroupShare, ...]) -> tuple[dict[str, float], dict[str, float]]:
    return {bar.name: bar.share for bar in bars}, {bar.name: bar.chance for bar in bars}


def test_bars_are_counted_and_chance_is_a_key_of_the_sentence(of_a_text: Index) -> None:
    """Offsets and kinds, each with its chance, of all tokens and of the tenth with most activity."""
    rows = rows_of(of_a_text)
    found = head_profiles(of_a_text, [(0, 1), (1, 0)])
    for one in found.heads:
        keys = strongest(of_a_text, one.layer, one.head, rows)
        assert one.tokens == len(keys)
        scales = np.concatenate([shard.part("head_scales", one.layer)[one.head] for shard in of_a_text.shards], axis=1)
        activity = (scales[0] * scales[1])[list(keys)]
        assert_near(one.deciles, np.quantile(activity / activity.mean(), np.linspace(0, 1, 11)))
        most = [row for row, at in zip(keys, activity >= np.quantile(activity, 0.9), strict=True) if at]
        for bars, queries in ((one.bars, list(keys)), (one.active, most)):
            kinds, offsets, chance = Counter[str](), Counter[str](), Counter[str]()
            for query in queries:
                key = rows[keys[query]]
                kinds[kind_of(rows[query], key)] += 1
                by = key["row"] - query
                if abs(by) <= corpus.MAX_OFFSET and key["word"] is not None:
                    offsets[f"{by:+d}" if by else "0"] += 1
                sentence = [other for other in rows if other["first"] == rows[query]["first"]]
                for other in sentence:
                    chance[kind_of(rows[query], other)] += 1 / len(sentence)  # type: ignore[assignment]
            shares, by_chance = as_shares(bars["kind"])
            assert {name: share for name, share in shares.items() if share} == pytest.approx(
                {name: count / len(queries) for name, count in kinds.items()}
            )
            assert by_chance == pytest.approx({name: count / len(queries) for name, count in chance.items()})
            shares, by_chance = as_shares(bars["offset"])
            for name, count in offsets.items():
                assert shares[name] == pytest.approx(count / len(queries))
            assert sum(shares.values()) == pytest.approx(1) and sum(by_chance.values()) == pytest.approx(1)
        assert one.sink_share == pytest.approx(
            sum(bar.share for bar in one.bars["kind"] if bar.name in ("first", "end"))
        )


def test_relations_are_those_of_the_trees(of_a_treebank: Index) -> None:
    """A key is the governor of its token, a dependent of it, in the same word, added, or not tied to it."""
    rows = rows_of(of_a_treebank)
    ((one,),) = (head_profiles(of_a_treebank, [(1, 1)]).heads,)
    keys = strongest(of_a_treebank, 1, 1, rows)
    # Number the words: in these sentences no word stands beside an equal one.
    number, last = {}, (None, None)
    for row in rows:
        last_word, count = last
        same = (
            row["word"] is not None and row["word"] == last_word and row["distance"] == rows[row["row"] - 1]["distance"]
        )
        count = (count or 0) + (not same)
        number[row["row"]], last = count, (row["word"], count)

    def tie(query: int, key: int) -> str:
        if rows[key]["word"] is None:
            return "end" if rows[key]["position"] else "first"
        if number[key] == number[query]:
            return "its own word"
        if rows[query]["distance"] and number[query] + rows[query]["distance"] == number[key]:
            return "its governor"
        if rows[key]["distance"] and number[key] + rows[key]["distance"] == number[query]:
            return "its dependent"
        return "not tied to it"

    expected = Counter(tie(query, key) for query, key in keys.items())
    shares, by_chance = as_shares(one.bars["relation"])
    assert {name: share for name, share in shares.items() if share} == pytest.approx(
        {name: count / len(keys) for name, count in expected.items()}
    )
    assert by_chance["its governor"] > 0 and by_chance["its dependent"] > 0
    tags = Counter(rows[key]["upos"] or "added" for key in keys.values())
    shares, _ = as_shares(one.bars["upos"])
    assert {name: share for name, share in shares.items() if share} == pytest.approx(
        {name: count / len(keys) for name, count in tags.items()}
    )


def test_words_and_pairs_stand_beside_what_chance_gives(of_a_text: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted again pair by pair, in one go or in many: the most telling first, and none that is not above chance."""
    rows = rows_of(of_a_text)
    whole = head_profiles(of_a_text)
    monkeypatch.setattr(corpus, "PAIRS_AT_ONCE", 50)
    in_parts = head_profiles(of_a_text)
    compared = 0
    for one, other in zip(whole.heads, in_parts.heads, strict=True):
        keys = strongest(of_a_text, one.layer, one.head, rows)
        assert [(word.key, word.times) for word in one.words] == [(word.key, word.times) for word in other.words]
        for joined in (*one.words, *one.pairs):
            times = expected = 0.0
            for query, key in keys.items():
                if joined.query is not None and rows[query]["word"].casefold() != joined.query:
                    continue
                sentence = [row for row in rows if row["first"] == rows[query]["first"]]
                apart = [row for row in sentence if row["word"] and (joined.query is None or row["row"] != query)]
                expected += sum(row["word"].casefold() == joined.key for row in apart) / len(sentence)
                times += (rows[key]["word"] or "").casefold() == joined.key and (joined.query is None or key != query)
            assert joined.times == times >= corpus.MIN_COUNT and times > joined.expected
            assert joined.expected == pytest.approx(expected)
            compared += 1
        scores = [log_likelihood_term(np.array(word.times), np.array(word.expected)).item() for word in one.words]
        assert scores == sorted(scores, reverse=True)
    assert compared > 20
    assert log_likelihood_term(np.array([8.0]), np.array([2.0]))[0] == pytest.approx(16 * np.log(4))


def test_looks_are_of_their_tenth_and_heads_alike_look_alike(of_a_text: Index) -> None:
    """Each look is from its tenth of the activity, points into its sentence, and a seed draws it again."""
    rows = rows_of(of_a_text)
    found = head_profiles(of_a_text, examples=2, seed=3)
    assert found == head_profiles(of_a_text, examples=2, seed=3) != head_profiles(of_a_text, examples=2, seed=4)
    for one in found.heads:
        for tenth, looks in enumerate(one.tenths):
            for look in looks:
                assert one.deciles[tenth] - 1e-6 <= look.activity <= one.deciles[tenth + 1] + 1e-6
                (own,) = [row for row in rows if (row["line"], row["sentence_text"]) == (look.line, look.text)
                          and (row["start"], row["end"]) == look.query and row["word"]]  # fmt: skip
                key = rows[strongest(of_a_text, one.layer, one.head, rows)[own["row"]]]
                assert look.piece == key["piece"]
                assert look.key == (None if key["word"] is None else (key["start"], key["end"]))
        assert [look.activity for look in one.strongest] == sorted(
            (look.activity for look in one.strongest), reverse=True
        )
        assert one.strongest[0].activity == pytest.approx(one.deciles[-1])
        assert len(one.alike) == min(MAX_SIMILAR_HEADS, len(found.heads) - 1)
        keys = strongest(of_a_text, one.layer, one.head, rows)
        scales = np.concatenate([shard.part("head_scales", one.layer)[one.head] for shard in of_a_text.shards], axis=1)
        activity = (scales[0] * scales[1])[list(keys)]
        most = activity >= np.quantile(activity, 0.9)
        same = {
            (layer, head): np.mean([
                key == other
                for key, other, there in zip(
                    keys.values(), strongest(of_a_text, layer, head, rows).values(), most, strict=True
                )
                if there
            ])
            for layer, head in of_a_text.all_heads
            if (layer, head) != (one.layer, one.head)
        }  # fmt: skip
        assert [share for *_, share in one.alike] == sorted(same.values(), reverse=True)[:MAX_SIMILAR_HEADS]
        assert all(same[layer, head] == share for layer, head, share in one.alike)


def test_figures_of_a_table_stand_beside_their_head(of_a_text: Index, tmp_path: Path) -> None:
    """Each head has its own, and what they were measured over; what is no number is left out, another model refused."""
    shape, found_in = (max(of_a_text.layers) + 1, of_a_text.heads), Path(of_a_text.model).name
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    gone = np.where(values == 3, np.nan, values)
    table = HeadTable(found_in, 7, 90, {"entropy": values, "loss_change": gone, "previous": values}, 4.25)
    found = head_profiles(of_a_text, table=table, table_source="somebody's")
    for one in found.heads:
        number = one.layer * of_a_text.heads + one.head
        assert one.figures == {"entropy": number, **({} if number == 3 else {"loss_change": number})}
    assert found.measured == (
        "7 texts of somebody's, where the loss with all heads is 4.250 nats per masked piece, a head's output replaced "
        "by zero"
    )
    write_profiles(found, tmp_path / "profiles.json")
    assert read_profiles(tmp_path / "profiles.json") == found
    columns = profiles.profile_columns(found.all_profiles)
    rows = [row for row in zip(*columns.values(), strict=True) if row[5] == "figure"]
    assert len(rows) == 2 * values.size - 1
    last = found.heads[-1]
    assert rows[-1] == (
        "head", last.layer, last.head, None, None, "figure", "all", "loss_change", *[None] * 5, values.max()
    )  # fmt: skip
    plain = head_profiles(of_a_text)
    assert plain.measured == "" and all(one.figures == {} for one in plain.heads)
    own = dataclasses.replace(table, weights=of_a_text.weights)
    assert head_profiles(of_a_text, table=own, table_source="somebody's") == found
    with pytest.raises(Refused, match=rf"fingerprint {'1' * 16}, .* index .* has fingerprint {of_a_text.weights}: "):
        head_profiles(of_a_text, table=dataclasses.replace(table, weights="1" * 16))
    for other in (dataclasses.replace(table, model="another"),
                  HeadTable(found_in, 7, 90, {"entropy": values[:, :1]})):  # fmt: skip
        with pytest.raises(Refused, match="both must be of the same model"):
            head_profiles(of_a_text, table=other)


def test_a_file_gives_them_back(of_a_treebank: Index, tmp_path: Path) -> None:
    """What was written is what is read; a file that is broken, or another one, is refused in a sentence."""
    found, path = head_profiles(of_a_treebank, source="somebody's, CC0"), tmp_path / "profiles.json"
    write_profiles(found, path)
    assert read_profiles(path) == found and found.find_head(1, 0).head == 0
    whole = json.loads(path.read_text())
    for broken in ({}, whole | {"format": 9}, whole | {"heads": [{}]}, whole | {"heads": 3}, [1]):
        path.write_text(json.dumps(broken))
        with pytest.raises(Refused, match=r"profiles\.json contains no profiles"):
            read_profiles(path)
    with pytest.raises(Refused, match="there is no file"):
        read_profiles(tmp_path / "none.json")


def test_a_file_that_was_written_as_dossiers_opens(tmp_path: Path) -> None:
    """All of it is read, and what is written now of the same profiles has the same content."""
    kept = DOSSIERS.read_text(encoding="utf-8")
    assert "profile" not in kept
    read = read_profiles(DOSSIERS)
    assert (read.find_head(1, 2).tokens, read.find_token("the").times, read.find_neuron(0, 3).tokens) == (72, 18, 72)
    write_profiles(read, tmp_path / "profiles.json")
    assert json.loads((tmp_path / "profiles.json").read_text(encoding="utf-8")) == json.loads(kept)


def test_the_highest_tenth_begins_with_the_strongest_examples() -> None:
    """Of a head and of a neuron; no other tenth does, and a token has none that are strongest."""
    read = read_profiles(DOSSIERS)
    for profile in (*read.heads, *read.neurons):
        assert profile.strongest and profile.examples_of_tenth(9) == (*profile.strongest, *profile.tenths[9])
        assert [profile.examples_of_tenth(tenth) for tenth in range(9)] == list(profile.tenths[:9])
    for profile in read.tokens:
        assert tuple(profile.examples_of_tenth(tenth) for tenth in range(10)) == profile.tenths
        for tenth in (-1, 10):
            with pytest.raises(Refused, match=f"tenth {tenth} does not exist: the tenths are 0 to 9, lowest first"):
                profile.examples_of_tenth(tenth)


def test_a_compressed_file_gives_them_back(
    of_a_treebank: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal profiles make equal files, and a file is read by its content; a cut one and too much text are refused."""
    found = head_profiles(of_a_treebank, source="somebody's, CC0")
    plain, compressed, again = (tmp_path / name for name in ("a.json", "b.json.gz", "c.JSON.GZ"))
    for path in (plain, compressed, again):
        write_profiles(found, path)
    assert gzip.decompress(compressed.read_bytes()) == plain.read_bytes()
    assert compressed.read_bytes() == again.read_bytes() and compressed.stat().st_size < plain.stat().st_size / 3
    renamed = tmp_path / "d.json"
    renamed.write_bytes(compressed.read_bytes())
    assert read_profiles(compressed) == read_profiles(renamed) == found
    with pytest.raises(Refused, match=r"must end in \.json or \.json\.gz"):
        write_profiles(found, tmp_path / "a.gz")
    for cut in (compressed.read_bytes()[:-20], compressed.read_bytes()[:5], b"\x1f\x8bno archive at all"):
        renamed.write_bytes(cut)
        with pytest.raises(Refused, match=r"d\.json is not a whole \.gz file"):
            read_profiles(renamed)
    monkeypatch.setattr(profiles, "MAX_FILE_BYTES", plain.stat().st_size)
    assert read_profiles(plain) == read_profiles(compressed) == found
    monkeypatch.setattr(profiles, "MAX_FILE_BYTES", plain.stat().st_size - 1)
    for path in (plain, compressed):
        with pytest.raises(Refused, match="holds more than"):
            read_profiles(path)


def test_what_cannot_be_is_refused(of_a_text: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that is not there, more than fits, a shard that is broken, an empty index."""
    with pytest.raises(Refused, match="has no heads of layer 7"):
        head_profiles(of_a_text, [(7, 0)])
    with pytest.raises(Refused, match="head"):
        head_profiles(of_a_text, [(0, 99)])
    with pytest.raises(Refused, match="there is no profile of L9 H9"):
        head_profiles(of_a_text, [(0, 0)]).find_head(9, 9)
    with pytest.raises(Refused, match="no typed token"):
        head_profiles(dataclasses.replace(of_a_text, shards=()))
    monkeypatch.setattr("bert_core.studies.head_profiles.MAX_STRONGEST_KEYS", 500)
    with pytest.raises(Refused, match="do not fit in memory: choose at most"):
        head_profiles(of_a_text)
    (of_a_text.folder / "0000.000000" / "keys.npy").write_bytes(b"broken")
    with pytest.raises(Refused, match="is broken"):
        head_profiles(open_index(of_a_text.folder), [(0, 0)])
