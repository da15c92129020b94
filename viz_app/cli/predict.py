"""Commands that print what the task heads of a model predict of a text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Arrows, Device, ModelName, additions, encode, load, note, with_cuts

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.records import ModelRun
    from bert_core.task_heads import TaskHead


def predict(
    text: Annotated[str, typer.Argument(help="A text, with a [MASK] where a word is to be guessed.")],
    pair: Annotated[
        str | None, typer.Option(help="A second text: does it follow, or where in it is the answer?")
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this trained head of the model; may be given again."),
    ] = None,
    model: ModelName = "headlight-mini",
    top_k: Annotated[int, typer.Option(min=1, help="How many pieces for each [MASK], classes or answers.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object, with the rows of each head.")] = False,
    cut: Arrows = "",
    device: Device = "auto",
) -> None:
    """What every trained head of a model predicts: pieces at each [MASK], classes, tags, an answer, what follows."""
    import bert_core
    from bert_core.task_heads import TASK_HEADS

    loaded = load(model, device)
    encoding = encode(loaded, text, pair)
    heads = _chosen(loaded, head or ())
    cannot_guess = bool(encoding.mask_positions) and not head and not loaded.has_head("words")
    run = bert_core.capture(with_cuts(loaded, cut), encoding, top_k=top_k)
    readouts = {task_head.name: task_head.readouts(loaded, run, top_k) for task_head in heads}
    silent = [name for name, of_head in readouts.items() if not of_head]
    if cannot_guess and len(silent) == len(heads):
        loaded.require_head("words", "it cannot guess words")
    if len(silent) == len(heads) or (head and silent):
        ways = additions(encoding, heads) or [f"its trained heads are {', '.join(readouts) or 'none'}"]
        named = f" with the head {', '.join(silent)}" if head else ""
        raise Refused(f"{loaded.name} predicts nothing of this text{named}: {' or '.join(ways)}")
    if cannot_guess:
        note(f"{loaded.name} {TASK_HEADS['words'].missing_reason(loaded)}: it cannot guess words")
    if as_json:
        given = {name: [readout._asdict() for readout in of_head] for name, of_head in readouts.items() if of_head}
        typer.echo(json.dumps(given, ensure_ascii=False))
        return
    for task_head in heads:
        if task_head.name not in silent:
            typer.echo("\n".join(_lines(task_head, loaded, run, top_k)))


def nsp(
    first: Annotated[str, typer.Argument(metavar="A", help="The first text.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The text that may follow it.")],
    model: ModelName = "headlight-mini",
    cut: Arrows = "",
    device: Device = "auto",
) -> None:
    """Whether the second text follows the first."""
    if not second.strip():
        raise Refused("there is no second text: type at least one word")
    loaded = load(model, device)
    run = _run_for("next", "it cannot say what follows", loaded, first, second, cut)
    typer.echo("\n".join(_verdict(loaded, run)))


def replaced(
    text: Annotated[str, typer.Argument(help="A text, maybe with a word in it that does not belong there.")],
    pair: Annotated[str | None, typer.Option(help="A second text.")] = None,
    model: ModelName = "headlight-mini",
    cut: Arrows = "",
    device: Device = "auto",
) -> None:
    """How likely each token was put in the place of another: what the discriminator of an ELECTRA says."""
    loaded = load(model, device)
    run = _run_for("detector", "choose the discriminator of an ELECTRA", loaded, text, pair, cut)
    if run.encoding.mask_positions:
        note(f"{model} has never read a {run.encoding.special_tokens.mask}: leave it out for a fair answer")
    typer.echo("\n".join(_tokens(loaded, run)))


def tags(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Texts whose words are to be tagged.")],
    model: Annotated[str, typer.Option(help="A checkpoint folder, or a hub id, of a model that tags words.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, one object a text: its words and spans.")] = False,
    cut: Arrows = "",
    device: Device = "auto",
) -> None:
    """The tag of every word, and the spans that they come to: names, parts of speech."""
    import bert_core

    loaded = load(model, device)
    for number, text in enumerate(texts):
        run = _run_for("tagger", "`headlight finetune` can teach it", loaded, text, None, cut)
        if as_json:
            words, spans = bert_core.tagged_words(run), bert_core.tagged_spans(run)
            listed = [
                {"kind": span.kind, "first": span.first, "last": span.last, "begun": span.has_begin_tag}
                for span in spans
            ]
            given = {"text": text, "words": list(map(asdict, words)), "spans": listed}
            typer.echo(json.dumps(given, ensure_ascii=False))
        else:
            typer.echo("\n".join([*[""] * (number > 0), *_tagged(loaded, run)]))


def _chosen(loaded: LoadedModel, names: Sequence[str]) -> list[TaskHead]:
    """The trained heads with these names, all without any. Raises Refused for a name of none of them."""
    from bert_core.task_heads import trained_heads

    trained = {head.name: head for head in trained_heads(loaded) if head.gives_predictions}
    for name in names:
        if name not in trained:
            known = ", ".join(trained) or "none"
            raise Refused(f"--head is {name!r:.60}: the trained heads of {loaded.name} are {known}")
    return [head for name, head in trained.items() if not names or name in names]


def _run_for(head: str, consequence: str, loaded: LoadedModel, text: str, pair: str | None, cut: str) -> ModelRun:
    """One text in a model that must have a trained head; consequence: the end of the error if it has not."""
    import bert_core

    loaded.require_head(head, consequence)
    return bert_core.capture(with_cuts(loaded, cut), encode(loaded, text, pair), top_k=1)


def _lines(head: TaskHead, loaded: LoadedModel, run: ModelRun, most: int) -> Iterator[str]:
    """The prediction of a head, in its own form or as its readouts. most: rows of each readout."""
    if head.name in _OWN_FORMS:
        yield from _OWN_FORMS[head.name](loaded, run)
        return
    for readout in head.readouts(loaded, run, most):
        yield readout.title
        yield from (f"  {number:.3f}  {name}" for name, number in readout.rows)


def _verdict(loaded: LoadedModel, run: ModelRun) -> Iterator[str]:
    """Whether the second text follows, as a sentence."""
    assert run.nsp is not None  # there is a pair and a head
    yes, no = ("In order", "Swapped") if loaded.predicts_order else ("Yes", "No")
    yield f"{yes if run.nsp >= 0.5 else no}: B follows A with probability {run.nsp:#.2g}"


def _tokens(loaded: LoadedModel, run: ModelRun) -> Iterator[str]:
    """Every typed token, the probability that it was replaced, and whether that is more than one half."""
    assert run.replaced is not None  # there is a detector
    encoding, width = run.encoding, max(map(len, run.encoding.tokens))
    for position, (token, probability) in enumerate(zip(encoding.tokens, run.replaced.tolist(), strict=True)):
        if not encoding.special[position]:
            verdict = "  replaced" if probability >= 0.5 else ""
            yield f"{position:4}  {token:<{width}}  {probability:.3f}{verdict}"


def _tagged(loaded: LoadedModel, run: ModelRun) -> Iterator[str]:
    """Every word with its tag, the probability of that, and the kind of the span that it is in."""
    import bert_core

    words, spans = bert_core.tagged_words(run), bert_core.tagged_spans(run)
    width, tag_width = (max((len(getattr(one, name)) for one in words), default=0) for name in ("text", "label"))
    kinds = {number: span.kind for span in spans for number in range(span.first, span.last + 1)}
    begins = {span.first for span in spans}
    for word in words:
        kind = kinds.get(word.word, "")
        mark = "" if kind in ("", word.label) else f"  {'' if word.word in begins else '… '}{kind}"
        yield f"{word.text:<{width}}  {word.label:<{tag_width}}  {word.probability:.3f}{mark}"


# Presentations that say more than the readouts of a head, by the name of the head.
_OWN_FORMS: dict[str, Callable[[LoadedModel, ModelRun], Iterator[str]]] = {
    "next": _verdict, "detector": _tokens, "tagger": _tagged,
}  # fmt: skip
