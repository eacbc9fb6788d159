"""A repository that is being changed: locked, with objects that become visible one by one, and
points in time that become visible last. What no manifest names is only removed by `prune`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Self

from ..errors import LogDirError, LogDirLocked
from ..io.directory import Directory
from ..io.durable import Buffer
from .layout import MARKER
from .manifest import Point, StoredObject
from .repository import Repository

#: How many digits of its SHA-256 an object has in its name.
DIGITS: Final = 32


class WritableRepository(Repository, ABC):
    """A repository, locked for this process until `release`. A context manager. Any thread may use
    it. `sizes`: those of all objects by name."""

    def __init__(self, path: str, directory: Directory) -> None:
        """`directory`: the repository, which is locked and exists."""
        super().__init__(path, directory)
        self.sizes = self.objects()
        self._guard = threading.Lock()  # guards `sizes`

    @abstractmethod
    def release(self) -> None:
        """Releases the lock. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @abstractmethod
    def _new_writer(self) -> ObjectWriter: ...

    @contextmanager
    def new_object(self) -> Iterator[ObjectWriter]:
        """Yields a writer of an object, which is removed at the end of the block unless `finish`
        was called."""
        writer = self._new_writer()
        try:
            yield writer
        finally:
            writer.discard()

    def put(self, folder: str, stem: str, data: Buffer) -> StoredObject:
        """Stores an object with these bytes, unless it is there already."""
        with self.new_object() as writer:
            writer.write(data)
            return writer.finish(folder, stem)

    def has(self, stored: StoredObject) -> bool:
        """Returns whether there is an object of that name and size."""
        with self._guard:
            return self.sizes.get(stored.name) == stored.size

    @abstractmethod
    def publish(self, point: Point) -> None:
        """Makes a point in time visible, durably. All of its objects must be stored."""

    @abstractmethod
    def remove_points(self, times: list[int]) -> None:
        """Removes points in time, durably. Their objects stay."""

    @abstractmethod
    def remove_objects(self, names: list[str]) -> None:
        """Removes objects, which no point may have."""


class ObjectWriter(ABC):
    """An object that is being written. For one thread."""

    @abstractmethod
    def write(self, data: Buffer) -> None:
        """Appends bytes to the object, which are copied."""

    @abstractmethod
    def finish(self, folder: str, stem: str) -> StoredObject:
        """Makes the object durable under its name, which `stem` begins. Its name is durable when a
        point with it is published."""

    @abstractmethod
    def discard(self) -> None:
        """Removes the object unless it is finished."""


def object_name(folder: str, stem: str, digest: str) -> str:
    """Returns the name of an object; `stem` may be ""."""
    return f"{folder}/{stem}{'.' * bool(stem)}{digest[:DIGITS]}"


def refuse_other(path: str, names: Iterable[str], own: Iterable[str]) -> None:
    """Raises LogDirError if a directory with these names has content and is no repository. `own`:
    names that an attempt to make one can have left."""
    there = set(names)
    if MARKER not in there and not there <= set(own):
        why = f"is neither empty nor a backup: it has no {MARKER}; choose another directory"
        raise LogDirError(path, why)


def in_use(path: str, locked: LogDirLocked) -> LogDirError:
    """Returns the error for a repository that is locked."""
    who = f"process {locked.pid}" if locked.pid > 0 else "another process"
    why = f"{who} is writing to this backup; run the command again when it has ended"
    return LogDirError(path, why)
