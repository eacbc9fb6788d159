"""Carries out requests of the command line, wherever the engine of the directories is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Protocol, TypeVar

from kafkafs.storage.errors import LogDirLocked
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.request import PartitionFailed, Progress, Request

from . import failures
from .mounted_engine import holding
from .opening import open_engine, writing
from .params import Config
from .progress import Report, bar

Q = TypeVar("Q", bound=Request, contravariant=True)
R = TypeVar("R", covariant=True)


class Operation(Protocol[Q, R]):
    """A function of an engine and a request that yields rows."""

    def __call__(
        self, engine: Any, request: Q, progress: Progress = ..., /
    ) -> Iterator[R | PartitionFailed]: ...


def perform(
    log_dirs: tuple[str, ...],
    configs: Sequence[Config],
    request: Q,
    operation: Operation[Q, R],
    put: Callable[[R], object],
    *,
    asks_mount: bool = False,
    finds_deleted: bool = False,
) -> int:
    """Carries out a request, calls `put` with every row, reports what failed on stderr, and returns
    the exit code.

    A request that only reads takes no lock. One that writes opens the directories for writing; if
    the user's own mount holds them, it is forwarded there. With `asks_mount`, so are those that
    only read, because the mount knows more. Raises LogDirLocked if another process holds the
    directories. `finds_deleted` as for LogManager.
    """

    def take(rows: Iterable[R | PartitionFailed]) -> int:
        code = 0
        for row in rows:
            if isinstance(row, PartitionFailed):
                code = failures.tell_row(row)
            else:
                put(row)
        return code

    def here(engine: Engine) -> int:
        with _bars() as progress:
            return take(operation(engine, request, progress))

    mounted = holding(log_dirs, configs) if request.writes or asks_mount else None
    if mounted is not None:
        return take(mounted.ask(request))
    with closing(open_engine(log_dirs, configs)) as engine:
        refused = request.check(engine)
        if refused:
            return take(refused)
        if not request.writes:
            return here(engine)
    try:
        with writing(log_dirs, configs, finds_deleted=finds_deleted) as manager:
            return here(manager)
    except LogDirLocked:
        mounted = holding(log_dirs, configs)
        if mounted is None:
            raise
    return take(mounted.ask(request))


class _Bars(Progress):
    """Shows progress as a bar for each thing that is being done."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._what = ""
        self._report: Report | None = None

    def report(self, what: str, done: int, total: int) -> None:
        if self._report is None or what != self._what:
            self._stack.close()
            self._what, self._report = what, self._stack.enter_context(bar(what))
        self._report(done, total)


@contextmanager
def _bars() -> Iterator[Progress]:
    with ExitStack() as stack:
        yield _Bars(stack)
