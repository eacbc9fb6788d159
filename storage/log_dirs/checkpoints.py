"""The checkpoint files of a log directory that is open for writing, as Kafka writes them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from types import MappingProxyType
from typing import Final, Protocol

from ..errors import SegmentGone
from ..format.files import names
from ..format.files.checkpoints import format_offsets
from ..format.files.names import PartitionState, TopicPartition
from ..io.durable import WritableDirFd
from ..log.append.writer import LogWriter
from .log_dir import LogDir

_FILES: Final = (
    names.RECOVERY_POINT_FILE,
    names.LOG_START_OFFSET_FILE,
    names.HIGH_WATERMARK_FILE,
    names.CLEANER_OFFSET_FILE,
)
_NO_OTHERS: Final[Mapping[TopicPartition, int]] = MappingProxyType({})


class OpenLogs(Protocol):
    """The logs of the directory; see WritableLogDir."""

    directory: WritableDirFd
    logs: dict[TopicPartition, LogWriter]

    def sorted_logs(self) -> list[tuple[TopicPartition, LogWriter]]: ...
    def guarded(self) -> AbstractContextManager[None]: ...


class LogDirCheckpoints:
    """The files. Thread-safe. They are replaced durably; entries of partitions that exist but are
    not open for writing are preserved.

    `others`: values of logs that are not opened yet. Without `always`, nothing is written if the
    file is up to date.
    """

    def __init__(self, open_logs: OpenLogs, log_dir: LogDir, guard: threading.Lock) -> None:
        """`log_dir` reads the files; `guard` is held while one is written."""
        self._open = open_logs
        self._log_dir = log_dir
        self._guard = guard
        # Held from reading the logs to writing the checkpoint, so that no older state overwrites a
        # newer one.
        self._writing = threading.Lock()
        self._changing_cleaned = threading.Lock()  # held from reading to writing the cleaner's
        self._durable: set[str] = set()  # names of files that were written and synced here

    def create_missing(self) -> None:
        """Creates missing files, empty (OffsetCheckpointFile)."""
        directory = self._open.directory
        there = {entry.name for entry in directory.list()}
        for name in _FILES:
            if name not in there:
                directory.create(name)

    # -- logs -----------------------------------------------------------------------------------

    def recovery_point(self, key: TopicPartition) -> int:
        """Returns the checkpointed value; 0 if there is none."""
        return self._log_dir.recovery_points.get(key, 0)

    def log_start_offset(self, key: TopicPartition) -> int:
        """Returns the checkpointed value; 0 if there is none."""
        return self._log_dir.log_start_offsets.get(key, 0)

    def write(self) -> None:
        """Writes recovery points and log start offsets."""
        self.write_recovery_points()
        self.write_start_offsets()

    def write_recovery_points(
        self, others: Mapping[TopicPartition, int] = _NO_OTHERS, *, always: bool = True
    ) -> None:
        with self._writing:
            points = {key: log.recovery_point for key, log in self._open.sorted_logs()}
            before = self._log_dir.recovery_points
            self._write(names.RECOVERY_POINT_FILE, {**points, **others}, before, always)

    def write_start_offsets(
        self, others: Mapping[TopicPartition, int] = _NO_OTHERS, *, always: bool = True
    ) -> None:
        """Writes the log start offsets that differ from the first segment's base, and those of all
        logs that may have records in remote storage: for these nothing else tells which of those
        records were deleted (LogManager.checkpointLogStartOffsetsInDir)."""
        with self._writing:
            logs = self._open.sorted_logs()
            starts = {
                key: log.log_start_offset
                for key, log in logs
                if log.is_tiered or log.start_offset > log.first_base_offset
            }
            before = self._log_dir.log_start_offsets
            self._sync_fronts(before, starts)
            self._write(names.LOG_START_OFFSET_FILE, {**starts, **others}, before, always)
            for key, log in logs:
                if key in starts and log.is_tiered:
                    log.note_checkpointed(starts[key])

    def _sync_fronts(
        self, before: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]
    ) -> None:
        """Makes segment deletions durable at the front of logs that are not in `starts`: from now
        on only the file names in their directories show where they begin, and a directory may reach
        the disk later than the checkpoint. Another process may have deleted segments of those that
        were in `before`."""
        for key, writer in self._open.sorted_logs():
            if key not in starts:
                # suppressed: it was deleted just now
                with self._open.guarded(), suppress(SegmentGone, FileNotFoundError):
                    writer.sync_front(always=key in before)

    def write_high_watermarks(self, *, always: bool = True) -> None:
        with self._writing:
            marks = {key: log.high_watermark for key, log in self._open.sorted_logs()}
            before = self._log_dir.high_watermarks
            self._write(names.HIGH_WATERMARK_FILE, marks, before, always)

    def _write(
        self,
        name: str,
        offsets: dict[TopicPartition, int],
        before: Mapping[TopicPartition, int],
        always: bool,
    ) -> None:
        there, logs = self._there(), self._open.logs
        kept = {key: at for key, at in before.items() if key in there and key not in logs}
        content = {**kept, **offsets}
        if always or content != before or name not in self._durable:
            self._durable.discard(name)
            self._write_file(name, content)
            self._durable.add(name)

    # -- the cleaner ----------------------------------------------------------------------------

    def cleaner_offset(self, key: TopicPartition) -> int | None:
        """Returns the checkpointed first uncleaned offset of a partition; None if there is none."""
        return self._log_dir.cleaner_offsets.get(key)

    def put_cleaner_offset(self, key: TopicPartition, offset: int) -> None:
        """Checkpoints how far a partition was cleaned."""
        with self._changing_cleaned:
            self._write_file(names.CLEANER_OFFSET_FILE, {**self._cleaner_offsets(), key: offset})

    def forget_cleaner_offsets(self) -> None:
        """Removes deleted partitions from the cleaner's checkpoint."""
        with self._changing_cleaned:
            offsets = self._cleaner_offsets()
            if offsets != self._log_dir.cleaner_offsets:
                self._write_file(names.CLEANER_OFFSET_FILE, offsets)

    def limit_cleaner_offset(self, key: TopicPartition, most: int) -> None:
        """Lowers a partition's first dirty offset to `most` if it is higher."""
        with self._changing_cleaned:
            offsets = self._cleaner_offsets()
            if offsets.get(key, 0) > most:
                self._write_file(names.CLEANER_OFFSET_FILE, {**offsets, key: most})

    def _cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Returns the checkpointed offsets of existing partitions."""
        there = self._there()
        return {key: at for key, at in self._log_dir.cleaner_offsets.items() if key in there}

    def _there(self) -> set[TopicPartition]:
        """Returns the partitions that a checkpoint may refer to: not deleted ones, whose name may
        already belong to a new partition."""
        return {
            (each.topic, each.partition)
            for each in self._log_dir.partitions()
            if each.state in (PartitionState.NORMAL, PartitionState.FUTURE)
        }

    def _write_file(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._open.guarded(), self._guard:
            self._open.directory.write_atomically(name, format_offsets(offsets))
