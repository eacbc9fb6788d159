"""Runs the statements of a text, and shows their results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from typing import Final, TypeVar

from kafkafs.api import LogDirectories
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


def interruptible(session: Session, work: Callable[[], T]) -> T:
    """Returns the result of `work`, which runs in another thread. Ctrl-C interrupts its statement,
    and is raised as KeyboardInterrupt."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- it is raised in the other thread
            future.set_exception(error)

    threading.Thread(target=run, name="kafkafs-sql", daemon=True).start()
    try:
        return future.result()
    except KeyboardInterrupt:
        for _ in range(int(_ENDING_SECONDS / _AGAIN_SECONDS)):
            session.interrupt()
            if wait([future], _AGAIN_SECONDS).done:
                break
        raise


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

    with closing(open_engine(log_dirs, configs, at)) as engine:
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
