"""How many of the statements of each room of the house the tests run: what `make coverage` prints in the end."""

from __future__ import annotations

from collections import Counter

import coverage

from tests.test_house import ROOT, modules, room_of


def main() -> None:
    """Read .coverage, and write a line for each room, the least covered first, and one for all."""
    measured = coverage.Coverage(data_file=ROOT / ".coverage", config_file=ROOT / "pyproject.toml")
    measured.load()
    written: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for module, file in modules().items():
        _, statements, _, missing, _ = measured.analysis2(str(file))
        written[room_of(module)] += len(statements)
        missed[room_of(module)] += len(missing)
    rooms = sorted((room for room in written if written[room]), key=lambda room: 1 - missed[room] / written[room])
    print(f"{'room':<28}{'statements':>10}{'missed':>8}{'run':>8}")
    for room in rooms:
        print(line(room, written[room], missed[room]))
    print(line("all", written.total(), missed.total()))


def line(name: str, statements: int, missing: int) -> str:
    """A row of the table."""
    return f"{name:<28}{statements:>10,}{missing:>8,}{1 - missing / statements:>8.1%}"


if __name__ == "__main__":
    main()
