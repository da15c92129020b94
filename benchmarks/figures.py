"""What making Predict's figures takes: as the app makes them, and with plotly's check of every value.

python benchmarks/figures.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from tables import QUICK, parse_arguments

from viz_app.figures import style
from viz_app.figures.predictions import nsp_bar, prediction_bars

TIMES = 1 if QUICK else 30
WORDS = ("river", "door", "house", "street", "city", "road", "bridge", "field", "hill", "wall")
FIGURES: dict[str, Callable[[], object]] = {
    "ten words for a gap": lambda: prediction_bars(WORDS, [0.1] * len(WORDS)),
    "whether B follows A": lambda: nsp_bar(0.7),
}


def milliseconds(draw: Callable[[], object], *, checked: bool) -> float:
    """The median of `TIMES` times, of this process's own processor time."""
    style.CHECKED = checked
    draw()
    times = []
    for _ in range(TIMES):
        start = time.process_time()
        draw()
        times.append(1000 * (time.process_time() - start))
    return statistics.median(times)


if __name__ == "__main__":
    parse_arguments(argparse.ArgumentParser(description=__doc__), table=False)
    for name, draw in FIGURES.items():
        plain, checked = milliseconds(draw, checked=False), milliseconds(draw, checked=True)
        print(f"{name}: {plain:.2f} ms, checked {checked:.2f} ms: {checked / plain:.1f} times")
