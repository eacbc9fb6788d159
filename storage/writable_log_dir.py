"""One log directory that this process writes to: its lock, its partitions, the small files beside.

What Kafka's LogManager does for each of its `log.dirs`. A directory is held from `hold` until
`close`. When something fails in it after which its disk cannot be trusted, it goes offline: its
partitions refuse everything until it is opened anew, and the other directories go on.
"""

from __future__ import annotations

import errno
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import itemgetter

from .clock import Clock
from .deleted_topics import (
    DELETED_PARTITION_FILE,
    DeletedPartition,
    Doomed,
    format_deleted_partition,
    found_doomed,
)
from .durable import SyncFailed, WritableDirectory
from .errors import (
    CannotUndelete,
    CorruptError,
    LogDirError,
    LogDirOffline,
    SegmentGone,
    StorageError,
    printable,
)
from .format import names
from .format.checkpoints import (
    PartitionMetadata,
    format_clean_shutdown,
    format_offsets,
    format_partition_metadata,
    parse_clean_shutdown,
)
from .format.names import PartitionState, deleted_partition_dir, partition_dir
from .held_directory import HeldDirectory
from .log.deletions import NEVER_MS
from .log.leftovers import find_leftovers, remove
from .log.writer import LogWriter
from .log_dir import LogDir, PartitionDir, TopicPartition
from .small_file import read_value

logger = logging.getLogger(__name__)

# Errors that say nothing about the disk, and may be gone at the next try.
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
_NO_BROKER = -1
_MAX_MARKER_BYTES = 4 << 10
_CHECKPOINTS = (
    names.RECOVERY_POINT_FILE,
    names.LOG_START_OFFSET_FILE,
    names.HIGH_WATERMARK_FILE,
    names.CLEANER_OFFSET_FILE,
)


class WritableLogDir:
    """A held directory with its partitions; any thread may ask for them.

    `offline`: why nothing is written to it any more, None as long as it is well. `problems`: what
    could not be opened in it, a line each.
    """

    def __init__(self, held: HeldDirectory, log_dir: LogDir, clock: Clock) -> None:
        self.directory = held.directory
        self.path = held.directory.path
        self.logs: dict[TopicPartition, LogWriter] = {}
        self.offline: LogDirOffline | None = None
        self.problems: list[str] = []
        self._log_dir = log_dir
        self._held = held
        self._clock = clock
        self._guard = threading.Lock()  # over `offline` and each checkpoint file
        # From looking at the logs to writing what they say, so that nothing older comes later.
        self._checkpointing = threading.Lock()
        self._changing_cleaned = threading.Lock()  # from reading the cleaner's to writing it
        self._doomed: dict[str, Doomed] = {}  # directories of deleted partitions
        self._with_deleted: set[TopicPartition] = set()
        self._durable_checkpoints: set[str] = set()  # files that were written here, well at last
        self._was_clean = self._may_mark_clean = False
        self._broker_epoch = _NO_BROKER

    # -- opening --------------------------------------------------------------------------------

    def load(
        self,
        executor: Executor,
        open_log: Callable[[WritableLogDir, PartitionDir, bool], LogWriter],
        loaded: Callable[[], None],
    ) -> list[Future[None]]:
        """Begins to open every partition, by `open_log(self, partition, is_clean)`; `loaded` is
        called after each. What a partition raises is kept: damage as a problem, and a failing disk
        takes the directory offline."""
        with self.guarded():
            was_clean = self._was_clean = self._log_dir.is_clean
            self._broker_epoch = self._read_broker_epoch()
            # First of all: what is not closed in good order shall not seem so.
            self.directory.remove(names.CLEAN_SHUTDOWN_FILE, missing_ok=True)
            self._make_checkpoints()
            self.directory.sync()
            found = self._log_dir.partitions()
        for each in found:
            if each.state is PartitionState.DELETE:
                self._doomed[each.name] = found_doomed(each)
        self._may_mark_clean = True

        def load_one(partition: PartitionDir) -> None:
            try:
                with self.guarded():
                    writer = open_log(self, partition, was_clean)
                self.logs[partition.topic, partition.partition] = writer
            except LogDirOffline:
                pass
            except (StorageError, OSError) as error:
                self.problems.append(f"{printable(partition.path)}: not opened: {error}")
                # Unless it was marked clean before, it must not be now.
                self._may_mark_clean = was_clean
            finally:
                loaded()

        return [
            executor.submit(load_one, partition)
            for partition in found
            if partition.state is PartitionState.NORMAL and partition.topic != names.METADATA_TOPIC
        ]

    def finish_loading(self) -> None:
        """After a crash the checkpoints may tell of records that are lost. That they are right is
        needed at the next opening, and by whoever looks; so it can wait if it has to."""
        if not self._was_clean and self.offline is None:
            with suppress(StorageError, OSError):
                self.checkpoint()
                self.checkpoint_high_watermarks()

    def _read_broker_epoch(self) -> int:
        """Of the last broker that closed the directory: one that finds another epoch than its own
        last takes it that the directory was not closed in good order."""
        name = names.CLEAN_SHUTDOWN_FILE
        try:
            return read_value(self.directory, name, _MAX_MARKER_BYTES, parse_clean_shutdown)
        except (SegmentGone, CorruptError):
            return _NO_BROKER

    def _make_checkpoints(self) -> None:
        """Those that are missing, empty (OffsetCheckpointFile)."""
        there = {entry.name for entry in self.directory.list()}
        for name in _CHECKPOINTS:
            if name not in there:
                self.directory.create(name)

    def recovery_point(self, key: TopicPartition) -> int:
        """As it was checkpointed; 0 where it was not."""
        return self._log_dir.recovery_points.get(key, 0)

    def log_start_offset(self, key: TopicPartition) -> int:
        """As it was checkpointed; 0 where it was not."""
        return self._log_dir.log_start_offsets.get(key, 0)

    # -- partitions -----------------------------------------------------------------------------

    def sorted_logs(self) -> list[tuple[TopicPartition, LogWriter]]:
        """Those that can be written to, by topic and number; none when it is offline."""
        if self.offline is not None:
            return []
        return sorted(self.logs.items(), key=itemgetter(0))

    def note_has_deleted(self, key: TopicPartition, has_deleted: bool) -> None:
        """Whether something deleted waits in a log; told under its lock."""
        (self._with_deleted.add if has_deleted else self._with_deleted.discard)(key)

    def logs_with_deleted(self) -> list[tuple[TopicPartition, LogWriter]]:
        """Those of `sorted_logs` where something deleted waits."""
        if self.offline is not None:
            return []
        found = ((key, self.logs.get(key)) for key in sorted(self._with_deleted))
        return [(key, writer) for key, writer in found if writer is not None]

    def holds(self, partition: PartitionDir) -> bool:
        """Whether the partition's directory is in this one."""
        return partition.log_dir is self._log_dir

    def do(self, work: Callable[[], object]) -> None:
        """Does `work` as what changes this directory: see `guarded`."""
        with self.guarded():
            work()

    def make(self, key: TopicPartition, topic_id: str) -> WritableDirectory:
        """A directory for a new partition, with its topic's id in it ("" for none), durably.
        LogDirError when something of that name is there."""
        with self.guarded():
            # Of a partition of that name that was deleted just before a crash.
            if key in self._log_dir.log_start_offsets or key in self._log_dir.recovery_points:
                self.checkpoint()
            if key in self._log_dir.cleaner_offsets:
                self.forget_cleaner_offsets()
            name = partition_dir(*key)
            try:
                directory = self.directory.make(name)
            except FileExistsError:
                path = self.directory.path_of(name)
                raise LogDirError(path, "in the way of a new partition; remove it") from None
            if topic_id:
                data = format_partition_metadata(PartitionMetadata(0, topic_id))
                directory.write_atomically(names.PARTITION_METADATA_FILE, data)
            self.directory.sync()
            return directory

    def unmake(self, key: TopicPartition) -> None:
        """Takes back what `make` may have made, as far as that is possible."""
        self.logs.pop(key, None)
        with suppress(OSError, StorageError):
            self.directory.remove_directory(partition_dir(*key))

    def delete(
        self,
        key: TopicPartition,
        was: DeletedPartition | None = None,
        since_ms: int | None = None,
    ) -> None:
        """Takes a partition out of service at once; `remove_doomed` removes its files. Until then
        it can come back as what it `was`. `since_ms`: see `Doomed`; None: it is deleted now."""
        with self.guarded():
            name = deleted_partition_dir(*key, uuid.uuid4().hex)
            writer = self.logs.pop(key, None)
            if writer is not None:
                writer.abandon()
                self.note_has_deleted(key, has_deleted=False)
            if was is not None:
                self._note_deleted(key, was)
            try:
                self.directory.rename_child(partition_dir(*key), name)
            finally:  # it may have its name, and not be synced
                since_ms = self._clock.now_ms() if since_ms is None else since_ms
                self._doom(Doomed(name, since_ms, was))

    def _doom(self, doomed: Doomed) -> None:
        """Remembers a directory, if it is there."""
        with suppress(SegmentGone):
            self.directory.stat(doomed.name)
            self._doomed[doomed.name] = doomed

    def _note_deleted(self, key: TopicPartition, was: DeletedPartition) -> None:
        """For the next process. A full disk must not keep anybody from deleting."""
        try:
            file = self.directory.child(partition_dir(*key)).create(DELETED_PARTITION_FILE)
            file.write(0, format_deleted_partition(was))
        except OSError as error:
            if error.errno not in _PASSING:
                raise

    @property
    def doomed(self) -> list[Doomed]:
        """The partitions that were deleted and could come back."""
        if self.offline is not None:
            return []
        return [each for each in list(self._doomed.values()) if each.was is not None]

    def bring_back(self, doomed: Doomed) -> None:
        """Gives a partition's directory its name again, durably, and its checkpoints before that.
        CannotUndelete when it has just been removed."""
        was = doomed.was
        assert was is not None
        key = (was.topic, was.partition)
        if self._doomed.pop(doomed.name, None) is None:
            raise CannotUndelete(partition_dir(*key), "its files were removed")
        try:
            self._checkpoint_points({key: was.recovery_point})
            self._checkpoint_starts({key: was.start_offset})
            with self.guarded():
                self.directory.rename_child(doomed.name, partition_dir(*key))
                directory = self.directory.child(partition_dir(*key))
                directory.remove(DELETED_PARTITION_FILE, missing_ok=True)
        except BaseException:
            self._doom(doomed)
            raise

    @property
    def has_doomed(self) -> bool:
        """Whether `remove_doomed` could find anything."""
        return any(each.since_ms != NEVER_MS for each in list(self._doomed.values()))

    def remove_doomed(self, delay_ms: int) -> int:
        """Removes the directories of partitions that this process deleted `delay_ms` ago or longer;
        the number of them."""
        now = self._clock.now_ms()
        due = [each for each in list(self._doomed.values()) if now - each.since_ms >= delay_ms]
        return sum(map(self._remove_doomed, due))

    def _remove_doomed(self, doomed: Doomed) -> bool:
        if self._doomed.pop(doomed.name, None) is None:
            return False  # somebody brings it back
        try:
            with self.guarded(), suppress(FileNotFoundError):
                self.directory.remove_directory(doomed.name)
        except BaseException:
            # It may have lost some of its files.
            self._doomed[doomed.name] = replace(doomed, was=None)
            raise
        return True

    def is_left(self, directory: str, key: TopicPartition, name: str) -> bool:
        """Whether the file `name` of a partition's directory or, where that is "", the directory
        is not one that this process deleted and removes when its time has come."""
        if not name:
            doomed = self._doomed.get(directory)
            return doomed is None or doomed.since_ms == NEVER_MS
        writer = self.logs.get(key)
        return writer is None or writer.is_left(name)

    def purge_partition(self, name: str) -> bool:
        """Removes the directory `name` of a deleted or stray partition; whether it was there."""
        parsed = names.parse_partition_dir(name)
        if parsed is None or parsed.state not in (PartitionState.DELETE, PartitionState.STRAY):
            return False
        if name in self._doomed:
            return self._remove_doomed(self._doomed[name])
        with self.guarded(), suppress(FileNotFoundError):
            self.directory.remove_directory(name)
            return True
        return False

    def purge_files(self, key: TopicPartition, chosen: AbstractSet[str]) -> set[str]:
        """Removes the leftovers of a partition that are called so; the names of those removed. The
        caller has the partition to itself."""
        with self.guarded():
            writer = self.logs.get(key)
            if writer is not None:
                return writer.purge(chosen)
            directory = self.directory.child(partition_dir(*key))
            found = [each for each in find_leftovers(directory) if each.name in chosen]
            remove(directory, found)
            return {each.name for each in found}

    # -- checkpoints ----------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Writes recovery points and log start offsets, durably."""
        self.checkpoint_recovery_points()
        self.checkpoint_start_offsets()

    def checkpoint_recovery_points(self, always: bool = True) -> None:
        """`always`: also where the file has all that already."""
        self._checkpoint_points({}, always)

    def _checkpoint_points(self, others: Mapping[TopicPartition, int], always: bool = True) -> None:
        """With those of `others`, which are not opened yet."""
        with self._checkpointing:
            points = {key: log.recovery_point for key, log in self.sorted_logs()}
            before = self._log_dir.recovery_points
            self._write_offsets(names.RECOVERY_POINT_FILE, {**points, **others}, before, always)

    def checkpoint_start_offsets(self, always: bool = True) -> None:
        """Only those that the first segment's base does not tell already. `always` as above."""
        self._checkpoint_starts({}, always)

    def _checkpoint_starts(self, others: Mapping[TopicPartition, int], always: bool = True) -> None:
        """With those of `others`, which are not opened yet."""
        with self._checkpointing:
            starts = {
                key: log.start_offset
                for key, log in self.sorted_logs()
                if log.start_offset > log.first_base_offset
            }
            before = self._log_dir.log_start_offsets
            self._sync_fronts(before, starts)
            self._write_offsets(names.LOG_START_OFFSET_FILE, {**starts, **others}, before, always)

    def _sync_fronts(
        self, before: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]
    ) -> None:
        """Makes durable that segments were deleted from the front of logs that are not among
        `starts`: where those begin only the names in their directories say from now on, and a
        directory may reach the disk after this one. Those that were among them `before` may have
        lost segments to another process."""
        for key, writer in self.sorted_logs():
            if key not in starts:
                with self.guarded(), suppress(SegmentGone, FileNotFoundError):  # deleted just now
                    writer.sync_front(always=key in before)

    def checkpoint_high_watermarks(self, always: bool = True) -> None:
        """`always` as above."""
        with self._checkpointing:
            marks = {key: log.high_watermark for key, log in self.sorted_logs()}
            before = self._log_dir.high_watermarks
            self._write_offsets(names.HIGH_WATERMARK_FILE, marks, before, always)

    def cleaner_offset(self, key: TopicPartition) -> int | None:
        """The first offset of a partition that was not cleaned yet, as checkpointed; None without
        one."""
        return self._log_dir.cleaner_offsets.get(key)

    def put_cleaner_offset(self, key: TopicPartition, offset: int) -> None:
        """Checkpoints how far a partition was cleaned."""
        with self._changing_cleaned:
            self._write_file(names.CLEANER_OFFSET_FILE, {**self._cleaner_offsets(), key: offset})

    def forget_cleaner_offsets(self) -> None:
        """Takes partitions that are no more out of the cleaner's checkpoint."""
        with self._changing_cleaned:
            offsets = self._cleaner_offsets()
            if offsets != self._log_dir.cleaner_offsets:
                self._write_file(names.CLEANER_OFFSET_FILE, offsets)

    def limit_cleaner_offset(self, key: TopicPartition, most: int) -> None:
        """Lowers a partition's first dirty offset to `most` where it is above."""
        with self._changing_cleaned:
            offsets = self._cleaner_offsets()
            if offsets.get(key, 0) > most:
                self._write_file(names.CLEANER_OFFSET_FILE, {**offsets, key: most})

    def _cleaner_offsets(self) -> dict[TopicPartition, int]:
        """As checkpointed, of the partitions that are there."""
        there = self._there()
        return {key: at for key, at in self._log_dir.cleaner_offsets.items() if key in there}

    def _there(self) -> set[TopicPartition]:
        """The partitions that a checkpoint may be about: not those that only wait for their
        removal, since one of the same name may be made meanwhile."""
        return {
            (each.topic, each.partition)
            for each in self._log_dir.partitions()
            if each.state in (PartitionState.NORMAL, PartitionState.FUTURE)
        }

    def _write_offsets(
        self,
        name: str,
        offsets: dict[TopicPartition, int],
        before: Mapping[TopicPartition, int],
        always: bool,
    ) -> None:
        """Those of partitions that are not opened for writing stay as they were."""
        there = self._there()
        kept = {key: at for key, at in before.items() if key in there and key not in self.logs}
        content = {**kept, **offsets}
        if always or content != before or name not in self._durable_checkpoints:
            self._durable_checkpoints.discard(name)
            self._write_file(name, content)
            self._durable_checkpoints.add(name)

    def _write_file(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self.guarded(), self._guard:
            self.directory.write_atomically(name, format_offsets(offsets))

    # -- failing and closing --------------------------------------------------------------------

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """For what changes the directory: LogDirOffline when it is offline, or is now because
        something failed that leaves its disk in doubt."""
        if self.offline is not None:
            raise LogDirOffline(*self.offline.args)
        try:
            yield
        except OSError as error:
            if error.errno in _PASSING and not isinstance(error, SyncFailed):
                raise
            raise self.fail(error) from error

    def fail(self, cause: OSError | LogDirOffline) -> LogDirOffline:
        """Takes the directory offline, for what happened first; that is returned."""
        with self._guard:
            if self.offline is not None:
                return self.offline
            self.offline = _offline(self.path, cause)
        logger.error("%s", self.offline)
        for writer in list(self.logs.values()):
            writer.fail(self.offline)
        with suppress(OSError):
            self._held.release()
        return self.offline

    def went_offline(self, error: LogDirOffline) -> None:
        """One of its partitions met a failure that concerns the whole directory."""
        self.fail(error)

    def close(self, executor: Executor) -> list[Future[None]]:
        """Begins to close every partition; `finish` is to follow when all are done."""
        if self.offline is not None:
            return []

        def close_one(writer: LogWriter) -> None:
            with self.guarded():
                writer.close()

        return [executor.submit(close_one, writer) for _, writer in self.sorted_logs()]

    def flush_unclosed(self) -> None:
        """Makes durable what is in partitions that `close` has not closed. LogDirOffline."""
        for _, writer in self.sorted_logs():
            if not writer.is_closed:
                writer.flush()
        if self.offline is not None:
            raise LogDirOffline(*self.offline.args)

    def finish(self, is_well: bool) -> None:
        """Writes what shall be known at the next opening, the mark of a clean shutdown last, and
        gives the directory away. `is_well`: all partitions were closed."""
        try:
            if is_well and self.offline is None:
                self.checkpoint()
                self.checkpoint_high_watermarks()
                if self._may_mark_clean:
                    with self.guarded():
                        data = format_clean_shutdown(self._broker_epoch)
                        self.directory.write_in_place(names.CLEAN_SHUTDOWN_FILE, data)
        finally:
            self._held.release()


def _offline(path: str, cause: OSError | LogDirOffline) -> LogDirOffline:
    if isinstance(cause, LogDirOffline):
        return LogDirOffline(path, cause.why)
    where = f"{printable(str(cause.filename))}: " if cause.filename else ""
    return LogDirOffline(path, f"offline since {where}{cause.strerror or cause}")
