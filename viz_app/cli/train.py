"""Commands that train a model, or measure a trained one."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.refused import Refused
from viz_app.cli.shared import Device, ModelName, TextColumn, TextFile, check_place, kind_of_file, load, note_each, say

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.training.measures import Measures


def pretrain(
    train: TextFile,
    folder: Annotated[Path, typer.Option(file_okay=False, help="Where checkpoints, log, model go.")],
    held_out: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Text to evaluate on.")] = None,
    column: TextColumn = None,
    start: Annotated[
        str,
        # torchrun takes --start, wherever it stands, for a short form of its own --start-method.
        typer.Option("--init", "--start", help="minilm, a bundled model, or a checkpoint folder."),
    ] = "minilm",
    steps: Annotated[int, typer.Option(min=1, help="Updates in all.")] = 4000,
    warmup: Annotated[int, typer.Option(min=0, help="Steps in which the rate rises.")] = 150,
    decay: Annotated[int, typer.Option(min=0, help="Last steps, in which it falls to zero.")] = 2000,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="The rate between them.")] = 5e-4,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of one batch on each worker.")] = 3072,
    lengths: Annotated[
        str, typer.Option(help="Share of batches of each length, in tokens.")
    ] = "32:0.15,64:0.3,128:0.45,256:0.05,512:0.05",
    mask_rate: Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of tokens to predict.")] = 0.2,
    whole_words: Annotated[bool, typer.Option("--whole-words", help="Hide whole words, not pieces.")] = False,
    whole: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of rows filled with whole sentences, alone or in pairs.")
    ] = 0.0,
    near: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the strangers that come from a text of the same kind.")
    ] = 0.0,
    optimizer: Annotated[str, typer.Option(metavar="adamw|muon", help="What takes the steps.")] = "adamw",
    average: Annotated[
        float, typer.Option(min=0.0, max=0.9999, help="End with a running mean over 1 / (1 - this) steps; 0: without.")
    ] = 0.0,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="On hidden states and attention.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of batches, masks and new heads.")] = 0,
    save_every: Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints.")] = 300.0,
    evaluate_every: Annotated[int, typer.Option(min=1, help="Steps between held-out evaluations.")] = 500,
    cache: Annotated[Path | None, typer.Option(file_okay=False, help="Tokenized texts; default FOLDER/corpus.")] = None,
    device: Device = "auto",
) -> None:
    """Train on the texts of a file: masked words and next sentences.

    The same command again goes on where it stopped.

    Several GPUs: torchrun --nproc-per-node N -m viz_app.cli pretrain ..., where --start has to be --init.
    """
    from bert_core.training.launch import launch
    from bert_core.training.settings import MaskingRule, Mix, PretrainSettings

    settings = PretrainSettings(
        steps=steps, warmup=warmup, decay=decay, learning_rate=learning_rate, tokens=tokens,
        lengths=_parse_lengths(lengths), masking=MaskingRule(rate=mask_rate, whole_words=whole_words),
        mix=Mix(whole, near), optimizer=optimizer, average=average, seed=seed,
    )  # fmt: skip
    launch(
        train, folder, settings, start=start, held_out=held_out, column=column, dropout=dropout, cache=cache,
        device=device, save_every=save_every, evaluate_every=evaluate_every, report=say,
    )  # fmt: skip


def finetune(
    train: Annotated[
        Path,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="A table of a text and its class a row (.csv, .tsv, .jsonl, .json); words with tags, CoNLL(-U); or "
            "questions, .json as SQuAD's.",
        ),
    ],
    folder: Annotated[Path, typer.Option(file_okay=False, help="Where the model and its log go.")],
    text: TextColumn = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of the classes; of CoNLL its number, or the last; else upos."),
    ] = None,
    pair: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of second texts.")] = None,
    word: Annotated[int, typer.Option(min=1, help="The number of the column of the words, of CoNLL.")] = 1,
    held_out: Annotated[
        str,
        typer.Option(metavar="FILE_OR_SHARE", help="Another file, or the share of each class or of texts to ask on."),
    ] = "0.1",
    start: Annotated[
        str, typer.Option("--init", "--start", help="A bundled model, a checkpoint folder, or a hub id.")
    ] = "headlight-mini",
    epochs: Annotated[int, typer.Option(min=1, help="Times that every example is seen, at most.")] = 5,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="The highest; it rises first and then falls.")] = 5e-5,
    batch: Annotated[int, typer.Option(min=1, help="Texts of one step.")] = 16,
    max_length: Annotated[
        int | None,
        typer.Option(min=5, help="Tokens of a text, 128, longer ones are cut; of a question and context, 384."),
    ] = None,
    stride: Annotated[
        int, typer.Option(min=1, help="Pieces of a longer context from one window's beginning to the next's.")
    ] = 128,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out questions whose answer is not in its context.")
    ] = False,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="While training.")] = 0.1,
    patience: Annotated[int, typer.Option(min=1, help="Epochs without a better result before it stops.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of the new classifier, batches and held-out rows.")] = 0,
    keep: Annotated[
        int, typer.Option(min=0, max=100, help="Of how many steps the weights are kept, in FOLDER/steps; 0: of none.")
    ] = 0,
    device: Device = "auto",
) -> None:
    """Teach a model the classes of your texts, tags of their words, or to find the answers to questions in them.

    The weights that do best on held-out texts are kept, ready for `headlight app --models FOLDER`. Stopped, the same
    command goes on, on a CPU to the same weights.
    """
    from bert_core.studies.files import Format, identify
    from bert_core.studies.texts import missing_columns_message
    from bert_core.training.answers import finetune_reader
    from bert_core.training.finetune import finetune as finetune_classes
    from bert_core.training.settings import AnswerSettings, FinetuneSettings
    from bert_core.training.tagging import finetune_tags

    given: dict[str, Any] = {
        "epochs": epochs, "learning_rate": learning_rate, "batch": batch, "dropout": dropout, "patience": patience,
        "seed": seed, **({} if max_length is None else {"max_length": max_length}),
    }  # fmt: skip
    run: dict[str, Any] = {
        "held_out": _parse_held_out(held_out), "start": start, "keep": keep, "device": device, "report": say,
    }  # fmt: skip
    source = identify(train, tabs_in_text=True)
    if source.format is Format.JSON and text is None:
        if label is not None or pair is not None:
            raise Refused(f"--label and --pair name columns of {train.name}: name that of the texts too, by --text")
        finetune_reader(train, folder, AnswerSettings(stride=stride, **given), skip_broken=skip_broken, **run)
        return
    if not source.is_table and text is None and pair is None:
        asked = label or ("upos" if source.format is Format.TREEBANK else "last")
        finetune_tags(train, folder, FinetuneSettings(**given), label=asked, word=word, **run)
        return
    if text is None or label is None:
        raise Refused(missing_columns_message(source, "the texts (--text) and that of the classes (--label)"))
    finetune_classes(train, folder, FinetuneSettings(**given), text=text, label=label, pair=pair, **run)


def evaluate(
    model: Annotated[str, typer.Argument(help="A bundled model, a checkpoint folder, or a hub id.")],
    held_out: TextFile,
    also: Annotated[
        list[str] | None, typer.Option(metavar="KIND=FILE", help="Another kind of held-out text; as often as wanted.")
    ] = None,
    column: TextColumn = None,
    train: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The training text, for how much of it is asked.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(file_okay=False, help="Tokenized texts; default none kept.")] = None,
    out: Annotated[Path | None, typer.Option(dir_okay=False, help="All figures, as .json.")] = None,
    picture: Annotated[Path | None, typer.Option(dir_okay=False, help="How sure it may be taken, as .svg.")] = None,
    keep_temperature: Annotated[
        bool, typer.Option("--keep-temperature", help="Store it in the model's folder, where pages read it.")
    ] = False,
    batches: Annotated[int, typer.Option(min=1, help="Batches of about 4,096 tokens for each figure.")] = 100,
    device: Device = "auto",
) -> None:
    """How good a model is: held-out words and next sentences, facts, repeated words, how sure it may be.

    15% of the pieces are asked for, behind 80/10/10 of [MASK], a random piece and itself, and behind [MASK] alone.
    Strangers come from any other document, and (near) from one of the same kind.
    """
    from bert_core.calibration import write_temperature
    from bert_core.checkpoint import write_atomically
    from bert_core.training.data import Corpus
    from bert_core.training.measures import measure, reliability_diagram, tokens_per_second

    for option, path, ending in (("--out", out, "json"), ("--picture", picture, "svg")):
        if path is not None:
            kind_of_file(option, path, (ending,))
            check_place(path, held_out)
    texts = {held_out.name: held_out}
    for written in also or ():
        kind, _, name = written.partition("=")
        if not (kind and Path(name).is_file()):
            raise Refused(f"--also is {written!r}: write KIND=FILE, and name a file that is there")
        texts[kind] = Path(name)
    loaded = load(model, device)
    if keep_temperature and not Path(loaded.report.source).is_dir():
        raise Refused(f"--keep-temperature needs a model in a folder, and {model} is none")
    with tempfile.TemporaryDirectory() as folder:
        kept = cache or Path(folder)
        prepare = partial(Corpus.prepare, tokenizer=loaded.tokenizer, cache=kept, report=note_each, column=column)
        corpora = {kind: prepare(path) for kind, path in texts.items()}
        trained = None if train is None else prepare(train)
        found = measure(loaded, corpora, train=trained, batches=batches, report=note_each)
    for line in lines_of(found, loaded.has_head("words"), loaded.has_head("next")):
        typer.echo(line)
    typer.echo(f"speed: {tokens_per_second(loaded):,.0f} tokens/s forward, 8 x 128, on this machine")
    if out is not None:
        write_atomically(out, found.to_json())
    if found.reliability is not None:
        if picture is not None:
            write_atomically(picture, reliability_diagram(found.reliability))
        if keep_temperature:
            write_temperature(loaded, found.reliability.temperature, Path(loaded.report.source))


def lines_of(found: Measures, has_words: bool, has_follows: bool) -> list[str]:
    """The measures as lines for a terminal."""
    from bert_core.training.measures import column_totals, expected_calibration_error

    width = max(len("text"), *(len(kind) for kind in found.held_out))
    lines = [f"{'text':<{width}}  tokens  MLM top-1  all [MASK]  MLM loss     NSP    near   pieces   pairs"]
    for kind, lengths in found.held_out.items():
        for length, score in lengths.items():
            words = (
                f"{score['mlm']:>10.1%} {score['hidden']:>11.1%} {score['loss']:>9.2f}"
                if has_words
                else f"{'-':>10} {'-':>11} {'-':>9}"
            )
            follows = f"{score['nsp']:>7.1%} {score['near']:>7.1%}" if has_follows else f"{'-':>7} {'-':>7}"
            lines.append(
                f"{kind:<{width}}  {length:>6} {words} {follows} {score['masked']:>8,.0f} {score['pairs']:>7,.0f}"
            )
    if not found.facts:
        return lines
    for name, table in (("facts", found.facts), ("everyday sentences", found.everyday)):
        first, five, asked = column_totals(table)
        kinds = ", ".join(f"{kind} {count}/{total}" for kind, (count, _, total) in table.items())
        lines.append(f"{name}: {_share(first, asked)} right first, {_share(five, asked)} among five; first: {kinds}")
    lines.append(f"prompts of the card: {found.prompts[0]} of {found.prompts[1]} right first")
    for condition, (right, asked) in found.agreement.items():
        lines.append(f"verb agrees with its subject, {condition}: {_share(right, asked)}")
    for where, (repeated, asked) in found.repeated.items():
        lines.append(f"first prediction repeats a word of the text, {where}: {_share(repeated, asked)}")
    if found.reliability is not None:
        before, after = (
            expected_calibration_error(bins) for bins in (found.reliability.before, found.reliability.after)
        )
        lines.append(
            f"calibration error {before:.3f}; at temperature {found.reliability.temperature:.2f} it is {after:.3f}"
        )
    lines += [
        f"the training text holds {passages:.2%} of the passages of 13 pieces, and any in {texts:.1%} of texts: {where}"
        for where, (passages, texts) in found.overlap.items()
    ]
    return lines


def _share(count: int, asked: int) -> str:
    """A count with its share and 95% interval."""
    from bert_core.training.measures import wilson_interval

    if not asked:
        return "0 of 0"
    low, high = wilson_interval(count, asked)
    return f"{count} of {asked} ({count / asked:.1%}, 95% interval {low:.1%} to {high:.1%})"


def tune_lens(
    text: TextFile,
    folder: Annotated[Path, typer.Option(file_okay=False, help="Where checkpoints, log, translators go.")],
    held_out: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Text to compare on.")] = None,
    column: TextColumn = None,
    model: ModelName = "headlight-mini",
    steps: Annotated[int, typer.Option(min=1, help="Updates in all.")] = 800,
    warmup: Annotated[int, typer.Option(min=0, help="Steps in which the rate rises.")] = 20,
    decay: Annotated[int, typer.Option(min=0, help="Last steps, in which it falls to zero.")] = 400,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="The rate between them.")] = 1e-3,
    examples: Annotated[int, typer.Option(min=1, help="Examples of one batch.")] = 12,
    length: Annotated[int, typer.Option(min=5, help="Tokens of an example.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Of batches and masks.")] = 0,
    save_every: Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints.")] = 120.0,
    cache: Annotated[Path | None, typer.Option(file_okay=False, help="Tokenized texts; default FOLDER/corpus.")] = None,
    device: Device = "auto",
) -> None:
    """Train a tuned lens: one affine map a layer, so that the word head can read every layer.

    The model stays as it is. Put the file into the model's folder, and the page Layers offers it.
    """
    from bert_core.training.lens import tune_lens as tune
    from bert_core.training.settings import LensSettings

    settings = LensSettings(
        steps=steps, warmup=warmup, decay=decay, learning_rate=learning_rate, examples=examples, length=length,
        seed=seed,
    )  # fmt: skip
    tune(
        load(model, device), text, settings, folder,
        held_out=held_out, column=column, cache=cache, save_every=save_every, report=say,
    )  # fmt: skip


def train_captioner(
    folder: Annotated[Path, typer.Option(file_okay=False, help="Where checkpoints, log, model go.")],
    steps: Annotated[int, typer.Option(min=1, help="Updates in all.")] = 20000,
    batch: Annotated[int, typer.Option(min=1, help="Scenes in each.")] = 16,
    warmup: Annotated[int, typer.Option(min=0, help="Steps in which the rate rises.")] = 200,
    decay: Annotated[int, typer.Option(min=0, help="Last steps, in which it falls to zero.")] = 6000,
    growth: Annotated[int, typer.Option(min=0, help="First steps: one shape a scene, then up to two.")] = 2000,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="The rate between them.")] = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="Of scenes and weights.")] = 0,
    save_every: Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints.")] = 120.0,
    evaluate_every: Annotated[int, typer.Option(min=1, help="Steps between looks at held-out scenes.")] = 500,
    device: Device = "auto",
) -> None:
    """Train a captioner on scenes that are drawn on the fly; no data is needed.

    The same command again goes on where it stopped.
    """
    from bert_core.loading import best_device
    from bert_core.scenes import VOCABULARY
    from bert_core.training.captioner import train_captioner as train
    from bert_core.training.settings import CaptionerSettings
    from bert_core.vision import CaptionerConfig

    settings = CaptionerSettings(
        steps=steps, batch=batch, warmup=warmup, decay=decay, growth=growth, learning_rate=learning_rate, seed=seed
    )
    train(
        CaptionerConfig.small(len(VOCABULARY)), settings, folder,
        device=best_device(device), save_every=save_every, evaluate_every=evaluate_every, report=say,
    )  # fmt: skip


def evaluate_captioner(
    model: Annotated[str, typer.Argument(help="headlight-shapes, or a folder of a captioner.")] = "headlight-shapes",
    scenes: Annotated[int, typer.Option(min=1, help="As in training, and as many held out.")] = 2000,
    device: Device = "auto",
) -> None:
    """How many captions are correct, on scenes as in training and on unseen combinations."""
    from bert_core.training.captioner import evaluate_captioner as ask
    from bert_core.vision import load_captioner

    typer.echo("scenes are                                       scenes  correct  all shapes named")
    for score in ask(load_captioner(model, device=device), scenes):
        typer.echo(f"{score.group:<47} {score.scenes:>7,} {score.correct:>8.1%} {score.all_shapes_named:>17.1%}")


def _parse_lengths(written: str) -> dict[int, float]:
    """`32:0.15,128:0.85` as a mapping. Raises Refused for anything else."""
    try:
        lengths = {int(length): float(share) for length, share in (part.split(":") for part in written.split(","))}
    except ValueError:
        lengths = {}
    if not lengths or min(lengths) < 8 or min(lengths.values()) < 0:
        raise Refused(f"--lengths is {written!r}: write tokens (8 or more) and shares, as in 32:0.15,128:0.85")
    return lengths


def _parse_held_out(written: str) -> Path | float:
    """A share, or else the name of a file. Raises Refused if there is no such file."""
    try:
        return float(written)
    except ValueError:
        path = Path(written)
    if not path.is_file():
        raise Refused(f"--held-out is {written!r}: it is neither a share, as 0.1, nor a file")
    return path
