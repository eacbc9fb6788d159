"""Log directories from Python: `kafkafs.open`, its topics and partitions, and `scan` to Arrow.

    with kafkafs.open("/data") as d:
        for topic, partitions in d.topics.items():
            print(topic, partitions)
        p = d["orders", 0]
        p.record(600).value
        p.scan(columns=["offset", "value"]).read_all()

The engine, numpy and pyarrow are imported when they are first needed.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Self, overload

from kafkafs.storage.local_path import local_path
from kafkafs.storage.times import milliseconds

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkafs.storage.engine import Engine
    from kafkafs.storage.format.columns import Columns, Damage, Record
    from kafkafs.storage.log.log import Log
    from kafkafs.storage.log.transactions import Isolation
    from kafkafs.storage.log.view import View

    from .compacted import Compacted
    from .writing import WritableDirectory

READ_COMMITTED: Final = "read_committed"

Path = str | os.PathLike[str]
#: Milliseconds since 1970, ISO 8601, a datetime, UTC where a time zone is missing, or a date.
Time = int | str | date


@overload
def open(
    log_dirs: Path | Sequence[Path],
    *,
    writable: Literal[False] = ...,
    maintain: Literal[False] = ...,
    settings: Mapping[str, str] | None = ...,
) -> Directory: ...


@overload
def open(
    log_dirs: Path | Sequence[Path],
    *,
    writable: Literal[True],
    maintain: bool = ...,
    settings: Mapping[str, str] | None = ...,
) -> WritableDirectory: ...


def open(
    log_dirs: Path | Sequence[Path],
    *,
    writable: bool = False,
    maintain: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Directory:
    """The log directories as one: a path, several joined by commas as in Kafka's `log.dirs`, or a
    sequence of paths.

    Nothing in them is changed and no lock is taken; they may be a running broker's. With `writable`
    they are locked, made where there are none, and recovered where they were not closed in good
    order: LogDirLocked when a broker or somebody else has one. Nothing is deleted by itself, unless
    `maintain` (which needs `writable`, else ValueError) lets a broker's retention, log cleaner and
    removal of leftover files run while they are open. `settings` are those of `kafkafs
    -c`. LogDirError when a path is no log directory, or a URL other than `file:`,
    ConfigError for a setting that does not exist or has a wrong value.
    """
    paths = _paths(log_dirs)
    if maintain and not writable:
        raise ValueError("maintain=True needs writable=True")
    if writable:
        from kafkafs.storage.writable_engine import WritableEngine

        from .writing import WritableDirectory

        return WritableDirectory(WritableEngine(paths, settings, maintain=maintain))
    from kafkafs.storage.engine import Engine

    return Directory(Engine(paths, settings))


def _paths(log_dirs: Path | Sequence[Path]) -> list[str]:
    if isinstance(log_dirs, str):
        return [local_path(path.strip()) for path in log_dirs.split(",")]
    listed = [log_dirs] if isinstance(log_dirs, os.PathLike) else log_dirs
    return [local_path(os.fspath(path)) for path in listed]


class _ForReading:
    """What is opened for reading. An attempt to write to it says how to open it for writing."""

    if not TYPE_CHECKING:  # for type checkers it simply has no such method

        def __getattr__(self, name: str) -> NoReturn:
            from . import writing

            kind = type(self).__name__
            writable = getattr(writing, f"Writable{kind}", None)
            if not name.startswith("_") and hasattr(writable, name):
                raise AttributeError(
                    f"{kind}.{name} writes, and this {kind} was opened for reading:"
                    " open it with writable=True",
                    name=name,
                    obj=self,
                )
            raise AttributeError(f"{kind} has no attribute {name!r}", name=name, obj=self)


class Directory(_ForReading):
    """Open log directories; `with` closes them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def topics(self) -> dict[str, list[int]]:
        """The topics that are there now, by name, each with the numbers of its partitions."""
        self._engine.let_go_now_and_then()
        return {topic: list(numbers) for topic, numbers in self._engine.topics().items()}

    def __getitem__(self, topic_partition: tuple[str, int]) -> Partition:
        """The partition `directory[topic, number]`. UnknownTopic, UnknownPartition."""
        try:
            topic, number = topic_partition
        except ValueError:
            what = f"directory[TOPIC, NUMBER], not directory[{topic_partition!r}]"
            raise TypeError(f"a partition is {what}") from None
        self._engine.let_go_now_and_then()
        return Partition(self._engine.log(topic, operator.index(number)), self._engine)

    def __iter__(self) -> Iterator[Partition]:
        """Every partition that is there now, by topic and number."""
        for topic, numbers in self.topics.items():
            for number in numbers:
                yield self[topic, number]

    def topic_id(self, topic: str) -> str:
        """Kafka's id of the topic, 22 characters of URL-safe base64; "" where none is known."""
        return self._engine.topic_id(topic)

    @property
    def problems(self) -> list[str]:
        """What is wrong in the directories, a line each; none of it stops reading."""
        return list(self._engine.problems)

    def close(self) -> None:
        """Closes the files. Reading from it afterwards opens them again."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Span:
    """What to read of a partition: offsets and times, where those are given."""

    start: int | None
    end: int | None
    start_time: Time | None
    end_time: Time | None

    def offsets(self, view: View, isolation: Isolation) -> tuple[int | None, int | None]:
        """From which offset on, and below which one."""
        low = _later_of(self.start, _offset_from(view, self.start_time, isolation))
        high = _earlier_of(self.end, _offset_from(view, self.end_time, isolation))
        return low, high


class Partition(_ForReading):
    """One partition of a topic; every question is answered from its log as it is at that moment.

    `isolation` is Kafka's isolation.level: "read_committed", which hides aborted transactions,
    everything from the first open one on, and control records, or "read_uncommitted". Questions
    raise UnknownPartition when the partition has been deleted.
    """

    def __init__(self, log: Log, engine: Engine) -> None:
        self._log = log
        self._engine = engine

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.partition}>"

    @property
    def topic(self) -> str:
        return self._log.topic

    @property
    def partition(self) -> int:
        return self._log.partition

    @property
    def start_offset(self) -> int:
        """The log start offset: no record below it is served."""
        return self._log.view().start_offset

    @property
    def end_offset(self) -> int:
        """The log end offset: that of the next record to be appended."""
        self._engine.let_go_now_and_then()
        return self._log.view().end_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction, or the end offset."""
        return self._log.view().last_stable_offset

    def record(self, offset: int, *, isolation: str = READ_COMMITTED) -> Record:
        """The record at `offset`. OffsetNotFound when none is served there; CorruptError when its
        batch is damaged."""
        return self._log.view().find(operator.index(offset), _isolation(isolation))

    def latest(self, key: bytes | str, *, isolation: str = READ_COMMITTED) -> Record | None:
        """The last record with `key`, None when there is none. A tombstone is one, its value None.
        A str stands for its UTF-8 bytes.

        The first look-up reads as far back as it must; those after it need what came since.
        CorruptError when a later record with the key may be in damaged bytes.
        """
        sought = key.encode() if isinstance(key, str) else key
        found = self._engine.latest.find(self._log, sought, _isolation(isolation))
        return None if found is None else found[0].record(found[1])

    def offset_for_time(self, time: Time, *, isolation: str = READ_COMMITTED) -> int | None:
        """Offset of the first record whose timestamp is at or after `time`, None without one.

        `time`: milliseconds since 1970, a text as on the command line (these, or ISO 8601), a
        datetime or a date; UTC where it has no time zone. Raises ValueError if a text is not a
        time.
        """
        return self._log.view().offset_for_time(milliseconds(time), _isolation(isolation))

    def scan(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        start_time: Time | None = None,
        end_time: Time | None = None,
        columns: Sequence[str] | None = None,
        isolation: str = READ_COMMITTED,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> pa.RecordBatchReader:
        """Records with `start` <= offset < `end`, as Arrow record batches that are decoded while
        they are read. Where there is a processor for it, another thread reads the log ahead.

        `start_time` and `end_time` become offsets by `offset_for_time`, as in Kafka's consumer:
        from the first record at or after the one up to the first at or after the other. In a log
        whose timestamps go back, filter by `timestamp` where it must be exact. `columns` names
        those to be built, in that order, of key, value, topic, partition, offset, timestamp,
        timestampType and headers; all by default. Damaged bytes end the scan with CorruptError,
        unless there is an `on_damage`: it is told, and the scan goes on behind them.
        """
        span = _Span(start, end, start_time, end_time)
        parts = self._parts(span, isolation, on_damage, ahead=True)
        return arrow_reader(parts, self.topic, self.partition, columns)

    def records(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        start_time: Time | None = None,
        end_time: Time | None = None,
        isolation: str = READ_COMMITTED,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> Iterator[Record]:
        """The records that `scan` with the same arguments gives, one by one. They are read from the
        log as it is now, a batch at a time while the iteration goes on. `scan` is many times faster
        where records can be processed as columns."""
        span = _Span(start, end, start_time, end_time)
        parts = self._parts(span, isolation, on_damage, ahead=False)
        return (part.record(row) for part in parts for row in range(len(part)))

    def _parts(
        self,
        span: _Span,
        isolation: str,
        on_damage: Callable[[Damage], None] | None,
        *,
        ahead: bool,
    ) -> Generator[Columns]:
        """`ahead`: another thread reads and checks what comes next."""
        self._engine.let_go_now_and_then()
        level = _isolation(isolation)
        view = self._log.view()
        low, high = span.offsets(view, level)
        return undamaged(view.scan(low, high, level, ahead=ahead), on_damage)

    def compacted(self, at: Time | None = None) -> Compacted:
        """The partition as log compaction, and then retention, would leave it now, or `at` another
        time (as in `offset_for_time`): found without changing anything.

        This takes about as long as a compaction. All that may be compacted is taken for compacted,
        whether or not enough is dirty for a broker to begin, and whether or not the topic's
        cleanup.policy says compact. CorruptError where a compaction would stop for damage.
        """
        from .compacted import compacted

        now_ms = None if at is None else milliseconds(at)
        return compacted(self._engine, self.topic, self.partition, now_ms)


def arrow_reader(
    parts: Generator[Columns], topic: str, partition: int, columns: Sequence[str] | None
) -> pa.RecordBatchReader:
    """Records as Arrow record batches with the chosen `columns`, all by default."""
    import pyarrow as pa

    from kafkafs.storage.format.arrow import SCHEMA, to_record_batch

    names = list(SCHEMA.names if columns is None else columns)
    if not names:
        raise ValueError("no column chosen")
    if unknown := [name for name in names if name not in SCHEMA.names]:
        raise ValueError(f"no column {unknown[0]!r}; there are {', '.join(SCHEMA.names)}")

    def batches() -> Iterator[pa.RecordBatch]:
        with closing(parts):  # an error that is kept must not keep them open
            for part in parts:
                yield to_record_batch(part, topic, partition, names).select(names)

    schema = pa.schema([SCHEMA.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, batches())


def _isolation(name: str) -> Isolation:
    from kafkafs.storage.log.transactions import Isolation

    return Isolation(name)


def _offset_from(view: View, time: Time | None, isolation: Isolation) -> int | None:
    """The offset where `time` begins: the end when no record is that late."""
    if time is None:
        return None
    found = view.offset_for_time(milliseconds(time), isolation)
    return view.end_offset if found is None else found


def _later_of(*offsets: int | None) -> int | None:
    return max((offset for offset in offsets if offset is not None), default=None)


def _earlier_of(*offsets: int | None) -> int | None:
    return min((offset for offset in offsets if offset is not None), default=None)


def undamaged(
    parts: Generator[Columns | Damage], on_damage: Callable[[Damage], None] | None
) -> Generator[Columns]:
    """The records among `parts`. Damage is told to `on_damage`, or raised where there is none."""
    from kafkafs.storage.errors import fresh
    from kafkafs.storage.format.columns import Damage

    with closing(parts):
        for part in parts:
            if not isinstance(part, Damage):
                yield part
            elif on_damage is None:
                raise fresh(part.error)
            else:
                on_damage(part)
