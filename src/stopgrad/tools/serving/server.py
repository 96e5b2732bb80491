"""A server of this machine alone, which hands out a closed set of files to pages of its own."""

from __future__ import annotations

import contextlib
import errno
import http.server
import os
import socketserver
import sys
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from stopgrad.base.errors import ArgumentError
from stopgrad.tools.serving.site import Site

HERE = "127.0.0.1"

HEADERS = {
    # Only a page that is isolated from all others gets the memory that threads of WebAssembly share.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; "
        "style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

BLOCK = 1 << 20
"""The bytes of a file that are sent at a time."""

WAITED = 60.0
"""Seconds after which a connection that says nothing is closed."""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET and HEAD of what the site has, for this machine's own names."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "stopgrad", ""
    timeout = WAITED
    server: Server

    def do_GET(self) -> None:
        """A file."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """What a GET would be answered, without the file."""
        self._answer(with_body=False)

    def _refused(self) -> None:
        self.close_connection = True  # What the request carries is not read.
        self._say(
            HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered here", {"Allow": "GET, HEAD"}
        )

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refused  # noqa: N815

    def _answer(self, with_body: bool) -> None:
        if self.headers.get_all("Host", []) not in self.server.hosts:
            # A name of somebody else's that leads here: another site's page would read what is served.
            self.close_connection = True
            return self._say(HTTPStatus.MISDIRECTED_REQUEST, f"this is {self.server.address}", {}, with_body)
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # What it carries is not read, and must not count as a request.
        served = self.server.site.served.get(unquote(self.path.partition("?")[0]))
        if served is None:
            return self._say(HTTPStatus.NOT_FOUND, "there is no such file here", {}, with_body)
        with contextlib.ExitStack() as stack:
            try:
                file, size = stack.enter_context(served.opened())
            except OSError as error:
                return self._say(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), {}, with_body)
            self._head(HTTPStatus.OK, {"Content-Type": served.kind, "Content-Length": str(size)})
            while with_body and size and (block := file.read(min(size, BLOCK))):
                self.wfile.write(block)
                size -= len(block)
            if with_body and size:  # It became shorter meanwhile: the browser must not wait for the rest.
                self.close_connection = True

    def _say(self, status: HTTPStatus, text: str, more: dict[str, str], with_body: bool = True) -> None:
        body = f"{status.value} {status.phrase}: {text}\n".encode(errors="replace")
        kind = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
        self._head(status, {**kind, **more})
        if with_body:
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing of every file."""


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves a site at 127.0.0.1.

    Args:
        site: what is served.
        port: the port; 0 for a free one.

    Attributes:
        address: where the page is.

    Raises:
        ArgumentError: the port is taken, or not allowed.
    """

    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # There, it would share the port with another program.

    def __init__(self, site: Site, port: int = 0) -> None:
        self.site = site
        try:
            super().__init__((HERE, port), Handler)
        except OSError as error:
            taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
            if not taken:
                raise
            said = "is taken" if error.errno == errno.EADDRINUSE else "is not allowed"
            raise ArgumentError(
                f"--port: port {port} {said}; name another, or 0 for one that is free"
            ) from None
        self.port = int(self.server_address[1])
        self.address = f"http://{HERE}:{self.port}/"
        names = [f"{name}:{self.port}" for name in (HERE, "localhost")]
        self.hosts = [[name] for name in (*names, *((HERE, "localhost") if self.port == 80 else ()))]

    def handle_error(self, request: Any, client_address: object) -> None:
        """A browser that leaves is no error."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)
