"""What the server holds: after long texts on Why, while it rests, and after many pages of many visitors.

The visitors speak the protocol of a browser (`crowd.py`). Long texts: each edit is another text of about 480 tokens,
with the gradient of every map. Pages: all of them in turn with short texts, none twice.

python benchmarks/server_memory.py [--edits 60] [--reruns 2000] [--malloc headlight|default|arenas ...] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from crowd import Seen, Server, Visitor
from tables import QUICK, parse_arguments

# glibc's own defaults, so that the command leaves them as they are.
DEFAULT = {"MALLOC_MMAP_MAX_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_TOP_PAD_": "131072"}
SETTINGS = {
    "headlight": {},
    "default": DEFAULT,
    "arenas": {**DEFAULT, "MALLOC_ARENA_MAX": "2"},
}
PATHS = ("", "attention", "compare", "why", "layers", "heads", "roles", "prune", "score", "inside")
LONG = "She opened the door and walked in, and the old man looked up from his book. " * (2 if QUICK else 26)
REST = 0.0 if QUICK else 10.0  # seconds


class Walker(Visitor):
    """A browser that opens pages by their addresses, and waits for each to be drawn."""

    async def visit(self, path: str, **address: str) -> None:
        """Follow a link to a page, as a new visitor."""
        await self.connect()
        await self.send(query=urlencode(address), name=path)
        await self.drawn()
        await self.close()
        if self.seen.problems:
            raise SystemExit(f"the page {path or 'predict'!r}: {self.seen.problems[0]}")


async def long_texts(address: str, edits: int) -> None:
    """So many long texts on Why, one after the other."""
    for number in range(edits):
        await Walker(address, Seen()).visit("why", text=f"{LONG} {number} [MASK].")


async def pages(address: str, reruns: int) -> None:
    """So many pages with short texts, from ten visitors at a time."""
    for first in range(0, reruns, 10):
        await asyncio.gather(
            *(
                Walker(address, Seen()).visit(PATHS[number % len(PATHS)], text=f"The cat {number} sat [MASK].")
                for number in range(first, min(first + 10, reruns))
            )
        )


def resident(server: Server) -> int:
    """Memory that is resident now, in MiB."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def row(name: str, edits: int, reruns: int) -> str:
    """One setting as a line of the table."""
    environment = dict(os.environ)
    os.environ.update(SETTINGS[name])
    server = Server()
    os.environ.clear()
    os.environ.update(environment)
    try:
        asyncio.run(pages(server.address, 20))
        memory_before, start = resident(server), time.monotonic()
        asyncio.run(long_texts(server.address, edits))
        seconds, peak = (time.monotonic() - start) / max(edits, 1), server.peak()
        time.sleep(REST)
        memory_after = resident(server)
        samples = []
        for part in range(4 if reruns else 0):
            asyncio.run(pages(server.address, reruns // 4))
            samples.append(resident(server))
            print(name, "after", reruns // 4 * (part + 1), "pages:", samples[-1], "MiB", flush=True)
        cells = (memory_before, peak, memory_after, *samples)
        return f"| {name} | {seconds:.2f} s | " + " | ".join(f"{number:,}" for number in cells) + " |"
    finally:
        server.stop()


def table(names: Sequence[str], edits: int, reruns: int) -> str:
    """All settings."""
    quarters = [f"after {reruns // 4 * (part + 1):,} pages" for part in range(4 if reruns else 0)]
    titles = ["a long text takes", "at first, MiB", f"peak of {edits} long texts", f"{REST:g} s later", *quarters]
    lines = [f"| glibc's memory | {' | '.join(titles)} |", f"| --- |{' ---: |' * len(titles)}"]
    for name in names:
        lines.append(row(name, edits, reruns))
        print(lines[-1], flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=1 if QUICK else 60)
    parser.add_argument("--reruns", type=int, default=4 if QUICK else 2000)
    default = ["headlight"] if QUICK else list(SETTINGS)
    parser.add_argument("--malloc", nargs="+", default=default, choices=list(SETTINGS))
    options = parse_arguments(parser, table=False)
    print(table(options.malloc, options.edits, options.reruns))
