"""The page Fine-tune: a file, start, stop, go on, what changed at each kept step, an end; and who may."""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import Refused
from bert_core.fingerprint import fingerprint
from bert_core.records import LensChange
from bert_core.run.lens import lens_change
from tests.core.test_finetune import sentences
from tests.visit import key_of, settled, visited, words
from viz_app.figures.tuning import alike_depths, tuning_lines
from viz_app.finetuning import runs as processes
from viz_app.finetuning.examples import example_file
from viz_app.finetuning.material import KINDS, FinetuneRequest, column_names, kind_of, label_choices, read_upload
from viz_app.finetuning.recorded import recorded_run
from viz_app.finetuning.runs import TuningRun, command_arguments, create_run, list_runs
from viz_app.pages.finetune import tuned_step
from viz_app.pages.finetune.changes import equal_word_shares, load_comparison, zip_model
from viz_app.pages.finetune.page import changes_sentence, choose_step
from viz_app.pages.finetune.words import _summary
from viz_app.shell.controls import Upload
from viz_app.shell.model_names import added_models
from viz_app.shell.models import loaded_model

LONGEST_WAIT = 180.0  # seconds for a process on a busy machine


def table_of(rows: list[tuple[str, str]], header: tuple[str, ...] = ("text", "class")) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue().encode()


ROWS = sentences(400, seed=1)
TABLE = table_of(ROWS)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model_folder: Path) -> Iterator[None]:
    """Runs go into an empty folder, the tiny model is on offer, and no run outlives its test."""
    monkeypatch.setattr(processes, "RUNS", tmp_path / "runs")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder)]))
    monkeypatch.setenv("HEADLIGHT_DEVICE", "cpu")
    offered = added_models()[:]
    yield
    processes.stop_all_runs()
    added_models()[:] = offered


def page(folder: Path, **address: str) -> AppTest:
    app = visited("finetune", text="the cat sat on the mat", model=str(folder), **address)
    return settled(app, "stop_here")


def given(app: AppTest, table: bytes = TABLE, name: str = "rooms.csv") -> AppTest:
    """The page with a table that was uploaded."""
    app.session_state["tuning_table"] = Upload(name, table)
    return settled(app.run(), "stop_here")


def choose(app: AppTest, **choices: object) -> AppTest:
    for name, value in choices.items():
        app.session_state[name] = value
    return settled(app.run(), "stop_here")


def until(there: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LONGEST_WAIT
    while not there():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.1)


# ---------------------------------------------------------------------------- the whole way


def test_start_stop_go_on_and_look(tiny_model_folder: Path) -> None:
    """A run goes on in a process of its own, stops where it is asked to, goes on from there, and can be looked at."""
    app = given(page(tiny_model_folder))
    assert not app.error and f"{len(ROWS)} rows" in words(app)
    choose(app, tuning_batch=1, tuning_epochs=3, tuning_keep=4, tuning_length=24)
    settled(app.button(key="start_tuning").click().run(), "stop_here")
    assert not app.exception and not app.error, words(app)
    run = TuningRun(processes.run_folder("rooms"))
    assert app.session_state.tuned == "rooms" and run.is_running
    until(lambda: run.log.step > 30, "the first steps")
    process = processes._processes[run.folder.resolve()]
    process.send_signal(signal.SIGSTOP)  # pages take longer to be drawn than so small a run lasts
    settled(app.run(), "stop_here")
    assert any(button.key == "stop_tuning" for button in app.button)

    other = page(tiny_model_folder, tuned="rooms")  # another session sees the same run
    assert any(button.key == "stop_tuning" for button in other.button)

    app.button(key="stop_tuning").click().run()
    process.send_signal(signal.SIGCONT)
    until(lambda: not run.is_running, "the stop")
    assert run.last_line == "stopped" and not run.is_done and (run.folder / "state.pt").is_file()
    at = run.log.step
    settled(app.run(), "stop_here")
    assert f"Stopped at step {at} of 1,083" in words(app) and not app.error, words(app)

    app.button(key="go_on_tuning").click().run()
    until(lambda: run.is_done and not run.is_running, f"the end: {run.last_line}")
    assert "resuming at step" in (run.folder / "said.txt").read_text(encoding="utf-8")
    assert run.log.step == 1083 and list(run.steps) == [0, 512, 1024, 1083]

    settled(app.run(), "stop_here")
    assert not app.exception and not app.error, words(app)
    slider = app.select_slider(key=key_of(app, "tuned_step"))
    assert slider.options == [str(step) for step in list(run.steps)[1:]]
    assert "changed most: its attention differs" in words(app) and "Compared on the first 16 rows" in words(app)
    middle = list(run.steps)[1]
    choose(app, tuned_step=middle, tuned_by="importance", head=(1, 2))
    assert not app.exception and not app.error, words(app)
    assert "L1 H2, start" in "".join(chart.proto.spec for chart in app.get("plotly_chart"))
    start, then = (bert_core.load(str(run.steps[number]), device="cpu") for number in (0, middle))
    read = lens_change(start, then, start.tokenizer.encode("the cat sat on the mat"))
    others, tokens = (~read.equal).sum(1), len(read.encoding)
    said = (
        f"after L1 differs from the start for **{others[-1]} of {tokens}** tokens" if others.any() else "is the same as"
    )
    assert f"At step {middle} the top word {said}" in words(app)
    same = equal_word_shares(load_comparison(run, run.steps, middle)).compute(lambda *_: None)
    typed = [
        lens_change(start, then, encoding).equal[:, 1:-1]
        for encoding in (start.tokenizer.encode(text, max_length=24) for text, _ in ROWS[:16])
    ]
    np.testing.assert_allclose(same, np.concatenate(typed, 1).mean(1))
    choose(app, tuned_words_of="start")
    assert not app.exception and not app.error, words(app)
    loaded = bert_core.load(zip_of(run), device="cpu")
    assert loaded.labels == ("home", "realm", "river")
    app.button(key="open_tuned").click().run()
    assert app.session_state.model == str(run.folder)
    assert [one.name for one in list_runs()] == ["rooms"]

    settled(page(tiny_model_folder).run(), "stop_here")
    app = settled(visited("finetune", text="the cat sat", model=str(run.folder), tuned="rooms"), "stop_here")
    assert "choose another in the sidebar first" in words(app)
    assert not any(button.key == "delete_tuned_now" for button in app.button)
    app = page(tiny_model_folder, tuned="rooms")
    settled(app.button(key="delete_tuned_now").click().run(), "stop_here")
    assert not app.exception and not app.error and app.session_state.tuned == "", words(app)
    assert not run.folder.exists() and list_runs() == [] and str(run.folder) not in added_models()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "kept_head", "scores"),
    [("tags", "has_tagger", ("F1 of spans", "accuracy of words")), ("answers", "has_reader", ("exact match", "F1"))],
)
def test_tags_and_answers_are_learned_too(
    tiny_model_folder: Path, kind: str, kept_head: str, scores: tuple[str, ...]
) -> None:
    """A file of words with tags, or of questions, becomes a model with that head; the scores drawn are the log's."""
    name = KINDS[kind].example_file
    app = given(page(tiny_model_folder), example_file(kind), name)
    choose(app, tuning_epochs=1, tuning_keep=2, tuning_length=32, tuning_room=48)
    settled(app.button(key="start_tuning").click().run(), "stop_here")
    assert not app.exception and not app.error, words(app)
    run = TuningRun(processes.run_folder(Path(name).stem))
    until(lambda: run.is_done and not run.is_running, f"the end: {run.last_line}")
    settled(app.run(), "stop_here")
    assert not app.exception and not app.error, words(app)
    figures = run.log.held_out[-1][1]
    for figure, called in KINDS[kind].scores.items():
        assert called in scores and f"{called} {figures[figure]:.1%}" in words(app)
    assert f"Compared on the first 16 {KINDS[kind].unit}" in words(app) and "masked-token loss" in words(app)
    assert getattr(bert_core.load(str(run.folder), device="cpu"), kept_head)


def zip_of(run: TuningRun) -> str:
    place = run.folder.parent / "taken.zip"
    place.write_bytes(zip_model(run.folder))
    return str(place)


def test_a_step_that_was_let_go_of_is_another(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a run thins its steps while the page looks at one, the page goes on with the nearest that is kept."""
    run = create_run(
        "short", FinetuneRequest(str(tiny_model_folder), "rooms.csv", "text", "class", epochs=1, keep=4), TABLE
    )
    run.start()
    until(lambda: run.is_done and not run.is_running, f"the end: {run.last_line}")
    first, *_, before, last = run.steps
    gone = run.steps[before]

    def thinned(run: TuningRun, steps: dict[int, Path], number: int) -> object:
        if number == before:
            shutil.rmtree(gone, ignore_errors=True)
        return load_comparison(run, steps, number)

    monkeypatch.setattr("viz_app.pages.finetune.page.load_comparison", thinned)
    app = page(tiny_model_folder, tuned="short", tuned_step=str(before))
    assert not app.exception and not app.error, words(app)
    assert app.session_state.tuned_step in run.steps and before not in run.steps and last > first == 0


@pytest.mark.slow
def test_a_run_that_is_made_again_under_its_name_opens_with_its_own_weights(tiny_model_folder: Path) -> None:
    """Deleted and begun anew, with other classes: what opens on all pages is what the second run has learned."""
    names = (("home", "realm", "river"), ("one", "two", "three"))
    opened = []
    for classes in names:
        table = table_of([(text, classes[names[0].index(label)]) for text, label in ROWS[:60]])
        run = create_run(
            "same", FinetuneRequest(str(tiny_model_folder), "rooms.csv", "text", "class", epochs=1, keep=2), table
        )
        run.start()
        until(lambda run=run: run.is_done and not run.is_running, f"the end: {run.last_line}")
        app = page(tiny_model_folder, tuned="same")
        app.button(key="open_tuned").click().run()
        app = settled(visited("predict", text="the cat sat", model=str(run.folder)))
        assert not app.exception and not app.error, words(app)
        charts = "".join(chart.proto.spec for chart in app.get("plotly_chart"))
        assert all(name in charts for name in classes), charts[:500]
        opened.append(loaded_model(str(run.folder)))
        app = page(tiny_model_folder, tuned="same")
        settled(app.button(key="delete_tuned_now").click().run(), "stop_here")
        assert not run.folder.exists()
    assert [loaded.labels for loaded in opened] == [tuple(sorted(classes)) for classes in names]


# ---------------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("kind", "many", "learned"),
    [("classes", "200 rows", {}), ("tags", "200 sentences", {"label": "last"}), ("answers", "200 questions", {})],
)
def test_an_empty_page_offers_examples(tiny_model_folder: Path, kind: str, many: str, learned: dict[str, str]) -> None:
    """Without a file the page says what it needs, and a click brings one of each kind that can be learned."""
    app = page(tiny_model_folder)
    assert "Upload a file, or try made-up examples" in words(app)
    app.button(key=f"tuning_example_{kind}").click()
    settled(app.run(), "stop_here")
    assert many in words(app) and not app.error and not app.exception
    name = KINDS[kind].example_file
    asked = FinetuneRequest("x", name, **(learned or {"text": "text", "label": "class"} if kind != "answers" else {}))
    found = read_upload(Upload(name, example_file(kind)), asked)
    assert len(found.texts) == 200 and set(found.labels) == ({"good", "bad"} if kind == "classes" else set())


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (table_of([("a cat", "pet"), ("a dog", "pet")]), "Every row has the same class"),
        (table_of([("a cat", "pet"), ("a king", "ruler"), ("a dog", "pet")]), "has one row"),
        (table_of([("a cat", "pet"), ("a dog", "")]), "have an empty field in the column"),
        (b"text\na cat\n", "a text and its class are needed"),
        (b"", "is empty: there is no text in it"),
        (b"text,class\na cat\n", "has 1 fields and the header 2"),
        (b"text,class\n\xff\xfe,b\n", "is not UTF-8"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_is_one_sentence(tiny_model_folder: Path, table: bytes, why: str) -> None:
    """What is wrong stands on the page before anything starts, and what was chosen stays."""
    app = given(page(tiny_model_folder), table)
    assert not app.exception and [one for one in app.error if why in one.value.replace("\\", "")], words(app)
    assert app.session_state["tuning_table"].name == "rooms.csv" and not processes.RUNS.exists()


@pytest.mark.parametrize("name", ["", "../out", "a/b", ".hidden", "taken"])
def test_a_name_that_cannot_be(tiny_model_folder: Path, name: str) -> None:
    """A run has a folder of its own below `runs`, and nothing is written elsewhere, or over what is there."""
    (processes.RUNS / "taken").mkdir(parents=True)
    app = choose(given(page(tiny_model_folder)), tuning_name=name)
    settled(app.button(key="start_tuning").click().run(), "stop_here")
    assert len(app.error) == 1 and not app.exception
    assert list(processes.RUNS.rglob("*")) == [processes.RUNS / "taken"]


def test_a_run_that_fails_says_why(tiny_model_folder: Path) -> None:
    """The last words of the process stand on the page, which offers to go on."""
    run = create_run("wrong", FinetuneRequest(str(tiny_model_folder / "nothing"), "rooms.csv", "text", "class"), TABLE)
    run.start()
    until(lambda: not run.is_running, "the end")
    app = page(tiny_model_folder, tuned="wrong")
    assert run.failure and any("nothing" in one.value for one in app.error), words(app)
    assert any(button.key == "go_on_tuning" for button in app.button)


def test_a_run_starts_beside_an_earlier_one(tiny_model_folder: Path) -> None:
    """With the selection of runs on the page, a new run is selected as soon as it has started."""
    create_run("first", FinetuneRequest(str(tiny_model_folder), "rooms.csv", "text", "class"), TABLE)
    app = given(page(tiny_model_folder))
    assert app.session_state.tuned == ""
    choose(app, tuning_epochs=1, tuning_keep=2, tuning_length=24)
    settled(app.button(key="start_tuning").click().run(), "stop_here")
    assert not app.exception and not app.error, words(app)
    assert app.session_state.tuned == "rooms" and app.query_params["tuned"] == "rooms"


@pytest.mark.slow
def test_one_run_at_a_time(tiny_model_folder: Path) -> None:
    """While one goes on no other begins, and that is said."""
    asked = FinetuneRequest(str(tiny_model_folder), "rooms.csv", "text", "class", batch=1, epochs=5)
    first, second = create_run("first", asked, TABLE), create_run("second", asked, TABLE)
    first.start()
    with pytest.raises(Refused, match="the run 'first' is in progress"):
        second.start()
    first.stop()
    until(lambda: not first.is_running, "the stop")


def test_others_see_no_such_page(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server that others reach the page is not there, and nothing can be begun or written."""
    run = create_run("mine", FinetuneRequest(str(tiny_model_folder), "rooms.csv", "text", "class"), TABLE)
    monkeypatch.setenv("HEADLIGHT_SHARED", "1")
    app = visited("finetune", text="the cat sat on the mat")
    assert "Recorded on" not in words(app)
    with pytest.raises(Refused, match="this machine alone"):
        run.start()
    with pytest.raises(Refused, match="this machine alone"):
        create_run("other", run.request, TABLE)
    with pytest.raises(Refused, match="this machine alone"):
        run.delete()


@pytest.mark.slow
def test_only_a_run_of_the_page_is_deleted(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Not one that goes on, not a folder elsewhere, not what a link leads to, and not a folder that is no run."""
    run = create_run(
        "one", FinetuneRequest(str(tiny_model_folder), "rooms.csv", "text", "class", batch=1, epochs=5), TABLE
    )
    run.start()
    with pytest.raises(Refused, match="is in progress"):
        run.delete()
    run.stop()
    until(lambda: not run.is_running, "the stop")
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(run.folder, elsewhere)
    (processes.RUNS / "link").symlink_to(elsewhere, target_is_directory=True)
    (processes.RUNS / "other").mkdir()
    for folder in (elsewhere, processes.RUNS / "link", processes.RUNS / "other", processes.RUNS / ".." / "elsewhere"):
        with pytest.raises(Refused, match="is no run of this page"):
            TuningRun(folder).delete()
        assert folder.is_dir()
    (processes.RUNS / "other" / "run.json").write_text('{"mine": 1}', encoding="utf-8")
    with pytest.raises(Refused, match="is not what this page writes"):
        TuningRun(processes.RUNS / "other").delete()
    run.delete()
    assert not run.folder.exists() and (elsewhere / "run.json").is_file()


# ---------------------------------------------------------------------------- parts


def test_a_run_is_the_command(tiny_model_folder: Path) -> None:
    """What a process is called with says all that was asked, each in one word, so that a column may be called -x."""
    asked = FinetuneRequest("start", "t.csv", "-x", "y", "--pair", keep=5, held_out=0.2)
    said = command_arguments(Path("runs/one"), asked)
    assert said[:2] == ["finetune", "runs/one/table.csv"]
    assert {"--text=-x", "--pair=--pair", "--keep=5", "--held-out=0.2", "--device=cpu"} <= set(said)
    run = create_run("one", asked, table_of([("a", "b", "p"), ("c", "d", "q")] * 4, ("-x", "--pair", "y")))
    assert run.request == asked and list_runs() == [run]
    (run.folder / "run.json").write_text('{"other": 1}', encoding="utf-8")
    with pytest.raises(Refused, match="is not what this page writes"):
        _ = run.request


def test_the_ending_of_a_file_says_what_is_learned(tiny_model_folder: Path) -> None:
    """As for the command; a run keeps its file under the same ending, and says what is asked of words or questions."""
    assert [kind_of(name).name for name in ("A.CSV", "b.json", "c.conllu", "d.txt")] == [
        KINDS[name].name for name in ("classes", "answers", "tags", "tags")
    ]
    names = FinetuneRequest(str(tiny_model_folder), "names.CONLL", label="2", word=1)
    run = create_run("names", names, example_file("tags"))
    assert (
        run.table_file.name == "table.conll"
        and run.request == names
        and run.table_file.read_bytes() == example_file("tags")
    )
    said = command_arguments(run.folder, names)
    assert {"--label=2", "--word=1"} <= set(said) and not any(one.startswith(("--text", "--skip")) for one in said)
    asked = FinetuneRequest(str(tiny_model_folder), "q.json", skip_broken=True)
    assert command_arguments(run.folder, asked)[-1] == "--skip-broken"


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.conll", b"Anna\n", "a word and its tag are needed"),
        ("a.conll", b"Anna\tO\n\nTom\tO\n", "every word of a.conll has the same label"),
        ("a.conllu", b"Anna\tO\n", "a.conllu"),
        ("a.json", b"[1]", "'data' is missing in a.json"),
        ("a.json", b'{"data": []}', "has no usable question"),
        ("a.json", b"{", "is not a JSON file"),
    ],
)  # fmt: skip
def test_words_or_questions_that_cannot_be_used_are_one_sentence(
    tiny_model_folder: Path, name: str, data: bytes, why: str
) -> None:
    """What is wrong with a file of another kind stands on the page before anything starts."""
    app = given(page(tiny_model_folder), data, name)
    assert not app.exception and len(app.error) == 1 and not processes.RUNS.exists()
    assert why.lower() in app.error[0].value.replace("\\", "").lower()


def test_labels_are_those_of_the_file() -> None:
    """Of a treebank by name; of columns by number, the last one first."""
    tree = b"# text = a cat\n1\ta\ta\tDET\t_\t_\t2\tdet\t_\t_\n2\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    assert label_choices(Upload("t.conllu", tree)) == ["upos", "relation"]
    assert label_choices(Upload("t.conll", b"Anna NNP O\n")) == ["last", "1", "2", "3"]


def test_columns_are_those_of_the_header() -> None:
    """Commas or semicolons, with a mark of UTF-8 in front; no two of one name."""
    assert column_names(Upload("t.csv", "\ufefftext; class\na;b\n".encode())) == ["text", "class"]
    assert column_names(Upload("t.csv", b'"a, b",c\n')) == ["a, b", "c"]
    with pytest.raises(Refused, match="has the columns a, a"):
        column_names(Upload("t.csv", b"a,a\n"))


def test_the_words_that_changed_are_counted_in_a_sentence(tiny_model_folder: Path) -> None:
    """At the last depth, and at the depth where most did; that none did is said too."""
    encoding = bert_core.load(str(tiny_model_folder), device="cpu").tokenizer.encode("the cat sat")
    shape, same = (3, len(encoding)), np.zeros((3, len(encoding)), np.int32)
    ones = np.ones(shape, np.float32)

    def said(*changed: int) -> str:
        after = same.copy()
        for depth, many in enumerate(changed):
            after[depth, :many] = 1
        return _summary(LensChange(encoding, same, after, ones, ones, ones), 8)

    assert said(0, 0, 0) == "At step 8 the top word is the same as at the start for every token and depth."
    start = "At step 8 the top word after L1 differs from the start for **3 of 5** tokens"
    assert said(0, 1, 3) == f"{start}, more than at any other depth."
    assert said(0, 4, 3) == f"{start}; most differ after L0 (4)."


def test_the_page_opens_on_the_recorded_run(tiny_model_folder: Path) -> None:
    """Curves, heads, maps and CKA at the last kept step; the slider shows the others, and the form is there too."""
    recorded = recorded_run()
    loaded = bert_core.load(recorded.model, device="cpu")
    assert recorded.fingerprint == fingerprint(loaded), "run `python -m tools.recorded_results finetuning` again"
    app = page(tiny_model_folder)
    assert not app.exception and not app.error, words(app)
    first, *_, last = recorded.maps
    slider = app.select_slider(key=key_of(app, "tuned_step"))
    assert slider.value == last and first == 0 and len(app.get("plotly_chart")) == 5
    sentence = changes_sentence(
        last, recorded.log, recorded.request.kind, recorded.divergence[last], recorded.cka[last]
    )
    assert sentence in words(app) and f"Recorded on {recorded.date}" in words(app)
    assert f"L{recorded.head[0]} H{recorded.head[1]} changed most" in sentence
    earlier = list(recorded.maps)[1]
    choose(app, tuned_step=earlier)
    assert f"Step {earlier} of {recorded.log.steps}" in words(app) and not app.exception


def test_the_slider_follows_a_run_to_its_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever watches a run sees its last step when it ends; whoever chose another step keeps it."""
    state: dict[str, object] = {"tuned_step": 0}
    monkeypatch.setattr("viz_app.pages.finetune.page.st", SimpleNamespace(session_state=state))
    monkeypatch.setattr("viz_app.shell.params.st.session_state", state, raising=False)
    monkeypatch.setattr(type(tuned_step), "__call__", lambda self, **_: state["tuned_step"])
    assert [choose_step(dict.fromkeys(range(count), None)) for count in (2, 3, 5)] == [1, 2, 4]
    state["tuned_step"] = 2
    assert [choose_step(dict.fromkeys(range(count), None)) for count in (6, 9)] == [2, 2]


def test_the_pictures_hold_what_they_are_given() -> None:
    """Lines over all steps; cells of each pair of depths, rows from below, with the exact figure on hover."""
    lines = tuning_lines({"training": ([1, 2], [0.5, 0.25])}, steps=9, title="loss")
    assert lines.data[0].y == (0.5, 0.25) and lines.layout.xaxis.range == (0, 9)
    values = np.array([[1.0, 0.25], [0.5, 1.0000001]])
    cells = alike_depths(values, ["emb.", "L0"], ["emb.", "L0"], rows="one", columns="two")
    assert [text.split("CKA ")[1] for text in cells.data[1].hovertext] == [f"{value:.6f}" for value in values.flat]
    with pytest.raises(ValueError, match="one of each"):
        alike_depths(values, ["emb."], ["emb.", "L0"], rows="one", columns="two")
