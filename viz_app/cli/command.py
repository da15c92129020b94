"""All commands by their names. Invalid input is one sentence on stderr and exit code 2; a bug is exit code 1."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from bert_core.refused import Refused
from bert_core.unknown_tokens import count_unknown_tokens
from viz_app.bugs import NO_MEMORY, lacks_memory, versions
from viz_app.cli import (
    aliases,
    bias,
    compare,
    direct,
    draw,
    evaluate,
    explain,
    export_onnx,
    find_heads,
    ground_truth,
    heads,
    lens,
    lessons,
    neurons,
    patch,
    predict,
    probe,
    profiles,
    prune,
    query_keys,
    score,
    search,
    serve,
    similarity,
    site,
    steer,
    study,
    train,
)
from viz_app.cli.help import Command, Group
from viz_app.cli.serve import malloc_settings
from viz_app.cli.shared import note

logger = logging.getLogger(__name__)
logger.propagate = False  # bugs go to the log of the command, not to the terminal
app = typer.Typer(
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# Heading in the help -> name of a command -> its function, and an example.
COMMANDS: Mapping[str, Mapping[str, tuple[Callable[..., None], str]]] = {
    "App": {
        "app": (serve.open_app, "headlight app --port 8600"),
        "models": (serve.list_models, "headlight models"),
        "site": (site.site, "headlight site --out site"),
    },
    "Look": {
        "predict": (predict.predict, 'headlight predict "She opened the [MASK] and walked in."'),
        "attention": (draw.attention, 'headlight attention "She opened the door." --layer 3 --out attention.svg'),
        "find-heads": (find_heads.find_heads, 'headlight find-heads "She opened the door." --from door --to opened'),
    },
    "Explain": {
        "direct": (direct.direct, 'headlight direct "She opened the [MASK]." --word door --model my-modernbert'),
        "explain": (explain.explain, "headlight explain masked.txt --guess --out explained.csv"),
        "evaluate-file": (
            evaluate.evaluate_file,
            "headlight evaluate-file texts.txt --ask surprise --out evaluated.csv",
        ),
        "faithfulness": (study.faithfulness, "headlight faithfulness texts.txt --questions 20 --out table.csv"),
        "ground-truth": (ground_truth.ground_truth, "headlight ground-truth --sentences 20 --out truth.csv"),
        "lens": (lens.lens, 'headlight lens "She opened the [MASK]." --word window --out lens.svg'),
        "neurons": (neurons.neurons, "headlight neurons texts.txt --neurons 3.120,4.7 --out neurons.csv"),
        "probe": (probe.probe, "headlight probe treebank.conllu --label upos --out probes.csv"),
        "tune-lens": (train.tune_lens, "headlight tune-lens texts.txt --folder lens"),
    },
    "Intervene": {
        "heads": (heads.heads, "headlight heads texts.txt --importance --ablation --out heads.csv"),
        "patch": (patch.patch, 'headlight patch --source "She lost [MASK] hat" "He lost [MASK] hat" --word her'),
        "steer": (steer.steer, 'headlight steer words.csv "It [MASK] old." --label kind --depth 4 --word is'),
        "compare-models": (compare.compare_models, "headlight compare-models headlight-mini my-model texts.txt"),
    },
    "Corpus": {
        "roles": (heads.roles, "headlight roles treebank.conllu --out roles.csv"),
        "index": (search.index, "headlight index texts.txt --out my-index"),
        "search": (search.search, 'headlight search my-index "She opened the door." --token door'),
        "profile": (profiles.profile, "headlight profile my-index --heads 3.8 --out profiles.json"),
        "query-keys": (query_keys.query_keys, "headlight query-keys texts.txt --heads 3.8 --points points.csv"),
    },
    "Sentences": {
        "score": (score.score, 'headlight score "The keys are here." "The keys is here."'),
        "bias": (bias.bias, "headlight bias --out bias.csv"),
        "similarity": (similarity.similarity, 'headlight similarity "She opened the door." "The door was open."'),
    },
    "Train": {
        "finetune": (train.finetune, "headlight finetune reviews.csv --text review --label rating --folder my-model"),
        "pretrain": (train.pretrain, "headlight pretrain texts.txt --folder my-model --steps 4000"),
        "evaluate": (train.evaluate, "headlight evaluate headlight-mini texts.txt"),
        "prune": (prune.prune, "headlight prune --heads 0.3,2.11 --out smaller"),
        "prune-curve": (prune.prune_curve, "headlight prune-curve texts.txt --out curve.csv"),
        "export-onnx": (export_onnx.export_onnx, "headlight export-onnx --out onnx --gradients"),
        "train-captioner": (train.train_captioner, "headlight train-captioner --folder captioner"),
        "evaluate-captioner": (train.evaluate_captioner, "headlight evaluate-captioner --scenes 200"),
    },
}
for heading, entries in COMMANDS.items():
    for name, (function, example) in entries.items():
        app.command(name, cls=Command, rich_help_panel=heading, epilog=example)(function)
app.add_typer(lessons.app, name="lessons", rich_help_panel="Learn")
for former in aliases.FORMER_COMMANDS:
    app.command(former, hidden=True, cls=Command)(aliases.with_note(former))
# Commands that start again with the settings of malloc.
LONG_COMMANDS = {"faithfulness", "ground-truth", "tune-lens", *COMMANDS["Train"]} - {"prune", "prune-curve"}
ADVICE = {  # for errors of the file system
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        "make room, or choose another place; the previous file is unchanged",
    ),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "choose another place, or change the rights of this one"),
    errno.EROFS: "choose another place",
    errno.ENOTDIR: "a part of this path is a file, choose another place",
}
MAX_CHARACTERS = 100  # of a text that a message repeats


def _restart_with_malloc_settings() -> None:
    """Start this process again if glibc did not find the settings when it started; does nothing elsewhere."""
    settings = malloc_settings()
    if not os.environ.keys() >= settings.keys():
        can_block = hasattr(signal, "pthread_sigmask")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if can_block else None
        try:
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**settings, **os.environ})
        finally:  # the process could not be replaced; a new one unblocks the signal itself
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


@app.callback()
def _common_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of a bug.")] = False,
) -> None:
    """Inspect, explain, prune and train BERT models.

    `headlight COMMAND --help` lists the options of a command, with an example.
    """
    if debug:
        logging.getLogger().addHandler(logging.StreamHandler())


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code: 0, 1 for a bug, 2 for invalid input, 130 if it was aborted.

    Raises KeyboardInterrupt if it is interrupted.
    """
    arguments = list(arguments)
    if arguments in ([], ["lessons"]):
        arguments.append("--help")
    if LONG_COMMANDS & set(arguments[:2]):
        _restart_with_malloc_settings()
    try:
        with count_unknown_tokens() as counts:
            code = int(app(arguments, prog_name="headlight", standalone_mode=False) or 0)
        if counts.mostly_unknown and not counts.reported:
            note(
                f"{counts.unknown_count:,} of the {counts.token_count:,} tokens that were read are [UNK], which the "
                "model's vocabulary does not know: what was computed from them says little"
            )
        return code
    except typer.Abort:
        return 130
    except Exception as error:
        if (sentence := _error_message(error, arguments)) is None:
            _report_bug(error, arguments)
            return 1
    note(" ".join(sentence.split()))
    return 2


def _error_message(error: Exception, arguments: Sequence[str]) -> str | None:
    """Return the message of an error that is no bug of Headlight; None for a bug."""
    if isinstance(error, TyperException):
        return error.format_message() + _dash_advice(error, arguments)
    if lacks_memory(error):
        return NO_MEMORY
    if not isinstance(error, OSError):
        return str(error) if isinstance(error, Refused) else None
    if not error.filename:
        return str(error)
    advice = ADVICE.get(error.errno or 0)
    return f"{error.filename}: {error.strerror}" + (f": {advice}" if advice else "")


def _dash_advice(error: TyperException, arguments: Sequence[str]) -> str:
    """Return how to pass a text that begins with a dash and was read as an unknown option; "" for any other error."""
    if not hasattr(error, "possibilities"):  # typer exports no name for the class of unknown options
        return ""
    context, unknown = error.ctx, error.option_name  # type: ignore[attr-defined]
    parameters, words = context.command.params, list(arguments)
    if not any(parameter.param_type_name == "argument" for parameter in parameters):
        return ""
    for name in context.command_path.split()[1:]:
        words = words[words.index(name) + 1 :]
    options_by_name = {
        name: option
        for option in parameters
        if option.param_type_name == "option"
        for name in (*option.opts, *option.secondary_opts)
    }
    options, texts, remaining = [], [], iter(words)
    for word in remaining:
        if word.partition("=")[0] in options_by_name:
            has_value = "=" in word or options_by_name[word].is_flag
            options += [word] if has_value else [word, *islice(remaining, 1)]
        else:
            texts.append(word if len(word) <= MAX_CHARACTERS else word[: MAX_CHARACTERS - 1] + "…")
    if error.possibilities and not any(text.startswith(unknown) and " " in text for text in texts):
        return ""  # a misspelt option
    command = " ".join([context.command_path, *map(_quote, [*options, "--", *texts])])
    return f'; a text or name that begins with a dash comes after "--", behind all options: {command}'


def _quote(word: str) -> str:
    """Return a word as it is typed in a shell."""
    return word if re.fullmatch(r"[\w./=:,-]+", word) else '"' + re.sub(r'(["\\$`])', r"\\\1", word) + '"'


def _report_bug(error: Exception, arguments: Sequence[str]) -> None:
    """Write a bug to the log, and note on stderr that it is one, with what a report needs."""
    log_file = Path(os.environ.get("HEADLIGHT_LOG") or Path(tempfile.gettempdir(), "headlight.log"))
    handler: logging.Handler = logging.NullHandler()
    evidence = "what --debug shows"
    with suppress(OSError):  # the log cannot be written
        handler = logging.FileHandler(log_file, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        evidence = f"the end of {log_file}"
    logger.addHandler(handler)
    logger.error("%s; headlight %s", versions(), arguments_without_values(arguments), exc_info=error)
    logger.removeHandler(handler)
    handler.close()
    if "--debug" in arguments:
        traceback.print_exception(error)
    note(
        f"headlight has a bug, it is not your fault ({type(error).__name__}): please report it with this line and "
        f"{evidence}, and leave out what is private ({versions()}; headlight {arguments_without_values(arguments)}). "
        "`headlight --debug` before the command shows where it happened."
    )


def arguments_without_values(arguments: Sequence[str]) -> str:
    """Return the command and the names of its options, without their values and without texts."""
    commands = typer.main.get_group(app).commands
    name = next((argument for argument in arguments if argument in commands), None)
    if name is None:
        return "--help"
    command, names = commands[name], [name]
    subcommands = getattr(command, "commands", {})
    if (second := next((argument for argument in arguments if argument in subcommands), None)) is not None:
        command, names = subcommands[second], [name, second]
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    return " ".join([*names, *(word for argument in arguments if (word := argument.partition("=")[0]) in options)])
