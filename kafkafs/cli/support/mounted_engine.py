"""Forwards changes to the mount that holds the log directories, if it is the user's own.

The kernel's mount table says which mounts belong to the user who runs this process. A mount that is
dead, does not answer, or serves other directories is skipped: nothing here waits long for an
answer, and another user's filesystem is never trusted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkafs.mount.control.conversation import MAX_LINE_BYTES
from kafkafs.mount.control.lines import lines_of, row_of
from kafkafs.mount.session.mount_table import Mounted, log_dirs_of, mounts
from kafkafs.storage import DirFd, errors, who_holds

from . import failures
from .words import Config

if TYPE_CHECKING:
    from kafkafs.storage import Request

_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class MountedEngine:
    """The engine of a writable mount at `point`."""

    point: str

    def ask(self, request: Request, data: bytes = b"") -> Iterator[Any]:
        """Has the mount carry out the request, on `data` if it takes some; yields the rows of its
        answer as they arrive. What failed is a row, too (PartitionFailed)."""
        for line in lines_of(request):
            if len(line) > MAX_LINE_BYTES:
                limit = f"a mount takes requests of at most {MAX_LINE_BYTES} bytes"
                raise failures.Failure(f"{self.point}: {limit}; divide this one, or unmount first")
            yield from (row_of(request, row) for row in self._rows(line + data))

    def _rows(self, text: bytes) -> Iterator[dict[str, Any]]:
        fd = os.open(os.path.join(self.point, ".kafkafs/control"), os.O_RDWR)
        try:
            refused = _write(fd, text)
            for row in _rows(fd):
                if "error" in row:
                    refused = None  # the answer says why
                yield row
            if refused is not None:
                try:
                    raise refused
                finally:
                    del refused  # breaks the reference cycle with this frame
        finally:
            os.close(fd)


def holding(log_dirs: Sequence[str], configs: Sequence[Config]) -> MountedEngine | None:
    """Returns the user's own mount that holds `log_dirs`, None if there is none. Raises Failure if
    there is one but `configs` are given, because the mount has its own."""
    if not any(map(_may_be_held, log_dirs)):
        return None  # without querying any mount, which may not answer
    wanted = {os.path.realpath(path) for path in log_dirs}
    for mounted in mounts():
        if mounted.is_ours and wanted <= _held_by(mounted):
            if configs:
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


def _rows(fd: int) -> Iterator[dict[str, Any]]:
    begun = b""
    while part := os.read(fd, _READ_BYTES):
        *lines, begun = (begun + part).split(b"\n")
        yield from map(json.loads, lines)
