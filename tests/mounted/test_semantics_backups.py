"""The promises of SEMANTICS.md about mounts of backups."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafkafs.storage.backup.keeping import Keep
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.backup.points import prune_points
from kafkafs.storage.operations.backup.request import FinishedPoint
from tests.backups import back_up
from tests.mounted.conftest import Mounting
from tests.mounted.mounting import errno_of
from tests.mounted.promises import promise

FILES = ("values", "keys", "records.jsonl", "records.arrow", "dump/00000000000000000000.log")
LARGE = 70_000  # beyond what shares an object with others


def append(data: Path, topic: str, value: bytes) -> None:
    with LogManager(str(data)) as engine:
        columns = RecordColumns.from_values([value], keys=[b"k"], timestamp=1_700_000_000_000)
        engine.writer(topic, 0).append_records(columns)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with LogManager(str(path)) as engine:
        engine.create_topic("small")
        engine.create_topic("large")
    append(path, "small", b"0")
    append(path, "large", b"x" * LARGE)
    return path


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "backup"


@pytest.fixture
def points(data: Path, backup: Path) -> list[FinishedPoint]:
    """Two points, of which only the second has the record 1 of `small`."""
    first = back_up(data, backup)
    append(data, "small", b"1")
    return [first, back_up(data, backup)]


def contents(point: Path) -> dict[str, bytes]:
    """Returns the files of all partitions that do not show what time it is."""
    found: dict[str, bytes] = {}
    for partition in (point / "small" / "0", point / "large" / "0"):
        names = [name for name in FILES if (partition / name).exists()]
        assert {"values", "keys"} <= set(names)
        names += [f"segments/{name}" for name in os.listdir(partition / "segments")]
        names += [f"offset/{name}" for name in os.listdir(partition / "offset")]
        found |= {f"{partition.parent.name}/{n}": (partition / n).read_bytes() for n in names}
    return found


@promise(
    "A mount of a backup shows its newest point in time: records, streams and `segments` are those"
    " that a mount of the directories showed when it was made."
)
@promise("A mount of a path that `kafkafs backup list` prints shows that point.")
@promise(
    "With `-o at=T`, a mount of a backup shows the newest point at or before T, as of T.",
    "A mount keeps its point: a later backup, and pruning of other points, change nothing in it.",
)
def test_points(data: Path, backup: Path, points: list[FinishedPoint], mount: Mounting) -> None:
    newest = mount(backup).point
    before = contents(newest)
    assert before == contents(mount(data).point)
    assert (newest / "small" / "0" / "values").read_bytes() == b"0\n1\n"
    first = mount(Path(points[0].manifest)).point
    then = mount(backup, f"at={points[0].time_ms}").point
    for point in (first, then):
        assert (point / "small" / "0" / "values").read_bytes() == b"0\n"
    append(data, "small", b"2")
    back_up(data, backup)
    assert contents(newest) == before
    prune_points(str(backup), Keep(last=2))
    assert contents(newest) == before
    assert (mount(backup).point / "small" / "0" / "values").read_bytes() == b"0\n1\n2\n"


@promise("A backup cannot be mounted writable.")
def test_it_is_not_writable(backup: Path, points: list[FinishedPoint], mount: Mounting) -> None:
    before = sorted(backup.rglob("*"))
    with pytest.raises(AssertionError, match="the daemon ended with"):
        mount(backup, "writable")
    assert sorted(backup.rglob("*")) == before


@promise(
    "If an object of the backup is missing or has another size, reading what needs it is EIO, and"
    " everything else is served."
)
def test_missing_objects(backup: Path, points: list[FinishedPoint], mount: Mounting) -> None:
    (victim,) = (backup / "objects" / "large-0").iterdir()
    whole = victim.read_bytes()
    for data in (None, whole[:-1]):
        victim.unlink(missing_ok=True)
        if data is not None:
            victim.write_bytes(data)
        point = mount(backup).point
        large = point / "large" / "0"
        assert errno_of((large / "values").read_bytes) == errno.EIO
        assert errno_of((large / "offset" / "0").read_bytes) == errno.EIO
        assert (point / "small" / "0" / "values").read_bytes() == b"0\n1\n"
