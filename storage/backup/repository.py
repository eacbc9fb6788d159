"""A repository, opened for reading: its points in time and objects. See `layout.py`."""

from __future__ import annotations

import json
from bisect import bisect_right
from contextlib import suppress
from typing import Any, Final

from ..clock import time_text
from ..errors import CorruptError, LogDirError, SegmentGone
from ..io.directory import Directory, ReadableFile
from ..io.small_file import read_value
from ..wording import printable
from .layout import MARKER, OBJECTS, POINTS, parse_point_name, point_name
from .manifest import MAX_MANIFEST_BYTES, Point, StoredObject, parse_manifest

FORMAT: Final = "kafkafs-backup"
VERSION: Final = 1

_MAX_MARKER_BYTES: Final = 64 << 10


def format_marker(repository_id: str) -> bytes:
    """Returns the content of the marker of a new repository."""
    found = {
        "format": FORMAT,
        "version": VERSION,
        "id": repository_id,
        "about": "made by `kafkafs backup`; read it with `kafkafs backup list` and `kafkafs ls`",
    }
    return (json.dumps(found, indent=1) + "\n").encode()


def _parse_marker(data: bytes) -> str:
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"not the marker of a backup: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise CorruptError(f"not the marker of a backup: its format is not {FORMAT}")
    if found.get("version") != VERSION:
        version = printable(str(found.get("version")))
        raise CorruptError(f"a backup of version {version}; this kafkafs reads version {VERSION}")
    return str(found.get("id", ""))


class Repository:
    """A repository, opened for reading. Any thread may use it."""

    def __init__(self, path: str, directory: Directory) -> None:
        """`directory` is that at the path. Raises LogDirError if it is no repository, CorruptError
        if its format is unknown."""
        self.path = path
        self.directory = directory
        try:
            self.id = read_value(self.directory, MARKER, _MAX_MARKER_BYTES, _parse_marker)
        except (SegmentGone, LogDirError):
            raise LogDirError(path, f"not a backup: it has no {MARKER}") from None

    def times(self) -> list[int]:
        """Returns the times of all points, ascending, in ms since 1970."""
        with suppress(SegmentGone):
            names = [entry.name for entry in self.directory.child(POINTS).list() if entry.is_file]
            return sorted(time for name in names if (time := parse_point_name(name)) is not None)
        return []

    def time_at(self, at_ms: int | None) -> int:
        """Returns the time of the newest point at or before `at_ms`, or of the newest of all. If
        all are later, the first: it may still have what there was. Raises LogDirError if there is
        none."""
        times = self.times()
        if not times:
            raise LogDirError(self.path, "the backup has no point in time yet; run it again")
        if at_ms is None:
            return times[-1]
        return times[max(bisect_right(times, at_ms) - 1, 0)]

    def point(self, time_ms: int) -> Point:
        """Reads a point. Raises CorruptError if its manifest is damaged, LogDirError if there is
        none."""
        name = point_name(time_ms)
        directory = self.directory.child(POINTS)
        try:
            point = read_value(directory, name, MAX_MANIFEST_BYTES, parse_manifest)
        except SegmentGone:
            why = f"the backup has no point in time {time_text(time_ms)}"
            raise LogDirError(self.path, f"{why}; `kafkafs backup list` lists them") from None
        if point.time_ms != time_ms:
            raise CorruptError("the manifest of another point in time", directory.path_of(name))
        return point

    def manifest_path(self, time_ms: int) -> str:
        """Returns the path of a point's manifest, which can be given as a log directory."""
        return self.directory.child(POINTS).path_of(point_name(time_ms))

    def objects(self) -> dict[str, int]:
        """Returns the sizes of all objects by name."""
        found: dict[str, int] = {}
        objects = self.directory.child(OBJECTS)
        with suppress(SegmentGone):
            for entry in objects.list():
                if entry.is_dir:
                    files, _ = objects.child(entry.name).files("")
                    for name, status in files.items():
                        if status is not None:
                            found[f"{entry.name}/{name}"] = status.st_size
        return found

    def open_object(self, stored: StoredObject) -> ReadableFile:
        """Opens an object. Raises CorruptError if it is missing or has another size."""
        directory, _, name = stored.name.partition("/")
        folder = self.directory.child(OBJECTS).child(directory)
        try:
            file = folder.open(name)
        except SegmentGone:
            what = "an object that a manifest lists is missing"
            raise CorruptError(what, folder.path_of(name)) from None
        if file.size() != stored.size:
            what = f"an object of {file.size()} bytes; the manifest says {stored.size}"
            raise CorruptError(what, file.path)
        return file
