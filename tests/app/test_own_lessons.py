"""Lessons that a teacher writes: made, tried, and served from a folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.visit import settled, visited, words
from viz_app.cli import main
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.parsing import FOLDER, NAME, OWN_LESSONS, folder_faults, lessons, line_of, parse_file
from viz_app.moved_pages import MOVED_PAGES

DOCS = Path(__file__).parents[2] / "docs"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """What a command ends with, and what it says on stdout and on stderr."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A teacher's folder, served, with one lesson in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(OWN_LESSONS, str(tmp_path))
    assert said(capsys, "lessons", "new", "mine")[0] == 0
    return tmp_path


@pytest.fixture
def served_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, with the repository as the current folder, from which Streamlit reads its settings."""
    monkeypatch.chdir(DOCS.parent)
    return folder


def changed(folder: Path, *pairs: tuple[str, str]) -> Path:
    """The lesson of the folder, with something else in its file."""
    file = folder / "mine.toml"
    text = file.read_text("utf-8")
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    file.write_text(text, "utf-8")
    return file


def test_a_new_lesson_works_and_a_file_that_is_there_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is written has no fault on the bundled model, and says what is true; its name must be one."""
    status, out, err = said(capsys, "lessons", "check", "mine.toml")
    assert (status, err) == (0, "")
    assert "predict: right: “milk”" in out and "do: at first the panel says: So far the first guess is still" in out
    before = (folder / "mine.toml").read_bytes()
    status, _, err = said(capsys, "lessons", "new", "mine")
    assert status == 2 and "there is a file 'mine.toml' already" in err
    assert (folder / "mine.toml").read_bytes() == before
    for name in ("../up", "Mine", "", "a" * 41, "mine.toml"):
        status, _, err = said(capsys, "lessons", "new", name)
        assert status == 2 and "a small letter first" in err and err.count("\n") == 1, name


def test_every_fault_is_named_with_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not only the first: each line of what is said leads to the line that must be mended."""
    file = changed(
        folder, ("minutes = 6", "minutes = 600"), ('check = "guess_changes"', 'check = "luck"'),
        ("{drop:.2f}", "{luck}"), ('label = "After', 'labels = "After'), ("hint =", "hints ="),
    )  # fmt: skip
    status, out, err = said(capsys, "lessons", "check", str(file))
    assert status == 2 and out == ""
    lines = file.read_text("utf-8").splitlines()
    found = re.findall(r"^.*mine\.toml:(\d+): (.*)$", err, re.MULTILINE)
    wanted = {
        "minutes is 600: 1 to 60": "minutes = 600", "do.check is 'luck'": 'check = "luck"',
        "reveal.right names {luck}": "{luck}", "free[0].label is missing": "[[free]]",
        "free[0].labels is not known": "labels =", "predict.hints is not known": "hints =",
    }  # fmt: skip
    assert len(found) == len(wanted), err
    for number, says in found:
        (line,) = (line for start, line in wanted.items() if start in says)
        assert line in lines[int(number) - 1], (number, says)
    assert err.rstrip().endswith("the lesson has faults")


def test_lines_are_found_in_tables_and_lists_of_them() -> None:
    """The line of a key, of the table that lacks it, or none."""
    text = "a = 1\n[do]\nb = 1\n[[free]]\nc = 1\n[[free]]\nc = 2\n[predict]\naddress = { text = 'x' }\n"
    keys = ("a", "do.b", "do.x", "free[0].c", "free[1].c", "free[1].x", "predict.address.text", "z")
    assert [line_of(text, key) for key in keys] == [1, 3, 2, 5, 7, 6, 9, 0]


def test_a_lesson_that_names_the_old_path_of_a_page_opens_the_page(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For every page that moved: the lesson has no fault, and leads to the new path."""
    for old, new in MOVED_PAGES.items():
        (folder / "mine.toml").unlink()
        assert said(capsys, "lessons", "new", "mine")[0] == 0
        file = changed(folder, ('page = "layers"', f'page = "{old}"'))
        assert said(capsys, "lessons", "check", str(file))[0] == 0
        (lesson,) = (lesson for lesson in lessons() if lesson.name == "mine")
        assert [way.view.page for way in lesson.free][:1] == [new]


@pytest.mark.parametrize(
    ("old", "new", "key", "says"),
    [
        ('page = "why"', 'page = "where"', "reveal.page", "the page 'where' is not there: one of start, predict, "),
        ('method = "occlusion"', 'method = "luck"', "reveal.address", "method='luck' is not possible: "),
        ('masked = "5" }\n# An empty', 'masked = "" }\n# An empty', "predict.check", "mask exactly one short word"),
        ('masked = "5" }\nsays = "Click', 'masked = "5,7" }\nsays = "Click', "do.address", "before anything was done"),
    ],
)
def test_what_only_a_model_and_the_pages_know_is_a_fault_too(
    folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, key: str, says: str
) -> None:
    """A page or a choice that is not there, a text that cannot be asked about, a step that is done already."""
    status, _, err = said(capsys, "lessons", "check", str(changed(folder, (old, new))))
    assert status == 2 and f"{key} " in err and says in err and "Traceback" not in err, err


def test_a_lesson_without_a_right_or_a_wrong_answer_is_a_fault(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A choice in which the truth is missing, or in which all is true, teaches nothing."""
    text = (FOLDER / "one_head.toml").read_text("utf-8")
    for old, new, says in (
        ("least = 25", "least = 26", "has no right answer among the 4 that can be given"),
        ("least = 0\nmost = 9\n", "least = 0\nmost = 10000\n", ""),
    ):
        assert old in text
        (folder / "other.toml").write_text(text.replace(old, new, 1), "utf-8")
        status, _, err = said(capsys, "lessons", "check", "other.toml")
        assert (status, says in err) == (2 if says else 0, True), err


def test_the_lessons_of_a_folder_stand_on_the_page_and_are_read_again(served_folder: Path) -> None:
    """Under a heading of their own; a changed file is seen at once, a broken one is named, and nothing else is lost."""
    app = settled(visited("learn"))
    assert "From your teacher" in [heading.value for heading in app.subheader]
    next(button for button in app.button if button.key == "begin_mine").click()
    settled(app.run())
    assert app.session_state.lesson == "mine" and "Which word, if it were masked too" in words(app)
    changed(served_folder, ('title = "The missing word"', 'title = "<b>Another</b> [x](http://y)"'))
    app = settled(visited("learn"))
    assert "Another" in words(app) and not app.warning
    assert any(r"\[x\]" in text.value for text in app.markdown), "as it is written, and no link"
    open_ = settled(visited("predict", text="He drank a cup of tea with milk.", masked="5", lesson="mine"))
    changed(served_folder, ("minutes = 6", "minutes = 600"))
    settled(open_.run())
    assert not open_.exception and not open_.error and open_.session_state.lesson == ""
    app = settled(visited("learn"))
    (warning,) = app.warning
    assert "mine.toml: minutes is 600: 1 to 60" in warning.value.replace("\\", "")
    assert (
        len([button for button in app.button if str(button.key).startswith("begin_") and button.key != "begin_next"])
        == len(lessons())
        > 3
    )


def test_files_that_are_no_lessons_are_said_and_do_no_harm(folder: Path) -> None:
    """A name of a lesson that comes along, bytes, a folder, far too much, tables without end."""
    (folder / "both_sides.toml").write_text((folder / "mine.toml").read_text("utf-8"), "utf-8")
    (folder / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    (folder / "large.toml").write_text("a = '" + "x" * (1 << 20) + "'", "utf-8")
    (folder / "deep.toml").write_text("a = " + "[" * 100_000, "utf-8")
    (folder / "folder.toml").mkdir()
    (folder / "Not A Name.toml").write_text("", "utf-8")
    said_ = "\n".join(folder_faults())
    for part in (
        "both_sides.toml: a lesson of this name comes along", "bytes.toml is no text in UTF-8", "large.toml has 1,04",
        "deep.toml is no TOML file", "folder.toml cannot be read", "Not A Name.toml: the name of a lesson has",
    ):  # fmt: skip
        assert part in said_, (part, said_)
    assert [lesson.name for lesson in lessons() if lesson.course == 4] == ["mine"]


def test_the_guide_names_every_check_with_its_figures() -> None:
    """The reference lists the checks that there are, and each command of the tutorial exists."""
    guide, reference = (
        (DOCS / name).read_text("utf-8") for name in ("tutorials/write-a-lesson.md", "reference/lesson-checks.md")
    )
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", reference, re.MULTILINE))
    assert rows.keys() == CHECKS.keys()
    for name, check in CHECKS.items():
        _, *cells = rows[name].split(" | ")
        parts = (check.answers, check.words, check.numbers, check.bars)
        assert cells == [", ".join(part) or "-" for part in parts], name
    for command in re.findall(r"^\d\. .*?`headlight (.*?)`", guide, re.MULTILINE):
        assert command.split()[0] in ("lessons", "app"), command
    assert NAME.fullmatch("my_lesson") and parse_file(FOLDER / "both_sides.toml")[1] == []
