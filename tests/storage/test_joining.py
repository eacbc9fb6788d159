"""Tests of small staged writes that are joined to the active segment: the same records as if each
write had segments of its own, in fewer segments, and for readers at any moment all or nothing."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import LogDirOffline
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.batch import BatchHeader, parse_header
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.ingest.commit_file import COMMIT_FILE, IngestWrite, StagedPart
from kafkafs.storage.ingest.staging import StagedWriter, StagingPlace, finish_all, staging_path
from kafkafs.storage.ingest.two_phase import ingest_parts
from kafkafs.storage.io.durable import Buffer, Calls, replaced
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.crash.checks import complaints
from tests.faults import path_of
from tests.profiles import percent
from tests.reading import Plain, read
from tests.staging import ALL, JOINED, NONE, NOW_MS, large_from, stage

#: Where fsync costs nothing; None if it cannot be used.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

_TEXT = st.none() | st.binary(max_size=60)
RECORD = st.builds(
    SimpleRecord,
    st.integers(NOW_MS - 100_000, NOW_MS),
    _TEXT,
    _TEXT,
    st.lists(st.tuples(st.text(max_size=3), _TEXT), max_size=2).map(tuple),
)
#: The records of a write, by task and append.
WRITE = st.lists(st.lists(st.lists(RECORD, min_size=1, max_size=4), max_size=3), max_size=3)


def stage_records(
    log_dir: Path, job: str, tasks: Sequence[Sequence[Sequence[SimpleRecord]]], plan: BatchPlan
) -> list[StagedPart]:
    """Stages the appends of several tasks for partition 0 of `t`."""
    parts: list[StagedPart] = []
    config = Engine(str(log_dir)).topic_config("t").config
    for task, appends in enumerate(tasks):
        attempt = StagingPlace(staging_path(str(log_dir))).attempt(job, f"{task}")
        writer = StagedWriter(attempt, "t", 0, config)
        for records in appends:
            writer.append_records(RecordColumns.from_records(records), plan, NOW_MS)
        parts += finish_all([writer])
    return parts


def content(engine: Engine | LogManager) -> list[Plain]:
    return read(engine.log("t", 0).view())


def logs(log_dir: Path) -> list[Path]:
    return sorted((log_dir / "t-0").glob("*.log"))


def batches(log_dir: Path) -> list[BatchHeader]:
    """Returns the headers of the batches of partition 0."""
    found = []
    for path in logs(log_dir):
        data, position = path.read_bytes(), 0
        while position < len(data):
            found.append(parse_header(data[position:]))
            position += found[-1].size
    return found


@settings(max_examples=percent(25))
@given(
    st.lists(WRITE, max_size=6),
    st.sampled_from(Codec),
    st.sampled_from([{}, {"message.timestamp.type": "LogAppendTime"}, {"segment.ms": "50000"}]),
    st.sampled_from([300, 2000, 1 << 20]),
)
def test_joined_writes_have_the_records_of_separate_ones(
    writes: list[list[list[list[SimpleRecord]]]],
    codec: Codec,
    configs: dict[str, str],
    segment_bytes: int,
) -> None:
    found: dict[int | None, list[Plain]] = {}
    counts: dict[int | None, int] = {}
    for way in (NONE, JOINED):
        with tempfile.TemporaryDirectory(dir=MEMORY) as path:
            log_dir = Path(path) / "logs"
            with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine, large_from(way):
                sizes = {"internal.segment.bytes": f"{segment_bytes}"}
                engine.create_topic("t", 1, {**configs, **sizes})
                for number, tasks in enumerate(writes):
                    parts = stage_records(log_dir, f"{number}", tasks, BatchPlan(codec=codec))
                    ingest_parts(engine, IngestWrite("w", number), parts)
                found[way] = content(engine)
                assert complaints(engine) == []
            with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
                assert content(engine) == found[way]
                assert complaints(engine) == []
            counts[way] = len(logs(log_dir))
    assert found[JOINED] == found[NONE]
    assert counts[JOINED] <= counts[NONE]


def test_the_joined_batch_is_compressed_as_the_staged_ones(tmp_path: Path) -> None:
    with LogManager(str(tmp_path / "logs"), clock=SetClock(NOW_MS)) as engine:
        engine.create_topic("t")
        some = [[SimpleRecord(NOW_MS, None, b"x" * 500)]]
        plan = BatchPlan(codec=Codec.ZSTD)
        ingest_parts(
            engine, IngestWrite("j"), stage_records(tmp_path / "logs", "j", [some] * 20, plan)
        )
        (batch,) = batches(tmp_path / "logs")
        assert (batch.codec, batch.record_count, batch.size < 200) == (Codec.ZSTD, 20, True)


@pytest.mark.parametrize(
    ("size", "most", "codec", "is_joined"),
    [
        ((1 << 20) - 200, 1 << 20, Codec.NONE, True),
        (1 << 20, 2 << 20, Codec.NONE, False),
        ((1 << 19) - 200, 1 << 19, Codec.NONE, True),
        (1 << 19, 1 << 19, Codec.NONE, False),
        ((4 << 20) - 200, 4 << 20, Codec.ZSTD, True),
        (4 << 20, 8 << 20, Codec.ZSTD, False),
    ],
)
def test_limits(tmp_path: Path, size: int, most: int, codec: Codec, is_joined: bool) -> None:
    """A joined batch has at most `max.message.bytes`, 1 MiB, and 4 MiB decompressed."""
    with LogManager(str(tmp_path / "logs"), clock=SetClock(NOW_MS)) as engine:
        engine.create_topic("t", 1, {"max.message.bytes": f"{most}"})
        half = [[SimpleRecord(NOW_MS, None, b"x" * (size // 2))]]
        for number in range(2):
            plan = BatchPlan(codec=codec)
            parts = stage_records(tmp_path / "logs", f"{number}", [half, half], plan)
            ingest_parts(engine, IngestWrite("w", number), parts)
        assert len(logs(tmp_path / "logs")) == (1 if is_joined else 2)
        assert len(batches(tmp_path / "logs")) == (2 if is_joined else 4)


class _Looking(Calls):
    """Looks at the partitions before each call that changes a file, as a reader does."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.seen: list[list[list[bytes | None]]] = []

    def look(self) -> None:
        engine = Engine(str(self.log_dir))
        views = [engine.log("t", number).view() for number in range(2)]
        assert [view.tail for view in views] == [None, None]
        self.seen.append([[each.value for each in read(view)] for view in views])

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self.look()
        return super().pwritev(fd, buffers, position)

    def fsync(self, fd: int) -> None:
        self.look()
        super().fsync(fd)

    def rename(self, old: str, new: str, directory: int) -> None:
        self.look()
        super().rename(old, new, directory)

    def unlink(self, name: str, directory: int) -> None:
        self.look()
        super().unlink(name, directory)


@pytest.mark.parametrize("way", [JOINED, NONE, ALL])
def test_a_reader_sees_all_of_a_write_in_a_partition_or_nothing(
    tmp_path: Path, way: int | None
) -> None:
    log_dir = tmp_path / "logs"
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine, large_from(way):
        engine.create_topic("t", 2, {"internal.segment.bytes": "300"})
        parts = stage(log_dir, "j", {("t", 0): [["a"], ["b"]], ("t", 1): [["c"], ["d"]]})
        looking = _Looking(log_dir)
        with replaced(looking):
            ingest_parts(engine, IngestWrite("j"), parts)
        looking.look()
    for partition, values in enumerate(([b"a", b"b"], [b"c", b"d"])):
        seen = [each[partition] for each in looking.seen]
        assert all(each in ([], values) for each in seen)
        assert (seen[0], seen[-1]) == ([], values)


class _Fails(Calls):
    """Fails to append to a log, or to rename its `.cleaned` files: after the commit."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if path_of(fd).endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().pwritev(fd, buffers, position)

    def rename(self, old: str, new: str, directory: int) -> None:
        if old.endswith(".cleaned"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().rename(old, new, directory)


def half_finished(log_dir: Path, way: int | None) -> None:
    """Leaves a write that is committed and not in place."""
    with suppress(LogDirOffline), LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        engine.create_topic("t", 2)
        parts = stage(log_dir, "j", {("t", 0): [["a"], ["b"]], ("t", 1): [["c"]]})
        with large_from(way), replaced(_Fails()), pytest.raises(LogDirOffline):
            ingest_parts(engine, IngestWrite("w", 5), parts)


@pytest.mark.parametrize(("way", "version"), [(JOINED, b"1\n"), (NONE, b"0\n"), (ALL, b"0\n")])
@pytest.mark.parametrize("next_way", [JOINED, NONE])
@pytest.mark.parametrize("discards", [False, True])
def test_half_finished_writes_are_completed_in_either_way(
    tmp_path: Path, way: int | None, version: bytes, next_way: int | None, discards: bool
) -> None:
    """Those of version 0 come from a program that joined nothing. `discards`: the files in the
    partitions are removed first, as a broker removes them."""
    log_dir = tmp_path / "logs"
    half_finished(log_dir, way)
    assert (log_dir / COMMIT_FILE).read_bytes().startswith(version)
    for path in log_dir.glob("t-*/*.cleaned") if discards else ():
        path.unlink()
    for _ in range(2):
        with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine, large_from(next_way):
            views = [engine.log("t", number).view() for number in range(2)]
            assert [[each.value for each in read(v)] for v in views] == [[b"a", b"b"], [b"c"]]
            assert not engine.commits.pending()
            assert complaints(engine) == []
            assert ingest_parts(engine, IngestWrite("w", 5), ()).is_repeated
    assert not list(Path(staging_path(str(log_dir))).rglob("*.cleaned"))


@pytest.mark.parametrize("at", [1, 61, 150])
def test_a_torn_batch_is_appended_again(tmp_path: Path, at: int) -> None:
    """A crash in the midst of the append, after the commit: loading truncates what it left."""
    log_dir = tmp_path / "logs"
    half_finished(log_dir, JOINED)
    torn = tmp_path / "torn"
    with LogManager(str(torn), clock=SetClock(NOW_MS)) as engine:
        engine.create_topic("t", 2)
        ingest_parts(engine, IngestWrite("j"), stage(torn, "j", {("t", 0): [["a", "b"]]}))
    whole = logs(torn)[0].read_bytes()
    logs(log_dir)[0].write_bytes(whole[: min(at, len(whole) - 1)])
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        assert [each.value for each in content(engine)] == [b"a", b"b"]
        assert [each.offset for each in content(engine)] == [0, 1]
