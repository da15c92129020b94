"""bert_core/studies/words.py: labels of words in columns, as in CoNLL-2003."""

from __future__ import annotations

from pathlib import Path

import pytest

from bert_core import LabelledSentence, read_labelled_words
from bert_core.studies.words import skipped_comments_note

NAMES = """-DOCSTART- -X- -X- O

# text = U.N. official
U.N. NNP B-NP B-ORG
official NN I-NP O
# NN I-NP O

Anna NNP B-NP B-PER
"""


def written(folder: Path, text: str, name: str = "names.conll") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_columns_are_read_as_they_are_published(tmp_path: Path) -> None:
    """Marks of documents and comments are passed over, a # that is a word is one, and the line is known."""
    found = read_labelled_words(written(tmp_path, NAMES), "last")
    assert found == [
        LabelledSentence("U.N. official #", ((0, 4), (5, 13), (14, 15)), ("B-ORG", "O", "O")),
        LabelledSentence("Anna", ((0, 4),), ("B-PER",)),
    ]
    assert [one.line for one in found] == [4, 8]
    assert read_labelled_words(written(tmp_path, NAMES), "4") == found
    assert read_labelled_words(written(tmp_path, NAMES), "3")[0].labels == ("B-NP", "I-NP", "I-NP")


def test_the_words_may_stand_in_another_column_and_tabs_part_columns(tmp_path: Path) -> None:
    """A word may then hold spaces, and a field may be empty: such a word has no label."""
    text = "1\tNew  York\tB-LOC\n2\tis\t\n\n"
    (one,) = read_labelled_words(written(tmp_path, text), "3", word=2)
    assert one == LabelledSentence("New York is", ((0, 8), (9, 11)), ("B-LOC", None))


@pytest.mark.parametrize(
    ("text", "label", "sentence"),
    [
        ("Anna B-PER\nwent\n", "last", "line 2 of names.conll has 1 column: the word is in column 1 and its label "
         "in the last, so at least 2 are needed"),
        ("Anna B-PER\n", "4", "line 1 of names.conll has 2 columns: the word is in column 1 and its label in "
         "column 4, so at least 4 are needed"),
        ("\n \n", "last", "names.conll has no sentence: each line must have a word and its label, with an empty line "
         "after each sentence"),
        ("-DOCSTART- O\n\n", "last", "names.conll has no sentence: each line must have a word and its label, with an "
         "empty line after each sentence"),
        ("Anna\tB-PER\n\tO\n", "2", "line 2 of names.conll has no word in column 1"),
        ("Anna\t\n", "2", "no word of names.conll has the label '2': its column is empty"),
        ("Anna B-PER\n", "0", "the column of the labels is 0: it must be a whole number of at least 1"),
        ("a O\n" * 10_001, "2", "line 1 of names.conll begins a sentence of more than 10,000 lines: an empty line "
         "ends a sentence"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_columns_is_one_sentence(tmp_path: Path, text: str, label: str, sentence: str) -> None:
    """Fewer columns, no sentences, no words, no labels: each says where, and what is needed."""
    with pytest.raises(ValueError) as error:
        read_labelled_words(written(tmp_path, text), label)
    assert str(error.value) == sentence


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    """One sentence for a file that is not UTF-8."""
    (tmp_path / "old.conll").write_bytes("Müller B-PER\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"^old\.conll is not UTF-8 \(invalid "):
        read_labelled_words(tmp_path / "old.conll", "last")


def test_all_comments_before_a_sentence_are_passed_over(tmp_path: Path) -> None:
    """However many there are, with tabs or spaces between columns; a # that is a word, first or alone, is one."""
    comments = "# newdoc id = d\n# sent_id = d-1\n# text = Anna lives in Bergen .\n"
    tabs = "1\tAnna\tB-PER\t-\tann\n2\tlives\tO\n\n"
    (one,) = read_labelled_words(written(tmp_path, comments + tabs), "3", word=2)
    assert (one.text, one.labels, one.line) == ("Anna lives", ("B-PER", "O"), 4)
    spaces = "# sent_id = 1\n# text = Omar\nOmar B-PER\nleft O\n\n# global.columns = word tag\n\n"
    spaces += "# 1\n#1 O\nis O\n\n#hash O\n"
    found = read_labelled_words(written(tmp_path, spaces), "last")
    assert [one.text for one in found] == ["Omar left", "# #1 is", "#hash"]
    wide = "# sent_id = 1\nAnna NNP B-NP B-PER\n\n# NN I-NP O\nis V B-VP O\n"
    assert [one.text for one in read_labelled_words(written(tmp_path, wide), "4")] == ["Anna", "# is"]


def test_a_comment_has_another_number_of_columns_than_the_words(tmp_path: Path) -> None:
    """It may also stand inside a sentence or after the last one; all of them are counted."""
    text = "# about this file\n# a longer one\nAnna B-PER\n# a remark in the middle\n# O\nleft O\n\n"
    text += "\n# one two\n# two words here\n\nBo B-PER\n#tag\n\n# end of the file\n"
    found = read_labelled_words(written(tmp_path, text), "last")
    assert [(one.text, one.labels, one.comments) for one in found] == [
        ("Anna # left", ("B-PER", "O", "O"), 3), ("Bo", ("B-PER",), 4),
    ]  # fmt: skip
    assert skipped_comments_note(found) == "; 7 lines of comments were left out"
    assert skipped_comments_note(read_labelled_words(written(tmp_path, "Anna B-PER\n"), "last")) == ""
    with_tabs = "#\ta\tb\nAnna\tNNP\tB-PER\n# text = Anna left\nleft\tVBD\tO\n"
    (one,) = read_labelled_words(written(tmp_path, with_tabs), "2")
    assert (one.text, one.labels, one.comments) == ("# Anna left", ("a", "NNP", "VBD"), 1)


def test_comments_of_a_treebank_are_counted(tmp_path: Path) -> None:
    """They stand before the sentences, whose words are read from columns with numbers."""
    tree = "# sent_id = {0}\n# text = Cats\n1\tCats\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    path = written(tmp_path, tree.format(1) + tree.format(2) + "# end of the file\n", "a.conllu")
    assert [one.comments for one in read_labelled_words(path, "upos")] == [2, 3]
