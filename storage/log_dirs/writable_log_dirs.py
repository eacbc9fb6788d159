"""The log directories of a writing engine: locates partitions; opens, closes and visits all."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from ..clock import Clock
from ..errors import (
    LogDirError,
    LogDirOffline,
    NotClosed,
    StorageError,
    UnknownPartition,
    fresh,
    raise_first,
)
from ..format.files.names import PartitionState, TopicPartition
from ..io.durable import SyncFailed
from ..log.append.writer import LogWriter
from ..wording import printable
from .deleted_topics import DeletedTopic, deleted_topics
from .lock_dirs import LockedLogDir
from .log_dir import PartitionDir
from .log_dirs import LogDirs
from .writable_log_dir import WritableLogDir

LogWork = Callable[[TopicPartition, LogWriter], object]
LogsOf = Callable[[WritableLogDir], Sequence[tuple[TopicPartition, LogWriter]]]
DirWork = Callable[[WritableLogDir], object]
OpenLog = Callable[[WritableLogDir, PartitionDir, bool], LogWriter]


class WritableLogDirs:
    """`dirs`: all directories, in the given order. Thread-safe."""

    def __init__(
        self, held: Sequence[LockedLogDir], log_dirs: LogDirs, clock: Clock, threads: int
    ) -> None:
        """`threads`: the number that open and close partitions, per directory. Raises LogDirError
        if two directories have the same partition: nothing shows which one is right
        (LogManager)."""
        self._log_dirs = log_dirs
        refuse_same_partitions(log_dirs)
        self.dirs = [
            WritableLogDir(each, log_dir, clock)
            for each, log_dir in zip(held, log_dirs.dirs, strict=True)
        ]
        self._threads = threads * len(self.dirs)

    # -- locating partitions --------------------------------------------------------------------

    def live(self) -> list[WritableLogDir]:
        """Returns the directories that are not offline."""
        return [each for each in self.dirs if each.offline is None]

    def of(self, key: TopicPartition) -> WritableLogDir | None:
        """Returns the directory of a partition, even if it could not be opened."""
        for log_dir in self.dirs:
            if key in log_dir.logs:
                return log_dir
        found = self._log_dirs.partitions().get(key)
        return next((each for each in self.dirs if found and each.holds(found)), None)

    def log(self, key: TopicPartition) -> LogWriter | None:
        """Returns a partition that could be opened, even if its directory is offline by now."""
        return next((each.logs[key] for each in self.dirs if key in each.logs), None)

    def writer(self, key: TopicPartition) -> LogWriter:
        """Returns a partition that can be written to. Raises UnknownTopic, UnknownPartition,
        PartitionNotOpened or LogDirOffline."""
        log_dir = self.of(key)
        refuse_offline(log_dir)
        writer = log_dir.logs.get(key) if log_dir is not None else None
        if writer is None:
            self._log_dirs.partition(*key)  # raises the error for what is missing
            failure = log_dir.not_opened.get(key) if log_dir is not None else None
            raise UnknownPartition(*key) if failure is None else fresh(failure)
        return writer

    def live_logs(self) -> dict[TopicPartition, LogWriter]:
        """Returns all partitions that can be written to, by topic and number."""
        live = (each.logs for each in self.live())
        return dict(sorted(itertools.chain.from_iterable(map(dict.items, live))))

    def make(
        self, key: TopicPartition, topic_id: str, open_log: Callable[[WritableLogDir], LogWriter]
    ) -> None:
        """Creates a partition in the live directory with the fewest partitions; if that fails, in
        the next. Raises LogDirOffline or OSError if it fails in all."""
        failure: OSError | LogDirError | None = self.dirs[0].offline
        for log_dir in sorted(self.live(), key=lambda each: len(each.logs)):  # stable: keeps order
            try:
                with log_dir.guarded():
                    log_dir.make(key, topic_id)
                    log_dir.logs[key] = open_log(log_dir)
                return
            except (OSError, LogDirOffline) as error:
                failure = error
                log_dir.unmake(key)
        assert failure is not None  # if none is live, the first is offline
        try:
            raise failure
        finally:
            del failure  # else it and this frame would form a cycle

    def deleted_topics(self) -> list[DeletedTopic]:
        """Returns the topics that can be restored, oldest deletion first. Their indexes are those
        of `dirs`."""
        return deleted_topics(each.deleted_partitions for each in self.dirs)

    def is_left(self, path: str, directory: str, key: TopicPartition, name: str) -> bool:
        """See `purging.IsLeft`."""
        log_dir = next((each for each in self.dirs if each.path == path), None)
        return log_dir is None or log_dir.is_left(directory, key, name)

    # -- visiting all ---------------------------------------------------------------------------

    def for_each_log(self, work: LogWork, logs: LogsOf = WritableLogDir.sorted_logs) -> None:
        """Calls `work` for each log that is online, or for those that `logs` returns. A failure
        does not stop the others: the first one is raised after all were tried."""

        def work_on(key: TopicPartition, writer: LogWriter) -> None:
            with suppress(UnknownPartition):  # deleted meanwhile
                work(key, writer)

        do_all(
            partial(log_dir.do, partial(work_on, key, writer))
            for log_dir in self.dirs
            for key, writer in logs(log_dir)
        )

    def for_each(self, work: DirWork) -> None:
        """Does the same for each directory that is online."""
        do_all(partial(work, each) for each in self.dirs if each.offline is None)

    # -- opening and closing --------------------------------------------------------------------

    def load(self, open_log: OpenLog, loaded: Callable[[int, int], None]) -> None:
        """Opens all partitions, by `open_log(log_dir, partition, is_clean)`; `loaded` is called by
        any thread with the number of open partitions and their total."""
        counting = threading.Lock()
        done = total = 0

        def one_more() -> None:
            nonlocal done
            with counting:
                done += 1
                loaded(done, total)

        with self._executor() as executor:
            jobs: list[Future[None]] = []
            try:
                with counting:  # no progress is reported before the total is known
                    for log_dir in self.dirs:
                        jobs += log_dir.load(executor, open_log, one_more)
                    total = len(jobs)
                for job in jobs:
                    job.result()
            except BaseException:  # from a signal: do not wait for the rest
                executor.shutdown(cancel_futures=True)
                raise
        for log_dir in self.dirs:
            log_dir.finish_loading()

    def close(self) -> None:
        """Closes all partitions cleanly and releases the directories. Failures are raised after
        everything else is closed: NotClosed if everything is durable all the same, as on a full
        disk."""
        failures: list[Exception] = []
        with self._executor() as executor:
            closing = [(each, each.close(executor)) for each in self.dirs]
            for log_dir, futures in closing:
                try:
                    failures += _finish(log_dir, _failures(futures))
                except (StorageError, OSError) as error:
                    failures.insert(0, error)  # worse than NotClosed
        raise_first(failures)

    def _executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, thread_name_prefix="kafkafs-load")

    @property
    def failures(self) -> list[str]:
        """Directories that are offline and partitions that could not be opened, one line each."""
        offline = [str(each.offline) for each in self.dirs if each.offline is not None]
        return [*offline, *(problem for each in self.dirs for problem in each.problems)]


def refuse_offline(log_dir: WritableLogDir | None) -> None:
    """Raises LogDirOffline if the directory is offline."""
    if log_dir is not None and log_dir.offline is not None:
        raise LogDirOffline(*log_dir.offline.args)


def do_all(jobs: Iterator[Callable[[], object]]) -> None:
    """Runs all jobs; the first StorageError or OSError is raised after all were tried."""
    failures: list[StorageError | OSError] = []
    for job in jobs:
        try:
            job()
        except (StorageError, OSError) as error:
            failures.append(error)
    raise_first(failures)


def refuse_same_partitions(log_dirs: LogDirs) -> None:
    """Raises LogDirError if two directories have the same partition."""
    seen: dict[TopicPartition, PartitionDir] = {}
    for found in (each for log_dir in log_dirs.dirs for each in log_dir.partitions()):
        key = (found.topic, found.partition)
        if found.state is PartitionState.NORMAL and seen.setdefault(key, found) is not found:
            why = f"the same partition as {printable(seen[key].path)}; remove one of them"
            raise LogDirError(found.path, why)


def _finish(log_dir: WritableLogDir, failed: list[Exception]) -> list[Exception]:
    """Finishes a directory in which closing some partitions has `failed`. Returns NotClosed errors
    for partitions that are not closed, but durable; raises everything else."""
    try:
        if failed:
            log_dir.flush_unclosed()
    finally:
        try:
            log_dir.finish(is_well=not failed)
        except (StorageError, OSError) as error:
            failed.append(error)
    if not failed:
        return []
    found: list[Exception] = []
    for each in failed:
        if not isinstance(each, OSError) or isinstance(each, SyncFailed):
            return [each]
        not_closed = NotClosed(log_dir.path, f"{each.filename}: {each.strerror}")
        not_closed.__cause__ = each
        found.append(not_closed)
    return found


def _failures(jobs: Sequence[Future[None]]) -> list[Exception]:
    """Returns the storage and OS errors of closing. Other exceptions propagate."""
    failures: list[Exception] = []
    for job in jobs:
        try:
            job.result()
        except (StorageError, OSError) as error:
            failures.append(error)
    return failures
