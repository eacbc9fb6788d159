"""Open files as the event loop writes them: what it does itself, and what a thread does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from kafkafs.mount.fuse import writers
from kafkafs.mount.fuse.writers import Writer
from kafkafs.mount.nodes.append import AppendFile
from kafkafs.mount.vfs.errnos import Invalid
from kafkafs.mount.writes.appending import AppendHandle
from kafkafs.storage.log_manager import LogManager
from tests.mount.nodes import node_of, writable_tree
from tests.reading import read

#: So old that a record with the present time after it would roll the segment.
OLD = b'{"value":"x","timestamp":1500000000000}\n'


class Noting:
    """Records where each write of a handle was done, True for the event loop. The writer's clock
    advances by `seconds` in each, regardless of the real time, as this machine may be slow."""

    def __init__(self, handle: AppendHandle, monkeypatch: pytest.MonkeyPatch) -> None:
        self.in_loop: list[bool] = []
        self.seconds = 0.0
        self.now = 100.0
        self._write = handle.write
        monkeypatch.setattr(handle, "write", self.write)
        monkeypatch.setattr(writers, "perf_counter", lambda: self.now)

    def write(self, position: int, data: bytes) -> int:
        self.in_loop.append(threading.current_thread() is threading.main_thread())
        self.now += self.seconds
        return self._write(position, data)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LogManager]:
    with LogManager(str(tmp_path / "data")) as engine:
        yield engine


def opened(engine: LogManager, settings: dict[str, str]) -> tuple[Writer, AppendHandle]:
    engine.create_topic("t", 1, settings)
    node = node_of(writable_tree(engine), "t/0/append.jsonl", AppendFile)
    handle = node.open_writing(0)
    return Writer(node, handle), handle


@pytest.mark.parametrize(
    ("settings", "is_alone", "in_loop"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"flush.messages": "1"}, True, False),
        ({"flush.messages": "1000000"}, True, True),
        ({"compression.type": "zstd"}, True, False),
        ({"compression.type": "uncompressed"}, True, True),
        ({"segment.bytes": str(1 << 20)}, True, True),
        ({"internal.segment.bytes": "20000"}, True, False),
    ],
)
def test_the_loop_does_what_is_short_and_nobody_waits_for(
    engine: LogManager,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    is_alone: bool,
    in_loop: bool,
) -> None:
    writer, handle = opened(engine, settings)
    noting = Noting(handle, monkeypatch)

    async def write() -> None:
        for _ in range(20):
            assert await writer.write(0, 10 * OLD, is_alone) == 10 * len(OLD)

    trio.run(write)
    # The first append to a segment determines its age.
    assert noting.in_loop[1:] == [in_loop] * 19
    assert len(read(engine.log("t", 0).view())) == 200


def test_after_a_write_that_took_long_a_thread_does_it(
    engine: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, handle = opened(engine, {})
    noting = Noting(handle, monkeypatch)

    async def write(times: int, seconds: float) -> None:
        noting.seconds = seconds
        for _ in range(times):
            await writer.write(0, OLD, is_alone=True)

    trio.run(write, 2, 0.004)
    noting.in_loop.clear()
    trio.run(write, 2, 0.006)
    trio.run(write, 1, 0)
    noting.now += 0.25
    trio.run(write, 1, 0)
    assert noting.in_loop == [True, False, False, True]


def test_a_bad_line_is_told_from_the_loop_too(engine: LogManager) -> None:
    writer, _ = opened(engine, {})

    async def write(data: bytes) -> int:
        return await writer.write(0, data, is_alone=True)

    trio.run(write, OLD)
    with pytest.raises(Invalid, match="line 3: invalid JSON"):
        trio.run(write, OLD + b"bad\n")
    assert len(read(engine.log("t", 0).view())) == 2
