"""The `headlight` command: arguments to calls. Bad input is one sentence on stderr and exit code 2."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.exceptions import TyperException

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.loading import LoadedModel
    from bert_core.record import ModelRun
    from bert_core.tokenizer import Encoding

# glibc gives large blocks back to the system after every step and then faults them in again; these keep them.
# It reads them when a process starts, so they are set for the process that we start, or start again.
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "268435456"}
EVALUATED_LENGTHS = (32, 128, 512)

app = typer.Typer(
    help="See what a BERT looks at.", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)
ModelName = Annotated[str, typer.Option(help="A bundled model, a checkpoint folder, or a hub id.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]
TextFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="Plain text, .txt or .xz: one paragraph a line.")
]


@app.command("app")
def open_app(
    models: Annotated[
        list[str] | None,
        typer.Option("--models", metavar="NAME_OR_DIR", help="A model to offer beside the bundled ones."),
    ] = None,
    more_models: Annotated[list[str] | None, typer.Argument(metavar="NAME_OR_DIR", help="More of them.")] = None,
    device: Device = "auto",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="8501, or the next free one.")] = None,
    address: Annotated[str, typer.Option(help="Where to listen; any but localhost is for others too.")] = "localhost",
) -> None:
    """Serve the app to a browser."""
    offered = [*(models or []), *(more_models or [])]
    for name in offered:
        _check_offered(name)
    if device != "auto":
        from bert_core.loading import best_device

        best_device(device)
    front_door = find_spec("streamlit_app")
    if front_door is None or front_door.origin is None:
        raise ValueError("streamlit_app.py is not installed beside this command: install Headlight again")
    # The settings of .streamlit/config.toml, which an installed Headlight does not have.
    flags = {
        "server.address": address,
        "server.showEmailPrompt": "false",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "theme.base": str(Path(__file__).with_name("theme.toml")),
        **({} if port is None else {"server.port": str(port)}),
    }
    choices = {"HEADLIGHT_MODELS": json.dumps(offered), "HEADLIGHT_DEVICE": device}
    # -P: a stray streamlit.py in the folder where the command is typed is not ours to run.
    command = [sys.executable, "-P", "-m", "streamlit", "run", front_door.origin]
    command += [f"--{name}={value}" for name, value in flags.items()]
    os.execve(sys.executable, command, {**MALLOC, **os.environ, **choices})


@app.command()
def predict(
    text: Annotated[str, typer.Argument(help="A text with at least one [MASK].")],
    pair: Annotated[str | None, typer.Option(help="A second text: does it follow the first?")] = None,
    model: ModelName = "headlight-mini",
    top_k: Annotated[int, typer.Option(min=1, help="How many pieces for each [MASK].")] = 5,
    device: Device = "auto",
) -> None:
    """The likeliest pieces at every [MASK]; does a second text follow; and the classes of a fine-tuned model."""
    loaded = _load(model, device)
    encoding = _encode(loaded, text, pair)
    if not encoding.mask_positions and encoding.pair is None and not loaded.has_classifier:
        raise ValueError("there is no [MASK] in the text: put one where a word is to be guessed")
    if encoding.mask_positions and not (loaded.has_mlm or loaded.has_classifier):
        raise ValueError(f"{model} has no trained masked-word head: it cannot guess words")
    if encoding.mask_positions and not loaded.has_mlm:
        _note(f"{model} has no trained masked-word head: it cannot guess words")
    run = _capture(loaded, encoding, top_k)
    if run.classes is not None:
        numbers = run.classes.logits if run.classes.probabilities is None else run.classes.probabilities
        typer.echo("number" if run.classes.probabilities is None else "class")
        for label in run.classes.order[:top_k]:
            typer.echo(f"  {numbers[label]:.3f}  {run.classes.labels[label]}")
    for prediction in run.predictions:
        typer.echo(f"[MASK] at {prediction.position}")
        for token_id, probability in prediction.top:
            typer.echo(f"  {probability:.3f}  {loaded.tokenizer.token_of(token_id)}")
    if run.nsp is not None:
        typer.echo(_verdict(run.nsp))


@app.command()
def nsp(
    first: Annotated[str, typer.Argument(metavar="A", help="The first text.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The text that may follow it.")],
    model: ModelName = "headlight-mini",
    device: Device = "auto",
) -> None:
    """Whether the second text follows the first."""
    if not second.strip():
        raise ValueError("there is no second text: type at least one word")
    loaded = _load(model, device)
    encoding = _encode(loaded, first, second)
    if not loaded.has_nsp:
        raise ValueError(f"{model} has no trained next-sentence head: it cannot say what follows")
    probability = _capture(loaded, encoding, top_k=1).nsp
    assert probability is not None  # there is a pair and a head
    typer.echo(_verdict(probability))


@app.command()
def score(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Sentences to compare.")],
    model: ModelName = "headlight-mini",
    within_word: Annotated[
        bool, typer.Option("--within-word", help="Hide the later pieces of a word with it, as fits rare words.")
    ] = False,
    pieces: Annotated[bool, typer.Option("--pieces", help="The log-probability of every piece, too.")] = False,
    device: Device = "auto",
) -> None:
    """How likely a masked-word model finds each sentence: pseudo-log-likelihood in nats, and perplexity per piece."""
    import bert_core

    loaded = _load(model, device)
    for text in texts:
        encoding = _encode(loaded, text, None)
        found = bert_core.pseudo_log_likelihood(loaded, encoding, variant="within word" if within_word else "original")
        typer.echo(f"{found.total:9.3f} nats  perplexity {found.perplexity:8.2f}  {text}")
        if pieces:
            for token, likely, added in zip(encoding.tokens, found.log_probabilities, encoding.special, strict=True):
                if not added:
                    typer.echo(f"  {likely:9.3f}  {token}")


@app.command("models")
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


@app.command()
def pretrain(
    train: TextFile,
    folder: Annotated[Path, typer.Option(file_okay=False, help="Where checkpoints, log, model go.")],
    held_out: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Text to evaluate on.")] = None,
    start: Annotated[
        str,
        # torchrun takes --start, wherever it stands, for a short form of its own --start-method.
        typer.Option("--start", "--start-from", help="minilm, a bundled model, or a checkpoint folder."),
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
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="On hidden states and attention.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of batches, masks and new heads.")] = 0,
    save_every: Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints.")] = 300.0,
    evaluate_every: Annotated[int, typer.Option(min=1, help="Steps between held-out evaluations.")] = 500,
    cache: Annotated[Path | None, typer.Option(file_okay=False, help="Tokenized texts; default FOLDER/corpus.")] = None,
    device: Device = "auto",
) -> None:
    """Train on plain text: masked words and next sentences.

    The same command again goes on where it stopped.

    Several GPUs: torchrun --nproc-per-node N -m viz_app.cli pretrain ..., with --start-from for --start.
    """
    from bert_core.training.data import MaskingRule
    from bert_core.training.launch import launch
    from bert_core.training.pretrain import PretrainSettings

    settings = PretrainSettings(
        steps=steps, warmup=warmup, decay=decay, learning_rate=learning_rate, tokens=tokens,
        lengths=_parse_lengths(lengths), masking=MaskingRule(rate=mask_rate, whole_words=whole_words), seed=seed,
    )  # fmt: skip
    launch(
        train, folder, settings, start=start, held_out=held_out, dropout=dropout, cache=cache, device=device,
        save_every=save_every, evaluate_every=evaluate_every, report=typer.echo,
    )  # fmt: skip


@app.command()
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
    start: ModelName = "headlight-mini",
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


@app.command()
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

    loaded = _load(model, device)
    if not (loaded.has_mlm or loaded.has_nsp):
        raise ValueError(f"{model} has neither a trained masked-word nor a next-sentence head: there is nothing to ask")
    lengths = tuple(length for length in EVALUATED_LENGTHS if length <= loaded.config.max_position_embeddings)
    with tempfile.TemporaryDirectory() as cache:
        corpus = Corpus.prepare(held_out, loaded.tokenizer, Path(cache), _note)
        typer.echo("asked pieces are       tokens  MLM top-1  MLM loss     NSP   pieces   pairs")
        for name, masking in (("80/10/10", EVALUATION_MASKING), ("all [MASK]", ALL_HIDDEN)):
            maker = ExampleMaker(corpus, loaded.tokenizer, masking)
            scores = ask(loaded.model, maker, loaded.device, lengths=lengths, batches=batches)
            for length, found in scores.items():
                words = f"{found['mlm']:>10.1%} {found['loss']:>9.2f}" if loaded.has_mlm else f"{'-':>10} {'-':>9}"
                follows = f"{found['nsp']:>7.1%}" if loaded.has_nsp else f"{'-':>7}"
                typer.echo(f"{name:<22} {length:>6} {words} {follows} {found['masked']:>8,} {found['pairs']:>7,}")


@app.command("train-captioner")
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


@app.command("evaluate-captioner")
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


def _check_offered(name: str) -> None:
    """Raise ValueError unless a model of this name may be there: what the app would only say on its page."""
    from bert_core.checkpoint import read_config
    from bert_core.loading import bundled_models

    if Path(name).is_dir():
        read_config(name)
    elif name not in bundled_models() and not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise ValueError(f"there is no model {name!r}: it is neither a folder, nor bundled, nor a hub id")


def _load(name: str, device: str) -> LoadedModel:
    import bert_core

    return bert_core.load(name, device=device)


def _encode(loaded: LoadedModel, text: str, pair: str | None) -> Encoding:
    encoding = loaded.tokenizer.encode(text, pair, max_length=loaded.config.max_position_embeddings)
    if encoding.cut:
        _note(f"the last {encoding.cut} of {encoding.full_length} tokens did not fit and were left out")
    if encoding.unknown_count * 2 > len(encoding):
        _note(f"{encoding.unknown_count} of {len(encoding)} tokens are [UNK]: {loaded.name} does not know these words")
    return encoding


def _capture(loaded: LoadedModel, encoding: Encoding, top_k: int) -> ModelRun:
    import bert_core

    return bert_core.capture(loaded, encoding, top_k=top_k)


def _verdict(follows: float) -> str:
    return f"B follows A: {follows:.2f}" if follows >= 0.5 else f"B does not follow A: {1 - follows:.2f}"


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


def _note(sentence: str) -> None:
    typer.echo(sentence, err=True)


def _restart_with_malloc_settings() -> None:
    """Start this process again if glibc did not find the settings when it started; does nothing elsewhere."""
    if platform.libc_ver()[0] == "glibc" and not os.environ.keys() >= MALLOC.keys():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**MALLOC, **os.environ})


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The console command; ends the process with 0, or with 2 after one sentence on what was wrong."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] in (["pretrain"], ["finetune"], ["evaluate"], ["train-captioner"]):
        _restart_with_malloc_settings()
    try:
        sys.exit(app(arguments or ["--help"], prog_name="headlight", standalone_mode=False))
    except TyperException as error:
        sentence = error.format_message()
    except OSError as error:
        sentence = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except ValueError as error:
        sentence = str(error)
    except typer.Abort:
        _note("stopped")
        sys.exit(130)
    _note(" ".join(sentence.split()))
    sys.exit(2)


if __name__ == "__main__":
    main()
