"""Access control: rights that are decided when the server starts, and a guard in front of every route.

A local server listens on this machine only, and answers only requests to a name of this machine; this excludes foreign
pages whose name was made to resolve here (DNS rebinding) and proxies. Its users may load any folder, use the hub and
write files. A shared server answers all requests, or those to one of its host names, and grants none of these rights.

Only sites that were named when the server started may show the app in a frame.
Addresses of pages and views whose path has changed are redirected.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection, Iterable
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import get_option

from bert_core.refused import Refused
from viz_app.moved_pages import FIRST_VIEW, HOME, moved_address
from viz_app.streamlit_compat import browser_message_kind, shorten_widget_texts

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
# Headers that a proxy adds to a request.
PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
MAX_TEXT_CHARACTERS = 200_000  # maximum of any text from a browser
MAX_ADDRESS_BYTES = 64_000  # of a path with its query
MAX_MESSAGE_BYTES = 16 << 20  # of a message with cut texts; the connection is closed after a larger one
HEALTH_PATH, METRICS_PATH = "/_stcore/health", "/_stcore/metrics"  # Streamlit's: the latter says what others do
ALLOWED_MESSAGES = (
    "rerun_script", "stop_script", "file_urls_request", "app_heartbeat", "deferred_file", "dataframe_chunk",
)  # fmt: skip


EMBED_IN = "HEADLIGHT_EMBED_IN"  # the origins of `headlight app --embed-in`, with spaces between
_ORIGIN = re.compile(r"https?://((\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)+|[a-z0-9-]+|\[[0-9a-f:]+\])(:\d{1,5})?")

shutting_down = threading.Event()  # set when the server begins to stop; new visitors are refused


def is_local_server() -> bool:
    """Return whether the server is for this machine only, whose users may load any folder and write files."""
    return os.environ.get("HEADLIGHT_SHARED") != "1" and get_option("server.address") in LOCAL_HOSTS


def is_local_address(url: str) -> bool:
    """Return whether an address refers to the machine that opens it."""
    return urlsplit(url).hostname in LOCAL_HOSTS


def build_middleware(view_params: Collection[str] = ()) -> list[Middleware]:
    """Return the middleware in front of every route of the server.

    view_params: names of the parameters with which an address without a page is that of a view.
    """
    framed_by = parse_origins(os.environ.get(EMBED_IN, "").split())
    return [Middleware(Guard, framed_by=framed_by), Middleware(MovedPages, view_params=view_params)]


def parse_origins(names: Iterable[str]) -> tuple[str, ...]:
    """Return the origins that may show the app in a frame, as a content security policy lists them.

    Raises Refused for an origin without a scheme, with a path, or that matches all sites.
    """
    origins = tuple(origin.removesuffix("/").lower() for origin in names)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise Refused(
                f"--embed-in is {origin[:80]!r}: name a site as https://moodle.example.org, or https://*.example.org "
                "for all below it, with its port if it has one, and without a path"
            )
    return origins


class Guard:
    """Refuses requests from elsewhere with one sentence, and limits the size of addresses and messages.

    framed_by: origins whose pages may show the app in a frame, besides its own.
    """

    def __init__(self, app: ASGIApp, framed_by: Iterable[str] = ()) -> None:
        self.app = app
        self.policy = " ".join(["frame-ancestors 'self'", *framed_by]).encode()

    async def __call__(self, scope: Scope, receive: Receive, send_message: Send) -> None:
        """Forward the request, or refuse it: 403 by its sender, 414 by its address, 503 while the server stops."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send_message)
            return
        send_message = self._with_policy(send_message)
        health = scope["path"].endswith(HEALTH_PATH)
        status, reason = 403, refusal_reason(Headers(scope=scope))
        if health and not is_local_server():
            reason = None  # a health check of a proxy may use any host name; its answer contains no data
        if shutting_down.is_set() and (health or scope["type"] == "websocket"):
            status, reason = 503, "This server is about to stop: it finishes what runs, and lets nobody in."
        if scope["path"].endswith(METRICS_PATH) and not is_local_server():
            status, reason = 404, "There is nothing here."
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string", b"")) > MAX_ADDRESS_BYTES:
            status, reason = 414, f"The address is too long: at most {MAX_ADDRESS_BYTES:,} bytes are read."
        if reason is None:
            await self.app(
                scope, limit_messages(receive, send_message) if scope["type"] == "websocket" else receive, send_message
            )
        elif scope["type"] == "websocket":
            await send_message(
                {"type": "websocket.close", "code": 1008, "reason": reason[:120]}
            )  # closed before it is accepted: 403
        else:
            await PlainTextResponse(f"{reason}\n", status)(scope, receive, send_message)

    def _with_policy(self, send_message: Send) -> Send:
        async def sends(message: Message) -> None:
            if message["type"] == "http.response.start":
                # An additional header: a browser enforces all policies of a response.
                message = {**message, "headers": [*message["headers"], (b"content-security-policy", self.policy)]}
            await send_message(message)

        return sends


class MovedPages:
    """Redirects the address of a page or view whose path has changed to its new path, with its query.

    An address without a page is redirected to Predictions if it has parameters of a view, and otherwise to Home.
    The redirect is relative, so that it also holds behind a proxy that removes a prefix from the path.
    """

    def __init__(self, app: ASGIApp, view_params: Collection[str] = ()) -> None:
        self.app, self.view_params = app, frozenset(view_params)

    async def __call__(self, scope: Scope, receive: Receive, send_message: Send) -> None:
        """Answer with 307 where the address is an old one; pass any other request on."""
        address = None
        if scope["type"] == "http":
            query = scope.get("query_string", b"").decode("latin-1")
            address = _new_address(scope["path"], query) or self._page_address(scope["path"], query)
        if address is None:
            await self.app(scope, receive, send_message)
            return
        await RedirectResponse(address, 307)(scope, receive, send_message)

    def _page_address(self, path: str, query: str) -> str | None:
        """Return the address of the page that an address without one opens, relative to this path; None for others."""
        base = get_option("server.baseUrlPath").strip("/")
        if path.strip("/") != base:
            return None
        names = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
        page = FIRST_VIEW if names & self.view_params else HOME
        folder = "" if path.endswith("/") else f"{base.rpartition('/')[2]}/"
        return folder + page + (f"?{query}" if query else "")


def _new_address(path: str, query: str) -> str | None:
    """Return the new address of a page, relative to this path; None for an address that has not changed."""
    base = get_option("server.baseUrlPath").strip("/")
    old = path.strip("/").removeprefix(f"{base}/" if base else "")
    new_path, params = moved_address(old, dict(parse_qsl(query, keep_blank_values=True)))
    if new_path == old or path.strip("/") == base:
        return None
    kept = "&".join(part for part in query.split("&") if unquote_plus(part.partition("=")[0]) in params)
    return ("../" if path.endswith("/") else "") + new_path + (f"?{kept}" if kept else "")


def refusal_reason(headers: Headers) -> str | None:
    """Return why a request with these headers is refused; None if it is not."""
    host, origin = headers.get("host", ""), headers.get("origin")
    names = LOCAL_HOSTS if is_local_server() else get_option("server.allowedHosts")
    if not _matches_host(_hostname(host), names):
        return _wrong_host_reason(host or "no name at all")
    if (
        is_local_server()
        and (proxy_header := next((name for name in PROXY_HEADERS if name in headers), None)) is not None
    ):
        return _wrong_host_reason(f"{host}, through a proxy ({proxy_header})")
    allowed_origins = get_option("server.corsAllowedOrigins")
    if origin is None or origin in allowed_origins or urlsplit(origin).netloc.lower() == host.lower():
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
    """Return a host without its port, in lower case; empty if it is not valid."""
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018  (raises for a port that is not a number)
        plain = parts.username is None and not (parts.path or parts.query or parts.fragment)
    except ValueError:
        return ""
    return (parts.hostname or "").rstrip(".") if plain else ""


def _matches_host(hostname: str, names: Iterable[str]) -> bool:
    """Return whether a host is one of these names; `*.example.org` matches all subdomains, no names match any."""
    names = [name.strip().lower().rstrip(".") for name in names]
    suffixes = (name[1:] for name in names if name.startswith("*."))
    return not names or hostname in names or "*" in names or any(map(hostname.endswith, suffixes))


def limit_messages(receive: Receive, send_message: Send) -> Receive:
    """Wrap `receive` so that it passes on only messages of ALLOWED_MESSAGES, with their texts cut.

    Others could, for example, clear the caches that all users share. A text is cut to one character more than is read,
    so that the page can state that it is too long.
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
            await send_message(
                {"type": "websocket.close", "code": 1009, "reason": f"more than {MAX_MESSAGE_BYTES:,} bytes"}
            )
            return {"type": "websocket.disconnect", "code": 1009}

    return read


def _allowed_message(data: bytes) -> bytes | None:
    """Return a browser's message with its texts cut; None if it is not of `ALLOWED_MESSAGES`."""
    if browser_message_kind(data) not in ALLOWED_MESSAGES:
        return None
    max_characters = MAX_TEXT_CHARACTERS + 1
    return data if len(data) <= max_characters else shorten_widget_texts(data, max_characters)
