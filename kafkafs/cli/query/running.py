"""Runs the statements of a text, and shows their results."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Final, TypeVar

from kafkafs.api import LogDirectories
from kafkafs.api.reading import UnreadWarning
from kafkafs.sql.session import QueryError, Session
from kafkafs.storage import PartitionFailed

from ..support import failures
from ..support.opening import check_schemas, open_engine
from ..support.output import Output
from ..support.words import Config
from . import SINGLE
from .formats import write

T = TypeVar("T")

# How long a statement may take to end when it is interrupted, and how often that is repeated: it
# may not have begun.
_ENDING_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.05
_ENDING: Final = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


def interruptible(session: Session, work: Callable[[], T]) -> T:
    """Returns the result of `work`, which runs in another thread. Ctrl-C interrupts its statement,
    and is raised as KeyboardInterrupt when it has ended. If it does not, the process ends."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- it is raised in the other thread
            future.set_exception(error)

    thread = threading.Thread(target=run, name="kafkafs-sql", daemon=True)
    with _delayed_signals() as signals:
        thread.start()
        while thread.is_alive() and not signals:
            # Python does not notice a signal that comes just before a wait, until that has ended.
            thread.join(_AGAIN_SECONDS)
        limit = time.monotonic() + _ENDING_SECONDS
        while thread.is_alive() and time.monotonic() < limit:
            session.interrupt()
            thread.join(_AGAIN_SECONDS)
        if thread.is_alive():
            # An interpreter that exits aborts when a thread of DuckDB enters it.
            failures.warn("the query does not end, so the program does")
            session.close()
            signal.signal(signals[0], signal.SIG_DFL)
            os.kill(os.getpid(), signals[0])
    return future.result()


@contextmanager
def _delayed_signals() -> Iterator[list[int]]:
    """Yields the numbers of the signals that came, in order; after the block, the first has the
    effect that it had before."""
    signals: list[int] = []
    before = {each: signal.getsignal(each) for each in _ENDING}
    mine = {each: handler for each, handler in before.items() if callable(handler)}
    for each in mine:
        signal.signal(each, lambda number, _: signals.append(number))
    try:
        yield signals
    finally:
        for each, handler in mine.items():
            signal.signal(each, handler)
        for number in signals[:1]:
            mine[signal.Signals(number)](number, None)


@contextmanager
def opened(
    log_dirs: tuple[str, ...],
    configs: Iterable[Config],
    *,
    at: int | None,
    isolation: str,
    files: bool,
) -> Iterator[tuple[Session, list[PartitionFailed]]]:
    """Yields a session of the directories, and the list of what its system tables lack, which is
    reported as it is found."""
    missing: list[PartitionFailed] = []

    def note(row: PartitionFailed) -> None:
        failures.report_row(row)
        missing.append(row)

    with closing(open_engine(log_dirs, configs, at)) as engine, warnings.catch_warnings():
        # The Python API warns of what `warn_of_unserved` prints at the end.
        warnings.simplefilter("ignore", UnreadWarning)
        check_schemas(engine)
        directories = LogDirectories(engine)
        with Session(directories, engine, isolation=isolation, files=files, on_failed=note) as it:
            yield it, missing
        failures.warn_of_unserved(engine)


class Results:
    """Runs statements, and writes their results to `out` in a format."""

    def __init__(self, session: Session, form: str, out: Output) -> None:
        self._session = session
        self._format = form
        self._out = out
        self._count = 0

    def run(self, text: str) -> None:
        """Runs all statements of a text. Raises the StorageError of a topic that cannot be read,
        Failure for what is wrong with a statement, or a result that the format cannot hold, and
        KeyboardInterrupt."""
        try:
            interruptible(self._session, lambda: self._run(text))
        except QueryError as error:
            raise failures.Failure(str(error)) from None

    def _run(self, text: str) -> None:
        for statement in self._session.statements(text):
            batches = self._session.run(statement)
            if batches is None:
                continue
            self._count += 1
            if self._count > 1 and self._format in SINGLE:
                raise failures.Failure(f"--format {self._format} holds one result, not several")
            with closing(batches):
                if self._format == "table" and statement.is_explain:
                    plans = (text for batch in batches for text in batch.column(1).to_pylist())
                    self._out.write("".join(f"{each.rstrip()}\n" for each in plans).encode())
                else:
                    write(batches, self._format, self._out)
            self._out.flush()
