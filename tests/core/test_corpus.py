"""Heads over a text file: what each line gives alone, whatever the file holds and wherever it was stopped."""

from __future__ import annotations

import itertools
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

import bert_core
from bert_core import LoadedModel, Refused, iter_heads
from bert_core.analysis.heads import layer_normalised
from bert_core.analysis.roles import head_figures
from bert_core.fingerprint import fingerprint
from bert_core.run.capture import capture
from bert_core.run.losses import gate_gradients, losses_without_heads, mask_pieces
from bert_core.studies.heads import HeadSums, measure_shard, reading_note
from bert_core.studies.lines import MAX_LINE_BYTES, SHARD_LINES, line_shards
from bert_core.studies.rows import Columns, row_shards
from bert_core.studies.settings import CorpusSettings
from tests.near import assert_near

LINES = ("the cat sat on the mat.", "a dog ran to the door", "she opened the old house", "it was a new day", "no.")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Eighty lines, every seventh of them empty: three shards."""
    path = tmp_path / "corpus.txt"
    lines = ["" if n % 7 == 3 else f"{LINES[n % 5]} {LINES[(n // 5) % 5]}" for n in range(80)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def last(path: Path, model: Path, settings: CorpusSettings | None = None, **more: object) -> HeadSums:
    """The sums at the end of the file."""
    *_, (total, _) = iter_heads(path, str(model), settings, device="cpu", **more)  # type: ignore[arg-type]
    return total


# ---------------------------------------------------------------------------- lines


def test_lines_of_every_kind(tmp_path: Path) -> None:
    """Empty lines, broken UTF-8, a line longer than any text, another system's line ends: counted and read."""
    path = tmp_path / "odd.txt"
    long = "word " * 100_000
    path.write_bytes(
        b"\xef\xbb\xbffirst\r\n\r\n   \nbro\xffken\n" + long.encode() + b"\n" + "é".encode() * 40_000 + b"\nlast"
    )
    (shard,) = line_shards(path)
    assert dict(shard.counts) == {"lines": 7, "empty": 2, "overlong": 2, "not UTF-8": 1}
    assert [line.number for line in shard.lines] == [0, 3, 4, 5, 6]
    texts = [line.text for line in shard.lines]
    assert texts[0] == "first" and texts[1] == "bro\ufffdken" and texts[4] == "last"
    assert long.startswith(texts[2]) and MAX_LINE_BYTES - 10 < len(texts[2]) <= MAX_LINE_BYTES
    assert set(texts[3]) == {"é"}, "no character is cut in two"
    assert shard.end == path.stat().st_size and shard.next_line == 7


def test_a_line_of_any_length_does_not_fill_the_memory(tmp_path: Path) -> None:
    """Of a line of 64 megabytes no more than a few pieces are held at once."""
    path = tmp_path / "long.txt"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(b"a cat " * 170_000)
    tracemalloc.start()
    (shard,) = line_shards(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert shard.counts["overlong"] == 1 and peak < 2_000_000


def test_shards_go_on_where_another_ended(corpus: Path) -> None:
    """The shards from any one on are those of the whole file."""
    whole = list(line_shards(corpus))
    assert [len(shard.lines) + shard.counts["empty"] for shard in whole] == [SHARD_LINES, SHARD_LINES, 16]
    for number, before in enumerate(whole[:-1], 1):
        assert list(line_shards(corpus, number=number, start=before.end, line=before.next_line)) == whole[number:]


# ---------------------------------------------------------------------------- measuring


def test_the_table_is_the_mean_over_the_lines(corpus: Path, tiny_loaded: LoadedModel, tiny_model_folder: Path) -> None:
    """Each figure is the mean of what each line gives by itself, importance after the absolute value of each."""
    settings = CorpusSettings(max_length=12, seed=3)
    table = last(corpus, tiny_model_folder, settings).table("somewhere/tiny-bert")
    expected: dict[str, list[np.ndarray]] = {}
    losses = []
    for number, line in enumerate(corpus.read_text().splitlines()):
        if not line:
            continue
        encoding = tiny_loaded.tokenizer.encode(line, max_length=12)
        figures = head_figures(capture(tiny_loaded, encoding).attention, encoding)
        text = mask_pieces(tiny_loaded.tokenizer, encoding, np.random.default_rng([3, number]))
        (loss,), (slopes,) = gate_gradients(tiny_loaded, [text])
        figures["importance"] = np.abs(slopes)
        figures["loss_change"] = losses_without_heads(tiny_loaded, [text])[1][0] - loss
        losses.append(loss)
        for name, values in figures.items():
            expected.setdefault(name, []).append(values)
    assert (table.model, table.texts) == ("tiny-bert", len(losses))
    assert_near(table.loss, np.mean(losses))
    for name, values in expected.items():
        assert_near(table.figures[name], np.mean(values, axis=0), what=name)
    changes = np.array(expected["loss_change"])
    error = changes.std(0, ddof=1) / np.sqrt(len(changes))
    assert np.allclose(table.figures["loss_change_error"], error, rtol=1e-3)
    assert np.allclose(table.figures["importance_in_layer"], layer_normalised(table.figures["importance"]))


def test_only_what_was_asked_for(corpus: Path, tiny_model_folder: Path) -> None:
    """Without importance and removal there is no loss, and without one of them not its figure."""
    assert last(corpus, tiny_model_folder, CorpusSettings(False, False)).table("m").loss is None
    only = last(corpus, tiny_model_folder, CorpusSettings(ablation=False)).table("m")
    assert "importance" in only.figures and "loss_change" not in only.figures and only.loss is not None


def test_odd_lines_are_counted_and_said(tmp_path: Path, tiny_model_folder: Path) -> None:
    """A line of a hundred thousand words is cut, broken bytes are replaced, empty lines passed over: all said."""
    path = tmp_path / "odd.txt"
    path.write_bytes(b"a cat\n\n" + b"cat " * 100_000 + b"\ndo\xffg\n\xe2\x80\x8b\n")
    total = last(path, tiny_model_folder, CorpusSettings(ablation=False))
    assert reading_note(total.counts) == (
        "3 of 5 lines were read: 1 empty, 1 without a character that the tokenizer knows, 1 cut to the maximum length, "
        "1 too long, of which only the beginning was read, 1 with bytes that are not UTF-8, which were replaced"
    )
    assert all(np.isfinite(values).all() for values in total.figures.values())
    path.write_bytes(b"\n\n \n")
    with pytest.raises(ValueError, match=r"no text in 3 lines could be measured \(3 empty\)"):
        last(path, tiny_model_folder).table("m")


# ---------------------------------------------------------------------------- going on


def test_stopped_anywhere_it_goes_on_to_the_same_numbers(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """After one shard, two shards and all of them: the sums of a run that was never stopped, to the last bit."""
    model, whole = str(tiny_model_folder), last(corpus, tiny_model_folder)
    for done in (1, 2, 3):
        state = tmp_path / f"after-{done}"
        for _ in itertools.islice(iter_heads(corpus, model, state=state, device="cpu"), done):
            pass
        first, share = next(iter_heads(corpus, model, state=state, device="cpu"))
        assert first.counts["lines"] == min(done * SHARD_LINES, 80) and 0 < share <= 1
        resumed = last(corpus, tiny_model_folder, state=state)
        assert resumed.counts == whole.counts and resumed.loss == whole.loss
        assert all((resumed.figures[name] == values).all() for name, values in whole.figures.items())


def test_a_run_of_other_weights_is_not_gone_on_with(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """A model that was trained again under the same name is another; the table says of which one it is."""
    model, state = tmp_path / "model", tmp_path / "table.part"
    shutil.copytree(tiny_model_folder, model)
    next(iter_heads(corpus, str(model), state=state, device="cpu"))
    first = last(corpus, model).table("m")
    loaded = bert_core.load(model, device="cpu")
    assert first.weights == fingerprint(loaded)
    with torch.no_grad():
        loaded.model.bert.embeddings.LayerNorm.bias += 1  # type: ignore[operator]
    shutil.rmtree(model)
    bert_core.save(loaded, model)
    with pytest.raises(ValueError, match=r"holds a run with other settings \(weights: \w{16}, not \w{16}\)"):
        next(iter_heads(corpus, str(model), state=state, device="cpu"))
    second = last(corpus, model).table("m")
    assert second.weights == fingerprint(loaded) != first.weights and second.loss != first.loss


def test_a_run_with_other_settings_is_not_gone_on_with(corpus: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Another seed, text, or a state that is none: one sentence that names it, and the file stays as it was."""
    state = tmp_path / "table.part"
    next(iter_heads(corpus, str(tiny_model_folder), CorpusSettings(ablation=False), state=state, device="cpu"))
    kept = state.read_bytes()
    with pytest.raises(
        ValueError, match=r"holds a run with other settings \(ablation: \w+, not \w+; seed: 0, not \d\): use the"
    ):
        next(iter_heads(corpus, str(tiny_model_folder), CorpusSettings(seed=1), state=state, device="cpu"))
    with corpus.open("a") as file:
        file.write("more\n")
    with pytest.raises(ValueError, match=r"holds a run with other settings \(text\): use"):
        next(iter_heads(corpus, str(tiny_model_folder), CorpusSettings(ablation=False), state=state))
    assert state.read_bytes() == kept
    state.write_bytes(kept[:100])
    with pytest.raises(ValueError, match="is not the state of a study: delete it to start again"):
        next(iter_heads(corpus, str(tiny_model_folder), CorpusSettings(ablation=False), state=state))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"mask_share": 0.0}, "mask_share is 0.0: it must be a number of at least 0.01 and of at most 0.9"),
        ({"max_length": 2}, "max_length is 2: it must be a whole number of at least 3"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, float], sentence: str) -> None:
    """What was given and what is allowed."""
    with pytest.raises(ValueError, match=sentence):
        CorpusSettings(**given)  # type: ignore[arg-type]


def test_more_tokens_than_the_model_reads(corpus: Path, tiny_model_folder: Path) -> None:
    """It is said before any text is read; an engine that there is not, too."""
    with pytest.raises(ValueError, match=r"max_length is 600: .* reads at most 512 tokens"):
        next(iter_heads(corpus, str(tiny_model_folder), CorpusSettings(max_length=600)))
    with pytest.raises(ValueError, match="engine 'cloud' is unknown: one of local, ray"):
        next(iter_heads(corpus, str(tiny_model_folder), engine="cloud"))


def test_sums_do_not_depend_on_how_lines_are_dealt(corpus: Path, tiny_loaded: LoadedModel) -> None:
    """Shards of another size give the same means, up to rounding."""
    settings = CorpusSettings()
    totals = []
    for size in (7, 80):
        total = HeadSums({})
        for shard in line_shards(corpus, size=size):
            total = total + measure_shard(tiny_loaded, shard, settings)
        totals.append(total)
    one, other = totals
    assert one.counts == other.counts
    for name, values in one.figures.items():
        assert_near(values, other.figures[name], what=name)


def test_a_table_between_tabs_is_read_by_its_columns(tmp_path: Path) -> None:
    """In a .tsv quotes are signs like others, as in GLUE's files, and commas part nothing."""
    (tmp_path / "sst.tsv").write_text('sentence\tlabel\nthe "bad one, he said\t0\na b\t1\n', encoding="utf-8")
    (shard,) = row_shards(tmp_path / "sst.tsv", Columns("sentence", answer="label"))
    assert [(line.text, line.answer) for line in shard.lines] == [('the "bad one, he said', "0"), ("a b", "1")]
    with pytest.raises(Refused, match=r"the column 'text' is not in sst\.tsv: its columns are sentence, label"):
        list(row_shards(tmp_path / "sst.tsv", Columns("text")))
