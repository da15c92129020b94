"""How long the tests take: seconds by folder, by file, and of the slowest tests.

    python benchmarks/durations.py                            run `make test-all` and print its table
    python benchmarks/durations.py --section "After"          also put it into tests.md, as the section of that name
    python benchmarks/durations.py --reports A.xml B.xml      read reports of `pytest --junitxml` and run nothing
    python benchmarks/durations.py --quick                    run one small test file, to try a change of this script

The seconds of a test are those of its setup, its call and its teardown. A fixture that several tests share counts
towards the test that first needs it. Processes run beside each other, so the sum is larger than the elapsed time.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tables import parse_arguments

ROOT = Path(__file__).parents[1]
DOCUMENT = Path(__file__).with_name("tests.md")
SLOWEST = 50  # tests that are listed one by one


def run_tests(folder: Path, quick: bool) -> list[Path]:
    """Run the suite as the Makefile does, with a report for each of its runs of pytest."""
    if quick:
        report = folder / "quick.xml"
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/core/test_scenes.py", f"--junitxml={report}"],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return [report]
    subprocess.run(["make", "test-all", f"REPORTS={folder}"], cwd=ROOT, check=False)
    return sorted(folder.glob("*.xml"))


def read_durations(reports: Sequence[Path]) -> dict[tuple[str, str], float]:
    """Seconds by test file and test name; a test that several reports name counts once for each."""
    seconds: Counter[tuple[str, str]] = Counter()
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            file = case.get("classname", "").replace(".", "/") + ".py"
            seconds[file, case.get("name", "")] += float(case.get("time", "0"))
    return dict(seconds)


def elapsed_seconds(reports: Sequence[Path]) -> float:
    """Seconds from start to end of all reports, one after another."""
    return sum(
        float(suite.get("time", "0")) for report in reports for suite in ElementTree.parse(report).iter("testsuite")
    )


def escape_cell(text: str) -> str:
    """Text that a cell of a Markdown table shows as it is, on one line, without HTML."""
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return re.sub(r"([|`<>\\])", r"\\\1", printable if len(printable) <= 110 else f"{printable[:107]}...")


def durations_table(reports: Sequence[Path]) -> str:
    """The three tables as Markdown."""
    seconds = read_durations(reports)
    folders: Counter[str] = Counter()
    files: Counter[str] = Counter()
    in_folder: Counter[str] = Counter()
    in_file: Counter[str] = Counter()
    for (file, _), duration in seconds.items():
        folder = str(Path(file).parent)
        folders[folder] += duration
        files[file] += duration
        in_folder[folder] += 1
        in_file[file] += 1
    lines = [
        f"{len(seconds):,} tests, {sum(seconds.values()):,.0f} s in all processes, "
        f"{elapsed_seconds(reports) / 60:.1f} min elapsed.",
        "",
        "| folder | tests | seconds |", "| --- | ---: | ---: |",
        *(f"| {folder} | {in_folder[folder]:,} | {total:,.0f} |" for folder, total in folders.most_common()),
        "",
        "| file | tests | seconds |", "| --- | ---: | ---: |",
        *(f"| {file} | {in_file[file]:,} | {total:,.1f} |" for file, total in files.most_common()),
        "",
        f"The {SLOWEST} slowest tests:",
        "",
        "| test | seconds |", "| --- | ---: |",
    ]  # fmt: skip
    slowest = sorted(seconds.items(), key=lambda item: -item[1])[:SLOWEST]
    lines += [f"| {file} {escape_cell(name)} | {duration:.1f} |" for (file, name), duration in slowest]
    return "\n".join(lines) + "\n"


def write_section(name: str, table: str) -> None:
    """Replace the section of a name in tests.md, or add it at the end."""
    text = DOCUMENT.read_text(encoding="utf-8")
    section = f"## {name}\n\n{table}"
    start = text.find(f"## {name}\n")
    if start < 0:
        DOCUMENT.write_text(f"{text.rstrip()}\n\n{section}", encoding="utf-8")
        return
    end = text.find("\n## ", start)
    DOCUMENT.write_text(text[:start] + section + (text[end:] if end >= 0 else ""), encoding="utf-8")


def main() -> None:
    """Read the options, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", nargs="+", type=Path, help="reports of pytest --junitxml to read instead of a run")
    parser.add_argument("--section", metavar="NAME", help="the section of tests.md that the table becomes")
    options = parse_arguments(parser, table=False)
    if options.quick and options.section:
        parser.error("--quick measures too little to be written: leave out --section")
    with tempfile.TemporaryDirectory() as folder:
        table = durations_table(options.reports or run_tests(Path(folder), options.quick))
    print(table)
    if options.section:
        write_section(options.section, table)


if __name__ == "__main__":
    main()
