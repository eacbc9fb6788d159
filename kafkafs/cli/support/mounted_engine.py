"""Forwards changes to the mount that holds the log directories, if it is the user's own.

The kernel's mount table says which mounts belong to the user who runs this process. A mount that is
dead, does not answer, or serves other directories is skipped: nothing here waits long for an
answer, and another user's filesystem is never trusted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkafs.mount.session.mount_table import Mounted, log_dirs_of, mounts
from kafkafs.storage import errors
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.io.lock import who_holds

from . import failures
from .opening import open_engine, writing
from .params import Choice, Setting

if TYPE_CHECKING:
    from kafkafs.storage.log_dirs.engine import Engine
    from kafkafs.storage.log_manager import LogManager

Row = dict[str, Any]
T = TypeVar("T")

_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class MountedEngine:
    """The engine of a writable mount at `point`."""

    point: str

    def ask(self, line: str, data: bytes = b"") -> Iterator[Row]:
        """Sends a line, followed by `data`, and yields the rows of the answer as they arrive.
        Raises Failure if the whole request failed; an error in one partition is a row with `error`
        and `where`."""
        fd = os.open(os.path.join(self.point, ".kafkafs/control"), os.O_RDWR)
        try:
            refused = _write(fd, line.encode("utf-8", "surrogateescape") + b"\n" + data)
            for row in _rows(fd):
                if "error" in row and "where" not in row:
                    raise _not_done(row)
                yield row
            if refused is not None:  # and the answer did not give the reason
                try:
                    raise refused
                finally:
                    del refused  # breaks the reference cycle with this frame
        finally:
            os.close(fd)

    def each(self, line: str) -> tuple[list[Row], int]:
        """Returns the rows about partitions, and the exit code; reports errors on stderr."""
        rows: list[Row] = []
        code = 0
        for row in self.ask(line):
            if "error" in row:
                code = failures.tell(_not_done(row))
            else:
                rows.append(row)
        return rows, code


def holding(log_dirs: Sequence[str], settings: Sequence[Setting]) -> MountedEngine | None:
    """Returns the user's own mount that holds `log_dirs`, None if there is none. Raises Failure if
    there is one but `settings` are given, because the mount has its own."""
    if not any(map(_may_be_held, log_dirs)):
        return None  # without querying any mount, which may not answer
    wanted = {os.path.realpath(path) for path in log_dirs}
    for mounted in mounts():
        if mounted.is_ours and wanted <= _held_by(mounted):
            if settings:
                why = "is mounted with its own configs; run the command without -c"
                raise failures.Failure(f"{','.join(log_dirs)}: {why}")
            return MountedEngine(mounted.point)
    return None


def _may_be_held(path: str) -> bool:
    try:
        return who_holds(DirFd(path)) != 0
    except errors.StorageError:
        return False  # opening it reports what is wrong with it
    except OSError:
        return True  # this user cannot see it, but a mount may hold it


def change(
    log_dirs: tuple[str, ...],
    settings: Iterable[Setting],
    here: Callable[[LogManager], T],
    there: Callable[[MountedEngine], T],
    *,
    finds_deleted: bool = False,
    check: Callable[[Engine], object] = lambda engine: None,
) -> T:
    """Opens the directories for writing and returns the result of `here`; if the user's own mount
    holds them, returns that of `there`. Raises LogDirLocked if another process holds them. `check`
    runs first, on a read-only engine, and raises if the arguments are invalid, so that a command
    with invalid arguments changes nothing."""
    given = tuple(settings)
    mounted = holding(log_dirs, given)
    if mounted is not None:
        return there(mounted)
    with closing(open_engine(log_dirs, given)) as looking:
        check(looking)
    try:
        with writing(log_dirs, given, finds_deleted=finds_deleted) as engine:
            return here(engine)
    except errors.LogDirLocked:
        mounted = holding(log_dirs, given)
        if mounted is None:
            raise
    return there(mounted)


def _error_class(name: str) -> type[errors.StorageError]:
    """Returns the engine's exception class of that name, StorageError if there is none."""
    found = getattr(errors, name, None)
    if isinstance(found, type) and issubclass(found, errors.StorageError):
        return found
    return errors.StorageError


def _not_done(row: Row) -> failures.Failure:
    """Returns the failure for an error row from the mounted engine. The row has `error`, `kind`
    (the name of an exception class), and optionally `where`."""
    kind, advice = failures.ending(_error_class(str(row.get("kind"))))
    where = f"{row['where']}: " if "where" in row else ""
    return kind(f"{where}{row['error']}" + (f"; {advice}" if advice else ""))


def words(chosen: Sequence[Choice]) -> str:
    """Formats topics and partitions for the mount's control verbs."""
    return " ".join(f"{topic}/{'' if number is None else number}" for topic, number in chosen)


def _held_by(mounted: Mounted) -> set[str]:
    status = mounted.status()
    return set(map(os.path.realpath, log_dirs_of(status))) if status is not None else set()


def _write(fd: int, data: bytes) -> OSError | None:
    """Writes `data` and returns the error, if any; the answer has the details."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except OSError as error:
            return error
    return None


def _rows(fd: int) -> Iterator[Row]:
    begun = b""
    while part := os.read(fd, _READ_BYTES):
        *lines, begun = (begun + part).split(b"\n")
        yield from map(json.loads, lines)
