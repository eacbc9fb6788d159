"""The files from which an interrupted restore continues.

The state file holds, for each partition, up to where its records have been acknowledged. Beside it
is the table of old and new offsets, to which rows are only appended; the state file also holds how
many bytes of it are valid. So the table is written first, and then the state file is replaced.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from kafkafs.storage import Int64s, TopicPartition, WritableDirFd

from .cluster import RestoreError

TABLE_SUFFIX: Final = ".offsets"
_VERSION: Final = 1
_HEADING: Final = "topic\tpartition\toffset\tnewTopic\tnewOffset\trecords\n"


@dataclass(slots=True)
class RestoredPartition:
    """How far a partition is restored. Records from `source_next` to `source_end`, exclusive, are
    not yet acknowledged. `target_first`: the new offset of the first record; `target_next`: that of
    the next one. `is_done`: all records are written, and nothing else is behind them."""

    source_first: int
    source_next: int
    source_end: int
    target_first: int
    target_next: int
    is_done: bool = False

    @property
    def records(self) -> int:
        """The number of acknowledged records."""
        return self.target_next - self.target_first

    @property
    def span(self) -> int:
        """The number of old offsets, restored or not."""
        return self.source_end - self.source_first


@dataclass(slots=True)
class RestoreState:
    """What a restore has done so far. `targets`: the new name of each topic; `groups`: those whose
    offsets have been committed."""

    cluster_id: str
    targets: dict[str, str] = field(default_factory=dict)
    partitions: dict[TopicPartition, RestoredPartition] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    table_bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "clusterId": self.cluster_id,
            "targets": self.targets,
            "partitions": [[*key, asdict(each)] for key, each in self.partitions.items()],
            "groups": self.groups,
            "tableBytes": self.table_bytes,
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> RestoreState:
        return cls(
            found["clusterId"],
            dict(found["targets"]),
            {
                (topic, number): RestoredPartition(**each)
                for topic, number, each in found["partitions"]
            },
            list(found["groups"]),
            found["tableBytes"],
        )


class OffsetRun(NamedTuple):
    """Consecutive records: those from old offset `first` on have the new ones from `new` on."""

    first: int
    new: int
    records: int

    def is_continued_by(self, other: OffsetRun) -> bool:
        return (self.first + self.records, self.new + self.records) == (other.first, other.new)


def runs_of(offsets: Int64s, new: int) -> list[OffsetRun]:
    """Returns the runs in ascending old offsets, the first of which has the new offset `new`."""
    starts = np.flatnonzero(np.diff(offsets, prepend=offsets[:1] - 2) != 1)
    counts = np.diff(starts, append=len(offsets))
    rows = zip(offsets[starts].tolist(), (starts + new).tolist(), counts.tolist(), strict=True)
    return [OffsetRun(*row) for row in rows]


class RestoreStateFile:
    """The state file and the table, locked by the process that has opened them."""

    def __init__(self, path: str) -> None:
        """Creates the directory and an empty table if they are missing. Raises RestoreError if
        another process has the files open, or if they cannot be used."""
        self.path = os.path.abspath(path)
        self.table_path = self.path + TABLE_SUFFIX
        above, self._name = os.path.split(self.path)
        self._directory = WritableDirFd(above)
        self._directory.make_itself()
        self._table = open(self.table_path, "a+b")  # noqa: SIM115 - closed by close
        try:
            fcntl.flock(self._table, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._table.close()
            raise RestoreError(f"{self.path}: another restore is using this state file") from None

    def close(self) -> None:
        self._table.close()

    def read(self) -> RestoreState | None:
        """Returns the saved state, None if there is none, and removes rows of the table that are
        not part of it."""
        state = read_state(self.path)
        saved = 0 if state is None else state.table_bytes
        if os.fstat(self._table.fileno()).st_size < saved:
            raise RestoreError(f"{self.table_path}: the table is shorter than its state file says")
        os.ftruncate(self._table.fileno(), saved)
        return state

    def save(
        self, state: RestoreState, rows: Iterable[tuple[TopicPartition, OffsetRun]] = ()
    ) -> None:
        """Appends rows to the table and replaces the state file, durably."""
        lines = "".join(
            f"{topic}\t{number}\t{run.first}\t{state.targets[topic]}\t{run.new}\t{run.records}\n"
            for (topic, number), run in rows
        )
        if not state.table_bytes:
            lines = _HEADING + lines
        if lines:
            self._table.write(lines.encode())
            self._table.flush()
            os.fsync(self._table.fileno())
            state.table_bytes += len(lines)
        self._directory.write_atomically(self._name, json.dumps(state.as_json()).encode())


def read_state(path: str) -> RestoreState | None:
    """Returns the state in a file, None if there is no file. Raises RestoreError if it is not one
    of this version."""
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError:
        raise RestoreError(f"{path}: not a state file of kafkafs restore") from None
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise RestoreError(f"{path}: not a state file of this version of kafkafs restore")
    try:
        return RestoreState.of_json(found)
    except (KeyError, TypeError, ValueError):
        raise RestoreError(f"{path}: the state file of kafkafs restore is damaged") from None


def read_table(path: str) -> dict[TopicPartition, list[OffsetRun]]:
    """Returns the runs of each partition, in ascending order of offset."""
    found: dict[TopicPartition, list[OffsetRun]] = {}
    with open(path, encoding="ascii") as lines:
        next(lines)
        for line in lines:
            topic, number, first, _, new, records = line.split("\t")
            run = OffsetRun(int(first), int(new), int(records))
            found.setdefault((topic, int(number)), []).append(run)
    return found
