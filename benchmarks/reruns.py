"""A rerun of a page on which nothing changed: what it takes, and what share of that is Streamlit's.

A visitor who speaks the protocol of a browser (`crowd.py`) opens each page and asks for the same again. The time runs
from the message to the end of the run. In a server of its own each run is looked at a thousand times a second: a
moment is Streamlit's where the innermost of its and our functions is one of Streamlit's.

    python benchmarks/reruns.py [--times 30] [--write | --quick]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

from crowd import Seen, Server, Visitor
from tables import QUICK, parse_arguments, write_table

from viz_app.pages import BY_PATH, PAGES

TEXT = {"text": "She opened the [MASK] and walked in.", "pair": "It was dark."}
OPENED = (BY_PATH["start"], BY_PATH["predict"]) if QUICK else PAGES
WARM = 1 if QUICK else 5  # runs that do not count
# In the server: whose the innermost function is, each millisecond of a run that is not spent waiting for a message.
LOOK = """
import json, os, sys, threading, time
def look():
    seen, written = {"ours": 0, "streamlit": 0}, 0.0
    while True:
        time.sleep(0.001)
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for number, frame in sys._current_frames().items():
            if "ScriptRunner" not in names.get(number, ""):
                continue
            whose = inside = None
            while frame is not None:
                file = frame.f_code.co_filename
                if whose is None:
                    if f"{os.sep}viz_app{os.sep}" in file or f"{os.sep}bert_core{os.sep}" in file:
                        whose = "ours"
                    elif f"{os.sep}streamlit{os.sep}" in file:
                        whose = "streamlit"
                inside = inside or frame.f_code.co_name == "_run_script"
                frame = frame.f_back
            if inside and whose:
                seen[whose] += 1
        if time.monotonic() > written + 0.2:
            written = time.monotonic()
            with open(os.environ["LOOK_AT"] + ".new", "w") as file:
                json.dump(seen, file)
            os.replace(os.environ["LOOK_AT"] + ".new", os.environ["LOOK_AT"])
threading.Thread(target=look, daemon=True).start()
sys.setswitchinterval(0.0005)
"""


async def reruns(address: str, path: str, times: int) -> list[float]:
    """Milliseconds of each rerun of a page."""
    visitor, seconds = Visitor(address, Seen()), []
    await visitor.connect()
    query = urlencode(TEXT)
    await visitor.send(query=query, name=path)
    await visitor.drawn()
    for _ in range(WARM + times):
        await asyncio.sleep(0.05)
        start = time.perf_counter()
        await visitor.send(query=query, name=path)
        await visitor.drawn()
        seconds.append(1000 * (time.perf_counter() - start))
    await visitor.close()
    assert not visitor.seen.problems, visitor.seen.problems
    return seconds[WARM:]


def looked_at(file: Path) -> dict[str, int]:
    """How many moments were whose, a moment after the last."""
    time.sleep(0.5)
    counts: dict[str, int] = json.loads(file.read_text())
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5 if QUICK else 30)
    options = parse_arguments(parser)
    server = Server()
    try:
        timed = {page.title: asyncio.run(reruns(server.address, page.path, options.times)) for page in OPENED}
    finally:
        server.stop()
    shares = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seen.json"
        (Path(folder) / "sitecustomize.py").write_text(LOOK, encoding="utf-8")
        before = dict(os.environ)
        paths = [folder, *filter(None, [before.get("PYTHONPATH")])]
        os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "LOOK_AT": str(file)}
        server = Server()
        os.environ.clear()
        os.environ.update(before)
        try:
            for page in OPENED:
                asyncio.run(reruns(server.address, page.path, 1))  # its imports and its work are done
                start = looked_at(file)
                asyncio.run(reruns(server.address, page.path, options.times))
                end = looked_at(file)
                ours, theirs = (end[source] - start[source] for source in ("ours", "streamlit"))
                shares[page.title] = theirs / (ours + theirs)
        finally:
            server.stop()
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs; Python {platform.python_version()}; "
        f"{time.strftime('%Y-%m-%d')}. {options.times} reruns of each page.\n",
        "| page | rerun, median | 95% | Streamlit's share of the run |",
        "| --- | ---: | ---: | ---: |",
    ]
    for title, times in timed.items():
        slow = statistics.quantiles(times, n=20)[-1]
        lines.append(f"| {title} | {statistics.median(times):.0f} ms | {slow:.0f} ms | {shares[title]:.0%} |")
    table = "\n".join(lines) + "\n"
    print(table, end="")
    if options.write:
        write_table(__file__, table)


if __name__ == "__main__":
    main()
