"""Servers on this machine that serve a directory: over HTTP, as common web servers do, and SFTP."""

from __future__ import annotations

import functools
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import paramiko


class _WebServer(ThreadingHTTPServer):
    daemon_threads = True
    knows_ranges = True
    fault: Callable[[str], HTTPStatus | None]


class _WebHandler(SimpleHTTPRequestHandler):
    """Python's own sends whole files, without an ETag."""

    protocol_version = "HTTP/1.1"
    server: _WebServer

    def do_GET(self) -> None:
        status = self.server.fault(self.path)
        if status is not None:
            self.send_error(status)
            return
        path = Path(self.translate_path(self.path))
        if not self.server.knows_ranges or not path.is_file():
            super().do_GET()
            return
        data = path.read_bytes()
        stat = path.stat()
        etag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
        if self.headers.get("If-Match", etag) != etag:
            self.send_error(HTTPStatus.PRECONDITION_FAILED)
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, end = (int(wanted[1]), int(wanted[2]) + 1) if wanted else (0, len(data))
        self.send_response(HTTPStatus.PARTIAL_CONTENT if wanted else HTTPStatus.OK)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("ETag", etag)
        self.send_header("Last-Modified", self.date_time_string(int(stat.st_mtime)))
        self.send_header("Content-Length", str(len(data[start:end])))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[start:end])

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    def send_head(self) -> Any:
        found = super().send_head()
        if found is not None and self.command == "HEAD":
            found.close()
            return None
        return found

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def web(
    root: Path,
    *,
    knows_ranges: bool = True,
    fault: Callable[[str], HTTPStatus | None] = lambda path: None,
) -> Iterator[str]:
    """Serves a directory over HTTP; yields its URL. `fault`: what to answer to a request of a path
    instead."""
    handler = functools.partial(_WebHandler, directory=str(root))
    with _WebServer(("127.0.0.1", 0), handler) as server:
        server.knows_ranges = knows_ranges
        server.fault = fault
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


class _Login(paramiko.ServerInterface):
    def check_auth_none(self, username: str) -> int:
        return int(paramiko.AUTH_SUCCESSFUL)

    def check_auth_publickey(self, username: str, key: object) -> int:
        return int(paramiko.AUTH_SUCCESSFUL)

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, channel_id: int) -> int:
        return int(paramiko.OPEN_SUCCEEDED)


class _Files(paramiko.SFTPServerInterface):
    """Serves the machine's own files, for reading."""

    def __init__(self, login: paramiko.ServerInterface, server: Sftp) -> None:
        super().__init__(login)
        self._server = server

    def list_folder(self, path: str) -> Any:
        if path in self._server.forbidden:
            return paramiko.SFTP_PERMISSION_DENIED
        if path in self._server.breaking:
            self._server.breaking.remove(path)
            self._server.disconnect()
        found = []
        for entry in os.scandir(path):
            status = paramiko.SFTPAttributes.from_stat(entry.stat(follow_symlinks=False))
            status.filename = entry.name
            found.append(status)
        return found

    def stat(self, path: str) -> Any:
        try:
            return paramiko.SFTPAttributes.from_stat(os.stat(path))
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)

    lstat = stat

    def open(self, path: str, flags: int, attributes: object) -> Any:
        try:
            file = open(path, "rb")  # noqa: SIM115 - the handle closes it
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)
        handle = _Handle(flags)
        handle.readfile = file
        return handle


class _Handle(paramiko.SFTPHandle):
    def stat(self) -> Any:
        return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))


class Sftp:
    """A running server: `url` without a path, its `key`, and the connections that it has. It
    refuses to list the directories `forbidden`, and ends its connections once, when it is to list
    one of `breaking`."""

    def __init__(self, listener: socket.socket) -> None:
        self.key = paramiko.ECDSAKey.generate()
        self.port = listener.getsockname()[1]
        self.url = f"sftp://someone@127.0.0.1:{self.port}"
        self.connections: list[Any] = []
        self.forbidden: set[str] = set()
        self.breaking: set[str] = set()
        self._listener = listener

    def known_host(self) -> str:
        """Returns the line of `known_hosts` for it."""
        return f"[127.0.0.1]:{self.port} {self.key.get_name()} {self.key.get_base64()}\n"

    def disconnect(self) -> None:
        for each in self.connections:
            each.close()
        self.connections.clear()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(self.key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Files, self)
            with suppress(paramiko.SSHException, EOFError):
                transport.start_server(server=_Login())
            self.connections.append(transport)


@contextmanager
def sftp() -> Iterator[Sftp]:
    """Serves this machine's files over SFTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Sftp(listener)
        thread = threading.Thread(target=server.accept, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            server.disconnect()
