"""Lists, checks and prunes the points in time of a backup."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ...backup.keeping import Keep
from ...backup.manifest import Point, StoredObject
from ...backup.open_repository import open_repository, writable_repository
from ...backup.repository import Repository
from ...backup.writable_repository import WritableRepository
from ...clock import time_text
from ...concurrency.unit_threads import Advance, run_units
from ...errors import CorruptError, LogDirError, SegmentGone
from ..request import SILENT, PartitionFailed, ProgressListener

_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ListedPoint:
    """A point in time. `size`: bytes of its files; `new_bytes`: of its objects, those that no
    earlier point has. `topics`: () if it has all."""

    manifest: str
    time_ms: int
    log_dirs: tuple[str, ...]
    files: int
    size: int
    new_bytes: int
    topics: tuple[str, ...]
    damage: int

    def as_json(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest,
            "time": time_text(self.time_ms),
            "logDirs": list(self.log_dirs),
            "files": self.files,
            "bytes": self.size,
            "newBytes": self.new_bytes,
            "topics": list(self.topics),
            "damage": self.damage,
        }


@dataclass(frozen=True, slots=True)
class CheckedPoint:
    """A point in time of which every object was read. `problems`: how many of its objects are
    missing or changed."""

    manifest: str
    time_ms: int
    objects: int
    size: int
    problems: int

    def as_json(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest,
            "time": time_text(self.time_ms),
            "objects": self.objects,
            "bytes": self.size,
            "problems": self.problems,
        }


@dataclass(frozen=True, slots=True)
class PrunedPoint:
    """A point in time that is kept, by these `rules`, or removed (none)."""

    manifest: str
    time_ms: int
    rules: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        return bool(self.rules)

    def as_json(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest,
            "time": time_text(self.time_ms),
            "kept": self.is_kept,
            "rules": list(self.rules),
        }


@dataclass(frozen=True, slots=True)
class Pruned:
    """All points that there were, and how many objects, with how many bytes, no point has any more
    and are removed."""

    points: tuple[PrunedPoint, ...]
    objects: int
    size: int

    def as_json(self) -> dict[str, Any]:
        return {"removedObjects": self.objects, "removedBytes": self.size}


def list_points(path: str) -> Iterator[ListedPoint | PartitionFailed]:
    """Yields the points of the backup at a path, from the oldest to the newest. Raises LogDirError
    if there is no backup."""
    repository = open_repository(path)
    known: set[str] = set()
    for time_ms in repository.times():
        point = _read(repository, time_ms)
        if isinstance(point, PartitionFailed):
            yield point
            continue
        new = [each.size for name, each in point.objects.items() if name not in known]
        known |= point.objects.keys()
        yield ListedPoint(
            repository.manifest_path(time_ms),
            time_ms,
            tuple(each.path for each in point.log_dirs),
            sum(1 for _ in point.files),
            point.size,
            sum(new),
            tuple(point.topics),
            len(point.damage),
        )


def verify_points(
    path: str, at_ms: int | None = None, progress: ProgressListener = SILENT
) -> Iterator[CheckedPoint | PartitionFailed]:
    """Reads every object of all points, or of the newest at or before `at_ms`, and compares it with
    its SHA-256. Yields what is damaged, then the points. Raises LogDirError if there is no backup,
    or no such point."""
    repository = open_repository(path)
    chosen = repository.time_at(at_ms)
    times = repository.times() if at_ms is None else [chosen]
    points: dict[int, Point] = {}
    objects: dict[StoredObject, None] = {}
    for time_ms in times:
        point = _read(repository, time_ms)
        if isinstance(point, PartitionFailed):
            yield point
        else:
            points[time_ms] = point
            objects.update(dict.fromkeys(point.objects.values()))
    results = run_units(
        list(objects),
        lambda stored, advance: _problem(repository, stored, advance),
        lambda stored: stored.size,
        lambda done, total: progress.report("verifying", done, total),
    )
    wrong = {}
    for stored, error in zip(objects, results, strict=True):
        if error is not None:
            wrong[stored] = error
            yield PartitionFailed.of(error)
    for time_ms, point in points.items():
        found = point.objects.values()
        yield CheckedPoint(
            repository.manifest_path(time_ms),
            time_ms,
            len(found),
            sum(each.size for each in found),
            sum(each in wrong for each in found),
        )


def _problem(repository: Repository, stored: StoredObject, advance: Advance) -> CorruptError | None:
    """Returns what is wrong with an object."""
    try:
        file = repository.open_object(stored)
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(min(stored.size, _READ_BYTES) or 1))
        position = 0
        while got := file.read_into(position, buffer):
            digest.update(buffer[:got])
            position += got
            advance(got)
    except CorruptError as error:
        return error
    except SegmentGone as gone:  # of a server, since it was listed
        what = "an object that a manifest lists is missing, or another one by now"
        return CorruptError(what, gone.file)
    if digest.hexdigest() == stored.sha256:
        return None
    what = "an object whose SHA-256 is not the one in the manifest: its bytes were changed"
    return CorruptError(
        f"{what}; remove it, so that the next backup stores its bytes again", file.path
    )


def prune_points(path: str, keep: Keep, *, dry_run: bool = False) -> Pruned:
    """Removes the points that `keep` does not, then the objects that no other point has. Returns
    what it did, or would do. Raises LogDirError if there is no backup, or if it is in use;
    CorruptError if a manifest is damaged: it would be unknown which objects it needs."""
    repository = open_repository(path)
    if dry_run:
        return _prune(repository, None, keep)
    with writable_repository(path) as writable:
        return _prune(writable, writable, keep)


def _prune(repository: Repository, writable: WritableRepository | None, keep: Keep) -> Pruned:
    times = repository.times()
    kept = keep.kept(times)
    needed: set[str] = set()
    for time_ms in kept:
        needed |= repository.point(time_ms).objects.keys()
    objects = repository.objects()
    unneeded = [name for name in objects if name not in needed]
    size = sum(objects[name] for name in unneeded)
    if writable is not None:
        writable.remove_points([time_ms for time_ms in times if time_ms not in kept])
        writable.remove_objects(unneeded)
    points = (
        PrunedPoint(repository.manifest_path(each), each, tuple(kept.get(each, ())))
        for each in times
    )
    return Pruned(tuple(points), len(unneeded), size)


def _read(repository: Repository, time_ms: int) -> Point | PartitionFailed:
    try:
        return repository.point(time_ms)
    except (CorruptError, LogDirError) as error:
        return PartitionFailed.of(error)
