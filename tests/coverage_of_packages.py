"""Prints the share of statements of each package that the tests run, after `make coverage`."""

from __future__ import annotations

from collections import Counter

import coverage

from tests.test_architecture import ROOT, modules, package_of


def main() -> None:
    """Read .coverage, and print a line for each row of the import table, lowest coverage first, and the total."""
    data = coverage.Coverage(data_file=ROOT / ".coverage", config_file=ROOT / "pyproject.toml")
    data.load()
    statements: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for module, file in modules().items():
        _, all_lines, _, missed_lines, _ = data.analysis2(str(file))
        statements[package_of(module)] += len(all_lines)
        missed[package_of(module)] += len(missed_lines)
    packages = sorted(
        (package for package, count in statements.items() if count),
        key=lambda package: 1 - missed[package] / statements[package],
    )
    print(f"{'package':<28}{'statements':>10}{'missed':>8}{'run':>8}")
    for package in packages:
        print(table_row(package, statements[package], missed[package]))
    print(table_row("all", statements.total(), missed.total()))


def table_row(name: str, statements: int, missed: int) -> str:
    """A row of the table."""
    return f"{name:<28}{statements:>10,}{missed:>8,}{1 - missed / statements:>8.1%}"


if __name__ == "__main__":
    main()
