"""The tests of the library and of the pages with the oldest versions that pyproject.toml allows: `make test-lowest`.

In an environment of its own, `.venv-lowest`, everything that Headlight needs has the lowest version of its range, and
the tools of the tests have the pins of constraints.txt. transformers, which results are compared with, asks for newer
versions of three of them; so the tests that need it run last, with those three raised. Tests marked `slow` are left
out: some of them import the packages of the extra `references`, which ask for newer versions too.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-lowest"
PYTHON, UV = FOLDER / "bin" / "python", FOLDER / "bin" / "uv"
TOOLS = (
    "hypothesis",
    "mypy",
    "networkx",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "ray",
    "umap-learn",
)
ORACLE = "transformers"
# The emulator of a GPU uses private parts of the torch that constraints.txt pins.
LEFT_OUT = "test_on_a_device.py"
# Packages of then call those of today by names that are now on their way out.
PYTEST = (str(PYTHON), "-m", "pytest", "-m", "not slow", "-W", "ignore::DeprecationWarning")


def main() -> None:
    """Make the environment, run both parts, and end as the worse of the two. Arguments go to pytest."""
    run(sys.executable, "-m", "venv", "--clear", str(FOLDER))
    run(str(PYTHON), "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "uv")
    asked = FOLDER / "asked.txt"
    asked.write_text("\n".join(pin(name) for name in TOOLS), encoding="utf-8")
    lowest = FOLDER / "lowest.txt"
    resolve = ("--resolution", "lowest-direct", "--quiet", "--python", str(PYTHON))
    run(str(UV), "pip", "compile", *resolve, "pyproject.toml", str(asked), "--output-file", str(lowest))
    run(str(UV), "pip", "install", "--quiet", "--python", str(PYTHON), "-r", str(lowest))
    files = sorted([*ROOT.glob("tests/core/test_*.py"), *ROOT.glob("tests/app/test_*.py")])
    files = [file for file in files if file.name != LEFT_OUT]
    last = compared(files)
    first = run(*PYTEST, *sys.argv[1:], *(str(file) for file in files if file not in last), check=False)
    run(str(UV), "pip", "install", "--quiet", "--python", str(PYTHON), pin(ORACLE))
    second = run(*PYTEST, *sys.argv[1:], *(str(file) for file in files if file in last), check=False)
    sys.exit(max(first, second))


def pin(name: str) -> str:
    """The line of constraints.txt for a package."""
    found = re.search(rf"^{name}==\S+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"constraints.txt has no version of {name}")
    return found.group()


def compared(files: list[Path]) -> set[Path]:
    """Those that import the oracle, or a test module that does."""
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    found: set[Path] = set()
    names = {ORACLE}
    while more := {
        file
        for file, text in texts.items()
        if file not in found and any(re.search(rf"^(?:import|from) {name}\b", text, re.MULTILINE) for name in names)
    }:
        found |= more
        names |= {re.escape(f"tests.{file.parent.name}.{file.stem}") for file in more}
    return found


def run(*command: str, check: bool = True) -> int:
    """Its exit status; with check, one that is not 0 ends this."""
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if check and status:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    return status


if __name__ == "__main__":
    main()
