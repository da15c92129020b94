"""Commands that print the predictions of the task heads of a model for a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.shared import option
from viz_app.cli.tables import print_json

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import ModelRun
    from bert_core.task_heads import TaskHead


def predict(
    text: Annotated[str, typer.Argument(help="A text, with a [MASK] where a word is to be guessed.")],
    pair: Annotated[str | None, option("A second text: does it follow, or where in it is the answer?")] = None,
    head: Annotated[
        list[str] | None, option("Only this trained head of the model; may be given again.", metavar="NAME")
    ] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    top_k: Annotated[int, option("How many pieces for each [MASK], classes or answers.", min=1)] = 5,
    as_json: Annotated[bool, option("As one JSON object, with the rows of each head.", "--json")] = False,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """What every trained head of a model predicts: pieces at each [MASK], classes, tags, an answer, what follows."""
    import bert_core
    from bert_core.task_heads import TASK_HEADS

    loaded = shared.load(model, device)
    encoding = shared.encode(loaded, text, pair)
    heads = _trained_heads(loaded, head or ())
    lacks_word_head = bool(encoding.mask_positions) and not head and not loaded.has_head("words")
    run = bert_core.capture(shared.with_cuts(loaded, cut), encoding, top_k=top_k)
    readouts = {task_head.name: task_head.readouts(loaded, run, top_k) for task_head in heads}
    silent = [name for name, head_readouts in readouts.items() if not head_readouts]
    if lacks_word_head and len(silent) == len(heads):
        loaded.require_head("words", "it cannot guess words")
    if len(silent) == len(heads) or (head and silent):
        advice = shared.additions(encoding, heads) or [f"its trained heads are {', '.join(readouts) or 'none'}"]
        with_head = f" with the head {', '.join(silent)}" if head else ""
        raise Refused(f"{loaded.name} predicts nothing of this text{with_head}: {' or '.join(advice)}")
    if lacks_word_head:
        shared.note(f"{loaded.name} {TASK_HEADS['words'].missing_reason(loaded)}: it cannot guess words")
    if as_json:
        print_json(
            {
                name: [readout._asdict() for readout in head_readouts]
                for name, head_readouts in readouts.items()
                if head_readouts
            }
        )
        return
    for task_head in heads:
        if task_head.name not in silent:
            typer.echo("\n".join(_head_lines(task_head, loaded, run, top_k)))


def nsp(
    first: Annotated[str, typer.Argument(metavar="A", help="The first text.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The text that may follow it.")],
    model: shared.ModelName = shared.DEFAULT_MODEL,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """Whether the second text follows the first."""
    if not second.strip():
        raise Refused("there is no second text: type at least one word")
    loaded = shared.load(model, device)
    run = _run_for("next", "it cannot say what follows", loaded, first, second, cut)
    typer.echo("\n".join(_next_lines(loaded, run)))


def replaced(
    text: Annotated[str, typer.Argument(help="A text, maybe with a word in it that does not belong there.")],
    pair: Annotated[str | None, option("A second text.")] = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """How likely each token was put in the place of another: what the discriminator of an ELECTRA says."""
    loaded = shared.load(model, device)
    run = _run_for("detector", "choose the discriminator of an ELECTRA", loaded, text, pair, cut)
    if run.encoding.mask_positions:
        shared.note(f"{model} has never read a {run.encoding.special_tokens.mask}: leave it out for a fair answer")
    typer.echo("\n".join(_detector_lines(loaded, run)))


def tags(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Texts whose words are to be tagged.")],
    model: Annotated[str, option("A checkpoint folder, or a hub id, of a model that tags words.")],
    as_json: Annotated[bool, option("As JSON, one object a text: its words and spans.", "--json")] = False,
    cut: shared.Cuts = "",
    device: shared.Device = "auto",
) -> None:
    """The tag of every word, and the spans that they come to: names, parts of speech."""
    import bert_core

    loaded = shared.load(model, device)
    for number, text in enumerate(texts):
        run = _run_for("tagger", "`headlight finetune` can teach it", loaded, text, None, cut)
        if as_json:
            words, spans = bert_core.tagged_words(run), bert_core.tagged_spans(run)
            span_values = [
                {"kind": span.kind, "first": span.first, "last": span.last, "begun": span.has_begin_tag}
                for span in spans
            ]
            print_json({"text": text, "words": list(map(asdict, words)), "spans": span_values})
        else:
            typer.echo("\n".join([*[""] * (number > 0), *_tag_lines(loaded, run)]))


def _trained_heads(loaded: LoadedModel, names: Sequence[str]) -> list[TaskHead]:
    """Return the trained heads with given names; all if there are none. Raises Refused for an unknown name."""
    from bert_core.task_heads import trained_heads

    trained = {head.name: head for head in trained_heads(loaded) if head.gives_predictions}
    for name in names:
        if name not in trained:
            raise Refused(
                f"--head is {name!r:.60}: the trained heads of {loaded.name} are {', '.join(trained) or 'none'}"
            )
    return [head for name, head in trained.items() if not names or name in names]


def _run_for(head: str, consequence: str, loaded: LoadedModel, text: str, pair: str | None, cut: str) -> ModelRun:
    """Return the run of one text in a model that must have a trained head.

    head: name of the head. consequence: the end of the message if the model does not have it.
    """
    import bert_core

    loaded.require_head(head, consequence)
    return bert_core.capture(shared.with_cuts(loaded, cut), shared.encode(loaded, text, pair), top_k=1)


def _head_lines(head: TaskHead, loaded: LoadedModel, run: ModelRun, max_rows: int) -> Iterator[str]:
    """Yield the prediction of a head, in its own form or as its readouts. max_rows: rows of each readout."""
    if head.name in _OWN_FORMS:
        yield from _OWN_FORMS[head.name](loaded, run)
        return
    for readout in head.readouts(loaded, run, max_rows):
        yield readout.title
        yield from (f"  {number:.3f}  {name}" for name, number in readout.rows)


def _next_lines(loaded: LoadedModel, run: ModelRun) -> Iterator[str]:
    """Yield a sentence about whether the second text follows."""
    assert run.nsp is not None  # there is a pair and a head
    yes, no = ("In order", "Swapped") if loaded.predicts_order else ("Yes", "No")
    yield f"{yes if run.nsp >= 0.5 else no}: B follows A with probability {run.nsp:#.2g}"


def _detector_lines(loaded: LoadedModel, run: ModelRun) -> Iterator[str]:
    """Yield each typed token with the probability that it was replaced, marked from one half."""
    assert run.replaced is not None  # there is a detector
    encoding, width = run.encoding, max(map(len, run.encoding.tokens))
    for position, (token, probability) in enumerate(zip(encoding.tokens, run.replaced.tolist(), strict=True)):
        if not encoding.special[position]:
            verdict = "  replaced" if probability >= 0.5 else ""
            yield f"{position:4}  {token:<{width}}  {probability:.3f}{verdict}"


def _tag_lines(loaded: LoadedModel, run: ModelRun) -> Iterator[str]:
    """Yield each word with its tag, its probability, and the kind of its span."""
    import bert_core

    words, spans = bert_core.tagged_words(run), bert_core.tagged_spans(run)
    width, tag_width = (max((len(getattr(word, name)) for word in words), default=0) for name in ("text", "label"))
    kinds = {number: span.kind for span in spans for number in range(span.first, span.last + 1)}
    first_words = {span.first for span in spans}
    for word in words:
        kind = kinds.get(word.word, "")
        mark = "" if kind in ("", word.label) else f"  {'' if word.word in first_words else '… '}{kind}"
        yield f"{word.text:<{width}}  {word.label:<{tag_width}}  {word.probability:.3f}{mark}"


# Head -> a presentation with more details than its readouts.
_OWN_FORMS: dict[str, Callable[[LoadedModel, ModelRun], Iterator[str]]] = {
    "next": _next_lines,
    "detector": _detector_lines,
    "tagger": _tag_lines,
}
