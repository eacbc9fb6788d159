"""What all operations have in common: requests, rows, progress, and errors that are rows.

An operation is a function of an engine and a frozen `Request`. It yields rows as it goes. What
fails in one partition is a row, too (`PartitionFailed`), and the operation continues with the next;
an error that concerns the whole request is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ..errors import StorageError, UnknownPartition, UnknownTopic
from ..format.files.names import TopicPartition
from ..log.read.log import Log
from ..log_dirs.engine import Engine
from ..log_dirs.selection import EVERYTHING, Selection

if TYPE_CHECKING:
    from ..log_manager import LogManager

# Fewer partitions are handled so quickly that their progress is not worth reporting.
_MANY: Final = 200


class ProgressListener:
    """Receives the progress of an operation. This one ignores it."""

    def report(self, what: str, done: int, total: int) -> None:
        """Is called with what is being done, how much of it is done, and the total."""

    def check(self) -> None:
        """Is called before each partition. May raise an error to end the operation."""

    def partition(self, doing: str, number: int, total: int) -> None:
        """Is called before a partition: the `number`-th of `total`, from 0 on."""
        self.check()
        if total >= _MANY:
            self.report(doing, number, total)


#: Ignores the progress.
SILENT: Final = ProgressListener()


class Row(Protocol):
    """A result of an operation. Those that a mount may answer with have `of_json`, too."""

    def as_json(self) -> dict[str, Any]: ...


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PartitionFailed:
    """What went wrong in one partition, or with one name. `kind`: the name of the error's class;
    `where`: the partition as in `orders-0`, "" if the error says so itself; `cause`: the error,
    None if it happened in another process."""

    error: str
    kind: str
    where: str = ""
    cause: Exception | None = field(default=None, compare=False)

    @classmethod
    def of(cls, error: Exception, where: str = "") -> PartitionFailed:
        return cls(str(error), type(error).__name__, where, error)

    def as_json(self) -> dict[str, Any]:
        row = {"error": self.error, "kind": self.kind}
        return {**row, "where": self.where} if self.where else row

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> PartitionFailed:
        return cls(row["error"], row["kind"], row.get("where", ""))


class Request(Protocol):
    """The arguments of an operation.

    `check` is called while the directories are only read, so that a request with invalid arguments
    changes nothing. It raises what the operation would raise; if nothing that was requested can be
    done, it returns why, and the operation is not run.
    """

    @property
    def writes(self) -> bool: ...
    def check(self, engine: Engine) -> Sequence[PartitionFailed]: ...


@dataclass(frozen=True, slots=True)
class PartitionsRequest:
    """A request that is carried out partition by partition."""

    selection: Selection = EVERYTHING

    @property
    def writes(self) -> bool:
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition."""
        self.units(engine)
        return ()

    def units(self, engine: Engine) -> list[TopicPartition]:
        """Returns the partitions. They are independent of each other: different threads or
        processes may handle them."""
        return self.selection.partitions(engine.topics())


@dataclass(frozen=True, slots=True)
class PreviewableRequest(PartitionsRequest):
    """A request that can be tried without changing anything: with `dry_run`, or as of another time
    `at_ms`, in ms since 1970."""

    at_ms: int | None = None
    dry_run: bool = False

    @property
    def writes(self) -> bool:
        return not self.dry_run and self.at_ms is None

    def now_ms(self, engine: Engine) -> int:
        """Returns the time as of which the request is evaluated."""
        return engine.clock.now_ms() if self.at_ms is None else self.at_ms


def manager_of(engine: Engine) -> LogManager | None:
    """Returns the engine if it is open for writing, else None."""
    if type(engine) is Engine:
        return None  # without importing all that writing needs
    from ..log_manager import LogManager

    return engine if isinstance(engine, LogManager) else None


def writable(engine: Engine) -> LogManager:
    """Returns the engine. Raises TypeError if it was opened only for reading."""
    manager = manager_of(engine)
    if manager is None:
        raise TypeError("a request that writes needs directories that are open for writing")
    return manager


def per_partition(
    engine: Engine,
    request: PartitionsRequest,
    doing: str,
    work: Callable[[TopicPartition], Iterable[R]],
    progress: ProgressListener,
) -> Iterator[R | PartitionFailed]:
    """Yields the rows of `work` for every partition. Unless the request names it, a partition that
    was deleted in the meantime is skipped."""
    units = request.units(engine)
    for number, key in enumerate(units):
        progress.partition(doing, number, len(units))
        try:
            yield from work(key)
        except (UnknownTopic, UnknownPartition) as error:
            if request.selection:
                yield PartitionFailed.of(error, "{}-{}".format(*key))
        except (StorageError, OSError) as error:
            yield PartitionFailed.of(error, "{}-{}".format(*key))


def damage(engine: Engine, key: TopicPartition) -> Iterator[PartitionFailed]:
    """Yields the known damage of a partition's log; see `damage_of`. Raises UnknownTopic or
    UnknownPartition."""
    return damage_of(engine.log(*key), key)


def damage_of(log: Log, key: TopicPartition) -> Iterator[PartitionFailed]:
    """Yields the known damage of a log, without reading its records: what is in the place of a
    `.log`, and bytes after the last whole batch."""
    tail = log.view().tail
    found = list(log.damage.values())
    if tail is not None and (tail.error.file, tail.error.position) not in log.damage:
        found.append(tail.error)
    for error in found:
        yield PartitionFailed.of(error, "{}-{}".format(*key))
