"""Following a partition, without FUSE: each record comes once, in order, whatever happens to its
files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkafs.mount.streams.following import FollowHandle
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import ReadInterrupted, WouldBlock
from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_topic
from tests.mount.nodes import file_of


def batch(offset: int, count: int = 1) -> bytes:
    records = [SimpleRecord(1000 + at, None, b"v%d" % (offset + at)) for at in range(count)]
    return build_batch(records, BatchFields(base_offset=offset))


def lines(*offsets: int) -> bytes:
    return b"".join(b"v%d\n" % offset for offset in offsets)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A partition `t-0` with offsets 0 to 5 in segments of two batches."""
    settings = TopicSettings(segment_bytes=2 * len(batch(0)))
    return write_topic(tmp_path / "logs", map(batch, range(6)), settings)


def follow(directory: Path, *, waits: bool = False) -> FollowHandle:
    handle = file_of(Tree(Engine(str(directory))), "t/0/follow").open(waits=waits)
    assert isinstance(handle, FollowHandle)
    return handle


def append(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


def test_what_is_there_then_what_comes(log_dir: Path) -> None:
    handle = follow(log_dir)
    assert bytes(handle.read(0, 1000)) == lines(0, 1, 2, 3, 4, 5)
    assert handle.take(handle.end, 1000) is None
    with pytest.raises(WouldBlock):
        handle.read(18, 1000)
    append(log_dir / "t-0" / f"{4:020}.log", batch(6, 2))
    assert bytes(handle.take(handle.end, 1000) or b"") == lines(6, 7)
    assert handle.take(handle.end, 1000) is None


def test_small_reads(log_dir: Path) -> None:
    handle = follow(log_dir)
    found = b""
    while part := handle.take(handle.end, 4):
        assert len(part) <= 4
        found += part
    assert found == lines(0, 1, 2, 3, 4, 5)


def test_a_new_segment(log_dir: Path) -> None:
    handle = follow(log_dir)
    handle.take(handle.end, 1000)
    append(log_dir / "t-0" / f"{6:020}.log", batch(6))
    assert bytes(handle.take(handle.end, 1000) or b"") == lines(6)


def test_half_a_batch_is_waited_for(log_dir: Path) -> None:
    handle = follow(log_dir)
    handle.take(handle.end, 1000)
    log, data = log_dir / "t-0" / f"{4:020}.log", batch(6)
    append(log, data[:-1])
    assert handle.take(handle.end, 1000) is None
    append(log, data[-1:])
    assert bytes(handle.take(handle.end, 1000) or b"") == lines(6)


def test_retention_passes_the_reader(log_dir: Path) -> None:
    handle = follow(log_dir)
    assert bytes(handle.take(handle.end, 2) or b"") == b"v0"
    for path in (log_dir / "t-0").glob(f"{0:020}.*"):
        path.unlink()
    rest = b""
    while part := handle.take(handle.end, 1000):
        rest += part
    assert rest.endswith(lines(2, 3, 4, 5))


def test_a_deleted_partition_is_the_end(log_dir: Path) -> None:
    handle = follow(log_dir)
    handle.take(handle.end, 1000)
    (log_dir / "t-0").rename(log_dir / f"t-0.{'0' * 32}-delete")
    assert handle.take(handle.end, 1000) == b""
    assert handle.read(handle.end, 1000) == b""


def test_nothing_comes(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkafs.mount.streams.following.IDLE_SECONDS", 0.0)
    handle = follow(log_dir, waits=True)
    handle.read(0, 1000)
    with pytest.raises(ReadInterrupted):
        handle.read(handle.end, 1000)


def test_damage_fails_once(log_dir: Path) -> None:
    log = log_dir / "t-0" / f"{2:020}.log"
    data = bytearray(log.read_bytes())
    data[64] ^= 1
    log.write_bytes(data)
    handle = follow(log_dir)
    assert bytes(handle.take(handle.end, 1000) or b"") == lines(0, 1)
    with pytest.raises(CorruptError):
        handle.take(handle.end, 1000)
    assert bytes(handle.take(handle.end, 1000) or b"") == lines(3, 4, 5)
    assert handle.take(handle.end, 1000) is None
