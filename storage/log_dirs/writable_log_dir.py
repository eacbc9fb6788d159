"""One log directory open for writing: its lock and its partitions.

It does what Kafka's LogManager does for each of its `log.dirs`. The directory is locked until
`finish`. After a failure that leaves the state of its disk unknown, it goes offline: its partitions
refuse everything until it is reopened, and the other directories keep working.
"""

from __future__ import annotations

import errno
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import itemgetter

from ..clock import Clock
from ..errors import (
    CannotUndelete,
    CorruptError,
    LogDirError,
    LogDirOffline,
    PartitionNotOpened,
    SegmentGone,
    StorageError,
)
from ..format.files import names
from ..format.files.checkpoints import (
    PartitionMetadata,
    format_clean_shutdown,
    format_partition_metadata,
    parse_clean_shutdown,
)
from ..format.files.names import (
    PartitionState,
    TopicPartition,
    deleted_partition_dir,
    partition_dir,
)
from ..io.durable import SyncFailed, WritableDirFd
from ..io.small_file import read_value
from ..log.append.writer import LogWriter
from ..log.delete.deletions import NEVER_MS
from ..log.delete.leftovers import find_leftovers, remove
from ..wording import printable
from .checkpoints import LogDirCheckpoints
from .deleted_topics import (
    DELETED_PARTITION_FILE,
    DeletedPartition,
    DeletedPartitionDir,
    format_deleted_partition,
    read_deleted_dir,
)
from .lock_dirs import LockedLogDir
from .log_dir import LogDir, PartitionDir

logger = logging.getLogger(__name__)

# Errors that do not indicate a faulty disk, and may have passed at the next attempt.
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
_NO_BROKER = -1
_MAX_MARKER_BYTES = 4 << 10


class WritableLogDir:
    """A locked directory with its partitions. Thread-safe.

    `offline`: why nothing is written to it any more, None while it works. `not_opened`: the
    partitions that could not be opened, and why. `checkpoints`: its checkpoint files.
    """

    def __init__(self, held: LockedLogDir, log_dir: LogDir, clock: Clock) -> None:
        self.directory = held.directory
        self.path = held.directory.path
        self.logs: dict[TopicPartition, LogWriter] = {}
        self.offline: LogDirOffline | None = None
        self.not_opened: dict[TopicPartition, PartitionNotOpened] = {}
        self._log_dir = log_dir
        self._held = held
        self._clock = clock
        self._guard = threading.Lock()  # guards `offline` and each checkpoint file
        self.checkpoints = LogDirCheckpoints(self, log_dir, self._guard)
        self._deleted_partitions: dict[str, DeletedPartitionDir] = {}  # by directory name
        self._with_deleted: set[TopicPartition] = set()
        self._was_clean = self._may_mark_clean = False
        self._broker_epoch = _NO_BROKER

    # -- opening --------------------------------------------------------------------------------

    def load(
        self,
        executor: Executor,
        open_log: Callable[[WritableLogDir, PartitionDir, bool], LogWriter],
        loaded: Callable[[], None],
    ) -> list[Future[None]]:
        """Starts opening every partition, by `open_log(self, partition, is_clean)`; `loaded` is
        called after each. Exceptions of a partition are kept: damage in `not_opened`, and a
        failing disk takes the directory offline."""
        with self.guarded():
            was_clean = self._was_clean = self._log_dir.is_clean
            self._broker_epoch = self._read_broker_epoch()
            # First of all: after a crash the directory must not appear clean.
            self.directory.remove(names.CLEAN_SHUTDOWN_FILE, missing_ok=True)
            self.checkpoints.create_missing()
            self.directory.sync()
            found = self._log_dir.partitions()
        for each in found:
            if each.state is PartitionState.DELETE:
                self._deleted_partitions[each.name] = read_deleted_dir(each)
        self._may_mark_clean = True

        def load_one(partition: PartitionDir) -> None:
            key = (partition.topic, partition.partition)
            try:
                with self.guarded():
                    writer = open_log(self, partition, was_clean)
                self.logs[key] = writer
            except LogDirOffline:
                pass
            except (StorageError, OSError) as error:
                self.not_opened[key] = PartitionNotOpened(*key, _why(error))
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
        """Writes the checkpoints, which after a crash may cover lost records. They only matter to
        the next opening and to other readers, so failures are ignored here."""
        if not self._was_clean and self.offline is None:
            with suppress(StorageError, OSError):
                self.checkpoints.write()
                self.checkpoints.write_high_watermarks()

    def _read_broker_epoch(self) -> int:
        """Returns the epoch of the last broker that closed the directory: a broker that finds an
        epoch other than its own treats the shutdown as unclean."""
        name = names.CLEAN_SHUTDOWN_FILE
        try:
            return read_value(self.directory, name, _MAX_MARKER_BYTES, parse_clean_shutdown)
        except (SegmentGone, CorruptError):
            return _NO_BROKER

    # -- partitions -----------------------------------------------------------------------------

    def sorted_logs(self) -> list[tuple[TopicPartition, LogWriter]]:
        """Returns the logs that can be written to, by topic and number; none if the directory is
        offline."""
        if self.offline is not None:
            return []
        return sorted(self.logs.items(), key=itemgetter(0))

    def note_has_deleted(self, key: TopicPartition, has_deleted: bool) -> None:
        """Records whether a log has deleted files to remove; called under the log's lock."""
        (self._with_deleted.add if has_deleted else self._with_deleted.discard)(key)

    def logs_with_deleted(self) -> list[tuple[TopicPartition, LogWriter]]:
        """Returns those of `sorted_logs` that have deleted files to remove."""
        if self.offline is not None:
            return []
        found = ((key, self.logs.get(key)) for key in sorted(self._with_deleted))
        return [(key, writer) for key, writer in found if writer is not None]

    def holds(self, partition: PartitionDir) -> bool:
        """Returns whether the partition's directory is in this one."""
        return partition.log_dir is self._log_dir

    def do(self, work: Callable[[], object]) -> None:
        """Runs `work`, which changes this directory, under `guarded`."""
        with self.guarded():
            work()

    def make(self, key: TopicPartition, topic_id: str) -> WritableDirFd:
        """Creates a directory for a new partition, with its topic's id in it ("" for none),
        durably. Raises LogDirError if the name exists."""
        with self.guarded():
            # Entries of a partition of that name that was deleted just before a crash.
            if key in self._log_dir.log_start_offsets or key in self._log_dir.recovery_points:
                self.checkpoints.write()
            if key in self._log_dir.cleaner_offsets:
                self.checkpoints.forget_cleaner_offsets()
            name = partition_dir(*key)
            try:
                directory = self.directory.make(name)
            except FileExistsError:
                path = self.directory.path_of(name)
                raise LogDirError(path, "it is in the way of a new partition; remove it") from None
            if topic_id:
                data = format_partition_metadata(PartitionMetadata(0, topic_id))
                directory.write_atomically(names.PARTITION_METADATA_FILE, data)
            self.directory.sync()
            return directory

    def unmake(self, key: TopicPartition) -> None:
        """Undoes `make`, as far as possible."""
        self.logs.pop(key, None)
        with suppress(OSError, StorageError):
            self.directory.remove_directory(partition_dir(*key))

    def delete(
        self,
        key: TopicPartition,
        was: DeletedPartition | None = None,
        since_ms: int | None = None,
    ) -> None:
        """Takes a partition out of service at once; `remove_deleted_partitions` removes its files.
        Until then it can be restored as what it `was`. `since_ms`: see `DeletedPartitionDir`; None
        means now."""
        with self.guarded():
            name = deleted_partition_dir(*key, uuid.uuid4().hex)
            self.not_opened.pop(key, None)
            writer = self.logs.pop(key, None)
            if writer is not None:
                writer.abandon()
                self.note_has_deleted(key, has_deleted=False)
            if was is not None:
                self._note_deleted(key, was)
            try:
                self.directory.rename_child(partition_dir(*key), name)
            finally:  # it may be renamed, but not synced
                since_ms = self._clock.now_ms() if since_ms is None else since_ms
                self._add_deleted(DeletedPartitionDir(name, since_ms, was))

    def _add_deleted(self, deleted_dir: DeletedPartitionDir) -> None:
        """Records a deleted directory, if it exists."""
        with suppress(SegmentGone):
            self.directory.stat(deleted_dir.name)
            self._deleted_partitions[deleted_dir.name] = deleted_dir

    def _note_deleted(self, key: TopicPartition, was: DeletedPartition) -> None:
        """Writes the note for the next process. A full disk must not prevent a deletion."""
        try:
            file = self.directory.child(partition_dir(*key)).create(DELETED_PARTITION_FILE)
            file.write(0, format_deleted_partition(was))
        except OSError as error:
            if error.errno not in _PASSING:
                raise

    @property
    def problems(self) -> list[str]:
        """The partitions that could not be opened, one line each."""
        return [
            f"{printable(self.directory.path_of(partition_dir(*key)))}: not opened: {error.why}"
            for key, error in sorted(self.not_opened.items())
        ]

    @property
    def deleted_partitions(self) -> list[DeletedPartitionDir]:
        """The deleted partitions that can be restored."""
        if self.offline is not None:
            return []
        return [each for each in list(self._deleted_partitions.values()) if each.was is not None]

    def restore(self, deleted_dir: DeletedPartitionDir) -> None:
        """Restores a partition's directory name, durably, after its checkpoints. Raises
        CannotUndelete if it has just been removed."""
        was = deleted_dir.was
        assert was is not None
        key = (was.topic, was.partition)
        if self._deleted_partitions.pop(deleted_dir.name, None) is None:
            raise CannotUndelete(partition_dir(*key), "its files were removed")
        try:
            self.checkpoints.write_recovery_points({key: was.recovery_point})
            self.checkpoints.write_start_offsets({key: was.start_offset})
            with self.guarded():
                self.directory.rename_child(deleted_dir.name, partition_dir(*key))
                directory = self.directory.child(partition_dir(*key))
                directory.remove(DELETED_PARTITION_FILE, missing_ok=True)
        except BaseException:
            self._add_deleted(deleted_dir)
            raise

    @property
    def has_deleted_partitions(self) -> bool:
        """Whether `remove_deleted_partitions` could find anything."""
        return any(each.since_ms != NEVER_MS for each in list(self._deleted_partitions.values()))

    def remove_deleted_partitions(self, delay_ms: int) -> int:
        """Removes the directories of partitions that this process deleted at least `delay_ms` ago;
        returns their number."""
        now = self._clock.now_ms()
        due = [
            each
            for each in list(self._deleted_partitions.values())
            if now - each.since_ms >= delay_ms
        ]
        return sum(map(self._remove_deleted, due))

    def _remove_deleted(self, deleted_dir: DeletedPartitionDir) -> bool:
        if self._deleted_partitions.pop(deleted_dir.name, None) is None:
            return False  # it is being restored
        try:
            with self.guarded(), suppress(FileNotFoundError):
                self.directory.remove_directory(deleted_dir.name)
        except BaseException:
            # Some of its files may be gone.
            self._deleted_partitions[deleted_dir.name] = replace(deleted_dir, was=None)
            raise
        return True

    def is_left(self, directory: str, key: TopicPartition, name: str) -> bool:
        """Returns whether the file `name` of a partition's directory or, if that is "", the
        directory itself is something other than what this process deleted and will remove when its
        delay has passed."""
        if not name:
            deleted_dir = self._deleted_partitions.get(directory)
            return deleted_dir is None or deleted_dir.since_ms == NEVER_MS
        writer = self.logs.get(key)
        return writer is None or writer.is_left(name)

    def purge_partition(self, name: str) -> bool:
        """Removes the directory `name` of a deleted or stray partition; returns whether it
        existed."""
        parsed = names.parse_partition_dir(name)
        if parsed is None or parsed.state not in (PartitionState.DELETE, PartitionState.STRAY):
            return False
        if name in self._deleted_partitions:
            return self._remove_deleted(self._deleted_partitions[name])
        with self.guarded(), suppress(FileNotFoundError):
            self.directory.remove_directory(name)
            return True
        return False

    def purge_files(self, key: TopicPartition, selected: AbstractSet[str]) -> set[str]:
        """Removes those leftovers of a partition whose names are in `selected`; returns the names
        of those removed. The caller must have exclusive access to the partition."""
        with self.guarded():
            writer = self.logs.get(key)
            if writer is not None:
                return writer.purge(selected)
            directory = self.directory.child(partition_dir(*key))
            found = [each for each in find_leftovers(directory) if each.name in selected]
            remove(directory, found)
            return {each.name for each in found}

    # -- failing and closing --------------------------------------------------------------------

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Wraps code that changes the directory: raises LogDirOffline if it is offline, or goes
        offline now because of a failure that leaves the state of its disk unknown."""
        if self.offline is not None:
            raise LogDirOffline(*self.offline.args)
        try:
            yield
        except OSError as error:
            if error.errno in _PASSING and not isinstance(error, SyncFailed):
                raise
            raise self.fail(error) from error

    def fail(self, cause: OSError | LogDirOffline) -> LogDirOffline:
        """Takes the directory offline because of `cause`; returns the first failure's error."""
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
        """Handles a partition's failure that concerns the whole directory."""
        self.fail(error)

    def close(self, executor: Executor) -> list[Future[None]]:
        """Starts closing every partition; call `finish` after all are done."""
        if self.offline is not None:
            return []

        def close_one(writer: LogWriter) -> None:
            with self.guarded():
                writer.close()

        return [executor.submit(close_one, writer) for _, writer in self.sorted_logs()]

    def flush_unclosed(self) -> None:
        """Flushes partitions that `close` has not closed. Raises LogDirOffline."""
        for _, writer in self.sorted_logs():
            if not writer.is_closed:
                writer.flush()
        if self.offline is not None:
            raise LogDirOffline(*self.offline.args)

    def finish(self, is_well: bool) -> None:
        """Writes the state for the next opening, the clean shutdown marker last, and releases the
        directory. `is_well`: all partitions were closed."""
        try:
            if is_well and self.offline is None:
                self.checkpoints.write()
                self.checkpoints.write_high_watermarks()
                if self._may_mark_clean:
                    with self.guarded():
                        data = format_clean_shutdown(self._broker_epoch)
                        self.directory.write_in_place(names.CLEAN_SHUTDOWN_FILE, data)
        finally:
            self._held.release()


def _why(error: StorageError | OSError) -> str:
    """Returns the error in one line, with the file that an OSError concerns."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{printable(str(error.filename))}: {error.strerror}"
    return str(error)


def _offline(path: str, cause: OSError | LogDirOffline) -> LogDirOffline:
    if isinstance(cause, LogDirOffline):
        return LogDirOffline(path, cause.why)
    where = f"{printable(str(cause.filename))}: " if cause.filename else ""
    return LogDirOffline(path, f"offline since {where}{cause.strerror or cause}")
