"""bert_core/merges.py: tokenizers of older folders, in files of pieces and merges, beside transformers' own."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers

import bert_core
from bert_core import Tokenizer
from bert_core.loading import HUB_FILES
from tests.core.test_tokenizer import TEXTS
from tests.families import save_byte_files, save_family, save_tweet_pieces, sentences
from tests.near import assert_near


def every_text() -> list[tuple[str, str | None]]:
    """The sentences of ten languages, some as pairs, and the hostile texts, with a RoBERTa's mask."""
    lines = sentences()
    given = [*((line, None) for line in lines), *zip(lines, reversed(lines), strict=True), *TEXTS.values()]
    return [(text.replace("[MASK]", "<mask>"), pair and pair.replace("[MASK]", "<mask>")) for text, pair in given]


def test_pieces_of_bytes_are_those_of_transformers(tmp_path: Path) -> None:
    """Ids, offsets and special tokens of vocab.json with merges.txt; the saved tokenizer.json gives them again."""
    save_byte_files(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    ours, theirs = Tokenizer.from_folder(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    (tmp_path / "saved").mkdir()
    ours.save(tmp_path / "saved", segments=False)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert len(ours) == len(theirs) == len(again)
    for text, pair in every_text():
        wanted, encoding = theirs(text, pair, return_offsets_mapping=True), ours.encode(text, pair)
        assert list(encoding.input_ids) == wanted["input_ids"] == again(text, pair)["input_ids"]
        for (start, end), span in zip(wanted["offset_mapping"], encoding.offsets, strict=True):
            assert end == span[1] and start <= span[0] <= end  # ours without the space before a mask


def test_pieces_of_tweets_are_those_of_transformers(tmp_path: Path) -> None:
    """Ids of vocab.txt with bpe.codes, also where merges stop at a piece that the vocabulary does not have."""
    save_tweet_pieces(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    ours, theirs = Tokenizer.from_folder(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__ == "BertweetTokenizer" and len(ours) == len(theirs)
    assert len(ours.backend.get_vocab()) > len(ours), "no piece is made on the way alone: nothing is tested"
    (tmp_path / "saved").mkdir()
    ours.save(tmp_path / "saved")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    unknown = 0
    for text, pair in every_text():
        encoding = ours.encode(text, pair)
        assert list(encoding.input_ids) == theirs(text, pair)["input_ids"] == again(text, pair)["input_ids"]
        plain = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode_plain([text])[0].tolist() == plain
        unknown += encoding.unknown_count
    assert unknown > 0
    assert ours.decode(ours.encode(sentences()[0]).input_ids) == sentences()[0]


def test_codes_without_counts_are_read_and_saved_with_some(tmp_path: Path) -> None:
    """transformers 5 writes codes that it cannot read; ours of them are read alike by both."""
    save_tweet_pieces(tmp_path)
    counted, codes = Tokenizer.from_folder(tmp_path), (tmp_path / "bpe.codes").read_text(encoding="utf-8")
    (tmp_path / "bpe.codes").write_text(codes.replace(" 1\n", "\n"), encoding="utf-8")
    without = Tokenizer.from_folder(tmp_path)
    without.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, config=transformers.RobertaConfig())
    for line in sentences():
        assert counted.encode(line) == without.encode(line)
        assert theirs(line)["input_ids"] == list(counted.encode(line).input_ids)


def test_a_folder_and_a_zip_of_older_files_load(tmp_path: Path) -> None:
    """Both are asked of the hub, taken out of a .zip, and give the scores of the same folder's tokenizer.json."""
    folder = save_family("roberta", tmp_path / "roberta", cased=True)
    wanted = bert_core.load(folder, device="cpu")
    (folder / "tokenizer.json").unlink()
    save_byte_files(folder)
    with zipfile.ZipFile(tmp_path / "roberta.zip", "w") as archive:
        for file in folder.iterdir():
            assert file.name in HUB_FILES or file.name == "generation_config.json"
            archive.write(file, file.name)
    text = "The old man [MASK] along the river."
    for name in (folder, tmp_path / "roberta.zip"):
        found = bert_core.load(name, device="cpu")
        assert found.tokenizer.encode(text) == wanted.tokenizer.encode(text)
    states = [m.model.bert(inputs_embeds=m.model.bert.embeddings.word_embeddings.weight[None, :9]).last_hidden_state
              for m in (wanted, found)]  # fmt: skip
    assert_near(states[0], states[1], 1e-6)
    assert {"vocab.json", "merges.txt", "vocab.txt", "bpe.codes"} <= set(HUB_FILES)


def _edited(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).write_text(change((folder / name).read_text(encoding="utf-8")), encoding="utf-8")

    return edit


def _vocabulary(change: Callable[[dict[str, int]], dict[str, int]]) -> Callable[[Path], None]:
    return _edited("vocab.json", lambda text: json.dumps(change(json.loads(text))))


@pytest.mark.parametrize(
    ("save", "spoil", "words"),
    [
        (save_byte_files, lambda folder: (folder / "merges.txt").unlink(), "has vocab.json and no merges.txt: the two"),
        (save_byte_files, lambda folder: (folder / "vocab.json").unlink(), "has merges.txt and no vocab.json: the two"),
        (save_tweet_pieces, lambda folder: (folder / "vocab.txt").unlink(), "has bpe.codes and no vocab.txt: the two"),
        (save_byte_files, _edited("merges.txt", lambda text: text + "zq ü\n"), "merges 'zq' and 'ü', and .* no 'zq'"),
        (save_byte_files, _edited("merges.txt", lambda text: text + "alone\n"), "the line 'alone': it must be of two"),
        (save_byte_files, _edited("merges.txt", lambda text: text + "a b c d\n"), "the line 'a b c d': it must be of"),
        (save_byte_files, _vocabulary(lambda pieces: {**pieces, "twice": 3}), "give every piece a number, from 0 on"),
        (save_byte_files, _vocabulary(lambda pieces: {**pieces, "odd": "7"}), "give every piece a number, from 0 on"),
        (save_byte_files, _vocabulary(lambda pieces: {"a": 0, "b": 1}), "they do not belong together"),
        (save_byte_files, _edited("vocab.json", lambda text: text.replace("<mask>", "<musk>")), "has no <mask>: a"),
        (save_byte_files, _edited("vocab.json", lambda text: "[]"), "the tokenizer files in .* are broken"),
        (save_byte_files, _edited("tokenizer_config.json", lambda text: '{"add_prefix_space": 1}'), "add_prefix_space"),
        (save_tweet_pieces, _edited("vocab.txt", lambda text: text + "alone\n"), "the line 'alone': next to bpe.codes"),
        (save_tweet_pieces, _edited("vocab.txt", lambda text: text + "a@@ 1\n"), "each piece must occur once"),
        (save_tweet_pieces, _edited("bpe.codes", lambda text: "a b 1\n"), "produces 1 of the .* longer pieces"),
        (save_tweet_pieces, _edited("bpe.codes", lambda text: text + "a b x\n"), "two pieces, and their count at most"),
        (
            save_tweet_pieces,
            _edited("tokenizer_config.json", lambda text: '{"normalization": true}'),
            "asks for normalization of tweets",
        ),
    ],
)  # fmt: skip
def test_files_that_are_broken_or_disagree_are_one_sentence(
    save: Callable[[Path], object], spoil: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    """Pieces without their merges, merges of no pieces, codes of another vocabulary: each is refused, and says so."""
    save(tmp_path)
    spoil(tmp_path)
    with pytest.raises(bert_core.Refused, match=words):
        Tokenizer.from_folder(tmp_path)


def test_a_model_of_sentencepiece_alone_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Its binary file is not read: the sentence says how to make one that is."""
    (tmp_path / "spiece.model").write_bytes(b"\x0a\x0e")
    with pytest.raises(bert_core.Refused, match="has only the model file of SentencePiece: load it with transformers'"):
        Tokenizer.from_folder(tmp_path)
