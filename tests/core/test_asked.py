"""Tags, spans, replaced tokens and likeness over a file: each number is that of its target by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core import (
    Columns,
    CorpusSettings,
    ExplainSettings,
    LoadedModel,
    Refused,
    Target,
    capture,
    explained_rows,
    iter_explanations,
    iter_heads,
    load,
    save,
    token_scores,
    word_totals,
)
from bert_core.analysis.faithfulness import MEASURES
from bert_core.methods import faithfulness
from bert_core.pooling import Pooling
from bert_core.run.similarity import similarity_target
from bert_core.studies.faithfulness import draw_questions, judge_file
from bert_core.studies.settings import StudySettings
from bert_core.target_kinds import target_questions
from tests.families import save_family
from tests.near import assert_near

METHODS = ("gradient x attention", "occlusion")
TEXT = "the cat sat"
WORDS = "the\tO\ncat\tB-PER\nsat\tO\n\nthe\tO\nold\tB-PER\ndoor\tI-PER\n\n" * 20
CONTEXT = "An old cat sat on the mat"


def folder_of(kind: str, request: pytest.FixtureRequest, at: Path) -> str:
    """A tiny model with the head that a kind is asked of."""
    if kind == "replaced":
        return str(save_family("electra", at / "electra", "ForPreTraining"))
    if kind == "similarity":
        loaded = load(str(request.getfixturevalue("tiny_model_folder")), device="cpu")
        save(replace(loaded, pooling=Pooling()), at / "pooled")
        return str(at / "pooled")
    return str(request.getfixturevalue({"tag": "tiny_tagger_folder", "span": "tiny_reader_folder"}[kind]))


def file_of(kind: str, at: Path) -> tuple[Path, dict[str, Any]]:
    """A file for a kind, of more texts than a shard, and what the settings say of it."""
    if kind == "tag":
        path = at / "words.conll"
        path.write_text(WORDS)
        return path, {"tags": "last"}
    if kind == "span":
        answer = {"text": "old cat", "answer_start": 3}
        asked = [{"id": str(n), "question": f"who sat {n % 7}", "answers": [answer]} for n in range(40)]
        path = at / "squad.json"
        path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": asked}]}]}))
        return path, {}
    path = at / "rows.csv"
    path.write_text("\n".join(["one,two", *(f"{TEXT} {n % 7},a dog ran" for n in range(40))]) + "\n")
    return path, {"columns": Columns("one", "two" if kind == "similarity" else None)}


def first_targets(kind: str, loaded: LoadedModel) -> tuple[Any, list[tuple[Target, str]]]:
    """The first text of the file, and what is asked of it, worked out by hand."""
    encode = loaded.tokenizer.encode
    if kind == "tag":
        return encode("the cat sat"), [(Target("tag", 2, label=loaded.tags.index("B-PER")), "B-PER")]
    if kind == "span":
        encoding = encode("who sat 0", CONTEXT)
        first, last = (next(n for n, (start, _) in enumerate(encoding.offsets)
                            if encoding.sides[n] == "B" and start == at) for at in (3, 7))  # fmt: skip
        return encoding, [(Target("span", first, last=last), "old cat")]
    encoding = encode(f"{TEXT} 0")
    if kind == "similarity":
        return encoding, [(similarity_target(loaded, encoding, encode("a dog ran")), "alike")]
    places = [n for n, special in enumerate(encoding.special) if not special]
    return encoding, [(Target("replaced", place), "replaced") for place in places]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [
        dict(zip(batch, row, strict=True))
        for batch in explained_rows(path)
        for row in zip(*batch.values(), strict=True)
    ]


@pytest.mark.parametrize("kind", target_questions())
def test_each_kind_is_explained_and_goes_on(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The first text's rows are those of its targets, which the columns name; a stopped run ends in the same bytes."""
    model, (path, given) = folder_of(kind, request, tmp_path), file_of(kind, tmp_path)
    settings = ExplainSettings(kind, METHODS, **given)
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    *_, (counts, share) = iter_explanations(path, whole, model, settings, device="cpu")
    assert counts["texts"] == 40 and share == 1
    loaded = load(model, device="cpu")
    encoding, targets = first_targets(kind, loaded)
    rows = iter(rows_of(whole))
    for target, name in targets:
        expected = token_scores(loaded, encoding, target, METHODS)
        for position, token in enumerate(encoding.tokens):
            row = next(rows)
            assert (row["token"], row["asked"], row["kind"]) == (token, name, kind)
            assert (row["first"], row["last"]) == (target.rows[0], target.rows[-1])
            assert_near([row[method] for method in METHODS], expected[:, position], of=np.abs(expected).max())
    assert word_totals(whole)
    next(iter_explanations(path, out, model, settings, device="cpu"))
    list(iter_explanations(path, out, model, settings, device="cpu"))
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("kind", target_questions())
def test_each_kind_is_asked_of_every_head_and_goes_on(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Slopes are those of `capture`, and costs those of a head mask; a stopped run has the same sums."""
    model, (path, given) = folder_of(kind, request, tmp_path), file_of(kind, tmp_path)
    settings = CorpusSettings(loss=kind, **given)
    *_, (sums, _) = iter_heads(path, model, settings, device="cpu")
    state = tmp_path / "state.npz"
    next(iter_heads(path, model, settings, state=state, device="cpu"))
    *_, (again, _) = iter_heads(path, model, settings, state=state, device="cpu")
    for name, values in sums.figures.items():
        np.testing.assert_array_equal(again.figures[name], values)
    assert (again.loss, again.counts) == (sums.loss, sums.counts)
    loaded = load(model, device="cpu")
    encoding, targets = first_targets(kind, loaded)
    single = one_text(kind, path, tmp_path)
    *_, (found, _) = iter_heads(single, model, settings, device="cpu")
    shape = found.figures["loss_change"].shape
    slopes, change = np.zeros(shape), np.zeros(shape)
    for target, _ in targets:
        run = capture(loaded, encoding, target=target)
        assert run.gate_gradient is not None and run.target_value is not None
        slopes += run.gate_gradient / len(targets)
        for head in np.ndindex(*shape):
            gates = np.ones(shape)
            gates[head] = 0
            without = capture(loaded, encoding, target=target, head_mask=gates).target_value
            assert without is not None
            change[head] += (run.target_value - without) / len(targets)
    assert_near(found.figures["importance"], np.abs(slopes), of=np.abs(slopes).max())
    assert_near(found.figures["loss_change"], change, of=np.abs(change).max())
    assert found.table("tiny", settings).loss_text.startswith(f"{found.loss:.3f} units of ") or kind == "replaced"


@pytest.mark.parametrize("kind", target_questions())
def test_each_kind_is_judged_and_goes_on(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """What is judged is what `faithfulness` says of the target; more questions later end in the same bytes."""
    model, (path, given) = folder_of(kind, request, tmp_path), file_of(kind, tmp_path)
    given.pop("columns", None)
    if kind in ("replaced", "similarity"):
        path = tmp_path / "text.txt"
        path.write_text("The cat sat on the mat. A dog ran in the house. The king saw the door. She is old.\n" * 2)
    loaded = load(model, device="cpu")
    settings = StudySettings(
        questions=2, kinds=(kind,), methods=("occlusion",), lengths=(4, 60), least=0, random_rankings=4, **given
    )
    table, again = tmp_path / "table.csv", tmp_path / "again.csv"
    found = judge_file(loaded, path, table, settings)
    assert len(found) == 2 and {one.kind for one in found} == {kind}
    question = draw_questions(loaded, path, settings)[0]
    scores = token_scores(loaded, question.encoding, question.target, ("occlusion",))
    by_hand = faithfulness(
        loaded, question.encoding, question.target, scores, words=True, random_rankings=4, seed=question.number
    )
    assert_near(found[0].scores, [by_hand[name].scores[0] for name in MEASURES])
    judge_file(loaded, path, again, replace(settings, questions=1))
    judge_file(loaded, path, again, settings)
    assert again.read_bytes() == table.read_bytes()


def one_text(kind: str, path: Path, at: Path) -> Path:
    """The first text of a file, alone in another."""
    single = at / f"one{path.suffix}"
    if kind == "span":
        values = json.loads(path.read_text())
        values["data"][0]["paragraphs"][0]["qas"] = values["data"][0]["paragraphs"][0]["qas"][:1]
        single.write_text(json.dumps(values))
    elif kind == "tag":
        single.write_text(WORDS.split("\n\n")[0] + "\n")
    else:
        single.write_text("\n".join(path.read_text().splitlines()[:2]) + "\n")
    return single


def test_without_a_file_that_says_it_the_model_is_asked(
    tiny_tagger_folder: Path, tiny_reader_folder: Path, tmp_path: Path
) -> None:
    """The model's own tag of each word that has one, of one word alone where it is named; the reader's own answer."""
    path, out = tmp_path / "text.txt", tmp_path / "tags.csv"
    path.write_text(f"{TEXT}\n")
    list(iter_explanations(path, out, str(tiny_tagger_folder), ExplainSettings("tag", METHODS), device="cpu"))
    loaded = load(str(tiny_tagger_folder), device="cpu")
    encoding = loaded.tokenizer.encode(TEXT)
    tags = capture(loaded, encoding).tags
    assert tags is not None
    likeliest = [(n, tags.labels[tags.order_at(n)[0]]) for n in range(1, len(encoding) - 1)]
    found = dict.fromkeys((row["first"], row["asked"]) for row in rows_of(out))
    assert list(found) == [(n, label) for n, label in likeliest if label != "O"]
    pairs, answers = tmp_path / "pairs.csv", tmp_path / "answers.csv"
    pairs.write_text(f"question,context\nwho sat,{CONTEXT}\n")
    settings = ExplainSettings("span", METHODS, columns=Columns("question", "context"))
    list(iter_explanations(pairs, answers, str(tiny_reader_folder), settings, device="cpu"))
    assert rows_of(answers)[0]["asked"] in CONTEXT


def test_what_cannot_be_asked_is_one_sentence(
    tiny_model_folder: Path, tiny_tagger_folder: Path, tiny_reader_folder: Path, tmp_path: Path
) -> None:
    """A model without the head, a tag that it does not know, an answer that is not in its context, one text of two."""
    path, out = tmp_path / "words.conll", tmp_path / "out.csv"
    path.write_text("the\tO\ncat\tB-ANIMAL\n")
    for kind in ("tag", "span", "replaced"):
        with pytest.raises(Refused, match="trained"):
            list(iter_explanations(path, out, str(tiny_model_folder), ExplainSettings(kind, METHODS), device="cpu"))
        with pytest.raises(Refused, match="trained"):
            list(iter_heads(path, str(tiny_model_folder), CorpusSettings(loss=kind), device="cpu"))
    settings = ExplainSettings("similarity", METHODS, columns=Columns("one", "two"))
    with pytest.raises(Refused, match="has no pooling settings in its files"):
        list(iter_explanations(path, out, str(tiny_model_folder), settings, device="cpu"))
    with pytest.raises(Refused, match=r"has the tag 'B-ANIMAL' .* does not have"):
        list(iter_explanations(path, out, str(tiny_tagger_folder), ExplainSettings("tag", tags="last"), device="cpu"))
    with pytest.raises(Refused, match="has the tag 'B-ANIMAL'"):
        list(iter_heads(path, str(tiny_tagger_folder), CorpusSettings(loss="tag", tags="last"), device="cpu"))
    asked = [{"id": "1", "question": "who", "answers": [{"text": "a dog", "answer_start": 3}]}]
    squad = tmp_path / "squad.json"
    squad.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": asked}]}]}))
    with pytest.raises(Refused, match="are not in their context"):
        list(iter_explanations(squad, out, str(tiny_reader_folder), ExplainSettings("span"), device="cpu"))
    with pytest.raises(Refused, match="searched for in a second text"):
        list(iter_explanations(path, out, str(tiny_reader_folder), ExplainSettings("span"), device="cpu"))
    with pytest.raises(Refused, match="needs a column of second texts"):
        CorpusSettings(loss="similarity")
    with pytest.raises(Refused, match="the label of tags 'last' is allowed only for the question 'tag'"):
        ExplainSettings("span", tags="last")
