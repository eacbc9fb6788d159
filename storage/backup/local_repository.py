"""A repository in a local directory, which is being changed.

An object is written to `unfinished/` and moved to its place when its bytes are durable, so an
object that has its name is complete: a run that was killed leaves nothing that the next one could
not use.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Final

from ..errors import LogDirLocked, SegmentGone, StorageError
from ..format.primitives import random_uuid_text
from ..io.durable import TEMPORARY_SUFFIX, Buffer, WritableDirFd
from ..io.lock import LOCK_FILE, DirectoryLock
from .layout import MARKER, OBJECTS, POINTS, UNFINISHED, is_repository, point_name
from .manifest import Point, StoredObject, format_manifest
from .repository import format_marker
from .uncached import UncachedWriter
from .writable_repository import (
    ObjectWriter,
    WritableRepository,
    in_use,
    object_name,
    refuse_other,
)

# What may be in a directory that becomes a repository: a file system's own entry, and what is left
# of an attempt that ended before there was a marker.
_NOTHING: Final = ("lost+found", LOCK_FILE, MARKER + TEMPORARY_SUFFIX, POINTS, OBJECTS, UNFINISHED)


class LocalRepository(WritableRepository):
    def __init__(self, path: str) -> None:
        """Creates the repository if the directory is missing or empty. Raises LogDirError if it is
        another directory, or if another process is writing to it."""
        directory = WritableDirFd(path)
        _refuse_other(directory)
        directory.make_itself()
        try:
            self._lock = DirectoryLock(directory)
        except LogDirLocked as locked:
            raise in_use(path, locked) from None
        try:
            _refuse_other(directory)
            for name in (POINTS, OBJECTS, UNFINISHED):
                with suppress(FileExistsError):
                    directory.make(name)
            directory.sync()
            if not is_repository(directory):
                directory.write_atomically(MARKER, format_marker(random_uuid_text()))
            super().__init__(path, directory)
            self._objects = directory.child(OBJECTS)
            self._points = directory.child(POINTS)
            self._unfinished = directory.child(UNFINISHED)
            self._remove_unfinished()
        except BaseException:
            self._lock.release()
            raise
        # Guarded like `sizes`:
        self._number = 0
        self._folders = {name.partition("/")[0] for name in self.sizes}

    def release(self) -> None:
        self._lock.release()

    def _remove_unfinished(self) -> None:
        for entry in self._unfinished.list():
            self._unfinished.remove(entry.name, missing_ok=True)
        for entry in self._points.list():
            if entry.name.endswith(TEMPORARY_SUFFIX):
                self._points.remove(entry.name, missing_ok=True)

    def _new_writer(self) -> ObjectWriter:
        with self._guard:
            self._number += 1
            name = str(self._number)
        return _Writer(self, self._unfinished, name)

    def take(self, temporary: str, stored: StoredObject) -> None:
        """Gives a complete object in `unfinished/` its place and name."""
        folder, _, name = stored.name.partition("/")
        with self._guard:
            if folder not in self._folders:
                with suppress(FileExistsError):
                    self._objects.make(folder)
                self._folders.add(folder)
            # Together: an object of another folder may have the same name and bytes.
            self._unfinished.rename(temporary, name)
            self._objects.child(folder).take(name, self._unfinished)
            self.sizes[stored.name] = stored.size

    def publish(self, point: Point) -> None:
        data = format_manifest(point)
        folders = {name.partition("/")[0] for name in point.objects}
        for folder in sorted(folders):
            self._objects.child(folder).sync()
        self._objects.sync()
        self._points.write_atomically(point_name(point.time_ms), data)

    def remove_points(self, times: list[int]) -> None:
        for time_ms in times:
            self._points.remove(point_name(time_ms), missing_ok=True)
        self._points.sync()

    def remove_objects(self, names: list[str]) -> None:
        for name in names:
            folder, _, below = name.partition("/")
            self._objects.child(folder).remove(below, missing_ok=True)
            self.sizes.pop(name, None)
        for entry in self._objects.list():
            if entry.is_dir and not self._objects.child(entry.name).list():
                self._objects.remove_directory(entry.name)
        self._folders = {name.partition("/")[0] for name in self.sizes}


class _Writer(ObjectWriter):
    def __init__(self, repository: LocalRepository, place: WritableDirFd, name: str) -> None:
        self._repository, self._place, self._name = repository, place, name
        self._file: UncachedWriter | None = UncachedWriter(place.create(name))
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, data: Buffer) -> None:
        assert self._file is not None
        self._hash.update(data)
        self._file.write(data)
        self._size += len(data)

    def finish(self, folder: str, stem: str) -> StoredObject:
        assert self._file is not None
        digest = self._hash.hexdigest()
        stored = StoredObject(object_name(folder, stem, digest), self._size, digest)
        if not self._repository.has(stored):
            self._file.finish()
            self._file = None
            self._repository.take(self._name, stored)
        return stored

    def discard(self) -> None:
        if self._file is not None:
            self._file = None
            with suppress(OSError, StorageError):
                self._place.remove(self._name, missing_ok=True)


def _refuse_other(directory: WritableDirFd) -> None:
    with suppress(SegmentGone):
        refuse_other(directory.path, [entry.name for entry in directory.list()], _NOTHING)
