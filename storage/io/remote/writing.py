"""Writes objects of an object store: each of them whole, in one request.

Only stores whose objects appear at once and whole are written to (`WRITABLE`); a server of files
would show half of one after a failure.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, Final

from ...errors import LogDirError, SegmentGone
from ..directory import Directory
from .directory import RemoteDirectory
from .requests import is_refused_condition, request
from .settings import DEFAULTS, RemoteSettings
from .store import ObjectStore, listed

#: Schemes of stores that can be written to.
WRITABLE: Final = ("s3", "gs", "abfs", "memory")

# The slowest upload that is waited for.
_BYTES_PER_TIMEOUT: Final = 8 << 20
# Of one request that removes objects, which only S3 has.
_MOST_REMOVED: Final = 1000


class WritableStore(ObjectStore):
    """A URL whose objects can also be written. Any thread may use it. `name`: the path of an object
    below the URL.

    Requests are repeated after passing failures. All methods raise OSError, PermissionError among
    others, with the object; LogDirError if the bucket is missing.
    """

    def __init__(self, location: str, settings: RemoteSettings = DEFAULTS) -> None:
        """Raises LogDirError if the store cannot be written to."""
        super().__init__(location, settings)
        if self._scheme not in WRITABLE:
            schemes = ", ".join(f"{each}://" for each in WRITABLE)
            why = f"cannot be written to: its files do not appear whole; {schemes} can"
            raise LogDirError(location, why)

    def directory(self) -> Directory:
        """Returns the directory with what is there, listed anew."""
        self.invalidate()
        return RemoteDirectory(self)

    def put(self, name: str, data: bytes) -> None:
        """Writes an object, or replaces it."""
        self._put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        """Writes an object unless there is one of that name. Returns whether there is one with
        these bytes now: also if a request had succeeded whose answer was lost."""
        return self._put(name, data, mode="create") or self.get(name) == data

    def create_again(self, name: str, data: bytes) -> bool:
        """Writes an object that exists as if it did not. Returns whether the store did that: then
        it ignores the condition."""
        return self._put(name, data, mode="create")

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Replaces an object unless it has another version by now, as far as the store can tell.
        Returns whether it has these bytes now."""
        condition = {"IfMatch": version} if self._scheme == "s3" and version else {}
        return self._put(name, data, **condition) or self.get(name) == data

    def _put(self, name: str, data: bytes, **how: Any) -> bool:
        """Returns False if a condition was not met."""
        path = self._path_of(name)
        timeouts = 1 + len(data) // _BYTES_PER_TIMEOUT

        def send() -> bool:
            filesystem, root = self._opened()
            key = f"{root.rstrip('/')}/{name}"
            try:
                self._call(filesystem, "pipe_file", key, data, _timeouts=timeouts, **how)
            except Exception as error:
                if how and is_refused_condition(error):
                    return False
                raise
            return True

        try:
            return request("write", path, send)
        except SegmentGone:
            why = "there is no such bucket or container; create it first"
            raise LogDirError(self.location, why) from None

    def get(self, name: str) -> bytes | None:
        """Returns the bytes of a small object as it is now, None if there is none."""
        path = self._path_of(name)

        def send() -> bytes:
            filesystem, root = self._opened()
            return bytes(self._call(filesystem, "cat_file", f"{root.rstrip('/')}/{name}"))

        try:
            return request("read", path, send)
        except SegmentGone:
            return None

    def version_and_time(self, name: str) -> tuple[str, int] | None:
        """Returns the version of an object, and when the store wrote it in ns since 1970, by its
        own clock (0 if it does not tell); None if there is no object."""
        path = self._path_of(name)

        def send() -> tuple[str, int]:
            filesystem, root = self._opened()
            info = self._call(filesystem, "info", f"{root.rstrip('/')}/{name}")
            found = listed(name, info)
            return found.version, found.mtime_ns

        try:
            return request("stat", path, send)
        except SegmentGone:
            return None

    def remove(self, names: Sequence[str]) -> None:
        """Removes objects; those that are missing do not matter."""
        step = _MOST_REMOVED if self._scheme == "s3" else 1
        for start in range(0, len(names), step):
            self._remove(names[start : start + step])

    def _remove(self, names: Sequence[str]) -> None:
        def send() -> None:
            filesystem, root = self._opened()
            keys = [f"{root.rstrip('/')}/{name}" for name in names]
            if len(keys) == 1:
                self._call(filesystem, "rm_file", keys[0])
                return
            self._run(filesystem, _remove_s3, filesystem, keys)

        try:
            request("remove", self._path_of(names[0]), send)
        except SegmentGone:
            return

    def _path_of(self, name: str) -> str:
        return f"{self.location}/{name}"


async def _remove_s3(filesystem: Any, paths: Sequence[str]) -> None:
    """Removes objects of one bucket. Raises OSError if one of them remains."""
    split = [filesystem.split_path(path) for path in paths]
    objects = [{"Key": key} for _, key, _ in split]
    answer = await filesystem._call_s3(
        "delete_objects", Bucket=split[0][0], Delete={"Objects": objects, "Quiet": True}
    )
    for error in answer.get("Errors", ()):
        raise OSError(errno.EIO, f"the server has not removed it ({error.get('Code')})")
