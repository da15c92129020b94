"""A class at work: many visitors of one server, each types a sentence and a second one, waits, thinks, types the next.

The visitors speak the protocol of a browser, with its pauses and its asking again, and every answer is held against
a run of the model here: the likeliest words at [MASK], and the probability that B follows A.

python benchmarks/crowd.py [--write | --quick] [--crowd 30x4:1 ...] [--again]
python benchmarks/crowd.py --beside 20
python benchmarks/crowd.py --copies 3 [--kill 10] [--crowd 30x8:1]
"""

from __future__ import annotations

import argparse
import asyncio
import html
import json
import os
import platform
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import websockets
from streamlit.proto.Alert_pb2 import Alert
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Button_pb2 import Button
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from tables import QUICK, parse_arguments, write_table

from bert_core import capture, load
from viz_app.figures.predictions import nsp_verdict

WORDS = 6  # of the most likely, which the page draws as bars
# Without a hidden word Why has nothing to explain.
SENTENCE = "She opened the door and walked in, and the old man looked up from his book. "
LONG = SENTENCE * (10 if QUICK else 27) + "[MASK]."
LIMIT = 300.0  # seconds that a crowd may take
AWAY = 30.0  # seconds in which a visitor who was cut off tries to come back
KEPT = 60  # messages of which a browser has kept the body, and says so

SUBJECTS = ("man", "woman", "doctor", "teacher", "child", "farmer", "sailor", "king", "writer", "soldier")
PLACES = ("door", "window", "garden", "house", "street", "river", "school", "church", "market", "station")
FOLLOWING = (
    "It was late in the evening.", "Nobody said a word.", "The price of oil fell again.", "Then he went home.",
    "There was no answer.", "The planet has two moons.", "She smiled and sat down.",
)  # fmt: skip


@dataclass(frozen=True)
class Crowd:
    """So many visitors, who each ask so many times, and think so many seconds in between.

    steady: they act every `pause` seconds, and come one after the other, not all at once.
    """

    visitors: int
    edits: int
    pause: float
    steady: bool = False

    @classmethod
    def read(cls, text: str) -> Crowd:
        """`30x4:1` is 30 visitors with 4 edits and a pause of 1 s; `100x4:15s` a steady one."""
        visitors, _, remainder = text.partition("x")
        edits, _, pause = remainder.partition(":")
        return cls(int(visitors), int(edits), float(pause.rstrip("s") or 0), pause.endswith("s"))

    def __str__(self) -> str:
        if self.steady:
            return f"{self.visitors} x {self.edits}, one edit every {self.pause:g} s"
        return f"{self.visitors} x {self.edits}, {f'{self.pause:g} s pause' if self.pause else 'no pause'}"


TABLE = ("2x2:0",) if QUICK else ("4x5:0", "15x4:1", "30x4:1", "100x5:2", "100x4:15s")


@dataclass
class Seen:
    """What came back to all visitors: seconds of each answer, how many were wrong, and how often they asked again."""

    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    lost: int = 0
    polls: int = 0
    received: int = 0  # bytes
    back: list[str] = field(default_factory=list)  # the copies from which visitors were cut off and came back elsewhere
    problems: list[str] = field(default_factory=list)

    def require_right(self) -> None:
        """End the run, with a problem, if an answer was wrong or lost."""
        if self.wrong or self.lost:
            problem = f": {self.problems[0]}" if self.problems else ""
            raise SystemExit(f"{self.wrong} answers were wrong and {self.lost} lost{problem}")


Answer = tuple[tuple[str, ...], str]
"""The likeliest words, and the verdict on the second sentence."""


class Visitor:
    """One browser: its socket, the controls it sees, and what stands on its page."""

    def __init__(self, address: str, seen: Seen) -> None:
        self.address, self.seen = address, seen
        self.controls: dict[str, str] = {}  # label -> id
        self.written: dict[str, str] = {}  # label -> text
        self.kept: OrderedDict[str, ForwardMsg] = OrderedDict()
        self.words: tuple[str, ...] = ()
        self.verdict = ""
        self.page = self.copy = ""  # of several copies, the one that a cookie names

    async def open(self) -> None:
        """Open the page Predict, and wait for the first picture."""
        await self.connect()
        await self.send(name="predict")
        await self._answer()

    async def connect(self) -> None:
        """Open the socket."""
        self.socket = await websockets.connect(
            f"ws://{self.address}/_stcore/stream", subprotocols=[websockets.Subprotocol("streamlit")],
            max_size=None, compression=None, open_timeout=LIMIT, ping_timeout=None,
            additional_headers={"Cookie": self.copy} if self.copy else {},
        )  # fmt: skip
        assert self.socket.response is not None
        for cookie in self.socket.response.headers.get_all("Set-Cookie"):
            if cookie.startswith("HEADLIGHT="):
                self.copy = cookie.partition(";")[0]

    async def edit(self, text: str, pair: str) -> Answer:
        """Type two sentences, one after the other, and wait for the answer to both."""
        for label, value in (("Sentence", text), ("Second sentence", pair)):
            self.written[label] = value
        try:
            await self.send()
            return await self._answer()
        except websockets.ConnectionClosed:
            self.seen.back.append(self.copy)
            await self._come_back()
            await self.send(query=urlencode({"text": text, "pair": pair}), name="predict")  # what a page's address says
            return await self._answer()

    async def _come_back(self) -> None:
        """Open the socket again, as a page does whose server is gone."""
        self.controls, self.page, deadline = {}, "", time.monotonic() + AWAY
        self.kept.clear()
        while True:
            try:
                return await self.connect()
            except (OSError, websockets.InvalidHandshake):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.5)

    async def close(self) -> None:
        """Go."""
        await self.socket.close()

    async def send(self, fragment: str = "", query: str = "", name: str = "") -> None:
        """Ask for a run: of the whole page, or of a part of it; query, name: of the address that was opened."""
        message = BackMsg()
        state = message.rerun_script
        state.page_script_hash = self.page
        state.fragment_id, state.query_string, state.page_name = fragment, query, name
        state.is_auto_rerun = bool(fragment)
        state.context_info.timezone, state.context_info.locale = "UTC", "en"
        state.context_info.url = f"http://{self.address}/"
        state.cached_message_hashes.extend(self.kept)
        for label, value in self.written.items():
            if label in self.controls:
                state.widget_states.widgets.add(id=self.controls[label], string_value=value)
        await self.socket.send(message.SerializeToString())

    async def drawn(self) -> None:
        """Wait until the script has come to its end."""
        while True:
            raw = await self.socket.recv()
            assert isinstance(raw, bytes)
            message = ForwardMsg.FromString(raw)
            self._note_problem(message)
            if is_drawn(message):
                return

    async def _answer(self) -> Answer:
        """What stands on the page when the script has come to its end with an answer on it."""
        timers: dict[str, tuple[float, float]] = {}  # fragment -> when it is to be asked again, and its interval
        self.words, self.verdict = (), ""
        while True:
            due = min((due_time for due_time, _ in timers.values()), default=None)
            try:
                wait = None if due is None else max(due - time.monotonic(), 0.0)
                raw = await asyncio.wait_for(self.socket.recv(), wait)
            except TimeoutError:
                for fragment, (due_time, interval) in list(timers.items()):
                    if due_time <= time.monotonic():
                        self.seen.polls += 1
                        timers[fragment] = (time.monotonic() + interval, interval)
                        await self.send(fragment)
                continue
            assert isinstance(raw, bytes)
            self.seen.received += len(raw)
            message = self._whole(raw)
            kind = message.WhichOneof("type")
            self._note_problem(message)
            if kind == "new_session":
                if not message.metadata.run.fragment_ids:
                    timers.clear()
                    self.words, self.verdict = (), ""
            elif kind == "navigation":
                self.page = message.navigation.page_script_hash  # `new_session` has that of the script
            elif kind == "auto_rerun":
                interval = message.auto_rerun.interval
                timers[message.auto_rerun.fragment_id] = (time.monotonic() + interval, interval)
            elif kind == "delta":
                self._look(message)
            elif kind == "script_finished" and self.words and self.verdict:
                return self.words, self.verdict

    def _whole(self, raw: bytes) -> ForwardMsg:
        """The message itself, where only its number was sent because the browser has kept it."""
        message = ForwardMsg.FromString(raw)
        if message.WhichOneof("type") == "ref_hash":
            stored = ForwardMsg()
            stored.CopyFrom(self.kept[message.ref_hash])
            stored.metadata.CopyFrom(message.metadata)
            return stored
        if message.metadata.cacheable:
            self.kept[message.hash] = message
            while len(self.kept) > KEPT:
                self.kept.popitem(last=False)
        return message

    def _look(self, message: ForwardMsg) -> None:
        element = message.delta.new_element
        kind = element.WhichOneof("type")
        if kind == "text_input":
            self.controls[element.text_input.label] = element.text_input.id
        elif kind == "plotly_chart":
            names = json.loads(element.plotly_chart.spec)["layout"].get("yaxis", {}).get("ticktext", ())
            if len(names) >= WORDS:
                plain = (html.unescape(re.sub("<[^>]*>", "", name)).strip() for name in names[:WORDS])
                self.words = tuple(plain)
        elif kind == "markdown" and "B follows A with" in element.markdown.body:
            self.verdict = element.markdown.body.lstrip("# ")

    def _note_problem(self, message: ForwardMsg) -> None:
        """Note an error that the page shows, and an address of which there is no page."""
        element = message.delta.new_element
        kind = element.WhichOneof("type")
        if message.WhichOneof("type") == "page_not_found":
            self.seen.problems.append(f"there is no page {message.page_not_found.page_name!r}")
        elif kind == "exception":
            self.seen.problems.append(element.exception.message)
        elif kind == "alert" and element.alert.format == Alert.ERROR:
            self.seen.problems.append(element.alert.body)


def is_drawn(message: ForwardMsg) -> bool:
    """Whether a message ends a run of the script that drew the whole page; another follows one that ended early."""
    ended_early = message.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN
    return message.WhichOneof("type") == "script_finished" and not ended_early


def questions(crowd: Crowd, seed: int) -> list[list[tuple[str, str]]]:
    """What each visitor types: no two sentences of a crowd are the same, as no two students' are."""
    chance = random.Random(seed)
    return [
        [
            (
                f"The {chance.choice(SUBJECTS)} number {visitor * crowd.edits + edit + 1000 * seed} opened the [MASK] "
                f"near the {chance.choice(PLACES)}.",
                chance.choice(FOLLOWING),
            )
            for edit in range(crowd.edits)
        ]
        for visitor in range(crowd.visitors)
    ]


def expected(questions_by_visitor: Sequence[Sequence[tuple[str, str]]]) -> dict[tuple[str, str], Answer]:
    """What the model says of each, asked directly."""
    loaded = load("headlight-mini", device="cpu")
    answers = {}
    for text, pair in (question for visitor_questions in questions_by_visitor for question in visitor_questions):
        run = capture(loaded, loaded.tokenizer.encode(text, pair))
        assert run.nsp is not None
        words = tuple(loaded.tokenizer.token_of(token) for token, _ in run.predictions[0].top[:WORDS])
        answers[text, pair] = (words, nsp_verdict(run.nsp))
    return answers


def is_same(answer: Answer, right: Answer) -> bool:
    """Whether the words and the verdict are the same, its number but for one in the last place that is written.

    Texts that are read together round otherwise in the last place of a float, which may turn a written 0.073 to 0.074.
    """
    match, expected_match = (re.fullmatch(r"(.*?)(\d+\.\d+)", verdict) for verdict in (answer[1], right[1]))
    if match is None or expected_match is None:
        return answer == right
    last = 10.0 ** -min(len(verdict[2].partition(".")[2]) for verdict in (match, expected_match))
    return (
        answer[0] == right[0]
        and match[1] == expected_match[1]
        and abs(float(match[2]) - float(expected_match[2])) < 1.5 * last
    )


async def attend(
    crowd: Crowd, address: str, questions_by_visitor: Sequence[Sequence[tuple[str, str]]], right: Mapping
) -> Seen:
    """Send the crowd in, and see what comes back."""
    measurements = Seen()

    async def visit(number: int) -> None:
        visitor = Visitor(address, measurements)
        if crowd.steady:
            await asyncio.sleep(crowd.pause * number / crowd.visitors)
        await visitor.open()
        for text, pair in questions_by_visitor[number]:
            start = time.monotonic()
            answer = await visitor.edit(text, pair)
            seconds = time.monotonic() - start
            measurements.seconds.append(seconds)
            if not is_same(answer, right[text, pair]):
                measurements.wrong += 1
                measurements.problems.append(f"{text} {pair} {answer} instead of {right[text, pair]}")
            await asyncio.sleep(max(crowd.pause - seconds, 0.0) if crowd.steady else crowd.pause)
        await visitor.close()

    tasks = [asyncio.create_task(visit(number)) for number in range(crowd.visitors)]
    finished, late = await asyncio.wait(tasks, timeout=LIMIT + (crowd.edits * crowd.pause if crowd.steady else 0))
    for task in late:
        task.cancel()
    measurements.problems += [repr(task.exception()) for task in finished if task.exception() is not None]
    measurements.lost = crowd.visitors * crowd.edits - len(measurements.seconds)
    return measurements


class Busy(Visitor):
    """A visitor who asks Why for its slow methods on a long text: minutes of work for one click."""

    async def begin(self) -> str:
        """Press the button, and wait until the work has begun; returns what the button says.

        Raises SystemExit if the page has no such button, or none to stop the work afterwards.
        """
        await self.connect()
        await self.send(query=urlencode({"text": LONG}), name="why")
        button = await self._button("Compute ")
        await self.drawn()
        press = BackMsg()
        press.rerun_script.page_script_hash = self.page
        press.rerun_script.context_info.timezone, press.rerun_script.context_info.locale = "UTC", "en"
        press.rerun_script.widget_states.widgets.add(id=button.id, trigger_value=True)
        await self.socket.send(press.SerializeToString())
        await self._button("Stop")
        return f"{button.label}: {button.help}"

    async def _button(self, label: str) -> Button:
        """The next button with this in its label; raises SystemExit if the page is drawn without it."""
        while True:
            raw = await self.socket.recv()
            assert isinstance(raw, bytes)
            message = self._whole(raw)
            element = message.delta.new_element
            if message.WhichOneof("type") == "navigation":
                self.page = message.navigation.page_script_hash
            elif element.WhichOneof("type") == "button" and label in element.button.label:
                return element.button
            elif is_drawn(message):
                raise SystemExit(f"the page Why has no button “{label}”")

    async def look(self) -> None:
        """Take what comes, until the end."""
        while True:
            await self.socket.recv()


async def beside_long_work(address: str, edits: int) -> tuple[list[float], list[float], str]:
    """Seconds of one visitor's edits, alone and while another one's long work runs; and what that work is called."""
    visitor_questions = questions(Crowd(1, 2 * edits, 0.0), 99)[0]
    visitor, times = Visitor(address, Seen()), []
    await visitor.open()
    busy = Busy(address, Seen())
    label, looking = "", None
    for number, (text, pair) in enumerate(visitor_questions):
        if number == edits:
            label = await busy.begin()
            looking = asyncio.create_task(busy.look())
            await asyncio.sleep(0 if QUICK else 5)
        start = time.monotonic()
        await visitor.edit(text, pair)
        times.append(time.monotonic() - start)
        await asyncio.sleep(0.5)
    if looking is not None:
        looking.cancel()
    return times[:edits], times[edits:], label


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


class Server:
    """The app as `headlight app` starts it, and what its process takes."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        port = free_port()
        self.address = f"localhost:{port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "viz_app.cli", "app", "--port", str(port), *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://{self.address}/_stcore/health", timeout=2).close()
                return
            except OSError:
                time.sleep(0.2)
        raise SystemExit("the server did not start")

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self) -> int:
        """The most memory that was resident, in MiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()


@contextmanager
def behind_one_door(servers: Sequence[Server]) -> Iterator[str]:
    """The address of HAProxy, as deploy/haproxy.cfg sets it, before these servers."""
    haproxy = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if haproxy is None:
        raise SystemExit("there is no haproxy on the path")
    door = f"127.0.0.1:{free_port()}"
    shipped = (Path(__file__).parents[1] / "deploy" / "haproxy.cfg").read_text(encoding="utf-8")
    copies = "\n".join(
        f"    server copy{number} {server.address.replace('localhost', '127.0.0.1')}"
        for number, server in enumerate(servers)
    )
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "haproxy.cfg"
        config.write_text(
            re.sub(r"^    server-template .*$", copies, shipped, flags=re.MULTILINE).replace(
                "bind :8080", f"bind {door}"
            )
        )
        proxy = subprocess.Popen([haproxy, "-db", "-f", str(config)], stdout=subprocess.DEVNULL)
        try:
            time.sleep(3)  # until it has asked each whether it is well
            yield door
        finally:
            proxy.terminate()
            proxy.wait()


def with_copies(crowd: Crowd, copies: int, kill: float | None) -> tuple[str, Seen]:
    """What one crowd saw behind one load balancer, of which one copy was killed meanwhile; also in a few sentences."""
    questions_by_visitor = questions(crowd, 5)
    right = expected(questions_by_visitor)
    servers = [Server(["--shared"]) for _ in range(copies)]

    async def watched(door: str) -> Seen:
        if kill is not None:
            asyncio.get_running_loop().call_later(kill, servers[0].process.send_signal, signal.SIGKILL)
        return await attend(crowd, door, questions_by_visitor, right)

    try:
        with behind_one_door(servers) as door:
            start = time.monotonic()
            measurements = asyncio.run(watched(door))
            wall = time.monotonic() - start
    finally:
        for server in servers:
            server.stop()
    times = sorted(measurements.seconds) or [float("nan")]
    lines = [
        f"{crowd}, {copies} copies behind HAProxy: {len(measurements.seconds) / wall:.1f} answers/s, median "
        f"{statistics.median(times):.2f} s, 95% {times[int(0.95 * len(times))]:.2f} s, longest {times[-1]:.2f} s; "
        f"{measurements.wrong} wrong, {measurements.lost} lost"
    ]
    if kill is not None:
        lines.append(
            f"after {kill:g} s one copy was killed: {len(measurements.back)} visitors were cut off, all of "
            f"{len(set(measurements.back))} copy, and got their answers elsewhere"
        )
    return "; ".join(
        lines + [f"problem: {problem}" for problem in sorted(set(measurements.problems))[:3]]
    ), measurements


def row(crowd: Crowd, server: Server, seed: int) -> tuple[str, Seen]:
    """One crowd at this server, as a line of the table, and what it saw."""
    questions_by_visitor = questions(crowd, seed)
    right = expected(questions_by_visitor)
    before, own_cpu, start = server.cpu(), time.process_time(), time.monotonic()
    measurements = asyncio.run(attend(crowd, server.address, questions_by_visitor, right))
    wall = time.monotonic() - start
    cores = os.cpu_count() or 1
    served, clients = (server.cpu() - before) / wall / cores, (time.process_time() - own_cpu) / wall / cores
    times = sorted(measurements.seconds) or [float("nan")]
    late = times[min(int(0.95 * len(times)), len(times) - 1)]
    for problem in sorted(set(measurements.problems))[:3]:
        print("problem:", problem, file=sys.stderr)
    rate, size = len(measurements.seconds) / wall, measurements.received / 1e6 / max(len(measurements.seconds), 1)
    return (
        f"| {crowd} | {rate:.1f} | {statistics.median(times):.2f} s | {late:.2f} s | {measurements.wrong} | "
        f"{measurements.lost} | {measurements.polls:,} | {size:.2f} MB | "
        f"{served:.0%} | {clients:.0%} | {server.peak():,} MiB |",
        measurements,
    )


TITLE = (
    "| visitors x edits | answers/s | median | 95% | wrong | lost | asked again | received an answer "
    "| server's share of the cores | clients' | peak |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crowd", nargs="+", default=TABLE, metavar="VISITORSxEDITS:PAUSE[s]")
    parser.add_argument("--again", action="store_true", help="the last crowd twice more at the same server, for memory")
    parser.add_argument("--beside", type=int, metavar="EDITS", help="edits alone, and beside another's long work")
    parser.add_argument("--copies", type=int, metavar="N", help="the first crowd, at so many servers behind HAProxy")
    parser.add_argument("--kill", type=float, metavar="SECONDS", help="with --copies: when one of them is killed")
    arguments = parse_arguments(parser)
    if arguments.copies:
        text, measurements = with_copies(Crowd.read(arguments.crowd[0]), arguments.copies, arguments.kill)
        print(text)
        measurements.require_right()
        raise SystemExit
    if arguments.beside:
        server = Server()
        try:
            alone, beside, label = asyncio.run(beside_long_work(server.address, arguments.beside))
        finally:
            server.stop()
        median_alone, median_beside = statistics.median(alone), statistics.median(beside)
        print(
            f"alone {median_alone:.3f} s, beside “{label}” {median_beside:.3f} s: "
            f"{median_beside / median_alone:.2f} times (medians of {arguments.beside})"
        )
        raise SystemExit
    lines = [TITLE]
    print(TITLE, flush=True)
    for number, crowd in enumerate(map(Crowd.read, arguments.crowd)):
        server = Server()
        try:
            for turn in range(3 if arguments.again and number == len(arguments.crowd) - 1 else 1):
                line, measurements = row(crowd, server, 10 * number + turn)
                print(line, flush=True)
                measurements.require_right()
                lines.append(line)
        finally:
            server.stop()
    machine = (
        f"{platform.machine()}, {os.cpu_count()} CPUs; Python {platform.python_version()}; {time.strftime('%Y-%m-%d')}"
    )
    if arguments.write:
        write_table(
            __file__,
            f"{machine}. Each crowd at a server of its own.\n\n" + "\n".join(lines) + "\n",
        )
