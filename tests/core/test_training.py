"""bert_core/training: plain text to examples, and examples to weights, also across an interruption."""

from __future__ import annotations

import itertools
import json
import lzma
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bert_core import BertConfig, BertForPreTraining, Tokenizer
from bert_core.modeling import IGNORED_LABEL
from bert_core.records import Batch
from bert_core.studies.documents import read_documents, split_sentences
from bert_core.training import data, optimization, runs
from bert_core.training import pretrain as pretraining
from bert_core.training.data import Corpus, ExampleMaker
from bert_core.training.document_clusters import cluster_documents
from bert_core.training.launch import launch
from bert_core.training.optimization import Muon, WeightAverage, fast_dtype, orthogonalize, padded_size
from bert_core.training.pretrain import evaluate, make_optimizer, predictions, pretrain, train_step
from bert_core.training.runs import LOG_FILE, STATE_FILE
from bert_core.training.settings import MaskingRule, Mix, PretrainSettings
from tests.families import save_family
from tests.matrices import MatrixShapes
from tests.near import assert_gradients_near, assert_near

CPU = torch.device("cpu")
NO_MASKING = MaskingRule(rate=0.0)
SETTINGS = PretrainSettings(
    steps=24, warmup=3, decay=10, learning_rate=3e-3, tokens=256, lengths={16: 0.5, 32: 0.5}, seed=4
)


def silent(done: float | None, what: str = "") -> None:
    """Progress that nobody reads."""


@pytest.fixture(scope="module")
def tokenizer(tiny_model_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(tiny_model_folder)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty documents of a few simple sentences, many of their words made of pieces."""
    rng = np.random.default_rng(0)
    documents = []
    for _ in range(40):
        place, who = rng.choice(["city", "house", "river"]), rng.choice(["king", "queen", "cat", "dog"])
        sentences = [
            f"The {who}s {rng.choice(['walked', 'played', 'looked'])} in the old {place}."
            for _ in range(int(rng.integers(3, 9)))
        ]
        documents.append("\n".join(" ".join(sentences[i : i + 2]) for i in range(0, len(sentences), 2)))
    path = tmp_path_factory.mktemp("text") / "train.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpus(text: Path, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus.prepare(text, tokenizer, tmp_path_factory.mktemp("cache"))


@pytest.fixture
def examples(corpus: Corpus, tokenizer: Tokenizer) -> ExampleMaker:
    return ExampleMaker(corpus, tokenizer, MaskingRule(rate=0.2))


def new_model(config: BertConfig) -> BertForPreTraining:
    torch.manual_seed(7)
    return BertForPreTraining(config.replace(initializer_range=0.05))


# ---------------------------------------------------------------------------- reading text


LINES = "  First paragraph.\nSecond  one. \n\n\n \nAnother document.\n\n"
READ = [["First paragraph.", "Second  one."], ["Another document."]]


def test_text_files_and_compressed_ones_read_alike(tmp_path: Path) -> None:
    """A line is a paragraph, any number of blank lines ends a document, and the edges are trimmed."""
    (tmp_path / "a.txt").write_text(LINES, encoding="utf-8")
    (tmp_path / "a.xz").write_bytes(lzma.compress(LINES.encode()))
    assert list(read_documents(tmp_path / "a.txt")) == list(read_documents(tmp_path / "a.xz")) == READ


def test_broken_utf8_is_replaced(tmp_path: Path) -> None:
    """A byte that is no UTF-8 becomes a replacement sign, and the text around it stays."""
    broken = b"caf\xe9 and tea\n\n\xff\xfe\n"
    (tmp_path / "a.txt").write_bytes(broken)
    (tmp_path / "a.xz").write_bytes(lzma.compress(broken))
    for name in ("a.txt", "a.xz"):
        assert list(read_documents(tmp_path / name)) == [["caf\ufffd and tea"], ["\ufffd\ufffd"]]


@pytest.mark.parametrize("damage", ["not xz", "cut", "flipped"])
def test_a_broken_xz_is_one_clear_error(damage: str, tmp_path: Path) -> None:
    """A file that is no .xz, one cut short and one with a wrong byte are ValueErrors that name it."""
    whole = lzma.compress(np.random.default_rng(0).bytes(4000).hex().encode())
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    content = {"not xz": b"plain text", "cut": whole[: len(whole) // 2], "flipped": bytes(flipped)}[damage]
    (tmp_path / "a.xz").write_bytes(content)
    sentence = "has the extension .xz but is not compressed" if damage == "not xz" else "is not a whole .xz file"
    with pytest.raises(ValueError, match=rf"^a\.xz {re.escape(sentence)}"):
        list(read_documents(tmp_path / "a.xz"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    """Files that are no texts are named."""
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7\n")
    with pytest.raises(ValueError, match=r"^a\.pdf is a PDF document, which is not read"):
        list(read_documents(tmp_path / "a.pdf"))


def test_sentences_end_where_they_end() -> None:
    """At . ! or ?, with the quotes and brackets that close there, before a capital; not inside a number."""
    paragraph = (
        'He said "Go." Then she left (at last.) “No!” he cried. It was 3.5 miles, e.g. far. \'"Yes."\' Ok? 5 men.'
    )
    assert split_sentences(paragraph) == [
        'He said "Go."',
        "Then she left (at last.)",
        "“No!” he cried.",
        "It was 3.5 miles, e.g. far.",
        "'\"Yes.\"'",
        "Ok?",
        "5 men.",
    ]


# ---------------------------------------------------------------------------- the corpus


def test_a_corpus_is_the_text_in_pieces(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Sentences and documents start where the arrays say, and their pieces are those of the tokenizer."""
    text = "The cat sat. The dog ran.\nA big mat.\n\nIt was night. It was old.\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    corpus = Corpus.prepare(tmp_path / "a.txt", tokenizer, tmp_path / "cache")
    starts = corpus.sentence_starts
    sentences = [corpus.tokens[a:b] for a, b in itertools.pairwise(starts)]
    assert [tokenizer.decode(ids.tolist()) for ids in sentences] == [
        "the cat sat.",
        "the dog ran.",
        "a big mat.",
        "it was night.",
        "it was old.",
    ]
    assert corpus.document_starts.tolist() == [0, 3, 5]
    assert len(corpus) == 20


def test_a_text_is_tokenized_once(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time the arrays come from the cache; after a change of the text, or half a job, they are made anew."""
    made = []
    original = data._tokenize

    def counted(*arguments: Any) -> Any:
        made.append(1)
        return original(*arguments)

    monkeypatch.setattr(data, "_tokenize", counted)
    path, cache = tmp_path / "a.txt", tmp_path / "cache"
    path.write_text("The cat sat. The dog ran.\n\nIt was night. It was old.\n", encoding="utf-8")
    first = Corpus.prepare(path, tokenizer, cache)
    again = Corpus.prepare(path, tokenizer, cache)
    assert len(made) == 1
    assert np.array_equal(first.tokens, again.tokens)
    path.write_text("The cat sat. The dog ran.\n\nIt was a night. It was old.\n", encoding="utf-8")
    assert len(Corpus.prepare(path, tokenizer, cache)) == len(first) + 1
    assert len(made) == 2
    for marker in cache.glob("*/done"):
        marker.unlink()
    Corpus.prepare(path, tokenizer, cache)
    assert len(made) == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "a.txt is empty: there is no text in it"),
        ("The cat sat. The dog ran.\n", "has fewer than two documents: write one paragraph per line"),
        ("The cat sat.\n\nThe dog ran.\n", "0 documents of a.txt have two sentences or more: next-sentence prediction"),
        ("The cat sat. It ran.\n\nA dog.\n", "1 document of a.txt has two sentences or more: next-sentence prediction"),
    ],
)
def test_a_text_without_next_sentences_is_refused(
    content: str, words: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """There must be a right next sentence and a wrong one to choose, or the search for them would never end."""
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        Corpus.prepare(tmp_path / "a.txt", tokenizer, tmp_path / "cache")


# ---------------------------------------------------------------------------- examples


def numbered_corpus() -> Corpus:
    """Every piece has its place in the text as its number; sentences of 1 to 60 pieces, documents of 1 to 12."""
    rng = np.random.default_rng(3)
    sentence_starts = np.concatenate([[0], np.cumsum(rng.integers(1, 61, 400))])
    document_starts = np.concatenate([[0], np.cumsum(rng.integers(1, 13, 200))])
    document_starts = np.append(document_starts[document_starts < 400], 400)
    return Corpus(np.arange(1000, 1000 + sentence_starts[-1]), sentence_starts, document_starts)


@pytest.mark.parametrize("length", [5, 16, 64, 200])
def test_pairs_follow_each_other_or_come_from_another_document(length: int, tokenizer: Tokenizer) -> None:
    """`[CLS] A [SEP] B [SEP]`: each segment is a stretch of the text and B starts a sentence; labelled 0, B begins
    where A ended; labelled 1, it is of another document. About half are of each kind.
    """
    corpus = numbered_corpus()
    maker = ExampleMaker(corpus, tokenizer, NO_MASKING)
    batch = maker.batch(600, length, np.random.default_rng(1))
    sentence_of = np.repeat(np.arange(400), np.diff(corpus.sentence_starts))
    document_of = np.searchsorted(corpus.document_starts, sentence_of, side="right")
    for ids, segments, attended, label in zip(
        batch.input_ids, batch.token_type_ids, batch.attention_mask, batch.next_sentence_label, strict=True
    ):
        end = int(attended.sum())
        assert attended[:end].all() and (ids[end:] == tokenizer.id_of("[PAD]")).all()
        middle, last = np.nonzero(ids == tokenizer.id_of("[SEP]"))[0]
        assert ids[0] == tokenizer.id_of("[CLS]") and last == end - 1
        assert segments.tolist() == [0] * (middle + 1) + [1] * (last - middle) + [0] * (length - end)
        first, second = ids[1:middle] - 1000, ids[middle + 1 : last] - 1000
        assert len(first) and len(second)
        assert (np.diff(first) == 1).all() and (np.diff(second) == 1).all()
        assert len(set(document_of[first])) == len(set(document_of[second])) == 1
        assert second[0] in corpus.sentence_starts
        if label == 0:
            assert second[0] == first[-1] + 1
        else:
            assert document_of[second[0]] != document_of[first[0]]
    assert 0.4 < batch.next_sentence_label.mean() < 0.6


@pytest.mark.parametrize("mix", [Mix(), Mix(near=1.0), Mix(whole=1.0), Mix(whole=1.0, near=1.0)], ids=str)
def test_the_place_of_a_sentence_does_not_tell_whether_it_follows(mix: Mix, tokenizer: Tokenizer) -> None:
    """Right and wrong pairs are made of the same sentences: A is never the last one of its document, B never begins at
    the first one. So documents of one sentence have no part in pairs; among whole sentences they stand alone.
    """
    corpus = numbered_corpus()
    sizes = np.diff(corpus.document_starts)
    assert (sizes == 1).sum() > 3
    batch = ExampleMaker(corpus, tokenizer, NO_MASKING, mix).batch(600, 96, np.random.default_rng(8))
    starts = [(row, 0) for row in range(600)] if batch.starts is None else batch.starts.tolist()
    single = set(corpus.document_starts[:-1][sizes == 1].tolist())
    pairs, alone = {0: 0, 1: 0}, 0
    for (row, begin), label in zip(starts, batch.next_sentence_label.tolist(), strict=True):
        ids = batch.input_ids[row, begin:]
        ends = np.nonzero(ids == tokenizer.id_of("[SEP]"))[0]
        last_of_a = int(np.searchsorted(corpus.sentence_starts, ids[ends[0] - 1] - 1000, side="right")) - 1
        if label == -100:
            alone += last_of_a in single
            continue
        first_of_b = int(np.searchsorted(corpus.sentence_starts, ids[ends[0] + 1] - 1000, side="right")) - 1
        assert last_of_a + 1 not in corpus.document_starts, "A ends with the last sentence of its document"
        assert first_of_b not in corpus.document_starts, "B begins with the first sentence of its document"
        pairs[label] += 1
    assert min(pairs.values()) > 100
    assert not mix.whole or alone > 5


@pytest.mark.parametrize("mix", [Mix(), Mix(whole=1.0)], ids=["long", "whole"])
def test_wrong_pairs_can_be_swapped_neighbours(mix: Mix, tokenizer: Tokenizer) -> None:
    """For a model that tells the order: labelled 0, B begins where A ended; labelled 1, A begins where B ended."""
    maker = ExampleMaker(numbered_corpus(), tokenizer, NO_MASKING, mix, predict_order=True)
    batch = maker.batch(60, 64, np.random.default_rng(1))
    found = {0: 0, 1: 0}
    rows = enumerate([0] * 60) if batch.starts is None else ((int(row), int(at)) for row, at in batch.starts)
    for (row, begin), label in zip(rows, batch.next_sentence_label.tolist(), strict=True):
        if label in found:
            ids = batch.input_ids[row, begin:]
            middle, last = np.nonzero(ids == tokenizer.id_of("[SEP]"))[0][:2]
            first, second = ids[1:middle], ids[middle + 1 : last]
            assert second[0] == first[-1] + 1 if label == 0 else first[0] == second[-1] + 1
            found[label] += 1
    assert min(found.values()) > 10


def two_kinds() -> tuple[list[np.ndarray], np.ndarray]:
    """Eighty documents in turn about one of two subjects, each with words of its own, and words that all have."""
    rng = np.random.default_rng(5)
    subject = np.arange(80) % 2
    return [
        np.concatenate([rng.integers(100 + 50 * kind, 150 + 50 * kind, 30), rng.integers(0, 20, 40)])
        for kind in subject
    ], subject


def test_documents_of_one_kind_share_their_words() -> None:
    """No kind holds documents of both subjects, the same documents get the same kinds, and none is left without."""
    documents, subject = two_kinds()
    kinds = cluster_documents(documents)
    assert kinds.shape == (80,) and 2 <= len(set(kinds)) <= 6
    for kind in set(kinds):
        assert len(set(subject[kinds == kind])) == 1
    assert np.array_equal(kinds, cluster_documents(documents))
    assert cluster_documents([np.array([1, 2]), np.array([3])]).tolist() == [0, 0], "nothing is shared: all are alike"


def test_near_strangers_are_of_the_same_kind(tokenizer: Tokenizer) -> None:
    """With near=1 every wrong second passage is from another document of the first one's kind; with 0.5 about half."""
    documents, _ = two_kinds()
    # Every piece carries its document: it stands 300 places further for each.
    corpus = Corpus(np.concatenate(documents), np.arange(0, 80 * 70 + 1, 10), np.arange(0, 561, 7))
    kinds = cluster_documents(corpus.document_pieces())
    marked = Corpus(np.repeat(np.arange(80), 70) + 1000, corpus.sentence_starts, corpus.document_starts)
    shares = {}
    for near in (0.5, 1.0):
        maker = ExampleMaker(corpus, tokenizer, NO_MASKING, Mix(near=near))
        maker.corpus = marked  # the kinds are those of the text; the numbers say where a passage came from
        batch = maker.batch(400, 32, np.random.default_rng(2))
        alike = []
        for ids, label in zip(batch.input_ids, batch.next_sentence_label, strict=True):
            found = [int(d) for d in dict.fromkeys(ids[ids >= 1000] - 1000)]
            if label == 1:
                assert len(found) == 2
                alike.append(kinds[found[0]] == kinds[found[1]])
        shares[near] = np.mean(alike)
    assert shares[1.0] == 1 and 0.5 < shares[0.5] < 0.95


def test_whole_sentences_stand_side_by_side(tokenizer: Tokenizer) -> None:
    """Rows of whole sentences hold several examples: each begins with [CLS] at place 0, is a sentence or a pair of
    them from its first piece to its last, sees only itself, and a pair says whether its second follows.
    """
    corpus = numbered_corpus()
    batch = ExampleMaker(corpus, tokenizer, NO_MASKING, Mix(whole=1.0)).batch(40, 96, np.random.default_rng(3))
    cls, sep = tokenizer.id_of("[CLS]"), tokenizer.id_of("[SEP]")
    assert batch.starts is not None and batch.position_ids is not None
    assert len(batch.starts) > 60 and len(batch.starts) == len(batch.next_sentence_label)
    starts, sentence_starts = corpus.sentence_starts, set(corpus.sentence_starts.tolist())
    verdicts = {-100: 0, 0: 0, 1: 0}
    for (row, begin), verdict in zip(batch.starts, batch.next_sentence_label, strict=True):
        seen = np.nonzero(batch.attention_mask[row, begin])[0]
        begin, end = int(seen[0]), int(seen[-1]) + 1
        assert len(seen) == end - begin and batch.attention_mask[row, begin:end, begin:end].all()
        assert not batch.attention_mask[row, :begin, begin:end].any()
        assert batch.position_ids[row, begin:end].tolist() == list(range(end - begin))
        ids, segments = batch.input_ids[row, begin:end], batch.token_type_ids[row, begin:end]
        assert ids[0] == cls and ids[-1] == sep
        middle = int(np.nonzero(ids == sep)[0][0])
        parts = [ids[1:middle] - 1000] + ([ids[middle + 1 : -1] - 1000] if verdict != -100 else [])
        assert segments.tolist() == [0] * (middle + 1) + [1] * (len(ids) - middle - 1)
        for part in parts:
            assert len(part) >= 3 and (np.diff(part) == 1).all()
            assert int(part[0]) in sentence_starts and int(part[-1]) + 1 in sentence_starts
            assert np.searchsorted(starts, part[0]) + 1 == np.searchsorted(starts, part[-1] + 1), "one sentence"
        if verdict == 0:
            assert parts[1][0] == parts[0][-1] + 1
        verdicts[int(verdict)] += 1
    assert min(verdicts.values()) > 8
    assert (batch.input_ids == tokenizer.id_of("[PAD]")).mean() < 0.25


def test_sentences_that_fit_nowhere_leave_their_rows_empty(tiny_config: BertConfig, tokenizer: Tokenizer) -> None:
    """Where every sentence is longer than a row nothing is asked, and the figures are zeros of nothing."""
    corpus = Corpus(np.arange(10, 130), np.arange(0, 121, 30), np.array([0, 2, 4]))
    maker = ExampleMaker(corpus, tokenizer, MaskingRule(), Mix(whole=1.0))
    batch = maker.batch(3, 16, np.random.default_rng(0))
    assert (batch.input_ids == tokenizer.id_of("[PAD]")).all() and batch.starts is not None and not len(batch.starts)
    found = evaluate(new_model(tiny_config), maker, CPU, lengths=(16,), batches=1, tokens=48)[16]
    assert found["pairs"] == found["masked"] == found["mlm"] == found["nsp"] == 0


def test_side_by_side_gives_what_each_gives_alone(
    tiny_config: BertConfig, corpus: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fp32 the losses of packed rows are those of the same examples one by one."""
    monkeypatch.setattr(optimization, "CPUINFO", Path("/nowhere"))
    optimization._processor_flags.cache_clear()
    model = new_model(tiny_config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    batch = ExampleMaker(corpus, tokenizer, MaskingRule(rate=0.3), Mix(whole=0.7)).batch(
        8, 48, np.random.default_rng(6)
    )
    (together,) = optimization.read_metrics([train_step(model, batch, CPU)])
    optimization._processor_flags.cache_clear()
    assert batch.starts is not None
    words, right, asked = [], [], []
    for (row, begin), verdict in zip(batch.starts, batch.next_sentence_label, strict=True):
        seen = np.nonzero(batch.attention_mask[row, begin])[0]
        ids, segments, labels = (
            torch.from_numpy(table[row, seen])[None] for table in (batch.input_ids, batch.token_type_ids, batch.labels)
        )
        alone = model(ids, token_type_ids=segments)
        hidden = labels[0] != -100
        logits = alone.prediction_logits[0][hidden]
        words += torch.nn.functional.cross_entropy(logits, labels[0][hidden], reduction="none").tolist()
        right += (logits.argmax(-1) == labels[0][hidden]).tolist()
        if verdict != -100:
            target = torch.tensor([int(verdict)])
            asked.append(torch.nn.functional.cross_entropy(alone.seq_relationship_logits, target).item())
    assert together["loss"] == pytest.approx(np.mean(words) + np.mean(asked), rel=1e-4)
    assert together["mlm"] == pytest.approx(np.mean(right))


@pytest.mark.parametrize("whole", [0.0, 1.0])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_examples_have_the_special_tokens_of_encoded_texts(
    family: str, whole: float, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Each example has the special tokens and segments that `encode` sets around texts, and no label at them."""
    if family != "bert":
        save_family(family, tmp_path)
    tokenizer = Tokenizer.from_folder(tiny_model_folder if family == "bert" else tmp_path)
    alone, pair = (
        tuple(i for i, side in zip(encoding.input_ids, encoding.sides, strict=True) if side is None)
        for encoding in (tokenizer.encode("the cat"), tokenizer.encode("the cat", "it sat"))
    )
    pieces = [i for i in range(len(tokenizer)) if i not in (*pair, tokenizer.pad_id, tokenizer.mask_id)][:60]
    corpus = Corpus(np.tile(pieces, 40), np.arange(0, 2401, 8), np.arange(0, 301, 10))
    maker = ExampleMaker(corpus, tokenizer, MaskingRule(rate=0.5), Mix(whole=whole))
    batch = maker.batch(40, 48, np.random.default_rng(2))
    frames = set()
    for row, labels, segments in zip(batch.input_ids, batch.labels, batch.token_type_ids, strict=True):
        begins = [*np.flatnonzero(row == tokenizer.first_id), np.flatnonzero(row != tokenizer.pad_id)[-1] + 1]
        for begin, end in itertools.pairwise(begins):
            special = np.flatnonzero(np.isin(row[begin:end], pair))
            frame = tuple(row[begin:end][special].tolist())
            frames.add(frame)
            assert (labels[begin:end][special] == IGNORED_LABEL).all()
            second = special[-2] + 1 if frame == pair else end - begin
            expected = np.where(np.arange(end - begin) < second, 0, tokenizer.special_tokens.segment)
            assert (segments[begin:end] == expected).all()
    assert frames == ({alone, pair} if whole else {pair})


def test_a_length_without_room_is_refused(examples: ExampleMaker) -> None:
    """Two segments and their frame need five tokens."""
    with pytest.raises(ValueError, match=r"^the length of examples is 4 tokens: two segments need at least 5 tokens$"):
        examples.batch(1, 4, np.random.default_rng(0))


def masked_and_plain(corpus: Corpus, tokenizer: Tokenizer, rule: MaskingRule) -> tuple[Batch, np.ndarray]:
    """A large batch, and its ids before anything was hidden."""
    masked = ExampleMaker(corpus, tokenizer, rule).batch(600, 64, np.random.default_rng(9))
    plain = ExampleMaker(corpus, tokenizer, NO_MASKING).batch(600, 64, np.random.default_rng(9))
    return masked, plain.input_ids


@pytest.mark.parametrize("whole_words", [False, True])
def test_masking_has_its_shares(whole_words: bool, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """15% of the typed tokens are to be predicted; of these 80% are [MASK], 10% random pieces, 10% as they were."""
    batch, plain = masked_and_plain(corpus, tokenizer, MaskingRule(whole_words=whole_words))
    specials = [tokenizer.id_of(token) for token in ("[CLS]", "[SEP]", "[PAD]")]
    typed = ~np.isin(plain, specials)
    chosen = batch.labels != -100
    assert not (chosen & ~typed).any()
    assert np.array_equal(batch.labels[chosen], plain[chosen])
    assert np.array_equal(batch.input_ids[~chosen], plain[~chosen])
    # Five standard deviations of 30,000 and of 4,500 draws, and more for words, whose pieces are drawn together.
    assert abs(chosen.sum() / typed.sum() - 0.15) < 0.015
    now = batch.input_ids[chosen]
    hidden, kept = now == tokenizer.id_of("[MASK]"), now == plain[chosen]
    assert abs(hidden.mean() - 0.8) < 0.03
    assert abs(kept.mean() - 0.1) < 0.025
    assert abs((~hidden & ~kept).mean() - 0.1) < 0.025
    names = [tokenizer.token_of(int(number)) for number in now[~hidden & ~kept]]
    assert len(set(names)) > 50
    assert not [name for name in names if name.startswith("[")]


def test_whole_words_hide_all_their_pieces(corpus: Corpus, tokenizer: Tokenizer) -> None:
    """With the option no word is half chosen; without it some are."""
    halves = {}
    for whole_words in (True, False):
        batch, plain = masked_and_plain(corpus, tokenizer, MaskingRule(rate=0.3, whole_words=whole_words))
        chosen = batch.labels != -100
        pieces = np.array([tokenizer.token_of(i).startswith("##") for i in range(len(tokenizer))])[plain]
        # A segment may begin inside a word: its first pieces have no word before them.
        after_word = pieces[:, 1:] & (plain[:, :-1] != tokenizer.id_of("[CLS]"))
        assert after_word.sum() > 1000
        halves[whole_words] = int((after_word & (chosen[:, 1:] != chosen[:, :-1])).sum())
    assert halves[True] == 0
    assert halves[False] > 100


@pytest.mark.parametrize(
    "changes", [{"rate": 1.5}, {"rate": -0.1}, {"mask_share": 2.0}, {"mask_share": 0.8, "random_share": 0.3}]
)
def test_impossible_shares_are_refused(changes: dict[str, float]) -> None:
    """Shares are between 0 and 1, and two of one whole are not more than it."""
    with pytest.raises(
        ValueError, match=r"it must be a number of at least 0 and of at most 1|together they must be at most 1"
    ):
        MaskingRule(**changes)  # type: ignore[arg-type]


def test_a_batch_is_a_function_of_seed_and_step(examples: ExampleMaker) -> None:
    """The same numbers give the same batch whatever was drawn before; another seed or step gives another."""

    def drawn(*numbers: int) -> Batch:
        return examples.batch(4, 32, np.random.default_rng(list(numbers)))

    first = drawn(1, 5, 0)
    drawn(1, 6, 0)
    again = drawn(1, 5, 0)
    for name in ("input_ids", "token_type_ids", "attention_mask", "labels", "next_sentence_label"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    for other in (drawn(1, 6, 0), drawn(2, 5, 0), drawn(1, 5, 1)):
        assert not np.array_equal(first.input_ids, other.input_ids)


# ---------------------------------------------------------------------------- precision, optimizer, average


@pytest.mark.parametrize(
    ("lines", "quick"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 avx512bw\n", torch.bfloat16),
        ("processor\t: 0\nflags\t\t: fpu amx_bf16 amx_tile\n", torch.bfloat16),
        ("processor\t: 0\nFeatures\t: fp asimd i8mm bf16\n", torch.bfloat16),
        ("processor\t: 0\nflags\t\t: fpu avx avx2 avx512f avx512bw\n", torch.float32),
        ("", torch.float32),
        (None, torch.float32),
    ],
)
def test_bfloat16_only_where_the_processor_has_it(
    lines: str | None, quick: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Linux says of the processor decides, and where nobody says anything it is float32; the log says which."""
    path = tmp_path / "cpuinfo"
    if lines is not None:
        path.write_text(lines, encoding="utf-8")
    monkeypatch.setattr(optimization, "CPUINFO", path)
    optimization._processor_flags.cache_clear()
    for allowed in ("DEFAULT", "AVX2"):  # as told by the environment, or compiled
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda allowed=allowed: allowed)
        assert fast_dtype(CPU) == (quick if "Features" in (lines or "") else torch.float32)
    if "Features" not in (lines or ""):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert fast_dtype(CPU) == quick
    with optimization.training_autocast(CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == quick
    assert ("float32" in optimization.describe_precision(CPU)) == (quick == torch.float32)
    optimization._processor_flags.cache_clear()


@pytest.mark.parametrize("shape", [(24, 24), (24, 60), (60, 24)])
def test_orthogonal_evens_out_the_lengths(shape: tuple[int, int]) -> None:
    """Every direction of a matrix comes out with a length between 0.6 and 1.3, and the directions stay."""
    left, _, right = torch.linalg.svd(
        torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)), full_matrices=False
    )
    found = orthogonalize(left @ torch.diag(torch.linspace(0.05, 1, 24)) @ right).float()
    strengths = torch.linalg.svdvals(found)
    assert strengths.min() > 0.6 and strengths.max() < 1.3
    aligned = (left.mT @ found @ right.mT).diagonal(dim1=-2, dim2=-1)
    assert (aligned > 0.5).all()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has its own Muon from 2.9 on")
def test_muon_takes_the_steps_of_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four steps of both from one matrix, with the gradients of one loss, end within 2% of the way they went."""
    torch.manual_seed(2)
    start, aim, bias = torch.randn(20, 50), torch.randn(20, 50), torch.zeros(3)
    ours, theirs, other = (torch.nn.Parameter(t.clone()) for t in (start, start, bias))
    one = Muon([ours], [other], 0.05, 0.1)
    two = torch.optim.Muon([theirs], lr=0.05, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        for weight, optimizer in ((ours, one), (theirs, two)):
            (weight - aim).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert (ours - theirs).norm() < 0.02 * (ours - start).norm()
    assert torch.equal(other, bias)


def test_muon_moves_the_matrices_of_the_layers(tiny_config: BertConfig, examples: ExampleMaker) -> None:
    """The word table, the heads and all vectors have AdamW's state; the matrices of the layers have only a momentum."""
    model = new_model(tiny_config)
    optimizer = make_optimizer(model, PretrainSettings(optimizer="muon"))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    train_step(model, examples.batch(8, 32, np.random.default_rng(0)), CPU)
    optimization.apply_gradients(optimizer, list(model.parameters()), 1e-3)
    for name, weight in model.named_parameters():
        hidden = name.startswith("bert.encoder.") and weight.dim() == 2
        assert ("momentum" in optimizer.state[weight]) == hidden, name
        assert ("exp_avg" in optimizer.state[weight]) != hidden, name
        assert not torch.equal(weight, before[name]), name


def test_the_average_is_the_mean_of_the_weights() -> None:
    """At first of all that there were; it stands in for the weights and gives them back."""
    model = torch.nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, decay=0.5)
    seen = [model.weight.item()]
    for value in (4.0, 8.0):
        model.weight.data.fill_(value)
        average.add(model)
        seen.append(value)
    assert min(seen) < average.weights["weight"].item() < 8
    with average.swapped_in(model):
        assert model.weight.item() == average.weights["weight"].item()
    assert model.weight.item() == 8.0
    for _ in range(40):
        average.add(model)
    assert average.weights["weight"].item() == pytest.approx(8.0)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_sizes_repeat_where_a_kernel_is_kept_for_each(precision: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16 on a CPU sizes are rounded up to four per power of two, by a quarter or 7 rows at most; elsewhere no
    row is added.
    """
    monkeypatch.setattr(optimization, "fast_dtype", lambda device: precision)
    counts = range(5000)
    sizes = [padded_size(count, CPU) for count in counts]
    if precision == torch.float32:
        assert sizes == list(counts)
        return
    assert sizes[0] == 0 and sizes[1229] == 1280
    for count, size in zip(counts, sizes, strict=True):
        assert count <= size <= 1.25 * count + 7
        assert padded_size(size, CPU) == size
    for power in (64, 256, 1024, 2048):
        assert len({size for size in sizes if power < size <= 2 * power}) == 4
    assert padded_size(1229, torch.device("meta")) == 1229


# ---------------------------------------------------------------------------- settings


def test_the_rate_rises_stays_and_falls() -> None:
    """It reaches its height after the warm-up and zero after the last step."""
    settings = PretrainSettings(steps=100, warmup=10, decay=20, learning_rate=2.0)
    rates = [settings.rate_at(step) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (step + 1) for step in range(10)])
    assert set(rates[10:80]) == {2.0}
    assert rates[80:] == pytest.approx([0.1 * (100 - step) for step in range(80, 100)])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"steps": 0}, "steps is 0: it must be a whole number of at least 1"),
        ({"tokens": 100}, "tokens is 100: a batch needs at least 512, the largest of its lengths"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd': it must be one of adamw, muon"),
        ({"average": 1.0}, "average is 1.0: it must be a number of at least 0 and of at most 0.9999"),
        ({"lengths": {32: 0.5, 64: 0.4}}, "the shares of the lengths add up to 0.9: they must add up to 1"),
    ],
)
def test_impossible_settings_are_one_clear_sentence(changes: dict[str, Any], sentence: str) -> None:
    """What was given and what is allowed."""
    with pytest.raises(ValueError) as caught:
        PretrainSettings(**changes)
    assert str(caught.value) == sentence


# ---------------------------------------------------------------------------- training


def test_the_head_at_masked_positions_gives_the_full_gradient(
    tiny_config: BertConfig, examples: ExampleMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fp32, loss and every gradient of a training step are those of the model's own loss over all positions."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    quiet = tiny_config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    step, whole = new_model(quiet), new_model(quiet)
    batch = examples.batch(8, 32, np.random.default_rng(0))
    (figures,) = optimization.read_metrics([train_step(step, batch, CPU)])
    outputs = whole(
        torch.from_numpy(batch.input_ids),
        token_type_ids=torch.from_numpy(batch.token_type_ids),
        attention_mask=torch.from_numpy(batch.attention_mask),
        labels=torch.from_numpy(batch.labels),
        next_sentence_label=torch.from_numpy(batch.next_sentence_label),
    )
    outputs.loss.backward()
    assert_near(figures["loss"], outputs.loss.item())
    labels = torch.from_numpy(batch.labels)
    right = outputs.prediction_logits.argmax(-1)[labels != -100] == labels[labels != -100]
    assert figures["mlm"] == pytest.approx(right.float().mean().item())
    largest = max(float(parameter.grad.abs().max()) for parameter in whole.parameters() if parameter.grad is not None)
    for (name, one), other in zip(step.named_parameters(), whole.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None, name
        assert_near(one.grad, other.grad, of=largest, what=name)


@pytest.mark.parametrize("mix", [Mix(), Mix(whole=0.6)], ids=["long", "whole"])
def test_padding_changes_neither_loss_nor_gradient(
    mix: Mix, tiny_config: BertConfig, corpus: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fp32, rows that only pad the masked positions and the pairs leave every figure and gradient as they are."""
    monkeypatch.setattr(optimization, "fast_dtype", lambda device: torch.float32)
    quiet = tiny_config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    batch = ExampleMaker(corpus, tokenizer, MaskingRule(rate=0.2), mix).batch(8, 48, np.random.default_rng(0))
    exact, padded = new_model(quiet), new_model(quiet)
    (expected,) = optimization.read_metrics([train_step(exact, batch, CPU)])
    monkeypatch.setattr(pretraining, "padded_size", lambda count, device: count + 11)
    mlm_logits, labels, nsp_logits, follows = predictions(padded, batch, CPU)
    assert len(mlm_logits) == len(labels) == (batch.labels != -100).sum() + 11
    assert len(nsp_logits) == len(follows) == (batch.next_sentence_label != -100).sum() + 11
    (figures,) = optimization.read_metrics([train_step(padded, batch, CPU)])
    assert figures.keys() == expected.keys() == {"loss", "mlm", "nsp"}
    for name, value in expected.items():
        assert_near(figures[name], value, of=1, what=name)
    assert_gradients_near(padded, exact)


def test_a_batch_without_masked_pieces_has_no_loss(
    tiny_config: BertConfig, corpus: Corpus, tokenizer: Tokenizer
) -> None:
    """Its gradient is that of the next sentences alone, and no number is lost."""
    model = new_model(tiny_config)
    batch = ExampleMaker(corpus, tokenizer, NO_MASKING).batch(4, 16, np.random.default_rng(0))
    (figures,) = optimization.read_metrics([train_step(model, batch, CPU)])
    assert np.isfinite(figures["loss"]) and figures["mlm"] == 0
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_steps_repeat_their_matrix_products(
    tiny_config: BertConfig, corpus: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oneDNN keeps a kernel for each shape of a product in bfloat16: of 60 steps with whole sentences, the last 30
    bring no more than a few new shapes, and without padding most of them bring one.
    """
    maker = ExampleMaker(corpus, tokenizer, MaskingRule(rate=0.2), Mix(whole=0.5))
    model = new_model(tiny_config)

    def new_shapes() -> int:
        before, after = MatrixShapes(), MatrixShapes()
        for step in range(60):
            with before if step < 30 else after:
                train_step(model, maker.batch(16, (16, 32)[step % 2], np.random.default_rng(step)), CPU)
        return len(after.shapes - before.shapes)

    monkeypatch.setattr(optimization, "fast_dtype", lambda device: torch.bfloat16)
    padded = new_shapes()
    monkeypatch.setattr(pretraining, "padded_size", lambda count, device: count)
    exact = new_shapes()
    assert padded < 10 < 40 < exact, (padded, exact)


@pytest.mark.slow
def test_pre_training_learns(
    tiny_config: BertConfig, examples: ExampleMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a few steps the loss falls well below where it began; the log says how, and the model is saved. Fragments of
    memory are released after 50 steps.
    """
    released: list[int] = []
    monkeypatch.setattr(optimization, "release_freed_memory", lambda: released.append(1))
    model = new_model(tiny_config)
    before = evaluate(model, examples, CPU, lengths=(32,), batches=4, tokens=512)[32]
    lines: list[str] = []
    settings = PretrainSettings(steps=80, warmup=5, decay=20, learning_rate=5e-3, tokens=512, lengths={32: 1.0}, seed=1)
    pretrain(
        model,
        examples,
        examples,
        settings,
        tmp_path,
        device=CPU,
        evaluate_every=1000,
        report=lambda done, what="": lines.append(what),
    )
    after = evaluate(model, examples, CPU, lengths=(32,), batches=4, tokens=512)[32]
    assert after["loss"] < before["loss"] - 1.0
    assert after["mlm"] > before["mlm"] + 0.2
    assert not model.training and released == [1]
    log = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in log if "loss" in line] == [20, 40, 60, 80]
    assert [line["step"] for line in log if "held_out" in line] == [80]
    assert log[-2]["loss"] < log[0]["loss"]
    assert lines[0].startswith("matrix products in ") and lines[1].startswith("step 20/80  loss ")
    saved = BertForPreTraining.from_pretrained(tmp_path / "model")
    for name, tensor in saved.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


@pytest.mark.parametrize("whole", [0.0, 0.5])
def test_documents_that_are_left_out_are_counted(whole: float, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Without rows of whole sentences, documents of one sentence are not read, and the run says how many there are."""
    documents = ["The cat sat. The dog ran.", "It was night. It was old.", "A big mat.", "A red door.", "The river."]
    (tmp_path / "a.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    lines: list[str] = []
    launch(
        tmp_path / "a.txt", tmp_path / "run", PretrainSettings(steps=1, tokens=64, lengths={32: 1.0}, mix=Mix(whole)),
        start=str(tiny_model_folder), device="cpu", report=lambda done, what="": lines.append(what),
    )  # fmt: skip
    said = [line for line in lines if line.startswith("3 of 5 documents have a single sentence")]
    assert len(said) == (whole == 0)


def test_held_out_questions_are_the_same_for_all(tiny_config: BertConfig, examples: ExampleMaker) -> None:
    """Asked twice, a model has the same figures, keeps its mode, and every length has its own."""
    model = new_model(tiny_config).train()
    first, second = (evaluate(model, examples, CPU, lengths=(16, 32), batches=2, tokens=256) for _ in range(2))
    assert first == second
    assert first.keys() == {16, 32}
    assert model.training
    assert (first[16]["pairs"], first[32]["pairs"]) == (32, 16)
    assert 0 <= first[32]["mlm"] <= 1 and first[32]["masked"] > 20


class Stopping(ExampleMaker):
    """Draws some batches and is then interrupted."""

    def __init__(self, examples: ExampleMaker, after: int) -> None:
        self.__dict__.update(examples.__dict__)
        self.left = after

    def batch(self, size: int, length: int, rng: np.random.Generator) -> Batch:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().batch(size, length, rng)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The log of a run, without the times that no two runs share."""
    lines = [json.loads(line) for line in (folder / LOG_FILE).read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name != "tokens_per_s"} for line in lines]


@pytest.mark.parametrize("moment", ["batch", "update", "report", "held-out text", "last held-out text"])
def test_an_interrupted_run_loses_no_step(
    moment: str, tiny_config: BertConfig, examples: ExampleMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever Ctrl-C comes, the state of the last update is saved: the resumed run draws the other batches alone, logs
    every step and evaluation once, and its log and weights are those of a run that was never stopped.
    """
    settings = PretrainSettings(**{**vars(SETTINGS), "steps": 44, "optimizer": "muon", "average": 0.9})

    def run(folder: str, maker: ExampleMaker, held_out: ExampleMaker, report: Any = silent) -> BertForPreTraining:
        return pretrain(
            new_model(tiny_config), maker, held_out, settings, tmp_path / folder,
            device=CPU, save_every=1e6, evaluate_every=10, report=report,
        )  # fmt: skip

    def interrupt(done: float | None, what: str = "") -> None:
        if what.startswith("step 20/"):
            raise KeyboardInterrupt

    whole = run("whole", examples, examples)
    stopped_at = {"batch": 23, "update": 23, "report": 20, "held-out text": 20, "last held-out text": 44}[moment]
    updates = itertools.count(1)

    def interrupted_update(*arguments: Any) -> None:
        if next(updates) == stopped_at:
            signal.raise_signal(signal.SIGINT)
        optimization.apply_gradients(*arguments)

    maker = Stopping(examples, stopped_at) if moment == "batch" else examples
    evaluations = {"held-out text": 16 + 8, "last held-out text": 4 * 16 + 3}.get(moment, 1000)
    with monkeypatch.context() as patched:
        if moment == "update":
            patched.setattr(runs, "apply_gradients", interrupted_update)
        with pytest.raises(KeyboardInterrupt):
            run("broken", maker, Stopping(examples, evaluations), interrupt if moment == "report" else silent)
    counted = Stopping(examples, 1000)
    resumed = run("broken", counted, examples)
    assert 1000 - counted.left == settings.steps - stopped_at
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    assert lines_of(tmp_path / "broken") == lines_of(tmp_path / "whole")
    assert [line["step"] for line in lines_of(tmp_path / "whole")] == [10, 20, 20, 30, 40, 40, 44, 44]


def test_a_killed_run_logs_each_step_once(tiny_config: BertConfig, examples: ExampleMaker, tmp_path: Path) -> None:
    """Where nothing could be saved the log is cut to the state that is there, or to nothing, and logged anew."""
    finished(new_model(tiny_config), examples, tmp_path / "whole", steps=44)
    for saved_at in (21, 0):
        folder = tmp_path / f"killed-{saved_at}"
        with pytest.raises(KeyboardInterrupt):
            finished(new_model(tiny_config), Stopping(examples, saved_at or 1), folder, steps=44)
        with (folder / LOG_FILE).open("a", encoding="utf-8") as log:  # steps that are not in the state
            log.write('{"step": 40, "rate": 0.1, "loss": 1.0}\n{"step": 40, "held_out": {}}\n{"step": 4')
        if not saved_at:
            (folder / STATE_FILE).unlink()
        finished(new_model(tiny_config), examples, folder, steps=44)
        assert lines_of(folder) == lines_of(tmp_path / "whole")


def test_an_update_that_fails_is_not_saved(
    tiny_config: BertConfig, examples: ExampleMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights in the middle of an update are of no step: the state before stays, and the error is raised."""
    whole = finished(new_model(tiny_config), examples, tmp_path / "whole")
    updates = itertools.count(1)

    def failing_update(optimizer: torch.optim.Optimizer, parameters: Any, rate: float) -> None:
        optimization.apply_gradients(optimizer, parameters, rate)
        if next(updates) == 5:
            raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(runs, "apply_gradients", failing_update)
        with pytest.raises(RuntimeError, match="out of memory"):
            finished(new_model(tiny_config), examples, tmp_path / "broken")
    resumed = finished(new_model(tiny_config), examples, tmp_path / "broken")
    assert torch.equal(whole.bert.pooler.dense.weight, resumed.bert.pooler.dense.weight)


def finished(model: BertForPreTraining, examples: ExampleMaker, folder: Path, **changes: Any) -> BertForPreTraining:
    settings = PretrainSettings(**{**vars(SETTINGS), **changes})
    return pretrain(model, examples, None, settings, folder, device=CPU, save_every=-1.0, report=silent)


def test_a_model_without_segments_is_trained(tiny_config: BertConfig, examples: ExampleMaker, tmp_path: Path) -> None:
    """A model that has no segments is given none; the table of distances of all layers moves and stays one."""
    model = new_model(tiny_config.replace(type_vocab_size=0, position_embedding_type="relative_bias"))
    before = model.attention_modules[0].get_submodule("relative_attention_bias").weight.detach().clone()
    finished(model, examples, tmp_path / "run")
    again = BertForPreTraining.from_pretrained(tmp_path / "run" / "model")
    tables = [module.get_submodule("relative_attention_bias").weight for module in again.attention_modules]
    assert all(table is tables[0] for table in tables) and not torch.equal(tables[0], before)


@pytest.mark.parametrize("changes", [{}, {"optimizer": "muon", "average": 0.9}])
def test_an_interrupted_run_ends_with_the_same_bits(
    changes: dict[str, Any], tiny_config: BertConfig, examples: ExampleMaker, tmp_path: Path
) -> None:
    """Stopped twice and resumed, a run with dropout gives the uninterrupted weights."""
    assert tiny_config.hidden_dropout_prob > 0
    whole = finished(new_model(tiny_config), examples, tmp_path / "whole", **changes)
    broken = tmp_path / "broken"
    for after in (7, 9):
        with pytest.raises(KeyboardInterrupt):
            finished(new_model(tiny_config), Stopping(examples, after), broken, **changes)
    assert not (broken / "model").exists()
    resumed = finished(new_model(tiny_config), Stopping(examples, 24 - 7 - 9), broken, **changes)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    assert not torch.equal(whole.bert.pooler.dense.weight, new_model(tiny_config).bert.pooler.dense.weight)


def test_a_finished_run_is_not_run_again(tiny_config: BertConfig, examples: ExampleMaker, tmp_path: Path) -> None:
    """Called again, it gives the finished weights without drawing a batch."""
    first = finished(new_model(tiny_config), examples, tmp_path)
    again = finished(new_model(tiny_config), Stopping(examples, 0), tmp_path)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"learning_rate": 1e-3}, "learning_rate"),
        ({"seed": 5}, "seed"),
        ({"tokens": 512}, "tokens"),
        ({"lengths": {16: 1.0}}, "lengths"),
        ({"masking": MaskingRule(rate=0.3)}, "masking"),
        ({"mix": Mix(near=0.5)}, "mix"),
        ({"optimizer": "muon"}, "optimizer"),
    ],
)
def test_other_settings_are_refused(
    changes: dict[str, Any], name: str, tiny_config: BertConfig, examples: ExampleMaker, tmp_path: Path
) -> None:
    """A folder with a run of other settings is not continued, and the sentence names what differs."""
    with pytest.raises(KeyboardInterrupt):
        finished(new_model(tiny_config), Stopping(examples, 2), tmp_path)
    with pytest.raises(
        ValueError, match=rf"holds a run with other settings \({name}.*\): use the same settings, or choose another"
    ):
        finished(new_model(tiny_config), examples, tmp_path, **changes)


@pytest.mark.parametrize("changed", ["weights", "configuration", "text", "held-out text", "tokenizer"])
def test_another_start_or_text_is_refused(
    changed: str, tiny_config: BertConfig, tiny_model_folder: Path, examples: ExampleMaker, tokenizer: Tokenizer,
    text: Path, tmp_path: Path,
) -> None:  # fmt: skip
    """A run is not continued with one other weight, another dropout, or texts or a tokenizer that are not its own."""
    folder, model, held_out = tmp_path / "run", new_model(tiny_config), None
    with pytest.raises(KeyboardInterrupt):
        finished(model, Stopping(examples, 2), folder)
    model = new_model(tiny_config)
    other = tmp_path / "other.txt"
    other.write_text(text.read_text(encoding="utf-8") + "\nOne more. And another.\n", encoding="utf-8")
    corpus = Corpus.prepare(other, tokenizer, tmp_path / "cache")
    if changed == "weights":
        with torch.no_grad():
            model.bert.encoder.layer[1].output.dense.bias[3] += 1e-6
    elif changed == "configuration":
        model.config = tiny_config.replace(hidden_dropout_prob=0.3)
    elif changed == "tokenizer":
        (tmp_path / "vocab.txt").write_bytes((tiny_model_folder / "vocab.txt").read_bytes())
        (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}', encoding="utf-8")
        examples = ExampleMaker(examples.corpus, Tokenizer.from_folder(tmp_path), examples.masking)
    elif changed == "text":
        examples = ExampleMaker(corpus, tokenizer, examples.masking)
    else:
        held_out = ExampleMaker(corpus, tokenizer, examples.masking)
    state = (folder / STATE_FILE).read_bytes()
    with pytest.raises(ValueError, match=rf"holds a run with other settings \({changed}"):
        pretrain(model, examples, held_out, SETTINGS, folder, device=CPU, report=silent)
    assert (folder / STATE_FILE).read_bytes() == state


def test_a_run_can_be_lengthened_while_its_rate_is_constant(
    tiny_config: BertConfig, examples: ExampleMaker, tmp_path: Path
) -> None:
    """Before the rate falls, more steps make the run that was that long from the start; afterwards they are refused."""
    long = finished(new_model(tiny_config), examples, tmp_path / "long", steps=30)
    with pytest.raises(KeyboardInterrupt):
        finished(new_model(tiny_config), Stopping(examples, 10), tmp_path / "short")
    lengthened = finished(new_model(tiny_config), examples, tmp_path / "short", steps=30)
    for name, tensor in long.state_dict().items():
        assert torch.equal(tensor, lengthened.state_dict()[name]), name
    with pytest.raises(
        ValueError, match="is at step 30, where its learning rate is already falling: it must end at 30 steps"
    ):
        finished(new_model(tiny_config), examples, tmp_path / "short", steps=40)


def test_a_state_is_saved_whole_or_not_at_all(
    tiny_config: BertConfig, examples: ExampleMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When saving stops half-way, the state before it is still there and goes on to the same weights."""
    whole = finished(new_model(tiny_config), examples, tmp_path / "whole")
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        finished(new_model(tiny_config), Stopping(examples, 5), folder)
    before = (folder / STATE_FILE).read_bytes()

    def fails(state: object, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", fails)
        with pytest.raises(OSError, match="no space left"):
            finished(new_model(tiny_config), examples, folder)
    assert (folder / STATE_FILE).read_bytes() == before
    assert [path.name for path in folder.iterdir() if path.name != LOG_FILE] == [STATE_FILE]
    resumed = finished(new_model(tiny_config), examples, folder)
    assert torch.equal(whole.bert.pooler.dense.weight, resumed.bert.pooler.dense.weight)


WORKER = """
import hashlib, sys, time
from contextlib import suppress
from pathlib import Path
import torch
from bert_core import BertForPreTraining, Tokenizer
from bert_core.training.data import Corpus, ExampleMaker
from bert_core.training.settings import MaskingRule
from bert_core.training.pretrain import pretrain
from bert_core.training.settings import PretrainSettings
torch.set_num_threads(1)
model_folder, text, cache, out, rank = sys.argv[1:]
tokenizer = Tokenizer.from_folder(model_folder)
examples = ExampleMaker(Corpus.prepare(Path(text), tokenizer, Path(cache)), tokenizer, MaskingRule(rate=0.2))
settings = PretrainSettings(steps=3, warmup=1, decay=1, tokens=256, lengths={32: 1.0})
model = BertForPreTraining.from_pretrained(model_folder)
pretrain(model, examples, None, settings, Path(out), device=torch.device("cpu"))
digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in model.state_dict().values())).hexdigest()
Path(out, f"digest-{rank}").write_text(digest)
torch.distributed.destroy_process_group()
def threads():
    for name in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # a thread that ended meanwhile
            yield name.read_text()
deadline = time.monotonic() + 10  # the system takes ended threads off its list a little later
while left := [name for name in threads() if "gloo" in name]:
    assert time.monotonic() < deadline, f"threads that outlived the group: {left}"
"""


def test_two_workers_end_with_one_model(
    tiny_model_folder: Path, text: Path, tokenizer: Tokenizer, examples: ExampleMaker, tmp_path: Path
) -> None:
    """Two processes, each with batches of its own, average their gradients: equal weights, saved once.

    No thread of the group outlives it: one that meets the interpreter's end aborts the process.
    """
    Corpus.prepare(text, tokenizer, tmp_path / "cache")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    arguments = [str(tiny_model_folder), str(text), str(tmp_path / "cache"), str(tmp_path)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, *arguments, rank],
            env={**os.environ, **group, "RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ("0", "1")
    ]
    said = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said
    assert "step 3/3" in said[0] and "step 3/3" not in said[1]
    assert (tmp_path / "digest-0").read_text() == (tmp_path / "digest-1").read_text()
    together = BertForPreTraining.from_pretrained(tmp_path / "model")
    settings = PretrainSettings(steps=3, warmup=1, decay=1, tokens=256, lengths={32: 1.0})
    alone = BertForPreTraining.from_pretrained(tiny_model_folder)
    pretrain(alone, examples, None, settings, tmp_path / "alone", device=CPU, report=silent)
    assert not torch.equal(together.bert.pooler.dense.weight, alone.bert.pooler.dense.weight)
