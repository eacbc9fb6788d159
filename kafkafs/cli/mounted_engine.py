"""Log directories that a mount of ours holds: what is to be changed in them, the mount is asked to.

A mount is ours when the user who runs this made it; the kernel's table of mounts says so. One that
is dead, does not answer, or tells of other directories is passed by: nothing here waits for long
for somebody who may never answer, and nobody else's file system is believed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkafs.mount.mounting.mount_table import Mounted, log_dirs_of, mounts
from kafkafs.storage import errors
from kafkafs.storage.disk import Directory
from kafkafs.storage.lock import who_holds

from . import failures
from .opening import open_engine, writing
from .params import Choice, Setting

if TYPE_CHECKING:
    from kafkafs.storage.engine import Engine
    from kafkafs.storage.writable_engine import WritableEngine

Row = dict[str, Any]
T = TypeVar("T")

_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class MountedEngine:
    """The engine behind a writable mount at `point`."""

    point: str

    def ask(self, line: str, data: bytes = b"") -> Iterator[Row]:
        """The rows of the answer to a line with `data` behind it, as they come. Failure for what
        could not be done at all; what concerns one partition only is a row with `error` and
        `where`."""
        fd = os.open(os.path.join(self.point, ".kafkafs/control"), os.O_RDWR)
        try:
            refused = _write(fd, line.encode("utf-8", "surrogateescape") + b"\n" + data)
            for row in _rows(fd):
                if "error" in row and "where" not in row:
                    raise _not_done(row)
                yield row
            if refused is not None:  # and the answer did not say why
                try:
                    raise refused
                finally:
                    del refused  # else it and this frame would keep each other
        finally:
            os.close(fd)

    def each(self, line: str) -> tuple[list[Row], int]:
        """The rows about partitions, and the exit code; what could not be done is told."""
        rows: list[Row] = []
        code = 0
        for row in self.ask(line):
            if "error" in row:
                code = failures.tell(_not_done(row))
            else:
                rows.append(row)
        return rows, code


def holding(log_dirs: Sequence[str], settings: Sequence[Setting]) -> MountedEngine | None:
    """The mount of ours that holds `log_dirs`, None when there is none. Failure when there is one
    and `settings` were to count, as it has its own."""
    if not any(map(_may_be_held, log_dirs)):
        return None  # and no mount is asked, of which one may not answer
    wanted = {os.path.realpath(path) for path in log_dirs}
    for mounted in mounts():
        if mounted.is_ours and wanted <= _held_by(mounted):
            if settings:
                why = "is mounted with settings of its own; run the command without -c"
                raise failures.Failure(f"{','.join(log_dirs)}: {why}")
            return MountedEngine(mounted.point)
    return None


def _may_be_held(path: str) -> bool:
    try:
        return who_holds(Directory(path)) != 0
    except errors.StorageError:
        return False  # opening it says what it is instead of a log directory
    except OSError:
        return True  # what this user cannot see, a mount may tell


def change(
    log_dirs: tuple[str, ...],
    settings: Iterable[Setting],
    here: Callable[[WritableEngine], T],
    there: Callable[[MountedEngine], T],
    *,
    finds_deleted: bool = False,
    check: Callable[[Engine], object] = lambda engine: None,
) -> T:
    """What `here` makes of the directories, opened for writing; where a mount of ours holds them,
    what comes of asking it, `there`. LogDirLocked where somebody else does. `check` raises what is
    wrong with the arguments, while the directories are only read: a command that fails on its
    arguments changes nothing in them."""
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
    """The engine's error of that name; their base for all others."""
    found = getattr(errors, name, None)
    if isinstance(found, type) and issubclass(found, errors.StorageError):
        return found
    return errors.StorageError


def _not_done(row: Row) -> failures.Failure:
    """What the mounted engine could not do: `row` has `error` and `kind`, the name of a class of
    errors, and may have `where`."""
    kind, advice = failures.ending(_error_class(str(row.get("kind"))))
    where = f"{row['where']}: " if "where" in row else ""
    return kind(f"{where}{row['error']}" + (f"; {advice}" if advice else ""))


def words(chosen: Sequence[Choice]) -> str:
    """Topics and partitions as the mount's verbs take them."""
    return " ".join(f"{topic}/{'' if number is None else number}" for topic, number in chosen)


def _held_by(mounted: Mounted) -> set[str]:
    status = mounted.status()
    return set(map(os.path.realpath, log_dirs_of(status))) if status is not None else set()


def _write(fd: int, data: bytes) -> OSError | None:
    """The error that a write ended in; the answer says more of it."""
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
