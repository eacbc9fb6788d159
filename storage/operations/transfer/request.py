"""What an export is asked for, and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ...format.files.names import INTERNAL_TOPICS, METADATA_TOPIC, TopicPartition
from ...log.read.transactions import Isolation
from ...log_dirs.engine import Engine
from ...log_dirs.selection import EVERYTHING, Selection
from ..request import PartitionFailed

Format = Literal["parquet", "arrow", "jsonl", "csv"]
FORMATS: Final[tuple[Format, ...]] = ("parquet", "arrow", "jsonl", "csv")

#: The periods of time that have a directory each.
Period = Literal["date", "hour"]
PERIODS: Final[tuple[Period, ...]] = ("date", "hour")


@dataclass(frozen=True, slots=True)
class Export:
    """Writes records to files below `output`, an absolute path; without a selection those of all
    topics but Kafka's internal ones. As of a time if the engine is.

    `since_ms`, `until_ms`: from the first record at or after a time up to the first at or after
    another, in ms since 1970. `by`: the period of time that has a directory of its own.
    `permissive`: of a range with damage, all records that can be read are exported. `decode`: keys
    and values are decoded by their schemas; see `decoded_form`.
    """

    output: str
    selection: Selection = EVERYTHING
    format: Format = "parquet"
    by: Period = "date"
    isolation: Isolation = Isolation.READ_COMMITTED
    since_ms: int | None = None
    until_ms: int | None = None
    permissive: bool = False
    decode: bool = False

    @property
    def writes(self) -> bool:
        """False: it does not change the log directories that it reads."""
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic, UnknownPartition, or ValueError if no time is between `since_ms` and
        `until_ms`."""
        since, until = self.since_ms, self.until_ms
        if since is not None and until is not None and since >= until:
            raise ValueError("the export would end before it begins")
        self.selection.partitions(engine.topics())
        return ()

    def partitions(self, engine: Engine) -> list[TopicPartition]:
        """Returns the partitions to export, sorted."""
        return sorted(
            (topic, number)
            for topic, number in self.selection.partitions(engine.topics())
            if self.selection or topic not in (*INTERNAL_TOPICS, METADATA_TOPIC)
        )


@dataclass(frozen=True, slots=True)
class PartitionExport:
    """What an export has of a partition: offsets [`start_offset`, `end_offset`), in files of `size`
    bytes."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    records: int
    files: int
    size: int

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
            "records": self.records,
            "files": self.files,
            "bytes": self.size,
        }


@dataclass(frozen=True, slots=True)
class NotExported:
    """Records of a partition that are not in the export, and why. `file`, `position`: where the
    damage is, "" and -1 if there is none. `first_offset`, `next_offset`: which offsets are lost, -1
    if that is unknown."""

    topic: str
    partition: int
    what: str
    file: str = ""
    position: int = -1
    first_offset: int = -1
    next_offset: int = -1

    def as_json(self) -> dict[str, Any]:
        return dict(self._members())

    def _members(self) -> Iterator[tuple[str, Any]]:
        yield "topic", self.topic
        yield "partition", self.partition
        if self.file:
            yield "file", self.file
            yield "position", self.position
        if self.first_offset >= 0:
            yield "firstOffset", self.first_offset
            yield "nextOffset", self.next_offset if self.next_offset >= 0 else None
        yield "what", self.what

    @classmethod
    def of(cls, key: TopicPartition, error: Exception, consequence: str = "") -> NotExported:
        """Returns the row for an error, whose `consequence` is added to its description."""
        what = getattr(error, "what", str(error))
        file, position = getattr(error, "file", ""), getattr(error, "position", -1)
        if isinstance(error, OSError):
            what, file = error.strerror or str(error), str(error.filename or "")
        return cls(*key, f"{what}; {consequence}" if consequence else what, file, position)

    @classmethod
    def of_json(cls, row: dict[str, Any]) -> NotExported:
        next_offset = row.get("nextOffset")
        return cls(
            row["topic"],
            row["partition"],
            row["what"],
            row.get("file", ""),
            row.get("position", -1),
            row.get("firstOffset", -1),
            -1 if next_offset is None else next_offset,
        )


@dataclass(frozen=True, slots=True)
class TransferSummary:
    """How many units of work a transfer has, and how many of them earlier runs had finished."""

    units: int
    skipped: int

    def as_json(self) -> dict[str, Any]:
        return {"parts": self.units, "alreadyFinished": self.skipped}


@dataclass(frozen=True, slots=True)
class PartitionImport:
    """A partition of an export that was imported: offsets [`start_offset`, `end_offset`), with
    `records` records; `size`: the bytes of `.log` that this run has written for it."""

    topic: str
    partition: int
    records: int
    size: int
    start_offset: int
    end_offset: int

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "records": self.records,
            "bytes": self.size,
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
        }
