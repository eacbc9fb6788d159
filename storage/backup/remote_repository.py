"""A repository in an object store, which is being changed.

An object appears there when it is complete, so a run that was killed leaves nothing that the next
one could not use. Before a manifest is written or anything removed, the lock is checked: a process
that was silent for so long that another one took it over changes nothing.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from typing import Final

from ..errors import LogDirError, LogDirLocked, SegmentGone
from ..format.primitives import random_uuid_text
from ..io.durable import Buffer
from ..io.opening import forget
from ..io.remote.lock import StoreLock
from ..io.remote.settings import DEFAULTS, RemoteSettings
from ..io.remote.writing import WritableStore
from .layout import MARKER, OBJECTS, POINTS, STORE_LOCK, is_repository, point_name
from .manifest import Point, StoredObject, format_manifest
from .repository import format_marker
from .writable_repository import (
    ObjectWriter,
    WritableRepository,
    in_use,
    object_name,
    refuse_other,
)

# What may be at a URL that becomes a repository: what is left of an attempt that ended early.
_NOTHING: Final = (STORE_LOCK, OBJECTS)
# Objects in memory at a time, which are sent in parallel.
_WRITERS: Final = 4


class RemoteRepository(WritableRepository):
    """A repository at a URL."""

    def __init__(self, path: str, settings: RemoteSettings = DEFAULTS) -> None:
        """Creates the repository if nothing is at the URL. Raises LogDirError if something else is,
        if the store cannot be written to, or if another process is writing to it."""
        self._store = WritableStore(path, settings)
        directory = self._store.directory()
        self._refuse_other()
        try:
            self._lock = StoreLock(self._store, STORE_LOCK)
        except LogDirLocked as locked:
            raise in_use(path, locked) from None
        try:
            self._store.invalidate()  # it may have been listed before another one had ended
            self._refuse_other()
            if not is_repository(directory):
                self._store.create(MARKER, format_marker(random_uuid_text()))
                self._changed()
            super().__init__(path, directory)
        except BaseException:
            with suppress(OSError):  # then it is taken over later
                self.release()
            raise
        self.writers = threading.Semaphore(_WRITERS)

    def _refuse_other(self) -> None:
        with suppress(SegmentGone):
            names = list(self._store.snapshot().root.children or ())
            refuse_other(self._store.location, names, _NOTHING)

    def release(self) -> None:
        self._lock.release()

    def _new_writer(self) -> ObjectWriter:
        return _Writer(self)

    def store(self, stored: StoredObject, data: bytes) -> None:
        """Stores a complete object under its name."""
        self._store.put(f"{OBJECTS}/{stored.name}", data)
        with self._guard:
            self.sizes[stored.name] = stored.size

    def publish(self, point: Point) -> None:
        data = format_manifest(point)
        self._lock.check()
        if not self._store.create(f"{POINTS}/{point_name(point.time_ms)}", data):
            why = "another process has made a point of the same time; run the command again"
            raise LogDirError(self.manifest_path(point.time_ms), why)
        self._changed()

    def remove_points(self, times: list[int]) -> None:
        self._lock.check()
        for time_ms in times:  # one by one: no manifest may be left of which objects are missing
            self._store.remove([f"{POINTS}/{point_name(time_ms)}"])
        self._changed()

    def remove_objects(self, names: list[str]) -> None:
        self._lock.check()
        self._store.remove([f"{OBJECTS}/{name}" for name in names])
        for name in names:
            self.sizes.pop(name, None)
        self._changed()

    def _changed(self) -> None:
        """Makes this process list the store again."""
        self._store.invalidate()
        forget(self._store.location)


class _Writer(ObjectWriter):
    """Keeps the object in memory until it is written in one request."""

    def __init__(self, repository: RemoteRepository) -> None:
        repository.writers.acquire()
        self._repository = repository
        self._data: bytearray | None = bytearray()
        self._hash = hashlib.sha256()

    def write(self, data: Buffer) -> None:
        assert self._data is not None
        self._hash.update(data)
        self._data += data

    def finish(self, folder: str, stem: str) -> StoredObject:
        assert self._data is not None
        digest, data = self._hash.hexdigest(), bytes(self._data)
        self._data.clear()
        stored = StoredObject(object_name(folder, stem, digest), len(data), digest)
        if not self._repository.has(stored):
            self._repository.store(stored, data)
        return stored

    def discard(self) -> None:
        if self._data is not None:
            self._data = None
            self._repository.writers.release()
