"""Reads partitions in tests: opens them without an engine, reads them whole, and compares them with
a model.

The model is a list of all records of a log, searched by loops without an index. The engine must
answer as the model does, whatever happened to the index files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkafs.storage.errors import OffsetNotFound
from kafkafs.storage.format.primitives import decode_utf8
from kafkafs.storage.format.records.batch import parse_header
from kafkafs.storage.format.records.columns import Columns, Damage, Record
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.lines.json_output import lines_of
from kafkafs.storage.log.read.context import ReadContext, ReadLimits
from kafkafs.storage.log.read.log import Log
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View

COMMITTED = Isolation.READ_COMMITTED
UNCOMMITTED = Isolation.READ_UNCOMMITTED


def open_log(
    directory: Path, start: int = 0, limits: ReadLimits | None = None, at_ms: int | None = None
) -> Log:
    """Returns the partition in `directory`, whose checkpointed log start offset is `start`; with
    `at_ms` as of that time."""
    found = DirFd(str(directory.parent)).child(directory.name)
    return Log(found, "topic", 0, lambda: start, ReadContext(limits), at_ms)


def open_view(directory: Path, start: int = 0, limits: ReadLimits | None = None) -> View:
    """Returns the current view of the partition in `directory`."""
    return open_log(directory, start, limits).view()


@dataclass(frozen=True, slots=True)
class Plain:
    """What a record holds, without its batch."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def of(cls, record: Record) -> Plain:
        return cls(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


def written(batch: bytes, records: Sequence[SimpleRecord]) -> list[Plain]:
    """Returns what a reader must find in a batch built from `records`, which have offsets."""
    header = parse_header(batch)
    appended = header.magic > 0 and bool(header.attributes & 8)
    return [
        Plain(
            record.offset,
            -1 if header.magic == 0 else header.max_timestamp if appended else record.timestamp,
            record.key,
            record.value,
            tuple(
                (name if isinstance(name, str) else decode_utf8(name), value)
                for name, value in record.headers
            ),
        )
        for record in records
    ]


def plain(columns: Columns) -> list[Plain]:
    """Returns the records of columns, copied out of them."""
    return [Plain.of(columns.record(row)) for row in range(len(columns))]


def lines(
    view: View,
    field: int,
    start: int | None = None,
    end: int | None = None,
    isolation: Isolation = COMMITTED,
) -> tuple[bytes, list[tuple[int, int]]]:
    """Returns a field of the records as `View.lines` yields it, concatenated, and the damage
    reported."""
    text, damage = b"", []
    for part in view.lines(field, start, end, isolation):
        if isinstance(part, Damage):
            damage.append((part.first_offset, part.next_offset))
        elif isinstance(part, Columns):
            text += bytes(lines_of(part, field))
        else:
            text += part.data
    return text, damage


def lines_by_columns(
    view: View,
    field: int,
    start: int | None = None,
    end: int | None = None,
    isolation: Isolation = COMMITTED,
) -> tuple[bytes, list[tuple[int, int]]]:
    """Returns the same from what `View.scan` yields."""
    text, damage = b"", []
    for part in view.scan(start, end, isolation):
        if isinstance(part, Damage):
            damage.append((part.first_offset, part.next_offset))
        else:
            text += bytes(lines_of(part, field))
    return text, damage


def read(
    view: View,
    start: int | None = None,
    end: int | None = None,
    isolation: Isolation = COMMITTED,
) -> list[Plain]:
    """Returns all records of a scan; raises on damage."""
    return [record for part in view.read(start, end, isolation) for record in plain(part)]


def scan(
    view: View,
    start: int | None = None,
    end: int | None = None,
    isolation: Isolation = COMMITTED,
) -> tuple[list[Plain], list[Damage]]:
    """Returns the records and the damage that a scan finds."""
    records: list[Plain] = []
    damage: list[Damage] = []
    for part in view.scan(start, end, isolation):
        if isinstance(part, Damage):
            damage.append(part)
        else:
            records += plain(part)
    return records, damage


def find(view: View, offset: int, isolation: Isolation = COMMITTED) -> Plain | None:
    """Returns the record at `offset`, or None; raises on damage."""
    try:
        return Plain.of(view.find(offset, isolation))
    except OffsetNotFound:
        return None


def first_since(records: Iterable[Plain], timestamp: int) -> int | None:
    """Returns the model's answer to a lookup by time."""
    return next((record.offset for record in records if record.timestamp >= timestamp), None)


def probes(timestamps: Iterable[int]) -> list[int]:
    """Returns times to look up: each one given, just before, just after, and far away on both
    sides."""
    near = {time + step for time in timestamps for step in (-1, 0, 1)}
    return sorted(near | {0, min(near, default=0) - 1000, max(near, default=0) + 1000})


def check_against(view: View, records: Sequence[Plain], isolation: Isolation = COMMITTED) -> None:
    """Checks that the view answers every query as a log with exactly these records would."""
    assert read(view, isolation=isolation) == list(records)
    by_offset = {record.offset: record for record in records}
    for offset in range(view.start_offset - 2, view.end_offset + 2):
        assert find(view, offset, isolation) == by_offset.get(offset), offset
    for timestamp in probes(record.timestamp for record in records):
        expected = first_since(records, timestamp)
        assert view.offset_for_time(timestamp, isolation) == expected, timestamp
    assert view.first(isolation) == (records[0].offset if records else None)
    assert view.last(isolation) == (records[-1].offset if records else None)
