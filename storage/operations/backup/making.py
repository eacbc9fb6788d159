"""Makes a point in time: fixes what it has, copies what the repository lacks, publishes it."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...backup.manifest import Noted, Point, StoredFile, StoredLogDir, StoredObject
from ...backup.open_repository import has_repository, open_repository, writable_repository
from ...backup.repository import Repository
from ...backup.writable_repository import WritableRepository
from ...concurrency.unit_threads import Advance, run_units
from ...errors import CorruptError, LogDirError, SegmentGone
from ...format.files.names import LEADER_EPOCH_FILE, partition_dir
from ...io.local_path import absolute_path
from ...io.retry import VANISHED
from ...log.read.context import ReadContext
from ...log_dirs.engine import Engine
from ...log_dirs.log_dir import LogDir
from ...segment.segment import Segment
from ..output_dir import refuse_in_log_dir
from ..request import SILENT, PartitionFailed, ProgressListener
from .copier import SYNCING, Bandwidth, Copier
from .file_copier import CopiedFile, DryCopier, FileCopier, LogBatches
from .fixing import Changed, FixedLogDir, FixedPartition, fix
from .log_dir_files import checkpoints, left_out, open_files
from .partition_files import OtherFiles, open_log, open_others
from .request import BackedUpPartition, Backup, BackupRow, FinishedPoint

# How often everything is fixed again because a partition disappeared meanwhile.
_ATTEMPTS: Final = 8
# Points that are looked through for one of all topics, to know what the repository has.
_POINTS_READ: Final = 16

Files = Mapping[str, StoredFile]


def make_point(
    engine: Engine, request: Backup, progress: ProgressListener = SILENT
) -> Iterator[BackupRow | PartitionFailed]:
    """Makes a point in time of the engine's log directories. Yields what it has when it is visible,
    or would have: the partitions, what is damaged (and copied nevertheless), and the point.

    Raises LogDirError if the repository cannot be used, or is in use; OSError if its disk is full:
    then there is no point, and what was copied is used by the next run.
    """
    directories = [each.directory for each in engine.log_dirs.dirs]
    refuse_in_log_dir(request.output, directories)
    settings = engine.context.limits.remote
    if request.dry_run:
        has_one = has_repository(request.output, settings)
        repository = open_repository(request.output, settings) if has_one else None
        known = _Known.of(repository, {} if repository is None else repository.objects())
        run = _Run(engine, request, DryCopier(known.objects), known, progress)
        yield from run.rows(None)
        return
    with writable_repository(request.output, settings) as writable:
        known = _Known.of(writable, writable.sizes)
        bandwidth = Bandwidth(request.bandwidth)
        copier = Copier(writable, known.objects, bandwidth, reread=request.reread)
        yield from _Run(engine, request, copier, known, progress).rows(writable)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a repository has: files of each log directory, by its path, and all objects that they
    are from. `newest_ms`: the time of its newest point, -1 if there is none. `damage`: what is
    wrong with files, by their paths."""

    files: Mapping[str, Files]
    objects: dict[str, StoredObject]
    newest_ms: int
    damage: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, repository: Repository | None, sizes: Mapping[str, int]) -> _Known:
        """Reads the newest points, back to one that has all topics. Files with an object that is
        missing count as unknown, so that they are stored again."""
        files: dict[str, dict[str, StoredFile]] = {}
        objects: dict[str, StoredObject] = {}
        damage: dict[str, list[str]] = {}
        times = [] if repository is None else repository.times()
        for time_ms in times[: -_POINTS_READ - 1 : -1]:
            assert repository is not None
            point = repository.point(time_ms)
            there = {
                name: each for name, each in point.objects.items() if sizes.get(name) == each.size
            }
            objects = {**there, **objects}
            for log_dir in point.log_dirs:
                of_dir = files.setdefault(log_dir.path, {})
                for file in log_dir.files:
                    if all(piece.object in there for piece in file.pieces):
                        of_dir.setdefault(file.path, file)
            for each in point.damage:
                damage.setdefault(each.path, []).append(each.why)
            if not point.topics:
                break
        return cls(files, objects, times[-1] if times else -1, damage)


@dataclass(frozen=True, slots=True)
class _Unit:
    """What one thread copies: a segment, or the other files of a partition (None)."""

    number: int  # of the log directory
    partition: FixedPartition
    segment: Segment | None

    @property
    def size(self) -> int:
        return 0 if self.segment is None else self.segment.size


@dataclass(frozen=True, slots=True)
class _Copied:
    """What a unit is in the point. `damage`: beside that of the copied bytes. `cut`: what is wrong
    with bytes that are left out."""

    files: Sequence[CopiedFile]
    left_out: Sequence[Noted] = ()
    damage: Sequence[CorruptError] = ()
    cut: Sequence[CorruptError] = ()


@dataclass(slots=True)
class _Draft:
    """A point that is being made: the files of each log directory."""

    files: list[list[CopiedFile]]
    left_out: list[Noted] = field(default_factory=list)
    damage: list[CorruptError] = field(default_factory=list)
    cut: list[CorruptError] = field(default_factory=list)
    partitions: list[BackedUpPartition] = field(default_factory=list)


class _Run:
    def __init__(
        self,
        engine: Engine,
        request: Backup,
        copier: FileCopier,
        known: _Known,
        progress: ProgressListener,
    ) -> None:
        self._request, self._copier, self._known = request, copier, known
        self._clock, self._progress = engine.clock, progress
        self._log_dirs: Sequence[LogDir] = engine.log_dirs.dirs
        self._paths = [absolute_path(each.path) for each in self._log_dirs]
        self._context: ReadContext = engine.context

    def rows(self, repository: WritableRepository | None) -> Iterator[BackupRow | PartitionFailed]:
        """Makes the point; publishes it if there is a repository."""
        for attempt in range(_ATTEMPTS):
            # The time before anything is fixed: whatever happened until then is in the point.
            time_ms = max(self._clock.now_ms(), self._known.newest_ms + 1)
            try:
                draft = self._draft()
                break
            except Changed as changed:
                if attempt == _ATTEMPTS - 1:
                    why = "it, or what it holds, kept disappearing during the backup; run it again"
                    raise LogDirError(changed.path, why) from None
        self._copier.finish()
        stored = self._copier.stored_bytes
        manifest = posixpath.join(self._request.output, "points")
        if repository is not None:
            point = self._point(draft, time_ms)
            repository.publish(point)
            manifest = repository.manifest_path(time_ms)
        yield from draft.partitions
        for error in (*draft.damage, *draft.cut):
            yield PartitionFailed.of(error)
        yield FinishedPoint(
            manifest,
            time_ms,
            len(draft.partitions),
            sum(map(len, draft.files)),
            sum(file.size for files in draft.files for file in files),
            stored,
            len(draft.left_out),
        )

    def _point(self, draft: _Draft, time_ms: int) -> Point:
        log_dirs = []
        for log_dir, path, copied in zip(self._log_dirs, self._paths, draft.files, strict=True):
            status = log_dir.directory.stat()
            mode = stat.S_IMODE(status.st_mode)
            files = sorted((each.stored() for each in copied), key=lambda file: file.path)
            log_dirs.append(StoredLogDir(path, status.st_uid, status.st_gid, mode, files))
        used = {piece.object for each in log_dirs for file in each.files for piece in file.pieces}
        objects = {name: self._copier.objects[name] for name in sorted(used)}
        topics = [topic for topic, _ in self._request.selection.names]
        damage = [Noted(absolute_path(each.file), _what(each)) for each in draft.damage]
        return Point(time_ms, log_dirs, objects, tuple(topics), draft.left_out, damage)

    # -- copying -----------------------------------------------------------------------------------

    def _draft(self) -> _Draft:
        fixed = fix(self._log_dirs, self._request.selection, self._context)
        draft = _Draft([[] for _ in fixed])
        for each in fixed:
            draft.left_out += left_out(each.log_dir)
        copied = self._partitions(fixed)
        for number, each in enumerate(fixed):
            views = {}
            for partition in each.partitions:
                final, found = copied[number, partition.found.name]
                views[final.found.topic, final.found.partition] = final.view
                self._add(draft, number, final, found)
            for name, data in checkpoints(each.log_dir, views):
                prior = self._prior(number, name)
                now_ns = self._clock.now_ms() * 1_000_000
                draft.files[number].append(self._copier.content(name, data, now_ns, prior))
            for name, file in open_files(each.log_dir, is_clean=each.is_still_clean()):
                size = file.size()
                draft.files[number].append(
                    self._copier.copy(file, name, size, self._prior(number, name))
                )
        return draft

    def _add(
        self, draft: _Draft, number: int, fixed: FixedPartition, copied: Sequence[_Copied]
    ) -> None:
        files = [file for each in copied for file in each.files]
        draft.files[number] += files
        for each in copied:
            draft.left_out += each.left_out
            draft.damage += each.damage
            draft.cut += each.cut
            for file in each.files:
                draft.damage += file.faults
                draft.damage += self._known_damage(number, file)
        found, view = fixed.found, fixed.view
        draft.partitions.append(
            BackedUpPartition(
                self._paths[number],
                found.topic,
                found.partition,
                len(view.segments),
                view.start_offset,
                view.end_offset,
                sum(file.size for file in files),
                sum(file.new_bytes for file in files),
            )
        )

    def _partitions(
        self, fixed: Sequence[FixedLogDir]
    ) -> dict[tuple[int, str], tuple[FixedPartition, list[_Copied]]]:
        """Copies all partitions; those whose segments were deleted or replaced meanwhile are fixed
        and copied again, without the segments that are still the same."""
        done: dict[tuple[int, str], tuple[FixedPartition, list[_Copied]]] = {}
        todo = [
            (number, partition)
            for number, each in enumerate(fixed)
            for partition in each.partitions
        ]
        clean = [each.is_clean for each in fixed]
        for _ in range(VANISHED):
            units = [
                _Unit(number, partition, segment)
                for number, partition in todo
                for segment in (*partition.view.segments, None)
            ]
            results = run_units(
                units,
                lambda unit, advance: self._copy(unit, advance, is_clean=clean[unit.number]),
                lambda unit: unit.size,
                lambda now, total: self._progress.report("copying", now, total),
                SYNCING,
            )
            again: dict[tuple[int, str], FixedPartition] = {}
            for unit, result in zip(units, results, strict=True):
                key = (unit.number, unit.partition.found.name)
                if result is None:
                    again[key] = unit.partition
                else:
                    done.setdefault(key, (unit.partition, []))[1].append(result)
            if not again:
                return done
            todo = []
            for key, partition in again.items():
                done.pop(key, None)
                todo.append((key[0], partition.again()))
        raise Changed(next(iter(again.values())).found.path)

    def _copy(self, unit: _Unit, advance: Advance, *, is_clean: bool) -> _Copied | None:
        """Copies a unit. Returns None if its segments were deleted or replaced."""
        self._progress.check()
        if unit.segment is None:
            return self._others(unit, open_others(unit.partition))
        try:
            return self._segment(unit, unit.segment, advance, is_clean=is_clean)
        except SegmentGone:
            return None

    def _segment(
        self, unit: _Unit, segment: Segment, advance: Advance, *, is_clean: bool
    ) -> _Copied | None:
        fixed = unit.partition
        opened = open_log(fixed, segment, is_clean=is_clean)
        if opened is None:
            error = CorruptError("not a regular file: it has no bytes to copy", segment.path)
            return _Copied((), (Noted(segment.path, "not a regular file"),), (error,))
        limit = self._context.limits.max_batch_bytes
        files = []
        path = self._path(fixed, opened.name)
        files.append(
            self._copier.copy(
                opened.file,
                path,
                segment.size,
                self._prior(unit.number, path),
                LogBatches(segment, limit),
                advance,
            )
        )
        for index in opened.indexes:
            path = self._path(fixed, index.name)
            prior = self._prior(unit.number, path)
            files.append(self._copier.copy(index.file, path, index.size, prior))
        tail = fixed.view.tail if segment.is_active else None
        if tail is None:
            return _Copied(files)
        position = tail.error.position
        why = f"the bytes from position {position} on are no whole batch: {tail.error.what}"
        return _Copied(files, (Noted(segment.path, why),), cut=(tail.error,))

    def _others(self, unit: _Unit, others: OtherFiles) -> _Copied:
        fixed, files = unit.partition, []
        for name, file in others.opened:
            path = self._path(fixed, name)
            files.append(self._copier.copy(file, path, file.size(), self._prior(unit.number, path)))
        if others.epochs is not None:
            path = self._path(fixed, LEADER_EPOCH_FILE)
            prior, epochs = self._prior(unit.number, path), others.epochs
            files.append(self._copier.content(path, epochs.data, epochs.mtime_ns, prior))
        return _Copied(files, others.left_out, others.damage)

    def _path(self, fixed: FixedPartition, name: str) -> str:
        found = fixed.found
        return f"{partition_dir(found.topic, found.partition)}/{name}"

    def _known_damage(self, number: int, file: CopiedFile) -> Iterator[CorruptError]:
        """Yields what was wrong with a file whose beginning, at least, was not read again."""
        prior = self._prior(number, file.path)
        if prior is None or not file.pieces or file.pieces[0] not in prior.pieces:
            return
        path = posixpath.join(self._paths[number], file.path)
        for why in dict.fromkeys(self._known.damage.get(path, ())):
            yield CorruptError(why, path)

    def _prior(self, number: int, path: str) -> StoredFile | None:
        """Returns what is known of a file from earlier points."""
        return self._known.files.get(self._paths[number], {}).get(path)


def _what(error: CorruptError) -> str:
    return f"position {error.position}: {error.what}" if error.position >= 0 else error.what
