"""The browser edition in Firefox, which is driven by WebDriver BiDi."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

import bert_core
from bert_core import LoadedModel
from tests.browser.conftest import free_port
from tests.browser.static_site import StaticSite

SECONDS = 90
OWN_SENTENCE = "the king saw the house"
TYPE = f"""(() => {{
  const field = document.querySelector("form.texts input, form.texts textarea");
  field.value = {json.dumps(OWN_SENTENCE)};
  field.dispatchEvent(new Event("input", {{ bubbles: true }}));
  field.form.requestSubmit();
}})()"""
STATE = """JSON.stringify({
  busy: document.querySelector(".figure")?.ariaBusy,
  figure: document.querySelector(".figure")?.textContent ?? "",
  notices: document.querySelector(".notices")?.textContent ?? "",
})"""

Evaluate = Callable[[str], Any]


def connection(port: int) -> ClientConnection:
    """A connection to Firefox, as soon as it listens."""
    for _ in range(2 * SECONDS):
        try:
            return connect(f"ws://127.0.0.1:{port}/session", max_size=None, legacy=True)
        except OSError:
            time.sleep(0.5)
    raise TimeoutError("Firefox does not listen")


@pytest.fixture
def firefox(tmp_path: Path) -> Iterator[tuple[Callable[[str], None], Evaluate]]:
    """Firefox with an empty profile: functions that open an address and that return the value of an expression."""
    program = shutil.which("firefox") or shutil.which("firefox-esr")
    if program is None:
        pytest.skip("Firefox is not installed")
    port, numbers = free_port(), itertools.count(1)
    command = [program, "--headless", "--no-remote", "--profile", str(tmp_path), "--remote-debugging-port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        socket = connection(port)

        def call(method: str, **parameters: Any) -> Any:
            number = next(numbers)
            socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
            while (message := json.loads(socket.recv(timeout=SECONDS))).get("id") != number:
                pass
            assert message["type"] == "success", message
            return message["result"]

        call("session.new", capabilities={})
        tab = call("browsingContext.getTree")["contexts"][0]["context"]

        def evaluate(expression: str) -> Any:
            result = call("script.evaluate", expression=expression, target={"context": tab}, awaitPromise=True)
            return result["result"].get("value")

        yield lambda address: call("browsingContext.navigate", context=tab, url=address, wait="complete"), evaluate
        socket.close()
    finally:
        process.kill()
        process.wait()


def wait_for(evaluate: Evaluate, *texts: str) -> str:
    """The text of the figure, as soon as it is drawn and the page has these texts."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        state = json.loads(evaluate(STATE))
        if state["busy"] == "false" and all(text in state["figure"] + state["notices"] for text in texts):
            return str(state["figure"])
        time.sleep(0.3)
    raise AssertionError(state)


@pytest.mark.slow
def test_home_opens_and_computes_a_sentence(
    firefox: tuple[Callable[[str], None], Evaluate], server: StaticSite, tiny_loaded: LoadedModel
) -> None:
    """Home shows its example from the stored run, and then the prediction of the model for an own sentence."""
    open_address, evaluate = firefox
    open_address(f"{server.address}/")
    wait_for(evaluate, "What the model predicts", "“her (masked)”")
    evaluate(TYPE)
    figure = wait_for(evaluate, "“house” is masked")
    encoding = tiny_loaded.tokenizer.encode(OWN_SENTENCE)
    run = bert_core.capture(tiny_loaded, tiny_loaded.tokenizer.mask_words(encoding, [4]), top_k=3)
    words = [tiny_loaded.tokenizer.token_of(token) for token, _ in run.predictions[0].top]
    assert all(word in figure for word in words), (words, figure)
