"""Tests verifying a log that is being written: each read sees another state of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import SegmentGone
from kafkafs.storage.io.disk import DirFd, OpenFile
from kafkafs.storage.io.retry import ATTEMPTS
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.expire import Expire, expire
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.verifier import Verifier
from tests.writing import NOW, batch, config, open_log

SIZE = len(batch())
PRODUCER: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    return tmp_path


def opened(log_dir: Path, segment_batches: int) -> LogWriter:
    """Opens an empty log with `segment_batches` batches per segment, all with index entries."""
    settings = config(segment_bytes=segment_batches * SIZE, index_interval_bytes=0)
    return open_log(log_dir / "t-0", settings, SetClock(NOW))


@contextmanager
def stepping(step: Callable[[], object], every: int = 1) -> Iterator[None]:
    """Calls `step` before each call that reads a file or directory, or before one in `every`, while
    the block runs."""
    is_within = False
    calls = 0

    def before(call: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal is_within, calls
        calls += not is_within
        if not is_within and calls % every == 0:
            is_within = True
            try:
                step()
            finally:
                is_within = False
        return call(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        for owner, names in (
            (DirFd, ("open", "list", "read_small", "stat")),
            (OpenFile, ("read", "size")),
        ):
            for name in names:
                call = getattr(owner, name)
                patch.setattr(owner, name, lambda *given, call=call: before(call, *given))
        yield


def verified(log_dir: Path) -> list[tuple[str, int, str]]:
    """Returns the findings, without pauses between reads."""
    verifier = Verifier(Engine([str(log_dir)]), pause=lambda _: None)
    found = list(verifier.directories())
    for partition in verifier.partitions():
        found += verifier.partition(partition)
    return [(Path(one.file).name, one.position, one.what) for one in found]


@pytest.mark.parametrize("segment_batches", [5, 100_000])
def test_nothing_is_found_in_a_log_that_grows_at_every_step(
    log_dir: Path, segment_batches: int
) -> None:
    writer = opened(log_dir, segment_batches)
    for _ in range(20):
        writer.append(batch())
    with stepping(lambda: writer.append(batch())):
        assert verified(log_dir) == []
    assert writer.end_offset > 40  # it did grow
    assert verified(log_dir) == []


def test_nothing_is_found_while_transactions_abort_at_every_step(log_dir: Path) -> None:
    writer = opened(log_dir, 7)
    sequence = 0

    def abort() -> None:
        nonlocal sequence
        writer.append(batch(base_sequence=sequence, is_transactional=True, **PRODUCER))
        writer.end_transaction(9, 0, commit=False)
        sequence += 1

    for _ in range(10):
        abort()
    with stepping(abort):
        assert verified(log_dir) == []
    assert verified(log_dir) == []


def test_a_batch_that_is_half_written_is_no_fault(log_dir: Path) -> None:
    writer = opened(log_dir, 100_000)
    for _ in range(5):
        writer.append(batch())
    path = log_dir / "t-0" / f"{0:020}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[: -SIZE // 2])
    (partition,) = Verifier(Engine([str(log_dir)])).partitions()
    torn = [one.position for one in Verifier(Engine([str(log_dir)])).partition(partition)]
    assert 4 * SIZE in torn  # certain, if nothing changes

    def restore() -> None:
        path.write_bytes(whole)

    verifier = Verifier(Engine([str(log_dir)]), pause=lambda _: restore())
    with stepping(lambda: touch(log_dir)):
        assert list(verifier.partition(partition)) == []


def touch(log_dir: Path) -> None:
    """Changes the partition's directory, but nothing that matters."""
    note = log_dir / "t-0" / "note"
    note.write_text("x" * (note.stat().st_size + 1 if note.exists() else 1))


@pytest.mark.parametrize("segment_batches", [5, 100_000])
def test_damage_is_found_in_a_log_that_grows_at_every_step(
    log_dir: Path, segment_batches: int
) -> None:
    writer = opened(log_dir, segment_batches)
    for _ in range(18):
        writer.append(batch())
    (*_, path) = sorted((log_dir / "t-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[SIZE + 80] ^= 1  # the second batch of the active segment
    with path.open("r+b") as file:
        file.write(data)
    index = path.with_suffix(".index")
    with index.open("r+b") as file:
        file.seek(8)
        file.write((1 << 20).to_bytes(4, "big"))  # past the end of the log, for a long time
    # Writes are slower than reads, so the log is read several times.
    with stepping(lambda: writer.append(batch()), every=20):
        found = verified(log_dir)
    assert writer.end_offset > 20
    assert (path.name, SIZE) in [(file, position) for file, position, _ in found]
    assert {file for file, _, _ in found} == {path.name, index.name}


def test_a_checkpoint_beyond_a_log_that_grows_is_found(log_dir: Path) -> None:
    writer = opened(log_dir, 100_000)
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 1000000\n")
    with stepping(lambda: writer.append(batch())):
        (found,) = verified(log_dir)
    assert found[2].startswith("t-0: offset 1000000, but its log ends at")


def test_segments_that_retention_takes_while_they_are_read(log_dir: Path) -> None:
    writer = opened(log_dir, 2)
    for _ in range(40):
        writer.append(batch())

    def delete_oldest() -> None:
        writer.append(batch())
        writer.delete_records(min(writer.start_offset + 2, writer.end_offset))
        writer.delete_below_start()
        for path in (log_dir / "t-0").glob("*.deleted"):
            path.unlink()

    with stepping(delete_oldest, every=40):
        assert verified(log_dir) == []
        rows = list(expire(Engine([str(log_dir)]), Expire(at_ms=NOW, everything=True)))
        assert rows
        assert not any(isinstance(row, PartitionFailed) for row in rows)
    assert writer.start_offset > 4


def test_a_partition_that_is_deleted_has_no_faults(log_dir: Path) -> None:
    opened(log_dir, 2).append(batch())
    verifier = Verifier(Engine([str(log_dir)]))
    (partition,) = verifier.partitions()
    with (
        suppress(FileNotFoundError),
        stepping(partial((log_dir / "t-0").rename, log_dir / f"t-0.{'a' * 32}-delete")),
    ):
        assert list(verifier.partition(partition)) == []


def test_a_topic_that_is_made_again_has_another_id(log_dir: Path) -> None:
    ids = ("AAAAAAAAAAAAAAAAAAAAAQ", "BBBBBBBBBBBBBBBBBBBBBA")
    for number in (0, 1):
        open_log(log_dir / f"t-{number}")
        metadata = log_dir / f"t-{number}" / "partition.metadata"
        metadata.write_text(f"version: 0\ntopic_id: {ids[0]}\n")
    verifier = Verifier(Engine([str(log_dir)]))
    first, second = verifier.partitions()
    assert list(verifier.partition(first)) == []
    (log_dir / "t-1" / "partition.metadata").write_text(f"version: 0\ntopic_id: {ids[1]}\n")
    (finding,) = verifier.metadata(second)
    assert "topic id" in finding.what
    (log_dir / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {ids[1]}\n")
    assert list(verifier.metadata(second)) == []


def test_what_a_dry_run_looks_at_again_stays_an_error_where_it_stays_one(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(log_dir, 2).append(batch())
    engine = Engine([str(log_dir)])
    calls = []

    def gone(*_: Any) -> Any:
        calls.append(1)
        raise SegmentGone("x")

    monkeypatch.setattr("kafkafs.storage.log.delete.retention.state_of", gone)
    (row,) = expire(engine, Expire(at_ms=NOW))
    assert isinstance(row, PartitionFailed)
    assert isinstance(row.cause, SegmentGone)
    assert len(calls) == ATTEMPTS
