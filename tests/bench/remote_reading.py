"""Row 47: a log in a bucket: requests of a look-up, and a stream beside a plain download.

The requests are counted by a proxy in front of moto's server. The speed is that of a server in
another process (`bucket.py`), once as distant as a bucket usually is, and once as fast as the
processor allows, of which client and server need both cores then.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import boto3
import botocore.config

from kafkafs.storage.io import opening
from kafkafs.storage.io.remote.block_source import block_cache
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from tests import s3
from tests.bench import bucket
from tests.bench.commands import KAFKAFS
from tests.bench.data import TOPIC, plain_log
from tests.bench.plan import Plan
from tests.bench.race import Call, Figure, Outcome, Outcomes, race, versus

_PART = 8  # of the records, for what is counted: that server has them in memory
_PIECE = 4 << 20
_THREADS = 16
_LOOK_UPS = 20
#: Seconds until the first byte, and bytes per second of a connection.
_DISTANCES = {"20 ms, 25 MB/s each": (0.02, 25e6), "no delay": (0.0, 0.0)}


def in_bucket(plan: Plan) -> Outcomes:
    with s3.serving() as server:
        url = server.upload(plain_log(plan.records // _PART), "log")
        yield from _look_ups(server, url)
        yield _command(server, url)
    for name, (latency, rate) in _DISTANCES.items():
        yield _stream_speed(plan, name, latency, rate)


def _stream_speed(plan: Plan, name: str, latency: float, rate: float) -> Outcome:
    """Has a target if the server, and not the processor, is the limit."""
    log = plain_log(plan.records)
    [path] = log.glob(f"{TOPIC}-0/*.log")
    size = path.stat().st_size
    with bucket.serving(log.parent, latency, rate) as endpoint:
        client = _client(endpoint)
        key = f"{TOPIC}-0/{path.name}"
        seconds = race(
            {
                "ours": Call(lambda: _stream(f"s3://{log.name}")),
                "plain": Call(lambda: _download(client, log.name, key, size)),
            },
            plan.repetitions,
        )
        client.close()
    pair = seconds["ours"], seconds["plain"]
    peer = f"boto3, {_THREADS} ranges at once"
    target = 0.8 if rate else None
    work = f"stream from a bucket, {name}"
    return versus(47, work, pair, peer, target, amount=size / 1e6, unit="MB/s")


def _look_ups(server: s3.S3, url: str) -> Iterator[Outcome]:
    with _nothing_cached():
        # As little memory as can be, so that hardly a look-up finds the block of another.
        view = _view(url, {"kafkafs.remote.memory.bytes": str(1 << 20)})
        server.proxy.requests.clear()
        _look_up(view, 0)
        first = len(server.proxy.requests)
        server.proxy.requests.clear()
        for number in range(1, _LOOK_UPS + 1):
            _look_up(view, number)
        later = len(server.proxy.requests) / _LOOK_UPS
    unit = "requests"
    yield Outcome(47, "first look-up of an offset", Figure(first, unit), limit=Figure(3, unit))
    yield Outcome(47, "each one after it", Figure(later, unit), limit=Figure(1, unit))


def _look_up(view: View, number: int) -> None:
    offset = view.start_offset + number * (view.end_offset - view.start_offset) // (_LOOK_UPS + 1)
    assert view.value_at(offset, Isolation.READ_COMMITTED) is not None


def _command(server: s3.S3, url: str) -> Outcome:
    server.proxy.requests.clear()
    words = [*KAFKAFS, "cat", url, f"{TOPIC}/0/offset/600"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    count = Figure(len(server.proxy.requests), "requests")
    return Outcome(47, "kafkafs cat URL …/offset/600, all it does", count)


def _stream(url: str) -> float:
    """Decodes all records, of which nothing is cached."""
    with _nothing_cached():
        view = _view(url)
        started = time.perf_counter()
        rows = sum(map(len, view.read()))
        taken = time.perf_counter() - started
    assert rows == view.end_offset
    return taken


def _client(endpoint: str) -> Any:
    config = botocore.config.Config(max_pool_connections=2 * _THREADS)
    return boto3.client("s3", endpoint_url=endpoint, config=config)


def _download(client: Any, name: str, key: str, size: int) -> float:
    """Downloads an object in pieces."""

    def read(position: int) -> int:
        last = min(position + _PIECE, size) - 1
        answer = client.get_object(Bucket=name, Key=key, Range=f"bytes={position}-{last}")
        return len(answer["Body"].read())

    started = time.perf_counter()
    with ThreadPoolExecutor(_THREADS) as threads:
        total = sum(threads.map(read, range(0, size, _PIECE)))
    taken = time.perf_counter() - started
    assert total == size
    return taken


def _view(url: str, configs: dict[str, str] | None = None) -> View:
    return Engine(url, configs).log(TOPIC, 0).view()


@contextmanager
def _nothing_cached() -> Iterator[None]:
    """Forgets blocks and listings, as in a new process."""
    block_cache.cache_clear()
    opening._sources.clear()
    yield
