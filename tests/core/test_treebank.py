"""CoNLL-U: what is read of it, and how a broken file is refused."""

from __future__ import annotations

import pytest

from bert_core.studies.treebank import read_treebank


def row(identity: object, form: str, head: object = 0, relation: str = "root", misc: str = "_") -> str:
    """One line of CoNLL-U."""
    return "\t".join([str(identity), form, *"_" * 4, str(head), relation, "_", misc])


# Written for this test: a comment, two words written as one, an empty node, and no space before the full stop.
SENTENCES = [
    "# text = The cat didn't sleep.",
    row(1, "The", 2, "det"),
    row(2, "cat", 5, "nsubj"),
    row("3-4", "didn't", "_", "_"),
    row(3, "did", 5, "aux"),
    row(4, "n't", 5, "advmod"),
    row(5, "sleep", 0, "root", "SpaceAfter=No"),
    row("5.1", "sleep", "_", "_"),
    row(6, ".", 5, "punct"),
    "",
    "",
    row("1-2", "du", "_", "_"),
    row(1, "de", 3, "case"),
    row(2, "le", 3, "det"),
    row(3, "roi", 0, "root"),
]


def test_words_spans_and_trees() -> None:
    """Comments and empty nodes are passed over; words written together have their own part of it, or share none."""
    first, second = read_treebank(SENTENCES, "a.conllu")
    assert first.text.strip() == "The cat didn't sleep."
    assert first.words == ("The", "cat", "did", "n't", "sleep", ".")
    assert first.heads == (1, 4, 4, 4, None, 4)
    assert first.relations == ("det", "nsubj", "aux", "advmod", "root", "punct")
    spans = [span for span in first.spans if span is not None]
    assert tuple(first.text[start:end] for start, end in spans) == first.words
    assert (first.line, second.line) == (2, 12)
    assert (first.comments, second.comments) == (1, sum(line.startswith("#") for line in SENTENCES) - 1)
    assert second.text.strip() == "du roi" and second.spans == ((0, 2), None, (3, 6))


def test_line_ends_and_a_byte_order_mark() -> None:
    """A file of another system reads the same."""
    there = list(read_treebank([f"{line}\r\n" for line in ["\ufeff" + SENTENCES[0], *SENTENCES[1:]]], "a.conllu"))
    assert there == list(read_treebank(SENTENCES, "a.conllu"))


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "the file a.conllu contains no sentence: CoNLL-U has one word per line, in 10 columns separated by tabs"),
        (["# only a comment", ""], "the file a.conllu contains no sentence"),
        (
            [row(1, "a"), "# a comment", row(2, "b")],
            "line 2 of a.conllu starts with # inside a sentence: in CoNLL-U comments come before the first word",
        ),
        (["1 The the DET"], "line 1 of a.conllu has 1 columns: CoNLL-U has 10, separated by tabs"),
        ([row(1, "a"), row(3, "b")], "line 2 of a.conllu is word 3, and word 2 comes next"),
        ([row("x", "a")], "line 1 of a.conllu begins with 'x': it must begin with a number such as 7, 7-8 or 7.1"),
        (
            [row(1, "a", 2)],
            "line 1 of a.conllu has the head '2': a head must be 0 for the root, or the number of a word from 1 to 1",
        ),
        (
            [row(1, "a", "_")],
            "line 1 of a.conllu has the head '_': a head must be 0 for the root, or the number of a word from 1 to 1",
        ),
        ([row(1, "")], "line 1 of a.conllu has no word in its second column"),
        ([row("1-2", "ab"), row(1, "a")], "the sentence at line 1 of a.conllu ends before word 2"),
        ([row("2-3", "ab"), row(1, "a")], "line 1 of a.conllu is for words 2-3, and word 1 comes next"),
        ([row("1.1", "a")], "the sentence at line 1 of a.conllu ends before word 1"),
    ],
)
def test_a_broken_file_is_one_clear_sentence(lines: list[str], sentence: str) -> None:
    """It names the line, what stands there, and what may."""
    with pytest.raises(ValueError) as caught:
        list(read_treebank(lines, "a.conllu"))
    assert str(caught.value).startswith(sentence)


def test_a_file_without_empty_lines_does_not_fill_the_memory() -> None:
    """A sentence of ten thousand lines is none."""
    with pytest.raises(ValueError, match="begins a sentence of more than 10,000 lines: an empty line ends a sentence"):
        list(read_treebank((row(n, "a") for n in range(1, 20_000)), "a.conllu"))


def test_what_comes_before_a_mistake_can_be_read() -> None:
    """Sentences come one at a time, so a file of any size can be read."""
    reading = read_treebank([*SENTENCES, "", "nonsense"], "a.conllu")
    assert next(reading).line == 2 and next(reading).line == 12
    with pytest.raises(ValueError, match="line 17 of"):
        next(reading)
