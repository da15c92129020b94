"""The commands for authors of lessons."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bert_core.refused import Refused
from viz_app.cli import shared
from viz_app.cli.help import OUTPUT, Command, Group
from viz_app.cli.shared import file_argument, option

if TYPE_CHECKING:
    from viz_app.lessons import Lesson

TEMPLATE = Path(__file__).with_name("lesson_template.toml")

app = typer.Typer(cls=Group, help="Write your own lessons for the page Lessons.", rich_markup_mode=None)


@app.command(cls=Command, epilog="headlight lessons new my_lesson")
def new(
    name: Annotated[str, typer.Argument(help="Name of the file without .toml, and of the lesson in addresses.")],
) -> None:
    """Write a template, a complete lesson with comments."""
    from viz_app.lessons.parsing import NAME

    if not NAME.fullmatch(name):
        raise Refused(f"NAME is {name[:60]!r}: a small letter first, then small letters, figures and _, 40 at most")
    file = Path(f"{name}.toml")
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(TEMPLATE.read_text("utf-8"))
    except FileExistsError as error:
        raise Refused(f"there is a file {str(file)!r} already: choose another name, or take it away") from error
    typer.echo(f"{file}: change it, then\n  headlight lessons check {file}\n  headlight app --lessons .")


@app.command(cls=Command, epilog="headlight lessons export follows --out follows.html")
def export(
    name: Annotated[str, typer.Argument(help="Name of a bundled lesson, or a .toml file.")],
    out: Annotated[Path, option("Output file, .html.", group=OUTPUT)],
    model: shared.ModelName = shared.DEFAULT_MODEL,
    lang: Annotated[str, option("Language: en or de.")] = "en",
    device: shared.Device = "auto",
) -> None:
    """Export a lesson as one HTML page that works offline.

    The page has the question, takes the reader's answer, and shows the result.
    """
    from viz_app.lessons.parsing import lesson_of
    from viz_app.texts import LANGUAGES

    shared.check_output(out, kinds=("html",))
    if lang not in LANGUAGES:
        raise Refused(f"--lang is {lang[:60]!r}: one of {', '.join(LANGUAGES)}")
    if name.endswith(".toml"):
        lesson = _file_lesson(Path(name), lang)
    else:
        try:
            lesson = lesson_of(name, lang)
        except Refused as error:
            raise Refused(f"there is no lesson {name[:60]!r}: {error}, or a file that ends in .toml") from error
    from viz_app.shell.handouts import handout_of

    page = handout_of(lesson, shared.load(model, device), lang).encode()
    shared.write_file(out, page)
    typer.echo(f"{out}: {lesson.title}, {len(page) / 1e3:.0f} kB")


def _file_lesson(file: Path, lang: str) -> Lesson:
    """Return the lesson of a file, translated if it has a translation. Raises Refused for the first fault."""
    from viz_app.lessons.parsing import parse_file, parse_translation, translation_files

    lesson, faults = parse_file(file)
    for tag, words in translation_files(file):
        if tag == lang and lesson is not None:
            lesson, faults = parse_translation(lesson, words)
    if lesson is None:
        raise Refused(faults[0].message)
    return lesson


@app.command(cls=Command, epilog="headlight lessons check my_lesson.toml")
def check(
    files: Annotated[list[Path], file_argument("Lessons, .toml.")],
    model: shared.ModelName = shared.DEFAULT_MODEL,
    device: shared.Device = "auto",
) -> None:
    """Check lessons on a model.

    Prints faults with their lines, the correct answers, and the texts that students see.
    """
    from viz_app.lessons.parsing import line_of, parse_file, parse_translation, translation_files
    from viz_app.pages import PAGES
    from viz_app.shell.lesson_check import check_lesson
    from viz_app.streamlit_compat import CONTEXT_LOGGER

    # Streamlit's caches warn about a missing page.
    logging.getLogger(CONTEXT_LOGGER).setLevel(logging.ERROR)
    pages, loaded = {page.path: page for page in PAGES}, None
    faulty_count = 0
    for file in files:
        lesson, faults = parse_file(file)
        for fault in faults:
            shared.note(f"{file}:{fault.line}: {fault.message}")
        is_faulty = bool(faults)
        if lesson is not None:
            loaded = loaded or shared.load(model, device)
            typer.echo(f"{file}: {lesson.title}, on {loaded.name}")
            for _, words in translation_files(file):
                for fault in parse_translation(lesson, words)[1]:
                    shared.note(f"{words}:{fault.line}: {fault.message}")
                    is_faulty = True
            text = file.read_text("utf-8")
            for finding in check_lesson(lesson, loaded, pages):
                if finding.is_fault:
                    shared.note(f"{file}:{line_of(text, finding.key)}: {finding.key} {finding.message}")
                else:
                    typer.echo(f"  {finding.key}: {finding.message}")
                is_faulty = is_faulty or finding.is_fault
        faulty_count += is_faulty
    if faulty_count:
        message = f"{faulty_count} of {len(files)} lessons have faults"
        raise Refused(message if len(files) > 1 else "the lesson has faults")
