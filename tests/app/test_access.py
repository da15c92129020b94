"""The door: one's own server answers this machine alone, a shared one gives no rights, and nothing is too large."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urljoin

import pytest
from starlette.datastructures import Headers
from starlette.types import Message
from streamlit.proto.BackMsg_pb2 import BackMsg

from bert_core import Refused
from viz_app import access
from viz_app.access import (
    EMBED_IN,
    MAX_ADDRESS_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_TEXT_CHARACTERS,
    Guard,
    MovedPages,
    is_local_server,
    limit_messages,
    parse_origins,
    refusal_reason,
)

Options = Callable[..., None]
Result = TypeVar("Result")


def in_a_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine returns, run by a thread of its own: a browser test's tab keeps a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Options:
    """`options(address=..., hosts=..., origins=..., shared=...)`: how the server was started."""

    def start(
        address: str | None = "localhost",
        hosts: tuple[str, ...] = (),
        origins: tuple[str, ...] = (),
        shared: bool = False,
        base: str = "",
    ) -> None:
        said = {
            "server.baseUrlPath": base,
            "server.address": address,
            "server.allowedHosts": hosts,
            "server.corsAllowedOrigins": origins,
        }
        monkeypatch.setattr(access, "get_option", said.__getitem__)
        monkeypatch.setenv("HEADLIGHT_SHARED", "1" if shared else "")

    start()
    return start


@pytest.mark.parametrize(
    ("address", "shared", "own"),
    [
        ("localhost", False, True), ("127.0.0.1", False, True), ("::1", False, True),
        ("localhost", True, False), ("0.0.0.0", False, False), ("192.168.1.7", False, False), (None, False, False),
    ],
)  # fmt: skip
def test_rights_follow_from_how_the_server_was_started(
    options: Options, address: str | None, shared: bool, own: bool
) -> None:
    """They are there on localhost alone, and not if it was started for others."""
    options(address, shared=shared)
    assert is_local_server() == own


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8501", "LOCALHOST:8501", "127.0.0.1:9", "[::1]:8501", "localhost."]
)
def test_ones_own_server_answers_by_the_names_of_this_machine(options: Options, host: str) -> None:
    """With any port: a tunnel may end at another."""
    assert refusal_reason(Headers({"host": host})) is None
    assert refusal_reason(Headers({"host": host, "origin": f"http://{host}"})) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8501", "localhost.evil.example", "127.0.0.1.nip.io:8501", "", "localhost:x",
        "evil@localhost", "localhost/evil", "192.168.1.7:8501", "0.0.0.0:8501", "localhost:8501, evil.example",
    ],
)  # fmt: skip
def test_ones_own_server_answers_by_no_other_name(options: Options, host: str) -> None:
    """A name that was made to point here is refused, with its own name and what would let it in."""
    said = refusal_reason(Headers({"host": host}))
    assert said is not None and (host or "no name at all") in said and "headlight app --shared" in said


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "http://localhost.evil.example:8501"]
)
def test_no_page_of_another_site_is_answered(options: Options, origin: str) -> None:
    """Whoever the server is for; a page that was named at start is."""
    for shared in (False, True):
        options(shared=shared)
        said = refusal_reason(Headers({"host": "localhost:8501", "origin": origin}))
        assert said is not None and origin in said
    options(origins=(origin,))
    assert refusal_reason(Headers({"host": "localhost:8501", "origin": origin})) is None


@pytest.mark.parametrize("header", access.PROXY_HEADERS)
def test_ones_own_server_answers_no_proxy(options: Options, header: str) -> None:
    """What a proxy passes on from others is refused, also when it calls the server localhost; a shared one is not."""
    headers = Headers({"host": "localhost:8501", header: "203.0.113.7"})
    said = refusal_reason(headers)
    assert said is not None and header in said and "--shared" in said
    options(shared=True)
    assert refusal_reason(headers) is None


def test_a_shared_server_answers_by_the_names_it_was_given(options: Options) -> None:
    """With none by any; `*.` stands for what is below a name, not for what ends like it."""
    options("0.0.0.0")
    assert refusal_reason(Headers({"host": "class.example:8501"})) is None
    options("0.0.0.0", hosts=("class.example", "*.rooms.example"))
    for host in ("class.example", "Class.Example:80", "a.rooms.example", "b.a.rooms.example:8501"):
        assert refusal_reason(Headers({"host": host, "origin": f"https://{host}"})) is None
    for host in ("rooms.example", "evil.example", "badclass.example", "localhost", ""):
        said = refusal_reason(Headers({"host": host}))
        assert said is not None and "--host" in said


def answer(scope_type: str, headers: dict[str, str], query: bytes = b"") -> tuple[list[Message], bool]:
    """What the guard sends, and whether it let the request through."""
    sent, passed = [], []

    async def app(scope: object, receive: object, send: object) -> None:
        passed.append(scope)

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope = {
        "type": scope_type, "path": "/", "raw_path": b"/", "query_string": query, "method": "GET",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    in_a_loop(Guard(app)(scope, receive, send))
    return sent, bool(passed)


@pytest.mark.parametrize("scope", ["http", "websocket"])
def test_what_is_refused_gets_no_further(options: Options, scope: str) -> None:
    """Pages, files, uploads and sockets all pass the guard; a refusal is a sentence, or the end of the socket."""
    assert answer(scope, {"host": "localhost"}) == ([], True)
    sent, passed = answer(scope, {"host": "evil.example"})
    assert not passed
    if scope == "http":
        assert sent[0]["status"] == 403 and b"evil.example" in sent[1]["body"]
    else:
        assert sent[0]["type"] == "websocket.close"


def test_an_endless_address_is_refused(options: Options) -> None:
    """Before anything reads it."""
    sent, passed = answer("http", {"host": "localhost"}, b"text=" + b"a" * MAX_ADDRESS_BYTES)
    assert not passed and sent[0]["status"] == 414
    assert answer("http", {"host": "localhost"}, b"text=" + b"a" * 2_000)[1]


def received(*messages: BackMsg | bytes) -> tuple[list[Message], list[Message]]:
    """What arrives behind the bound of these messages and a last heartbeat, and what was sent back."""
    sent: list[Message] = []
    raw = [one if isinstance(one, bytes) else one.SerializeToString() for one in messages]
    waiting = [
        {"type": "websocket.receive", "bytes": one} for one in [*raw, BackMsg(app_heartbeat=True).SerializeToString()]
    ]

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    async def all_of() -> list[Message]:
        read, arrived = limit_messages(receive, send), []
        while waiting:
            arrived.append(await read())
        return arrived

    return in_a_loop(all_of()), sent


def test_an_endless_text_is_cut_to_what_says_that_it_is_too_long() -> None:
    """24 MB in one field become one character more than is read; the other fields stay."""
    message = BackMsg()
    message.rerun_script.widget_states.widgets.add(id="other", string_value="é" * 24_000_000)
    message.rerun_script.widget_states.widgets.add(id="text", string_value="A word.")
    (arrived, _), sent = received(message)
    long, short = BackMsg.FromString(arrived["bytes"]).rerun_script.widget_states.widgets
    assert long.string_value == "é" * (MAX_TEXT_CHARACTERS + 1) and short.string_value == "A word." and sent == []


def test_a_message_that_is_no_text_has_an_end() -> None:
    """What is still too large when its texts are cut closes the connection."""
    message = BackMsg()
    message.rerun_script.widget_states.widgets.add(id="x", bytes_value=bytes(MAX_MESSAGE_BYTES + 1))
    (arrived, *_), sent = received(message)
    assert arrived["type"] == "websocket.disconnect" and sent[0]["code"] == 1009


def test_no_visitor_empties_the_caches_of_all() -> None:
    """What no page of the app sends is dropped, whoever sends it; what it sends arrives as it was."""
    install = BackMsg()
    install.backend_operation_request.install_skills.SetInParent()
    arrived, sent = received(BackMsg(clear_cache=True), BackMsg(debug_shutdown_runtime=True), install, b"\xff\xff")
    assert [BackMsg.FromString(one["bytes"]).WhichOneof("type") for one in arrived] == ["app_heartbeat"] and sent == []


def policy(*origins: str, host: str = "localhost") -> list[bytes]:
    """The policies that an answer of the server carries: of a page, or of a refusal to another host."""

    async def app(scope: object, receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"etag", b"1")]})
        await send({"type": "http.response.body", "body": b""})

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    headers = [(b"host", host.encode())]
    scope = {"type": "http", "path": "/", "raw_path": b"/", "query_string": b"", "method": "GET", "headers": headers}
    in_a_loop(Guard(app, framed_by=origins)(scope, receive, send))
    return [value for name, value in sent[0]["headers"] if name == b"content-security-policy"]


def test_every_answer_says_who_may_frame_it(options: Options) -> None:
    """Nobody else, or the sites that were named; a refusal says it too."""
    for host in ("localhost", "evil.example"):
        assert policy(host=host) == [b"frame-ancestors 'self'"]
        named = policy("https://moodle.example.org", "https://*.example.com:8443", host=host)
        assert named == [b"frame-ancestors 'self' https://moodle.example.org https://*.example.com:8443"]


def redirected(path: str, query: str = "", view_params: Collection[str] = ()) -> str | None:
    """Where a request for a path is sent, as a browser resolves it; None where it is passed on."""

    async def app(scope: object, receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "path": path, "query_string": query.encode(), "method": "GET", "headers": []}
    in_a_loop(MovedPages(app, view_params)(scope, receive, send))
    if sent[0]["status"] == 200:
        return None
    assert sent[0]["status"] == 307
    return urljoin(f"http://localhost{path}", dict(sent[0]["headers"])[b"location"].decode())


def test_the_address_of_a_moved_page_is_redirected_with_its_query(options: Options) -> None:
    """Below a base path too, with or without a stroke at the end; no other address is, and no base path of that name.

    The query arrives as it was written, percent signs and plus signs too.
    """
    query = "about=token&piece=%23%23ing&text=a+b%26c"
    for base in ("", "tools/headlight", "dossier"):
        options(base=base)
        before = f"/{base}" if base else ""
        for end in ("", "/"):
            new = f"http://localhost{before}/profiles"
            assert redirected(f"{before}/dossier{end}") == new
            assert redirected(f"{before}/dossier{end}", query) == f"{new}?{query}"
            for path in ("/profiles", "/dossiers", "/dossier/static/index.js", "/_stcore/health"):
                assert redirected(f"{before}{path}{end}", query) is None


def test_an_address_without_a_page_opens_home_or_predictions(options: Options) -> None:
    """Predictions with a parameter of a view, Home with any other or none; below a base path too."""
    names = {"text", "calibrated"}
    for base in ("", "tools/headlight"):
        options(base=base)
        before = f"/{base}" if base else ""
        for end in ("/", "") if base else ("/",):
            path, new = before + end, f"http://localhost{before}"
            assert redirected(path, view_params=names) == f"{new}/start"
            assert redirected(path, "lang=de&unknown=1", names) == f"{new}/start?lang=de&unknown=1"
            assert redirected(path, "lang=de&text=a+b%26c", names) == f"{new}/predict?lang=de&text=a+b%26c"
        assert redirected(f"{before}/index.js", view_params=names) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("layers?text=a+b%26c&through=elsewhere&sought=2", "search?text=a+b%26c&sought=2"),
        ("layers?layers_view=elsewhere", "search"),
        ("layers?layers_view=states&alike=looks", None),
        ("score?compared=alike&sentence_a=A%3D1", "similarity?sentence_a=A%3D1"),
        ("score?compared=table", None),
        ("search?layers_view=elsewhere", None),
    ],
)
def test_a_view_that_is_a_page_now_is_redirected_with_its_other_parameters(
    options: Options, old: str, new: str | None
) -> None:
    """The parameter of the view goes, so that the way back to the page of the view stays open; all others stay."""
    options(base="")
    path, _, query = old.partition("?")
    assert redirected(f"/{path}", query) == (None if new is None else f"http://localhost/{new}")


def test_the_sites_of_a_server_are_read_when_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its environment, in which `headlight app` puts them."""
    monkeypatch.setenv(EMBED_IN, "https://a.example https://b.example/")
    guard, _ = access.build_middleware()
    assert guard.kwargs["framed_by"] == ("https://a.example", "https://b.example")
    monkeypatch.setenv(EMBED_IN, "*")
    with pytest.raises(Refused):
        access.build_middleware()


@pytest.mark.parametrize(
    "origin",
    [
        "moodle.example.org", "https://moodle.example.org/course", "*", "https://*", "https://*.org", "https:",
        "ftp://moodle.example.org", "https://a.example;script-src *", "https://a.example b.example", "", "'none'",
        "https://user@a.example", "https://a.example?x", "javascript://a.example", "https://a.example:port",
    ],
)  # fmt: skip
def test_what_is_no_site_may_not_frame_it(origin: str) -> None:
    """No scheme, a path, any site at all, or more than one policy in it: one sentence says what is meant."""
    with pytest.raises(Refused, match=r"--embed-in is .*: name a site as https://moodle\.example\.org, .* a path$"):
        parse_origins([origin])


@pytest.mark.parametrize(
    "origin", ["https://moodle.example.org", "http://localhost:8000", "https://*.example.org", "http://[::1]:8000"]
)
def test_what_is_a_site_may(origin: str) -> None:
    """With or without a port; all below a name; in capitals and with the stroke that a browser puts behind it too."""
    assert parse_origins([origin, origin.upper() + "/"]) == (origin, origin)
