"""A folder with the engine, the runtime and a model, and a server of static files for it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.browser.conftest import ROOT, free_port
from tests.conftest import exported_mini
from viz_app.site.compression import compress_parts

POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src 'self' data:"
PAGE = "<!doctype html>{policy}<link rel=icon href=data:,><title>A site</title>"


def build_site(folder: Path) -> None:
    """Write the site: `model` and `compressed` hold the same model, and `meta.html` states the policy itself."""
    for name in ("engine", "runtime"):
        shutil.copytree(ROOT / "viz_app" / "site" / name, folder / name)
    shutil.copytree(exported_mini(), folder / "model")
    shutil.copytree(folder / "model", folder / "compressed")
    compress_parts(folder / "compressed")
    (folder / "index.html").write_text(PAGE.format(policy=""))
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    (folder / "meta.html").write_text(PAGE.format(policy=policy))


class StaticSite(ThreadingHTTPServer):
    """A server of the files of a folder.

    sends_policy: whether it sends the content security policy with each file.
    interrupted: name of a file of which it sends the first half only, or None.
    received: path of each request.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", free_port()), partial(_Handler, directory=str(folder)))
        self.sends_policy, self.interrupted = True, None
        self.received: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(SimpleHTTPRequestHandler):
    server: StaticSite

    def end_headers(self) -> None:
        if self.server.sends_policy:
            self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def copyfile(self, source: object, outputfile: object) -> None:
        name = self.path.rpartition("/")[2]
        content = source.read()  # type: ignore[attr-defined]
        self.wfile.write(content[: len(content) // 2] if name == self.server.interrupted else content)

    def do_GET(self) -> None:
        self.server.received.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Write no log."""


@contextmanager
def serve_site(folder: Path) -> Iterator[StaticSite]:
    """Serve a folder in a thread."""
    with StaticSite(folder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
