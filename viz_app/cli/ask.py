"""Commands that ask a model about a text."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from bert_core.unknown import current_count
from viz_app.cli.shared import Arrows, Device, ModelName, Notes, PairColumn, TextColumn, encode, load, note, with_cuts

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.analysis.scoring import PairRow
    from bert_core.loading import LoadedModel
    from bert_core.records import ModelRun
    from bert_core.tokenizer import Encoding


def predict(
    text: Annotated[str, typer.Argument(help="A text with at least one [MASK].")],
    pair: Annotated[str | None, typer.Option(help="A second text: does it follow the first?")] = None,
    model: ModelName = "headlight-mini",
    top_k: Annotated[int, typer.Option(min=1, help="How many pieces for each [MASK].")] = 5,
    cut: Arrows = "",
    device: Device = "auto",
) -> None:
    """The likeliest pieces at every [MASK]; does a second text follow; and the classes of a fine-tuned model."""
    loaded = load(model, device)
    encoding = encode(loaded, text, pair)
    if loaded.has_tagger and not (loaded.has_mlm or loaded.has_nsp or loaded.has_classifier):
        raise Refused(f"{model} tags words and guesses none: ask it with `headlight tags`")
    if loaded.has_detector and not (loaded.has_mlm or loaded.has_nsp or loaded.has_classifier):
        raise Refused(f"{model} finds replaced tokens and guesses none: ask it with `headlight replaced`")
    if loaded.has_chooser and not (loaded.has_mlm or loaded.has_nsp):
        raise Refused(f"{model} chooses among answers and guesses no words: ask it with `headlight choose`")
    if not encoding.mask_positions and encoding.pair is None and not loaded.has_classifier:
        raise Refused("there is no [MASK] in the text: put one where a word is to be guessed")
    if encoding.mask_positions and not (loaded.has_mlm or loaded.has_classifier):
        raise Refused(f"{model} has no trained masked-word head: it cannot guess words")
    if encoding.mask_positions and not loaded.has_mlm:
        note(f"{model} has no trained masked-word head: it cannot guess words")
    run = _capture(with_cuts(loaded, cut), encoding, top_k)
    if run.classes is not None:
        numbers = run.classes.logits if run.classes.probabilities is None else run.classes.probabilities
        typer.echo("number" if run.classes.probabilities is None else "class")
        for label in run.classes.order[:top_k]:
            typer.echo(f"  {numbers[label]:.3f}  {run.classes.labels[label]}")
    for prediction in run.predictions:
        typer.echo(f"{encoding.special_tokens.mask} at {prediction.position}")
        for token_id, probability in prediction.top:
            typer.echo(f"  {probability:.3f}  {loaded.tokenizer.token_of(token_id)}")
    if run.nsp is not None:
        typer.echo(_verdict(loaded, run.nsp))


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
    encoding = encode(loaded, first, second)
    if not loaded.has_nsp:
        raise Refused(f"{model} has no trained {loaded.pair_head} head: it cannot say what follows")
    probability = _capture(with_cuts(loaded, cut), encoding, top_k=1).nsp
    assert probability is not None  # there is a pair and a head
    typer.echo(_verdict(loaded, probability))


def replaced(
    text: Annotated[str, typer.Argument(help="A text, maybe with a word in it that does not belong there.")],
    pair: Annotated[str | None, typer.Option(help="A second text.")] = None,
    model: ModelName = "headlight-mini",
    cut: Arrows = "",
    device: Device = "auto",
) -> None:
    """How likely each token was put in the place of another: what the discriminator of an ELECTRA says."""
    loaded = load(model, device)
    encoding = encode(loaded, text, pair)
    if not loaded.has_detector:
        raise Refused(f"{model} has no trained detector of replaced tokens: choose the discriminator of an ELECTRA")
    if encoding.mask_positions:
        note(f"{model} has never read a {encoding.special_tokens.mask}: leave it out for a fair answer")
    shares = _capture(with_cuts(loaded, cut), encoding, top_k=1).replaced
    assert shares is not None  # there is a detector
    width = max(map(len, encoding.tokens))
    for position, token in enumerate(encoding.tokens):
        if not encoding.special[position]:
            share = float(shares[position])
            typer.echo(f"{position:4}  {token:<{width}}  {share:.3f}{'  replaced' if share >= 0.5 else ''}")


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
    if not loaded.has_tagger:
        raise Refused(f"{model} was not trained to tag words: `headlight finetune` can teach it")
    changed = with_cuts(loaded, cut)
    for number, text in enumerate(texts):
        run = _capture(changed, encode(loaded, text, None), top_k=1)
        words, spans = bert_core.tagged_words(run), bert_core.tagged_spans(run)
        if as_json:
            typer.echo(json.dumps(
                {"text": text, "words": [asdict(one) for one in words], "spans": [asdict(one) for one in spans]},
                ensure_ascii=False,
            ))  # fmt: skip
            continue
        if number:
            typer.echo("")
        width = max(len(word.text) for word in words)
        of_tag = max(len(word.label) for word in words)
        kind_of = {place: span.kind for span in spans for place in range(span.first, span.last + 1)}
        begins = {span.first for span in spans}
        for word in words:
            kind = kind_of.get(word.word, "")
            mark = "" if kind in ("", word.label) else f"  {'' if word.word in begins else '… '}{kind}"
            typer.echo(f"{word.text:<{width}}  {word.label:<{of_tag}}  {word.probability:.3f}{mark}")


def score(
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Sentences to compare.")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A file of pairs instead: two sentences a line; gives CSV."),
    ] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    model: ModelName = "headlight-mini",
    within_word: Annotated[
        bool, typer.Option("--within-word", help="Also hide the later pieces of the same word; better for rare words.")
    ] = False,
    pieces: Annotated[bool, typer.Option("--pieces", help="The log-probability of every piece, too.")] = False,
    device: Device = "auto",
) -> None:
    """How likely a masked-word model finds each sentence: pseudo-log-likelihood in nats, and perplexity per piece.

    With --pairs, which of two sentences it believes more, line by line.
    """
    import bert_core

    if bool(texts) == (pairs is not None):
        raise Refused("give either sentences, or --pairs and a file of them")
    variant = "within word" if within_word else "original"
    if pairs is not None:
        if pieces:
            raise Refused("--pieces is for sentences on the command line: --pairs gives the totals of each pair")
        _score_pairs(model, device, _read_pairs(pairs, text, pair), variant)
        return
    if text or pair:
        raise Refused("--text and --pair name the columns of a table: give --pairs")
    loaded = load(model, device)
    for sentence in texts or []:
        encoding = encode(loaded, sentence, None)
        found = bert_core.pseudo_log_likelihood(loaded, encoding, variant=variant, report=Notes())
        typer.echo(f"{found.total:9.3f} nats  perplexity {found.perplexity:8.2f}  {sentence}")
        if pieces:
            for token, likely, added in zip(encoding.tokens, found.log_probabilities, encoding.special, strict=True):
                if not added:
                    typer.echo(f"  {likely:9.3f}  {token}")


def _read_pairs(path: Path, text: str | None, pair: str | None) -> list[PairRow]:
    """Two sentences a line of plain text or a .csv or .tsv without a header, or a row of any table by its columns."""
    from bert_core.analysis.scoring import pair_rows, read_pairs
    from bert_core.studies.files import Format, identify
    from bert_core.studies.rows import LARGEST_JSON, rows_of
    from bert_core.studies.texts import unnamed_columns

    source = identify(path, tabs_in_text=True)
    if text is not None and pair is not None:
        return pair_rows((row, [fields[text], fields[pair]]) for row, fields, _ in rows_of(path, [text, pair]))
    if text is not None or pair is not None or source.format in (Format.JSON_LINES, Format.JSON):
        raise Refused(unnamed_columns(source, "the first sentences (--text) and that of the second (--pair)"))
    if source.format not in (Format.TEXT, Format.CSV, Format.TSV):
        raise Refused(f"{path.name} contains {source.format.value}: two sentences per line are needed")
    return read_pairs(source.read_text(LARGEST_JSON))


def _score_pairs(model: str, device: str, pairs: list[PairRow], variant: str) -> None:
    """The table to stdout, and what it comes to to stderr."""
    from bert_core.analysis.scoring import mostly_unknown, pairs_csv
    from bert_core.run.scoring import score_pairs

    loaded = load(model, device)
    found = score_pairs(loaded, pairs, variant=variant, report=Notes())
    typer.echo(pairs_csv(found), nl=False)
    scored = [one for one in found if one.believed is not None]
    first = sum(one.believed == "first" for one in scored)
    if scored:
        note(f"{loaded.name} finds the first sentence likelier in {first:,} of {len(scored):,} pairs")
    if unknown := mostly_unknown(found):
        if (read := current_count()) is not None:
            read.said = True
        note(f"{unknown:,} of the sentences are mostly [UNK]: {loaded.name} does not know these characters")
    if len(scored) < len(found):
        note(f"{len(found) - len(scored):,} of {len(found):,} lines could not be scored: see the column problem")


def list_models() -> None:
    """The models that come with Headlight."""
    from bert_core.checkpoint import read_config
    from bert_core.loading import ASSETS, bundled_models

    for name in bundled_models():
        sizes = read_config(ASSETS / name)
        typer.echo(
            f"{name}  {sizes.num_hidden_layers} layers x {sizes.num_attention_heads} heads, "
            f"{sizes.hidden_size} wide, {sizes.vocab_size:,} word pieces"
        )


def _capture(loaded: LoadedModel, encoding: Encoding, top_k: int) -> ModelRun:
    import bert_core

    return bert_core.capture(loaded, encoding, top_k=top_k)


def _verdict(loaded: LoadedModel, follows: float) -> str:
    yes, no = ("In order", "Swapped") if loaded.asks_order else ("Yes", "No")
    return f"{yes if follows >= 0.5 else no}: B follows A with probability {follows:#.2g}"
