"""Commands that train a model, or evaluate a trained one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_core.refused import Refused
from bert_core.settings import options_of
from bert_core.training.settings import (
    AnswerSettings,
    CaptionerSettings,
    FinetuneSettings,
    LensSettings,
    MaskingRule,
    Mix,
    PretrainSettings,
)
from viz_app.cli import shared
from viz_app.cli.help import INPUT, MODEL, OUTPUT, RUN
from viz_app.cli.options import options
from viz_app.cli.shared import column, file_argument, input_file, option, output_file, output_folder
from viz_app.cli.tables import print_table, text_table

if TYPE_CHECKING:  # torch takes seconds to import: each command imports what it needs
    from bert_core.training.measures import Measures

RunFolder = Annotated[Path, output_folder("Folder of checkpoints, log and model.")]
Cache = Annotated[
    Path | None, option("Folder of tokenized texts; by default FOLDER/corpus.", group=RUN, file_okay=False)
]
SaveInterval = Annotated[float, option("Seconds between checkpoints.", group=RUN, min=0.0)]


@options(PretrainSettings, partial=True, group="Training")
@options(Mix, parameter="mix", group="Examples")
def pretrain(
    train: shared.TextFile,
    folder: RunFolder,
    settings: Any,
    mix: Mix,
    held_out: Annotated[Path | None, input_file("Held-out text.")] = None,
    text_column: shared.TextColumn = None,
    start: Annotated[
        str,
        # torchrun takes --start, wherever it stands, for a short form of its own --start-method.
        option("minilm, a bundled model, or a checkpoint folder.", "--init", "--start", group=MODEL, metavar="MODEL"),
    ] = "minilm",
    lengths: Annotated[
        str, option("Share of batches of each length, in tokens.", group="Examples")
    ] = "32:0.15,64:0.3,128:0.45,256:0.05,512:0.05",
    mask_rate: Annotated[float, option("Share of tokens to predict.", group="Examples", min=0.01, max=0.9)] = 0.2,
    whole_words: Annotated[
        bool, option("Mask whole words instead of single tokens.", "--whole-words", group="Examples")
    ] = False,
    dropout: Annotated[
        float, option("Dropout of hidden states and attention.", group="Training", min=0.0, max=0.9)
    ] = 0.0,
    save_every: SaveInterval = 300.0,
    evaluate_every: Annotated[int, option("Steps between held-out evaluations.", group=RUN, min=1)] = 500,
    cache: Cache = None,
    device: shared.Device = "auto",
) -> None:
    """Train on texts: masked words and next sentences.

    Run the same command again to resume.

    Several GPUs: torchrun --nproc-per-node N -m viz_app.cli pretrain ..., with --init instead of --start.
    """
    from bert_core.training.launch import launch

    masking = MaskingRule(rate=mask_rate, whole_words=whole_words)
    launch(
        train,
        folder,
        settings(lengths=_parse_lengths(lengths), masking=masking, mix=mix),
        start=start,
        held_out=held_out,
        column=text_column,
        dropout=dropout,
        cache=cache,
        device=device,
        save_every=save_every,
        evaluate_every=evaluate_every,
    )


@options(FinetuneSettings, partial=True, group="Training")
@options(AnswerSettings, omit=options_of(FinetuneSettings), parameter="answer_settings", partial=True, group=INPUT)
def finetune(
    train: Annotated[
        Path,
        file_argument(
            "A table with a text and its class in each row (.csv, .tsv, .jsonl, .json); words with tags, CoNLL(-U); "
            "or questions in SQuAD's form, .json."
        ),
    ],
    folder: Annotated[Path, output_folder("Folder of the model and its log.")],
    settings: Any,
    answer_settings: Any,
    text: shared.TextColumn = None,
    label: Annotated[
        str | None, column("The column of the classes; in CoNLL its number (default: last); in CoNLL-U upos.")
    ] = None,
    pair: Annotated[str | None, column("The column of second texts.")] = None,
    word: Annotated[int, option("In CoNLL: the number of the column of words.", group=INPUT, min=1)] = 1,
    held_out: Annotated[
        str, option("A file, or the share of the data that is held out.", group=INPUT, metavar="FILE_OR_SHARE")
    ] = "0.1",
    start: Annotated[
        str, option(shared.MODEL_HELP, "--init", "--start", group=MODEL, metavar="MODEL")
    ] = shared.DEFAULT_MODEL,
    max_length: Annotated[
        int | None,
        option("Maximum number of tokens: by default 128, of a question with its context 384.", group=INPUT, min=5),
    ] = None,
    skip_broken: Annotated[
        bool, option("Leave out questions whose answer is not in the context.", "--skip-broken", group=INPUT)
    ] = False,
    keep: Annotated[
        int, option("Number of checkpoints to keep in FOLDER/steps, evenly spaced.", group=OUTPUT, min=0, max=100)
    ] = 0,
    device: shared.Device = "auto",
) -> None:
    """Fine-tune a model on classes, tags or answers.

    The file has classes of texts, tags of words, or answers to questions. The weights with the best held-out score are
    kept; open them with `headlight app --models FOLDER`. Run the same command again to resume.
    """
    from bert_core.studies.files import Format, identify
    from bert_core.studies.texts import missing_columns_message
    from bert_core.training.answers import finetune_reader
    from bert_core.training.finetune import finetune as finetune_classes
    from bert_core.training.tagging import finetune_tags

    run: dict[str, Any] = {"held_out": _parse_held_out(held_out), "start": start, "keep": keep, "device": device}
    lengths = {} if max_length is None else {"max_length": max_length}
    text_settings: FinetuneSettings = settings(**lengths)
    source = identify(train, tabs_in_text=True)
    if source.format is Format.JSON and text is None:
        if label is not None or pair is not None:
            raise Refused(f"--label and --pair name columns of {train.name}: name that of the texts too, by --text")
        reader_settings = answer_settings(**settings.keywords, **lengths)
        finetune_reader(train, folder, reader_settings, skip_broken=skip_broken, **run)
        return
    if not source.is_table and text is None and pair is None:
        tag_label = label or ("upos" if source.format is Format.TREEBANK else "last")
        finetune_tags(train, folder, text_settings, label=tag_label, word=word, **run)
        return
    if text is None or label is None:
        raise Refused(missing_columns_message(source, "the texts (--text) and that of the classes (--label)"))
    finetune_classes(train, folder, text_settings, text=text, label=label, pair=pair, **run)


def evaluate(
    model: Annotated[str, typer.Argument(help=shared.MODEL_HELP)],
    held_out: shared.TextFile,
    more_texts: Annotated[
        list[str] | None,
        option("Another kind of held-out text, repeatable.", "--also", group=INPUT, metavar="KIND=FILE"),
    ] = None,
    text_column: shared.TextColumn = None,
    train: Annotated[Path | None, input_file("The training text, to report its overlap with the questions.")] = None,
    cache: Annotated[
        Path | None, option("Folder of tokenized texts; by default none.", group=RUN, file_okay=False)
    ] = None,
    out: Annotated[Path | None, output_file("Output file with all results, .json.")] = None,
    picture: Annotated[Path | None, output_file("Figure of the calibration, .svg.")] = None,
    keep_temperature: Annotated[
        bool,
        option(
            "Store the temperature in the model's folder, for calibrated confidence.",
            "--keep-temperature",
            group=OUTPUT,
        ),
    ] = False,
    batches: Annotated[int, option("Number of batches of about 4,096 tokens for each result.", min=1)] = 100,
    device: shared.Device = "auto",
) -> None:
    """Evaluate a model on held-out text and on facts.

    Prints the accuracy for masked tokens, next sentences, facts, agreement and repeated words, and the calibration. 15%
    of the tokens are predicted, replaced by [MASK], a random token or themselves (80/10/10), and by [MASK] alone.
    Unrelated second sentences come from any other document, and (near) from one of the same kind.
    """
    from bert_core.calibration import write_temperature
    from bert_core.training.data import Corpus
    from bert_core.training.measures import measure, reliability_diagram, tokens_per_second

    shared.check_output(out, held_out, kinds=("json",))
    shared.check_output(picture, held_out, kinds=("svg",), name="--picture")
    texts = {held_out.name: held_out}
    for entry in more_texts or ():
        kind, _, name = entry.partition("=")
        if not (kind and Path(name).is_file()):
            raise Refused(f"--also is {entry!r}: write KIND=FILE, and name a file that is there")
        texts[kind] = Path(name)
    loaded = shared.load(model, device)
    if keep_temperature and not Path(loaded.report.source).is_dir():
        raise Refused(f"--keep-temperature needs a model in a folder, and {model} is none")
    with tempfile.TemporaryDirectory() as folder:
        prepare = partial(
            Corpus.prepare,
            tokenizer=loaded.tokenizer,
            cache=cache or Path(folder),
            report=shared.note_progress,
            column=text_column,
        )
        corpora = {kind: prepare(path) for kind, path in texts.items()}
        train_corpus = None if train is None else prepare(train)
        measures = measure(loaded, corpora, train=train_corpus, batches=batches, report=shared.note_progress)
    typer.echo("\n".join(_measure_lines(measures)))
    if not loaded.has_head("next"):
        typer.echo(f"{loaded.name} has no trained {loaded.pair_head} head, so there is no accuracy for next sentences")
    typer.echo(f"speed: {tokens_per_second(loaded):,.0f} tokens/s forward, 8 x 128, on this machine")
    if out is not None:
        shared.write_file(out, measures.to_json())
    if measures.reliability is not None:
        if picture is not None:
            shared.write_file(picture, reliability_diagram(measures.reliability))
        if keep_temperature:
            write_temperature(loaded, measures.reliability.temperature, Path(loaded.report.source))


def _measure_lines(measures: Measures) -> Iterator[str]:
    """Yield the measures as lines; the scores of heads that are not trained have no columns."""
    from bert_core.training.measures import column_totals, expected_calibration_error

    titles = {
        "mlm": ("MLM top-1", ".1%"), "hidden": ("all [MASK]", ".1%"), "loss": ("MLM loss", ".2f"),
        "nsp": ("NSP", ".1%"), "near": ("near", ".1%"), "masked": ("pieces", ",.0f"), "pairs": ("pairs", ",.0f"),
    }  # fmt: skip
    rows = [(kind, length, score) for kind, scores in measures.held_out.items() for length, score in scores.items()]
    names = [name for name in titles if all(name in score for _, _, score in rows)]
    yield text_table(
        {"text": "", "tokens": "d", **dict(titles[name] for name in names)},
        ((kind, length, *(score[name] for name in names)) for kind, length, score in rows),
    )
    if not measures.facts:
        return
    for name, table in (("facts", measures.facts), ("everyday sentences", measures.everyday)):
        first, five, total = column_totals(table)
        kinds = ", ".join(f"{kind} {count}/{kind_total}" for kind, (count, _, kind_total) in table.items())
        yield f"{name}: {_share(first, total)} right first, {_share(five, total)} among five; first: {kinds}"
    yield f"prompts of the card: {measures.prompts[0]} of {measures.prompts[1]} right first"
    for condition, counts in measures.agreement.items():
        yield f"verb agrees with its subject, {condition}: {_share(*counts)}"
    for position, counts in measures.repeated.items():
        yield f"first prediction repeats a word of the text, {position}: {_share(*counts)}"
    if (reliability := measures.reliability) is not None:
        before, after = (expected_calibration_error(bins) for bins in (reliability.before, reliability.after))
        yield f"calibration error {before:.3f}; at temperature {reliability.temperature:.2f} it is {after:.3f}"
    for source, (passages, texts) in measures.overlap.items():
        yield (
            f"the training text holds {passages:.2%} of the passages of 13 pieces, and any in {texts:.1%} of texts: "
            f"{source}"
        )


def _share(count: int, total: int) -> str:
    """Return a count with its share and 95% interval."""
    from bert_core.analysis.intervals import wilson_interval

    if not total:
        return "0 of 0"
    low, high = wilson_interval(count, total)
    return f"{count} of {total} ({count / total:.1%}, 95% interval {low:.1%} to {high:.1%})"


@options(LensSettings, group="Training")
def tune_lens(
    text: shared.TextFile,
    folder: Annotated[Path, output_folder("Folder of checkpoints, log and translators.")],
    settings: LensSettings,
    held_out: Annotated[Path | None, input_file("Held-out text.")] = None,
    text_column: shared.TextColumn = None,
    model: shared.ModelName = shared.DEFAULT_MODEL,
    save_every: SaveInterval = 120.0,
    cache: Cache = None,
    device: shared.Device = "auto",
) -> None:
    """Train a tuned lens.

    The lens is one affine map for each layer, so that the MLM head can read every layer. The model is not changed. Put
    the file into the model's folder to use it on the page Layers & logit lens.
    """
    from bert_core.training.lens import tune_lens as tune

    tune(
        shared.load(model, device),
        text,
        settings,
        folder,
        held_out=held_out,
        column=text_column,
        cache=cache,
        save_every=save_every,
    )


@options(CaptionerSettings, group="Training")
def train_captioner(
    folder: RunFolder,
    settings: CaptionerSettings,
    save_every: SaveInterval = 120.0,
    evaluate_every: Annotated[int, option("Steps between evaluations on held-out scenes.", group=RUN, min=1)] = 500,
    device: shared.Device = "auto",
) -> None:
    """Train an image captioner on generated scenes.

    No data is needed. Run the same command again to resume.
    """
    from bert_core.loading import best_device
    from bert_core.scenes import VOCABULARY
    from bert_core.training.captioner import train_captioner as train
    from bert_core.vision import CaptionerConfig

    train(
        CaptionerConfig.small(len(VOCABULARY)),
        settings,
        folder,
        device=best_device(device),
        save_every=save_every,
        evaluate_every=evaluate_every,
    )


def evaluate_captioner(
    model: Annotated[str, typer.Argument(help="headlight-shapes, or a folder of a captioner.")] = "headlight-shapes",
    scenes: Annotated[int, option("Number of scenes as in training, and of held-out scenes.", min=1)] = 2000,
    device: shared.Device = "auto",
) -> None:
    """Measure how many captions of scenes are correct.

    The scenes are as in training, or have combinations that are not in the training data.
    """
    from bert_core.training.captioner import evaluate_captioner as evaluate_scenes
    from bert_core.vision import load_captioner

    scores = evaluate_scenes(load_captioner(model, device=device), scenes)
    print_table(
        {"scenes are": "", "scenes": ",", "correct": ".1%", "all shapes named": ".1%"},
        ((score.group, score.scenes, score.correct, score.all_shapes_named) for score in scores),
    )


def _parse_lengths(text: str) -> dict[int, float]:
    """Return the shares of `32:0.15,128:0.85` by length. Raises Refused for another form."""
    try:
        lengths = {int(length): float(share) for length, share in (part.split(":") for part in text.split(","))}
    except ValueError:
        lengths = {}
    if not lengths or min(lengths) < 8 or min(lengths.values()) < 0:
        raise Refused(f"--lengths is {text!r}: write tokens (8 or more) and shares, as in 32:0.15,128:0.85")
    return lengths


def _parse_held_out(text: str) -> Path | float:
    """Return a share, or else the path of a file. Raises Refused if there is no such file."""
    try:
        return float(text)
    except ValueError:
        path = Path(text)
    if not path.is_file():
        raise Refused(f"--held-out is {text!r}: it is neither a share, as 0.1, nor a file")
    return path
