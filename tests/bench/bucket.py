"""A server that speaks as much of S3 as a reader needs: GET with a range, HEAD, and lists.

It is a process of its own and sends files with `sendfile`, so that what a client does, and not the
server, takes the time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen
from xml.sax.saxutils import escape

from tests.s3 import ENVIRONMENT

_COUNT = "/-/count"
_KEYS_OF_A_PAGE = 1000
_PACED_BYTES = 256 << 10


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    root = Path()
    counts: ClassVar[Counter[str]] = Counter()
    latency = 0.0  # of each request, in seconds
    rate = 0.0  # of each connection, in bytes per second; 0 is no limit


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        if split.path == _COUNT:
            counts = self.server.counts
            self._answer(200, f"{counts['lists']} {counts['objects']}".encode())
            counts.clear()
            return
        time.sleep(self.server.latency)
        query = parse_qs(split.query)
        is_list = "list-type" in query
        self.server.counts["lists" if is_list else "objects"] += 1
        if is_list:
            self._list(unquote(split.path).strip("/"), query)
        else:
            self._object(self.server.root / unquote(split.path).lstrip("/"))

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    def _object(self, path: Path) -> None:
        try:
            file = path.open("rb")
        except OSError:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        with file:
            status = os.stat(file.fileno())
            start, end = self._range(status.st_size)
            is_part = "Range" in self.headers
            self.send_response(206 if is_part else 200)
            self.send_header("ETag", _etag(status))
            self.send_header("Last-Modified", formatdate(status.st_mtime, usegmt=True))
            self.send_header("Content-Length", str(end - start))
            if is_part:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{status.st_size}")
            self.end_headers()
            if self.command == "GET":
                self._send(file.fileno(), start, end)

    def _send(self, file: int, start: int, end: int) -> None:
        began, first, rate = time.monotonic(), start, self.server.rate
        while start < end:
            size = min(end - start, _PACED_BYTES) if rate else end - start
            start += os.sendfile(self.connection.fileno(), file, start, size)
            if rate:
                time.sleep(max(began + (start - first) / rate - time.monotonic(), 0))

    def _range(self, size: int) -> tuple[int, int]:
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        return int(first), min(int(last) + 1, size) if last else size

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        [prefix] = query.get("prefix", [""])
        [after] = query.get("continuation-token", [""])
        root = self.server.root / bucket
        keys = _keys(root)
        found = [key for key in keys if key.startswith(prefix) and key > after]
        page = found[:_KEYS_OF_A_PAGE]
        more = len(page) < len(found)
        contents = "".join(_described(root, key) for key in page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        self._answer(
            200,
            f"<ListBucketResult><Name>{escape(bucket)}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(page)}</KeyCount><MaxKeys>{_KEYS_OF_A_PAGE}</MaxKeys>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{contents}"
            "</ListBucketResult>".encode(),
        )

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@lru_cache(maxsize=4)
def _keys(bucket: Path) -> list[str]:
    """Returns all keys of a bucket, which does not change."""
    return sorted(str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file())


def _described(root: Path, key: str) -> str:
    status = (root / key).stat()
    when = formatdate(status.st_mtime, usegmt=True)
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified>"
        f"<ETag>{escape(_etag(status))}</ETag><Size>{status.st_size}</Size></Contents>"
    )


def _etag(status: os.stat_result) -> str:
    return f'"{status.st_mtime_ns:x}-{status.st_size:x}"'


@contextmanager
def serving(root: Path, latency: float = 0, rate: float = 0) -> Iterator[str]:
    """Runs a server, whose buckets are the directories in `root`, and yields its URL, which the
    environment of this process names meanwhile. Each request is answered after `latency` seconds,
    with `rate` bytes per second, which 0 does not limit."""
    words = [sys.executable, "-m", "tests.bench.bucket", str(root), str(latency), str(rate)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            with patch.dict(os.environ, {**ENVIRONMENT, "AWS_ENDPOINT_URL": url}):
                yield url
        finally:
            process.terminate()


def counted(url: str) -> tuple[int, int]:
    """Returns how many lists and objects, or parts of them, a server was asked for, and counts from
    0 again."""
    with urlopen(f"{url}{_COUNT}") as answer:
        lists, objects = answer.read().split()
    return int(lists), int(objects)


def main() -> None:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.root = Path(sys.argv[1])
    server.latency, server.rate = float(sys.argv[2]), float(sys.argv[3])
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
