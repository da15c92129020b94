"""Sentences with a masked present-tense verb and a known subject, from a treebank, a table, or `bert_core.agreement`.

Source: Linzen 2016 (arXiv:1611.01368) for natural sentences with a present-tense verb and a noun as its subject, and
Goldberg 2019 (arXiv:1901.05287) for masking the verb in BERT and comparing its two forms. As there, "is" and "are" are
left out, because the words after them also show the number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_core.agreement import sentences as agreement_sentences
from bert_core.records import TruthSentence
from bert_core.refused import Refused, validate_arguments
from bert_core.studies.files import Format, identify
from bert_core.studies.rows import read_rows
from bert_core.studies.treebank import TreeSentence, read_treebank
from bert_core.tokenizer import MASK

TABLE_COLUMNS = ("text", "subject", "right", "wrong")
"""Columns of a table of sentences. Further columns `condition` and `group` may follow."""

_IRREGULAR = {"have": "has", "do": "does", "go": "goes", "be": "is"}
_NUMBERS = {"Sing": "singular", "Plur": "plural"}


@validate_arguments
def read_truth_sentences(path: Path) -> tuple[TruthSentence, ...]:
    """Read the sentences of a treebank (CoNLL-U) or of a table.

    A table has the columns `TABLE_COLUMNS`: the text with [MASK] in place of the verb, the subject, the form of the
    verb that belongs there, and the other form. The subject is a word that occurs once, or the number of a word.
    Words are separated by spaces and counted from 0.
    Raises Refused for another format, a row that is not valid, or a file without such a sentence.
    """
    source = identify(path)
    if source.format is Format.TREEBANK:
        trees = read_treebank((line for line, _ in source.lines()), source.name)
        sentences = tuple(sentence for tree in trees for sentence in subject_verb_sentences(tree))
    else:
        sentences = tuple(_table_sentence(fields, path, row) for row, fields, _ in read_rows(path, TABLE_COLUMNS))
    if not sentences:
        raise Refused(f"{path.name} has no present-tense verb with a noun as its subject")
    return sentences


def masked_agreement() -> tuple[TruthSentence, ...]:
    """Return the sentences of `bert_core.agreement`, whose subject is their second word."""
    return tuple(
        TruthSentence(item.text, (word_span(item.text, 1),), item.right, item.wrong, item.condition, f"{item.frame}")
        for item in agreement_sentences()
    )


def word_span(text: str, number: int) -> tuple[int, int]:
    """Return the (start, end) of a word, without a final period. number: of the words separated by spaces, from 0.

    Raises Refused if the word does not exist.
    """
    words = [match.span() for match in re.finditer(r"\S+", text)]
    if not 0 <= number < len(words):
        raise Refused(f"word {number} does not exist in {text!r:.60}: it has words 0 to {len(words) - 1}")
    start, end = words[number]
    return start, start + len(text[start:end].rstrip(".,;:!?")) or end


def _table_sentence(fields: dict[str, str], path: Path, row: int) -> TruthSentence:
    """Return the sentence of a row of a table."""
    text, subject = fields["text"], fields["subject"].strip()
    location = f"row {row} of {path.name}"
    if re.fullmatch(r"\d{1,4}", subject):
        span = word_span(text, int(subject))
    else:
        places = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(subject)}(?!\w)", text)] if subject else []
        if len(places) != 1:
            raise Refused(
                f"{location} has the subject {subject!r:.40} {len(places)} times in its text: "
                "give a word that occurs once, or the number of the word from 0"
            )
        (span,) = places
    try:
        return TruthSentence(
            text, (span,), fields["right"], fields["wrong"], fields.get("condition", ""), fields.get("group", "")
        )
    except Refused as error:
        raise Refused(f"{location}: {error}") from error


def subject_verb_sentences(tree: TreeSentence) -> Iterator[TruthSentence]:
    """Yield one sentence for each present-tense verb of a tree with one noun as its subject, in the same number.

    The condition is "attractor" if a noun of the other number stands between subject and verb, else "no attractor".
    Subjects that are coordinated are left out, because their number is not that of one word.
    """
    if MASK in tree.text:
        return
    features = [dict(part.partition("=")[::2] for part in entry.split("|")) for entry in tree.features]
    for verb, form in enumerate(map(str.lower, tree.words)):
        number = _verb_number(form, tree.lemmas[verb].lower())
        if number is None or not _is_present(tree, verb, features[verb]):
            continue
        subject = _subject(tree, verb)
        if subject is None or _NUMBERS.get(features[subject].get("Number", "")) != number:
            continue
        verb_span, subject_span = tree.spans[verb], tree.spans[subject]
        if verb_span is None or subject_span is None or tree.text[verb_span[1] : verb_span[1] + 1].isalpha():
            continue
        interveners = range(min(verb, subject) + 1, max(verb, subject))
        attractors = [
            word for word in _nouns(tree, interveners) if _NUMBERS.get(features[word].get("Number", "")) != number
        ]
        shift = len(MASK) - (verb_span[1] - verb_span[0]) if subject > verb else 0
        singular, plural = third_person(tree.lemmas[verb].lower()), tree.lemmas[verb].lower()
        yield TruthSentence(
            tree.text[: verb_span[0]] + MASK + tree.text[verb_span[1] :],
            ((subject_span[0] + shift, subject_span[1] + shift),),
            *((singular, plural) if number == "singular" else (plural, singular)),
            "attractor" if attractors else "no attractor",
            f"line {tree.line}",
        )


def third_person(lemma: str) -> str:
    """Return the third person singular of an English verb.

    >>> from bert_core.studies.subject_verb import third_person
    >>> [third_person(lemma) for lemma in ("run", "pass", "carry", "play", "have")]
    ['runs', 'passes', 'carries', 'plays', 'has']
    """
    if lemma in _IRREGULAR:
        return _IRREGULAR[lemma]
    if re.search(r"[^aeiou]y$", lemma):
        return f"{lemma[:-1]}ies"
    return f"{lemma}es" if re.search(r"(s|x|z|ch|sh|o)$", lemma) else f"{lemma}s"


def _verb_number(form: str, lemma: str) -> str | None:
    """Return the number that the form of a verb shows; None for other forms, and for "is" and "are"."""
    if lemma == "be":
        return None
    return "plural" if form == lemma else "singular" if form == third_person(lemma) else None


def _is_present(tree: TreeSentence, verb: int, features: dict[str, str]) -> bool:
    """Return whether a word is a finite verb in the present tense, and no modal verb."""
    if features.get("VerbForm") != "Fin" or features.get("Tense") != "Pres":
        return False
    return tree.tags[verb] == "VERB" or (tree.tags[verb] == "AUX" and tree.lemmas[verb].lower() in ("have", "do"))


def _subject(tree: TreeSentence, verb: int) -> int | None:
    """Return the noun that is the only subject of a verb, or of the verb to which an auxiliary belongs."""
    predicate = tree.heads[verb] if tree.relations[verb].startswith("aux") else verb
    subjects = [
        word for word, head in enumerate(tree.heads)
        if head == predicate and tree.relations[word] in ("nsubj", "nsubj:pass")
    ]  # fmt: skip
    if predicate is None or len(subjects) != 1 or not list(_nouns(tree, subjects)):
        return None
    (subject,) = subjects
    coordinated = any(head == subject and tree.relations[word] == "conj" for word, head in enumerate(tree.heads))
    return None if coordinated else subject


def _nouns(tree: TreeSentence, words: Iterable[int]) -> Iterator[int]:
    """Yield those words that are nouns."""
    return (word for word in words if tree.tags[word] in ("NOUN", "PROPN"))
