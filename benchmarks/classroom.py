"""A class of a hundred: what its pages cost while they wait, and how soon its teacher sees a vote.

The teacher is a real browser; the students speak the protocol of one, and ask as often as their pages do.

python benchmarks/classroom.py [--students 100] [--write | --quick]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import statistics
import time
from collections import deque
from urllib.parse import urlencode, urlsplit

from crowd import Seen, Server, Visitor
from playwright.async_api import Page, async_playwright
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from tables import QUICK, parse_arguments, write_table

CODE = "abcd-efgh-jkmn"
LESSON = "The bin"
WAITING = 1.0 if QUICK else 20.0  # seconds for which what waiting costs is measured
SETTLING = 0.5 if QUICK else 3.0  # seconds until what was begun is over
VOTING = 1.0 if QUICK else 15.0  # seconds in which all students vote, evenly
# The moments, in milliseconds, at which so many had answered, as the teacher's page showed it.
WATCH = """() => {
  window.counted = {};
  const look = () => {
    const metric = [...document.querySelectorAll(".st-key-class_counts [data-testid=stMetric]")][1];
    const number = Number(metric?.querySelector("[data-testid=stMetricValue]")?.textContent ?? 0);
    window.counted[number] ??= Date.now();
  };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


class Student(Visitor):
    """One student's page: it joins, follows the class, and answers with a number when it is asked for one."""

    def __init__(self, address: str, code: str) -> None:
        super().__init__(address, Seen())
        self.query = urlencode({"class": code})
        self.asked: deque[str] = deque()  # what the page asks its browser for
        self.follows: dict[str, float] = {}
        self.number = self.say = ""
        self.ready = asyncio.Event()
        self.is_said = asyncio.Event()
        self.says: list[str] = []

    async def run(self, **values: object) -> None:
        """Ask for a run with what the controls say now."""
        message = BackMsg()
        state = message.rerun_script
        state.page_script_hash, state.query_string, state.page_name = self.page, self.query, "learn"
        state.context_info.timezone, state.context_info.locale = "UTC", "en"
        state.context_info.url = f"http://{self.address}/learn"
        for name, value in values.items():
            if name == "kept":
                for place in self.asked:
                    heard = json.dumps([{"event": "kept", "value": ""}])
                    state.widget_states.widgets.add(
                        id=f"$$STREAMLIT_INTERNAL_KEY_{place}__events", json_trigger_value=heard
                    )
                self.asked.clear()
            elif name == "number":
                state.widget_states.widgets.add(id=self.number, double_value=float(str(value)))
            elif name == "say":
                state.widget_states.widgets.add(id=self.say, trigger_value=True)
        await self.socket.send(message.SerializeToString())

    async def follow(self) -> None:
        """Take what comes, tell what the browser is asked for, and ask again as the page does."""
        while True:
            wait = max(min(self.follows.values(), default=time.monotonic() + 60) - time.monotonic(), 0.0)
            try:
                raw = await asyncio.wait_for(self.socket.recv(), wait)
            except TimeoutError:
                for fragment in [
                    fragment_id for fragment_id, due_time in self.follows.items() if due_time <= time.monotonic()
                ]:
                    self.follows[fragment] = time.monotonic() + 3.0
                    await self.send(fragment, self.query, "learn")
                continue
            assert isinstance(raw, bytes)
            self.look(ForwardMsg.FromString(raw))
            if self.asked and self.is_drawn:
                await self.run(kept="")

    def look(self, message: ForwardMsg) -> None:
        """Note what stands on the page."""
        kind, element = message.WhichOneof("type"), message.delta.new_element
        if kind == "new_session":
            self.is_drawn = False
            if not message.metadata.run.fragment_ids:
                self.follows.clear()
        elif kind == "navigation":
            self.page = message.navigation.page_script_hash
        elif kind == "script_finished":
            self.is_drawn = True
        elif kind == "auto_rerun":
            self.follows[message.auto_rerun.fragment_id] = time.monotonic() + message.auto_rerun.interval
        elif kind == "delta":
            element_type = element.WhichOneof("type")
            if element_type == "bidi_component" and '"text": null' in element.bidi_component.json:
                self.asked.append(element.bidi_component.id)
            elif element_type == "number_input":
                self.number = element.number_input.id
                self.ready.set()
            elif element_type == "button" and element.button.label == "Send my answer":
                self.say = element.button.id
            elif element_type == "alert" and "Your answer" in element.alert.body:
                self.is_said.set()
            elif element_type == "exception":
                raise SystemExit(element.exception.message)

    is_drawn = False


async def opened(teacher: Page, address: str) -> str:
    """Open a class, and return its code."""
    await teacher.goto(f"http://{address}/learn?teach=1&lecture=1")
    await teacher.get_by_label("Teacher's code").fill(CODE)
    await teacher.get_by_role("button", name="Continue").click()
    await teacher.get_by_role("combobox").first.click()
    await teacher.get_by_role("option", name=LESSON, exact=True).click()
    await teacher.wait_for_timeout(1500)
    await teacher.get_by_role("button", name="Open the class").click()
    link = await teacher.locator(".st-key-class_link code").inner_text()
    return urlsplit(link).query.removeprefix("class=")


async def attended(server: Server, number: int) -> str:
    """A class from its link to its first vote, as a line of the table."""
    cores = os.cpu_count() or 1
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        teacher = await browser.new_page(viewport={"width": 1280, "height": 720})
        teacher.set_default_timeout(120_000)
        code = await opened(teacher, server.address)
        students = [Student(server.address, code) for _ in range(number)]
        tasks = []
        for student in students:
            await student.connect()
            await student.run()
            tasks.append(asyncio.create_task(student.follow()))
            await asyncio.sleep(0.1)
        await teacher.locator(".st-key-class_counts").get_by_text(str(number), exact=True).first.wait_for()
        await asyncio.sleep(SETTLING)
        before = server.cpu()
        await asyncio.sleep(WAITING)
        waiting = (server.cpu() - before) / WAITING / cores
        start_time = time.monotonic()
        await teacher.keyboard.press("1")
        delays_to_students = [
            time.monotonic() - start_time for _ in [await student.ready.wait() for student in students]
        ]
        await asyncio.sleep(SETTLING)
        await teacher.evaluate(WATCH)
        send_times: list[float] = []
        own_delays: list[float] = []

        async def vote(student: Student, delay: float) -> None:
            await asyncio.sleep(delay)
            await student.run(number=random.Random(delay).randint(0, 100))
            await asyncio.sleep(1.0)
            start = time.time()
            send_times.append(start)
            await student.run(say="")
            await student.is_said.wait()
            own_delays.append(time.time() - start)

        before, start = server.cpu(), time.monotonic()
        await asyncio.gather(*(vote(student, VOTING * place / number) for place, student in enumerate(students)))
        voting = (server.cpu() - before) / (time.monotonic() - start) / cores
        await teacher.wait_for_function(f"() => {number} in window.counted")
        counted = {
            int(n): milliseconds / 1000 for n, milliseconds in (await teacher.evaluate("window.counted")).items()
        }
        for task in tasks:
            task.cancel()
        await browser.close()
    send_times.sort()
    delays = [
        min((count_time for n, count_time in counted.items() if n >= place), default=float("nan")) - send_time
        for place, send_time in enumerate(send_times, 1)
    ]
    return (
        f"| {number} | {statistics.median(own_delays):.2f} s | {statistics.median(delays):.2f} s | "
        f"{max(delays):.2f} s | "
        f"{max(delays_to_students):.1f} s | {waiting:.0%} | {voting:.0%} | {server.peak():,} MiB |"
    )


TITLE = (
    "| students | vote to own page | vote to teacher's count | longest | question to the last page "
    "| cores, waiting | cores, voting | peak |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=2 if QUICK else 100)
    options = parse_arguments(parser)
    os.environ["HEADLIGHT_CLASS"] = CODE
    server = Server()
    try:
        line = asyncio.run(attended(server, options.students))
    finally:
        server.stop()
    print(f"{TITLE}\n{line}")
    if options.write:
        machine = f"{platform.machine()}, {os.cpu_count()} CPUs; Python {platform.python_version()}"
        write_table(__file__, f"{machine}; {time.strftime('%Y-%m-%d')}.\n\n{TITLE}\n{line}\n")
