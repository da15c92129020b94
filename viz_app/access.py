"""Who is let in: rights that are decided when the server starts, and a guard before every route.

A server of one's own listens on this machine alone, and answers only what is asked of it by a name of this machine: a
foreign page whose name was made to point here (DNS rebinding), and a proxy that lets others in, use another. Who opens
it may load any folder and the hub, and write files. A shared server answers all, or those who use one of its names,
and nobody has these rights there.

No page of another site may show the app in a frame of its own, but those that were named when the server started.
Addresses of pages whose path has changed are redirected.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import get_option

from bert_core.refused import Refused
from viz_app.moved_pages import MOVED_PAGES
from viz_app.streamlit_compat import browser_message_kind, shorten_widget_texts

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
# What a proxy adds to what it passes on.
PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
MAX_TEXT_CHARACTERS = 200_000  # characters that are read at all, of whatever somebody types
MAX_ADDRESS_BYTES = 64_000  # bytes of a path and what is asked with it
MAX_MESSAGE_BYTES = 16 << 20  # of a message when its texts are cut: with more the connection is closed
HEALTH_PATH, METRICS_PATH = "/_stcore/health", "/_stcore/metrics"  # Streamlit's: the latter says what others do
ALLOWED_MESSAGES = (
    "rerun_script", "stop_script", "file_urls_request", "app_heartbeat", "deferred_file", "dataframe_chunk",
)  # fmt: skip


EMBED_IN = "HEADLIGHT_EMBED_IN"  # the origins of `headlight app --embed-in`, with spaces between
_ORIGIN = re.compile(r"https?://((\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)+|[a-z0-9-]+|\[[0-9a-f:]+\])(:\d{1,5})?")

shutting_down = threading.Event()  # set when the server was asked to stop: nobody new is let in


def is_local_server() -> bool:
    """Whether the server is for this machine alone: then any folder and the hub may be loaded, and files written."""
    return os.environ.get("HEADLIGHT_SHARED") != "1" and get_option("server.address") in LOCAL_HOSTS


def is_local_address(url: str) -> bool:
    """Whether an address leads each machine to itself."""
    return urlsplit(url).hostname in LOCAL_HOSTS


def build_middleware() -> list[Middleware]:
    """What stands before every route of the server."""
    framed_by = parse_origins(os.environ.get(EMBED_IN, "").split())
    return [Middleware(Guard, framed_by=framed_by), Middleware(MovedPages)]


def parse_origins(given: Iterable[str]) -> tuple[str, ...]:
    """Sites that may show the app in a frame, as a policy names them.

    Raises Refused for what is no origin: without a scheme, with a path, or any site at all.
    """
    origins = tuple(origin.removesuffix("/").lower() for origin in given)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise Refused(
                f"--embed-in is {origin[:80]!r}: name a site as https://moodle.example.org, or https://*.example.org "
                "for all below it, with its port if it has one, and without a path"
            )
    return origins


class Guard:
    """Answers what comes from elsewhere with one sentence, and lets nothing in that is larger than can be read.

    framed_by: the origins whose pages may show this one in a frame, beside its own.
    """

    def __init__(self, app: ASGIApp, framed_by: Iterable[str] = ()) -> None:
        self.app = app
        self.policy = " ".join(["frame-ancestors 'self'", *framed_by]).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it: 403 by whom it is, 414 by its address, 503 before the server stops."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        send = self._with_policy(send)
        health = scope["path"].endswith(HEALTH_PATH)
        status, why = 403, refusal_reason(Headers(scope=scope))
        if health and not is_local_server():
            why = None  # a proxy asks by whatever name, and learns nothing
        if shutting_down.is_set() and (health or scope["type"] == "websocket"):
            status, why = 503, "This server is about to stop: it finishes what runs, and lets nobody in."
        if scope["path"].endswith(METRICS_PATH) and not is_local_server():
            status, why = 404, "There is nothing here."
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string", b"")) > MAX_ADDRESS_BYTES:
            status, why = 414, f"The address is too long: at most {MAX_ADDRESS_BYTES:,} bytes are read."
        if why is None:
            await self.app(scope, limit_messages(receive, send) if scope["type"] == "websocket" else receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": why[:120]})  # before it is accepted: 403
        else:
            await PlainTextResponse(f"{why}\n", status)(scope, receive, send)

    def _with_policy(self, send: Send) -> Send:
        async def sends(message: Message) -> None:
            if message["type"] == "http.response.start":
                # One header more: where there is another policy, a browser holds to both.
                message = {**message, "headers": [*message["headers"], (b"content-security-policy", self.policy)]}
            await send(message)

        return sends


class MovedPages:
    """Redirects the address of a page whose path has changed to its new path, with its query.

    The redirect is relative, so that it also holds behind a proxy that removes a prefix from the path.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with 307 where the path is an old one; pass any other request on."""
        new_path = _new_path(scope["path"]) if scope["type"] == "http" else None
        if new_path is None:
            await self.app(scope, receive, send)
            return
        query = scope.get("query_string", b"").decode("latin-1")
        await RedirectResponse(f"{new_path}?{query}" if query else new_path, 307)(scope, receive, send)


def _new_path(path: str) -> str | None:
    """The path, relative to this one, at which a page now is; None for a path that has not changed."""
    base = get_option("server.baseUrlPath").strip("/")
    old = path.strip("/").removeprefix(f"{base}/" if base else "")
    if old not in MOVED_PAGES or path.strip("/") == base:
        return None
    return ("../" if path.endswith("/") else "") + MOVED_PAGES[old]


def refusal_reason(headers: Headers) -> str | None:
    """Why a request with these headers is not answered; None where it is."""
    host, origin = headers.get("host", ""), headers.get("origin")
    names = LOCAL_HOSTS if is_local_server() else get_option("server.allowedHosts")
    if not _matches_host(_hostname(host), names):
        return _wrong_host_reason(host or "no name at all")
    if is_local_server() and (by := next((name for name in PROXY_HEADERS if name in headers), None)) is not None:
        return _wrong_host_reason(f"{host}, through a proxy ({by})")
    others = get_option("server.corsAllowedOrigins")
    if origin is None or origin in others or urlsplit(origin).netloc.lower() == host.lower():
        return None
    return f"This server answers its own pages alone, and this was asked by one of {origin}."


def _wrong_host_reason(host: str) -> str:
    if is_local_server():
        return (
            f"This server is for the machine it runs on, and was asked for as {host}. "
            "For others, start it with `headlight app --shared`."
        )
    return f"This server was asked for as {host}, which is none of the names that `--host` gave it."


def _hostname(host: str) -> str:
    """A host without its port, in small letters; empty where it is none."""
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018  (raises where it is no number)
        plain = parts.username is None and not (parts.path or parts.query or parts.fragment)
    except ValueError:
        return ""
    return (parts.hostname or "").rstrip(".") if plain else ""


def _matches_host(hostname: str, names: Iterable[str]) -> bool:
    """Whether a host is one of these names; `*.example.org` stands for all below it, and no names for any."""
    names = [name.strip().lower().rstrip(".") for name in names]
    below = (name[1:] for name in names if name.startswith("*."))
    return not names or hostname in names or "*" in names or any(map(hostname.endswith, below))


def limit_messages(receive: Receive, send: Send) -> Receive:
    """What a browser's pages send, and nothing else: no message empties the caches that all visitors share.

    Each text in it is cut to one character more than is read, so that a page can say so.
    """

    async def read() -> Message:
        while True:
            message = await receive()
            if not message.get("bytes"):
                return message
            data = _allowed_message(message["bytes"])
            if data is None:
                continue
            if len(data) <= MAX_MESSAGE_BYTES:
                return {**message, "bytes": data}
            await send({"type": "websocket.close", "code": 1009, "reason": f"more than {MAX_MESSAGE_BYTES:,} bytes"})
            return {"type": "websocket.disconnect", "code": 1009}

    return read


def _allowed_message(data: bytes) -> bytes | None:
    """Return a browser's message with its texts cut; None if it is not of `ALLOWED_MESSAGES`."""
    if browser_message_kind(data) not in ALLOWED_MESSAGES:
        return None
    max_characters = MAX_TEXT_CHARACTERS + 1
    return data if len(data) <= max_characters else shorten_widget_texts(data, max_characters)
