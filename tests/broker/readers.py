"""The ways in which kafkafs reads a broker's directory, with one interface for the live tests."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from kafkafs.storage.errors import SegmentGone
from kafkafs.storage.format.records.columns import Record
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from tests.answers import ExpectedRecord
from tests.waiting import PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parent.parent.parent


class Reader(Protocol):
    """What the live tests need of a reader; records come without leader epochs."""

    def topics(self) -> dict[str, list[int]]: ...

    def records(self, topic: str, partition: int = 0) -> list[ExpectedRecord]: ...

    def offset_for_time(self, topic: str, timestamp: int, partition: int = 0) -> int | None: ...


@contextmanager
def mounted(log_dirs: Sequence[Path], mountpoint: Path, options: str) -> Iterator[int]:
    """Mounts the directories at `mountpoint` during the block; yields the daemon's process ID.

    The daemon must exit by itself, with status 0, when unmounted. It runs under `tests.watched`,
    which ends it at an attempt to write.
    """
    mountpoint.mkdir(parents=True)
    command = [sys.executable, "-B", "-m", "tests.watched", "kafkafs", "mount", "--foreground"]
    where = [",".join(map(str, log_dirs)), str(mountpoint)]
    daemon = subprocess.Popen([*command, "-o", options, *where], cwd=ROOT)
    try:
        wait_until(lambda: mountpoint.is_mount() or daemon.poll() is not None)
        assert mountpoint.is_mount(), f"the daemon ended with {daemon.returncode}"
        yield daemon.pid
    finally:
        daemon.terminate()
        status = daemon.wait(PATIENCE_SECONDS)
    assert status == 0
    assert not mountpoint.is_mount()


class MountReader:
    """A mount, through its files."""

    def __init__(self, mountpoint: Path) -> None:
        self.mountpoint = mountpoint

    def topics(self) -> dict[str, list[int]]:
        found = {}
        for topic in os.listdir(self.mountpoint):
            # The broker may delete a topic between the two steps, as for any other program.
            with suppress(FileNotFoundError):
                names = os.listdir(self.mountpoint / topic)
                found[topic] = sorted(int(name) for name in names if name.isdigit())
        del found[".kafkafs"]
        return found

    def path(self, topic: str, partition: int = 0) -> Path:
        """Returns the directory of the partition."""
        return self.mountpoint / topic / str(partition)

    def records(self, topic: str, partition: int = 0) -> list[ExpectedRecord]:
        with (self.path(topic, partition) / "records.jsonl").open(encoding="utf-8") as lines:
            return [from_line(line) for line in lines]

    def offset_for_time(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        try:
            link = os.readlink(self.path(topic, partition) / "time" / str(timestamp))
        except FileNotFoundError:
            return None
        return int(Path(link).name)


def from_line(text: str) -> ExpectedRecord:
    """Returns a line of `records.jsonl` in the form of Kafka's answers."""
    line = json.loads(text)
    return ExpectedRecord(
        offset=line["offset"],
        timestamp=line["timestamp"],
        timestamp_type=line["timestampType"],
        key=_from_json(line["key"]),
        value=_from_json(line["value"]),
        headers=tuple((h["key"], _from_json(h["value"])) for h in line["headers"]),
        leader_epoch=None,
    )


def _from_json(value: str | dict[str, str] | None) -> bytes | None:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else value.encode()


class EngineReader:
    """The storage engine, in this process."""

    def __init__(self, log_dirs: Sequence[Path], isolation: str) -> None:
        self.engine = Engine([str(path) for path in log_dirs])
        self._isolation = Isolation(isolation)

    def topics(self) -> dict[str, list[int]]:
        return dict(self.engine.topics())

    def records(self, topic: str, partition: int = 0) -> list[ExpectedRecord]:
        view = self.pinned(topic, partition)
        return [
            as_expected(columns.record(row))
            for columns in view.read(isolation=self._isolation)
            for row in range(len(columns))
        ]

    def pinned(self, topic: str, partition: int = 0) -> View:
        """Returns the partition's current view, pinned; retries until no segment disappears
        meanwhile."""
        while True:
            view = self.engine.log(topic, partition).view()
            with suppress(SegmentGone):
                view.pin()
                return view

    def offset_for_time(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        view = self.engine.log(topic, partition).view()
        return view.offset_for_time(timestamp, self._isolation)


def as_expected(record: Record) -> ExpectedRecord:
    """Returns a record of the engine in the form of Kafka's answers."""
    return ExpectedRecord(
        offset=record.offset,
        timestamp=record.timestamp,
        timestamp_type=record.timestamp_type.kafka_name,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        leader_epoch=None,
    )


def without_epoch(records: list[ExpectedRecord]) -> list[ExpectedRecord]:
    """Returns the consumer's records as a `Reader` returns them."""
    return [replace(record, leader_epoch=None) for record in records]


def writable_files(pid: int, directory: Path) -> list[str]:
    """Returns the files under `directory` that a process has open for writing."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            target = os.readlink(entry)
            info = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text()
            flags = next(line.split()[1] for line in info.splitlines() if line.startswith("flags:"))
            if target.startswith(f"{directory}/") and int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                found.append(target)
    return found


def locks(pid: int) -> list[str]:
    """Returns the file locks that a process holds or waits for, as listed by the kernel."""
    lines = Path("/proc/locks").read_text().splitlines()
    return [line for line in lines if str(pid) in line.split()]
