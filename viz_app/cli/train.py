"""Commands that train a model, or measure a trained one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from viz_app.cli.shared import Device, ModelName, TextFile, load, note

EVALUATED_LENGTHS = (32, 128, 512)


def pretrain(
    train: TextFile,
    folder: Annotated[Path, typer.Option(file_okay=False, help="Where checkpoints, log, model go.")],
    held_out: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Text to evaluate on.")] = None,
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
    """Train on plain text: masked words and next sentences.

    The same command again goes on where it stopped.

    Several GPUs: torchrun --nproc-per-node N -m viz_app.cli pretrain ..., where --start has to be --init.
    """
    from bert_core.training.data import MaskingRule, Mix
    from bert_core.training.launch import launch
    from bert_core.training.pretrain import PretrainSettings

    settings = PretrainSettings(
        steps=steps, warmup=warmup, decay=decay, learning_rate=learning_rate, tokens=tokens,
        lengths=_parse_lengths(lengths), masking=MaskingRule(rate=mask_rate, whole_words=whole_words),
        mix=Mix(whole, near), optimizer=optimizer, average=average, seed=seed,
    )  # fmt: skip
    launch(
        train, folder, settings, start=start, held_out=held_out, dropout=dropout, cache=cache, device=device,
        save_every=save_every, evaluate_every=evaluate_every, report=typer.echo,
    )  # fmt: skip


def finetune(
    train: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A CSV file: a header, then a text and its class a row.")
    ],
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The column of the texts.")],
    label: Annotated[str, typer.Option(metavar="COLUMN", help="The column of the classes.")],
    folder: Annotated[Path, typer.Option(file_okay=False, help="Where the model and its log go.")],
    pair: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of second texts.")] = None,
    held_out: Annotated[
        str, typer.Option(metavar="CSV_OR_SHARE", help="Another CSV file, or the share of each class to ask on.")
    ] = "0.1",
    start: Annotated[
        str, typer.Option("--init", "--start", help="A bundled model, a checkpoint folder, or a hub id.")
    ] = "headlight-mini",
    epochs: Annotated[int, typer.Option(min=1, help="Times that every row is seen, at most.")] = 5,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="The highest; it rises first and then falls.")] = 5e-5,
    batch: Annotated[int, typer.Option(min=1, help="Texts of one step.")] = 16,
    max_length: Annotated[int, typer.Option(min=5, help="Tokens of a text; longer ones are cut.")] = 128,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="While training.")] = 0.1,
    patience: Annotated[int, typer.Option(min=1, help="Epochs without a better result before it stops.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of the new classifier, batches and held-out rows.")] = 0,
    device: Device = "auto",
) -> None:
    """Teach a model the classes of your own texts.

    The weights that do best on held-out rows are kept, ready for `headlight app --models FOLDER`.
    """
    from bert_core.training import finetune as tuning

    settings = tuning.FinetuneSettings(
        epochs=epochs, learning_rate=learning_rate, batch=batch, max_length=max_length, dropout=dropout,
        patience=patience, seed=seed,
    )  # fmt: skip
    tuning.finetune(
        train, folder, settings, text=text, label=label, pair=pair, held_out=_parse_held_out(held_out),
        start=start, device=device, report=typer.echo,
    )  # fmt: skip


def evaluate(
    model: Annotated[str, typer.Argument(help="A bundled model, a checkpoint folder, or a hub id.")],
    held_out: TextFile,
    batches: Annotated[int, typer.Option(min=1, help="Batches of about 4,096 tokens for each figure.")] = 100,
    device: Device = "auto",
) -> None:
    """How much of a held-out text a model guesses.

    15% of the pieces are asked for, behind 80/10/10 of [MASK], a random piece and itself, and behind [MASK] alone.
    """
    from bert_core.training.data import Corpus, ExampleMaker
    from bert_core.training.pretrain import ALL_HIDDEN, EVALUATION_MASKING
    from bert_core.training.pretrain import evaluate as ask

    loaded = load(model, device)
    if not (loaded.has_mlm or loaded.has_nsp):
        raise ValueError(f"{model} has neither a trained masked-word nor a next-sentence head: there is nothing to ask")
    lengths = tuple(length for length in EVALUATED_LENGTHS if length <= loaded.config.max_position_embeddings)
    with tempfile.TemporaryDirectory() as cache:
        corpus = Corpus.prepare(held_out, loaded.tokenizer, Path(cache), note)
        typer.echo("asked pieces are       tokens  MLM top-1  MLM loss     NSP   pieces   pairs")
        for name, masking in (("80/10/10", EVALUATION_MASKING), ("all [MASK]", ALL_HIDDEN)):
            maker = ExampleMaker(corpus, loaded.tokenizer, masking)
            scores = ask(loaded.model, maker, loaded.device, lengths=lengths, batches=batches)
            for length, found in scores.items():
                words = f"{found['mlm']:>10.1%} {found['loss']:>9.2f}" if loaded.has_mlm else f"{'-':>10} {'-':>9}"
                follows = f"{found['nsp']:>7.1%}" if loaded.has_nsp else f"{'-':>7}"
                typer.echo(f"{name:<22} {length:>6} {words} {follows} {found['masked']:>8,} {found['pairs']:>7,}")


def tune_lens(
    text: TextFile,
    folder: Annotated[Path, typer.Option(file_okay=False, help="Where checkpoints, log, translators go.")],
    held_out: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Text to compare on.")] = None,
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
    from bert_core.training.lens import LensSettings
    from bert_core.training.lens import tune_lens as tune

    settings = LensSettings(
        steps=steps, warmup=warmup, decay=decay, learning_rate=learning_rate, examples=examples, length=length,
        seed=seed,
    )  # fmt: skip
    tune(
        load(model, device), text, settings, folder,
        held_out=held_out, cache=cache, save_every=save_every, report=typer.echo,
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
    from bert_core.training.captioner import CaptionerSettings
    from bert_core.training.captioner import train_captioner as train
    from bert_core.vision import CaptionerConfig

    settings = CaptionerSettings(
        steps=steps, batch=batch, warmup=warmup, decay=decay, growth=growth, learning_rate=learning_rate, seed=seed
    )
    train(
        CaptionerConfig.small(len(VOCABULARY)), settings, folder,
        device=best_device(device), save_every=save_every, evaluate_every=evaluate_every, report=typer.echo,
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
        typer.echo(f"{score.group:<47} {score.scenes:>7,} {score.correct:>8.1%} {score.named:>17.1%}")


def _parse_lengths(written: str) -> dict[int, float]:
    """`32:0.15,128:0.85` as a mapping. Raises ValueError for anything else."""
    try:
        lengths = {int(length): float(share) for length, share in (part.split(":") for part in written.split(","))}
    except ValueError:
        lengths = {}
    if not lengths or min(lengths) < 8 or min(lengths.values()) < 0:
        raise ValueError(f"--lengths is {written!r}: write tokens (8 or more) and shares, as in 32:0.15,128:0.85")
    return lengths


def _parse_held_out(written: str) -> Path | float:
    """A share, or else the name of a file. Raises ValueError if there is no such file."""
    try:
        return float(written)
    except ValueError:
        path = Path(written)
    if not path.is_file():
        raise ValueError(f"--held-out is {written!r}: it is neither a share, as 0.1, nor a file")
    return path
