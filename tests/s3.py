"""An S3 server on this machine, moto's, behind a proxy that counts requests and makes them fail."""

from __future__ import annotations

import http.client
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import botocore.config
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

BUCKET = "bucket"
SECRET = "a-secret-that-nothing-prints"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "an-id",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
#: Not passed on from one connection to the other.
_OF_THE_CONNECTION = (
    *("connection", "keep-alive", "transfer-encoding", "content-length", "date", "expect"),
)


@dataclass(frozen=True)
class Fault:
    """What the proxy does with a request: answers `status`, or breaks the connection after half of
    the body (`resets`), or ends the body there in good order (`shortens`), or answers nothing for
    `silent` seconds."""

    status: int = 0
    resets: bool = False
    shortens: bool = False
    silent: float = 0


@dataclass
class Proxy:
    """`requests`: method, path with query, and range of each. `fault`: called for each of them."""

    url: str = ""
    latency: float = 0
    fault: Callable[[str, str], Fault | None] = lambda method, path: None
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    def reset(self) -> None:
        self.requests.clear()
        self.latency = 0
        self.fault = lambda method, path: None


@dataclass(frozen=True)
class S3:
    """The server: `client` goes past the proxy, which the environment names."""

    client: Any
    proxy: Proxy
    environment: Mapping[str, str]

    def upload(self, directory: Path, prefix: str) -> str:
        """Copies the files below a directory; returns their URL."""
        # Directly into the server's memory: corpora have thousands of files.
        store = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                key = f"{prefix}/{path.relative_to(directory)}"
                store.put_object(BUCKET, key, path.read_bytes())
        return f"s3://{BUCKET}/{prefix}"

    def proxied_client(self) -> Any:
        """Returns a client of its own that goes through the proxy."""
        config = botocore.config.Config(max_pool_connections=32)
        return boto3.client("s3", endpoint_url=self.proxy.url, config=config)

    def put(self, key: str, data: bytes) -> str:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)
        return f"s3://{BUCKET}/{key}"


@contextmanager
def serving() -> Iterator[S3]:
    """Runs server and proxy; the environment of this process names the proxy meanwhile."""
    logging.getLogger("werkzeug").disabled = True
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    proxy = Proxy()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy, host, port))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL": proxy.url}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{port}",
            config=botocore.config.Config(retries={"max_attempts": 1}),
        )
        client.create_bucket(Bucket=BUCKET)
        yield S3(client, proxy, environment)
        client.close()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        server.shutdown()
        server.server_close()
        moto.stop()


def _handler(proxy: Proxy, host: str, port: int) -> type[BaseHTTPRequestHandler]:
    local = threading.local()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the client has gone
                self.close_connection = True

        def do_GET(self) -> None:
            proxy.requests.append((self.command, self.path, self.headers.get("Range", "")))
            sent = self._body()
            fault = proxy.fault(self.command, self.path) or Fault()
            time.sleep(proxy.latency + fault.silent)
            if fault.status:
                self._answer(fault.status, {}, b"")
                return
            status, headers, body = self._forward(sent)
            if fault.resets or fault.shortens:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                size = len(body) // 2
                self.send_header("Content-Length", str(size if fault.shortens else len(body)))
                self.end_headers()
                self.wfile.write(body[:size])
                self.wfile.flush()
                if fault.resets:
                    linger = struct.pack("ii", 1, 0)
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.close_connection = True
                return
            self._answer(status, headers, body)

        # The names that the base class looks for.
        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

        def handle_expect_100(self) -> bool:
            found = super().handle_expect_100()
            self.wfile.flush()
            return found

        def _body(self) -> bytes:
            """Returns what the client sends."""
            if self.headers.get("Transfer-Encoding", "") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _forward(self, sent_body: bytes) -> tuple[int, dict[str, str], bytes]:
            upstream = getattr(local, "upstream", None)
            if upstream is None:
                upstream = local.upstream = http.client.HTTPConnection(host, port, timeout=30)
            sent = {k: v for k, v in self.headers.items() if k.lower() not in _OF_THE_CONNECTION}
            try:
                upstream.request(self.command, self.path, sent_body or None, headers=sent)
                answer = upstream.getresponse()
                body = answer.read()
            except (http.client.HTTPException, OSError):
                upstream.close()
                raise
            headers = {k: v for k, v in answer.getheaders() if k.lower() not in _OF_THE_CONNECTION}
            if self.command == "HEAD":
                headers["Content-Length"] = answer.getheader("Content-Length", "0")
            return answer.status, headers, body

        def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    return Handler
