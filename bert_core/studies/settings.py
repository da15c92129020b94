"""Settings of studies of files: the defaults, limits and help texts of their options.

This module imports neither torch nor numpy, because the command line makes its options from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from bert_core.deprecation import RenamedAttribute
from bert_core.refused import MAX_SEED, Refused, require_int, require_sequence, short_repr
from bert_core.settings import Option, Settings
from bert_core.studies.rows import Columns
from bert_core.target_kinds import FILE_QUESTIONS, target_questions

MAX_TOKENS = 2**16  # of a text whose tokens are stored by their position


@dataclass(frozen=True)
class ProbeSettings(Settings):
    """Settings of a probing study. To resume a table, all must be equal except `seeds`.

    seeds: number of random splits of the sentences, each with its own control labels.
    held_out: share of the sentences on which the probe is tested, from 0.05 to 0.5.
    words: maximum number of words, of sentences in random order.
    least: minimum number of words of a label. Words with a rarer label are ignored.
    penalty: strength of the L2 regularisation, see `fit_probe`.
    erase: whether the label is also erased, to measure what a new probe and the model predict without it.

    Raises Refused for a value out of range.
    """

    seeds: Annotated[int, Option("Number of random splits into training and test sentences.", 1, 100)] = 3
    held_out: Annotated[float, Option("Share of the sentences on which probes are tested.", 0.05, 0.5)] = 0.2
    words: Annotated[int, Option("Maximum number of words, from sentences in random order.", 100)] = 20_000
    least: Annotated[int, Option("Minimum number of words of a label; rarer labels are left out.", 1)] = 20
    penalty: Annotated[float, Option("Strength of the L2 regularisation.", 1e-6)] = 10.0
    erase: Annotated[bool, Option("Also erase the label, and measure what is still predicted.")] = False


MAX_STRONGEST = 100  # strongest tokens of each neuron that are stored, and whose word pieces are counted


@dataclass(frozen=True)
class NeuronSettings(Settings):
    """Settings of a study of neurons.

    neurons: (layer, neuron) pairs, where (layer, None) means all neurons of a layer. None for all neurons.
    max_length: maximum number of tokens of a text.
    examples: number of example tokens from each tenth of the activations. There are twice as many of the strongest and
        of random tokens.
    window: number of words shown on either side of an example.
    seed: random seed of the sampled tokens.
    columns: columns of a table, without an answer. None for one text per line, or for a treebank.

    Raises Refused for invalid settings.
    """

    neurons: tuple[tuple[int, int | None], ...] | None = None
    max_length: Annotated[int, Option("Maximum number of tokens of a text; the rest is cut off.", 3, MAX_TOKENS)] = 128
    examples: Annotated[
        int, Option("Number of examples from each tenth of a neuron's activations.", 1, MAX_STRONGEST // 2)
    ] = 3
    window: Annotated[int, Option("Number of words on either side of an example.", 0, 1000)] = 8
    seed: Annotated[int, Option("Random seed of the sampled tokens.", 0)] = 0
    columns: Columns | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neurons is not None:
            pairs = [
                require_sequence("a neuron", pair, "two numbers, (layer, neuron)")
                for pair in require_sequence("neurons", self.neurons, "pairs (layer, neuron)")
            ]
            if not pairs or any(len(pair) != 2 for pair in pairs):
                raise Refused(f"neurons are {pairs}: at least one pair (layer, neuron), or None for all")
            neurons = {
                (
                    require_int("the layer of a neuron", layer),
                    None if neuron is None else require_int("a neuron", neuron),
                )
                for layer, neuron in pairs
            }
            in_order = sorted(neurons, key=lambda pair: (pair[0], -1 if pair[1] is None else pair[1]))
            object.__setattr__(self, "neurons", tuple(in_order))
        require_int("seed", self.seed, 0, MAX_SEED)
        if self.columns is not None and not isinstance(self.columns, Columns):
            raise Refused(f"columns are {short_repr(self.columns)}: they must be of type Columns, or None")
        if self.columns is not None and self.columns.answer is not None:
            raise Refused(
                f"columns has the answer {self.columns.answer!r}: a study of neurons needs no column of answers"
            )


@dataclass(frozen=True)
class IndexSettings(Settings):
    """Settings of an index.

    layers: layers whose heads and outputs are stored; None means all. The embeddings are always stored.
    max_length: maximum number of tokens of a sentence, 3 to 65,536.
    Raises Refused for a value out of range.
    """

    layers: tuple[int, ...] | None = None
    max_length: Annotated[
        int, Option("Maximum number of tokens of a sentence; the rest is cut off.", 3, MAX_TOKENS)
    ] = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers is not None:
            layers = {
                require_int("a layer", layer) for layer in require_sequence("layers", self.layers, "layer numbers")
            }
            object.__setattr__(self, "layers", tuple(sorted(layers)))


@dataclass(frozen=True)
class CorpusSettings(Settings):
    """Settings of `measure_heads`: what is measured on every text, and which loss.

    importance: whether to compute the gradient importance, the absolute gradient of the loss of a text with respect to
        the gate of each head.
    ablation: whether to compute the loss without each head.
    max_length: maximum number of tokens of a text, from 3.
    mask_share: share of the tokens of a text that are masked for the loss "words", 0.01 to 0.9.
    seed: with the number of the line, the random seed for the masked tokens and for unrelated second texts.
    loss: key of `FILE_QUESTIONS`. "words" is the loss of randomly masked tokens, "word" that of the word at the [MASK]
        of the text, "class" that of its class. "next" is the next-sentence loss, with half of the second texts drawn
        from elsewhere in the shard. For a question with targets, such as "tag", "span", "replaced" and "similarity",
        the loss is minus the mean value of the targets of a text.
    word: the word at the [MASK] of every text for the loss "word", and the only word that is measured for "tag" and
        "replaced"; empty for none.
    columns: columns of a table; None means one text per line, or an annotated file.
    method, reference: replacement of the output of a head in the ablation, and its reference texts, as for
        `Replacement`.
    tags: label of a file of words with the tags to use, as for `read_labelled_words`; empty for predicted tags.
    target: custom target of every text, whose mean value, negated, is the loss; None for the loss `loss`.
    Raises Refused for an unknown name, a value out of range, or settings that would have no effect.
    """

    importance: bool = True
    ablation: bool = True
    max_length: Annotated[int, Option("Maximum number of tokens of a text; the rest is cut off.", 3)] = 128
    mask_share: Annotated[float, Option("Share of the tokens of a text that are masked.", 0.01, 0.9)] = 0.15
    seed: Annotated[int, Option("Random seed of the masked tokens.", 0)] = 0
    loss: str = "words"
    word: str = ""
    columns: Columns | None = None
    method: str = "zero"
    reference: tuple[str, ...] = ()
    tags: str = ""
    target: Any = None

    def __post_init__(self) -> None:
        from bert_core.run.ablation import REPLACEMENTS
        from bert_core.studies.file_questions import check_custom_target, check_question

        super().__post_init__()
        if self.loss not in FILE_QUESTIONS:
            raise Refused(f"the loss {self.loss!r} is unknown: one of {', '.join(FILE_QUESTIONS)}")
        if self.loss != "words" and not self.needs_loss:
            raise Refused(f"the loss {self.loss!r} has no effect without importance or ablation: choose at least one")
        answer = None if self.columns is None else self.columns.answer
        if self.loss == "class" and answer is None:
            raise Refused("the loss 'class' needs a column of classes")
        if self.loss == "word" and bool(self.word) == (answer is not None):
            raise Refused("the loss 'word' needs either one word for all texts, or a column of words")
        check_question(self.loss, self.columns, self.tags, self.word, label="the loss")
        check_custom_target(self.target, {"loss": self.loss != "words", "column of answers": answer is not None})
        if self.target is not None and not self.needs_loss:
            raise Refused("the target has no effect without importance or ablation: choose at least one")
        if self.loss == "next" and self.columns is not None and self.columns.pair is None:
            raise Refused("the loss 'next' needs a column of second texts")
        if self.method not in REPLACEMENTS:
            raise Refused(f"method {self.method!r} is unknown: one of {', '.join(REPLACEMENTS)}")
        if self.method != "zero" and not self.ablation:
            raise Refused(f"method {self.method!r} has no effect without ablation")
        if (self.method == "zero") == bool(self.reference):
            raise Refused(f"method {self.method!r} needs {'no' if self.reference else 'a'} reference text")

    @property
    def needs_loss(self) -> bool:
        """Whether the settings need a loss."""
        return self.importance or self.ablation

    asks_loss = RenamedAttribute("needs_loss")


@dataclass(frozen=True)
class ExplainSettings(Settings):
    """Settings of `explain_file`: the question that is explained about every text, and the methods.

    asked: key of `FILE_QUESTIONS` whose targets can be explained. The target is the answer that the file holds: in a
        column of answers, in the tags of a file of words, or in a SQuAD `.json` file. Without one, it is the
        prediction of the model.
    methods: names of attribution methods, as for `token_scores`.
    word: for "word", the word at the [MASK] of every text; for "tag" and "replaced", the only word that is explained.
    columns: columns of a table; None means one text per line, or an annotated file.
    max_length: maximum number of tokens of a text, from 3.
    tags: label of a file of words with the tags to explain, as for `read_labelled_words`; empty for predicted tags.
    target: custom target of every text; None for the question `asked`.
    Raises Refused for an unknown name, or settings that do not fit each other.
    """

    asked: str = "class"
    methods: tuple[str, ...] = ("DecompX", "occlusion")
    word: str = ""
    columns: Columns | None = None
    max_length: Annotated[int, Option("Maximum number of tokens of a text; the rest is cut off.", 3)] = 128
    tags: str = ""
    target: Any = None

    def __post_init__(self) -> None:
        from bert_core.methods import method_of
        from bert_core.studies.file_questions import check_custom_target, check_question

        super().__post_init__()
        explainable = [name for name, question in FILE_QUESTIONS.items() if question.explained]
        if not isinstance(self.asked, str) or self.asked not in explainable:
            raise Refused(f"asked {short_repr(self.asked)} is unknown: one of {', '.join(explainable)}")
        object.__setattr__(self, "methods", tuple(require_sequence("methods", self.methods, "names")))
        if not self.methods:
            raise Refused("methods is empty: name at least one method")
        for name in self.methods:
            method_of(name)
        if len(set(self.methods)) < len(self.methods):
            raise Refused(f"the methods {', '.join(self.methods)} are not all different: name each once")
        if not isinstance(self.word, str):
            raise Refused(f"the word is {short_repr(self.word)}: it must be a text")
        if not isinstance(self.columns, Columns | None):
            raise Refused(
                f"the columns are {short_repr(self.columns)}: they must be Columns, or None for one text a line"
            )
        if not isinstance(self.tags, str):
            raise Refused(f"tags is {short_repr(self.tags)}: it must be the label of the tags as a text")
        check_question(self.asked, self.columns, self.tags, self.word)
        is_answered = self.columns is not None and self.columns.answer is not None
        check_custom_target(
            self.target, {"question": self.asked != "class", "word": bool(self.word), "column of answers": is_answered}
        )
        if self.asked == "next" and (self.columns is None or self.columns.pair is None):
            raise Refused("the question 'next' needs a column of second texts")


# Questions of `EvaluationSettings` -> the unit of the loss.
EVALUATION_LOSSES = {
    "class": "nats per text",
    "word": "nats per word",
    "next": "nats per pair",
    "tag": "nats per tag",
    "span": "nats per answer",
    "surprise": "nats per token",
}


@dataclass(frozen=True)
class EvaluationSettings(Settings):
    """Settings of `evaluate_file`: the question whose answer is predicted for every text.

    question: key of `EVALUATION_LOSSES`: a key of `FILE_QUESTIONS`, or "surprise" for the mean surprisal of the tokens
        of a text. The expected answer is that of the file: in a column of answers, in the tags of a file of words, or
        in a SQuAD `.json` file. For "next" it is "follows" or "from elsewhere", and "follows" without a column of
        answers. In other files without answers there is a prediction and no loss.
    word: for "word", the expected word at the [MASK] of every text; for "tag", the only word that is evaluated.
    columns: columns of a table; None means one text per line, or an annotated file.
    max_length: maximum number of tokens of a text, from 3, and at most the number that the model reads.
    tags: label of a file of words with the expected tags, as for `read_labelled_words`; empty for none.
    Raises Refused for an unknown name, or settings that do not fit each other.
    """

    question: str = "class"
    word: str = ""
    columns: Columns | None = None
    max_length: Annotated[int, Option("Maximum number of tokens of a text; the rest is cut off.", 3, MAX_TOKENS)] = 512
    tags: str = ""

    def __post_init__(self) -> None:
        from bert_core.studies.file_questions import check_question

        super().__post_init__()
        if not isinstance(self.question, str) or self.question not in EVALUATION_LOSSES:
            raise Refused(f"question {short_repr(self.question)} is unknown: one of {', '.join(EVALUATION_LOSSES)}")
        if not isinstance(self.columns, Columns | None):
            raise Refused(
                f"the columns are {short_repr(self.columns)}: they must be Columns, or None for one text a line"
            )
        for name in ("word", "tags"):
            if not isinstance(getattr(self, name), str):
                raise Refused(f"{name} is {short_repr(getattr(self, name))}: it must be a text")
        if self.question == "surprise":
            if self.word or self.tags or (self.columns is not None and self.columns.answer is not None):
                raise Refused("the question 'surprise' takes no word, no tags and no answer column")
            return
        columns = self.columns
        if self.question == "next":
            if columns is None or columns.pair is None:
                raise Refused("the question 'next' needs a column of second texts")
            columns = replace(columns, answer=None)  # studies that train or explain take no answers for it
        check_question(self.question, columns, self.tags, self.word)


DEFAULT_KINDS = ("content", "function", "nsp")


def question_kinds() -> tuple[str, ...]:
    """Return the kinds of questions that a study draws from a file."""
    return (*DEFAULT_KINDS, *(name for name in target_questions() if FILE_QUESTIONS[name].faithfulness_kinds))


def _all_methods() -> tuple[str, ...]:
    """Return the names of all attribution methods."""
    from bert_core.methods import METHODS

    return tuple(method.name for method in METHODS)


@dataclass(frozen=True)
class StudySettings(Settings):
    """Settings of `judge_file`; an existing table is resumed only with the same settings, except for `questions`.

    questions: maximum number of questions of each kind.
    kinds: names from `question_kinds()`.
    methods: names of attribution methods; by default all that the model supports.
    lengths, pair_lengths: minimum and maximum number of tokens of a sentence, and of a pair of sentences.
    least: minimum probability of the answer, 0 to 1. An answer that the model does not predict leaves little to
        explain, and all measures are near 0.
    words: whether whole words are removed instead of tokens.
    random_rankings: number of random rankings in the baseline band.
    seed: random seed for the sentences, the words and the rankings.
    tags: label of a file of words with the tags to explain; empty for the tags that the model predicts.
    target: custom target of every sentence, instead of the kinds; None for the questions of the kinds. It has no
        probability, so its value is measured instead, and `least` has no effect.
    Raises Refused for an unknown name, a value out of range, or settings that do not fit each other.
    """

    questions: Annotated[int, Option("Maximum number of questions of each kind.", 1)] = 150
    kinds: tuple[str, ...] = DEFAULT_KINDS
    methods: tuple[str, ...] = field(default_factory=_all_methods)
    lengths: tuple[int, int] = (10, 24)
    pair_lengths: tuple[int, int] = (16, 40)
    least: Annotated[float, Option("Minimum probability of the answer.", 0, 1)] = 0.1
    words: bool = True
    random_rankings: Annotated[int, Option("Number of random rankings in the baseline band.", 1)] = 100
    seed: Annotated[int, Option("Random seed of the sentences, words and rankings.", 0)] = 0
    tags: Annotated[str, Option("With the kind tag: the label of a file of words, such as upos or last.")] = ""
    target: Any = None

    def __post_init__(self) -> None:
        from bert_core.methods import method_of
        from bert_core.studies.file_questions import check_custom_target

        super().__post_init__()
        excluded = {"kind of question": tuple(self.kinds) != DEFAULT_KINDS, "label of tags": bool(self.tags)}
        check_custom_target(self.target, excluded)
        for kind in self.kinds:
            if kind not in question_kinds():
                raise Refused(f"kind {kind!r} is unknown: one of {', '.join(question_kinds())}")
        if not self.kinds or not self.methods:
            raise Refused("there is nothing to judge: name at least one kind of question and one method")
        if self.tags and "tag" not in self.kinds:
            raise Refused(f"the label of tags {self.tags!r:.60} needs the kind 'tag', which is not among the kinds")
        if (self.tags or "span" in self.kinds) and len(self.kinds) > 1:
            raise Refused("a file with annotated tags or answers allows no other kind: name only 'tag' or 'span'")
        for name in self.methods:
            method_of(name)
        limits = (("lengths", 4, self.lengths), ("pair_lengths", 6, self.pair_lengths))
        for name, minimum, (shortest, longest) in limits:
            if not minimum <= shortest <= longest:
                raise Refused(
                    f"{name} is {shortest} to {longest} tokens: give the minimum, from {minimum}, before the maximum"
                )


@dataclass(frozen=True)
class GroundTruthSettings(Settings):
    """Settings of `judge_ground_truth`; an existing table is resumed only with the same settings, except `sentences`.

    sentences: maximum number of sentences that the model answers correctly.
    methods: names of attribution methods; empty for all that the model supports.
    max_length: maximum number of tokens of a sentence; longer ones are skipped.
    special_tokens: whether [CLS], [SEP] and the masked word are ranked too. They are never relevant.
    seed: random seed of the order of the sentences.
    Raises Refused for an unknown method, or a value out of range.
    """

    sentences: Annotated[int, Option("Maximum number of sentences that the model answers correctly.", 1)] = 500
    methods: tuple[str, ...] = ()
    max_length: Annotated[int, Option("Maximum number of tokens of a sentence; longer ones are skipped.", 4)] = 64
    special_tokens: Annotated[bool, Option("Also rank [CLS], [SEP] and the masked word.")] = False
    seed: Annotated[int, Option("Random seed of the order of the sentences.", 0, MAX_SEED)] = 0

    def __post_init__(self) -> None:
        from bert_core.methods import method_of

        super().__post_init__()
        object.__setattr__(self, "methods", tuple(require_sequence("methods", self.methods, "names")))
        for name in self.methods:
            method_of(name)
        if len(set(self.methods)) < len(self.methods):
            raise Refused(f"the methods {', '.join(self.methods)} are not all different: name each once")
