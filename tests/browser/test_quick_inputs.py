"""Two inputs in quick succession, as typing and a click that ends it: both count, and both are in the address."""

from __future__ import annotations

import time
from urllib.parse import parse_qs, urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

ADDRESS = {"text": "The army crossed the river at night.", "stage": "pooler"}
TYPED = "The army crossed the river at dawn."
QUIET = 1.0  # seconds without a message after which no run is under way


class Connection:
    """A browser without a screen: it opens a page, sends the values of controls, and reads the address."""

    def __init__(self, host: str, socket: ClientConnection) -> None:
        self.host, self.socket, self.page, self.address = host, socket, "", urlencode(ADDRESS)
        self.controls: dict[str, str] = {}  # label -> id
        self.sentence = ""  # the value that the server last set

    def send(self, path: str = "", query: str | None = None, **values: str) -> None:
        """Ask for a run with these values, by label; query: the address, if not the one that the server wrote last."""
        message = BackMsg()
        rerun = message.rerun_script
        rerun.query_string, rerun.page_script_hash = self.address if query is None else query, self.page
        rerun.page_name = path
        rerun.context_info.url = f"http://{self.host}/{path}"
        for label, value in values.items():
            widget = rerun.widget_states.widgets.add(id=self.controls[label])
            if label == "Engine":
                widget.string_array_value.data.append(value)
            else:
                widget.string_value = value
        self.socket.send(message.SerializeToString())

    def receive(self) -> None:
        """Take messages until a run has come to its end and none follows."""
        is_finished = False
        while True:
            try:
                data = self.socket.recv(QUIET if is_finished else None)
            except TimeoutError:
                return
            assert isinstance(data, bytes)
            message = ForwardMsg.FromString(data)
            kind = message.WhichOneof("type")
            if kind in ("new_session", "script_finished"):
                is_finished = message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY and kind == "script_finished"
            elif kind == "navigation":
                self.page = message.navigation.page_script_hash
            elif kind == "page_info_changed":
                self.address = message.page_info_changed.query_string
            elif kind == "delta":
                element = message.delta.new_element
                if element.WhichOneof("type") in ("text_input", "button_group"):
                    control = getattr(element, element.WhichOneof("type"))
                    self.controls[control.label] = control.id
                    if control.label == "Sentence" and control.set_value:
                        self.sentence = control.value


def address_after(app: str, pause: float) -> dict[str, list[str]]:
    """The address after a text was typed and, so many seconds later, the other engine was clicked."""
    host = app.removeprefix("http://")
    with connect(f"ws://{host}/_stcore/stream", subprotocols=[Subprotocol("streamlit")], max_size=None) as socket:
        visitor = Connection(host, socket)
        visitor.send(path="inside")
        visitor.receive()
        query = visitor.address
        visitor.send(query=query, Sentence=TYPED, Engine="PyTorch")
        time.sleep(pause)
        visitor.send(query=query, Sentence=TYPED, Engine="NumPy")  # the browser has not yet heard of the first run
        visitor.receive()
        return parse_qs(visitor.address)


def test_what_is_typed_and_the_click_that_ends_it_are_both_in_the_address(app: str) -> None:
    """However soon the second follows, and wherever it meets the run of the first."""
    for milliseconds in range(6, 45, 3):
        address = address_after(app, milliseconds / 1000)
        assert address.get("text") == [TYPED] and address.get("engine") == ["numpy"], (milliseconds, address)


def test_a_long_text_outlives_a_restart_of_the_server(app: str) -> None:
    """A page that was open before the restart keeps its text, which no address contains."""
    host = app.removeprefix("http://")
    streams = [f"ws://{host}/_stcore/stream"] * 2
    with connect(streams[0], subprotocols=[Subprotocol("streamlit")], max_size=None) as socket:
        before = Connection(host, socket)
        before.send(path="inside")
        before.receive()
    long_text = " ".join([TYPED] * 100)
    with connect(streams[1], subprotocols=[Subprotocol("streamlit")], max_size=None) as socket:
        after = Connection(host, socket)  # a session that the restarted server does not know
        after.page, after.controls, after.address = before.page, before.controls, ""
        after.send(path="inside", query="", Sentence=long_text)
        after.receive()
        assert after.sentence == long_text and "text" not in parse_qs(after.address)
